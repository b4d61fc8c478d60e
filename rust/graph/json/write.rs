//! Writes a symbol in the format of version 1.9.1.

use super::super::body::bodies;
use super::super::static_graph::{Entry, Graph, Node};
use super::super::symbol::Symbol;
use crate::error::Result;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The version that written files carry: 1.9.1.
pub const VERSION: i64 = 10901;

/// The attribute of a file that names the libraries of its operators.
pub const LIBRARIES: &str = "rsnet_libraries";

/// Maximum number of simple items of a container that is written on one line.
const SHORT: usize = 10;

/// True to write the links that only static graphs have (backward source, mirror source, in-place
/// sums). MXNet refuses files with unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    Dropped,
    Kept,
}

impl Symbol {
    /// Returns the symbol as JSON; `np_shape` marks files written in that mode.
    pub fn to_json(&self, np_shape: bool) -> Result<String> {
        Ok(Graph::from_symbol(self)?.to_json(np_shape, Links::Dropped))
    }

    /// Returns the JSON without the casts that mixed precision inserted.
    pub fn to_json_without_amp_casts(&self, np_shape: bool) -> Result<String> {
        Ok(Graph::from_symbol(self)?.without_amp_casts()?.to_json(np_shape, Links::Dropped))
    }
}

/// The casts of mixed precision: output `i` is input `i` in another dtype.
const AMP_CASTS: [&str; 2] = ["amp_cast", "amp_multicast"];

/// How many outputs MXNet's operator has beside the ones here: room in which it keeps what its
/// gradient needs. Files count them, nothing reads them.
fn hidden_in_files(op: &str) -> usize {
    match op {
        "Correlation" | "SpatialTransformer" | "_linalg_det" | "_linalg_slogdet" => 2,
        "BilinearSampler"
        | "GridGenerator"
        | "_contrib_BatchNormWithReLU"
        | "_contrib_DeformablePSROIPooling"
        | "sort" => 1,
        _ => 0,
    }
}

impl Graph {
    /// Connects the readers of each cast of mixed precision to the input of the cast. A cast that
    /// is an output of the symbol stays, as its output has a name and a dtype of its own.
    fn without_amp_casts(mut self) -> Result<Graph> {
        let is_cast = |node: &Node| AMP_CASTS.contains(&node.op_name());
        if !self.nodes.iter().any(is_cast) {
            return Ok(self);
        }
        // Earlier nodes are connected already, so one step leads out of a chain of casts.
        let source = |nodes: &[Node], e: Entry| {
            let node = &nodes[e.node as usize];
            let through = node.inputs.get(e.index as usize).filter(|_| is_cast(node));
            through.copied().unwrap_or(e)
        };
        for id in 0..self.nodes.len() {
            for i in 0..self.nodes[id].inputs.len() {
                self.nodes[id].inputs[i] = source(&self.nodes, self.nodes[id].inputs[i]);
            }
        }
        let heads: BTreeSet<u32> = self.heads.iter().map(|e| e.node).collect();
        let kept = (0..self.nodes.len() as u32)
            .filter(|&id| heads.contains(&id) || !is_cast(&self.nodes[id as usize]));
        let kept: Vec<u32> = kept.collect();
        Ok(self.reorder(&kept, kept.len())?.0)
    }

    /// The graph as JSON.
    pub fn to_json(&self, np_shape: bool, links: Links) -> String {
        let mut out = String::with_capacity(self.nodes.len() * 160);
        self.write_fields(&mut out, links);
        self.write_attrs(&mut out, np_shape);
        out.push_str("\n}");
        out
    }

    /// The fields that graphs inside of nodes have too.
    fn write_fields(&self, out: &mut String, links: Links) {
        let mut versions = vec![0; self.nodes.len()];
        out.push_str("{\n  \"nodes\": [");
        for (id, node) in self.nodes.iter().enumerate() {
            out.push_str(if id == 0 { "\n" } else { ", \n" });
            for i in node.op.iter().flat_map(|op| op.mutates.to_vec(&node.attrs)) {
                if let Some(e) = node.inputs.get(i) {
                    versions[e.node as usize] += 1;
                }
            }
            self.write_node(out, id, &versions, links);
        }
        out.push_str("\n  ], \n  \"arg_nodes\": ");
        let variables = (0..self.nodes.len()).filter(|&i| self.nodes[i].is_variable());
        write_numbers(out, variables);
        out.push_str(", \n  \"node_row_ptr\": ");
        let mut hidden = 0;
        let rows = self.nodes.iter().enumerate().map(|(i, node)| {
            hidden += hidden_in_files(node.op_name());
            self.entries_of(i).end + hidden
        });
        write_numbers(out, std::iter::once(0).chain(rows));
        out.push_str(", \n  \"heads\": ");
        write_entries(out, &self.heads, &versions, "  ");
    }

    fn write_attrs(&self, out: &mut String, np_shape: bool) {
        let mut attrs = Vec::new();
        if np_shape {
            attrs.push("\"is_np_shape\": [\"int\", 1]".to_owned());
        }
        attrs.push(format!("\"mxnet_version\": [\"int\", {VERSION}]"));
        let libraries = self.nodes.iter().filter_map(|node| {
            let library = node.op.as_ref()?.library.as_ref()?;
            Some(format!("{}={library}", node.op_name()))
        });
        let libraries: BTreeSet<String> = libraries.collect();
        if !libraries.is_empty() {
            let mut text = format!("\"{LIBRARIES}\": [\"list_str\", [");
            for (i, library) in libraries.iter().enumerate() {
                text.push_str(if i == 0 { "" } else { ", " });
                write_string(&mut text, library);
            }
            attrs.push(text + "]]");
        }
        out.push_str(", \n  \"attrs\": {");
        if attrs.len() == 1 {
            let _ = write!(out, "{}}}", attrs[0]);
        } else {
            let _ = write!(out, "\n    {}\n  }}", attrs.join(", \n    "));
        }
    }

    /// `versions` counts how often each variable has been modified so far.
    fn write_node(&self, out: &mut String, id: usize, versions: &[u32], links: Links) {
        let node = &self.nodes[id];
        out.push_str("    {\n      \"op\": ");
        write_string(out, node.op_name());
        out.push_str(", \n      \"name\": ");
        write_string(out, &node.name);
        if !node.dict.is_empty() {
            let many = node.dict.len() > 1;
            out.push_str(", \n      \"attrs\": {");
            for (i, (key, value)) in node.dict.iter().enumerate() {
                out.push_str(match (many, i) {
                    (true, 0) => "\n        ",
                    (true, _) => ", \n        ",
                    _ => "",
                });
                write_string(out, key);
                out.push_str(": ");
                write_string(out, value);
            }
            out.push_str(if many { "\n      }" } else { "}" });
        }
        out.push_str(", \n      \"inputs\": ");
        write_entries(out, &node.inputs, versions, "      ");
        if !node.control.is_empty() {
            out.push_str(", \n      \"control_deps\": ");
            write_numbers(out, node.control.iter().map(|&c| c as usize));
        }
        if node.op.as_ref().is_some_and(|op| op.bodies > 0) {
            write_bodies(out, node, links);
        }
        if links == Links::Kept {
            write_links(out, node);
        }
        out.push_str("\n    }");
    }
}

/// Writes the graphs inside a node, indented.
fn write_bodies(out: &mut String, node: &Node, links: Links) {
    out.push_str(", \n      \"subgraphs\": [");
    for (i, body) in bodies(&node.attrs).iter().enumerate() {
        let mut text = String::new();
        body.graph().write_fields(&mut text, links);
        text.push_str("\n}");
        out.push_str(if i == 0 { "\n        " } else { ", \n        " });
        out.push_str(&text.replace('\n', "\n        "));
    }
    out.push_str("\n      ]");
}

fn write_links(out: &mut String, node: &Node) {
    for (key, link) in
        [("backward_source_id", node.backward_of), ("mirror_source_id", node.mirror_of)]
    {
        if let Some(id) = link {
            let _ = write!(out, ", \n      \"{key}\": {id}");
        }
    }
    if !node.addto.is_empty() {
        let pair = |(o, e): &(u32, Entry)| format!("[{o}, [{}, {}]]", e.node, e.index);
        let pairs: Vec<String> = node.addto.iter().map(pair).collect();
        let _ = write!(out, ", \n      \"addto\": [{}]", pairs.join(", "));
    }
}

/// Writes `[[0, 0, 0], [1, 0, 0]]`, on several lines if there are many entries.
fn write_entries(out: &mut String, entries: &[Entry], versions: &[u32], indent: &str) {
    let many = entries.len() > SHORT;
    out.push('[');
    for (i, e) in entries.iter().enumerate() {
        match (many, i) {
            (true, 0) => drop(write!(out, "\n{indent}  ")),
            (true, _) => drop(write!(out, ", \n{indent}  ")),
            (false, 0) => {}
            (false, _) => out.push_str(", "),
        }
        let _ = write!(out, "[{}, {}, {}]", e.node, e.index, versions[e.node as usize]);
    }
    if many {
        let _ = write!(out, "\n{indent}");
    }
    out.push(']');
}

fn write_numbers(out: &mut String, numbers: impl Iterator<Item = usize>) {
    let numbers: Vec<usize> = numbers.collect();
    let many = numbers.len() > SHORT;
    out.push('[');
    for (i, n) in numbers.iter().enumerate() {
        out.push_str(match (many, i) {
            (true, 0) => "\n    ",
            (true, _) => ", \n    ",
            (false, 0) => "",
            (false, _) => ", ",
        });
        let _ = write!(out, "{n}");
    }
    out.push_str(if many { "\n  ]" } else { "]" });
}

/// Escapes the characters that JSON strings require, and writes all others unchanged.
fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '"' => out.push_str("\\\""),
            c if (c as u32) < 0x20 => drop(write!(out, "\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}
