//! Elements in other places: `rot90`, `roll`, `diagflat`, `pad`.
//!
//! An operator that does not step evenly through its input has, for each element of the output, the
//! place of the input's element that it copies. The gradient adds up what was copied from a place.

use super::{kernel, text};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::copy::fill;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, ParamStruct, Registry, Tuple};
use crate::ops::tensor::movement::{Path, moving};
use crate::shape::{Dims, Numbers, Shape};
use crate::tensor::View;
use crate::{param_enum, params, with_dtype};

params! {
    /// Parameters of `_npi_rot90`.
    pub struct TurnParam {
        k: i32, default(1), "How many quarters of a turn, from the first axis towards the second.";
        axes: Option<Tuple>, default(None), "The two axes of the plane, which must be given.";
    }
}

params! {
    /// Parameters of `_np_roll`.
    pub struct RollParam {
        shift: Option<Tuple>, default(None), "How far elements move; one number, or one per axis.";
        axis: Option<Tuple>, default(None), "The axes; None moves elements along the flattened \
                                             array.";
    }
}

params! {
    /// Parameters of `_np_diagflat`.
    pub struct DiagflatParam {
        k: i32, default(0), "Which diagonal: positive above the main one, negative below.";
    }
}

param_enum! {
    /// What stands in the margins.
    pub enum Margin {
        Constant = "constant", Edge = "edge", Maximum = "maximum", Minimum = "minimum",
        Reflect = "reflect", Symmetric = "symmetric",
    }
}

params! {
    /// Parameters of `_npi_pad`.
    pub struct PadParam {
        pad_width: Vec<Tuple>, required, "Widths of the margins before and after, for each axis.";
        mode: Margin, default(Margin::Constant), "What stands in the margins.";
        constant_value: f64, default(0.0), "The value in constant margins.";
        reflect_type: String, default("even".to_owned()), "How margins reflect: even.";
    }
}

/// A place that no element of the input comes to.
const EMPTY: usize = usize::MAX;

/// How an operator places elements.
#[derive(Clone, Copy)]
struct Placing {
    shape: fn(&Attrs, &Shape) -> Result<Shape>,
    /// For each element of the output the number of the input's element, or [`EMPTY`].
    places: fn(&Attrs, &View) -> Result<Vec<usize>>,
    /// The value of empty places.
    empty: fn(&Attrs) -> f64,
    /// Do places depend on the input's values?
    reads: bool,
}

fn forward(placing: Placing, call: &Call<'_>) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let places = (placing.places)(call.attrs, x)?;
    let empty = (placing.empty)(call.attrs);
    with_dtype!(x.dtype(), T => {
        let (from, to) = (Shared(x.as_ptr::<T>()), Shared(y.as_ptr::<T>()));
        let empty = T::from_f64(empty);
        parallel_for(places.len(), 1 << 14, |range| for i in range {
            // SAFETY: places are elements of the input; tasks have elements of their own.
            unsafe { *to.at(i) = if places[i] == EMPTY { empty } else { *from.at(places[i]) } };
        });
    });
    Ok(())
}

/// Inputs are the output gradient and, if places depend on it, the input.
fn backward(placing: Placing, call: &Call<'_>) -> Result<()> {
    let (g, to) = (&call.inputs[0], &call.outputs[0]);
    let places = (placing.places)(call.attrs, call.inputs.get(1).unwrap_or(to))?;
    let mut sums = vec![0.0f64; to.size()];
    with_dtype!(g.dtype(), T => {
        // SAFETY: the output gradient has an element for each place.
        let g = unsafe { g.slice::<T>() };
        for (g, place) in g.iter().zip(&places).filter(|(_, place)| **place != EMPTY) {
            sums[*place] += g.to_f64();
        }
    });
    fill(to, 0.0);
    with_dtype!(to.dtype(), T => {
        // SAFETY: the output is ours to write.
        let to = unsafe { to.slice_mut::<T>() };
        to.iter_mut().zip(&sums).for_each(|(to, sum)| *to = T::from_f64(*sum));
    });
    Ok(())
}

fn placed<P: ParamStruct>(name: &str, back: &str, placing: Placing) -> [OpDef; 2] {
    let def = OpDef::new::<P>(name)
        .inputs_are(&[("data", "The array.")])
        .infer_shape(move |attrs, inputs, outputs| {
            if inputs[0].is_known() {
                let shape = (placing.shape)(attrs, &inputs[0])?;
                assign_shape(&mut outputs[0], "output", &shape)?;
            }
            Ok(inputs[0].is_known() && outputs[0].is_known())
        })
        .infer_type(same_type)
        .gradient(Gradient::declared(back, move |_, _, _| match placing.reads {
            true => vec![Dep::OutGrad(0), Dep::Input(0)],
            false => vec![Dep::OutGrad(0)],
        }))
        .kernel(kernel(move |call| forward(placing, call)));
    [def, OpDef::new::<P>(back).kernel(kernel(move |call| backward(placing, call)))]
}

/// The shape and start of a plane turned by quarters.
fn turned(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (p, s) = (attrs.get::<TurnParam>(), &inputs[0]);
    let Some(&[first, second]) = p.axes.as_deref() else {
        let given = p.axes.as_ref().map_or("None".to_owned(), |axes| Numbers(axes).to_string());
        return Err(Error::invalid("axes", given, "two axes"));
    };
    let (a, b) = (s.axis(first)?, s.axis(second)?);
    if a == b {
        return Err(Error::invalid("axes", Numbers(&[first, second]), "two axes that differ"));
    }
    let (own, last) = (s.strides(), |axis: usize| (s.dims()[axis] - 1).max(0));
    let (mut out, mut strides, mut start) = (Dims::from_slice(s.dims()), own.clone(), 0);
    let quarters = p.k.rem_euclid(4);
    if quarters % 2 == 1 {
        out.swap(a, b);
        strides.swap(a, b);
    }
    // Which axes of the output run backwards over the input.
    let backwards: &[(usize, usize)] = match quarters {
        0 => &[],
        1 => &[(a, b)],
        2 => &[(a, a), (b, b)],
        _ => &[(b, a)],
    };
    for &(to, from) in backwards {
        strides[to] = -own[from];
        start += last(from) * own[from];
    }
    Ok(Path { dims: out.clone(), out, start, strides })
}

/// Numbers of an array's elements, axis by axis replaced by `map(axis, extent, i)`.
fn mapped(dims: &[i64], map: impl Fn(usize, i64, i64) -> i64) -> Vec<usize> {
    let mut places = vec![0usize];
    for (axis, &extent) in dims.iter().enumerate() {
        let from = |i| map(axis, extent, i) as usize;
        let row: Vec<usize> = (0..extent).map(from).collect();
        let n = extent as usize;
        places = places.iter().flat_map(|at| row.iter().map(move |i| at * n + i)).collect();
    }
    places
}

/// How far elements move: along each axis, or along the flattened array if none is named.
fn steps(attrs: &Attrs, of: &Shape) -> Result<Vec<i64>> {
    let p = attrs.get::<RollParam>();
    let Some(shifts) = p.shift.as_ref().filter(|shift| !shift.is_empty()) else {
        return Err(Error::invalid("shift", "None", "at least one number"));
    };
    let Some(axes) = &p.axis else {
        return Ok(vec![shifts.iter().fold(0, |sum, shift| sum.wrapping_add(*shift))]);
    };
    let mut by_axis = vec![0i64; of.ndim()];
    let mut add = |shift: i64, axis: i64| -> Result<()> {
        let at = of.axis(axis)?;
        by_axis[at] = by_axis[at].wrapping_add(shift);
        Ok(())
    };
    match (&shifts[..], &axes[..]) {
        (&[shift], axes) => axes.iter().try_for_each(|axis| add(shift, *axis))?,
        (shifts, &[axis]) => shifts.iter().try_for_each(|shift| add(*shift, axis))?,
        (shifts, axes) if shifts.len() == axes.len() => {
            shifts.iter().zip(axes).try_for_each(|(shift, axis)| add(*shift, *axis))?;
        }
        (shifts, axes) => {
            let expected = format!("one number, or {} as there are axes", axes.len());
            return Err(Error::invalid("number of shifts", shifts.len(), expected));
        }
    }
    Ok(by_axis)
}

fn rolled_shape(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    steps(attrs, from).map(|_| from.clone())
}

fn rolled(attrs: &Attrs, x: &View) -> Result<Vec<usize>> {
    let steps = steps(attrs, x.shape())?;
    let dims = match attrs.get::<RollParam>().axis {
        None => &[x.size() as i64],
        Some(_) => x.dims(),
    };
    Ok(mapped(dims, |axis, n, i| (i - steps[axis] % n).rem_euclid(n)))
}

fn square_around(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    let side = from.size() as i64 + i64::from(attrs.get::<DiagflatParam>().k).abs();
    Ok(Shape::from([side, side]))
}

fn on_diagonal(attrs: &Attrs, x: &View) -> Result<Vec<usize>> {
    let k = i64::from(attrs.get::<DiagflatParam>().k);
    let side = x.size() + k.unsigned_abs() as usize;
    let (down, right) = ((-k).max(0) as usize, k.max(0) as usize);
    let mut places = vec![EMPTY; side * side];
    (0..x.size()).for_each(|i| places[(i + down) * side + i + right] = i);
    Ok(places)
}

/// The margins of each axis, checked.
fn margins(attrs: &Attrs, of: &Shape) -> Result<Vec<(i64, i64)>> {
    let p = attrs.get::<PadParam>();
    if p.reflect_type != "even" {
        return Err(Error::invalid("reflect_type", &p.reflect_type, "even"));
    }
    if p.pad_width.len() != of.ndim() {
        let expected = format!("{}, a pair for each axis", of.ndim());
        return Err(Error::invalid("number of pairs in pad_width", p.pad_width.len(), expected));
    }
    let pair = |(axis, pair): (usize, &Tuple)| match pair[..] {
        [before, after] if before >= 0 && after >= 0 => {
            let empty = of.dims()[axis] == 0 && (before > 0 || after > 0);
            match empty && p.mode != Margin::Constant {
                true => Err(Error::argument("data", "shape", of, "elements along a padded axis")),
                false => Ok((before, after)),
            }
        }
        _ => Err(Error::invalid("pad_width", Numbers(pair), "pairs of at least 0")),
    };
    p.pad_width.iter().enumerate().map(pair).collect()
}

fn padded(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    let margins = margins(attrs, from)?;
    let sum =
        |(d, (before, after)): (&i64, (i64, i64))| before.saturating_add(*d).saturating_add(after);
    Ok(from.dims().iter().zip(margins).map(sum).collect())
}

/// The element of a row of `n` that place `i` of the padded row copies, counted from the row's
/// start; `None` where the margin does not copy elements by their places.
fn reflected(mode: Margin, i: i64, n: i64) -> Option<i64> {
    match mode {
        _ if (0..n).contains(&i) => Some(i),
        Margin::Edge => Some(i.clamp(0, n - 1)),
        Margin::Reflect if n == 1 => Some(0),
        Margin::Reflect => {
            let at = i.rem_euclid(2 * n - 2);
            Some(at.min(2 * n - 2 - at))
        }
        Margin::Symmetric => {
            let at = i.rem_euclid(2 * n);
            Some(at.min(2 * n - 1 - at))
        }
        Margin::Constant | Margin::Maximum | Margin::Minimum => None,
    }
}

/// Pads one axis after the other: margins of later axes reflect those of earlier ones.
fn in_margins(attrs: &Attrs, x: &View) -> Result<Vec<usize>> {
    let (mode, margins) = (attrs.get::<PadParam>().mode, margins(attrs, x.shape())?);
    let values: Vec<f64> = match mode {
        Margin::Maximum | Margin::Minimum => with_dtype!(x.dtype(), T => {
            // SAFETY: inputs are not written meanwhile.
            unsafe { x.slice::<T>() }.iter().map(|value| value.to_f64()).collect()
        }),
        _ => Vec::new(),
    };
    let better = |a: usize, b: usize| match mode {
        Margin::Minimum => values[b] < values[a],
        _ => values[b] > values[a],
    };
    let mut places: Vec<usize> = (0..x.size()).collect();
    let mut dims = Dims::from_slice(x.dims());
    for (axis, &(before, after)) in margins.iter().enumerate() {
        let n = dims[axis];
        let step = dims[axis + 1..].iter().product::<i64>() as usize;
        let rows = dims[..axis].iter().product::<i64>() as usize;
        let at =
            |row: usize, i: i64, column: usize| (row * n as usize + i as usize) * step + column;
        let mut next = Vec::with_capacity(rows * (before + n + after) as usize * step);
        for row in 0..rows {
            let best: Vec<usize> = match mode {
                Margin::Maximum | Margin::Minimum if n > 0 => (0..step)
                    .map(|column| {
                        let all = (0..n).map(|i| places[at(row, i, column)]);
                        all.reduce(|a, b| if better(a, b) { b } else { a }).unwrap_or(EMPTY)
                    })
                    .collect(),
                _ => vec![EMPTY; step],
            };
            for i in -before..n + after {
                next.extend((0..step).map(|column| match reflected(mode, i, n) {
                    Some(i) => places[at(row, i, column)],
                    None => best[column],
                }));
            }
        }
        places = next;
        dims[axis] = before + n + after;
    }
    Ok(places)
}

const ANY: &str = "Any dtype.";

pub fn operators(_: &Registry) -> Vec<OpDef> {
    let turn =
        OpDef::new::<TurnParam>("_npi_rot90").inputs_are(&[("data", "The array.")]).doc(&text(
            "The array turned by quarters in the plane of two axes.",
            "Any dtype. Two axes, which differ, must be given.",
            "_npi_rot90(nd.array([[1, 2], [3, 4]]), axes=(0, 1))\n[[2. 4.]\n [1. 3.]]",
        ));
    let zero: fn(&Attrs) -> f64 = |_| 0.0;
    let moved = |shape, places| Placing { shape, places, empty: zero, reads: false };
    let [roll, roll_back] =
        placed::<RollParam>("_np_roll", "_backward_np_roll", moved(rolled_shape, rolled));
    let [flat, flat_back] = placed::<DiagflatParam>(
        "_np_diagflat",
        "_backward_np_diagflat",
        moved(square_around, on_diagonal),
    );
    let margins = Placing {
        shape: padded,
        places: in_margins,
        empty: |attrs| attrs.get::<PadParam>().constant_value,
        reads: true,
    };
    let [pad, pad_back] = placed::<PadParam>("_npi_pad", "_backward_npi_pad", margins);
    let mut all = moving(turn, turned);
    all.extend([
        roll.doc(&text(
            "The elements moved along axes; those that leave at one end come back at the other.",
            ANY,
            "_np_roll(nd.array([1, 2, 3]), shift=(1,))\n[3. 1. 2.]",
        )),
        roll_back,
        flat.doc(&text(
            "A matrix with the elements of an array, flattened, on a diagonal, and 0 elsewhere.",
            ANY,
            "_np_diagflat(nd.array([1, 2]))\n[[1. 0.]\n [0. 2.]]",
        )),
        flat_back,
        pad.doc(&text(
            "The array with margins around it.",
            "They hold a constant, the nearest element (``edge``), the greatest or least one of \
             the row, or the array reflected without (``reflect``) or with (``symmetric``) its \
             border. Any dtype. The gradient adds up where elements are repeated.",
            "_npi_pad(nd.array([1, 2]), pad_width=((1, 2),), mode='edge')\n[1. 1. 2. 2. 2.]",
        )),
        pad_back,
    ]);
    all
}
