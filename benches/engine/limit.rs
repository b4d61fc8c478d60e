//! What the machine lets any engine reach: one that hands tasks to another core, and one that runs them itself; and
//! what the other core is worth.

use super::{Access, TASKS, median};
use rsnet::engine::{Engine, NaiveEngine, Push, Var};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::hint::{black_box, spin_loop};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// As much as a small task takes: two cache lines, with one word that says whose turn it is, and one for those who wait
/// for the task: how many there are, or [`CLOSED`].
#[repr(align(128))]
#[derive(Default)]
struct Record {
    turn: AtomicU64,
    waiting: AtomicU64,
    words: UnsafeCell<[u64; 12]>,
}

// SAFETY: `turn` says which of the two threads may touch the words.
unsafe impl Sync for Record {}

const RECORDS: usize = 1024;
const CLOSED: u64 = u64::MAX;

/// Nanoseconds for each record that one thread fills, another reads and gives back, in order, through a ring. Nothing
/// else is done: no dependencies, no lock, no closure, no queue. (The best median of several distances by which one may
/// run ahead would be no smaller: the ring holds far more than is under way.)
pub fn handoff() -> f64 {
    hand_over(&[])
}

/// The same for tasks with dependencies: before a record is handed over, one more is counted at each record that it must
/// follow, if that is not closed. (Which ones is known beforehand, and the other thread takes the records in order, so that
/// it has nobody to tell.)
pub fn handoff_edges(tasks: &[Access]) -> f64 {
    hand_over(&before_each(tasks))
}

/// Which tasks each task must follow: the last writer of what it reads, and of what it writes the readers since, or else the
/// last writer.
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
        before.retain(|&b| i - b < RECORDS / 2);
        before
    };
    tasks.iter().enumerate().map(follow).collect()
}

fn hand_over(before: &[Vec<usize>]) -> f64 {
    let ring: Arc<Vec<Record>> = Arc::new((0..RECORDS).map(|_| Record::default()).collect());
    let once = || {
        for r in ring.iter() {
            r.turn.store(0, Ordering::Relaxed);
        }
        let (other, edges) = (ring.clone(), !before.is_empty());
        let start = Instant::now();
        let consumer = std::thread::spawn(move || {
            let (mut sum, mut counted) = (0u64, 0);
            for i in 0..TASKS {
                let record = &other[i % RECORDS];
                let filled = 2 * (i / RECORDS) as u64 + 1;
                while record.turn.load(Ordering::Acquire) != filled {
                    spin_loop();
                }
                // SAFETY: it is this thread's turn.
                let words = unsafe { &*record.words.get() };
                sum = words.iter().fold(sum, |s, w| s.wrapping_mul(3).wrapping_add(*w));
                if edges {
                    counted += record.waiting.swap(CLOSED, Ordering::AcqRel);
                }
                record.turn.store(filled + 1, Ordering::Release);
            }
            (sum, counted)
        });
        let (mut expected, mut added) = (0u64, 0);
        for i in 0..TASKS {
            let record = &ring[i % RECORDS];
            let free = 2 * (i / RECORDS) as u64;
            while record.turn.load(Ordering::Acquire) != free {
                spin_loop();
            }
            // SAFETY: it is this thread's turn.
            let words = unsafe { &mut *record.words.get() };
            for (k, w) in words.iter_mut().enumerate() {
                *w = black_box((i * 12 + k) as u64);
                expected = expected.wrapping_mul(3).wrapping_add(*w);
            }
            record.waiting.store(0, Ordering::Relaxed);
            for &b in before.get(i).into_iter().flatten() {
                let waiting = &ring[b % RECORDS].waiting;
                let mut now = waiting.load(Ordering::Acquire);
                while now != CLOSED {
                    let (ok, err) = (Ordering::AcqRel, Ordering::Acquire);
                    match waiting.compare_exchange_weak(now, now + 1, ok, err) {
                        Ok(_) => {
                            added += 1;
                            break;
                        }
                        Err(seen) => now = seen,
                    }
                }
            }
            record.turn.store(free + 1, Ordering::Release);
        }
        let (sum, counted) = consumer.join().expect("the reader ends");
        assert_eq!((sum, counted), (expected, added), "a record or an edge was lost or changed");
        start.elapsed().as_nanos() as f64 / TASKS as f64
    };
    once();
    median((0..super::RUNS).map(|_| once()).collect())
}

/// Nanoseconds for each task that a thread orders and runs itself, where others may push as well: a lock around three
/// variables of which each names its last task, a call that catches panics, a task that is closed and counted. Nothing
/// else is done: no check of what is named, no record of the task, no errors, versions or hooks.
pub fn inline() -> f64 {
    let vars = Mutex::new([0u64; 64]);
    let (closed, count) = (AtomicU64::new(0), AtomicU64::new(0));
    let function: fn(usize) = |i| {
        black_box(i);
    };
    let once = || {
        let start = Instant::now();
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
        start.elapsed().as_nanos() as f64 / TASKS as f64
    };
    once();
    median((0..super::RUNS).map(|_| once()).collect())
}

/// Nanoseconds for each push that runs its function before it returns, and does nothing else but count that its variable
/// was written: a function and the lists of its variables are handed to an engine that is not known when the loop is
/// compiled, and run where panics are caught. No look at what is named, nothing said of what runs, no errors, no hooks.
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
    let engine: Box<dyn Runs> = black_box(Box::new(Versions([const { AtomicU64::new(0) }; 64])));
    let function = black_box(
        (|i| {
            black_box(i);
            Ok(())
        }) as fn(usize) -> rsnet::Result<()>,
    );
    let once = || {
        let start = Instant::now();
        for i in 0..TASKS {
            let (reads, writes) = (i * 7 % 62, i * 11 % 63);
            let push = Push::new("task", &vars[reads..reads + 2], &vars[writes..=writes]);
            engine.push(Call(function, i), push).expect("it does not fail");
        }
        start.elapsed().as_nanos() as f64 / TASKS as f64
    };
    once();
    median((0..super::RUNS).map(|_| once()).collect())
}

/// How much two threads do together in the time in which one does 1 alone: 2 where each has a core of its own, hardly more
/// than 1 where they are the two hardware threads of one core. There a task costs what its push and its run cost
/// together, however well they overlap.
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
    median((0..super::RUNS).map(gain).collect())
}
