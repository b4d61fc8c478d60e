//! The atomics and locks of the engine's state machines: the standard ones, or loom's when its models run
//! (`--cfg loom`), so that the models check the code that ships.

#[cfg(loom)]
pub(in crate::engine) use loom::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(in crate::engine) use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, fence};

/// A mutex of the standard library that ignores poisoning: whatever the engine guards is consistent at
/// every point where foreign code could panic. (Not `parking_lot`'s: its table of waiters is shared by
/// the process, so a fork at a bad moment would leave it locked in the child.)
#[derive(Default)]
pub(in crate::engine) struct Lock<T>(std::sync::Mutex<T>);

impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Lock(std::sync::Mutex::new(value))
    }

    #[inline]
    pub fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}
