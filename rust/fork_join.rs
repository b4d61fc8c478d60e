//! The door between who owns the threads of a compute pool and who splits work on them.
//!
//! The threads of a pool are a [`Crew`]. Its owner (the engine) has each thread [`join`](Crew::join) it and, while idle,
//! [`help`](Crew::help). Who splits work (`kernels/parallel.rs`) calls [`split`]: it publishes the parts, does them one by
//! one beside whoever comes to help, and waits for those inside. Neither knows the other.

use crate::error::drop_panic;
#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex};

/// Works that one crew may have published at once; further ones are done by those who split them.
const PLACES: usize = if cfg!(loom) { 1 } else { 16 };

/// Of [`Place::state`]: somebody has it.
const TAKEN: u32 = 1 << 31;
/// Helpers may come in.
const OPEN: u32 = 1 << 30;

#[cfg(not(loom))]
thread_local! {
    static CREW: RefCell<Option<Arc<Crew>>> = const { RefCell::new(None) };
}

#[cfg(loom)]
loom::thread_local! {
    static CREW: RefCell<Option<Arc<Crew>>> = RefCell::new(None);
}

/// Threads that help each other with work that is split.
pub struct Crew {
    size: usize,
    /// Wakes parked ones, at most so many.
    wake: Box<dyn Fn(usize) + Send + Sync>,
    /// The places that may be worth a look, a bit each.
    open: AtomicU32,
    places: [Place; PLACES],
}

/// Where one work is published.
#[repr(align(128))]
struct Place {
    /// `TAKEN`, `OPEN`, and how many helpers are inside. The work stands while it is open or anybody is inside.
    state: AtomicU32,
    work: AtomicPtr<Work<'static>>,
}

/// Work in parts, on the stack of the thread that split it.
struct Work<'a> {
    /// Where that thread ran then.
    core: Option<usize>,
    parts: usize,
    next: AtomicUsize,
    run: &'a (dyn Fn(usize) + Sync),
    /// What the first part that panicked left.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Work<'_> {
    /// Does parts until there are none left.
    fn go_on(&self) {
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts {
                return;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.run)(part))) {
                self.next.store(self.parts, Ordering::Relaxed); // the rest is not worth doing
                let mut place = self.panic.lock().unwrap_or_else(|e| e.into_inner());
                match &*place {
                    None => *place = Some(panic),
                    Some(_) => drop_panic(panic),
                }
            }
        }
    }

    fn is_given_out(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.parts
    }
}

impl Crew {
    /// A crew of so many threads; `wake` calls parked ones to help, at most as many as it is told.
    pub fn new(size: usize, wake: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let place = |_| Place { state: AtomicU32::new(0), work: AtomicPtr::new(ptr::null_mut()) };
        let places = [(); PLACES].map(place);
        Crew { size, wake: Box::new(wake), open: AtomicU32::new(0), places }
    }

    /// Runs `f` with the calling thread in the crew.
    pub fn join<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        struct Leave(Option<Arc<Crew>>);
        impl Drop for Leave {
            fn drop(&mut self) {
                let before = self.0.take();
                let _ = CREW.try_with(|crew| crew.replace(before));
            }
        }
        let _leave = Leave(CREW.with(|crew| crew.replace(Some(self.clone()))));
        f()
    }

    /// May there be work to help with?
    #[inline]
    pub fn has_work(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    /// Wakes parked threads of the crew, at most so many.
    fn call(&self, most: usize) {
        (self.wake)(most.min(self.size - 1));
    }

    /// Does parts of what is published, if anything is; false if there was nothing to do.
    #[inline]
    pub fn help(&self) -> bool {
        match self.open.load(Ordering::Relaxed) {
            0 => false,
            open => self.help_at(open.trailing_zeros() as usize),
        }
    }

    fn help_at(&self, i: usize) -> bool {
        let place = &self.places[i];
        let mut state = place.state.load(Ordering::Relaxed);
        loop {
            if state & OPEN == 0 {
                return false;
            }
            let (ok, err) = (Ordering::Acquire, Ordering::Relaxed);
            match place.state.compare_exchange_weak(state, state + 1, ok, err) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        let inside = Inside { crew: self, i };
        // SAFETY: it was open when this thread came in, and its owner waits until all have left.
        let work = unsafe { &*place.work.load(Ordering::Relaxed) };
        let helps = !work.is_given_out();
        if let Some(core) = work.core.filter(|core| cores::this_one() == Some(*core)) {
            cores::leave(core);
        }
        work.go_on();
        drop(inside);
        helps
    }

    /// Calls `run` with each of `0..parts`, in any order and possibly side by side. A panic of one of them goes on in
    /// the caller, once nobody is at work any more.
    fn split(&self, parts: usize, run: &(dyn Fn(usize) + Sync)) {
        let is_free = |place: &&Place| {
            let (ok, err) = (Ordering::Acquire, Ordering::Relaxed);
            place.state.compare_exchange(0, TAKEN, ok, err).is_ok()
        };
        let Some(i) = self.places.iter().position(|place| is_free(&place)) else {
            return (0..parts).for_each(run);
        };
        let (core, next, panic) = (cores::this_one(), AtomicUsize::new(0), Mutex::default());
        let work = Work { core, parts, next, run, panic };
        let place = &self.places[i];
        place.work.store(ptr::from_ref(&work).cast_mut().cast(), Ordering::Relaxed);
        place.state.store(TAKEN | OPEN, Ordering::Release);
        let published = Published { crew: self, i };
        self.open.fetch_or(1 << i, Ordering::Relaxed);
        self.call(parts - 1);
        work.go_on();
        drop(published);
        let panic = work.panic.into_inner().unwrap_or_else(|e| e.into_inner());
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// A helper that was woken while all other cores were busy may come to run on that of the thread which it is to help. As
/// it never sleeps while there is work, the system does not move it for tens of milliseconds, though a core is idle.
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
mod cores {
    use std::mem::zeroed;

    /// The core that this thread runs on.
    #[inline]
    pub fn this_one() -> Option<usize> {
        // SAFETY: only asks.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    /// Moves this thread to another core, if it may run on one.
    #[cold]
    pub fn leave(core: usize) {
        let size = size_of::<libc::cpu_set_t>();
        if core >= 8 * size {
            return;
        }
        // SAFETY: sets of bits, for which zeros are valid, of the size that is told; `core` is within them.
        unsafe {
            let mut all = zeroed::<libc::cpu_set_t>();
            if libc::sched_getaffinity(0, size, &mut all) != 0 || libc::CPU_COUNT(&all) < 2 {
                return;
            }
            let mut others = all;
            libc::CPU_CLR(core, &mut others);
            if libc::sched_setaffinity(0, size, &others) == 0 {
                libc::sched_setaffinity(0, size, &all);
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
mod cores {
    pub fn this_one() -> Option<usize> {
        None
    }

    pub fn leave(_: usize) {}
}

/// A helper inside a work, until it goes.
struct Inside<'a> {
    crew: &'a Crew,
    i: usize,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Nobody need look here any more. (The place is not used for another work before this thread has left.)
        self.crew.open.fetch_and(!(1 << self.i), Ordering::Relaxed);
        self.crew.places[self.i].state.fetch_sub(1, Ordering::Release);
    }
}

/// A published work, until it goes: then nobody is inside any more, and the place is free.
struct Published<'a> {
    crew: &'a Crew,
    i: usize,
}

impl Drop for Published<'_> {
    fn drop(&mut self) {
        let (crew, place) = (self.crew, &self.crew.places[self.i]);
        if crew.open.load(Ordering::Relaxed) & (1 << self.i) != 0 {
            crew.open.fetch_and(!(1 << self.i), Ordering::Relaxed);
        }
        let mut inside = place.state.fetch_and(!OPEN, Ordering::AcqRel) & !OPEN;
        let mut turns = 0u32;
        while inside != TAKEN {
            turns += 1;
            pause(turns, 4096);
            inside = place.state.load(Ordering::Acquire);
        }
        place.state.store(0, Ordering::Release);
    }
}

/// One turn of a wait: spins, and after so many turns lets others have the core.
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

/// The crew of this thread, if it is in one.
fn crew() -> Option<Arc<Crew>> {
    CREW.try_with(|crew| crew.borrow().clone()).ok().flatten()
}

/// Calls `run` with each of `0..parts`: side by side with the crew of this thread if it is in one, else one by one.
/// (A part must not fork: the child would wait for helpers that it does not have.)
pub fn split(parts: usize, run: impl Fn(usize) + Sync) {
    match crew().filter(|crew| crew.size > 1 && parts > 1) {
        Some(crew) => crew.split(parts, &run),
        None => (0..parts).for_each(run),
    }
}

/// Wakes parked threads of this thread's crew, at most so many, because there is work to split in another way.
pub fn call_helpers(most: usize) {
    if let Some(crew) = crew() {
        crew.call(most);
    }
}

#[cfg(all(test, not(loom)))]
pub mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// Runs `f` on a thread of a crew of three.
    pub fn in_crew<R>(f: impl FnOnce() -> R) -> R {
        let (crew, stop) = (Arc::new(Crew::new(3, |_| ())), AtomicBool::new(false));
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    crew.join(|| {
                        while !stop.load(Ordering::Relaxed) {
                            crew.help();
                            std::thread::yield_now();
                        }
                    })
                });
            }
            let result = catch_unwind(AssertUnwindSafe(|| crew.join(f)));
            stop.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn counts(n: usize) -> Vec<AtomicU64> {
        (0..n).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn each_part_is_done_once_also_inside_others() {
        in_crew(|| {
            for round in 0..200 {
                let (n, inner) = (1 + round % 7, 1 + round % 5);
                let done = counts(n * inner);
                split(n, |i| {
                    split(inner, |k| {
                        done[i * inner + k].fetch_add(1, Ordering::Relaxed);
                    });
                });
                assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == 1));
            }
        });
    }

    /// What panics carry may panic once more as it goes: nobody is left inside for that.
    #[test]
    fn a_panic_that_panics_as_it_goes_leaves_nobody_inside() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("once more");
            }
        }
        in_crew(|| {
            for _ in 0..50 {
                let begun = AtomicU64::new(0);
                let panics = || {
                    split(3, |_| {
                        begun.fetch_add(1, Ordering::Relaxed);
                        std::panic::panic_any(Bomb);
                    });
                };
                std::mem::forget(catch_unwind(AssertUnwindSafe(panics)).unwrap_err());
                assert!(begun.load(Ordering::Relaxed) > 0);
            }
        });
    }

    #[test]
    fn a_thread_is_in_its_crew_again_when_it_leaves_an_inner_one() {
        let (outer, inner) = (Arc::new(Crew::new(2, |_| ())), Arc::new(Crew::new(3, |_| ())));
        let size = || crew().map(|crew| crew.size);
        outer.join(|| {
            split(2, |_| inner.join(|| assert_eq!(size(), Some(3))));
            assert_eq!(size(), Some(2));
        });
        assert_eq!(size(), None);
    }

    #[test]
    fn without_a_crew_parts_are_done_in_order() {
        let order = Mutex::new(Vec::new());
        split(4, |i| order.lock().unwrap().push(i));
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_panic_goes_on_in_the_caller_and_the_crew_works_on() {
        let message = in_crew(|| {
            let panics = || split(64, |i| assert!(i != 40, "part {i}"));
            let panic = catch_unwind(panics).unwrap_err();
            let done = counts(100);
            split(100, |i| {
                done[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == 1));
            panic.downcast_ref::<String>().cloned()
        });
        assert_eq!(message.as_deref(), Some("part 40"));
    }
}

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

    /// One thread splits twice while another helps: each part is done once, the owner sees what helpers did, and no helper
    /// is inside a work that is gone.
    #[test]
    fn loom_helpers_are_gone_when_the_work_is_done() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.check(|| {
            let crew = Arc::new(Crew::new(2, |_| ()));
            let helper = thread::spawn({
                let crew = crew.clone();
                move || {
                    for _ in 0..2 {
                        crew.help();
                        thread::yield_now();
                    }
                }
            });
            for n in [1, 10] {
                let parts = [(); 2].map(|()| Cell(UnsafeCell::new(0)));
                // SAFETY: loom ends the model if anybody else has access now.
                crew.split(2, &|i| parts[i].0.with_mut(|p| unsafe { *p += n }));
                for part in &parts {
                    // SAFETY: as above.
                    assert_eq!(part.0.with(|p| unsafe { *p }), n);
                }
            }
            helper.join().unwrap();
        });
    }
}
