//! In-place sums of gradients: `sum = elemwise_add(x, y)` becomes "`y` is added onto `x`".
//!
//! Applies to the chains of additions that the gradient pass makes for entries with very many
//! gradients. The node of the later term adds its output onto the earlier term, in the same memory,
//! and the addition is dropped.

use super::super::static_graph::Entry;
use super::gradient::Differentiated;
use crate::error::Result;

pub fn run(done: &mut Differentiated) -> Result<()> {
    let mut uses = vec![0u32; done.graph.num_entries()];
    for node in &done.graph.nodes {
        node.inputs.iter().for_each(|e| uses[done.graph.entry_id(*e)] += 1);
    }
    for e in done.graph.heads.iter().chain(done.arg_grads.iter().flatten()) {
        uses[done.graph.entry_id(*e)] += 1;
    }
    let mut same_as: Vec<Entry> = Vec::new();
    let mut replaced = vec![false; done.graph.nodes.len()];
    let mut any = false;
    for id in 0..done.graph.nodes.len() {
        same_as.push(Entry::new(id as u32, 0));
        for i in 0..done.graph.nodes[id].inputs.len() {
            let e = done.graph.nodes[id].inputs[i];
            if replaced[e.node as usize] {
                done.graph.nodes[id].inputs[i] = same_as[e.node as usize];
            }
        }
        let node = &done.graph.nodes[id];
        if !node.sums_gradients {
            continue;
        }
        let (mut x, mut y) = (node.inputs[0], node.inputs[1]);
        if x.node > y.node {
            (x, y) = (y, x);
        }
        let single = |e: Entry| {
            let node = &done.graph.nodes[e.node as usize];
            uses[done.graph.entry_id(e)] == 1
                && !node.is_variable()
                && e.node as usize >= done.graph.num_forward
        };
        let ctx = |e: Entry| done.graph.nodes[e.node as usize].ctx;
        let free = ctx(x) == ctx(y)
            && !done.graph.nodes[y.node as usize].addto.iter().any(|a| a.0 == y.index);
        if x.node == y.node || !single(x) || !single(y) || !free {
            continue;
        }
        done.graph.nodes[y.node as usize].addto.push((y.index, x));
        // The sum is used as often as the addition's result was.
        uses[done.graph.entry_id(y)] = uses[done.graph.entry_id(Entry::new(id as u32, 0))];
        same_as[id] = y;
        replaced[id] = true;
        any = true;
    }
    if !any {
        return Ok(());
    }
    for e in done.arg_grads.iter_mut().flatten() {
        if replaced[e.node as usize] {
            *e = same_as[e.node as usize];
        }
    }
    let kept: Vec<u32> = (0..replaced.len() as u32).filter(|&n| !replaced[n as usize]).collect();
    done.keep(&kept)
}
