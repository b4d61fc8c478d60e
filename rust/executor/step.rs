//! A node of a planned graph with its kernel, its state and views of its operands.

use super::arena::Memory;
use super::run::Prepared;
use crate::context::Context;
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::graph::{Entry, Place, Plan};
use crate::kernels::fixed_loop::FixedLoop;
use crate::kernels::kept::{Keeper, Kept};
use crate::ndarray::NDArray;
use crate::operator::{Alone, Around, Body, CROSS_DEVICE_COPY, Call, OpContext, OpReq, OpState};
use crate::tensor::View;
use smallvec::SmallVec;
use std::sync::Arc;

/// What a step can be in a chain, with its number of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    #[default]
    Alone,
    Pointwise(usize),
    /// Reports the elements of its first output as it finishes them.
    Leads(usize),
    /// As `Leads`, but it reads any elements of its inputs until it ends.
    Produces(usize),
    /// Requests the elements of its first input before it reads them.
    Ends(usize),
}

/// A node that is ready to run.
pub struct Step {
    pub node: u32,
    pub device: Context,
    pub prepared: Arc<Prepared<'static>>,
    pub state: Option<OpState>,
    pub inputs: Arc<[View]>,
    pub outputs: Arc<[View]>,
    pub req: Vec<OpReq>,
    /// The kernel's own requests, if it needs no temporaries.
    pub direct: Option<SmallVec<[OpReq; 4]>>,
    /// For a copy to or from a CUDA device: what is copied where.
    pub crossing: Option<(NDArray, NDArray)>,
    pub wants_random: bool,
    /// Auxiliary states that this node must not change, as it is computed again: with each, the
    /// copy that it changes instead.
    pub spared: Vec<(View, NDArray)>,
    /// Arrays from outside, not from an arena, that it only reads.
    pub reads: Vec<NDArray>,
    /// Arrays from outside that it writes, each with whether its earlier contents are obsolete.
    pub writes: Vec<(NDArray, bool)>,
    /// The operands (inputs, then outputs) that are arrays from outside, by position.
    pub outside: Vec<(usize, NDArray)>,
    /// What it can be in a chain.
    pub role: Role,
    /// Whether it can compute its elements as they are asked for, outside of training and in it.
    pub has_parts: [bool; 2],
    /// For what the kernel makes of its weights.
    pub kept: Option<KeptInput>,
    /// All that the step does on its own operands, if that is one loop on the host.
    pub fixed: Option<FixedLoop>,
}

/// Weights that a step only reads, and what its kernel has made of them.
pub struct KeptInput {
    array: NDArray,
    kept: Kept,
}

impl KeptInput {
    /// A keeper for a run in which `replaced` may name another array, or `None` if nothing is to be
    /// kept of the weights.
    pub fn keeper(&self, replaced: Option<&NDArray>) -> Option<Keeper<'_>> {
        let stamp = replaced.unwrap_or(&self.array).stamp()?;
        Some(Keeper::new(&self.kept, stamp))
    }

    /// Gives up what is kept.
    pub fn clear(&self) {
        self.kept.clear();
    }

    /// Bytes of what is kept.
    pub fn bytes(&self) -> usize {
        self.kept.bytes()
    }

    pub fn array(&self) -> &NDArray {
        &self.array
    }
}

impl Step {
    /// Lays node `n` of the plan over memory.
    pub fn new(
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
            crossing: None,
            spared: Vec::new(),
            wants_random: op.wants_random(&node.attrs, || {
                let shapes = |ids: &mut dyn Iterator<Item = usize>| {
                    ids.map(|id| plan.shapes[id].clone()).collect()
                };
                let mut inputs = node.inputs.iter().map(|&e| plan.graph.entry_id(e));
                (shapes(&mut inputs), shapes(&mut plan.graph.entries_of(n)))
            })?,
            reads: Vec::new(),
            writes: Vec::new(),
            outside: Vec::new(),
            role: Role::Alone,
            has_parts: [false; 2],
            kept: None,
            fixed: None,
        };
        let mutated = op.mutates.to_vec(&node.attrs);
        step.inputs = step.lay_inputs(plan, memory, &mutated)?;
        step.outputs = step.lay_outputs(plan, memory)?;
        step.kept = step.kept_input();
        step.crossing = crossing(plan, memory, n, &step.req)?;
        if step.crossing.is_none() {
            step.direct = step.prepared.direct(&step.inputs, &step.req, &step.outputs);
        }
        step.fixed = step.fixed_loop();
        Ok(step)
    }

    /// The views of the inputs; notes those that are arrays from outside.
    fn lay_inputs(
        &mut self,
        plan: &Plan,
        memory: &Memory,
        mutated: &[usize],
    ) -> Result<Arc<[View]>> {
        let node = &plan.graph.nodes[self.node as usize];
        let mut views = Vec::with_capacity(node.inputs.len());
        for (i, &entry) in node.inputs.iter().enumerate() {
            let Some(array) = memory.array(plan, entry)? else {
                views.push(absent(plan, entry));
                continue;
            };
            let mut view = array.view()?;
            if memory.outside(plan, entry).is_some() {
                self.outside.push((i, array.clone()));
                if !mutated.contains(&i) {
                    self.reads.push(array);
                } else if node.mirror_of.is_none() {
                    self.writes.push((array, false));
                } else {
                    let (shape, dtype, device) = (array.shape(), array.dtype(), array.context());
                    let own = NDArray::empty(array.base(), shape, dtype, device)?;
                    self.spared.push((std::mem::replace(&mut view, own.view()?), own));
                    self.reads.push(array);
                }
            }
            views.push(view);
        }
        Ok(views.into())
    }

    /// The views of the outputs; notes their requests, and those that are arrays from outside.
    fn lay_outputs(&mut self, plan: &Plan, memory: &Memory) -> Result<Arc<[View]>> {
        let node = &plan.graph.nodes[self.node as usize];
        let mut views = Vec::with_capacity(node.num_outputs as usize);
        for index in 0..node.num_outputs {
            let entry = Entry::new(self.node, index);
            let id = plan.graph.entry_id(entry);
            let req = plan.req[id];
            let array = if req == OpReq::Null { None } else { memory.array(plan, entry)? };
            let Some(array) = array else {
                self.req.push(OpReq::Null);
                views.push(absent(plan, entry));
                continue;
            };
            self.req.push(req);
            views.push(array.view()?);
            if memory.outside(plan, entry).is_some() {
                self.outside.push((node.inputs.len() + index as usize, array.clone()));
                // An output's array holds one buffer at a time, perhaps a smaller one.
                let alone = matches!(plan.place[id], Place::Output(_));
                let overwrites = req.overwrites() && (alone || array.is_whole());
                self.writes.push((array, overwrites));
            }
        }
        Ok(views.into())
    }

    /// The weights of which the kernel keeps what it makes, if they are an array from outside that
    /// the step only reads.
    fn kept_input(&self) -> Option<KeptInput> {
        let at = self.prepared.kernel.keeps.filter(|_| self.device.is_host())?;
        let (_, array) = self.outside.iter().find(|(i, _)| *i == at)?;
        let is_written = self.writes.iter().any(|(written, _)| written.same_chunk(array));
        (!is_written).then(|| KeptInput { array: array.clone(), kept: Kept::default() })
    }

    /// The loop that the step is, if it is one.
    fn fixed_loop(&self) -> Option<FixedLoop> {
        let (of_call, req) = (self.prepared.kernel.fixed.as_ref()?, self.direct.as_deref()?);
        let writes = |r: &OpReq| matches!(r, OpReq::Write | OpReq::Inplace);
        if !self.is_on_host() || !self.spared.is_empty() || !req.iter().all(writes) {
            return None;
        }
        of_call(&Call {
            attrs: &self.prepared.attrs,
            ctx: &OpContext::default(),
            state: None,
            inputs: &self.inputs,
            req,
            outputs: &self.outputs,
            memory: None,
            around: Around::NONE,
        })
    }

    /// Returns true for a callback, which completes asynchronously.
    pub fn is_callback(&self) -> bool {
        self.prepared.is_callback()
    }

    /// Whether no other step shares its segment.
    pub fn alone(&self) -> Alone {
        let operands = self.inputs.iter().chain(&*self.outputs);
        self.prepared.alone(self.device, || operands.map(View::size).sum())
    }

    /// The device on whose stream the step computes, if it does not run on the host or copies.
    pub fn computes_on(&self) -> Option<&Arc<Device>> {
        self.prepared.computes_on().filter(|_| self.crossing.is_none())
    }

    /// The device on which the step launches the same in every pass over its own operands.
    pub fn replays_on(&self) -> Option<&Arc<Device>> {
        let is_fixed = self.direct.is_some()
            && self.state.is_none()
            && self.spared.is_empty()
            && !self.wants_random
            && matches!(self.prepared.kernel.body, Body::Device(_));
        self.computes_on().filter(|_| is_fixed)
    }

    /// Returns true if it waits for no CUDA device.
    pub fn is_on_host(&self) -> bool {
        self.device.is_host() && self.crossing.is_none()
    }

    /// The fewest bytes that the step moves.
    pub fn bytes(&self) -> usize {
        self.inputs.iter().chain(&*self.outputs).map(View::size_bytes).sum()
    }
}

/// Source and target of node `n` if it is a copy to or from a CUDA device with a target.
fn crossing(
    plan: &Plan,
    memory: &Memory,
    n: usize,
    req: &[OpReq],
) -> Result<Option<(NDArray, NDArray)>> {
    let node = &plan.graph.nodes[n];
    if node.op_name() != CROSS_DEVICE_COPY || req == [OpReq::Null] {
        return Ok(None);
    }
    let source = node.inputs.first().map(|&entry| memory.array(plan, entry)).transpose()?;
    let target = memory.array(plan, Entry::new(n as u32, 0))?;
    let Some((source, target)) = source.flatten().zip(target) else { return Ok(None) };
    let on_host = source.context().is_host() && target.context().is_host();
    Ok((!on_host).then_some((source, target)))
}

/// The view of an entry without memory.
fn absent(plan: &Plan, entry: Entry) -> View {
    let id = plan.graph.entry_id(entry);
    View::absent(plan.shapes[id].clone(), plan.types[id])
}
