//! Triangular matrices as factors and systems: `trmm`, `trsm`.

use super::{
    expect_matrices, float_type, known, matrices, op, product, text, triangle, wanted, widening,
};
use crate::error::Result;
use crate::kernels::linalg::{Steps, multiply, solve};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{
    Attrs, Call, GradBuilder, GradEntry, GradNode, Gradient, Gradients, InplacePair, OpDef,
};
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `_linalg_trmm` and `_linalg_trsm`.
    pub struct TriangularParam {
        transpose: bool, default(false), "Transpose A?";
        rightside: bool, default(false), "Does A stand to the right?";
        lower: bool, default(true), "Is A a lower triangle? Else an upper one.";
        alpha: f64, default(1.0), "Factor of the result.";
    }
}

const NOTES: &str = "A ``(..., n, n)``, of which only the triangle is read, and B ``(..., n, m)``, \
                     with ``rightside`` ``(..., m, n)``, the output's shape. float16 (calculated \
                     in float32), float32 or float64.";

type Routine<T> = fn(&[T], (usize, Steps, bool), &mut [T], (usize, Steps));

pub fn operators() -> Vec<OpDef> {
    let define = |name: &str, doc: String, rule: Rule| {
        OpDef::new::<TriangularParam>(&format!("_{name}"))
            .aliases(&[name])
            .doc(&doc)
            .inputs_are(&[("A", "Triangular matrices."), ("B", "Matrices.")])
            .infer_shape(infer_shape)
            .infer_type(float_type)
            .inplace(&[InplacePair::new(1, 0)])
            .expensive()
            .gradient(Gradient::rule(rule))
    };
    let multiplied = text(
        "``alpha * op(A) B`` for triangular A, or with ``rightside`` ``alpha * B op(A)``.",
        NOTES,
        "nd.linalg.trmm(nd.array([[1, 9], [2, 3]]), nd.array([[1], [1]]))\n[[1.]\n [5.]]",
    );
    let solved = text(
        "Solves ``op(A) X = alpha * B`` for triangular A, or with ``rightside`` ``X op(A) = alpha \
         * B``.",
        &format!("{NOTES} A 0 on the diagonal gives infinities."),
        "nd.linalg.trsm(nd.array([[1, 9], [2, 3]]), nd.array([[1], [5]]))\n[[1.]\n [1.]]",
    );
    vec![
        define("linalg_trmm", multiplied, trmm_gradient).kernel(widening::cpu(
            |c| with_real!(c.inputs[0].dtype(), T => run::<T>(c, multiply::<T>)),
        )),
        define("linalg_trsm", solved, trsm_gradient).kernel(widening::cpu(
            |c| with_real!(c.inputs[0].dtype(), T => run::<T>(c, solve::<T>)),
        )),
    ]
}

type Rule = fn(&mut dyn GradBuilder, &GradNode<'_>) -> Result<Gradients>;

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p: &TriangularParam = attrs.get();
    let seen = outputs[0].clone();
    assign_shape(&mut inputs[1], "B", &seen)?;
    expect_matrices(&inputs[0], "A", true)?;
    expect_matrices(&inputs[1], "B", false)?;
    if let [lead @ .., m, n] = inputs[1].dims() {
        let side = if p.rightside { *n } else { *m };
        let a = Shape::from_iter(lead.iter().copied().chain([side, side]));
        assign_shape(&mut inputs[0], "A", &a)?;
    }
    if let [lead @ .., n, _] = inputs[0].dims() {
        let mut b = Shape::from_iter(lead.iter().copied().chain([-1, -1]));
        let at = b.ndim() - if p.rightside { 1 } else { 2 };
        b.dims_mut()[at] = *n;
        assign_shape(&mut inputs[1], "B", &b)?;
    }
    assign_shape(&mut outputs[0], "output", &inputs[1])?;
    known(inputs, outputs)
}

fn run<T: Real>(call: &Call<'_>, apply: Routine<T>) -> Result<()> {
    let out = &call.outputs[0];
    if !wanted(call, 0) || out.size() == 0 {
        return Ok(());
    }
    let p: &TriangularParam = call.attrs.get();
    crate::kernels::copy::copy(&call.inputs[1], out);
    // SAFETY: inputs are not written meanwhile; the output is ours, and holds B now.
    let (a, y) = unsafe { (call.inputs[0].slice::<T>(), out.slice_mut::<T>()) };
    if p.alpha != 1.0 {
        y.iter_mut().for_each(|y| *y *= T::of(p.alpha));
    }
    let ((rows, columns, count), n) = (matrices(out), matrices(&call.inputs[0]).0);
    // With A to the right everything is transposed: op(A)' X' = B'.
    let turned = p.transpose != p.rightside;
    let triangle = (n, Steps::row_major(n).turned_if(turned), p.lower != turned);
    let right = (rows * columns / n, Steps::row_major(columns).turned_if(p.rightside));
    let y = Shared(y.as_mut_ptr());
    parallel_for(count, (1usize << 12).div_ceil(n * rows * columns), |range| {
        for i in range {
            // SAFETY: a matrix belongs to one task.
            let b =
                unsafe { std::slice::from_raw_parts_mut(y.at(i * rows * columns), rows * columns) };
            apply(&a[i * n * n..(i + 1) * n * n], triangle, b, right);
        }
    });
    Ok(())
}

/// `op(A)` is multiplied by `x` and `y` is the gradient of the product: the gradient of A.
fn of_triangle(
    builder: &mut dyn GradBuilder,
    p: &TriangularParam,
    x: GradEntry,
    y: GradEntry,
    alpha: f64,
) -> Result<GradEntry> {
    let raw = match (p.rightside, p.transpose) {
        (false, false) => product(builder, (y, false), (x, true), alpha)?,
        (false, true) => product(builder, (x, false), (y, true), alpha)?,
        (true, false) => product(builder, (x, true), (y, false), alpha)?,
        (true, true) => product(builder, (y, true), (x, false), alpha)?,
    };
    triangle(builder, raw, p.lower)
}

/// The same operator with A transposed, of other inputs.
fn turned(
    builder: &mut dyn GradBuilder,
    name: &str,
    p: &TriangularParam,
    alpha: f64,
    inputs: [GradEntry; 2],
) -> Result<GradEntry> {
    let params = [
        ("transpose", (!p.transpose).into()),
        ("rightside", p.rightside.into()),
        ("lower", p.lower.into()),
        ("alpha", alpha.into()),
    ];
    op(builder, name, &params, &inputs)
}

fn trmm_gradient(builder: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let p: &TriangularParam = node.attrs.get();
    let (a, b, g) = (node.inputs[0], node.inputs[1], node.out_grad(builder, 0)?);
    let da = of_triangle(builder, p, b, g, p.alpha)?;
    let db = turned(builder, "_linalg_trmm", p, p.alpha, [a, g])?;
    Ok(vec![Some(da), Some(db)])
}

fn trsm_gradient(builder: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let p: &TriangularParam = node.attrs.get();
    let (a, x, g) = (node.inputs[0], node.outputs[0], node.out_grad(builder, 0)?);
    let solved = turned(builder, "_linalg_trsm", p, 1.0, [a, g])?;
    let da = of_triangle(builder, p, x, solved, -1.0)?;
    let db = op(builder, "_mul_scalar", &[("scalar", p.alpha.into())], &[solved])?;
    Ok(vec![Some(da), Some(db)])
}
