//! Which variables of a naive engine are alive, and how often each was written: asked without a lock, in one place
//! of memory for each variable.

use crate::engine::Var;
use crate::engine::data::variables::MOST;
use crate::engine::data::virtual_array::Reserved;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C, align(16))]
struct Entry {
    /// The variable that has the slot, or [`NOBODY`].
    var: AtomicU64,
    version: AtomicU64,
}

impl Entry {
    #[inline(always)]
    fn is_of(&self, var: Var) -> bool {
        self.var.load(Ordering::Acquire) == var.0
    }
}

/// No variable is this one. (Nor is one whose slot was never given away the zero of fresh memory, but for slot 0.)
const NOBODY: u64 = u64::MAX;

/// One entry for each slot. Who adds or removes a variable holds the lock of the variables.
pub struct Living(Reserved<Entry>);

impl Living {
    pub fn new() -> Self {
        let living = Living(Reserved::new(MOST));
        living.remove(Var(0));
        living
    }

    #[inline(always)]
    fn entry(&self, var: Var) -> &Entry {
        // SAFETY: all of the reservation is zeroed memory, and zero is a valid value.
        unsafe { &*self.0.get(var.0 as u32 as usize) }
    }

    /// A new variable has version 0.
    pub fn add(&self, var: Var) {
        let entry = self.entry(var);
        entry.version.store(0, Ordering::Relaxed);
        entry.var.store(var.0, Ordering::Release);
    }

    pub fn remove(&self, var: Var) {
        self.entry(var).var.store(NOBODY, Ordering::Release);
    }

    #[inline(always)]
    pub fn has(&self, var: Var) -> bool {
        self.entry(var).is_of(var)
    }

    /// Completed writes; `None` if it is deleted.
    pub fn version(&self, var: Var) -> Option<u64> {
        let entry = self.entry(var);
        entry.is_of(var).then(|| entry.version.load(Ordering::Relaxed))
    }

    /// One more write, unless it is deleted. (Writers of one variable never overlap, so a load and a store suffice.)
    #[inline(always)]
    pub fn advance(&self, var: Var) {
        let entry = self.entry(var);
        if entry.is_of(var) {
            let version = entry.version.load(Ordering::Relaxed);
            entry.version.store(version + 1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_write_counts_for_the_variable_that_began_it() {
        let (living, first, second) = (Living::new(), Var(0), Var(1 << 32));
        assert!(!living.has(first), "the slot is not taken");
        living.add(first);
        living.advance(first);
        assert_eq!(living.version(first), Some(1));
        living.remove(first);
        assert_eq!(living.version(first), None);
        living.add(second); // in the same slot
        living.advance(first);
        assert_eq!((living.version(first), living.version(second)), (None, Some(0)));
    }
}
