//! Libraries of compiled operators, for Python.

use super::call_python::CallPython;
use super::convert::from_value;
use super::error::{IntoPy, from_py};
use super::introspect::{Asked, Specs, specs};
use super::runtime;
use crate::plugin::{self, ArgDecl, Libraries};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Loads a library. `try_first` is called with the path of a new file before it is opened, and
/// raises if that would end the process. `admit` is called with the name of every new operator, and
/// raises if there cannot be one of that name.
///
/// Returns its operators and all names that it made or changed, both without operators for
/// gradients alone, and these names with them.
#[pyfunction]
fn load_library(
    py: Python<'_>,
    path: PathBuf,
    checked: bool,
    try_first: Py<PyAny>,
    admit: Py<PyAny>,
) -> PyResult<(Vec<String>, Vec<String>, Vec<String>)> {
    let rt = runtime();
    let admit = |name: &str| {
        Python::attach(|py| match admit.bind(py).call_python((name,)) {
            Ok(_) => Ok(()),
            Err(error) => Err(from_py(py, error)),
        })
    };
    let try_first = |path: &Path| {
        Python::attach(|py| match try_first.bind(py).call_python((path,)) {
            Ok(_) => Ok(()),
            Err(error) => Err(from_py(py, error)),
        })
    };
    // Another thread may hold the loader's lock and want the interpreter: wait without it.
    let loaded = py.detach(|| rt.libraries.load(&rt.registry, &path, checked, &try_first, &admit));
    let loaded = loaded.py(py)?;
    Ok((loaded.operators, loaded.called, loaded.names))
}

/// Loads a library in a process that was started to find out whether that ends it, which need not
/// import the module: nothing here wants the interpreter, and there are no built-in operators. What
/// is refused is left to the load that follows.
///
/// # Safety
/// `path` ends with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsnet_try_library(path: *const c_char) {
    // SAFETY: the caller's promise.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    let load = || {
        let (libraries, registry) = Default::default();
        let loaded = Libraries::load(&libraries, &registry, path, false, &|_| Ok(()), &|_| Ok(()));
        // Operators last as long as their process: nothing of them is destroyed.
        std::mem::forget((libraries, registry));
        loaded
    };
    drop(catch_unwind(load));
}

/// The description of an operator from a library: `library` (its path), `inputs` and `outputs` as
/// `(name, count, at least?, optional?)`, `attrs` as `(name, kind, default)` with an empty tuple
/// for a default that is not there, whether it says how it is distributed, and the parameter that
/// counts its inputs. `None` for any other operator.
#[pyfunction]
fn library_operator<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(parts) = runtime().libraries.parts(name) else { return Ok(None) };
    let args = |args: &[ArgDecl]| -> Vec<(String, usize, bool, bool)> {
        let one = |a: &ArgDecl| {
            (a.name.clone(), a.count, a.has(plugin::AT_LEAST), a.has(plugin::OPTIONAL))
        };
        args.iter().map(one).collect()
    };
    let attrs = PyList::empty(py);
    for attr in &parts.op.attrs {
        let default = attr.field.default.as_ref().map(|v| from_value(py, v)).transpose()?;
        let default = PyList::new(py, default)?;
        attrs.append((&attr.field.name, attr.kind, default, &attr.field.doc))?;
    }
    let info = PyDict::new(py);
    info.set_item("library", parts.op.library.path.as_os_str())?;
    info.set_item("inputs", args(&parts.op.inputs))?;
    info.set_item("outputs", args(&parts.op.outputs))?;
    info.set_item("attrs", attrs)?;
    info.set_item("has_signatures", parts.op.has_signatures())?;
    info.set_item("counted_by", parts.op.counted_by())?;
    Ok(Some(info))
}

/// The distribution signatures that an operator from a library adds for arrays of these shapes and
/// dtypes.
#[pyfunction]
fn library_signatures(
    py: Python<'_>,
    name: &str,
    inputs: Specs,
    outputs: Specs,
    params: &Bound<'_, PyDict>,
) -> PyResult<Vec<String>> {
    let Some(parts) = runtime().libraries.parts(name) else { return Ok(Vec::new()) };
    let asked = Asked::new(name, &inputs, params)?;
    let outputs = specs(py, &outputs)?;
    let answer = py.detach(|| plugin::signatures(&parts, &asked.attrs, &asked.inputs, &outputs));
    answer.map_err(|e| e.in_operator(name)).py(py)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(load_library, m)?)?;
    m.add_function(wrap_pyfunction!(library_operator, m)?)?;
    m.add_function(wrap_pyfunction!(library_signatures, m)?)
}
