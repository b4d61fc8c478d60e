//! CUDA functions that a program compiles by itself: what `rsnet.rtc` asks of the core.

use super::error::{IntoPy, invalid};
use super::ndarray::PyNDArray;
use super::runtime;
use crate::context::Context;
use crate::cuda::Function;
use crate::executor::launch::{Argument, Launch};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// An array and whether the function only reads it, or the bytes of a number.
#[derive(FromPyObject)]
enum PyArgument<'py> {
    Array((PyRef<'py, PyNDArray>, bool)),
    Number(Vec<u8>),
}

impl PyArgument<'_> {
    fn argument(&self) -> PyResult<Argument> {
        match self {
            PyArgument::Array((array, true)) => Ok(Argument::Read(array.array().clone())),
            PyArgument::Array((array, false)) => Ok(Argument::Written(array.array().clone())),
            PyArgument::Number(bytes) => {
                let mut number = [0; 8];
                let Some(place) = number.get_mut(..bytes.len()) else {
                    let text = invalid("number of bytes", bytes.len(), "at most 8");
                    return Err(PyValueError::new_err(text));
                };
                place.copy_from_slice(bytes);
                Ok(Argument::Number(number))
            }
        }
    }
}

/// The function of a handle that the loader has returned.
fn function(handle: usize, name: &str) -> Function {
    // SAFETY: the loader keeps what it has loaded for the life of the process.
    unsafe { Function::new(handle, name.to_owned()) }
}

/// An error unless a loaded function has parameters of these sizes.
#[pyfunction]
fn cuda_check_parameters(
    py: Python<'_>,
    device: i32,
    handle: usize,
    name: &str,
    sizes: Vec<usize>,
) -> PyResult<()> {
    let device = runtime().cuda.device(device).py(py)?;
    device.issue(|driver, _| function(handle, name).check_parameters(driver, &sizes)).py(py)
}

/// Launches a loaded function on arrays of a device and numbers.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the arguments of a Python function")]
fn cuda_launch(
    py: Python<'_>,
    device: i32,
    handle: usize,
    name: &str,
    arguments: Vec<PyArgument<'_>>,
    blocks: [u32; 3],
    threads: [u32; 3],
    shared: u32,
) -> PyResult<()> {
    let arguments = arguments.iter().map(PyArgument::argument).collect::<PyResult<_>>()?;
    let (function, name) = (function(handle, name), name.into());
    let launch = Launch { name, function, arguments, blocks, threads, shared };
    // SAFETY: `rsnet.rtc` has checked the signature; a kernel that leaves its arrays is a fault of
    // the device, or damages other arrays there, as in any program of CUDA.
    unsafe { launch.push(runtime(), Context::gpu(device)) }.py(py)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(cuda_check_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(cuda_launch, m)?)
}
