//! Columns: neighbouring ones are handled together, row after row. A row is copied to a line of its
//! own, calculated there in one loop, and copied back: memory that may be the same is not in the
//! loop, and the line has whole blocks. The last of them ends with the columns and may overlap the
//! one before; columns that fill no block are a part of one.

use super::block::copy_some;
use super::{LANES, Softmax};
use crate::kernels::pairwise::{LEAF, Pairwise};
use crate::kernels::real::Real;

/// Blocks that are handled together.
const BLOCKS: usize = 4;

/// How many of `inner` columns are handled together: about equally many each time, and whole blocks
/// where they are whole blocks in all.
pub fn together(inner: usize) -> usize {
    let groups = inner.div_ceil(BLOCKS * LANES).max(1);
    let width = inner.div_ceil(groups).max(1);
    if inner.is_multiple_of(LANES) { width.next_multiple_of(LANES) } else { width }
}

/// Columns in memory: the distance of their rows, how many columns, and how many rows.
#[derive(Clone, Copy)]
struct Extents {
    stride: usize,
    columns: usize,
    rows: usize,
}

impl Extents {
    /// Copies a row to a line.
    ///
    /// # Safety
    /// `x` holds the columns, more than the line without its last block.
    #[inline(always)]
    unsafe fn read<T: Real, const N: usize>(&self, x: *const T, line: &mut [T; N]) {
        if N == LANES && self.columns < LANES {
            // SAFETY: promised by the caller.
            return unsafe { copy_some(x, line.as_mut_ptr(), self.columns) };
        }
        for at in (0..N).step_by(LANES) {
            // SAFETY: promised by the caller; the block lies in the line.
            unsafe {
                let from = x.add(at.min(self.columns - LANES));
                line.as_mut_ptr().add(at).copy_from_nonoverlapping(from, LANES);
            }
        }
    }

    /// Copies a line to a row.
    ///
    /// # Safety
    /// As [`Extents::read`].
    #[inline(always)]
    unsafe fn write<T: Real, const N: usize>(&self, line: &[T; N], y: *mut T) {
        if N == LANES && self.columns < LANES {
            // SAFETY: promised by the caller.
            return unsafe { copy_some(line.as_ptr(), y, self.columns) };
        }
        for at in (0..N).step_by(LANES) {
            // SAFETY: as above.
            unsafe {
                let to = y.add(at.min(self.columns - LANES));
                to.copy_from_nonoverlapping(line.as_ptr().add(at), LANES);
            }
        }
    }
}

/// Writes 0 to the elements of columns from `length` on.
///
/// # Safety
/// `y` has `len` rows of `columns` elements, `inner` apart.
pub unsafe fn clear<T: Real>(s: &Softmax<T>, y: *mut T, columns: usize, length: usize) {
    for i in length..s.len {
        // SAFETY: promised by the caller.
        unsafe { super::rows::clear(y.add(i * s.inner), columns) };
    }
}

/// `y = softmax(x)` of up to [`together`] columns.
///
/// # Safety
/// `x` and `y` have `length` rows of `columns` elements, `inner` apart, and are the same memory or
/// apart.
pub unsafe fn forward<T: Real>(
    s: &Softmax<T>,
    x: *const T,
    y: *mut T,
    columns: usize,
    length: usize,
) {
    let of = Extents { stride: s.inner, columns, rows: length };
    // SAFETY: promised by the caller.
    unsafe {
        match columns.div_ceil(LANES) {
            0 | 1 => group::<T, LANES>(s, x, y, of),
            2 => group::<T, { 2 * LANES }>(s, x, y, of),
            3 => group::<T, { 3 * LANES }>(s, x, y, of),
            _ => group::<T, { BLOCKS * LANES }>(s, x, y, of),
        }
    }
}

/// The gradient of [`forward`].
///
/// # Safety
/// All have `length` rows of `columns` elements, `inner` apart; `dx` is `y` or `dy` or apart from
/// both.
pub unsafe fn backward<T: Real>(
    s: &Softmax<T>,
    y: *const T,
    dy: *const T,
    dx: *mut T,
    columns: usize,
    length: usize,
) {
    let of = Extents { stride: s.inner, columns, rows: length };
    // SAFETY: promised by the caller.
    unsafe {
        match columns.div_ceil(LANES) {
            0 | 1 => group_back::<T, LANES>(s, y, dy, dx, of),
            2 => group_back::<T, { 2 * LANES }>(s, y, dy, dx, of),
            3 => group_back::<T, { 3 * LANES }>(s, y, dy, dx, of),
            _ => group_back::<T, { BLOCKS * LANES }>(s, y, dy, dx, of),
        }
    }
}

crate::simd! {
    /// [`forward`] of columns that fill a line, but for a part of its last block.
    ///
    /// # Safety
    /// As there.
    unsafe fn group[T: Real, const N: usize][T, N](
        s: &Softmax<T>, x: *const T, y: *mut T, of: Extents,
    ) -> () {
        let (sign, factor) = s.split_scale();
        let zeros = [T::zero(); N];
        let (mut line, mut tops) = (zeros, [T::neg_infinity(); N]);
        // SAFETY: promised by the caller.
        unsafe {
            for i in 0..of.rows {
                of.read(x.add(i * of.stride), &mut line);
                for (top, &x) in tops.iter_mut().zip(&line) {
                    let x = x * sign;
                    *top = if x > *top { x } else { *top }; // NaN is ignored
                }
            }

            let (mut sums, mut leaves) = (zeros, Pairwise::default());
            for i in 0..of.rows {
                of.read(x.add(i * of.stride), &mut line);
                for ((x, &top), sum) in line.iter_mut().zip(&tops).zip(&mut sums) {
                    *x = ((*x * sign - top) * factor).exp_below_88::<FUSED>();
                    *sum += *x;
                }
                if !s.log {
                    of.write(&line, y.add(i * of.stride));
                }
                if i % LEAF == LEAF - 1 {
                    leaves.push(std::mem::replace(&mut sums, zeros));
                }
            }
            let mut totals = leaves.total(sums);
            for t in &mut totals {
                *t = if s.log { t.quick_ln::<FUSED>() } else { T::one() / *t };
            }

            for i in 0..of.rows {
                let y = y.add(i * of.stride);
                if s.log {
                    of.read(x.add(i * of.stride), &mut line);
                    for ((x, &top), &total) in line.iter_mut().zip(&tops).zip(&totals) {
                        *x = (*x * sign - top) * factor - total;
                    }
                } else {
                    of.read(y.cast_const(), &mut line);
                    for (e, &total) in line.iter_mut().zip(&totals) {
                        *e *= total;
                    }
                }
                of.write(&line, y);
            }
        }
    }

    /// [`backward`], as [`group`].
    ///
    /// # Safety
    /// As there.
    unsafe fn group_back[T: Real, const N: usize][T, N](
        s: &Softmax<T>, y: *const T, dy: *const T, dx: *mut T, of: Extents,
    ) -> () {
        let zeros = [T::zero(); N];
        let [mut p, mut g, mut sums] = [zeros; 3];
        let mut leaves = Pairwise::default();
        // SAFETY: promised by the caller.
        unsafe {
            for i in 0..of.rows {
                of.read(dy.add(i * of.stride), &mut g);
                if s.log {
                    for (sum, &g) in sums.iter_mut().zip(&g) {
                        *sum += g;
                    }
                } else {
                    of.read(y.add(i * of.stride), &mut p);
                    for ((sum, &g), &p) in sums.iter_mut().zip(&g).zip(&p) {
                        *sum += g * p;
                    }
                }
                if i % LEAF == LEAF - 1 {
                    leaves.push(std::mem::replace(&mut sums, zeros));
                }
            }
            let totals = leaves.total(sums);

            for i in 0..of.rows {
                of.read(y.add(i * of.stride), &mut p);
                of.read(dy.add(i * of.stride), &mut g);
                if s.log {
                    for ((g, &p), &total) in g.iter_mut().zip(&p).zip(&totals) {
                        *g = s.scale * (*g - p.exp_below_88::<FUSED>() * total);
                    }
                } else {
                    for ((g, &p), &total) in g.iter_mut().zip(&p).zip(&totals) {
                        *g = s.scale * p * (*g - total);
                    }
                }
                of.write(&g, dx.add(i * of.stride));
            }
        }
    }
}
