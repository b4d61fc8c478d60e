//! `_image_crop` and the flips: which pixels of an image make another one.

use super::expect_images;
use crate::error::{Error, Result};
use crate::operator::{Attrs, NoParam, OpDef};
use crate::ops::tensor::movement::moving;
use crate::ops::tensor::moves::Path;
use crate::params;
use crate::shape::{Dims, Shape};

params! {
    /// Parameters of `_image_crop`.
    pub struct CropParam {
        x: i32, required.ge(0.0), "The first column kept.";
        y: i32, required.ge(0.0), "The first row kept.";
        width: i32, required.ge(1.0), "How many columns are kept.";
        height: i32, required.ge(1.0), "How many rows are kept.";
    }
}

const CROP: &str = r#"
Keeps a rectangle of an image (H, W, C), or of every image of a batch (N, H, W, C).

The output is (height, width, C), or (N, height, width, C), of the input's dtype, which may be any.
A rectangle that leaves the image is an error.

Examples
--------
>>> x = nd.arange(12).reshape((2, 3, 2))
>>> nd.image.crop(x, x=1, y=0, width=2, height=1)
[[[2. 3.]
  [4. 5.]]]
"#;

const LEFT_RIGHT: &str = r#"
Mirrors an image (H, W, C), or every image of a batch (N, H, W, C): left becomes right. Any dtype.

Examples
--------
>>> nd.image.flip_left_right(nd.array([[[1], [2], [3]]]))
[[[3.]
  [2.]
  [1.]]]
"#;

const TOP_BOTTOM: &str = r#"
Turns an image (H, W, C), or every image of a batch (N, H, W, C), upside down. Any dtype.

Examples
--------
>>> nd.image.flip_top_bottom(nd.array([[[1]], [[2]]])).reshape((2,))
[2. 1.]
"#;

pub fn operators() -> Vec<OpDef> {
    let crop = OpDef::new::<CropParam>("_image_crop").aliases(&["_npx__image_crop"]).doc(CROP);
    let flip = |name: &str, alias: &str, doc| {
        OpDef::new::<NoParam>(name)
            .aliases(&[alias])
            .doc(doc)
            .inputs_are(&[("data", "The image or images.")])
    };
    let left_right = flip("_image_flip_left_right", "_npx__image_flip_left_right", LEFT_RIGHT);
    let top_bottom = flip("_image_flip_top_bottom", "_npx__image_flip_top_bottom", TOP_BOTTOM);
    let mut all = moving(crop.inputs_are(&[("data", "The image or images.")]), crop_path);
    all.extend(moving(left_right, |_, inputs| flipped(&inputs[0], 2)));
    all.extend(moving(top_bottom, |_, inputs| flipped(&inputs[0], 3)));
    all
}

fn crop_path(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (p, shape) = (attrs.get::<CropParam>(), &inputs[0]);
    expect_images(shape)?;
    let mut out = Dims::from_slice(shape.dims());
    let strides = Dims::from_slice(&shape.strides());
    let mut start = 0;
    for (back, first, count) in [(3, p.y, p.height), (2, p.x, p.width)] {
        let (axis, end) = (out.len() - back, i64::from(first) + i64::from(count));
        if end > out[axis] {
            let expected = format!("at least {end} on axis {axis} for this rectangle");
            return Err(Error::argument("data", "shape", shape, expected));
        }
        out[axis] = count.into();
        start += i64::from(first) * strides[axis];
    }
    Ok(Path { dims: out.clone(), out, start, strides })
}

/// The path that walks backwards along the axis `back` from the last.
fn flipped(shape: &Shape, back: usize) -> Result<Path> {
    expect_images(shape)?;
    let out = Dims::from_slice(shape.dims());
    let mut strides = Dims::from_slice(&shape.strides());
    let axis = out.len() - back;
    let start = (out[axis] - 1).max(0) * strides[axis];
    strides[axis] = -strides[axis];
    Ok(Path { dims: out.clone(), out, start, strides })
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn rectangles_and_mirrors() {
        let x = [Tensor::of(&[2, 3, 1], &[1., 2., 3., 4., 5., 6.])];
        let crop = [("x", "1"), ("y", "0"), ("width", "2"), ("height", "2")];
        assert_eq!(values("_image_crop", &crop, &x), [2., 3., 5., 6.]);
        assert_eq!(values("_image_flip_left_right", &[], &x), [3., 2., 1., 6., 5., 4.]);
        assert_eq!(values("_image_flip_top_bottom", &[], &x), [4., 5., 6., 1., 2., 3.]);
        let beyond = [("x", "2"), ("y", "0"), ("width", "2"), ("height", "2")];
        assert!(run("_image_crop", &beyond, &x, false).is_err());
        let huge = [("x", "2147483647"), ("y", "0"), ("width", "2147483647"), ("height", "1")];
        assert!(run("_image_crop", &huge, &x, false).is_err());
    }
}
