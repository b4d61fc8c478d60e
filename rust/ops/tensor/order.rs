//! Ordering along an axis: `sort`, `argsort`, `topk`. Equal elements keep their order; NaN counts
//! as the largest.

use super::common::{all_known, from_first, wanted, write_f64, zero_view};
use super::kernel;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::leading::{FEW, in_order, leading};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, assign_type, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, Kernel, OpDef};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_dtype};
use std::cmp::Ordering;

param_enum! {
    /// The kind of result of `topk`.
    pub enum RetTyp { Both = "both", Indices = "indices", Mask = "mask", Value = "value" }
}

params! {
    /// Parameters of `sort`.
    pub struct SortParam {
        axis: Option<i32>, default(Some(-1)), "The axis; None sorts the flattened array.";
        is_ascend: bool, default(true), "Smallest first?";
    }
}

params! {
    /// Parameters of `argsort`.
    pub struct ArgsortParam {
        axis: Option<i32>, default(Some(-1)), "The axis; None sorts the flattened array.";
        is_ascend: bool, default(true), "Smallest first?";
        dtype: DType, default(DType::F32), "Dtype of the indices.";
    }
}

params! {
    /// Parameters of `topk`.
    pub struct TopkParam {
        axis: Option<i32>, default(Some(-1)), "The axis; None takes the flattened array.";
        k: i32, default(1), "How many elements; less than 1 for all.";
        ret_typ: RetTyp, default(RetTyp::Indices), "Give indices, values, both, or a mask of ones \
                                                    and zeros.";
        is_ascend: bool, default(false), "The smallest instead of the largest?";
        dtype: DType, default(DType::F32), "Dtype of the indices.";
    }
}

/// Outer count, extent, inner count.
pub type Lines = (usize, usize, usize);

pub fn lines(shape: &Shape, axis: Option<i32>) -> Result<Lines> {
    Ok(match axis {
        None => (1, shape.size(), 1),
        Some(a) => {
            let at = shape.axis(a.into())?;
            (shape.product(0..at), shape.dims()[at] as usize, shape.product(at + 1..shape.ndim()))
        }
    })
}

/// The first `count` of the places `0..len` in the order of `compare`; equal ones keep theirs.
fn first_places(
    len: usize,
    count: usize,
    compare: impl Fn(usize, usize) -> Ordering,
) -> Vec<usize> {
    let mut all = (0..len).collect::<Vec<usize>>();
    if 2 * count >= len {
        all.sort_by(|&i, &j| compare(i, j));
        all.truncate(count);
    } else {
        let by_place = |i: &usize, j: &usize| compare(*i, *j).then(i.cmp(j));
        all.select_nth_unstable_by(count, by_place);
        all.truncate(count);
        all.sort_unstable_by(by_place);
    }
    all
}

/// Calls `f(line, order of its elements)` for every line, side by side; with the first `count` of
/// that order.
fn for_orders(
    x: &View,
    (outer, len, inner): Lines,
    count: usize,
    ascend: bool,
    f: impl Fn(usize, &[usize]) + Send + Sync,
) {
    with_dtype!(x.dtype(), T => {
        let from = Shared(x.as_ptr::<T>());
        parallel_for(outer * inner, (1usize << 12).div_ceil(len.max(1)), |range| {
            for line in range {
                let start = line / inner * len * inner + line % inner;
                // Of more than half of a line, sorting all of it is not much more.
                if count <= FEW.min(len / 2) {
                    let mut order = [0; FEW];
                    // SAFETY: lines lie inside of the input.
                    unsafe { leading(from.at(start), len, inner, ascend, count, &mut order) };
                    f(line, &order[..count]);
                    continue;
                }
                // SAFETY: as above.
                let at = |i: usize| unsafe { *from.at(start + i * inner) };
                f(line, &first_places(len, count, |i, j| in_order(at(i), at(j), ascend)));
            }
        });
    });
}

/// Where element `i` of line `line` stands among lines of `len`.
fn spot(line: usize, i: usize, len: usize, inner: usize) -> usize {
    (line / inner * len + i) * inner + line % inner
}

/// Copies one element.
fn put(from: &Shared<u8>, at: usize, to: &Shared<u8>, to_at: usize, size: usize) {
    // SAFETY: the callers name elements inside of both arrays, which do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from.at(at * size), to.at(to_at * size), size) };
}

fn text(what: &str, notes: &str, example: &str) -> String {
    format!(
        "{what}\n\nNotes\n-----\nEqual elements keep their order; NaN counts as the largest. Any \
         dtype. {notes}\n\nExamples\n--------\n>>> {example}\n"
    )
}

/// The shape of ordered output: the data's, or flat without an axis.
fn whole_shape(s: &Shape, axis: Option<i32>) -> Result<Shape> {
    match axis {
        None => Ok(Shape::from([s.size()].map(|n| n as i64))),
        Some(a) => s.axis(a.into()).map(|_| s.clone()),
    }
}

/// Arranges the first input in the order of the last one, which may be itself.
fn sort_kernel(call: &Call<'_>) -> Result<()> {
    let (values, x) = (&call.inputs[0], &call.inputs[call.inputs.len() - 1]);
    let (out, p) = (&call.outputs[0], call.attrs.get::<SortParam>());
    let lines = lines(x.shape(), p.axis)?;
    let (from, to, size) = (Shared(values.ptr()), Shared(out.ptr()), x.dtype().size());
    for_orders(x, lines, lines.1, p.is_ascend, |line, order| {
        for (i, &j) in order.iter().enumerate() {
            put(&from, spot(line, j, lines.1, lines.2), &to, spot(line, i, lines.1, lines.2), size);
        }
    });
    Ok(())
}

fn sort_backward(call: &Call<'_>) -> Result<()> {
    let ([g, x], dx, p) =
        ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0], call.attrs.get::<SortParam>());
    let lines = lines(x.shape(), p.axis)?;
    let (from, to, size) = (Shared(g.ptr()), Shared(dx.ptr()), x.dtype().size());
    for_orders(x, lines, lines.1, p.is_ascend, |line, order| {
        for (i, &j) in order.iter().enumerate() {
            put(&from, spot(line, i, lines.1, lines.2), &to, spot(line, j, lines.1, lines.2), size);
        }
    });
    Ok(())
}

/// What the second derivative of `sort` needs.
fn sort_as() -> OpDef {
    OpDef::new::<SortParam>("_sort_as")
        .doc(&text(
            "Arranges values in the order that sorts an array of the same shape.",
            "It has no gradient.",
            "nd._internal._sort_as(nd.array([30, 10, 20]), nd.array([3, 1, 2]))\n[10. 20. 30.]",
        ))
        .inputs_are(&[("values", "What is arranged."), ("data", "What the order is of.")])
        .infer_shape(|attrs, inputs, outputs| {
            let known = inputs[0].clone();
            assign_shape(&mut inputs[1], "data", &known)?;
            from_first(inputs, outputs, |s| whole_shape(s, attrs.get::<SortParam>().axis))
        })
        .infer_type(same_type)
        .gradient(Gradient::None)
        .kernel(kernel(sort_kernel))
}

fn sorts() -> Vec<OpDef> {
    let sort = text(
        "Sorts along an axis.",
        "The gradient goes to where each element came from.",
        "nd.sort(nd.array([3, 1, 2]))\n[1. 2. 3.]",
    );
    let argsort = text(
        "The indices that sort along an axis.",
        "The gradient is zero.",
        "nd.argsort(nd.array([3, 1, 2]))\n[1. 2. 0.]",
    );
    let index_type =
        |attrs: &Attrs, inputs: &mut [Option<DType>], outputs: &mut [Option<DType>]| {
            assign_type(&mut outputs[0], "output", attrs.get::<ArgsortParam>().dtype)?;
            Ok(inputs[0].is_some())
        };
    vec![
        OpDef::new::<SortParam>("sort")
            .aliases(&["_npi_sort"])
            .doc(&sort)
            .outputs_are(&["output0"])
            .inputs_are(&[("data", "The input array.")])
            .infer_shape(|attrs, inputs, outputs| {
                from_first(inputs, outputs, |s| whole_shape(s, attrs.get::<SortParam>().axis))
            })
            .infer_type(same_type)
            .gradient(Gradient::declared("_backward_sort", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(0)]
            }))
            .kernel(kernel(sort_kernel)),
        OpDef::new::<SortParam>("_backward_sort").kernel(kernel(sort_backward)),
        sort_as(),
        OpDef::new::<ArgsortParam>("argsort")
            .aliases(&["_npi_argsort"])
            .doc(&argsort)
            .inputs_are(&[("data", "The input array.")])
            .infer_shape(|attrs, inputs, outputs| {
                from_first(inputs, outputs, |s| whole_shape(s, attrs.get::<ArgsortParam>().axis))
            })
            .infer_type(index_type)
            .gradient(Gradient::Zero)
            .kernel(kernel(|call| {
                let (x, out, p) =
                    (&call.inputs[0], &call.outputs[0], call.attrs.get::<ArgsortParam>());
                let lines = lines(x.shape(), p.axis)?;
                let (to, dtype) = (Shared(out.ptr()), out.dtype());
                for_orders(x, lines, lines.1, p.is_ascend, |line, order| {
                    for (i, &j) in order.iter().enumerate() {
                        // SAFETY: places of this line in the output.
                        unsafe {
                            write_f64(to.at(0), dtype, spot(line, i, lines.1, lines.2), j as f64)
                        };
                    }
                });
                Ok(())
            })),
    ]
}

/// The number of elements selected from each line.
pub fn top_count(p: &TopkParam, len: usize) -> Result<usize> {
    let k = if p.k < 1 { len } else { p.k as usize };
    if k > len {
        return Err(Error::invalid("k", k, format!("at most {len}, the elements of a line")));
    }
    Ok(k)
}

fn top_shape(p: &TopkParam, s: &Shape) -> Result<Shape> {
    if p.ret_typ == RetTyp::Mask {
        return Ok(s.clone());
    }
    let k = top_count(p, lines(s, p.axis)?.1)? as i64;
    let mut out = whole_shape(s, p.axis)?;
    let axis = p.axis.map_or(Ok(0), |a| s.axis(a.into()))?;
    out.dims_mut()[axis] = k;
    Ok(out)
}

fn topk_kernel(call: &Call<'_>) -> Result<()> {
    let (x, p) = (&call.inputs[0], call.attrs.get::<TopkParam>());
    let lines = lines(x.shape(), p.axis)?;
    let (k, size) = (top_count(p, lines.1)?, x.dtype().size());
    let from = Shared(x.ptr());
    let target =
        |i: usize| (Shared(call.outputs[i].ptr()), call.outputs[i].dtype(), wanted(call, i));
    let (first, last) = (target(0), target(call.outputs.len() - 1));
    if p.ret_typ == RetTyp::Mask {
        zero_view(&call.outputs[0]);
    }
    for_orders(x, lines, k, p.is_ascend, |line, order| {
        for (i, &j) in order.iter().enumerate() {
            let to = spot(line, i, k, lines.2);
            let own = spot(line, j, lines.1, lines.2);
            // SAFETY: places of this line in the outputs.
            unsafe {
                if p.ret_typ == RetTyp::Mask {
                    write_f64(first.0.at(0), first.1, own, 1.0);
                    continue;
                }
                if p.ret_typ != RetTyp::Indices && first.2 {
                    put(&from, own, &first.0, to, size);
                }
                if p.ret_typ != RetTyp::Value && last.2 {
                    write_f64(last.0.at(0), last.1, to, j as f64);
                }
            }
        }
    });
    Ok(())
}

/// Routes the gradient of the values to where they came from.
fn topk_backward(call: &Call<'_>) -> Result<()> {
    let ([g, x], dx, p) =
        ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0], call.attrs.get::<TopkParam>());
    zero_view(dx);
    if matches!(p.ret_typ, RetTyp::Indices | RetTyp::Mask) {
        return Ok(());
    }
    let lines = lines(x.shape(), p.axis)?;
    let (k, size) = (top_count(p, lines.1)?, x.dtype().size());
    let (from, to) = (Shared(g.ptr()), Shared(dx.ptr()));
    for_orders(x, lines, k, p.is_ascend, |line, order| {
        for (i, &j) in order.iter().enumerate() {
            put(&from, spot(line, i, k, lines.2), &to, spot(line, j, lines.1, lines.2), size);
        }
    });
    Ok(())
}

fn topk() -> Vec<OpDef> {
    let doc = text(
        "The largest (or smallest) elements along an axis: their indices, values, both, or a mask.",
        "Values and masks have the dtype of the data, indices that of ``dtype``. The gradient of \
         values goes to where they came from. More elements than the axis has are an error.",
        "nd.topk(nd.array([1, 3, 2]), k=2, ret_typ='value')\n[3. 2.]",
    );
    let kernel: fn(fn(&Call<'_>) -> Result<()>) -> Kernel = |f| kernel(f);
    vec![
        OpDef::new::<TopkParam>("topk")
            .aliases(&["_npx_topk"])
            .doc(&doc)
            .inputs_are(&[("data", "The input array.")])
            .output_names_by(|attrs| match attrs.get::<TopkParam>().ret_typ {
                RetTyp::Both => vec!["output0".into(), "output1".into()],
                _ => vec!["output".into()],
            })
            .infer_shape(|attrs, inputs, outputs| {
                if !inputs[0].is_known() {
                    return Ok(false);
                }
                let out = top_shape(attrs.get(), &inputs[0])?;
                for slot in outputs.iter_mut() {
                    assign_shape(slot, "output", &out)?;
                }
                Ok(all_known(inputs, outputs))
            })
            .infer_type(|attrs: &Attrs, inputs, outputs| {
                let p: &TopkParam = attrs.get();
                if p.ret_typ != RetTyp::Indices
                    && let Some(own) = inputs[0].or(outputs[0])
                {
                    assign_type(&mut inputs[0], "data", own)?;
                    assign_type(&mut outputs[0], "output", own)?;
                }
                if matches!(p.ret_typ, RetTyp::Indices | RetTyp::Both) {
                    let last = outputs.len() - 1;
                    assign_type(&mut outputs[last], "output", p.dtype)?;
                }
                Ok(inputs[0].is_some())
            })
            .gradient(Gradient::declared("_backward_topk", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(0)]
            }))
            .kernel(kernel(topk_kernel)),
        OpDef::new::<TopkParam>("_backward_topk").kernel(kernel(topk_backward)),
    ]
}

pub fn operators() -> Vec<OpDef> {
    let mut all = sorts();
    all.extend(topk());
    all
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn first_places_are_those_of_a_stable_sort() {
        for (len, most) in [(0, 0), (1, 1), (7, 7), (50, 50), (300, 300)] {
            for spread in [1, 3, 1000] {
                let x: Vec<u64> = (0..len as u64).map(|i| i * 7919 % 613 % spread).collect();
                let mut sorted: Vec<usize> = (0..len).collect();
                sorted.sort_by_key(|&i| x[i]);
                for count in (len.min(1)..=most).step_by(9).chain([len]) {
                    let got = super::first_places(len, count, |i, j| x[i].cmp(&x[j]));
                    assert_eq!(got, sorted[..count], "{count} of {len}");
                }
            }
        }
    }

    #[test]
    fn orders() {
        let x = Tensor::of(&[2, 3], &[3., 1., 2., 1., 1., 9.]);
        let at = |op, params: &[(&str, &str)]| values(op, params, &[x.clone()]);
        assert_eq!(at("sort", &[]), [1., 2., 3., 1., 1., 9.]);
        assert_eq!(at("sort", &[("axis", "0"), ("is_ascend", "0")]), [3., 1., 9., 1., 1., 2.]);
        assert_eq!(at("argsort", &[]), [1., 2., 0., 0., 1., 2.]);
        assert_eq!(at("topk", &[("k", "2")]), [0., 2., 2., 0.]);
        assert_eq!(at("topk", &[("k", "2"), ("ret_typ", "value")]), [3., 2., 9., 1.]);
        assert_eq!(at("topk", &[("axis", "None"), ("ret_typ", "mask")]), [0., 0., 0., 0., 0., 1.]);
        assert!(infer_shapes("topk", &[("k", "4")], &[Some(&[2, 3])]).is_err());
        let nan = Tensor::of(&[3], &[f64::NAN, 1., 2.]);
        assert_eq!(values("argsort", &[], &[nan]), [1., 2., 0.]);
    }

    #[test]
    fn gradients_match_differences() {
        let x = [Tensor::noise(&[3, 4], 4)];
        for params in [&[][..], &[("axis", "0")], &[("axis", "None"), ("is_ascend", "0")]] {
            check_gradient("sort", params, &x, &[0], true);
        }
        check_gradient("topk", &[("k", "2"), ("ret_typ", "value")], &x, &[0], true);
    }
}
