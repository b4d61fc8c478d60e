//! Walking the tape backwards: from heads to leaves, in the reverse order of recording.

use super::tape_builder::TapeBuilder;
use super::{
    Asked, Node, NodeKind, NodeView, Placed, Recorded, Rule, TapeEntry, TapeFunction, Tracked,
    Wanted, invoke,
};
use crate::error::{AtNode, Error, Result};
use crate::executor::Runtime;
use crate::executor::call_site;
use crate::executor::imperative::{CallState, Invoke, call};
use crate::executor::transfer::push_copy;
use crate::ndarray::NDArray;
use crate::operator::{Attrs, GradEntry, GradNode, OpDef, OpReq};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Options of a walk.
#[derive(Clone, Copy)]
pub struct Backward {
    pub retain_graph: bool,
    pub create_graph: bool,
    pub is_train: bool,
}

/// Gradients of `heads` written to the buffers of all leaves they depend on.
pub fn backward(
    rt: &Arc<Runtime>,
    heads: &[&Tracked],
    head_grads: &[Option<&Tracked>],
    how: Backward,
) -> Result<()> {
    let leaves = TapeWalk::run(rt, heads, head_grads, how, None)?;
    let mut wanted = false;
    for (leaf, sum) in leaves {
        let Some((buffer, req)) = leaf.leaf() else { continue };
        wanted |= req != OpReq::Null;
        match (req, sum) {
            (OpReq::Null, _) | (_, LeafGrad::InBuffer) | (OpReq::Add, LeafGrad::Zero) => {}
            (_, LeafGrad::Zero) => push_copy(&filled(rt, "zeros_like", buffer)?, buffer)?,
            (OpReq::Add, LeafGrad::Sum((grad, _))) => {
                let op = rt.registry.find("elemwise_add")?;
                let attrs = Arc::new(op.parse(&[])?);
                let inputs = [buffer, &grad];
                call(rt, &op, &attrs, &inputs, Some(&[buffer]), &Invoke::default())?;
            }
            (_, LeafGrad::Sum((grad, _))) => push_copy(&grad, buffer)?,
        }
        if req != OpReq::Null {
            leaf.set_fresh(true);
        }
    }
    if wanted {
        Ok(())
    } else {
        Err(Error::value(
            "There are no inputs in computation graph that require gradients: expected an array \
             with attach_grad()",
        ))
    }
}

/// Gradients of `heads` with respect to `variables`, which must be leaves.
pub fn grad(
    rt: &Arc<Runtime>,
    heads: &[&Tracked],
    head_grads: &[Option<&Tracked>],
    variables: &[&Tracked],
    how: Backward,
) -> Result<Vec<Tracked>> {
    let mut wanted = Vec::new();
    for (i, v) in variables.iter().enumerate() {
        let leaf = v.entry().filter(|e| e.leaf().is_some_and(|l| l.1 != OpReq::Null));
        wanted.push(leaf.ok_or_else(|| {
            Error::value(format!(
                "Cannot differentiate with respect to the {}-th variable because it does not \
                 require gradient: expected attach_grad() before it is used",
                i + 1
            ))
        })?);
    }
    let found = TapeWalk::run(rt, heads, head_grads, how, Some(&wanted))?;
    let by_leaf: FxHashMap<u64, LeafGrad> =
        found.into_iter().map(|(leaf, sum)| (leaf.seq(), sum)).collect();
    let gradient = |(i, (v, leaf)): (usize, (&&Tracked, &TapeEntry))| match by_leaf.get(&leaf.seq())
    {
        Some(LeafGrad::Sum((array, entry))) => Ok(Tracked::placed(array.clone(), entry.clone())),
        Some(_) => Ok(Tracked::new(filled(rt, "zeros_like", &v.array)?)),
        None => Err(Error::value(format!(
            "Cannot differentiate with respect to the {}-th variable because it is unreachable \
             from the outputs: expected one that they are computed from",
            i + 1
        ))),
    };
    variables.iter().zip(&wanted).enumerate().map(gradient).collect()
}

fn filled(rt: &Arc<Runtime>, op: &str, like: &NDArray) -> Result<NDArray> {
    let op = rt.registry.find(op)?;
    let attrs = Arc::new(op.parse(&[])?);
    // The values do not matter, so an array without memory will do.
    let kind = NDArray::pending(rt, like.shape(), like.dtype(), like.context())?;
    let outcome = call(rt, &op, &attrs, &[&kind], None, &Invoke::default())?;
    outcome.outputs.into_iter().next().ok_or_else(|| Error::internal("no output"))
}

/// Gradients on their way: for a node, the sums that arrived at its outputs.
struct Arriving {
    node: Arc<Node>,
    sums: SmallVec<[Option<Placed>; 1]>,
}

/// What arrived at a leaf.
enum LeafGrad {
    /// Nothing: the operators on the way have zero gradients.
    Zero,
    Sum(Placed),
    /// A function has written or added it to the buffer itself.
    InBuffer,
}

pub(super) struct TapeWalk<'a> {
    pub(super) rt: &'a Arc<Runtime>,
    pub(super) how: Backward,
    /// Are gradients returned, so that the leaves' buffers must stay as they are?
    keep_buffers: bool,
    /// Nodes that lead to a wanted leaf; all others are not visited.
    useful: FxHashMap<u64, bool>,
    pending: BTreeMap<u64, Arriving>,
    leaves: Vec<(TapeEntry, LeafGrad)>,
    /// How many heads and inputs of useful nodes each leaf is.
    uses: FxHashMap<u64, usize>,
    /// The wanted leaves that the heads depend on.
    reachable: Vec<Arc<Node>>,
}

/// Returns true if the entry is the output of a dtype conversion, whose gradient is converted back
/// from any dtype. (An integer output has a gradient with fractions.)
fn converts(entry: &TapeEntry) -> bool {
    entry.visit(|seen| match seen {
        NodeView::Call { op, .. } => matches!(&*op.name, "Cast" | "amp_cast"),
        _ => false,
    })
}

impl<'a> TapeWalk<'a> {
    fn run(
        rt: &'a Arc<Runtime>,
        heads: &[&Tracked],
        head_grads: &[Option<&Tracked>],
        how: Backward,
        only: Option<&[TapeEntry]>,
    ) -> Result<Vec<(TapeEntry, LeafGrad)>> {
        let mut walk = TapeWalk {
            rt,
            how,
            keep_buffers: only.is_some(),
            useful: FxHashMap::default(),
            pending: BTreeMap::new(),
            leaves: Vec::new(),
            uses: FxHashMap::default(),
            reachable: Vec::new(),
        };
        let mut entries = Vec::new();
        for head in heads {
            entries.push(head.entry().ok_or_else(not_in_graph)?);
        }
        walk.find_useful(&entries, only)?;
        for (i, (head, entry)) in heads.iter().zip(&entries).enumerate() {
            let value = match head_grads.get(i).copied().flatten() {
                Some(given) => {
                    let what = format!("head gradient {i}");
                    walk.fitting(&what, given, &head.array, converts(entry))?
                }
                None => (filled(rt, "ones_like", &head.array)?, None),
            };
            walk.arrive(entry, value)?;
        }
        while let Some((_, arriving)) = walk.pending.pop_last() {
            walk.through(arriving)?;
        }
        // No sum arrives through an operator whose gradient is zero: the leaf's gradient is zero
        // too.
        for node in std::mem::take(&mut walk.reachable) {
            if !walk.leaves.iter().any(|(leaf, _)| leaf.seq() == node.seq) {
                walk.leaves.push((TapeEntry { node, index: 0 }, LeafGrad::Zero));
            }
        }
        Ok(walk.leaves)
    }

    /// Marks the nodes from which a wanted leaf can be reached.
    fn find_useful(&mut self, heads: &[TapeEntry], only: Option<&[TapeEntry]>) -> Result<()> {
        let mut order: BTreeMap<u64, Arc<Node>> = BTreeMap::new();
        let mut stack: Vec<Arc<Node>> = heads.iter().map(|e| e.node.clone()).collect();
        while let Some(node) = stack.pop() {
            if order.contains_key(&node.seq) {
                continue;
            }
            if let NodeKind::Call(slot) = &node.kind {
                let record = slot.lock().clone().ok_or_else(not_in_graph)?;
                stack.extend(
                    record.inputs.iter().filter_map(|i| i.1.as_ref()).map(|e| e.node.clone()),
                );
            }
            order.insert(node.seq, node);
        }
        for entry in heads.iter().filter(|e| e.leaf().is_some()) {
            *self.uses.entry(entry.seq()).or_default() += 1;
        }
        for (seq, node) in &order {
            let useful = match &node.kind {
                NodeKind::Leaf { req, .. } => match only {
                    Some(only) => only.iter().any(|e| e.seq() == *seq),
                    None => *req != OpReq::Null,
                },
                NodeKind::Call(slot) => slot.lock().as_ref().is_some_and(|record| {
                    let known = |e: &TapeEntry| self.useful.get(&e.seq()).copied().unwrap_or(false);
                    record.inputs.iter().filter_map(|i| i.1.as_ref()).any(known)
                }),
            };
            self.useful.insert(*seq, useful);
            if useful && let NodeKind::Call(slot) = &node.kind {
                let record = slot.lock().clone();
                let entries = record.iter().flat_map(|r| &r.inputs).filter_map(|i| i.1.as_ref());
                for entry in entries.filter(|e| e.leaf().is_some()) {
                    *self.uses.entry(entry.seq()).or_default() += 1;
                }
            }
            if useful && self.updates_states(node) {
                self.pending.insert(*seq, Arriving { node: node.clone(), sums: SmallVec::new() });
            }
            if useful && matches!(node.kind, NodeKind::Leaf { .. }) {
                self.reachable.push(node.clone());
            }
        }
        Ok(())
    }

    /// Returns true if the node's backward pass updates auxiliary states. It then runs even if no
    /// gradient arrives.
    fn updates_states(&self, node: &Node) -> bool {
        let NodeKind::Call(slot) = &node.kind else { return false };
        slot.lock().as_ref().is_some_and(|record| match &record.rule {
            Rule::Op { op, attrs, .. } => op.updates_states_backward(attrs, &self.rt.registry),
            Rule::Function(_) => false,
        })
    }

    pub(super) fn is_useful(&self, entry: &TapeEntry) -> bool {
        self.useful.get(&entry.seq()).copied().unwrap_or(false)
    }

    /// Adds a gradient to what has arrived at `entry`.
    fn arrive(&mut self, entry: &TapeEntry, value: Placed) -> Result<()> {
        let slot = self
            .pending
            .entry(entry.seq())
            .or_insert_with(|| Arriving { node: entry.node.clone(), sums: SmallVec::new() });
        let at = entry.index as usize;
        while slot.sums.len() <= at {
            slot.sums.push(None);
        }
        let Some(before) = slot.sums[at].take() else {
            slot.sums[at] = Some(value);
            return Ok(());
        };
        let sum = self.sum(before, value)?;
        if let Some(slot) = self.pending.get_mut(&entry.seq()) {
            slot.sums[at] = Some(sum);
        }
        Ok(())
    }

    /// `grad` in the shape of its array; an error if it has another number of elements, or another
    /// dtype unless `any_dtype`.
    fn fitting(&self, what: &str, grad: &Tracked, of: &NDArray, any_dtype: bool) -> Result<Placed> {
        let (array, entry) = (&grad.array, grad.entry());
        if array.dtype() != of.dtype() && !any_dtype {
            return Err(Error::argument(what, "dtype", array.dtype(), of.dtype()));
        }
        if array.size() != of.size() {
            return Err(Error::argument(what, "shape", array.shape(), of.shape()));
        }
        if entry.is_none() || array.shape() == of.shape() {
            return Ok((array.reshape(of.shape().clone())?, entry));
        }
        // The change of shape belongs to what is differentiated again.
        let op = self.rt.registry.find("reshape_like")?;
        let attrs = Arc::new(op.parse(&[])?);
        let like = Tracked::new(of.clone());
        first(invoke(self.rt, &op, &attrs, &[grad, &like], None, &self.invoke())?)
    }

    fn sum(&self, a: Placed, b: Placed) -> Result<Placed> {
        let op = self.rt.registry.find("elemwise_add")?;
        let attrs = Arc::new(op.parse(&[])?);
        let how = self.invoke();
        let (a, b) = (Tracked::placed(a.0, a.1), Tracked::placed(b.0, b.1));
        let sum = invoke(self.rt, &op, &attrs, &[&a, &b], None, &how)?;
        first(sum)
    }

    /// How the calls of this walk run.
    pub(super) fn invoke(&self) -> Invoke<'static> {
        Invoke {
            is_train: self.how.is_train,
            recording: self.how.create_graph,
            ..Invoke::default()
        }
    }

    /// Takes the gradients at a node's outputs to its inputs.
    fn through(&mut self, arriving: Arriving) -> Result<()> {
        let NodeKind::Call(slot) = &arriving.node.kind else {
            let sum = arriving.sums.into_iter().next().flatten();
            let grad = sum.map_or(LeafGrad::Zero, LeafGrad::Sum);
            self.leaves.push((TapeEntry { node: arriving.node, index: 0 }, grad));
            return Ok(());
        };
        if !self.useful.get(&arriving.node.seq).copied().unwrap_or(false) {
            return Ok(());
        }
        let record = slot.lock().clone().ok_or_else(not_in_graph)?;
        let grads = match &record.rule {
            Rule::Function(f) => {
                let grads = self.through_function(f.as_ref(), &record, &arriving);
                grads.map_err(|e| {
                    e.at_node(f.name(), "").at_call_site(&call_site::current().unwrap_or_default())
                })?
            }
            Rule::Op { op, attrs, state } => {
                let grads = self.through_op(op, attrs, state.as_ref(), &record, &arriving)?;
                for (i, ((saved, _), grad)) in record.inputs.iter().zip(&grads).enumerate() {
                    if let Some((grad, _)) = grad {
                        let (shape, dtype) = saved.spec();
                        let got = (grad.shape(), grad.dtype());
                        op.check_gradient(attrs, i, got, (&shape, dtype))
                            .at_node(&op.name, record.name())?;
                    }
                }
                grads
            }
        };
        for ((_, entry), grad) in record.inputs.iter().zip(grads) {
            if let (Some(entry), Some(grad)) = (entry, grad)
                && self.is_useful(entry)
            {
                self.arrive(entry, grad)?;
            }
        }
        if !self.how.retain_graph {
            *slot.lock() = None;
        }
        Ok(())
    }

    fn through_function(
        &mut self,
        function: &dyn TapeFunction,
        record: &Recorded,
        arriving: &Arriving,
    ) -> Result<Vec<Option<Placed>>> {
        let mut out_grads = Vec::new();
        let mut outputs = Vec::new();
        for (i, output) in record.outputs.iter().enumerate() {
            out_grads.push(match arriving.sums.get(i).cloned().flatten() {
                Some((array, entry)) => Tracked::placed(array, entry),
                None => Tracked::new(filled(self.rt, "zeros_like", &output.array(self.rt)?)?),
            });
            let entry = || TapeEntry { node: arriving.node.clone(), index: i as u32 };
            outputs.push(output.kept().map(|array| Tracked::placed(array.clone(), Some(entry()))));
        }
        let wanted: SmallVec<[Wanted; 8]> =
            record.inputs.iter().map(|(_, entry)| self.wanted(entry.as_ref())).collect();
        let grads = function.backward(Asked {
            out_grads,
            outputs,
            wanted: &wanted,
            keep_buffers: self.keep_buffers,
            retain_graph: self.how.retain_graph,
            create_graph: self.how.create_graph,
            is_train: self.how.is_train,
        })?;
        if grads.len() != record.inputs.len() {
            let (got, expected) = (grads.len(), record.inputs.len());
            let expected = format!("{expected}, one for each input");
            let what = "number of gradients returned by backward of the function";
            return Err(Error::invalid(what, got, expected));
        }
        let mut found = Vec::with_capacity(grads.len());
        for (i, (grad, (saved, entry))) in grads.iter().zip(&record.inputs).enumerate() {
            if let (None, Wanted::ValueOrBuffer, Some(entry)) = (grad, wanted[i], entry) {
                self.leaves.push((entry.clone(), LeafGrad::InBuffer));
            }
            let what = || format!("gradient {i} returned by backward of the function");
            let fitting = |grad| self.fitting(&what(), grad, &saved.array(self.rt)?, false);
            found.push(grad.as_ref().map(fitting).transpose()?);
        }
        Ok(found)
    }

    /// How the gradient of an input is wanted. It may go to a leaf's buffer if nothing else arrives
    /// there, or if all that arrives is added.
    fn wanted(&self, entry: Option<&TapeEntry>) -> Wanted {
        let Some(entry) = entry.filter(|entry| self.is_useful(entry)) else { return Wanted::No };
        let alone = || self.uses.get(&entry.seq()).is_none_or(|&uses| uses == 1);
        match entry.leaf() {
            Some((_, req)) if !self.keep_buffers && (req == OpReq::Add || alone()) => {
                Wanted::ValueOrBuffer
            }
            _ => Wanted::Value,
        }
    }

    fn through_op(
        &self,
        op: &Arc<OpDef>,
        attrs: &Arc<Attrs>,
        state: Option<&CallState>,
        record: &Recorded,
        arriving: &Arriving,
    ) -> Result<Vec<Option<Placed>>> {
        let mut tape = TapeBuilder::new(self, attrs, state, record);
        let mut inputs = Vec::new();
        for (saved, entry) in &record.inputs {
            inputs.push(tape.value((saved.array(self.rt)?, entry.clone())));
        }
        let mut outputs = Vec::new();
        for (i, saved) in record.outputs.iter().enumerate() {
            let entry = TapeEntry { node: arriving.node.clone(), index: i as u32 };
            outputs.push(tape.value((saved.array(self.rt)?, Some(entry))));
        }
        let out_grads: Vec<Option<GradEntry>> = (0..record.outputs.len())
            .map(|i| arriving.sums.get(i).cloned().flatten().map(|p| tape.value(p)))
            .collect();
        let needed: Vec<bool> = (record.inputs.iter())
            .map(|(_, e)| e.as_ref().is_some_and(|e| self.is_useful(e)))
            .collect();
        let name = record.name();
        let node = GradNode {
            op,
            attrs,
            name,
            inputs: &inputs,
            outputs: &outputs,
            out_grads: &out_grads,
            needed: &needed,
        };
        // Only a differentiable rule reads hidden outputs, so only one makes gradients of them.
        let at_hidden = out_grads.iter().skip(op.num_visible_outputs(attrs)).any(Option::is_some);
        let differentiable = self.how.create_graph || at_hidden;
        let grads = match op.differentiable_gradient.as_ref().filter(|_| differentiable) {
            Some(rule) => rule(&mut tape, &node),
            None => op.gradient.apply(&mut tape, &node),
        };
        let grads = grads.at_node(&op.name, name)?;
        Ok(grads.into_iter().map(|g| g.map(|g| tape.placed(g))).collect())
    }
}

fn not_in_graph() -> Error {
    Error::value(
        "Cannot differentiate node because it is not in a computational graph. You need to set \
         is_recording to true or use autograd.record() to save computational graphs for backward. \
         If you want to differentiate the same graph twice, you need to pass retain_graph=True to \
         backward.",
    )
}

fn first(tracked: SmallVec<[Tracked; 1]>) -> Result<Placed> {
    let t = tracked.into_iter().next().ok_or_else(|| Error::internal("no output"))?;
    let entry = t.entry();
    Ok((t.array, entry))
}
