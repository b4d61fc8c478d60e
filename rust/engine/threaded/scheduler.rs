//! One push, under the push lock: variables, edges, body, queue.
//!
//! A push first looks (are the variables there and different? how many tasks must be waited for, at most? are there
//! slots?) and only then changes anything, so that one that fails leaves nothing behind. Body and edges are there before
//! [`Slab::opened`](crate::engine::data::task_slab::Slab::opened), with which the task may become ready.

use crate::context::Context;
use crate::engine::data::task_slab::{Spare, TaskRef, flag};
use crate::engine::data::variables;
use crate::engine::operation::OperationInner;
use crate::engine::task::Task;
use crate::engine::threaded::core::{Alloc, Core, PushState, rank_of, rare, vars_of};
use crate::engine::threaded::current;
use crate::engine::threaded::push_request::{Run, Source};
use crate::engine::threaded::task_builder::{Draft, Look};
use crate::engine::{Operation, Origin, Push, Var};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl PushState {
    /// Sees to it that there is a carrier for each edge of the task that may need one (several may come from one other
    /// task); false if there is no room.
    #[cold]
    #[inline(never)]
    fn reserve(&mut self, core: &Core, draft: Draft, most_edges: usize) -> bool {
        let (reads, writes) = vars_of(draft.body());
        let states = self.vars.states();
        let before_reads = reads.iter().map(|&v| states[v as usize].before_read());
        let before_writes = writes.iter().flat_map(|&v| states[v as usize].before_write());
        let n = before_reads
            .chain(before_writes)
            .filter(|&t| core.slab.may_fill(t, most_edges))
            .count();
        self.alloc.reserve(core, n)
    }

    /// Makes the task what later pushes on its variables wait for; `wait_for` is called with each task that it must wait
    /// for, and says whether that is pending.
    #[inline(always)]
    fn join(
        &mut self,
        core: &Core,
        draft: Draft,
        task: TaskRef,
        mut wait_for: impl FnMut(&mut Alloc, TaskRef) -> bool,
    ) {
        let (reads, writes) = vars_of(draft.body());
        let PushState { vars, alloc, .. } = self;
        let states = vars.states();
        for &v in reads {
            states[v as usize].read(task, &core.slab, |t| wait_for(alloc, t));
        }
        for &v in writes {
            states[v as usize].write(task, |t| {
                wait_for(alloc, t);
            });
        }
    }
}

impl Core {
    /// Pushes as it is, past any bulk.
    #[inline]
    pub fn push_task(&self, task: &mut Task, push: &Push<'_>) -> Result<()> {
        self.push_from(task, push, push.origin)
    }

    /// Pushes a ready-made operation.
    #[inline]
    pub fn push_operation(
        &self,
        operation: &Operation,
        ctx: Context,
        priority: i32,
        line: Option<Origin<'_>>,
    ) -> Result<()> {
        let o = operation.inner();
        o.check_live()?;
        if !operation.lends_to(self) {
            return self
                .push_task(&mut operation.task(), &Push { origin: line, ..o.push(ctx, priority) });
        }
        // SAFETY: it writes something, so its runs follow one another, and `last` names the last of them:
        // `retire_operation` waits for that.
        let mut task = unsafe { operation.borrowed_task() };
        self.push_from(&mut task, &Run { operation: o, ctx, priority }, line)
    }

    /// Pushes, and runs what is to be run here. (The user's line is asked for where it is needed: the task is queued,
    /// or outlives its push, or the hang report wants it; and outside of the lock, for it may run Python.)
    #[inline(always)]
    fn push_from(
        &self,
        task: &mut Task,
        source: &impl Source,
        origin: Option<Origin<'_>>,
    ) -> Result<()> {
        if !source.may_run_here() {
            return self.enqueue(task, source, origin.and_then(|line| line()));
        }
        let ends_here = !task.is_asynchronous();
        let wants_line = origin.is_some()
            && (!ends_here || self.rare.load(Ordering::Relaxed) & rare::ORIGINS != 0);
        let line = if wants_line { origin.and_then(|line| line()) } else { None };
        match self.open_here(source, line, ends_here) {
            Ok(opened) => {
                self.run_inline(opened, task, origin);
                Ok(())
            }
            Err(line) => self.enqueue_not_ready(task, source, line, origin),
        }
    }

    #[cold]
    #[inline(never)]
    fn enqueue_not_ready(
        &self,
        task: &mut Task,
        source: &impl Source,
        line: Option<Arc<str>>,
        origin: Option<Origin<'_>>,
    ) -> Result<()> {
        self.enqueue(task, source, line.or_else(|| origin?()))
    }

    /// Opens a task that waits for nothing, for its pusher to run; its slot may be kept if it ends there, too. Else nothing
    /// has changed, and the line comes back.
    #[inline(always)]
    fn open_here(
        &self,
        source: &impl Source,
        line: Option<Arc<str>>,
        ends_here: bool,
    ) -> std::result::Result<TaskRef, Option<Arc<str>>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(mut draft) = Draft::take(self, state) else { return Err(line) };
        if source.look(state, &mut draft, Look { slab: &self.slab, quiet: true }).is_none() {
            state.alloc.give_back(draft.slot);
            return Err(line);
        }
        source.write(&mut draft, &mut state.names, line);
        let task = self.slab.open(draft.slot);
        state.join(self, draft, task, |_, _| false);
        let kept = if ends_here { state.alloc.keep(task) } else { 0 };
        state.pushed += u64::from(kept == 0);
        draft.write_order(state.pushed, kept);
        source.opened(task);
        self.note(task, source.lists().1);
        Ok(task)
    }

    /// Pushes for a worker to run.
    #[inline(never)]
    fn enqueue(&self, task: &mut Task, source: &impl Source, line: Option<Arc<str>>) -> Result<()> {
        let is_ready = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let mut draft = Draft::take(self, state).ok_or_else(too_many)?;
            let look = Look { slab: &self.slab, quiet: false };
            let Some(edges) = source.look(state, &mut draft, look) else {
                state.alloc.give_back(draft.slot);
                let (reads, writes) = source.lists();
                return Err(variables::explain(&state.vars, source.name(), reads, writes));
            };
            source.write(&mut draft, &mut state.names, line);
            let opened = |task| {
                source.opened(task);
                self.note(task, source.lists().1);
            };
            self.submit(state, draft, task, edges, opened).ok_or_else(too_many)?
        };
        if is_ready {
            self.announce();
        }
        Ok(())
    }

    /// A task that writes `written` is about to get its edges, or to be run.
    #[inline(always)]
    fn note(&self, task: TaskRef, written: &[Var]) {
        current::note_push(self, task, |t| self.slab.is_done(t), written);
        if self.rare.load(Ordering::Relaxed) & rare::HOOK != 0 {
            self.hook_queued(task);
        }
    }

    /// Gives the memory of a ready-made operation back: now, or after its last run.
    #[cold]
    pub fn retire_operation(&self, operation: Box<OperationInner>) {
        let last = TaskRef(operation.last.load(Ordering::Relaxed));
        let done = Task::sync(move |_| {
            drop(operation);
            Ok(())
        });
        let left = {
            let mut state = self.lock();
            self.open_signal(&mut state, &[last], Vec::new(), done)
        };
        // Outside of the lock: what the function holds may call the engine as it goes.
        match left {
            Ok(left) => drop(left),
            Err((_, task)) => std::mem::forget(task), // no room for a signal: better lost than too early
        }
    }

    /// Pushes what a draft says, which has at most so many edges, under the push lock: is it ready? What is not pushed,
    /// for want of room, has changed nothing, and its task is still the caller's.
    #[inline(always)]
    fn submit(
        &self,
        state: &mut PushState,
        mut draft: Draft,
        task: &mut Task,
        most_edges: usize,
        opened: impl FnOnce(TaskRef),
    ) -> Option<bool> {
        let Draft { slot, body } = draft;
        if !state.alloc.has(most_edges) && !state.reserve(self, draft, most_edges) {
            state.alloc.give_back(slot);
            return None;
        }
        let this = self.slab.open(slot);
        state.pushed += 1;
        draft.write_order(state.pushed, 0);
        // SAFETY: the task is not ready before `Slab::opened`, so nobody else touches its body.
        let flags = unsafe {
            task.move_to((&raw mut (*body).task).cast());
            (*body).head.flags
        };
        opened(this);
        let mut edges = 0;
        state.join(self, draft, this, |alloc, before| {
            let is_pending = self.slab.add_edge(before, slot, alloc);
            edges += u32::from(is_pending);
            is_pending
        });
        if !self.slab.opened(this, edges) {
            return Some(false);
        }
        if flags & flag::RANKED == 0 {
            self.queues.pushed(slot);
        } else {
            self.queue_ranked(slot);
        }
        Some(true)
    }

    /// A signal that waits for `tasks`, and by it the operations `waiting`: its function is run by whoever completes the
    /// last of them. Gives it back if all were complete, or if there is no room. Under the push lock.
    pub fn open_signal(
        &self,
        state: &mut PushState,
        tasks: &[TaskRef],
        waiting: Vec<TaskRef>,
        f: Task,
    ) -> std::result::Result<Option<Task>, (Error, Task)> {
        let Some(mut draft) = Draft::take(self, state) else { return Err((too_many(), f)) };
        let Draft { slot, body } = draft;
        let n = tasks.iter().filter(|&&t| self.slab.may_fill(t, tasks.len())).count();
        if !state.alloc.reserve(self, n) {
            state.alloc.give_back(slot);
            return Err((too_many(), f));
        }
        draft.write_own(state.names.unnamed(), flag::SIGNAL, None);
        draft.write_waiting(waiting);
        // SAFETY: as in `submit`.
        unsafe {
            draft.write_order(state.pushed, 0);
            (*body).task.write(f);
        }
        let signal = self.slab.open(slot);
        let mut edges = 0;
        for &before in tasks {
            edges += u32::from(self.slab.add_edge(before, slot, &mut state.alloc));
        }
        if !self.slab.opened(signal, edges) {
            return Ok(None);
        }
        // SAFETY: it has become ready here, so nobody else takes its function.
        let f = unsafe { (*body).task.assume_init_read() };
        self.slab.get(slot).close();
        state.alloc.give_back(slot);
        Ok(Some(f))
    }

    /// Deletes variable `i` after everything pending that names it. Under the push lock; the caller
    /// announces. Without room the task comes back, and the variable's slot stays taken.
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
        let name = state.names.keep("DeleteVariable").unwrap_or_else(|| state.names.unnamed());
        let pushed = Draft::take(self, state).and_then(|mut draft| {
            draft.write_own(name, flag::NO_SKIP | flag::TO_THE_END | flag::DELETE, Some(i));
            let edges = state.vars.states()[i as usize].most_before_write();
            self.submit(state, draft, &mut task, edges, |task| self.note(task, &[]))
        });
        state.vars.bury(i);
        pushed.is_none().then_some(task)
    }

    /// Queues a ready task that has a rank.
    #[cold]
    pub fn queue_ranked(&self, slot: u32) {
        // SAFETY: the task is live and its body is only read.
        let rank = rank_of(unsafe { &*self.slab.get(slot).body() });
        self.queues.ranked(rank, slot);
    }
}

#[cold]
fn too_many() -> Error {
    Error::new(crate::error::ErrorKind::Memory, "too many operations are pending")
}
