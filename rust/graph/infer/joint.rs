//! Shapes and dtypes inferred jointly, for operators where they depend on each other.

use super::{Fact, Sweep, Sweeper};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::static_graph::{Entry, Graph};
use crate::operator::{InferBothFn, OpDef};
use crate::shape::Shape;

impl Graph {
    /// Infers shapes and dtypes (one of each per entry) jointly. Variables of unknown dtype become
    /// float32.
    pub fn infer_both(&self, shapes: &mut [Shape], types: &mut [Option<DType>]) -> Result<()> {
        let mut joint = Joint::new(self, shapes, types);
        joint.reach_fixed_point()?;
        if self.has_joint_rules() {
            joint.untyped = Untyped::Asked;
            joint.reach_fixed_point()?;
        }
        let variables = (0..self.nodes.len()).filter(|&id| self.nodes[id].is_variable());
        let mut untyped: Vec<usize> = variables.map(|id| self.entries_of(id).start).collect();
        untyped.retain(|&at| joint.types.facts[at].is_none());
        if untyped.is_empty() {
            return Ok(());
        }
        let readers = self.readers();
        while !untyped.is_empty() {
            let mut later = Vec::new();
            for at in untyped.iter().copied() {
                if joint.types.facts[at].is_none() {
                    // What a rule demands of it counts first; it may need shapes for that.
                    match joint.is_read_by_a_waiting_rule(&readers[at]) {
                        true => later.push(at),
                        false => joint.suppose(at, &readers)?,
                    }
                }
            }
            if later.len() == untyped.len() {
                joint.suppose(later.remove(0), &readers)?;
            }
            untyped = later;
        }
        Ok(())
    }

    /// Do shapes and dtypes of any node depend on each other?
    fn has_joint_rules(&self) -> bool {
        self.nodes.iter().any(|n| n.op.as_ref().is_some_and(|op| op.infer_both.is_some()))
    }

    /// By entry: the nodes that have it for an input, and their backward nodes, whose outputs are
    /// like it.
    fn readers(&self) -> Vec<Vec<usize>> {
        let mut readers = vec![Vec::new(); self.num_entries()];
        for (id, node) in self.nodes.iter().enumerate() {
            let forward = node.backward_of.map_or(&[][..], |f| &self.nodes[f as usize].inputs);
            let entries = node.inputs.iter().chain(forward);
            entries.for_each(|e| readers[self.entry_id(*e)].push(id));
        }
        readers
    }

    /// Fills in the `shapes` (one per entry) that can be inferred, also where they depend on
    /// dtypes.
    pub(in crate::graph) fn infer_shapes_jointly(&self, shapes: &mut [Shape]) -> Result<()> {
        if self.has_joint_rules() {
            // Shapes may depend on dtypes here, so declared dtypes are used.
            let mut types = self.types_seed(&[])?;
            let mut joint = Joint::new(self, shapes, &mut types);
            joint.reach_fixed_point()?;
            joint.untyped = Untyped::Supposed;
            joint.reach_fixed_point()
        } else {
            self.infer_shapes(shapes)
        }
    }
}

/// What becomes of a node with a joint rule while no dtype of its inputs is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Untyped {
    /// It waits until its neighbours know more.
    Waits,
    /// Its rule is asked which dtypes it demands.
    Asked,
    /// As `Asked`; besides, its rule may assume dtypes in order to infer shapes.
    Supposed,
}

/// Sweeps over shapes and dtypes at once.
pub(super) struct Joint<'a> {
    shapes: Sweeper<'a, Shape>,
    types: Sweeper<'a, Option<DType>>,
    untyped: Untyped,
}

impl<'a> Joint<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        shapes: &'a mut [Shape],
        types: &'a mut [Option<DType>],
    ) -> Self {
        let (shapes, types) = (Sweeper::new(graph, shapes), Sweeper::new(graph, types));
        Joint { shapes, types, untyped: Untyped::Waits }
    }

    /// One forward sweep over the nodes from `first` on, whose inputs are all known by then.
    pub(super) fn only_from(&mut self, first: usize) -> Result<()> {
        for node in first..self.shapes.graph.nodes.len() {
            if self.shapes.graph.nodes[node].mirror_of.is_none() {
                self.visit(node)?;
            }
        }
        Ok(())
    }

    /// Does any of the nodes have a joint rule that could not be asked yet, for want of shapes?
    fn is_read_by_a_waiting_rule(&self, readers: &[usize]) -> bool {
        let graph = self.shapes.graph;
        readers.iter().any(|&id| {
            let node = &graph.nodes[id];
            let unknown = |e: &Entry| !self.shapes.facts[graph.entry_id(*e)].known();
            node.op.as_ref().is_some_and(|op| op.infer_both.is_some())
                && node.inputs.iter().any(unknown)
        })
    }

    /// Takes an entry to be float32.
    fn suppose(&mut self, at: usize, readers: &[Vec<usize>]) -> Result<()> {
        self.types.facts[at] = Some(DType::F32);
        self.spread(at, readers)
    }

    /// Propagates a new fact about an entry to the adjacent nodes, and onwards. Visits only the
    /// nodes that the fact reaches, so a graph of many variables costs no more than a few sweeps.
    fn spread(&mut self, from: usize, readers: &[Vec<usize>]) -> Result<()> {
        let graph = self.shapes.graph;
        let mut queued = vec![from];
        while let Some(at) = queued.pop() {
            let made = std::iter::once(graph.entry(at).node as usize);
            for id in made.chain(readers[at].iter().copied()) {
                if self.shapes.done[id] && self.types.done[id] {
                    continue;
                }
                let inputs = graph.nodes[id].inputs.iter().map(|e| graph.entry_id(*e));
                let entries: Vec<usize> = inputs.chain(graph.entries_of(id)).collect();
                let fact =
                    |joint: &Self, e: usize| (joint.shapes.facts[e].clone(), joint.types.facts[e]);
                let before: Vec<_> = entries.iter().map(|&e| fact(self, e)).collect();
                if self.visit(id)? {
                    let learnt = entries.iter().zip(&before);
                    let learnt = learnt.filter(|(e, before)| fact(self, **e) != **before);
                    queued.extend(learnt.map(|(e, _)| *e));
                }
            }
        }
        Ok(())
    }

    /// Runs a rule of both once what it needs is known.
    fn visit_both(&mut self, id: usize, op: &OpDef, rule: &InferBothFn) -> Result<bool> {
        if self.shapes.done[id] && self.types.done[id] {
            return Ok(false);
        }
        let (shapes, types) = (&mut self.shapes, &mut self.types);
        let node = shapes.load(id);
        types.load(id);
        let some_type = types.ins.is_empty() || types.ins.iter().any(Fact::known);
        let supposes = self.untyped == Untyped::Supposed;
        let waits = !some_type && self.untyped == Untyped::Waits;
        if waits || !shapes.ins.iter().all(Fact::known) {
            return if supposes && !some_type { shapes.visit(id) } else { Ok(false) };
        }
        let mut out_shapes = vec![Shape::unknown(); shapes.outs.len()];
        rule(&node.attrs, (&shapes.ins, &mut types.ins), (&mut out_shapes, &mut types.outs))
            .map_err(|e| shapes.explain(e, node, op))?;
        if supposes && !some_type && !out_shapes.iter().all(Fact::known) {
            // A rule without an answer may still have one about shapes alone, or an error.
            return shapes.visit(id);
        }
        // While a dtype is unknown, shapes are a supposition.
        if supposes || types.ins.iter().all(Fact::known) {
            shapes.outs = out_shapes;
        }
        Ok(shapes.learn(id, node, op)? | types.learn(id, node, op)?)
    }
}

impl Sweep for Joint<'_> {
    fn num_nodes(&self) -> usize {
        self.shapes.num_nodes()
    }

    fn all_done(&self) -> bool {
        self.shapes.all_done() && self.types.all_done()
    }

    fn visit(&mut self, id: usize) -> Result<bool> {
        let node = &self.shapes.graph.nodes[id];
        match node.op.as_ref().and_then(|op| Some((op, op.infer_both.as_ref()?))) {
            Some((op, rule)) => self.visit_both(id, op, rule),
            None => Ok(self.shapes.visit(id)? | self.types.visit(id)?),
        }
    }
}
