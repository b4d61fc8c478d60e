//! Factorisations: `svd`, `eigh`, `eig`, `pinv`.

use super::{kernel, statistics, text};
use crate::error::{Error, Result};
use crate::kernels::linalg::{eigen, svd};
use crate::kernels::real::Real;
use crate::kernels::schur::{Failure, eigen_general};
use crate::operator::infer::assign_shape;
use crate::operator::{
    Attrs, Call, Dep, Gradient, Kernel, NoParam, OpDef, OpReq, ParamStruct, Registry,
};
use crate::ops::linalg::{expect_matrices, matrices};
use crate::ops::nn::infer::float_type;
use crate::ops::nn::widening::widened;
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_real};

param_enum! {
    /// The triangle of a symmetric matrix that is read.
    pub enum Triangle { Lower = "L", Upper = "U" }
}

params! {
    /// Parameters of `_npi_eigh` and `_npi_eigvalsh`.
    #[allow(non_snake_case)] // the operator's parameter is called so
    pub struct TriangleParam {
        UPLO: Triangle, default(Triangle::Lower), "The triangle that is read: L or U.";
    }
}

params! {
    /// Parameters of `_npi_pinv`.
    pub struct PinvParam {
        hermitian: bool, default(false), "Accepted, without effect: symmetric matrices need no \
                                          other way.";
    }
}

params! {
    /// Parameters of `_npi_pinv_scalar_rcond`.
    pub struct PinvNumberParam {
        rcond: f64, default(1e-15), "Singular values up to this part of the greatest count as 0.";
        hermitian: bool, default(false), "Accepted, without effect: symmetric matrices need no \
                                          other way.";
    }
}

pub(super) const FLOATS: &str = "float16 (calculated in float32), float32 or float64.";

/// A kernel for float32 and float64; float16 is converted around it.
pub(super) fn wide(run: fn(&Call<'_>) -> Result<()>) -> Kernel {
    kernel(move |call| widened(call, run))
}

/// An operator of floats whose output shapes `rule` gives once the input's are known.
pub(super) fn operator<P: ParamStruct>(
    name: &str,
    rule: fn(&Attrs, &[Shape]) -> Result<Vec<Shape>>,
    run: fn(&Call<'_>) -> Result<()>,
) -> OpDef {
    OpDef::new::<P>(name)
        .infer_shape(move |attrs, inputs, outputs| {
            if !inputs.iter().all(Shape::is_known) {
                return Ok(false);
            }
            for (slot, shape) in outputs.iter_mut().zip(rule(attrs, inputs)?) {
                assign_shape(slot, "output", &shape)?;
            }
            Ok(true)
        })
        .infer_type(float_type)
        .expensive()
        .kernel(wide(run))
}

pub(super) fn elements<T: Real>(view: &View) -> Vec<T> {
    // SAFETY: inputs are not written meanwhile.
    unsafe { view.slice::<T>() }.to_vec()
}

pub(super) fn store<T: Real>(call: &Call<'_>, i: usize, values: &[T]) {
    if call.req[i] != OpReq::Null {
        // SAFETY: the output is ours to write.
        unsafe { call.outputs[i].slice_mut::<T>() }.copy_from_slice(values);
    }
}

/// The matrices of this argument have to be invertible.
pub(super) fn singular(argument: &str) -> Error {
    Error::argument(argument, "value", "a singular matrix", "invertible matrices")
}

/// `op(a) op(b)` of an `m x k` and a `k x n` matrix.
pub(super) fn product<T: Real>(
    (a, turn_a): (&[T], bool),
    (b, turn_b): (&[T], bool),
    (m, k, n): (usize, usize, usize),
) -> Vec<T> {
    let a = |i: usize, j: usize| if turn_a { a[j * m + i] } else { a[i * k + j] };
    let b = |i: usize, j: usize| if turn_b { b[j * k + i] } else { b[i * n + j] };
    let one = |i: usize, j: usize| (0..k).map(|l| a(i, l) * b(l, j)).sum::<T>();
    (0..m * n).map(|at| one(at / n, at % n)).collect()
}

fn svd_shapes(_: &Attrs, inputs: &[Shape]) -> Result<Vec<Shape>> {
    expect_matrices(&inputs[0], "A", false)?;
    let &[ref lead @ .., m, n] = inputs[0].dims() else { return Ok(Vec::new()) };
    if m > n {
        let expected = "at most as many rows as columns";
        return Err(Error::argument("A", "shape", &inputs[0], expected));
    }
    let with = |last: &[i64]| Shape::new(&[lead, last].concat());
    Ok(vec![with(&[m, m]), with(&[m]), with(&[m, n])])
}

fn svd_forward(call: &Call<'_>) -> Result<()> {
    let (m, n, count) = matrices(&call.inputs[0]);
    with_real!(call.inputs[0].dtype(), T => {
        let mut v = elements::<T>(&call.inputs[0]);
        let (mut u, mut s) = (vec![T::of(0.0); count * m * m], vec![T::of(0.0); count * m]);
        for i in 0..if m * n == 0 { 0 } else { count } {
            let (a, u) = (&mut v[i * m * n..(i + 1) * m * n], &mut u[i * m * m..(i + 1) * m * m]);
            svd(a, (m, n), u, &mut s[i * m..(i + 1) * m]);
        }
        store(call, 0, &u);
        store(call, 1, &s);
        store(call, 2, &v);
        Ok(())
    })
}

/// With `F[i, j] = 1 / (s[j]^2 - s[i]^2)`, 0 for equal ones, and `skew(X) = F * (X - X')`:
/// `dA = U ((skew(U' dU) S + S skew(V dV') + diag(dS)) V + S^-1 dV (1 - V' V))`.
fn svd_slope<T: Real>(
    (m, n): (usize, usize),
    [du, ds, dv]: [&[T]; 3],
    [u, s, v]: [&[T]; 3],
) -> Vec<T> {
    let skew = |x: Vec<T>| -> Vec<T> {
        let one = |i: usize, j: usize| {
            let gap = s[j] * s[j] - s[i] * s[i];
            match gap == T::zero() {
                true => T::zero(),
                false => (x[i * m + j] - x[j * m + i]) / gap,
            }
        };
        (0..m * m).map(|at| one(at / m, at % m)).collect()
    };
    let left = skew(product((u, true), (du, false), (m, m, m)));
    let across = product((v, false), (dv, true), (m, n, m));
    let right = skew(across.clone());
    let middle: Vec<T> = (0..m * m)
        .map(|at| {
            let (i, j) = (at / m, at % m);
            let own = if i == j { ds[i] } else { T::zero() };
            left[at] * s[j] + s[i] * right[at] + own
        })
        .collect();
    let mut inside = product((&middle, false), (v, false), (m, m, n));
    // The part of dV that is orthogonal to V.
    let within = product((&across, true), (v, false), (m, m, n));
    for (at, x) in inside.iter_mut().enumerate() {
        let rest = dv[at] - within[at];
        let s = s[at / n];
        *x += if s == T::zero() { T::zero() } else { rest / s };
    }
    product((u, false), (&inside, false), (m, m, n))
}

fn svd_backward(call: &Call<'_>) -> Result<()> {
    let (m, n, count) = matrices(&call.outputs[0]);
    with_real!(call.outputs[0].dtype(), T => {
        let all: Vec<Vec<T>> = call.inputs.iter().map(elements::<T>).collect();
        let sizes = [m * m, m, m * n, m * m, m, m * n];
        let mut out = Vec::with_capacity(count * m * n);
        for i in 0..count {
            let part = |k: usize| &all[k][i * sizes[k]..(i + 1) * sizes[k]];
            out.extend(svd_slope::<T>((m, n), [0, 1, 2].map(part), [3, 4, 5].map(part)));
        }
        store(call, 0, &out);
        Ok(())
    })
}

fn svds() -> [OpDef; 2] {
    let def = operator::<NoParam>("_npi_svd", svd_shapes, svd_forward)
        .inputs_are(&[("A", "The matrices (..., m, n).")])
        .outputs_are(&["output0", "output1", "output2"])
        .doc(&text(
            "The singular values of matrices with their vectors: ``A = UT diag(L) V``.",
            &format!(
                "A ``(..., m, n)`` with ``m <= n`` gives UT ``(..., m, m)``, L ``(..., m)``, \
                 falling, and V ``(..., m, n)``, each row with a positive greatest element. Equal \
                 singular values add nothing to each other's gradient. {FLOATS}"
            ),
            "_npi_svd(nd.array([[3, 0, 0], [0, 4, 0]]))[1]\n[4. 3.]",
        ))
        .gradient(Gradient::declared("_backward_npi_svd", |_, _, _| {
            let grads = (0..3).map(Dep::OutGrad);
            grads.chain((0..3).map(Dep::Output)).collect()
        }));
    [def, OpDef::plain("_backward_npi_svd").kernel(wide(svd_backward))]
}

fn values_shape(_: &Attrs, inputs: &[Shape]) -> Result<Vec<Shape>> {
    expect_matrices(&inputs[0], "A", true)?;
    let dims = inputs[0].dims();
    Ok(vec![Shape::new(&dims[..dims.len() - 1]), inputs[0].clone()])
}

/// Eigenvalues, and eigenvectors as columns where there is a second output.
fn eigh(call: &Call<'_>) -> Result<()> {
    let (n, _, count) = matrices(&call.inputs[0]);
    let upper = call.attrs.get::<TriangleParam>().UPLO == Triangle::Upper;
    with_real!(call.inputs[0].dtype(), T => {
        let mut a = elements::<T>(&call.inputs[0]);
        let mut values = vec![T::of(0.0); count * n];
        let mut vectors = vec![T::of(0.0); count * n * n];
        let mut rows = vec![T::of(0.0); n * n];
        for i in 0..count {
            let a = &mut a[i * n * n..(i + 1) * n * n];
            for (row, column) in (0..n).flat_map(|row| (0..row).map(move |column| (row, column))) {
                let (low, high) = (row * n + column, column * n + row);
                if upper { a[low] = a[high] } else { a[high] = a[low] }
            }
            eigen(a, n, &mut rows, &mut values[i * n..(i + 1) * n]);
            for at in 0..n * n {
                vectors[i * n * n + at] = rows[at % n * n + at / n];
            }
        }
        store(call, 0, &values);
        if call.outputs.len() > 1 {
            store(call, 1, &vectors);
        }
        Ok(())
    })
}

fn eigenvalues() -> [OpDef; 2] {
    let notes = format!(
        "A ``(..., n, n)``, of which one triangle is read, gives values ``(..., n)``, rising. \
         {FLOATS} Not differentiable."
    );
    let input = [("A", "Symmetric matrices (..., n, n).")];
    [
        operator::<TriangleParam>("_npi_eigh", values_shape, eigh)
            .inputs_are(&input)
            .outputs_are(&["output0", "output1"])
            .doc(&text(
                "Eigenvalues of symmetric matrices, and their vectors as columns ``(..., n, n)``.",
                &format!("{notes} Each vector has a positive greatest element."),
                "_npi_eigh(nd.array([[2, 1], [1, 2]]))[0]\n[1. 3.]",
            )),
        operator::<TriangleParam>("_npi_eigvalsh", values_shape, eigh).inputs_are(&input).doc(
            &text(
                "Eigenvalues of symmetric matrices.",
                &notes,
                "_npi_eigvalsh(nd.array([[2, 1], [1, 2]]))\n[1. 3.]",
            ),
        ),
    ]
}

/// Eigenvalues of general matrices, and eigenvectors as columns where there is a second output.
fn eig(call: &Call<'_>) -> Result<()> {
    let (n, _, count) = matrices(&call.inputs[0]);
    let mut a = statistics::numbers(&call.inputs[0])?;
    let (mut values, mut vectors) = (vec![0.0; count * n], vec![0.0; count * n * n]);
    for i in 0..count {
        let square = i * n * n..(i + 1) * n * n;
        let (a, vectors) = (&mut a[square.clone()], &mut vectors[square]);
        eigen_general(a, n, &mut values[i * n..(i + 1) * n], vectors).map_err(|why| match why {
            Failure::Complex => {
                let expected = "matrices whose eigenvalues are real";
                Error::argument("A", "value", "a matrix with complex eigenvalues", expected)
            }
            Failure::Diverges => {
                Error::argument("A", "value", "a matrix that is not finite", "finite numbers")
            }
        })?;
    }
    statistics::store(call, 0, &values);
    if call.outputs.len() > 1 {
        statistics::store(call, 1, &vectors);
    }
    Ok(())
}

fn general_eigenvalues() -> [OpDef; 2] {
    let notes = format!(
        "A ``(..., n, n)`` gives values ``(..., n)``, in no order. Complex eigenvalues are an \
         error. {FLOATS} Not differentiable."
    );
    let input = [("A", "The matrices (..., n, n).")];
    [
        operator::<NoParam>("_npi_eig", values_shape, eig)
            .inputs_are(&input)
            .outputs_are(&["output0", "output1"])
            .doc(&text(
                "Eigenvalues of square matrices, and their vectors as columns ``(..., n, n)``.",
                &format!("{notes} Each vector has length 1 and a positive greatest element."),
                "_npi_eig(nd.array([[3, 0], [0, 1]]))[0]\n[3. 1.]",
            )),
        operator::<NoParam>("_npi_eigvals", values_shape, eig).inputs_are(&input).doc(&text(
            "Eigenvalues of square matrices.",
            &notes,
            "_npi_eigvals(nd.array([[3, 0], [0, 1]]))\n[3. 1.]",
        )),
    ]
}

fn pinv_shape(_: &Attrs, inputs: &[Shape]) -> Result<Vec<Shape>> {
    expect_matrices(&inputs[0], "A", false)?;
    let (rank, mut shape) = (inputs[0].ndim(), inputs[0].clone());
    if let Some(rcond) = inputs.get(1)
        && rcond.ndim() > 0
        && rcond.dims() != &shape.dims()[..rank - 2]
    {
        let expected = format!("() or the leading axes of {shape}");
        return Err(Error::argument("rcond", "shape", rcond, expected));
    }
    shape.dims_mut().swap(rank - 2, rank - 1);
    Ok(vec![shape])
}

/// `V' diag(1 / s) U'` of the greater singular values; a high matrix is turned first.
fn pinv_one<T: Real>(a: &[T], (m, n): (usize, usize), rcond: T) -> Vec<T> {
    let high = m > n;
    let (rows, width) = if high { (n, m) } else { (m, n) };
    let mut v: Vec<T> = match high {
        true => (0..m * n).map(|at| a[at % m * n + at / m]).collect(),
        false => a.to_vec(),
    };
    let (mut u, mut s) = (vec![T::zero(); rows * rows], vec![T::zero(); rows]);
    if rows > 0 {
        svd(&mut v, (rows, width), &mut u, &mut s);
    }
    let limit = rcond * s.first().copied().unwrap_or(T::zero());
    for (i, s) in s.iter().enumerate() {
        let factor = if *s > limit { T::one() / *s } else { T::zero() };
        v[i * width..(i + 1) * width].iter_mut().for_each(|x| *x *= factor);
    }
    match high {
        true => product((&u, false), (&v, false), (rows, rows, width)),
        false => product((&v, true), (&u, true), (width, rows, rows)),
    }
}

fn pinv(call: &Call<'_>) -> Result<()> {
    let (m, n, count) = matrices(&call.inputs[0]);
    with_real!(call.inputs[0].dtype(), T => {
        let a = elements::<T>(&call.inputs[0]);
        let given = match call.inputs.get(1) {
            Some(rcond) => elements::<T>(rcond),
            None => vec![T::of(call.attrs.get::<PinvNumberParam>().rcond)],
        };
        let one = |i: usize| {
            let rcond = given[if given.len() == 1 { 0 } else { i }];
            pinv_one::<T>(&a[i * m * n..(i + 1) * m * n], (m, n), rcond)
        };
        store(call, 0, &(0..count).flat_map(one).collect::<Vec<T>>());
        Ok(())
    })
}

fn pseudo_inverses() -> [OpDef; 2] {
    let what = "The pseudo-inverses of matrices (Moore and Penrose), from their singular values.";
    let notes = format!(
        "A ``(..., m, n)`` gives ``(..., n, m)``. Singular values up to ``rcond`` times the \
         greatest count as 0. {FLOATS} Not differentiable."
    );
    let matrix = ("A", "The matrices (..., m, n).");
    [
        operator::<PinvParam>("_npi_pinv", pinv_shape, pinv)
            .inputs_are(&[matrix, ("rcond", "The limit, or one for each matrix.")])
            .doc(&text(
                what,
                &notes,
                "_npi_pinv(nd.array([[[2, 0], [0, 4]]]), \
                 nd.array([1e-6]))\n[[[0.5  0.  ]\n  [0.   0.25]]]",
            )),
        operator::<PinvNumberParam>("_npi_pinv_scalar_rcond", pinv_shape, pinv)
            .inputs_are(&[matrix])
            .doc(&text(
                what,
                &notes,
                "_npi_pinv_scalar_rcond(nd.array([[2], [0]]), rcond=1e-6)\n[[0.5 0. ]]",
            )),
    ]
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    [svds(), eigenvalues(), general_eigenvalues(), pseudo_inverses()].concat()
}
