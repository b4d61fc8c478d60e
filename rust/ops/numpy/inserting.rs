//! Elements inserted before places of an axis, and elements left out: `insert`, `delete`.

use super::{in_scratch, kernel, text};
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

fn sliced(start: Option<i64>, stop: Option<i64>, step: Option<i64>, n: i64) -> Result<Vec<i64>> {
    match step.unwrap_or(1) {
        0 => Err(Error::invalid("step", 0, "a step that is not 0")),
        step => {
            let (first, step, count) = slice_range(n, start, stop, step);
            Ok((0..count).map(|i| first + i * step).collect())
        }
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
            (Places::Slice, _) => sliced(p.start, p.stop, p.step, from.dims()[axis])?.len(),
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
        shape.dims_mut()[self.axis] += self.dims[self.axis];
        shape
    }

    /// For each place along the axis of the output the row of the array, or that of the values.
    fn rows(&self, p: &InsertParam, named: &[i64]) -> Result<Vec<(bool, usize)>> {
        let (n, count) = (self.from.dims()[self.axis], self.dims[self.axis]);
        let given = match self.places {
            Places::Index => p.int_ind.into_iter().collect(),
            Places::Slice => sliced(p.start, p.stop, p.step, n)?,
            Places::Array => named.to_vec(),
        };
        let at = given.iter().map(|i| checked(*i, n, true)).collect::<Result<Vec<i64>>>()?;
        let of = |i: usize| if at.len() == 1 { at[0] } else { at[i] };
        let mut order: Vec<usize> = (0..count as usize).collect();
        order.sort_by_key(|i| of(*i));
        let (mut rows, mut next) = (Vec::with_capacity((n + count) as usize), order.into_iter());
        let mut value = next.next();
        for row in 0..=n {
            while let Some(i) = value.filter(|i| of(*i) == row) {
                rows.push((true, i));
                value = next.next();
            }
            if row < n {
                rows.push((false, row as usize));
            }
        }
        Ok(rows)
    }

    /// The numbers of the values' elements, row-major over the repeated extents.
    fn elements(&self) -> Vec<usize> {
        self.dims.iter().zip(&self.strides).fold(vec![0], |before, (&extent, &stride)| {
            let along = |at: usize| (0..extent).map(move |i| at + (i * stride) as usize);
            before.into_iter().flat_map(along).collect()
        })
    }
}

/// Writes rows of an array, and of `values`, which `elements` numbers.
fn gather(
    (from, axis): (&Shape, usize),
    rows: &[(bool, usize)],
    [x, values, to]: [&View; 3],
    elements: &[usize],
) {
    let (outer, n) = (from.product(0..axis), from.dims()[axis] as usize);
    let inner = from.product(axis + 1..from.ndim());
    let count = rows.iter().filter(|row| row.0).count();
    with_dtype!(to.dtype(), T => {
        // SAFETY: the output is ours to write and apart from what is read.
        let (x, values, to) = unsafe {
            (x.slice::<T>(), values.slice::<T>(), to.slice_mut::<T>())
        };
        let places = (0..outer).flat_map(|o| rows.iter().map(move |row| (o, *row)));
        for (to, (o, (new, row))) in to.chunks_exact_mut(inner.max(1)).zip(places) {
            match new {
                true => {
                    let from = &elements[(o * count + row) * inner..];
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = values[*from]);
                }
                false => to.copy_from_slice(&x[(o * n + row) * inner..][..inner]),
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
    let rows = plan.rows(p, &named)?;
    let mut number = p.val.unwrap_or(0.0);
    // SAFETY: the number outlives the view.
    let one = unsafe { View::new((&raw mut number).cast(), Shape::new(&[]), DType::F64) };
    let values = if p.val.is_none() { &call.inputs[1] } else { &one };
    in_scratch(values, out.dtype(), |room| {
        copy(values, room);
        let x = &call.inputs[0];
        gather((&plan.from, plan.axis), &rows, [x, room, out], &plan.elements());
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

/// The rows that stay.
fn left(p: &DeleteParam, n: i64) -> Result<Vec<(bool, usize)>> {
    let gone = match p.int_ind {
        Some(index) => vec![checked(index, n, false)?],
        None => sliced(p.start, p.stop, p.step, n)?,
    };
    let mut stays = vec![true; n as usize];
    gone.into_iter().for_each(|i| stays[i as usize] = false);
    Ok((0..n as usize).filter(|i| stays[*i]).map(|i| (false, i)).collect())
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
            shape.dims_mut()[axis] = left(p, shape.dims()[axis])?.len() as i64;
            assign_shape(&mut outputs[0], "output", &shape)?;
            Ok(true)
        })
        .infer_type(same_type)
        .kernel(kernel(|call| {
            let p = call.attrs.get::<DeleteParam>();
            let (from, axis) = along(p.axis, call.inputs[0].shape())?;
            let rows = left(p, from.dims()[axis])?;
            let (x, out) = (&call.inputs[0], &call.outputs[0]);
            gather((&from, axis), &rows, [x, x, out], &[]);
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
