//! `Proposal` and `MultiProposal`: regions of interest from the outputs of a region proposal
//! network.

use super::geometry::descending;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq};
use crate::ops::nn::infer::{complete, float_type};
use crate::ops::nn::widening::always;
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `_contrib_Proposal` and `_contrib_MultiProposal`.
    pub struct ProposalParam {
        rpn_pre_nms_top_n: i32, default(6000), "How many of the best boxes are considered; all if \
                                                not positive.";
        rpn_post_nms_top_n: i32, default(300).ge(1.0), "How many regions an image gets.";
        threshold: f32, default(0.7), "Boxes that overlap a better one by more than this are \
                                       dropped.";
        rpn_min_size: i32, default(16), "Least width and height of a box, in elements of the \
                                         original image.";
        scales: Vec<f32>, default(vec![4.0, 8.0, 16.0, 32.0]), "Factors of the anchors' extents.";
        ratios: Vec<f32>, default(vec![0.5, 1.0, 2.0]), "Height over width of the anchors.";
        feature_stride: i32, default(16).ge(1.0), "Elements of the image an element of the feature \
                                                   map.";
        output_score: bool, default(false), "Return scores as well.";
        iou_loss: bool, default(false), "Are predictions offsets of corners, as trained with an \
                                         IoU loss?";
    }
}

const NOTES: &str = r#"
Around every element of the feature map lie ``A = len(ratios) * len(scales)`` anchors. Their boxes
are moved by the predictions, cut at the border of the image, and those below ``rpn_min_size`` lose.
Of the best ``rpn_pre_nms_top_n`` boxes, those that overlap better ones by more than ``threshold``
are dropped.

Notes
-----
``cls_prob`` ``(N, 2 A, H, W)``: probabilities, the second half of channels those of an object;
``bbox_pred`` ``(N, 4 A, H, W)``; ``im_info`` ``(N, 3)`` with rows ``(height, width, scale)``. The
output has ``rpn_post_nms_top_n`` rows for each image, ``(image, x1, y1, x2, y2)``, best first;
where there are fewer regions they repeat. With ``output_score`` a second output ``(rows, 1)`` has
their scores. Coordinates count elements, so that a box is ``x2 - x1 + 1`` wide. One dtype: float16
(calculated in float32), float32 or float64. The gradient is zero.

Examples
--------
>>> prob, info = nd.array([[[[0.1]], [[0.9]]]]), nd.array([[16, 16, 1]])
>>> nd.contrib.NAME(prob, nd.zeros((1, 4, 1, 1)), info, scales=(1,), ratios=(1,),
...     rpn_post_nms_top_n=1)
[[ 0.  0.  0. 15. 15.]]

References
----------
S. Ren et al., Faster R-CNN, NIPS 2015.
"#;

pub fn operators() -> Vec<OpDef> {
    let define = |name: &str, summary: &str, one: bool| {
        OpDef::new::<ProposalParam>(&format!("_contrib_{name}"))
            .doc(&format!("{summary}\n{}", NOTES.replace("NAME", name)))
            .inputs_are(&[
                ("cls_prob", "Probabilities of background and object (N, 2 A, H, W)."),
                ("bbox_pred", "Predicted offsets (N, 4 A, H, W)."),
                ("im_info", "Height, width and scale of the images (N, 3)."),
            ])
            .output_names_by(|_| vec!["output".into(), "score".into()])
            .visible(|attrs| if attrs.get::<ProposalParam>().output_score { 2 } else { 1 })
            .infer_shape(move |attrs, inputs, outputs| infer_shape(one, attrs, inputs, outputs))
            .infer_type(float_type)
            .gradient(Gradient::Zero)
            .kernel(always(|c| with_real!(c.inputs[0].dtype(), T => forward::<T>(c))))
    };
    vec![
        define(
            "Proposal",
            "Regions of interest of one image from a region proposal network.",
            true,
        ),
        define(
            "MultiProposal",
            "Regions of interest of images from a region proposal network.",
            false,
        ),
    ]
}

fn infer_shape(
    one: bool,
    attrs: &Attrs,
    inputs: &mut [Shape],
    outputs: &mut [Shape],
) -> Result<bool> {
    let p: &ProposalParam = attrs.get();
    for (name, values) in [("scales", &p.scales), ("ratios", &p.ratios)] {
        if values.is_empty() || values.iter().any(|&v| v.is_nan() || v <= 0.0) {
            let expected = "one or more positive numbers";
            return Err(Error::argument(name, "value", format!("{values:?}"), expected));
        }
    }
    let anchors = (p.scales.len() * p.ratios.len()) as i64;
    let images = if one { 1 } else { -1 };
    assign_shape(&mut inputs[0], "cls_prob", &Shape::new(&[images, 2 * anchors, -1, -1]))?;
    let d = inputs[0].dims().to_vec();
    assign_shape(&mut inputs[1], "bbox_pred", &Shape::new(&[d[0], 4 * anchors, d[2], d[3]]))?;
    let d = inputs[1].dims().to_vec();
    assign_shape(&mut inputs[2], "im_info", &Shape::new(&[d[0], 3]))?;
    let n = inputs[2].dims()[0];
    assign_shape(&mut inputs[0], "cls_prob", &Shape::new(&[n, 2 * anchors, d[2], d[3]]))?;
    assign_shape(&mut inputs[1], "bbox_pred", &Shape::new(&[n, 4 * anchors, d[2], d[3]]))?;
    if d[2] == 0 || d[3] == 0 {
        return Err(Error::argument(
            "cls_prob",
            "shape",
            &inputs[0],
            "height and width of at least 1",
        ));
    }
    let rows = if n < 0 { -1 } else { n.saturating_mul(p.rpn_post_nms_top_n.into()) };
    assign_shape(&mut outputs[0], "output", &Shape::new(&[rows, 5]))?;
    assign_shape(&mut outputs[1], "score", &Shape::new(&[rows, 1]))?;
    complete(inputs, outputs)
}

/// Corners of a box; it is `x2 - x1 + 1` wide.
type Corners<T> = [T; 4];

/// The anchors of the first element: for each ratio every scale.
fn base_anchors<T: Real>(p: &ProposalParam) -> Vec<Corners<T>> {
    let side = f64::from(p.feature_stride);
    let middle = (side - 1.0) / 2.0;
    let shapes = p.ratios.iter().flat_map(|&r| p.scales.iter().map(move |&s| (r, s)));
    shapes
        .map(|(ratio, scale)| {
            let (ratio, scale) = (f64::from(ratio), f64::from(scale));
            let width = ((side * side / ratio).floor().sqrt() + 0.5).floor();
            let height = (width * ratio + 0.5).floor() * scale;
            let (dx, dy) = ((width * scale - 1.0) / 2.0, (height - 1.0) / 2.0);
            [middle - dx, middle - dy, middle + dx, middle + dy].map(T::of)
        })
        .collect()
}

fn area<T: Real>(b: Corners<T>) -> T {
    let side = |low: T, high: T| high - low + T::one();
    side(b[0], b[2]) * side(b[1], b[3])
}

fn overlap<T: Real>(a: Corners<T>, b: Corners<T>) -> T {
    let side = |i: usize| (a[i + 2].min(b[i + 2]) - a[i].max(b[i]) + T::one()).max(T::zero());
    let shared = side(0) * side(1);
    shared / (area(a) + area(b) - shared)
}

/// Moves an anchor by its prediction.
fn moved<T: Real>(anchor: Corners<T>, d: [T; 4], iou_loss: bool) -> Corners<T> {
    if iou_loss {
        return [0, 1, 2, 3].map(|i| anchor[i] + d[i]);
    }
    let half = T::of(0.5);
    let axis = |i: usize| {
        let size = anchor[i + 2] - anchor[i] + T::one();
        let center = anchor[i] + half * (size - T::one());
        let (middle, reach) = (d[i] * size + center, half * (d[i + 2].exp() * size - T::one()));
        (middle - reach, middle + reach)
    };
    let ((x1, x2), (y1, y2)) = (axis(0), axis(1));
    [x1, y1, x2, y2]
}

/// What the network says of one image.
struct Predictions<'a, T> {
    scores: &'a [T],
    offsets: &'a [T],
    info: &'a [T],
    extents: (usize, usize),
}

/// All boxes of an image, with their scores.
fn boxes<T: Real>(
    p: &ProposalParam,
    base: &[Corners<T>],
    of: &Predictions<'_, T>,
) -> (Vec<Corners<T>>, Vec<T>) {
    let (h, w) = of.extents;
    let stride = T::of(p.feature_stride.into());
    let least = T::of(p.rpn_min_size.into()) * of.info[2];
    let limit = [of.info[1] - T::one(), of.info[0] - T::one()];
    // Elements beyond the image are padding of the batch.
    let real = [of.info[0], of.info[1]].map(|v| (v / stride).to_usize().unwrap_or(0));
    let (mut all, mut scores) = (Vec::new(), Vec::new());
    for (i, j) in (0..h).flat_map(|i| (0..w).map(move |j| (i, j))) {
        for (a, anchor) in base.iter().enumerate() {
            let at = |channel: usize| (channel * h + i) * w + j;
            let (x, y) = (T::of(j as f64) * stride, T::of(i as f64) * stride);
            let anchor = [anchor[0] + x, anchor[1] + y, anchor[2] + x, anchor[3] + y];
            let d = [0, 1, 2, 3].map(|k| of.offsets[at(4 * a + k)]);
            let raw = moved(anchor, d, p.iou_loss);
            let mut b = [0, 1, 2, 3].map(|k| raw[k].max(T::zero()).min(limit[k % 2]));
            let mut score = of.scores[at(base.len() + a)];
            if i >= real[0] || j >= real[1] {
                score = -T::one();
            }
            if (0..2).any(|k| b[k + 2] - b[k] + T::one() < least) {
                let half = least * T::of(0.5);
                b = [b[0] - half, b[1] - half, b[2] + half, b[3] + half];
                score = -T::one();
            }
            all.push(b);
            scores.push(score);
        }
    }
    (all, scores)
}

/// The boxes that stay, best first.
fn chosen<T: Real>(p: &ProposalParam, boxes: &[Corners<T>], scores: &[T]) -> Vec<usize> {
    let count = |n: i32| if n > 0 { n as usize } else { usize::MAX };
    let limit = T::of(p.threshold.into());
    let mut kept: Vec<usize> = Vec::new();
    for next in descending(scores).into_iter().take(count(p.rpn_pre_nms_top_n)) {
        if kept.len() == count(p.rpn_post_nms_top_n) {
            break;
        }
        if kept.iter().all(|&k| overlap(boxes[k], boxes[next]) <= limit) {
            kept.push(next);
        }
    }
    kept
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let p: &ProposalParam = call.attrs.get();
    // SAFETY: inputs are not written meanwhile.
    let [prob, pred, info] = [0, 1, 2].map(|i| unsafe { call.inputs[i].slice::<T>() });
    let d: Vec<usize> = call.inputs[0].dims().iter().map(|&d| d as usize).collect();
    let (per_score, per_box) = (prob.len() / d[0].max(1), pred.len() / d[0].max(1));
    let rows = p.rpn_post_nms_top_n as usize;
    let base = base_anchors::<T>(p);
    let outs = [0, 1].map(|i| Shared(call.outputs[i].as_ptr::<T>()));
    let write = call.req[0] != OpReq::Null;
    parallel_for(d[0], 1, |range| {
        for image in range {
            let of = Predictions {
                scores: &prob[image * per_score..(image + 1) * per_score],
                offsets: &pred[image * per_box..(image + 1) * per_box],
                info: &info[image * 3..image * 3 + 3],
                extents: (d[2], d[3]),
            };
            let (boxes, scores) = boxes(p, &base, &of);
            let kept = chosen(p, &boxes, &scores);
            for i in 0..rows {
                let from = kept[i % kept.len()];
                let row = image * rows + i;
                // SAFETY: rows of an image belong to one task.
                unsafe {
                    *outs[1].at(row) = scores[from];
                    if write {
                        *outs[0].at(row * 5) = T::of(image as f64);
                        for (k, v) in boxes[from].into_iter().enumerate() {
                            *outs[0].at(row * 5 + 1 + k) = v;
                        }
                    }
                }
            }
        }
    });
    Ok(())
}
