//! Keeps inline operations on a chunk apart until its engine variable takes over; see the head of
//! `ndarray.rs`.
//!
//! One word: how many readers are inside, whether a writer is, and whether the latch is closed for good.
//! Who enters acquires, who leaves releases, and who closes acquires once nobody is inside: so what the
//! inline operations did is visible to whatever the engine orders afterwards.

use crate::fork_join::pause;
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

const CLOSED: u32 = 1 << 31;
const WRITING: u32 = 1 << 30;

#[derive(Default)]
pub struct Latch(AtomicU32);

impl Latch {
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

    pub fn try_write(&self) -> bool {
        self.0.compare_exchange(0, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub fn leave_read(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    pub fn leave_write(&self) {
        self.0.fetch_and(!WRITING, Ordering::Release);
    }

    /// Nobody is inside and nobody will enter.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }

    /// Nobody will enter; somebody may still be inside, so what they did may not be seen.
    pub fn is_closing(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Lets nobody enter any more and waits until all have left. Not for those inside.
    pub fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::Relaxed); // the look below acquires
        let mut turns = 0u32;
        while !self.is_closed() {
            turns += 1;
            pause(turns, 64);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    //! Guards contract 10: pushers, who close latches, against inline readers and writers.

    use super::Latch;
    use crate::context::Context;
    use crate::dtype::DType;
    use crate::engine::ThreadedEngine;
    use crate::ndarray::{Base, NDArray, with_quiet};
    use crate::shape::Shape;
    use loom::cell::UnsafeCell;
    use loom::thread;
    use std::sync::Arc;

    /// Plain memory behind a latch.
    #[derive(Default)]
    struct Guarded {
        latch: Latch,
        bytes: UnsafeCell<u32>,
    }

    // SAFETY: access that is not ordered is what loom reports.
    unsafe impl Sync for Guarded {}
    // SAFETY: as above.
    unsafe impl Send for Guarded {}

    impl Guarded {
        fn read(&self) -> u32 {
            // SAFETY: loom ends the model if anybody writes now.
            self.bytes.with(|p| unsafe { *p })
        }

        fn bump(&self) {
            // SAFETY: loom ends the model if anybody else has access now.
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

    /// An inline operation on an open array and on one that the engine rules, while a pusher needs the variable
    /// of the open one: the operation runs alone, and neither waits for the other for ever.
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
            let ran = with_quiet(&[&ruled], &[&open], true, &mut || shared.bump());
            pusher.join().unwrap();
            assert_eq!(shared.read(), 1 + u32::from(ran));
        });
    }
}
