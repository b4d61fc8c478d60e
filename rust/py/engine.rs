//! `rsnet.engine`: the dependency engine for any Python function.
//!
//! A pushed function never runs inside its push, nor on a compute thread: when the engine finds it ready it
//! is handed to an attached thread, and the operation ends with it. So every push returns at once.

use super::convert::context_arg;
pub use super::engine_call::Call;
use super::engine_call::{Completion, Ends, Function, Named, RunContext, hand_on, name_of};
use super::error::IntoPy;
use super::lazy::interned;
use super::origin::user_line;
use super::{attached, runtime};
use crate::context::Context;
use crate::engine::RunContext as EngineRun;
use crate::engine::{Operation, Origin, Prop, Push, Task, Var};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use smallvec::SmallVec;
use std::sync::Arc;

/// A token that orders the operations that name it. Made by `new_variable`.
///
/// When the last reference to it is gone it is deleted, after every function pushed before that names it.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> v = engine.new_variable()
/// >>> engine.push_sync(None, mutate_vars=[v])
/// >>> engine.wait_for_var(v)
/// >>> v.version
/// 1
#[pyclass(frozen, module = "rsnet.engine")]
pub struct Variable(Var);

#[pymethods]
impl Variable {
    /// Completed writes, those of skipped functions included.
    #[getter]
    fn version(&self) -> u64 {
        runtime().engine.version(self.0)
    }

    fn __repr__(&self) -> String {
        format!("<Variable {} version={}>", self.0.number(), self.version())
    }
}

impl Variable {
    pub fn var(&self) -> Var {
        self.0
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        runtime().engine.delete_variable(self.0, None);
    }
}

/// A ready-made operation. Made by `new_operator`, pushed by `push`. It keeps its variables alive.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> type(engine.new_operator(None, [], [engine.new_variable()]))
/// <class 'rsnet.engine.Operator'>
#[pyclass(frozen, module = "rsnet.engine")]
pub struct Operator {
    operation: Operation,
    /// Keeps the variables alive.
    _handles: Vec<Py<PyAny>>,
}

type Vars = SmallVec<[Var; 4]>;

/// What the user gave as a list, which keeps its variables alive meanwhile; of any iterable, which may be a generator
/// that gives its variables once, a list is made.
fn listed<'py>(
    argument: &str,
    vars: Option<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(vars) = vars else { return Ok(None) };
    if vars.is_instance_of::<PyList>() || vars.is_instance_of::<PyTuple>() {
        return Ok(Some(vars));
    }
    let Ok(items) = vars.try_iter() else {
        let got = vars.get_type();
        return Err(PyTypeError::new_err(format!(
            "{argument}: expected a list of engine variables, got {got}"
        )));
    };
    let items = items.collect::<PyResult<Vec<_>>>()?;
    Ok(Some(PyTuple::new(vars.py(), items)?.into_any()))
}

/// The variables of what is [`listed`]. (One by one: to collect results takes as long as the rest of a push.)
fn vars(argument: &str, listed: Option<&Bound<'_, PyAny>>) -> PyResult<Vars> {
    let mut vars = Vars::new();
    let mut add = |item: Bound<'_, PyAny>| match item.cast::<Variable>() {
        Ok(v) => {
            vars.push(v.get().0);
            Ok(())
        }
        Err(_) => Err(PyTypeError::new_err(format!(
            "{argument}: expected engine variables, got {}",
            item.get_type()
        ))),
    };
    match listed {
        None => {}
        Some(listed) => match listed.cast::<PyList>() {
            Ok(list) => list.iter().try_for_each(&mut add)?,
            Err(_) => listed.cast::<PyTuple>()?.iter().try_for_each(&mut add)?,
        },
    }
    Ok(vars)
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

/// One push of a function, or of nothing.
struct Pushing<'a> {
    ctx: Context,
    reads: &'a [Var],
    writes: &'a [Var],
    prop: Prop,
    priority: i32,
}

/// The name of an operation: the one that it was given, or that of its function.
fn name_for<'py>(
    py: Python<'py>,
    given: Option<Bound<'py, PyString>>,
    function: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyString>> {
    match (given, function) {
        (Some(name), _) => Ok(name),
        (None, Some(function)) => name_of(function),
        (None, None) => Ok(interned!(py, "function").clone()),
    }
}

impl Pushing<'_> {
    fn push<'py>(
        &self,
        py: Python<'py>,
        function: Option<Bound<'py, PyAny>>,
        name: Option<Bound<'py, PyString>>,
        ends: Ends,
    ) -> PyResult<()> {
        let kept_name = name_for(py, name, function.as_ref())?;
        let name = kept_name.to_str()?;
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
        let (function, label) = (function.unbind(), kept_name.clone().unbind());
        let function = Function::Own(Named { function, name: label });
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
        let Pushing { ctx, reads, writes, prop, priority } = *self;
        py.detach(|| {
            let origin: Option<Origin<'_>> = Some(&user_line);
            engine
                .push(task, Push { ctx, prop, priority, origin, ..Push::new(name, reads, writes) })
        })
        .py(py)
    }
}

/// A new variable, ready to be read and written.
///
/// It is a token: there is nothing behind it. Choose one for each thing that functions share (a file, a dictionary, a
/// connection) and name it wherever a function reads or writes that thing. The engine then keeps the order of the
/// pushes between functions of which one writes it. Nothing stops a function from touching what it does not name.
///
/// Returns
/// -------
/// Variable
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> account, balance = engine.new_variable(), [0]
/// >>> def pay(rc, amount):
/// ...     balance[0] += amount
/// >>> for amount in (20, 30, -5):
/// ...     engine.push_sync(lambda rc, a=amount: pay(rc, a), mutate_vars=[account])
/// >>> engine.wait_for_var(account)
/// >>> balance[0], account.version
/// (45, 3)
#[pyfunction]
fn new_variable() -> Variable {
    Variable(runtime().engine.new_token())
}

/// Runs ``fn(run_context)`` once what ``const_vars`` and ``mutate_vars`` wait for is done. Returns at once.
///
/// Parameters
/// ----------
/// fn : callable or None
///     Called with a `RunContext` on a thread that may block; None only orders. It may push, wait, and fork.
/// ctx : Context, optional
///     The device, ``cpu(0)`` by default.
/// const_vars, mutate_vars : iterable of Variable, optional
///     What ``fn`` reads, and what it writes; no variable twice.
/// prop : str, optional
///     normal; cpu_prioritized and gpu_prioritized (as if by a priority); no_skip and delete_var (runs even when a
///     variable carries an error); async, copy_from_gpu and copy_to_gpu (names of MXNet's, here as normal).
/// priority : int, optional
///     Greater runs earlier among operations that are ready; below zero: after all others.
/// name : str, optional
///     For errors, hooks and reports; by default that of ``fn``.
///
/// Raises
/// ------
/// TypeError
///     ``fn`` is not callable, ``ctx`` no context, or something else than a variable is in a list.
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
fn push_sync<'py>(
    py: Python<'py>,
    r#fn: Option<Bound<'py, PyAny>>,
    ctx: Option<Bound<'py, PyAny>>,
    const_vars: Option<Bound<'py, PyAny>>,
    mutate_vars: Option<Bound<'py, PyAny>>,
    prop: Option<&str>,
    priority: i32,
    name: Option<Bound<'py, PyString>>,
) -> PyResult<()> {
    let const_vars = listed("const_vars", const_vars)?;
    let mutate_vars = listed("mutate_vars", mutate_vars)?;
    let reads = vars("const_vars", const_vars.as_ref())?;
    let writes = vars("mutate_vars", mutate_vars.as_ref())?;
    let (ctx, prop) = (context(ctx.as_ref())?, prop_arg(prop)?);
    let call = Pushing { ctx, reads: &reads, writes: &writes, prop, priority };
    call.push(py, r#fn, name, Ends::ByReturning)
}

/// Runs ``fn(run_context, on_complete)``, which only starts work: the operation is done when ``on_complete()`` is called.
///
/// It is called once, from any thread, before or after ``fn`` returns; ``on_complete(error=exc)`` fails the operation. So a
/// pending answer costs no thread.
///
/// Parameters
/// ----------
/// fn : callable
///     Called with a `RunContext` and an `OnComplete`. If it raises, the operation fails.
/// ctx, const_vars, mutate_vars, prop, priority, name
///     As for `push_sync`.
///
/// Raises
/// ------
/// TypeError, ValueError, MXNetError
///     As `push_sync`. Under the naive engine, which waits here for ``on_complete``, also KeyboardInterrupt.
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
fn push_async<'py>(
    py: Python<'py>,
    r#fn: Bound<'py, PyAny>,
    ctx: Option<Bound<'py, PyAny>>,
    const_vars: Option<Bound<'py, PyAny>>,
    mutate_vars: Option<Bound<'py, PyAny>>,
    prop: Option<&str>,
    priority: i32,
    name: Option<Bound<'py, PyString>>,
) -> PyResult<()> {
    let const_vars = listed("const_vars", const_vars)?;
    let mutate_vars = listed("mutate_vars", mutate_vars)?;
    let reads = vars("const_vars", const_vars.as_ref())?;
    let writes = vars("mutate_vars", mutate_vars.as_ref())?;
    let (ctx, prop) = (context(ctx.as_ref())?, prop_arg(prop)?);
    let call = Pushing { ctx, reads: &reads, writes: &writes, prop, priority };
    call.push(py, Some(r#fn), name, Ends::ByToken)
}

/// Makes an operation to be pushed many times by `push`: ``fn(run_context)`` with its variables, checked once.
///
/// Parameters
/// ----------
/// fn, const_vars, mutate_vars, prop, name
///     As for `push_sync`; ``ctx`` and ``priority`` are those of each `push`.
///
/// Returns
/// -------
/// Operator
///
/// Raises
/// ------
/// TypeError, ValueError
///     As `push_sync`.
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
fn new_operator<'py>(
    py: Python<'py>,
    r#fn: Option<Bound<'py, PyAny>>,
    const_vars: Option<Bound<'py, PyAny>>,
    mutate_vars: Option<Bound<'py, PyAny>>,
    prop: Option<&str>,
    name: Option<Bound<'py, PyString>>,
) -> PyResult<Operator> {
    if let Some(f) = r#fn.as_ref().filter(|f| !f.is_callable()) {
        return Err(PyTypeError::new_err(format!("{f} is not callable")));
    }
    let const_vars = listed("const_vars", const_vars)?;
    let mutate_vars = listed("mutate_vars", mutate_vars)?;
    let reads = vars("const_vars", const_vars.as_ref())?;
    let writes = vars("mutate_vars", mutate_vars.as_ref())?;
    let kept_name = name_for(py, name, r#fn.as_ref())?;
    let name = kept_name.to_str()?;
    let mut handles: Vec<Py<PyAny>> = Vec::new();
    for list in [&const_vars, &mutate_vars].into_iter().flatten() {
        list.try_iter()?.try_for_each(|v| v.map(|v| handles.push(v.unbind())))?;
    }
    let push = Push { prop: prop_arg(prop)?, cheap: true, ..Push::new(name, &reads, &writes) };
    let engine = &runtime().engine;
    let operation = match r#fn {
        None => engine.new_operation(Arc::new(|_| Ok(())), push),
        Some(f) => {
            let name = kept_name.clone().unbind();
            let named = Arc::new(Named { function: f.unbind(), name });
            let run = move |run: &EngineRun, token| {
                hand_on(Function::Shared(named.clone()), Ends::ByReturning, run, token)
            };
            engine.new_async_operation(Arc::new(run), push)
        }
    };
    Ok(Operator { operation: operation.py(py)?, _handles: handles })
}

/// Pushes a ready-made operation. Returns at once.
///
/// Parameters
/// ----------
/// op : Operator
/// ctx : Context, optional
///     The device, ``cpu(0)`` by default.
/// priority : int, optional
///     As for `push_sync`.
///
/// Raises
/// ------
/// ValueError
///     The operation or one of its variables is deleted.
/// MXNetError
///     The device is not there.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> v, lines = engine.new_variable(), []
/// >>> note = engine.new_operator(lambda rc: lines.append(str(rc.ctx)), [], [v])
/// >>> engine.push(note)
/// >>> engine.push(note, priority=1)
/// >>> engine.wait_for_var(v)
/// >>> lines
/// ['cpu(0)', 'cpu(0)']
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

/// Ends a ready-made operation; what was pushed of it still runs, and another push of it is a ValueError.
///
/// Parameters
/// ----------
/// op : Operator
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> op = engine.new_operator(None, [], [engine.new_variable()])
/// >>> engine.delete_operator(op)
/// >>> try:
/// ...     engine.push(op)
/// ... except ValueError as error:
/// ...     print(error)
/// operation 'function' was deleted
#[pyfunction]
fn delete_operator(op: &Operator) {
    runtime().engine.delete_operation(op.operation.clone());
}

/// Ends a variable after every earlier use of it. Returns at once; any later use of the variable is a ValueError.
///
/// Parameters
/// ----------
/// v : Variable
/// fn : callable, optional
///     Called without arguments when all functions pushed before that name ``v`` are done. What it raises is printed and
///     goes no further.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> import threading
/// >>> connection, log, closed = engine.new_variable(), [], threading.Event()
/// >>> engine.push_sync(lambda rc: log.append("use"), mutate_vars=[connection])
/// >>> engine.delete_variable(connection, lambda: (log.append("close"), closed.set()))
/// >>> closed.wait(60)
/// True
/// >>> log
/// ['use', 'close']
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
    super::engine_control::register(&e)?;
    m.add_submodule(&e)?;
    Ok(())
}
