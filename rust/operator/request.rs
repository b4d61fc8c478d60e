//! Write requests of outputs, and resources that operators request.

use super::param::Attrs;
use crate::error::Result;
use crate::shape::Shape;
use std::sync::Arc;

/// The write request of one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum OpReq {
    /// Do not write: the result has no reader.
    Null = 0,
    /// Overwrite.
    #[default]
    Write = 1,
    /// Overwrite; the output shares its memory with an input.
    Inplace = 2,
    /// Add to the present value.
    Add = 3,
}

impl OpReq {
    /// Every request, in the order of the discriminants.
    pub const ALL: [OpReq; 4] = [OpReq::Null, OpReq::Write, OpReq::Inplace, OpReq::Add];

    /// The name that Python and files use.
    pub const fn name(self) -> &'static str {
        match self {
            OpReq::Null => "null",
            OpReq::Write => "write",
            OpReq::Inplace => "inplace",
            OpReq::Add => "add",
        }
    }

    /// The request of that name.
    pub fn from_name(name: &str) -> Option<OpReq> {
        Self::ALL.into_iter().find(|r| r.name() == name)
    }

    /// Returns true if the old content is replaced.
    pub const fn overwrites(self) -> bool {
        matches!(self, OpReq::Write | OpReq::Inplace)
    }
}

/// A resource that an operator requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceRequest {
    /// Scratch memory for the time of one call: this many bytes, or 0 if the operator does not say.
    TempSpace { bytes: usize },
    /// Random numbers of the device's stream.
    Random,
}

/// The resources of a call on inputs and outputs of these shapes.
pub type ResourcesFn =
    Arc<dyn Fn(&Attrs, &[Shape], &[Shape]) -> Result<Vec<ResourceRequest>> + Send + Sync>;

/// The resources of every call, or a function that lists those of one.
#[derive(Clone)]
pub enum Resources {
    Fixed(&'static [ResourceRequest]),
    By(ResourcesFn),
}

impl Resources {
    pub const fn fixed(resources: &'static [ResourceRequest]) -> Self {
        Resources::Fixed(resources)
    }

    pub fn by(
        f: impl Fn(&Attrs, &[Shape], &[Shape]) -> Result<Vec<ResourceRequest>> + Send + Sync + 'static,
    ) -> Self {
        Resources::By(Arc::new(f))
    }

    /// Returns true if no call asks for any.
    pub fn is_never(&self) -> bool {
        matches!(self, Resources::Fixed([]))
    }

    /// The resources of a call on inputs and outputs of these shapes.
    pub fn of(
        &self,
        attrs: &Attrs,
        inputs: &[Shape],
        outputs: &[Shape],
    ) -> Result<Vec<ResourceRequest>> {
        match self {
            Resources::Fixed(resources) => Ok(resources.to_vec()),
            Resources::By(list) => list(attrs, inputs, outputs),
        }
    }
}

/// The key of one call's random numbers: element `i` of the call is the counter-based generator at
/// counter `(i, stream)` under `seed`. Reserved at the push, so results depend on push order alone.
/// Functions of a device take it as it is (`Key` of `random.cu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RandomKey {
    pub seed: u64,
    pub stream: u64,
}

impl RandomKey {
    /// That of a call which asked for no random numbers; no call that did has it.
    pub const NONE: RandomKey = RandomKey { seed: 0, stream: u64::MAX };

    /// Seed and stream, as kernels take them.
    pub fn words(self) -> [u64; 2] {
        [self.seed, self.stream]
    }
}

impl Default for RandomKey {
    fn default() -> Self {
        RandomKey::NONE
    }
}
