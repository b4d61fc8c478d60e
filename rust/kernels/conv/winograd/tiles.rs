//! Between images and transformed tiles.
//!
//! Tiles are kept as `[point][block of channels][tile][LANES]`, with an unused cache line between
//! points: at distances of powers of two the points of a tile would share a few sets of the cache.

use super::LANES;
use super::transforms::{Squares, Transform};
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::micro::WIDE;
use crate::kernels::layout::copy_matrix;
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// The extents of a buffer of transformed tiles.
#[derive(Clone, Copy)]
pub struct Room {
    pub points: usize,
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
        self.points * self.point()
    }
}

/// Some registers of neighbouring output channels, as many as the micro-kernel takes.
pub struct Registers {
    pub wide: usize,
    /// The block of the first, and the lane in it.
    pub block: usize,
    pub lane: usize,
    /// Those of the last.
    last: [usize; 2],
}

impl Registers {
    /// Those of some blocks of channels, whose registers have so many lanes.
    pub fn of_blocks(blocks: usize, lanes: usize) -> impl Iterator<Item = Registers> {
        let place = move |register: usize| [register * lanes / LANES, register * lanes % LANES];
        let all = blocks * LANES / lanes;
        (0..all).step_by(WIDE).map(move |first| {
            let wide = WIDE.min(all - first);
            let [block, lane] = place(first);
            Registers { wide, block, lane, last: place(first + wide - 1) }
        })
    }

    /// From the first to the last, in a buffer whose blocks are `apart`.
    pub fn distance(&self, apart: usize) -> usize {
        let [block, lane] = self.last;
        (block - self.block) * apart + lane - self.lane
    }
}

/// The squares of planes that tiles read or write: along each axis `side` positions, `dilate`
/// apart, from `-pad` on. `dilate` squares lie between one another, each one position after the one
/// before; the next ones begin `step` of the distances further on. In between, a block of channels
/// stands in scratch as `[row][column][LANES]`, including the margin that squares reach beyond the
/// planes.
#[derive(Clone, Copy)]
pub struct Cut {
    pub planes: [usize; 2],
    /// Elements from the plane of a channel to that of the next.
    pub apart: usize,
    pub pad: [usize; 2],
    pub side: [usize; 2],
    pub step: [usize; 2],
    pub dilate: [usize; 2],
    /// Points of a transformed tile along the axes.
    pub reach: [usize; 2],
}

/// Equally distant squares.
struct TileLine {
    count: usize,
    /// Where the first is in scratch, in positions, and its number in the area.
    position: usize,
    tile: usize,
    /// From one to the next, in positions and in numbers.
    steps: [usize; 2],
}

/// Rows and columns of tiles of a slice.
pub type Area<'a> = [&'a Range<usize>; 2];

impl Cut {
    /// The first position of a tile, which grows with its number.
    fn first(&self, axis: usize, tile: usize) -> usize {
        let dilate = self.dilate[axis];
        tile / dilate * dilate * self.step[axis] + tile % dilate
    }

    /// Rows and columns that tiles reach over.
    fn reached(&self, area: Area<'_>) -> [usize; 2] {
        [0, 1].map(|axis| {
            let [first, last] = [area[axis].start, area[axis].end - 1].map(|t| self.first(axis, t));
            last - first + (self.side[axis] - 1) * self.dilate[axis] + 1
        })
    }

    /// Of the rows and columns that tiles reach over, those inside the plane, and the number before
    /// them.
    fn inside(&self, area: Area<'_>) -> [(Range<usize>, usize); 2] {
        let reached = self.reached(area);
        [0, 1].map(|axis| {
            let (pad, first) = (self.pad[axis], self.first(axis, area[axis].start));
            let end = (first + reached[axis]).saturating_sub(pad).min(self.planes[axis]);
            let start = first.saturating_sub(pad).min(end);
            (start..end, pad.saturating_sub(first).min(reached[axis]))
        })
    }

    /// The squares of an area in lines of equally distant ones, few lines of many squares each;
    /// rows in scratch are `width` positions long.
    fn lines(&self, area: Area<'_>, width: usize) -> impl Iterator<Item = TileLine> {
        let counts = area.map(|tiles| tiles.len());
        let (outer, inner) = if counts[0] > counts[1] { (1, 0) } else { (0, 1) };
        let (apart, numbers) = ([width, 1], [counts[1], 1]);
        let (cut, dilate) = (*self, self.dilate[inner]);
        let place = move |axis: usize, start: usize, i: usize| {
            (cut.first(axis, start + i) - cut.first(axis, start)) * apart[axis]
        };
        let starts = area.map(|tiles| tiles.start);
        (0..counts[outer]).flat_map(move |i| {
            (0..dilate.min(counts[inner])).map(move |j| TileLine {
                count: (counts[inner] - j).div_ceil(dilate),
                position: place(outer, starts[outer], i) + place(inner, starts[inner], j),
                tile: i * numbers[outer] + j * numbers[inner],
                steps: [dilate * cut.step[inner] * apart[inner], dilate * numbers[inner]],
            })
        })
    }

    /// Steps between the points of a tile whose points are `point` apart, and between their
    /// positions in scratch that is `width` positions wide.
    fn steps(&self, point: usize, width: usize) -> [[usize; 2]; 2] {
        let [down, across] = self.dilate;
        [[self.reach[1] * point, point], [down * width * LANES, across * LANES]]
    }

    /// Transforms the tiles of an area of one slice and block of channels. `first` is the block's
    /// first plane, `to` the first tile's first point.
    ///
    /// # Safety
    /// There are `channels` planes from `first`; `to` has room for the tiles, `point` apart.
    pub unsafe fn transform<T: Real>(
        &self,
        planes: (*const T, usize),
        area: Area<'_>,
        run: Transform<T>,
        (to, point): (*mut T, usize),
    ) {
        let [height, width] = self.reached(area);
        with_scratch(height * width * LANES, |staged: &mut [T]| {
            // SAFETY: promised by the caller; the squares are inside the scratch.
            unsafe {
                self.stage(planes, area, staged);
                let [[below, right], positions] = self.steps(point, width);
                for line in self.lines(area, width) {
                    let [apart, tiles] = line.steps.map(|step| step * LANES);
                    run(&Squares {
                        count: line.count,
                        from: staged.as_ptr().add(line.position * LANES),
                        to: to.add(line.tile * LANES),
                        from_steps: [positions[0], positions[1], apart].map(|s| s as isize),
                        to_steps: [below, right, tiles],
                        bias: None,
                    });
                }
            }
        });
    }

    /// Lays planes out for the tiles of an area, surrounded by zeros.
    ///
    /// # Safety
    /// As [`Cut::transform`]; `to` has room for what the tiles reach over.
    unsafe fn stage<T: Real>(
        &self,
        (first, channels): (*const T, usize),
        area: Area<'_>,
        to: &mut [T],
    ) {
        let [_, width] = self.reached(area);
        let [(lines, above), (columns, left)] = self.inside(area);
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

    /// The stretches of a plane that [`Cut::restore`] writes for an area.
    pub fn written(&self, area: Area<'_>) -> impl Iterator<Item = Range<usize>> + use<> {
        let ([(lines, _), (columns, _)], width) = (self.inside(area), self.planes[1]);
        // Whole lines are one line.
        let each = if columns.len() == width { lines.len() } else { 1 };
        lines.step_by(each.max(1)).map(move |line| {
            let at = line * width;
            at + columns.start..at + (each - 1) * width + columns.end
        })
    }

    /// Transforms sums back to the outputs of an area of one slice and block of channels, and adds
    /// a bias; the inverse of [`Cut::transform`], for squares that do not overlap and have no
    /// padding.
    ///
    /// # Safety
    /// As [`Cut::transform`], with planes that are written.
    pub unsafe fn restore<T: Real>(
        &self,
        (from, point): (*const T, usize),
        area: Area<'_>,
        (run, bias): (Transform<T>, Option<[T; LANES]>),
        (first, channels): (*mut T, usize),
    ) {
        let ([height, width], [(lines, _), (columns, _)]) = (self.reached(area), self.inside(area));
        with_scratch(height * width * LANES, |staged: &mut [T]| {
            let staged = staged.as_mut_ptr();
            // SAFETY: promised by the caller; the squares are inside the scratch.
            unsafe {
                let [[below, right], positions] = self.steps(point, width);
                for line in self.lines(area, width) {
                    let [apart, tiles] = line.steps.map(|step| step * LANES);
                    run(&Squares {
                        count: line.count,
                        from: from.add(line.tile * LANES),
                        to: staged.add(line.position * LANES),
                        from_steps: [below, right, tiles].map(|s| s as isize),
                        to_steps: [positions[0], positions[1], apart],
                        bias,
                    });
                }
                // Lines that are as wide as the tiles and the planes are one line.
                let (step, each) = if columns.len() == width && width == self.planes[1] {
                    (lines.len(), lines.len() * width)
                } else {
                    (1, columns.len())
                };
                for (i, at) in lines.enumerate().step_by(step.max(1)) {
                    let from = staged.add(i * width * LANES);
                    let from = Mat { ptr: from, row: 1, col: LANES as isize };
                    let at = at * self.planes[1] + columns.start;
                    copy_matrix((channels, each), from, Mat::rows(first.add(at), self.apart));
                }
            }
        });
    }
}
