//! How idle workers park and are woken.
//!
//! A worker announces itself in `asleep`, fences, and looks at the queues once more before it parks. Who
//! makes work available fences and then looks at `asleep`. So either the worker sees the work or the other
//! sees the worker: nobody sleeps beside a task. The count can be read without the lock, which is all
//! that a push pays while nobody sleeps.

use crate::engine::sync::thread::{self, Thread};
use crate::engine::sync::{AtomicBool, AtomicU32, Guard, Lock, fence};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One worker's place to park.
pub struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

/// The parked workers of one pool.
pub struct Sleep {
    /// Idle workers that spin before they park. (A matter of manners, which no model needs to know.)
    spinning: std::sync::atomic::AtomicUsize,
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

/// See [`Sleep::may_spin`].
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

impl Sleep {
    pub fn new() -> Self {
        Sleep { spinning: Default::default(), count: AtomicU32::new(0), asleep: Lock::default() }
    }

    /// The right to spin, for as long as it is kept; none if as many have it as there are cores.
    pub fn may_spin(&self, cores: usize) -> Option<Spinning<'_>> {
        let spinning = Spinning(&self.spinning);
        (self.spinning.fetch_add(1, Ordering::Relaxed) < cores).then_some(spinning)
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
        self.spinning.store(0, Ordering::Relaxed);
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn as_many_spin_as_there_are_cores() {
        let sleep = Sleep::new();
        let first = sleep.may_spin(2);
        assert!(first.is_some() && sleep.may_spin(2).is_some());
        let second = sleep.may_spin(2);
        assert!(second.is_some() && sleep.may_spin(2).is_none());
        drop(first);
        assert!(sleep.may_spin(2).is_some());
    }
}
