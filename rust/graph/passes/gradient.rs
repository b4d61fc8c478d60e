//! The gradient: backward nodes appended in reverse order of the forward ones.
//!
//! Each operator's rule composes its backward nodes through `Builder`. This pass adds head
//! gradients, sums where several gradients of an entry meet, copies of recomputed nodes, and the
//! gradients of arguments. Nodes are created in execution order: the backward nodes of an operator
//! as soon as its output gradients exist, and a mirrored node right before its first use.

mod builder;

use builder::{Builder, pack, unpack};

use super::super::static_graph::{Entry, Graph, Node};
use super::mirror::Mirror;
use crate::dtype::DType;
use crate::error::{AtNode, Error, ErrorKind, Result};
use crate::operator::{GradBuilder as _, GradEntry, GradNode, Gradient, OpDef, OpReq, Registry};
use crate::shape::Shape;
use rustc_hash::{FxHashMap, FxHashSet};

/// A graph with its backward pass.
pub struct Differentiated {
    pub graph: Graph,
    pub shapes: Vec<Shape>,
    pub types: Vec<DType>,
    /// The gradient variable of each head, `None` where no node reads it.
    pub head_grads: Vec<Option<u32>>,
    /// The gradient of each argument.
    pub arg_grads: Vec<Option<Entry>>,
    given: Vec<Given>,
}

/// The gradient that a node's rule returned for one of its inputs.
struct Given {
    gradient: Entry,
    node: u32,
    input: usize,
}

impl Differentiated {
    /// Keeps only these nodes, in this order. Head gradients that are not among them are dropped.
    pub fn keep(&mut self, kept: &[u32]) -> Result<()> {
        let (graph, new) = self.graph.reorder(kept, self.graph.num_forward)?;
        let entries = |id: &u32| self.graph.entries_of(*id as usize);
        // Before inference the lists are empty.
        if !self.shapes.is_empty() {
            let facts = kept.iter().flat_map(entries);
            self.shapes = facts.clone().map(|e| self.shapes[e].clone()).collect();
            self.types = facts.map(|e| self.types[e]).collect();
        }
        self.graph = graph;
        self.given.retain_mut(|given| {
            let kept = new.entry(given.gradient).ok().zip(new.if_kept(given.node));
            kept.map(|(gradient, node)| (given.gradient, given.node) = (gradient, node)).is_some()
        });
        for e in self.arg_grads.iter_mut().flatten() {
            *e = new.entry(*e)?;
        }
        for g in &mut self.head_grads {
            *g = g.and_then(|g| new.if_kept(g));
        }
        Ok(())
    }

    /// Sorts the nodes as static graphs list them: forward nodes, mirrored copies, variables of
    /// head gradients, backward nodes. Execution order, with each copy right before its first use,
    /// needs less memory.
    pub fn put_copies_first(&mut self) -> Result<()> {
        let head_grads: FxHashSet<u32> = self.head_grads.iter().flatten().copied().collect();
        let group = |id: u32| match &self.graph.nodes[id as usize] {
            _ if (id as usize) < self.graph.num_forward => 0,
            node if node.mirror_of.is_some() => 1,
            _ if head_grads.contains(&id) => 2,
            _ => 3,
        };
        let mut order: Vec<u32> = (0..self.graph.nodes.len() as u32).collect();
        order.sort_by_key(|&id| group(id));
        self.keep(&order)
    }

    /// Returns an error if a gradient differs from its input in shape or dtype. Both must have been
    /// inferred.
    pub fn check_gradients(&self) -> Result<()> {
        for Given { gradient, node, input } in &self.given {
            let node = &self.graph.nodes[*node as usize];
            let (Some(op), Some(of)) = (&node.op, node.inputs.get(*input)) else { continue };
            let (got, want) = (self.graph.entry_id(*gradient), self.graph.entry_id(*of));
            let got = (&self.shapes[got], self.types[got]);
            op.check_gradient(&node.attrs, *input, got, (&self.shapes[want], self.types[want]))
                .at_node(&op.name, &node.name)?;
        }
        Ok(())
    }
}

/// Where the shape and dtype of a head's gradient come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadGrads {
    /// From the array that is passed for it.
    LikeArrays,
    /// From the head: inference passes them through a node `_head_grad_<i>_id`, so that a symbol of
    /// the gradients can be bound without them.
    LikeHeads,
}

/// Appends the backward pass for the arguments whose request is not `Null`.
pub fn run(
    forward: &Graph,
    arguments: &[u32],
    grad_req: &[OpReq],
    mirror: &Mirror,
    registry: &Registry,
    cap: usize,
) -> Result<Differentiated> {
    run_with(forward, arguments, grad_req, mirror, registry, cap, HeadGrads::LikeArrays)
}

/// As [`run`], with a choice of where shape and dtype of head gradients come from.
pub fn run_with(
    forward: &Graph,
    arguments: &[u32],
    grad_req: &[OpReq],
    mirror: &Mirror,
    registry: &Registry,
    cap: usize,
    like: HeadGrads,
) -> Result<Differentiated> {
    let num_forward = forward.nodes.len();
    let mut arg_grads = vec![None; arguments.len()];
    let wanted = reaches(forward, arguments, grad_req);
    let mut builder = Builder {
        nodes: forward.nodes.clone(),
        registry,
        mirror,
        copies: FxHashMap::default(),
        current: 0,
        unnamed: 0,
    };
    let mut head_grads = vec![None; forward.heads.len()];
    let mut given = Vec::new();
    if wanted.contains(&true) {
        let mut grads: Vec<Vec<Entry>> = vec![Vec::new(); forward.num_entries()];
        for (i, head) in forward.heads.iter().enumerate() {
            let name = format!("_head_grad_{i}");
            let id = builder.push(Node::variable(name.as_str()));
            head_grads[i] = Some(id);
            let mut grad = Entry::new(id, 0);
            if like == HeadGrads::LikeHeads {
                let op = "_identity_with_attr_like_rhs";
                let id = builder.make(op, format!("{name}_id"), &[], vec![grad, *head])?;
                grad = Entry::new(id, 0);
            }
            grads[forward.entry_id(*head)].push(grad);
        }
        given = walk_back(forward, &mut builder, &wanted, &mut grads, cap)?;
        arg_grads = collect(forward, &mut builder, arguments, grad_req, grads, cap)?;
    }
    let graph = Graph::new(builder.nodes, forward.heads.clone(), num_forward);
    let mut done = Differentiated {
        graph,
        shapes: Vec::new(),
        types: Vec::new(),
        head_grads,
        arg_grads,
        given,
    };
    drop_unused(&mut done)?;
    Ok(done)
}

/// One flag per node: does it depend on an argument that requests a gradient?
fn reaches(graph: &Graph, arguments: &[u32], grad_req: &[OpReq]) -> Vec<bool> {
    let mut wanted = vec![false; graph.nodes.len()];
    for (&arg, req) in arguments.iter().zip(grad_req) {
        wanted[arg as usize] = *req != OpReq::Null;
    }
    for id in 0..graph.nodes.len() {
        wanted[id] |= graph.nodes[id].inputs.iter().any(|e| wanted[e.node as usize]);
    }
    wanted
}

/// Runs the rules in reverse order; afterwards `grads` lists the gradients of each entry.
fn walk_back(
    forward: &Graph,
    builder: &mut Builder<'_>,
    wanted: &[bool],
    grads: &mut [Vec<Entry>],
    cap: usize,
) -> Result<Vec<Given>> {
    let mut given = Vec::new();
    for id in (0..forward.nodes.len()).rev().filter(|&id| wanted[id]) {
        let node = &forward.nodes[id];
        let Some(op) = &node.op else { continue };
        (builder.current, builder.unnamed) = (id as u32, 0);
        let mut out_grads = Vec::with_capacity(node.num_outputs as usize);
        for (i, at) in forward.entries_of(id).enumerate() {
            let arrived = std::mem::take(&mut grads[at]);
            let name = format!("{}_{i}_out_grad", node.name);
            out_grads.push(builder.sum(arrived, &name, cap)?.map(pack));
        }
        let idle = out_grads.iter().all(Option::is_none)
            && !op.updates_states_backward(&node.attrs, builder.registry);
        if idle || matches!(op.gradient, Gradient::Zero) {
            continue;
        }
        let needed: Vec<bool> = node.inputs.iter().map(|e| wanted[e.node as usize]).collect();
        let made = apply_rule(builder, id as u32, node, op, &out_grads, &needed)?;
        for (i, ((e, grad), needed)) in node.inputs.iter().zip(made).zip(needed).enumerate() {
            if let Some(grad) = grad.filter(|_| needed) {
                let gradient = builder.source(unpack(grad));
                given.push(Given { gradient, node: id as u32, input: i });
                grads[forward.entry_id(*e)].push(gradient);
            }
        }
    }
    Ok(given)
}

/// Applies the gradient rule of node `id`; returns the gradients of its inputs.
fn apply_rule(
    builder: &mut Builder<'_>,
    id: u32,
    node: &Node,
    op: &OpDef,
    out_grads: &[Option<GradEntry>],
    needed: &[bool],
) -> Result<Vec<Option<GradEntry>>> {
    let inputs: Vec<GradEntry> = node.inputs.iter().map(|&e| pack(e)).collect();
    let outputs: Vec<GradEntry> = (0..node.num_outputs).map(|i| pack(Entry::new(id, i))).collect();
    let about = GradNode {
        op,
        attrs: &node.attrs,
        name: &node.name,
        inputs: &inputs,
        outputs: &outputs,
        out_grads,
        needed,
    };
    let before = builder.nodes.len();
    let made = match op.gradient.apply(builder, &about) {
        Err(e) if op.is_backward && e.kind() == ErrorKind::NotImplemented => {
            without_gradient(builder, &about, &e)
        }
        made => made,
    };
    let made = made.at_node(&op.name, &node.name)?;
    builder.name_only_node(before);
    Ok(made)
}

/// Gradients of a backward operator whose own gradient is not implemented: nodes that raise the
/// error if they run. So a symbol of gradients can be bound with any requests, and needs second
/// derivatives only in its backward pass.
fn without_gradient(
    builder: &mut Builder<'_>,
    node: &GradNode<'_>,
    why: &Error,
) -> Result<Vec<Option<GradEntry>>> {
    let (op, why) = (node.op.name.as_str(), why.message());
    let of = [("of", op.into()), ("node", node.name.into()), ("why", why.into())];
    let inputs = node.inputs.iter().zip(node.needed);
    inputs
        .map(|(&input, &needed)| {
            if !needed {
                return Ok(None);
            }
            Ok(builder.op("_no_gradient", "", &of, &[input])?.first().copied())
        })
        .collect()
}

/// Returns the gradient entry of each argument; no two share one.
fn collect(
    forward: &Graph,
    builder: &mut Builder<'_>,
    arguments: &[u32],
    grad_req: &[OpReq],
    mut grads: Vec<Vec<Entry>>,
    cap: usize,
) -> Result<Vec<Option<Entry>>> {
    let mut found = vec![None; arguments.len()];
    for i in (0..arguments.len()).rev() {
        if grad_req.get(i).is_none_or(|r| *r == OpReq::Null) {
            continue;
        }
        let id = arguments[i] as usize;
        let name = forward.nodes[id].name.clone();
        let arrived = std::mem::take(&mut grads[forward.entries_of(id).start]);
        found[i] = match builder.sum(arrived, &format!("{name}_grad"), cap)? {
            Some(sum) => Some(sum),
            None => {
                let inputs = vec![Entry::new(id as u32, 0)];
                Some(Entry::new(
                    builder.make("zeros_like", format!("{name}_zeros"), &[], inputs)?,
                    0,
                ))
            }
        };
    }
    own_entries(forward, builder, grad_req, &mut found)?;
    Ok(found)
}

/// Ensures that each argument has an entry that can be stored in its gradient array: one that a
/// backward node computes for this argument only, or a copy. With request `Add` the entry is added
/// to the array and cannot be read back, so it must have no other reader; with `Write` other nodes
/// may read it from the array.
fn own_entries(
    forward: &Graph,
    builder: &mut Builder<'_>,
    grad_req: &[OpReq],
    found: &mut [Option<Entry>],
) -> Result<()> {
    let mut readers: FxHashMap<Entry, usize> = FxHashMap::default();
    let read = builder.nodes.iter().flat_map(|n| &n.inputs);
    read.chain(found.iter().flatten()).for_each(|e| *readers.entry(*e).or_default() += 1);
    let mut taken: FxHashSet<Entry> = FxHashSet::default();
    for (i, grad) in found.iter_mut().enumerate() {
        let Some(e) = *grad else { continue };
        let computed =
            e.node as usize >= forward.nodes.len() && !builder.nodes[e.node as usize].is_variable();
        let fits = grad_req[i] != OpReq::Add || readers[&e] == 1;
        if !computed || !fits || !taken.insert(e) {
            let name = format!("{}_{i}_copy", builder.nodes[e.node as usize].name);
            *grad = Some(Entry::new(builder.make("_copy", name, &[], vec![e])?, 0));
        }
    }
    Ok(())
}

/// Drops backward nodes that no requested gradient needs, and unread head gradients.
fn drop_unused(done: &mut Differentiated) -> Result<()> {
    let graph = &done.graph;
    let mut used = vec![false; graph.nodes.len()];
    used[..graph.num_forward].fill(true);
    for e in done.arg_grads.iter().flatten() {
        used[e.node as usize] = true;
    }
    for id in (0..graph.nodes.len()).rev().filter(|&id| id >= graph.num_forward) {
        if used[id] {
            graph.nodes[id].inputs.iter().for_each(|e| used[e.node as usize] = true);
        }
    }
    if used.iter().all(|&u| u) {
        return Ok(());
    }
    let kept: Vec<u32> = (0..used.len() as u32).filter(|&n| used[n as usize]).collect();
    done.keep(&kept)
}
