//! Element-wise loops over any number of equally long inputs. An output may be the very memory of
//! an input.

use super::arch::opaque;
use super::parallel::{Shared, parallel_for};
use super::real::Real;

/// Elements a task handles.
const GRAIN: usize = 1 << 15;
/// Elements read before any is written: the compiler vectorises a block without checking whether
/// input and output are the same.
const BLOCK: usize = 32;

/// `out[i] = f(inputs[0][i], ...)` for `i` in `0..n`.
///
/// # Safety
/// Every pointer is valid for `n` elements; `out` is the same as an input or overlaps none.
pub unsafe fn map<T: Real, const N: usize>(
    inputs: [*const T; N],
    out: *mut T,
    n: usize,
    f: impl Fn([T; N]) -> T + Send + Sync,
) {
    let inputs = inputs.map(|p| Shared(p.cast_mut()));
    let out = Shared(out);
    parallel_for(n, GRAIN, |range| {
        // SAFETY: the range lies in `0..n`; tasks have ranges of their own.
        unsafe {
            let from = inputs.map(|p| p.at(range.start).cast_const());
            map_task(from, out.at(range.start), range.len(), &f);
        }
    });
}

crate::simd! {
    /// As [`map_serial`], compiled for every instruction set.
    ///
    /// # Safety
    /// As [`map`].
    unsafe fn map_task[T: Real, F: Fn([T; N]) -> T, const N: usize][T, F, N](
        inputs: [*const T; N], out: *mut T, n: usize, f: &F,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { blocks(inputs, out, n, f) }
    }
}

/// As [`map`], on this thread.
///
/// # Safety
/// As [`map`].
#[inline(always)]
pub unsafe fn map_serial<T: Real, const N: usize>(
    inputs: [*const T; N],
    out: *mut T,
    n: usize,
    f: impl Fn([T; N]) -> T,
) {
    // SAFETY: promised by the caller.
    unsafe { blocks(inputs, out, n, &f) }
}

/// # Safety
/// As [`map`].
#[inline(always)]
unsafe fn blocks<T: Real, F: Fn([T; N]) -> T, const N: usize>(
    inputs: [*const T; N],
    out: *mut T,
    n: usize,
    f: &F,
) {
    for start in (0..n).step_by(BLOCK).map(opaque) {
        let mut block = [[T::zero(); BLOCK]; N];
        let count = BLOCK.min(n - start);
        // SAFETY: all offsets are below `n`; each block is read before it is written.
        unsafe {
            for (b, p) in block.iter_mut().zip(inputs) {
                copy_block(p.add(start), b.as_mut_ptr(), count);
            }
            // Called in one place, the last block's as well, and not as the function of a
            // reference, which is one more that may not be inlined.
            let mut result = [T::zero(); BLOCK];
            for (i, r) in result.iter_mut().enumerate() {
                *r = (*f)(std::array::from_fn(|k| block[k][i]));
            }
            copy_block(result.as_ptr(), out.add(start), count);
        }
    }
}

/// Copies a block or a part of one.
///
/// # Safety
/// Both hold `count` elements and are apart.
#[inline(always)]
unsafe fn copy_block<T: Copy>(from: *const T, to: *mut T, count: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        if count == BLOCK {
            std::ptr::copy_nonoverlapping(from, to, BLOCK);
        } else {
            std::ptr::copy_nonoverlapping(from, to, count);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn loops_of_any_length_match_single_elements() {
        for n in [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5, GRAIN + BLOCK + 1] {
            let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let (mut y, mut sum) = (vec![0.0; n + 1], x.clone());
            let to = sum.as_mut_ptr();
            // SAFETY: all hold `n` elements; the second output is an input.
            unsafe {
                map([x.as_ptr()], y.as_mut_ptr(), n, |[x]| x + 0.5);
                map([x.as_ptr(), to.cast_const()], to, n, |[x, y]| 3.0 * x + y);
            }
            assert!(y[..n].iter().zip(&x).all(|(y, x)| *y == x + 0.5) && y[n] == 0.0, "{n}");
            assert!(sum.iter().zip(&x).all(|(y, x)| *y == 4.0 * x), "{n}");
        }
    }
}
