//! Pooling of 8-bit integers: maxima as bytes; averages, which are exact in float32, by the kernel
//! of real numbers.

use super::Byte;
use super::convert::{Integer, ToReal, ToUnits, each};
use crate::kernels::parallel::Shared;
use crate::kernels::pooling::{Pool, PoolKind};
use crate::kernels::scratch::with_scratch;

/// `y = pool(x)`, with halves rounded to the even integer.
///
/// # Safety
/// `x` is (planes, input), `y` (planes, output); they do not overlap.
pub unsafe fn pool<T: Byte + Integer>(pool: &Pool, x: *const T, y: *mut T) {
    let (x, y, [input, output]) =
        (Shared(x.cast_mut()), Shared(y), [pool.in_size(), pool.out_size()]);
    pool.for_planes(|plane| {
        // SAFETY: promised by the caller; each plane of `y` belongs to one task.
        unsafe {
            let (x, y) = (x.at(plane * input).cast_const(), y.at(plane * output));
            if pool.kind == PoolKind::Max {
                return with_scratch(row_room(pool), |row| maxima(pool, x, y, row));
            }
            with_scratch(input, |wide: &mut [f32]| {
                with_scratch(output, |averages: &mut [f32]| {
                    each(ToReal { unit: 1.0 }, x, wide.as_mut_ptr(), input);
                    pool.plane(wide.as_ptr(), averages.as_mut_ptr());
                    let units = ToUnits { factor: 1.0, shift: 0.0 };
                    each(units, averages.as_ptr(), y, output);
                });
            });
        }
    });
}

/// Elements of a row with all that the windows reach beside it.
fn row_room(pool: &Pool) -> usize {
    let reached = pool.output[2].saturating_sub(1) * pool.stride[2] + pool.kernel[2];
    reached.max(pool.pad[2] + pool.input[2])
}

/// `to[i] = max(to[i], from[i * stride])`.
///
/// # Safety
/// `from` has these elements.
#[inline(always)]
unsafe fn raise<T: Copy + PartialOrd>(to: &mut [T], from: *const T, stride: usize) {
    for (i, to) in to.iter_mut().enumerate() {
        // SAFETY: promised by the caller.
        let v = unsafe { *from.add(i * stride) };
        *to = if v > *to { v } else { *to };
    }
}

crate::simd! {
    /// The maxima of a plane, row by row: the rows of a line of windows become one, which the taps
    /// of the windows read with their stride. Windows that see nothing have the least integer.
    ///
    /// # Safety
    /// `x` and `y` are planes of input and output; `row` has [`row_room`] elements.
    unsafe fn maxima[T: Integer][T](pool: &Pool, x: *const T, y: *mut T, row: &mut [T]) -> () {
        let ([out_d, out_h, out_w], [_, _, width]) = (pool.output, pool.input);
        let (least, inside) = (T::of(T::LEAST as i32), pool.pad[2]..pool.pad[2] + width);
        row.fill(least);
        for at in 0..out_d * out_h {
            row[inside.clone()].fill(least);
            for k in 0..pool.kernel[0] * pool.kernel[1] {
                let Some(from) = pool.row((at / out_h, at % out_h), k) else { continue };
                // SAFETY: the plane has this row.
                unsafe { raise(&mut row[inside.clone()], x.add(from * width), 1) };
            }
            // SAFETY: promised by the caller; the taps of all windows lie in the row.
            unsafe {
                let y = std::slice::from_raw_parts_mut(y.add(at * out_w), out_w);
                y.fill(least);
                for tap in 0..pool.kernel[2] {
                    let from = row.as_ptr().add(tap);
                    match pool.stride[2] {
                        1 => raise(y, from, 1),
                        2 => raise(y, from, 2),
                        stride => raise(y, from, stride),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pooling_is_that_of_doubles(
            kernel in 1usize..5, stride in 1usize..4, pad in 0usize..3, size in 5usize..40, seed: u64,
            with_pad: bool,
        ) {
            let pad = pad.min(kernel - 1);
            let out = |size: usize| (size + 2 * pad - kernel) / stride + 1;
            for kind in [PoolKind::Max, PoolKind::Average { with_pad }] {
                let shape = Pool {
                    kind, planes: 3, input: [1, 6, size], kernel: [1, kernel, kernel],
                    output: [1, out(6), out(size)], stride: [1, stride, stride], pad: [0, pad, pad],
                };
                let noise = |i: u64| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as i8;
                let x: Vec<i8> = (0..(3 * 6 * size) as u64).map(noise).collect();
                let mut y = vec![0i8; 3 * shape.out_size()];
                let (wide, mut want) = (x.iter().map(|&q| f64::from(q)).collect::<Vec<f64>>(), vec![0.0; y.len()]);
                // SAFETY: the buffers have these extents.
                unsafe {
                    pool(&shape, x.as_ptr(), y.as_mut_ptr());
                    shape.forward(wide.as_ptr(), want.as_mut_ptr());
                }
                for (got, want) in y.iter().zip(&want) {
                    // int8 keeps to -127 to 127.
                    prop_assert_eq!(f64::from(*got), want.round_ties_even().max(-127.0));
                }
            }
        }
    }
}
