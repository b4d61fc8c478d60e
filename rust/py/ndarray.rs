//! The class `NDArray`, and what every use of its bytes goes through; its methods are in
//! `array_methods.rs`.

use super::error::{IntoPy, invalid, poll_signals, shown};
use super::profiler::api;
use super::runtime;
use crate::executor::autograd::Tracked;
use crate::kernels::copy::copy;
use crate::ndarray::NDArray;
use crate::{Context, DType, Shape};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::OnceLock;

/// An array on a device; operations on it are asynchronous.
///
/// Arrays are made by functions such as `nd.array` and `nd.zeros`. Methods return before the result
/// is computed; `asnumpy`, `asscalar` and `wait_to_read` wait for it. Methods named like a function
/// of `nd` have its parameters, the array in the place of the first.
#[pyclass(name = "NDArray", module = "rsnet.ndarray", frozen, subclass)]
pub struct PyNDArray {
    made: Tracked,
    /// The array of an object that was made empty and got its state later, as unpickling does.
    restored: OnceLock<Box<Tracked>>,
}

impl From<Tracked> for PyNDArray {
    fn from(made: Tracked) -> Self {
        PyNDArray { made, restored: OnceLock::new() }
    }
}

impl PyNDArray {
    pub fn of(array: NDArray) -> Self {
        Tracked::new(array).into()
    }

    #[inline]
    pub fn tracked(&self) -> &Tracked {
        self.restored.get().map_or(&self.made, |restored| restored)
    }

    pub fn array(&self) -> &NDArray {
        &self.tracked().array
    }

    /// Makes this object a handle of `array`; false if that was done before.
    pub fn restore(&self, array: &NDArray) -> bool {
        self.restored.set(Box::new(Tracked::new(array.clone()))).is_ok()
    }
}

/// An array that is nothing until it is restored; `handle` must not be given.
pub fn nothing(
    py: Python<'_>,
    handle: Option<&Bound<'_, PyAny>>,
    writable: bool,
) -> PyResult<PyNDArray> {
    if let Some(handle) = handle {
        let expected = "None: functions such as nd.array make arrays";
        return Err(PyTypeError::new_err(invalid("handle", shown(handle), expected)));
    }
    let array = NDArray::empty(runtime(), &Shape::new(&[0]), DType::F32, Context::default());
    let array = array.py(py)?;
    if !writable {
        array.forbid_writing();
    }
    Ok(PyNDArray::of(array))
}

/// Waits for pending writes, detached from the interpreter.
pub fn wait_to_read(py: Python<'_>, array: &NDArray) -> PyResult<()> {
    let _called = api("wait_to_read");
    py.detach(|| array.wait_to_read(&mut poll_signals)).py(py)
}

/// Calls `f` with the bytes of `array` once they are computed; an error if they never were.
pub fn read<R>(
    py: Python<'_>,
    array: &NDArray,
    f: impl FnOnce(&crate::tensor::View) -> R,
) -> PyResult<R> {
    if !array.context().is_host() {
        let _called = api("wait_to_read");
        let copied = py.detach(|| array.copied_to_host(&mut poll_signals)).py(py)?;
        if let Some(copied) = copied {
            return Ok(f(copied.view()));
        }
    }
    if array.needs_wait() {
        wait_to_read(py, array)?;
    }
    // The wait is over: what remains does not block.
    array.read(&mut poll_signals, f).py(py)
}

/// Waits until nothing uses the array, then copies `source`, of equal size, into it.
pub fn overwrite(py: Python<'_>, array: &NDArray, source: &crate::tensor::View) -> PyResult<()> {
    let run = || {
        array.overwrite(&mut poll_signals, |target| {
            copy(source, target);
            Ok(())
        })
    };
    // A short copy on the host is not worth letting go of the interpreter.
    if array.context().is_host() { run().py(py) } else { py.detach(run).py(py) }
}
