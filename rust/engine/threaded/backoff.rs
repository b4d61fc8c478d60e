//! When a worker leaves the pushers alone for a moment.
//!
//! A worker that is as fast as they are polls right behind them, and takes from them the line of the ring's end and those
//! of the last tasks. So one that has run what it saw rests before it takes few tasks more ([`ENOUGH`]): shortly where
//! somebody has just begun to wait or tasks are long, else for [`REST`]. A rest is a matter of manners: it ends by itself,
//! nobody sleeps in it, and no model needs to know of it.

use crate::engine::threaded::core::Core;
use crate::fork_join::Crew;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A worker that has not rested takes tasks from the ring if there are so many.
pub const ENOUGH: u64 = if cfg!(loom) { 2 } else { 32 };
/// How long a rest is.
const REST: Duration = Duration::from_micros(if cfg!(loom) { 0 } else { 1 });
/// How many pauses it has at least.
const LEAST_REST: u32 = if cfg!(loom) { 0 } else { 6 };
/// How many rests are kept short when somebody has begun to wait.
const HASTY: u32 = 16;

/// Set by those who begin to wait. (Cleared only now and then, so that neither side pays for the other's look.)
#[derive(Default)]
pub struct Haste(AtomicBool);

impl Haste {
    /// Somebody waits.
    #[inline]
    pub fn ask(&self) {
        if !self.is_asked() {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[inline]
    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// One worker's rests.
pub struct Rest {
    /// When it last asked for one with nobody waiting, and what it had completed until then.
    since: (Instant, u64),
    /// How many it keeps short before it takes the haste for over.
    short: u32,
}

impl Rest {
    /// Of a worker that has completed so many tasks.
    pub fn new(completed: u64) -> Self {
        Rest { since: (Instant::now(), completed), short: HASTY }
    }

    /// Is a whole rest due? Not in haste, and not if less than one task a microsecond was completed since the last.
    fn is_due(&mut self, now: impl FnOnce() -> Instant, completed: u64, haste: &Haste) -> bool {
        if haste.is_asked() {
            self.short -= 1;
            if self.short == 0 {
                haste.clear();
                self.short = HASTY;
            }
            return false;
        }
        self.short = HASTY;
        let now = now();
        let (before, until_then) = std::mem::replace(&mut self.since, (now, completed));
        // (One more, for the rest itself.)
        let ran = completed.wrapping_sub(until_then).saturating_add(1);
        now - before <= REST * u32::try_from(ran).unwrap_or(u32::MAX)
    }
}

impl Core {
    /// Rests. Ends early for all that is not the ring: what completions have made ready, kernels, those who begin to wait.
    pub fn rest(&self, rest: &mut Rest, completed: u64, crew: &Crew, stop: &AtomicBool) {
        for _ in 0..LEAST_REST {
            std::hint::spin_loop();
        }
        if !rest.is_due(Instant::now, completed, &self.haste.0) {
            return;
        }
        let (begun, _) = rest.since;
        let is_disturbed = || {
            self.haste.0.is_asked()
                || self.queues.has_made_ready()
                || crew.has_work()
                || stop.load(Ordering::Relaxed)
        };
        while !is_disturbed() && begun.elapsed() < REST {
            std::hint::spin_loop();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_due_after_short_tasks() {
        let haste = Haste::default();
        let mut rest = Rest::new(0);
        let begun = rest.since.0;
        let mut is_due =
            |us, completed| rest.is_due(|| begun + Duration::from_micros(us), completed, &haste);
        assert!(is_due(5, 10), "ten in five microseconds");
        assert!(!is_due(55, 13), "three in fifty");
        assert!(is_due(56, 13), "right after one that was not taken");
        is_due(60, 0); // a counter that began anew, as in a forked child: any answer will do
    }

    #[test]
    fn haste_keeps_some_rests_short_and_is_then_over() {
        let (haste, mut rest) = (Haste::default(), Rest::new(0));
        let begun = rest.since.0;
        let mut is_due = || rest.is_due(|| begun, 0, &haste);
        assert!(is_due());
        for _ in 0..2 {
            haste.ask();
            haste.ask();
            assert!((0..HASTY).all(|_| !is_due()));
            assert!(is_due());
        }
    }
}
