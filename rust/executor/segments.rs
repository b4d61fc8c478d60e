//! Segments: runs of a plan's nodes that the engine sees as one operation each.
//!
//! A [`Program`] is a plan laid over memory: every node with its kernel, its views and its
//! requests, cut into segments. Nodes of one device that run native kernels share a segment; a
//! callback (an operator written in Python) is a segment of its own, because it completes
//! asynchronously. `segmentation.rs` describes how segments are ordered.

mod running;

use super::arena::Memory;
use super::call_site;
use super::chain::{self};
use super::places::Places;
use super::run::Prepared;
use super::segmentation::{Segment, SegmentVars, Segmentation, Segmenter};
use super::step::Step;
use crate::engine::{Prop, Push, RunContext, RunOn, Task, Var};
use crate::error::{AtNode, Error, Result};
use crate::executor::Runtime;
use crate::graph::{Plan, bodies};
use crate::ndarray::Base;
use crate::operator::{OpState, RandomKey};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

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
                (step.role, step.has_parts) = (chain::role_of(&step), chain::has_parts(&step));
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

    /// The nodes of every chain, likewise: of a pass in training if there is a backward pass.
    pub fn chains(&self) -> Vec<Range<usize>> {
        let is_train = !self.backward.is_empty();
        let segments = self.forward.iter().chain(&self.backward);
        let parts = segments.flat_map(|segment| segment.parts[usize::from(is_train)].iter());
        parts.filter(|part| part.is_chain).map(|part| self.nodes(&part.steps)).collect()
    }

    fn nodes(&self, steps: &Range<usize>) -> Range<usize> {
        let node = |at: usize| self.steps[at].node as usize;
        node(steps.start)..node(steps.end - 1) + 1
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
            keys.resize(self.steps.len(), RandomKey::NONE);
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
        let task = if segment.callback {
            let (step, has_peers) = (segment.steps[0].start, segment.has_peers);
            let line = OnceLock::new();
            if !bodies(&self.steps[step].prepared.attrs).is_empty() {
                let _ = line.set(call_site::current());
            }
            let start = move |rc: &RunContext, done| {
                program.start_callback((step, has_peers), line, &run, rc.stream, done);
            };
            // One with peers outlives its push.
            if has_peers { Task::asynchronous(start) } else { Task::finding_line(start) }
        } else {
            let (parts, runs) =
                (segment.parts[usize::from(run.is_train)].clone(), segment.runs.clone());
            Task::sync(move |rc| match &runs {
                None => program.run_native(&parts, &run, rc),
                Some(runs) => program.run_recorded(runs, &run, rc),
            })
        };
        rt.engine.push(task, push)
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
