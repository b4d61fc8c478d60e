//! Edges between nodes that use the same bytes at different times.
//!
//! Data orders most of them already; three cases are left. A node that writes in place over memory
//! that others read must run after those readers. A node that reads memory which an identity shares
//! must run after the identity. And the first writer of a buffer must run after every user of the
//! buffers that lay in the same bytes before.

use super::super::static_graph::Graph;
use super::inplace::{NONE, Shared};
use std::collections::BTreeMap;

/// (before, after) pairs, sorted by `after`, without duplicates and without those that data implies
/// directly.
pub fn run(graph: &Graph, shared: &Shared, offsets: &[usize]) -> Vec<(u32, u32)> {
    // By buffer: its last writer and the readers since. Earlier users run before that writer.
    let mut users: Vec<Vec<u32>> = vec![Vec::new(); shared.buffers.len()];
    // By arena or output's array: the buffer that last took the bytes from this offset up to the
    // end given.
    type Memory = (crate::Context, Option<u32>);
    let mut layers: BTreeMap<Memory, BTreeMap<usize, (usize, u32)>> = BTreeMap::new();
    let mut last_writer: Vec<u32> = vec![0; shared.buffers.len()];
    let mut edges = Vec::new();
    let mut before: Vec<u32> = Vec::new();
    for (id, node) in graph.nodes.iter().enumerate() {
        before.clear();
        for e in graph.entries_of(id) {
            let b = shared.buffer_of[e];
            if b == NONE {
                continue;
            }
            let buffer = &shared.buffers[b as usize];
            if shared.inplace_of[e].is_some() {
                before.extend(&users[b as usize]);
            } else if buffer.bytes > 0 {
                let start = offsets[b as usize];
                let layer = layers.entry((buffer.ctx, buffer.output)).or_default();
                for old in take_over(layer, start, start + buffer.bytes, b) {
                    before.extend(&users[old as usize]);
                }
            }
        }
        for e in &node.inputs {
            let writer = last_writer.get(shared.buffer_of[graph.entry_id(*e)] as usize);
            before.extend(writer.filter(|&&w| w != e.node));
        }
        before.sort_unstable();
        before.dedup();
        let implied = |n: u32| node.predecessors().any(|p| p == n);
        edges.extend(before.iter().filter(|&&n| !implied(n)).map(|&n| (n, id as u32)));
        for e in graph.entries_of(id) {
            let b = shared.buffer_of[e] as usize;
            if let Some(writer) = last_writer.get_mut(b) {
                *writer = id as u32;
                users[b].clear();
            }
        }
        let read = node.inputs.iter().map(|e| graph.entry_id(*e));
        for e in read.chain(graph.entries_of(id)) {
            if let Some(users) = users.get_mut(shared.buffer_of[e] as usize)
                && users.last() != Some(&(id as u32))
            {
                users.push(id as u32);
            }
        }
    }
    edges
}

/// Records that `buffer` takes the bytes from `start` to `end`; returns the buffers it takes them
/// from. These keep the bytes outside the range.
fn take_over(
    layer: &mut BTreeMap<usize, (usize, u32)>,
    start: usize,
    end: usize,
    buffer: u32,
) -> Vec<u32> {
    let mut old: Vec<(usize, usize, u32)> = Vec::new();
    let left = layer.range(..start).next_back().map(|(&s, &(e, b))| (s, e, b));
    old.extend(left.filter(|l| l.1 > start));
    old.extend(layer.range(start..end).map(|(&s, &(e, b))| (s, e, b)));
    for &(s, e, b) in &old {
        layer.remove(&s);
        if s < start {
            layer.insert(s, (start, b));
        }
        if e > end {
            layer.insert(end, (e, b));
        }
    }
    layer.insert(start, (end, buffer));
    old.into_iter().map(|o| o.2).collect()
}
