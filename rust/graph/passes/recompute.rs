//! Chooses the nodes to recompute so that a plan fits a memory limit.
//!
//! The forward pass is cut into segments. Entries that cross a cut are kept; the rest of a segment
//! is recomputed right before its backward work (Chen et al., arXiv 1604.06174), so no node runs
//! more than twice. Where to cut is found by dynamic programming: for a bound on (kept so far + one
//! segment's activations), the cuts that keep least. Several bounds are tried and each result is
//! measured on the real graph. Finally, bisection finds how much of the end of the forward pass can
//! be kept within the limit.
//!
//! The search starts from the nodes that attributes and switches mark for recomputation. They stay
//! marked unless the limit can only be met without them: recomputing everything saves nothing.

use super::super::planner::{Forward, Plan, Planner};
use super::super::static_graph::Graph;
use super::mirror::{Mirror, may_repeat};
use crate::error::{Error, ErrorKind, Result};

/// Most places where the forward pass may be cut.
const MOST_CUTS: usize = 400;
/// The bounds that are tried, as multiples of the least feasible one.
const TRIED: [f64; 9] = [1.0, 1.04, 1.1, 1.2, 1.35, 1.6, 2.0, 2.6, 3.5];

/// The share of the limit held back (one part in this number) while the end of the forward pass is
/// kept, because offsets may exceed the bound a little. Each is tried if the one before was too
/// small.
const SPARED: [usize; 3] = [1000, 200, 50];

/// A plan of at most `limit` bytes, or an error that names the least found. `unlimited` is
/// the plan that computes only `base` again.
pub(in super::super) fn within(
    planner: &Planner<'_>,
    base: &Mirror,
    unlimited: Plan,
    limit: usize,
) -> Result<Plan> {
    let nothing = Mirror::none(&planner.forward.graph);
    let mut least = unlimited;
    let mut starts = vec![base];
    if base.again.contains(&true) {
        starts.push(&nothing);
    }
    for start in starts {
        let Some(plan) = search(planner, start, limit)? else { continue };
        if plan.total_arena_bytes() < least.total_arena_bytes() {
            least = plan;
        }
        if least.total_arena_bytes() <= limit {
            return Ok(least);
        }
    }
    Err(too_small(limit, &least))
}

/// The plan that computes `base` again and as little more as the limit needs; where it cannot be
/// met, the smallest plan that was found. `None` where nothing can be cut.
fn search(planner: &Planner<'_>, base: &Mirror, limit: usize) -> Result<Option<Plan>> {
    let search = Cuts::new(planner, base)?;
    let mut best: Option<(usize, Vec<usize>)> = None;
    let least = search.least_feasible();
    for factor in TRIED {
        let Some(cuts) = search.cuts_within((least as f64 * factor) as usize) else { continue };
        let peak = planner.peak(&search.mirror(&cuts, usize::MAX))?;
        if best.as_ref().is_none_or(|b| peak < b.0) {
            best = Some((peak, cuts));
        }
    }
    let Some((peak, cuts)) = best else { return Ok(None) };
    for room in SPARED.map(|share| limit - limit / share) {
        if peak > room {
            break;
        }
        let plan = planner.finish(&search.latest_end(planner, &cuts, room)?)?;
        if plan.total_arena_bytes() <= limit {
            return Ok(Some(plan));
        }
    }
    planner.finish(&search.mirror(&cuts, usize::MAX)).map(Some)
}

fn too_small(limit: usize, least: &Plan) -> Error {
    Error::new(
        ErrorKind::Memory,
        format!(
            "memory_limit of {limit} bytes cannot be met: the least found, with every forward \
             node run at most twice, is {} bytes",
            least.total_arena_bytes()
        ),
    )
}

/// The forward pass as the search for cuts sees it.
struct Cuts<'a> {
    graph: &'a Graph,
    /// Nodes that are recomputed wherever the cuts lie.
    base: &'a Mirror,
    /// Positions after which a cut may lie, ascending.
    places: Vec<usize>,
    /// Bytes that backward work reads, produced up to each place.
    kept: Vec<usize>,
    /// `crossing[p][q]`: bytes produced after place `q - 1` (0: the start) that cross place `p`.
    crossing: Vec<Vec<usize>>,
    /// By node: the last forward position that reads one of its outputs.
    last_reader: Vec<usize>,
    total_kept: usize,
    is_head: Vec<bool>,
}

impl<'a> Cuts<'a> {
    fn new(planner: &Planner<'a>, base: &'a Mirror) -> Result<Self> {
        let Forward { graph, .. } = planner.forward;
        let bytes = entry_bytes(planner.forward);
        let n = graph.nodes.len();
        let backward = planner.differentiate(base)?;
        let mut needed = vec![false; graph.num_entries()];
        for node in &backward.graph.nodes[n..] {
            for e in node.inputs.iter().filter(|e| (e.node as usize) < n) {
                needed[graph.entry_id(*e)] = true;
            }
        }
        let mut is_head = vec![false; n];
        graph.heads.iter().for_each(|h| is_head[h.node as usize] = true);
        let mut last_read = vec![0; graph.num_entries()];
        for (id, node) in graph.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|e| last_read[graph.entry_id(*e)] = id);
        }
        let internal = |id: usize| !graph.nodes[id].is_variable() && !is_head[id];
        let mut kept_by_node = vec![0usize; n];
        let mut last_reader = vec![0; n];
        let mut change = vec![0i128; n + 1];
        for id in (0..n).filter(|&id| internal(id)) {
            for e in graph.entries_of(id) {
                kept_by_node[id] += if needed[e] { bytes[e] } else { 0 };
                last_reader[id] = last_reader[id].max(last_read[e]);
                if last_read[e] > id {
                    change[id] += bytes[e] as i128;
                    change[last_read[e]] -= bytes[e] as i128;
                }
            }
        }
        let places = choose_places(&kept_by_node, &change);
        let kept = running(&kept_by_node, &places);
        let mut cuts = Cuts {
            graph,
            base,
            kept,
            crossing: Vec::new(),
            last_reader,
            total_kept: kept_by_node.iter().sum(),
            is_head,
            places,
        };
        cuts.crossing = cuts.measure_crossings(&bytes, &last_read);
        Ok(cuts)
    }

    /// For every place, what crosses it, by the place after which it was produced.
    fn measure_crossings(&self, bytes: &[usize], last_read: &[usize]) -> Vec<Vec<usize>> {
        let m = self.places.len();
        let mut crossing: Vec<Vec<usize>> = (0..m).map(|p| vec![0; p + 2]).collect();
        for (id, node) in self.graph.nodes.iter().enumerate() {
            if node.is_variable() || self.is_head[id] {
                continue;
            }
            let made_after = self.places.partition_point(|&p| p < id);
            for e in self.graph.entries_of(id) {
                let end = self.places.partition_point(|&p| p < last_read[e]);
                for row in crossing.iter_mut().take(end).skip(made_after) {
                    row[made_after] += bytes[e];
                }
            }
        }
        for row in &mut crossing {
            for q in (0..row.len() - 1).rev() {
                row[q] += row[q + 1];
            }
        }
        crossing
    }

    /// Bytes that backward work reads, produced after place `q - 1` up to place `p`.
    fn segment(&self, q: usize, p: usize) -> usize {
        self.kept[p] - if q == 0 { 0 } else { self.kept[q - 1] }
    }

    /// The cuts that keep least while no segment, with the entries kept before it, exceeds `bound`.
    fn cuts_within(&self, bound: usize) -> Option<Vec<usize>> {
        let m = self.places.len();
        // State 0 is the start, state p + 1 a cut at place p.
        let mut least = vec![usize::MAX; m + 1];
        let mut from = vec![0; m + 1];
        least[0] = 0;
        for p in 0..m {
            for q in (0..=p).rev() {
                let segment = self.segment(q, p);
                if segment > bound {
                    break;
                }
                if least[q] == usize::MAX || least[q] + segment > bound {
                    continue;
                }
                let keeps = least[q] + self.crossing[p][q];
                if keeps < least[p + 1] {
                    (least[p + 1], from[p + 1]) = (keeps, q);
                }
            }
        }
        let ends = |q: usize| {
            let before = if q == 0 { 0 } else { self.kept[q - 1] };
            least[q] != usize::MAX && least[q] + (self.total_kept - before) <= bound
        };
        let mut at = (0..=m).filter(|&q| ends(q)).min_by_key(|&q| least[q])?;
        let mut cuts = Vec::new();
        while at > 0 {
            cuts.push(self.places[at - 1]);
            at = from[at];
        }
        cuts.reverse();
        Some(cuts)
    }

    fn least_feasible(&self) -> usize {
        let (mut low, mut high) = (0, self.total_kept);
        while high - low > (high / 256).max(1) {
            let middle = low + (high - low) / 2;
            match self.cuts_within(middle) {
                Some(_) => high = middle,
                None => low = middle,
            }
        }
        high
    }

    /// Which nodes to compute again: those of `base`, and those before the last cut and before
    /// position `end` whose outputs do not cross the next cut.
    fn mirror(&self, cuts: &[usize], end: usize) -> Mirror {
        let mut mirror = self.base.clone();
        for id in 0..self.graph.nodes.len().min(end) {
            let next = cuts.partition_point(|&c| c < id);
            let Some(&cut) = cuts.get(next) else { break };
            mirror.again[id] |= self.last_reader[id] <= cut
                && !self.is_head[id]
                && may_repeat(&self.graph.nodes[id]);
        }
        mirror
    }

    /// Keeps as much as possible of the end of the forward pass while the bound is at most `room`:
    /// the smallest position up to which nodes must be computed again.
    fn latest_end(&self, planner: &Planner<'_>, cuts: &[usize], room: usize) -> Result<Mirror> {
        let (mut low, mut high) = (0, cuts.last().map_or(0, |c| c + 1));
        while high - low > 1 + high / 64 {
            let middle = low + (high - low) / 2;
            match planner.peak(&self.mirror(cuts, middle))? <= room {
                true => high = middle,
                false => low = middle,
            }
        }
        Ok(self.mirror(cuts, high))
    }
}

fn entry_bytes(forward: &Forward) -> Vec<usize> {
    let size = |(s, t): (&crate::Shape, &crate::DType)| s.size().saturating_mul(t.size());
    forward.shapes.iter().zip(&forward.types).map(size).collect()
}

/// Where little crosses: the forward pass is divided into stretches of equal kept bytes, and in
/// each the position with the least crossing is taken.
fn choose_places(kept: &[usize], change: &[i128]) -> Vec<usize> {
    let total: usize = kept.iter().sum();
    let stretch = (total / MOST_CUTS).max(1);
    let mut places = Vec::new();
    let (mut crossing, mut sum, mut best): (i128, usize, Option<(i128, usize)>) = (0, 0, None);
    for id in 0..kept.len() {
        crossing += change[id];
        if kept[id] > 0 && best.is_none_or(|b| crossing <= b.0) {
            best = Some((crossing, id));
        }
        sum += kept[id];
        if sum >= stretch {
            places.extend(best.take().map(|b| b.1));
            sum = 0;
        }
    }
    places
}

/// Sums of `values` up to and including each place.
fn running(values: &[usize], places: &[usize]) -> Vec<usize> {
    let mut sums = Vec::with_capacity(places.len());
    let (mut sum, mut next) = (0, 0);
    for &place in places {
        while next <= place {
            sum += values[next];
            next += 1;
        }
        sums.push(sum);
    }
    sums
}
