//! Symbol files: writes the current format, reads every version.
//!
//! A file is byte for byte the one that MXNet would write for the same graph. The reader accepts
//! hostile input: every number is checked, a node may come before its inputs, cycles are errors,
//! and no function recurses with the depth of the graph.

mod backward;
mod build;
mod fused;
mod raw;
mod read;
mod upgrade;
mod write;

pub use read::{Loaded, load_graph, load_json};
pub use write::Links;
