//! `slice`, `slice_axis` and `_slice_assign`: regions of an array.

use super::super::kernel;
use super::super::moves::Move;
use super::{copy_views, moving, region, run_moves};
use crate::error::{Error, Result};
use crate::kernels::copy::fill;
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{Attrs, Call, Gradient, InplacePair, OpDef, Value};
use crate::ops::device::shape as device;
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;

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
        end: Vec<Option<i64>>, required, "Index after the last along each axis; None goes to the \
                                          end.";
        step: Vec<Option<i64>>, default(Vec::new()), "Distance of the indices taken; may be \
                                                      negative, not 0.";
    }
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
    if extent > 0 && (p.begin as i64 >= extent || (p.begin as i64) < -extent || range.2 == 0) {
        let end = p.end.map_or("None".to_owned(), |e| e.to_string());
        return Err(Error::value(format!(
            "slice [{}, {end}) of axis {axis} with extent {extent} is empty or out of range: \
             expected elements of the axis",
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
pub fn region_ranges(p: &SliceParam, shape: &Shape) -> Result<Vec<(i64, i64, i64)>> {
    if p.begin.len() != p.end.len() || p.begin.len() > shape.ndim() || p.step.len() > p.begin.len()
    {
        return Err(Error::value(format!(
            "begin, end and step name {}, {} and {} axes: expected equal numbers of at most {}",
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
                return Err(Error::invalid(&format!("step of axis {i}"), 0, "another number"));
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
pub fn taken(whole: &View, ranges: &[(i64, i64, i64)]) -> View {
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
        .kernels(moving("data", move |call| {
            let ranges = ranges(call.attrs, call.inputs[0].shape())?;
            let (from, to) = (taken(&call.inputs[0], &ranges), call.outputs[0].clone());
            Ok(vec![Move { from, to, output: 0 }])
        }));
    let back_moves = move |call: &Call<'_>| {
        let out = &call.outputs[0];
        let ranges = ranges(call.attrs, out.shape())?;
        Ok(vec![Move { from: call.inputs[0].clone(), to: taken(out, &ranges), output: 0 }])
    };
    let backward = OpDef::new::<P>(&back)
        .inputs_are(&[("ograd", "Output gradient.")])
        .kernel(kernel(move |call| {
            fill(&call.outputs[0], 0.0);
            run_moves(call, back_moves(call)?)
        }))
        .kernels([device::moving("ograd", true, back_moves)]);
    [forward, backward]
}

fn slice_assign() -> OpDef {
    OpDef::new::<SliceParam>("_slice_assign")
        .aliases(&["_crop_assign", "_npi_slice_assign"])
        .doc(
            "Returns lhs with the region that `slice` would take replaced by rhs.\n\nExamples\n\
             --------\n>>> nd._internal._slice_assign(nd.ones((4,)), nd.zeros((2,)), begin=(1,), \
             end=(3,))\n[1. 0. 0. 1.]\n",
        )
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
        .inplace(&[InplacePair::new(0, 0)])
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
        }))
        .kernels([device::moving("lhs", false, |call| {
            let (lhs, out) = (&call.inputs[0], &call.outputs[0]);
            let part = taken(out, &slice_ranges(call.attrs, out.shape())?);
            let whole = Move { from: lhs.clone(), to: out.clone(), output: 0 };
            Ok(vec![whole, Move { from: call.inputs[1].clone(), to: part, output: 0 }])
        })
        .only_writes()])
}

pub fn operators() -> Vec<OpDef> {
    let [slice_axis, slice_axis_back] = slicing::<SliceAxisParam>("slice_axis", slice_axis_ranges);
    let slice_axis = slice_axis.doc(
        "Takes the indices `begin` to `end` (without it) of one axis.\n\nNegative indices count \
         from the end. A slice that is empty or begins outside of the axis is an error. Any dtype. \
         The gradient of what is left out is 0.\n\nExamples\n--------\n>>> \
         nd.slice_axis(nd.array([[1, 2, 3, 4]]), axis=1, begin=1, end=-1)\n[[2. 3.]]\n",
    );
    let [slice, slice_back] = slicing::<SliceParam>("slice", slice_ranges);
    let slice = slice.aliases(&["crop", "_npi_slice", "_npx_slice", "_sparse_slice"]).doc(
        "Takes a region: along each axis the indices from `begin` to `end` (without it) in steps \
         of `step`.\n\nIndices are as in Python: negative ones count from the end, they are \
         clipped to the axis, None means all. Axes that are not named are taken whole. Any \
         dtype.\n\nExamples\n--------\n>>> nd.slice(nd.array([[1, 2, 3], [4, 5, 6]]), begin=(1, \
         None), end=(2, None), step=(1, -2))\n[[6. 4.]]\n",
    );
    vec![slice_axis, slice_axis_back, slice, slice_back, slice_assign()]
}
