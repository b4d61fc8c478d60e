//! The fault of a device: what is never healed, and is the error of every wait.

use crate::error::{Error, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The fault of a device, once there was one. Its streams share it.
#[derive(Default)]
pub struct Fault {
    error: OnceLock<Error>,
    /// Has a wait raised it?
    raised: AtomicBool,
}

impl Fault {
    /// The fault as an error; it counts as raised from here on.
    pub fn check(&self) -> Result<()> {
        match self.error.get() {
            None => Ok(()),
            Some(error) => {
                self.raised.store(true, Ordering::Relaxed);
                Err(error.clone())
            }
        }
    }

    /// The fault, unless a wait has raised it.
    pub fn check_unraised(&self) -> Result<()> {
        if self.raised.load(Ordering::Relaxed) { Ok(()) } else { self.check() }
    }

    pub fn is_set(&self) -> bool {
        self.error.get().is_some()
    }

    /// Notes a fault, unless there was one.
    pub fn set(&self, error: Error) {
        let _ = self.error.set(error);
    }
}
