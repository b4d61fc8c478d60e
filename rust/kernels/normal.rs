//! Normal numbers from uniform ones (G. Box and M. Muller, 1958), in double precision, to about its
//! last place.
//!
//! Sums, products, quotients and roots alone, each rounded as IEEE 754 says: the numbers of a seed
//! are the same on every processor, one at a time or side by side. (Devices use their own
//! logarithms, sines and cosines, which may differ in the last place.)

use super::math::polynomial::polynomial;
use super::math::wide::SINE;
use std::f64::consts::{LN_2, SQRT_2, TAU};

/// Two independent normal numbers of two uniform ones from 0 (inclusive) to 1 (exclusive), which
/// are multiples of 2^-53.
#[inline(always)]
pub fn normal_pair(a: f64, b: f64) -> [f64; 2] {
    let radius = (-2.0 * log(1.0 - a)).sqrt();
    turned(b).map(|part| radius * part)
}

/// The last place of this number is 1: a whole number stands in the low bits of a sum with it.
const PLACE: f64 = 4_503_599_627_370_496.0; // 2^52

/// The natural logarithm of a number from 2^-1022 to 1.
#[inline(always)]
pub fn log(x: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff << 52;
    const ONE: u64 = 1.0f64.to_bits();
    const LOWEST: u64 = (0.5 * SQRT_2).to_bits();
    // x = m 2^e with m from the root of 1/2 to that of 2: e of numbers just below 1 is 0.
    let bits = x.to_bits();
    let biased = bits.wrapping_add(ONE - LOWEST);
    let e = f64::from_bits((biased >> 52) | PLACE.to_bits()) - (PLACE + 1023.0);
    let m = f64::from_bits(bits.wrapping_sub(biased & EXPONENT).wrapping_add(ONE));
    // log(m) = 2 atanh(s), whose series is this.
    let s = (m - 1.0) / (m + 1.0);
    let series = [
        2.0 / 19.0,
        2.0 / 17.0,
        2.0 / 15.0,
        2.0 / 13.0,
        2.0 / 11.0,
        2.0 / 9.0,
        2.0 / 7.0,
        2.0 / 5.0,
        2.0 / 3.0,
    ];
    let z = s * s;
    e * LN_2 + (2.0 * s + s * z * polynomial::<_, false, _>(z, series))
}

/// Cosine and sine of a part of a turn, from 0 to 1.
#[inline(always)]
fn turned(part: f64) -> [f64; 2] {
    // The nearest quarter of a turn; what is left is exact, and the series of an eighth are short.
    let shifted = part * 4.0 + PLACE;
    let angle = (part - (shifted - PLACE) * 0.25) * TAU;
    let quarter = shifted.to_bits();
    let z = angle * angle;
    let cosine = [
        1.0 / 20_922_789_888_000.0,
        -1.0 / 87_178_291_200.0,
        1.0 / 479_001_600.0,
        -1.0 / 3_628_800.0,
        1.0 / 40_320.0,
        -1.0 / 720.0,
        1.0 / 24.0,
        -1.0 / 2.0,
    ];
    let sin = angle + angle * z * polynomial::<_, false, _>(z, SINE);
    let cos = 1.0 + z * polynomial::<_, false, _>(z, cosine);
    let is_odd = quarter & 1 == 1;
    let (first, second) = if is_odd { (sin, cos) } else { (cos, sin) };
    // Negative are cosines in the second and third quarter, sines in the third and fourth.
    let sign =
        |value: f64, is_negative: u64| f64::from_bits(value.to_bits() ^ ((is_negative & 2) << 62));
    [sign(first, quarter.wrapping_add(1)), sign(second, quarter)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(got: f64, want: f64, scale: f64) -> bool {
        (got - want).abs() <= 4.0 * f64::EPSILON * scale
    }

    /// A number as generators make them.
    fn uniform() -> impl Strategy<Value = f64> {
        let steps = 1u64 << 53;
        let any = prop_oneof![0..steps, 0..1000u64, steps - 1000..steps];
        prop_oneof![
            any.prop_map(move |k| k as f64 / steps as f64),
            (0..16u32).prop_map(|k| f64::from(k) / 16.0)
        ]
    }

    proptest! {
        #[test]
        fn parts_match_the_functions_of_the_system(a in uniform(), b in uniform()) {
            let x = 1.0 - a;
            prop_assert!(near(log(x), x.ln(), x.ln().abs()), "{x}: {} {}", log(x), x.ln());
            let [cos, sin] = turned(b);
            prop_assert!(near(cos, (TAU * b).cos(), 2.0), "{b}: {cos}");
            prop_assert!(near(sin, (TAU * b).sin(), 2.0), "{b}: {sin}");
            let pair = normal_pair(a, b);
            let radius = (-2.0 * x.ln()).sqrt();
            prop_assert!(near(pair[0].hypot(pair[1]), radius, radius), "{a} {b}: {pair:?}");
        }
    }

    #[test]
    fn limits() {
        assert_eq!(log(1.0), 0.0);
        assert_eq!(normal_pair(0.0, 0.3), [0.0, 0.0]);
        assert_eq!(
            [0.0, 0.25, 0.5, 0.75].map(|b| turned(b).map(f64::round)),
            [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
        );
        assert!(normal_pair(1.0 - f64::EPSILON / 2.0, 0.0)[0] > 8.5);
    }
}
