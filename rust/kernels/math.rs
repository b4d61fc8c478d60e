//! Elementary functions that vectorise, and special functions.
//!
//! The single-precision ones are branch-free polynomials on the reduced argument, so a loop over
//! them is compiled to vector instructions; their integers use wrapping arithmetic, as an overflow
//! check would be a branch. `narrow` has those that are calculated in single precision, `wide`
//! those that go by way of double precision; their parameter `FUSED` is that of
//! [`simd!`](crate::simd). The double-precision ones are the system's. `single` and `double` offer
//! the same names, so that a formula is written once for both.

pub mod narrow;
pub mod polynomial;
pub mod wide;

/// a^b rounded once from about 40 bits, with C's special values (C99, F.9.4.4): `2^(b log2(a))` in
/// double precision, the logarithm by the series of `atanh`, the power by that of `exp`.
#[inline(always)]
pub fn pow_f32<const FUSED: bool>(a: f32, b: f32) -> f32 {
    let size = a.abs();
    // Subnormal numbers are normal ones in double precision.
    let log2 = wide::log2_finite::<FUSED>(f64::from(size));
    let log2 = if size == 0.0 { f64::NEG_INFINITY } else { log2 };
    let log2 = if size == f32::INFINITY { f64::INFINITY } else { log2 };
    let r = wide::exp2::<FUSED>(f64::from(b) * log2) as f32;
    let half = b * 0.5;
    let whole = b.trunc() == b;
    let odd = whole && half.trunc() != half;
    let r = if a.is_sign_negative() && odd { -r } else { r };
    let r = if a < 0.0 && size < f32::INFINITY && !whole { f32::NAN } else { r };
    let r = if a.is_nan() || b.is_nan() { f32::NAN } else { r };
    let r = if size == 1.0 && b.is_infinite() { 1.0 } else { r };
    if a == 1.0 || b == 0.0 { 1.0 } else { r }
}

/// sqrt(a * a + b * b) in double precision, where it does not overflow; infinite if either is, even
/// beside NaN.
#[inline(always)]
pub fn hypot_f32(a: f32, b: f32) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    let y = (x * x + y * y).sqrt() as f32;
    let infinite = a.abs() == f32::INFINITY || b.abs() == f32::INFINITY;
    if infinite { f32::INFINITY } else { y }
}

/// The remainder of a by b, with the sign of b (a 0 with that of a); 0 where b is 0. It is exact;
/// where the quotient is 2^28 or more, or an operand not finite, it is NaN instead.
#[inline(always)]
pub fn rem_f32(a: f32, b: f32) -> f32 {
    // A whole number of 29 bits times one of 24: exact. The quotient is further from the next whole
    // number than its rounding.
    const MOST: f64 = 268_435_456.0; // 2^28
    let (x, y) = (f64::from(a), f64::from(b));
    let q = x / y;
    let r = (x - q.floor() * y) as f32;
    let r = if r == 0.0 { r.copysign(a) } else { r };
    let r = if q.abs() < MOST { r } else { f32::NAN };
    if b == 0.0 { 0.0 } else { r }
}

// C's mathematical library, which every platform's standard library links.
mod c {
    unsafe extern "C" {
        pub safe fn erf(x: f64) -> f64;
        pub safe fn erfc(x: f64) -> f64;
        pub safe fn tgamma(x: f64) -> f64;
        // The reentrant form: the other one writes a global variable.
        pub fn lgamma_r(x: f64, sign: *mut i32) -> f64;
    }
}

/// erf(x).
pub fn erf_f64(x: f64) -> f64 {
    c::erf(x)
}

/// The inverse of erf: a first guess, then Newton steps.
pub fn erfinv_f64(x: f64) -> f64 {
    if x.abs() >= 1.0 || x.is_nan() {
        return if x.abs() == 1.0 { x * f64::INFINITY } else { f64::NAN };
    }
    let size = x.abs();
    let mut y = wide::erfinv_guess(size, -((1.0 - x) * (1.0 + x)).ln());
    for _ in 0..4 {
        let slope = std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp();
        if y > 1.0 {
            // Near 1 the distance from 1 is exact, and its logarithm is nearly a square.
            let rest = c::erfc(y);
            y += rest / slope * (rest / (1.0 - size)).ln();
        } else {
            y -= (erf_f64(y) - size) / slope;
        }
    }
    y.copysign(x)
}

/// log(abs(gamma(x))); infinite at 0, at the negative integers and at both infinities.
pub fn gammaln_f64(x: f64) -> f64 {
    let mut sign = 0;
    // SAFETY: the function writes the sign of gamma(x) to the given address, which is ours.
    unsafe { c::lgamma_r(x, &mut sign) }
}

/// The gamma function, exact for the factorials; infinite at 0 (with its sign), NaN at the negative
/// integers.
pub fn gamma_f64(x: f64) -> f64 {
    // The C function is off by a rounding for some factorials; up to 22! products are exact.
    if (1.0..=23.0).contains(&x) && x.fract() == 0.0 {
        return (1..x as u32).map(f64::from).product();
    }
    c::tgamma(x)
}

/// The inverse of sinh. The logarithm of a sum of squares would overflow.
pub fn asinh_f64(x: f64) -> f64 {
    let a = x.abs();
    if a > 1e8 { (a.ln() + std::f64::consts::LN_2).copysign(x) } else { x.asinh() }
}

/// The inverse of cosh; NaN below 1.
pub fn acosh_f64(x: f64) -> f64 {
    if x < 1.0 {
        return f64::NAN;
    }
    if x > 1e8 {
        return x.ln() + std::f64::consts::LN_2;
    }
    let t = x - 1.0;
    (t + (t * (t + 2.0)).sqrt()).ln_1p()
}

/// The derivative of log(gamma(x)): recurrence up to 6, then the asymptotic series (Abramowitz and
/// Stegun 6.3.5, 6.3.18). Infinite at its poles: 0 and the negative integers.
pub fn digamma_f64(x: f64) -> f64 {
    if x <= 0.0 && x == x.floor() {
        return f64::INFINITY;
    }
    if x < 0.5 {
        let t = (std::f64::consts::PI * x).tan();
        return digamma_f64(1.0 - x) - std::f64::consts::PI / t;
    }
    let (mut x, mut shift) = (x, 0.0);
    while x < 8.0 {
        shift -= 1.0 / x;
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    let series = z * (1. / 12. - z * (1. / 120. - z * (1. / 252. - z * (1. / 240. - z / 132.))));
    shift + x.ln() - 0.5 / x - series
}

/// Derivative `n` of [`digamma_f64`]: recurrence, then the asymptotic series (Abramowitz and Stegun
/// 6.4.6, 6.4.11). Below 0 the reflection (6.4.7), whose other part has the period 1 and so the
/// value that it has between 0 and 1. At the poles infinite for odd `n`, else NaN, as the sides
/// differ.
pub fn polygamma_f64(n: u32, x: f64) -> f64 {
    /// Bernoulli's numbers B2, B4 ... over the factorials of their indices.
    const COEFFICIENTS: [f64; 5] =
        [1. / 12., -1. / 720., 1. / 30240., -1. / 1209600., 1. / 47900160.];
    if n == 0 {
        return digamma_f64(x);
    }
    let sign = if n.is_multiple_of(2) { 1.0 } else { -1.0 };
    if x <= 0.0 {
        let part = x - x.floor();
        if part == 0.0 {
            return if sign < 0.0 { f64::INFINITY } else { f64::NAN };
        }
        let periodic = sign * polygamma_f64(n, 1.0 - part) - polygamma_f64(n, part);
        return sign * polygamma_f64(n, 1.0 - x) - periodic;
    }
    let (order, mut x, mut sum) = (f64::from(n), x, 0.0);
    while x < 12.0 + order {
        sum += x.powf(-order - 1.0);
        x += 1.0;
    }
    let power = x.powf(-order);
    sum += power / order + power / (2.0 * x);
    // (n + 1) ... (n + 2 k - 1) / x^(n + 2 k)
    let mut term = power * (order + 1.0) / (x * x);
    for (k, c) in (1..).zip(COEFFICIENTS) {
        sum += c * term;
        let past = order + 2.0 * f64::from(k);
        term *= past * (past + 1.0) / (x * x);
    }
    let factorial: f64 = (1..=n).map(f64::from).product();
    -sign * factorial * sum
}

/// Functions of `f32`: in `fused` for loops over instructions that multiply and add in one
/// rounding, in `plain` for others.
pub mod single {
    macro_rules! functions {
        ($module:ident $fused:literal: $($from:ident::{$($name:ident),*})*) => {
            pub mod $module {
                use super::super::{gamma_f64, gammaln_f64, digamma_f64, narrow, wide};

                $($(#[inline(always)]
                pub fn $name(x: f32) -> f32 {
                    $from::$name::<$fused>(x)
                })*)*

                #[inline(always)]
                pub fn select(condition: bool, a: f32, b: f32) -> f32 {
                    if condition { a } else { b }
                }
                #[inline(always)]
                pub fn num(x: f64) -> f32 {
                    x as f32
                }
                #[inline(always)]
                pub fn sigmoid(x: f32) -> f32 {
                    1.0 / (1.0 + exp(-x))
                }
                #[inline(always)]
                pub fn sign(x: f32) -> f32 {
                    (x > 0.0) as i32 as f32 - (x < 0.0) as i32 as f32
                }
                pub fn gamma(x: f32) -> f32 {
                    gamma_f64(x as f64) as f32
                }
                pub fn gammaln(x: f32) -> f32 {
                    gammaln_f64(x as f64) as f32
                }
                pub fn digamma(x: f32) -> f32 {
                    digamma_f64(x as f64) as f32
                }
            }
        };
    }

    /// The same functions in a module for each value of `FUSED`.
    macro_rules! modules {
        ($($functions:tt)*) => {
            functions! { fused true: $($functions)* }
            functions! { plain false: $($functions)* }
        };
    }
    modules! {
        narrow::{atanh, erf, erfinv, exp, log, log10, log1p, log2, softplus, tanh}
        wide::{acos, acosh, asin, asinh, atan, cos, cosh, expm1, sin, sinh, tan}
    }
}

/// The system's functions of `f32`, for angles of any size.
pub mod system {
    pub fn num(x: f64) -> f32 {
        x as f32
    }
    pub fn sin(x: f32) -> f32 {
        x.sin()
    }
    pub fn cos(x: f32) -> f32 {
        x.cos()
    }
    pub fn tan(x: f32) -> f32 {
        x.tan()
    }
}

/// Functions of `f64`.
pub mod double {
    pub use super::{
        acosh_f64 as acosh, asinh_f64 as asinh, digamma_f64 as digamma, erf_f64 as erf,
        erfinv_f64 as erfinv, gamma_f64 as gamma, gammaln_f64 as gammaln,
    };

    #[inline(always)]
    pub fn select(condition: bool, a: f64, b: f64) -> f64 {
        if condition { a } else { b }
    }
    #[inline(always)]
    pub fn num(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    pub fn exp(x: f64) -> f64 {
        x.exp()
    }
    #[inline(always)]
    pub fn log(x: f64) -> f64 {
        x.ln()
    }
    #[inline(always)]
    pub fn tanh(x: f64) -> f64 {
        x.tanh()
    }
    #[inline(always)]
    pub fn expm1(x: f64) -> f64 {
        x.exp_m1()
    }
    #[inline(always)]
    pub fn log1p(x: f64) -> f64 {
        x.ln_1p()
    }
    #[inline(always)]
    pub fn log2(x: f64) -> f64 {
        x.log2()
    }
    #[inline(always)]
    pub fn log10(x: f64) -> f64 {
        x.log10()
    }
    #[inline(always)]
    pub fn sin(x: f64) -> f64 {
        x.sin()
    }
    #[inline(always)]
    pub fn cos(x: f64) -> f64 {
        x.cos()
    }
    #[inline(always)]
    pub fn tan(x: f64) -> f64 {
        x.tan()
    }
    #[inline(always)]
    pub fn sinh(x: f64) -> f64 {
        x.sinh()
    }
    #[inline(always)]
    pub fn cosh(x: f64) -> f64 {
        x.cosh()
    }
    #[inline(always)]
    pub fn asin(x: f64) -> f64 {
        x.asin()
    }
    #[inline(always)]
    pub fn acos(x: f64) -> f64 {
        x.acos()
    }
    #[inline(always)]
    pub fn atan(x: f64) -> f64 {
        x.atan()
    }
    #[inline(always)]
    pub fn atanh(x: f64) -> f64 {
        x.abs().atanh().copysign(x)
    }
    #[inline(always)]
    pub fn softplus(x: f64) -> f64 {
        x.max(0.0) + (-x.abs()).exp().ln_1p()
    }
    #[inline(always)]
    pub fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }
    #[inline(always)]
    pub fn sign(x: f64) -> f64 {
        (x > 0.0) as i32 as f64 - (x < 0.0) as i32 as f64
    }
}

#[cfg(test)]
mod tests;
