//! Element-wise loops over any number of equally long inputs. An output may be the very memory of
//! an input.

use super::arch::opaque;
use super::parallel::{Shared, parallel_for};
use crate::dtype::Element;

/// Elements a task handles.
const GRAIN: usize = 1 << 15;
/// Elements read before any is written: the compiler vectorises a block without checking whether
/// input and output are the same.
const BLOCK: usize = 32;
/// Up to so many elements are calculated one by one: a block would take longer.
const FEW: usize = 8;

/// A function of `N` elements.
pub trait Function<T, const N: usize> {
    /// Whether [`Function::again`] is asked where [`Function::of`] answers NaN.
    const AGAIN: bool = false;

    /// The value, in arithmetic that vectorises; `FUSED` as in [`simd!`](crate::simd).
    fn of<const FUSED: bool>(&self, x: [T; N]) -> T;

    /// The value for any operands, element by element.
    fn again(&self, x: [T; N]) -> T {
        self.of::<false>(x)
    }
}

/// A closure as a [`Function`].
struct Closure<F>(F);

impl<T, F: Fn([T; N]) -> T, const N: usize> Function<T, N> for Closure<F> {
    #[inline(always)]
    fn of<const FUSED: bool>(&self, x: [T; N]) -> T {
        self.0(x)
    }
}

/// `out[i] = f(inputs[0][i], ...)` for `i` in `0..n`.
///
/// A closure should own what it captures (`move`): what it reads by reference under a condition may
/// be gathered, lane by lane.
///
/// # Safety
/// Every pointer is valid for `n` elements; `out` is the same as an input or overlaps none.
pub unsafe fn map<T: Element, const N: usize>(
    inputs: [*const T; N],
    out: *mut T,
    n: usize,
    f: impl Fn([T; N]) -> T + Send + Sync,
) {
    // SAFETY: promised by the caller.
    unsafe { map_function(inputs, out, n, Closure(f)) }
}

/// As [`map`], of a [`Function`].
///
/// # Safety
/// As [`map`].
pub unsafe fn map_function<T: Element, F: Function<T, N> + Send + Sync, const N: usize>(
    inputs: [*const T; N],
    out: *mut T,
    n: usize,
    f: F,
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
    /// As [`map_function`] on this thread.
    ///
    /// # Safety
    /// As [`map`].
    unsafe fn map_task[T: Element, F: Function<T, N>, const N: usize][T, F, N](
        inputs: [*const T; N], out: *mut T, n: usize, f: &F,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { blocks::<T, F, N, FUSED>(inputs, out, n, f) }
    }
}

/// As [`map`], on this thread.
///
/// # Safety
/// As [`map`].
#[inline(always)]
pub unsafe fn map_serial<T: Element, const N: usize>(
    inputs: [*const T; N],
    out: *mut T,
    n: usize,
    f: impl Fn([T; N]) -> T,
) {
    // SAFETY: promised by the caller.
    unsafe { blocks::<T, _, N, false>(inputs, out, n, &Closure(f)) }
}

/// # Safety
/// As [`map`].
#[inline(always)]
unsafe fn blocks<T: Element, F: Function<T, N>, const N: usize, const FUSED: bool>(
    inputs: [*const T; N],
    out: *mut T,
    n: usize,
    f: &F,
) {
    if n <= FEW {
        for i in 0..n {
            // SAFETY: the offset is below `n`; the operands are read before the value is written.
            unsafe {
                let operands = inputs.map(|p| [*p.add(i)]);
                [*out.add(i)] = calculate::<_, _, N, 1, FUSED>(&operands, f);
            }
        }
        return;
    }
    // The rest is copied into blocks of its own: a copy of a length that is not constant would be a
    // call, for whole blocks as well.
    let rest = n % BLOCK;
    let (mut last, mut last_out) = ([[T::default(); BLOCK]; N], [T::default(); BLOCK]);
    for (block, input) in last.iter_mut().zip(inputs) {
        // SAFETY: `rest` elements are before the end; no output overlaps them but at their place.
        unsafe { std::ptr::copy_nonoverlapping(input.add(n - rest), block.as_mut_ptr(), rest) };
    }
    for start in (0..n).step_by(BLOCK).map(opaque) {
        let whole = n - start >= BLOCK;
        // SAFETY: a whole block is below `n`; each is read before it is written.
        unsafe {
            let block = std::array::from_fn(|k| {
                let from = if whole { inputs[k].add(start) } else { last[k].as_ptr() };
                from.cast::<[T; BLOCK]>().read()
            });
            let result = calculate::<_, _, N, BLOCK, FUSED>(&block, f);
            let to = if whole { out.add(start) } else { last_out.as_mut_ptr() };
            to.cast::<[T; BLOCK]>().write(result);
        }
    }
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(last_out.as_ptr(), out.add(n - rest), rest) };
}

/// The values of `f` at a block of operands.
///
/// Loops call it in few places: in many a long closure is not inlined, and so not vectorised.
#[inline(always)]
pub fn calculate<T, F, const N: usize, const LEN: usize, const FUSED: bool>(
    block: &[[T; LEN]; N],
    f: &F,
) -> [T; LEN]
where
    T: Element,
    F: Function<T, N>,
{
    let mut result = [T::default(); LEN];
    let operands = |i: usize| std::array::from_fn(|k| block[k][i]);
    for (i, r) in result.iter_mut().enumerate() {
        *r = f.of::<FUSED>(operands(i));
    }
    #[allow(clippy::eq_op)] // only NaN differs from itself
    let is_nan = |r: &T| *r != *r;
    // All are looked at, so that the test vectorises.
    if F::AGAIN && result.iter().fold(false, |any, r| any | is_nan(r)) {
        for (i, r) in result.iter_mut().enumerate().filter(|(_, r)| is_nan(r)) {
            *r = f.again(operands(i));
        }
    }
    result
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Knows its values below 10 only, and is asked again for the others.
    struct Half;

    impl Function<f32, 1> for Half {
        const AGAIN: bool = true;

        fn of<const FUSED: bool>(&self, [x]: [f32; 1]) -> f32 {
            if x < 10.0 { x / 2.0 } else { f32::NAN }
        }

        fn again(&self, [x]: [f32; 1]) -> f32 {
            assert!(x >= 10.0);
            x / 2.0
        }
    }

    #[test]
    fn functions_are_asked_again_where_they_answer_nan() {
        for n in [1, FEW, FEW + 1, BLOCK, 3 * BLOCK + 5] {
            let mut x: Vec<f32> = (0..n).map(|i| i as f32).collect();
            // SAFETY: the output is the input.
            unsafe { map_function([x.as_ptr()], x.as_mut_ptr(), n, Half) };
            assert!(x.iter().enumerate().all(|(i, y)| *y == i as f32 / 2.0), "{n}");
        }
    }

    #[test]
    fn loops_of_any_length_match_single_elements() {
        for n in [0, 1, FEW, FEW + 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5, GRAIN + BLOCK + 1] {
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
