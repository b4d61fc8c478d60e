//! Arithmetic of the types that kernels calculate in, as far as micro-kernels need it. What is
//! written over them is in `real.rs`.

use crate::dtype::Element;
use num_traits::Float;
use std::iter::Sum;
use std::ops::{AddAssign, DivAssign, MulAssign, SubAssign};

/// A floating-point type with hardware arithmetic.
pub trait Scalar:
    Element + Float + AddAssign + SubAssign + MulAssign + DivAssign + Sum + Send + Sync
{
}

impl Scalar for f32 {}
impl Scalar for f64 {}
