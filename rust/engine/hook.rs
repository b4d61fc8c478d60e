//! The profiler's look at operations.

use crate::context::Context;
use crate::engine::data::task_slab::TaskRef;
use crate::engine::sync::Lock;
use crate::engine::threaded::core::{Core, context_of, name_of, rare};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A step in the life of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was pushed.
    Queued,
    /// Its function is about to run.
    Started,
    /// It is done, by its function or because it was skipped.
    Finished,
}

/// What a hook is told of an operation. `id` is the same in all its events and unlike that of any other
/// operation that is not complete.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// What happened.
    pub event: Event,
    /// Whose step it is.
    pub id: u64,
    /// The name that the operation was pushed with.
    pub name: &'a str,
    /// The device that it was pushed for.
    pub ctx: Context,
}

/// Called on the thread where the event happens; short, and without calling the engine (`Queued` comes from
/// within a push). An operation that is skipped is queued and finished but never started.
pub trait Hook: Send + Sync {
    /// Is told of one step.
    fn event(&self, step: Step<'_>);
}

impl<F: Fn(Step<'_>) + Send + Sync> Hook for F {
    fn event(&self, step: Step<'_>) {
        self(step);
    }
}

/// Puts an engine's hook in its place, and the bit that makes pushes look for it.
pub fn set(place: &Lock<Option<Arc<dyn Hook>>>, rare: &AtomicU32, hook: Option<Arc<dyn Hook>>) {
    let before = {
        let mut place = place.lock();
        match hook.is_some() {
            true => rare.fetch_or(rare::HOOK, Ordering::Relaxed),
            false => rare.fetch_and(!rare::HOOK, Ordering::Relaxed),
        };
        std::mem::replace(&mut *place, hook)
    };
    drop(before); // outside of the lock: what goes may call the engine
}

impl Core {
    #[cold]
    pub fn hook_queued(&self, task: TaskRef) {
        self.hook(task, Event::Queued);
    }

    #[cold]
    pub fn hook(&self, task: TaskRef, event: Event) {
        let Some(hook) = self.hook.lock().clone() else { return };
        // SAFETY: the task is not complete, so its body stands.
        let body = unsafe { &*self.slab.get(task.slot()).body() };
        hook.event(Step { event, id: task.0, name: name_of(body), ctx: context_of(body) });
    }
}
