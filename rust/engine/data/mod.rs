//! Data structures of the engines. None depends on an engine: each can be read alone.

pub mod cache_padded;
pub mod inline_slot;
pub mod interner;
pub mod parking;
pub mod run_queue;
pub mod slot;
pub mod slot_allocator;
pub mod task_ref;
pub mod task_slab;
pub mod variables;
pub mod virtual_array;
pub mod waiters;
