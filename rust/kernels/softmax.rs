//! Softmax and its logarithm along one axis, forward and backward.
//!
//! Data is seen as `(outer, len, inner)`. With `inner == 1` a row is contiguous; otherwise a task takes a
//! few neighbouring columns at once, so that memory is read in lines.

use super::map::map_serial;
use super::norm::lanes;
use super::parallel::{Shared, parallel_for};
use super::real::Real;

/// Columns handled together when the axis is not the last.
const COLUMNS: usize = 32;
/// Elements a task should have at least.
const GRAIN: usize = 1 << 13;

/// What to calculate.
#[derive(Clone, Copy)]
pub struct Softmax<T> {
    pub outer: usize,
    pub len: usize,
    pub inner: usize,
    /// Data is multiplied by this first (1 / temperature, negative for softmin).
    pub scale: T,
    pub log: bool,
}

impl<T: Real> Softmax<T> {
    /// Calls `f(first element, columns, length)` on groups of columns; `length` is how many elements of
    /// the axis count for the first column of the group (groups have one column if lengths differ).
    fn groups(&self, lengths: Option<&[usize]>, f: impl Fn(usize, usize, usize) + Sync + Send) {
        let width = if lengths.is_some() { 1 } else { COLUMNS.min(self.inner.max(1)) };
        let per_outer = self.inner.div_ceil(width);
        let grain = GRAIN.div_ceil((self.len * width).max(1));
        parallel_for(self.outer * per_outer, grain, |range| {
            for g in range {
                let (o, column) = (g / per_outer, g % per_outer * width);
                let columns = width.min(self.inner - column);
                let length = lengths.map_or(self.len, |l| l[o * self.inner + column].min(self.len));
                f(o * self.len * self.inner + column, columns, length);
            }
        });
    }

    /// `y = softmax(x)`; elements from a column's length on become 0.
    ///
    /// # Safety
    /// `x` and `y` hold `outer * len * inner` elements and are the same memory or apart.
    pub unsafe fn forward(&self, x: *const T, y: *mut T, lengths: Option<&[usize]>) {
        let (x, y) = (Shared(x.cast_mut()), Shared(y));
        self.groups(lengths, |start, columns, length| {
            // SAFETY: groups are apart; offsets stay below the promised size.
            unsafe {
                let (x, y) = (x.at(start), y.at(start));
                if self.inner == 1 {
                    row(x, y, length, self.scale, self.log);
                } else {
                    columns_of(self, x, y, columns, length);
                }
                for i in length..self.len {
                    for c in 0..columns {
                        *y.add(i * self.inner + c) = T::zero();
                    }
                }
            }
        });
    }

    /// Up to `COLUMNS` neighbouring columns.
    #[inline(always)]
    unsafe fn columns(&self, x: *const T, y: *mut T, columns: usize, length: usize) {
        let mut top = [T::neg_infinity(); COLUMNS];
        let mut total = [T::zero(); COLUMNS];
        // SAFETY: promised by the caller: `length` rows of `columns` elements behind both.
        unsafe {
            for i in 0..length {
                for (c, top) in top[..columns].iter_mut().enumerate() {
                    *top = top.max(*x.add(i * self.inner + c) * self.scale);
                }
            }
            for i in 0..length {
                for c in 0..columns {
                    let at = i * self.inner + c;
                    let z = *x.add(at) * self.scale - top[c];
                    let e = z.quick_exp();
                    total[c] += e;
                    *y.add(at) = if self.log { z } else { e };
                }
            }
            for t in &mut total[..columns] {
                *t = if self.log { t.ln() } else { T::one() / *t };
            }
            for i in 0..length {
                for (c, &t) in total[..columns].iter().enumerate() {
                    let v = y.add(i * self.inner + c);
                    *v = if self.log { *v - t } else { *v * t };
                }
            }
        }
    }

    /// `dx` from the output `y` and its gradient `dy`; 0 from a column's length on.
    ///
    /// # Safety
    /// All hold `outer * len * inner` elements; `dx` is `y` or `dy` or apart from both.
    pub unsafe fn backward(
        &self,
        y: *const T,
        dy: *const T,
        dx: *mut T,
        lengths: Option<&[usize]>,
    ) {
        let (y, dy, dx) = (Shared(y.cast_mut()), Shared(dy.cast_mut()), Shared(dx));
        self.groups(lengths, |start, columns, length| {
            let mut total = [T::zero(); COLUMNS];
            // SAFETY: groups are apart; offsets stay below the promised size.
            unsafe {
                let (y, dy, dx) = (y.at(start), dy.at(start), dx.at(start));
                if self.inner == 1 {
                    let log = self.log;
                    total[0] = lanes(length, |i| {
                        let g = *dy.add(i);
                        if log { g } else { g * *y.add(i) }
                    });
                } else {
                    for i in 0..length {
                        for (c, total) in total[..columns].iter_mut().enumerate() {
                            let at = i * self.inner + c;
                            let g = *dy.add(at);
                            *total += if self.log { g } else { g * *y.add(at) };
                        }
                    }
                }
                for i in 0..self.len {
                    for (c, &total) in total[..columns].iter().enumerate() {
                        let at = i * self.inner + c;
                        let (p, g) = (*y.add(at), *dy.add(at));
                        *dx.add(at) = if i >= length {
                            T::zero()
                        } else if self.log {
                            self.scale * (g - p.quick_exp() * total)
                        } else {
                            self.scale * p * (g - total)
                        };
                    }
                }
            }
        });
    }
}

/// The greatest element of `f(0), f(1) ...` in sixteen lanes.
#[inline(always)]
fn greatest<T: Real>(n: usize, f: impl Fn(usize) -> T) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let mut lanes = [T::neg_infinity(); LANES];
    let whole = n / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = larger(*lane, f(start + i));
        }
    }
    let tail = (whole..n).map(f).fold(T::neg_infinity(), larger);
    lanes.into_iter().fold(tail, larger)
}

/// Elements of a row that are calculated together.
const LANES: usize = 16;

crate::simd! {
    /// One contiguous row.
    unsafe fn row[T: Real][T](x: *const T, y: *mut T, n: usize, scale: T, log: bool) -> () {
        // SAFETY: promised by the caller: `n` elements behind both; each block is read before it is written.
        unsafe {
            let top = greatest(n, |i| *x.add(i) * scale);
            let mut sums = [T::zero(); LANES];
            let whole = n / LANES * LANES;
            for start in (0..whole).step_by(LANES) {
                let mut z = [T::zero(); LANES];
                for (i, z) in z.iter_mut().enumerate() {
                    *z = *x.add(start + i) * scale - top;
                }
                let e = z.map(|z| z.quick_exp());
                for (sum, e) in sums.iter_mut().zip(e) {
                    *sum += e;
                }
                y.add(start).copy_from_nonoverlapping(if log { &z } else { &e }.as_ptr(), LANES);
            }
            let mut total: T = sums.iter().copied().sum();
            for i in whole..n {
                let z = *x.add(i) * scale - top;
                let e = z.quick_exp();
                total += e;
                *y.add(i) = if log { z } else { e };
            }
            let (log_total, inverse) = (total.ln(), T::one() / total);
            if log {
                map_serial([y.cast_const()], y, n, |[z]| z - log_total);
            } else {
                map_serial([y.cast_const()], y, n, |[e]| e * inverse);
            }
        }
    }

    unsafe fn columns_of[T: Real][T](
        s: &Softmax<T>, x: *const T, y: *mut T, columns: usize, length: usize,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { s.columns(x, y, columns, length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::naive;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn softmax_matches_naive(
            outer in 0usize..4, len in 0usize..9, inner in 0usize..70, scale in -2.0..2.0f64,
            log: bool, ragged: bool, seed: u64,
        ) {
            let n = outer * len * inner;
            let (x, dy) = (naive::noise(n, seed), naive::noise(n, seed ^ 9));
            let lengths: Vec<usize> = (0..outer * inner).map(|i| 1 + i % (len + 1)).collect();
            let lengths = (ragged && inner < 3 && len > 0).then_some(&lengths[..]);
            let s = Softmax { outer, len, inner, scale, log };
            let (mut y, mut dx) = (vec![0.0; n], vec![0.0; n]);
            // SAFETY: the buffers have `n` elements.
            unsafe {
                s.forward(x.as_ptr(), y.as_mut_ptr(), lengths);
                s.backward(y.as_ptr(), dy.as_ptr(), dx.as_mut_ptr(), lengths);
            }
            let (want_y, want_dx) = naive::softmax(&s, &x, &dy, lengths);
            prop_assert!(naive::close(&y, &want_y, 1e-12));
            prop_assert!(naive::close(&dx, &want_dx, 1e-12));
        }
    }
}
