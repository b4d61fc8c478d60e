//! Graphs inside nodes: the bodies of loops and the branches of conditions.
//!
//! A node holds its graphs with its parameters ([`Attrs::bodies`]), so they go wherever these go:
//! into copies of a symbol, static graphs and backward nodes. They never change.

use super::static_graph::Graph;
use super::symbol::{NodeMap, Symbol};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::{Attrs, Facts, OpDef};
use crate::shape::Shape;
use std::any::Any;
use std::sync::Arc;

/// A place in the lists of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputPlace {
    Argument(usize),
    Auxiliary(usize),
}

/// A graph inside a node.
pub struct Subgraph {
    pub symbol: Symbol,
    /// By variable, in depth-first order.
    pub inputs: Vec<InputPlace>,
    pub names: Vec<String>,
    graph: Graph,
    /// Do shapes and dtypes of any node depend on each other?
    is_joint: bool,
    /// The entries of the variables, and of the heads.
    variables: Vec<usize>,
    heads: Vec<usize>,
}

impl Subgraph {
    fn new(symbol: Symbol) -> Result<Subgraph> {
        let graph = Graph::from_symbol(&symbol)?;
        let aux = symbol.variables(true);
        let aux: NodeMap<usize> = aux.iter().map(Arc::as_ptr).zip(0..).collect();
        let mut arguments = 0..;
        let all = symbol.all_variables();
        let place = |node| match aux.get(&Arc::as_ptr(node)) {
            Some(&at) => Some(InputPlace::Auxiliary(at)),
            None => arguments.next().map(InputPlace::Argument),
        };
        let inputs = all.iter().filter_map(place).collect();
        let ids = (0..graph.nodes.len()).filter(|&id| graph.nodes[id].is_variable());
        let variables: Vec<usize> = ids.map(|id| graph.entries_of(id).start).collect();
        if variables.len() != all.len() {
            return Err(Error::internal("a graph has other variables than its symbol"));
        }
        let heads = graph.heads.iter().map(|&head| graph.entry_id(head)).collect();
        let names = all.iter().map(|node| node.name()).collect();
        let is_joint = graph.has_joint_rules();
        Ok(Subgraph { symbol, inputs, names, graph, is_joint, variables, heads })
    }

    /// The graphs of a node of `op`, which must be as many as it holds, for
    /// [`Attrs::with_bodies`].
    pub(super) fn all(
        op: &OpDef,
        symbols: Vec<Symbol>,
    ) -> Result<Option<Arc<dyn Any + Send + Sync>>> {
        if symbols.len() != op.bodies {
            return Err(Error::invalid("number of subgraphs", symbols.len(), op.bodies));
        }
        if symbols.is_empty() {
            return Ok(None);
        }
        let bodies = symbols.into_iter().map(Subgraph::new).collect::<Result<Vec<_>>>()?;
        Ok(Some(Arc::new(bodies)))
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(super) fn is_joint(&self) -> bool {
        self.is_joint
    }

    /// The entries of the variables, by variable.
    pub(super) fn variables(&self) -> &[usize] {
        &self.variables
    }

    pub fn num_outputs(&self) -> usize {
        self.heads.len()
    }

    /// The operators of the body.
    pub fn operators(&self) -> impl Iterator<Item = &Arc<OpDef>> {
        self.graph.nodes.iter().filter_map(|node| node.op.as_ref())
    }

    /// Infers shapes of inputs and outputs from those that are known.
    pub fn infer_shapes(&self, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<()> {
        let mut all = self.known_shapes(inputs, outputs)?;
        self.graph.infer_shapes_jointly(&mut all)?;
        self.hand_out(&all, inputs, outputs);
        Ok(())
    }

    /// Infers dtypes of inputs and outputs from those that are known.
    pub fn infer_types(
        &self,
        inputs: &mut [Option<DType>],
        outputs: &mut [Option<DType>],
    ) -> Result<()> {
        let mut all = self.known_types(inputs, outputs)?;
        self.graph.infer_types(&mut all)?;
        self.hand_out(&all, inputs, outputs);
        Ok(())
    }

    /// Infers shapes and dtypes of inputs and outputs by `infer`, which is given those of all
    /// entries of the graph, and whose answer is returned.
    pub(super) fn infer_by<R>(
        &self,
        ins: Facts<'_>,
        outs: Facts<'_>,
        infer: impl FnOnce(&Graph, Facts<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut shapes = self.known_shapes(ins.0, outs.0)?;
        let mut types = self.known_types(ins.1, outs.1)?;
        let answer = infer(&self.graph, (&mut shapes, &mut types))?;
        self.hand_out(&shapes, ins.0, outs.0);
        self.hand_out(&types, ins.1, outs.1);
        Ok(answer)
    }

    fn known_shapes(&self, inputs: &[Shape], outputs: &[Shape]) -> Result<Vec<Shape>> {
        let mut all = self.graph.shapes_seed(&[], false)?;
        for (&at, known) in self.entries().zip(inputs.iter().chain(outputs)) {
            all[at].merge(known)?;
        }
        Ok(all)
    }

    fn known_types(
        &self,
        inputs: &[Option<DType>],
        outputs: &[Option<DType>],
    ) -> Result<Vec<Option<DType>>> {
        let mut all = self.graph.types_seed(&[])?;
        for (&at, known) in self.entries().zip(inputs.iter().chain(outputs)) {
            all[at] = known.or(all[at]);
        }
        Ok(all)
    }

    fn hand_out<F: Clone>(&self, all: &[F], inputs: &mut [F], outputs: &mut [F]) {
        for (&at, found) in self.entries().zip(inputs.iter_mut().chain(outputs)) {
            found.clone_from(&all[at]);
        }
    }

    fn entries(&self) -> impl Iterator<Item = &usize> {
        self.variables.iter().chain(&self.heads)
    }
}

/// The graphs that a node holds.
pub fn bodies(attrs: &Attrs) -> &[Subgraph] {
    let bodies = attrs.bodies().and_then(|bodies| bodies.downcast_ref::<Vec<Subgraph>>());
    bodies.map_or(&[], Vec::as_slice)
}
