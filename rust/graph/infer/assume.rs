//! Dtypes of variables that nothing determines: what operators demand of them, or else float32.
//!
//! Each is an assumption, made for one variable after another and followed through the graph. One
//! that an operator refuses, near or far, is taken back, and another dtype is tried: so a variable
//! that several operators read gets a dtype that all of them take, in whatever order they come.
//! Variables of which a rule demands a dtype come first, since what they get may decide others.

use super::joint::Joint;
use super::{Fact, Sweep, Sweeper};
use crate::dtype::DType;
use crate::error::{Error, Result, guarded};
use crate::graph::static_graph::{Entry, Graph};
use std::fmt::Write;

/// What was assumed, and how the last assumption fared.
#[derive(Default)]
pub(super) struct Assumptions {
    /// Entries of variables, with their dtypes.
    made: Vec<(usize, DType)>,
    /// Is one being tried, so that a refusal is an error although a dtype is unknown?
    is_trying: bool,
    /// Nodes with a joint rule that a new fact has reached: they may demand more now.
    reached: Vec<usize>,
    /// The last error came from a rule that did not know all dtypes: what it said may be wrong.
    is_guess: bool,
}

impl Assumptions {
    pub(super) fn counts_refusals(&self) -> bool {
        self.is_trying
    }

    /// Those of a graph inside of a node, which makes none itself.
    pub(super) fn inside(&self) -> Assumptions {
        Assumptions { is_trying: self.is_trying, ..Assumptions::default() }
    }

    pub(super) fn is_guess(&self) -> bool {
        self.is_guess
    }

    /// The error of a rule that knows all dtypes, or `is_open`: only some.
    pub(super) fn refused(&mut self, error: Error, is_open: bool) -> Error {
        self.is_guess = is_open;
        error
    }
}

impl Joint<'_> {
    /// Assumes dtypes of all variables that have none.
    pub(super) fn assume_the_rest(&mut self) -> Result<()> {
        let graph = self.types.graph;
        let variables = (0..graph.nodes.len()).filter(|&id| graph.nodes[id].is_variable());
        let mut untyped: Vec<usize> = variables.map(|id| graph.entries_of(id).start).collect();
        untyped.retain(|&at| self.types.facts[at].is_none());
        if untyped.is_empty() {
            return Ok(());
        }
        let readers = graph.readers();
        let may_refuse = graph.has_joint_rules();
        let joint = (0..graph.nodes.len()).filter(|&id| graph.is_joint(id));
        self.assumptions.reached = joint.collect();
        self.assume_what_is_demanded(&readers)?;
        while !untyped.is_empty() {
            let mut later = Vec::new();
            for at in untyped.iter().copied() {
                if self.types.facts[at].is_none() {
                    // What a rule demands of it counts first; it may need shapes for that.
                    match self.is_read_by_a_waiting_rule(&readers[at]) {
                        true => later.push(at),
                        false => self.assume(at, &readers, may_refuse)?,
                    }
                    self.assume_what_is_demanded(&readers)?;
                }
            }
            if later.len() == untyped.len() {
                self.assume(later.remove(0), &readers, may_refuse)?;
                self.assume_what_is_demanded(&readers)?;
            }
            untyped = later;
        }
        Ok(())
    }

    /// Assumes dtypes of variables of which a rule that was reached demands one, and then of those
    /// of which one is demanded in consequence.
    fn assume_what_is_demanded(&mut self, readers: &[Vec<usize>]) -> Result<()> {
        let graph = self.types.graph;
        while !self.assumptions.reached.is_empty() {
            let mut reached = std::mem::take(&mut self.assumptions.reached);
            reached.sort_unstable();
            reached.dedup();
            for id in reached {
                for (entry, demand) in graph.nodes[id].inputs.iter().zip(self.demands(id)) {
                    let at = graph.entry_id(*entry);
                    let is_variable = graph.nodes[entry.node as usize].is_variable();
                    let is_open = demand.is_some() && self.types.facts[at].is_none();
                    if is_variable && is_open && !self.is_read_by_a_waiting_rule(&readers[at]) {
                        self.assume(at, readers, true)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Does any of the nodes have a joint rule that could not be asked yet, for want of shapes?
    fn is_read_by_a_waiting_rule(&self, readers: &[usize]) -> bool {
        let graph = self.shapes.graph;
        readers.iter().any(|&id| {
            let unknown = |e: &Entry| !self.shapes.facts[graph.entry_id(*e)].known();
            graph.is_joint(id) && graph.nodes[id].inputs.iter().any(unknown)
        })
    }

    /// Takes the variable's entry to be of the first dtype that no operator refuses.
    fn assume(&mut self, at: usize, readers: &[Vec<usize>], may_refuse: bool) -> Result<()> {
        if !may_refuse {
            return self.suppose(at, DType::F32, readers);
        }
        let mut tried: Vec<(DType, Error, bool)> = Vec::new();
        let likely: [fn(&mut Self, usize, &[usize]) -> Vec<DType>; 2] =
            [Self::demanded, Self::others];
        for dtypes in likely {
            for dtype in dtypes(self, at, &readers[at]) {
                if tried.iter().any(|t| t.0 == dtype) {
                    continue;
                }
                match self.attempt(at, dtype, readers) {
                    Ok(()) => return Ok(()),
                    Err(error) => tried.push((dtype, error, self.assumptions.is_guess)),
                }
            }
        }
        // What refused it without knowing all dtypes may take it in the end, and else has the
        // better error then.
        let guesses = tried.iter().filter(|t| t.2);
        match guesses.max_by_key(|t| t.0 == DType::F32) {
            Some((dtype, ..)) => self.suppose(at, *dtype, readers),
            None => match tried.into_iter().next() {
                Some((_, error, _)) => Err(error),
                None => Ok(()),
            },
        }
    }

    /// Takes the entry to be of this dtype, unless an operator refuses it.
    fn attempt(&mut self, at: usize, dtype: DType, readers: &[Vec<usize>]) -> Result<()> {
        self.shapes.begin();
        self.types.begin();
        self.assumptions.is_trying = true;
        self.assumptions.is_guess = false;
        let followed = self.suppose(at, dtype, readers);
        self.assumptions.is_trying = false;
        self.shapes.end(followed.is_ok());
        self.types.end(followed.is_ok());
        if followed.is_err() {
            self.assumptions.made.pop();
        }
        followed
    }

    fn suppose(&mut self, at: usize, dtype: DType, readers: &[Vec<usize>]) -> Result<()> {
        self.assumptions.made.push((at, dtype));
        self.types.learn_at(at, &Some(dtype))?;
        self.spread(at, readers)
    }

    /// What the rules that read the entry demand of it, then float32.
    fn demanded(&mut self, at: usize, readers: &[usize]) -> Vec<DType> {
        let mut dtypes: Vec<DType> = readers.iter().filter_map(|&id| self.demand(id, at)).collect();
        dtypes.push(DType::F32);
        dtypes
    }

    /// What a node's joint rule demands of an entry that is its input.
    pub(super) fn demand(&mut self, id: usize, at: usize) -> Option<DType> {
        let graph = self.types.graph;
        let own = graph.nodes[id].inputs.iter().position(|e| graph.entry_id(*e) == at)?;
        self.demands(id).get(own).copied().flatten()
    }

    /// What a node's joint rule demands of its inputs; nothing if it cannot be asked.
    fn demands(&mut self, id: usize) -> Vec<Option<DType>> {
        let graph = self.types.graph;
        let node = self.shapes.load(id);
        let Some(op) = &node.op else { return Vec::new() };
        let Some(rule) = &op.infer_both else {
            return match &op.infer_through {
                Some(rule) if graph.is_joint(id) => self.demands_inside(id, op, rule),
                _ => Vec::new(),
            };
        };
        self.types.load(id);
        if !self.shapes.ins.iter().all(Fact::known) || self.types.ins.iter().all(Fact::known) {
            return Vec::new();
        }
        let ins = (&*self.shapes.ins, &mut *self.types.ins);
        let outs = (&mut *self.shapes.outs, &mut *self.types.outs);
        guarded(|| rule(&node.attrs, ins, outs)).unwrap_or_default()
    }

    /// Other dtypes: of what is read together with the entry, of indices, of anything.
    fn others(&mut self, _: usize, readers: &[usize]) -> Vec<DType> {
        let graph = self.types.graph;
        let has_rule = readers.iter().filter(|id| graph.is_joint(**id));
        let beside = has_rule.flat_map(|&id| &graph.nodes[id].inputs);
        let beside = beside.filter_map(|e| self.types.facts[graph.entry_id(*e)]);
        let mut dtypes: Vec<DType> = beside.chain([DType::I32, DType::I64]).collect();
        for dtype in self.types.facts.iter().flatten() {
            if !dtypes.contains(dtype) {
                dtypes.push(*dtype);
            }
        }
        dtypes
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
                if graph.is_joint(id) {
                    self.assumptions.reached.push(id);
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

    /// Adds to the error of a node which dtypes were assumed of the variables that it depends on.
    pub(super) fn naming_assumptions(&self, error: Error, id: usize) -> Error {
        const MOST: usize = 8;
        let graph = self.types.graph;
        if self.assumptions.made.is_empty() {
            return error;
        }
        let above = ancestors(graph, id);
        let mut listed = String::new();
        for (n, (at, dtype)) in self
            .assumptions
            .made
            .iter()
            .filter(|(at, _)| above[graph.entry(*at).node as usize])
            .enumerate()
        {
            let name = &graph.nodes[graph.entry(*at).node as usize].name;
            let _ = match n {
                0 => write!(listed, "'{name}' {dtype}"),
                n if n < MOST => write!(listed, ", '{name}' {dtype}"),
                MOST => write!(listed, ", ..."),
                _ => Ok(()),
            };
        }
        match listed.is_empty() {
            true => error,
            false => error.with_note(&format!(
                "assumed dtypes: {listed}; give others by type_dict, or by dtype of the variables"
            )),
        }
    }
}

/// By node: does node `id` depend on it?
fn ancestors(graph: &Graph, id: usize) -> Vec<bool> {
    let mut found = vec![false; graph.nodes.len()];
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        if !std::mem::replace(&mut found[id], true) {
            open.extend(graph.nodes[id].inputs.iter().map(|e| e.node as usize));
        }
    }
    found
}

impl Sweeper<'_, Option<DType>> {
    /// The dtypes of a node's inputs, for an error.
    pub(super) fn list_inputs(&self, id: usize) -> String {
        let node = &self.graph.nodes[id];
        let names = node.op.as_ref().map(|op| op.inputs(&node.attrs)).unwrap_or_default();
        let shown = names
            .iter()
            .zip(&node.inputs)
            .map(|(name, e)| format!("{name} {}", self.facts[self.graph.entry_id(*e)].show()));
        format!("dtypes of the inputs: {}", shown.collect::<Vec<_>>().join(", "))
    }
}
