//! The static graph: nodes in execution order, entries by number.

use super::symbol::{SymNode, Symbol};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::operator::{Attrs, OpDef, Schema};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

/// Parameters and attributes of a node as texts, by name.
pub type Dict = BTreeMap<String, String>;

/// One output of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    pub node: u32,
    pub index: u32,
}

impl Entry {
    pub const fn new(node: u32, index: u32) -> Self {
        Entry { node, index }
    }
}

/// A node of a [`Graph`].
#[derive(Clone)]
pub struct Node {
    /// `None`: a variable.
    pub op: Option<Arc<OpDef>>,
    pub name: String,
    pub attrs: Arc<Attrs>,
    pub dict: Arc<Dict>,
    pub inputs: Vec<Entry>,
    /// Nodes that must run before this one, although it does not read them.
    pub control: Vec<u32>,
    /// The forward node (or its mirror) whose parameters and state this backward node uses.
    pub backward_of: Option<u32>,
    /// The node that this one computes again.
    pub mirror_of: Option<u32>,
    /// (output, entry): the output is added to the entry, in the entry's own memory.
    pub addto: Vec<(u32, Entry)>,
    /// Is it an addition that the gradient pass made to sum many gradients, each onto the last?
    pub sums_gradients: bool,
    pub num_outputs: u32,
    pub ctx: Context,
}

impl Node {
    pub fn variable(name: impl Into<String>) -> Self {
        Node {
            op: None,
            name: name.into(),
            attrs: empty_attrs(),
            dict: empty_dict(),
            inputs: Vec::new(),
            control: Vec::new(),
            backward_of: None,
            mirror_of: None,
            addto: Vec::new(),
            sums_gradients: false,
            num_outputs: 1,
            ctx: Context::default(),
        }
    }

    pub fn is_variable(&self) -> bool {
        self.op.is_none()
    }

    /// The operator's name, `null` for a variable.
    pub fn op_name(&self) -> &str {
        self.op.as_ref().map_or("null", |op| &op.name)
    }

    /// Everything that must have run before this node.
    pub fn predecessors(&self) -> impl Iterator<Item = u32> + '_ {
        let data = self.inputs.iter().map(|e| e.node);
        data.chain(self.control.iter().copied()).chain(self.addto.iter().map(|(_, e)| e.node))
    }

    /// The name of output `index`, as monitors and `list_outputs` show it.
    pub fn output_name(&self, index: u32) -> String {
        match &self.op {
            None => self.name.clone(),
            Some(op) if op.is_backward && self.backward_of.is_some() => {
                format!("{}_output{index}", self.name)
            }
            Some(op) => {
                let names = op.outputs(&self.attrs);
                match names.get(index as usize) {
                    Some(suffix) if self.name.is_empty() => suffix.clone(),
                    Some(suffix) => format!("{}_{suffix}", self.name),
                    None => format!("{}_output{index}", self.name),
                }
            }
        }
    }

    /// The name of input `index`, if the operator names it.
    pub fn input_name(&self, index: usize) -> String {
        let named = self.op.as_ref().filter(|op| !op.is_backward);
        named
            .and_then(|op| op.inputs(&self.attrs).get(index).cloned())
            .unwrap_or_else(|| format!("input{index}"))
    }
}

/// Parameters of a node that has none.
pub fn empty_attrs() -> Arc<Attrs> {
    static EMPTY: LazyLock<Arc<Attrs>> = LazyLock::new(|| {
        let schema = Arc::new(Schema::default());
        Arc::new(Attrs::new(schema, Vec::new(), Arc::new(()), Vec::new()))
    });
    EMPTY.clone()
}

fn empty_dict() -> Arc<Dict> {
    static EMPTY: LazyLock<Arc<Dict>> = LazyLock::new(Arc::default);
    EMPTY.clone()
}

/// New numbers of a graph's nodes, by their old ones.
pub struct Renumbering(Vec<Option<u32>>);

impl Renumbering {
    /// Numbers that are told one by one, by [`Renumbering::push`].
    pub fn of(count: usize) -> Self {
        Renumbering(Vec::with_capacity(count))
    }

    /// The next old node is called `new`.
    pub fn push(&mut self, new: u32) {
        self.0.push(Some(new));
    }

    /// The new number of a node, if it has one.
    pub fn if_kept(&self, old: u32) -> Option<u32> {
        self.0.get(old as usize).copied().flatten()
    }

    /// The new number of a node that is in use.
    pub fn node(&self, old: u32) -> Result<u32> {
        self.if_kept(old)
            .ok_or_else(|| Error::internal(format!("node {old} is used, but was left out")))
    }

    pub fn entry(&self, old: Entry) -> Result<Entry> {
        Ok(Entry::new(self.node(old.node)?, old.index))
    }
}

/// Nodes in execution order with the entries that are wanted.
#[derive(Clone, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub heads: Vec<Entry>,
    /// The first nodes are the forward pass; what follows is backward.
    pub num_forward: usize,
    offsets: Vec<u32>,
}

impl Graph {
    pub fn new(nodes: Vec<Node>, heads: Vec<Entry>, num_forward: usize) -> Self {
        let mut graph = Graph { nodes, heads, num_forward, offsets: Vec::new() };
        graph.number_entries();
        graph
    }

    /// Renews the entry numbers after nodes were changed.
    pub fn number_entries(&mut self) {
        self.offsets.clear();
        self.offsets.reserve(self.nodes.len() + 1);
        let mut total = 0;
        for node in &self.nodes {
            self.offsets.push(total);
            total += node.num_outputs;
        }
        self.offsets.push(total);
    }

    /// The number of an entry, dense from 0.
    #[inline]
    pub fn entry_id(&self, entry: Entry) -> usize {
        (self.offsets[entry.node as usize] + entry.index) as usize
    }

    pub fn num_entries(&self) -> usize {
        self.offsets.last().copied().unwrap_or(0) as usize
    }

    /// Entry numbers of a node's outputs.
    pub fn entries_of(&self, node: usize) -> std::ops::Range<usize> {
        self.offsets[node] as usize..self.offsets[node + 1] as usize
    }

    /// The entry of a number.
    pub fn entry(&self, id: usize) -> Entry {
        let node = self.offsets.partition_point(|&o| o as usize <= id) - 1;
        // Nodes without outputs share their offset with the next one, which is the owner.
        Entry::new(node as u32, id as u32 - self.offsets[node])
    }

    /// The flat form of a symbol, in depth-first order of its heads.
    pub fn from_symbol(symbol: &Symbol) -> Result<Graph> {
        let order = symbol.nodes();
        let mut ids = HashMap::with_capacity(order.len());
        let mut nodes = Vec::with_capacity(order.len());
        for (id, sym) in order.iter().enumerate() {
            ids.insert(Arc::as_ptr(sym), id as u32);
            nodes.push(Self::flat_node(sym, &ids)?);
        }
        let find = |e: &super::SymEntry| Entry::new(ids[&Arc::as_ptr(&e.node)], e.index);
        let heads = symbol.outputs.iter().map(find).collect();
        let num_forward = nodes.len();
        Ok(Graph::new(nodes, heads, num_forward))
    }

    fn flat_node(sym: &Arc<SymNode>, ids: &HashMap<*const SymNode, u32>) -> Result<Node> {
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

    /// A symbol with this graph's nodes.
    pub fn to_symbol(&self) -> Result<Symbol> {
        let mut made: Vec<Arc<SymNode>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            if !node.addto.is_empty() {
                return Err(Error::value("a graph with in-place sums has no symbol form")
                    .in_node(&node.name));
            }
            let entry =
                |e: &Entry| super::SymEntry { node: made[e.node as usize].clone(), index: e.index };
            let mut sym = SymNode::new(node.op.clone(), node.name.clone(), node.attrs.clone());
            sym.set_dict(node.dict.clone());
            sym.inputs = node.inputs.iter().map(entry).collect();
            sym.control = node.control.iter().map(|&c| made[c as usize].clone()).collect();
            sym.backward_of = node.backward_of.map(|f| made[f as usize].clone());
            sym.num_outputs = node.num_outputs as usize;
            made.push(Arc::new(sym));
        }
        let head =
            |e: &Entry| super::SymEntry { node: made[e.node as usize].clone(), index: e.index };
        Ok(Symbol { outputs: self.heads.iter().map(head).collect() })
    }

    /// Puts the nodes into another order: `order` lists the nodes to keep, by their old numbers.
    /// Entries, control edges and links are renumbered; nodes left out must not be referred to, except
    /// by the links `backward_of` and `mirror_of`, which are then dropped.
    pub fn reorder(&self, order: &[u32], num_forward: usize) -> Result<(Graph, Renumbering)> {
        let mut new = Renumbering(vec![None; self.nodes.len()]);
        for (id, &old) in order.iter().enumerate() {
            new.0[old as usize] = Some(id as u32);
        }
        let mut nodes = Vec::with_capacity(order.len());
        for &old in order {
            let mut node = self.nodes[old as usize].clone();
            for e in &mut node.inputs {
                *e = new.entry(*e)?;
            }
            for (_, e) in &mut node.addto {
                *e = new.entry(*e)?;
            }
            node.control = node.control.iter().filter_map(|&c| new.if_kept(c)).collect();
            node.backward_of = node.backward_of.and_then(|f| new.if_kept(f));
            node.mirror_of = node.mirror_of.and_then(|f| new.if_kept(f));
            nodes.push(node);
        }
        let heads = self.heads.iter().map(|&e| new.entry(e)).collect::<Result<_>>()?;
        Ok((Graph::new(nodes, heads, num_forward), new))
    }
}
