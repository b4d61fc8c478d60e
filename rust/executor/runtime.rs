//! All that a program runs on, as a value.

use super::resource::RandomStreams;
use crate::cuda;
use crate::engine::{self, Engine};
use crate::lock::Held;
use crate::ndarray::Base;
use crate::operator::Registry;
use crate::plugin::Libraries;
use crate::profiler;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// Engine and pool, operators and random numbers. The one that Python uses lives in the binding.
pub struct Runtime {
    base: Arc<Base>,
    pub registry: Arc<Registry>,
    pub random: RandomStreams,
    /// Libraries of compiled operators.
    pub libraries: Libraries,
    /// Runs what may wait for a push of another thread, which may run callbacks.
    pub blocking: Blocking,
}

/// Runs a function without the locks of the calling thread that callbacks need.
pub type Blocking = fn(&mut (dyn FnMut() + Send));

impl Runtime {
    /// A runtime on `engine`, with the operators that `registry` makes for it.
    pub fn with_operators(
        engine: Arc<dyn Engine>,
        blocking: Blocking,
        registry: impl FnOnce(&Weak<Runtime>) -> Registry,
    ) -> Arc<Self> {
        Arc::new_cyclic(|runtime| Runtime {
            blocking,
            base: Arc::new(Base::new(engine)),
            registry: Arc::new(registry(runtime)),
            random: RandomStreams::default(),
            libraries: Libraries::default(),
        })
    }
}

/// All locks of a runtime that a thread without the interpreter may hold, held across a fork:
/// otherwise the child could wait for them for ever.
pub struct HeldForFork<'a> {
    engine: engine::HeldForFork<'a>,
    profiler: profiler::HeldForFork<'a>,
    cuda: cuda::HeldForFork<'a>,
    _rest: [Held<'a>; 4],
}

impl Runtime {
    /// Acquires them. Each is held elsewhere for a short time only.
    pub fn before_fork(&self) -> HeldForFork<'_> {
        let engine = self.engine.before_fork();
        // Loading a library enters operators: its lock comes before the registry's.
        let libraries = self.libraries.hold();
        let _rest = [libraries, self.registry.hold(), self.random.hold(), self.base.pool.hold()];
        let cuda = self.base.cuda.before_fork();
        // The profiler last: a holder of one of the others may be recording something.
        HeldForFork { engine, _rest, cuda, profiler: self.base.profiler.before_fork() }
    }
}

impl HeldForFork<'_> {
    /// In the child, which begins with an engine that has nothing to do and a profiler that is
    /// stopped.
    pub fn release_in_child(self) {
        self.profiler.release_in_child();
        self.cuda.release_in_child();
        self.engine.release_in_child();
    }
}

/// A runtime serves wherever arrays are made.
impl Deref for Runtime {
    type Target = Arc<Base>;

    fn deref(&self) -> &Arc<Base> {
        &self.base
    }
}
