//! Threads that wait for operations: how they are woken.

use crate::engine::data::cache_padded::CachePadded;
use crate::engine::sync::thread::{self, Thread};
use crate::engine::sync::{AtomicBool, AtomicU64, Guard, Lock, fence};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Wakes one parked waiter.
pub struct Signal {
    is_set: AtomicBool,
    thread: Thread,
}

impl Signal {
    /// A signal for the calling thread.
    pub fn new() -> Arc<Self> {
        Arc::new(Signal { is_set: AtomicBool::new(false), thread: thread::current() })
    }

    pub fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.thread.unpark();
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

/// Signals with the number of completed tasks at which each is set.
pub type Waiters = Vec<(u64, Arc<Signal>)>;

/// Waiters for everything: each is woken when a given number of tasks is complete.
pub struct CompletionWaiters {
    /// The lowest number any waiter waits for, or [`NO_WAITER`].
    lowest: AtomicU64,
    waiters: Lock<Waiters>,
}

const NO_WAITER: u64 = u64::MAX;

impl Default for CompletionWaiters {
    fn default() -> Self {
        CompletionWaiters { lowest: AtomicU64::new(NO_WAITER), waiters: Lock::default() }
    }
}

impl CompletionWaiters {
    /// Returns true if any thread waits.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.lowest.load(Ordering::SeqCst) != NO_WAITER
    }

    fn update_lowest(&self, waiters: &Waiters) {
        let lowest = waiters.iter().map(|(target, _)| *target).min();
        self.lowest.store(lowest.unwrap_or(NO_WAITER), Ordering::SeqCst);
    }

    /// Registers a waiter, which checks the count once more afterwards.
    pub fn add(&self, target: u64, signal: &Arc<Signal>) {
        let mut waiters = self.waiters.lock();
        waiters.push((target, signal.clone()));
        self.update_lowest(&waiters);
        fence(Ordering::SeqCst);
    }

    pub fn remove(&self, signal: &Arc<Signal>) {
        let mut waiters = self.waiters.lock();
        waiters.retain(|(_, s)| !Arc::ptr_eq(s, signal));
        self.update_lowest(&waiters);
    }

    /// Wakes the waiters whose number is reached; `completed` counts the completed tasks.
    pub fn notify(&self, completed: impl FnOnce() -> u64) {
        // Without the lock: a wait for many short tasks must not slow them down.
        let lowest = self.lowest.load(Ordering::SeqCst);
        if lowest == NO_WAITER {
            return;
        }
        let completed = completed();
        if completed < lowest {
            return;
        }
        for (target, signal) in self.waiters.lock().iter() {
            if completed >= *target {
                signal.set();
            }
        }
    }

    pub fn lock_for_fork(&self) -> Guard<'_, Waiters> {
        self.waiters.lock()
    }

    pub fn reset(&self) {
        self.waiters.lock().clear();
        self.lowest.store(NO_WAITER, Ordering::SeqCst);
    }
}

/// Tells workers that threads wait, so that they take tasks at once. Whoever begins to wait sets
/// it, and the workers clear it only now and then, so that neither pays for the other's access. A
/// hint, so not a loom atomic.
#[derive(Default)]
pub struct WaitHint(CachePadded<std::sync::atomic::AtomicBool>);

impl WaitHint {
    #[inline]
    pub fn set(&self) {
        if !self.is_set() {
            self.0.0.store(true, Ordering::Relaxed);
        }
    }

    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }

    pub fn clear(&self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}
