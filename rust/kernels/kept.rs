//! Caches what a kernel derives from its weights (packed or transformed filters) between calls.
//!
//! Whoever calls the kernel holds a [`Kept`] for each place where it is called, and names the
//! contents of the weights by a [`Stamp`]. What was made goes when the stamp changes. It is kept
//! from the second call with one stamp on, so that weights that are used once take no room, and
//! only while all that is kept stays below a bound.

use crate::dtype::Element;
use crate::huge_pages;
use crate::kernels::scratch::with_scratch;
use crate::lock::Lock;
use std::alloc::{Layout, alloc, dealloc};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Equal stamps mean equal contents.
pub type Stamp = [u64; 4];

/// Bytes of everything that is kept.
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// The most, in MiB, unless `RSNET_KEPT_WEIGHTS_MB` says otherwise.
const MOST: usize = 256;

/// The most bytes that are kept.
fn most() -> usize {
    static MOST_BYTES: OnceLock<usize> = OnceLock::new();
    *MOST_BYTES.get_or_init(|| {
        let set = std::env::var("RSNET_KEPT_WEIGHTS_MB").ok().and_then(|v| v.trim().parse().ok());
        set.unwrap_or(MOST).saturating_mul(1 << 20)
    })
}

/// What one kernel has kept, if it has.
#[derive(Default)]
pub struct Kept(Lock<Cached>);

#[derive(Default)]
struct Cached {
    /// Of the last call.
    stamp: Option<Stamp>,
    made: Option<Arc<Room>>,
}

impl Kept {
    /// Bytes of what is kept.
    pub fn bytes(&self) -> usize {
        self.0.lock().made.as_ref().map_or(0, |room| room.layout.size())
    }

    /// Gives up what is kept.
    pub fn clear(&self) {
        *self.0.lock() = Cached::default();
    }
}

/// A place to keep what is made of weights with these contents.
#[derive(Clone, Copy)]
pub struct Keeper<'a> {
    kept: &'a Kept,
    stamp: Stamp,
}

impl<'a> Keeper<'a> {
    pub fn new(kept: &'a Kept, stamp: Stamp) -> Self {
        Keeper { kept, stamp }
    }

    /// What was made of these weights.
    fn find(self, bytes: usize) -> Option<Arc<Room>> {
        let entry = self.kept.0.lock();
        let made = entry.made.as_ref().filter(|room| room.layout.size() == bytes);
        made.filter(|_| entry.stamp == Some(self.stamp)).cloned()
    }

    /// Room for what will be made, if it is to be kept.
    fn room(self, bytes: usize) -> Option<Room> {
        let mut entry = self.kept.0.lock();
        if entry.stamp != Some(self.stamp) {
            *entry = Cached { stamp: Some(self.stamp), made: None };
            return None;
        }
        drop(entry);
        Room::new(bytes)
    }

    /// Keeps what was made, unless the weights have changed since.
    fn keep(self, room: Arc<Room>) {
        let mut entry = self.kept.0.lock();
        if entry.stamp == Some(self.stamp) {
            entry.made = Some(room);
        }
    }
}

/// Calls `then` with `len` elements that `make` has written: now, or in an earlier call with the
/// same weights.
pub fn with_made<T: Element, R>(
    keeper: Option<Keeper<'_>>,
    len: usize,
    make: impl FnOnce(&mut [T]),
    then: impl FnOnce(&[T]) -> R,
) -> R {
    let bytes = len * size_of::<T>();
    let Some(keeper) = keeper.filter(|_| bytes > 0) else {
        return with_scratch(len, |room: &mut [T]| {
            make(room);
            then(room)
        });
    };
    if let Some(made) = keeper.find(bytes) {
        // SAFETY: the room was filled with as many elements of this type, as a kernel always makes
        // the same of weights of one dtype, and nothing writes it again.
        return then(unsafe { std::slice::from_raw_parts(made.at.cast(), len) });
    }
    match keeper.room(bytes) {
        None => with_made(None, len, make, then),
        Some(room) => {
            // SAFETY: the room has as many bytes, all zeros and so valid, and is not shared yet.
            make(unsafe { std::slice::from_raw_parts_mut(room.at.cast(), len) });
            let room = Arc::new(room);
            keeper.keep(room.clone());
            // SAFETY: as above; nothing writes it again.
            then(unsafe { std::slice::from_raw_parts(room.at.cast(), len) })
        }
    }
}

/// Memory on a cache line of its own, counted.
struct Room {
    at: *mut u8,
    layout: Layout,
}

// SAFETY: it owns the memory, which is only read once it is shared.
unsafe impl Send for Room {}
// SAFETY: as above.
unsafe impl Sync for Room {}

impl Room {
    /// Allocates `bytes` zeroed bytes, at least one; `None` if all that is kept would exceed the
    /// bound.
    fn new(bytes: usize) -> Option<Room> {
        let layout = Layout::from_size_align(bytes, 64).ok()?;
        if BYTES.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > most() {
            BYTES.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        // SAFETY: the size is not 0.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            BYTES.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        // SAFETY: the memory was allocated above.
        unsafe {
            huge_pages::advise(at, bytes);
            at.write_bytes(0, bytes);
        }
        Some(Room { at, layout })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.at, self.layout) };
        BYTES.fetch_sub(self.layout.size(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Whether a call makes anything; what it sees must be what it would make.
    fn makes(kept: &Kept, stamp: u64, len: usize) -> bool {
        let mut made = false;
        let value = stamp as f32;
        let make = |room: &mut [f32]| {
            room.fill(value);
            made = true;
        };
        let keeper = Some(Keeper::new(kept, [stamp, 0, 0, 0]));
        with_made(keeper, len, make, |seen| assert_eq!(seen, vec![value; len]));
        made
    }

    #[test]
    fn keeps_from_the_second_call_on_until_the_stamp_changes() {
        let kept = Kept::default();
        let calls = [(1, true), (1, true), (1, false), (2, true), (1, true), (1, true), (1, false)];
        for (stamp, makes_it) in calls {
            assert_eq!(makes(&kept, stamp, 40), makes_it, "{stamp}");
        }
        kept.clear();
        assert!(makes(&kept, 1, 40) && makes(&kept, 1, 40) && !makes(&kept, 1, 40));
        assert!(makes(&kept, 1, 30) && !makes(&kept, 1, 30), "another extent is made anew");
    }

    #[test]
    fn nothing_and_too_much_are_not_kept() {
        let kept = Kept::default();
        assert!((0..3).all(|_| makes(&kept, 1, 0)));
        assert!(Room::new(most() + 1).is_none());
        assert!((0..3).all(|_| {
            let mut made = false;
            with_made(None, 2, |_: &mut [f32]| made = true, |_| ());
            made
        }));
    }
}
