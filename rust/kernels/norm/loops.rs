//! Loops over ranges of channels, or of their planes.

use super::super::map::{map_serial, map_short};
use super::super::pairwise::{sum_rows_of, sums_of_planes, sums_of_rows};
use super::super::real::Real;
use super::{Affine, Channels, Gradients};
use std::ops::Range;

/// Statistics of the channels of a range.
///
/// # Safety
/// As [`Channels::statistics`], with a range of channels.
pub unsafe fn statistics_of_any<T: Real>(
    s: &Channels,
    range: std::ops::Range<usize>,
    x: *const T,
    mean: *mut T,
    var: *mut T,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match s.inner {
            1 => statistics_of_columns(s, range, x, mean, var),
            _ => statistics_of(s, range, x, mean, var),
        }
    }
}

/// Normalises elements of one plane of channel `c`.
///
/// # Safety
/// As [`Channels::normalise`], with a range inside a plane.
#[inline(always)]
unsafe fn normalise_part<T: Real>(
    c: usize,
    range: Range<usize>,
    x: *const T,
    a: &Affine<T>,
    y: *mut T,
) {
    let at = range.start;
    // SAFETY: promised by the caller.
    unsafe {
        let f = *a.inv_std.add(c) * a.gamma.map_or(T::one(), |g| *g.add(c));
        let (m, b) = (*a.mean.add(c), *a.beta.add(c));
        map_short([x.add(at)], y.add(at), range.len(), |[x]| (x - m) * f + b);
    }
}

/// Elements of the longest planes that are summed together, which is [`TOGETHER`] of them: what is
/// read twice stays in the first-level cache, or the second.
pub const SHORT: usize = 256;
/// Short planes summed together.
pub const TOGETHER: usize = 16;

/// What stands of image `n` in `parts`, which has a pair for every plane: those of a range of
/// channels.
///
/// # Safety
/// `parts` has them, and they are not written meanwhile.
#[inline(always)]
unsafe fn pairs_of<'a, T>(
    s: &Channels,
    range: &Range<usize>,
    parts: *const T,
    n: usize,
) -> &'a [T] {
    // SAFETY: promised by the caller.
    unsafe {
        let from = parts.add(2 * (n * s.channels + range.start));
        std::slice::from_raw_parts(from, 2 * range.len())
    }
}

crate::simd! {
    /// Statistics of the channels of a range; channels are the innermost axis.
    ///
    /// # Safety
    /// As [`Channels::statistics`], with `inner == 1` and a range of channels.
    pub unsafe fn statistics_of_columns[T: Real][T](
        s: &Channels, range: std::ops::Range<usize>, x: *const T, mean: *mut T, var: *mut T,
    ) -> () {
        let (width, count) = (range.len(), T::of(s.count().max(1) as f64));
        // SAFETY: promised by the caller.
        unsafe {
            let row = |n: usize| {
                std::slice::from_raw_parts(x.add(n * s.channels + range.start), width)
            };
            let mean = std::slice::from_raw_parts_mut(mean.add(range.start), width);
            let add = |n: usize, sums: &mut [T]| {
                for (sum, &x) in sums.iter_mut().zip(row(n)) {
                    *sum += x;
                }
            };
            sum_rows_of(s.outer, width, add, |sums| {
                for (m, &sum) in mean.iter_mut().zip(&*sums) {
                    *m = sum / count;
                }
            });
            let mean = &*mean;
            let add = |n: usize, sums: &mut [T]| {
                for ((sum, &x), &m) in sums.iter_mut().zip(row(n)).zip(mean) {
                    *sum += (x - m) * (x - m);
                }
            };
            sum_rows_of(s.outer, width, add, |sums| {
                for (c, &sum) in sums.iter().enumerate() {
                    *var.add(range.start + c) = sum / count;
                }
            });
        }
    }

    /// Statistics of the channels of a range.
    ///
    /// # Safety
    /// As [`Channels::statistics`], with a range of channels.
    pub unsafe fn statistics_of[T: Real][T](
        s: &Channels, range: std::ops::Range<usize>, x: *const T, mean: *mut T, var: *mut T,
    ) -> () {
        let count = T::of(s.count().max(1) as f64);
        for c in range {
            let at = |n: usize| (n * s.channels + c) * s.inner;
            // SAFETY: promised by the caller.
            unsafe {
                let extents = (s.outer, s.inner);
                let [sum] = sums_of_planes(extents, |n, i| [*x.add(at(n) + i)]);
                let m = sum / count;
                let [squares] = sums_of_planes(extents, |n, i| {
                    let d = *x.add(at(n) + i) - m;
                    [d * d]
                });
                *mean.add(c) = m;
                *var.add(c) = squares / count;
            }
        }
    }

    /// Mean, and sum of squares about it, of every plane of a range, `ROWS` at a time.
    ///
    /// # Safety
    /// `x` has the planes, `parts` two elements for each.
    pub unsafe fn statistics_of_planes[T: Real, const ROWS: usize][T, ROWS](
        inner: usize, range: Range<usize>, x: *const T, parts: *mut T,
    ) -> () {
        let count = T::of(inner as f64);
        for first in range.clone().step_by(ROWS) {
            let (rows, x) = (ROWS.min(range.end - first), x.wrapping_add(first * inner));
            // SAFETY: promised by the caller.
            unsafe {
                let sums: [T; ROWS] = sums_of_rows(rows, inner, |r, i| *x.add(r * inner + i));
                let means = sums.map(|sum| sum / count);
                let squares: [T; ROWS] = sums_of_rows(rows, inner, |r, i| {
                    let d = *x.add(r * inner + i) - means[r];
                    d * d
                });
                for r in 0..rows {
                    *parts.add(2 * (first + r)) = means[r];
                    *parts.add(2 * (first + r) + 1) = squares[r];
                }
            }
        }
    }

    /// Statistics of channels from those of their planes: mean and sum of squares about it.
    ///
    /// # Safety
    /// `parts` has both for every plane; `mean` and `var` have one element a channel.
    pub unsafe fn join_statistics[T: Real][T](
        s: &Channels, range: Range<usize>, parts: *const T, mean: *mut T, var: *mut T,
    ) -> () {
        let (outer, inner) = (T::of(s.outer as f64), T::of(s.inner as f64));
        let width = range.len();
        // SAFETY: promised by the caller.
        unsafe {
            let row = |n: usize| pairs_of(s, &range, parts, n);
            let mean = std::slice::from_raw_parts_mut(mean.add(range.start), width);
            let var = std::slice::from_raw_parts_mut(var.add(range.start), width);
            let add = |n: usize, sums: &mut [T]| {
                for (sum, part) in sums.iter_mut().zip(row(n)) {
                    *sum += *part;
                }
            };
            sum_rows_of(s.outer, 2 * width, add, |sums| {
                for c in 0..width {
                    mean[c] = sums[2 * c] / outer;
                    var[c] = sums[2 * c + 1];
                }
            });
            let mean = &*mean;
            let add = |n: usize, sums: &mut [T]| {
                for ((sum, part), m) in sums.iter_mut().zip(row(n).chunks_exact(2)).zip(mean) {
                    let d = part[0] - *m;
                    *sum += d * d;
                }
            };
            sum_rows_of(s.outer, width, add, |sums| {
                for (var, &between) in var.iter_mut().zip(&*sums) {
                    *var = (*var + between * inner) / (outer * inner);
                }
            });
        }
    }

    /// Normalises the planes of a range.
    ///
    /// # Safety
    /// As [`Channels::normalise`], with a range of planes.
    pub unsafe fn normalise_planes[T: Real][T](
        s: &Channels, range: Range<usize>, x: *const T, a: &Affine<T>, y: *mut T,
    ) -> () {
        for p in range {
            // SAFETY: promised by the caller.
            unsafe { normalise_part(p % s.channels, p * s.inner..(p + 1) * s.inner, x, a, y) };
        }
    }

    /// Normalises some elements.
    ///
    /// # Safety
    /// As [`Channels::normalise`], with a range of elements.
    pub unsafe fn normalise_some[T: Real][T](
        s: &Channels, range: Range<usize>, x: *const T, a: &Affine<T>, y: *mut T,
    ) -> () {
        let mut at = range.start;
        while at < range.end {
            let plane = at / s.inner;
            let end = range.end.min((plane + 1) * s.inner);
            // SAFETY: promised by the caller.
            unsafe { normalise_part(plane % s.channels, at..end, x, a, y) };
            at = end;
        }
    }

    /// The sums of `dy` and of `dy * (x - mean)` of every plane of a range, `ROWS` at a time.
    ///
    /// # Safety
    /// As [`Channels::backward`], with a range of planes; `parts` has two elements for each.
    pub unsafe fn gradient_sums_of_planes[T: Real, const ROWS: usize][T, ROWS](
        s: &Channels, range: Range<usize>, dy: *const T, x: *const T, a: &Affine<T>, parts: *mut T,
    ) -> () {
        for first in range.clone().step_by(ROWS) {
            let (rows, at) = (ROWS.min(range.end - first), first * s.inner);
            // SAFETY: promised by the caller.
            unsafe {
                let (dy, x) = (dy.add(at), x.add(at));
                let means: [T; ROWS] =
                    std::array::from_fn(|r| *a.mean.add((first + r) % s.channels));
                let sums: [T; ROWS] = sums_of_rows(rows, s.inner, |r, i| *dy.add(r * s.inner + i));
                let products: [T; ROWS] = sums_of_rows(rows, s.inner, |r, i| {
                    let i = r * s.inner + i;
                    *dy.add(i) * (*x.add(i) - means[r])
                });
                for r in 0..rows {
                    *parts.add(2 * (first + r)) = sums[r];
                    *parts.add(2 * (first + r) + 1) = products[r];
                }
            }
        }
    }

    /// Gradients of gamma and beta from the sums of planes, and into `slopes` what the gradient of
    /// the data needs of every channel.
    ///
    /// # Safety
    /// `parts` has two sums for every plane, `slopes` two elements a channel; `to` as in
    /// [`Channels::backward`].
    pub unsafe fn join_gradients[T: Real][T](
        s: &Channels, range: Range<usize>, parts: *const T, a: &Affine<T>, fixed: bool,
        to: &Gradients<T>, slopes: *mut T,
    ) -> () {
        let (count, width) = (T::of(s.count() as f64), range.len());
        // SAFETY: promised by the caller.
        unsafe {
            let add = |n: usize, sums: &mut [T]| {
                for (sum, part) in sums.iter_mut().zip(pairs_of(s, &range, parts, n)) {
                    *sum += *part;
                }
            };
            sum_rows_of(s.outer, 2 * width, add, |sums| {
                for (c, sums) in range.clone().zip(sums.chunks_exact(2)) {
                    let (sum_dy, sum_dyx, inv) = (sums[0], sums[1], *a.inv_std.add(c));
                    if !to.gamma.is_null() {
                        *to.gamma.add(c) =
                            if a.gamma.is_some() { sum_dyx * inv } else { T::zero() };
                    }
                    if !to.beta.is_null() {
                        *to.beta.add(c) = sum_dy;
                    }
                    let zero = T::zero();
                    *slopes.add(2 * c) = if fixed { zero } else { sum_dy / count };
                    *slopes.add(2 * c + 1) =
                        if fixed { zero } else { sum_dyx * inv * inv / count };
                }
            });
        }
    }

    /// The gradient of the data of the planes of a range.
    ///
    /// # Safety
    /// As [`Channels::backward`], with a range of planes; `slopes` has two elements a channel.
    pub unsafe fn gradient_of_planes[T: Real][T](
        s: &Channels, range: Range<usize>, dy: *const T, x: *const T, a: &Affine<T>,
        slopes: *const T, data: *mut T,
    ) -> () {
        for p in range {
            let (c, at) = (p % s.channels, p * s.inner);
            // SAFETY: promised by the caller.
            unsafe {
                let f = *a.inv_std.add(c) * a.gamma.map_or(T::one(), |g| *g.add(c));
                let (m, mean_dy, slope) =
                    (*a.mean.add(c), *slopes.add(2 * c), *slopes.add(2 * c + 1));
                map_short(
                    [dy.add(at), x.add(at)], data.add(at), s.inner,
                    |[g, x]| f * (g - mean_dy - (x - m) * slope),
                );
            }
        }
    }

    /// Normalises the channels of a range.
    ///
    /// # Safety
    /// As [`Channels::normalise`], with a range of channels.
    pub unsafe fn normalise_of[T: Real][T](
        s: &Channels, range: std::ops::Range<usize>, x: *const T, a: &Affine<T>, y: *mut T,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe {
            let factor = |c: usize| *a.inv_std.add(c) * a.gamma.map_or(T::one(), |g| *g.add(c));
            for n in 0..s.outer {
                if s.inner == 1 {
                    for c in range.clone() {
                        let i = n * s.channels + c;
                        *y.add(i) = (*x.add(i) - *a.mean.add(c)) * factor(c) + *a.beta.add(c);
                    }
                    continue;
                }
                for c in range.clone() {
                    let (f, m, b) = (factor(c), *a.mean.add(c), *a.beta.add(c));
                    let at = (n * s.channels + c) * s.inner;
                    map_serial([x.add(at)], y.add(at), s.inner, |[x]| (x - m) * f + b);
                }
            }
        }
    }

    /// Gradients of the channels of a range.
    ///
    /// # Safety
    /// As [`Channels::backward`], with a range of channels.
    pub unsafe fn backward_of[T: Real][T](
        s: &Channels, range: std::ops::Range<usize>, dy: *const T, x: *const T, a: &Affine<T>,
        fixed: bool, to: &Gradients<T>,
    ) -> () {
        let count = T::of(s.count().max(1) as f64);
        // SAFETY: promised by the caller.
        unsafe {
            for c in range {
                let (m, inv) = (*a.mean.add(c), *a.inv_std.add(c));
                let at = |n: usize| (n * s.channels + c) * s.inner;
                let [sum_dy, sum_dyx] = sums_of_planes((s.outer, s.inner), |n, i| {
                    let dy = *dy.add(at(n) + i);
                    [dy, dy * (*x.add(at(n) + i) - m)]
                });
                if !to.gamma.is_null() {
                    let d = if a.gamma.is_some() { sum_dyx * inv } else { T::zero() };
                    *to.gamma.add(c) = d;
                }
                if !to.beta.is_null() {
                    *to.beta.add(c) = sum_dy;
                }
                if to.data.is_null() {
                    continue;
                }
                let f = inv * a.gamma.map_or(T::one(), |g| *g.add(c));
                let zero = T::zero();
                let (mean_dy, slope) =
                    if fixed { (zero, zero) } else { (sum_dy / count, sum_dyx * inv * inv / count) };
                for n in 0..s.outer {
                    let at = (n * s.channels + c) * s.inner;
                    map_serial(
                        [dy.add(at), x.add(at)], to.data.add(at), s.inner,
                        |[g, x]| f * (g - mean_dy - (x - m) * slope),
                    );
                }
            }
        }
    }
}
