//! `im2col` and `col2im`: the patches of images as the columns of a matrix, and their sum back.

use super::infer::{complete, expect_rank, float_type};
use super::widening;
use super::window::{spatial, three};
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq, Tuple};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};

params! {
    /// Parameters of `im2col`.
    pub struct Im2ColParam {
        kernel: Tuple, required, "Extents of a patch: (w,), (h, w) or (d, h, w).";
        stride: Tuple, default(Tuple::new()), "Steps between patches; default 1 on every axis.";
        dilate: Tuple, default(Tuple::new()), "Steps between the elements of a patch; default 1 on \
                                               every axis.";
        pad: Tuple, default(Tuple::new()), "Zeros put before and after each spatial axis; default \
                                            0.";
    }
}

params! {
    /// Parameters of `col2im`.
    pub struct Col2ImParam {
        output_size: Tuple, required, "Spatial extents of the images.";
        kernel: Tuple, required, "Extents of a patch: (w,), (h, w) or (d, h, w).";
        stride: Tuple, default(Tuple::new()), "Steps between patches; default 1 on every axis.";
        dilate: Tuple, default(Tuple::new()), "Steps between the elements of a patch; default 1 on \
                                               every axis.";
        pad: Tuple, default(Tuple::new()), "Zeros put before and after each spatial axis; default \
                                            0.";
    }
}

const IM2COL: &str = r#"
The patches that a convolution's filters meet, as columns: ``W.reshape((F, -1))`` times a column is
what `Convolution` computes there.

Notes
-----
Data ``(N, C, W)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``, by the length of ``kernel``; the output
``(N, C * kernel, patches)`` has the elements of a patch channel by channel. There are as many
patches as output elements of a `Convolution`. One dtype: float16 (calculated in float32), float32
or float64.

Examples
--------
>>> nd.im2col(nd.array([[[[1, 2, 3], [4, 5, 6]]]]), kernel=(2, 2))
[[[1. 2.]
  [2. 3.]
  [4. 5.]
  [5. 6.]]]
"#;

const COL2IM: &str = r#"
Images from the columns of `im2col`, where patches overlap their sum: the gradient of `im2col`.

Notes
-----
Data ``(N, C * kernel, patches)``, output ``(N, C, *output_size)``. One dtype: float16 (calculated
in float32), float32 or float64. A number of patches other than `im2col` makes is an error.

Examples
--------
>>> nd.col2im(nd.ones((1, 4, 2)), output_size=(2, 3), kernel=(2, 2))
[[[[1. 2. 1.]
   [1. 2. 1.]]]]
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<Im2ColParam>("im2col")
            .doc(IM2COL)
            .inputs_are(&[("data", "The images (N, C, ...).")])
            .infer_shape(im2col_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_none("_backward_im2col"))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => gather::<T>(c)))),
        OpDef::new::<Im2ColParam>("_backward_im2col")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => scatter::<T>(c)))),
        OpDef::new::<Col2ImParam>("col2im")
            .doc(COL2IM)
            .inputs_are(&[("data", "The columns (N, C * kernel, patches).")])
            .infer_shape(col2im_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_none("_backward_col2im"))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => scatter::<T>(c)))),
        OpDef::new::<Col2ImParam>("_backward_col2im")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => gather::<T>(c)))),
    ]
}

/// The spatial parameters, complete.
struct Patches {
    kernel: Tuple,
    stride: Tuple,
    dilate: Tuple,
    pad: Tuple,
}

fn patches(attrs: &Attrs) -> Result<Patches> {
    let given = match attrs.typed().downcast_ref::<Im2ColParam>() {
        Some(p) => [&p.kernel, &p.stride, &p.dilate, &p.pad],
        None => {
            let p: &Col2ImParam = attrs.get();
            [&p.kernel, &p.stride, &p.dilate, &p.pad]
        }
    };
    let rank = given[0].len();
    if !(1..=3).contains(&rank) {
        return Err(Error::argument("kernel", "length", rank, "1, 2 or 3"));
    }
    Ok(Patches {
        kernel: spatial(given[0], "kernel", rank, 1, 1)?,
        stride: spatial(given[1], "stride", rank, 1, 1)?,
        dilate: spatial(given[2], "dilate", rank, 1, 1)?,
        pad: spatial(given[3], "pad", rank, 0, 0)?,
    })
}

impl Patches {
    /// Patches along each axis of images with these extents; -1 where one is not known.
    fn counts(&self, extents: &[i64]) -> Result<Tuple> {
        let count = |i: usize, n: i64| {
            let room = n + 2 * self.pad[i] - self.dilate[i] * (self.kernel[i] - 1) - 1;
            match n {
                -1 => Ok(-1),
                _ if room < 0 => Err(Error::argument(
                    "kernel",
                    "extent",
                    self.kernel[i],
                    "at most the padded image's",
                )),
                _ => Ok(room / self.stride[i] + 1),
            }
        };
        extents.iter().enumerate().map(|(i, &n)| count(i, n)).collect()
    }

    fn size(&self) -> i64 {
        self.kernel.iter().fold(1i64, |n, &k| n.saturating_mul(k))
    }
}

/// The product, or -1 if a factor is not known.
fn product(factors: &[i64]) -> i64 {
    if factors.iter().any(|&f| f < 0) {
        -1
    } else {
        factors.iter().fold(1, |n, &f| n.saturating_mul(f))
    }
}

fn im2col_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p = patches(attrs)?;
    let rank = p.kernel.len() + 2;
    expect_rank(&inputs[0], "data", rank..=rank)?;
    assign_shape(&mut inputs[0], "data", &Shape::of_rank(rank))?;
    let d = inputs[0].dims().to_vec();
    let columns = product(&p.counts(&d[2..])?);
    assign_shape(
        &mut outputs[0],
        "output",
        &Shape::new(&[d[0], product(&[d[1], p.size()]), columns]),
    )?;
    let (n, rows) = (outputs[0].dims()[0], outputs[0].dims()[1]);
    if rows >= 0 && rows % p.size() != 0 {
        let expected = format!("a multiple of {} rows", p.size());
        return Err(Error::argument("output", "shape", &outputs[0], expected));
    }
    let mut learnt = Shape::of_rank(rank);
    learnt.dims_mut()[0] = n;
    learnt.dims_mut()[1] = if rows < 0 { -1 } else { rows / p.size() };
    assign_shape(&mut inputs[0], "data", &learnt)?;
    complete(inputs, outputs)
}

fn col2im_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p = patches(attrs)?;
    let size = &attrs.get::<Col2ImParam>().output_size;
    if size.len() != p.kernel.len() || size.iter().any(|&s| s < 1) {
        let expected = format!("{} positive numbers, as kernel has", p.kernel.len());
        return Err(Error::argument("output_size", "value", Shape::new(size), expected));
    }
    let columns = product(&p.counts(size)?);
    assign_shape(&mut inputs[0], "data", &Shape::new(&[-1, -1, columns]))?;
    let (n, rows) = (inputs[0].dims()[0], inputs[0].dims()[1]);
    if rows >= 0 && rows % p.size() != 0 {
        let expected = format!("a multiple of {} rows", p.size());
        return Err(Error::argument("data", "shape", &inputs[0], expected));
    }
    let mut out = vec![n, if rows < 0 { -1 } else { rows / p.size() }];
    out.extend_from_slice(size);
    assign_shape(&mut outputs[0], "output", &Shape::new(&out))?;
    let (n, c) = (outputs[0].dims()[0], outputs[0].dims()[1]);
    assign_shape(&mut inputs[0], "data", &Shape::new(&[n, product(&[c, p.size()]), columns]))?;
    complete(inputs, outputs)
}

/// Calls `f(element of the image, element of the columns)` for the elements of channel `plane`
/// (of all images) that lie inside of the image.
fn walk(
    p: &Patches,
    image: &View,
    plane: usize,
    mut f: impl FnMut(Option<usize>, usize),
) -> Result<()> {
    let extents = three(&image.dims()[2..], 1);
    let counts = three(&p.counts(&image.dims()[2..])?, 1);
    let kernel = three(&p.kernel, 1);
    let (stride, dilate, pad) = (three(&p.stride, 1), three(&p.dilate, 1), three(&p.pad, 0));
    let (size, columns): (usize, usize) = (kernel.iter().product(), counts.iter().product());
    let first = plane * extents.iter().product::<usize>();
    let split = |i: usize, n: [usize; 3]| [i / (n[1] * n[2]), i / n[2] % n[1], i % n[2]];
    for tap in 0..size {
        let k = split(tap, kernel);
        for column in 0..columns {
            let at = split(column, counts);
            let place = |a: usize| (at[a] * stride[a] + k[a] * dilate[a]).checked_sub(pad[a]);
            let inside = |a: usize| place(a).filter(|&v| v < extents[a]);
            let from = inside(0).and_then(|z| {
                let row = z * extents[1] + inside(1)?;
                Some(first + row * extents[2] + inside(2)?)
            });
            f(from, (plane * size + tap) * columns + column);
        }
    }
    Ok(())
}

/// Columns from images: `im2col`, and the gradient of `col2im`.
fn gather<T: Real>(call: &Call<'_>) -> Result<()> {
    let (image, columns) = (&call.inputs[0], &call.outputs[0]);
    over_planes(call, image, image, columns, |x, y, from, to| {
        // SAFETY: places come from the extents of the views; planes belong to one task.
        unsafe { *y.at(to) = from.map_or(T::zero(), |i| *x.at(i)) };
    })
}

/// Images from columns: `col2im`, and the gradient of `im2col`.
fn scatter<T: Real>(call: &Call<'_>) -> Result<()> {
    let (columns, image) = (&call.inputs[0], &call.outputs[0]);
    if call.req[0] != OpReq::Null {
        crate::ops::tensor::common::zero_view(image);
    }
    over_planes::<T>(call, image, columns, image, |x, y, to, from| {
        if let Some(to) = to {
            // SAFETY: as in `gather`.
            unsafe { *y.at(to) += *x.at(from) };
        }
    })
}

fn over_planes<T: Real>(
    call: &Call<'_>,
    image: &View,
    from: &View,
    to: &View,
    f: impl Fn(Shared<T>, Shared<T>, Option<usize>, usize) + Send + Sync,
) -> Result<()> {
    if call.req[0] == OpReq::Null || image.size() == 0 {
        return Ok(());
    }
    let p = patches(call.attrs)?;
    p.counts(&image.dims()[2..])?;
    let (x, y) = (Shared(from.as_ptr::<T>()), Shared(to.as_ptr::<T>()));
    parallel_for(image.shape().product(0..2), 1, |range| {
        for plane in range {
            // The counts were checked above, so that this cannot fail.
            let _ = walk(&p, image, plane, |i, c| f(x, y, i, c));
        }
    });
    Ok(())
}
