//! Element-wise loops: one, two or three operands, any of which may be a single repeated element.
//!
//! An operator is a type with a function on elements; the loop over it is compiled once per dtype
//! and selected as a plain function pointer, so a scalar, a row and a whole array share one loop.

use super::arch::opaque;
use super::arith::Arith;
use super::parallel::{Shared, parallel_for};
use crate::half_precision::{f32_to_half, half_to_f32};
use half::f16;
use std::mem::MaybeUninit;

/// Elements a task handles.
pub const GRAIN: usize = 1 << 15;
/// Elements read before any is written, so that the compiler vectorises without checking whether an
/// operand is the output itself.
const BLOCK: usize = 64;
/// Elements of the blocks at the end.
const SHORT: usize = 8;

/// A function of one element.
pub trait Unary {
    fn apply<T: Arith>(x: T) -> T;
}

/// A function of two elements.
pub trait Binary {
    fn apply<T: Arith>(a: T, b: T) -> T;
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

/// `out[i] = f(ins[k][i * steps[k]] for all k)`: in long blocks, then short ones, of which the last
/// may be partial.
///
/// # Safety
/// As [`binary_loop`].
#[inline(always)]
unsafe fn blocked<T: Copy, const N: usize>(
    ins: [*const T; N],
    steps: [usize; N],
    out: *mut T,
    n: usize,
    f: impl Fn([T; N]) -> T,
) {
    let mut at = 0;
    while n - at >= BLOCK {
        // SAFETY: a whole block is left.
        unsafe { block::<T, N, BLOCK>(ins, steps, out, at, BLOCK, &f) };
        at += BLOCK;
    }
    while n - at >= SHORT {
        // SAFETY: as above.
        unsafe { block::<T, N, SHORT>(ins, steps, out, opaque(at), SHORT, &f) };
        at += SHORT;
    }
    if n > at {
        // SAFETY: `n - at` elements are left.
        unsafe { block::<T, N, SHORT>(ins, steps, out, at, n - at, &f) };
    }
}

/// Elements `at..at + len` of [`blocked`], computed as a block of `LEN`, whose other lanes repeat
/// the first element.
///
/// # Safety
/// As [`binary_loop`], with `0 < len <= LEN` elements from `at` on.
#[inline(always)]
unsafe fn block<T: Copy, const N: usize, const LEN: usize>(
    ins: [*const T; N],
    steps: [usize; N],
    out: *mut T,
    at: usize,
    len: usize,
    f: &impl Fn([T; N]) -> T,
) {
    let mut read = [[const { MaybeUninit::<T>::uninit() }; LEN]; N];
    for (k, row) in read.iter_mut().enumerate() {
        // SAFETY: the operand has `len` elements from here on, or the one that is repeated.
        unsafe {
            let from = ins[k].add(at * steps[k]);
            if steps[k] == 0 || len < LEN {
                row.fill(MaybeUninit::new(*from));
            }
            if steps[k] != 0 {
                std::ptr::copy_nonoverlapping(from, row.as_mut_ptr().cast::<T>(), len);
            }
        }
    }
    let mut result = [const { MaybeUninit::<T>::uninit() }; LEN];
    for (i, slot) in result.iter_mut().enumerate() {
        // SAFETY: all of every row is written above.
        slot.write(f(std::array::from_fn(|k| unsafe { read[k][i].assume_init() })));
    }
    // SAFETY: `result` is written; the output has `len` elements from here on.
    unsafe { std::ptr::copy_nonoverlapping(result.as_ptr().cast::<T>(), out.add(at), len) };
}

/// The loop of [`BinaryLoop`] for the baseline instruction set; [`binary_loop`] compiles it for
/// all.
///
/// # Safety
/// As [`binary_loop`].
#[inline(always)]
pub unsafe fn plain_binary_loop<T: Arith, F: Binary>(
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    n: usize,
    steps: [usize; 2],
) {
    // SAFETY: promised by the caller.
    unsafe { blocked([a.cast::<T>(), b.cast()], steps, out.cast(), n, |[a, b]| F::apply(a, b)) }
}

/// The loop of [`TernaryLoop`] for the baseline instruction set; [`ternary_loop`] compiles it for
/// all.
///
/// # Safety
/// As [`binary_loop`].
#[inline(always)]
pub unsafe fn plain_ternary_loop<T: Arith, F: Ternary>(
    g: *const u8,
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    n: usize,
    [left, right]: [usize; 2],
) {
    let ins = [g.cast::<T>(), a.cast(), b.cast()];
    // SAFETY: promised by the caller.
    unsafe { blocked(ins, [1, left, right], out.cast(), n, |[g, a, b]| F::apply(g, a, b)) }
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
        unsafe { plain_binary_loop::<T, F>(a, b, out, n, steps) }
    }

    /// The loop of [`TernaryLoop`].
    ///
    /// # Safety
    /// As [`binary_loop`].
    pub unsafe fn ternary_loop[T: Arith, F: Ternary][T, F](
        g: *const u8, a: *const u8, b: *const u8, out: *mut u8, n: usize, steps: [usize; 2]
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { plain_ternary_loop::<T, F>(g, a, b, out, n, steps) }
    }

    /// The loop of [`TernaryLoop`] for half precision. The whole formula is calculated in `f32` and
    /// rounded once: its intermediate results may be far outside of half precision.
    ///
    /// # Safety
    /// As [`binary_loop`].
    pub unsafe fn half_ternary_loop[F: Ternary][F](
        g: *const u8, a: *const u8, b: *const u8, out: *mut u8, n: usize, steps: [usize; 2]
    ) -> () {
        let (ins, [left, right]) = ([g.cast::<f16>(), a.cast(), b.cast()], steps);
        // SAFETY: promised by the caller.
        unsafe {
            blocked(ins, [1, left, right], out.cast(), n, |x| {
                let [g, a, b] = x.map(half_to_f32);
                f32_to_half(F::apply(g, a, b))
            })
        }
    }

    /// `out[i] = f(x[i])`.
    ///
    /// # Safety
    /// As [`binary_loop`].
    pub unsafe fn unary_loop[T: Copy, F: Fn(T) -> T][T, F](
        x: *const T, out: *mut T, n: usize, f: &F
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { blocked([x], [1], out, n, |[x]| f(x)) }
    }

    /// `out[i] = f(x[i], y[i])`.
    ///
    /// # Safety
    /// As [`binary_loop`].
    pub unsafe fn zip_loop[T: Copy, F: Fn(T, T) -> T][T, F](
        x: *const T, y: *const T, out: *mut T, n: usize, f: &F
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { blocked([x, y], [1, 1], out, n, |[x, y]| f(x, y)) }
    }
}

/// [`unary_loop`] over `n` elements, split between threads.
///
/// # Safety
/// `x` and `out` are valid for `n` elements and are the same memory or apart.
pub unsafe fn unary<T: Copy, F: Fn(T) -> T + Sync>(x: *const T, out: *mut T, n: usize, f: &F) {
    let (x, out) = (Shared(x.cast_mut()), Shared(out));
    parallel_for(n, GRAIN, |r| {
        // SAFETY: the range lies in `0..n`; tasks have ranges of their own.
        unsafe { unary_loop(x.at(r.start).cast_const(), out.at(r.start), r.len(), f) }
    });
}

/// [`zip_loop`] over `n` elements, split between threads.
///
/// # Safety
/// All are valid for `n` elements; `out` is the same memory as an operand or overlaps none.
pub unsafe fn zip<T: Copy, F: Fn(T, T) -> T + Sync>(
    x: *const T,
    y: *const T,
    out: *mut T,
    n: usize,
    f: &F,
) {
    let (x, y, out) = (Shared(x.cast_mut()), Shared(y.cast_mut()), Shared(out));
    parallel_for(n, GRAIN, |r| {
        let i = r.start;
        // SAFETY: the range lies in `0..n`; tasks have ranges of their own.
        unsafe { zip_loop(x.at(i).cast_const(), y.at(i).cast_const(), out.at(i), r.len(), f) }
    });
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
