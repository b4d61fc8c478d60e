//! `_cvcopyMakeBorder`: pixels around an image.

use super::{expect_image, images_of};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::image::border::{Border, Margins, surround};
use crate::operator::{Call, Kernel, OpDef, OpReq};
use crate::ops::tensor::common::{first_type, from_first};
use crate::shape::Shape;
use crate::{params, with_dtype};

params! {
    /// Parameters of `_cvcopyMakeBorder`.
    #[allow(non_snake_case)] // the operator's parameter is called so
    pub struct BorderParam {
        top: i32, required.ge(0.0), "Rows above.";
        bot: i32, required.ge(0.0), "Rows below.";
        left: i32, required.ge(0.0), "Columns on the left.";
        right: i32, required.ge(0.0), "Columns on the right.";
        r#type: i32, default(0), "0 constant, 1 replicate, 2 reflect, 3 wrap, 4 reflect without \
                                  the edge.";
        value: f64, default(0.0), "The value of a constant border, for all channels.";
        values: Vec<f32>, default(Vec::new()), "The values of a constant border, one per channel.";
    }
}

const DOC: &str = r#"
Puts pixels around an image (H, W, C).

``type`` is 0 for a constant (``value`` in all channels, or ``values``, one per channel), 1 for the
pixels of the edge, 2 for the mirror image, 3 for the opposite side, 4 for the mirror image without
the edge, as OpenCV numbers them. The output is (top + H + bot, left + W + right, C), of the input's
dtype, which may be any; not differentiable.

Examples
--------
>>> x = nd.array([[[1], [2]]])
>>> nd._internal._cvcopyMakeBorder(x, top=0, bot=0, left=1, right=2, type=1).reshape((5,))
[1. 1. 2. 2. 2.]
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<BorderParam>("_cvcopyMakeBorder")
            .doc(DOC)
            .inputs_are(&[("src", "The image.")])
            .infer_shape(|attrs, inputs, outputs| {
                let p: &BorderParam = attrs.get();
                let border = Border::from_number(p.r#type.into())?;
                from_first(inputs, outputs, |shape| {
                    expect_image(shape)?;
                    new_shape(p, border, shape)
                })
            })
            .infer_type(first_type)
            .kernel(Kernel::cpu(|call| with_dtype!(call.inputs[0].dtype(), T => run::<T>(call)))),
    ]
}

fn new_shape(p: &BorderParam, border: Border, old: &Shape) -> Result<Shape> {
    let d = old.dims();
    if border != Border::Constant && d[..2].contains(&0) {
        return Err(Error::argument("src", "shape", old, "at least one pixel"));
    }
    if !matches!(p.values.len(), 0 | 1) && (p.values.len() as i64) < d[2] {
        let (got, expected) = (p.values.len(), format!("1, or at least {}, a channel each", d[2]));
        return Err(Error::argument("values", "number of elements", got, expected));
    }
    let [height, width] = [(0, p.top, p.bot), (1, p.left, p.right)]
        .map(|(axis, before, after)| d[axis] + i64::from(before) + i64::from(after));
    Ok(Shape::new(&[height, width, d[2]]))
}

fn run<T: Element>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let p: &BorderParam = call.attrs.get();
    let (old, new) = (&call.inputs[0], &call.outputs[0]);
    let (_, inner) = images_of(old.shape());
    let fill: Vec<T> = (0..inner.channels)
        .map(|c| match p.values[..] {
            [] => p.value,
            [all] => all.into(),
            ref each => each[c].into(),
        })
        .map(T::saturating)
        .collect();
    let [top, bottom, left, right] = [p.top, p.bot, p.left, p.right].map(|m| m as usize);
    let margins = Margins { top, bottom, left, right };
    let border = Border::from_number(p.r#type.into())?;
    if inner.channels > 0 {
        // SAFETY: the output is ours to write and overlaps no input.
        let (old, new) = unsafe { (old.slice::<T>(), new.slice_mut::<T>()) };
        surround(inner, old, margins, border, &fill, new);
    }
    Ok(())
}
