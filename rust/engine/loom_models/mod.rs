//! Models of the engine's state machines, run by loom over every interleaving and every value that
//! the memory orders allow (`make loom`). They run the shipping code; under `--cfg loom` only sizes
//! differ: two edges a slot, eight slots a chunk, four places in the ring, no spinning.
//!
//! The README of `rust/engine` says what each guards. A weaker order anywhere between a push and a
//! run, or between a completion and a wait, fails here: the payloads are loom's cells, which report
//! every unordered access.

mod edges;
mod engine;
mod parking;

use loom::cell::UnsafeCell;

/// Checks `f` in all interleavings with at most this number of preemptions
/// (`LOOM_MAX_PREEMPTIONS` overrides it).
pub fn check(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    builder.check(f);
}

/// Plain memory that operations read and write.
#[derive(Default)]
pub struct Payload(UnsafeCell<u64>);

// SAFETY: access from two threads that is not ordered is what loom reports.
unsafe impl Sync for Payload {}
// SAFETY: as above.
unsafe impl Send for Payload {}

impl Payload {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        // SAFETY: loom ends the model if another thread has access now.
        self.0.with_mut(|p| unsafe { *p += n });
    }

    /// The sum.
    pub fn get(&self) -> u64 {
        // SAFETY: as in `add`.
        self.0.with(|p| unsafe { *p })
    }
}
