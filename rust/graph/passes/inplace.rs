//! Which entries share memory: in-place outputs, in-place sums, gradients and heads.
//!
//! Entries are gathered into [`Buffer`]s: an output joins its input's buffer where the operator
//! allows it and nothing reads the input later (or the output is the input's very bytes). A buffer
//! lives from its first writing to its last use. Heads live to the end and never share a buffer
//! with another head. Outputs of an executor have arrays of their own, so the buffer of a head,
//! with every entry that joined it, lies in the output's array and not in an arena.

use super::super::request::{Place, PlanOptions};
use super::super::static_graph::Graph;
use super::gradient::Differentiated;
use super::side_by_side::Apart;
use crate::context::Context;
use crate::operator::{InplacePair, OpReq};

/// Marks entries that have no buffer.
pub const NONE: u32 = u32::MAX;

/// Memory for one or more entries.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub bytes: usize,
    pub ctx: Context,
    /// Positions in execution order, both inclusive.
    pub first: u32,
    pub last: u32,
    /// The output (a position among the heads) in whose array it lies, from its start; `None`: in
    /// the arena.
    pub output: Option<u32>,
}

/// The result of this pass; lists are by entry number.
pub struct Shared {
    pub buffers: Vec<Buffer>,
    /// The entry's buffer, or [`NONE`].
    pub buffer_of: Vec<u32>,
    pub req: Vec<OpReq>,
    pub inplace_of: Vec<Option<u32>>,
    pub first_use: Vec<u32>,
    pub last_use: Vec<u32>,
    /// Bytes of all entries that lie in arenas.
    pub no_sharing_bytes: usize,
    /// Places of the entries that lie in no buffer.
    outside: Vec<Place>,
}

impl Shared {
    /// Where every entry lives, given the offsets of the buffers.
    pub fn places(&self, offsets: &[usize]) -> Vec<Place> {
        let place = |(id, &b): (usize, &u32)| match self.buffers.get(b as usize) {
            Some(Buffer { output: Some(output), .. }) => Place::Output(*output),
            Some(_) => Place::Arena { offset: offsets[b as usize] },
            None => self.outside[id],
        };
        self.buffer_of.iter().enumerate().map(place).collect()
    }

    /// Makes the buffers live as long as callbacks that run side by side need them.
    pub fn stretch(&mut self, graph: &Graph, apart: &Apart) {
        for (id, node) in graph.nodes.iter().enumerate() {
            let read = node.inputs.iter().map(|e| graph.entry_id(*e));
            for e in read.chain(graph.entries_of(id)) {
                if let Some(buffer) = self.buffers.get_mut(self.buffer_of[e] as usize) {
                    buffer.last = buffer.last.max(apart.until(id));
                }
            }
        }
    }
}

struct Walk<'a> {
    graph: &'a Graph,
    bytes: Vec<usize>,
    /// Uses of every entry: inputs read, heads, gradients.
    uses: Vec<u32>,
    is_head: Vec<bool>,
    /// Entries that a later node adds onto.
    added_onto: Vec<bool>,
    /// By buffer: uses of its entries that are still to come.
    left: Vec<u32>,
    holds_head: Vec<bool>,
    /// By buffer, where callbacks are to run side by side: until when the nodes that have read it
    /// keep it.
    kept: Vec<u32>,
    apart: Option<&'a Apart>,
    out: Shared,
}

/// Finds buffers and requests. `options.inplace: false` refuses every sharing but that of in-place
/// sums; `apart` those that would make a callback wait for one whose result it does not need.
pub fn run(
    done: &Differentiated,
    grad_req: &[OpReq],
    options: &PlanOptions,
    apart: Option<&Apart>,
) -> Shared {
    let graph = &done.graph;
    let count = graph.num_entries();
    let mut walk = Walk {
        graph,
        bytes: (0..count)
            .map(|e| done.shapes[e].size().saturating_mul(done.types[e].size()))
            .collect(),
        uses: vec![0; count],
        is_head: vec![false; count],
        added_onto: vec![false; count],
        left: Vec::new(),
        holds_head: Vec::new(),
        kept: Vec::new(),
        apart,
        out: Shared {
            buffers: Vec::new(),
            buffer_of: vec![NONE; count],
            req: vec![OpReq::Null; count],
            inplace_of: vec![None; count],
            first_use: vec![0; count],
            last_use: vec![0; count],
            no_sharing_bytes: 0,
            outside: vec![Place::Nowhere; count],
        },
    };
    walk.count_uses();
    walk.place_gradients(done, grad_req);
    for id in 0..graph.nodes.len() {
        walk.visit(id, options.inplace);
    }
    walk.finish(options.outputs_in_arena)
}

impl Walk<'_> {
    /// The inputs whose values node `id` reads: position and entry. Inputs of which it needs only
    /// the shape are left out: they are not uses, so their memory may already be overwritten.
    fn inputs_read(&self, id: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let node = &self.graph.nodes[id];
        let ignored = node.op.as_ref().map(|op| op.ignores.to_vec(&node.attrs));
        let inputs = node.inputs.iter().map(|e| self.graph.entry_id(*e)).enumerate();
        inputs.filter(move |(i, _)| ignored.as_ref().is_none_or(|s| !s.contains(i)))
    }

    /// The entries whose values node `id` reads, those that it adds onto among them.
    fn reads(&self, id: usize) -> impl Iterator<Item = usize> + '_ {
        let addto = self.graph.nodes[id].addto.iter().map(|(_, e)| self.graph.entry_id(*e));
        self.inputs_read(id).map(|(_, e)| e).chain(addto)
    }

    fn count_uses(&mut self) {
        for id in 0..self.graph.nodes.len() {
            let reads: smallvec::SmallVec<[usize; 8]> = self.reads(id).collect();
            reads.into_iter().for_each(|e| self.uses[e] += 1);
            for (_, e) in &self.graph.nodes[id].addto {
                self.added_onto[self.graph.entry_id(*e)] = true;
            }
        }
        for head in &self.graph.heads {
            let e = self.graph.entry_id(*head);
            self.uses[e] += 1;
            self.is_head[e] = true;
        }
    }

    /// Gradients of arguments are written straight into their arrays, and so is everything that
    /// they are added onto.
    fn place_gradients(&mut self, done: &Differentiated, grad_req: &[OpReq]) {
        for (arg, grad) in done.arg_grads.iter().enumerate() {
            let mut next = *grad;
            while let Some(e) = next {
                let id = self.graph.entry_id(e);
                self.out.outside[id] = Place::Gradient(arg as u32);
                self.uses[id] += 1;
                let addto = &self.graph.nodes[e.node as usize].addto;
                next = addto.iter().find(|a| a.0 == e.index).map(|a| a.1);
                let first = grad_req.get(arg).copied().unwrap_or(OpReq::Write);
                self.out.req[id] = if next.is_some() { OpReq::Add } else { first };
            }
        }
    }

    fn visit(&mut self, id: usize, inplace: bool) {
        let node = &self.graph.nodes[id];
        let outputs = self.graph.entries_of(id);
        for e in outputs.clone() {
            (self.out.first_use[e], self.out.last_use[e]) = (id as u32, id as u32);
        }
        let Some(op) = &node.op else {
            self.out.outside[outputs.start] = Place::Variable;
            return;
        };
        for &(index, onto) in &node.addto {
            let (e, onto) = (outputs.start + index as usize, self.graph.entry_id(onto));
            if self.out.outside[e] == Place::Nowhere && self.uses[e] > 0 {
                self.join(e, onto, OpReq::Add);
            }
        }
        let pairs = if inplace { op.inplace.to_vec(&node.attrs) } else { Vec::new() };
        let mut taken: smallvec::SmallVec<[usize; 4]> = smallvec::SmallVec::new();
        for &pair in &pairs {
            let e = outputs.start + pair.output;
            let free = e < outputs.end
                && self.out.buffer_of[e] == NONE
                && self.out.outside[e] == Place::Nowhere
                && self.uses[e] > 0
                && !taken.contains(&pair.input);
            if free && let Some(input) = self.may_share(id, e, pair, &pairs) {
                taken.push(pair.input);
                self.join(e, input, OpReq::Inplace);
            }
        }
        for e in outputs {
            let internal = self.out.outside[e] == Place::Nowhere && self.uses[e] > 0;
            if internal && self.out.buffer_of[e] == NONE {
                self.open(e, id);
            }
        }
        self.close(id);
    }

    /// The input entry whose memory output `e` may take by this pair, one of the operator's
    /// `pairs`: that of an input which is read here, for the last time.
    fn may_share(
        &self,
        id: usize,
        e: usize,
        pair: InplacePair,
        pairs: &[InplacePair],
    ) -> Option<usize> {
        let (_, input) = self.inputs_read(id).find(|read| read.0 == pair.input)?;
        let buffer = self.out.buffer_of[input];
        if buffer == NONE || self.bytes[input] != self.bytes[e] {
            return None;
        }
        let b = buffer as usize;
        if self.out.buffers[b].ctx != self.graph.nodes[id].ctx {
            return None;
        }
        // Where the node reads the same memory by several inputs, each of them must allow it.
        let allowed = |at: usize| pairs.iter().any(|p| p.input == at && p.output == pair.output);
        let inputs = self.inputs_read(id).filter(|read| self.out.buffer_of[read.1] == buffer);
        let read_here = inputs.filter(|read| allowed(read.0)).count() as u32;
        let last_use = self.left[b] == read_here && self.kept[b] < id as u32;
        let same_bytes =
            pair.identity && !self.added_onto[e] && !(self.is_head[e] && self.holds_head[b]);
        (last_use || same_bytes).then_some(input)
    }

    fn join(&mut self, e: usize, onto: usize, req: OpReq) {
        let buffer = self.out.buffer_of[onto];
        let b = buffer as usize;
        self.out.buffer_of[e] = buffer;
        self.out.req[e] = req;
        self.out.inplace_of[e] = Some(onto as u32);
        self.left[b] += self.uses[e];
        self.kept[b] = 0;
        self.holds_head[b] |= self.is_head[e];
    }

    fn open(&mut self, e: usize, id: usize) {
        let (first, last) = (id as u32, id as u32);
        self.out.buffer_of[e] = self.out.buffers.len() as u32;
        self.out.req[e] = OpReq::Write;
        let ctx = self.graph.nodes[id].ctx;
        self.out.buffers.push(Buffer { bytes: self.bytes[e], ctx, first, last, output: None });
        self.left.push(self.uses[e]);
        self.kept.push(0);
        self.holds_head.push(self.is_head[e]);
    }

    /// Marks what the node read and wrote as used now.
    fn close(&mut self, id: usize) {
        let reads: smallvec::SmallVec<[usize; 8]> = self.reads(id).collect();
        for e in reads {
            self.out.last_use[e] = id as u32;
            let b = self.out.buffer_of[e] as usize;
            if b < self.left.len() {
                self.left[b] -= 1;
                self.kept[b] = self.kept[b].max(self.apart.map_or(0, |apart| apart.until(id)));
                self.out.buffers[b].last = id as u32;
            }
        }
        for e in self.graph.entries_of(id) {
            if let Some(buffer) = self.out.buffers.get_mut(self.out.buffer_of[e] as usize) {
                buffer.last = id as u32;
            }
        }
    }

    /// Heads live to the end, in arrays of their own unless they are to lie in the arena.
    fn finish(mut self, outputs_in_arena: bool) -> Shared {
        let end = self.graph.nodes.len().saturating_sub(1) as u32;
        for (i, head) in self.graph.heads.iter().enumerate() {
            let e = self.graph.entry_id(*head);
            self.out.last_use[e] = end;
            let b = self.out.buffer_of[e] as usize;
            if let Some(buffer) = self.out.buffers.get_mut(b) {
                buffer.last = end;
                if !outputs_in_arena {
                    buffer.output.get_or_insert(i as u32);
                }
            }
        }
        let in_arena = |e: &usize| {
            let buffer = self.out.buffers.get(self.out.buffer_of[*e] as usize);
            buffer.is_some_and(|b| b.output.is_none())
        };
        self.out.no_sharing_bytes =
            (0..self.bytes.len()).filter(in_arena).map(|e| self.bytes[e]).sum();
        self.out
    }
}
