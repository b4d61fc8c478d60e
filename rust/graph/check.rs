//! The graph checker: run after every pass, it refuses a graph that breaks a rule of the data
//! model.

use super::static_graph::{Graph, Node};
use crate::error::{Error, Result};

/// Checks that entries exist, that every node comes after what it needs, and that links make sense.
/// The error shows the nodes around the fault.
pub fn check(graph: &Graph, after: &str) -> Result<()> {
    for (id, node) in graph.nodes.iter().enumerate() {
        if let Some(fault) = fault_of(graph, id, node) {
            return Err(Error::internal(format!(
                "the graph is broken after {after}: {fault}\n{}",
                surroundings(graph, id)
            ))
            .at_node(node.op_name(), &node.name));
        }
    }
    for (i, head) in graph.heads.iter().enumerate() {
        let exists =
            graph.nodes.get(head.node as usize).is_some_and(|n| head.index < n.num_outputs);
        if !exists {
            return Err(Error::internal(format!("after {after} head {i} points to no entry")));
        }
    }
    if graph.num_forward > graph.nodes.len() {
        return Err(Error::internal(format!("after {after} the forward pass is too long")));
    }
    Ok(())
}

fn fault_of(graph: &Graph, id: usize, node: &Node) -> Option<String> {
    let earlier = |n: u32| (n as usize) < id;
    for (i, e) in node.inputs.iter().chain(node.addto.iter().map(|(_, e)| e)).enumerate() {
        if !earlier(e.node) {
            return Some(format!(
                "input {i} comes from node {}, which does not run earlier",
                e.node
            ));
        }
        if e.index >= graph.nodes[e.node as usize].num_outputs {
            return Some(format!("input {i} is output {} of a node without it", e.index));
        }
    }
    if let Some(c) = node.control.iter().find(|&&c| !earlier(c)) {
        return Some(format!("it waits for node {c}, which does not run earlier"));
    }
    if let Some(f) = node.backward_of.filter(|&f| !earlier(f)) {
        return Some(format!("it is the backward node of {f}, which does not run earlier"));
    }
    if node.addto.iter().any(|(o, _)| *o >= node.num_outputs) {
        return Some("it accumulates an output it does not have".into());
    }
    let Some(op) = &node.op else {
        let plain = node.inputs.is_empty() && node.num_outputs == 1;
        return (!plain).then(|| "a variable has inputs or several outputs".into());
    };
    if !op.is_backward && node.num_outputs as usize != op.num_outputs(&node.attrs) {
        let expected = op.num_outputs(&node.attrs);
        return Some(format!("it has {} outputs, expected {expected}", node.num_outputs));
    }
    for i in op.mutates.to_vec(&node.attrs) {
        let entry = node.inputs.get(i)?;
        if !graph.nodes[entry.node as usize].is_variable() && node.mirror_of.is_none() {
            return Some(format!("input {i} is modified, so it must be a variable"));
        }
    }
    None
}

fn surroundings(graph: &Graph, at: usize) -> String {
    let from = at.saturating_sub(2);
    let to = (at + 3).min(graph.nodes.len());
    let line = |id: usize| {
        let node = &graph.nodes[id];
        let inputs: Vec<_> =
            node.inputs.iter().map(|e| format!("{}:{}", e.node, e.index)).collect();
        let mark = if id == at { ">" } else { " " };
        format!("{mark} {id} {} {} ({})", node.op_name(), node.name, inputs.join(", "))
    };
    (from..to).map(line).collect::<Vec<_>>().join("\n")
}
