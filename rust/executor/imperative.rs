//! One operator call on arrays: inference, output memory, and one push.

use super::call_site;
use super::inline::{self, Declined, Label};
use super::on_device::{CallOrigin, Issued};
use super::run::{Prepared, Running, distinct, prepare};
use crate::context::{Context, DeviceType};
use crate::dtype::DType;
use crate::engine::{OnComplete, Prop, Push, Task, Var};
use crate::error::{Error, Result};
use crate::executor::Runtime;
use crate::ndarray::{Base, NDArray};
use crate::operator::{Attrs, MatchFacts, OpContext, OpDef, OpReq, OpState};
use crate::profiler::{Carried, mode};
use crate::shape::Shape;
use crate::tensor::View;
use smallvec::SmallVec;
use std::sync::Arc;

/// Inputs that the error of a wrong number of inputs names, at most.
const MOST_NAMED: usize = 12;

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
    let n_inputs = op.num_inputs(attrs);
    if inputs.len() != n_inputs && !op.is_backward {
        let got = inputs.len();
        let names = op.inputs(attrs);
        let names = names[..names.len().min(MOST_NAMED)].join(", ");
        return Err(Error::value(format!(
            "invalid number of inputs {got}: expected {n_inputs}: {names}"
        )));
    }
    let given = out.unwrap_or(&[]);
    let device = match (inputs.first(), given.first()) {
        (Some(input), _) => input.context(),
        (None, Some(output)) if !output.context().shares_memory(how.ctx) => output.context(),
        _ => how.ctx,
    };
    if let Some(i) = inputs.iter().position(|a| !a.context().shares_memory(device)) {
        return Err(elsewhere("input", i, inputs[i], device));
    }
    if let Some(i) = given.iter().position(|a| !a.context().shares_memory(device)) {
        return Err(elsewhere("output", i, given[i], device));
    }
    inputs.iter().try_for_each(|a| a.usable())?;
    given.iter().try_for_each(|a| a.writable())?;
    let writable = |i: &usize| inputs.get(*i).map_or(Ok(()), |a| a.writable());
    op.mutates.with(attrs, |mutated| mutated.iter().try_for_each(writable))?;
    let specs = match how.like {
        Some(like) => like.into(),
        None => {
            let mut shapes: Shapes = inputs.iter().map(|a| a.shape().clone()).collect();
            let mut types: Types = inputs.iter().map(|a| Some(a.dtype())).collect();
            infer(op, attrs, &mut shapes, &mut types, out.unwrap_or(&[]))?
        }
    };
    let visible = if op.is_backward { specs.len() } else { op.num_visible_outputs(attrs) };
    let outputs = outputs_for(rt, &specs, visible, out, device)?;
    let tensors = || {
        let given = inputs.iter().map(|a| (a.dtype(), a.shape().ndim()));
        given.chain(specs.iter().map(|(shape, dtype)| (*dtype, shape.ndim())))
    };
    let prepared = prepare(rt, op, attrs, device, tensors)?;
    let state = match (how.state, &op.state) {
        (Some(state), _) => Some(state.clone()),
        (None, Some(make)) => {
            let shapes: Vec<_> = inputs.iter().map(|a| a.shape().clone()).collect();
            let types: Vec<_> = inputs.iter().map(|a| a.dtype()).collect();
            let state = make(attrs, device, &shapes, &types)?;
            let order = NDArray::pending(rt, &Shape::new(&[0]), DType::U8, device)?;
            let is_of_callback = prepared.is_callback();
            Some(CallState { state, order, is_of_callback })
        }
        (None, None) => None,
    };
    let shapes = || {
        let inputs = inputs.iter().map(|a| a.shape().clone()).collect();
        (inputs, specs.iter().map(|spec| spec.0.clone()).collect())
    };
    let random = match op.wants_random(attrs, shapes)? {
        true => rt.random.reserve(device),
        false => Default::default(),
    };
    let work = Work {
        prepared,
        ctx: OpContext {
            is_train: how.is_train,
            need_grad: how.recording,
            device,
            stream: None,
            random,
        },
        req: match how.req {
            Some(req) => req.into(),
            None => SmallVec::from_elem(OpReq::Write, outputs.len()),
        },
        inputs,
        outputs: &outputs,
        state: state.as_ref(),
    };
    work.dispatch(rt, how)?;
    Ok(Outcome { outputs, visible, state })
}

/// The error of an array that is not on the device of the call.
#[cold]
fn elsewhere(what: &str, i: usize, array: &NDArray, device: Context) -> Error {
    let got = array.context();
    Error::value(format!(
        "{what} {i} is on {got}, expected it on {device}: copy it with as_in_context"
    ))
}

type Specs = SmallVec<[(Shape, DType); 1]>;

type Shapes = SmallVec<[Shape; 2]>;

type Types = SmallVec<[Option<DType>; 4]>;

/// Shapes and dtypes of all outputs, of which some may be `given`.
#[inline]
fn infer(
    op: &OpDef,
    attrs: &Attrs,
    in_shapes: &mut [Shape],
    in_types: &mut [Option<DType>],
    given: &[&NDArray],
) -> Result<Specs> {
    if op.is_backward && op.infer_shape.is_none() {
        return Err(Error::value("a backward operator runs only for a forward call"));
    }
    let n_outputs = op.num_outputs(attrs);
    let mut out_types: Types = SmallVec::from_elem(None, n_outputs);
    if let Some(rule) = &op.infer_both {
        let mut out_shapes: Shapes = (0..n_outputs).map(|_| Shape::unknown()).collect();
        rule(attrs, (in_shapes, in_types), (&mut out_shapes, &mut out_types))?;
        return known_specs(out_shapes, out_types);
    }
    let known = match &op.infer_type {
        Some(infer) => infer(attrs, in_types, &mut out_types)?,
        None => crate::operator::infer::same_type(attrs, in_types, &mut out_types)?,
    };
    if !known && out_types.iter().any(Option::is_none) {
        // Only outputs that the caller passed can still determine it.
        for (slot, a) in out_types.iter_mut().zip(given) {
            slot.get_or_insert(a.dtype());
        }
    }
    // Outputs are inferred from the inputs alone first: only then is it the given output that is
    // wrong.
    let mut out_shapes: Shapes = (0..n_outputs).map(|_| Shape::unknown()).collect();
    let rule = op.infer_shape.as_ref().ok_or_else(|| {
        Error::not_implemented("the operator does not say the shapes of its outputs")
    })?;
    let complete = rule(attrs, in_shapes, &mut out_shapes)?;
    if !complete && !out_shapes.iter().all(Shape::is_known) {
        for (i, shape) in out_shapes.iter_mut().enumerate() {
            *shape = given.get(i).map_or(Shape::unknown(), |a| a.shape().clone());
        }
        rule(attrs, in_shapes, &mut out_shapes)?;
    }
    known_specs(out_shapes, out_types)
}

fn known_specs(shapes: Shapes, types: Types) -> Result<Specs> {
    let mut specs = Specs::new();
    for (i, (shape, dtype)) in shapes.into_iter().zip(types).enumerate() {
        let Some(dtype) = dtype else {
            return Err(Error::type_(format!("the dtype of output {i} cannot be inferred")));
        };
        if !shape.is_known() {
            return Err(Error::value(format!(
                "the shape {shape} of output {i} cannot be inferred"
            )));
        }
        specs.push((shape, dtype));
    }
    Ok(specs)
}

/// Shapes and dtypes of the outputs of a call on inputs of these.
pub fn infer_outputs(
    op: &OpDef,
    attrs: &Attrs,
    inputs: &[(Shape, DType)],
) -> Result<Vec<(Shape, DType)>> {
    let mut shapes: Shapes = inputs.iter().map(|i| i.0.clone()).collect();
    let mut types: Types = inputs.iter().map(|i| Some(i.1)).collect();
    let outputs = infer(op, attrs, &mut shapes, &mut types, &[]);
    Ok(outputs.map_err(|e| e.in_operator(&op.name))?.into_vec())
}

/// For every kernel of `op`, a line that says whether it would run on inputs of these shapes and
/// dtypes, and why.
pub fn explain_kernels(
    op: &OpDef,
    attrs: &Attrs,
    inputs: &[(Shape, DType)],
    device: DeviceType,
) -> Result<String> {
    let outputs = infer_outputs(op, attrs, inputs)?;
    let names: Vec<_> = op.inputs(attrs).into_iter().chain(op.outputs(attrs)).collect();
    let tensors = names.iter().zip(inputs.iter().chain(&outputs));
    let tensors: Vec<_> =
        tensors.map(|(name, (s, dtype))| (name.as_str(), *dtype, s.ndim())).collect();
    let facts = MatchFacts { device, attrs, tensors: &tensors };
    Ok(op.explain_kernels(&facts).join("\n"))
}

fn outputs_for(
    rt: &Arc<Runtime>,
    specs: &[(Shape, DType)],
    visible: usize,
    out: Option<&[&NDArray]>,
    device: Context,
) -> Result<SmallVec<[NDArray; 1]>> {
    if let Some(out) = out {
        if out.len() != visible && out.len() != specs.len() {
            return Err(Error::invalid("number of arrays in out", out.len(), visible));
        }
        for (i, (a, (shape, dtype))) in out.iter().zip(specs).enumerate() {
            if a.shape() != shape {
                return Err(Error::value(format!(
                    "output {i} has shape {}, expected {shape}",
                    a.shape()
                )));
            }
            if a.dtype() != *dtype {
                return Err(Error::type_(format!(
                    "output {i} has dtype {}, expected {dtype}",
                    a.dtype()
                )));
            }
        }
    }
    specs
        .iter()
        .enumerate()
        .map(|(i, (shape, dtype))| match out.and_then(|o| o.get(i)) {
            Some(a) => Ok((*a).clone()),
            None => NDArray::pending(rt, shape, *dtype, device),
        })
        .collect()
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
        if self.prepared.is_callback() || self.prepared.on_device.is_some() {
            return Err(Declined::NotInline);
        }
        let elems = self.inputs.iter().copied().chain(self.outputs).map(NDArray::size).sum();
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
            cheap: !matches!(declined, Declined::NotInline),
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
            Declined::Failed(error) => {
                let error = queued.place(error);
                Task::sync(move |_| Err(error))
            }
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
    /// Names operator and node on an error of this call.
    fn place(&self, error: Error) -> Error {
        error.at_node(&self.prepared.op.name, &self.node)
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
        let origin = CallOrigin { op: Arc::clone(&self.prepared.op), node: self.node.clone() };
        Some(Issued { device, origin: Arc::new(origin), number: 0, written })
    }

    fn start(self, done: OnComplete) {
        let _scope = self.scope.enter();
        let both = views(self.inputs.iter()).and_then(|i| Ok((i, views(self.outputs.iter())?)));
        let (inputs, outputs) = match both {
            Ok(both) => both,
            Err(e) => return done.complete(Err(self.place(e))),
        };
        let state = self.state.as_ref().map(|s| s.state.clone());
        let issued = self.device_work(self.written().cloned().collect());
        let within = Box::new(Running {
            mark: done.mark(),
            base: self.base,
            mode: mode::IMPERATIVE,
            op: Arc::clone(&self.prepared.op),
            attrs: Arc::clone(&self.prepared.attrs),
            node: Arc::clone(&self.node),
            device: self.ctx.device,
            has_peers: false,
        });
        let (op, node) = (Arc::clone(&self.prepared.op), self.node);
        let end = move |result: Result<()>| {
            let result = result.and_then(|()| issued.map_or(Ok(()), Issued::end));
            done.complete(result.map_err(|e| e.at_node(&op.name, &node)));
        };
        let keep = Arc::new((self.inputs, self.outputs));
        let direct = self.prepared.direct(&inputs, &self.req, &outputs);
        self.prepared.start_callback(
            self.ctx,
            state,
            inputs.into_vec().into(),
            &self.req,
            direct,
            outputs.into_vec().into(),
            keep,
            within,
            Box::new(end),
        );
    }
}
