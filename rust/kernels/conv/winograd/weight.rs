//! Gradients of filters, summed over the images.
//!
//! In three steps: tiles of images and of gradients are transformed, at each point the two are
//! multiplied, and the sums are transformed to filters. Many tiles are processed in rounds, which
//! bounds the buffers in between. The last two steps are split on their own, or together where
//! tiles are few.

use super::forward::{FilterRoom, GROUP, RUN, clear};
use super::regions::{Region, Regions, bands, even};
use super::tiles::{Registers, Room};
use super::transforms::Squares;
use super::{Geometry, LANES, POINTS};
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::micro::{Access, Tile};
use crate::kernels::gemm::pack::RowPanels;
use crate::kernels::layout::copy_matrix;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Bytes of the transformed tiles of a round.
const ROUND_BYTES: usize = 12 << 20;
/// Points of a block of channels that a task transforms.
const TASK_POINTS: usize = 64 * POINTS;
/// Tiles that are multiplied at once.
const TERMS: usize = 256;

/// A region of a round.
struct Part {
    region: Region,
    /// Its first tile in both buffers.
    first: [usize; 2],
}

/// `dw` from the images and `dy`; the extents are those of [`super::super::backward_weight`].
///
/// # Safety
/// As there.
pub unsafe fn backward_weight<T: Real>(geometry: &Geometry, x: *const T, dy: *const T, dw: *mut T) {
    let sums_room = FilterRoom::new(geometry);
    let blocks = [sums_room.inner / LANES, sums_room.blocks];
    let points = geometry.points();
    let tile = (blocks[0] + blocks[1]) * LANES * points * size_of::<T>();
    let most = ROUND_BYTES / tile;
    let regions = Regions::new(geometry, most);
    let largest = regions.largest();
    let each = (most / largest.tiles_read()).clamp(1, regions.count());
    let (x, dy, dw) = (Shared(x.cast_mut()), Shared(dy.cast_mut()), Shared(dw));
    let tiles = [largest.tiles_read(), largest.tiles()];
    let rooms = [0, 1].map(|side| Room { points, blocks: blocks[side], tiles: each * tiles[side] });
    let room_for_tiles = rooms[0].len() + rooms[1].len();
    // Sums that take more room than the tiles they are made of stay in the cache of a task, part by
    // part.
    let in_parts = regions.count() <= each && sums_room.len() > room_for_tiles;
    let all_sums = if in_parts { 0 } else { sums_room.len() };
    with_scratch(all_sums + room_for_tiles, |scratch: &mut [T]| {
        let (sums, rest) = scratch.split_at_mut(all_sums);
        let (left, right) = rest.split_at_mut(rooms[0].len());
        let sums = Shared(sums.as_mut_ptr());
        let buffers = [Shared(left.as_mut_ptr()), Shared(right.as_mut_ptr())];
        for first in (0..regions.count()).step_by(each) {
            let round: Vec<Part> = (first..regions.count().min(first + each))
                .map(|i| (regions.at(i), tiles.map(|tiles| (i - first) * tiles)))
                .map(|(region, first)| Part { region, first })
                .collect();
            for part in &round {
                // SAFETY: promised by the caller.
                unsafe { transform_tiles(geometry, part, [x, dy], buffers, rooms) };
            }
            let round = Round::new(&round, buffers, rooms);
            // SAFETY: promised by the caller.
            unsafe {
                if in_parts {
                    return write_in_parts(geometry, &round, sums_room, dw);
                }
                add_round(&round, (sums, sums_room), first > 0);
            }
        }
        parallel_for(sums_room.blocks, 1, |blocks| {
            for block in blocks {
                // SAFETY: promised by the caller; blocks of filters are apart.
                unsafe {
                    let sums = sums.at(block * sums_room.block()).cast_const();
                    let part = (block, 0..geometry.in_c);
                    write_filters(geometry, (sums, sums_room), part, dw.ptr());
                }
            }
        });
    });
}

/// Transforms the tiles of a region: of the images to the first buffer, of the gradients to the
/// second.
///
/// # Safety
/// As [`backward_weight`]; the buffers have their rooms.
unsafe fn transform_tiles<T: Real>(
    geometry: &Geometry,
    Part { region, first }: &Part,
    planes: [Shared<T>; 2],
    points: [Shared<T>; 2],
    rooms: [Room; 2],
) {
    let (input, output) = geometry.cuts();
    let all = geometry.transforms::<T>();
    let sides = [(input, geometry.in_c, all.input), (output, geometry.out_c, all.output_gradient)];
    // A task transforms one block of channels of some rows, or of some columns of a row.
    let (across, tiles) = (region.columns.len(), TASK_POINTS / rooms[0].points);
    let (each, columns_each) = (tiles.div_ceil(across), even(across, tiles));
    let parts = across.div_ceil(columns_each);
    let rows = [region.inputs(), region.slices.len()].map(|slices| slices * region.rows.len());
    let down = rows.map(|rows| rows.div_ceil(each));
    let of_images = rooms[0].blocks * down[0] * parts;
    parallel_for(of_images + rooms[1].blocks * down[1] * parts, 1, |tasks| {
        for task in tasks {
            let side = usize::from(task >= of_images);
            let task = if side == 0 { task } else { task - of_images };
            let (left, task) = (task % parts * columns_each, task / parts);
            let right = (left + columns_each).min(across);
            let (block, start) = (task / down[side], task % down[side] * each);
            let (cut, all_channels, run) = sides[side];
            let channels = LANES.min(all_channels - block * LANES);
            let part = start..(start + each).min(rows[side]);
            for (slice, band, before) in bands(part, region.rows.len()) {
                let from = match side {
                    0 => region.read_at(geometry, slice, block * LANES),
                    _ => Some(region.written_at(geometry, slice, block * LANES)),
                };
                // SAFETY: promised by the caller; tasks write apart.
                unsafe {
                    let tile = first[side] + (start + before) * across + left;
                    let to = points[side].at(block * rooms[side].block() + tile * LANES);
                    let to = (to, rooms[side].point());
                    match from {
                        Some(at) => {
                            let from = (planes[side].at(at).cast_const(), channels);
                            let (above, before) = (region.rows.start, region.columns.start);
                            let rows = above + band.start..above + band.end;
                            let columns = before + left..before + right;
                            cut.transform(from, [&rows, &columns], run, to);
                        }
                        None => clear(to, rooms[side].points, band.len() * (right - left)),
                    }
                }
            }
        }
    });
}

/// Tiles that are multiplied at once: the first one in both buffers, their number, and the tiles of
/// a slice.
type Span = ([usize; 2], usize, usize);

/// The transformed tiles of some regions.
struct Round<T> {
    points: [Shared<T>; 2],
    rooms: [Room; 2],
    /// Taps on the depth axis.
    taps: usize,
    /// As many together as stay in the cache.
    spans: Vec<Vec<Span>>,
}

impl<T: Real> Round<T> {
    fn new(parts: &[Part], points: [Shared<T>; 2], rooms: [Room; 2]) -> Self {
        let spans = |Part { region, first }: &Part| {
            let (tiles, each, first) = (region.tiles(), region.tiles_each(), *first);
            let span =
                move |start| (first.map(|first| first + start), TERMS.min(tiles - start), each);
            (0..tiles).step_by(TERMS).map(span)
        };
        let spans: Vec<Span> = parts.iter().flat_map(spans).collect();
        let longest = spans.first().map_or(TERMS, |span| span.1);
        let spans = spans.chunks((TERMS / longest).max(1)).map(<[Span]>::to_vec).collect();
        Round { points, rooms, taps: parts.first().map_or(1, |part| part.region.taps), spans }
    }

    /// Multiplies the tiles at point `p` for every tap on the depth axis, some blocks of input
    /// channels and some of output channels, the first of which the sums begin with; adds to the
    /// sums if `add`.
    ///
    /// # Safety
    /// The buffers have the sizes of their extents, and the sums as many blocks of channels.
    unsafe fn multiply(
        &self,
        (p, inner, outer): (usize, Range<usize>, Range<usize>),
        (sums, sums_room): (*mut T, FilterRoom),
        add: bool,
    ) {
        for (i, spans) in self.spans.iter().enumerate() {
            for tap in 0..self.taps {
                for block in inner.clone() {
                    let row = tap * sums_room.inner + (block - inner.start) * LANES;
                    let mut add = add || i > 0;
                    for &([left, right], k, each) in spans {
                        // SAFETY: promised by the caller.
                        unsafe {
                            let sums = sums.add(p * sums_room.point() + row * LANES);
                            let blocks = (block, outer.clone());
                            let at = [left + tap * each, right];
                            self.product((p, blocks), at, k, (sums, sums_room.block()), add);
                        }
                        add = true;
                    }
                }
            }
        }
    }

    /// The product of one point and block of input channels over `k` tiles, those from `at` on in
    /// both buffers, whose sums are `apart` from block to block.
    ///
    /// # Safety
    /// As [`Round::multiply`].
    unsafe fn product(
        &self,
        (p, (inner, outer)): (usize, (usize, Range<usize>)),
        at: [usize; 2],
        k: usize,
        (sums, apart): (*mut T, usize),
        add: bool,
    ) {
        let (kernels, [left, right]) = (T::kernels(), self.rooms);
        let panels = RowPanels::new(LANES, kernels);
        for registers in Registers::of_blocks(outer.len(), kernels.lanes) {
            let Registers { wide, block, lane, .. } = registers;
            for rows in (0..panels.count()).map(|i| panels.at(i)) {
                // SAFETY: promised by the caller; points and channels are apart.
                unsafe {
                    let a = self.points[0].at(p * left.point() + inner * left.block());
                    let outer = (outer.start + block) * right.block();
                    let b = self.points[1].at(p * right.point() + outer + lane);
                    kernels.get(rows.len(), wide, Access::Panels)(&Tile {
                        k,
                        a: a.add(at[0] * LANES + rows.start),
                        a_step: LANES,
                        b: b.add(at[1] * LANES),
                        b_step: LANES,
                        b_next: registers.distance(right.block()),
                        offsets: std::ptr::null(),
                        c: sums.add(block * apart + lane + rows.start * LANES),
                        c_step: LANES,
                        c_next: registers.distance(apart),
                        add,
                        bias: std::ptr::null(),
                    });
                }
            }
        }
    }
}

/// Multiplies the tiles of a round and adds to all sums if `add`.
///
/// # Safety
/// The buffers have the sizes of their extents.
unsafe fn add_round<T: Real>(
    round: &Round<T>,
    (sums, sums_room): (Shared<T>, FilterRoom),
    add: bool,
) {
    let [left, right] = round.rooms;
    // Where points are few, blocks of input channels are split as well.
    let parts = (POINTS / left.points).min(left.blocks);
    let each = left.blocks.div_ceil(parts);
    parallel_for(left.points * parts, 1, |tasks| {
        for task in tasks {
            let (p, first) = (task / parts, (task % parts * each).min(left.blocks));
            let inner = first..(first + each).min(left.blocks);
            // SAFETY: promised by the caller; points and input channels are apart.
            unsafe {
                let sums = sums.at(first * LANES * LANES);
                round.multiply((p, inner, 0..right.blocks), (sums, sums_room), add);
            }
        }
    });
}

/// Writes the filters from one round that has all tiles.
///
/// # Safety
/// As [`add_round`]; `dw` is as in [`backward_weight`].
unsafe fn write_in_parts<T: Real>(
    geometry: &Geometry,
    round: &Round<T>,
    sums_room: FilterRoom,
    dw: Shared<T>,
) {
    let [left, right] = round.rooms;
    let each = RUN / LANES;
    let (across, down) = (left.blocks.div_ceil(each), right.blocks.div_ceil(GROUP));
    let room = sums_room.part(GROUP, RUN);
    parallel_for(down * across, 1, |tasks| {
        for task in tasks {
            let first = [task % across * each, task / across * GROUP];
            let inner = first[0]..(first[0] + each).min(left.blocks);
            let outer = first[1]..(first[1] + GROUP).min(right.blocks);
            with_scratch(room.len(), |sums: &mut [T]| {
                for p in 0..left.points {
                    let part = (p, inner.clone(), outer.clone());
                    // SAFETY: promised by the caller.
                    unsafe { round.multiply(part, (sums.as_mut_ptr(), room), false) };
                }
                for (i, block) in outer.enumerate() {
                    let inputs = inner.start * LANES..(inner.end * LANES).min(geometry.in_c);
                    // SAFETY: promised by the caller; tasks write apart.
                    unsafe {
                        let sums = sums.as_ptr().add(i * room.block());
                        write_filters(geometry, (sums, room), (block, inputs), dw.ptr());
                    }
                }
            });
        }
    });
}

/// Writes the filters of a block of output channels on some input channels from their sums.
///
/// # Safety
/// The sums have this many elements; `dw` is as in [`backward_weight`].
unsafe fn write_filters<T: Real>(
    geometry: &Geometry,
    (sums, room): (*const T, FilterRoom),
    (block, inputs): (usize, Range<usize>),
    dw: *mut T,
) {
    let first = block * LANES;
    let lanes = LANES.min(geometry.out_c - first);
    let count = geometry.taps();
    let steps = [geometry.reach()[1] * room.point(), room.point(), LANES];
    with_scratch(inputs.len() * count * LANES, |taps: &mut [T]| {
        // SAFETY: promised by the caller.
        unsafe {
            for tap in 0..geometry.depth.kernel {
                (geometry.transforms::<T>().filter_gradient)(&Squares {
                    count: inputs.len(),
                    from: sums.add(tap * room.tap()),
                    to: taps.as_mut_ptr().add(tap * geometry.square() * LANES),
                    from_steps: steps.map(|s| s as isize),
                    to_steps: [geometry.kernel[1] * LANES, LANES, count * LANES],
                    bias: None,
                });
            }
            let from = Mat { ptr: taps.as_mut_ptr(), row: 1, col: LANES as isize };
            let (depth, at) = (geometry.in_c * count, inputs.start * count);
            let to = Mat::rows(dw.add(first * depth + at), depth);
            copy_matrix((lanes, inputs.len() * count), from, to);
        }
    });
}
