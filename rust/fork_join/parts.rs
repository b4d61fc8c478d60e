//! The parts of a job, in ranges of neighbours.
//!
//! A core keeps what it has read in its caches, and on many machines a cache of the last level
//! serves some of the cores only. So the parts of a job are divided into ranges of neighbours, and
//! a thread starts with the range of its core: kernels that pass over the same memory, one after
//! the other, find it where they left it. A thread whose range is used up takes parts from the ends
//! of others. Two passes over 32 MiB on two cores of a Zen 4 take 0.6 of the time of parts given
//! out in one order.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Ranges that the parts of a job are divided into, at most.
const RANGES: usize = if cfg!(loom) { 2 } else { 16 };

/// The parts of a job that no thread has taken, in ranges of neighbours.
pub struct Parts {
    /// First and end, in the upper and the lower half.
    ranges: [Range; RANGES],
    /// Ranges in use.
    count: usize,
    /// The parts that the job had at first.
    pub total: u64,
    /// The ranges that a thread has started with, one bit each.
    homes: AtomicU32,
}

/// Threads take from different ranges without sharing a line of the cache.
#[repr(align(64))]
struct Range(AtomicU64);

impl Parts {
    /// `parts`, fewer than 2^32, for a team of `size`.
    pub fn new(parts: usize, size: usize) -> Self {
        let count = size.min(parts).clamp(1, RANGES);
        let bound = |i: usize| (parts as u64 * i as u64) / count as u64;
        let range = |i| if i < count { bound(i) << 32 | bound(i + 1) } else { 0 };
        let ranges = std::array::from_fn(|i| Range(AtomicU64::new(range(i))));
        Parts { ranges, count, total: parts as u64, homes: AtomicU32::new(0) }
    }

    /// The range that a thread on `core` starts with: its core's, or else one that is free.
    pub fn home(&self, core: Option<usize>) -> usize {
        let wanted = core.unwrap_or(0) % self.count;
        (0..self.count)
            .map(|i| (wanted + i) % self.count)
            .find(|i| self.homes.fetch_or(1 << i, Ordering::Relaxed) & (1 << i) == 0)
            .unwrap_or(wanted)
    }

    /// Takes a part: the next one of `home`, or the last one of another range.
    pub fn take(&self, home: usize) -> Option<usize> {
        self.take_from(home, true).or_else(|| {
            (1..self.count).find_map(|i| self.take_from((home + i) % self.count, false))
        })
    }

    fn take_from(&self, range: usize, next: bool) -> Option<usize> {
        let range = &self.ranges[range].0;
        let mut state = range.load(Ordering::Relaxed);
        loop {
            let (first, end) = (state >> 32, state & u64::from(u32::MAX));
            if first >= end {
                return None;
            }
            let (part, rest) = if next { (first, state + (1 << 32)) } else { (end - 1, state - 1) };
            let order = Ordering::Relaxed;
            match range.compare_exchange_weak(state, rest, order, order) {
                Ok(_) => return Some(part as usize),
                Err(now) => state = now,
            }
        }
    }

    /// Takes all parts that are left, without running them.
    pub fn skip_the_rest(&self) {
        self.ranges.iter().for_each(|range| range.0.store(0, Ordering::Relaxed));
    }

    /// The parts that no thread has taken.
    pub fn left(&self) -> u64 {
        let left = |state: u64| (state & u64::from(u32::MAX)).saturating_sub(state >> 32);
        self.ranges[..self.count].iter().map(|r| left(r.0.load(Ordering::Relaxed))).sum()
    }

    /// Returns true if every part has been taken or skipped.
    pub fn are_taken(&self) -> bool {
        self.left() == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Parts;

    #[test]
    fn ranges_hold_each_part_once() {
        for (parts, size) in [(1, 1), (1, 3), (7, 3), (40, 7), (33, 100)] {
            let of = Parts::new(parts, size);
            let homes: Vec<usize> = [Some(2), Some(2), None].map(|core| of.home(core)).into();
            if of.count > 3 {
                assert_eq!(homes, [2, 3, 0]);
            }
            let mut taken: Vec<usize> =
                (0..).map_while(|turn| of.take(homes[turn % homes.len()])).collect();
            assert!(of.are_taken());
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..parts));
        }
    }

    #[test]
    fn a_thread_keeps_to_the_range_of_its_core() {
        let parts = Parts::new(10, 2);
        let taken = |home, n| (0..n).filter_map(|_| parts.take(home)).collect::<Vec<_>>();
        assert_eq!(taken(parts.home(Some(5)), 3), [5, 6, 7]);
        assert_eq!(taken(parts.home(Some(4)), 7), [0, 1, 2, 3, 4, 9, 8]);
        assert_eq!(parts.take(1), None);
    }
}
