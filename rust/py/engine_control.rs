//! The rest of `rsnet.engine`: waits, settings, and what happens at exit and at a fork.

use super::engine_args::{function_arg, seconds_arg};
use super::engine_variable::Variable;
use super::error::{IntoPy, invalid, poll_signals, to_py};
use super::{callback_threads, engine_hook, runtime};
use crate::error::Error;
use crate::executor::runtime::HeldForFork;
use pyo3::exceptions::{PySystemExit, PyValueError};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::time::Duration;

/// Blocks until every function pushed before that names ``v`` is done, those that only read it too.
///
/// The wait is detached from the interpreter, and Ctrl-C ends it. It may be called inside a pushed
/// function.
///
/// Parameters
/// ----------
/// v : Variable
///
/// Raises
/// ------
/// BaseException
///     What a function that writes ``v``, or one that it depends on, raised: the very object, once.
///     (A later wait on anything that depends on the same failure does not raise it again.) What a
///     function raised that only reads ``v`` is left to the variables that it writes, and to
///     `wait_for_all`.
/// ValueError
///     ``v`` is deleted, or the wait is inside a function that names ``v`` and would wait for
///     itself.
/// MXNetError
///     The wait took longer than `set_wait_timeout` allows.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> v, log = engine.new_variable(), []
/// >>> engine.push_sync(lambda rc: log.append("done"), mutate_vars=[v])
/// >>> engine.push_sync(lambda rc: 1 / 0, mutate_vars=[v])
/// >>> try:
/// ...     engine.wait_for_var(v)
/// ... except ZeroDivisionError:
/// ...     log.append("raised")
/// >>> engine.wait_for_var(v)
/// >>> log
/// ['done', 'raised']
#[pyfunction]
fn wait_for_var(py: Python<'_>, v: &Variable) -> PyResult<()> {
    let var = v.var();
    py.detach(|| runtime().engine.wait_for_var(var, &mut poll_signals)).py(py)
}

/// Blocks until everything pushed before is done, by any thread; what others push meanwhile is
/// not waited for, nor what others gather in a `bulk`.
///
/// Inside a pushed function it waits for what that function has pushed.
///
/// Raises
/// ------
/// BaseException
///     The first exception that no wait has raised yet. All others count as raised, too.
/// MXNetError
///     The wait took longer than `set_wait_timeout` allows.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> log = []
/// >>> for i in range(3):
/// ...     engine.push_sync(lambda rc, i=i: log.append(i))
/// >>> engine.wait_for_all()
/// >>> sorted(log)
/// [0, 1, 2]
#[pyfunction]
fn wait_for_all(py: Python<'_>) -> PyResult<()> {
    py.detach(|| runtime().wait_for_all(&mut poll_signals)).py(py)
}

/// Fills what the libraries of the kernels make at their first use: a child that is forked while
/// another thread makes it would wait for it for ever. Waits for a thread that has begun.
fn prepare_libraries() {
    static PREPARED: std::sync::Once = std::sync::Once::new();
    PREPARED.call_once(crate::kernels::prepare_libraries);
}

thread_local! {
    static FORK: RefCell<Option<(HeldForFork<'static>, callback_threads::ThreadsAtFork)>> =
        const { RefCell::new(None) };
}

/// A count given by the user.
fn count(name: &str, n: i64, least: i64) -> PyResult<usize> {
    let right = (n >= least).then(|| usize::try_from(n).ok()).flatten();
    right.ok_or_else(|| {
        PyValueError::new_err(invalid(name, n, format!("a number of at least {least}")))
    })
}

/// Sets how many consecutive pushes of this thread are gathered into one operation. `bulk` does so
/// for a block.
///
/// Parameters
/// ----------
/// size : int
///     0 and 1: none are gathered. What was gathered is pushed when it is `size` functions or more.
///
/// Returns
/// -------
/// int
///     The size before.
///
/// Raises
/// ------
/// ValueError
///     If `size` is negative.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> engine.set_bulk_size(100)
/// 0
/// >>> engine.set_bulk_size(0)
/// 100
#[pyfunction]
fn set_bulk_size(py: Python<'_>, size: i64) -> PyResult<usize> {
    runtime().engine.set_bulk_size(count("size", size, 0)?).py(py)
}

/// The number of compute threads, which run operations and share the work of kernels.
///
/// At first as many as the process may use cores (by its CPU affinity and its cgroup's quota), or
/// fewer if the environment variable ``OMP_NUM_THREADS`` says so. Python functions run on threads
/// of their own, made on demand, one more whenever those that run are blocked; only the system
/// limits how many.
///
/// Returns
/// -------
/// int
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> engine.num_threads() >= 1
/// True
#[pyfunction]
fn num_threads() -> usize {
    runtime().engine.num_threads()
}

/// Changes the number of compute threads, at any time. What runs ends on the threads that there
/// were before.
///
/// Parameters
/// ----------
/// n : int
///     1 to 128.
///
/// Raises
/// ------
/// ValueError
///     If `n` is less than 1, or more than the engine has places for.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> before = engine.num_threads()
/// >>> engine.set_num_threads(1)
/// >>> engine.num_threads()
/// 1
/// >>> engine.set_num_threads(before)
#[pyfunction]
fn set_num_threads(py: Python<'_>, n: i64) -> PyResult<()> {
    let n = count("number of threads", n, 1)?;
    py.detach(|| runtime().engine.set_num_threads(n)).py(py)
}

/// Finishes all work and ends the compute threads; the next push that needs them, or `start`,
/// brings them back.
///
/// Errors stay for the next wait. Ctrl-C ends the call as it ends a wait: the engine goes on as it
/// was.
///
/// Raises
/// ------
/// ValueError
///     Inside a pushed function, which would wait for itself.
/// MXNetError
///     Finishing the work took longer than `set_wait_timeout` allows; the engine goes on as it was.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> log = []
/// >>> engine.push_sync(lambda rc: log.append("done"))
/// >>> engine.stop()
/// >>> log
/// ['done']
#[pyfunction]
fn stop(py: Python<'_>) -> PyResult<()> {
    py.detach(|| runtime().engine.stop(&mut poll_signals)).py(py)
}

/// Starts the compute threads, if there are none: at first, and after `stop`.
///
/// Never needed, because work starts them; it takes the time for that out of the first push.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> engine.stop()
/// >>> engine.start()
#[pyfunction]
fn start() {
    runtime().engine.start();
}

/// A wait that lasts longer raises an error that names what it waits for. ``None``: no limit.
///
/// The error lists every operation that holds the wait up, the running ones first, with the
/// variables it writes and the line that pushed it. Nothing is lost: the wait may be repeated.
///
/// Parameters
/// ----------
/// seconds : float, optional
///     For all waits from now on, that of `stop` too. A limit costs every push the look for its
///     line.
///
/// Raises
/// ------
/// TypeError
///     If `seconds` is not a number.
/// ValueError
///     If `seconds` is negative, not a number (NaN), or more than 1e19.
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
fn set_wait_timeout(seconds: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    let limit = seconds.as_ref().map(seconds_arg).transpose()?;
    runtime().engine.set_wait_timeout(limit);
    Ok(())
}

/// Sets a function that observes the life of every operation, for profilers; it costs nothing
/// while none is set.
///
/// Events come in the order in which they happened, on a thread of their own, and may arrive after
/// the operation's end was waited for. An operation that is skipped because of an error is queued
/// and finished, but never started. What the function raises is printed and not propagated.
///
/// Parameters
/// ----------
/// fn : callable, optional
///     Called as ``fn(event, id, name, ctx, time_ns)``: 'queued', 'started' or 'finished'; a number
///     that is the same in all events of one operation; its name; its device as a text; nanoseconds
///     since 1970. None: no hook.
///
/// Raises
/// ------
/// TypeError
///     ``fn`` is not callable, or its call would run nothing because it is an ``async def`` or a
///     generator.
///
/// Examples
/// --------
/// >>> import time
/// >>> from rsnet import engine
/// >>> events, v = [], engine.new_variable()
/// >>> engine.set_hook(lambda event, id, name, ctx, time_ns: events.append((name, event, ctx)))
/// >>> engine.push_sync(lambda rc: None, mutate_vars=[v], name="tidy")
/// >>> engine.wait_for_var(v)
/// >>> engine.set_hook(None)
/// >>> while len(events) < 3:
/// ...     time.sleep(0.001)
/// >>> events
/// [('tidy', 'queued', 'cpu(0)'), ('tidy', 'started', 'cpu(0)'), ('tidy', 'finished', 'cpu(0)')]
#[pyfunction]
#[pyo3(signature = (r#fn=None))]
fn set_hook(py: Python<'_>, r#fn: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    r#fn.as_ref().map_or(Ok(()), function_arg)?;
    engine_hook::set(py, r#fn.map(Bound::unbind));
    Ok(())
}

/// Where operations run inside their pushes (``MXNET_ENGINE_TYPE=NaiveEngine``): does a push raise
/// the error of its operation at once?
///
/// By default an error is raised by the first wait, as with the threaded engine. Raised at once it
/// points to the line at fault, which helps to debug; no wait raises it then, and arrays that were
/// not computed still say so when they are read. The environment variable ``RSNET_RAISE_IN_PUSH=1``
/// does the same from the start.
///
/// Parameters
/// ----------
/// on : bool
///
/// Returns
/// -------
/// bool
///     The previous setting.
///
/// Raises
/// ------
/// ValueError
///     This engine does not run operations inside their pushes.
///
/// Examples
/// --------
/// >>> from rsnet import engine
/// >>> try:
/// ...     engine.set_raise_in_push(True)
/// ... except ValueError as error:
/// ...     print(error)
/// this engine does not run operations inside their pushes: expected MXNET_ENGINE_TYPE=NaiveEngine
#[pyfunction]
fn set_raise_in_push(py: Python<'_>, on: bool) -> PyResult<bool> {
    runtime().engine.set_raise_in_push(on).py(py)
}

/// At exit: skips operations that have not started and waits for running ones, for a bounded time.
/// Raises the first unreported error. Returns the names of the operations that still run, and are
/// abandoned. A `SystemExit` asks for what is happening already.
#[pyfunction]
fn _shutdown(py: Python<'_>) -> PyResult<Vec<String>> {
    const LIMIT: Duration = Duration::from_secs(1);
    let engine = &runtime().engine;
    engine.notify_shutdown();
    callback_threads::close(py, LIMIT);
    let mut has_given_up = false;
    let ended = py.detach(|| {
        let until = std::time::Instant::now() + LIMIT;
        engine.wait_for_all(&mut || match std::time::Instant::now() < until {
            true => Ok(()),
            false => {
                has_given_up = true;
                Err(Error::execution("still running at exit"))
            }
        })
    });
    match ended {
        Err(_) if has_given_up => Ok(py.detach(|| engine.running_operations())),
        Err(error) if !error.is_inherited() => {
            let raised = to_py(py, &error);
            if raised.is_instance_of::<PySystemExit>(py) { Ok(Vec::new()) } else { Err(raised) }
        }
        _ => Ok(Vec::new()),
    }
}

extern "C" fn before_fork() {
    prepare_libraries();
    let held = (runtime().before_fork(), callback_threads::before_fork());
    FORK.with_borrow_mut(|place| *place = Some(held));
}

extern "C" fn after_fork_in_parent() {
    drop(FORK.take());
}

extern "C" fn after_fork_in_child() {
    if let Some((held, threads)) = FORK.take() {
        threads.release_in_child();
        held.release_in_child();
    }
}

/// Adds the functions of this file to `rsnet.engine`, and the handlers of forks.
pub fn register(e: &Bound<'_, PyModule>) -> PyResult<()> {
    e.add_function(wrap_pyfunction!(wait_for_var, e)?)?;
    e.add_function(wrap_pyfunction!(wait_for_all, e)?)?;
    e.add_function(wrap_pyfunction!(set_bulk_size, e)?)?;
    e.add_function(wrap_pyfunction!(num_threads, e)?)?;
    e.add_function(wrap_pyfunction!(set_num_threads, e)?)?;
    e.add_function(wrap_pyfunction!(start, e)?)?;
    e.add_function(wrap_pyfunction!(stop, e)?)?;
    e.add_function(wrap_pyfunction!(set_wait_timeout, e)?)?;
    e.add_function(wrap_pyfunction!(set_hook, e)?)?;
    e.add_function(wrap_pyfunction!(set_raise_in_push, e)?)?;
    e.add_function(wrap_pyfunction!(_shutdown, e)?)?;
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
