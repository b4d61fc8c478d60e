//! `MultiBoxDetection`: the boxes that a single-shot detector has found.

use super::geometry::{BoxFormat, Rect, descending};
use super::multibox::{clipped, variances};
use crate::error::Result;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq};
use crate::ops::nn::infer::{complete, float_type};
use crate::ops::nn::widening;
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `_contrib_MultiBoxDetection`.
    pub struct MultiBoxDetectionParam {
        clip: bool, default(true), "Cut boxes at the border of the image?";
        threshold: f32, default(0.01), "Least score of a detection.";
        background_id: i32, default(0), "Accepted, without effect: class 0 is the background.";
        nms_threshold: f32, default(0.5), "Overlap from which on a box suppresses worse ones; \
                                           outside of (0, 1] none is suppressed.";
        force_suppress: bool, default(false), "Do boxes of different classes suppress each other?";
        variances: Vec<f32>, default(vec![0.1, 0.1, 0.2, 0.2]), "Factors of the offsets.";
        nms_topk: i32, default(-1), "How many of the best boxes stay before the suppression; all \
                                     if not positive.";
    }
}

const DOC: &str = r#"
Detections from the outputs of a single-shot detector: decodes boxes, and suppresses those that
overlap better ones.

The class of an anchor is the best one but class 0 (the background); the anchor is a detection if
its probability is not below ``threshold``. Its box is decoded as in `box_decode`, from anchors
given by corners.

Notes
-----
``cls_prob`` ``(N, classes, A)``, ``loc_pred`` ``(N, 4 A)``, ``anchor`` ``(1, A, 4)``. The output
``(N, A, 6)`` has rows ``(class - 1, probability, x1, y1, x2, y2)``, best first; a suppressed
detection keeps its row with a class of -1, and rows without a detection are -1. If
``nms_threshold`` is not in (0, 1], detections stay in the order of the anchors. One dtype: float16
(calculated in float32), float32 or float64. The gradient is zero.

Examples
--------
>>> prob, anchor = nd.array([[[0.1, 0.9], [0.9, 0.1]]]), nd.array([[[0, 0, 0.5, 0.5],
...     [0, 0, 1, 1]]])
>>> nd.contrib.MultiBoxDetection(prob, nd.zeros((1, 8)), anchor, threshold=0.2)
[[[ 0.   0.9  0.   0.   0.5  0.5]
  [-1.  -1.  -1.  -1.  -1.  -1. ]]]

References
----------
W. Liu et al., SSD: Single Shot MultiBox Detector, ECCV 2016.
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<MultiBoxDetectionParam>("_contrib_MultiBoxDetection")
            .aliases(&["_npx_multibox_detection"])
            .doc(DOC)
            .inputs_are(&[
                ("cls_prob", "Probabilities of the classes (N, classes, A)."),
                ("loc_pred", "Offsets (N, 4 A)."),
                ("anchor", "Corners of the anchors (1, A, 4)."),
            ])
            .infer_shape(infer_shape)
            .infer_type(float_type)
            .gradient(Gradient::Zero)
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => forward::<T>(c)))),
    ]
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    variances::<f32>(&attrs.get::<MultiBoxDetectionParam>().variances)?;
    assign_shape(&mut outputs[0], "output", &Shape::new(&[-1, -1, 6]))?;
    let known = outputs[0].dims();
    assign_shape(&mut inputs[0], "cls_prob", &Shape::new(&[known[0], -1, known[1]]))?;
    let (n, a) = (inputs[0].dims()[0], inputs[0].dims()[2]);
    assign_shape(&mut inputs[2], "anchor", &Shape::new(&[1, a, 4]))?;
    let a = inputs[2].dims()[1];
    let four = if a < 0 { -1 } else { a.saturating_mul(4) };
    assign_shape(&mut inputs[1], "loc_pred", &Shape::new(&[n, four]))?;
    let n = inputs[1].dims()[0];
    assign_shape(&mut inputs[0], "cls_prob", &Shape::new(&[n, -1, a]))?;
    assign_shape(&mut outputs[0], "output", &Shape::new(&[n, a, 6]))?;
    complete(inputs, outputs)
}

/// A row of the output.
#[derive(Clone, Copy)]
struct Detection<T> {
    class: T,
    score: T,
    rect: Rect<T>,
}

/// The best class but the background, and its probability.
fn best_class<T: Real>(prob: &[T], anchors: usize, anchor: usize) -> Option<(usize, T)> {
    let mut best = None;
    for class in 1..prob.len() / anchors {
        let p = prob[class * anchors + anchor];
        if best.is_none_or(|(_, top)| p > top) {
            best = Some((class, p));
        }
    }
    best
}

/// The box at these offsets from an anchor.
fn decoded<T: Real>(anchor: Rect<T>, offset: &[T], variances: [T; 4], clip: bool) -> Rect<T> {
    let [x, y, w, h] = anchor.centered();
    let [a, b, c, d] = [0, 1, 2, 3].map(|k| offset[k] * variances[k]);
    let rect = Rect::around(a * w + x, b * h + y, c.exp() * w, d.exp() * h);
    if clip { clipped(rect) } else { rect }
}

/// Sorts detections and marks those that better ones suppress.
fn suppress<T: Real>(p: &MultiBoxDetectionParam, all: &mut [Detection<T>]) {
    if all.is_empty() || p.nms_threshold <= 0.0 || p.nms_threshold > 1.0 {
        return;
    }
    let limit = T::of(p.nms_threshold.into());
    let scores: Vec<T> = all.iter().map(|d| d.score).collect();
    let kept = if p.nms_topk > 0 { all.len().min(p.nms_topk as usize) } else { all.len() };
    let order = descending(&scores);
    let best: Vec<Detection<T>> = order[..kept].iter().map(|&i| all[i]).collect();
    all[..kept].copy_from_slice(&best);
    for rest in &mut all[kept..] {
        rest.class = -T::one();
    }
    for i in 0..kept {
        let (done, later) = all[..kept].split_at_mut(i + 1);
        let winner = done[i];
        if winner.class < T::zero() {
            continue;
        }
        for rival in later.iter_mut().filter(|r| r.class >= T::zero()) {
            let same = p.force_suppress || rival.class == winner.class;
            if same && winner.rect.iou(rival.rect) >= limit {
                rival.class = -T::one();
            }
        }
    }
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let p: &MultiBoxDetectionParam = call.attrs.get();
    // SAFETY: inputs are not written meanwhile.
    let [prob, loc, anchor] = [0, 1, 2].map(|i| unsafe { call.inputs[i].slice::<T>() });
    let anchors: Vec<_> =
        anchor.chunks_exact(4).map(|v| Rect::read(v, BoxFormat::Corner)).collect();
    let (n, a) = (call.inputs[0].dims()[0] as usize, anchors.len());
    let per_image = call.inputs[0].dims()[1] as usize * a;
    let (variances, least) = (variances(&p.variances)?, T::of(p.threshold.into()));
    let out = Shared(call.outputs[0].as_ptr::<T>());
    parallel_for(n, 1, |range| {
        for image in range {
            let prob = &prob[image * per_image..(image + 1) * per_image];
            let offsets = &loc[image * a * 4..(image + 1) * a * 4];
            let mut found: Vec<Detection<T>> = Vec::new();
            for (i, &anchor) in anchors.iter().enumerate() {
                if let Some((class, score)) = best_class(prob, a, i).filter(|b| b.1 >= least) {
                    let rect = decoded(anchor, &offsets[i * 4..], variances, p.clip);
                    found.push(Detection { class: T::of((class - 1) as f64), score, rect });
                }
            }
            suppress(p, &mut found);
            // SAFETY: the rows of an image belong to one task.
            let rows = unsafe { std::slice::from_raw_parts_mut(out.at(image * a * 6), a * 6) };
            rows.fill(-T::one());
            for (row, d) in rows.chunks_exact_mut(6).zip(found) {
                let Rect { x1, y1, x2, y2 } = d.rect;
                row.copy_from_slice(&[d.class, d.score, x1, y1, x2, y2]);
            }
        }
    });
    Ok(())
}
