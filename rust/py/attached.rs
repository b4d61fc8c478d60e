//! Threads that stay attached to the interpreter for life and run Python callbacks.
//!
//! Attaching a fresh thread costs microseconds, re-attaching one of these 50 ns, and a job after a job
//! nothing. One, the *runner*, runs jobs one after the other; another stands by and becomes a runner itself when jobs
//! wait and none was taken for half a millisecond, that is, when the runners are blocked. So a job that blocks
//! holds up no other, and ten thousand short jobs need one thread. Threads end after a while without
//! work. Compute threads never run Python.
//!
//! What the engine has found ready waits here until a thread takes it, so here is where its rank counts.
//!
//! Waking a thread costs far more than a job, so a submission wakes nobody while a runner is up and one that
//! stands by *watches*: it looks every half millisecond, and goes back to sleep when there was nothing for a while.

use super::engine::Call;
use crate::engine::{Priority, PriorityQueue};
use crate::error::drop_panic;
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What is to be run.
pub enum Job {
    /// A function pushed to the engine.
    Call(Call),
    Other(Box<dyn for<'py> FnOnce(Python<'py>) + Send>),
}

impl Job {
    fn run(self, py: Python<'_>) {
        match self {
            Job::Call(call) => call.run(py),
            Job::Other(f) => f(py),
        }
    }
}

#[derive(Default)]
struct State {
    jobs: PriorityQueue<Job>,
    /// Threads that wait for jobs.
    idle: usize,
    /// Threads there are.
    threads: usize,
    /// Runners that wait for the interpreter: more of them would not help.
    attaching: usize,
    /// One of the idle threads looks whether the runners are blocked.
    is_watched: bool,
    /// Jobs taken so far.
    taken: u64,
    /// No job is run any more.
    is_closed: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    jobs: PriorityQueue::new(),
    idle: 0,
    threads: 0,
    attaching: 0,
    is_watched: false,
    taken: 0,
    is_closed: false,
});
static WORK: Condvar = Condvar::new();
static ENDED: Condvar = Condvar::new();

/// An idle thread ends after so long.
const PATIENCE: Duration = Duration::from_secs(3);
/// Runners that took no job for so long count as blocked.
const BLOCKED: Duration = Duration::from_micros(500);
/// Looks without any job after which nobody watches any more.
const QUIET: u32 = 8;

thread_local! {
    /// Is this one of the threads?
    static IS_ATTACHED: Cell<bool> = const { Cell::new(false) };
}

/// The lock is never held while Python runs, so whoever holds it is done soon.
fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Runs `f` on one of the threads; returns at once.
pub fn submit(f: Box<dyn for<'py> FnOnce(Python<'py>) + Send>) {
    submit_job(Job::Other(f), Priority::Normal);
}

/// Runs `job` on one of the threads, in its turn; returns at once.
pub fn submit_job(job: Job, rank: Priority) {
    let mut state = lock();
    if state.is_closed {
        drop(state);
        return drop(job);
    }
    state.jobs.push(rank, job);
    let none_is_up = state.threads == state.idle;
    // A runner that is up takes the job when it is done with its own; if it is blocked, another must see that.
    let must_start = state.idle == 0 && (none_is_up || state.jobs.len() == 1);
    let must_wake = state.idle > 0 && (none_is_up || !state.is_watched);
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
    IS_ATTACHED.set(true);
    Python::attach(|py| py.detach(|| while stand_by() && Python::attach(run_jobs) {}));
    lock().threads -= 1;
    ENDED.notify_all();
}

/// Waits until there are jobs that nobody else takes. False: end.
fn stand_by() -> bool {
    let mut state = lock();
    let until = Instant::now() + PATIENCE;
    let mut quiet = 0;
    loop {
        if state.is_closed {
            return false;
        }
        let others_are_up = state.threads - state.idle > 1;
        if !state.jobs.is_empty() && !others_are_up {
            break;
        }
        let watches = others_are_up && !state.is_watched && quiet < QUIET;
        let limit = match watches {
            true => BLOCKED,
            false => until.saturating_duration_since(Instant::now()),
        };
        let taken = state.taken;
        state.idle += 1;
        state.is_watched |= watches;
        let (back, waited) = WORK.wait_timeout(state, limit).unwrap_or_else(|e| e.into_inner());
        state = back;
        state.idle -= 1;
        let is_still = state.taken == taken;
        if watches {
            state.is_watched = false;
            let is_blocked = waited.timed_out() && is_still && state.attaching == 0;
            if is_blocked && !state.jobs.is_empty() {
                break;
            }
        }
        quiet = if is_still && state.jobs.is_empty() && waited.timed_out() { quiet + 1 } else { 0 };
        if state.jobs.is_empty() && Instant::now() >= until {
            return false;
        }
    }
    state.attaching += 1;
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
    lock().attaching -= 1;
    loop {
        let job = {
            let mut state = lock();
            if state.is_closed {
                return false;
            }
            let Some(job) = state.jobs.pop() else { return true };
            state.taken += 1;
            job
        };
        let run = std::panic::AssertUnwindSafe(|| job.run(py));
        if let Err(panic) = std::panic::catch_unwind(run) {
            drop_panic(panic); // the job's token reports the failure
        }
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
    /// The child has none of the threads but the one that forked, and the jobs are its parent's. (These are
    /// forgotten, not dropped: their tokens are the parent's too.)
    pub fn release_in_child(mut self) {
        let threads = usize::from(IS_ATTACHED.get());
        let before = std::mem::replace(&mut *self.0, State { threads, ..State::default() });
        std::mem::forget(before.jobs);
    }
}
