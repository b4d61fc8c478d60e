//! The order in which the steps of a pass are cut into segments.
//!
//! Callbacks, native steps that may take long, and large ones of libraries that can run side by
//! side are alone in their segments. A segment waits for everything that any of its steps waits
//! for. So that none of them waits for one whose result it does not need, the other steps stay
//! together only if the same ones lead to them. Of these, the steps that lead to none are apart:
//! they run meanwhile.

use super::concurrent;
use super::step::Step;
use crate::engine::Var;
use crate::graph::{Edges, Plan};
use crate::operator::Alone;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Steps with the group of each; only neighbours of one group may share a segment.
pub struct Ordered {
    pub steps: Vec<usize>,
    pub groups: Vec<u32>,
}

impl Ordered {
    /// Returns the steps of `pass` in an order that data, memory and arrays from outside allow.
    /// If none is alone, that is the given one, in one group.
    pub fn of(plan: &Plan, steps: &[Step], pass: Range<usize>) -> Ordered {
        let alone: Vec<Alone> = steps[pass.clone()].iter().map(Step::alone).collect();
        let (begin, count) = (pass.start, pass.len());
        let as_given = || Ordered { steps: pass.clone().collect(), groups: vec![0; count] };
        if alone.iter().all(|&alone| alone == Alone::Never) {
            return as_given();
        }
        let edges = Edges::new(count, &pairs(plan, &steps[pass.clone()]));
        let is_alone = choose(&edges, &alone);
        if !is_alone.contains(&true) {
            return as_given();
        }
        let keys = keys(&edges, &is_alone);
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&s| (keys[s], s));
        let mut groups: Vec<u32> = Vec::with_capacity(count);
        for (at, &s) in order.iter().enumerate() {
            let last = groups.last().copied().unwrap_or(0);
            let is_new = at > 0 && keys[order[at - 1]] != keys[s];
            groups.push(last + is_new as u32);
        }
        Ordered { steps: order.into_iter().map(|s| begin + s).collect(), groups }
    }
}

/// Which steps are alone: of those that are so beside others, the ones that can run beside one.
fn choose(edges: &Edges, alone: &[Alone]) -> Vec<bool> {
    let may_be: Vec<bool> = alone.iter().map(|&alone| alone != Alone::Never).collect();
    let mut chosen: Vec<bool> = alone.iter().map(|&alone| alone == Alone::Always).collect();
    let before = |s: usize| edges.before(s).iter().map(|&b| b as usize);
    concurrent::mark(0..alone.len(), &may_be, before, &mut chosen);
    chosen
}

/// (before, after): steps, by their place in the pass, of which one has to run before the other.
fn pairs(plan: &Plan, steps: &[Step]) -> Vec<(u32, u32)> {
    let mut place: Vec<Option<u32>> = vec![None; plan.graph.nodes.len()];
    for (step, at) in steps.iter().zip(0..) {
        place[step.node as usize] = Some(at);
    }
    let of_step = |step: &Step| {
        let node = step.node;
        plan.graph.nodes[node as usize].predecessors().map(move |before| (before, node))
    };
    let data = steps.iter().flat_map(of_step);
    let edges = data.chain(plan.order_edges.iter().copied());
    let mut pairs: Vec<(u32, u32)> =
        edges.filter_map(|(a, b)| place[a as usize].zip(place[b as usize])).collect();
    outside(steps, &mut pairs);
    pairs
}

/// Adds the order of steps that use one array from outside: the engine keeps that in which they are
/// pushed.
fn outside(steps: &[Step], pairs: &mut Vec<(u32, u32)>) {
    // By variable: the last writer, and the readers since.
    let mut users: FxHashMap<Var, (Option<u32>, Vec<u32>)> = FxHashMap::default();
    for (step, at) in steps.iter().zip(0..) {
        for array in &step.reads {
            let (writer, readers) = users.entry(array.var()).or_default();
            pairs.extend(writer.filter(|&w| w != at).map(|w| (w, at)));
            readers.push(at);
        }
        for (array, _) in &step.writes {
            let (writer, readers) = users.entry(array.var()).or_default();
            let before = writer.iter().copied().chain(readers.drain(..));
            pairs.extend(before.filter(|&b| b != at).map(|b| (b, at)));
            *writer = Some(at);
        }
    }
}

/// The sort key of each step, by the *alone* steps among its ancestors: their number; 0 if an alone
/// step depends on it, 2 if it is alone itself, else 1; an id of their set, which for an alone step
/// includes itself.
///
/// Sorting by it is a topological order: an ancestor never has more alone ancestors than its
/// descendant, and has fewer if it is alone itself; at equal numbers the second component decides.
fn keys(edges: &Edges, is_alone: &[bool]) -> Vec<(u32, u8, u32)> {
    let count = is_alone.len();
    let alone: Vec<usize> = (0..count).filter(|&s| is_alone[s]).collect();
    let (mut number, mut set) = (vec![0u32; count], vec![0u32; count]);
    edges.by_blocks(&alone, |_, leads| {
        let mut known: FxHashMap<(u32, u64), u32> = FxHashMap::default();
        for s in 0..count {
            number[s] += leads[s].count_ones();
            let next = known.len() as u32;
            set[s] = *known.entry((set[s], leads[s])).or_insert(next);
        }
    });
    let mut leads_on = is_alone.to_vec();
    for s in (0..count).rev() {
        if leads_on[s] {
            edges.before(s).iter().for_each(|&b| leads_on[b as usize] = true);
        }
    }
    let kind = |s: usize| match (is_alone[s], leads_on[s]) {
        (true, _) => 2,
        (false, leads_on) => !leads_on as u8,
    };
    (0..count).map(|s| (number[s] - is_alone[s] as u32, kind(s), set[s])).collect()
}
