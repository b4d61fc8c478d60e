//! The atomics, locks and parking of the engine's state machines: the standard ones, or loom's when its
//! models run (`--cfg loom`), so that the models check the code that ships.

#[cfg(loom)]
pub(in crate::engine) use loom::sync::{
    MutexGuard as Guard,
    atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, fence},
};
#[cfg(not(loom))]
pub(in crate::engine) use std::sync::{
    MutexGuard as Guard,
    atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, fence},
};

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use std::sync::Mutex;

/// Parking and waking of threads.
pub(in crate::engine) mod thread {
    #[cfg(loom)]
    pub use loom::thread::{Thread, current, park};
    #[cfg(not(loom))]
    pub use std::thread::{Thread, current, park, park_timeout};

    /// In a model nobody gives up: who is not woken hangs, which loom reports.
    #[cfg(loom)]
    pub fn park_timeout(_: std::time::Duration) {
        park();
    }
}

/// A mutex of the standard library that ignores poisoning: whatever the engine guards is consistent at
/// every point where foreign code could panic. (Not `parking_lot`'s: its table of waiters is shared by
/// the process, so a fork at a bad moment would leave it locked in the child.)
#[derive(Default)]
pub(in crate::engine) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Lock(Mutex::new(value))
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}
