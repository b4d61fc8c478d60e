//! Element-wise loops: one, two or three operands, any of which may be a single repeated element.
//!
//! An operator is a type with a function on elements; the loop over it is compiled once a dtype and picked
//! from there as a plain function pointer, so a scalar, a row and a whole array share one loop.

use super::arith::Arith;
use super::parallel::{Shared, parallel_for};

/// Elements a task handles.
pub const GRAIN: usize = 1 << 15;
/// Elements read before any is written, so that the compiler vectorises without asking whether an operand
/// is the output itself.
const BLOCK: usize = 64;

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

/// Reads a block of an operand: `len` elements, or one element repeated.
///
/// # Safety
/// `p` is valid for `len` elements (one if `step` is 0).
#[inline(always)]
unsafe fn load<T: Arith>(p: *const T, step: usize, len: usize, block: &mut [T; BLOCK]) {
    // SAFETY: promised by the caller; `len` is at most BLOCK.
    unsafe {
        if step == 0 {
            block[..len].fill(*p);
        } else {
            std::ptr::copy_nonoverlapping(p, block.as_mut_ptr(), len);
        }
    }
}

/// The loop of [`BinaryLoop`] for the baseline instruction set; [`binary_loop`] compiles it for all.
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
    let (a, b, out) = (a.cast::<T>(), b.cast::<T>(), out.cast::<T>());
    let mut blocks = [[T::zero(); BLOCK]; 3];
    for start in (0..n).step_by(BLOCK) {
        let len = BLOCK.min(n - start);
        let [x, y, z] = &mut blocks;
        // SAFETY: `start + len <= n`; the block is read before it is written.
        unsafe {
            load(a.add(start * steps[0]), steps[0], len, x);
            load(b.add(start * steps[1]), steps[1], len, y);
        }
        if len == BLOCK {
            for i in 0..BLOCK {
                z[i] = F::apply(x[i], y[i]);
            }
        } else {
            for i in 0..len {
                z[i] = F::apply(x[i], y[i]);
            }
        }
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(z.as_ptr(), out.add(start), len) };
    }
}

/// The loop of [`TernaryLoop`] for the baseline instruction set; [`ternary_loop`] compiles it for all.
///
/// # Safety
/// As [`ternary_loop`].
#[inline(always)]
pub unsafe fn plain_ternary_loop<T: Arith, F: Ternary>(
    g: *const u8,
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    n: usize,
    steps: [usize; 2],
) {
    let (g, a, b, out) = (g.cast::<T>(), a.cast::<T>(), b.cast::<T>(), out.cast::<T>());
    let mut blocks = [[T::zero(); BLOCK]; 4];
    for start in (0..n).step_by(BLOCK) {
        let len = BLOCK.min(n - start);
        let [u, x, y, z] = &mut blocks;
        // SAFETY: `start + len <= n`; the block is read before it is written.
        unsafe {
            load(g.add(start), 1, len, u);
            load(a.add(start * steps[0]), steps[0], len, x);
            load(b.add(start * steps[1]), steps[1], len, y);
        }
        for i in 0..len {
            z[i] = F::apply(u[i], x[i], y[i]);
        }
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(z.as_ptr(), out.add(start), len) };
    }
}

crate::simd! {
    /// The loop of [`BinaryLoop`].
    ///
    /// # Safety
    /// Operands and output are valid for `n` elements (one where the step is 0); the output is the same
    /// memory as an operand of step 1 or overlaps none.
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

    /// `out[i] = f(x[i])`.
    ///
    /// # Safety
    /// As [`binary_loop`].
    pub unsafe fn unary_loop[T: Copy + Default, F: Fn(T) -> T][T, F](
        x: *const T, out: *mut T, n: usize, f: &F
    ) -> () {
        let mut blocks = [[T::default(); BLOCK]; 2];
        for start in (0..n).step_by(BLOCK) {
            let len = BLOCK.min(n - start);
            let [a, z] = &mut blocks;
            // SAFETY: `start + len <= n`; the block is read before it is written.
            unsafe { std::ptr::copy_nonoverlapping(x.add(start), a.as_mut_ptr(), len) };
            if len == BLOCK {
                for i in 0..BLOCK {
                    z[i] = f(a[i]);
                }
            } else {
                for i in 0..len {
                    z[i] = f(a[i]);
                }
            }
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(z.as_ptr(), out.add(start), len) };
        }
    }

    /// `out[i] = f(x[i], y[i])`.
    ///
    /// # Safety
    /// As [`binary_loop`].
    pub unsafe fn zip_loop[T: Copy + Default, F: Fn(T, T) -> T][T, F](
        x: *const T, y: *const T, out: *mut T, n: usize, f: &F
    ) -> () {
        let mut blocks = [[T::default(); BLOCK]; 3];
        for start in (0..n).step_by(BLOCK) {
            let len = BLOCK.min(n - start);
            let [a, b, z] = &mut blocks;
            // SAFETY: `start + len <= n`; the block is read before it is written.
            unsafe {
                std::ptr::copy_nonoverlapping(x.add(start), a.as_mut_ptr(), len);
                std::ptr::copy_nonoverlapping(y.add(start), b.as_mut_ptr(), len);
            }
            if len == BLOCK {
                for i in 0..BLOCK {
                    z[i] = f(a[i], b[i]);
                }
            } else {
                for i in 0..len {
                    z[i] = f(a[i], b[i]);
                }
            }
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(z.as_ptr(), out.add(start), len) };
        }
    }
}

/// [`unary_loop`] over `n` elements, split between threads.
///
/// # Safety
/// `x` and `out` are valid for `n` elements and are the same memory or apart.
pub unsafe fn unary<T: Copy + Default, F: Fn(T) -> T + Sync>(
    x: *const T,
    out: *mut T,
    n: usize,
    f: &F,
) {
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
pub unsafe fn zip<T: Copy + Default, F: Fn(T, T) -> T + Sync>(
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
