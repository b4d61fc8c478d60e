//! The threaded engine: runs operations on threads as soon as their variables allow.

pub mod backoff;
pub mod bulk;
pub mod core;
pub mod current;
pub mod engine;
pub mod fork;
pub mod pool;
pub mod push_request;
pub mod scheduler;
pub mod stall_report;
pub mod task_builder;
pub mod wait;
pub mod worker;
