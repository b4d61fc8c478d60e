//! The slab of tasks: 128-byte slots that never move, with the edges between them.

use crate::engine::data::inline_slot::INLINE_SLOT;
use crate::engine::data::slot::{EDGES, FREE, OPEN, Slot, TaskRef};
use crate::engine::data::virtual_array::VirtualArray;
use std::sync::atomic::{AtomicUsize, Ordering};

const CHUNK_BITS: u32 = if cfg!(loom) { 3 } else { 12 };
pub const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = if cfg!(loom) { 4 } else { 1 << 14 };

/// All tasks of an engine. Grows in place, by chunks.
pub struct Slab {
    slots: VirtualArray<Slot>,
    chunks: AtomicUsize,
}

impl Slab {
    pub fn new() -> Self {
        let slots = VirtualArray::<Slot>::new(CHUNKS * CHUNK);
        // SAFETY: within the capacity, and not shared yet.
        unsafe {
            slots.get(0).write(Slot::of_generation(1));
            slots.get(INLINE_SLOT as usize).write(Slot::default());
        }
        Slab { slots, chunks: AtomicUsize::new(0) }
    }

    /// The slot `i`, which an earlier `grow` has initialised.
    #[inline]
    pub fn get(&self, i: u32) -> &Slot {
        // SAFETY: indices come from `grow` only, which has initialised the slot, and reach other
        // threads by synchronising operations after it; a slot lives as long as the slab.
        unsafe { &*self.slots.at(i as usize) }
    }

    /// Prefetches the cache lines of a slot for writing.
    #[inline]
    pub fn prefetch_for_write(&self, i: u32) {
        // An address, not a reference: the index may be stale, and not that of a slot.
        let slot = self.slots.get(i as usize).cast::<u8>();
        prefetch_for_write(slot);
        prefetch_for_write(slot.wrapping_add(64));
    }

    /// Prefetches the line of the word only, to which a successor is about to be added.
    #[inline(always)]
    pub fn prefetch_word(&self, task: TaskRef) {
        prefetch_for_write(self.slots.get(task.slot() as usize).cast());
    }

    /// Prefetches the successors stored in slot `i`, whose task is about to run.
    #[inline]
    pub fn prefetch_successors(&self, i: u32) {
        let s = self.get(i);
        for place in s.successors.iter().take(s.count() as usize) {
            self.prefetch_for_write(place.load(Ordering::Relaxed));
        }
    }

    /// Adds a chunk and returns its free slots; an empty range if the slab is full. Under the push
    /// lock.
    pub fn grow(&self) -> std::ops::Range<u32> {
        let from = self.chunks.load(Ordering::Relaxed) * CHUNK;
        let end = from + CHUNK;
        if end > self.slots.capacity() {
            return 0..0;
        }
        let from = from.max(INLINE_SLOT as usize + 1);
        for i in from..end {
            // SAFETY: within the capacity, and the slot is not shared yet.
            unsafe { self.slots.get(i).write(Slot::default()) };
        }
        self.chunks.store(end / CHUNK, Ordering::Relaxed);
        from as u32..end as u32
    }

    /// Every slot but the reserved first one. Under the push lock.
    pub fn all(&self) -> std::ops::Range<u32> {
        let grown = (self.chunks.load(Ordering::Relaxed) * CHUNK) as u32;
        1..grown.max(INLINE_SLOT + 1)
    }

    /// Returns true if `task` is complete.
    #[inline(always)]
    pub fn is_done(&self, task: TaskRef) -> bool {
        self.get(task.slot()).is_done(task.generation())
    }

    /// Returns true if `task` has ended, even if its successors were not notified yet: in a forked
    /// child no thread is left to do that.
    pub fn has_ended(&self, task: TaskRef) -> bool {
        self.is_done(task) || self.get(task.slot()).pending.load(Ordering::Relaxed) == FREE
    }

    /// Makes the task in slot `after`, which is being pushed, wait for `before`. Returns false if
    /// `before` is complete. Under the push lock, so that one thread at a time adds edges. `spare`
    /// provides slots for edge blocks.
    #[inline]
    pub fn add_edge(&self, before: TaskRef, after: u32, spare: &mut impl SpareSlots) -> bool {
        let from = self.get(before.slot());
        let mut now = from.word.load(Ordering::Acquire);
        loop {
            if (now >> 32) as u32 != before.generation() {
                return false;
            }
            // Not counted yet: if the task is closed meanwhile, it is never read.
            match from.successors.get(now as u32 as usize) {
                Some(place) => place.store(after, Ordering::Relaxed),
                None => return self.add_block_edge(from, now, after, spare),
            }
            let (ok, err) = (Ordering::AcqRel, Ordering::Acquire);
            match from.word.compare_exchange_weak(now, now + 1, ok, err) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
    }

    /// As [`Slab::add_edge`], if the slot is full.
    #[cold]
    fn add_block_edge(
        &self,
        from: &Slot,
        now: u64,
        after: u32,
        spare: &mut impl SpareSlots,
    ) -> bool {
        let n = now as u32 as usize - EDGES;
        let begins = n.is_multiple_of(EDGES);
        let mut blocks = None;
        if n > 0 {
            let first = self.get(from.next_block.load(Ordering::Relaxed));
            match first.pending.load(Ordering::Acquire) {
                FREE => return false, // closed by now; its blocks are being freed
                complement => blocks = Some((first, !complement as u32)),
            }
        }
        let block = match blocks {
            Some((_, last)) if !begins => last,
            _ => spare.take(),
        };
        let first = blocks.map_or(self.get(block), |(first, _)| first);
        self.get(block).successors[n % EDGES].store(after, Ordering::Relaxed);
        if begins {
            let before = blocks.map_or(from, |(_, last)| self.get(last));
            before.next_block.store(block, Ordering::Relaxed);
            first.pending.store(!(block as i32), Ordering::Relaxed);
        }
        let (ok, err) = (Ordering::AcqRel, Ordering::Acquire);
        let is_added = from.word.compare_exchange(now, now + 1, ok, err).is_ok();
        if begins && !is_added {
            first.end();
            spare.give_back(block);
        }
        is_added
    }

    /// Returns true if adding `more` successors to `task` may need an edge block.
    pub fn may_fill(&self, task: TaskRef, more: usize) -> bool {
        !self.is_done(task) && self.get(task.slot()).count() as usize + more > EDGES
    }

    /// Calls `f` with the first `n` successors of the task in `slot`, in insertion order.
    #[inline]
    fn each_successor(&self, slot: u32, n: u32, mut f: impl FnMut(u32)) {
        let s = self.get(slot);
        for place in s.successors.iter().take(n as usize) {
            f(place.load(Ordering::Relaxed));
        }
        if n as usize > EDGES {
            self.each_in_blocks(s, n as usize - EDGES, f);
        }
    }

    #[cold]
    fn each_in_blocks(&self, s: &Slot, n: usize, mut f: impl FnMut(u32)) {
        let mut block = s;
        for i in 0..n {
            if i.is_multiple_of(EDGES) {
                block = self.get(block.next_block.load(Ordering::Relaxed));
            }
            f(block.successors[i % EDGES].load(Ordering::Relaxed));
        }
    }

    /// Removes the edges to the `n` successors of a closed task; calls `ready` with each that has
    /// none left.
    #[inline]
    pub fn release(&self, slot: u32, n: u32, mut ready: impl FnMut(u32)) {
        self.each_successor(slot, n, |task| {
            if self.get(task).pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                ready(task);
            }
        });
    }

    /// The successors of a task, for diagnosis. Under the push lock: no edges are added and no
    /// slots reused.
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

    /// Ends the push of a task with this many edges, whose body is written. Returns true if it is
    /// ready, and the caller must queue or run it.
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

    /// Calls `free` with the slot and the edge blocks of a completed task that had `n` successors.
    #[inline]
    pub fn retire(&self, slot: u32, n: u32, mut free: impl FnMut(u32)) {
        if n as usize > EDGES {
            self.retire_blocks(slot, n as usize - EDGES, &mut free);
        }
        free(slot);
    }

    #[cold]
    fn retire_blocks(&self, slot: u32, n: usize, free: &mut impl FnMut(u32)) {
        let mut block = self.get(slot).next_block.load(Ordering::Relaxed);
        for _ in 0..n.div_ceil(EDGES) {
            let used = self.get(block);
            let next = used.next_block.load(Ordering::Relaxed);
            // Releases: a pusher that finds the block free must see the effects of the task.
            used.end();
            free(block);
            block = next;
        }
    }
}

/// As an instruction, because the intrinsic compiles to a read prefetch for baseline x86-64, and
/// that of arm64 is not stable. Processors without it treat it as a no-op.
#[inline(always)]
fn prefetch_for_write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no architectural effect, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{p}]", p = in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{p}]", p = in(reg) line, options(nostack, preserves_flags, readonly));
    }
    let _ = line;
}

/// Provides slots for edge blocks.
pub trait SpareSlots {
    fn take(&mut self) -> u32;
    /// Returns an unused slot.
    fn give_back(&mut self, slot: u32);
}

impl Drop for Slab {
    fn drop(&mut self) {
        for i in std::iter::once(0).chain(self.all()) {
            // SAFETY: the slab is being dropped, so access is exclusive; `extra` is `None` or a
            // box. (loom's atomics need dropping, too.)
            unsafe {
                drop((*self.get(i).body()).extra.take());
                self.slots.get(i as usize).drop_in_place();
            }
        }
    }
}
