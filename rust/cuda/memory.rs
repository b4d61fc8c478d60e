//! Where the pools of a device take their memory: the driver's allocators.

use super::driver::{OUT_OF_MEMORY, Status};
use super::primary::Primary;
use super::stream::Stream;
use crate::context::{Context, DeviceType};
use crate::error::{Error, Result};
use crate::storage::Source;
use std::ffi::c_uint;
use std::sync::Arc;

/// `CU_MEMHOSTALLOC_PORTABLE`: page-locked for every context.
const PORTABLE: c_uint = 1;

/// Memory of the device. What is given back may still be used by work on the compute stream, so
/// it is handed out with a ticket of that.
pub struct DeviceMemory {
    pub id: i32,
    pub primary: Arc<Primary>,
    pub compute: Arc<Stream>,
    pub copies: Arc<Stream>,
}

/// Page-locked memory of the host.
pub struct PinnedMemory {
    pub id: i32,
    pub primary: Arc<Primary>,
    pub copies: Arc<Stream>,
}

impl Primary {
    /// An address from an allocator of the driver; null if it has no memory left.
    fn allocate(&self, what: &str, ask: impl FnOnce(&mut usize) -> Status) -> Result<*mut u8> {
        self.enter()?;
        let mut address = 0;
        let status = ask(&mut address);
        if status == OUT_OF_MEMORY {
            return Ok(std::ptr::null_mut());
        }
        self.driver.check(what, status)?;
        if address == 0 {
            return Err(Error::internal(format!("{what} returned no address")));
        }
        Ok(address as *mut u8)
    }
}

impl Source for DeviceMemory {
    fn context(&self) -> Context {
        Context::gpu(self.id)
    }

    fn allocate(&self, bytes: usize) -> Result<*mut u8> {
        let place = |at: &mut usize| (at as *mut usize).cast::<u64>();
        // SAFETY: a place for the answer, in a context; addresses have 64 bits.
        let made = self.primary.allocate("cuMemAlloc", |at| unsafe {
            (self.primary.driver.mem_alloc)(place(at), bytes)
        });
        made.map_err(|e| self.copies.explain(e))
    }

    fn ticket(&self) -> u64 {
        self.compute.next()
    }

    fn before_free(&self) {
        if self.primary.enter().is_ok() {
            // SAFETY: in a context. After a fault it fails, and nothing uses memory any more.
            let _ = unsafe { (self.primary.driver.ctx_synchronize)() };
        }
    }

    unsafe fn free(&self, ptr: *mut u8, _: usize) {
        if self.primary.enter().is_ok() {
            // SAFETY: the pool promises that it came from `allocate` and is not used any more.
            unsafe { (self.primary.driver.mem_free)(ptr as u64) };
        }
    }
}

impl Source for PinnedMemory {
    fn context(&self) -> Context {
        Context { device_type: DeviceType::CpuPinned, device_id: self.id }
    }

    fn allocate(&self, bytes: usize) -> Result<*mut u8> {
        let place = |at: &mut usize| (at as *mut usize).cast();
        // SAFETY: a place for the answer, in a context.
        let made = self.primary.allocate("cuMemHostAlloc", |at| unsafe {
            (self.primary.driver.mem_host_alloc)(place(at), bytes, PORTABLE)
        });
        made.map_err(|e| self.copies.explain(e))
    }

    unsafe fn free(&self, ptr: *mut u8, _: usize) {
        if self.primary.enter().is_ok() {
            // SAFETY: as above.
            unsafe { (self.primary.driver.mem_free_host)(ptr.cast()) };
        }
    }
}
