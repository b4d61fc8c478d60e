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

impl Parker {
    pub fn current() -> Arc<Self> {
        Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) })
    }
}

impl IdleWorkers {
    pub fn new() -> Self {
        IdleWorkers { count: AtomicU32::new(0), asleep: Lock::default() }
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
