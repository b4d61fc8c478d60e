//! Instances: the memory in which one thread runs an executor.
//!
//! The first thread that runs an executor uses its first instance, whose inputs are the bound
//! arrays themselves. A second thread gets an instance of its own: inputs given to `forward`,
//! outputs and arenas are its own, all other arguments, gradients and auxiliary states are the
//! bound arrays. The instance of a thread that has ended is reused by the next thread that needs
//! one.

use super::arena::{Arena, Memory, token};
use super::places::Places;
use super::segmentation::SegmentVars;
use super::segments::Program;
use crate::error::Result;
use crate::lock::Lock;
use crate::ndarray::NDArray;
use crate::operator::OpState;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};

/// A program with the memory it lies over.
#[derive(Clone)]
pub struct Ready {
    pub program: Arc<Program>,
    pub memory: Arc<Memory>,
}

/// The state of one thread's runs.
pub struct Instance {
    /// 0 is the executor's own instance.
    pub number: usize,
    owner: Lock<Weak<()>>,
    pub state: Lock<InstanceState>,
}

pub struct InstanceState {
    pub arenas: Vec<Arc<Arena>>,
    /// The arguments of this instance: bound arrays, or its own copies of inputs given to
    /// `forward`.
    pub args: Vec<NDArray>,
    /// One flag per argument: true if the instance owns it.
    pub own: Vec<bool>,
    pub outputs: Vec<NDArray>,
    pub head_grads: Vec<Option<NDArray>>,
    /// What stood in the places of its arrays in the last forward pass, if errors of these arrays
    /// may have to be kept apart from errors of its own.
    pub lent: Option<Arc<Places>>,
    pub states: Vec<Option<OpState>>,
    /// Laid out when first needed, and again when an array was replaced.
    pub ready: Option<Ready>,
    /// The variables that order the segments of this instance's programs, once there is one.
    pub vars: Option<Arc<SegmentVars>>,
    /// Forward passes so far; 0: there are no outputs yet.
    pub forwards: u64,
    /// Steps that the last forward pass has made; `partial_forward` makes the next one.
    pub next_step: usize,
}

impl Instance {
    pub fn new(number: usize, state: InstanceState) -> Arc<Instance> {
        Arc::new(Instance { number, owner: Lock::new(Weak::new()), state: Lock::new(state) })
    }
}

/// The instances of an executor.
pub struct Instances {
    instances: Lock<Vec<Arc<Instance>>>,
}

impl Instances {
    pub fn new(first: InstanceState) -> Self {
        Instances { instances: Lock::new(vec![Instance::new(0, first)]) }
    }

    pub fn first(&self) -> Arc<Instance> {
        self.instances.lock()[0].clone()
    }

    pub fn all(&self) -> Vec<Arc<Instance>> {
        self.instances.lock().clone()
    }

    /// The instance of the calling thread, or the first one if it has none: for reading results.
    pub fn mine_or_first(&self) -> Arc<Instance> {
        let Some(me) = token() else { return self.first() };
        let instances = self.instances.lock();
        instances.iter().find(|l| is_owner(l, &me)).unwrap_or(&instances[0]).clone()
    }

    /// The instance in which the calling thread is to run: its own, a free one, or one made by
    /// `make`, which runs without a lock because it may call into a program.
    pub fn mine(&self, make: impl FnOnce() -> Result<InstanceState>) -> Result<Arc<Instance>> {
        let Some(me) = token() else { return Ok(self.first()) };
        if let Some(instance) = self.claim(&me) {
            return Ok(instance);
        }
        let state = make()?;
        let mut instances = self.instances.lock();
        let instance = Instance::new(instances.len(), state);
        *instance.owner.lock() = Arc::downgrade(&me);
        instances.push(instance.clone());
        Ok(instance)
    }

    fn claim(&self, me: &Arc<()>) -> Option<Arc<Instance>> {
        let instances = self.instances.lock();
        if let Some(instance) = instances.iter().find(|l| is_owner(l, me)) {
            return Some(instance.clone());
        }
        let free = instances.iter().find(|l| l.owner.lock().strong_count() == 0)?;
        *free.owner.lock() = Arc::downgrade(me);
        Some(free.clone())
    }
}

impl Instances {
    /// Calls `visit` with the states of operators that only these instances hold. Skips instances
    /// that are in use.
    pub fn visit_own_states(&self, visit: &mut dyn FnMut(&OpState)) {
        let Some(instances) = self.instances.try_lock() else { return };
        for instance in instances.iter() {
            if let Some(state) = instance.state.try_lock() {
                state.visit_own_states(visit);
            }
        }
    }
}

impl InstanceState {
    /// Calls `visit` with the states that only this instance holds.
    fn visit_own_states(&self, visit: &mut dyn FnMut(&OpState)) {
        let program = self.ready.as_ref().map(|ready| &ready.program);
        if program.is_some_and(|program| Arc::strong_count(program) > 1) {
            return; // a run is in progress
        }
        let mut owners: FxHashMap<*const (), (usize, &OpState)> = FxHashMap::default();
        let in_program = program.into_iter().flat_map(|program| program.states());
        for state in self.states.iter().flatten().chain(in_program) {
            owners.entry(Arc::as_ptr(state).cast()).or_insert((0, state)).0 += 1;
        }
        for (count, state) in owners.into_values() {
            if Arc::strong_count(state) == count {
                visit(state);
            }
        }
    }
}

fn is_owner(instance: &Instance, me: &Arc<()>) -> bool {
    std::ptr::eq(instance.owner.lock().as_ptr(), Arc::as_ptr(me))
}
