//! Softmax and its logarithm along one axis, forward and backward.
//!
//! In single precision exponentials are within 2 ulp, and those below the least normal number are
//! 0.
//!
//! Data is seen as `(outer, len, inner)`. With `inner == 1` a row is contiguous; otherwise a task
//! takes a few neighbouring columns at once, so that memory is read in lines.

use super::pairwise::{LANES, LEAF, Pairwise, join};
use super::parallel::{Shared, parallel_for};
use super::real::Real;

/// Columns handled together when the axis is not the last.
const COLUMNS: usize = 32;
/// Minimum number of elements per task.
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
    /// Calls `f(first element, columns, length)` on groups of columns; `length` is how many
    /// elements of the axis count for the first column of the group (groups have one column if
    /// lengths differ).
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
                    match self.split_scale() {
                        scale if scale == (T::one(), T::one()) => {
                            row::<T, false>(x, y, length, scale, self.log);
                        }
                        scale => row::<T, true>(x, y, length, scale, self.log),
                    }
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
    ///
    /// # Safety
    /// `x` and `y` have `length` rows of `columns` elements, `inner` apart.
    #[inline(always)]
    unsafe fn columns<const FUSED: bool>(
        &self,
        x: *const T,
        y: *mut T,
        columns: usize,
        length: usize,
    ) {
        let [mut top, mut total] = [[T::neg_infinity(); COLUMNS], [T::zero(); COLUMNS]];
        let (sign, factor) = self.split_scale();
        let mut sums = Pairwise::default();
        // SAFETY: promised by the caller.
        unsafe {
            for i in 0..length {
                for (c, top) in top[..columns].iter_mut().enumerate() {
                    let v = *x.add(i * self.inner + c) * sign;
                    *top = if v > *top { v } else { *top };
                }
            }
            for i in 0..length {
                let (mut z, at) = ([T::zero(); COLUMNS], i * self.inner);
                for (c, z) in z[..columns].iter_mut().enumerate() {
                    *z = *x.add(at + c) * sign;
                }
                for (z, &top) in z.iter_mut().zip(&top) {
                    *z = (*z - top) * factor;
                }
                let mut e = z;
                for (e, total) in e.iter_mut().zip(&mut total) {
                    *e = e.exp_below_88::<FUSED>();
                    *total += *e;
                }
                let from = if self.log { &z } else { &e };
                y.add(at).copy_from_nonoverlapping(from.as_ptr(), columns);
                if i % LEAF == LEAF - 1 {
                    sums.push(std::mem::replace(&mut total, [T::zero(); COLUMNS]));
                }
            }
            let mut total = sums.total(total);
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

    /// The scale as a sign and a factor: the greatest element is subtracted first, as the product
    /// could overflow.
    #[inline(always)]
    fn split_scale(&self) -> (T, T) {
        (T::one().copysign(self.scale), self.scale.abs())
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
            // SAFETY: groups are apart; offsets stay below the promised size.
            unsafe {
                let (y, dy, dx) = (y.at(start), dy.at(start), dx.at(start));
                if self.inner == 1 {
                    row_back(y, dy, dx, length, self.scale, self.log);
                    std::slice::from_raw_parts_mut(dx.add(length), self.len - length)
                        .fill(T::zero());
                } else {
                    columns_back(self, y, dy, dx, columns, length);
                }
            }
        });
    }

    /// Up to `COLUMNS` neighbouring columns, backward.
    ///
    /// # Safety
    /// All have `len` rows of `columns` elements, `inner` apart.
    #[inline(always)]
    unsafe fn columns_back<const FUSED: bool>(
        &self,
        y: *const T,
        dy: *const T,
        dx: *mut T,
        columns: usize,
        length: usize,
    ) {
        let mut total = [T::zero(); COLUMNS];
        let mut sums = Pairwise::default();
        // SAFETY: promised by the caller.
        unsafe {
            for i in 0..length {
                for (c, total) in total[..columns].iter_mut().enumerate() {
                    let at = i * self.inner + c;
                    let g = *dy.add(at);
                    *total += if self.log { g } else { g * *y.add(at) };
                }
                if i % LEAF == LEAF - 1 {
                    sums.push(std::mem::replace(&mut total, [T::zero(); COLUMNS]));
                }
            }
            let total = sums.total(total);
            for i in 0..self.len {
                for (c, &total) in total[..columns].iter().enumerate() {
                    let at = i * self.inner + c;
                    let (p, g) = (*y.add(at), *dy.add(at));
                    *dx.add(at) = if i >= length {
                        T::zero()
                    } else if self.log {
                        self.scale * (g - p.exp_below_88::<FUSED>() * total)
                    } else {
                        self.scale * p * (g - total)
                    };
                }
            }
        }
    }
}

/// The first `n` elements at `x` times `scale`, and after them `rest`.
///
/// # Safety
/// `x` holds `n` elements, at most `LANES`.
#[inline(always)]
unsafe fn load<T: Real>(x: *const T, n: usize, scale: T, rest: T) -> [T; LANES] {
    let mut block = [rest; LANES];
    for (i, z) in block[..n].iter_mut().enumerate() {
        // SAFETY: promised by the caller.
        *z = unsafe { *x.add(i) } * scale;
    }
    block
}

/// Writes the first `n` elements of a block.
///
/// # Safety
/// `y` has room for `n` elements, at most `LANES`.
#[inline(always)]
unsafe fn store<T: Real>(block: &[T; LANES], y: *mut T, n: usize) {
    // SAFETY: promised by the caller.
    unsafe { y.copy_from_nonoverlapping(block.as_ptr(), n) };
}

/// The greatest of all lanes.
#[inline(always)]
fn greatest<T: Real>(lanes: [T; LANES]) -> T {
    lanes.into_iter().fold(T::neg_infinity(), |a, b| if b > a { b } else { a })
}

/// Raises lanes to the larger ones of a block; NaN is ignored.
#[inline(always)]
fn raise<T: Real>(lanes: &mut [T; LANES], block: [T; LANES]) {
    for i in 0..LANES {
        lanes[i] = if block[i] > lanes[i] { block[i] } else { lanes[i] };
    }
}

/// A block of a row: `exp(x - top)`, or `x - top` if it is the logarithm, and the sum of the
/// former.
///
/// # Safety
/// `x` and `y` hold `n` elements, at most `LANES`.
#[inline(always)]
unsafe fn exp_block<T: Real, const FUSED: bool>(
    (x, y, n): (*const T, *mut T, usize),
    (sign, top, factor, log): (T, T, T, bool),
    sums: &mut [T; LANES],
) {
    // SAFETY: promised by the caller; the block is read before it is written.
    unsafe {
        let mut z = load(x, n, sign, T::neg_infinity());
        for z in &mut z {
            *z = (*z - top) * factor;
        }
        if log {
            store(&z, y, n);
        }
        for i in 0..LANES {
            z[i] = z[i].exp_below_88::<FUSED>();
        }
        for (sum, &z) in sums[..n].iter_mut().zip(&z) {
            *sum += z;
        }
        if !log {
            store(&z, y, n);
        }
    }
}

/// A block of a row's gradient.
///
/// # Safety
/// All hold `n` elements, at most `LANES`.
#[inline(always)]
unsafe fn back_block<T: Real, const FUSED: bool>(
    (y, dy, dx, n): (*const T, *const T, *mut T, usize),
    (scale, total, log): (T, T, bool),
) {
    // SAFETY: promised by the caller; the block is read before it is written.
    unsafe {
        let (mut p, g) = (load(y, n, T::one(), T::zero()), load(dy, n, T::one(), T::zero()));
        for i in 0..LANES {
            p[i] = if log {
                scale * (g[i] - p[i].exp_below_88::<FUSED>() * total)
            } else {
                scale * p[i] * (g[i] - total)
            };
        }
        store(&p, dx, n);
    }
}

crate::simd! {
    /// One contiguous row; without `SCALED` both parts of the scale are 1.
    ///
    /// # Safety
    /// `x` and `y` hold `n` elements and are the same memory or apart.
    unsafe fn row[T: Real, const SCALED: bool][T, SCALED](
        x: *const T, y: *mut T, n: usize, scale: (T, T), log: bool,
    ) -> () {
        let (whole, least) = (n / LANES * LANES, T::neg_infinity());
        let (sign, factor) = if SCALED { scale } else { (T::one(), T::one()) };
        // SAFETY: promised by the caller; blocks end at `n`.
        unsafe {
            let [mut top, mut other] = [[least; LANES]; 2];
            for i in (0..whole / (2 * LANES) * (2 * LANES)).step_by(2 * LANES) {
                raise(&mut top, load(x.add(i), LANES, sign, least));
                raise(&mut other, load(x.add(i + LANES), LANES, sign, least));
            }
            raise(&mut top, other);
            for i in (whole / (2 * LANES) * (2 * LANES)..n).step_by(LANES) {
                raise(&mut top, load(x.add(i), LANES.min(n - i), sign, least));
            }
            let how = (sign, greatest(top), factor, log);

            // What the end of the row adds has lanes of its own: those of a leaf are addressed by
            // constants alone, so that they stay in registers.
            let (mut rest, mut leaves) = ([T::zero(); LANES], Pairwise::default());
            for first in (0..whole).step_by(LEAF * LANES) {
                let mut sums = [T::zero(); LANES];
                for i in (first..whole.min(first + LEAF * LANES)).step_by(LANES) {
                    exp_block::<T, FUSED>((x.add(i), y.add(i), LANES), how, &mut sums);
                }
                leaves.push(sums);
            }
            if whole < n {
                exp_block::<T, FUSED>((x.add(whole), y.add(whole), n - whole), how, &mut rest);
            }
            let total = join(leaves.total(rest));
            let (log_total, inverse) = (total.ln(), T::one() / total);
            let y = std::slice::from_raw_parts_mut(y, n);
            if log {
                for y in y {
                    *y -= log_total;
                }
            } else {
                for y in y {
                    *y *= inverse;
                }
            }
        }
    }

    /// The gradient of one contiguous row.
    ///
    /// # Safety
    /// All hold `n` elements; `dx` is one of the others or apart.
    unsafe fn row_back[T: Real][T](
        y: *const T, dy: *const T, dx: *mut T, n: usize, scale: T, log: bool,
    ) -> () {
        let whole = n / LANES * LANES;
        // SAFETY: promised by the caller; blocks end at `n`.
        unsafe {
            let (mut rest, mut leaves) = ([T::zero(); LANES], Pairwise::default());
            for first in (0..whole).step_by(LEAF * LANES) {
                let mut sums = [T::zero(); LANES];
                for i in (first..whole.min(first + LEAF * LANES)).step_by(LANES) {
                    for k in 0..LANES {
                        let g = *dy.add(i + k);
                        sums[k] += if log { g } else { g * *y.add(i + k) };
                    }
                }
                leaves.push(sums);
            }
            for i in whole..n {
                let g = *dy.add(i);
                rest[i - whole] += if log { g } else { g * *y.add(i) };
            }
            let how = (scale, join(leaves.total(rest)), log);
            for i in (0..whole).step_by(LANES) {
                back_block::<T, FUSED>((y.add(i), dy.add(i), dx.add(i), LANES), how);
            }
            if whole < n {
                back_block::<T, FUSED>((y.add(whole), dy.add(whole), dx.add(whole), n - whole), how);
            }
        }
    }

    /// [`Softmax::columns_back`], compiled for every instruction set.
    ///
    /// # Safety
    /// As there.
    unsafe fn columns_back[T: Real][T](
        s: &Softmax<T>, y: *const T, dy: *const T, dx: *mut T, columns: usize, length: usize,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { s.columns_back::<FUSED>(y, dy, dx, columns, length) }
    }

    /// [`Softmax::columns`], compiled for every instruction set.
    ///
    /// # Safety
    /// As there.
    unsafe fn columns_of[T: Real][T](
        s: &Softmax<T>, x: *const T, y: *mut T, columns: usize, length: usize,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { s.columns::<FUSED>(x, y, columns, length) }
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
