//! `rsnet.engine`: the dependency engine for any Python function.
//!
//! A pushed function never runs inside its push, nor on a compute thread: when the engine finds it
//! ready it is handed to a callback thread, and the operation ends with it. So every push returns
//! at once, but for the naive engine, which waits for the end.

use super::call_python::CallPython;
use super::call_site::find_call_site;
use super::engine_args::{Listed, context, function_arg, name_arg, priority_arg, prop_arg};
use super::engine_call::{Completion, Ends, Named, PushedFunction, RunContext, name_of};
use super::engine_push::{PushArguments, Pushing, UNNAMED, hand_on};
use super::engine_variable::Variable;
use super::error::IntoPy;
use super::once_cell::interned;
use super::runtime;
use crate::context::Context;
use crate::engine::RunContext as EngineRun;
use crate::engine::{Operation, Prop, Push, RunOn, Var};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyString, PyTuple};
use std::sync::Arc;

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
    /// The function, which the operation has too.
    function: Option<Arc<Named>>,
    /// Keeps the variables alive.
    _handles: Vec<Py<PyAny>>,
}

#[pymethods]
impl Operator {
    /// Shows the function to the garbage collector, unless a push still has to run it. (It goes
    /// with the operator once the objects that refer to it are cleared.)
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.function {
            Some(named) if Arc::strong_count(named) == 2 && !self.operation.is_shared() => {
                visit.call(&named.function)
            }
            _ => Ok(()),
        }
    }
}

/// A new variable, ready to be read and written.
///
/// It is a token: there is nothing behind it. Choose one for each thing that functions share (a
/// file, a dictionary, a connection) and name it wherever a function reads or writes that thing.
/// The engine then keeps the order of the pushes between functions of which one writes it. Nothing
/// stops a function from touching what it does not name.
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
    Variable::new(runtime().engine.new_token())
}

/// Runs ``fn(run_context)`` once what ``const_vars`` and ``mutate_vars`` wait for is done. Returns
/// at once.
///
/// Parameters
/// ----------
/// fn : callable or None
///     Called with a `RunContext` on a thread that may block; None only orders. It may push, wait,
///     and fork.
/// ctx : Context, optional
///     The device, ``cpu(0)`` by default.
/// const_vars, mutate_vars : iterable of Variable, optional
///     What ``fn`` reads, and what it writes; no variable twice, and no more than 65,535 in all.
/// prop : str, optional
///     normal; cpu_prioritized and gpu_prioritized (as if by a priority); no_skip and delete_var
///     (runs even when a variable carries an error); async, copy_from_gpu and copy_to_gpu (names of
///     MXNet's, here as normal).
/// priority : int, optional
///     Greater runs earlier among operations that are ready; below zero: after all others. From
///     -2147483648 to 2147483647.
/// name : str, optional
///     For errors, hooks and reports; by default that of ``fn``.
///
/// Raises
/// ------
/// TypeError
///     ``fn`` is not callable, or its call would run nothing because it is an ``async def`` or a
///     generator; ``ctx`` is not a context, or a list holds something other than variables.
/// ValueError
///     A variable is named twice, both read and written, or deleted; too many variables; an unknown
///     ``prop``, a ``priority`` out of range.
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
#[expect(clippy::too_many_arguments, reason = "the arguments of a Python function")]
fn push_sync<'py>(
    py: Python<'py>,
    r#fn: Option<Bound<'py, PyAny>>,
    ctx: Option<&Bound<'py, PyAny>>,
    const_vars: Option<&Bound<'py, PyAny>>,
    mutate_vars: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = prop_arg)] prop: Option<Prop>,
    #[pyo3(from_py_with = priority_arg)] priority: i32,
    #[pyo3(from_py_with = name_arg)] name: Option<Bound<'py, PyString>>,
) -> PyResult<()> {
    let arguments = PushArguments { ctx, const_vars, mutate_vars, prop, priority, name };
    arguments.push(py, r#fn, Ends::ByReturning)
}

/// Runs ``fn(run_context, on_complete)``, which only starts work: the operation is done when
/// ``on_complete()`` is called.
///
/// It is called once, from any thread, before or after ``fn`` returns; ``on_complete(error=exc)``
/// fails the operation. So a pending answer costs no thread.
///
/// Parameters
/// ----------
/// fn : callable
///     Called with a `RunContext` and an `OnComplete`. If it raises, the operation fails; what it
///     raises after it has called ``on_complete`` is only printed.
/// ctx, const_vars, mutate_vars, prop, priority, name
///     As for `push_sync`.
///
/// Raises
/// ------
/// TypeError, ValueError, MXNetError
///     As `push_sync`. Under the naive engine, which waits here for ``on_complete``, also
///     KeyboardInterrupt.
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
#[expect(clippy::too_many_arguments, reason = "the arguments of a Python function")]
fn push_async<'py>(
    py: Python<'py>,
    r#fn: Bound<'py, PyAny>,
    ctx: Option<&Bound<'py, PyAny>>,
    const_vars: Option<&Bound<'py, PyAny>>,
    mutate_vars: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = prop_arg)] prop: Option<Prop>,
    #[pyo3(from_py_with = priority_arg)] priority: i32,
    #[pyo3(from_py_with = name_arg)] name: Option<Bound<'py, PyString>>,
) -> PyResult<()> {
    let arguments = PushArguments { ctx, const_vars, mutate_vars, prop, priority, name };
    arguments.push(py, Some(r#fn), Ends::ByToken)
}

/// Makes an operation to be pushed many times by `push`: ``fn(run_context)`` with its variables,
/// checked once.
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
    const_vars: Option<&Bound<'py, PyAny>>,
    mutate_vars: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = prop_arg)] prop: Option<Prop>,
    #[pyo3(from_py_with = name_arg)] name: Option<Bound<'py, PyString>>,
) -> PyResult<Operator> {
    r#fn.as_ref().map_or(Ok(()), function_arg)?;
    let const_vars = Listed::of("const_vars", const_vars)?;
    let mutate_vars = Listed::of("mutate_vars", mutate_vars)?;
    let reads = const_vars.vars("const_vars")?;
    let writes = mutate_vars.vars("mutate_vars")?;
    let kept_name = match (name, &r#fn) {
        (Some(name), _) => name,
        (None, Some(function)) => name_of(function)?,
        (None, None) => interned!(py, UNNAMED).clone(),
    };
    let name = kept_name.to_str()?;
    let mut handles: Vec<Py<PyAny>> = Vec::new();
    for list in [&const_vars, &mutate_vars] {
        list.each(|v| {
            handles.push(v.unbind());
            Ok(())
        })?;
    }
    let prop = prop.unwrap_or(Prop::Normal);
    let push = Push { prop, run_on: RunOn::Pusher, ..Push::new(name, &reads, &writes) };
    let engine = &runtime().engine;
    let function = r#fn.map(|f| {
        let name = kept_name.clone().unbind();
        Arc::new(Named { function: f.unbind(), name })
    });
    let operation = match function.clone() {
        None => engine.new_operation(Arc::new(|_| Ok(())), push),
        Some(named) => {
            let run = move |run: &EngineRun, token| {
                hand_on(PushedFunction::Shared(named.clone()), Ends::ByReturning, run, token)
            };
            engine.new_async_operation(Arc::new(run), push)
        }
    };
    Ok(Operator { operation: operation.py(py)?, function, _handles: handles })
}

/// Pushes a prepared operation. Returns at once.
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
///     The operation or one of its variables is deleted; a ``priority`` out of range.
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
    ctx: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = priority_arg)] priority: i32,
) -> PyResult<()> {
    let ctx = context(ctx)?;
    let engine = &runtime().engine;
    let push = || engine.push_operation_at(&op.operation, ctx, priority, Some(&find_call_site));
    // The naive engine waits in its push.
    if engine.runs_inside_push() { py.detach(push).py(py) } else { push().py(py) }
}

/// Deletes a prepared operation; pushes already made still run, and another push of it is a
/// ValueError.
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

/// Ends a variable after every earlier use of it. Returns at once; any later push, wait or deletion
/// that names the variable is a ValueError, and its version is 0.
///
/// Parameters
/// ----------
/// v : Variable
/// fn : callable, optional
///     Called without arguments when all functions pushed before that name ``v`` are done, even if
///     they failed. It is a pushed function like any other: waits cover it, and `wait_for_all`
///     raises what it raises.
///
/// Raises
/// ------
/// TypeError
///     ``fn`` is not callable, or its call would run nothing because it is an ``async def`` or a
///     generator.
/// ValueError
///     ``v`` is deleted.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> connection, log = engine.new_variable(), []
/// >>> engine.push_sync(lambda rc: log.append("use"), mutate_vars=[connection])
/// >>> engine.delete_variable(connection, lambda: log.append("close"))
/// >>> engine.wait_for_all()
/// >>> log
/// ['use', 'close']
#[pyfunction]
#[pyo3(signature = (v, r#fn=None))]
fn delete_variable(py: Python<'_>, v: &Variable, r#fn: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    let engine = &runtime().engine;
    let mut last: Option<Box<dyn FnOnce() + Send>> = None;
    if let Some(function) = r#fn {
        function_arg(&function)?;
        let name = name_of(&function)?;
        let function = without_arguments(function)?;
        if engine.runs_inside_push() {
            // The variable is gone by the time that its function runs, here as there.
            let (function, name) = (function.unbind(), name.unbind());
            last = Some(Box::new(move || {
                Python::attach(|py| {
                    let (function, name) = (function.bind(py).clone(), name.bind(py).clone());
                    let pushed = push_last(function, name, &[]);
                    pushed.unwrap_or_else(|e| e.write_unraisable(py, None));
                })
            }));
        } else {
            push_last(function, name, &[v.var()])?;
        }
    }
    // Attached all the while, so that no push of another thread comes between the function and the
    // deletion.
    match engine.delete_variable(v.var(), last) {
        true => Ok(()),
        false => Err(crate::engine::deleted_variable(v.var())).py(py),
    }
}

/// Pushes the last function of a variable.
fn push_last(
    function: Bound<'_, PyAny>,
    name: Bound<'_, PyString>,
    writes: &[Var],
) -> PyResult<()> {
    let (ctx, prop) = (Context::default(), Prop::DeleteVar);
    let call = Pushing { ctx, reads: &[], writes, prop, priority: 0 };
    call.push(function.py(), Some(function.clone()), Some(name), Ends::ByReturning)
}

/// A function that takes a run context, for one that takes nothing.
fn without_arguments(function: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let py = function.py();
    let function = function.unbind();
    let call = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        function.bind(args.py()).call_python(()).map(drop)
    };
    Ok(PyCFunction::new_closure(py, None, None, call)?.into_any())
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
