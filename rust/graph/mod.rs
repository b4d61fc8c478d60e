//! Symbols and static graphs: composition, JSON, inference, passes and the memory plan.
//!
//! A program composes a [`Symbol`]: heads into a shared, acyclic graph of nodes. [`plan`] flattens
//! it into a [`Graph`] (nodes in execution order, entries by number), runs the passes of [`passes`]
//! in a fixed order and returns a [`Plan`]: everything that the executor needs. Planning allocates
//! no arrays and executes nothing.

mod body;
mod check;
mod flatten;
mod forward_inference;
mod infer;
mod inspect;
mod json;
pub mod passes;
mod plan;
#[cfg(test)]
mod plan_tests;
mod planner;
mod print;
mod reach;
mod report;
mod request;
mod static_graph;
mod symbol;
#[cfg(test)]
mod tests;

pub use body::{InputPlace, Subgraph, bodies};
pub use check::check;
pub use forward_inference::{ArraySpec, arrays_to_bind};
pub use infer::{Inferred, UntypedNode};
pub use json::{Links, Loaded, load_graph, load_json};
pub use plan::plan;
pub use planner::Plan;
pub use print::dump;
pub use reach::Edges;
pub use report::PlannedEntry;
pub use request::{Place, PlanOptions, PlanRequest};
pub use static_graph::{Dict, Entry, Graph, Node, empty_attrs};
pub use symbol::{Create, Cut, HIDDEN_KEYS, SymEntry, SymNode, Symbol, stored_key};
