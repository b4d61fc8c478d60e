//! Gradients of filters, summed over the images.
//!
//! In three steps, each split on its own: tiles of images and of gradients are transformed, at each
//! point the two are multiplied, and the sums are transformed to filters. Many tiles are processed
//! in rounds, which bounds the buffers in between.

use super::forward::FilterRoom;
use super::tiles::Room;
use super::transforms::Squares;
use super::{Geometry, LANES, POINTS, REACH};
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::micro::{Access, Tile, WIDE};
use crate::kernels::gemm::pack::RowPanels;
use crate::kernels::layout::copy_matrix;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Bytes of the transformed tiles of a round.
const ROUND_BYTES: usize = 12 << 20;
/// Tiles that are multiplied at once.
const TERMS: usize = 256;

/// `dw` from the images and `dy`; the extents are those of [`super::super::backward_weight`].
///
/// # Safety
/// As there.
pub unsafe fn backward_weight<T: Real>(geometry: &Geometry, x: *const T, dy: *const T, dw: *mut T) {
    let sums_room = FilterRoom::new(geometry);
    let blocks = [sums_room.inner / LANES, sums_room.blocks];
    let row = geometry.tile_columns() * (blocks[0] + blocks[1]) * LANES * POINTS * size_of::<T>();
    let rounds = (geometry.all_rows() * row).div_ceil(ROUND_BYTES);
    let rows = geometry.all_rows().div_ceil(rounds);
    let (x, dy, dw) = (Shared(x.cast_mut()), Shared(dy.cast_mut()), Shared(dw));
    let tiles = rows * geometry.tile_columns();
    let rooms = blocks.map(|blocks| Room { blocks, tiles });
    with_scratch(sums_room.len() + rooms[0].len() + rooms[1].len(), |scratch: &mut [T]| {
        let (sums, rest) = scratch.split_at_mut(sums_room.len());
        let (left, right) = rest.split_at_mut(rooms[0].len());
        let sums = Shared(sums.as_mut_ptr());
        let points = [Shared(left.as_mut_ptr()), Shared(right.as_mut_ptr())];
        for first in (0..geometry.all_rows()).step_by(rows) {
            let rows = first..(first + rows).min(geometry.all_rows());
            let tiles = rows.len() * geometry.tile_columns();
            // SAFETY: promised by the caller.
            unsafe {
                transform_tiles(geometry, rows, [x, dy], points, rooms);
                multiply((points, rooms), tiles, (sums, sums_room), first > 0);
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

/// Transforms the tiles of `rows`: of the images to the first buffer, of the gradients to the
/// second.
///
/// # Safety
/// As [`backward_weight`]; the buffers have their rooms.
unsafe fn transform_tiles<T: Real>(
    geometry: &Geometry,
    rows: Range<usize>,
    planes: [Shared<T>; 2],
    points: [Shared<T>; 2],
    rooms: [Room; 2],
) {
    let across = geometry.tile_columns();
    let (input, output) = geometry.cuts();
    let all = geometry.transforms::<T>();
    let sides = [(input, geometry.in_c, all.input), (output, geometry.out_c, all.output_gradient)];
    let blocks = rooms[0].blocks + rooms[1].blocks;
    // A task transforms one block of channels of some rows.
    let each = 64usize.div_ceil(across);
    let down = rows.len().div_ceil(each);
    parallel_for(blocks * down, 1, |tasks| {
        for task in tasks {
            let (block, part) = (task / down, task % down);
            let side = usize::from(block >= rooms[0].blocks);
            let block = if side == 0 { block } else { block - rooms[0].blocks };
            let (cut, all_channels, run) = sides[side];
            let channels = LANES.min(all_channels - block * LANES);
            let start = rows.start + part * each;
            let part_rows = start..(start + each).min(rows.end);
            let before = part * each * across;
            for (image, band, tile) in geometry.bands(part_rows) {
                // SAFETY: promised by the caller; tasks write apart.
                unsafe {
                    let size = cut.planes[0] * cut.planes[1];
                    let from = planes[side].at((image * all_channels + block * LANES) * size);
                    let at = block * rooms[side].block() + (before + tile) * LANES;
                    let to = (points[side].at(at), rooms[side].point());
                    cut.transform((from.cast_const(), channels), band, run, to);
                }
            }
        }
    });
}

/// Multiplies the first `tiles` tiles of both buffers at every point, and adds to the sums if
/// `add`.
///
/// # Safety
/// The buffers have the sizes of their extents.
unsafe fn multiply<T: Real>(
    (points, rooms): ([Shared<T>; 2], [Room; 2]),
    tiles: usize,
    (sums, sums_room): (Shared<T>, FilterRoom),
    add: bool,
) {
    let kernels = T::kernels();
    let panels = RowPanels::new(LANES, kernels);
    let registers = rooms[1].blocks * LANES / kernels.lanes;
    let at = |register: usize| (register * kernels.lanes / LANES, register * kernels.lanes % LANES);
    // The parts of a product of one point and block of input channels.
    let product = |p: usize, inner: usize, terms: Range<usize>| {
        for register in (0..registers).step_by(WIDE) {
            let wide = WIDE.min(registers - register);
            let [(block, lane), (next, next_lane)] = [at(register), at(register + wide - 1)];
            let distance = |step: usize| (next - block) * step + next_lane - lane;
            for rows in (0..panels.count()).map(|i| panels.at(i)) {
                // SAFETY: promised by the caller; points and input channels are apart.
                unsafe {
                    let a = points[0].at(p * rooms[0].point() + inner * rooms[0].block());
                    let b = points[1].at(p * rooms[1].point() + block * rooms[1].block() + lane);
                    let row = inner * LANES + rows.start;
                    let c = sums.at(block * sums_room.block() + p * sums_room.point() + lane);
                    kernels.get(rows.len(), wide, Access::Panels)(&Tile {
                        k: terms.len(),
                        a: a.add(terms.start * LANES + rows.start),
                        a_step: LANES,
                        b: b.add(terms.start * LANES),
                        b_step: LANES,
                        b_next: distance(rooms[1].block()),
                        offsets: std::ptr::null(),
                        c: c.add(row * LANES),
                        c_step: LANES,
                        c_next: distance(sums_room.block()),
                        add: add || terms.start > 0,
                        bias: std::ptr::null(),
                    });
                }
            }
        }
    };
    parallel_for(POINTS, 1, |all| {
        for p in all {
            for from in (0..tiles).step_by(TERMS) {
                for inner in 0..rooms[0].blocks {
                    product(p, inner, from..tiles.min(from + TERMS));
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
    let (side, count) = (geometry.kernel, geometry.taps());
    with_scratch(inputs * count * LANES, |taps: &mut [T]| {
        // SAFETY: promised by the caller.
        unsafe {
            (geometry.transforms::<T>().filter_gradient)(&Squares {
                count: inputs,
                from: sums.add(block * room.block()),
                to: taps.as_mut_ptr(),
                from_steps: [REACH * room.point(), room.point(), LANES].map(|s| s as isize),
                to_steps: [side * LANES, LANES, count * LANES],
            });
            let from = Mat { ptr: taps.as_mut_ptr(), row: 1, col: LANES as isize };
            let depth = inputs * count;
            copy_matrix((lanes, depth), from, Mat::rows(dw.add(first * depth), depth));
        }
    });
}
