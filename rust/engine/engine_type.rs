//! The kinds of engines, by MXNet's names, and the one that `MXNET_ENGINE_TYPE` asks for.

use super::{Engine, NaiveEngine, ThreadedEngine};
use crate::error::{Error, Result};
use std::sync::Arc;

/// The environment variable that chooses the engine.
pub const VARIABLE: &str = "MXNET_ENGINE_TYPE";

/// A kind of engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineType {
    /// Runs operations on threads as soon as their variables allow.
    Threaded,
    /// Runs every operation inside its push.
    Naive,
}

impl EngineType {
    /// By name. Both of MXNet's threaded engines are the one scheduler here.
    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "ThreadedEngine" | "ThreadedEnginePerDevice" => Ok(EngineType::Threaded),
            "NaiveEngine" => Ok(EngineType::Naive),
            _ => Err(Error::value(format!(
                "Cannot find Engine {name} ({VARIABLE}): expected ThreadedEnginePerDevice, \
                 ThreadedEngine or NaiveEngine"
            ))),
        }
    }

    /// As the environment says; threaded if it says nothing.
    pub fn from_environment() -> Result<Self> {
        match std::env::var(VARIABLE) {
            Ok(name) if !name.is_empty() => Self::from_name(&name),
            _ => Ok(EngineType::Threaded),
        }
    }
}

/// A new engine of this kind. A threaded one has as many compute threads as cores may be used
/// ([`usable_cores`](super::usable_cores)), or fewer if `OMP_NUM_THREADS` says so.
pub fn create(kind: EngineType) -> Arc<dyn Engine> {
    match kind {
        EngineType::Threaded => Arc::new(ThreadedEngine::new()),
        EngineType::Naive => Arc::new(NaiveEngine::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_names_of_mxnet() {
        for name in ["ThreadedEngine", "ThreadedEnginePerDevice"] {
            assert_eq!(EngineType::from_name(name).unwrap(), EngineType::Threaded);
        }
        assert_eq!(EngineType::from_name("NaiveEngine").unwrap(), EngineType::Naive);
        let error = EngineType::from_name("Fast").unwrap_err().to_string();
        assert!(error.contains("Cannot find Engine Fast"), "{error}");
    }
}
