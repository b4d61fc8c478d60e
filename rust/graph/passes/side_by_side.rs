//! Memory that lets callbacks run side by side.
//!
//! Operators outside of the core may block, so those that do not need each other's results should
//! not wait for each other's memory either. A callback's *level* is the greatest number of
//! callbacks on a path to it: none of one level needs another of it. What a node of a level uses
//! therefore keeps its bytes until the last callback of that level and those below. Whatever takes
//! the bytes over is later than these, so none of them needs it.
//!
//! (An operator that computes in place still waits for other readers of its input.)

use super::super::static_graph::Graph;
use super::inplace::{Buffer, Shared};

/// The buffers with longer lives; `None` if no two callbacks are of one level.
pub fn stretched(graph: &Graph, shared: &Shared) -> Option<Vec<Buffer>> {
    let levels = levels(graph);
    let until = ends(graph, &levels)?;
    let mut buffers = shared.buffers.clone();
    for (id, node) in graph.nodes.iter().enumerate() {
        let read = node.inputs.iter().map(|e| graph.entry_id(*e));
        for e in read.chain(graph.entries_of(id)) {
            if let Some(buffer) = buffers.get_mut(shared.buffer_of[e] as usize) {
                buffer.last = buffer.last.max(until[levels[id]]);
            }
        }
    }
    Some(buffers)
}

fn is_callback(graph: &Graph, id: usize) -> bool {
    graph.nodes[id].op.as_ref().is_some_and(|op| op.is_callback())
}

/// By node: the most callbacks on a path to it, with itself.
fn levels(graph: &Graph) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(graph.nodes.len());
    for (id, node) in graph.nodes.iter().enumerate() {
        let before = node.predecessors().map(|p| levels[p as usize]).max().unwrap_or(0);
        levels.push(before + is_callback(graph, id) as usize);
    }
    levels
}

/// By level: the position of the last callback of that level or a lower one that has others of its
/// level. `None` if there is none.
fn ends(graph: &Graph, levels: &[usize]) -> Option<Vec<u32>> {
    let highest = levels.iter().max().copied().unwrap_or(0);
    let (mut count, mut until) = (vec![0; highest + 1], vec![0; highest + 1]);
    for (id, &level) in levels.iter().enumerate().filter(|(id, _)| is_callback(graph, *id)) {
        count[level] += 1;
        if count[level] > 1 {
            until[level] = id as u32;
        }
    }
    for level in 1..until.len() {
        until[level] = until[level].max(until[level - 1]);
    }
    count.iter().any(|&count| count > 1).then_some(until)
}
