//! Elements in other places: `rot90`, `roll`, `diagflat`, `pad`.
//!
//! None makes a list as long as its output, but for margins that hold the greatest or least of
//! their row: what is copied from where follows from the place.

use super::statistics::{numbers, store};
use super::{kernel, room, text, zeros};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::copy::fill;
use crate::kernels::layout::copy_strided;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, ParamStruct, Registry, Tuple};
use crate::ops::tensor::movement::moving;
use crate::ops::tensor::moves::{Path, along};
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

/// An operator of one array, with what computes its output, and its gradient of the inputs that
/// `needs` names.
fn moved<P: ParamStruct>(
    [name, back]: [&str; 2],
    shape: fn(&Attrs, &Shape) -> Result<Shape>,
    needs: &'static [Dep],
    [forward, backward]: [fn(&Call<'_>) -> Result<()>; 2],
) -> [OpDef; 2] {
    let def = OpDef::new::<P>(name)
        .inputs_are(&[("data", "The array.")])
        .infer_shape(move |attrs, inputs, outputs| {
            if inputs[0].is_known() {
                let shape = shape(attrs, &inputs[0])?;
                assign_shape(&mut outputs[0], "output", &shape)?;
            }
            Ok(inputs[0].is_known() && outputs[0].is_known())
        })
        .infer_type(same_type)
        .gradient(Gradient::declared(back, move |_, _, _| needs.to_vec()))
        .kernel(kernel(forward));
    [def, OpDef::new::<P>(back).kernel(kernel(backward))]
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

/// Moves elements `by` times as far as the parameters say.
fn roll(call: &Call<'_>, by: i64) -> Result<()> {
    let (from, to) = (&call.inputs[0], &call.outputs[0]);
    if to.size() == 0 {
        return Ok(());
    }
    let steps = steps(call.attrs, from.shape())?;
    let dims = match call.attrs.get::<RollParam>().axis {
        None => Shape::flat(from.size()),
        Some(_) => from.shape().clone(),
    };
    let strides = dims.strides();
    let of = |(n, step): (&i64, &i64)| by.wrapping_mul(step % n).rem_euclid(*n);
    let shifts: Dims = dims.dims().iter().zip(&steps).map(of).collect();
    // An axis that moves has two parts, which change places; the array has as many elements as
    // there are blocks, or more.
    let moving: Vec<usize> = (0..shifts.len()).filter(|&axis| shifts[axis] > 0).collect();
    for block in 0..1usize << moving.len() {
        let (mut start, mut target, mut extents) = (0, 0, Dims::from_slice(dims.dims()));
        for (bit, &axis) in moving.iter().enumerate() {
            let (shift, n) = (shifts[axis], extents[axis]);
            let (first, place, count) = match block >> bit & 1 {
                0 => (0, shift, n - shift),
                _ => (n - shift, 0, shift),
            };
            (start, target) = (start + first * strides[axis], target + place * strides[axis]);
            extents[axis] = count;
        }
        let part = |of: &View, at: i64| {
            let path = Path {
                dims: extents.clone(),
                out: Dims::new(),
                start: at,
                strides: strides.clone(),
            };
            along(&path, of)
        };
        // SAFETY: parts of the extents lie inside of both arrays, which are apart.
        unsafe { copy_strided(&part(from, start), &part(to, target)) };
    }
    Ok(())
}

/// The side of the matrix around a diagonal of `count` elements.
fn side(attrs: &Attrs, count: usize) -> i64 {
    i64::from(attrs.get::<DiagflatParam>().k).abs().saturating_add_unsigned(count as u64)
}

fn square_around(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    let side = side(attrs, from.checked_size()?);
    Ok(Shape::from([side, side]))
}

/// The diagonal of `count` elements in the matrix.
fn on_diagonal(attrs: &Attrs, matrix: &View, count: usize) -> View {
    let (k, side) = (i64::from(attrs.get::<DiagflatParam>().k), side(attrs, count));
    let start = if k >= 0 { k } else { -k * side };
    let (dims, strides) = (Dims::from_slice(&[count as i64]), Dims::from_slice(&[side + 1]));
    along(&Path { dims, out: Dims::new(), start, strides }, matrix)
}

fn diagflat(call: &Call<'_>) -> Result<()> {
    let (x, matrix) = (&call.inputs[0], &call.outputs[0]);
    fill(matrix, 0.0);
    if x.size() > 0 {
        let diagonal = on_diagonal(call.attrs, matrix, x.size());
        // SAFETY: the diagonal has the size of the input and lies inside of the output.
        unsafe { copy_strided(&x.reshaped(Shape::flat(x.size())), &diagonal) };
    }
    Ok(())
}

fn diagflat_back(call: &Call<'_>) -> Result<()> {
    let (g, to) = (&call.inputs[0], &call.outputs[0]);
    if to.size() > 0 {
        let diagonal = on_diagonal(call.attrs, g, to.size());
        // SAFETY: as above, the other way round.
        unsafe { copy_strided(&diagonal, &to.reshaped(Shape::flat(to.size()))) };
    }
    Ok(())
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

/// By the number of an element of the padded array that of the element that it copies, if any.
type Places = Box<dyn Fn(usize) -> Option<usize> + Send + Sync>;

/// Where the elements of the padded array come from.
fn places(attrs: &Attrs, x: &View) -> Result<Places> {
    let (mode, margins) = (attrs.get::<PadParam>().mode, margins(attrs, x.shape())?);
    if matches!(mode, Margin::Maximum | Margin::Minimum) {
        let list = extremes(mode, &margins, x)?;
        return Ok(Box::new(move |i| Some(list[i]).filter(|at| *at != EMPTY)));
    }
    let axes = x.dims().iter().zip(x.shape().strides()).zip(margins);
    let axes: Vec<_> = axes.map(|((&n, step), (before, after))| (n, step, before, after)).collect();
    Ok(Box::new(move |i| {
        let (mut rest, mut at) = (i as i64, 0);
        for &(n, step, before, after) in axes.iter().rev() {
            let extent = before + n + after;
            at += reflected(mode, rest % extent - before, n)? * step;
            rest /= extent;
        }
        Some(at as usize)
    }))
}

/// A place that no element of the input comes to.
const EMPTY: usize = usize::MAX;

/// For each element of the padded array the place of the one that it copies, where margins hold the
/// greatest or least of their row. Pads one axis after the other.
fn extremes(mode: Margin, margins: &[(i64, i64)], x: &View) -> Result<Vec<usize>> {
    let values = numbers(x)?;
    let better = |a: usize, b: usize| match mode {
        Margin::Minimum => values[b] < values[a],
        _ => values[b] > values[a],
    };
    let mut places = room(x.size())?;
    places.extend(0..x.size());
    let mut dims = Dims::from_slice(x.dims());
    for (axis, &(before, after)) in margins.iter().enumerate() {
        let n = dims[axis];
        let step = dims[axis + 1..].iter().product::<i64>() as usize;
        let rows = dims[..axis].iter().product::<i64>() as usize;
        let at =
            |row: usize, i: i64, column: usize| (row * n as usize + i as usize) * step + column;
        let mut next = room(rows * (before + n + after) as usize * step)?;
        for row in 0..rows {
            let best = |column: usize| {
                let all = (0..n).map(|i| places[at(row, i, column)]);
                all.reduce(|a, b| if better(a, b) { b } else { a }).unwrap_or(EMPTY)
            };
            let mut bests = room(step)?;
            bests.extend((0..step).map(best));
            for i in -before..n + after {
                match (0..n).contains(&i) {
                    true => next.extend_from_slice(&places[at(row, i, 0)..][..step]),
                    false => next.extend_from_slice(&bests),
                }
            }
        }
        places = next;
        dims[axis] = before + n + after;
    }
    Ok(places)
}

fn pad(call: &Call<'_>) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let place = places(call.attrs, x)?;
    let empty = call.attrs.get::<PadParam>().constant_value;
    with_dtype!(x.dtype(), T => {
        let (from, to) = (Shared(x.as_ptr::<T>()), Shared(y.as_ptr::<T>()));
        let empty = T::from_f64(empty);
        parallel_for(y.size(), 1 << 14, |range| for i in range {
            // SAFETY: places are elements of the input; tasks have elements of their own.
            unsafe { *to.at(i) = place(i).map_or(empty, |at| *from.at(at)) };
        });
    });
    Ok(())
}

/// Inputs are the output gradient and the input.
fn pad_back(call: &Call<'_>) -> Result<()> {
    let (g, to) = (&call.inputs[0], &call.outputs[0]);
    let place = places(call.attrs, &call.inputs[1])?;
    let mut sums = zeros(to.size())?;
    with_dtype!(g.dtype(), T => {
        // SAFETY: inputs are not written meanwhile.
        for (i, g) in unsafe { g.slice::<T>() }.iter().enumerate() {
            if let Some(at) = place(i) {
                sums[at] += g.to_f64();
            }
        }
    });
    store(call, 0, &sums);
    Ok(())
}

const ANY: &str = "Any dtype.";

pub fn operators(_: &Registry) -> Vec<OpDef> {
    let turn =
        OpDef::new::<TurnParam>("_npi_rot90").inputs_are(&[("data", "The array.")]).doc(&text(
            "The array turned by quarters in the plane of two axes.",
            "Any dtype. Two axes, which differ, must be given.",
            "_npi_rot90(nd.array([[1, 2], [3, 4]]), axes=(0, 1))\n[[2. 4.]\n [1. 3.]]",
        ));
    let [roll, roll_back] = moved::<RollParam>(
        ["_np_roll", "_backward_np_roll"],
        rolled_shape,
        &[Dep::OutGrad(0)],
        [|call| roll(call, 1), |call| roll(call, -1)],
    );
    let [flat, flat_back] = moved::<DiagflatParam>(
        ["_np_diagflat", "_backward_np_diagflat"],
        square_around,
        &[Dep::OutGrad(0)],
        [diagflat, diagflat_back],
    );
    let [pad, pad_back] = moved::<PadParam>(
        ["_npi_pad", "_backward_npi_pad"],
        padded,
        &[Dep::OutGrad(0), Dep::Input(0)],
        [pad, pad_back],
    );
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
