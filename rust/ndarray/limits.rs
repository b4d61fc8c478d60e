//! How an array's memory may be used. Operands of a callback are limited while it runs, and revoked
//! when it has ended.

use super::NDArray;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Writing is an error: an input of a callback, or memory that its owner lent for reading.
const READ_ONLY: u8 = 1;
/// Any use is an error: the callback that was given the memory has ended.
pub(super) const REVOKED: u8 = 2;
/// Code outside of rsnet (a NumPy array) holds the address.
const LENT: u8 = 4;
/// Watched for writes, and none has begun yet.
const UNWRITTEN: u8 = 8;
/// The memory is revoked when the callback has ended that was given it.
const OPERAND: u8 = 16;

impl NDArray {
    /// Returns true if every write to the memory goes through the engine, or through arrays that
    /// count it: its address was not given away.
    pub(super) fn notes_writes(&self) -> bool {
        let is_given_away = self.chunk.limits.load(Ordering::Relaxed) & (LENT | OPERAND) != 0;
        self.chunk.is_pooled() && !is_given_away
    }

    /// Records that the memory is a callback's, which will be revoked, and that it is read-only, or
    /// watched for the first write. Nobody else may know the array yet: this is no atomic change,
    /// which would cost as much as the rest of an operand.
    pub fn begin_as_operand(&self, is_read_only: bool, is_watched: bool) {
        let limits = &self.chunk.limits;
        let own = if is_read_only { READ_ONLY } else { 0 } | if is_watched { UNWRITTEN } else { 0 };
        limits.store(limits.load(Ordering::Relaxed) | OPERAND | own, Ordering::Relaxed);
    }

    /// From now on writing to this array's memory is an error.
    pub fn forbid_writing(&self) {
        self.chunk.limits.fetch_or(READ_ONLY, Ordering::Relaxed);
    }

    /// Returns true if the memory is a callback's: copy the values to keep them.
    #[inline]
    pub fn is_operand(&self) -> bool {
        self.chunk.limits.load(Ordering::Relaxed) & OPERAND != 0
    }

    /// From now on any use of this array's memory is an error: the callback it was given to has
    /// ended. Does nothing if no other array shares the memory.
    pub fn revoke(&self) {
        if Arc::strong_count(&self.chunk) > 1 {
            self.chunk.limits.fetch_or(REVOKED, Ordering::Relaxed);
        }
    }

    /// Records that code outside of rsnet holds the address (and an array, which keeps it alive).
    pub fn lend(&self) {
        self.chunk.limits.fetch_or(LENT, Ordering::Relaxed);
    }

    /// Returns true if it is watched, not written so far, and its address not lent.
    pub fn is_unwritten(&self) -> bool {
        self.chunk.limits.load(Ordering::Relaxed) & (UNWRITTEN | LENT) == UNWRITTEN
    }

    /// Returns true if the address was lent.
    pub fn is_lent(&self) -> bool {
        self.chunk.limits.load(Ordering::Relaxed) & LENT != 0
    }

    /// Returns true if more than `own` arrays hold the memory.
    pub fn is_held_beyond(&self, own: usize) -> bool {
        Arc::strong_count(&self.chunk) > own
    }

    /// Returns true if the array's memory may be written.
    pub fn is_writable(&self) -> bool {
        self.chunk.limits.load(Ordering::Relaxed) & READ_ONLY == 0
    }

    /// An error if the array was revoked.
    #[inline]
    pub fn usable(&self) -> Result<()> {
        self.chunk.usable()
    }

    /// An error if the array may not be written to.
    pub fn writable(&self) -> Result<()> {
        self.may_write(true)
    }

    /// As [`NDArray::writable`], for a write that leaves some elements as they are.
    pub fn writable_in_part(&self) -> Result<()> {
        self.may_write(false)
    }

    fn may_write(&self, every_element: bool) -> Result<()> {
        self.usable()?;
        if self.is_writable() {
            if self.is_unwritten() {
                self.begin_to_write(every_element && self.is_whole())?;
            }
            return Ok(());
        }
        Err(Error::value(
            "this array is read-only: an input of the running operator, or the memory of a \
             read-only NumPy array",
        ))
    }

    /// The first write to a watched chunk: what a part of it leaves out becomes zeros.
    #[cold]
    fn begin_to_write(&self, whole: bool) -> Result<()> {
        if !whole {
            let bytes = self.chunk.ptr()?;
            // SAFETY: the chunk has this many bytes, and no write to them has begun.
            unsafe { self.chunk.zero(bytes, self.chunk.size_bytes)? };
        }
        self.chunk.limits.fetch_and(!UNWRITTEN, Ordering::Relaxed);
        Ok(())
    }
}
