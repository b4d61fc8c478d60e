//! Data structures of the engines. None knows an engine: each can be read, and most are tested, alone.

pub mod interner;
pub mod parking;
pub mod run_queue;
pub mod task_slab;
pub mod variables;
pub mod virtual_array;
