//! Byte offsets in one arena per device.
//!
//! A plan is good when the arena is no larger than the most bytes alive at once, its lower bound. Buffers
//! are placed one after another at the lowest offset that is free over their whole life; what decides is
//! the order. (Greedy by size: Pisarchyk and Lee, arXiv 2001.03288, algorithm 3.)

use super::inplace::Buffer;
use crate::context::Context;
use std::collections::BTreeMap;

/// Offsets are multiples of this, so that every array is aligned for vector instructions.
pub const ALIGN: usize = 64;

/// Where the buffers lie.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// By buffer.
    pub offsets: Vec<usize>,
    pub arena_bytes: Vec<(Context, usize)>,
    /// Most bytes alive at once, all devices together.
    pub lower_bound_bytes: usize,
}

/// Places all buffers.
pub fn run(buffers: &[Buffer]) -> Placed {
    let mut by_ctx: BTreeMap<Context, Vec<u32>> = BTreeMap::new();
    for (id, b) in buffers.iter().enumerate() {
        by_ctx.entry(b.ctx).or_default().push(id as u32);
    }
    let mut placed = Placed { offsets: vec![0; buffers.len()], ..Placed::default() };
    for (ctx, ids) in by_ctx {
        let own: Vec<Block> = ids.iter().map(|&id| Block::of(&buffers[id as usize])).collect();
        let (offsets, total) = place(&own);
        for (&id, offset) in ids.iter().zip(offsets) {
            placed.offsets[id as usize] = offset;
        }
        placed.arena_bytes.push((ctx, total));
        placed.lower_bound_bytes += most_alive(
            ids.iter().map(|&id| &buffers[id as usize]).map(|b| (b.first, b.last, b.bytes)),
        );
    }
    placed
}

/// A buffer as the search sees it: rounded up in size.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub first: u32,
    pub last: u32,
    pub bytes: usize,
}

impl Block {
    fn of(b: &Buffer) -> Self {
        Block { first: b.first, last: b.last, bytes: b.bytes.next_multiple_of(ALIGN) }
    }
}

/// The most bytes alive at one position.
pub fn most_alive(blocks: impl Iterator<Item = (u32, u32, usize)>) -> usize {
    let mut change: BTreeMap<u32, i128> = BTreeMap::new();
    for (first, last, bytes) in blocks {
        *change.entry(first).or_default() += bytes as i128;
        *change.entry(last + 1).or_default() -= bytes as i128;
    }
    let (mut now, mut most) = (0i128, 0i128);
    for (_, delta) in change {
        now += delta;
        most = most.max(now);
    }
    most as usize
}

fn place(blocks: &[Block]) -> (Vec<usize>, usize) {
    let mut order: Vec<u32> = (0..blocks.len() as u32).collect();
    order.sort_by_key(|&i| {
        let b = &blocks[i as usize];
        (std::cmp::Reverse(b.bytes), b.first)
    });
    let mut offsets = vec![0; blocks.len()];
    let mut done: Vec<u32> = Vec::new(); // placed blocks, by offset
    let mut total = 0;
    for id in order {
        let b = &blocks[id as usize];
        if b.bytes == 0 {
            continue;
        }
        let mut at = 0;
        for &other in &done {
            let o = &blocks[other as usize];
            if o.first > b.last || o.last < b.first {
                continue;
            }
            let start = offsets[other as usize];
            if start >= at + b.bytes {
                break;
            }
            at = at.max(start + o.bytes);
        }
        offsets[id as usize] = at;
        total = total.max(at + b.bytes);
        let slot = done.partition_point(|&d| offsets[d as usize] <= at);
        done.insert(slot, id);
    }
    (offsets, total)
}
