//! `Correlation`: how patches of two images agree, at every displacement.

use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq};
use crate::ops::nn::infer::{complete, float_type};
use crate::ops::nn::widening;
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};

params! {
    /// Parameters of `Correlation`.
    pub struct CorrelationParam {
        kernel_size: u32, default(1).ge(1.0), "Extent of a patch: odd.";
        max_displacement: u32, default(1), "Greatest displacement of a patch of data2.";
        stride1: u32, default(1).ge(1.0), "Distance of patches in data1.";
        stride2: u32, default(1).ge(1.0), "Distance of displacements.";
        pad_size: u32, default(0), "Zeros around both images.";
        is_multiply: bool, default(true), "Multiply elements? Else their differences count, as \
                                           absolute values.";
    }
}

const DOC: &str = r#"
Correlates patches of two feature maps: for every patch of ``data1`` and every displacement, the
mean of ``data1 * data2`` (or of ``abs(data1 - data2)``) over the patch and all channels.

Notes
-----
Both inputs are ``(N, C, H, W)``. With ``d = max_displacement // stride2`` there are ``(2 d + 1)^2``
displacements, multiples of ``stride2``, row by row: the channels of the output ``(N, (2 d + 1)^2,
h, w)``. Patches have their centers ``stride1`` apart, and leave ``max_displacement + kernel_size //
2`` elements of the padded image to every side. One dtype: float16 (calculated in float32), float32
or float64. An even ``kernel_size``, and images too small for one patch, are errors.

Examples
--------
>>> x = nd.array([[[[1, 2, 3]]]])
>>> nd.Correlation(x, x, max_displacement=0)
[[[[1. 4. 9.]]]]

References
----------
A. Dosovitskiy et al., FlowNet: Learning Optical Flow with Convolutional Networks, ICCV 2015.
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<CorrelationParam>("Correlation")
            .doc(DOC)
            .inputs_are(&[
                ("data1", "The first images (N, C, H, W)."),
                ("data2", "The second images (N, C, H, W)."),
            ])
            .infer_shape(infer_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_in("_backward_Correlation"))
            .expensive()
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => forward::<T>(c)))),
        OpDef::new::<CorrelationParam>("_backward_Correlation")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => backward::<T>(c)))),
    ]
}

impl CorrelationParam {
    fn border(&self) -> i64 {
        i64::from(self.max_displacement) + i64::from(self.kernel_size) / 2
    }

    /// Displacements to either side of 0.
    fn reach(&self) -> i64 {
        i64::from(self.max_displacement) / i64::from(self.stride2)
    }
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p: &CorrelationParam = attrs.get();
    if p.kernel_size.is_multiple_of(2) {
        return Err(Error::argument("kernel_size", "value", p.kernel_size, "an odd number"));
    }
    let mut data = Shape::of_rank(4);
    for (shape, name) in inputs.iter().zip(["data1", "data2"]) {
        assign_shape(&mut data, name, shape)?;
    }
    inputs.fill(data.clone());
    let extent = |n: i64| {
        let room = n + 2 * i64::from(p.pad_size) - 2 * p.border();
        match n {
            -1 => Ok(-1),
            _ if room < 1 => Err(Error::argument(
                "data1",
                "shape",
                &data,
                "room for one patch and its displacements",
            )),
            _ => Ok((room + i64::from(p.stride1) - 1) / i64::from(p.stride1)),
        }
    };
    let d = data.dims();
    let side = 2 * p.reach() + 1;
    let channels = side.checked_mul(side).ok_or_else(|| {
        Error::invalid("max_displacement", p.max_displacement, "a smaller number")
    })?;
    let out = Shape::new(&[d[0], channels, extent(d[2])?, extent(d[3])?]);
    assign_shape(&mut outputs[0], "output", &out)?;
    complete(inputs, outputs)
}

/// One element of the output: which patch of data1 meets which of data2.
struct Walk<'a> {
    p: &'a CorrelationParam,
    c: usize,
    h: i64,
    w: i64,
    out: [usize; 3],
}

impl<'a> Walk<'a> {
    fn new(p: &'a CorrelationParam, data: &View, out: &View) -> Self {
        let d = data.dims();
        let out = [1, 2, 3].map(|i| out.dims()[i] as usize);
        Walk { p, c: d[1] as usize, h: d[2], w: d[3], out }
    }

    fn mean<T: Real>(&self) -> T {
        T::one() / T::of(f64::from(self.p.kernel_size).powi(2) * self.c as f64)
    }

    /// Calls `f(place in data1, place in data2)`, places in one plane, `None` in the padding, for
    /// the elements of the patch of element `(channel, i, j)`.
    fn patch(
        &self,
        channel: usize,
        (i, j): (usize, usize),
        mut f: impl FnMut(Option<usize>, Option<usize>),
    ) {
        let (p, side) = (self.p, 2 * self.p.reach() + 1);
        let step = i64::from(p.stride2);
        let dy = (channel as i64 / side - p.reach()) * step;
        let dx = (channel as i64 % side - p.reach()) * step;
        let first = |at: usize| {
            at as i64 * i64::from(p.stride1) + i64::from(p.max_displacement) - i64::from(p.pad_size)
        };
        let place = |y: i64, x: i64| {
            let inside = (0..self.h).contains(&y) && (0..self.w).contains(&x);
            inside.then_some((y * self.w + x) as usize)
        };
        let (top, left) = (first(i), first(j));
        for (y, x) in (top..top + i64::from(p.kernel_size))
            .flat_map(|y| (left..left + i64::from(p.kernel_size)).map(move |x| (y, x)))
        {
            f(place(y, x), place(y + dy, x + dx));
        }
    }

    fn outputs(&self) -> impl Iterator<Item = (usize, (usize, usize))> {
        let [channels, h, w] = self.out;
        (0..channels).flat_map(move |d| (0..h * w).map(move |at| (d, (at / w, at % w))))
    }
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let p: &CorrelationParam = call.attrs.get();
    let walk = Walk::new(p, &call.inputs[0], &call.outputs[0]);
    // SAFETY: inputs are not written meanwhile.
    let [a, b] = [0, 1].map(|i| unsafe { call.inputs[i].slice::<T>() });
    let out = Shared(call.outputs[0].as_ptr::<T>());
    let [channels, h, w] = walk.out;
    let (plane, mean) = ((walk.h * walk.w) as usize, walk.mean::<T>());
    let images = call.inputs[0].dims()[0] as usize;
    parallel_for(images * channels, 1, |range| {
        for part in range {
            let first = part / channels * walk.c * plane;
            for at in 0..h * w {
                let mut sum = T::zero();
                walk.patch(part % channels, (at / w, at % w), |l, r| {
                    if l.is_none() && r.is_none() || p.is_multiply && (l.is_none() || r.is_none()) {
                        return;
                    }
                    for c in 0..walk.c {
                        let value = |x: &[T], k: Option<usize>| {
                            k.map_or(T::zero(), |k| x[first + c * plane + k])
                        };
                        let (u, v) = (value(a, l), value(b, r));
                        sum += if p.is_multiply { u * v } else { (u - v).abs() };
                    }
                });
                // SAFETY: planes of the output belong to one task.
                unsafe { *out.at(part * h * w + at) = sum * mean };
            }
        }
    });
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let p: &CorrelationParam = call.attrs.get();
    let walk = Walk::new(p, &call.inputs[1], &call.inputs[0]);
    // SAFETY: inputs are not written meanwhile.
    let [dy, a, b] = [0, 1, 2].map(|i| unsafe { call.inputs[i].slice::<T>() });
    let outs =
        [0, 1].map(|i| (call.req[i] != OpReq::Null).then(|| Shared(call.outputs[i].as_ptr::<T>())));
    let (plane, mean) = ((walk.h * walk.w) as usize, walk.mean::<T>());
    let per_image = walk.out.iter().product::<usize>();
    let images = call.inputs[1].dims()[0] as usize;
    parallel_for(images * walk.c, 1, |range| {
        for part in range {
            let first = part * plane;
            // SAFETY: planes of the outputs belong to one task.
            let [mut da, mut db] = outs
                .map(|o| o.map(|o| unsafe { std::slice::from_raw_parts_mut(o.at(first), plane) }));
            for d in [&mut da, &mut db].into_iter().flatten() {
                d.fill(T::zero());
            }
            let grads = &dy[part / walk.c * per_image..][..per_image];
            for ((d, at), &g) in walk.outputs().zip(grads) {
                walk.patch(d, at, |l, r| {
                    let value = |x: &[T], k: Option<usize>| k.map_or(T::zero(), |k| x[first + k]);
                    let (u, v) = (value(a, l), value(b, r));
                    let (gu, gv) = if p.is_multiply {
                        (v, u)
                    } else {
                        let sign = |x: T| if x > T::zero() { T::one() } else { -T::one() };
                        let s = if u == v { T::zero() } else { sign(u - v) };
                        (s, -s)
                    };
                    if let (Some(to), Some(k)) = (da.as_deref_mut(), l) {
                        to[k] += g * mean * gu;
                    }
                    if let (Some(to), Some(k)) = (db.as_deref_mut(), r) {
                        to[k] += g * mean * gv;
                    }
                });
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
        let x = [Tensor::noise(&[2, 2, 4, 5], 1), Tensor::noise(&[2, 2, 4, 5], 2)];
        let p: [(&str, &str); 2] = [("kernel_size", "3"), ("pad_size", "1")];
        check_gradient("Correlation", &p, &x, &[0, 1], true);
        let p = [("stride1", "2"), ("pad_size", "2"), ("max_displacement", "2"), ("stride2", "2")];
        check_gradient("Correlation", &p, &x, &[0, 1], true);
        check_gradient("Correlation", &[p[1], ("is_multiply", "False")], &x, &[0, 1], true);
    }
}
