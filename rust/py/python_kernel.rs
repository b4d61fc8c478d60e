//! Kernels written in Python: where a call of one runs.
//!
//! A callback runs inside the call that pushed it if that thread holds the interpreter, is not
//! itself inside a callback, and no other callback of the same pass could run at the same time;
//! else on a callback thread, concurrently with others; never on a compute thread.

use super::callback::{DEPTH, Function, OperatorCall};
use super::callback_threads::{self, Job};
use super::runtime;
use crate::engine::Priority;
use crate::operator::{Callback, Done, OwnedCall};
use pyo3::prelude::*;
use std::sync::Arc;

/// A kernel that is a Python function.
pub struct PythonKernel(Arc<Function>);

impl PythonKernel {
    pub fn new(function: Function) -> Self {
        PythonKernel(Arc::new(function))
    }
}

impl Callback for PythonKernel {
    fn needs_host(&self) -> bool {
        self.0.takes_numpy()
    }

    fn start(&self, call: OwnedCall, done: Done) {
        let outer = DEPTH.get();
        let has_peers = call.within.has_peers();
        let call = OperatorCall { kernel: self.0.clone(), call, done, depth: outer + 1 };
        let waits_in_push = runtime().engine.runs_inside_push();
        if outer == 0 && (!has_peers || waits_in_push) && is_python_thread() {
            return Python::attach(|py| call.run(py));
        }
        call.call.within.leave_push();
        if !waits_in_push {
            return callback_threads::submit_job(Job::Operator(call), Priority::Normal);
        }
        // The naive engine waits for the end inside the push, so this thread waits too, detached
        // from the interpreter.
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let OperatorCall { done, .. } = call;
        let done: Done = Box::new(move |result| {
            done(result);
            drop(ended);
        });
        let call = OperatorCall { done, ..call };
        callback_threads::submit_job(Job::Operator(call), Priority::Normal);
        Python::attach(|py| py.detach(move || end.recv().unwrap_or_default()));
    }
}

/// Returns true if this thread has ever run Python code. (Compute threads have not.)
fn is_python_thread() -> bool {
    // SAFETY: may be called from any thread while the interpreter exists; reads a thread-local.
    !unsafe { pyo3::ffi::PyGILState_GetThisThreadState() }.is_null()
}
