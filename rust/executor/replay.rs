//! Launches of a pass that are recorded once and issued again as a whole, by the driver's graphs.
//!
//! What a step launches is the same in every run of its program if it computes on a device by a
//! kernel of CUDA source, keeps no state, draws no random numbers, and its operands are those of
//! the program. Consecutive steps of this kind are a [`Run`]. Its first passes issue every launch
//! by itself, which loads functions and names operator and node in errors; a later one records
//! them, and from then on a pass issues the recording. Temporary space of recorded launches stays
//! theirs.
//!
//! A recording is only as good as the driver: what it refuses to record is issued one by one
//! forever.

use super::on_device::Temporary;
use super::step::Step;
use crate::cuda::{Device, Recording};
use crate::error::Result;
use crate::lock::Lock;
use crate::operator::{OpContext, OpReq};
use crate::storage::Block;
use std::ops::Range;
use std::sync::Arc;

/// Steps of a segment in order: those that can be recorded together, or others.
pub struct Run {
    pub steps: Vec<usize>,
    pub replay: Option<Replay>,
}

/// Fewer launches are not worth a recording.
const LEAST_STEPS: usize = 4;
/// How many passes issue every launch by itself before they are recorded.
const PLAIN_PASSES: u32 = 2;

/// The steps of a segment as runs; `None` if none of them can be recorded.
pub fn runs(steps: &[Step], ranges: &[Range<usize>]) -> Option<Arc<[Run]>> {
    if std::env::var("MXNET_ENABLE_CUDA_GRAPHS").is_ok_and(|value| value.trim() == "0") {
        return None;
    }
    let device = |at: usize| steps[at].replays_on();
    let mut all: Vec<(Option<&Arc<Device>>, Vec<usize>)> = Vec::new();
    for at in ranges.iter().cloned().flatten() {
        let own = device(at);
        match all.last_mut() {
            Some((known, run)) if known.is_some() == own.is_some() => run.push(at),
            _ => all.push((own, vec![at])),
        }
    }
    let made = all.into_iter().map(|(device, steps)| {
        let device = device.filter(|_| steps.len() >= LEAST_STEPS);
        Run { replay: device.map(|device| Replay::new(device.clone())), steps }
    });
    let made: Arc<[Run]> = made.collect();
    made.iter().any(|run| run.replay.is_some()).then_some(made)
}

/// What is known of a run's launches in passes of one kind.
enum Known {
    /// This many passes have issued them.
    Passes(u32),
    /// With the temporary space that the recorded launches use.
    Recorded(Recording, Vec<Block>),
    /// The driver refused.
    Never,
}

/// The recorded launches of a run: of passes in inference, and of those in training.
pub struct Replay {
    device: Arc<Device>,
    known: [Lock<Known>; 2],
}

impl Replay {
    fn new(device: Arc<Device>) -> Self {
        Replay { device, known: [0, 1].map(|_| Lock::new(Known::Passes(0))) }
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Issues the launches of a run as a whole. Returns false if that is not possible (yet): the
    /// caller issues them one by one.
    pub fn issue(
        &self,
        is_train: bool,
        steps: &mut dyn Iterator<Item = (&Step, OpContext)>,
    ) -> Result<bool> {
        let mut known = self.known[usize::from(is_train)].lock();
        match &mut *known {
            Known::Never => return Ok(false),
            Known::Passes(passes) if *passes < PLAIN_PASSES => {
                *passes += 1;
                return Ok(false);
            }
            Known::Passes(_) => *known = self.record(steps)?,
            Known::Recorded(..) => {}
        }
        match &*known {
            Known::Recorded(recording, _) => self.device.replay(recording).map(|()| true),
            _ => Ok(false),
        }
    }

    fn record(&self, steps: &mut dyn Iterator<Item = (&Step, OpContext)>) -> Result<Known> {
        let memory = Temporary::of(&self.device);
        let recording = self.device.record(|driver, stream| {
            for (step, ctx) in steps {
                let asked: &[OpReq] = step.direct.as_deref().unwrap_or_default();
                let state = step.state.as_ref();
                let operands = (&*step.inputs, asked, &*step.outputs);
                step.prepared.record(&ctx, state, operands, (driver, stream), &memory)?;
                // What the next step takes it uses after this one.
                memory.reuse();
            }
            Ok(())
        })?;
        Ok(recording.map_or(Known::Never, |recording| Known::Recorded(recording, memory.blocks())))
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        for known in &mut self.known {
            let known = std::mem::replace(known.get_mut(), Known::Never);
            if let Known::Recorded(recording, blocks) = known {
                self.device.forget(recording);
                // The pool hands them out again after the work that was issued until now.
                drop(blocks);
            }
        }
    }
}
