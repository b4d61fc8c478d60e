//! Memory that lets callbacks, and kernels that may take long, run side by side.
//!
//! Nodes that are alone (`Alone`) may block, or keep a thread for long, so one that does not need
//! another's result should not wait for its memory either. A node that takes over the bytes of
//! another has to wait for it, and for the alone nodes that lead to it. What a node uses keeps its
//! bytes until every later alone node of the pass needs those anyway.

use super::super::reach::Edges;
use super::super::static_graph::Graph;
use crate::operator::Alone;
use crate::shape::Shape;

/// How many later alone nodes of a pass a node stays apart from: all that could be running with
/// it, or, where that takes too much memory, the next few.
pub const WINDOWS: [u8; 4] = [64, 8, 2, 1];

/// The alone nodes of a graph.
pub struct AloneNodes {
    edges: Edges,
    /// By pass.
    nodes: [Vec<usize>; 2],
}

impl AloneNodes {
    /// `None` if no pass has two. `shapes` are those of the graph's entries.
    pub fn of(graph: &Graph, shapes: &[Shape]) -> Option<AloneNodes> {
        let nodes = [0..graph.num_forward, graph.num_forward..graph.nodes.len()]
            .map(|pass| pass.filter(|&id| is_alone(graph, shapes, id)).collect::<Vec<_>>());
        if nodes.iter().all(|nodes| nodes.len() < 2) {
            return None;
        }
        let pairs: Vec<(u32, u32)> = (graph.nodes.iter().zip(0..))
            .flat_map(|(node, id)| node.predecessors().map(move |before| (before, id)))
            .collect();
        Some(AloneNodes { edges: Edges::new(graph.nodes.len(), &pairs), nodes })
    }

    /// Keeps each apart from the next `window` ones that need not wait for it. `None` if none can
    /// run beside another.
    pub fn apart(&self, window: u8) -> Option<Apart> {
        let edges = &self.edges;
        let mut until = vec![0; edges.count()];
        for alone in self.nodes.iter().filter(|nodes| nodes.len() > 1) {
            find(edges, alone, window, &mut until);
        }
        if until.iter().all(|&position| position == 0) {
            return None;
        }
        for id in 0..until.len() {
            let before = edges.before(id).iter().map(|&b| until[b as usize]);
            until[id] = before.fold(until[id], u32::max);
        }
        Some(Apart { until })
    }
}

/// By node: the position of the last alone node that would wait in vain if it took over memory of
/// the node; 0 where none would.
#[derive(PartialEq)]
pub struct Apart {
    until: Vec<u32>,
}

impl Apart {
    pub fn until(&self, id: usize) -> u32 {
        self.until[id]
    }
}

fn is_alone(graph: &Graph, shapes: &[Shape], id: usize) -> bool {
    let node = &graph.nodes[id];
    let Some(op) = &node.op else { return false };
    let inputs = node.inputs.iter().map(|&entry| graph.entry_id(entry));
    let sizes = inputs.chain(graph.entries_of(id)).map(|e| shapes[e].size());
    op.alone(node.ctx, || sizes.fold(0, usize::saturating_add)) != Alone::Never
}

/// Sets `until` of each alone node of one pass to the last of the next `window` alone nodes that do
/// not depend on it.
fn find(edges: &Edges, alone: &[usize], window: u8, until: &mut [u32]) {
    edges.by_blocks(alone, |block, leads| {
        let mut left = [window; u64::BITS as usize];
        let mut open = u64::MAX >> (u64::BITS as usize - block.len());
        let first = alone.partition_point(|&id| id <= block[0]);
        for &later in &alone[first..] {
            let earlier = block.partition_point(|&id| id < later) as u32;
            let mut missed =
                open & !leads[later] & 1u64.checked_shl(earlier).map_or(u64::MAX, |b| b - 1);
            while missed != 0 {
                let at = missed.trailing_zeros() as usize;
                until[block[at]] = later as u32;
                left[at] -= 1;
                open &= !(u64::from(left[at] == 0) << at);
                missed &= missed - 1;
            }
            if open == 0 {
                break;
            }
        }
    });
}
