//! Work on arrays that are idle, on the calling thread and without a task of the engine.

use super::{Base, NDArray};
use crate::engine::Var;

/// What became of an attempt to run work on idle arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    Ran,
    /// An array is in use or poisoned.
    Busy,
    /// The engine was not asked: an array has a variable, which only tiny work may hold.
    HasVariable,
}

/// Runs `f` now if nothing is pending on the arrays and none is poisoned, excluding every other use
/// of them meanwhile. Only for work of a few microseconds: arrays that already have a variable hold
/// up every push meanwhile, so they are accepted only if `f` is `tiny`, far shorter than a task.
pub fn run_exclusive(
    reads: &[&NDArray],
    writes: &[&NDArray],
    tiny: bool,
    f: &mut dyn FnMut(),
) -> Attempt {
    let mut latches = EnteredLatches::new(reads, writes);
    if !latches.enter() {
        return Attempt::Busy;
    }
    match latches.base {
        None => {
            f();
            Attempt::Ran
        }
        Some(_) if !tiny => Attempt::HasVariable,
        Some(base) => {
            match base.engine.try_run_exclusive(&latches.read_vars, &latches.write_vars, f) {
                true => Attempt::Ran,
                false => Attempt::Busy,
            }
        }
    }
}

type Vars = smallvec::SmallVec<[Var; 6]>;

/// The latches an inline operation has entered; left when dropped.
struct EnteredLatches<'a> {
    reads: &'a [&'a NDArray],
    writes: &'a [&'a NDArray],
    entered_reads: usize,
    entered_writes: usize,
    /// Set when some array has a variable.
    base: Option<&'a Base>,
    /// Variables of the arrays whose latches were closed before they could be entered. A latch that
    /// closes after it was entered still protects: the closing thread waits until it is left.
    read_vars: Vars,
    write_vars: Vars,
}

impl<'a> EnteredLatches<'a> {
    fn new(reads: &'a [&'a NDArray], writes: &'a [&'a NDArray]) -> Self {
        EnteredLatches {
            reads,
            writes,
            entered_reads: 0,
            entered_writes: 0,
            base: None,
            read_vars: Vars::new(),
            write_vars: Vars::new(),
        }
    }

    /// Returns true if the array's chunk is among those of the first `upto` written arrays.
    fn is_written(&self, upto: usize, array: &NDArray) -> bool {
        self.writes[..upto].iter().any(|w| w.same_chunk(array))
    }

    /// Enters every latch that is open. Returns false if one is in use.
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

impl Drop for EnteredLatches<'_> {
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
