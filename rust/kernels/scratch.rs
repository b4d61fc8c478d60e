//! Scratch memory of the executing thread: kept between kernels, handed out like a stack.

use crate::dtype::Element;
use crate::huge_pages;
use std::alloc::{Layout, alloc_zeroed};
use std::cell::RefCell;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

/// A cache line: what scratch is aligned to.
const LINE: usize = 64;

/// Larger buffers of [`Scratch::take`] go back to the system: compiled operators ask for them.
const MOST_KEPT_BYTES: usize = 64 << 20;

/// Calls `f` with `len` elements of uninitialised (but valid) scratch on a cache line of their own.
/// Calls may be nested; each level has its own buffer. A panic, which makes the operation fail, if
/// there is not so much memory.
pub fn with_scratch<T: Element, R>(len: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    let words = words(len * size_of::<T>());
    let mut buffer = taken(words).unwrap_or_else(|| {
        panic!("cannot get {} bytes of temporary space", words.saturating_mul(8))
    });
    let base = buffer.as_mut_ptr().cast::<u8>();
    let skip = base.align_offset(LINE);
    // SAFETY: the buffer has LINE spare bytes and holds `len` elements after the skip; any bytes it
    // can hold are valid for every element type but bool, whose scratch is never read before it is
    // written.
    let slice = unsafe { std::slice::from_raw_parts_mut(base.add(skip).cast::<T>(), len) };
    let result = f(slice);
    BUFFERS.with_borrow_mut(|all| all.push(buffer));
    result
}

/// A buffer of at least this many words, kept or new; `None` if there is not enough memory.
fn taken(words: usize) -> Option<Vec<u64>> {
    let kept = BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_default();
    if kept.len() >= words {
        return Some(kept);
    }
    drop(kept); // before its successor is allocated
    zeros(words)
}

/// A buffer that holds zeros; `None` if there is not enough memory. The system commits the pages of
/// a large one when they are written, so that space which a kernel asks for and does not use costs
/// nothing. Large ones are in huge pages.
fn zeros(words: usize) -> Option<Vec<u64>> {
    let layout = Layout::array::<u64>(words).ok()?;
    // SAFETY: the layout is not empty, `words` counts a spare line. The memory has this layout, and
    // all bytes 0 are numbers.
    unsafe {
        let at = alloc_zeroed(layout).cast::<u64>();
        if at.is_null() {
            return None;
        }
        huge_pages::advise(at.cast(), layout.size());
        Some(Vec::from_raw_parts(at, words, words))
    }
}

/// Number of words of a buffer that holds `bytes` bytes from a cache line on.
fn words(bytes: usize) -> usize {
    bytes.div_ceil(8) + LINE / 8
}

/// Owned scratch, for code that cannot run inside a closure.
pub struct Scratch(Vec<u64>);

impl Scratch {
    /// A buffer of `bytes` bytes of any content; `None` if there is not enough memory.
    pub fn take(bytes: usize) -> Option<Scratch> {
        taken(words(bytes)).map(Scratch)
    }

    /// The first byte, on a cache line.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        let base = self.0.as_mut_ptr().cast::<u8>();
        base.wrapping_add(base.align_offset(LINE))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        if buffer.len() * 8 <= MOST_KEPT_BYTES {
            let _ = BUFFERS.try_with(|all| all.borrow_mut().push(buffer));
        }
    }
}
