//! Polynomials, which elementary functions are made of.

use num_traits::Float;

/// `a * b + c`, in one rounding where `FUSED`.
#[inline(always)]
pub fn multiply_add<T: Float, const FUSED: bool>(a: T, b: T, c: T) -> T {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// `c[0] x^n + c[1] x^(n - 1) + ...`, by Horner's rule.
#[inline(always)]
pub fn polynomial<T: Float, const FUSED: bool, const N: usize>(x: T, c: [T; N]) -> T {
    let mut p = c[0];
    for i in 1..N {
        p = multiply_add::<T, FUSED>(p, x, c[i]);
    }
    p
}
