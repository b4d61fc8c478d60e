//! Waiting: for a variable, or for everything.
//!
//! A waiter spins briefly, then parks on a signal that the last of the awaited tasks sets. It never
//! runs other operations, so a wait can be abandoned at any moment and cannot deadlock on its own
//! stack. While it spins it runs short parts of rsnet's own kernels, which wait for nothing.

use crate::engine::data::slot::{TaskRef, flag};
use crate::engine::data::variables::{self, Vars};
use crate::engine::data::waiters::Signal;
use crate::engine::engine::Poll;
use crate::engine::messages::{may_not_wait, waits_for_itself};
use crate::engine::push::Var;
use crate::engine::sync::thread;
use crate::engine::task::Task;
use crate::engine::threaded::core::{Core, PushState};
use crate::engine::threaded::current::{self, StackFrame};
use crate::engine::threaded::pool::usable_cores;
use crate::engine::threaded::stall_report::Awaited;
use crate::error::Result;
use crate::fork_join::Team;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a waiter spins before it parks (`push_wait_5us`, two workers on two cores: 6 us a task;
/// 17 if it parks after 1 us).
const SPIN: Duration = Duration::from_micros(20);
/// The same on a single core, which the worker needs (`push_wait` there: 16 us; 48 if the waiter
/// spins for as long as elsewhere).
const SHORT_SPIN: Duration = Duration::from_micros(1);
/// For how long a waiter helps. It spins on a core that a worker could use, which takes the core
/// over only when the waiter parks (row sums of 4 MB, two workers on two cores: 22 us; 54 if the
/// waiter only spins).
const HELP: Duration = Duration::from_millis(1);
/// Polls between two reads of the clock.
const POLLS: u32 = 32;
/// The interval between polls for interrupts.
const SLICE: Duration = Duration::from_millis(if cfg!(loom) { 3_600_000 } else { 50 });

/// Which tasks of a variable a wait is for.
#[derive(Clone, Copy, PartialEq)]
pub enum WaitKind {
    /// Its pending writers.
    Read,
    /// All tasks that name it.
    All,
}

impl Core {
    pub fn wait_for(&self, var: Var, kind: WaitKind, poll: Poll<'_>) -> Result<()> {
        let (i, tasks) = {
            let state = self.lock();
            let i = variables::live_index(&state.vars, var)?;
            let tasks = pending(self, &state.vars, i, kind);
            if !tasks.is_empty() {
                self.check_stack(&state, i, &tasks)?;
            }
            (i, tasks)
        };
        if !tasks.is_empty() {
            self.wait_for_tasks(&tasks, poll, Some(i))?;
        }
        self.errors.raise(i)
    }

    pub fn wait_for_all(&self, poll: Poll<'_>) -> Result<()> {
        if current::on_worker(self.id()) {
            return Err(may_not_wait());
        }
        if !current::running(self.id()).is_empty() {
            let tasks = {
                let state = self.lock();
                let blocked = self.blocked(&state);
                let mut tasks = current::own_pushes(self.id());
                tasks.retain(|t| !self.slab.is_done(*t) && !blocked.contains(&t.slot()));
                tasks
            };
            self.wait_for_tasks(&tasks, poll, None)?;
            return self.raise_own();
        }
        self.wait_until_complete(poll)?;
        self.errors.raise_all()
    }

    /// Raises the first unreported error of what the running operation has pushed.
    fn raise_own(&self) -> Result<()> {
        if !self.errors.any() {
            return Ok(());
        }
        let written = current::own_written(self.id());
        let live_index: Vec<u32> = {
            let state = self.lock();
            written.into_iter().filter_map(|v| state.vars.find(v)).collect()
        };
        self.errors.raise_first(live_index.into_iter())
    }

    /// Waits until all tasks pushed so far are complete, whatever their errors.
    pub fn wait_until_complete(&self, poll: Poll<'_>) -> Result<()> {
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
        // That many tasks are complete, but if others pushed meanwhile, not necessarily the oldest.
        let stragglers = {
            let state = self.lock();
            if state.pushed == target { Vec::new() } else { self.stragglers(&state, target) }
        };
        self.wait_for_tasks(&stragglers, poll, None)
    }

    /// The tasks among the first `target` pushed that are not complete.
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

    /// Blocks until `tasks` are complete: those of variable `var`, if given.
    fn wait_for_tasks(&self, tasks: &[TaskRef], poll: Poll<'_>, var: Option<u32>) -> Result<()> {
        let is_done = || tasks.iter().all(|&t| self.slab.is_done(t));
        if is_done() {
            return Ok(());
        }
        if current::on_worker(self.id()) {
            return Err(may_not_wait());
        }
        if self.spin(&is_done) {
            return Ok(());
        }
        self.ensure_running()?;
        let signal = Signal::new();
        {
            let mut state = self.lock();
            let waiter = signal.clone();
            let task = Task::sync(move |_| {
                waiter.set();
                Ok(())
            });
            // Checked again: operations that wait for this thread may have started to wait
            // meanwhile.
            let waiting = self.running();
            if let Some(i) = var {
                self.check_stack(&state, i, tasks)?;
            }
            match self.open_signal(&mut state, tasks, waiting, task)? {
                None => {}
                Some(_) => return Ok(()),
            }
        }
        self.park(&signal, &|| false, poll, Awaited { var, tasks: Some(tasks) })
    }

    /// Spins briefly, and helps kernels meanwhile; returns true if the tasks completed.
    fn spin(&self, is_done: &dyn Fn() -> bool) -> bool {
        if is_done() {
            return true;
        }
        if cfg!(loom) {
            return false;
        }
        self.wait_hint.set();
        let mut helper = WaitingHelper { core: self, team: None };
        let begun = Instant::now();
        let mut until = begun + if usable_cores() > 1 { SPIN } else { SHORT_SPIN };
        loop {
            for _ in 0..POLLS {
                if is_done() {
                    return true;
                }
                std::hint::spin_loop();
                if helper.help(begun, is_done) {
                    until = Instant::now().min(begun + HELP) + SPIN;
                }
            }
            // Not at once: most waits end before anyone could be helped.
            if !helper.begins() && Instant::now() >= until {
                return false;
            }
        }
    }

    /// Parks until the signal is set or `is_done`, calling `poll` at intervals.
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
                    && let Some(error) = self.stall_report(awaited, limit)
                {
                    return Err(error);
                }
            }
            thread::park_timeout(next_poll.saturating_duration_since(now));
        }
    }

    /// Refuses a wait of an operation on this thread's stack for itself: it is one of the awaited
    /// tasks, or these wait for it.
    fn check_stack(&self, state: &PushState, i: u32, tasks: &[TaskRef]) -> Result<()> {
        let running = self.running();
        if running.is_empty() {
            return Ok(());
        }
        let blocked = self.blocked(state);
        for task in tasks {
            if running.contains(task) || blocked.contains(&task.slot()) {
                let own = running.iter().find(|t| *t == task).unwrap_or(&running[0]);
                // SAFETY: the task was not complete, and its slot is not reused under the push
                // lock.
                let name = unsafe { &*self.slab.get(own.slot()).body() }.name();
                return Err(waits_for_itself(name, i));
            }
        }
        Ok(())
    }

    /// The operations on this thread's stack that are not complete: one may have completed its
    /// token while its function still runs.
    fn running(&self) -> Vec<TaskRef> {
        let mut running = current::running(self.id());
        running.retain(|t| !self.slab.is_done(*t));
        running
    }

    /// The slots of the operations whose functions wait for the signal in this slot, if it is one.
    /// Under the push lock.
    pub fn waiting_by(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        // SAFETY: under the push lock a live task's body is only read.
        let body = unsafe { &*self.slab.get(slot).body() };
        let waiting = body.extra.as_ref().map_or(&[][..], |e| &e.waiting);
        waiting.iter().filter(|t| !self.slab.is_done(**t)).map(|t| t.slot())
    }

    /// The slots of all tasks that wait for one on this thread's stack, or whose functions do.
    /// Under the push lock, so that no edges are added; none of these can complete, so their lists
    /// are stable.
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

/// The tasks of variable `i` that are not complete.
fn pending(core: &Core, vars: &Vars, i: u32, kind: WaitKind) -> Vec<TaskRef> {
    let readers = vars.readers(i).filter(|_| kind == WaitKind::All);
    let tasks = std::iter::once(vars.last_writer(i)).chain(readers);
    tasks.filter(|&t| !core.slab.is_done(t)).collect()
}

/// A waiter that helps kernels while it spins, where it takes the core of a worker.
struct WaitingHelper<'a> {
    core: &'a Core,
    team: Option<Arc<Team>>,
}

impl WaitingHelper<'_> {
    /// From now on it helps; returns false if it does already, or never will.
    fn begins(&mut self) -> bool {
        if self.team.is_some() || !self.core.threads.fill_the_cores() || usable_cores() == 1 {
            return false;
        }
        self.team = self.core.threads.team();
        if self.team.is_some() {
            self.core.helping_waiters.0.fetch_add(1, Ordering::SeqCst);
        }
        self.team.is_some()
    }

    /// Runs parts of a kernel, if there are any, until [`HELP`] has passed since `begun` or the
    /// wait is over.
    #[inline]
    fn help(&self, begun: Instant, is_done: &dyn Fn() -> bool) -> bool {
        let Some(team) = self.team.as_ref().filter(|team| team.has_work()) else { return false };
        // Waits are errors there, as on compute threads.
        let frame = StackFrame::new(self.core.id(), TaskRef::NONE, true);
        frame.enter(|| team.help_while(|| begun.elapsed() < HELP && !is_done()))
    }
}

impl Drop for WaitingHelper<'_> {
    fn drop(&mut self) {
        if let Some(team) = &self.team {
            self.core.helping_waiters.0.fetch_sub(1, Ordering::SeqCst);
            team.replace_helper();
        }
    }
}
