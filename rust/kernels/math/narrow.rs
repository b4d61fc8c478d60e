//! Functions of single precision that are calculated in single precision: branch-free polynomials
//! on the reduced argument, to 1.5 units in the last place; those that are made of others to 2.5,
//! `erfinv` to 4.

use super::polynomial::{multiply_add, polynomial};
use super::wide;
use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E, LOG10_E};

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

/// log(2) in two parts, of which products with exponents are exact in the first (W. Cody and
/// W. Waite, Software Manual for the Elementary Functions, 1980).
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// The series of exp on [-log(2)/2, log(2)/2], economised, from x^7 down to x^2 (S. Moshier,
/// Cephes, expf).
const EXP: [f32; 6] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5];

/// exp(x).
#[inline(always)]
pub fn exp<const FUSED: bool>(x: f32) -> f32 {
    // Beyond these the result is 0 or infinite.
    let clamped = if x > 89.0 { 89.0 } else { x };
    let clamped = if clamped < -104.0 { -104.0 } else { clamped };
    let k = multiply_add::<_, FUSED>(clamped, LOG2_E, 0.5).floor();
    let r = multiply_add::<_, FUSED>(k, -LN_2_HIGH, clamped);
    let r = multiply_add::<_, FUSED>(k, -LN_2_LOW, r);
    let y = multiply_add::<_, FUSED>(polynomial::<_, FUSED, _>(r, EXP), r * r, r) + 1.0;
    // Two steps, so that results below the least normal number and above 2^127 come out right. NaN
    // became 0.
    let k = whole_number(k);
    let half = k >> 1;
    let y = y * power_of_two(half) * power_of_two(k.wrapping_sub(half));
    if x.is_nan() { x } else { y }
}

/// exp(x) for x up to 88; 0 where it is below the least normal number. Half the work of [`exp`], by
/// the same polynomial.
#[inline(always)]
pub fn exp_below_88<const FUSED: bool>(x: f32) -> f32 {
    // The last place of this number is 1 and its low bits are the exponent's bias: those of
    // `SHIFT + k` are the exponent of 2^k, and k is rounded.
    const SHIFT: f32 = 12_583_039.0; // 1.5 * 2^23 + 127
    // There the result is 0. NaN stays.
    let x = if x < -88.0 { -88.0 } else { x };
    let shifted = multiply_add::<_, FUSED>(x, LOG2_E, SHIFT);
    let k = shifted - SHIFT;
    let r = multiply_add::<_, FUSED>(k, -LN_2_HIGH, x);
    let r = multiply_add::<_, FUSED>(k, -LN_2_LOW, r);
    let p = polynomial::<_, FUSED, _>(r, EXP);
    let p = multiply_add::<_, FUSED>(p, r, 1.0);
    let p = multiply_add::<_, FUSED>(p, r, 1.0);
    p * f32::from_bits(shifted.to_bits() << 23)
}

/// A positive number as `(1 + f) 2^e`, with f from sqrt(1/2) - 1 to sqrt(2) - 1.
#[inline(always)]
fn split(x: f32) -> (f32, i32) {
    // Subnormal numbers are scaled first.
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits();
    let e = (((bits >> 23) & 0xff) as i32).wrapping_sub(if tiny { 149 } else { 126 });
    let m = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    let low = m < FRAC_1_SQRT_2;
    (if low { m + m } else { m } - 1.0, e.wrapping_sub(low as i32))
}

/// log(1 + f) - f for f from sqrt(1/2) - 1 to sqrt(2) - 1 (S. Moshier, Cephes, logf).
#[inline(always)]
fn log_series<const FUSED: bool>(f: f32) -> f32 {
    let series = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    let z = f * f;
    multiply_add::<_, FUSED>(f * z, polynomial::<_, FUSED, _>(f, series), -0.5 * z)
}

/// log((1 + f) 2^e) for an f as [`log_series`] takes it.
#[inline(always)]
fn log_of_parts<const FUSED: bool>(f: f32, e: f32) -> f32 {
    let y = multiply_add::<_, FUSED>(e, LN_2_LOW, log_series::<FUSED>(f));
    multiply_add::<_, FUSED>(e, LN_2_HIGH, f + y)
}

/// What logarithms are of 0 (-inf), of infinity, below 0 and of NaN; elsewhere `y`.
#[inline(always)]
fn with_limits_of_log(x: f32, y: f32) -> f32 {
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

/// log(x); -inf at 0, NaN below.
#[inline(always)]
pub fn log<const FUSED: bool>(x: f32) -> f32 {
    let (f, e) = split(x);
    with_limits_of_log(x, log_of_parts::<FUSED>(f, e as f32))
}

/// log(x) / log(2).
#[inline(always)]
pub fn log2<const FUSED: bool>(x: f32) -> f32 {
    let (f, e) = split(x);
    // log2(e) is 1 + 0.44: near 1 the result is as exact as f.
    const REST: f32 = LOG2_E - 1.0;
    let y = log_series::<FUSED>(f);
    let y = multiply_add::<_, FUSED>(f, REST, multiply_add::<_, FUSED>(y, REST, y));
    with_limits_of_log(x, e as f32 + (f + y))
}

/// log(x) / log(10).
#[inline(always)]
pub fn log10<const FUSED: bool>(x: f32) -> f32 {
    // log10(2) in two parts, as log(2); log10(e) is 0.5 - 0.07: near 1 the result is as exact as f.
    const LOG10_2_HIGH: f32 = 0.300_781_25;
    const LOG10_2_LOW: f32 = 2.487_456_6e-4;
    const REST: f32 = LOG10_E - 0.5;
    let (f, e) = split(x);
    let e = e as f32;
    let y = log_series::<FUSED>(f);
    let y = multiply_add::<_, FUSED>(f, REST, multiply_add::<_, FUSED>(y, REST, 0.5 * y));
    let y = multiply_add::<_, FUSED>(e, LOG10_2_LOW, y);
    let y = multiply_add::<_, FUSED>(e, LOG10_2_HIGH, multiply_add::<_, FUSED>(f, 0.5, y));
    with_limits_of_log(x, y)
}

/// log(1 + x) for x from -1 up but infinity. What `1 + x` lost in rounding is added to the
/// fraction, so that small numbers keep all their digits.
#[inline(always)]
fn log1p_finite<const FUSED: bool>(x: f32) -> f32 {
    let u = 1.0 + x;
    let lost = if x < 1.0 { x - (u - 1.0) } else { 1.0 - (u - x) };
    let (f, e) = split(u);
    // Beyond 2^100 nothing is lost that counts.
    let scale = power_of_two(if e > 100 { -100 } else { e.wrapping_neg() });
    let y = log_of_parts::<FUSED>(multiply_add::<_, FUSED>(lost, scale, f), e as f32);
    // The sign of 0, too.
    if x.abs() < 1e-8 { x } else { y }
}

/// log(1 + x); -inf at -1, NaN below.
#[inline(always)]
pub fn log1p<const FUSED: bool>(x: f32) -> f32 {
    let y = log1p_finite::<FUSED>(x);
    if x > -1.0 && x < f32::INFINITY { y } else { with_limits_of_log(1.0 + x, y) }
}

/// log(1 + exp(x)).
#[inline(always)]
pub fn softplus<const FUSED: bool>(x: f32) -> f32 {
    let most = if x > 0.0 { x } else { 0.0 };
    let y = most + log1p_finite::<FUSED>(exp::<FUSED>(-x.abs()));
    if x.is_nan() { x } else { y }
}

/// tanh(x): an odd polynomial near 0 (S. Moshier, Cephes, tanhf), exponentials elsewhere.
#[inline(always)]
pub fn tanh<const FUSED: bool>(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let series =
        [-5.704_988_7e-3, 2.063_908_9e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328_2e-1];
    let near = multiply_add::<_, FUSED>(polynomial::<_, FUSED, _>(z, series) * z, x, x);
    let far = 1.0 - 2.0 / (exp::<FUSED>(a + a) + 1.0);
    let y = if a < 0.625 { near } else { far };
    if x.is_nan() { x } else { y.copysign(x) }
}

/// erf(x): up to 0.93 x plus a polynomial, beyond it 1 minus the exponential of one, both fitted to
/// less than 1e-9 (the second up to 4, from where erf is 1).
#[inline(always)]
pub fn erf<const FUSED: bool>(x: f32) -> f32 {
    let near = [
        8.345_225e-5,
        -8.137_437_4e-4,
        5.200_634e-3,
        -2.685_927e-2,
        1.128_369_4e-1,
        -3.761_263_5e-1,
        1.283_791_7e-1,
    ];
    let far = [
        1.123_146_5e-5,
        -3.228_053_8e-4,
        3.642_465e-3,
        -2.376_207_5e-2,
        1.062_368_9e-1,
        6.351_513e-1,
        1.128_648_5,
    ];
    let size = x.abs();
    let near = multiply_add::<_, FUSED>(polynomial::<_, FUSED, _>(x * x, near), x, x);
    let t = if size > 4.0 { 4.0 } else { size };
    let far = 1.0 - exp_below_88::<FUSED>(-t * polynomial::<_, FUSED, _>(t, far));
    if size < 0.93 { near } else { far.copysign(x) }
}

/// The inverse of erf, from -1 to 1, by the polynomials of [`wide::ERFINV_LOW`] and
/// [`wide::ERFINV_HIGH`].
#[inline(always)]
pub fn erfinv<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let w = -log::<FUSED>((1.0 - size) * (1.0 + size));
    let low = polynomial::<_, FUSED, _>(w - 2.5, wide::ERFINV_LOW.map(|c| c as f32));
    let high = polynomial::<_, FUSED, _>(w.sqrt() - 3.0, wide::ERFINV_HIGH.map(|c| c as f32));
    let y = x * if w < 5.0 { low } else { high };
    let y = if size == 1.0 { f32::INFINITY.copysign(x) } else { y };
    if size <= 1.0 { y } else { f32::NAN }
}

/// log((1 + x) / (1 - x)) / 2, the inverse of tanh.
#[inline(always)]
pub fn atanh<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    let y = 0.5 * log1p::<FUSED>((size + size) / (1.0 - size));
    y.copysign(x)
}
