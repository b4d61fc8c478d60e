//! Fork-join over the threads of a compute pool.
//!
//! The threads of a pool form a [`Team`]. Its owner (the engine) has each thread
//! [`join`](Team::join) it and, while idle, [`help`](Team::help). Kernels (`kernels/parallel.rs`)
//! call [`split`]: it publishes the parts, runs them together with the helpers that arrive, and
//! waits for those still inside. Neither side depends on the other.
//!
//! `parts.rs` divides a job into parts, `cores.rs` knows the cores that threads run on.

mod cores;
mod parts;

use crate::error::drop_panic;
#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU32};
use parts::Parts;
use std::any::Any;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicPtr, AtomicU32};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Jobs that one team may have published at once; further ones run on their own thread.
const JOB_SLOTS: usize = if cfg!(loom) { 1 } else { 16 };

/// The longest mean time of parts that threads outside of the team take.
const SHORT: Duration = Duration::from_micros(20);

/// Of [`JobSlot::state`]: the slot is in use.
const TAKEN: u32 = 1 << 31;
/// Helpers may enter.
const OPEN: u32 = 1 << 30;

#[cfg(not(loom))]
thread_local! {
    static TEAM: RefCell<Option<Arc<Team>>> = const { RefCell::new(None) };
}

#[cfg(loom)]
loom::thread_local! {
    static TEAM: RefCell<Option<Arc<Team>>> = RefCell::new(None);
}

/// Threads that run the parts of each other's jobs.
pub struct Team {
    size: usize,
    /// Wakes parked threads, at most the given number.
    wake: Box<dyn Fn(usize) + Send + Sync>,
    /// The slots with unfinished parts, one bit each.
    open: AtomicU32,
    slots: [JobSlot; JOB_SLOTS],
}

/// Where one job is published.
#[repr(align(128))]
struct JobSlot {
    /// `TAKEN`, `OPEN`, and the number of helpers inside. The job is valid while it is open or has
    /// helpers.
    state: AtomicU32,
    job: AtomicPtr<Job<'static>>,
}

/// Runs the part of a number; a break ends the job: parts that no thread has taken are skipped.
type RunPart<'a> = &'a (dyn Fn(usize) -> ControlFlow<()> + Sync);

/// Who may run parts of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Helpers {
    /// The threads of the team: parts are a user's, who may block in them, or use much stack.
    Team,
    /// Threads outside of it, too.
    Anyone,
}

/// A job in parts, on the stack of the thread that split it.
struct Job<'a> {
    /// The core that the splitting thread ran on.
    core: Option<usize>,
    helpers: Helpers,
    begun: Instant,
    parts: Parts,
    run: RunPart<'a>,
    /// The payload of the first panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    /// Runs parts until none is left, or as long as `goes_on`; `core` is the one that this thread
    /// runs on.
    fn run_parts(&self, core: Option<usize>, goes_on: impl Fn() -> bool) {
        let home = self.parts.home(core);
        while goes_on()
            && let Some(part) = self.parts.take(home)
        {
            match catch_unwind(AssertUnwindSafe(|| (self.run)(part))) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => self.parts.skip_the_rest(),
                Err(panic) => {
                    self.parts.skip_the_rest();
                    self.keep(panic);
                }
            }
        }
    }

    /// Returns true if parts are left, and those that have ended took at most [`SHORT`] on average.
    /// Of the `helpers` inside, the one that asks has no part; the others and the owner have one
    /// each.
    fn has_short_parts(&self, helpers: u32) -> bool {
        let (left, threads) = (self.parts.left(), u64::from(helpers));
        let ended = (self.parts.total - left).saturating_sub(threads) as u32;
        left > 0 && ended > 0 && self.begun.elapsed() * helpers <= SHORT * ended
    }

    /// Keeps the payload of a panic for the caller if it is the first.
    fn keep(&self, panic: Box<dyn Any + Send>) {
        let mut slot = self.panic.lock().unwrap_or_else(|e| e.into_inner());
        match &*slot {
            None => *slot = Some(panic),
            Some(_) => drop_panic(panic),
        }
    }
}

impl Team {
    /// A team of `size` threads; `wake` wakes parked ones, at most the given number.
    pub fn new(size: usize, wake: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let slot = |_| JobSlot { state: AtomicU32::new(0), job: AtomicPtr::new(ptr::null_mut()) };
        let slots = [(); JOB_SLOTS].map(slot);
        Team { size, wake: Box::new(wake), open: AtomicU32::new(0), slots }
    }

    /// Runs `f` with the calling thread in the team.
    pub fn join<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        struct Leave(Option<Arc<Team>>);
        impl Drop for Leave {
            fn drop(&mut self) {
                let before = self.0.take();
                let _ = TEAM.try_with(|team| team.replace(before));
            }
        }
        let _leave = Leave(TEAM.with(|team| team.replace(Some(self.clone()))));
        f()
    }

    /// Wakes parked threads of the team, at most `most`.
    fn call(&self, most: usize) {
        (self.wake)(most.min(self.size - 1));
    }

    /// Returns true if a job is published.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    /// Wakes parked threads if a job is published: for a thread that was counted as a helper, and
    /// no longer is.
    pub fn replace_helper(&self) {
        if self.open.load(Ordering::SeqCst) != 0 {
            self.call(1);
        }
    }

    /// Runs parts of a published job, if there is one; returns false if there was nothing to do.
    #[inline]
    pub fn help(&self) -> bool {
        match self.open.load(Ordering::Relaxed) {
            0 => false,
            open => self.help_at(open.trailing_zeros() as usize),
        }
    }

    fn help_at(&self, i: usize) -> bool {
        let Some(mut inside) = self.enter(i) else { return false };
        let job = inside.job();
        let helps = !job.parts.are_taken();
        let mut here = cores::this_one();
        if let Some(core) = job.core.filter(|core| here == Some(*core)) {
            cores::leave(core);
            here = cores::this_one();
        }
        job.run_parts(here, || true);
        inside.closes = true;
        helps
    }

    /// As [`Team::help`], for a thread outside of the team, which soon wants to do something else:
    /// helps only where parts have turned out to be short, and takes no further one once `goes_on`
    /// returns false. Stays on its core, and does not help the thread that runs there.
    pub fn help_while(self: &Arc<Self>, goes_on: impl Fn() -> bool) -> bool {
        let open = self.open.load(Ordering::Relaxed);
        if open == 0 {
            return false;
        }
        let Some(mut inside) = self.enter(open.trailing_zeros() as usize) else { return false };
        let (job, here) = (inside.job(), cores::this_one());
        let is_beside = here.is_none() || here != job.core;
        if job.helpers == Helpers::Team || !is_beside || !job.has_short_parts(inside.threads()) {
            return false;
        }
        self.join(|| job.run_parts(here, goes_on));
        inside.closes = job.parts.are_taken();
        true
    }

    /// Enters a published job, unless it has ended.
    fn enter(&self, i: usize) -> Option<Helper<'_>> {
        let slot = &self.slots[i];
        let mut state = slot.state.load(Ordering::Relaxed);
        loop {
            if state & OPEN == 0 {
                return None;
            }
            let (ok, err) = (Ordering::Acquire, Ordering::Relaxed);
            match slot.state.compare_exchange_weak(state, state + 1, ok, err) {
                Ok(_) => return Some(Helper { team: self, i, closes: false }),
                Err(now) => state = now,
            }
        }
    }

    /// Calls `run` with each of `0..parts`, in any order and possibly concurrently, until one of
    /// them breaks. A panic of one of them continues in the caller, once no helper is inside.
    fn split(&self, parts: usize, helpers: Helpers, run: RunPart<'_>) {
        let is_free = |slot: &&JobSlot| {
            let (ok, err) = (Ordering::Acquire, Ordering::Relaxed);
            slot.state.compare_exchange(0, TAKEN, ok, err).is_ok()
        };
        let Some(i) = self.slots.iter().position(|slot| is_free(&slot)) else {
            let _ = (0..parts).try_for_each(run);
            return;
        };
        let core = cores::this_one();
        let ranges = Parts::new(parts, self.size);
        let begun = Instant::now();
        let job = Job { core, helpers, begun, parts: ranges, run, panic: Mutex::default() };
        let slot = &self.slots[i];
        slot.job.store(ptr::from_ref(&job).cast_mut().cast(), Ordering::Relaxed);
        slot.state.store(TAKEN | OPEN, Ordering::Release);
        let published = PublishedJob { team: self, i };
        self.open.fetch_or(1 << i, Ordering::SeqCst); // before `wake` looks who would help anyway
        self.call(parts - 1);
        job.run_parts(core, || true);
        drop(published);
        let panic = job.panic.into_inner().unwrap_or_else(|e| e.into_inner());
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// A helper inside a job; leaves when dropped.
struct Helper<'a> {
    team: &'a Team,
    i: usize,
    /// No parts are left, so nobody else needs to enter.
    closes: bool,
}

impl Helper<'_> {
    fn job(&self) -> &Job<'_> {
        // SAFETY: the job was open when this thread entered, and its owner waits until all have
        // left.
        unsafe { &*self.team.slots[self.i].job.load(Ordering::Relaxed) }
    }

    /// The helpers inside.
    fn threads(&self) -> u32 {
        self.team.slots[self.i].state.load(Ordering::Relaxed) & !(TAKEN | OPEN)
    }
}

impl Drop for Helper<'_> {
    fn drop(&mut self) {
        if self.closes {
            // The slot is not reused before this thread has left.
            self.team.open.fetch_and(!(1 << self.i), Ordering::Relaxed);
        }
        self.team.slots[self.i].state.fetch_sub(1, Ordering::Release);
    }
}

/// A published job. Dropping it waits for the helpers inside and frees the slot.
struct PublishedJob<'a> {
    team: &'a Team,
    i: usize,
}

impl Drop for PublishedJob<'_> {
    fn drop(&mut self) {
        let (team, slot) = (self.team, &self.team.slots[self.i]);
        if team.open.load(Ordering::Relaxed) & (1 << self.i) != 0 {
            team.open.fetch_and(!(1 << self.i), Ordering::Relaxed);
        }
        let mut inside = slot.state.fetch_and(!OPEN, Ordering::AcqRel) & !OPEN;
        let mut turns = 0u32;
        while inside != TAKEN {
            turns += 1;
            pause(turns, 4096);
            inside = slot.state.load(Ordering::Acquire);
        }
        slot.state.store(0, Ordering::Release);
    }
}

/// One turn of a wait: spins, and yields the core after `spins` turns.
pub fn pause(turns: u32, spins: u32) {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    if turns < spins {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
    let _ = (turns, spins);
}

/// The team of this thread, if it is in one.
fn team() -> Option<Arc<Team>> {
    TEAM.try_with(|team| team.borrow().clone()).ok().flatten()
}

/// Calls `run` with each of `0..parts`: concurrently if this thread is in a team, else in order.
/// A part must not fork: the child would wait for helpers that exist in the parent only.
pub fn split(parts: usize, run: impl Fn(usize) + Sync) {
    split_until(parts, Helpers::Anyone, &|i| {
        run(i);
        ControlFlow::Continue(())
    });
}

/// As [`split`], with a user's parts, which may fail, and which threads of the team alone run:
/// returns the first failure, after which no further part is begun.
pub fn try_split<E: Send>(
    parts: usize,
    run: impl Fn(usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let failure = Mutex::new(None);
    split_until(parts, Helpers::Team, &|i| match run(i) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failure.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
            ControlFlow::Break(())
        }
    });
    failure.into_inner().unwrap_or_else(|e| e.into_inner()).map_or(Ok(()), Err)
}

fn split_until(parts: usize, helpers: Helpers, run: RunPart<'_>) {
    /// The most parts of a job. More are run several at a time.
    const MOST: usize = u32::MAX as usize;
    if parts > MOST {
        let each = parts.div_ceil(MOST);
        let several = |i: usize| (i * each..parts.min((i + 1) * each)).try_for_each(run);
        return split_until(parts.div_ceil(each), helpers, &several);
    }
    match team().filter(|team| team.size > 1 && parts > 1) {
        Some(team) => team.split(parts, helpers, run),
        None => drop((0..parts).try_for_each(run)),
    }
}

/// Wakes at most `most` parked threads of this thread's team, for parts that are split by other
/// means.
pub fn wake_helpers(most: usize) {
    if let Some(team) = team() {
        team.call(most);
    }
}

#[cfg(all(test, not(loom)))]
pub mod tests;

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;

    struct Cell(UnsafeCell<u64>);

    // SAFETY: access from two threads that is not ordered is what loom reports.
    unsafe impl Sync for Cell {}
    // SAFETY: as above.
    unsafe impl Send for Cell {}

    /// One thread splits twice while another helps: each part runs once, the owner sees its
    /// effects, and no helper is inside a job that has ended.
    #[test]
    fn loom_helpers_are_gone_when_the_work_is_done() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.check(|| {
            let team = Arc::new(Team::new(2, |_| ()));
            let helper = thread::spawn({
                let team = team.clone();
                move || {
                    for _ in 0..2 {
                        team.help();
                        thread::yield_now();
                    }
                }
            });
            for n in [1, 10] {
                let parts = [(); 2].map(|()| Cell(UnsafeCell::new(0)));
                // SAFETY: loom aborts the model on a concurrent access.
                team.split(2, Helpers::Anyone, &|i| {
                    parts[i].0.with_mut(|p| unsafe { *p += n });
                    ControlFlow::Continue(())
                });
                for part in &parts {
                    // SAFETY: as above.
                    assert_eq!(part.0.with(|p| unsafe { *p }), n);
                }
            }
            helper.join().unwrap();
        });
    }
}
