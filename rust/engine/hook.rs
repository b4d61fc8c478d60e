//! Notifications about operations, for profilers.

use crate::context::Context;
use crate::engine::slow_path;
use crate::engine::sync::Lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A step in the life of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The operation was pushed.
    Queued,
    /// Its function is about to run.
    Started,
    /// It is complete: its function has ended, or it was skipped.
    Finished,
}

/// One notification. `id` is the same in all notifications of an operation and unique among
/// operations that are not complete.
#[derive(Clone, Copy, Debug)]
pub struct HookEvent<'a> {
    /// The kind of event.
    pub event: Event,
    /// The operation's number.
    pub id: u64,
    /// The name that the operation was pushed with.
    pub name: &'a str,
    /// The device that it was pushed for.
    pub ctx: Context,
}

/// Receives notifications on the thread where they happen. Must be short and must not call the
/// engine: `Queued` is sent from inside a push. A skipped operation is queued and finished, but
/// never started.
pub trait Hook: Send + Sync {
    /// Receives one notification.
    fn event(&self, event: HookEvent<'_>);
}

impl<F: Fn(HookEvent<'_>) + Send + Sync> Hook for F {
    fn event(&self, event: HookEvent<'_>) {
        self(event);
    }
}

/// The hook of an engine.
pub type HookSlot = Lock<Option<Arc<dyn Hook>>>;

/// Installs an engine's hook, and sets or clears the flag that makes operations look for it.
pub fn install(slot: &HookSlot, flags: &AtomicU32, hook: Option<Arc<dyn Hook>>) {
    let before = {
        let mut slot = slot.lock();
        match hook.is_some() {
            true => flags.fetch_or(slow_path::HOOK, Ordering::Relaxed),
            false => flags.fetch_and(!slow_path::HOOK, Ordering::Relaxed),
        };
        std::mem::replace(&mut *slot, hook)
    };
    drop(before); // outside the lock: dropping the hook may re-enter the engine
}
