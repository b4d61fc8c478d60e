//! The element types that kernels calculate in: `f32` and `f64`. Half precision is widened to `f32`
//! by the caller, block by block.

use super::conv::winograd::transforms::Transformed;
use super::gemm::few::kernels::Stored;
use super::gemm::micro::Tiled;
use super::math::{double, exp_below_88_f32, single};
use super::scalar::Scalar;

/// A floating-point type with hardware arithmetic, and the kernels that are written for its
/// registers.
pub trait Real: Scalar + Tiled + Transformed + Stored<Self> {
    /// A constant.
    #[inline(always)]
    fn of(x: f64) -> Self {
        Self::from_f64(x)
    }

    /// The error function, as [`Real::quick_exp`].
    fn erf(self) -> Self;

    /// `e^x` as arithmetic that vectorises, where the type has it.
    fn quick_exp(self) -> Self;

    /// `e^x` for `x` up to 88, as [`Real::quick_exp`]; what is below the least normal number may be
    /// 0. `FUSED` as in [`simd!`](crate::simd).
    fn exp_below_88<const FUSED: bool>(self) -> Self;

    /// The natural logarithm, as [`Real::quick_exp`].
    fn quick_ln(self) -> Self;

    /// `e^x - 1`, as [`Real::quick_exp`].
    fn quick_expm1(self) -> Self;

    /// `ln(1 + e^x)`, as [`Real::quick_exp`].
    fn quick_softplus(self) -> Self;

    /// The hyperbolic tangent, as [`Real::quick_exp`].
    fn quick_tanh(self) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn erf(self) -> Self {
        single::erf(self)
    }

    #[inline(always)]
    fn quick_exp(self) -> Self {
        single::exp(self)
    }

    #[inline(always)]
    fn exp_below_88<const FUSED: bool>(self) -> Self {
        exp_below_88_f32::<FUSED>(self)
    }

    #[inline(always)]
    fn quick_ln(self) -> Self {
        single::log(self)
    }

    #[inline(always)]
    fn quick_expm1(self) -> Self {
        single::expm1(self)
    }

    #[inline(always)]
    fn quick_softplus(self) -> Self {
        single::softplus(self)
    }

    #[inline(always)]
    fn quick_tanh(self) -> Self {
        single::tanh(self)
    }
}

impl Real for f64 {
    #[inline(always)]
    fn erf(self) -> Self {
        double::erf(self)
    }

    #[inline(always)]
    fn quick_exp(self) -> Self {
        double::exp(self)
    }

    #[inline(always)]
    fn exp_below_88<const FUSED: bool>(self) -> Self {
        double::exp(self)
    }

    #[inline(always)]
    fn quick_ln(self) -> Self {
        double::log(self)
    }

    #[inline(always)]
    fn quick_expm1(self) -> Self {
        double::expm1(self)
    }

    #[inline(always)]
    fn quick_softplus(self) -> Self {
        double::softplus(self)
    }

    #[inline(always)]
    fn quick_tanh(self) -> Self {
        double::tanh(self)
    }
}

/// Runs `$body` with the alias `$T` set to the real type of `$dtype`; any other dtype is an error.
#[macro_export]
macro_rules! with_real {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::dtype::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::dtype::DType::F64 => {
                type $T = f64;
                $body
            }
            other => Err($crate::error::Error::type_(format!(
                "no kernel for dtype {other}, expected float16, float32 or float64"
            ))),
        }
    };
}
