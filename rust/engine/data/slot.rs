//! A slot of the task slab: a task's record and the state of its dependencies.
//!
//! `word` holds the slot's generation and the number of successors. A task is *open* while its
//! generation stands: pushers write a successor behind those that are counted, and count it with
//! one compare-exchange. Completion swaps in the next generation without successors and walks those
//! that were counted. A reference with another generation is complete, so stale references are safe
//! whatever the slot is used for.
//!
//! `pending` starts far above any number of edges. Each completing predecessor subtracts one, and
//! the pusher finally subtracts all but the number of edges it has added. The thread that brings it
//! to zero makes the task ready. The engine's README argues each race.

use crate::context::{Context, DeviceType};
pub use crate::engine::data::task_ref::TaskRef;
use crate::engine::priority::Priority;
use crate::engine::push::RunContext;
use crate::engine::sync::{AtomicI32, AtomicU32, AtomicU64};
use crate::engine::task::Task;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Successors that fit into a slot. Further ones go to slots used as [edge
/// blocks](Slot::next_block).
pub const EDGES: usize = if cfg!(loom) { 2 } else { 6 };
/// Variables that fit into a slot.
pub const VARS: usize = 4;
pub const FREE: i32 = i32::MIN;
/// The initial value of `pending`; more than any number of edges.
pub const OPEN: i32 = 1 << 30;
const RUNNING: i32 = i32::MIN + 1;
/// No slot.
pub const NIL: u32 = u32::MAX;

/// The part of a task that does not fit into its slot.
#[derive(Default)]
pub struct Extra {
    pub name: Option<Arc<str>>,
    pub call_site: Option<Arc<str>>,
    /// All variables, where there are more than [`VARS`].
    pub vars: Vec<u32>,
    pub priority: i32,
    /// For a signal: the running operations that wait for it.
    pub waiting: Vec<TaskRef>,
}

/// Everything that running a task needs. Written by the pusher before the task can become ready,
/// and read-only afterwards, except for `task`, which the executing thread moves out.
#[repr(C)]
pub struct Body {
    pub head: Head,
    /// Emptied only when the slot is reused, so pushers may read that of any live task.
    pub extra: Option<Box<Extra>>,
    pub task: MaybeUninit<Task>,
}

/// The fixed-size part of a task's description.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Head {
    /// Variables, reads first.
    pub vars: [u32; VARS],
    pub reads: u16,
    pub writes: u16,
    pub overwrites: u16,
    pub device_type: u8,
    pub flags: u8,
    /// Points into the engine's interner, which only grows.
    pub name: *const Box<str>,
    pub device_id: i32,
    /// Position in push order, modulo 2^32.
    pub sequence: u32,
}

impl Head {
    /// A task without variables.
    pub fn new(name: *const Box<str>, flags: u8, ctx: Context) -> Self {
        let (vars, device_type, device_id) = ([0; VARS], ctx.device_type as u8, ctx.device_id);
        let (reads, writes, overwrites, sequence) = (0, 0, 0, 0);
        Head { vars, reads, writes, overwrites, device_type, flags, name, device_id, sequence }
    }

    /// The number of variables it reads, and the number it names.
    #[inline(always)]
    pub fn counts(&self) -> (usize, usize) {
        (self.reads as usize, self.reads as usize + self.writes as usize)
    }
}

/// Bits of [`Head::flags`].
pub mod flag {
    /// Runs in spite of errors on its variables.
    pub const NO_SKIP: u8 = 1;
    /// Runs before ordinary tasks; the priority in `Extra` orders these.
    pub const HIGH: u8 = 2;
    /// Runs after ordinary tasks.
    pub const LOW: u8 = 4;
    /// Runs before or after ordinary tasks.
    pub const PRIORITIZED: u8 = HIGH | LOW;
    /// Wakes a waiter: run by the thread that makes it ready, and not counted as a task.
    pub const SIGNAL: u8 = 8;
    /// Deletes its one written variable.
    pub const DELETE: u8 = 16;
    /// Short: run by the thread that makes it ready, if that is not a worker.
    pub const CHEAP: u8 = 32;
    /// Runs even after shutdown.
    pub const TO_THE_END: u8 = 64;
}

/// One slot of the slab: a task, or a block of further edges of a task.
#[repr(C, align(128))]
pub struct Slot {
    /// Generation and number of successors.
    pub word: AtomicU64,
    /// A task: predecessors left, or `RUNNING`. A free slot or a further edge block: `FREE`. The
    /// first edge block of a task: the complement of the last block's index.
    pub pending: AtomicI32,
    /// The first edge block of a task, the next block of a block. Valid if the count reaches it.
    pub next_block: AtomicU32,
    pub successors: [AtomicU32; EDGES],
    body: UnsafeCell<MaybeUninit<Body>>,
}

// SAFETY: the atomics are shared freely; `body` is reached through `Slot::body` only, whose callers
// follow the rule stated at `Body`.
unsafe impl Sync for Slot {}
// SAFETY: as above; a body holds a task, which is `Send`, and pointers into the engine's interner.
unsafe impl Send for Slot {}

const fn word(generation: u32, successors: u32) -> u64 {
    (generation as u64) << 32 | successors as u64
}

impl Default for Slot {
    fn default() -> Self {
        Self::of_generation(0)
    }
}

impl Slot {
    /// A free slot of this generation.
    pub fn of_generation(generation: u32) -> Self {
        Slot {
            word: AtomicU64::new(word(generation, 0)),
            pending: AtomicI32::new(FREE),
            next_block: AtomicU32::new(NIL),
            successors: [(); EDGES].map(|()| AtomicU32::new(NIL)),
            // Zeroed, so that `extra` reads as `None` before the first use.
            body: UnsafeCell::new(MaybeUninit::zeroed()),
        }
    }
}

impl Slot {
    pub fn generation(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Returns true if the task of this generation is complete; its effects are then visible.
    #[inline]
    pub fn is_done(&self, generation: u32) -> bool {
        (self.word.load(Ordering::Acquire) >> 32) as u32 != generation
    }

    /// The address of the body. Accesses must follow the rule stated at [`Body`].
    #[inline]
    pub fn body(&self) -> *mut Body {
        self.body.get().cast()
    }

    /// Records that the task has ended, before its successors are notified and before it is counted
    /// as complete: a fork in between must find it ended (see `Slab::has_ended`).
    #[inline]
    pub fn end(&self) {
        self.pending.store(FREE, Ordering::Release);
    }

    /// Completes the task: no edge can be added from here on. Returns the number of its successors.
    #[inline]
    pub fn close(&self) -> u32 {
        // Before the exchange: a thread that sees the new generation sees a free slot.
        self.end();
        let generation = self.generation().wrapping_add(1);
        self.word.swap(word(generation, 0), Ordering::AcqRel) as u32
    }

    /// Discards the task, as if it were complete.
    pub fn abandon(&self) {
        self.close();
    }

    /// Returns true if the task waits for others; else it is ready, running, or the slot is free.
    pub fn is_waiting(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Marks the task, which is ready, as running. For diagnosis only.
    #[inline]
    pub fn begin(&self) {
        self.pending.store(RUNNING, Ordering::Relaxed);
    }

    /// Returns true if the task is running.
    pub fn is_running(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == RUNNING
    }

    /// Returns the task in this slot if it is not complete. Under the push lock. If `None`, the
    /// effects of the task that was there are visible to the caller.
    pub fn live(&self, slot: u32) -> Option<TaskRef> {
        // In this order: if the task ends in between, the slot reads as free.
        let word = self.word.load(Ordering::Acquire);
        let pending = self.pending.load(Ordering::Acquire);
        let task = TaskRef::new(slot, (word >> 32) as u32);
        (pending >= 0 || pending == RUNNING).then_some(task)
    }

    /// The number of successors added so far: for pushers, who add them, and for prefetching.
    #[inline]
    pub fn count(&self) -> u32 {
        self.word.load(Ordering::Relaxed) as u32
    }
}

/// Accessors of a task's record.
impl Body {
    /// The environment that the task runs in.
    #[inline]
    pub fn run_context(&self) -> RunContext {
        RunContext { ctx: self.context(), priority: self.priority(), ..RunContext::default() }
    }

    /// The scheduling priority.
    #[inline]
    pub fn priority(&self) -> Priority {
        #[cold]
        fn not_normal(body: &Body) -> Priority {
            let priority = body.extra.as_ref().map_or(0, |e| e.priority);
            match body.head.flags & flag::HIGH {
                0 => Priority::Low(priority),
                _ => Priority::High(priority),
            }
        }
        match self.head.flags & flag::PRIORITIZED {
            0 => Priority::Normal,
            _ => not_normal(self),
        }
    }

    /// The device that the task was pushed for.
    #[inline]
    pub fn context(&self) -> Context {
        let device_type = match self.head.device_type {
            2 => DeviceType::Gpu,
            3 => DeviceType::CpuPinned,
            5 => DeviceType::CpuShared,
            _ => DeviceType::Cpu,
        };
        Context { device_type, device_id: self.head.device_id }
    }

    /// The name that the task was pushed with.
    pub fn name(&self) -> &str {
        match self.extra.as_ref().and_then(|e| e.name.as_deref()) {
            Some(name) => name,
            // SAFETY: the interner only grows, and lives as long as the engine's core.
            None => unsafe { &*self.head.name },
        }
    }

    /// The variables: reads, writes.
    #[inline]
    pub fn vars(&self) -> (&[u32], &[u32]) {
        let (reads, n) = self.head.counts();
        let all = match self.head.vars.get(..n) {
            Some(inline) => inline,
            None => self.extra.as_ref().map_or(&[][..], |extra| &extra.vars),
        };
        all.split_at(reads)
    }

    /// As [`Body::vars`], mutable.
    #[inline]
    pub fn vars_mut(&mut self) -> (&mut [u32], &mut [u32]) {
        let (reads, n) = self.head.counts();
        let all = match self.head.vars.get_mut(..n) {
            Some(inline) => inline,
            None => self.extra.as_mut().map_or(&mut [][..], |extra| &mut extra.vars),
        };
        all.split_at_mut(reads)
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 128);
