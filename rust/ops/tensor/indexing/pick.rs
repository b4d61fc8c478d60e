//! One element of each line along an axis: `pick`, and `batch_take` as its form for matrices.

use super::super::common::{all_known, at_least_1d, first_type, wanted, zero_view};
use super::super::kernel;
use super::{copy_run, index_at, position, text};
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, GradBuilder, GradNode, Gradient, OpDef};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params};

param_enum! {
    /// What happens to indices outside of the axis.
    pub enum PickMode { Clip = "clip", Wrap = "wrap" }
}

params! {
    /// Parameters of `pick`.
    pub struct PickParam {
        axis: Option<i32>, default(Some(-1)), "The axis that the indices count along; None picks \
                                               from the flattened array.";
        keepdims: bool, default(false), "Keep the axis with extent 1.";
        mode: PickMode, default(PickMode::Clip), "Indices outside: the nearest, or counted around.";
    }
}

/// Outer count, extent and inner count around the picked axis.
pub(in crate::ops) fn pick_lines(
    p: &PickParam,
    data: &Shape,
) -> Result<(usize, i64, usize, Option<usize>)> {
    Ok(match p.axis {
        None => (1, data.size() as i64, 1, None),
        Some(a) => {
            let axis = data.axis(a.into())?;
            (
                data.product(0..axis),
                data.dims()[axis],
                data.product(axis + 1..data.ndim()),
                Some(axis),
            )
        }
    })
}

/// Element of the data for each output, in order.
fn picked(p: &PickParam, data: &Shape, index: &View) -> Result<Vec<usize>> {
    let (outer, extent, inner, _) = pick_lines(p, data)?;
    if extent == 0 {
        return Ok(vec![]);
    }
    Ok((0..(outer * inner).min(index.size()))
        .map(|i| {
            let at = position(index_at(index, i), extent, p.mode == PickMode::Wrap) as usize;
            (i / inner * extent as usize + at) * inner + i % inner
        })
        .collect())
}

fn pick_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p: &PickParam = attrs.get();
    if !inputs[0].rank_known() {
        return Ok(false);
    }
    let data = inputs[0].clone();
    let axis = p.axis.map(|a| data.axis(a.into())).transpose()?;
    let dims = data.dims().iter().enumerate();
    let kept: Shape =
        dims.clone().map(|(i, &d)| if axis.is_none_or(|a| a == i) { 1 } else { d }).collect();
    let dropped: Shape =
        dims.filter(|(i, _)| axis.is_some_and(|a| a != *i)).map(|(_, &d)| d).collect();
    let dropped = at_least_1d(dropped);
    let index_keeps =
        inputs[1].rank_known() && inputs[1].ndim() == kept.ndim() && kept.ndim() != dropped.ndim();
    assign_shape(&mut inputs[1], "index", if index_keeps { &kept } else { &dropped })?;
    assign_shape(&mut outputs[0], "output", if p.keepdims { &kept } else { &dropped })?;
    Ok(all_known(inputs, outputs))
}

/// Copies the picked elements of input 0 to output 0.
fn pick_forward(p: &PickParam, call: &Call<'_>) -> Result<()> {
    let (x, out) = (&call.inputs[0], &call.outputs[0]);
    for (i, at) in picked(p, x.shape(), &call.inputs[1])?.into_iter().enumerate() {
        copy_run(x, at, out, i, 1);
    }
    Ok(())
}

/// The output gradient at the picked elements, of which each line has one; indices get zero.
fn pick_backward(p: &PickParam, call: &Call<'_>) -> Result<()> {
    let (g, dx) = (&call.inputs[0], &call.outputs[0]);
    if wanted(call, 1) {
        zero_view(&call.outputs[1]);
    }
    if wanted(call, 0) {
        zero_view(dx);
        for (i, at) in picked(p, dx.shape(), &call.inputs[1])?.into_iter().enumerate() {
            copy_run(g, i, dx, at, 1);
        }
    }
    Ok(())
}

fn pick() -> [OpDef; 2] {
    let doc = text(
        "One element of each line along an axis: the one at ``index``.",
        "``index`` has the data's shape without the axis (or with extent 1 there), any dtype; \
         fractions are dropped. It gets a zero gradient.",
        "nd.pick(nd.array([[1, 2], [3, 4]]), nd.array([0, 1]))\n[1. 4.]",
    );
    let forward = OpDef::new::<PickParam>("pick")
        .aliases(&["_npx_pick", "choose_element_0index"])
        .doc(&doc)
        .inputs_are(&[("data", "The data."), ("index", "Which element of each line.")])
        .infer_shape(pick_shape)
        .infer_type(first_type)
        .gradient(Gradient::declared("_backward_pick", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(1)]
        }))
        .kernel(kernel(|call| pick_forward(call.attrs.get(), call)));
    let backward = OpDef::new::<PickParam>("_backward_pick")
        .kernel(kernel(|call| pick_backward(call.attrs.get(), call)));
    [forward, backward]
}

/// `batch_take` as `pick`.
pub(in crate::ops) const ROWS: PickParam =
    PickParam { axis: Some(1), keepdims: false, mode: PickMode::Clip };

fn batch_take() -> [OpDef; 2] {
    let doc = text(
        "One element of each row of a matrix.",
        "As ``pick`` along axis 1. The indices get a zero gradient.",
        "nd.batch_take(nd.array([[1, 2], [3, 4]]), nd.array([0, 1], dtype='int32'))\n[1. 4.]",
    );
    let forward = OpDef::plain("batch_take")
        .doc(&doc)
        .inputs_are(&[("a", "The matrix."), ("indices", "Which element of each row.")])
        .infer_shape(|_, inputs, outputs| {
            let rows = inputs[0].dims().first().copied().unwrap_or(-1);
            assign_shape(&mut inputs[1], "indices", &Shape::new(&[rows]))?;
            let rows = inputs[1].clone();
            assign_shape(&mut outputs[0], "output", &rows)?;
            Ok(all_known(inputs, outputs))
        })
        .infer_type(|attrs, inputs, outputs| {
            inputs[1].get_or_insert(DType::I32);
            first_type(attrs, inputs, outputs)
        })
        .gradient(Gradient::rule(|builder: &mut dyn GradBuilder, node: &GradNode<'_>| {
            let grad = node.out_grad(builder, 0)?;
            let grads = builder.backward("_backward_batch_take", &[grad, node.inputs[1]])?;
            Ok(grads.into_iter().map(Some).collect())
        }))
        .kernel(kernel(|call| pick_forward(&ROWS, call)));
    let backward =
        OpDef::plain("_backward_batch_take").kernel(kernel(|call| pick_backward(&ROWS, call)));
    [forward, backward]
}

pub fn operators() -> Vec<OpDef> {
    [pick(), batch_take()].concat()
}
