//! Operators that return the same elements in another shape or order of axes.

pub(in crate::ops) mod axes;
mod reshape;

use super::common::at_least_1d;
use super::kernel;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{Attrs, Call, Gradient, InplacePair, NoParam, OpDef, ParamStruct, Tuple};
use crate::ops::elementwise::sum_n::copy;
use crate::params;
use crate::shape::Shape;

params! {
    /// Parameters of `expand_dims`.
    pub struct ExpandDimsParam {
        axis: i32, required, "Position of the new axis; negative ones count from the end.";
    }
}

params! {
    /// Parameters of `squeeze`.
    pub struct SqueezeParam {
        axis: Option<Tuple>, default(None), "Axes to remove; by default all of extent 1.";
    }
}

/// Infers a shape, as far as the input's is known, once its rank is.
fn from_input(
    f: impl Fn(&Attrs, &Shape) -> Result<Shape> + Send + Sync + 'static,
) -> impl Fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool> {
    move |attrs, inputs, outputs| {
        if inputs[0].rank_known() {
            let shape = f(attrs, &inputs[0])?;
            outputs[0].merge(&shape)?;
        }
        Ok(inputs[0].is_known() && outputs[0].is_known())
    }
}

/// As [`from_input`], and the input's shape from the output's.
fn both_ways(
    f: impl Fn(&Attrs, &Shape) -> Result<Shape> + Send + Sync + 'static,
    back: impl Fn(&Attrs, &Shape) -> Result<Shape> + Send + Sync + 'static,
) -> impl Fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool> {
    let forward = from_input(f);
    move |attrs, inputs, outputs| {
        forward(attrs, inputs, outputs)?;
        if outputs[0].rank_known() {
            let shape = back(attrs, &outputs[0])?;
            inputs[0].merge(&shape)?;
        }
        forward(attrs, inputs, outputs)
    }
}

fn squeezed(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    squeezed_to_any_rank(attrs, from).map(at_least_1d)
}

/// The extents that stay, which may be none.
pub(in crate::ops) fn squeezed_to_any_rank(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    let p = attrs.get::<SqueezeParam>();
    let mut remove = vec![false; from.ndim()];
    match &p.axis {
        // Which axes go depends on every extent.
        None if !from.is_known() => return Ok(Shape::unknown()),
        None => (0..from.ndim()).for_each(|i| remove[i] = from.dims()[i] == 1),
        Some(axes) => {
            for &a in axes {
                let i = from.axis(a)?;
                if !matches!(from.dims()[i], 1 | -1) {
                    return Err(Error::value(format!(
                        "cannot select an axis to squeeze out which has size={} not equal to one",
                        from.dims()[i]
                    )));
                }
                remove[i] = true;
            }
        }
    }
    Ok((0..from.ndim()).filter(|&i| !remove[i]).map(|i| from.dims()[i]).collect())
}

/// Where `expand_dims` puts its axis among the `ndim` of the input.
fn new_axis(attrs: &Attrs, ndim: usize) -> Result<usize> {
    let (axis, n) = (attrs.get::<ExpandDimsParam>().axis as i64, ndim as i64);
    let at = if axis < 0 { axis + n + 1 } else { axis };
    match usize::try_from(at) {
        Ok(at) if at <= ndim => Ok(at),
        _ => Err(Error::argument("axis", "value", axis, format!("-{} to {n}", n + 1))),
    }
}

fn copy_kernel(call: &Call<'_>) -> Result<()> {
    copy(&call.inputs[0], &call.outputs[0])
}

/// An operator whose output has the input's bytes.
fn same_bytes<P: ParamStruct>(name: &str) -> OpDef {
    OpDef::new::<P>(name)
        .inputs_are(&[("data", "The input array.")])
        .infer_type(same_type)
        .inplace(&[InplacePair::identity(0, 0)])
        .gradient(Gradient::use_none("_backward_copy"))
        .kernel(kernel(copy_kernel))
}

fn flatten() -> OpDef {
    same_bytes::<NoParam>("Flatten")
        .aliases(&["flatten", "_npx_batch_flatten"])
        .infer_shape(from_input(|_, from| {
            let first = from.dims().first().copied().unwrap_or(1);
            let rest = &from.dims()[from.ndim().min(1)..];
            let known = rest.iter().all(|&d| d >= 0);
            let size = rest.iter().fold(1i64, |n, &d| n.saturating_mul(d));
            Ok(Shape::new(&[first, if known { size } else { -1 }]))
        }))
        .doc(
            "Joins all axes but the first: shape (d1, d2, ..., dk) becomes (d1, d2 * ... * dk). \
             Any dtype.\n\nExamples\n--------\n>>> nd.Flatten(nd.ones((2, 3, 4))).shape\n(2, 12)\n",
        )
}

fn expand_dims() -> OpDef {
    same_bytes::<ExpandDimsParam>("expand_dims")
        .aliases(&["_npi_expand_dims"])
        .infer_shape(both_ways(
            |attrs, from| {
                let mut dims = from.clone();
                dims.dims_mut().insert(new_axis(attrs, from.ndim())?, 1);
                Ok(dims)
            },
            |attrs, to| {
                let Some(before) = to.ndim().checked_sub(1) else { return Ok(Shape::unknown()) };
                let mut dims = to.clone();
                dims.dims_mut().remove(new_axis(attrs, before)?);
                Ok(dims)
            },
        ))
        .doc(
            "Inserts an axis of extent 1. Any dtype; an axis out of range is an error.\n\n\
             Examples\n--------\n>>> nd.expand_dims(nd.ones((2, 3)), axis=1).shape\n(2, 1, 3)\n",
        )
}

fn squeeze() -> OpDef {
    same_bytes::<SqueezeParam>("squeeze").infer_shape(from_input(squeezed)).doc(
        "Removes axes of extent 1; an array whose axes are all removed keeps shape (1,). Naming an \
         axis of another extent is an error. Any dtype.\n\nExamples\n--------\n>>> \
         nd.squeeze(nd.ones((1, 2, 1))).shape\n(2,)\n",
    )
}

fn copy_back() -> OpDef {
    OpDef::plain("_backward_copy")
        .inputs_are(&[("ograd", "Output gradient.")])
        .inplace(&[InplacePair::identity(0, 0)])
        .kernel(kernel(copy_kernel))
}

/// `shape_array` and `size_array`.
fn extents() -> [OpDef; 2] {
    [("shape_array", true), ("size_array", false)].map(|(name, all)| {
        OpDef::plain(name)
            .doc(&format!(
                "Returns the {} of the input as an int64 array. No gradient.\n\nExamples\n\
                 --------\n>>> nd.{name}(nd.ones((2, 3)))\n[{}]\n",
                if all { "extents" } else { "number of elements" },
                if all { "2 3" } else { "6" }
            ))
            .aliases(if all { &["_npx_shape_array"] } else { &[] })
            .inputs_are(&[("data", "The array.")])
            .ignores(&[0])
            .infer_shape(move |_, inputs, outputs| {
                // One number, whatever the input is; as many as the input has axes.
                let n =
                    if all { inputs[0].rank_known().then(|| inputs[0].ndim()) } else { Some(1) };
                if let Some(n) = n {
                    assign_shape(&mut outputs[0], "output", &Shape::new(&[n as i64]))?;
                }
                Ok(inputs[0].is_known() && outputs[0].is_known())
            })
            .infer_type(|_, inputs, outputs| {
                outputs[0] = Some(DType::I64);
                Ok(inputs[0].is_some())
            })
            .gradient(Gradient::Zero)
            .kernel(kernel(move |call| {
                let shape = call.inputs[0].shape();
                // SAFETY: the output is int64 of the inferred extent and apart from the input.
                let out = unsafe { call.outputs[0].slice_mut::<i64>() };
                if all {
                    out.copy_from_slice(shape.dims())
                } else {
                    out[0] = shape.size() as i64
                }
                Ok(())
            }))
    })
}

pub fn operators() -> Vec<OpDef> {
    let mut all = vec![reshape::operator(), flatten(), expand_dims(), squeeze()];
    all.extend(axes::operators());
    all.push(copy_back());
    all.extend(extents());
    all
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Tensor, check_gradient, values};

    #[test]
    fn gradients_match_numeric_differentiation() {
        let x = Tensor::noise(&[2, 3, 4], 1);
        check_gradient("Reshape", &[("shape", "(-1, 4)")], &[x.clone()], &[0], true);
        check_gradient("transpose", &[("axes", "(1, 2, 0)")], &[x.clone()], &[0], true);
        check_gradient("SwapAxis", &[("dim1", "0"), ("dim2", "-1")], &[x], &[0], true);
    }

    #[test]
    fn transposition_moves_elements() {
        let x = Tensor::of(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
        assert_eq!(values("transpose", &[], &[x]), [1., 4., 2., 5., 3., 6.]);
    }
}
