//! Errors of functions that cannot return one.

use crate::error::{Error, Result};
use std::sync::OnceLock;

/// The first error of functions that list something and return no errors; it is raised when the
/// operator runs, by [`OpDef::deferred_error`](super::OpDef::deferred_error).
#[derive(Default)]
pub struct DeferredError(OnceLock<Error>);

impl DeferredError {
    /// `answer`, or nothing, with its error kept for the run.
    pub fn defer<T: Default>(&self, answer: Result<T>) -> T {
        answer.unwrap_or_else(|error| {
            let _ = self.0.set(error);
            T::default()
        })
    }

    /// Raises the error that was kept, if any.
    pub fn check(&self) -> Result<()> {
        self.0.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}
