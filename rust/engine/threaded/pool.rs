//! The compute threads of an engine: one private rayon pool, each of whose threads runs the
//! engine's loop.
//!
//! Operations and parts of kernels (`crate::fork_join`) share one set of threads, and an idle
//! thread helps with a kernel. rayon's own splitting is left to libraries.

use crate::engine::sync::{Guard, Lock};
use crate::fork_join::Team;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

/// The threads of an engine.
pub struct Threads {
    pub pool: Lock<Option<Pool>>,
    pub wanted: AtomicUsize,
    /// Worker ids that were ever in use.
    ids_used: AtomicUsize,
    free_ids: Lock<Vec<usize>>,
    max_workers: usize,
}

/// Both locks, held over a fork.
#[expect(dead_code, reason = "held, not read")]
pub struct PoolLocks<'a>(Guard<'a, Option<Pool>>, Guard<'a, Vec<usize>>);

pub struct Pool {
    // Dropped last: rayon joins its threads once their loops have ended.
    pub rayon: rayon::ThreadPool,
    pub team: Arc<Team>,
    pub stop: Arc<AtomicBool>,
    pub running: Arc<RunningLoops>,
}

/// Counts the worker loops that have not ended.
pub struct RunningLoops {
    count: Mutex<usize>,
    changed: Condvar,
}

impl RunningLoops {
    pub fn new(n: usize) -> Self {
        RunningLoops { count: Mutex::new(n), changed: Condvar::new() }
    }

    pub fn end_one(&self) {
        let mut count = self.count.lock().unwrap_or_else(|e| e.into_inner());
        *count -= 1;
        self.changed.notify_all();
    }

    /// Blocks until all have ended, for at most `limit`.
    pub fn join(&self, limit: Duration) {
        let count = self.count.lock().unwrap_or_else(|e| e.into_inner());
        drop(self.changed.wait_timeout_while(count, limit, |n| *n > 0));
    }
}

impl Threads {
    pub fn new(wanted: usize, max_workers: usize) -> Self {
        Threads {
            pool: Lock::default(),
            wanted: AtomicUsize::new(wanted),
            ids_used: AtomicUsize::new(0),
            free_ids: Lock::new((0..max_workers).rev().collect()),
            max_workers,
        }
    }

    pub fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Returns true if there is a thread per core, so that an idle one may keep a pusher from
    /// running.
    pub fn fill_the_cores(&self) -> bool {
        self.wanted() >= usable_cores()
    }

    /// The number of worker ids that were ever in use.
    pub fn worker_ids_used(&self) -> usize {
        self.ids_used.load(Ordering::Acquire)
    }

    pub fn take_worker_id(&self) -> Option<usize> {
        let id = self.free_ids.lock().pop()?;
        self.ids_used.fetch_max(id + 1, Ordering::AcqRel);
        Some(id)
    }

    pub fn return_worker_id(&self, id: usize) {
        self.free_ids.lock().push(id);
    }

    /// The team that threads outside of the pool may help.
    pub fn team(&self) -> Option<Arc<Team>> {
        self.pool.lock().as_ref().map(|pool| pool.team.clone())
    }

    pub fn lock_for_fork(&self) -> PoolLocks<'_> {
        PoolLocks(self.pool.lock(), self.free_ids.lock())
    }

    /// Discards the threads in a forked child: they exist in the parent only.
    pub fn forget(&self) {
        std::mem::forget(self.pool.lock().take());
        *self.free_ids.lock() = (0..self.max_workers).rev().collect();
    }
}

/// The number of threads of a new engine: one per usable core, or fewer if the first number of
/// `OMP_NUM_THREADS` says so, as for numerical libraries in general.
pub fn default_threads() -> usize {
    let requested = std::env::var("OMP_NUM_THREADS").ok().and_then(|text| {
        let first = text.split(',').next().unwrap_or_default();
        first.trim().parse::<usize>().ok().filter(|&n| n > 0)
    });
    requested.map_or(usable_cores(), |n| n.min(usable_cores()))
}

/// The number of threads that this process may keep busy: the smaller of its CPU affinity and its
/// cgroup's quota.
pub fn usable_cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    // The standard library checks both on Linux. It reads files, so the answer is cached.
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}
