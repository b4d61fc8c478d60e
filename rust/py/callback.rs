//! Calls of kernels written in Python: operands, the call itself, and how it ends.
//!
//! The operands are fresh arrays over the same bytes, so that the function may wait for, read and
//! overwrite them like any array: their own variables order what the callback pushes. The operation
//! is complete when they are quiet; then the operands are revoked, because the bytes belong to
//! others again. `python_kernel.rs` chooses where a call runs.

use super::call_python::CallPython;
use super::convert::numpy_view;
use super::error::{from_py, to_py};
use super::interrupt::from_callback;
use super::ndarray::PyNDArray;
use super::op_context::PyOpContext;
use super::package::package;
use super::payload::{Payload, PyState};
use super::runtime;
use super::thread_state::FreshState;
use crate::error::Error;
use crate::executor::operands::Operands;
use crate::ndarray::NDArray;
use crate::operator::{Done, OpContext, OpReq, OwnedCall};
use pyo3::exceptions::{PyRecursionError, PyRuntimeWarning, PyTypeError};
use pyo3::prelude::*;
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
    pub static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Names that errors use.
pub struct Words {
    pub results: String,
    pub assign: String,
}

/// The function of a kernel, and what errors call it.
pub struct Function {
    op: String,
    run: Py<PyAny>,
    numpy: bool,
    /// The function's name for the list of its outputs, and for storing a value by its request.
    words: Words,
    /// True once views that outlive their call were reported.
    warned: AtomicBool,
}

impl Function {
    pub fn new(op: &str, run: Py<PyAny>, numpy: bool, words: Words) -> Self {
        Function { op: op.to_owned(), run, numpy, words, warned: AtomicBool::new(false) }
    }

    /// Returns true if the function is given NumPy views.
    pub fn takes_numpy(&self) -> bool {
        self.numpy
    }
}

/// A call that is ready to run.
pub struct OperatorCall {
    pub kernel: Arc<Function>,
    pub call: OwnedCall,
    pub done: Done,
    pub depth: u32,
}

impl OperatorCall {
    /// Ends the call without running it, at exit: its results were not computed.
    pub fn skip(self) {
        (self.done)(Err(Error::shut_down()));
    }

    pub fn run(self, py: Python<'_>) {
        let OperatorCall { kernel, call, done, depth } = self;
        if depth > MAX_DEPTH {
            let text = format!("operator '{}' is nested {MAX_DEPTH} callbacks deep", kernel.op);
            return done(Err(from_py(py, PyRecursionError::new_err(text))));
        }
        let mut operands = Operands::new(runtime(), &call);
        let (mut result, mut space) = (Ok(()), Vec::new());
        call.within.within(&mut || {
            let _scope = Scope::enter(depth, &call.ctx);
            let invoked = kernel.invoke(py, &call, &operands, &mut space);
            result = invoked.map_err(|e| from_callback(py, e));
        });
        operands.add_space(space);
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

impl Function {
    /// Calls the function; `space` gets the temporary space that it has used.
    fn invoke(
        &self,
        py: Python<'_>,
        call: &OwnedCall,
        operands: &Operands,
        space: &mut Vec<NDArray>,
    ) -> PyResult<()> {
        let payload = call.attrs.typed().downcast_ref::<Payload>();
        let payload = payload.map_or_else(|| py.None(), |p| p.object.clone_ref(py));
        let state = call.state.as_ref().and_then(|s| s.downcast_ref::<PyState>());
        let state = state.map_or_else(|| py.None(), |s| s.0.clone_ref(py));
        let ctx = Bound::new(py, PyOpContext::new(call.ctx))?;
        let n = call.inputs.len();
        let package = package(py)?;
        let inputs = self.list(py, &operands.arrays()[..n], false)?;
        let outputs = self.list(py, &operands.arrays()[n..], true)?;
        let req = PyList::new(py, call.req.iter().map(|r| package.op_req(py, *r)))?;
        let given: SmallVec<[Bound<'_, PyAny>; 4]> = outputs.iter().collect();
        let answer = self.run.bind(py).call_python((payload, state, &ctx, inputs, req, &outputs));
        *space = ctx.get().end(py);
        let answer = answer?;
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
            now.cast::<PyNDArray>().is_ok_and(|now| now.get().tracked().array.same_chunk(operand))
        });
        if is_view || call.req[i] == OpReq::Null {
            return Ok(());
        }
        let (op, Words { results, assign }) = (&self.op, &self.words);
        Err(to_py(
            outputs.py(),
            &Error::value(format!(
                "operator '{op}': the function replaced {results}[{i}] by another object, which \
                 leaves the output as it was: write {results}[{i}][:] = value or \
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
            "operator '{}': a view of an operand (an array of NumPy or CuPy) is still referenced \
             after its function has returned; it keeps the memory alive, which others write to: \
             copy what you keep",
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
