//! Matrix products and convolutions of 8-bit integers, accumulated in 32 bits.
//!
//! The micro-kernel (`tile.rs`) multiplies unsigned bytes by signed ones. Weights are signed; data
//! that is signed, too, is moved up by 128 when it is packed, and each sum begins 128 times the sum
//! of its weights lower.

mod convolution;
mod tile;

use super::arch::transpose::squares_4;
use super::parallel::{Shared, parallel_for};
use super::scratch::with_scratch;
pub use convolution::convolve;
use std::ops::Range;
use tile::{COLUMNS, GROUP, Instructions, Operands, ROWS};

/// Products that a task makes at least.
const GRAIN: usize = 1 << 19;

/// An 8-bit integer.
pub trait Byte: Copy + Send + Sync + 'static {
    /// By how much unsigned bytes are greater: 128 for signed integers.
    const MOVED: i32;
    /// The integer plus [`Byte::MOVED`].
    fn moved(self) -> u8;
}

impl Byte for i8 {
    const MOVED: i32 = 128;
    #[inline(always)]
    fn moved(self) -> u8 {
        self as u8 ^ 0x80
    }
}

impl Byte for u8 {
    const MOVED: i32 = 0;
    #[inline(always)]
    fn moved(self) -> u8 {
        self
    }
}

/// Calls `f` with scratch for `n` groups of bytes.
fn with_groups<R>(n: usize, f: impl FnOnce(&mut [i32]) -> R) -> R {
    with_scratch(n, f)
}

/// Where the sums with each of the `rows` of `w`, of `k` weights, begin.
///
/// # Safety
/// `w` holds `rows * k` elements; `start` is empty or holds `rows`.
unsafe fn starts<T: Byte>(w: *const i8, rows: usize, k: usize, start: &[i32]) -> Vec<i32> {
    let of_row = |j: usize| {
        let start = start.get(j).copied().unwrap_or(0);
        match T::MOVED {
            0 => start,
            // SAFETY: promised by the caller.
            by => start.wrapping_sub(by.wrapping_mul(unsafe { sum(w.add(j * k), k) })),
        }
    };
    (0..rows).map(of_row).collect()
}

crate::simd! {
    /// The sum of `n` bytes.
    ///
    /// # Safety
    /// `w` holds `n` elements.
    unsafe fn sum[][](w: *const i8, n: usize) -> i32 {
        let mut sum = 0i32;
        for i in 0..n {
            // SAFETY: promised by the caller.
            sum = sum.wrapping_add(i32::from(unsafe { *w.add(i) }));
        }
        sum
    }

    /// Packs `height` rows of `k` bytes for a tile; the rest of the last group is 0.
    ///
    /// # Safety
    /// `x` holds `height * k` elements, `to` has room for as many rows of groups.
    unsafe fn pack_rows[T: Byte][T](x: *const T, height: usize, k: usize, to: *mut i32) -> () {
        let whole = k / GROUP;
        for r in 0..height {
            // SAFETY: promised by the caller.
            unsafe {
                let x = x.add(r * k);
                for g in 0..whole {
                    let group = x.add(g * GROUP).cast::<[T; GROUP]>().read();
                    *to.add(g * height + r) = i32::from_ne_bytes(group.map(T::moved));
                }
                if whole * GROUP < k {
                    let mut last = [0; GROUP];
                    for (l, byte) in last[..k - whole * GROUP].iter_mut().enumerate() {
                        *byte = (*x.add(whole * GROUP + l)).moved();
                    }
                    *to.add(whole * height + r) = i32::from_ne_bytes(last);
                }
            }
        }
    }

    /// Writes the first columns of a row of sums, each with its start or all with one.
    ///
    /// # Safety
    /// `y` has room for `count` elements; `start` holds one or as many.
    unsafe fn put[const EACH: bool][EACH](
        sums: &[i32; COLUMNS], start: *const i32, y: *mut i32, count: usize,
    ) -> () {
        for c in 0..count.min(COLUMNS) {
            // SAFETY: promised by the caller.
            unsafe { *y.add(c) = sums[c].wrapping_add(*start.add(if EACH { c } else { 0 })) };
        }
    }
}

/// Packs `count` rows of `k` weights as the columns of a tile.
///
/// # Safety
/// `w` holds `count * k` elements, at most [`COLUMNS`] rows; `to` has room for the groups of
/// [`COLUMNS`] columns.
unsafe fn pack_columns(w: *const i8, count: usize, k: usize, to: *mut i32) {
    let whole = k / GROUP;
    // SAFETY: promised by the caller.
    unsafe {
        let mut done = (0, 0);
        if k.is_multiple_of(GROUP) {
            let to = (to.cast::<f32>(), COLUMNS as isize);
            done = squares_4((w.cast(), whole as isize), to, (whole, count));
        }
        for c in 0..count {
            let row = w.add(c * k);
            for g in if c < done.1 { done.0 } else { 0 }..whole {
                *to.add(g * COLUMNS + c) = row.add(g * GROUP).cast::<i32>().read_unaligned();
            }
            if whole * GROUP < k {
                let mut last = [0; GROUP];
                for (l, byte) in last[..k - whole * GROUP].iter_mut().enumerate() {
                    *byte = *row.add(whole * GROUP + l) as u8;
                }
                *to.add(whole * COLUMNS + c) = i32::from_ne_bytes(last);
            }
        }
    }
}

/// The rows of tile `t` of `tiles`, whose heights differ by at most one.
#[inline(always)]
fn tile_rows(rows: usize, tiles: usize, t: usize) -> Range<usize> {
    t * rows / tiles..(t + 1) * rows / tiles
}

/// `y[i, j] = sum over l of x[i, l] * w[j, l] + start[j]`, with `y` of `(rows, width)` and inner
/// extent `k`; sums wrap beyond 32 bits.
///
/// # Safety
/// `x` holds `rows * k` elements, `w` `width * k`, `start` is empty or holds `width`, `y`
/// `rows * width`; `y` overlaps none of the others.
pub unsafe fn linear<T: Byte>(
    (rows, width, k): (usize, usize, usize),
    x: *const T,
    w: *const i8,
    start: &[i32],
    y: *mut i32,
) {
    let groups = k.div_ceil(GROUP);
    // SAFETY: promised by the caller.
    let start = unsafe { starts::<T>(w, width, k, start) };
    let (x, w, y) = (Shared(x.cast_mut()), Shared(w.cast_mut()), Shared(y));
    let (how, panels) = (Instructions::best(), width.div_ceil(COLUMNS));
    let tiles = rows.div_ceil(ROWS);
    with_groups(rows * groups, |data| {
        let data = Shared(data.as_mut_ptr());
        parallel_for(tiles, GRAIN.div_ceil(16 * ROWS * k.max(1)), |range| {
            for rows in range.map(|t| tile_rows(rows, tiles, t)) {
                // SAFETY: promised by the caller; tiles are apart.
                unsafe {
                    let from = x.at(rows.start * k).cast_const();
                    pack_rows(from, rows.len(), k, data.at(rows.start * groups));
                }
            }
        });
        let grain = GRAIN.div_ceil((rows * k * COLUMNS).max(1));
        parallel_for(panels, grain, |range| {
            with_groups(groups * COLUMNS, |weights| {
                let mut sums = [[0; COLUMNS]; ROWS];
                for first in range.map(|panel| panel * COLUMNS) {
                    let count = COLUMNS.min(width - first);
                    // SAFETY: the rows of weights exist.
                    unsafe { pack_columns(w.at(first * k), count, k, weights.as_mut_ptr()) };
                    let (columns, start) = (weights.as_ptr(), start[first..].as_ptr());
                    for rows in (0..tiles).map(|t| tile_rows(rows, tiles, t)) {
                        // SAFETY: the rows of data exist, and each column of `y` is one task's.
                        unsafe {
                            let from = data.at(rows.start * groups).cast_const();
                            let operands = Operands { rows: from, columns, groups };
                            how.tile::<false>(rows.len(), operands, &mut sums);
                            for (i, sums) in rows.zip(&sums) {
                                put::<true>(sums, start, y.at(i * width + first), count);
                            }
                        }
                    }
                }
            });
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::conv::Conv;
    use proptest::prelude::*;

    fn bytes(n: usize, seed: u64) -> Vec<u8> {
        (0..n as u64)
            .map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8)
            .collect()
    }

    proptest! {
        #[test]
        fn products_are_exact(rows in 0usize..30, width in 0usize..70, k in 0usize..70, seed: u64) {
            let x = bytes(rows * k, seed);
            let w: Vec<i8> = bytes(width * k, seed ^ 1).iter().map(|&b| b as i8).collect();
            let start: Vec<i32> = (0..width as i32).map(|j| j * 1000 - 7).collect();
            let mut y = vec![9; rows * width];
            // SAFETY: the buffers have these extents.
            unsafe { linear((rows, width, k), x.as_ptr(), w.as_ptr(), &start, y.as_mut_ptr()) };
            let signed: Vec<i8> = x.iter().map(|&b| b as i8).collect();
            let mut of_signed = vec![9; rows * width];
            // SAFETY: as above.
            unsafe {
                let to = of_signed.as_mut_ptr();
                linear((rows, width, k), signed.as_ptr(), w.as_ptr(), &start, to);
            }
            for (i, j) in (0..rows).flat_map(|i| (0..width).map(move |j| (i, j))) {
                let want = |x: &dyn Fn(usize) -> i32| {
                    let terms = (0..k).map(|l| x(i * k + l) * i32::from(w[j * k + l]));
                    terms.sum::<i32>() + start[j]
                };
                prop_assert_eq!(y[i * width + j], want(&|at| i32::from(x[at])));
                prop_assert_eq!(of_signed[i * width + j], want(&|at| i32::from(signed[at])));
            }
        }

        #[test]
        fn convolutions_are_those_of_doubles(
            groups in 1usize..3, in_c in 1usize..4, out_c in 1usize..6, kernel in 1usize..4,
            stride in 1usize..3, pad in 0usize..3, dilate in 1usize..3, size in 5usize..16, seed: u64,
        ) {
            let reach = dilate * (kernel - 1) + 1;
            let out = (size + 2 * pad - reach) / stride + 1;
            let conv = Conv {
                batch: 2, groups, in_c, out_c,
                input: [1, size, size], kernel: [1, kernel, kernel], output: [1, out, out],
                stride: [1, stride, stride], pad: [0, pad, pad], dilate: [1, dilate, dilate],
            };
            let filters = groups * out_c;
            let x: Vec<i8> = bytes(2 * groups * in_c * size * size, seed).iter().map(|&b| b as i8).collect();
            let w: Vec<i8> = bytes(filters * in_c * kernel * kernel, seed ^ 1).iter().map(|&b| b as i8).collect();
            let start: Vec<i32> = (0..filters as i32).collect();
            let mut y = vec![1; 2 * filters * out * out];
            // SAFETY: the buffers have these extents.
            unsafe { convolve(&conv, x.as_ptr(), w.as_ptr(), &start, y.as_mut_ptr()) };
            let float = |v: &[i8]| v.iter().map(|&b| f64::from(b)).collect::<Vec<f64>>();
            let (fx, fw) = (float(&x), float(&w));
            let bias: Vec<f64> = start.iter().map(|&b| f64::from(b)).collect();
            let mut want = vec![0.0; y.len()];
            // SAFETY: as above.
            unsafe {
                crate::kernels::conv::forward(&conv, fx.as_ptr(), fw.as_ptr(), Some(bias.as_ptr()), want.as_mut_ptr(), None);
            }
            for (got, want) in y.iter().zip(&want) {
                prop_assert!((f64::from(*got) - want).abs() < 0.25, "{got} {want}");
            }
        }
    }
}
