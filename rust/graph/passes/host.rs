//! Outputs as hosts: entries that end before an output begins lie in its array, where that saves
//! memory.
//!
//! An output has an array of its own, which is there from the start although the output is written
//! late. Until then it may hold other buffers, one after another from its first byte, and it may be
//! allocated larger than the output for that. Which of them is a choice by size: the largest that
//! fit, none while another is alive. Of an output's possible sizes that of the smallest total is
//! taken, and the plan stays as it was where no size makes it smaller.

use super::super::static_graph::Graph;
use super::inplace::{Buffer, Shared};
use super::offsets::{self, Placed, least_bytes, peak};
use std::collections::BTreeMap;

/// Number of outputs that are tried, those that are written last: each takes several passes over
/// all buffers.
const MOST_HOSTS: usize = 4;

/// Places all buffers, those that outputs can host in the outputs' arrays.
pub fn place(graph: &Graph, shared: &mut Shared) -> Placed {
    let placed = offsets::run(&shared.buffers);
    if !is_one_segment(graph, &shared.buffers) {
        return placed;
    }
    let Some(buffers) = hosted(&shared.buffers) else { return placed };
    let moved = offsets::run(&buffers);
    let total = |placed: &Placed, buffers: &[Buffer]| -> usize {
        placed.total() + chunks(buffers).values().sum::<usize>()
    };
    if total(&moved, &buffers) >= total(&placed, &shared.buffers) {
        return placed;
    }
    shared.buffers = buffers;
    moved
}

/// Bytes of the array of every output that has one, by its position among the heads.
pub fn chunks(buffers: &[Buffer]) -> BTreeMap<u32, usize> {
    let mut chunks = BTreeMap::new();
    for b in buffers {
        if let Some(output) = b.output {
            let bytes = chunks.entry(output).or_insert(0);
            *bytes = b.bytes.max(*bytes);
        }
    }
    chunks
}

/// Does the forward pass run as one operation of the engine? Between two operations, a thread that
/// reads an output would see what the output hosts.
fn is_one_segment(graph: &Graph, buffers: &[Buffer]) -> bool {
    let mut ops = graph.nodes[..graph.num_forward].iter().filter_map(|n| n.op.as_ref());
    buffers.windows(2).all(|pair| pair[0].ctx == pair[1].ctx) && !ops.any(|op| op.is_callback())
}

/// The buffers with hosts; `None` where nothing is gained.
fn hosted(buffers: &[Buffer]) -> Option<Vec<Buffer>> {
    let everything: Vec<Buffer> =
        buffers.iter().map(|b| Buffer { output: None, ..b.clone() }).collect();
    let floor = least_bytes(&everything);
    let total = |buffers: &[Buffer]| least_bytes(buffers) + chunks(buffers).values().sum::<usize>();
    let mut best = (total(buffers), buffers.to_vec());
    let start = best.0;
    let mut hosts: Vec<u32> =
        (0..buffers.len() as u32).filter(|&b| buffers[b as usize].output.is_some()).collect();
    hosts.sort_by_key(|&b| std::cmp::Reverse(buffers[b as usize].first));
    for host in hosts.into_iter().take(MOST_HOSTS) {
        // Every size is tried with no guests yet, those of a smaller one would lie there too.
        let before = best.1.clone();
        for bytes in sizes(&before, host) {
            if best.0 <= floor {
                break;
            }
            let made = with_guests(&before, host, bytes);
            let needs = total(&made);
            if needs < best.0 {
                best = (needs, made);
            }
        }
    }
    (best.0 < start).then_some(best.1)
}

/// The buffers that could lie in the host's array, whatever its size.
fn guests(buffers: &[Buffer], host: u32) -> impl Iterator<Item = u32> + '_ {
    let first = buffers[host as usize].first;
    let may = move |b: &Buffer| b.output.is_none() && b.bytes > 0 && b.last < first;
    (0..buffers.len() as u32).filter(move |&b| may(&buffers[b as usize]))
}

/// The sizes worth trying for the host's array, in ascending order: its own, and those of larger
/// guests that are alive when most bytes are. Any other makes the array larger than what it takes
/// from that moment.
fn sizes(buffers: &[Buffer], host: u32) -> Vec<usize> {
    let own = buffers[host as usize].bytes;
    let at = peak(buffers);
    let alive = guests(buffers, host)
        .map(|b| &buffers[b as usize])
        .filter(|b| b.first <= at && at <= b.last && b.bytes > own)
        .map(|b| b.bytes);
    let mut sizes: Vec<usize> = std::iter::once(own).chain(alive).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The buffers with as many bytes as possible in the host's array of this size.
fn with_guests(buffers: &[Buffer], host: u32, bytes: usize) -> Vec<Buffer> {
    let mut fitting: Vec<u32> =
        guests(buffers, host).filter(|&b| buffers[b as usize].bytes <= bytes).collect();
    fitting.sort_by_key(|&b| std::cmp::Reverse(buffers[b as usize].bytes));
    let mut moved = buffers.to_vec();
    // The lives of those taken: first and last position.
    let mut lives: BTreeMap<u32, u32> = BTreeMap::new();
    for b in fitting {
        let guest = &mut moved[b as usize];
        let before = lives.range(..=guest.last).next_back();
        if before.is_none_or(|(_, &last)| last < guest.first) {
            lives.insert(guest.first, guest.last);
            guest.output = buffers[host as usize].output;
        }
    }
    moved
}
