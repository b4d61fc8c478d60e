//! Threads that stay attached to the interpreter for life and run Python callbacks.
//!
//! Attaching a fresh thread costs microseconds, re-attaching one of these 50 ns. They are made on demand
//! (whenever more jobs wait than threads idle, so a job that blocks holds up no other) and end after a
//! while without work. Compute threads never run Python.

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

pub type Job = Box<dyn for<'py> FnOnce(Python<'py>) + Send>;

struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    /// The process the threads belong to: a forked child has none of them.
    pid: u32,
}

static STATE: Mutex<State> = Mutex::new(State { jobs: VecDeque::new(), idle: 0, pid: 0 });
static WORK: Condvar = Condvar::new();

/// An idle thread ends after so long.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs `job` on one of the threads; returns at once.
pub fn submit(job: Job) {
    let mut state = STATE.lock();
    let pid = std::process::id();
    if state.pid != pid {
        state.pid = pid;
        state.idle = 0;
        state.jobs.clear(); // jobs of the parent belong to the parent
    }
    state.jobs.push_back(job);
    if state.jobs.len() > state.idle {
        drop(state);
        let made = std::thread::Builder::new().name("rsnet-python".into()).spawn(serve);
        if made.is_ok() {
            return;
        }
        // No more threads: one of those that are busy takes the job when it is done.
    }
    WORK.notify_one();
}

fn serve() {
    Python::attach(|py| {
        py.detach(|| {
            while let Some(job) = next() {
                Python::attach(|py| {
                    let run = std::panic::AssertUnwindSafe(|| job(py));
                    let _ = std::panic::catch_unwind(run); // the job's token reports the failure
                });
            }
        });
    });
}

/// The next job; `None` when none came for a while.
fn next() -> Option<Job> {
    let mut state = STATE.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            return Some(job);
        }
        state.idle += 1;
        let late = WORK.wait_for(&mut state, PATIENCE).timed_out();
        state.idle -= 1;
        if late && state.jobs.is_empty() {
            return None;
        }
    }
}
