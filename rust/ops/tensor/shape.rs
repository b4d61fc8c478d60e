//! Operators that give the same elements another shape or order of axes.

use super::kernel;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::layout::copy_strided;
use crate::operator::infer::same_type;
use crate::operator::{Attrs, Call, Gradient, InplacePair, OpDef, Tuple};
use crate::ops::elementwise::sum_n::copy;
use crate::params;
use crate::shape::{Dims, Numbers, Shape};
use crate::tensor::View;

params! {
    /// Parameters of `Reshape`.
    pub struct ReshapeParam {
        shape: Tuple, default(Tuple::new()), "The new shape; 0, -1, -2, -3 and -4 are codes, see above.";
        reverse: bool, default(false), "Read the codes from the right.";
        target_shape: Tuple, default(Tuple::new()), "Old name of `shape`, in which 0 is inferred.";
        keep_highest: bool, default(false), "With `target_shape`: keep the first axis.";
    }
}

params! {
    /// Parameters of `transpose`.
    pub struct TransposeParam {
        axes: Tuple, default(Tuple::new()), "The input's axes in their new order; empty reverses them.";
    }
}

params! {
    /// Parameters of `expand_dims`.
    pub struct ExpandDimsParam {
        axis: i32, required, "Position of the new axis; negative ones count from the end.";
    }
}

params! {
    /// Parameters of `SwapAxis`.
    pub struct SwapAxisParam {
        dim1: i32, default(0), "The first axis.";
        dim2: i32, default(0), "The second axis.";
    }
}

params! {
    /// Parameters of `squeeze`.
    pub struct SqueezeParam {
        axis: Option<Tuple>, default(None), "Axes to remove; by default all of extent 1.";
    }
}

/// Number of elements over the known extents; an error when the product does not fit.
fn known_size(dims: &[i64]) -> Result<i64> {
    let known: Vec<i64> = dims.iter().copied().filter(|d| *d >= 0).collect();
    Ok(Shape::new(&known).checked_size()? as i64)
}

/// The shape that the codes of `Reshape` make of `from`, as far as its extents are known.
pub fn reshape(from: &Shape, codes: &[i64], reverse: bool) -> Result<Shape> {
    let mut dims: Vec<i64> = from.dims().to_vec();
    let mut codes: Vec<i64> = codes.to_vec();
    if reverse {
        dims.reverse();
        // A split keeps its code before its two numbers.
        codes.reverse();
        let mut i = 0;
        while i < codes.len() {
            if i + 2 < codes.len() && codes[i + 2] == -4 {
                codes[i..i + 3].rotate_right(1);
                i += 2;
            }
            i += 1;
        }
    }
    let bad = |why: String| {
        Error::value(format!(
            "cannot reshape array of shape {from} into {}: {why}",
            Numbers(&codes)
        ))
    };
    let (mut out, mut at, mut unknown): (Vec<i64>, usize, Option<usize>) = (Vec::new(), 0, None);
    let mut i = 0;
    let infer = |out: &[i64], unknown: &mut Option<usize>| match unknown.replace(out.len()) {
        None => Ok(()),
        Some(_) => Err(Error::value("One and only one dim can be inferred")),
    };
    while i < codes.len() {
        let left = dims.len().saturating_sub(at);
        match codes[i] {
            0 if left == 0 => return Err(bad("code 0 has no axis left to copy".into())),
            0 => {
                out.push(dims[at]);
                at += 1;
            }
            -1 => {
                infer(&out, &mut unknown)?;
                out.push(-1);
                at += 1;
            }
            -2 => {
                out.extend(&dims[at.min(dims.len())..]);
                at = dims.len();
            }
            -3 if left < 2 => return Err(bad("code -3 needs two axes".into())),
            -3 => {
                let known = dims[at] >= 0 && dims[at + 1] >= 0;
                out.push(if known { dims[at].saturating_mul(dims[at + 1]) } else { -1 });
                at += 2;
            }
            -4 => {
                let (Some(&a), Some(&b)) = (codes.get(i + 1), codes.get(i + 2)) else {
                    return Err(bad("code -4 needs two numbers after it".into()));
                };
                if left == 0 {
                    return Err(bad("code -4 has no axis left to split".into()));
                }
                let d = dims[at];
                let (a, b) = match (a, b) {
                    (-1, b) if b > 0 && d >= 0 => (d / b, b),
                    (a, -1) if a > 0 && d >= 0 => (a, d / a),
                    pair => pair,
                };
                if d >= 0 && (a < 0 || a.saturating_mul(b) != d) {
                    return Err(bad(format!("an axis of {d} cannot be split into {a} and {b}")));
                }
                out.extend([a, b]);
                at += 1;
                i += 2;
            }
            n if n > 0 => {
                out.push(n);
                at += 1;
            }
            code => return Err(bad(format!("{code} is no code"))),
        }
        i += 1;
    }
    let size = from.size() as i64;
    if let Some(at) = unknown
        && from.is_known()
    {
        let rest = known_size(&out)?;
        out[at] = if rest > 0 { size / rest } else { 0 };
    }
    if reverse {
        out.reverse();
    }
    let shape = Shape::new(&out);
    if !from.is_known() {
        return Ok(shape);
    }
    if shape.checked_size()? as i64 != size {
        return Err(Error::value(format!(
            "Cannot reshape array of size {size} into shape {shape}"
        )));
    }
    Ok(shape)
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

fn reshape_shape(attrs: &Attrs, from: &Shape) -> Result<Shape> {
    let p = attrs.get::<ReshapeParam>();
    if !p.shape.is_empty() || p.target_shape.is_empty() {
        if p.shape.is_empty() && from.size() != 1 {
            return Err(Error::parameter(
                "Required parameter shape of Shape(tuple) is not presented",
            ));
        }
        return reshape(from, &p.shape, p.reverse);
    }
    let mut codes: Vec<i64> = p.target_shape.iter().map(|&d| if d == 0 { -1 } else { d }).collect();
    if p.keep_highest && !codes.is_empty() {
        codes[0] = if from.ndim() > 0 { 0 } else { 1 };
    }
    reshape(from, &codes, false)
}

/// Where a plain target shape and the output say more than the input: the same number of elements.
fn reshape_infer(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p = attrs.get::<ReshapeParam>();
    let plain = !p.shape.is_empty() && p.shape.iter().all(|&d| d > 0 || d == -1);
    if inputs[0].rank_known() {
        let shape = reshape_shape(attrs, &inputs[0])?;
        outputs[0].merge(&shape)?;
    } else if plain {
        outputs[0].merge(&Shape::new(&p.shape))?;
    }
    if !inputs[0].is_known() && inputs[0].rank_known() && outputs[0].is_known() {
        // One unknown extent follows from the size.
        let unknown: Vec<usize> =
            (0..inputs[0].ndim()).filter(|&i| inputs[0].dims()[i] < 0).collect();
        let known = known_size(inputs[0].dims())?;
        if let [i] = unknown[..]
            && known > 0
            && outputs[0].size() as i64 % known == 0
        {
            inputs[0].dims_mut()[i] = outputs[0].size() as i64 / known;
        }
    }
    Ok(inputs[0].is_known() && outputs[0].is_known())
}

/// The axes of the input in their new order, checked.
fn permutation(axes: &[i64], ndim: usize) -> Result<Vec<usize>> {
    if axes.is_empty() {
        return Ok((0..ndim).rev().collect());
    }
    let wrong =
        || Error::argument("axes", "value", Numbers(axes), format!("a permutation of {ndim} axes"));
    let order: Vec<usize> = axes
        .iter()
        .map(|&a| if a < 0 { a + ndim as i64 } else { a })
        .map(|a| usize::try_from(a).ok().filter(|a| *a < ndim).ok_or_else(wrong))
        .collect::<Result<_>>()?;
    let mut seen = vec![false; ndim];
    order.iter().for_each(|&a| seen[a] = true);
    if order.len() == ndim && seen.iter().all(|s| *s) { Ok(order) } else { Err(wrong()) }
}

/// Copies `from` with its axes in another order.
fn permute(from: &View, order: &[usize], to: &View) {
    let strides: Dims = order.iter().map(|&a| from.strides()[a]).collect();
    // SAFETY: the same elements in another order; operands of a kernel do not overlap.
    unsafe {
        let turned = View::with_strides(from.ptr(), to.shape().clone(), strides, from.dtype());
        copy_strided(&turned, to);
    }
}

fn swap_order(attrs: &Attrs, of: &Shape) -> Result<Vec<usize>> {
    let p = attrs.get::<SwapAxisParam>();
    let (a, b) = (of.axis(p.dim1 as i64)?, of.axis(p.dim2 as i64)?);
    let mut order: Vec<usize> = (0..of.ndim()).collect();
    order.swap(a, b);
    Ok(order)
}

fn squeezed(attrs: &Attrs, from: &Shape) -> Result<Shape> {
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
    let kept: Shape = (0..from.ndim()).filter(|&i| !remove[i]).map(|i| from.dims()[i]).collect();
    Ok(if kept.ndim() == 0 { Shape::new(&[1]) } else { kept })
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
fn same_bytes<P: crate::operator::ParamStruct>(name: &str) -> OpDef {
    OpDef::new::<P>(name)
        .inputs_are(&[("data", "The input array.")])
        .infer_type(same_type)
        .inplace(&[InplacePair::identity(0, 0)])
        .gradient(Gradient::use_none("_backward_copy"))
        .kernel(kernel(copy_kernel))
}

/// An operator that reorders axes, and its gradient, which reorders them back.
fn reorders<P: crate::operator::ParamStruct>(
    name: &str,
    order: fn(&Attrs, &Shape) -> Result<Vec<usize>>,
) -> [OpDef; 2] {
    let back = format!("_backward_{}", name.to_lowercase());
    // The order that undoes another.
    let undone = move |attrs: &Attrs, of: &Shape| -> Result<Vec<usize>> {
        let order = order(attrs, of)?;
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(i, &a)| inverse[a] = i);
        Ok(inverse)
    };
    let ordered = |from: &Shape, order: &[usize]| order.iter().map(|&a| from.dims()[a]).collect();
    let forward = OpDef::new::<P>(name)
        .inputs_are(&[("data", "The input array.")])
        .infer_shape(both_ways(
            move |attrs, from| Ok(ordered(from, &order(attrs, from)?)),
            move |attrs, to| Ok(ordered(to, &undone(attrs, to)?)),
        ))
        .infer_type(same_type)
        .gradient(Gradient::use_none(&back))
        .kernel(kernel(move |call| {
            let order = order(call.attrs, call.inputs[0].shape())?;
            permute(&call.inputs[0], &order, &call.outputs[0]);
            Ok(())
        }));
    let backward = OpDef::new::<P>(&back).inputs_are(&[("ograd", "Output gradient.")]).kernel(
        kernel(move |call| {
            let order = undone(call.attrs, call.inputs[0].shape())?;
            permute(&call.inputs[0], &order, &call.outputs[0]);
            Ok(())
        }),
    );
    [forward, backward]
}

pub fn operators() -> Vec<OpDef> {
    let reshape = same_bytes::<ReshapeParam>("Reshape")
        .aliases(&["reshape"])
        .infer_shape(reshape_infer)
        .doc(
            "Returns the elements in another shape, in the same (row-major) order.\n\nCodes in `shape`, read from left \
             to right beside the input's axes: 0 copies an extent, -1 is inferred from the size (once only), -2 copies \
             all that are left, -3 joins two axes, -4 splits one into the two numbers that follow (one of which may be \
             -1). With `reverse` they are read from the right. A shape of another size is an error. Any dtype.\n\n\
             Examples\n--------\n>>> nd.Reshape(nd.ones((2, 3, 4)), shape=(-3, 0)).shape\n(6, 4)\n",
        );
    let flatten = same_bytes::<crate::operator::NoParam>("Flatten")
        .aliases(&["flatten", "_npx_batch_flatten"])
        .infer_shape(from_input(|_, from| {
            let first = from.dims().first().copied().unwrap_or(1);
            let rest = &from.dims()[from.ndim().min(1)..];
            let known = rest.iter().all(|&d| d >= 0);
            let size = rest.iter().fold(1i64, |n, &d| n.saturating_mul(d));
            Ok(Shape::new(&[first, if known { size } else { -1 }]))
        }))
        .doc(
            "Joins all axes but the first: shape (d1, d2, ..., dk) becomes (d1, d2 * ... * dk). Any dtype.\n\n\
             Examples\n--------\n>>> nd.Flatten(nd.ones((2, 3, 4))).shape\n(2, 12)\n",
        );
    let expand_dims = same_bytes::<ExpandDimsParam>("expand_dims")
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
        .doc("Inserts an axis of extent 1. Any dtype; an axis out of range is an error.\n\nExamples\n--------\n>>> nd.expand_dims(nd.ones((2, 3)), axis=1).shape\n(2, 1, 3)\n");
    let squeeze = same_bytes::<SqueezeParam>("squeeze")
        .infer_shape(from_input(squeezed))
        .doc(
            "Removes axes of extent 1; an array whose axes are all removed keeps shape (1,). Naming an axis of another \
             extent is an error. Any dtype.\n\nExamples\n--------\n>>> nd.squeeze(nd.ones((1, 2, 1))).shape\n(2,)\n",
        );
    let [transpose, transpose_back] = reorders::<TransposeParam>("transpose", |attrs, of| {
        permutation(&attrs.get::<TransposeParam>().axes, of.ndim())
    });
    let transpose = transpose.doc(
        "Reorders the axes: axis i of the output is axis `axes[i]` of the input. Any dtype; `axes` that is no \
         permutation is an error.\n\nExamples\n--------\n>>> nd.transpose(nd.ones((2, 3, 4)), axes=(1, 0, 2)).shape\n(3, 2, 4)\n",
    );
    let [swap, swap_back] = reorders::<SwapAxisParam>("SwapAxis", swap_order);
    let swap = swap
        .aliases(&["swapaxes", "_npi_swapaxes"])
        .doc("Exchanges two axes. Any dtype; an axis out of range is an error.\n\nExamples\n--------\n>>> nd.SwapAxis(nd.ones((2, 3, 4)), dim1=0, dim2=2).shape\n(4, 3, 2)\n");
    let copy_back = OpDef::plain("_backward_copy")
        .inputs_are(&[("ograd", "Output gradient.")])
        .inplace(&[InplacePair::identity(0, 0)])
        .kernel(kernel(copy_kernel));
    let ints = [("shape_array", true), ("size_array", false)].map(|(name, all)| {
        OpDef::plain(name)
            .doc(&format!(
                "Returns the {} of the input as an int64 array. No gradient.\n\nExamples\n--------\n>>> nd.{name}(nd.ones((2, 3)))\n[{}]\n",
                if all { "extents" } else { "number of elements" },
                if all { "2 3" } else { "6" }
            ))
            .inputs_are(&[("data", "The array.")])
            .ignores(&[0])
            .infer_shape(from_input(move |_, from| Ok(Shape::new(&[if all { from.ndim() as i64 } else { 1 }]))))
            .infer_type(|_, inputs, outputs| {
                outputs[0] = Some(DType::I64);
                Ok(inputs[0].is_some())
            })
            .gradient(Gradient::Zero)
            .kernel(kernel(move |call| {
                let shape = call.inputs[0].shape();
                // SAFETY: the output is int64 of the inferred extent and apart from the input.
                let out = unsafe { call.outputs[0].slice_mut::<i64>() };
                if all { out.copy_from_slice(shape.dims()) } else { out[0] = shape.size() as i64 }
                Ok(())
            }))
    });
    let mut every = vec![
        reshape,
        flatten,
        expand_dims,
        squeeze,
        transpose,
        transpose_back,
        swap,
        swap_back,
        copy_back,
    ];
    every.extend(ints);
    every
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Tensor, check_gradient, values};

    fn shape(from: &[i64], codes: &[i64], reverse: bool) -> Option<Vec<i64>> {
        reshape(&Shape::new(from), codes, reverse).ok().map(|s| s.dims().to_vec())
    }

    #[test]
    fn reshape_codes() {
        let from = &[2, 3, 4];
        for (codes, want) in [
            (&[0, -1][..], &[2, 12][..]),
            (&[-3, 4], &[6, 4]),
            (&[0, -3], &[2, 12]),
            (&[-4, 1, 2, -2], &[1, 2, 3, 4]),
            (&[2, -4, -1, 3, -2], &[2, 1, 3, 4]),
            (&[4, 0, 2], &[4, 3, 2]),
        ] {
            assert_eq!(shape(from, codes, false).as_deref(), Some(want), "{codes:?}");
        }
        assert_eq!(shape(&[10, 5, 4], &[-1, 0], false), Some(vec![40, 5]));
        assert_eq!(shape(&[10, 5, 4], &[-1, 0], true), Some(vec![50, 4]));
        assert_eq!(shape(from, &[5], false), None);
        assert_eq!(shape(from, &[-1, -1], false), None);
        assert_eq!(shape(from, &[0, 0, 0, 0], false), None);
        assert_eq!(shape(&[0, 3], &[-1, 3], false), Some(vec![0, 3]));
    }

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
