//! Builds the nodes of a symbol file.

use super::super::body::Subgraph;
use super::super::static_graph::{Dict, empty_attrs};
use super::super::symbol::{SymEntry, SymNode, Symbol, parse_dict};
use super::backward;
use super::raw::{Raw, RawGraph};
use super::upgrade;
use crate::error::{AtNode, Error, Result};
use crate::operator::{InGradient, OpDef, Registry, Value};
use std::sync::Arc;

/// Sorts nodes after their dependencies, otherwise in the file's order; a cycle is an error.
fn topological(raw: &[Raw]) -> Result<Vec<usize>> {
    let needs = |n: usize| raw[n].needs();
    if (0..raw.len()).all(|n| needs(n).all(|d| d < n)) {
        return Ok((0..raw.len()).collect());
    }
    let mut waiting: Vec<usize> = (0..raw.len()).map(|n| needs(n).count()).collect();
    let mut users = vec![Vec::new(); raw.len()];
    for n in 0..raw.len() {
        needs(n).for_each(|d| users[d].push(n));
    }
    let mut ready: std::collections::BinaryHeap<_> =
        (0..raw.len()).filter(|&n| waiting[n] == 0).map(std::cmp::Reverse).collect();
    let mut order = Vec::with_capacity(raw.len());
    while let Some(std::cmp::Reverse(n)) = ready.pop() {
        order.push(n);
        for &u in &users[n] {
            waiting[u] -= 1;
            if waiting[u] == 0 {
                ready.push(std::cmp::Reverse(u));
            }
        }
    }
    if order.len() < raw.len() {
        let stuck: Vec<_> = (0..raw.len())
            .filter(|&n| waiting[n] > 0)
            .take(5)
            .map(|n| format!("'{}'", raw[n].name))
            .collect();
        return Err(Error::value(format!(
            "invalid inputs of {}: expected a graph without cycles",
            stuck.join(", ")
        )));
    }
    Ok(order)
}

/// The nodes built from a file.
pub(super) struct Built {
    made: Vec<Option<Made>>,
    topological: Vec<usize>,
}

/// The result of building one node of a file.
enum Made {
    Node(Arc<SymNode>),
    /// A backward node of version 0.8: the gradients of its forward node's inputs.
    Gradients {
        name: String,
        of: Vec<SymEntry>,
    },
}

impl Built {
    /// Returns the node built from node `id` of the file, `None` if there are several.
    pub fn node(&self, id: usize) -> Option<&Arc<SymNode>> {
        match self.made[id].as_ref()? {
            Made::Node(node) => Some(node),
            Made::Gradients { of, .. } => {
                let first = &of.first()?.node;
                of.iter().all(|e| Arc::ptr_eq(&e.node, first)).then_some(first)
            }
        }
    }

    /// All nodes, each after its dependencies.
    pub fn order(&self) -> Vec<Arc<SymNode>> {
        let mut outputs = Vec::new();
        for made in self.topological.iter().filter_map(|&id| self.made[id].as_ref()) {
            match made {
                Made::Node(node) => outputs.push(SymEntry { node: node.clone(), index: 0 }),
                Made::Gradients { of, .. } => outputs.extend(of.iter().cloned()),
            }
        }
        Symbol { outputs }.nodes()
    }

    pub fn heads(&self, heads: &[(usize, u32)]) -> Result<Vec<SymEntry>> {
        heads.iter().map(|&(id, index)| self.entry(id, index, "a head")).collect()
    }

    /// Returns output `index` of node `id` of the file; an error names `by` as the reader.
    pub fn entry(&self, id: usize, index: u32, by: &str) -> Result<SymEntry> {
        let (name, count) = match &self.made[id] {
            Some(Made::Node(node)) if (index as usize) < node.num_outputs => {
                return Ok(SymEntry { node: node.clone(), index });
            }
            Some(Made::Gradients { of, .. }) if (index as usize) < of.len() => {
                return Ok(of[index as usize].clone());
            }
            Some(Made::Node(node)) => (node.name(), node.num_outputs),
            Some(Made::Gradients { name, of }) => (name.clone(), of.len()),
            None => return Err(Error::internal("a node was built before its inputs")),
        };
        Err(Error::value(format!(
            "{by} refers to output {index} of '{name}': expected less than {count}, its number of \
             outputs"
        )))
    }
}

/// Builds the nodes. Unknown operators, those of graphs inside nodes too, are reported all at once,
/// or with `allow_unknown` become stand-ins.
pub(super) fn build(
    raw: &[Raw],
    heads: &[(usize, u32)],
    version: i64,
    registry: &Registry,
    allow_unknown: bool,
) -> Result<Built> {
    let mut builder = Builder { version, registry, unknown: Vec::new() };
    let built = builder.nodes(raw, heads)?;
    match builder.unknown.is_empty() || allow_unknown {
        true => Ok(built),
        false => Err(refusal(&builder.unknown)),
    }
}

/// What the graph of a file and the graphs inside of it are built with.
struct Builder<'a> {
    version: i64,
    registry: &'a Registry,
    /// Nodes whose operators nobody registered.
    unknown: Vec<&'a Raw>,
}

impl<'a> Builder<'a> {
    fn nodes(&mut self, raw: &'a [Raw], heads: &[(usize, u32)]) -> Result<Built> {
        let made = std::iter::repeat_with(|| None).take(raw.len()).collect();
        let mut built = Built { made, topological: topological(raw)? };
        let outputs = outputs_used(raw, heads);
        for at in 0..raw.len() {
            let id = built.topological[at];
            built.made[id] = Some(self.node(&raw[id], outputs[id], &built)?);
        }
        Ok(built)
    }

    fn node(&mut self, raw: &'a Raw, outputs: u32, built: &Built) -> Result<Made> {
        match (raw.op.as_str(), raw.backward_source) {
            ("null", Some(source)) => {
                let of = backward::gradients(raw, source, built, self.registry)?;
                return Ok(Made::Gradients { name: raw.name.clone(), of });
            }
            ("null", None) => return Ok(Made::Node(Arc::new(variable(raw)?))),
            _ => {}
        }
        let op = self.registry.get(&raw.op).unwrap_or_else(|| {
            // A stand-in, also where it is refused, so that the other nodes are checked.
            if raw.op != "Custom" {
                self.unknown.push(raw);
            }
            Arc::new(stand_in(raw, outputs))
        });
        let bodies = self.bodies(raw)?;
        let node = operator(raw, op, bodies, built, self.version, outputs)?;
        Ok(Made::Node(Arc::new(node)))
    }

    /// The graphs inside a node.
    fn bodies(&mut self, raw: &'a Raw) -> Result<Vec<Symbol>> {
        let mut symbol = |body: &'a RawGraph| {
            let built = self.nodes(&body.nodes, &body.heads)?;
            Ok(Symbol { outputs: built.heads(&body.heads)? })
        };
        let inside =
            |e: Error| Error::new(e.kind(), format!("subgraph of '{}': {}", raw.name, e.message()));
        raw.bodies.iter().map(|body| symbol(body).map_err(inside)).collect()
    }
}

/// Nodes that the error for one unknown operator names.
const MOST_NODES: usize = 3;

/// The error that names all unknown operators, with some of their nodes.
fn refusal(unknown: &[&Raw]) -> Error {
    let mut by_type: Vec<(&Raw, Vec<&str>)> = Vec::new();
    for node in unknown {
        match by_type.iter_mut().find(|(first, _)| first.op == node.op) {
            Some((_, names)) => names.push(&node.name),
            None => by_type.push((node, vec![&node.name])),
        }
    }
    let line = |(first, names): &(&Raw, Vec<&str>)| {
        let more = match names.len().saturating_sub(MOST_NODES) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let shown = names[..names.len().min(MOST_NODES)].join(", ");
        let op = &first.op;
        let library = first.library.as_ref().map_or_else(String::new, |library| {
            format!(" (it is of library '{library}': rsnet.load_library(\".../{library}\"))")
        });
        format!(
            "Failed loading Op {shown}{more} of type {op}: operator {op} is not registered{library}"
        )
    };
    let lines: Vec<String> = by_type.iter().map(line).collect();
    Error::not_implemented(lines.join("\n"))
}

/// The number of outputs of each node that inputs and heads refer to.
fn outputs_used(raw: &[Raw], heads: &[(usize, u32)]) -> Vec<u32> {
    let mut used = vec![1; raw.len()];
    for &(id, index) in raw.iter().flat_map(|n| &n.inputs).chain(heads) {
        used[id] = used[id].max(index.saturating_add(1));
    }
    used
}

fn variable(raw: &Raw) -> Result<SymNode> {
    if !raw.inputs.is_empty() {
        return Err(Error::value(format!("variable '{}' has inputs: expected none", raw.name)));
    }
    let node = SymNode::new(None, raw.name.clone(), empty_attrs());
    node.set_dict(Arc::new(raw.dict.clone()));
    Ok(node)
}

/// Maximum number of outputs of a node whose operator is not known.
const MOST_OUTPUTS: u32 = 4096;

/// An operator of which only the arity is known; its inference fails and says what is missing.
fn stand_in(raw: &Raw, outputs: u32) -> OpDef {
    let outputs = outputs.min(MOST_OUTPUTS);
    let inputs: Vec<String> = (0..raw.inputs.len()).map(|i| format!("arg{i}")).collect();
    let message = match (raw.op.as_str(), raw.dict.get("op_type")) {
        ("Custom", Some(op_type)) => format!("custom operator '{op_type}' is not registered"),
        (op, _) => format!("operator '{op}' is not registered"),
    };
    let mut op = OpDef::plain(&raw.op)
        .not_deterministic()
        .no_auto_variables()
        .holds_graphs(raw.bodies.len())
        .input_names_by(move |_| inputs.clone())
        .infer_shape(move |_, _, _| Err(Error::not_implemented(message.clone())));
    if outputs > 1 {
        op = op.output_names_by(move |_| (0..outputs).map(|i| format!("output{i}")).collect());
    }
    op
}

/// Builds a backward node of a saved gradient. It has the parameters of its forward node, but for
/// those that its library set on it, and its outputs are the gradients of that node's inputs.
fn backward_node(
    raw: &Raw,
    op: Arc<OpDef>,
    built: &Built,
    forward: &Arc<SymNode>,
) -> Result<SymNode> {
    let InGradient { attrs, .. } = match &forward.op {
        Some(of) => {
            let attrs = forward.meta().attrs.clone();
            let set = raw.dict.iter().filter(|(k, _)| op.has_param(k));
            let set = set.map(|(k, v)| (k.as_str(), Value::Str(v.clone())));
            let own = match op.library.is_some() && op.is_backward {
                true => op.own_params(of, &attrs, set.collect()),
                false => Vec::new(),
            };
            op.in_gradient_of(of, &attrs, &own, raw.inputs.len(), forward.inputs.len())
                .at_node(&op.name, &raw.name)?
        }
        None => {
            return Err(Error::value("a variable has no gradient").at_node(&op.name, &raw.name));
        }
    };
    let mut node = SymNode::new(Some(op), raw.name.clone(), attrs);
    node.set_dict(Arc::new(raw.dict.clone()));
    for &(id, index) in &raw.inputs {
        node.inputs.push(built.entry(id, index, &format!("node '{}'", raw.name))?);
    }
    node.control = raw.control.iter().filter_map(|&c| built.node(c).cloned()).collect();
    node.backward_of = Some(forward.clone());
    node.num_outputs = forward.inputs.len();
    Ok(node)
}

/// Tells `Custom` how many inputs and outputs the file gives a node, which matters while the class
/// of its type is not registered. No parameter of a class begins with `@`.
fn with_arity(op: &OpDef, raw: &Raw, outputs: u32, dict: &Dict) -> Dict {
    let mut dict = dict.clone();
    if op.name == "Custom" {
        dict.insert("@num_inputs".into(), raw.inputs.len().to_string());
        dict.insert("@num_outputs".into(), outputs.min(MOST_OUTPUTS).to_string());
    }
    dict
}

fn operator(
    raw: &Raw,
    op: Arc<OpDef>,
    bodies: Vec<Symbol>,
    built: &Built,
    version: i64,
    outputs: u32,
) -> Result<SymNode> {
    let forward =
        raw.backward_source.or(raw.control.first().copied()).and_then(|at| built.node(at));
    if op.is_backward
        && let Some(forward) = forward.filter(|f| !f.is_variable())
    {
        return backward_node(raw, op, built, forward);
    }
    let mut dict = raw.dict.clone();
    if let Some(count) = &op.key_var_num_args {
        dict.entry(count.clone()).or_insert_with(|| raw.inputs.len().to_string());
    }
    let attrs = parse_dict(&op, &with_arity(&op, raw, outputs, &dict), &raw.name);
    let held = Subgraph::all(&op, bodies).map_err(|e| e.at_node(&op.name, &raw.name))?;
    let attrs = attrs?.with_bodies(held);
    let mut node = SymNode::new(Some(op.clone()), raw.name.clone(), Arc::new(attrs));
    node.set_dict(Arc::new(dict));
    let wanted = op.num_inputs(&node.meta().attrs);
    let got = raw.inputs.len();
    if got > wanted || (got < wanted && version >= upgrade::AUX_ARE_NODES) {
        return Err(Error::invalid("number of inputs", got, wanted).at_node(&op.name, &raw.name));
    }
    let mut given = Vec::with_capacity(wanted);
    for &(id, index) in &raw.inputs {
        given.push(Some(built.entry(id, index, &format!("node '{}'", raw.name))?));
    }
    given.resize_with(wanted, || None);
    upgrade::connect(&mut node, &op, given, version)?;
    for &c in &raw.control {
        node.control.extend(built.node(c).cloned());
    }
    Ok(node)
}
