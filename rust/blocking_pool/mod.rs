//! A pool of threads for jobs that may block.
//!
//! A job that blocks does not delay others, and ten thousand short jobs need one thread: threads
//! are added one at a time, and only while those that run jobs make no progress. `roster` assigns
//! the duties, without threads or clocks; this file adds both.
//!
//! A thread is a *runner* (runs jobs one after the other), the *watcher* (checks every `LOOK`
//! whether the runners are blocked) or idle. The invariant, after every step of the roster:
//!
//! > While a job waits in the queue, a runner is on its way to it or a watcher is appointed.
//!
//! A submission appoints: the first runner if there is none, else a watcher if there is none. A
//! watcher that sees no progress becomes a runner itself, and hands the watch over when it has
//! taken its first job: to an idle thread, or to a new one. So every second check adds a runner for
//! as long as jobs wait behind blocked ones. Waking a thread costs far more than a short job, so a
//! watcher stays for a few checks after the queue has run dry, and meanwhile submissions wake no
//! thread.

mod roster;

use crate::engine::{Priority, PriorityQueue};
use crate::error::drop_panic;
use roster::{Appointment, Duty, Roster, Seen, Verdict};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The time between two checks of the watcher.
const LOOK: Duration = Duration::from_micros(500);
/// An idle thread ends after this time.
const PATIENCE: Duration = Duration::from_secs(3);

/// A thread of the pool.
pub type Worker = roster::Worker<Condvar>;

/// Threads that run jobs of type `J`.
pub struct BlockingPool<J: 'static> {
    roster: Mutex<Roster<J, Condvar>>,
    ended: Condvar,
    /// Starts a thread that calls [`BlockingPool::serve`].
    spawn: fn(Arc<Worker>) -> std::io::Result<()>,
}

impl<J> BlockingPool<J> {
    pub const fn new(spawn: fn(Arc<Worker>) -> std::io::Result<()>) -> Self {
        BlockingPool { roster: Mutex::new(Roster::new()), ended: Condvar::new(), spawn }
    }

    /// The lock is never held while a job runs.
    fn lock(&self) -> MutexGuard<'_, Roster<J, Condvar>> {
        self.roster.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Queues `job` for one of the threads, by priority; returns at once. A closed pool returns the
    /// job. One that cannot run because the system refuses its first thread is dropped.
    pub fn submit(&self, job: J, priority: Priority) -> Result<(), J> {
        let appointment = self.lock().submit(job, priority)?;
        self.carry_out(appointment);
        Ok(())
    }

    /// Wakes or starts the thread that was appointed.
    fn carry_out(&self, appointment: Option<Appointment<Condvar>>) {
        let refused = match appointment {
            None => return,
            Some(Appointment::Wake(worker)) => return worker.signal.notify_one(),
            Some(Appointment::Start(worker)) => match (self.spawn)(worker.clone()) {
                Ok(()) => return,
                Err(_) => worker,
            },
        };
        let stranded = self.lock().refused(&refused);
        drop(stranded); // without the lock: a job may report its failure to the engine
    }

    /// The main function of a thread. Calls `run` each time the thread becomes a runner; `run`
    /// calls [`BlockingPool::run_jobs`].
    pub fn serve(&self, worker: &Arc<Worker>, run: impl Fn()) {
        while self.stand_by(worker) {
            run();
        }
        self.lock().left();
        self.ended.notify_all();
    }

    /// Waits until the thread is a runner. Returns `false` if it must end.
    fn stand_by(&self, worker: &Arc<Worker>) -> bool {
        let mut roster = self.lock();
        let mut idle_until = Instant::now() + PATIENCE;
        let mut seen = Seen::default();
        loop {
            if roster.is_closed() {
                return false;
            }
            match worker.duty() {
                Duty::Run => return true,
                Duty::Idle => {
                    let left = idle_until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        roster.dismiss(worker);
                        return false;
                    }
                    roster = self.wait(worker, roster, left).0;
                    seen = Seen::default();
                }
                Duty::Watch => {
                    roster.begin_look(&mut seen);
                    let (back, timed_out) = self.wait(worker, roster, LOOK);
                    roster = back;
                    let is_over = timed_out && worker.duty() == Duty::Watch;
                    if is_over && roster.end_look(worker, &mut seen) == Verdict::Rest {
                        idle_until = Instant::now() + PATIENCE;
                    }
                }
            }
        }
    }

    fn wait<'a>(
        &self,
        worker: &Worker,
        roster: MutexGuard<'a, Roster<J, Condvar>>,
        limit: Duration,
    ) -> (MutexGuard<'a, Roster<J, Condvar>>, bool) {
        let waited = worker.signal.wait_timeout(roster, limit);
        let (roster, result) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        (roster, result.timed_out())
    }

    /// Runs jobs until none is left.
    pub fn run_jobs(&self, worker: &Arc<Worker>, run: impl Fn(J)) {
        self.lock().arrived();
        loop {
            let (job, appointment) = {
                let mut roster = self.lock();
                match roster.take() {
                    Some(taken) => taken,
                    None => return roster.rest(worker),
                }
            };
            self.carry_out(appointment);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(job))) {
                drop_panic(panic); // the job reports its own failure when it is dropped
            }
        }
    }

    /// Stops running jobs; returns those that have not started, for the caller to drop.
    pub fn close(&self) -> PriorityQueue<J> {
        let (jobs, waiting) = self.lock().close();
        waiting.iter().for_each(|worker| worker.signal.notify_one());
        jobs
    }

    /// Waits until all threads of a closed pool have ended, for at most `limit`.
    pub fn wait_closed(&self, limit: Duration) {
        drop(self.ended.wait_timeout_while(self.lock(), limit, |roster| roster.threads() > 0));
    }

    /// Holds the lock over a fork.
    pub fn before_fork(&'static self) -> PoolAtFork<J> {
        PoolAtFork(self.lock())
    }
}

/// A pool whose lock is held over a fork.
pub struct PoolAtFork<J: 'static>(MutexGuard<'static, Roster<J, Condvar>>);

impl<J> PoolAtFork<J> {
    /// The only thread of the child is the one that forked, which may be a runner. The jobs belong
    /// to the parent: they are forgotten, not dropped, as dropping one would report a failure.
    pub fn release_in_child(mut self, forked_by_runner: bool) {
        let child = Roster::of_runners(usize::from(forked_by_runner));
        std::mem::forget(std::mem::replace(&mut *self.0, child));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
