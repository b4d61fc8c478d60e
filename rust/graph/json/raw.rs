//! Nodes of a symbol file, before nodes of a graph are built of them.

use super::super::static_graph::Dict;

/// A node of the file before it is built.
pub struct Raw {
    pub op: String,
    pub name: String,
    pub dict: Dict,
    pub inputs: Vec<(usize, u32)>,
    pub control: Vec<usize>,
    /// The library that has the operator, if the file says it.
    pub library: Option<String>,
    pub backward_source: Option<usize>,
    pub mirror_source: Option<usize>,
    /// (output, entry) pairs, see [`super::super::Node::addto`].
    pub addto: Vec<(u32, (usize, u32))>,
    /// The graphs inside the node.
    pub bodies: Vec<RawGraph>,
}

/// A graph inside a node.
pub struct RawGraph {
    pub nodes: Vec<Raw>,
    pub heads: Vec<(usize, u32)>,
}

impl Raw {
    /// A node with nothing but an operator and its inputs.
    pub fn plain(op: &str, name: String, dict: Dict, inputs: Vec<(usize, u32)>) -> Raw {
        Raw {
            op: op.to_owned(),
            name,
            dict,
            inputs,
            control: Vec::new(),
            library: None,
            backward_source: None,
            mirror_source: None,
            addto: Vec::new(),
            bodies: Vec::new(),
        }
    }

    /// The nodes that must be built before this one.
    pub fn needs(&self) -> impl Iterator<Item = usize> + '_ {
        let entries = self.inputs.iter().chain(self.addto.iter().map(|(_, e)| e));
        entries.map(|e| e.0).chain(self.control.iter().copied()).chain(self.backward_source)
    }
}
