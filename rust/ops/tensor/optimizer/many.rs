//! Updates of any number of weights by one call: what `many` defines from the layout of the inputs,
//! and gradient descent in all its forms. (For adaptive steps see `adamw.rs` and `lamb.rs`.)

use super::steps::{Arrays, Descent, update, update_copy, wanted, with_stored};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, InplacePair, Kernel, OpDef, ParamStruct};
use crate::ops::nn::infer::check_float;
use crate::ops::tensor::common::{all_known, read_f64};
use crate::params;
use crate::shape::Shape;

/// The inputs of an operator on many weights: for each of them weight, gradient, states and perhaps
/// a copy in float32, then what is for all.
pub(super) struct Inputs {
    pub states: &'static [&'static str],
    /// Is there a copy of each weight in float32? The states are float32 then.
    pub mixed: bool,
    /// Inputs behind all groups, float32, and whether they hold one number per weight (else one for
    /// all).
    pub trailing: &'static [(&'static str, bool)],
}

impl Inputs {
    /// Inputs of one weight.
    pub fn stride(&self) -> usize {
        2 + self.states.len() + usize::from(self.mixed)
    }

    /// Names of the inputs of `n` weights.
    fn names(&self, n: usize) -> Vec<String> {
        let copy = self.mixed.then_some("weight32");
        let kinds = ["weight", "grad"].into_iter().chain(self.states.iter().copied()).chain(copy);
        let kinds: Vec<&str> = kinds.collect();
        let group = |i: usize| kinds.iter().map(move |kind| format!("{kind}_{i}"));
        let trailing = self.trailing.iter().map(|t| t.0.to_owned());
        (0..n).flat_map(group).chain(trailing).collect()
    }

    /// One shape in each group, in every direction.
    fn shapes(&self, n: usize, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
        let (names, stride) = (self.names(n), self.stride());
        for (i, group) in inputs.chunks_exact_mut(stride).take(n).enumerate() {
            let mut common = outputs[i].clone();
            for (k, shape) in group.iter_mut().enumerate() {
                assign_shape(&mut common, &names[i * stride + k], shape)?;
            }
            group.fill(common.clone());
            outputs[i] = common;
        }
        for (k, (name, many)) in self.trailing.iter().enumerate() {
            let slot = &mut inputs[n * stride + k];
            assign_shape(slot, name, &Shape::new(&[if *many { n as i64 } else { 1 }]))?;
        }
        Ok(all_known(inputs, outputs))
    }

    /// One float dtype in each group; float32 in what is kept in that dtype.
    fn types(
        &self,
        n: usize,
        inputs: &mut [Option<DType>],
        outputs: &mut [Option<DType>],
    ) -> Result<bool> {
        let (names, stride) = (self.names(n), self.stride());
        for (k, slot) in inputs[n * stride..].iter_mut().enumerate() {
            assign_type(slot, self.trailing[k].0, DType::F32)?;
        }
        for (i, group) in inputs.chunks_exact_mut(stride).take(n).enumerate() {
            let (narrow, wide) = group.split_at_mut(if self.mixed { 2 } else { stride });
            for (k, slot) in wide.iter_mut().enumerate() {
                assign_type(slot, &names[i * stride + 2 + k], DType::F32)?;
            }
            let known = narrow.iter().flatten().next().copied().or(outputs[i]);
            let Some(dtype) = known else { return Ok(false) };
            check_float(Some(dtype))?;
            for (k, slot) in narrow.iter_mut().enumerate() {
                assign_type(slot, &names[i * stride + k], dtype)?;
            }
            assign_type(&mut outputs[i], "output", dtype)?;
        }
        Ok(true)
    }
}

/// Parameters of an operator on many weights.
pub(super) trait Many: ParamStruct {
    /// Number of weights.
    fn count(&self) -> usize;

    /// Lists that have one number per weight, with their lengths.
    fn lists(&self) -> Vec<(&'static str, usize)>;
}

/// An operator on many weights: `formula` with ``i`` for the number of a weight.
pub(super) fn many<P: Many>(
    name: &str,
    inputs: &'static Inputs,
    doc: &str,
    run: impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static,
) -> OpDef {
    let count = |attrs: &Attrs| attrs.get::<P>().count();
    let stride = inputs.stride();
    OpDef::new::<P>(name)
        .doc(doc)
        .many_inputs("Weight, gradient, states of each weight in turn, as named above.", {
            move |attrs| inputs.names(count(attrs))
        })
        .numbered_outputs(count)
        .mutates_by(move |attrs| {
            (0..count(attrs)).flat_map(|i| i * stride + 2..(i + 1) * stride).collect()
        })
        .infer_shape(move |attrs, shapes, outputs| {
            let p = attrs.get::<P>();
            for (list, len) in p.lists() {
                if len != p.count() {
                    let expected = format!("{} numbers, one for each weight", p.count());
                    return Err(Error::argument(list, "length", len, expected));
                }
            }
            inputs.shapes(p.count(), shapes, outputs)
        })
        .infer_type(move |attrs, types, outputs| inputs.types(count(attrs), types, outputs))
        .inplace_by(move |attrs| {
            (0..count(attrs)).map(|i| InplacePair::new(i * stride, i)).collect()
        })
        .no_auto_variables()
        .not_deterministic()
        .kernel(Kernel::cpu(run).skips_null())
}

params! {
    /// Parameters of `multi_sgd_update`.
    pub struct MultiSgdParam {
        lrs: Vec<f32>, required, "Learning rates.";
        wds: Vec<f32>, required, "Weight decays.";
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        clip_gradient: f32, default(-1.0), "Then limited to this absolute value; negative: not \
                                            limited.";
        num_weights: i32, default(1).ge(1.0).le(65535.0), "Number of weights.";
    }
}

params! {
    /// Parameters of `multi_sgd_mom_update`.
    pub struct MultiSgdMomParam {
        lrs: Vec<f32>, required, "Learning rates.";
        wds: Vec<f32>, required, "Weight decays.";
        momentum: f32, default(0.0), "Share of the last step that is kept.";
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        clip_gradient: f32, default(-1.0), "Then limited to this absolute value; negative: not \
                                            limited.";
        num_weights: i32, default(1).ge(1.0).le(65535.0), "Number of weights.";
    }
}

params! {
    /// Parameters of `preloaded_multi_sgd_update`.
    pub struct PreloadedSgdParam {
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        clip_gradient: f32, default(-1.0), "Then limited to this absolute value; negative: not \
                                            limited.";
        num_weights: i32, default(1).ge(1.0).le(65535.0), "Number of weights.";
    }
}

params! {
    /// Parameters of `preloaded_multi_sgd_mom_update`.
    pub struct PreloadedSgdMomParam {
        momentum: f32, default(0.0), "Share of the last step that is kept.";
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        clip_gradient: f32, default(-1.0), "Then limited to this absolute value; negative: not \
                                            limited.";
        num_weights: i32, default(1).ge(1.0).le(65535.0), "Number of weights.";
    }
}

/// Parameters of gradient descent.
trait Descends: Many {
    /// The rates of weight `i`.
    fn descent(&self, call: &Call<'_>, i: usize) -> Descent;
}

/// Parameters with these lists; what rate, decay and momentum of weight `i` are.
macro_rules! descends {
    ($($name:ident [$($list:ident),*] |$p:ident, $call:ident, $i:ident| $rates:expr;)*) => {$(
        impl Many for $name {
            fn count(&self) -> usize {
                self.num_weights as usize
            }
            fn lists(&self) -> Vec<(&'static str, usize)> {
                vec![$((stringify!($list), self.$list.len())),*]
            }
        }
        impl Descends for $name {
            fn descent(&self, $call: &Call<'_>, $i: usize) -> Descent {
                let $p = self;
                let (lr, wd, momentum) = $rates;
                let (rescale, clip) = (self.rescale_grad, self.clip_gradient);
                Descent { lr, wd, momentum, rescale, clip }
            }
        }
    )*};
}

descends! {
    MultiSgdParam [lrs, wds] |p, _call, i| (p.lrs[i], p.wds[i], 0.0);
    MultiSgdMomParam [lrs, wds] |p, _call, i| (p.lrs[i], p.wds[i], p.momentum);
    PreloadedSgdParam [] |_p, call, i| (preloaded(call, 2, i), preloaded(call, 1, i), 0.0);
    PreloadedSgdMomParam [] |p, call, i| (preloaded(call, 2, i), preloaded(call, 1, i), p.momentum);
}

/// Descent of all weights, at `rate(i)`.
fn descend(call: &Call<'_>, of: &Inputs, rate: impl Fn(usize) -> Descent) -> Result<()> {
    let (stride, momentum) = (of.stride(), !of.states.is_empty());
    for (i, inputs) in call.inputs.chunks_exact(stride).take(call.outputs.len()).enumerate() {
        let (a, rate) = (Arrays { inputs, out: wanted(call, i) }, rate(i));
        let done: Result<()> = with_stored!(inputs[0], E => match (of.mixed, momentum) {
            (false, false) => update::<E, 0>(&a, rate.plain()),
            (false, true) => update::<E, 1>(&a, rate.with_momentum()),
            (true, false) => update_copy::<E, 0>(&a, rate.plain()),
            (true, true) => update_copy::<E, 1>(&a, rate.with_momentum()),
        });
        done?;
    }
    Ok(())
}

/// Number `i` of input `k` counted from the end of the inputs.
fn preloaded(call: &Call<'_>, k: usize, i: usize) -> f32 {
    let view = &call.inputs[call.inputs.len() - k];
    // SAFETY: inference gives the input one number per weight.
    unsafe { read_f64(view.ptr(), view.dtype(), i) as f32 }
}

static PLAIN: [Inputs; 4] = inputs(&[]);
static PRELOADED: [Inputs; 4] = inputs(&[("lrs", true), ("wds", true)]);

/// Without and with momentum, then the same with copies in float32.
const fn inputs(trailing: &'static [(&'static str, bool)]) -> [Inputs; 4] {
    [
        Inputs { states: &[], mixed: false, trailing },
        Inputs { states: &["mom"], mixed: false, trailing },
        Inputs { states: &[], mixed: true, trailing },
        Inputs { states: &["mom"], mixed: true, trailing },
    ]
}

fn doc(of: &Inputs, name: &str, loaded: bool) -> String {
    let w = if of.mixed { "weight32" } else { "weight" };
    let formula = if of.states.is_empty() {
        format!("``{w} = {w} - lr * (g + wd * {w})``")
    } else {
        format!("``mom = momentum * mom - lr * (g + wd * {w})``, ``{w} = {w} + mom``")
    };
    let names = of.names(1).join(", ").replace("_0", "_i");
    let kept = if of.mixed {
        " States and ``weight32_i`` are float32 and changed in place; the output is ``weight32_i`` \
         in the weight's dtype."
    } else if of.states.is_empty() {
        ""
    } else {
        " States are changed in place."
    };
    let rates = if loaded { "the arrays ``lrs`` and ``wds`` (n,)" } else { "``lrs`` and ``wds``" };
    let mom = if of.states.is_empty() { "" } else { ", nd.zeros((2,))" };
    let copy = if of.mixed { ", w.astype('float32')" } else { "" };
    let (arrays, given) = if loaded {
        (", nd.array([0.5]), nd.array([0.])", "")
    } else {
        ("", "lrs=(0.5,), wds=(0,), ")
    };
    format!(
        "One step of gradient descent for each of ``n`` weights, usually with ``out=[weight_0, \
         ...]``: {formula}.\n\nNotes\n-----\nInputs for each weight: {names}. ``g`` is the \
         gradient times ``rescale_grad``, limited to ``clip_gradient`` if that is not negative; \
         rate and decay of weight ``i`` are number ``i`` of {rates}.{kept} The arrays of one \
         weight have one shape and one dtype: float16 (calculated in float32), float32 or float64. \
         A wrong number of inputs or of rates is an error.\n\nExamples\n--------\n>>> w, g = \
         nd.ones((2,)), nd.ones((2,))\n>>> nd.{name}(w, g{mom}{copy}{arrays}, \
         {given}num_weights=1, out=w)\n[0.5 0.5]\n"
    )
}

fn descent<P: Descends>(name: &str, of: &'static Inputs, loaded: bool) -> OpDef {
    many::<P>(name, of, &doc(of, name, loaded), move |call| {
        let p: &P = call.attrs.get();
        descend(call, of, |i| p.descent(call, i))
    })
}

pub fn operators() -> Vec<OpDef> {
    vec![
        descent::<MultiSgdParam>("multi_sgd_update", &PLAIN[0], false),
        descent::<MultiSgdMomParam>("multi_sgd_mom_update", &PLAIN[1], false),
        descent::<MultiSgdParam>("multi_mp_sgd_update", &PLAIN[2], false),
        descent::<MultiSgdMomParam>("multi_mp_sgd_mom_update", &PLAIN[3], false),
        descent::<PreloadedSgdParam>("preloaded_multi_sgd_update", &PRELOADED[0], true),
        descent::<PreloadedSgdMomParam>("preloaded_multi_sgd_mom_update", &PRELOADED[1], true),
        descent::<PreloadedSgdParam>("preloaded_multi_mp_sgd_update", &PRELOADED[2], true),
        descent::<PreloadedSgdMomParam>("preloaded_multi_mp_sgd_mom_update", &PRELOADED[3], true),
    ]
}
