//! Slices and elements replaced by index: `_contrib_index_copy`, `_onehot_encode` and
//! `fill_element_0index` of the first versions, and the indices themselves, `_contrib_index_array`.

use super::{copy_run, index_at, text};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Gradient, InplacePair, OpDef, OpReq, Tuple};
use crate::ops::nn::infer::expect_rank;
use crate::ops::tensor::common::{all_known, copy_view, read_f64, write_f64, zero_view};
use crate::ops::tensor::kernel;
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;

params! {
    /// Parameters of `_contrib_index_array`.
    pub struct IndexArrayParam {
        axes: Option<Tuple>, default(None), "The axes whose indices are given; None is all of \
                                             them.";
    }
}

/// Indices may have any dtype, all other arrays have one.
fn one_type_but(
    indices: &'static [usize],
) -> impl Fn(&Attrs, &mut [Option<DType>], &mut [Option<DType>]) -> Result<bool> {
    move |_, inputs, outputs| {
        let values = || (0..3).filter(|i| !indices.contains(i));
        let known = values().filter_map(|i| inputs.get(i).copied().flatten()).next();
        let Some(dtype) = known.or(outputs[0]) else { return Ok(false) };
        for i in 0..inputs.len() {
            match indices.contains(&i) {
                true => _ = inputs[i].get_or_insert(DType::F32),
                false => assign_type(&mut inputs[i], &format!("input {i}"), dtype)?,
            }
        }
        assign_type(&mut outputs[0], "output", dtype)?;
        Ok(true)
    }
}

fn index_copy_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "old_tensor", &known)?;
    assign_shape(&mut outputs[0], "output", &inputs[0])?;
    expect_rank(&inputs[1], "index_vector", 1..=1)?;
    if inputs[0].rank_known() && inputs[0].ndim() == 0 {
        return Err(Error::argument("old_tensor", "shape", &inputs[0], "one axis or more"));
    }
    if let ([_, rest @ ..], [n]) = (inputs[0].dims(), inputs[1].dims()) {
        let new = Shape::from_iter([*n].into_iter().chain(rest.iter().copied()));
        assign_shape(&mut inputs[2], "new_tensor", &new)?;
    }
    if let [n, ..] = inputs[2].dims() {
        let n = *n;
        assign_shape(&mut inputs[1], "index_vector", &Shape::new(&[n]))?;
    }
    Ok(all_known(inputs, outputs))
}

/// The rows that the indices name, or an error.
fn named_rows(indices: &View, rows: i64) -> Result<Vec<usize>> {
    let check = |i: i64| match (0..rows).contains(&i) {
        true => Ok(i as usize),
        false => Err(Error::argument("index_vector", "value", i, format!("0 to {}", rows - 1))),
    };
    (0..indices.size()).map(|i| check(index_at(indices, i))).collect()
}

fn index_copy(call: &Call<'_>) -> Result<()> {
    let ([old, at, new], out) = (call.inputs, &call.outputs[0]) else { unreachable!("three") };
    let rows = named_rows(at, old.dims()[0])?;
    if out.ptr() != old.ptr() {
        copy_view(old, out);
    }
    let width = new.size() / rows.len().max(1);
    for (i, row) in rows.into_iter().enumerate() {
        copy_run(new, i * width, out, row * width, width);
    }
    Ok(())
}

/// Inputs: output gradient and those of the operator. Of slices with one index the last one counts,
/// but each gets the gradient of the place.
fn index_copy_backward(call: &Call<'_>) -> Result<()> {
    let [g, old, at, new] = call.inputs else { unreachable!("four inputs") };
    let rows = named_rows(at, old.dims()[0])?;
    let width = new.size() / rows.len().max(1);
    let wanted = |i: usize| call.req[i] != OpReq::Null;
    if wanted(0) {
        copy_view(g, &call.outputs[0]);
        for &row in &rows {
            let size = g.dtype().size();
            // SAFETY: a row of the output.
            unsafe {
                std::ptr::write_bytes(
                    call.outputs[0].ptr().add(row * width * size),
                    0,
                    width * size,
                );
            }
        }
    }
    if wanted(1) {
        zero_view(&call.outputs[1]);
    }
    if wanted(2) {
        for (i, row) in rows.into_iter().enumerate() {
            copy_run(g, row * width, &call.outputs[2], i * width, width);
        }
    }
    Ok(())
}

fn index_array(call: &Call<'_>) -> Result<()> {
    let (data, out) = (&call.inputs[0], &call.outputs[0]);
    let axes = chosen_axes(call.attrs.get(), data.shape())?;
    let dims: Vec<usize> = data.dims().iter().map(|&d| d as usize).collect();
    let steps: Vec<usize> = axes.iter().map(|&a| dims[a + 1..].iter().product()).collect();
    let to = Shared(out.as_ptr::<i64>());
    parallel_for(data.shape().size(), 1 << 12, |range| {
        for i in range {
            for (k, (&axis, &step)) in axes.iter().zip(&steps).enumerate() {
                // SAFETY: an index for each axis and element; tasks have elements of their own.
                unsafe { *to.at(i * axes.len() + k) = (i / step % dims[axis]) as i64 };
            }
        }
    });
    Ok(())
}

fn chosen_axes(p: &IndexArrayParam, shape: &Shape) -> Result<Vec<usize>> {
    match &p.axes {
        None => Ok((0..shape.ndim()).collect()),
        Some(axes) => axes.iter().map(|&a| shape.axis(a)).collect(),
    }
}

/// `lhs` (n, k) and numbers of its rows.
fn rows_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    // `_onehot_encode` has the matrix last, `fill_element_0index` first.
    let (matrix, rows) = if inputs.len() == 2 { (1, vec![0]) } else { (0, vec![1, 2]) };
    let known = outputs[0].clone();
    assign_shape(&mut inputs[matrix], "matrix", &known)?;
    expect_rank(&inputs[matrix], "matrix", 2..=2)?;
    assign_shape(&mut outputs[0], "output", &inputs[matrix])?;
    if let [n, _] = inputs[matrix].dims() {
        let n = Shape::new(&[*n]);
        for i in rows {
            assign_shape(&mut inputs[i], &format!("input {i}"), &n)?;
        }
    }
    Ok(all_known(inputs, outputs))
}

/// Writes a number into each row of the output, at a column that is in range: NaN is not.
fn fill_rows(call: &Call<'_>, columns: &View, value: impl Fn(usize) -> f64) {
    let out = &call.outputs[0];
    let k = out.dims()[1];
    for row in 0..columns.size() {
        let column = index_at(columns, row);
        // SAFETY: one column a row.
        let is_nan = unsafe { read_f64(columns.ptr(), columns.dtype(), row) }.is_nan();
        if !is_nan && (0..k).contains(&column) {
            // SAFETY: an element of the output.
            unsafe {
                write_f64(out.ptr(), out.dtype(), row * k as usize + column as usize, value(row));
            }
        }
    }
}

fn fill_element(call: &Call<'_>) -> Result<()> {
    let ([lhs, values, columns], out) = (call.inputs, &call.outputs[0]) else {
        unreachable!("three inputs")
    };
    if out.ptr() != lhs.ptr() {
        copy_view(lhs, out);
    }
    // SAFETY: one value a row.
    fill_rows(call, columns, |row| unsafe { read_f64(values.ptr(), values.dtype(), row) });
    Ok(())
}

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::plain("_contrib_index_copy")
            .doc(&text(
                "A copy of an array whose slices at given indices of the first axis are replaced.",
                "``old_tensor (n, ...)``, ``index_vector (m,)`` of any dtype, ``new_tensor (m, \
                 ...)``; the output is like old_tensor. Of equal indices the last counts. An index \
                 out of range is an error. The gradient of old_tensor is 0 in replaced slices, \
                 that of new_tensor is the output's at its indices.",
                "nd.contrib.index_copy(nd.zeros((3,)), nd.array([2, 0]), nd.array([5, 7]))\n[7. 0. \
                 5.]",
            ))
            .inputs_are(&[
                ("old_tensor", "The array."),
                ("index_vector", "Indices on its first axis."),
                ("new_tensor", "The new slices."),
            ])
            .infer_shape(index_copy_shape)
            .infer_type(one_type_but(&[1]))
            .inplace(&[InplacePair::new(0, 0)])
            .gradient(Gradient::use_in("_contrib_backward_index_copy"))
            .kernel(kernel(index_copy)),
        OpDef::plain("_backward_contrib_index_copy")
            .aliases(&["_contrib_backward_index_copy"])
            .kernel(kernel(index_copy_backward)),
        OpDef::new::<IndexArrayParam>("_contrib_index_array")
            .doc(&text(
                "The indices of every element of an array.",
                "Data of any shape (d0, ..., dk) and dtype, whose values are not read. Output (d0, \
                 ..., dk, number of axes), int64. ``axes`` chooses and orders the axes.",
                "nd.contrib.index_array(nd.ones((2, 1))).reshape((2, 2))\n[[0 0]\n [1 0]]",
            ))
            .inputs_are(&[("data", "Gives the shape.")])
            .ignores(&[0])
            .infer_shape(|attrs, inputs, outputs| {
                if inputs[0].rank_known() {
                    let axes = chosen_axes(attrs.get(), &inputs[0])?.len() as i64;
                    let out = inputs[0].dims().iter().copied().chain([axes]);
                    assign_shape(&mut outputs[0], "output", &Shape::from_iter(out))?;
                }
                Ok(all_known(inputs, outputs))
            })
            .infer_type(|_, inputs, outputs| {
                assign_type(&mut outputs[0], "output", DType::I64)?;
                Ok(inputs[0].is_some())
            })
            .gradient(Gradient::Zero)
            .kernel(kernel(index_array)),
        OpDef::plain("_onehot_encode")
            .doc(&text(
                "Rows that are 1 at one column and 0 elsewhere; see `one_hot`.",
                "``lhs (n,)`` has the columns, rhs ``(n, k)`` the shape of the output; the values \
                 of rhs are not read. A column out of range gives a row of zeros. One dtype.",
                "nd._internal._onehot_encode(nd.array([1, 0]), nd.zeros((2, 2)))\n[[0. 1.]\n [1. \
                 0.]]",
            ))
            .inputs_are(&[("lhs", "The columns."), ("rhs", "Gives the shape.")])
            .ignores(&[1])
            .infer_shape(rows_shape)
            .infer_type(crate::operator::infer::same_type)
            .gradient(Gradient::Zero)
            .kernel(kernel(|call| {
                zero_view(&call.outputs[0]);
                fill_rows(call, &call.inputs[0], |_| 1.0);
                Ok(())
            })),
        OpDef::plain("fill_element_0index")
            .doc(&text(
                "A copy of a matrix with one element of each row replaced: ``lhs[i, rhs[i]] = \
                 mhs[i]``.",
                "``lhs (n, k)``, ``mhs (n,)`` and ``rhs (n,)``, one dtype. A column out of range \
                 replaces nothing.",
                "nd.fill_element_0index(nd.zeros((2, 2)), nd.array([5, 7]), nd.array([1, 0]))\n\
                 [[0. 5.]\n [7. 0.]]",
            ))
            .inputs_are(&[
                ("lhs", "The matrix."),
                ("mhs", "The new elements."),
                ("rhs", "Their columns."),
            ])
            .infer_shape(rows_shape)
            .infer_type(crate::operator::infer::same_type)
            .inplace(&[InplacePair::new(0, 0)])
            .kernel(kernel(fill_element)),
    ]
}
