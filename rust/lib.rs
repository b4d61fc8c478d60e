//! rsnet: tensor programs on a threaded dependency engine.
//!
//! Rooms and the direction of their imports: `py → executor → {graph → operator, ndarray → {engine,
//! cuda → storage → profiler}, {ops, plugin} → kernels} → vocabulary`. `ARCHITECTURE.md` walks
//! through them.

pub mod blocking_pool;
pub mod context;
pub mod cuda;
pub mod dtype;
pub mod engine;
pub mod error;
pub mod executor;
pub mod fork_join;
pub mod graph;
pub mod half_precision;
pub mod huge_pages;
pub mod image;
pub mod kernels;
pub mod lock;
pub mod ndarray;
pub mod operator;
pub mod ops;
pub mod plugin;
pub mod profiler;
#[cfg(feature = "python")]
mod py;
pub mod shape;
pub mod storage;
pub mod tensor;

pub use context::{Context, DeviceType};
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use shape::Shape;
