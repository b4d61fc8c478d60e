//! Softmax and its logarithm along one axis, forward and backward.
//!
//! In single precision exponentials are within 2 ulp, and those below the least normal number are
//! 0.
//!
//! Data is seen as `(outer, len, inner)`. With `inner == 1` a row is contiguous (`rows`); otherwise
//! a task takes a few neighbouring columns at once, so that memory is read in lines (`columns`).

mod block;
mod columns;
mod rows;
#[cfg(test)]
mod tests;

use super::pairwise::LANES;
use super::parallel::{Shared, parallel_for};
use super::real::Real;

/// Minimum number of elements per task.
const GRAIN: usize = 1 << 13;

/// What to calculate.
#[derive(Clone, Copy)]
pub struct Softmax<T> {
    pub outer: usize,
    pub len: usize,
    pub inner: usize,
    /// Data is multiplied by this first (1 / temperature, negative for softmin).
    pub scale: T,
    pub log: bool,
}

impl<T: Real> Softmax<T> {
    /// Calls `f(first element, rows, length)` on groups of up to `together` neighbouring rows;
    /// `length` is how many elements of each row of a group count.
    fn rows(
        &self,
        lengths: Option<&[usize]>,
        together: usize,
        f: impl Fn(usize, usize, usize) + Sync + Send,
    ) {
        let grain = GRAIN.div_ceil(self.len.max(1)).next_multiple_of(together);
        let length_of = |row: usize| lengths.map_or(self.len, |l| l[row].min(self.len));
        parallel_for(self.outer, grain, |range| {
            let mut first = range.start;
            while first < range.end {
                let (most, length) = (together.min(range.end - first), length_of(first));
                let is_other = |&row: &usize| lengths.is_some() && length_of(row) != length;
                let end = (first + 1..first + most).find(is_other).unwrap_or(first + most);
                f(first * self.len, end - first, length);
                first = end;
            }
        });
    }

    /// Calls `f(first element, columns, length)` on groups of columns; `length` is how many
    /// elements of a column count (groups have one column if lengths are given).
    fn columns(&self, lengths: Option<&[usize]>, f: impl Fn(usize, usize, usize) + Sync + Send) {
        let width = if lengths.is_some() { 1 } else { columns::together(self.inner) };
        let per_outer = self.inner.div_ceil(width);
        let grain = GRAIN.div_ceil((self.len * width).max(1));
        parallel_for(self.outer * per_outer, grain, |range| {
            for g in range {
                let (o, column) = (g / per_outer, g % per_outer * width);
                let columns = width.min(self.inner - column);
                let length = lengths.map_or(self.len, |l| l[o * self.inner + column].min(self.len));
                f(o * self.len * self.inner + column, columns, length);
            }
        });
    }

    /// `y = softmax(x)`; elements from a column's length on become 0.
    ///
    /// # Safety
    /// `x` and `y` hold `outer * len * inner` elements and are the same memory or apart.
    pub unsafe fn forward(&self, x: *const T, y: *mut T, lengths: Option<&[usize]>) {
        let (x, y) = (Shared(x.cast_mut()), Shared(y));
        if self.inner == 1 {
            let together = rows::together(self.len, rows::FORWARD);
            return self.rows(lengths, together, |start, rows, length| {
                // SAFETY: groups are apart; offsets stay below the promised size.
                unsafe {
                    let (x, y) = (x.at(start), y.at(start));
                    rows::forward(self, x, y, rows, length);
                    rows::clear_rests(self, y, rows, length);
                }
            });
        }
        self.columns(lengths, |start, columns, length| {
            // SAFETY: as above.
            unsafe {
                let (x, y) = (x.at(start), y.at(start));
                columns::forward(self, x, y, columns, length);
                columns::clear(self, y, columns, length);
            }
        });
    }

    /// `dx` from the output `y` and its gradient `dy`; 0 from a column's length on.
    ///
    /// # Safety
    /// All hold `outer * len * inner` elements; `dx` is `y` or `dy` or apart from both.
    pub unsafe fn backward(
        &self,
        y: *const T,
        dy: *const T,
        dx: *mut T,
        lengths: Option<&[usize]>,
    ) {
        let (y, dy, dx) = (Shared(y.cast_mut()), Shared(dy.cast_mut()), Shared(dx));
        if self.inner == 1 {
            let together = rows::together(self.len, rows::BACKWARD);
            return self.rows(lengths, together, |start, rows, length| {
                // SAFETY: groups are apart; offsets stay below the promised size.
                unsafe {
                    let (y, dy, dx) = (y.at(start), dy.at(start), dx.at(start));
                    rows::backward(self, y, dy, dx, rows, length);
                    rows::clear_rests(self, dx, rows, length);
                }
            });
        }
        self.columns(lengths, |start, columns, length| {
            // SAFETY: as above.
            unsafe {
                let (y, dy, dx) = (y.at(start), dy.at(start), dx.at(start));
                columns::backward(self, y, dy, dx, columns, length);
                columns::clear(self, dx, columns, length);
            }
        });
    }

    /// The scale as a sign and a factor: the greatest element is subtracted first, as the product
    /// could overflow.
    #[inline(always)]
    fn split_scale(&self) -> (T, T) {
        (T::one().copysign(self.scale), self.scale.abs())
    }
}
