//! Work that is recorded once and issued again as a whole: the driver's graphs.
//!
//! A recording is made on a stream of its own, where nothing runs, so that what other threads issue
//! on the compute stream meanwhile is not a part of it.

use super::device::Device;
use super::driver::Driver;
use super::library::{Handle, Shared};
use super::primary::Primary;
use crate::error::Result;
use std::ffi::c_int;
use std::sync::Arc;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: other work of the process is not restricted meanwhile.
const RELAXED: c_int = 2;

/// Recorded work, which has the addresses that it was recorded with.
pub struct Recording {
    exec: Shared,
    primary: Arc<Primary>,
}

/// A stream that records for the time of a function.
struct Recorder<'a> {
    driver: &'a Driver,
    stream: Handle,
}

impl Recorder<'_> {
    /// What was recorded as the driver's graph, null if the driver could not record it.
    fn end(&self) -> Handle {
        let mut graph = std::ptr::null_mut();
        // SAFETY: a place for the answer, and a stream that records.
        let status =
            self.driver.stream_end_capture.map(|end| unsafe { end(self.stream, &mut graph) });
        if status == Some(0) { graph } else { std::ptr::null_mut() }
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `record`, and used no more.
        unsafe { (self.driver.stream_destroy)(self.stream) };
    }
}

impl Device {
    /// Records what `work` issues on the stream that it is given. `None` if that cannot be
    /// recorded, for whatever reason: issuing it on the compute stream says what is wrong, if
    /// anything is.
    pub fn record(
        &self,
        work: impl FnOnce(&Driver, Handle) -> Result<()>,
    ) -> Result<Option<Recording>> {
        let primary = self.primary();
        primary.enter()?;
        let driver = &primary.driver;
        let (Some(begin), Some(instantiate), Some(destroy)) =
            (driver.stream_begin_capture, driver.graph_instantiate, driver.graph_destroy)
        else {
            return Ok(None);
        };
        let mut stream = std::ptr::null_mut();
        // SAFETY: a place for the answer, in a context.
        if unsafe { (driver.stream_create)(&mut stream, NON_BLOCKING) } != 0 {
            return Ok(None);
        }
        let recorder = Recorder { driver, stream };
        // SAFETY: the stream is ours.
        if unsafe { begin(stream, RELAXED) } != 0 {
            return Ok(None);
        }
        let done = work(driver, stream);
        let graph = recorder.end();
        if graph.is_null() {
            return Ok(None);
        }
        let mut exec = std::ptr::null_mut();
        // SAFETY: a place for the answer, and a graph that is used no more after it.
        let made = unsafe {
            let made = if done.is_ok() { instantiate(&mut exec, graph, 0) } else { 1 };
            destroy(graph);
            made
        };
        let exec = Shared(exec);
        Ok((made == 0).then(|| Recording { exec, primary: primary.clone() }))
    }

    /// Issues recorded work on the compute stream.
    pub fn replay(&self, recording: &Recording) -> Result<()> {
        self.issue(|driver, stream| match driver.graph_launch {
            Some(launch) => {
                // SAFETY: the recording is one of this device.
                let status = unsafe { launch(recording.exec.0, stream) };
                driver.check("cuGraphLaunch", status)
            }
            None => Ok(()), // there is no recording then
        })
    }

    /// Drops a recording once the device has done what it was last issued for.
    pub fn forget(&self, recording: Recording) {
        self.when_done(Box::new(move |_| drop(recording)));
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Some(destroy) = self.primary.driver.graph_exec_destroy else { return };
        if self.primary.enter().is_ok() {
            // SAFETY: made by `record`, and the device has done its work.
            unsafe { destroy(self.exec.0) };
        }
    }
}
