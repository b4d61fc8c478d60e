//! Binding: a symbol, arrays and a device become an [`Executor`].
//!
//! Everything that can be wrong is found here, with names: arrays of another shape, dtype or device
//! than inference and placement gave, gradients that do not fit, kernels that do not exist.

use super::arena::Arena;
use super::instance::{InstanceState, Instances};
use super::places::{Places, ReadBack};
use super::run::{Prepared, prepare};
use super::segments::BulkLimits;
use crate::context::Context;
use crate::dtype::DType;
use crate::engine::MAX_VARIABLES;
use crate::error::{AtNode as _, Error, Result};
use crate::executor::Runtime;
use crate::graph::{Plan, PlanOptions, PlanRequest, Symbol};
use crate::lock::Lock;
use crate::ndarray::{Base, NDArray};
use crate::operator::{OpReq, OpState};
use crate::shape::Shape;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Called with the name and a copy of an entry that was computed (or, for inputs, is about to be
/// read).
pub type Monitor = Arc<dyn Fn(&str, NDArray) -> Result<()> + Send + Sync>;

/// A symbol, and the arrays and device to bind it to.
pub struct Binding {
    pub symbol: Symbol,
    pub ctx: Context,
    pub group2ctx: BTreeMap<String, Context>,
    /// In the order of the symbol's arguments.
    pub args: Vec<NDArray>,
    pub grads: Vec<Option<NDArray>>,
    pub reqs: Vec<OpReq>,
    pub aux: Vec<NDArray>,
    /// Executor whose arenas to use.
    pub shared: Option<Arc<Executor>>,
    /// Must the memory of outputs hold nothing else? Runs can then put other arrays in its place.
    pub lends_outputs: bool,
    pub memory_limit: Option<usize>,
}

/// The arrays of an executor, in the order of the symbol's lists.
pub struct BoundArrays<'a> {
    pub args: &'a [NDArray],
    pub grads: &'a [Option<NDArray>],
    pub aux: &'a [NDArray],
}

/// A plan with the kernels of its nodes.
#[derive(Clone)]
pub struct Planned {
    plan: Arc<Plan>,
    read_back: Arc<ReadBack>,
    prepared: Vec<Option<Arc<Prepared<'static>>>>,
}

/// A symbol bound to arrays.
pub struct Executor {
    pub(super) id: u64,
    pub(super) rt: Arc<Runtime>,
    pub(super) symbol: Symbol,
    pub(super) plan: Arc<Plan>,
    pub(super) read_back: Arc<ReadBack>,
    pub(super) prepared: Vec<Option<Arc<Prepared<'static>>>>,
    /// Operators of the forward pass.
    pub(super) forward_steps: usize,
    pub(super) limits: BulkLimits,
    pub(super) args: Vec<NDArray>,
    pub(super) grads: Vec<Option<NDArray>>,
    pub(super) aux: Vec<NDArray>,
    /// One flag per auxiliary state: true if its bytes were valid when a run was last pushed.
    pub(super) aux_good: Lock<Vec<bool>>,
    pub(super) instances: Instances,
    pub(super) monitor: Lock<Option<(Monitor, bool)>>,
    /// Those of runs on the executor's own arrays alone.
    pub(super) no_places: Arc<Places>,
}

impl Executor {
    /// Plans and binds. Runs nothing.
    pub fn bind(rt: &Arc<Runtime>, binding: Binding) -> Result<Arc<Executor>> {
        let b = &binding;
        check_counts(b)?;
        let plan = Arc::new(crate::graph::plan(&request(rt, b))?);
        check_arrays(b, &plan)?;
        check_operands(&plan)?;
        let prepared = kernels(rt, &plan)?;
        let read_back = Arc::new(ReadBack::of(&plan));
        Executor::with_plan(rt, Planned { plan, read_back, prepared }, binding)
    }

    /// Binds by a plan that was made for arrays like these.
    pub fn with_plan(
        rt: &Arc<Runtime>,
        Planned { plan, read_back, prepared }: Planned,
        binding: Binding,
    ) -> Result<Arc<Executor>> {
        let arenas = arenas(rt, &plan, binding.shared.as_deref())?;
        let first = new_state(rt, &plan, arenas, &binding.args)?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Arc::new(Executor {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            rt: rt.clone(),
            forward_steps: prepared[..plan.graph.num_forward].iter().flatten().count(),
            prepared,
            plan,
            read_back,
            limits: BulkLimits::from_env(),
            aux_good: Lock::new(vec![true; binding.aux.len()]),
            instances: Instances::new(first),
            monitor: Lock::new(None),
            no_places: Arc::default(),
            symbol: binding.symbol,
            args: binding.args,
            grads: binding.grads,
            aux: binding.aux,
        }))
    }

    /// The executor's own arrays of outputs, and of their gradients as far as there are some yet.
    pub fn own_heads(&self) -> (Vec<NDArray>, Vec<Option<NDArray>>) {
        let first = self.instances.first();
        let state = first.state.lock();
        (state.outputs.clone(), state.head_grads.clone())
    }

    /// The arrays that it is bound to.
    pub fn arrays(&self) -> BoundArrays<'_> {
        BoundArrays { args: &self.args, grads: &self.grads, aux: &self.aux }
    }

    /// What another executor over arrays like these can share.
    pub fn planned(&self) -> Planned {
        let (plan, read_back) = (self.plan.clone(), self.read_back.clone());
        Planned { plan, read_back, prepared: self.prepared.clone() }
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    pub fn symbol(&self) -> &Symbol {
        &self.symbol
    }

    /// The state of an instance for another thread, with arenas of its own.
    pub(super) fn new_instance(&self) -> Result<InstanceState> {
        let arenas = arenas(&self.rt, &self.plan, None)?;
        new_state(&self.rt, &self.plan, arenas, &self.args)
    }
}

/// The state of an instance before its first run.
fn new_state(
    rt: &Arc<Runtime>,
    plan: &Plan,
    arenas: Vec<Arc<Arena>>,
    args: &[NDArray],
) -> Result<InstanceState> {
    Ok(InstanceState {
        arenas,
        args: args.to_vec(),
        own: vec![false; args.len()],
        outputs: outputs(rt, plan, args)?,
        head_grads: vec![None; plan.head_grads.len()],
        lent: None,
        states: states(plan)?,
        ready: None,
        vars: None,
        forwards: 0,
        next_step: 0,
    })
}

/// How an executor plans, by environment variables.
pub fn plan_options() -> PlanOptions {
    // In a pass of several operations, a thread that reads an output would see what lies there
    // before the output is written.
    PlanOptions { outputs_host: BulkLimits::from_env().are_off(), ..PlanOptions::from_env() }
}

fn request(rt: &Runtime, b: &Binding) -> PlanRequest {
    let facts = |a: &NDArray| Some((a.shape().clone(), a.dtype()));
    let group2ctx = (!b.group2ctx.is_empty()).then(|| b.group2ctx.clone());
    let device = |a: &NDArray| group2ctx.is_some().then(|| a.context());
    let mut options = plan_options();
    // Executors share an arena, but outputs each have their own: what lies in the arena costs less.
    options.outputs_host &= b.shared.is_none() && !b.lends_outputs;
    PlanRequest {
        bound_args: b.args.iter().map(facts).collect(),
        bound_aux: b.aux.iter().map(facts).collect(),
        grad_req: b.reqs.clone(),
        default_ctx: b.ctx,
        arg_ctx: b.args.iter().map(device).collect(),
        aux_ctx: b.aux.iter().map(device).collect(),
        group2ctx,
        memory_limit: b.memory_limit,
        options,
        ..PlanRequest::new(b.symbol.clone(), rt.registry.clone())
    }
}

fn check_counts(b: &Binding) -> Result<()> {
    let (arguments, states) = b.symbol.arguments_and_states();
    let (args, aux) = (arguments.len(), states.len());
    for (what, got, expected) in [
        ("args", b.args.len(), args),
        ("args_grad", b.grads.len(), args),
        ("grad_req", b.reqs.len(), args),
        ("aux_states", b.aux.len(), aux),
    ] {
        if got != expected {
            return Err(Error::value(format!(
                "bind: '{what}' has {got} entries, expected {expected}"
            )));
        }
    }
    Ok(())
}

/// Checks bound arrays against what the plan inferred and placed.
fn check_arrays(b: &Binding, plan: &Plan) -> Result<()> {
    let graph = &plan.graph;
    let fits = |what: &str, array: &NDArray, node: u32| -> Result<()> {
        let id = graph.entries_of(node as usize).start;
        let name = &graph.nodes[node as usize].name;
        let of = format!("{what}{name}");
        if *array.shape() != plan.shapes[id] {
            return Err(Error::argument(&of, "shape", array.shape(), &plan.shapes[id]));
        }
        if array.dtype() != plan.types[id] {
            return Err(Error::argument(&of, "dtype", array.dtype(), plan.types[id]));
        }
        let device = graph.nodes[node as usize].ctx;
        if array.context() != device {
            return Err(Error::value(format!(
                "argument '{of}': Input array is in {} while binding with ctx={device}. All \
                 arguments must be in global context ({}) unless group2ctx is specified for \
                 cross-device graph.",
                array.context(),
                b.ctx
            )));
        }
        Ok(())
    };
    for (&node, array) in plan.arguments.iter().zip(&b.args) {
        fits("", array, node)?;
    }
    for (&node, array) in plan.aux.iter().zip(&b.aux) {
        fits("", array, node)?;
    }
    for ((&node, grad), req) in plan.arguments.iter().zip(&b.grads).zip(&b.reqs) {
        match grad {
            Some(grad) if *req != OpReq::Null => fits("gradient of ", grad, node)?,
            None if *req != OpReq::Null => {
                let name = &graph.nodes[node as usize].name;
                return Err(Error::value(format!(
                    "argument '{name}' has grad_req '{}' but no gradient array: expected \
                     one, or 'null'",
                    req.name()
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// An error if an operator has more arrays than one operation of the engine can name.
fn check_operands(plan: &Plan) -> Result<()> {
    let graph = &plan.graph;
    // Besides, a node's operation names its segment's variable and the arenas.
    let most = MAX_VARIABLES - 1 - plan.arena_bytes.len();
    for (n, node) in graph.nodes.iter().enumerate() {
        if node.inputs.len() + node.num_outputs as usize <= most {
            continue;
        }
        let operands = node.inputs.iter().map(|&e| graph.entry_id(e)).chain(graph.entries_of(n));
        let outside = |id: &usize| {
            !matches!(
                plan.place[*id],
                crate::graph::Place::Arena { .. } | crate::graph::Place::Nowhere
            )
        };
        let arrays = operands.filter(outside).collect::<FxHashSet<usize>>().len();
        if arrays > most {
            return Err(Error::value(format!(
                "an operator of a graph reads and writes at most {most} arrays from outside of it, \
                 this one {arrays}"
            )))
            .at_node(node.op_name(), &node.name);
        }
    }
    Ok(())
}

/// The kernel of every operator node.
fn kernels(base: &Base, plan: &Plan) -> Result<Vec<Option<Arc<Prepared<'static>>>>> {
    let graph = &plan.graph;
    let facts = |id: usize| (plan.types[id], plan.shapes[id].ndim());
    let mut prepared = Vec::with_capacity(graph.nodes.len());
    for (n, node) in graph.nodes.iter().enumerate() {
        let Some(op) = &node.op else {
            prepared.push(None);
            continue;
        };
        let ins = node.inputs.iter().map(|&e| graph.entry_id(e));
        let tensors = || ins.chain(graph.entries_of(n)).map(facts);
        let made = prepare(base, op, &node.attrs, node.ctx, (node.inputs.len(), tensors))
            .at_node(&op.name, &node.name)?;
        prepared.push(Some(Arc::new(made.owned())));
    }
    Ok(prepared)
}

/// The states of stateful nodes; a backward node has its forward node's.
fn states(plan: &Plan) -> Result<Vec<Option<OpState>>> {
    let graph = &plan.graph;
    let mut states: Vec<Option<OpState>> = vec![None; graph.nodes.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        if let Some(forward) = node.backward_of {
            states[n] = states[forward as usize].clone();
            continue;
        }
        let Some(make) = node.op.as_ref().and_then(|op| op.state.as_ref()) else { continue };
        let ids = || node.inputs.iter().map(|&e| graph.entry_id(e));
        let shapes: Vec<Shape> = ids().map(|id| plan.shapes[id].clone()).collect();
        let types: Vec<DType> = ids().map(|id| plan.types[id]).collect();
        let state =
            make(&node.attrs, node.ctx, &shapes, &types).at_node(node.op_name(), &node.name)?;
        states[n] = Some(state);
    }
    Ok(states)
}

/// The arenas of a plan: those of another executor's first instance, grown if need be, or fresh
/// ones.
fn arenas(rt: &Arc<Runtime>, plan: &Plan, shared: Option<&Executor>) -> Result<Vec<Arc<Arena>>> {
    let given = shared.map(|e| e.instances.first().state.lock().arenas.clone()).unwrap_or_default();
    let mut arenas = Vec::with_capacity(plan.arena_bytes.len());
    for &(device, bytes) in &plan.arena_bytes {
        match given.iter().find(|a| a.device == device) {
            Some(arena) => {
                arena.grow(rt, bytes)?;
                arenas.push(arena.clone());
            }
            None => arenas.push(Arena::new(rt, device, bytes)?),
        }
    }
    // Arenas that this plan does not use are passed on to executors that share with this one.
    arenas.extend(given.into_iter().filter(|g| plan.arena_bytes.iter().all(|a| a.0 != g.device)));
    Ok(arenas)
}

/// The arrays of the outputs: their own memory, the same on every run. An output that is an
/// argument is the argument's array.
fn outputs(rt: &Arc<Runtime>, plan: &Plan, args: &[NDArray]) -> Result<Vec<NDArray>> {
    let mut made: FxHashMap<usize, NDArray> = FxHashMap::default();
    for (&node, array) in plan.arguments.iter().zip(args) {
        made.insert(plan.graph.entries_of(node as usize).start, array.clone());
    }
    let mut outputs = Vec::with_capacity(plan.outputs.len());
    for (&entry, head) in plan.outputs.iter().zip(0..) {
        let id = plan.graph.entry_id(entry);
        if let Some(array) = made.get(&id) {
            outputs.push(array.clone());
            continue;
        }
        let device = plan.graph.nodes[entry.node as usize].ctx;
        let (shape, dtype) = (&plan.shapes[id], plan.types[id]);
        let chunk_bytes = plan.output_chunks.get(&head).copied().unwrap_or(0);
        let array = NDArray::with_room(rt, shape, dtype, device, chunk_bytes)?;
        made.insert(id, array.clone());
        outputs.push(array);
    }
    Ok(outputs)
}
