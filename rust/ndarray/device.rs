//! Arrays on CUDA devices: which work of the device uses their memory, and copies from and to the
//! host.
//!
//! An operation that computes on a device is complete when it has issued its work, so the engine's
//! order says that work was issued, not that it was done. Who copies to or from the memory, or
//! waits for it, needs to know which tickets of the compute stream cover its uses:
//!
//! * memory that no operation has seen yet may still be used by work for its former owner: the pool
//!   keeps the ticket that covered that when the memory was given back;
//! * from the first moment at which a caller takes the address, any work may use the memory, so a
//!   copy *to* it comes after everything that was issued;
//! * every operation that has issued work notes its ticket on what it writes, so a copy *from* the
//!   memory, or a wait, comes after that.

use super::NDArray;
use crate::cuda::{Device, Ticket, Transfer, Way};
use crate::engine::Poll;
use crate::error::Result;
use crate::storage::Block;
use crate::tensor::View;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Set when a caller has taken the address of the memory.
const EXPOSED: u64 = 1 << 63;

/// Which work on the compute stream of its device uses a chunk's memory.
#[derive(Default)]
pub struct Uses(AtomicU64);

impl Uses {
    /// The memory was taken from the pool, with this ticket.
    pub fn begin(&self, ticket: Ticket) {
        // What is noted already covers the former owner: work is issued in one order.
        let _ = self.0.compare_exchange(0, ticket, Ordering::AcqRel, Ordering::Relaxed);
    }

    #[inline]
    pub fn expose(&self) {
        if self.0.load(Ordering::Relaxed) & EXPOSED == 0 {
            self.0.fetch_or(EXPOSED, Ordering::AcqRel);
        }
    }

    /// An operation that is about to complete has issued work up to `ticket` that writes it.
    pub fn note_write(&self, ticket: Ticket) {
        self.0.fetch_max(ticket | EXPOSED, Ordering::AcqRel);
    }

    /// Covers all work that writes the memory and was issued by operations that are complete.
    fn writes(&self) -> Ticket {
        self.0.load(Ordering::Acquire) & !EXPOSED
    }

    /// Covers all work that uses the memory and was issued; `next` covers everything.
    fn all(&self, next: Ticket) -> Ticket {
        let known = self.0.load(Ordering::Acquire);
        if known & EXPOSED == 0 { known } else { next }
    }
}

/// The largest copy to a device that goes through the compute stream, which then needs no thread to
/// wait for it: longer ones run beside the work there.
const MOST_SENT_BYTES: usize = 64 << 10;

/// Elements of an array on the host, in page-locked memory.
pub struct HostCopy {
    block: Block,
    view: View,
}

impl HostCopy {
    fn new(array: &NDArray, device: &Device) -> Result<HostCopy> {
        let block = device.pinned().alloc(array.size_bytes())?;
        // SAFETY: the block has these bytes, and lives as long as the view.
        let view = unsafe { View::new(block.ptr(), array.shape.clone(), array.dtype) };
        Ok(HostCopy { block, view })
    }

    pub fn view(&self) -> &View {
        &self.view
    }
}

impl NDArray {
    /// The device that the array is on; `None` for the host.
    pub fn device(&self) -> Result<Option<&Arc<Device>>> {
        let ctx = self.context();
        if ctx.is_host() { Ok(None) } else { self.base().cuda.device(ctx.device_id).map(Some) }
    }

    /// Address and stream of an array on a device, once its writes are issued: what follows on the
    /// stream comes after them.
    pub fn issued(&self, poll: Poll<'_>) -> Result<Option<(usize, usize)>> {
        let Some(device) = self.device()? else { return Ok(None) };
        if let Some(var) = self.known_var() {
            self.base().engine.wait_to_read(var, poll)?;
        }
        self.readable()?;
        Ok(Some((self.address()? as usize, device.stream())))
    }

    /// Lets what is issued from now on on `stream`, one of another library, wait for what writes
    /// the array, and for what reads it if the library is going to `write`.
    pub fn lead(&self, device: &Device, stream: usize, write: bool, poll: Poll<'_>) -> Result<()> {
        let engine = &self.base().engine;
        match self.known_var() {
            Some(var) if write => engine.wait_for_var(var, poll)?,
            Some(var) => engine.wait_to_read(var, poll)?,
            None => {}
        }
        let uses = &self.chunk.uses;
        device.lead(stream, if write { uses.all(device.next()) } else { uses.writes() })
    }

    /// The elements of an array on a device, once they are computed; an error if they never were.
    /// `None` for an array on the host.
    pub fn copied_to_host(&self, poll: Poll<'_>) -> Result<Option<HostCopy>> {
        let Some(device) = self.device()? else { return Ok(None) };
        self.wait_to_read(poll)?;
        self.readable()?;
        self.host_copy(device).map(Some)
    }

    /// Sets all elements to zero, now: for memory that nothing is pending on.
    pub fn zero_now(&self) -> Result<()> {
        // SAFETY: the array is a part of its chunk; the caller promises the rest.
        unsafe { self.chunk.zero(self.address()?, self.size_bytes()) }
    }

    /// Notes that an operation that is about to complete wrote the array on its device, by work up
    /// to `ticket`.
    pub fn note_write(&self, ticket: Ticket) {
        self.chunk.uses.note_write(ticket);
    }

    /// Waits until the device has done the writes of operations that are complete.
    pub(super) fn wait_for_device(&self, poll: Poll<'_>) -> Result<()> {
        match self.device()? {
            None => Ok(()),
            Some(device) => device.wait(self.chunk.uses.writes(), poll),
        }
    }

    /// Waits until the device has done everything that was issued up to now.
    pub(super) fn wait_for_device_uses(&self, poll: Poll<'_>) -> Result<()> {
        match self.device()? {
            None => Ok(()),
            Some(device) => device.wait(self.chunk.uses.all(device.next()), poll),
        }
    }

    /// The elements of an array on `device`, whose writers are complete.
    fn host_copy(&self, device: &Device) -> Result<HostCopy> {
        let copy = HostCopy::new(self, device)?;
        let (to, from) = (copy.block.ptr(), self.address_for_copy()?.cast_const());
        let transfer = Transfer { to, from, bytes: self.size_bytes(), way: Way::Out };
        // SAFETY: both have these bytes; the copy comes after the writes, and the caller orders
        // further ones.
        unsafe { device.run(&transfer, self.chunk.uses.writes())? };
        Ok(copy)
    }

    /// Copies between arrays of one dtype and size of which one at least is on a device, and calls
    /// `then` when what is to come is ordered after it.
    pub fn start_copy(&self, to: &NDArray, then: Box<dyn FnOnce(Result<()>) + Send>) {
        match self.transfer(to) {
            // SAFETY: the arrays have these bytes; the operation that this is part of orders access
            // to them, and ends in `then`, which keeps them.
            Ok(Some((device, transfer, after))) => unsafe { device.start(&transfer, after, then) },
            Ok(None) => then(self.copy_within(to)),
            Err(error) => then(Err(error)),
        }
    }

    /// As [`NDArray::start_copy`], and waits.
    pub fn copy_now(&self, to: &NDArray) -> Result<()> {
        match self.transfer(to)? {
            // The arrays may be parts of memory that earlier nodes of the same operation use.
            // SAFETY: as above.
            Some((device, transfer, _)) => unsafe { device.run(&transfer, device.next()) },
            None => self.copy_within(to),
        }
    }

    /// The copy to `to`, the device that makes it, and what of its work it comes after. `None` for
    /// a copy within one device.
    fn transfer<'a>(
        &'a self,
        to: &'a NDArray,
    ) -> Result<Option<(&'a Device, Transfer<'a>, Ticket)>> {
        let (source, target) = (self.address_for_copy()?, to.address_for_copy()?);
        let (device, way, after) = match (self.device()?, to.device()?) {
            (Some(device), None) => (device, Way::Out, self.chunk.uses.writes()),
            (None, Some(device)) => (device, Way::In, to.chunk.uses.all(device.next())),
            (Some(a), Some(b)) if !Arc::ptr_eq(a, b) => {
                (b, Way::From(a), to.chunk.uses.all(b.next()))
            }
            _ => return Ok(None),
        };
        let bytes = to.size_bytes();
        Ok(Some((device, Transfer { to: target, from: source, bytes, way }, after)))
    }

    /// Copies to an array of the same device.
    fn copy_within(&self, to: &NDArray) -> Result<()> {
        let Some(device) = to.device()? else { return Ok(()) };
        // SAFETY: both have these bytes and do not overlap; other work on them is on the same
        // stream, or done.
        unsafe { device.copy(to.address()?, self.address()?, to.size_bytes())? };
        to.note_write(device.mark(None)?);
        Ok(())
    }

    /// Elements for the array, on the host: written by `f` and sent by [`NDArray::start_sending`].
    pub(super) fn filled(
        &self,
        device: &Device,
        f: impl FnOnce(&View) -> Result<()>,
    ) -> Result<HostCopy> {
        let copy = HostCopy::new(self, device)?;
        f(&copy.view)?;
        Ok(copy)
    }

    /// Copies elements to the array on its device, and calls `then` as [`NDArray::start_copy`].
    pub(super) fn start_sending(&self, copy: HostCopy, then: Box<dyn FnOnce(Result<()>) + Send>) {
        let (device, to) = match (self.device(), self.address_for_copy()) {
            (Ok(Some(device)), Ok(to)) => (device, to),
            (Err(e), _) | (_, Err(e)) => return then(Err(e)),
            _ => return then(Ok(())),
        };
        let bytes = self.size_bytes();
        if bytes <= MOST_SENT_BYTES {
            // SAFETY: both have these bytes, and the engine orders access to the array.
            let sent = unsafe { device.send(to, copy.block, bytes) };
            return then(sent.map(|ticket| self.note_write(ticket)));
        }
        let from = copy.block.ptr().cast_const();
        let after = self.chunk.uses.all(device.next());
        let keep = move |result| {
            drop(copy);
            then(result);
        };
        let transfer = Transfer { to, from, bytes, way: Way::In };
        // SAFETY: as above; `keep` keeps the elements.
        unsafe { device.start(&transfer, after, Box::new(keep)) };
    }
}
