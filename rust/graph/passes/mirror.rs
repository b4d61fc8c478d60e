//! The choice of forward nodes to recompute in the backward pass instead of keeping their outputs.

use super::super::static_graph::{Graph, Node};
use crate::operator::OpDef;

/// One flag per forward node.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    pub again: Vec<bool>,
}

/// Returns whether the operator may run twice: operators with random numbers, callbacks or state
/// may not.
pub fn repeatable(op: &OpDef) -> bool {
    op.deterministic && op.state.is_none() && !op.is_callback()
}

/// Returns whether the node may be copied. A node that modifies an input may not, unless a second
/// run leaves the input unchanged (BatchNorm's moving averages).
pub fn may_repeat(node: &Node) -> bool {
    node.op.as_ref().is_some_and(|op| {
        repeatable(op) && (op.rerun_safe || op.mutates.to_vec(&node.attrs).is_empty())
    })
}

impl Mirror {
    pub fn none(graph: &Graph) -> Self {
        Mirror { again: vec![false; graph.nodes.len()] }
    }

    /// Chooses nodes with `force_mirroring` and, given a `step`, all cheap nodes except every
    /// `step`-th. The outputs kept there bound the memory alive while a chain is recomputed.
    pub fn by_attributes(graph: &Graph, step: Option<usize>) -> Self {
        let mut cheap = 0usize;
        let again = graph.nodes.iter().map(|node| {
            if !may_repeat(node) {
                return false;
            }
            if is_forced(node) {
                return true;
            }
            let is_expensive = node.op.as_ref().is_some_and(|op| op.expensive);
            let Some(step) = step.filter(|_| !is_expensive) else { return false };
            cheap += 1;
            !cheap.is_multiple_of(step.max(1))
        });
        Mirror { again: again.collect() }
    }
}

fn is_forced(node: &Node) -> bool {
    ["__force_mirroring__", "force_mirroring"]
        .iter()
        .filter_map(|k| node.dict.get(*k))
        .any(|v| v.eq_ignore_ascii_case("true") || v == "1")
}
