//! `Crop` and `Pad`: smaller and larger images.

use super::infer::{complete, expect_rank, float_type};
use super::widening;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq, Tuple};
use crate::shape::Shape;
use crate::{param_enum, params, with_real};

params! {
    /// Parameters of `Crop`.
    pub struct CropParam {
        num_args: i32, required.ge(1.0).le(2.0), "1, or 2 with an input whose size is taken.";
        offset: Tuple, default(Tuple::from_slice(&[0, 0])), "First row and column kept, (y, x).";
        h_w: Tuple, default(Tuple::from_slice(&[0, 0])), "Height and width kept, with num_args=1.";
        center_crop: bool, default(false), "Keep the middle; offset is ignored.";
    }
}

param_enum! {
    /// How the padding is filled.
    pub enum PadMode { Constant = "constant", Edge = "edge", Reflect = "reflect" }
}

params! {
    /// Parameters of `Pad`.
    pub struct PadParam {
        mode: PadMode, required, "What is put around: a constant, the nearest element, or the \
                                  mirror image.";
        pad_width: Tuple, required, "Elements before and after each axis: (b0, a0, b1, a1, ...).";
        constant_value: f64, default(0.0), "The value with mode='constant'.";
    }
}

const CROP: &str = r#"
Keeps a rectangle of each image ``(N, C, H, W)``.

Notes
-----
With ``num_args=1`` it has the size ``h_w``; with ``num_args=2`` that of the last two axes of the
second input, whose values do not matter and which gets no gradient. It begins at ``offset``, or
lies in the middle with ``center_crop=True``. float16, float32 or float64, one dtype. A rectangle
that leaves the image is an error.

Examples
--------
>>> nd.Crop(nd.array([[[[1, 2, 3]]]]), h_w=(1, 2), offset=(0, 1))
[[[[2. 3.]]]]
"#;

const PAD: &str = r#"
Puts elements around each image of ``(N, C, H, W)`` or ``(N, C, D, H, W)``.

Notes
-----
``pad_width`` has two numbers an axis, before and after; the first four must be 0.
``mode='constant'`` puts ``constant_value``, ``'edge'`` repeats the outermost elements,
``'reflect'`` mirrors at them without repeating them and needs fewer than there are. float16,
float32 or float64.

Examples
--------
>>> nd.Pad(nd.array([[[[1, 2, 3]]]]), mode='reflect', pad_width=(0, 0, 0, 0, 0, 0, 1, 1))
[[[[2. 1. 2. 3. 2.]]]]
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<CropParam>("Crop")
            .doc(CROP)
            .variadic("num_args", "The images, and optionally an array of the size wanted.")
            .ignores_by(
                |attrs| if attrs.get::<CropParam>().num_args == 2 { vec![1] } else { vec![] },
            )
            .infer_shape(crop_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_none("_backward_Crop"))
            .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => crop::<T>(call)))),
        OpDef::new::<CropParam>("_backward_Crop").kernel(widening::cpu(
            |call| with_real!(call.inputs[0].dtype(), T => crop_grad::<T>(call)),
        )),
        OpDef::new::<PadParam>("Pad")
            .aliases(&["pad"])
            .doc(PAD)
            .inputs_are(&[("data", "The images.")])
            .infer_shape(pad_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_none("_backward_Pad"))
            .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => pad::<T>(call)))),
        OpDef::new::<PadParam>("_backward_Pad").kernel(widening::cpu(
            |call| with_real!(call.inputs[0].dtype(), T => pad_grad::<T>(call)),
        )),
    ]
}

fn crop_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param: &CropParam = attrs.get();
    expect_rank(&inputs[0], "data", 4..=4)?;
    if !inputs[0].rank_known() {
        return Ok(false);
    }
    let mut out = inputs[0].clone();
    let size: Vec<i64> = if let Some(like) = inputs.get(1) {
        expect_rank(like, "crop_like", 4..=4)?;
        if !like.rank_known() { vec![-1, -1] } else { like.dims()[2..].to_vec() }
    } else {
        if param.h_w.len() != 2 {
            return Err(Error::argument("h_w", "value", Shape::new(&param.h_w), "two numbers"));
        }
        param.h_w.to_vec()
    };
    out.dims_mut()[2..].copy_from_slice(&size);
    for a in 2..4 {
        let (room, want) = (inputs[0].dims()[a], size[a - 2]);
        let offset = if param.center_crop { 0 } else { *param.offset.get(a - 2).unwrap_or(&0) };
        if room >= 0 && want >= 0 && (offset < 0 || offset + want > room) {
            let expected = format!("at least {} on axis {a}", offset + want);
            return Err(Error::argument("data", "shape", &inputs[0], expected));
        }
    }
    assign_shape(&mut outputs[0], "output", &out)?;
    complete(inputs, outputs)
}

/// The first row and column that are kept.
pub(in crate::ops) fn crop_start(param: &CropParam, image: &Shape, out: &Shape) -> (usize, usize) {
    let start = |i: usize| match param.center_crop {
        true => (image.dims()[i + 2] - out.dims()[i + 2]) / 2,
        false => *param.offset.get(i).unwrap_or(&0),
    };
    (start(0) as usize, start(1) as usize)
}

/// Calls `f(first element of an image row, first element of an output row, width)` for all rows.
fn crop_rows(
    param: &CropParam,
    image: &Shape,
    out: &Shape,
    f: impl Fn(usize, usize, usize) + Send + Sync,
) {
    let [h, w] = [2, 3].map(|a| image.dims()[a] as usize);
    let [oh, ow] = [2, 3].map(|a| out.dims()[a] as usize);
    let (y, x) = crop_start(param, image, out);
    let planes = image.product(0..2);
    parallel_for(planes * oh, (1usize << 14).div_ceil(ow.max(1)), |range| {
        for i in range {
            let (plane, row) = (i / oh, i % oh);
            f((plane * h + y + row) * w + x, i * ow, ow);
        }
    });
}

fn crop<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let (data, out) = (&call.inputs[0], &call.outputs[0]);
    let (x, y) = (Shared(data.as_ptr::<T>()), Shared(out.as_ptr::<T>()));
    crop_rows(call.attrs.get(), data.shape(), out.shape(), |from, to, n| {
        // SAFETY: inference keeps the rectangle inside the image; output rows belong to one task.
        unsafe { std::ptr::copy_nonoverlapping(x.at(from), y.at(to), n) };
    });
    Ok(())
}

fn crop_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    for (out, _) in call.outputs.iter().zip(call.req).filter(|(_, r)| **r != OpReq::Null) {
        // SAFETY: the output is ours to write and overlaps no input.
        unsafe { out.slice_mut::<T>() }.fill(T::zero());
    }
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let (grad, out) = (&call.inputs[0], &call.outputs[0]);
    let (dy, dx) = (Shared(grad.as_ptr::<T>()), Shared(out.as_ptr::<T>()));
    crop_rows(call.attrs.get(), out.shape(), grad.shape(), |to, from, n| {
        // SAFETY: as in `crop`; rows of the image belong to one task.
        unsafe { std::ptr::copy_nonoverlapping(dy.at(from), dx.at(to), n) };
    });
    Ok(())
}

fn pad_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param: &PadParam = attrs.get();
    let width = &param.pad_width;
    expect_rank(&inputs[0], "data", 4..=5)?;
    if !inputs[0].rank_known() {
        return Ok(false);
    }
    let rank = inputs[0].ndim();
    if width.len() != 2 * rank || width.iter().any(|&p| p < 0) {
        let expected = format!("{} numbers that are not negative", 2 * rank);
        return Err(Error::argument("pad_width", "value", Shape::new(width), expected));
    }
    if width[..4].iter().any(|&p| p != 0) {
        let expected = "padding on the first two axes to be zero";
        return Err(Error::argument("pad_width", "value", Shape::new(width), expected));
    }
    let mut out = inputs[0].clone();
    for a in 0..rank {
        let (size, before, after) = (inputs[0].dims()[a], width[2 * a], width[2 * a + 1]);
        let least = match param.mode {
            PadMode::Constant => 0,
            PadMode::Edge => i64::from(before + after > 0),
            PadMode::Reflect => before.max(after) + i64::from(before + after > 0),
        };
        if size >= 0 && size < least {
            let expected = format!("at least {least} on axis {a} for this padding");
            return Err(Error::argument("data", "shape", &inputs[0], expected));
        }
        if size >= 0 {
            out.dims_mut()[a] = size + before + after;
        }
    }
    assign_shape(&mut outputs[0], "output", &out)?;
    complete(inputs, outputs)
}

/// For each of the last three axes (leading ones filled), the input index of every output index;
/// `None` is the constant. And the extents of an image plane.
struct PadMap {
    axes: [Vec<Option<usize>>; 3],
    input: [usize; 3],
}

fn pad_map(param: &PadParam, data: &Shape) -> PadMap {
    let spatial = data.ndim() - 2;
    let mut input = [1; 3];
    let axes = [0, 1, 2].map(|i| {
        let Some(a) = (i + spatial).checked_sub(3).map(|a| a + 2) else { return vec![Some(0)] };
        let size = data.dims()[a];
        input[i] = size as usize;
        let (before, after) = (param.pad_width[2 * a], param.pad_width[2 * a + 1]);
        (-before..size + after)
            .map(|at| match param.mode {
                _ if (0..size).contains(&at) => Some(at),
                PadMode::Constant => None,
                PadMode::Edge => Some(at.clamp(0, size - 1)),
                PadMode::Reflect if at < 0 => Some(-at),
                PadMode::Reflect => Some(2 * (size - 1) - at),
            })
            .map(|at| at.map(|at| at as usize))
            .collect()
    });
    PadMap { axes, input }
}

impl PadMap {
    /// Calls `f(output index, input index)` for every element of a plane in order.
    #[inline(always)]
    fn elements(&self, mut f: impl FnMut(usize, Option<usize>)) {
        let mut i = 0;
        for d in &self.axes[0] {
            for h in &self.axes[1] {
                let row = d.zip(*h).map(|(d, h)| (d * self.input[1] + h) * self.input[2]);
                for w in &self.axes[2] {
                    f(i, row.zip(*w).map(|(r, w)| r + w));
                    i += 1;
                }
            }
        }
    }

    fn out_size(&self) -> usize {
        self.axes.iter().map(Vec::len).product()
    }
}

fn pad<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let param: &PadParam = call.attrs.get();
    let data = &call.inputs[0];
    let map = pad_map(param, data.shape());
    let (inner, outer) = (map.input.iter().product::<usize>(), map.out_size());
    let fill = T::of(param.constant_value);
    let (x, y) = (Shared(data.as_ptr::<T>()), Shared(call.outputs[0].as_ptr::<T>()));
    let planes = data.shape().product(0..2);
    parallel_for(planes, (1usize << 14).div_ceil(outer.max(1)), |range| {
        for p in range {
            // SAFETY: the maps stay inside the planes; output planes belong to one task.
            map.elements(|to, from| unsafe {
                *y.at(p * outer + to) = from.map_or(fill, |i| *x.at(p * inner + i));
            });
        }
    });
    Ok(())
}

fn pad_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let out = &call.outputs[0];
    let map = pad_map(call.attrs.get(), out.shape());
    let (inner, outer) = (map.input.iter().product::<usize>(), map.out_size());
    let (dy, dx) = (Shared(call.inputs[0].as_ptr::<T>()), Shared(out.as_ptr::<T>()));
    let planes = out.shape().product(0..2);
    parallel_for(planes, (1usize << 14).div_ceil(outer.max(1)), |range| {
        // An element at an edge may have been repeated often, so they are added in f64.
        with_scratch::<f64, _>(inner, |sums| {
            for p in range {
                sums.fill(0.0);
                map.elements(|from, to| {
                    if let Some(i) = to {
                        // SAFETY: as in `pad`.
                        sums[i] += Element::to_f64(unsafe { *dy.at(p * outer + from) });
                    }
                });
                for (i, &sum) in sums.iter().enumerate() {
                    // SAFETY: image planes belong to one task.
                    unsafe { *dx.at(p * inner + i) = T::of(sum) };
                }
            }
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    fn counting(dims: &[i64]) -> Tensor {
        let n: i64 = dims.iter().product();
        Tensor::of(dims, &(0..n).map(|i| i as f64).collect::<Vec<_>>())
    }

    // The figures were read off MXNet 1.9.1.
    #[test]
    fn crops_where_asked() {
        let x = [counting(&[1, 1, 4, 4])];
        let one = |more: &[(&'static str, &'static str)]| {
            values("Crop", &[&[("num_args", "1")][..], more].concat(), &x)
        };
        assert_eq!(one(&[("h_w", "(2,2)"), ("center_crop", "1")]), [5., 6., 9., 10.]);
        assert_eq!(one(&[("h_w", "(2,3)"), ("offset", "(1,1)")]), [5., 6., 7., 9., 10., 11.]);
        let two = [counting(&[1, 1, 5, 5]), counting(&[1, 3, 2, 2])];
        assert_eq!(
            values("Crop", &[("num_args", "2"), ("center_crop", "1")], &two),
            [6., 7., 11., 12.]
        );
        let bad = [("num_args", "1"), ("h_w", "(6,2)")];
        assert!(infer_shapes("Crop", &bad, &[Some(&[1, 1, 5, 5])]).is_err());
    }

    #[test]
    fn pads_as_asked() {
        let x = [counting(&[1, 1, 2, 3])];
        let at = |mode| values("Pad", &[("mode", mode), ("pad_width", "(0,0,0,0,1,0,1,2)")], &x);
        assert_eq!(
            at("reflect"),
            [4., 3., 4., 5., 4., 3., 1., 0., 1., 2., 1., 0., 4., 3., 4., 5., 4., 3.]
        );
        assert_eq!(at("edge")[..6], [0., 0., 1., 2., 2., 2.]);
        assert_eq!(at("constant")[6..12], [0., 0., 1., 2., 0., 0.]);
        let infer = |p: &str, d: &[i64]| {
            infer_shapes("Pad", &[("mode", "reflect"), ("pad_width", p)], &[Some(d)])
        };
        assert!(infer("(0,0,0,0,3,3,3,3)", &[1, 1, 3, 3]).is_err());
        assert!(infer("(1,1,0,0,0,0,0,0)", &[1, 1, 3, 3]).is_err());
        assert!(infer("(0,0,0,0,1,1)", &[1, 3, 3]).is_err());
    }

    #[test]
    fn gradients_match_differences() {
        let p = [("num_args", "2"), ("offset", "(1,0)")];
        let inputs = [Tensor::noise(&[2, 2, 4, 3], 1), Tensor::noise(&[1, 1, 2, 2], 2)];
        check_gradient("Crop", &p, &inputs, &[0, 1], true);
        for mode in ["constant", "edge", "reflect"] {
            let p = [("mode", mode), ("pad_width", "(0,0,0,0,1,1,0,2,1,0)")];
            check_gradient("Pad", &p, &[Tensor::noise(&[1, 2, 2, 3, 2], 1)], &[0], true);
            check_half("Pad", &p, &[Tensor::noise(&[1, 2, 2, 3, 2], 1)], true);
        }
    }
}
