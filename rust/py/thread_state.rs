//! The state of a thread that its calls depend on: recording, training, default context.

use super::runtime;
use crate::context::Context;
use std::cell::Cell;

/// State of a thread that its calls depend on. Threads start with the default.
#[derive(Clone, Copy, Default, Debug)]
pub struct ThreadState {
    pub recording: bool,
    pub training: bool,
    pub ctx: Context,
}

thread_local! {
    static STATE: Cell<ThreadState> = const {
        Cell::new(ThreadState { recording: false, training: false, ctx: Context::cpu(0) })
    };
}

/// The state of this thread.
#[inline]
pub fn thread_state() -> ThreadState {
    STATE.get()
}

/// Changes the state of this thread.
pub fn set(state: ThreadState) {
    STATE.set(state);
}

/// The state in which the engine runs functions: not recording, training as pushed, default
/// context, no bulk. Dropping it restores the thread's state.
pub struct FreshState {
    before: ThreadState,
    bulk_size: usize,
}

impl FreshState {
    pub fn enter(training: bool) -> Self {
        // A bulk is pushed before any function runs here, so none is lost.
        let bulk_size = runtime().engine.set_bulk_size(0).unwrap_or_default();
        let before = STATE.replace(ThreadState { training, ..ThreadState::default() });
        FreshState { before, bulk_size }
    }
}

impl Drop for FreshState {
    fn drop(&mut self) {
        STATE.set(self.before);
        // Fails only without memory for tasks.
        let _ = runtime().engine.set_bulk_size(self.bulk_size);
    }
}
