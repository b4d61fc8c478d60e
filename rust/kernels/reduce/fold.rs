//! What a reduction accumulates, and in which type.

use crate::dtype::Element;
use crate::half_precision::{f32_to_half, half_to_f32};
use crate::kernels::arith::Arith;
use half::f16;

/// An element type with the types its reductions are accumulated in.
pub trait Accumulate: Arith {
    /// Sums, products and extremes. Half precision is accumulated in `f32`, every other type in
    /// itself.
    type Sum: Arith;
    /// Sums that are divided by a count: a type in which those of small integers do not wrap.
    type Total: Arith;
    /// Sums of squares: a floating-point type, so that squares of integers do not wrap.
    type Squares: Arith;
    /// By how much numbers are scaled where their squares leave the range of `Squares`, or 1 if
    /// they cannot. A power of two, so that scaling does not round.
    const SCALE: f64;
    fn widen(self) -> Self::Sum;
    fn total(self) -> Self::Total;
    fn narrow(sum: Self::Sum) -> Self;
    fn square(self) -> Self::Squares;
    fn lowest() -> Self;
    fn highest() -> Self;
}

macro_rules! accumulate {
    ($($t:ident, $total:ident, $squares:ident, $scale:expr, $low:expr, $high:expr;)*) => {$(
        impl Accumulate for $t {
            type Sum = $t;
            type Total = $total;
            type Squares = $squares;
            const SCALE: f64 = $scale;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn total(self) -> $total { self as $total }
            #[inline(always)]
            fn narrow(sum: $t) -> Self { sum }
            #[inline(always)]
            fn square(self) -> $squares { self as $squares * self as $squares }
            fn lowest() -> Self { $low }
            fn highest() -> Self { $high }
        }
    )*};
}
accumulate! {
    f32, f32, f32, (1u128 << 90) as f64, f32::NEG_INFINITY, f32::INFINITY;
    f64, f64, f64, 4.149515568880993e180, f64::NEG_INFINITY, f64::INFINITY; // 2^600
    u8, i64, f64, 1.0, u8::MIN, u8::MAX;
    i8, i64, f64, 1.0, i8::MIN, i8::MAX;
    i32, i64, f64, 1.0, i32::MIN, i32::MAX;
    i64, i64, f64, 1.0, i64::MIN, i64::MAX;
}

impl Accumulate for f16 {
    type Sum = f32;
    type Total = f32;
    type Squares = f32;
    const SCALE: f64 = 1.0;
    #[inline(always)]
    fn widen(self) -> f32 {
        half_to_f32(self)
    }
    #[inline(always)]
    fn total(self) -> f32 {
        half_to_f32(self)
    }
    #[inline(always)]
    fn narrow(sum: f32) -> Self {
        f32_to_half(sum)
    }
    #[inline(always)]
    fn square(self) -> f32 {
        half_to_f32(self) * half_to_f32(self)
    }
    fn lowest() -> Self {
        f16::NEG_INFINITY
    }
    fn highest() -> Self {
        f16::INFINITY
    }
}

impl Accumulate for bool {
    type Sum = bool;
    type Total = bool;
    type Squares = bool;
    const SCALE: f64 = 1.0;
    #[inline(always)]
    fn widen(self) -> bool {
        self
    }
    #[inline(always)]
    fn total(self) -> bool {
        self
    }
    #[inline(always)]
    fn narrow(sum: bool) -> Self {
        sum
    }
    #[inline(always)]
    fn square(self) -> bool {
        self
    }
    fn lowest() -> Self {
        false
    }
    fn highest() -> Self {
        true
    }
}

/// A reduction: the value of no element, the value of one, how two values are joined, and the
/// result. `join` is associative up to rounding and commutative.
pub trait Fold<T: Accumulate> {
    type Value: Arith;
    fn start() -> Self::Value;
    fn value(x: T) -> Self::Value;
    fn join(a: Self::Value, b: Self::Value) -> Self::Value;
    fn end(value: Self::Value, count: usize) -> T;
}

macro_rules! folds {
    ($($(#[$doc:meta])* $name:ident in $value:ident: $start:expr, |$x:ident| $one:expr,
        |$a:ident, $b:ident| $join:expr, |$e:ident, $n:ident| $end:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name;
        impl<T: Accumulate> Fold<T> for $name {
            type Value = T::$value;
            #[inline(always)]
            fn start() -> T::$value { $start }
            #[inline(always)]
            fn value($x: T) -> T::$value { $one }
            #[inline(always)]
            fn join($a: T::$value, $b: T::$value) -> T::$value { $join }
            #[inline(always)]
            fn end($e: T::$value, $n: usize) -> T { $end }
        }
    )*};
}

folds! {
    Sum in Sum: T::Sum::zero(), |x| x.widen(), |a, b| a.add(b), |s, _n| T::narrow(s);
    Mean in Total: T::Total::zero(), |x| x.total(), |a, b| a.add(b), |s, n| {
        // Integers are truncated, as everywhere; the mean of nothing is NaN where there is one.
        if n == 0 { T::from_f64(f64::NAN) } else { T::from_f64(s.to_f64() / n as f64) }
    };
    Product in Sum: T::Sum::one(), |x| x.widen(), |a, b| a.mul(b), |s, _n| T::narrow(s);
    Max in Sum: T::lowest().widen(), |x| x.widen(), |a, b| a.max(b), |s, _n| T::narrow(s);
    Min in Sum: T::highest().widen(), |x| x.widen(), |a, b| a.min(b), |s, _n| T::narrow(s);
    NanSum in Sum: T::Sum::zero(), |x| if x.is_nan() { T::Sum::zero() } else { x.widen() },
        |a, b| a.add(b), |s, _n| T::narrow(s);
    NanProduct in Sum: T::Sum::one(), |x| if x.is_nan() { T::Sum::one() } else { x.widen() },
        |a, b| a.mul(b), |s, _n| T::narrow(s);
    Norm1 in Sum: T::Sum::zero(), |x| {
        let x = x.widen();
        if x < T::Sum::zero() { T::Sum::zero().sub(x) } else { x }
    }, |a, b| a.add(b), |s, _n| T::narrow(s);
    Norm2 in Squares: T::Squares::zero(), |x| x.square(), |a, b| a.add(b),
        |s, _n| T::from_f64(s.to_f64().sqrt());
    /// The norm of numbers whose squares overflow: they are scaled down first.
    LargeNorm2 in Squares: T::Squares::zero(), |x| T::from_f64(x.to_f64() / T::SCALE).square(),
        |a, b| a.add(b), |s, _n| T::from_f64(s.to_f64().sqrt() * T::SCALE);
    /// The norm of numbers whose squares underflow: they are scaled up first.
    SmallNorm2 in Squares: T::Squares::zero(), |x| T::from_f64(x.to_f64() * T::SCALE).square(),
        |a, b| a.add(b), |s, _n| T::from_f64(s.to_f64().sqrt() / T::SCALE);
}
