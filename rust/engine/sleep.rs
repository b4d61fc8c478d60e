//! How idle workers park and are woken.
//!
//! A worker announces itself in `asleep`, fences, and looks at the queues once more before it parks. Who
//! makes work available fences and then looks at `asleep`. So either the worker sees the work or the other
//! sees the worker: nobody sleeps beside a task. The count can be read without the lock, which is all
//! that a push pays while nobody sleeps.

use super::sync::thread::{self, Thread};
use super::sync::{AtomicBool, AtomicU32, Guard, Lock, fence};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One worker's place to park.
pub struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

/// The parked workers of one pool.
pub struct Sleep {
    count: AtomicU32,
    asleep: Lock<Vec<Arc<Parker>>>,
}

/// Orders what the caller made available before its look at the sleepers. The callers have just done an
/// atomic read-modify-write (they released a lock, or closed a task), which on x86 is the fence.
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

impl Sleep {
    pub fn new() -> Self {
        Sleep { count: AtomicU32::new(0), asleep: Lock::default() }
    }

    #[inline]
    pub fn anybody(&self) -> bool {
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
        while self.anybody() {
            self.wake_one();
        }
    }

    pub fn hold(&self) -> Guard<'_, Vec<Arc<Parker>>> {
        self.asleep.lock()
    }

    /// Forgets the sleepers.
    pub fn clear(&self) {
        self.asleep.lock().clear();
        self.count.store(0, Ordering::SeqCst);
    }

    /// Parks the calling worker until it is woken, unless `must_stay` says that there is something to do.
    pub fn park(&self, me: &Arc<Parker>, must_stay: impl Fn() -> bool) {
        me.woken.store(false, Ordering::Relaxed);
        {
            let mut asleep = self.asleep.lock();
            asleep.push(me.clone());
            self.count.store(asleep.len() as u32, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        if must_stay() {
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
