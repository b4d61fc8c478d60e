//! The inputs of a new node: arranged by name, variables made for the missing ones.

use super::{SymEntry, SymNode, Symbol};
use crate::error::{Error, Result};
use crate::graph::empty_attrs;
use crate::operator::OpDef;
use std::sync::Arc;

/// The inputs given by position and by name, in the operator's order; `None` where one is missing.
pub(super) fn arrange_inputs(
    node: &SymNode,
    op: &OpDef,
    args: &[Symbol],
    kwargs: &[(String, Symbol)],
) -> Result<Vec<Option<SymEntry>>> {
    let names = op.inputs(&node.meta().attrs);
    if args.len() > names.len() {
        let (got, most) = (args.len(), names.len());
        let text = format!("invalid number of inputs {got}: expected at most {most}");
        return Err(Error::type_(text));
    }
    let mut given: Vec<Option<SymEntry>> = vec![None; names.len()];
    for (i, (slot, symbol)) in given.iter_mut().zip(args).enumerate() {
        *slot = Some(symbol.single(&format!("Argument {i}"))?);
    }
    for (key, symbol) in kwargs {
        let Some(at) = names.iter().position(|n| n == key) else {
            return Err(Error::unknown("argument", key, &names));
        };
        if given[at].is_some() {
            return Err(Error::type_(format!("argument '{key}' is given twice: expected once")));
        }
        given[at] = Some(symbol.single(&format!("Keyword Argument {key}"))?);
    }
    Ok(given)
}

/// Sets the inputs of a new node and makes variables for the missing ones.
pub(in crate::graph) fn fill_inputs(
    node: &mut SymNode,
    op: &OpDef,
    given: Vec<Option<SymEntry>>,
) -> Result<()> {
    let meta = node.meta().clone();
    let names = op.inputs(&meta.attrs);
    let wanted = given.iter().filter(|g| g.is_none()).count();
    if wanted > 0 && !op.auto_variables {
        return Err(Error::value(format!(
            "Not enough argument to call operator {}: it takes {}, {} given",
            op.name,
            names.len(),
            names.len() - wanted
        )));
    }
    let variable_attrs = op.variable_attrs.to_vec(&meta.attrs);
    for (input, slot) in names.iter().zip(given) {
        let entry = slot.unwrap_or_else(|| {
            let name = match meta.name.as_str() {
                "" => input.clone(),
                node => format!("{node}_{input}"),
            };
            let variable = SymNode::new(None, name, empty_attrs());
            variable.set_dict(meta.dict.clone());
            SymEntry { node: Arc::new(variable), index: 0 }
        });
        set_variable_attrs(&variable_attrs, input, &entry.node)?;
        node.inputs.push(entry);
    }
    check_mutated(node)
}

/// Sets attributes such as `__init__`, given as (input, key, text), on a variable that does not
/// have them.
fn set_variable_attrs(
    attrs: &[(String, String, String)],
    input: &str,
    node: &SymNode,
) -> Result<()> {
    if !node.is_variable() {
        return Ok(());
    }
    for (at, key, text) in attrs {
        if at == input && !node.meta().dict.contains_key(key) {
            node.edit(|dict| {
                dict.insert(key.clone(), text.clone());
            })?;
        }
    }
    Ok(())
}

/// An operator can only modify variables.
pub(super) fn check_mutated(node: &SymNode) -> Result<()> {
    for i in node.mutated_inputs() {
        if node.inputs.get(i).is_some_and(|e| !e.node.is_variable()) {
            return Err(Error::value(format!(
                "Mutation target can only be Variable: input {i} is the output of '{}'",
                node.inputs[i].node.name()
            ))
            .at_node(node.op_name(), &node.name()));
        }
    }
    Ok(())
}
