//! Reads symbol files of every version.

use super::super::static_graph::{Dict, empty_attrs};
use super::super::symbol::{SymEntry, SymNode, Symbol, parse_dict};
use super::upgrade::{self, move_hidden_keys};
use super::write::VERSION;
use crate::error::{Error, Result};
use crate::operator::{InGradient, OpDef, Registry};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// The version of a file that names none: 0.8.0.
const OLDEST: i64 = 800;

/// What a file held.
pub struct Loaded {
    pub symbol: Symbol,
    /// The version that wrote it, major·10000 + minor·100 + patch.
    pub version: i64,
    /// Was it written by an older version than this format's?
    pub upgraded: bool,
    /// Was it written by a newer one?
    pub newer: bool,
}

/// A node as it stands in the file.
pub(super) struct Raw {
    pub op: String,
    pub name: String,
    pub dict: Dict,
    pub inputs: Vec<(usize, u32)>,
    control: Vec<usize>,
}

/// Reads a symbol. Errors name the field or node; operators that do not exist are reported all at once. With
/// `np_shape`, shapes in a file that was written without it are converted: 0 is an unknown extent there.
pub fn load_json(text: &str, registry: &Registry, np_shape: bool) -> Result<Loaded> {
    let json: Json = serde_json::from_str(text)
        .map_err(|e| Error::value(format!("the symbol file is not valid JSON: {e}")))?;
    let top = json.as_object().ok_or_else(|| Error::value("a symbol file holds one object"))?;
    let allowed = ["nodes", "arg_nodes", "node_row_ptr", "heads", "attrs"];
    check_keys(top, &allowed, &["nodes", "arg_nodes", "heads"], "the symbol")?;
    let (version, written_np) = read_graph_attrs(top.get("attrs"))?;
    let items = array(&top["nodes"], "nodes")?;
    let mut raw = Vec::with_capacity(items.len());
    for (id, item) in items.iter().enumerate() {
        raw.push(read_node(item, id, items.len())?);
    }
    for id in array(&top["arg_nodes"], "arg_nodes")? {
        index(id, items.len(), "arg_nodes")?;
    }
    let mut heads = Vec::new();
    for head in array(&top["heads"], "heads")? {
        heads.push(read_entry(head, items.len(), "heads")?);
    }
    if version < VERSION {
        move_hidden_keys(&mut raw, registry);
    }
    upgrade::rename_parameters(&mut raw, version);
    if np_shape && !written_np {
        upgrade::mark_unknown_extents(&mut raw);
    }
    let symbol = build(&raw, &heads, version, registry)?;
    let (upgraded, newer) = (version < VERSION, version > VERSION);
    Ok(Loaded { symbol, version, upgraded, newer })
}

fn read_graph_attrs(attrs: Option<&Json>) -> Result<(i64, bool)> {
    let Some(attrs) = attrs else { return Ok((OLDEST, false)) };
    let map = attrs.as_object().ok_or_else(|| Error::value("field attrs is not an object"))?;
    let number = |key: &str| -> Result<Option<i64>> {
        let Some(value) = map.get(key) else { return Ok(None) };
        // A value carries its type in front: ["int", 10901].
        let tagged = value.as_array().and_then(|a| a.get(1)).and_then(Json::as_i64);
        tagged.map(Some).ok_or_else(|| {
            Error::value(format!("attribute {key} of the symbol is {value}, expected [\"int\", n]"))
        })
    };
    let np_shape = number("is_np_shape")?.is_some_and(|n| n != 0);
    Ok((number("mxnet_version")?.unwrap_or(OLDEST), np_shape))
}

fn read_node(item: &Json, id: usize, count: usize) -> Result<Raw> {
    let place = format!("node {id}");
    let map = item.as_object().ok_or_else(|| Error::value(format!("{place} is not an object")))?;
    let allowed = [
        "op",
        "param",
        "name",
        "inputs",
        "backward_source_id",
        "attr",
        "attrs",
        "control_deps",
        "subgraphs",
    ];
    check_keys(map, &allowed, &["op", "name", "inputs"], &place)?;
    let name = string(&map["name"], "name", &place)?;
    let mut dict = Dict::new();
    for key in ["param", "attr", "attrs"] {
        let Some(value) = map.get(key) else { continue };
        let pairs = value
            .as_object()
            .ok_or_else(|| Error::value(format!("{place} '{name}': {key} is not an object")))?;
        for (k, v) in pairs {
            dict.insert(k.clone(), string(v, k, &place)?);
        }
    }
    let mut inputs = Vec::new();
    for entry in array(&map["inputs"], "inputs")? {
        inputs.push(read_entry(entry, count, &place)?);
    }
    let mut control = Vec::new();
    for dep in map.get("control_deps").map_or(Ok(&[][..]), |c| array(c, "control_deps"))? {
        control.push(index(dep, count, &place)?);
    }
    let fail = |what: &str| Error::not_implemented(format!("{place} '{name}': {what}"));
    match map.get("backward_source_id").map(Json::as_i64) {
        None | Some(Some(-1)) => {}
        _ => return Err(fail("files with backward nodes cannot be loaded")),
    }
    if map.get("subgraphs").is_some_and(|s| s.as_array().is_none_or(|a| !a.is_empty())) {
        return Err(fail("nodes with subgraphs cannot be loaded"));
    }
    let op = string(&map["op"], "op", &place)?;
    Ok(Raw { op, name, dict, inputs, control })
}

fn check_keys(
    map: &Map<String, Json>,
    allowed: &[&str],
    needed: &[&str],
    place: &str,
) -> Result<()> {
    if let Some(key) = map.keys().find(|k| !allowed.contains(&k.as_str())) {
        return Err(Error::value(format!(
            "{place} has the unknown field \"{key}\", allowed are: {}",
            allowed.join(", ")
        )));
    }
    match needed.iter().find(|k| !map.contains_key(**k)) {
        Some(key) => Err(Error::value(format!("Missing field \"{key}\" in {place}"))),
        None => Ok(()),
    }
}

fn array<'a>(value: &'a Json, field: &str) -> Result<&'a [Json]> {
    value
        .as_array()
        .map(Vec::as_slice)
        .ok_or_else(|| Error::value(format!("field {field} is not an array")))
}

fn string(value: &Json, field: &str, place: &str) -> Result<String> {
    match value {
        Json::String(s) => Ok(s.clone()),
        other => Err(Error::value(format!("{place}: field {field} is {other}, expected a string"))),
    }
}

fn index(value: &Json, count: usize, place: &str) -> Result<usize> {
    value
        .as_u64()
        .and_then(|n| usize::try_from(n).ok())
        .filter(|&n| n < count)
        .ok_or_else(|| Error::value(format!("{place}: {value} is not one of the {count} nodes")))
}

/// `[node, output]` or `[node, output, version]`.
fn read_entry(value: &Json, count: usize, place: &str) -> Result<(usize, u32)> {
    let parts = value.as_array().filter(|a| (2..=3).contains(&a.len())).ok_or_else(|| {
        Error::value(format!("{place}: entry {value} is not [node, output, version]"))
    })?;
    let output = parts[1].as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| {
        Error::value(format!("{place}: entry {value} has no valid output number"))
    })?;
    Ok((index(&parts[0], count, place)?, output))
}

/// Nodes after everything they need, in the file's order as far as that allows; a cycle is an error.
fn topological(raw: &[Raw]) -> Result<Vec<usize>> {
    let needs = |n: usize| raw[n].inputs.iter().map(|e| e.0).chain(raw[n].control.iter().copied());
    if (0..raw.len()).all(|n| needs(n).all(|d| d < n)) {
        return Ok((0..raw.len()).collect());
    }
    let mut waiting: Vec<usize> = (0..raw.len()).map(|n| needs(n).count()).collect();
    let mut users = vec![Vec::new(); raw.len()];
    for n in 0..raw.len() {
        needs(n).for_each(|d| users[d].push(n));
    }
    let mut ready: std::collections::BinaryHeap<_> =
        (0..raw.len()).filter(|&n| waiting[n] == 0).map(std::cmp::Reverse).collect();
    let mut order = Vec::with_capacity(raw.len());
    while let Some(std::cmp::Reverse(n)) = ready.pop() {
        order.push(n);
        for &u in &users[n] {
            waiting[u] -= 1;
            if waiting[u] == 0 {
                ready.push(std::cmp::Reverse(u));
            }
        }
    }
    if order.len() < raw.len() {
        let stuck: Vec<_> = (0..raw.len())
            .filter(|&n| waiting[n] > 0)
            .take(5)
            .map(|n| format!("'{}'", raw[n].name))
            .collect();
        return Err(Error::value(format!("the graph has a cycle through {}", stuck.join(", "))));
    }
    Ok(order)
}

fn build(raw: &[Raw], heads: &[(usize, u32)], version: i64, registry: &Registry) -> Result<Symbol> {
    let mut made: Vec<Option<Arc<SymNode>>> = vec![None; raw.len()];
    let mut unknown = Vec::new();
    let outputs = outputs_used(raw, heads);
    for id in topological(raw)? {
        let node = &raw[id];
        if node.op == "null" {
            made[id] = Some(Arc::new(variable(node)?));
            continue;
        }
        let Some(op) = registry.get(&node.op).or_else(|| custom(node, outputs[id])) else {
            unknown.push(format!(
                "Failed loading Op {} of type {}: operator {} is not registered",
                node.name, node.op, node.op
            ));
            // Stands in, so that the others are looked at too.
            made[id] = Some(Arc::new(placeholder(node, outputs[id])));
            continue;
        };
        made[id] = Some(Arc::new(operator(node, op, &made, version)?));
    }
    if !unknown.is_empty() {
        let hint = "An operator that a program defines has to be registered first: import its module. \
                    MXNet's operators that rsnet does not have cannot be loaded.";
        unknown.push(hint.into());
        return Err(Error::not_implemented(unknown.join("\n")));
    }
    let head = |&(id, index): &(usize, u32)| entry(&made, id, index, "a head");
    Ok(Symbol { outputs: heads.iter().map(head).collect::<Result<_>>()? })
}

/// How many outputs of every node are referred to.
fn outputs_used(raw: &[Raw], heads: &[(usize, u32)]) -> Vec<u32> {
    let mut used = vec![1; raw.len()];
    for &(id, index) in raw.iter().flat_map(|n| &n.inputs).chain(heads) {
        used[id] = used[id].max(index.saturating_add(1));
    }
    used
}

fn entry(made: &[Option<Arc<SymNode>>], id: usize, index: u32, by: &str) -> Result<SymEntry> {
    let node =
        made[id].clone().ok_or_else(|| Error::internal("a node was built before its inputs"))?;
    if index as usize >= node.num_outputs {
        return Err(Error::value(format!(
            "{by} refers to output {index} of '{}', which has {}",
            node.name(),
            node.num_outputs
        )));
    }
    Ok(SymEntry { node, index })
}

fn variable(raw: &Raw) -> Result<SymNode> {
    if !raw.inputs.is_empty() {
        return Err(Error::value(format!("variable '{}' has inputs", raw.name)));
    }
    let node = SymNode::new(None, raw.name.clone(), empty_attrs());
    node.set_dict(Arc::new(raw.dict.clone()));
    Ok(node)
}

/// Most outputs a stand-in for an unknown operator may have.
const MOST_OUTPUTS: u32 = 4096;

fn placeholder(raw: &Raw, outputs: u32) -> SymNode {
    let op = Arc::new(stand_in(&raw.op, raw, outputs));
    SymNode::new(Some(op), raw.name.clone(), empty_attrs())
}

/// `Custom` stays loadable when its Python class is not there.
fn custom(raw: &Raw, outputs: u32) -> Option<Arc<OpDef>> {
    (raw.op == "Custom").then(|| Arc::new(stand_in("Custom", raw, outputs)))
}

/// An operator of which only the node's own arity is known; inference says what is missing.
fn stand_in(name: &str, raw: &Raw, outputs: u32) -> OpDef {
    let outputs = outputs.min(MOST_OUTPUTS);
    let inputs: Vec<String> = (0..raw.inputs.len()).map(|i| format!("arg{i}")).collect();
    let op_type = raw.dict.get("op_type").cloned().unwrap_or_default();
    let message = format!("custom operator '{op_type}' is not registered");
    let mut op = OpDef::plain(name)
        .not_deterministic()
        .input_names_by(move |_| inputs.clone())
        .infer_shape(move |_, _, _| Err(Error::not_implemented(message.clone())));
    if outputs > 1 {
        op = op.output_names_by(move |_| (0..outputs).map(|i| format!("output{i}")).collect());
    }
    op
}

/// A backward node of a saved gradient: its control dependency is the forward node, whose parameters it
/// has and whose inputs its outputs are the gradients of.
fn backward(
    raw: &Raw,
    op: Arc<OpDef>,
    made: &[Option<Arc<SymNode>>],
    forward: &Arc<SymNode>,
) -> Result<SymNode> {
    let InGradient { attrs, .. } = match &forward.op {
        Some(of) => {
            let attrs = forward.meta().attrs.clone();
            op.in_gradient_of(of, &attrs, raw.inputs.len(), forward.inputs.len())
                .map_err(|e| e.in_node(&raw.name))?
        }
        None => return Err(Error::value("a variable has no gradient").in_node(&raw.name)),
    };
    let mut node = SymNode::new(Some(op), raw.name.clone(), attrs);
    node.set_dict(Arc::new(raw.dict.clone()));
    for &(id, index) in &raw.inputs {
        node.inputs.push(entry(made, id, index, &format!("node '{}'", raw.name))?);
    }
    node.control = raw.control.iter().filter_map(|&c| made[c].clone()).collect();
    node.backward_of = Some(forward.clone());
    node.num_outputs = forward.inputs.len();
    Ok(node)
}

fn operator(
    raw: &Raw,
    op: Arc<OpDef>,
    made: &[Option<Arc<SymNode>>],
    version: i64,
) -> Result<SymNode> {
    let forward = raw.control.first().and_then(|&c| made[c].as_ref());
    if op.is_backward
        && let Some(forward) = forward.filter(|f| !f.is_variable())
    {
        return backward(raw, op, made, forward);
    }
    let mut dict = raw.dict.clone();
    if let Some(count) = &op.key_var_num_args {
        dict.entry(count.clone()).or_insert_with(|| raw.inputs.len().to_string());
    }
    let attrs = parse_dict(&op, &dict).map_err(|e| e.in_node(&raw.name))?;
    let mut node = SymNode::new(Some(op.clone()), raw.name.clone(), Arc::new(attrs));
    node.set_dict(Arc::new(dict));
    let wanted = op.num_inputs(&node.meta().attrs);
    let got = raw.inputs.len();
    if got > wanted || (got < wanted && version >= upgrade::AUX_ARE_NODES) {
        return Err(Error::value(format!("it takes {wanted} inputs, the file gives {got}"))
            .in_operator(&op.name)
            .in_node(&raw.name));
    }
    let mut given = Vec::with_capacity(wanted);
    for &(id, index) in &raw.inputs {
        given.push(Some(entry(made, id, index, &format!("node '{}'", raw.name))?));
    }
    given.resize_with(wanted, || None);
    upgrade::connect(&mut node, &op, given, version)?;
    for &c in &raw.control {
        node.control.extend(made[c].clone());
    }
    Ok(node)
}
