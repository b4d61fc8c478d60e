//! The naive engine: runs every operation inside its push, for debugging.

mod current;
mod engine;
mod variables;

pub use engine::NaiveEngine;
