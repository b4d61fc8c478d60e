//! One push, under the push lock: variables, edges, body, queue.
//!
//! A push first looks (are the variables there and different? which tasks must be waited for? are there slots?) and
//! only then changes anything, so that one that fails leaves nothing behind. The number of edges is known before
//! the first of them is added; so is the body, because the task may become ready with its last edge.

use super::operation::OperationInner;
use super::slot::{Body, Extra, Spare, TaskRef, VARS, flag};
use super::source::{Run, Source};
use super::task::Task;
use super::threaded::{Core, PushState, rare, vars_of};
use super::var;
use super::{Operation, Origin, Push, Var, frame};
use crate::context::Context;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A slot on its way to be a task, out of use until then, and its body.
#[derive(Clone, Copy)]
pub struct Draft {
    slot: u32,
    body: *mut Body,
}

#[cold]
#[inline(never)]
fn forget_extra(body: &mut Body) {
    body.extra = None;
}

impl Draft {
    #[inline]
    fn take(core: &Core, state: &mut PushState) -> Option<Self> {
        let slot = state.alloc.take(core)?;
        Some(Draft { slot, body: core.slab.get(slot).body() })
    }

    /// The body, to be read.
    #[inline]
    fn body(&self) -> &Body {
        // SAFETY: the slot is out of use and this its only user; all bytes of a body are initialised from the
        // start, but for the function.
        unsafe { &*self.body }
    }

    /// Writes the rest but for function and place in the order.
    #[inline]
    pub fn write_rest(&self, name: *const Box<str>, flags: u8, overwrites: usize, ctx: Context) {
        // SAFETY: as in `body`.
        let body = unsafe { &mut *self.body };
        body.name = name;
        body.flags = flags;
        body.overwrites = overwrites as u16;
        body.device_type = ctx.device_type as u8;
        body.device_id = ctx.device_id;
    }

    /// What few tasks have.
    #[cold]
    pub fn write_extra(&self, name: Option<&str>, origin: Option<&Arc<str>>, priority: i32) {
        // SAFETY: as in `body`.
        let extra = unsafe { (*self.body).extra.get_or_insert_default() };
        extra.name = name.map(Arc::from);
        extra.origin = origin.cloned();
        extra.priority = priority;
    }

    /// A task that the engine makes for itself, which writes at most one variable.
    fn write_own(&self, name: *const Box<str>, flags: u8, var: Option<u32>) {
        self.write_counts(0, usize::from(var.is_some()));
        self.write_rest(name, flags, 0, Context::default());
        // SAFETY: as in `body`.
        unsafe { (*self.body).vars[0] = var.unwrap_or(0) };
    }

    /// The last thing written but for the function, when the task has its place in the order of pushes.
    #[inline(always)]
    fn write_order(&self, pushed: u64, more_flags: u8) {
        // SAFETY: as in `body`.
        let body = unsafe { &mut *self.body };
        body.sequence = pushed as u32;
        body.flags |= more_flags;
    }

    /// The first thing written.
    #[inline]
    fn write_counts(&self, reads: usize, writes: usize) {
        // SAFETY: as in `body`; `extra` is none or a box.
        let body = unsafe { &mut *self.body };
        if body.extra.is_some() {
            forget_extra(body);
        }
        body.reads = reads as u16;
        body.writes = writes as u16;
    }
}

impl PushState {
    /// Writes the variables of a draft, and gathers in `before` the tasks that it must wait for; false if one is not
    /// found. (They are written where they are to stay: to copy what has just been written piece by piece takes as
    /// long as all the rest.)
    #[inline(always)]
    fn look(&mut self, core: &Core, draft: Draft, source: &impl Source) -> bool {
        let (reads, writes) = source.lists();
        draft.write_counts(reads.len(), writes.len());
        self.before.clear();
        if reads.len() + writes.len() > VARS {
            return self.look_at_many(core, draft, source);
        }
        let PushState { vars, before, .. } = self;
        let mark = source.mark(vars);
        let states = vars.states();
        // SAFETY: as in `Draft::body`.
        let places = unsafe { &mut (*draft.body).vars };
        for (&v, place) in reads.iter().zip(&mut places[..]) {
            let Some((i, var)) = source.find(states, v, mark) else { return false };
            *place = i;
            var.before_read(|t| core.slab.is_done(t), |t| before.push(t));
        }
        for (&v, place) in writes.iter().zip(&mut places[reads.len()..]) {
            let Some((i, var)) = source.find(states, v, mark) else { return false };
            *place = i;
            var.before_write(|t| core.slab.is_done(t), |t| before.push(t));
        }
        true
    }

    /// The same for more variables than a slot holds.
    #[cold]
    fn look_at_many(&mut self, core: &Core, draft: Draft, source: &impl Source) -> bool {
        let (reads, writes) = source.lists();
        let n = reads.len() + writes.len();
        if n > super::MOST_VARIABLES {
            return false;
        }
        let PushState { vars, before, .. } = self;
        let mark = source.mark(vars);
        let mut found = Vec::with_capacity(n);
        for &v in reads.iter().chain(writes) {
            let Some((i, var)) = source.find(vars.states(), v, mark) else { return false };
            if found.len() < reads.len() {
                var.before_read(|t| core.slab.is_done(t), |t| before.push(t))
            } else {
                var.before_write(|t| core.slab.is_done(t), |t| before.push(t))
            }
            found.push(i);
        }
        // SAFETY: as in `Draft::body`.
        unsafe { (*draft.body).extra = Some(Box::new(Extra { vars: found, ..Extra::default() })) };
        true
    }

    /// Opens the task, and makes it what later pushes on its variables wait for.
    #[inline(always)]
    fn open(&mut self, core: &Core, draft: Draft, edges: usize) -> TaskRef {
        let task = core.slab.open(draft.slot, edges);
        let (reads, writes) = vars_of(draft.body());
        let states = self.vars.states();
        for &v in writes {
            states[v as usize].write(task);
        }
        for &v in reads {
            states[v as usize].read(task, |t| core.slab.is_done(t));
        }
        task
    }

    /// Adds the edges from `before`; true if the task is ready and nobody else knows.
    #[inline]
    fn connect(&mut self, core: &Core, task: TaskRef, edges: usize) -> bool {
        let PushState { before, alloc, .. } = self;
        let mut missed = 0;
        for &before in before.iter() {
            missed += usize::from(!core.slab.add_edge(before, task.slot(), alloc));
        }
        core.slab.opened(task, edges, missed)
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
        let wants_line = origin.is_some()
            && (task.is_asynchronous() || self.rare.load(Ordering::Relaxed) & rare::ORIGINS != 0);
        let line = if wants_line { origin.and_then(|line| line()) } else { None };
        match self.open_here(source, line.as_ref()) {
            Some(opened) => {
                self.run_inline(opened, task, origin);
                Ok(())
            }
            None => self.enqueue_not_ready(task, source, line, origin),
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

    /// Opens a task that waits for nothing, for its pusher to run. Else there is none, and nothing has changed.
    #[inline(always)]
    fn open_here(&self, source: &impl Source, line: Option<&Arc<str>>) -> Option<TaskRef> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let draft = Draft::take(self, state)?;
        if !state.look(self, draft, source) || !state.before.is_empty() {
            state.alloc.give_back(draft.slot);
            return None;
        }
        source.write(draft, &mut state.names, line);
        let task = state.open(self, draft, 0);
        let kept = state.alloc.keep(task);
        state.pushed += u64::from(kept == 0);
        draft.write_order(state.pushed, kept);
        source.opened(task);
        self.note(task, source.lists().1);
        Some(task)
    }

    /// Pushes for a worker to run.
    #[inline(never)]
    fn enqueue(&self, task: &mut Task, source: &impl Source, line: Option<Arc<str>>) -> Result<()> {
        let is_ready = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let draft = Draft::take(self, state).ok_or_else(too_many)?;
            if !state.look(self, draft, source) {
                state.alloc.give_back(draft.slot);
                let (reads, writes) = source.lists();
                return Err(var::explain(&state.vars, source.name(), reads, writes));
            }
            source.write(draft, &mut state.names, line.as_ref());
            let opened = |task| {
                source.opened(task);
                self.note(task, source.lists().1);
            };
            self.submit(state, draft, task, opened).ok_or_else(too_many)?
        };
        if is_ready {
            self.announce();
        }
        Ok(())
    }

    /// A task that writes `written` is about to get its edges, or to be run.
    #[inline(always)]
    fn note(&self, task: TaskRef, written: &[Var]) {
        frame::note_push(self, task, |t| self.slab.is_done(t), written);
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
            self.open_signal(&mut state, &[last], done)
        };
        // Outside of the lock: what the function holds may call the engine as it goes.
        match left {
            Ok(left) => drop(left),
            Err((_, task)) => std::mem::forget(task), // no room for a signal: better lost than too early
        }
    }

    /// Pushes what a draft says, after what `before` says, under the push lock: is it ready? What is not pushed, for want
    /// of room, has changed nothing, and its task is still the caller's.
    #[inline(always)]
    fn submit(
        &self,
        state: &mut PushState,
        draft: Draft,
        task: &mut Task,
        opened: impl FnOnce(TaskRef),
    ) -> Option<bool> {
        let Draft { slot, body } = draft;
        let edges = state.before.len();
        if !state.alloc.reserve(self, edges) {
            state.alloc.give_back(slot);
            return None;
        }
        let this = state.open(self, draft, edges);
        state.pushed += 1;
        draft.write_order(state.pushed, 0);
        // SAFETY: the task has no edges yet and is in no queue, so nobody else touches its body.
        let flags = unsafe {
            task.move_to((&raw mut (*body).task).cast());
            (*body).flags
        };
        opened(this);
        if !state.connect(self, this, edges) {
            return Some(false);
        }
        if flags & (flag::URGENT | flag::LATER) == 0 {
            self.queues.pushed(slot);
        } else {
            self.queue_ranked(slot);
        }
        Some(true)
    }

    /// A signal that waits for `tasks`: its function is run by whoever completes the last of them. Gives it
    /// back if all were complete, or if there is no room. Under the push lock.
    pub fn open_signal(
        &self,
        state: &mut PushState,
        tasks: &[TaskRef],
        f: Task,
    ) -> std::result::Result<Option<Task>, (Error, Task)> {
        state.before.clear();
        state.before.extend(tasks.iter().filter(|&&t| !self.slab.is_done(t)));
        let Some(draft) = Draft::take(self, state) else { return Err((too_many(), f)) };
        let Draft { slot, body } = draft;
        if !state.alloc.reserve(self, state.before.len()) {
            state.alloc.give_back(slot);
            return Err((too_many(), f));
        }
        draft.write_own(state.names.unnamed(), flag::SIGNAL, None);
        // SAFETY: as in `submit`.
        unsafe {
            draft.write_order(state.pushed, 0);
            (*body).task.write(f);
        }
        let edges = state.before.len();
        let signal = state.open(self, draft, edges);
        if !state.connect(self, signal, edges) {
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
        let task = match last {
            None => Task::nothing(),
            Some(last) => Task::sync(move |_| {
                last();
                Ok(())
            }),
        };
        let mut task = task;
        let name = state.names.keep("DeleteVariable").unwrap_or_else(|| state.names.unnamed());
        let pushed = match Draft::take(self, state) {
            None => None,
            Some(draft) => {
                let flags = flag::NO_SKIP | flag::TO_THE_END | flag::DELETE;
                draft.write_own(name, flags, Some(i));
                state.before.clear();
                let PushState { vars, before, .. } = &mut *state;
                let var = &mut vars.states()[i as usize];
                var.before_write(|t| self.slab.is_done(t), |t| before.push(t));
                self.submit(state, draft, &mut task, |task| self.note(task, &[]))
            }
        };
        state.vars.bury(i);
        pushed.is_none().then_some(task)
    }

    /// Queues a ready task that has a rank.
    #[cold]
    pub fn queue_ranked(&self, slot: u32) {
        // SAFETY: the task is live and its body is only read.
        let body = unsafe { &*self.slab.get(slot).body() };
        let priority = body.extra.as_ref().map_or(0, |e| e.priority);
        if body.flags & flag::URGENT != 0 {
            self.queues.urgent(priority, slot);
        } else {
            self.queues.later(priority, slot);
        }
    }
}

#[cold]
fn too_many() -> Error {
    Error::new(crate::error::ErrorKind::Memory, "too many operations are pending")
}
