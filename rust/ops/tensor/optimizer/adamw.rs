//! AdamW (I. Loshchilov, F. Hutter, Decoupled Weight Decay Regularization, 2019), whose factor of
//! the gradient is an array: a loss scale that is not a finite number leaves everything unchanged.

use super::many::{Inputs, Many, many};
use super::steps::{Arrays, Averages, Prepared, Step, update, update_copy, wanted, with_stored};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::real::Real;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Call, InplacePair, Kernel, OpDef};
use crate::ops::nn::infer::check_float;
use crate::ops::tensor::common::{all_known, copy_view, read_f64};
use crate::params;
use crate::shape::Shape;

params! {
    /// Parameters of `_adamw_update`.
    pub struct AdamWParam {
        lr: f32, required, "Learning rate.";
        beta1: f32, default(0.9), "Decay of the mean.";
        beta2: f32, default(0.999), "Decay of the variance.";
        epsilon: f32, default(1e-8), "Added to the root of the variance.";
        wd: f32, default(0.0), "Weight decay, apart from the learning rate.";
        eta: f32, required, "Factor of the whole step.";
        clip_gradient: f32, default(-1.0), "Limit of the scaled gradient; negative: not limited.";
    }
}

params! {
    /// Parameters of `_multi_adamw_update`.
    pub struct MultiAdamWParam {
        lrs: Vec<f32>, required, "Learning rates.";
        beta1: f32, default(0.9), "Decay of the means.";
        beta2: f32, default(0.999), "Decay of the variances.";
        epsilon: f32, default(1e-8), "Added to the roots of the variances.";
        wds: Vec<f32>, required, "Weight decays, apart from the learning rates.";
        etas: Vec<f32>, required, "Factors of the whole steps.";
        clip_gradient: f32, default(-1.0), "Limit of the scaled gradient; negative: not limited.";
        num_weights: i32, default(1).ge(1.0).le(65535.0), "Number of weights.";
    }
}

impl Many for MultiAdamWParam {
    fn count(&self) -> usize {
        self.num_weights as usize
    }

    fn lists(&self) -> Vec<(&'static str, usize)> {
        vec![("lrs", self.lrs.len()), ("wds", self.wds.len()), ("etas", self.etas.len())]
    }
}

impl MultiAdamWParam {
    pub(in crate::ops) fn of(&self, i: usize) -> AdamWParam {
        AdamWParam {
            lr: self.lrs[i],
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            wd: self.wds[i],
            eta: self.etas[i],
            clip_gradient: self.clip_gradient,
        }
    }
}

impl AdamWParam {
    fn step<R: Real>(&self, scale: f64) -> impl Step<R, 2> + use<R> {
        let of = |x: f32| R::of(x.into());
        let (lr, eta, wd, eps) = (of(self.lr), of(self.eta), of(self.wd), of(self.epsilon));
        let grad = Prepared::<R>::new(scale as f32, self.clip_gradient, 0.0);
        let averages = Averages::new(self.beta1, self.beta2);
        move |w, g, [mean, var]| {
            averages.take(grad.scaled(g), mean, var);
            w - eta * (lr * *mean / (var.sqrt() + eps) + wd * w)
        }
    }

    /// The step of one weight; none unless `scale` is a finite number other than 0.
    fn run(&self, a: &Arrays<'_>, mixed: bool, scale: f64) -> Result<()> {
        if !scale.is_finite() || scale == 0.0 {
            if let Some(out) = a.out.filter(|out| out.ptr() != a.inputs[0].ptr()) {
                copy_view(&a.inputs[0], out);
            }
            return Ok(());
        }
        with_stored!(a.inputs[0], E => match mixed {
            false => update::<E, 2>(a, self.step(scale)),
            true => update_copy::<E, 2>(a, self.step(scale)),
        })
    }
}

/// The last input, a number.
fn scale(call: &Call<'_>) -> f64 {
    let view = &call.inputs[call.inputs.len() - 1];
    // SAFETY: inference gives it one element.
    unsafe { read_f64(view.ptr(), view.dtype(), 0) }
}

const FORMULA: &str = "``mean = beta1 * mean + (1 - beta1) * g``, ``var = beta2 * var + (1 - \
                       beta2) * g * g``, ``weight = weight - eta * (lr * mean / (sqrt(var) + \
                       epsilon) + wd * weight)``";
const NOTES: &str = "``g`` is the gradient times ``rescale_grad`` (1,), limited to \
                     ``clip_gradient`` if that is not negative. If ``rescale_grad`` is 0, infinite \
                     or NaN, nothing changes: the loss scale of mixed precision was too great.";
const SOURCE: &str = "I. Loshchilov, F. Hutter, Decoupled Weight Decay Regularization, 2019.";

fn one(name: &'static str, mixed: bool) -> OpDef {
    let mut inputs = vec![
        ("weight", "The weight."),
        ("grad", "Its gradient."),
        ("mean", "Running mean, changed in place."),
        ("var", "Running variance, changed in place."),
    ];
    if mixed {
        inputs.push(("weight32", "The weight in float32, changed in place."));
    }
    let changed: Vec<usize> = (2..inputs.len()).collect();
    inputs.push(("rescale_grad", "Factor of the gradient (1,)."));
    let (kept, copy) = match mixed {
        true => (
            " mean, var and weight32 are float32 and the step is that of weight32.",
            ", w.astype('float32')",
        ),
        false => ("", ""),
    };
    let names: Vec<&'static str> = inputs.iter().map(|i| i.0).collect();
    let shaped = names.clone();
    OpDef::new::<AdamWParam>(name)
        .doc(&format!(
            "One step of AdamW: {FORMULA}.\n\nNotes\n-----\n{NOTES}{kept} All other arrays have \
             one shape and one dtype: float16 (calculated in float32), float32 or float64.\n\n\
             Examples\n--------\n>>> w, g = nd.ones((2,)), nd.ones((2,))\n>>> w = \
             nd._internal.{name}(w, g, nd.zeros((2,)), nd.zeros((2,)){copy}, nd.array([1]), \
             lr=0.1, eta=1, out=w)\n>>> bool((w.asnumpy() < 1).all())\nTrue\n\n{SOURCE}"
        ))
        .inputs_are(&inputs)
        .infer_shape(move |_, inputs, outputs| {
            let (scale, arrays) = inputs.split_last_mut().expect("five inputs or more");
            if !scale.is_known() || scale.size() != 1 {
                assign_shape(scale, "rescale_grad", &Shape::new(&[1]))?;
            }
            let mut common = outputs[0].clone();
            for (shape, name) in arrays.iter().zip(&shaped) {
                assign_shape(&mut common, name, shape)?;
            }
            arrays.fill(common.clone());
            outputs[0] = common;
            Ok(all_known(inputs, outputs))
        })
        .infer_type(move |_, inputs, outputs| {
            let (scale, arrays) = inputs.split_last_mut().expect("five inputs or more");
            scale.get_or_insert(DType::F32);
            let (narrow, wide) = arrays.split_at_mut(if mixed { 2 } else { 4 });
            for (k, slot) in wide.iter_mut().enumerate() {
                assign_type(slot, names[2 + k], DType::F32)?;
            }
            let known = narrow.iter().flatten().next().copied().or(outputs[0]);
            let Some(dtype) = known else { return Ok(false) };
            check_float(Some(dtype))?;
            for (k, slot) in narrow.iter_mut().enumerate() {
                assign_type(slot, names[k], dtype)?;
            }
            assign_type(&mut outputs[0], "output", dtype)?;
            Ok(true)
        })
        .mutates(&changed)
        .inplace(&[InplacePair::new(0, 0)])
        .no_auto_variables()
        .not_deterministic()
        .kernel(
            Kernel::cpu(move |call| {
                let p: &AdamWParam = call.attrs.get();
                p.run(&Arrays::of(call), mixed, scale(call))
            })
            .skips_null(),
        )
}

static MULTI: [Inputs; 2] = [
    Inputs { states: &["mean", "var"], mixed: false, trailing: &[("rescale_grad", false)] },
    Inputs { states: &["mean", "var"], mixed: true, trailing: &[("rescale_grad", false)] },
];

fn multi(name: &str, of: &'static Inputs) -> OpDef {
    let (inputs, copy) = match of.mixed {
        true => ("weight_i, grad_i, mean_i, var_i, weight32_i", ", w.astype('float32')"),
        false => ("weight_i, grad_i, mean_i, var_i", ""),
    };
    let doc = format!(
        "One step of AdamW for each of ``n`` weights, usually with ``out=[weight_0, ...]``: \
         {FORMULA}.\n\nNotes\n-----\nInputs for each weight: {inputs}; behind all of them \
         rescale_grad. {NOTES} The arrays of a weight have one shape; states and weight32_i are \
         float32 with the latter, else of the weight's dtype: float16 (calculated in float32), \
         float32 or float64. States and weight32_i are changed in place.\n\nExamples\n--------\n\
         >>> w, g = nd.ones((2,)), nd.ones((2,))\n>>> states = [nd.zeros((2,)), nd.zeros((2,))]\n\
         >>> w = nd._internal.{name}(w, g, *states{copy}, nd.array([1]), lrs=(0.1,), wds=(0,), \
         etas=(1,), out=w)\n>>> bool((w.asnumpy() < 1).all())\nTrue\n\n{SOURCE}"
    );
    many::<MultiAdamWParam>(name, of, &doc, move |call| {
        let (p, scale) = (call.attrs.get::<MultiAdamWParam>(), scale(call));
        let groups = call.inputs.chunks_exact(of.stride()).take(call.outputs.len());
        groups.enumerate().try_for_each(|(i, inputs)| {
            p.of(i).run(&Arrays { inputs, out: wanted(call, i) }, of.mixed, scale)
        })
    })
}

pub fn operators() -> Vec<OpDef> {
    vec![
        one("_adamw_update", false),
        one("_mp_adamw_update", true),
        multi("_multi_adamw_update", &MULTI[0]),
        multi("_multi_mp_adamw_update", &MULTI[1]),
    ]
}
