//! `_image_to_tensor` and `_image_normalize`: from pixels to what networks take.

use super::{expect_images, images_of, is_single};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Gradient, InplacePair, Kernel, NoParam, OpDef, OpReq};
use crate::ops::tensor::common::{first_type, from_first};
use crate::shape::Shape;
use crate::{params, with_dtype};

params! {
    /// Parameters of `_image_normalize`.
    pub struct NormalizeParam {
        mean: Vec<f32>, default(vec![0.0; 4]), "What is subtracted: one number, or one per channel.";
        std: Vec<f32>, default(vec![1.0; 4]), "What is divided by: one number, or one per channel.";
    }
}

const TO_TENSOR: &str = r#"
Divides an image by 255 and puts its channels first.

(H, W, C) becomes (C, H, W), and (N, H, W, C) becomes (N, C, H, W), float32, from any dtype.

Examples
--------
>>> x = nd.array([[[0, 51], [102, 255]]], dtype='uint8')
>>> nd.image.to_tensor(x).reshape((2, 2))
[[0.  0.4]
 [0.2 1. ]]
"#;

const NORMALIZE: &str = r#"
``(data - mean) / std``, channel by channel, of a tensor (C, H, W) or a batch (N, C, H, W) with 1 or
3 channels.

``mean`` and ``std`` have one number for all channels or one for each. Any dtype; with integers the
result is cut to a whole number.

Examples
--------
>>> x = nd.array([[[1, 2]], [[3, 4]], [[5, 6]]])
>>> nd.image.normalize(x, mean=(1, 2, 3), std=(1, 2, 4)).reshape((3, 2))
[[0.   1.  ]
 [0.5  1.  ]
 [0.5  0.75]]
"#;

pub fn operators() -> Vec<OpDef> {
    let any = |f: fn(&Call<'_>) -> Result<()>| {
        Kernel::cpu(
            move |call| {
                if call.req.iter().all(|r| *r == OpReq::Null) { Ok(()) } else { f(call) }
            },
        )
    };
    vec![
        OpDef::new::<NoParam>("_image_to_tensor")
            .aliases(&["_npx__image_to_tensor"])
            .doc(TO_TENSOR)
            .inputs_are(&[("data", "The image or images.")])
            .infer_shape(|_, inputs, outputs| {
                from_first(inputs, outputs, |shape| {
                    expect_images(shape)?;
                    let mut dims = shape.dims().to_vec();
                    let n = dims.len();
                    dims[n - 3..].rotate_right(1);
                    Ok(Shape::new(&dims))
                })
            })
            .infer_type(|_, inputs, outputs| {
                assign_type(&mut outputs[0], "output", DType::F32)?;
                Ok(inputs[0].is_some())
            })
            .gradient(Gradient::use_none("_backward_image_to_tensor"))
            .kernel(any(|call| with_dtype!(call.inputs[0].dtype(), T => to_tensor::<T>(call)))),
        OpDef::plain("_backward_image_to_tensor").kernel(any(
            |call| with_dtype!(call.outputs[0].dtype(), T => to_tensor_grad::<T>(call)),
        )),
        OpDef::new::<NormalizeParam>("_image_normalize")
            .aliases(&["_npx__image_normalize"])
            .doc(NORMALIZE)
            .inputs_are(&[("data", "The tensor or tensors, channels first.")])
            .infer_shape(normalize_shape)
            .infer_type(first_type)
            .inplace(&[InplacePair::new(0, 0)])
            .gradient(Gradient::use_none("_backward_image_normalize"))
            .kernel(any(
                |call| with_dtype!(call.inputs[0].dtype(), T => normalize::<T>(call, true)),
            )),
        OpDef::new::<NormalizeParam>("_backward_image_normalize")
            .inplace(&[InplacePair::new(0, 0)])
            .kernel(any(
                |call| with_dtype!(call.inputs[0].dtype(), T => normalize::<T>(call, false)),
            )),
    ]
}

/// Calls `f(pixel (H, W, C), element (C, H, W))` for all elements of all images.
fn transposed(shape: &Shape, f: impl Fn(usize, usize) + Send + Sync) {
    let (count, extent) = images_of(shape);
    let (plane, c) = (extent.height * extent.width, extent.channels);
    parallel_for(count * plane, 1 << 13, |range| {
        for i in range {
            let (image, pixel) = (i / plane, i % plane);
            for k in 0..c {
                f(i * c + k, (image * c + k) * plane + pixel);
            }
        }
    });
}

fn to_tensor<T: Element>(call: &Call<'_>) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let (from, to) = (Shared(x.as_ptr::<T>()), Shared(y.as_ptr::<f32>()));
    transposed(x.shape(), |pixel, element| {
        // SAFETY: both are inside of their arrays; every element is written once.
        unsafe { *to.at(element) = (*from.at(pixel)).to_f64() as f32 / 255.0 };
    });
    Ok(())
}

fn to_tensor_grad<T: Element>(call: &Call<'_>) -> Result<()> {
    let (dy, dx) = (&call.inputs[0], &call.outputs[0]);
    let (from, to) = (Shared(dy.as_ptr::<f32>()), Shared(dx.as_ptr::<T>()));
    transposed(dx.shape(), |pixel, element| {
        // SAFETY: as in `to_tensor`.
        unsafe { *to.at(pixel) = T::saturating(f64::from(*from.at(element) / 255.0)) };
    });
    Ok(())
}

/// Number `i` of a parameter that has one for all channels or one for each.
fn of_channel(values: &[f32], i: usize) -> f64 {
    values[if values.len() == 1 { 0 } else { i }].into()
}

fn normalize_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p: &NormalizeParam = attrs.get();
    let common = inputs[0].clone();
    assign_shape(&mut outputs[0], "output", &common)?;
    let shape = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &shape)?;
    if !shape.rank_known() {
        return Ok(false);
    }
    let expected = "(channels, height, width) or (N, channels, height, width), 1 or 3 channels";
    if !matches!(shape.ndim(), 3 | 4) || !matches!(shape.dims()[shape.ndim() - 3], -1 | 1 | 3) {
        return Err(Error::argument("data", "shape", shape, expected));
    }
    let channels = shape.dims()[shape.ndim() - 3];
    for (name, values, default) in [("mean", &p.mean, 0.0), ("std", &p.std, 1.0)] {
        // The default has four numbers, whatever the image has.
        let is_default = **values == [default; 4];
        let fits = values.len() == 1 || values.len() as i64 == channels || is_default;
        if channels > 0 && !fits {
            let expected = format!("1 or {channels}");
            return Err(Error::argument(name, "number of elements", values.len(), expected));
        }
    }
    Ok(shape.is_known())
}

/// `(x - mean) / std`, in the precision of the parameters where that holds x: there (23 - 0.4) /
/// 0.2 is 113 and not a little less.
fn scaled<T: Element>(x: f64, mean: f64, std: f64) -> f64 {
    if is_single::<T>(x) {
        f64::from((x as f32 - mean as f32) / std as f32)
    } else {
        (x - mean) / std
    }
}

/// `(x - mean) / std`, or without the mean, for its gradient.
fn normalize<T: Element>(call: &Call<'_>, centred: bool) -> Result<()> {
    let p: &NormalizeParam = call.attrs.get();
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let d = x.dims();
    let (channels, plane) = (d[d.len() - 3] as usize, x.shape().product(d.len() - 2..d.len()));
    let planes = x.shape().product(0..d.len() - 2);
    let (from, to) = (Shared(x.as_ptr::<T>()), Shared(y.as_ptr::<T>()));
    parallel_for(planes, (1usize << 14).div_ceil(plane.max(1)), |range| {
        for i in range {
            let mean = if centred { of_channel(&p.mean, i % channels) } else { 0.0 };
            let std = of_channel(&p.std, i % channels);
            for k in i * plane..(i + 1) * plane {
                // SAFETY: planes belong to one task; with the input in the output's place each
                // element is read before it is written.
                unsafe {
                    *to.at(k) = T::saturating(scaled::<T>((*from.at(k)).to_f64(), mean, std))
                };
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let x = Tensor::noise(&[2, 3, 2, 4], 1);
        let p = [("mean", "(1,2,3)"), ("std", "(1,2,4)")];
        check_gradient("_image_normalize", &p, &[x], &[0], true);
    }

    #[test]
    fn channels_are_counted() {
        let shape = |dims: &[i64], p: &[(&str, &str)]| {
            infer_shapes("_image_normalize", p, &[Some(dims)]).is_ok()
        };
        assert!(shape(&[3, 2, 2], &[]) && shape(&[1, 2, 2], &[]) && shape(&[5, 3, 2, 2], &[]));
        assert!(shape(&[3, 2, 2], &[("mean", "1")]));
        assert!(!shape(&[2, 2, 2], &[]) && !shape(&[3, 2], &[]));
        assert!(!shape(&[3, 2, 2], &[("mean", "(1,2)")]));
        assert!(!shape(&[1, 2, 2], &[("std", "(1,2,3)")]));
    }
}
