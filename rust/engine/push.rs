//! One push, under the push lock: variables, edges, body, queue.
//!
//! A push first looks (are the variables there and different? which tasks must be waited for? are there slots?) and
//! only then changes anything, so that one that fails leaves nothing behind. The number of edges is known before
//! the first of them is added; so is the body, because the task may become ready with its last edge.

use super::operation::OperationInner;
use super::slot::{Body, EDGES, Edge, Extra, TaskRef, VARS, flag};
use super::task::Task;
use super::threaded::{Core, PushState, rare};
use super::var;
use super::{Operation, Origin, Prop, Push, Var, frame};
use crate::context::Context;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What became of a push.
enum Pushed {
    /// Waits for others.
    Waiting,
    /// Ready: a worker is to be told.
    Queued,
    /// Ready and cheap: the caller runs it.
    Inline(TaskRef, Task),
    /// Not pushed: it was to run inline only, and is not ready.
    NotReady(Task),
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

/// The variables of one push by their slots, reads first.
struct Accesses {
    few: [u32; VARS],
    /// All of them, where there are more than [`VARS`].
    many: Vec<u32>,
    reads: usize,
    writes: usize,
}

impl Accesses {
    /// Finds the slots by `find`; `None` if it finds one not.
    #[inline]
    fn find(
        reads: &[Var],
        writes: &[Var],
        mut find: impl FnMut(Var) -> Option<u32>,
    ) -> Option<Self> {
        let (mut few, mut many) = ([0; VARS], Vec::new());
        let n = reads.len() + writes.len();
        if n <= VARS {
            let mut k = 0;
            for &v in reads {
                few[k % VARS] = find(v)?;
                k += 1;
            }
            for &v in writes {
                few[k % VARS] = find(v)?;
                k += 1;
            }
        } else {
            if n > u16::MAX as usize {
                return None;
            }
            many = reads.iter().chain(writes).map(|&v| find(v)).collect::<Option<_>>()?;
        }
        Some(Accesses { few, many, reads: reads.len(), writes: writes.len() })
    }

    fn of_writes(i: Option<u32>) -> Self {
        let few = [i.unwrap_or(0), 0, 0, 0];
        Accesses { few, many: Vec::new(), reads: 0, writes: usize::from(i.is_some()) }
    }

    #[inline]
    fn split(&self) -> (&[u32], &[u32]) {
        let n = self.reads + self.writes;
        let all = if n <= VARS { &self.few[..n] } else { &self.many[..] };
        all.split_at(self.reads)
    }
}

/// What a body gets besides its variables and its function.
struct Header {
    name: *const Box<str>,
    flags: u8,
    overwrites: usize,
    ctx: Context,
    extra: Option<Box<Extra>>,
}

impl Header {
    /// Of a task that the engine makes for itself.
    fn own(name: *const Box<str>, flags: u8) -> Self {
        Header { name, flags, overwrites: 0, ctx: Context::default(), extra: None }
    }
}

/// A task that has its slot and its body, and whose edges are to be added.
struct Opened {
    task: TaskRef,
    edges: usize,
}

impl PushState {
    /// Gathers the tasks that must be waited for, in `before`.
    #[inline]
    fn look(&mut self, core: &Core, accesses: &Accesses) {
        let PushState { vars, before, .. } = self;
        before.clear();
        let mut wait_for = |t: TaskRef| {
            if !core.slab.is_done(t) {
                before.push(t);
            }
        };
        let (reads, writes) = accesses.split();
        for &v in writes {
            vars.before_write(v, &mut wait_for);
        }
        for &v in reads {
            wait_for(vars.last_writer(v));
        }
    }

    /// Slots for a task with the edges of `before`: its own, and in `carriers` what these need. None, and
    /// nothing taken, when there is no more room.
    #[inline]
    fn take_slots(&mut self, core: &Core) -> Option<u32> {
        let slot = self.alloc.take(core)?;
        if self.before.len() > EDGES && !self.take_carriers(core) {
            self.alloc.give_back(slot);
            return None;
        }
        Some(slot)
    }

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

    /// Opens the task in `slot`, and makes it what later pushes on its variables wait for.
    #[inline]
    fn open(&mut self, core: &Core, slot: u32, accesses: &Accesses) -> Opened {
        let edges = self.before.len();
        let task = core.slab.open(slot, edges);
        let (reads, writes) = accesses.split();
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
    pub fn push_task(&self, task: Task, push: &Push<'_>) -> Result<()> {
        let inline = may_run_inline(push.cheap, push.prop, push.priority);
        let wish = self.wish(inline, &task, push.origin);
        let origin = push.origin.filter(|_| wish != Wish::OnlyInline).and_then(|line| line());
        let pushed = match self.enqueue(task, push, origin, wish)? {
            // The user's line is asked for outside of the lock: it may run Python.
            Pushed::NotReady(task) => {
                let origin = push.origin.and_then(|line| line());
                self.enqueue(task, push, origin, Wish::Inline)?
            }
            pushed => pushed,
        };
        self.follow(pushed, push.origin);
        Ok(())
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
                .push_task(operation.task(), &Push { origin: line, ..o.push(ctx, priority) });
        }
        let inline = may_run_inline(o.cheap, o.prop, priority);
        // SAFETY: it writes something, so its runs follow one another, and `last` names the last of them:
        // `retire_operation` waits for that.
        let task = unsafe { operation.borrowed_task() };
        let wish = self.wish(inline, &task, line);
        let origin = line.filter(|_| wish != Wish::OnlyInline).and_then(|line| line());
        let pushed = match self.enqueue_operation(task, o, ctx, priority, origin, wish)? {
            Pushed::NotReady(task) => {
                let origin = line.and_then(|line| line());
                self.enqueue_operation(task, o, ctx, priority, origin, Wish::Inline)?
            }
            pushed => pushed,
        };
        self.follow(pushed, line);
        Ok(())
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

    /// Does what is left to do of a push outside of the lock.
    #[inline]
    fn follow(&self, pushed: Pushed, origin: Option<Origin<'_>>) {
        match pushed {
            Pushed::Waiting => {}
            Pushed::Queued => self.announce(),
            Pushed::Inline(opened, task) => self.run_inline(opened, task, origin),
            Pushed::NotReady(task) => drop(task),
        }
    }

    #[inline]
    fn enqueue(
        &self,
        task: Task,
        push: &Push<'_>,
        origin: Option<Arc<str>>,
        wish: Wish,
    ) -> Result<Pushed> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let mark = state.vars.new_mark();
        let Some(accesses) = Accesses::find(push.reads, push.writes, |v| state.vars.take(v, mark))
        else {
            return Err(var::explain(&state.vars, push.name, push.reads, push.writes));
        };
        let name = state.names.keep(push.name);
        let mut header = Header {
            name: name.unwrap_or_else(|| state.names.unnamed()),
            flags: flags_of(push.prop, push.priority, wish),
            overwrites: push.overwrites,
            ctx: push.ctx,
            extra: None,
        };
        if name.is_none() || origin.is_some() || push.priority != 0 {
            let name = name.is_none().then(|| push.name.into());
            header.extra =
                Some(Box::new(Extra { name, origin, priority: push.priority, ..Extra::default() }));
        }
        match self.submit(state, task, accesses, header, wish) {
            Ok((_, pushed)) => Ok(pushed),
            Err(task) => {
                drop(guard);
                drop(task);
                Err(too_many())
            }
        }
    }

    #[inline]
    fn enqueue_operation(
        &self,
        task: Task,
        o: &OperationInner,
        ctx: Context,
        priority: i32,
        origin: Option<Arc<str>>,
        wish: Wish,
    ) -> Result<Pushed> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(accesses) = Accesses::find(&o.reads, &o.writes, |v| state.vars.find(v)) else {
            return Err(var::explain(&state.vars, &o.name, &o.reads, &o.writes));
        };
        let mut header = Header {
            name: o.kept_name,
            flags: flags_of(o.prop, priority, wish),
            overwrites: o.overwrites,
            ctx,
            extra: None,
        };
        if priority != 0 || origin.is_some() {
            header.extra = Some(Box::new(Extra { origin, priority, ..Extra::default() }));
        }
        // (A borrowed task has nothing to drop.)
        let (opened, pushed) =
            self.submit(state, task, accesses, header, wish).map_err(|_| too_many())?;
        if opened != TaskRef::NONE {
            o.last.store(opened.0, Ordering::Relaxed);
        }
        Ok(pushed)
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

    /// Pushes under the push lock. Without room nothing has changed, and the task comes back, to be dropped
    /// outside of the lock.
    #[inline]
    fn submit(
        &self,
        state: &mut PushState,
        task: Task,
        accesses: Accesses,
        header: Header,
        wish: Wish,
    ) -> std::result::Result<(TaskRef, Pushed), Task> {
        state.look(self, &accesses);
        if wish == Wish::OnlyInline && !state.before.is_empty() {
            return Ok((TaskRef::NONE, Pushed::NotReady(task)));
        }
        let Some(slot) = state.take_slots(self) else { return Err(task) };
        let opened = state.open(self, slot, &accesses);
        state.pushed += 1;
        let runs_here = wish != Wish::Queue && opened.edges == 0;
        let flags = header.flags;
        let body = self.slab.get(slot).body();
        // SAFETY: the slot is out of use and the task has no edges yet, so nobody else touches its body.
        unsafe { write_body(body, accesses, header, state.pushed) };
        let task = if runs_here {
            Some(task)
        } else {
            // SAFETY: as above.
            unsafe { (*body).task.write(task) };
            None
        };
        frame::note_push(self, opened.task, |t| self.slab.is_done(t));
        if self.rare.load(Ordering::Relaxed) & rare::HOOK != 0 {
            self.hook_queued(opened.task);
        }
        let pushed = if let Some(task) = task {
            Pushed::Inline(opened.task, task)
        } else if !state.connect(self, &opened) {
            Pushed::Waiting
        } else {
            if flags & (flag::URGENT | flag::LATER) == 0 {
                self.queues.pushed(slot);
            } else {
                self.queue_ranked(slot);
            }
            Pushed::Queued
        };
        Ok((opened.task, pushed))
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
        let Some(slot) = state.take_slots(self) else { return Err((too_many(), f)) };
        let accesses = Accesses::of_writes(None);
        let opened = state.open(self, slot, &accesses);
        let header = Header::own(state.names.unnamed(), flag::SIGNAL);
        let body = self.slab.get(slot).body();
        // SAFETY: as in `submit`.
        unsafe {
            write_body(body, accesses, header, state.pushed);
            (*body).task.write(f);
        }
        if !state.connect(self, &opened) {
            return Ok(None);
        }
        // SAFETY: it has become ready here, so nobody else takes its function.
        let f = unsafe { (*self.slab.get(slot).body()).task.assume_init_read() };
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
        let name = state.names.keep("DeleteVariable").unwrap_or_else(|| state.names.unnamed());
        let header = Header::own(name, flag::ALWAYS | flag::DELETE);
        let left =
            self.submit(state, task, Accesses::of_writes(Some(i)), header, Wish::Queue).err();
        state.vars.bury(i);
        left
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

/// Writes all of a body but its function.
///
/// # Safety
/// Nobody else touches the body, which was zeroed at first and then only written here.
#[inline]
unsafe fn write_body(body: *mut Body, accesses: Accesses, mut header: Header, sequence: u64) {
    if !accesses.many.is_empty() {
        header.extra.get_or_insert_default().vars = accesses.many;
    }
    // SAFETY: `extra` is none or a box, dropped by the assignment; the rest needs no drop.
    unsafe {
        (*body).extra = header.extra;
        (*body).vars = accesses.few;
        (*body).reads = accesses.reads as u16;
        (*body).writes = accesses.writes as u16;
        (*body).overwrites = header.overwrites as u16;
        (*body).device_type = header.ctx.device_type as u8;
        (*body).flags = header.flags;
        (*body).name = header.name;
        (*body).device_id = header.ctx.device_id;
        (*body).sequence = sequence as u32;
    }
}

#[inline]
fn may_run_inline(cheap: bool, prop: Prop, priority: i32) -> bool {
    (cheap || matches!(prop, Prop::Async | Prop::DeleteVar)) && priority == 0
}

#[inline]
fn flags_of(prop: Prop, priority: i32, wish: Wish) -> u8 {
    let by_wish = if wish == Wish::Queue { 0 } else { flag::CHEAP };
    let by_prop = by_wish
        | match prop {
            Prop::Normal | Prop::Async | Prop::CopyFromDevice | Prop::CopyToDevice => 0,
            Prop::CpuPrioritized | Prop::GpuPrioritized => flag::URGENT,
            Prop::DeleteVar => flag::URGENT | flag::ALWAYS,
            Prop::NoSkip => flag::ALWAYS,
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
