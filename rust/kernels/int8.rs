//! Matrix products of 8-bit integers, accumulated in 32 bits.
//!
//! Operands are widened to 16 bits when they are packed, so that signed and unsigned bytes are one
//! case; products of neighbouring pairs are added in one instruction where the machine has it.

use super::arch::{Level, level};
use super::conv::Conv;
use super::parallel::{Shared, parallel_for};
use super::scratch::with_scratch;
use half::f16;

/// Packed rows are padded with zeros to a multiple of this: one vector of 512 bits.
const STEP: usize = 32;
/// Rows of a tile of the product.
const ROWS: usize = 4;
/// Columns of a tile of the product.
const COLUMNS: usize = 4;
/// Output positions of a convolution that are packed together.
const POSITIONS: usize = 128;

/// An 8-bit integer.
pub trait Byte: Copy + Send + Sync + 'static {
    fn widen(self) -> i16;
}

impl Byte for i8 {
    #[inline(always)]
    fn widen(self) -> i16 {
        self.into()
    }
}

impl Byte for u8 {
    #[inline(always)]
    fn widen(self) -> i16 {
        self.into()
    }
}

/// The length of a packed row of `n` elements.
fn packed(n: usize) -> usize {
    n.next_multiple_of(STEP)
}

/// Widens a row to `to`, whose rest becomes 0.
fn pack_row<T: Byte>(from: &[T], to: &mut [i16]) {
    let (row, rest) = to.split_at_mut(from.len());
    for (to, &from) in row.iter_mut().zip(from) {
        *to = from.widen();
    }
    rest.fill(0);
}

/// Calls `f` with scratch of 16-bit integers.
fn with_packed<R>(len: usize, f: impl FnOnce(&mut [i16]) -> R) -> R {
    with_scratch(len, |room: &mut [f16]| {
        // SAFETY: both types have two bytes, and any bytes are valid for either.
        f(unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), len) })
    })
}

type Tile = [[i32; COLUMNS]; ROWS];

/// The scalar products of each row of `a` with each of `b`.
///
/// # Safety
/// Each pointer is valid for `k` elements, a multiple of [`STEP`].
unsafe fn tile(a: [*const i16; ROWS], b: [*const i16; COLUMNS], k: usize) -> Tile {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the machine has these instructions; the rest is promised by the caller.
    unsafe {
        match level() {
            Level::Avx512 => return x86::tile_avx512(a, b, k),
            Level::Avx2 => return x86::tile_avx2(a, b, k),
            Level::Baseline => {}
        }
    }
    let mut sums = [[0i32; COLUMNS]; ROWS];
    for (sums, a) in sums.iter_mut().zip(a) {
        for (sum, b) in sums.iter_mut().zip(b) {
            for i in 0..k {
                // SAFETY: promised by the caller.
                let (x, y) = unsafe { (i32::from(*a.add(i)), i32::from(*b.add(i))) };
                *sum = sum.wrapping_add(x * y);
            }
        }
    }
    sums
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{COLUMNS, ROWS, STEP, Tile};
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::tile`], on a machine with AVX-512 F and BW.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub unsafe fn tile_avx512(a: [*const i16; ROWS], b: [*const i16; COLUMNS], k: usize) -> Tile {
        let mut sums = [[_mm512_setzero_si512(); COLUMNS]; ROWS];
        for at in (0..k).step_by(STEP) {
            // SAFETY: promised by the caller.
            let b = b.map(|b| unsafe { _mm512_loadu_si512(b.add(at).cast()) });
            for (sums, a) in sums.iter_mut().zip(a) {
                // SAFETY: as above.
                let a = unsafe { _mm512_loadu_si512(a.add(at).cast()) };
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = _mm512_add_epi32(*sum, _mm512_madd_epi16(a, b));
                }
            }
        }
        sums.map(|row| row.map(|sum| _mm512_reduce_add_epi32(sum)))
    }

    /// # Safety
    /// As [`super::tile`], on a machine with AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn tile_avx2(a: [*const i16; ROWS], b: [*const i16; COLUMNS], k: usize) -> Tile {
        let mut out = [[0; COLUMNS]; ROWS];
        // Two rows at a time: eight sums fit in the registers.
        for r in (0..ROWS).step_by(2) {
            let mut sums = [[_mm256_setzero_si256(); COLUMNS]; 2];
            for at in (0..k).step_by(STEP / 2) {
                // SAFETY: promised by the caller.
                let b = b.map(|b| unsafe { _mm256_loadu_si256(b.add(at).cast()) });
                for (sums, a) in sums.iter_mut().zip(&a[r..]) {
                    // SAFETY: as above.
                    let a = unsafe { _mm256_loadu_si256(a.add(at).cast()) };
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(a, b));
                    }
                }
            }
            for (out, sums) in out[r..].iter_mut().zip(sums) {
                for (out, sum) in out.iter_mut().zip(sums) {
                    let mut lanes = [0i32; 8];
                    // SAFETY: the array holds a vector.
                    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
                    *out = lanes.into_iter().fold(0i32, i32::wrapping_add);
                }
            }
        }
        out
    }
}

/// `put(i, j, sum over l of a[i, l] * b[j, l])` for all rows `i` of `a` and `j` of `b`, which are
/// packed rows of `k` elements.
fn products(a: &[i16], b: &[i16], k: usize, mut put: impl FnMut(usize, usize, i32)) {
    if k == 0 {
        return;
    }
    let (rows, columns) = (a.len() / k, b.len() / k);
    for i in (0..rows).step_by(ROWS) {
        for j in (0..columns).step_by(COLUMNS) {
            // Beyond the end the last row stands in, whose products are not used.
            let row = |r: usize| a[(i + r).min(rows - 1) * k..].as_ptr();
            let column = |c: usize| b[(j + c).min(columns - 1) * k..].as_ptr();
            // SAFETY: these rows lie in `a` and `b`, and `k` is a multiple of `STEP`.
            let sums = unsafe { tile(std::array::from_fn(row), std::array::from_fn(column), k) };
            for (r, sums) in sums.iter().enumerate().take(rows - i) {
                for (c, &sum) in sums.iter().enumerate().take(columns - j) {
                    put(i + r, j + c, sum);
                }
            }
        }
    }
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
    let (x, w, y) = (Shared(x.cast_mut()), Shared(w.cast_mut()), Shared(y));
    let len = packed(k.max(1));
    with_packed(rows * len, |data| {
        for (i, row) in data.chunks_exact_mut(len).enumerate() {
            // SAFETY: promised by the caller.
            pack_row(unsafe { std::slice::from_raw_parts(x.at(i * k), k) }, row);
        }
        let data = &*data;
        parallel_for(width, (1usize << 18).div_ceil((rows * len).max(1)), |range| {
            with_packed(range.len() * len, |weights| {
                for (j, row) in range.clone().zip(weights.chunks_exact_mut(len)) {
                    // SAFETY: promised by the caller.
                    pack_row(unsafe { std::slice::from_raw_parts(w.at(j * k), k) }, row);
                }
                products(data, weights, len, |i, j, sum| {
                    let j = range.start + j;
                    let sum = sum.wrapping_add(start.get(j).copied().unwrap_or(0));
                    // SAFETY: each column belongs to one task.
                    unsafe { *y.at(i * width + j) = sum };
                });
            });
        });
    });
}

/// The convolution of `x` with the filters `w`, channels first, each filter's sums beginning with
/// `start`; sums wrap beyond 32 bits.
///
/// # Safety
/// `x`, `w` and `y` have the extents of `conv` and do not overlap; `start` is empty or holds an
/// element for each filter.
pub unsafe fn convolve<T: Byte>(
    conv: &Conv,
    x: *const T,
    w: *const i8,
    start: &[i32],
    y: *mut i32,
) {
    let (x, y) = (Shared(x.cast_mut()), Shared(y));
    let (k, filters, size) = (conv.in_c * conv.taps(), conv.groups * conv.out_c, conv.out_size());
    let len = packed(k.max(1));
    let blocks = size.div_ceil(POSITIONS);
    with_packed(filters * len, |weights| {
        for (f, row) in weights.chunks_exact_mut(len).enumerate() {
            // SAFETY: promised by the caller.
            pack_row(unsafe { std::slice::from_raw_parts(w.add(f * k), k) }, row);
        }
        let weights = &*weights;
        parallel_for(conv.batch * conv.groups * blocks, 1, |range| {
            with_packed(POSITIONS * len, |columns| {
                for task in range.clone() {
                    let (plane, block) = (task / blocks, task % blocks);
                    let (n, group) = (plane / conv.groups, plane % conv.groups);
                    let from = block * POSITIONS;
                    let count = POSITIONS.min(size - from);
                    let columns = &mut columns[..count * len];
                    let image = (n * conv.groups + group) * conv.in_c * conv.in_size();
                    for (p, column) in columns.chunks_exact_mut(len).enumerate() {
                        // SAFETY: the group's channels lie in the image.
                        unsafe { pack_window(conv, x.at(image), from + p, column) };
                    }
                    let first = group * conv.out_c;
                    let rows = &weights[first * len..(first + conv.out_c) * len];
                    products(rows, columns, len, |f, p, sum| {
                        let f = first + f;
                        let sum = sum.wrapping_add(start.get(f).copied().unwrap_or(0));
                        // SAFETY: each group of filters at a block of positions is one task's.
                        unsafe { *y.at((n * filters + f) * size + from + p) = sum };
                    });
                }
            });
        });
    });
}

/// Packs what the filters see at output `position`; elements outside the image are 0.
///
/// # Safety
/// `x` holds the `in_c` planes of one group.
unsafe fn pack_window<T: Byte>(conv: &Conv, x: *const T, position: usize, column: &mut [i16]) {
    let [_, out_h, out_w] = conv.output;
    let at = [position / (out_h * out_w), position / out_w % out_h, position % out_w];
    let source = |axis: usize, tap: usize| {
        (at[axis] * conv.stride[axis] + tap * conv.dilate[axis])
            .checked_sub(conv.pad[axis])
            .filter(|&i| i < conv.input[axis])
    };
    let mut next = column.iter_mut();
    for c in 0..conv.in_c {
        for d in 0..conv.kernel[0] {
            for h in 0..conv.kernel[1] {
                let row = source(0, d)
                    .zip(source(1, h))
                    .map(|(d, h)| c * conv.in_size() + (d * conv.input[1] + h) * conv.input[2]);
                for w in 0..conv.kernel[2] {
                    let Some(to) = next.next() else { return };
                    *to = match row.zip(source(2, w)) {
                        // SAFETY: both positions were found inside the image.
                        Some((row, w)) => unsafe { (*x.add(row + w)).widen() },
                        None => 0,
                    };
                }
            }
        }
    }
    next.for_each(|rest| *rest = 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(n: usize, seed: u64) -> Vec<u8> {
        (0..n as u64)
            .map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8)
            .collect()
    }

    proptest! {
        #[test]
        fn products_are_exact(rows in 0usize..7, width in 0usize..9, k in 0usize..70, seed: u64) {
            let x = bytes(rows * k, seed);
            let w: Vec<i8> = bytes(width * k, seed ^ 1).iter().map(|&b| b as i8).collect();
            let start: Vec<i32> = (0..width as i32).map(|j| j * 1000 - 7).collect();
            let mut y = vec![9; rows * width];
            // SAFETY: the buffers have these extents.
            unsafe { linear((rows, width, k), x.as_ptr(), w.as_ptr(), &start, y.as_mut_ptr()) };
            for i in 0..rows {
                for j in 0..width {
                    let terms = (0..k).map(|l| i32::from(x[i * k + l]) * i32::from(w[j * k + l]));
                    prop_assert_eq!(y[i * width + j], terms.sum::<i32>() + start[j]);
                }
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
                crate::kernels::conv::forward(&conv, fx.as_ptr(), fw.as_ptr(), Some(bias.as_ptr()), want.as_mut_ptr());
            }
            for (got, want) in y.iter().zip(&want) {
                prop_assert!((f64::from(*got) - want).abs() < 0.25, "{got} {want}");
            }
        }
    }
}
