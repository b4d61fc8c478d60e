//! `_core.CachedGraph`: a symbol that is called like an operator.

use super::call_site::find_call_site;
use super::executor::{MonitorFunction, traverse_states};
use super::ndarray::PyNDArray;
use super::profiler::api;
use super::runtime;
use super::symbol::{PySymbol, raise};
use super::thread_state::thread_state;
use crate::executor::autograd::Tracked;
use crate::executor::cached::CachedGraph;
use crate::executor::call_site::{self, CallSite};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::sync::Arc;

/// A symbol that is called like an operator.
#[pyclass(frozen, name = "CachedGraph", module = "rsnet._core")]
pub struct PyCachedGraph {
    graph: Arc<CachedGraph>,
    monitor: MonitorFunction,
}

#[pymethods]
impl PyCachedGraph {
    #[new]
    fn new(
        name: &str,
        symbol: &PySymbol,
        parameters: Vec<String>,
        memory_limit: Option<usize>,
    ) -> PyResult<Self> {
        let symbol = symbol.symbol.clone();
        let graph = CachedGraph::new(runtime(), name, symbol, &parameters, memory_limit);
        Ok(PyCachedGraph { graph: graph.map_err(raise)?, monitor: MonitorFunction::default() })
    }

    /// The outputs for arrays in the order of the symbol's inputs.
    fn __call__(&self, inputs: Vec<PyRef<'_, PyNDArray>>) -> PyResult<Vec<PyNDArray>> {
        let _called = api("CachedGraph");
        let inputs: Vec<&Tracked> = inputs.iter().map(|array| array.tracked()).collect();
        let state = thread_state();
        let site = CallSite::Known(find_call_site());
        let run = || self.graph.call(&inputs, state.training, state.recording);
        let outputs = call_site::with(site, run).map_err(raise)?;
        Ok(outputs.into_iter().map(PyNDArray::from).collect())
    }

    fn set_monitor(&self, callback: Option<Py<PyAny>>, all: bool) {
        self.monitor.set(callback, |monitor| self.graph.set_monitor(monitor, all));
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.monitor.traverse(&visit)?;
        traverse_states(&visit, |f| self.graph.visit_own_states(f))
    }

    /// (States go with the executors, once the objects that refer to this are cleared.)
    fn __clear__(&self) {
        self.monitor.clear();
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyCachedGraph>()
}
