//! Running an executor: forward, backward, one node at a time, and the outputs.

use super::arena::{Arena, Memory, RunId};
use super::bind::{Executor, Monitor};
use super::call_site;
use super::instance::{Instance, InstanceState, Ready};
use super::places::Places;
use super::segments::{Mode, Parts, PassInfo, Program};
use super::transfer::push_copy;
use crate::engine::{Push, RunOn, Task};
use crate::error::{Error, Result};
use crate::graph::{Entry, Place};
use crate::ndarray::NDArray;
use crate::operator::{OpReq, OpState};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry as Slot;
use std::ops::Range;
use std::sync::Arc;

/// The steps of a run.
#[derive(Clone, Copy)]
enum Pass {
    Forward,
    Backward,
    /// This step of the forward pass.
    Step(usize),
}

impl Pass {
    fn steps(self, program: &Program) -> Range<usize> {
        match self {
            Pass::Forward => 0..program.forward_steps,
            Pass::Backward => program.forward_steps..program.steps.len(),
            Pass::Step(at) => at..at + 1,
        }
    }
}

impl Executor {
    /// Copies `inputs` (argument index, values) into the instance of this thread, pushes the
    /// forward pass and returns the outputs: the same arrays on every call of a thread.
    ///
    /// A callback may run inside the push, so no lock is held then, except those of shared arenas.
    pub fn forward(&self, is_train: bool, inputs: &[(usize, NDArray)]) -> Result<Vec<NDArray>> {
        let instance = self.instances.mine(|| self.new_instance())?;
        self.forward_in(&instance, is_train.into(), inputs, &self.no_places)
    }

    /// As [`Executor::forward`], in the executor's own memory whichever thread calls: for callers
    /// that let one run go on at a time.
    pub fn forward_own(
        &self,
        mode: impl Into<Mode>,
        inputs: &[(usize, NDArray)],
    ) -> Result<Vec<NDArray>> {
        self.forward_in(&self.instances.first(), mode.into(), inputs, &self.no_places)
    }

    /// As [`Executor::forward_own`], with other arrays in the places of some of the executor's own.
    pub fn forward_at(
        &self,
        is_train: bool,
        inputs: &[(usize, NDArray)],
        places: &Arc<Places>,
    ) -> Result<Vec<NDArray>> {
        self.forward_in(&self.instances.first(), is_train.into(), inputs, places)
    }

    fn forward_in(
        &self,
        instance: &Instance,
        mode: Mode,
        inputs: &[(usize, NDArray)],
        places: &Arc<Places>,
    ) -> Result<Vec<NDArray>> {
        let set = |state: &mut InstanceState| self.set_inputs(instance, state, inputs);
        let mut outputs = Vec::new();
        let look = |state: &InstanceState| outputs.clone_from(&state.outputs);
        self.start(instance, Pass::Forward, mode, places, set, look)?;
        Ok(outputs)
    }

    /// Pushes the backward pass of this thread's last forward pass. `head_grads`: one per output,
    /// fewer or none where outputs need none.
    pub fn backward(&self, is_train: bool, head_grads: &[Option<NDArray>]) -> Result<()> {
        let instance = self.instances.mine_or_first();
        self.backward_in(&instance, is_train.into(), head_grads, &self.no_places)
    }

    /// The backward pass of [`Executor::forward_own`]. With `again` the values that the forward
    /// pass left in the arenas are there afterwards, for another backward pass.
    pub fn backward_own(
        &self,
        mode: impl Into<Mode>,
        head_grads: &[Option<NDArray>],
        again: bool,
    ) -> Result<()> {
        self.backward_at(mode, head_grads, again, &self.no_places)
    }

    /// As [`Executor::backward_own`], with other arrays in the places of some of the executor's
    /// own.
    pub fn backward_at(
        &self,
        mode: impl Into<Mode>,
        head_grads: &[Option<NDArray>],
        again: bool,
        places: &Arc<Places>,
    ) -> Result<()> {
        let instance = self.instances.first();
        let arenas: Vec<NDArray> = match again {
            true => instance.state.lock().arenas.iter().map(|a| a.memory().array).collect(),
            false => Vec::new(),
        };
        let saved = arenas.iter().map(|arena| self.shown(arena)).collect::<Result<Vec<_>>>()?;
        self.backward_in(&instance, mode.into(), head_grads, places)?;
        saved.iter().zip(&arenas).try_for_each(|(saved, arena)| push_copy(saved, arena))
    }

    fn backward_in(
        &self,
        instance: &Instance,
        mode: Mode,
        head_grads: &[Option<NDArray>],
        places: &Arc<Places>,
    ) -> Result<()> {
        if self.plan.arg_grads.iter().all(Option::is_none) {
            return Ok(());
        }
        let set = |state: &mut InstanceState| {
            if state.forwards == 0 {
                return Err(Error::value(
                    "backward(): expected a forward(is_train=True) before it",
                ));
            }
            self.set_head_grads(state, head_grads, places)
        };
        self.start(instance, Pass::Backward, mode, places, set, |_| {})
    }

    /// Runs node number `step` of the forward pass; returns how many are left.
    pub fn partial_forward(&self, is_train: bool, step: usize) -> Result<usize> {
        if step >= self.forward_steps {
            return Ok(0);
        }
        let instance = self.instances.mine(|| self.new_instance())?;
        let places = &self.no_places;
        self.start(&instance, Pass::Step(step), is_train.into(), places, |_| Ok(()), |_| {})?;
        Ok(self.forward_steps - step - 1)
    }

    /// Pushes a pass in an instance, alone on the arenas that it shares: every run begins here.
    /// `set` copies the caller's values into the instance; `look` is called with the instance once
    /// the run has passed its checks.
    fn start(
        &self,
        instance: &Instance,
        pass: Pass,
        mode: Mode,
        places: &Arc<Places>,
        set: impl FnOnce(&mut InstanceState) -> Result<()> + Send,
        look: impl FnOnce(&InstanceState) + Send,
    ) -> Result<()> {
        let shared = self.shared_arenas(instance);
        if shared.is_empty() {
            return self.start_alone(instance, pass, mode, places, set, look);
        }
        let (mut closures, mut result) = (Some((set, look)), Ok(()));
        // Runs of executors that share memory wait for each other's pushes.
        (self.rt.blocking)(&mut || {
            let Some((set, look)) = closures.take() else { return };
            let alone = shared.iter().map(|a| a.alone()).collect::<Result<Vec<_>>>();
            result =
                alone.and_then(|_alone| self.start_alone(instance, pass, mode, places, set, look));
        });
        result
    }

    /// As [`Executor::start`], while no other run uses the instance's arenas.
    fn start_alone(
        &self,
        instance: &Instance,
        pass: Pass,
        mode: Mode,
        places: &Arc<Places>,
        set: impl FnOnce(&mut InstanceState) -> Result<()>,
        look: impl FnOnce(&InstanceState),
    ) -> Result<()> {
        let ready = {
            let mut state = instance.state.lock();
            set(&mut state)?;
            let ready = self.ready(&mut state)?;
            let all = ready.program.forward_steps;
            match pass {
                Pass::Forward | Pass::Step(0) => {
                    self.restore_states(&state)?;
                    state.lent = (!self.aux.is_empty()).then(|| places.clone());
                    state.forwards += 1;
                    self.note_run(instance, &state);
                }
                Pass::Backward => check_whole(&state, all)?,
                Pass::Step(step) => check_next(&state, step, all)?,
            }
            // The values that later steps read must still be there.
            self.check_last_run(instance, &state, pass)?;
            state.next_step = match pass {
                Pass::Step(step) => step + 1,
                Pass::Forward | Pass::Backward => all,
            };
            look(&state);
            ready
        };
        self.push_pass(&ready, pass, mode, places)
    }

    /// The outputs of this thread's last forward pass; zeros before the first.
    pub fn outputs(&self) -> Result<Vec<NDArray>> {
        let outputs = self.instances.mine_or_first().state.lock().outputs.clone();
        outputs.iter().try_for_each(NDArray::zero_if_pending)?;
        Ok(outputs)
    }

    /// The planned graph as text, with a line for every segment: the nodes, by their position in
    /// execution order, that run as one operation of the engine; and for every chain: those that
    /// run as one pass over memory. The last line has what kernels keep of weights.
    pub fn debug_str(&self) -> Result<String> {
        let instance = self.instances.first();
        let ready = self.ready(&mut instance.state.lock())?;
        let mut text = self.plan.debug_str(&ready.program.node_ranges(), &ready.program.chains());
        let kept = ready.program.steps.iter().filter_map(|step| step.kept.as_ref());
        let bytes: usize = kept.map(|kept| kept.bytes()).sum();
        if bytes > 0 {
            text.push_str(&format!("Kept, made of weights: {bytes} bytes\n"));
        }
        Ok(text)
    }

    /// Calls `visit` with the states of operators that only this executor holds.
    pub fn visit_own_states(&self, visit: &mut dyn FnMut(&OpState)) {
        self.instances.visit_own_states(visit);
    }

    /// Installs or removes a monitor; with `all` it sees inputs too.
    pub fn set_monitor(&self, monitor: Option<Monitor>, all: bool) {
        *self.monitor.lock() = monitor.map(|m| (m, all));
    }

    /// Arenas of an instance that other executors use too, always in one order.
    fn shared_arenas(&self, instance: &Instance) -> Vec<Arc<Arena>> {
        let state = instance.state.lock();
        let others = state.arenas.iter().filter(|arena| Arc::strong_count(arena) > 1);
        let mut shared: Vec<_> = others.cloned().collect();
        drop(state);
        shared.sort_by_key(|a| Arc::as_ptr(a) as usize);
        shared
    }

    /// Auxiliary states that a failed run of this executor left marked as never computed hold the
    /// values from before it, so they are marked as good again: one failure must not make the
    /// executor unusable. States that were bad before the run, or failed elsewhere, stay bad.
    fn restore_states(&self, state: &InstanceState) -> Result<()> {
        if self.aux.is_empty() {
            return Ok(());
        }
        let engine = &self.rt.engine;
        let mut good = self.aux_good.lock();
        for (array, good) in self.aux.iter().zip(good.iter_mut()) {
            let writes = [array.var()];
            let Some(error) = engine.poisoned(writes[0]) else {
                *good = true;
                continue;
            };
            if *good && self.failed_with(state, &error) {
                let push = Push {
                    overwrites: 1,
                    run_on: RunOn::Pusher,
                    call_site: Some(&call_site::current),
                    ..Push::new("restore state", &[], &writes)
                };
                engine.push(Task::nothing(), push)?;
            } else {
                *good = false;
            }
        }
        Ok(())
    }

    /// Returns true if the last run of some instance failed with this very error.
    fn failed_with(&self, mine: &InstanceState, error: &Error) -> bool {
        let same =
            |output: &NDArray| self.rt.engine.poisoned(output.var()).is_some_and(|e| e.same(error));
        let any = |state: &InstanceState| {
            state.outputs.iter().any(same)
                || state.lent.iter().any(|places| places.arrays().any(same))
        };
        let other = |instance: &Instance| instance.state.try_lock().is_some_and(|s| any(&s));
        any(mine) || self.instances.all().iter().any(|instance| other(instance))
    }

    fn run_id(&self, instance: &Instance, state: &InstanceState) -> RunId {
        (self.id, instance.number, state.forwards)
    }

    fn note_run(&self, instance: &Instance, state: &InstanceState) {
        for arena in self.used_arenas(state) {
            arena.note(self.run_id(instance, state));
        }
    }

    /// Arenas in which this plan has bytes.
    fn used_arenas<'a>(&'a self, state: &'a InstanceState) -> impl Iterator<Item = &'a Arena> {
        let used = |device| self.plan.arena_bytes.iter().any(|a| a.0 == device);
        state.arenas.iter().map(|arena| &**arena).filter(move |arena| used(arena.device))
    }

    fn check_last_run(&self, instance: &Instance, state: &InstanceState, pass: Pass) -> Result<()> {
        let mine = self.run_id(instance, state);
        for arena in self.used_arenas(state) {
            if arena.last_run() != Some(mine) {
                let (began, needs) = match pass {
                    Pass::Step(_) => ("partial_forward() began", "partial_forward()"),
                    Pass::Forward | Pass::Backward => ("its forward()", "backward()"),
                };
                return Err(Error::value(format!(
                    "another executor that shares this one's memory ran since {began}: the values \
                     that {needs} needs are gone"
                )));
            }
        }
        Ok(())
    }

    fn push_pass(&self, ready: &Ready, pass: Pass, mode: Mode, places: &Arc<Places>) -> Result<()> {
        let program = &ready.program;
        let steps = pass.steps(program);
        let run = program.pass_info(&self.rt, steps.clone(), mode, places);
        let monitor = self.monitor.lock().clone();
        if let Some(monitor) = monitor {
            return self.push_watched(ready, steps, &run, &monitor);
        }
        let segments = match pass {
            Pass::Forward => &program.forward,
            Pass::Backward => &program.backward,
            Pass::Step(at) => return program.push(&self.rt, &program.single(at), &run),
        };
        program.begin(&self.rt, steps.start == 0)?;
        for segment in segments {
            program.push(&self.rt, segment, &run)?;
        }
        Ok(())
    }

    /// The program of an instance, laid out again if an array or an arena was replaced.
    fn ready(&self, state: &mut InstanceState) -> Result<Ready> {
        if let Some(ready) = &state.ready {
            let pairs = ready.memory.arenas.iter().zip(&state.arenas);
            if pairs.into_iter().all(|(memory, arena)| arena.is_current(memory)) {
                return Ok(ready.clone());
            }
        }
        let memory = Arc::new(self.lay_out(state)?);
        let parts = Parts { prepared: &self.prepared, states: &state.states };
        let vars = state.vars.clone();
        let plan = &self.plan;
        let program = Program::new(&self.rt, plan, &parts, memory.clone(), self.limits, vars)?;
        state.vars = Some(program.vars().clone());
        let program = Arc::new(program);
        let ready = Ready { program, memory };
        state.ready = Some(ready.clone());
        Ok(ready)
    }

    /// Maps every entry to its array.
    fn lay_out(&self, state: &InstanceState) -> Result<Memory> {
        let plan = &self.plan;
        let args = plan.arguments.iter().zip(&state.args);
        let bound = args.chain(plan.aux.iter().zip(&self.aux));
        let mut variables: FxHashMap<u32, NDArray> = bound.map(|(n, a)| (*n, a.clone())).collect();
        for (node, array) in plan.head_grads.iter().zip(&state.head_grads) {
            if let (Some(node), Some(array)) = (node, array) {
                variables.insert(*node, array.clone());
            }
        }
        let heads = plan.outputs.iter().zip(&state.outputs);
        let mut outputs: FxHashMap<usize, NDArray> =
            heads.map(|(e, a)| (plan.graph.entry_id(*e), a.clone())).collect();
        for (id, place) in plan.place.iter().enumerate() {
            if let Place::Output(head) = place
                && let Slot::Vacant(free) = outputs.entry(id)
            {
                // What the output takes over in place, and what ends before it, uses its bytes.
                let array = &state.outputs[*head as usize];
                free.insert(array.guest(&plan.shapes[id], plan.types[id])?);
            }
        }
        let arenas = state.arenas.iter().map(|a| a.memory()).collect();
        Ok(Memory { arenas, variables, outputs, grads: self.grads.clone() })
    }

    /// A copy of an array whose memory may be taken over: for a monitor, or to be restored.
    fn shown(&self, entry: &NDArray) -> Result<NDArray> {
        let (shape, dtype) = (entry.shape(), entry.dtype());
        let copy = NDArray::pending(&self.rt, shape, dtype, entry.context())?;
        push_copy(entry, &copy)?;
        Ok(copy)
    }

    /// Pushes steps one by one and shows what they read and compute to the monitor.
    fn push_watched(
        &self,
        Ready { program, memory }: &Ready,
        steps: Range<usize>,
        run: &Arc<PassInfo>,
        (monitor, all): &(Monitor, bool),
    ) -> Result<()> {
        let plan = &self.plan;
        for i in steps {
            let n = program.steps[i].node;
            let node = &plan.graph.nodes[n as usize];
            if *all {
                for (at, &entry) in node.inputs.iter().enumerate() {
                    if let Some(array) = memory.array(plan, entry)? {
                        let source = &plan.graph.nodes[entry.node as usize];
                        if source.is_variable() {
                            monitor(&source.name, self.shown(&array)?)?;
                        }
                        let name = format!("{}_{}", node.name, node.input_name(at));
                        monitor(&name, self.shown(&array)?)?;
                    }
                }
            }
            let segment = program.single(i);
            program.push(&self.rt, &segment, run)?;
            for (name, index) in plan.graph.entry_names(n).iter().zip(0..) {
                let entry = Entry::new(n, index);
                let unwanted = plan.req[plan.graph.entry_id(entry)] == OpReq::Null;
                if let (false, Some(array)) = (unwanted, memory.array(plan, entry)?) {
                    monitor(name, self.shown(&array)?)?;
                }
            }
        }
        Ok(())
    }
}

/// Refuses a backward pass before all steps of the forward pass were made.
fn check_whole(state: &InstanceState, all: usize) -> Result<()> {
    match state.next_step {
        ran if ran < all => Err(Error::value(format!(
            "backward() needs a whole forward pass before it: partial_forward ran {ran} of {all} \
             steps"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a step out of order: a later step may have overwritten memory that earlier ones read.
fn check_next(state: &InstanceState, step: usize, all: usize) -> Result<()> {
    let next = state.next_step % all;
    if step == next {
        return Ok(());
    }
    Err(Error::value(format!(
        "partial_forward: invalid step '{step}': expected {next}, the next one, or 0, the first"
    )))
}
