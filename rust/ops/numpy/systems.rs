//! Linear systems: `solve`, and those whose unknowns are arrays.

use super::linear::{FLOATS, elements, operator, product, singular, store, wide};
use super::text;
use crate::error::{Error, Result};
use crate::kernels::copy::Buffer;
use crate::kernels::layout::copy_strided;
use crate::kernels::linalg::{inverse, solve_any};
use crate::kernels::real::Real;
use crate::operator::{Attrs, Call, Dep, Gradient, NoParam, OpDef, OpReq, Registry, Tuple};
use crate::ops::linalg::{expect_matrices, matrices};
use crate::shape::{Dims, Numbers, Shape};
use crate::tensor::View;
use crate::{params, with_real};

params! {
    /// Parameters of `_npi_tensorinv`.
    pub struct TensorinvParam {
        ind: i32, default(2).ge(1.0), "How many first axes the inverse has last.";
    }
}

params! {
    /// Parameters of `_npi_tensorsolve`.
    pub struct TensorsolveParam {
        a_axes: Tuple, default(Tuple::new()), "Axes of ``a`` that are moved to the end first.";
    }
}

/// The columns of the right-hand side: one if it has an axis less than the matrices.
fn columns(a: &Shape, b: &Shape) -> Result<usize> {
    expect_matrices(a, "A", true)?;
    let rank = a.ndim();
    let vector = b.ndim() + 1 == rank && b.dims() == &a.dims()[..rank - 1];
    let matrix = b.ndim() == rank && b.dims()[..rank - 1] == a.dims()[..rank - 1];
    match (vector, matrix) {
        (true, _) => Ok(1),
        (_, true) => Ok(b.dims()[rank - 1] as usize),
        _ => {
            let expected = format!("(..., n) or (..., n, m) for matrices {a}");
            Err(Error::argument("B", "shape", b, expected))
        }
    }
}

fn turned<T: Copy>(a: &[T], n: usize) -> Vec<T> {
    (0..n * n).map(|at| a[at % n * n + at / n]).collect()
}

fn solve_forward(call: &Call<'_>) -> Result<()> {
    let m = columns(call.inputs[0].shape(), call.inputs[1].shape())?;
    let (n, _, count) = matrices(&call.inputs[0]);
    with_real!(call.inputs[0].dtype(), T => {
        let (mut a, mut b) = (elements::<T>(&call.inputs[0]), elements::<T>(&call.inputs[1]));
        for i in 0..count {
            let (a, b) = (&mut a[i * n * n..(i + 1) * n * n], &mut b[i * n * m..(i + 1) * n * m]);
            solve_any(a, n, b, m).ok_or_else(|| singular("A"))?;
        }
        store(call, 0, &b);
        Ok(())
    })
}

/// `dB = A^-T dX` and `dA = -dB X'`, of `count` systems with `m` columns.
fn solve_slopes<T: Real>(
    (count, n, m): (usize, usize, usize),
    [g, a, x]: [&[T]; 3],
) -> Result<(Vec<T>, Vec<T>)> {
    let (mut da, mut db) = (Vec::with_capacity(a.len()), g.to_vec());
    for i in 0..count {
        let (square, right) = (i * n * n..(i + 1) * n * n, i * n * m..(i + 1) * n * m);
        let db = &mut db[right.clone()];
        solve_any(&mut turned(&a[square], n), n, db, m).ok_or_else(|| singular("A"))?;
        let turned = product((db, false), (&x[right], true), (n, m, n));
        da.extend(turned.into_iter().map(|v| -v));
    }
    Ok((da, db))
}

/// Inputs are the output gradient, `A` and the output.
fn solve_backward(call: &Call<'_>) -> Result<()> {
    let m = columns(call.inputs[1].shape(), call.inputs[0].shape())?;
    let (n, _, count) = matrices(&call.inputs[1]);
    with_real!(call.inputs[0].dtype(), T => {
        let [g, a, x] = [0, 1, 2].map(|i| elements::<T>(&call.inputs[i]));
        let (da, db) = solve_slopes::<T>((count, n, m), [&g, &a, &x])?;
        store(call, 0, &da);
        store(call, 1, &db);
        Ok(())
    })
}

fn gradient_of_solution(back: &str) -> Gradient {
    Gradient::declared(back, |_, _, _| vec![Dep::OutGrad(0), Dep::Input(0), Dep::Output(0)])
}

fn solves() -> [OpDef; 2] {
    let shapes = |_: &Attrs, inputs: &[Shape]| {
        columns(&inputs[0], &inputs[1])?;
        Ok(vec![inputs[1].clone()])
    };
    let def = operator::<NoParam>("_npi_solve", shapes, solve_forward)
        .inputs_are(&[("A", "The matrices (..., n, n)."), ("B", "The right-hand sides.")])
        .doc(&text(
            "Solves ``A X = B``.",
            &format!(
                "B ``(..., n, m)`` or ``(..., n)``, the output's shape. {FLOATS} A singular matrix \
                 is an error."
            ),
            "_npi_solve(nd.array([[2, 0], [0, 4]]), nd.array([2, 2]))\n[1.  0.5]",
        ))
        .gradient(gradient_of_solution("_backward_npi_solve"));
    [def, OpDef::plain("_backward_npi_solve").kernel(wide(solve_backward))]
}

/// The side of the matrix that an array is with its first `ind` axes as rows.
fn side(of: &Shape, ind: usize) -> Result<usize> {
    let split = ind.min(of.ndim());
    let (rows, columns) = (of.product(0..split), of.product(split..of.ndim()));
    match rows == columns {
        true => Ok(rows),
        false => {
            let expected =
                format!("as many elements along the first {split} axes as along the rest");
            Err(Error::argument("a", "shape", of, expected))
        }
    }
}

fn tensor_inverses() -> [OpDef; 2] {
    let shapes = |attrs: &Attrs, inputs: &[Shape]| {
        let (ind, dims) = (attrs.get::<TensorinvParam>().ind as usize, inputs[0].dims());
        side(&inputs[0], ind)?;
        let split = ind.min(dims.len());
        Ok(vec![Shape::new(&[&dims[split..], &dims[..split]].concat())])
    };
    let def = operator::<TensorinvParam>("_npi_tensorinv", shapes, |call| {
        let n = side(call.inputs[0].shape(), call.attrs.get::<TensorinvParam>().ind as usize)?;
        with_real!(call.inputs[0].dtype(), T => {
            let mut out = vec![T::of(0.0); n * n];
            inverse(&mut elements::<T>(&call.inputs[0]), n, &mut out).ok_or_else(|| singular("a"))?;
            store(call, 0, &out);
            Ok(())
        })
    });
    let def = def
        .inputs_are(&[("a", "The array.")])
        .doc(&text(
            "The array whose `tensordot` over ``ind`` axes undoes that with ``a``.",
            &format!(
                "The inverse of the matrix whose rows are the first ``ind`` axes, which the output \
                 has last. {FLOATS} A singular matrix is an error."
            ),
            "_npi_tensorinv(nd.array([[2, 0], [0, 4]]), ind=1)\n[[0.5  0.  ]\n [0.   0.25]]",
        ))
        .gradient(Gradient::declared("_backward_npi_tensorinv", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Output(0)]
        }));
    let back = OpDef::new::<TensorinvParam>("_backward_npi_tensorinv").kernel(wide(|call| {
        let ind = call.attrs.get::<TensorinvParam>().ind as usize;
        let n = side(call.outputs[0].shape(), ind)?;
        with_real!(call.inputs[0].dtype(), T => {
            let [g, y] = [0, 1].map(|i| elements::<T>(&call.inputs[i]));
            let left = product((&y, true), (&g, false), (n, n, n));
            let all = product((&left, false), (&y, true), (n, n, n));
            store(call, 0, &all.into_iter().map(|v| -v).collect::<Vec<T>>());
            Ok(())
        })
    }));
    [def, back]
}

/// The axes of `a` in the order in which the system is read.
fn system_order(attrs: &Attrs, a: &Shape) -> Result<Vec<usize>> {
    let named = &attrs.get::<TensorsolveParam>().a_axes;
    let last: Vec<usize> = named.iter().map(|axis| a.axis(*axis)).collect::<Result<_>>()?;
    let first = (0..a.ndim()).filter(|axis| !last.contains(axis));
    let order: Vec<usize> = first.chain(last.iter().copied()).collect();
    match order.len() == a.ndim() {
        true => Ok(order),
        false => Err(Error::invalid("a_axes", Numbers(named), "axes that differ")),
    }
}

fn unknowns(attrs: &Attrs, inputs: &[Shape]) -> Result<Vec<Shape>> {
    let (a, b) = (&inputs[0], &inputs[1]);
    let dims: Dims = system_order(attrs, a)?.iter().map(|axis| a.dims()[*axis]).collect();
    let unknowns = Shape::new(dims.get(b.ndim()..).unwrap_or(&[]));
    match unknowns.size() == b.size() && b.size() * b.size() == a.size() {
        true => Ok(vec![unknowns]),
        false => {
            let expected = format!("{} axes that leave as many unknowns as equations", b.ndim());
            Err(Error::argument("a", "shape", a, expected))
        }
    }
}

/// `a` with its axes in the order of the system, as one buffer; or back from there.
fn reordered(attrs: &Attrs, a: &View) -> Result<View> {
    let order = system_order(attrs, a.shape())?;
    let dims: Dims = order.iter().map(|axis| a.dims()[*axis]).collect();
    let strides: Dims = order.iter().map(|axis| a.strides()[*axis]).collect();
    // SAFETY: the same elements in another order.
    Ok(unsafe { View::with_strides(a.ptr(), Shape::from(&dims[..]), strides, a.dtype()) })
}

fn in_order<T: Real>(attrs: &Attrs, a: &View) -> Result<Vec<T>> {
    let seen = reordered(attrs, a)?;
    let mut room = Buffer::new(a.size_bytes());
    let flat = room.view(0, seen.shape().clone(), a.dtype());
    // SAFETY: the buffer is apart and has the shape.
    unsafe { copy_strided(&seen, &flat) };
    Ok(elements(&flat))
}

fn tensor_solutions() -> [OpDef; 2] {
    let def = operator::<TensorsolveParam>("_npi_tensorsolve", unknowns, |call| {
        let n = call.inputs[1].size();
        with_real!(call.inputs[0].dtype(), T => {
            let mut b = elements::<T>(&call.inputs[1]);
            let mut a = in_order::<T>(call.attrs, &call.inputs[0])?;
            solve_any(&mut a, n, &mut b, 1).ok_or_else(|| singular("a"))?;
            store(call, 0, &b);
            Ok(())
        })
    });
    let def = def
        .inputs_are(&[("a", "The coefficients."), ("b", "The right-hand side.")])
        .doc(&text(
            "Solves ``tensordot(a, x, x.ndim) = b``.",
            &format!(
                "``a`` has the axes of ``b`` and then those of ``x``, once ``a_axes`` are moved to \
                 its end. {FLOATS} A singular system is an error."
            ),
            "_npi_tensorsolve(nd.array([[2, 0], [0, 4]]), nd.array([2, 2]))\n[1.  0.5]",
        ))
        .gradient(gradient_of_solution("_backward_npi_tensorsolve"));
    let back = OpDef::new::<TensorsolveParam>("_backward_npi_tensorsolve").kernel(wide(|call| {
        let n = call.inputs[0].size();
        with_real!(call.inputs[0].dtype(), T => {
            let [g, x] = [0, 2].map(|i| elements::<T>(&call.inputs[i]));
            let a = in_order::<T>(call.attrs, &call.inputs[1])?;
            let (mut da, db) = solve_slopes::<T>((1, n, 1), [&g, &a, &x])?;
            store(call, 1, &db);
            if call.req[0] != OpReq::Null && n > 0 {
                let to = reordered(call.attrs, &call.outputs[0])?;
                // SAFETY: the vector holds the elements in the order of the system.
                unsafe {
                    let from = View::new(da.as_mut_ptr().cast(), to.shape().clone(), to.dtype());
                    copy_strided(&from, &to);
                }
            }
            Ok(())
        })
    }));
    [def, back]
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    [solves(), tensor_inverses(), tensor_solutions()].concat()
}
