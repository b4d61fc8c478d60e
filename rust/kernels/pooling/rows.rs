//! Maxima and sums of windows row by row: a row of outputs takes in the same element of all their
//! windows, then the next.

use super::Pool;
use crate::kernels::real::Real;

/// Raises maxima to the elements at `x` and every `stride` after it. (Positions use wrapping
/// arithmetic although they never overflow: checks would prevent vectorisation.)
///
/// # Safety
/// `x` has an element for each.
#[inline(always)]
unsafe fn raise<T: Real>(best: &mut [T], x: *const T, stride: usize) {
    for (i, best) in best.iter_mut().enumerate() {
        // SAFETY: promised by the caller.
        let v = unsafe { *x.add(i.wrapping_mul(stride)) };
        *best = if v > *best { v } else { *best };
    }
}

/// Adds the elements at `x` and every `stride` after it.
///
/// # Safety
/// As [`raise`].
#[inline(always)]
unsafe fn add<T: Real>(sums: &mut [T], x: *const T, stride: usize) {
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: promised by the caller.
        *sum += unsafe { *x.add(i.wrapping_mul(stride)) };
    }
}

/// Adds to the elements at `x` and every `stride` after it.
///
/// # Safety
/// As [`raise`]; nothing else accesses these elements.
#[inline(always)]
unsafe fn add_to<T: Real>(x: *mut T, shares: &[T], stride: usize) {
    for (i, &share) in shares.iter().enumerate() {
        // SAFETY: promised by the caller.
        unsafe { *x.add(i.wrapping_mul(stride)) += share };
    }
}

/// As [`raise`], keeping where the maxima are; the element at `x` is number `first`. While `at` is
/// negative the element is taken whatever its value, as it may be the only one.
///
/// # Safety
/// As [`raise`].
#[inline(always)]
unsafe fn raise_at<T: Real>(
    best: &mut [T],
    at: &mut [i32],
    x: *const T,
    first: usize,
    stride: usize,
) {
    let n = best.len();
    let (best, at) = (&mut best[..n], &mut at[..n]);
    for i in 0..n {
        // SAFETY: promised by the caller.
        let v = unsafe { *x.add(i.wrapping_mul(stride)) };
        let number = (first as i32).wrapping_add((i as i32).wrapping_mul(stride as i32));
        // Values, not places, and no branch: as the compiler makes vectors of it.
        let (value, place) = (best[i], at[i]);
        let better = (v > value) | (place < 0);
        best[i] = if better { v } else { value };
        at[i] = if better { number } else { place };
    }
}

crate::simd! {
    /// The maxima of a plane, row by row.
    ///
    /// # Safety
    /// `x` and `y` are planes of input and output.
    pub unsafe fn maxima[T: Real][T](pool: &Pool, x: *const T, y: *mut T) -> () {
        let [out_d, out_h, out_w] = pool.output;
        for line in 0..out_d * out_h {
            // SAFETY: promised by the caller.
            let y = unsafe { std::slice::from_raw_parts_mut(y.add(line * out_w), out_w) };
            y.fill(T::neg_infinity());
            for k in 0..pool.kernel[0] * pool.kernel[1] {
                let Some(row) = pool.row((line / out_h, line % out_h), k) else { continue };
                for k in 0..pool.kernel[2] {
                    let (good, first) = pool.column(k);
                    let y = &mut y[good];
                    // SAFETY: `column` keeps reads in the row.
                    unsafe {
                        // With strides known at compile time, elements are loaded as vectors.
                        match pool.stride[2] {
                            1 => raise(y, x.add(row + first), 1),
                            2 => raise(y, x.add(row + first), 2),
                            stride => raise(y, x.add(row + first), stride),
                        }
                    }
                }
            }
        }
    }

    /// The gradient of [`maxima`]: the first of equal ones gets it. `best` and `at` are scratch for
    /// a row of outputs.
    ///
    /// # Safety
    /// `x` and `dx` are planes of the input, `dy` is one of the output; `dx` overlaps none of the
    /// others.
    pub unsafe fn maxima_back[T: Real][T](
        pool: &Pool, x: *const T, dy: *const T, dx: *mut T, best: &mut [T], at: &mut [i32],
    ) -> () {
        let [out_d, out_h, out_w] = pool.output;
        // SAFETY: promised by the caller.
        let dx = unsafe { std::slice::from_raw_parts_mut(dx, pool.in_size()) };
        dx.fill(T::zero());
        for line in 0..out_d * out_h {
            best.fill(T::neg_infinity());
            at.fill(-1);
            for k in 0..pool.kernel[0] * pool.kernel[1] {
                let Some(row) = pool.row((line / out_h, line % out_h), k) else { continue };
                for k in 0..pool.kernel[2] {
                    let (good, first) = pool.column(k);
                    let (best, at, first) = (&mut best[good.clone()], &mut at[good], row + first);
                    // SAFETY: `column` keeps reads in the row.
                    unsafe {
                        match pool.stride[2] {
                            1 => raise_at(best, at, x.add(first), first, 1),
                            2 => raise_at(best, at, x.add(first), first, 2),
                            stride => raise_at(best, at, x.add(first), first, stride),
                        }
                    }
                }
            }
            // SAFETY: promised by the caller.
            let dy = unsafe { std::slice::from_raw_parts(dy.add(line * out_w), out_w) };
            for (&at, &g) in at.iter().zip(dy) {
                if at >= 0 {
                    dx[at as usize] += g;
                }
            }
        }
    }

    /// Sums or averages of a plane, row by row; `widths` is from [`Pool::with_widths`].
    ///
    /// # Safety
    /// As [`maxima`].
    pub unsafe fn averages[T: Real][T](pool: &Pool, x: *const T, y: *mut T, widths: &[T]) -> () {
        let [out_d, out_h, out_w] = pool.output;
        for line in 0..out_d * out_h {
            let at = (line / out_h, line % out_h);
            // SAFETY: promised by the caller.
            let y = unsafe { std::slice::from_raw_parts_mut(y.add(line * out_w), out_w) };
            y.fill(T::zero());
            for k in 0..pool.kernel[0] * pool.kernel[1] {
                let Some(row) = pool.row(at, k) else { continue };
                for k in 0..pool.kernel[2] {
                    let (good, first) = pool.column(k);
                    let y = &mut y[good];
                    // SAFETY: `column` keeps reads in the row.
                    unsafe {
                        match pool.stride[2] {
                            1 => add(y, x.add(row + first), 1),
                            2 => add(y, x.add(row + first), 2),
                            stride => add(y, x.add(row + first), stride),
                        }
                    }
                }
            }
            let height = pool.height::<T>(at);
            for i in 0..out_w {
                let count = height * widths[i];
                y[i] /= if count > T::one() { count } else { T::one() };
            }
        }
    }

    /// The gradient of [`averages`]; `shares` is scratch for a row of outputs.
    ///
    /// # Safety
    /// `dx` is a plane of the input, `dy` one of the output; they do not overlap.
    pub unsafe fn averages_back[T: Real][T](
        pool: &Pool, dy: *const T, dx: *mut T, widths: &[T], shares: &mut [T],
    ) -> () {
        let [out_d, out_h, out_w] = pool.output;
        // SAFETY: promised by the caller.
        unsafe { dx.write_bytes(0, pool.in_size()) };
        for line in 0..out_d * out_h {
            let at = (line / out_h, line % out_h);
            let height = pool.height::<T>(at);
            for i in 0..out_w {
                let count = height * widths[i];
                // SAFETY: promised by the caller.
                let g = unsafe { *dy.add(line * out_w + i) };
                shares[i] = g / if count > T::one() { count } else { T::one() };
            }
            for k in 0..pool.kernel[0] * pool.kernel[1] {
                let Some(row) = pool.row(at, k) else { continue };
                for k in 0..pool.kernel[2] {
                    let (good, first) = pool.column(k);
                    let shares = &shares[good];
                    // SAFETY: `column` keeps the elements in the row.
                    unsafe {
                        match pool.stride[2] {
                            1 => add_to(dx.add(row + first), shares, 1),
                            2 => add_to(dx.add(row + first), shares, 2),
                            stride => add_to(dx.add(row + first), shares, stride),
                        }
                    }
                }
            }
        }
    }
}
