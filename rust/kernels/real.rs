//! The element types that kernels calculate in: `f32` and `f64`. Half precision is widened to `f32`
//! by the caller, block by block.

use super::conv::winograd::transforms::Transformed;
use super::gemm::few::kernels::Stored;
use super::gemm::micro::Tiled;
use super::math::{double, narrow, wide};
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
    fn erf<const FUSED: bool>(self) -> Self;

    /// `e^x` as arithmetic that vectorises, where the type has it.
    fn quick_exp<const FUSED: bool>(self) -> Self;

    /// `e^x` for `x` up to 88, as [`Real::quick_exp`]; what is below the least normal number may be
    /// 0. `FUSED` as in [`simd!`](crate::simd).
    fn exp_below_88<const FUSED: bool>(self) -> Self;

    /// The natural logarithm, as [`Real::quick_exp`].
    fn quick_ln<const FUSED: bool>(self) -> Self;

    /// `e^x - 1`, as [`Real::quick_exp`].
    fn quick_expm1<const FUSED: bool>(self) -> Self;

    /// `ln(1 + e^x)`, as [`Real::quick_exp`].
    fn quick_softplus<const FUSED: bool>(self) -> Self;

    /// The hyperbolic tangent, as [`Real::quick_exp`].
    fn quick_tanh<const FUSED: bool>(self) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn erf<const FUSED: bool>(self) -> Self {
        narrow::erf::<FUSED>(self)
    }

    #[inline(always)]
    fn quick_exp<const FUSED: bool>(self) -> Self {
        narrow::exp::<FUSED>(self)
    }

    #[inline(always)]
    fn exp_below_88<const FUSED: bool>(self) -> Self {
        narrow::exp_below_88::<FUSED>(self)
    }

    #[inline(always)]
    fn quick_ln<const FUSED: bool>(self) -> Self {
        narrow::log::<FUSED>(self)
    }

    #[inline(always)]
    fn quick_expm1<const FUSED: bool>(self) -> Self {
        wide::expm1::<FUSED>(self)
    }

    #[inline(always)]
    fn quick_softplus<const FUSED: bool>(self) -> Self {
        narrow::softplus::<FUSED>(self)
    }

    #[inline(always)]
    fn quick_tanh<const FUSED: bool>(self) -> Self {
        narrow::tanh::<FUSED>(self)
    }
}

impl Real for f64 {
    #[inline(always)]
    fn erf<const FUSED: bool>(self) -> Self {
        double::erf(self)
    }

    #[inline(always)]
    fn quick_exp<const FUSED: bool>(self) -> Self {
        double::exp(self)
    }

    #[inline(always)]
    fn exp_below_88<const FUSED: bool>(self) -> Self {
        double::exp(self)
    }

    #[inline(always)]
    fn quick_ln<const FUSED: bool>(self) -> Self {
        double::log(self)
    }

    #[inline(always)]
    fn quick_expm1<const FUSED: bool>(self) -> Self {
        double::expm1(self)
    }

    #[inline(always)]
    fn quick_softplus<const FUSED: bool>(self) -> Self {
        double::softplus(self)
    }

    #[inline(always)]
    fn quick_tanh<const FUSED: bool>(self) -> Self {
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
