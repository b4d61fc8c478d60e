//! One operator call on arrays: inference, output memory, and one push.

use super::call_outputs::{Shapes, Specs, Types, check_count, infer, outputs_for};
use super::call_site;
use super::inline::{self, Declined, Label};
use super::on_device::{CallOrigin, Issued};
use super::run::{PendingCallback, Prepared, Running, distinct, prepare};
use crate::context::Context;
use crate::cuda::Origin;
use crate::dtype::DType;
use crate::engine::{OnComplete, Prop, Push, Task, Var};
use crate::error::{Error, Result};
use crate::executor::Runtime;
use crate::ndarray::{Base, NDArray};
use crate::operator::{Alone, Attrs, OpContext, OpDef, OpReq, OpState, OwnedCall, RandomKey};
use crate::profiler::{Carried, mode};
use crate::shape::Shape;
use crate::tensor::View;
use smallvec::SmallVec;
use std::sync::Arc;

/// The circumstances of a call.
#[derive(Clone, Default)]
pub struct Invoke<'a> {
    /// The device of a call without inputs.
    pub ctx: Context,
    pub is_train: bool,
    pub recording: bool,
    /// Name of the call in errors; may be empty.
    pub name: &'a str,
    /// What a backward call shares with its forward call.
    pub state: Option<&'a CallState>,
    /// Shapes and dtypes of the outputs of a backward operator: those of the forward call's inputs.
    pub like: Option<&'a [(Shape, DType)]>,
    /// Requests per output; all `Write` if absent.
    pub req: Option<&'a [OpReq]>,
    /// Why an attempt to run the call inline declined; `None` if none was made.
    pub declined: Option<Declined>,
}

/// The state of a recorded call, with an array of no elements whose variable orders its users.
#[derive(Clone)]
pub struct CallState {
    pub state: OpState,
    pub order: NDArray,
    /// Does the state belong to code outside of the core?
    pub is_of_callback: bool,
}

/// The result of a call.
pub struct Outcome {
    /// All outputs, hidden ones too.
    pub outputs: SmallVec<[NDArray; 1]>,
    pub visible: usize,
    pub state: Option<CallState>,
}

/// Runs `op` on `inputs`, into `out` (the visible outputs) if given. Errors of arguments are raised
/// here; errors of the run travel along the outputs.
pub fn call(
    rt: &Arc<Runtime>,
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[&NDArray],
    out: Option<&[&NDArray]>,
    how: &Invoke<'_>,
) -> Result<Outcome> {
    start(rt, op, attrs, inputs, out, how).map_err(|e| e.at_node(&op.name, how.name))
}

fn start(
    rt: &Arc<Runtime>,
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[&NDArray],
    out: Option<&[&NDArray]>,
    how: &Invoke<'_>,
) -> Result<Outcome> {
    check_count(op, attrs, inputs.len())?;
    let given = out.unwrap_or(&[]);
    let device = device_of(inputs, given, how.ctx)?;
    check_usable(op, attrs, inputs, given)?;
    if given.is_empty() && op.continues.as_ref().is_some_and(|continues| continues(attrs)) {
        return Err(Error::value("no array to continue from: expected out="));
    }
    let specs = match how.like {
        Some(like) => like.into(),
        None => {
            let mut shapes: Shapes = inputs.iter().map(|a| a.shape().clone()).collect();
            let mut types: Types = inputs.iter().map(|a| Some(a.dtype())).collect();
            infer(op, attrs, &mut shapes, &mut types, given)?
        }
    };
    let visible = if op.is_backward { specs.len() } else { op.num_visible_outputs(attrs) };
    let outputs = outputs_for(rt, &specs, visible, out, device)?;
    let tensors = || {
        let given = inputs.iter().map(|a| (a.dtype(), a.shape().ndim()));
        given.chain(specs.iter().map(|(shape, dtype)| (*dtype, shape.ndim())))
    };
    let prepared = prepare(rt, op, attrs, device, (inputs.len(), tensors))?;
    let state = match how.state {
        Some(state) => Some(state.clone()),
        None => new_state(rt, &prepared, inputs, device)?,
    };
    let ctx = OpContext {
        is_train: how.is_train,
        need_grad: how.recording,
        device,
        stream: None,
        random: random_key(rt, &prepared, inputs, &specs, device)?,
    };
    let req = match how.req {
        Some(req) => req.into(),
        None => SmallVec::from_elem(OpReq::Write, outputs.len()),
    };
    let state_of = state.as_ref();
    let work = Work { prepared, ctx, req, inputs, outputs: &outputs, state: state_of };
    work.dispatch(rt, how)?;
    Ok(Outcome { outputs, visible, state })
}

/// The device of a call: that of its inputs, else of the outputs given, which must all be on it.
#[inline]
fn device_of(inputs: &[&NDArray], given: &[&NDArray], default: Context) -> Result<Context> {
    let device = match (inputs.first(), given.first()) {
        (Some(input), _) => input.context(),
        (None, Some(output)) if !output.context().shares_memory(default) => output.context(),
        _ => default,
    };
    for (what, arrays) in [("input", inputs), ("output", given)] {
        if let Some(i) = arrays.iter().position(|a| !a.context().shares_memory(device)) {
            return Err(elsewhere(what, i, arrays[i], device));
        }
    }
    Ok(device)
}

/// An error if an array may not be read, or not be written where the call writes it.
#[inline]
fn check_usable(op: &OpDef, attrs: &Attrs, inputs: &[&NDArray], given: &[&NDArray]) -> Result<()> {
    inputs.iter().try_for_each(|a| a.usable())?;
    given.iter().try_for_each(|a| a.writable())?;
    let writable = |i: &usize| inputs.get(*i).map_or(Ok(()), |a| a.writable());
    op.mutates.with(attrs, |mutated| mutated.iter().try_for_each(writable))
}

/// The state of a call of a stateful operator.
#[inline]
fn new_state(
    rt: &Arc<Runtime>,
    prepared: &Prepared<'_>,
    inputs: &[&NDArray],
    device: Context,
) -> Result<Option<CallState>> {
    let Some(make) = &prepared.op.state else { return Ok(None) };
    let shapes: Vec<_> = inputs.iter().map(|a| a.shape().clone()).collect();
    let types: Vec<_> = inputs.iter().map(|a| a.dtype()).collect();
    let state = make(&prepared.attrs, device, &shapes, &types)?;
    let order = NDArray::pending(rt, &Shape::new(&[0]), DType::U8, device)?;
    Ok(Some(CallState { state, order, is_of_callback: prepared.is_callback() }))
}

/// The random numbers of a call, if it asks for some.
#[inline]
fn random_key(
    rt: &Runtime,
    prepared: &Prepared<'_>,
    inputs: &[&NDArray],
    specs: &Specs,
    device: Context,
) -> Result<RandomKey> {
    let shapes = || {
        let inputs = inputs.iter().map(|a| a.shape().clone()).collect();
        (inputs, specs.iter().map(|spec| spec.0.clone()).collect())
    };
    Ok(match prepared.op.wants_random(&prepared.attrs, shapes)? {
        true => rt.random.reserve(device),
        false => RandomKey::NONE,
    })
}

/// The error of an array that is not on the device of the call.
#[cold]
fn elsewhere(what: &str, i: usize, array: &NDArray, device: Context) -> Error {
    let got = array.context();
    Error::value(format!(
        "{what} {i} is on {got}, expected it on {device}: copy it with as_in_context"
    ))
}

/// A call that is ready to run.
struct Work<'a> {
    prepared: Prepared<'a>,
    ctx: OpContext,
    req: SmallVec<[OpReq; 1]>,
    inputs: &'a [&'a NDArray],
    outputs: &'a [NDArray],
    state: Option<&'a CallState>,
}

/// A call that runs later, with everything it needs.
struct Queued {
    prepared: Prepared<'static>,
    ctx: OpContext,
    req: SmallVec<[OpReq; 1]>,
    inputs: SmallVec<[NDArray; 4]>,
    outputs: SmallVec<[NDArray; 1]>,
    state: Option<CallState>,
    /// The name of the call; may be empty.
    node: Arc<str>,
    base: Arc<Base>,
    scope: Carried,
}

type Views = SmallVec<[View; 2]>;

fn views<'a>(arrays: impl Iterator<Item = &'a NDArray>) -> Result<Views> {
    arrays.map(NDArray::view).collect()
}

impl Work<'_> {
    /// Runs the call inline if possible and not tried before, else pushes it.
    fn dispatch(self, rt: &Arc<Runtime>, how: &Invoke<'_>) -> Result<()> {
        let declined = match &how.declined {
            Some(declined) => declined.clone(),
            None => match self.run_inline(rt, how) {
                Ok(()) => return Ok(()),
                Err(declined) => declined,
            },
        };
        self.push(rt, how, declined)
    }

    fn run_inline(&self, rt: &Arc<Runtime>, how: &Invoke<'_>) -> Result<(), Declined> {
        let elems = self.inputs.iter().copied().chain(self.outputs).map(NDArray::size).sum();
        let is_alone = self.prepared.alone(self.ctx.device, || elems) == Alone::Always;
        if is_alone || self.prepared.on_device.is_some() {
            return Err(Declined::NotInline);
        }
        let (profiler, device) = (&*rt.profiler, self.ctx.device);
        let label = Label { profiler, name: &self.prepared.op.name, node: how.name, device };
        inline::run(label, self.inputs, &self.written(), elems, || self.run())
    }

    fn run(&self) -> Result<()> {
        let (inputs, outputs) = (views(self.inputs.iter().copied())?, views(self.outputs.iter())?);
        let state = self.state.map(|s| &s.state);
        self.prepared.run_native(&self.ctx, state, &inputs, &self.req, &outputs)
    }

    /// Arrays that are written: outputs, modified inputs, the state's token.
    fn written(&self) -> SmallVec<[&NDArray; 6]> {
        let mutated = self.prepared.mutated.iter().filter_map(|&i| self.inputs.get(i).copied());
        let token = self.state.map(|s| &s.order);
        self.outputs.iter().chain(mutated).chain(token).collect()
    }

    /// Pushes the call. One that failed inline is pushed as an operation that fails with that
    /// error.
    fn push(self, rt: &Arc<Runtime>, how: &Invoke<'_>, declined: Declined) -> Result<()> {
        let mut reads: SmallVec<[Var; 6]> = self.inputs.iter().map(|a| a.var()).collect();
        let (mut writes, overwrites) = self.write_vars();
        distinct(&mut reads, &mut writes);
        let callback = self.prepared.is_callback();
        let op = Arc::clone(&self.prepared.op);
        let push = Push {
            ctx: self.ctx.device,
            overwrites,
            prop: if callback { Prop::Async } else { Prop::Normal },
            run_on: declined.run_on(),
            call_site: Some(&call_site::current),
            ..Push::new(&op.name, &reads, &writes)
        };
        let queued = Queued {
            prepared: self.prepared.owned(),
            ctx: self.ctx,
            req: self.req,
            inputs: self.inputs.iter().map(|&a| a.clone()).collect(),
            outputs: self.outputs.into(),
            state: self.state.cloned(),
            node: how.name.into(),
            base: Arc::clone(rt),
            scope: rt.profiler.carry_scope(),
        };
        let task = match declined {
            Declined::Failed(error) => inline::failed(queued.place(error)),
            _ if callback => Task::asynchronous(move |_, done| queued.start(done)),
            _ => Task::sync(move |_| queued.run().map_err(|e| queued.place(e))),
        };
        rt.engine.push(task, push)
    }

    /// The variables written, those overwritten whole and not read first.
    fn write_vars(&self) -> (SmallVec<[Var; 6]>, usize) {
        let (mut whole, mut partly) = (SmallVec::<[Var; 6]>::new(), SmallVec::<[Var; 6]>::new());
        for (i, a) in self.written().into_iter().enumerate() {
            let is_output = i < self.outputs.len();
            let read = self.inputs.iter().any(|b| b.same_chunk(a));
            if is_output && a.is_whole() && !read && self.req[i].overwrites() {
                if !whole.contains(&a.var()) {
                    whole.push(a.var());
                }
            } else {
                partly.push(a.var());
            }
        }
        partly.retain(|v| !whole.contains(v));
        let overwrites = whole.len();
        whole.extend(partly);
        (whole, overwrites)
    }
}

impl Queued {
    fn origin(&self) -> CallOrigin {
        CallOrigin { op: Arc::clone(&self.prepared.op), node: Arc::clone(&self.node) }
    }

    /// Names operator and node on an error of this call.
    fn place(&self, error: Error) -> Error {
        self.origin().place(0, error)
    }

    fn run(&self) -> Result<()> {
        let (name, device) = (&self.prepared.op.name, self.ctx.device);
        let _span = self.base.profiler.operator(mode::IMPERATIVE, name, &self.node, device);
        let _scope = self.scope.enter();
        let (inputs, outputs) = (views(self.inputs.iter())?, views(self.outputs.iter())?);
        let state = self.state.as_ref().map(|s| &s.state);
        self.prepared.run_native(&self.ctx, state, &inputs, &self.req, &outputs)?;
        let written = self.written().cloned().collect();
        self.device_work(written).map_or(Ok(()), Issued::end)
    }

    /// Outputs and modified inputs.
    fn written(&self) -> impl Iterator<Item = &NDArray> {
        let mutated = self.prepared.mutated.iter().filter_map(|&i| self.inputs.get(i));
        self.outputs.iter().chain(mutated)
    }

    /// What a call that computes on a device leaves to be done once it has issued its work.
    fn device_work(&self, written: SmallVec<[NDArray; 1]>) -> Option<Issued> {
        let device = self.prepared.computes_on()?.clone();
        Some(Issued { device, origin: Arc::new(self.origin()), number: 0, written })
    }

    fn start(self, done: OnComplete) {
        let _scope = self.scope.enter();
        let both = views(self.inputs.iter()).and_then(|i| Ok((i, views(self.outputs.iter())?)));
        let (inputs, outputs) = match both {
            Ok(both) => both,
            Err(e) => return done.complete(Err(self.place(e))),
        };
        let origin = self.origin();
        let state = self.state.as_ref().map(|s| s.state.clone());
        let issued = self.device_work(self.written().cloned().collect());
        let within = Arc::new(Running {
            mark: done.mark(),
            base: self.base,
            mode: mode::IMPERATIVE,
            op: Arc::clone(&self.prepared.op),
            attrs: Arc::clone(&self.prepared.attrs),
            node: Arc::clone(&self.node),
            device: self.ctx.device,
            has_peers: false,
        });
        let end = move |result: Result<()>| {
            let result = result.and_then(|()| issued.map_or(Ok(()), Issued::end));
            done.complete(result.map_err(|e| origin.place(0, e)));
        };
        let direct = self.prepared.direct(&inputs, &self.req, &outputs);
        let call = OwnedCall {
            attrs: Arc::clone(&self.prepared.attrs),
            ctx: self.ctx,
            state,
            inputs: inputs.into_vec().into(),
            mutated: self.prepared.mutated.clone(),
            req: self.req.as_slice().into(),
            outputs: outputs.into_vec().into(),
            keep: Arc::new((self.inputs, self.outputs)),
            within,
        };
        self.prepared.start_callback(PendingCallback { call, direct, done: Box::new(end) });
    }
}
