//! Columns: a row of values takes in whole rows of elements.

use super::fold::{Accumulate, Fold};

/// Rows of the leaves of the tree.
const LEAF: usize = 64;

/// The addresses of the rows of a reduction.
pub trait RowsAt<T>: Sync {
    /// The address of row `i`.
    ///
    /// # Safety
    /// `i` is below the number of rows.
    unsafe fn row(&self, i: usize) -> *const T;
}

/// Rows of matrices: `each` of them, `stride` elements apart, from every offset on.
pub struct Matrices<'a, T> {
    pub x: *const T,
    pub offsets: &'a [usize],
    pub each: usize,
    pub stride: usize,
}

// SAFETY: an address and numbers; rows are only read.
unsafe impl<T> Sync for Matrices<'_, T> {}

impl<T> RowsAt<T> for Matrices<'_, T> {
    /// # Safety
    /// As in the trait; `x` and the offsets address live rows.
    #[inline(always)]
    unsafe fn row(&self, i: usize) -> *const T {
        let (matrix, row) = match self.offsets {
            [_] => (0, i),
            _ => (i / self.each, i % self.each),
        };
        // SAFETY: promised by the caller; there is an offset for each matrix.
        unsafe { self.x.add(*self.offsets.get_unchecked(matrix) + row * self.stride) }
    }
}

/// Rows anywhere.
pub struct Pointers<'a, T>(pub &'a [*const T]);

// SAFETY: addresses; rows are only read.
unsafe impl<T> Sync for Pointers<'_, T> {}

impl<T> RowsAt<T> for Pointers<'_, T> {
    /// # Safety
    /// As in the trait.
    #[inline(always)]
    unsafe fn row(&self, i: usize) -> *const T {
        // SAFETY: promised by the caller.
        unsafe { *self.0.get_unchecked(i) }
    }
}

/// Rows of values that [`fold_columns`] needs to fold `rows` rows of elements.
pub fn levels(rows: usize) -> usize {
    rows.div_ceil(LEAF).next_power_of_two().ilog2() as usize + 1
}

/// Starts a leaf: writes its first one or four rows as values and returns their number.
///
/// # Safety
/// As [`fold_columns`], with at least one row.
#[inline(always)]
unsafe fn begin<T: Accumulate, F: Fold<T>, R: RowsAt<T>>(
    rows: &R,
    (from, to): (usize, usize),
    width: usize,
    values: *mut F::Value,
) -> usize {
    // SAFETY: promised by the caller.
    unsafe {
        if to - from < 4 {
            let x = rows.row(from);
            for c in 0..width {
                *values.add(c) = F::value(*x.add(c));
            }
            return 1;
        }
        let x: [*const T; 4] = std::array::from_fn(|k| rows.row(from + k));
        for c in 0..width {
            let a = F::join(F::value(*x[0].add(c)), F::value(*x[1].add(c)));
            let b = F::join(F::value(*x[2].add(c)), F::value(*x[3].add(c)));
            *values.add(c) = F::join(a, b);
        }
        4
    }
}

crate::simd! {
    /// Folds rows `from..to`, at least one, into the first `width` values: leaves, joined in pairs.
    /// A leaf takes in four rows at a time.
    ///
    /// # Safety
    /// Each of the rows has `width` elements, and `values` has room for [`levels`] rows of as many,
    /// apart from the elements.
    pub unsafe fn fold_columns[T: Accumulate, F: Fold<T>, R: RowsAt<T>][T, F, R](
        rows: &R, from: usize, to: usize, width: usize, values: *mut F::Value,
    ) -> () {
        // SAFETY: promised by the caller; each half has one level less.
        unsafe {
            if to - from > LEAF {
                let leaves = (to - from).div_ceil(LEAF);
                let middle = from + leaves.next_power_of_two() / 2 * LEAF;
                let second = values.add(width);
                fold_columns::<T, F, R>(rows, from, middle, width, values);
                fold_columns::<T, F, R>(rows, middle, to, width, second);
                for c in 0..width {
                    *values.add(c) = F::join(*values.add(c), *second.add(c));
                }
                return;
            }
            let mut i = from + begin::<T, F, R>(rows, (from, to), width, values);
            while i + 4 <= to {
                let x: [*const T; 4] = [rows.row(i), rows.row(i + 1), rows.row(i + 2), rows.row(i + 3)];
                for c in 0..width {
                    let a = F::join(F::value(*x[0].add(c)), F::value(*x[1].add(c)));
                    let b = F::join(F::value(*x[2].add(c)), F::value(*x[3].add(c)));
                    *values.add(c) = F::join(*values.add(c), F::join(a, b));
                }
                i += 4;
            }
            while i < to {
                let x = rows.row(i);
                for c in 0..width {
                    *values.add(c) = F::join(*values.add(c), F::value(*x.add(c)));
                }
                i += 1;
            }
        }
    }
}
