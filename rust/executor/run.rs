//! The one place for write requests, temporaries and the choice of a kernel; the imperative layer
//! and the executor both run operators through it.
//!
//! Kernels rely on guarantees (`operator::Call`): they need not add, an unwanted output is scratch,
//! and an output overlaps no input except as a declared in-place pair. This file establishes them:
//! where a call does not meet them by itself, the kernel writes to a temporary, and the request (a
//! sum, a copy, nothing) is completed after it.

mod temporaries;

use self::temporaries::{After, Temporaries};
use super::on_device::{self, OnDevice, run_issuing};
use crate::context::Context;
use crate::cuda::{Device, Driver, Handle};
use crate::dtype::DType;
use crate::engine::{Mark, Var};
use crate::error::{Error, Result};
use crate::ndarray::Base;
use crate::operator::{
    Alone, Around, Attrs, Body, Call, Done, InplacePair, Kernel, MatchFacts, OpContext, OpDef,
    OpReq, OpState, OwnedCall, Within,
};
use crate::tensor::View;
use smallvec::SmallVec;
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

/// Something shared: counted, or lent for the time of a call that counts nothing.
#[derive(Clone)]
pub enum ArcCow<'a, T> {
    Borrowed(&'a Arc<T>),
    Owned(Arc<T>),
}

impl<T> ArcCow<'_, T> {
    fn owned(self) -> ArcCow<'static, T> {
        match self {
            ArcCow::Borrowed(it) => ArcCow::Owned(it.clone()),
            ArcCow::Owned(it) => ArcCow::Owned(it),
        }
    }
}

impl<T> std::ops::Deref for ArcCow<'_, T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        match self {
            ArcCow::Borrowed(it) => it,
            ArcCow::Owned(it) => it,
        }
    }
}

/// An operator with its kernel chosen, ready to run on arrays of these dtypes and numbers of axes.
#[derive(Clone)]
pub struct Prepared<'a> {
    pub op: ArcCow<'a, OpDef>,
    pub attrs: ArcCow<'a, Attrs>,
    pub kernel: ArcCow<'a, Kernel>,
    pub inplace: SmallVec<[InplacePair; 2]>,
    /// Inputs that the kernel modifies.
    pub mutated: SmallVec<[usize; 2]>,
    /// True if the kernel handles the request `Add` itself.
    accumulates: bool,
    /// For calls on a CUDA device: which, and where the kernel runs.
    pub(super) on_device: Option<OnDevice>,
}

/// Names of inputs and outputs that an operator has none for, which gradients have for the first
/// ones only.
const UNNAMED: [[&str; 8]; 2] = [
    ["input0", "input1", "input2", "input3", "input4", "input5", "input6", "input7"],
    ["output0", "output1", "output2", "output3", "output4", "output5", "output6", "output7"],
];

/// The name of tensor `i` of a call with this many inputs, which come first; as conditions of
/// kernels know it.
fn name_of(names: [&[String]; 2], inputs: usize, i: usize) -> &str {
    let (side, at) = if i < inputs { (0, i) } else { (1, i - inputs) };
    match names[side].get(at) {
        Some(name) => name,
        None => UNNAMED[side].get(at).copied().unwrap_or(""),
    }
}

/// Chooses the kernel of `op` for `inputs` input tensors followed by the outputs, given by dtype
/// and number of axes.
pub fn prepare<'a, T: Iterator<Item = (DType, usize)>>(
    base: &Base,
    op: &'a Arc<OpDef>,
    attrs: &'a Arc<Attrs>,
    device: Context,
    (inputs, tensors): (usize, impl FnOnce() -> T),
) -> Result<Prepared<'a>> {
    let mut on_device = None;
    let kernel = match op.only_host_kernel() {
        Some(only) if device.is_host() => only,
        _ => op.input_names.with(attrs, |ins| {
            op.output_names.with(attrs, |outs| {
                let named = |(i, (t, rank))| (name_of([ins, outs], inputs, i), t, rank);
                let tensors: SmallVec<[_; 6]> = tensors().enumerate().map(named).collect();
                // Every kind of host memory is served by the kernels of the CPU.
                let kind = Context::default().device_type;
                let facts = MatchFacts { device: kind, attrs, tensors: &tensors };
                if device.is_host() {
                    return op.choose_kernel(&facts);
                }
                let (kernel, place) = OnDevice::choose(base, op, device, facts)?;
                on_device = Some(place);
                Ok(kernel)
            })
        })?,
    };
    let prepared = Prepared {
        op: ArcCow::Borrowed(op),
        attrs: ArcCow::Borrowed(attrs),
        kernel: ArcCow::Borrowed(kernel),
        inplace: op.inplace.with(attrs, |pairs| pairs.into()),
        mutated: op.mutates.with(attrs, |inputs| inputs.into()),
        accumulates: kernel.accumulates
            || op.accumulates.as_ref().is_some_and(|accumulates| accumulates(attrs)),
        on_device,
    };
    match &op.deferred_error {
        Some(check) => check(attrs).map(|()| prepared),
        None => Ok(prepared),
    }
}

impl Prepared<'_> {
    pub fn owned(self) -> Prepared<'static> {
        Prepared {
            op: self.op.owned(),
            attrs: self.attrs.owned(),
            kernel: self.kernel.owned(),
            inplace: self.inplace,
            mutated: self.mutated,
            accumulates: self.accumulates,
            on_device: self.on_device,
        }
    }

    /// The device on whose stream the call computes, if it does not run on the host.
    pub fn computes_on(&self) -> Option<&Arc<Device>> {
        self.on_device.as_ref().filter(|place| !place.on_host).map(|place| &place.device)
    }

    /// Returns true if the kernel is outside of the core.
    pub fn is_callback(&self) -> bool {
        matches!(self.kernel.body, Body::Callback(_))
    }

    /// As [`OpDef::alone`], for the kernel that was chosen.
    pub fn alone(&self, device: Context, elems: impl FnOnce() -> usize) -> Alone {
        if self.is_callback() { Alone::Always } else { self.op.alone.on(device, elems) }
    }

    /// The request of the kernel for output `i`, and what happens after it.
    fn arrange(&self, i: usize, req: OpReq, inputs: &[View], output: &View) -> (OpReq, After) {
        match req {
            OpReq::Null if self.kernel.skips_null => (OpReq::Null, After::Nothing),
            OpReq::Null => (OpReq::Null, After::Forget),
            OpReq::Add if self.accumulates && !self.clashes(i, inputs, output, false) => {
                (OpReq::Add, After::Nothing)
            }
            OpReq::Add => (OpReq::Write, After::Add),
            OpReq::Write | OpReq::Inplace if self.clashes(i, inputs, output, true) => {
                (OpReq::Write, After::Copy)
            }
            OpReq::Write | OpReq::Inplace => {
                let shares = inputs.iter().any(|v| v.ptr() == output.ptr());
                (if shares { OpReq::Inplace } else { OpReq::Write }, After::Nothing)
            }
        }
    }

    /// Returns true if output `i` overlaps an input in a way that the kernel need not handle.
    fn clashes(&self, i: usize, inputs: &[View], output: &View, inplace: bool) -> bool {
        inputs.iter().enumerate().any(|(at, input)| {
            let is_pair = inplace
                && input.ptr() == output.ptr()
                && input.size_bytes() == output.size_bytes()
                && self.inplace.iter().any(|p| p.input == at && p.output == i);
            output.size() > 0 && input.size() > 0 && !is_pair && input.overlaps(output)
        })
    }

    /// Runs a native kernel on the calling thread.
    pub fn run_native(
        &self,
        ctx: &OpContext,
        state: Option<&OpState>,
        inputs: &[View],
        req: &[OpReq],
        outputs: &[View],
    ) -> Result<()> {
        let Some(place) = &self.on_device else {
            return self.run_on_views(ctx, state, inputs, req, outputs, None);
        };
        if !place.on_host {
            let ctx = OpContext { stream: Some(place.device.stream()), ..*ctx };
            return self.run_on_views(&ctx, state, inputs, req, outputs, Some(&place.device));
        }
        let staged = place.stage(&self.mutated, inputs, req, outputs)?;
        let (inputs, outputs) = staged.views().split_at(inputs.len());
        // It sees a call on the host.
        let ctx = OpContext { device: Context::default(), stream: None, ..*ctx };
        self.run_on_views(&ctx, state, inputs, req, outputs, None)?;
        staged.write_back()
    }

    /// As [`Prepared::run_native`], on views that the kernel can use: on `device`, or on the host.
    fn run_on_views(
        &self,
        ctx: &OpContext,
        state: Option<&OpState>,
        inputs: &[View],
        req: &[OpReq],
        outputs: &[View],
        device: Option<&Arc<Device>>,
    ) -> Result<()> {
        let plan: SmallVec<[(OpReq, After); 4]> = (req.iter().zip(outputs).enumerate())
            .map(|(i, (r, o))| self.arrange(i, *r, inputs, o))
            .collect();
        let asked: SmallVec<[OpReq; 4]> = plan.iter().map(|p| p.0).collect();
        let call = |outputs: &[View]| {
            let req = &asked;
            let attrs = &*self.attrs;
            let (memory, around) = (None, Around::NONE);
            self.call(Call { attrs, ctx, state, inputs, req, outputs, memory, around }, device)
        };
        if plan.iter().all(|p| p.1 == After::Nothing) {
            return call(outputs);
        }
        let temporaries = Temporaries::new(&plan, outputs, device)?;
        call(&temporaries.views)?;
        temporaries.complete(&plan, outputs)
    }

    /// Calls the kernel, which is not a callback, on `device` or on the host.
    #[inline]
    fn call(&self, call: Call<'_>, device: Option<&Arc<Device>>) -> Result<()> {
        match (&self.kernel.body, device) {
            (Body::Native(kernel), None) => kernel(&call),
            (Body::Native(kernel), Some(device)) => {
                run_issuing(device, |memory| kernel(&Call { memory, ..call }))
            }
            (Body::Device(kernel), Some(_)) => match &self.on_device {
                Some(place) => place.issue(kernel, &call),
                None => Err(Error::internal("a kernel for devices on the host")),
            },
            _ => Err(Error::internal("the kernel cannot run as a native one")),
        }
    }

    /// The requests for the kernel on these views if it needs no temporary: found once for views
    /// that stay, see [`Prepared::run_direct`] and [`Prepared::start_callback`].
    pub fn direct(
        &self,
        inputs: &[View],
        req: &[OpReq],
        outputs: &[View],
    ) -> Option<SmallVec<[OpReq; 4]>> {
        if self.on_device.as_ref().is_some_and(|place| place.on_host) {
            return None;
        }
        let arranged = req.iter().zip(outputs).enumerate();
        arranged
            .map(|(i, (r, o))| match self.arrange(i, *r, inputs, o) {
                (asked, After::Nothing) => Some(asked),
                _ => None,
            })
            .collect()
    }

    /// Runs a native kernel with requests from [`Prepared::direct`] on the same views.
    #[inline]
    pub fn run_direct(
        &self,
        ctx: &OpContext,
        state: Option<&OpState>,
        inputs: &[View],
        asked: &[OpReq],
        outputs: &[View],
        around: &Around<'_>,
    ) -> Result<()> {
        let Some(device) = self.computes_on() else {
            return self.run_around(ctx, state, inputs, asked, outputs, around);
        };
        let (attrs, req, memory) = (&*self.attrs, asked, None);
        let ctx = &OpContext { stream: Some(device.stream()), ..*ctx };
        self.call(Call { attrs, ctx, state, inputs, req, outputs, memory, around }, Some(device))
    }

    /// As [`Prepared::run_direct`], on the host, with work on the kernel's elements.
    #[inline]
    pub fn run_around(
        &self,
        ctx: &OpContext,
        state: Option<&OpState>,
        inputs: &[View],
        req: &[OpReq],
        outputs: &[View],
        around: &Around<'_>,
    ) -> Result<()> {
        let (attrs, memory) = (&*self.attrs, None);
        self.call(Call { attrs, ctx, state, inputs, req, outputs, memory, around }, None)
    }

    /// Records what [`Prepared::run_direct`] would issue on the device.
    pub fn record(
        &self,
        ctx: &OpContext,
        state: Option<&OpState>,
        (inputs, req, outputs): (&[View], &[OpReq], &[View]),
        to: (&Driver, Handle),
        memory: &on_device::Temporary<'_>,
    ) -> Result<()> {
        let (Body::Device(kernel), Some(place)) = (&self.kernel.body, &self.on_device) else {
            return Err(Error::internal("only kernels for devices can be recorded"));
        };
        let (attrs, ctx) = (&*self.attrs, &OpContext { stream: Some(to.1 as usize), ..*ctx });
        let call =
            Call { attrs, ctx, state, inputs, req, outputs, memory: None, around: Around::NONE };
        place.record(kernel, &call, to, memory)
    }

    /// Starts a callback kernel.
    pub fn start_callback(&self, mut callback: PendingCallback) {
        let device = match &self.on_device {
            Some(place) if place.on_host => return self.start_on_copies(place, callback),
            place => place.as_ref().map(|place| &place.device),
        };
        callback.call.ctx.stream = device.map(|device| device.stream());
        self.start_on_views(callback, device);
    }

    /// Starts a callback on host copies of its operands. It sees a call on the host.
    fn start_on_copies(&self, place: &OnDevice, callback: PendingCallback) {
        let PendingCallback { mut call, done, .. } = callback;
        let staged = match place.stage(&self.mutated, &call.inputs, &call.req, &call.outputs) {
            Ok(staged) => Arc::new(staged),
            Err(e) => return done(Err(e)),
        };
        let (given, written) = staged.views().split_at(call.inputs.len());
        (call.inputs, call.outputs) = (given.into(), written.into());
        (call.ctx.device, call.ctx.stream) = (Context::default(), None);
        let keep = call.keep.clone();
        call.keep = Arc::new((keep.clone(), staged.clone()));
        let done: Done = Box::new(move |result| {
            let result = result.and_then(|()| staged.write_back());
            drop(keep);
            done(result);
        });
        self.start_on_views(PendingCallback { call, direct: None, done }, None);
    }

    /// As [`Prepared::start_callback`], on views that the callback can use: on `device`, or on the
    /// host.
    fn start_on_views(&self, callback: PendingCallback, device: Option<&Arc<Device>>) {
        let PendingCallback { mut call, direct, done } = callback;
        let Body::Callback(kernel) = &self.kernel.body else {
            done(Err(Error::internal("a native kernel cannot start as a callback")));
            return;
        };
        if let Some(req) = direct {
            kernel.start(OwnedCall { req, ..call }, done);
            return;
        }
        let outputs = call.outputs.clone();
        let plan: SmallVec<[(OpReq, After); 4]> = (call.req.iter().zip(&*outputs).enumerate())
            .map(|(i, (r, o))| self.arrange(i, *r, &call.inputs, o))
            .collect();
        let temporaries = match Temporaries::new(&plan, &outputs, device) {
            Ok(temporaries) => Arc::new(temporaries),
            Err(e) => return done(Err(e)),
        };
        call.req = plan.iter().map(|p| p.0).collect();
        call.outputs = temporaries.views.clone();
        // The callback's operands may outlive the call: they keep real memory and temporaries
        // alike.
        let both: Arc<dyn Any + Send + Sync> = Arc::new((call.keep, temporaries.clone()));
        call.keep = both.clone();
        let complete = move |result: Result<()>| {
            let result = result.and_then(|()| temporaries.complete(&plan, &outputs));
            drop(both);
            done(result);
        };
        kernel.start(call, Box::new(complete));
    }
}

/// A call of a callback that is about to start.
pub struct PendingCallback {
    /// With the requests that the outputs have in the end.
    pub call: OwnedCall,
    /// From [`Prepared::direct`] on the same views.
    pub direct: Option<SmallVec<[OpReq; 4]>>,
    /// Called when the kernel has ended and the requests are completed.
    pub done: Done,
}

/// The run of a callback: part of its operation, and recorded by the profiler on the thread that
/// runs it.
pub struct Running {
    pub mark: Mark,
    pub base: Arc<Base>,
    /// The kind of calls that it belongs to, a bit of [`crate::profiler::mode`].
    pub mode: u32,
    pub op: Arc<OpDef>,
    pub attrs: Arc<Attrs>,
    pub node: Arc<str>,
    pub device: Context,
    /// Another callback of the same pass could run at the same time.
    pub has_peers: bool,
}

impl Within for Running {
    fn has_peers(&self) -> bool {
        self.has_peers
    }

    fn within(&self, f: &mut dyn FnMut()) {
        let Running { base, mode, op, attrs, node, device, .. } = self;
        let label = base.profiler.is_on(*mode).then(|| label(op, attrs));
        let _span = label.as_deref().and_then(|l| base.profiler.operator(*mode, l, node, *device));
        self.mark.inside(f);
    }
}

/// The name under which the profiler shows a call. An operator that stands for many (`Custom`)
/// shows the one that its parameter `op_type` chooses.
pub fn label<'a>(op: &'a OpDef, attrs: &Attrs) -> Cow<'a, str> {
    let chosen = attrs.given().iter().find(|(name, _)| name == "op_type");
    match chosen {
        Some((_, kind)) => op.name.replace("Custom", &kind.to_string()).into(),
        None => op.name.as_str().into(),
    }
}

/// Removes repeated variables, and from `reads` those that are written, as the engine requires.
pub fn distinct(reads: &mut SmallVec<[Var; 6]>, writes: &mut SmallVec<[Var; 6]>) {
    fn unique(vars: &mut SmallVec<[Var; 6]>, not: &[Var]) {
        let mut kept = 0;
        for i in 0..vars.len() {
            let var = vars[i];
            if !vars[..kept].contains(&var) && !not.contains(&var) {
                vars[kept] = var;
                kept += 1;
            }
        }
        vars.truncate(kept);
    }
    unique(writes, &[]);
    unique(reads, writes);
}
