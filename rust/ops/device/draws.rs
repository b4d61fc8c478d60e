//! Numbers of common distributions, the same as on the host.

use super::{FLOATS, KernelsOf, NUMBERS, add, kernel, same_dtype, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::random::Span;
use crate::operator::{Call, Grid, Kernel, Match, ParamStruct};
use crate::ops::tensor::distributions::{
    Distribution, ExponentialLikeParam, ExponentialParam, GammaLikeParam, GammaParam,
    GeneralizedLikeParam, GeneralizedParam, NegativeBinomialLikeParam, NegativeBinomialParam,
    NormalLikeParam, PoissonLikeParam, PoissonParam, Setting, UniformLikeParam,
};
use crate::ops::tensor::random::RandintParam;
use crate::tensor::View;

/// Fills an array by the distribution of `P`. `tensor` is an array whose dtype the output has.
fn drawing<P: Setting>(
    tensor: &'static str,
    numbers: fn(&Call<'_>) -> Result<[f64; 2]>,
) -> Vec<Kernel> {
    vec![kernel("draws", &["draw<$0>"], &[(tensor, FLOATS)], move |call, launcher| {
        let ([a, b], y, n) = (numbers(call)?, &call.outputs[0], call.outputs[0].size());
        let most = match P::DISTRIBUTION {
            Distribution::Uniform => Span::new(y.dtype(), a, b).parts()[2],
            _ => f64::INFINITY,
        };
        let kind = P::DISTRIBUTION as i32;
        let mut args = args![n as i64, y.ptr(), call.ctx.random, kind, a, b, most, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// Fills an array of a given shape.
fn filling<P: Setting + ParamStruct>() -> Vec<Kernel> {
    drawing::<P>("output", |call| call.attrs.get::<P>().checked())
}

/// Draws an array like the input.
fn like<P: Setting + ParamStruct>() -> Vec<Kernel> {
    drawing::<P>("data", |call| call.attrs.get::<P>().checked())
}

/// As [`like`], where the parameters are read as those of the operator that fills.
fn like_by<P: Setting + for<'a> From<&'a L>, L: ParamStruct>() -> Vec<Kernel> {
    drawing::<P>("data", |call| P::from(call.attrs.get::<L>()).checked())
}

/// Draws for every element of parameter arrays.
fn drawing_each(first: &'static str, distribution: Distribution) -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("output", FLOATS), (first, FLOATS)];
    vec![kernel("draws", &["draw_each<$0, $1>"], types, move |call, launcher| {
        let (y, n, kind) = (&call.outputs[0], call.outputs[0].size(), distribution as i32);
        let each = (n / call.inputs[0].size().max(1)) as i64;
        let second = call.inputs.get(1).map_or(std::ptr::null_mut(), View::ptr);
        let (a, key) = (call.inputs[0].ptr(), call.ctx.random);
        let mut args = args![n as i64, each, y.ptr(), key, kind, a, second, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// Both parameters have one dtype.
fn drawing_pairs(names: [&'static str; 2], distribution: Distribution) -> Vec<Kernel> {
    let each = drawing_each(names[0], distribution).into_iter();
    each.map(|kernel| kernel.only(same_dtype(names, FLOATS))).collect()
}

fn randint() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("output", &[DType::I32, DType::I64])];
    vec![kernel("draws", &["draw_whole<$0>"], types, |call, launcher| {
        let (p, y) = (call.attrs.get::<RandintParam>(), &call.outputs[0]);
        let (n, span) = (y.size(), p.high.wrapping_sub(p.low));
        let mut args = args![n as i64, y.ptr(), call.ctx.random, p.low, span, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn multinomial() -> Vec<Kernel> {
    let numbers = |output: &'static str, gives_logs: bool| {
        let types: &[(&str, &'static [DType])] = &[("data", FLOATS), (output, NUMBERS)];
        let functions = ["draw_numbers<$0, $1>"];
        let made = Kernel::cuda("draws", &functions, types, move |call: &Call<'_>, launcher| {
            let (x, y) = (&call.inputs[0], &call.outputs[0]);
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
            let key = call.ctx.random;
            let mut args = args![n as i64, each, length, x.ptr(), y.ptr(), logs, key];
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

/// The rows of an array in random order, whose places are shuffled first.
fn shuffle() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", &DType::ALL)];
    let functions = ["begin_shuffle<Index>", "shuffle<Index>", "take<$0, Index>"];
    vec![kernel("draws", &functions, types, |call, launcher| {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        let rows = x.dims().first().map_or(1, |n| *n as usize);
        let memory = |bytes: usize| launcher.memory().take(bytes);
        let [order, asking] = [memory(8 * rows)?, memory(8 * rows)?];
        let from = if x.ptr() == y.ptr() { memory(x.size_bytes())? } else { x.ptr() };
        if x.ptr() == y.ptr() {
            launcher.copy(from, x.ptr(), x.size_bytes())?;
        }
        let count = rows as i64;
        launcher.launch(0, Grid::over(rows), &mut args![count, order, asking])?;
        launcher.launch(1, Grid::blocks(1), &mut args![count, call.ctx.random, order, asking])?;
        let (n, inner) = (y.size(), (x.size() / rows) as i64);
        let mut args =
            args![n as i64, count, count, inner, from, order, y.ptr(), 0i32, add(call, 0)];
        launcher.launch(2, Grid::over(n), &mut args)
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("_shuffle", shuffle),
    ("_random_exponential", filling::<ExponentialParam>),
    ("_random_exponential_like", like_by::<ExponentialParam, ExponentialLikeParam>),
    ("_random_gamma", filling::<GammaParam>),
    ("_random_gamma_like", like_by::<GammaParam, GammaLikeParam>),
    ("_random_poisson", filling::<PoissonParam>),
    ("_random_poisson_like", like_by::<PoissonParam, PoissonLikeParam>),
    ("_random_negative_binomial", filling::<NegativeBinomialParam>),
    ("_random_negative_binomial_like", like_by::<NegativeBinomialParam, NegativeBinomialLikeParam>),
    ("_random_generalized_negative_binomial", filling::<GeneralizedParam>),
    (
        "_random_generalized_negative_binomial_like",
        like_by::<GeneralizedParam, GeneralizedLikeParam>,
    ),
    ("_random_uniform_like", like::<UniformLikeParam>),
    ("_random_normal_like", like::<NormalLikeParam>),
    ("_random_randint", randint),
    ("_sample_normal", || drawing_pairs(["mu", "sigma"], Distribution::Normal)),
    ("_sample_gamma", || drawing_pairs(["alpha", "beta"], Distribution::Gamma)),
    ("_sample_exponential", || drawing_each("lam", Distribution::Exponential)),
    ("_sample_poisson", || drawing_each("lam", Distribution::Poisson)),
    ("_sample_negative_binomial", || drawing_pairs(["k", "p"], Distribution::Failures)),
    ("_sample_generalized_negative_binomial", || {
        drawing_pairs(["mu", "alpha"], Distribution::Dispersed)
    }),
    ("_sample_multinomial", multinomial),
];
