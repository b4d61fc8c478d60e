//! Work on arrays that nobody else uses meanwhile, without a task of the engine's.

use super::{Base, NDArray};
use crate::engine::Var;

/// Runs `f` at once if nothing is pending on the arrays and none is poisoned, with every other use of
/// them kept out meanwhile; false, and nothing done, otherwise. Only for work of a few microseconds;
/// arrays that already have a variable hold up every push meanwhile, so `tiny` says whether `f` is far
/// shorter than a task: if not, such arrays are refused.
pub fn with_quiet(
    reads: &[&NDArray],
    writes: &[&NDArray],
    tiny: bool,
    f: &mut dyn FnMut(),
) -> bool {
    let mut inside = Inside::new(reads, writes);
    if !inside.enter() {
        return false;
    }
    match inside.base {
        None => {
            f();
            true
        }
        Some(_) if !tiny => false,
        Some(base) => base.engine.try_run_exclusive(&inside.read_vars, &inside.write_vars, f),
    }
}

type Vars = smallvec::SmallVec<[Var; 6]>;

/// The latches an inline operation has entered; left when dropped.
struct Inside<'a> {
    reads: &'a [&'a NDArray],
    writes: &'a [&'a NDArray],
    entered_reads: usize,
    entered_writes: usize,
    /// Set when some array has a variable.
    base: Option<&'a Base>,
    /// Of the arrays whose latches were closed before they could be entered. A latch that closes after it was
    /// entered keeps others out all the same: who closes it waits until it is left.
    read_vars: Vars,
    write_vars: Vars,
}

impl<'a> Inside<'a> {
    fn new(reads: &'a [&'a NDArray], writes: &'a [&'a NDArray]) -> Self {
        Inside {
            reads,
            writes,
            entered_reads: 0,
            entered_writes: 0,
            base: None,
            read_vars: Vars::new(),
            write_vars: Vars::new(),
        }
    }

    /// Is the array among the first `upto` written ones?
    fn is_written(&self, upto: usize, array: &NDArray) -> bool {
        self.writes[..upto].iter().any(|w| w.same_chunk(array))
    }

    fn enter(&mut self) -> bool {
        for i in 0..self.writes.len() {
            let array = self.writes[i];
            if !self.is_written(i, array) && !array.chunk.latch.try_write() {
                if !array.chunk.latch.is_closed() {
                    return false;
                }
                self.base = Some(&array.chunk.base);
                self.write_vars.push(array.var());
            }
            self.entered_writes = i + 1;
        }
        for i in 0..self.reads.len() {
            let array = self.reads[i];
            if !self.is_written(self.writes.len(), array) && !array.chunk.latch.try_read() {
                if !array.chunk.latch.is_closed() {
                    return false;
                }
                self.base = Some(&array.chunk.base);
                self.read_vars.push(array.var());
            }
            self.entered_reads = i + 1;
        }
        true
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        for i in 0..self.entered_reads {
            let array = self.reads[i];
            if !self.is_written(self.writes.len(), array) && !array.chunk.latch.is_closed() {
                array.chunk.latch.leave_read();
            }
        }
        for i in 0..self.entered_writes {
            let array = self.writes[i];
            if !self.is_written(i, array) && !array.chunk.latch.is_closed() {
                array.chunk.latch.leave_write();
            }
        }
    }
}
