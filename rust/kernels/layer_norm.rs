//! Normalisation of rows, each by its own mean and deviation, with a scale and shift for every
//! column.
//!
//! J. Ba, J. Kiros, G. Hinton, Layer Normalization, arXiv:1607.06450.

use super::pairwise::{sum_of, sum_rows_of};
use super::parallel::{Shared, parallel_for};
use super::real::Real;
use super::scratch::with_scratch;

/// Minimum number of elements per task.
const GRAIN: usize = 1 << 13;
/// Partial sums of the column gradients, added in order.
const PARTS: usize = 8;

/// Extents and the constant added to the variance.
#[derive(Clone, Copy, Debug)]
pub struct Rows<T> {
    pub rows: usize,
    pub width: usize,
    pub eps: T,
}

/// Inputs of the backward pass.
#[derive(Clone, Copy)]
pub struct Saved<T> {
    pub dy: *const T,
    pub x: *const T,
    pub gamma: *const T,
    pub mean: *const T,
    pub std: *const T,
}

/// Outputs of the backward pass; null where not wanted.
#[derive(Clone, Copy)]
pub struct Grads<T> {
    pub x: *mut T,
    pub gamma: *mut T,
    pub beta: *mut T,
}

// SAFETY: only addresses that a kernel reads.
unsafe impl<T> Send for Saved<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Saved<T> {}
// SAFETY: only addresses; tasks write rows and partial sums of their own.
unsafe impl<T> Send for Grads<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Grads<T> {}

impl<T: Real> Rows<T> {
    /// `y = (x - mean) / std * gamma + beta`, with `std = sqrt(var + eps)`.
    ///
    /// # Safety
    /// `x` and `y` are (rows, width) and the same memory or apart; gamma and beta have `width`
    /// elements, mean and std `rows`.
    pub unsafe fn forward(
        &self,
        x: *const T,
        [gamma, beta]: [*const T; 2],
        y: *mut T,
        [mean, std]: [*mut T; 2],
    ) {
        let (x, y, mean, std) = (Shared(x.cast_mut()), Shared(y), Shared(mean), Shared(std));
        let (gamma, beta) = (Shared(gamma.cast_mut()), Shared(beta.cast_mut()));
        parallel_for(self.rows, GRAIN.div_ceil(self.width.max(1)), |range| {
            for r in range {
                let at = r * self.width;
                // SAFETY: rows belong to one task; extents are the caller's promise.
                unsafe {
                    let (m, s) = row(self, x.at(at), gamma.at(0), beta.at(0), y.at(at));
                    *mean.at(r) = m;
                    *std.at(r) = s;
                }
            }
        });
    }

    /// Gradients of [`Rows::forward`].
    ///
    /// # Safety
    /// As there; `to.x` is `dy` or `x` or apart, the others apart from all.
    pub unsafe fn backward(&self, from: Saved<T>, to: Grads<T>) {
        let width = self.width;
        let each = self.rows.div_ceil(PARTS).max(1);
        with_scratch(PARTS * 2 * width, |sums: &mut [T]| {
            let (sums, dx) = (Shared(sums.as_mut_ptr()), Shared(to.x));
            parallel_for(PARTS, 1, |parts| {
                for p in parts {
                    let first = (p * each).min(self.rows);
                    let rows = ((p + 1) * each).min(self.rows) - first;
                    let add = |r: usize, sums: &mut [T]| {
                        // SAFETY: rows belong to one task; the sums are two rows.
                        unsafe { row_back(self, first + r, &from, dx.at(0), sums.as_mut_ptr()) };
                    };
                    // SAFETY: each part has sums of its own.
                    let to = unsafe { sums.at(p * 2 * width) };
                    sum_rows_of(rows, 2 * width, add, |sums| {
                        // SAFETY: as above.
                        unsafe { to.copy_from_nonoverlapping(sums.as_ptr(), sums.len()) };
                    });
                }
            });
            for (i, out) in [to.gamma, to.beta].into_iter().enumerate() {
                for c in 0..if out.is_null() { 0 } else { width } {
                    let mut total = T::zero();
                    for p in 0..PARTS {
                        // SAFETY: the scratch holds two rows a part.
                        total += unsafe { *sums.at((p * 2 + i) * width + c) };
                    }
                    // SAFETY: the output has `width` elements.
                    unsafe { *out.add(c) = total };
                }
            }
        });
    }
}

crate::simd! {
    /// One row; its mean and deviation.
    ///
    /// # Safety
    /// As [`Rows::forward`], with pointers to one row.
    unsafe fn row[T: Real][T](
        s: &Rows<T>, x: *const T, gamma: *const T, beta: *const T, y: *mut T,
    ) -> (T, T) {
        let count = T::of(s.width.max(1) as f64);
        // SAFETY: promised by the caller.
        unsafe {
            let mean = sum_of(s.width, |i| *x.add(i)) / count;
            let var = sum_of(s.width, |i| {
                let d = *x.add(i) - mean;
                d * d
            }) / count;
            let std = (var + s.eps).sqrt();
            let inv = T::one() / std;
            super::map::map_serial([x, gamma, beta], y, s.width, |[x, g, b]| {
                (x - mean) * inv * g + b
            });
            (mean, std)
        }
    }

    /// The gradient of row `r`, and its part of the column gradients, which is added to `sums`.
    ///
    /// # Safety
    /// As [`Rows::backward`]; `sums` has two rows and overlaps nothing.
    unsafe fn row_back[T: Real][T](
        s: &Rows<T>, r: usize, from: &Saved<T>, dx: *mut T, sums: *mut T,
    ) -> () {
        let (w, count) = (s.width, T::of(s.width.max(1) as f64));
        // SAFETY: promised by the caller.
        unsafe {
            let (x, dy) = (from.x.add(r * w), from.dy.add(r * w));
            let (mean, inv) = (*from.mean.add(r), T::one() / *from.std.add(r));
            let gamma = from.gamma;
            super::map::map_serial([sums.cast_const(), dy, x], sums, w, |[t, g, x]| {
                t + g * (x - mean) * inv
            });
            super::map::map_serial([sums.add(w).cast_const(), dy], sums.add(w), w, |[t, g]| t + g);
            if dx.is_null() {
                return;
            }
            let a = sum_of(w, |i| *dy.add(i) * *gamma.add(i)) / count;
            let b = sum_of(w, |i| *dy.add(i) * *gamma.add(i) * (*x.add(i) - mean)) * inv * inv / count;
            super::map::map_serial([dy, x, gamma], dx.add(r * w), w, |[g, x, k]| {
                inv * (g * k - a - (x - mean) * b)
            });
        }
    }
}
