//! The results of inference, in the order of a symbol's lists.

use super::Fact;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Graph, Symbol};
use crate::shape::Shape;

/// Shapes or dtypes of a symbol's arguments, outputs and auxiliary states, in the order of its
/// lists.
#[derive(Clone, Debug)]
pub struct Inferred<F> {
    pub args: Vec<F>,
    pub outputs: Vec<F>,
    pub aux: Vec<F>,
    /// True if everything is known.
    pub complete: bool,
}

impl Graph {
    /// Node numbers of the arguments and of the auxiliary states.
    pub fn variables(&self) -> (Vec<u32>, Vec<u32>) {
        let mut mutated = vec![false; self.nodes.len()];
        for node in &self.nodes {
            if let Some(op) = &node.op {
                for i in op.mutates.to_vec(&node.attrs) {
                    if let Some(e) = node.inputs.get(i) {
                        mutated[e.node as usize] = true;
                    }
                }
            }
        }
        let variables = (0..self.nodes.len()).filter(|&i| self.nodes[i].is_variable());
        let (aux, args): (Vec<usize>, Vec<usize>) = variables.partition(|&i| mutated[i]);
        let ids = |v: Vec<usize>| v.into_iter().map(|i| i as u32).collect();
        (ids(args), ids(aux))
    }

    fn collect<F: Fact>(&self, facts: &[F]) -> Inferred<F> {
        let (args, aux) = self.variables();
        let of = |ids: &[u32]| -> Vec<F> {
            ids.iter().map(|&n| facts[self.entries_of(n as usize).start].clone()).collect()
        };
        let outputs: Vec<F> = self.heads.iter().map(|&e| facts[self.entry_id(e)].clone()).collect();
        let (args, aux) = (of(&args), of(&aux));
        let complete = args.iter().chain(&outputs).chain(&aux).all(Fact::known);
        Inferred { args, outputs, aux, complete }
    }
}

impl Symbol {
    /// Infers shapes from those given by variable name; some may stay unknown.
    pub fn infer_shape(
        &self,
        given: &[(String, Shape)],
        np_shape: bool,
    ) -> Result<Inferred<Shape>> {
        let graph = Graph::from_symbol(self)?;
        let shapes = graph.shapes_from(given, np_shape)?;
        Ok(graph.collect(&shapes))
    }

    /// Infers dtypes from those given by variable name; some may stay unknown.
    pub fn infer_type(&self, given: &[(String, DType)]) -> Result<Inferred<Option<DType>>> {
        let graph = Graph::from_symbol(self)?;
        let types = graph.types_from(given)?;
        Ok(graph.collect(&types))
    }
}
