//! Memory: pooled blocks of host memory, and later of devices.

pub mod pool;

pub use pool::{ALIGN, Block, Pool, Usage};
