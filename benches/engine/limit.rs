//! What the machine lets any engine reach: one that hands tasks to another core, and one that runs them itself; and
//! what the other core is worth.

use super::{TASKS, median};
use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// As much as a small task takes: two cache lines, with one word that says whose turn it is.
#[repr(align(128))]
#[derive(Default)]
struct Record {
    turn: AtomicU64,
    words: UnsafeCell<[u64; 12]>,
}

// SAFETY: `turn` says which of the two threads may touch the words.
unsafe impl Sync for Record {}

const RECORDS: usize = 1024;

/// Nanoseconds for each record that one thread fills, another reads and gives back, in order, through a ring. Nothing
/// else is done: no dependencies, no lock, no closure, no queue. (The best median of several distances by which one may
/// run ahead would be no smaller: the ring holds far more than is under way.)
pub fn handoff() -> f64 {
    let ring: Arc<Vec<Record>> = Arc::new((0..RECORDS).map(|_| Record::default()).collect());
    let once = || {
        for r in ring.iter() {
            r.turn.store(0, Ordering::Relaxed);
        }
        let other = ring.clone();
        let start = Instant::now();
        let consumer = std::thread::spawn(move || {
            let mut sum = 0u64;
            for i in 0..TASKS {
                let record = &other[i % RECORDS];
                let filled = 2 * (i / RECORDS) as u64 + 1;
                while record.turn.load(Ordering::Acquire) != filled {
                    spin_loop();
                }
                // SAFETY: it is this thread's turn.
                let words = unsafe { &*record.words.get() };
                sum = words.iter().fold(sum, |s, w| s.wrapping_mul(3).wrapping_add(*w));
                record.turn.store(filled + 1, Ordering::Release);
            }
            sum
        });
        let mut expected = 0u64;
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
            record.turn.store(free + 1, Ordering::Release);
        }
        let sum = consumer.join().expect("the reader ends");
        assert_eq!(sum, expected, "a record was lost or changed");
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
