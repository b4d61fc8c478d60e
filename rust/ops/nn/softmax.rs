//! `softmax`, `log_softmax`, `softmin` and the old `SoftmaxActivation`.

use super::infer::{check_float, complete, expect_rank, float_type};
use super::sequence::zero_lengths;
use super::widening;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::copy::copy;
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use crate::kernels::softmax::Softmax;
use crate::operator::infer::{assign_shape, assign_type, elementwise_shape};
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_dtype, with_real};

param_enum! {
    /// The dtype of the output, where it is not that of the data.
    pub enum FloatType { F16 = "float16", F32 = "float32", F64 = "float64" }
}

params! {
    /// Parameters of `softmax`, `log_softmax` and `softmin`.
    pub struct SoftmaxParam {
        axis: i32, default(-1), "The axis that sums to 1.";
        temperature: Option<f64>, default(None), "Data is divided by it first; None is 1.";
        dtype: Option<FloatType>, default(None), "The dtype of the output; None is that of the \
                                                  data.";
        use_length: Option<bool>, default(Some(false)), "Is there an input length, beyond which \
                                                         elements are masked?";
    }
}

param_enum! {
    /// What `SoftmaxActivation` normalises over.
    pub enum SoftmaxMode { Channel = "channel", Instance = "instance" }
}

params! {
    /// Parameters of `SoftmaxActivation`.
    pub struct SoftmaxActivationParam {
        mode: SoftmaxMode, default(SoftmaxMode::Instance), "Normalise over all of an instance, or \
                                                            over its channels at each position.";
    }
}

const SOFTMAX_DOC: &str = r#"
Softmax along an axis: ``y_i = exp(x_i / t) / sum_j exp(x_j / t)``, with ``t`` the ``temperature``
(1 if none).

Notes
-----
Data of any shape with at least one axis, float16 (calculated in float32), float32 or float64. The
output has the shape of the data and the dtype ``dtype``, or that of the data. With
``use_length=True`` a second input ``length`` of an integer dtype, shaped as the data without
``axis``, says how many elements of the axis count; the others get 0.

Examples
--------
>>> nd.softmax(nd.array([[1, 1, 1], [2, 2, 2]]), axis=0)
[[0.26894143 0.26894143 0.26894143]
 [0.7310586  0.7310586  0.7310586 ]]
"#;

const LOG_SOFTMAX_DOC: &str = r#"
Logarithm of the softmax along an axis: ``y_i = x_i / t - log(sum_j exp(x_j / t))``, with ``t`` the
``temperature`` (1 if none).

Notes
-----
Calculated without forming the softmax, so that small probabilities keep their precision. Shapes and
dtypes are those of ``softmax``.

Examples
--------
>>> nd.log_softmax(nd.array([1, 2, .1]))
[-1.4170278  -0.41702777 -2.3170278 ]
"#;

const SOFTMIN_DOC: &str = r#"
Softmax of the negative data along an axis: ``y_i = exp(-x_i / t) / sum_j exp(-x_j / t)``, with
``t`` the ``temperature`` (1 if none).

Notes
-----
Shapes and dtypes are those of ``softmax``.

Examples
--------
>>> nd.softmin(nd.array([1, 2, 3]))
[0.6652409  0.24472848 0.09003057]
"#;

const ACTIVATION_DOC: &str = r#"
Softmax over all of an instance, or over its channels at each position.

With ``mode='instance'`` data ``(N, ...)`` is seen as ``(N, K)`` and normalised over ``K``; with
``mode='channel'`` data ``(N, C, ...)`` is normalised over ``C``.

Notes
-----
Kept for old programs; ``softmax`` does the same for any axis. float16 (calculated in float32),
float32 or float64; the output has the shape and dtype of the data.

Examples
--------
>>> nd.SoftmaxActivation(nd.array([[1, 1], [2, 2]]))
[[0.5 0.5]
 [0.5 0.5]]
"#;

/// The three operators.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Softmax,
    Log,
    Min,
}

pub fn operators() -> Vec<OpDef> {
    let mut all = Vec::new();
    for (name, kind, doc, forward, backward) in [
        (
            "softmax",
            Kind::Softmax,
            SOFTMAX_DOC,
            softmax as fn(&Call<'_>) -> _,
            softmax_grad as fn(&Call<'_>) -> _,
        ),
        ("log_softmax", Kind::Log, LOG_SOFTMAX_DOC, log_softmax, log_softmax_grad),
        ("softmin", Kind::Min, SOFTMIN_DOC, softmin, softmin_grad),
    ] {
        let alias = format!("_npx_{name}");
        let back = format!("_backward_{name}");
        let mut def = OpDef::new::<SoftmaxParam>(name)
            .doc(doc)
            .inputs_are(&[("data", "The input array.")])
            .infer_shape(infer_shape)
            .infer_type(infer_type)
            .inplace_by(
                |attrs| if with_length(attrs) { vec![] } else { vec![InplacePair::new(0, 0)] },
            )
            .gradient(Gradient::declared(&back, |_, inputs, _| {
                let mut deps = vec![Dep::OutGrad(0), Dep::Output(0)];
                if inputs > 1 {
                    deps.push(Dep::Input(1));
                }
                deps
            }))
            .kernel(widening::cpu(forward));
        if kind != Kind::Min {
            def = def.aliases(&[&alias]);
        }
        if kind == Kind::Softmax {
            def = def
                .inputs_are(&[
                    ("data", "The input array."),
                    ("length", "How many elements count, with use_length=True."),
                ])
                .input_names_by(|attrs| {
                    let n = if with_length(attrs) { 2 } else { 1 };
                    ["data", "length"][..n].iter().map(|s| (*s).to_owned()).collect()
                });
        }
        all.push(def);
        all.push(
            OpDef::new::<SoftmaxParam>(&back)
                .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
                .kernel(widening::cpu(backward)),
        );
    }
    all.push(
        OpDef::new::<SoftmaxActivationParam>("SoftmaxActivation")
            .doc(ACTIVATION_DOC)
            .inputs_are(&[("data", "The input array.")])
            .infer_shape(elementwise_shape)
            .infer_type(float_type)
            .inplace(&[InplacePair::new(0, 0)])
            .gradient(Gradient::declared("_backward_SoftmaxActivation", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Output(0)]
            }))
            .kernel(widening::cpu(|call| {
                with_real!(call.inputs[0].dtype(), T => run::<T>(call, activation_plan(call)?, false))
            })),
    );
    all.push(
        OpDef::new::<SoftmaxActivationParam>("_backward_SoftmaxActivation")
            .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
            .kernel(widening::cpu(|call| {
                with_real!(call.inputs[0].dtype(), T => run::<T>(call, activation_plan(call)?, true))
            })),
    );
    all
}

fn with_length(attrs: &Attrs) -> bool {
    attrs.get::<SoftmaxParam>().use_length == Some(true)
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    elementwise_shape(attrs, &mut inputs[..1], outputs)?;
    if inputs[0].rank_known() {
        let axis = inputs[0].axis(attrs.get::<SoftmaxParam>().axis.into())?;
        if inputs.len() > 1 {
            let mut dims = inputs[0].clone();
            dims.dims_mut().remove(axis);
            assign_shape(&mut inputs[1], "length", &dims)?;
        }
    }
    complete(inputs, outputs)
}

fn infer_type(
    attrs: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    if let Some(Some(t)) = inputs.get(1) {
        if !matches!(t, DType::I32 | DType::I64) {
            return Err(Error::argument("length", "dtype", t, "int32 or int64"));
        }
    } else if let Some(length) = inputs.get_mut(1) {
        *length = Some(DType::I32);
    }
    check_float(inputs[0])?;
    match attrs.get::<SoftmaxParam>().dtype {
        Some(FloatType::F16) => assign_type(&mut outputs[0], "output", DType::F16)?,
        Some(FloatType::F32) => assign_type(&mut outputs[0], "output", DType::F32)?,
        Some(FloatType::F64) => assign_type(&mut outputs[0], "output", DType::F64)?,
        None => return float_type(attrs, &mut inputs[..1], outputs),
    }
    Ok(inputs[0].is_some())
}

fn softmax(call: &Call<'_>) -> Result<()> {
    with_real!(call.outputs[0].dtype(), T => run::<T>(call, plan(call, Kind::Softmax), false))
}

fn log_softmax(call: &Call<'_>) -> Result<()> {
    with_real!(call.outputs[0].dtype(), T => run::<T>(call, plan(call, Kind::Log), false))
}

fn softmin(call: &Call<'_>) -> Result<()> {
    with_real!(call.outputs[0].dtype(), T => run::<T>(call, plan(call, Kind::Min), false))
}

// Gradients are calculated in the dtype of the output, which is that of its gradient.
fn softmax_grad(call: &Call<'_>) -> Result<()> {
    with_real!(call.inputs[0].dtype(), T => run::<T>(call, plan(call, Kind::Softmax), true))
}

fn log_softmax_grad(call: &Call<'_>) -> Result<()> {
    with_real!(call.inputs[0].dtype(), T => run::<T>(call, plan(call, Kind::Log), true))
}

fn softmin_grad(call: &Call<'_>) -> Result<()> {
    with_real!(call.inputs[0].dtype(), T => run::<T>(call, plan(call, Kind::Min), true))
}

fn plan<T: Real>(call: &Call<'_>, kind: Kind) -> Softmax<T> {
    let param: &SoftmaxParam = call.attrs.get();
    let shape = call.inputs[0].shape();
    let rank = shape.ndim();
    let axis = (param.axis as i64).rem_euclid(rank as i64) as usize;
    let scale = 1.0 / param.temperature.unwrap_or(1.0);
    Softmax {
        outer: shape.product(0..axis),
        len: shape.product(axis..axis + 1),
        inner: shape.product(axis + 1..rank),
        scale: T::of(if kind == Kind::Min { -scale } else { scale }),
        log: kind == Kind::Log,
    }
}

fn activation_plan<T: Real>(call: &Call<'_>) -> Result<Softmax<T>> {
    let shape = call.inputs[0].shape();
    let channel = call.attrs.get::<SoftmaxActivationParam>().mode == SoftmaxMode::Channel;
    expect_rank(shape, "data", if channel { 2 } else { 1 }..=usize::MAX)?;
    let split = if channel { 2 } else { shape.ndim() };
    Ok(Softmax {
        outer: shape.product(0..1),
        len: shape.product(1..split),
        inner: shape.product(split..shape.ndim()),
        scale: T::one(),
        log: false,
    })
}

/// Runs forward (`data, [length]`) or backward (`out_grad, output, [length]`).
fn run<T: Real>(call: &Call<'_>, plan: Softmax<T>, backward: bool) -> Result<()> {
    zero_lengths(call);
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let lengths = call.inputs.get(if backward { 2 } else { 1 }).map(read_lengths);
    let lengths = lengths.as_deref();
    let out = &call.outputs[0];
    let first = &call.inputs[0];
    // SAFETY: all views have the shape of the data; the output is one of the inputs or apart. Where
    // dtypes differ the calculation runs in scratch.
    unsafe {
        if backward {
            let y = call.inputs[1].as_ptr::<T>();
            if out.dtype() == T::DTYPE {
                plan.backward(y, first.as_ptr(), out.as_ptr(), lengths);
            } else {
                with_scratch(out.size(), |dx: &mut [T]| {
                    plan.backward(y, first.as_ptr(), dx.as_mut_ptr(), lengths);
                    let dx = View::new(dx.as_mut_ptr().cast(), out.shape().clone(), T::DTYPE);
                    copy(&dx, out);
                });
            }
        } else if first.dtype() == T::DTYPE {
            plan.forward(first.as_ptr(), out.as_ptr(), lengths);
        } else {
            copy(first, out);
            plan.forward(out.as_ptr(), out.as_ptr(), lengths);
        }
    }
    Ok(())
}

fn read_lengths(view: &View) -> Vec<usize> {
    // SAFETY: an input is not written while the kernel runs.
    with_dtype!(view.dtype(), T => unsafe { view.slice::<T>() }
        .iter().map(|l| Element::to_f64(*l).max(0.0) as usize).collect())
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        for op in ["softmax", "log_softmax", "softmin"] {
            for axis in ["0", "1", "-1"] {
                let p = [("axis", axis), ("temperature", "0.7")];
                let x = [Tensor::noise(&[2, 3, 4], 5)];
                check_gradient(op, &p, &x, &[0], true);
                check_half(op, &p, &x, true);
            }
            check_gradient(op, &[], &[Tensor::noise(&[1], 5)], &[0], true);
            assert!(values(op, &[], &[Tensor::noise(&[0, 3], 1)]).is_empty());
        }
        for mode in ["instance", "channel"] {
            let x = [Tensor::noise(&[2, 3, 4], 5)];
            check_gradient("SoftmaxActivation", &[("mode", mode)], &x, &[0], true);
        }
    }

    #[test]
    fn lengths_mask_the_rest() {
        let length = Tensor::new(&[2], DType::I32, &[1., 2.]);
        let ran =
            run("softmax", &[("use_length", "1")], &[Tensor::of(&[2, 3], &[1.; 6]), length], true)
                .unwrap();
        assert_eq!(ran.outputs[0].values(), [1., 0., 0., 0.5, 0.5, 0.]);
        let g = ran.gradients(&[Tensor::noise(&[2, 3], 1)]).unwrap();
        assert_eq!(g[0].values()[..3], [0.; 3]);
        let bad = Tensor::of(&[2], &[1., 2.]);
        assert!(
            run("softmax", &[("use_length", "1")], &[Tensor::noise(&[2, 3], 1), bad], true)
                .is_err()
        );
    }

    #[test]
    fn the_output_dtype_can_be_chosen() {
        let x = Tensor::noise(&[2, 3], 1).cast(DType::F32);
        let ran = run("softmax", &[("dtype", "float64")], &[x], true).unwrap();
        assert_eq!(ran.outputs[0].dtype, DType::F64);
        let g = ran.gradients(&[Tensor::noise(&[2, 3], 1)]).unwrap();
        assert_eq!(g[0].dtype, DType::F32);
        let x = Tensor::noise(&[2, 3], 1).cast(DType::F16);
        let ran = run("softmax", &[("dtype", "float64")], &[x], true).unwrap();
        assert!((ran.outputs[0].values()[..3].iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
