//! Arrays of one run in the places of those that an executor is bound to.
//!
//! A program lies over arrays that stay, which makes a run cheap. Its caller may name other
//! arrays of the same shape and dtype for one pass: the pass reads and writes these, without a copy
//! into or out of the executor. An array that the backward pass reads as well cannot be replaced in
//! the forward pass alone; [`ReadBack`] tells which those are.
//!
//! What is read may be any array. What is written must be fresh: the plan knows nothing of it, so
//! it must share memory with nothing else that the pass uses.

use super::step::Step;
use crate::engine::Var;
use crate::error::Result;
use crate::graph::{Place, Plan};
use crate::ndarray::NDArray;
use crate::tensor::View;
use smallvec::SmallVec;
use std::borrow::Cow;

/// The arrays of one pass, each with the one that it replaces.
#[derive(Default)]
pub struct Places {
    /// (of the program, of the run)
    pairs: SmallVec<[(NDArray, NDArray); 4]>,
}

impl Places {
    /// Puts `array` in the place of `of`, a whole array on the same host. Returns false, and leaves
    /// it, if the place is taken.
    pub fn put(&mut self, of: &NDArray, array: NDArray) -> bool {
        debug_assert!(of.is_whole() && of.shape() == array.shape() && of.dtype() == array.dtype());
        let free = self.of(of).is_none();
        if free {
            self.pairs.push((of.clone(), array));
        }
        free
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The arrays of the run.
    pub fn arrays(&self) -> impl Iterator<Item = &NDArray> {
        self.pairs.iter().map(|(_, array)| array)
    }

    /// What stands in the place of an array.
    pub fn of(&self, array: &NDArray) -> Option<&NDArray> {
        self.pairs.iter().find(|(of, _)| of.same_chunk(array)).map(|(_, array)| array)
    }

    /// The views of a step's operands, inputs before outputs, if some are replaced.
    pub(super) fn views(&self, step: &Step) -> Result<Option<SmallVec<[View; 8]>>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut views: Option<SmallVec<[View; 8]>> = None;
        for (at, array) in &step.outside {
            let Some(instead) = self.of(array) else { continue };
            let views = views
                .get_or_insert_with(|| step.inputs.iter().chain(&*step.outputs).cloned().collect());
            // Operands begin where the array does that they lie in.
            views[*at] = instead.view_as(views[*at].shape(), views[*at].dtype())?;
        }
        Ok(views)
    }

    /// The variables of a segment with those of the run's arrays in their places.
    pub(super) fn variables<'a>(
        &self,
        reads: &'a [Var],
        writes: &'a [Var],
    ) -> (Cow<'a, [Var]>, Cow<'a, [Var]>) {
        if self.is_empty() {
            return (reads.into(), writes.into());
        }
        let vars = self.pairs.iter().filter_map(|(of, array)| Some((of.known_var()?, array.var())));
        let vars: SmallVec<[(Var, Var); 4]> = vars.collect();
        let replaced = |var: &Var| vars.iter().find(|(of, _)| of == var).map_or(*var, |v| v.1);
        let writes: Vec<Var> = writes.iter().map(replaced).collect();
        let mut reads: Vec<Var> = reads.iter().map(replaced).collect();
        // One array may be several inputs.
        reads.sort_unstable();
        reads.dedup();
        reads.retain(|var| !writes.contains(var));
        (reads.into(), writes.into())
    }
}

/// What a plan's backward pass uses of the arrays outside of the arenas.
pub struct ReadBack {
    /// By argument.
    pub args: Vec<bool>,
    /// By output; `None` is an output without an array of its own: an argument, or the same as
    /// another output.
    pub outputs: Vec<Option<bool>>,
    /// By argument: does the forward pass write into its gradient's array?
    pub early_grads: Vec<bool>,
}

impl ReadBack {
    pub fn of(plan: &Plan) -> Self {
        let graph = &plan.graph;
        let own = |(entry, head): (_, u32)| match plan.place[graph.entry_id(entry)] {
            Place::Output(at) if at == head => Some(false),
            _ => None,
        };
        let mut found = ReadBack {
            args: vec![false; plan.arguments.len()],
            outputs: plan.outputs.iter().copied().zip(0..).map(own).collect(),
            early_grads: vec![false; plan.arguments.len()],
        };
        for id in (0..graph.num_forward).flat_map(|n| graph.entries_of(n)) {
            if let Place::Gradient(at) = plan.place[id] {
                found.early_grads[at as usize] = true;
            }
        }
        for (n, node) in graph.nodes.iter().enumerate().skip(graph.num_forward) {
            let ids = node.inputs.iter().map(|&entry| graph.entry_id(entry));
            for id in ids.chain(graph.entries_of(n)) {
                if let Place::Output(head) = plan.place[id] {
                    found.outputs[head as usize] = Some(true);
                }
            }
            // Of some inputs only the shape is needed.
            let ignored = node.op.as_ref().map(|op| op.ignores.to_vec(&node.attrs));
            let ignored = ignored.unwrap_or_default();
            for (_, entry) in node.inputs.iter().enumerate().filter(|(i, _)| !ignored.contains(i)) {
                if let Some(at) = plan.arguments.iter().position(|&a| a == entry.node) {
                    found.args[at] = true;
                }
            }
        }
        found
    }
}
