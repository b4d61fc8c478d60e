//! What `rsnet.profiler` calls: switches of the process's recorder, and what a program records itself.

use super::error::IntoPy;
use super::runtime;
use crate::profiler::{
    API_CALL, Begun, Config, Format, Recorder, Scope, SortBy, Span, State, What, mode,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// The process's recorder.
pub fn recorder() -> &'static Recorder {
    &runtime().profiler
}

/// A call of rsnet by the program, if calls are recorded.
#[inline]
pub fn api(name: &str) -> Option<Span<'_>> {
    recorder().span(mode::API, || What { category: API_CALL, name, node: "", device: None })
}

#[pyfunction]
fn configure(path: PathBuf, mode: u32, aggregates: bool) {
    recorder().configure(Config { path, mode, aggregates });
}

#[pyfunction]
fn set_running(run: bool) {
    recorder().set_running(run);
}

#[pyfunction]
fn set_paused(pause: bool) {
    recorder().set_paused(pause);
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

fn unknown(what: &str, got: &str, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{what} must be one of {expected}, got '{got}'"))
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
    let recorder = recorder();
    if !recorder.aggregates() {
        return Ok(None);
    }
    Ok(Some(py.detach(|| recorder.summary(format, sort, ascending, reset))))
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

#[pyfunction]
fn count(category: &str, name: &str, value: i64) {
    recorder().count(category, name, value);
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
        summary,
        begin,
        end,
        count,
        mark,
        memory_scope,
        set_memory_scope
    );
    m.add_submodule(&p)
}
