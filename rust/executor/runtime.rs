//! All that a program runs on, as a value.

use super::resource::RandomStreams;
use crate::engine::Engine;
use crate::ndarray::Base;
use crate::operator::Registry;
use crate::storage::Pool;
use std::ops::Deref;
use std::sync::Arc;

/// Engine and pool, operators and random numbers. The one that Python uses lives in the binding.
pub struct Runtime {
    base: Arc<Base>,
    pub registry: Arc<Registry>,
    pub random: RandomStreams,
}

impl Runtime {
    /// A runtime with the built-in operators on `engine`.
    pub fn new(engine: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Runtime {
            base: Arc::new(Base { engine, pool: Pool::new() }),
            registry: Arc::new(crate::ops::builtins()),
            random: RandomStreams::default(),
        })
    }
}

/// A runtime goes wherever arrays are made.
impl Deref for Runtime {
    type Target = Arc<Base>;

    fn deref(&self) -> &Arc<Base> {
        &self.base
    }
}
