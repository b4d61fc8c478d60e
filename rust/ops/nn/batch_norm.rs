//! `BatchNorm`, its old form `BatchNorm_v1`, `SyncBatchNorm` and `BatchNormWithReLU`.
//!
//! The moving averages are updated by the backward operator, once a training step, as MXNet does on
//! the CPU. So a forward copy that recomputation makes leaves them alone.

mod compute;

pub use compute::update_moving;

use super::infer::{complete, expect_rank, norm_type};
use super::widening;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::norm::Channels;
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, InParts, InplacePair, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};
use compute::{backward, forward, has_parts, run_in_parts};

params! {
    /// Parameters of `BatchNorm`.
    pub struct BatchNormParam {
        eps: f64, default(1e-3f32 as f64), "Added to the variance.";
        momentum: f32, default(0.9), "Weight of the old value in the moving averages.";
        fix_gamma: bool, default(true), "Take gamma as 1 and give it no gradient.";
        use_global_stats: bool, default(false), "Normalise by the moving averages in training too.";
        output_mean_var: bool, default(false), "Return mean and inverse standard deviation as \
                                                well.";
        axis: i32, default(1), "The channel axis.";
        cudnn_off: bool, default(false), "Accepted, without effect.";
        min_calib_range: Option<f32>, default(None), "Accepted, without effect.";
        max_calib_range: Option<f32>, default(None), "Accepted, without effect.";
    }
}

params! {
    /// Parameters of `BatchNorm_v1`.
    pub struct BatchNormV1Param {
        eps: f32, default(1e-3), "Added to the variance.";
        momentum: f32, default(0.9), "Weight of the old value in the moving averages.";
        fix_gamma: bool, default(true), "Take gamma as 1 and give it no gradient.";
        use_global_stats: bool, default(false), "Normalise by the moving averages in training too.";
        output_mean_var: bool, default(false), "Return mean and inverse standard deviation as \
                                                well.";
    }
}

params! {
    /// Parameters of `_contrib_SyncBatchNorm`.
    pub struct SyncBatchNormParam {
        eps: f32, default(1e-3), "Added to the variance.";
        momentum: f32, default(0.9), "Weight of the old value in the moving averages.";
        fix_gamma: bool, default(true), "Take gamma as 1 and give it no gradient.";
        use_global_stats: bool, default(false), "Normalise by the moving averages in training too.";
        output_mean_var: bool, default(false), "Return mean and inverse standard deviation as \
                                                well.";
        ndev: i32, default(1).ge(1.0), "Number of devices that share a batch.";
        key: String, required, "Name that the nodes of one layer on several devices share.";
    }
}

const WITH_RELU: &str = r#"
`BatchNorm` followed by ``max(y, 0)``.

Notes
-----
Parameters, states and dtypes are those of `BatchNorm`.

Examples
--------
>>> x = nd.array([[1, 2], [3, 6]])
>>> with autograd.record():
...     y = nd.contrib.BatchNormWithReLU(x, nd.ones(2), nd.zeros(2), nd.zeros(2), nd.ones(2))
>>> y
[[0.         0.        ]
 [0.9995004  0.99987507]]
"#;

const DOC: &str = r#"
Normalises each channel over the batch: ``y = gamma * (x - mean) / sqrt(var + eps) + beta``.

In training ``mean`` and ``var`` (biased) are those of the batch; otherwise, and with
``use_global_stats=True``, the auxiliary states ``moving_mean`` and ``moving_var``. The backward
pass of a training step updates these: ``moving = momentum * moving + (1 - momentum) * batch``.

Notes
-----
Data has at least two axes; gamma, beta and the moving averages have the extent of ``axis``. **With
the default ``fix_gamma=True`` gamma counts as 1 and gets no gradient;** the array itself keeps its
values, which MXNet overwrites by 1. float16 data is calculated in float32 and has float32 gamma,
beta and moving averages; otherwise all share float32 or float64. The hidden outputs ``mean`` and
``var`` (the inverse standard deviation) are visible with ``output_mean_var=True``; no gradient
flows through them.

Examples
--------
>>> x = nd.array([[1, 2], [3, 6]])
>>> with autograd.record():
...     y = nd.BatchNorm(x, nd.ones(2), nd.zeros(2), nd.zeros(2), nd.ones(2))
>>> y
[[-0.9995004 -0.99987507]
 [ 0.9995004  0.99987507]]

References
----------
S. Ioffe, C. Szegedy, Batch Normalization: Accelerating Deep Network Training by Reducing Internal
Covariate Shift, ICML 2015.
"#;

const NAMES: &[&str] = &["data", "gamma", "beta", "moving_mean", "moving_var"];

pub fn operators() -> Vec<OpDef> {
    vec![
        as_forward(OpDef::new::<BatchNormParam>("BatchNorm"), "_backward_BatchNorm")
            .aliases(&["_npx_batch_norm", "CuDNNBatchNorm"]),
        as_gradient(OpDef::new::<BatchNormParam>("_backward_BatchNorm")),
        as_forward(OpDef::new::<BatchNormV1Param>("BatchNorm_v1"), "_backward_BatchNorm_v1"),
        as_gradient(OpDef::new::<BatchNormV1Param>("_backward_BatchNorm_v1")),
        with_relu(as_forward(
            OpDef::new::<BatchNormParam>("_contrib_BatchNormWithReLU"),
            RELU_BACK,
        )),
        relu_backward(),
    ]
}

/// The operator with everything but parameters and name; `back` is the name of its gradient.
pub fn as_forward(def: OpDef, back: &str) -> OpDef {
    def.doc(DOC)
        .inputs_are(&[
            ("data", "The data (N, C, ...)."),
            ("gamma", "Scale of each channel (C,)."),
            ("beta", "Shift of each channel (C,)."),
            ("moving_mean", "Moving average of the mean (C,)."),
            ("moving_var", "Moving average of the variance (C,)."),
        ])
        .outputs_are(&["output", "mean", "var"])
        .visible(|attrs| if param(attrs).output_mean_var { 3 } else { 1 })
        .mutates(&[3, 4])
        .rerun_safe()
        .infer_shape(infer_shape)
        .infer_type(norm_type(NAMES))
        .inplace(&[InplacePair::new(0, 0)])
        .variable_attr("moving_mean", "__init__", "[\"zero\", {}]")
        .variable_attr("moving_var", "__init__", "[\"one\", {}]")
        .gradient(Gradient::declared(back, |_, _, _| {
            let mut deps = vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1), Dep::Output(1)];
            deps.extend([Dep::Output(2), Dep::Input(3), Dep::Input(4)]);
            deps
        }))
        .kernel(
            widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call)))
                .reports_elements(|attrs, ins| {
                    unwidened(attrs, &ins[0]).is_some_and(|s| s.is_in_order())
                })
                .in_parts(InParts { when: has_parts, run: run_in_parts }),
        )
}

/// The gradient, likewise. Inputs: out_grad, data, gamma, mean, inverse standard deviation, moving
/// mean, moving variance.
pub fn as_gradient(def: OpDef) -> OpDef {
    def.mutates(&[5, 6])
        .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
        .kernel(
            widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call)))
                .requests_elements(|attrs, ins| {
                    unwidened(attrs, &ins[1]).is_some_and(|s| s.has_planes())
                }),
        )
        .not_deterministic()
}

const RELU_BACK: &str = "_backward_contrib_BatchNormWithReLU";

/// Turns `BatchNorm` into the operator that clips its output at 0.
fn with_relu(def: OpDef) -> OpDef {
    let mut def = def.doc(WITH_RELU).gradient(Gradient::declared(RELU_BACK, |_, _, _| {
        let mut deps = vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1), Dep::Output(1)];
        deps.extend([Dep::Output(2), Dep::Input(3), Dep::Input(4), Dep::Output(0)]);
        deps
    }));
    def.kernels.clear();
    let mut kernel = widening::cpu(|call| {
        with_real!(call.inputs[0].dtype(), T => {
            forward::<T>(call)?;
            if call.req[0] != OpReq::Null {
                // SAFETY: the output is ours to write.
                let out = unsafe { call.outputs[0].slice_mut::<T>() };
                out.iter_mut().for_each(|y| *y = if *y < 0.0 { 0.0 } else { *y });
            }
            Ok(())
        })
    });
    kernel.skips_null = false;
    def.kernel(kernel)
}

/// The gradient of `BatchNorm` where the output is positive. Its last input is that output.
fn relu_backward() -> OpDef {
    OpDef::new::<BatchNormParam>(RELU_BACK)
        .mutates(&[5, 6])
        .kernel(widening::cpu(|call| {
            with_real!(call.inputs[0].dtype(), T => {
                let (grad, out) = (&call.inputs[0], &call.inputs[7]);
                with_scratch(grad.size(), |room: &mut [T]| {
                    // SAFETY: inputs are not written meanwhile; the scratch has room for a
                    // gradient.
                    unsafe {
                        let both = grad.slice::<T>().iter().zip(out.slice::<T>());
                        for (to, (&g, &y)) in room.iter_mut().zip(both) {
                            *to = if y > 0.0 { g } else { 0.0 };
                        }
                        let mut inputs = call.inputs[..7].to_vec();
                        let ptr = room.as_mut_ptr().cast();
                        inputs[0] = View::new(ptr, grad.shape().clone(), grad.dtype());
                        backward::<T>(&Call { inputs: &inputs, ..*call })
                    }
                })
            })
        }))
        .not_deterministic()
}

/// The extents of data that is not widened, which would be read and written at once.
fn unwidened(attrs: &Attrs, data: &View) -> Option<Channels> {
    (data.dtype() != DType::F16).then(|| extents(&param(attrs), data))
}

/// The parameters of any form.
pub fn param(attrs: &Attrs) -> BatchNormParam {
    macro_rules! over_axis_1 {
        ($p:expr) => {
            BatchNormParam {
                eps: $p.eps.into(),
                momentum: $p.momentum,
                fix_gamma: $p.fix_gamma,
                use_global_stats: $p.use_global_stats,
                output_mean_var: $p.output_mean_var,
                axis: 1,
                cudnn_off: false,
                min_calib_range: None,
                max_calib_range: None,
            }
        };
    }
    let typed = attrs.typed();
    if let Some(old) = typed.downcast_ref::<BatchNormV1Param>() {
        over_axis_1!(old)
    } else if let Some(sync) = typed.downcast_ref::<SyncBatchNormParam>() {
        over_axis_1!(sync)
    } else {
        attrs.get::<BatchNormParam>().clone()
    }
}

pub fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    expect_rank(&inputs[0], "data", 2..=usize::MAX)?;
    assign_shape(&mut outputs[0], "output", &inputs[0])?;
    if inputs[0].rank_known() {
        let axis = inputs[0].axis(param(attrs).axis.into())?;
        let channels = Shape::new(&inputs[0].dims()[axis..=axis]);
        for (slot, name) in inputs.iter_mut().zip(NAMES).skip(1) {
            assign_shape(slot, name, &channels)?;
        }
        for (slot, name) in outputs[1..].iter_mut().zip(["mean", "var"]) {
            assign_shape(slot, name, &channels)?;
        }
    }
    complete(inputs, outputs)
}

pub fn extents(param: &BatchNormParam, data: &View) -> Channels {
    let (shape, rank) = (data.shape(), data.ndim());
    let axis = i64::from(param.axis).rem_euclid(rank as i64) as usize;
    Channels {
        outer: shape.product(0..axis),
        channels: shape.product(axis..axis + 1),
        inner: shape.product(axis + 1..rank),
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    fn inputs(dims: &[i64], axis: usize) -> Vec<Tensor> {
        let c = dims[axis];
        let vars: Vec<f64> = (0..c).map(|i| 0.5 + i as f64).collect();
        vec![
            Tensor::noise(dims, 1),
            Tensor::noise(&[c], 2),
            Tensor::noise(&[c], 3),
            Tensor::noise(&[c], 4),
            Tensor::of(&[c], &vars),
        ]
    }

    #[test]
    fn gradients_match_differences() {
        for (dims, axis) in [(&[4, 3][..], 1), (&[3, 2, 4, 5], 1), (&[2, 3, 4], 2), (&[2, 1], 1)] {
            let a = axis.to_string();
            for p in [
                &[("fix_gamma", "0"), ("axis", a.as_str())][..],
                &[("fix_gamma", "0"), ("axis", a.as_str()), ("use_global_stats", "1")],
            ] {
                check_gradient("BatchNorm", p, &inputs(dims, axis), &[0, 1, 2], true);
                check_half("BatchNorm", p, &inputs(dims, axis), true);
            }
        }
        check_gradient(
            "BatchNorm_v1",
            &[("fix_gamma", "0")],
            &inputs(&[3, 2, 2], 1),
            &[0, 1, 2],
            true,
        );
        let fixed = run("BatchNorm", &[], &inputs(&[3, 2, 2], 1), true).unwrap();
        let g = fixed.gradients(&[Tensor::noise(&[3, 2, 2], 5)]).unwrap();
        assert_eq!(g[1].values(), [0.0; 2]);
    }

    // The figures were read off MXNet 1.9.1.
    #[test]
    fn training_and_inference_statistics() {
        let of = |v: &[f64]| Tensor::of(&[2], v);
        let x = Tensor::of(&[2, 2], &[1., 2., 3., 6.]);
        let p = [("fix_gamma", "0"), ("output_mean_var", "1")];
        let make =
            |m: &[f64], v: &[f64]| vec![x.clone(), of(&[2., 2.]), of(&[0., 0.]), of(m), of(v)];
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        let train = run("BatchNorm", &p, &make(&[0., 0.], &[1., 1.]), true).unwrap();
        assert!(close(&train.outputs[0].values(), &[-1.9990008, -1.9997501, 1.9990008, 1.9997501]));
        assert!(close(&train.outputs[1].values(), &[2., 4.]));
        assert!(close(&train.outputs[2].values(), &[0.9995004, 0.49993753]));
        let infer = run("BatchNorm", &p, &make(&[1., 1.], &[4., 4.]), false).unwrap();
        assert!(close(&infer.outputs[0].values(), &[0., 0.99987507, 1.9997501, 4.9993753]));
    }

    #[test]
    fn the_backward_pass_updates_the_moving_averages_once() {
        let ins = inputs(&[4, 2, 3], 1);
        let ran = run("BatchNorm", &[("momentum", "0.8")], &ins, true).unwrap();
        let mean = ran.outputs[1].values()[0];
        let before = ins[3].values()[0];
        assert_eq!(ran.input(3).values()[0], before);
        // The backward operator gets the very arrays that the test holds.
        let (moved, _) = ran.gradients_and_mutated(&[Tensor::noise(&[4, 2, 3], 5)], 3).unwrap();
        assert!((moved[0] - (0.8 * before + 0.2 * mean)).abs() < 1e-6);
    }

    #[test]
    fn parameters_are_inferred_from_the_channel_axis() {
        let (known, ins, outs) =
            infer_shapes("BatchNorm", &[("axis", "-1")], &[Some(&[2, 3, 5])]).unwrap();
        assert!(known && ins[1..].iter().chain(&outs[1..]).all(|s| s.dims() == [5]));
        assert!(infer_shapes("BatchNorm", &[], &[Some(&[2, 3]), Some(&[4])]).is_err());
    }
}
