//! Overlaps of boxes, and their coding relative to anchors: `box_iou`, `box_encode`, `box_decode`.

use super::geometry::{BoxFormat, Rect};
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq};
use crate::ops::nn::infer::{complete, expect_rank, float_type};
use crate::ops::nn::widening;
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `_contrib_box_iou`.
    pub struct BoxIouParam {
        format: BoxFormat, default(BoxFormat::Corner), "Corners (x1, y1, x2, y2), or center and \
                                                        extents (x, y, w, h).";
    }
}

params! {
    /// Parameters of `_contrib_box_decode`.
    pub struct BoxDecodeParam {
        std0: f32, default(1.0), "Factor of the offset in x.";
        std1: f32, default(1.0), "Factor of the offset in y.";
        std2: f32, default(1.0), "Factor of the logarithm of the width.";
        std3: f32, default(1.0), "Factor of the logarithm of the height.";
        clip: f32, default(-1.0), "Greatest logarithm of a width or height; none if it is not \
                                   positive.";
        format: BoxFormat, default(BoxFormat::Center), "What anchors hold: center and extents, or \
                                                        corners.";
    }
}

const IOU: &str = r#"
Intersection over union of every box of ``lhs`` with every box of ``rhs``.

Notes
-----
``lhs`` ``(..., 4)`` and ``rhs`` ``(..., 4)`` give ``(lhs.shape[:-1], rhs.shape[:-1])``; both have
two axes or more. The area of a box with ``x2 < x1`` or ``y2 < y1`` is 0, and the overlap of two
empty boxes is 0. One dtype: float16 (calculated in float32), float32 or float64. The gradient is
zero.

Examples
--------
>>> nd.contrib.box_iou(nd.array([[0, 0, 2, 2]]), nd.array([[1, 0, 2, 2], [0, 0, 4, 2]]))
[[0.5 0.5]]
"#;

const ENCODE: &str = r#"
Offsets from anchors to the boxes that they match, as a detector learns them.

For an anchor with center ``(x, y)`` and extents ``(w, h)`` whose box has center ``(u, v)`` and
extents ``(p, q)`` the target is ``((u - x) / w, (v - y) / h, log(p / w), log(q / h))``, minus
``means``, divided by ``stds``.

Notes
-----
``samples`` and ``matches`` ``(B, N)``: anchor ``i`` has a box if its sample is above 0.5, namely
row ``matches[i]`` of ``refs`` ``(B, M, 4)``. Anchors ``(B, N, 4)`` and refs hold corners, ``means``
and ``stds`` ``(4,)``. Two outputs of shape ``(B, N, 4)``: the targets, and a mask of ones; anchors
without a box have zeros in both. A match outside of refs is an error. One dtype: float16
(calculated in float32), float32 or float64. The gradient is zero.

Examples
--------
>>> anchor, ref = nd.array([[[0, 0, 2, 2]]]), nd.array([[[1, 0, 3, 2]]])
>>> one, zero = nd.ones((1, 1)), nd.zeros((1, 1))
>>> nd.contrib.box_encode(one, zero, anchor, ref, nd.zeros((4,)), nd.ones((4,)))[0]
[[[0.5 0.  0.  0. ]]]

References
----------
R. Girshick et al., Rich feature hierarchies for accurate object detection, CVPR 2014, appendix C.
"#;

const DECODE: &str = r#"
Boxes from offsets to anchors: the inverse of `box_encode`.

For an anchor with center ``(x, y)`` and extents ``(w, h)``, an offset ``(a, b, c, d)`` gives the
box around ``(a * std0 * w + x, b * std1 * h + y)`` with extents ``(exp(c * std2) * w, exp(d * std3)
* h)``, by its corners.

Notes
-----
Data ``(B, N, 4)``, anchors ``(1, N, 4)``, output ``(B, N, 4)``. One dtype: float16 (calculated in
float32), float32 or float64. The gradient is zero.

Examples
--------
>>> nd.contrib.box_decode(nd.array([[[0.5, 0, 0, 0]]]), nd.array([[[1, 1, 2, 2]]]))
[[[1. 0. 3. 2.]]]
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<BoxIouParam>("_contrib_box_iou")
            .doc(IOU)
            .inputs_are(&[("lhs", "Boxes (..., 4)."), ("rhs", "Boxes (..., 4).")])
            .infer_shape(iou_shape)
            .infer_type(float_type)
            .gradient(Gradient::Zero)
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => iou::<T>(c)))),
        OpDef::plain("_contrib_box_encode")
            .doc(ENCODE)
            .inputs_are(&[
                ("samples", "Above 0.5 where an anchor has a box (B, N)."),
                ("matches", "Row of refs of each anchor (B, N)."),
                ("anchors", "Corners of the anchors (B, N, 4)."),
                ("refs", "Corners of the boxes (B, M, 4)."),
                ("means", "Subtracted from the offsets (4,)."),
                ("stds", "Divide the offsets (4,)."),
            ])
            .outputs_are(&["output0", "output1"])
            .infer_shape(encode_shape)
            .infer_type(float_type)
            .gradient(Gradient::Zero)
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => encode::<T>(c)))),
        OpDef::new::<BoxDecodeParam>("_contrib_box_decode")
            .doc(DECODE)
            .inputs_are(&[("data", "Offsets (B, N, 4)."), ("anchors", "Anchors (1, N, 4).")])
            .infer_shape(decode_shape)
            .infer_type(float_type)
            .gradient(Gradient::Zero)
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => decode::<T>(c)))),
    ]
}

/// Checks that a shape ends in an axis of four numbers, or makes it so.
fn ends_in_four(shape: &mut Shape, argument: &str) -> Result<()> {
    expect_rank(shape, argument, 2..=usize::MAX)?;
    if shape.rank_known() {
        let mut wanted = Shape::of_rank(shape.ndim());
        wanted.dims_mut()[shape.ndim() - 1] = 4;
        assign_shape(shape, argument, &wanted)?;
    }
    Ok(())
}

fn iou_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    for (shape, name) in inputs.iter_mut().zip(["lhs", "rhs"]) {
        ends_in_four(shape, name)?;
    }
    if inputs.iter().all(Shape::rank_known) {
        let lead = |s: &Shape| s.dims()[..s.ndim() - 1].to_vec();
        let out = Shape::from_iter([lead(&inputs[0]), lead(&inputs[1])].concat());
        assign_shape(&mut outputs[0], "output", &out)?;
        let n = inputs[0].ndim() - 1;
        for (shape, range) in inputs.iter_mut().zip([0..n, n..outputs[0].ndim()]) {
            let mut known: Vec<i64> = outputs[0].dims()[range].to_vec();
            known.push(4);
            assign_shape(shape, "output", &Shape::new(&known))?;
        }
    }
    complete(inputs, outputs)
}

fn iou<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let format = call.attrs.get::<BoxIouParam>().format;
    // SAFETY: inputs are not written meanwhile.
    let (l, r) = unsafe { (call.inputs[0].slice::<T>(), call.inputs[1].slice::<T>()) };
    let right: Vec<_> = r.chunks_exact(4).map(|v| Rect::read(v, format)).collect();
    let out = Shared(call.outputs[0].as_ptr::<T>());
    parallel_for(l.len() / 4, (1usize << 12).div_ceil(right.len().max(1)), |range| {
        for i in range {
            let left = Rect::read(&l[i * 4..], format);
            for (j, &box_) in right.iter().enumerate() {
                // SAFETY: rows of the output belong to one task.
                unsafe { *out.at(i * right.len() + j) = left.iou(box_) };
            }
        }
    });
    Ok(())
}

fn encode_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let mut rows = Shape::of_rank(2);
    for (shape, name) in inputs[..2].iter().zip(["samples", "matches"]) {
        assign_shape(&mut rows, name, shape)?;
    }
    for (shape, name) in
        [(&inputs[2], "anchors"), (&outputs[0], "output0"), (&outputs[1], "output1")]
    {
        expect_rank(shape, name, 3..=3)?;
        if shape.rank_known() {
            assign_shape(&mut rows, name, &Shape::new(&shape.dims()[..2]))?;
        }
    }
    let (batch, n) = (rows.dims()[0], rows.dims()[1]);
    assign_shape(&mut inputs[3], "refs", &Shape::new(&[batch, -1, 4]))?;
    let batch = inputs[3].dims()[0];
    let boxes = Shape::new(&[batch, n, 4]);
    for (slot, name) in inputs[..2].iter_mut().zip(["samples", "matches"]) {
        assign_shape(slot, name, &Shape::new(&[batch, n]))?;
    }
    assign_shape(&mut inputs[2], "anchors", &boxes)?;
    assign_shape(&mut inputs[4], "means", &Shape::flat(4))?;
    assign_shape(&mut inputs[5], "stds", &Shape::flat(4))?;
    assign_shape(&mut outputs[0], "output0", &boxes)?;
    assign_shape(&mut outputs[1], "output1", &boxes)?;
    complete(inputs, outputs)
}

/// The row of refs that an anchor matches.
fn matched<T: Real>(value: T, rows: usize) -> Result<usize> {
    value.to_usize().filter(|&row| row < rows && value >= T::zero()).ok_or_else(|| {
        let shown = num_traits::ToPrimitive::to_f64(&value).unwrap_or(f64::NAN);
        Error::argument(
            "matches",
            "value",
            shown,
            format!("a row of refs, 0 to {}", rows as i64 - 1),
        )
    })
}

fn encode<T: Real>(call: &Call<'_>) -> Result<()> {
    // SAFETY: inputs are not written meanwhile.
    let [samples, matches, anchors, refs, means, stds] =
        [0, 1, 2, 3, 4, 5].map(|i| unsafe { call.inputs[i].slice::<T>() });
    let (n, m) = (call.inputs[2].dims()[1] as usize, call.inputs[3].dims()[1] as usize);
    let store = |out: usize, i: usize, values: [T; 4]| {
        if call.req[out] != OpReq::Null {
            // SAFETY: the output is ours to write and overlaps no input.
            let all = unsafe { call.outputs[out].slice_mut::<T>() };
            all[i * 4..i * 4 + 4].copy_from_slice(&values);
        }
    };
    for (i, &sample) in samples.iter().enumerate() {
        if !(sample > T::of(0.5)) {
            store(0, i, [T::zero(); 4]);
            store(1, i, [T::zero(); 4]);
            continue;
        }
        let row = i / n * m + matched(matches[i], m)?;
        let [x, y, w, h] = Rect::read(&anchors[i * 4..], BoxFormat::Corner).centered();
        let [u, v, p, q] = Rect::read(&refs[row * 4..], BoxFormat::Corner).centered();
        let raw = [(u - x) / w, (v - y) / h, (p / w).ln(), (q / h).ln()];
        store(0, i, [0, 1, 2, 3].map(|k| (raw[k] - means[k]) / stds[k]));
        store(1, i, [T::one(); 4]);
    }
    Ok(())
}

fn decode_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    assign_shape(&mut inputs[0], "data", &Shape::new(&[-1, -1, 4]))?;
    let n = inputs[0].dims()[1];
    assign_shape(&mut inputs[1], "anchors", &Shape::new(&[1, n, 4]))?;
    let n = inputs[1].dims()[1];
    assign_shape(&mut inputs[0], "data", &Shape::new(&[-1, n, 4]))?;
    assign_shape(&mut outputs[0], "output", &inputs[0])?;
    complete(inputs, outputs)
}

fn decode<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let p: &BoxDecodeParam = call.attrs.get();
    let std = [p.std0, p.std1, p.std2, p.std3].map(|s| T::of(s.into()));
    let most = if p.clip > 0.0 { T::of(p.clip.into()) } else { T::infinity() };
    // SAFETY: inputs are not written meanwhile; the output is ours and overlaps none of them.
    let (data, anchors, out) = unsafe {
        (call.inputs[0].slice::<T>(), call.inputs[1].slice::<T>(), call.outputs[0].slice_mut::<T>())
    };
    let per_image = anchors.len().max(4);
    for (i, (d, o)) in data.chunks_exact(4).zip(out.chunks_exact_mut(4)).enumerate() {
        let anchor = &anchors[i * 4 % per_image..];
        let [x, y, w, h] = match p.format {
            BoxFormat::Center => [anchor[0], anchor[1], anchor[2], anchor[3]],
            BoxFormat::Corner => Rect::read(anchor, BoxFormat::Corner).centered(),
        };
        let (dw, dh) = ((d[2] * std[2]).min(most), (d[3] * std[3]).min(most));
        let (cx, cy) = (d[0] * std[0] * w + x, d[1] * std[1] * h + y);
        o.copy_from_slice(&Rect::around(cx, cy, dw.exp() * w, dh.exp() * h).corners());
    }
    Ok(())
}
