//! Calls on arrays of a CUDA device: with a kernel for the device, or on host copies of operands.
//!
//! A kernel whose condition asks for the device gets device memory and the stream. Every other
//! native kernel, and a callback that wants host memory, gets copies on the host; what it wrote is
//! copied back before the operation ends. Nothing else of the executor knows the difference.

use super::run::Prepared;
use crate::context::Context;
use crate::cuda::{Device, Driver, Function, Handle, Operand, Staged};
use crate::error::{Error, Result};
use crate::kernels::copy::add;
use crate::lock::Lock;
use crate::ndarray::{Base, NDArray};
use crate::operator::{
    Args, Body, CROSS_DEVICE_COPY, Call, DeviceKernel, DeviceMemory, Done, Grid, Kernel, Launcher,
    MatchFacts, OpContext, OpDef, OpReq, OpState, Within,
};
use crate::storage::Block;
use crate::tensor::View;
use std::any::Any;
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

    /// Launches the functions of a kernel of CUDA source, and waits until they have ended.
    pub fn issue(&self, kernel: &DeviceKernel, call: &Call<'_>) -> Result<()> {
        let functions = self.functions.as_deref().unwrap_or_default();
        // What the functions use is kept until the device has done the call.
        let mut scratch = Vec::new();
        self.device.run(|driver, stream| {
            let device = &*self.device;
            let mut issuing = Issuing { device, driver, stream, functions, scratch: &mut scratch };
            kernel.issue(call, &mut issuing)
        })
    }

    /// Runs a native kernel.
    pub fn run(
        &self,
        prepared: &Prepared<'_>,
        ctx: &OpContext,
        state: Option<&OpState>,
        inputs: &[View],
        req: &[OpReq],
        outputs: &[View],
    ) -> Result<()> {
        if !self.on_host {
            let ctx = OpContext { stream: Some(self.device.stream()), ..*ctx };
            return prepared.run_on_views(&ctx, state, inputs, req, outputs, Some(&self.device));
        }
        let staged = self.stage(prepared, inputs, req, outputs)?;
        let (inputs, outputs) = staged.views().split_at(inputs.len());
        prepared.run_on_views(ctx, state, inputs, req, outputs, None)?;
        staged.write_back()
    }

    /// Starts a callback on host copies of its operands. It sees a call on the host.
    pub fn start(
        &self,
        prepared: &Prepared<'_>,
        ctx: OpContext,
        state: Option<OpState>,
        inputs: &[View],
        req: &[OpReq],
        outputs: &[View],
        keep: Arc<dyn Any + Send + Sync>,
        within: Box<dyn Within>,
        done: Done,
    ) {
        let staged = match self.stage(prepared, inputs, req, outputs) {
            Ok(staged) => Arc::new(staged),
            Err(e) => return done(Err(e)),
        };
        let (given, written) = staged.views().split_at(inputs.len());
        let (given, written): (Arc<[View]>, Arc<[View]>) = (given.into(), written.into());
        let ctx = OpContext { device: Context::default(), stream: None, ..ctx };
        let both: Arc<dyn Any + Send + Sync> = Arc::new((keep.clone(), staged.clone()));
        let end: Done = Box::new(move |result| {
            let result = result.and_then(|()| staged.write_back());
            drop(keep);
            done(result);
        });
        prepared.start_on_views(ctx, state, given, req, None, written, both, within, end, None);
    }

    /// Host copies of inputs and outputs.
    fn stage(
        &self,
        prepared: &Prepared<'_>,
        inputs: &[View],
        req: &[OpReq],
        outputs: &[View],
    ) -> Result<Staged> {
        let device = Some(&self.device);
        let mutated = |i: usize| prepared.mutated.contains(&i);
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

/// Temporary space of an operation. It is given back after the device has done the operation's
/// work, part of which may still be to come when the kernel returns.
struct Temporary<'a> {
    device: &'a Device,
    taken: Lock<Vec<Block>>,
}

impl DeviceMemory for Temporary<'_> {
    fn take(&self, bytes: usize) -> Result<*mut u8> {
        take(self.device, bytes, &mut self.taken.lock())
    }
}

/// The address of a new block of the device's memory, which stays as long as it is among `taken`.
fn take(device: &Device, bytes: usize, taken: &mut Vec<Block>) -> Result<*mut u8> {
    let block = device.memory().alloc(bytes)?;
    let at = block.ptr();
    taken.push(block);
    Ok(at)
}

/// Runs a kernel that issues work on the stream of a device, and waits for that work.
pub fn run_issuing(
    device: &Device,
    kernel: impl FnOnce(Option<&dyn DeviceMemory>) -> Result<()>,
) -> Result<()> {
    let memory = Temporary { device, taken: Lock::default() };
    device.run(|_, _| kernel(Some(&memory)))
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
    let number = base.cuda.device(device.device_id)?.context().device_id;
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
    scratch: &'a mut Vec<Block>,
}

impl Launcher for Issuing<'_> {
    #[inline]
    fn launch(&mut self, function: usize, grid: Grid, args: &mut Args) -> Result<()> {
        let Some(function) = self.functions.get(function) else {
            return Err(Error::internal("a kernel has no function of this number"));
        };
        let ([x, y, z], none) = (grid.blocks, std::ptr::null_mut());
        let mut at = args.addresses();
        // SAFETY: the loader returned the handle for this device; the kernel passes the function's
        // arguments, which the driver copies.
        let status = unsafe {
            let (handle, at) = (function.handle(), at.as_mut_ptr());
            let launch = self.driver.launch_kernel;
            launch(handle, x, y, z, grid.threads, 1, 1, 0, self.stream, at, none)
        };
        if status == 0 {
            return Ok(());
        }
        let error = self.driver.check("cuLaunchKernel", status);
        error.map_err(|e| Error::new(e.kind(), format!("{} of {}", e.message(), function.name)))
    }

    fn scratch(&mut self, bytes: usize) -> Result<*mut u8> {
        take(self.device, bytes, self.scratch)
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
pub fn settle(device: &Arc<Device>, temporary: &View, output: &View, sum: bool) -> Result<()> {
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

/// Copies between arrays of one dtype and size of which one is on a device, without a copy on the
/// host where the driver can. Returns false, and nothing was done, if it cannot.
pub fn copy_directly(from: &NDArray, to: &NDArray) -> Result<bool> {
    if from.dtype() != to.dtype() {
        return Ok(false);
    }
    if to.size() == 0 {
        return Ok(true);
    }
    let (source, target) = (from.view()?, to.view()?);
    let (bytes, at, from_at) = (to.size_bytes(), target.ptr(), source.ptr());
    // SAFETY: views of arrays on these devices, of as many bytes; the operation that this is part
    // of orders access to them.
    unsafe {
        match (from.device()?, to.device()?) {
            (None, Some(device)) => device.write(at, from_at, bytes)?,
            (Some(device), None) => device.read(at, from_at, bytes)?,
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) && !source.overlaps(&target) => {
                a.copy(at, from_at, bytes)?;
            }
            _ => return Ok(false),
        }
    }
    Ok(true)
}
