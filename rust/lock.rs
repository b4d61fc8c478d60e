//! The standard library's locks without poisoning: the data that they guard is consistent wherever
//! foreign code could panic, and errors travel along variables instead.
//!
//! `parking_lot` is not used: its table of waiters is global, so a fork at the wrong moment would
//! leave it locked in the child.

use std::sync::{self, MutexGuard, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// A mutex that ignores poisoning.
#[derive(Debug, Default)]
pub struct Lock<T>(sync::Mutex<T>);

/// The guard of a [`Lock`].
pub type Guard<'a, T> = MutexGuard<'a, T>;

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock(sync::Mutex::new(value))
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Holds the lock until the returned guard is dropped.
    pub fn hold(&self) -> Held<'_>
    where
        T: 'static,
    {
        Held(Box::new(self.lock()))
    }

    /// Returns the guard, or `None` if the lock is taken.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, through exclusive access to the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A lock held without access to its value, as over a fork.
pub struct Held<'a>(#[expect(dead_code, reason = "held until dropped")] Box<dyn Anything + 'a>);

trait Anything {}
impl<T> Anything for T {}

/// A reader-writer lock that ignores poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        RwLock(sync::RwLock::new(value))
    }

    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Holds the lock until the returned guard is dropped.
    pub fn hold(&self) -> Held<'_>
    where
        T: 'static,
    {
        Held(Box::new(self.write()))
    }
}
