//! Sums and repeats along the outer axis of a matrix: biases and their gradients.

use super::parallel::{Shared, parallel_for};
use super::real::Real;
use super::reduce::{Reduction, reduce};
use crate::dtype::Element;
use crate::shape::Shape;
use crate::tensor::View;

/// Elements a task handles.
const GRAIN: usize = 1 << 14;

/// `out[i, :] = row` for each of `rows` rows.
///
/// # Safety
/// `row` holds `width` elements, `out` `rows * width`, and they do not overlap.
pub unsafe fn repeat_row<T: Element>(row: *const T, rows: usize, width: usize, out: *mut T) {
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
    // SAFETY: promised by the caller.
    unsafe { sum_channels(x, (rows, width, 1), out) };
}

/// `out[c] = sum over n, p of x[n, c, p]`.
///
/// # Safety
/// `x` holds `n * c * p` elements, `out` `c`, and they do not overlap.
pub unsafe fn sum_channels<T: Real>(x: *const T, (n, c, p): (usize, usize, usize), out: *mut T) {
    let shape = Shape::new(&[n as i64, c as i64, p as i64]);
    // SAFETY: promised by the caller.
    let (x, out) = unsafe {
        (View::new(x.cast_mut().cast(), shape, T::DTYPE), View::flat(out.cast(), c, T::DTYPE))
    };
    reduce(Reduction::Sum, &x, &[true, false, true], &out);
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
