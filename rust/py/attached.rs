//! Threads that stay attached to the interpreter for life and run Python callbacks.
//!
//! Attaching a fresh thread costs microseconds, re-attaching one of these 50 ns, and a job after a job
//! nothing. One runs jobs one after the other; another stands by and starts as a runner itself when jobs wait
//! and none was taken for half a millisecond, that is, when the runners are blocked. So a job that blocks
//! holds up no other, and ten thousand short jobs need one thread. Threads end after a while without
//! work. Compute threads never run Python.

use pyo3::prelude::*;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub type Job = Box<dyn for<'py> FnOnce(Python<'py>) + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that wait for jobs.
    idle: usize,
    /// Threads there are.
    threads: usize,
    /// Jobs taken so far.
    taken: u64,
    /// No job is run any more.
    is_closed: bool,
}

static STATE: Mutex<State> =
    Mutex::new(State { jobs: VecDeque::new(), idle: 0, threads: 0, taken: 0, is_closed: false });
static WORK: Condvar = Condvar::new();
static ENDED: Condvar = Condvar::new();

/// An idle thread ends after so long.
const PATIENCE: Duration = Duration::from_secs(3);
/// Runners that took no job for so long count as blocked.
const BLOCKED: Duration = Duration::from_micros(500);

/// The lock is never held while Python runs, so whoever holds it is done soon.
fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Runs `job` on one of the threads; returns at once.
pub fn submit(job: Job) {
    let mut state = lock();
    if state.is_closed {
        drop(state);
        return drop(job);
    }
    state.jobs.push_back(job);
    let must_wake = state.jobs.len() == 1;
    let must_start = state.idle == 0 && must_wake;
    state.threads += usize::from(must_start);
    drop(state);
    if must_start {
        start();
    } else if must_wake {
        WORK.notify_one();
    }
}

/// Starts a thread, which is counted already.
fn start() {
    let made = std::thread::Builder::new().name("rsnet-python".into()).spawn(serve);
    if made.is_err() {
        lock().threads -= 1; // those that are there take the jobs when they are done
    }
}

fn serve() {
    Python::attach(|py| py.detach(|| while stand_by() && Python::attach(run_jobs) {}));
    lock().threads -= 1;
    ENDED.notify_all();
}

/// Waits until there are jobs that nobody else takes. False: end.
fn stand_by() -> bool {
    let mut state = lock();
    let until = Instant::now() + PATIENCE;
    loop {
        if state.is_closed {
            return false;
        }
        let taken = state.taken;
        let limit = match (state.jobs.is_empty(), state.threads - state.idle) {
            (false, 1) => break, // the others stand by as well, or there are none
            (false, _) => BLOCKED,
            (true, _) => until.saturating_duration_since(Instant::now()),
        };
        state.idle += 1;
        let (back, waited) = WORK.wait_timeout(state, limit).unwrap_or_else(|e| e.into_inner());
        state = back;
        state.idle -= 1;
        if !state.jobs.is_empty() && (state.taken == taken && waited.timed_out()) {
            break;
        }
        if state.jobs.is_empty() && Instant::now() >= until {
            return false;
        }
    }
    // Somebody must stand by while this thread runs jobs.
    let must_start = state.idle == 0;
    state.threads += usize::from(must_start);
    drop(state);
    if must_start {
        start();
    }
    true
}

/// Runs jobs until there are none.
fn run_jobs(py: Python<'_>) -> bool {
    loop {
        let job = {
            let mut state = lock();
            if state.is_closed {
                return false;
            }
            let Some(job) = state.jobs.pop_front() else { return true };
            state.taken += 1;
            job
        };
        let run = std::panic::AssertUnwindSafe(|| job(py));
        let _ = std::panic::catch_unwind(run); // the job's token reports the failure
    }
}

/// At exit: drops what has not started, and waits for the threads, detached and for at most `limit`.
pub fn close(py: Python<'_>, limit: Duration) {
    let jobs = {
        let mut state = lock();
        state.is_closed = true;
        std::mem::take(&mut state.jobs)
    };
    drop(jobs);
    WORK.notify_all();
    py.detach(|| drop(ENDED.wait_timeout_while(lock(), limit, |s| s.threads > 0)));
}

/// The lock, held over a fork.
pub struct Held(MutexGuard<'static, State>);

pub fn before_fork() -> Held {
    Held(lock())
}

impl Held {
    /// The child has none of the threads, and the jobs are its parent's. (These are forgotten, not dropped:
    /// their tokens are the parent's too.)
    pub fn release_in_child(mut self) {
        let jobs = std::mem::take(&mut *self.0).jobs;
        std::mem::forget(jobs);
    }
}
