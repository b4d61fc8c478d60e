//! Arrays: shared memory with an engine variable, seen as a row-major block.
//!
//! An [`NDArray`] is a cheap handle: views, handles and NumPy bases of the same memory share one chunk.
//! A chunk gets its engine variable late, when the first operation that is queued names it: arrays that
//! only ever meet short operations run by their own callers never trouble the engine. Until then the
//! chunk's own `Latch` keeps callers apart:
//!
//! * a caller that runs an operation inline enters the latch as reader or writer, runs, and leaves;
//! * whoever needs the variable closes the latch for good and waits for those inside (they run for
//!   microseconds and never block, so the wait is a short spin);
//! * once closed, nobody enters: from then on the engine alone orders access.

use crate::context::Context;
use crate::dtype::DType;
use crate::engine::{Engine, Poll, Push, Task, Var};
use crate::error::{Error, Result};
use crate::profiler::Recorder;
use crate::shape::Shape;
use crate::storage::Pool;
use crate::tensor::View;
use latch::Latch;
pub use quiet::with_quiet;
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// What arrays live on: the engine that orders access to them, the pool their memory is from, and the profiler
/// that is told what happens to them.
pub struct Base {
    pub engine: Arc<dyn Engine>,
    pub pool: Pool,
    pub profiler: Arc<Recorder>,
}

impl Base {
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        let profiler = Arc::<Recorder>::default();
        Base { engine, pool: Pool::new(&profiler), profiler }
    }
}

enum Memory {
    /// From the pool, taken when first needed (null until then).
    Pooled(AtomicPtr<u8>),
    /// Somebody else's bytes, alive as long as the keeper.
    External(*mut u8, #[allow(dead_code)] Arc<dyn Any + Send + Sync>),
}

struct Chunk {
    base: Arc<Base>,
    ctx: Context,
    size_bytes: usize,
    memory: Memory,
    latch: Latch,
    var: OnceLock<Var>,
    /// What an operand of a callback may not be used for.
    limits: AtomicU8,
}

/// The chunk may be read only: an input of a callback, or bytes that their owner gave for reading.
const READ_ONLY: u8 = 1;
/// The bytes belong to others again.
const REVOKED: u8 = 2;
/// Something outside of rsnet (a NumPy array) was given the address.
const LENT: u8 = 4;
/// Nobody has begun to write the chunk, and somebody wants to know.
const UNWRITTEN: u8 = 8;

// SAFETY: the pointers are addresses only; access to the bytes is ordered by latch and variable.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    #[inline(always)]
    fn new(base: &Arc<Base>, size_bytes: usize, ctx: Context, memory: Memory) -> Arc<Self> {
        // As `Arc::new`, but written where it stays: small parts copied as a whole at once would stall.
        let place = Arc::<Chunk>::new_uninit();
        // SAFETY: nobody else knows the place, and it is written here.
        unsafe {
            Arc::as_ptr(&place).cast::<Chunk>().cast_mut().write(Chunk {
                base: base.clone(),
                ctx,
                size_bytes,
                memory,
                latch: Latch::default(),
                var: OnceLock::new(),
                limits: AtomicU8::new(0),
            });
            place.assume_init()
        }
    }

    #[inline]
    fn usable(&self) -> Result<()> {
        if self.limits.load(Ordering::Relaxed) & REVOKED == 0 {
            return Ok(());
        }
        Err(Error::value(
            "this array was an operand of an operator whose function has returned: copy an \
             operand to keep it",
        ))
    }

    fn ptr(&self) -> Result<*mut u8> {
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

    /// Takes the chunk's memory; of two threads that do so at once, one gives its own back.
    fn take(&self, ptr: &AtomicPtr<u8>, zeros: bool) -> Result<*mut u8> {
        let pool = &self.base.pool;
        let fresh = pool.take(self.size_bytes)?;
        if zeros {
            // SAFETY: taken here with these bytes, and nobody has seen it.
            unsafe { fresh.write_bytes(0, self.size_bytes) };
        }
        let nobody = std::ptr::null_mut();
        match ptr.compare_exchange(nobody, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(fresh),
            Err(taken) => {
                // SAFETY: it was taken here and nobody has seen it.
                unsafe { pool.give_back(fresh, self.size_bytes) };
                Ok(taken)
            }
        }
    }

    fn var(&self) -> Var {
        if self.latch.is_closed()
            && let Some(var) = self.var.get()
        {
            return *var;
        }
        let var = self.var.get().copied().unwrap_or_else(|| self.take_var());
        self.latch.close();
        var
    }

    /// Gives the chunk a variable; of two threads that do so at once, one gives its own back. (Making it waits for
    /// the engine's lock: a cell that fills meanwhile would stay so in a child forked then.)
    #[inline]
    fn take_var(&self) -> Var {
        let fresh = self.base.engine.new_variable();
        match self.var.set(fresh) {
            Ok(()) => fresh,
            Err(_) => self.give_back_var(fresh),
        }
    }

    #[cold]
    fn give_back_var(&self, unused: Var) -> Var {
        self.base.engine.delete_variable(unused, None);
        *self.var.get().expect("another thread has set it")
    }

    /// The variable, if it exists and rules.
    fn known_var(&self) -> Option<Var> {
        if !self.latch.is_closing() {
            return None;
        }
        Some(self.var())
    }
}

impl Chunk {
    /// Deletes the variable; `last` runs behind everything that names it.
    fn forget(&self, var: Option<Var>, last: Option<Box<dyn FnOnce() + Send>>) {
        if let Some(var) = var {
            self.base.engine.delete_variable(var, last);
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let var = self.var.take();
        let last: Box<dyn FnOnce() + Send> = match &mut self.memory {
            Memory::Pooled(ptr) => {
                let (ptr, bytes) = (std::mem::take(ptr.get_mut()), self.size_bytes);
                if ptr.is_null() {
                    return self.forget(var, None);
                }
                if var.is_none() {
                    // SAFETY: the chunk took it with these bytes; without a variable nothing is pending.
                    return unsafe { self.base.pool.give_back(ptr, bytes) };
                }
                let (pool, address) = (self.base.pool.clone(), ptr as usize);
                // SAFETY: as above; the engine calls this behind everything that was pending.
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

/// Memory of an array that is made when its bytes are: a handle is cheaper to pass on than an array.
pub struct Fresh {
    chunk: Arc<Chunk>,
    address: *mut u8,
}

/// An array: shared memory, where it begins, shape and dtype. Always row-major and without gaps.
#[derive(Clone)]
pub struct NDArray {
    chunk: Arc<Chunk>,
    offset: usize,
    shape: Shape,
    dtype: DType,
}

impl NDArray {
    /// An array whose memory is taken when it is first needed.
    pub fn pending(base: &Arc<Base>, shape: &Shape, dtype: DType, ctx: Context) -> Result<Self> {
        let bytes = shape.checked_size()? * dtype.size();
        let memory = Memory::Pooled(AtomicPtr::default());
        let chunk = Chunk::new(base, bytes, ctx, memory);
        Ok(NDArray { chunk, offset: 0, shape: shape.clone(), dtype })
    }

    /// An array with memory, uninitialised.
    pub fn empty(base: &Arc<Base>, shape: &Shape, dtype: DType, ctx: Context) -> Result<Self> {
        let array = Self::pending(base, shape, dtype, ctx)?;
        array.chunk.ptr()?;
        Ok(array)
    }

    /// Uninitialised memory for an array of this one's shape, dtype and device.
    #[inline]
    pub fn memory_like(&self) -> Result<Fresh> {
        let old = &*self.chunk;
        let bytes = self.size_bytes();
        let address = old.base.pool.take(bytes)?;
        let memory = Memory::Pooled(AtomicPtr::new(address));
        Ok(Fresh { chunk: Chunk::new(&old.base, bytes, old.ctx, memory), address })
    }

    /// An array of this one's shape and dtype in memory that was made for it.
    #[inline]
    pub fn like(&self, Fresh { chunk, .. }: Fresh) -> Self {
        debug_assert_eq!(chunk.size_bytes, self.size_bytes());
        NDArray { chunk, offset: 0, shape: self.shape.clone(), dtype: self.dtype }
    }

    /// A fresh variable over somebody's bytes, which `keep` keeps alive.
    ///
    /// # Safety
    /// `ptr` must be aligned for `dtype` and valid for reads and writes of the whole shape while `keep`
    /// lives, and nobody may access these bytes except in ways that the array's users know to order.
    pub unsafe fn external(
        base: &Arc<Base>,
        keep: Arc<dyn Any + Send + Sync>,
        ptr: *mut u8,
        shape: &Shape,
        dtype: DType,
        ctx: Context,
    ) -> Self {
        let bytes = shape.size() * dtype.size();
        let chunk = Chunk::new(base, bytes, ctx, Memory::External(ptr, keep));
        NDArray { chunk, offset: 0, shape: shape.clone(), dtype }
    }

    /// A part of this array's chunk, `offset` bytes from this array's start: same memory, same variable.
    /// Entries of an arena are parts of it.
    pub fn part(&self, offset: usize, shape: &Shape, dtype: DType) -> Result<Self> {
        let bytes = shape.checked_size()? * dtype.size();
        let start = self.offset + offset;
        if start.checked_add(bytes).is_none_or(|end| end > self.chunk.size_bytes) {
            return Err(Error::value(format!(
                "a part of {bytes} bytes at offset {start} does not fit into a chunk of {} bytes",
                self.chunk.size_bytes
            )));
        }
        Ok(NDArray { chunk: self.chunk.clone(), offset: start, shape: shape.clone(), dtype })
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn context(&self) -> Context {
        self.chunk.ctx
    }

    pub fn base(&self) -> &Arc<Base> {
        &self.chunk.base
    }

    /// The variable that orders access; made when first asked for.
    pub fn var(&self) -> Var {
        self.chunk.var()
    }

    /// The variable, if some queued operation has needed one. Without it nothing is pending.
    pub fn known_var(&self) -> Option<Var> {
        self.chunk.known_var()
    }

    /// Takes the memory with zeros in it, if it is still pending: whoever reads sees no old bytes.
    pub fn zero_if_pending(&self) -> Result<()> {
        match &self.chunk.memory {
            Memory::Pooled(ptr) if ptr.load(Ordering::Acquire).is_null() => {
                self.chunk.take(ptr, true).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// From now on writing to this array's memory is an error.
    pub fn forbid_writing(&self) {
        self.chunk.limits.fetch_or(READ_ONLY, Ordering::Relaxed);
    }

    /// From now on any use of this array's memory is an error: the callback it was given to has ended.
    pub fn revoke(&self) {
        self.chunk.limits.fetch_or(REVOKED, Ordering::Relaxed);
    }

    /// Notes that something outside of rsnet has the address; it holds an array meanwhile.
    pub fn lend(&self) {
        self.chunk.limits.fetch_or(LENT, Ordering::Relaxed);
    }

    /// From now on it is noted when something is about to write the array's memory.
    pub fn watch_for_writes(&self) {
        self.chunk.limits.fetch_or(UNWRITTEN, Ordering::Relaxed);
    }

    /// Is it watched, and has nothing begun to write it, nor been given its address?
    pub fn is_unwritten(&self) -> bool {
        self.chunk.limits.load(Ordering::Relaxed) & (UNWRITTEN | LENT) == UNWRITTEN
    }

    /// Was the address given away, and do more than `own` arrays still hold the memory?
    pub fn is_lent_beyond(&self, own: usize) -> bool {
        self.chunk.limits.load(Ordering::Relaxed) & LENT != 0
            && Arc::strong_count(&self.chunk) > own
    }

    pub fn is_writable(&self) -> bool {
        self.chunk.limits.load(Ordering::Relaxed) & READ_ONLY == 0
    }

    /// An error if the array was revoked.
    #[inline]
    pub fn usable(&self) -> Result<()> {
        self.chunk.usable()
    }

    /// An error if the array may not be written to.
    pub fn writable(&self) -> Result<()> {
        self.may_write(true)
    }

    /// As [`NDArray::writable`], for a write that leaves some elements as they are.
    pub fn writable_in_part(&self) -> Result<()> {
        self.may_write(false)
    }

    fn may_write(&self, every_element: bool) -> Result<()> {
        self.usable()?;
        if self.is_writable() {
            if self.is_unwritten() {
                self.begin_to_write(every_element && self.is_whole())?;
            }
            return Ok(());
        }
        Err(Error::value(
            "this array is read-only: an input of the running operator, or the memory of a read-only \
             NumPy array",
        ))
    }

    /// The first write to a watched chunk: what a part of it leaves out becomes zeros.
    #[cold]
    fn begin_to_write(&self, whole: bool) -> Result<()> {
        if !whole {
            let bytes = self.chunk.ptr()?;
            // SAFETY: the chunk has so many bytes, which nobody has written or been promised anything about.
            unsafe { bytes.write_bytes(0, self.chunk.size_bytes) };
        }
        self.chunk.limits.fetch_and(!UNWRITTEN, Ordering::Relaxed);
        Ok(())
    }

    /// Number of elements.
    pub fn size(&self) -> usize {
        self.shape.size()
    }

    pub fn size_bytes(&self) -> usize {
        self.size() * self.dtype.size()
    }

    /// Does the array span its whole chunk, so that overwriting it overwrites everything behind its variable?
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.size_bytes() == self.chunk.size_bytes
    }

    pub fn same_chunk(&self, other: &NDArray) -> bool {
        Arc::ptr_eq(&self.chunk, &other.chunk)
    }

    /// Do the two share bytes?
    pub fn overlaps(&self, other: &NDArray) -> bool {
        self.same_chunk(other)
            && self.offset < other.offset + other.size_bytes()
            && other.offset < self.offset + self.size_bytes()
    }

    /// What kernels work on. Takes the memory if it is still pending; does not wait.
    pub fn view(&self) -> Result<View> {
        let ptr = self.address()?;
        // SAFETY: the chunk holds these bytes (checked when the array was made) and is kept alive by
        // whoever holds the array while the view is used.
        Ok(unsafe { View::new(ptr, self.shape.clone(), self.dtype) })
    }

    /// Where the elements begin. Takes the memory if it is still pending; does not wait.
    #[inline]
    fn address(&self) -> Result<*mut u8> {
        Ok(self.chunk.ptr()?.wrapping_add(self.offset))
    }

    /// As [`NDArray::view`], each with all elements on one axis. (Views are made where they stay: copying their
    /// small parts one by one and then as a whole stalls.)
    #[inline]
    pub fn flat_views<const N: usize>(arrays: [&NDArray; N]) -> Result<[View; N]> {
        let mut at = [std::ptr::null_mut(); N];
        for (at, array) in at.iter_mut().zip(arrays) {
            *at = array.address()?;
        }
        // SAFETY: as in `view`.
        Ok(std::array::from_fn(|i| unsafe { View::flat(at[i], arrays[i].size(), arrays[i].dtype) }))
    }

    /// The same of memory that was made for an array like this one.
    #[inline]
    pub fn flat_view_of(&self, fresh: &Fresh) -> View {
        assert!(fresh.chunk.size_bytes >= self.size_bytes());
        // SAFETY: as in `view`; the chunk is this great, as just seen.
        unsafe { View::flat(fresh.address, self.size(), self.dtype) }
    }

    /// Rows `begin..end` of the first axis, sharing memory.
    pub fn slice(&self, begin: usize, end: usize) -> Result<Self> {
        let rows = self.shape.dims().first().copied().unwrap_or(0) as usize;
        if self.shape.ndim() == 0 || begin > end || end > rows {
            return Err(Error::index(format!(
                "slice {begin}..{end} is out of bounds for shape {}",
                self.shape
            )));
        }
        let mut shape = self.shape.clone();
        shape.dims_mut()[0] = (end - begin) as i64;
        let row = self.shape.product(1..self.shape.ndim()) * self.dtype.size();
        let offset = self.offset + begin * row;
        Ok(NDArray { chunk: self.chunk.clone(), offset, shape, dtype: self.dtype })
    }

    /// Row `i` of the first axis, without that axis.
    pub fn at(&self, i: usize) -> Result<Self> {
        let rows = self.shape.dims().first().copied().unwrap_or(0);
        if i as i64 >= rows {
            return Err(Error::index(format!(
                "index {i} is out of bounds for axis 0 with size {rows}"
            )));
        }
        let shape = Shape::new(&self.shape.dims()[1..]);
        self.slice(i, i + 1)?.reshape(shape)
    }

    /// The same elements in another shape, sharing memory.
    pub fn reshape(&self, shape: Shape) -> Result<Self> {
        if shape.checked_size()? != self.size() {
            return Err(Error::value(format!(
                "Cannot reshape array of size {} into shape {shape}",
                self.size()
            )));
        }
        let (chunk, offset) = (self.chunk.clone(), self.offset);
        Ok(NDArray { chunk, offset, shape, dtype: self.dtype })
    }

    /// Does the engine order this array, so that a wait may block?
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
    pub fn read<R>(&self, poll: Poll<'_>, f: impl FnOnce(&View) -> R) -> Result<R> {
        let view = self.view()?;
        if self.chunk.latch.try_read() {
            let leave = Leave(&self.chunk.latch, false);
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
        let view = self.view()?;
        if self.chunk.latch.try_write() {
            let _leave = Leave(&self.chunk.latch, true);
            return f(&view);
        }
        self.wait_to_write(poll)?;
        f(&view)?;
        if self.is_whole() && self.readable().is_err() {
            // The bytes are good now: an empty operation that overwrites the variable says so.
            let writes = [self.var()];
            let push = Push { overwrites: 1, cheap: true, ..Push::new("overwrite", &[], &writes) };
            self.base().engine.push(Task::nothing(), push)?;
        }
        Ok(())
    }
}

struct Leave<'a>(&'a Latch, bool);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if self.1 { self.0.leave_write() } else { self.0.leave_read() }
    }
}

impl fmt::Debug for NDArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NDArray {} {} @{}", self.shape, self.dtype, self.chunk.ctx)
    }
}

mod latch;
mod quiet;
