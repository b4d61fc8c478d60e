//! Filters of one element: images are matrices already, or what strides leave of them.

mod together;
mod weight;

use super::{Conv, Grid, fill_bias, report};
use crate::kernels::gemm::blocked::{self, Left};
use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::kept::{Keeper, with_made};
use crate::kernels::parallel::{OnElements, Shared, in_pool, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;

pub use weight::{backward_weight, suits_weight};

/// Fewer images and groups than this are calculated one after the other.
const FEW: usize = 4;
/// Elements of the output that are reported at once, where they are not those of a task.
const REPORTED: usize = 1 << 14;

/// `y = conv(x, w) + b`, of which `done` is called with what is finished.
///
/// # Safety
/// As [`super::forward`].
pub unsafe fn forward<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    (y, done): (*mut T, Option<OnElements<'_>>),
    keeper: Option<Keeper<'_>>,
) {
    // SAFETY: promised by the caller.
    unsafe {
        if together::suits(conv) {
            together::forward(conv, x, w, bias, (y, done));
        } else if suits_packing(conv) {
            multiply_packed(conv, x, w, bias, (y, done), keeper);
        } else {
            multiply(conv, x, w, bias, y, done);
        }
    }
}

/// The product of every image, by as many threads.
///
/// # Safety
/// As [`super::forward`].
unsafe fn multiply<T: Real>(
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
    let images = conv.batch * conv.groups;
    let is_few = images < FEW && in_pool(usize::MAX);
    each_image(images, is_few, |i, threads| {
        let g = i % conv.groups;
        // SAFETY: image and group `i` has its own part of `x` and `y`.
        unsafe {
            let to = y.at(i * m * n);
            let add = fill_bias(bias, g * m..(g + 1) * m, to, (n, n));
            let a = Mat::rows(w.at(g * m * k), k);
            with_columns(conv, x.at(i * k * conv.in_size()), threads, |b| {
                gemm((m, n, k), a, Mat::rows(b.cast_mut(), n), Mat::rows(to, n), add, threads);
            });
        }
        if !is_few {
            report(done, i * m..(i + 1) * m, n, 0..n);
        }
    });
    if let Some(done) = done.filter(|_| is_few) {
        parallel_for(images * m * n, REPORTED, done);
    }
}

/// Calls `one` for every image and group: for few one after the other, each with all threads, and
/// else side by side.
fn each_image(images: usize, is_few: bool, one: impl Fn(usize, Threads) + Send + Sync) {
    if is_few {
        (0..images).for_each(|i| one(i, Threads::Pool));
    } else {
        parallel_for(images, 1, |range| range.for_each(|i| one(i, Threads::One)));
    }
}

/// Positions of a plane from which on packed filters of one element are the faster ones.
const PLANE: usize = 128;

/// Whether filters of one element are packed, which few images read: once for as long as they stay
/// as they are.
fn suits_packing(conv: &Conv) -> bool {
    conv.batch * conv.groups < FEW
        && conv.out_size() >= PLANE
        && conv.in_c > 1
        && (8..=blocked::BAND).contains(&conv.out_c)
}

/// As [`multiply`], by the micro-kernel and with packed filters.
///
/// # Safety
/// As [`super::forward`].
unsafe fn multiply_packed<T: Real>(
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
    // SAFETY: promised by the caller; the room is that of all filters.
    let pack = |room: &mut [T]| unsafe {
        let filters_of = |g: usize| Mat::rows(w.add(g * m * k).cast_mut(), k);
        pack_filters(conv.groups, (m, k), filters_of, room.as_mut_ptr());
    };
    with_made(keeper, conv.groups * m * k, pack, |packed| {
        for i in 0..images {
            let g = i % conv.groups;
            // SAFETY: promised by the caller; every image and group has its own part of `y`.
            unsafe {
                let to = y.add(i * m * n);
                let add = fill_bias(bias, g * m..(g + 1) * m, to, (n, n));
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

/// Packs the filters of every group, `filters_of(group)` of this size.
///
/// # Safety
/// They have these extents, and `to` has room for all.
unsafe fn pack_filters<T: Real>(
    groups: usize,
    (rows, terms): (usize, usize),
    filters_of: impl Fn(usize) -> Mat<T>,
    to: *mut T,
) {
    for g in 0..groups {
        // SAFETY: promised by the caller.
        unsafe {
            let to = to.add(g * rows * terms);
            blocked::pack_left((rows, terms), filters_of(g), to, Threads::Pool);
        }
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
    with_scratch(conv.in_c * conv.out_size(), |columns: &mut [T]| {
        // SAFETY: promised by the caller.
        unsafe { collect_columns(conv, x, threads, columns.as_mut_ptr()) };
        f(columns.as_ptr());
    });
}

/// Copies the elements that filters of one element read of an image and group.
///
/// # Safety
/// The planes from `x` on are those of the image and group, and `to` has room for the elements.
unsafe fn collect_columns<T: Real>(conv: &Conv, x: *const T, threads: Threads, to: *mut T) {
    let (grid, n) = (Grid::new(conv), conv.out_size());
    let (x, to) = (Shared(x.cast_mut()), Shared(to));
    threads.split(conv.in_c, (1usize << 14).div_ceil(n.max(1)), |channels| {
        for c in channels {
            // SAFETY: promised by the caller; channels are apart.
            unsafe {
                let to = std::slice::from_raw_parts_mut(to.at(c * n), n);
                grid.spread(conv, x.at(c * conv.in_size()), to);
            }
        }
    });
}

/// `dx` from `dy` and the filters.
///
/// # Safety
/// As [`super::backward_data`].
pub unsafe fn backward_data<T: Real>(conv: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    if together::suits(conv) {
        // SAFETY: promised by the caller.
        return unsafe { together::backward_data(conv, dy, w, dx) };
    }
    let (k, m, n) = (conv.in_c, conv.out_c, conv.out_size());
    let (images, size) = (conv.batch * conv.groups, conv.in_size());
    let (dy, w, dx) = (Shared(dy.cast_mut()), Shared(w.cast_mut()), Shared(dx));
    // Over fewer positions filters are used too seldom for packing them beforehand.
    let packs = n >= PLANE && (1..=blocked::BAND).contains(&k);
    with_scratch(if packs { conv.groups * m * k } else { 0 }, |packed: &mut [T]| {
        let packed = Shared(packed.as_mut_ptr());
        // SAFETY: promised by the caller.
        let filters_of = |g: usize| unsafe { Mat::rows(w.at(g * m * k), k).t() };
        if packs {
            // SAFETY: promised by the caller; the room is that of all filters.
            unsafe { pack_filters(conv.groups, (k, m), filters_of, packed.ptr()) };
        }
        let product = |i: usize, c: *mut T, threads: Threads| {
            let (g, c) = (i % conv.groups, Mat::rows(c, n));
            // SAFETY: promised by the caller.
            unsafe {
                let right = Mat::rows(dy.at(i * m * n), n);
                if packs {
                    let left = Left::Packed(Shared(packed.at(g * m * k)));
                    blocked::multiply_left((k, n, m), left, right, c, false, threads);
                } else {
                    gemm((k, n, m), filters_of(g), right, c, false, threads);
                }
            }
        };
        let is_few = images < FEW && (packs || in_pool(usize::MAX));
        each_image(images, is_few, |i, threads| {
            // SAFETY: promised by the caller; image and group `i` has its own part of `dx`.
            let to = unsafe { dx.at(i * k * size) };
            if conv.is_pointwise() {
                return product(i, to, threads);
            }
            with_scratch(k * n, |columns: &mut [T]| {
                product(i, columns.as_mut_ptr(), threads);
                // SAFETY: as above.
                unsafe { put_columns(conv, columns.as_mut_ptr(), threads, to) };
            });
        });
    });
}

/// The inverse of [`collect_columns`]: elements that no filter reads are 0.
///
/// # Safety
/// `columns` has those of an image and group, whose planes start at `x`.
unsafe fn put_columns<T: Real>(conv: &Conv, columns: *mut T, threads: Threads, x: *mut T) {
    let (grid, n, size) = (Grid::new(conv), conv.out_size(), conv.in_size());
    let whole = grid.whole();
    let (columns, x) = (Shared(columns), Shared(x));
    threads.split(conv.in_c, (1usize << 14).div_ceil(size.max(1)), |channels| {
        for c in channels {
            // SAFETY: promised by the caller; channels are apart.
            unsafe {
                x.at(c * size).write_bytes(0, size);
                grid.gather(conv, (0, &whole), columns.at(c * n).cast_const(), x.at(c * size));
            }
        }
    });
}
