//! Arrays that grow in place: address space is reserved once, and memory is committed when touched.
//!
//! An element is found by one addition, its address never changes, and growing copies nothing. The
//! engine stores its tasks and the versions of its variables in such arrays.

use std::alloc::Layout;

/// Zeroed memory for up to `capacity` values of `T`. The owner initialises and drops the values.
pub struct VirtualArray<T> {
    base: *mut T,
    /// The last index: the capacity is a power of two.
    mask: usize,
}

// SAFETY: only memory; `get` returns raw pointers, whose users uphold the aliasing rules.
unsafe impl<T: Send> Send for VirtualArray<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for VirtualArray<T> {}

/// The smallest capacity tried before giving up.
const LEAST: usize = 1 << 12;

impl<T> VirtualArray<T> {
    /// Reserves room for `most` values (a power of two), or half of that, and so on, if address
    /// space is short.
    pub fn new(most: usize) -> Self {
        let mut capacity = most;
        loop {
            let layout = Layout::array::<T>(capacity).unwrap_or(Layout::new::<T>());
            let base = reserve(layout);
            if !base.is_null() {
                return VirtualArray { base: base.cast(), mask: capacity - 1 };
            }
            if capacity <= LEAST {
                std::alloc::handle_alloc_error(layout);
            }
            capacity /= 2;
        }
    }

    pub fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// The address of value `i`.
    ///
    /// # Safety
    /// `i` is below the capacity.
    #[inline]
    pub unsafe fn at(&self, i: usize) -> *mut T {
        // SAFETY: promised by the caller.
        unsafe { self.base.add(i) }
    }

    /// The address of value `i`; beyond the capacity it wraps.
    #[inline]
    pub fn get(&self, i: usize) -> *mut T {
        // SAFETY: the index is within the reservation.
        unsafe { self.base.add(i & self.mask) }
    }
}

impl<T> Drop for VirtualArray<T> {
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
    // SAFETY: a new private mapping of zeroed pages, committed when first touched.
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
