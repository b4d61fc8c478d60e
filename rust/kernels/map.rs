//! Element-wise loops over any number of equally long inputs. An output may be the very memory of
//! an input.

use super::arch::opaque;
use super::parallel::{Shared, parallel_for};
use crate::dtype::Element;

/// Elements a task handles.
pub const GRAIN: usize = 1 << 15;
/// Elements read before any is written: the compiler vectorises a block without checking whether
/// input and output are the same.
const BLOCK: usize = 32;
/// Up to so many elements are calculated one by one: a block would take longer.
const FEW: usize = 8;

/// A function of `N` elements.
pub trait Function<T, const N: usize> {
    /// Whether [`Function::again`] is asked where [`Function::of`] answers NaN to operands of which
    /// none is.
    const AGAIN: bool = false;

    /// The value, in arithmetic that vectorises; `FUSED` as in [`simd!`](crate::simd). It is
    /// called for some zeros as well, whose values nobody reads.
    fn of<const FUSED: bool>(&self, x: [T; N]) -> T;

    /// The value for any operands, element by element.
    fn again(&self, x: [T; N]) -> T {
        self.of::<false>(x)
    }
}

/// A block where no vector of it lies in two cache lines: what does not stay in registers is read
/// and written twice as fast.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Aligned<B>(B);

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
        unsafe { blocks::<T, F, N, BLOCK, FUSED>(inputs, [1; N], out, n, f) }
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
    unsafe { blocks::<T, _, N, BLOCK, false>(inputs, [1; N], out, n, &Closure(f)) }
}

/// As [`map_serial`], in blocks of 16 elements: for short rows.
///
/// # Safety
/// As [`map`].
#[inline(always)]
pub unsafe fn map_short<T: Element, const N: usize>(
    inputs: [*const T; N],
    out: *mut T,
    n: usize,
    f: impl Fn([T; N]) -> T,
) {
    // SAFETY: promised by the caller.
    unsafe { blocks::<T, _, N, 16, false>(inputs, [1; N], out, n, &Closure(f)) }
}

/// `out[i] = f(inputs[k][i * steps[k]] for all k)`, in blocks of `LEN`; steps are 0 or 1.
///
/// # Safety
/// Operands and output are valid for `n` elements (one where the step is 0); the output is the same
/// memory as an operand of step 1 or overlaps none.
#[inline(always)]
pub unsafe fn blocks<T, F, const N: usize, const LEN: usize, const FUSED: bool>(
    inputs: [*const T; N],
    steps: [usize; N],
    out: *mut T,
    n: usize,
    f: &F,
) where
    T: Element,
    F: Function<T, N>,
{
    if n <= FEW {
        for i in 0..n {
            // SAFETY: the offset is below `n`; the operands are read before the value is written.
            unsafe {
                let operands = std::array::from_fn(|k| Aligned([*inputs[k].add(i * steps[k])]));
                [*out.add(i)] = calculate::<_, _, N, 1, FUSED>(&operands, f).0;
            }
        }
        return;
    }
    // The rest is copied into blocks of its own, which repeat single elements: a copy of a length
    // that is not constant would be a call, for whole blocks as well.
    let rest = n % LEN;
    let mut last = [[T::default(); LEN]; N];
    let mut last_out = [T::default(); LEN];
    for k in 0..N {
        // SAFETY: there are so many elements, or one; no output overlaps them but at their place.
        unsafe {
            match steps[k] {
                0 => last[k].fill(*inputs[k]),
                _ => inputs[k].add(n - rest).copy_to_nonoverlapping(last[k].as_mut_ptr(), rest),
            }
        }
    }
    for start in (0..n).step_by(LEN).map(opaque) {
        let whole = n - start >= LEN;
        // SAFETY: a whole block is below `n`; each is read before it is written.
        unsafe {
            let block = std::array::from_fn(|k| {
                let here = whole && steps[k] != 0;
                let from = if here { inputs[k].add(start) } else { last[k].as_ptr() };
                Aligned(from.cast::<[T; LEN]>().read())
            });
            let result = calculate::<_, _, N, LEN, FUSED>(&block, f);
            let to = if whole { out.add(start) } else { last_out.as_mut_ptr() };
            to.cast::<[T; LEN]>().write(result.0);
        }
    }
    // SAFETY: as above.
    unsafe { last_out.as_ptr().copy_to_nonoverlapping(out.add(n - rest), rest) };
}

/// The values of `f` at a block of operands.
///
/// Loops call it in few places: in many a long closure is not inlined, and so not vectorised.
#[inline(always)]
fn calculate<T, F, const N: usize, const LEN: usize, const FUSED: bool>(
    block: &[Aligned<[T; LEN]>; N],
    f: &F,
) -> Aligned<[T; LEN]>
where
    T: Element,
    F: Function<T, N>,
{
    let mut result = Aligned([T::default(); LEN]);
    let operands = |i: usize| std::array::from_fn(|k| block[k].0[i]);
    for (i, r) in result.0.iter_mut().enumerate() {
        *r = f.of::<FUSED>(operands(i));
    }
    if F::AGAIN {
        #[allow(clippy::eq_op)] // only NaN differs from itself
        let is_nan = |x: &T| *x != *x;
        // Numbers that are written and then joined: a chain of conditions may stay scalar.
        let mut unknown = Aligned([0u32; LEN]);
        for (i, u) in unknown.0.iter_mut().enumerate() {
            let of_nan = block.iter().fold(false, |any, row| any | is_nan(&row.0[i]));
            *u = u32::from(is_nan(&result.0[i]) & !of_nan);
        }
        if unknown.0.iter().fold(0, |any, u| any | u) != 0 {
            for (i, r) in result.0.iter_mut().enumerate().filter(|(i, _)| unknown.0[*i] != 0) {
                *r = f.again(operands(i));
            }
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
            assert!(x >= 10.0, "asked again of {x}");
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
            x.fill(f32::NAN);
            // SAFETY: as above.
            unsafe { map_function([x.as_ptr()], x.as_mut_ptr(), n, Half) };
            assert!(x.iter().all(|y| y.is_nan()), "{n}");
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
