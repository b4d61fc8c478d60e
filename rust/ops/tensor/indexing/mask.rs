//! `boolean_mask`: the slices that a mask marks. How many they are is known when the mask's numbers
//! are ([`OpDef::shaped_by_numbers`]); `python/rsnet/ndarray/_by_numbers.py` computes it.

use super::super::common::all_known;
use super::text;
use crate::error::{Error, Result};
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Gradient, OpDef};
use crate::params;
use crate::shape::Shape;

params! {
    /// Parameters of `_contrib_boolean_mask`.
    pub struct MaskParam {
        axis: i32, default(0), "The axis along which slices are taken.";
    }
}

/// The output's shape but for the number of slices, and the mask's.
fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    if !inputs[0].rank_known() {
        return Ok(false);
    }
    let (axis, rank) = (i64::from(attrs.get::<MaskParam>().axis), inputs[0].ndim() as i64);
    if !(-rank..rank).contains(&axis) {
        let expected = format!("{} to {}, an axis of data", -rank, rank - 1);
        return Err(Error::argument("axis", "value", axis, expected));
    }
    let at = axis.rem_euclid(rank) as usize;
    let mut dims = inputs[0].dims().to_vec();
    assign_shape(&mut inputs[1], "index", &Shape::new(&[dims[at]]))?;
    dims[at] = -1;
    assign_shape(&mut outputs[0], "output", &Shape::new(&dims))?;
    Ok(all_known(inputs, outputs))
}

pub fn operators() -> Vec<OpDef> {
    let mask = OpDef::new::<MaskParam>("_contrib_boolean_mask")
        .doc(&text(
            "The slices of data along an axis where index is not zero.",
            "Any dtypes. The gradient of a slice that is not taken is 0. Their number depends on \
             the numbers of ``index``: a symbol with this operator is run operator by operator, \
             by ``nd.CachedOp`` and hybridized blocks, and cannot be bound.",
            "nd.contrib.boolean_mask(nd.array([1, 2, 3]), nd.array([1, 0, 1]))\n[1. 3.]",
        ))
        .inputs_are(&[("data", "The array."), ("index", "A vector of the extent of the axis.")])
        .infer_shape(infer_shape)
        .shaped_by_numbers()
        .infer_type(|_, inputs, outputs| {
            let Some(dtype) = inputs[0].or(outputs[0]) else { return Ok(false) };
            assign_type(&mut inputs[0], "data", dtype)?;
            assign_type(&mut outputs[0], "output", dtype)?;
            Ok(inputs[1].is_some())
        })
        .gradient(Gradient::None);
    vec![mask]
}
