//! LAMB (Y. You et al., Large Batch Optimization for Deep Learning, 2020): Adam's step, as long as
//! the weight is. In two operators, with the norms taken between them, and in one for any number of
//! weights.

use super::many::{Inputs, Many, many};
use super::steps::{
    Arrays, Averages, Prepared, Step, Stored, each, total, update, wanted, with_stored,
};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::kernels::parallel::Shared;
use crate::kernels::real::Real;
use crate::operator::infer::{assign_shape, assign_type, elementwise_shape};
use crate::operator::{InplacePair, Kernel, OpDef, Tuple};
use crate::ops::nn::infer::check_float;
use crate::ops::tensor::common::{all_known, read_f64};
use crate::params;
use crate::shape::Shape;

params! {
    /// Parameters of `lamb_update_phase1`.
    #[derive(Copy)]
    pub struct Phase1Param {
        beta1: f32, default(0.9), "Decay of the mean.";
        beta2: f32, default(0.999), "Decay of the variance.";
        epsilon: f32, default(1e-6), "Added to the root of the variance.";
        t: i32, required, "Number of the step, from 1.";
        bias_correction: bool, default(true), "Divide the averages by 1 - beta^t?";
        wd: f32, required, "Weight decay.";
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        clip_gradient: f32, default(-1.0), "Then limited to this absolute value; negative: not \
                                            limited.";
    }
}

params! {
    /// Parameters of `lamb_update_phase2`.
    pub struct Phase2Param {
        lr: f32, required, "Learning rate.";
        lower_bound: f32, default(-1.0), "Least norm of the weight; not bounded if negative.";
        upper_bound: f32, default(-1.0), "Greatest norm of the weight; not bounded if negative.";
    }
}

params! {
    /// Parameters of `_multi_lamb_update`.
    pub struct MultiLambParam {
        learning_rates: Vec<f32>, required, "Learning rates.";
        beta1: f32, default(0.9), "Decay of the means.";
        beta2: f32, default(0.999), "Decay of the variances.";
        epsilon: f32, default(1e-6), "Added to the roots of the variances.";
        wds: Vec<f32>, required, "Weight decays.";
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        lower_bound: f32, default(-1.0), "Least norm of a weight; not bounded if negative.";
        upper_bound: f32, default(-1.0), "Greatest norm of a weight; not bounded if negative.";
        clip_gradient: f32, default(-1.0), "Limit of the scaled gradient; negative: not limited.";
        bias_correction: bool, default(true), "Divide the averages by 1 - beta^t?";
        step_count: Tuple, required, "The number t of each weight's step, from 1.";
        num_tensors: i32, default(1).ge(1.0).le(65535.0), "Number of weights.";
    }
}

impl Many for MultiLambParam {
    fn count(&self) -> usize {
        self.num_tensors as usize
    }

    fn lists(&self) -> Vec<(&'static str, usize)> {
        let rates = ("learning_rates", self.learning_rates.len());
        vec![rates, ("wds", self.wds.len()), ("step_count", self.step_count.len())]
    }
}

impl MultiLambParam {
    pub(in crate::ops) fn phase1(&self, i: usize) -> Phase1Param {
        Phase1Param {
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            t: self.step_count[i].clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32,
            bias_correction: self.bias_correction,
            wd: self.wds[i],
            rescale_grad: self.rescale_grad,
            clip_gradient: self.clip_gradient,
        }
    }

    pub(in crate::ops) fn phase2(&self, i: usize) -> Phase2Param {
        let (lower_bound, upper_bound) = (self.lower_bound, self.upper_bound);
        Phase2Param { lr: self.learning_rates[i], lower_bound, upper_bound }
    }
}

/// From weight and averages to the direction of the step.
#[derive(Clone, Copy)]
struct Direction<R> {
    mean: R,
    var: R,
    eps: R,
    wd: R,
}

impl<R: Real> Direction<R> {
    #[inline(always)]
    fn at(&self, w: R, mean: R, var: R) -> R {
        self.mean * mean / ((self.var * var).sqrt() + self.eps) + self.wd * w
    }
}

impl Phase1Param {
    fn direction<R: Real>(&self) -> Direction<R> {
        let correction = |beta: f32| match self.bias_correction {
            true => R::of(1.0 / (1.0 - f64::from(beta).powi(self.t))),
            false => R::one(),
        };
        Direction {
            mean: correction(self.beta1),
            var: correction(self.beta2),
            eps: R::of(self.epsilon.into()),
            wd: R::of(self.wd.into()),
        }
    }

    /// Takes in the gradient and gives the direction.
    fn step<R: Real>(&self) -> impl Step<R, 2> + use<R> {
        let (take, direction) = (self.averages(), self.direction::<R>());
        move |w, g, [mean, var]| {
            take(g, mean, var);
            direction.at(w, *mean, *var)
        }
    }

    /// Takes in the gradient.
    fn averages<R: Real>(&self) -> impl Fn(R, &mut R, &mut R) + Copy + Send + Sync + use<R> {
        let grad = Prepared::<R>::new(self.rescale_grad, self.clip_gradient, 0.0);
        let averages = Averages::new(self.beta1, self.beta2);
        move |g, mean, var| averages.take(grad.scaled(g), mean, var)
    }
}

impl Phase2Param {
    /// The rate for the norms of weight and direction.
    fn rate(&self, weight: f64, direction: f64) -> f64 {
        let mut r1 = weight;
        if self.lower_bound >= 0.0 {
            r1 = r1.max(self.lower_bound.into());
        }
        if self.upper_bound >= 0.0 {
            r1 = r1.min(self.upper_bound.into());
        }
        let ratio = if r1 == 0.0 || direction == 0.0 { 1.0 } else { r1 / direction };
        f64::from(self.lr) * ratio
    }
}

const FIRST: &str = "``mean = beta1 * mean + (1 - beta1) * g``, ``var = beta2 * var + (1 - beta2) \
                     * g * g``, ``u = m / (sqrt(v) + epsilon) + wd * weight``";
const GRAD: &str = "``m`` and ``v`` are mean and var, divided by ``1 - beta1^t`` and ``1 - \
                    beta2^t`` with ``bias_correction``; ``g`` is the gradient times \
                    ``rescale_grad``, limited to ``clip_gradient`` if that is not negative. mean \
                    and var are changed in place.";
const SECOND: &str = "``weight = weight - lr * r1 / r2 * u``";
const RATIO: &str = "``r1``, the norm of the weight, is kept within the bounds, and ``r1 / r2`` is \
                     1 if a norm is 0.";
const SOURCE: &str =
    "Y. You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, 2020.";

fn doc(what: &str, notes: &str, example: &str) -> String {
    format!("{what}.\n\nNotes\n-----\n{notes}\n\nExamples\n--------\n{example}\n\n{SOURCE}")
}

/// Weight, gradient or direction of one dtype, what `wide` names in float32 with a copy.
fn phase_type(
    mixed: bool,
    wide: &'static [(usize, &'static str)],
    inputs: &mut [Option<DType>],
) -> Result<Option<DType>> {
    if mixed {
        for (i, name) in wide {
            assign_type(&mut inputs[*i], name, DType::F32)?;
        }
    }
    let is_wide = |i: usize| mixed && wide.iter().any(|w| w.0 == i);
    let known = (0..inputs.len()).filter(|&i| !is_wide(i)).find_map(|i| inputs[i]);
    check_float(known)?;
    if let Some(dtype) = known {
        for i in (0..inputs.len()).filter(|&i| !is_wide(i)) {
            assign_type(&mut inputs[i], &format!("input {i}"), dtype)?;
        }
    }
    Ok(known)
}

fn phase1(name: &str, mixed: bool) -> OpDef {
    let mut inputs = vec![
        ("weight", "The weight."),
        ("grad", "Its gradient."),
        ("mean", "Running mean, changed in place."),
        ("var", "Running variance, changed in place."),
    ];
    let (kept, copy) = match mixed {
        true => {
            inputs.push(("weight32", "The weight in float32."));
            (" mean, var, weight32 and the output are float32.", ", w.astype('float32')")
        }
        false => {
            (" All arrays have one dtype: float16 (calculated in float32), float32 or float64.", "")
        }
    };
    OpDef::new::<Phase1Param>(name)
        .doc(&doc(
            &format!("The direction ``u`` of a step of LAMB: {FIRST}"),
            &format!("{GRAD}{kept} All arrays have one shape."),
            &format!(
                ">>> w, g = nd.ones((2,)), nd.ones((2,))\n>>> u = nd.{name}(w, g, nd.zeros((2,)), \
                 nd.zeros((2,)){copy}, t=1, wd=0)\n>>> u.asnumpy().round(3).tolist()\n[1.0, 1.0]"
            ),
        ))
        .inputs_are(&inputs)
        .infer_shape(elementwise_shape)
        .infer_type(move |_, inputs, outputs| {
            if !mixed {
                inputs[0] = inputs[0].or(outputs[0]);
            }
            let Some(dtype) =
                phase_type(mixed, &[(2, "mean"), (3, "var"), (4, "weight32")], inputs)?
            else {
                return Ok(false);
            };
            assign_type(&mut outputs[0], "output", if mixed { DType::F32 } else { dtype })?;
            Ok(true)
        })
        .mutates(&[2, 3])
        .no_auto_variables()
        .not_deterministic()
        .kernel(
            Kernel::cpu(move |call| {
                let (p, a) = (call.attrs.get::<Phase1Param>(), Arrays::of(call));
                with_stored!(call.inputs[0], E => match mixed {
                    false => update::<E, 2>(&a, p.step()),
                    true => each::<f32, E, f32, f32, f32, 2>(
                        (&a.inputs[4], false), &a.inputs[1..], a.out, p.step(),
                    ),
                })
            })
            .skips_null(),
        )
}

fn phase2(name: &str, mixed: bool) -> OpDef {
    let mut inputs = vec![
        ("weight", "The weight."),
        ("g", "The direction, from the first phase."),
        ("r1", "Norm of the weight (1,)."),
        ("r2", "Norm of the direction (1,)."),
    ];
    let (kept, copy, changed) = match mixed {
        true => {
            inputs.push(("weight32", "The weight in float32, changed in place."));
            (
                " All but weight and output are float32; the output is the new weight32 in the \
                 weight's dtype.",
                ", w.astype('float32')",
                &[4][..],
            )
        }
        false => (
            " All arrays have one dtype: float16 (calculated in float32), float32 or float64.",
            "",
            &[][..],
        ),
    };
    let names: Vec<&'static str> = inputs.iter().map(|i| i.0).collect();
    OpDef::new::<Phase2Param>(name)
        .doc(&doc(
            &format!("A step of LAMB in the direction ``u``: {SECOND}"),
            &format!("{RATIO}{kept} r1 and r2 have shape (1,), all others one shape."),
            &format!(
                ">>> w, u = nd.ones((2,)), nd.ones((2,))\n>>> nd.{name}(w, u, nd.norm(w), \
                 nd.norm(u){copy}, lr=0.5)\n[0.5 0.5]"
            ),
        ))
        .inputs_are(&inputs)
        .infer_shape(move |_, inputs, outputs| {
            let mut common = outputs[0].clone();
            for (i, shape) in inputs.iter_mut().enumerate() {
                match i {
                    2 => assign_shape(shape, "r1", &Shape::new(&[1]))?,
                    3 => assign_shape(shape, "r2", &Shape::new(&[1]))?,
                    _ => assign_shape(&mut common, names[i], shape)?,
                }
            }
            for i in (0..inputs.len()).filter(|i| ![2, 3].contains(i)) {
                inputs[i] = common.clone();
            }
            outputs[0] = common;
            Ok(all_known(inputs, outputs))
        })
        .infer_type(move |_, inputs, outputs| {
            inputs[0] = inputs[0].or(outputs[0]);
            let wide = &[(1, "g"), (2, "r1"), (3, "r2"), (4, "weight32")];
            let Some(dtype) = phase_type(mixed, wide, inputs)? else { return Ok(false) };
            assign_type(&mut outputs[0], "output", dtype)?;
            Ok(true)
        })
        .mutates(changed)
        .inplace(&[InplacePair::new(0, 0)])
        .no_auto_variables()
        .not_deterministic()
        .kernel(
            Kernel::cpu(move |call| {
                // SAFETY: inference gives both one element.
                let [r1, r2] = [2, 3].map(|i| unsafe {
                    read_f64(call.inputs[i].ptr(), call.inputs[i].dtype(), 0)
                });
                let rate = call.attrs.get::<Phase2Param>().rate(r1, r2);
                let (x, out) = (call.inputs, wanted(call, 0));
                with_stored!(x[0], E => match mixed {
                    false => along::<E, E, E, <E as Stored>::Calc>((&x[0], false), &x[1..], out, rate),
                    true => along::<f32, f32, E, f32>((&x[4], true), &x[1..], out, rate),
                })
            })
            .skips_null(),
        )
}

/// `w - rate * u`, with `u` the first of `others`.
fn along<W: Element, U: Element, O: Element, C: Real>(
    weight: (&crate::tensor::View, bool),
    others: &[crate::tensor::View],
    out: Option<&crate::tensor::View>,
    rate: f64,
) {
    let rate = C::of(rate);
    each::<W, U, U, O, C, 0>(weight, others, out, move |w, u, _| w - rate * u);
}

/// The whole step of one weight. The direction is not stored: it follows from weight and averages.
/// The norm is that of the weight itself, not of its copy.
fn whole<W: Element, E: Element, C: Real>(
    a: &Arrays<'_>,
    mixed: bool,
    first: &Phase1Param,
    second: &Phase2Param,
) {
    let weight = if mixed { &a.inputs[4] } else { &a.inputs[0] };
    let (take, direction) = (first.averages::<C>(), first.direction::<C>());
    each::<W, E, W, E, C, 2>((weight, false), &a.inputs[1..], None, move |w, g, [mean, var]| {
        take(g, mean, var);
        w
    });
    let narrow = Shared(a.inputs[0].as_ptr::<E>());
    let [w, m, v] = [weight, &a.inputs[2], &a.inputs[3]].map(|x| Shared(x.as_ptr::<W>()));
    let [w2, u2] = total(weight.size(), |i| {
        // SAFETY: all views have as many elements, and none is written meanwhile.
        let narrow = C::of(unsafe { *narrow.at(i) }.to_f64());
        // SAFETY: as above.
        let [w, m, v] = [w, m, v].map(|x| C::of(unsafe { *x.at(i) }.to_f64()));
        [narrow, direction.at(w, m, v)].map(|x| x.to_f64() * x.to_f64())
    });
    let rate = C::of(second.rate(w2.sqrt(), u2.sqrt()));
    each::<W, E, W, E, C, 2>((weight, mixed), &a.inputs[1..], a.out, move |w, _, [mean, var]| {
        w - rate * direction.at(w, *mean, *var)
    });
}

static MULTI: [Inputs; 2] = [
    Inputs { states: &["mean", "var"], mixed: false, trailing: &[] },
    Inputs { states: &["mean", "var"], mixed: true, trailing: &[] },
];

fn multi(name: &str, of: &'static Inputs) -> OpDef {
    let (inputs, copy) = match of.mixed {
        true => ("weight_i, grad_i, mean_i, var_i, weight32_i", ", w.astype('float32')"),
        false => ("weight_i, grad_i, mean_i, var_i", ""),
    };
    let doc = doc(
        &format!(
            "One step of LAMB for each of ``n`` weights, usually with ``out=[weight_0, ...]``: \
             {FIRST}, {SECOND}"
        ),
        &format!(
            "Inputs for each weight: {inputs}. {GRAD} {RATIO} ``r2`` is the norm of ``u``. The \
             arrays of a weight have one shape; states and weight32_i are float32 with the latter, \
             else of the weight's dtype: float16 (calculated in float32), float32 or float64. \
             States and weight32_i are changed in place."
        ),
        &format!(
            ">>> w, g = nd.ones((2,)), nd.ones((2,))\n>>> states = [nd.zeros((2,)), \
             nd.zeros((2,))]\n>>> w = nd._internal.{name}(w, g, *states{copy}, \
             learning_rates=(0.5,), wds=(0,), step_count=(1,), out=w)\n>>> \
             w.asnumpy().round(3).tolist()\n[0.5, 0.5]"
        ),
    );
    many::<MultiLambParam>(name, of, &doc, move |call| {
        let p: &MultiLambParam = call.attrs.get();
        let groups = call.inputs.chunks_exact(of.stride()).take(call.outputs.len());
        for (i, inputs) in groups.enumerate() {
            let a = Arrays { inputs, out: wanted(call, i) };
            let (first, second) = (p.phase1(i), p.phase2(i));
            let done: Result<()> = with_stored!(inputs[0], E => match of.mixed {
                false => whole::<E, E, <E as Stored>::Calc>(&a, false, &first, &second),
                true => whole::<f32, E, f32>(&a, true, &first, &second),
            });
            done?;
        }
        Ok(())
    })
}

pub fn operators() -> Vec<OpDef> {
    vec![
        phase1("lamb_update_phase1", false),
        phase1("mp_lamb_update_phase1", true),
        phase2("lamb_update_phase2", false),
        phase2("mp_lamb_update_phase2", true),
        multi("_multi_lamb_update", &MULTI[0]),
        multi("_multi_mp_lamb_update", &MULTI[1]),
    ]
}
