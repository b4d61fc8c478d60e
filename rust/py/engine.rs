//! `rsnet.engine`: the dependency engine for any Python function.
//!
//! A pushed function never runs inside its push, nor on a compute thread: when the engine finds it ready it
//! is handed to an attached thread, and the operation ends with it. So every push returns at once.

use super::attached::{self, Job};
use super::convert::context_arg;
use super::error::{IntoPy, from_py, poll_signals};
use super::lazy::{Lazy, interned};
use super::origin::user_line;
use super::{engine_hook, runtime};
use crate::context::Context;
use crate::engine::RunContext as EngineRun;
use crate::engine::{HeldForFork, OnComplete, Operation, Origin, Prop, Push, Task, Var};
use crate::error::Error;
use parking_lot::Mutex;
use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// A token that orders the operations that name it. Made by `new_variable`.
#[pyclass(frozen, module = "rsnet.engine")]
pub struct Variable(Var);

#[pymethods]
impl Variable {
    /// Completed writes.
    #[getter]
    fn version(&self) -> u64 {
        runtime().engine.version(self.0)
    }

    fn __repr__(&self) -> String {
        format!("<Variable version={}>", self.version())
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        runtime().engine.delete_variable(self.0, None);
    }
}

/// What exists only while a function runs: `ctx`, and `stream` (an integer on a GPU, else None).
#[pyclass(frozen, module = "rsnet.engine")]
pub struct RunContext {
    ctx: Context,
    #[pyo3(get)]
    stream: Option<usize>,
}

#[pymethods]
impl RunContext {
    #[getter]
    fn ctx(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        super::convert::context_to_py(py, self.ctx).map(Bound::unbind)
    }
}

/// Ends an asynchronous operation: call it once, from any thread; `error=exc` fails the operation.
#[pyclass(frozen, module = "rsnet.engine", name = "OnComplete")]
pub struct Completion {
    function: Function,
    token: Mutex<Option<OnComplete>>,
}

#[pymethods]
impl Completion {
    #[pyo3(signature = (error=None))]
    fn __call__(&self, py: Python<'_>, error: Option<Bound<'_, PyBaseException>>) -> PyResult<()> {
        let Some(token) = self.token.lock().take() else {
            let function = self.function.get().bind(py);
            let text = format!("operation {} was completed twice", name_of(function)?);
            return Err(PyRuntimeError::new_err(text));
        };
        let result = match error {
            None => Ok(()),
            Some(e) => Err(from_py(py, PyErr::from_value(e.into_any()))),
        };
        token.complete(result);
        Ok(())
    }
}

/// A ready-made operation. Made by `new_operator`.
#[pyclass(frozen, module = "rsnet.engine")]
pub struct Operator {
    operation: Operation,
    /// Keeps the variables alive.
    _handles: Vec<Py<PyAny>>,
}

type Vars = SmallVec<[Var; 4]>;

/// What the user gave as a list, which keeps its variables alive meanwhile; of any iterable, which may be a generator
/// that gives its variables once, a list is made.
fn listed<'py>(vars: Option<Bound<'py, PyAny>>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(vars) = vars else { return Ok(None) };
    if vars.is_instance_of::<PyList>() || vars.is_instance_of::<PyTuple>() {
        return Ok(Some(vars));
    }
    let items = vars.try_iter()?.collect::<PyResult<Vec<_>>>()?;
    Ok(Some(PyTuple::new(vars.py(), items)?.into_any()))
}

fn vars(list: &Bound<'_, PyAny>) -> PyResult<Vars> {
    let one = |item: &Bound<'_, PyAny>| match item.cast::<Variable>() {
        Ok(v) => Ok(v.get().0),
        Err(_) => Err(PyTypeError::new_err(format!(
            "expected an engine variable, got {}",
            item.get_type()
        ))),
    };
    if let Ok(list) = list.cast::<PyList>() {
        return list.iter().map(|item| one(&item)).collect();
    }
    if let Ok(tuple) = list.cast::<PyTuple>() {
        return tuple.iter().map(|item| one(&item)).collect();
    }
    list.try_iter()?.map(|item| one(&item?)).collect()
}

fn context(ctx: Option<&Bound<'_, PyAny>>) -> PyResult<Context> {
    match ctx {
        None => Ok(Context::default()),
        // Most often the function's arguments were mistaken for those of another call.
        Some(text) if text.is_instance_of::<PyString>() => {
            let repr = text.repr()?;
            Err(PyTypeError::new_err(format!("ctx must be a Context, such as cpu(0), got {repr}")))
        }
        some => context_arg(some),
    }
}

/// The qualified name of a function, or what it prints as.
fn name_of<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    match function.getattr(interned!(function.py(), "__qualname__")) {
        Ok(name) => match name.cast_into::<PyString>() {
            Ok(name) => Ok(name),
            Err(e) => e.into_inner().str(),
        },
        Err(_) => function.str(),
    }
}

fn prop_arg(prop: Option<&str>) -> PyResult<Prop> {
    Ok(match prop {
        None | Some("normal") => Prop::Normal,
        Some("copy_from_gpu") => Prop::CopyFromDevice,
        Some("copy_to_gpu") => Prop::CopyToDevice,
        Some("cpu_prioritized") => Prop::CpuPrioritized,
        Some("async") => Prop::Async,
        Some("delete_var") => Prop::DeleteVar,
        Some("gpu_prioritized") => Prop::GpuPrioritized,
        Some("no_skip") => Prop::NoSkip,
        Some(other) => {
            return Err(PyValueError::new_err(format!(
                "prop '{other}' is none of normal, copy_from_gpu, copy_to_gpu, cpu_prioritized, async, \
                 delete_var, gpu_prioritized, no_skip"
            )));
        }
    })
}

/// How a Python function ends its operation.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// When it returns.
    ByReturning,
    /// When it, or somebody else, calls `on_complete`.
    ByToken,
}

/// One push of a function, or of nothing.
struct Pushing<'a> {
    ctx: Context,
    reads: &'a [Var],
    writes: &'a [Var],
    prop: Prop,
    priority: i32,
    name: Option<&'a str>,
}

impl Pushing<'_> {
    fn push(&self, py: Python<'_>, function: Option<Bound<'_, PyAny>>, ends: Ends) -> PyResult<()> {
        let derived = match (&self.name, &function) {
            (Some(_), _) | (_, None) => None,
            (None, Some(f)) => Some(name_of(f)?),
        };
        let derived = derived.as_ref().map(|n| n.to_str()).transpose()?;
        let name = self.name.or(derived).unwrap_or("function");
        let push = Push {
            ctx: self.ctx,
            prop: self.prop,
            priority: self.priority,
            // What the engine runs only hands the function on, or is nothing at all.
            cheap: true,
            origin: Some(&user_line),
            ..Push::new(name, self.reads, self.writes)
        };
        let Some(function) = function else {
            return runtime().engine.push(Task::nothing(), push).py(py);
        };
        if !function.is_callable() {
            return Err(PyTypeError::new_err(format!("{function} is not callable")));
        }
        let function = Function::Own(function.unbind());
        let hand_on = move |run: &EngineRun, token| hand_on(function, ends, run, token);
        let task = match ends {
            Ends::ByReturning => Task::elsewhere(hand_on),
            Ends::ByToken => Task::asynchronous(hand_on),
        };
        let engine = &runtime().engine;
        if !engine.runs_inside_push() {
            return engine.push(task, push).py(py);
        }
        // The naive engine waits in its push, for whoever completes the operation.
        let Pushing { ctx, reads, writes, prop, priority, .. } = *self;
        py.detach(|| {
            let origin: Option<Origin<'_>> = Some(&user_line);
            engine
                .push(task, Push { ctx, prop, priority, origin, ..Push::new(name, reads, writes) })
        })
        .py(py)
    }
}

/// A Python function: of one push, or of all those of a ready-made operation. (A reference of its own could only be
/// made by a thread that is attached.)
enum Function {
    Own(Py<PyAny>),
    Shared(Arc<Py<PyAny>>),
}

impl Function {
    fn get(&self) -> &Py<PyAny> {
        match self {
            Function::Own(f) => f,
            Function::Shared(f) => f,
        }
    }
}

/// What the engine runs: sends the function to an attached thread.
fn hand_on(function: Function, ends: Ends, run: &EngineRun, token: OnComplete) {
    let call = Call { function, ends, ctx: run.ctx, stream: run.stream, token };
    if runtime().engine.runs_inside_push() {
        // The naive engine: here and now. Its thread may hold the interpreter while it waits.
        return Python::attach(|py| call.run(py));
    }
    attached::submit_job(Job::Call(call));
}

/// A Python function on its way to an attached thread.
pub struct Call {
    function: Function,
    ends: Ends,
    ctx: Context,
    stream: Option<usize>,
    token: OnComplete,
}

impl Call {
    pub fn run(self, py: Python<'_>) {
        let Call { function, ends, ctx, stream, token } = self;
        let context = run_context(py, ctx, stream);
        match ends {
            Ends::ByReturning => {
                let call = |c| function.get().call1(py, (c,)).map(drop);
                let result = token.inside(|| context.and_then(call));
                token.complete(result.map_err(|e| from_py(py, e)));
            }
            Ends::ByToken => {
                let mark = token.mark();
                let done = Completion { function, token: Mutex::new(Some(token)) };
                let Ok(done) = Bound::new(py, done) else { return };
                let function = done.get().function.get();
                let call = |c| function.call1(py, (c, done.clone())).map(drop);
                if let Err(e) = mark.inside(|| context.and_then(call)) {
                    let token = done.get().token.lock().take();
                    match token {
                        Some(token) => token.complete(Err(from_py(py, e))),
                        None => e.write_unraisable(py, Some(function.bind(py))),
                    }
                }
            }
        }
    }
}

/// The context object of a call. The usual one is made once: it says nothing but its device.
fn run_context(
    py: Python<'_>,
    ctx: Context,
    stream: Option<usize>,
) -> PyResult<Bound<'_, RunContext>> {
    static USUAL: Lazy<Py<RunContext>> = Lazy::new();
    if ctx != Context::default() || stream.is_some() {
        return Bound::new(py, RunContext { ctx, stream });
    }
    let usual = USUAL.get_or_try_init(py, || Py::new(py, RunContext { ctx, stream }))?;
    Ok(usual.bind(py).clone())
}

/// A new variable, ready to be read and written.
#[pyfunction]
fn new_variable() -> Variable {
    Variable(runtime().engine.new_token())
}

/// Runs ``fn(run_context)`` once what ``const_vars`` and ``mutate_vars`` wait for is done. Returns at once.
///
/// Parameters
/// ----------
/// fn : callable or None
///     Called on a thread of its own with a `RunContext`; None only orders.
/// ctx : Context, optional
///     The device, ``cpu(0)`` by default.
/// const_vars, mutate_vars : list of Variable, optional
///     What ``fn`` reads, and what it writes; no variable twice.
/// prop : str, optional
///     normal, copy_from_gpu, copy_to_gpu, cpu_prioritized, async, delete_var, gpu_prioritized or no_skip (runs even
///     when a variable carries an error).
/// priority : int, optional
///     Greater runs earlier among operations that are ready.
/// name : str, optional
///     For errors, hooks and reports; by default that of ``fn``.
///
/// Raises
/// ------
/// ValueError
///     A variable is named twice, both read and written, or deleted; an unknown ``prop``.
/// MXNetError
///     The device is not there.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> page, log = engine.new_variable(), []
/// >>> engine.push_sync(lambda rc: log.append("fetch"), mutate_vars=[page])
/// >>> engine.push_sync(lambda rc: log.append("print"), const_vars=[page])
/// >>> engine.wait_for_var(page)
/// >>> log
/// ['fetch', 'print']
#[pyfunction]
#[pyo3(signature = (r#fn, ctx=None, const_vars=None, mutate_vars=None, prop=None, priority=0, name=None))]
#[expect(clippy::too_many_arguments, reason = "the arguments of the Python function")]
fn push_sync(
    py: Python<'_>,
    r#fn: Option<Bound<'_, PyAny>>,
    ctx: Option<Bound<'_, PyAny>>,
    const_vars: Option<Bound<'_, PyAny>>,
    mutate_vars: Option<Bound<'_, PyAny>>,
    prop: Option<&str>,
    priority: i32,
    name: Option<&str>,
) -> PyResult<()> {
    let (const_vars, mutate_vars) = (listed(const_vars)?, listed(mutate_vars)?);
    let reads = const_vars.as_ref().map_or(Ok(Vars::new()), vars)?;
    let writes = mutate_vars.as_ref().map_or(Ok(Vars::new()), vars)?;
    let (ctx, prop) = (context(ctx.as_ref())?, prop_arg(prop)?);
    let call = Pushing { ctx, reads: &reads, writes: &writes, prop, priority, name };
    call.push(py, r#fn, Ends::ByReturning)
}

/// As `push_sync`, with ``fn(run_context, on_complete)``: done when ``on_complete()`` is called, once, from
/// any thread. ``on_complete(error=exc)`` fails it. A second call is an error, and so is to forget it.
///
/// Examples
/// --------
/// >>> import threading
/// >>> from rsnet import engine
/// >>> answer, log = engine.new_variable(), []
/// >>> def ask(rc, on_complete):
/// ...     threading.Timer(0.01, lambda: (log.append("answer"), on_complete())).start()
/// >>> engine.push_async(ask, mutate_vars=[answer])
/// >>> engine.push_sync(lambda rc: log.append("thanks"), const_vars=[answer])
/// >>> engine.wait_for_var(answer)
/// >>> log
/// ['answer', 'thanks']
#[pyfunction]
#[pyo3(signature = (r#fn, ctx=None, const_vars=None, mutate_vars=None, prop=None, priority=0, name=None))]
#[expect(clippy::too_many_arguments, reason = "the arguments of the Python function")]
fn push_async(
    py: Python<'_>,
    r#fn: Bound<'_, PyAny>,
    ctx: Option<Bound<'_, PyAny>>,
    const_vars: Option<Bound<'_, PyAny>>,
    mutate_vars: Option<Bound<'_, PyAny>>,
    prop: Option<&str>,
    priority: i32,
    name: Option<&str>,
) -> PyResult<()> {
    let (const_vars, mutate_vars) = (listed(const_vars)?, listed(mutate_vars)?);
    let reads = const_vars.as_ref().map_or(Ok(Vars::new()), vars)?;
    let writes = mutate_vars.as_ref().map_or(Ok(Vars::new()), vars)?;
    let (ctx, prop) = (context(ctx.as_ref())?, prop_arg(prop)?);
    let call = Pushing { ctx, reads: &reads, writes: &writes, prop, priority, name };
    call.push(py, Some(r#fn), Ends::ByToken)
}

/// An operation to be pushed many times by `push`: ``fn(run_context)`` with its variables, checked once.
///
/// Parameters, except for ``ctx`` and ``priority``, which `push` takes, and errors are those of `push_sync`.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> counter, ticks = engine.new_variable(), []
/// >>> tick = engine.new_operator(lambda rc: ticks.append(len(ticks)), [], [counter])
/// >>> for _ in range(3):
/// ...     engine.push(tick)
/// >>> engine.delete_operator(tick)
/// >>> engine.wait_for_var(counter)
/// >>> ticks
/// [0, 1, 2]
#[pyfunction]
#[pyo3(signature = (r#fn, const_vars=None, mutate_vars=None, prop=None, name=None))]
fn new_operator(
    py: Python<'_>,
    r#fn: Option<Bound<'_, PyAny>>,
    const_vars: Option<Bound<'_, PyAny>>,
    mutate_vars: Option<Bound<'_, PyAny>>,
    prop: Option<&str>,
    name: Option<&str>,
) -> PyResult<Operator> {
    if let Some(f) = r#fn.as_ref().filter(|f| !f.is_callable()) {
        return Err(PyTypeError::new_err(format!("{f} is not callable")));
    }
    let (const_vars, mutate_vars) = (listed(const_vars)?, listed(mutate_vars)?);
    let reads = const_vars.as_ref().map_or(Ok(Vars::new()), vars)?;
    let writes = mutate_vars.as_ref().map_or(Ok(Vars::new()), vars)?;
    let derived = match (name, &r#fn) {
        (None, Some(f)) => Some(name_of(f)?),
        _ => None,
    };
    let derived = derived.as_ref().map(|n| n.to_str()).transpose()?;
    let name = name.or(derived).unwrap_or("function");
    let mut handles: Vec<Py<PyAny>> = Vec::new();
    for list in [&const_vars, &mutate_vars].into_iter().flatten() {
        list.try_iter()?.try_for_each(|v| v.map(|v| handles.push(v.unbind())))?;
    }
    let push = Push { prop: prop_arg(prop)?, cheap: true, ..Push::new(name, &reads, &writes) };
    let engine = &runtime().engine;
    let operation = match r#fn {
        None => engine.new_operation(Arc::new(|_| Ok(())), push),
        Some(f) => {
            let f = Arc::new(f.unbind());
            let run = move |run: &EngineRun, token| {
                hand_on(Function::Shared(f.clone()), Ends::ByReturning, run, token)
            };
            engine.new_async_operation(Arc::new(run), push)
        }
    };
    Ok(Operator { operation: operation.py(py)?, _handles: handles })
}

/// Pushes a ready-made operation.
#[pyfunction]
#[pyo3(signature = (op, ctx=None, priority=0))]
fn push(
    py: Python<'_>,
    op: &Operator,
    ctx: Option<Bound<'_, PyAny>>,
    priority: i32,
) -> PyResult<()> {
    let ctx = context(ctx.as_ref())?;
    let engine = &runtime().engine;
    let push = || engine.push_operation_at(&op.operation, ctx, priority, Some(&user_line));
    // The naive engine waits in its push.
    if engine.runs_inside_push() { py.detach(push).py(py) } else { push().py(py) }
}

/// Ends a ready-made operation; what was pushed of it still runs.
#[pyfunction]
fn delete_operator(op: &Operator) {
    runtime().engine.delete_operation(op.operation.clone());
}

/// Ends a variable after every earlier use of it; ``fn()`` runs then. No use is legal after the call.
#[pyfunction]
#[pyo3(signature = (v, r#fn=None))]
fn delete_variable(v: &Variable, r#fn: Option<Py<PyAny>>) {
    let last = r#fn.map(|f| -> Box<dyn FnOnce() + Send> {
        Box::new(move || {
            attached::submit(Box::new(move |py| {
                if let Err(e) = f.call0(py) {
                    e.write_unraisable(py, Some(f.bind(py)));
                }
            }));
        })
    });
    runtime().engine.delete_variable(v.0, last);
}

/// Blocks until every function pushed before that names ``v`` is done; raises its error once.
#[pyfunction]
fn wait_for_var(py: Python<'_>, v: &Variable) -> PyResult<()> {
    let var = v.0;
    py.detach(|| runtime().engine.wait_for_var(var, &mut poll_signals)).py(py)
}

/// Blocks until everything pushed before is done; raises the first error.
#[pyfunction]
fn wait_for_all(py: Python<'_>) -> PyResult<()> {
    py.detach(|| runtime().engine.wait_for_all(&mut poll_signals)).py(py)
}

thread_local! {
    static FORK: RefCell<Option<(HeldForFork<'static>, attached::Held)>> =
        const { RefCell::new(None) };
}

/// A count given by the user.
fn count(name: &str, n: i64, least: i64) -> PyResult<usize> {
    let right = (n >= least).then(|| usize::try_from(n).ok()).flatten();
    right.ok_or_else(|| {
        PyValueError::new_err(format!("{name} must be a number of at least {least}, got {n}"))
    })
}

/// Sets how many consecutive pushes of this thread are gathered into one operation; returns the previous number.
#[pyfunction]
fn set_bulk_size(py: Python<'_>, size: i64) -> PyResult<usize> {
    runtime().engine.set_bulk_size(count("size", size, 0)?).py(py)
}

/// Threads that run operations and kernels: at first as many as the process may use cores (its CPU affinity and its
/// cgroup's quota tell), or fewer if the environment variable ``OMP_NUM_THREADS`` says so.
#[pyfunction]
fn num_threads() -> usize {
    runtime().engine.num_threads()
}

/// Changes the number of threads, for all work from now on. Waits for what is running.
///
/// Raises
/// ------
/// ValueError
///     If `n` is less than 1, or more than the engine has places for.
#[pyfunction]
fn set_num_threads(py: Python<'_>, n: i64) -> PyResult<()> {
    let n = count("n", n, 1)?;
    py.detach(|| runtime().engine.set_num_threads(n)).py(py)
}

/// Finishes all work and ends the threads; the next push, or `start`, brings them back.
#[pyfunction]
fn stop(py: Python<'_>) -> PyResult<()> {
    py.detach(|| runtime().engine.stop()).py(py)
}

#[pyfunction]
fn start() {
    runtime().engine.start();
}

/// A wait that lasts longer raises an error that names what it waits for. ``None``: no limit.
///
/// The error lists every operation that holds the wait up, the running ones first, with the variables it writes and
/// the line that pushed it. Nothing is lost: the wait may be repeated.
///
/// Examples
/// --------
/// >>> import threading
/// >>> from rsnet import engine
/// >>> gate, v = threading.Event(), engine.new_variable()
/// >>> engine.set_wait_timeout(0.1)
/// >>> engine.push_sync(lambda rc: gate.wait(), mutate_vars=[v], name="stuck")
/// >>> try:
/// ...     engine.wait_for_var(v)
/// ... except Exception as error:
/// ...     print("operation 'stuck' is running" in str(error))
/// True
/// >>> gate.set()
/// >>> engine.set_wait_timeout(None)
/// >>> engine.wait_for_var(v)
#[pyfunction]
#[pyo3(signature = (seconds=None))]
fn set_wait_timeout(seconds: Option<f64>) -> PyResult<()> {
    let limit = seconds.map(Duration::try_from_secs_f64).transpose();
    let limit = limit.map_err(|e| PyValueError::new_err(format!("seconds: {e}")))?;
    runtime().engine.set_wait_timeout(limit);
    Ok(())
}

/// ``fn(event, id, name, ctx, time_ns)`` is told of every operation 'queued', 'started' and 'finished'.
#[pyfunction]
#[pyo3(signature = (r#fn=None))]
fn set_hook(py: Python<'_>, r#fn: Option<Py<PyAny>>) {
    engine_hook::set(py, r#fn);
}

/// At exit: skips what has not started, waits for what runs, for a bounded time.
#[pyfunction]
fn _shutdown(py: Python<'_>) {
    let engine = &runtime().engine;
    engine.notify_shutdown();
    attached::close(py, Duration::from_secs(1));
    py.detach(|| {
        let until = std::time::Instant::now() + Duration::from_secs(1);
        let _ = engine.wait_for_all(&mut || match std::time::Instant::now() < until {
            true => Ok(()),
            false => Err(Error::execution("still running at exit")),
        });
    });
}

extern "C" fn before_fork() {
    let held = (runtime().engine.before_fork(), attached::before_fork());
    FORK.with_borrow_mut(|place| *place = Some(held));
}

extern "C" fn after_fork_in_parent() {
    if let Some((engine, _)) = FORK.take() {
        engine.release_in_parent();
    }
}

extern "C" fn after_fork_in_child() {
    if let Some((engine, attached)) = FORK.take() {
        attached.release_in_child();
        engine.release_in_child();
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let e = PyModule::new(m.py(), "engine")?;
    e.add_class::<Variable>()?;
    e.add_class::<RunContext>()?;
    e.add_class::<Completion>()?;
    e.add_class::<Operator>()?;
    e.add_function(wrap_pyfunction!(new_variable, &e)?)?;
    e.add_function(wrap_pyfunction!(push_sync, &e)?)?;
    e.add_function(wrap_pyfunction!(push_async, &e)?)?;
    e.add_function(wrap_pyfunction!(new_operator, &e)?)?;
    e.add_function(wrap_pyfunction!(push, &e)?)?;
    e.add_function(wrap_pyfunction!(delete_operator, &e)?)?;
    e.add_function(wrap_pyfunction!(delete_variable, &e)?)?;
    e.add_function(wrap_pyfunction!(wait_for_var, &e)?)?;
    e.add_function(wrap_pyfunction!(wait_for_all, &e)?)?;
    e.add_function(wrap_pyfunction!(set_bulk_size, &e)?)?;
    e.add_function(wrap_pyfunction!(num_threads, &e)?)?;
    e.add_function(wrap_pyfunction!(set_num_threads, &e)?)?;
    e.add_function(wrap_pyfunction!(start, &e)?)?;
    e.add_function(wrap_pyfunction!(stop, &e)?)?;
    e.add_function(wrap_pyfunction!(set_wait_timeout, &e)?)?;
    e.add_function(wrap_pyfunction!(set_hook, &e)?)?;
    e.add_function(wrap_pyfunction!(_shutdown, &e)?)?;
    m.add_submodule(&e)?;
    static FORK_HANDLERS: std::sync::Once = std::sync::Once::new();
    FORK_HANDLERS.call_once(|| {
        // SAFETY: registers three functions that only take and release locks.
        unsafe {
            libc::pthread_atfork(
                Some(before_fork),
                Some(after_fork_in_parent),
                Some(after_fork_in_child),
            );
        }
    });
    Ok(())
}
