//! Memory: pooled blocks of host memory, and later of devices.

mod pool;

pub use pool::{ALIGN, Block, Pool, Usage};
