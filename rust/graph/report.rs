//! A plan as data, and an executor's graph as text.

use super::planner::Plan;
use super::request::Place;
use crate::context::Context;
use crate::dtype::DType;
use crate::operator::OpReq;
use crate::shape::Shape;
use std::fmt::Write;
use std::ops::Range;

/// One entry of a plan.
#[derive(Clone, Debug)]
pub struct PlannedEntry {
    pub name: String,
    pub shape: Shape,
    pub dtype: DType,
    pub bytes: usize,
    /// Bytes from the start of its device's arena; `None` for entries outside of it.
    pub offset: Option<usize>,
    /// Positions in execution order: when it is written and when it is last read.
    pub first_use: u32,
    pub last_use: u32,
    /// The entry whose memory it takes over or shares.
    pub inplace_of: Option<String>,
    pub req: OpReq,
    /// True if it lies in the arena. Variables, gradients and outputs have separate arrays.
    pub internal: bool,
    /// The output (a position among the heads) in whose array it lies.
    pub output: Option<u32>,
    pub ctx: Context,
}

impl Plan {
    /// Every entry that is written or bound, in execution order, without outputs that
    /// have no reader.
    pub fn entries(&self) -> Vec<PlannedEntry> {
        let mut entries = Vec::new();
        let names: Vec<String> = (0..self.graph.nodes.len() as u32)
            .flat_map(|node| self.graph.entry_names(node))
            .collect();
        for (n, node) in self.graph.nodes.iter().enumerate() {
            for id in self.graph.entries_of(n) {
                if self.place[id] == Place::Nowhere {
                    continue;
                }
                let (offset, output) = match self.place[id] {
                    Place::Arena { offset } => (Some(offset), None),
                    Place::Output(output) => (None, Some(output)),
                    _ => (None, None),
                };
                entries.push(PlannedEntry {
                    name: names[id].clone(),
                    shape: self.shapes[id].clone(),
                    dtype: self.types[id],
                    bytes: self.bytes(id),
                    offset,
                    first_use: self.first_use[id],
                    last_use: self.last_use[id],
                    inplace_of: self.inplace_of[id].map(|onto| names[onto as usize].clone()),
                    req: self.req[id],
                    internal: offset.is_some(),
                    output,
                    ctx: node.ctx,
                });
            }
        }
        entries
    }

    /// The planned graph as `Symbol.debug_str` shows it, with the totals of an executor. The
    /// line before the last has the total of arenas and outputs, because programs that measure
    /// memory parse that line.
    pub fn debug_str(&self, segments: &[Vec<Range<usize>>], chains: &[Range<usize>]) -> String {
        let mut out = self.graph.debug_str();
        for segment in segments {
            out.push_str("segment");
            for Range { start, end } in segment {
                let _ = write!(out, " [{start}, {end})");
            }
            out.push('\n');
        }
        for Range { start, end } in chains {
            let _ = writeln!(out, "chain [{start}, {end})");
        }
        let total = self.total_arena_bytes() + self.output_bytes();
        let _ = writeln!(out, "Total {} MB of outputs", self.output_bytes() >> 20);
        let _ = writeln!(out, "Total {} MB allocated", total >> 20);
        let _ = writeln!(out, "Total {} TempSpace resource requested", self.temp_colours);
        out
    }
}
