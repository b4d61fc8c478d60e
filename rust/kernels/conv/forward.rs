//! `y = conv(x, w) + b`.

use super::direct::Direct;
use super::pack::pack;
use super::winograd::{self, Geometry};
use super::{Conv, Grid, depthwise, report};
use crate::kernels::gemm::blocked::{self, Left};
use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::kept::{Keeper, with_made};
use crate::kernels::parallel::{OnElements, Shared, in_pool, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;

/// Filters per task, where little else can be split.
const FILTERS: usize = 64;

/// Elements of the output that are reported at once, where they are not those of a task.
const REPORTED: usize = 1 << 14;

/// Applies the filters to every image. Calls `done` with each element of `y` once, when it is
/// finished and still in the cache. What the algorithm makes of the filters is left with `keeper`.
///
/// # Safety
/// `x` is (batch, groups * in_c, input), `w` (groups * out_c, in_c, kernel), `y` (batch, groups *
/// out_c, output), all row-major; `bias` has groups * out_c elements. `y` overlaps none of the
/// others.
pub unsafe fn forward<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    y: *mut T,
    done: Option<OnElements<'_>>,
    keeper: Option<Keeper<'_>>,
) {
    // SAFETY: promised by the caller.
    unsafe {
        if let Some(geometry) = Geometry::chosen::<T>(conv) {
            winograd::forward(&geometry, x, w, bias, (y, done), keeper);
        } else if conv.is_depthwise() {
            depthwise::forward(conv, x, w, bias, y, done);
        } else if conv.has_single_taps() {
            if suits_packing(conv) {
                return pointwise_packed(conv, x, w, bias, (y, done), keeper);
            }
            pointwise(conv, x, w, bias, y, done);
        } else if let Some(direct) = Direct::chosen(conv) {
            direct.forward(x, w, bias, (y, done), keeper);
        } else {
            general(conv, x, w, bias, y, done);
        }
    }
}

/// Fills rows of an output block with their bias, to which products are then added. Returns `false`
/// if there is none.
///
/// # Safety
/// `y` has a row of `columns` elements for each filter, `row` apart, and `bias` an element for
/// each.
unsafe fn start<T: Real>(
    bias: Option<Shared<T>>,
    filters: std::ops::Range<usize>,
    y: *mut T,
    (row, columns): (usize, usize),
) -> bool {
    let Some(bias) = bias else { return false };
    for (i, f) in filters.enumerate() {
        // SAFETY: the caller's block has these rows.
        unsafe { std::slice::from_raw_parts_mut(y.add(i * row), columns).fill(*bias.at(f)) };
    }
    true
}

/// Filters of one element: images are matrices already, or what strides leave of them.
///
/// # Safety
/// As [`forward`].
unsafe fn pointwise<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    y: *mut T,
    done: Option<OnElements<'_>>,
) {
    let (k, m, n) = (conv.in_c, conv.out_c, conv.out_size());
    let (x, w, y) = (Shared(x.cast_mut()), Shared(w.cast_mut()), Shared(y));
    let bias = bias.map(|b| Shared(b.cast_mut()));
    let one = move |i: usize, threads: Threads| {
        let g = i % conv.groups;
        // SAFETY: image and group `i` has its own part of `x` and `y`.
        unsafe {
            let to = y.at(i * m * n);
            let add = start(bias, g * m..(g + 1) * m, to, (n, n));
            let a = Mat::rows(w.at(g * m * k), k);
            with_columns(conv, x.at(i * k * conv.in_size()), threads, |b| {
                gemm((m, n, k), a, Mat::rows(b.cast_mut(), n), Mat::rows(to, n), add, threads);
            });
        }
    };
    let images = conv.batch * conv.groups;
    if images < 4 && in_pool(usize::MAX) {
        (0..images).for_each(|i| one(i, Threads::Pool));
        if let Some(done) = done {
            parallel_for(images * m * n, REPORTED, done);
        }
        return;
    }
    parallel_for(images, 1, |range| {
        for i in range {
            one(i, Threads::One);
            report(done, i * m..(i + 1) * m, n, 0..n);
        }
    });
}

/// Positions of a plane from which on packed filters of one element are the faster ones.
const PLANE: usize = 128;

/// Whether filters of one element are packed, which few images read: once for as long as they stay
/// as they are.
fn suits_packing(conv: &Conv) -> bool {
    conv.batch * conv.groups < 4
        && conv.out_size() >= PLANE
        && conv.in_c > 1
        && (8..=blocked::BAND).contains(&conv.out_c)
}

/// As [`pointwise`], by the micro-kernel and with packed filters.
///
/// # Safety
/// As [`forward`].
unsafe fn pointwise_packed<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    (y, done): (*mut T, Option<OnElements<'_>>),
    keeper: Option<Keeper<'_>>,
) {
    let (k, m, n) = (conv.in_c, conv.out_c, conv.out_size());
    let images = conv.batch * conv.groups;
    let bias = bias.map(|b| Shared(b.cast_mut()));
    let pack = |room: &mut [T]| {
        for (g, to) in room.chunks_exact_mut(m * k).enumerate() {
            // SAFETY: promised by the caller; the room is that of a group's filters.
            unsafe {
                let from = Mat::rows(w.add(g * m * k).cast_mut(), k);
                blocked::pack_left((m, k), from, to.as_mut_ptr(), Threads::Pool);
            }
        }
    };
    with_made(keeper, conv.groups * m * k, pack, |packed| {
        for i in 0..images {
            let g = i % conv.groups;
            // SAFETY: promised by the caller; every image and group has its own part of `y`.
            unsafe {
                let to = y.add(i * m * n);
                let add = start(bias, g * m..(g + 1) * m, to, (n, n));
                let left = Shared(packed.as_ptr().add(g * m * k).cast_mut());
                with_columns(conv, x.add(i * k * conv.in_size()), Threads::Pool, |b| {
                    let (a, b) = (Left::Packed(left), Mat::rows(b.cast_mut(), n));
                    let c = Mat::rows(to, n);
                    blocked::multiply_left((m, n, k), a, b, c, add, Threads::Pool);
                });
            }
        }
    });
    if let Some(done) = done {
        parallel_for(images * m * n, REPORTED, done);
    }
}

/// Calls `f` with the elements that filters of one element read of an image and group.
///
/// # Safety
/// The planes from `x` on are those of the image and group.
unsafe fn with_columns<T: Real>(
    conv: &Conv,
    x: *const T,
    threads: Threads,
    f: impl FnOnce(*const T),
) {
    if conv.is_pointwise() {
        return f(x);
    }
    let (grid, n) = (Grid::new(conv), conv.out_size());
    with_scratch(conv.in_c * n, |columns: &mut [T]| {
        let (x, to) = (Shared(x.cast_mut()), Shared(columns.as_mut_ptr()));
        threads.split(conv.in_c, (1usize << 14).div_ceil(n.max(1)), |channels| {
            for c in channels {
                // SAFETY: promised by the caller; channels are apart.
                unsafe {
                    let to = std::slice::from_raw_parts_mut(to.at(c * n), n);
                    grid.spread(conv, x.at(c * conv.in_size()), to);
                }
            }
        });
        f(columns.as_ptr());
    });
}

/// The implicit matrix product.
///
/// # Safety
/// As [`forward`].
unsafe fn general<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    y: *mut T,
    done: Option<OnElements<'_>>,
) {
    let (depth, m, n) = (conv.depth(), conv.out_c, conv.out_size());
    let block = conv.block_columns(depth, size_of::<T>());
    let blocks = n.div_ceil(block.max(1));
    let images = conv.batch * conv.groups;
    // Few blocks: split the filters too, although each part then packs the columns again.
    let parts = if images * blocks < 4 { m.div_ceil(FILTERS).max(1) } else { 1 };
    let part = m.div_ceil(parts);
    let (x, w, y) = (Shared(x.cast_mut()), Shared(w.cast_mut()), Shared(y));
    let bias = bias.map(|b| Shared(b.cast_mut()));
    parallel_for(images * blocks * parts, 1, |range| {
        for task in range {
            let (image, rest) = (task / (blocks * parts), task % (blocks * parts));
            let (from, filters) = (rest / parts * block, rest % parts * part);
            let columns = from..(from + block).min(n);
            let rows = part.min(m.saturating_sub(filters));
            let g = image % conv.groups;
            with_scratch(depth * columns.len(), |packed: &mut [T]| {
                let packed = packed.as_mut_ptr();
                let width = columns.len();
                // SAFETY: the block of `y` belongs to this task; extents are the caller's promise.
                unsafe {
                    let source = x.at(image * conv.in_c * conv.in_size());
                    pack(conv, source, 0..conv.in_c, columns.clone(), packed);
                    let to = y.at((image * m + filters) * n + columns.start);
                    let first = g * m + filters;
                    let add = start(bias, first..first + rows, to, (n, width));
                    let a = Mat::rows(w.at(first * depth), depth);
                    let b = Mat::rows(packed, width);
                    gemm((rows, width, depth), a, b, Mat::rows(to, n), add, Threads::One);
                }
                let first = image * m + filters;
                report(done, first..first + rows, n, columns);
            });
        }
    });
}
