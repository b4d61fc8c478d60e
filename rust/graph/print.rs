//! Graphs as text: `debug_str` as MXNet prints it, and a readable dump between passes.

use super::static_graph::Graph;
use super::symbol::Symbol;
use crate::error::Result;
use std::fmt::Write;

impl Symbol {
    /// Outputs, then every node with its inputs and attributes.
    pub fn debug_str(&self) -> Result<String> {
        let graph = Graph::from_symbol(self)?;
        if let [node] = &*graph.nodes
            && node.is_variable()
        {
            return Ok(format!("Variable:{}\n", node.name));
        }
        Ok(graph.debug_str())
    }
}

impl Graph {
    pub fn debug_str(&self) -> String {
        let mut out = String::from("Symbol Outputs:\n");
        for (i, e) in self.heads.iter().enumerate() {
            let _ =
                writeln!(out, "\toutput[{i}]={}({})", self.nodes[e.node as usize].name, e.index);
        }
        let mut versions = vec![0; self.nodes.len()];
        for node in &self.nodes {
            let Some(op) = &node.op else {
                let _ = writeln!(out, "Variable:{}", node.name);
                continue;
            };
            for i in op.mutates.to_vec(&node.attrs) {
                if let Some(e) = node.inputs.get(i) {
                    versions[e.node as usize] += 1;
                }
            }
            let _ = writeln!(out, "--------------------\nOp:{}, Name={}", op.name, node.name);
            out.push_str("Inputs:\n");
            for (i, e) in node.inputs.iter().enumerate() {
                let source = &self.nodes[e.node as usize];
                let _ = write!(out, "\targ[{i}]={}({})", source.name, e.index);
                if source.is_variable() {
                    let _ = write!(out, " version={}", versions[e.node as usize]);
                }
                out.push('\n');
            }
            if !node.dict.is_empty() {
                out.push_str("Attrs:\n");
                for (key, value) in node.dict.iter() {
                    let _ = writeln!(out, "\t{key}={value}");
                }
            }
            if !node.control.is_empty() {
                out.push_str("Control deps:\n");
                for (i, &c) in node.control.iter().enumerate() {
                    let _ = writeln!(out, "\tcdep[{i}]={}", self.nodes[c as usize].name);
                }
            }
        }
        out
    }
}

/// One line per node: number, operator, name, inputs, links.
pub fn dump(graph: &Graph) -> String {
    let mut out = String::new();
    for (id, node) in graph.nodes.iter().enumerate() {
        let mark = if id == graph.num_forward { "-- backward --\n" } else { "" };
        let _ = write!(out, "{mark}{id:>5} {:<24} {}", node.op_name(), node.name);
        let inputs: Vec<_> =
            node.inputs.iter().map(|e| format!("{}:{}", e.node, e.index)).collect();
        if !inputs.is_empty() {
            let _ = write!(out, " ({})", inputs.join(", "));
        }
        for (o, e) in &node.addto {
            let _ = write!(out, " :{o} += {}:{}", e.node, e.index);
        }
        if let Some(source) = node.mirror_of {
            let _ = write!(out, " mirror of {source}");
        }
        if let Some(forward) = node.backward_of {
            let _ = write!(out, " backward of {forward}");
        }
        let _ = writeln!(out, " @{}", node.ctx);
    }
    let heads: Vec<_> = graph.heads.iter().map(|e| format!("{}:{}", e.node, e.index)).collect();
    let _ = writeln!(out, "heads {}", heads.join(", "));
    out
}
