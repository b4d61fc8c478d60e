//! Python functions as operations: the context and the token that they are called with, and the
//! call itself.

use super::cached_descriptor::QUALIFIED_NAME;
use super::call_python::CallPython;
use super::error::from_py;
use super::interrupt::from_callback;
use super::once_cell::OnceCell;
use super::profiler::recorder;
use super::runtime;
use super::thread_state::FreshState;
use crate::context::Context;
use crate::cuda::Device;
use crate::engine::OnComplete;
use crate::lock::Lock;
use crate::profiler::{Begun, OPERATOR, What, mode};
use pyo3::exceptions::{PyBaseException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::sync::Arc;

/// The argument of a pushed function, valid only while it runs.
///
/// Attributes
/// ----------
/// ctx : Context
///     The device that the function was pushed for.
/// stream : int or None
///     The handle (``CUstream``) of the stream on which operations on a GPU compute; None on the
///     CPU. What the function issues there comes after the operations that it follows, and its
///     operation ends when the device has done it.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> seen, v = [], engine.new_variable()
/// >>> engine.push_sync(lambda rc: seen.append((str(rc.ctx), rc.stream)), mutate_vars=[v])
/// >>> engine.wait_for_var(v)
/// >>> seen
/// [('cpu(0)', None)]
#[pyclass(frozen, module = "rsnet.engine")]
pub struct RunContext {
    ctx: Context,
    #[pyo3(get)]
    stream: Option<usize>,
}

#[pymethods]
impl RunContext {
    /// The device that the function was pushed for.
    #[getter]
    fn ctx(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        super::convert::context_to_py(py, self.ctx).map(Bound::unbind)
    }
}

/// Ends an asynchronous operation: functions pushed by `push_async` are called with one.
///
/// Call it once, from any thread. If the last reference is dropped before the call, the operation
/// fails.
///
/// Parameters
/// ----------
/// error : BaseException, optional
/// Fails the operation with this exception.
///
/// Raises
/// ------
/// RuntimeError
/// It was called before.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> v, tokens = engine.new_variable(), []
/// >>> engine.push_async(lambda rc, on_complete: tokens.append(on_complete), mutate_vars=[v])
/// >>> while not tokens:
/// ...     pass
/// >>> tokens[0](error=TimeoutError("no answer"))
/// >>> try:
/// ...     engine.wait_for_var(v)
/// ... except TimeoutError as error:
/// ...     print(error)
/// no answer
#[pyclass(frozen, module = "rsnet.engine", name = "OnComplete")]
pub struct Completion {
    function: PushedFunction,
    token: Lock<Option<OnComplete>>,
    ctx: Context,
    /// For the profiler: the device of the operation, when its function began.
    seen: Option<(Context, Begun)>,
}

#[pymethods]
impl Completion {
    #[pyo3(signature = (error=None))]
    fn __call__(&self, py: Python<'_>, error: Option<Bound<'_, PyBaseException>>) -> PyResult<()> {
        let Some(token) = self.token.lock().take() else {
            let text = format!("operation {} was completed twice", self.function.get().name(py));
            return Err(PyRuntimeError::new_err(text));
        };
        let result = match error {
            None => Ok(()),
            Some(e) => Err(from_py(py, PyErr::from_value(e.into_any()))),
        };
        if let Some((device, begun)) = self.seen {
            recorder().end(begun, self.function.get().what(py, device));
        }
        end(self.ctx, token, result);
        Ok(())
    }
}

/// The qualified name of a function, or what it prints as.
pub fn name_of<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    match QUALIFIED_NAME.of(function) {
        Ok(Some(name)) => match name.cast_into::<PyString>() {
            Ok(name) => Ok(name),
            Err(e) => e.into_inner().str(),
        },
        _ => function.str(),
    }
}

/// The device of a context, which is in use since a push names it.
pub fn device_of(ctx: Context) -> Option<&'static Arc<Device>> {
    if ctx.is_host() { None } else { runtime().cuda.opened(ctx.device_id) }
}

/// Ends the operation of a function: on a device, when that has done what the function issued.
/// What it wrote is unknown, so nothing may follow before.
fn end(ctx: Context, token: OnComplete, result: crate::Result<()>) {
    match device_of(ctx) {
        None => token.complete(result),
        Some(device) => device.when_done(Box::new(move |done| token.complete(result.and(done)))),
    }
}

/// When the operation of a Python function ends.
#[derive(Clone, Copy, PartialEq)]
pub enum Ends {
    /// When it returns.
    ByReturning,
    /// When `on_complete` is called, by the function or elsewhere.
    ByToken,
}

/// A Python function and the name of its operation, for the profiler. (The name is a Python string:
/// a thin pointer, so the task of a push stays small.)
pub struct Named {
    pub function: Py<PyAny>,
    pub name: Py<PyString>,
}

impl Named {
    fn name<'a>(&'a self, py: Python<'a>) -> &'a str {
        // (The push has read it already.)
        self.name.bind(py).to_str().unwrap_or("function")
    }

    fn what<'a>(&'a self, py: Python<'a>, device: Context) -> What<'a> {
        What { category: OPERATOR, name: self.name(py), node: "", device: Some(device) }
    }
}

/// A Python function: of one push, or of all those of a ready-made operation. (A reference of its
/// own could only be made by a thread that is attached.)
pub enum PushedFunction {
    Own(Named),
    Shared(Arc<Named>),
}

impl PushedFunction {
    fn get(&self) -> &Named {
        match self {
            PushedFunction::Own(f) => f,
            PushedFunction::Shared(f) => f,
        }
    }
}

/// A Python function on its way to a callback thread.
pub struct FunctionCall {
    pub function: PushedFunction,
    pub ends: Ends,
    pub ctx: Context,
    pub stream: Option<usize>,
    pub token: OnComplete,
}

impl FunctionCall {
    /// Completes the operation without calling the function.
    pub fn skip(self) {
        self.token.complete(Ok(()));
    }

    pub fn run(self, py: Python<'_>) {
        let FunctionCall { function, ends, ctx, stream, token } = self;
        let _state = FreshState::enter(false);
        match ends {
            Ends::ByReturning => {
                let function = function.get();
                let call = |args| function.function.bind(py).call_python(args).map(drop);
                let result = token.inside(|| {
                    let _span = recorder().span(mode::IMPERATIVE, || function.what(py, ctx));
                    arguments(py, ctx, stream).and_then(call)
                });
                end(ctx, token, result.map_err(|e| from_callback(py, e)));
            }
            Ends::ByToken => {
                let mark = token.mark();
                let seen = recorder().begin(mode::IMPERATIVE).map(|begun| (ctx, begun));
                let done = Completion { function, token: Lock::new(Some(token)), ctx, seen };
                let Ok(done) = Bound::new(py, done) else { return };
                let function = &done.get().function.get().function;
                let call = |args: Bound<'_, PyTuple>| {
                    let context = args.get_item(0)?;
                    function.bind(py).call_python((context, done.clone())).map(drop)
                };
                if let Err(e) = mark.inside(|| arguments(py, ctx, stream).and_then(call)) {
                    let token = done.get().token.lock().take();
                    match token {
                        Some(token) => end(ctx, token, Err(from_callback(py, e))),
                        None => e.write_unraisable(py, Some(function.bind(py))),
                    }
                }
            }
        }
    }
}

/// The arguments of a call: its context. The usual ones are made once: they say nothing but the
/// device.
fn arguments(py: Python<'_>, ctx: Context, stream: Option<usize>) -> PyResult<Bound<'_, PyTuple>> {
    static USUAL: OnceCell<Py<PyTuple>> = OnceCell::new();
    let make = || PyTuple::new(py, [Bound::new(py, RunContext { ctx, stream })?]);
    if ctx != Context::default() || stream.is_some() {
        return make();
    }
    USUAL.get_or_try_init(py, || make().map(Bound::unbind)).map(|usual| usual.bind(py).clone())
}
