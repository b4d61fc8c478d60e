//! `Dropout`: random zeros in training.

use super::infer::{complete, float_type};
use super::loss::copy_first;
use super::widening;
use crate::error::Result;
use crate::kernels::map::map;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::philox::{fill, unit};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{
    Attrs, Call, Dep, Gradient, InplacePair, OpDef, OpReq, RandomKey, ResourceRequest, Tuple,
};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_real};

param_enum! {
    /// When dropout applies.
    pub enum DropoutMode { Always = "always", Training = "training" }
}

params! {
    /// Parameters of `Dropout`.
    pub struct DropoutParam {
        p: f32, default(0.5).ge(0.0).le(1.0), "Probability of a zero.";
        mode: DropoutMode, default(DropoutMode::Training), "Drop in training only, or always.";
        axes: Tuple, default(Tuple::new()), "Axes whose positions share one decision.";
        cudnn_off: Option<bool>, default(Some(false)), "Accepted, without effect.";
    }
}

const DOC: &str = r#"
Zeroes elements at random in training: each is kept with probability ``1 - p`` and then divided by
``1 - p``, so that the expectation stays. Otherwise the output is the input.

Notes
-----
``mode='always'`` drops in inference too. All positions along the axes in ``axes`` share one
decision. Any shape; float16 (calculated in float32), float32 or float64; the output has the shape
and dtype of the data. The random numbers of element ``i`` depend on the seed, the call and ``i``
only. A hidden second output ``mask`` holds the factors.

Examples
--------
>>> with autograd.record():
...     y = nd.Dropout(nd.ones((2, 4)), p=0.5)   # about half the elements are 0, the others 2
>>> y.shape
(2, 4)

References
----------
N. Srivastava et al., Dropout: A Simple Way to Prevent Neural Networks from Overfitting, JMLR 2014.
"#;

pub fn operators() -> Vec<OpDef> {
    let forward = OpDef::new::<DropoutParam>("Dropout")
        .aliases(&["_npx_dropout"])
        .doc(DOC)
        .inputs_are(&[("data", "The data.")])
        .outputs_are(&["output", "mask"])
        .visible(|_| 1)
        .infer_shape(infer_shape)
        .infer_type(float_type)
        .inplace(&[InplacePair::new(0, 0)])
        .resources(&[ResourceRequest::Random])
        .gradient(Gradient::declared("_backward_Dropout", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Output(1)]
        }))
        .kernel(forward_kernel());
    let backward = OpDef::new::<DropoutParam>("_backward_Dropout")
        .inplace(&[InplacePair::new(0, 0)])
        .kernel(widening::cpu(|call| {
            if !has_mask(call) {
                return copy_first(call);
            }
            with_real!(call.inputs[0].dtype(), T => {
                times_mask::<T>(call, &call.inputs[1]);
                Ok(())
            })
        }));
    vec![forward, backward]
}

/// The mask is written even where it was not requested, so it always needs memory.
fn forward_kernel() -> crate::operator::Kernel {
    let mut kernel = widening::cpu(|call| {
        if !drops(call) {
            if call.ctx.need_grad && has_mask(call) {
                // The gradient reads the mask, whatever the mode it is taken in.
                with_real!(call.outputs[1].dtype(), T => {
                    keep_all::<T>(&call.outputs[1]);
                    Ok(())
                })?;
            }
            return copy_first(call);
        }
        with_real!(call.inputs[0].dtype(), T => {
            let keep = 1.0 - call.attrs.get::<DropoutParam>().p;
            make_mask::<T>(call.ctx.random, keep, &call.outputs[1]);
            times_mask::<T>(call, &call.outputs[1]);
            Ok(())
        })
    });
    kernel.skips_null = false;
    kernel
}

/// Whether this forward pass drops elements.
pub fn drops(call: &Call<'_>) -> bool {
    let always = call.attrs.get::<DropoutParam>().mode == DropoutMode::Always;
    has_mask(call) && (call.ctx.is_train || always)
}

/// Whether forward passes whose gradient may be taken fill the mask: with ones if they drop
/// nothing.
pub fn has_mask(call: &Call<'_>) -> bool {
    call.attrs.get::<DropoutParam>().p > 0.0
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    assign_shape(&mut outputs[0], "output", &inputs[0])?;
    if inputs[0].rank_known() {
        let mut mask = inputs[0].clone();
        for &axis in &attrs.get::<DropoutParam>().axes {
            let axis = mask.axis(axis)?;
            mask.dims_mut()[axis] = 1;
        }
        assign_shape(&mut outputs[1], "mask", &mask)?;
    }
    complete(inputs, outputs)
}

fn keep_all<T: Real>(mask: &View) {
    // SAFETY: an output is the call's to write.
    unsafe { mask.slice_mut::<T>() }.fill(T::one());
}

/// Fills the mask with `1 / keep` (probability `keep`) and 0; with NaN where nothing is kept, as in
/// MXNet.
fn make_mask<T: Real>(key: RandomKey, keep: f32, mask: &View) {
    let factor = T::one() / T::of(keep.into());
    let make = |[word]: [u32; 1]| [if unit(word) < keep { factor } else { T::zero() * factor }];
    // SAFETY: an output is the call's to write.
    unsafe { fill(key.words(), mask.as_ptr(), mask.size(), make) };
}

/// Output 0 is input 0 times the mask, which may have extents of 1.
fn times_mask<T: Real>(call: &Call<'_>, mask: &View) {
    if call.req[0] == OpReq::Null {
        return;
    }
    let (data, out) = (&call.inputs[0], &call.outputs[0]);
    let (x, m, y) =
        (data.as_ptr::<T>().cast_const(), mask.as_ptr::<T>().cast_const(), out.as_ptr());
    if mask.shape() == data.shape() {
        // SAFETY: all three have one shape; the output is the data or apart.
        unsafe { map([x, m], y, data.size(), move |[x, m]| x * m) };
        return;
    }
    let (dims, strides) = (data.dims(), mask.strides());
    let (x, m, y) = (Shared(x.cast_mut()), Shared(m.cast_mut()), Shared(y));
    parallel_for(data.size(), 1 << 13, |range| {
        for i in range {
            let (mut rest, mut at) = (i, 0);
            for ((&d, &s), &md) in dims.iter().zip(strides).zip(mask.dims()).rev() {
                let index = rest % d as usize;
                rest /= d as usize;
                at += if md == 1 { 0 } else { index * s as usize };
            }
            // SAFETY: `i` is an element of the data, `at` the one of the mask that it shares.
            unsafe { *y.at(i) = *x.at(i) * *m.at(at) };
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn keeps_about_the_right_share_and_scales_it() {
        let x = Tensor::of(&[100, 100], &[1.; 10_000]);
        let ran = run("Dropout", &[("p", "0.25")], &[x.clone()], true).unwrap();
        let y = ran.outputs[0].values();
        let kept = y.iter().filter(|&&v| v != 0.0).count();
        assert!((7300..7700).contains(&kept), "{kept}");
        assert!(y.iter().all(|&v| v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-12));
        let g = ran.gradients(&[x.clone()]).unwrap();
        assert_eq!(g[0].values(), y);
        assert_eq!(
            run("Dropout", &[], &[x.clone()], false).unwrap().outputs[0].values(),
            [1.; 10_000]
        );
        assert_eq!(
            run("Dropout", &[("p", "0")], &[x.clone()], true).unwrap().outputs[0].values(),
            [1.; 10_000]
        );
        let all = [("p", "1"), ("mode", "always")];
        assert!(
            run("Dropout", &all, &[x], false).unwrap().outputs[0]
                .values()
                .iter()
                .all(|v| v.is_nan())
        );
    }

    #[test]
    fn axes_share_the_mask() {
        let x = Tensor::of(&[3, 8], &[1.; 24]);
        let ran = run("Dropout", &[("axes", "(0,)")], &[x.clone()], true).unwrap();
        assert_eq!(ran.outputs[1].shape.dims(), [1, 8]);
        let y = ran.outputs[0].values();
        assert!(y[..8] == y[8..16] && y[..8] == y[16..]);
        assert!(y.contains(&0.0) && y.contains(&2.0));
        check_half("Dropout", &[("axes", "(0,)")], &[x], true);
    }
}
