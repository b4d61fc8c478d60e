//! What the machine takes for the least that an engine does: one that hands tasks to another core,
//! and one that runs them itself; and what the other core is worth.

use super::{Access, RUNS, TASKS, median, time};
use rsnet::engine::{Engine, NaiveEngine, Push, Var};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::hint::{black_box, spin_loop};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

/// As much as a small task takes, two cache lines: how many wait for the task, or [`CLOSED`], and
/// the rest.
#[repr(C, align(128))]
#[derive(Default)]
struct Record {
    waiting: AtomicU64,
    words: UnsafeCell<[u64; 12]>,
}

// SAFETY: the counters of a `Ring` say which of two threads may touch the words.
unsafe impl Sync for Record {}

const RECORDS: usize = 1024;
const CLOSED: u64 = u64::MAX;

/// Records on their way from one thread to another and back, and how many went each way so far.
struct Ring {
    records: Vec<Record>,
    filled: Count,
    emptied: Count,
}

/// A counter in lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    fn wait_for_more_than(&self, n: u64, seen: &mut u64) {
        while *seen <= n {
            *seen = self.0.load(Ordering::Acquire);
            if *seen <= n {
                spin_loop();
            }
        }
    }

    /// Tells every so many.
    fn tell(&self, n: u64, batch: u64) {
        if n.is_multiple_of(batch) || n == TASKS as u64 {
            self.0.store(n, Ordering::Release);
        }
    }
}

/// Nanoseconds for each record that one thread fills, another reads and gives back, in order,
/// through a ring. Nothing else is done: no dependencies, no lock, no closure, no choice of what
/// comes next.
pub fn handoff() -> f64 {
    hand_over(&[])
}

/// The same for tasks with dependencies: before a record is handed over, one more is counted at
/// each record that it must follow, if that is not closed. (Which ones is known beforehand, and the
/// other thread takes the records in order, so that it has nobody to tell.)
pub fn handoff_edges(tasks: &[Access]) -> f64 {
    hand_over(&before_each(tasks))
}

/// Which tasks each task must follow: the last writer of what it reads, and of what it writes the
/// readers since, or else the last writer.
fn before_each(tasks: &[Access]) -> Vec<Vec<usize>> {
    let mut writer: HashMap<usize, usize> = HashMap::new();
    let mut readers: HashMap<usize, Vec<usize>> = HashMap::new();
    let follow = |(i, task): (usize, &Access)| {
        let mut before: Vec<usize> =
            task.reads.iter().filter_map(|r| writer.get(r).copied()).collect();
        task.reads.iter().for_each(|&r| readers.entry(r).or_default().push(i));
        for &w in &task.writes {
            let last = writer.insert(w, i);
            match readers.remove(&w) {
                Some(since) => before.extend(since),
                None => before.extend(last),
            }
        }
        before.retain(|&b| i - b < RECORDS / 2); // whose records are not used again yet
        before
    };
    tasks.iter().enumerate().map(follow).collect()
}

/// The best of several distances at which one thread follows the other: right behind it, it takes
/// from it what it is about to write.
fn hand_over(before: &[Vec<usize>]) -> f64 {
    let best = |batch| median((0..RUNS).map(|_| hand_over_in(before, batch)).collect());
    [1, 8, 64].map(best).into_iter().fold(f64::INFINITY, f64::min)
}

fn hand_over_in(before: &[Vec<usize>], batch: u64) -> f64 {
    let records = (0..RECORDS).map(|_| Record::default()).collect();
    let ring = Ring { records, filled: Count::default(), emptied: Count::default() };
    let begun = Barrier::new(2);
    let (elapsed, sent, received) = std::thread::scope(|s| {
        let consumer = s.spawn(|| {
            begun.wait();
            empty(&ring, !before.is_empty(), batch)
        });
        begun.wait();
        let start = Instant::now();
        let sent = fill(&ring, before, batch);
        let received = consumer.join().expect("the reader ends");
        (start.elapsed(), sent, received)
    });
    assert_eq!(sent, received, "a record or an edge was lost or changed");
    elapsed.as_nanos() as f64 / TASKS as f64
}

/// Fills all records: the sum of their words, and how many edges were counted.
fn fill(ring: &Ring, before: &[Vec<usize>], batch: u64) -> (u64, u64) {
    let (mut sum, mut edges, mut seen) = (0, 0, 0);
    for i in 0..TASKS {
        let record = &ring.records[i % RECORDS];
        if let Some(earlier) = i.checked_sub(RECORDS) {
            ring.emptied.wait_for_more_than(earlier as u64, &mut seen);
        }
        // SAFETY: the other thread has given it back.
        let words = unsafe { &mut *record.words.get() };
        for (k, w) in words.iter_mut().enumerate() {
            *w = (i * 12 + k) as u64;
            sum ^= *w;
        }
        record.waiting.store(0, Ordering::Relaxed);
        for &b in before.get(i).into_iter().flatten() {
            let more = |n| (n != CLOSED).then_some(n + 1);
            let waiting = &ring.records[b % RECORDS].waiting;
            let added = waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
            edges += u64::from(added.is_ok());
        }
        ring.filled.tell(i as u64 + 1, batch);
    }
    (sum, edges)
}

/// Empties all records: the same.
fn empty(ring: &Ring, with_edges: bool, batch: u64) -> (u64, u64) {
    let (mut sum, mut edges, mut seen) = (0, 0, 0);
    for i in 0..TASKS {
        let record = &ring.records[i % RECORDS];
        ring.filled.wait_for_more_than(i as u64, &mut seen);
        // SAFETY: the other thread has handed it over.
        sum = unsafe { &*record.words.get() }.iter().fold(sum, |s, w| s ^ w);
        if with_edges {
            edges += record.waiting.swap(CLOSED, Ordering::AcqRel);
        }
        ring.emptied.tell(i as u64 + 1, batch);
    }
    (sum, edges)
}

/// Nanoseconds for each task that a thread orders and runs itself, where others may push as well: a
/// lock around three variables of which each names its last task, a call that catches panics, a
/// task that is closed and counted. Nothing else is done: no check of what is named, no record of
/// the task, no errors, versions or hooks.
pub fn inline() -> f64 {
    let vars = Mutex::new([0u64; 64]);
    let (closed, count) = (AtomicU64::new(0), AtomicU64::new(0));
    let function: fn(usize) = |i| {
        black_box(i);
    };
    time(TASKS, || {
        for i in 0..TASKS {
            {
                let mut vars = vars.lock().expect("nobody panics");
                for k in 0..3 {
                    let last = &mut vars[(i * 7 + k * 11) % 64];
                    black_box(*last);
                    *last = i as u64;
                }
            }
            let call = black_box(function);
            catch_unwind(|| call(i)).expect("it does not panic");
            closed.swap(i as u64, Ordering::AcqRel);
            count.fetch_add(1, Ordering::Release);
        }
    })
}

/// Nanoseconds for each push that runs its function before it returns, and does nothing else but
/// count that its variable was written: a function and the lists of its variables are handed to an
/// engine that is not known when the loop is compiled, and run where panics are caught. No look at
/// what is named, nothing said of what runs, no errors, no hooks.
pub fn naive() -> f64 {
    trait Runs {
        fn push(&self, task: Call, push: Push<'_>) -> rsnet::Result<()>;
    }
    struct Call(fn(usize) -> rsnet::Result<()>, usize);
    struct Versions([AtomicU64; 64]);
    impl Runs for Versions {
        fn push(&self, Call(function, i): Call, push: Push<'_>) -> rsnet::Result<()> {
            let result = catch_unwind(|| function(i)).expect("it does not panic");
            for w in push.writes {
                let version = &self.0[w.number() as usize % 64];
                version.store(version.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            result
        }
    }
    let engine = NaiveEngine::new();
    let vars: Vec<Var> = (0..64).map(|_| engine.new_variable()).collect();
    let versions = Versions([const { AtomicU64::new(0) }; 64]);
    let runs: &dyn Runs = black_box(&versions);
    let function = black_box(
        (|i| {
            black_box(i);
            Ok(())
        }) as fn(usize) -> rsnet::Result<()>,
    );
    let ns = time(TASKS, || {
        for i in 0..TASKS {
            let (reads, writes) = (i * 7 % 62, i * 11 % 63);
            let push = Push::new("task", &vars[reads..reads + 2], &vars[writes..=writes]);
            runs.push(Call(function, i), push).expect("it does not fail");
        }
    });
    let pushed = versions.0.iter().map(|v| v.load(Ordering::Relaxed)).sum::<u64>();
    assert_eq!(pushed, ((RUNS + 1) * TASKS) as u64, "a push was lost");
    ns
}

/// How much two threads do together in the time in which one does 1 alone: 2 where each has a core
/// of its own, hardly more than 1 where they are the two hardware threads of one core. There a task
/// costs what its push and its run cost together, however well they overlap.
pub fn two_threads() -> f64 {
    fn work() -> f64 {
        let start = Instant::now();
        let mut sums = [1u64; 8];
        for i in 0..1_000_000u64 {
            for (k, sum) in sums.iter_mut().enumerate() {
                *sum = sum.wrapping_add(i) ^ k as u64;
            }
            black_box(&mut sums);
        }
        start.elapsed().as_secs_f64()
    }
    let gain = |_| {
        let alone = work();
        let other = std::thread::spawn(work);
        let own = work();
        2.0 * alone / own.max(other.join().expect("it only adds"))
    };
    median((0..RUNS).map(gain).collect())
}
