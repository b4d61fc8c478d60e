//! Runtimes with the built-in operators: those of `ops`, and those that hold graphs and run them.

use super::control_flow;
use super::runtime::{Blocking, Runtime};
use crate::engine::Engine;
use std::sync::Arc;

impl Runtime {
    /// A runtime with the built-in operators on `engine`, where callbacks need no lock.
    pub fn new(engine: Arc<dyn Engine>) -> Arc<Self> {
        Self::with_blocking(engine, |f| f())
    }

    /// A runtime with the built-in operators on `engine`.
    pub fn with_blocking(engine: Arc<dyn Engine>, blocking: Blocking) -> Arc<Self> {
        Self::with_operators(engine, blocking, |runtime| {
            let registry = crate::ops::builtins();
            for def in control_flow::definitions(runtime) {
                registry.add(def).expect("operators have different names");
            }
            registry.end_of_builtins();
            registry
        })
    }
}
