//! Introspection of symbols: names, attributes, parts.

use super::static_graph::Dict;
use super::symbol::{HIDDEN_KEYS, SymEntry, SymNode, Symbol, stored_key};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Symbol {
    pub fn len(&self) -> usize {
        self.outputs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Returns the node of all heads, `None` if they belong to several nodes.
    pub fn sole_node(&self) -> Option<&Arc<SymNode>> {
        let first = &self.outputs.first()?.node;
        self.outputs.iter().all(|e| Arc::ptr_eq(&e.node, first)).then_some(first)
    }

    /// The node's name; `None` for a group of several nodes.
    pub fn name(&self) -> Option<String> {
        self.sole_node().map(|n| n.name())
    }

    /// Names of the variables that no operator modifies, in depth-first order; names may repeat.
    pub fn list_arguments(&self) -> Vec<String> {
        self.arguments_and_states().0.iter().map(|n| n.name()).collect()
    }

    /// Names of the variables that an operator modifies, in depth-first order.
    pub fn list_auxiliary_states(&self) -> Vec<String> {
        self.arguments_and_states().1.iter().map(|n| n.name()).collect()
    }

    /// Names of all variables, in depth-first order.
    pub fn list_inputs(&self) -> Vec<String> {
        self.all_variables().iter().map(|n| n.name()).collect()
    }

    /// The names of the heads.
    pub fn list_outputs(&self) -> Vec<String> {
        let mut names = Vec::with_capacity(self.outputs.len());
        for of_node in self.outputs.chunk_by(|a, b| Arc::ptr_eq(&a.node, &b.node)) {
            let all = of_node[0].node.output_names();
            names.extend(of_node.iter().map(|e| all[e.index as usize].clone()));
        }
        names
    }

    /// Head `index`.
    pub fn at(&self, index: usize) -> Result<Symbol> {
        let head = self.outputs.get(index).ok_or_else(|| {
            Error::index(format!(
                "invalid index {index}: expected less than {}, the number of outputs",
                self.len()
            ))
        })?;
        Ok(Symbol { outputs: vec![head.clone()] })
    }

    /// Visible outputs of all nodes in depth-first order.
    pub fn get_internals(&self) -> Symbol {
        let mut outputs = Vec::new();
        for node in self.nodes() {
            let visible = node.num_visible_outputs() as u32;
            outputs.extend((0..visible).map(|index| SymEntry { node: node.clone(), index }));
        }
        Symbol { outputs }
    }

    /// Inputs of the head nodes, auxiliary states included; `None` if there are none.
    pub fn get_children(&self) -> Option<Symbol> {
        let mut seen: Vec<*const SymNode> = Vec::new();
        let mut outputs: Vec<SymEntry> = Vec::new();
        for head in &self.outputs {
            if !seen.contains(&Arc::as_ptr(&head.node)) {
                seen.push(Arc::as_ptr(&head.node));
                outputs.extend(head.node.inputs.iter().cloned());
            }
        }
        (!outputs.is_empty()).then_some(Symbol { outputs })
    }

    /// An attribute of the node, by either spelling of a hidden key. `None` for a group.
    pub fn attr(&self, key: &str) -> Option<String> {
        let node = self.sole_node()?;
        match key {
            "name" => return Some(node.name()),
            "op_name" => return Some(node.op_name().to_owned()),
            "_value_index" => return self.outputs.first().map(|e| e.index.to_string()),
            _ => {}
        }
        let meta = node.meta();
        meta.dict.get(&stored_key(key)).or_else(|| meta.dict.get(key)).cloned()
    }

    /// Sets an attribute of the node, for every symbol that shares it, and parses the parameters
    /// again; `name` renames the node.
    pub fn attr_set(&self, key: &str, value: &str) -> Result<()> {
        let node = self.sole_node().ok_or_else(|| {
            Error::value("attributes cannot be set on a group: expected a symbol of one node")
        })?;
        if key == "name" {
            node.rename(value);
            return Ok(());
        }
        if let Some(op) = &node.op {
            let meta = node.meta();
            let inputs = op.inputs(&meta.attrs);
            for hidden in HIDDEN_KEYS {
                let arg = key.strip_suffix(hidden).and_then(|k| k.strip_suffix('_'));
                if let Some(arg) = arg.filter(|a| inputs.iter().any(|i| i == a)) {
                    return Err(Error::value(format!(
                        "attribute '{key}' belongs to the variable: use Variable(name='{arg}', \
                         {hidden}=...) and give it as input '{arg}'"
                    ))
                    .at_node(&op.name, &meta.name));
                }
            }
        }
        node.edit(|dict| {
            dict.insert(stored_key(key), value.to_owned());
        })
    }

    /// All attributes and parameters of the node; hidden keys appear in both spellings.
    pub fn list_attr(&self) -> Dict {
        self.sole_node().map(|n| both_spellings(&n.meta().dict)).unwrap_or_default()
    }

    /// Attributes of all nodes that have any, by node name.
    pub fn attr_dict(&self) -> BTreeMap<String, Dict> {
        let mut all = BTreeMap::new();
        for node in self.nodes() {
            let meta = node.meta();
            if !meta.dict.is_empty() {
                all.insert(meta.name.clone(), both_spellings(&meta.dict));
            }
        }
        all
    }
}

fn both_spellings(dict: &Dict) -> Dict {
    let mut both = dict.clone();
    for key in HIDDEN_KEYS {
        if let Some(value) = dict.get(&format!("__{key}__")) {
            both.entry(key.to_owned()).or_insert_with(|| value.clone());
        }
    }
    both
}
