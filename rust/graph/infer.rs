//! Shape and dtype inference to a fixed point, in both directions.
//!
//! Forward and backward sweeps over the nodes alternate until nothing more becomes known. Explicit
//! values win over a variable's `__shape__` and `__dtype__`, which are used only where none is
//! given. A joint sweep infers both at once, for operators whose shapes and dtypes depend on each
//! other.

mod assume;
mod inferred;
mod joint;
mod seed;
mod through;

pub use inferred::Inferred;
pub use seed::declared_dims;
pub use through::UntypedNode;

use super::static_graph::{Entry, Graph, Node};
use crate::dtype::DType;
use crate::error::{Error, Result, guarded};
use crate::operator::infer::same_type;
use crate::operator::{Attrs, OpDef};
use crate::shape::Shape;
use joint::Joint;
use std::fmt::Write;

/// What is inferred: shapes or dtypes.
trait Fact: Clone + PartialEq {
    const WHAT: &'static str;
    fn unknown() -> Self;
    fn known(&self) -> bool;
    fn learn(&mut self, other: &Self) -> Result<bool>;
    fn show(&self) -> String;
    fn run(op: &OpDef, attrs: &Attrs, ins: &mut [Self], outs: &mut [Self]) -> Result<()>;

    /// An error for what no array has and no rule can calculate with.
    fn check(&self, _what: impl FnOnce() -> String) -> Result<()> {
        Ok(())
    }
}

impl Fact for Shape {
    const WHAT: &'static str = "shape";

    fn unknown() -> Self {
        Shape::unknown()
    }

    fn known(&self) -> bool {
        self.is_known()
    }

    fn learn(&mut self, other: &Self) -> Result<bool> {
        if self == other { Ok(false) } else { self.merge(other) }
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn run(op: &OpDef, attrs: &Attrs, ins: &mut [Self], outs: &mut [Self]) -> Result<()> {
        if let Some(rule) = &op.infer_shape {
            rule(attrs, ins, outs)?;
        }
        Ok(())
    }

    fn check(&self, what: impl FnOnce() -> String) -> Result<()> {
        let expected = || format!("less than 2^{} elements", Shape::LOG_LIMIT);
        match self.is_too_large() {
            true => Err(Error::argument(&what(), "shape", self, expected())),
            false => Ok(()),
        }
    }
}

impl Fact for Option<DType> {
    const WHAT: &'static str = "dtype";

    fn unknown() -> Self {
        None
    }

    fn known(&self) -> bool {
        self.is_some()
    }

    fn learn(&mut self, other: &Self) -> Result<bool> {
        match (*self, *other) {
            (_, None) => Ok(false),
            (None, new) => {
                *self = new;
                Ok(true)
            }
            (Some(a), Some(b)) if a == b => Ok(false),
            (Some(a), Some(b)) => {
                Err(Error::type_(format!("Type inconsistent, Provided = {a}, inferred type = {b}")))
            }
        }
    }

    fn show(&self) -> String {
        self.map_or_else(|| "unknown".to_owned(), |d| d.name().to_owned())
    }

    fn run(op: &OpDef, attrs: &Attrs, ins: &mut [Self], outs: &mut [Self]) -> Result<()> {
        match &op.infer_type {
            Some(rule) => rule(attrs, ins, outs)?,
            None => same_type(attrs, ins, outs)?,
        };
        Ok(())
    }
}

impl Graph {
    /// Fills in the `shapes` (one per entry) that can be inferred.
    pub fn infer_shapes(&self, shapes: &mut [Shape]) -> Result<()> {
        Sweeper::new(self, shapes).reach_fixed_point()
    }

    /// Fills in the `types` (one per entry) that can be inferred.
    pub fn infer_types(&self, types: &mut [Option<DType>]) -> Result<()> {
        Sweeper::new(self, types).reach_fixed_point()
    }
}

/// Visits the nodes of a graph forwards and backwards until nothing is left to infer.
trait Sweep {
    fn num_nodes(&self) -> usize;
    /// Returns true if nothing is left to infer or to check.
    fn all_done(&self) -> bool;
    /// Runs the node's rule; `true` if anything was inferred.
    fn visit(&mut self, id: usize) -> Result<bool>;

    fn reach_fixed_point(&mut self) -> Result<()> {
        let n = self.num_nodes();
        loop {
            let mut learnt = false;
            for node in 0..n {
                learnt |= self.visit(node)?;
            }
            if self.all_done() {
                return Ok(());
            }
            for node in (0..n).rev() {
                learnt |= self.visit(node)?;
            }
            if !learnt {
                return Ok(());
            }
        }
    }
}

struct Sweeper<'a, F> {
    graph: &'a Graph,
    facts: &'a mut [F],
    /// Nodes that ran with everything known: nothing is left to infer or to check there.
    done: Vec<bool>,
    ins: Vec<F>,
    outs: Vec<F>,
    /// What was learnt since something was assumed, so that it can be taken back.
    undo: Option<Undo<F>>,
}

/// Facts as they were before, by entry, and nodes that were not done.
struct Undo<F> {
    facts: Vec<(usize, F)>,
    done: Vec<usize>,
}

impl<F: Fact> Sweep for Sweeper<'_, F> {
    fn num_nodes(&self) -> usize {
        self.graph.nodes.len()
    }

    fn all_done(&self) -> bool {
        self.done.iter().all(|&d| d)
    }

    fn visit(&mut self, id: usize) -> Result<bool> {
        let node = &self.graph.nodes[id];
        let Some(op) = node.op.as_ref().filter(|_| !self.done[id]) else { return Ok(false) };
        if let Some(forward) = node.backward_of.filter(|_| op.is_backward) {
            return self.visit_backward(id, forward).map_err(|e| self.explain(e, node, op));
        }
        self.load(id);
        let ran = self.check_inputs(node, op).and_then(|()| {
            let (ins, outs) = (&mut self.ins, &mut self.outs);
            guarded(|| F::run(op, &node.attrs, ins, outs))
        });
        ran.map_err(|e| self.explain(e, node, op))?;
        self.learn(id, node, op)
    }
}

impl<'a, F: Fact> Sweeper<'a, F> {
    fn new(graph: &'a Graph, facts: &'a mut [F]) -> Self {
        let done = graph.nodes.iter().map(Node::is_variable).collect();
        Sweeper { graph, facts, done, ins: Vec::new(), outs: Vec::new(), undo: None }
    }

    /// Notes from now on what changes.
    fn begin(&mut self) {
        self.undo = Some(Undo { facts: Vec::new(), done: Vec::new() });
    }

    /// Ends what `begin` began; the changes stay, or are taken back.
    fn end(&mut self, keeps: bool) {
        let Some(undo) = self.undo.take().filter(|_| !keeps) else { return };
        undo.facts.into_iter().rev().for_each(|(at, fact)| self.facts[at] = fact);
        undo.done.into_iter().for_each(|id| self.done[id] = false);
    }

    /// Takes over a fact about an entry; `true` if it is new.
    fn learn_at(&mut self, at: usize, fact: &F) -> Result<bool> {
        let before = self.undo.is_some().then(|| self.facts[at].clone());
        let learnt = self.facts[at].learn(fact);
        if let (Some(undo), Some(before), Ok(true) | Err(_)) = (&mut self.undo, before, &learnt) {
            undo.facts.push((at, before));
        }
        learnt
    }

    fn set_done(&mut self, id: usize, done: bool) {
        if let (Some(undo), true) = (&mut self.undo, done && !self.done[id]) {
            undo.done.push(id);
        }
        self.done[id] = done;
    }

    /// Loads the known facts of the node's inputs and outputs, for a rule.
    fn load(&mut self, id: usize) -> &'a Node {
        let node = &self.graph.nodes[id];
        self.ins.clear();
        for e in &node.inputs {
            self.ins.push(self.facts[self.graph.entry_id(*e)].clone());
        }
        self.outs.clear();
        self.outs.extend_from_slice(&self.facts[self.graph.entries_of(id)]);
        node
    }

    /// An error for inputs that no rule can calculate with.
    fn check_inputs(&self, node: &Node, op: &OpDef) -> Result<()> {
        let name = |i: usize| op.inputs(&node.attrs).get(i).cloned().unwrap_or_default();
        self.ins.iter().enumerate().try_for_each(|(i, fact)| fact.check(|| name(i)))
    }

    /// An error for inputs or outputs that a rule has found and no array has.
    fn check_found(&self, node: &Node, op: &OpDef) -> Result<()> {
        let name = |i: usize| op.outputs(&node.attrs).get(i).cloned().unwrap_or_default();
        self.check_inputs(node, op)?;
        self.outs.iter().enumerate().try_for_each(|(i, fact)| fact.check(|| name(i)))
    }

    /// Takes over what a rule has found; `true` if anything of it is new.
    fn learn(&mut self, id: usize, node: &Node, op: &OpDef) -> Result<bool> {
        self.check_found(node, op).map_err(|e| self.explain(e, node, op))?;
        let mut learnt = false;
        let mut complete = true;
        for (i, e) in node.inputs.iter().enumerate() {
            complete &= self.ins[i].known();
            let at = self.graph.entry_id(*e);
            let fact = std::mem::replace(&mut self.ins[i], F::unknown());
            learnt |= self.learn_at(at, &fact).map_err(|e| self.explain(e, node, op))?;
        }
        for (i, at) in self.graph.entries_of(id).enumerate() {
            complete &= self.outs[i].known();
            let fact = std::mem::replace(&mut self.outs[i], F::unknown());
            learnt |= self.learn_at(at, &fact).map_err(|e| self.explain(e, node, op))?;
        }
        self.set_done(id, complete);
        Ok(learnt)
    }

    /// A backward node's outputs are like the inputs of its forward node.
    fn visit_backward(&mut self, id: usize, forward: u32) -> Result<bool> {
        let mut learnt = false;
        let mut complete = true;
        let inputs = &self.graph.nodes[forward as usize].inputs;
        for (e, at) in inputs.iter().zip(self.graph.entries_of(id)) {
            let like = self.facts[self.graph.entry_id(*e)].clone();
            complete &= like.known();
            learnt |= self.learn_at(at, &like)?;
        }
        self.set_done(id, complete);
        Ok(learnt)
    }

    /// Adds to an error the node, its inputs and where they come from.
    fn explain(&self, error: Error, node: &Node, op: &OpDef) -> Error {
        let mut text = error.message().to_owned();
        if error.operator().or(error.node()).is_some() {
            let _ = write!(text, "\n  inside of {} '{}'", op.name, node.name);
        }
        let names = op.inputs(&node.attrs);
        for (i, e) in node.inputs.iter().enumerate() {
            let name = names.get(i).map_or("input", |n| n);
            let fact = self.facts[self.graph.entry_id(*e)].show();
            let _ = write!(text, "\n  input {i} '{name}': {} {fact}, from ", F::WHAT);
            self.write_chain(&mut text, *e);
        }
        for (i, at) in self.graph.entries_of(entry_node(self.graph, node)).enumerate() {
            if self.facts[at].known() {
                let _ = write!(text, "\n  output {i}: {} {}", F::WHAT, self.facts[at].show());
            }
        }
        let explained = match error.payload() {
            Some(payload) => Error::foreign(text, payload.clone()),
            None => Error::new(error.kind(), text),
        };
        // Of a node that holds graphs, the error is mostly that of a node inside.
        let (inner, name) = (error.operator().unwrap_or(""), error.node().unwrap_or(""));
        explained.at_node(inner, name).at_node(&op.name, &node.name)
    }

    /// `fc1 (FullyConnected) <- relu0 (Activation) <- data`
    fn write_chain(&self, text: &mut String, mut entry: Entry) {
        const LONGEST: usize = 8;
        for step in 0..LONGEST {
            let node = &self.graph.nodes[entry.node as usize];
            let arrow = if step > 0 { " <- " } else { "" };
            let fact = self.facts[self.graph.entry_id(entry)].show();
            let _ = match &node.op {
                Some(op) => write!(text, "{arrow}{} ({}) {fact}", node.name, op.name),
                None => write!(text, "{arrow}variable {} {fact}", node.name),
            };
            match node.inputs.first() {
                Some(first) => entry = *first,
                None => return,
            }
        }
        text.push_str(" <- ...");
    }
}

fn entry_node(graph: &Graph, node: &Node) -> usize {
    // The node is a reference into the graph's own list.
    graph.nodes.iter().position(|n| std::ptr::eq(n, node)).unwrap_or(0)
}

impl Graph {
    /// Shapes and dtypes of the backward nodes, appended to those of the forward ones. A gradient
    /// is like the array it belongs to; `head_grads` are the variables of the heads' gradients.
    pub fn infer_rest(
        &self,
        head_grads: &[Option<u32>],
        shapes: &mut Vec<Shape>,
        types: &mut Vec<DType>,
    ) -> Result<()> {
        let mut all: Vec<Option<DType>> = types.iter().copied().map(Some).collect();
        let known = shapes.len();
        shapes.resize(self.num_entries(), Shape::unknown());
        all.resize(self.num_entries(), None);
        for (head, grad) in self.heads.iter().zip(head_grads) {
            let Some(grad) = grad else { continue };
            let (from, at) = (self.entry_id(*head), self.entries_of(*grad as usize).start);
            shapes[at] = shapes[from].clone();
            all[at] = all[from];
        }
        for id in self.num_forward..self.nodes.len() {
            let node = &self.nodes[id];
            let outputs = self.entries_of(id);
            debug_assert!(outputs.start >= known);
            if let Some(source) = node.mirror_of {
                for (at, from) in outputs.zip(self.entries_of(source as usize)) {
                    shapes[at] = shapes[from].clone();
                    all[at] = all[from];
                }
            }
        }
        Joint::new(self, shapes, &mut all).only_from(self.num_forward)?;
        *types = Vec::with_capacity(all.len());
        for (id, dtype) in all.into_iter().enumerate() {
            let known = dtype.filter(|_| shapes[id].is_known());
            types.push(known.ok_or_else(|| {
                let node = &self.nodes[self.entry(id).node as usize];
                Error::internal("shape or dtype of a backward node cannot be inferred")
                    .at_node(node.op_name(), &node.name)
            })?);
        }
        Ok(())
    }

    /// Infers the shapes of all entries from `given` (by variable name) and the variables'
    /// attributes.
    pub fn shapes_from(&self, given: &[(String, Shape)], np_shape: bool) -> Result<Vec<Shape>> {
        let mut shapes = self.shapes_seed(given, np_shape)?;
        self.infer_shapes_jointly(&mut shapes)?;
        Ok(shapes)
    }

    /// Infers the dtypes of all entries from `given` (by variable name) and the variables'
    /// attributes.
    pub fn types_from(&self, given: &[(String, DType)]) -> Result<Vec<Option<DType>>> {
        let mut types = self.types_seed(given)?;
        self.infer_types(&mut types)?;
        Ok(types)
    }
}
