//! Arrays that grow in place: address space is reserved once, memory is taken as it is touched.
//!
//! So an element is found by one addition, its address never changes, and growing copies nothing. The engine keeps
//! its tasks and the versions of its variables in such arrays.

use std::alloc::Layout;

/// Zeroed memory for up to `capacity` values of `T`. What is in it is up to the owner; nothing is dropped.
pub struct Reserved<T> {
    base: *mut T,
    /// The last index: the capacity is a power of two.
    mask: usize,
}

// SAFETY: only memory; `get` hands out raw pointers, whose users answer for what they do with them.
unsafe impl<T: Send> Send for Reserved<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Reserved<T> {}

/// What is asked for at least before giving up.
const LEAST: usize = 1 << 12;

impl<T> Reserved<T> {
    /// Room for `most` values (a power of two), or for half of that, and so on, where address space is short.
    pub fn new(most: usize) -> Self {
        let mut capacity = most;
        loop {
            let layout = Layout::array::<T>(capacity).unwrap_or(Layout::new::<T>());
            let base = reserve(layout);
            if !base.is_null() {
                return Reserved { base: base.cast(), mask: capacity - 1 };
            }
            if capacity <= LEAST {
                std::alloc::handle_alloc_error(layout);
            }
            capacity /= 2;
        }
    }

    /// The same for values that are used in no order: with huge pages, where the system has them to give, the tables of
    /// pages are hardly ever asked. Memory is then taken by 2 MiB.
    pub fn of_huge_pages(most: usize) -> Self {
        let reserved = Self::new(most);
        #[cfg(target_os = "linux")]
        // SAFETY: the mapping is this one's own, and nothing is in it; a wish, which needs no answer.
        unsafe {
            let size = size_of::<T>() * reserved.capacity();
            libc::madvise(reserved.base.cast(), size, libc::MADV_HUGEPAGE);
        }
        reserved
    }

    pub fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// The place of value `i`.
    ///
    /// # Safety
    /// `i` is below the capacity.
    #[inline]
    pub unsafe fn at(&self, i: usize) -> *mut T {
        // SAFETY: promised by the caller.
        unsafe { self.base.add(i) }
    }

    /// The place of value `i`; beyond the capacity it wraps.
    #[inline]
    pub fn get(&self, i: usize) -> *mut T {
        // SAFETY: the index is within the reservation.
        unsafe { self.base.add(i & self.mask) }
    }
}

impl<T> Drop for Reserved<T> {
    fn drop(&mut self) {
        let layout = Layout::array::<T>(self.capacity()).unwrap_or(Layout::new::<T>());
        release(self.base.cast(), layout);
    }
}

#[cfg(unix)]
fn reserve(layout: Layout) -> *mut u8 {
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new private mapping, of zeroed pages that take memory when first touched.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), layout.size(), access, kind, -1, 0) };
    if base == libc::MAP_FAILED { std::ptr::null_mut() } else { base.cast() }
}

#[cfg(unix)]
fn release(base: *mut u8, layout: Layout) {
    // SAFETY: made by `reserve` with the same size.
    unsafe { libc::munmap(base.cast(), layout.size()) };
}

#[cfg(not(unix))]
fn reserve(layout: Layout) -> *mut u8 {
    // SAFETY: the layout is not of size zero.
    unsafe { std::alloc::alloc_zeroed(layout) }
}

#[cfg(not(unix))]
fn release(base: *mut u8, layout: Layout) {
    // SAFETY: made by `reserve` with the same layout.
    unsafe { std::alloc::dealloc(base, layout) };
}
