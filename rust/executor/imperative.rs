//! One operator call on arrays: inference, output memory, and one push.

use super::run::{Prepared, distinct, prepare};
use crate::context::Context;
use crate::dtype::DType;
use crate::engine::{OnComplete, Prop, Push, Task, Var};
use crate::error::{Error, Result};
use crate::ndarray::{NDArray, Runtime, with_quiet};
use crate::operator::{Attrs, OpContext, OpDef, OpReq, OpState};
use crate::shape::Shape;
use crate::tensor::View;
use smallvec::SmallVec;
use std::sync::Arc;

/// Calls on at most so many elements (inputs and outputs together) take some microseconds: they run on
/// the thread that pushes them.
pub const CHEAP_ELEMS: usize = 4096;
/// Calls on at most so many elements are far shorter than a task.
pub const TINY_ELEMS: usize = 512;

/// The circumstances of a call.
#[derive(Clone, Copy, Default)]
pub struct Invoke<'a> {
    /// The device of a call without inputs.
    pub ctx: Context,
    pub is_train: bool,
    pub recording: bool,
    /// Name of the call in errors; may be empty.
    pub name: &'a str,
    /// The user's line.
    pub origin: Option<&'a dyn Fn() -> Option<Arc<str>>>,
    /// What a backward call shares with its forward call.
    pub state: Option<&'a CallState>,
    /// Shapes and dtypes of the outputs of a backward operator: those of the forward call's inputs.
    pub like: Option<&'a [(Shape, DType)]>,
    /// Requests per output; all `Write` if absent.
    pub req: Option<&'a [OpReq]>,
}

/// The state of a recorded call, with an array of no elements whose variable orders its users.
#[derive(Clone)]
pub struct CallState {
    pub state: OpState,
    pub order: NDArray,
}

/// What a call gave.
pub struct Outcome {
    /// All outputs, hidden ones too.
    pub outputs: SmallVec<[NDArray; 1]>,
    pub visible: usize,
    pub state: Option<CallState>,
}

/// Runs `op` on `inputs`: visible outputs only. See [`call`].
pub fn invoke(
    rt: &Arc<Runtime>,
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[NDArray],
    out: Option<&[NDArray]>,
    how: &Invoke<'_>,
) -> Result<SmallVec<[NDArray; 1]>> {
    let mut outcome = call(rt, op, attrs, inputs, out, how)?;
    outcome.outputs.truncate(outcome.visible);
    Ok(outcome.outputs)
}

/// Runs `op` on `inputs`, into `out` (the visible outputs) if given. Errors of arguments are raised
/// here; errors of the run travel along the outputs.
pub fn call(
    rt: &Arc<Runtime>,
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[NDArray],
    out: Option<&[NDArray]>,
    how: &Invoke<'_>,
) -> Result<Outcome> {
    start(rt, op, attrs, inputs, out, how).map_err(|e| e.in_operator(&op.name).in_node(how.name))
}

fn start(
    rt: &Arc<Runtime>,
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[NDArray],
    out: Option<&[NDArray]>,
    how: &Invoke<'_>,
) -> Result<Outcome> {
    let n_inputs = op.num_inputs(attrs);
    if inputs.len() != n_inputs && !op.is_backward {
        let name = &op.name;
        let got = inputs.len();
        return Err(Error::value(format!(
            "Operator {name} expects {n_inputs} inputs, but got {got} instead."
        )));
    }
    let device = inputs.first().map_or(how.ctx, NDArray::context);
    if let Some(i) = inputs.iter().position(|a| a.context().is_host() != device.is_host()) {
        let got = inputs[i].context();
        return Err(Error::value(format!("input {i} is on {got}, expected it on {device}")));
    }
    inputs.iter().try_for_each(NDArray::usable)?;
    for array in out.unwrap_or(&[]) {
        array.writable()?;
    }
    for i in op.mutated_inputs(attrs) {
        inputs.get(i).map_or(Ok(()), NDArray::writable)?;
    }
    let specs = infer(op, attrs, inputs, out, how)?;
    let visible = if op.is_backward { specs.len() } else { op.num_visible_outputs(attrs) };
    let outputs = outputs_for(rt, &specs, visible, out, device)?;
    let in_specs: SmallVec<[(Shape, DType); 4]> =
        inputs.iter().map(|a| (a.shape().clone(), a.dtype())).collect();
    let prepared = prepare(op, attrs, device, &in_specs, &specs)?;
    let state = match (how.state, &op.state) {
        (Some(state), _) => Some(state.clone()),
        (None, Some(make)) => {
            let shapes: Vec<_> = in_specs.iter().map(|s| s.0.clone()).collect();
            let types: Vec<_> = in_specs.iter().map(|s| s.1).collect();
            let state = make(attrs, device, &shapes, &types)?;
            let order = NDArray::pending(rt, &Shape::new(&[0]), DType::U8, device)?;
            Some(CallState { state, order })
        }
        (None, None) => None,
    };
    let random = if prepared.wants_random { rt.random.reserve(device) } else { Default::default() };
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
        inputs: inputs.into(),
        outputs: outputs.clone(),
        state: state.clone(),
    };
    dispatch(rt, work, how)?;
    Ok(Outcome { outputs, visible, state })
}

type Specs = SmallVec<[(Shape, DType); 4]>;

/// Shapes and dtypes of all outputs.
fn infer(
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[NDArray],
    out: Option<&[NDArray]>,
    how: &Invoke<'_>,
) -> Result<Specs> {
    if let Some(like) = how.like {
        return Ok(like.into());
    }
    if op.is_backward && op.infer_shape.is_none() {
        return Err(Error::value("a backward operator runs only for a forward call"));
    }
    let n_outputs = op.num_outputs(attrs);
    let given = out.unwrap_or(&[]);
    let mut in_shapes: SmallVec<[Shape; 4]> = inputs.iter().map(|a| a.shape().clone()).collect();
    let mut out_shapes: SmallVec<[Shape; 4]> = (0..n_outputs)
        .map(|i| given.get(i).map_or(Shape::unknown(), |a| a.shape().clone()))
        .collect();
    let mut in_types: SmallVec<[Option<DType>; 4]> =
        inputs.iter().map(|a| Some(a.dtype())).collect();
    let mut out_types: SmallVec<[Option<DType>; 4]> = SmallVec::from_elem(None, n_outputs);
    let known = match &op.infer_type {
        Some(infer) => infer(attrs, &mut in_types, &mut out_types)?,
        None => crate::operator::infer::same_type(attrs, &mut in_types, &mut out_types)?,
    };
    if !known && out_types.iter().any(Option::is_none) {
        // Only the outputs the caller gave can still tell.
        for (slot, a) in out_types.iter_mut().zip(given) {
            slot.get_or_insert(a.dtype());
        }
    }
    // Outputs are inferred from the inputs alone first: only then is it the given output that is wrong.
    let mut fresh: SmallVec<[Shape; 4]> = SmallVec::from_elem(Shape::unknown(), n_outputs);
    let rule = op.infer_shape.as_ref().ok_or_else(|| {
        Error::not_implemented("the operator does not say the shapes of its outputs")
    })?;
    let complete = rule(attrs, &mut in_shapes, &mut fresh)?;
    if complete || fresh.iter().all(Shape::is_known) {
        out_shapes = fresh;
    } else {
        rule(attrs, &mut in_shapes, &mut out_shapes)?;
    }
    let mut specs = Specs::new();
    for (i, (shape, dtype)) in out_shapes.into_iter().zip(out_types).enumerate() {
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

fn outputs_for(
    rt: &Arc<Runtime>,
    specs: &[(Shape, DType)],
    visible: usize,
    out: Option<&[NDArray]>,
    device: Context,
) -> Result<SmallVec<[NDArray; 1]>> {
    if let Some(out) = out {
        if out.len() != visible && out.len() != specs.len() {
            return Err(Error::value(format!("out has {} arrays, expected {visible}", out.len())));
        }
        for (i, (a, (shape, dtype))) in out.iter().zip(specs).enumerate() {
            if a.shape() != shape {
                return Err(Error::value(format!(
                    "{i}-th output has invalid shape. Expecting {shape} got {}",
                    a.shape()
                )));
            }
            if a.dtype() != *dtype {
                return Err(Error::type_(format!(
                    "{i}-th output has invalid dtype. Expecting {dtype} got {}",
                    a.dtype()
                )));
            }
        }
    }
    specs
        .iter()
        .enumerate()
        .map(|(i, (shape, dtype))| match out.and_then(|o| o.get(i)) {
            Some(a) => Ok(a.clone()),
            None => NDArray::pending(rt, shape, *dtype, device),
        })
        .collect()
}

/// A call that is ready to run.
#[derive(Clone)]
struct Work {
    prepared: Prepared,
    ctx: OpContext,
    req: SmallVec<[OpReq; 1]>,
    inputs: SmallVec<[NDArray; 4]>,
    outputs: SmallVec<[NDArray; 1]>,
    state: Option<CallState>,
}

impl Work {
    fn views(arrays: &[NDArray]) -> Result<SmallVec<[View; 4]>> {
        arrays.iter().map(NDArray::view).collect()
    }

    fn run(&self) -> Result<()> {
        let (inputs, outputs) = (Self::views(&self.inputs)?, Self::views(&self.outputs)?);
        let state = self.state.as_ref().map(|s| &s.state);
        self.prepared.run_native(&self.ctx, state, &inputs, &self.req, &outputs)
    }

    fn start(self, done: OnComplete) {
        let views = Self::views(&self.inputs).and_then(|i| Ok((i, Self::views(&self.outputs)?)));
        let (inputs, outputs) = match views {
            Ok(views) => views,
            Err(e) => return done.complete(Err(e)),
        };
        let state = self.state.as_ref().map(|s| s.state.clone());
        let keep = Arc::new((self.inputs, self.outputs));
        self.prepared.start_callback(
            self.ctx,
            state,
            inputs.into_vec(),
            &self.req,
            outputs.into_vec(),
            keep,
            Box::new(move |result| done.complete(result)),
        );
    }

    /// Arrays that are written: outputs, modified inputs, the state's token.
    fn written(&self) -> SmallVec<[&NDArray; 6]> {
        let mutated = self.prepared.mutated.iter().filter_map(|&i| self.inputs.get(i));
        let token = self.state.as_ref().map(|s| &s.order);
        self.outputs.iter().chain(mutated).chain(token).collect()
    }

    fn elems(&self) -> usize {
        self.inputs.iter().chain(&self.outputs).map(NDArray::size).sum()
    }
}

fn dispatch(rt: &Arc<Runtime>, work: Work, how: &Invoke<'_>) -> Result<()> {
    let callback = work.prepared.is_callback();
    let elems = work.elems();
    let cheap = elems <= CHEAP_ELEMS && !callback;
    let mut failed = None;
    if cheap {
        let writes = work.written();
        let reads: SmallVec<[&NDArray; 6]> = work.inputs.iter().collect();
        let mut run = || failed = guarded(|| work.run()).err();
        if with_quiet(&reads, &writes, elems <= TINY_ELEMS, &mut run) && failed.is_none() {
            return Ok(());
        }
    }
    push(rt, work, how, callback, cheap, failed)
}

fn guarded(f: impl FnOnce() -> Result<()>) -> Result<()> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(Error::from_panic(panic)))
}

/// Pushes the call; `failed` is the error of a run that took place already and only has to be told.
fn push(
    rt: &Arc<Runtime>,
    work: Work,
    how: &Invoke<'_>,
    callback: bool,
    cheap: bool,
    failed: Option<Error>,
) -> Result<()> {
    let mut reads: SmallVec<[Var; 6]> = work.inputs.iter().map(NDArray::var).collect();
    let (mut writes, overwrites) = write_vars(&work);
    distinct(&mut reads, &mut writes);
    let op = work.prepared.op.clone();
    let push = Push {
        ctx: work.ctx.device,
        overwrites,
        prop: if callback { Prop::Async } else { Prop::Normal },
        cheap,
        origin: how.origin,
        ..Push::new(&op.name, &reads, &writes)
    };
    let name: Arc<str> = how.name.into();
    let task = match failed {
        Some(error) => Task::sync(move |_| Err(error.in_node(&name))),
        None if callback => Task::asynchronous(move |_, done| work.start(done)),
        None => Task::sync(move |_| work.run().map_err(|e| e.in_node(&name))),
    };
    rt.engine.push(task, push)
}

/// The variables written, those overwritten whole and not read first.
fn write_vars(work: &Work) -> (SmallVec<[Var; 6]>, usize) {
    let (mut whole, mut partly) = (SmallVec::<[Var; 6]>::new(), SmallVec::<[Var; 6]>::new());
    for (i, a) in work.written().into_iter().enumerate() {
        let is_output = i < work.outputs.len();
        let read = work.inputs.iter().any(|b| b.same_chunk(a));
        if is_output && a.is_whole() && !read && work.req[i].overwrites() {
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
