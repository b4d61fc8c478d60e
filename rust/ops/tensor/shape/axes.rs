//! `transpose` and `SwapAxis`: another order of the axes.

use super::super::moves::Move;
use super::super::parts::moving;
use super::both_ways;
use crate::error::{Error, Result};
use crate::operator::infer::same_type;
use crate::operator::{Attrs, Call, Gradient, OpDef, ParamStruct, Tuple};
use crate::params;
use crate::shape::{Dims, Numbers, Shape};
use crate::tensor::View;

params! {
    /// Parameters of `transpose`.
    pub struct TransposeParam {
        axes: Tuple, default(Tuple::new()), "The input's axes in their new order; empty reverses \
                                             them.";
    }
}

params! {
    /// Parameters of `SwapAxis`.
    pub struct SwapAxisParam {
        dim1: i32, default(0), "The first axis.";
        dim2: i32, default(0), "The second axis.";
    }
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

/// Copies the input of a call with its axes in another order.
fn permute(call: &Call<'_>, order: &[usize]) -> Vec<Move> {
    let (from, to) = (&call.inputs[0], call.outputs[0].clone());
    let strides: Dims = order.iter().map(|&a| from.strides()[a]).collect();
    // SAFETY: the same elements in another order.
    let from = unsafe { View::with_strides(from.ptr(), to.shape().clone(), strides, from.dtype()) };
    vec![Move { from, to, output: 0 }]
}

fn swap_order(attrs: &Attrs, of: &Shape) -> Result<Vec<usize>> {
    let p = attrs.get::<SwapAxisParam>();
    let (a, b) = (of.axis(p.dim1 as i64)?, of.axis(p.dim2 as i64)?);
    let mut order: Vec<usize> = (0..of.ndim()).collect();
    order.swap(a, b);
    Ok(order)
}

/// An operator that reorders axes, and its gradient, which reorders them back.
pub(in crate::ops) fn reorders<P: ParamStruct>(
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
        .kernels(moving("data", move |call| {
            Ok(permute(call, &order(call.attrs, call.inputs[0].shape())?))
        }));
    let backward =
        OpDef::new::<P>(&back)
            .inputs_are(&[("ograd", "Output gradient.")])
            .kernels(moving("ograd", move |call| {
                Ok(permute(call, &undone(call.attrs, call.inputs[0].shape())?))
            }));
    [forward, backward]
}

pub fn operators() -> Vec<OpDef> {
    let [transpose, transpose_back] = reorders::<TransposeParam>("transpose", |attrs, of| {
        permutation(&attrs.get::<TransposeParam>().axes, of.ndim())
    });
    let transpose = transpose.doc(
        "Reorders the axes: axis i of the output is axis `axes[i]` of the input. Any dtype; `axes` \
         that is no permutation is an error.\n\nExamples\n--------\n>>> nd.transpose(nd.ones((2, \
         3, 4)), axes=(1, 0, 2)).shape\n(3, 2, 4)\n",
    );
    let [swap, swap_back] = reorders::<SwapAxisParam>("SwapAxis", swap_order);
    let swap = swap.aliases(&["swapaxes", "_npi_swapaxes"]).doc(
        "Exchanges two axes. Any dtype; an axis out of range is an error.\n\nExamples\n--------\n\
         >>> nd.SwapAxis(nd.ones((2, 3, 4)), dim1=0, dim2=2).shape\n(4, 3, 2)\n",
    );
    vec![transpose, transpose_back, swap, swap_back]
}
