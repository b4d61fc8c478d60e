//! Inference through nodes that hold graphs in which shapes and dtypes depend on each other.
//!
//! Each graph is inferred from what is known of the node's operands and outputs, by the sweeps that
//! infer the graph around the node, and as these treat unknown dtypes. It assumes nothing: what is
//! not known inside is a matter of the variables around.

use super::joint::{Joint, Untyped};
use super::{Fact, Sweep};
use crate::dtype::DType;
use crate::error::{AtNode, Result, guarded};
use crate::graph::body::{Subgraph, bodies};
use crate::graph::{Graph, Symbol};
use crate::operator::{InferThroughFn, OpDef, infer};
use crate::shape::Shape;

/// A node that leaves a dtype unknown.
pub struct UntypedNode {
    pub operator: String,
    pub node: String,
}

/// The dtypes of which variables are demanded; nothing where nobody asks.
type Demands = Vec<Option<DType>>;

impl Joint<'_> {
    /// Infers through a node that holds graphs; `true` if anything was learnt.
    pub(super) fn visit_through(
        &mut self,
        id: usize,
        op: &OpDef,
        rule: &InferThroughFn,
    ) -> Result<bool> {
        if self.shapes.done[id] && self.types.done[id] {
            return Ok(false);
        }
        let untyped = self.untyped;
        let mut is_guess = false;
        let ran = self.run_through(id, op, rule, &mut |_, inside| {
            let settled = inside.settle(untyped);
            is_guess |= inside.assumptions.is_guess();
            settled.map(|()| Demands::new())
        });
        let node = &self.shapes.graph.nodes[id];
        if let Err(error) = ran {
            let error = self.shapes.explain(error, node, op);
            let error = error.with_note(&self.types.list_inputs(id));
            return Err(self.assumptions.refused(error, is_guess));
        }
        Ok(self.shapes.learn(id, node, op)? | self.types.learn(id, node, op)?)
    }

    /// The dtypes that nodes inside of a node demand of its inputs.
    pub(super) fn demands_inside(
        &mut self,
        id: usize,
        op: &OpDef,
        rule: &InferThroughFn,
    ) -> Demands {
        let untyped = self.untyped;
        let demanded = self.run_through(id, op, rule, &mut |body, inside| {
            inside.settle(untyped)?;
            Ok(inside.demands_of(body.variables()))
        });
        demanded.unwrap_or_default()
    }

    /// The dtypes that joint rules demand of variables of unknown dtype.
    fn demands_of(&mut self, variables: &[usize]) -> Demands {
        let readers = self.types.graph.readers();
        let demanded = |&at: &usize| match self.types.facts[at] {
            Some(_) => None,
            None => readers[at].iter().find_map(|&id| self.demand(id, at)),
        };
        variables.iter().map(demanded).collect()
    }

    /// Loads what is known of a node that holds graphs and runs its rule, with `infer` on each of
    /// the graphs.
    fn run_through(
        &mut self,
        id: usize,
        op: &OpDef,
        rule: &InferThroughFn,
        infer: &mut dyn FnMut(&Subgraph, &mut Joint<'_>) -> Result<Demands>,
    ) -> Result<Demands> {
        let node = self.shapes.load(id);
        self.types.load(id);
        self.shapes.check_inputs(node, op)?;
        let ins = (&mut *self.shapes.ins, &mut *self.types.ins);
        let outs = (&mut *self.shapes.outs, &mut *self.types.outs);
        let held = bodies(&node.attrs);
        guarded(|| {
            rule(&node.attrs, ins, outs, &mut |number, ins, outs| {
                held[number].infer_by(ins, outs, |graph, (shapes, types)| {
                    let mut inside = Joint::new(graph, shapes, types);
                    inside.assumptions = self.assumptions.inside();
                    infer(&held[number], &mut inside)
                })
            })
        })
    }

    /// An error for the first output of which the shape or dtype is not known: of this graph, or of
    /// a graph inside of a node.
    fn refuse_open_outputs(&mut self) -> Result<()> {
        let graph = self.shapes.graph;
        let is_open =
            |at: &usize| !self.shapes.facts[*at].known() || !self.types.facts[*at].known();
        let made = |at: &usize| graph.nodes[graph.entry(*at).node as usize].op.as_ref();
        let mut open = (0..graph.num_entries()).filter(is_open);
        let Some((at, op)) = open.find_map(|at| Some((at, made(&at)?))) else { return Ok(()) };
        let id = graph.entry(at).node as usize;
        if let Some(rule) = &op.infer_through {
            self.run_through(id, op, rule, &mut |_, inside| {
                inside.settle(Untyped::Asked)?;
                inside.refuse_open_outputs().map(|()| Demands::new())
            })?;
        }
        let output = format_args!("its output '{}'", graph.entry_name(graph.entry(at)));
        let known = infer::known(output, &self.shapes.facts[at], self.types.facts[at]);
        known.map(drop).at_node(&op.name, &graph.nodes[id].name)
    }
}

impl Joint<'_> {
    /// Appends the nodes, of this graph or inside of its nodes, that read known dtypes and leave
    /// one unknown where dtypes alone are asked for.
    fn list_untyped(&mut self, found: &mut Vec<UntypedNode>) -> Result<()> {
        let graph = self.types.graph;
        for (id, node) in graph.nodes.iter().enumerate() {
            let Some(op) = &node.op else { continue };
            let reads_known =
                node.inputs.iter().all(|e| self.types.facts[graph.entry_id(*e)].known());
            if !reads_known || self.types.facts[graph.entries_of(id)].iter().all(Fact::known) {
                continue;
            }
            let before = found.len();
            if let Some(rule) = &op.infer_through {
                self.run_through(id, op, rule, &mut |_, inside| {
                    inside.types.reach_fixed_point()?;
                    inside.list_untyped(found).map(|()| Demands::new())
                })?;
            }
            if found.len() == before {
                found.push(UntypedNode { operator: op.name.clone(), node: node.name.clone() });
            }
        }
        Ok(())
    }
}

impl Symbol {
    /// Where the dtypes of [`Symbol::infer_type`] end: the nodes that leave one unknown although
    /// all that they read are known.
    pub fn untyped_nodes(&self, given: &[(String, DType)]) -> Result<Vec<UntypedNode>> {
        let graph = Graph::from_symbol(self)?;
        let mut types = graph.types_from(given)?;
        let mut shapes = vec![Shape::unknown(); types.len()];
        let mut found = Vec::new();
        Joint::new(&graph, &mut shapes, &mut types).list_untyped(&mut found)?;
        Ok(found)
    }
}

impl Graph {
    /// An error for the first output of an operator of which the shape or dtype is not known.
    pub(in crate::graph) fn refuse_open_outputs(
        &self,
        shapes: &mut [Shape],
        types: &mut [Option<DType>],
    ) -> Result<()> {
        Joint::new(self, shapes, types).refuse_open_outputs()
    }
}
