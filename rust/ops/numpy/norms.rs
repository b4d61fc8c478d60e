//! Norms of vectors along one axis and of matrices in two. Calculated in float64.

use super::statistics::{numbers, store};
use super::{kernel, only, room, text, zeros};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::linalg::svd;
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{Attrs, Call, Gradient, OpDef, Registry, Tuple};
use crate::params;
use crate::shape::{Numbers, Shape};

params! {
    /// Parameters of `_npi_norm`.
    pub struct NormParam {
        ord: f64, default(2.0), "The order.";
        axis: Option<Tuple>, default(None), "One axis, of vectors, or the two of matrices; None is \
                                             the last two.";
        keepdims: bool, default(false), "Keep reduced axes with extent 1.";
        flag: i32, default(-1).ge(-2.0).le(2.0), "1 for Frobenius' norm of matrices, -2 for that \
                                                  of all elements, 2 for the nuclear norm; others \
                                                  go by ord.";
    }
}

#[derive(Clone, Copy)]
enum Norm {
    /// `(sum |x|^p)^(1 / p)`; of 0 the number of elements that are not 0.
    Vector(f64),
    /// The greatest, or least, sum of the magnitudes in a column.
    Column {
        greatest: bool,
    },
    Row {
        greatest: bool,
    },
    /// The greatest, or least, singular value.
    Singular {
        greatest: bool,
    },
    /// The sum of all singular values.
    Nuclear,
}

/// The norm, and the axes that it reduces: of vectors any number, else those of rows and columns.
fn plan(attrs: &Attrs, of: &Shape) -> Result<(Norm, Vec<usize>)> {
    let p = attrs.get::<NormParam>();
    let whole = p.flag == -2;
    let axes: Vec<usize> = match &p.axis {
        None if whole => (0..of.ndim()).collect(),
        None => (of.ndim().saturating_sub(2)..of.ndim()).collect(),
        Some(axes) => axes.iter().map(|axis| of.axis(*axis)).collect::<Result<_>>()?,
    };
    let refused = |expected: &str| {
        let given = p.axis.as_ref().map_or("None".to_owned(), |axes| Numbers(axes).to_string());
        Err(Error::invalid("axis", given, expected))
    };
    if (1..axes.len()).any(|i| axes[..i].contains(&axes[i])) {
        return refused("axes that differ");
    }
    let greatest = p.ord > 0.0;
    let norm = match axes.len() {
        _ if whole => Norm::Vector(2.0),
        0 if p.axis.is_none() => Norm::Vector(2.0),
        1 if !p.ord.is_nan() => Norm::Vector(p.ord),
        2 if p.flag == 1 => Norm::Vector(2.0),
        2 if p.flag == 2 && p.ord == 2.0 => Norm::Nuclear,
        2 if p.ord.abs() == 1.0 => Norm::Column { greatest },
        2 if p.ord.abs() == 2.0 => Norm::Singular { greatest },
        2 if p.ord.is_infinite() => Norm::Row { greatest },
        1 | 2 => return Err(Error::invalid("ord", p.ord, "1, 2, inf or their negatives")),
        _ => return refused("one axis or two"),
    };
    let sums =
        matches!(norm, Norm::Vector(ord) if ord.is_finite()) || matches!(norm, Norm::Nuclear);
    match !sums && axes.iter().any(|axis| of.dims()[*axis] == 0) {
        true => Err(Error::argument("data", "shape", of, "elements along the axes of the norm")),
        false => Ok((norm, axes)),
    }
}

fn shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let from = &inputs[0];
    if !from.is_known() {
        return Ok(false);
    }
    let (_, axes) = plan(attrs, from)?;
    let keeps = attrs.get::<NormParam>().keepdims;
    let extent = |axis: usize| match axes.contains(&axis) {
        true => keeps.then_some(1),
        false => Some(from.dims()[axis]),
    };
    let shape: Shape = (0..from.ndim()).filter_map(extent).collect();
    assign_shape(&mut outputs[0], "output", &shape)?;
    Ok(true)
}

/// The numbers of a row-major array's elements along these axes, the last the fastest.
fn places(of: &Shape, axes: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let strides = of.strides();
    axes.into_iter().fold(vec![0], |before, axis| {
        let step = |i: i64| (i * strides[axis]) as usize;
        let along = |at: usize| (0..of.dims()[axis]).map(move |i| at + step(i));
        before.into_iter().flat_map(along).collect()
    })
}

/// The place of the greatest, or least, number; the first of equal ones.
fn extreme(values: &[f64], greatest: bool) -> usize {
    let better = |a: f64, b: f64| if greatest { a > b } else { a < b };
    (1..values.len()).fold(0, |best, i| if better(values[i], values[best]) { i } else { best })
}

/// The singular values of an `m x n` matrix, falling, and for each the product of its vectors.
fn singular(x: &[f64], m: usize, n: usize) -> (Vec<f64>, impl Fn(usize, usize, usize) -> f64) {
    let high = m > n;
    let (rows, width) = if high { (n, m) } else { (m, n) };
    let mut v: Vec<f64> = match high {
        true => (0..m * n).map(|at| x[at % m * n + at / m]).collect(),
        false => x.to_vec(),
    };
    let (mut u, mut s) = (vec![0.0; rows * rows], vec![0.0; rows]);
    if rows > 0 {
        svd(&mut v, (rows, width), &mut u, &mut s);
    }
    let outer = move |k: usize, row: usize, column: usize| match high {
        true => v[k * width + row] * u[column * rows + k],
        false => u[row * rows + k] * v[k * width + column],
    };
    (s, outer)
}

fn sums(x: &[f64], (m, n): (usize, usize), columns: bool) -> Vec<f64> {
    let mut sums = vec![0.0; if columns { n } else { m }];
    x.iter().enumerate().for_each(|(i, x)| sums[if columns { i % n } else { i / n }] += x.abs());
    sums
}

/// The norm of one vector, or of one `m x n` matrix.
fn value(norm: Norm, x: &[f64], extents: (usize, usize)) -> f64 {
    let pick = |values: &[f64], greatest| match values.iter().any(|v| v.is_nan()) {
        true => f64::NAN,
        false => values[extreme(values, greatest)],
    };
    let sizes = || x.iter().map(|x| x.abs());
    match norm {
        Norm::Vector(0.0) => x.iter().filter(|x| **x != 0.0).count() as f64,
        // The sum of nothing would be -0.
        Norm::Vector(1.0) => sizes().fold(0.0, |sum, x| sum + x),
        Norm::Vector(2.0) => x.iter().fold(0.0, |sum, x| sum + x * x).sqrt(),
        Norm::Vector(p) if p.is_infinite() => pick(&sizes().collect::<Vec<f64>>(), p > 0.0),
        Norm::Vector(p) => sizes().map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p),
        Norm::Column { greatest } => pick(&sums(x, extents, true), greatest),
        Norm::Row { greatest } => pick(&sums(x, extents, false), greatest),
        Norm::Singular { greatest } => pick(&singular(x, extents.0, extents.1).0, greatest),
        Norm::Nuclear => singular(x, extents.0, extents.1).0.iter().sum(),
    }
}

fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

/// The slopes of a norm; 0 where it has none.
fn slopes(norm: Norm, x: &[f64], (m, n): (usize, usize)) -> Vec<f64> {
    let total = value(norm, x, (m, n));
    let only = |line: Vec<f64>, greatest: bool, of: &dyn Fn(usize) -> usize| {
        let found = extreme(&line, greatest);
        x.iter().enumerate().map(|(i, x)| if of(i) == found { sign(*x) } else { 0.0 }).collect()
    };
    let vectors = |pick: &dyn Fn(&[f64]) -> Vec<usize>| -> Vec<f64> {
        let (s, outer) = singular(x, m, n);
        let found = pick(&s);
        let one = |at: usize| found.iter().map(|k| outer(*k, at / n, at % n)).sum();
        (0..m * n).map(one).collect()
    };
    match norm {
        Norm::Vector(0.0) => vec![0.0; x.len()],
        Norm::Vector(p) if p.is_infinite() => {
            only(x.iter().map(|x| x.abs()).collect(), p > 0.0, &|i| i)
        }
        Norm::Vector(_) if total == 0.0 => vec![0.0; x.len()],
        Norm::Vector(2.0) => x.iter().map(|x| x / total).collect(),
        Norm::Vector(p) => x.iter().map(|x| sign(*x) * (x.abs() / total).powf(p - 1.0)).collect(),
        Norm::Column { greatest } => only(sums(x, (m, n), true), greatest, &|i| i % n),
        Norm::Row { greatest } => only(sums(x, (m, n), false), greatest, &|i| i / n),
        Norm::Singular { greatest } => vectors(&|s| vec![extreme(s, greatest)]),
        Norm::Nuclear => vectors(&|s| (0..s.len()).filter(|k| s[*k] > 0.0).collect()),
    }
}

/// Calls `f` for each group of elements with their places, and with the norm's extents.
fn each(
    call: &Call<'_>,
    of: &Shape,
    mut f: impl FnMut(Norm, &[usize], (usize, usize)),
) -> Result<()> {
    let (norm, axes) = plan(call.attrs, of)?;
    let extent = |i: usize| axes.get(i).map_or(1, |axis| of.dims()[*axis] as usize);
    let inner = places(of, axes.iter().copied());
    let outer = places(of, (0..of.ndim()).filter(|axis| !axes.contains(axis)));
    for start in outer {
        let at: Vec<usize> = inner.iter().map(|place| start + place).collect();
        f(norm, &at, (extent(0), extent(1)));
    }
    Ok(())
}

fn forward(call: &Call<'_>) -> Result<()> {
    let (x, mut out) = (numbers(&call.inputs[0])?, room(call.outputs[0].size())?);
    each(call, call.inputs[0].shape(), |norm, places, extents| {
        let group: Vec<f64> = places.iter().map(|at| x[*at]).collect();
        out.push(value(norm, &group, extents));
    })?;
    store(call, 0, &out);
    Ok(())
}

/// Inputs are the output gradient and the array.
fn backward(call: &Call<'_>) -> Result<()> {
    let (g, x) = (numbers(&call.inputs[0])?, numbers(&call.inputs[1])?);
    let (mut grad, mut next) = (zeros(x.len())?, g.iter());
    each(call, call.inputs[1].shape(), |norm, places, extents| {
        let group: Vec<f64> = places.iter().map(|at| x[*at]).collect();
        let g = next.next().copied().unwrap_or(0.0);
        for (at, slope) in places.iter().zip(slopes(norm, &group, extents)) {
            grad[*at] = g * slope;
        }
    })?;
    store(call, 0, &grad);
    Ok(())
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    let def = OpDef::new::<NormParam>("_npi_norm")
        .inputs_are(&[("data", "The array.")])
        .doc(&text(
            "Norms of vectors along one axis, or of matrices in two.",
            "Of vectors ``(sum |x|^ord)^(1 / ord)``; 0 counts elements that are not 0, inf and \
             -inf are the greatest and the least magnitude. Of matrices 1, inf and 2 are the \
             greatest sum of magnitudes in a column, in a row, and the greatest singular value, \
             their negatives the least. Any dtype but bool; integers are truncated.",
            "_npi_norm(nd.array([[3, 4], [6, 8]]), axis=(1,))\n[ 5. 10.]",
        ))
        .infer_shape(shape)
        .infer_type(same_type)
        .expensive()
        .gradient(Gradient::use_in("_backward_npi_norm"))
        .kernel(kernel(forward));
    let back = OpDef::new::<NormParam>("_backward_npi_norm").kernel(kernel(backward));
    vec![only(def, |dtype| dtype != DType::Bool, "a number, not bool"), back]
}
