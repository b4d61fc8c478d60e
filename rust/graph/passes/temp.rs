//! Temporary space: a colour for every node that asks for it.
//!
//! Nodes of one colour can never run side by side, so a colour's space is counted once. Colours are
//! paths of the graph: repeatedly, the path with the most uncoloured temporary spaces gets the next
//! colour. Once the colours are used up, all remaining nodes share the last one.

use super::super::static_graph::{Graph, Node};
use super::gradient::Differentiated;
use crate::error::{AtNode, Result};
use crate::operator::ResourceRequest;

/// The temporary space of a plan.
pub struct TempSpace {
    /// The number of colours in use.
    pub colours: usize,
    /// The most bytes that a node of each colour asks for, summed.
    pub bytes: usize,
}

/// Colours the nodes that ask for temporary space with at most `most` colours.
pub fn run(done: &Differentiated, most: usize) -> Result<TempSpace> {
    let wanted = requested(done)?;
    let colours = colours(&done.graph, &wanted, most);
    let mut bytes = vec![0; colours.iter().max().map_or(0, |&c| c as usize)];
    for (&colour, wanted) in colours.iter().zip(wanted) {
        if let Some(wanted) = wanted {
            let largest = &mut bytes[colour as usize - 1];
            *largest = wanted.max(*largest);
        }
    }
    let colours = bytes.len();
    Ok(TempSpace { colours, bytes: bytes.into_iter().fold(0, usize::saturating_add) })
}

/// By node: the bytes of temporary space that it asks for, 0 if it does not say how many.
fn requested(done: &Differentiated) -> Result<Vec<Option<usize>>> {
    let graph = &done.graph;
    let of = |(id, node): (usize, &Node)| {
        let Some(op) = &node.op else { return Ok(None) };
        if op.resources.is_never() {
            return Ok(None);
        }
        let inputs: Vec<_> =
            node.inputs.iter().map(|e| done.shapes[graph.entry_id(*e)].clone()).collect();
        let outputs = &done.shapes[graph.entries_of(id)];
        let resources = op.resources.of(&node.attrs, &inputs, outputs);
        let requests = resources.at_node(&op.name, &node.name)?;
        Ok(requests.iter().find_map(|request| match request {
            ResourceRequest::TempSpace { bytes } => Some(*bytes),
            ResourceRequest::Random => None,
        }))
    };
    graph.nodes.iter().enumerate().map(of).collect()
}

/// By node: 0 without temporary space, else its colour, counted from 1.
fn colours(graph: &Graph, wanted: &[Option<usize>], most: usize) -> Vec<u32> {
    let mut weight: Vec<u32> = wanted.iter().map(|w| w.is_some() as u32).collect();
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
