//! Fast paths of `NDArray.__getitem__` and `__setitem__`: rows and whole arrays. All other keys are
//! left to the Python package.

use super::ndarray::PyNDArray;
use super::thread_state::thread_state;
use crate::ndarray::NDArray;
use pyo3::prelude::*;
use pyo3::types::slice::PySliceIndices;
use pyo3::types::{PyBool, PyInt, PySlice};

/// A row by number, or a range of rows without a step, as a view. Returns `None` for
/// any other key, and if the access must be recorded.
pub fn rows(array: &PyNDArray, key: &Bound<'_, PyAny>) -> PyResult<Option<NDArray>> {
    let tracked = array.tracked();
    let array = array.array();
    let Some(&rows) = array.shape().dims().first() else { return Ok(None) };
    if thread_state().recording && tracked.is_tracked() {
        return Ok(None);
    }
    if key.is_instance_of::<PyInt>() && !key.is_instance_of::<PyBool>() {
        let Ok(i) = key.extract::<i64>() else { return Ok(None) };
        let at = if i < 0 { i + rows } else { i };
        if !(0..rows).contains(&at) {
            return Ok(None); // the general path raises
        }
        let at = at as usize;
        // A single element has shape (1,), and () only where () is a shape.
        let keeps_axis = array.shape().ndim() == 1 && !crate::shape::is_np_shape();
        return Ok(if keeps_axis { array.slice(at, at + 1) } else { array.at(at) }.ok());
    }
    let Ok(slice) = key.cast::<PySlice>() else { return Ok(None) };
    let range = slice.indices(rows as isize)?;
    if range.step != 1 || is_all(&range, rows) {
        return Ok(None);
    }
    let begin = range.start as usize;
    Ok(array.slice(begin, begin + range.slicelength).ok())
}

/// `value` if it is an array of the same shape and dtype, `key` is the slice of all rows, and the
/// access need not be recorded.
pub fn source_of_all<'a, 'py>(
    array: &PyNDArray,
    key: &Bound<'py, PyAny>,
    value: &'a Bound<'py, PyAny>,
) -> PyResult<Option<&'a Bound<'py, PyNDArray>>> {
    let (Ok(slice), Ok(source)) = (key.cast::<PySlice>(), value.cast::<PyNDArray>()) else {
        return Ok(None);
    };
    let (to, from) = (array.array(), source.get().array());
    let Some(&rows) = to.shape().dims().first() else { return Ok(None) };
    let is_recorded = thread_state().recording && source.get().tracked().is_tracked();
    if is_recorded || to.dtype() != from.dtype() || to.shape() != from.shape() {
        return Ok(None);
    }
    let range = slice.indices(rows as isize)?;
    Ok((range.step == 1 && is_all(&range, rows)).then_some(source))
}

fn is_all(range: &PySliceIndices, rows: i64) -> bool {
    range.start == 0 && range.slicelength == rows as usize
}
