//! Calls on arrays of a CUDA device: with a kernel for the device, or on host copies of operands.
//!
//! A kernel whose condition asks for the device gets device memory and the stream. Every other
//! native kernel, and a callback that wants host memory, gets copies on the host; what it wrote is
//! copied back before the operation ends. Nothing else of the executor knows the difference.

use crate::context::Context;
use crate::cuda::{Device, Driver, Function, Gemm, Handle, Matrix, Operand, Origin, Staged};
use crate::error::{Error, Result};
use crate::graph::Plan;
use crate::kernels::copy::add;
use crate::lock::Lock;
use crate::ndarray::{Base, NDArray};
use crate::operator::{
    Args, Body, CROSS_DEVICE_COPY, Call, DeviceKernel, DeviceMemory, Grid, HeldMemory, Kernel,
    Launcher, MatchFacts, MatrixProduct, OpDef, OpReq, Rows,
};
use crate::storage::Block;
use crate::tensor::View;
use smallvec::SmallVec;
use std::sync::Arc;

/// The device of a call, and whether its kernel runs on the host nevertheless.
#[derive(Clone)]
pub struct OnDevice {
    pub device: Arc<Device>,
    pub on_host: bool,
    /// The functions that a kernel of CUDA source launches.
    functions: Option<Arc<[Function]>>,
}

impl OnDevice {
    /// The kernel of a call on `device`, and where it runs. `facts` are those of the call on the
    /// host.
    pub fn choose<'a>(
        base: &Base,
        op: &'a OpDef,
        device: Context,
        facts: MatchFacts<'_>,
    ) -> Result<(&'a Arc<Kernel>, OnDevice)> {
        let there = MatchFacts { device: device.device_type, ..facts };
        let has_own = op.kernels.iter().any(|kernel| kernel.matches.holds(&there));
        let kernel = op.choose_kernel(if has_own { &there } else { &facts })?;
        let on_host = match &kernel.body {
            // One that serves the host as well knows nothing of devices.
            Body::Native(_) => kernel.matches.holds(&facts),
            Body::Callback(callback) => !has_own || callback.needs_host(),
            Body::Device(_) => false,
        };
        if on_host && op.name != CROSS_DEVICE_COPY {
            base.cuda.note_on_host(&op.name)?;
        }
        let functions = match &kernel.body {
            Body::Device(own) => Some(functions(base, own, device, &facts)?),
            _ => None,
        };
        let device = base.cuda.device(device.device_id)?.clone();
        Ok((kernel, OnDevice { device, on_host, functions }))
    }

    /// Launches the functions of a kernel of CUDA source.
    pub fn issue(&self, kernel: &DeviceKernel, call: &Call<'_>) -> Result<()> {
        let functions = self.functions.as_deref().unwrap_or_default();
        let memory = Temporary::of(&self.device);
        self.device.issue(|driver, stream| {
            let (device, memory, records) = (&*self.device, &memory, false);
            let mut issuing = Issuing { device, driver, stream, functions, memory, records };
            kernel.issue(call, &mut issuing)
        })
    }

    /// As [`OnDevice::issue`], on a stream that records.
    pub fn record(
        &self,
        kernel: &DeviceKernel,
        call: &Call<'_>,
        (driver, stream): (&Driver, Handle),
        memory: &Temporary<'_>,
    ) -> Result<()> {
        let functions = self.functions.as_deref().unwrap_or_default();
        let (device, records) = (&*self.device, true);
        let mut issuing = Issuing { device, driver, stream, functions, memory, records };
        kernel.issue(call, &mut issuing)
    }

    /// Host copies of inputs, of which the kernel modifies some, and outputs.
    pub fn stage(
        &self,
        mutated: &[usize],
        inputs: &[View],
        req: &[OpReq],
        outputs: &[View],
    ) -> Result<Staged> {
        let device = Some(&self.device);
        let mutated = |i: usize| mutated.contains(&i);
        let input = |(i, view)| Operand { view, device, reads: true, writes: mutated(i) };
        let output = |(view, req): (_, &OpReq)| {
            let (reads, writes) = (*req == OpReq::Add, *req != OpReq::Null);
            Operand { view, device, reads, writes }
        };
        let operands: Vec<_> = inputs
            .iter()
            .enumerate()
            .map(input)
            .chain(outputs.iter().zip(req).map(output))
            .collect();
        Staged::new(&operands)
    }
}

/// Temporary space of a call. It is given back when the call has issued its work: what takes it
/// next uses it on the same stream, or after the ticket with which the pool hands it out.
pub struct Temporary<'a> {
    device: &'a Device,
    taken: Lock<SmallVec<[Block; 2]>>,
    /// Of calls that are recorded: space that earlier ones among them have used.
    spare: Lock<Vec<Block>>,
}

impl<'a> Temporary<'a> {
    pub fn of(device: &'a Device) -> Self {
        Temporary { device, taken: Lock::default(), spare: Lock::default() }
    }

    /// Lets the next call have what was taken so far.
    pub fn reuse(&self) {
        self.spare.lock().extend(self.taken.lock().drain(..));
    }

    /// Everything that is not taken.
    pub fn blocks(self) -> Vec<Block> {
        std::mem::take(&mut *self.spare.lock())
    }
}

impl DeviceMemory for Temporary<'_> {
    fn take(&self, bytes: usize) -> Result<*mut u8> {
        let known = {
            let mut spare = self.spare.lock();
            let fits = |block: &Block| (bytes..=2 * bytes.max(1 << 16)).contains(&block.bytes());
            spare.iter().position(fits).map(|at| spare.swap_remove(at))
        };
        let block = known.map_or_else(|| self.device.memory().alloc(bytes), Ok)?;
        let at = block.ptr();
        self.taken.lock().push(block);
        Ok(at)
    }
}

/// Memory that an operator keeps. The pool hands it out again with the ticket of the moment at
/// which it is dropped, so work that uses it may still be under way then.
struct HeldBlock(Block);

impl HeldMemory for HeldBlock {
    fn at(&self) -> *mut u8 {
        self.0.ptr()
    }
}

/// Runs a kernel that issues work on the stream of a device by itself.
pub fn run_issuing(
    device: &Device,
    kernel: impl FnOnce(Option<&dyn DeviceMemory>) -> Result<()>,
) -> Result<()> {
    let memory = Temporary::of(device);
    device.issue(|_, _| kernel(Some(&memory)))
}

/// A call as the origin of work on a device.
pub struct CallOrigin {
    pub op: Arc<OpDef>,
    pub node: Arc<str>,
}

impl Origin for CallOrigin {
    fn place(&self, _: u32, error: Error) -> Error {
        error.at_node(&self.op.name, &self.node)
    }
}

/// Work of a pass comes from the nodes of its plan, by their numbers.
impl Origin for Plan {
    fn place(&self, number: u32, error: Error) -> Error {
        let node = &self.graph.nodes[number as usize];
        error.at_node(node.op_name(), &node.name)
    }
}

/// A part of an operation that has issued its work on a device.
pub struct Issued {
    pub device: Arc<Device>,
    pub origin: Arc<dyn Origin>,
    /// Where in the origin the work comes from.
    pub number: u32,
    /// The arrays that it writes.
    pub written: SmallVec<[NDArray; 1]>,
}

impl Issued {
    /// Marks the work, and notes that on what it writes.
    pub fn end(self) -> Result<()> {
        let ticket = self.device.mark(Some((self.origin, self.number)))?;
        self.written.iter().for_each(|array| array.note_write(ticket));
        Ok(())
    }
}

/// The functions that `kernel` launches in a call with these facts, loaded now if no call has
/// needed them before.
fn functions(
    base: &Base,
    kernel: &Arc<DeviceKernel>,
    device: Context,
    facts: &MatchFacts<'_>,
) -> Result<Arc<[Function]>> {
    // Opens the device: a loader needs one.
    let device = base.cuda.device(device.device_id)?;
    if kernel.needs_products() {
        device.prepare_blas(|| base.cuda.functions.find_library("cublas"))?;
    }
    let number = device.context().device_id;
    let dtypes = kernel.dtypes(facts.tensors);
    let mark = dtypes.iter().fold(1, |mark, d| mark << 4 | *d as u64);
    // Built-in operators, of which alone kernels have source, are never removed.
    base.cuda.functions.get((Arc::as_ptr(kernel) as usize, number, mark), || {
        let wanted = kernel.functions(&dtypes).into_iter();
        wanted.map(|f| (f.source, f.definitions, f.expression)).collect()
    })
}

/// The stream of a device while a kernel issues its call.
struct Issuing<'a> {
    device: &'a Device,
    driver: &'a Driver,
    stream: Handle,
    functions: &'a [Function],
    memory: &'a Temporary<'a>,
    /// Is the stream one that records?
    records: bool,
}

impl Launcher for Issuing<'_> {
    #[inline]
    fn launch(&mut self, function: usize, grid: Grid, args: &mut Args) -> Result<()> {
        let Some(function) = self.functions.get(function) else {
            return Err(Error::internal("a kernel has no function of this number"));
        };
        // SAFETY: the kernel passes the function's arguments.
        let launch = |at| unsafe {
            function.launch(self.driver, self.stream, grid.blocks, [grid.threads, 1, 1], 0, at)
        };
        launch(&mut args.addresses())
    }

    fn multiply(&mut self, product: &MatrixProduct) -> Result<bool> {
        let Some(blas) = self.device.blas() else { return Ok(false) };
        // Rows of C are columns to the library, which knows no rows: its product is Cᵀ = Bᵀ Aᵀ.
        let of = |rows: &Rows| Matrix {
            at: rows.at as u64,
            leading: rows.step,
            stack: rows.stack,
            transposed: rows.transposed,
        };
        let gemm = Gemm {
            dtype: product.dtype,
            m: product.n,
            n: product.m,
            k: product.depth,
            stacks: product.stacks,
            a: of(&product.b),
            b: of(&product.a),
            c: of(&product.c),
            alpha: product.alpha,
            add: product.add,
        };
        match self.records {
            // SAFETY: the kernel passes memory of the device.
            false => unsafe { blas.multiply(&gemm) },
            // SAFETY: as above.
            true => unsafe { blas.record(&gemm, self.stream, self.device.workspace()?) },
        }
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self.memory
    }

    fn hold(&mut self, bytes: usize) -> Result<Arc<dyn HeldMemory>> {
        Ok(Arc::new(HeldBlock(self.device.memory().alloc(bytes)?)))
    }

    fn clear(&mut self, at: *mut u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the kernel passes memory of the device.
        let status = unsafe { (self.driver.memset_d8_async)(at as u64, 0, bytes, self.stream) };
        self.driver.check("cuMemsetD8Async", status)
    }

    fn copy(&mut self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (to, from) = (to as u64, from as u64);
        // SAFETY: as above.
        let status = unsafe { (self.driver.memcpy_dtod_async)(to, from, bytes, self.stream) };
        self.driver.check("cuMemcpyDtoDAsync", status)
    }
}

/// Completes an output on `device` that a kernel wrote to a temporary there: a sum or a copy.
pub fn complete(device: &Arc<Device>, temporary: &View, output: &View, sum: bool) -> Result<()> {
    if output.size() == 0 {
        return Ok(());
    }
    if !sum {
        // SAFETY: both are memory of the device of equal size, apart from one another.
        return unsafe { device.copy(output.ptr(), temporary.ptr(), output.size_bytes()) };
    }
    let device = Some(device);
    let staged = Staged::new(&[
        Operand { view: temporary, device, reads: true, writes: false },
        Operand { view: output, device, reads: true, writes: true },
    ])?;
    add(&staged.views()[0], &staged.views()[1]);
    staged.write_back()
}

/// Calls `f` with views of arrays that may be on several devices: host copies of those that are on
/// one. The last array is written, `whole` or in part.
pub fn with_host_views(
    sources: &[&NDArray],
    target: &NDArray,
    whole: bool,
    f: impl FnOnce(&[View], &View) -> Result<()>,
) -> Result<()> {
    let arrays: Vec<&NDArray> = sources.iter().copied().chain([target]).collect();
    let views = arrays.iter().map(|a| a.view()).collect::<Result<Vec<_>>>()?;
    let mut operands = Vec::with_capacity(arrays.len());
    for (i, (array, view)) in arrays.iter().zip(&views).enumerate() {
        let writes = i == sources.len();
        let reads = !(writes && whole);
        operands.push(Operand { view, device: array.device()?, reads, writes });
    }
    let staged = Staged::new(&operands)?;
    let (from, to) = staged.views().split_at(sources.len());
    f(from, &to[0])?;
    staged.write_back()
}
