//! Devices: every node gets one, and copies are put where data crosses.
//!
//! Without groups everything runs on the default device. With them: a node's `ctx_group` decides,
//! then the device of bound arrays, a backward node follows its forward node, others their first
//! placed input, then their consumers; the rest runs on the default device. One copy serves all
//! consumers on one device.

use super::super::static_graph::{Entry, Graph, Node, Renumbering};
use super::gradient::Differentiated;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::operator::{CROSS_DEVICE_COPY, Registry, Value};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Devices fixed by the caller.
pub struct Fixed<'a> {
    pub default: Context,
    pub groups: Option<&'a BTreeMap<String, Context>>,
    pub args: &'a [Option<Context>],
    pub aux: &'a [Option<Context>],
}

/// Assigns devices and inserts copies; renumbers arguments and auxiliary states where nodes move.
pub fn run(
    done: &mut Differentiated,
    arguments: &mut [u32],
    aux: &mut [u32],
    fixed: &Fixed<'_>,
    registry: &Registry,
) -> Result<()> {
    let Some(groups) = fixed.groups else {
        done.graph.nodes.iter_mut().for_each(|n| n.ctx = fixed.default);
        return Ok(());
    };
    let mut ctx: Vec<Option<Context>> = vec![None; done.graph.nodes.len()];
    let bound = arguments.iter().zip(fixed.args).chain(aux.iter().zip(fixed.aux));
    for (&node, given) in bound {
        ctx[node as usize] = *given;
    }
    assign(&done.graph, groups, &mut ctx)?;
    // A head's gradient lives with the head.
    for (head, grad) in done.graph.heads.iter().zip(&done.head_grads) {
        if let Some(grad) = grad {
            ctx[*grad as usize] = ctx[head.node as usize].or(Some(fixed.default));
        }
    }
    for (node, ctx) in done.graph.nodes.iter_mut().zip(ctx) {
        node.ctx = ctx.unwrap_or(fixed.default);
    }
    insert_copies(done, arguments, aux, registry)
}

/// The device of a node's `ctx_group`, if it has one.
pub fn of_group(node: &Node, groups: &BTreeMap<String, Context>) -> Result<Option<Context>> {
    let group = node.dict.get("__ctx_group__").or_else(|| node.dict.get("ctx_group"));
    let find = |group: &String| {
        groups.get(group).copied().ok_or_else(|| {
            let known: Vec<&str> = groups.keys().map(String::as_str).collect();
            Error::value(format!(
                "The device assignment not found for group {group}: expected group2ctx to have it \
                 (it has {})",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            ))
            .at_node(node.op_name(), &node.name)
        })
    };
    group.map(find).transpose()
}

fn assign(
    graph: &Graph,
    groups: &BTreeMap<String, Context>,
    ctx: &mut [Option<Context>],
) -> Result<()> {
    for (id, node) in graph.nodes.iter().enumerate() {
        if ctx[id].is_some() {
            continue;
        }
        ctx[id] = match node.backward_of {
            Some(forward) => ctx[forward as usize],
            None => of_group(node, groups)?
                .or_else(|| node.inputs.iter().find_map(|e| ctx[e.node as usize])),
        };
    }
    for id in (0..graph.nodes.len()).rev() {
        if let Some(own) = ctx[id] {
            for e in &graph.nodes[id].inputs {
                ctx[e.node as usize].get_or_insert(own);
            }
        }
    }
    Ok(())
}

/// Rebuilds the graph with copies in front of the nodes whose inputs are on another device, and
/// renumbers everything that refers to its nodes.
fn insert_copies(
    done: &mut Differentiated,
    arguments: &mut [u32],
    aux: &mut [u32],
    registry: &Registry,
) -> Result<()> {
    let old = std::mem::take(&mut done.graph);
    let mut copier = Copier::new(&old, registry);
    let mut num_forward = 0;
    for id in 0..old.nodes.len() {
        copier.take(id)?;
        if id + 1 == old.num_forward {
            num_forward = copier.nodes.len();
        }
    }
    for (grad, &argument) in done.arg_grads.iter_mut().zip(arguments.iter()) {
        if let Some(e) = grad {
            *grad = Some(copier.gradient(*e, old.nodes[argument as usize].ctx)?);
        }
    }
    let Copier { nodes, sources, new, .. } = copier;
    let heads = old.heads.iter().map(|&h| new.entry(h)).collect::<Result<_>>()?;
    done.graph = Graph::new(nodes, heads, num_forward);
    let origin = origins(&done.graph, &old, &new, &sources)?;
    done.shapes = origin.iter().map(|&from| done.shapes[from].clone()).collect();
    done.types = origin.iter().map(|&from| done.types[from]).collect();
    for id in arguments.iter_mut().chain(aux).chain(done.head_grads.iter_mut().flatten()) {
        *id = new.node(*id)?;
    }
    Ok(())
}

/// By entry of the new graph: the entry of the old graph that has its value.
fn origins(
    graph: &Graph,
    old: &Graph,
    new: &Renumbering,
    sources: &[Option<Entry>],
) -> Result<Vec<usize>> {
    let mut origin = vec![0usize; graph.num_entries()];
    for id in 0..old.nodes.len() {
        let moved = new.node(id as u32)? as usize;
        for (at, from) in graph.entries_of(moved).zip(old.entries_of(id)) {
            origin[at] = from;
        }
    }
    for (copy, source) in sources.iter().enumerate() {
        if let Some(e) = source {
            origin[graph.entries_of(copy).start] = old.entry_id(*e);
        }
    }
    Ok(origin)
}

/// Builds the node list with copies.
struct Copier<'a> {
    old: &'a Graph,
    registry: &'a Registry,
    nodes: Vec<Node>,
    /// By new node: the entry of the old graph that it copies, if it is a copy.
    sources: Vec<Option<Entry>>,
    new: Renumbering,
    /// Copies by the entry of the old graph and the device they are on.
    copies: FxHashMap<(Entry, Context), u32>,
}

impl<'a> Copier<'a> {
    fn new(old: &'a Graph, registry: &'a Registry) -> Self {
        Copier {
            old,
            registry,
            nodes: Vec::with_capacity(old.nodes.len()),
            sources: Vec::new(),
            new: Renumbering::of(old.nodes.len()),
            copies: FxHashMap::default(),
        }
    }

    /// Appends node `id` of the old graph, after the copies of its inputs.
    fn take(&mut self, id: usize) -> Result<()> {
        let mut node = self.old.nodes[id].clone();
        let mutated = node.op.as_ref().map_or_else(Vec::new, |op| op.mutates.to_vec(&node.attrs));
        for i in 0..node.inputs.len() {
            let e = node.inputs[i];
            let from = &self.old.nodes[e.node as usize];
            if from.ctx != node.ctx && mutated.contains(&i) {
                return Err(Error::value(format!(
                    "auxiliary state '{}' is on {}, its operator on {}: expected both on one device",
                    from.name, from.ctx, node.ctx
                ))
                .at_node(node.op_name(), &node.name));
            }
            node.inputs[i] = self.input(e, node.ctx)?;
        }
        for c in &mut node.control {
            *c = self.new.node(*c)?;
        }
        node.backward_of = node.backward_of.map(|f| self.new.node(f)).transpose()?;
        node.mirror_of = node.mirror_of.map(|f| self.new.node(f)).transpose()?;
        self.new.push(self.nodes.len() as u32);
        self.nodes.push(node);
        self.sources.push(None);
        Ok(())
    }

    /// Entry `e` of the old graph as an input on a device; all its readers there share one copy.
    fn input(&mut self, e: Entry, ctx: Context) -> Result<Entry> {
        if self.old.nodes[e.node as usize].ctx == ctx {
            return self.new.entry(e);
        }
        if let Some(&copy) = self.copies.get(&(e, ctx)) {
            return Ok(Entry::new(copy, 0));
        }
        let copy = self.copy(e, ctx)?;
        self.copies.insert((e, ctx), copy.node);
        Ok(copy)
    }

    /// Entry `e` of the old graph as an argument's gradient on a device: a copy is its own, because
    /// it is written to the gradient's array.
    fn gradient(&mut self, e: Entry, ctx: Context) -> Result<Entry> {
        if self.old.nodes[e.node as usize].ctx == ctx {
            self.new.entry(e)
        } else {
            self.copy(e, ctx)
        }
    }

    fn copy(&mut self, e: Entry, ctx: Context) -> Result<Entry> {
        let from = &self.old.nodes[e.node as usize];
        let copy = copy_node(from, e, self.new.entry(e)?, ctx, self.registry)?;
        self.nodes.push(copy);
        self.sources.push(Some(e));
        Ok(Entry::new(self.nodes.len() as u32 - 1, 0))
    }
}

/// `<source>_<output>_copy` on the other device.
fn copy_node(
    from: &Node,
    e: Entry,
    moved: Entry,
    ctx: Context,
    registry: &Registry,
) -> Result<Node> {
    let op = match registry.get(CROSS_DEVICE_COPY) {
        Some(op) => op,
        None => registry.find("_copy")?,
    };
    let none: &[(&str, Value)] = &[];
    let attrs = Arc::new(op.parse(none)?);
    let name = format!("{}_{}_copy", from.name, e.index);
    Ok(Node { op: Some(op), attrs, inputs: vec![moved], ctx, ..Node::variable(name) })
}
