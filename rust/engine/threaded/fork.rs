//! fork: the child starts a new epoch.
//!
//! [`HeldForFork`] takes every lock of the engine in one order, so that the fork happens while nobody changes
//! anything; parent and child release them after it. In the child, whose only thread is the one that
//! forked, the first use recovers: variables whose writers were done keep their state, the others are
//! poisoned, all tasks and threads are forgotten.

use crate::engine::data::parking::Parker;
use crate::engine::data::run_queue as queue;
use crate::engine::error_state as fault;
use crate::engine::hook::Hook;
use crate::engine::naive::engine as naive;
use crate::engine::sync::Guard;
use crate::engine::threaded::core::{Core, PushState, rare};
use crate::engine::threaded::{pool, wait};
use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// All locks of an engine, held from before a fork until after it.
pub struct HeldForFork<'a>(Held<'a>);

enum Held<'a> {
    Nothing,
    Threaded(&'a Core, Locks<'a>),
    Naive(naive::Held<'a>),
}

struct Locks<'a> {
    hook: (Guard<'a, Option<Arc<dyn Hook>>>, Guard<'a, Option<Duration>>),
    _rest: (Guard<'a, Vec<u32>>, Guard<'a, fault::Table>),
    _watch: Guard<'a, wait::Waiters>,
    _sleep: Guard<'a, Vec<Arc<Parker>>>,
    _queues: queue::Held<'a>,
    _threads: pool::Held<'a>,
    _push: Guard<'a, PushState>,
}

impl<'a> HeldForFork<'a> {
    pub(in crate::engine) fn nothing() -> Self {
        HeldForFork(Held::Nothing)
    }

    pub(in crate::engine) fn of_naive(held: naive::Held<'a>) -> Self {
        HeldForFork(Held::Naive(held))
    }

    pub(in crate::engine) fn hold(core: &'a Core) -> Self {
        let push = core.push.0.lock();
        let locks = Locks {
            _push: push,
            _threads: core.threads.hold(),
            _queues: core.queues.hold(),
            _sleep: core.sleep.hold(),
            _watch: core.watch.hold(),
            _rest: (core.returned.0.lock(), core.faults.hold()),
            hook: (core.hook.lock(), core.wait_timeout.lock()),
        };
        HeldForFork(Held::Threaded(core, locks))
    }

    /// In the child: the engine starts a new epoch, and recovers when it is next used. The hook is the parent's:
    /// threads of the parent may hold whatever it guards itself with.
    pub fn release_in_child(self) {
        match self.0 {
            Held::Nothing => {}
            Held::Threaded(core, mut locks) => {
                core.epoch.fetch_add(1, Ordering::SeqCst);
                std::mem::forget(locks.hook.0.take());
                core.rare.fetch_and(!rare::HOOK, Ordering::Relaxed);
                drop(locks);
            }
            Held::Naive(held) => held.release_in_child(),
        }
    }
}

fn pending_at_fork() -> Error {
    let text = "pending at fork: the operation that was to compute this ran in the parent process";
    Error::execution(text)
}

/// Brings the state of a forked child up to date, under the push lock.
#[cold]
pub fn recover(core: &Core, state: &mut PushState) {
    state.epoch = core.epoch.load(Ordering::Relaxed);
    let mut lost = Vec::new();
    state.vars.forget_tasks(|t| core.slab.is_over(t), |v, writer| lost.push((writer, v)));
    // In the order of pushes, for the first is what a wait for everything raises.
    lost.sort_unstable_by_key(|(writer, _)| (core.age(state, writer.slot()), writer.slot()));
    for of_one in lost.chunk_by(|a, b| a.0 == b.0) {
        let inherited = core.failure(of_one[0].0.slot(), pending_at_fork(), None);
        // Their end could call the engine, whose lock is held: in a forked child they may as well stay.
        std::mem::forget(core.faults.spread(&inherited, of_one.iter().map(|l| l.1)));
    }
    state.alloc.reset(core);
    core.returned.0.lock().clear();
    core.queues.clear();
    core.sleep.clear();
    core.watch.reset();
    core.threads.forget();
    core.is_running.store(false, Ordering::Relaxed);
    // Nothing is pending here, whatever the parent had begun.
    for lane in &core.completed {
        lane.0.store(0, Ordering::Relaxed);
    }
    core.completed_elsewhere.0.store(state.pushed, Ordering::Relaxed);
    // Last: tokens of the parent's tasks are looked at without the lock from here on.
    core.recovered.store(state.epoch, Ordering::Release);
}
