//! Gradients of filters, summed over the images.
//!
//! In three steps, each split on its own: tiles of images and of gradients are transformed, at each
//! point the two are multiplied, and the sums are transformed to filters. Many tiles are processed
//! in rounds, which bounds the buffers in between.

use super::forward::{FilterRoom, clear};
use super::regions::{Region, Regions, bands, even};
use super::tiles::Room;
use super::transforms::Squares;
use super::{Geometry, LANES, POINTS};
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::micro::{Access, Tile, WIDE};
use crate::kernels::gemm::pack::RowPanels;
use crate::kernels::layout::copy_matrix;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;

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
    with_scratch(sums_room.len() + rooms[0].len() + rooms[1].len(), |scratch: &mut [T]| {
        let (sums, rest) = scratch.split_at_mut(sums_room.len());
        let (left, right) = rest.split_at_mut(rooms[0].len());
        let sums = Shared(sums.as_mut_ptr());
        let buffers = [Shared(left.as_mut_ptr()), Shared(right.as_mut_ptr())];
        for first in (0..regions.count()).step_by(each) {
            let round: Vec<Part> = (first..regions.count().min(first + each))
                .map(|i| (regions.at(i), tiles.map(|tiles| (i - first) * tiles)))
                .map(|(region, first)| Part { region, first })
                .collect();
            // SAFETY: promised by the caller.
            unsafe {
                for part in &round {
                    transform_tiles(geometry, part, [x, dy], buffers, rooms);
                }
                multiply((buffers, rooms), &round, (sums, sums_room), first > 0);
            }
        }
        parallel_for(sums_room.blocks, 1, |blocks| {
            for block in blocks {
                // SAFETY: promised by the caller; blocks of filters are apart.
                unsafe { write_filters(geometry, (sums.ptr(), sums_room), block, dw.ptr()) };
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

/// Multiplies the tiles of a round at every point and for every tap on the depth axis, and adds to
/// the sums if `add`.
///
/// # Safety
/// The buffers have the sizes of their extents.
unsafe fn multiply<T: Real>(
    (points, rooms): ([Shared<T>; 2], [Room; 2]),
    round: &[Part],
    (sums, sums_room): (Shared<T>, FilterRoom),
    add: bool,
) {
    let kernels = T::kernels();
    let panels = RowPanels::new(LANES, kernels);
    let registers = rooms[1].blocks * LANES / kernels.lanes;
    let place =
        |register: usize| (register * kernels.lanes / LANES, register * kernels.lanes % LANES);
    // The parts of a product of one point, tap and block of input channels, over some tiles of both
    // buffers.
    let product = |p: usize, (tap, inner): (usize, usize), at: [usize; 2], k: usize, add: bool| {
        for register in (0..registers).step_by(WIDE) {
            let wide = WIDE.min(registers - register);
            let [(block, lane), (next, next_lane)] = [place(register), place(register + wide - 1)];
            let distance = |step: usize| (next - block) * step + next_lane - lane;
            for rows in (0..panels.count()).map(|i| panels.at(i)) {
                // SAFETY: promised by the caller; points and input channels are apart.
                unsafe {
                    let a = points[0].at(p * rooms[0].point() + inner * rooms[0].block());
                    let b = points[1].at(p * rooms[1].point() + block * rooms[1].block() + lane);
                    let row = tap * sums_room.inner + inner * LANES + rows.start;
                    let c = sums.at(block * sums_room.block() + p * sums_room.point() + lane);
                    kernels.get(rows.len(), wide, Access::Panels)(&Tile {
                        k,
                        a: a.add(at[0] * LANES + rows.start),
                        a_step: LANES,
                        b: b.add(at[1] * LANES),
                        b_step: LANES,
                        b_next: distance(rooms[1].block()),
                        offsets: std::ptr::null(),
                        c: c.add(row * LANES),
                        c_step: LANES,
                        c_next: distance(sums_room.block()),
                        add,
                        bias: std::ptr::null(),
                    });
                }
            }
        }
    };
    // The tiles in spans, of which as many as stay in the cache are multiplied before the next.
    let spans = |Part { region, first }: &Part| {
        let (tiles, each, first) = (region.tiles(), region.tiles_each(), *first);
        let span = move |start| (first.map(|first| first + start), TERMS.min(tiles - start), each);
        (0..tiles).step_by(TERMS).map(span)
    };
    let spans: Vec<_> = round.iter().flat_map(spans).collect();
    let Some((Part { region, .. }, (_, longest, _))) = round.first().zip(spans.first()) else {
        return;
    };
    let cached: Vec<_> = spans.chunks((TERMS / longest).max(1)).collect();
    // Where points are few, blocks of input channels are split as well.
    let parts = (POINTS / rooms[0].points).min(rooms[0].blocks);
    let each = rooms[0].blocks.div_ceil(parts);
    parallel_for(rooms[0].points * parts, 1, |tasks| {
        for task in tasks {
            let (p, first) = (task / parts, task % parts * each);
            for (i, spans) in cached.iter().enumerate() {
                for tap in 0..region.taps {
                    for inner in first..(first + each).min(rooms[0].blocks) {
                        let mut add = add || i > 0;
                        for &([left, right], k, each) in *spans {
                            product(p, (tap, inner), [left + tap * each, right], k, add);
                            add = true;
                        }
                    }
                }
            }
        }
    });
}

/// Writes a block of filters from their sums.
///
/// # Safety
/// The sums have this many elements; `dw` is as in [`backward_weight`].
unsafe fn write_filters<T: Real>(
    geometry: &Geometry,
    (sums, room): (*const T, FilterRoom),
    block: usize,
    dw: *mut T,
) {
    let (inputs, first) = (geometry.in_c, block * LANES);
    let lanes = LANES.min(geometry.out_c - first);
    let count = geometry.taps();
    let steps = [geometry.reach()[1] * room.point(), room.point(), LANES];
    with_scratch(inputs * count * LANES, |taps: &mut [T]| {
        // SAFETY: promised by the caller.
        unsafe {
            for tap in 0..geometry.depth.kernel {
                (geometry.transforms::<T>().filter_gradient)(&Squares {
                    count: inputs,
                    from: sums.add(block * room.block() + tap * room.tap()),
                    to: taps.as_mut_ptr().add(tap * geometry.square() * LANES),
                    from_steps: steps.map(|s| s as isize),
                    to_steps: [geometry.kernel[1] * LANES, LANES, count * LANES],
                });
            }
            let from = Mat { ptr: taps.as_mut_ptr(), row: 1, col: LANES as isize };
            let depth = inputs * count;
            copy_matrix((lanes, depth), from, Mat::rows(dw.add(first * depth), depth));
        }
    });
}
