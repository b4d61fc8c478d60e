//! Pooled memory: of the host, and of whatever else is a [`Source`].

mod pool;

pub use pool::{ALIGN, Block, Pool, Source, Usage};
