//! Parallel work inside kernels.
//!
//! On a thread of a compute pool work is split among its threads; on any other thread it runs
//! serially. Work is split by shapes only, never by the number of threads, so results have the same
//! bits for any number.

use std::ops::Range;

/// Returns whether this is a thread of a compute pool, so that a library may split its work into
/// `parts`. If so, parked siblings are woken.
pub fn in_pool(parts: usize) -> bool {
    let split = rayon::current_thread_index().is_some() && rayon::current_num_threads() > 1;
    if split {
        crate::fork_join::wake_helpers(parts.saturating_sub(1));
    }
    split
}

/// Calls `f` on consecutive sub-ranges of `0..n`, each of `grain` items (the last may be shorter),
/// in any order and possibly side by side.
pub fn parallel_for(n: usize, grain: usize, f: impl Fn(Range<usize>) + Send + Sync) {
    let chunks = Chunks::new(n, grain);
    crate::fork_join::split(chunks.count(), |i| f(chunks.at(i)));
}

/// As [`parallel_for`], with ranges that may fail: returns the first failure, after which no
/// further range is begun.
pub fn try_parallel_for<E: Send>(
    n: usize,
    grain: usize,
    f: impl Fn(Range<usize>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let chunks = Chunks::new(n, grain);
    crate::fork_join::try_split(chunks.count(), |i| f(chunks.at(i)))
}

/// Consecutive sub-ranges of `0..n`, each of `grain` items; the last may be shorter.
struct Chunks {
    n: usize,
    grain: usize,
}

impl Chunks {
    fn new(n: usize, grain: usize) -> Self {
        Chunks { n, grain: grain.max(1) }
    }

    fn count(&self) -> usize {
        self.n.div_ceil(self.grain)
    }

    fn at(&self, i: usize) -> Range<usize> {
        let first = i * self.grain;
        first..first.saturating_add(self.grain).min(self.n)
    }
}

/// Called with a range of elements, on any thread.
pub type OnElements<'a> = &'a (dyn Fn(Range<usize>) + Sync);

/// A pointer that threads of one kernel may share; the kernel writes disjoint parts through it.
#[derive(Clone, Copy)]
pub struct Shared<T>(pub *mut T);

// SAFETY: only an address; the kernel that makes it keeps the parts that threads touch disjoint.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The pointer. (A method, so that closures capture the whole and not the bare field.)
    pub fn ptr(self) -> *mut T {
        self.0
    }

    /// The pointer `i` elements on.
    ///
    /// # Safety
    /// As `add` of a pointer.
    pub unsafe fn at(self, i: usize) -> *mut T {
        // SAFETY: promised by the caller.
        unsafe { self.0.add(i) }
    }
}
