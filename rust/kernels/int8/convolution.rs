//! Convolutions of 8-bit integers.
//!
//! As many channels of an image as a group has members are laid out as one [`Grid`] of groups, in
//! which every tap of a filter is one offset. A few rows of output positions are copied from there
//! as the columns of a tile.

use super::tile::{MOST_COLUMNS, MOST_MEMBERS, MOST_ROWS, Operands, Pairs, Quads, Tiles};
use super::{Byte, GRAIN, group_of, put, starts, tile_rows, with_groups};
use crate::kernels::conv::{Conv, Grid};
use crate::kernels::parallel::{Shared, parallel_for};
use smallvec::SmallVec;
use std::ops::Range;

/// Groups that are laid out at once.
const ROUND: usize = 1 << 20;
/// Groups copied at once. A copy may go beyond the end of its run; the next run overwrites that.
const BLOCK: usize = 8;
/// A round of fewer tasks splits its filters, too.
const TASKS: usize = 16;

/// Positions of the output that follow one another in a grid.
struct RowCopy {
    to: usize,
    from: usize,
    len: usize,
}

/// A convolution and the layout of its operands.
struct Packed<'a> {
    conv: &'a Conv,
    grid: Grid,
    /// Groups of channels.
    sets: usize,
    /// Groups of an image, with those that blocks read past its end.
    image: usize,
    /// Where the columns of each group of a filter start in an image.
    offsets: Vec<usize>,
    /// Where the sums of each filter begin.
    start: Vec<i32>,
}

/// The convolution of `x` with the filters `w`, channels first, each filter's sums beginning with
/// `start`; sums wrap beyond 32 bits.
///
/// # Safety
/// `x`, `w` and `y` have the extents of `conv` and do not overlap; `start` is empty or holds an
/// element for each filter.
pub unsafe fn convolve<T: Byte>(
    conv: &Conv,
    x: *const T,
    w: *const i8,
    start: &[i32],
    y: *mut i32,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match Quads::suit() {
            true => convolve_by::<Quads, T>(conv, x, w, start, y),
            false => convolve_by::<Pairs, T>(conv, x, w, start, y),
        }
    }
}

/// # Safety
/// As [`convolve`].
pub unsafe fn convolve_by<G: Tiles, T: Byte>(
    conv: &Conv,
    x: *const T,
    w: *const i8,
    start: &[i32],
    y: *mut i32,
) {
    let (grid, sets) = (Grid::new(conv), conv.in_c.div_ceil(G::MEMBERS));
    let filters = conv.groups * conv.out_c;
    let taps = (0..conv.taps()).map(|t| grid.offset(conv, t));
    let offsets: Vec<usize> = (0..sets)
        .flat_map(|set| taps.clone().map(move |t| (set, t)))
        .map(|(set, t)| set * grid.all() + t)
        .collect();
    let image = sets * grid.all() + BLOCK;
    // SAFETY: promised by the caller.
    let start = unsafe { starts::<G, T>(w, filters, conv.depth(), start) };
    let packed = Packed { conv, grid, sets, image, offsets, start };
    let images = conv.batch * conv.groups;
    let round = (ROUND / image).clamp(1, images.max(1));
    let (x, y) = (Shared(x.cast_mut()), Shared(y));
    with_groups(filters * packed.offsets.len(), |weights| {
        // SAFETY: promised by the caller.
        unsafe { packed.pack_weights::<G>(w, weights) };
        let weights = &*weights;
        with_groups(round * image, |room| {
            let room = Shared(room.as_mut_ptr());
            for first in (0..images).step_by(round) {
                let round = first..(first + round).min(images);
                // SAFETY: promised by the caller; rounds follow one another.
                unsafe {
                    packed.spread::<G, T>(x, round.clone(), room);
                    packed.multiply::<G>(room, round, weights, y);
                }
            }
        });
    });
}

impl Packed<'_> {
    /// Packs the filters of each group as rows of tiles: a group for each set of channels and tap.
    ///
    /// # Safety
    /// `w` has the extents of the filters.
    unsafe fn pack_weights<G: Tiles>(&self, w: *const i8, to: &mut [i32]) {
        let (taps, channels, filters) = (self.conv.taps(), self.conv.in_c, self.conv.out_c);
        let (groups, tiles) = (self.offsets.len(), filters.div_ceil(G::ROWS));
        for tile in 0..self.conv.groups * tiles {
            let first = tile / tiles * filters;
            let rows = tile_rows(filters, tiles, tile % tiles);
            let to = &mut to[(first + rows.start) * groups..][..rows.len() * groups];
            for (r, f) in rows.clone().enumerate() {
                for (g, to) in to[r..].iter_mut().step_by(rows.len()).enumerate() {
                    let (first_c, tap) = (g / taps * G::MEMBERS, g % taps);
                    *to = group_of::<G>(channels - first_c, |l| {
                        let at = ((first + f) * channels + first_c + l) * taps + tap;
                        // SAFETY: promised by the caller.
                        G::weight(unsafe { *w.add(at) })
                    });
                }
            }
        }
    }

    /// Lays the images of a round out; outside of images is 0.
    ///
    /// # Safety
    /// `x` has the extents of the input; `room` holds a round.
    unsafe fn spread<G: Tiles, T: Byte>(
        &self,
        x: Shared<T>,
        images: Range<usize>,
        room: Shared<i32>,
    ) {
        let (size, channels) = (self.grid.all(), self.conv.in_c);
        // What 0 is as data.
        let zero = group_of::<G>(G::MEMBERS, |_| u32::from(G::moved::<T>() as u8));
        parallel_for(images.len() * self.sets, (1usize << 14).div_ceil(size.max(1)), |sets| {
            for (image, set) in sets.map(|s| (s / self.sets, s % self.sets)) {
                let (first, count) =
                    (set * G::MEMBERS, G::MEMBERS.min(channels - set * G::MEMBERS));
                // SAFETY: promised by the caller; sets are apart. Where a set has fewer channels
                // than members, the last one stands in: its weights are 0.
                unsafe {
                    let to = room.at(image * self.image + set * size);
                    let to = std::slice::from_raw_parts_mut(to, size);
                    to.fill(zero);
                    let plane = (images.start + image) * channels + first;
                    let planes = [0, 1, 2, 3].map(|c: usize| {
                        x.at((plane + c.min(count - 1)) * self.conv.in_size()).cast_const()
                    });
                    let (width, stride) = (self.grid.cells[2], self.conv.stride[2]);
                    let distance = self.grid.distance(self.conv);
                    self.grid.for_blocks(self.conv, |at, cell, [rows, columns]| {
                        for row in 0..rows {
                            let planes = planes.map(|p| p.add(at + row * distance));
                            let cell = cell + row * width;
                            let to = to[cell..cell + columns].as_mut_ptr();
                            interleave::<G, T>(planes, stride, to, columns);
                        }
                    });
                }
            }
        });
    }

    /// Multiplies the images of a round by their filters.
    ///
    /// # Safety
    /// `room` holds the round, `y` has the extents of the output.
    unsafe fn multiply<G: Tiles>(
        &self,
        room: Shared<i32>,
        images: Range<usize>,
        weights: &[i32],
        y: Shared<i32>,
    ) {
        let (conv, groups) = (self.conv, self.offsets.len());
        let (size, panels) = (conv.out_size(), conv.out_size().div_ceil(G::COLUMNS));
        let tiles = conv.out_c.div_ceil(G::ROWS);
        // Where there are few columns, filters are split, too.
        let parts = if images.len() * panels < TASKS { tiles.div_ceil(4) } else { tiles.min(1) };
        let work = conv.out_c.div_ceil(parts.max(1)) * groups * G::MEMBERS * G::COLUMNS;
        parallel_for(images.len() * panels * parts, GRAIN.div_ceil(work.max(1)), |tasks| {
            with_groups(groups * G::COLUMNS + BLOCK, |columns| {
                let mut sums = [[0; MOST_COLUMNS]; MOST_ROWS];
                for task in tasks {
                    let (at, part) = (task / parts, task % parts);
                    let (image, first) = (at / panels, at % panels * G::COLUMNS);
                    let count = G::COLUMNS.min(size - first);
                    // SAFETY: the image is in the room.
                    unsafe { self.pack::<G>(room.at(image * self.image), first, count, columns) };
                    let plane = images.start + image;
                    let (base, columns) = (plane % conv.groups * conv.out_c, columns.as_ptr());
                    for tile in part * tiles / parts..(part + 1) * tiles / parts {
                        let filters = tile_rows(conv.out_c, tiles, tile);
                        let rows = weights[(base + filters.start) * groups..].as_ptr();
                        let operands = Operands { rows, row: 0, columns, groups };
                        // SAFETY: the filters exist; their outputs at these positions are this
                        // task's.
                        unsafe {
                            G::tile::<true>(filters.len(), operands, &mut sums);
                            for (f, sums) in filters.zip(&sums) {
                                let y = y.at((plane * conv.out_c + f) * size + first);
                                let start = self.start[base + f];
                                put(sums, start, y, count);
                            }
                        }
                    }
                }
            });
        });
    }

    /// Copies what the filters see at `count` positions from `first` on as columns.
    ///
    /// # Safety
    /// `image` is laid out.
    unsafe fn pack<G: Tiles>(
        &self,
        image: *const i32,
        first: usize,
        count: usize,
        columns: &mut [i32],
    ) {
        let runs = self.runs(first, count);
        for (g, offset) in self.offsets.iter().enumerate() {
            let columns = &mut columns[g * G::COLUMNS..(g + 1) * G::COLUMNS + BLOCK];
            for run in &runs {
                for at in (0..run.len).step_by(BLOCK) {
                    // SAFETY: cells of the image, or few after its end, for which there is room;
                    // the same holds for columns.
                    unsafe {
                        let from = image.add(offset + run.from + at).cast::<[i32; BLOCK]>();
                        let to = columns.as_mut_ptr().add(run.to + at).cast::<[i32; BLOCK]>();
                        to.write_unaligned(from.read_unaligned());
                    }
                }
            }
        }
    }

    /// The runs of `count` positions from `first` on.
    fn runs(&self, first: usize, count: usize) -> SmallVec<[RowCopy; 8]> {
        let ([_, out_h, out_w], cells) = (self.conv.output, self.grid.cells);
        let (mut runs, mut to) = (SmallVec::<[RowCopy; 8]>::new(), 0);
        while to < count {
            let (row, w) = ((first + to) / out_w, (first + to) % out_w);
            let from = (row / out_h * cells[1] + row % out_h) * cells[2] + w;
            let len = (out_w - w).min(count - to);
            match runs.last_mut() {
                Some(last) if last.from + last.len == from => last.len += len,
                _ => runs.push(RowCopy { to, from, len }),
            }
            to += len;
        }
        runs
    }
}

crate::simd! {
    /// Elements `0`, `stride`, `2 * stride` ... of as many planes as a group has members, as `n`
    /// groups.
    ///
    /// # Safety
    /// The planes have these elements; `to` has room for `n` groups.
    unsafe fn interleave[G: Tiles, T: Byte][G, T](
        planes: [*const T; MOST_MEMBERS], stride: usize, to: *mut i32, n: usize,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe {
            if stride == 1 {
                for i in 0..n {
                    let mut members = [0; MOST_MEMBERS];
                    for l in 0..G::MEMBERS {
                        members[l] = G::data(*planes[l].add(i));
                    }
                    *to.add(i) = G::group(members);
                }
                return;
            }
            for i in 0..n {
                let mut members = [0; MOST_MEMBERS];
                for l in 0..G::MEMBERS {
                    members[l] = G::data(*planes[l].add(i.wrapping_mul(stride)));
                }
                *to.add(i) = G::group(members);
            }
        }
    }
}
