//! Lanes: the memory in which one thread runs an executor, and arenas that executors share.
//!
//! The first thread that runs an executor uses its first lane, whose inputs are the bound arrays
//! themselves. A second thread gets a lane of its own: inputs that it gives to `forward`, outputs and arena
//! are its own, all other arguments, gradients and auxiliary states are the bound arrays. A lane whose
//! thread has ended goes to the next thread that needs one.
//!
//! An [`Arena`] is the memory of a device's internal entries. Executors bound with `shared_exec` use one
//! together; binding a larger one renews it, and the others lay their programs over the new memory when
//! they run next, so its size is that of the largest, whatever the order of binding.

use super::cut::SegmentVars;
use super::segments::Program;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::executor::Runtime;
use crate::graph::{Entry, Place, Plan};
use crate::lock::{Guard, Lock};
use crate::ndarray::NDArray;
use crate::operator::OpState;
use crate::shape::Shape;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Memory of one device's internal entries, at the moment.
#[derive(Clone)]
pub struct ArenaMemory {
    pub device: Context,
    pub array: NDArray,
}

/// Which run last used an arena: executor, lane, and how many forward passes the lane had made.
pub type RunId = (u64, usize, u64);

struct ArenaState {
    memory: NDArray,
    last_run: Option<RunId>,
}

/// The arena of a device, perhaps used by several executors.
pub struct Arena {
    pub device: Context,
    state: Lock<ArenaState>,
    /// Held while a run is pushed if the arena is shared, so that two runs do not mingle.
    pushing: Lock<()>,
    /// The address of the [`token`] of the thread that holds it; 0 is none.
    pusher: AtomicUsize,
}

/// The right to push a run on an arena.
pub struct Alone<'a>(&'a Arena, #[expect(dead_code, reason = "held")] Guard<'a, ()>);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.pusher.store(0, Ordering::Relaxed);
    }
}

impl Arena {
    /// An arena of at least `bytes` bytes.
    pub fn new(rt: &Arc<Runtime>, device: Context, bytes: usize) -> Result<Arc<Arena>> {
        let memory = arena_array(rt, device, bytes)?;
        let state = Lock::new(ArenaState { memory, last_run: None });
        let (pushing, pusher) = (Lock::new(()), AtomicUsize::new(0));
        Ok(Arc::new(Arena { device, state, pushing, pusher }))
    }

    /// Waits until nobody else pushes a run on the arena. An error if this very thread does: it is in a monitor or an
    /// operation of that run, which would wait for itself.
    pub fn alone(&self) -> Result<Alone<'_>> {
        let me = token().map_or(0, |token| Arc::as_ptr(&token) as usize);
        if me != 0 && self.pusher.load(Ordering::Relaxed) == me {
            return Err(Error::value(
                "a monitor or operation of a run cannot run the executor, or one that shares its memory \
                 (shared_exec): bind another one without sharing",
            ));
        }
        let guard = self.pushing.lock();
        self.pusher.store(me, Ordering::Relaxed);
        Ok(Alone(self, guard))
    }

    /// Makes it at least so large. Whoever uses it moves at the next run.
    pub fn grow(&self, rt: &Arc<Runtime>, bytes: usize) -> Result<()> {
        let mut state = self.state.lock();
        if state.memory.size_bytes() < bytes {
            state.memory = arena_array(rt, self.device, bytes)?;
            state.last_run = None;
        }
        Ok(())
    }

    pub fn memory(&self) -> ArenaMemory {
        ArenaMemory { device: self.device, array: self.state.lock().memory.clone() }
    }

    pub fn is_current(&self, memory: &ArenaMemory) -> bool {
        self.state.lock().memory.same_chunk(&memory.array)
    }

    pub fn note(&self, run: RunId) {
        self.state.lock().last_run = Some(run);
    }

    pub fn last_run(&self) -> Option<RunId> {
        self.state.lock().last_run
    }
}

fn arena_array(rt: &Arc<Runtime>, device: Context, bytes: usize) -> Result<NDArray> {
    NDArray::empty(rt, &Shape::new(&[bytes as i64]), DType::U8, device)
}

/// The arrays behind the entries of a plan.
pub struct Memory {
    pub arenas: Vec<ArenaMemory>,
    /// Arrays of variables by node, of which gradients of outputs may be missing.
    pub variables: HashMap<u32, NDArray>,
    /// Arrays of outputs by entry number, and of what they took over in place: their own memory, so that
    /// they stay where they are.
    pub outputs: HashMap<usize, NDArray>,
    /// Gradient arrays by argument.
    pub grads: Vec<Option<NDArray>>,
}

impl Memory {
    /// The array of an entry that is not in an arena.
    pub fn outside(&self, plan: &Plan, entry: Entry) -> Option<&NDArray> {
        let id = plan.graph.entry_id(entry);
        if let Some(array) = self.outputs.get(&id) {
            return Some(array);
        }
        match plan.place[id] {
            Place::Variable => self.variables.get(&entry.node),
            Place::Gradient(argument) => self.grads.get(argument as usize)?.as_ref(),
            // Outputs were looked up above.
            Place::Arena { .. } | Place::Output(_) | Place::Nowhere => None,
        }
    }

    /// The array of an entry; `None` if it has no memory, because nobody wants its value.
    pub fn array(&self, plan: &Plan, entry: Entry) -> Result<Option<NDArray>> {
        if let Some(array) = self.outside(plan, entry) {
            return Ok(Some(array.clone()));
        }
        let id = plan.graph.entry_id(entry);
        let Place::Arena { offset } = plan.place[id] else { return Ok(None) };
        let device = plan.graph.nodes[entry.node as usize].ctx;
        let arena = self
            .arena_index(device)
            .ok_or_else(|| Error::internal(format!("the plan has no arena on {device}")))?;
        self.arenas[arena].array.part(offset, &plan.shapes[id], plan.types[id]).map(Some)
    }

    fn arena_index(&self, device: Context) -> Option<usize> {
        self.arenas.iter().position(|a| a.device == device)
    }
}

/// A program with the memory it lies over.
#[derive(Clone)]
pub struct Ready {
    pub program: Arc<Program>,
    pub memory: Arc<Memory>,
}

/// What belongs to one thread's runs.
pub struct Lane {
    /// 0 is the executor's own lane.
    pub number: usize,
    owner: Lock<Weak<()>>,
    pub state: Lock<LaneState>,
}

pub struct LaneState {
    pub arenas: Vec<Arc<Arena>>,
    /// The arguments of this lane: bound arrays, or its own copies of inputs given to `forward`.
    pub args: Vec<NDArray>,
    /// Which of them are its own.
    pub own: Vec<bool>,
    pub outputs: Vec<NDArray>,
    pub head_grads: Vec<Option<NDArray>>,
    pub states: Vec<Option<OpState>>,
    /// Laid out when first needed, and again when an array was replaced.
    pub ready: Option<Ready>,
    /// What orders the segments of this lane's programs, once there is one.
    pub vars: Option<Arc<SegmentVars>>,
    /// Forward passes so far; 0: there are no outputs yet.
    pub forwards: u64,
    /// Steps that the last forward pass has made; `partial_forward` makes the next one.
    pub next_step: usize,
}

impl Lane {
    pub fn new(number: usize, state: LaneState) -> Arc<Lane> {
        Arc::new(Lane { number, owner: Lock::new(Weak::new()), state: Lock::new(state) })
    }
}

thread_local! {
    /// Lives as long as the thread.
    static TOKEN: Arc<()> = Arc::new(());
}

fn token() -> Option<Arc<()>> {
    TOKEN.try_with(Arc::clone).ok()
}

/// The lanes of an executor.
pub struct Lanes {
    lanes: Lock<Vec<Arc<Lane>>>,
}

impl Lanes {
    pub fn new(first: LaneState) -> Self {
        Lanes { lanes: Lock::new(vec![Lane::new(0, first)]) }
    }

    pub fn first(&self) -> Arc<Lane> {
        self.lanes.lock()[0].clone()
    }

    pub fn all(&self) -> Vec<Arc<Lane>> {
        self.lanes.lock().clone()
    }

    /// The lane of the calling thread, or the first one if it has none: for looking at results.
    pub fn mine_or_first(&self) -> Arc<Lane> {
        let Some(me) = token() else { return self.first() };
        let lanes = self.lanes.lock();
        lanes.iter().find(|l| is_owner(l, &me)).unwrap_or(&lanes[0]).clone()
    }

    /// The lane in which the calling thread is to run: its own, a free one, or one made by `make`, which
    /// runs without a lock because it may call into a program.
    pub fn mine(&self, make: impl FnOnce() -> Result<LaneState>) -> Result<Arc<Lane>> {
        let Some(me) = token() else { return Ok(self.first()) };
        if let Some(lane) = self.claim(&me) {
            return Ok(lane);
        }
        let state = make()?;
        let mut lanes = self.lanes.lock();
        let lane = Lane::new(lanes.len(), state);
        *lane.owner.lock() = Arc::downgrade(&me);
        lanes.push(lane.clone());
        Ok(lane)
    }

    fn claim(&self, me: &Arc<()>) -> Option<Arc<Lane>> {
        let lanes = self.lanes.lock();
        if let Some(lane) = lanes.iter().find(|l| is_owner(l, me)) {
            return Some(lane.clone());
        }
        let free = lanes.iter().find(|l| l.owner.lock().strong_count() == 0)?;
        *free.owner.lock() = Arc::downgrade(me);
        Some(free.clone())
    }
}

impl LaneState {
    /// Calls `visit` with the states that nothing outside of this lane has.
    fn visit_own_states(&self, visit: &mut dyn FnMut(&OpState)) {
        let program = self.ready.as_ref().map(|ready| &ready.program);
        if program.is_some_and(|program| Arc::strong_count(program) > 1) {
            return; // a run is under way
        }
        let mut owners: HashMap<*const (), (usize, &OpState)> = HashMap::new();
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

impl Lanes {
    /// Calls `visit` with the states of operators that nothing outside of these lanes has. Passes over lanes that are in
    /// use.
    pub fn visit_own_states(&self, visit: &mut dyn FnMut(&OpState)) {
        let Some(lanes) = self.lanes.try_lock() else { return };
        for lane in lanes.iter() {
            if let Some(state) = lane.state.try_lock() {
                state.visit_own_states(visit);
            }
        }
    }
}

fn is_owner(lane: &Lane, me: &Arc<()>) -> bool {
    std::ptr::eq(lane.owner.lock().as_ptr(), Arc::as_ptr(me))
}
