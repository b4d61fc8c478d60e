//! Operators that join arrays, split them and take parts of them.

use super::kernel;
use crate::error::{Error, Result};
use crate::kernels::copy::fill;
use crate::kernels::layout::copy_strided;
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, Kernel, OpDef, OpReq, Tuple, Value};
use crate::params;
use crate::shape::{Dims, Numbers, Shape};
use crate::tensor::View;

params! {
    /// Parameters of `Concat`.
    pub struct ConcatParam {
        num_args: i32, required.ge(1.0), "Number of inputs.";
        dim: i32, default(1), "The axis along which the inputs are joined.";
    }
}

params! {
    /// Parameters of `stack`.
    pub struct StackParam {
        axis: i32, default(0), "Position of the new axis.";
        num_args: i32, required.ge(1.0), "Number of inputs.";
    }
}

params! {
    /// Parameters of `SliceChannel`.
    pub struct SliceChannelParam {
        num_outputs: i32, required.ge(1.0).le(65535.0), "Number of pieces; must divide the extent.";
        axis: i32, default(1), "The axis along which the input is split.";
        squeeze_axis: bool, default(false), "Remove the axis, which must be of extent 1 in the pieces.";
    }
}

params! {
    /// Parameters of `slice_axis`.
    pub struct SliceAxisParam {
        axis: i32, required, "The axis.";
        begin: i32, required, "First index taken; negative ones count from the end.";
        end: Option<i32>, required, "Index after the last one taken; None takes all that follow.";
    }
}

params! {
    /// Parameters of `slice`.
    pub struct SliceParam {
        begin: Vec<Option<i64>>, required, "First index along each axis; None begins at the start.";
        end: Vec<Option<i64>>, required, "Index after the last along each axis; None goes to the end.";
        step: Vec<Option<i64>>, default(Vec::new()), "Distance of the indices taken; may be negative, not 0.";
    }
}

/// The part of `whole` that begins at `begin` and has the extents of `part`, as a view of the
/// whole.
fn region(whole: &View, part: &Shape, begin: &[i64], step: &[i64]) -> View {
    let own = whole.strides();
    let start: i64 = begin.iter().zip(own).map(|(b, s)| b * s).sum();
    // Along an axis of one element no step is taken, however long.
    let taken = |((s, k), n): ((&i64, &i64), &i64)| if *n > 1 { s * k } else { 0 };
    let strides: Dims = own.iter().zip(step).zip(part.dims()).map(taken).collect();
    // SAFETY: begin, extents and steps lie inside of the whole, as inference has checked; an empty
    // part is never read.
    unsafe {
        let size = whole.dtype().size() as i64;
        let ptr = whole.ptr().wrapping_offset((start * size) as isize);
        View::with_strides(ptr, part.clone(), strides, whole.dtype())
    }
}

pub(super) fn copy_views(from: &View, to: &View) {
    // SAFETY: regions of operands of a kernel, which do not overlap.
    unsafe { copy_strided(from, to) };
}

/// The pieces of `whole` along `axis` with the extents of `parts`, in order.
pub(super) fn pieces(whole: &View, axis: usize, extents: impl Iterator<Item = i64>) -> Vec<View> {
    let ones = vec![1; whole.ndim()];
    let mut begin = vec![0; whole.ndim()];
    extents
        .map(|extent| {
            let mut part = whole.shape().clone();
            part.dims_mut()[axis] = extent;
            let view = region(whole, &part, &begin, &ones);
            begin[axis] += extent;
            view
        })
        .collect()
}

/// `view` with the shape of `piece` where they differ by axes of extent 1; both row-major.
pub(super) fn shaped_like(view: &View, piece: &View) -> View {
    view.reshaped(piece.shape().clone())
}

fn concat_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p = attrs.get::<ConcatParam>();
    let mut common = Shape::unknown();
    for s in inputs.iter().chain(&*outputs) {
        if s.rank_known() && !common.rank_known() {
            common = Shape::of_rank(s.ndim());
        }
    }
    if !common.rank_known() {
        return Ok(false);
    }
    let axis = common.axis(p.dim as i64)?;
    for (i, given) in inputs.iter().chain(&*outputs).enumerate() {
        let mut s = given.clone();
        if s.rank_known() && s.ndim() > axis {
            s.dims_mut()[axis] = -1;
        }
        let before = common.clone();
        common.merge(&s).map_err(|_| {
            let name = if i < inputs.len() { format!("arg{i}") } else { "output".to_owned() };
            Error::argument(
                &name,
                "shape",
                given,
                format!("{before} ('?' along axis {axis} is any extent)"),
            )
        })?;
    }
    let mut total = Some(0);
    for (i, s) in inputs.iter_mut().enumerate() {
        assign_shape(s, &format!("arg{i}"), &common)?;
        total = total.filter(|_| s.dims()[axis] >= 0).map(|t| t + s.dims()[axis]);
    }
    common.dims_mut()[axis] = total.unwrap_or(-1);
    assign_shape(&mut outputs[0], "output", &common)?;
    Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
}

fn concat(call: &Call<'_>) -> Result<()> {
    let out = &call.outputs[0];
    let axis = out.shape().axis(call.attrs.get::<ConcatParam>().dim as i64)?;
    let extents = call.inputs.iter().map(|v| v.dims()[axis]);
    for (piece, input) in pieces(out, axis, extents).iter().zip(call.inputs) {
        copy_views(input, piece);
    }
    Ok(())
}

fn concat_backward(call: &Call<'_>) -> Result<()> {
    let g = &call.inputs[0];
    let axis = g.shape().axis(call.attrs.get::<ConcatParam>().dim as i64)?;
    let extents = call.outputs.iter().map(|v| v.dims()[axis]);
    for ((piece, out), req) in pieces(g, axis, extents).iter().zip(call.outputs).zip(call.req) {
        if *req != OpReq::Null {
            copy_views(piece, out);
        }
    }
    Ok(())
}

/// The axis of the pieces in the stacked array of `ndim` axes.
fn stack_axis(attrs: &Attrs, ndim: usize) -> Result<usize> {
    Shape::of_rank(ndim).axis(attrs.get::<StackParam>().axis as i64)
}

fn stack_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let mut common = Shape::unknown();
    for (i, s) in inputs.iter().enumerate() {
        let before = common.clone();
        common.merge(s).map_err(|_| Error::argument(&format!("arg{i}"), "shape", s, before))?;
    }
    if !common.rank_known() {
        return Ok(false);
    }
    let axis = stack_axis(attrs, common.ndim() + 1)?;
    let n = inputs.len() as i64;
    inputs.iter_mut().for_each(|s| *s = common.clone());
    common.dims_mut().insert(axis, n);
    assign_shape(&mut outputs[0], "output", &common)?;
    Ok(outputs[0].is_known())
}

fn stack(call: &Call<'_>) -> Result<()> {
    let out = &call.outputs[0];
    let axis = stack_axis(call.attrs, out.ndim())?;
    for (piece, input) in pieces(out, axis, call.inputs.iter().map(|_| 1)).iter().zip(call.inputs) {
        copy_views(&shaped_like(input, piece), piece);
    }
    Ok(())
}

fn stack_backward(call: &Call<'_>) -> Result<()> {
    let g = &call.inputs[0];
    let axis = stack_axis(call.attrs, g.ndim())?;
    let parts = pieces(g, axis, call.outputs.iter().map(|_| 1));
    for ((piece, out), req) in parts.iter().zip(call.outputs).zip(call.req) {
        if *req != OpReq::Null {
            copy_views(piece, &shaped_like(out, piece));
        }
    }
    Ok(())
}

fn split_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p = attrs.get::<SliceChannelParam>();
    if !inputs[0].rank_known() {
        return Ok(false);
    }
    let axis = inputs[0].axis(p.axis as i64)?;
    let (n, extent) = (p.num_outputs as i64, inputs[0].dims()[axis]);
    if extent >= 0 && extent % n != 0 {
        return Err(Error::argument(
            "data",
            "shape",
            &inputs[0],
            format!("an extent of axis {axis} that {n} divides"),
        ));
    }
    if p.squeeze_axis && extent >= 0 && extent != n {
        return Err(Error::argument(
            "data",
            "shape",
            &inputs[0],
            format!("an extent of {n} along axis {axis} to squeeze"),
        ));
    }
    let mut piece = inputs[0].clone();
    if p.squeeze_axis {
        piece.dims_mut().remove(axis);
    } else if extent >= 0 {
        piece.dims_mut()[axis] = extent / n;
    }
    for out in outputs.iter_mut() {
        assign_shape(out, "output", &piece)?;
    }
    if !p.squeeze_axis {
        // The other extents are those of the pieces.
        let mut back = outputs[0].clone();
        back.dims_mut()[axis] =
            if back.dims()[axis] >= 0 { back.dims()[axis].saturating_mul(n) } else { -1 };
        assign_shape(&mut inputs[0], "data", &back)?;
    }
    Ok(inputs[0].is_known() && outputs.iter().all(Shape::is_known))
}

fn split_pieces(attrs: &Attrs, whole: &View) -> Result<Vec<View>> {
    let p = attrs.get::<SliceChannelParam>();
    let axis = whole.shape().axis(p.axis as i64)?;
    let n = p.num_outputs as usize;
    Ok(pieces(whole, axis, (0..n).map(|_| whole.dims()[axis] / n as i64)))
}

fn split(call: &Call<'_>) -> Result<()> {
    let parts = split_pieces(call.attrs, &call.inputs[0])?;
    for ((piece, out), req) in parts.iter().zip(call.outputs).zip(call.req) {
        if *req != OpReq::Null {
            copy_views(piece, &shaped_like(out, piece));
        }
    }
    Ok(())
}

fn split_backward(call: &Call<'_>) -> Result<()> {
    for (piece, g) in split_pieces(call.attrs, &call.outputs[0])?.iter().zip(call.inputs) {
        copy_views(&shaped_like(g, piece), piece);
    }
    Ok(())
}

/// First index, step and number of indices of a slice of an axis of `extent`, as Python takes it.
pub fn slice_range(
    extent: i64,
    begin: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> (i64, i64, i64) {
    let wrap = |i: i64| if i < 0 { i + extent } else { i };
    if step > 0 {
        let begin = wrap(begin.unwrap_or(0)).clamp(0, extent);
        let end = end.map_or(extent, wrap).clamp(0, extent);
        (begin, step, ((end - begin).max(0) as u64).div_ceil(step as u64) as i64)
    } else {
        let begin = begin.map_or(extent - 1, wrap).clamp(-1, extent - 1);
        let end = end.map_or(-1, |e| wrap(e).max(-1)).min(extent - 1);
        (begin, step, ((begin - end).max(0) as u64).div_ceil(step.unsigned_abs()) as i64)
    }
}

/// Begin, step and number of indices along every axis; the number is -1 where the extent is
/// unknown.
type Ranges = fn(&Attrs, &Shape) -> Result<Vec<(i64, i64, i64)>>;

fn slice_axis_ranges(attrs: &Attrs, shape: &Shape) -> Result<Vec<(i64, i64, i64)>> {
    let p = attrs.get::<SliceAxisParam>();
    let axis = shape.axis(p.axis as i64)?;
    let extent = shape.dims()[axis];
    let mut ranges: Vec<_> = shape.dims().iter().map(|&d| (0, 1, d)).collect();
    if extent < 0 {
        return Ok(ranges);
    }
    let range = slice_range(extent, Some(p.begin as i64), p.end.map(i64::from), 1);
    if p.begin as i64 >= extent.max(1) || (p.begin as i64) < -extent || (range.2 == 0 && extent > 0)
    {
        let end = p.end.map_or("None".to_owned(), |e| e.to_string());
        return Err(Error::value(format!(
            "slice [{}, {end}) of axis {axis} with extent {extent} is empty or out of range",
            p.begin
        )));
    }
    ranges[axis] = range;
    Ok(ranges)
}

fn slice_ranges(attrs: &Attrs, shape: &Shape) -> Result<Vec<(i64, i64, i64)>> {
    region_ranges(attrs.get(), shape)
}

/// Begin, step and number of indices along every axis.
pub(super) fn region_ranges(p: &SliceParam, shape: &Shape) -> Result<Vec<(i64, i64, i64)>> {
    if p.begin.len() != p.end.len() || p.begin.len() > shape.ndim() || p.step.len() > p.begin.len()
    {
        return Err(Error::value(format!(
            "begin, end and step name {}, {} and {} axes of an array of {}",
            p.begin.len(),
            p.end.len(),
            p.step.len(),
            shape.ndim()
        )));
    }
    (0..shape.ndim())
        .map(|i| {
            let of = |v: &Vec<Option<i64>>| v.get(i).copied().flatten();
            let step = of(&p.step).unwrap_or(1);
            if step == 0 {
                return Err(Error::value(format!("step of axis {i} is 0")));
            }
            let extent = shape.dims()[i];
            if extent < 0 {
                return Ok((0, step, extent));
            }
            Ok(slice_range(extent, of(&p.begin), of(&p.end), step))
        })
        .collect()
}

/// The taken region of `whole`, of the extents of the ranges.
pub(super) fn taken(whole: &View, ranges: &[(i64, i64, i64)]) -> View {
    let part: Shape = ranges.iter().map(|r| r.2).collect();
    let begin: Vec<i64> = ranges.iter().map(|r| r.0.max(0)).collect();
    let step: Vec<i64> = ranges.iter().map(|r| r.1).collect();
    region(whole, &part, &begin, &step)
}

fn slicing<P: crate::operator::ParamStruct>(name: &str, ranges: Ranges) -> [OpDef; 2] {
    let back = format!("_backward_{name}");
    let forward = OpDef::new::<P>(name)
        .inputs_are(&[("data", "The input array.")])
        .infer_shape(move |attrs, inputs, outputs| {
            if inputs[0].rank_known() {
                let shape: Shape = ranges(attrs, &inputs[0])?.iter().map(|r| r.2).collect();
                assign_shape(&mut outputs[0], "output", &shape)?;
            }
            Ok(inputs[0].is_known() && outputs[0].is_known())
        })
        .infer_type(same_type)
        .gradient(Gradient::use_none(&back))
        .kernel(kernel(move |call| {
            let ranges = ranges(call.attrs, call.inputs[0].shape())?;
            copy_views(&taken(&call.inputs[0], &ranges), &call.outputs[0]);
            Ok(())
        }));
    let backward = OpDef::new::<P>(&back).inputs_are(&[("ograd", "Output gradient.")]).kernel(
        kernel(move |call| {
            let out = &call.outputs[0];
            fill(out, 0.0);
            let ranges = ranges(call.attrs, out.shape())?;
            copy_views(&call.inputs[0], &taken(out, &ranges));
            Ok(())
        }),
    );
    [forward, backward]
}

/// A backward operator over the output gradient.
fn backward<P: crate::operator::ParamStruct>(name: &str, f: fn(&Call<'_>) -> Result<()>) -> OpDef {
    let k: Kernel = kernel(f);
    OpDef::new::<P>(name).inputs_are(&[("ograd", "Output gradient.")]).kernel(k)
}

pub fn operators() -> Vec<OpDef> {
    let concat = OpDef::new::<ConcatParam>("Concat")
        .aliases(&["concat", "_sparse_concat"])
        .doc(
            "Joins arrays along an axis.\n\nAll extents but that of `dim` agree, and so do the dtypes; otherwise it is \
             an error. The extent along `dim` is the sum of the inputs'.\n\nExamples\n--------\n>>> \
             nd.Concat(nd.ones((2, 3)), nd.zeros((2, 1)), dim=1)\n[[1. 1. 1. 0.]\n [1. 1. 1. 0.]]\n",
        )
        .expensive()
        .variadic("num_args", "Arrays to join.")
        .infer_shape(concat_shape)
        .infer_type(same_type)
        .gradient(Gradient::declared("_backward_concat", |_, _, _| vec![Dep::OutGrad(0)]))
        .kernel(kernel(self::concat));
    let stack = OpDef::new::<StackParam>("stack")
        .doc(
            "Joins arrays of one shape along a new axis.\n\nShapes and dtypes of the inputs agree; otherwise it is an \
             error.\n\nExamples\n--------\n>>> nd.stack(nd.ones((2,)), nd.zeros((2,)), axis=1)\n[[1. 0.]\n [1. 0.]]\n",
        )
        .variadic("num_args", "Arrays to stack.")
        .infer_shape(stack_shape)
        .infer_type(same_type)
        .gradient(Gradient::declared("_backward_stack", |_, _, _| vec![Dep::OutGrad(0)]))
        .kernel(kernel(self::stack));
    let split = OpDef::new::<SliceChannelParam>("SliceChannel")
        .aliases(&["split"])
        .doc(
            "Splits an array into equal pieces along an axis.\n\n`num_outputs` must divide the extent; with \
             `squeeze_axis` the pieces lose the axis, which must then have extent 1. Any dtype.\n\nExamples\n--------\n>>> \
             nd.SliceChannel(nd.array([[1, 2, 3, 4]]), num_outputs=2, axis=1)[1]\n[[3. 4.]]\n",
        )
        .inputs_are(&[("data", "The input array.")])
        .output_names_by(|attrs| {
            let n = attrs.get::<SliceChannelParam>().num_outputs;
            if n == 1 { vec!["output".into()] } else { (0..n).map(|i| format!("output{i}")).collect() }
        })
        .infer_shape(split_shape)
        .infer_type(same_type)
        .gradient(Gradient::use_none("_backward_SliceChannel"))
        .kernel(kernel(self::split));
    let [slice_axis, slice_axis_back] = slicing::<SliceAxisParam>("slice_axis", slice_axis_ranges);
    let slice_axis = slice_axis.doc(
        "Takes the indices `begin` to `end` (without it) of one axis.\n\nNegative indices count from the end. A slice \
         that is empty or begins outside of the axis is an error. Any dtype. The gradient of what is left out is 0.\n\n\
         Examples\n--------\n>>> nd.slice_axis(nd.array([[1, 2, 3, 4]]), axis=1, begin=1, end=-1)\n[[2. 3.]]\n",
    );
    let [slice, slice_back] = slicing::<SliceParam>("slice", slice_ranges);
    let slice = slice
        .aliases(&["crop", "_npi_slice", "_npx_slice", "_sparse_slice"])
        .doc(
            "Takes a region: along each axis the indices from `begin` to `end` (without it) in steps of `step`.\n\n\
             Indices are as in Python: negative ones count from the end, they are clipped to the axis, None means all. \
             Axes that are not named are taken whole. Any dtype.\n\nExamples\n--------\n>>> \
             nd.slice(nd.array([[1, 2, 3], [4, 5, 6]]), begin=(1, None), end=(2, None), step=(1, -2))\n[[6. 4.]]\n",
        );
    let assign = OpDef::new::<SliceParam>("_slice_assign")
        .aliases(&["_crop_assign"])
        .doc("Returns lhs with the region that `slice` would take replaced by rhs.\n\nExamples\n--------\n>>> nd._internal._slice_assign(nd.ones((4,)), nd.zeros((2,)), begin=(1,), end=(3,))\n[1. 0. 0. 1.]\n")
        .inputs_are(&[("lhs", "The array."), ("rhs", "The new region.")])
        .infer_shape(|attrs, inputs, outputs| {
            let (lhs, rhs) = inputs.split_at_mut(1);
            assign_shape(&mut outputs[0], "output", &lhs[0])?;
            if lhs[0].is_known() {
                let part: Shape = slice_ranges(attrs, &lhs[0])?.iter().map(|r| r.2).collect();
                assign_shape(&mut rhs[0], "rhs", &part)?;
            }
            Ok(lhs[0].is_known())
        })
        .infer_type(same_type)
        .inplace(&[crate::operator::InplacePair::new(0, 0)])
        .gradient(Gradient::rule_reading(&[], |b, node| {
            let g = node.out_grad(b, 0)?;
            let region: Vec<(&str, Value)> = ["begin", "end", "step"]
                .iter()
                .filter_map(|name| Some((*name, node.attrs.value(name)?.clone())))
                .collect();
            let lhs = b.op("_slice_assign_scalar", "", &region, &[g])?[0];
            let rhs = b.op("slice", "", &region, &[g])?[0];
            Ok(vec![Some(lhs), Some(rhs)])
        }))
        .kernel(kernel(|call| {
            let out = &call.outputs[0];
            crate::ops::elementwise::sum_n::copy(&call.inputs[0], out)?;
            copy_views(&call.inputs[1], &taken(out, &slice_ranges(call.attrs, out.shape())?));
            Ok(())
        }));
    vec![
        concat,
        backward::<ConcatParam>("_backward_concat", concat_backward),
        stack,
        backward::<StackParam>("_backward_stack", stack_backward),
        split,
        backward::<SliceChannelParam>("_backward_SliceChannel", split_backward),
        slice_axis,
        slice_axis_back,
        slice,
        slice_back,
        assign,
    ]
}

/// The axes of `shape` named by a tuple parameter, as flags; used by operators over sets of axes.
pub fn axis_flags(axes: &Tuple, shape: &Shape) -> Result<Vec<bool>> {
    let mut flags = vec![false; shape.ndim()];
    for &a in axes {
        let at = shape.axis(a)?;
        if std::mem::replace(&mut flags[at], true) {
            return Err(Error::value(format!("axis {a} is named twice in {}", Numbers(axes))));
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::slice_range;
    use crate::ops::testing::{Tensor, check_gradient, values};

    #[test]
    fn gradients_match_numeric_differentiation() {
        let (a, b) = (Tensor::noise(&[2, 3], 1), Tensor::noise(&[2, 2], 2));
        check_gradient("Concat", &[("num_args", "2")], &[a.clone(), b], &[0, 1], true);
        check_gradient(
            "stack",
            &[("num_args", "2"), ("axis", "1")],
            &[a.clone(), a.clone()],
            &[0, 1],
            true,
        );
        check_gradient("SliceChannel", &[("num_outputs", "3")], &[a.clone()], &[0], true);
        check_gradient(
            "SliceChannel",
            &[("num_outputs", "3"), ("squeeze_axis", "1")],
            &[a.clone()],
            &[0],
            true,
        );
        check_gradient(
            "slice_axis",
            &[("axis", "1"), ("begin", "1"), ("end", "None")],
            &[a.clone()],
            &[0],
            true,
        );
        check_gradient(
            "slice",
            &[("begin", "(None, -1)"), ("end", "(1, None)"), ("step", "(1, -2)")],
            &[a],
            &[0],
            true,
        );
    }

    #[test]
    fn slices_follow_python() {
        assert_eq!(slice_range(5, None, None, 1), (0, 1, 5));
        assert_eq!(slice_range(5, Some(-2), Some(9), 1), (3, 1, 2));
        assert_eq!(slice_range(5, None, None, -2), (4, -2, 3));
        assert_eq!(slice_range(5, Some(3), Some(0), -1), (3, -1, 3));
        assert_eq!(slice_range(0, None, None, -1).2, 0);
        let x = Tensor::of(&[5], &[0., 1., 2., 3., 4.]);
        let p = [("begin", "(None,)"), ("end", "(None,)"), ("step", "(-2,)")];
        assert_eq!(values("slice", &p, &[x]), [4., 2., 0.]);
    }
}
