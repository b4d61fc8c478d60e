//! Reads the fields of symbol files of every version; `build` makes nodes of them.

use super::super::check;
use super::super::static_graph::{Dict, Entry, Graph};
use super::super::symbol::{NodeMap, Symbol};
use super::build::{Built, build};
use super::fused;
use super::raw::{Raw, RawGraph};
use super::upgrade::{self, move_hidden_keys};
use super::write::{LIBRARIES, VERSION};
use crate::error::{Error, Result};
use crate::operator::Registry;
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// The version of files without a version: 0.8.0.
const OLDEST: i64 = 800;

/// The [`Symbol`] or [`Graph`] of a file.
pub struct Loaded<T> {
    pub value: T,
    /// The version that wrote it, major·10000 + minor·100 + patch.
    pub version: i64,
    /// Whether an older version than this format's wrote the file.
    pub upgraded: bool,
    /// Whether a newer version wrote it.
    pub newer: bool,
}

impl<T> Loaded<T> {
    fn new(value: T, version: i64) -> Self {
        Loaded { value, version, upgraded: version < VERSION, newer: version > VERSION }
    }
}

/// The content of a file, upgraded to the current version.
struct SymbolFile {
    raw: Vec<Raw>,
    heads: Vec<(usize, u32)>,
    version: i64,
}

/// Reads a symbol. Errors name the field or node; unknown operators are reported all at once. With
/// `np_shape`, shapes in a file that was written without it are converted, because 0 is an unknown
/// extent there. In-place sums become additions, because symbols have no in-place sums. With
/// `allow_unknown`, unregistered operators are stand-ins that can be listed and saved.
pub fn load_json(
    text: &str,
    registry: &Registry,
    np_shape: bool,
    allow_unknown: bool,
) -> Result<Loaded<Symbol>> {
    let file = read_file(text, registry, np_shape)?;
    let built = build(&file.raw, &file.heads, file.version, registry, allow_unknown)?;
    if file.raw.iter().any(|raw| !raw.addto.is_empty()) {
        let graph = graph_of(&file, &built)?;
        return Ok(Loaded::new(graph.to_symbol(registry)?, file.version));
    }
    Ok(Loaded::new(Symbol { outputs: built.heads(&file.heads)? }, file.version))
}

/// Reads a static graph: all nodes of the file, including those that no head needs.
pub fn load_graph(text: &str, registry: &Registry) -> Result<Loaded<Graph>> {
    let file = read_file(text, registry, false)?;
    let built = build(&file.raw, &file.heads, file.version, registry, false)?;
    Ok(Loaded::new(graph_of(&file, &built)?, file.version))
}

fn graph_of(file: &SymbolFile, built: &Built) -> Result<Graph> {
    let order = built.order();
    let mut graph = Graph::from_nodes(&order, &built.heads(&file.heads)?)?;
    let ids = order.iter().enumerate().map(|(id, node)| (Arc::as_ptr(node), id as u32));
    let ids: NodeMap<u32> = ids.collect();
    let number = |id: usize| built.node(id).and_then(|node| ids.get(&Arc::as_ptr(node)).copied());
    for (id, raw) in file.raw.iter().enumerate() {
        let Some(at) = number(id) else { continue };
        graph.nodes[at as usize].mirror_of = raw.mirror_source.and_then(number);
        for (output, (node, index)) in &raw.addto {
            let Some(onto) = number(*node) else { continue };
            let count = graph.nodes[at as usize].num_outputs;
            if *output >= count || *index >= graph.nodes[onto as usize].num_outputs {
                return Err(Error::value(format!(
                    "invalid addto [{output}, [{node}, {index}]]: expected one of the {count} \
                     outputs of the node and an output of node {node}"
                ))
                .at_node(&raw.op, &raw.name));
            }
            graph.nodes[at as usize].addto.push((*output, Entry::new(onto, *index)));
        }
    }
    let needed = graph.ancestors(graph.heads.iter().map(|e| e.node));
    let forward = needed.iter().take_while(|&&n| n).count();
    if !needed[forward..].contains(&true) {
        graph.num_forward = forward;
    }
    check(&graph, "loading")?;
    Ok(graph)
}

/// Most levels of brackets: a loop within a loop is four. Reading, building and dropping recurse as
/// deep as the brackets.
const DEEPEST: usize = 1024;

/// The brackets of a text that are open at once, at most.
fn depth(text: &str) -> usize {
    let (mut open, mut most, mut quoted, mut escaped) = (0usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                open += 1;
                most = most.max(open);
            }
            b']' | b'}' if !quoted => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// One value, of any depth.
fn parse(text: &str) -> Result<Json> {
    let mut from = serde_json::Deserializer::from_str(text);
    from.disable_recursion_limit();
    let mut values = from.into_iter();
    let wrong = match (values.next(), values.next()) {
        (Some(Ok(json)), None) => return Ok(json),
        (Some(Err(error)), _) => error.to_string(),
        (None, _) => "EOF while parsing a value".to_owned(),
        (Some(Ok(_)), Some(_)) => "trailing characters".to_owned(),
    };
    Err(Error::value(format!("invalid symbol file: expected JSON: {wrong}")))
}

fn read_file(text: &str, registry: &Registry, np_shape: bool) -> Result<SymbolFile> {
    if depth(text) > DEEPEST {
        let text = format!("invalid symbol file: expected at most {DEEPEST} levels of brackets");
        return Err(Error::value(text));
    }
    let json = parse(text)?;
    let top = object(&json, "symbol file", "content")?;
    check_keys(top, &GRAPH_KEYS, &["nodes", "arg_nodes", "heads"], "symbol file")?;
    let (version, written_np) = read_graph_attrs(top.get("attrs"))?;
    let libraries = read_libraries(top.get("attrs"));
    let items = array(&top["nodes"], "symbol file", "nodes")?;
    let mut raw = Vec::with_capacity(items.len());
    for (id, item) in items.iter().enumerate() {
        let mut node = read_node(item, id, items.len())?;
        node.library = libraries.iter().find(|(op, _)| *op == node.op).map(|(_, l)| l.clone());
        raw.push(node);
    }
    for id in array(&top["arg_nodes"], "symbol file", "arg_nodes")? {
        index(id, items.len(), "symbol file", "arg_nodes")?;
    }
    let mut heads = Vec::new();
    for head in array(&top["heads"], "symbol file", "heads")? {
        heads.push(read_entry(head, items.len(), "heads")?);
    }
    upgrade_nodes(&mut raw, registry, version, np_shape && !written_np)?;
    Ok(SymbolFile { raw, heads, version })
}

/// Brings the nodes of a file, also those inside of nodes, to the current version.
fn upgrade_nodes(
    raw: &mut Vec<Raw>,
    registry: &Registry,
    version: i64,
    mark_unknown: bool,
) -> Result<()> {
    fused::expand(raw)?;
    if version < VERSION {
        move_hidden_keys(raw, registry);
    }
    upgrade::rename_parameters(raw, version);
    if mark_unknown {
        upgrade::mark_unknown_extents(raw);
    }
    let mut bodies = raw.iter_mut().flat_map(|node| &mut node.bodies);
    bodies.try_for_each(|body| upgrade_nodes(&mut body.nodes, registry, version, mark_unknown))
}

fn read_graph_attrs(attrs: Option<&Json>) -> Result<(i64, bool)> {
    let Some(attrs) = attrs else { return Ok((OLDEST, false)) };
    let map = object(attrs, "symbol file", "attrs")?;
    let number = |key: &str| -> Result<Option<i64>> {
        let Some(value) = map.get(key) else { return Ok(None) };
        // Values are tagged with their type: ["int", 10901].
        let tagged = value.as_array().and_then(|a| a.get(1)).and_then(Json::as_i64);
        tagged.map(Some).ok_or_else(|| invalid("symbol file", key, value, "[\"int\", n]"))
    };
    let np_shape = number("is_np_shape")?.is_some_and(|n| n != 0);
    Ok((number("mxnet_version")?.unwrap_or(OLDEST), np_shape))
}

/// Operators and their libraries, from `["list_str", ["op=library"]]`. Only messages use them, so
/// anything else is ignored.
fn read_libraries(attrs: Option<&Json>) -> Vec<(String, String)> {
    let listed = attrs.and_then(|attrs| attrs.get(LIBRARIES)?.get(1)?.as_array());
    let pair = |item: &Json| {
        let (op, library) = item.as_str()?.split_once('=')?;
        Some((op.to_owned(), library.to_owned()))
    };
    listed.into_iter().flatten().filter_map(pair).collect()
}

const GRAPH_KEYS: [&str; 5] = ["nodes", "arg_nodes", "node_row_ptr", "heads", "attrs"];

const NODE_KEYS: [&str; 11] = [
    "op",
    "param",
    "name",
    "inputs",
    "backward_source_id",
    "attr",
    "attrs",
    "control_deps",
    "subgraphs",
    "mirror_source_id",
    "addto",
];

fn read_node(item: &Json, id: usize, count: usize) -> Result<Raw> {
    let place = format!("node {id}");
    let map = object(item, &place, "entry of nodes")?;
    check_keys(map, &NODE_KEYS, &["op", "name", "inputs"], &place)?;
    let name = string(&map["name"], "name", &place)?;
    let mut dict = Dict::new();
    for key in ["param", "attr", "attrs"] {
        let Some(value) = map.get(key) else { continue };
        for (k, v) in object(value, &format!("{place} '{name}'"), key)? {
            dict.insert(k.clone(), string(v, k, &place)?);
        }
    }
    let inputs = array(&map["inputs"], &place, "inputs")?.iter();
    let inputs = inputs.map(|e| read_entry(e, count, &place)).collect::<Result<_>>()?;
    let optional = |key: &str| map.get(key).map_or(Ok(&[][..]), |value| array(value, &place, key));
    let control = optional("control_deps")?.iter();
    let control =
        control.map(|dep| index(dep, count, &place, "control_deps")).collect::<Result<_>>()?;
    let mut addto = Vec::new();
    for pair in optional("addto")? {
        addto.push(read_addto(pair, count, &place)?);
    }
    let mut bodies = Vec::new();
    for (at, body) in optional("subgraphs")?.iter().enumerate() {
        bodies.push(read_body(body, &format!("subgraph {at} of {place} '{name}'"))?);
    }
    Ok(Raw {
        op: string(&map["op"], "op", &place)?,
        dict,
        inputs,
        control,
        library: None,
        backward_source: read_link(map, "backward_source_id", count, &place)?,
        mirror_source: read_link(map, "mirror_source_id", count, &place)?,
        addto,
        name,
        bodies,
    })
}

/// Reads a graph inside a node. (How deep these are nested is limited by [`DEEPEST`].)
fn read_body(value: &Json, place: &str) -> Result<RawGraph> {
    let map = object(value, place, "content")?;
    check_keys(map, &GRAPH_KEYS, &["nodes", "heads"], place)?;
    let items = array(&map["nodes"], place, "nodes")?;
    let nodes = items.iter().enumerate().map(|(id, item)| {
        read_node(item, id, items.len())
            .map_err(|e| Error::new(e.kind(), format!("{place}: {}", e.message())))
    });
    let heads = array(&map["heads"], place, "heads")?.iter();
    Ok(RawGraph {
        nodes: nodes.collect::<Result<_>>()?,
        heads: heads.map(|head| read_entry(head, items.len(), place)).collect::<Result<_>>()?,
    })
}

/// Reads a field that names another node; returns `None` if it is absent or -1.
fn read_link(
    map: &Map<String, Json>,
    key: &str,
    count: usize,
    place: &str,
) -> Result<Option<usize>> {
    match map.get(key) {
        None => Ok(None),
        Some(value) if value.as_i64() == Some(-1) => Ok(None),
        Some(value) => index(value, count, place, key).map(Some),
    }
}

/// `[output, [node, output]]`.
fn read_addto(value: &Json, count: usize, place: &str) -> Result<(u32, (usize, u32))> {
    let pair = value.as_array().filter(|a| a.len() == 2);
    let output = pair.and_then(|a| a[0].as_u64()).and_then(|n| u32::try_from(n).ok());
    match (pair, output) {
        (Some(pair), Some(output)) => Ok((output, read_entry(&pair[1], count, place)?)),
        _ => Err(invalid(place, "addto", value, "[output, [node, output]]")),
    }
}

fn check_keys(
    map: &Map<String, Json>,
    allowed: &[&str],
    needed: &[&str],
    place: &str,
) -> Result<()> {
    if let Some(key) = map.keys().find(|k| !allowed.contains(&k.as_str())) {
        let expected = format!("one of: {}", allowed.join(", "));
        return Err(Error::value(format!("{place}: invalid field '{key}': expected {expected}")));
    }
    match needed.iter().find(|k| !map.contains_key(**k)) {
        Some(key) => Err(Error::value(format!("Missing field \"{key}\" in {place}"))),
        None => Ok(()),
    }
}

/// The error for a value of another form; a long one is cut short.
fn invalid(place: &str, what: &str, got: &Json, expected: &str) -> Error {
    let mut got = got.to_string();
    if let Some((end, _)) = got.char_indices().nth(80) {
        got.replace_range(end.., "...");
    }
    Error::value(format!("{place}: invalid {what} {got}: expected {expected}"))
}

fn object<'a>(value: &'a Json, place: &str, what: &str) -> Result<&'a Map<String, Json>> {
    value.as_object().ok_or_else(|| invalid(place, what, value, "an object"))
}

fn array<'a>(value: &'a Json, place: &str, what: &str) -> Result<&'a [Json]> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| invalid(place, what, value, "an array"))
}

fn string(value: &Json, field: &str, place: &str) -> Result<String> {
    match value {
        Json::String(s) => Ok(s.clone()),
        other => Err(invalid(place, field, other, "a string")),
    }
}

fn index(value: &Json, count: usize, place: &str, what: &str) -> Result<usize> {
    value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|&n| n < count).ok_or_else(|| {
        let expected = format!("the number of one of the {count} nodes");
        invalid(place, what, value, &expected)
    })
}

/// `[node, output]` or `[node, output, version]`.
fn read_entry(value: &Json, count: usize, place: &str) -> Result<(usize, u32)> {
    let bad = || invalid(place, "entry", value, "[node, output, version]");
    let parts = value.as_array().filter(|a| (2..=3).contains(&a.len())).ok_or_else(bad)?;
    let output = parts[1].as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(bad)?;
    Ok((index(&parts[0], count, place, "node of an entry")?, output))
}
