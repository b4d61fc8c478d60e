//! Positions of the greatest (or least) elements along an axis.
//!
//! A row is cut into chunks; the position is looked for in the first chunk whose extreme is that of
//! the row. Where elements of a row are apart, neighbouring rows are columns side by side, each
//! with its best value and where that was.

use super::PART;
use super::fold::{Accumulate, Fold, Max, Min};
use super::rows::{TOGETHER, fold_rows};
use crate::kernels::arith::Arith;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::scratch::with_scratch;

/// Elements of a chunk: it is in the first cache when it is looked through.
const CHUNK: usize = 4096;
/// Elements that are compared before it is asked whether one of them was it.
const BLOCK: usize = 64;
/// Columns side by side, at most.
const COLUMNS: usize = 256;
/// Fewer columns are taken one by one.
const NARROW: usize = 8;
/// Elements of a task at least.
const GRAIN: usize = 1 << 14;

/// Whether `v` takes the place of an earlier `best`: it is greater (or less), or the first NaN.
#[inline(always)]
fn better<V: Arith, const GREATEST: bool>(v: V, best: V) -> bool {
    let beyond = if GREATEST { v > best } else { v < best };
    beyond | (v.is_nan() & !best.is_nan())
}

crate::simd! {
    /// Position of the first element that is `value`, or NaN, which is only there if `value` is.
    ///
    /// # Safety
    /// `x` is valid for `n` elements, of which one is it.
    unsafe fn first_of[T: Accumulate][T](x: *const T, n: usize, value: T::Sum) -> usize {
        let mut at = 0;
        // SAFETY: promised by the caller.
        unsafe {
            while at + BLOCK <= n {
                let mut found = false;
                for k in 0..BLOCK {
                    let v = (*x.add(at + k)).widen();
                    found |= (v == value) | v.is_nan();
                }
                if found {
                    break;
                }
                at += BLOCK;
            }
            while at + 1 < n {
                let v = (*x.add(at)).widen();
                if v == value || v.is_nan() {
                    break;
                }
                at += 1;
            }
        }
        at
    }

    /// Folds `n` rows of `columns` elements, `stride` apart, into the best value of each column and
    /// the number of its row.
    ///
    /// # Safety
    /// `x` is valid for these elements, `values` and `rows` for `columns`; `n` is at least 1 and
    /// below 2^32.
    unsafe fn best_of_columns[T: Accumulate, const GREATEST: bool][T, GREATEST](
        x: *const T, n: usize, stride: usize, columns: usize, values: *mut T::Sum, rows: *mut u32,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe {
            for c in 0..columns {
                *values.add(c) = (*x.add(c)).widen();
                *rows.add(c) = 0;
            }
            for i in 1..n {
                let x = x.add(i * stride);
                for c in 0..columns {
                    let (v, best) = ((*x.add(c)).widen(), *values.add(c));
                    let better = better::<_, GREATEST>(v, best);
                    *values.add(c) = if better { v } else { best };
                    *rows.add(c) = if better { i as u32 } else { *rows.add(c) };
                }
            }
        }
    }
}

/// The best value of a row and its position.
///
/// # Safety
/// `x` is valid for `n` elements, at least 1.
unsafe fn best_of_row<T: Accumulate, F: Fold<T>, const GREATEST: bool>(
    x: *const T,
    n: usize,
) -> (T::Sum, usize) {
    let mut values = [T::lowest(); TOGETHER];
    let (mut best, mut from) = (None, 0);
    let mut at = 0;
    // SAFETY: chunks lie in the row; the best value is in its chunk.
    unsafe {
        while at < n {
            // Whole chunks together, or what is left.
            let (chunks, len) = match (n - at) / CHUNK {
                0 => (1, n - at),
                whole => (whole.min(TOGETHER), CHUNK),
            };
            fold_rows::<T, F>(x.add(at), chunks, len, values.as_mut_ptr());
            for (k, value) in values[..chunks].iter().enumerate() {
                let value = value.widen();
                if best.is_none_or(|best| better::<_, GREATEST>(value, best)) {
                    (best, from) = (Some(value), at + k * len);
                }
            }
            at += chunks * len;
        }
        let best = best.unwrap_or(T::Sum::zero());
        (best, from + first_of(x.add(from), CHUNK.min(n - from), best))
    }
}

/// The best value of a row and its position, one element after the other.
///
/// # Safety
/// `x` is valid for `n` elements, at least 1, at distance `step`.
unsafe fn best_of_narrow<T: Accumulate, const GREATEST: bool>(
    x: *const T,
    n: usize,
    step: usize,
) -> (T::Sum, usize) {
    // SAFETY: promised by the caller.
    let (mut best, mut at) = (unsafe { *x }.widen(), 0);
    for i in 1..n {
        // SAFETY: promised by the caller.
        let v = unsafe { *x.add(i * step) }.widen();
        if better::<_, GREATEST>(v, best) {
            (best, at) = (v, i);
        }
    }
    (best, at)
}

/// Calls `put(row, position)` for each of `outer * step` rows of `n` elements at distance `step`:
/// where its greatest (or least) element is, the first of equal ones, a NaN before all.
///
/// # Safety
/// `x` is valid for `outer * n * step` elements; `n` is at least 1.
pub unsafe fn positions<T: Accumulate>(
    x: *const T,
    extents: (usize, usize, usize),
    greatest: bool,
    put: impl Fn(usize, usize) + Send + Sync,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match greatest {
            true => all::<T, Max, true>(x, extents, put),
            false => all::<T, Min, false>(x, extents, put),
        }
    }
}

/// # Safety
/// As [`positions`].
unsafe fn all<T: Accumulate, F: Fold<T>, const GREATEST: bool>(
    x: *const T,
    (outer, n, step): (usize, usize, usize),
    put: impl Fn(usize, usize) + Send + Sync,
) {
    let width = step.min(COLUMNS);
    let groups = step.div_ceil(width.max(1));
    // Long rows are cut; the cuts depend on the shape alone.
    let each = n.div_ceil((n * width).div_ceil(PART)).next_multiple_of(CHUNK).min(n);
    let parts = n.div_ceil(each);
    let (x, count) = (Shared(x.cast_mut()), outer * step);
    // The best of a part of a group, for each of its rows by `done(column, value, position)`.
    let part = |task: usize, done: &mut dyn FnMut(usize, T::Sum, usize)| {
        let (group, first) = (task / parts, task % parts * each);
        let (o, column) = (group / groups, group % groups * width);
        let (columns, n_part) = (width.min(step - column), each.min(n - first));
        // SAFETY: the part lies in the input.
        unsafe {
            let x = x.at((o * n + first) * step + column).cast_const();
            if step == 1 {
                let (value, at) = best_of_row::<T, F, GREATEST>(x, n_part);
                done(o, value, first + at);
            } else if columns < NARROW {
                for c in 0..columns {
                    let (value, at) = best_of_narrow::<T, GREATEST>(x.add(c), n_part, step);
                    done(o * step + column + c, value, first + at);
                }
            } else {
                let (mut values, mut rows) = ([T::Sum::zero(); COLUMNS], [0u32; COLUMNS]);
                let (to, at) = (values.as_mut_ptr(), rows.as_mut_ptr());
                best_of_columns::<T, GREATEST>(x, n_part, step, columns, to, at);
                for c in 0..columns {
                    done(o * step + column + c, values[c], first + rows[c] as usize);
                }
            }
        }
    };
    let grain = GRAIN.div_ceil(each * width.max(1));
    if step == 1 && n <= CHUNK {
        return parallel_for(count, grain.next_multiple_of(TOGETHER), |range| {
            let mut values = [T::lowest(); TOGETHER];
            for first in range.clone().step_by(TOGETHER) {
                let rows = TOGETHER.min(range.end - first);
                // SAFETY: the rows lie in the input and follow one another.
                unsafe {
                    let x = x.at(first * n).cast_const();
                    fold_rows::<T, F>(x, rows, n, values.as_mut_ptr());
                    for (r, value) in values[..rows].iter().enumerate() {
                        put(first + r, first_of(x.add(r * n), n, value.widen()));
                    }
                }
            }
        });
    }
    if parts == 1 {
        return parallel_for(outer * groups, grain, |tasks| {
            for task in tasks {
                part(task, &mut |row, _, at| put(row, at));
            }
        });
    }
    with_scratch::<T::Sum, _>(count * parts, |values| {
        with_scratch::<i64, _>(count * parts, |found| {
            let (to, at) = (Shared(values.as_mut_ptr()), Shared(found.as_mut_ptr()));
            parallel_for(outer * groups * parts, grain, |tasks| {
                for task in tasks {
                    part(task, &mut |row, value, position| {
                        let slot = row * parts + task % parts;
                        // SAFETY: rows have a slot for each part.
                        unsafe {
                            *to.at(slot) = value;
                            *at.at(slot) = position as i64;
                        }
                    });
                }
            });
            for (row, values) in values.chunks(parts).enumerate() {
                let mut best = 0;
                for k in 1..parts {
                    if better::<_, GREATEST>(values[k], values[best]) {
                        best = k;
                    }
                }
                put(row, found[row * parts + best] as usize);
            }
        });
    });
}
