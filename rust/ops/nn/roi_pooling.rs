//! `ROIPooling`: maxima over a grid of bins in rectangles of images.

use super::infer::{complete, expect_rank, with_statistics};
use super::widening;
use super::widening::always;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq, Tuple};
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `ROIPooling`.
    pub struct RoiPoolingParam {
        pooled_size: Tuple, required, "Bins of a rectangle, (height, width).";
        spatial_scale: f32, required.ge(0.0).le(1.0), "Image elements a unit of the rectangles' \
                                                       coordinates.";
    }
}

const DOC: &str = r#"
Maximum over each bin of a grid laid over rectangles ("regions of interest") of images.

Notes
-----
Data ``(N, C, H, W)``; each row of rois ``(R, 5)`` is ``(image, x1, y1, x2, y2)``, whose coordinates
are multiplied by ``spatial_scale`` and rounded; the corners belong to the rectangle, which has at
least one element. The output is ``(R, C, *pooled_size)``. Bins outside of the image are 0. A hidden
output ``max_idx`` holds the place of every maximum, -1 for none. rois gets no gradient. One dtype:
float16 (calculated in float32), float32 or float64.

Examples
--------
>>> x = nd.arange(48).reshape((1, 1, 6, 8))
>>> nd.ROIPooling(x, nd.array([[0, 0, 0, 4, 4]]), pooled_size=(2, 2), spatial_scale=1.0)
[[[[18. 20.]
   [34. 36.]]]]

References
----------
R. Girshick, Fast R-CNN, ICCV 2015.
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<RoiPoolingParam>("ROIPooling")
            .aliases(&["_npx_roi_pooling"])
            .doc(DOC)
            .inputs_are(&[
                ("data", "The images (N, C, H, W)."),
                ("rois", "Rectangles (R, 5): image, x1, y1, x2, y2."),
            ])
            .outputs_are(&["output", "max_idx"])
            .visible(|_| 1)
            .infer_shape(infer_shape)
            // Positions are float32 with float16 data, which could not hold them.
            .infer_type(with_statistics("max_idx"))
            .gradient(Gradient::declared("_backward_ROIPooling", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(1), Dep::Output(1)]
            }))
            .kernel(always(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call)))),
        OpDef::new::<RoiPoolingParam>("_backward_ROIPooling").kernel(widening::cpu(
            |call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call)),
        )),
    ]
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let size = &attrs.get::<RoiPoolingParam>().pooled_size;
    if size.len() != 2 || size.iter().any(|&s| s < 1) {
        return Err(Error::argument(
            "pooled_size",
            "value",
            Shape::new(size),
            "two positive numbers",
        ));
    }
    expect_rank(&inputs[0], "data", 4..=4)?;
    assign_shape(&mut inputs[1], "rois", &Shape::new(&[-1, 5]))?;
    let rois = inputs[1].dims()[0];
    let channels = if inputs[0].rank_known() { inputs[0].dims()[1] } else { -1 };
    let out = Shape::new(&[rois, channels, size[0], size[1]]);
    assign_shape(&mut outputs[0], "output", &out)?;
    assign_shape(&mut outputs[1], "max_idx", &out)?;
    complete(inputs, outputs)
}

/// First and last element (inclusive) of a rectangle along one axis, from scaled corners.
fn side<T: Real>(low: T, high: T, scale: T) -> (i64, f64) {
    let whole = |x: T| (x * scale).round().to_i64().unwrap_or(0);
    let (low, high) = (whole(low), whole(high));
    (low, (high - low + 1).max(1) as f64)
}

/// The elements of bin `i` of `bins` along one axis of `extent`.
fn bin(
    (first, length): (i64, f64),
    i: usize,
    bins: usize,
    extent: usize,
) -> std::ops::Range<usize> {
    let step = length / bins as f64;
    let clip = |x: f64| (x as i64 + first).clamp(0, extent as i64) as usize;
    clip((i as f64 * step).floor())..clip(((i + 1) as f64 * step).ceil())
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let param: &RoiPoolingParam = call.attrs.get();
    let (data, rois) = (&call.inputs[0], &call.inputs[1]);
    let d: Vec<usize> = data.dims().iter().map(|&d| d as usize).collect();
    let [ph, pw] = [0, 1].map(|i| param.pooled_size[i] as usize);
    let scale = T::of(param.spatial_scale.into());
    let count = rois.dims()[0] as usize;
    let (x, r) = (Shared(data.as_ptr::<T>()), Shared(rois.as_ptr::<T>()));
    let (y, index) = (Shared(call.outputs[0].as_ptr::<T>()), Shared(call.outputs[1].as_ptr::<T>()));
    let write = call.req[0] != OpReq::Null;
    for i in 0..count {
        // SAFETY: rois has five elements a row.
        let image = unsafe { *r.at(i * 5) }.to_usize();
        if image.is_none_or(|n| n >= d[0]) {
            let shown = image.map_or(-1, |n| n as i64);
            return Err(Error::argument(
                "rois",
                "image number",
                shown,
                format!("0 to {}", d[0] as i64 - 1),
            ));
        }
    }
    parallel_for(count * d[1], 1, |range| {
        for plane in range {
            let (i, c) = (plane / d[1], plane % d[1]);
            // SAFETY: as above; bins are clipped to the image; output planes belong to one task.
            unsafe {
                let roi = |k: usize| *r.at(i * 5 + k);
                let (xs, ys) = (side(roi(1), roi(3), scale), side(roi(2), roi(4), scale));
                let image = (roi(0).to_usize().unwrap_or(0) * d[1] + c) * d[2] * d[3];
                for (a, b) in (0..ph).flat_map(|a| (0..pw).map(move |b| (a, b))) {
                    let (mut best, mut at) = (T::zero(), -1.0);
                    for h in bin(ys, a, ph, d[2]) {
                        for w in bin(xs, b, pw, d[3]) {
                            let v = *x.at(image + h * d[3] + w);
                            if at < 0.0 || v > best {
                                (best, at) = (v, (h * d[3] + w) as f64);
                            }
                        }
                    }
                    let to = (plane * ph + a) * pw + b;
                    *index.at(to) = T::of(at);
                    if write {
                        *y.at(to) = best;
                    }
                }
            }
        }
    });
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let [grad, rois, index] = call.inputs else { unreachable!("declared dependencies") };
    if call.req[1] != OpReq::Null {
        // SAFETY: the output is ours to write and overlaps no input.
        unsafe { call.outputs[1].slice_mut::<T>() }.fill(T::zero());
    }
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let out = &call.outputs[0];
    let (channels, plane) = (out.dims()[1] as usize, out.shape().product(2..4));
    let images = out.dims()[0] as usize;
    let bins = grad.shape().product(2..4);
    let dx = Shared(out.as_ptr::<T>());
    // SAFETY: inputs are not written meanwhile.
    let (dy, at, r) = unsafe { (grad.slice::<T>(), index.slice::<T>(), rois.slice::<T>()) };
    // Many rectangles may share a maximum, so they are added in f64.
    parallel_for(channels, 1, |range| {
        with_scratch::<f64, _>(images * plane, |sums| {
            for c in range {
                sums.fill(0.0);
                for (i, roi) in r.chunks_exact(5).enumerate() {
                    let image = roi[0].to_usize().unwrap_or(0);
                    for b in 0..bins {
                        let from = (i * channels + c) * bins + b;
                        if let Some(k) = at[from].to_usize().filter(|_| at[from] >= T::zero()) {
                            sums[image * plane + k] += Element::to_f64(dy[from]);
                        }
                    }
                }
                for (at, &sum) in sums.iter().enumerate() {
                    let to = (at / plane * channels + c) * plane + at % plane;
                    // SAFETY: planes of a channel belong to one task.
                    unsafe { *dx.at(to) = T::of(sum) };
                }
            }
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    fn image() -> Tensor {
        Tensor::of(&[1, 1, 6, 8], &(0..48).map(f64::from).collect::<Vec<_>>())
    }

    // The figures were read off MXNet 1.9.1.
    #[test]
    fn bins_hold_their_maxima() {
        let rois =
            Tensor::of(&[3, 5], &[0., 0., 0., 4., 4., 0., 3., 3., 3., 3., 0., 6., 4., 9., 9.]);
        let p = [("pooled_size", "(2,2)"), ("spatial_scale", "1.0")];
        let y = values("ROIPooling", &p, &[image(), rois]);
        assert_eq!(y, [18., 20., 34., 36., 27., 27., 27., 27., 47., 0., 0., 0.]);
        let rois = Tensor::of(&[2, 5], &[0., 0., 0., 4., 4., 0., 1., 2., 7., 5.]);
        let p = [("pooled_size", "(3,2)"), ("spatial_scale", "0.7")];
        let single = [image(), rois].map(|t| t.cast(crate::DType::F32));
        let y = values("ROIPooling", &p, &single);
        assert_eq!(y, [9., 11., 17., 19., 25., 27., 19., 21., 27., 29., 35., 37.]);
        let beyond = Tensor::of(&[1, 5], &[1., 0., 0., 4., 4.]);
        assert!(run("ROIPooling", &p, &[image(), beyond], false).is_err());
    }

    #[test]
    fn gradients_match_differences() {
        let rois = Tensor::of(&[2, 5], &[1., 0., 0., 3., 3., 0., 1., 1., 4., 2.]);
        let p = [("pooled_size", "(2,2)"), ("spatial_scale", "1")];
        check_gradient("ROIPooling", &p, &[Tensor::noise(&[2, 2, 4, 5], 1), rois], &[0], true);
    }
}
