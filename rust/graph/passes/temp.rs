//! Temporary space: a colour for every node that asks for it.
//!
//! Nodes of one colour can never run side by side, so a colour's space is counted once. Colours are paths
//! of the graph: again and again the path with most uncoloured temporary spaces gets the next colour, and
//! when the colours are used up, what is left shares the last.

use super::super::static_graph::Graph;
use crate::operator::ResourceRequest;

/// The number of colours in use, at most `most`.
pub fn run(graph: &Graph, most: usize) -> usize {
    colours(graph, most).into_iter().max().map_or(0, |c| c as usize)
}

/// By node: 0 without temporary space, else its colour, counted from 1.
fn colours(graph: &Graph, most: usize) -> Vec<u32> {
    let mut weight: Vec<u32> = graph.nodes.iter().map(|n| wants_temp(n) as u32).collect();
    let mut colour = vec![0; graph.nodes.len()];
    for c in 1..most.max(1) as u32 {
        let path = heaviest_path(graph, &weight);
        if path.iter().all(|&n| weight[n] == 0) {
            return colour;
        }
        for n in path {
            if weight[n] > 0 {
                (colour[n], weight[n]) = (c, 0);
            }
        }
    }
    for (colour, weight) in colour.iter_mut().zip(weight) {
        if weight > 0 {
            *colour = most.max(1) as u32;
        }
    }
    colour
}

fn wants_temp(node: &super::super::static_graph::Node) -> bool {
    node.op.as_ref().is_some_and(|op| {
        op.resources.with(&node.attrs, |r| r.contains(&ResourceRequest::TempSpace))
    })
}

fn heaviest_path(graph: &Graph, weight: &[u32]) -> Vec<usize> {
    let mut best: Vec<u32> = weight.to_vec();
    let mut from: Vec<Option<usize>> = vec![None; weight.len()];
    for id in 0..graph.nodes.len() {
        let before = graph.nodes[id].predecessors().map(|p| p as usize).max_by_key(|&p| best[p]);
        if let Some(p) = before.filter(|&p| best[p] > 0) {
            best[id] += best[p];
            from[id] = Some(p);
        }
    }
    let mut path = Vec::new();
    let mut next = (0..best.len()).max_by_key(|&n| best[n]);
    while let Some(n) = next {
        path.push(n);
        next = from[n];
    }
    path
}
