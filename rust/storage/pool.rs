//! The host pool: blocks in size classes, kept for reuse because fresh pages cost more than most
//! element-wise kernels.

use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::{Held, Lock};
use crate::profiler::{Recorder, mode};
use std::alloc::{Layout, alloc, dealloc};
use std::sync::Arc;

/// Every block begins on a cache line.
pub const ALIGN: usize = 64;

/// Bytes in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Handed out now.
    pub used_bytes: usize,
    /// Kept for reuse.
    pub cached_bytes: usize,
    /// Most ever handed out at once.
    pub peak_bytes: usize,
}

/// Size classes: eight up to 512 bytes, then four for each power of two.
const CLASSES: usize = 8 + 4 * 55;

#[derive(Default)]
struct Inner {
    /// Free blocks by number of their class, reused last in, first out: the bytes of a recent one
    /// may still be in a cache.
    free: Vec<Vec<usize>>,
    usage: Usage,
}

/// A pool of host memory.
#[derive(Clone, Default)]
pub struct Pool(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inner: Lock<Inner>,
    profiler: Arc<Recorder>,
}

/// Memory from a pool, returned when dropped.
pub struct Block {
    ptr: *mut u8,
    /// The requested size.
    bytes: usize,
    pool: Pool,
}

// SAFETY: a block owns its memory; the pointer is not tied to a thread.
unsafe impl Send for Block {}
// SAFETY: a shared block only exposes its address.
unsafe impl Sync for Block {}

/// Bytes of the size class of `bytes`: powers of two in four steps, at least a cache line.
fn class_of(bytes: usize) -> usize {
    let bytes = bytes.max(ALIGN);
    let step = (bytes.next_power_of_two() / 8).max(ALIGN);
    bytes.next_multiple_of(step)
}

/// The number of the class with blocks of `class_bytes`.
fn class_index(class_bytes: usize) -> usize {
    if class_bytes <= 8 * ALIGN {
        return class_bytes / ALIGN - 1;
    }
    let power = class_bytes.next_power_of_two();
    let quarter = (class_bytes - power / 2) / (power / 8); // 1 to 4
    8 + 4 * (power.trailing_zeros() as usize - 10) + quarter - 1
}

impl Pool {
    /// Holds the lock until the returned guard is dropped.
    pub fn hold(&self) -> Held<'_> {
        self.0.inner.hold()
    }

    /// An empty pool that reports allocations to `profiler`.
    pub fn new(profiler: &Arc<Recorder>) -> Self {
        Pool(Arc::new(Shared { inner: Lock::default(), profiler: profiler.clone() }))
    }

    /// Reports a change of the bytes in use to the profiler. The caller holds the lock.
    #[inline]
    fn report(&self, taken_bytes: i64, usage: Usage) {
        if self.0.profiler.is_on(mode::MEMORY) {
            self.0.profiler.memory(Context::default(), taken_bytes, usage.used_bytes);
        }
    }

    /// Uninitialised memory of at least `bytes` bytes.
    pub fn alloc(&self, bytes: usize) -> Result<Block> {
        let ptr = self.take(bytes)?;
        Ok(Block { ptr, bytes, pool: self.clone() })
    }

    /// As [`Pool::alloc`] for callers that keep size and pool themselves and call
    /// [`Pool::give_back`].
    pub fn take(&self, bytes: usize) -> Result<*mut u8> {
        if bytes > isize::MAX as usize / 2 {
            return Err(no_memory(bytes));
        }
        let class_bytes = class_of(bytes);
        let cached = {
            let mut inner = self.0.inner.lock();
            let usage = &mut inner.usage;
            usage.used_bytes += class_bytes;
            usage.peak_bytes = usage.peak_bytes.max(usage.used_bytes);
            self.report(class_bytes as i64, *usage);
            let cached = inner.free.get_mut(class_index(class_bytes)).and_then(Vec::pop);
            if cached.is_some() {
                inner.usage.cached_bytes -= class_bytes;
            }
            cached
        };
        match cached {
            Some(address) => Ok(address as *mut u8),
            None => self.fresh(bytes, class_bytes),
        }
    }

    /// Returns memory to the pool.
    ///
    /// # Safety
    /// `ptr` must come from [`Pool::take`] of this pool with as many bytes, and must not be used
    /// any more.
    pub unsafe fn give_back(&self, ptr: *mut u8, bytes: usize) {
        let class_bytes = class_of(bytes);
        let mut inner = self.0.inner.lock();
        inner.usage.used_bytes -= class_bytes;
        inner.usage.cached_bytes += class_bytes;
        self.report(-(class_bytes as i64), inner.usage);
        if inner.free.is_empty() {
            inner.free.resize_with(CLASSES, Vec::new);
        }
        inner.free[class_index(class_bytes)].push(ptr as usize);
    }

    /// Memory from the system; if it has none, cached memory is released first.
    fn fresh(&self, bytes: usize, class_bytes: usize) -> Result<*mut u8> {
        // SAFETY: the layout has a non-zero size.
        let allocate = || unsafe { alloc(layout(class_bytes)) };
        let mut ptr = allocate();
        if ptr.is_null() {
            self.release_cached();
            ptr = allocate();
        }
        if ptr.is_null() {
            let mut inner = self.0.inner.lock();
            inner.usage.used_bytes -= class_bytes;
            self.report(-(class_bytes as i64), inner.usage);
            return Err(no_memory(bytes));
        }
        Ok(ptr)
    }

    /// Current sizes.
    pub fn usage(&self) -> Usage {
        self.0.inner.lock().usage
    }

    /// Returns cached memory to the system.
    pub fn release_cached(&self) {
        let mut inner = self.0.inner.lock();
        inner.usage.cached_bytes = 0;
        for (index, blocks) in std::mem::take(&mut inner.free).into_iter().enumerate() {
            for address in blocks {
                // SAFETY: cached blocks came from `alloc` with this layout and are not in use.
                unsafe { dealloc(address as *mut u8, layout(class_bytes_of(index))) };
            }
        }
    }
}

/// The inverse of [`class_index`].
fn class_bytes_of(index: usize) -> usize {
    if index < 8 {
        return (index + 1) * ALIGN;
    }
    let power = 1usize << (10 + (index - 8) / 4);
    power / 2 + ((index - 8) % 4 + 1) * (power / 8)
}

#[cold]
fn no_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::Memory, format!("cannot allocate {bytes} bytes"))
}

fn layout(class_bytes: usize) -> Layout {
    // Classes are multiples of ALIGN below isize::MAX, so the layout is always valid.
    Layout::from_size_align(class_bytes, ALIGN).unwrap_or(Layout::new::<u64>())
}

impl Block {
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Usable bytes.
    pub fn bytes(&self) -> usize {
        class_of(self.bytes)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was taken from this pool with these bytes, and its owner ends here.
        unsafe { self.pool.give_back(self.ptr, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn classes_hold_their_bytes_and_waste_at_most_a_quarter(bytes in 1usize..1 << 40) {
            let class = class_of(bytes);
            prop_assert!(class >= bytes && class.is_multiple_of(ALIGN));
            prop_assert!(class <= ALIGN || bytes <= 512 || class - bytes <= bytes / 4);
            prop_assert_eq!(class_bytes_of(class_index(class)), class);
        }
    }

    #[test]
    fn blocks_are_reused_and_counted() {
        let pool = Pool::default();
        let first = pool.alloc(1000).unwrap();
        let address = first.ptr();
        assert_eq!(address as usize % ALIGN, 0);
        assert_eq!(pool.usage(), Usage { used_bytes: 1024, cached_bytes: 0, peak_bytes: 1024 });
        drop(first);
        assert_eq!(pool.usage(), Usage { used_bytes: 0, cached_bytes: 1024, peak_bytes: 1024 });
        let again = pool.alloc(1024).unwrap();
        assert_eq!(again.ptr(), address);
        drop(again);
        pool.release_cached();
        assert_eq!(pool.usage().cached_bytes, 0);
        assert!(pool.alloc(usize::MAX).is_err());
    }
}
