//! A kernel of a library as a native kernel of the core.

use super::abi;
use super::call::{Owned, answer, make};
use super::decl::{KernelDecl, OpDecl, dtype_code};
use super::frame::{Frame, Slot};
use super::host::HOST;
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

/// The state of a node or recorded call: the operator's own, and those of kernels that ran.
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
        let own = Parsed::with(attrs, op, |parsed| -> Result<_> {
            let slots = shapes.iter().zip(dtypes).map(|(s, t)| {
                let mut slot = Slot::new(s, Some(*t));
                slot.tensor.device = device_of(device);
                slot
            });
            let frame = Frame::with_arrays(parsed, slots, std::iter::empty());
            let made = make(&frame, "create_state", op.calls.create_state, op.calls.user)?;
            Ok(made.map(|made| Owned::new(made, op.calls.destroy_state, &op.library)))
        })??;
        Ok(Arc::new(State { own, of_kernels: Lock::default() }))
    }

    /// What a kernel made when it first ran on this node.
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
    Kernel {
        name,
        matches,
        priority: decl.calls.priority,
        body: Body::Native(Arc::new(move |call| run(&op, &kernel, call))),
        accumulates: flag(abi::ACCUMULATES),
        skips_null: flag(abi::SKIPS_NULL),
    }
}

fn device_of(device: Context) -> abi::Device {
    let device_type = if device.is_host() { 1 } else { 2 };
    abi::Device { device_type, device_id: device.device_id }
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
    if !call.ctx.device.is_host() {
        return Err(Error::not_implemented(format!(
            "kernel '{}' of library '{}' cannot run on {}: compiled operators run on the CPU only",
            kernel.name, kernel.library.name, call.ctx.device
        )));
    }
    Parsed::with(call.attrs, op, |parsed| compute(parsed, kernel, call))?
}

fn compute(parsed: &Parsed, kernel: &KernelDecl, call: &Call<'_>) -> Result<()> {
    let device = device_of(call.ctx.device);
    let (mut inputs, mut outputs) = (Tensors::new(), Tensors::new());
    add_tensors(&mut inputs, call.inputs, device);
    add_tensors(&mut outputs, call.outputs, device);
    let watch = kernel.library.checked.then(|| Watch::begin(parsed, call, &mut outputs));
    let state = match call.state {
        None => None,
        Some(state) => Some(state.downcast_ref::<State>().ok_or_else(|| {
            Error::internal("an operator of a library was given the state of another one")
        })?),
    };
    let stateful = state.filter(|_| kernel.calls.create_state.is_some());
    let known = stateful.and_then(|state| state.of_kernel(kernel));
    let asks = kernel.calls.tmp_bytes.is_some() || (stateful.is_some() && known.is_none());
    let slot = |v: &View| Slot::new(v.shape(), Some(v.dtype()));
    let mut frame = match asks {
        true => {
            let slots = (call.inputs.iter().map(slot), call.outputs.iter().map(slot));
            Frame::with_arrays(parsed, slots.0, slots.1)
        }
        false => Frame::new(parsed),
    };
    frame.random = call.ctx.random;
    let kernel_state = match (stateful, known) {
        (Some(state), None) => state.make_for(kernel, &frame)?,
        (_, known) => known.unwrap_or(std::ptr::null_mut()),
    };
    let tmp_bytes = tmp_bytes(kernel, &frame)?;
    let tmp = match tmp_bytes {
        0 => std::ptr::null_mut(),
        n => frame
            .temp(n)
            .ok_or_else(|| Error::new(ErrorKind::Memory, frame.failure().unwrap_or_default()))?,
    };
    let flags = if call.ctx.is_train { abi::IS_TRAIN } else { 0 }
        | if call.ctx.need_grad { abi::NEEDS_GRAD } else { 0 };
    let args = abi::Args {
        struct_size: size_of::<abi::Args>() as u32,
        flags,
        n_in: inputs.len() as i32,
        n_out: outputs.len() as i32,
        n_attrs: parsed.values.all.len() as i32,
        device,
        inputs: inputs.as_ptr(),
        outputs: outputs.as_ptr(),
        // A request is a byte with the interface's values.
        req: call.req.as_ptr().cast(),
        attrs: parsed.values.all.as_ptr(),
        tmp,
        tmp_bytes,
        stream: call.ctx.stream.map_or(std::ptr::null_mut(), |s| s as *mut c_void),
        parsed: parsed.made(),
        state: state.and_then(|s| s.own.as_ref()).map_or(std::ptr::null_mut(), |o| o.made),
        kernel_state,
        user: kernel.calls.user,
        host: &HOST,
        ctx: frame.as_ctx(),
    };
    let Some(f) = kernel.calls.compute else {
        return Err(Error::internal("a kernel of a library has no function"));
    };
    // SAFETY: a kernel of the library, on views that the core promised to kernels.
    let status = kernel.library.run(|| unsafe { f(&args) })?;
    let answered =
        answer(status, &frame, "the kernel").map_err(|error| match tmp_failure(&error) {
            true => Error::new(ErrorKind::Memory, error.message()),
            false => error,
        })?;
    if !answered {
        return Err(Error::execution("a kernel cannot answer that more must be known"));
    }
    watch.map_or(Ok(()), |watch| watch.end(call))
}

fn tmp_failure(error: &Error) -> bool {
    error.message().starts_with("cannot get ")
}

/// Bytes of temporary space that a kernel asks for in the call of this frame.
pub fn tmp_bytes(kernel: &KernelDecl, frame: &Frame<'_>) -> Result<u64> {
    let calls = &kernel.calls;
    let bytes = make(frame, "tmp_bytes", calls.tmp_bytes, calls.user)?;
    Ok(bytes.map_or(0, |n| n as usize as u64))
}
