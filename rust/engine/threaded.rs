//! The threaded engine: how work gets in. `worker.rs` runs it, `wait.rs` waits for it.
//!
//! One lock orders all pushes. Under it a push finds its variables, opens a task, adds edges from the tasks
//! it must wait for, and queues it if there are none. Nothing foreign runs under the lock but the function
//! of `with_quiet`.

use super::fault::Faults;
use super::names::Names;
use super::pool::Threads;
use super::queue::{Apart, Queues};
use super::sleep::{Sleep, publish};
use super::slot::{Body, EDGES, Edge, Extra, Slab, TaskRef, VARS, flag};
use super::sync::{AtomicU64, Guard, Lock};
use super::task::Task;
use super::var::{self, Vars, Versions};
use super::{Hook, Prop, Push, frame};
use crate::context::{Context, DeviceType};
use crate::error::{Error, Result};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Most workers that count their completions apart; more than any pool has.
pub const LANES: usize = if cfg!(loom) { 2 } else { 256 };

/// Everything that pushers share with workers. Handles keep it by `Arc`.
pub struct Core {
    pub slab: Slab,
    pub versions: Versions,
    pub faults: Faults,
    pub queues: Queues,
    pub sleep: Sleep,
    /// Bits that make the good path look closer.
    pub rare: AtomicU32,
    pub push: Apart<Lock<PushState>>,
    /// Slots on their way back from workers to pushers.
    pub returned: Apart<Lock<Vec<u32>>>,
    /// Tasks completed, by lane; those completed on no worker apart.
    pub completed: Box<[Apart<AtomicU64>]>,
    pub completed_elsewhere: Apart<AtomicU64>,
    pub watch: super::wait::Watch,
    pub threads: Threads,
    pub hook: Lock<Option<Arc<dyn Hook>>>,
    pub wait_timeout: Lock<Option<Duration>>,
    /// Differs between a process and its fork.
    pub epoch: AtomicU32,
    pub is_running: AtomicBool,
}

/// Bits of [`Core::rare`].
pub mod rare {
    pub const SHUT_DOWN: u32 = 1;
    pub const HOOK: u32 = 2;
    /// The line of every push is kept, for the hang report.
    pub const ORIGINS: u32 = 4;
}

/// What pushers share among themselves, under the push lock.
#[derive(Default)]
pub struct PushState {
    pub vars: Vars,
    pub names: Names,
    pub alloc: Alloc,
    /// Tasks pushed, signals not counted.
    pub pushed: u64,
    pub epoch: u32,
}

/// Free slots.
#[derive(Default)]
pub struct Alloc {
    free: Vec<u32>,
    chunks: usize,
}

impl Alloc {
    #[inline]
    pub fn take(&mut self, core: &Core) -> Option<u32> {
        match self.free.pop() {
            Some(slot) => {
                // The next but one: a line comes from another core in about the time of two pushes.
                if let [.., next, _] = self.free[..] {
                    core.slab.prefetch_for_write(next);
                }
                Some(slot)
            }
            None => self.refill(core),
        }
    }

    #[cold]
    fn refill(&mut self, core: &Core) -> Option<u32> {
        std::mem::swap(&mut self.free, &mut core.returned.0.lock());
        if self.free.is_empty() {
            let grown = core.slab.grow(self.chunks);
            self.chunks += usize::from(!grown.is_empty());
            self.free.extend(grown.rev());
        }
        self.free.pop()
    }

    /// Every slot there is.
    pub fn all(&self) -> std::ops::Range<u32> {
        0..(self.chunks * super::slot::CHUNK) as u32
    }

    /// Makes every slot free, whatever was in it.
    pub fn reset(&mut self, core: &Core) {
        self.free = self.all().rev().collect();
        for slot in self.all() {
            core.slab.get(slot).abandon();
        }
    }
}

/// What became of a push.
enum Pushed {
    Queued,
    /// Ready and cheap: the caller runs it.
    Inline(TaskRef),
}

impl Core {
    /// An owned handle to this core.
    #[inline]
    pub fn handle(&self) -> Arc<Core> {
        // SAFETY: a core only ever lives in an `Arc` (`ThreadedEngine::with_threads`), and `self` is
        // borrowed from it.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    /// The push lock, with the state brought up to date after a fork.
    #[inline]
    pub fn lock(&self) -> Guard<'_, PushState> {
        let mut state = self.push.0.lock();
        if state.epoch != self.epoch.load(Ordering::Relaxed) {
            super::fork::recover(self, &mut state);
        }
        state
    }

    #[inline]
    pub fn push_task(&self, task: Task, push: &Push<'_>) -> Result<()> {
        let inline = (push.cheap || matches!(push.prop, Prop::Async | Prop::DeleteVar))
            && push.priority == 0;
        // The user's line is asked for outside of the lock: it may run Python. So who may turn out to run
        // at once looks before.
        let origin = match push.origin {
            Some(f)
                if !inline
                    || self.rare.load(Ordering::Relaxed) & rare::ORIGINS != 0
                    || !self.would_run(push) =>
            {
                f()
            }
            _ => None,
        };
        match self.enqueue(task, push, origin, inline)? {
            Pushed::Queued => {}
            Pushed::Inline(task) => self.run_inline(task, push.origin),
        }
        Ok(())
    }

    /// Is a push of this kind ready now?
    #[cold]
    fn would_run(&self, push: &Push<'_>) -> bool {
        let state = self.lock();
        let vars = &state.vars;
        let quiet =
            |v: super::Var| vars.find(v).is_none_or(|i| self.slab.is_done(vars.last_writer(i)));
        push.reads.iter().all(|&v| quiet(v))
            && push.writes.iter().all(|&v| {
                quiet(v)
                    && vars.find(v).is_none_or(|i| vars.readers(i).all(|r| self.slab.is_done(r)))
            })
    }

    #[inline]
    fn enqueue(
        &self,
        task: Task,
        push: &Push<'_>,
        origin: Option<Arc<str>>,
        inline: bool,
    ) -> Result<Pushed> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(slot) = state.alloc.take(self) else {
            return Err(too_many());
        };
        let mut extra = None;
        let mut few = [0; VARS];
        let n = push.reads.len() + push.writes.len();
        let mark = state.vars.new_mark();
        let all = push.reads.iter().chain(push.writes);
        let found = if n <= VARS {
            all.zip(&mut few)
                .all(|(&v, place)| state.vars.take(v, mark).map(|i| *place = i).is_some())
        } else {
            let vars = all.map_while(|&v| state.vars.take(v, mark)).collect::<Vec<_>>();
            let found = vars.len() == n && n <= u16::MAX as usize;
            extra = Some(Box::new(Extra { vars, ..Extra::default() }));
            found
        };
        if !found {
            let error = var::explain(&state.vars, push.name, push.reads, push.writes);
            state.alloc.free.push(slot);
            return Err(error);
        }
        let name = state.names.keep(push.name);
        if name.is_none() || origin.is_some() || push.priority != 0 {
            let extra = extra.get_or_insert_default();
            extra.origin = origin;
            extra.priority = push.priority;
            if name.is_none() {
                extra.name = Some(push.name.into());
            }
        }
        let opened = self.slab.open(slot);
        let body = self.slab.get(slot).body();
        // SAFETY: the slot is out of use, so nobody else touches its body; `extra` is none or a box.
        unsafe { (*body).extra = None };
        let vars: &[u32] = match &extra {
            Some(e) if n > VARS => &e.vars,
            _ => &few[..n],
        };
        let (reads, writes) = vars.split_at(push.reads.len());
        let edges = match self.link(&mut state.vars, &mut state.alloc, opened, reads, writes) {
            Some(edges) => edges,
            None => return Err(too_many()),
        };
        state.pushed += 1;
        let flags = flags_of(push);
        let body_value = Body {
            vars: few,
            reads: reads.len() as u16,
            writes: writes.len() as u16,
            overwrites: push.overwrites as u16,
            device_type: push.ctx.device_type as u8,
            flags,
            name: name.unwrap_or_else(|| state.names.unnamed()),
            device_id: push.ctx.device_id,
            sequence: state.pushed as u32,
            extra,
            task: MaybeUninit::new(task),
        };
        // SAFETY: the task cannot become ready before `opened` below; what was there needs no drop.
        unsafe { body.write(body_value) };
        frame::note_push(self, opened, |t| self.slab.is_done(t));
        if self.rare.load(Ordering::Relaxed) & rare::HOOK != 0 {
            self.hook_queued(opened);
        }
        if !self.slab.opened(opened, edges) {
            return Ok(Pushed::Queued);
        }
        if inline {
            return Ok(Pushed::Inline(opened));
        }
        if flags & (flag::URGENT | flag::LATER) == 0 {
            self.queues.pushed(slot);
        } else {
            self.queue_ranked(slot);
        }
        drop(guard);
        self.announce();
        Ok(Pushed::Queued)
    }

    /// Adds the edges of a task being pushed, and makes it what later pushes wait for. Under the push
    /// lock. None when memory for carriers ran out.
    #[inline]
    fn link(
        &self,
        vars: &mut Vars,
        alloc: &mut Alloc,
        task: TaskRef,
        reads: &[u32],
        writes: &[u32],
    ) -> Option<i32> {
        let mut edges =
            Edges { core: self, alloc, task, count: 0, carrier: 0, carriers: 0, full: false };
        for &v in writes {
            vars.write(v, task, |before| edges.add(before));
        }
        for &v in reads {
            vars.read(v, task, |t| self.slab.is_done(t), |before| edges.add(before));
        }
        (!edges.full).then_some(edges.count)
    }

    /// A signal that waits for `tasks`: its function is run by whoever completes the last of them. False
    /// if all were complete. Under the push lock.
    pub fn open_signal(&self, state: &mut PushState, tasks: &[TaskRef], f: Task) -> Result<bool> {
        let slot = state.alloc.take(self).ok_or_else(too_many)?;
        let signal = self.slab.open(slot);
        let body = self.slab.get(slot).body();
        let body_value = Body {
            vars: [0; VARS],
            reads: 0,
            writes: 0,
            overwrites: 0,
            device_type: DeviceType::Cpu as u8,
            flags: flag::SIGNAL,
            name: state.names.unnamed(),
            device_id: 0,
            sequence: state.pushed as u32,
            extra: None,
            task: MaybeUninit::new(f),
        };
        // SAFETY: as in `enqueue`.
        unsafe {
            (*body).extra = None;
            body.write(body_value);
        }
        let mut edges = Edges {
            core: self,
            alloc: &mut state.alloc,
            task: signal,
            count: 0,
            carrier: 0,
            carriers: 0,
            full: false,
        };
        tasks.iter().for_each(|&t| edges.add(t));
        let (count, full) = (edges.count, edges.full);
        if full {
            return Err(too_many());
        }
        if self.slab.opened(signal, count) {
            self.run_signal(slot);
            return Ok(false);
        }
        Ok(true)
    }

    /// Deletes variable `i` after everything pending that names it. Under the push lock; the caller
    /// announces.
    #[cold]
    pub fn push_deletion(
        &self,
        state: &mut PushState,
        i: u32,
        last: Option<Box<dyn FnOnce() + Send>>,
    ) {
        let Some(slot) = state.alloc.take(self) else { return };
        let opened = self.slab.open(slot);
        let task = match last {
            None => Task::nothing(),
            Some(last) => Task::sync(move |_| {
                last();
                Ok(())
            }),
        };
        let edges = self.link(&mut state.vars, &mut state.alloc, opened, &[], &[i]).unwrap_or(0);
        state.vars.bury(i);
        state.pushed += 1;
        let mut vars = [0; VARS];
        vars[0] = i;
        let body_value = Body {
            vars,
            reads: 0,
            writes: 1,
            overwrites: 0,
            device_type: DeviceType::Cpu as u8,
            flags: flag::ALWAYS | flag::DELETE,
            name: state.names.keep("DeleteVariable").unwrap_or_else(|| state.names.unnamed()),
            device_id: 0,
            sequence: state.pushed as u32,
            extra: None,
            task: MaybeUninit::new(task),
        };
        let body = self.slab.get(slot).body();
        // SAFETY: as in `enqueue`.
        unsafe {
            (*body).extra = None;
            body.write(body_value);
        }
        if self.slab.opened(opened, edges) {
            self.queues.pushed(slot);
        }
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

    /// Tells the pool that there is work. After a lock was released.
    #[inline]
    pub fn announce(&self) {
        publish();
        if self.sleep.anybody() {
            self.sleep.wake_one();
        }
        if !self.is_running.load(Ordering::Relaxed) {
            self.start_threads();
        }
    }
}

/// The edges of one task being pushed.
struct Edges<'a> {
    core: &'a Core,
    alloc: &'a mut Alloc,
    task: TaskRef,
    count: i32,
    carrier: u32,
    carriers: usize,
    full: bool,
}

impl Edges<'_> {
    #[inline]
    fn add(&mut self, before: TaskRef) {
        let n = self.count as usize;
        let edge = if n < EDGES {
            Edge::of_task(self.task.slot(), n)
        } else {
            if n.is_multiple_of(EDGES) && !self.spill() {
                return;
            }
            Edge::of_carrier(self.carrier, n % EDGES)
        };
        self.count += i32::from(self.core.slab.add_edge(before, edge));
    }

    /// Takes a carrier for the next edges, unless the one at hand is fresh.
    #[cold]
    fn spill(&mut self) -> bool {
        // Was one taken at this count already, whose first edge turned out to be done?
        if self.carriers > (self.count as usize - EDGES) / EDGES {
            return true;
        }
        match self.alloc.take(self.core) {
            Some(slot) => {
                self.core.slab.add_carrier(self.task, slot);
                self.carrier = slot;
                self.carriers += 1;
                true
            }
            None => {
                self.full = true;
                false
            }
        }
    }
}

fn flags_of(push: &Push<'_>) -> u8 {
    let by_prop = match push.prop {
        Prop::Normal | Prop::Async | Prop::CopyFromDevice | Prop::CopyToDevice => 0,
        Prop::CpuPrioritized | Prop::GpuPrioritized => flag::URGENT,
        Prop::DeleteVar => flag::URGENT | flag::ALWAYS,
        Prop::NoSkip => flag::ALWAYS,
    };
    let by_priority = match push.priority {
        1.. => flag::URGENT,
        0 => 0,
        _ if by_prop & flag::URGENT != 0 => 0,
        _ => flag::LATER,
    };
    by_prop | by_priority
}

#[cold]
fn too_many() -> Error {
    Error::new(crate::error::ErrorKind::Memory, "too many operations are pending")
}

/// The context that a body was pushed with.
#[inline]
pub fn context_of(body: &Body) -> Context {
    let device_type = match body.device_type {
        2 => DeviceType::Gpu,
        3 => DeviceType::CpuPinned,
        5 => DeviceType::CpuShared,
        _ => DeviceType::Cpu,
    };
    Context { device_type, device_id: body.device_id }
}

/// The name that a body was pushed with.
pub fn name_of(body: &Body) -> &str {
    match body.extra.as_ref().and_then(|e| e.name.as_deref()) {
        Some(name) => name,
        // SAFETY: the table of names only grows, and lives as long as the core.
        None => unsafe { &*body.name },
    }
}

/// The variables of a body: reads, writes.
#[inline]
pub fn vars_of(body: &Body) -> (&[u32], &[u32]) {
    let n = (body.reads + body.writes) as usize;
    let all = match &body.extra {
        Some(extra) if n > VARS => &extra.vars[..],
        _ => &body.vars[..n.min(VARS)],
    };
    all.split_at(body.reads as usize)
}
