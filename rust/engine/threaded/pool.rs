//! The compute threads: one private rayon pool, each of whose threads runs the engine's loop.
//!
//! So operations and the parts of kernels (`crate::fork_join`) share one set of threads, and an idle thread helps a kernel.
//! rayon's own splitting is left to libraries.
//! The pool is made when first needed, replaced when its size changes, and made anew in a forked child.

use crate::engine::sync::{Guard, Lock};
use crate::engine::threaded::core::{Core, LANES};
use crate::error::{Error, ErrorKind, Result};
use crate::fork_join::Crew;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

/// The threads of an engine.
pub struct Threads {
    pool: Lock<Option<Pool>>,
    wanted: AtomicUsize,
    /// Lanes that were ever in use.
    lanes: AtomicUsize,
    free_lanes: Lock<Vec<usize>>,
}

/// Both locks, held over a fork.
#[expect(dead_code, reason = "held, not read")]
pub struct Held<'a>(Guard<'a, Option<Pool>>, Guard<'a, Vec<usize>>);

pub struct Pool {
    // Dropped last of all: rayon ends its threads once their loops have ended.
    rayon: rayon::ThreadPool,
    stop: Arc<AtomicBool>,
    alive: Arc<Alive>,
}

/// Counts the loops that have not ended.
struct Alive {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Alive {
    fn end_one(&self) {
        let mut count = self.count.lock().unwrap_or_else(|e| e.into_inner());
        *count -= 1;
        self.changed.notify_all();
    }

    /// Blocks until all have ended, or for `limit`.
    fn join(&self, limit: Duration) {
        let count = self.count.lock().unwrap_or_else(|e| e.into_inner());
        drop(self.changed.wait_timeout_while(count, limit, |n| *n > 0));
    }
}

impl Threads {
    pub fn new(wanted: usize) -> Self {
        Threads {
            pool: Lock::default(),
            wanted: AtomicUsize::new(wanted),
            lanes: AtomicUsize::new(0),
            free_lanes: Lock::new((0..LANES).rev().collect()),
        }
    }

    pub fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Is there a thread for each core, so that an idle one may keep a pusher from running?
    pub fn fill_the_cores(&self) -> bool {
        self.wanted() >= usable_cores()
    }

    pub fn lanes(&self) -> usize {
        self.lanes.load(Ordering::Acquire)
    }

    fn take_lane(&self) -> Option<usize> {
        let lane = self.free_lanes.lock().pop()?;
        self.lanes.fetch_max(lane + 1, Ordering::AcqRel);
        Some(lane)
    }

    pub fn hold(&self) -> Held<'_> {
        Held(self.pool.lock(), self.free_lanes.lock())
    }

    /// Forgets the threads, which belong to a process that is not this one.
    pub fn forget(&self) {
        std::mem::forget(self.pool.lock().take());
        *self.free_lanes.lock() = (0..LANES).rev().collect();
    }
}

impl Core {
    /// Makes the pool if there is none. Failures are met again by the wait that needs it.
    #[cold]
    pub fn start_threads(&self) {
        let _ = self.ensure_running();
    }

    pub fn ensure_running(&self) -> Result<()> {
        if self.is_running.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut place = self.threads.pool.lock();
        if place.is_none() {
            *place = Some(self.new_pool(self.threads.wanted())?);
        }
        self.is_running.store(true, Ordering::Release);
        Ok(())
    }

    /// What each compute thread does until `stop`.
    pub fn serve(&self, crew: &Arc<Crew>, stop: &AtomicBool) {
        if let Some(lane) = self.threads.take_lane() {
            self.queues.enlist(lane);
            crew.join(|| self.work(lane, crew, stop));
            self.threads.free_lanes.lock().push(lane);
        }
    }

    fn new_pool(&self, n: usize) -> Result<Pool> {
        let rayon = rayon::ThreadPoolBuilder::new()
            .num_threads(n)
            .thread_name(|i| format!("rsnet-compute-{i}"))
            .build()
            .map_err(|e| {
                let text = format!("the engine could not start {n} compute threads: {e}");
                Error::new(ErrorKind::Memory, text)
            })?;
        let stop = Arc::new(AtomicBool::new(false));
        let alive = Arc::new(Alive { count: Mutex::new(n), changed: Condvar::new() });
        let helped = self.handle();
        let crew = Arc::new(Crew::new(n, move |most| {
            // More than there are cores would only be in each other's way.
            for _ in 0..most.min(usable_cores().saturating_sub(1)) {
                if !helped.sleep.anybody() {
                    break;
                }
                helped.sleep.wake_one();
            }
        }));
        let (core, flag, count) = (self.handle(), stop.clone(), alive.clone());
        // From outside of the pool, one loop for each thread: a `spawn` could run one thread's loop
        // inside another's `yield_now`.
        rayon.spawn_broadcast(move |_| {
            core.serve(&crew, &flag);
            count.end_one();
        });
        Ok(Pool { rayon, stop, alive })
    }

    /// Ends the threads after the task each is running; the queues stay. Waits for them, for a bounded
    /// time, unless called by one of them.
    pub fn end_threads(&self, limit: Duration) {
        let pool = {
            let mut place = self.threads.pool.lock();
            self.is_running.store(false, Ordering::Release);
            place.take()
        };
        if let Some(pool) = pool {
            self.retire(pool, limit);
        }
    }

    fn retire(&self, pool: Pool, limit: Duration) {
        pool.stop.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.sleep.wake_all();
        if !crate::engine::threaded::current::on_worker(self) {
            pool.alive.join(limit);
        }
        drop(pool.rayon);
    }

    /// Changes the number of threads: a new pool takes over, the old one ends after what it runs.
    pub fn resize(&self, n: usize) -> Result<()> {
        check_threads(n)?;
        let old = {
            let mut place = self.threads.pool.lock();
            if self.threads.wanted.swap(n, Ordering::Relaxed) == n {
                return Ok(());
            }
            match place.take() {
                None => None,
                Some(old) => {
                    *place = Some(self.new_pool(n)?);
                    Some(old)
                }
            }
        };
        if let Some(old) = old {
            self.retire(old, Duration::ZERO);
        }
        Ok(())
    }
}

/// An error if there cannot be so many threads.
pub fn check_threads(n: usize) -> Result<()> {
    if (1..=LANES / 2).contains(&n) {
        return Ok(());
    }
    Err(Error::argument("n", "value", n, format!("1 to {}", LANES / 2)))
}

/// Threads of a new engine: one a usable core, or fewer if `OMP_NUM_THREADS` (its first number) asks for it, as
/// everybody does who wants numerical libraries to leave cores alone.
pub fn default_threads() -> usize {
    let asked = std::env::var("OMP_NUM_THREADS").ok().and_then(|text| {
        let first = text.split(',').next().unwrap_or_default();
        first.trim().parse::<usize>().ok().filter(|&n| n > 0)
    });
    asked.map_or(usable_cores(), |n| n.min(usable_cores()))
}

/// Threads that this process may keep busy: the smaller of its CPU affinity and its cgroup's quota.
pub fn usable_cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    // The standard library looks at both on Linux; it reads files, so it is asked once.
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}
