//! `PSROIPooling` and `DeformablePSROIPooling`: every bin of a region reads channels of its own.

use super::binned::{Binned, Taps, bilinear, pool, pool_grad};
use super::resize::not_empty;
use crate::error::{Error, Result};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef};
use crate::ops::nn::infer::{complete, expect_rank, float_type};
use crate::ops::nn::widening;
use crate::ops::tensor::common::wanted;
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};

params! {
    /// Parameters of `_contrib_PSROIPooling`.
    pub struct PsRoiParam {
        spatial_scale: f32, required.ge(0.0).le(1.0), "Image elements a unit of the rectangles' \
                                                       coordinates.";
        output_dim: i32, required.ge(1.0), "Channels of the output.";
        pooled_size: i32, required.ge(1.0), "Bins of a rectangle along each axis.";
        group_size: i32, default(0).ge(0.0), "Groups of channels along each axis; 0 is \
                                              pooled_size.";
    }
}

params! {
    /// Parameters of `_contrib_DeformablePSROIPooling`.
    pub struct DeformablePsRoiParam {
        spatial_scale: f32, required.ge(0.0).le(1.0), "Image elements a unit of the rectangles' \
                                                       coordinates.";
        output_dim: i32, required.ge(1.0), "Channels of the output.";
        group_size: i32, required.ge(1.0), "Groups of channels along each axis.";
        pooled_size: i32, required.ge(1.0), "Bins of a rectangle along each axis.";
        part_size: i32, default(0).ge(0.0), "Offsets of a rectangle along each axis; 0 is \
                                             pooled_size.";
        sample_per_part: i32, default(1).ge(1.0).le(1024.0), "Samples of a bin along each axis.";
        trans_std: f32, default(0.0), "Factor of the offsets.";
        no_trans: bool, default(false), "No offsets: trans is not an input.";
    }
}

const POOLING: &str = r#"
Averages over each bin of a grid laid over rectangles of images, each bin from channels of its own.

Notes
-----
Data ``(N, output_dim * group_size^2, H, W)``; each row of rois ``(R, 5)`` is ``(image, x1, y1, x2,
y2)``, whose coordinates are rounded and multiplied by ``spatial_scale``; both corners belong to the
rectangle. With ``p = pooled_size``, bin ``(i, j)`` of channel ``c`` of the output ``(R, output_dim,
p, p)`` reads channel ``(c * group_size + i * group_size // p) * group_size + j * group_size // p``.
Bins outside of the image are 0, and so are regions with a negative image. rois gets no gradient.
One dtype: float16 (calculated in float32), float32 or float64.

Examples
--------
>>> x = nd.arange(4).reshape((1, 4, 1, 1)) + nd.zeros((1, 4, 2, 2))
>>> nd.contrib.PSROIPooling(x, nd.array([[0, 0, 0, 1, 1]]), spatial_scale=1, output_dim=1,
...     pooled_size=2)
[[[[0. 1.]
   [2. 3.]]]]

References
----------
J. Dai et al., R-FCN: Object Detection via Region-based Fully Convolutional Networks, NIPS 2016.
"#;

const DEFORMABLE: &str = r#"
As `PSROIPooling`, with bilinear samples, and bins that are moved by offsets that a network can
learn.

Notes
-----
Data ``(N, output_dim * group_size^2, H, W)``, rois ``(R, 5)`` with rows ``(image, x1, y1, x2,
y2)``, trans ``(R, 2 * classes, part_size, part_size)``: offsets in x and in y, as parts of the
rectangle, multiplied by ``trans_std``; ``output_dim // classes`` channels of the output share them.
Without rounding to elements, every bin is the average of ``sample_per_part^2`` samples; those
outside of the image do not count. The output is ``(R, output_dim, pooled_size, pooled_size)``. rois
gets no gradient. One dtype: float16 (calculated in float32), float32 or float64.

Examples
--------
>>> x, rois = nd.arange(4).reshape((1, 1, 2, 2)), nd.array([[0, 0, 0, 1, 1]])
>>> options = dict(spatial_scale=1, output_dim=1, group_size=1, pooled_size=1, sample_per_part=2)
>>> nd.contrib.DeformablePSROIPooling(x, rois, no_trans=True, **options)
[[[[0.75]]]]

References
----------
J. Dai et al., Deformable Convolutional Networks, ICCV 2017.
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<PsRoiParam>("_contrib_PSROIPooling")
            .doc(POOLING)
            .inputs_are(&[
                ("data", "The images (N, output_dim * group_size^2, H, W)."),
                ("rois", "Rectangles (R, 5): image, x1, y1, x2, y2."),
            ])
            .infer_shape(|attrs, inputs, outputs| {
                let p: &PsRoiParam = attrs.get();
                region_shapes(p.output_dim, p.groups(), p.pooled_size, inputs, outputs)
            })
            .infer_type(float_type)
            .gradient(Gradient::declared("_backward_PSROIPooling", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(1)]
            }))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => pool::<T>(c, &pooling_of(c, &c.inputs[0]))))),
        OpDef::new::<PsRoiParam>("_backward_PSROIPooling")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => pool_grad::<T>(c, &c.inputs[1], &pooling_of(c, &c.outputs[0]))))),
        OpDef::new::<DeformablePsRoiParam>("_contrib_DeformablePSROIPooling")
            .doc(DEFORMABLE)
            .inputs_are(&[
                ("data", "The images (N, output_dim * group_size^2, H, W)."),
                ("rois", "Rectangles (R, 5): image, x1, y1, x2, y2."),
                ("trans", "Offsets (R, 2 * classes, part_size, part_size)."),
            ])
            .input_names_by(|attrs| {
                let none = attrs.get::<DeformablePsRoiParam>().no_trans;
                let names = ["data", "rois", "trans"];
                names[..if none { 2 } else { 3 }].iter().map(|n| (*n).to_owned()).collect()
            })
            .infer_shape(deformable_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_in("_backward_DeformablePSROIPooling"))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => pool(c, &deformable_of::<T>(c, &c.inputs[0], 1))))),
        OpDef::new::<DeformablePsRoiParam>("_backward_DeformablePSROIPooling").kernel(
            widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => deformable_grad::<T>(c))),
        ),
    ]
}

impl PsRoiParam {
    fn groups(&self) -> i32 {
        if self.group_size > 0 { self.group_size } else { self.pooled_size }
    }
}

impl DeformablePsRoiParam {
    fn parts(&self) -> i64 {
        i64::from(if self.part_size > 0 { self.part_size } else { self.pooled_size })
    }
}

fn region_shapes(
    output_dim: i32,
    groups: i32,
    pooled: i32,
    inputs: &mut [Shape],
    outputs: &mut [Shape],
) -> Result<bool> {
    let (dim, groups, pooled) = (i64::from(output_dim), i64::from(groups), i64::from(pooled));
    let channels = groups.checked_mul(groups).and_then(|g| g.checked_mul(dim));
    let channels =
        channels.ok_or_else(|| Error::invalid("group_size", groups, "a smaller number"))?;
    assign_shape(&mut inputs[0], "data", &Shape::new(&[-1, channels, -1, -1]))?;
    not_empty(&inputs[0])?;
    assign_shape(&mut outputs[0], "output", &Shape::new(&[-1, dim, pooled, pooled]))?;
    assign_shape(&mut inputs[1], "rois", &Shape::new(&[outputs[0].dims()[0], 5]))?;
    let out = Shape::new(&[inputs[1].dims()[0], dim, pooled, pooled]);
    assign_shape(&mut outputs[0], "output", &out)?;
    complete(inputs, outputs)
}

fn deformable_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p: &DeformablePsRoiParam = attrs.get();
    region_shapes(p.output_dim, p.group_size, p.pooled_size, &mut inputs[..2], outputs)?;
    if !p.no_trans {
        expect_rank(&inputs[2], "trans", 4..=4)?;
        let regions = inputs[1].dims()[0];
        assign_shape(&mut inputs[2], "trans", &Shape::new(&[regions, -1, p.parts(), p.parts()]))?;
        let (regions, double) = (inputs[2].dims()[0], inputs[2].dims()[1]);
        let fits = double == -1
            || double > 0 && double % 2 == 0 && i64::from(p.output_dim) % (double / 2) == 0;
        if !fits {
            let expected = format!("twice a divisor of output_dim={} channels", p.output_dim);
            return Err(Error::argument("trans", "shape", &inputs[2], expected));
        }
        region_shapes(p.output_dim, p.group_size, p.pooled_size, &mut inputs[..2], outputs)?;
        assign_shape(&mut inputs[1], "rois", &Shape::new(&[regions, 5]))?;
        region_shapes(p.output_dim, p.group_size, p.pooled_size, &mut inputs[..2], outputs)?;
    }
    complete(inputs, outputs)
}

/// Corners of a rectangle: rounded, scaled, the far ones inclusive; and its extents, at least 0.1.
fn rectangle<T: Real>(region: &[T], scale: T, shift: T) -> ([T; 2], [T; 2]) {
    let corner = |i: usize| {
        let far = if i > 2 { T::one() } else { T::zero() };
        (region[i].round() + far) * scale - shift
    };
    let first = [corner(1), corner(2)];
    let least = T::of(0.1);
    (first, [(corner(3) - first[0]).max(least), (corner(4) - first[1]).max(least)])
}

/// `i * groups / pooled`: the group of channels that a bin reads.
fn group(i: usize, groups: usize, pooled: usize) -> usize {
    (i * groups / pooled).min(groups - 1)
}

struct Pooling<T> {
    plane: (usize, usize),
    scale: T,
    pooled: usize,
    groups: usize,
}

impl<T: Real> Binned<T> for Pooling<T> {
    fn channel(&self, c: usize, (i, j): (usize, usize)) -> usize {
        let g = |i: usize| group(i, self.groups, self.pooled);
        (c * self.groups + g(i)) * self.groups + g(j)
    }

    fn taps(&self, region: &[T], _: usize, (i, j): (usize, usize), taps: &mut Taps<T>) {
        let (first, size) = rectangle(region, self.scale, T::zero());
        let side = |axis: usize, at: usize, n: usize| {
            let bin = size[axis] / T::of(self.pooled as f64);
            let edge = |k: usize| T::of(k as f64) * bin + first[axis];
            let clip = |v: T| v.max(T::zero()).min(T::of(n as f64)).to_usize().unwrap_or(0);
            clip(edge(at).floor())..clip(edge(at + 1).ceil())
        };
        let (h, w) = self.plane;
        let (rows, columns) = (side(1, i, h), side(0, j, w));
        let weight = T::one() / T::of((rows.len() * columns.len()).max(1) as f64);
        taps.extend(rows.flat_map(|y| columns.clone().map(move |x| (y * w + x, weight))));
    }
}

fn plane_of(view: &View) -> (usize, usize) {
    (view.dims()[2] as usize, view.dims()[3] as usize)
}

fn pooling_of<T: Real>(call: &Call<'_>, data: &View) -> Pooling<T> {
    let p: &PsRoiParam = call.attrs.get();
    Pooling {
        plane: plane_of(data),
        scale: T::of(p.spatial_scale.into()),
        pooled: p.pooled_size as usize,
        groups: p.groups() as usize,
    }
}

/// Deformable bins: the regions and their offsets.
struct Deformable<'a, T> {
    plane: (usize, usize),
    p: &'a DeformablePsRoiParam,
    trans: Option<&'a [T]>,
    classes: usize,
    rois: &'a [T],
}

impl<T: Real> Deformable<'_, T> {
    /// The number of the region, from its address among all.
    fn number(&self, region: &[T]) -> usize {
        (region.as_ptr() as usize - self.rois.as_ptr() as usize) / size_of::<T>() / 5
    }

    /// Place in trans of the offset in x of a bin; that in y is `parts^2` further on.
    fn offset_place(&self, region: usize, c: usize, (i, j): (usize, usize)) -> usize {
        let (parts, pooled) = (self.p.parts() as usize, self.p.pooled_size as usize);
        let class = c / (self.p.output_dim as usize / self.classes);
        let part = |i: usize| i * parts / pooled;
        ((region * self.classes + class) * 2 * parts + part(i)) * parts + part(j)
    }

    /// Calls `f(x, y)` with the samples inside of the image; returns the extents of the region.
    fn samples(
        &self,
        region: &[T],
        c: usize,
        bin: (usize, usize),
        mut f: impl FnMut(T, T),
    ) -> [T; 2] {
        let half = T::of(0.5);
        let (first, size) = rectangle(region, T::of(self.p.spatial_scale.into()), half);
        let mut shift = [T::zero(); 2];
        if let Some(trans) = self.trans {
            let (at, parts) =
                (self.offset_place(self.number(region), c, bin), self.p.parts() as usize);
            let std = T::of(self.p.trans_std.into());
            shift = [trans[at] * std * size[0], trans[at + parts * parts] * std * size[1]];
        }
        let (pooled, per) = (T::of(self.p.pooled_size.into()), self.p.sample_per_part as usize);
        let place = |axis: usize, at: usize, k: usize| {
            let bin = size[axis] / pooled;
            let inside = T::of(k as f64) * bin / T::of(per as f64);
            T::of(at as f64) * bin + first[axis] + shift[axis] + inside
        };
        let (h, w) = self.plane;
        for (ky, kx) in (0..per).flat_map(|ky| (0..per).map(move |kx| (ky, kx))) {
            let (x, y) = (place(0, bin.1, kx), place(1, bin.0, ky));
            let near = |v: T, n: usize| v >= -half && v <= T::of(n as f64) - half;
            if near(x, w) && near(y, h) {
                let inside = |v: T, n: usize| v.max(T::zero()).min(T::of(n as f64 - 1.0));
                f(inside(x, w), inside(y, h));
            }
        }
        size
    }
}

impl<T: Real> Binned<T> for Deformable<'_, T> {
    fn channels_alike(&self) -> usize {
        self.p.output_dim as usize / self.classes
    }

    fn channel(&self, c: usize, (i, j): (usize, usize)) -> usize {
        let groups = self.p.group_size as usize;
        let g = |i: usize| group(i, groups, self.p.pooled_size as usize);
        (c * groups + g(i)) * groups + g(j)
    }

    fn taps(&self, region: &[T], c: usize, bin: (usize, usize), taps: &mut Taps<T>) {
        let mut count = 0u32;
        self.samples(region, c, bin, |x, y| {
            count += 1;
            bilinear(x, y, self.plane, T::one(), taps);
        });
        for tap in taps.iter_mut() {
            tap.1 /= T::of(count.into());
        }
    }
}

fn deformable_of<'a, T: Real>(call: &'a Call<'_>, data: &View, first: usize) -> Deformable<'a, T> {
    let p: &DeformablePsRoiParam = call.attrs.get();
    // SAFETY: inputs are not written meanwhile.
    let (rois, trans) = unsafe {
        (call.inputs[first].slice::<T>(), call.inputs.get(first + 1).map(|t| t.slice::<T>()))
    };
    let classes = call.inputs.get(first + 1).map_or(1, |t| t.dims()[1] as usize / 2);
    Deformable { plane: plane_of(data), p, trans, classes, rois }
}

fn deformable_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    let (dy, data, rois) = (&call.inputs[0], &call.inputs[1], &call.inputs[2]);
    let d = deformable_of::<T>(call, data, 2);
    pool_grad(call, rois, &d)?;
    if call.outputs.len() > 2 && wanted(call, 2) {
        let channels = data.dims()[1] as usize;
        // SAFETY: outputs are ours to write and overlap no input.
        unsafe {
            offset_grad(&d, channels, data.slice::<T>(), dy.slice(), call.outputs[2].slice_mut());
        }
    }
    Ok(())
}

/// The gradient of trans.
fn offset_grad<T: Real>(d: &Deformable<'_, T>, channels: usize, x: &[T], dy: &[T], out: &mut [T]) {
    out.fill(T::zero());
    let (h, w) = d.plane;
    let (dim, pooled) = (d.p.output_dim as usize, d.p.pooled_size as usize);
    let parts = d.p.parts() as usize;
    let std = T::of(d.p.trans_std.into());
    for (r, region) in d.rois.chunks_exact(5).enumerate() {
        let Some(image) = region[0].to_usize().filter(|_| region[0] >= T::zero()) else { continue };
        for (c, bin) in (0..dim).flat_map(|c| (0..pooled * pooled).map(move |b| (c, b))) {
            let place = (bin / pooled, bin % pooled);
            let plane = &x[(image * channels + d.channel(c, place)) * h * w..][..h * w];
            let (mut slope, mut count) = ([T::zero(); 2], 0u32);
            let size = d.samples(region, c, place, |px, py| {
                count += 1;
                let (x0, y0) =
                    (px.floor().to_usize().unwrap_or(0), py.floor().to_usize().unwrap_or(0));
                let (x1, y1) =
                    (px.ceil().to_usize().unwrap_or(0), py.ceil().to_usize().unwrap_or(0));
                let (fx, fy) = (px - T::of(x0 as f64), py - T::of(y0 as f64));
                let v = |y: usize, x: usize| plane[y * w + x];
                let mix = |a: T, b: T, f: T| a * (T::one() - f) + b * f;
                slope[0] += mix(v(y0, x1) - v(y0, x0), v(y1, x1) - v(y1, x0), fy);
                slope[1] += mix(v(y1, x0) - v(y0, x0), v(y1, x1) - v(y0, x1), fx);
            });
            let g = dy[(r * dim + c) * pooled * pooled + bin] / T::of(count.max(1).into());
            let at = d.offset_place(r, c, place);
            out[at] += g * slope[0] * std * size[0];
            out[at + parts * parts] += g * slope[1] * std * size[1];
        }
    }
}
