//! Functions of single precision that are calculated in double precision, where neither
//! cancellation nor rounding of steps shows: plain formulas, branch-free, good to ten digits or
//! more, and rounded once. Special values are those of C (C99, annex F).

use super::polynomial::{multiply_add, polynomial};
use std::f64::consts::{FRAC_1_PI, FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, SQRT_2};

/// Below this size a few terms of a function's series are exact to ten digits.
const NEAR: f64 = 1e-2;

/// The binary logarithm of a number from 2^-1022 up, not of infinity: that of its exponent, and a
/// series of `atanh`.
#[inline(always)]
pub(super) fn log2_finite<const FUSED: bool>(x: f64) -> f64 {
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
    polynomial::<_, FUSED, _>(s * s, series) * s * (2.0 * LOG2_E) + e
}

/// The binary logarithm of any number but subnormal ones.
#[inline(always)]
fn log2<const FUSED: bool>(x: f64) -> f64 {
    let y = log2_finite::<FUSED>(x);
    let y = if x == f64::INFINITY { x } else { y };
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f64::NAN }
}

/// 2^x; beyond 300, where single precision has ended, it no longer changes. NaN stays.
#[inline(always)]
pub(super) fn exp2<const FUSED: bool>(x: f64) -> f64 {
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
    polynomial::<_, FUSED, _>(t, series) * f64::from_bits(k.wrapping_add(1023) << 52)
}

#[inline(always)]
fn exp<const FUSED: bool>(x: f64) -> f64 {
    exp2::<FUSED>(x * LOG2_E)
}

/// `exp(x) - 1`.
#[inline(always)]
pub fn expm1<const FUSED: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    let near = x * polynomial::<_, FUSED, _>(x, [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0]);
    let far = exp::<FUSED>(x) - 1.0;
    (if x.abs() < NEAR { near } else { far }) as f32
}

#[inline(always)]
pub fn sinh<const FUSED: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    let near = x * polynomial::<_, FUSED, _>(x * x, [1.0 / 120.0, 1.0 / 6.0, 1.0]);
    let e = exp::<FUSED>(x);
    (if x.abs() < NEAR { near } else { 0.5 * (e - 1.0 / e) }) as f32
}

#[inline(always)]
pub fn cosh<const FUSED: bool>(x: f32) -> f32 {
    let e = exp::<FUSED>(f64::from(x));
    (0.5 * (e + 1.0 / e)) as f32
}

/// The angle whose tangent is `x`: reduced to less than pi / 8, then its series.
#[inline(always)]
fn atan_wide<const FUSED: bool>(x: f64) -> f64 {
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
    let y = polynomial::<_, FUSED, _>(t * t, series) * t;
    let y = if high { y + FRAC_PI_4 } else { y };
    let y = if steep { FRAC_PI_2 - y } else { y };
    y.copysign(x)
}

#[inline(always)]
pub fn atan<const FUSED: bool>(x: f32) -> f32 {
    atan_wide::<FUSED>(f64::from(x)) as f32
}

/// The angle whose sine is `x`, from 0 to 1: by a fitted polynomial, above 1/2 of the sine of half
/// of what the angle lacks to a right one.
#[inline(always)]
fn asin_wide<const FUSED: bool>(x: f64) -> f64 {
    let fitted = [
        0.032_957_221_947_299,
        0.001_934_024_843_711_9,
        0.020_664_470_032_819,
        0.021_861_953_403_376,
        0.030_426_953_952_72,
        0.044_640_681_427_948,
        0.075_000_050_587_649,
        0.166_666_666_265_76,
    ];
    let high = x > 0.5;
    let z = if high { 0.5 - 0.5 * x } else { x * x };
    let s = if high { z.sqrt() } else { x };
    let y = multiply_add::<_, FUSED>(polynomial::<_, FUSED, _>(z, fitted) * z, s, s);
    if high { FRAC_PI_2 - 2.0 * y } else { y }
}

#[inline(always)]
pub fn asin<const FUSED: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    asin_wide::<FUSED>(x.abs()).copysign(x) as f32
}

#[inline(always)]
pub fn acos<const FUSED: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    (FRAC_PI_2 - asin_wide::<FUSED>(x.abs()).copysign(x)) as f32
}

#[inline(always)]
pub fn asinh<const FUSED: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    let size = x.abs();
    let near = x * polynomial::<_, FUSED, _>(x * x, [3.0 / 40.0, -1.0 / 6.0, 1.0]);
    let far = log2::<FUSED>(size + (size * size + 1.0).sqrt()) * LN_2;
    (if size < NEAR { near } else { far.copysign(x) }) as f32
}

#[inline(always)]
pub fn acosh<const FUSED: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    let y = log2::<FUSED>(x + ((x - 1.0) * (x + 1.0)).sqrt()) * LN_2;
    (if x >= 1.0 { y } else { f64::NAN }) as f32
}

/// The inverse of erf is x times a polynomial: below 5 of w - 2.5, where w is -log(1 - x^2), from
/// 5 up of sqrt(w) - 3; both to single precision (M. Giles, Approximating the erfinv function,
/// 2010).
pub const ERFINV_LOW: [f64; 9] = [
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
pub const ERFINV_HIGH: [f64; 9] = [
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

/// The inverse of erf for `x` from 0 up, of which `w` is -log(1 - x^2), to single precision.
pub fn erfinv_guess(x: f64, w: f64) -> f64 {
    let low = polynomial::<_, false, _>(w - 2.5, ERFINV_LOW);
    let high = polynomial::<_, false, _>(w.sqrt() - 3.0, ERFINV_HIGH);
    x * if w < 5.0 { low } else { high }
}

/// pi in three parts, of which the first two have 27 bits: their products with whole numbers below
/// 2^26 and halves of odd ones are exact (W. Cody and W. Waite, Software Manual for the Elementary
/// Functions, 1980).
const PI_PARTS: [f64; 3] =
    [3.141_592_651_605_606, 1.984_187_147_918_703_4e-9, 1.144_237_745_221_966_4e-17];

/// Beyond this size the sine, cosine and tangent below do not know their values, and are NaN.
const LARGEST_ANGLE: f64 = 5e7;

/// The whole number next to `x`, at most 2^51 in size, and its lowest bit as that of the sign.
#[inline(always)]
fn nearest(x: f64) -> (f64, u64) {
    const SHIFT: f64 = 1.5 * 4_503_599_627_370_496.0; // its last place is 1
    let shifted = x + SHIFT;
    (shifted - SHIFT, shifted.to_bits() << 63)
}

/// `x - k pi`, exact to the last bits even where little is left.
#[inline(always)]
fn without_turns<const FUSED: bool>(x: f64, k: f64) -> f64 {
    PI_PARTS.into_iter().fold(x, |r, part| multiply_add::<_, FUSED>(-k, part, r))
}

/// NaN instead of `y` where the angle `x` is too large.
#[inline(always)]
fn known(x: f64, y: f64) -> f32 {
    (if x.abs() <= LARGEST_ANGLE { y } else { f64::NAN }) as f32
}

/// The series of the sine without its first term: (-1)^n / (2 n + 1)!, n = 7 ... 1.
pub const SINE: [f64; 7] = [
    -1.0 / 1_307_674_368_000.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 39_916_800.0,
    1.0 / 362_880.0,
    -1.0 / 5_040.0,
    1.0 / 120.0,
    -1.0 / 6.0,
];

/// sin(x) for x from -pi/2 to pi/2: its series.
#[inline(always)]
fn sin_near<const FUSED: bool>(x: f64) -> f64 {
    let z = x * x;
    x * multiply_add::<_, FUSED>(polynomial::<_, FUSED, _>(z, SINE), z, 1.0)
}

/// sin(x); NaN where x is larger than 5e7.
#[inline(always)]
pub fn sin<const FUSED: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    let (k, sign) = nearest(x * FRAC_1_PI);
    let y = sin_near::<FUSED>(without_turns::<FUSED>(x, k));
    known(x, f64::from_bits(y.to_bits() ^ sign))
}

/// cos(x), the sine of an angle that is a quarter of a turn larger; NaN where x is larger than 5e7.
#[inline(always)]
pub fn cos<const FUSED: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    let (k, sign) = nearest(x * FRAC_1_PI - 0.5);
    let y = sin_near::<FUSED>(without_turns::<FUSED>(x, k + 0.5));
    known(x, -f64::from_bits(y.to_bits() ^ sign))
}

/// tan(x); NaN where x is larger than 5e7.
#[inline(always)]
pub fn tan<const FUSED: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    let (k, odd) = nearest(x * (2.0 * FRAC_1_PI));
    let r = without_turns::<FUSED>(x, 0.5 * k);
    let z = r * r;
    let cosine = [
        1.0 / 479_001_600.0, // (-1)^n / (2 n)!, n = 6 ... 0
        -1.0 / 3_628_800.0,
        1.0 / 40_320.0,
        -1.0 / 720.0,
        1.0 / 24.0,
        -0.5,
        1.0,
    ];
    let (s, c) = (sin_near::<FUSED>(r), polynomial::<_, FUSED, _>(z, cosine));
    known(x, if odd == 0 { s / c } else { -c / s })
}
