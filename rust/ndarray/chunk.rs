//! The memory that views of one array share, and the variable that orders access to it.

use super::Base;
use super::access_latch::AccessLatch;
use super::device::Uses;
use super::limits::REVOKED;
use crate::context::Context;
use crate::engine::Var;
use crate::error::{Error, Result};
use crate::storage::Pool;
use std::any::Any;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Where the bytes of a chunk come from.
pub(super) enum Memory {
    /// From the pool, taken when first needed (null until then).
    Pooled(AtomicPtr<u8>),
    /// Memory owned elsewhere, alive as long as the keeper.
    External(*mut u8, #[allow(dead_code)] Arc<dyn Any + Send + Sync>),
}

/// Memory that arrays share, with what orders access to it.
pub(super) struct Chunk {
    pub base: Arc<Base>,
    pub ctx: Context,
    /// Bytes of the array that the chunk was made for.
    pub size_bytes: usize,
    /// Bytes of the memory, of which those beyond the array are room for other entries of a plan.
    pub capacity: usize,
    pub memory: Memory,
    pub latch: AccessLatch,
    var: OnceLock<Var>,
    /// Flags: how the memory may be used; see `limits.rs`.
    pub limits: AtomicU8,
    /// Completed writes that did not go through the engine, since the variable orders access.
    pub own_writes: AtomicU64,
    /// For memory of a device: which of its work uses it.
    pub uses: Uses,
}

// SAFETY: the pointers are addresses only; access to the bytes is ordered by latch and variable.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// A chunk without a variable.
    #[inline(always)]
    pub fn new(base: &Arc<Base>, size_bytes: usize, ctx: Context, memory: Memory) -> Arc<Self> {
        Self::with_room(base, size_bytes, size_bytes, ctx, memory)
    }

    /// A chunk whose memory, of `capacity` bytes, is larger than its array.
    #[inline(always)]
    pub fn with_room(
        base: &Arc<Base>,
        size_bytes: usize,
        capacity: usize,
        ctx: Context,
        memory: Memory,
    ) -> Arc<Self> {
        // Like `Arc::new`, but written in place: building the fields on the stack and copying them
        // as a whole stalls on store forwarding.
        let place = Arc::<Chunk>::new_uninit();
        // SAFETY: no other reference to the allocation exists, and all of it is initialised here.
        unsafe {
            Arc::as_ptr(&place).cast::<Chunk>().cast_mut().write(Chunk {
                base: base.clone(),
                ctx,
                size_bytes,
                capacity,
                memory,
                latch: AccessLatch::default(),
                var: OnceLock::new(),
                limits: AtomicU8::new(0),
                own_writes: AtomicU64::new(0),
                uses: Uses::default(),
            });
            place.assume_init()
        }
    }

    /// Returns true for memory of the storage pool, which nothing outside knows.
    pub fn is_pooled(&self) -> bool {
        matches!(self.memory, Memory::Pooled(_))
    }

    /// An error if the memory was revoked.
    #[inline]
    pub fn usable(&self) -> Result<()> {
        if self.limits.load(Ordering::Relaxed) & REVOKED == 0 {
            return Ok(());
        }
        Err(Error::value(
            "this array was an operand of an operator whose function has returned: copy an \
             operand to keep it",
        ))
    }

    /// The address of the memory, which is allocated now if it is still pending. From here on any
    /// work on a device may use it.
    #[inline]
    pub fn ptr(&self) -> Result<*mut u8> {
        let ptr = self.ptr_for_copy()?;
        if !self.ctx.is_host() {
            self.uses.expose();
        }
        Ok(ptr)
    }

    /// As [`Chunk::ptr`], for a copy that orders itself by [`Chunk::uses`].
    #[inline]
    pub fn ptr_for_copy(&self) -> Result<*mut u8> {
        self.usable()?;
        match &self.memory {
            Memory::External(ptr, _) => Ok(*ptr),
            Memory::Pooled(ptr) => {
                let known = ptr.load(Ordering::Acquire);
                if !known.is_null() {
                    return Ok(known);
                }
                self.take(ptr, false)
            }
        }
    }

    /// Allocates the chunk's memory; of two threads that do so at once, one releases its own.
    pub fn take(&self, ptr: &AtomicPtr<u8>, zeros: bool) -> Result<*mut u8> {
        let pool = self.base.pool_of(self.ctx)?;
        let (fresh, ticket) = pool.take_with_ticket(self.capacity)?;
        if zeros {
            // SAFETY: allocated above with this many bytes, and not shared yet.
            let zeroed = unsafe { self.zero(fresh, self.capacity) };
            // SAFETY: as above.
            zeroed.inspect_err(|_| unsafe { pool.give_back(fresh, self.capacity) })?;
        }
        let null = std::ptr::null_mut();
        match ptr.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.uses.begin(ticket);
                Ok(fresh)
            }
            Err(taken) => {
                // SAFETY: allocated above with this many bytes, and not shared.
                unsafe { pool.give_back(fresh, self.capacity) };
                Ok(taken)
            }
        }
    }

    /// Sets memory of the chunk's device to zeros.
    ///
    /// # Safety
    /// `at` points to this many bytes of that device, which nothing else uses meanwhile.
    pub unsafe fn zero(&self, at: *mut u8, bytes: usize) -> Result<()> {
        if self.ctx.is_host() {
            // SAFETY: promised by the caller.
            unsafe { at.write_bytes(0, bytes) };
            return Ok(());
        }
        let device = self.base.cuda.device(self.ctx.device_id)?;
        // SAFETY: as above.
        unsafe { device.zero(at, bytes)? };
        self.uses.note_write(device.mark(None)?);
        Ok(())
    }

    /// Notes that all work of the device so far may have written the memory.
    pub fn note_work_so_far(&self) {
        if let Some(device) = self.base.cuda.opened(self.ctx.device_id) {
            self.uses.note_write(device.next());
        }
    }

    /// The pool that its memory came from. A device that memory came from is in use.
    fn pool(&self) -> &Pool {
        let device = (!self.ctx.is_host()).then(|| self.base.cuda.opened(self.ctx.device_id));
        device.flatten().map_or(&self.base.pool, |device| device.memory())
    }

    /// The variable, from here on the only way to order access.
    pub fn var(&self) -> Var {
        if self.latch.is_closed()
            && let Some(var) = self.var.get()
        {
            return *var;
        }
        let var = self.var.get().copied().unwrap_or_else(|| self.create_var());
        self.latch.close();
        var
    }

    /// Creates the chunk's variable; of two threads that do so at once, one deletes its own. Not
    /// `get_or_init`: creating a variable waits for the engine's lock, and a child forked meanwhile
    /// would keep a cell that is being filled for ever.
    #[inline]
    fn create_var(&self) -> Var {
        let fresh = self.base.engine.new_variable();
        match self.var.set(fresh) {
            Ok(()) => fresh,
            Err(_) => self.delete_unused(fresh),
        }
    }

    #[cold]
    fn delete_unused(&self, unused: Var) -> Var {
        self.base.engine.delete_variable(unused, None);
        *self.var.get().expect("another thread has set it")
    }

    /// The variable, if it exists and orders access. `None` while the latch does.
    pub fn known_var(&self) -> Option<Var> {
        if !self.latch.is_closing() {
            return None;
        }
        Some(self.var())
    }
}

impl Chunk {
    /// Deletes the variable; `last` runs after everything that names it.
    fn forget(&self, var: Option<Var>, last: Option<Box<dyn FnOnce() + Send>>) {
        if let Some(var) = var {
            self.base.engine.delete_variable(var, last);
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let var = self.var.take();
        let last: Box<dyn FnOnce() + Send> = match &self.memory {
            Memory::Pooled(ptr) => {
                let (ptr, bytes) = (ptr.load(Ordering::Relaxed), self.capacity);
                if ptr.is_null() {
                    return self.forget(var, None);
                }
                if var.is_none() {
                    // SAFETY: allocated with this many bytes; without a variable nothing is
                    // pending.
                    return unsafe { self.pool().give_back(ptr, bytes) };
                }
                let (pool, address) = (self.pool().clone(), ptr as usize);
                // SAFETY: as above; the engine calls this after everything that was pending.
                Box::new(move || unsafe { pool.give_back(address as *mut u8, bytes) })
            }
            Memory::External(_, keep) if var.is_some() => {
                let keep = keep.clone();
                Box::new(move || drop(keep))
            }
            Memory::External(..) => return,
        };
        self.forget(var, Some(last));
    }
}
