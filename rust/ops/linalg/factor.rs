//! Factorisations: `potrf`, `potri`, `gelqf`, `syevd`, `det`, `slogdet`, `inverse`.

use super::{
    batch_of, expect_matrices, float_type, for_each_matrix, known, matrices, mirrored, op, own,
    product, square_to_square, text, triangle, wanted, widening,
};
use crate::error::{Error, Result};
use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::linalg::{Steps, cholesky, eigen, inverse, lq, lu, solve};
use crate::kernels::parallel::Shared;
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, GradBuilder, GradNode, Gradient, Gradients, OpDef};
use crate::ops::nn::widening::always;
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `_linalg_potrf` and `_linalg_potri`.
    pub struct CholeskyParam {
        lower: bool, default(true), "Is the factor a lower triangle? Else an upper one.";
    }
}

const SQUARE: &str =
    "A ``(..., n, n)``, the output's shape. float16 (calculated in float32), float32 or float64.";

pub fn operators() -> Vec<OpDef> {
    let square = |name: &str, def: OpDef| {
        def.aliases(&[name])
            .inputs_are(&[("A", "The matrices (..., n, n).")])
            .infer_shape(|_, inputs, outputs| square_to_square(inputs, outputs))
            .infer_type(float_type)
            .expensive()
    };
    vec![
        square("linalg_potrf", OpDef::new::<CholeskyParam>("_linalg_potrf"))
            .doc(&text(
                "The Cholesky factor of positive definite matrices: ``A = L L'``, or ``A = U' U``.",
                &format!(
                    "{SQUARE} Only one triangle of A is read, but the gradient is that of \
                     symmetric matrices. A matrix that is not positive definite is an error."
                ),
                "nd.linalg.potrf(nd.array([[4, 2], [2, 5]]))\n[[2. 0.]\n [1. 2.]]",
            ))
            .gradient(Gradient::rule(potrf_gradient))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => potrf::<T>(c)))),
        square("linalg_potri", OpDef::new::<CholeskyParam>("_linalg_potri"))
            .doc(&text(
                "The inverse of ``L L'`` (of ``U' U``) from the factor that `potrf` returns.",
                &format!("{SQUARE} Only the triangle of A is read."),
                "nd.linalg.potri(nd.array([[2, 0], [0, 1]]))\n[[0.25 0.  ]\n [0.   1.  ]]",
            ))
            .gradient(Gradient::rule(potri_gradient))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => potri::<T>(c)))),
        square("linalg_inverse", OpDef::plain("_linalg_inverse"))
            .aliases(&["_npi_inv"])
            .doc(&text(
                "The inverses of matrices.",
                &format!("{SQUARE} A singular matrix is an error."),
                "nd.linalg.inverse(nd.array([[2, 0], [0, 4]]))\n[[0.5  0.  ]\n [0.   0.25]]",
            ))
            .gradient(Gradient::rule_reading(&[Dep::Output(0)], |builder, node| {
                let (b, g) = (node.outputs[0], node.out_grad(builder, 0)?);
                let left = product(builder, (b, true), (g, false), -1.0)?;
                Ok(vec![Some(product(builder, (left, false), (b, true), 1.0)?)])
            }))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => inv::<T>(c)))),
        det(),
        OpDef::plain("_backward_linalg_det")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => det_grad::<T>(c)))),
        slogdet(),
        OpDef::plain("_backward_linalg_slogdet")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => slogdet_grad::<T>(c)))),
        gelqf(),
        syevd(),
        OpDef::plain("_backward_linalg_syevd")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => syevd_grad::<T>(c)))),
    ]
}

/// Calls `f(matrix, result)` on the square matrices of the first input and output.
fn each<T: Real>(
    call: &Call<'_>,
    f: impl Fn(usize, &[T], &mut [T]) -> Result<()> + Send + Sync,
) -> Result<()> {
    let (n, _, count) = matrices(&call.inputs[0]);
    if !wanted(call, 0) || n * count == 0 {
        return Ok(());
    }
    // SAFETY: inputs are not written meanwhile.
    let (a, y) = (unsafe { call.inputs[0].slice::<T>() }, Shared(call.outputs[0].as_ptr::<T>()));
    for_each_matrix(count, n * n * n, |i| {
        // SAFETY: the output is ours and overlaps no input.
        f(n, &a[i * n * n..(i + 1) * n * n], unsafe { own(y, i, n * n) })
    })
}

fn turn<T: Copy>(a: &mut [T], n: usize) {
    for (i, j) in (0..n).flat_map(|i| (0..i).map(move |j| (i, j))) {
        a.swap(i * n + j, j * n + i);
    }
}

fn potrf<T: Real>(call: &Call<'_>) -> Result<()> {
    let lower = call.attrs.get::<CholeskyParam>().lower;
    each::<T>(call, |n, a, y| {
        y.copy_from_slice(a);
        if !lower {
            turn(y, n);
        }
        cholesky(y, n).map_err(|row| {
            Error::value(format!(
                "invalid matrix in argument 'A', whose pivot {row} is not positive: expected a \
                 positive definite matrix"
            ))
        })?;
        if !lower {
            turn(y, n);
        }
        Ok(())
    })
}

/// With `M = L' dL`: `dA = 1/2 L^-T mirrored(M) L^-1`.
fn potrf_gradient(builder: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let lower = node.attrs.get::<CholeskyParam>().lower;
    let (l, g) = (node.outputs[0], node.out_grad(builder, 0)?);
    let m = match lower {
        true => product(builder, (l, true), (g, false), 1.0)?,
        false => product(builder, (l, false), (g, true), 1.0)?,
    };
    let middle = mirrored(builder, m)?;
    let side = |right: bool| {
        [
            ("lower", lower.into()),
            ("transpose", (right != lower).into()),
            ("rightside", right.into()),
        ]
    };
    let half = op(builder, "_linalg_trsm", &side(false), &[l, middle])?;
    let whole = op(builder, "_linalg_trsm", &side(true), &[l, half])?;
    Ok(vec![Some(op(builder, "_mul_scalar", &[("scalar", 0.5.into())], &[whole])?)])
}

fn potri<T: Real>(call: &Call<'_>) -> Result<()> {
    let lower = call.attrs.get::<CholeskyParam>().lower;
    each::<T>(call, |n, a, y| {
        y.fill(T::zero());
        (0..n).for_each(|i| y[i * n + i] = T::one());
        let steps = Steps::row_major(n).turned_if(!lower);
        let right = (n, Steps::row_major(n));
        solve(a, (n, steps, true), y, right);
        solve(a, (n, steps.turned_if(true), false), y, right);
        Ok(())
    })
}

/// With `S = B (dB + dB') B`: `dL = -tril(S L)`, or `dU = -triu(U S)`.
fn potri_gradient(builder: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let lower = node.attrs.get::<CholeskyParam>().lower;
    let (l, b, g) = (node.inputs[0], node.outputs[0], node.out_grad(builder, 0)?);
    // Only the triangle of the factor counts, whatever else the array holds.
    let l = triangle(builder, l, lower)?;
    let mut sandwich = |turned: bool| {
        let left = product(builder, (b, false), (g, turned), -1.0)?;
        product(builder, (left, false), (b, false), 1.0)
    };
    let (x, y) = (sandwich(false)?, sandwich(true)?);
    let s = op(builder, "elemwise_add", &[], &[x, y])?;
    let (left, right) = if lower { (s, l) } else { (l, s) };
    let raw = product(builder, (left, false), (right, false), 1.0)?;
    Ok(vec![Some(triangle(builder, raw, lower)?)])
}

fn inv<T: Real>(call: &Call<'_>) -> Result<()> {
    each::<T>(call, |n, a, y| {
        inverse(&mut a.to_vec(), n, y).ok_or_else(|| {
            Error::argument("A", "value", "a singular matrix", "invertible matrices")
        })
    })
}

fn det() -> OpDef {
    OpDef::plain("_linalg_det")
        .aliases(&["linalg_det", "_npi_det"])
        .doc(&text(
            "The determinants of matrices.",
            "A ``(..., n, n)`` gives ``(...)``, one matrix ``(1,)``. The gradient of a singular \
             matrix is 0. float16 (calculated in float32), float32 or float64.",
            "nd.linalg.det(nd.array([[1, 2], [3, 4]]))\n[-2.]",
        ))
        .inputs_are(&[("A", "The matrices (..., n, n).")])
        .outputs_are(&["output0"])
        .infer_shape(det_shape)
        .infer_type(float_type)
        .expensive()
        .gradient(Gradient::declared("_backward_linalg_det", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(0), Dep::Output(0)]
        }))
        .kernel(widening::cpu(|c| {
            with_real!(c.inputs[0].dtype(), T => {
                let out = Shared(c.outputs[0].as_ptr::<T>());
                factors::<T>(c, |i, sign, logarithm| {
                    // SAFETY: the output has an element for each matrix.
                    unsafe { *out.at(i) = sign * logarithm.exp() };
                })
            })
        }))
}

fn slogdet() -> OpDef {
    OpDef::plain("_linalg_slogdet")
        .aliases(&["linalg_slogdet", "_npi_slogdet"])
        .doc(&text(
            "Signs of the determinants of matrices, and the logarithms of their absolute values.",
            "A ``(..., n, n)`` gives two arrays ``(...)``, for one matrix ``(1,)``; of a singular \
             matrix 0 and ``-inf``. The sign has no gradient; the gradient of a singular matrix is \
             0. float16 (calculated in float32), float32 or float64.",
            "nd.linalg.slogdet(nd.array([[1, 2], [3, 4]]))[0]\n[-1.]",
        ))
        .inputs_are(&[("A", "The matrices (..., n, n).")])
        .outputs_are(&["output0", "output1"])
        .infer_shape(det_shape)
        .infer_type(float_type)
        .expensive()
        .gradient(Gradient::declared("_backward_linalg_slogdet", |_, _, _| {
            vec![Dep::OutGrad(1), Dep::Input(0)]
        }))
        .kernel(always(|c| {
            with_real!(c.inputs[0].dtype(), T => {
                let [signs, logarithms] = [0, 1].map(|i| Shared(c.outputs[i].as_ptr::<T>()));
                factors::<T>(c, |i, sign, logarithm| {
                    // SAFETY: the outputs have an element for each matrix.
                    unsafe {
                        *signs.at(i) = sign;
                        *logarithms.at(i) = logarithm;
                    }
                })
            })
        }))
}

fn det_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    expect_matrices(&inputs[0], "A", true)?;
    if inputs[0].rank_known() {
        let batch = batch_of(&inputs[0]);
        for out in outputs.iter_mut() {
            assign_shape(out, "output", &batch)?;
        }
    }
    known(inputs, outputs)
}

/// Calls `f(number, sign, logarithm)` with the determinants.
fn factors<T: Real>(call: &Call<'_>, f: impl Fn(usize, T, T) + Send + Sync) -> Result<()> {
    let (n, _, count) = matrices(&call.inputs[0]);
    if !wanted(call, 0) && call.outputs.len() < 2 {
        return Ok(());
    }
    // SAFETY: inputs are not written meanwhile.
    let a = unsafe { call.inputs[0].slice::<T>() };
    for_each_matrix(count, n * n * n, |i| {
        let mut own = a[i * n * n..(i + 1) * n * n].to_vec();
        let (_, mut sign) = lu(&mut own, n);
        let mut logarithm = T::zero();
        for k in 0..n {
            let pivot = own[k * n + k];
            sign *= if pivot == T::zero() { T::zero() } else { pivot.signum() };
            logarithm += pivot.abs().ln();
        }
        f(i, sign, logarithm);
        Ok(())
    })
}

/// `dA = factor * A^-T`, 0 where A is singular, NaN where A holds NaN.
fn inverse_grad<T: Real>(
    call: &Call<'_>,
    a: usize,
    factor: impl Fn(usize) -> T + Send + Sync,
) -> Result<()> {
    if !wanted(call, 0) {
        return Ok(());
    }
    let (n, _, count) = matrices(&call.inputs[a]);
    // SAFETY: inputs are not written meanwhile.
    let all = unsafe { call.inputs[a].slice::<T>() };
    let out = Shared(call.outputs[0].as_ptr::<T>());
    for_each_matrix(count, n * n * n, |i| {
        // SAFETY: the output is ours and overlaps no input.
        let to = unsafe { own(out, i, n * n) };
        let matrix = &all[i * n * n..(i + 1) * n * n];
        match inverse(&mut matrix.to_vec(), n, to) {
            None if matrix.iter().any(|v| v.is_nan()) => to.fill(T::nan()),
            None => to.fill(T::zero()),
            Some(()) => {
                turn(to, n);
                to.iter_mut().for_each(|v| *v *= factor(i));
            }
        }
        Ok(())
    })
}

fn det_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    // SAFETY: inputs are not written meanwhile.
    let [dy, det] = [0, 2].map(|i| unsafe { call.inputs[i].slice::<T>() });
    inverse_grad(call, 1, |i| dy[i] * det[i])
}

fn slogdet_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    // SAFETY: inputs are not written meanwhile.
    let dy = unsafe { call.inputs[0].slice::<T>() };
    inverse_grad(call, 1, |i| dy[i])
}

fn gelqf() -> OpDef {
    OpDef::plain("_linalg_gelqf")
        .aliases(&["linalg_gelqf"])
        .doc(&text(
            "The factors of matrices with at most as many rows as columns: ``A = L Q``, L a lower \
             triangle, ``Q Q' = 1``.",
            "A ``(..., m, n)`` with ``m <= n`` gives Q ``(..., m, n)`` and L ``(..., m, m)``. \
             Signs are those of Householder's method, as in LAPACK. float16 (calculated in \
             float32), float32 or float64.",
            "nd.linalg.gelqf(nd.array([[3, 4]]))[1]\n[[-5.]]",
        ))
        .inputs_are(&[("A", "The matrices (..., m, n).")])
        .outputs_are(&["output0", "output1"])
        .infer_shape(|_, inputs, outputs| {
            let seen = outputs[0].clone();
            assign_shape(&mut inputs[0], "A", &seen)?;
            expect_matrices(&inputs[0], "A", false)?;
            if let [lead @ .., m, n] = inputs[0].dims() {
                if *m >= 0 && *n >= 0 && m > n {
                    let expected = "at most as many rows as columns";
                    return Err(Error::argument("A", "shape", &inputs[0], expected));
                }
                let l = Shape::from_iter(lead.iter().copied().chain([*m, *m]));
                assign_shape(&mut outputs[1], "output1", &l)?;
            }
            assign_shape(&mut outputs[0], "output0", &inputs[0])?;
            known(inputs, outputs)
        })
        .infer_type(float_type)
        .expensive()
        .gradient(Gradient::rule(gelqf_gradient))
        .kernel(always(|c| {
            with_real!(c.inputs[0].dtype(), T => {
                let (m, n, count) = matrices(&c.inputs[0]);
                crate::kernels::copy::copy(&c.inputs[0], &c.outputs[0]);
                let [q, l] = [0, 1].map(|i| Shared(c.outputs[i].as_ptr::<T>()));
                for_each_matrix(if m * n > 0 { count } else { 0 }, m * m * n, |i| {
                    // SAFETY: the outputs are ours to write and overlap no input.
                    let (q, l) = unsafe { (own(q, i, m * n), own(l, i, m * m)) };
                    lq(q, (m, n), l);
                    Ok(())
                })
            })
        }))
}

/// With `M = L' dL - dQ Q'`: `dA = L^-T (dQ + mirrored(M) Q)`.
fn gelqf_gradient(builder: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let (q, l) = (node.outputs[0], node.outputs[1]);
    let (dq, dl) = (node.out_grad(builder, 0)?, node.out_grad(builder, 1)?);
    let a = product(builder, (l, true), (dl, false), 1.0)?;
    let b = product(builder, (dq, false), (q, true), 1.0)?;
    let m = op(builder, "elemwise_sub", &[], &[a, b])?;
    let m = mirrored(builder, m)?;
    let turned = product(builder, (m, false), (q, false), 1.0)?;
    let sum = op(builder, "elemwise_add", &[], &[dq, turned])?;
    Ok(vec![Some(op(builder, "_linalg_trsm", &[("transpose", true.into())], &[l, sum])?)])
}

fn syevd() -> OpDef {
    OpDef::plain("_linalg_syevd")
        .aliases(&["linalg_syevd"])
        .doc(&text(
            "Eigenvectors and eigenvalues of symmetric matrices: ``A = U' diag(L) U``. Of A, only \
             the lower triangle is read.",
            "A ``(..., n, n)`` gives U ``(..., n, n)``, whose rows are the eigenvectors, each with \
             a positive greatest element, and L ``(..., n)``, rising. Equal eigenvalues add \
             nothing to each other's gradient. float16 (calculated in float32), float32 or \
             float64.",
            "nd.linalg.syevd(nd.array([[2, 1], [1, 2]]))[1]\n[1. 3.]",
        ))
        .inputs_are(&[("A", "Symmetric matrices (..., n, n).")])
        .outputs_are(&["output0", "output1"])
        .infer_shape(|_, inputs, outputs| {
            let complete = square_to_square(inputs, &mut outputs[..1])?;
            if let [lead @ .., n, _] = inputs[0].dims() {
                let values = Shape::from_iter(lead.iter().chain([n]).copied());
                assign_shape(&mut outputs[1], "output1", &values)?;
            }
            Ok(complete)
        })
        .infer_type(float_type)
        .expensive()
        .gradient(Gradient::declared("_backward_linalg_syevd", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::OutGrad(1), Dep::Output(0), Dep::Output(1)]
        }))
        .kernel(always(|c| {
            with_real!(c.inputs[0].dtype(), T => {
                let (n, _, count) = matrices(&c.inputs[0]);
                // SAFETY: inputs are not written meanwhile.
                let a = unsafe { c.inputs[0].slice::<T>() };
                let [u, l] = [0, 1].map(|i| Shared(c.outputs[i].as_ptr::<T>()));
                for_each_matrix(count, 8 * n * n * n, |i| {
                    // SAFETY: the outputs are ours to write and overlap no input.
                    let (u, l) = unsafe { (own(u, i, n * n), own(l, i, n)) };
                    let mut a = a[i * n * n..(i + 1) * n * n].to_vec();
                    for (row, column) in (0..n).flat_map(|row| (0..row).map(move |c| (row, c))) {
                        a[column * n + row] = a[row * n + column];
                    }
                    eigen(&mut a, n, u, l);
                    Ok(())
                })
            })
        }))
}

/// `dA = U' (diag(dL) + sym(F * (U dU'))) U` with `F[i, j] = 1 / (l[j] - l[i])`.
fn syevd_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    if !wanted(call, 0) {
        return Ok(());
    }
    let (n, _, count) = matrices(&call.inputs[2]);
    // SAFETY: inputs are not written meanwhile.
    let [du, dl, u, l] = [0, 1, 2, 3].map(|i| unsafe { call.inputs[i].slice::<T>() });
    let out = Shared(call.outputs[0].as_ptr::<T>());
    let threads = if count > 1 { Threads::One } else { Threads::Pool };
    for_each_matrix(count, 3 * n * n * n, |m| {
        let (square, row) = (m * n * n..(m + 1) * n * n, m * n..(m + 1) * n);
        // SAFETY: the output is ours and overlaps no input.
        let to = unsafe { own(out, m, n * n) };
        syevd_slope(n, [&du[square.clone()], &dl[row.clone()], &u[square], &l[row]], to, threads);
        Ok(())
    })
}

/// That of one matrix.
fn syevd_slope<T: Real>(n: usize, [du, dl, u, l]: [&[T]; 4], to: &mut [T], threads: Threads) {
    let (mut middle, mut half) = (vec![T::zero(); n * n], vec![T::zero(); n * n]);
    let [u, du] = [u, du].map(|x| Mat::rows(x.as_ptr().cast_mut(), n));
    let [to, half] = [to, &mut half].map(|x| Mat::rows(x.as_mut_ptr(), n));
    let size = (n, n, n);
    // SAFETY: all are square matrices of n rows, and products overlap no factor.
    unsafe { gemm(size, u, du.t(), Mat::rows(middle.as_mut_ptr(), n), false, threads) };
    for i in 0..n {
        middle[i * n + i] = dl[i];
        for j in 0..i {
            let (gap, rest) = (l[j] - l[i], middle[i * n + j] - middle[j * n + i]);
            let slope = if gap == T::zero() { T::zero() } else { rest / (gap + gap) };
            (middle[i * n + j], middle[j * n + i]) = (slope, slope);
        }
    }
    // SAFETY: as above.
    unsafe {
        gemm(size, Mat::rows(middle.as_mut_ptr(), n), u, half, false, threads);
        gemm(size, u.t(), half, to, false, threads);
    }
}
