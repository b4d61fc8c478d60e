//! Scratch memory of the executing thread: kept between kernels, handed out like a stack.

use crate::dtype::Element;
use std::cell::RefCell;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with `len` elements of uninitialised (but valid) scratch on a cache line of their own.
/// Calls may be nested; each level has its own buffer.
pub fn with_scratch<T: Element, R>(len: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    const LINE: usize = 64;
    let words = (len * size_of::<T>()).div_ceil(8) + LINE / 8;
    let mut buffer = BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_default();
    if buffer.len() < words {
        buffer.clear();
        buffer.resize(words, 0);
    }
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
