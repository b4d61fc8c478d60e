//! New nodes, with what they hold: parameters, attributes, inputs, graphs.

use super::inputs::{arrange_inputs, fill_inputs};
use super::{HIDDEN_KEYS, SymNode, Symbol, stored_key};
use crate::error::{Error, Result};
use crate::graph::body::Subgraph;
use crate::graph::static_graph::Dict;
use crate::operator::{OpDef, Value};
use std::sync::Arc;

/// Arguments of [`Symbol::create`].
#[derive(Default)]
pub struct Create<'a> {
    /// Parameters as given; those with [`HIDDEN_KEYS`] become attributes.
    pub params: &'a [(&'a str, Value)],
    /// The node's name, already chosen by the name manager.
    pub name: &'a str,
    /// Attributes.
    pub dict: Dict,
    pub args: &'a [Symbol],
    pub kwargs: &'a [(String, Symbol)],
    /// The graphs that the node holds.
    pub bodies: Vec<Symbol>,
}

impl Symbol {
    /// Creates a node of operator `op`. Missing inputs become variables `<name>_<input>`.
    pub fn create(op: &Arc<OpDef>, with: Create<'_>) -> Result<Symbol> {
        let name = with.name;
        let (hidden, mut params): (Vec<_>, Vec<_>) =
            with.params.iter().cloned().partition(|(key, _)| HIDDEN_KEYS.contains(key));
        if let Some(count) = op.key_var_num_args.as_deref()
            && !params.iter().any(|p| p.0 == count)
        {
            if !with.kwargs.is_empty() && !with.args.is_empty() {
                return Err(Error::type_(
                    "inputs of a variable number are given either as positional or keyword \
                     arguments, not both",
                )
                .at_node(&op.name, name));
            }
            params.push((count, Value::Int((with.args.len() + with.kwargs.len()) as i64)));
        }
        let attrs = op.parse_at(&params, name)?;
        let bodies = Subgraph::all(op, with.bodies).map_err(|e| e.at_node(&op.name, name))?;
        let attrs = attrs.with_bodies(bodies);
        let hidden = hidden.into_iter().map(|(k, v)| (k.to_owned(), v.to_string()));
        let own = with.dict.into_iter().chain(hidden);
        let mut dict: Dict = own.map(|(k, v)| (stored_key(&k), v)).collect();
        for (k, v) in &params {
            dict.insert((*k).to_owned(), v.to_string());
        }
        let mut node = SymNode::new(Some(op.clone()), name.to_owned(), Arc::new(attrs));
        node.set_dict(Arc::new(dict));
        let given = arrange_inputs(&node, op, with.args, with.kwargs)
            .map_err(|e| e.at_node(&op.name, name))?;
        fill_inputs(&mut node, op, given).map_err(|e| e.at_node(&op.name, name))?;
        Ok(Symbol::from_node(Arc::new(node)))
    }
}
