//! Cached graphs: a symbol that is called like an operator, on arrays of any shape.
//!
//! Each combination of shapes, dtypes, device and wanted gradients is planned once, and run by
//! executors over that plan. A recorded call holds its executor, whose arena has the values that
//! the gradient needs, until its place on the tape is cleared; then the executor is free for
//! another call. So calls may overlap in any order, and in a training loop one executor does
//! everything.
//!
//! An executor is bound to the *parameters*, and writes their gradients to the buffers of the
//! leaves; one whose parameters are no longer those of the call is dropped. Other inputs, outputs
//! and gradients differ from call to call: they take the places of the executor's arrays
//! (`places.rs`). What a recorded call's backward pass will read is copied instead, so that its
//! gradient does not depend on what becomes of the caller's arrays meanwhile.

mod call;

use super::autograd::{Tracked, record_function};
use super::bind::{Binding, Executor, Monitor, Planned};
use super::places::Places;
use super::transfer::copied;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::executor::Runtime;
use crate::graph::Symbol;
use crate::lock::Lock;
use crate::ndarray::NDArray;
use crate::operator::{OpReq, OpState};
use crate::shape::Shape;
use call::{CachedCall, Grad};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The most combinations of shapes whose plans are kept: the least recently used goes.
const MOST_PLANS: usize = 64;

/// A symbol that is called like an operator.
pub struct CachedGraph {
    rt: Arc<Runtime>,
    symbol: Symbol,
    name: String,
    inputs: Vec<Input>,
    memory_limit: Option<usize>,
    /// The most recently used last.
    pools: Lock<Vec<Arc<Pool>>>,
    monitor: Lock<Option<(Monitor, bool)>>,
}

struct Input {
    name: String,
    /// The place among the arguments or the auxiliary states.
    place: BoundTo,
}

#[derive(Clone, Copy)]
enum BoundTo {
    /// An argument; is it a parameter?
    Arg(usize, bool),
    Aux(usize),
}

/// What a plan depends on.
#[derive(PartialEq)]
struct Key {
    ctx: Context,
    specs: Vec<(Shape, DType)>,
    /// By argument.
    reqs: Vec<OpReq>,
}

/// The executors of one plan.
struct Pool {
    key: Key,
    planned: Lock<Option<Planned>>,
    free: Lock<Vec<Arc<Executor>>>,
}

/// The right to run an executor, until this is dropped.
struct Lease {
    pool: Arc<Pool>,
    executor: Arc<Executor>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.free.lock().push(self.executor.clone());
    }
}

impl CachedGraph {
    /// `parameters` are the names of inputs that are mostly the same arrays in all calls;
    /// `memory_limit` holds for the arenas of each plan.
    pub fn new(
        rt: &Arc<Runtime>,
        name: &str,
        symbol: Symbol,
        parameters: &[String],
        memory_limit: Option<usize>,
    ) -> Result<Arc<CachedGraph>> {
        let places = |aux: bool| -> HashMap<String, usize> {
            symbol.variables(aux).iter().map(|n| n.name()).zip(0..).collect()
        };
        let (args, aux) = (places(false), places(true));
        let mut inputs: Vec<Input> = Vec::new();
        for name in symbol.all_variables().iter().map(|node| node.name()) {
            if inputs.iter().any(|input| input.name == name) {
                return Err(Error::value(format!(
                    "cached graph: two inputs are named '{name}', expected different names"
                )));
            }
            let place = match (args.get(&name), aux.get(&name)) {
                (Some(&at), _) => BoundTo::Arg(at, parameters.contains(&name)),
                (None, Some(&at)) => BoundTo::Aux(at),
                (None, None) => return Err(Error::internal("an input has no place")),
            };
            inputs.push(Input { name, place });
        }
        if let Some(unknown) = parameters.iter().find(|p| inputs.iter().all(|i| i.name != **p)) {
            let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
            return Err(Error::unknown("input of the cached graph", unknown, &names));
        }
        Ok(Arc::new(CachedGraph {
            rt: rt.clone(),
            symbol,
            name: name.to_owned(),
            inputs,
            memory_limit,
            pools: Lock::new(Vec::new()),
            monitor: Lock::new(None),
        }))
    }

    /// Shows every entry of later calls to a monitor; with `all` it sees inputs too.
    pub fn set_monitor(&self, monitor: Option<Monitor>, all: bool) {
        *self.monitor.lock() = monitor.map(|m| (m, all));
    }

    /// Computes the outputs, in arrays of their own, and records the call if `recording` and an
    /// input is on the tape.
    pub fn call(
        &self,
        inputs: &[&Tracked],
        is_train: bool,
        recording: bool,
    ) -> Result<Vec<Tracked>> {
        let ctx = self.check(inputs)?;
        let record = recording && inputs.iter().any(|input| input.is_tracked());
        let run = Bound::of(self, inputs, record);
        let lease = self.lease(ctx, inputs, &run)?;
        let executor = &lease.executor;
        let monitor = self.monitor.lock().clone();
        // A monitor sees the executor's own arrays.
        let lends = ctx.is_host() && monitor.is_none();
        match monitor {
            Some((monitor, all)) => executor.set_monitor(Some(monitor), all),
            None => executor.set_monitor(None, false),
        }
        let outputs = run.forward(&self.rt, executor, is_train, record, lends)?;
        let outputs: Vec<Tracked> = outputs.into_iter().map(Tracked::new).collect();
        if record {
            let grads = run.grads_by_input(self, executor);
            let rt = self.rt.clone();
            let call = CachedCall { name: self.name.clone(), rt, grads, lease, lends };
            let outputs: Vec<&Tracked> = outputs.iter().collect();
            let kept = vec![false; outputs.len()];
            record_function(Arc::new(call), inputs, &outputs, &kept);
        }
        Ok(outputs)
    }

    /// Calls `visit` with the states of operators that only free executors hold.
    pub fn visit_own_states(&self, visit: &mut dyn FnMut(&OpState)) {
        let Some(pools) = self.pools.try_lock() else { return };
        for free in pools.iter().filter_map(|pool| pool.free.try_lock()) {
            for executor in free.iter().filter(|executor| Arc::strong_count(executor) == 1) {
                executor.visit_own_states(visit);
            }
        }
    }

    /// The device of the inputs.
    fn check(&self, inputs: &[&Tracked]) -> Result<Context> {
        if inputs.len() != self.inputs.len() {
            let names: Vec<&str> = self.inputs.iter().map(|i| i.name.as_str()).collect();
            return Err(Error::value(format!(
                "cached graph '{}': got {} arrays, expected {}: {}",
                self.name,
                inputs.len(),
                names.len(),
                names.join(", ")
            )));
        }
        let Some(first) = inputs.first() else { return Ok(Context::default()) };
        let ctx = first.array.context();
        for (input, given) in self.inputs.iter().zip(inputs) {
            if given.array.context() != ctx {
                return Err(Error::value(format!(
                    "cached graph '{}': input '{}' is on {}, expected {ctx} as input '{}'",
                    self.name,
                    input.name,
                    given.array.context(),
                    self.inputs[0].name
                )));
            }
        }
        Ok(ctx)
    }

    /// A free executor over the call's parameters, or a new one.
    fn lease(&self, ctx: Context, inputs: &[&Tracked], run: &Bound) -> Result<Lease> {
        let pool = self.pool(ctx, inputs, &run.reqs);
        loop {
            let Some(executor) = pool.free.lock().pop() else { break };
            if run.fits(&executor) {
                return Ok(Lease { pool, executor });
            }
        }
        let binding = run.binding(self, ctx)?;
        let planned = pool.planned.lock().clone();
        let executor = match planned {
            Some(planned) => Executor::with_plan(&self.rt, planned, binding)?,
            None => Executor::bind(&self.rt, binding)?,
        };
        pool.planned.lock().get_or_insert_with(|| executor.planned());
        Ok(Lease { pool, executor })
    }

    fn pool(&self, ctx: Context, inputs: &[&Tracked], reqs: &[OpReq]) -> Arc<Pool> {
        let mut pools = self.pools.lock();
        let is_it = |pool: &Arc<Pool>| {
            let Key { ctx: of, specs, reqs: asked } = &pool.key;
            let mut pairs = specs.iter().zip(inputs);
            *of == ctx
                && asked == reqs
                && pairs.all(|(s, i)| s.0 == *i.array.shape() && s.1 == i.array.dtype())
        };
        if let Some(at) = pools.iter().rposition(is_it) {
            let pool = pools.remove(at);
            pools.push(pool.clone());
            return pool;
        }
        let specs = inputs.iter().map(|i| (i.array.shape().clone(), i.array.dtype())).collect();
        let key = Key { ctx, specs, reqs: reqs.to_vec() };
        let pool = Arc::new(Pool { key, planned: Lock::new(None), free: Lock::new(Vec::new()) });
        if pools.len() >= MOST_PLANS {
            pools.remove(0);
        }
        pools.push(pool.clone());
        pool
    }
}

/// The arrays to which a call's executor must be bound, by argument and auxiliary state.
struct Bound {
    reqs: Vec<OpReq>,
    /// The array given for each argument; true if it is a parameter, which the executor is bound
    /// to.
    args: Vec<(NDArray, bool)>,
    /// The buffers of parameters that are leaves.
    buffers: Vec<Option<NDArray>>,
    aux: Vec<NDArray>,
}

impl Bound {
    fn of(graph: &CachedGraph, inputs: &[&Tracked], record: bool) -> Bound {
        let mut args = Vec::new();
        let mut aux = Vec::new();
        for (input, given) in graph.inputs.iter().zip(inputs) {
            match input.place {
                BoundTo::Arg(at, parameter) => args.push((at, *given, parameter)),
                BoundTo::Aux(at) => aux.push((at, given.array.clone())),
            }
        }
        args.sort_by_key(|arg| arg.0);
        aux.sort_by_key(|aux| aux.0);
        let mut bound = Bound {
            reqs: Vec::with_capacity(args.len()),
            args: Vec::with_capacity(args.len()),
            buffers: Vec::with_capacity(args.len()),
            aux: aux.into_iter().map(|(_, array)| array).collect(),
        };
        for (_, given, parameter) in args {
            let entry = given.entry().filter(|_| record);
            let leaf = entry.as_ref().and_then(|e| e.leaf());
            let (req, buffer) = match leaf {
                None if entry.is_some() => (OpReq::Write, None),
                None => (OpReq::Null, None),
                Some((_, OpReq::Null)) => (OpReq::Null, None),
                // A buffer has one gradient in a pass.
                Some((buffer, req)) if parameter && !bound.uses(buffer) => (req, Some(buffer)),
                Some(_) => (OpReq::Write, None),
            };
            bound.buffers.push(buffer.cloned());
            bound.reqs.push(req);
            bound.args.push((given.array.clone(), parameter));
        }
        bound
    }

    fn uses(&self, buffer: &NDArray) -> bool {
        self.buffers.iter().flatten().any(|used| used.overlaps(buffer))
    }

    /// Is the executor bound to these parameters, buffers and states?
    fn fits(&self, executor: &Executor) -> bool {
        let same = |a: &NDArray, b: &NDArray| a.same_chunk(b) && a.overlaps(b);
        let own = executor.arrays();
        let args =
            self.args.iter().zip(own.args).all(|((a, parameter), b)| !parameter || same(a, b));
        let grads = self.buffers.iter().zip(own.grads).all(|(buffer, grad)| match (buffer, grad) {
            (Some(buffer), Some(grad)) => same(buffer, grad),
            _ => true,
        });
        args && grads && self.aux.iter().zip(own.aux).all(|(a, b)| same(a, b))
    }

    /// Pushes the forward pass and returns its outputs. With `lends` inputs and outputs take the
    /// places of the executor's arrays if nothing reads them after the pass.
    fn forward(
        &self,
        rt: &Arc<Runtime>,
        executor: &Executor,
        is_train: bool,
        record: bool,
        lends: bool,
    ) -> Result<Vec<NDArray>> {
        let (mut places, mut copies) = (Places::default(), Vec::new());
        let (back, own) = (&executor.read_back, executor.arrays());
        for (at, (array, parameter)) in self.args.iter().enumerate() {
            // What the pass modifies may not be replaced by itself.
            let is_state = || self.aux.iter().any(|state| state.same_chunk(array));
            if *parameter {
                continue;
            } else if lends && !(record && back.args[at]) && !is_state() {
                array.usable()?;
                places.put(&own.args[at], array.clone());
            } else {
                copies.push((at, array.clone()));
            }
        }
        let own = executor.own_heads().0;
        let is_lent = |i: usize| lends && back.outputs[i].is_some_and(|read| !(record && read));
        for (_, array) in own.iter().enumerate().filter(|(i, _)| is_lent(*i)) {
            places.put(array, fresh(rt, array)?);
        }
        let places = Arc::new(places);
        executor.forward_at(is_train, &copies, &places)?;
        let output = |(i, own): (usize, &NDArray)| match places.of(own) {
            Some(array) if is_lent(i) => Ok(array.clone()),
            found => copied(found.unwrap_or(own)),
        };
        own.iter().enumerate().map(output).collect()
    }

    fn binding(&self, graph: &CachedGraph, ctx: Context) -> Result<Binding> {
        let fresh = |a: &NDArray| fresh(&graph.rt, a);
        let mut args = Vec::with_capacity(self.args.len());
        let mut grads = Vec::with_capacity(self.args.len());
        for (i, (array, parameter)) in self.args.iter().enumerate() {
            args.push(if *parameter { array.clone() } else { fresh(array)? });
            grads.push(match (&self.buffers[i], self.reqs[i]) {
                (_, OpReq::Null) => None,
                (Some(buffer), _) => Some(buffer.clone()),
                (None, _) => Some(fresh(array)?),
            });
        }
        Ok(Binding {
            symbol: graph.symbol.clone(),
            ctx,
            group2ctx: BTreeMap::new(),
            args,
            grads,
            reqs: self.reqs.clone(),
            aux: self.aux.clone(),
            shared: None,
            lends_outputs: true,
            memory_limit: graph.memory_limit,
        })
    }

    /// The executor's gradient of every input of the graph.
    fn grads_by_input(&self, graph: &CachedGraph, executor: &Executor) -> Vec<Option<Grad>> {
        let grads = executor.arrays().grads;
        let of = |input: &Input| match input.place {
            BoundTo::Aux(_) => None,
            BoundTo::Arg(at, _) => grads[at].as_ref().map(|array| Grad {
                array: array.clone(),
                is_early: executor.read_back.early_grads[at],
                is_buffer: self.buffers[at].is_some(),
                adds: self.reqs[at] == OpReq::Add,
            }),
        };
        graph.inputs.iter().map(of).collect()
    }
}

/// An array of the same kind without values.
fn fresh(rt: &Arc<Runtime>, array: &NDArray) -> Result<NDArray> {
    NDArray::pending(rt, array.shape(), array.dtype(), array.context())
}
