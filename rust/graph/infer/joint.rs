//! Shapes and dtypes inferred jointly, for operators where they depend on each other.

use super::assume::Assumptions;
use super::{Fact, Sweep, Sweeper};
use crate::dtype::DType;
use crate::error::{Result, guarded};
use crate::graph::body::{Subgraph, bodies};
use crate::graph::static_graph::Graph;
use crate::operator::{InferBothFn, OpDef};
use crate::shape::Shape;

impl Graph {
    /// Infers shapes and dtypes (one of each per entry) jointly. What operators demand of variables
    /// of unknown dtype comes first; the others become float32.
    pub fn infer_both(&self, shapes: &mut [Shape], types: &mut [Option<DType>]) -> Result<()> {
        let mut joint = Joint::new(self, shapes, types);
        joint.settle(Untyped::Asked)?;
        joint.assume_the_rest()
    }

    /// Do shapes and dtypes of any node depend on each other?
    pub(in crate::graph) fn has_joint_rules(&self) -> bool {
        (0..self.nodes.len()).any(|id| self.is_joint(id))
    }

    /// Do the shapes and dtypes of this node depend on each other, or those of a node inside?
    pub(super) fn is_joint(&self, id: usize) -> bool {
        let node = &self.nodes[id];
        node.op.as_ref().is_some_and(|op| op.infer_both.is_some())
            || bodies(&node.attrs).iter().any(Subgraph::is_joint)
    }

    /// By entry: the nodes that have it for an input, and their backward nodes, whose outputs are
    /// like it.
    pub(super) fn readers(&self) -> Vec<Vec<usize>> {
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
            Joint::new(self, shapes, &mut types).settle(Untyped::Supposed)
        } else {
            self.infer_shapes(shapes)
        }
    }
}

/// What becomes of a node with a joint rule while no dtype of its inputs is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Untyped {
    /// It waits until its neighbours know more.
    Waits,
    /// Its rule is asked which dtypes it demands.
    Asked,
    /// As `Asked`; besides, its rule may assume dtypes in order to infer shapes.
    Supposed,
}

/// Sweeps over shapes and dtypes at once.
pub(super) struct Joint<'a> {
    pub(super) shapes: Sweeper<'a, Shape>,
    pub(super) types: Sweeper<'a, Option<DType>>,
    pub(super) untyped: Untyped,
    pub(super) assumptions: Assumptions,
}

impl<'a> Joint<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        shapes: &'a mut [Shape],
        types: &'a mut [Option<DType>],
    ) -> Self {
        let (shapes, types) = (Sweeper::new(graph, shapes), Sweeper::new(graph, types));
        Joint { shapes, types, untyped: Untyped::Waits, assumptions: Assumptions::default() }
    }

    /// Sweeps until nothing more becomes known while nodes wait for dtypes, and then until nothing
    /// more does as `untyped` says.
    pub(super) fn settle(&mut self, untyped: Untyped) -> Result<()> {
        self.untyped = Untyped::Waits;
        self.reach_fixed_point()?;
        if untyped != Untyped::Waits && self.shapes.graph.has_joint_rules() {
            self.untyped = untyped;
            self.reach_fixed_point()?;
        }
        Ok(())
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
        let is_open = !types.ins.iter().all(Fact::known);
        let mut out_shapes = vec![Shape::unknown(); shapes.outs.len()];
        let outs = (&mut *out_shapes, &mut *types.outs);
        let ran = shapes
            .check_inputs(node, op)
            .and_then(|()| guarded(|| rule(&node.attrs, (&shapes.ins, &mut types.ins), outs)));
        if let Err(error) = ran {
            if is_open && !self.assumptions.counts_refusals() {
                // It is reported once the dtypes are known, or by the rule of shapes alone.
                return if supposes && !some_type { shapes.visit(id) } else { Ok(false) };
            }
            let error = shapes.explain(error, node, op).with_note(&types.list_inputs(id));
            return Err(self.assumptions.refused(error, is_open));
        }
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
        let op = node.op.as_ref().filter(|_| self.shapes.graph.is_joint(id));
        let learnt = match op.map(|op| (op, &op.infer_both, &op.infer_through)) {
            Some((op, Some(rule), _)) => self.visit_both(id, op, rule),
            Some((op, None, Some(rule))) => self.visit_through(id, op, rule),
            _ => self.shapes.visit(id).and_then(|new| Ok(new | self.types.visit(id)?)),
        };
        learnt.map_err(|error| self.naming_assumptions(error, id))
    }
}
