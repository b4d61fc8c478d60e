//! Arrays by where their memory comes from: new, copied from NumPy, or shared with it.

use super::convert::{context_arg, dtype_arg, numpy_view, shape_arg, view_of_numpy};
use super::error::{IntoPy, invalid, quoted};
use super::ndarray::{PyNDArray, overwrite, read};
use super::runtime;
use crate::kernels::copy::copy;
use crate::ndarray::NDArray;
use numpy::PyUntypedArray;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::any::Any;
use std::sync::Arc;

/// An uninitialised array.
#[pyfunction]
#[pyo3(signature = (shape, ctx=None, dtype=None))]
fn empty(
    py: Python<'_>,
    shape: &Bound<'_, PyAny>,
    ctx: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyNDArray> {
    let dtype = dtype.map_or(Ok(crate::DType::F32), dtype_arg)?;
    let ctx = context_arg(ctx)?;
    let shape = shape_arg(shape)?;
    if let Some(bad) = shape.dims().iter().find(|&&d| d < 0) {
        let got = format!("{bad} in shape {shape}");
        return Err(PyValueError::new_err(invalid("extent", got, "at least 0")));
    }
    NDArray::empty(runtime(), &shape, dtype, ctx).py(py).map(PyNDArray::of)
}

/// A copy of a C-contiguous NumPy array.
#[pyfunction]
#[pyo3(signature = (source, ctx=None))]
fn copy_numpy(
    py: Python<'_>,
    source: &Bound<'_, PyUntypedArray>,
    ctx: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyNDArray> {
    let view = view_of_numpy(source)?;
    let ctx = context_arg(ctx)?;
    let array = NDArray::empty(runtime(), view.shape(), view.dtype(), ctx).py(py)?;
    if ctx.is_host() {
        copy(&view, &array.view().py(py)?);
    } else {
        overwrite(py, &array, &view)?;
    }
    Ok(PyNDArray::of(array))
}

/// An array that shares the memory of a NumPy array.
#[pyfunction]
fn share_numpy(source: &Bound<'_, PyUntypedArray>, writable: bool) -> PyResult<PyNDArray> {
    let view = view_of_numpy(source)?;
    let keep: Arc<dyn Any + Send + Sync> = Arc::new(source.clone().into_any().unbind());
    let ctx = crate::Context::default();
    // SAFETY: the view describes the NumPy array's memory, which `keep` keeps alive.
    let array =
        unsafe { NDArray::external(runtime(), keep, view.ptr(), view.shape(), view.dtype(), ctx) };
    if !writable {
        array.forbid_writing();
    }
    Ok(PyNDArray::of(array))
}

/// A NumPy array over the memory of `array`, after its pending writes (and reads, if writable).
#[pyfunction]
#[pyo3(signature = (array, writable=true))]
fn numpy_over<'py>(array: &Bound<'py, PyNDArray>, writable: bool) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let inner = array.get().array();
    let ctx = inner.context();
    if !ctx.is_host() {
        let expected = "one on the host: copy it with asnumpy or as_in_context";
        return Err(PyValueError::new_err(invalid(
            "device of the array",
            quoted(&ctx.to_string()),
            expected,
        )));
    }
    if writable {
        array.get().wait_to_write(py)?;
    }
    read(py, inner, |_| ())?;
    let view = inner.view().py(py)?;
    inner.lend();
    // SAFETY: the array object is the base and keeps the chunk alive.
    unsafe { numpy_view(&view, array.clone().into_any(), writable) }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(empty, m)?)?;
    m.add_function(wrap_pyfunction!(copy_numpy, m)?)?;
    m.add_function(wrap_pyfunction!(share_numpy, m)?)?;
    m.add_function(wrap_pyfunction!(numpy_over, m)?)
}
