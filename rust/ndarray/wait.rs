//! Waiting for an array, and access to its bytes from the calling thread.

use super::NDArray;
use super::access_latch::AccessLatch;
use crate::engine::{Poll, Push, Task};
use crate::error::{Error, Result};
use crate::tensor::View;

impl NDArray {
    /// Returns true if the engine orders this array, so that a wait may block.
    pub fn needs_wait(&self) -> bool {
        self.chunk.latch.is_closing()
    }

    /// Completed writes that went through the engine.
    pub fn version(&self) -> u64 {
        self.chunk.known_var().map_or(0, |var| self.base().engine.version(var))
    }

    /// Waits for earlier writes and raises their error if no wait has raised it yet.
    pub fn wait_to_read(&self, poll: Poll<'_>) -> Result<()> {
        match self.chunk.known_var() {
            Some(var) => self.base().engine.wait_to_read(var, poll),
            None => Ok(()),
        }
    }

    /// Waits for earlier reads and writes and raises their unreported error.
    pub fn wait_to_write(&self, poll: Poll<'_>) -> Result<()> {
        match self.chunk.known_var() {
            Some(var) => self.base().engine.wait_for_var(var, poll),
            None => Ok(()),
        }
    }

    /// An error if the bytes were never computed, whether or not that error was raised before.
    /// Meaningful after [`NDArray::wait_to_read`].
    pub fn readable(&self) -> Result<()> {
        match self.chunk.known_var().and_then(|var| self.base().engine.poisoned(var)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The error that a wait would raise now; it counts as raised from here on.
    pub fn take_error(&self) -> Option<Error> {
        self.base().engine.take_error(self.chunk.known_var()?)
    }

    /// Waits until the bytes are computed and calls `f` with them; an error if they never were.
    /// Of an array on a device, `f` sees a copy.
    pub fn read<R>(&self, poll: Poll<'_>, f: impl FnOnce(&View) -> R) -> Result<R> {
        if !self.context().is_host() {
            self.wait_to_read(poll)?;
            self.readable()?;
            return Ok(f(&self.staged(true, false)?.views()[0]));
        }
        let view = self.view()?;
        if self.chunk.latch.try_read() {
            let leave = Leave(&self.chunk.latch, Access::Read);
            let result = f(&view);
            drop(leave);
            return Ok(result);
        }
        self.wait_to_read(poll)?;
        self.readable()?;
        Ok(f(&view))
    }

    /// Waits until nothing uses the array and overwrites it with `f`.
    pub fn overwrite(&self, poll: Poll<'_>, f: impl FnOnce(&View) -> Result<()>) -> Result<()> {
        self.writable()?;
        let on_device = !self.context().is_host();
        if on_device {
            self.var();
        }
        let view = self.view()?;
        if self.chunk.latch.try_write() {
            let _leave = Leave(&self.chunk.latch, Access::Write);
            return f(&view);
        }
        self.wait_to_write(poll)?;
        if on_device {
            let staged = self.staged(false, true)?;
            f(&staged.views()[0]).and_then(|()| staged.write_back())?;
        } else {
            f(&view)?;
        }
        if self.is_whole() && self.readable().is_err() {
            // The bytes are good now: an empty operation that overwrites the variable says so.
            let writes = [self.var()];
            let push = Push { overwrites: 1, cheap: true, ..Push::new("overwrite", &[], &writes) };
            self.base().engine.push(Task::nothing(), push)?;
        }
        Ok(())
    }
}

/// The mode in which a latch was entered.
enum Access {
    Read,
    Write,
}

/// Leaves a latch when dropped.
struct Leave<'a>(&'a AccessLatch, Access);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        match self.1 {
            Access::Read => self.0.leave_read(),
            Access::Write => self.0.leave_write(),
        }
    }
}
