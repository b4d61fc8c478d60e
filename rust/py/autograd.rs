//! What Python calls of the tape, and of the thread's state (`thread_state.rs`).

use super::call_python::CallPython;
use super::call_site::find_call_site;
use super::convert::{context_arg, context_to_py};
use super::error::{IntoPy, from_py, invalid, quoted, shown};
use super::ndarray::PyNDArray;
use super::profiler::api;
use super::runtime;
use super::thread_state::{self, ThreadState, thread_state};
use crate::error::Error;
use crate::executor::autograd::{self, Asked, Backward, NodeView, TapeFunction, Tracked};
use crate::executor::call_site::{self, CallSite};
use crate::operator::OpReq;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::any::Any;
use std::sync::Arc;

#[pyfunction]
fn set_recording(on: bool) -> bool {
    let before = thread_state();
    thread_state::set(ThreadState { recording: on, ..before });
    before.recording
}

#[pyfunction]
fn set_training(on: bool) -> bool {
    let before = thread_state();
    thread_state::set(ThreadState { training: on, ..before });
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
    thread_state::set(ThreadState { ctx: wanted, ..before });
    context_to_py(ctx.py(), before.ctx)
}

#[pyfunction]
fn current_context(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    context_to_py(py, thread_state().ctx)
}

fn request(text: &str) -> PyResult<OpReq> {
    match OpReq::from_name(text) {
        Some(req) if req != OpReq::Inplace => Ok(req),
        _ => {
            let expected = "one of: write, add, null";
            Err(PyValueError::new_err(invalid("grad_req", quoted(text), expected)))
        }
    }
}

#[pyfunction]
fn mark_variables(
    py: Python<'_>,
    variables: Vec<Bound<'_, PyNDArray>>,
    grads: Vec<Bound<'_, PyNDArray>>,
    reqs: Vec<String>,
) -> PyResult<()> {
    let reqs = reqs.iter().map(|r| request(r)).collect::<PyResult<Vec<_>>>()?;
    let buffers: Vec<_> = grads.iter().map(|g| &g.get().tracked().array).collect();
    for (i, (variable, buffer)) in variables.iter().zip(&buffers).enumerate() {
        let fits = variable.get().tracked().check_buffer(buffer);
        fits.map_err(|e| Error::new(e.kind(), format!("gradients[{i}]: {}", e.message())))
            .py(py)?;
    }
    for ((variable, buffer), req) in variables.iter().zip(buffers).zip(reqs) {
        variable.get().tracked().mark(buffer.clone(), req);
    }
    Ok(())
}

/// Sets thread state for the time of a backward pass.
struct During(ThreadState);

impl During {
    fn backward(how: Backward) -> Self {
        let before = thread_state();
        thread_state::set(ThreadState {
            recording: how.create_graph,
            training: how.is_train,
            ..before
        });
        During(before)
    }
}

impl Drop for During {
    fn drop(&mut self) {
        thread_state::set(self.0);
    }
}

type Arrays<'py> = Vec<Bound<'py, PyNDArray>>;

fn head_grads<'a>(grads: &'a [Option<Bound<'_, PyNDArray>>]) -> Vec<Option<&'a Tracked>> {
    grads.iter().map(|g| g.as_ref().map(|g| g.get().tracked())).collect()
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
    let _called = api("autograd.backward");
    let _during = During::backward(how);
    let heads: Vec<&Tracked> = heads.iter().map(|h| h.get().tracked()).collect();
    let site = CallSite::Known(find_call_site());
    call_site::with(site, || autograd::backward(runtime(), &heads, &head_grads(&grads), how)).py(py)
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
    let _called = api("autograd.grad");
    let _during = During::backward(how);
    let heads: Vec<&Tracked> = heads.iter().map(|h| h.get().tracked()).collect();
    let variables: Vec<&Tracked> = variables.iter().map(|v| v.get().tracked()).collect();
    let site = CallSite::Known(find_call_site());
    let grads = head_grads(&grads);
    let found =
        call_site::with(site, || autograd::grad(runtime(), &heads, &grads, &variables, how));
    Ok(found.py(py)?.into_iter().map(PyNDArray::from).collect())
}

/// The `backward` of a Python `autograd.Function`.
pub struct PyFunction {
    name: String,
    pub backward: Py<PyAny>,
}

impl TapeFunction for PyFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn backward(&self, asked: Asked<'_>) -> crate::error::Result<Vec<Option<Tracked>>> {
        let of = |tracked| PyNDArray::from(tracked);
        Python::attach(|py| {
            let grads: Vec<PyNDArray> = asked.out_grads.into_iter().map(of).collect();
            let outputs: Vec<Option<PyNDArray>> =
                asked.outputs.into_iter().map(|o| o.map(of)).collect();
            let result = self.backward.bind(py).call_python((grads, outputs))?;
            let result = match result.cast::<PyNDArray>() {
                Ok(one) => vec![one.clone()],
                Err(_) => result.extract::<Arrays<'_>>().map_err(|_| {
                    let expected = "NDArrays, one for each input";
                    PyTypeError::new_err(invalid("result of backward", shown(&result), expected))
                })?,
            };
            Ok(result.iter().map(|a| Some(a.get().tracked().clone())).collect())
        })
        .map_err(|e| Python::attach(|py| from_py(py, e)))
    }
}

/// Records a call whose gradient is the Python function `backward(output_grads, outputs)`, where
/// `outputs` has those that are `kept` and `None` for the others. `name` is its name in errors.
#[pyfunction]
fn record_function(
    name: String,
    backward: Py<PyAny>,
    inputs: Arrays<'_>,
    outputs: Arrays<'_>,
    kept: Vec<bool>,
) {
    let inputs: Vec<&Tracked> = inputs.iter().map(|a| a.get().tracked()).collect();
    let outputs: Vec<&Tracked> = outputs.iter().map(|a| a.get().tracked()).collect();
    let function = Arc::new(PyFunction { name, backward });
    autograd::record_function(function, &inputs, &outputs, &kept);
}

/// One recorded call for Python: operator (None for a leaf, empty if no operator describes it),
/// parameters, and inputs as (node, output) or None.
type RecordedCall = (Option<String>, Vec<(String, String)>, Vec<Option<(usize, u32)>>);

/// The recorded history of an array: its calls, inputs before users, and the array's (node,
/// output). None if it has no history.
#[pyfunction]
fn history(array: &Bound<'_, PyNDArray>) -> Option<(Vec<RecordedCall>, (usize, u32))> {
    type Visited = (Option<String>, Vec<(String, String)>, Vec<Option<autograd::TapeEntry>>);
    let head = array.get().tracked().entry()?;
    // Numbers grow as calls are recorded, so their order is one in which inputs come first.
    let mut seen: std::collections::BTreeMap<u64, Visited> = Default::default();
    let mut waiting = vec![head.clone()];
    while let Some(entry) = waiting.pop() {
        if seen.contains_key(&entry.seq()) {
            continue;
        }
        let call: Visited = entry.visit(|node| match node {
            NodeView::Leaf => (None, Vec::new(), Vec::new()),
            NodeView::Opaque => (Some(String::new()), Vec::new(), Vec::new()),
            NodeView::Call { op, attrs, inputs } => {
                let given = attrs.given().iter().map(|(k, v)| (k.clone(), v.to_string()));
                (Some(op.name.clone()), given.collect(), inputs)
            }
        });
        waiting.extend(call.2.iter().flatten().cloned());
        seen.insert(entry.seq(), call);
    }
    let numbers: std::collections::HashMap<u64, usize> =
        seen.keys().enumerate().map(|(i, seq)| (*seq, i)).collect();
    let place = |e: &autograd::TapeEntry| (numbers.get(&e.seq()).copied().unwrap_or(0), e.index);
    let calls = seen
        .values()
        .map(|(op, params, inputs)| {
            let inputs = inputs.iter().map(|e| e.as_ref().map(place)).collect();
            (op.clone(), params.clone(), inputs)
        })
        .collect();
    Some((calls, place(&head)))
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
        mark_variables,
        backward,
        grad,
        record_function,
        history
    );
    Ok(())
}
