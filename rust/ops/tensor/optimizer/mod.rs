//! Optimizer updates: one pass over weight, gradient and states. They are called with `out=weight`
//! and change their states in place. The arithmetic of a step is in `steps.rs`; here are the
//! operators on one weight, in `many.rs` those on any number of weights.

pub(in crate::ops) mod adamw;
pub(in crate::ops) mod lamb;
pub(in crate::ops) mod many;
pub(in crate::ops) mod rates;
mod steps;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::real::Real;
use crate::operator::infer::{assign_type, elementwise_shape, same_type};
use crate::operator::{Attrs, Call, InplacePair, Kernel, OpDef, ParamStruct};
use crate::params;
use crate::tensor::View;
use num_traits::Float;
pub(in crate::ops) use steps::Descent;
use steps::{Arrays, Prepared, Step, Stored, limit, update, update_copy, with_stored};

params! {
    /// Parameters of `sgd_update`.
    pub struct SgdParam {
        lr: f32, required, "Learning rate.";
        wd: f32, default(0.0), "Weight decay.";
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        clip_gradient: f32, default(-1.0), "Then limited to this absolute value; negative: not \
                                            limited.";
        lazy_update: bool, default(true), "Accepted for sparse gradients; no effect on dense ones.";
    }
}

params! {
    /// Parameters of `sgd_mom_update`.
    pub struct SgdMomParam {
        lr: f32, required, "Learning rate.";
        momentum: f32, default(0.0), "Share of the last step that is kept.";
        wd: f32, default(0.0), "Weight decay.";
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        clip_gradient: f32, default(-1.0), "Then limited to this absolute value; negative: not \
                                            limited.";
        lazy_update: bool, default(true), "Accepted for sparse gradients; no effect on dense ones.";
    }
}

params! {
    /// Parameters of `adam_update`.
    pub struct AdamParam {
        lr: f32, required, "Learning rate.";
        beta1: f32, default(0.9), "Decay of the mean.";
        beta2: f32, default(0.999), "Decay of the variance.";
        epsilon: f32, default(1e-8), "Added to the root of the variance.";
        wd: f32, default(0.0), "Weight decay.";
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        clip_gradient: f32, default(-1.0), "Then limited to this absolute value; negative: not \
                                            limited.";
        lazy_update: bool, default(true), "Accepted for sparse gradients; no effect on dense ones.";
    }
}

params! {
    /// Parameters of `rmsprop_update`.
    pub struct RmsPropParam {
        lr: f32, required, "Learning rate.";
        gamma1: f32, default(0.95), "Decay of the mean square.";
        epsilon: f32, default(1e-8), "Added to the mean square.";
        wd: f32, default(0.0), "Weight decay.";
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        clip_gradient: f32, default(-1.0), "Then limited to this absolute value; negative: not \
                                            limited.";
        clip_weights: f32, default(-1.0), "The weights are limited to this absolute value; \
                                           negative: not limited.";
    }
}

fn adam<E: Stored>(call: &Call<'_>) {
    let p = call.attrs.get::<AdamParam>();
    let of = |x: f32| E::Calc::of(x as f64);
    let (lr, b1, b2, eps) = (of(p.lr), of(p.beta1), of(p.beta2), of(p.epsilon));
    let grad = Prepared::<E::Calc>::new(p.rescale_grad, p.clip_gradient, p.wd);
    let one = E::Calc::of(1.0);
    update::<E, 2>(&Arrays::of(call), move |w, g, [mean, var]| {
        let g = grad.decayed_then_clipped(g, w);
        *mean = b1 * *mean + (one - b1) * g;
        *var = b2 * *var + (one - b2) * g * g;
        w - lr * *mean / (var.sqrt() + eps)
    });
}

fn rmsprop<E: Stored>(call: &Call<'_>) {
    let p = call.attrs.get::<RmsPropParam>();
    let of = |x: f32| E::Calc::of(x as f64);
    let (lr, keep, eps) = (of(p.lr), of(p.gamma1), of(p.epsilon));
    let grad = Prepared::<E::Calc>::new(p.rescale_grad, p.clip_gradient, p.wd);
    let bound = (p.clip_weights >= 0.0).then(|| of(p.clip_weights));
    let one = E::Calc::of(1.0);
    update::<E, 1>(&Arrays::of(call), move |w, g, [n]| {
        let g = grad.decayed_then_clipped(g, w);
        *n = (one - keep) * g * g + keep * *n;
        let w = w - lr * g / (*n + eps).sqrt();
        bound.map_or(w, |b| limit(w, b))
    });
}

impl SgdParam {
    pub(in crate::ops) fn descent(&self) -> Descent {
        Descent {
            lr: self.lr,
            wd: self.wd,
            momentum: 0.0,
            rescale: self.rescale_grad,
            clip: self.clip_gradient,
        }
    }
}

impl SgdMomParam {
    pub(in crate::ops) fn descent(&self) -> Descent {
        Descent {
            lr: self.lr,
            wd: self.wd,
            momentum: self.momentum,
            rescale: self.rescale_grad,
            clip: self.clip_gradient,
        }
    }
}

/// The step of `sgd_update`, of a call with its parameters.
fn sgd<R: Real>(call: &Call<'_>) -> impl Step<R, 0> + use<R> {
    call.attrs.get::<SgdParam>().descent().plain()
}

fn sgd_mom<R: Real>(call: &Call<'_>) -> impl Step<R, 1> + use<R> {
    call.attrs.get::<SgdMomParam>().descent().with_momentum()
}

fn nag_mom<R: Real>(call: &Call<'_>) -> impl Step<R, 1> + use<R> {
    call.attrs.get::<SgdMomParam>().descent().nesterov()
}

/// Common parts of all updates of a weight: names of the inputs, and the inputs changed in place.
fn updating<P: ParamStruct>(name: &str, states: &[(&str, &str)]) -> OpDef {
    let mut inputs = vec![("weight", "The weight."), ("grad", "Its gradient.")];
    inputs.extend(states);
    OpDef::new::<P>(name)
        .inputs_are(&inputs)
        .infer_shape(elementwise_shape)
        .mutates(&(2..inputs.len()).collect::<Vec<_>>())
        .inplace(&[InplacePair::new(0, 0)])
        .no_auto_variables()
        .not_deterministic()
}

fn optimizer<P: ParamStruct>(
    name: &str,
    alias: &[&str],
    formula: &str,
    states: &'static [(&'static str, &'static str)],
    run: fn(&Call<'_>) -> Result<()>,
) -> OpDef {
    let example = super::updates::example(name, states.len());
    updating::<P>(name, states)
        .aliases(alias)
        .doc(&format!(
            "Updates a weight, usually with `out=weight`, and its states in place.\n\n{formula}\n\n\
             where g is the gradient times `rescale_grad`, limited to `clip_gradient` if that is \
             not negative. All arrays have one shape and one dtype, float16 (calculated in \
             float32), float32 or float64.\n\nExamples\n--------\n>>> w, g = nd.ones((2,)), \
             nd.ones((2,))\n{example}"
        ))
        .infer_type(|attrs: &Attrs, inputs, outputs| {
            let known = same_type(attrs, inputs, outputs)?;
            match inputs[0] {
                Some(t) if !t.is_float() => {
                    let floats = "float16, float32 or float64";
                    Err(crate::error::Error::argument("weight", "dtype", t, floats))
                }
                _ => Ok(known),
            }
        })
        .kernel(Kernel::cpu(run).skips_null())
}

/// An update of a weight that has a copy in float32; states are float32, too.
fn mixed<P: ParamStruct>(
    name: &str,
    formula: &str,
    states: &'static [(&'static str, &'static str)],
    run: fn(&Call<'_>) -> Result<()>,
) -> OpDef {
    let single = [states, &[("weight32", "The weight in float32.")]].concat();
    let zeros = ", nd.zeros((2,))".repeat(states.len());
    updating::<P>(name, &single)
        .doc(&format!(
            "Updates a weight of low precision, usually with `out=weight`, by its copy in \
             float32.\n\n{formula}\n\nwhere g is the gradient times `rescale_grad`, limited to \
             `clip_gradient` if that is not negative. `weight32` and the states are float32 and \
             changed in place; the output is `weight32` in the dtype of weight and gradient. All \
             arrays have one shape.\n\nExamples\n--------\n>>> w32 = nd.ones((2,))\n>>> w, g = \
             w32.astype('float16'), nd.ones((2,), dtype='float16')\n>>> w = nd.{name}(w, g{zeros}, \
             w32, lr=0.5, out=w)\n>>> w32\n[0.5 0.5]\n"
        ))
        .infer_type(move |_, inputs, outputs| {
            for (slot, (name, _)) in inputs[2..].iter_mut().zip(&single) {
                assign_type(slot, name, DType::F32)?;
            }
            let Some(dtype) = inputs[0].or(inputs[1]).or(outputs[0]) else { return Ok(false) };
            crate::ops::nn::infer::check_float(Some(dtype))?;
            assign_type(&mut inputs[0], "weight", dtype)?;
            assign_type(&mut inputs[1], "grad", dtype)?;
            assign_type(&mut outputs[0], "output", dtype)?;
            Ok(true)
        })
        .kernel(Kernel::cpu(run))
}

/// All updates of weights but those of the table in `updates.rs`.
pub fn operators() -> Vec<OpDef> {
    let families: [fn() -> Vec<OpDef>; 5] =
        [single, many::operators, adamw::operators, lamb::operators, rates::operators];
    families.iter().flat_map(|family| family()).collect()
}

fn weight<'a>(call: &Call<'a>) -> &'a View {
    &call.inputs[0]
}

/// Updates of one weight.
fn single() -> Vec<OpDef> {
    const MOM: &[(&str, &str)] = &[("mom", "The momentum.")];
    vec![
        optimizer::<SgdParam>(
            "sgd_update",
            &["_sparse_sgd_update"],
            "weight = weight - lr * (g + wd * weight)",
            &[],
            |call| with_stored!(weight(call), E => update::<E, 0>(&Arrays::of(call), sgd(call))),
        ),
        optimizer::<SgdMomParam>(
            "sgd_mom_update",
            &["_sparse_sgd_mom_update"],
            "mom = momentum * mom - lr * (g + wd * weight); weight = weight + mom",
            MOM,
            |call| with_stored!(weight(call), E => update::<E, 1>(&Arrays::of(call), sgd_mom(call))),
        ),
        mixed::<SgdParam>(
            "mp_sgd_update",
            "weight32 = weight32 - lr * (g + wd * weight32)",
            &[],
            |call| with_stored!(weight(call), E => update_copy::<E, 0>(&Arrays::of(call), sgd(call))),
        ),
        mixed::<SgdMomParam>(
            "mp_sgd_mom_update",
            "mom = momentum * mom - lr * (g + wd * weight32); weight32 = weight32 + mom",
            MOM,
            |call| with_stored!(weight(call), E => update_copy::<E, 1>(&Arrays::of(call), sgd_mom(call))),
        ),
        optimizer::<SgdMomParam>(
            "nag_mom_update",
            &[],
            "mom = momentum * mom - lr * (g + wd * weight); weight = weight + momentum * mom - lr \
             * (g + wd * weight)\n\n(Y. Nesterov, 1983)",
            MOM,
            |call| with_stored!(weight(call), E => update::<E, 1>(&Arrays::of(call), nag_mom(call))),
        ),
        mixed::<SgdMomParam>(
            "mp_nag_mom_update",
            "mom = momentum * mom - lr * (g + wd * weight32); weight32 = weight32 + momentum * mom \
             - lr * (g + wd * weight32)",
            MOM,
            |call| with_stored!(weight(call), E => update_copy::<E, 1>(&Arrays::of(call), nag_mom(call))),
        ),
        optimizer::<AdamParam>(
            "adam_update",
            &["_sparse_adam_update"],
            "mean = beta1 * mean + (1 - beta1) * g; var = beta2 * var + (1 - beta2) * g * g; \
             weight = weight - lr * mean / (sqrt(var) + epsilon), in which g contains wd * weight \
             before it is limited\n\n(D. Kingma, J. Ba, Adam, 2015)",
            &[("mean", "Running mean."), ("var", "Running variance.")],
            |call| with_stored!(weight(call), E => adam::<E>(call)),
        ),
        optimizer::<RmsPropParam>(
            "rmsprop_update",
            &[],
            "n = gamma1 * n + (1 - gamma1) * g * g; weight = weight - lr * g / sqrt(n + \
             epsilon)\n\n(T. Tieleman, G. Hinton, 2012)",
            &[("n", "Running mean square.")],
            |call| with_stored!(weight(call), E => rmsprop::<E>(call)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Tensor, values};

    #[test]
    fn steps_follow_their_formulas() {
        let one = |x: f64| Tensor::of(&[1], &[x]);
        let close = |a: Vec<f64>, b: f64| assert!((a[0] - b).abs() < 1e-7, "{a:?} {b}");
        let lr = ("lr", "0.5");
        close(
            values(
                "sgd_update",
                &[lr, ("wd", "0.1"), ("rescale_grad", "2")],
                &[one(1.0), one(3.0)],
            ),
            1.0 - 0.5 * 6.1,
        );
        close(values("sgd_update", &[lr, ("clip_gradient", "1")], &[one(1.0), one(-3.0)]), 1.5);
        let mom = one(2.0);
        close(
            values("sgd_mom_update", &[lr, ("momentum", "0.5")], &[one(1.0), one(3.0), mom]),
            0.5,
        );
        let got = values("adam_update", &[lr], &[one(1.0), one(3.0), one(0.0), one(0.0)]);
        assert!((got[0] - (1.0 - 0.5 * 0.3 / 0.009f64.sqrt())).abs() < 1e-4, "{got:?}");
    }
}
