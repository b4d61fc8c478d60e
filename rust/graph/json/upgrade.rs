//! Upgrades of older files: moved keys, inputs without nodes, parameters with another meaning.

use super::super::symbol::{HIDDEN_KEYS, SymEntry, SymNode, fill_inputs, parse_dict};
use super::raw::Raw;
use crate::error::{AtNode, Result};
use crate::graph::infer::declared_dims;
use crate::operator::{OpDef, Registry, Value};
use crate::shape::Shape;

/// The first version whose files have nodes for auxiliary states (0.9.0).
pub const AUX_ARE_NODES: i64 = 900;
/// The first version whose variables have the attributes that operators set on them (0.9.4).
const VARIABLES_HAVE_ATTRS: i64 = 904;
/// The first version in which an axis of -1 means the last axis (0.9.5).
const NEGATIVE_AXES: i64 = 905;

/// Converts the declared shapes of variables to np-shape mode: 0, an unknown extent in the file,
/// becomes -1, and `()`, an unknown rank there, is removed.
pub fn mark_unknown_extents(raw: &mut [Raw]) {
    for node in raw {
        let Some(shape) = declared_dims(&node.dict).map(|dims| Shape::from_legacy(&dims)) else {
            continue;
        };
        if !shape.rank_known() {
            node.dict.remove("__shape__");
        } else if !shape.is_known() {
            let extents = shape.dims().iter().copied().map(Value::Int).collect();
            node.dict.insert("__shape__".into(), Value::List(extents).to_string());
        }
    }
}

/// Renames `lr_mult` to `__lr_mult__`, and moves `weight_lr_mult` of an operator with the input
/// `weight` to `__lr_mult__` of that variable.
pub fn move_hidden_keys(raw: &mut [Raw], registry: &Registry) {
    for id in 0..raw.len() {
        let hidden: Vec<(String, &str)> = raw[id]
            .dict
            .keys()
            .filter_map(|k| HIDDEN_KEYS.iter().find(|h| k.ends_with(**h)).map(|h| (k.clone(), *h)))
            .filter(|(k, _)| !k.starts_with("__"))
            .collect();
        for (key, hidden) in hidden {
            if key == hidden {
                if let Some(value) = raw[id].dict.remove(&key) {
                    raw[id].dict.insert(format!("__{hidden}__"), value);
                }
                continue;
            }
            if let Some(variable) = owner(raw, id, &key, hidden, registry)
                && let Some(value) = raw[id].dict.remove(&key)
            {
                raw[variable].dict.insert(format!("__{hidden}__"), value);
            }
        }
    }
}

/// Returns the variable that `<arg>_<hidden>` of node `id` refers to.
fn owner(raw: &[Raw], id: usize, key: &str, hidden: &str, registry: &Registry) -> Option<usize> {
    let node = &raw[id];
    let arg = key.strip_suffix(hidden)?.strip_suffix('_')?;
    let op = registry.get(&node.op)?;
    let attrs = parse_dict(&op, &node.dict, &node.name).ok()?;
    let at = op.inputs(&attrs).iter().position(|n| n == arg)?;
    let variable = node.inputs.get(at)?.0;
    (raw[variable].op == "null").then_some(variable)
}

/// Removes parameters whose meaning changed.
pub fn rename_parameters(raw: &mut [Raw], version: i64) {
    if version >= NEGATIVE_AXES {
        return;
    }
    for node in raw.iter_mut().filter(|n| n.op == "argmin" || n.op == "argmax") {
        if node.dict.get("axis").is_some_and(|a| a == "-1") {
            node.dict.remove("axis");
        }
    }
}

/// Connects the inputs; inputs missing in the file become variables.
pub fn connect(
    node: &mut SymNode,
    op: &OpDef,
    given: Vec<Option<SymEntry>>,
    version: i64,
) -> Result<()> {
    let name = node.name();
    if given.iter().any(Option::is_none) || version < VARIABLES_HAVE_ATTRS {
        return fill_inputs(node, op, given).at_node(&op.name, &name);
    }
    node.inputs = given.into_iter().flatten().collect();
    // Newer files list all variables with their attributes; only mutation targets are checked.
    let names = op.inputs(&node.meta().attrs);
    for i in node.mutated_inputs() {
        let (Some(input), Some(label)) = (node.inputs.get(i), names.get(i)) else { continue };
        if !input.node.is_variable() {
            return Err(crate::error::Error::value(format!(
                "Mutation target can only be Variable: input '{label}' is the output of '{}'",
                input.node.name()
            )))
            .at_node(&op.name, &name);
        }
    }
    Ok(())
}
