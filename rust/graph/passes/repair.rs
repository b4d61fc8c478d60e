//! Local search over offsets: takes out a block that sticks out above the lower bound together with
//! some that it conflicts with, and puts them back in another order.
//!
//! (Ruin and recreate.) A repair is kept when what sticks out does not become more. Only blocks
//! near the faulty one are looked at, so a repair costs about a microsecond on inference graphs.

/// How many block visits the search may spend on one arena: a fixed amount of work, not of time, so
/// that plans do not depend on the machine.
const BUDGET: usize = 4_000_000;
/// And once the arena is within a thousandth of the bound.
const POLISH: usize = 400_000;
/// Up to this many conflicts are listed; beyond, they are found by scanning.
const MOST_LISTED: usize = 4_000_000;
/// Most blocks taken out at once.
const MOST_OUT: usize = 10;

/// A buffer as the search sees it: rounded up in size, with the first and last position of its
/// life.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub first: u32,
    pub last: u32,
    pub bytes: usize,
}

pub struct Search<'a> {
    blocks: &'a [Block],
    offsets: Vec<usize>,
    target: usize,
    /// Blocks alive together with each block, unless there are too many to list.
    conflicts: Option<Vec<Vec<u32>>>,
    out: Vec<bool>,
    random: Random,
    visits: usize,
    near: Vec<(usize, usize)>,
}

impl<'a> Search<'a> {
    pub fn new(blocks: &'a [Block], offsets: Vec<usize>, target: usize) -> Self {
        Search {
            blocks,
            offsets,
            target,
            conflicts: list_conflicts(blocks),
            out: vec![false; blocks.len()],
            random: Random(0x9E37_79B9_7F4A_7C15),
            visits: 0,
            near: Vec::new(),
        }
    }

    fn top(&self, id: u32) -> usize {
        self.offsets[id as usize] + self.blocks[id as usize].bytes
    }

    fn excess(&self, id: u32) -> usize {
        self.top(id).saturating_sub(self.target)
    }

    fn total(&self) -> usize {
        (0..self.blocks.len() as u32).map(|id| self.top(id)).max().unwrap_or(0)
    }

    /// Repairs until nothing sticks out or the budget is spent; returns the best state met.
    pub fn run(mut self) -> (Vec<usize>, usize) {
        let mut best = (self.offsets.clone(), self.total());
        let mut faulty: Vec<u32> = Vec::new();
        let mut least = usize::MAX;
        let mut stale = true;
        let near = self.target + self.target / 1000;
        while self.visits < if best.1 <= near { POLISH } else { BUDGET } {
            if stale {
                self.visits += self.blocks.len() / 8;
                faulty.clear();
                faulty.extend((0..self.blocks.len() as u32).filter(|&id| self.excess(id) > 0));
                let excess: usize = faulty.iter().map(|&id| self.excess(id)).sum();
                if excess < least {
                    least = excess;
                    let total = self.total();
                    if total < best.1 {
                        best = (self.offsets.clone(), total);
                    }
                }
                if faulty.is_empty() {
                    break;
                }
            }
            let at = self.random.below(faulty.len());
            stale = self.repair(faulty[at]);
        }
        best
    }

    /// One attempt; `true` if it was kept and changed what sticks out.
    fn repair(&mut self, faulty: u32) -> bool {
        let mut taken = self.choose(faulty);
        let before: usize = taken.iter().map(|&id| self.excess(id)).sum();
        let old: Vec<usize> = taken.iter().map(|&id| self.offsets[id as usize]).collect();
        let ids = taken.clone();
        self.shuffle(&mut taken);
        taken.iter().for_each(|&id| self.out[id as usize] = true);
        let mut after = 0;
        for &id in &taken {
            let high = self.random.below(3) == 0;
            self.offsets[id as usize] = self.fit(id, high);
            self.out[id as usize] = false;
            after += self.excess(id);
        }
        // A small step back now and then leads out of dead ends.
        let kept = after <= before || (after < before + before / 8 && self.random.below(64) == 0);
        if !kept {
            for (&id, offset) in ids.iter().zip(old) {
                self.offsets[id as usize] = offset;
            }
            return false;
        }
        // Which blocks stick out may have changed even if the sum did not.
        after != before || self.excess(faulty) == 0
    }

    /// The faulty block and some of those alive with it.
    fn choose(&mut self, faulty: u32) -> Vec<u32> {
        let mut pool = Vec::new();
        self.for_conflicts(faulty, |id, _| pool.push(id));
        let mut taken = vec![faulty];
        let wanted = 1 + self.random.below(MOST_OUT);
        while taken.len() <= wanted && !pool.is_empty() {
            let at = self.random.below(pool.len());
            let id = pool.swap_remove(at);
            if !taken.contains(&id) {
                taken.push(id);
                if self.random.below(4) == 0 {
                    // A neighbour's neighbours let a shift travel along a chain.
                    let mut more = Vec::new();
                    self.for_conflicts(id, |id, _| more.push(id));
                    pool.extend(more.into_iter().take(64));
                }
            }
        }
        taken
    }

    fn shuffle(&mut self, ids: &mut [u32]) {
        if self.random.below(3) == 0 {
            ids.sort_by_key(|&id| std::cmp::Reverse(self.blocks[id as usize].bytes));
            return;
        }
        for i in (1..ids.len()).rev() {
            ids.swap(i, self.random.below(i + 1));
        }
    }

    /// Calls `f` for the blocks alive together with `id`.
    fn for_conflicts(&mut self, id: u32, mut f: impl FnMut(u32, usize)) {
        match &self.conflicts {
            Some(lists) => {
                let list = &lists[id as usize];
                self.visits += list.len();
                list.iter().for_each(|&o| f(o, self.offsets[o as usize]));
            }
            None => {
                self.visits += self.blocks.len();
                let b = self.blocks[id as usize];
                for (o, block) in self.blocks.iter().enumerate() {
                    if o as u32 != id && block.bytes > 0 && meet(&b, block) {
                        f(o as u32, self.offsets[o]);
                    }
                }
            }
        }
    }

    /// The lowest offset that is free over the block's life; or, if `high`, the highest below the
    /// target.
    fn fit(&mut self, id: u32, high: bool) -> usize {
        let mut near = std::mem::take(&mut self.near);
        near.clear();
        let (out, blocks) = (std::mem::take(&mut self.out), self.blocks);
        self.for_conflicts(id, |o, at| {
            if !out[o as usize] {
                near.push((at, at + blocks[o as usize].bytes));
            }
        });
        self.out = out;
        near.sort_unstable();
        let bytes = blocks[id as usize].bytes;
        let (mut lowest, mut highest, mut end) = (None, None, 0);
        for &(start, stop) in &near {
            if start >= end + bytes {
                lowest.get_or_insert(end);
                if start <= self.target {
                    highest = Some(start - bytes);
                }
            }
            end = end.max(stop);
        }
        if end + bytes <= self.target {
            highest = Some(self.target - bytes);
        }
        self.near = near;
        let lowest = lowest.unwrap_or(end);
        if high { highest.unwrap_or(lowest) } else { lowest }
    }
}

fn meet(a: &Block, b: &Block) -> bool {
    a.first <= b.last && b.first <= a.last
}

/// By block, those alive with it; `None` when that is too many.
fn list_conflicts(blocks: &[Block]) -> Option<Vec<Vec<u32>>> {
    let mut order: Vec<u32> = (0..blocks.len() as u32).collect();
    order.retain(|&id| blocks[id as usize].bytes > 0);
    order.sort_by_key(|&id| blocks[id as usize].first);
    let mut lists = vec![Vec::new(); blocks.len()];
    let mut alive: Vec<u32> = Vec::new();
    let mut count = 0;
    for id in order {
        let b = &blocks[id as usize];
        alive.retain(|&a| blocks[a as usize].last >= b.first);
        count += alive.len();
        if count > MOST_LISTED {
            return None;
        }
        for &a in &alive {
            lists[a as usize].push(id);
            lists[id as usize].push(a);
        }
        alive.push(id);
    }
    Some(lists)
}

/// A small generator with a fixed seed (xorshift64*): the same plan every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let x = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D);
        ((x >> 33) as usize) % n.max(1)
    }
}
