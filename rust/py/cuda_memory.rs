//! Memory of devices that is shared with other libraries by its address, as the attribute
//! `__cuda_array_interface__` describes it.

use super::convert::{dtype_arg, shape_arg};
use super::error::{IntoPy, invalid, poll_signals};
use super::ndarray::PyNDArray;
use super::runtime;
use crate::cuda::Lent;
use crate::ndarray::NDArray;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::any::Any;
use std::sync::Arc;

/// Address and stream of an array on a device; `None` for one on the host. Waits until what writes
/// it is issued, not until it is done.
#[pyfunction]
fn cuda_address(py: Python<'_>, array: &PyNDArray) -> PyResult<Option<(usize, usize)>> {
    let array = array.array();
    let found = py.detach(|| array.issued(&mut poll_signals)).py(py)?;
    // The owner of the address may write there. The core does not see such writes: it must not take
    // the array for one that was never written, and fill it with zeros.
    array.lend();
    Ok(found)
}

/// An array over memory of a device that `owner` owns, after the work on `stream` if one is given.
#[pyfunction]
fn cuda_wrap(
    py: Python<'_>,
    owner: Py<PyAny>,
    address: usize,
    shape: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    stream: Option<usize>,
) -> PyResult<PyNDArray> {
    let (shape, dtype) = (shape_arg(shape)?, dtype_arg(dtype)?);
    if !address.is_multiple_of(dtype.size()) {
        let expected = format!("a multiple of {} bytes, the size of {dtype}", dtype.size());
        let text = invalid("address of the memory", format!("{address:#x}"), expected);
        return Err(PyValueError::new_err(text));
    }
    let device = runtime().cuda.device_at(address).py(py)?;
    if let Some(stream) = stream {
        device.follow(stream).py(py)?;
    }
    let keep: Arc<dyn Any + Send + Sync> = Arc::new(Lent::new(device, Box::new(owner)));
    let (ptr, ctx) = (address as *mut u8, device.context());
    // SAFETY: the interface promises memory of the shape's elements as long as its owner lives.
    let array = unsafe { NDArray::external(runtime(), keep, ptr, &shape, dtype, ctx) };
    Ok(PyNDArray::of(array))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(cuda_address, m)?)?;
    m.add_function(wrap_pyfunction!(cuda_wrap, m)?)
}
