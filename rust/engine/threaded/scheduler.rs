//! One push, under the push lock: variables, edges, body, queue.
//!
//! A push first checks (do the variables exist and differ? how many predecessors at most? are there
//! slots?) and only then changes anything, so that a failing push leaves no trace. Body and edges
//! are written before [`Slab::opened`](crate::engine::data::task_slab::Slab::opened), after which
//! the task may become ready.

use crate::engine::data::slot::{TaskRef, flag};
use crate::engine::data::slot_allocator::SlotAllocator;
use crate::engine::data::task_slab::SpareSlots;
use crate::engine::data::variables;
use crate::engine::hook::Event;
use crate::engine::push::{Prop, Push, RunOn, Var};
use crate::engine::slow_path;
use crate::engine::task::Task;
use crate::engine::threaded::core::{Core, PushState};
use crate::engine::threaded::current;
use crate::engine::threaded::task_builder::{Probe, TaskBuilder};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Returns true if the push may run its task inline.
#[inline(always)]
fn may_run_inline(push: &Push<'_>) -> bool {
    push.run_on == RunOn::Pusher
        || matches!(push.prop, Prop::Async | Prop::DeleteVar) && push.priority == 0
}

/// What became of a task that may run inline.
enum Opened {
    /// It has no predecessors: its pusher runs it.
    Inline(TaskRef),
    /// It is queued, and ready or waiting for others.
    Queued { is_ready: bool },
    /// It has to wait, and nothing has changed: the caller looks up its call site first.
    Nothing,
}

impl Core {
    /// Pushes an operation, bypassing any bulk.
    ///
    /// The user's line is looked up only if it is needed: the task is queued, may outlive its push
    /// without looking it up itself, or the stall report asks for it; and outside the lock, because
    /// the lookup may run Python.
    #[inline(always)]
    pub fn push_task(&self, task: &mut Task, push: &Push<'_>) -> Result<()> {
        let Some(find) = push.call_site else {
            return match may_run_inline(push) {
                true => self.run_or_enqueue(task, push, None, true),
                false => self.enqueue(task, push, None),
            };
        };
        if !may_run_inline(push) {
            return self.enqueue(task, push, find());
        }
        let is_needed = task.needs_line()
            || self.slow_path.load(Ordering::Relaxed) & slow_path::CALL_SITES != 0;
        let call_site = if is_needed { find() } else { None };
        self.run_or_enqueue(task, push, call_site, is_needed)
    }

    /// Runs a task inline if it is ready, else queues it; with this call site, if `is_final`, else
    /// with the one that is then looked up.
    #[inline(always)]
    fn run_or_enqueue(
        &self,
        task: &mut Task,
        push: &Push<'_>,
        call_site: Option<Arc<str>>,
        is_final: bool,
    ) -> Result<()> {
        match self.open(task, push, call_site, is_final)? {
            Opened::Inline(opened) => self.run_inline(opened, task, push.call_site),
            Opened::Queued { is_ready: true } => self.wake_for_work(),
            Opened::Queued { is_ready: false } => {}
            Opened::Nothing => return self.enqueue_with_call_site(task, push),
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn enqueue_with_call_site(&self, task: &mut Task, push: &Push<'_>) -> Result<()> {
        self.enqueue(task, push, push.call_site.and_then(|find| find()))
    }

    /// Opens a task for its pusher to run if it has no predecessors, and else queues it if
    /// `may_queue`: one look at its variables under one lock.
    #[inline(always)]
    fn open(
        &self,
        task: &mut Task,
        push: &Push<'_>,
        call_site: Option<Arc<str>>,
        may_queue: bool,
    ) -> Result<Opened> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let mut builder = TaskBuilder::inline(self, state).ok_or_else(too_many)?;
        let probe = Probe { slab: &self.slab, asks: true };
        let Some(found) = builder.probe(push, state, probe) else {
            return Err(self.refuse(state, builder, push));
        };
        if !found.is_idle {
            if !may_queue {
                builder.abandon(self, state);
                return Ok(Opened::Nothing);
            }
            let builder = builder.leave_inline_slot(self, state).ok_or_else(too_many)?;
            let is_ready = self.queue(state, builder, task, push, call_site, found.max_edges)?;
            return Ok(Opened::Queued { is_ready });
        }
        builder.describe(push, &mut state.names, call_site);
        let task = self.slab.open(builder.slot);
        self.link(state, builder, task, |_, _| false);
        state.pushed += 1;
        builder.set_sequence(state.pushed);
        self.record_push(task, push.writes);
        Ok(Opened::Inline(task))
    }

    /// Pushes a task for a worker to run.
    #[inline(never)]
    fn enqueue(&self, task: &mut Task, push: &Push<'_>, call_site: Option<Arc<str>>) -> Result<()> {
        let is_ready = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let mut builder =
                TaskBuilder::new(state, &self.slab, &self.returned).ok_or_else(too_many)?;
            let probe = Probe { slab: &self.slab, asks: false };
            let Some(found) = builder.probe(push, state, probe) else {
                return Err(self.refuse(state, builder, push));
            };
            self.queue(state, builder, task, push, call_site, found.max_edges)?
        };
        if is_ready {
            self.wake_for_work();
        }
        Ok(())
    }

    /// The error of a push whose variables were refused.
    #[cold]
    fn refuse(&self, state: &mut PushState, builder: TaskBuilder, push: &Push<'_>) -> Error {
        builder.abandon(self, state);
        variables::explain(&state.vars, push.name, push.reads, push.writes)
    }

    /// Queues a task whose variables were probed; returns whether it is ready.
    #[inline(always)]
    fn queue(
        &self,
        state: &mut PushState,
        mut builder: TaskBuilder,
        task: &mut Task,
        push: &Push<'_>,
        call_site: Option<Arc<str>>,
        max_edges: usize,
    ) -> Result<bool> {
        builder.describe(push, &mut state.names, call_site);
        let opened = |task| self.record_push(task, push.writes);
        self.submit(state, builder, task, max_edges, opened).ok_or_else(too_many)
    }

    /// Records a task that is about to get its edges, or to run inline.
    #[inline(always)]
    fn record_push(&self, task: TaskRef, written: &[Var]) {
        current::record_push(self.id(), task, |t| self.slab.is_done(t), written);
        if self.slow_path.load(Ordering::Relaxed) & slow_path::HOOK != 0 {
            self.notify_hook(task, Event::Queued);
        }
    }

    /// Makes later pushes on the task's variables wait for it; calls `wait_for` with each
    /// predecessor, which returns whether that is pending.
    #[inline(always)]
    fn link(
        &self,
        state: &mut PushState,
        builder: TaskBuilder,
        task: TaskRef,
        mut wait_for: impl FnMut(&mut SlotAllocator, TaskRef) -> bool,
    ) {
        let (reads, writes) = builder.body().vars();
        let PushState { vars, slots, .. } = state;
        let states = vars.states();
        for &v in reads {
            states[v as usize].read(task, &self.slab, |t| wait_for(slots, t));
        }
        for &v in writes {
            states[v as usize].write(task, |t| {
                wait_for(slots, t);
            });
        }
    }

    /// Reserves an edge block for each edge of the task that may need one (several may come from
    /// the same predecessor); false if the slab is full.
    #[cold]
    #[inline(never)]
    fn reserve_blocks(
        &self,
        state: &mut PushState,
        builder: TaskBuilder,
        max_edges: usize,
    ) -> bool {
        let (reads, writes) = builder.body().vars();
        let states = state.vars.states();
        let before_reads = reads.iter().map(|&v| states[v as usize].before_read());
        let before_writes = writes.iter().flat_map(|&v| states[v as usize].before_write());
        let may_fill = |t: &TaskRef| self.slab.may_fill(*t, max_edges);
        let n = before_reads.chain(before_writes).filter(may_fill).count();
        state.slots.reserve(n, &self.slab, &self.returned)
    }

    /// Submits a task with at most `max_edges` predecessors, under the push lock; returns whether
    /// it is ready. `None`: the slab is full, nothing has changed, and `task` is still the
    /// caller's.
    #[inline(always)]
    fn submit(
        &self,
        state: &mut PushState,
        mut builder: TaskBuilder,
        task: &mut Task,
        max_edges: usize,
        opened: impl FnOnce(TaskRef),
    ) -> Option<bool> {
        let TaskBuilder { slot, body } = builder;
        if !state.slots.has(max_edges) && !self.reserve_blocks(state, builder, max_edges) {
            state.slots.give_back(slot);
            return None;
        }
        let this = self.slab.open(slot);
        state.pushed += 1;
        builder.set_sequence(state.pushed);
        // SAFETY: the task is not ready before `Slab::opened`, so its body is exclusive.
        let flags = unsafe {
            (*body).task.write(std::mem::replace(task, Task::nothing()));
            (*body).head.flags
        };
        opened(this);
        let mut edges = 0;
        self.link(state, builder, this, |slots, before| {
            let is_pending = self.slab.add_edge(before, slot, slots);
            edges += u32::from(is_pending);
            is_pending
        });
        if !self.slab.opened(this, edges) {
            return Some(false);
        }
        if flags & flag::PRIORITIZED == 0 {
            self.queues.push(slot);
        } else {
            self.enqueue_prioritized(slot);
        }
        Some(true)
    }

    /// Opens a signal that waits for `tasks`, and for which the operations `waiting` wait: its
    /// function is run by the thread that completes the last task. Returns the function if all are
    /// complete, or with an error if the slab is full. Under the push lock.
    pub fn open_signal(
        &self,
        state: &mut PushState,
        tasks: &[TaskRef],
        waiting: Vec<TaskRef>,
        f: Task,
    ) -> Result<Option<Task>> {
        let mut builder =
            TaskBuilder::new(state, &self.slab, &self.returned).ok_or_else(too_many)?;
        let TaskBuilder { slot, body } = builder;
        let n = tasks.iter().filter(|&&t| self.slab.may_fill(t, tasks.len())).count();
        if !state.slots.reserve(n, &self.slab, &self.returned) {
            state.slots.give_back(slot);
            return Err(too_many());
        }
        builder.describe_internal(state.names.empty(), flag::SIGNAL, None);
        builder.set_waiting(waiting);
        builder.set_sequence(state.pushed);
        // SAFETY: as in `submit`.
        unsafe { (*body).task.write(f) };
        let signal = self.slab.open(slot);
        let mut edges = 0;
        for &before in tasks {
            edges += u32::from(self.slab.add_edge(before, slot, &mut state.slots));
        }
        if !self.slab.opened(signal, edges) {
            return Ok(None);
        }
        // SAFETY: the signal has become ready here, so its function is taken here only.
        let f = unsafe { (*body).task.assume_init_read() };
        self.slab.get(slot).close();
        state.slots.give_back(slot);
        Ok(Some(f))
    }

    /// Deletes variable `i` after everything pending that names it. Under the push lock; the caller
    /// wakes a worker. If the slab is full the task is returned, and the variable's index stays
    /// taken.
    #[cold]
    pub fn push_deletion(
        &self,
        state: &mut PushState,
        i: u32,
        last: Option<Box<dyn FnOnce() + Send>>,
    ) -> Option<Task> {
        let mut task = match last {
            None => Task::nothing(),
            Some(last) => Task::sync(move |_| {
                last();
                Ok(())
            }),
        };
        let name = state.names.intern("DeleteVariable").unwrap_or_else(|| state.names.empty());
        let builder = TaskBuilder::new(state, &self.slab, &self.returned);
        let pushed = builder.and_then(|mut builder| {
            let flags = flag::NO_SKIP | flag::TO_THE_END | flag::DELETE;
            builder.describe_internal(name, flags, Some(i));
            let edges = state.vars.states()[i as usize].max_before_write();
            self.submit(state, builder, &mut task, edges, |task| self.record_push(task, &[]))
        });
        state.vars.mark_deleted(i);
        pushed.is_none().then_some(task)
    }

    /// Queues a ready task of high or low priority.
    #[cold]
    pub fn enqueue_prioritized(&self, slot: u32) {
        // SAFETY: the task is live and its body is only read.
        let priority = unsafe { &*self.slab.get(slot).body() }.priority();
        self.queues.push_prioritized(priority, slot);
    }
}

#[cold]
fn too_many() -> Error {
    Error::new(ErrorKind::Memory, "too many operations are pending")
}
