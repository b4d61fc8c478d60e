//! One push, under the push lock: variables, edges, body, queue.
//!
//! A push first looks (are the variables there and different? which tasks must be waited for? are there slots?) and
//! only then changes anything, so that one that fails leaves nothing behind. The number of edges is known before
//! the first of them is added; so is the body, because the task may become ready with its last edge.

use super::operation::OperationInner;
use super::slot::{Body, EDGES, Edge, Extra, TaskRef, VARS, flag};
use super::task::Task;
use super::threaded::{Core, PushState, rare, vars_of};
use super::var::{self, Vars};
use super::{Operation, Origin, Prop, Push, Var, frame};
use crate::context::Context;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of a push. A task that was pushed has moved to its slot, and left nothing; else it is still the
/// caller's.
#[derive(Clone, Copy)]
enum Pushed {
    /// Waits for others.
    Waiting,
    /// Ready: a worker is to be told.
    Queued,
    /// Ready and cheap: the caller runs it.
    Inline(TaskRef),
    /// Not pushed: it was to run inline only, and is not ready.
    NotReady,
    /// Not pushed: there is no room.
    Full,
}

/// How a push wishes to run.
#[derive(Clone, Copy, PartialEq)]
enum Wish {
    /// On a worker.
    Queue,
    /// On the pushing thread, if it is ready.
    Inline,
    /// The same; nothing is pushed if it is not, because then the user's line is needed.
    OnlyInline,
}

/// A slot on its way to be a task, out of use until then, and its body.
#[derive(Clone, Copy)]
struct Draft {
    slot: u32,
    body: *mut Body,
}

#[cold]
#[inline(never)]
fn forget_extra(body: &mut Body) {
    body.extra = None;
}

/// A task that has its slot and its body, and whose edges are to be added.
struct Opened {
    task: TaskRef,
    edges: usize,
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
    fn write_rest(&self, name: *const Box<str>, flags: u8, overwrites: usize, ctx: Context) {
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
    fn write_extra(&self, name: Option<Arc<str>>, origin: Option<Arc<str>>, priority: i32) {
        // SAFETY: as in `body`.
        let extra = unsafe { (*self.body).extra.get_or_insert_default() };
        extra.name = name;
        extra.origin = origin;
        extra.priority = priority;
    }

    /// A task that the engine makes for itself, which writes at most one variable.
    fn write_own(&self, name: *const Box<str>, flags: u8, var: Option<u32>) {
        self.write_counts(0, usize::from(var.is_some()));
        self.write_rest(name, flags, 0, Context::default());
        // SAFETY: as in `body`.
        unsafe { (*self.body).vars[0] = var.unwrap_or(0) };
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
    /// Writes the variables of a draft by the slots that `find` gives, and gathers in `before` the tasks that it must
    /// wait for; false if a variable is not found. (The slots are written where they are to stay: to copy what has
    /// just been written piece by piece takes as long as all the rest.)
    #[inline(always)]
    fn look(
        &mut self,
        core: &Core,
        draft: Draft,
        reads: &[Var],
        writes: &[Var],
        find: impl Fn(&mut Vars, Var) -> Option<u32>,
    ) -> bool {
        draft.write_counts(reads.len(), writes.len());
        self.before.clear();
        if reads.len() + writes.len() > VARS {
            return self.look_at_many(core, draft, reads, writes, find);
        }
        // SAFETY: as in `Draft::body`.
        let mut places = unsafe { &mut (*draft.body).vars }.iter_mut();
        for (&v, place) in reads.iter().zip(&mut places) {
            let Some(i) = find(&mut self.vars, v) else { return false };
            *place = i;
            self.before_read(core, i);
        }
        // (The shorter one first: a zip takes from it before it finds the other empty.)
        for (&v, place) in writes.iter().zip(places) {
            let Some(i) = find(&mut self.vars, v) else { return false };
            *place = i;
            self.before_write(core, i);
        }
        true
    }

    /// The same for more variables than a slot holds.
    #[cold]
    fn look_at_many(
        &mut self,
        core: &Core,
        draft: Draft,
        reads: &[Var],
        writes: &[Var],
        find: impl Fn(&mut Vars, Var) -> Option<u32>,
    ) -> bool {
        let n = reads.len() + writes.len();
        if n > super::MOST_VARIABLES {
            return false;
        }
        let mut found = Vec::with_capacity(n);
        for &v in reads.iter().chain(writes) {
            let Some(i) = find(&mut self.vars, v) else { return false };
            if found.len() < reads.len() {
                self.before_read(core, i)
            } else {
                self.before_write(core, i)
            }
            found.push(i);
        }
        // SAFETY: as in `Draft::body`.
        unsafe { (*draft.body).extra = Some(Box::new(Extra { vars: found, ..Extra::default() })) };
        true
    }

    /// Adds what a reader of variable `i` must wait for.
    #[inline(always)]
    fn before_read(&mut self, core: &Core, i: u32) {
        let PushState { vars, before, .. } = self;
        vars.before_read(i, |t| core.slab.is_done(t), |t| before.push(t));
    }

    /// Adds what a writer of variable `i` must wait for.
    #[inline(always)]
    fn before_write(&mut self, core: &Core, i: u32) {
        let PushState { vars, before, .. } = self;
        vars.before_write(i, |t| core.slab.is_done(t), |t| before.push(t));
    }

    /// Takes the slots that carry the edges of `before`. None is taken when there is no more room.
    #[cold]
    fn take_carriers(&mut self, core: &Core) -> bool {
        self.carriers.clear();
        for _ in 0..(self.before.len() - 1) / EDGES {
            match self.alloc.take(core) {
                Some(slot) => self.carriers.push(slot),
                None => {
                    let PushState { carriers, alloc, .. } = self;
                    carriers.drain(..).for_each(|slot| alloc.give_back(slot));
                    return false;
                }
            }
        }
        true
    }

    /// Opens the task, and makes it what later pushes on its variables wait for.
    #[inline]
    fn open(&mut self, core: &Core, draft: Draft) -> Opened {
        let edges = self.before.len();
        let task = core.slab.open(draft.slot, edges);
        let (reads, writes) = vars_of(draft.body());
        for &v in writes {
            self.vars.write(v, task);
        }
        for &v in reads {
            self.vars.read(v, task, |t| core.slab.is_done(t));
        }
        Opened { task, edges }
    }

    /// Adds the edges; true if the task is ready and nobody else knows.
    #[inline]
    fn connect(&mut self, core: &Core, opened: &Opened) -> bool {
        if opened.edges == 0 {
            return true;
        }
        let slot = opened.task.slot();
        let mut missed = 0;
        for (n, &before) in self.before.iter().take(EDGES).enumerate() {
            missed += usize::from(!core.slab.add_edge(before, Edge::of_task(slot, n)));
        }
        if opened.edges > EDGES {
            missed += self.connect_by_carriers(core, opened.task);
        }
        core.slab.opened(opened.task, opened.edges, missed)
    }

    /// Adds the edges beyond the first few, and tells how many came too late.
    #[cold]
    fn connect_by_carriers(&mut self, core: &Core, task: TaskRef) -> usize {
        let mut missed = 0;
        for (chunk, &carrier) in self.before[EDGES..].chunks(EDGES).zip(&self.carriers) {
            core.slab.add_carrier(task, carrier);
            for (n, &before) in chunk.iter().enumerate() {
                missed += usize::from(!core.slab.add_edge(before, Edge::of_carrier(carrier, n)));
            }
        }
        missed
    }
}

impl Core {
    /// Pushes as it is, past any bulk.
    #[inline]
    pub fn push_task(&self, task: &mut Task, push: &Push<'_>) -> Result<()> {
        let inline = may_run_inline(push.cheap, push.prop, push.priority);
        let wish = self.wish(inline, task, push.origin);
        if self.push_as(task, push, wish)? { Ok(()) } else { self.push_not_ready(task, push) }
    }

    #[cold]
    #[inline(never)]
    fn push_not_ready(&self, task: &mut Task, push: &Push<'_>) -> Result<()> {
        self.push_as(task, push, Wish::Inline).map(|_| ())
    }

    #[inline(always)]
    fn push_as(&self, task: &mut Task, push: &Push<'_>, wish: Wish) -> Result<bool> {
        let pushed = self.enqueue(task, push, line(push.origin, wish), wish)?;
        self.pushed(pushed, task, push.origin)
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
        let wish = self.wish(may_run_inline(o.cheap, o.prop, priority), &task, line);
        if self.push_operation_as(&mut task, o, ctx, priority, line, wish)? {
            return Ok(());
        }
        self.push_operation_not_ready(&mut task, o, ctx, priority, line)
    }

    #[cold]
    #[inline(never)]
    fn push_operation_not_ready(
        &self,
        task: &mut Task,
        o: &OperationInner,
        ctx: Context,
        priority: i32,
        line: Option<Origin<'_>>,
    ) -> Result<()> {
        self.push_operation_as(task, o, ctx, priority, line, Wish::Inline).map(|_| ())
    }

    #[inline(always)]
    fn push_operation_as(
        &self,
        task: &mut Task,
        o: &OperationInner,
        ctx: Context,
        priority: i32,
        origin: Option<Origin<'_>>,
        wish: Wish,
    ) -> Result<bool> {
        let pushed = self.enqueue_operation(task, o, ctx, priority, line(origin, wish), wish)?;
        self.pushed(pushed, task, origin)
    }

    /// What is left to do outside of the lock. False: it is to be pushed in another way.
    #[inline(always)]
    fn pushed(&self, pushed: Pushed, task: &mut Task, line: Option<Origin<'_>>) -> Result<bool> {
        match pushed {
            Pushed::Waiting => {}
            Pushed::Queued => self.announce(),
            Pushed::Inline(opened) => self.run_inline(opened, task, line),
            Pushed::NotReady => return Ok(false),
            Pushed::Full => return Err(too_many()),
        }
        Ok(true)
    }

    /// How a push wishes to run. (A line is asked for beforehand where it is needed in any case: the task is to be
    /// queued, or outlives its push, or the hang report wants it.)
    #[inline]
    fn wish(&self, inline: bool, task: &Task, origin: Option<Origin<'_>>) -> Wish {
        match origin {
            None if inline => Wish::Inline,
            Some(_) if inline => {
                let wants_lines = self.rare.load(Ordering::Relaxed) & rare::ORIGINS != 0;
                if wants_lines || task.is_asynchronous() { Wish::Inline } else { Wish::OnlyInline }
            }
            _ => Wish::Queue,
        }
    }

    #[inline(always)]
    fn enqueue(
        &self,
        task: &mut Task,
        push: &Push<'_>,
        origin: Option<Arc<str>>,
        wish: Wish,
    ) -> Result<Pushed> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(draft) = Draft::take(self, state) else { return Ok(Pushed::Full) };
        let mark = state.vars.new_mark();
        if !state.look(self, draft, push.reads, push.writes, |vars, v| vars.take(v, mark)) {
            state.alloc.give_back(draft.slot);
            return Err(var::explain(&state.vars, push.name, push.reads, push.writes));
        }
        let name = state.names.keep(push.name);
        let flags = flags_of(push.prop, push.priority, push.cheap);
        let kept = name.unwrap_or_else(|| state.names.unnamed());
        draft.write_rest(kept, flags, push.overwrites, push.ctx);
        if name.is_none() || origin.is_some() || push.priority != 0 {
            draft.write_extra(name.is_none().then(|| push.name.into()), origin, push.priority);
        }
        Ok(self.submit(state, draft, task, wish, push.writes, None))
    }

    #[inline(always)]
    fn enqueue_operation(
        &self,
        task: &mut Task,
        o: &OperationInner,
        ctx: Context,
        priority: i32,
        origin: Option<Arc<str>>,
        wish: Wish,
    ) -> Result<Pushed> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(draft) = Draft::take(self, state) else { return Ok(Pushed::Full) };
        if !state.look(self, draft, &o.reads, &o.writes, |vars, v| vars.find(v)) {
            state.alloc.give_back(draft.slot);
            return Err(var::explain(&state.vars, &o.name, &o.reads, &o.writes));
        }
        draft.write_rest(o.kept_name, flags_of(o.prop, priority, o.cheap), o.overwrites, ctx);
        if priority != 0 || origin.is_some() {
            draft.write_extra(None, origin, priority);
        }
        Ok(self.submit(state, draft, task, wish, &o.writes, Some(&o.last)))
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

    /// Pushes what a draft says, after what `before` says, under the push lock. What is not pushed has changed
    /// nothing.
    #[inline(always)]
    fn submit(
        &self,
        state: &mut PushState,
        draft: Draft,
        task: &mut Task,
        wish: Wish,
        written: &[Var],
        last: Option<&AtomicU64>,
    ) -> Pushed {
        let Draft { slot, body } = draft;
        if wish == Wish::OnlyInline && !state.before.is_empty() {
            state.alloc.give_back(slot);
            return Pushed::NotReady;
        }
        if state.before.len() > EDGES && !state.take_carriers(self) {
            state.alloc.give_back(slot);
            return Pushed::Full;
        }
        let opened = state.open(self, draft);
        if let Some(last) = last {
            last.store(opened.task.0, Ordering::Relaxed);
        }
        state.pushed += 1;
        let runs_here = wish != Wish::Queue && opened.edges == 0;
        // SAFETY: the task has no edges yet and is in no queue, so nobody else touches its body.
        let flags = unsafe {
            (*body).sequence = state.pushed as u32;
            if !runs_here {
                task.move_to((&raw mut (*body).task).cast());
            }
            (*body).flags
        };
        frame::note_push(self, opened.task, |t| self.slab.is_done(t), written);
        if self.rare.load(Ordering::Relaxed) & rare::HOOK != 0 {
            self.hook_queued(opened.task);
        }
        if runs_here {
            return Pushed::Inline(opened.task);
        }
        if !state.connect(self, &opened) {
            return Pushed::Waiting;
        }
        if flags & (flag::URGENT | flag::LATER) == 0 {
            self.queues.pushed(slot);
        } else {
            self.queue_ranked(slot);
        }
        Pushed::Queued
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
        if state.before.len() > EDGES && !state.take_carriers(self) {
            state.alloc.give_back(slot);
            return Err((too_many(), f));
        }
        draft.write_own(state.names.unnamed(), flag::SIGNAL, None);
        // SAFETY: as in `submit`.
        unsafe {
            (*body).sequence = state.pushed as u32;
            (*body).task.write(f);
        }
        let opened = state.open(self, draft);
        if !state.connect(self, &opened) {
            return Ok(None);
        }
        // SAFETY: it has become ready here, so nobody else takes its function.
        let f = unsafe { (*body).task.assume_init_read() };
        self.slab.get(slot).close();
        self.slab.retire(slot, |slot| state.alloc.give_back(slot));
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
            None => Pushed::Full,
            Some(draft) => {
                let flags = flag::NO_SKIP | flag::TO_THE_END | flag::DELETE;
                draft.write_own(name, flags, Some(i));
                state.before.clear();
                state.before_write(self, i);
                self.submit(state, draft, &mut task, Wish::Queue, &[], None)
            }
        };
        state.vars.bury(i);
        matches!(pushed, Pushed::Full).then_some(task)
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

/// The user's line, where it is needed. It is asked for outside of the lock: it may run Python.
#[inline]
fn line(origin: Option<Origin<'_>>, wish: Wish) -> Option<Arc<str>> {
    origin.filter(|_| wish != Wish::OnlyInline).and_then(|line| line())
}

#[inline]
fn may_run_inline(cheap: bool, prop: Prop, priority: i32) -> bool {
    (cheap || matches!(prop, Prop::Async | Prop::DeleteVar)) && priority == 0
}

#[inline]
fn flags_of(prop: Prop, priority: i32, cheap: bool) -> u8 {
    // (An asynchronous function may do anything: only its pusher runs it in passing.)
    let by_cost = if cheap { flag::CHEAP } else { 0 };
    let by_prop = by_cost
        | match prop {
            Prop::Normal | Prop::Async | Prop::CopyFromDevice | Prop::CopyToDevice => 0,
            Prop::CpuPrioritized | Prop::GpuPrioritized => flag::URGENT,
            Prop::DeleteVar => flag::URGENT | flag::NO_SKIP | flag::TO_THE_END,
            Prop::NoSkip => flag::NO_SKIP,
        };
    match priority {
        0 => by_prop,
        1.. => by_prop | flag::URGENT,
        _ if by_prop & flag::URGENT != 0 => by_prop,
        _ => by_prop | flag::LATER,
    }
}

#[cold]
fn too_many() -> Error {
    Error::new(crate::error::ErrorKind::Memory, "too many operations are pending")
}
