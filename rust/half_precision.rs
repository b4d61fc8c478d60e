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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_precision_number_widens_exactly() {
        for x in (0..=u16::MAX).map(f16::from_bits) {
            let (got, want) = (half_to_f32(x), x.to_f32());
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x:?}");
        }
    }

    /// Every half, its neighbours in single precision, and what lies in the middle of two halves.
    #[test]
    fn single_precision_rounds_to_half_as_the_standard_says() {
        let check = |x: f32| {
            let (got, want) = (f32_to_half(x), f16::from_f32(x));
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x:e}");
            // A little more and a little less than a number of single precision may be rounded
            // otherwise, if that is in the middle of two halves.
            let x = f64::from(x);
            let bits = x.to_bits();
            assert!(f64_to_half(x).to_bits() == want.to_bits() || want.is_nan(), "{x:e}");
            for near in [bits.wrapping_sub(1), bits.wrapping_add(1)].map(f64::from_bits) {
                let got = f64_to_half(near);
                let others = [-1i16, 0, 1].map(|step| want.to_bits().wrapping_add_signed(step));
                let distance = |bits: u16| (f16::from_bits(bits).to_f64() - near).abs();
                let least = others.map(distance).into_iter().fold(f64::INFINITY, f64::min);
                let bad = near.abs() < 65_504.0 && distance(got.to_bits()) > least;
                assert!(!bad, "{near:e}: {got:?}");
            }
        };
        for x in (0..=u16::MAX).map(f16::from_bits) {
            let middle = 0.5 * (x.to_f32() + f16::from_bits(x.to_bits().wrapping_add(1)).to_f32());
            for bits in [x.to_f32().to_bits(), middle.to_bits()] {
                for near in [bits.wrapping_sub(1), bits, bits.wrapping_add(1)] {
                    check(f32::from_bits(near));
                }
            }
        }
        for i in 0..1u32 << 16 {
            check(f32::from_bits(i.wrapping_mul(65_537)));
        }
    }
}
