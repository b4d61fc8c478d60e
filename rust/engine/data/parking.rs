//! How idle workers park and are woken.
//!
//! A worker registers in `asleep`, fences, and checks the queues once more before it parks. A
//! producer publishes its task, fences, and then checks `asleep`. So either the worker sees the
//! task or the producer sees the worker: no worker sleeps while a task is queued. The count can be
//! read without the lock, which is all that a push pays while no worker sleeps.

use crate::engine::sync::thread::{self, Thread};
use crate::engine::sync::{AtomicBool, AtomicU32, Guard, Lock, fence};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The handle by which one worker parks and is woken.
pub struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

/// The idle workers of one engine.
pub struct IdleWorkers {
    /// Idle workers that spin before they park. A heuristic, so not a loom atomic.
    spinning: std::sync::atomic::AtomicUsize,
    count: AtomicU32,
    asleep: Lock<Vec<Arc<Parker>>>,
}

/// Orders the publication of a task before the check for sleepers. The callers have just done an
/// atomic read-modify-write (released a lock, or closed a task), which is a full fence on x86.
#[inline]
pub fn publish() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    fence(Ordering::SeqCst);
}

/// See [`IdleWorkers::start_spinning`].
pub struct Spinning<'a>(&'a std::sync::atomic::AtomicUsize);

impl Drop for Spinning<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Parker {
    pub fn current() -> Arc<Self> {
        Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) })
    }
}

impl IdleWorkers {
    pub fn new() -> Self {
        IdleWorkers {
            spinning: Default::default(),
            count: AtomicU32::new(0),
            asleep: Lock::default(),
        }
    }

    /// Returns a permit to spin, or `None` if as many workers as there are cores hold one.
    pub fn start_spinning(&self, cores: usize) -> Option<Spinning<'_>> {
        let spinning = Spinning(&self.spinning);
        (self.spinning.fetch_add(1, Ordering::Relaxed) < cores).then_some(spinning)
    }

    #[inline]
    pub fn has_sleepers(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Wakes one worker, if any sleeps.
    #[cold]
    pub fn wake_one(&self) {
        let parker = {
            let mut asleep = self.asleep.lock();
            let parker = asleep.pop();
            self.count.store(asleep.len() as u32, Ordering::SeqCst);
            parker
        };
        if let Some(parker) = parker {
            parker.woken.store(true, Ordering::Release);
            parker.thread.unpark();
        }
    }

    #[cold]
    pub fn wake_all(&self) {
        while self.has_sleepers() {
            self.wake_one();
        }
    }

    pub fn lock_for_fork(&self) -> Guard<'_, Vec<Arc<Parker>>> {
        self.asleep.lock()
    }

    /// Discards the sleepers, in a forked child.
    pub fn clear(&self) {
        self.asleep.lock().clear();
        self.spinning.store(0, Ordering::Relaxed);
        self.count.store(0, Ordering::SeqCst);
    }

    /// Parks the calling worker until it is woken, unless `has_work` returns true.
    pub fn park(&self, me: &Arc<Parker>, has_work: impl Fn() -> bool) {
        me.woken.store(false, Ordering::Relaxed);
        {
            let mut asleep = self.asleep.lock();
            asleep.push(me.clone());
            self.count.store(asleep.len() as u32, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        if has_work() {
            let mut asleep = self.asleep.lock();
            asleep.retain(|p| !Arc::ptr_eq(p, me));
            self.count.store(asleep.len() as u32, Ordering::SeqCst);
            return;
        }
        while !me.woken.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_worker_per_core_spins() {
        let sleep = IdleWorkers::new();
        let first = sleep.start_spinning(2);
        assert!(first.is_some() && sleep.start_spinning(2).is_some());
        let second = sleep.start_spinning(2);
        assert!(second.is_some() && sleep.start_spinning(2).is_none());
        drop(first);
        assert!(sleep.start_spinning(2).is_some());
    }
}
