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
use crate::kernels::layout::copy_rows;
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

    /// Rows of cells.
    pub fn rows(&self) -> usize {
        self.cells[0] * self.cells[1]
    }

    /// All cells of a phase.
    pub fn whole(&self) -> Block {
        Block { rows: 0..self.rows(), columns: 0..self.cells[2] }
    }

    /// Calls `f` for some rows of a phase, as [`Run`]s.
    #[inline(always)]
    fn for_runs(&self, conv: &Conv, phase: usize, rows: &Range<usize>, mut f: impl FnMut(Run)) {
        let [_, in_h, in_w] = conv.input;
        let lines = phase / self.phases[2];
        let phases = [lines / self.phases[1], lines % self.phases[1]];
        let offset = |axis: usize| phases[axis] as isize - conv.pad[axis] as isize;
        let height = self.cells[1].max(1);
        for slice in rows.start / height..rows.end.div_ceil(height) {
            let depth = (slice * conv.stride[0]) as isize + offset(0);
            if !(0..conv.input[0] as isize).contains(&depth) {
                continue;
            }
            let start = rows.start.saturating_sub(slice * height);
            let end = (rows.end - slice * height).min(height);
            let good = inside(&(start..end), conv.stride[1], offset(1), in_h);
            if !good.is_empty() {
                let first = (good.start * conv.stride[1]) as isize + offset(1);
                let first = (depth as usize * in_h + first as usize) * in_w;
                f(Run { row: slice * height + good.start, count: good.len(), first });
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

    /// From a row of the image to that of the next row of cells.
    pub fn distance(&self, conv: &Conv) -> usize {
        conv.stride[1] * conv.input[2]
    }

    /// Calls `f(first element of a plane, its cell, [rows, columns])` for all cells that lie inside
    /// the image, in blocks of rows [`Grid::distance`] apart.
    #[inline(always)]
    pub fn for_blocks(&self, conv: &Conv, mut f: impl FnMut(usize, usize, [usize; 2])) {
        let width = self.cells[2];
        for phase in 0..self.phases() {
            let (good, first) = self.inside(conv, phase, &(0..width));
            if good.is_empty() {
                continue;
            }
            self.for_runs(conv, phase, &(0..self.rows()), |run| {
                let cell = phase * self.size + run.row * width + good.start;
                f(run.first + first, cell, [run.count, good.len()]);
            });
        }
    }

    /// Lays a plane of the image out; the cells outside of it, the same for every plane, are not
    /// written.
    ///
    /// # Safety
    /// `x` is a plane of the input; `to` has room for all phases.
    pub unsafe fn spread<T: Real>(&self, conv: &Conv, x: *const T, to: &mut [T]) {
        let (width, distance) = (self.cells[2], self.distance(conv));
        self.for_blocks(conv, |at, cell, [rows, columns]| {
            let to = &mut to[cell..cell + (rows - 1) * width + columns];
            // SAFETY: the plane has these elements.
            unsafe {
                let from = x.add(at);
                if conv.stride[2] == 1 {
                    return copy_rows(from, distance, to.as_mut_ptr(), width, rows, columns);
                }
                for (i, to) in to.chunks_mut(width).enumerate() {
                    let (from, to) = (from.add(i * distance), &mut to[..columns]);
                    // Small strides are shuffles of registers, if the compiler knows them.
                    match conv.stride[2] {
                        2 => take_every(from, 2, to),
                        3 => take_every(from, 3, to),
                        4 => take_every(from, 4, to),
                        stride => take_every(from, stride, to),
                    }
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
        if good.is_empty() {
            return;
        }
        let (width, stride) = (self.cells[2], conv.stride[2]);
        let distance = self.distance(conv);
        self.for_runs(conv, phase, &block.rows, |run| {
            let at = (run.row - block.rows.start) * width + good.start - block.columns.start;
            // SAFETY: promised by the caller; `inside` keeps the cells in the row.
            unsafe {
                let (from, to) = (from.add(at), x.add(run.first + first));
                if stride == 1 {
                    return copy_rows(from, width, to, distance, run.count, good.len());
                }
                for row in 0..run.count {
                    let (from, to) = (from.add(row * width), to.add(row * distance));
                    for i in 0..good.len() {
                        *to.add(i * stride) = *from.add(i);
                    }
                }
            }
        });
    }

    /// Copies a plane of the output's gradient to its cells.
    ///
    /// # Safety
    /// `dy` is a plane of the output; `to` has the [span](Grid::span) of the output.
    pub unsafe fn collect<T: Real>(&self, conv: &Conv, dy: *const T, to: *mut T) {
        // SAFETY: promised by the caller.
        unsafe { copy_box(conv.output, (dy, conv.output), (to, self.cells)) };
    }

    /// Copies the cells of the output's positions to a plane of the output.
    ///
    /// # Safety
    /// As [`Grid::collect`], the other way round.
    pub unsafe fn release<T: Real>(&self, conv: &Conv, from: *const T, y: *mut T) {
        // SAFETY: promised by the caller.
        unsafe { copy_box(conv.output, (from, self.cells), (y, conv.output)) };
    }
}

/// Copies the first elements along each axis from one buffer to another, which have these extents.
///
/// # Safety
/// Both hold them and do not overlap.
unsafe fn copy_box<T: Copy>(
    [depth, height, width]: [usize; 3],
    (from, [_, from_height, from_width]): (*const T, [usize; 3]),
    (to, [_, to_height, to_width]): (*mut T, [usize; 3]),
) {
    for d in 0..depth {
        // SAFETY: promised by the caller.
        unsafe {
            let from = from.add(d * from_height * from_width);
            let to = to.add(d * to_height * to_width);
            copy_rows(from, from_width, to, to_width, height, width);
        }
    }
}

/// Rows of cells that follow one another in one slice, with rows of the image that the stride is
/// apart.
struct Run {
    /// The first row of cells.
    row: usize,
    count: usize,
    /// The first element of the first row of the image.
    first: usize,
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
