//! Pooled host memory.

mod pool;

pub use pool::{ALIGN, Block, Pool, Usage};
