//! Calls of kernels written in Python: operands, the call itself, and how it ends.
//!
//! The operands are fresh arrays over the same bytes, so that the function may wait for, read and
//! overwrite them like any array: their own variables order what the callback pushes. The operation
//! is complete when they are quiet; then the operands are revoked, because the bytes belong to
//! others again. `python_kernel.rs` chooses where a call runs.

use super::call_python::CallPython;
use super::call_site::at_call_site;
use super::convert::numpy_view;
use super::error::{from_py, to_py};
use super::interrupt::from_callback;
use super::ndarray::PyNDArray;
use super::op_context::PyOpContext;
use super::package::package;
use super::payload::{Given, GivenOperands, Payload, PyState};
use super::runtime;
use super::thread_state::FreshState;
use crate::error::Error;
use crate::executor::operands::Operands;
use crate::ndarray::NDArray;
use crate::operator::{Done, OpContext, OpReq, OwnedCall};
use pyo3::exceptions::{PyIndexError, PyRecursionError, PyRuntimeWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
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

/// The function that says which lists of operands the kernels of an operator get.
pub struct AskOperands {
    pub function: Py<PyAny>,
    /// Is it the operator itself or its backward operator? See [`Payload::given`].
    pub which: usize,
}

impl AskOperands {
    fn of<'a>(&self, py: Python<'_>, payload: &'a Payload) -> PyResult<&'a GivenOperands> {
        let slot = &payload.given[self.which];
        if let Some(given) = slot.get() {
            return Ok(given);
        }
        let given = self.function.bind(py).call_python((&payload.object,))?.extract()?;
        Ok(slot.get_or_init(|| given))
    }
}

/// The function of a kernel, and what errors call it.
pub struct Function {
    op: String,
    run: Py<PyAny>,
    /// Does it get NumPy views?
    pub numpy: bool,
    /// Does it get a context, or only whether this is training?
    pub takes_ctx: bool,
    pub operands: Option<AskOperands>,
    /// The function's name for the list of its outputs, and for storing a value by its request.
    words: Words,
    /// True once views that outlive their call were reported.
    warned: AtomicBool,
}

impl Function {
    /// A function that gets a context, and its operands as arrays in two lists.
    pub fn new(op: &str, run: Py<PyAny>, words: Words) -> Self {
        Function {
            op: op.to_owned(),
            run,
            numpy: false,
            takes_ctx: true,
            operands: None,
            words,
            warned: AtomicBool::new(false),
        }
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
            let invoked = at_call_site(|| kernel.invoke(py, &call, &operands, &mut space));
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
        let ask = payload.zip(self.operands.as_ref());
        let given = ask.map(|(payload, ask)| ask.of(py, payload)).transpose()?;
        let state = call.state.as_ref().and_then(|s| s.downcast_ref::<PyState>());
        let ctx = self.takes_ctx.then(|| Bound::new(py, PyOpContext::new(call.ctx))).transpose()?;
        let count = given.map_or(call.outputs.len(), |g| g.1.min(call.outputs.len()));
        let outputs = operands.outputs()[..count].iter();
        let listed = PyList::new(py, outputs.map(|o| self.operand(o, true)))?;
        let outputs: Objects<'_> = listed.iter().collect();
        let package = package(py)?;
        let req = PyList::new(py, call.req[..count].iter().map(|r| package.op_req(py, *r)))?;

        let mut args = Objects::new();
        args.push(payload.map_or_else(|| py.None(), |p| p.object.clone_ref(py)).into_bound(py));
        args.push(state.map_or_else(|| py.None(), |s| s.0.clone_ref(py)).into_bound(py));
        args.push(match &ctx {
            Some(ctx) => ctx.as_any().clone(),
            None => u8::from(call.ctx.is_train).into_pyobject(py)?.into_any(),
        });
        self.push_inputs(py, operands.inputs(), given, &mut args)?;
        args.push(req.into_any());
        args.push(listed.as_any().clone());
        let answer = self.run.bind(py).call_python(PyTuple::new(py, args)?);
        *space = ctx.map_or_else(Vec::new, |ctx| ctx.get().end(py));
        let answer = answer?;
        for (i, operand) in outputs.iter().enumerate() {
            if !listed.get_item(i).is_ok_and(|now| now.is(operand)) {
                self.check_replaced(call, operands, &listed, i)?;
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

    /// Adds the lists of inputs: one, or those that the operator has asked for.
    fn push_inputs<'py>(
        &self,
        py: Python<'py>,
        inputs: &[NDArray],
        given: Option<&GivenOperands>,
        args: &mut Objects<'py>,
    ) -> PyResult<()> {
        let Some(GivenOperands(lists, _)) = given else {
            let all = inputs.iter().map(|input| self.operand(input, false));
            args.push(PyList::new(py, all)?.into_any());
            return Ok(());
        };
        for list in lists {
            let items = list.iter().map(|given| match given {
                Given::Input(number) => match inputs.get(*number) {
                    Some(input) => self.operand(input, false),
                    None => Item::Missing(*number),
                },
                Given::Other(object) => Item::Other(object),
            });
            args.push(PyList::new(py, items)?.into_any());
        }
        Ok(())
    }

    fn operand<'a>(&self, array: &'a NDArray, is_output: bool) -> Item<'a> {
        if self.numpy { Item::View { array, is_output } } else { Item::Array(array) }
    }
}

/// An item of a list of operands: what the function gets is made in its place in the list.
enum Item<'a> {
    Array(&'a NDArray),
    View { array: &'a NDArray, is_output: bool },
    Other(&'a Py<PyAny>),
    Missing(usize),
}

impl<'py> IntoPyObject<'py> for Item<'_> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    #[inline]
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = |array: &NDArray| Bound::new(py, PyNDArray::of(array.clone()));
        match self {
            Item::Array(array) => Ok(object(array)?.into_any()),
            Item::View { array, is_output } => {
                let object = object(array)?.into_any();
                let view = array.view().map_err(|e| to_py(py, &e))?;
                array.lend();
                let writable = is_output || array.is_writable();
                // SAFETY: the object becomes the base of the NumPy array; it holds the call's
                // keeper.
                unsafe { numpy_view(&view, object, writable) }
            }
            Item::Other(object) => Ok(object.bind(py).clone()),
            Item::Missing(number) => {
                Err(PyIndexError::new_err(format!("there is no input {number}")))
            }
        }
    }
}

/// Arguments of a function, or items of a list of them.
type Objects<'py> = SmallVec<[Bound<'py, PyAny>; 10]>;
