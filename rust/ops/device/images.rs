//! Smaller and larger images: cropped, padded, and with elements repeated.

use super::reduce::{Fold, fold_functions};
use super::shape::copy_views;
use super::{FLOATS, KernelsOf, add, kernel, wanted};
use crate::args;
use crate::dtype::DType;
use crate::operator::{Argument, Compare, Grid, Kernel, Match, OpReq};
use crate::ops::nn::crop_pad::{CropParam, PadMode, PadParam, crop_start};
use crate::ops::nn::upsampling::{MultiInput, UpSamplingParam};
use crate::ops::tensor::parts::region;
use crate::shape::Shape;
use crate::tensor::View;

/// `Padding` of `padding.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Padding {
    input: [i32; 3],
    output: [i32; 3],
    before: [i32; 3],
    mode: i32,
}

// SAFETY: numbers, as in CUDA source.
unsafe impl Argument for Padding {}

impl Padding {
    fn of(p: &PadParam, image: &Shape) -> Self {
        let (mut input, mut output, mut before) = ([1; 3], [1; 3], [0; 3]);
        let spatial = image.ndim() - 2;
        for (i, a) in (3 - spatial..3).zip(2..) {
            let [front, back] = [0, 1].map(|side| p.pad_width[2 * a + side] as i32);
            input[i] = image.dims()[a] as i32;
            output[i] = front + input[i] + back;
            before[i] = front;
        }
        let mode = match p.mode {
            PadMode::Constant => 0,
            PadMode::Edge => 1,
            PadMode::Reflect => 2,
        };
        Padding { input, output, before, mode }
    }
}

fn pad() -> Vec<Kernel> {
    vec![kernel("padding", &["pad<$0>"], &[("data", FLOATS)], |call, launcher| {
        let (p, x, y) = (call.attrs.get::<PadParam>(), &call.inputs[0], &call.outputs[0]);
        let (padding, n) = (Padding::of(p, x.shape()), y.size());
        let mut args = args![n as i64, x.ptr(), y.ptr(), padding, p.constant_value, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn pad_back() -> Vec<Kernel> {
    vec![kernel("padding", &["pad_back<$0>"], &[("data", FLOATS)], |call, launcher| {
        let (g, dx) = (&call.inputs[0], &call.outputs[0]);
        let (padding, n) = (Padding::of(call.attrs.get(), dx.shape()), dx.size());
        let mut args = args![n as i64, g.ptr(), dx.ptr(), padding, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// The rectangle of an image that a crop keeps.
fn kept(p: &CropParam, image: &View, part: &Shape) -> View {
    let (y, x) = crop_start(p, image.shape(), part);
    region(image, part, &[0, 0, y as i64, x as i64], &[1; 4])
}

fn crop() -> Vec<Kernel> {
    vec![kernel("shape", &["copy<$0>"], &[("arg0", FLOATS)], |call, launcher| {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        let from = kept(call.attrs.get(), x, y.shape());
        copy_views(launcher, 0, &from, y, add(call, 0))
    })]
}

fn crop_back() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    vec![Kernel::cuda("shape", &["copy<$0>"], types, |call, launcher| {
        for (i, out) in call.outputs.iter().enumerate() {
            if wanted(call, i) && call.req[i] != OpReq::Add {
                launcher.clear(out.ptr(), out.size_bytes())?;
            }
        }
        if !wanted(call, 0) {
            return Ok(());
        }
        let (g, dx) = (&call.inputs[0], &call.outputs[0]);
        let to = kept(call.attrs.get(), dx, g.shape());
        copy_views(launcher, 0, g, &to, add(call, 0))
    })]
}

fn is(parameter: &str, value: &str) -> Match {
    Match::Attr(parameter.into(), Compare::Eq, value.into())
}

/// An image (N, C, H, W) as (N, C, H, 1, W, 1), and its enlargement as (N, C, H, a, W, b).
fn spread(small: &View, large: &Shape) -> Shape {
    let [h, w] = [2, 3].map(|a| small.dims()[a].max(1));
    let d = large.dims();
    Shape::new(&[d[0], d[1], h, d[2] / h, w, d[3] / w])
}

/// Each input is copied to its channels, with steps of zero along the axes that repeat.
fn nearest() -> Vec<Kernel> {
    let made = kernel("shape", &["copy<$0>"], &[("arg0", FLOATS)], |call, launcher| {
        let (y, sums) = (
            &call.outputs[0],
            call.attrs.get::<UpSamplingParam>().multi_input_mode == MultiInput::Sum,
        );
        let mut channel = 0;
        for (i, x) in call.inputs.iter().enumerate() {
            let mut part = y.shape().clone();
            part.dims_mut()[1] = x.dims()[1];
            let to = region(y, &part, &[0, if sums { 0 } else { channel }, 0, 0], &[1; 4]);
            channel += x.dims()[1];
            let six = spread(x, &part);
            let (s, t, d) = (x.strides(), to.strides(), six.dims());
            let from = [s[0], s[1], s[2], 0, s[3], 0];
            let at = [t[0], t[1], t[2] * d[3], t[2], t[3] * d[5], t[3]];
            // SAFETY: the same elements by other steps.
            let (from, to) = unsafe {
                (
                    View::with_strides(x.ptr(), six.clone(), from.into_iter().collect(), x.dtype()),
                    View::with_strides(to.ptr(), six, at.into_iter().collect(), y.dtype()),
                )
            };
            copy_views(launcher, 0, &from, &to, i32::from(add(call, 0) == 1 || sums && i > 0))?;
        }
        Ok(())
    });
    vec![made.only(is("sample_type", "nearest"))]
}

/// The gradient of one image: the sum over the pixels that each pixel was repeated to.
fn nearest_back() -> Vec<Kernel> {
    let functions = fold_functions("SumFold<$0>");
    let functions = functions.each_ref().map(String::as_str);
    let made = kernel("movement", &functions, &[("data", FLOATS)], |call, launcher| {
        let (g, dx) = (&call.inputs[0], &call.outputs[0]);
        let fold = Fold::over(&spread(dx, g.shape()), &[false, false, false, true, false, true])?;
        fold.issue(launcher, 0, g.ptr(), dx.ptr(), add(call, 0))
    });
    vec![made.only(is("sample_type", "nearest")).only(is("num_args", "1"))]
}

fn upsampling() -> Vec<Kernel> {
    let bilinear = super::window::bilinear().only(is("sample_type", "bilinear"));
    nearest().into_iter().chain([bilinear]).collect()
}

fn upsampling_back() -> Vec<Kernel> {
    let bilinear = super::window::bilinear_back().only(is("sample_type", "bilinear"));
    nearest_back().into_iter().chain([bilinear]).collect()
}

pub const TABLE: &[KernelsOf] = &[
    ("Pad", pad),
    ("_backward_Pad", pad_back),
    ("Crop", crop),
    ("_backward_Crop", crop_back),
    ("UpSampling", upsampling),
    ("_backward_UpSampling", upsampling_back),
];
