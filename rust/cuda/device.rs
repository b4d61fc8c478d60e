//! One device: its primary context, a stream, memory, and copies.
//!
//! Every method waits until the device has done what it asks for, so an operation of the engine is
//! complete when its function returns, as on the host. The wait is for an event of the caller's
//! own, so operations of several threads do not wait for one another's work.

use super::driver::{Address, Driver, Handle};
use super::memory::{DeviceMemory, PinnedMemory};
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::{Held, Lock};
use crate::profiler::Recorder;
use crate::storage::Pool;
use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// `CU_STREAM_NON_BLOCKING`: the stream is not ordered with the legacy default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: a wait parks its thread.
const PARKING_EVENT: c_uint = 1 | 2;

/// A handle that any thread may use: the driver's functions are thread-safe.
#[derive(Clone, Copy)]
struct Shared(Handle);

// SAFETY: see above.
unsafe impl Send for Shared {}
// SAFETY: see above.
unsafe impl Sync for Shared {}

/// A device's primary context, which every library of the process shares.
pub struct Primary {
    pub driver: Arc<Driver>,
    /// The driver's number of the device.
    number: c_int,
    context: Shared,
    /// Set in a forked child, which must not use the parent's contexts.
    forked: Arc<AtomicBool>,
}

impl Primary {
    fn new(driver: &Arc<Driver>, id: i32, forked: &Arc<AtomicBool>) -> Result<Self> {
        let (mut number, mut context) = (0, std::ptr::null_mut());
        // SAFETY: places for the answers; the driver checks `id`.
        unsafe {
            driver.check("cuDeviceGet", (driver.device_get)(&mut number, id))?;
            let retained = (driver.primary_ctx_retain)(&mut context, number);
            driver.check("cuDevicePrimaryCtxRetain", retained)?;
        }
        let (driver, forked) = (driver.clone(), forked.clone());
        Ok(Primary { driver, number, context: Shared(context), forked })
    }

    /// Makes the context that of the calling thread.
    pub fn enter(&self) -> Result<()> {
        if self.forked.load(Ordering::Relaxed) {
            return Err(forked());
        }
        // SAFETY: the context is retained as long as `self`.
        let status = unsafe { (self.driver.ctx_set_current)(self.context.0) };
        self.driver.check("cuCtxSetCurrent", status)
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

/// A CUDA device that is in use.
pub struct Device {
    id: i32,
    name: String,
    stream: Shared,
    /// Events that no wait uses at the moment.
    events: Lock<Vec<Shared>>,
    memory: Pool,
    pinned: Pool,
    primary: Arc<Primary>,
}

impl Device {
    pub(super) fn new(
        driver: &Arc<Driver>,
        id: i32,
        forked: &Arc<AtomicBool>,
        profiler: &Arc<Recorder>,
    ) -> Result<Self> {
        let primary = Arc::new(Primary::new(driver, id, forked)?);
        primary.enter()?;
        let (mut text, mut stream) = ([0 as c_char; 128], std::ptr::null_mut());
        // SAFETY: places for the answers, with the length of the text.
        unsafe {
            let named = (driver.device_get_name)(text.as_mut_ptr(), 127, primary.number);
            driver.check("cuDeviceGetName", named)?;
            driver.check("cuStreamCreate", (driver.stream_create)(&mut stream, NON_BLOCKING))?;
        }
        let name = text.iter().take_while(|&&c| c != 0).map(|&c| c as u8 as char).collect();
        let memory = DeviceMemory { id, primary: primary.clone() };
        let pinned = PinnedMemory { id, primary: primary.clone() };
        Ok(Device {
            id,
            name,
            stream: Shared(stream),
            events: Lock::default(),
            memory: Pool::over(Box::new(memory), profiler),
            pinned: Pool::over(Box::new(pinned), profiler),
            primary,
        })
    }

    /// The device as a context.
    pub fn context(&self) -> Context {
        Context::gpu(self.id)
    }

    /// The name that its maker gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stream on which operations of the engine run.
    pub fn stream(&self) -> usize {
        self.stream.0 as usize
    }

    /// The pool of the device's memory.
    pub fn memory(&self) -> &Pool {
        &self.memory
    }

    /// The pool of page-locked host memory, for copies from and to the device.
    pub fn pinned(&self) -> &Pool {
        &self.pinned
    }

    pub(super) fn hold(&self) -> [Held<'_>; 3] {
        [self.memory.hold(), self.pinned.hold(), self.events.hold()]
    }

    /// Free and total bytes of the device.
    pub fn memory_info(&self) -> Result<(usize, usize)> {
        self.primary.enter()?;
        let (mut free, mut total) = (0, 0);
        let driver = &self.primary.driver;
        // SAFETY: places for the answers, in a context.
        let status = unsafe { (driver.mem_get_info)(&mut free, &mut total) };
        driver.check("cuMemGetInfo", status)?;
        Ok((free, total))
    }

    /// Issues work on the stream and waits until the device has done it. What was issued before an
    /// error is waited for, too: it may still use memory of the caller.
    pub fn run(&self, issue: impl FnOnce(&Driver, Handle) -> Result<()>) -> Result<()> {
        self.primary.enter().map_err(|e| self.place(e))?;
        let issued = issue(&self.primary.driver, self.stream.0);
        let done = self.wait();
        issued.and(done).map_err(|e| self.place(e))
    }

    /// Waits for everything that was issued on the stream so far.
    fn wait(&self) -> Result<()> {
        let driver = &self.primary.driver;
        let kept = self.events.lock().pop();
        let event = match kept {
            Some(event) => event,
            None => {
                let mut event = std::ptr::null_mut();
                // SAFETY: a place for the answer, in a context.
                let status = unsafe { (driver.event_create)(&mut event, PARKING_EVENT) };
                driver.check("cuEventCreate", status)?;
                Shared(event)
            }
        };
        // SAFETY: event and stream belong to the context, and no other thread has the event.
        let done = unsafe {
            let recorded = (driver.event_record)(event.0, self.stream.0);
            driver.check("cuEventRecord", recorded).and_then(|()| {
                driver.check("cuEventSynchronize", (driver.event_synchronize)(event.0))
            })
        };
        self.events.lock().push(event);
        done
    }

    fn place(&self, error: Error) -> Error {
        Error::new(error.kind(), format!("{}: {}", self.context(), error.message()))
    }

    /// Copies host memory to the device.
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes, `to` is device memory of that many, and nothing
    /// else uses them meanwhile.
    pub unsafe fn write(&self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: promised by the caller; `run` waits for the copy.
        self.run(|driver, stream| unsafe {
            let status = (driver.memcpy_htod_async)(to as Address, from.cast(), bytes, stream);
            driver.check("cuMemcpyHtoDAsync", status)
        })
    }

    /// Copies device memory to the host.
    ///
    /// # Safety
    /// `from` is device memory of `bytes` bytes, `to` is valid for writes of that many, and nothing
    /// else uses them meanwhile.
    pub unsafe fn read(&self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: as above.
        self.run(|driver, stream| unsafe {
            let status = (driver.memcpy_dtoh_async)(to.cast(), from as Address, bytes, stream);
            driver.check("cuMemcpyDtoHAsync", status)
        })
    }

    /// Copies within the device.
    ///
    /// # Safety
    /// Both are device memory of `bytes` bytes that do not overlap, and nothing else uses them
    /// meanwhile.
    pub unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: as above.
        self.run(|driver, stream| unsafe {
            let status = (driver.memcpy_dtod_async)(to as Address, from as Address, bytes, stream);
            driver.check("cuMemcpyDtoDAsync", status)
        })
    }

    /// Sets device memory to zeros.
    ///
    /// # Safety
    /// `to` is device memory of `bytes` bytes that nothing else uses meanwhile.
    pub unsafe fn zero(&self, to: *mut u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        self.run(|driver, stream| unsafe {
            let status = (driver.memset_d8_async)(to as Address, 0, bytes, stream);
            driver.check("cuMemsetD8Async", status)
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.primary.enter().is_err() {
            return;
        }
        let driver = &self.primary.driver;
        // SAFETY: created in this context, and nothing uses them any more.
        unsafe {
            for event in self.events.get_mut().drain(..) {
                (driver.event_destroy)(event.0);
            }
            (driver.stream_destroy)(self.stream.0);
        }
    }
}
