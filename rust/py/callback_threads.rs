//! Threads that stay attached to the interpreter for life and run Python callbacks.
//!
//! Attaching a fresh thread costs microseconds, re-attaching one of these 50 ns, and the next job
//! of an attached thread nothing. They are a [`BlockingPool`], so a callback that blocks holds up
//! no other. Compute threads never run Python.
//!
//! Jobs whose operations are ready wait here until a thread takes them, so priorities apply here.

use super::callback::OperatorCall;
use super::engine_call::FunctionCall;
use crate::blocking_pool::{BlockingPool, PoolAtFork, Worker};
use crate::engine::Priority;
use pyo3::prelude::*;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Work for a callback thread.
pub enum Job {
    /// A function pushed to the engine.
    Function(FunctionCall),
    /// An operator written in Python.
    Operator(OperatorCall),
    Other(Box<dyn for<'py> FnOnce(Python<'py>) + Send>),
}

impl Job {
    fn run(self, py: Python<'_>) {
        match self {
            Job::Function(call) => call.run(py),
            Job::Operator(call) => call.run(py),
            Job::Other(f) => f(py),
        }
    }

    /// Ends the job without running it: an operation that an exit skips has not failed.
    fn skip(self) {
        match self {
            Job::Function(call) => call.skip(),
            Job::Operator(call) => call.skip(),
            Job::Other(f) => drop(f),
        }
    }
}

static POOL: BlockingPool<Job> = BlockingPool::new(start);

thread_local! {
    static IS_CALLBACK_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` on a callback thread; returns at once.
pub fn submit(f: Box<dyn for<'py> FnOnce(Python<'py>) + Send>) {
    submit_job(Job::Other(f), Priority::Normal);
}

/// Runs `job` on a callback thread, in the order of priorities; returns at once. Skips it if an
/// exit has closed the threads.
pub fn submit_job(job: Job, priority: Priority) {
    if let Err(job) = POOL.submit(job, priority) {
        job.skip();
    }
}

fn start(worker: Arc<Worker>) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("rsnet-python".into());
    thread.spawn(move || serve(&worker)).map(drop)
}

fn serve(worker: &Arc<Worker>) {
    IS_CALLBACK_THREAD.set(true);
    let run_jobs = |py: Python<'_>| POOL.run_jobs(worker, |job| job.run(py));
    // The outer attachment keeps the thread's state in the interpreter from turn to turn.
    Python::attach(|py| py.detach(|| POOL.serve(worker, || Python::attach(run_jobs))));
}

/// At exit: skips what has not started, and waits for the threads, detached and for at most
/// `limit`.
pub fn close(py: Python<'_>, limit: Duration) {
    let mut jobs = POOL.close();
    while let Some(job) = jobs.pop() {
        job.skip();
    }
    py.detach(|| POOL.wait_closed(limit));
}

/// The callback threads, with their lock held over a fork.
pub struct ThreadsAtFork(PoolAtFork<Job>);

pub fn before_fork() -> ThreadsAtFork {
    ThreadsAtFork(POOL.before_fork())
}

impl ThreadsAtFork {
    pub fn release_in_child(self) {
        self.0.release_in_child(IS_CALLBACK_THREAD.get());
    }
}
