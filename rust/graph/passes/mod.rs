//! The passes, one per file. [`plan`](super::plan()) runs them in this order: `merge_common`,
//! inference, `mirror` or `recompute`, `gradient`, inference of backward nodes, `devices`,
//! `accumulate`, `inplace`, `host` (which calls `offsets`), `side_by_side`, `order`, `temp`. The
//! graph is checked after each pass that changes it.

pub mod accumulate;
pub mod devices;
pub mod gradient;
pub mod host;
pub mod inplace;
pub mod merge_common;
pub mod mirror;
pub mod offsets;
pub mod order;
pub mod recompute;
mod repair;
pub mod side_by_side;
pub mod temp;
