//! A plan as data, as a table and as a picture.

use super::plan::{Place, Plan};
use crate::context::Context;
use crate::dtype::DType;
use crate::operator::OpReq;
use crate::shape::Shape;
use std::fmt::Write;

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
    /// Does it lie in the arena?
    pub internal: bool,
    pub ctx: Context,
}

impl Plan {
    /// Every entry that is written or bound, in execution order. Outputs that nobody reads are left out.
    pub fn entries(&self) -> Vec<PlannedEntry> {
        let mut entries = Vec::new();
        for (n, node) in self.graph.nodes.iter().enumerate() {
            for (index, id) in self.graph.entries_of(n).enumerate() {
                if self.place[id] == Place::Nowhere {
                    continue;
                }
                let offset = match self.place[id] {
                    Place::Arena { offset } => Some(offset),
                    _ => None,
                };
                entries.push(PlannedEntry {
                    name: node.output_name(index as u32),
                    shape: self.shapes[id].clone(),
                    dtype: self.types[id],
                    bytes: self.bytes(id),
                    offset,
                    first_use: self.first_use[id],
                    last_use: self.last_use[id],
                    inplace_of: self.inplace_of[id].map(|onto| self.entry_name(onto as usize)),
                    req: self.req[id],
                    internal: offset.is_some(),
                    ctx: node.ctx,
                });
            }
        }
        entries
    }

    fn entry_name(&self, id: usize) -> String {
        let entry = self.graph.entry(id);
        self.graph.nodes[entry.node as usize].output_name(entry.index)
    }

    /// A table of the internal entries, in execution order, under a line of totals.
    pub fn table(&self) -> String {
        let entries: Vec<_> = self.entries().into_iter().filter(|e| e.internal).collect();
        let name_width = entries.iter().map(|e| e.name.len()).max().unwrap_or(0).clamp(4, 40);
        let mut out = format!(
            "arena {} bytes, lower bound {}, without sharing {}, {} nodes recomputed\n",
            self.total_arena_bytes(),
            self.lower_bound_bytes,
            self.no_sharing_bytes,
            self.recomputed_nodes
        );
        let _ = writeln!(
            out,
            "{:<name_width$} {:<20} {:<8} {:>14} {:>14} {:>6} {:>6} {:<8} in place of",
            "name", "shape", "dtype", "bytes", "offset", "first", "last", "request"
        );
        for e in &entries {
            let _ = writeln!(
                out,
                "{:<name_width$} {:<20} {:<8} {:>14} {:>14} {:>6} {:>6} {:<8} {}",
                e.name,
                e.shape.to_string(),
                e.dtype.name(),
                e.bytes,
                e.offset.unwrap_or(0),
                e.first_use,
                e.last_use,
                e.req.name(),
                e.inplace_of.as_deref().unwrap_or("")
            );
        }
        out
    }

    /// The arena over time as an SVG picture: execution order to the right, bytes upward, one box for each
    /// entry's life (an in-place chain is a row of boxes at one height). Devices stand one above another.
    pub fn svg(&self) -> String {
        const WIDTH: f64 = 1000.0;
        const HEIGHT: f64 = 600.0;
        const LEFT: f64 = 90.0;
        const TOP: f64 = 36.0;
        let steps = self.graph.nodes.len().max(1) as f64;
        let devices = self.arena_bytes.len().max(1) as f64;
        let band = (HEIGHT - 20.0 * (devices - 1.0)) / devices;
        let x = |step: f64| LEFT + step / steps * WIDTH;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {:.0}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"20\">{} bytes planned, lower bound {}, without sharing {}</text>\n",
            LEFT + WIDTH + 20.0,
            TOP + HEIGHT + 40.0,
            self.total_arena_bytes(),
            self.lower_bound_bytes,
            self.no_sharing_bytes
        );
        let entries = self.entries();
        for (d, &(ctx, bytes)) in self.arena_bytes.iter().enumerate() {
            let base = TOP + (band + 20.0) * d as f64 + band;
            let scale = band / bytes.max(1) as f64;
            let _ = writeln!(
                out,
                "<text x=\"4\" y=\"{:.1}\">{ctx}</text><text x=\"4\" y=\"{:.1}\">{:.2} MB</text>\n\
                 <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"{band:.1}\" \
                 fill=\"none\" stroke=\"#888\"/>",
                base - 4.0,
                base - band + 12.0,
                bytes as f64 / 1e6,
                base - band
            );
            for (i, e) in entries.iter().enumerate() {
                let Some(offset) = e.offset.filter(|_| e.ctx == ctx && e.bytes > 0) else {
                    continue;
                };
                let backward = e.first_use as usize >= self.graph.num_forward;
                // Golden-angle hues, cool for forward and warm for backward entries.
                let hue = (i * 47) % 120 + if backward { 0 } else { 160 };
                let _ = writeln!(
                    out,
                    "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" \
                     fill=\"hsl({hue},65%,70%)\" stroke=\"#444\" stroke-width=\"0.3\">\
                     <title>{} {} {} bytes at {offset}, steps {} to {}</title></rect>",
                    x(e.first_use as f64),
                    base - (offset + e.bytes) as f64 * scale,
                    x(e.last_use as f64 + 1.0) - x(e.first_use as f64),
                    e.bytes as f64 * scale,
                    escape(&e.name),
                    e.shape,
                    e.bytes,
                    e.first_use,
                    e.last_use
                );
            }
        }
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.0}\">execution order: {} nodes, the first {} forward</text>\n</svg>",
            TOP + HEIGHT + 24.0,
            self.graph.nodes.len(),
            self.graph.num_forward
        );
        out
    }

    /// The planned graph as `Symbol.debug_str` shows it, with the totals of an executor.
    pub fn debug_str(&self) -> String {
        let mut out = self.graph.debug_str();
        let megabytes = self.total_arena_bytes() >> 20;
        let _ = writeln!(out, "Total {megabytes} MB allocated");
        let _ = writeln!(out, "Total {} TempSpace resource requested", self.temp_colours);
        out
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
