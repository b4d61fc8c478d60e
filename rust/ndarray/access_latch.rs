//! Keeps inline operations on a chunk apart until its engine variable takes over; see the head of
//! `ndarray.rs`.
//!
//! One word: the number of readers inside, whether a writer is inside, and whether the latch is
//! closed for good. Entering acquires, leaving releases, and closing acquires once the latch is
//! empty, so the effects of inline operations are visible to whatever the engine orders afterwards.

use crate::fork_join::pause;
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

const CLOSED: u32 = 1 << 31;
const WRITING: u32 = 1 << 30;

/// The latch of one chunk.
#[derive(Default)]
pub struct AccessLatch(AtomicU32);

impl AccessLatch {
    /// Enters as a reader, unless a writer is inside or the latch is closed.
    pub fn try_read(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen & (CLOSED | WRITING) == 0 {
            match self.0.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Enters as the writer, if the latch is open and empty.
    pub fn try_write(&self) -> bool {
        self.0.compare_exchange(0, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The end of a successful [`AccessLatch::try_read`].
    pub fn leave_read(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// The end of a successful [`AccessLatch::try_write`].
    pub fn leave_write(&self) {
        self.0.fetch_and(!WRITING, Ordering::Release);
    }

    /// Closed and empty.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }

    /// Closed, but perhaps not empty: effects of operations inside may not be visible yet.
    pub fn is_closing(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Closes the latch for good and waits until it is empty. Must not be called from inside it.
    pub fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::Relaxed); // `is_closed` acquires
        let mut turns = 0u32;
        while !self.is_closed() {
            turns += 1;
            pause(turns, 64);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    //! Guards contract 10: pushers, which close latches, against inline readers and writers.

    use super::AccessLatch;
    use crate::context::Context;
    use crate::dtype::DType;
    use crate::engine::ThreadedEngine;
    use crate::ndarray::{Attempt, Base, NDArray, run_exclusive};
    use crate::shape::Shape;
    use loom::cell::UnsafeCell;
    use loom::thread;
    use std::sync::Arc;

    /// Plain memory guarded by a latch.
    #[derive(Default)]
    struct Guarded {
        latch: AccessLatch,
        bytes: UnsafeCell<u32>,
    }

    // SAFETY: loom reports unordered access.
    unsafe impl Sync for Guarded {}
    // SAFETY: as above.
    unsafe impl Send for Guarded {}

    impl Guarded {
        fn read(&self) -> u32 {
            // SAFETY: loom ends the model if another thread writes now.
            self.bytes.with(|p| unsafe { *p })
        }

        fn bump(&self) {
            // SAFETY: loom ends the model if another thread has access now.
            self.bytes.with_mut(|p| unsafe { *p += 1 });
        }
    }

    #[test]
    fn loom_inline_work_is_over_when_a_latch_is_closed() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.check(|| {
            let shared = Arc::new(Guarded::default());
            let reader = thread::spawn({
                let shared = shared.clone();
                move || {
                    if shared.latch.try_read() {
                        shared.read();
                        shared.latch.leave_read();
                    }
                }
            });
            let writer = thread::spawn({
                let shared = shared.clone();
                move || {
                    let entered = shared.latch.try_write();
                    if entered {
                        shared.bump();
                        shared.latch.leave_write();
                    }
                    u32::from(entered)
                }
            });
            // The pusher: closes, and from here on the engine orders.
            shared.latch.close();
            shared.bump();
            assert!(!shared.latch.try_read() && !shared.latch.try_write());
            reader.join().unwrap();
            let written = writer.join().unwrap();
            assert_eq!(shared.read(), 1 + written);
        });
    }

    fn array(base: &Arc<Base>) -> NDArray {
        NDArray::empty(base, &Shape::new(&[1]), DType::F32, Context::default()).unwrap()
    }

    /// An inline operation on an open array and on one that the engine orders, while a pusher needs
    /// the variable of the open one: the operation runs alone, and neither waits for ever.
    #[test]
    fn loom_a_pusher_meets_an_inline_operation_on_two_arrays() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.check(|| {
            let base = Arc::new(Base::new(Arc::new(ThreadedEngine::with_threads(1))));
            let (open, ruled) = (array(&base), array(&base));
            ruled.var();
            let shared = Arc::new(Guarded::default());
            let pusher = thread::spawn({
                let (base, open, shared) = (base.clone(), open.clone(), shared.clone());
                move || {
                    let writes = [open.var()];
                    assert!(base.engine.try_run_exclusive(&[], &writes, &mut || shared.bump()));
                }
            });
            let ran = run_exclusive(&[&ruled], &[&open], true, &mut || shared.bump());
            pusher.join().unwrap();
            assert_eq!(shared.read(), 1 + u32::from(ran == Attempt::Ran));
        });
    }
}
