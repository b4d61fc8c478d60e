//! The static graph: nodes in execution order, entries by number.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::operator::{Attrs, OpDef, Schema, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Parameters and attributes of a node as strings, by name.
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
    /// `None` for a variable.
    pub op: Option<Arc<OpDef>>,
    pub name: String,
    pub attrs: Arc<Attrs>,
    pub dict: Arc<Dict>,
    pub inputs: Vec<Entry>,
    /// Nodes that must run before this one although it does not read them.
    pub control: Vec<u32>,
    /// The forward node (or its mirror) whose parameters and state this backward node uses.
    pub backward_of: Option<u32>,
    /// The node that this one recomputes.
    pub mirror_of: Option<u32>,
    /// (output, entry): the output is added to the entry, in the entry's own memory.
    pub addto: Vec<(u32, Entry)>,
    /// Marks an addition by which the gradient pass sums many gradients one at a time.
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

    /// The nodes that must run before this one.
    pub fn predecessors(&self) -> impl Iterator<Item = u32> + '_ {
        let data = self.inputs.iter().map(|e| e.node);
        data.chain(self.control.iter().copied()).chain(self.addto.iter().map(|(_, e)| e.node))
    }

    /// The name of input `index`, `input<index>` if the operator does not name it.
    pub fn input_name(&self, index: usize) -> String {
        let named = self.op.as_ref().filter(|op| !op.is_backward);
        named
            .and_then(|op| op.inputs(&self.attrs).get(index).cloned())
            .unwrap_or_else(|| format!("input{index}"))
    }
}

/// The names of a node's `count` outputs: after those that its operator gives them, or, for the
/// gradient of a node, after the inputs of that node's operator.
pub fn output_names(
    name: &str,
    count: usize,
    op: &OpDef,
    attrs: &Attrs,
    gradient_of: Option<(&Arc<OpDef>, &Attrs)>,
) -> Vec<String> {
    let given = match gradient_of {
        Some(_) if count == 1 => vec!["output".to_owned()],
        Some((of, attrs)) => of.inputs(attrs),
        None => op.outputs(attrs),
    };
    let numbered = (given.len()..count).map(|index| format!("output{index}"));
    let full = |suffix: String| if name.is_empty() { suffix } else { format!("{name}_{suffix}") };
    given.into_iter().take(count).chain(numbered).map(full).collect()
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

/// The strings of a node in the gradient of another one: those of that node, `own` ones in place of
/// them and, where the operator counts its own inputs, their number.
pub fn dict_in_gradient(
    mut dict: Arc<Dict>,
    op: &OpDef,
    own: &[(&str, Value)],
    inputs: Option<usize>,
) -> Arc<Dict> {
    let own = own.iter().map(|(name, value)| ((*name).to_owned(), value.to_string()));
    let count = op.key_var_num_args.clone().zip(inputs.map(|n| n.to_string()));
    for (name, text) in own.chain(count) {
        Arc::make_mut(&mut dict).insert(name, text);
    }
    dict
}

/// New numbers of a graph's nodes, by their old ones.
pub struct Renumbering(Vec<Option<u32>>);

impl Renumbering {
    /// An empty renumbering, to be filled by [`Renumbering::push`].
    pub fn of(count: usize) -> Self {
        Renumbering(Vec::with_capacity(count))
    }

    /// Sets the new number of the next old node.
    pub fn push(&mut self, new: u32) {
        self.0.push(Some(new));
    }

    /// Returns the new number of a node, `None` if the node was dropped.
    pub fn if_kept(&self, old: u32) -> Option<u32> {
        self.0.get(old as usize).copied().flatten()
    }

    /// Returns the new number of a node that must not have been dropped.
    pub fn node(&self, old: u32) -> Result<u32> {
        self.if_kept(old)
            .ok_or_else(|| Error::internal(format!("node {old} is used, but was left out")))
    }

    pub fn entry(&self, old: Entry) -> Result<Entry> {
        Ok(Entry::new(self.node(old.node)?, old.index))
    }
}

/// Nodes in execution order and the output entries.
#[derive(Clone, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub heads: Vec<Entry>,
    /// Number of nodes of the forward pass, which come first.
    pub num_forward: usize,
    offsets: Vec<u32>,
}

impl Graph {
    pub fn new(nodes: Vec<Node>, heads: Vec<Entry>, num_forward: usize) -> Self {
        let mut graph = Graph { nodes, heads, num_forward, offsets: Vec::new() };
        graph.number_entries();
        graph
    }

    /// Computes the entry numbers again after a change of nodes.
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

    /// The name of an entry in monitors, plans and `list_outputs`: that of the variable, or
    /// `<node>_<output>`. The single output of a backward node is called `output`; several outputs
    /// are named after the inputs whose gradients they are (`fc1_backward_weight`).
    pub fn entry_name(&self, e: Entry) -> String {
        self.entry_names(e.node).swap_remove(e.index as usize)
    }

    /// The names of all entries of a node.
    pub fn entry_names(&self, node: u32) -> Vec<String> {
        let node = &self.nodes[node as usize];
        let Some(op) = &node.op else { return vec![node.name.clone()] };
        let forward = node.backward_of.map(|f| &self.nodes[f as usize]);
        let of = forward.and_then(|f| Some((f.op.as_ref()?, &*f.attrs)));
        output_names(
            &node.name,
            node.num_outputs as usize,
            op,
            &node.attrs,
            of.filter(|_| op.is_backward),
        )
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
        // A node without outputs shares its offset with the next node, which owns the entry.
        Entry::new(node as u32, id as u32 - self.offsets[node])
    }

    /// One flag per node: is it among the given nodes or an ancestor of one?
    pub fn ancestors(&self, of: impl IntoIterator<Item = u32>) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        of.into_iter().for_each(|id| needed[id as usize] = true);
        for id in (0..self.nodes.len()).rev().filter(|&id| self.nodes[id].op.is_some()) {
            if needed[id] {
                let node = &self.nodes[id];
                let links = node.predecessors().chain(node.backward_of);
                links.for_each(|before| needed[before as usize] = true);
            }
        }
        needed
    }

    /// Returns the graph with its nodes in another order: `order` lists the old numbers of the
    /// nodes to keep. Entries, control edges and links are renumbered. A dropped node may only be
    /// referred to by `backward_of` and `mirror_of`, which then become `None`.
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
