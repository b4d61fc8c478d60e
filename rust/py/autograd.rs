//! Thread state (recording, training, default context) and the tape's functions for Python.

use super::convert::{context_arg, context_to_py};
use super::error::{IntoPy, from_py};
use super::ndarray::PyNDArray;
use super::runtime;
use crate::context::Context;
use crate::executor::autograd::{self, Backward, Seen, TapeFunction, Tracked};
use crate::ndarray::NDArray;
use crate::operator::OpReq;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::cell::Cell;
use std::sync::Arc;

/// What a thread's calls take from their surroundings. Threads start with the default.
#[derive(Clone, Copy, Default, Debug)]
pub struct ThreadState {
    pub recording: bool,
    pub training: bool,
    pub ctx: Context,
}

thread_local! {
    static STATE: Cell<ThreadState> = const {
        Cell::new(ThreadState { recording: false, training: false, ctx: Context::cpu(0) })
    };
}

#[inline]
pub fn thread_state() -> ThreadState {
    STATE.get()
}

/// Sets the thread's state and returns what it was. Callbacks start fresh: not recording, training as
/// pushed, default context.
pub fn replace_thread_state(state: ThreadState) -> ThreadState {
    STATE.replace(state)
}

#[pyfunction]
fn set_recording(on: bool) -> bool {
    let before = thread_state();
    STATE.set(ThreadState { recording: on, ..before });
    before.recording
}

#[pyfunction]
fn set_training(on: bool) -> bool {
    let before = thread_state();
    STATE.set(ThreadState { training: on, ..before });
    before.training
}

#[pyfunction]
fn is_recording() -> bool {
    thread_state().recording
}

#[pyfunction]
fn is_training() -> bool {
    thread_state().training
}

/// Sets the thread's default context; returns the one before.
#[pyfunction]
fn set_current_context<'py>(ctx: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let before = thread_state();
    let wanted = context_arg(Some(ctx))?;
    STATE.set(ThreadState { ctx: wanted, ..before });
    context_to_py(ctx.py(), before.ctx)
}

#[pyfunction]
fn current_context(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    context_to_py(py, thread_state().ctx)
}

fn request(text: &str) -> PyResult<OpReq> {
    match OpReq::from_name(text) {
        Some(req) if req != OpReq::Inplace => Ok(req),
        _ => Err(PyValueError::new_err(format!(
            "grad_req is '{text}', expected 'write', 'add' or 'null'"
        ))),
    }
}

#[pyfunction]
fn mark_variable(
    variable: &Bound<'_, PyNDArray>,
    grad: &Bound<'_, PyNDArray>,
    req: &str,
) -> PyResult<()> {
    variable.get().tracked.mark(grad.get().tracked.array.clone(), request(req)?);
    Ok(())
}

/// Sets thread state for the time of a backward pass.
struct During(ThreadState);

impl During {
    fn backward(how: Backward) -> Self {
        let before = thread_state();
        STATE.set(ThreadState { recording: how.create_graph, training: how.is_train, ..before });
        During(before)
    }
}

impl Drop for During {
    fn drop(&mut self) {
        STATE.set(self.0);
    }
}

type Arrays<'py> = Vec<Bound<'py, PyNDArray>>;

fn head_grads<'a>(grads: &'a [Option<Bound<'_, PyNDArray>>]) -> Vec<Option<&'a Tracked>> {
    grads.iter().map(|g| g.as_ref().map(|g| &g.get().tracked)).collect()
}

#[pyfunction]
fn backward(
    py: Python<'_>,
    heads: Arrays<'_>,
    grads: Vec<Option<Bound<'_, PyNDArray>>>,
    retain_graph: bool,
    is_train: bool,
) -> PyResult<()> {
    let how = Backward { retain_graph, create_graph: false, is_train };
    let _during = During::backward(how);
    let heads: Vec<&Tracked> = heads.iter().map(|h| &h.get().tracked).collect();
    autograd::backward(runtime(), &heads, &head_grads(&grads), how).py(py)
}

#[pyfunction]
fn grad(
    py: Python<'_>,
    heads: Arrays<'_>,
    grads: Vec<Option<Bound<'_, PyNDArray>>>,
    variables: Arrays<'_>,
    retain_graph: bool,
    create_graph: bool,
    is_train: bool,
) -> PyResult<Vec<PyNDArray>> {
    let how = Backward { retain_graph, create_graph, is_train };
    let _during = During::backward(how);
    let heads: Vec<&Tracked> = heads.iter().map(|h| &h.get().tracked).collect();
    let variables: Vec<&Tracked> = variables.iter().map(|v| &v.get().tracked).collect();
    let found = autograd::grad(runtime(), &heads, &head_grads(&grads), &variables, how).py(py)?;
    Ok(found.into_iter().map(|tracked| PyNDArray { tracked }).collect())
}

/// The `backward` of a Python `autograd.Function`.
struct PyFunction(Py<PyAny>);

impl TapeFunction for PyFunction {
    fn backward(&self, out_grads: &[NDArray], _: bool) -> crate::error::Result<Vec<NDArray>> {
        Python::attach(|py| {
            let grads = out_grads.iter().map(|g| PyNDArray::of(g.clone()));
            let args =
                PyTuple::new(py, grads.map(|g| Bound::new(py, g)).collect::<PyResult<Vec<_>>>()?)?;
            let result = self.0.bind(py).call1(args)?;
            let result = match result.cast::<PyNDArray>() {
                Ok(one) => vec![one.clone()],
                Err(_) => result.extract::<Arrays<'_>>().map_err(|_| {
                    PyTypeError::new_err("backward must return NDArrays, one for each input")
                })?,
            };
            Ok(result.iter().map(|a| a.get().tracked.array.clone()).collect())
        })
        .map_err(|e| Python::attach(|py| from_py(py, e)))
    }
}

/// Records a call whose gradient is the Python function `backward`.
#[pyfunction]
fn record_function(backward: Py<PyAny>, inputs: Arrays<'_>, outputs: Arrays<'_>) {
    let inputs: Vec<&Tracked> = inputs.iter().map(|a| &a.get().tracked).collect();
    let outputs: Vec<&Tracked> = outputs.iter().map(|a| &a.get().tracked).collect();
    autograd::record_function(Arc::new(PyFunction(backward)), &inputs, &outputs);
}

/// One node of the recorded history: its number, output index, operator (None for a leaf), parameters and
/// inputs, each a node or None.
#[pyfunction]
fn history<'py>(py: Python<'py>, array: &Bound<'py, PyNDArray>) -> PyResult<Bound<'py, PyAny>> {
    let Some(entry) = array.get().tracked.entry() else {
        return Ok(py.None().into_bound(py));
    };
    describe(py, &entry, &mut Default::default())
}

fn describe<'py>(
    py: Python<'py>,
    entry: &autograd::Entry,
    seen: &mut std::collections::HashMap<u64, Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let node = match seen.get(&entry.seq()) {
        Some(known) => known.bind(py).clone(),
        None => {
            let node = match entry.visit(|s| match s {
                Seen::Leaf => None,
                Seen::Call { op, attrs, inputs } => {
                    Some((op.name.clone(), attrs.given().to_vec(), inputs))
                }
                Seen::Opaque => Some(("".to_owned(), Vec::new(), Vec::new())),
            }) {
                None => (entry.seq(), py.None(), py.None(), py.None()).into_pyobject(py)?,
                Some((op, given, inputs)) => {
                    let params: Vec<(String, String)> =
                        given.into_iter().map(|(k, v)| (k, v.to_string())).collect();
                    let items = PyList::empty(py);
                    for input in inputs {
                        match input {
                            Some(e) => items.append(describe(py, &e, seen)?)?,
                            None => items.append(py.None())?,
                        }
                    }
                    let params = params.into_pyobject(py)?.unbind();
                    let op = op.into_pyobject(py)?.unbind().into_any();
                    (entry.seq(), op, params, items.into_any().unbind()).into_pyobject(py)?
                }
            };
            seen.insert(entry.seq(), node.clone().into_any().unbind());
            node.into_any()
        }
    };
    Ok((node, entry.index).into_pyobject(py)?.into_any())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident),*) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)* };
    }
    add!(
        set_recording,
        set_training,
        is_recording,
        is_training,
        set_current_context,
        current_context,
        mark_variable,
        backward,
        grad,
        record_function,
        history
    );
    Ok(())
}
