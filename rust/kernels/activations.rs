//! Activation functions of more than a few instructions, and their derivatives, for
//! [`map_function`](super::map::map_function).

use super::map::Function;
use super::real::Real;

/// Defines [`Function`]s of real numbers, some of them with parameters. In an expression `FUSED` is
/// that of [`simd!`](crate::simd).
macro_rules! functions {
    ($($(#[$meta:meta])* $name:ident $({$($field:ident),*})? [$($x:ident),*] => $body:expr;)*) => {$(
        functions! { @type $(#[$meta])* $name $({$($field),*})? [$($x),*] => $body }
    )*};
    (@type $(#[$meta:meta])* $name:ident [$($x:ident),*] => $body:expr) => {
        $(#[$meta])*
        pub struct $name;

        impl<T: Real> Function<T, { [$(stringify!($x)),*].len() }> for $name {
            #[inline(always)]
            fn of<const FUSED: bool>(&self, [$($x),*]: [T; [$(stringify!($x)),*].len()]) -> T {
                $body
            }
        }
    };
    (@type $(#[$meta:meta])* $name:ident {$($field:ident),*} [$($x:ident),*] => $body:expr) => {
        $(#[$meta])*
        pub struct $name<T> {
            $(pub $field: T,)*
        }

        impl<T: Real> Function<T, { [$(stringify!($x)),*].len() }> for $name<T> {
            #[inline(always)]
            fn of<const FUSED: bool>(&self, [$($x),*]: [T; [$(stringify!($x)),*].len()]) -> T {
                let Self { $($field),* } = *self;
                $body
            }
        }
    };
}

functions! {
    /// `1 / (1 + exp(-x))`.
    Logistic [x] => T::one() / (T::one() + (-x).quick_exp::<FUSED>());

    /// The hyperbolic tangent.
    Tanh [x] => x.quick_tanh::<FUSED>();

    /// `log(1 + exp(x))`.
    Softplus [x] => x.quick_softplus::<FUSED>();

    /// `g` times the derivative of [`Softplus`] where it has the value `y`.
    SoftplusGradient [g, y] => -g * (-y).quick_expm1::<FUSED>();

    /// `x`, below 0 `slope (exp(x) - 1)`; for x above 0 multiplied by `scale`.
    Elu { scale, slope } [x] =>
        if x > T::zero() { scale * x } else { slope * x.quick_expm1::<FUSED>() };

    /// `g` times the derivative of [`Elu`] where it has the value `y`.
    EluGradient { scale, slope } [g, y] =>
        if y > T::zero() { g * scale } else { g * (y + slope) };

    /// `g` times the derivative of [`Elu`] of `x`.
    EluGradientOfInput { scale, slope } [g, x] => {
        let low = slope * x.quick_expm1::<FUSED>() + slope;
        g * if x > T::zero() { scale } else { low }
    };

    /// `x Phi(x)`, where `Phi` is the distribution function of the standard normal distribution.
    Gelu [x] => x * normal_below::<T, FUSED>(x);

    /// `g (Phi(x) + x phi(x))`, where `phi` is the density of the standard normal distribution.
    GeluGradient [g, x] => {
        let density = T::of(0.398_942_280_401_432_7) * (T::of(-0.5) * x * x).quick_exp::<FUSED>();
        g * (normal_below::<T, FUSED>(x) + x * density)
    };
}

#[inline(always)]
fn normal_below<T: Real, const FUSED: bool>(x: T) -> T {
    T::of(0.5) * (T::one() + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf::<FUSED>())
}
