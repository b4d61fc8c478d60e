//! How work is done: the loop of the compute threads, running one task, and completing it.

use crate::engine::data::parking::{Parker, publish};
use crate::engine::data::run_queue::{Apart, Consumer};
use crate::engine::data::task_slab::{Body, NIL, TaskRef, flag};
use crate::engine::error_state::{self, Inherited};
use crate::engine::sync::AtomicU64;
use crate::engine::task::{OnComplete, Task};
use crate::engine::threaded::backoff::Rest;
use crate::engine::threaded::core::{Core, name_of, rank_of, rare, run_context, vars_of};
use crate::engine::threaded::current::Frame;
use crate::engine::threaded::pool::usable_cores;
use crate::engine::{Event, Origin, RunContext};
use crate::error::{Error, Result};
use crate::fork_join::Crew;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long an idle worker looks for work, and helps kernels, before it parks. Waking costs about 30 us, so
/// gaps between operations up to this long cost nothing.
const SPIN: Duration = Duration::from_micros(if cfg!(loom) { 0 } else { 250 });
/// Looks at the queues between two looks at the clock.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 64 };
/// Free slots are given back to pushers by so many.
const BATCH: usize = 64;
/// Tasks run directly after one another before the queues are looked at again.
const STREAK: u32 = 64;

/// Slots of tasks that one completion has made ready.
type Few = smallvec::SmallVec<[u32; 8]>;

/// Short tasks that wait for this thread.
type CheapTasks = Vec<(Arc<Core>, u32, u32)>;

// There while this thread runs such tasks: engine, epoch and slot of each.
#[cfg(not(loom))]
thread_local! {
    static CHEAP: RefCell<Option<CheapTasks>> = const { RefCell::new(None) };
}

#[cfg(loom)]
loom::thread_local! {
    static CHEAP: RefCell<Option<CheapTasks>> = RefCell::new(None);
}

/// The next short task of this thread; after the last one the list is gone.
fn next_cheap() -> Option<(Arc<Core>, u32, u32)> {
    let next = |place: &RefCell<Option<CheapTasks>>| {
        let mut place = place.borrow_mut();
        let next = place.as_mut().and_then(Vec::pop);
        if next.is_none() {
            *place = None;
        }
        next
    };
    CHEAP.try_with(next).ok().flatten()
}

/// What one worker keeps for itself.
pub struct Local<'a> {
    lane: usize,
    completed: &'a Apart<AtomicU64>,
    free: Vec<u32>,
    /// Tasks that a completion made ready.
    ready: Vec<u32>,
    /// The one of them to run next.
    next: u32,
    streak: u32,
    rest: Rest,
    frame: &'a Frame,
}

/// What is to be done when a task is complete.
struct Left {
    /// The variable that it deletes.
    deleted: Option<u32>,
    is_kept: bool,
}

impl Core {
    /// What compute thread number `lane` does until `stop`.
    pub fn work(&self, lane: usize, crew: &Crew, stop: &AtomicBool) {
        let frame = Frame::new(self, TaskRef::NONE, true);
        let parker = Parker::current();
        let mut local = Local {
            lane,
            completed: &self.completed[lane],
            free: Vec::with_capacity(2 * BATCH),
            ready: Vec::new(),
            next: NIL,
            streak: 0,
            rest: Rest::new(self.completed[lane].0.load(Ordering::Relaxed)),
            frame: &frame,
        };
        frame.enter(|| {
            let mut consumer = Consumer::new(lane);
            while !stop.load(Ordering::Relaxed) {
                let coming = |t| self.slab.prefetch_for_write(t);
                match self.queues.pop(&mut consumer, coming) {
                    Some(task) => {
                        if self.sleep.anybody() && !self.queues.is_empty() {
                            self.sleep.wake_one();
                        }
                        self.run_streak(task, &mut local);
                    }
                    None => {
                        self.idle(&mut local, &parker, crew, stop);
                        consumer.rested();
                    }
                }
            }
            self.give_back(&mut local.free);
        });
    }

    /// Runs a task and whatever its completion makes ready, one after the other.
    #[inline]
    fn run_streak(&self, task: u32, local: &mut Local<'_>) {
        let mut task = task;
        local.streak = 0;
        loop {
            self.execute(task, local);
            task = std::mem::replace(&mut local.next, NIL);
            if task == NIL {
                break;
            }
        }
        if local.free.len() >= BATCH {
            self.give_back(&mut local.free);
        }
    }

    /// Rests, looks for work, helps kernels of other workers, and at last parks. Returns when there may be work.
    #[cold]
    fn idle(&self, local: &mut Local<'_>, parker: &Arc<Parker>, crew: &Crew, stop: &AtomicBool) {
        self.notify_watchers();
        let completed = local.completed.0.load(Ordering::Relaxed);
        self.rest(&mut local.rest, completed, crew, stop);
        let mut until: Option<Instant> = None;
        let mut spinning = None;
        let mut pauses = 1;
        loop {
            for _ in 0..LOOKS {
                if !self.queues.is_empty() || stop.load(Ordering::Relaxed) {
                    return;
                }
                if crew.help() || rayon::yield_now() == Some(rayon::Yield::Executed) {
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
                    self.give_back(&mut local.free);
                    // (A right from before a look at kernels is kept: it would count against itself.)
                    spinning = spinning.or_else(|| self.sleep.may_spin(usable_cores()));
                    until = Some(if spinning.is_some() { now + SPIN } else { now });
                }
                Some(t) if now >= t => {
                    drop(spinning.take());
                    self.sleep
                        .park(parker, || !self.queues.is_empty() || stop.load(Ordering::Relaxed));
                    until = None;
                }
                Some(_) if self.threads.fill_the_cores() => std::thread::yield_now(),
                Some(_) => {}
            }
        }
    }

    fn give_back(&self, free: &mut Vec<u32>) {
        if !free.is_empty() {
            self.returned.0.lock().append(free);
        }
    }

    /// Runs the task in `slot`, which is ready, on this thread.
    #[inline]
    fn execute(&self, slot: u32, local: &mut Local<'_>) {
        // SAFETY: the task is ready, so its body is written and nobody writes it until it is retired.
        let body = unsafe { &*self.slab.get(slot).body() };
        let task = TaskRef::new(slot, self.slab.get(slot).generation());
        local.frame.set_task(task);
        self.slab.get(slot).begin();
        self.slab.prefetch_successors(slot);
        let function = body.task.as_ptr().cast_mut();
        let rare = self.rare.load(Ordering::Relaxed);
        if (rare != 0 || self.faults.any())
            && let Some(inherited) = self.divert(task, body, rare)
        {
            // SAFETY: moved out here and nowhere else, as a task is run once.
            drop(unsafe { function.read() });
            return self.finish(slot, Some(inherited), local);
        }
        let run = run_context(body);
        let token = || OnComplete::of_slot(self.handle(), task.0);
        // SAFETY: as above.
        match unsafe { Task::run_at(function, &run, token) } {
            Some(Ok(())) => self.finish(slot, None, local),
            Some(Err(error)) => {
                let inherited = self.failure(slot, error, None);
                self.finish(slot, Some(inherited), local);
            }
            None => {}
        }
        // A completed slot may be in other hands: nothing of the body is touched from here on.
    }

    /// The closer look: does an error or the shutdown stop the task? Then what it leaves instead of its result.
    #[cold]
    fn divert(&self, task: TaskRef, body: &Body, rare: u32) -> Option<Inherited> {
        let mut inherited = None;
        if body.head.flags & flag::NO_SKIP == 0 {
            let (reads, writes) = vars_of(body);
            let read = reads.iter().chain(&writes[body.head.overwrites as usize..]).copied();
            inherited = self.faults.inherited(read);
        }
        let is_over = rare & crate::engine::threaded::core::rare::SHUT_DOWN != 0;
        if is_over && body.head.flags & flag::TO_THE_END == 0 {
            inherited = inherited.or_else(|| Some(error_state::shut_down()));
        }
        if inherited.is_none() && rare & crate::engine::threaded::core::rare::HOOK != 0 {
            self.hook(task, Event::Started);
        }
        inherited
    }

    /// Makes the failure of a task known: names it, and keeps it for the waits.
    #[cold]
    pub fn failure(&self, slot: u32, error: Error, origin: Option<Arc<str>>) -> Inherited {
        // SAFETY: the task is not complete, so its body stands.
        let body = unsafe { &*self.slab.get(slot).body() };
        let origin = origin.or_else(|| body.extra.as_ref().and_then(|e| e.origin.clone()));
        let error = error.in_operator(name_of(body));
        self.faults.failed(error.pushed_at(origin.as_deref().unwrap_or_default()))
    }

    /// What the end of a task does to the variables it wrote; what to do when it is complete.
    #[inline(always)]
    fn leave(&self, slot: u32, failed: Option<Inherited>) -> Left {
        let s = self.slab.get(slot);
        // SAFETY: the task is not complete yet, so its body stands.
        let body = unsafe { &*s.body() };
        let (_, writes) = vars_of(body);
        if failed.is_some() || self.faults.any() {
            self.settle(body, writes, &failed);
        }
        for &v in writes {
            self.versions.advance(v);
        }
        if self.rare.load(Ordering::Relaxed) & rare::HOOK != 0 {
            let task = TaskRef::new(slot, s.generation());
            self.hook(task, Event::Finished);
        }
        let deletes = body.head.flags & flag::DELETE != 0;
        let deleted = if deletes { writes.first().copied() } else { None };
        Left { deleted, is_kept: body.head.flags & flag::KEPT != 0 }
    }

    /// Completes a task on a worker: errors, versions, successors, slot.
    #[inline]
    fn finish(&self, slot: u32, failed: Option<Inherited>, local: &mut Local<'_>) {
        let s = self.slab.get(slot);
        let left = self.leave(slot, failed);
        s.end();
        let n = local.completed.0.load(Ordering::Relaxed);
        local.completed.0.store(n + 1, Ordering::Release);
        let n = s.close();
        self.slab.release(slot, n, |t| self.ready_on(t, local));
        self.slab.retire(slot, n, |s| local.free.push(s));
        self.hand_over(local);
        self.tell(left);
    }

    /// Completes a task on no worker.
    #[inline]
    fn finish_elsewhere(&self, slot: u32, failed: Option<Inherited>) {
        let s = self.slab.get(slot);
        let left = self.leave(slot, failed);
        if left.is_kept {
            match s.close_kept() {
                0 => s.let_go(),
                n => self.release_elsewhere(slot, n, || {
                    let own =
                        |i| if i == slot { s.let_go() } else { self.returned.0.lock().push(i) };
                    self.slab.retire(slot, n, own); // the slot comes last
                }),
            }
            return;
        }
        s.end();
        self.completed_elsewhere.0.fetch_add(1, Ordering::Release);
        let n = s.close();
        let retire = || self.slab.retire(slot, n, |s| self.returned.0.lock().push(s));
        match n {
            0 => retire(),
            _ => self.release_elsewhere(slot, n, retire),
        }
        self.tell(left);
    }

    /// A task is complete, counted, and its slot free.
    #[inline(always)]
    fn tell(&self, left: Left) {
        if let Some(v) = left.deleted {
            self.recycle(v);
        }
        // Counted before, looked for here; a waiter announces itself and then looks at the counts.
        publish();
        if self.watch.anybody() {
            self.notify_watchers();
        }
    }

    /// Records what a completion does to the errors of the variables it wrote.
    #[cold]
    fn settle(&self, body: &Body, writes: &[u32], failed: &Option<Inherited>) {
        match failed {
            Some(inherited) => drop(self.faults.spread(inherited, writes.iter().copied())),
            None if body.head.overwrites > 0 => {
                self.faults.heal(writes[..body.head.overwrites as usize].iter().copied());
            }
            None => {}
        }
    }

    /// A completion on a worker made `task` ready.
    #[inline]
    fn ready_on(&self, task: u32, local: &mut Local<'_>) {
        // SAFETY: the task is ready, so its body is written.
        let flags = unsafe { (*self.slab.get(task).body()).head.flags };
        if flags & (flag::SIGNAL | flag::RANKED) != 0 {
            self.ready_with_rank(task, flags);
        } else if local.next == NIL && local.streak < STREAK {
            local.next = task;
            local.streak += 1;
        } else {
            local.ready.push(task);
        }
    }

    /// Tells the `n` successors of a task that was completed on no worker; `retire` then gives its slot back.
    #[cold]
    fn release_elsewhere(&self, slot: u32, n: u32, retire: impl FnOnce()) {
        let (mut ready, mut cheap, mut ranked) = (Few::new(), Few::new(), false);
        self.slab.release(slot, n, |t| {
            ranked |= self.ready_elsewhere(t, &mut ready, &mut cheap);
        });
        retire();
        if !ready.is_empty() {
            self.queues.surplus(None, &ready);
            self.announce();
        }
        if ranked {
            // SAFETY: these tasks are ready and run below, so their bodies are written.
            cheap.sort_by_key(|&t| Reverse(rank_of(unsafe { &*self.slab.get(t).body() })));
        }
        if !cheap.is_empty() {
            self.run_cheap(&cheap);
        }
    }

    /// A completion on no worker made `task` ready. Is it a short one with a rank?
    #[inline]
    fn ready_elsewhere(&self, task: u32, ready: &mut Few, cheap: &mut Few) -> bool {
        // SAFETY: as in `ready_on`.
        let flags = unsafe { (*self.slab.get(task).body()).head.flags };
        if flags & flag::CHEAP != 0 {
            cheap.push(task);
            return flags & flag::RANKED != 0;
        }
        if flags & (flag::SIGNAL | flag::RANKED) != 0 {
            self.ready_with_rank(task, flags);
        } else {
            ready.push(task);
        }
        false
    }

    /// Runs short tasks where they became ready: waking a worker would cost more. One after the other, not
    /// inside one another, or a chain of them would fill the stack.
    #[cold]
    fn run_cheap(&self, tasks: &[u32]) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let is_below = CHEAP.try_with(|place| {
            let mut place = place.borrow_mut();
            match &mut *place {
                // (They are taken from the end.)
                Some(list) => {
                    list.extend(tasks.iter().rev().map(|&t| (self.handle(), epoch, t)));
                }
                None => {
                    *place = Some(Vec::new());
                    return false;
                }
            }
            true
        });
        match is_below {
            Ok(true) => {} // who runs them is further down this stack
            Ok(false) => {
                // (Those of a forked child's parent are the parent's.)
                let own = tasks.iter().filter(|_| self.epoch.load(Ordering::Relaxed) == epoch);
                own.for_each(|&task| self.run_here(task));
                while let Some((core, epoch, task)) = next_cheap() {
                    if core.epoch.load(Ordering::Relaxed) == epoch {
                        core.run_here(task);
                    }
                }
            }
            // The thread ends.
            Err(_) => {
                self.queues.surplus(None, tasks);
                self.announce();
            }
        }
    }

    fn run_here(&self, slot: u32) {
        let s = self.slab.get(slot);
        // SAFETY: the task is ready and run here only.
        let mut function = unsafe { (*s.body()).task.assume_init_read() };
        self.run_inline(TaskRef::new(slot, s.generation()), &mut function, None);
    }

    #[cold]
    fn ready_with_rank(&self, task: u32, flags: u8) {
        if flags & flag::SIGNAL != 0 {
            self.run_signal(task);
        } else {
            self.queue_ranked(task);
            self.announce();
        }
    }

    /// Queues what a completion made ready beyond the next task.
    #[inline]
    fn hand_over(&self, local: &mut Local<'_>) {
        if local.next != NIL && self.queues.has_urgent() {
            local.ready.push(std::mem::replace(&mut local.next, NIL));
        }
        if !local.ready.is_empty() {
            self.queues.surplus(Some(local.lane), &local.ready);
            local.ready.clear();
            self.announce();
        }
    }

    /// Runs a signal that has become ready.
    pub fn run_signal(&self, slot: u32) {
        let s = self.slab.get(slot);
        // SAFETY: the signal is ready and run once.
        let function = unsafe { (*s.body()).task.assume_init_read() };
        let _ = function.run(&RunContext::default(), || OnComplete::new(|_| ()));
        s.close();
        self.returned.0.lock().push(slot);
    }

    /// Runs a task that is ready at its push on the pushing thread, and leaves nothing of its function.
    #[inline]
    pub fn run_inline(&self, task: TaskRef, function: &mut Task, origin: Option<Origin<'_>>) {
        let frame = Frame::new(self, task, false);
        frame.enter(|| self.execute_inline(task, function, origin));
    }

    #[inline]
    fn execute_inline(&self, task: TaskRef, function: &mut Task, origin: Option<Origin<'_>>) {
        let slot = task.slot();
        let epoch = self.epoch.load(Ordering::Relaxed);
        // SAFETY: as in `execute`.
        let body = unsafe { &*self.slab.get(slot).body() };
        let rare = self.rare.load(Ordering::Relaxed);
        if (rare != 0 || self.faults.any())
            && let Some(inherited) = self.divert(task, body, rare)
        {
            drop(std::mem::replace(function, Task::nothing()));
            return self.finish_elsewhere(slot, Some(inherited));
        }
        self.slab.get(slot).begin();
        let run = run_context(body);
        let result = function.run_in_place(&run, || OnComplete::of_slot(self.handle(), task.0));
        if self.epoch.load(Ordering::Relaxed) != epoch {
            // The function forked and this is the child, which knows nothing of the task.
            return;
        }
        match result {
            Some(Ok(())) => self.finish_elsewhere(slot, None),
            Some(Err(error)) => {
                let inherited = self.failure(slot, error, origin.and_then(|f| f()));
                self.finish_elsewhere(slot, Some(inherited));
            }
            None => {}
        }
    }

    /// An asynchronous task ends by its token.
    pub fn complete_token(&self, task: u64, result: Result<()>) {
        let task = TaskRef(task);
        if self.recovered.load(Ordering::Acquire) != self.epoch.load(Ordering::Relaxed) {
            drop(self.lock()); // a forked child that was not heard of yet: recovers
        }
        if self.slab.is_done(task) {
            // Made before a fork, by a process that is not this one.
            return;
        }
        let failed = result.err().map(|e| self.failure(task.slot(), e, None));
        self.finish_elsewhere(task.slot(), failed);
    }

    /// A deleted variable's slot goes back to use.
    #[cold]
    fn recycle(&self, v: u32) {
        let carried = self.faults.forget(v);
        self.lock().vars.recycle(v);
        drop(carried);
    }
}
