//! Matrix products, convolutions and pooling of 8-bit integers, accumulated in 32 bits, and what
//! makes integers of real numbers.
//!
//! How operands are packed depends on the micro-kernels of the machine (`tile.rs`). Those for VNNI
//! multiply unsigned bytes by signed ones. Weights are signed; where data is signed, too, one of
//! both is moved up by 128: in convolutions the data, when it is packed, and each sum begins 128
//! times the sum of its weights lower; in matrix products the weights. Those of arm64 multiply
//! signed bytes: there it is unsigned data that is moved, down.

pub mod convert;
mod convolution;
mod linear;
mod pooling;
mod tile;

use super::arch::transpose::squares_4;
use super::scratch::with_scratch;
pub use convolution::convolve;
pub use linear::linear;
pub use pooling::pool;
use std::ops::Range;
use tile::{MOST_COLUMNS, MOST_MEMBERS, Tiles};

/// Products that a task makes at least.
const GRAIN: usize = 1 << 19;

/// An 8-bit integer.
pub trait Byte: Copy + Send + Sync + 'static {
    /// By how much unsigned bytes are greater: 128 for signed integers.
    const MOVED: i32;
    /// The integer plus [`Byte::MOVED`].
    fn moved(self) -> u8;
    /// The integer in 16 bits.
    fn wide(self) -> i16;
}

impl Byte for i8 {
    const MOVED: i32 = 128;
    #[inline(always)]
    fn moved(self) -> u8 {
        self as u8 ^ 0x80
    }
    #[inline(always)]
    fn wide(self) -> i16 {
        self.into()
    }
}

impl Byte for u8 {
    const MOVED: i32 = 0;
    #[inline(always)]
    fn moved(self) -> u8 {
        self
    }
    #[inline(always)]
    fn wide(self) -> i16 {
        self.into()
    }
}

/// Calls `f` with scratch for `n` groups.
fn with_groups<R>(n: usize, f: impl FnOnce(&mut [i32]) -> R) -> R {
    with_scratch(n, f)
}

/// Where the sums with each of the `rows` of `w`, of `k` weights, begin.
///
/// # Safety
/// `w` holds `rows * k` elements; `start` is empty or holds `rows`.
unsafe fn starts<G: Tiles, T: Byte>(
    w: *const i8,
    rows: usize,
    k: usize,
    start: &[i32],
) -> Vec<i32> {
    let of_row = |j: usize| {
        let start = start.get(j).copied().unwrap_or(0);
        match G::moved::<T>() {
            0 => start,
            // SAFETY: promised by the caller.
            by => start.wrapping_sub(by.wrapping_mul(unsafe { sum(w.add(j * k), k) })),
        }
    };
    (0..rows).map(of_row).collect()
}

/// The group of the members that `at` has, of which there are `count`; the rest is 0.
#[inline(always)]
fn group_of<G: Tiles>(count: usize, at: impl Fn(usize) -> u32) -> i32 {
    let mut members = [0; MOST_MEMBERS];
    for (l, member) in members.iter_mut().enumerate().take(count.min(G::MEMBERS)) {
        *member = at(l);
    }
    G::group(members)
}

crate::simd! {
    /// The sum of `n` bytes.
    ///
    /// # Safety
    /// `w` holds `n` elements.
    unsafe fn sum[][](w: *const i8, n: usize) -> i32 {
        const LANES: usize = 64;
        // As many bytes as 16 bits hold the sum of.
        const MOST: usize = 255 * LANES;
        let mut total = 0i32;
        for first in (0..n).step_by(MOST) {
            let count = MOST.min(n - first);
            let mut lanes = [0i16; LANES];
            let whole = count / LANES * LANES;
            // SAFETY: promised by the caller.
            unsafe {
                let w = w.add(first);
                for at in (0..whole).step_by(LANES) {
                    for l in 0..LANES {
                        lanes[l] = lanes[l].wrapping_add(i16::from(*w.add(at + l)));
                    }
                }
                for at in whole..count {
                    total = total.wrapping_add(i32::from(*w.add(at)));
                }
            }
            for lane in lanes {
                total = total.wrapping_add(i32::from(lane));
            }
        }
        total
    }

    /// Packs `height` rows of `k` integers for a tile; the rest of the last group is 0.
    ///
    /// # Safety
    /// `x` holds `height * k` elements, `to` has room for as many rows of groups.
    unsafe fn pack_rows[G: Tiles, T: Byte][G, T](
        x: *const T, height: usize, k: usize, to: *mut i32,
    ) -> () {
        let whole = k / G::MEMBERS;
        for r in 0..height {
            // SAFETY: promised by the caller.
            unsafe {
                let x = x.add(r * k);
                for g in 0..whole {
                    let mut members = [0; MOST_MEMBERS];
                    for l in 0..G::MEMBERS {
                        members[l] = G::data(*x.add(g * G::MEMBERS + l));
                    }
                    *to.add(g * height + r) = G::group(members);
                }
                let rest = k - whole * G::MEMBERS;
                if rest > 0 {
                    let last = x.add(whole * G::MEMBERS);
                    *to.add(whole * height + r) = group_of::<G>(rest, |l| G::data(*last.add(l)));
                }
            }
        }
    }

    /// Packs a row of `k` weights, one group after the other; the rest of the last group is 0.
    ///
    /// # Safety
    /// `w` holds `k` elements, `to` has room for their groups.
    unsafe fn pack_row[G: Tiles][G](w: *const i8, k: usize, to: *mut i32) -> () {
        let whole = k / G::MEMBERS;
        // SAFETY: promised by the caller.
        unsafe {
            for g in 0..whole {
                let mut members = [0; MOST_MEMBERS];
                for l in 0..G::MEMBERS {
                    members[l] = G::weight(*w.add(g * G::MEMBERS + l));
                }
                *to.add(g) = G::group(members);
            }
            let rest = k - whole * G::MEMBERS;
            if rest > 0 {
                let last = w.add(whole * G::MEMBERS);
                *to.add(whole) = group_of::<G>(rest, |l| G::weight(*last.add(l)));
            }
        }
    }

    /// Writes the first columns of a row of sums that begin with `start`.
    ///
    /// # Safety
    /// `y` has room for `count` elements.
    unsafe fn put[][](sums: &[i32; MOST_COLUMNS], start: i32, y: *mut i32, count: usize) -> () {
        for c in 0..count.min(MOST_COLUMNS) {
            // SAFETY: promised by the caller.
            unsafe { *y.add(c) = sums[c].wrapping_add(start) };
        }
    }
}

/// Packs `count` rows of `k` weights as the columns of a tile.
///
/// # Safety
/// `w` holds `count * k` elements, at most [`Tiles::COLUMNS`] rows; `to` has room for the groups of
/// as many columns.
unsafe fn pack_columns<G: Tiles>(w: *const i8, count: usize, k: usize, to: *mut i32) {
    let groups = k.div_ceil(G::MEMBERS);
    with_groups(count * groups, |room| {
        // SAFETY: promised by the caller; the squares lie in both.
        unsafe {
            let rows = if G::MEMBERS == size_of::<i32>() && k.is_multiple_of(G::MEMBERS) {
                // The weights are laid out like this.
                w.cast::<i32>()
            } else {
                for c in 0..count {
                    pack_row::<G>(w.add(c * k), k, room[c * groups..].as_mut_ptr());
                }
                room.as_ptr()
            };
            let columns = (to.cast::<f32>(), G::COLUMNS as isize);
            let done = squares_4((rows.cast(), groups as isize), columns, (groups, count));
            for c in 0..count {
                for g in if c < done.1 { done.0 } else { 0 }..groups {
                    *to.add(g * G::COLUMNS + c) = rows.add(c * groups + g).read_unaligned();
                }
            }
        }
    });
}

/// The rows of tile `t` of `tiles`, whose heights differ by at most one.
#[inline(always)]
fn tile_rows(rows: usize, tiles: usize, t: usize) -> Range<usize> {
    t * rows / tiles..(t + 1) * rows / tiles
}

#[cfg(test)]
mod tests {
    use super::convolution::convolve_by;
    use super::linear::linear_by;
    use super::tile::{Pairs, Quads};
    use super::*;
    use crate::kernels::conv::Conv;
    use proptest::prelude::*;

    fn bytes(n: usize, seed: u64) -> Vec<u8> {
        (0..n as u64)
            .map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8)
            .collect()
    }

    /// A convolution beside that of doubles.
    fn check_convolution<T: Byte>(
        conv: &Conv,
        x: &[T],
        w: &[i8],
        quads: bool,
    ) -> Result<(), TestCaseError> {
        let filters = conv.groups * conv.out_c;
        let start: Vec<i32> = (0..filters as i32).collect();
        let mut y = vec![1; conv.batch * filters * conv.out_size()];
        let fx: Vec<f64> = x.iter().map(|b| b.wide().into()).collect();
        let fw: Vec<f64> = w.iter().map(|&b| b.into()).collect();
        let bias: Vec<f64> = start.iter().map(|&b| b.into()).collect();
        let mut want = vec![0.0; y.len()];
        // SAFETY: the buffers have these extents.
        unsafe {
            let (x, w, y) = (x.as_ptr(), w.as_ptr(), y.as_mut_ptr());
            match quads {
                true => convolve_by::<Quads, T>(conv, x, w, &start, y),
                false => convolve_by::<Pairs, T>(conv, x, w, &start, y),
            }
            crate::kernels::conv::forward(
                conv,
                fx.as_ptr(),
                fw.as_ptr(),
                Some(bias.as_ptr()),
                want.as_mut_ptr(),
                None,
                None,
            );
        }
        for (got, want) in y.iter().zip(&want) {
            prop_assert!((f64::from(*got) - want).abs() < 0.25, "{got} {want}");
        }
        Ok(())
    }

    fn check_products((rows, width, k): (usize, usize, usize), quads: bool, seed: u64) {
        fn product<T: Byte>(
            extents: (usize, usize, usize),
            (x, w, start): (&[T], &[i8], &[i32]),
            quads: bool,
        ) -> Vec<i32> {
            let mut y = vec![9; extents.0 * extents.1];
            // SAFETY: the buffers have these extents.
            unsafe {
                let (x, w, to) = (x.as_ptr(), w.as_ptr(), y.as_mut_ptr());
                match quads {
                    true => linear_by::<Quads, T>(extents, x, w, start, to),
                    false => linear_by::<Pairs, T>(extents, x, w, start, to),
                }
            }
            y
        }
        let extents = (rows, width, k);
        let x = bytes(rows * k, seed);
        let signed: Vec<i8> = x.iter().map(|&b| b as i8).collect();
        let w: Vec<i8> = bytes(width * k, seed ^ 1).iter().map(|&b| b as i8).collect();
        let start: Vec<i32> = (0..width as i32).map(|j| j * 1000 - 7).collect();
        let of_bytes = product(extents, (&x, &w, &start), quads);
        let of_signed = product(extents, (&signed, &w, &start), quads);
        for (i, j) in (0..rows).flat_map(|i| (0..width).map(move |j| (i, j))) {
            let want = |x: &dyn Fn(usize) -> i32| {
                let terms = (0..k).map(|l| x(i * k + l) * i32::from(w[j * k + l]));
                terms.sum::<i32>() + start[j]
            };
            assert_eq!(of_bytes[i * width + j], want(&|at| i32::from(x[at])), "{extents:?}");
            assert_eq!(of_signed[i * width + j], want(&|at| i32::from(signed[at])), "{extents:?}");
        }
    }

    /// Rows in several blocks: for several tasks, and so that a block stays in the cache.
    #[test]
    fn products_of_several_blocks_are_exact() {
        for quads in [true, false] {
            check_products((600, 40, 131), quads, 1);
            check_products((40, 5, 33_001), quads, 2);
        }
    }

    proptest! {
        #[test]
        fn products_are_exact(
            rows in 0usize..30, width in 0usize..70, k in 0usize..70, quads: bool, seed: u64,
        ) {
            check_products((rows, width, k), quads, seed);
        }

        #[test]
        fn convolutions_are_those_of_doubles(
            groups in 1usize..3, in_c in 1usize..4, out_c in 1usize..6, kernel in 1usize..4,
            stride in 1usize..3, pad in 0usize..3, dilate in 1usize..3, size in 5usize..16, quads: bool,
            seed: u64,
        ) {
            let reach = dilate * (kernel - 1) + 1;
            let out = (size + 2 * pad - reach) / stride + 1;
            let conv = Conv {
                batch: 2, groups, in_c, out_c,
                input: [1, size, size], kernel: [1, kernel, kernel], output: [1, out, out],
                stride: [1, stride, stride], pad: [0, pad, pad], dilate: [1, dilate, dilate],
            };
            let x = bytes(2 * groups * in_c * size * size, seed);
            let w = bytes(groups * out_c * in_c * kernel * kernel, seed ^ 1);
            let signed = |bytes: &[u8]| bytes.iter().map(|&b| b as i8).collect::<Vec<_>>();
            check_convolution(&conv, &x, &signed(&w), quads)?;
            check_convolution(&conv, &signed(&x), &signed(&w), quads)?;
        }
    }
}
