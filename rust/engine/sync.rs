//! The atomics, locks and parking of the engine's state machines: the standard ones, or loom's when
//! its models run (`--cfg loom`), so that the models check the code that ships.

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

/// Parking and waking of threads.
pub(in crate::engine) mod thread {
    #[cfg(loom)]
    pub use loom::thread::{Thread, current, park};
    #[cfg(not(loom))]
    pub use std::thread::{Thread, current, park, park_timeout};

    /// Models have no deadlines: a thread that is not woken hangs, which loom reports.
    #[cfg(loom)]
    pub fn park_timeout(_: std::time::Duration) {
        park();
    }
}

#[cfg(not(loom))]
pub(in crate::engine) use crate::lock::Lock;

/// [`crate::lock::Lock`] for the models.
#[cfg(loom)]
#[derive(Default)]
pub(in crate::engine) struct Lock<T>(loom::sync::Mutex<T>);

#[cfg(loom)]
impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Lock(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
