//! One device: its two streams, memory, and copies.
//!
//! Kernels, and whatever else computes, are issued on the *compute* stream, and an operation of the
//! engine that did only that is complete when it has issued its work: what follows on the same
//! stream runs after it. Copies between the device and the host are issued on the *copies* stream
//! and complete when they are done. Before such a copy begins, its stream follows the compute
//! stream up to the ticket that covers every use of the device's bytes there. `README.md` says why
//! this suffices.

use super::blas::Blas;
use super::driver::{Address, Driver};
use super::fault::Fault;
use super::library::Handle;
use super::memory::{DeviceMemory, PinnedMemory};
use super::primary::Primary;
use super::stream::{From, Poll, Stream, Then, Ticket};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::lock::Held;
use crate::profiler::Recorder;
use crate::storage::{Block, Pool};
use std::any::Any;
use std::ffi::c_char;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// A copy between a device and the host, or from another device to it.
pub struct Transfer<'a> {
    pub to: *mut u8,
    pub from: *const u8,
    pub bytes: usize,
    pub way: Way<'a>,
}

/// Where a [`Transfer`] leads.
#[derive(Clone, Copy)]
pub enum Way<'a> {
    /// From the host to the device.
    In,
    /// From the device to the host.
    Out,
    /// From another device.
    From(&'a Device),
}

/// A CUDA device that is in use.
pub struct Device {
    /// cuBLAS, or none, once a kernel that multiplies was prepared.
    blas: OnceLock<Option<Blas>>,
    /// Room for products that are recorded: all recordings run one after another.
    workspace: OnceLock<Block>,
    id: i32,
    name: String,
    compute: Arc<Stream>,
    copies: Arc<Stream>,
    fault: Arc<Fault>,
    memory: Pool,
    pinned: Pool,
    /// Operations wait until the device has done them.
    synchronous: bool,
    primary: Arc<Primary>,
}

impl Device {
    pub(super) fn new(
        driver: &Arc<Driver>,
        id: i32,
        forked: &Arc<AtomicBool>,
        profiler: &Arc<Recorder>,
        synchronous: bool,
    ) -> Result<Self> {
        let primary = Arc::new(Primary::new(driver, id, forked)?);
        primary.enter()?;
        let mut text = [0 as c_char; 128];
        // SAFETY: a place for the answer, with its length.
        let named = unsafe { (driver.device_get_name)(text.as_mut_ptr(), 127, primary.number) };
        driver.check("cuDeviceGetName", named)?;
        let fault = Arc::default();
        let compute = Stream::new(&primary, &fault, None)?;
        let copies = Stream::new(&primary, &fault, Some(compute.clone()))?;
        let memory = DeviceMemory {
            id,
            primary: primary.clone(),
            compute: compute.clone(),
            copies: copies.clone(),
        };
        let pinned = PinnedMemory { id, primary: primary.clone(), copies: copies.clone() };
        Ok(Device {
            blas: OnceLock::new(),
            workspace: OnceLock::new(),
            id,
            name: text
                .iter()
                .take_while(|&&c| c != 0)
                .map(|c| c.to_ne_bytes()[0] as char)
                .collect(),
            compute,
            copies,
            fault,
            memory: Pool::over(Box::new(memory), profiler),
            pinned: Pool::over(Box::new(pinned), profiler),
            synchronous,
            primary,
        })
    }

    pub(super) fn primary(&self) -> &Arc<Primary> {
        &self.primary
    }

    /// The device as a context.
    pub fn context(&self) -> Context {
        Context::gpu(self.id)
    }

    /// The name that its maker gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stream on which operations of the engine compute.
    pub fn stream(&self) -> usize {
        self.compute.handle() as usize
    }

    /// The pool of the device's memory.
    pub fn memory(&self) -> &Pool {
        &self.memory
    }

    /// The pool of page-locked host memory, for copies from and to the device.
    pub fn pinned(&self) -> &Pool {
        &self.pinned
    }

    pub(super) fn hold(&self) -> impl Iterator<Item = Held<'_>> {
        let own = [self.compute.hold(), self.copies.hold(), self.memory.hold(), self.pinned.hold()];
        own.into_iter().chain(self.blas().map(Blas::hold))
    }

    /// Opens cuBLAS unless that was tried before; `find` says where it is installed. Of two threads
    /// that do so at once, one opens it for nothing.
    pub fn prepare_blas(&self, find: impl FnOnce() -> Result<Option<String>>) -> Result<()> {
        if self.blas.get().is_some() {
            return Ok(());
        }
        let found = find()?;
        let opened = self
            .primary
            .enter()
            .and_then(|()| Blas::open(&self.primary, self.compute.handle(), found.as_deref()));
        let opened = opened.map_err(|e| self.failed(e))?;
        self.blas.get_or_init(|| opened);
        Ok(())
    }

    /// cuBLAS, if there is one and a kernel that multiplies was prepared.
    #[inline]
    pub fn blas(&self) -> Option<&Blas> {
        self.blas.get().and_then(Option::as_ref)
    }

    /// Room for products that are recorded, which must not depend on what the library allocates:
    /// address and bytes.
    pub fn workspace(&self) -> Result<(u64, usize)> {
        const BYTES: usize = 32 << 20;
        let block = match self.workspace.get() {
            Some(block) => block,
            None => {
                let made = self.memory.alloc(BYTES)?;
                self.workspace.get_or_init(|| made)
            }
        };
        Ok((block.ptr() as u64, BYTES))
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

    /// Issues work on the compute stream. The operation that it is part of ends with
    /// [`Device::mark`].
    pub fn issue(&self, work: impl FnOnce(&Driver, Handle) -> Result<()>) -> Result<()> {
        let entered = self.primary.enter();
        entered
            .and_then(|()| work(&self.primary.driver, self.compute.handle()))
            .map_err(|e| self.failed(e))
    }

    /// Ends a part of an operation that issued work, or all of it: the ticket covers everything
    /// that was issued so far. `from` says what it was, for the error of a fault.
    pub fn mark(&self, from: From) -> Result<Ticket> {
        self.mark_keeping(from, None)
    }

    fn mark_keeping(&self, from: From, keep: Option<Block>) -> Result<Ticket> {
        let marked = self.primary.enter().and_then(|()| self.compute.mark(from, keep));
        let ticket = marked.map_err(|e| self.failed(e))?;
        if self.synchronous {
            self.compute.wait(ticket, &mut || Ok(()))?;
        }
        Ok(ticket)
    }

    /// A ticket that covers what was issued for computing up to now, once its mark is made.
    pub fn next(&self) -> Ticket {
        self.compute.next()
    }

    /// Waits until the device has computed what `ticket` covers; its fault if there was one.
    pub fn wait(&self, ticket: Ticket, poll: Poll<'_>) -> Result<()> {
        self.compute.wait(ticket, poll)
    }

    /// Calls `then` when everything is done that was issued for computing up to now.
    pub fn when_done(&self, then: Then) {
        match self.primary.enter().and_then(|()| self.compute.fence()) {
            Ok(ticket) => self.compute.when(ticket, then),
            Err(error) => then(Err(self.failed(error))),
        }
    }

    /// Lets what is issued for computing from now on wait for the work on a stream of another
    /// library, in the same context.
    pub fn follow(&self, stream: usize) -> Result<()> {
        let entered = self.primary.enter();
        let followed = entered.and_then(|()| self.compute.follow_foreign(stream as Handle));
        followed.map_err(|e| self.failed(e))
    }

    /// Lets what is issued from now on on a stream of another library wait for what `ticket`
    /// covers.
    pub fn lead(&self, stream: usize, ticket: Ticket) -> Result<()> {
        let entered = self.primary.enter();
        let led = entered.and_then(|()| self.compute.lead_next(stream as Handle, ticket));
        led.map_err(|e| self.failed(e))
    }

    /// Waits for all work that was issued; the fault of the device unless a wait has raised it.
    pub fn wait_for_all(&self, poll: Poll<'_>) -> Result<()> {
        if self.fault.is_set() {
            return self.fault.check_unraised();
        }
        self.compute.wait(self.compute.next(), poll)?;
        self.copies.wait(self.copies.next(), poll)
    }

    /// The device's fault, if there was one. Nothing on it can be read any more.
    pub fn fault(&self) -> Option<Error> {
        self.fault.check().err()
    }

    #[cold]
    fn failed(&self, error: Error) -> Error {
        self.copies.explain(error)
    }

    /// Issues a copy after what `after` covers of the work on this device; the ticket is one of
    /// the copies' stream.
    ///
    /// # Safety
    /// Source and target are valid for these bytes, on their sides, until the ticket is reached,
    /// and nothing else uses them meanwhile but work that the copy follows.
    unsafe fn transfer(&self, transfer: &Transfer<'_>, after: Ticket) -> Result<Ticket> {
        self.primary.enter()?;
        self.copies.follow_next(&self.compute, after)?;
        let Transfer { to, from, bytes, way } = *transfer;
        let (driver, stream) = (&self.primary.driver, self.copies.handle());
        // SAFETY: promised by the caller.
        let (name, status) = unsafe {
            match way {
                _ if bytes == 0 => ("", 0),
                Way::In => (
                    "cuMemcpyHtoDAsync",
                    (driver.memcpy_htod_async)(to as Address, from.cast(), bytes, stream),
                ),
                Way::Out => (
                    "cuMemcpyDtoHAsync",
                    (driver.memcpy_dtoh_async)(to.cast(), from as Address, bytes, stream),
                ),
                Way::From(peer) => {
                    self.copies.follow_next(&peer.compute, peer.next())?;
                    let (own, other) = (self.primary.handle.0, peer.primary.handle.0);
                    let (to, from) = (to as Address, from as Address);
                    let copy = driver.memcpy_peer_async;
                    ("cuMemcpyPeerAsync", copy(to, own, from, other, bytes, stream))
                }
            }
        };
        driver.check(name, status)?;
        self.copies.mark(None, None)
    }

    /// Starts a copy and calls `then` when it is done.
    ///
    /// # Safety
    /// Source and target are valid for these bytes, on their sides, until `then` is called, and
    /// nothing else uses them meanwhile but work on this device that `after` covers, and work of
    /// the device that the copy is from.
    pub unsafe fn start(&self, transfer: &Transfer<'_>, after: Ticket, then: Then) {
        // SAFETY: promised by the caller.
        match unsafe { self.transfer(transfer, after) } {
            Ok(ticket) => self.copies.when(ticket, then),
            Err(error) => then(Err(self.failed(error))),
        }
    }

    /// Copies, after what `after` covers, and waits until it is done.
    ///
    /// # Safety
    /// Source and target are valid for these bytes, on their sides, and nothing else uses them
    /// meanwhile but what the copy comes after.
    pub unsafe fn run(&self, transfer: &Transfer<'_>, after: Ticket) -> Result<()> {
        // SAFETY: promised by the caller.
        let ticket = unsafe { self.transfer(transfer, after) };
        let ticket = ticket.map_err(|e| self.failed(e))?;
        self.copies.wait(ticket, &mut || Ok(()))
    }

    /// Copies host memory to the device, after everything that was issued; as [`Device::run`].
    ///
    /// # Safety
    /// As for [`Device::run`].
    pub unsafe fn write(&self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.run(&Transfer { to, from, bytes, way: Way::In }, self.next()) }
    }

    /// Copies device memory to the host, after everything that was issued; as [`Device::run`].
    ///
    /// # Safety
    /// As for [`Device::run`].
    pub unsafe fn read(&self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.run(&Transfer { to, from, bytes, way: Way::Out }, self.next()) }
    }

    /// Issues a copy of page-locked memory on the compute stream, which keeps that memory until
    /// the copy is done: for few bytes, since computing waits for it.
    ///
    /// # Safety
    /// `to` is device memory of `bytes` bytes, and `from` has as many.
    pub unsafe fn send(&self, to: *mut u8, from: Block, bytes: usize) -> Result<Ticket> {
        self.issue(|driver, stream| {
            let source = from.ptr().cast_const().cast();
            // SAFETY: promised by the caller; the block is kept.
            let status =
                unsafe { (driver.memcpy_htod_async)(to as Address, source, bytes, stream) };
            driver.check("cuMemcpyHtoDAsync", status)
        })?;
        self.mark_keeping(None, Some(from))
    }

    /// Issues a copy within the device on the compute stream.
    ///
    /// # Safety
    /// Both are device memory of `bytes` bytes that do not overlap; other users of them are on the
    /// same stream, or done.
    pub unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: promised by the caller.
        self.issue(|driver, stream| unsafe {
            let status = (driver.memcpy_dtod_async)(to as Address, from as Address, bytes, stream);
            driver.check("cuMemcpyDtoDAsync", status)
        })
    }

    /// Sets device memory to zeros, on the compute stream.
    ///
    /// # Safety
    /// `to` is device memory of `bytes` bytes; other users of it are on the same stream, or done.
    pub unsafe fn zero(&self, to: *mut u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: promised by the caller.
        self.issue(|driver, stream| unsafe {
            let status = (driver.memset_d8_async)(to as Address, 0, bytes, stream);
            driver.check("cuMemsetD8Async", status)
        })
    }
}

/// Keeps memory of another library until the device has done what uses it.
pub struct Lent {
    device: Arc<Device>,
    owner: Option<Box<dyn Any + Send + Sync>>,
}

impl Lent {
    /// `owner` gives the memory back when it is dropped.
    pub fn new(device: &Arc<Device>, owner: Box<dyn Any + Send + Sync>) -> Self {
        Lent { device: device.clone(), owner: Some(owner) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let owner = self.owner.take();
        self.device.when_done(Box::new(move |_| drop(owner)));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.compute.end();
        self.copies.end();
    }
}
