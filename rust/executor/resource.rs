//! Resources that operators request: random numbers. Scratch memory belongs to the executing
//! thread, see `kernels::scratch`.

use crate::context::Context;
use crate::lock::{Held, Lock};
use crate::operator::RandomKey;
use std::collections::HashMap;

/// One stream of random numbers per device. Each call that draws numbers reserves a key when it is
/// pushed, so results depend on the order of pushes and never on threads.
#[derive(Default)]
pub struct RandomStreams(Lock<Streams>);

#[derive(Default)]
struct Streams {
    seed: u64,
    devices: HashMap<Context, RandomKey>,
}

impl RandomStreams {
    /// Holds the lock until the returned guard is dropped.
    pub fn hold(&self) -> Held<'_> {
        self.0.hold()
    }

    /// The key of the next call on `ctx`.
    pub fn reserve(&self, ctx: Context) -> RandomKey {
        let mut streams = self.0.lock();
        let seed = streams.seed;
        // CPU numbers are logical only, yet cpu(0) and cpu(1) have streams of their own.
        let fresh = RandomKey { seed: mix(seed, ctx), stream: 0 };
        let key = streams.devices.entry(ctx).or_insert(fresh);
        let reserved = *key;
        key.stream += 1;
        reserved
    }

    /// Restarts every device's stream.
    pub fn seed_all(&self, seed: u64) {
        let mut streams = self.0.lock();
        streams.seed = seed;
        streams.devices.clear();
    }

    /// Restarts one device's stream. Unlike with [`RandomStreams::seed_all`] the device's number
    /// does not enter, so two devices with the same seed draw the same numbers.
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
