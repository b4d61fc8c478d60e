//! Contiguous rows.
//!
//! Short ones are handled several together, step by step, so that what is calculated of the lanes
//! of one row, one after another, does not wait for that of the row before.

use super::block::*;
use super::{LANES, Softmax};
use crate::kernels::arch::opaque;
use crate::kernels::pairwise::{LEAF, Pairwise, Summed, join_all};
use crate::kernels::real::Real;

/// Rows handled together, at most.
const TOGETHER: usize = 16;
/// Elements of rows handled together, at most: they stay in the first cache.
pub const FORWARD: usize = 4096;
/// Those of the backward pass, which waits for memory: what it reads of one group and writes of the
/// group before should overlap.
pub const BACKWARD: usize = 512;

/// How many rows of `len` elements, up to `elements` in all, are handled together.
pub fn together(len: usize, elements: usize) -> usize {
    (elements / len.max(1)).clamp(1, TOGETHER)
}

/// How the rows of a group lie in blocks: whole ones and, where their length is no multiple of
/// `LANES`, a last one. This ends with the row and overlaps the block before, or begins with a row
/// that is shorter than a block and overlaps what is behind: elements that do not count, and other
/// rows. So it is read before anything is written, and the rows are written in their order.
struct Blocks<T> {
    /// Elements in whole blocks.
    whole: usize,
    /// Elements from the first row on up to the end of the last.
    all: usize,
    /// Where in a row the last block begins, if there is one.
    last: Option<usize>,
    /// 1 for the elements of the last block that are in the row and in no other block.
    new: Block<T>,
}

impl<T: Real> Blocks<T> {
    #[inline(always)]
    fn new(rows: usize, n: usize, stride: usize) -> Self {
        let (whole, rest) = (n / LANES * LANES, n % LANES);
        let first = if n < LANES { 0 } else { LANES - rest };
        let new =
            std::array::from_fn(
                |k| {
                    if k >= first && k < first + rest { T::one() } else { T::zero() }
                },
            );
        let last = (rest > 0).then_some(n.saturating_sub(LANES));
        Blocks { whole, all: (rows - 1) * stride + n, last, new }
    }

    /// How many elements of the group there are from `at` on.
    #[inline(always)]
    fn left(&self, at: usize) -> usize {
        self.all - at
    }
}

/// Writes `n` zeros.
///
/// # Safety
/// `y` has room for them.
pub unsafe fn clear<T: Real>(y: *mut T, n: usize) {
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts_mut(y, n) }.fill(T::zero());
}

/// Writes zeros from element `n` of `rows` rows on.
///
/// # Safety
/// `y` holds the rows.
pub unsafe fn clear_rests<T: Real>(s: &Softmax<T>, y: *mut T, rows: usize, n: usize) {
    if n < s.len {
        for r in 0..rows {
            // SAFETY: promised by the caller.
            unsafe { clear(y.add(r * s.len + n), s.len - n) };
        }
    }
}

/// `y = softmax(x)` of the first `n` elements of each of `rows` rows: one or more, at most
/// [`together`]. The other elements of `y` may be overwritten.
///
/// # Safety
/// `x` and `y` hold the rows and are the same memory or apart.
pub unsafe fn forward<T: Real>(s: &Softmax<T>, x: *const T, y: *mut T, rows: usize, n: usize) {
    let of = match (s.split_scale() == (T::one(), T::one()), s.log, rows) {
        (true, false, 1) => group::<T, false, false, 1>,
        (true, false, _) => group::<T, false, false, TOGETHER>,
        (true, true, 1) => group::<T, false, true, 1>,
        (true, true, _) => group::<T, false, true, TOGETHER>,
        (false, false, 1) => group::<T, true, false, 1>,
        (false, false, _) => group::<T, true, false, TOGETHER>,
        (false, true, 1) => group::<T, true, true, 1>,
        (false, true, _) => group::<T, true, true, TOGETHER>,
    };
    // SAFETY: promised by the caller.
    unsafe { of(x, y, rows, n, (s.len, s.split_scale())) };
}

/// The gradient of [`forward`].
///
/// # Safety
/// All hold the rows; `dx` is `y` or `dy` or apart from both.
pub unsafe fn backward<T: Real>(
    s: &Softmax<T>,
    y: *const T,
    dy: *const T,
    dx: *mut T,
    rows: usize,
    n: usize,
) {
    let of = match (s.log, rows) {
        (false, 1) => group_back::<T, false, 1>,
        (false, _) => group_back::<T, false, TOGETHER>,
        (true, 1) => group_back::<T, true, 1>,
        (true, _) => group_back::<T, true, TOGETHER>,
    };
    // SAFETY: promised by the caller.
    unsafe { of(y, dy, dx, rows, n, (s.len, s.scale)) };
}

crate::simd! {
    /// [`forward`] of up to `ROWS` rows; without `SCALED` both parts of the scale are 1.
    ///
    /// # Safety
    /// As there.
    unsafe fn group[T: Real, const SCALED: bool, const LOG: bool, const ROWS: usize]
        [T, SCALED, LOG, ROWS](
        x: *const T, y: *mut T, rows: usize, n: usize, how: (usize, (T, T)),
    ) -> () {
        let (stride, scale) = how;
        let (one, least) = (T::one(), T::neg_infinity());
        let (sign, factor) = if SCALED { scale } else { (one, one) };
        let blocks = Blocks::<T>::new(rows, n, stride);
        let whole = blocks.whole;
        let mut lanes = [[T::zero(); LANES]; ROWS];
        let mut lasts = lanes;
        // SAFETY: promised by the caller; blocks lie in the rows, the last ones in the group.
        unsafe {
            for r in 0..rows {
                let x = x.add(r * stride);
                let [mut top, mut other] = [[least; LANES]; 2];
                let pairs = whole / (2 * LANES) * (2 * LANES);
                for i in (0..pairs).step_by(2 * LANES).map(opaque) {
                    raise(&mut top, &scaled(load(x.add(i), LANES), sign));
                    raise(&mut other, &scaled(load(x.add(i + LANES), LANES), sign));
                }
                raise(&mut top, &other);
                if pairs < whole {
                    raise(&mut top, &scaled(load(x.add(pairs), LANES), sign));
                }
                if let Some(last) = blocks.last {
                    lasts[r] = scaled(load(x.add(last), blocks.left(r * stride + last)), sign);
                    raise(&mut top, &choose(&blocks.new, lasts[r], least));
                }
                lanes[r] = top;
            }
            // Through memory that the compiler cannot see through: it would keep the lanes one by
            // one, here and in the loops above.
            join_all(std::hint::black_box(&mut lanes), |a, b| if b > a { b } else { a });
            let tops: [T; ROWS] = std::array::from_fn(|r| lanes.as_flattened()[r]);

            for r in 0..rows {
                let (x, y, top) = (x.add(r * stride), y.add(r * stride), [tops[r]; LANES]);
                let (mut sums, mut leaves) = ([T::zero(); LANES], Pairwise::default());
                let mut first = 0;
                loop {
                    let end = whole.min(first + LEAF * LANES);
                    for i in (first..end).step_by(LANES).map(opaque) {
                        let z = below(scaled(load(x.add(i), LANES), sign), &top, factor);
                        let e = exp::<T, FUSED>(z);
                        sums.add(&e);
                        if !LOG {
                            store(&e, y.add(i), LANES);
                        }
                    }
                    first = end;
                    if first == whole {
                        break;
                    }
                    leaves.push(std::mem::replace(&mut sums, [T::zero(); LANES]));
                }
                if blocks.last.is_some() {
                    let z = below(lasts[r], &top, factor);
                    let e = exp::<T, FUSED>(z);
                    sums.add(&choose(&blocks.new, e, T::zero()));
                    lasts[r] = if LOG { z } else { e };
                }
                lanes[r] = leaves.total(sums);
            }
            join_all(std::hint::black_box(&mut lanes), |a, b| a + b);
            let totals = &mut lanes.as_flattened_mut()[..ROWS];
            for total in &mut totals[..rows] {
                *total = if LOG { total.quick_ln::<FUSED>() } else { one / *total };
            }

            for r in 0..rows {
                let (x, y) = (x.add(r * stride), y.add(r * stride));
                let (top, total) = ([tops[r]; LANES], [totals[r]; LANES]);
                for i in (0..whole).step_by(LANES).map(opaque) {
                    let block = if LOG {
                        let mut z = below(scaled(load(x.add(i), LANES), sign), &top, factor);
                        subtract(&mut z, &total);
                        z
                    } else {
                        let mut e = load(y.add(i).cast_const(), LANES);
                        multiply(&mut e, &total);
                        e
                    };
                    store(&block, y.add(i), LANES);
                }
                if let Some(last) = blocks.last {
                    let mut block = lasts[r];
                    if LOG {
                        subtract(&mut block, &total);
                    } else {
                        multiply(&mut block, &total);
                    }
                    store_last(&blocks, &block, y, (r * stride, last));
                }
            }
        }
    }

    /// [`backward`] of up to `ROWS` rows.
    ///
    /// # Safety
    /// As there.
    unsafe fn group_back[T: Real, const LOG: bool, const ROWS: usize][T, LOG, ROWS](
        y: *const T, dy: *const T, dx: *mut T, rows: usize, n: usize, how: (usize, T),
    ) -> () {
        let (stride, scale) = how;
        let blocks = Blocks::<T>::new(rows, n, stride);
        let whole = blocks.whole;
        let mut lanes = [[T::zero(); LANES]; ROWS];
        let [mut last_y, mut last_dy] = [lanes; 2];
        // SAFETY: promised by the caller; blocks lie in the rows, the last ones in the group.
        unsafe {
            for r in 0..rows {
                let (y, dy) = (y.add(r * stride), dy.add(r * stride));
                let (mut sums, mut leaves) = ([T::zero(); LANES], Pairwise::default());
                let mut first = 0;
                loop {
                    let end = whole.min(first + LEAF * LANES);
                    for i in (first..end).step_by(LANES).map(opaque) {
                        let p = if LOG { sums } else { load(y.add(i), LANES) };
                        sums.add(&weighted(load(dy.add(i), LANES), &p, LOG));
                    }
                    first = end;
                    if first == whole {
                        break;
                    }
                    leaves.push(std::mem::replace(&mut sums, [T::zero(); LANES]));
                }
                if let Some(last) = blocks.last {
                    let left = blocks.left(r * stride + last);
                    last_y[r] = load(y.add(last), left);
                    last_dy[r] = load(dy.add(last), left);
                    let terms = weighted(last_dy[r], &last_y[r], LOG);
                    sums.add(&choose(&blocks.new, terms, T::zero()));
                }
                lanes[r] = leaves.total(sums);
            }
            join_all(std::hint::black_box(&mut lanes), |a, b| a + b);
            let totals = &lanes.as_flattened()[..ROWS];

            for r in 0..rows {
                let (y, dy, dx) = (y.add(r * stride), dy.add(r * stride), dx.add(r * stride));
                let total = [totals[r]; LANES];
                for i in (0..whole).step_by(LANES).map(opaque) {
                    let (p, g) = (load(y.add(i), LANES), load(dy.add(i), LANES));
                    let block = gradient::<T, FUSED>(p, g, &total, (scale, LOG));
                    store(&block, dx.add(i), LANES);
                }
                if let Some(last) = blocks.last {
                    let how = (scale, LOG);
                    let block = gradient::<T, FUSED>(last_y[r], last_dy[r], &total, how);
                    store_last(&blocks, &block, dx, (r * stride, last));
                }
            }
        }
    }
}

/// Writes the last block of a row, or as much as the group has room for.
///
/// # Safety
/// `y` is the row at `start` in the group; the rows behind are not written yet.
#[inline(always)]
unsafe fn store_last<T: Real>(
    blocks: &Blocks<T>,
    block: &Block<T>,
    y: *mut T,
    (start, last): (usize, usize),
) {
    // SAFETY: promised by the caller.
    unsafe { store(block, y.add(last), blocks.left(start + last)) };
}
