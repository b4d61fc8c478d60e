//! What a Python operator learns of its call: `ctx`, with the resources that it asked for.

use super::convert::context_to_py;
use super::error::to_py;
use super::ndarray::PyNDArray;
use super::package::package;
use crate::error::Error;
use crate::lock::Lock;
use crate::ndarray::NDArray;
use crate::operator::OpContext;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

/// The circumstances of a call as Python sees them.
#[pyclass(frozen, name = "OpContext", module = "rsnet._core")]
pub struct PyOpContext {
    ctx: OpContext,
    requested: PyOnceLock<Py<PyAny>>,
    space: PyOnceLock<Py<PySpace>>,
}

impl PyOpContext {
    pub fn new(ctx: OpContext) -> Self {
        PyOpContext { ctx, requested: PyOnceLock::new(), space: PyOnceLock::new() }
    }

    /// Ends the use of temporary space; returns what was used.
    pub fn end(&self, py: Python<'_>) -> Vec<NDArray> {
        let space = self.space.get(py).and_then(|space| space.get().arrays.lock().take());
        space.unwrap_or_default()
    }
}

/// The temporary space of a call.
#[pyclass(frozen, name = "Space", module = "rsnet._core")]
pub struct PySpace {
    /// `None` once the call has ended.
    arrays: Lock<Option<Vec<NDArray>>>,
}

#[pymethods]
impl PySpace {
    /// Adds an array, which may be used until the operator's function returns.
    fn __call__(&self, py: Python<'_>, array: &PyNDArray) -> PyResult<()> {
        match &mut *self.arrays.lock() {
            Some(arrays) => arrays.push(array.tracked().array.clone()),
            None => {
                let text =
                    "temporary space is there for the time of a call, and this one has ended";
                return Err(to_py(py, &Error::value(text)));
            }
        }
        Ok(())
    }
}

#[pymethods]
impl PyOpContext {
    #[getter]
    fn is_train(&self) -> bool {
        self.ctx.is_train
    }

    #[getter]
    fn need_grad(&self) -> bool {
        self.ctx.need_grad
    }

    /// The device, and the state that exists only during a run: this context itself.
    #[getter]
    fn run_ctx(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[getter]
    fn ctx<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        context_to_py(py, self.ctx.device)
    }

    #[getter]
    fn stream(&self) -> Option<usize> {
        self.ctx.stream
    }

    /// The resources the operator asked for, in order or by kind.
    #[getter]
    fn requested<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.requested.get(py) {
            Some(resources) => Ok(resources.bind(py).clone()),
            None => Ok(PyList::empty(py).into_any()),
        }
    }

    /// Makes the requested resources: their kinds, with the bytes that were planned for each.
    fn request(&self, py: Python<'_>, requests: Vec<(String, usize)>) -> PyResult<()> {
        let space = Bound::new(py, PySpace { arrays: Lock::new(Some(Vec::new())) })?;
        let _ = self.space.set(py, space.clone().unbind());
        let (key, ctx) = (self.ctx.random, self.ctx(py)?);
        let made = package(py)?.make_resources(requests, key, ctx, space.into_any())?;
        let _ = self.requested.set(py, made.unbind());
        Ok(())
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyOpContext>()?;
    m.add_class::<PySpace>()
}
