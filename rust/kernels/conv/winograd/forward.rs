//! Outputs from images and filters, and gradients of images from those of outputs.

use super::regions::{Region, Regions};
use super::tiles::{Registers, Room};
use super::transforms::Squares;
use super::{Geometry, LANES, POINTS, padded};
use crate::kernels::arch::{Cache, prefetch_all};
use crate::kernels::conv::report;
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::micro::{Access, BLOCK, Kernels, Tile};
use crate::kernels::gemm::pack::RowPanels;
use crate::kernels::kept::{Keeper, with_made};
use crate::kernels::layout::{copy_matrix, copy_row};
use crate::kernels::parallel::{OnElements, Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Blocks of output channels whose sums are transformed back together: as wide as a tile of the
/// micro-kernel.
pub(super) const GROUP: usize = 2;
/// Input channels whose filters a task transforms at once: those of a group stay in the
/// second-level cache. A multiple of [`LANES`].
pub(super) const RUN: usize = 64;
/// Transformed filters of this size are read faster than they are made once more.
const CACHE_BYTES: usize = 1 << 20;
/// Inputs whose filters are read ahead.
const FETCH_AHEAD: usize = 4;
/// With fewer regions than this, output channels are split as well.
const TASKS: usize = 4;
/// Tiles of a block of channels that are worth a task.
const TASK_TILES: usize = 64;
const _: () = assert!(RUN.is_multiple_of(LANES));

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

    /// The room of as many blocks of output channels and of some input channels.
    pub fn part(self, blocks: usize, inner: usize) -> Self {
        FilterRoom { inner: padded(inner), blocks, ..self }
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
    let taps = geometry.taps();
    let depth = geometry.in_c * taps;
    let gather = |(first, lanes): (usize, usize), inputs: Range<usize>, to: *mut T| {
        // SAFETY: promised by the caller.
        unsafe {
            let from = w.cast_mut().add(first * depth + inputs.start * taps);
            let from = Mat { ptr: from, row: 1, col: depth as isize };
            copy_matrix((inputs.len() * taps, lanes), from, Mat::rows(to, LANES));
        }
    };
    // SAFETY: promised by the caller.
    unsafe { apply(geometry, x, bias, to, (&AcrossThreads(gather), false), keeper) }
}

/// `dx` from `dy` and the filters: a convolution with turned filters, inputs and outputs exchanged.
///
/// # Safety
/// As [`super::super::backward_data`].
pub unsafe fn backward_data<T: Real>(geometry: &Geometry, dy: *const T, w: *const T, dx: *mut T) {
    let taps = geometry.taps();
    let depth = geometry.in_c * taps;
    let gather = |(first, lanes): (usize, usize), outputs: Range<usize>, to: *mut T| {
        for (i, o) in outputs.enumerate() {
            // SAFETY: promised by the caller.
            unsafe {
                let from = w.cast_mut().add(o * depth + first * taps);
                // Filters of one input are far apart, and the processor does not foresee the next.
                prefetch_all(from.wrapping_add(FETCH_AHEAD * depth), lanes * taps, Cache::First);
                let from = Mat { ptr: from, row: 1, col: taps as isize };
                copy_matrix((taps, lanes), from, Mat::rows(to.add(i * taps * LANES), LANES));
            }
        }
    };
    let transposed = geometry.transposed();
    // SAFETY: promised by the caller.
    unsafe { apply(&transposed, dy, None, (dx, None), (&AcrossThreads(gather), true), None) }
}

/// Where a task finds transformed filters.
enum Filters<'a, T, F> {
    /// All of them, transformed before.
    Made(*const T),
    /// They are transformed by the task that uses them, each once.
    Gathered(Source<'a, F>),
}

/// The filters of a convolution. For output channels from the first on and for some input channels
/// the function writes `[input channel][tap][LANES]`; `true` reads the taps from the last to the
/// first.
type Source<'a, F> = (&'a AcrossThreads<F>, bool);

/// `y = conv(x, w) + b` for filters from `source`.
///
/// # Safety
/// As [`forward`].
unsafe fn apply<T: Real, F: Fn((usize, usize), Range<usize>, *mut T)>(
    geometry: &Geometry,
    x: *const T,
    bias: Option<*const T>,
    (y, done): (*mut T, Option<OnElements<'_>>),
    source: Source<'_, F>,
    keeper: Option<Keeper<'_>>,
) {
    let room = FilterRoom::new(geometry);
    let regions = regions(geometry);
    let (down, groups) = (regions.count(), room.blocks.div_ceil(GROUP));
    // Filters that one region alone reads stay in the cache of the task that transforms them.
    let run = if down == 1 { RUN } else { geometry.in_c };
    let (x, y) = (Shared(x.cast_mut()), Shared(y));
    let bias = bias.map(|b| Shared(b.cast_mut()));
    let finish = |region: &Region, groups, points: *const T, filters: &Filters<'_, T, F>| {
        let bias = bias.map(|b| b.ptr().cast_const());
        // SAFETY: promised by the caller; the tiles are transformed.
        unsafe {
            multiply_groups(
                geometry,
                (region, groups),
                points,
                (filters, run),
                bias,
                (y.ptr(), done),
            )
        };
    };
    let run_all = |filters: AcrossThreads<Filters<'_, T, F>>| {
        if down == 1 {
            let region = regions.at(0);
            let tiles = tile_room(geometry, &region);
            return with_scratch(tiles.len(), |points: &mut [T]| {
                let points = Shared(points.as_mut_ptr());
                parallel_for(tiles.blocks, TASK_TILES.div_ceil(tiles.tiles), |blocks| {
                    // SAFETY: promised by the caller; blocks are apart.
                    unsafe { transform_tiles(geometry, &region, blocks, x.ptr(), points.ptr()) };
                });
                parallel_for(groups, 1, |groups| {
                    finish(&region, groups, points.ptr(), filters.get())
                });
            });
        }
        let parts = if down < TASKS { TASKS.div_ceil(down).min(groups) } else { 1 };
        let each = groups.div_ceil(parts);
        parallel_for(down * parts, 1, |tasks| {
            for task in tasks {
                let region = regions.at(task / parts);
                let groups = task % parts * each..((task % parts + 1) * each).min(groups);
                let tiles = tile_room(geometry, &region);
                with_scratch(tiles.len(), |points: &mut [T]| {
                    let points = points.as_mut_ptr();
                    // SAFETY: promised by the caller; tasks write apart.
                    unsafe { transform_tiles(geometry, &region, 0..tiles.blocks, x.ptr(), points) };
                    finish(&region, groups, points, filters.get());
                });
            }
        });
    };
    let keeper = keeper.filter(|_| down > 1 || room.len() * size_of::<T>() <= CACHE_BYTES);
    if down == 1 && keeper.is_none() {
        return run_all(AcrossThreads(Filters::Gathered(source)));
    }
    let transform = |filters: &mut [T]| {
        let filters = Shared(filters.as_mut_ptr());
        parallel_for(room.blocks, 1, |blocks| {
            for block in blocks {
                // SAFETY: promised by the caller; blocks are apart.
                unsafe {
                    let to = filters.at(block * room.block());
                    transform_filters(geometry, room, (block, 0..geometry.in_c), source, to);
                }
            }
        });
    };
    with_made(keeper, room.len(), transform, |filters| {
        run_all(AcrossThreads(Filters::Made(filters.as_ptr())));
    });
}

/// What only reads through the pointers it holds.
struct AcrossThreads<F>(F);

// SAFETY: what it reads is not written while it is used; see `apply`.
unsafe impl<F> Sync for AcrossThreads<F> {}

impl<F> AcrossThreads<F> {
    fn get(&self) -> &F {
        &self.0
    }
}

/// The tiles of the output in regions that read about as many tiles as leave a task's block of the
/// input in the second-level cache, and enough that the cost of reading the filters is negligible.
pub fn regions(geometry: &Geometry) -> Regions {
    Regions::new(geometry, region_tiles(geometry))
}

/// The tiles that a region should read.
fn region_tiles(geometry: &Geometry) -> usize {
    let tiles = (2048 / padded(geometry.in_c)).clamp(32, 96) * (POINTS / geometry.points());
    if geometry.depth.kernel == 1 { tiles } else { 3 * tiles }
}

/// Whether a region has room for the tiles that lie between one another.
pub fn holds_block(geometry: &Geometry) -> bool {
    geometry.dilate.iter().product::<usize>() <= region_tiles(geometry)
}

/// Transforms the filters of a block of output channels on some input channels.
///
/// # Safety
/// `to` has a block of `room`, which has as many input channels; `source` is that of [`forward`].
unsafe fn transform_filters<T: Real, F: Fn((usize, usize), Range<usize>, *mut T)>(
    geometry: &Geometry,
    room: FilterRoom,
    (block, inputs): (usize, Range<usize>),
    (gather, turned): Source<'_, F>,
    to: *mut T,
) {
    let (first, inner) = (block * LANES, inputs.len());
    let lanes = LANES.min(geometry.out_c - first);
    let (count, square) = (geometry.taps(), geometry.square());
    with_scratch(inner * count * LANES, |taps: &mut [T]| {
        if lanes < LANES {
            taps.fill(T::zero());
        }
        let taps = taps.as_mut_ptr();
        (gather.0)((first, lanes), inputs, taps);
        let (line, point) = ((geometry.kernel[1] * LANES) as isize, LANES as isize);
        for tap in 0..geometry.depth.kernel {
            let (first, steps) = match turned {
                true => (count - 1 - tap * square, [-line, -point]),
                false => (tap * square, [line, point]),
            };
            // SAFETY: promised by the caller.
            unsafe {
                (geometry.transforms::<T>().filter)(&Squares {
                    count: inner,
                    from: taps.add(first * LANES),
                    to: to.add(tap * room.tap()),
                    from_steps: [steps[0], steps[1], (count * LANES) as isize],
                    to_steps: [geometry.reach()[1] * room.point(), room.point(), LANES],
                    bias: None,
                });
            }
        }
    });
}

/// The transformed tiles that a region reads.
fn tile_room(geometry: &Geometry, region: &Region) -> Room {
    let (points, blocks) = (geometry.points(), geometry.in_c.div_ceil(LANES));
    Room { points, blocks, tiles: region.tiles_read() }
}

/// Transforms the tiles of a region for some blocks of input channels.
///
/// # Safety
/// As [`forward`]; `points` has the [room](tile_room) of the region.
unsafe fn transform_tiles<T: Real>(
    geometry: &Geometry,
    region: &Region,
    blocks: Range<usize>,
    x: *const T,
    points: *mut T,
) {
    let (room, each) = (tile_room(geometry, region), region.tiles_each());
    let ((cut, _), run) = (geometry.cuts(), geometry.transforms::<T>().input);
    for block in blocks {
        let channels = LANES.min(geometry.in_c - block * LANES);
        for i in 0..region.inputs() {
            // SAFETY: promised by the caller.
            unsafe {
                let to = (points.add(block * room.block() + i * each * LANES), room.point());
                match region.read_at(geometry, i, block * LANES) {
                    Some(at) => cut.transform((x.add(at), channels), region.area(), run, to),
                    None => clear(to, room.points, each),
                }
            }
        }
    }
}

/// The outputs of a region and some groups of output channels from the transformed tiles. The sums
/// are added up over runs of `run` input channels.
///
/// # Safety
/// As [`forward`]; `points` are those of [`transform_tiles`]; `run` is a multiple of [`LANES`] or
/// all input channels.
unsafe fn multiply_groups<T: Real, F: Fn((usize, usize), Range<usize>, *mut T)>(
    geometry: &Geometry,
    (region, groups): (&Region, Range<usize>),
    points: *const T,
    (filters, run): (&Filters<'_, T, F>, usize),
    bias: Option<*const T>,
    (y, done): (*mut T, Option<OnElements<'_>>),
) {
    let filter_room = FilterRoom::new(geometry);
    let run_room = filter_room.part(GROUP, run);
    let own = if matches!(filters, Filters::Gathered(_)) { run_room.len() } else { 0 };
    let room = tile_room(geometry, region);
    let sum_room = Room { points: room.points, blocks: GROUP, tiles: region.tiles() };
    let (each, [_, out_size]) = (region.tiles_each(), geometry.sizes());
    let ((_, output), transforms) = (geometry.cuts(), geometry.transforms::<T>());
    with_scratch(sum_room.len() + own, |scratch: &mut [T]| {
        let (sums, own) = scratch.split_at_mut(sum_room.len());
        let (sums, own) = (sums.as_mut_ptr(), own.as_mut_ptr());
        for group in groups {
            let blocks = group * GROUP..((group + 1) * GROUP).min(filter_room.blocks);
            // SAFETY: promised by the caller.
            unsafe {
                for first in (0..geometry.in_c).step_by(run) {
                    let inputs = first..(first + run).min(geometry.in_c);
                    let right = match *filters {
                        Filters::Made(all) => {
                            let first = blocks.start * filter_room.block() + first * LANES;
                            (all.add(first), filter_room)
                        }
                        Filters::Gathered(source) => {
                            for (i, block) in blocks.clone().enumerate() {
                                let (part, to) = ((block, inputs.clone()), i * run_room.block());
                                transform_filters(geometry, run_room, part, source, own.add(to));
                            }
                            (own.cast_const(), run_room)
                        }
                    };
                    let left = points.add(first / LANES * room.block());
                    let terms = (inputs, region.taps, each);
                    multiply(terms, (left, room), right, blocks.len(), (sums, sum_room));
                }
                for (i, block) in blocks.enumerate() {
                    let first = block * LANES;
                    let channels = LANES.min(geometry.out_c - first);
                    let sums = sums.add(i * sum_room.block());
                    let bias = bias.map(|bias| lanes(bias.add(first), channels));
                    for i in 0..region.slices.len() {
                        let at = region.written_at(geometry, i, first);
                        let to = (y.add(at), channels);
                        let from = (sums.add(i * each * LANES).cast_const(), sum_room.point());
                        output.restore(from, region.area(), (transforms.output, bias), to);
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

/// The products of some input channels, the first of which both operands begin with, at all points
/// for `blocks` blocks of output channels, summed over the taps on the depth axis, whose tiles are
/// `each` apart; added to the sums of the input channels before.
///
/// # Safety
/// The buffers have the sizes of their extents; `inputs` starts with a block of channels.
unsafe fn multiply<T: Real>(
    (inputs, taps, each): (Range<usize>, usize, usize),
    (points, room): (*const T, Room),
    (filters, filter_room): (*const T, FilterRoom),
    blocks: usize,
    (sums, sum_room): (*mut T, Room),
) {
    let kernels: &Kernels<T> = T::kernels();
    let panels = RowPanels::new(sum_room.tiles, kernels);
    for p in 0..room.points {
        for rows in (0..panels.count()).map(|i| panels.at(i)) {
            for registers in Registers::of_blocks(blocks, kernels.lanes) {
                let Registers { wide, block, lane, .. } = registers;
                let run = kernels.get(rows.len(), wide, Access::Blocks);
                for tap in 0..taps {
                    let tile = tap * each + rows.start;
                    let filter = tap * filter_room.tap() + lane;
                    // SAFETY: promised by the caller.
                    unsafe {
                        run(&Tile {
                            k: inputs.len(),
                            a: points.add(p * room.point() + tile * LANES),
                            a_step: room.block(),
                            b: filters
                                .add(block * filter_room.block() + p * filter_room.point())
                                .add(filter),
                            b_step: LANES,
                            b_next: registers.distance(filter_room.block()),
                            offsets: std::ptr::null(),
                            c: sums
                                .add(p * sum_room.point() + block * sum_room.block() + lane)
                                .add(rows.start * LANES),
                            c_step: LANES,
                            c_next: registers.distance(sum_room.block()),
                            add: inputs.start + tap > 0,
                            bias: std::ptr::null(),
                        });
                    }
                }
            }
        }
    }
}

const _: () = assert!(BLOCK == LANES, "blocks of channels are the micro-kernel's blocks of terms");

/// The bias of a block of channels.
///
/// # Safety
/// There are so many channels.
unsafe fn lanes<T: Real>(bias: *const T, channels: usize) -> [T; LANES] {
    let mut lanes = [T::zero(); LANES];
    // SAFETY: promised by the caller.
    unsafe { copy_row(bias, lanes.as_mut_ptr(), channels) };
    lanes
}
