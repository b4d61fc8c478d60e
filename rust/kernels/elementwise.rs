//! Element-wise loops over two or three operands, any of which may be a single repeated element.
//!
//! An operator is a type with a function on elements; the loop over it is compiled once per dtype
//! and selected as a plain function pointer, so a scalar, a row and a whole array share one loop.

use super::arith::Arith;
use super::map::{Function, GRAIN, blocks};
use super::parallel::{Shared, parallel_for};
use crate::dtype::Element;
use crate::half_precision::{f32_to_half, half_to_f32};
use half::f16;
use std::marker::PhantomData;

/// Elements calculated together.
const BLOCK: usize = 64;

/// A function of two elements.
pub trait Binary {
    /// Whether [`Binary::quick`] is NaN where it does not know the value.
    const AGAIN: bool = false;

    fn apply<T: Arith>(a: T, b: T) -> T;

    /// The value, in arithmetic that vectorises; `FUSED` as in [`simd!`](crate::simd).
    #[inline(always)]
    fn quick<T: Arith, const FUSED: bool>(a: T, b: T) -> T {
        Self::apply(a, b)
    }
}

/// A function of an output gradient and two operands.
pub trait Ternary {
    fn apply<T: Arith>(g: T, a: T, b: T) -> T;
}

/// `out[i] = f(a[i * step_a], b[i * step_b])` for `i` in `0..n`; steps are 0 or 1.
pub type BinaryLoop =
    unsafe fn(a: *const u8, b: *const u8, out: *mut u8, n: usize, steps: [usize; 2]);

/// `out[i] = f(g[i], a[i * step_a], b[i * step_b])`.
pub type TernaryLoop =
    unsafe fn(g: *const u8, a: *const u8, b: *const u8, out: *mut u8, n: usize, steps: [usize; 2]);

/// A [`Binary`] as a [`Function`].
struct OfTwo<F>(PhantomData<F>);

impl<T: Arith, F: Binary> Function<T, 2> for OfTwo<F> {
    const AGAIN: bool = F::AGAIN;

    #[inline(always)]
    fn of<const FUSED: bool>(&self, [a, b]: [T; 2]) -> T {
        F::quick::<T, FUSED>(a, b)
    }

    fn again(&self, [a, b]: [T; 2]) -> T {
        F::apply(a, b)
    }
}

/// A [`Ternary`] as a [`Function`].
struct OfThree<F>(PhantomData<F>);

impl<T: Arith, F: Ternary> Function<T, 3> for OfThree<F> {
    #[inline(always)]
    fn of<const FUSED: bool>(&self, [g, a, b]: [T; 3]) -> T {
        F::apply(g, a, b)
    }
}

/// A [`Ternary`] of half precision as a [`Function`]. The whole formula is calculated in `f32` and
/// rounded once: its intermediate results may be far outside of half precision.
struct OfThreeHalves<F>(PhantomData<F>);

impl<F: Ternary> Function<f16, 3> for OfThreeHalves<F> {
    #[inline(always)]
    fn of<const FUSED: bool>(&self, x: [f16; 3]) -> f16 {
        let [g, a, b] = x.map(half_to_f32);
        f32_to_half(F::apply(g, a, b))
    }
}

/// # Safety
/// As [`binary_loop`].
#[inline(always)]
unsafe fn two<T: Arith, F: Binary, const FUSED: bool>(
    [a, b]: [*const u8; 2],
    out: *mut u8,
    n: usize,
    steps: [usize; 2],
) {
    let ins = [a.cast::<T>(), b.cast()];
    // SAFETY: promised by the caller.
    unsafe { blocks::<T, _, 2, BLOCK, FUSED>(ins, steps, out.cast(), n, &OfTwo::<F>(PhantomData)) }
}

/// # Safety
/// As [`binary_loop`].
#[inline(always)]
unsafe fn three<T: Element, const FUSED: bool>(
    [g, a, b]: [*const u8; 3],
    out: *mut u8,
    n: usize,
    [left, right]: [usize; 2],
    f: &impl Function<T, 3>,
) {
    let ins = [g.cast::<T>(), a.cast(), b.cast()];
    // SAFETY: promised by the caller.
    unsafe { blocks::<T, _, 3, BLOCK, FUSED>(ins, [1, left, right], out.cast(), n, f) }
}

/// The loop of [`BinaryLoop`] for the baseline instruction set; [`binary_loop`] compiles it for
/// all.
///
/// # Safety
/// As [`binary_loop`].
pub unsafe fn plain_binary_loop<T: Arith, F: Binary>(
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    n: usize,
    steps: [usize; 2],
) {
    // SAFETY: promised by the caller.
    unsafe { two::<T, F, false>([a, b], out, n, steps) }
}

/// The loop of [`TernaryLoop`] for the baseline instruction set; [`ternary_loop`] compiles it for
/// all.
///
/// # Safety
/// As [`binary_loop`].
pub unsafe fn plain_ternary_loop<T: Arith, F: Ternary>(
    g: *const u8,
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    n: usize,
    steps: [usize; 2],
) {
    // SAFETY: promised by the caller.
    unsafe { three::<T, false>([g, a, b], out, n, steps, &OfThree::<F>(PhantomData)) }
}

crate::simd! {
    /// The loop of [`BinaryLoop`].
    ///
    /// # Safety
    /// Operands and output are valid for `n` elements (one where the step is 0); the output is the
    /// same memory as an operand of step 1 or overlaps none.
    pub unsafe fn binary_loop[T: Arith, F: Binary][T, F](
        a: *const u8, b: *const u8, out: *mut u8, n: usize, steps: [usize; 2]
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { two::<T, F, FUSED>([a, b], out, n, steps) }
    }

    /// The loop of [`TernaryLoop`].
    ///
    /// # Safety
    /// As [`binary_loop`].
    pub unsafe fn ternary_loop[T: Arith, F: Ternary][T, F](
        g: *const u8, a: *const u8, b: *const u8, out: *mut u8, n: usize, steps: [usize; 2]
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { three::<T, FUSED>([g, a, b], out, n, steps, &OfThree::<F>(PhantomData)) }
    }

    /// The loop of [`TernaryLoop`] for half precision.
    ///
    /// # Safety
    /// As [`binary_loop`].
    pub unsafe fn half_ternary_loop[F: Ternary][F](
        g: *const u8, a: *const u8, b: *const u8, out: *mut u8, n: usize, steps: [usize; 2]
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { three::<f16, FUSED>([g, a, b], out, n, steps, &OfThreeHalves::<F>(PhantomData)) }
    }
}

/// A [`BinaryLoop`] over `n` elements of `size` bytes, split between threads.
///
/// # Safety
/// As [`binary_loop`].
pub unsafe fn binary(
    run: BinaryLoop,
    size: usize,
    [a, b]: [*const u8; 2],
    out: *mut u8,
    n: usize,
    steps: [usize; 2],
) {
    if n <= GRAIN {
        // SAFETY: promised by the caller.
        return unsafe { run(a, b, out, n, steps) };
    }
    let (a, b, out) = (Shared(a.cast_mut()), Shared(b.cast_mut()), Shared(out));
    parallel_for(n, GRAIN, |r| {
        let at = r.start * size;
        // SAFETY: the range lies in `0..n`; tasks have ranges of their own.
        unsafe {
            run(
                a.at(at * steps[0]).cast_const(),
                b.at(at * steps[1]).cast_const(),
                out.at(at),
                r.len(),
                steps,
            )
        }
    });
}

/// A [`TernaryLoop`] over `n` elements of `size` bytes, split between threads.
///
/// # Safety
/// As [`binary`].
pub unsafe fn ternary(
    run: TernaryLoop,
    size: usize,
    g: *const u8,
    [a, b]: [*const u8; 2],
    out: *mut u8,
    n: usize,
    steps: [usize; 2],
) {
    let [g, a, b, out] = [g.cast_mut(), a.cast_mut(), b.cast_mut(), out].map(Shared);
    parallel_for(n, GRAIN, |r| {
        let at = r.start * size;
        // SAFETY: the range lies in `0..n`; tasks have ranges of their own.
        unsafe {
            run(
                g.at(at).cast_const(),
                a.at(at * steps[0]).cast_const(),
                b.at(at * steps[1]).cast_const(),
                out.at(at),
                r.len(),
                steps,
            )
        }
    });
}
