//! The kinds of engines under MXNet's names; `MXNET_ENGINE_TYPE` selects one.

use super::{Engine, NaiveEngine, ThreadedEngine};
use crate::error::{Error, Result};
use std::sync::Arc;

/// The environment variable that selects the engine.
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
    /// The kind with this name. Both of MXNet's threaded engines map to the one scheduler.
    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "ThreadedEngine" | "ThreadedEnginePerDevice" => Ok(EngineType::Threaded),
            "NaiveEngine" => Ok(EngineType::Naive),
            _ => {
                let expected = "one of: ThreadedEnginePerDevice, ThreadedEngine, NaiveEngine";
                Err(Error::invalid(VARIABLE, name, expected))
            }
        }
    }

    /// The kind that the environment selects; threaded if it is unset or empty.
    pub fn from_environment() -> Result<Self> {
        match std::env::var(VARIABLE) {
            Ok(name) if !name.is_empty() => Self::from_name(&name),
            _ => Ok(EngineType::Threaded),
        }
    }
}

/// Creates an engine of this kind. A threaded one has one compute thread per usable core
/// ([`usable_cores`](super::usable_cores)), or fewer if `OMP_NUM_THREADS` is smaller.
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
    fn accepts_mxnets_names() {
        for name in ["ThreadedEngine", "ThreadedEnginePerDevice"] {
            assert_eq!(EngineType::from_name(name).unwrap(), EngineType::Threaded);
        }
        assert_eq!(EngineType::from_name("NaiveEngine").unwrap(), EngineType::Naive);
        let error = EngineType::from_name("Fast").unwrap_err().to_string();
        assert!(error.contains("invalid MXNET_ENGINE_TYPE 'Fast'"), "{error}");
    }
}
