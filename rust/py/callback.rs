//! Kernels written in Python: operands, where they run, and how they end.
//!
//! A callback runs inside the call that pushed it if that thread holds the interpreter, is not
//! itself inside a callback, and no other callback of the same pass could run at the same time;
//! else on a callback thread, concurrently with others; never on a compute thread. Its operands are
//! [`Operands`], so that it may wait for, read and overwrite them like any array.

use super::call_python::CallPython;
use super::callback_threads::{self, Job};
use super::convert::{context_to_py, numpy_view};
use super::error::{from_py, to_py};
use super::interrupt::from_callback;
use super::ndarray::PyNDArray;
use super::operator::{Payload, PyState};
use super::package::package;
use super::runtime;
use super::thread_state::FreshState;
use crate::engine::Priority;
use crate::error::Error;
use crate::executor::operands::Operands;
use crate::ndarray::NDArray;
use crate::operator::{Callback, Done, OpContext, OpReq, OwnedCall};
use pyo3::exceptions::{PyRecursionError, PyRuntimeWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum depth of nested callbacks; an operator that exceeds it calls itself without end.
const MAX_DEPTH: u32 = 500;

thread_local! {
    /// Depth of nested callbacks on this thread, including those that pushed the current one.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Names that errors use.
pub struct Words {
    pub results: String,
    pub assign: String,
}

/// A kernel that is a Python function.
pub struct PythonKernel(Arc<Inner>);

struct Inner {
    op: String,
    run: Py<PyAny>,
    numpy: bool,
    /// The function's name for the list of its outputs, and for storing a value by its request.
    words: Words,
    /// True once views that outlive their call were reported.
    warned: AtomicBool,
}

impl PythonKernel {
    pub fn new(op: &str, run: Py<PyAny>, numpy: bool, words: Words) -> Self {
        let warned = AtomicBool::new(false);
        PythonKernel(Arc::new(Inner { op: op.to_owned(), run, numpy, words, warned }))
    }
}

impl Callback for PythonKernel {
    fn needs_host(&self) -> bool {
        self.0.numpy
    }

    fn start(&self, call: OwnedCall, done: Done) {
        let outer = DEPTH.get();
        let has_peers = call.within.has_peers();
        let call = OperatorCall { kernel: self.0.clone(), call, done, depth: outer + 1 };
        let waits_in_push = runtime().engine.runs_inside_push();
        if outer == 0 && (!has_peers || waits_in_push) && is_python_thread() {
            return Python::attach(|py| call.run(py));
        }
        if !waits_in_push {
            return callback_threads::submit_job(Job::Operator(call), Priority::Normal);
        }
        // The naive engine waits for the end inside the push, so this thread waits too, detached
        // from the interpreter.
        let (ended, end) = std::sync::mpsc::channel::<()>();
        callback_threads::submit(Box::new(move |py| {
            call.run(py);
            drop(ended);
        }));
        Python::attach(|py| py.detach(move || end.recv().unwrap_or_default()));
    }
}

/// Returns true if this thread has ever run Python code. (Compute threads have not.)
fn is_python_thread() -> bool {
    // SAFETY: may be called from any thread while the interpreter exists; reads a thread-local.
    !unsafe { pyo3::ffi::PyGILState_GetThisThreadState() }.is_null()
}

/// A call that is ready to run.
pub struct OperatorCall {
    kernel: Arc<Inner>,
    call: OwnedCall,
    done: Done,
    depth: u32,
}

impl OperatorCall {
    /// Ends the call without running it, as at exit: its results were not computed, and nobody is
    /// told.
    pub fn skip(self) {
        (self.done)(Err(Error::execution("skipped at exit").inherited()));
    }

    pub fn run(self, py: Python<'_>) {
        let OperatorCall { kernel, call, done, depth } = self;
        if depth > MAX_DEPTH {
            let text = format!("operator '{}' is nested {MAX_DEPTH} callbacks deep", kernel.op);
            return done(Err(from_py(py, PyRecursionError::new_err(text))));
        }
        let operands = Operands::new(runtime(), &call);
        let mut result = Ok(());
        call.within.within(&mut || {
            let _scope = Scope::enter(depth, &call.ctx);
            result = kernel.invoke(py, &call, &operands).map_err(|e| from_callback(py, e));
        });
        if result.is_ok() && operands.are_lent() {
            result = kernel.warn_of_views(py).map_err(|e| from_py(py, e));
        }
        operands.finish(result, call, done);
    }
}

/// The surroundings of a callback.
struct Scope {
    depth: u32,
    _state: FreshState,
}

impl Scope {
    fn enter(depth: u32, ctx: &OpContext) -> Self {
        let _state = FreshState::enter(ctx.is_train);
        Scope { depth: DEPTH.replace(depth), _state }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        DEPTH.set(self.depth);
    }
}

impl Inner {
    fn invoke(&self, py: Python<'_>, call: &OwnedCall, operands: &Operands) -> PyResult<()> {
        let payload = call.attrs.typed().downcast_ref::<Payload>();
        let payload = payload.map_or_else(|| py.None(), |p| p.object.clone_ref(py));
        let state = call.state.as_ref().and_then(|s| s.downcast_ref::<PyState>());
        let state = state.map_or_else(|| py.None(), |s| s.0.clone_ref(py));
        let ctx = Bound::new(py, PyOpContext { ctx: call.ctx, requested: PyOnceLock::new() })?;
        let n = call.inputs.len();
        let package = package(py)?;
        let inputs = self.list(py, &operands.arrays()[..n], false)?;
        let outputs = self.list(py, &operands.arrays()[n..], true)?;
        let req = PyList::new(py, call.req.iter().map(|r| package.op_req(py, *r)))?;
        let given: SmallVec<[Bound<'_, PyAny>; 4]> = outputs.iter().collect();
        let answer = self.run.bind(py).call_python((payload, state, ctx, inputs, req, &outputs))?;
        for (i, operand) in given.iter().enumerate() {
            if !outputs.get_item(i).is_ok_and(|now| now.is(operand)) {
                self.check_replaced(call, operands, &outputs, i)?;
            }
        }
        if answer.is_none() {
            return Ok(());
        }
        Err(PyTypeError::new_err(format!(
            "operator '{}': the function returned {}, expected None: results are written to the \
             outputs",
            self.op,
            answer.get_type().name()?
        )))
    }

    /// The function replaced an entry of the list of outputs, which has no effect: an error, unless
    /// the entry is a view of the output or the output is not requested.
    #[cold]
    fn check_replaced(
        &self,
        call: &OwnedCall,
        operands: &Operands,
        outputs: &Bound<'_, PyList>,
        i: usize,
    ) -> PyResult<()> {
        let operand = &operands.arrays()[call.inputs.len() + i];
        let is_view = outputs.get_item(i).is_ok_and(|now| {
            now.cast::<PyNDArray>().is_ok_and(|now| now.get().tracked.array.same_chunk(operand))
        });
        if is_view || call.req[i] == OpReq::Null {
            return Ok(());
        }
        let (op, Words { results, assign }) = (&self.op, &self.words);
        Err(to_py(
            outputs.py(),
            &Error::value(format!(
                "operator '{op}': the function replaced {results}[{i}] by another object, which leaves \
                 the output as it was: write {results}[{i}][:] = value or \
                 {assign}({results}[{i}], req[{i}], value)"
            )),
        ))
    }

    /// Warns, once per operator, that the memory of its operands outlives the call.
    fn warn_of_views(&self, py: Python<'_>) -> PyResult<()> {
        if self.warned.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let text = format!(
            "operator '{}': a NumPy view of an operand is still referenced after its function has \
             returned; it keeps the memory alive, which others write to: copy what you keep",
            self.op
        );
        let category = py.get_type::<PyRuntimeWarning>();
        PyErr::warn(py, &category, &CString::new(text)?, 1)
    }

    fn list<'py>(
        &self,
        py: Python<'py>,
        arrays: &[NDArray],
        outputs: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        if !self.numpy {
            return PyList::new(py, arrays.iter().map(|array| PyNDArray::of(array.clone())));
        }
        let list = PyList::empty(py);
        for array in arrays {
            let object = Bound::new(py, PyNDArray::of(array.clone()))?;
            let view = array.view().map_err(|e| to_py(py, &e))?;
            array.lend();
            let writable = outputs || array.is_writable();
            // SAFETY: the object becomes the base of the NumPy array; it holds the call's keeper.
            list.append(unsafe { numpy_view(&view, object.into_any(), writable) }?)?;
        }
        Ok(list)
    }
}

/// The circumstances of a call as Python sees them.
#[pyclass(frozen, name = "OpContext", module = "rsnet._core")]
pub struct PyOpContext {
    ctx: OpContext,
    requested: PyOnceLock<Py<PyAny>>,
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
        let kinds: Vec<String> = requests.into_iter().map(|request| request.0).collect();
        let key = self.ctx.random;
        let made = package(py)?.make_resources(kinds, key.seed, key.stream, self.ctx(py)?)?;
        let _ = self.requested.set(py, made.unbind());
        Ok(())
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyOpContext>()
}
