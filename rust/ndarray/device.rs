//! Arrays on CUDA devices: host copies of what lies there, for whoever can only read the host.

use super::NDArray;
use crate::cuda::{Device, Operand, Staged};
use crate::error::Result;
use std::sync::Arc;

impl NDArray {
    /// The device that the array is on; `None` for the host.
    pub fn device(&self) -> Result<Option<&Arc<Device>>> {
        let ctx = self.context();
        if ctx.is_host() { Ok(None) } else { self.base().cuda.device(ctx.device_id).map(Some) }
    }

    /// A copy of the array on the host, if it is on a device; does not wait. `reads` copies the
    /// elements there, `writes` lets them be written back.
    pub fn staged(&self, reads: bool, writes: bool) -> Result<Staged> {
        let (view, device) = (self.view()?, self.device()?);
        Staged::new(&[Operand { view: &view, device, reads, writes }])
    }

    /// Sets all elements to zero, now: for memory that nothing is pending on.
    pub fn zero_now(&self) -> Result<()> {
        // SAFETY: the array is a part of its chunk; the caller promises the rest.
        unsafe { self.chunk.zero(self.address()?, self.size_bytes()) }
    }
}
