//! Memory: pooled blocks of host memory, and later of devices.

mod pool;

pub use pool::{Block, Pool, Usage};
