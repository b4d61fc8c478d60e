//! When an idle worker leaves the pushers alone for a moment.
//!
//! A worker that polls right behind a fast pusher takes from it, at every push, the cache lines of
//! the ring's tail and of the last tasks. So a worker that has run all it saw backs off before it
//! takes [fewer tasks than a batch](crate::engine::data::run_queue::Consumer::backed_off), unless
//! its tasks are long or a thread waits. A backoff ends by itself, and nobody sleeps in it.

use crate::engine::data::waiters::WaitHint;
use std::time::{Duration, Instant};

/// The length of a backoff (`indep` with one worker: 0.5 us 117 ns a task, 1 us 101, 2 us 89;
/// without backoffs 190 to 480).
const BACKOFF: Duration = Duration::from_micros(if cfg!(loom) { 0 } else { 2 });
/// Backoffs that are skipped after a thread has begun to wait (`push_wait`: 370 ns a task; if each
/// wait cuts one backoff short, 500).
const SKIPS: u32 = 16;

/// The backoffs of one worker.
pub struct Backoff {
    /// When the last one began.
    last: Instant,
    /// The tasks that the worker had completed then.
    completed: u64,
    /// The backoffs to be skipped before the hint that a thread waits is taken to be outdated.
    skips: u32,
}

impl Backoff {
    /// For a worker that has completed this many tasks.
    pub fn new(completed: u64) -> Self {
        Backoff { last: Instant::now(), completed, skips: SKIPS }
    }

    /// Backs off, unless a thread waits or the worker has completed less than one task per
    /// [`BACKOFF`] since the last time. Ends early if one begins to wait, or if `is_urgent`.
    #[inline]
    pub fn wait(&mut self, completed: u64, hint: &WaitHint, is_urgent: impl Fn() -> bool) {
        if self.skips(hint) || !self.is_due(Instant::now(), completed) {
            return;
        }
        // The clock comes first: if it is asked last, the pusher takes longer, although its code is
        // the same (`indep` with one worker: 30 ns a task and 43; why was not found out).
        while self.last.elapsed() < BACKOFF {
            if hint.is_set() || is_urgent() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Returns true if this backoff is skipped because a thread waits; clears a hint that is
    /// outdated.
    fn skips(&mut self, hint: &WaitHint) -> bool {
        if !hint.is_set() {
            self.skips = SKIPS;
            return false;
        }
        self.skips -= 1;
        if self.skips == 0 {
            hint.clear();
            self.skips = SKIPS;
        }
        true
    }

    fn is_due(&mut self, now: Instant, completed: u64) -> bool {
        let elapsed = now - std::mem::replace(&mut self.last, now);
        // In a forked child the count begins again; then any answer will do.
        let tasks = completed.wrapping_sub(std::mem::replace(&mut self.completed, completed));
        // One more, for the backoff itself.
        elapsed <= BACKOFF * u32::try_from(tasks).unwrap_or(u32::MAX).saturating_add(1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn is_due_after_short_tasks() {
        let mut backoff = Backoff::new(0);
        let begun = backoff.last;
        let mut is_due =
            |us, completed| backoff.is_due(begun + Duration::from_micros(us), completed);
        assert!(is_due(5, 10), "ten tasks in five microseconds");
        assert!(!is_due(55, 13), "three in fifty");
        assert!(is_due(56, 13), "none in one, of which the backoff took all");
        is_due(60, 0);
    }

    #[test]
    fn a_waiter_cuts_some_backoffs_and_is_then_forgotten() {
        let (hint, mut backoff) = (WaitHint::default(), Backoff::new(0));
        assert!(!backoff.skips(&hint));
        for _ in 0..2 {
            hint.set();
            hint.set();
            assert!((0..SKIPS).all(|_| backoff.skips(&hint)));
            assert!(!backoff.skips(&hint));
        }
    }
}
