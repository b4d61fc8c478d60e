//! Filters applied to images laid out as [`Grid`]s, by the micro-kernel and without a matrix form.
//!
//! In a grid a tap is one offset for all positions, so each row of the convolution's matrix form
//! (one row per channel and tap) is a stretch of the image itself, and the micro-kernel needs only
//! its start. Sums between the rows of the output are dropped when results are stored; for
//! gradients of filters these positions are multiplied by zeros, so an infinite value in an image
//! makes all gradients of its channel NaN.
//!
//! M. Dukhan, The Indirect Convolution Algorithm, 2019 (offsets instead of a matrix form).

mod data;
mod weight;

use super::blocks::{Block, Blocks};
use super::grid::Grid;
use super::{Conv, report};
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::micro::{Access, Kernels, Tile, WIDE};
use crate::kernels::gemm::pack::{RowPanels, longest_slab, pack_panel, slabs};
use crate::kernels::kept::{Keeper, with_made};
use crate::kernels::layout::copy_row;
use crate::kernels::parallel::{OnElements, Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Bytes of images that are laid out at once.
const ROUND_BYTES: usize = 4 << 20;
/// Positions of the output whose sums stay in the second-level cache.
const CHUNK: usize = 640;
/// Bytes of filters that stay in the second-level cache beside the image.
const CACHED_BYTES: usize = 256 << 10;
/// Minimum number of tasks.
const TASKS: usize = 8;
/// Filters that this many tasks read are packed once; by fewer, each packs those that it reads.
const READERS: usize = 4;

/// A convolution on grids.
pub struct Direct<'a, T: 'static> {
    conv: &'a Conv,
    grid: Grid,
    kernels: &'static Kernels<T>,
    /// Where the stretch of each row of the matrix form starts.
    offsets: Vec<usize>,
    /// Elements of one image and group, with those that tiles read past its end.
    image: usize,
    /// Images and groups that are laid out at once.
    round: usize,
}

/// How the outputs of a round are cut into tasks.
struct WorkCut {
    /// Of an image.
    chunks: Blocks,
    /// Parts of the filters.
    parts: usize,
    /// Whether all filters are packed beforehand.
    packs_once: bool,
}

/// The filters of a task.
struct Weights<T> {
    panels: RowPanels,
    /// Of the panels.
    part: Range<usize>,
    /// The first weight of the first filter of the group.
    from: *const T,
    /// Packed slab by slab, or row-major.
    packed: bool,
}

impl<T: Real> Weights<T> {
    fn filters(&self) -> Range<usize> {
        self.panels.at(self.part.start).start..self.panels.at(self.part.end - 1).end
    }

    /// A packed panel of a slab, which may be put into `own`.
    ///
    /// # Safety
    /// The filters have `depth` weights, and `own` has room for a panel if they are not packed.
    #[inline]
    unsafe fn panel(&self, i: usize, slab: &Range<usize>, depth: usize, own: *mut T) -> *const T {
        let rows = self.panels.at(i);
        // SAFETY: promised by the caller.
        unsafe {
            if self.packed {
                let filters = self.panels.at(self.panels.count() - 1).end;
                return self.from.add(slab.start * filters + rows.start * slab.len());
            }
            let from = self.from.add(rows.start * depth + slab.start).cast_mut();
            pack_panel((rows.len(), slab.len()), Mat::rows(from, depth), own);
        }
        own.cast_const()
    }
}

impl<'a, T: Real> Direct<'a, T> {
    /// The convolution on grids, unless most of its sums would lie between rows. The choice depends
    /// on extents only.
    pub fn chosen(conv: &'a Conv) -> Option<Self> {
        let (grid, kernels) = (Grid::new(conv), T::kernels());
        let calculated = grid.span.next_multiple_of(kernels.lanes);
        let images = conv.batch * conv.groups;
        if images == 0 || calculated * 4 > conv.out_size() * 7 {
            return None;
        }
        let taps: Vec<usize> = (0..conv.taps()).map(|t| grid.offset(conv, t)).collect();
        let offsets: Vec<usize> = (0..conv.in_c)
            .flat_map(|c| taps.iter().map(move |t| (c, t)))
            .map(|(c, t)| c * grid.all() + t)
            .collect();
        if offsets.is_empty() || conv.out_c == 0 {
            return None;
        }
        let image = conv.in_c * grid.all() + kernels.columns();
        let round = (ROUND_BYTES / size_of::<T>() / image).clamp(1, images);
        Some(Direct { conv, grid, kernels, offsets, image, round })
    }

    /// The images and groups in rounds.
    fn rounds(&self) -> impl Iterator<Item = Range<usize>> + use<T> {
        let (all, round) = (self.conv.batch * self.conv.groups, self.round);
        (0..all).step_by(round).map(move |first| first..(first + round).min(all))
    }

    /// Rows of cells from the first of the output to its last.
    fn cell_rows(&self) -> usize {
        (self.conv.output[0] - 1) * self.grid.cells[1] + self.conv.output[1]
    }

    /// The first element of a plane of the output that `row` of cells holds, if it holds any.
    fn output_row(&self, row: usize) -> Option<usize> {
        let (d, h) = (row / self.grid.cells[1], row % self.grid.cells[1]);
        let [_, out_h, out_w] = self.conv.output;
        (h < out_h).then(|| (d * out_h + h) * out_w)
    }

    /// The elements of a plane of the output that a chunk holds.
    fn positions(&self, chunk: Block) -> Range<usize> {
        let mut held = chunk.rows.filter_map(|row| self.output_row(row));
        let Some(first) = held.next() else { return 0..0 };
        first + chunk.columns.start..held.next_back().unwrap_or(first) + chunk.columns.end
    }

    /// Lays the images of a round out. Cells outside of images are written in the first round only.
    ///
    /// # Safety
    /// `x` is as in [`super::forward`], `to` has room for a round.
    unsafe fn spread(&self, x: Shared<T>, images: Range<usize>, to: Shared<T>, is_first: bool) {
        let (channels, size) = (self.conv.in_c, self.grid.all());
        let grain = (1usize << 14).div_ceil(size.max(1));
        parallel_for(images.len() * channels, grain, |planes| {
            for plane in planes {
                let (image, channel) = (plane / channels, plane % channels);
                let is_last = channel + 1 == channels;
                let room = if is_last { size + self.kernels.columns() } else { size };
                // SAFETY: promised by the caller; planes are apart.
                unsafe {
                    let to = to.at(image * self.image + channel * size);
                    let to = std::slice::from_raw_parts_mut(to, room);
                    if is_first {
                        to.fill(T::zero());
                    }
                    let plane = (images.start + image) * channels + channel;
                    self.grid.spread(self.conv, x.at(plane * self.conv.in_size()), to);
                }
            }
        });
    }

    /// `y = conv(x, w) + b`, of which `done` is called with what is finished.
    ///
    /// # Safety
    /// As [`super::forward`].
    pub unsafe fn forward(
        &self,
        x: *const T,
        w: *const T,
        bias: Option<*const T>,
        to: (*mut T, Option<OnElements<'_>>),
        keeper: Option<Keeper<'_>>,
    ) {
        let (x, w) = (Shared(x.cast_mut()), Shared(w.cast_mut()));
        let panels = RowPanels::new(self.conv.out_c, self.kernels);
        let cut = self.cut(panels.count());
        let bias = Shared(bias.unwrap_or(std::ptr::null()).cast_mut());
        if !cut.packs_once && keeper.is_none() {
            // SAFETY: promised by the caller.
            return unsafe { self.apply((x, bias), (w, false), (panels, &cut), to) };
        }
        let weights = self.conv.groups * self.conv.out_c * self.conv.depth();
        // SAFETY: promised by the caller; the room is that of all filters.
        let pack = |room: &mut [T]| unsafe { self.pack(panels, w, Shared(room.as_mut_ptr())) };
        with_made(keeper, weights, pack, |packed| {
            let packed = Shared(packed.as_ptr().cast_mut());
            // SAFETY: promised by the caller.
            unsafe { self.apply((x, bias), (packed, true), (panels, &cut), to) };
        });
    }

    /// The outputs of all images; `is_packed` says how the filters of a group stand.
    ///
    /// # Safety
    /// As [`super::forward`]; the bias may be null.
    unsafe fn apply(
        &self,
        (x, bias): (Shared<T>, Shared<T>),
        (weights, is_packed): (Shared<T>, bool),
        (panels, cut): (RowPanels, &WorkCut),
        (y, done): (*mut T, Option<OnElements<'_>>),
    ) {
        let (depth, filters) = (self.conv.depth(), self.conv.out_c);
        let y = Shared(y);
        with_scratch(self.round * self.image, |images: &mut [T]| {
            let images = Shared(images.as_mut_ptr());
            for round in self.rounds() {
                // SAFETY: promised by the caller.
                unsafe { self.spread(x, round.clone(), images, round.start == 0) };
                let chunks = cut.chunks.count();
                parallel_for(round.len() * chunks * cut.parts, 1, |tasks| {
                    for task in tasks {
                        let (chunk, part) = (task / cut.parts, task % cut.parts);
                        let (image, chunk) = (chunk / chunks, cut.chunks.at(chunk % chunks));
                        let at = round.start + image;
                        let group = at % self.conv.groups;
                        let part = panels.count() * part / cut.parts
                            ..panels.count() * (part + 1) / cut.parts;
                        // SAFETY: promised by the caller; chunks of outputs are apart.
                        let written = unsafe {
                            let bias = bias.ptr().cast_const();
                            let bias =
                                if bias.is_null() { bias } else { bias.add(group * filters) };
                            let from = weights.at(group * filters * depth).cast_const();
                            let weights = Weights { panels, part, from, packed: is_packed };
                            let image = images.at(image * self.image).cast_const();
                            let y = y.at(at * filters * self.conv.out_size());
                            self.chunk(&weights, (image, chunk.clone()), bias, y)
                        };
                        let planes = at * filters + written.start..at * filters + written.end;
                        report(done, planes, self.conv.out_size(), self.positions(chunk));
                    }
                });
            }
        });
    }

    /// Packs all filters, slab by slab in every group.
    ///
    /// # Safety
    /// `w` is as in [`super::forward`], `to` has as much room.
    unsafe fn pack(&self, panels: RowPanels, w: Shared<T>, to: Shared<T>) {
        let (depth, filters) = (self.conv.depth(), self.conv.out_c);
        let grain = (1usize << 15).div_ceil(depth * self.kernels.rows);
        parallel_for(self.conv.groups * panels.count(), grain, |some| {
            for (group, panel) in some.map(|i| (i / panels.count(), i % panels.count())) {
                let at = group * filters * depth;
                for slab in slabs::<T>(depth) {
                    // SAFETY: promised by the caller; panels are apart.
                    unsafe {
                        let from = Mat::rows(w.at(at + slab.start), depth);
                        let to = to.at(at + slab.start * filters);
                        panels.pack(panel..panel + 1, from, slab.len(), to);
                    }
                }
            }
        });
    }

    /// How the outputs of a round are cut into tasks: chunks of rows of cells, or of parts of long
    /// rows, and where these are few, parts of the filters. (Short chunks instead would read all
    /// filters again for each.)
    fn cut(&self, panels: usize) -> WorkCut {
        let tasks = TASKS.div_ceil(self.round);
        let cells = [self.cell_rows(), self.conv.output[2]];
        let chunks = match cells[1] > CHUNK {
            true => Blocks::of_cells(cells, CHUNK, WIDE * self.kernels.lanes),
            false => Blocks::of_rows(cells, self.chunk_rows(tasks.div_ceil(panels))),
        };
        let parts = tasks.div_ceil(chunks.count()).min(panels);
        let packs_once = self.conv.batch * chunks.count() >= READERS;
        WorkCut { chunks, parts, packs_once }
    }

    /// Rows of cells of a task: as many as fill whole tiles best, with which there are at least
    /// this many chunks, if there are as many rows.
    fn chunk_rows(&self, chunks: usize) -> usize {
        let (width, count) = (self.grid.cells[2], self.cell_rows());
        let most = (CHUNK / width).clamp(1, count.div_ceil(chunks).max(1));
        let junk = width - self.conv.output[2];
        // In quarters of a register's time in a whole tile: a single one takes five, and filters
        // that leave the second-level cache about six. On a tie, the larger chunk.
        let weights = self.conv.out_c * self.conv.depth() * size_of::<T>();
        let reading = if weights > CACHED_BYTES { 6 } else { 0 };
        let cost = |rows: usize| {
            let registers = (rows * width - junk).div_ceil(self.kernels.lanes);
            (4 * registers + registers % WIDE + reading) * count.div_ceil(rows)
        };
        (1..=most).rev().min_by_key(|&rows| cost(rows)).unwrap_or(1)
    }

    /// The outputs of a part of the filters in a chunk. Returns these filters.
    ///
    /// # Safety
    /// The weights are those of `image`, which is laid out, and these elements of `y` are the
    /// caller's.
    unsafe fn chunk(
        &self,
        weights: &Weights<T>,
        (image, chunk): (*const T, Block),
        bias: *const T,
        y: *mut T,
    ) -> Range<usize> {
        let (width, size, lanes) = (self.grid.cells[2], self.conv.out_size(), self.kernels.lanes);
        let (filters, Block { rows, mut columns }) = (weights.filters(), chunk);
        // SAFETY: promised by the caller.
        let mut image = unsafe { image.add(rows.start * width + columns.start) };
        // Whole tiles of a single row are summed up where they belong.
        if let (1, Some(at)) = (rows.len(), self.output_row(rows.start)) {
            let whole = columns.len() / self.kernels.columns() * self.kernels.columns();
            // SAFETY: as above.
            unsafe {
                let y = y.add(filters.start * size + at + columns.start);
                self.sum_up(weights, (image, whole / lanes), bias, (y, size));
                image = image.add(whole);
            }
            columns.start += whole;
        }
        let rest = Block { rows, columns };
        let registers = rest.span(width).div_ceil(lanes);
        let (room, columns) = (registers * lanes, rest.columns);
        with_scratch(filters.len() * room, |sums: &mut [T]| {
            let sums = sums.as_mut_ptr();
            // SAFETY: as above.
            unsafe { self.sum_up(weights, (image, registers), bias, (sums, room)) };
            for (i, row) in rest.rows.enumerate() {
                let Some(at) = self.output_row(row) else { continue };
                for (k, f) in filters.clone().enumerate() {
                    // SAFETY: as above.
                    unsafe {
                        let to = y.add(f * size + at + columns.start);
                        let from = sums.add(k * room + i * width).cast_const();
                        copy_row(from, to, columns.len());
                    }
                }
            }
        });
        filters
    }

    /// The sums of a part of the filters in some registers of positions, in one row a filter; rows
    /// are `row` apart.
    ///
    /// # Safety
    /// As [`Direct::chunk`], from where `image` points to; `sums` has room for them.
    unsafe fn sum_up(
        &self,
        weights: &Weights<T>,
        (image, registers): (*const T, usize),
        bias: *const T,
        (sums, row): (*mut T, usize),
    ) {
        let (kernels, depth, lanes) = (self.kernels, self.conv.depth(), self.kernels.lanes);
        let first = weights.filters().start;
        let own = if weights.packed { 0 } else { kernels.rows * longest_slab::<T>(depth) };
        with_scratch(own, |own: &mut [T]| {
            for slab in slabs::<T>(depth) {
                for i in weights.part.clone() {
                    let rows = weights.panels.at(i);
                    // SAFETY: promised by the caller; the room holds a panel.
                    let a = unsafe { weights.panel(i, &slab, depth, own.as_mut_ptr()) };
                    for register in (0..registers).step_by(WIDE) {
                        let wide = WIDE.min(registers - register);
                        let run = kernels.get(rows.len(), wide, Access::TermsByOffset);
                        // SAFETY: promised by the caller; a stretch ends in the room of the image.
                        unsafe {
                            run(&Tile {
                                k: slab.len(),
                                a,
                                a_step: rows.len(),
                                b: image.add(register * lanes),
                                b_step: 0,
                                b_next: lanes,
                                offsets: self.offsets[slab.clone()].as_ptr(),
                                c: sums.add((rows.start - first) * row + register * lanes),
                                c_step: row,
                                c_next: lanes,
                                add: slab.start > 0,
                                bias: if bias.is_null() || slab.start > 0 {
                                    std::ptr::null()
                                } else {
                                    bias.add(rows.start)
                                },
                            });
                        }
                    }
                }
            }
        });
    }
}
