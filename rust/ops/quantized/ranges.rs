//! Ranges: how integers stand for real numbers.
//!
//! An array of integers comes with two arrays of one element, the least and the greatest real
//! number that it may hold. With the magnitude `m = max(|min|, |max|)` an integer `q` stands for
//! `q * m / levels`, where the levels are 127 for int8, 255 for uint8 and 2^31 - 1 for int32. So 0
//! stands for 0, and int8 uses -127 to 127.

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::int8::convert::{self, Each, ToUnits};
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Call, OpReq};
use crate::shape::Shape;
use crate::tensor::View;

/// The greatest integer of a dtype that stands for a number.
pub fn levels(dtype: DType) -> f64 {
    match dtype {
        DType::U8 => 255.0,
        DType::I32 => f64::from(i32::MAX),
        _ => 127.0,
    }
}

/// The least and the greatest real number of an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    pub min: f32,
    pub max: f32,
}

impl Range {
    /// The range around 0 that integers with this unit have.
    pub fn of_unit(unit: f64, dtype: DType) -> Range {
        let most = (unit * levels(dtype)) as f32;
        Range { min: -most, max: most }
    }

    /// The range given by inputs `at` and `at + 1` of a call.
    pub fn of_inputs(call: &Call<'_>, at: usize) -> Range {
        Range { min: first(&call.inputs[at]), max: first(&call.inputs[at + 1]) }
    }

    /// The range given by the parameters of a calibration, if both are given.
    pub fn calibrated(min: Option<f32>, max: Option<f32>) -> Option<Range> {
        Some(Range { min: min?, max: max? })
    }

    pub fn magnitude(self) -> f64 {
        f64::from(self.min.abs().max(self.max.abs()))
    }

    /// The real number that 1 stands for.
    pub fn unit(self, dtype: DType) -> f64 {
        self.magnitude() / levels(dtype)
    }

    /// The number of units in 1; 0 if all numbers are 0.
    pub fn units(self, dtype: DType) -> f64 {
        let m = self.magnitude();
        if m > 0.0 { levels(dtype) / m } else { 0.0 }
    }

    /// What int8 says of itself: as wide below 0 as above.
    pub fn symmetric(self) -> Range {
        let m = self.magnitude() as f32;
        Range { min: -m, max: m }
    }

    /// Writes the range to outputs 1 and 2 of a call.
    pub fn write(self, call: &Call<'_>) {
        for (i, value) in [(1, self.min), (2, self.max)] {
            if call.req[i] != OpReq::Null {
                // SAFETY: inference gave the output one float32 element, which is ours to write.
                unsafe { call.outputs[i].slice_mut::<f32>()[0] = value };
            }
        }
    }
}

/// The one element of a range's array.
fn first(view: &View) -> f32 {
    // SAFETY: an input is not written while the kernel runs; inference gave it one element.
    unsafe { view.slice::<f32>() }.first().copied().unwrap_or(0.0)
}

/// `y[i] = f(x[i])`.
pub fn map<S: Element, D: Element>(x: &View, y: &View, f: impl Each<S, D>) {
    // SAFETY: inference gave both views one size; the output, which is ours to write, overlaps no
    // input.
    unsafe { convert::map(f, x.as_ptr(), y.as_ptr(), y.size()) };
}

/// Runs `$body` with the alias `$T` for int8 or uint8.
macro_rules! with_byte {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::dtype::DType::U8 => {
                type $T = u8;
                $body
            }
            _ => {
                type $T = i8;
                $body
            }
        }
    };
}
pub(super) use with_byte;

/// Quantises real numbers to `out`, int8 or uint8, by a range.
pub fn quantise(x: &View, range: Range, out: &View) {
    let units = ToUnits { factor: range.units(out.dtype()), shift: 0.0 };
    with_byte!(out.dtype(), T => map::<f32, T>(x, out, units));
}

/// Ranges are float32.
pub fn range_types(types: &mut [Option<DType>], names: &[&str]) -> Result<()> {
    types.iter_mut().zip(names).try_for_each(|(slot, name)| assign_type(slot, name, DType::F32))
}

/// Ranges have one element.
pub fn range_shapes(shapes: &mut [Shape], names: &[&str]) -> Result<()> {
    let one = Shape::new(&[1]);
    shapes.iter_mut().zip(names).try_for_each(|(slot, name)| assign_shape(slot, name, &one))
}

/// The names of the outputs of an operator on integers.
pub const OUTPUTS: [&str; 3] = ["output", "min_output", "max_output"];

/// An error unless the dtype, if known, is one of `allowed`.
pub fn expect_type(dtype: Option<DType>, name: &str, allowed: &[DType]) -> Result<()> {
    match dtype {
        Some(t) if !allowed.contains(&t) => {
            let names: Vec<&str> = allowed.iter().map(|d| d.name()).collect();
            Err(Error::argument(name, "dtype", t, names.join(" or ")))
        }
        _ => Ok(()),
    }
}

/// The dtypes of 8-bit integers.
pub const BYTES: [DType; 2] = [DType::I8, DType::U8];
