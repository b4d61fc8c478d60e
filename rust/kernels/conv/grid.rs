//! Planes laid out so that a filter's tap is one offset.
//!
//! A plane is laid out in scratch with its padding, so that no tap needs a bounds check, and as if
//! every stride were 1: each remainder of a position by the stride has a grid of its own (a phase).
//! Rows of all phases and of the output have the same extent `cells`; positions of a whole plane
//! are then one stretch, and a tap is one offset: `y[p] = sum over t of w[t] x[p + offset[t]]`,
//! however short the rows are. The few results between the rows of the output are discarded.

use super::Conv;
use super::blocks::Block;
use super::pack::inside;
use crate::kernels::layout::copy_row;
use crate::kernels::real::Real;
use std::ops::Range;

/// How a plane is laid out.
pub struct Grid {
    /// Extents of a phase: those of the output, extended by the reach of the filter.
    pub cells: [usize; 3],
    /// Phases along every axis: those that a tap reads.
    phases: [usize; 3],
    /// Elements of a phase.
    pub size: usize,
    /// Elements from the first position of the output to its last.
    pub span: usize,
}

impl Grid {
    pub fn new(conv: &Conv) -> Self {
        let reach = |a: usize| (conv.kernel[a].max(1) - 1) * conv.dilate[a];
        let cells = [0, 1, 2].map(|a| conv.output[a] + reach(a) / conv.stride[a]);
        let last = conv.output.map(|n| n.saturating_sub(1));
        let span = (last[0] * cells[1] + last[1]) * cells[2] + conv.output[2];
        Grid {
            cells,
            phases: [0, 1, 2].map(|a| conv.stride[a].min(reach(a) + 1)),
            size: cells.iter().product(),
            span: if conv.out_size() == 0 { 0 } else { span },
        }
    }

    pub fn phases(&self) -> usize {
        self.phases.iter().product()
    }

    /// Elements of all phases.
    pub fn all(&self) -> usize {
        self.phases() * self.size
    }

    /// From a position of the output to what tap `t` reads for it.
    pub fn offset(&self, conv: &Conv, t: usize) -> usize {
        let [_, kh, kw] = conv.kernel;
        let (mut phase, mut shift) = (0, 0);
        for (a, tap) in [t / (kh * kw), t / kw % kh, t % kw].into_iter().enumerate() {
            let at = tap * conv.dilate[a];
            phase = phase * self.phases[a] + at % conv.stride[a];
            shift = shift * self.cells[a] + at / conv.stride[a];
        }
        phase * self.size + shift
    }

    /// Calls `f(cell, start)` with the first cell and the first element of every row of an output
    /// plane.
    #[inline(always)]
    pub fn for_output(&self, conv: &Conv, mut f: impl FnMut(usize, usize)) {
        let [out_d, out_h, out_w] = conv.output;
        for d in 0..out_d {
            for h in 0..out_h {
                f((d * self.cells[1] + h) * self.cells[2], (d * out_h + h) * out_w);
            }
        }
    }

    /// Rows of cells.
    pub fn rows(&self) -> usize {
        self.cells[0] * self.cells[1]
    }

    /// All cells of a phase.
    pub fn whole(&self) -> Block {
        Block { rows: 0..self.rows(), columns: 0..self.cells[2] }
    }

    /// Calls `f(row of cells, first element of the image's row if there is one)` for some rows of a
    /// phase.
    #[inline(always)]
    fn for_rows(
        &self,
        conv: &Conv,
        phase: usize,
        rows: Range<usize>,
        mut f: impl FnMut(usize, Option<usize>),
    ) {
        let [_, in_h, in_w] = conv.input;
        let lines = phase / self.phases[2];
        let phases = [lines / self.phases[1], lines % self.phases[1]];
        let source = |a: usize, cell: usize| {
            let at = (cell * conv.stride[a] + phases[a]).checked_sub(conv.pad[a]);
            at.filter(|&at| at < conv.input[a])
        };
        let height = self.cells[1].max(1);
        let (mut d, mut h) = (rows.start / height, rows.start % height);
        for row in rows {
            f(row, source(0, d).zip(source(1, h)).map(|(d, h)| (d * in_h + h) * in_w));
            h += 1;
            if h == height {
                (d, h) = (d + 1, 0);
            }
        }
    }

    /// Which of these cells of a row of a phase lie inside the image, and the position of the first
    /// in the image's row.
    fn inside(&self, conv: &Conv, phase: usize, cells: &Range<usize>) -> (Range<usize>, usize) {
        let offset = (phase % self.phases[2]) as isize - conv.pad[2] as isize;
        let good = inside(cells, conv.stride[2], offset, conv.input[2]);
        let first = (good.start * conv.stride[2]) as isize + offset;
        (good, first.max(0) as usize)
    }

    /// Calls `f(first element of a plane, cells, stride)` for all rows of cells that lie inside the
    /// image: they hold that element and those every `stride` after it.
    #[inline(always)]
    pub fn for_cells(&self, conv: &Conv, mut f: impl FnMut(usize, Range<usize>, usize)) {
        for phase in 0..self.phases() {
            let (good, first) = self.inside(conv, phase, &(0..self.cells[2]));
            if good.is_empty() {
                continue;
            }
            self.for_rows(conv, phase, 0..self.rows(), |at, row| {
                let Some(row) = row else { return };
                let cell = phase * self.size + at * self.cells[2];
                f(row + first, cell + good.start..cell + good.end, conv.stride[2]);
            });
        }
    }

    /// Lays a plane of the image out; the cells outside of it, the same for every plane, are not
    /// written.
    ///
    /// # Safety
    /// `x` is a plane of the input; `to` has room for all phases.
    pub unsafe fn spread<T: Real>(&self, conv: &Conv, x: *const T, to: &mut [T]) {
        self.for_cells(conv, |at, cells, stride| {
            let to = &mut to[cells];
            // SAFETY: the plane has these elements.
            unsafe {
                let from = x.add(at);
                match stride {
                    1 => copy_row(from, to.as_mut_ptr(), to.len()),
                    2 => take_every(from, 2, to),
                    _ => take_every(from, stride, to),
                }
            }
        });
    }

    /// Whether every element of a plane lies in a phase.
    pub fn covers(&self, conv: &Conv) -> bool {
        (0..3).all(|a| {
            let reached = (self.cells[a] * conv.stride[a]).saturating_sub(conv.pad[a]);
            self.phases[a] == conv.stride[a] && reached >= conv.input[a]
        })
    }

    /// Writes a block of the cells of a phase, the first at `from`, to the elements of a plane
    /// where they lie.
    ///
    /// # Safety
    /// `from` has the block's [span](Block::span), and `x` is a plane of the image, of which
    /// nothing else writes these elements.
    pub unsafe fn gather<T: Real>(
        &self,
        conv: &Conv,
        (phase, block): (usize, &Block),
        from: *const T,
        x: *mut T,
    ) {
        let (good, first) = self.inside(conv, phase, &block.columns);
        let (width, stride) = (self.cells[2], conv.stride[2]);
        self.for_rows(conv, phase, block.rows.clone(), |at, row| {
            let Some(row) = row.filter(|_| !good.is_empty()) else { return };
            let at = (at - block.rows.start) * width + good.start - block.columns.start;
            // SAFETY: promised by the caller; `inside` keeps the cells in the row.
            unsafe {
                let (from, to) = (from.add(at), x.add(row + first));
                if stride == 1 {
                    return copy_row(from, to, good.len());
                }
                for i in 0..good.len() {
                    *to.add(i * stride) = *from.add(i);
                }
            }
        });
    }

    /// Copies a plane of the output's gradient to its cells.
    ///
    /// # Safety
    /// `dy` is a plane of the output.
    pub unsafe fn collect<T: Real>(&self, conv: &Conv, dy: *const T, to: &mut [T]) {
        self.for_output(conv, |cell, at| {
            let row = &mut to[cell..cell + conv.output[2]];
            // SAFETY: promised by the caller.
            unsafe { copy_row(dy.add(at), row.as_mut_ptr(), row.len()) };
        });
    }
}

/// Copies the elements at `from` and every `stride` after it.
///
/// # Safety
/// `from` has one for each element of `to`.
#[inline(always)]
unsafe fn take_every<T: Copy>(from: *const T, stride: usize, to: &mut [T]) {
    for (i, to) in to.iter_mut().enumerate() {
        // SAFETY: promised by the caller. Wrapping arithmetic: an overflow check would prevent
        // vectorisation.
        *to = unsafe { *from.add(i.wrapping_mul(stride)) };
    }
}
