//! What `rsnet.profiler` calls: switches of the process's recorder, and what a program records
//! itself.

use super::error::{IntoPy, invalid, quoted};
use super::runtime;
use crate::profiler::{
    API_CALL, Begun, Config, Format, Recorder, Scope, SortBy, Span, State, What, mode,
};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};

/// The process's recorder.
pub fn recorder() -> &'static Recorder {
    &runtime().profiler
}

/// A call of rsnet by the program, if calls are recorded.
#[inline]
pub fn api(name: &str) -> Option<Span<'_>> {
    recorder().span(mode::API, || What { category: API_CALL, name, node: "", device: None })
}

// Calls that may wait for a lock release the interpreter: the holder of the lock could be waiting
// for it.

#[pyfunction]
fn configure(py: Python<'_>, path: PathBuf, mode: u32, aggregates: bool) {
    py.detach(|| recorder().configure(Config { path, mode, aggregates }));
}

#[pyfunction]
fn set_running(py: Python<'_>, run: bool) {
    py.detach(|| recorder().set_running(run));
}

#[pyfunction]
fn set_paused(py: Python<'_>, pause: bool) {
    py.detach(|| recorder().set_paused(pause));
}

#[pyfunction]
fn state() -> &'static str {
    match recorder().state() {
        State::Stopped => "stop",
        State::Running => "run",
        State::Paused => "pause",
    }
}

/// Writes the file; returns how many records were dropped.
#[pyfunction]
fn dump(py: Python<'_>, finished: bool) -> PyResult<u64> {
    py.detach(|| recorder().dump(finished)).py(py)
}

/// Appends to the file, unless it is stopped.
#[pyfunction]
fn dump_unless_stopped(py: Python<'_>) -> PyResult<()> {
    py.detach(|| recorder().dump_unless_stopped()).py(py)
}

fn unknown(what: &str, got: &str, expected: &str) -> PyErr {
    PyValueError::new_err(invalid(what, quoted(got), format!("one of: {expected}")))
}

/// The statistics; None when none are gathered.
#[pyfunction]
fn summary(
    py: Python<'_>,
    reset: bool,
    format: &str,
    sort_by: &str,
    ascending: bool,
) -> PyResult<Option<String>> {
    let format = match format {
        "table" => Format::Table,
        "json" => Format::Json,
        other => return Err(unknown("format", other, "table, json")),
    };
    let sort = match sort_by {
        "total" => SortBy::Total,
        "avg" => SortBy::Avg,
        "min" => SortBy::Min,
        "max" => SortBy::Max,
        "count" => SortBy::Count,
        other => return Err(unknown("sort_by", other, "total, avg, min, max, count")),
    };
    Ok(py.detach(|| recorder().summary(format, sort, ascending, reset)))
}

/// A beginning that was recorded.
#[pyclass(frozen, module = "rsnet._core")]
struct Beginning(Begun);

#[pyfunction]
fn begin() -> Option<Beginning> {
    recorder().begin(mode::OWN).map(Beginning)
}

#[pyfunction]
fn end(begun: &Beginning, category: &str, name: &str) {
    recorder().end(begun.0, What { category, name, node: "", device: None });
}

/// The value of a counter, which is recorded with every change.
///
/// No lock guards it, since a fork could leave a lock held in the child. A change and its record
/// are one step because the interpreter is not released between them.
#[pyclass(frozen, module = "rsnet._core")]
#[derive(Default)]
struct Count(AtomicI64);

#[pymethods]
impl Count {
    #[new]
    fn new() -> Self {
        Count::default()
    }

    #[getter]
    fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the value, or adds to it.
    fn change(&self, category: &str, name: &str, value: i128, relative: bool) -> PyResult<()> {
        let mut new = 0;
        let changed = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
            new = value.saturating_add(if relative { old.into() } else { 0 });
            i64::try_from(new).ok()
        });
        if changed.is_err() {
            let text = invalid("value of a counter", new, "a number of 64 bits");
            return Err(PyOverflowError::new_err(text));
        }
        recorder().count(category, name, new as i64);
        Ok(())
    }
}

#[pyfunction]
fn mark(category: &str, name: &str, scope: &str) -> PyResult<()> {
    let scope = match scope {
        "global" => Scope::Global,
        "process" | "task" | "marker" => Scope::Process,
        "thread" => Scope::Thread,
        other => return Err(unknown("scope", other, "global, process, thread, task, marker")),
    };
    recorder().mark(category, name, scope);
    Ok(())
}

/// This thread's memory scope; empty: none.
#[pyfunction]
fn memory_scope() -> String {
    crate::profiler::scope().map_or_else(String::new, |s| s.to_string())
}

#[pyfunction]
fn set_memory_scope(name: &str) {
    crate::profiler::set_scope((!name.is_empty()).then(|| name.into()));
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let p = PyModule::new(m.py(), "profiler")?;
    macro_rules! add {
        ($($f:ident),*) => { $(p.add_function(wrap_pyfunction!($f, &p)?)?;)* };
    }
    add!(
        configure,
        set_running,
        set_paused,
        state,
        dump,
        dump_unless_stopped,
        summary,
        begin,
        end,
        mark,
        memory_scope,
        set_memory_scope
    );
    p.add_class::<Count>()?;
    m.add_submodule(&p)
}
