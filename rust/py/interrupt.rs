//! Exceptions of signal handlers that run inside a callback.
//!
//! Python runs handlers between any two steps of the main thread. If a callback runs there, inside
//! the call that pushed it, the KeyboardInterrupt or the alarm's exception is raised in the
//! callback, although it concerns the program and not the operator. So it is passed on: the
//! interpreter raises it in its next step on the main thread. The operation has failed, and its
//! error is not reported a second time.

use super::error::from_py;
use super::package::package;
use crate::error::Error;
use crate::lock::Lock;
use pyo3::exceptions::PyBaseException;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};

/// The exception for the main thread's next step.
static LEAVING: Lock<Option<Py<PyBaseException>>> = Lock::new(None);

/// The error of an operation whose function has raised `err` on this thread.
pub fn from_callback(py: Python<'_>, err: PyErr) -> Error {
    // `PyErr` keeps the traceback apart from the value: `into_value` attaches it.
    let value = err.into_value(py).into_bound(py);
    let is_handlers = package(py).and_then(|p| p.is_of_a_signal(&value));
    let err = PyErr::from_value(value.clone().into_any());
    if !is_handlers.unwrap_or(false) {
        return from_py(py, err);
    }
    let text = format!("never computed: a signal raised {err} meanwhile");
    let before = LEAVING.lock().replace(value.unbind());
    drop(before);
    // SAFETY: the function may be called at any time. (If the interpreter takes no more of them, it
    // leaves with the next.)
    unsafe { ffi::Py_AddPendingCall(Some(leave), std::ptr::null_mut()) };
    Error::execution(text).reported()
}

/// Called by the interpreter on the main thread.
extern "C" fn leave(_: *mut c_void) -> c_int {
    Python::attach(|py| {
        let leaving = LEAVING.lock().take();
        let Some(value) = leaving else { return 0 };
        PyErr::from_value(value.into_bound(py).into_any()).restore(py);
        -1
    })
}
