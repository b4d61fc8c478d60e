//! What `rsnet.cuda` asks of the core: devices, their memory, and operators without kernels.

use super::error::{IntoPy, from_py};
use super::runtime;
use crate::error::{Error, Result};
use crate::operator::Body;
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::collections::BTreeMap;
use std::ffi::CString;

/// Warns that an operator runs on the host for arrays on a device.
pub fn warn_of_host(operator: &str) -> Result<()> {
    let text = format!(
        "operator '{operator}' has no CUDA kernel for this call: it runs on the host, through \
         copies of its arrays (rsnet.cuda.operators_on_host() lists all such operators)"
    );
    let text = CString::new(text).unwrap_or_default();
    Python::attach(|py| {
        let category = py.get_type::<PyRuntimeWarning>();
        PyErr::warn(py, &category, &text, 1).map_err(|e| from_py(py, e))
    })
}

/// What compiles and loads functions, `rsnet.cuda._loader.load`, and what finds libraries,
/// `rsnet.cuda._loader.library`.
static LOADER: PyOnceLock<[Py<PyAny>; 2]> = PyOnceLock::new();

/// Sets what compiles and loads functions, and what finds libraries, once.
#[pyfunction]
fn cuda_bind_loader(py: Python<'_>, loader: Py<PyAny>, finder: Py<PyAny>) {
    let _ = LOADER.set(py, [loader, finder]);
}

/// The path of a library of CUDA; see [`crate::cuda::Finder`].
pub fn find_library(name: &str) -> Result<Option<String>> {
    Python::attach(|py| {
        let Some([_, finder]) = LOADER.get(py) else { return Ok(None) };
        let found = finder.call1(py, (name,));
        found.and_then(|found| found.extract(py)).map_err(|e| from_py(py, e))
    })
}

/// Loads a function for a device; see [`crate::cuda::Loader`].
pub fn load(device: i32, source: &str, definitions: &str, function: &str) -> Result<usize> {
    Python::attach(|py| {
        let Some([loader, _]) = LOADER.get(py) else {
            return Err(Error::internal("rsnet.cuda has no loader of functions"));
        };
        let handle = loader.call1(py, (device, source, definitions, function));
        let handle = handle.and_then(|handle| handle.extract::<usize>(py));
        handle.map_err(|e| from_py(py, e))
    })
}

/// Every function of CUDA source that an operator may launch: (source file, text that follows it,
/// function with template arguments), sorted, each once.
#[pyfunction]
fn cuda_functions() -> Vec<(&'static str, String, String)> {
    let mut all = BTreeMap::new();
    for op in runtime().registry.all() {
        for kernel in &op.kernels {
            let Body::Device(kernel) = &kernel.body else { continue };
            for f in kernel.all_functions() {
                all.entry((f.source, f.expression)).or_insert_with(|| f.definitions.to_owned());
            }
        }
    }
    all.into_iter().map(|((source, function), text)| (source, text, function)).collect()
}

/// Number of devices; an error if there is no driver.
#[pyfunction]
fn cuda_device_count(py: Python<'_>) -> PyResult<i32> {
    runtime().cuda.count().py(py)
}

/// Name, stream, free and total bytes of a device, and the driver's version.
#[pyfunction]
fn cuda_device(py: Python<'_>, id: i32) -> PyResult<(String, usize, usize, usize, i32)> {
    let device = runtime().cuda.device(id).py(py)?;
    let (free, total) = device.memory_info().py(py)?;
    let version = runtime().cuda.driver_version().unwrap_or_default();
    Ok((device.name().to_owned(), device.stream(), free, total, version))
}

/// Operators that have run on the host for arrays on a device.
#[pyfunction]
fn cuda_operators_on_host() -> Vec<String> {
    runtime().cuda.operators_on_host()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(cuda_device_count, m)?)?;
    m.add_function(wrap_pyfunction!(cuda_device, m)?)?;
    m.add_function(wrap_pyfunction!(cuda_bind_loader, m)?)?;
    m.add_function(wrap_pyfunction!(cuda_functions, m)?)?;
    m.add_function(wrap_pyfunction!(cuda_operators_on_host, m)?)
}
