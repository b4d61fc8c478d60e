//! Waiting for an array, and access to its bytes from the calling thread.

use super::NDArray;
use super::access_latch::AccessLatch;
use super::device::HostCopy;
use crate::engine::{Poll, Push, RunOn, Task};
use crate::error::{Error, Result};
use crate::tensor::View;
use std::sync::atomic::Ordering;

impl NDArray {
    /// Returns true if the engine orders this array, so that a wait may block.
    pub fn needs_wait(&self) -> bool {
        self.chunk.latch.is_closing()
    }

    /// Completed writes that went through the engine.
    pub fn version(&self) -> u64 {
        self.chunk.known_var().map_or(0, |var| self.base().engine.version(var))
    }

    /// Names the contents for an operation that reads the array: equal stamps of arrays of one
    /// shape and dtype mean equal contents. `None` if these may change without a trace.
    pub fn stamp(&self) -> Option<[u64; 4]> {
        if !self.context().is_host() || !self.notes_writes() {
            return None;
        }
        let var = self.chunk.known_var()?;
        let version = self.base().engine.version(var);
        let own = self.chunk.own_writes.load(Ordering::Acquire);
        Some([var.id(), version, own, self.offset as u64])
    }

    /// Waits for earlier writes and raises their error if no wait has raised it yet.
    pub fn wait_to_read(&self, poll: Poll<'_>) -> Result<()> {
        if let Some(var) = self.chunk.known_var() {
            self.base().engine.wait_to_read(var, poll)?;
        }
        self.wait_for_device(poll)
    }

    /// Waits for earlier reads and writes and raises their unreported error.
    pub fn wait_to_write(&self, poll: Poll<'_>) -> Result<()> {
        if let Some(var) = self.chunk.known_var() {
            self.base().engine.wait_for_var(var, poll)?;
        }
        self.wait_for_device_uses(poll)
    }

    /// An error if the bytes were never computed, whether or not that error was raised before.
    /// Meaningful after [`NDArray::wait_to_read`].
    pub fn readable(&self) -> Result<()> {
        match self.chunk.known_var().and_then(|var| self.base().engine.poisoned(var)) {
            Some(error) => Err(error),
            None => self.device()?.and_then(|device| device.fault()).map_or(Ok(()), Err),
        }
    }

    /// The error that a wait would raise now; it counts as raised from here on.
    pub fn take_error(&self) -> Option<Error> {
        self.base().engine.take_error(self.chunk.known_var()?)
    }

    /// Waits until the bytes are computed and calls `f` with them; an error if they never were.
    /// Of an array on a device, `f` sees a copy.
    pub fn read<R>(&self, poll: Poll<'_>, f: impl FnOnce(&View) -> R) -> Result<R> {
        if let Some(copy) = self.copied_to_host(poll)? {
            return Ok(f(copy.view()));
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

    /// Overwrites the array with what `f` writes: once nothing uses it, or, on a device, by an
    /// operation that copies it there.
    pub fn overwrite(&self, poll: Poll<'_>, f: impl FnOnce(&View) -> Result<()>) -> Result<()> {
        self.writable()?;
        if let Some(device) = self.device()? {
            return self.send(self.filled(device, f)?);
        }
        let view = self.view()?;
        if self.chunk.latch.try_write() {
            let _leave = Leave(&self.chunk.latch, Access::Write);
            return f(&view);
        }
        self.wait_to_write(poll)?;
        let written = f(&view);
        self.chunk.own_writes.fetch_add(1, Ordering::Release);
        written?;
        if self.is_whole() && self.readable().is_err() {
            // The bytes are good now: an empty operation that overwrites the variable says so.
            let writes = [self.var()];
            let push = Push {
                overwrites: 1,
                run_on: RunOn::Pusher,
                ..Push::new("overwrite", &[], &writes)
            };
            self.base().engine.push(Task::nothing(), push)?;
        }
        Ok(())
    }
}

impl NDArray {
    /// Pushes a copy of `elements` to the array, which is on a device.
    fn send(&self, elements: HostCopy) -> Result<()> {
        let (writes, overwrites) = ([self.var()], usize::from(self.is_whole()));
        let ctx = self.context();
        let push = Push { overwrites, ctx, ..Push::new("_copyto", &[], &writes) };
        let to = self.clone();
        let task = Task::asynchronous(move |_, done| {
            let keep = to.clone();
            let then = move |result: Result<()>| {
                drop(keep);
                done.complete(result);
            };
            to.start_sending(elements, Box::new(then));
        });
        self.base().engine.push(task, push)
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
