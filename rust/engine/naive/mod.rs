//! The naive engine: runs every operation inside its push, for debugging.

pub mod current;
pub mod engine;
pub mod variables;
