//! A kernel of a library as a native kernel of the core.

use super::abi;
use super::call::{check, make};
use super::decl::{KernelDecl, OpDecl};
use super::dtypes::dtype_code;
use super::frame::{Frame, Said, Slot, device_of};
use super::host::HOST;
use super::library::Owned;
use super::parse::with_parsed;
use super::parsed::Parsed;
use super::watch::Watch;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::Lock;
use crate::operator::{Attrs, Body, Call, Kernel, Match, OpState};
use crate::shape::Shape;
use crate::tensor::View;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The state of a node or recorded call: the operator's own, and those of kernels that ran.
#[derive(Default)]
pub struct State {
    own: Option<Owned>,
    of_kernels: Lock<Vec<(*const KernelDecl, Owned)>>,
}

// SAFETY: the pointers to kernels are compared only.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    /// The state of a node on inputs of these shapes and dtypes.
    pub fn create(
        op: &Arc<OpDecl>,
        attrs: &Attrs,
        device: Context,
        shapes: &[Shape],
        dtypes: &[DType],
    ) -> Result<OpState> {
        let own = with_parsed(attrs, op, |parsed| -> Result<_> {
            let slots = shapes.iter().zip(dtypes).map(|(s, t)| Slot::new(s, Some(*t)));
            let frame = Frame::with_arrays(parsed, device, slots, []);
            let made = make(&frame, "create_state", op.calls.create_state, op.calls.user)?;
            Ok(made.map(|made| Owned::new(made, op.calls.destroy_state, &op.library)))
        })??;
        Ok(Arc::new(State { own, of_kernels: Lock::default() }))
    }

    /// The state that a kernel made when it first ran on this node.
    fn of_kernel(&self, kernel: &KernelDecl) -> Option<*mut c_void> {
        let all = self.of_kernels.lock();
        all.iter().find(|(k, _)| std::ptr::eq(*k, kernel)).map(|(_, known)| known.made)
    }

    /// The state of a kernel that runs for the first time. Runs of one node never overlap.
    fn make_for(&self, kernel: &KernelDecl, frame: &Frame<'_>) -> Result<*mut c_void> {
        let calls = &kernel.calls;
        let Some(made) = make(frame, "create_state", calls.create_state, calls.user)? else {
            return Ok(std::ptr::null_mut());
        };
        let owned = Owned::new(made, calls.destroy_state, &kernel.library);
        self.of_kernels.lock().push((kernel, owned));
        Ok(made)
    }
}

/// A kernel of `op` as the core runs it.
pub fn kernel(op: &Arc<OpDecl>, decl: &Arc<KernelDecl>, at: usize, matches: Match) -> Kernel {
    let name = if decl.name.is_empty() { format!("kernel#{at}") } else { decl.name.clone() };
    let flag = |flag: u32| decl.calls.flags & flag != 0;
    let (op, kernel) = (op.clone(), decl.clone());
    let body = Body::Native(Arc::new(move |call| run(&op, &kernel, call)));
    Kernel {
        priority: decl.calls.priority,
        accumulates: flag(abi::ACCUMULATES),
        skips_null: flag(abi::SKIPS_NULL),
        ..Kernel::new(name, matches, body)
    }
}

#[inline(always)]
fn tensor(view: &View, device: abi::Device) -> abi::Tensor {
    abi::Tensor {
        data: view.ptr().cast(),
        device,
        ndim: view.ndim() as i32,
        dtype: dtype_code(view.dtype()),
        shape: view.dims().as_ptr(),
        strides: view.strides().as_ptr(),
        byte_offset: 0,
    }
}

type Tensors = SmallVec<[abi::Tensor; 3]>;

/// Adds views one by one: what is made elsewhere would be copied here.
#[inline(always)]
fn add_tensors(all: &mut Tensors, views: &[View], device: abi::Device) {
    for view in views {
        all.push(tensor(view, device));
    }
}

fn run(op: &Arc<OpDecl>, kernel: &KernelDecl, call: &Call<'_>) -> Result<()> {
    let always = kernel.calls.flags & abi::ALWAYS_COMPUTE != 0;
    if !always && !call.outputs.is_empty() && call.outputs.iter().all(|o| o.size() == 0) {
        return Ok(());
    }
    if !call.ctx.device.is_host() && call.ctx.stream.is_none() {
        return Err(Error::not_implemented(format!(
            "kernel '{}' of library '{}' cannot run on {device}: there is no stream of {device}",
            kernel.name,
            kernel.library.name,
            device = call.ctx.device,
        )));
    }
    with_parsed(call.attrs, op, |parsed| compute(parsed, kernel, call))?
}

/// One call: the state of the kernel, its arguments, and the kernel itself, perhaps watched.
fn compute(parsed: &Parsed, kernel: &KernelDecl, call: &Call<'_>) -> Result<()> {
    let device = device_of(call.ctx.device);
    let (mut inputs, mut outputs) = (Tensors::new(), Tensors::new());
    add_tensors(&mut inputs, call.inputs, device);
    add_tensors(&mut outputs, call.outputs, device);
    let watched = kernel.library.checked.load(Ordering::Relaxed) && call.ctx.device.is_host();
    let watch = watched.then(|| Watch::begin(parsed, call, &mut outputs));
    let state = own_state(call)?;
    let has_state = kernel.calls.create_state.is_some();
    let known = state.filter(|_| has_state).and_then(|state| state.of_kernel(kernel));
    let makes_state = has_state && known.is_none();
    let frame = frame(parsed, kernel, call, makes_state || kernel.calls.tmp_bytes.is_some());
    // A backward operator has its forward operator's state. Where that has none, it lasts for a
    // call.
    let for_this_call = State::default();
    let kernel_state = match makes_state {
        true => state.unwrap_or(&for_this_call).make_for(kernel, &frame)?,
        false => known.unwrap_or(std::ptr::null_mut()),
    };
    let tmp_bytes = tmp_bytes(kernel, &frame)?;
    let args = abi::Args {
        struct_size: size_of::<abi::Args>() as u32,
        flags: flags(call),
        n_in: inputs.len() as i32,
        n_out: outputs.len() as i32,
        n_attrs: parsed.values.all.len() as i32,
        device,
        inputs: inputs.as_ptr(),
        outputs: outputs.as_ptr(),
        // A request is a byte with the interface's values.
        req: call.req.as_ptr().cast(),
        attrs: parsed.values.all.as_ptr(),
        tmp: tmp(tmp_bytes, &frame)?,
        tmp_bytes,
        stream: call.ctx.stream.map_or(std::ptr::null_mut(), |s| s as *mut c_void),
        parsed: parsed.made(),
        state: state.and_then(|s| s.own.as_ref()).map_or(std::ptr::null_mut(), |o| o.made),
        kernel_state,
        user: kernel.calls.user,
        host: &HOST,
        ctx: frame.as_ctx(),
    };
    invoke(kernel, &args, &frame)?;
    watch.map_or(Ok(()), |watch| watch.end(call))
}

/// The state of the node or recorded call that runs.
#[inline(always)]
fn own_state<'a>(call: &Call<'a>) -> Result<Option<&'a State>> {
    let Some(state) = call.state else { return Ok(None) };
    let state = state.downcast_ref::<State>();
    state.map(Some).ok_or_else(|| {
        Error::internal("an operator of a library was given the state of another one")
    })
}

/// The circumstances of a call of a kernel, with its arrays if a callback may ask for them.
#[inline(always)]
fn frame<'a>(
    parsed: &'a Parsed,
    kernel: &'a KernelDecl,
    call: &Call<'a>,
    with_arrays: bool,
) -> Frame<'a> {
    let slot = |v: &View| Slot::new(v.shape(), Some(v.dtype()));
    let said = with_arrays.then(|| {
        let (inputs, outputs) = (call.inputs.iter().map(slot), call.outputs.iter().map(slot));
        Said::of_arrays(call.ctx.device, inputs, outputs)
    });
    Frame::of_call(parsed, &kernel.library, call, said)
}

fn flags(call: &Call<'_>) -> u32 {
    let flag = |is_on: bool, flag: u32| if is_on { flag } else { 0 };
    flag(call.ctx.is_train, abi::IS_TRAIN) | flag(call.ctx.need_grad, abi::NEEDS_GRAD)
}

fn tmp(bytes: u64, frame: &Frame<'_>) -> Result<*mut c_void> {
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let refused = || Error::new(ErrorKind::Memory, frame.failure().unwrap_or_default());
    frame.temp(bytes).ok_or_else(refused)
}

#[inline]
fn invoke(kernel: &KernelDecl, args: &abi::Args, frame: &Frame<'_>) -> Result<()> {
    let Some(f) = kernel.calls.compute else {
        return Err(Error::internal("a kernel of a library has no function"));
    };
    // SAFETY: a kernel of the library, on views that the core promised to kernels.
    let status = kernel.library.run(|| unsafe { f(args) })?;
    check(status, frame, "the kernel")
}

/// Bytes of temporary space that a kernel asks for in the call of this frame.
pub fn tmp_bytes(kernel: &KernelDecl, frame: &Frame<'_>) -> Result<u64> {
    let calls = &kernel.calls;
    let bytes = make(frame, "tmp_bytes", calls.tmp_bytes, calls.user)?;
    Ok(bytes.map_or(0, |n| n as usize as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{Around, OpReq};
    use crate::plugin::library::Library;
    use crate::plugin::registration::{Registration, register_kernel, register_op};
    use std::sync::atomic::AtomicBool;

    /// Notes device, stream and addresses in what `user` points to.
    ///
    /// # Safety
    /// `args` are those of a call whose `user` points to an array that is long enough.
    unsafe extern "C-unwind" fn note(args: *const abi::Args) -> abi::Status {
        // SAFETY: the host's arguments, and the test's array.
        unsafe {
            let args = &*args;
            let seen = args.user.cast::<usize>();
            let of = |tensor: *const abi::Tensor| (*tensor).data as usize;
            let device = (*args.inputs).device;
            assert_eq!((device, args.tmp, args.tmp_bytes), (args.device, std::ptr::null_mut(), 0));
            seen.write(device.device_type as usize);
            seen.add(1).write(device.device_id as usize);
            seen.add(2).write(args.stream as usize);
            seen.add(3).write(of(args.inputs));
            seen.add(4).write(of(args.outputs));
        }
        abi::OK
    }

    fn parts(user: *mut c_void) -> (Arc<OpDecl>, Arc<KernelDecl>) {
        let library = Library {
            path: "test".into(),
            name: "libtest.so".into(),
            guard: None,
            checked: AtomicBool::new(true),
        };
        let mut registration = Registration::new(Arc::new(library));
        // SAFETY: plain descriptions, in which zero means that nothing is there.
        unsafe {
            let mut arg: abi::Arg = std::mem::zeroed();
            (arg.struct_size, arg.name) = (size_of::<abi::Arg>() as u32, c"x".as_ptr());
            let mut out = arg;
            out.name = c"y".as_ptr();
            let mut op: abi::Op = std::mem::zeroed();
            (op.struct_size, op.flags) = (size_of::<abi::Op>() as u32, abi::ELEMENTWISE);
            (op.name, op.inputs, op.outputs) = (c"noted".as_ptr(), &arg, &out);
            (op.n_inputs, op.n_outputs) = (1, 1);
            let mut gpu: abi::Match = std::mem::zeroed();
            (gpu.op, gpu.number) = (abi::matching::DEVICE, i64::from(abi::GPU));
            let mut kernel: abi::Kernel = std::mem::zeroed();
            kernel.struct_size = size_of::<abi::Kernel>() as u32;
            (kernel.op, kernel.name, kernel.user) = (op.name, c"on gpu".as_ptr(), user);
            (kernel.program, kernel.n_match, kernel.compute) = (&gpu, 1, Some(note as _));
            let registry = (&raw mut registration).cast();
            assert_eq!(register_op(registry, &op), abi::OK, "{:?}", registration.failure);
            assert_eq!(register_kernel(registry, &kernel), abi::OK, "{:?}", registration.failure);
        }
        (registration.ops.remove(0), registration.kernels.remove(0))
    }

    #[test]
    fn a_kernel_of_a_gpu_gets_its_device_and_stream() {
        let mut seen = [0usize; 5];
        let (op, decl) = parts(seen.as_mut_ptr().cast());
        let parts =
            super::super::Parts { op: op.clone(), kernels: vec![decl.clone()], gradient: None };
        let def = crate::plugin::define::define(&parts, &std::sync::Weak::new()).unwrap();
        assert_eq!(def.kernels[0].matches.to_string(), "device == gpu");
        let attrs = def.parse(&[]).unwrap();
        // Addresses that only the device could read.
        let at = |address: usize| {
            // SAFETY: nothing reads them.
            unsafe { View::new(address as *mut u8, Shape::new(&[4]), DType::F32) }
        };
        let (inputs, outputs) = ([at(0x1000)], [at(0x2000)]);
        let mut ctx = crate::operator::OpContext { device: Context::gpu(1), ..Default::default() };
        let call = |ctx: &crate::operator::OpContext| {
            let req = [OpReq::Write];
            let (inputs, outputs) = (&inputs[..], &outputs[..]);
            run(
                &op,
                &decl,
                &Call {
                    attrs: &attrs,
                    ctx,
                    state: None,
                    inputs,
                    req: &req,
                    outputs,
                    memory: None,
                    around: Around::NONE,
                },
            )
        };
        let refused = call(&ctx).unwrap_err().to_string();
        assert!(
            refused.contains("'on gpu' of library 'libtest.so' cannot run on gpu(1)"),
            "{refused}"
        );
        ctx.stream = Some(0x77);
        call(&ctx).unwrap();
        assert_eq!(seen, [2, 1, 0x77, 0x1000, 0x2000]);
    }
}
