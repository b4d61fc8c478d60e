//! Tasks: a slab of 128-byte slots, and the state machine of their dependencies.
//!
//! A slot's `word` holds its generation and the number of its successors. A task is *open* while its generation
//! stands: pushers write a successor behind those that are counted, and count it by one compare-exchange. Completion
//! swaps in the next generation without successors (*done*) and walks those that were counted. A reference with
//! another generation means done, so stale references are safe, whatever the slot is used for by then.
//!
//! `pending` starts far above any number of edges; completions of predecessors subtract one each, and the pusher
//! at the end all but the number of edges that it has added. Whoever brings it to zero makes the task ready. `README.md` in this folder argues each race.

use crate::context::Context;
use crate::engine::data::virtual_array::Reserved;
use crate::engine::sync::{AtomicI32, AtomicU32, AtomicU64};
use crate::engine::task::Task;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Successors that fit into a slot. A task with more takes further slots as carriers.
pub const EDGES: usize = if cfg!(loom) { 2 } else { 6 };
/// Variables that fit into a slot.
pub const VARS: usize = 4;
const FREE: i32 = i32::MIN;
/// What `pending` starts at; more than a task has edges.
const OPEN: i32 = 1 << 30;
const RUNNING: i32 = i32::MIN + 1;
/// No slot.
pub const NIL: u32 = u32::MAX;
/// In the place of the number of successors: those of a kept slot are being told.
const TELLING: u32 = u32::MAX;
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
    /// Of a signal: the running operations that wait by it.
    pub waiting: Vec<TaskRef>,
}

/// What an executor needs. Written by the pusher before the task can become ready, and then only read,
/// but for `task`, which the executor moves out.
#[repr(C)]
pub struct Body {
    pub head: Head,
    /// Emptied when the slot is used again, so that a pusher may look at the one of any live task.
    pub extra: Option<Box<Extra>>,
    pub task: MaybeUninit<Task>,
}

/// What is known of a task but for its function and what few tasks have.
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
    /// In the engine's table of names, which only grows.
    pub name: *const Box<str>,
    pub device_id: i32,
    /// Place in the order of pushes, modulo 2^32.
    pub sequence: u32,
}

impl Head {
    /// Of a task without variables.
    pub fn new(name: *const Box<str>, flags: u8, ctx: Context) -> Self {
        let (vars, device_type, device_id) = ([0; VARS], ctx.device_type as u8, ctx.device_id);
        let (reads, writes, overwrites, sequence) = (0, 0, 0, 0);
        Head { vars, reads, writes, overwrites, device_type, flags, name, device_id, sequence }
    }

    /// How many variables it reads, and how many it names.
    #[inline(always)]
    pub fn counts(&self) -> (usize, usize) {
        (self.reads as usize, self.reads as usize + self.writes as usize)
    }
}

/// Bits of [`Head::flags`].
pub mod flag {
    /// Runs even when its variables carry an error.
    pub const NO_SKIP: u8 = 1;
    /// Goes before ordinary tasks when ready; the priority in `Extra` orders these.
    pub const URGENT: u8 = 2;
    /// Goes after ordinary tasks.
    pub const LATER: u8 = 4;
    /// Goes before or after ordinary tasks.
    pub const RANKED: u8 = URGENT | LATER;
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
    /// Generation and number of successors.
    word: AtomicU64,
    /// Of a task that has begun: `RUNNING`. Of a slot out of use, or a further carrier: `FREE`. Of the first carrier of a
    /// task: the complement of its last one.
    pending: AtomicI32,
    /// The first carrier of a task, the next one of a carrier; meaningful where so many successors are counted.
    carrier: AtomicU32,
    successors: [AtomicU32; EDGES],
    body: UnsafeCell<MaybeUninit<Body>>,
}

// SAFETY: the atomics are shared freely; `body` is reached through `Slot::body` only, whose callers keep to
// the rule stated at `Body`.
unsafe impl Sync for Slot {}
// SAFETY: as above; a body holds a task, which is `Send`, and pointers into the engine's table of names.
unsafe impl Send for Slot {}

const fn word(generation: u32, successors: u32) -> u64 {
    (generation as u64) << 32 | successors as u64
}

impl Default for Slot {
    fn default() -> Self {
        Slot {
            word: AtomicU64::new(word(0, 0)),
            pending: AtomicI32::new(FREE),
            carrier: AtomicU32::new(NIL),
            successors: [(); EDGES].map(|()| AtomicU32::new(NIL)),
            // Zeroed, so that `extra` reads as none before the first use.
            body: UnsafeCell::new(MaybeUninit::zeroed()),
        }
    }
}

impl Slot {
    pub fn generation(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Is the task of this generation complete? If so, what it did is visible to the caller.
    #[inline]
    pub fn is_done(&self, generation: u32) -> bool {
        (self.word.load(Ordering::Acquire) >> 32) as u32 != generation
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
        self.pending.store(FREE, Ordering::Release);
    }

    /// Completes the task: from here on no edge can be added. Gives the number of its successors.
    #[inline]
    pub fn close(&self) -> u32 {
        self.close_leaving(0)
    }

    /// The same for a task whose slot is kept: it is not used again before [`Slot::let_go`].
    #[inline]
    pub fn close_kept(&self) -> u32 {
        self.close_leaving(TELLING)
    }

    #[inline(always)]
    fn close_leaving(&self, successors: u32) -> u32 {
        // Before the exchange, so that who sees the new generation sees a slot out of use.
        self.end();
        let generation = self.generation().wrapping_add(1);
        self.word.swap(word(generation, successors), Ordering::AcqRel) as u32
    }

    /// A kept slot may be used again.
    #[inline]
    pub fn let_go(&self) {
        self.word.store(word(self.generation(), 0), Ordering::Release);
    }

    /// Is the task of this generation complete, and the slot, which was kept, to be used again?
    #[inline]
    pub fn is_let_go(&self, generation: u32) -> bool {
        self.word.load(Ordering::Acquire) == word(generation.wrapping_add(1), 0)
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

    /// The task in this slot, if there is one that is not done. Under the push lock. What one did that is not given is
    /// visible to the caller.
    pub fn live(&self, slot: u32) -> Option<TaskRef> {
        // In this order: if the task ends in between, the slot is out of use.
        let word = self.word.load(Ordering::Acquire);
        let pending = self.pending.load(Ordering::Acquire);
        let task = TaskRef::new(slot, (word >> 32) as u32);
        (pending >= 0 || pending == RUNNING).then_some(task)
    }

    /// How many successors the task has so far: for pushers, who add them, and to fetch them.
    #[inline]
    fn count(&self) -> u32 {
        match self.word.load(Ordering::Relaxed) as u32 {
            TELLING => 0,
            n => n,
        }
    }
}

/// All tasks of an engine. Grows in place, by chunks.
pub struct Slab {
    slots: Reserved<Slot>,
    chunks: AtomicUsize,
}

impl Slab {
    pub fn new() -> Self {
        let slots = Reserved::<Slot>::of_huge_pages(CHUNKS * CHUNK);
        let first = Slot { word: AtomicU64::new(word(1, 0)), ..Slot::default() };
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

    /// Fetches the lines of a slot that is about to be written, and takes them from whoever has them.
    #[inline]
    pub fn prefetch_for_write(&self, i: u32) {
        // (An address, not a reference: what is fetched before it is known may be no slot at all.)
        let slot = self.slots.get(i as usize).cast::<u8>();
        prefetch_for_write(slot);
        prefetch_for_write(slot.wrapping_add(64));
    }

    /// The same with the line of its word only, to which a successor is about to be added.
    #[inline(always)]
    pub fn prefetch_word(&self, task: TaskRef) {
        prefetch_for_write(self.slots.get(task.slot() as usize).cast());
    }

    /// Fetches the slots of those successors of the task in slot `i`, which is about to be run, that its slot holds.
    #[inline]
    pub fn prefetch_successors(&self, i: u32) {
        let s = self.get(i);
        for place in s.successors.iter().take(s.count() as usize) {
            self.prefetch_for_write(place.load(Ordering::Relaxed));
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

    /// Makes the task in slot `after`, which is being pushed, wait for `before`. False if that is done already. Under
    /// the push lock, so that one at a time adds. `spare` gives a slot to carry successors.
    #[inline]
    pub fn add_edge(&self, before: TaskRef, after: u32, spare: &mut impl Spare) -> bool {
        let from = self.get(before.slot());
        let mut now = from.word.load(Ordering::Acquire);
        loop {
            if (now >> 32) as u32 != before.generation() {
                return false;
            }
            // Not counted yet: if the task is closed meanwhile, nobody reads it.
            match from.successors.get(now as u32 as usize) {
                Some(place) => place.store(after, Ordering::Relaxed),
                None => return self.add_carried_edge(from, now, after, spare),
            }
            let (ok, err) = (Ordering::AcqRel, Ordering::Acquire);
            match from.word.compare_exchange_weak(now, now + 1, ok, err) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
    }

    /// The same where the slot is full of successors.
    #[cold]
    fn add_carried_edge(&self, from: &Slot, now: u64, after: u32, spare: &mut impl Spare) -> bool {
        let n = now as u32 as usize - EDGES;
        let begins = n.is_multiple_of(EDGES);
        let mut carriers = None;
        if n > 0 {
            let first = self.get(from.carrier.load(Ordering::Relaxed));
            match first.pending.load(Ordering::Acquire) {
                FREE => return false, // closed by now, and its carriers are on their way back
                complement => carriers = Some((first, !complement as u32)),
            }
        }
        let carrier = match carriers {
            Some((_, last)) if !begins => last,
            _ => spare.take(),
        };
        let first = carriers.map_or(self.get(carrier), |(first, _)| first);
        self.get(carrier).successors[n % EDGES].store(after, Ordering::Relaxed);
        if begins {
            let before = carriers.map_or(from, |(_, last)| self.get(last));
            before.carrier.store(carrier, Ordering::Relaxed);
            first.pending.store(!(carrier as i32), Ordering::Relaxed);
        }
        let (ok, err) = (Ordering::AcqRel, Ordering::Acquire);
        let is_added = from.word.compare_exchange(now, now + 1, ok, err).is_ok();
        if begins && !is_added {
            first.end();
            spare.give_back(carrier);
        }
        is_added
    }

    /// May one of `more` successors of `task` need a carrier?
    pub fn may_fill(&self, task: TaskRef, more: usize) -> bool {
        !self.is_done(task) && self.get(task.slot()).count() as usize + more > EDGES
    }

    /// Calls `f` with the first `n` successors of the task in `slot`, in the order in which they were added.
    #[inline]
    fn each_successor(&self, slot: u32, n: u32, mut f: impl FnMut(u32)) {
        let s = self.get(slot);
        for place in s.successors.iter().take(n as usize) {
            f(place.load(Ordering::Relaxed));
        }
        if n as usize > EDGES {
            self.each_carried(s, n as usize - EDGES, f);
        }
    }

    #[cold]
    fn each_carried(&self, s: &Slot, n: usize, mut f: impl FnMut(u32)) {
        let mut carrier = s;
        for i in 0..n {
            if i.is_multiple_of(EDGES) {
                carrier = self.get(carrier.carrier.load(Ordering::Relaxed));
            }
            f(carrier.successors[i % EDGES].load(Ordering::Relaxed));
        }
    }

    /// Calls `ready` with each of the `n` successors of a closed task that this brings to zero.
    #[inline]
    pub fn release(&self, slot: u32, n: u32, mut ready: impl FnMut(u32)) {
        self.each_successor(slot, n, |task| {
            let pending = &self.get(task).pending;
            if pending.load(Ordering::Acquire) == 1 {
                // The one left is this edge: nobody else subtracts any more.
                pending.store(0, Ordering::Relaxed);
                ready(task);
            } else if pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                ready(task);
            }
        });
    }

    /// The successors of a task, for diagnosis. Under the push lock: none are added, and no slot is used again.
    pub fn successors(&self, slot: u32) -> Vec<u32> {
        let mut found = Vec::new();
        self.each_successor(slot, self.get(slot).count(), |task| found.push(task));
        found
    }

    /// Opens a slot for a task that is being pushed.
    #[inline]
    pub fn open(&self, slot: u32) -> TaskRef {
        let s = self.get(slot);
        s.pending.store(OPEN, Ordering::Relaxed);
        TaskRef::new(slot, s.generation())
    }

    /// Ends the push of a task that has so many edges. True if it is ready and nobody else knows. Its body must have
    /// been written before.
    #[inline]
    pub fn opened(&self, task: TaskRef, edges: u32) -> bool {
        let pending = &self.get(task.slot()).pending;
        if edges == 0 {
            pending.store(0, Ordering::Relaxed);
            return true;
        }
        let rest = OPEN - edges as i32;
        pending.fetch_sub(rest, Ordering::AcqRel) == rest
    }

    /// Calls `free` with the slot of a completed task that had `n` successors, and its carriers.
    #[inline]
    pub fn retire(&self, slot: u32, n: u32, mut free: impl FnMut(u32)) {
        if n as usize > EDGES {
            self.retire_carriers(slot, n as usize - EDGES, &mut free);
        }
        free(slot);
    }

    #[cold]
    fn retire_carriers(&self, slot: u32, n: usize, free: &mut impl FnMut(u32)) {
        let mut carrier = self.get(slot).carrier.load(Ordering::Relaxed);
        for _ in 0..n.div_ceil(EDGES) {
            let used = self.get(carrier);
            let next = used.carrier.load(Ordering::Relaxed);
            // Who adds a successor and finds this must see what the task did.
            used.end();
            free(carrier);
            carrier = next;
        }
    }
}

/// (As an instruction: for the oldest of x86-64, on which this one does nothing, the intrinsic fetches to read only.)
#[inline(always)]
fn prefetch_for_write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing, wherever it points.
    unsafe {
        std::arch::asm!("prefetchw [{p}]", p = in(reg) line, options(nostack, preserves_flags, readonly));
    }
    let _ = line;
}

/// Where carriers come from.
pub trait Spare {
    fn take(&mut self) -> u32;
    /// Takes one back that was not used.
    fn give_back(&mut self, slot: u32);
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

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 128);
