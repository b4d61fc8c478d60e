//! Symbol files: writing the current format, reading that of every version.
//!
//! The layout is that of MXNet's writer, so a file written here is byte for byte what MXNet would write
//! for the same graph. Reading is made for hostile input: every number is checked, a node may stand
//! before its inputs, cycles are errors, and nothing recurses with the depth of the graph.

mod backward;
mod build;
mod read;
mod upgrade;
mod write;

pub use read::{Loaded, load_graph, load_json};
pub use write::Links;
