//! Normalisation of rows, each by its own mean and deviation, with a scale and shift for every
//! column.
//!
//! J. Ba, J. Kiros, G. Hinton, Layer Normalization, arXiv:1607.06450.

use super::arch::{Cache, opaque, prefetch};
use super::pairwise::{LANES, LEAF, Pairwise, Summed, join, join_all, lanes_of, sum_rows_of};
use super::parallel::{Shared, parallel_for};
use super::real::Real;
use super::scratch::with_scratch;

/// Minimum number of elements per task.
const GRAIN: usize = 1 << 13;
/// Partial sums of the column gradients, added in order.
const PARTS: usize = 8;
/// Rows that are handled together. In the backward pass the sums of columns are read and written
/// once for them.
const TOGETHER: usize = 4;

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
        let grain = GRAIN.div_ceil(self.width.max(1)).next_multiple_of(TOGETHER);
        parallel_for(self.rows, grain, |range| {
            for first in range.clone().step_by(TOGETHER) {
                let (rows, at) = (TOGETHER.min(range.end - first), first * self.width);
                // SAFETY: rows belong to one task; extents are the caller's promise.
                unsafe {
                    let (x, to) = (x.at(at), [mean.at(first), std.at(first)]);
                    rows_of(self, x, [gamma.at(0), beta.at(0)], y.at(at), rows, to);
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
                    let add = |group: usize, sums: &mut [T]| {
                        let (at, sums) = (first + group * TOGETHER, sums.as_mut_ptr());
                        let left = rows - group * TOGETHER;
                        // SAFETY: rows belong to one task; the sums are two rows.
                        unsafe {
                            if left >= TOGETHER {
                                rows_back::<T, TOGETHER>(self, at, &from, dx.at(0), sums);
                            } else {
                                for r in at..at + left {
                                    rows_back::<T, 1>(self, r, &from, dx.at(0), sums);
                                }
                            }
                        }
                    };
                    // SAFETY: each part has sums of its own.
                    let to = unsafe { sums.at(p * 2 * width) };
                    sum_rows_of(rows.div_ceil(TOGETHER), 2 * width, add, |sums| {
                        // SAFETY: as above.
                        unsafe { to.copy_from_nonoverlapping(sums.as_ptr(), sums.len()) };
                    });
                }
            });
            let outputs = [to.gamma, to.beta].map(Shared);
            parallel_for(width, GRAIN / PARTS, |columns| {
                for (i, out) in outputs.iter().enumerate() {
                    if !out.ptr().is_null() {
                        // SAFETY: the scratch holds two rows a part, the output one; tasks have
                        // columns of their own.
                        unsafe {
                            let from = sums.at(i * width + columns.start).cast_const();
                            join_parts(from, 2 * width, columns.len(), out.at(columns.start));
                        }
                    }
                }
            });
        });
    }
}

crate::simd! {
    /// Up to `TOGETHER` rows, step by step: what is calculated of the lanes of one, one after
    /// another, does not wait for that of the row before.
    ///
    /// # Safety
    /// As [`Rows::forward`], with pointers to the rows.
    unsafe fn rows_of[T: Real][T](
        s: &Rows<T>, x: *const T, scales: [*mut T; 2], y: *mut T, rows: usize, to: [*mut T; 2],
    ) -> () {
        let (w, count) = (s.width, T::of(s.width.max(1) as f64));
        let [gamma, beta] = scales.map(|v| v.cast_const());
        let mut lanes = [[T::zero(); LANES]; TOGETHER];
        let [mut mean, mut inv] = [[T::zero(); TOGETHER]; 2];
        // SAFETY: promised by the caller.
        unsafe {
            for r in 0..rows {
                let x = x.add(r * w);
                lanes[r] = lanes_of(w, |i| *x.add(i));
            }
            // Through memory that the compiler cannot see through: it would keep the lanes one by
            // one, here and in the loops of the sums.
            join_all(std::hint::black_box(&mut lanes), |a, b| a + b);
            for r in 0..rows {
                mean[r] = lanes.as_flattened()[r] / count;
                *to[0].add(r) = mean[r];
            }
            for r in 0..rows {
                let (x, mean) = (x.add(r * w), mean[r]);
                lanes[r] = lanes_of(w, |i| {
                    let d = *x.add(i) - mean;
                    d * d
                });
            }
            join_all(std::hint::black_box(&mut lanes), |a, b| a + b);
            for r in 0..rows {
                let std = (lanes.as_flattened()[r] / count + s.eps).sqrt();
                *to[1].add(r) = std;
                inv[r] = T::one() / std;
            }
            for r in 0..rows {
                let (mean, inv) = (mean[r], inv[r]);
                let from = [x.add(r * w), gamma, beta];
                super::map::map_serial(from, y.add(r * w), w, |[x, g, b]| (x - mean) * inv * g + b);
            }
        }
    }

    /// Adds `PARTS` rows of `n` elements, `stride` apart, in order.
    ///
    /// # Safety
    /// `from` holds the rows, `out` has `n` elements and is apart from them.
    unsafe fn join_parts[T: Real][T](from: *const T, stride: usize, n: usize, out: *mut T) -> () {
        // SAFETY: promised by the caller.
        unsafe {
            out.copy_from_nonoverlapping(from, n);
            for p in 1..PARTS {
                let part = from.add(p * stride);
                super::map::map_serial([out.cast_const(), part], out, n, |[a, b]| a + b);
            }
        }
    }

    /// The gradients of `K` rows from row `first` on, and their part of the column gradients, which
    /// is added to `sums`.
    ///
    /// # Safety
    /// As [`Rows::backward`]; `sums` has two rows and overlaps nothing.
    unsafe fn rows_back[T: Real, const K: usize][T, K](
        s: &Rows<T>, first: usize, from: &Saved<T>, dx: *mut T, sums: *mut T,
    ) -> () {
        let (w, count) = (s.width, T::of(s.width.max(1) as f64));
        let (whole, gamma) = (w / LANES * LANES, from.gamma);
        let zeros = [[[T::zero(); LANES]; 2]; K];
        let (mut mean, mut inv) = ([T::zero(); K], [T::zero(); K]);
        let mut leaves = Pairwise::default();
        // SAFETY: promised by the caller; blocks end at the width.
        unsafe {
            let (x, dy) = (from.x.add(first * w), from.dy.add(first * w));
            for k in 0..K {
                mean[k] = *from.mean.add(first + k);
                inv[k] = T::one() / *from.std.add(first + k);
            }
            // For each row the sums of `g * gamma` and of `g * gamma * (x - mean)`.
            let (mut row_sums, mut start) = (zeros, 0);
            loop {
                let end = whole.min(start + LEAF * LANES);
                for i in (start..end).step_by(LANES).map(opaque) {
                    back_block::<T, K>((x.add(i), dy.add(i), w), gamma.add(i), (&mean, &inv),
                        [sums.add(i), sums.add(w + i)], &mut row_sums);
                }
                start = end;
                if start == whole {
                    break;
                }
                leaves.push(std::mem::replace(&mut row_sums, zeros));
            }
            let mut rest = zeros;
            for i in whole..w {
                let [mut of_gamma, mut of_beta] = [T::zero(); 2];
                for k in 0..K {
                    let (g, d) = (*dy.add(k * w + i), *x.add(k * w + i) - mean[k]);
                    of_gamma += g * (d * inv[k]);
                    of_beta += g;
                    rest[k][0][i - whole] = g * *gamma.add(i);
                    rest[k][1][i - whole] = g * *gamma.add(i) * d;
                }
                *sums.add(i) += of_gamma;
                *sums.add(w + i) += of_beta;
            }
            if dx.is_null() {
                return;
            }
            rest.add(&leaves.total(row_sums));
            let totals = std::hint::black_box(&rest).map(|sums| sums.map(join));
            for k in 0..K {
                let [a, b] = totals[k];
                let (mean, inv) = (mean[k], inv[k]);
                let (a, b) = (a / count, b * inv * inv / count);
                let (x, dy) = (x.add(k * w), dy.add(k * w));
                super::map::map_serial([dy, x, gamma], dx.add((first + k) * w), w, |[g, x, k]| {
                    inv * (g * k - a - (x - mean) * b)
                });
            }
        }
    }
}

/// A block of `LANES` columns of `K` rows, `w` apart: adds to the columns of the sums, of `gamma`
/// and of `beta`, and to those of the rows.
///
/// # Safety
/// All hold the block; the sums overlap nothing.
#[inline(always)]
unsafe fn back_block<T: Real, const K: usize>(
    (x, dy, w): (*const T, *const T, usize),
    gamma: *const T,
    (mean, inv): (&[T; K], &[T; K]),
    sums: [*mut T; 2],
    row_sums: &mut [[[T; LANES]; 2]; K],
) {
    let block = |at: *const T| -> [T; LANES] {
        // SAFETY: promised by the caller.
        unsafe { at.cast::<[T; LANES]>().read_unaligned() }
    };
    let (gamma, mut columns) = (block(gamma), sums.map(|at| block(at)));
    let mut of_block = [[T::zero(); LANES]; 2];
    for k in 0..K {
        // SAFETY: as above.
        let (x, dy) = unsafe { (x.add(k * w), dy.add(k * w)) };
        // Streams of short rows are new to the machine when it has learnt where they go.
        for at in [x, dy] {
            prefetch(at.wrapping_add(K * w), Cache::First);
        }
        let (x, dy) = (block(x), block(dy));
        for i in 0..LANES {
            let (g, d) = (dy[i], x[i] - mean[k]);
            let h = g * gamma[i];
            of_block[0][i] += g * (d * inv[k]);
            of_block[1][i] += g;
            row_sums[k][0][i] += h;
            row_sums[k][1][i] += h * d;
        }
    }
    for (k, at) in sums.into_iter().enumerate() {
        for i in 0..LANES {
            columns[k][i] += of_block[k][i];
        }
        // SAFETY: as above.
        unsafe { at.cast::<[T; LANES]>().write_unaligned(columns[k]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::naive;
    use proptest::prelude::*;

    /// `(y, dx, dgamma, dbeta)` of the kernels; the first two may be written over `x` and `dy`.
    fn run<T: Real>(l: &Rows<T>, from: &[Vec<f64>; 4], in_place: bool) -> [Vec<f64>; 4] {
        let [x, gamma, beta, dy] =
            from.each_ref().map(|v| v.iter().map(|&v| T::of(v)).collect::<Vec<T>>());
        let other = |v: &Vec<T>| if in_place { v.clone() } else { vec![T::of(7.0); v.len()] };
        let (mut y, mut dx) = (other(&x), other(&dy));
        let [mut mean, mut std] = [vec![T::zero(); l.rows], vec![T::zero(); l.rows]];
        let [mut dgamma, mut dbeta] = [vec![T::of(7.0); l.width], vec![T::of(7.0); l.width]];
        let x_at = if in_place { y.as_ptr() } else { x.as_ptr() };
        let dy = if in_place { dx.as_ptr() } else { dy.as_ptr() };
        // SAFETY: all have these extents; outputs are inputs or apart.
        unsafe {
            let scales = [gamma.as_ptr(), beta.as_ptr()];
            l.forward(x_at, scales, y.as_mut_ptr(), [mean.as_mut_ptr(), std.as_mut_ptr()]);
            let (mean, std) = (mean.as_ptr(), std.as_ptr());
            let (x, gamma) = (x.as_ptr(), gamma.as_ptr());
            l.backward(
                Saved { dy, x, gamma, mean, std },
                Grads { x: dx.as_mut_ptr(), gamma: dgamma.as_mut_ptr(), beta: dbeta.as_mut_ptr() },
            );
        }
        [y, dx, dgamma, dbeta]
            .map(|v| v.iter().map(|v| num_traits::NumCast::from(*v).unwrap()).collect())
    }

    fn check(rows: usize, width: usize, in_place: bool, seed: u64) {
        let from: [Vec<f64>; 4] = std::array::from_fn(|i| {
            let n = if i == 1 || i == 2 { width } else { rows * width };
            naive::noise(n, seed ^ i as u64)
        });
        let [x, gamma, beta, dy] = &from;
        // With a small constant, gradients of narrow rows would be differences of large terms.
        let want = naive::layer_norm(&Rows { rows, width, eps: 0.1 }, x, gamma, beta, dy);
        let double = run(&Rows { rows, width, eps: 0.1f64 }, &from, in_place);
        let single = run(&Rows { rows, width, eps: 0.1f32 }, &from, in_place);
        for i in 0..4 {
            assert!(naive::close(&double[i], &want[i], 1e-11), "{rows} {width} {i}");
            assert!(naive::close(&single[i], &want[i], 3e-5), "{rows} {width} {i}");
        }
    }

    proptest! {
        #[test]
        fn layer_norm_matches_naive(
            rows in 0usize..45, width in 0usize..80, in_place: bool, seed: u64,
        ) {
            check(rows, width, in_place, seed);
        }
    }

    #[test]
    fn layer_norm_of_long_rows_and_of_many_matches_naive() {
        for (rows, width) in [(6, 1024), (5, 1040), (7, 2500), (9, 4103), (1100, 20)] {
            check(rows, width, width % 2 == 0, 5);
        }
    }

    #[test]
    fn what_is_not_finite_stays_in_its_row() {
        let (rows, width) = (9, 40);
        let x = naive::noise(rows * width, 1);
        let ones = vec![1.0; width];
        let mut bad = x.clone();
        bad[4 * width + 39] = f64::NAN;
        let l = Rows { rows, width, eps: 1e-5 };
        let sound = run(&l, &[x.clone(), ones.clone(), ones.clone(), x.clone()], false);
        let got = run(&l, &[bad, ones.clone(), ones, x], false);
        for (i, (got, sound)) in got[0].iter().zip(&sound[0]).enumerate() {
            assert!(if i / width == 4 { got.is_nan() } else { got == sound }, "{i}");
        }
    }
}
