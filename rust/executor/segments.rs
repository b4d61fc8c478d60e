//! Segments: runs of a plan's nodes that the engine sees as one operation each.
//!
//! A [`Program`] is a plan laid over memory: every node with its kernel, its views and its
//! requests, cut into segments. Nodes of one device that run native kernels share a segment; a
//! callback (an operator written in Python) is a segment of its own, because it completes
//! asynchronously. `segmentation.rs` describes how segments are ordered.

use super::arena::Memory;
use super::call_site;
use super::chain::{self, Chain, Link};
use super::on_device::complete;
use super::places::Places;
use super::replay::Run;
use super::run::{PendingCallback, Prepared, Running};
use super::segmentation::{Segment, SegmentVars, Segmentation, Segmenter};
use super::step::Step;
use super::transfer::copy_between;
use crate::cuda::Device;
use crate::engine::{OnComplete, Prop, Push, RunOn, Task, Var};
use crate::error::{AtNode, Error, Result};
use crate::executor::Runtime;
use crate::graph::Plan;
use crate::kernels::copy::copy;
use crate::ndarray::{Base, NDArray};
use crate::operator::{Done, OpContext, OpReq, OpState, OwnedCall, RandomKey};
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
    /// Returns true if no limit divides a pass.
    pub fn are_off(&self) -> bool {
        [self.inference, self.train_forward, self.train_backward] == [usize::MAX; 3]
    }

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

/// How a pass runs.
#[derive(Clone, Copy)]
pub struct Mode {
    pub is_train: bool,
    /// Where its random numbers come from, if not from the streams of the devices.
    pub random: Option<RandomKey>,
}

impl From<bool> for Mode {
    fn from(is_train: bool) -> Mode {
        Mode { is_train, random: None }
    }
}

/// Facts of one run that are not in its program.
pub struct PassInfo {
    pub is_train: bool,
    pub need_grad: bool,
    /// Random keys by step; empty if no step of the program uses one.
    pub keys: Vec<RandomKey>,
    /// The arrays that stand in the places of the program's.
    pub places: Arc<Places>,
}

/// A plan over memory.
pub struct Program {
    base: Arc<Base>,
    plan: Arc<Plan>,
    pub steps: Vec<Step>,
    /// How many steps, from the first, are the forward pass.
    pub forward_steps: usize,
    pub forward: Vec<Segment>,
    pub backward: Vec<Segment>,
    vars: Arc<SegmentVars>,
    any_random: bool,
    /// Chains of steps run as one pass over memory.
    has_chains: bool,
    /// The variables that the start of a pass of several segments writes.
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
    /// Lays `plan` over `memory`. `vars` are those of an earlier program of the same instance.
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
                let mut step = Step::new(plan, &memory, n, prepared, parts.states[n].clone())
                    .at_node(node.op_name(), &node.name)?;
                step.role = chain::role_of(&step);
                steps.push(step);
            }
            if n + 1 == graph.num_forward {
                forward_steps = steps.len();
            }
        }
        let training = graph.num_forward < graph.nodes.len();
        let limit = if training { limits.train_forward } else { limits.inference };
        let limits = [limit, limits.train_backward];
        let vars = vars.unwrap_or_else(|| {
            let segmentation = Segmentation::new(plan, &steps, forward_steps, limits);
            SegmentVars::new(&base.engine, segmentation)
        });
        let any_random = steps.iter().any(|s| s.wants_random);
        let mut program = Program {
            base: base.clone(),
            plan: plan.clone(),
            steps,
            forward_steps,
            forward: Vec::new(),
            backward: Vec::new(),
            vars,
            any_random,
            has_chains: chain::are_on(),
            arenas: Vec::new(),
            memory,
        };
        let segmentation = &program.vars.segmentation;
        if !segmentation.is_serial() {
            program.arenas = program.segmenter().arenas();
        }
        let segmenter = program.segmenter();
        let mut forward: Vec<Segment> =
            (0..segmentation.len()).map(|number| segmenter.segment(number)).collect();
        program.backward = forward.split_off(segmentation.forward);
        program.forward = forward;
        Ok(program)
    }

    fn segmenter(&self) -> Segmenter<'_> {
        Segmenter { plan: &self.plan, memory: &self.memory, steps: &self.steps, vars: &self.vars }
    }

    /// The variables that order this instance's segments.
    pub fn vars(&self) -> &Arc<SegmentVars> {
        &self.vars
    }

    /// The nodes of every segment, as half-open ranges of positions in execution order.
    pub fn node_ranges(&self) -> Vec<Vec<Range<usize>>> {
        let nodes = |steps: &Range<usize>| self.nodes(steps);
        let ranges = |segment: &Segment| segment.steps.iter().map(nodes).collect();
        self.forward.iter().chain(&self.backward).map(ranges).collect()
    }

    /// The nodes of every chain, likewise.
    pub fn chains(&self) -> Vec<Range<usize>> {
        let segments = self.forward.iter().chain(&self.backward);
        let parts = segments.flat_map(|s| s.steps.iter()).flat_map(|r| self.parts(r.clone()));
        parts.filter(|steps| steps.len() > 1).map(|steps| self.nodes(&steps)).collect()
    }

    fn nodes(&self, steps: &Range<usize>) -> Range<usize> {
        let node = |at: usize| self.steps[at].node as usize;
        node(steps.start)..node(steps.end - 1) + 1
    }

    /// Neighbouring steps as chains and single ones.
    fn parts(&self, steps: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut next = steps.start;
        std::iter::from_fn(move || {
            let rest = self.steps.get(next..steps.end).filter(|rest| !rest.is_empty())?;
            let count = if self.has_chains { chain::length(rest) } else { 1 };
            next += count;
            Some(next - count..next)
        })
    }

    /// Begins a pass of several segments, which read what this writes; `forward` forgets what an
    /// earlier run left there.
    pub fn begin(&self, rt: &Runtime, forward: bool) -> Result<()> {
        let arenas = &self.arenas;
        if arenas.is_empty() {
            return Ok(());
        }
        let overwrites = if forward { arenas.len() } else { 0 };
        let push = Push {
            overwrites,
            run_on: RunOn::Pusher,
            call_site: Some(&call_site::current),
            ..Push::new("begin a pass", &[], arenas)
        };
        rt.engine.push(Task::nothing(), push)
    }

    /// The facts of one run over `steps`, with random keys reserved in the order of the steps.
    pub fn pass_info(
        &self,
        rt: &Runtime,
        steps: Range<usize>,
        mode: Mode,
        places: &Arc<Places>,
    ) -> Arc<PassInfo> {
        let mut keys = Vec::new();
        if self.any_random {
            keys.resize(self.steps.len(), RandomKey::default());
            for i in steps.filter(|&i| self.steps[i].wants_random) {
                keys[i] = match mode.random {
                    None => rt.random.reserve(self.steps[i].device),
                    Some(key) => RandomKey { stream: i as u64, ..key },
                };
            }
        }
        let is_train = mode.is_train;
        let need_grad = self.forward_steps < self.steps.len();
        Arc::new(PassInfo { is_train, need_grad, keys, places: places.clone() })
    }

    /// Pushes one segment.
    pub fn push(
        self: &Arc<Self>,
        rt: &Runtime,
        segment: &Segment,
        run: &Arc<PassInfo>,
    ) -> Result<()> {
        let (reads, writes) = run.places.variables(&segment.reads, &segment.writes);
        let push = Push {
            ctx: segment.device,
            overwrites: segment.overwrites,
            run_on: RunOn::pusher_if(segment.is_short),
            // A callback only starts: when it is ready it may run in this very push.
            prop: if segment.callback { Prop::Async } else { Prop::Normal },
            call_site: Some(&call_site::current),
            ..Push::new(&segment.name, &reads, &writes)
        };
        let (program, run) = (self.clone(), run.clone());
        let (steps, has_peers) = (segment.steps.clone(), segment.has_peers);
        let task = if segment.callback {
            Task::asynchronous(move |rc, done| {
                let (step, ctx) = (steps[0].start, rc.stream);
                program.start_callback(step, has_peers, &run, ctx, done);
            })
        } else {
            let runs = segment.runs.clone();
            Task::sync(move |rc| match &runs {
                None => program.run_native(&steps, &run, rc.stream),
                Some(runs) => program.run_recorded(runs, &run, rc.stream),
            })
        };
        rt.engine.push(task, push)
    }

    fn context(&self, at: usize, run: &PassInfo, stream: Option<usize>) -> OpContext {
        OpContext {
            is_train: run.is_train,
            need_grad: run.need_grad,
            device: self.steps[at].device,
            stream,
            random: run.keys.get(at).copied().unwrap_or_default(),
        }
    }

    /// Runs steps of which some are recorded, or may be: in a pass over the program's own operands
    /// that nobody watches.
    fn run_recorded(&self, runs: &[Run], run: &PassInfo, stream: Option<usize>) -> Result<()> {
        let is_seen = self.is_seen();
        let is_fixed = run.places.is_empty() && !is_seen;
        for Run { steps, replay } in runs {
            if let Some(replay) = replay.as_ref().filter(|_| is_fixed) {
                let mut recorded =
                    steps.iter().map(|&i| (&self.steps[i], self.context(i, run, stream)));
                let first = &self.steps[steps[0]];
                let issued = replay.issue(run.is_train, &mut recorded);
                if issued.map_err(|e| self.place(first, e))? {
                    self.end_run(steps, replay.device()).map_err(|e| self.place(first, e))?;
                    continue;
                }
            }
            self.run_singly(steps.iter().copied(), run, stream, is_seen)?;
        }
        Ok(())
    }

    /// As [`Program::end_step`], for steps that were issued as a whole.
    fn end_run(&self, steps: &[usize], device: &Arc<Device>) -> Result<()> {
        let ticket = device.mark(Some((self.plan.clone(), self.steps[steps[0]].node)))?;
        let arenas = self.memory.arenas.iter().filter(|a| a.device == device.context());
        let written = steps.iter().flat_map(|&i| self.steps[i].writes.iter().map(|(a, _)| a));
        written.chain(arenas.map(|arena| &arena.array)).for_each(|a| a.note_write(ticket));
        Ok(())
    }

    fn run_native(
        &self,
        steps: &[Range<usize>],
        run: &PassInfo,
        stream: Option<usize>,
    ) -> Result<()> {
        let is_seen = self.is_seen();
        for part in steps.iter().flat_map(|range| self.parts(range.clone())) {
            let is_chain = part.len() > 1 && !is_seen;
            if !is_chain || !self.run_chain(part.clone(), run, stream)? {
                self.run_singly(part, run, stream, is_seen)?;
            }
        }
        Ok(())
    }

    /// Asked once a segment: a run that has begun is seen by the profiler whole or not at all.
    fn is_seen(&self) -> bool {
        self.base.profiler.is_on(mode::SYMBOLIC)
    }

    #[inline]
    fn run_singly(
        &self,
        steps: impl IntoIterator<Item = usize>,
        run: &PassInfo,
        stream: Option<usize>,
        is_seen: bool,
    ) -> Result<()> {
        let is_plain = run.places.is_empty();
        for i in steps {
            let step = &self.steps[i];
            let ctx = self.context(i, run, stream);
            let _span = if is_seen { self.span(step) } else { None };
            match is_plain {
                true => self.run_step(step, &ctx, &step.inputs, &step.outputs),
                false => self.run_in_places(step, &ctx, run),
            }
            .map_err(|e| self.place(step, e))?;
        }
        Ok(())
    }

    /// Runs these steps as one chain; returns false, and nothing was done, if their operands do not
    /// allow it.
    #[inline(never)]
    fn run_chain(
        &self,
        steps: Range<usize>,
        run: &PassInfo,
        stream: Option<usize>,
    ) -> Result<bool> {
        let replaced: SmallVec<[_; 4]> =
            self.steps[steps.clone()].iter().map(|s| run.places.views(s)).collect::<Result<_>>()?;
        let links: SmallVec<[Link<'_>; 4]> = steps
            .zip(&replaced)
            .map(|(i, views)| {
                let (step, ctx) = (&self.steps[i], self.context(i, run, stream));
                let (inputs, outputs) = match views {
                    None => (&*step.inputs, &*step.outputs),
                    Some(views) => views.split_at(step.inputs.len()),
                };
                Link { step, ctx, inputs, outputs }
            })
            .collect();
        let chain = Chain(&links);
        if !chain.is_sound() {
            return Ok(false);
        }
        chain.run().map(|()| true).map_err(|(step, e)| self.place(step, e))
    }

    /// Runs a step on operands of which some are replaced. By itself, because the room for their
    /// views would cost every step of every run.
    #[inline(never)]
    fn run_in_places(&self, step: &Step, ctx: &OpContext, run: &PassInfo) -> Result<()> {
        match run.places.views(step)? {
            None => self.run_step(step, ctx, &step.inputs, &step.outputs),
            Some(views) => {
                let (inputs, outputs) = views.split_at(step.inputs.len());
                self.run_step(step, ctx, inputs, outputs)
            }
        }
    }

    #[inline]
    fn run_step(
        &self,
        step: &Step,
        ctx: &OpContext,
        inputs: &[View],
        outputs: &[View],
    ) -> Result<()> {
        for (state, own) in &step.spared {
            match own.device()? {
                None => copy(state, &own.view()?),
                Some(device) => complete(device, state, &own.view()?, false)?,
            }
        }
        let state = step.state.as_ref();
        match (&step.direct, &step.crossing) {
            (Some(asked), _) => step.prepared.run_direct(ctx, state, inputs, asked, outputs),
            (None, Some((source, target))) => {
                copy_between(source, target, step.req[0] == OpReq::Add)
            }
            (None, None) => step.prepared.run_native(ctx, state, inputs, &step.req, outputs),
        }
        .and_then(|()| self.end_step(step))
    }

    /// Marks the work that a step has issued on its device, if it has, and notes that on what it
    /// writes.
    fn end_step(&self, step: &Step) -> Result<()> {
        let Some(device) = step.computes_on() else { return Ok(()) };
        let ticket = device.mark(Some((self.plan.clone(), step.node)))?;
        let arenas = self.memory.arenas.iter().filter(|arena| arena.device == step.device);
        let written = step.writes.iter().map(|(array, _)| array);
        written.chain(arenas.map(|arena| &arena.array)).for_each(|a| a.note_write(ticket));
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
        has_peers: bool,
        run: &PassInfo,
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
            has_peers,
        });
        let named: Done = Box::new(move |result| {
            let step = &program.steps[at];
            let result = result.and_then(|()| program.end_step(step));
            done.complete(result.map_err(|e| program.place(step, e)));
        });
        let (inputs, outputs) = match run.places.views(step) {
            Ok(None) => (step.inputs.clone(), step.outputs.clone()),
            Ok(Some(views)) => {
                let (inputs, outputs) = views.split_at(step.inputs.len());
                (inputs.into(), outputs.into())
            }
            Err(error) => return named(Err(error)),
        };
        // Not the program: it has the operator's state, which may keep an operand and so would keep
        // itself.
        let keep: Arc<dyn std::any::Any + Send + Sync> = match step.spared.as_slice() {
            [] if run.places.is_empty() => self.memory.clone(),
            spared => {
                let own: Vec<NDArray> = spared.iter().map(|(_, own)| own.clone()).collect();
                Arc::new((self.memory.clone(), own, run.places.clone()))
            }
        };
        let prepared = &step.prepared;
        let call = OwnedCall {
            attrs: Arc::clone(&prepared.attrs),
            ctx,
            state: step.state.clone(),
            inputs,
            mutated: prepared.mutated.clone(),
            req: step.req.as_slice().into(),
            outputs,
            keep,
            within,
        };
        prepared.start_callback(PendingCallback { call, direct: step.direct.clone(), done: named });
    }

    /// The states of its steps, with repetitions.
    pub fn states(&self) -> impl Iterator<Item = &OpState> {
        self.steps.iter().filter_map(|step| step.state.as_ref())
    }

    fn place(&self, step: &Step, error: Error) -> Error {
        let node = &self.plan.graph.nodes[step.node as usize];
        error.at_node(node.op_name(), &node.name)
    }

    /// One step as a segment of its own: for monitors and partial forward passes.
    pub fn single(&self, at: usize) -> Segment {
        self.segmenter().single(at)
    }
}
