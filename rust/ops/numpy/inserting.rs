//! Elements inserted before places of an axis, and elements left out: `insert`, `delete`.

use super::{in_scratch, kernel, room, text};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::copy::copy;
use crate::operator::infer::{assign_shape, assign_type, same_type};
use crate::operator::{Attrs, Call, OpDef, Registry};
use crate::ops::tensor::parts::slice_range;
use crate::shape::{Dims, Shape};
use crate::tensor::View;
use crate::{params, with_dtype};

params! {
    /// Parameters of `_npi_insert_scalar` and its kin.
    pub struct InsertParam {
        val: Option<f64>, default(None), "The value; None is an array of them.";
        start: Option<i64>, default(None), "The first index of a slice.";
        stop: Option<i64>, default(None), "The bound of a slice.";
        step: Option<i64>, default(None), "The step of a slice, 1 if None.";
        int_ind: Option<i64>, default(None), "The index.";
        axis: Option<i32>, default(None), "The axis; None flattens the array first.";
    }
}

params! {
    /// Parameters of `_npi_delete`.
    pub struct DeleteParam {
        start: Option<i64>, default(None), "The first index of a slice.";
        stop: Option<i64>, default(None), "The bound of a slice.";
        step: Option<i64>, default(None), "The step of a slice, 1 if None.";
        int_ind: Option<i64>, default(None), "The index; None is a slice.";
        axis: Option<i32>, default(None), "The axis; None flattens the array first.";
    }
}

/// How places are given.
#[derive(Clone, Copy, PartialEq)]
enum Places {
    Index,
    Slice,
    Array,
}

/// The shape of the array, flattened if no axis is named, and the axis.
fn along(axis: Option<i32>, of: &Shape) -> Result<(Shape, usize)> {
    match axis {
        None => Ok((Shape::from([of.checked_size()? as i64]), 0)),
        Some(axis) => Ok((of.clone(), of.axis(axis.into())?)),
    }
}

/// An index of an axis of `extent` or, to `insert` there, one behind it, counted from the front.
fn checked(index: i64, extent: i64, insert: bool) -> Result<i64> {
    let last = if insert { extent } else { extent - 1 };
    let at = if index < 0 { index.saturating_add(extent) } else { index };
    match (0..=last).contains(&at) {
        true => Ok(at),
        false if last < 0 => Err(Error::invalid("index", index, "an axis with elements")),
        false => Err(Error::invalid("index", index, format!("-{extent} to {last}"))),
    }
}

/// Indices of an axis, evenly spaced.
#[derive(Clone, Copy)]
struct Indices {
    first: i64,
    step: i64,
    count: i64,
}

impl Indices {
    fn sliced([start, stop, step]: [Option<i64>; 3], n: i64) -> Result<Indices> {
        match step.unwrap_or(1) {
            0 => Err(Error::invalid("step", 0, "a step that is not 0")),
            step => {
                let (first, step, count) = slice_range(n, start, stop, step);
                Ok(Indices { first, step, count })
            }
        }
    }

    fn contains(&self, i: i64) -> bool {
        let from = i - self.first;
        from % self.step == 0 && (0..self.count).contains(&(from / self.step))
    }

    fn list(&self) -> Result<Vec<i64>> {
        let mut all = room(self.count as usize)?;
        all.extend((0..self.count).map(|i| self.first + i * self.step));
        Ok(all)
    }
}

/// The plan of an insertion.
struct Insertion {
    /// The array as it is read, and the axis.
    from: Shape,
    axis: usize,
    /// Extents and strides of the values, repeated to the array's other axes.
    dims: Dims,
    strides: Dims,
    places: Places,
}

impl Insertion {
    fn of(
        p: &InsertParam,
        places: Places,
        from: &Shape,
        values: &Shape,
        named: Option<&Shape>,
    ) -> Result<Insertion> {
        let (from, axis) = along(p.axis, from)?;
        let rank = from.ndim();
        let refused = |expected: String| Err(Error::argument("values", "shape", values, expected));
        if values.ndim() > rank {
            return refused(format!("at most {rank} axes"));
        }
        let count = match (places, named) {
            (Places::Slice, _) => {
                Indices::sliced([p.start, p.stop, p.step], from.dims()[axis])?.count as usize
            }
            (Places::Array, Some(named)) if named.ndim() > 1 => {
                return Err(Error::argument("obj", "shape", named, "one axis"));
            }
            (_, named) => named.map_or(1, Shape::size),
        };
        let lead = rank - values.ndim();
        let mut dims: Dims = (0..lead).map(|_| 1).chain(values.dims().iter().copied()).collect();
        let mut strides: Dims = (0..lead).map(|_| 0).chain(values.strides()).collect();
        // Values for one index have the index's axis first.
        if places == Places::Index || named.is_some_and(|named| named.ndim() == 0) {
            dims[..=axis].rotate_left(1);
            strides[..=axis].rotate_left(1);
        }
        let own = dims[axis];
        let many = if count == 1 { own } else { count as i64 };
        for (at, extent) in dims.iter_mut().enumerate() {
            let wanted = if at == axis { many } else { from.dims()[at] };
            match *extent {
                known if known == wanted => {}
                1 => (strides[at], *extent) = (0, wanted),
                _ => return refused(format!("one that is repeated to extent {wanted}")),
            }
        }
        Ok(Insertion { from, axis, dims, strides, places })
    }

    fn shape(&self) -> Shape {
        let mut shape = self.from.clone();
        let extent = &mut shape.dims_mut()[self.axis];
        *extent = extent.saturating_add(self.dims[self.axis]);
        shape
    }

    /// The places before which values stand, rising, each with the row of its value.
    fn order(&self, p: &InsertParam, named: &[i64]) -> Result<Vec<(i64, usize)>> {
        let (n, count) = (self.from.dims()[self.axis], self.dims[self.axis] as usize);
        let given = match self.places {
            Places::Index => p.int_ind.into_iter().collect(),
            Places::Slice => Indices::sliced([p.start, p.stop, p.step], n)?.list()?,
            Places::Array => named.to_vec(),
        };
        let mut order = room(count)?;
        let one = given.len() == 1;
        for (i, index) in given.into_iter().enumerate() {
            let at = checked(index, n, true)?;
            order.extend(if one { 0..count } else { i..i + 1 }.map(|i| (at, i)));
        }
        order.sort_unstable();
        Ok(order)
    }

    /// The number of the values' element that stands at `i` of the repeated extents, row-major.
    fn element(&self, i: usize) -> usize {
        let (mut rest, mut at) = (i as i64, 0);
        for (extent, stride) in self.dims.iter().zip(&self.strides).rev() {
            at += rest % extent * stride;
            rest /= extent;
        }
        at as usize
    }
}

/// A row of the output along the axis: one of the values, or one of the array.
#[derive(Clone, Copy)]
enum Taken {
    New(usize),
    Old(usize),
}

/// The rows of an array of `n`, with values before the places of `order`.
fn merged(n: usize, order: &[(i64, usize)]) -> impl Iterator<Item = Taken> {
    let (mut row, mut next) = (0, order.iter().copied().peekable());
    std::iter::from_fn(move || {
        if let Some((_, value)) = next.next_if(|(at, _)| *at as usize == row) {
            return Some(Taken::New(value));
        }
        row += 1;
        (row <= n).then(|| Taken::Old(row - 1))
    })
}

/// Writes rows of an array, and elements of `values` by their numbers.
fn gather<R: Iterator<Item = Taken>>(
    (from, axis): (&Shape, usize),
    rows: impl Fn() -> R,
    [x, values, to]: [&View; 3],
    (count, element): (usize, impl Fn(usize) -> usize),
) {
    let (outer, n) = (from.product(0..axis), from.dims()[axis] as usize);
    let inner = from.product(axis + 1..from.ndim());
    with_dtype!(to.dtype(), T => {
        // SAFETY: the output is ours to write and apart from what is read.
        let (x, values, to) = unsafe {
            (x.slice::<T>(), values.slice::<T>(), to.slice_mut::<T>())
        };
        let places = (0..outer).flat_map(|o| rows().map(move |row| (o, row)));
        for (to, (o, row)) in to.chunks_exact_mut(inner.max(1)).zip(places) {
            match row {
                Taken::New(row) => {
                    let first = (o * count + row) * inner;
                    to.iter_mut().zip(first..).for_each(|(to, i)| *to = values[element(i)]);
                }
                Taken::Old(row) => to.copy_from_slice(&x[(o * n + row) * inner..][..inner]),
            }
        }
    });
}

fn inputs(p: &InsertParam, places: Places) -> Vec<String> {
    let values = if p.val.is_none() { Some("values") } else { None };
    let named = if places == Places::Array { Some("obj") } else { None };
    ["arr"].into_iter().chain(values).chain(named).map(str::to_owned).collect()
}

fn planned(p: &InsertParam, places: Places, shapes: &[Shape]) -> Result<Insertion> {
    if places == Places::Index && p.int_ind.is_none() {
        return Err(Error::invalid("int_ind", "None", "an index"));
    }
    let number = Shape::new(&[]);
    let values = if p.val.is_none() { &shapes[1] } else { &number };
    let named = if places == Places::Array { shapes.last() } else { None };
    Insertion::of(p, places, &shapes[0], values, named)
}

fn insert(call: &Call<'_>, places: Places) -> Result<()> {
    let (p, out) = (call.attrs.get::<InsertParam>(), &call.outputs[0]);
    let shapes: Vec<Shape> = call.inputs.iter().map(|view| view.shape().clone()).collect();
    let plan = planned(p, places, &shapes)?;
    let named = match places {
        Places::Array => call
            .inputs
            .last()
            .map_or(Vec::new(), |view| super::elements::wholes(view, view.shape())),
        _ => Vec::new(),
    };
    let order = plan.order(p, &named)?;
    let mut number = p.val.unwrap_or(0.0);
    // SAFETY: the number outlives the view.
    let one = unsafe { View::new((&raw mut number).cast(), Shape::new(&[]), DType::F64) };
    let values = if p.val.is_none() { &call.inputs[1] } else { &one };
    in_scratch(values, out.dtype(), |own| {
        copy(values, own);
        let x = &call.inputs[0];
        let rows = || merged(plan.from.dims()[plan.axis] as usize, &order);
        let elements = (order.len(), |i| plan.element(i));
        gather((&plan.from, plan.axis), rows, [x, own, out], elements);
    });
    Ok(())
}

fn inserting(name: &str, places: Places, what: &str, example: &str) -> OpDef {
    OpDef::new::<InsertParam>(name)
        .inputs_are(&[
            ("arr", "The array."),
            ("values", "What is inserted, unless val is given."),
            ("obj", "The indices (k,)."),
        ])
        .input_names_by(move |attrs| inputs(attrs.get(), places))
        .doc(&text(
            &format!("The array with values inserted before {what} of an axis."),
            "Values are repeated to the array's other extents and converted to its dtype. Indices \
             count in the array that is given; negative ones count from its end. Not \
             differentiable.",
            example,
        ))
        .infer_shape(move |attrs: &Attrs, inputs, outputs| {
            if !inputs.iter().all(Shape::is_known) {
                return Ok(false);
            }
            let shape = planned(attrs.get(), places, inputs)?.shape();
            assign_shape(&mut outputs[0], "output", &shape)?;
            Ok(true)
        })
        .infer_type(move |_, inputs, outputs| {
            let Some(dtype) = inputs[0].or(outputs[0]) else { return Ok(false) };
            assign_type(&mut inputs[0], "arr", dtype)?;
            assign_type(&mut outputs[0], "output", dtype)?;
            if places == Places::Array
                && let Some(named) = inputs.last_mut()
                && named.get_or_insert(DType::I64).is_float()
            {
                let expected = "an integer dtype";
                return Err(Error::argument("obj", "dtype", named.unwrap_or(dtype), expected));
            }
            inputs.iter_mut().for_each(|slot| *slot = slot.or(Some(dtype)));
            Ok(true)
        })
        .kernel(kernel(move |call| insert(call, places)))
}

/// The indices that are left out.
fn gone(p: &DeleteParam, n: i64) -> Result<Indices> {
    match p.int_ind {
        Some(index) => Ok(Indices { first: checked(index, n, false)?, step: 1, count: 1 }),
        None => Indices::sliced([p.start, p.stop, p.step], n),
    }
}

fn delete() -> OpDef {
    OpDef::new::<DeleteParam>("_npi_delete")
        .inputs_are(&[("arr", "The array.")])
        .doc(&text(
            "The array without the elements at an index, or at those of a slice, of an axis.",
            "Any dtype. Not differentiable. Indices in an array are not taken: how many of them \
             differ, and so the output's shape, is not known before.",
            "_npi_delete(nd.array([1, 2, 3]), int_ind=1)\n[1. 3.]",
        ))
        .infer_shape(|attrs: &Attrs, inputs, outputs| {
            if !inputs[0].is_known() {
                return Ok(false);
            }
            let p = attrs.get::<DeleteParam>();
            let (mut shape, axis) = along(p.axis, &inputs[0])?;
            let gone = gone(p, shape.dims()[axis])?;
            shape.dims_mut()[axis] -= gone.count;
            assign_shape(&mut outputs[0], "output", &shape)?;
            Ok(true)
        })
        .infer_type(same_type)
        .kernel(kernel(|call| {
            let p = call.attrs.get::<DeleteParam>();
            let (from, axis) = along(p.axis, call.inputs[0].shape())?;
            let n = from.dims()[axis];
            let gone = gone(p, n)?;
            let rows = || (0..n).filter(|i| !gone.contains(*i)).map(|i| Taken::Old(i as usize));
            let (x, out) = (&call.inputs[0], &call.outputs[0]);
            gather((&from, axis), rows, [x, x, out], (0, |i| i));
            Ok(())
        }))
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    vec![
        inserting(
            "_npi_insert_scalar",
            Places::Index,
            "an index",
            "_npi_insert_scalar(nd.array([1, 2]), val=9, int_ind=1)\n[1. 9. 2.]",
        ),
        inserting(
            "_npi_insert_slice",
            Places::Slice,
            "the indices of a slice",
            "_npi_insert_slice(nd.array([1, 2]), val=9, start=0, stop=2)\n[9. 1. 9. 2.]",
        ),
        inserting(
            "_npi_insert_tensor",
            Places::Array,
            "indices",
            "_npi_insert_tensor(nd.array([1, 2]), nd.array([2, 0], dtype='int64'), val=9)\n\
             [9. 1. 2. 9.]",
        ),
        delete(),
    ]
}
