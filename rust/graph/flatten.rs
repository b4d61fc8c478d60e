//! Between symbols and static graphs, in both directions.

use super::static_graph::{Entry, Graph, Node};
use super::symbol::{NodeMap, SymEntry, SymNode, Symbol};
use crate::error::{Error, Result};
use crate::operator::Registry;
use rustc_hash::FxHashMap;
use std::sync::Arc;

impl Graph {
    /// The flat form of a symbol, in depth-first order of its heads.
    pub fn from_symbol(symbol: &Symbol) -> Result<Graph> {
        Self::from_nodes(&symbol.nodes(), &symbol.outputs)
    }

    /// The flat form of these nodes, each of which comes after what it needs.
    pub fn from_nodes(order: &[Arc<SymNode>], heads: &[SymEntry]) -> Result<Graph> {
        let mut ids = NodeMap::with_capacity_and_hasher(order.len(), Default::default());
        let mut nodes = Vec::with_capacity(order.len());
        for (id, sym) in order.iter().enumerate() {
            ids.insert(Arc::as_ptr(sym), id as u32);
            nodes.push(Self::flat_node(sym, &ids)?);
        }
        let find = |e: &SymEntry| {
            let id = ids.get(&Arc::as_ptr(&e.node)).copied();
            let id = id.ok_or_else(|| Error::internal("a head belongs to none of the nodes"))?;
            Ok(Entry::new(id, e.index))
        };
        let heads = heads.iter().map(find).collect::<Result<_>>()?;
        let num_forward = nodes.len();
        Ok(Graph::new(nodes, heads, num_forward))
    }

    fn flat_node(sym: &Arc<SymNode>, ids: &NodeMap<u32>) -> Result<Node> {
        let id_of = |node: &Arc<SymNode>| {
            ids.get(&Arc::as_ptr(node))
                .copied()
                .ok_or_else(|| Error::internal("a node comes before what it reads"))
        };
        let meta = sym.meta();
        let mut node = Node {
            op: sym.op.clone(),
            name: meta.name.clone(),
            attrs: meta.attrs.clone(),
            dict: meta.dict.clone(),
            num_outputs: sym.num_outputs as u32,
            ..Node::variable("")
        };
        for e in &sym.inputs {
            node.inputs.push(Entry::new(id_of(&e.node)?, e.index));
        }
        for c in &sym.control {
            node.control.push(id_of(c)?);
        }
        if let Some(f) = &sym.backward_of {
            node.backward_of = Some(id_of(f)?);
        }
        Ok(node)
    }

    /// Converts the heads to a symbol. Nodes that no head needs and links to mirrored nodes are
    /// dropped; in-place sums become additions.
    pub fn to_symbol(&self, registry: &Registry) -> Result<Symbol> {
        let mut made: Vec<Arc<SymNode>> = Vec::with_capacity(self.nodes.len());
        let mut sums: FxHashMap<Entry, SymEntry> = FxHashMap::default();
        for (id, node) in self.nodes.iter().enumerate() {
            let entry = |e: &Entry| symbol_entry(&made, &sums, *e);
            let mut sym = SymNode::new(node.op.clone(), node.name.clone(), node.attrs.clone());
            sym.set_dict(node.dict.clone());
            sym.inputs = node.inputs.iter().map(entry).collect();
            sym.control = node.control.iter().map(|&c| made[c as usize].clone()).collect();
            sym.backward_of = node.backward_of.map(|f| made[f as usize].clone());
            sym.num_outputs = node.num_outputs as usize;
            made.push(Arc::new(sym));
            for (output, onto) in &node.addto {
                let own = Entry::new(id as u32, *output);
                let terms = [*onto, own].map(|e| symbol_entry(&made, &sums, e));
                sums.insert(own, addition(registry, &node.name, *output, terms)?);
            }
        }
        let head = |e: &Entry| symbol_entry(&made, &sums, *e);
        Ok(Symbol { outputs: self.heads.iter().map(head).collect() })
    }
}

fn symbol_entry(made: &[Arc<SymNode>], sums: &FxHashMap<Entry, SymEntry>, e: Entry) -> SymEntry {
    let own = || SymEntry { node: made[e.node as usize].clone(), index: e.index };
    sums.get(&e).cloned().unwrap_or_else(own)
}

/// The node that adds output `output` of `name` onto another entry.
fn addition(
    registry: &Registry,
    name: &str,
    output: u32,
    terms: [SymEntry; 2],
) -> Result<SymEntry> {
    let op = registry.find("elemwise_add")?;
    let attrs = Arc::new(op.parse(&[])?);
    let mut sum = SymNode::new(Some(op), format!("{name}_{output}_addto"), attrs);
    sum.inputs = terms.into();
    Ok(SymEntry { node: Arc::new(sum), index: 0 })
}
