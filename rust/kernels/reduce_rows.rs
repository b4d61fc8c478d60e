//! Sums and repeats along the outer axis of a matrix: biases and their gradients.

use super::parallel::{Shared, parallel_for};
use super::real::Real;

/// Elements a task handles.
const GRAIN: usize = 1 << 14;

/// `out[i, :] = row` for each of `rows` rows.
///
/// # Safety
/// `row` holds `width` elements, `out` `rows * width`, and they do not overlap.
pub unsafe fn repeat_row<T: Real>(row: *const T, rows: usize, width: usize, out: *mut T) {
    let (row, out) = (Shared(row.cast_mut()), Shared(out));
    parallel_for(rows, GRAIN.div_ceil(width.max(1)), |range| {
        for i in range {
            // SAFETY: promised by the caller; each row is written by one task.
            unsafe { std::ptr::copy_nonoverlapping(row.at(0), out.at(i * width), width) };
        }
    });
}

/// `out[j] = sum over i of x[i, j]`.
///
/// # Safety
/// `x` holds `rows * width` elements, `out` `width`, and they do not overlap.
pub unsafe fn sum_rows<T: Real>(x: *const T, rows: usize, width: usize, out: *mut T) {
    const COLUMNS: usize = 256;
    let (x, out) = (Shared(x.cast_mut()), Shared(out));
    parallel_for(width, COLUMNS, |range| {
        // SAFETY: promised by the caller; each column is summed by one task.
        unsafe {
            let sums = std::slice::from_raw_parts_mut(out.at(range.start), range.len());
            sum_columns(x.at(range.start), rows, width, sums);
        }
    });
}

crate::simd! {
    /// The sums of the first columns of rows of `width` elements.
    ///
    /// # Safety
    /// `x` has `rows` such rows with as many columns as there are sums, and the sums do not overlap it.
    unsafe fn sum_columns[T: Real][T](x: *const T, rows: usize, width: usize, sums: &mut [T]) -> () {
        sums.fill(T::zero());
        for i in 0..rows {
            // SAFETY: promised by the caller.
            let row = unsafe { std::slice::from_raw_parts(x.add(i * width), sums.len()) };
            for (s, &v) in sums.iter_mut().zip(row) {
                *s += v;
            }
        }
    }
}

/// `out[c] = sum over n, p of x[n, c, p]`.
///
/// # Safety
/// `x` holds `n * c * p` elements, `out` `c`, and they do not overlap.
pub unsafe fn sum_channels<T: Real>(x: *const T, (n, c, p): (usize, usize, usize), out: *mut T) {
    let (x, out) = (Shared(x.cast_mut()), Shared(out));
    parallel_for(c, GRAIN.div_ceil((n * p).max(1)), |range| {
        for ch in range {
            // SAFETY: promised by the caller; each channel is summed by one task.
            unsafe {
                let mut total = T::zero();
                for i in 0..n {
                    total += sum(std::slice::from_raw_parts(x.at((i * c + ch) * p), p));
                }
                *out.at(ch) = total;
            }
        }
    });
}

/// The sum of a slice in sixteen lanes: quicker than one by one, and rounds less.
#[inline(always)]
pub fn sum<T: Real>(x: &[T]) -> T {
    const LANES: usize = 16;
    let mut lanes = [T::zero(); LANES];
    let mut blocks = x.chunks_exact(LANES);
    for block in &mut blocks {
        for (lane, &v) in lanes.iter_mut().zip(block) {
            *lane += v;
        }
    }
    let tail: T = blocks.remainder().iter().copied().sum();
    lanes.iter().copied().sum::<T>() + tail
}

/// `x[n, c, p] += bias[c]`.
///
/// # Safety
/// `x` holds `n * c * p` elements, `bias` `c`, and they do not overlap.
pub unsafe fn add_channels<T: Real>(bias: *const T, (n, c, p): (usize, usize, usize), x: *mut T) {
    let (bias, x) = (Shared(bias.cast_mut()), Shared(x));
    parallel_for(n * c, GRAIN.div_ceil(p.max(1)), |range| {
        for i in range {
            // SAFETY: promised by the caller; each plane belongs to one task.
            unsafe {
                let b = *bias.at(i % c);
                for v in std::slice::from_raw_parts_mut(x.at(i * p), p) {
                    *v += b;
                }
            }
        }
    });
}
