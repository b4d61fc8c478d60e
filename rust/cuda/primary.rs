//! A device's primary context.

use super::driver::Driver;
use super::library::Shared;
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device's primary context, which every library of the process shares.
pub struct Primary {
    pub driver: Arc<Driver>,
    /// The driver's number of the device.
    pub number: c_int,
    pub handle: Shared,
    context: Context,
    /// Set in a forked child, which must not use the parent's contexts.
    forked: Arc<AtomicBool>,
}

impl Primary {
    pub fn new(driver: &Arc<Driver>, id: i32, forked: &Arc<AtomicBool>) -> Result<Self> {
        let (mut number, mut handle) = (0, std::ptr::null_mut());
        // SAFETY: places for the answers; the driver checks `id`.
        unsafe {
            driver.check("cuDeviceGet", (driver.device_get)(&mut number, id))?;
            let retained = (driver.primary_ctx_retain)(&mut handle, number);
            driver.check("cuDevicePrimaryCtxRetain", retained)?;
        }
        let (driver, forked) = (driver.clone(), forked.clone());
        let (handle, context) = (Shared(handle), Context::gpu(id));
        Ok(Primary { driver, number, handle, context, forked })
    }

    /// Makes the context that of the calling thread.
    pub fn enter(&self) -> Result<()> {
        if self.forked.load(Ordering::Relaxed) {
            return Err(forked());
        }
        // SAFETY: the context is retained as long as `self`.
        let status = unsafe { (self.driver.ctx_set_current)(self.handle.0) };
        self.driver.check("cuCtxSetCurrent", status)
    }

    /// The error with the device's name, unless it begins with that.
    pub fn place(&self, error: Error) -> Error {
        let name = format!("{}: ", self.context);
        match error.message().starts_with(&name) {
            true => error,
            false => Error::new(error.kind(), name + error.message()),
        }
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        if !self.forked.load(Ordering::Relaxed) {
            // SAFETY: retained once by `new`.
            unsafe { (self.driver.primary_ctx_release)(self.number) };
        }
    }
}

/// The error of any use of a device in a child of the process that opened it.
#[cold]
pub fn forked() -> Error {
    Error::new(
        ErrorKind::Execution,
        "CUDA cannot be used in a forked child of a process that has used it: start the child with \
         the method 'spawn', or use gpu contexts in children only",
    )
}
