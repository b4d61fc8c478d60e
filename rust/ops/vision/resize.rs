//! `BilinearResize2D` and `AdaptiveAvgPooling2D`.

use crate::error::{Error, Result};
use crate::kernels::real::Real;
use crate::kernels::separable::{self, Taps};
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq, Tuple};
use crate::ops::nn::infer::{complete, expect_rank, float_type};
use crate::ops::nn::widening;
use crate::ops::tensor::common::zero_view;
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_real};

param_enum! {
    /// Where the extents of a resized image come from.
    pub enum ResizeMode {
        Size = "size", OddScale = "odd_scale", Like = "like", ToEvenDown = "to_even_down",
        ToEvenUp = "to_even_up", ToOddDown = "to_odd_down", ToOddUp = "to_odd_up",
    }
}

params! {
    /// Parameters of `_contrib_BilinearResize2D`.
    pub struct BilinearResizeParam {
        height: i32, default(1).ge(1.0).le(10000.0), "Height of the output, with mode='size' and \
                                                      no scale.";
        width: i32, default(1).ge(1.0).le(10000.0), "Width of the output, with mode='size' and no \
                                                     scale.";
        scale_height: Option<f32>, default(None), "Factor of the height.";
        scale_width: Option<f32>, default(None), "Factor of the width.";
        mode: ResizeMode, default(ResizeMode::Size), "Where the extents of the output come from.";
        align_corners: bool, default(true), "Do the corner elements of both images lie on each \
                                             other? Else their borders do.";
    }
}

params! {
    /// Parameters of `_contrib_AdaptiveAvgPooling2D`.
    pub struct AdaptiveAvgPoolingParam {
        output_size: Tuple, default(Tuple::new()), "Extents of the output: (h, w), one number for \
                                                    both, or () for (1, 1).";
    }
}

const RESIZE: &str = r#"
Resizes images by bilinear interpolation.

Element ``i`` of ``m`` lies at ``i * (n - 1) / (m - 1)`` of the ``n`` input elements, with
``align_corners=False`` at ``max(0, (i + 0.5) * n / m - 0.5)``.

Notes
-----
Data ``(N, C, H, W)``, output ``(N, C, height, width)``. With mode ``size`` the extents are
``height`` and ``width``, or, if both are given, ``floor(H * scale_height)`` and ``floor(W *
scale_width)``. ``odd_scale`` makes ``floor(H * scale)`` of an even and ``floor((H - 1) * scale) +
1`` of an odd extent; ``to_even_down``, ``to_even_up``, ``to_odd_down`` and ``to_odd_up`` change an
extent by one if it is not even (odd) already; ``like`` takes the last two extents of a second
input, whose gradient is zero. One dtype: float16 (calculated in float32), float32 or float64.

Examples
--------
>>> nd.contrib.BilinearResize2D(nd.array([[[[0, 2]]]]), height=1, width=3)
[[[[0. 1. 2.]]]]
"#;

const ADAPTIVE: &str = r#"
Averages over a grid of bins that covers the image.

Bin ``i`` of ``m`` takes the elements ``floor(i * n / m)`` to ``ceil((i + 1) * n / m)`` (exclusive)
of the ``n`` along an axis.

Notes
-----
Data ``(N, C, H, W)``, output ``(N, C, *output_size)``. One dtype: float16 (calculated in float32),
float32 or float64.

Examples
--------
>>> nd.contrib.AdaptiveAvgPooling2D(nd.array([[[[1, 2, 3]]]]), output_size=(1, 2))
[[[[1.5 2.5]]]]
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<BilinearResizeParam>("_contrib_BilinearResize2D")
            .doc(RESIZE)
            .inputs_are(&[
                ("data", "The images (N, C, H, W)."),
                ("like", "Gives the extents, with mode='like' (..., height, width)."),
            ])
            .input_names_by(|attrs| {
                let like = attrs.get::<BilinearResizeParam>().mode == ResizeMode::Like;
                let names = if like { &["data", "like"][..] } else { &["data"] };
                names.iter().map(|n| (*n).to_owned()).collect()
            })
            .ignores_by(|attrs| {
                let like = attrs.get::<BilinearResizeParam>().mode == ResizeMode::Like;
                if like { vec![1] } else { vec![] }
            })
            .infer_shape(resize_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_none("_backward_contrib_BilinearResize2D"))
            .kernel(widening::cpu(
                |c| with_real!(c.inputs[0].dtype(), T => forward::<T>(c, &resize_taps(c))),
            )),
        OpDef::new::<BilinearResizeParam>("_backward_contrib_BilinearResize2D").kernel(
            widening::cpu(
                |c| with_real!(c.inputs[0].dtype(), T => backward::<T>(c, &resize_taps(c))),
            ),
        ),
        OpDef::new::<AdaptiveAvgPoolingParam>("_contrib_AdaptiveAvgPooling2D")
            .doc(ADAPTIVE)
            .inputs_are(&[("data", "The images (N, C, H, W).")])
            .infer_shape(adaptive_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_none("_backward_contrib_AdaptiveAvgPooling2D"))
            .kernel(widening::cpu(
                |c| with_real!(c.inputs[0].dtype(), T => forward::<T>(c, &separable::averages)),
            )),
        OpDef::new::<AdaptiveAvgPoolingParam>("_backward_contrib_AdaptiveAvgPooling2D").kernel(
            widening::cpu(
                |c| with_real!(c.inputs[0].dtype(), T => backward::<T>(c, &separable::averages)),
            ),
        ),
    ]
}

/// Makes the taps of one axis from its input and output extents.
type MakeTaps<'a, T> = &'a dyn Fn(usize, usize) -> Taps<T>;

fn resize_taps<T: Real>(call: &Call<'_>) -> impl Fn(usize, usize) -> Taps<T> {
    let align = call.attrs.get::<BilinearResizeParam>().align_corners;
    move |n, m| separable::bilinear(n, m, align)
}

/// The taps of rows and columns between a large and a small image, whichever is the input.
fn both<T: Real>(from: &View, to: &View, taps: MakeTaps<'_, T>) -> (usize, Taps<T>, Taps<T>) {
    let [h, w] = [2, 3].map(|i| from.dims()[i] as usize);
    (w, taps(h, to.dims()[2] as usize), taps(w, to.dims()[3] as usize))
}

fn forward<T: Real>(call: &Call<'_>, taps: MakeTaps<'_, T>) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    if call.req[0] != OpReq::Null && y.size() > 0 {
        let (width, rows, columns) = both(x, y, taps);
        // SAFETY: the output is ours to write and overlaps no input.
        unsafe { separable::apply(x.slice::<T>(), width, &rows, &columns, y.slice_mut::<T>()) };
    }
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>, taps: MakeTaps<'_, T>) -> Result<()> {
    let (dy, dx) = (&call.inputs[0], &call.outputs[0]);
    if call.req[0] != OpReq::Null && dx.size() > 0 {
        let (width, rows, columns) = both(dx, dy, taps);
        // SAFETY: as in `forward`.
        unsafe {
            separable::transposed(dy.slice::<T>(), width, &rows, &columns, dx.slice_mut::<T>())
        };
    }
    for (out, _) in call.outputs.iter().zip(call.req).skip(1).filter(|(_, r)| **r != OpReq::Null) {
        zero_view(out);
    }
    Ok(())
}

/// An extent of the output from that of the input and its scale, for all modes but `like`.
fn resized(mode: ResizeMode, n: i64, scale: Option<f32>, size: i32) -> i64 {
    let times = |n: i64| (n as f32 * scale.unwrap_or(1.0)) as i64;
    match mode {
        ResizeMode::Size | ResizeMode::Like => scale.map_or(size.into(), |_| times(n)),
        ResizeMode::OddScale if n % 2 == 0 => times(n),
        ResizeMode::OddScale => ((n - 1) as f32 * scale.unwrap_or(1.0)) as i64 + 1,
        ResizeMode::ToEvenDown => n - n % 2,
        ResizeMode::ToEvenUp => n + n % 2,
        ResizeMode::ToOddDown => n - 1 + n % 2,
        ResizeMode::ToOddUp => n + 1 - n % 2,
    }
}

fn resize_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p: &BilinearResizeParam = attrs.get();
    if p.scale_height.is_some() != p.scale_width.is_some()
        || (p.mode == ResizeMode::OddScale && p.scale_height.is_none())
    {
        let expected =
            "scale_height and scale_width, both, or neither except with mode='odd_scale'";
        return Err(Error::value(format!("invalid scales: expected {expected}")));
    }
    expect_rank(&inputs[0], "data", 4..=4)?;
    let mut size = [-1, -1];
    if p.mode == ResizeMode::Like {
        expect_rank(&inputs[1], "like", 2..=usize::MAX)?;
        if let [.., h, w] = inputs[1].dims() {
            size = [*h, *w];
        }
    } else if let &[_, _, h, w] = inputs[0].dims() {
        let fixed = p.mode == ResizeMode::Size && p.scale_height.is_none();
        let one =
            |n, scale, size| if n < 0 && !fixed { -1 } else { resized(p.mode, n, scale, size) };
        size = [one(h, p.scale_height, p.height), one(w, p.scale_width, p.width)];
        if let Some(bad) = size.iter().find(|&&s| s == 0) {
            return Err(Error::argument("output", "extent", bad, "at least 1"));
        }
    }
    let lead = |s: &Shape| if s.rank_known() { [s.dims()[0], s.dims()[1]] } else { [-1, -1] };
    let [n, c] = lead(&inputs[0]);
    assign_shape(&mut outputs[0], "output", &Shape::new(&[n, c, size[0], size[1]]))?;
    let [n, c] = lead(&outputs[0]);
    assign_shape(&mut inputs[0], "data", &Shape::new(&[n, c, -1, -1]))?;
    not_empty(&inputs[0])?;
    complete(inputs, outputs)
}

/// An image without elements has nothing to interpolate or to average.
pub fn not_empty(data: &Shape) -> Result<()> {
    match data.dims() {
        [_, _, h, w] if *h == 0 || *w == 0 => {
            Err(Error::argument("data", "shape", data, "height and width of at least 1"))
        }
        _ => Ok(()),
    }
}

fn adaptive_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let given = &attrs.get::<AdaptiveAvgPoolingParam>().output_size;
    let size = match given[..] {
        [] => [1, 1],
        [n] => [n, n],
        [h, w] => [h, w],
        _ => [0, 0],
    };
    if size.iter().any(|&s| s < 1) {
        let expected = "one or two positive numbers";
        return Err(Error::argument("output_size", "value", Shape::new(given), expected));
    }
    expect_rank(&inputs[0], "data", 4..=4)?;
    assign_shape(&mut outputs[0], "output", &Shape::new(&[-1, -1, size[0], size[1]]))?;
    let known = outputs[0].dims();
    assign_shape(&mut inputs[0], "data", &Shape::new(&[known[0], known[1], -1, -1]))?;
    let d = inputs[0].dims();
    assign_shape(&mut outputs[0], "output", &Shape::new(&[d[0], d[1], size[0], size[1]]))?;
    not_empty(&inputs[0])?;
    complete(inputs, outputs)
}
