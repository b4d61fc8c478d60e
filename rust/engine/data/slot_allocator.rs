//! Free slots of the task slab.

use crate::engine::data::cache_padded::CachePadded;
use crate::engine::data::inline_slot::INLINE_SLOT;
use crate::engine::data::task_slab::{Slab, SpareSlots};
use crate::engine::sync::Lock;

/// Slots on their way back from the threads that complete tasks to those that push.
pub type ReturnedSlots = CachePadded<Lock<Vec<u32>>>;

/// Free slots; under the push lock. The [inline slot](INLINE_SLOT) is never among them.
#[derive(Default)]
pub struct SlotAllocator {
    free: Vec<u32>,
}

impl SlotAllocator {
    /// Returns a free slot, or `None` if the slab is full.
    #[inline]
    pub fn allocate(&mut self, slab: &Slab, returned: &ReturnedSlots) -> Option<u32> {
        match self.free.pop() {
            Some(slot) => {
                // A cache line arrives from another core in the time of several pushes.
                if let [.., soon, _, _, _, _] = self.free[..] {
                    slab.prefetch_for_write(soon);
                }
                Some(slot)
            }
            None => {
                self.reserve(1, slab, returned);
                self.free.pop()
            }
        }
    }

    /// Drops all but `left` free slots.
    #[cfg(test)]
    pub fn truncate(&mut self, left: usize) {
        self.free.truncate(left);
    }

    /// Returns true if `n` slots are at hand.
    #[inline(always)]
    pub fn has(&self, n: usize) -> bool {
        self.free.len() >= n
    }

    /// Makes sure that `n` slots are at hand; returns false if the slab is full.
    #[cold]
    pub fn reserve(&mut self, n: usize, slab: &Slab, returned: &ReturnedSlots) -> bool {
        if !self.has(n) {
            self.free.append(&mut returned.0.lock());
        }
        while !self.has(n) {
            let more = slab.grow();
            if more.is_empty() {
                return false;
            }
            self.free.extend(more.rev());
        }
        true
    }

    /// Frees every slot, whatever it holds.
    pub fn reset(&mut self, slab: &Slab) {
        self.free = slab.all().rev().filter(|&slot| slot != INLINE_SLOT).collect();
        for slot in slab.all() {
            slab.get(slot).abandon();
        }
    }
}

impl SpareSlots for SlotAllocator {
    fn take(&mut self) -> u32 {
        self.free.pop().expect("the slots were reserved")
    }

    fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }
}
