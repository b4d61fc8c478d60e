//! Backward nodes of version 0.8.
//!
//! Such a node has no operator. It names its forward node, and its inputs are the entries that the
//! forward operator declared as the dependency of its gradient. The current gradient of the
//! operator may read other entries or consist of several nodes, so its rule is applied to the
//! output gradients found among the inputs.

use super::super::static_graph::dict_in_gradient;
use super::super::symbol::{SymEntry, SymNode};
use super::build::Built;
use super::raw::Raw;
use crate::error::{AtNode, Error, Result};
use crate::operator::{
    Dep, GradBuilder, GradEntry, GradNode, Gradient, InGradient, Registry, Value,
};
use std::sync::Arc;

/// Returns the outputs of backward node `raw`: the gradients of the inputs of node `source`.
pub fn gradients(
    raw: &Raw,
    source: usize,
    built: &Built,
    registry: &Registry,
) -> Result<Vec<SymEntry>> {
    let forward = built.node(source).filter(|node| node.op.is_some() && node.backward_of.is_none());
    let Some((forward, op)) = forward.and_then(|node| Some((node, node.op.as_ref()?))) else {
        let text = format!("backward_source_id {source} is not the node of an operator");
        return Err(Error::value(text).at_node(&raw.op, &raw.name));
    };
    let mut builder =
        NodeBuilder { registry, forward, name: &raw.name, unnamed: 0, values: Vec::new() };
    let attrs = forward.meta().attrs.clone();
    let visible = forward.num_visible_outputs();
    let given = out_grads(raw, forward, visible, built, registry)?;
    let inputs: Vec<_> = forward.inputs.iter().map(|e| builder.value(e.clone())).collect();
    let output = |index| SymEntry { node: forward.clone(), index };
    let outputs: Vec<_> =
        (0..forward.num_outputs as u32).map(|i| builder.value(output(i))).collect();
    let mut out_grads = vec![None; outputs.len()];
    for ((place, grad), like) in out_grads.iter_mut().zip(given).zip(&outputs) {
        *place = Some(builder.like(grad, *like)?);
    }
    let about = GradNode {
        op,
        attrs: &attrs,
        name: &forward.name(),
        inputs: &inputs,
        outputs: &outputs,
        out_grads: &out_grads,
        needed: &vec![true; inputs.len()],
    };
    let found = op.gradient.apply(&mut builder, &about).at_node(&raw.op, &raw.name)?;
    let mut grads = Vec::with_capacity(inputs.len());
    for (input, grad) in inputs.iter().zip(found) {
        let grad = match grad {
            Some(grad) => grad,
            None => builder.one("zeros_like", &[*input])?,
        };
        grads.push(builder.values[grad.0 as usize].clone());
    }
    Ok(grads)
}

/// The output gradients among the inputs of a backward node, which are neither inputs nor outputs
/// of its forward node. Inputs that no gradient of the operator can take are refused: damaged files
/// do not load.
fn out_grads(
    raw: &Raw,
    forward: &Arc<SymNode>,
    visible: usize,
    built: &Built,
    registry: &Registry,
) -> Result<Vec<SymEntry>> {
    let same = |a: &SymEntry, b: &SymEntry| Arc::ptr_eq(&a.node, &b.node) && a.index == b.index;
    let of_forward = |e: &SymEntry| {
        let inputs = forward.inputs.iter().filter(|i| same(i, e)).count();
        inputs
            + (Arc::ptr_eq(&e.node, forward) && (e.index as usize) < forward.num_outputs) as usize
    };
    let refused = |what: String| {
        let text = format!("invalid inputs of the backward node of '{}': {what}", forward.name());
        Err(Error::value(text).at_node(&raw.op, &raw.name))
    };
    let (mut grads, mut rest): (Vec<SymEntry>, Vec<SymEntry>) = (Vec::new(), Vec::new());
    for (at, &(id, index)) in raw.inputs.iter().enumerate() {
        let e = built.entry(id, index, &format!("node '{}'", raw.name))?;
        let most = of_forward(&e);
        if most == 0 && !rest.is_empty() {
            return refused(format!(
                "input {at} is the gradient of an output, expected before {}",
                at - 1
            ));
        }
        let list = if most == 0 { &mut grads } else { &mut rest };
        if list.iter().filter(|earlier| same(earlier, &e)).count() >= most.max(1) {
            let name = e.node.name();
            return refused(format!(
                "input {at}, '{name}', is there more often than the operator has it"
            ));
        }
        list.push(e);
    }
    let (least_grads, least_rest) = least(forward, visible, registry)?;
    let (n, more) = (grads.len(), if least_grads < visible { " at most" } else { "" });
    if n > visible || n < least_grads {
        return refused(format!(
            "{n} of them are neither inputs nor outputs of that node, expected{more} {visible}, a \
             gradient for each of its outputs"
        ));
    }
    if rest.len() < least_rest {
        return refused(format!(
            "{} of them are inputs or outputs of that node, expected {least_rest} or more, as many \
             as its gradient reads",
            rest.len()
        ));
    }
    Ok(grads)
}

/// How many gradients of outputs, and how many inputs and outputs without auxiliary states, the
/// gradient of a node reads, as far as it says.
fn least(forward: &SymNode, visible: usize, registry: &Registry) -> Result<(usize, usize)> {
    let Some(op) = &forward.op else { return Ok((0, 0)) };
    let attrs = forward.meta().attrs.clone();
    let (deps, ignored) = match &op.gradient {
        Gradient::Backward { op, deps } => {
            let backward = registry.find(op)?;
            (deps, backward.ignores.to_vec(&attrs))
        }
        Gradient::Rule { reads: Some(deps), .. } => (deps, Vec::new()),
        _ => return Ok((0, 0)),
    };
    let aux = op.mutates.to_vec(&attrs);
    let deps = deps(&attrs, forward.inputs.len(), visible);
    let read = deps.into_iter().enumerate().filter(|(at, _)| !ignored.contains(at));
    let mut read: Vec<Dep> = read.map(|(_, dep)| dep).collect();
    read.retain(|dep| !matches!(dep, Dep::Input(i) if aux.contains(i)));
    read.sort_unstable();
    read.dedup();
    let grads = read.iter().filter(|dep| matches!(dep, Dep::OutGrad(_))).count();
    Ok((grads, read.len() - grads))
}

/// Composes the nodes of one gradient; a [`GradEntry`] is a position in `values`.
struct NodeBuilder<'a> {
    registry: &'a Registry,
    forward: &'a Arc<SymNode>,
    name: &'a str,
    unnamed: usize,
    values: Vec<SymEntry>,
}

impl NodeBuilder<'_> {
    fn value(&mut self, entry: SymEntry) -> GradEntry {
        self.values.push(entry);
        GradEntry(self.values.len() as u64 - 1)
    }

    fn add(&mut self, mut node: SymNode, inputs: &[GradEntry], outputs: usize) -> Vec<GradEntry> {
        node.inputs = inputs.iter().map(|e| self.values[e.0 as usize].clone()).collect();
        node.num_outputs = node.num_outputs.max(outputs);
        let node = Arc::new(node);
        (0..outputs as u32)
            .map(|index| self.value(SymEntry { node: node.clone(), index }))
            .collect()
    }

    /// A gradient of the output `like`. The shape of a variable comes from there.
    fn like(&mut self, grad: SymEntry, like: GradEntry) -> Result<GradEntry> {
        let is_variable = grad.node.op.is_none();
        let grad = self.value(grad);
        match is_variable {
            true => self.one("_identity_with_attr_like_rhs", &[grad, like]),
            false => Ok(grad),
        }
    }

    fn one(&mut self, op: &str, inputs: &[GradEntry]) -> Result<GradEntry> {
        let made = self.op(op, "", &[], inputs)?;
        made.first().copied().ok_or_else(|| Error::internal(format!("{op} has no output")))
    }
}

impl GradBuilder for NodeBuilder<'_> {
    fn backward_with(
        &mut self,
        op: &str,
        own: &[(&str, Value)],
        inputs: &[GradEntry],
    ) -> Result<Vec<GradEntry>> {
        let op = self.registry.find(op)?;
        let meta = self.forward.meta().clone();
        let wanted = self.forward.inputs.len();
        let Some(of) = &self.forward.op else {
            return Err(Error::internal("a variable has no gradient rule"));
        };
        let InGradient { attrs, alone } = op
            .in_gradient_of(of, &meta.attrs, own, inputs.len(), wanted)
            .at_node(&op.name, self.name)?;
        let dict = dict_in_gradient(meta.dict, &op, own, alone.then_some(inputs.len()));
        let mut node = SymNode::new(Some(op), self.name.to_owned(), attrs);
        node.set_dict(dict);
        node.control = vec![self.forward.clone()];
        if !alone {
            node.backward_of = Some(self.forward.clone());
            node.num_outputs = wanted;
        }
        Ok(self.add(node, inputs, wanted))
    }

    fn op(
        &mut self,
        op: &str,
        name: &str,
        params: &[(&str, Value)],
        inputs: &[GradEntry],
    ) -> Result<Vec<GradEntry>> {
        let op = self.registry.find(op)?;
        let name = match name {
            "" => {
                self.unnamed += 1;
                format!("{}_{}{}", self.name, op.name, self.unnamed)
            }
            name => name.to_owned(),
        };
        let params = op.with_count(params.to_vec(), inputs.len());
        let attrs = op.parse_at(&params, &name)?;
        let visible = op.num_visible_outputs(&attrs);
        let dict = params.iter().map(|(k, v)| ((*k).to_owned(), v.to_string())).collect();
        let node = SymNode::new(Some(op.clone()), name, Arc::new(attrs));
        node.set_dict(Arc::new(dict));
        Ok(self.add(node, inputs, visible))
    }
}
