//! `ROIAlign` and `RROIAlign`: averages of bilinear samples over a grid in (rotated) rectangles.

use super::binned::{Binned, Taps, bilinear, pool, pool_grad};
use super::resize::not_empty;
use crate::error::{Error, Result};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Dep, Gradient, OpDef, Tuple};
use crate::ops::nn::infer::{complete, expect_rank, float_type};
use crate::ops::nn::widening;
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};

params! {
    /// Parameters of `_contrib_ROIAlign`.
    pub struct RoiAlignParam {
        pooled_size: Tuple, required, "Bins of a rectangle, (height, width).";
        spatial_scale: f32, required.ge(0.0).le(1.0), "Image elements a unit of the rectangles' \
                                                       coordinates.";
        sample_ratio: i32, default(-1).le(1024.0), "Samples of a bin along each axis; if not \
                                                    positive, one for each element it covers, \
                                                    rounded up, at most 1024.";
        position_sensitive: bool, default(false), "Does every bin read channels of its own?";
        aligned: bool, default(false), "Shift coordinates by half an element, and allow rectangles \
                                        below one element?";
    }
}

params! {
    /// Parameters of `_contrib_RROIAlign`.
    pub struct RRoiAlignParam {
        pooled_size: Tuple, required, "Bins of a rectangle, (height, width).";
        spatial_scale: f32, required.ge(0.0).le(1.0), "Image elements a unit of the rectangles' \
                                                       coordinates.";
        sampling_ratio: i32, default(-1).le(1024.0), "Samples of a bin along each axis; if not \
                                                      positive, one for each element it covers, \
                                                      rounded up, at most 1024.";
    }
}

const ALIGN: &str = r#"
Averages of bilinear samples over each bin of a grid laid over rectangles ("regions of interest") of
images.

Notes
-----
Data ``(N, C, H, W)``; each row of rois ``(R, 5)`` is ``(image, x1, y1, x2, y2)``, whose coordinates
are multiplied by ``spatial_scale`` and not rounded; without ``aligned`` a rectangle has at least
one element along each axis. A row with a negative image gives zeros. The output is ``(R, C,
*pooled_size)``; with ``position_sensitive`` it is ``(R, C / bins, *pooled_size)``, and channel
``c`` of bin ``b`` reads channel ``c * bins + b``. Samples more than one element outside of the
image are 0. rois gets no gradient. One dtype: float16 (calculated in float32), float32 or float64.

Examples
--------
>>> x = nd.arange(16).reshape((1, 1, 4, 4))
>>> nd.contrib.ROIAlign(x, nd.array([[0, 0, 0, 2, 2]]), pooled_size=(2, 2), spatial_scale=1.0)
[[[[2.5 3.5]
   [6.5 7.5]]]]

References
----------
K. He et al., Mask R-CNN, ICCV 2017.
"#;

const ROTATED: &str = r#"
As `ROIAlign`, for rectangles that are rotated.

Notes
-----
Data ``(N, C, H, W)``; each row of rois ``(R, 6)`` is ``(image, x, y, width, height, angle)``:
center, extents and an angle in degrees, counterclockwise as the image is shown. Center and extents
are multiplied by ``spatial_scale``; extents are at least one element. A row with a negative image
gives zeros. The output is ``(R, C, *pooled_size)``. rois gets no gradient. One dtype: float16
(calculated in float32), float32 or float64.

Examples
--------
>>> x = nd.arange(16).reshape((1, 1, 4, 4))
>>> nd.contrib.RROIAlign(x, nd.array([[0, 2, 2, 2, 2, 0]]), pooled_size=(1, 1), spatial_scale=1.0)
[[[[10.]]]]

References
----------
J. Ma et al., Arbitrary-Oriented Scene Text Detection via Rotation Proposals, IEEE Transactions on
Multimedia, 2018.
"#;

pub fn operators() -> Vec<OpDef> {
    let deps = |op: &str| Gradient::declared(op, |_, _, _| vec![Dep::OutGrad(0), Dep::Input(1)]);
    vec![
        OpDef::new::<RoiAlignParam>("_contrib_ROIAlign")
            .doc(ALIGN)
            .inputs_are(&[
                ("data", "The images (N, C, H, W)."),
                ("rois", "Rectangles (R, 5): image, x1, y1, x2, y2."),
            ])
            .infer_shape(|attrs, inputs, outputs| {
                let p: &RoiAlignParam = attrs.get();
                infer_shape(&p.pooled_size, p.position_sensitive, 5, inputs, outputs)
            })
            .infer_type(float_type)
            .gradient(deps("_backward_ROIAlign"))
            .kernel(widening::cpu(
                |c| with_real!(c.inputs[0].dtype(), T => pool::<T>(c, &upright(c.attrs, &c.inputs[0]))),
            )),
        OpDef::new::<RoiAlignParam>("_backward_ROIAlign").kernel(widening::cpu(
            |c| with_real!(c.inputs[0].dtype(), T => pool_grad::<T>(c, &c.inputs[1], &upright(c.attrs, &c.outputs[0]))),
        )),
        OpDef::new::<RRoiAlignParam>("_contrib_RROIAlign")
            .doc(ROTATED)
            .inputs_are(&[
                ("data", "The images (N, C, H, W)."),
                ("rois", "Rectangles (R, 6): image, x, y, width, height, angle."),
            ])
            .infer_shape(|attrs, inputs, outputs| {
                infer_shape(&attrs.get::<RRoiAlignParam>().pooled_size, false, 6, inputs, outputs)
            })
            .infer_type(float_type)
            .gradient(deps("_backward_RROIAlign"))
            .kernel(widening::cpu(
                |c| with_real!(c.inputs[0].dtype(), T => pool::<T>(c, &rotated(c.attrs, &c.inputs[0]))),
            )),
        OpDef::new::<RRoiAlignParam>("_backward_RROIAlign").kernel(widening::cpu(
            |c| with_real!(c.inputs[0].dtype(), T => pool_grad::<T>(c, &c.inputs[1], &rotated(c.attrs, &c.outputs[0]))),
        )),
    ]
}

fn infer_shape(
    size: &Tuple,
    position_sensitive: bool,
    width: i64,
    inputs: &mut [Shape],
    outputs: &mut [Shape],
) -> Result<bool> {
    let [h, w] = match size[..] {
        [h, w] if h > 0 && w > 0 => [h, w],
        _ => {
            let expected = "two positive numbers";
            return Err(Error::argument("pooled_size", "value", Shape::new(size), expected));
        }
    };
    expect_rank(&inputs[0], "data", 4..=4)?;
    not_empty(&inputs[0])?;
    assign_shape(&mut outputs[0], "output", &Shape::new(&[-1, -1, h, w]))?;
    assign_shape(&mut inputs[1], "rois", &Shape::new(&[outputs[0].dims()[0], width]))?;
    let bins = if position_sensitive { h.saturating_mul(w) } else { 1 };
    let channels = match inputs[0].dims() {
        [_, c, ..] if *c >= 0 && c % bins != 0 => {
            let expected = format!("{bins} channels, or a multiple");
            return Err(Error::argument("data", "shape", &inputs[0], expected));
        }
        [_, c, ..] if *c >= 0 => c / bins,
        _ => -1,
    };
    let regions = inputs[1].dims()[0];
    assign_shape(&mut outputs[0], "output", &Shape::new(&[regions, channels, h, w]))?;
    if outputs[0].dims()[1] >= 0 {
        let c = outputs[0].dims()[1].saturating_mul(bins);
        assign_shape(&mut inputs[0], "data", &Shape::new(&[-1, c, -1, -1]))?;
    }
    complete(inputs, outputs)
}

/// Samples of a bin along one axis, at most: corners come from data and may be far apart.
const MOST_SAMPLES: f64 = 1024.0;

/// Rectangles of both kinds: the grid of samples, and where it lies.
struct Aligned<T> {
    plane: (usize, usize),
    bins: (usize, usize),
    scale: T,
    ratio: i32,
    kind: Kind,
}

enum Kind {
    Upright { aligned: bool, position_sensitive: bool },
    Rotated,
}

fn extents_of(view: &View) -> (usize, usize) {
    (view.dims()[2] as usize, view.dims()[3] as usize)
}

fn size_of(size: &Tuple) -> (usize, usize) {
    (size[0] as usize, size[1] as usize)
}

fn upright<T: Real>(attrs: &Attrs, data: &View) -> Aligned<T> {
    let p: &RoiAlignParam = attrs.get();
    Aligned {
        plane: extents_of(data),
        bins: size_of(&p.pooled_size),
        scale: T::of(p.spatial_scale.into()),
        ratio: p.sample_ratio,
        kind: Kind::Upright { aligned: p.aligned, position_sensitive: p.position_sensitive },
    }
}

fn rotated<T: Real>(attrs: &Attrs, data: &View) -> Aligned<T> {
    let p: &RRoiAlignParam = attrs.get();
    Aligned {
        plane: extents_of(data),
        bins: size_of(&p.pooled_size),
        scale: T::of(p.spatial_scale.into()),
        ratio: p.sampling_ratio,
        kind: Kind::Rotated,
    }
}

/// A rectangle: its origin, the place of its first corner from there, its extents and its turn.
struct Frame<T> {
    origin: [T; 2],
    first: [T; 2],
    size: [T; 2],
    turn: (T, T),
}

impl<T: Real> Aligned<T> {
    fn frame(&self, region: &[T]) -> Frame<T> {
        let v = |i: usize| region[i] * self.scale;
        let one = T::one();
        match self.kind {
            Kind::Upright { aligned, .. } => {
                let shift = if aligned { T::of(0.5) } else { T::zero() };
                let least = if aligned { T::neg_infinity() } else { one };
                let size = [(v(3) - v(1)).max(least), (v(4) - v(2)).max(least)];
                let first = [v(1) - shift, v(2) - shift];
                Frame { origin: [T::zero(); 2], first, size, turn: (one, T::zero()) }
            }
            Kind::Rotated => {
                let size = [v(3).max(one), v(4).max(one)];
                let angle = (region[5] * T::of(std::f64::consts::PI / 180.0)).sin_cos();
                let half = T::of(-0.5);
                let first = [size[0] * half, size[1] * half];
                Frame { origin: [v(1), v(2)], first, size, turn: (angle.1, angle.0) }
            }
        }
    }

    /// Samples of a bin along an axis on which it has this extent.
    fn samples(&self, bin: T) -> usize {
        match self.ratio {
            n if n > 0 => n as usize,
            _ => bin.ceil().max(T::zero()).min(T::of(MOST_SAMPLES)).to_usize().unwrap_or(0),
        }
    }
}

impl<T: Real> Binned<T> for Aligned<T> {
    fn channel(&self, c: usize, (i, j): (usize, usize)) -> usize {
        match self.kind {
            Kind::Upright { position_sensitive: true, .. } => {
                (c * self.bins.0 + i) * self.bins.1 + j
            }
            _ => c,
        }
    }

    fn taps(&self, region: &[T], _: usize, (i, j): (usize, usize), taps: &mut Taps<T>) {
        let frame = self.frame(region);
        let bin = |axis: usize, n: usize| frame.size[axis] / T::of(n as f64);
        let (bw, bh) = (bin(0, self.bins.1), bin(1, self.bins.0));
        let (nx, ny) = (self.samples(bw), self.samples(bh));
        let weight = T::one() / T::of((nx * ny).max(1) as f64);
        let place = |first: T, at: usize, width: T, k: usize, n: usize| {
            let inside = (T::of(k as f64) + T::of(0.5)) / T::of(n as f64);
            first + (T::of(at as f64) + inside) * width
        };
        let (h, w) = self.plane;
        for (ky, kx) in (0..ny).flat_map(|ky| (0..nx).map(move |kx| (ky, kx))) {
            let (u, v) =
                (place(frame.first[0], j, bw, kx, nx), place(frame.first[1], i, bh, ky, ny));
            let (cos, sin) = frame.turn;
            let x = u * cos + v * sin + frame.origin[0];
            let y = v * cos - u * sin + frame.origin[1];
            let near = |p: T, n: usize| p >= -T::one() && p <= T::of(n as f64);
            if near(x, w) && near(y, h) {
                let inside = |p: T, n: usize| p.max(T::zero()).min(T::of(n as f64 - 1.0));
                bilinear(inside(x, w), inside(y, h), (h, w), weight, taps);
            }
        }
    }
}
