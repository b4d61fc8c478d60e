//! Between images and transformed tiles.
//!
//! Tiles are kept as `[point][block of channels][tile][LANES]`, with an unused cache line between
//! points: at distances of powers of two the 36 points of a tile would share a few sets of the
//! cache.

use super::transforms::{Squares, Transform};
use super::{LANES, POINTS, REACH};
use crate::kernels::gemm::Mat;
use crate::kernels::layout::copy_matrix;
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// The extents of a buffer of transformed tiles.
#[derive(Clone, Copy)]
pub struct Room {
    pub blocks: usize,
    pub tiles: usize,
}

impl Room {
    /// From one point to the next.
    pub fn point(self) -> usize {
        (self.blocks * self.tiles + 1) * LANES
    }

    /// From one block of channels to the next.
    pub fn block(self) -> usize {
        self.tiles * LANES
    }

    /// Elements of the buffer.
    pub fn len(self) -> usize {
        POINTS * self.point()
    }
}

/// The squares of planes that tiles read or write: `side` long, one every `step` positions from
/// `-pad`. In between, a block of channels stands in scratch as `[row][column][LANES]`, including
/// the margin that squares reach beyond the planes.
#[derive(Clone, Copy)]
pub struct Cut {
    pub planes: [usize; 2],
    /// Elements from the plane of a channel to that of the next.
    pub apart: usize,
    pub pad: [usize; 2],
    pub side: usize,
    pub step: usize,
    /// Tiles in a row.
    pub across: usize,
}

impl Cut {
    /// Positions that `count` tiles reach over.
    fn reach(&self, count: usize) -> usize {
        (count - 1) * self.step + self.side
    }

    /// Of `count` positions of an axis from `first - pad`, those inside the plane, and the number
    /// before it.
    fn inside(&self, axis: usize, first: usize, count: usize) -> (Range<usize>, usize) {
        let end = (first + count).saturating_sub(self.pad[axis]).min(self.planes[axis]);
        let start = first.saturating_sub(self.pad[axis]).min(end);
        (start..end, self.pad[axis].saturating_sub(first).min(count))
    }

    /// Transforms the tiles of `rows` of one slice and block of channels. `first` is the block's
    /// first plane, `to` the first tile's first point.
    ///
    /// # Safety
    /// There are `channels` planes from `first`; `to` has room for the tiles, `point` apart.
    pub unsafe fn transform<T: Real>(
        &self,
        planes: (*const T, usize),
        rows: Range<usize>,
        run: Transform<T>,
        (to, point): (*mut T, usize),
    ) {
        let width = self.reach(self.across);
        with_scratch(self.reach(rows.len()) * width * LANES, |staged: &mut [T]| {
            // SAFETY: promised by the caller; the squares are inside the scratch.
            unsafe {
                self.stage(planes, &rows, staged);
                for row in 0..rows.len() {
                    run(&Squares {
                        count: self.across,
                        from: staged.as_ptr().add(row * self.step * width * LANES),
                        to: to.add(row * self.across * LANES),
                        from_steps: [width * LANES, LANES, self.step * LANES].map(|s| s as isize),
                        to_steps: [REACH * point, point, LANES],
                    });
                }
            }
        });
    }

    /// Lays planes out for the tiles of `rows`, surrounded by zeros.
    ///
    /// # Safety
    /// As [`Cut::transform`]; `to` has room for what the tiles reach over.
    unsafe fn stage<T: Real>(
        &self,
        (first, channels): (*const T, usize),
        rows: &Range<usize>,
        to: &mut [T],
    ) {
        let (height, width) = (self.reach(rows.len()), self.reach(self.across));
        let (lines, above) = self.inside(0, rows.start * self.step, height);
        let (columns, left) = self.inside(1, 0, width);
        let plane = self.apart as isize;
        let line = |at: usize| Mat {
            // SAFETY: the line is inside the plane.
            ptr: unsafe { first.cast_mut().add(at * self.planes[1] + columns.start) },
            row: 1,
            col: plane,
        };
        if channels < LANES || columns.is_empty() {
            to.fill(T::zero());
        } else {
            to[..above * width * LANES].fill(T::zero());
            to[(above + lines.len()) * width * LANES..].fill(T::zero());
        }
        // SAFETY: promised by the caller.
        unsafe {
            // Whole lines are one line. (Of odd sizes, stride 2 may leave the last column unread.)
            if columns.len() == width && width == self.planes[1] && !lines.is_empty() {
                let to = Mat::rows(to.as_mut_ptr().add(above * width * LANES), LANES);
                return copy_matrix((lines.len() * width, channels), line(lines.start), to);
            }
            for (at, to) in lines.zip(to.chunks_exact_mut(width * LANES).skip(above)) {
                to[..left * LANES].fill(T::zero());
                to[(left + columns.len()) * LANES..].fill(T::zero());
                let to = Mat::rows(to.as_mut_ptr().add(left * LANES), LANES);
                copy_matrix((columns.len(), channels), line(at), to);
            }
        }
    }

    /// The elements of a plane that [`Cut::restore`] writes for `rows`.
    pub fn positions(&self, rows: Range<usize>) -> Range<usize> {
        let (lines, _) = self.inside(0, rows.start * self.step, self.reach(rows.len()));
        lines.start * self.planes[1]..lines.end * self.planes[1]
    }

    /// Transforms sums back to the outputs of `rows` of one slice and block of channels; the
    /// inverse of [`Cut::transform`], for squares that do not overlap and have no padding.
    ///
    /// # Safety
    /// As [`Cut::transform`], with planes that are written.
    pub unsafe fn restore<T: Real>(
        &self,
        (from, point): (*const T, usize),
        rows: Range<usize>,
        run: Transform<T>,
        (first, channels): (*mut T, usize),
    ) {
        let width = self.reach(self.across);
        let (lines, _) = self.inside(0, rows.start * self.step, self.reach(rows.len()));
        let columns = self.planes[1];
        with_scratch(self.reach(rows.len()) * width * LANES, |staged: &mut [T]| {
            let staged = staged.as_mut_ptr();
            // SAFETY: promised by the caller; the squares are inside the scratch.
            unsafe {
                for row in 0..rows.len() {
                    run(&Squares {
                        count: self.across,
                        from: from.add(row * self.across * LANES),
                        to: staged.add(row * self.step * width * LANES),
                        from_steps: [REACH * point, point, LANES].map(|s| s as isize),
                        to_steps: [width * LANES, LANES, self.step * LANES],
                    });
                }
                // Lines that are as wide as the tiles are one line.
                let (step, each) = if columns == width {
                    (lines.len(), lines.len() * width)
                } else {
                    (1, columns)
                };
                for (i, at) in lines.enumerate().step_by(step.max(1)) {
                    let from = staged.add(i * width * LANES);
                    let from = Mat { ptr: from, row: 1, col: LANES as isize };
                    let to = Mat::rows(first.add(at * columns), self.apart);
                    copy_matrix((channels, each), from, to);
                }
            }
        });
    }
}
