//! Arithmetic on every element type, with the semantics that element-wise operators have.
//!
//! Integers wrap and divide toward zero, half precision calculates in `f32`, and what has no
//! integer meaning (negative powers, square roots) goes through `f64` and is converted back as C
//! converts.

use super::math::{hypot_f32, pow_f32, rem_f32};
use crate::dtype::Element;
use crate::half_precision::{f32_to_half, half_to_f32};
use half::f16;

/// An element type with the operations of element-wise operators.
pub trait Arith: Element {
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    /// Integers round toward zero; division by zero returns 0.
    fn div(self, b: Self) -> Self;
    /// The remainder, with the sign of the divisor; division by zero returns 0.
    fn rem(self, b: Self) -> Self;
    /// As [`Arith::rem`]; NaN where arithmetic that vectorises does not know it.
    #[inline(always)]
    fn quick_rem(self, b: Self) -> Self {
        self.rem(b)
    }
    fn pow(self, b: Self) -> Self;
    /// As [`Arith::pow`]; `FUSED` as in [`simd!`](crate::simd).
    #[inline(always)]
    fn quick_pow<const FUSED: bool>(self, b: Self) -> Self {
        self.pow(b)
    }
    fn hypot(self, b: Self) -> Self;
    fn zero() -> Self;
    fn one() -> Self;

    /// 1 or 0.
    #[inline(always)]
    fn truth(b: bool) -> Self {
        if b { Self::one() } else { Self::zero() }
    }

    /// NaN if either operand is. (Written so that vectors take one instruction for each of the
    /// maximum, the test and the choice: the sum is NaN.)
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        let greater = if b > self { b } else { self };
        if self.is_nan() | b.is_nan() { self.add(b) } else { greater }
    }

    #[inline(always)]
    fn min(self, b: Self) -> Self {
        let less = if b < self { b } else { self };
        if self.is_nan() | b.is_nan() { self.add(b) } else { less }
    }

    #[inline(always)]
    #[allow(clippy::eq_op)] // only NaN differs from itself
    fn is_nan(self) -> bool {
        self != self
    }

    #[inline(always)]
    fn is_true(self) -> bool {
        self != Self::zero()
    }
}

macro_rules! float_arith {
    ($($t:ident { $($own:tt)* })*) => {$(
        impl Arith for $t {
            #[inline(always)]
            fn add(self, b: Self) -> Self { self + b }
            #[inline(always)]
            fn sub(self, b: Self) -> Self { self - b }
            #[inline(always)]
            fn mul(self, b: Self) -> Self { self * b }
            #[inline(always)]
            fn div(self, b: Self) -> Self { self / b }
            #[inline(always)]
            fn rem(self, b: Self) -> Self {
                if b == 0.0 {
                    return 0.0;
                }
                let r = self % b;
                if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
            }
            #[inline(always)]
            fn zero() -> Self { 0.0 }
            #[inline(always)]
            fn one() -> Self { 1.0 }
            $($own)*
        }
    )*};
}
float_arith! {
    f32 {
        #[inline(always)]
        fn quick_rem(self, b: Self) -> Self { rem_f32(self, b) }
        #[inline(always)]
        fn pow(self, b: Self) -> Self { pow_f32::<false>(self, b) }
        #[inline(always)]
        fn quick_pow<const FUSED: bool>(self, b: Self) -> Self { pow_f32::<FUSED>(self, b) }
        #[inline(always)]
        fn hypot(self, b: Self) -> Self { hypot_f32(self, b) }
    }
    f64 {
        #[inline(always)]
        fn pow(self, b: Self) -> Self { self.powf(b) }
        #[inline(always)]
        fn hypot(self, b: Self) -> Self { self.hypot(b) }
    }
}

impl Arith for f16 {
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        f32_to_half(half_to_f32(self) + half_to_f32(b))
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        f32_to_half(half_to_f32(self) - half_to_f32(b))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        f32_to_half(half_to_f32(self) * half_to_f32(b))
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        f32_to_half(half_to_f32(self) / half_to_f32(b))
    }
    #[inline(always)]
    fn rem(self, b: Self) -> Self {
        f32_to_half(Arith::rem(half_to_f32(self), half_to_f32(b)))
    }
    #[inline(always)]
    fn quick_rem(self, b: Self) -> Self {
        f32_to_half(rem_f32(half_to_f32(self), half_to_f32(b)))
    }
    #[inline(always)]
    fn pow(self, b: Self) -> Self {
        f32_to_half(half_to_f32(self).pow(half_to_f32(b)))
    }
    #[inline(always)]
    fn quick_pow<const FUSED: bool>(self, b: Self) -> Self {
        f32_to_half(half_to_f32(self).quick_pow::<FUSED>(half_to_f32(b)))
    }
    #[inline(always)]
    fn hypot(self, b: Self) -> Self {
        f32_to_half(hypot_f32(half_to_f32(self), half_to_f32(b)))
    }
    #[inline(always)]
    fn zero() -> Self {
        f16::ZERO
    }
    #[inline(always)]
    fn one() -> Self {
        f16::ONE
    }
}

macro_rules! int_arith {
    ($($t:ident),*) => {$(
        impl Arith for $t {
            #[inline(always)]
            fn add(self, b: Self) -> Self { self.wrapping_add(b) }
            #[inline(always)]
            fn sub(self, b: Self) -> Self { self.wrapping_sub(b) }
            #[inline(always)]
            fn mul(self, b: Self) -> Self { self.wrapping_mul(b) }
            #[inline(always)]
            fn div(self, b: Self) -> Self {
                if b == 0 { 0 } else { self.wrapping_div(b) }
            }
            #[inline(always)]
            #[allow(unused_comparisons)] // of unsigned types with zero
            fn rem(self, b: Self) -> Self {
                if b == 0 {
                    return 0;
                }
                let r = self.wrapping_rem(b);
                if r != 0 && (r < 0) != (b < 0) { r.wrapping_add(b) } else { r }
            }
            #[inline(always)]
            fn pow(self, b: Self) -> Self {
                match u32::try_from(b) {
                    Ok(b) => self.wrapping_pow(b),
                    Err(_) => Self::from_f64(self.to_f64().powf(b.to_f64())),
                }
            }
            #[inline(always)]
            fn hypot(self, b: Self) -> Self { Self::from_f64(self.to_f64().hypot(b.to_f64())) }
            #[inline(always)]
            fn zero() -> Self { 0 }
            #[inline(always)]
            fn one() -> Self { 1 }
        }
    )*};
}
int_arith!(u8, i8, i32, i64);

/// Booleans are calculated as the integers 0 and 1; any result but 0 is true.
impl Arith for bool {
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self | b
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self ^ b
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self & b
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        self & b
    }
    #[inline(always)]
    fn rem(self, _: Self) -> Self {
        false
    }
    #[inline(always)]
    fn pow(self, b: Self) -> Self {
        self | !b
    }
    #[inline(always)]
    fn hypot(self, b: Self) -> Self {
        self | b
    }
    #[inline(always)]
    fn zero() -> Self {
        false
    }
    #[inline(always)]
    fn one() -> Self {
        true
    }
}

/// Runs `$body` with the alias `$T` set to the element type of `$dtype` (every dtype has
/// [`Arith`]).
#[macro_export]
macro_rules! with_arith {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::with_dtype!($dtype, $T => $body)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_follow_the_rules_of_arrays() {
        assert_eq!(Arith::div(-7i32, 2), -3);
        assert_eq!(Arith::div(7i32, 0), 0);
        assert_eq!(Arith::rem(-7i32, 3), 2);
        assert_eq!(Arith::rem(7i32, -3), -2);
        assert_eq!(Arith::add(250u8, 10), 4);
        assert_eq!(Arith::rem(5.5f32, -2.0), -0.5);
        assert_eq!(Arith::rem(5.5f32, 0.0), 0.0);
        assert_eq!(Arith::pow(3i64, 39), 3i64.pow(39));
        assert_eq!(Arith::pow(20u8, 2), 144);
        assert_eq!(Arith::pow(2i32, -1), 0);
        assert_eq!(Arith::div(i32::MIN, -1), i32::MIN);
    }

    #[test]
    fn nan_wins() {
        assert!(Arith::max(f32::NAN, 1.0).is_nan());
        assert!(Arith::max(1.0, f32::NAN).is_nan());
        assert!(Arith::min(1.0, f64::NAN).is_nan());
    }
}
