//! Byte offsets in one arena per device.
//!
//! A plan is good when the arena is no larger than the most bytes alive at once, its lower bound.
//! Buffers are placed one after another at the lowest offset that is free over their whole life;
//! what decides is the order. (Greedy by size: Pisarchyk and Lee, arXiv 2001.03288, algorithm 3.)

use super::inplace::Buffer;
use super::repair::{Block, Search};
use crate::context::Context;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Offsets are multiples of this, so that every array is aligned for vector instructions.
pub const ALIGN: usize = 64;

/// Where the buffers lie.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// By buffer; 0 for those in no arena.
    pub offsets: Vec<usize>,
    pub arena_bytes: Vec<(Context, usize)>,
    /// Most bytes alive at once in the arena of each device, summed: no placing of these buffers
    /// takes less.
    pub lower_bound_bytes: usize,
}

impl Placed {
    /// Bytes of all arenas.
    pub fn total(&self) -> usize {
        self.arena_bytes.iter().map(|a| a.1).sum()
    }
}

/// The buffers of every device's arena; those that lie in outputs are in none. Buffers without
/// bytes lie in the arena too, and nowhere in particular: a device that has no others has an arena
/// of no bytes.
fn by_device(buffers: &[Buffer]) -> BTreeMap<Context, Vec<u32>> {
    let mut by_ctx: BTreeMap<Context, Vec<u32>> = BTreeMap::new();
    for (id, b) in buffers.iter().enumerate().filter(|(_, b)| b.output.is_none()) {
        let ids = by_ctx.entry(b.ctx).or_default();
        if b.bytes > 0 {
            ids.push(id as u32);
        }
    }
    by_ctx
}

/// The least that arenas of these buffers can take: as [`Placed::lower_bound_bytes`], of the
/// buffers as they are placed, rounded up in size.
pub fn least_bytes(buffers: &[Buffer]) -> usize {
    let least = |ids: &Vec<u32>| {
        let blocks = ids.iter().map(|&id| block(&buffers[id as usize]));
        most_alive(blocks.map(|b| (b.first, b.last, b.bytes)))
    };
    by_device(buffers).values().map(least).sum()
}

/// Places all buffers of arenas.
pub fn run(buffers: &[Buffer]) -> Placed {
    let by_ctx = by_device(buffers);
    let mut placed = Placed { offsets: vec![0; buffers.len()], ..Placed::default() };
    for (ctx, ids) in by_ctx {
        let own: Vec<Block> = ids.iter().map(|&id| block(&buffers[id as usize])).collect();
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

fn block(b: &Buffer) -> Block {
    Block { first: b.first, last: b.last, bytes: b.bytes.next_multiple_of(ALIGN) }
}

/// The first position at which most bytes of all arenas together are alive.
pub fn peak(buffers: &[Buffer]) -> u32 {
    let in_arena = buffers.iter().filter(|b| b.output.is_none()).map(block);
    alive_most(in_arena.map(|b| (b.first, b.last, b.bytes))).0
}

/// The most bytes alive at one position.
pub fn most_alive(blocks: impl Iterator<Item = (u32, u32, usize)>) -> usize {
    alive_most(blocks).1
}

/// The first position at which most bytes are alive, and how many.
fn alive_most(blocks: impl Iterator<Item = (u32, u32, usize)>) -> (u32, usize) {
    let mut change: Vec<i128> = Vec::new();
    for (first, last, bytes) in blocks {
        let end = last as usize + 1;
        if change.len() <= end {
            change.resize(end + 1, 0);
        }
        change[first as usize] += bytes as i128;
        change[end] -= bytes as i128;
    }
    let (mut now, mut most) = (0i128, (0, 0i128));
    for (at, delta) in change.into_iter().enumerate() {
        now += delta;
        if now > most.1 {
            most = (at as u32, now);
        }
    }
    (most.0, most.1 as usize)
}

/// Offsets and the bytes of the arena: the best of three greedy orders, then repaired by a local
/// search until the lower bound is reached or the search's budget is spent.
pub fn place(blocks: &[Block]) -> (Vec<usize>, usize) {
    let bound = most_alive(blocks.iter().map(|b| (b.first, b.last, b.bytes)));
    let mut placer = Placer::new(blocks);
    let sized = |&i: &u32| blocks[i as usize].bytes > 0;
    let mut order: Vec<u32> = (0..blocks.len() as u32).filter(sized).collect();
    let of = |i: u32| &blocks[i as usize];
    let life = |b: &Block| (b.last - b.first) as u128 + 1;
    let bytes = |b: &Block| b.bytes as u128;
    type Rank = (Reverse<u128>, Reverse<u128>, u32);
    let ranks: [&dyn Fn(&Block) -> Rank; 3] = [
        &|b| (Reverse(bytes(b)), Reverse(life(b)), b.first),
        &|b| (Reverse(bytes(b).saturating_mul(life(b))), Reverse(bytes(b)), b.first),
        &|b| (Reverse(life(b)), Reverse(bytes(b)), b.first),
    ];
    let mut best = (Vec::new(), usize::MAX);
    for rank in ranks {
        order.sort_by_key(|&i| rank(of(i)));
        let total = placer.place(&order);
        if total < best.1 {
            best = (placer.offsets.clone(), total);
        }
        if total <= bound {
            return best;
        }
    }
    Search::new(blocks, best.0, bound).run()
}

/// Places blocks first-fit in a given order.
struct Placer<'a> {
    blocks: &'a [Block],
    offsets: Vec<usize>,
    /// Placed blocks by offset.
    done: Vec<Taken>,
}

/// Bytes taken for a while.
#[derive(Clone, Copy)]
struct Taken {
    start: usize,
    end: usize,
    first: u32,
    last: u32,
}

impl<'a> Placer<'a> {
    fn new(blocks: &'a [Block]) -> Self {
        Placer { blocks, offsets: vec![0; blocks.len()], done: Vec::new() }
    }

    /// Places all blocks in this order; returns the bytes of the arena.
    fn place(&mut self, order: &[u32]) -> usize {
        self.done.clear();
        let mut total = 0;
        for &id in order {
            let b = self.blocks[id as usize];
            let mut at = 0;
            for taken in &self.done {
                // What follows starts no earlier, so nothing more can be in the way.
                if taken.start >= at + b.bytes {
                    break;
                }
                if taken.first <= b.last && b.first <= taken.last {
                    at = at.max(taken.end);
                }
            }
            let end = at + b.bytes;
            self.offsets[id as usize] = at;
            total = total.max(end);
            let slot = self.done.partition_point(|d| d.start <= at);
            self.done.insert(slot, Taken { start: at, end, first: b.first, last: b.last });
        }
        total
    }
}
