//! `_core.ExecutorHandle`, and plans without an executor.

use super::call_python::CallPython;
use super::call_site::find_call_site;
use super::convert::{context_arg, shape_to_py};
use super::error::{IntoPy, from_py, invalid, quoted};
use super::ndarray::PyNDArray;
use super::payload::PyState;
use super::profiler::api;
use super::runtime;
use super::symbol::{PySymbol, raise};
use crate::executor::bind::{Binding, Executor, Monitor};
use crate::executor::call_site::{self, CallSite};
use crate::graph::{Graph, Plan, PlannedEntry};
use crate::lock::Lock;
use crate::ndarray::NDArray;
use crate::operator::{OpReq, OpState};
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An executor of the core.
#[pyclass(frozen, name = "ExecutorHandle", module = "rsnet._core")]
pub struct PyExecutor {
    executor: Arc<Executor>,
    /// The function that the executor's monitor calls: here Python's garbage collector sees it.
    monitor: MonitorFunction,
}

/// A Python function that a monitor of the core calls with names and arrays.
#[derive(Default)]
pub(super) struct MonitorFunction(Arc<Lock<Option<Py<PyAny>>>>);

impl MonitorFunction {
    /// A monitor that calls the function, if there is one then.
    fn monitor(&self) -> Monitor {
        let function = self.0.clone();
        Arc::new(move |name: &str, array: NDArray| {
            Python::attach(|py| {
                let function = function.lock().as_ref().map(|f| f.clone_ref(py));
                let Some(function) = function else { return Ok(()) };
                let array = Py::new(py, PyNDArray::of(array))?;
                function.bind(py).call_python((name, array)).map(drop)
            })
            .map_err(|e| Python::attach(|py| from_py(py, e)))
        })
    }

    /// Sets the function, and hands its monitor to `install`.
    pub fn set(&self, function: Option<Py<PyAny>>, install: impl FnOnce(Option<Monitor>)) {
        let monitor = function.is_some().then(|| self.monitor());
        let before = self.replace(function);
        install(monitor);
        drop(before);
    }

    pub fn clear(&self) {
        drop(self.replace(None));
    }

    /// Returns the function before, which the caller drops without a lock.
    fn replace(&self, function: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
        std::mem::replace(&mut *self.0.lock(), function)
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.0.try_lock() {
            Some(function) => visit.call(&*function),
            None => Ok(()),
        }
    }
}

/// Shows the states of Python operators to the garbage collector; `each` calls what it is given
/// with every state.
pub(super) fn traverse_states(
    visit: &PyVisit<'_>,
    each: impl FnOnce(&mut dyn FnMut(&OpState)),
) -> Result<(), PyTraverseError> {
    let mut result = Ok(());
    each(&mut |state| {
        if let (Ok(()), Some(state)) = (&result, state.downcast_ref::<PyState>()) {
            result = visit.call(&state.0);
        }
    });
    result
}

pub(super) fn requests(names: &[String]) -> PyResult<Vec<OpReq>> {
    let expected = "one of: null, write, inplace, add";
    let fail = |n: &String| PyValueError::new_err(invalid("request", quoted(n), expected));
    let find = |n: &String| OpReq::from_name(n).ok_or_else(|| fail(n));
    names.iter().map(find).collect()
}

pub(super) fn groups(
    group2ctx: Option<&Bound<'_, PyDict>>,
) -> PyResult<BTreeMap<String, crate::Context>> {
    let mut found = BTreeMap::new();
    for (group, ctx) in group2ctx.into_iter().flat_map(|d| d.iter()) {
        found.insert(group.extract()?, context_arg(Some(&ctx))?);
    }
    Ok(found)
}

fn arrays(list: Vec<PyRef<'_, PyNDArray>>) -> Vec<NDArray> {
    list.iter().map(|a| a.array().clone()).collect()
}

fn optional(list: Vec<Option<PyRef<'_, PyNDArray>>>) -> Vec<Option<NDArray>> {
    list.iter().map(|a| a.as_ref().map(|a| a.array().clone())).collect()
}

fn listed<'py>(py: Python<'py>, arrays: Vec<NDArray>) -> PyResult<Bound<'py, PyList>> {
    let wrapped: Vec<_> =
        arrays.into_iter().map(|a| Py::new(py, PyNDArray::of(a))).collect::<PyResult<_>>()?;
    PyList::new(py, wrapped)
}

impl PyExecutor {
    /// Runs `f` for the user's line.
    fn run<R>(
        &self,
        name: &str,
        f: impl FnOnce(&Executor) -> crate::error::Result<R>,
    ) -> PyResult<R> {
        let _called = api(name);
        call_site::with(CallSite::First(find_call_site), || f(&self.executor)).map_err(raise)
    }
}

#[pymethods]
impl PyExecutor {
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the arguments of a Python function")]
    fn bind(
        symbol: &PySymbol,
        ctx: &Bound<'_, PyAny>,
        group2ctx: Option<&Bound<'_, PyDict>>,
        args: Vec<PyRef<'_, PyNDArray>>,
        grads: Vec<Option<PyRef<'_, PyNDArray>>>,
        reqs: Vec<String>,
        aux: Vec<PyRef<'_, PyNDArray>>,
        shared: Option<PyRef<'_, PyExecutor>>,
        memory_limit: Option<usize>,
    ) -> PyResult<Self> {
        let binding = Binding {
            symbol: symbol.symbol.clone(),
            ctx: context_arg(Some(ctx))?,
            group2ctx: groups(group2ctx)?,
            args: arrays(args),
            grads: optional(grads),
            reqs: requests(&reqs)?,
            aux: arrays(aux),
            shared: shared.map(|s| s.executor.clone()),
            lends_outputs: false,
            memory_limit,
        };
        let executor = Executor::bind(runtime(), binding).map_err(raise)?;
        Ok(PyExecutor { executor, monitor: MonitorFunction::default() })
    }

    #[pyo3(signature = (is_train, indices=None, values=None))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        is_train: bool,
        indices: Option<Vec<usize>>,
        values: Option<Vec<PyRef<'_, PyNDArray>>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let indices = indices.unwrap_or_default();
        let inputs: Vec<_> = indices.into_iter().zip(arrays(values.unwrap_or_default())).collect();
        let outputs = self.run("forward", |e| e.forward(is_train, &inputs))?;
        listed(py, outputs)
    }

    #[pyo3(signature = (is_train, head_grads=None))]
    fn backward(
        &self,
        is_train: bool,
        head_grads: Option<Vec<Option<PyRef<'_, PyNDArray>>>>,
    ) -> PyResult<()> {
        let head_grads = optional(head_grads.unwrap_or_default());
        self.run("backward", |e| e.backward(is_train, &head_grads))
    }

    fn partial_forward(&self, is_train: bool, step: usize) -> PyResult<usize> {
        self.run("partial_forward", |e| e.partial_forward(is_train, step))
    }

    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        listed(py, self.executor.outputs().py(py)?)
    }

    fn set_monitor(&self, callback: Option<Py<PyAny>>, all: bool) {
        self.monitor.set(callback, |monitor| self.executor.set_monitor(monitor, all));
    }

    /// Shows the monitor's function and the states of Python operators to the garbage collector.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.monitor.traverse(&visit)?;
        if Arc::strong_count(&self.executor) > 1 {
            return Ok(()); // another executor shares its memory and keeps it
        }
        traverse_states(&visit, |f| self.executor.visit_own_states(f))
    }

    /// (The states are freed with the executor, once the objects that refer to it are cleared.)
    fn __clear__(&self) {
        self.monitor.clear();
    }

    fn memory_plan(&self) -> PyPlan {
        PyPlan::new(self.executor.plan().clone())
    }

    fn debug_str(&self) -> PyResult<String> {
        self.executor.debug_str().map_err(raise)
    }

    fn optimized_symbol(&self) -> PyResult<PySymbol> {
        let graph = &self.executor.plan().graph;
        let forward = Graph::new(
            graph.nodes[..graph.num_forward].to_vec(),
            graph.heads.clone(),
            graph.num_forward,
        );
        Ok(forward.to_symbol(&super::runtime().registry).map_err(raise)?.into())
    }
}

/// A memory plan as data.
#[pyclass(frozen, name = "PlanHandle", module = "rsnet._core")]
pub struct PyPlan {
    plan: Arc<Plan>,
}

impl PyPlan {
    pub fn new(plan: Arc<Plan>) -> Self {
        PyPlan { plan }
    }
}

fn planned_entry<'py>(py: Python<'py>, entry: &PlannedEntry) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("name", &entry.name)?;
    found.set_item("shape", shape_to_py(py, &entry.shape)?)?;
    found.set_item("dtype", entry.dtype.name())?;
    found.set_item("bytes", entry.bytes)?;
    found.set_item("offset", entry.offset)?;
    found.set_item("first_use", entry.first_use)?;
    found.set_item("last_use", entry.last_use)?;
    found.set_item("inplace_of", &entry.inplace_of)?;
    found.set_item("req", entry.req.name())?;
    found.set_item("internal", entry.internal)?;
    found.set_item("output", entry.output)?;
    found.set_item("ctx", entry.ctx.to_string())?;
    Ok(found)
}

#[pymethods]
impl PyPlan {
    #[getter]
    fn arena_bytes(&self) -> usize {
        self.plan.total_arena_bytes()
    }

    #[getter]
    fn output_bytes(&self) -> usize {
        self.plan.output_bytes()
    }

    #[getter]
    fn temp_bytes(&self) -> usize {
        self.plan.temp_bytes
    }

    #[getter]
    fn lower_bound_bytes(&self) -> usize {
        self.plan.lower_bound_bytes
    }

    #[getter]
    fn no_sharing_bytes(&self) -> usize {
        self.plan.no_sharing_bytes
    }

    #[getter]
    fn recomputed_nodes(&self) -> usize {
        self.plan.recomputed_nodes
    }

    /// The fields of every entry, in execution order.
    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.plan.entries().iter().map(|entry| planned_entry(py, entry)).collect()
    }

    /// Number of positions, from the first, that belong to the forward pass.
    #[getter]
    fn num_forward(&self) -> usize {
        self.plan.graph.num_forward
    }

    /// Name of every pass that changes the graph, with the graph after it; empty unless asked for.
    fn dumps(&self) -> Vec<(String, String)> {
        self.plan.dumps.clone()
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyExecutor>()?;
    m.add_class::<PyPlan>()
}
