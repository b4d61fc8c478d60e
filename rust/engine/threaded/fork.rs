//! Forks: the child starts a new epoch.
//!
//! All locks are taken in one order, so that the fork happens while no thread changes anything;
//! parent and child release them after it. In the child, whose only thread is the one that forked,
//! the first use recovers: variables whose writers were complete keep their state, the others are
//! poisoned, and all tasks and threads are discarded.

use crate::engine::data::parking::Parker;
use crate::engine::data::run_queue::RunQueueLocks;
use crate::engine::data::waiters::Waiters;
use crate::engine::error_state;
use crate::engine::fork::ForkLocks;
use crate::engine::hook::Hook;
use crate::engine::slow_path;
use crate::engine::sync::Guard;
use crate::engine::threaded::core::{Core, PushState};
use crate::engine::threaded::pool::PoolLocks;
use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// All locks of a threaded engine, in the order in which they are taken.
pub struct Locks<'a> {
    core: &'a Core,
    hook: Guard<'a, Option<Arc<dyn Hook>>>,
    _wait_timeout: Guard<'a, Option<Duration>>,
    _slots_and_errors: (Guard<'a, Vec<u32>>, Guard<'a, error_state::Table>),
    _watch: Guard<'a, Waiters>,
    _sleep: Guard<'a, Vec<Arc<Parker>>>,
    _queues: RunQueueLocks<'a>,
    _threads: PoolLocks<'a>,
    _push: Guard<'a, PushState>,
}

impl<'a> Locks<'a> {
    pub fn take(core: &'a Core) -> Self {
        let push = core.push.0.lock();
        Locks {
            core,
            _push: push,
            _threads: core.threads.lock_for_fork(),
            _queues: core.queues.lock_for_fork(),
            _sleep: core.sleep.lock_for_fork(),
            _watch: core.watch.lock_for_fork(),
            _slots_and_errors: (core.returned.0.lock(), core.errors.lock_for_fork()),
            hook: core.hook.lock(),
            _wait_timeout: core.wait_timeout.lock(),
        }
    }
}

impl ForkLocks for Locks<'_> {
    fn release_in_child(mut self: Box<Self>) {
        self.core.epoch.fetch_add(1, Ordering::SeqCst);
        std::mem::forget(self.hook.take());
        self.core.slow_path.fetch_and(!slow_path::HOOK, Ordering::Relaxed);
    }
}

fn pending_at_fork() -> Error {
    let text = "pending at fork: the operation that was to compute this ran in the parent process";
    Error::execution(text).inherited()
}

impl Core {
    /// The push lock, with the state recovered after a fork.
    #[inline]
    pub fn lock(&self) -> Guard<'_, PushState> {
        let mut state = self.push.0.lock();
        if state.epoch != self.epoch.load(Ordering::Relaxed) {
            recover(self, &mut state);
        }
        state
    }
}

/// Recovers the state of a forked child, under the push lock.
#[cold]
fn recover(core: &Core, state: &mut PushState) {
    state.epoch = core.epoch.load(Ordering::Relaxed);
    let mut lost = Vec::new();
    state.vars.forget_tasks(|t| core.slab.has_ended(t), |v, writer| lost.push((writer, v)));
    // In push order: `wait_for_all` raises the first.
    lost.sort_unstable_by_key(|(writer, _)| (core.age(state, writer.slot()), writer.slot()));
    for of_one in lost.chunk_by(|a, b| a.0 == b.0) {
        let failure = core.record_failure(of_one[0].0.slot(), pending_at_fork(), None);
        // Leaked: dropping old errors could re-enter the engine, whose lock is held.
        std::mem::forget(core.errors.spread(&failure, of_one.iter().map(|l| l.1)));
    }
    state.slots.reset(&core.slab);
    core.inline_slot.0.reset();
    core.returned.0.lock().clear();
    core.queues.clear();
    core.sleep.clear();
    core.watch.reset();
    core.helping_waiters.0.store(0, Ordering::Relaxed);
    core.threads.forget();
    core.is_running.store(false, Ordering::Relaxed);
    // Nothing is pending here, whatever the parent had started.
    for count in &core.completed {
        count.0.store(0, Ordering::Relaxed);
    }
    core.completed_off_worker.0.store(state.pushed, Ordering::Relaxed);
    // Last: from here on, tokens of the parent's tasks are checked without the lock.
    core.recovered.store(state.epoch, Ordering::Release);
}
