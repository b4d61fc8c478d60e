//! Random arrays of the NumPy interface. A parameter of a distribution is a number or an array; the
//! draws have the shape to which they are broadcast, or `size`.
//!
//! Where a draw is a smooth function of the parameters and of noise that does not depend on them,
//! the noise is a hidden output, and the parameters have gradients.

use super::statistics::{numbers, store};
use super::{spread, text};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::broadcast::broadcast_shape;
use crate::kernels::copy::{Buffer, copy};
use crate::kernels::random::{Draws, Span};
use crate::kernels::reduce::{Reduction, reduce_to};
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{
    Attrs, Call, Dep, Gradient, Kernel, OpDef, OpReq, ParamStruct, Registry, ResourceRequest, Tuple,
};
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;

params! {
    /// Parameters of `_npi_uniform` and `_npi_uniform_n`.
    pub struct UniformParam {
        low: Option<f64>, required, "Least value. None is an array.";
        high: Option<f64>, required, "Bound of the values, not reached. None is an array.";
        size: Option<Tuple>, default(None), "Shape of the draws; None is that of the parameters.";
        ctx: String, default("cpu".to_owned()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype, a float.";
    }
}

params! {
    /// Parameters of `_npi_normal` and `_npi_normal_n`.
    pub struct NormalParam {
        loc: Option<f64>, required, "Mean. None is an array.";
        scale: Option<f64>, required, "Standard deviation. None is an array.";
        size: Option<Tuple>, default(None), "Shape of the draws; None is that of the parameters.";
        ctx: String, default("cpu".to_owned()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype, a float.";
    }
}

params! {
    /// Parameters of `_npi_gamma`.
    pub struct GammaParam {
        shape: Option<f64>, required, "Shape of the distribution. None is an array.";
        scale: Option<f64>, required, "Scale. None is an array.";
        size: Option<Tuple>, default(None), "Shape of the draws; None is that of the parameters.";
        ctx: String, default("cpu".to_owned()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype, a float.";
    }
}

params! {
    /// Parameters of `_npi_gumbel` and `_npi_logistic`.
    pub struct PlaceParam {
        loc: Option<f64>, required, "Location. None is an array.";
        scale: Option<f64>, required, "Scale. None is an array.";
        size: Option<Tuple>, default(None), "Shape of the draws; None is that of the parameters.";
        ctx: String, default("cpu".to_owned()), "The device, such as cpu(0).";
    }
}

params! {
    /// Parameters of `_npi_exponential` and `_npi_rayleigh`.
    pub struct ScaleParam {
        scale: Option<f64>, default(Some(1.0)), "Scale. None is an array.";
        size: Option<Tuple>, default(None), "Shape of the draws; None is that of the parameters.";
        ctx: String, default("cpu".to_owned()), "The device, such as cpu(0).";
    }
}

params! {
    /// Parameters of `_npi_pareto`, `_npi_weibull` and `_npi_powerd`.
    pub struct PowerParam {
        a: Option<f64>, default(None), "Exponent. None is an array.";
        size: Option<Tuple>, default(None), "Shape of the draws; None is that of the parameters.";
        ctx: String, default("cpu".to_owned()), "The device, such as cpu(0).";
    }
}

params! {
    /// Parameters of `_npi_bernoulli`.
    pub struct BernoulliParam {
        prob: Option<f64>, required, "Probability of 1. None is an array, unless there are \
                                      log-odds.";
        logit: Option<f64>, required, "Log-odds of 1. None is an array, unless there is a \
                                       probability.";
        size: Option<Tuple>, default(None), "Shape of the draws; None is that of the parameters.";
        ctx: String, default("cpu".to_owned()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype.";
        is_logit: bool, required, "Are log-odds given?";
    }
}

/// What the parameters of every distribution have.
trait Settings: ParamStruct {
    /// The parameters in order; `None` is an array.
    fn given(&self) -> Vec<Option<f64>>;
    fn size(&self) -> Option<&Tuple>;
    fn dtype(&self) -> DType;
}

macro_rules! settings {
    ($($name:ident [$($field:ident),*] |$this:ident| $dtype:expr;)*) => {$(
        impl Settings for $name {
            fn given(&self) -> Vec<Option<f64>> {
                vec![$(self.$field),*]
            }
            fn size(&self) -> Option<&Tuple> {
                self.size.as_ref()
            }
            fn dtype(&self) -> DType {
                let $this = self;
                $dtype
            }
        }
    )*};
}

settings! {
    UniformParam [low, high] |p| p.dtype;
    NormalParam [loc, scale] |p| p.dtype;
    GammaParam [shape, scale] |p| p.dtype;
    PlaceParam [loc, scale] |_p| DType::F32;
    ScaleParam [scale] |_p| DType::F32;
    PowerParam [a] |_p| DType::F32;
}

impl Settings for BernoulliParam {
    fn given(&self) -> Vec<Option<f64>> {
        vec![if self.is_logit { self.logit } else { self.prob }]
    }
    fn size(&self) -> Option<&Tuple> {
        self.size.as_ref()
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// A distribution of parameters `a` and `b` (0 where there is only one).
struct Law {
    name: &'static str,
    what: &'static str,
    /// Its parameters, as the example gives them.
    example: &'static str,
    /// What parameters have to be.
    domain: &'static str,
    fits: fn(f64, f64) -> bool,
    noise: fn(&mut Draws, f64) -> f64,
    value: fn(DType, f64, [f64; 2]) -> f64,
    /// The slopes by both parameters, if the noise does not depend on them.
    slopes: Option<[Slope; 2]>,
    /// Do the draws have the axes of `size`, then those of the parameters?
    stacked: bool,
}

type Slope = fn(f64, [f64; 2]) -> f64;

const NONE: Slope = |_, _| 0.0;
const UNIFORM: Law = Law {
    name: "_npi_uniform",
    what: "the uniform distribution over ``[low, high)``",
    example: "low=0, high=1",
    domain: "low up to high, a finite distance",
    fits: |low, high| low <= high && (high - low).is_finite(),
    noise: |draws, _| draws.uniform(),
    value: |dtype, noise, [low, high]| Span::new(dtype, low, high).at(noise),
    slopes: None,
    stacked: false,
};
const NORMAL: Law = Law {
    name: "_npi_normal",
    what: "the normal distribution",
    example: "loc=0, scale=1",
    domain: "scale at least 0",
    fits: |_, scale| scale >= 0.0,
    noise: |draws, _| draws.normal(),
    value: |_, noise, [loc, scale]| loc + scale * noise,
    slopes: Some([|_, _| 1.0, |noise, _| noise]),
    stacked: false,
};
const GAMMA: Law = Law {
    name: "_npi_gamma",
    what: "the gamma distribution",
    example: "shape=2, scale=1",
    domain: "shape and scale at least 0",
    fits: |shape, scale| shape >= 0.0 && scale >= 0.0,
    noise: |draws, shape| draws.gamma(shape),
    value: |_, noise, [_, scale]| scale * noise,
    slopes: None,
    stacked: false,
};
const GUMBEL: Law = Law {
    name: "_npi_gumbel",
    what: "the Gumbel distribution",
    noise: |draws, _| -draws.exponential().ln(),
    ..NORMAL
};
const LOGISTIC: Law = Law {
    name: "_npi_logistic",
    what: "the logistic distribution",
    noise: |draws, _| {
        let rest = draws.exponential();
        -rest - (-(-rest).exp_m1()).ln()
    },
    ..NORMAL
};
const EXPONENTIAL: Law = Law {
    name: "_npi_exponential",
    what: "the exponential distribution",
    example: "scale=2",
    domain: "scale at least 0",
    fits: |scale, _| scale >= 0.0,
    noise: |draws, _| draws.exponential(),
    value: |_, noise, [scale, _]| scale * noise,
    slopes: Some([|noise, _| noise, NONE]),
    stacked: false,
};
const RAYLEIGH: Law = Law {
    name: "_npi_rayleigh",
    what: "the Rayleigh distribution",
    noise: |draws, _| (2.0 * draws.exponential()).sqrt(),
    ..EXPONENTIAL
};
const WEIBULL: Law = Law {
    name: "_npi_weibull",
    what: "the Weibull distribution",
    example: "a=2",
    domain: "a more than 0",
    fits: |a, _| a > 0.0,
    value: |_, noise, [a, _]| noise.powf(1.0 / a),
    slopes: Some([
        |noise, [a, _]| if noise > 0.0 { -noise.ln() / (a * a) * noise.powf(1.0 / a) } else { 0.0 },
        NONE,
    ]),
    ..EXPONENTIAL
};
const PARETO: Law = Law {
    name: "_npi_pareto",
    what: "the Pareto (Lomax) distribution",
    value: |_, noise, [a, _]| (noise / a).exp_m1(),
    slopes: Some([|noise, [a, _]| -noise / (a * a) * (noise / a).exp(), NONE]),
    ..WEIBULL
};
const POWER: Law = Law {
    name: "_npi_powerd",
    what: "the distribution over ``[0, 1]`` with density ``a x^(a - 1)``",
    value: |_, noise, [a, _]| (-noise / a).exp(),
    slopes: None,
    ..WEIBULL
};
const BERNOULLI: Law = Law {
    name: "_npi_bernoulli",
    what: "the Bernoulli distribution",
    example: "prob=0.5, logit=None, is_logit=False",
    domain: "a probability, 0 to 1",
    fits: |p, _| (0.0..=1.0).contains(&p),
    noise: |draws, _| draws.uniform(),
    value: |_, noise, [p, _]| f64::from(u8::from(noise < p)),
    slopes: None,
    stacked: false,
};

static LAWS: [Law; 13] = [
    UNIFORM,
    Law { name: "_npi_uniform_n", stacked: true, ..UNIFORM },
    NORMAL,
    Law { name: "_npi_normal_n", stacked: true, ..NORMAL },
    GAMMA,
    GUMBEL,
    LOGISTIC,
    EXPONENTIAL,
    RAYLEIGH,
    WEIBULL,
    PARETO,
    POWER,
    BERNOULLI,
];

/// The shape of the draws.
fn shape_of<P: Settings>(law: &Law, p: &P, inputs: &[Shape]) -> Result<Shape> {
    let mut common = Shape::new(&[]);
    for shape in inputs {
        common = broadcast_shape(&common, shape)?;
    }
    let Some(size) = p.size() else { return Ok(common) };
    if let Some(extent) = size.iter().find(|extent| **extent < 0) {
        return Err(Error::invalid("extent in size", extent, "at least 0"));
    }
    let size = Shape::new(size);
    match law.stacked {
        true => Ok(size.dims().iter().chain(common.dims()).copied().collect()),
        false if broadcast_shape(&common, &size)? == size => Ok(size),
        false => {
            let expected = format!("a shape to which {common} is broadcast");
            Err(Error::invalid("size", size, expected))
        }
    }
}

/// The parameters of each draw: numbers, or arrays from input `first` on.
fn parameters<P: Settings>(call: &Call<'_>, first: usize, of: &Shape) -> [Vec<f64>; 2] {
    let mut arrays = call.inputs[first..].iter();
    let mut all = call.attrs.get::<P>().given().into_iter().map(|number| {
        let mut values = vec![number.unwrap_or(0.0); of.size()];
        if number.is_none()
            && let Some(view) = arrays.next()
        {
            // SAFETY: the vector has an element for each of the shape.
            let to = unsafe { View::new(values.as_mut_ptr().cast(), of.clone(), DType::F64) };
            spread(view, &to);
        }
        values
    });
    let one = all.next().unwrap_or_default();
    [one, all.next().unwrap_or_else(|| vec![0.0; of.size()])]
}

fn draw<P: Settings>(law: &Law, call: &Call<'_>, change: fn(&P, f64) -> f64) -> Result<()> {
    let (out, key, p) = (&call.outputs[0], call.ctx.random, call.attrs.get::<P>());
    let [mut a, b] = parameters::<P>(call, 0, out.shape());
    a.iter_mut().for_each(|a| *a = change(p, *a));
    if let Some((a, b)) = a.iter().zip(&b).find(|(a, b)| !(law.fits)(**a, **b)) {
        let got = if p.given().len() > 1 { format!("{a}, {b}") } else { a.to_string() };
        return Err(Error::invalid("parameters", got, law.domain));
    }
    let (mut draws, mut noises) = (vec![0.0; a.len()], vec![0.0; a.len()]);
    for i in 0..a.len() {
        noises[i] = (law.noise)(&mut Draws::new(key.seed, key.stream, i), a[i]);
        draws[i] = (law.value)(out.dtype(), noises[i], [a[i], b[i]]);
    }
    store(call, 0, &draws);
    if call.outputs.len() > 1 {
        store(call, 1, &noises);
    }
    Ok(())
}

/// Inputs are the output gradient, the noise, and the arrays of parameters.
fn slopes<P: Settings>(law: &Law, call: &Call<'_>) -> Result<()> {
    let Some(slopes) = law.slopes else { return Ok(()) };
    let shape = call.inputs[0].shape();
    let [g, noise] = [numbers(&call.inputs[0])?, numbers(&call.inputs[1])?];
    let [a, b] = parameters::<P>(call, 2, shape);
    let given = call.attrs.get::<P>().given();
    let arrays = given.iter().enumerate().filter(|(_, number)| number.is_none());
    for (out, (at, _)) in arrays.enumerate() {
        if call.req[out] == OpReq::Null {
            continue;
        }
        let one = |i: usize| g[i] * slopes[at](noise[i], [a[i], b[i]]);
        let mut full: Vec<f64> = (0..g.len()).map(one).collect();
        let mut room = Buffer::new(call.outputs[out].size() * 8);
        let sum = room.view(0, call.outputs[out].shape().clone(), DType::F64);
        // SAFETY: the vector has an element for each of the shape.
        let full = unsafe { View::new(full.as_mut_ptr().cast(), shape.clone(), DType::F64) };
        reduce_to(Reduction::Sum, &full, &sum);
        copy(&sum, &call.outputs[out]);
    }
    Ok(())
}

fn drawing<P: Settings>(law: &'static Law, change: fn(&P, f64) -> f64) -> Vec<OpDef> {
    let notes = format!(
        "Parameters that are ``None`` are inputs, in order. The draws have the shape to which they \
         are broadcast, or ``size``{}. Each draw depends on the seed, the call and its number \
         only. Parameters outside of the domain ({}) are an error. {}",
        if law.stacked { " with that shape after it" } else { ", to which they are broadcast" },
        law.domain,
        match law.slopes {
            Some(_) =>
                "Gradients are those of the draws as functions of the parameters and of noise.",
            None => "The gradient is zero.",
        }
    );
    let example = format!("{}({}, size=(2, 3)).shape\n(2, 3)", law.name, law.example);
    let back = format!("_backward_broadcast{}", law.name.trim_start_matches("_npi"));
    let def = OpDef::new::<P>(law.name)
        .inputs_are(&[
            ("input1", "The first parameter that is an array."),
            ("input2", "The second."),
        ])
        .input_names_by(|attrs| {
            let arrays = attrs.get::<P>().given().iter().filter(|n| n.is_none()).count();
            (1..=arrays).map(|i| format!("input{i}")).collect()
        })
        .doc(&text(&format!("Draws from {}.", law.what), &notes, &example))
        .infer_shape(|attrs: &Attrs, inputs, outputs| {
            if !inputs.iter().all(Shape::is_known) {
                return Ok(false);
            }
            let shape = shape_of(law, attrs.get::<P>(), inputs)?;
            for slot in outputs.iter_mut() {
                assign_shape(slot, "output", &shape)?;
            }
            Ok(true)
        })
        .infer_type(|attrs: &Attrs, inputs, outputs| {
            let dtype = attrs.get::<P>().dtype();
            if !dtype.is_float() && law.name != "_npi_bernoulli" {
                return Err(Error::invalid("dtype", dtype, "float32, float64 or float16"));
            }
            for slot in outputs.iter_mut() {
                assign_type(slot, "output", dtype)?;
            }
            inputs.iter_mut().for_each(|slot| *slot = slot.or(Some(DType::F32)));
            Ok(true)
        })
        .resources(&[ResourceRequest::Random])
        .kernel(Kernel::cpu(move |call| draw::<P>(law, call, change)).skips_null());
    if law.slopes.is_none() {
        return vec![def.gradient(Gradient::Zero)];
    }
    let def = def.outputs_are(&["output0", "output1"]).visible(|_| 1).gradient(Gradient::declared(
        &back,
        |_, n_in, _| {
            let first = [Dep::OutGrad(0), Dep::Output(1)];
            first.into_iter().chain((0..n_in).map(Dep::Input)).collect()
        },
    ));
    let backward =
        OpDef::new::<P>(&back).kernel(Kernel::cpu(move |call| slopes::<P>(law, call)).skips_null());
    vec![def, backward]
}

/// The operator of a law, with the parameters that it has.
fn of_law(law: &'static Law) -> Vec<OpDef> {
    match law.name {
        "_npi_uniform" | "_npi_uniform_n" => drawing::<UniformParam>(law, |_, a| a),
        "_npi_normal" | "_npi_normal_n" => drawing::<NormalParam>(law, |_, a| a),
        "_npi_gamma" => drawing::<GammaParam>(law, |_, a| a),
        "_npi_gumbel" | "_npi_logistic" => drawing::<PlaceParam>(law, |_, a| a),
        "_npi_exponential" | "_npi_rayleigh" => drawing::<ScaleParam>(law, |_, a| a),
        "_npi_bernoulli" => drawing::<BernoulliParam>(law, |p, a| match p.is_logit {
            true => 1.0 / (1.0 + (-a).exp()),
            false => a,
        }),
        _ => drawing::<PowerParam>(law, |_, a| a),
    }
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    LAWS.iter().flat_map(of_law).collect()
}
