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
use crate::dtype::DType;
use crate::engine::{Prop, Push, Task, Var};
use crate::error::{Error, Result};
use crate::ndarray::NDArray;
use crate::operator::{Done, OpContext, OpReq, OwnedCall};
use crate::shape::Shape;
use crate::tensor::View;
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
        let mut operands = Operands::new(&call);
        let (mut result, mut space) = (Ok(()), Vec::new());
        call.within.within(&mut || {
            let _scope = Scope::enter(depth, &call.ctx);
            let invoked = kernel.invoke(py, &call, &operands, &mut space);
            result = invoked.map_err(|e| from_callback(py, e));
        });
        operands.space = space;
        if result.is_ok() && operands.are_lent() {
            result = kernel.warn_of_views(py).map_err(|e| from_py(py, e));
        }
        let vars = operands.vars();
        if !vars.is_empty() && !runtime().engine.try_run_exclusive(&[], &vars, &mut || ()) {
            return operands.end_later(&vars, result, done, call);
        }
        let computed = operands.end(result, call.inputs.len());
        drop(operands);
        drop(call);
        done(computed);
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
        let inputs = self.list(py, &operands.arrays[..n], false)?;
        let outputs = self.list(py, &operands.arrays[n..], true)?;
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
        let operand = &operands.arrays[call.inputs.len() + i];
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

/// Returns true if nothing is pending on the array.
fn is_quiet(array: &NDArray) -> bool {
    array.known_var().is_none_or(|var| runtime().engine.try_run_exclusive(&[], &[var], &mut || ()))
}

/// Fresh arrays over the operands' bytes: inputs, then outputs. Those that overlap share a
/// variable.
struct Operands {
    arrays: Vec<NDArray>,
    /// Arrays of temporary space, which end with the operands.
    space: Vec<NDArray>,
}

fn span(v: &View) -> (usize, usize) {
    (v.ptr() as usize, v.ptr() as usize + v.size_bytes())
}

impl Operands {
    fn new(call: &OwnedCall) -> Self {
        let views: SmallVec<[&View; 8]> = call.inputs.iter().chain(&*call.outputs).collect();
        let n = call.inputs.len();
        let overlap = |a: &View, b: &View| a.size() > 0 && b.size() > 0 && a.overlaps(b);
        let disjoint = (1..views.len()).all(|i| views[..i].iter().all(|v| !overlap(v, views[i])));
        let arrays: Vec<NDArray> = if disjoint {
            views.iter().map(|v| over(call, v)).collect()
        } else {
            shared(call, &views)
        };
        let mutated = |i: usize| call.mutated.contains(&i);
        for (i, array) in arrays[..n].iter().enumerate() {
            let is_output = arrays[n..].iter().any(|o| o.same_chunk(array));
            let modified = (0..n).any(|j| mutated(j) && arrays[j].same_chunk(array));
            if !is_output && !modified && !mutated(i) {
                array.forbid_writing();
            }
        }
        for (array, req) in arrays[n..].iter().zip(&call.req) {
            if disjoint && *req == OpReq::Write {
                array.watch_for_writes();
            }
        }
        Operands { arrays, space: Vec::new() }
    }

    /// Outputs that the function should have written and did not hold what was there before: they
    /// become zeros, because programs leave out gradients that are not needed.
    fn zero_unwritten(&self, n_inputs: usize) -> Result<()> {
        for array in self.arrays[n_inputs..].iter().filter(|a| a.is_unwritten()) {
            array.zero_now()?;
        }
        Ok(())
    }

    /// Returns true if a reference from outside, such as a NumPy view, still holds an operand on
    /// which nothing is pending.
    fn are_lent(&self) -> bool {
        self.arrays.iter().any(|array| {
            let own = self.arrays.iter().filter(|a| a.same_chunk(array)).count();
            array.is_lent_beyond(own) && is_quiet(array)
        })
    }

    /// The variables of operands on which an operation was queued.
    fn vars(&self) -> SmallVec<[Var; 8]> {
        let mut vars: SmallVec<[Var; 8]> = SmallVec::new();
        for var in self.arrays.iter().chain(&self.space).filter_map(NDArray::known_var) {
            if !vars.contains(&var) {
                vars.push(var);
            }
        }
        vars
    }

    /// Revokes the operands, which are no longer in use; an error if an output was not computed.
    /// That error becomes the operation's own, so the operand must not raise it as well.
    fn end(&self, result: Result<()>, n_inputs: usize) -> Result<()> {
        let outputs = &self.arrays[n_inputs..];
        let computed = result
            .and_then(|()| {
                let readable = outputs.iter().try_for_each(NDArray::readable);
                readable.inspect_err(|_| outputs.iter().for_each(|array| drop(array.take_error())))
            })
            .and_then(|()| self.zero_unwritten(n_inputs));
        for array in self.arrays.iter().chain(&self.space) {
            array.revoke();
        }
        computed
    }

    /// Ends the operation once nothing uses the operands any more.
    #[cold]
    fn end_later(self, vars: &[Var], result: Result<()>, done: Done, call: OwnedCall) {
        let task = Task::sync(move |_| {
            let computed = self.end(result, call.inputs.len());
            drop((self, call));
            done(computed);
            Ok(())
        });
        let push = Push { prop: Prop::NoSkip, cheap: true, ..Push::new("callback end", &[], vars) };
        // A push that is refused drops the task, and with it `done`, which then reports a failure.
        let _ = runtime().engine.push(task, push);
    }
}

fn over(call: &OwnedCall, v: &View) -> NDArray {
    external(call, v.ptr(), v.shape(), v.dtype())
}

fn external(call: &OwnedCall, ptr: *mut u8, shape: &Shape, dtype: DType) -> NDArray {
    // SAFETY: the views of a call are valid as long as its keeper; the operation they belong to
    // orders access until `finish` revokes these arrays.
    unsafe { NDArray::external(runtime(), call.keep.clone(), ptr, shape, dtype, call.ctx.device) }
}

/// Arrays for operands of which some overlap: one chunk for each group of overlapping spans.
fn shared(call: &OwnedCall, views: &[&View]) -> Vec<NDArray> {
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for v in views.iter().filter(|v| v.size() > 0) {
        let mut joined = span(v);
        groups.retain(|g| {
            let touches = g.0 < joined.1 && joined.0 < g.1;
            if touches {
                joined = (joined.0.min(g.0), joined.1.max(g.1));
            }
            !touches
        });
        groups.push(joined);
    }
    let chunks: Vec<NDArray> = groups
        .iter()
        .map(|g| {
            let first = views.iter().filter(|v| v.size() > 0).find(|v| span(v).0 == g.0);
            let ptr = first.map_or(std::ptr::null_mut(), |v| v.ptr());
            external(call, ptr, &Shape::new(&[(g.1 - g.0) as i64]), DType::U8)
        })
        .collect();
    views
        .iter()
        .map(|v| {
            let at =
                groups.iter().position(|g| v.size() > 0 && g.0 <= span(v).0 && span(v).1 <= g.1);
            let part =
                at.and_then(|i| chunks[i].part(span(v).0 - groups[i].0, v.shape(), v.dtype()).ok());
            part.unwrap_or_else(|| over(call, v))
        })
        .collect()
}
