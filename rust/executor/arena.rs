//! The memory behind a planned graph: arenas, which executors may share, and the arrays bound from
//! outside.
//!
//! An [`Arena`] is the memory of a device's internal entries. Executors bound with `shared_exec`
//! use the same ones; binding a larger executor replaces the memory, and the others lay their
//! programs over the new memory when they run next, so its size is that of the largest, whatever
//! the order of binding.

use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::executor::Runtime;
use crate::graph::{Entry, Place, Plan};
use crate::lock::{Guard, Lock};
use crate::ndarray::NDArray;
use crate::shape::Shape;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of one device's internal entries, at the moment.
#[derive(Clone)]
pub struct ArenaMemory {
    pub device: Context,
    pub array: NDArray,
}

/// The run that last used an arena: executor, instance, and number of the instance's forward pass.
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

    /// Waits until no other thread pushes a run on the arena. Fails if the calling thread does: it
    /// is in a monitor or an operation of that run, and would wait for itself.
    pub fn alone(&self) -> Result<Alone<'_>> {
        let me = token().map_or(0, |token| Arc::as_ptr(&token) as usize);
        if me != 0 && self.pusher.load(Ordering::Relaxed) == me {
            return Err(Error::value(
                "a monitor or operation of a run cannot run the executor, or one that shares its \
                 memory (shared_exec): bind another one without sharing",
            ));
        }
        let guard = self.pushing.lock();
        self.pusher.store(me, Ordering::Relaxed);
        Ok(Alone(self, guard))
    }

    /// Grows it to at least `bytes` bytes. Its executors move to the new memory at their next run.
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
    pub variables: FxHashMap<u32, NDArray>,
    /// Arrays of outputs by entry number, and of what they took over in place: their own memory, so
    /// that they stay where they are.
    pub outputs: FxHashMap<usize, NDArray>,
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

    /// The array of an entry; `None` if it has no memory, because it has no reader.
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

thread_local! {
    /// Lives as long as the thread.
    static TOKEN: Arc<()> = Arc::new(());
}

/// The identity of the calling thread, `None` while it ends.
pub fn token() -> Option<Arc<()>> {
    TOKEN.try_with(Arc::clone).ok()
}
