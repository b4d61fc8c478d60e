//! The host pool: blocks in size classes, kept for reuse because fresh pages cost more than most
//! element-wise kernels.

use crate::error::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
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

#[derive(Default)]
struct Inner {
    free: HashMap<usize, Vec<usize>>,
    usage: Usage,
}

/// A pool of host memory.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<Inner>>);

/// Memory from a pool; goes back to it when dropped.
pub struct Block {
    ptr: *mut u8,
    class_bytes: usize,
    pool: Pool,
}

// SAFETY: a block owns its memory; the pointer is not tied to a thread.
unsafe impl Send for Block {}
// SAFETY: a shared block only gives out its address.
unsafe impl Sync for Block {}

/// Bytes of the size class of `bytes`: powers of two in four steps, at least a cache line.
fn class_of(bytes: usize) -> usize {
    let bytes = bytes.max(ALIGN);
    let step = (bytes.next_power_of_two() / 8).max(ALIGN);
    bytes.div_ceil(step) * step
}

impl Pool {
    pub fn new() -> Self {
        Self::default()
    }

    /// Uninitialised memory of at least `bytes` bytes.
    pub fn alloc(&self, bytes: usize) -> Result<Block> {
        if bytes > isize::MAX as usize / 2 {
            return Err(Error::new(ErrorKind::Memory, format!("cannot allocate {bytes} bytes")));
        }
        let class_bytes = class_of(bytes);
        let mut inner = self.0.lock();
        let cached = inner.free.get_mut(&class_bytes).and_then(Vec::pop);
        let ptr = match cached {
            Some(address) => {
                inner.usage.cached_bytes -= class_bytes;
                address as *mut u8
            }
            None => {
                // SAFETY: the layout has a non-zero size.
                let ptr = unsafe { alloc(layout(class_bytes)) };
                if ptr.is_null() {
                    return Err(Error::new(
                        ErrorKind::Memory,
                        format!("cannot allocate {bytes} bytes"),
                    ));
                }
                ptr
            }
        };
        let usage = &mut inner.usage;
        usage.used_bytes += class_bytes;
        usage.peak_bytes = usage.peak_bytes.max(usage.used_bytes);
        Ok(Block { ptr, class_bytes, pool: self.clone() })
    }

    pub fn usage(&self) -> Usage {
        self.0.lock().usage
    }

    /// Gives cached memory back to the system.
    pub fn release_cached(&self) {
        let mut inner = self.0.lock();
        inner.usage.cached_bytes = 0;
        for (class_bytes, blocks) in inner.free.drain() {
            for address in blocks {
                // SAFETY: cached blocks came from `alloc` with this layout and nobody holds them.
                unsafe { dealloc(address as *mut u8, layout(class_bytes)) };
            }
        }
    }
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
        self.class_bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut inner = self.pool.0.lock();
        inner.usage.used_bytes -= self.class_bytes;
        inner.usage.cached_bytes += self.class_bytes;
        inner.free.entry(self.class_bytes).or_default().push(self.ptr as usize);
    }
}
