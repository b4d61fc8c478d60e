//! `BilinearSampler`, `GridGenerator` and `SpatialTransformer`: images sampled along a grid.

use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq, Tuple};
use crate::ops::nn::infer::{complete, expect_rank, float_type};
use crate::ops::nn::widening;
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_real};

param_enum! {
    /// What a grid is made of.
    pub enum GridType { Affine = "affine", Warp = "warp" }
}

param_enum! {
    /// The one kind of transformation.
    pub enum TransformType { Affine = "affine" }
}

param_enum! {
    /// The one kind of sampling.
    pub enum SamplerType { Bilinear = "bilinear" }
}

params! {
    /// Parameters of `BilinearSampler`.
    pub struct BilinearSamplerParam {
        cudnn_off: Option<bool>, default(None), "Accepted, without effect.";
    }
}

params! {
    /// Parameters of `GridGenerator`.
    pub struct GridGeneratorParam {
        transform_type: GridType, required, "What data holds: affine matrices, or a flow for every \
                                             element.";
        target_shape: Tuple, default(Tuple::from_elem(0, 2)), "Extents (h, w) of the grid, with \
             affine.";
    }
}

params! {
    /// Parameters of `SpatialTransformer`.
    pub struct SpatialTransformerParam {
        target_shape: Tuple, default(Tuple::from_elem(0, 2)), "Extents (h, w) of the output.";
        transform_type: TransformType, required, "What loc holds.";
        sampler_type: SamplerType, required, "How elements are read.";
        cudnn_off: Option<bool>, default(None), "Accepted, without effect.";
    }
}

const SAMPLER: &str = r#"
Samples images along a grid, bilinearly between the four nearest elements; outside of the image is
0, at a place that is NaN NaN.

A grid of ``(-1, -1)`` is the upper left element, ``(1, 1)`` the lower right one.

Notes
-----
Data ``(N, C, H, W)``, grid ``(N, 2, h, w)`` with x in channel 0 and y in channel 1, output ``(N, C,
h, w)``. One dtype: float16 (calculated in float32), float32 or float64. Both inputs get gradients.

Examples
--------
>>> nd.BilinearSampler(nd.array([[[[1, 2, 3]]]]), nd.array([[[[-0.5, 1]], [[-1, -1]]]]))
[[[[1.5 3. ]]]]

References
----------
M. Jaderberg et al., Spatial Transformer Networks, NIPS 2015.
"#;

const GRID: &str = r#"
The grid that `BilinearSampler` samples along, from affine matrices or from a flow.

``affine``: data ``(N, 6)`` are matrices of two rows and three columns, which map ``(x, y, 1)`` of
the target, x and y from -1 to 1, to the source. ``warp``: data ``(N, 2, H, W)`` are displacements
in elements, x in channel 0.

Notes
-----
The output is ``(N, 2, *target_shape)``, with ``warp`` data's shape. A target with one element along
an axis has 0 there. One dtype: float16 (calculated in float32), float32 or float64.

Examples
--------
>>> nd.GridGenerator(nd.array([[1, 0, 0, 0, 1, 0.5]]), transform_type='affine', target_shape=(1, 3))
[[[[-1.   0.   1. ]]
  [[ 0.5  0.5  0.5]]]]

References
----------
M. Jaderberg et al., Spatial Transformer Networks, NIPS 2015.
"#;

const TRANSFORMER: &str = r#"
Applies an affine transformation to images: `GridGenerator` and `BilinearSampler` in one.

Notes
-----
Data ``(N, C, H, W)``, loc ``(N, 6)``: matrices of two rows and three columns, which map places of
the output to those of data. The output is ``(N, C, *target_shape)``. One dtype: float16 (calculated
in float32), float32 or float64.

Examples
--------
>>> x, flip = nd.array([[[[1, 2, 3]]]]), nd.array([[-1, 0, 0, 0, 1, -1]])
>>> nd.SpatialTransformer(x, flip, target_shape=(1, 3), transform_type='affine',
...     sampler_type='bilinear')
[[[[3. 2. 1.]]]]

References
----------
M. Jaderberg et al., Spatial Transformer Networks, NIPS 2015.
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<BilinearSamplerParam>("BilinearSampler")
            .doc(SAMPLER)
            .inputs_are(&[
                ("data", "The images (N, C, H, W)."),
                ("grid", "Where to sample (N, 2, h, w)."),
            ])
            .infer_shape(sampler_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_in("_backward_BilinearSampler"))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => sampler::<T>(c)))),
        OpDef::new::<BilinearSamplerParam>("_backward_BilinearSampler")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => sampler_grad::<T>(c)))),
        OpDef::new::<GridGeneratorParam>("GridGenerator")
            .doc(GRID)
            .inputs_are(&[("data", "Affine matrices (N, 6), or a flow (N, 2, H, W).")])
            .infer_shape(grid_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_none("_backward_GridGenerator"))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => grid::<T>(c)))),
        OpDef::new::<GridGeneratorParam>("_backward_GridGenerator")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => grid_grad::<T>(c)))),
        OpDef::new::<SpatialTransformerParam>("SpatialTransformer")
            .doc(TRANSFORMER)
            .inputs_are(&[("data", "The images (N, C, H, W)."), ("loc", "Affine matrices (N, 6).")])
            .infer_shape(transformer_shape)
            .infer_type(float_type)
            .gradient(Gradient::declared("_backward_SpatialTransformer", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1)]
            }))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => transformer::<T>(c)))),
        OpDef::new::<SpatialTransformerParam>("_backward_SpatialTransformer").kernel(
            widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => transformer_grad::<T>(c))),
        ),
    ]
}

fn target(given: &Tuple) -> Result<[i64; 2]> {
    match given[..] {
        [h, w] if h > 0 && w > 0 => Ok([h, w]),
        _ => {
            let expected = "two positive numbers";
            Err(Error::argument("target_shape", "value", Shape::new(given), expected))
        }
    }
}

fn sampler_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    for (shape, name) in inputs.iter_mut().zip(["data", "grid"]) {
        assign_shape(shape, name, &Shape::of_rank(4))?;
    }
    assign_shape(&mut outputs[0], "output", &Shape::of_rank(4))?;
    let (d, g, o) = (inputs[0].dims(), inputs[1].dims(), outputs[0].dims());
    let n = [d[0], g[0], o[0]].into_iter().find(|&n| n >= 0).unwrap_or(-1);
    let c = if d[1] >= 0 { d[1] } else { o[1] };
    let [h, w] = [2, 3].map(|i| if g[i] >= 0 { g[i] } else { o[i] });
    assign_shape(&mut inputs[0], "data", &Shape::new(&[n, c, -1, -1]))?;
    assign_shape(&mut inputs[1], "grid", &Shape::new(&[n, 2, h, w]))?;
    assign_shape(&mut outputs[0], "output", &Shape::new(&[n, c, h, w]))?;
    complete(inputs, outputs)
}

fn grid_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p: &GridGeneratorParam = attrs.get();
    if p.transform_type == GridType::Warp {
        for _ in 0..2 {
            assign_shape(&mut inputs[0], "data", &Shape::new(&[-1, 2, -1, -1]))?;
            assign_shape(&mut outputs[0], "output", &inputs[0])?;
            assign_shape(&mut inputs[0], "data", &outputs[0])?;
        }
        return complete(inputs, outputs);
    }
    let [h, w] = target(&p.target_shape)?;
    assign_shape(&mut outputs[0], "output", &Shape::new(&[-1, 2, h, w]))?;
    assign_shape(&mut inputs[0], "data", &Shape::new(&[outputs[0].dims()[0], 6]))?;
    let n = inputs[0].dims()[0];
    assign_shape(&mut outputs[0], "output", &Shape::new(&[n, 2, h, w]))?;
    complete(inputs, outputs)
}

fn transformer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let [h, w] = target(&attrs.get::<SpatialTransformerParam>().target_shape)?;
    expect_rank(&inputs[0], "data", 4..=4)?;
    assign_shape(&mut outputs[0], "output", &Shape::new(&[-1, -1, h, w]))?;
    let o = outputs[0].dims().to_vec();
    assign_shape(&mut inputs[0], "data", &Shape::new(&[o[0], o[1], -1, -1]))?;
    let n = inputs[0].dims()[0];
    assign_shape(&mut inputs[1], "loc", &Shape::new(&[n, 6]))?;
    let n = inputs[1].dims()[0];
    assign_shape(&mut inputs[0], "data", &Shape::new(&[n, -1, -1, -1]))?;
    let c = inputs[0].dims()[1];
    assign_shape(&mut outputs[0], "output", &Shape::new(&[n, c, h, w]))?;
    complete(inputs, outputs)
}

/// From -1 to 1 in equal steps; 0 if there is one element only.
fn unit<T: Real>(i: usize, n: usize) -> T {
    if n < 2 { T::zero() } else { T::of(2.0 * i as f64 / (n - 1) as f64 - 1.0) }
}

/// The grid (N, 2, h, w) of affine matrices (N, 6).
fn affine_grid<T: Real>(matrices: &[T], (h, w): (usize, usize), out: &mut [T]) {
    for (row, grid) in matrices.chunks_exact(3).zip(out.chunks_exact_mut(h * w)) {
        for (i, g) in grid.iter_mut().enumerate() {
            *g = row[0] * unit(i % w, w) + row[1] * unit(i / w, h) + row[2];
        }
    }
}

/// The gradient of [`affine_grid`].
fn affine_grad<T: Real>(dgrid: &[T], (h, w): (usize, usize), out: &mut [T]) {
    for (row, grid) in out.chunks_exact_mut(3).zip(dgrid.chunks_exact(h * w)) {
        row.fill(T::zero());
        for (i, &g) in grid.iter().enumerate() {
            row[0] += g * unit(i % w, w);
            row[1] += g * unit(i / w, h);
            row[2] += g;
        }
    }
}

/// A place between elements: those around it, with weights and the slopes of the weights.
struct Corners<T> {
    /// Place in the plane, weight, its derivative along x and along y (in elements).
    four: [Option<(usize, T, T, T)>; 4],
    /// The sum of no elements: 0, or NaN at a place that is NaN.
    none: T,
}

impl<T: Real> Corners<T> {
    fn at(x: T, y: T, (h, w): (usize, usize)) -> Self {
        let (x0, y0) = (x.floor(), y.floor());
        let (px, py) = (x - x0, y - y0);
        let corner = |down: bool, right: bool| {
            let side = |c: bool| if c { T::one() } else { T::zero() };
            let (column, row) = (x0 + side(right), y0 + side(down));
            let inside = column >= T::zero()
                && row >= T::zero()
                && column < T::of(w as f64)
                && row < T::of(h as f64);
            let at = row.to_usize()? * w + column.to_usize()?;
            let (wx, sx) = if right { (px, T::one()) } else { (T::one() - px, -T::one()) };
            let (wy, sy) = if down { (py, T::one()) } else { (T::one() - py, -T::one()) };
            inside.then_some((at, wx * wy, sx * wy, wx * sy))
        };
        let four =
            [corner(false, false), corner(false, true), corner(true, false), corner(true, true)];
        Corners { four, none: if x.is_nan() || y.is_nan() { T::nan() } else { T::zero() } }
    }

    fn known(&self) -> impl Iterator<Item = (usize, T, T, T)> + '_ {
        self.four.iter().flatten().copied()
    }
}

/// Images, channels, input extents and output extents of a sampling.
struct SamplerExtents {
    n: usize,
    c: usize,
    from: (usize, usize),
    to: (usize, usize),
}

impl SamplerExtents {
    fn of(data: &View, out: &View) -> Self {
        let at = |v: &View, i: usize| v.dims()[i] as usize;
        let pair = |v: &View| (at(v, 2), at(v, 3));
        SamplerExtents { n: at(data, 0), c: at(data, 1), from: pair(data), to: pair(out) }
    }

    fn corners<T: Real>(&self, grid: &[T], image: usize, i: usize) -> Corners<T> {
        let plane = self.to.0 * self.to.1;
        let place = |channel: usize, n: usize| {
            let g = grid[(image * 2 + channel) * plane + i];
            (g + T::one()) * T::of(n as f64 - 1.0) * T::of(0.5)
        };
        Corners::at(place(0, self.from.1), place(1, self.from.0), self.from)
    }
}

fn sample<T: Real>(x: &[T], grid: &[T], e: &SamplerExtents, out: &mut [T]) {
    let (plane, target) = (e.from.0 * e.from.1, e.to.0 * e.to.1);
    let y = Shared(out.as_mut_ptr());
    parallel_for(e.n * target, 256usize.div_ceil(e.c.max(1)), |range| {
        for at in range {
            let (image, i) = (at / target, at % target);
            let corners = e.corners(grid, image, i);
            for c in 0..e.c {
                let from = &x[(image * e.c + c) * plane..][..plane];
                let sum = corners.known().fold(corners.none, |sum, (k, w, ..)| sum + from[k] * w);
                // SAFETY: places of the output belong to one task.
                unsafe { *y.at((image * e.c + c) * target + i) = sum };
            }
        }
    });
}

/// Gradients of [`sample`], those that are wanted.
fn sample_grad<T: Real>(
    dy: &[T],
    x: &[T],
    grid: &[T],
    e: &SamplerExtents,
    dx: Option<&mut [T]>,
    dgrid: Option<&mut [T]>,
) {
    let (plane, target) = (e.from.0 * e.from.1, e.to.0 * e.to.1);
    let half = T::of(0.5);
    let (slope_x, slope_y) =
        (T::of(e.from.1 as f64 - 1.0) * half, T::of(e.from.0 as f64 - 1.0) * half);
    let dx = dx.map(|d| Shared(d.as_mut_ptr()));
    let dgrid = dgrid.map(|d| Shared(d.as_mut_ptr()));
    parallel_for(e.n, 1, |range| {
        for image in range {
            // SAFETY: what belongs to an image belongs to one task.
            let mut dx = dx.map(|d| unsafe {
                let len = e.c * plane;
                std::slice::from_raw_parts_mut(d.at(image * len), len)
            });
            if let Some(d) = dx.as_deref_mut() {
                d.fill(T::zero());
            }
            for i in 0..target {
                let corners = e.corners(grid, image, i);
                let (mut gx, mut gy) = (corners.none, corners.none);
                for (k, w, sx, sy) in corners.known() {
                    for c in 0..e.c {
                        let g = dy[(image * e.c + c) * target + i];
                        let v = x[(image * e.c + c) * plane + k];
                        gx += g * v * sx;
                        gy += g * v * sy;
                        if let Some(d) = dx.as_deref_mut() {
                            d[c * plane + k] += g * w;
                        }
                    }
                }
                if let Some(d) = dgrid {
                    // SAFETY: as above.
                    unsafe {
                        *d.at(image * 2 * target + i) = gx * slope_x;
                        *d.at((image * 2 + 1) * target + i) = gy * slope_y;
                    }
                }
            }
        }
    });
}

/// Output `i` as a slice if it is wanted.
#[allow(clippy::mut_from_ref)] // a view is an address, not an owner
fn wanted<'a, T: Real>(call: &'a Call<'_>, i: usize) -> Option<&'a mut [T]> {
    // SAFETY: an output is the kernel's to write and overlaps no input; each is asked for once.
    (call.req[i] != OpReq::Null).then(|| unsafe { call.outputs[i].slice_mut::<T>() })
}

fn sampler<T: Real>(call: &Call<'_>) -> Result<()> {
    if let Some(out) = wanted::<T>(call, 0) {
        let e = SamplerExtents::of(&call.inputs[0], &call.outputs[0]);
        // SAFETY: inputs are not written meanwhile.
        let [x, grid] = [0, 1].map(|i| unsafe { call.inputs[i].slice::<T>() });
        sample(x, grid, &e, out);
    }
    Ok(())
}

fn sampler_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    let e = SamplerExtents::of(&call.inputs[1], &call.inputs[0]);
    // SAFETY: inputs are not written meanwhile.
    let [dy, x, grid] = [0, 1, 2].map(|i| unsafe { call.inputs[i].slice::<T>() });
    sample_grad(dy, x, grid, &e, wanted(call, 0), wanted(call, 1));
    Ok(())
}

/// Height and width of the last axes.
fn pair(view: &View) -> (usize, usize) {
    (view.dims()[2] as usize, view.dims()[3] as usize)
}

fn grid<T: Real>(call: &Call<'_>) -> Result<()> {
    let Some(out) = wanted::<T>(call, 0) else { return Ok(()) };
    // SAFETY: inputs are not written meanwhile.
    let data = unsafe { call.inputs[0].slice::<T>() };
    let (h, w) = pair(&call.outputs[0]);
    if call.attrs.get::<GridGeneratorParam>().transform_type == GridType::Affine {
        affine_grid(data, (h, w), out);
        return Ok(());
    }
    for (i, (o, &flow)) in out.iter_mut().zip(data).enumerate() {
        let (at, channel) = (i % (h * w), i / (h * w) % 2);
        let (place, n) = if channel == 0 { (at % w, w) } else { (at / w, h) };
        *o = (T::of(place as f64) + flow) * steps(n) - T::one();
    }
    Ok(())
}

/// What one element is on a scale from -1 to 1; an axis of one element counts as two.
fn steps<T: Real>(n: usize) -> T {
    T::of(2.0 / (n as f64 - 1.0).max(1.0))
}

fn grid_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    let Some(out) = wanted::<T>(call, 0) else { return Ok(()) };
    // SAFETY: inputs are not written meanwhile.
    let dy = unsafe { call.inputs[0].slice::<T>() };
    let (h, w) = pair(&call.inputs[0]);
    if call.attrs.get::<GridGeneratorParam>().transform_type == GridType::Affine {
        affine_grad(dy, (h, w), out);
        return Ok(());
    }
    for (i, (o, &g)) in out.iter_mut().zip(dy).enumerate() {
        *o = g * steps(if i / (h * w) % 2 == 0 { w } else { h });
    }
    Ok(())
}

fn transformer<T: Real>(call: &Call<'_>) -> Result<()> {
    let Some(out) = wanted::<T>(call, 0) else { return Ok(()) };
    let e = SamplerExtents::of(&call.inputs[0], &call.outputs[0]);
    // SAFETY: inputs are not written meanwhile.
    let [x, loc] = [0, 1].map(|i| unsafe { call.inputs[i].slice::<T>() });
    with_scratch::<T, _>(e.n * 2 * e.to.0 * e.to.1, |grid| {
        affine_grid(loc, e.to, grid);
        sample(x, grid, &e, out);
    });
    Ok(())
}

fn transformer_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    let e = SamplerExtents::of(&call.inputs[1], &call.inputs[0]);
    // SAFETY: inputs are not written meanwhile.
    let [dy, x, loc] = [0, 1, 2].map(|i| unsafe { call.inputs[i].slice::<T>() });
    let size = e.n * 2 * e.to.0 * e.to.1;
    with_scratch::<T, _>(2 * size, |both| {
        let (grid, dgrid) = both.split_at_mut(size);
        affine_grid(loc, e.to, grid);
        sample_grad(dy, x, grid, &e, wanted(call, 0), Some(&mut *dgrid));
        if let Some(out) = wanted::<T>(call, 1) {
            affine_grad(dgrid, e.to, out);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let x = Tensor::noise(&[2, 2, 3, 4], 1);
        let grid = Tensor::noise(&[2, 2, 3, 2], 2);
        check_gradient("BilinearSampler", &[], &[x.clone(), grid], &[0, 1], true);
        let p = [("target_shape", "(3, 2)"), ("transform_type", "affine")];
        let loc = Tensor::noise(&[2, 6], 3);
        check_gradient("GridGenerator", &p, &[loc.clone()], &[0], true);
        let p = [p[0], p[1], ("sampler_type", "bilinear")];
        check_gradient("SpatialTransformer", &p, &[x, loc], &[0, 1], true);
        let flow = Tensor::noise(&[1, 2, 3, 4], 4);
        check_gradient("GridGenerator", &[("transform_type", "warp")], &[flow], &[0], true);
    }
}
