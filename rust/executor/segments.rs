//! Segments: runs of a plan's nodes that the engine sees as one operation each.
//!
//! A [`Program`] is a plan laid over memory: every node with its kernel, its views and its requests, cut
//! into segments. Nodes of one device that run native kernels share a segment; a callback (an operator
//! written in Python) is a segment of its own, because it ends when it says so. What orders segments is told
//! in `cut.rs`.

use super::cut::{Cutter, Division, Segment, SegmentVars};
use super::lanes::Memory;
use super::line;
use super::run::{Prepared, Running};
use crate::context::Context;
use crate::engine::{OnComplete, Prop, Push, Task, Var};
use crate::error::{Error, Place, Result};
use crate::executor::Runtime;
use crate::graph::{Entry, Plan};
use crate::kernels::copy::copy;
use crate::ndarray::{Base, NDArray};
use crate::operator::{OpContext, OpReq, OpState, RandomKey};
use crate::profiler::{Span, mode};
use crate::tensor::View;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// The most nodes of one segment, from the environment variables that MXNet has for it.
#[derive(Clone, Copy, Debug)]
pub struct BulkLimits {
    pub inference: usize,
    pub train_forward: usize,
    pub train_backward: usize,
}

impl BulkLimits {
    /// No limit unless `MXNET_EXEC_BULK_EXEC_*` or `MXNET_EXEC_PREFER_BULK_EXEC` set one.
    pub fn from_env() -> Self {
        let number = |key: &str| std::env::var(key).ok().and_then(|v| v.trim().parse().ok());
        let is_off = |v: &str| v.trim() == "0" || v.trim().eq_ignore_ascii_case("false");
        let off = |key: &str| std::env::var(key).is_ok_and(|v| is_off(&v));
        let nodes = |key: &str| {
            let own = format!("MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_{key}");
            number(&own)
                .or_else(|| number("MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN"))
                .unwrap_or(usize::MAX)
                .max(1)
        };
        let none = off("MXNET_EXEC_PREFER_BULK_EXEC");
        let train = none || off("MXNET_EXEC_BULK_EXEC_TRAIN");
        let one_if = |single: bool, n: usize| if single { 1 } else { n };
        BulkLimits {
            inference: one_if(none || off("MXNET_EXEC_BULK_EXEC_INFERENCE"), usize::MAX),
            train_forward: one_if(train, nodes("FWD")),
            train_backward: one_if(train, nodes("BWD")),
        }
    }
}

/// What one run knows beyond its program.
pub struct Run {
    pub is_train: bool,
    pub need_grad: bool,
    /// Random keys by step; empty when no step of the program wants one.
    pub keys: Vec<RandomKey>,
}

/// A node made ready.
pub struct Step {
    pub node: u32,
    pub device: Context,
    prepared: Arc<Prepared<'static>>,
    state: Option<OpState>,
    inputs: Arc<[View]>,
    outputs: Arc<[View]>,
    req: Vec<OpReq>,
    /// What the kernel is asked for, if it needs no temporaries.
    direct: Option<SmallVec<[OpReq; 4]>>,
    wants_random: bool,
    /// Auxiliary states that this node, computed again, must leave alone: (state, copy that it gets).
    spared: Vec<(View, NDArray)>,
    /// Arrays from outside that it reads and writes; arena bytes are not among them.
    pub reads: Vec<NDArray>,
    pub writes: Vec<(NDArray, OpReq)>,
}

/// A plan over memory.
pub struct Program {
    base: Arc<Base>,
    plan: Arc<Plan>,
    pub steps: Vec<Step>,
    /// So many of the first steps are the forward pass.
    pub forward_steps: usize,
    pub forward: Vec<Segment>,
    pub backward: Vec<Segment>,
    division: Division,
    vars: Arc<SegmentVars>,
    any_random: bool,
    /// What the start of a pass of several segments writes.
    arenas: Vec<Var>,
    /// Owners of the memory behind the views.
    memory: Arc<Memory>,
}

/// Kernels and states of a plan's nodes, by node; `None` for variables.
pub struct Parts<'a> {
    pub prepared: &'a [Option<Arc<Prepared<'static>>>],
    pub states: &'a [Option<OpState>],
}

impl Program {
    /// Lays `plan` over `memory`. `vars` are those of an earlier program of the same lane.
    pub fn new(
        base: &Arc<Base>,
        plan: &Arc<Plan>,
        parts: &Parts<'_>,
        memory: Arc<Memory>,
        limits: BulkLimits,
        vars: Option<Arc<SegmentVars>>,
    ) -> Result<Program> {
        let graph = &plan.graph;
        let mut steps = Vec::with_capacity(graph.nodes.len());
        let mut forward_steps = 0;
        for (n, node) in graph.nodes.iter().enumerate() {
            if let Some(prepared) = &parts.prepared[n] {
                let step = Step::new(plan, &memory, n, prepared, parts.states[n].clone())
                    .at(node.op_name(), &node.name)?;
                steps.push(step);
            }
            if n + 1 == graph.num_forward {
                forward_steps = steps.len();
            }
        }
        let training = graph.num_forward < graph.nodes.len();
        let limit = if training { limits.train_forward } else { limits.inference };
        let limits = [limit, limits.train_backward];
        let division = Division::new(plan, &steps, forward_steps, limits);
        let vars =
            vars.unwrap_or_else(|| SegmentVars::new(&base.engine, division.ranges.len().max(1)));
        let any_random = steps.iter().any(|s| s.wants_random);
        let mut program = Program {
            base: base.clone(),
            plan: plan.clone(),
            steps,
            forward_steps,
            forward: Vec::new(),
            backward: Vec::new(),
            division,
            vars,
            any_random,
            arenas: Vec::new(),
            memory,
        };
        if !program.division.is_serial() {
            program.arenas = program.cutter().arenas();
        }
        let cutter = program.cutter();
        let mut forward: Vec<Segment> =
            (0..program.division.ranges.len()).map(|number| cutter.segment(number)).collect();
        program.backward = forward.split_off(program.division.forward);
        program.forward = forward;
        Ok(program)
    }

    fn cutter(&self) -> Cutter<'_> {
        Cutter {
            plan: &self.plan,
            memory: &self.memory,
            steps: &self.steps,
            division: &self.division,
            vars: &self.vars,
        }
    }

    /// The variables that order this lane's segments.
    pub fn vars(&self) -> &Arc<SegmentVars> {
        &self.vars
    }

    /// Begins a pass of several segments, which read what this writes; `forward` forgets what an earlier
    /// run left there.
    pub fn begin(&self, rt: &Runtime, forward: bool) -> Result<()> {
        let arenas = &self.arenas;
        if arenas.is_empty() {
            return Ok(());
        }
        let overwrites = if forward { arenas.len() } else { 0 };
        let push = Push {
            overwrites,
            cheap: true,
            call_site: Some(&line::of_thread),
            ..Push::new("begin a pass", &[], arenas)
        };
        rt.engine.push(Task::nothing(), push)
    }

    /// The facts of one run over `steps`, with random keys reserved in the order of the steps.
    pub fn run_info(&self, rt: &Runtime, steps: Range<usize>, is_train: bool) -> Arc<Run> {
        let mut keys = Vec::new();
        if self.any_random {
            keys.resize(self.steps.len(), RandomKey::default());
            for i in steps.filter(|&i| self.steps[i].wants_random) {
                keys[i] = rt.random.reserve(self.steps[i].device);
            }
        }
        Arc::new(Run { is_train, need_grad: self.forward_steps < self.steps.len(), keys })
    }

    /// Pushes one segment.
    pub fn push(self: &Arc<Self>, rt: &Runtime, segment: &Segment, run: &Arc<Run>) -> Result<()> {
        let push = Push {
            ctx: segment.device,
            overwrites: segment.overwrites,
            cheap: segment.cheap,
            // A callback only starts: when it is ready it may run in this very push.
            prop: if segment.callback { Prop::Async } else { Prop::Normal },
            call_site: Some(&line::of_thread),
            ..Push::new(&segment.name, &segment.reads, &segment.writes)
        };
        let (program, run) = (self.clone(), run.clone());
        let steps = segment.steps.clone();
        let task = if segment.callback {
            Task::asynchronous(move |rc, done| {
                let (step, ctx) = (steps.start, rc.stream);
                program.start_callback(step, &run, ctx, done);
            })
        } else {
            Task::sync(move |rc| program.run_native(steps, &run, rc.stream))
        };
        rt.engine.push(task, push)
    }

    fn context(&self, at: usize, run: &Run, stream: Option<usize>) -> OpContext {
        OpContext {
            is_train: run.is_train,
            need_grad: run.need_grad,
            device: self.steps[at].device,
            stream,
            random: run.keys.get(at).copied().unwrap_or_default(),
        }
    }

    fn run_native(&self, steps: Range<usize>, run: &Run, stream: Option<usize>) -> Result<()> {
        // Asked once a segment: a run that has begun is seen whole or not at all.
        let is_seen = self.base.profiler.is_on(mode::SYMBOLIC);
        for i in steps {
            let step = &self.steps[i];
            let ctx = self.context(i, run, stream);
            let _span = if is_seen { self.span(step) } else { None };
            for (state, own) in &step.spared {
                copy(state, &own.view()?);
            }
            let state = step.state.as_ref();
            let (inputs, outputs) = (&step.inputs, &step.outputs);
            match &step.direct {
                Some(asked) => step.prepared.run_direct(&ctx, state, inputs, asked, outputs),
                None => step.prepared.run_native(&ctx, state, inputs, &step.req, outputs),
            }
            .map_err(|e| self.place(step, e))?;
        }
        Ok(())
    }

    /// The span of a step, under the name of its operator and with that of its node.
    #[cold]
    fn span<'a>(&'a self, step: &'a Step) -> Option<Span<'a>> {
        let node = &self.plan.graph.nodes[step.node as usize];
        self.base.profiler.operator(mode::SYMBOLIC, node.op_name(), &node.name, step.device)
    }

    fn start_callback(
        self: &Arc<Self>,
        at: usize,
        run: &Run,
        stream: Option<usize>,
        done: OnComplete,
    ) {
        let step = &self.steps[at];
        let ctx = self.context(at, run, stream);
        let program = self.clone();
        let within = Box::new(Running {
            mark: done.mark(),
            base: self.base.clone(),
            mode: mode::SYMBOLIC,
            op: Arc::clone(&step.prepared.op),
            attrs: Arc::clone(&step.prepared.attrs),
            node: self.plan.graph.nodes[step.node as usize].name.as_str().into(),
            device: step.device,
        });
        let named: crate::operator::Done = Box::new(move |result| {
            done.complete(result.map_err(|e| program.place(&program.steps[at], e)));
        });
        let (inputs, outputs) = (step.inputs.clone(), step.outputs.clone());
        let keep: Arc<dyn std::any::Any + Send + Sync> = self.clone();
        step.prepared.start_callback(
            ctx,
            step.state.clone(),
            inputs,
            &step.req,
            step.direct.clone(),
            outputs,
            keep,
            within,
            named,
        );
    }

    fn place(&self, step: &Step, error: Error) -> Error {
        let node = &self.plan.graph.nodes[step.node as usize];
        error.in_operator(node.op_name()).in_node(&node.name)
    }

    /// One step as a segment of its own: for monitors and partial forward passes.
    pub fn single(&self, at: usize) -> Segment {
        self.cutter().single(at)
    }
}

impl Step {
    fn new(
        plan: &Plan,
        memory: &Memory,
        n: usize,
        prepared: &Arc<Prepared<'static>>,
        state: Option<OpState>,
    ) -> Result<Step> {
        let node = &plan.graph.nodes[n];
        let op = node.op.as_ref().ok_or_else(|| Error::internal("a variable has no step"))?;
        let mut step = Step {
            node: n as u32,
            device: node.ctx,
            prepared: prepared.clone(),
            state,
            inputs: Arc::default(),
            outputs: Arc::default(),
            req: Vec::with_capacity(node.num_outputs as usize),
            direct: None,
            spared: Vec::new(),
            wants_random: op.wants_random(&node.attrs),
            reads: Vec::new(),
            writes: Vec::new(),
        };
        let mut inputs = Vec::with_capacity(node.inputs.len());
        let mut outputs = Vec::with_capacity(node.num_outputs as usize);
        let mutated = op.mutates.to_vec(&node.attrs);
        for (i, &entry) in node.inputs.iter().enumerate() {
            let array = memory.array(plan, entry)?;
            inputs.push(match &array {
                Some(array) => array.view()?,
                None => absent(plan, entry),
            });
            match array {
                Some(array) if memory.outside(plan, entry).is_some() => {
                    if mutated.contains(&i) && node.mirror_of.is_some() {
                        let rt = array.base();
                        let own =
                            NDArray::empty(rt, array.shape(), array.dtype(), array.context())?;
                        let original = std::mem::replace(&mut inputs[i], own.view()?);
                        step.spared.push((original, own));
                        step.reads.push(array);
                    } else if mutated.contains(&i) {
                        step.writes.push((array, OpReq::Add));
                    } else {
                        step.reads.push(array);
                    }
                }
                _ => {}
            }
        }
        for index in 0..node.num_outputs {
            let entry = Entry::new(n as u32, index);
            let req = plan.req[plan.graph.entry_id(entry)];
            let array = if req == OpReq::Null { None } else { memory.array(plan, entry)? };
            step.req.push(if array.is_some() { req } else { OpReq::Null });
            outputs.push(match &array {
                Some(array) => array.view()?,
                None => absent(plan, entry),
            });
            match array {
                Some(array) if memory.outside(plan, entry).is_some() => {
                    step.writes.push((array, req));
                }
                _ => {}
            }
        }
        (step.inputs, step.outputs) = (inputs.into(), outputs.into());
        step.direct = step.prepared.direct(&step.inputs, &step.req, &step.outputs);
        Ok(step)
    }

    /// Is it run by a callback, which ends when it says so?
    pub fn is_callback(&self) -> bool {
        self.prepared.is_callback()
    }

    /// Bytes that the step moves at least.
    pub fn bytes(&self) -> usize {
        self.inputs.iter().chain(&*self.outputs).map(View::size_bytes).sum()
    }
}

/// The view of an entry that nobody reads or writes.
fn absent(plan: &Plan, entry: Entry) -> View {
    let id = plan.graph.entry_id(entry);
    View::absent(plan.shapes[id].clone(), plan.types[id])
}
