//! Numbers of common distributions, the same as on the host.

use super::{FLOATS, KernelsOf, NUMBERS, add, kernel, same_dtype, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::random::Span;
use crate::operator::{Call, Grid, Kernel, Match};
use crate::ops::tensor::distributions::{
    ExponentialLikeParam, ExponentialParam, GammaLikeParam, GammaParam, GeneralizedLikeParam,
    GeneralizedParam, NegativeBinomialLikeParam, NegativeBinomialParam, NormalLikeParam,
    PoissonLikeParam, PoissonParam, Setting, UniformLikeParam,
};
use crate::ops::tensor::random::RandintParam;
use crate::tensor::View;

/// The distributions of `draws.cu`.
const UNIFORM: i32 = 0;
const NORMAL: i32 = 1;
const EXPONENTIAL: i32 = 2;
const GAMMA: i32 = 3;
const POISSON: i32 = 4;
const FAILURES: i32 = 5;
const DISPERSED: i32 = 6;

/// The checked parameters of a call.
type Settings = fn(&Call<'_>) -> Result<[f64; 2]>;

/// Fills an array by one distribution. `tensor` is an array whose dtype the output has.
fn drawing(tensor: &'static str, kind: i32, settings: Settings) -> Vec<Kernel> {
    vec![kernel("draws", &["draw<$0>"], &[(tensor, FLOATS)], move |call, launcher| {
        let ([a, b], y, key) = (settings(call)?, &call.outputs[0], call.ctx.random);
        let most = match kind {
            UNIFORM => Span::new(y.dtype(), a, b).parts()[2],
            _ => f64::INFINITY,
        };
        let (n, seed, stream) = (y.size(), key.seed as i64, key.stream as i64);
        let mut args = args![n as i64, y.ptr(), seed, stream, kind, a, b, most, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// Draws for every element of parameter arrays.
fn drawing_each(first: &'static str, kind: i32) -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("output", FLOATS), (first, FLOATS)];
    vec![kernel("draws", &["draw_each<$0, $1>"], types, move |call, launcher| {
        let (y, key, n) = (&call.outputs[0], call.ctx.random, call.outputs[0].size());
        let each = (n / call.inputs[0].size().max(1)) as i64;
        let (seed, stream) = (key.seed as i64, key.stream as i64);
        let second = call.inputs.get(1).map_or(std::ptr::null_mut(), View::ptr);
        let a = call.inputs[0].ptr();
        let mut args = args![n as i64, each, y.ptr(), seed, stream, kind, a, second, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// Both parameters have one dtype.
fn drawing_pairs(names: [&'static str; 2], kind: i32) -> Vec<Kernel> {
    let each = drawing_each(names[0], kind).into_iter();
    each.map(|kernel| kernel.only(same_dtype(names, FLOATS))).collect()
}

fn randint() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("output", &[DType::I32, DType::I64])];
    vec![kernel("draws", &["draw_whole<$0>"], types, |call, launcher| {
        let (p, y, key) = (call.attrs.get::<RandintParam>(), &call.outputs[0], call.ctx.random);
        let (n, seed, stream) = (y.size(), key.seed as i64, key.stream as i64);
        let span = p.high.wrapping_sub(p.low);
        let mut args = args![n as i64, y.ptr(), seed, stream, p.low, span, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn multinomial() -> Vec<Kernel> {
    let numbers = |output: &'static str, gives_logs: bool| {
        let types: &[(&str, &'static [DType])] = &[("data", FLOATS), (output, NUMBERS)];
        let functions = ["draw_numbers<$0, $1>"];
        let made = Kernel::cuda("draws", &functions, types, move |call: &Call<'_>, launcher| {
            let (x, y, key) = (&call.inputs[0], &call.outputs[0], call.ctx.random);
            let length = x.dims().last().copied().unwrap_or(0);
            if length == 0 && y.size() > 0 {
                let expected = "at least one probability";
                return Err(Error::argument("data", "shape", x.shape(), expected));
            }
            let n = y.size();
            if n == 0 || !(wanted(call, 0) || gives_logs) {
                return Ok(());
            }
            let each = n as i64 / (x.size() as i64 / length).max(1);
            let logs = call.outputs.get(1).map_or(std::ptr::null_mut(), View::ptr);
            let (seed, stream) = (key.seed as i64, key.stream as i64);
            let mut args = args![n as i64, each, length, x.ptr(), y.ptr(), logs, seed, stream];
            launcher.launch(0, Grid::over(n), &mut args)
        });
        let is = Match::Attr(
            "get_prob".into(),
            crate::operator::Compare::Eq,
            match gives_logs {
                true => "True".into(),
                false => "False".into(),
            },
        );
        made.only(is).only_writes()
    };
    vec![numbers("output", false), numbers("output0", true)]
}

/// The settings of an operator that fills an array of a given shape, and of the one that draws an
/// array like its input.
macro_rules! both {
    ($own:ident, $like:ident) => {
        [
            |call| call.attrs.get::<$own>().checked(),
            |call| $own::from(call.attrs.get::<$like>()).checked(),
        ]
    };
}

const EXPONENTIALS: [Settings; 2] = both!(ExponentialParam, ExponentialLikeParam);
const GAMMAS: [Settings; 2] = both!(GammaParam, GammaLikeParam);
const POISSONS: [Settings; 2] = both!(PoissonParam, PoissonLikeParam);
const BINOMIALS: [Settings; 2] = both!(NegativeBinomialParam, NegativeBinomialLikeParam);
const GENERALS: [Settings; 2] = both!(GeneralizedParam, GeneralizedLikeParam);

fn uniform_like(call: &Call<'_>) -> Result<[f64; 2]> {
    call.attrs.get::<UniformLikeParam>().checked()
}

fn normal_like(call: &Call<'_>) -> Result<[f64; 2]> {
    call.attrs.get::<NormalLikeParam>().checked()
}

pub const TABLE: &[KernelsOf] = &[
    ("_random_exponential", || drawing("output", EXPONENTIAL, EXPONENTIALS[0])),
    ("_random_exponential_like", || drawing("data", EXPONENTIAL, EXPONENTIALS[1])),
    ("_random_gamma", || drawing("output", GAMMA, GAMMAS[0])),
    ("_random_gamma_like", || drawing("data", GAMMA, GAMMAS[1])),
    ("_random_poisson", || drawing("output", POISSON, POISSONS[0])),
    ("_random_poisson_like", || drawing("data", POISSON, POISSONS[1])),
    ("_random_negative_binomial", || drawing("output", FAILURES, BINOMIALS[0])),
    ("_random_negative_binomial_like", || drawing("data", FAILURES, BINOMIALS[1])),
    ("_random_generalized_negative_binomial", || drawing("output", DISPERSED, GENERALS[0])),
    ("_random_generalized_negative_binomial_like", || drawing("data", DISPERSED, GENERALS[1])),
    ("_random_uniform_like", || drawing("data", UNIFORM, uniform_like)),
    ("_random_normal_like", || drawing("data", NORMAL, normal_like)),
    ("_random_randint", randint),
    ("_sample_normal", || drawing_pairs(["mu", "sigma"], NORMAL)),
    ("_sample_gamma", || drawing_pairs(["alpha", "beta"], GAMMA)),
    ("_sample_exponential", || drawing_each("lam", EXPONENTIAL)),
    ("_sample_poisson", || drawing_each("lam", POISSON)),
    ("_sample_negative_binomial", || drawing_pairs(["k", "p"], FAILURES)),
    ("_sample_generalized_negative_binomial", || drawing_pairs(["mu", "alpha"], DISPERSED)),
    ("_sample_multinomial", multinomial),
];
