//! What an operation runs, and the token by which an asynchronous one ends.

use super::RunContext;
use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Reports the end of an asynchronous operation: once, from any thread. Dropped unused it reports a
/// failure, so that a forgotten token cannot hang the program.
pub struct OnComplete(Option<Box<dyn FnOnce(Result<()>) + Send>>);

impl OnComplete {
    pub(in crate::engine) fn new(f: impl FnOnce(Result<()>) + Send + 'static) -> Self {
        OnComplete(Some(Box::new(f)))
    }

    /// Ends the operation, with or without an error.
    pub fn complete(mut self, result: Result<()>) {
        if let Some(f) = self.0.take() {
            f(result);
        }
    }
}

impl Drop for OnComplete {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f(Err(Error::execution("the operation was dropped without being completed")));
        }
    }
}

type SyncFn = Box<dyn FnOnce(&RunContext) -> Result<()> + Send>;
type AsyncFn = Box<dyn FnOnce(&RunContext, OnComplete) + Send>;

/// The function of an operation.
pub struct Task(pub(in crate::engine) Kind);

pub(in crate::engine) enum Kind {
    Nothing,
    Sync(SyncFn),
    Async(AsyncFn),
}

impl Task {
    /// No function: only orders.
    pub fn nothing() -> Self {
        Task(Kind::Nothing)
    }

    /// Done when the function returns.
    pub fn sync(f: impl FnOnce(&RunContext) -> Result<()> + Send + 'static) -> Self {
        Task(Kind::Sync(Box::new(f)))
    }

    /// Done when the token is completed.
    pub fn asynchronous(f: impl FnOnce(&RunContext, OnComplete) + Send + 'static) -> Self {
        Task(Kind::Async(Box::new(f)))
    }
}

/// Runs `f`, a panic becoming an error.
pub(in crate::engine) fn guarded<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(Error::from_panic(panic)))
}
