//! Functions of single precision that are calculated in double precision, where neither
//! cancellation nor rounding of steps shows: plain formulas, branch-free, good to ten digits or
//! more, and rounded once. Special values are those of C (C99, annex F).

use std::f64::consts::{FRAC_2_SQRT_PI, FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, LOG10_2, SQRT_2};

/// Below this size a few terms of a function's series are exact to ten digits.
const NEAR: f64 = 1e-2;

/// `c[0] x^n + c[1] x^(n - 1) + ...`, by Horner's rule.
#[inline(always)]
fn polynomial<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut p = c[0];
    for i in 1..N {
        p = p * x + c[i];
    }
    p
}

/// The binary logarithm of a number from 2^-1022 up, not of infinity: that of its exponent, and a
/// series of `atanh`.
#[inline(always)]
pub(super) fn log2_finite(x: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    const ONE: u64 = 0x3ff << 52;
    // In the low bits of a double whose last place is 1 stands a whole number.
    const PLACE: f64 = 4_503_599_627_370_496.0; // 2^52
    let bits = x.to_bits();
    let e = f64::from_bits((bits >> 52) | PLACE.to_bits()) - PLACE - 1023.0;
    let m = f64::from_bits((bits & FRACTION) | ONE);
    let high = m > SQRT_2;
    let (m, e) = if high { (m * 0.5, e + 1.0) } else { (m, e) };
    let s = (m - 1.0) / (m + 1.0);
    let series = [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];
    polynomial(s * s, series) * s * (2.0 * LOG2_E) + e
}

/// The binary logarithm of any number but subnormal ones.
#[inline(always)]
fn log2(x: f64) -> f64 {
    let y = log2_finite(x);
    let y = if x == f64::INFINITY { x } else { y };
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f64::NAN }
}

/// 2^x; beyond 300, where single precision has ended, it no longer changes. NaN stays.
#[inline(always)]
pub(super) fn exp2(x: f64) -> f64 {
    const SHIFT: f64 = 1.5 * 4_503_599_627_370_496.0;
    let x = if x > 300.0 { 300.0 } else { x };
    let x = if x < -300.0 { -300.0 } else { x };
    let shifted = x + SHIFT;
    let t = (x - (shifted - SHIFT)) * LN_2;
    let series = [
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let k = shifted.to_bits().wrapping_sub(SHIFT.to_bits());
    polynomial(t, series) * f64::from_bits(k.wrapping_add(1023) << 52)
}

#[inline(always)]
fn exp(x: f64) -> f64 {
    exp2(x * LOG2_E)
}

#[inline(always)]
fn log1p_wide(x: f64) -> f64 {
    let near = x * polynomial(x, [0.2, -0.25, 1.0 / 3.0, -0.5, 1.0]);
    let far = log2(1.0 + x) * LN_2;
    if x.abs() < NEAR { near } else { far }
}

/// `exp(x) - 1`.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let x = f64::from(x);
    let near = x * polynomial(x, [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0]);
    let far = exp(x) - 1.0;
    (if x.abs() < NEAR { near } else { far }) as f32
}

/// `log(1 + x)`.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    log1p_wide(f64::from(x)) as f32
}

/// `log(1 + exp(x))`.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let x = f64::from(x);
    let most = if x > 0.0 { x } else { 0.0 };
    (most + log1p_wide(exp(-x.abs()))) as f32
}

#[inline(always)]
pub fn log2_single(x: f32) -> f32 {
    log2(f64::from(x)) as f32
}

#[inline(always)]
pub fn log10(x: f32) -> f32 {
    (log2(f64::from(x)) * LOG10_2) as f32
}

#[inline(always)]
pub fn sinh(x: f32) -> f32 {
    let x = f64::from(x);
    let near = x * polynomial(x * x, [1.0 / 120.0, 1.0 / 6.0, 1.0]);
    let e = exp(x);
    (if x.abs() < NEAR { near } else { 0.5 * (e - 1.0 / e) }) as f32
}

#[inline(always)]
pub fn cosh(x: f32) -> f32 {
    let e = exp(f64::from(x));
    (0.5 * (e + 1.0 / e)) as f32
}

/// The angle whose tangent is `x`: reduced to less than pi / 8, then its series.
#[inline(always)]
fn atan_wide(x: f64) -> f64 {
    const EIGHTH: f64 = SQRT_2 - 1.0; // tan(pi / 8)
    let size = x.abs();
    let steep = size > 1.0;
    let t = if steep { 1.0 / size } else { size };
    let high = t > EIGHTH;
    let t = if high { (t - 1.0) / (t + 1.0) } else { t };
    let series = [
        1.0 / 21.0,
        -1.0 / 19.0,
        1.0 / 17.0,
        -1.0 / 15.0,
        1.0 / 13.0,
        -1.0 / 11.0,
        1.0 / 9.0,
        -1.0 / 7.0,
        1.0 / 5.0,
        -1.0 / 3.0,
        1.0,
    ];
    let y = polynomial(t * t, series) * t;
    let y = if high { y + FRAC_PI_4 } else { y };
    let y = if steep { FRAC_PI_2 - y } else { y };
    y.copysign(x)
}

#[inline(always)]
pub fn atan(x: f32) -> f32 {
    atan_wide(f64::from(x)) as f32
}

#[inline(always)]
pub fn asin(x: f32) -> f32 {
    let x = f64::from(x);
    atan_wide(x / ((1.0 - x) * (1.0 + x)).sqrt()) as f32
}

#[inline(always)]
pub fn acos(x: f32) -> f32 {
    let x = f64::from(x);
    (2.0 * atan_wide(((1.0 - x) / (1.0 + x)).sqrt())) as f32
}

#[inline(always)]
pub fn asinh(x: f32) -> f32 {
    let x = f64::from(x);
    let size = x.abs();
    let near = x * polynomial(x * x, [3.0 / 40.0, -1.0 / 6.0, 1.0]);
    let far = log2(size + (size * size + 1.0).sqrt()) * LN_2;
    (if size < NEAR { near } else { far.copysign(x) }) as f32
}

#[inline(always)]
pub fn acosh(x: f32) -> f32 {
    let x = f64::from(x);
    let y = log2(x + ((x - 1.0) * (x + 1.0)).sqrt()) * LN_2;
    (if x >= 1.0 { y } else { f64::NAN }) as f32
}

#[inline(always)]
pub fn atanh(x: f32) -> f32 {
    let x = f64::from(x);
    let near = x * polynomial(x * x, [0.2, 1.0 / 3.0, 1.0]);
    let far = 0.5 * LN_2 * log2((1.0 + x) / (1.0 - x));
    (if x.abs() < NEAR { near } else { far }) as f32
}

/// erf(x) for x up to 1 in size: its series (Abramowitz and Stegun 7.1.5).
#[inline(always)]
fn erf_near(x: f64) -> f64 {
    let series = [
        1.0 / 11_975_040_000.0, // (-1)^n / (n! (2 n + 1)), n = 12 ... 0
        -1.0 / 918_086_400.0,
        1.0 / 76_204_800.0,
        -1.0 / 6_894_720.0,
        1.0 / 685_440.0,
        -1.0 / 75_600.0,
        1.0 / 9_360.0,
        -1.0 / 1_320.0,
        1.0 / 216.0,
        -1.0 / 42.0,
        0.1,
        -1.0 / 3.0,
        1.0,
    ];
    FRAC_2_SQRT_PI * x * polynomial(x * x, series)
}

/// 1 - erf(x) for x from 1 up: exp(-x^2) times a polynomial in 1 / (1 + x / 2), fitted to 12 digits
/// up to 6.5, where single precision has long ended.
#[inline(always)]
fn erfc_far(x: f64) -> f64 {
    let fitted = [
        0.077_516_967_267_158,
        -0.399_107_864_713_89,
        0.838_889_567_889_05,
        -0.872_797_991_481_85,
        0.454_746_861_002_15,
        -0.225_441_500_646_93,
        0.151_713_754_886_2,
        0.161_417_733_093_06,
        0.249_109_231_778_82,
        0.281_864_007_291_94,
        0.282_108_728_984_23,
        -3.788_801_716_808_6e-7,
    ];
    exp(-x * x) * polynomial(1.0 / (1.0 + 0.5 * x), fitted)
}

/// erf(x).
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let x = f64::from(x);
    let size = x.abs();
    let far = (1.0 - erfc_far(size)).copysign(x);
    (if size > 1.0 { far } else { erf_near(x) }) as f32
}

/// The inverse of erf for `x` from 0 up, of which `w` is -log(1 - x^2), to single precision
/// (M. Giles, Approximating the erfinv function, 2010).
#[inline(always)]
pub(super) fn erfinv_guess(x: f64, w: f64) -> f64 {
    let low = [
        2.810_226_36e-8,
        3.432_739_39e-7,
        -3.523_387_7e-6,
        -4.391_506_54e-6,
        2.185_808_7e-4,
        -1.253_725_03e-3,
        -4.177_681_64e-3,
        2.466_407_27e-1,
        1.501_409_41,
    ];
    let high = [
        -2.002_142_57e-4,
        1.009_505_58e-4,
        1.349_343_22e-3,
        -3.673_428_44e-3,
        5.739_507_73e-3,
        -7.622_461_3e-3,
        9.438_870_47e-3,
        1.001_674_06,
        2.832_976_82,
    ];
    let low = polynomial(w - 2.5, low);
    let high = polynomial(w.sqrt() - 3.0, high);
    x * if w < 5.0 { low } else { high }
}

/// The inverse of erf: a first guess, then a Newton step.
#[inline(always)]
pub fn erfinv(x: f32) -> f32 {
    let x = f64::from(x);
    let size = x.abs();
    let y = erfinv_guess(size, -LN_2 * log2((1.0 - size) * (1.0 + size)));
    let near = erf_near(y) - size;
    let far = (1.0 - size) - erfc_far(y);
    let excess = if y > 1.0 { far } else { near };
    let y = y - excess / (FRAC_2_SQRT_PI * exp(-y * y));
    let y = if size == 1.0 { f64::INFINITY } else { y };
    let y = if size <= 1.0 { y } else { f64::NAN };
    y.copysign(x) as f32
}
