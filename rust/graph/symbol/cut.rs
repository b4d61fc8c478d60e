//! Cutting a part out of a symbol: how the body of a loop is made of what a function composed.

use super::{NodeMap, SymEntry, SymNode, Symbol};
use crate::error::{Error, Result};
use crate::graph::empty_attrs;
use std::sync::Arc;

/// A part of a symbol as a symbol of its own.
pub struct Cut {
    pub body: Symbol,
    /// What each variable of `body` is outside, in depth-first order.
    pub outside: Vec<SymEntry>,
}

impl Symbol {
    /// Cuts out the nodes for which `inside` holds, on the way from the heads. Variables are
    /// shared; what the part reads of other nodes becomes variables of the names of these outputs.
    pub fn cut(&self, inside: impl Fn(&SymNode) -> bool) -> Result<Cut> {
        let mut copies = NodeMap::<Arc<SymNode>>::default();
        let mut stands_for: Vec<(Arc<SymNode>, SymEntry)> = Vec::new();
        for node in self.nodes().iter().filter(|node| !node.is_variable() && inside(node)) {
            let mut copy = node.copy();
            for input in &node.inputs {
                copy.inputs.push(copied(&copies, &mut stands_for, input));
            }
            copy.control = (node.control.iter())
                .filter_map(|n| copies.get(&Arc::as_ptr(n)).cloned())
                .collect();
            copies.insert(Arc::as_ptr(node), Arc::new(copy));
        }
        let heads = self.outputs.iter();
        let outputs = heads.map(|head| copied(&copies, &mut stands_for, head)).collect();
        let body = Symbol { outputs };
        let outside = |variable: &Arc<SymNode>| {
            let found = stands_for.iter().find(|(made, _)| Arc::ptr_eq(made, variable));
            found.map_or(SymEntry { node: variable.clone(), index: 0 }, |(_, entry)| entry.clone())
        };
        let outside = body.all_variables().iter().map(outside).collect();
        Ok(Cut { body, outside })
    }

    /// The number of each variable of `self` among `symbols`, which are variables; `None` where it
    /// is none of them.
    pub fn among(&self, symbols: &[Symbol]) -> Result<Vec<Option<usize>>> {
        let nodes = symbols.iter().map(|s| s.single("A variable of a loop").map(|e| e.node));
        let nodes: Vec<Arc<SymNode>> = nodes.collect::<Result<_>>()?;
        if let Some(other) = nodes.iter().find(|node| !node.is_variable()) {
            return Err(Error::value(format!("invalid '{}': expected a variable", other.name())));
        }
        let number = |v: &Arc<SymNode>| nodes.iter().position(|node| Arc::ptr_eq(node, v));
        Ok(self.all_variables().iter().map(number).collect())
    }
}

/// An entry inside the part: of a copied node, a variable, or a variable in the place of something
/// outside.
fn copied(
    copies: &NodeMap<Arc<SymNode>>,
    stands_for: &mut Vec<(Arc<SymNode>, SymEntry)>,
    entry: &SymEntry,
) -> SymEntry {
    if let Some(copy) = copies.get(&Arc::as_ptr(&entry.node)) {
        return SymEntry { node: copy.clone(), index: entry.index };
    }
    if entry.node.is_variable() {
        return entry.clone();
    }
    let same = |e: &SymEntry| Arc::ptr_eq(&e.node, &entry.node) && e.index == entry.index;
    if let Some((made, _)) = stands_for.iter().find(|(_, of)| same(of)) {
        return SymEntry { node: made.clone(), index: 0 };
    }
    let name = entry.node.output_names().swap_remove(entry.index as usize);
    let made = Arc::new(SymNode::new(None, name, empty_attrs()));
    stands_for.push((made.clone(), entry.clone()));
    SymEntry { node: made, index: 0 }
}
