//! Slots on their way back from those who complete tasks to those who push.

use super::slot::NIL;
use super::sync::{AtomicU32, Guard, Lock};
use std::sync::atomic::Ordering;

/// Slots on their way back.
#[repr(align(128))]
pub struct Returned {
    /// One of them, or none. Whoever runs what it pushes uses the same slot again, while its lines are at hand.
    spare: AtomicU32,
    others: Lock<Vec<u32>>,
}

impl Default for Returned {
    fn default() -> Self {
        Returned { spare: AtomicU32::new(NIL), others: Lock::default() }
    }
}

impl Returned {
    #[inline]
    pub fn put(&self, slot: u32) {
        let is_place = self.spare.load(Ordering::Relaxed) == NIL;
        let (is, order) = (Ordering::Release, Ordering::Relaxed);
        if !is_place || self.spare.compare_exchange(NIL, slot, is, order).is_err() {
            self.others.lock().push(slot);
        }
    }

    pub fn append(&self, slots: &mut Vec<u32>) {
        self.others.lock().append(slots);
    }

    /// Under the push lock, so that one at a time takes.
    #[inline]
    pub fn take_spare(&self) -> Option<u32> {
        let slot = self.spare.load(Ordering::Acquire);
        if slot == NIL {
            return None;
        }
        self.spare.store(NIL, Ordering::Relaxed);
        Some(slot)
    }

    /// Gives an empty list for that of the others.
    pub fn swap(&self, free: &mut Vec<u32>) {
        std::mem::swap(free, &mut self.others.lock());
    }

    pub fn hold(&self) -> Guard<'_, Vec<u32>> {
        self.others.lock()
    }

    pub fn clear(&self) {
        self.spare.store(NIL, Ordering::Relaxed);
        self.others.lock().clear();
    }
}
