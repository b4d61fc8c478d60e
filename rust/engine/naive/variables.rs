//! The variables of a naive engine: which are alive, and how often each was written. Read without a
//! lock, from one record per variable.

use crate::engine::data::variables::MAX;
use crate::engine::data::virtual_array::VirtualArray;
use crate::engine::push::Var;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C, align(16))]
struct Record {
    /// The live variable with this index, or [`NO_VARIABLE`].
    var: AtomicU64,
    version: AtomicU64,
}

impl Record {
    #[inline(always)]
    fn is_of(&self, var: Var) -> bool {
        self.var.load(Ordering::Acquire) == var.0
    }
}

/// Not a variable. Fresh memory is zero, which is not one either, except at index 0.
const NO_VARIABLE: u64 = u64::MAX;

/// One record per variable. Adding and removing requires the lock of the variables.
pub struct VariableTable(VirtualArray<Record>);

impl VariableTable {
    pub fn new() -> Self {
        let table = VariableTable(VirtualArray::new(MAX));
        table.remove(Var(0));
        table
    }

    #[inline(always)]
    fn record(&self, var: Var) -> &Record {
        // SAFETY: the reservation is zeroed memory, and zero is a valid value.
        unsafe { &*self.0.get(var.0 as u32 as usize) }
    }

    /// A new variable has version 0.
    pub fn add(&self, var: Var) {
        let record = self.record(var);
        record.version.store(0, Ordering::Relaxed);
        record.var.store(var.0, Ordering::Release);
    }

    pub fn remove(&self, var: Var) {
        self.record(var).var.store(NO_VARIABLE, Ordering::Release);
    }

    #[inline(always)]
    pub fn has(&self, var: Var) -> bool {
        self.record(var).is_of(var)
    }

    /// The number of completed writes; `None` if the variable is deleted.
    pub fn version(&self, var: Var) -> Option<u64> {
        let record = self.record(var);
        record.is_of(var).then(|| record.version.load(Ordering::Relaxed))
    }

    /// Counts a write, unless the variable is deleted. Writers never overlap, so a load and a store
    /// suffice.
    #[inline(always)]
    pub fn advance(&self, var: Var) {
        let record = self.record(var);
        if record.is_of(var) {
            let version = record.version.load(Ordering::Relaxed);
            record.version.store(version + 1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_write_counts_for_the_variable_that_began_it() {
        let (table, first, second) = (VariableTable::new(), Var(0), Var(1 << 32));
        assert!(!table.has(first), "the slot is not taken");
        table.add(first);
        table.advance(first);
        assert_eq!(table.version(first), Some(1));
        table.remove(first);
        assert_eq!(table.version(first), None);
        table.add(second); // in the same slot
        table.advance(first);
        assert_eq!((table.version(first), table.version(second)), (None, Some(0)));
    }
}
