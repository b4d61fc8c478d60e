//! Errors of the core as Python exceptions, and back.
//!
//! A Python exception that crosses the core travels inside the [`Error`] and is raised again as the
//! very same object, with a note that names operator and node. Others become classes of
//! `rsnet.base`, each of which derives from `MXNetError` and, where one fits, from the builtin
//! exception.

use super::package::package;
use crate::error::{self, Error};
use crate::lock::Lock;
use pyo3::exceptions::{PyAttributeError, PyBaseException, PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::fmt::Display;
use std::sync::Arc;

/// A Python exception inside an [`Error`]: the one to raise next.
struct Raised(Lock<Py<PyBaseException>>);

impl Raised {
    /// The exception; a copy is kept in its place, because the one that is raised collects frames.
    fn take<'py>(&self, py: Python<'py>) -> Bound<'py, PyBaseException> {
        let value = self.0.lock().clone_ref(py).into_bound(py);
        if let Ok(twin) = package(py).and_then(|p| Ok(p.twin(&value)?.cast_into()?)) {
            *self.0.lock() = twin.unbind();
        }
        value
    }
}

/// Wraps the exception that ends a wait, on its way to the waiting caller.
fn interrupted(py: Python<'_>, err: PyErr) -> Error {
    let message = err.to_string();
    Error::interrupted(message, Arc::new(Raised(Lock::new(err.into_value(py)))))
}

/// Wraps an exception for its way through the core. The frames are removed from its traceback,
/// since they would keep every array of the failed call, and of its callers, alive.
pub fn from_py(py: Python<'_>, err: PyErr) -> Error {
    if err.is_instance_of::<PyKeyboardInterrupt>(py) {
        return interrupted(py, err);
    }
    let message = err.to_string();
    let value = err.into_value(py);
    let _ = package(py).and_then(|p| p.detach(value.bind(py)));
    let is_inherited = value.bind(py).hasattr(IS_INHERITED).unwrap_or(false);
    let error = Error::foreign(message, Arc::new(Raised(Lock::new(value))));
    if is_inherited { error.inherited() } else { error }
}

/// The attribute of exceptions made of an error that [is inherited](Error::inherited). A callback
/// that was waiting raises them, and fails for the same reason.
const IS_INHERITED: &str = "_is_inherited";

/// The exception to raise for `error`.
pub fn to_py(py: Python<'_>, error: &Error) -> PyErr {
    if let Some(raised) = error.payload().and_then(|p| p.downcast_ref::<Raised>()) {
        let value = raised.take(py);
        annotate(&value, error);
        return PyErr::from_value(value.into_any());
    }
    let Ok(package) = package(py) else { return PyRuntimeError::new_err(error.to_string()) };
    let err = PyErr::from_type(package.error(py, error.kind()).clone(), error.to_string());
    if error.is_inherited() {
        let _ = err.value(py).setattr(IS_INHERITED, true);
    }
    err
}

/// Adds a note to the exception that names the operator, once.
fn annotate(value: &Bound<'_, PyBaseException>, error: &Error) {
    let place = match (error.operator(), error.node(), error.call_site()) {
        (None, None, None) => return,
        (op, node, site) => {
            let mut text = format!("raised in operator {}", op.unwrap_or("?"));
            if let Some(node) = node {
                text += &format!(" '{node}'");
            }
            if let Some(site) = site {
                text += &format!(", pushed at {site}");
            }
            text
        }
    };
    let notes: Vec<String> =
        value.getattr("__notes__").and_then(|n| n.extract()).unwrap_or_default();
    if notes.contains(&place) {
        return;
    }
    if value.call_method1("add_note", (&place,)).is_err() {
        // Python 3.10 has no notes of its own; tools that support them read this attribute.
        let all: Vec<String> = notes.into_iter().chain([place]).collect();
        let _ = value.setattr("__notes__", all);
    }
}

/// An argument as messages show it: its repr, in one line and cut short.
pub fn shown(argument: &Bound<'_, PyAny>) -> String {
    let text = argument.repr().map_or_else(|_| argument.get_type().to_string(), |r| r.to_string());
    error::shown(text)
}

/// The name of an argument's class, where messages do not show the argument.
pub fn kind(argument: &Bound<'_, PyAny>) -> String {
    argument.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// The error that an object raises when it is used as an array, unless that is an `AttributeError`:
/// the object may stand for an array that does not exist, and says why.
#[cold]
pub fn refused_by(value: &Bound<'_, PyAny>) -> Option<PyErr> {
    let says = |value: &Bound<'_, PyAny>| {
        let error = value.getattr("dtype").err()?;
        (!error.is_instance_of::<PyAttributeError>(value.py())).then_some(error)
    };
    let items = value.cast::<PyList>().ok().map(|list| list.iter().find_map(|item| says(&item)));
    items.unwrap_or_else(|| says(value))
}

/// A text as messages show it.
pub fn quoted(text: &str) -> String {
    format!("'{}'", error::shown(text))
}

/// The message about a bad argument; `got` is what [`shown`] or [`quoted`] returns, or a number.
pub fn invalid(what: &str, got: impl Display, expected: impl Display) -> String {
    format!("invalid {what} {got}: expected {expected}")
}

/// `Result` of the core as `PyResult`.
pub trait IntoPy<T> {
    fn py(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> IntoPy<T> for crate::error::Result<T> {
    #[inline]
    fn py(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|e| to_py(py, &e))
    }
}

/// Called by a wait every 50 ms, detached from the interpreter: runs pending signal handlers.
pub fn poll_signals() -> crate::error::Result<()> {
    Python::attach(|py| py.check_signals().map_err(|e| interrupted(py, e)))
}
