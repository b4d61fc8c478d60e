//! `Concat`, `stack` and `SliceChannel`: arrays joined along an axis and split again.

use super::super::moves::Move;
use super::{moving, pieces, shaped_like};
use crate::error::{Error, Result};
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef};
use crate::params;
use crate::shape::Shape;
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
        squeeze_axis: bool, default(false), "Remove the axis, which must be of extent 1 in the \
                                             pieces.";
    }
}

pub fn concat_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
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

/// As `concat_shape`, and backwards too: pieces of unknown extent share what the others leave of
/// the output, all alike.
fn param_concat_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let done = concat_shape(attrs, inputs, outputs)?;
    if done || !outputs[0].is_known() || !inputs.iter().all(Shape::rank_known) {
        return Ok(done);
    }
    let axis = outputs[0].axis(attrs.get::<ConcatParam>().dim as i64)?;
    let extents = || inputs.iter().map(|s| s.dims()[axis]);
    let open = extents().filter(|&d| d < 0).count() as i64;
    let rest = outputs[0].dims()[axis] - extents().filter(|&d| d >= 0).sum::<i64>();
    if open > 0 && rest >= 0 && rest % open == 0 {
        for s in inputs.iter_mut().filter(|s| s.dims()[axis] < 0) {
            s.dims_mut()[axis] = rest / open;
        }
    }
    concat_shape(attrs, inputs, outputs)
}

fn concat_forward(call: &Call<'_>) -> Result<Vec<Move>> {
    let out = &call.outputs[0];
    let axis = out.shape().axis(call.attrs.get::<ConcatParam>().dim as i64)?;
    let extents = call.inputs.iter().map(|v| v.dims()[axis]);
    let pieces = pieces(out, axis, extents).into_iter().zip(call.inputs);
    Ok(pieces.map(|(to, from)| Move { from: from.clone(), to, output: 0 }).collect())
}

fn concat_backward(call: &Call<'_>) -> Result<Vec<Move>> {
    let g = &call.inputs[0];
    let axis = g.shape().axis(call.attrs.get::<ConcatParam>().dim as i64)?;
    let extents = call.outputs.iter().map(|v| v.dims()[axis]);
    let pieces = pieces(g, axis, extents).into_iter().zip(call.outputs).enumerate();
    Ok(pieces.map(|(output, (from, to))| Move { from, to: to.clone(), output }).collect())
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

fn stack_forward(call: &Call<'_>) -> Result<Vec<Move>> {
    let out = &call.outputs[0];
    let axis = stack_axis(call.attrs, out.ndim())?;
    let pieces = pieces(out, axis, call.inputs.iter().map(|_| 1)).into_iter().zip(call.inputs);
    Ok(pieces.map(|(to, from)| Move { from: shaped_like(from, &to), to, output: 0 }).collect())
}

fn stack_backward(call: &Call<'_>) -> Result<Vec<Move>> {
    let g = &call.inputs[0];
    let axis = stack_axis(call.attrs, g.ndim())?;
    Ok(apart(pieces(g, axis, call.outputs.iter().map(|_| 1)), call))
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

/// The pieces of an array to the outputs of a call.
fn apart(pieces: Vec<View>, call: &Call<'_>) -> Vec<Move> {
    let each = pieces.into_iter().zip(call.outputs).enumerate();
    each.map(|(output, (from, to))| Move { to: shaped_like(to, &from), from, output }).collect()
}

fn split_forward(call: &Call<'_>) -> Result<Vec<Move>> {
    Ok(apart(split_pieces(call.attrs, &call.inputs[0])?, call))
}

fn split_backward(call: &Call<'_>) -> Result<Vec<Move>> {
    let pieces = split_pieces(call.attrs, &call.outputs[0])?.into_iter().zip(call.inputs);
    Ok(pieces.map(|(to, from)| Move { from: shaped_like(from, &to), to, output: 0 }).collect())
}

fn concat() -> OpDef {
    OpDef::new::<ConcatParam>("Concat")
        .aliases(&["concat", "_sparse_concat"])
        .doc(
            "Joins arrays along an axis.\n\nAll extents but that of `dim` agree, and so do the \
             dtypes; otherwise it is an error. The extent along `dim` is the sum of the \
             inputs'.\n\nExamples\n--------\n>>> nd.Concat(nd.ones((2, 3)), nd.zeros((2, 1)), \
             dim=1)\n[[1. 1. 1. 0.]\n [1. 1. 1. 0.]]\n",
        )
        .expensive()
        .variadic("num_args", "Arrays to join.")
        .infer_shape(concat_shape)
        .infer_type(same_type)
        .gradient(Gradient::declared("_backward_concat", |_, _, _| vec![Dep::OutGrad(0)]))
        .kernels(moving("arg0", concat_forward))
}

fn rnn_param_concat() -> OpDef {
    OpDef::new::<ConcatParam>("_rnn_param_concat")
        .aliases(&["_npi_rnn_param_concat"])
        .doc(
            "Joins the parameters of `RNN`, as `Concat`.\n\nShapes are inferred backwards too: \
             pieces whose extent is unknown share what the others leave of the output, all alike. \
             (Those are the matrices of the first layer, one a direction, before the width of the \
             data is known.)\n\nExamples\n--------\n>>> \
             nd._internal._rnn_param_concat(nd.ones((2,)), nd.zeros((1,)), dim=0)\n[1. 1. 0.]\n",
        )
        .expensive()
        .variadic("num_args", "Arrays to join.")
        .infer_shape(param_concat_shape)
        .infer_type(same_type)
        .gradient(Gradient::declared("_backward_concat", |_, _, _| vec![Dep::OutGrad(0)]))
        .kernels(moving("arg0", concat_forward))
}

fn stack() -> OpDef {
    OpDef::new::<StackParam>("stack")
        .doc(
            "Joins arrays of one shape along a new axis.\n\nShapes and dtypes of the inputs agree; \
             otherwise it is an error.\n\nExamples\n--------\n>>> nd.stack(nd.ones((2,)), \
             nd.zeros((2,)), axis=1)\n[[1. 0.]\n [1. 0.]]\n",
        )
        .variadic("num_args", "Arrays to stack.")
        .infer_shape(stack_shape)
        .infer_type(same_type)
        .gradient(Gradient::declared("_backward_stack", |_, _, _| vec![Dep::OutGrad(0)]))
        .kernels(moving("arg0", stack_forward))
}

fn split() -> OpDef {
    OpDef::new::<SliceChannelParam>("SliceChannel")
        .aliases(&["split"])
        .doc(
            "Splits an array into equal pieces along an axis.\n\n`num_outputs` must divide the \
             extent; with `squeeze_axis` the pieces lose the axis, which must then have extent 1. \
             Any dtype.\n\nExamples\n--------\n>>> nd.SliceChannel(nd.array([[1, 2, 3, 4]]), \
             num_outputs=2, axis=1)[1]\n[[3. 4.]]\n",
        )
        .inputs_are(&[("data", "The input array.")])
        .output_names_by(|attrs| {
            let n = attrs.get::<SliceChannelParam>().num_outputs;
            (0..n).map(|i| format!("output{i}")).collect()
        })
        .infer_shape(split_shape)
        .infer_type(same_type)
        .gradient(Gradient::use_none("_backward_SliceChannel"))
        .kernels(moving("data", split_forward))
}

/// A backward operator over the output gradient.
fn backward<P: crate::operator::ParamStruct>(
    name: &str,
    moves: fn(&Call<'_>) -> Result<Vec<Move>>,
) -> OpDef {
    let kernels = moving("ograd", moves);
    OpDef::new::<P>(name).inputs_are(&[("ograd", "Output gradient.")]).kernels(kernels)
}

pub fn operators() -> Vec<OpDef> {
    vec![
        concat(),
        rnn_param_concat(),
        backward::<ConcatParam>("_backward_concat", concat_backward),
        stack(),
        backward::<StackParam>("_backward_stack", stack_backward),
        split(),
        backward::<SliceChannelParam>("_backward_SliceChannel", split_backward),
    ]
}
