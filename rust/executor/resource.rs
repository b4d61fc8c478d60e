//! Resources that operators ask for: random numbers. (Scratch memory is the executing thread's own,
//! see `kernels::scratch`.)

use crate::context::Context;
use crate::lock::{Held, Lock};
use crate::operator::RandomKey;
use std::collections::HashMap;

/// One stream of random numbers a device. Each call that wants numbers reserves a key when it is pushed,
/// so results depend on the order of pushes and never on threads.
#[derive(Default)]
pub struct RandomStreams(Lock<Streams>);

#[derive(Default)]
struct Streams {
    seed: u64,
    devices: HashMap<Context, RandomKey>,
}

impl RandomStreams {
    /// Keeps everybody out until what it gives goes.
    pub fn hold(&self) -> Held<'_> {
        self.0.hold()
    }

    /// The key of the next call on `ctx`.
    pub fn reserve(&self, ctx: Context) -> RandomKey {
        let mut streams = self.0.lock();
        let seed = streams.seed;
        // CPU numbers are logical only, yet programs tell cpu(0) from cpu(1) by their streams.
        let fresh = RandomKey { seed: mix(seed, ctx), stream: 0 };
        let key = streams.devices.entry(ctx).or_insert(fresh);
        let reserved = *key;
        key.stream += 1;
        reserved
    }

    /// Starts every device's stream anew.
    pub fn seed_all(&self, seed: u64) {
        let mut streams = self.0.lock();
        streams.seed = seed;
        streams.devices.clear();
    }

    /// Starts one device's stream anew; unlike [`RandomStreams::seed_all`] the device's number does not
    /// enter, so two devices seeded alike give the same numbers.
    pub fn seed(&self, ctx: Context, seed: u64) {
        self.0
            .lock()
            .devices
            .insert(ctx, RandomKey { seed: mix(seed, Context::default()), stream: 0 });
    }
}

/// Seeds of different devices differ although the user gave one.
fn mix(seed: u64, ctx: Context) -> u64 {
    seed.wrapping_mul(127).wrapping_add(ctx.device_id as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_the_stream_and_devices_differ() {
        let streams = RandomStreams::default();
        let (a, b) = (Context::cpu(0), Context::cpu(1));
        streams.seed_all(7);
        let first = [streams.reserve(a), streams.reserve(a), streams.reserve(b)];
        assert_ne!(first[0], first[1]);
        assert_ne!(first[0], first[2]);
        streams.seed_all(7);
        assert_eq!(first, [streams.reserve(a), streams.reserve(a), streams.reserve(b)]);
        streams.seed(b, 7);
        assert_eq!(streams.reserve(b), first[0]);
    }
}
