//! The state that the parts of the threaded engine share: `scheduler.rs` pushes, `worker.rs` runs,
//! `completion.rs` completes, `wait.rs` waits.
//!
//! One lock orders all pushes. No foreign code runs under it, except the function of
//! `try_run_exclusive` and a hook's `Queued`.

use crate::engine::data::cache_padded::CachePadded;
use crate::engine::data::inline_slot::InlineSlot;
use crate::engine::data::interner::Interner;
use crate::engine::data::parking::{IdleWorkers, publish};
use crate::engine::data::run_queue::Queues;
use crate::engine::data::slot::TaskRef;
use crate::engine::data::slot_allocator::{ReturnedSlots, SlotAllocator};
use crate::engine::data::task_slab::Slab;
use crate::engine::data::variables::{Vars, Versions};
use crate::engine::data::waiters::{CompletionWaiters, WaitHint};
use crate::engine::error_state::ErrorStates;
use crate::engine::hook::{Event, HookEvent, HookSlot};
use crate::engine::sync::{AtomicU64, Lock};
use crate::engine::threaded::pool::Threads;
use crate::engine::validate::MAX_THREADS;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The most workers: two pools exist while the number of threads changes.
pub const MAX_WORKERS: usize = 2 * MAX_THREADS;

/// Everything that pushers share with workers. Held by `Arc`.
pub struct Core {
    pub slab: Slab,
    pub versions: Versions,
    pub errors: ErrorStates,
    pub queues: Queues,
    pub sleep: IdleWorkers,
    /// Flags of [`slow_path`](crate::engine::slow_path).
    pub slow_path: AtomicU32,
    pub push: CachePadded<Lock<PushState>>,
    pub returned: ReturnedSlots,
    pub inline_slot: CachePadded<InlineSlot>,
    /// Tasks that each worker has completed; `completed_off_worker` and `inline_slot` count the
    /// others.
    pub completed: Box<[CachePadded<AtomicU64>]>,
    pub completed_off_worker: CachePadded<AtomicU64>,
    pub watch: CompletionWaiters,
    pub wait_hint: WaitHint,
    /// Waiters that spin, and help kernels meanwhile. A hint, so not a loom atomic.
    pub helping_waiters: CachePadded<AtomicU32>,
    pub threads: Threads,
    pub hook: HookSlot,
    pub wait_timeout: Lock<Option<Duration>>,
    /// Differs between a process and its fork.
    pub epoch: AtomicU32,
    /// The epoch for which the state was last recovered.
    pub recovered: AtomicU32,
    pub is_running: AtomicBool,
}

/// The state that pushers share among themselves, under the push lock.
#[derive(Default)]
pub struct PushState {
    pub vars: Vars,
    pub names: Interner,
    pub slots: SlotAllocator,
    /// Tasks pushed, not counting signals.
    pub pushed: u64,
    pub epoch: u32,
}

impl Core {
    pub fn new(threads: usize) -> Self {
        Core {
            slab: Slab::new(),
            versions: Versions::new(),
            errors: ErrorStates::default(),
            queues: Queues::new(MAX_WORKERS),
            sleep: IdleWorkers::new(),
            slow_path: AtomicU32::new(0),
            push: Default::default(),
            returned: Default::default(),
            inline_slot: Default::default(),
            completed: (0..MAX_WORKERS).map(|_| CachePadded::default()).collect(),
            completed_off_worker: CachePadded::default(),
            watch: CompletionWaiters::default(),
            wait_hint: Default::default(),
            helping_waiters: Default::default(),
            threads: Threads::new(threads, MAX_WORKERS),
            hook: Default::default(),
            wait_timeout: Default::default(),
            epoch: AtomicU32::new(0),
            recovered: AtomicU32::new(0),
            is_running: AtomicBool::new(false),
        }
    }

    /// An owned handle to this core.
    #[inline]
    pub fn handle(&self) -> Arc<Core> {
        // SAFETY: a core only ever lives in an `Arc` (`ThreadedEngine::with_threads`), and `self`
        // is borrowed from it.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    /// The address that identifies this engine.
    pub fn id(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Wakes or starts a worker, after a task was queued and the lock released.
    #[inline]
    pub fn wake_for_work(&self) {
        publish();
        if self.sleep.has_sleepers() {
            self.sleep.wake_one();
        }
        if !self.is_running.load(Ordering::Relaxed) {
            self.start_threads();
        }
    }

    /// The number of tasks completed.
    pub fn completed(&self) -> u64 {
        let counts = self.completed.iter().take(self.threads.worker_ids_used());
        counts.map(|count| count.0.load(Ordering::Acquire)).sum::<u64>()
            + self.completed_off_worker.0.load(Ordering::Acquire)
            + self.inline_slot.0.completed()
    }

    /// Notifies the hook, if there is one.
    #[cold]
    pub fn notify_hook(&self, task: TaskRef, event: Event) {
        let Some(hook) = self.hook.lock().clone() else { return };
        // SAFETY: the task is not complete, so its body is valid.
        let body = unsafe { &*self.slab.get(task.slot()).body() };
        hook.event(HookEvent { event, id: task.0, name: body.name(), ctx: body.context() });
    }
}
