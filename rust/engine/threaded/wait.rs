//! Waiting: for a variable, for everything, and the report of a wait that does not end.
//!
//! A waiter spins briefly, then parks on a signal that the last of the awaited tasks gives. It runs nobody
//! else's operations, so a wait can be given up at any moment and cannot deadlock on its own stack.

use crate::engine::data::task_slab::{TaskRef, flag};
use crate::engine::data::variables::{self, Vars};
use crate::engine::sync::thread::{self, Thread};
use crate::engine::sync::{AtomicBool, AtomicU64, Guard, Lock, fence};
use crate::engine::task::Task;
use crate::engine::threaded::core::{Core, PushState, name_of};
use crate::engine::threaded::current;
use crate::engine::threaded::stall_report::Awaited;
use crate::engine::{Poll, Var};
use crate::error::{Error, Result};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a waiter spins before it parks.
const SPIN: Duration = Duration::from_micros(20);
const SHORT_SPIN: Duration = Duration::from_micros(1);
/// How often a wait polls.
const SLICE: Duration = Duration::from_millis(if cfg!(loom) { 3_600_000 } else { 50 });

/// Wakes one parked waiter.
pub struct Signal {
    done: AtomicBool,
    thread: Thread,
}

impl Signal {
    fn new() -> Arc<Self> {
        Arc::new(Signal { done: AtomicBool::new(false), thread: thread::current() })
    }

    fn set(&self) {
        self.done.store(true, Ordering::Release);
        self.thread.unpark();
    }

    fn is_set(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

pub type Waiters = Vec<(u64, Arc<Signal>)>;

/// Waiters for everything: told when so many tasks are complete.
pub struct Watch {
    /// The lowest number that anybody waits for.
    lowest: AtomicU64,
    waiters: Lock<Waiters>,
}

/// The lowest number of no waiters.
const NOBODY: u64 = u64::MAX;

impl Default for Watch {
    fn default() -> Self {
        Watch { lowest: AtomicU64::new(NOBODY), waiters: Lock::default() }
    }
}

impl Watch {
    #[inline]
    pub fn anybody(&self) -> bool {
        self.lowest() != NOBODY
    }

    #[inline]
    fn lowest(&self) -> u64 {
        self.lowest.load(Ordering::SeqCst)
    }

    fn recount(&self, waiters: &Waiters) {
        let lowest = waiters.iter().map(|(target, _)| *target).min();
        self.lowest.store(lowest.unwrap_or(NOBODY), Ordering::SeqCst);
    }

    fn add(&self, target: u64, signal: &Arc<Signal>) {
        let mut waiters = self.waiters.lock();
        waiters.push((target, signal.clone()));
        self.recount(&waiters);
        fence(Ordering::SeqCst);
    }

    fn remove(&self, signal: &Arc<Signal>) {
        let mut waiters = self.waiters.lock();
        waiters.retain(|(_, s)| !Arc::ptr_eq(s, signal));
        self.recount(&waiters);
    }

    pub fn hold(&self) -> Guard<'_, Waiters> {
        self.waiters.lock()
    }

    pub fn reset(&self) {
        self.waiters.lock().clear();
        self.lowest.store(NOBODY, Ordering::SeqCst);
    }
}

/// Which tasks of a variable a wait is for.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// Its writers.
    Read,
    /// All that name it.
    All,
}

impl Core {
    /// Tasks completed so far.
    pub fn completed(&self) -> u64 {
        let lanes = self.completed.iter().take(self.threads.lanes());
        lanes.map(|lane| lane.0.load(Ordering::Acquire)).sum::<u64>()
            + self.completed_elsewhere.0.load(Ordering::Acquire)
    }

    /// Tells those who wait for everything, if so many tasks are complete.
    pub fn notify_watchers(&self) {
        // (Without a lock: who waits for all of many short tasks must not be in their way.)
        let lowest = self.watch.lowest();
        if lowest == NOBODY {
            return;
        }
        let completed = self.completed();
        if completed < lowest {
            return;
        }
        for (target, signal) in self.watch.waiters.lock().iter() {
            if completed >= *target {
                signal.set();
            }
        }
    }

    pub fn wait_for(&self, var: Var, kind: Kind, poll: Poll<'_>) -> Result<()> {
        let (i, tasks) = {
            let state = self.lock();
            let i = variables::living(&state.vars, var)?;
            let tasks = pending(self, &state.vars, i, kind);
            if !tasks.is_empty() {
                self.check_stack(&state, i, &tasks)?;
            }
            (i, tasks)
        };
        if !tasks.is_empty() {
            self.wait_for_tasks(&tasks, poll, Some(i))?;
        }
        self.faults.raise(i)
    }

    pub fn wait_for_all(&self, poll: Poll<'_>) -> Result<()> {
        if current::on_worker(self) {
            return Err(may_not_wait());
        }
        if !current::running(self).is_empty() {
            let tasks = {
                let state = self.lock();
                let blocked = self.blocked(&state);
                let mut tasks = current::own_pushes(self);
                tasks.retain(|t| !self.slab.is_done(*t) && !blocked.contains(&t.slot()));
                tasks
            };
            self.wait_for_tasks(&tasks, poll, None)?;
            return self.raise_own();
        }
        self.wait_quietly(poll)?;
        self.faults.raise_all()
    }

    /// Raises the first unreported error of what the running operation has pushed, and marks the others as
    /// reported. Errors of strangers are left to those who wait for them.
    fn raise_own(&self) -> Result<()> {
        if !self.faults.any() {
            return Ok(());
        }
        let written = current::own_written(self);
        let living: Vec<u32> = {
            let state = self.lock();
            written.into_iter().filter_map(|v| state.vars.find(v)).collect()
        };
        let errors: Vec<_> =
            living.into_iter().filter_map(|i| self.faults.raise(i).err()).collect();
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Waits until all tasks pushed so far are complete, whatever their errors.
    pub fn wait_quietly(&self, poll: Poll<'_>) -> Result<()> {
        let target = self.lock().pushed;
        let is_done = || self.completed() >= target;
        if !self.spin(&is_done) {
            self.ensure_running()?;
            let signal = Signal::new();
            self.watch.add(target, &signal);
            let r = self.park(&signal, &is_done, poll, Awaited::default());
            self.watch.remove(&signal);
            r?;
        }
        // So many tasks are complete, but with other pushers about not necessarily the oldest ones; and one that a
        // pusher runs may be counted nowhere.
        let stragglers = {
            let state = self.lock();
            if state.pushed == target {
                state.alloc.kept(self).into_iter().collect()
            } else {
                self.stragglers(&state, target)
            }
        };
        self.wait_for_tasks(&stragglers, poll, None)
    }

    /// Tasks not complete among the first `target` pushed.
    fn stragglers(&self, state: &PushState, target: u64) -> Vec<TaskRef> {
        let old = |task: &TaskRef| {
            // SAFETY: under the push lock a live task's body is only read.
            let body = unsafe { &*self.slab.get(task.slot()).body() };
            body.head.flags & flag::SIGNAL == 0
                && (body.head.sequence.wrapping_sub(target as u32) as i32) <= 0
        };
        self.live(state).into_iter().filter(old).collect()
    }

    /// All tasks and signals that are not complete.
    pub fn live(&self, _: &PushState) -> Vec<TaskRef> {
        self.slab.all().filter_map(|slot| self.slab.get(slot).live(slot)).collect()
    }

    /// Blocks until `tasks` are complete; those of variable `var`, if there is one.
    fn wait_for_tasks(&self, tasks: &[TaskRef], poll: Poll<'_>, var: Option<u32>) -> Result<()> {
        let is_done = || tasks.iter().all(|&t| self.slab.is_done(t));
        if is_done() {
            return Ok(());
        }
        if current::on_worker(self) {
            return Err(may_not_wait());
        }
        if self.spin(&is_done) {
            return Ok(());
        }
        self.ensure_running()?;
        let signal = Signal::new();
        {
            let mut state = self.lock();
            let tell = signal.clone();
            let task = Task::sync(move |_| {
                tell.set();
                Ok(())
            });
            // (Again: who waits for this thread may have begun meanwhile.)
            let waiting = self.running();
            if let Some(i) = var {
                self.check_stack(&state, i, tasks)?;
            }
            match self.open_signal(&mut state, tasks, waiting, task) {
                Ok(None) => {}
                Ok(Some(_)) => return Ok(()),
                Err((error, _)) => return Err(error),
            }
        }
        self.park(&signal, &|| false, poll, Awaited { var, tasks: Some(tasks) })
    }

    /// Spins for a moment: a short one if the workers need all cores.
    fn spin(&self, is_done: &dyn Fn() -> bool) -> bool {
        if cfg!(loom) {
            return is_done();
        }
        let spare = !self.threads.fill_the_cores();
        let until = Instant::now() + if spare { SPIN } else { SHORT_SPIN };
        loop {
            self.haste.0.ask();
            for _ in 0..64 {
                if is_done() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= until {
                return false;
            }
        }
    }

    /// Parks until the signal is set or `is_done`, polling now and then.
    fn park(
        &self,
        signal: &Signal,
        is_done: &dyn Fn() -> bool,
        poll: Poll<'_>,
        awaited: Awaited<'_>,
    ) -> Result<()> {
        let started = Instant::now();
        let mut next_poll = started + SLICE;
        loop {
            if signal.is_set() || is_done() {
                return Ok(());
            }
            let now = Instant::now();
            if now >= next_poll {
                poll()?;
                next_poll = now + SLICE;
                let limit = *self.wait_timeout.lock();
                if let Some(limit) = limit
                    && now - started >= limit
                    && let Some(error) = self.hang_report(awaited, limit)
                {
                    return Err(error);
                }
            }
            thread::park_timeout(next_poll.saturating_duration_since(now));
        }
    }

    /// An error if one of the operations on this thread's stack waits for itself: by naming the variable,
    /// or because the awaited tasks wait for it.
    fn check_stack(&self, state: &PushState, i: u32, tasks: &[TaskRef]) -> Result<()> {
        let running = self.running();
        if running.is_empty() {
            return Ok(());
        }
        let blocked = self.blocked(state);
        for task in tasks {
            if running.contains(task) || blocked.contains(&task.slot()) {
                let own = running.iter().find(|t| *t == task).unwrap_or(&running[0]);
                // SAFETY: the task was not complete, and its slot is not used again while the push lock is held.
                let name = name_of(unsafe { &*self.slab.get(own.slot()).body() });
                return Err(waits_for_itself(name, i));
            }
        }
        Ok(())
    }

    /// The operations on this thread's stack that are not complete: one may have called its token and go on.
    fn running(&self) -> Vec<TaskRef> {
        let mut running = current::running(self);
        running.retain(|t| !self.slab.is_done(*t));
        running
    }

    /// The slots of the operations whose functions wait by the signal in this slot, if it is one. Under the push lock.
    pub fn waiting_by(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        // SAFETY: under the push lock a live task's body is only read.
        let body = unsafe { &*self.slab.get(slot).body() };
        let waiting = body.extra.as_ref().map_or(&[][..], |e| &e.waiting);
        waiting.iter().filter(|t| !self.slab.is_done(**t)).map(|t| t.slot())
    }

    /// The slots of all tasks that wait for one on this thread's stack, or whose functions do. Under the push lock, so
    /// that no edges are added; and none of these can complete, so that their lists stand.
    fn blocked(&self, _: &PushState) -> HashSet<u32> {
        let mut found = HashSet::new();
        let mut todo: Vec<u32> = self.running().iter().map(|t| t.slot()).collect();
        while let Some(slot) = todo.pop() {
            for next in self.slab.successors(slot) {
                let held_up = [next].into_iter().chain(self.waiting_by(next));
                todo.extend(held_up.filter(|&slot| found.insert(slot)));
            }
        }
        found
    }
}

/// The error of a wait, inside operation `name`, for what comes after that operation. `i` is the variable's number.
pub fn waits_for_itself(name: &str, i: u32) -> Error {
    let var = Vars::name(i);
    Error::value(format!(
        "operation '{name}' waits for itself: {var} cannot become ready before it ends"
    ))
}

/// The error of a stop inside an operation.
pub fn stops_itself() -> Error {
    Error::value("stop() inside an operation would wait for that operation itself")
}

fn may_not_wait() -> Error {
    Error::value(
        "an operation on a compute thread may not wait for others: let it depend on them, or make it \
         asynchronous",
    )
}

/// The tasks of variable `i` that are not complete.
fn pending(core: &Core, vars: &Vars, i: u32, kind: Kind) -> Vec<TaskRef> {
    let readers = vars.readers(i).filter(|_| kind == Kind::All);
    let tasks = std::iter::once(vars.last_writer(i)).chain(readers);
    tasks.filter(|&t| !core.slab.is_done(t)).collect()
}
