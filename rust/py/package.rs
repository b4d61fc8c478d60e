//! Objects of the Python package that the binding uses. `rsnet/__init__` hands them over once, at
//! the end of its import: the binding imports nothing from the package, so its files can move
//! freely.

use super::call_python::CallPython;
use crate::error::ErrorKind;
use crate::operator::{OpReq, RandomKey};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

static PACKAGE: PyOnceLock<Package> = PyOnceLock::new();

/// The objects passed to [`bind_python`]: the values of a mapping, by these keys.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Package {
    /// Exception classes in the order of [`ErrorKind::ALL`], from a dictionary by name.
    #[pyo3(from_py_with = classes)]
    errors: [Py<PyType>; ErrorKind::ALL.len()],
    /// Members of `OpReq` in the order of [`OpReq::ALL`], from the enumeration.
    #[pyo3(from_py_with = members)]
    op_req: [Py<PyAny>; OpReq::ALL.len()],
    make_resources: Py<PyAny>,
    context: Py<PyAny>,
    /// The marker of parameters that are not given.
    null: Py<PyAny>,
    twin: Py<PyAny>,
    detach: Py<PyAny>,
    is_of_a_signal: Py<PyAny>,
    getitem: Py<PyAny>,
    setitem: Py<PyAny>,
    symbol: Py<PyType>,
    create_symbol: Py<PyAny>,
}

/// The package's objects; an error while the package is still being imported.
pub fn package(py: Python<'_>) -> PyResult<&'static Package> {
    let found = PACKAGE.get(py);
    found.ok_or_else(|| PyRuntimeError::new_err("rsnet is not completely imported"))
}

impl Package {
    /// The exception class of a kind of error.
    pub fn error<'py>(&self, py: Python<'py>, kind: ErrorKind) -> &Bound<'py, PyType> {
        self.errors[kind as usize].bind(py)
    }

    /// The member of `OpReq`.
    pub fn op_req<'py>(&self, py: Python<'py>, req: OpReq) -> &Bound<'py, PyAny> {
        self.op_req[req as usize].bind(py)
    }

    /// One resource for each of `requests`; `keep` is called with each array of temporary space.
    pub fn make_resources<'py>(
        &self,
        requests: Vec<(String, usize)>,
        key: RandomKey,
        ctx: Bound<'py, PyAny>,
        keep: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = ctx.py();
        self.make_resources.bind(py).call_python((requests, key.seed, key.stream, ctx, keep))
    }

    /// A new `Context`.
    pub fn context<'py>(
        &self,
        py: Python<'py>,
        device_type: &str,
        device_id: i32,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.context.bind(py).call_python((device_type, device_id))
    }

    /// Returns true if this is the default of parameters that were not given.
    #[inline]
    pub fn is_null(&self, value: &Bound<'_, PyAny>) -> bool {
        value.is(&self.null)
    }

    /// Returns true if it is a `Symbol`.
    pub fn is_symbol(&self, value: &Bound<'_, PyAny>) -> bool {
        value.is_instance(self.symbol.bind(value.py())).unwrap_or(false)
    }

    /// A node as a symbol: operator, hint for its name, inputs by position and by name, parameters,
    /// its name and attributes if given.
    pub fn create_symbol<'py>(
        &self,
        py: Python<'py>,
        node: impl IntoPyObject<'py, Target = PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.create_symbol.bind(py).call_python(node)
    }

    /// Another exception like `value`, to keep while `value` is raised.
    pub fn twin<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.twin.bind(value.py()).call_python((value,))
    }

    /// Takes the frames out of the tracebacks of `value`.
    pub fn detach(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.detach.bind(value.py()).call_python((value,)).map(drop)
    }

    /// Did a signal handler raise `value` on this thread?
    pub fn is_of_a_signal(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.is_of_a_signal.bind(value.py()).call_python((value,))?.is_truthy()
    }

    /// `array[key]` for every kind of key.
    pub fn getitem<'py>(
        &self,
        array: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.getitem.bind(array.py()).call_python((array, key))
    }

    /// `array[key] = value` for every kind of key.
    pub fn setitem<'py>(
        &self,
        array: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        self.setitem.bind(array.py()).call_python((array, key, value)).map(drop)
    }
}

/// The key in `errors` of the class of a kind of error.
fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Value => "ValueError",
        ErrorKind::Type => "TypeError",
        ErrorKind::Index => "IndexError",
        ErrorKind::Key => "KeyError",
        ErrorKind::NotImplemented => "NotImplementedError",
        ErrorKind::Internal => "InternalError",
        ErrorKind::Memory => "MemoryError",
        ErrorKind::Io => "OSError",
        ErrorKind::Parameter | ErrorKind::Interrupted | ErrorKind::Execution => "MXNetError",
    }
}

fn classes(errors: &Bound<'_, PyAny>) -> PyResult<[Py<PyType>; ErrorKind::ALL.len()]> {
    all(ErrorKind::ALL.map(|kind| Ok(errors.get_item(class_name(kind))?.cast_into()?.unbind())))
}

fn members(op_req: &Bound<'_, PyAny>) -> PyResult<[Py<PyAny>; OpReq::ALL.len()]> {
    all(OpReq::ALL.map(|req| op_req.getattr(req.name()).map(Bound::unbind)))
}

/// Hands the objects of the package over. The first call counts; a package that is imported again
/// keeps the objects of the first time.
#[pyfunction]
fn bind_python(py: Python<'_>, objects: Package) {
    let _ = PACKAGE.set(py, objects);
}

/// The values, or the first error.
fn all<T: std::fmt::Debug, const N: usize>(results: [PyResult<T>; N]) -> PyResult<[T; N]> {
    let values = results.into_iter().collect::<PyResult<Vec<T>>>()?;
    values.try_into().map_err(|_| PyRuntimeError::new_err("wrong number of values"))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(bind_python, m)?)
}
