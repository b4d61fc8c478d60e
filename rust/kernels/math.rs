//! Elementary functions that vectorise, and special functions.
//!
//! The single-precision ones are branch-free polynomials on the reduced argument, so a loop over
//! them is compiled to vector instructions; their integers use wrapping arithmetic, as an overflow
//! check would be a branch. More of them, by way of double precision, are in `wide`. The
//! double-precision ones are the system's. `single` and `double` offer the same names, so that a
//! formula is written once for both.

mod wide;

/// 2^k as a float, for k from -126 to 127.
#[inline(always)]
fn power_of_two(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// A whole number between -2^22 and 2^22 as an integer: it stands in the low bits of a float whose
/// last place is 1. (`as` would check for NaN and limits, element by element.)
#[inline(always)]
fn whole_number(k: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0; // 1.5 * 2^23
    ((k + SHIFT).to_bits() as i32).wrapping_sub(SHIFT.to_bits() as i32)
}

/// exp(x) to about 1 ulp (Cody-Waite reduction; the coefficients are the Taylor series economised
/// on [-log(2)/2, log(2)/2], S. Moshier, Cephes, expf).
#[inline(always)]
pub fn exp_f32(x: f32) -> f32 {
    const LOG2E: f32 = std::f32::consts::LOG2_E;
    // Beyond these the result is 0 or infinite.
    let clamped = if x > 89.0 { 89.0 } else { x };
    let clamped = if clamped < -104.0 { -104.0 } else { clamped };
    let k = (clamped * LOG2E + 0.5).floor();
    let r = clamped - k * 0.693_359_4;
    let r = r - k * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 0.166_666_66;
    p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    // Two steps, so that results below the least normal number and above 2^127 come out right. NaN
    // became 0.
    let k = whole_number(k);
    let half = k >> 1;
    let y = y * power_of_two(half) * power_of_two(k.wrapping_sub(half));
    if x.is_nan() { x } else { y }
}

/// `a * b + c`, in one rounding where `FUSED`.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// exp(x) for x up to 88, to about 1 ulp; 0 where it is below the least normal number. Half the
/// work of [`exp_f32`], by the same polynomial.
#[inline(always)]
pub fn exp_below_88_f32<const FUSED: bool>(x: f32) -> f32 {
    // The last place of this number is 1 and its low bits are the exponent's bias: those of
    // `SHIFT + k` are the exponent of 2^k, and k is rounded.
    const SHIFT: f32 = 12_583_039.0; // 1.5 * 2^23 + 127
    // There the result is 0. NaN stays.
    let x = if x < -88.0 { -88.0 } else { x };
    let shifted = multiply_add::<FUSED>(x, std::f32::consts::LOG2_E, SHIFT);
    let k = shifted - SHIFT;
    let r = multiply_add::<FUSED>(k, -0.693_359_4, x);
    let r = multiply_add::<FUSED>(k, 2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4;
    p = multiply_add::<FUSED>(p, r, 1.398_199_9e-3);
    p = multiply_add::<FUSED>(p, r, 8.333_452e-3);
    p = multiply_add::<FUSED>(p, r, 4.166_579_6e-2);
    p = multiply_add::<FUSED>(p, r, 0.166_666_66);
    p = multiply_add::<FUSED>(p, r, 0.5);
    p = multiply_add::<FUSED>(p, r, 1.0);
    p = multiply_add::<FUSED>(p, r, 1.0);
    p * f32::from_bits(shifted.to_bits() << 23)
}

/// log(x) to about 1 ulp (S. Moshier, Cephes, logf); -inf at 0, NaN below.
#[inline(always)]
pub fn log_f32(x: f32) -> f32 {
    // Subnormal numbers are scaled first.
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits();
    let mut e = (((bits >> 23) & 0xff) as i32).wrapping_sub(if tiny { 149 } else { 126 });
    let mut m = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    let low = m < std::f32::consts::FRAC_1_SQRT_2;
    e = e.wrapping_sub(low as i32);
    m = if low { m + m } else { m } - 1.0;
    let z = m * m;
    let mut p = 7.037_683_6e-2;
    p = p * m - 1.151_461e-1;
    p = p * m + 1.167_699_9e-1;
    p = p * m - 1.242_014_1e-1;
    p = p * m + 1.424_932_3e-1;
    p = p * m - 1.666_805_8e-1;
    p = p * m + 2.000_071_5e-1;
    p = p * m - 2.499_999_4e-1;
    p = p * m + 3.333_333e-1;
    let e = e as f32;
    let y = m * z * p + e * -2.121_944_4e-4 - 0.5 * z;
    let y = m + y + e * 0.693_359_4;
    if x > 0.0 && x < f32::INFINITY {
        y
    } else if x == 0.0 {
        f32::NEG_INFINITY
    } else if x > 0.0 {
        x
    } else {
        f32::NAN
    }
}

/// tanh(x) to about 2 ulp: an odd polynomial near 0 (S. Moshier, Cephes, tanhf), exponentials
/// elsewhere.
#[inline(always)]
pub fn tanh_f32(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let mut p = -5.704_988_7e-3;
    p = p * z + 2.063_908_9e-2;
    p = p * z - 5.373_971_6e-2;
    p = p * z + 1.333_144_2e-1;
    p = p * z - 3.333_328_2e-1;
    let near = p * z * x + x;
    let far = 1.0 - 2.0 / (exp_f32(a + a) + 1.0);
    let y = if a < 0.625 { near } else { far };
    if x.is_nan() { x } else { y.copysign(x) }
}

/// a^b rounded once from about 40 bits, with C's special values (C99, F.9.4.4): `2^(b log2(a))` in
/// double precision, the logarithm by the series of `atanh`, the power by that of `exp`.
#[inline(always)]
pub fn pow_f32(a: f32, b: f32) -> f32 {
    let size = a.abs();
    // Subnormal numbers are normal ones in double precision.
    let log2 = wide::log2_finite(f64::from(size));
    let log2 = if size == 0.0 { f64::NEG_INFINITY } else { log2 };
    let log2 = if size == f32::INFINITY { f64::INFINITY } else { log2 };
    let r = wide::exp2(f64::from(b) * log2) as f32;
    let half = b * 0.5;
    let whole = b.trunc() == b;
    let odd = whole && half.trunc() != half;
    let r = if a.is_sign_negative() && odd { -r } else { r };
    let r = if a < 0.0 && size < f32::INFINITY && !whole { f32::NAN } else { r };
    let r = if a.is_nan() || b.is_nan() { f32::NAN } else { r };
    let r = if size == 1.0 && b.is_infinite() { 1.0 } else { r };
    if a == 1.0 || b == 0.0 { 1.0 } else { r }
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

/// Functions of `f32`.
pub mod single {
    pub use super::wide::{
        acos, acosh, asin, asinh, atan, atanh, cosh, erf, erfinv, expm1, log1p,
        log2_single as log2, log10, sinh, softplus,
    };
    pub use super::{exp_f32 as exp, log_f32 as log, tanh_f32 as tanh};

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
        super::gamma_f64(x as f64) as f32
    }
    pub fn gammaln(x: f32) -> f32 {
        super::gammaln_f64(x as f64) as f32
    }
    pub fn digamma(x: f32) -> f32 {
        super::digamma_f64(x as f64) as f32
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
