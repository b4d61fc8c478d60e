//! Inference rules that many operators share.

use super::param::Attrs;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use std::fmt::Display;

/// All inputs and outputs have one shape; knowledge flows in every direction.
pub fn elementwise_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let mut common = Shape::unknown();
    for (kind, shapes) in [("input", &*inputs), ("output", &*outputs)] {
        for (i, s) in shapes.iter().enumerate() {
            common.merge(s).map_err(|_| {
                Error::value(format!(
                    "Incompatible attr at {i}-th {kind}: expected {common}, got {s}"
                ))
            })?;
        }
    }
    for s in inputs.iter_mut().chain(outputs.iter_mut()) {
        *s = common.clone();
    }
    Ok(common.is_known())
}

/// All inputs and outputs have one dtype.
pub fn same_type(
    _: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    one_type(&mut [("input", inputs), ("output", outputs)])
}

/// All arrays of these kinds have one dtype.
pub fn one_type(kinds: &mut [(&str, &mut [Option<DType>])]) -> Result<bool> {
    let mut common = None;
    for (kind, types) in &*kinds {
        for (i, t) in types.iter().enumerate() {
            match (common, t) {
                (None, t) => common = *t,
                (Some(c), Some(t)) if c != *t => {
                    return Err(Error::type_(format!(
                        "Incompatible attr at {i}-th {kind}: expected {c}, got {t}"
                    )));
                }
                _ => {}
            }
        }
    }
    for (_, types) in kinds {
        types.fill(common);
    }
    Ok(common.is_some())
}

/// The dtype of an output; an error if it or the shape could not be inferred.
pub fn known(output: impl Display, shape: &Shape, dtype: Option<DType>) -> Result<DType> {
    let text = |what: &str| {
        format!("the {what} of {output} cannot be inferred: expected an operator that infers it")
    };
    match shape.is_known() {
        true => dtype.ok_or_else(|| Error::type_(text("dtype"))),
        false if shape.rank_known() => Err(Error::value(text(&format!("shape {shape}")))),
        false => Err(Error::value(text("shape"))),
    }
}

/// Merges `shape` into `slot`; the error names the argument.
pub fn assign_shape(slot: &mut Shape, argument: &str, shape: &Shape) -> Result<()> {
    let before = slot.clone();
    slot.merge(shape).map(|_| ()).map_err(|_| Error::argument(argument, "shape", before, shape))
}

/// Sets a dtype or checks that it is the expected one; the error names the argument.
pub fn assign_type(slot: &mut Option<DType>, argument: &str, dtype: DType) -> Result<()> {
    match *slot {
        Some(t) if t != dtype => Err(Error::argument(argument, "dtype", t, dtype)),
        _ => {
            *slot = Some(dtype);
            Ok(())
        }
    }
}
