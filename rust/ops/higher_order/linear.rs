//! Gradients of backward operators that are linear in the output gradient.
//!
//! If `y = F(x)` is linear, the backward operator is its transpose, whose own gradient is `F`
//! again, run on the gradients that arrive: `<u, F'(g)> = <F(u), g>`. For a product `y = F(a, b)`,
//! linear in each factor, the backward operator maps `(g, a, b)` to the gradients of both factors,
//! and with `u`, `v` arriving at those
//! - `g` gets `F(u, b) + F(a, v)`,
//! - the gradient of `a` is the one that the backward operator computes for `a` from `(g, a, v)`,
//! - the gradient of `b` is the one that it computes for `b` from `(g, u, b)`.

use crate::error::Result;
use crate::operator::{GradBuilder, GradEntry, GradNode, Gradient, Gradients, Value};

/// An argument of the forward operator.
#[derive(Clone, Copy)]
enum Arg {
    /// The gradient that arrives at output `i` of the backward operator.
    Grad(usize),
    /// Those of all outputs.
    AllGrads,
    /// Input `i` of the backward operator.
    Input(usize),
    /// All its inputs from `i` on.
    InputsFrom(usize),
}

use Arg::{AllGrads, Grad, Input, InputsFrom};

/// Backward operator, forward operator and its arguments. The backward operator's first inputs are
/// the output gradients, as many as the forward operator has outputs.
#[rustfmt::skip]
const LINEAR: &[(&str, &str, &[Arg])] = &[
    ("_backward_sum", "sum", &[Grad(0)]),
    ("_backward_mean", "mean", &[Grad(0)]),
    ("_backward_transpose", "transpose", &[Grad(0)]),
    ("_backward_swapaxis", "SwapAxis", &[Grad(0)]),
    ("_backward_slice", "slice", &[Grad(0)]),
    ("_backward_slice_axis", "slice_axis", &[Grad(0)]),
    ("_backward_slice_like", "slice_like", &[Grad(0), Input(0)]),
    ("_backward_broadcast_to", "broadcast_to", &[Grad(0)]),
    ("_backward_broadcast_axis", "broadcast_axis", &[Grad(0)]),
    ("_backward_tile", "tile", &[Grad(0)]),
    ("_backward_repeat", "repeat", &[Grad(0)]),
    ("_backward_sort", "_sort_as", &[Grad(0), Input(1)]),
    ("_backward_np_cumsum", "_np_cumsum", &[Grad(0)]),
    ("_backward_contrib_AdaptiveAvgPooling2D", "_contrib_AdaptiveAvgPooling2D", &[Grad(0)]),
    ("_backward_reverse", "reverse", &[Grad(0)]),
    ("_backward_depth_to_space", "depth_to_space", &[Grad(0)]),
    ("_backward_space_to_depth", "space_to_depth", &[Grad(0)]),
    ("_backward_diag", "diag", &[Grad(0)]),
    ("_backward_Pad", "Pad", &[Grad(0)]),
    ("_backward_concat", "Concat", &[AllGrads]),
    ("_backward_stack", "stack", &[AllGrads]),
    ("_backward_SliceChannel", "SliceChannel", &[Grad(0)]),
    ("_backward_split_v2", "_split_v2", &[Grad(0)]),
    ("_backward_take", "take", &[Grad(0), Input(1)]),
    ("_backward_pick", "pick", &[Grad(0), Input(1)]),
    ("_backward_batch_take", "batch_take", &[Grad(0), Input(1)]),
    ("_backward_gather_nd_grad", "gather_nd", &[Grad(0), Input(1)]),
    ("_backward_Embedding", "Embedding", &[Input(1), Grad(1)]),
    ("_backward_im2col", "im2col", &[Grad(0)]),
    ("_backward_col2im", "col2im", &[Grad(0)]),
    ("_backward_contrib_index_copy", "_contrib_index_copy", &[Grad(0), Input(2), Grad(2)]),
    ("_backward_where", "where", &[Input(1), Grad(1), Grad(2)]),
    ("_backward_SequenceMask", "SequenceMask", &[Grad(0), InputsFrom(1)]),
    ("_backward_SequenceLast", "SequenceLast", &[Grad(0), InputsFrom(1)]),
    ("_backward_SequenceReverse", "SequenceReverse", &[Grad(0), InputsFrom(1)]),
];

/// Backward operators over `(g, a, b)` of products; the last of three outputs is an added bias.
const PRODUCTS: &[(&str, &str)] = &[
    ("_backward_dot", "dot"),
    ("_backward_batch_dot", "batch_dot"),
    ("_backward_FullyConnected", "FullyConnected"),
    ("_backward_Convolution", "Convolution"),
    ("_backward_Deconvolution", "Deconvolution"),
    ("_backward_interleaved_matmul_encdec_qk", "_contrib_interleaved_matmul_encdec_qk"),
    ("_backward_interleaved_matmul_encdec_valatt", "_contrib_interleaved_matmul_encdec_valatt"),
    ("_backward_interleaved_matmul_selfatt_valatt", "_contrib_interleaved_matmul_selfatt_valatt"),
];

/// The gradient of the backward operator `name`, if a table has it.
pub fn gradient(name: &str) -> Option<Gradient> {
    if ["_backward_copy", "_backward_reshape_like"].contains(&name) {
        // The same elements in another shape: back to the shape of the output gradient.
        return Some(Gradient::rule(|b, node| {
            let g = node.out_grad(b, 0)?;
            let mut grads: Gradients = vec![None; node.inputs.len()];
            grads[0] = Some(b.op("reshape_like", "", &[], &[g, node.inputs[0]])?[0]);
            Ok(grads)
        }));
    }
    if ["_backward_cast", "_backward_amp_cast"].contains(&name) {
        return Some(Gradient::rule(|b, node| {
            let g = node.out_grad(b, 0)?;
            Ok(vec![Some(b.op("Cast", "", &params(node), &[g])?[0])])
        }));
    }
    if name == "_backward_broadcast_like" {
        return Some(Gradient::rule(|b, node| {
            let g = node.out_grad(b, 0)?;
            Ok(vec![Some(b.op("broadcast_like", "", &[], &[g, node.inputs[0]])?[0])])
        }));
    }
    if name == "_backward_Dropout" {
        // The product with the mask is its own transpose.
        return Some(Gradient::rule(|b, node| {
            let g = node.out_grad(b, 0)?;
            Ok(vec![Some(b.rerun(&[g, node.inputs[1]])?[0]), None])
        }));
    }
    if ["_backward_Pooling", "_backward_Pooling_v1"].contains(&name) {
        return Some(Gradient::rule(pooling));
    }
    if name == "_backward_contrib_BilinearResize2D" {
        return Some(Gradient::rule(|b, node| {
            // The output gradient has the extents that `like` gives.
            let like = node.attrs.value("mode").is_some_and(|mode| mode.to_string() == "like");
            let args: &[Arg] = if like { &[Grad(0), Input(0)] } else { &[Grad(0)] };
            transpose(b, node, "_contrib_BilinearResize2D", args)
        }));
    }
    if name == "_backward_Crop" {
        return Some(Gradient::rule(|b, node| {
            // The output gradient has the extents that a second input gives.
            let args: &[Arg] =
                if node.outputs.len() > 1 { &[Grad(0), Input(0)] } else { &[Grad(0)] };
            transpose(b, node, "Crop", args)
        }));
    }
    if name == "_backward_GridGenerator" {
        return Some(Gradient::rule(|b, node| {
            if node.attrs.value("transform_type").is_some_and(|t| t.to_string() == "affine") {
                return transpose(b, node, "GridGenerator", &[Grad(0)]);
            }
            // Of a flow the gradient is a multiple for each element, its own transpose.
            let u = node.out_grad(b, 0)?;
            Ok(vec![Some(b.rerun(&[u])?[0])])
        }));
    }
    if name == "_backward_topk" {
        return Some(Gradient::rule(top));
    }
    if name == "_backward_khatri_rao" {
        return Some(Gradient::rule(columns));
    }
    if name == "_backward_interleaved_matmul_selfatt_qk" {
        return Some(Gradient::rule(self_attention));
    }
    if name == "_backward_UpSampling" {
        return Some(Gradient::rule(|b, node| {
            match node.attrs.value("sample_type").map(Value::to_string).as_deref() {
                Some("bilinear") => product(b, node, "UpSampling"),
                _ => transpose(b, node, "UpSampling", &[AllGrads]),
            }
        }));
    }
    if name == "_backward_make_loss" {
        return Some(Gradient::Zero);
    }
    if let Some(&(_, forward, args)) = LINEAR.iter().find(|row| row.0 == name) {
        return Some(Gradient::rule(move |b, node| transpose(b, node, forward, args)));
    }
    let &(_, forward) = PRODUCTS.iter().find(|row| row.0 == name)?;
    Some(Gradient::rule(move |b, node| product(b, node, forward)))
}

/// The parameters of the node, to run another operator with them.
fn params<'a>(node: &GradNode<'a>) -> Vec<(&'a str, Value)> {
    node.attrs.given().iter().map(|(k, v)| (k.as_str(), v.clone())).collect()
}

fn transpose(
    b: &mut dyn GradBuilder,
    node: &GradNode<'_>,
    forward: &str,
    args: &[Arg],
) -> Result<Gradients> {
    let mut inputs = Vec::new();
    for arg in args {
        match *arg {
            Grad(i) => inputs.push(node.out_grad(b, i)?),
            AllGrads => {
                for i in 0..node.outputs.len() {
                    inputs.push(node.out_grad(b, i)?);
                }
            }
            Input(i) => inputs.push(node.inputs[i]),
            InputsFrom(i) => inputs.extend(&node.inputs[i..]),
        }
    }
    let mut grads: Gradients = vec![None; node.inputs.len()];
    for (grad, made) in grads.iter_mut().zip(b.op(forward, "", &params(node), &inputs)?) {
        *grad = Some(made);
    }
    Ok(grads)
}

/// Which elements are the maxima depends on the data alone, so the operator is linear in the rest.
fn pooling(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let g = node.out_grad(b, 0)?;
    let kind = node.attrs.value("pool_type").map(Value::to_string).unwrap_or_default();
    let of_g = match kind.as_str() {
        "max" => b.op("_pooling_at_max", "", &params(node), &[g, node.inputs[1]])?,
        "lp" => return Gradient::None.apply(b, node),
        _ => b.op("Pooling", "", &params(node), &[g])?,
    };
    Ok(vec![Some(of_g[0]), None, None])
}

/// Which elements are the first depends on the data alone: what arrives is arranged in their order,
/// and cut behind the first.
fn top(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let (g, x) = (node.inputs[0], node.inputs[1]);
    let kind = node.attrs.value("ret_typ").map(Value::to_string).unwrap_or_default();
    if !matches!(kind.as_str(), "value" | "both") {
        return Ok(vec![None, None]);
    }
    let u = node.out_grad(b, 0)?;
    let axis = node.attrs.value("axis").cloned().unwrap_or(Value::Int(-1));
    let ascending = node.attrs.value("is_ascend").cloned().unwrap_or(Value::Bool(false));
    let order = [("axis", axis.clone()), ("is_ascend", ascending)];
    let sorted = b.op("_sort_as", "", &order, &[u, x])?[0];
    // Without an axis the sorted elements have one.
    let axis = if matches!(axis, Value::Int(_)) { axis } else { Value::Int(0) };
    let axes = [("axes", Value::List(vec![axis]))];
    Ok(vec![Some(b.op("slice_like", "", &axes, &[sorted, g])?[0]), None])
}

/// A product of all matrices, linear in each: as in [`product`], with what arrives in the place of
/// one matrix after the other.
fn columns(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let mut grads: Gradients = vec![None; node.inputs.len()];
    for (i, u) in node.out_grads.iter().enumerate() {
        let Some(u) = *u else { continue };
        let mut inputs = node.inputs.to_vec();
        inputs[i + 1] = u;
        let of_g = b.op("khatri_rao", "", &params(node), &inputs[1..])?[0];
        add(b, &mut grads[0], of_g)?;
        for (j, of_other) in b.rerun(&inputs)?.into_iter().enumerate().filter(|(j, _)| *j != i) {
            add(b, &mut grads[j + 1], of_other)?;
        }
    }
    Ok(grads)
}

fn add(b: &mut dyn GradBuilder, sum: &mut Option<GradEntry>, part: GradEntry) -> Result<()> {
    *sum = Some(match *sum {
        Some(before) => b.op("elemwise_add", "", &[], &[before, part])?[0],
        None => part,
    });
    Ok(())
}

/// The scores of self-attention are a product `q(x) k(x)'` of two parts of their input. With `u`
/// arriving at the gradient of `x`, the output gradient gets `q(u) k(x)' + q(x) k(u)'`, and `x`
/// gets the gradient of the operator at `u`, as products are symmetric.
fn self_attention(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let ints = |items: &[i64]| Value::List(items.iter().map(|&i| Value::Int(i)).collect());
    let heads = match node.attrs.value("heads") {
        Some(Value::Int(heads)) => *heads,
        _ => return Gradient::None.apply(b, node),
    };
    let ([g, x], u) = ([node.inputs[0], node.inputs[1]], node.out_grad(b, 0)?);
    let mut parts = |e: GradEntry| {
        let apart = b.op("reshape", "", &[("shape", ints(&[0, 0, heads, 3, -1]))], &[e])?[0];
        let each = [("num_outputs", Value::Int(3)), ("axis", Value::Int(3))];
        b.op("SliceChannel", "", &each, &[apart])
    };
    let (of_u, of_x) = (parts(u)?, parts(x)?);
    let mut scores = |queries: GradEntry, keys: GradEntry| -> Result<GradEntry> {
        let together = b.op("Concat", "", &[("dim", Value::Int(3))], &[queries, keys, of_x[2]])?[0];
        let flat = b.op("reshape", "", &[("shape", ints(&[0, 0, -1]))], &[together])?[0];
        Ok(b.op("_contrib_interleaved_matmul_selfatt_qk", "", &params(node), &[flat])?[0])
    };
    let sides = [scores(of_u[0], of_x[1])?, scores(of_x[0], of_u[1])?];
    let of_g = b.op("elemwise_add", "", &[], &sides)?[0];
    Ok(vec![Some(of_g), Some(b.rerun(&[g, u])?[0])])
}

fn product(b: &mut dyn GradBuilder, node: &GradNode<'_>, forward: &str) -> Result<Gradients> {
    let [g, x, w] = [node.inputs[0], node.inputs[1], node.inputs[2]];
    let [to_x, to_w] = [node.out_grads[0], node.out_grads[1]];
    let bias = node.out_grads.get(2).copied().flatten();
    let has_bias = node.out_grads.len() > 2;
    let mut of_g = None;
    let mut run = |b: &mut dyn GradBuilder, x, w, bias: Option<GradEntry>| -> Result<()> {
        let mut given = params(node);
        let mut inputs = vec![x, w];
        inputs.extend(bias);
        if has_bias && bias.is_none() {
            given.retain(|p| p.0 != "no_bias");
            given.push(("no_bias", true.into()));
        }
        let part = b.op(forward, "", &given, &inputs)?[0];
        add(b, &mut of_g, part)
    };
    if to_x.is_some() || bias.is_some() {
        let u = node.out_grad(b, 0)?;
        run(b, u, w, bias)?;
    }
    if let Some(v) = to_w {
        run(b, x, v, None)?;
    }
    let of_x = match to_w {
        Some(v) => Some(b.rerun(&[g, x, v])?[0]),
        None => None,
    };
    let of_w = match to_x {
        Some(u) => Some(b.rerun(&[g, u, w])?[1]),
        None => None,
    };
    Ok(vec![of_g, of_x, of_w])
}
