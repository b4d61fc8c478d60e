//! `_core.ExecutorHandle`, and plans without an executor.

use super::convert::{context_arg, shape_to_py};
use super::error::from_py;
use super::ndarray::PyNDArray;
use super::runtime;
use super::symbol::{PySymbol, raise};
use crate::executor::bind::{Binding, Executor, Monitor};
use crate::ndarray::NDArray;
use crate::operator::OpReq;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::collections::HashMap;
use std::sync::Arc;

/// An executor of the core.
#[pyclass(frozen, name = "ExecutorHandle", module = "rsnet._core")]
pub struct PyExecutor {
    executor: Arc<Executor>,
}

fn requests(names: &[String]) -> PyResult<Vec<OpReq>> {
    let find = |n: &String| {
        OpReq::from_name(n).ok_or_else(|| PyValueError::new_err(format!("unknown request '{n}'")))
    };
    names.iter().map(find).collect()
}

fn groups(group2ctx: Option<&Bound<'_, PyDict>>) -> PyResult<HashMap<String, crate::Context>> {
    let mut found = HashMap::new();
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
        arrays.into_iter().map(|a| PyNDArray::wrap(py, a)).collect::<PyResult<_>>()?;
    PyList::new(py, wrapped)
}

#[pymethods]
impl PyExecutor {
    #[staticmethod]
    #[allow(clippy::too_many_arguments)] // one place calls it, by position
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
            memory_limit,
        };
        let executor = Executor::bind(runtime(), binding).map_err(raise)?;
        Ok(PyExecutor { executor })
    }

    fn forward<'py>(
        &self,
        py: Python<'py>,
        is_train: bool,
        indices: Vec<usize>,
        values: Vec<PyRef<'_, PyNDArray>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let inputs: Vec<_> = indices.into_iter().zip(arrays(values)).collect();
        let outputs = self.executor.forward(is_train, &inputs).map_err(raise)?;
        listed(py, outputs)
    }

    fn backward(
        &self,
        is_train: bool,
        head_grads: Vec<Option<PyRef<'_, PyNDArray>>>,
    ) -> PyResult<()> {
        self.executor.backward(is_train, &optional(head_grads)).map_err(raise)
    }

    fn partial_forward(&self, is_train: bool, step: usize) -> PyResult<usize> {
        self.executor.partial_forward(is_train, step).map_err(raise)
    }

    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        listed(py, self.executor.outputs())
    }

    fn set_monitor(&self, callback: Option<Py<PyAny>>, all: bool) {
        let monitor = callback.map(|callback| -> Monitor {
            Arc::new(move |name: &str, array: NDArray| {
                Python::attach(|py| {
                    let array = PyNDArray::wrap(py, array)?;
                    callback.call1(py, (name, array)).map(drop)
                })
                .map_err(|e| Python::attach(|py| from_py(py, e)))
            })
        });
        self.executor.set_monitor(monitor, all);
    }

    fn memory_plan(&self) -> PyPlan {
        PyPlan { plan: self.executor.plan().clone() }
    }

    fn debug_str(&self) -> String {
        self.executor.plan().debug_str()
    }

    fn optimized_symbol(&self) -> PyResult<PySymbol> {
        Ok(self.executor.plan().forward_symbol().map_err(raise)?.into())
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyExecutor>()?;
    m.add_class::<PyPlan>()
}
