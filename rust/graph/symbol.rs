//! Symbols: the expressions that a program composes.
//!
//! A symbol is a list of heads into a graph of shared nodes. A composed node never changes, except
//! for its attributes: `attr_set` changes them for every symbol that shares the node. Composing a
//! composed symbol copies its graph first. All traversals are iterative, and so is dropping a
//! symbol, because a graph may be 100,000 nodes deep.

mod create;
mod cut;
mod inputs;

pub use create::Create;
pub use cut::Cut;
pub(super) use inputs::fill_inputs;
use inputs::{arrange_inputs, check_mutated};

use super::static_graph::{Dict, empty_attrs, output_names};
use crate::error::{Error, Result};
use crate::lock::RwLock;
use crate::operator::{Attrs, OpDef, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::sync::RwLockReadGuard;

/// The attributes that are stored as `__key__` whichever way they are spelt.
pub const HIDDEN_KEYS: [&str; 5] =
    ["ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage"];

/// The mutable part of a composed node.
#[derive(Clone)]
pub struct Meta {
    pub name: String,
    pub attrs: Arc<Attrs>,
    pub dict: Arc<Dict>,
}

/// A node of the graph.
pub struct SymNode {
    /// `None` for a variable.
    pub op: Option<Arc<OpDef>>,
    pub inputs: Vec<SymEntry>,
    pub control: Vec<Arc<SymNode>>,
    /// The node that a backward node differentiates.
    pub backward_of: Option<Arc<SymNode>>,
    pub num_outputs: usize,
    meta: RwLock<Meta>,
}

/// One output of a node.
#[derive(Clone)]
pub struct SymEntry {
    pub node: Arc<SymNode>,
    pub index: u32,
}

/// Values by node. A walk asks for one at every edge, and a user cannot choose addresses that
/// collide: a multiplication is hash enough.
pub type NodeMap<V> = FxHashMap<*const SymNode, V>;
pub type NodeSet = FxHashSet<*const SymNode>;

/// Heads into the graph.
#[derive(Clone, Default)]
pub struct Symbol {
    pub outputs: Vec<SymEntry>,
}

impl Drop for SymNode {
    /// Frees nodes from an explicit list: recursion would overflow the stack on a deep graph.
    fn drop(&mut self) {
        let mut unowned: Vec<Arc<SymNode>> = Vec::new();
        self.release(&mut unowned);
        while let Some(node) = unowned.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                node.release(&mut unowned);
            }
        }
    }
}

impl SymNode {
    pub fn new(op: Option<Arc<OpDef>>, name: String, attrs: Arc<Attrs>) -> Self {
        let num_outputs = op.as_ref().map_or(1, |op| op.num_outputs(&attrs));
        let meta = RwLock::new(Meta { name, attrs, dict: Arc::default() });
        let (inputs, control) = (Vec::new(), Vec::new());
        SymNode { op, inputs, control, backward_of: None, num_outputs, meta }
    }

    /// A node like this one, without inputs.
    fn copy(&self) -> SymNode {
        let meta = self.meta().clone();
        let mut copy = SymNode::new(self.op.clone(), meta.name, meta.attrs);
        copy.set_dict(meta.dict);
        copy.num_outputs = self.num_outputs;
        copy
    }

    fn release(&mut self, into: &mut Vec<Arc<SymNode>>) {
        into.extend(self.inputs.drain(..).map(|e| e.node));
        into.append(&mut self.control);
        into.extend(self.backward_of.take());
    }

    /// What the node comes after, by position: its inputs' nodes, then those without data.
    fn predecessor(&self, at: usize) -> Option<&Arc<SymNode>> {
        let Some(beyond) = at.checked_sub(self.inputs.len()) else {
            return self.inputs.get(at).map(|e| &e.node);
        };
        let last = || self.backward_of.as_ref().filter(|_| beyond == self.control.len());
        self.control.get(beyond).or_else(last)
    }

    /// Name, parameters and attributes.
    pub fn meta(&self) -> RwLockReadGuard<'_, Meta> {
        self.meta.read()
    }

    pub fn set_dict(&self, dict: Arc<Dict>) {
        self.meta.write().dict = dict;
    }

    pub fn name(&self) -> String {
        self.meta.read().name.clone()
    }

    pub fn is_variable(&self) -> bool {
        self.op.is_none()
    }

    pub fn op_name(&self) -> &str {
        self.op.as_ref().map_or("null", |op| &op.name)
    }

    pub fn num_visible_outputs(&self) -> usize {
        match &self.op {
            Some(op) if self.backward_of.is_none() => {
                op.num_visible_outputs(&self.meta.read().attrs).min(self.num_outputs)
            }
            _ => self.num_outputs,
        }
    }

    /// Inputs that the operator modifies.
    pub fn mutated_inputs(&self) -> Vec<usize> {
        self.op.as_ref().map_or_else(Vec::new, |op| op.mutates.to_vec(&self.meta.read().attrs))
    }

    /// The names of all outputs; see [`Graph::entry_name`](super::Graph::entry_name).
    pub fn output_names(&self) -> Vec<String> {
        let meta = self.meta.read();
        let Some(op) = &self.op else { return vec![meta.name.clone()] };
        let forward = self.backward_of.as_ref().and_then(|f| Some((f.op.as_ref()?, f.meta())));
        let of = forward.as_ref().map(|(of, meta)| (*of, &*meta.attrs));
        output_names(&meta.name, self.num_outputs, op, &meta.attrs, of)
    }

    /// Changes attributes and parses the parameters again; nothing changes on an error.
    pub fn edit(&self, change: impl FnOnce(&mut Dict)) -> Result<()> {
        let mut meta = self.meta.write();
        let mut dict = (*meta.dict).clone();
        change(&mut dict);
        if let Some(op) = &self.op {
            let attrs = parse_dict(op, &dict, &meta.name)?;
            let bodies = meta.attrs.bodies().cloned();
            meta.attrs = Arc::new(attrs.with_bodies(bodies));
        }
        meta.dict = Arc::new(dict);
        Ok(())
    }

    pub(super) fn rename(&self, name: &str) {
        self.meta.write().name = name.to_owned();
    }
}

/// Parses the parameters among the attributes of node `name`; attributes that are not parameters of
/// the operator are skipped.
pub fn parse_dict(op: &OpDef, dict: &Dict, name: &str) -> Result<Attrs> {
    let free_form = op.schema.open || op.schema.fields.is_empty();
    let given: Vec<(&str, Value)> = dict
        .iter()
        .filter(|(k, _)| free_form || op.has_param(k))
        .map(|(k, v)| (k.as_str(), Value::Str(v.clone())))
        .collect();
    op.parse_at(&given, name)
}

/// The stored spelling of an attribute key.
pub fn stored_key(key: &str) -> String {
    if HIDDEN_KEYS.contains(&key) { format!("__{key}__") } else { key.to_owned() }
}

impl Symbol {
    pub fn from_node(node: Arc<SymNode>) -> Symbol {
        let visible = node.num_visible_outputs() as u32;
        let head = |index| SymEntry { node: node.clone(), index };
        Symbol { outputs: (0..visible).map(head).collect() }
    }

    /// A variable.
    pub fn variable(name: &str, dict: Dict) -> Symbol {
        let node = SymNode::new(None, name.to_owned(), empty_attrs());
        node.set_dict(Arc::new(dict.into_iter().map(|(k, v)| (stored_key(&k), v)).collect()));
        Symbol::from_node(Arc::new(node))
    }

    /// One symbol with the heads of several.
    pub fn group(symbols: &[Symbol]) -> Symbol {
        Symbol { outputs: symbols.iter().flat_map(|s| s.outputs.iter().cloned()).collect() }
    }

    /// The operator of the head alone: a symbol that takes its inputs when it is composed; `None`
    /// for a variable.
    pub fn atomic(&self) -> Option<Symbol> {
        let head = &self.outputs.first()?.node;
        head.op.as_ref()?;
        let alone = head.copy();
        alone.rename("");
        Some(Symbol::from_node(Arc::new(alone)))
    }

    /// The operator of a symbol that waits for its inputs.
    fn waiting(&self) -> Option<&Arc<OpDef>> {
        let node = &self.outputs.first()?.node;
        let op = node.op.as_ref().filter(|_| node.inputs.is_empty())?;
        (!op.inputs(&node.meta().attrs).is_empty()).then_some(op)
    }

    /// Gives the inputs to a symbol that waits for them; those that are missing become variables.
    fn complete(
        &self,
        op: &Arc<OpDef>,
        name: Option<&str>,
        args: &[Symbol],
        kwargs: &[(String, Symbol)],
    ) -> Result<Symbol> {
        let mut node = self.outputs[0].node.copy();
        node.rename(name.unwrap_or_default());
        let given = arrange_inputs(&node, op, args, kwargs)?;
        fill_inputs(&mut node, op, given)?;
        Ok(Symbol::from_node(Arc::new(node)))
    }

    /// Returns a copy with variables replaced, by position (in the order of
    /// [`Symbol::positional_variables`]) or by name.
    pub fn compose(
        &self,
        name: Option<&str>,
        args: &[Symbol],
        kwargs: &[(String, Symbol)],
    ) -> Result<Symbol> {
        if !args.is_empty() && !kwargs.is_empty() {
            return Err(Error::type_(
                "compose only accept input Symbols \
                either as positional or keyword arguments, not both",
            ));
        }
        if let Some(op) = self.waiting() {
            return self.complete(op, name, args, kwargs);
        }
        if self.outputs.iter().all(|e| e.node.is_variable())
            && !(args.is_empty() && kwargs.is_empty())
        {
            return Err(Error::value(
                "Variable cannot be composed: expected the output of an operator",
            ));
        }
        let mut replace = NodeMap::<SymEntry>::default();
        if !args.is_empty() {
            let variables = self.positional_variables();
            if variables.len() != args.len() {
                return Err(Error::value(format!(
                    "Incorrect number of arguments, requires {}, provided {}",
                    variables.len(),
                    args.len()
                )));
            }
            for (i, (v, a)) in variables.iter().zip(args).enumerate() {
                replace.insert(Arc::as_ptr(v), a.single(&format!("Argument {i}"))?);
            }
        }
        let inputs = if kwargs.is_empty() { Vec::new() } else { self.all_variables() };
        for (key, symbol) in kwargs {
            let value = symbol.single(&format!("Keyword Argument {key}"))?;
            let before = replace.len();
            for v in inputs.iter().filter(|v| v.meta().name == *key) {
                replace.insert(Arc::as_ptr(v), value.clone());
            }
            if replace.len() == before {
                let names: Vec<_> = inputs.iter().map(|v| v.name()).collect();
                return Err(Error::unknown("argument", key, &names));
            }
        }
        let copy = self.copy_with(&replace)?;
        if let (Some(name), Some(head)) = (name, copy.outputs.first()) {
            head.node.rename(name);
        }
        Ok(copy)
    }

    /// The arguments in the order of composition by position. It is MXNet's: depth first from the
    /// last head and the last input, so `v1 - exp(v2)` has `v2` before `v1`.
    pub fn positional_variables(&self) -> Vec<Arc<SymNode>> {
        let arguments = self.variables(false);
        let mut waiting: NodeSet = arguments.iter().map(Arc::as_ptr).collect();
        let mut found = Vec::with_capacity(arguments.len());
        let mut seen = NodeSet::default();
        let mut stack: Vec<Arc<SymNode>> = self.outputs.iter().map(|e| e.node.clone()).collect();
        while let Some(node) = stack.pop() {
            if !seen.insert(Arc::as_ptr(&node)) {
                continue;
            }
            if waiting.remove(&Arc::as_ptr(&node)) {
                found.push(node.clone());
            }
            stack.extend(node.inputs.iter().map(|e| e.node.clone()));
        }
        // Variables that are reachable through control dependencies only come last.
        found.extend(arguments.into_iter().filter(|v| waiting.contains(&Arc::as_ptr(v))));
        found
    }

    /// A copy that shares no node with this symbol.
    pub fn deep_copy(&self) -> Result<Symbol> {
        self.copy_with(&NodeMap::default())
    }

    fn copy_with(&self, replace: &NodeMap<SymEntry>) -> Result<Symbol> {
        let mut copies = NodeMap::<Arc<SymNode>>::default();
        let entry = |copies: &NodeMap<Arc<SymNode>>, e: &SymEntry| {
            let at = Arc::as_ptr(&e.node);
            match (replace.get(&at), copies.get(&at)) {
                (Some(new), _) => Ok(new.clone()),
                (None, Some(node)) => Ok(SymEntry { node: node.clone(), index: e.index }),
                _ => Err(Error::internal("a node was copied before its inputs")),
            }
        };
        for node in self.nodes() {
            let mut copy = node.copy();
            for e in &node.inputs {
                copy.inputs.push(entry(&copies, e)?);
            }
            let link = |n: &Arc<SymNode>| copies.get(&Arc::as_ptr(n)).cloned();
            copy.control = node.control.iter().filter_map(link).collect();
            copy.backward_of = node.backward_of.as_ref().and_then(link);
            check_mutated(&copy)?;
            copies.insert(Arc::as_ptr(&node), Arc::new(copy));
        }
        let outputs = self.outputs.iter().map(|e| entry(&copies, e)).collect::<Result<_>>()?;
        Ok(Symbol { outputs })
    }

    /// The only output; an error names `what` if there are several.
    fn single(&self, what: &str) -> Result<SymEntry> {
        match &*self.outputs {
            [one] => Ok(one.clone()),
            _ => Err(Error::value(format!(
                "{what} is a tuple with {} elements, single value is required",
                self.outputs.len()
            ))),
        }
    }

    /// All nodes in depth-first post order: inputs before their consumers, heads in order.
    pub fn nodes(&self) -> Vec<Arc<SymNode>> {
        self.walk().into_iter().cloned().collect()
    }

    /// As [`Symbol::nodes`], borrowed.
    pub fn walk(&self) -> Vec<&Arc<SymNode>> {
        let mut order = Vec::new();
        let mut seen = NodeSet::default();
        let mut stack: Vec<(&Arc<SymNode>, usize)> = Vec::new();
        for head in &self.outputs {
            if seen.insert(Arc::as_ptr(&head.node)) {
                stack.push((&head.node, 0));
            }
            while let Some((node, at)) = stack.last_mut() {
                let next = node.predecessor(*at);
                *at += 1;
                match next {
                    Some(n) if seen.insert(Arc::as_ptr(n)) => stack.push((n, 0)),
                    Some(_) => {}
                    None => order.extend(stack.pop().map(|(node, _)| node)),
                }
            }
        }
        order
    }

    /// All variables in depth-first order.
    pub fn all_variables(&self) -> Vec<Arc<SymNode>> {
        self.walk().into_iter().filter(|n| n.is_variable()).cloned().collect()
    }

    /// With `aux` the variables that an operator modifies, else all other variables.
    pub fn variables(&self, aux: bool) -> Vec<Arc<SymNode>> {
        let (arguments, states) = self.arguments_and_states();
        let chosen = if aux { states } else { arguments };
        chosen.into_iter().cloned().collect()
    }

    /// The variables in depth-first order: those that no operator modifies, and the others.
    pub fn arguments_and_states(&self) -> (Vec<&Arc<SymNode>>, Vec<&Arc<SymNode>>) {
        let nodes = self.walk();
        let mut mutated = NodeSet::default();
        for node in &nodes {
            for i in node.mutated_inputs() {
                mutated.extend(node.inputs.get(i).map(|e| Arc::as_ptr(&e.node)));
            }
        }
        let variables = nodes.into_iter().filter(|n| n.is_variable());
        variables.partition(|n| !mutated.contains(&Arc::as_ptr(n)))
    }
}
