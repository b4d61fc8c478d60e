//! Starting, resizing and ending the compute threads.

use crate::engine::threaded::core::Core;
use crate::engine::threaded::current;
use crate::engine::threaded::pool::{Pool, RunningLoops, usable_cores};
use crate::engine::validate::check_threads;
use crate::error::{Error, ErrorKind, Result};
use crate::fork_join::Team;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

impl Core {
    /// Starts the pool if there is none. A failure is raised by the wait that needs it.
    #[cold]
    pub fn start_threads(&self) {
        let _ = self.ensure_running();
    }

    pub fn ensure_running(&self) -> Result<()> {
        if self.is_running.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut pool = self.threads.pool.lock();
        if pool.is_none() {
            *pool = Some(self.new_pool(self.threads.wanted())?);
        }
        self.is_running.store(true, Ordering::Release);
        Ok(())
    }

    /// The main function of each compute thread until `stop`.
    pub fn serve(&self, team: &Arc<Team>, stop: &AtomicBool) {
        if let Some(worker_id) = self.threads.take_worker_id() {
            self.queues.register(worker_id);
            team.join(|| self.work(worker_id, team, stop));
            self.threads.return_worker_id(worker_id);
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
        let running = Arc::new(RunningLoops::new(n));
        let core = self.handle();
        let team = Arc::new(Team::new(n, move |most| {
            // More helpers than cores would only compete, and waiters help without being woken.
            let others = usable_cores().saturating_sub(1);
            let waiters = core.helping_waiters.0.load(Ordering::SeqCst) as usize;
            for _ in 0..most.min(others).saturating_sub(waiters) {
                if !core.sleep.has_sleepers() {
                    break;
                }
                core.sleep.wake_one();
            }
        }));
        let (core, flag, count) = (self.handle(), stop.clone(), running.clone());
        let of_threads = team.clone();
        // Broadcast from outside the pool, one loop per thread: `spawn` could run one thread's loop
        // inside another's `yield_now`.
        rayon.spawn_broadcast(move |_| {
            core.serve(&of_threads, &flag);
            count.end_one();
        });
        Ok(Pool { rayon, team, stop, running })
    }

    /// Ends the threads after the task each is running; the queues stay. Waits for them, for a
    /// bounded time, unless called by one of them.
    pub fn end_threads(&self, limit: Duration) {
        let pool = {
            let mut pool = self.threads.pool.lock();
            self.is_running.store(false, Ordering::Release);
            pool.take()
        };
        if let Some(pool) = pool {
            self.retire(pool, limit);
        }
    }

    fn retire(&self, pool: Pool, limit: Duration) {
        pool.stop.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.sleep.wake_all();
        if !current::on_worker(self.id()) {
            pool.running.join(limit);
        }
        drop(pool.rayon);
    }

    /// Changes the number of threads: a new pool takes over, the old one ends after what it runs.
    pub fn resize(&self, n: usize) -> Result<()> {
        check_threads(n)?;
        let old = {
            let mut pool = self.threads.pool.lock();
            if self.threads.wanted.swap(n, Ordering::Relaxed) == n {
                return Ok(());
            }
            match pool.take() {
                None => None,
                Some(old) => {
                    *pool = Some(self.new_pool(n)?);
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
