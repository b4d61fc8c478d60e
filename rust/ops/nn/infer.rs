//! Inference helpers of this family.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::Attrs;
use crate::operator::infer::{assign_type, same_type};
use crate::shape::Shape;

/// Returns true if all shapes are known.
pub fn complete(inputs: &[Shape], outputs: &[Shape]) -> Result<bool> {
    Ok(inputs.iter().chain(outputs).all(Shape::is_known))
}

/// All inputs and outputs have one dtype, and it is a float.
pub fn float_type(
    attrs: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    let known = same_type(attrs, inputs, outputs)?;
    check_float(inputs[0])?;
    Ok(known)
}

/// An error unless the dtype is a float (or not known yet).
pub fn check_float(dtype: Option<DType>) -> Result<()> {
    match dtype {
        Some(t) if !t.is_float() => {
            Err(Error::argument("data", "dtype", t, "float16, float32 or float64"))
        }
        _ => Ok(()),
    }
}

/// Checks the number of axes of a known shape.
pub fn expect_rank(
    shape: &Shape,
    argument: &str,
    ranks: std::ops::RangeInclusive<usize>,
) -> Result<()> {
    if !shape.rank_known() || ranks.contains(&shape.ndim()) {
        return Ok(());
    }
    let expected = if ranks.start() == ranks.end() {
        format!("{} axes", ranks.start())
    } else if *ranks.end() == usize::MAX {
        format!("at least {} axes", ranks.start())
    } else {
        format!("{} to {} axes", ranks.start(), ranks.end())
    };
    Err(Error::argument(argument, "shape", shape, expected))
}

/// The dtype of statistics and scales of a normalisation: float32 with float16 data, else the
/// data's.
pub fn statistics_type(data: DType) -> DType {
    if data == DType::F16 { DType::F32 } else { data }
}

/// [`float_type`] of all inputs and output 0; output 1, called `name`, has [`statistics_type`].
pub fn with_statistics(
    name: &'static str,
) -> impl Fn(&Attrs, &mut [Option<DType>], &mut [Option<DType>]) -> Result<bool> {
    move |attrs, inputs, outputs| {
        let known = float_type(attrs, inputs, &mut outputs[..1])?;
        if let Some(data) = inputs[0] {
            assign_type(&mut outputs[1], name, statistics_type(data))?;
        }
        Ok(known)
    }
}

/// Normalisations: input 0 and output 0 share a float dtype, all others have [`statistics_type`].
pub fn norm_type(
    names: &'static [&'static str],
) -> impl Fn(&Attrs, &mut [Option<DType>], &mut [Option<DType>]) -> Result<bool> {
    move |_, inputs, outputs| {
        let Some(data) = inputs[0].or(outputs[0]) else { return Ok(false) };
        check_float(Some(data))?;
        assign_type(&mut inputs[0], "data", data)?;
        assign_type(&mut outputs[0], "output", data)?;
        let stats = statistics_type(data);
        for (i, slot) in inputs.iter_mut().enumerate().skip(1) {
            assign_type(slot, names[i], stats)?;
        }
        for slot in &mut outputs[1..] {
            assign_type(slot, "statistics", stats)?;
        }
        Ok(true)
    }
}
