//! `MultiBoxPrior`: the anchors of a single-shot detector. And what its siblings share.

use super::geometry::Rect;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq};
use crate::ops::nn::infer::{expect_rank, float_type};
use crate::ops::nn::widening;
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `_contrib_MultiBoxPrior`.
    pub struct MultiBoxPriorParam {
        sizes: Vec<f32>, default(vec![1.0]), "Extents of the anchors, as parts of the image's \
                                              height.";
        ratios: Vec<f32>, default(vec![1.0]), "Width over height of the anchors.";
        clip: bool, default(false), "Cut anchors at the border of the image?";
        steps: Vec<f32>, default(vec![-1.0, -1.0]), "Distances (y, x) of the centers, as parts of \
                                                     the image; -1 fills the image.";
        offsets: Vec<f32>, default(vec![0.5, 0.5]), "Place (y, x) of the first center, in steps.";
    }
}

const DOC: &str = r#"
Anchors around every element of a feature map: rectangles of several sizes and shapes.

Around each element are ``len(sizes) + len(ratios) - 1`` anchors: every size with the first ratio,
then the first size with every other ratio. An anchor of size ``s`` and ratio ``r`` is ``s /
sqrt(r)`` high and ``s * sqrt(r) * H / W`` wide.

Notes
-----
Data ``(N, C, H, W)``, of which only the shape matters; the output ``(1, H * W * anchors, 4)`` holds
corners ``(x1, y1, x2, y2)`` as parts of the image, row by row. sizes and ratios are positive, steps
and offsets two numbers each. float16, float32 or float64, as data. The gradient is zero.

Examples
--------
>>> nd.contrib.MultiBoxPrior(nd.zeros((1, 3, 1, 2)), sizes=(0.5,))
[[[0.125 0.25  0.375 0.75 ]
  [0.625 0.25  0.875 0.75 ]]]

References
----------
W. Liu et al., SSD: Single Shot MultiBox Detector, ECCV 2016.
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<MultiBoxPriorParam>("_contrib_MultiBoxPrior")
            .aliases(&["_npx_multibox_prior"])
            .doc(DOC)
            .inputs_are(&[("data", "The feature map (N, C, H, W).")])
            .ignores(&[0])
            .infer_shape(infer_shape)
            .infer_type(float_type)
            .gradient(Gradient::Zero)
            .kernel(widening::cpu(|c| with_real!(c.outputs[0].dtype(), T => forward::<T>(c)))),
    ]
}

fn refused(name: &str, given: &[f32], expected: &str) -> Error {
    Error::argument(name, "value", format!("{given:?}"), expected)
}

fn check(p: &MultiBoxPriorParam) -> Result<()> {
    for (name, values) in [("sizes", &p.sizes), ("ratios", &p.ratios)] {
        if values.is_empty() || values.iter().any(|&v| v.is_nan() || v <= 0.0) {
            return Err(refused(name, values, "one or more positive numbers"));
        }
    }
    for (name, values) in [("steps", &p.steps), ("offsets", &p.offsets)] {
        if values.len() != 2 {
            return Err(refused(name, values, "two numbers (y, x)"));
        }
    }
    Ok(())
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p: &MultiBoxPriorParam = attrs.get();
    check(p)?;
    expect_rank(&inputs[0], "data", 4..=4)?;
    let n = (p.sizes.len() + p.ratios.len() - 1) as i64;
    let cells = match inputs[0].dims() {
        [_, _, h, w] if *h >= 0 && *w >= 0 => h.checked_mul(*w).and_then(|c| c.checked_mul(n)),
        _ => Some(-1),
    };
    let cells =
        cells.ok_or_else(|| Error::value("too many anchors: expected fewer than 2^63 elements"))?;
    assign_shape(&mut outputs[0], "output", &Shape::new(&[1, cells, 4]))?;
    Ok(inputs[0].is_known() && outputs[0].is_known())
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let p: &MultiBoxPriorParam = call.attrs.get();
    let [h, w] = [2, 3].map(|i| call.inputs[0].dims()[i] as usize);
    let shapes = p.sizes.iter().map(|&s| (s, p.ratios[0]));
    let shapes = shapes.chain(p.ratios[1..].iter().map(|&r| (p.sizes[0], r)));
    let extents: Vec<(T, T)> = shapes
        .map(|(size, ratio)| {
            let (size, root) = (T::of(size.into()), T::of(ratio.into()).sqrt());
            (size * T::of(h as f64) / T::of(w as f64) * root, size / root)
        })
        .collect();
    let step = |i: usize, n: usize| match p.steps[i] {
        s if s > 0.0 => T::of(s.into()),
        _ => T::one() / T::of(n as f64),
    };
    let (dy, dx) = (step(0, h), step(1, w));
    let center = |i: usize, at: usize, d: T| (T::of(at as f64) + T::of(p.offsets[i].into())) * d;
    let out = Shared(call.outputs[0].as_ptr::<T>());
    parallel_for(h, 256usize.div_ceil(w.max(1)), |range| {
        for (row, column) in range.flat_map(|r| (0..w).map(move |c| (r, c))) {
            let (y, x) = (center(0, row, dy), center(1, column, dx));
            for (i, &(width, height)) in extents.iter().enumerate() {
                let rect = Rect::around(x, y, width, height);
                let corners = if p.clip { clipped(rect) } else { rect }.corners();
                let at = ((row * w + column) * extents.len() + i) * 4;
                for (k, value) in corners.into_iter().enumerate() {
                    // SAFETY: the output has four numbers for each anchor; rows belong to one task.
                    unsafe { *out.at(at + k) = value };
                }
            }
        }
    });
    Ok(())
}

/// The part of a rectangle inside of the image.
pub fn clipped<T: Real>(rect: Rect<T>) -> Rect<T> {
    let cut = |v: T| v.max(T::zero()).min(T::one());
    Rect { x1: cut(rect.x1), y1: cut(rect.y1), x2: cut(rect.x2), y2: cut(rect.y2) }
}

/// The variances as four numbers.
pub fn variances<T: Real>(given: &[f32]) -> Result<[T; 4]> {
    match given {
        &[a, b, c, d] => Ok([a, b, c, d].map(|v| T::of(v.into()))),
        _ => Err(refused("variances", given, "four numbers")),
    }
}
