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
use crate::operator::{Registry, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What is given about devices.
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
            Error::value(format!("The device assignment not found for group {group}"))
                .in_operator(node.op_name())
                .in_node(&node.name)
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

fn insert_copies(
    done: &mut Differentiated,
    arguments: &mut [u32],
    aux: &mut [u32],
    registry: &Registry,
) -> Result<()> {
    let old = std::mem::take(&mut done.graph);
    let (old_shapes, old_types) =
        (std::mem::take(&mut done.shapes), std::mem::take(&mut done.types));
    let mut nodes: Vec<Node> = Vec::with_capacity(old.nodes.len());
    let mut sources: Vec<Option<Entry>> = Vec::new();
    let mut new = Renumbering::of(old.nodes.len());
    let mut copies: HashMap<(Entry, Context), u32> = HashMap::new();
    let mut num_forward = 0;
    let wanted: Vec<(usize, Context)> = done
        .arg_grads
        .iter()
        .enumerate()
        .filter_map(|(i, e)| e.map(|_| (i, old.nodes[arguments[i] as usize].ctx)))
        .collect();
    for (id, node) in old.nodes.iter().enumerate() {
        let mut node = node.clone();
        let mutated = node.op.as_ref().map_or_else(Vec::new, |op| op.mutates.to_vec(&node.attrs));
        for i in 0..node.inputs.len() {
            let e = node.inputs[i];
            let from = &old.nodes[e.node as usize];
            let moved = new.entry(e)?;
            if from.ctx == node.ctx {
                node.inputs[i] = moved;
                continue;
            }
            if mutated.contains(&i) {
                return Err(Error::value(format!(
                    "auxiliary state '{}' is on {}, its operator on {}",
                    from.name, from.ctx, node.ctx
                ))
                .in_operator(node.op_name())
                .in_node(&node.name));
            }
            let copy = match copies.get(&(e, node.ctx)) {
                Some(&copy) => copy,
                None => {
                    nodes.push(copy_node(from, e, moved, node.ctx, registry)?);
                    sources.push(Some(e));
                    copies.insert((e, node.ctx), nodes.len() as u32 - 1);
                    nodes.len() as u32 - 1
                }
            };
            node.inputs[i] = Entry::new(copy, 0);
        }
        for c in &mut node.control {
            *c = new.node(*c)?;
        }
        node.backward_of = node.backward_of.map(|f| new.node(f)).transpose()?;
        node.mirror_of = node.mirror_of.map(|f| new.node(f)).transpose()?;
        new.push(nodes.len() as u32);
        nodes.push(node);
        sources.push(None);
        if id + 1 == old.num_forward {
            num_forward = nodes.len();
        }
    }
    for (i, ctx) in wanted {
        let Some(e) = done.arg_grads[i] else { continue };
        let moved = new.entry(e)?;
        let from = &old.nodes[e.node as usize];
        done.arg_grads[i] = Some(if from.ctx == ctx {
            moved
        } else {
            nodes.push(copy_node(from, e, moved, ctx, registry)?);
            sources.push(Some(e));
            Entry::new(nodes.len() as u32 - 1, 0)
        });
    }
    let heads = old.heads.iter().map(|&h| new.entry(h)).collect::<Result<_>>()?;
    done.graph = Graph::new(nodes, heads, num_forward);
    let mut origin = vec![0usize; done.graph.num_entries()];
    for id in 0..old.nodes.len() {
        let moved = new.node(id as u32)? as usize;
        for (at, from) in done.graph.entries_of(moved).zip(old.entries_of(id)) {
            origin[at] = from;
        }
    }
    for (copy, source) in sources.iter().enumerate() {
        if let Some(e) = source {
            origin[done.graph.entries_of(copy).start] = old.entry_id(*e);
        }
    }
    done.shapes = origin.iter().map(|&from| old_shapes[from].clone()).collect();
    done.types = origin.iter().map(|&from| old_types[from]).collect();
    for id in arguments.iter_mut().chain(aux) {
        *id = new.node(*id)?;
    }
    for g in done.head_grads.iter_mut().flatten() {
        *g = new.node(*g)?;
    }
    Ok(())
}

/// `<source>_<output>_copy` on the other device.
fn copy_node(
    from: &Node,
    e: Entry,
    moved: Entry,
    ctx: Context,
    registry: &Registry,
) -> Result<Node> {
    let op = match registry.get("_CrossDeviceCopy") {
        Some(op) => op,
        None => registry.find("_copy")?,
    };
    let none: &[(&str, Value)] = &[];
    let attrs = Arc::new(op.parse(none)?);
    let name = format!("{}_{}_copy", from.name, e.index);
    Ok(Node { op: Some(op), attrs, inputs: vec![moved], ctx, ..Node::variable(name) })
}
