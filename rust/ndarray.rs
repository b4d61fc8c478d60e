//! Arrays: shared memory with an engine variable, seen as a row-major block.
//!
//! An [`NDArray`] is a cheap handle: views, handles and NumPy bases of the same memory share one
//! chunk (`ndarray/chunk.rs`). A chunk gets its engine variable late, with the first queued
//! operation that names it: arrays that are only used by operations short enough to run on the
//! calling thread cost the engine nothing. Until then the chunk's own `AccessLatch` keeps callers
//! apart:
//!
//! * a caller that runs an operation inline enters the latch as reader or writer, runs, and leaves;
//! * a thread that needs the variable closes the latch for good and waits until those inside have
//!   left (they run for microseconds and never block, so the wait is a short spin);
//! * once the latch is closed, the engine alone orders access.

mod access_latch;
mod chunk;
mod device;
mod exclusive;
mod limits;
mod wait;

use crate::context::Context;
use crate::cuda::Devices;
use crate::dtype::DType;
use crate::engine::{Engine, Poll, Var};
use crate::error::{Error, ErrorKind, Result};
use crate::profiler::Recorder;
use crate::shape::Shape;
use crate::storage::Pool;
use crate::tensor::View;
use chunk::{Chunk, Memory};
pub use exclusive::{Attempt, run_exclusive};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The state that the arrays of a process share: the engine that orders access to them, the pool of
/// their memory, and the profiler.
pub struct Base {
    pub engine: Arc<dyn Engine>,
    pub pool: Pool,
    /// The CUDA devices in use.
    pub cuda: Devices,
    pub profiler: Arc<Recorder>,
}

impl Base {
    /// A base on `engine` with an empty pool and a stopped profiler.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        let profiler = Arc::<Recorder>::default();
        let (pool, cuda) =
            (Pool::new(&profiler), Devices::new(&profiler, engine.runs_inside_push()));
        Base { engine, pool, cuda, profiler }
    }

    /// Waits for everything that was pushed, on devices as well; raises the first error that no
    /// wait has raised yet.
    pub fn wait_for_all(&self, poll: Poll<'_>) -> Result<()> {
        let pushed = self.engine.wait_for_all(poll);
        match pushed {
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            pushed => {
                let computed = self.cuda.wait_for_all(poll);
                pushed.and(computed)
            }
        }
    }

    /// The pool of a device's memory; an error if there is no such device.
    #[inline]
    pub fn pool_of(&self, ctx: Context) -> Result<&Pool> {
        match ctx.is_host() {
            true => Ok(&self.pool),
            false => self.cuda.device(ctx.device_id).map(|device| device.memory()),
        }
    }
}

/// Memory for an array that is built once its bytes are computed: cheaper to pass on than an array.
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

    /// As [`NDArray::pending`], with memory of at least `capacity` bytes: room for entries that lie
    /// there before the array is written.
    pub fn with_room(
        base: &Arc<Base>,
        shape: &Shape,
        dtype: DType,
        ctx: Context,
        capacity: usize,
    ) -> Result<Self> {
        let bytes = shape.checked_size()? * dtype.size();
        let memory = Memory::Pooled(AtomicPtr::default());
        let chunk = Chunk::with_room(base, bytes, capacity.max(bytes), ctx, memory);
        Ok(NDArray { chunk, offset: 0, shape: shape.clone(), dtype })
    }

    /// An array with memory, uninitialised.
    pub fn empty(base: &Arc<Base>, shape: &Shape, dtype: DType, ctx: Context) -> Result<Self> {
        let array = Self::pending(base, shape, dtype, ctx)?;
        array.chunk.ptr_for_copy()?;
        Ok(array)
    }

    /// Uninitialised memory for an array of this one's shape and dtype, which is on the host.
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

    /// An array with a variable of its own over memory owned elsewhere, which `keep` keeps alive.
    ///
    /// # Safety
    /// `ptr` must be aligned for `dtype` and valid for reads and writes of the whole shape while
    /// `keep` lives, and every other access to these bytes must be ordered with those of the
    /// array's users.
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
        if !ctx.is_host() {
            chunk.note_work_so_far();
        }
        NDArray { chunk, offset: 0, shape: shape.clone(), dtype }
    }

    /// A part of this array's chunk, `offset` bytes from this array's start: same memory, same
    /// variable. Entries of an arena are parts of it.
    pub fn part(&self, offset: usize, shape: &Shape, dtype: DType) -> Result<Self> {
        self.within(self.chunk.size_bytes, offset, shape, dtype)
    }

    /// As [`NDArray::part`], from the start of the array and into its chunk's room.
    pub fn guest(&self, shape: &Shape, dtype: DType) -> Result<Self> {
        self.within(self.chunk.capacity, 0, shape, dtype)
    }

    fn within(&self, limit: usize, offset: usize, shape: &Shape, dtype: DType) -> Result<Self> {
        let bytes = shape.checked_size()? * dtype.size();
        let start = self.offset + offset;
        if start.checked_add(bytes).is_none_or(|end| end > limit) {
            return Err(Error::value(format!(
                "a part of {bytes} bytes at offset {start} does not fit into a chunk of {limit} \
                 bytes"
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

    /// The variable that orders access; created by the first call.
    pub fn var(&self) -> Var {
        self.chunk.var()
    }

    /// The variable, if some queued operation has needed one. Without it nothing is pending.
    pub fn known_var(&self) -> Option<Var> {
        self.chunk.known_var()
    }

    /// Allocates zeroed memory if it is still pending, so that no reader sees old bytes.
    pub fn zero_if_pending(&self) -> Result<()> {
        match &self.chunk.memory {
            Memory::Pooled(ptr) if ptr.load(Ordering::Acquire).is_null() => {
                self.chunk.take(ptr, true).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Number of elements.
    pub fn size(&self) -> usize {
        self.shape.size()
    }

    pub fn size_bytes(&self) -> usize {
        self.size() * self.dtype.size()
    }

    /// Returns true if the array spans its whole chunk, so that overwriting it overwrites
    /// everything that its variable orders.
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.size_bytes() >= self.chunk.size_bytes
    }

    pub fn same_chunk(&self, other: &NDArray) -> bool {
        Arc::ptr_eq(&self.chunk, &other.chunk)
    }

    /// Returns true if the two share bytes.
    pub fn overlaps(&self, other: &NDArray) -> bool {
        self.same_chunk(other)
            && self.offset < other.offset + other.size_bytes()
            && other.offset < self.offset + self.size_bytes()
    }

    /// The view that kernels work on. Allocates the memory if it is still pending; does not wait.
    pub fn view(&self) -> Result<View> {
        let ptr = self.address()?;
        // SAFETY: the chunk holds these bytes (checked when the array was made) and is kept alive
        // by the array, which users of the view hold.
        Ok(unsafe { View::new(ptr, self.shape.clone(), self.dtype) })
    }

    /// As [`NDArray::view`], with a shape and dtype that take no more bytes than the array has.
    pub fn view_as(&self, shape: &Shape, dtype: DType) -> Result<View> {
        assert!(shape.size() * dtype.size() <= self.size_bytes());
        let ptr = self.address()?;
        // SAFETY: as in `view`; the assertion above checks the size.
        Ok(unsafe { View::new(ptr, shape.clone(), dtype) })
    }

    /// Address of the first element. Allocates the memory if it is still pending; does not wait.
    #[inline]
    fn address(&self) -> Result<*mut u8> {
        Ok(self.chunk.ptr()?.wrapping_add(self.offset))
    }

    /// As [`NDArray::address`], for a copy that orders itself.
    fn address_for_copy(&self) -> Result<*mut u8> {
        Ok(self.chunk.ptr_for_copy()?.wrapping_add(self.offset))
    }

    /// As [`NDArray::view`], each with all elements on one axis. The views are built in place:
    /// copying them right after writing their fields stalls on store forwarding.
    #[inline]
    pub fn flat_views<const N: usize>(arrays: [&NDArray; N]) -> Result<[View; N]> {
        let mut at = [std::ptr::null_mut(); N];
        for (at, array) in at.iter_mut().zip(arrays) {
            *at = array.address()?;
        }
        // SAFETY: as in `view`.
        Ok(std::array::from_fn(|i| unsafe { View::flat(at[i], arrays[i].size(), arrays[i].dtype) }))
    }

    /// The view of memory from [`NDArray::memory_like`].
    #[inline]
    pub fn flat_view_of(&self, fresh: &Fresh) -> View {
        assert!(fresh.chunk.size_bytes >= self.size_bytes());
        // SAFETY: as in `view`; the assertion above checks the size.
        unsafe { View::flat(fresh.address, self.size(), self.dtype) }
    }

    /// Rows `begin..end` of the first axis, sharing memory.
    pub fn slice(&self, begin: usize, end: usize) -> Result<Self> {
        let rows = self.shape.dims().first().copied().unwrap_or(0) as usize;
        if self.shape.ndim() == 0 || begin > end || end > rows {
            return Err(Error::index(format!(
                "slice {begin}..{end} is out of bounds for shape {}: expected a part of axis 0",
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
                "Cannot reshape array of size {} into shape {shape}: expected as many elements",
                self.size()
            )));
        }
        let (chunk, offset) = (self.chunk.clone(), self.offset);
        Ok(NDArray { chunk, offset, shape, dtype: self.dtype })
    }
}

impl fmt::Debug for NDArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NDArray {} {} @{}", self.shape, self.dtype, self.chunk.ctx)
    }
}
