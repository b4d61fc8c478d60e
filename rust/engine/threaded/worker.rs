//! The loop of the compute threads.

use crate::engine::data::cache_padded::CachePadded;
use crate::engine::data::parking::Parker;
use crate::engine::data::run_queue::Consumer;
use crate::engine::data::slot::{NIL, TaskRef, flag};
use crate::engine::error_state::Inherited;
use crate::engine::sync::AtomicU64;
use crate::engine::task::Task;
use crate::engine::threaded::backoff::Backoff;
use crate::engine::threaded::core::Core;
use crate::engine::threaded::current::StackFrame;
use crate::engine::token::OnComplete;
use crate::fork_join::Team;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long an idle worker polls for work, and helps kernels, before it parks. A push whose
/// worker polls starts its task after 1.2 to 1.5 us, one that wakes it after 14 to 19 us
/// (`push_to_start`).
const SPIN: Duration = Duration::from_micros(if cfg!(loom) { 0 } else { 250 });
/// Polls of the queues between two reads of the clock.
const POLLS: u32 = if cfg!(loom) { 1 } else { 64 };
/// Free slots are returned to pushers in batches of this size (`graph1000`: 121 ns a task; one by
/// one 131).
const BATCH: usize = 64;
/// Tasks run from the LIFO slot before the queues are polled again (`chain` with two workers: 90 ns
/// a task; without the slot 149).
const LIFO_BUDGET: u32 = 64;

/// The private state of one worker.
struct WorkerState<'a> {
    worker_id: usize,
    completed: &'a CachePadded<AtomicU64>,
    free: Vec<u32>,
    /// Tasks that a completion made ready, beyond the LIFO slot.
    ready: Vec<u32>,
    /// The task to run next, made ready by the one before.
    lifo_slot: u32,
    /// Tasks taken from the LIFO slot in a row.
    lifo_run: u32,
    backoff: Backoff,
    frame: &'a StackFrame,
}

impl Core {
    /// The loop of compute thread `worker_id` until `stop`.
    pub fn work(&self, worker_id: usize, team: &Team, stop: &AtomicBool) {
        let frame = StackFrame::new(self.id(), TaskRef::NONE, true);
        let parker = Parker::current();
        let mut worker = WorkerState {
            worker_id,
            completed: &self.completed[worker_id],
            free: Vec::with_capacity(2 * BATCH),
            ready: Vec::new(),
            lifo_slot: NIL,
            lifo_run: 0,
            backoff: Backoff::new(self.completed[worker_id].0.load(Ordering::Relaxed)),
            frame: &frame,
        };
        frame.enter(|| {
            let mut consumer = Consumer::new(worker_id);
            while !stop.load(Ordering::Relaxed) {
                match self.queues.pop(&mut consumer, |t| self.slab.prefetch_for_write(t)) {
                    Some(task) => {
                        if self.sleep.has_sleepers() && !self.queues.is_empty() {
                            self.sleep.wake_one();
                        }
                        self.run_with_successors(task, &mut worker);
                    }
                    None => {
                        self.idle(&mut worker, &parker, team, stop);
                        consumer.backed_off();
                    }
                }
            }
            self.return_slots(&mut worker.free);
        });
    }

    /// Runs a task and then, one after the other, those that its completion makes ready.
    #[inline]
    fn run_with_successors(&self, task: u32, worker: &mut WorkerState<'_>) {
        let mut task = task;
        worker.lifo_run = 0;
        loop {
            self.execute(task, worker);
            task = std::mem::replace(&mut worker.lifo_slot, NIL);
            if task == NIL {
                break;
            }
        }
        if worker.free.len() >= BATCH {
            self.return_slots(&mut worker.free);
        }
    }

    /// Polls for work, helps kernels of other workers, and finally parks. Returns when there may be
    /// work.
    #[cold]
    fn idle(
        &self,
        worker: &mut WorkerState<'_>,
        parker: &Arc<Parker>,
        team: &Team,
        stop: &AtomicBool,
    ) {
        self.watch.notify(|| self.completed());
        let completed = worker.completed.0.load(Ordering::Relaxed);
        worker.backoff.wait(completed, &self.wait_hint, || {
            team.has_work() || self.queues.has_ready() || stop.load(Ordering::Relaxed)
        });
        let has_work = || !self.queues.is_empty() || stop.load(Ordering::Relaxed);
        let mut until: Option<Instant> = None;
        let mut pauses = 1;
        loop {
            for _ in 0..POLLS {
                if has_work() {
                    return;
                }
                if team.help() || rayon::yield_now() == Some(rayon::Yield::Executed) {
                    until = None;
                }
                for _ in 0..pauses {
                    std::hint::spin_loop();
                }
                pauses = (pauses * 2).min(8);
            }
            let now = Instant::now();
            match until {
                None => {
                    self.return_slots(&mut worker.free);
                    until = Some(now + SPIN);
                }
                Some(t) if now >= t => {
                    self.sleep.park(parker, has_work);
                    until = None;
                }
                // A pusher may be waiting for this core.
                Some(_) if self.threads.fill_the_cores() => std::thread::yield_now(),
                Some(_) => {}
            }
        }
    }

    fn return_slots(&self, free: &mut Vec<u32>) {
        if !free.is_empty() {
            self.returned.0.lock().append(free);
        }
    }

    /// Runs the task in `slot`, which is ready, on this worker.
    #[inline]
    fn execute(&self, slot: u32, worker: &mut WorkerState<'_>) {
        // SAFETY: the task is ready, so its body is written and read-only until it is completed.
        let body = unsafe { &*self.slab.get(slot).body() };
        let task = TaskRef::new(slot, self.slab.get(slot).generation());
        worker.frame.set_task(task);
        self.slab.get(slot).begin();
        self.slab.prefetch_successors(slot);
        let function = body.task.as_ptr().cast_mut();
        let flags = self.slow_path.load(Ordering::Relaxed);
        if (flags != 0 || self.errors.any())
            && let Some(inherited) = self.skip_reason(task, body, flags)
        {
            // SAFETY: moved out only here, as a task is run once.
            drop(unsafe { function.read() });
            return self.finish(slot, Some(inherited), worker);
        }
        let run = body.run_context();
        let token = || OnComplete::of_task(self.handle(), task);
        // SAFETY: as above.
        match unsafe { Task::run_at(function, &run, token) } {
            Some(Ok(())) => self.finish(slot, None, worker),
            Some(Err(error)) => {
                let failure = self.record_failure(slot, error, None);
                self.finish(slot, Some(failure), worker);
            }
            None => {}
        }
        // The slot may have been reused: the body must not be accessed from here on.
    }

    /// Completes a task on a worker: errors, versions, successors, slot.
    #[inline]
    fn finish(&self, slot: u32, failure: Option<Inherited>, worker: &mut WorkerState<'_>) {
        let s = self.slab.get(slot);
        let deleted = self.record_completion(slot, failure);
        s.end();
        let n = worker.completed.0.load(Ordering::Relaxed);
        worker.completed.0.store(n + 1, Ordering::Release);
        let n = s.close();
        self.slab.release(slot, n, |t| self.ready_on_worker(t, worker));
        self.slab.retire(slot, n, |s| worker.free.push(s));
        self.flush_ready(worker);
        self.notify_waiters(deleted);
    }

    /// A completion on this worker made `task` ready.
    #[inline]
    fn ready_on_worker(&self, task: u32, worker: &mut WorkerState<'_>) {
        // SAFETY: the task is ready, so its body is written.
        let flags = unsafe { (*self.slab.get(task).body()).head.flags };
        if flags & (flag::SIGNAL | flag::PRIORITIZED) != 0 {
            self.enqueue_prioritized_or_signal(task, flags);
        } else if worker.lifo_slot == NIL && worker.lifo_run < LIFO_BUDGET {
            worker.lifo_slot = task;
            worker.lifo_run += 1;
        } else {
            worker.ready.push(task);
        }
    }

    /// Queues the tasks that a completion made ready beyond the LIFO slot.
    #[inline]
    fn flush_ready(&self, worker: &mut WorkerState<'_>) {
        if worker.lifo_slot != NIL && self.queues.has_high_priority() {
            worker.ready.push(std::mem::replace(&mut worker.lifo_slot, NIL));
        }
        if !worker.ready.is_empty() {
            self.queues.push_batch(Some(worker.worker_id), &worker.ready);
            worker.ready.clear();
            self.wake_for_work();
        }
    }
}
