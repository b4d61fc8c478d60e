//! Common subexpressions: equal deterministic nodes over equal inputs become one.
//!
//! Nodes whose outputs are heads stay apart, so that no two outputs are the same array.

use super::super::static_graph::{Entry, Graph};
use super::mirror::repeatable;
use crate::error::Result;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

pub fn run(mut graph: Graph) -> Result<Graph> {
    let is_head: FxHashSet<u32> = graph.heads.iter().map(|h| h.node).collect();
    let mut same_as: Vec<u32> = (0..graph.nodes.len() as u32).collect();
    let mut seen: FxHashMap<(usize, Vec<Entry>), Vec<u32>> = FxHashMap::default();
    let mut merged = false;
    for id in 0..graph.nodes.len() {
        for i in 0..graph.nodes[id].inputs.len() {
            let e = &mut graph.nodes[id].inputs[i];
            e.node = same_as[e.node as usize];
        }
        let node = &graph.nodes[id];
        let Some(op) = &node.op else { continue };
        let candidate = repeatable(op)
            && op.mutates.is_never()
            && node.control.is_empty()
            && !is_head.contains(&(id as u32));
        if !candidate {
            continue;
        }
        let twins = seen.entry((Arc::as_ptr(op) as usize, node.inputs.clone())).or_default();
        match twins.iter().find(|&&t| graph.nodes[t as usize].dict == node.dict) {
            Some(&twin) => {
                same_as[id] = twin;
                merged = true;
            }
            None => twins.push(id as u32),
        }
    }
    if !merged {
        return Ok(graph);
    }
    let kept: Vec<u32> = (0..same_as.len() as u32).filter(|&n| same_as[n as usize] == n).collect();
    let count = kept.len();
    Ok(graph.reorder(&kept, count)?.0)
}
