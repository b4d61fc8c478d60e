//! Builds backward nodes: those of gradient rules, sums of gradients and copies of mirrored nodes.

use crate::error::{AtNode, Error, Result};
use crate::graph::passes::mirror::Mirror;
use crate::graph::static_graph::{Entry, Node, dict_in_gradient};
use crate::operator::{GradBuilder, GradEntry, InGradient, Registry, Value, name_in_rule};
use rustc_hash::FxHashMap;
use std::sync::Arc;

pub(super) const fn pack(e: Entry) -> GradEntry {
    GradEntry((e.node as u64) << 32 | e.index as u64)
}

pub(super) const fn unpack(e: GradEntry) -> Entry {
    Entry::new((e.0 >> 32) as u32, e.0 as u32)
}

/// Builds the nodes of gradient rules.
pub(super) struct Builder<'a> {
    pub(super) nodes: Vec<Node>,
    pub(super) registry: &'a Registry,
    pub(super) mirror: &'a Mirror,
    /// Copies of forward nodes made so far.
    pub(super) copies: FxHashMap<u32, u32>,
    /// The forward node whose rule is running.
    pub(super) current: u32,
    /// Number of unnamed nodes of the running rule.
    pub(super) unnamed: usize,
}

impl Builder<'_> {
    pub(super) fn push(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    /// Returns whether backward nodes read a copy of this node.
    fn again(&self, node: u32) -> bool {
        self.mirror.again.get(node as usize).copied().unwrap_or(false)
    }

    /// The entry that backward nodes read for `e`: that of the copy if the node is recomputed.
    pub(super) fn source(&mut self, e: Entry) -> Entry {
        if !self.again(e.node) {
            return e;
        }
        let mut stack = vec![e.node];
        while let Some(&top) = stack.last() {
            if self.copies.contains_key(&top) {
                stack.pop();
                continue;
            }
            let inputs = &self.nodes[top as usize].inputs;
            let missing = inputs
                .iter()
                .find(|i| self.again(i.node) && !self.copies.contains_key(&i.node))
                .map(|i| i.node);
            match missing {
                Some(node) => stack.push(node),
                None => {
                    self.copy(top);
                    stack.pop();
                }
            }
        }
        Entry::new(self.copies[&e.node], e.index)
    }

    /// Names the node of a rule `<node>_backward`, like a backward operator, if it is the only node
    /// made since the builder had `before` nodes and the rule did not name it.
    pub(super) fn name_only_node(&mut self, before: usize) {
        let mirror = if self.again(self.current) { "_mirror" } else { "" };
        let name = format!("{}{mirror}_backward", self.nodes[self.current as usize].name);
        let mut made = self.nodes[before..].iter_mut().filter(|n| n.mirror_of.is_none());
        if let (1, Some(only), None) = (self.unnamed, made.next(), made.next()) {
            only.name = name;
        }
    }

    /// Copies a node whose mirrored inputs have been copied.
    fn copy(&mut self, node: u32) {
        let mut copy = self.nodes[node as usize].clone();
        for e in &mut copy.inputs {
            e.node = self.copies.get(&e.node).copied().unwrap_or(e.node);
        }
        copy.name.push_str("_mirror");
        copy.mirror_of = Some(node);
        copy.control.clear();
        let id = self.push(copy);
        self.copies.insert(node, id);
    }

    /// A node of any operator.
    pub(super) fn make(
        &mut self,
        op: &str,
        name: String,
        params: &[(&str, Value)],
        inputs: Vec<Entry>,
    ) -> Result<u32> {
        let op = self.registry.find(op)?;
        let params = op.with_count(params.to_vec(), inputs.len());
        let attrs = op.parse_at(&params, &name)?;
        let wanted = op.num_inputs(&attrs);
        if wanted != inputs.len() && !op.is_backward {
            return Err(Error::value(format!(
                "the gradient rule passes {} inputs, expected {wanted}",
                inputs.len()
            ))
            .at_node(&op.name, &name));
        }
        let dict = params.iter().map(|(k, v)| ((*k).to_owned(), v.to_string())).collect();
        let num_outputs = op.num_outputs(&attrs) as u32;
        let node = Node {
            op: Some(op),
            attrs: Arc::new(attrs),
            dict: Arc::new(dict),
            inputs,
            num_outputs,
            ..Node::variable(name)
        };
        Ok(self.push(node))
    }

    /// The sum of several gradients.
    pub(super) fn sum(
        &mut self,
        mut grads: Vec<Entry>,
        name: &str,
        cap: usize,
    ) -> Result<Option<Entry>> {
        match grads.len() {
            0 => Ok(None),
            1 => Ok(Some(grads[0])),
            n if n < cap => {
                let node = self.make("ElementWiseSum", format!("{name}_agg"), &[], grads)?;
                Ok(Some(Entry::new(node, 0)))
            }
            _ => {
                // In execution order, so that each gradient can be added onto the sum of the
                // earlier.
                grads.sort_unstable();
                let mut sum = grads[0];
                for (i, g) in grads.into_iter().enumerate().skip(1) {
                    let name = format!("{name}_agg_{i}");
                    let node = self.make("elemwise_add", name, &[], vec![sum, g])?;
                    self.nodes[node as usize].sums_gradients = true;
                    sum = Entry::new(node, 0);
                }
                Ok(Some(sum))
            }
        }
    }
}

impl GradBuilder for Builder<'_> {
    fn backward_with(
        &mut self,
        op: &str,
        own: &[(&str, Value)],
        inputs: &[GradEntry],
    ) -> Result<Vec<GradEntry>> {
        let op = self.registry.find(op)?;
        let inputs: Vec<Entry> = inputs.iter().map(|&e| self.source(unpack(e))).collect();
        let forward = &self.nodes[self.current as usize];
        let mirror = if self.again(self.current) { "_mirror" } else { "" };
        let name = format!("{}{mirror}_backward", forward.name);
        let wanted = forward.inputs.len();
        let Some(of) = &forward.op else {
            return Err(Error::internal("a variable has no gradient rule"));
        };
        let InGradient { attrs, alone } = op
            .in_gradient_of(of, &forward.attrs, own, inputs.len(), wanted)
            .at_node(&op.name, &name)?;
        let num_outputs = if alone { op.num_outputs(&attrs) } else { wanted } as u32;
        let inputs_counted = alone.then_some(inputs.len());
        let dict = dict_in_gradient(forward.dict.clone(), &op, own, inputs_counted);
        let node = Node {
            op: Some(op),
            attrs,
            dict,
            inputs,
            control: vec![self.current],
            backward_of: (!alone).then_some(self.current),
            num_outputs,
            ..Node::variable(name)
        };
        let id = self.push(node);
        Ok((0..wanted as u32).map(|i| pack(Entry::new(id, i))).collect())
    }

    fn op(
        &mut self,
        op: &str,
        name: &str,
        params: &[(&str, Value)],
        inputs: &[GradEntry],
    ) -> Result<Vec<GradEntry>> {
        let inputs: Vec<Entry> = inputs.iter().map(|&e| self.source(unpack(e))).collect();
        let name = if name.is_empty() {
            self.unnamed += 1;
            name_in_rule(&self.nodes[self.current as usize].name, op, self.unnamed)
        } else {
            name.to_owned()
        };
        let id = self.make(op, name, params, inputs)?;
        let node = &self.nodes[id as usize];
        let visible = node.op.as_ref().map_or(1, |op| op.num_visible_outputs(&node.attrs));
        Ok((0..visible as u32).map(|i| pack(Entry::new(id, i))).collect())
    }
}
