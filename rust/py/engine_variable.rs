//! The class `engine.Variable`.

use super::runtime;
use crate::engine::Var;
use pyo3::prelude::*;

/// A token that orders the operations that name it. Made by `new_variable`.
///
/// When the last reference to it is gone it is deleted, after every function pushed before that
/// names it.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> v = engine.new_variable()
/// >>> engine.push_sync(None, mutate_vars=[v])
/// >>> engine.wait_for_var(v)
/// >>> v.version
/// 1
#[pyclass(frozen, module = "rsnet.engine")]
pub struct Variable(Var);

#[pymethods]
impl Variable {
    /// Completed writes, those of skipped functions included.
    #[getter]
    fn version(&self) -> u64 {
        runtime().engine.version(self.0)
    }

    fn __repr__(&self) -> String {
        format!("<Variable {} version={}>", self.0.number(), self.version())
    }

    /// A variable is an identity: a copy is the variable itself.
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }
}

impl Variable {
    pub fn new(var: Var) -> Self {
        Variable(var)
    }

    pub fn var(&self) -> Var {
        self.0
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        runtime().engine.delete_variable(self.0, None);
    }
}
