//! `_image_resize` and `_cvimresize`: other sizes.

use super::{expect_image, expect_images, images_of};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::image::resize::{Interpolation, Sample, resize};
use crate::operator::{Attrs, Call, Kernel, OpDef, OpReq, Tuple};
use crate::ops::tensor::common::{first_type, from_first};
use crate::params;
use crate::shape::Shape;
use half::f16;

params! {
    /// Parameters of `_image_resize`.
    pub struct ResizeParam {
        size: Tuple, default(Tuple::new()), "(width, height) of the new image, or one number for \
                                             both.";
        keep_ratio: bool, default(false), "Is a single size that of the shorter edge, the ratio of \
                                           the edges kept?";
        interp: i32, default(1), "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos.";
    }
}

params! {
    /// Parameters of `_cvimresize`.
    pub struct CvResizeParam {
        w: i32, required.ge(1.0), "Width of the new image.";
        h: i32, required.ge(1.0), "Height of the new image.";
        interp: i32, default(1), "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos.";
    }
}

const RESIZE: &str = r#"
Resizes an image (H, W, C), or every image of a batch (N, H, W, C).

``size`` is ``(width, height)`` or one number: a square, or with ``keep_ratio`` the shorter edge.
``interp`` is 0 for the nearest pixel, 1 for linear and 2 for cubic interpolation, 3 for the average
of the area that a pixel covers, 4 for Lanczos' filter of 8 by 8 pixels, in OpenCV's conventions.
uint8, float16, float32 or float64; not differentiable.

Examples
--------
>>> x = nd.array([[[0], [10]]], dtype='uint8')
>>> nd.image.resize(x, (4, 1)).reshape((4,))
[ 0  3  8 10]
"#;

const CV_RESIZE: &str = r#"
Resizes an image (H, W, C) to ``w`` columns and ``h`` rows; see ``image.resize``.

uint8, float16, float32 or float64; not differentiable.

Examples
--------
>>> x = nd.array([[[0], [10]]], dtype='uint8')
>>> nd._internal._cvimresize(x, w=4, h=1, interp=0).reshape((4,))
[ 0  0 10 10]
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<ResizeParam>("_image_resize")
            .aliases(&["_npx__image_resize"])
            .doc(RESIZE)
            .inputs_are(&[("data", "The image or images.")])
            .infer_shape(|attrs, inputs, outputs| {
                let p: &ResizeParam = attrs.get();
                Interpolation::from_number(p.interp.into())?;
                from_first(inputs, outputs, |shape| {
                    expect_images(shape)?;
                    let (_, extent) = images_of(shape);
                    resized(shape, new_size(p, extent.width, extent.height)?)
                })
            })
            .infer_type(image_type)
            .kernel(Kernel::cpu(|call| run(call, call.attrs.get::<ResizeParam>().interp))),
        OpDef::new::<CvResizeParam>("_cvimresize")
            .aliases(&["_npi_cvimresize"])
            .doc(CV_RESIZE)
            .inputs_are(&[("src", "The image.")])
            .infer_shape(|attrs, inputs, outputs| {
                let p: &CvResizeParam = attrs.get();
                Interpolation::from_number(p.interp.into())?;
                from_first(inputs, outputs, |shape| {
                    expect_image(shape)?;
                    resized(shape, (p.w.into(), p.h.into()))
                })
            })
            .infer_type(image_type)
            .kernel(Kernel::cpu(|call| run(call, call.attrs.get::<CvResizeParam>().interp))),
    ]
}

/// (width, height) of the new image.
fn new_size(p: &ResizeParam, width: usize, height: usize) -> Result<(i64, i64)> {
    let refused = || {
        let expected = "one or two positive numbers";
        Err(Error::argument("size", "value", Shape::new(&p.size), expected))
    };
    match p.size[..] {
        _ if p.size.iter().any(|s| *s < 1) => refused(),
        [size] if !p.keep_ratio || width == 0 || height == 0 => Ok((size, size)),
        // The quotient of whole numbers, rounded down.
        [size] if height > width => Ok((size, size.saturating_mul(height as i64) / width as i64)),
        [size] => Ok((size.saturating_mul(width as i64) / height as i64, size)),
        [width, height] => Ok((width, height)),
        _ => refused(),
    }
}

/// `old` with other extents; an image without pixels has nothing to make them of.
fn resized(old: &Shape, (width, height): (i64, i64)) -> Result<Shape> {
    if old.size() == 0 {
        return Err(Error::argument("data", "shape", old, "at least one pixel"));
    }
    let mut dims = old.dims().to_vec();
    let n = dims.len();
    (dims[n - 3], dims[n - 2]) = (height, width);
    Ok(Shape::new(&dims))
}

fn image_type(
    attrs: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    match inputs[0] {
        Some(t) if t != DType::U8 && !t.is_float() => {
            Err(Error::argument("data", "dtype", t, "uint8, float16, float32 or float64"))
        }
        _ => first_type(attrs, inputs, outputs),
    }
}

fn run(call: &Call<'_>, interp: i32) -> Result<()> {
    let how = Interpolation::from_number(interp.into())?;
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    match call.inputs[0].dtype() {
        DType::U8 => resize_all::<u8>(call, how),
        DType::F16 => resize_all::<f16>(call, how),
        DType::F32 => resize_all::<f32>(call, how),
        _ => resize_all::<f64>(call, how),
    }
    Ok(())
}

fn resize_all<T: Element + Sample>(call: &Call<'_>, how: Interpolation) {
    let (old, new) = (&call.inputs[0], &call.outputs[0]);
    let ((_, from), (_, to)) = (images_of(old.shape()), images_of(new.shape()));
    // SAFETY: the output is ours to write and overlaps no input.
    let (old, new) = unsafe { (old.slice::<T>(), new.slice_mut::<T>()) };
    for (old, new) in old.chunks_exact(from.size()).zip(new.chunks_exact_mut(to.size())) {
        resize(from, old, to, new, how);
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn sizes_as_asked() {
        let shape = |p: &[(&'static str, &'static str)]| {
            infer_shapes("_image_resize", p, &[Some(&[2, 4, 3])]).map(|s| s.2[0].dims().to_vec())
        };
        assert_eq!(shape(&[("size", "(2,3)")]).unwrap(), [3, 2, 3]);
        assert_eq!(shape(&[("size", "5")]).unwrap(), [5, 5, 3]);
        assert_eq!(shape(&[("size", "3"), ("keep_ratio", "1")]).unwrap(), [3, 6, 3]);
        for bad in ["()", "(0,2)", "-1", "(1,2,3)"] {
            assert!(shape(&[("size", bad)]).is_err(), "{bad}");
        }
        assert!(shape(&[("size", "2"), ("interp", "9")]).is_err());
    }

    // The figures were read off MXNet 1.9.1.
    #[test]
    fn numbers_as_mxnets() {
        let bytes: Vec<f64> = (0..24).map(f64::from).collect();
        let x = [Tensor::new(&[2, 4, 3], crate::DType::U8, &bytes)];
        let y = values("_image_resize", &[("size", "(2,3)")], &x);
        assert_eq!(y[..8], [1., 2., 3., 7., 8., 9., 8., 9.]);
        let wide = [x[0].cast(crate::DType::F32)];
        let y = values("_image_resize", &[("size", "(2,3)")], &wide);
        assert_eq!(y[..8], [1.5, 2.5, 3.5, 7.5, 8.5, 9.5, 7.5, 8.5]);
    }
}
