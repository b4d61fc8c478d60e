//! Tasks: a slab of 128-byte slots, and the state machine of their dependencies.
//!
//! A slot's `successors` word holds its generation and the head of a list of edges. A task is *open* while
//! its generation stands: pushers add edges by one compare-exchange. Completion swaps in the next
//! generation with an empty list (*done*) and walks the old list. A reference with another generation
//! means done, so stale references are safe, whatever the slot is used for by then.
//!
//! `pending` starts at the number of edges that the pusher is about to add; completions of predecessors
//! subtract one each, the pusher subtracts those edges that came too late. Whoever brings it to zero makes the task
//! ready. `README.md` in this folder argues each race.

use super::reserve::Reserved;
use super::sync::{AtomicI32, AtomicU32, AtomicU64};
use super::task::Task;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Edges that fit into a slot. A task with more predecessors takes further slots as carriers.
pub const EDGES: usize = if cfg!(loom) { 2 } else { 6 };
/// Variables that fit into a slot.
pub const VARS: usize = 4;
const FREE: i32 = i32::MIN;
const RUNNING: i32 = i32::MIN + 1;
/// No slot.
pub const NIL: u32 = u32::MAX;
const CARRIER: u32 = 8;
const CHUNK_BITS: u32 = if cfg!(loom) { 3 } else { 12 };
pub const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = if cfg!(loom) { 4 } else { 1 << 14 };

/// A task: slot and generation. The slot may be in other hands by now; then the task is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRef(pub u64);

impl TaskRef {
    /// No task: done, by the first slot, which is never used.
    pub const NONE: TaskRef = TaskRef(0);

    pub const fn new(slot: u32, generation: u32) -> Self {
        TaskRef((generation as u64) << 32 | slot as u64)
    }

    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The rest of a task that did not fit into its slot.
#[derive(Default)]
pub struct Extra {
    pub name: Option<Arc<str>>,
    pub origin: Option<Arc<str>>,
    /// All variables, where there are more than [`VARS`].
    pub vars: Vec<u32>,
    pub priority: i32,
}

/// What an executor needs. Written by the pusher before the task can become ready, and then only read,
/// but for `task`, which the executor moves out.
#[repr(C)]
pub struct Body {
    /// Variables, reads first.
    pub vars: [u32; VARS],
    pub reads: u16,
    pub writes: u16,
    pub overwrites: u16,
    pub device_type: u8,
    pub flags: u8,
    /// In the engine's table of names, which only grows.
    pub name: *const Box<str>,
    pub device_id: i32,
    /// Place in the order of pushes, modulo 2^32.
    pub sequence: u32,
    /// Dropped when the slot is used again, so that a pusher may look at the one of any live task.
    pub extra: Option<Box<Extra>>,
    pub task: MaybeUninit<Task>,
}

/// Bits of [`Body::flags`].
pub mod flag {
    /// Runs even when its variables carry an error.
    pub const NO_SKIP: u8 = 1;
    /// Goes before ordinary tasks when ready; the priority in `Extra` orders these.
    pub const URGENT: u8 = 2;
    /// Goes after ordinary tasks.
    pub const LATER: u8 = 4;
    /// Tells a waiter: run by whoever makes it ready, and counted nowhere.
    pub const SIGNAL: u8 = 8;
    /// Deletes its one written variable.
    pub const DELETE: u8 = 16;
    /// Short: run by whoever makes it ready, if that is no worker.
    pub const CHEAP: u8 = 32;
    /// Runs even when the engine is shut down.
    pub const TO_THE_END: u8 = 64;
    /// Its slot stays with the pushers, who find it again when it is done; it is counted nowhere.
    pub const KEPT: u8 = 128;
}

/// One slot of the slab.
#[repr(C, align(128))]
pub struct Slot {
    successors: AtomicU64,
    /// Of a carrier: the complement of the slot of its task. Of a task that has begun: `RUNNING`. Of a slot out of
    /// use: `FREE`.
    pending: AtomicI32,
    /// The next carrier of the same task.
    carrier: AtomicU32,
    next: [AtomicU32; EDGES],
    body: UnsafeCell<MaybeUninit<Body>>,
}

// SAFETY: the atomics are shared freely; `body` is reached through `Slot::body` only, whose callers keep to
// the rule stated at `Body`.
unsafe impl Sync for Slot {}
// SAFETY: as above; a body holds a task, which is `Send`, and pointers into the engine's table of names.
unsafe impl Send for Slot {}

const fn word(generation: u32, head: u32) -> u64 {
    (generation as u64) << 32 | head as u64
}

impl Default for Slot {
    fn default() -> Self {
        Slot {
            successors: AtomicU64::new(word(0, NIL)),
            pending: AtomicI32::new(FREE),
            carrier: AtomicU32::new(NIL),
            next: [(); EDGES].map(|()| AtomicU32::new(NIL)),
            // Zeroed, so that `extra` reads as none before the first use.
            body: UnsafeCell::new(MaybeUninit::zeroed()),
        }
    }
}

impl Slot {
    pub fn generation(&self) -> u32 {
        (self.successors.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Is the task of this generation complete? If so, what it did is visible to the caller.
    #[inline]
    pub fn is_done(&self, generation: u32) -> bool {
        (self.successors.load(Ordering::Acquire) >> 32) as u32 != generation
    }

    /// The place of the body. Reading or writing through it is up to the rule stated at [`Body`].
    #[inline]
    pub fn body(&self) -> *mut Body {
        self.body.get().cast()
    }

    /// Notes that all is done that a task does, but for telling its successors. Before it is counted as complete:
    /// who then forks must find the task over (see [`Slab::is_over`]).
    #[inline]
    pub fn end(&self) {
        self.pending.store(FREE, Ordering::Relaxed);
    }

    /// Completes the task: from here on no edge can be added. Gives the head of its list.
    #[inline]
    pub fn close(&self) -> u32 {
        // Before the exchange, so that who sees the new generation sees a slot out of use.
        self.end();
        let generation = self.generation().wrapping_add(1);
        self.successors.swap(word(generation, NIL), Ordering::AcqRel) as u32
    }

    /// Forgets the task, as if it were complete. (One that has ended may be known by its generation still.)
    pub fn abandon(&self) {
        self.close();
    }

    /// Still waiting for others? (Else it is ready, running, or the slot is out of use.)
    pub fn is_waiting(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Notes that the task, which is ready, is run. For diagnosis only.
    #[inline]
    pub fn begin(&self) {
        self.pending.store(RUNNING, Ordering::Relaxed);
    }

    /// Has it begun?
    pub fn is_running(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == RUNNING
    }

    /// The task in this slot, if there is one that is not done. Under the push lock.
    pub fn live(&self, slot: u32) -> Option<TaskRef> {
        let generation = self.generation();
        let pending = self.pending.load(Ordering::Relaxed);
        (pending >= 0 || pending == RUNNING).then_some(TaskRef::new(slot, generation))
    }

    /// The head of the list, for a look at a task that runs. Under the push lock, like those who add to it.
    pub fn head(&self) -> u32 {
        self.successors.load(Ordering::Relaxed) as u32
    }
}

/// All tasks of an engine. Grows in place, by chunks.
pub struct Slab {
    slots: Reserved<Slot>,
    chunks: AtomicUsize,
}

impl Slab {
    pub fn new() -> Self {
        let slots = Reserved::<Slot>::new(CHUNKS * CHUNK);
        let first = Slot { successors: AtomicU64::new(word(1, NIL)), ..Slot::default() };
        // SAFETY: within the capacity, and nobody knows of it yet.
        unsafe { slots.get(0).write(first) };
        Slab { slots, chunks: AtomicUsize::new(0) }
    }

    /// The slot `i`, which an earlier `grow` has made.
    #[inline]
    pub fn get(&self, i: u32) -> &Slot {
        // SAFETY: indices come from `grow` only, which has initialised the slot, and reach other threads by
        // synchronising operations after it; a slot lives as long as the slab.
        unsafe { &*self.slots.at(i as usize) }
    }

    /// Fetches the lines of a slot that is about to be written.
    #[inline]
    pub fn prefetch_for_write(&self, i: u32) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let p = std::ptr::from_ref(self.get(i)).cast::<i8>();
            // SAFETY: a prefetch changes nothing; the second line of the slot lies within it.
            unsafe {
                _mm_prefetch::<_MM_HINT_ET0>(p);
                _mm_prefetch::<_MM_HINT_ET0>(p.add(64));
            }
        }
        let _ = i;
    }

    /// Fetches the slot of the first task that waits for the one in slot `i`, which is about to be run.
    #[inline]
    pub fn prefetch_successor(&self, i: u32) {
        let head = self.get(i).successors.load(Ordering::Relaxed) as u32;
        if head != NIL {
            self.prefetch_for_write(Edge(head).slot());
        }
    }

    /// Makes one more chunk and gives its slots; none when there is no more room. Under the push lock.
    pub fn grow(&self) -> std::ops::Range<u32> {
        let from = self.chunks.load(Ordering::Relaxed) * CHUNK;
        let end = from + CHUNK;
        if end > self.slots.capacity() {
            return 0..0;
        }
        let from = from.max(1);
        for i in from..end {
            // SAFETY: within the capacity, and nobody knows of the slot yet.
            unsafe { self.slots.get(i).write(Slot::default()) };
        }
        self.chunks.store(end / CHUNK, Ordering::Relaxed);
        from as u32..end as u32
    }

    /// Every slot there is, but for the first. Under the push lock.
    pub fn all(&self) -> std::ops::Range<u32> {
        1..(self.chunks.load(Ordering::Relaxed) * CHUNK) as u32
    }

    /// Is `task` complete?
    #[inline(always)]
    pub fn is_done(&self, task: TaskRef) -> bool {
        self.get(task.slot()).is_done(task.generation())
    }

    /// Has `task` ended, whether or not its successors know? In a forked child nobody is left to tell them.
    pub fn is_over(&self, task: TaskRef) -> bool {
        self.is_done(task) || self.get(task.slot()).pending.load(Ordering::Relaxed) == FREE
    }

    /// Makes `edge` (of a task being pushed) wait for `before`. False if that is done already.
    #[inline]
    pub fn add_edge(&self, before: TaskRef, edge: Edge) -> bool {
        let from = self.get(before.slot());
        let next = &self.get(edge.slot()).next[edge.place()];
        let mut now = from.successors.load(Ordering::Acquire);
        loop {
            if (now >> 32) as u32 != before.generation() {
                return false;
            }
            next.store(now as u32, Ordering::Relaxed);
            let new = word(before.generation(), edge.0);
            let r = from.successors.compare_exchange_weak(
                now,
                new,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match r {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
    }

    /// Calls `ready` with each successor that the list from `head` brings to zero.
    #[inline]
    pub fn release(&self, mut head: u32, mut ready: impl FnMut(u32)) {
        while head != NIL {
            let edge = Edge(head);
            // Read before the count goes down: afterwards the slot may be in other hands.
            head = self.get(edge.slot()).next[edge.place()].load(Ordering::Relaxed);
            let task = self.owner(edge);
            let pending = &self.get(task).pending;
            if pending.load(Ordering::Acquire) == 1 {
                // The one left is this edge: nobody else subtracts any more.
                pending.store(0, Ordering::Relaxed);
                ready(task);
            } else if pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                ready(task);
            }
        }
    }

    /// The task that an edge belongs to.
    #[inline]
    fn owner(&self, edge: Edge) -> u32 {
        if edge.0 & CARRIER == 0 {
            edge.slot()
        } else {
            !self.get(edge.slot()).pending.load(Ordering::Relaxed) as u32
        }
    }

    /// The successors of a task, as far as they can be seen, for diagnosis: the list may change
    /// meanwhile, so that the answer is a hint unless the task cannot complete during the call.
    pub fn successors(&self, slot: u32, limit: usize) -> Vec<u32> {
        let mut found = Vec::new();
        let mut head = self.get(slot).head();
        while head != NIL && found.len() < limit {
            let edge = Edge(head);
            found.push(self.owner(edge));
            head = self.get(edge.slot()).next[edge.place()].load(Ordering::Relaxed);
        }
        found
    }

    /// Opens a slot for a task that is being pushed and is about to get `edges` edges.
    #[inline]
    pub fn open(&self, slot: u32, edges: usize) -> TaskRef {
        let s = self.get(slot);
        s.pending.store(edges as i32, Ordering::Relaxed);
        s.carrier.store(NIL, Ordering::Relaxed);
        TaskRef::new(slot, s.generation())
    }

    /// Ends the push of a task, `missed` of whose `edges` edges came too late. True if it is ready and nobody
    /// else knows. Its body must have been written before the first edge was added.
    #[inline]
    pub fn opened(&self, task: TaskRef, edges: usize, missed: usize) -> bool {
        if missed == 0 {
            return edges == 0;
        }
        let missed = missed as i32;
        self.get(task.slot()).pending.fetch_sub(missed, Ordering::AcqRel) == missed
    }

    /// Makes `slot` carry further edges of `task`.
    pub fn add_carrier(&self, task: TaskRef, slot: u32) {
        let owner = self.get(task.slot());
        let carrier = self.get(slot);
        carrier.pending.store(!(task.slot() as i32), Ordering::Relaxed);
        carrier.carrier.store(owner.carrier.load(Ordering::Relaxed), Ordering::Relaxed);
        owner.carrier.store(slot, Ordering::Relaxed);
    }

    /// Calls `free` with a completed task's slot and its carriers.
    #[inline]
    pub fn retire(&self, slot: u32, mut free: impl FnMut(u32)) {
        let mut carrier = self.get(slot).carrier.load(Ordering::Relaxed);
        free(slot);
        while carrier != NIL {
            let used = self.get(carrier);
            let next = used.carrier.load(Ordering::Relaxed);
            used.pending.store(FREE, Ordering::Relaxed);
            free(carrier);
            carrier = next;
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        for i in std::iter::once(0).chain(self.all()) {
            // SAFETY: the slab is being dropped, so nobody else looks; `extra` is none or a box. (A loom atomic
            // has something to drop as well.)
            unsafe {
                drop((*self.get(i).body()).extra.take());
                self.slots.get(i as usize).drop_in_place();
            }
        }
    }
}

/// A place for an edge: slot, whether that is a carrier, and which of its places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge(u32);

impl Edge {
    #[inline]
    pub const fn of_task(slot: u32, place: usize) -> Self {
        Edge(slot << 4 | place as u32)
    }

    #[inline]
    pub const fn of_carrier(slot: u32, place: usize) -> Self {
        Edge(slot << 4 | CARRIER | place as u32)
    }

    #[inline]
    const fn slot(self) -> u32 {
        self.0 >> 4
    }

    #[inline]
    const fn place(self) -> usize {
        (self.0 & 7) as usize
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 128);
