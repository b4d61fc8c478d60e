//! `dot` and `matmul`: products of vectors, matrices and stacks of matrices; `cholesky`.

use super::{kernel, on_host, original, text};
use crate::error::{Error, Result};
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, NativeFn, NoParam, OpDef, Registry};
use crate::shape::Shape;
use std::sync::Arc;

const INPUTS: &[(&str, &str)] = &[("a", "The first array."), ("b", "The second array.")];

/// The shape of the contraction of the last axis of `a` with the first of `b`, which has one or two
/// axes.
fn contracted(a: &Shape, b: &Shape) -> Result<Shape> {
    let ((Some((&k, rows)), Some((&first, columns))), true) =
        ((a.dims().split_last(), b.dims().split_first()), b.ndim() <= 2)
    else {
        let expected = "one or two axes, and the first array at least one";
        return Err(Error::argument("b", "shape", b, expected));
    };
    if k >= 0 && first >= 0 && k != first {
        return Err(Error::value(format!("shapes {a} and {b} do not fit: {k} and {first}")));
    }
    Ok(rows.iter().chain(columns).copied().collect())
}

/// The shape of the products of two stacks of matrices with equal leading axes.
fn stacked(a: &Shape, b: &Shape) -> Result<Shape> {
    let refused = || {
        Error::value(format!("shapes {a} and {b} do not fit: expected (..., n, k) and (..., k, m)"))
    };
    let (rank, mut lead) = (a.ndim(), a.clone());
    if rank != b.ndim() {
        return Err(refused());
    }
    let (k, first, m) = (a.dims()[rank - 1], b.dims()[rank - 2], b.dims()[rank - 1]);
    lead.dims_mut().truncate(rank - 2);
    let fits = lead.merge(&Shape::new(&b.dims()[..rank - 2])).is_ok();
    if !fits || (k >= 0 && first >= 0 && k != first) {
        return Err(refused());
    }
    lead.dims_mut().extend([a.dims()[rank - 2], m]);
    Ok(lead)
}

fn infer(
    rule: fn(&Shape, &Shape) -> Result<Shape>,
) -> impl Fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool> {
    move |_, inputs, outputs| {
        if inputs.iter().all(Shape::rank_known) {
            let shape = rule(&inputs[0], &inputs[1])?;
            assign_shape(&mut outputs[0], "output", &shape)?;
        }
        Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
    }
}

fn dot(registry: &Registry) -> OpDef {
    let mut def = original(registry, "dot")
        .renamed("_np_dot")
        .taking(|_: &NoParam| Ok(Vec::new()))
        .inputs_are(INPUTS)
        .doc(&text(
            "The product of vectors and matrices.",
            "The last axis of ``a`` and the first of ``b``, which has one or two, are contracted; \
             two vectors give shape ``()``. One dtype, a float.",
            "_np_dot(nd.array([[1, 2], [3, 4]]), nd.array([1, 1]))\n[3. 7.]",
        ))
        .infer_shape(infer(contracted));
    def.differentiable_gradient = None; // it is written for other shapes
    def
}

/// The kernel of one product for arrays of up to two axes on the right, of another for stacks.
fn either(at: usize, one: NativeFn, many: NativeFn) -> crate::operator::Kernel {
    kernel(move |call: &Call<'_>| match call.inputs[at].ndim() <= 2 {
        true => one(call),
        false => many(call),
    })
}

fn matmul(registry: &Registry) -> Vec<OpDef> {
    let run = |name: &str| on_host(&original(registry, name));
    let mut forward = original(registry, "dot")
        .renamed("_npi_matmul")
        .taking(|_: &NoParam| Ok(Vec::new()))
        .inputs_are(INPUTS)
        .outputs_are(&["out"])
        .doc(&text(
            "The matrix product.",
            "``(..., n, k)`` and ``(k, m)``, or two stacks with equal leading axes, which are not \
             broadcast; a vector counts as a row on the left and as a column on the right. One \
             dtype, a float.",
            "_npi_matmul(nd.ones((2, 1, 3)), nd.ones((2, 3, 1))).shape\n(2, 1, 1)",
        ))
        .infer_shape(infer(|a, b| if b.ndim() <= 2 { contracted(a, b) } else { stacked(a, b) }))
        .gradient(Gradient::use_in("_backward_np_matmul"));
    forward.differentiable_gradient = None;
    forward.kernels = vec![Arc::new(either(1, run("dot"), run("batch_dot")))];
    let mut backward = original(registry, "_backward_dot").renamed("_backward_np_matmul");
    backward.kernels = vec![Arc::new(either(2, run("_backward_dot"), run("_backward_batch_dot")))];
    vec![forward, backward]
}

pub fn operators(registry: &Registry) -> Vec<OpDef> {
    let mut all = matmul(registry);
    let cholesky = original(registry, "_linalg_potrf")
        .renamed("_npi_cholesky")
        .taking(|_: &NoParam| Ok(Vec::new()))
        .doc(&text(
            "The lower triangular L with A = L L' of positive definite matrices.",
            "``(..., n, n)``, float32 or float64. Other matrices are an error.",
            "_npi_cholesky(nd.array([[4, 2], [2, 5]]))\n[[2. 0.]\n [1. 2.]]",
        ));
    all.extend([dot(registry), cholesky]);
    all
}
