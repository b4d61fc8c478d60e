//! A pool of memory: blocks in size classes, kept for reuse because fresh pages cost more than most
//! element-wise kernels, and an allocator of a device more than many of its operations.

use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::huge_pages::{self, HUGE_PAGE};
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
    /// may still be in a cache. With each, what the source said when it was given back.
    free: Vec<Vec<(usize, u64)>>,
    usage: Usage,
    /// Most bytes that may be used or cached.
    limit: Option<usize>,
}

/// Where a pool takes memory that it does not have.
pub trait Source: Send + Sync {
    /// The device of the memory.
    fn context(&self) -> Context;

    /// Memory of `bytes` bytes, a multiple of [`ALIGN`], aligned to that; null if there is not so
    /// much.
    fn allocate(&self, bytes: usize) -> Result<*mut u8>;

    /// A number that stands for every use of the memory that is given back now, where such uses
    /// may still be to come; [`Pool::take_with_ticket`] hands it to the next user.
    fn ticket(&self) -> u64 {
        0
    }

    /// Called before memory is returned to the system: waits for uses that are still to come.
    fn before_free(&self) {}

    /// Returns memory to the system.
    ///
    /// # Safety
    /// `ptr` comes from [`Source::allocate`] with as many bytes, and is not used any more.
    unsafe fn free(&self, ptr: *mut u8, bytes: usize);
}

/// The memory of the host, from the system's allocator; large blocks in huge pages.
struct HostMemory;

impl Source for HostMemory {
    fn context(&self) -> Context {
        Context::default()
    }

    fn allocate(&self, bytes: usize) -> Result<*mut u8> {
        // SAFETY: classes are not empty; the advice is about memory that was just allocated.
        unsafe {
            let ptr = alloc(layout(bytes));
            if bytes >= HUGE_PAGE && !ptr.is_null() {
                huge_pages::advise(ptr, bytes);
            }
            Ok(ptr)
        }
    }

    unsafe fn free(&self, ptr: *mut u8, bytes: usize) {
        // SAFETY: promised by the caller.
        unsafe { dealloc(ptr, layout(bytes)) }
    }
}

/// A pool of memory.
#[derive(Clone, Default)]
pub struct Pool(Arc<Shared>);

struct Shared {
    inner: Lock<Inner>,
    profiler: Arc<Recorder>,
    context: Context,
    source: Box<dyn Source>,
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(Box::new(HostMemory), Arc::default())
    }
}

impl Shared {
    fn new(source: Box<dyn Source>, profiler: Arc<Recorder>) -> Self {
        Shared { inner: Lock::default(), profiler, context: source.context(), source }
    }

    /// Returns cached blocks to the source.
    fn release(&self, inner: &mut Inner) {
        inner.usage.cached_bytes = 0;
        if inner.free.iter().any(|blocks| !blocks.is_empty()) {
            self.source.before_free();
        }
        for (index, blocks) in std::mem::take(&mut inner.free).into_iter().enumerate() {
            for (address, _) in blocks {
                // SAFETY: cached blocks came from the source with this size and are not in use.
                unsafe { self.source.free(address as *mut u8, class_bytes_of(index)) };
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut inner = std::mem::take(self.inner.get_mut());
        self.release(&mut inner);
    }
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

    /// An empty pool of host memory that reports allocations to `profiler`.
    pub fn new(profiler: &Arc<Recorder>) -> Self {
        Self::over(Box::new(HostMemory), profiler)
    }

    /// An empty pool over `source` that reports allocations to `profiler`.
    pub fn over(source: Box<dyn Source>, profiler: &Arc<Recorder>) -> Self {
        Pool(Arc::new(Shared::new(source, profiler.clone())))
    }

    /// Reports a change of the bytes in use to the profiler. The caller holds the lock.
    #[inline]
    fn report(&self, taken_bytes: i64, usage: Usage) {
        if self.0.profiler.is_on(mode::MEMORY) {
            self.0.profiler.memory(self.0.context, taken_bytes, usage.used_bytes);
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
        self.take_with_ticket(bytes).map(|(ptr, _)| ptr)
    }

    /// As [`Pool::take`], with the number of [`Source::ticket`] at the time when the memory was
    /// given back; 0 for memory that nothing has used.
    pub fn take_with_ticket(&self, bytes: usize) -> Result<(*mut u8, u64)> {
        if bytes > isize::MAX as usize / 2 {
            return Err(Error::no_memory(bytes));
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
            Some((address, ticket)) => Ok((address as *mut u8, ticket)),
            None => Ok((self.fresh(bytes, class_bytes)?, 0)),
        }
    }

    /// Returns memory to the pool.
    ///
    /// # Safety
    /// `ptr` must come from [`Pool::take`] of this pool with as many bytes, and must not be used
    /// any more.
    pub unsafe fn give_back(&self, ptr: *mut u8, bytes: usize) {
        let class_bytes = class_of(bytes);
        let ticket = self.0.source.ticket();
        let mut inner = self.0.inner.lock();
        inner.usage.used_bytes -= class_bytes;
        inner.usage.cached_bytes += class_bytes;
        self.report(-(class_bytes as i64), inner.usage);
        if inner.free.is_empty() {
            inner.free.resize_with(CLASSES, Vec::new);
        }
        inner.free[class_index(class_bytes)].push((ptr as usize, ticket));
    }

    /// Memory from the source; if it has none, or if there would be more than the limit, cached
    /// memory is released first. The bytes are counted already.
    fn fresh(&self, bytes: usize, class_bytes: usize) -> Result<*mut u8> {
        let source = &self.0.source;
        {
            let mut inner = self.0.inner.lock();
            let Inner { usage, limit, .. } = *inner;
            if limit.is_some_and(|most| usage.used_bytes + usage.cached_bytes > most) {
                self.0.release(&mut inner);
                if limit.is_some_and(|most| usage.used_bytes > most) {
                    drop(inner);
                    return Err(self.refuse(bytes, class_bytes, None));
                }
            }
        }
        let mut made = source.allocate(class_bytes);
        if made.as_ref().is_ok_and(|ptr| ptr.is_null()) {
            self.release_cached();
            made = source.allocate(class_bytes);
        }
        match made {
            Ok(ptr) if !ptr.is_null() => Ok(ptr),
            failed => Err(self.refuse(bytes, class_bytes, failed.err())),
        }
    }

    /// Takes back what [`Pool::take`] has counted; the error to report.
    #[cold]
    fn refuse(&self, bytes: usize, class_bytes: usize, failed: Option<Error>) -> Error {
        let mut inner = self.0.inner.lock();
        inner.usage.used_bytes -= class_bytes;
        self.report(-(class_bytes as i64), inner.usage);
        let context = self.0.context;
        failed.unwrap_or_else(|| match context.is_host() {
            true => Error::no_memory(bytes),
            false => {
                let used = inner.usage.used_bytes;
                let bound = inner.limit.map(|most| format!(" of a limit of {most}"));
                let bound = bound.unwrap_or_default();
                let text =
                    format!("{context}: cannot allocate {bytes} bytes: {used} are in use{bound}");
                Error::new(ErrorKind::Memory, text)
            }
        })
    }

    /// Current sizes.
    pub fn usage(&self) -> Usage {
        self.0.inner.lock().usage
    }

    /// Most bytes that may be used or cached, if there is such a limit.
    pub fn limit(&self) -> Option<usize> {
        self.0.inner.lock().limit
    }

    /// Sets the limit; what is beyond it and cached is released by the next allocation.
    pub fn set_limit(&self, limit: Option<usize>) {
        self.0.inner.lock().limit = limit;
    }

    /// Returns cached memory to the system.
    pub fn release_cached(&self) {
        self.0.release(&mut self.0.inner.lock());
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

fn layout(class_bytes: usize) -> Layout {
    // Large blocks begin on a huge page, so that all of their pages can be huge.
    let align = if class_bytes >= HUGE_PAGE { HUGE_PAGE } else { ALIGN };
    // Classes are multiples of ALIGN far below isize::MAX, so the layout is always valid.
    Layout::from_size_align(class_bytes, align).unwrap_or(Layout::new::<u64>())
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_limit_releases_what_is_cached_before_it_refuses() {
        let pool = Pool::default();
        pool.set_limit(Some(3 << 20));
        drop(pool.alloc(2 << 20).expect("below the limit"));
        let held = pool.alloc((2 << 20) + (1 << 19)).expect("in place of what was cached");
        assert_eq!(pool.usage().cached_bytes, 0);
        assert!(pool.alloc(1 << 20).is_err());
        assert_eq!(pool.usage().used_bytes, held.bytes(), "what was refused is not counted");
        pool.set_limit(None);
        assert!(pool.alloc(1 << 20).is_ok());
    }

    proptest! {
        #[test]
        fn classes_hold_their_bytes_and_waste_at_most_a_quarter(bytes in 1usize..1 << 40) {
            let class = class_of(bytes);
            prop_assert!(class >= bytes && class.is_multiple_of(ALIGN));
            prop_assert!(class <= ALIGN || bytes <= 512 || class - bytes <= bytes / 4);
            prop_assert_eq!(class_bytes_of(class_index(class)), class);
        }
    }

    /// A source of at most `limit` bytes.
    struct Bounded {
        limit: usize,
        taken: Arc<AtomicUsize>,
    }

    impl Source for Bounded {
        fn context(&self) -> Context {
            Context::gpu(3)
        }

        fn allocate(&self, bytes: usize) -> Result<*mut u8> {
            if self.taken.load(Ordering::Relaxed) + bytes > self.limit {
                return Ok(std::ptr::null_mut());
            }
            self.taken.fetch_add(bytes, Ordering::Relaxed);
            HostMemory.allocate(bytes)
        }

        unsafe fn free(&self, ptr: *mut u8, bytes: usize) {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
            // SAFETY: promised by the caller.
            unsafe { HostMemory.free(ptr, bytes) }
        }
    }

    #[test]
    fn a_source_that_is_empty_gets_cached_blocks_back_before_an_allocation_fails() {
        let taken = Arc::new(AtomicUsize::new(0));
        let source = Bounded { limit: 4096, taken: taken.clone() };
        let pool = Pool::over(Box::new(source), &Arc::default());
        drop((pool.alloc(1024).unwrap(), pool.alloc(2048).unwrap()));
        assert_eq!((pool.usage().cached_bytes, taken.load(Ordering::Relaxed)), (3072, 3072));
        let large = pool.alloc(4096).unwrap();
        assert_eq!((pool.usage().cached_bytes, taken.load(Ordering::Relaxed)), (0, 4096));
        let refused = pool.alloc(64).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Memory);
        assert_eq!(refused.message(), "gpu(3): cannot allocate 64 bytes: 4096 are in use");
        assert_eq!(pool.usage().used_bytes, 4096);
        drop((large, pool));
        assert_eq!(taken.load(Ordering::Relaxed), 0);
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
