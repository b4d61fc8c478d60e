//! Outputs from images and filters, and gradients of images from those of outputs.

use super::regions::{Region, Regions};
use super::tiles::Room;
use super::transforms::Squares;
use super::{Geometry, LANES, POINTS, padded};
use crate::kernels::conv::report;
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::micro::{Access, BLOCK, Kernels, Tile, WIDE};
use crate::kernels::gemm::pack::RowPanels;
use crate::kernels::kept::{Keeper, with_made};
use crate::kernels::layout::copy_matrix;
use crate::kernels::parallel::{OnElements, Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Blocks of output channels whose sums are transformed back together: as wide as a tile of the
/// micro-kernel.
const GROUP: usize = 2;
/// With fewer tasks than this, output channels are split as well.
const TASKS: usize = 4;

/// Transformed filters: `[block of output channels][point][tap on the depth axis][input
/// channel][LANES]`, with an unused cache line between points.
#[derive(Clone, Copy)]
pub(super) struct FilterRoom {
    points: usize,
    /// Input channels, padded.
    pub inner: usize,
    /// Taps on the depth axis.
    taps: usize,
    pub blocks: usize,
}

impl FilterRoom {
    pub fn new(geometry: &Geometry) -> Self {
        let (inner, taps) = (padded(geometry.in_c), geometry.depth.kernel);
        let (points, blocks) = (geometry.points(), geometry.out_c.div_ceil(LANES));
        FilterRoom { points, inner, taps, blocks }
    }

    /// From one tap to the next.
    pub fn tap(self) -> usize {
        self.inner * LANES
    }

    /// From one point to the next.
    pub fn point(self) -> usize {
        self.taps * self.tap() + LANES
    }

    /// From one block to the next.
    pub fn block(self) -> usize {
        self.points * self.point()
    }

    /// Elements of the buffer.
    pub fn len(self) -> usize {
        self.blocks * self.block()
    }
}

/// `y = conv(x, w) + b`, of which `done` is called with what is finished; the extents are those of
/// [`super::super::forward`]. The transformed filters are left with `keeper`.
///
/// # Safety
/// As there.
pub unsafe fn forward<T: Real>(
    geometry: &Geometry,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    to: (*mut T, Option<OnElements<'_>>),
    keeper: Option<Keeper<'_>>,
) {
    let depth = geometry.in_c * geometry.taps();
    // SAFETY: promised by the caller.
    unsafe {
        apply(
            geometry,
            x,
            bias,
            to,
            |first, lanes, to| {
                let from =
                    Mat { ptr: w.cast_mut().add(first * depth), row: 1, col: depth as isize };
                copy_matrix((depth, lanes), from, Mat::rows(to, LANES));
            },
            (false, keeper),
        );
    }
}

/// `dx` from `dy` and the filters: a convolution with turned filters, inputs and outputs exchanged.
///
/// # Safety
/// As [`super::super::backward_data`].
pub unsafe fn backward_data<T: Real>(geometry: &Geometry, dy: *const T, w: *const T, dx: *mut T) {
    let (outputs, taps) = (geometry.out_c, geometry.taps());
    let depth = geometry.in_c * taps;
    // SAFETY: promised by the caller.
    unsafe {
        apply(
            &geometry.transposed(),
            dy,
            None,
            (dx, None),
            |first, lanes, to| {
                for o in 0..outputs {
                    let from = w.cast_mut().add(o * depth + first * taps);
                    let from = Mat { ptr: from, row: 1, col: taps as isize };
                    copy_matrix((taps, lanes), from, Mat::rows(to.add(o * taps * LANES), LANES));
                }
            },
            (true, None),
        );
    }
}

/// A convolution whose filters `gather` lays out: for output channels from the first on it writes
/// `[input channel][tap][LANES]`. `turned` reads the taps from the last to the first.
///
/// # Safety
/// As [`forward`].
unsafe fn apply<T: Real>(
    geometry: &Geometry,
    x: *const T,
    bias: Option<*const T>,
    (y, done): (*mut T, Option<OnElements<'_>>),
    gather: impl Fn(usize, usize, *mut T),
    (turned, keeper): (bool, Option<Keeper<'_>>),
) {
    let room = FilterRoom::new(geometry);
    let (x, y) = (Shared(x.cast_mut()), Shared(y));
    let bias = bias.map(|b| Shared(b.cast_mut()));
    let gather = AcrossThreads(gather);
    let transform = |filters: &mut [T]| {
        let filters = Shared(filters.as_mut_ptr());
        parallel_for(room.blocks, 1, |blocks| {
            for block in blocks {
                // SAFETY: promised by the caller; blocks are apart.
                unsafe {
                    let to = filters.at(block * room.block());
                    transform_filters(geometry, room, block, (&gather, turned), to);
                }
            }
        });
    };
    with_made(keeper, room.len(), transform, |filters| {
        let filters = Shared(filters.as_ptr().cast_mut());
        let regions = Regions::new(geometry, task_tiles(geometry));
        let (down, groups) = (regions.count(), room.blocks.div_ceil(GROUP));
        let parts = if down < TASKS { TASKS.div_ceil(down).min(groups) } else { 1 };
        let each = groups.div_ceil(parts);
        parallel_for(down * parts, 1, |tasks| {
            for task in tasks {
                let region = regions.at(task / parts);
                let groups = task % parts * each..((task % parts + 1) * each).min(groups);
                let bias = bias.map(|b| b.ptr().cast_const());
                // SAFETY: promised by the caller; tasks write apart.
                unsafe {
                    let right = (filters.ptr().cast_const(), room);
                    run_task(geometry, (&region, groups), x.ptr(), right, bias, (y.ptr(), done));
                }
            }
        });
    });
}

/// A function that only reads through the pointers it holds.
struct AcrossThreads<F>(F);

// SAFETY: what it reads is not written while it is used; see `apply`.
unsafe impl<F> Sync for AcrossThreads<F> {}

/// Tiles that a task reads: about as many as leave its block of the input in the second-level
/// cache, and enough that the cost of reading the filters is negligible.
fn task_tiles(geometry: &Geometry) -> usize {
    let tiles = (2048 / padded(geometry.in_c)).clamp(32, 96) * (POINTS / geometry.points());
    if geometry.depth.kernel == 1 { tiles } else { 3 * tiles }
}

/// Transforms a block of filters.
///
/// # Safety
/// `to` has the room of a block.
unsafe fn transform_filters<T: Real, F: Fn(usize, usize, *mut T)>(
    geometry: &Geometry,
    room: FilterRoom,
    block: usize,
    (gather, turned): (&AcrossThreads<F>, bool),
    to: *mut T,
) {
    let (first, inputs) = (block * LANES, geometry.in_c);
    let lanes = LANES.min(geometry.out_c - first);
    let (count, square) = (geometry.taps(), geometry.square());
    with_scratch(inputs * count * LANES, |taps: &mut [T]| {
        if lanes < LANES {
            taps.fill(T::zero());
        }
        let taps = taps.as_mut_ptr();
        (gather.0)(first, lanes, taps);
        let (line, point) = ((geometry.kernel[1] * LANES) as isize, LANES as isize);
        for tap in 0..geometry.depth.kernel {
            let (first, steps) = match turned {
                true => (count - 1 - tap * square, [-line, -point]),
                false => (tap * square, [line, point]),
            };
            // SAFETY: promised by the caller.
            unsafe {
                (geometry.transforms::<T>().filter)(&Squares {
                    count: inputs,
                    from: taps.add(first * LANES),
                    to: to.add(tap * room.tap()),
                    from_steps: [steps[0], steps[1], (count * LANES) as isize],
                    to_steps: [geometry.reach()[1] * room.point(), room.point(), LANES],
                });
            }
        }
    });
}

/// The outputs of a region and some groups of output channels.
///
/// # Safety
/// As [`forward`]; the filters are transformed.
unsafe fn run_task<T: Real>(
    geometry: &Geometry,
    (region, groups): (&Region, Range<usize>),
    x: *const T,
    (filters, filter_room): (*const T, FilterRoom),
    bias: Option<*const T>,
    (y, done): (*mut T, Option<OnElements<'_>>),
) {
    let points = geometry.points();
    let room = Room { points, blocks: filter_room.inner / LANES, tiles: region.tiles_read() };
    let sum_room = Room { points, blocks: GROUP, tiles: region.tiles() };
    let (each, [_, out_size]) = (region.tiles_each(), geometry.sizes());
    let (input, output) = geometry.cuts();
    let transforms = geometry.transforms::<T>();
    with_scratch(room.len() + sum_room.len(), |scratch: &mut [T]| {
        let (points, sums) = scratch.split_at_mut(room.len());
        let (points, sums) = (points.as_mut_ptr(), sums.as_mut_ptr());
        for block in 0..room.blocks {
            let channels = LANES.min(geometry.in_c - block * LANES);
            for i in 0..region.inputs() {
                // SAFETY: promised by the caller.
                unsafe {
                    let to = (points.add(block * room.block() + i * each * LANES), room.point());
                    match region.read_at(geometry, i, block * LANES) {
                        Some(at) => {
                            let planes = (x.add(at), channels);
                            input.transform(planes, region.area(), transforms.input, to);
                        }
                        None => clear(to, room.points, each),
                    }
                }
            }
        }
        for group in groups.clone() {
            let blocks = group * GROUP..((group + 1) * GROUP).min(filter_room.blocks);
            // SAFETY: promised by the caller.
            unsafe {
                let filters = filters.add(blocks.start * filter_room.block());
                let (left, to) = ((points.cast_const(), room), (sums, sum_room));
                let terms = (geometry.in_c, region.taps, each);
                multiply(terms, left, (filters, filter_room), blocks.len(), to);
                for (i, block) in blocks.enumerate() {
                    let first = block * LANES;
                    let channels = LANES.min(geometry.out_c - first);
                    let sums = sums.add(i * sum_room.block());
                    if let Some(bias) = bias {
                        let at = geometry.ones() * sum_room.point();
                        add_bias((bias.add(first), channels), sums.add(at), sum_room.tiles);
                    }
                    for i in 0..region.slices.len() {
                        let at = region.written_at(geometry, i, first);
                        let to = (y.add(at), channels);
                        let from = (sums.add(i * each * LANES).cast_const(), sum_room.point());
                        output.restore(from, region.area(), transforms.output, to);
                        let (row, before) = (at / output.apart, at % output.apart);
                        debug_assert_eq!(before % out_size, 0, "slices are whole");
                        for written in output.written(region.area()) {
                            let columns = before + written.start..before + written.end;
                            report(done, row..row + channels, output.apart, columns);
                        }
                    }
                }
            }
        }
    });
}

/// Sets the points of `tiles` tiles of a block of channels to zero, as those of padding.
///
/// # Safety
/// `to` has room for the tiles, `point` apart.
pub(super) unsafe fn clear<T>((to, point): (*mut T, usize), points: usize, tiles: usize) {
    for p in 0..points {
        // SAFETY: promised by the caller; zero bytes are the number zero.
        unsafe { to.add(p * point).write_bytes(0, tiles * LANES) };
    }
}

/// The products of `terms` channels at all points for `blocks` blocks of output channels, summed
/// over the taps on the depth axis, whose tiles are `each` apart.
///
/// # Safety
/// The buffers have the sizes of their extents.
unsafe fn multiply<T: Real>(
    (terms, taps, each): (usize, usize, usize),
    (points, room): (*const T, Room),
    (filters, filter_room): (*const T, FilterRoom),
    blocks: usize,
    (sums, sum_room): (*mut T, Room),
) {
    let kernels: &Kernels<T> = T::kernels();
    let panels = RowPanels::new(sum_room.tiles, kernels);
    // Where a register of output channels is: its block, and the offset in it.
    let at = |register: usize| (register * kernels.lanes / LANES, register * kernels.lanes % LANES);
    let registers = blocks * LANES / kernels.lanes;
    for p in 0..room.points {
        for rows in (0..panels.count()).map(|i| panels.at(i)) {
            for register in (0..registers).step_by(WIDE) {
                let wide = WIDE.min(registers - register);
                let [(block, lane), (next, next_lane)] = [at(register), at(register + wide - 1)];
                let distance = |step: usize| (next - block) * step + next_lane - lane;
                let run = kernels.get(rows.len(), wide, Access::Blocks);
                for tap in 0..taps {
                    let tile = tap * each + rows.start;
                    let filter = tap * filter_room.tap() + lane;
                    // SAFETY: promised by the caller.
                    unsafe {
                        run(&Tile {
                            k: terms,
                            a: points.add(p * room.point() + tile * LANES),
                            a_step: room.block(),
                            b: filters
                                .add(block * filter_room.block() + p * filter_room.point())
                                .add(filter),
                            b_step: LANES,
                            b_next: distance(filter_room.block()),
                            offsets: std::ptr::null(),
                            c: sums
                                .add(p * sum_room.point() + block * sum_room.block() + lane)
                                .add(rows.start * LANES),
                            c_step: LANES,
                            c_next: distance(sum_room.block()),
                            add: tap > 0,
                            bias: std::ptr::null(),
                        });
                    }
                }
            }
        }
    }
}

const _: () = assert!(BLOCK == LANES, "blocks of channels are the micro-kernel's blocks of terms");

/// Adds the bias of a block of channels to its sums at the point that goes into every output of a
/// tile with factor 1.
///
/// # Safety
/// There are sums of this many tiles.
unsafe fn add_bias<T: Real>((bias, channels): (*const T, usize), sums: *mut T, tiles: usize) {
    let mut lanes = [T::zero(); LANES];
    for (lane, to) in lanes.iter_mut().enumerate().take(channels) {
        // SAFETY: promised by the caller.
        *to = unsafe { *bias.add(lane) };
    }
    for tile in 0..tiles {
        for lane in 0..LANES {
            // SAFETY: promised by the caller.
            unsafe { *sums.add(tile * LANES + lane) += lanes[lane] };
        }
    }
}
