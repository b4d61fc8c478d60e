//! `dot` and `matmul`: products of vectors, matrices and stacks of matrices; `cholesky`.

use super::contraction::{by_plan, shape_by};
use super::einsum::{dot_plan, matmul_plan};
use super::{kernel, on_host, original, text};
use crate::error::{Error, Result};
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, Kernel, NativeFn, NoParam, OpDef, Registry};
use crate::shape::Shape;
use std::sync::Arc;

const INPUTS: &[(&str, &str)] = &[("a", "The first array."), ("b", "The second array.")];

/// The shape of the contraction of the last axis of `a` with the first of `b`, which has one or two
/// axes.
fn contracted(a: &Shape, b: &Shape) -> Result<Shape> {
    let (Some((&k, rows)), Some((&first, columns))) =
        (a.dims().split_last(), b.dims().split_first())
    else {
        return Err(Error::argument("b", "shape", b, "at least one axis"));
    };
    if k >= 0 && first >= 0 && k != first {
        let expected = format!("{k} as its first extent, the last of a, {a}");
        return Err(Error::argument("b", "shape", b, expected));
    }
    Ok(rows.iter().chain(columns).copied().collect())
}

/// Is it the product of an array of any number of axes with a vector or a matrix?
fn is_plain(a: &Shape, b: &Shape) -> bool {
    a.ndim() > 0 && (1..3).contains(&b.ndim())
}

/// Is it the product of two stacks of matrices with equal leading axes?
fn is_stacked(a: &Shape, b: &Shape) -> bool {
    let rank = a.ndim();
    rank > 2 && rank == b.ndim() && a.dims()[..rank - 2] == b.dims()[..rank - 2]
}

fn dot_shape(attrs: &Attrs, inputs: &[Shape]) -> Result<Shape> {
    match is_plain(&inputs[0], &inputs[1]) {
        true => contracted(&inputs[0], &inputs[1]),
        false => shape_by(dot_plan, attrs, inputs),
    }
}

fn matmul_shape(attrs: &Attrs, inputs: &[Shape]) -> Result<Shape> {
    match is_plain(&inputs[0], &inputs[1]) {
        true => contracted(&inputs[0], &inputs[1]),
        false => shape_by(matmul_plan, attrs, inputs),
    }
}

fn infer(
    rule: fn(&Attrs, &[Shape]) -> Result<Shape>,
) -> impl Fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool> {
    move |attrs, inputs, outputs| {
        if inputs.iter().all(Shape::rank_known) {
            let shape = rule(attrs, inputs)?;
            assign_shape(&mut outputs[0], "output", &shape)?;
        }
        Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
    }
}

/// The kernel `one` for products with a vector or a matrix, `many` for stacks, if there is one, and
/// `rest` for all others; the operands are two inputs from `at` on.
fn either(at: usize, one: NativeFn, many: Option<NativeFn>, rest: NativeFn) -> Kernel {
    kernel(move |call: &Call<'_>| {
        let (a, b) = (call.inputs[at].shape(), call.inputs[at + 1].shape());
        match &many {
            _ if is_plain(a, b) => one(call),
            Some(many) if is_stacked(a, b) => many(call),
            _ => rest(call),
        }
    })
}

/// An operator with its gradient: `dot` under another name, with the product of stacks if `stacks`.
fn product(registry: &Registry, name: &str, stacks: bool) -> [OpDef; 2] {
    let run = |name: &str| on_host(&original(registry, name));
    let back = format!("_backward_{}", name.replace("npi", "np").trim_start_matches('_'));
    let plan = if stacks { matmul_plan } else { dot_plan };
    let [forward_rest, backward_rest] = by_plan(plan);
    let many = |name: &str| stacks.then(|| run(name));
    let mut forward = original(registry, "dot")
        .renamed(name)
        .taking(|_: &NoParam| Ok(Vec::new()))
        .inputs_are(INPUTS)
        .infer_shape(infer(if stacks { matmul_shape } else { dot_shape }))
        .gradient(Gradient::use_in(&back));
    forward.kernels = vec![Arc::new(either(0, run("dot"), many("batch_dot"), forward_rest))];
    let mut backward = original(registry, "_backward_dot").renamed(&back);
    let (one, many) = (run("_backward_dot"), many("_backward_batch_dot"));
    backward.kernels = vec![Arc::new(either(1, one, many, backward_rest))];
    [forward, backward]
}

fn dot(registry: &Registry) -> [OpDef; 2] {
    let [forward, backward] = product(registry, "_np_dot", false);
    let forward = forward.doc(&text(
        "The product of vectors, matrices, and arrays of any number of axes.",
        "The last axis of ``a`` and the last but one of ``b``, or its only one, are contracted; \
         two vectors give shape ``()``, a number scales. One dtype, a float.",
        "_np_dot(nd.array([[1, 2], [3, 4]]), nd.array([1, 1]))\n[3. 7.]",
    ));
    [forward, backward]
}

fn matmul(registry: &Registry) -> [OpDef; 2] {
    let [forward, backward] = product(registry, "_npi_matmul", true);
    let forward = forward.outputs_are(&["out"]).doc(&text(
        "The matrix product.",
        "``(..., n, k)`` and ``(..., k, m)`` give ``(..., n, m)``; leading axes are broadcast. A \
         vector counts as a row on the left and as a column on the right. One dtype, a float.",
        "_npi_matmul(nd.ones((2, 1, 3)), nd.ones((2, 3, 1))).shape\n(2, 1, 1)",
    ));
    [forward, backward]
}

pub fn operators(registry: &Registry) -> Vec<OpDef> {
    let mut all = [matmul(registry), dot(registry)].concat();
    let cholesky = original(registry, "_linalg_potrf")
        .renamed("_npi_cholesky")
        .taking(|_: &NoParam| Ok(Vec::new()))
        .doc(&text(
            "The lower triangular L with A = L L' of positive definite matrices.",
            "``(..., n, n)``, float32 or float64. Other matrices are an error.",
            "_npi_cholesky(nd.array([[4, 2], [2, 5]]))\n[[2. 0.]\n [1. 2.]]",
        ));
    all.push(cholesky);
    all
}
