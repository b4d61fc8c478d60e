//! Products: `gemm`, `gemm2`, `syrk`, `khatri_rao`.

use super::{expect_matrices, float_type, known, op, product, text, wanted, widening};
use crate::error::{Error, Result};
use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};

params! {
    /// Parameters of `_linalg_gemm`.
    pub struct GemmParam {
        transpose_a: bool, default(false), "Multiply by transposed matrices of A?";
        transpose_b: bool, default(false), "Multiply by transposed matrices of B?";
        alpha: f64, default(1.0), "Factor of the product.";
        beta: f64, default(1.0), "Factor of C.";
        axis: i32, default(-2), "The axis of rows; columns are the last axis.";
    }
}

params! {
    /// Parameters of `_linalg_gemm2`.
    pub struct Gemm2Param {
        transpose_a: bool, default(false), "Multiply by transposed matrices of A?";
        transpose_b: bool, default(false), "Multiply by transposed matrices of B?";
        alpha: f64, default(1.0), "Factor of the product.";
        axis: i32, default(-2), "The axis of rows; columns are the last axis.";
    }
}

params! {
    /// Parameters of `_linalg_syrk`.
    pub struct SyrkParam {
        transpose: bool, default(false), "A' A instead of A A'?";
        alpha: f64, default(1.0), "Factor of the product.";
    }
}

params! {
    /// Parameters of `khatri_rao`.
    pub struct KhatriRaoParam {
        num_args: i32, required.ge(1.0), "Number of matrices.";
    }
}

pub fn operators() -> Vec<OpDef> {
    vec![gemm3(), gemm2(), syrk(), khatri_rao(), khatri_rao_backward()]
}

/// What both forms of the product share.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Options {
    pub turn_a: bool,
    pub turn_b: bool,
    pub alpha: f64,
    pub beta: f64,
    pub axis: i32,
}

pub(in crate::ops) fn options(attrs: &Attrs) -> Options {
    match attrs.typed().downcast_ref::<Gemm2Param>() {
        Some(p) => Options {
            turn_a: p.transpose_a,
            turn_b: p.transpose_b,
            alpha: p.alpha,
            beta: 0.0,
            axis: p.axis,
        },
        None => {
            let p: &GemmParam = attrs.get();
            Options {
                turn_a: p.transpose_a,
                turn_b: p.transpose_b,
                alpha: p.alpha,
                beta: p.beta,
                axis: p.axis,
            }
        }
    }
}

const NOTES: &str = "All have the same axes but for rows and columns, at least two. \
float16 (calculated in float32), float32 or float64.";

fn gemm3() -> OpDef {
    OpDef::new::<GemmParam>("_linalg_gemm")
        .aliases(&["linalg_gemm"])
        .doc(&text(
            "``alpha * op(A) op(B) + beta * C`` of matrices in batches, ``op`` transposing or not.",
            NOTES,
            "nd.linalg.gemm(nd.ones((2, 2)), nd.ones((2, 2)), nd.ones((2, 2)), beta=3)\n[[5. 5.]\n \
             [5. 5.]]",
        ))
        .inputs_are(&[("A", "Left matrices."), ("B", "Right matrices."), ("C", "What is added.")])
        .infer_shape(infer_shape)
        .infer_type(float_type)
        .expensive()
        .gradient(product_gradient())
        .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => multiply::<T>(c))))
}

fn gemm2() -> OpDef {
    OpDef::new::<Gemm2Param>("_linalg_gemm2")
        .aliases(&["linalg_gemm2"])
        .doc(&text(
            "``alpha * op(A) op(B)`` of matrices in batches, ``op`` transposing or not.",
            NOTES,
            "nd.linalg.gemm2(nd.array([[1, 2]]), nd.array([[3, 4]]), transpose_b=True)\n[[11.]]",
        ))
        .inputs_are(&[("A", "Left matrices."), ("B", "Right matrices.")])
        .infer_shape(infer_shape)
        .infer_type(float_type)
        .expensive()
        .gradient(product_gradient())
        .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => multiply::<T>(c))))
}

fn product_gradient() -> Gradient {
    Gradient::rule(|builder, node| {
        let Options { turn_a, turn_b, alpha, beta, axis } = options(node.attrs);
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let g = node.out_grad(builder, 0)?;
        let mut times = |x: (_, bool), y: (_, bool)| {
            let params = [
                ("transpose_a", x.1.into()),
                ("transpose_b", y.1.into()),
                ("alpha", alpha.into()),
                ("axis", axis.into()),
            ];
            op(builder, "_linalg_gemm2", &params, &[x.0, y.0])
        };
        let da =
            if turn_a { times((b, turn_b), (g, true))? } else { times((g, false), (b, !turn_b))? };
        let db =
            if turn_b { times((g, true), (a, turn_a))? } else { times((a, !turn_a), (g, false))? };
        let mut all = vec![Some(da), Some(db)];
        if node.inputs.len() > 2 {
            all.push(Some(op(builder, "_mul_scalar", &[("scalar", beta.into())], &[g])?));
        }
        Ok(all)
    })
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let o = options(attrs);
    for (shape, name) in inputs.iter().zip(["A", "B"]) {
        expect_matrices(shape, name, false)?;
    }
    if !inputs[..2].iter().all(Shape::rank_known) {
        return Ok(false);
    }
    let (a, b) = (&inputs[0], &inputs[1]);
    let axis = a.axis(o.axis.into())?;
    let last = a.ndim() - 1;
    if axis == last {
        return Err(Error::argument("axis", "value", o.axis, "an axis before the last"));
    }
    let side = |s: &Shape, rows: bool| s.dims()[if rows { axis } else { last }];
    if a.ndim() != b.ndim() {
        return Err(Error::argument("B", "number of axes", b.ndim(), a.ndim()));
    }
    let (inner_a, inner_b) = (side(a, o.turn_a), side(b, !o.turn_b));
    if inner_a >= 0 && inner_b >= 0 && inner_a != inner_b {
        let expected = format!("{inner_a} elements along the axis that meets A of shape {a}");
        return Err(Error::argument("B", "shape", b, expected));
    }
    let (rows, columns) = (side(a, !o.turn_a), side(b, o.turn_b));
    let mut batch = a.clone();
    let mut other = b.clone();
    for s in [&mut batch, &mut other] {
        s.dims_mut()[axis] = rows;
        s.dims_mut()[last] = columns;
    }
    assign_shape(&mut batch, "B", &other)?;
    assign_shape(&mut outputs[0], "output", &batch)?;
    if inputs.len() > 2 {
        let out = outputs[0].clone();
        assign_shape(&mut inputs[2], "C", &out)?;
        assign_shape(&mut outputs[0], "output", &inputs[2])?;
    }
    known(inputs, outputs)
}

/// Where matrix `i` of a view begins, with rows along `axis`.
fn matrix<T: Real>(view: &View, axis: usize, i: usize) -> Mat<T> {
    let s = view.shape();
    let inner = s.product(axis + 1..s.ndim() - 1);
    let (rows, columns) = (s.product(axis..axis + 1), s.product(s.ndim() - 1..s.ndim()));
    let start = (i / inner.max(1) * rows * inner + i % inner.max(1)) * columns;
    // SAFETY: `i` is below the number of matrices.
    let ptr = unsafe { view.as_ptr::<T>().add(start) };
    Mat { ptr, row: (inner * columns) as isize, col: 1 }
}

fn multiply<T: Real>(call: &Call<'_>) -> Result<()> {
    let out = &call.outputs[0];
    if !wanted(call, 0) || out.size() == 0 {
        return Ok(());
    }
    let o = options(call.attrs);
    let (a, b) = (&call.inputs[0], &call.inputs[1]);
    let axis = a.shape().axis(o.axis.into())?;
    let last = a.dims().len() - 1;
    let (m, n) = (out.dims()[axis] as usize, out.dims()[last] as usize);
    let k = a.dims()[if o.turn_a { axis } else { last }] as usize;
    let count = out.size() / (m * n);
    let one = |i: usize, threads: Threads| {
        let (x, y) =
            (matrix::<T>(a, axis, i).t_if(o.turn_a), matrix::<T>(b, axis, i).t_if(o.turn_b));
        // SAFETY: inference gave the matrices these extents; the output overlaps no input.
        unsafe { gemm((m, n, k), x, y, matrix(out, axis, i), false, threads) };
    };
    if count == 1 {
        one(0, Threads::Pool);
    } else {
        parallel_for(count, (1usize << 14).div_ceil(m * n * k.max(1)), |range| {
            range.for_each(|i| one(i, Threads::One));
        });
    }
    // SAFETY: the output is ours to write; C is not written meanwhile.
    let (y, c) = unsafe { (out.slice_mut::<T>(), call.inputs.get(2).map(|c| c.slice::<T>())) };
    let (alpha, beta) = (T::of(o.alpha), T::of(o.beta));
    match c {
        Some(c) => y.iter_mut().zip(c).for_each(|(y, &c)| *y = alpha * *y + beta * c),
        None if o.alpha != 1.0 => y.iter_mut().for_each(|y| *y *= alpha),
        None => {}
    }
    Ok(())
}

fn syrk() -> OpDef {
    OpDef::new::<SyrkParam>("_linalg_syrk")
        .aliases(&["linalg_syrk"])
        .doc(&text(
            "``alpha * A A'`` of matrices in batches, or ``alpha * A' A``.",
            "``(..., m, n)`` gives ``(..., m, m)``, with ``transpose`` ``(..., n, n)``. float16 \
             (calculated in float32), float32 or float64.",
            "nd.linalg.syrk(nd.array([[1, 2], [3, 4]]))\n[[ 5. 11.]\n [11. 25.]]",
        ))
        .inputs_are(&[("A", "The matrices (..., m, n).")])
        .infer_shape(|attrs, inputs, outputs| {
            expect_matrices(&inputs[0], "A", false)?;
            if let [lead @ .., m, n] = inputs[0].dims() {
                let side = if attrs.get::<SyrkParam>().transpose { *n } else { *m };
                let out = Shape::from_iter(lead.iter().copied().chain([side, side]));
                assign_shape(&mut outputs[0], "output", &out)?;
            }
            known(inputs, outputs)
        })
        .infer_type(float_type)
        .expensive()
        .gradient(Gradient::rule(|builder, node| {
            let p: &SyrkParam = node.attrs.get();
            let (a, g) = (node.inputs[0], node.out_grad(builder, 0)?);
            let mut part = |turned: bool| match p.transpose {
                true => product(builder, (a, false), (g, turned), p.alpha),
                false => product(builder, (g, turned), (a, false), p.alpha),
            };
            let (x, y) = (part(false)?, part(true)?);
            Ok(vec![Some(op(builder, "elemwise_add", &[], &[x, y])?)])
        }))
        .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => square::<T>(c))))
}

fn square<T: Real>(call: &Call<'_>) -> Result<()> {
    if !wanted(call, 0) {
        return Ok(());
    }
    let p: &SyrkParam = call.attrs.get();
    let (a, out) = (&call.inputs[0], &call.outputs[0]);
    let (m, n, count) = super::matrices(a);
    let (side, k) = if p.transpose { (n, m) } else { (m, n) };
    for i in 0..count {
        let x = matrix::<T>(a, a.dims().len() - 2, i).t_if(p.transpose);
        let to = matrix::<T>(out, a.dims().len() - 2, i);
        // SAFETY: inference gave the matrices these extents; the output overlaps no input.
        unsafe { gemm((side, side, k), x, x.t(), to, false, Threads::Pool) };
    }
    // SAFETY: the output is ours to write.
    unsafe { out.slice_mut::<T>() }.iter_mut().for_each(|y| *y *= T::of(p.alpha));
    Ok(())
}

fn khatri_rao() -> OpDef {
    OpDef::new::<KhatriRaoParam>("khatri_rao")
        .doc(&text(
            "The column-wise Kronecker product of matrices.",
            "Matrices ``(n1, k)``, ``(n2, k)`` ... give ``(n1 * n2 * ..., k)``. float16 \
             (calculated in float32), float32 or float64.",
            "nd.khatri_rao(nd.array([[1, 2]]), nd.array([[3, 4], [5, 6]]))\n[[ 3.  8.]\n [ 5. \
             12.]]",
        ))
        .variadic("num_args", "The matrices (n, k).")
        .infer_shape(|_, inputs, outputs| {
            let mut columns = Shape::new(&[-1]);
            for s in inputs.iter() {
                super::expect_rank(s, "args", 2..=2)?;
                if let [_, k] = s.dims() {
                    assign_shape(&mut columns, "args", &Shape::new(&[*k]))?;
                }
            }
            let k = columns.dims()[0];
            let mut rows = Some(1i64);
            for s in inputs.iter_mut() {
                assign_shape(s, "args", &Shape::new(&[-1, k]))?;
                let n = s.dims()[0];
                rows = if n < 0 { None } else { rows.and_then(|r| r.checked_mul(n)) };
            }
            assign_shape(&mut outputs[0], "output", &Shape::new(&[rows.unwrap_or(-1), k]))?;
            known(inputs, outputs)
        })
        .infer_type(float_type)
        .gradient(Gradient::use_in("_backward_khatri_rao"))
        .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => columns::<T>(c))))
}

/// The backward operator of `khatri_rao`.
fn khatri_rao_backward() -> OpDef {
    OpDef::new::<KhatriRaoParam>("_backward_khatri_rao")
        .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => columns_grad::<T>(c))))
}

/// Calls `f(row of the output, row of each matrix)`.
fn rows_of(extents: &[usize], mut f: impl FnMut(usize, &[usize])) {
    let total: usize = extents.iter().product();
    let mut at = vec![0; extents.len()];
    for row in 0..total {
        let mut rest = row;
        for (slot, &n) in at.iter_mut().zip(extents).rev() {
            *slot = rest % n;
            rest /= n;
        }
        f(row, &at);
    }
}

fn columns<T: Real>(call: &Call<'_>) -> Result<()> {
    if !wanted(call, 0) {
        return Ok(());
    }
    let k = call.outputs[0].dims()[1] as usize;
    let extents: Vec<usize> = call.inputs.iter().map(|v| v.dims()[0] as usize).collect();
    let out = Shared(call.outputs[0].as_ptr::<T>());
    // SAFETY: inputs are not written meanwhile.
    let all: Vec<&[T]> = call.inputs.iter().map(|v| unsafe { v.slice::<T>() }).collect();
    rows_of(&extents, |row, at| {
        for j in 0..k {
            let value = all.iter().zip(at).fold(T::one(), |p, (x, &i)| p * x[i * k + j]);
            // SAFETY: the output has these rows.
            unsafe { *out.at(row * k + j) = value };
        }
    });
    Ok(())
}

fn columns_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    let k = call.inputs[0].dims()[1] as usize;
    // SAFETY: inputs are not written meanwhile.
    let input: Vec<&[T]> = call.inputs.iter().map(|v| unsafe { v.slice::<T>() }).collect();
    let (dy, all) = (input[0], &input[1..]);
    let extents: Vec<usize> = call.inputs[1..].iter().map(|v| v.dims()[0] as usize).collect();
    for (which, out) in call.outputs.iter().enumerate().filter(|(i, _)| wanted(call, *i)) {
        // SAFETY: the output is ours to write and overlaps no input.
        let out = unsafe { out.slice_mut::<T>() };
        out.fill(T::zero());
        rows_of(&extents, |row, at| {
            for j in 0..k {
                let others = all.iter().zip(at).enumerate().filter(|(i, _)| *i != which);
                let factor = others.fold(T::one(), |p, (_, (x, &i))| p * x[i * k + j]);
                out[at[which] * k + j] += dy[row * k + j] * factor;
            }
        });
    }
    Ok(())
}
