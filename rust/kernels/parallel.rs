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
    let grain = grain.max(1);
    let chunk = |i: usize| i * grain..((i + 1) * grain).min(n);
    crate::fork_join::split(n.div_ceil(grain), |i| f(chunk(i)));
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
