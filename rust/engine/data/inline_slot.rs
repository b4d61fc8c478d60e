//! The slot of tasks that run inside their push.
//!
//! One slot of the slab stays out of the free list. It serves one inline task after the other; an
//! inline task that finds it taken uses an ordinary slot. As only the task that holds the slot
//! completes in it, counting and returning it need no lock (`random64_inline`: 93 ns a task;
//! without it 102).

use crate::engine::sync::{AtomicBool, AtomicU64};
use std::sync::atomic::Ordering;

/// The index of the slot in the slab.
pub const INLINE_SLOT: u32 = 1;

/// Whether the slot is taken, and how many tasks it has served.
#[derive(Default)]
pub struct InlineSlot {
    is_taken: AtomicBool,
    completed: AtomicU64,
}

impl InlineSlot {
    /// Takes the slot if it is free. Under the push lock.
    #[inline(always)]
    pub fn take(&self) -> bool {
        // Acquires what the previous task's completion has read and written in the slot.
        let is_free = !self.is_taken.load(Ordering::Acquire);
        if is_free {
            self.is_taken.store(true, Ordering::Relaxed);
        }
        is_free
    }

    /// Frees the slot. From here on the next push may overwrite it.
    #[inline(always)]
    pub fn release(&self) {
        self.is_taken.store(false, Ordering::Release);
    }

    /// Counts the task that holds the slot as complete.
    #[inline(always)]
    pub fn count(&self) {
        let completed = self.completed.load(Ordering::Relaxed);
        self.completed.store(completed + 1, Ordering::Release);
    }

    /// The number of tasks that the slot has served.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Frees the slot and forgets its tasks, in a forked child.
    pub fn reset(&self) {
        self.release();
        self.completed.store(0, Ordering::Relaxed);
    }
}
