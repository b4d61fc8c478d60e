//! Maxima and sums of windows row by row: the rows of a line of windows become one, whose phases
//! the taps of the windows then read as stretches.

use super::Pool;
use super::lanes::Lanes;
use super::phases::{LANES, Phases};
use crate::kernels::layout::copy_row;
use crate::kernels::real::Real;
use crate::kernels::scalar::Scalar;
use smallvec::SmallVec;

/// What the elements of a window become: the value of none, and of two.
pub trait Join<T> {
    fn start() -> T;
    fn join(a: T, b: T) -> T;

    /// [`Join::join`] of each two.
    ///
    /// # Safety
    /// The machine has the register's instructions.
    unsafe fn join_all<V: Lanes<Elem = T>>(a: V, b: V) -> V;
}

/// The greatest; NaN is ignored.
pub struct Greatest;
/// The sum.
pub struct Total;

impl<T: Scalar> Join<T> for Greatest {
    #[inline(always)]
    fn start() -> T {
        T::neg_infinity()
    }

    #[inline(always)]
    fn join(a: T, b: T) -> T {
        if b > a { b } else { a }
    }

    #[inline(always)]
    unsafe fn join_all<V: Lanes<Elem = T>>(a: V, b: V) -> V {
        // SAFETY: promised by the caller.
        unsafe { a.greatest(b) }
    }
}

impl<T: Scalar> Join<T> for Total {
    #[inline(always)]
    fn start() -> T {
        T::zero()
    }

    #[inline(always)]
    fn join(a: T, b: T) -> T {
        a + b
    }

    #[inline(always)]
    unsafe fn join_all<V: Lanes<Elem = T>>(a: V, b: V) -> V {
        // SAFETY: promised by the caller.
        unsafe { a.add(b) }
    }
}

/// A block of the rows at `rows`, `at` elements on, joined.
///
/// # Safety
/// The rows have these elements.
#[inline(always)]
pub unsafe fn join_block<T: Real, J: Join<T>, const N: usize>(
    rows: &[*const T],
    at: usize,
) -> [T; N] {
    let mut block = [J::start(); N];
    for row in rows {
        // SAFETY: promised by the caller.
        let next = unsafe { *row.add(at).cast::<[T; N]>() };
        for i in 0..N {
            block[i] = J::join(block[i], next[i]);
        }
    }
    block
}

/// The rows at `rows`, joined. The last block overlaps the one before.
///
/// # Safety
/// The rows and `to` hold `n` elements, at least `N`.
#[inline(always)]
unsafe fn join_rows<T: Real, J: Join<T>, const N: usize>(rows: &[*const T], to: *mut T, n: usize) {
    for at in (0..n).step_by(N) {
        let at = at.min(n.wrapping_sub(N));
        // SAFETY: promised by the caller; the block ends at `n`.
        unsafe { *to.add(at).cast() = join_block::<T, J, N>(rows, at) };
    }
}

/// The elements that the windows of a line count, behind their widths: at least 1. They are
/// calculated when the height is not the one of before.
#[inline(always)]
pub fn set_counts<T: Scalar>(widths: &mut [T], counted: &mut T, height: T) -> *const T {
    let (widths, counts) = widths.split_at_mut(widths.len() / 2);
    if *counted != height {
        *counted = height;
        for (count, &width) in counts.iter_mut().zip(&*widths) {
            *count = (height * width).max(T::one());
        }
    }
    counts.as_ptr()
}

impl Pool {
    /// Elements of scratch for [`forward`].
    pub(super) fn forward_room(&self) -> usize {
        2 * Phases::new(self).size()
    }
}

crate::simd! {
    /// The windows of a plane, row by row. Sums are divided by the sizes of their windows, of which
    /// `widths` (from [`Pool::with_widths`]) has the extents on the last axis, unless it is empty.
    ///
    /// # Safety
    /// `x` and `y` are planes of input and output; the scratch has [`Pool::forward_room`] elements.
    pub unsafe fn forward[T: Real, J: Join<T>][T, J](
        pool: &Pool, x: *const T, y: *mut T, widths: &mut [T], scratch: &mut [T],
    ) -> () {
        let (lay, [out_d, out_h, out_w]) = (Phases::new(pool), pool.output);
        let (line, phases) = scratch.split_at_mut(lay.size());
        line.fill(J::start());
        let (line, phases) = (line.as_mut_ptr(), phases.as_mut_ptr());
        // SAFETY: the scratch holds the phases.
        let tap = |k| unsafe { phases.add(lay.tap(k)).cast_const() };
        let taps: SmallVec<[*const T; 8]> = (0..lay.taps).map(tap).collect();
        let mut rows: SmallVec<[*const T; 16]> = SmallVec::new();
        let mut counted = T::zero();
        for at in 0..out_d * out_h {
            let place = (at / out_h, at % out_h);
            rows.clear();
            for k in 0..pool.kernel[0] * pool.kernel[1] {
                let Some(row) = pool.row(place, k) else { continue };
                // SAFETY: the plane has this row.
                rows.push(unsafe { x.add(row * lay.width) });
            }
            // SAFETY: promised by the caller; lines and phases have room for whole blocks.
            unsafe {
                let inside = line.add(lay.pad);
                match lay.width {
                    0..LANES => join_rows::<T, J, 8>(&rows, inside, lay.width),
                    _ => join_rows::<T, J, LANES>(&rows, inside, lay.width),
                }
                lay.cut(line, phases);
                let y = y.add(at * out_w);
                let counts = set_counts(widths, &mut counted, pool.height(place));
                for first in (0..out_w).step_by(LANES) {
                    let mut block: [T; LANES] = join_block::<T, J, LANES>(&taps, first);
                    if !widths.is_empty() {
                        let count = &*counts.add(first).cast::<[T; LANES]>();
                        for i in 0..LANES {
                            block[i] /= count[i];
                        }
                    }
                    if first + LANES <= out_w {
                        *y.add(first).cast() = block;
                    } else {
                        copy_row(block.as_ptr(), y.add(first), out_w - first);
                    }
                }
            }
        }
    }
}
