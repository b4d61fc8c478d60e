//! `MultiBoxTarget`: what the anchors of a single-shot detector should learn.

use super::geometry::{BoxFormat, Rect, descending};
use super::multibox::variances;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef};
use crate::ops::nn::infer::{complete, expect_rank, float_type};
use crate::ops::nn::widening::always;
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `_contrib_MultiBoxTarget`.
    pub struct MultiBoxTargetParam {
        overlap_threshold: f32, default(0.5), "Anchors that overlap a box by more than this learn \
                                               it; if not positive, only the best anchor of each \
                                               box does.";
        ignore_label: f32, default(-1.0), "Class target of anchors that should learn nothing.";
        negative_mining_ratio: f32, default(-1.0), "Negative anchors for each positive one; if not \
                                                    positive, all.";
        negative_mining_thresh: f32, default(0.5), "Anchors that overlap a box by this or more are \
                                                    no negatives.";
        minimum_negative_samples: i32, default(0).ge(0.0), "Least number of negative anchors that \
                                                            are mined.";
        variances: Vec<f32>, default(vec![0.1, 0.1, 0.2, 0.2]), "Divide the offsets.";
    }
}

const DOC: &str = r#"
The targets of a single-shot detector: for every anchor a class, and the offsets to the box that it
should find.

Each box takes the anchor that overlaps it most, the greatest overlaps first; then every other
anchor takes the box that it overlaps most, if by more than ``overlap_threshold``. These anchors are
positive. An anchor with center ``(x, y)`` and extents ``(w, h)`` and a box with center ``(u, v)``
and extents ``(p, q)`` make the offsets ``((u - x) / w, (v - y) / h, log(p / w), log(q / h)) /
variances``.

Notes
-----
``anchor`` ``(1, A, 4)`` holds corners; ``label`` ``(N, M, 5 or more)`` rows of class, corners (and
more), which end at the first class of -1; ``cls_pred`` ``(N, classes, A)`` scores before a softmax.
Three outputs: ``loc_target`` and ``loc_mask`` ``(N, 4 A)``, zero for anchors that are not positive,
and ``cls_target`` ``(N, A)``: the class plus one for positive anchors, 0 for negative ones, and
``ignore_label`` for others.

All anchors that are not positive are negative, unless ``negative_mining_ratio`` is positive: then,
of those that overlap no box by ``negative_mining_thresh``, the ones to which ``cls_pred`` gives the
smallest probability of class 0 (the background), as many as there are. An image without boxes
ignores all of its anchors. One dtype: float16 (calculated in float32), float32 or float64. The
gradient is zero.

Examples
--------
>>> anchors = nd.array([[[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]])
>>> target, mask, cls = nd.contrib.MultiBoxTarget(anchors, nd.array([[[2, 0, 0, 0.5, 0.6]]]),
...     nd.zeros((1, 4, 2)))
>>> cls
[[3. 0.]]
>>> mask
[[1. 1. 1. 1. 0. 0. 0. 0.]]

References
----------
W. Liu et al., SSD: Single Shot MultiBox Detector, ECCV 2016.
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<MultiBoxTargetParam>("_contrib_MultiBoxTarget")
            .aliases(&["_npx_multibox_target"])
            .doc(DOC)
            .inputs_are(&[
                ("anchor", "Corners of the anchors (1, A, 4)."),
                ("label", "Classes and corners of the boxes (N, M, 5 or more)."),
                ("cls_pred", "Scores of the classes (N, classes, A)."),
            ])
            .outputs_are(&["loc_target", "loc_mask", "cls_target"])
            .infer_shape(infer_shape)
            .infer_type(float_type)
            .gradient(Gradient::Zero)
            .kernel(always(|c| with_real!(c.inputs[0].dtype(), T => forward::<T>(c)))),
    ]
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    variances::<f32>(&attrs.get::<MultiBoxTargetParam>().variances)?;
    expect_rank(&inputs[1], "label", 3..=3)?;
    if let [_, _, width @ 0..5] = inputs[1].dims() {
        return Err(Error::argument("label", "last extent", width, "5 or more"));
    }
    let mut pair = Shape::of_rank(2); // images, anchors
    assign_shape(&mut pair, "cls_target", &outputs[2].clone())?;
    if let &[n, _, _] = inputs[1].dims() {
        assign_shape(&mut pair, "label", &Shape::new(&[n, -1]))?;
    }
    assign_shape(&mut inputs[0], "anchor", &Shape::new(&[1, pair.dims()[1], 4]))?;
    pair.dims_mut()[1] = inputs[0].dims()[1];
    assign_shape(&mut inputs[2], "cls_pred", &Shape::new(&[pair.dims()[0], -1, pair.dims()[1]]))?;
    let (n, a) = (inputs[2].dims()[0], inputs[2].dims()[2]);
    assign_shape(&mut inputs[0], "anchor", &Shape::new(&[1, a, 4]))?;
    let four = if a < 0 { -1 } else { a.saturating_mul(4) };
    assign_shape(&mut outputs[0], "loc_target", &Shape::new(&[n, four]))?;
    assign_shape(&mut outputs[1], "loc_mask", &Shape::new(&[n, four]))?;
    assign_shape(&mut outputs[2], "cls_target", &Shape::new(&[n, a]))?;
    complete(inputs, outputs)
}

/// What an anchor is to an image.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Positive(usize),
    Negative,
    Ignored,
}

/// The overlaps of anchors and boxes, and what follows from them.
struct Matching<T> {
    /// Best overlap of each anchor, and the box.
    best: Vec<(T, usize)>,
    roles: Vec<Role>,
}

fn match_boxes<T: Real>(anchors: &[Rect<T>], boxes: &[Rect<T>], threshold: T) -> Matching<T> {
    let overlaps: Vec<T> = anchors.iter().flat_map(|a| boxes.iter().map(|b| a.iou(*b))).collect();
    let mut roles = vec![Role::Ignored; anchors.len()];
    let mut taken = vec![false; boxes.len()];
    for at in descending(&overlaps) {
        let (a, b) = (at / boxes.len(), at % boxes.len());
        if overlaps[at] <= T::of(1e-6) {
            break;
        }
        if roles[a] == Role::Ignored && !taken[b] {
            (roles[a], taken[b]) = (Role::Positive(b), true);
        }
    }
    let best: Vec<(T, usize)> = overlaps
        .chunks_exact(boxes.len())
        .map(|row| {
            let first =
                |top: (T, usize), (b, &o): (usize, &T)| if o > top.0 { (o, b) } else { top };
            row.iter().enumerate().fold((-T::one(), 0), first)
        })
        .collect();
    if threshold > T::zero() {
        for (role, &(overlap, b)) in roles.iter_mut().zip(&best) {
            if *role == Role::Ignored && overlap > threshold {
                *role = Role::Positive(b);
            }
        }
    }
    Matching { best, roles }
}

/// Minus the probability of class 0: the greater, the harder a negative.
fn hardness<T: Real>(scores: &[T], anchors: usize, anchor: usize) -> T {
    let of = |class: usize| scores[class * anchors + anchor];
    let classes = scores.len() / anchors;
    let top = (0..classes).map(of).fold(T::neg_infinity(), T::max);
    let total: T = (0..classes).map(|c| (of(c) - top).exp()).sum();
    -(of(0) - top).exp() / total
}

/// Turns anchors that are ignored into negative ones.
fn choose_negatives<T: Real>(p: &MultiBoxTargetParam, found: &mut Matching<T>, scores: &[T]) {
    let anchors = found.roles.len();
    let mut open: Vec<usize> = (0..anchors).filter(|&a| found.roles[a] == Role::Ignored).collect();
    if p.negative_mining_ratio > 0.0 {
        let positive = anchors - open.len();
        let wanted = (positive as f64 * f64::from(p.negative_mining_ratio)) as usize;
        let wanted = wanted.max(p.minimum_negative_samples as usize);
        open.retain(|&a| found.best[a].0 < T::of(p.negative_mining_thresh.into()));
        let hard: Vec<T> = open.iter().map(|&a| hardness(scores, anchors, a)).collect();
        open = descending(&hard).into_iter().take(wanted).map(|i| open[i]).collect();
    }
    for a in open {
        found.roles[a] = Role::Negative;
    }
}

/// The offsets from an anchor to a box.
fn offsets<T: Real>(anchor: Rect<T>, target: Rect<T>, variances: [T; 4]) -> [T; 4] {
    let ([x, y, w, h], [u, v, p, q]) = (anchor.centered(), target.centered());
    let raw = [(u - x) / w, (v - y) / h, (p / w).ln(), (q / h).ln()];
    [0, 1, 2, 3].map(|k| raw[k] / variances[k])
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let p: &MultiBoxTargetParam = call.attrs.get();
    // SAFETY: inputs are not written meanwhile.
    let [anchor, label, scores] = [0, 1, 2].map(|i| unsafe { call.inputs[i].slice::<T>() });
    let anchors: Vec<_> =
        anchor.chunks_exact(4).map(|v| Rect::read(v, BoxFormat::Corner)).collect();
    let (n, a) = (call.inputs[2].dims()[0] as usize, anchors.len());
    let (rows, width) = (call.inputs[1].dims()[1] as usize, call.inputs[1].dims()[2] as usize);
    let per_image = call.inputs[2].dims()[1] as usize * a;
    let variances = variances(&p.variances)?;
    let outs = [0, 1, 2].map(|i| Shared(call.outputs[i].as_ptr::<T>()));
    parallel_for(n, 1, |range| {
        for image in range {
            // SAFETY: the part of an image in each output belongs to one task.
            let [offset, mask, class] = [(0, 4 * a), (1, 4 * a), (2, a)].map(|(i, len)| unsafe {
                std::slice::from_raw_parts_mut(outs[i].at(image * len), len)
            });
            offset.fill(T::zero());
            mask.fill(T::zero());
            class.fill(T::of(p.ignore_label.into()));
            let labels =
                label[image * rows * width..(image + 1) * rows * width].chunks_exact(width);
            let labels: Vec<&[T]> = labels.take_while(|row| row[0] != -T::one()).collect();
            let boxes: Vec<_> =
                labels.iter().map(|row| Rect::read(&row[1..], BoxFormat::Corner)).collect();
            if boxes.is_empty() {
                continue;
            }
            let mut found = match_boxes(&anchors, &boxes, T::of(p.overlap_threshold.into()));
            let scores = &scores[image * per_image..(image + 1) * per_image];
            choose_negatives(p, &mut found, scores);
            for (i, role) in found.roles.into_iter().enumerate() {
                match role {
                    Role::Ignored => {}
                    Role::Negative => class[i] = T::zero(),
                    Role::Positive(b) => {
                        class[i] = labels[b][0] + T::one();
                        mask[i * 4..i * 4 + 4].fill(T::one());
                        let values = offsets(anchors[i], boxes[b], variances);
                        offset[i * 4..i * 4 + 4].copy_from_slice(&values);
                    }
                }
            }
        }
    });
    Ok(())
}
