//! The threaded engine: runs operations on threads as soon as their variables allow.

mod backoff;
mod bulk;
mod completion;
mod core;
mod current;
mod engine;
mod fork;
mod inline;
mod lifecycle;
mod pool;
mod scheduler;
mod stall_report;
mod task_builder;
mod wait;
mod worker;

pub use bulk::{BulkScope, bulk};
pub use engine::ThreadedEngine;
pub use pool::usable_cores;
