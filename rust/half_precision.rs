//! Half precision made of other numbers and made into them, as arithmetic that compilers turn into
//! vectors, with the same results on every machine.

use half::f16;

/// A half-precision number in single precision, as arithmetic that vectorises: the exponent's bias
/// is corrected by a multiplication, which is exact and normalises subnormal numbers as well.
#[inline(always)]
pub fn half_to_f32(x: f16) -> f32 {
    let bits = u32::from(x.to_bits());
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
    // Infinity and NaN have the greatest exponent in both formats.
    let special = if magnitude >= 65536.0 { 0x7f80_0000 } else { 0 };
    f32::from_bits(magnitude.to_bits() | special | (bits & 0x8000) << 16)
}

/// A number in half precision, rounded to the nearest, halves to the even one, as arithmetic that
/// vectorises.
#[inline(always)]
pub fn f32_to_half(x: f32) -> f16 {
    const LEAST_NORMAL: u32 = (127 - 14) << 23;
    const INFINITE: u32 = (127 + 16) << 23;
    // The last place of this number is that of the subnormal halves.
    const PLACE: u32 = (127 - 1) << 23;
    let bits = x.to_bits();
    let size = bits & 0x7fff_ffff;
    // Half of the last place is added, less one bit where the last place is even.
    let odd = (size >> 13) & 1;
    let normal = size.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + odd) >> 13;
    let small = (f32::from_bits(size) + f32::from_bits(PLACE)).to_bits().wrapping_sub(PLACE);
    let half = if size < LEAST_NORMAL { small } else { normal };
    let half = if size >= INFINITE { 0x7c00 } else { half };
    let half = if x.is_nan() { 0x7e00 | (size >> 13 & 0x1ff) } else { half };
    f16::from_bits((half | (bits >> 16 & 0x8000)) as u16)
}

/// As [`f32_to_half`], rounded once: on the way to single precision inexact numbers become odd, so
/// that none of them lies in the middle of two halves.
#[inline(always)]
pub fn f64_to_half(x: f64) -> f16 {
    let near = x as f32;
    let bits = near.to_bits();
    let toward_zero = if f64::from(near).abs() > x.abs() { bits.wrapping_sub(1) } else { bits };
    let odd = if f64::from(near) == x { bits } else { toward_zero | 1 };
    f32_to_half(f32::from_bits(odd))
}
