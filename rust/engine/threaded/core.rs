//! The threaded engine: what its parts share. `push.rs` lets work in, `worker.rs` runs it, `wait.rs` waits.
//!
//! One lock orders all pushes. Nothing foreign runs under it but the function of `with_quiet`.

use crate::context::{Context, DeviceType};
use crate::engine::data::interner::Names;
use crate::engine::data::parking::{Sleep, publish};
use crate::engine::data::run_queue::{Apart, Queues};
use crate::engine::data::task_slab::{Body, Slab, Spare, TaskRef, flag};
use crate::engine::data::variables::{Vars, Versions};
use crate::engine::error_state::Faults;
use crate::engine::sync::{AtomicU64, Guard, Lock};
use crate::engine::threaded::pool::Threads;
use crate::engine::{Hook, Rank, RunContext};
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
    /// Slots on their way back from those who complete tasks to those who push.
    pub returned: Apart<Lock<Vec<u32>>>,
    /// Tasks completed, by lane; those completed on no worker apart.
    pub completed: Box<[Apart<AtomicU64>]>,
    pub completed_elsewhere: Apart<AtomicU64>,
    pub watch: crate::engine::threaded::wait::Watch,
    pub haste: Apart<crate::engine::threaded::backoff::Haste>,
    pub threads: Threads,
    pub hook: Lock<Option<Arc<dyn Hook>>>,
    pub wait_timeout: Lock<Option<Duration>>,
    /// Differs between a process and its fork.
    pub epoch: AtomicU32,
    /// The epoch up to which the state has been brought.
    pub recovered: AtomicU32,
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
    /// Tasks pushed, but for signals and the one whose slot is kept.
    pub pushed: u64,
    pub epoch: u32,
}

/// Free slots.
pub struct Alloc {
    free: Vec<u32>,
    /// A task run by its pusher, or none. Its slot is free as soon as it is done: whoever runs what it pushes uses the
    /// same slot again and again, and nobody has to give it back.
    kept: TaskRef,
}

impl Default for Alloc {
    fn default() -> Self {
        Alloc { free: Vec::new(), kept: TaskRef::NONE }
    }
}

impl Alloc {
    #[inline(always)]
    pub fn take(&mut self, core: &Core) -> Option<u32> {
        let kept = self.kept;
        if kept != TaskRef::NONE && core.slab.get(kept.slot()).is_let_go(kept.generation()) {
            self.kept = TaskRef::NONE;
            return Some(kept.slot());
        }
        self.take_free(core)
    }

    /// Keeps the slot of a task that its pusher is about to run, unless another one is kept: what to add to its flags.
    #[inline]
    pub fn keep(&mut self, task: TaskRef) -> u8 {
        if self.kept != TaskRef::NONE {
            return 0;
        }
        self.kept = task;
        flag::KEPT
    }

    /// The task whose slot is kept, if it is not done.
    pub fn kept(&self, core: &Core) -> Option<TaskRef> {
        Some(self.kept).filter(|&t| !core.slab.is_done(t))
    }

    #[inline]
    fn take_free(&mut self, core: &Core) -> Option<u32> {
        match self.free.pop() {
            Some(slot) => {
                // A line comes from another core in the time of several pushes.
                if let [.., soon, _, _, _, _] = self.free[..] {
                    core.slab.prefetch_for_write(soon);
                }
                Some(slot)
            }
            None => {
                self.reserve(core, 1);
                self.free.pop()
            }
        }
    }

    /// Loses all free slots but so many.
    #[cfg(test)]
    pub fn lose_all_but(&mut self, left: usize) {
        self.free.truncate(left);
    }

    /// Are so many slots at hand?
    #[inline(always)]
    pub fn has(&self, n: usize) -> bool {
        self.free.len() >= n
    }

    /// Sees to it that they are; false if there is no room.
    #[cold]
    pub fn reserve(&mut self, core: &Core, n: usize) -> bool {
        if !self.has(n) {
            self.free.append(&mut core.returned.0.lock());
        }
        while !self.has(n) {
            let more = core.slab.grow();
            if more.is_empty() {
                return false;
            }
            self.free.extend(more.rev());
        }
        true
    }

    /// Makes every slot free, whatever was in it.
    pub fn reset(&mut self, core: &Core) {
        self.kept = TaskRef::NONE;
        self.free = core.slab.all().rev().collect();
        for slot in core.slab.all() {
            core.slab.get(slot).abandon();
        }
    }
}

impl Spare for Alloc {
    fn take(&mut self) -> u32 {
        self.free.pop().expect("it was reserved")
    }

    /// Takes a slot back that is out of use.
    fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }
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
            crate::engine::threaded::fork::recover(self, &mut state);
        }
        state
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

/// What a body is run with.
#[inline]
pub fn run_context(body: &Body) -> RunContext {
    RunContext { ctx: context_of(body), rank: rank_of(body), ..RunContext::default() }
}

/// Where a body comes among those that are ready.
#[inline]
pub fn rank_of(body: &Body) -> Rank {
    #[cold]
    fn ranked(body: &Body) -> Rank {
        let priority = body.extra.as_ref().map_or(0, |e| e.priority);
        match body.head.flags & flag::URGENT {
            0 => Rank::Later(priority),
            _ => Rank::Urgent(priority),
        }
    }
    if body.head.flags & flag::RANKED == 0 { Rank::Ordinary } else { ranked(body) }
}

/// The context that a body was pushed with.
#[inline]
pub fn context_of(body: &Body) -> Context {
    let device_type = match body.head.device_type {
        2 => DeviceType::Gpu,
        3 => DeviceType::CpuPinned,
        5 => DeviceType::CpuShared,
        _ => DeviceType::Cpu,
    };
    Context { device_type, device_id: body.head.device_id }
}

/// The name that a body was pushed with.
pub fn name_of(body: &Body) -> &str {
    match body.extra.as_ref().and_then(|e| e.name.as_deref()) {
        Some(name) => name,
        // SAFETY: the table of names only grows, and lives as long as the core.
        None => unsafe { &*body.head.name },
    }
}

/// The variables of a body: reads, writes.
#[inline]
pub fn vars_of(body: &Body) -> (&[u32], &[u32]) {
    let (reads, n) = body.head.counts();
    let all = match body.head.vars.get(..n) {
        Some(few) => few,
        None => body.extra.as_ref().map_or(&[][..], |extra| &extra.vars),
    };
    all.split_at(reads)
}

/// The same, to be written.
#[inline]
pub fn vars_of_mut(body: &mut Body) -> (&mut [u32], &mut [u32]) {
    let (reads, n) = body.head.counts();
    let all = match body.head.vars.get_mut(..n) {
        Some(few) => few,
        None => body.extra.as_mut().map_or(&mut [][..], |extra| &mut extra.vars),
    };
    all.split_at_mut(reads)
}
