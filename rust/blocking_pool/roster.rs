//! The duties of the threads of a [blocking pool](super): a state machine without threads or
//! clocks.

use crate::engine::{Priority, PriorityQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Consecutive checks of an empty queue after which the watcher rests.
const QUIET_LOOKS: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    Idle,
    Watch,
    Run,
}

/// A thread of the pool. `S` is the signal that wakes it.
#[derive(Default)]
pub struct Worker<S> {
    /// A [`Duty`]. It changes under the roster's lock only.
    duty: AtomicU8,
    pub signal: S,
}

impl<S> Worker<S> {
    pub(super) fn duty(&self) -> Duty {
        match self.duty.load(Ordering::Relaxed) {
            0 => Duty::Idle,
            1 => Duty::Watch,
            _ => Duty::Run,
        }
    }

    fn set_duty(&self, duty: Duty) {
        self.duty.store(duty as u8, Ordering::Relaxed);
    }
}

/// A thread that was given a duty and must be woken or started.
pub(super) enum Appointment<S> {
    Wake(Arc<Worker<S>>),
    Start(Arc<Worker<S>>),
}

/// The state of a watcher between checks.
#[derive(Default)]
pub(super) struct Seen {
    progress: u64,
    quiet: u32,
}

/// The outcome of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Check again.
    Watch,
    /// The runners are blocked: the watcher is a runner now.
    Run,
    /// There was no job for a while: the watcher is idle now.
    Rest,
}

pub(super) struct Roster<J, S> {
    jobs: PriorityQueue<J>,
    /// A stack: the most recently busy thread is woken first, so threads that are not needed end.
    idle: Vec<Arc<Worker<S>>>,
    watcher: Option<Arc<Worker<S>>>,
    runners: usize,
    /// Runners that have not taken a job yet: woken, starting, or waiting for the interpreter. More
    /// of them would not help.
    arriving: usize,
    threads: usize,
    /// Counts jobs taken, and jobs submitted to an empty queue: while it changes, no job has waited
    /// for a whole check.
    progress: u64,
    is_closed: bool,
}

impl<J, S: Default> Roster<J, S> {
    pub const fn new() -> Self {
        Self::of_runners(0)
    }

    /// The roster of threads that are all runners.
    pub const fn of_runners(runners: usize) -> Self {
        Roster {
            jobs: PriorityQueue::new(),
            idle: Vec::new(),
            watcher: None,
            runners,
            arriving: 0,
            threads: runners,
            progress: 0,
            is_closed: false,
        }
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Queues a job. A closed roster returns it.
    pub fn submit(&mut self, job: J, priority: Priority) -> Result<Option<Appointment<S>>, J> {
        if self.is_closed {
            return Err(job);
        }
        self.progress += u64::from(self.jobs.is_empty());
        self.jobs.push(priority, job);
        Ok(self.appoint())
    }

    /// Restores the invariant: while a job waits, a runner is arriving or there is a watcher.
    fn appoint(&mut self) -> Option<Appointment<S>> {
        if self.jobs.is_empty() || self.arriving > 0 {
            return None;
        }
        if self.runners == 0 {
            self.runners += 1;
            self.arriving += 1;
            let ready = self.idle.pop().or_else(|| self.watcher.take());
            return Some(self.give(ready, Duty::Run));
        }
        if self.watcher.is_some() {
            return None;
        }
        let ready = self.idle.pop();
        let appointment = self.give(ready, Duty::Watch);
        let (Appointment::Wake(worker) | Appointment::Start(worker)) = &appointment;
        self.watcher = Some(worker.clone());
        Some(appointment)
    }

    /// Gives a duty to a thread that waits, or to a new one.
    fn give(&mut self, ready: Option<Arc<Worker<S>>>, duty: Duty) -> Appointment<S> {
        let appointment = match ready {
            Some(worker) => Appointment::Wake(worker),
            None => {
                self.threads += 1;
                Appointment::Start(Arc::new(Worker::default()))
            }
        };
        let (Appointment::Wake(worker) | Appointment::Start(worker)) = &appointment;
        worker.set_duty(duty);
        appointment
    }

    /// The system has refused to start this thread. Returns the jobs if no thread is left that
    /// could run them.
    pub fn refused(&mut self, worker: &Arc<Worker<S>>) -> Option<PriorityQueue<J>> {
        self.threads -= 1;
        match worker.duty() {
            Duty::Run => {
                self.runners -= 1;
                self.arriving -= 1;
            }
            // The next submission, or the next job that is taken, appoints another.
            Duty::Watch => self.watcher = None,
            Duty::Idle => {}
        }
        (self.threads == 0).then(|| std::mem::take(&mut self.jobs))
    }

    /// A runner has arrived and takes jobs from now on.
    pub fn arrived(&mut self) {
        self.arriving -= 1;
    }

    /// The next job for a runner, with the watcher to be woken if more jobs wait behind it.
    pub fn take(&mut self) -> Option<(J, Option<Appointment<S>>)> {
        if self.is_closed {
            return None;
        }
        let job = self.jobs.pop()?;
        self.progress += 1;
        Some((job, self.appoint()))
    }

    /// A runner has found no job.
    pub fn rest(&mut self, worker: &Arc<Worker<S>>) {
        self.runners -= 1;
        self.lay_off(worker);
    }

    fn lay_off(&mut self, worker: &Arc<Worker<S>>) {
        worker.set_duty(Duty::Idle);
        self.idle.push(worker.clone());
    }

    pub fn begin_look(&self, seen: &mut Seen) {
        seen.progress = self.progress;
    }

    /// The interval of a check is over.
    pub fn end_look(&mut self, worker: &Arc<Worker<S>>, seen: &mut Seen) -> Verdict {
        if self.jobs.is_empty() {
            seen.quiet += 1;
            if seen.quiet < QUIET_LOOKS {
                return Verdict::Watch;
            }
            seen.quiet = 0;
            self.watcher = None;
            self.lay_off(worker);
            return Verdict::Rest;
        }
        seen.quiet = 0;
        if self.progress != seen.progress || self.arriving > 0 {
            return Verdict::Watch;
        }
        // The watch is handed over by `take`, as soon as this thread has the first of the jobs.
        self.watcher = None;
        self.runners += 1;
        self.arriving += 1;
        worker.set_duty(Duty::Run);
        Verdict::Run
    }

    /// An idle thread ends.
    pub fn dismiss(&mut self, worker: &Arc<Worker<S>>) {
        self.idle.retain(|idle| !Arc::ptr_eq(idle, worker));
    }

    /// A thread has ended.
    pub fn left(&mut self) {
        self.threads -= 1;
    }

    /// Closes the queue; returns the jobs that have not started, and the waiting threads.
    pub fn close(&mut self) -> (PriorityQueue<J>, Vec<Arc<Worker<S>>>) {
        self.is_closed = true;
        let mut waiting = std::mem::take(&mut self.idle);
        waiting.extend(self.watcher.take());
        (std::mem::take(&mut self.jobs), waiting)
    }

    #[cfg(all(test, not(loom)))]
    pub fn is_attended(&self) -> bool {
        self.jobs.is_empty() || self.arriving > 0 || self.watcher.is_some()
    }

    #[cfg(all(test, not(loom)))]
    pub fn queued(&self) -> usize {
        self.jobs.len()
    }
}
