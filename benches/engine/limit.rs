//! Lower bounds of the machine for an engine that hands tasks to another core and for one that runs
//! them inline, and the throughput that a second thread adds.

use super::{Access, RUNS, TASKS, median, time};
use rsnet::engine::{Engine, NaiveEngine, Push, Var};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::hint::{black_box, spin_loop};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

/// A small task of two cache lines: the number of its successors, or [`CLOSED`], and other data.
#[repr(C, align(128))]
#[derive(Default)]
struct Record {
    waiting: AtomicU64,
    words: UnsafeCell<[u64; 12]>,
}

// SAFETY: the counters of a `Ring` determine which of two threads may access the words.
unsafe impl Sync for Record {}

const RECORDS: usize = 1024;
const CLOSED: u64 = u64::MAX;

/// Records that pass from one thread to another and back, and the number passed each way so far.
struct Ring {
    records: Vec<Record>,
    filled: Count,
    emptied: Count,
}

/// A counter on cache lines of its own.
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

    /// Publishes `n` once per batch.
    fn publish(&self, n: u64, batch: u64) {
        if n.is_multiple_of(batch) || n == TASKS as u64 {
            self.0.store(n, Ordering::Release);
        }
    }
}

/// Nanoseconds per record that one thread fills and another reads and returns, in order, through a
/// ring, without dependencies, locks, closures or scheduling.
pub fn handoff() -> f64 {
    hand_over(&[])
}

/// The same for tasks with dependencies: before a record is handed over, a successor is counted at
/// each predecessor that is not closed. The predecessors are known in advance, and the other thread
/// takes the records in order, so it notifies no successors.
pub fn handoff_edges(tasks: &[Access]) -> f64 {
    hand_over(&before_each(tasks))
}

/// The predecessors of each task: the last writer of each variable that it reads; for each variable
/// that it writes, the readers since the last write, or the last writer if there are none.
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
        before.retain(|&b| i - b < RECORDS / 2); // their records are not reused yet
        before
    };
    tasks.iter().enumerate().map(follow).collect()
}

/// The best result over several distances between the two threads: close together, one takes cache
/// lines that the other is about to write.
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
        let received = consumer.join().expect("the reader returns");
        (start.elapsed(), sent, received)
    });
    assert_eq!(sent, received, "a record or an edge was lost or changed");
    elapsed.as_nanos() as f64 / TASKS as f64
}

/// Fills all records; returns the checksum of their words and the number of edges counted.
fn fill(ring: &Ring, before: &[Vec<usize>], batch: u64) -> (u64, u64) {
    let (mut sum, mut edges, mut seen) = (0, 0, 0);
    for i in 0..TASKS {
        let record = &ring.records[i % RECORDS];
        if let Some(earlier) = i.checked_sub(RECORDS) {
            ring.emptied.wait_for_more_than(earlier as u64, &mut seen);
        }
        // SAFETY: the other thread has returned the record.
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
        ring.filled.publish(i as u64 + 1, batch);
    }
    (sum, edges)
}

/// Empties all records; returns the same as [`fill`].
fn empty(ring: &Ring, with_edges: bool, batch: u64) -> (u64, u64) {
    let (mut sum, mut edges, mut seen) = (0, 0, 0);
    for i in 0..TASKS {
        let record = &ring.records[i % RECORDS];
        ring.filled.wait_for_more_than(i as u64, &mut seen);
        // SAFETY: the other thread has handed the record over.
        sum = unsafe { &*record.words.get() }.iter().fold(sum, |s, w| s ^ w);
        if with_edges {
            edges += record.waiting.swap(CLOSED, Ordering::AcqRel);
        }
        ring.emptied.publish(i as u64 + 1, batch);
    }
    (sum, edges)
}

/// Nanoseconds per task that a thread orders and runs inline while other threads may push: a lock
/// around three variables that each name their last task, a call that catches panics, and closing
/// and counting the task. Arguments are not checked, and there is no record of the task, no errors,
/// versions or hooks.
pub fn inline() -> f64 {
    let vars = Mutex::new([0u64; 64]);
    let (closed, count) = (AtomicU64::new(0), AtomicU64::new(0));
    let function: fn(usize) = |i| {
        black_box(i);
    };
    time(TASKS, || {
        for i in 0..TASKS {
            {
                let mut vars = vars.lock().expect("no task panics");
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

/// Nanoseconds per push that runs its function and counts the write of its variable: a function and
/// the lists of its variables are passed by dynamic dispatch and run where panics are caught.
/// Arguments are not checked, and there is no record of running operations, no errors and no
/// hooks.
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

/// The joint throughput of two threads relative to that of one: 2 if each has its own core, little
/// more than 1 if they are the two hardware threads of one core. In that case a task costs the sum
/// of its push and its run, however well they overlap.
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
        2.0 * alone / own.max(other.join().expect("it does not panic"))
    };
    median((0..RUNS).map(gain).collect())
}
