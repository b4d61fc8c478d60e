//! Cutting a program into segments, and their dependencies.
//!
//! A pass that is one segment writes the variables of its arenas. Where a program has several
//! segments, each has a variable of its own: it writes that and reads those of the segments whose
//! data it reads or whose bytes it takes over (the plan's order edges). The start of a pass writes
//! the arenas' variables and every segment reads them, so that the next pass, or another executor
//! on the same arena, waits. Arrays bound from outside are ordered by their own variables.

use super::arena::Memory;
use super::chain::{self, Part};
use super::concurrent;
use super::order_steps::Ordered;
use super::replay::{self, Run};
use super::step::Step;
use crate::context::Context;
use crate::engine::{Engine, MAX_VARIABLES, Var};
use crate::graph::Plan;
use crate::operator::Alone;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// A segment with no more work than this runs on the thread that pushes it: a pass of 24 products
/// of 4 by 4 and a wait take 11 to 21 us, one of 25, which a worker runs, 32 to 44; a product of 32
/// by 32 takes 3 to 5 us, one of 45 by 45 31 to 36.
const SHORT_STEPS: usize = 24;
const SHORT_BYTES: usize = 16 << 10;

/// A segment of several steps uses no more arrays from outside; what an operation can name beyond
/// these is left to arenas and other segments.
const MOST_ARRAYS: usize = MAX_VARIABLES / 2;

/// Steps that are one engine operation.
#[derive(Clone)]
pub struct Segment {
    /// In ascending order; one range unless the pass has steps that are alone.
    pub steps: Arc<[Range<usize>]>,
    /// The same outside of training and in it, as chains and what is between them.
    pub parts: [Arc<[Part]>; 2],
    pub device: Context,
    pub reads: Vec<Var>,
    /// Overwritten ones first.
    pub writes: Vec<Var>,
    pub overwrites: usize,
    /// Its steps as runs of which some are recorded, on a device.
    pub runs: Option<Arc<[Run]>>,
    pub callback: bool,
    /// Another callback of the pass could run at the same time.
    pub has_peers: bool,
    /// Short enough to run on the thread that pushes it.
    pub is_short: bool,
    pub name: String,
}

/// How an instance's programs are cut, and a variable for every segment. They outlive a program
/// that is laid out again between forward and backward.
pub struct SegmentVars {
    engine: Arc<dyn Engine>,
    vars: Vec<Var>,
    pub segmentation: Segmentation,
}

impl SegmentVars {
    pub fn new(engine: &Arc<dyn Engine>, segmentation: Segmentation) -> Arc<SegmentVars> {
        let count = segmentation.segments.len().max(1);
        let vars = (0..count).map(|_| engine.new_variable()).collect();
        Arc::new(SegmentVars { engine: engine.clone(), vars, segmentation })
    }
}

impl Drop for SegmentVars {
    fn drop(&mut self) {
        for &v in &self.vars {
            self.engine.delete_variable(v, None);
        }
    }
}

/// How steps are divided.
pub struct Segmentation {
    segments: Vec<Arc<[Range<usize>]>>,
    /// By step.
    segment_of: Vec<u32>,
    /// How many segments, from the first, are the forward pass.
    pub forward: usize,
    /// By segment: earlier segments that it waits for.
    waits: Vec<Vec<usize>>,
    /// By segment: is it a callback that could run concurrently with another one of its pass?
    has_peers: Vec<bool>,
}

impl Segmentation {
    /// Divides the passes; `limits` are the most steps of a segment in each.
    pub fn new(plan: &Plan, steps: &[Step], forward_steps: usize, limits: [usize; 2]) -> Self {
        let mut segments = divide(steps, &Ordered::of(plan, steps, 0..forward_steps), limits[0]);
        let forward = segments.len();
        let backward = Ordered::of(plan, steps, forward_steps..steps.len());
        segments.extend(divide(steps, &backward, limits[1]));
        let mut segment_of = vec![0; steps.len()];
        for (segment, number) in segments.iter().zip(0..) {
            segment.iter().cloned().flatten().for_each(|step| segment_of[step] = number);
        }
        let (waits, has_peers) = (vec![Vec::new(); segments.len()], vec![false; segments.len()]);
        let mut segmentation = Segmentation { segments, segment_of, forward, waits, has_peers };
        if !segmentation.is_serial() {
            segmentation.find_waits(plan, steps);
            segmentation.find_peers(steps);
        }
        segmentation
    }

    /// Is each pass one segment at most?
    pub fn is_serial(&self) -> bool {
        self.forward <= 1 && self.len() - self.forward <= 1
    }

    /// The number of segments.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    fn find_waits(&mut self, plan: &Plan, steps: &[Step]) {
        let mut segment_of: Vec<Option<usize>> = vec![None; plan.graph.nodes.len()];
        for (step, &number) in steps.iter().zip(&self.segment_of) {
            segment_of[step.node as usize] = Some(number as usize);
        }
        let data = plan.graph.nodes.iter().enumerate();
        let data = data.flat_map(|(id, node)| node.predecessors().map(move |p| (p, id as u32)));
        for (before, after) in data.chain(plan.order_edges.iter().copied()) {
            if let (Some(before), Some(after)) =
                (segment_of[before as usize], segment_of[after as usize])
                && before != after
            {
                self.waits[after].push(before);
            }
        }
        for waits in &mut self.waits {
            waits.sort_unstable();
            waits.dedup();
        }
    }

    fn find_peers(&mut self, steps: &[Step]) {
        let is_callback: Vec<bool> =
            self.segments.iter().map(|s| steps[s[0].start].is_callback()).collect();
        for pass in [0..self.forward, self.forward..self.len()] {
            let before = |s: usize| self.waits[s].iter().copied();
            concurrent::mark(pass, &is_callback, before, &mut self.has_peers);
        }
    }
}

/// Steps of one group and device stay together up to the limits of steps and of arrays.
fn divide(steps: &[Step], ordered: &Ordered, limit: usize) -> Vec<Arc<[Range<usize>]>> {
    let mut segments = Vec::new();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let (mut begin, mut arrays) = (0, 0);
    for (at, &i) in ordered.steps.iter().enumerate() {
        let more = steps[i].reads.len() + steps[i].writes.len();
        let joins = at == begin
            || at - begin < limit
                && arrays + more <= MOST_ARRAYS
                && ordered.groups[at] == ordered.groups[at - 1]
                && steps[i].device == steps[ordered.steps[at - 1]].device;
        if !joins {
            segments.push(std::mem::take(&mut ranges).into());
            (begin, arrays) = (at, 0);
        }
        arrays += more;
        match ranges.last_mut() {
            Some(last) if last.end == i => last.end += 1,
            _ => ranges.push(i..i + 1),
        }
    }
    if !ranges.is_empty() {
        segments.push(ranges.into());
    }
    segments
}

/// Variables of a segment besides those of arrays from outside.
#[derive(Default)]
struct Inner {
    reads: Vec<Var>,
    overwrites: Vec<Var>,
    writes: Vec<Var>,
}

/// Makes segments of steps.
pub struct Segmenter<'a> {
    pub plan: &'a Plan,
    pub memory: &'a Memory,
    pub steps: &'a [Step],
    pub vars: &'a SegmentVars,
}

impl Segmenter<'_> {
    /// The variables of the arenas that the plan uses.
    pub fn arenas(&self) -> Vec<Var> {
        let used = |device| self.plan.arena_bytes.iter().any(|a| a.0 == device);
        let arenas = self.memory.arenas.iter().filter(|a| used(a.device));
        arenas.map(|a| a.array.var()).collect()
    }

    /// The variables that passes of one segment write: states of operators need an order even if
    /// nothing lies in an arena.
    fn order(&self) -> Vec<Var> {
        let arenas = self.arenas();
        if arenas.is_empty() { self.vars.vars[..1].to_vec() } else { arenas }
    }

    /// Segment `number` of the segmentation.
    pub fn segment(&self, number: usize) -> Segment {
        let segmentation = &self.vars.segmentation;
        let inner = if !segmentation.is_serial() {
            let own = vec![self.vars.vars[number]];
            let waits = segmentation.waits[number].iter().map(|&s| self.vars.vars[s]);
            let reads = self.arenas().into_iter().chain(waits).collect();
            Inner { reads, overwrites: own, ..Inner::default() }
        } else if number < segmentation.forward {
            Inner { overwrites: self.order(), ..Inner::default() }
        } else {
            Inner { writes: self.order(), ..Inner::default() }
        };
        let has_peers = segmentation.has_peers[number];
        let made = self.make(segmentation.segments[number].clone(), inner);
        let runs = if made.device.is_host() { None } else { replay::runs(self.steps, &made.steps) };
        Segment { has_peers, runs, ..made }
    }

    /// One step as a segment of its own, for monitors and partial forward passes: it writes the
    /// arenas, which orders readers of its results, and the variable of its segment, which orders
    /// later segments.
    pub fn single(&self, at: usize) -> Segment {
        let mut inner = Inner::default();
        let segmentation = &self.vars.segmentation;
        let order = if segmentation.is_serial() { self.order() } else { self.arenas() };
        match at {
            0 => inner.overwrites = order,
            _ => inner.writes = order,
        }
        if !segmentation.is_serial() {
            let number = segmentation.segment_of[at] as usize;
            let begins = segmentation.segments[number][0].start == at;
            let list = if begins { &mut inner.overwrites } else { &mut inner.writes };
            list.push(self.vars.vars[number]);
        }
        self.make(std::iter::once(at..at + 1).collect(), inner)
    }

    fn make(&self, ranges: Arc<[Range<usize>]>, inner: Inner) -> Segment {
        let steps: Vec<&Step> = ranges.iter().flat_map(|r| &self.steps[r.clone()]).collect();
        let mut accesses = Accesses::new(inner);
        for step in &steps {
            step.reads.iter().for_each(|array| accesses.read(array.var()));
            for (array, overwrites) in &step.writes {
                accesses.write(array.var(), *overwrites);
            }
        }
        let (reads, writes, overwrites) = accesses.finish();
        let bytes: usize = steps.iter().map(|step| step.bytes()).sum();
        let callback = steps.first().is_some_and(|step| step.is_callback());
        Segment {
            device: steps.first().map_or_else(Context::default, |s| s.device),
            is_short: steps.iter().all(|step| step.alone() == Alone::Never)
                && steps.len() <= SHORT_STEPS
                && bytes <= SHORT_BYTES
                && steps.iter().all(|step| step.is_on_host()),
            callback,
            runs: None,
            has_peers: false,
            name: self.name(&steps),
            parts: [false, true].map(|is_train| chain::parts(self.steps, &ranges, is_train)),
            steps: ranges,
            reads,
            writes,
            overwrites,
        }
    }

    /// `[op1,op2]`, as MXNet names segments; long ones are cut off.
    fn name(&self, steps: &[&Step]) -> String {
        let op = |step: &&Step| self.plan.graph.nodes[step.node as usize].op_name();
        if let [step] = steps {
            return op(step).to_owned();
        }
        let shown: Vec<_> = steps.iter().take(8).map(op).collect();
        let more = if steps.len() > 8 { ",..." } else { "" };
        format!("[{}{more}]", shown.join(","))
    }
}

/// Collects how the steps of a segment use variables, in execution order.
struct Accesses {
    /// Read before the segment itself overwrites them.
    reads: BTreeSet<Var>,
    overwritten: BTreeSet<Var>,
    /// Written in part.
    modified: BTreeSet<Var>,
}

impl Accesses {
    fn new(inner: Inner) -> Self {
        Accesses {
            reads: inner.reads.into_iter().collect(),
            overwritten: inner.overwrites.into_iter().collect(),
            modified: inner.writes.into_iter().collect(),
        }
    }

    /// A read of something that the segment itself wrote before does not delay its start.
    fn read(&mut self, var: Var) {
        if !self.overwritten.contains(&var) {
            self.reads.insert(var);
        }
    }

    fn write(&mut self, var: Var, whole: bool) {
        if whole {
            self.overwritten.insert(var);
        } else {
            self.modified.insert(var);
        }
    }

    /// Variables read, variables written with the overwritten ones first, and how many these are.
    /// One that is also read or modified counts as modified.
    fn finish(self) -> (Vec<Var>, Vec<Var>, usize) {
        let Accesses { reads, overwritten, mut modified } = self;
        let (mixed, mut writes): (Vec<Var>, Vec<Var>) =
            overwritten.iter().partition(|v| modified.contains(v) || reads.contains(v));
        let overwrites = writes.len();
        modified.extend(mixed);
        let reads = reads.into_iter().filter(|v| !modified.contains(v)).collect();
        writes.extend(modified);
        (reads, writes, overwrites)
    }
}
