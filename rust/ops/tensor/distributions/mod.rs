//! Random arrays of the rarer distributions. Every element depends on the seed, the call and its
//! own number only.

mod density;
mod multinomial;
mod sampling;
mod zipf;

use super::common::{all_known, elementwise, wanted, write_f64};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::random::{Draws, Span};
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Call, Gradient, Kernel, OpDef, ParamStruct, ResourceRequest, Tuple};
use crate::params;
use crate::shape::Shape;

/// Parameters of one distribution, followed by shape, context and dtype.
macro_rules! source_params {
    ($($name:ident $like:ident $op:literal { $($field:ident : $ty:ty, $kind:ident $(($default:expr))?, $doc:literal;)* })*) => {$(
        params! {
            #[doc = concat!("Parameters of `", $op, "`.")]
            pub struct $name {
                $($field: $ty, $kind $(($default))?, $doc;)*
                shape: Option<Tuple>, default(None), "Shape of the output; one element if None or \
                                                      empty.";
                ctx: String, default(String::new()), "Device, such as cpu(0); the faces read it.";
                dtype: Option<DType>, default(None), "Dtype of the output; the first one above if \
                                                      None.";
            }
        }
        impl Source for $name {
            fn common(&self) -> (Option<&Tuple>, Option<DType>) {
                (self.shape.as_ref(), self.dtype)
            }
        }
        params! {
            #[doc = concat!("Parameters of `", $op, "_like`.")]
            pub struct $like { $($field: $ty, $kind $(($default))?, $doc;)* }
        }
        impl From<&$like> for $name {
            fn from(p: &$like) -> Self {
                $name { $($field: p.$field,)* shape: None, ctx: String::new(), dtype: None }
            }
        }
    )*};
}

trait Source: ParamStruct {
    fn common(&self) -> (Option<&Tuple>, Option<DType>);
}

source_params! {
    GammaParam GammaLikeParam "_random_gamma" {
        alpha: f32, default(1.0), "Shape of the distribution.";
        beta: f32, default(1.0), "Scale of the distribution.";
    }
    ExponentialParam ExponentialLikeParam "_random_exponential" {
        lam: f32, default(1.0), "Rate: one over the mean.";
    }
    PoissonParam PoissonLikeParam "_random_poisson" {
        lam: f32, default(1.0), "Mean.";
    }
    NegativeBinomialParam NegativeBinomialLikeParam "_random_negative_binomial" {
        k: i32, default(1), "Number of successes to wait for.";
        p: f32, default(1.0), "Probability of a success.";
    }
    GeneralizedParam GeneralizedLikeParam "_random_generalized_negative_binomial" {
        mu: f32, default(1.0), "Mean.";
        alpha: f32, default(1.0), "Dispersion; 0 is the Poisson distribution.";
    }
}

/// Fills output 0 with `f(element's words, element's number)`.
fn fill(call: &Call<'_>, f: impl Fn(&mut Draws, usize) -> f64 + Send + Sync) {
    let out = &call.outputs[0];
    if !wanted(call, 0) {
        return;
    }
    let (key, dtype, to) = (call.ctx.random, out.dtype(), Shared(out.ptr()));
    parallel_for(out.size(), 1 << 11, |range| {
        for i in range {
            let value = f(&mut Draws::new(key.seed, key.stream, i), i);
            // SAFETY: each element belongs to one task.
            unsafe { write_f64(to.at(0), dtype, i, value) };
        }
    });
}

/// Refuses a parameter that is out of range.
fn check(name: &str, value: f64, is_valid: bool, expected: &str) -> Result<()> {
    if is_valid { Ok(()) } else { Err(Error::invalid(name, value, expected)) }
}

fn check_positive(name: &str, value: f64) -> Result<()> {
    check(name, value, value > 0.0, "more than 0")
}

fn check_not_negative(name: &str, value: f64) -> Result<()> {
    check(name, value, value >= 0.0 && value.is_finite(), "at least 0, and finite")
}

/// Refuses limits of a uniform distribution that are not in order.
pub(in crate::ops) fn check_range(low: f64, high: f64) -> Result<()> {
    check("high", high, low <= high, &format!("at least low, {low}"))
}

/// Refuses a negative standard deviation.
pub(in crate::ops) fn check_scale(scale: f64) -> Result<()> {
    check_not_negative("scale", scale)
}

fn gamma_poisson(d: &mut Draws, shape: f64, scale: f64) -> f64 {
    let mean = d.gamma(shape) * scale;
    d.poisson(mean)
}

/// Negative binomial of mean `mu` and dispersion `alpha`.
fn dispersed(d: &mut Draws, mu: f64, alpha: f64) -> f64 {
    if alpha == 0.0 { d.poisson(mu) } else { gamma_poisson(d, 1.0 / alpha, mu * alpha) }
}

fn doc(what: &str, dtypes: &str, example: &str, shape: &str) -> String {
    format!(
        "Draws from {what}.\n\nNotes\n-----\nThe dtype is one of {dtypes}. Element ``i`` depends \
         on the seed, the call and ``i`` only, not on threads. Parameters outside of the \
         distribution's domain are an error.\n\nExamples\n--------\n>>> {example}.shape\n{shape}\n"
    )
}

const FLOATS: [DType; 3] = [DType::F32, DType::F64, DType::F16];

/// An operator without inputs. `draw` checks the parameters and runs.
fn source<P: Source>(
    name: &'static str,
    aliases: &[&str],
    what: &str,
    types: &'static [DType],
    draw: fn(&Call<'_>, &P) -> Result<()>,
) -> OpDef {
    let names: Vec<_> = types.iter().map(|t| t.name()).collect();
    let given = match name {
        "_random_negative_binomial" => "k=3, p=0.5, ",
        _ => "",
    };
    let example = format!("nd._internal.{name}({given}shape=(2, 3))");
    OpDef::new::<P>(name)
        .aliases(aliases)
        .doc(&doc(what, &names.join(", "), &example, "(2, 3)"))
        .inputs_are(&[])
        .infer_shape(|attrs, inputs, outputs| {
            let made = match attrs.get::<P>().common().0 {
                Some(dims) if !dims.is_empty() => Shape::from_legacy(dims),
                _ if outputs[0].rank_known() => outputs[0].clone(),
                _ => Shape::new(&[1]),
            };
            assign_shape(&mut outputs[0], "output", &made)?;
            Ok(all_known(inputs, outputs))
        })
        .infer_type(|attrs, _, outputs| {
            dtype_of(attrs.get::<P>().common().1, types, &mut outputs[0])
        })
        .resources(&[ResourceRequest::Random])
        .gradient(Gradient::Zero)
        .kernel(Kernel::cpu(move |call| draw(call, call.attrs.get::<P>())).skips_null())
}

fn dtype_of(given: Option<DType>, types: &[DType], slot: &mut Option<DType>) -> Result<bool> {
    let dtype = given.or(*slot).unwrap_or(types[0]);
    if !types.contains(&dtype) {
        let names: Vec<_> = types.iter().map(|t| t.name()).collect();
        let expected = names.join(", ");
        return Err(Error::type_(format!("invalid dtype '{dtype}': expected one of: {expected}")));
    }
    assign_type(slot, "output", dtype)?;
    Ok(true)
}

/// A distribution's operator, and the one that draws arrays like another.
fn both<P: Source + for<'a> From<&'a L>, L: ParamStruct>(
    name: &'static str,
    what: &'static str,
    draw: fn(&Call<'_>, &P) -> Result<()>,
) -> [OpDef; 2] {
    let alias = name.trim_start_matches('_');
    let given = if name == "_random_negative_binomial" { "k=3, p=0.5, " } else { "" };
    let like = format!("{name}_like");
    let method = like.trim_start_matches("_random_");
    let example = format!("nd.random.{method}({given}data=nd.ones((2, 3)))");
    [
        source::<P>(name, &[alias], what, &FLOATS, draw),
        alike(OpDef::new::<L>(&like), what, &example).kernel(
            Kernel::cpu(move |call| draw(call, &P::from(call.attrs.get::<L>()))).skips_null(),
        ),
    ]
}

/// Parameters of a distribution: one or two numbers.
pub(in crate::ops) trait Setting {
    /// The numbers; an error if there is no such distribution.
    fn checked(&self) -> Result<[f64; 2]>;
}

impl Setting for GammaParam {
    fn checked(&self) -> Result<[f64; 2]> {
        check_positive("alpha", self.alpha.into())?;
        check_positive("beta", self.beta.into())?;
        Ok([self.alpha.into(), self.beta.into()])
    }
}

impl Setting for ExponentialParam {
    fn checked(&self) -> Result<[f64; 2]> {
        check_positive("lam", self.lam.into())?;
        Ok([self.lam.into(), 0.0])
    }
}

impl Setting for PoissonParam {
    fn checked(&self) -> Result<[f64; 2]> {
        check_not_negative("lam", self.lam.into())?;
        Ok([self.lam.into(), 0.0])
    }
}

impl Setting for NegativeBinomialParam {
    fn checked(&self) -> Result<[f64; 2]> {
        let (k, p) = (f64::from(self.k), f64::from(self.p));
        check_positive("k", k)?;
        check("p", p, p > 0.0 && p <= 1.0, "more than 0 and at most 1")?;
        Ok([k, p])
    }
}

impl Setting for GeneralizedParam {
    fn checked(&self) -> Result<[f64; 2]> {
        check_not_negative("mu", self.mu.into())?;
        check_not_negative("alpha", self.alpha.into())?;
        Ok([self.mu.into(), self.alpha.into()])
    }
}

fn sources() -> Vec<OpDef> {
    [
        both::<GammaParam, GammaLikeParam>("_random_gamma", "the gamma distribution", |call, p| {
            let [alpha, beta] = p.checked()?;
            fill(call, |d, _| beta * d.gamma(alpha));
            Ok(())
        }),
        both::<ExponentialParam, ExponentialLikeParam>(
            "_random_exponential",
            "the exponential distribution",
            |call, p| {
                let [lam, _] = p.checked()?;
                fill(call, |d, _| d.exponential() / lam);
                Ok(())
            },
        ),
        both::<PoissonParam, PoissonLikeParam>(
            "_random_poisson",
            "the Poisson distribution",
            |call, p| {
                let [lam, _] = p.checked()?;
                fill(call, |d, _| d.poisson(lam));
                Ok(())
            },
        ),
        both::<NegativeBinomialParam, NegativeBinomialLikeParam>(
            "_random_negative_binomial",
            "the number of failures before ``k`` successes",
            |call, p| {
                let [k, p] = p.checked()?;
                fill(call, |d, _| gamma_poisson(d, k, (1.0 - p) / p));
                Ok(())
            },
        ),
        both::<GeneralizedParam, GeneralizedLikeParam>(
            "_random_generalized_negative_binomial",
            "the negative binomial distribution given by mean and dispersion",
            |call, p| {
                let [mu, alpha] = p.checked()?;
                fill(call, |d, _| dispersed(d, mu, alpha));
                Ok(())
            },
        ),
    ]
    .concat()
}

params! {
    /// Parameters of `_random_uniform_like`.
    pub struct UniformLikeParam {
        low: f32, default(0.0), "Least value.";
        high: f32, default(1.0), "Bound of the values, not reached.";
    }
}

params! {
    /// Parameters of `_random_normal_like`.
    pub struct NormalLikeParam {
        loc: f32, default(0.0), "Mean.";
        scale: f32, default(1.0), "Standard deviation.";
    }
}

impl Setting for UniformLikeParam {
    fn checked(&self) -> Result<[f64; 2]> {
        check_range(self.low.into(), self.high.into())?;
        Ok([self.low.into(), self.high.into()])
    }
}

impl Setting for NormalLikeParam {
    fn checked(&self) -> Result<[f64; 2]> {
        check_scale(self.scale.into())?;
        Ok([self.loc.into(), self.scale.into()])
    }
}

/// An operator that draws an array like its input.
fn alike(def: OpDef, what: &str, example: &str) -> OpDef {
    elementwise(def)
        .doc(&doc(what, "the data's dtype", example, "(2, 3)"))
        .inputs_are(&[("data", "Gives shape and dtype.")])
        .ignores(&[0])
        .resources(&[ResourceRequest::Random])
        .gradient(Gradient::Zero)
}

fn likes() -> Vec<OpDef> {
    vec![
        alike(
            OpDef::new::<UniformLikeParam>("_random_uniform_like"),
            "the uniform distribution over ``[low, high)``",
            "nd.random.uniform_like(nd.ones((2, 3)))",
        )
        .kernel(
            Kernel::cpu(|call| {
                let [low, high] = call.attrs.get::<UniformLikeParam>().checked()?;
                let span = Span::new(call.outputs[0].dtype(), low, high);
                fill(call, |d, _| span.at(d.uniform()));
                Ok(())
            })
            .skips_null(),
        ),
        alike(
            OpDef::new::<NormalLikeParam>("_random_normal_like"),
            "the normal distribution",
            "nd.random.normal_like(nd.ones((2, 3)))",
        )
        .kernel(
            Kernel::cpu(|call| {
                let [loc, scale] = call.attrs.get::<NormalLikeParam>().checked()?;
                fill(call, |d, _| loc + scale * d.normal());
                Ok(())
            })
            .skips_null(),
        ),
    ]
}

pub fn operators() -> Vec<OpDef> {
    let drawn = [sampling::operators(), multinomial::operators(), zipf::operators()];
    [sources(), likes(), density::operators(), drawn.concat()].concat()
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn draws_have_shape_dtype_and_mean() {
        for (op, params, mean) in [
            ("_random_gamma", &[("alpha", "2"), ("beta", "3")][..], 6.0),
            ("_random_exponential", &[("lam", "2")], 0.5),
            ("_random_poisson", &[("lam", "4")], 4.0),
            ("_random_negative_binomial", &[("k", "3"), ("p", "0.5")], 3.0),
            ("_random_generalized_negative_binomial", &[("mu", "2"), ("alpha", "0.5")], 2.0),
        ] {
            let all: Vec<_> = params.iter().copied().chain([("shape", "(100, 100)")]).collect();
            let x = values(op, &all, &[]);
            let got = x.iter().sum::<f64>() / 1e4;
            assert!((got - mean).abs() < 0.25, "{op}: {got}");
            assert_eq!(values(op, &all, &[]), x, "same key, same numbers");
        }
        let p = Tensor::of(&[2, 3], &[0., 1., 0., 0., 0., 1.]);
        assert_eq!(values("_sample_multinomial", &[("shape", "2")], &[p]), [1., 1., 2., 2.]);
        let x = Tensor::of(&[2], &[5., -5.]);
        let y = Tensor::of(&[2], &[0., 0.]);
        assert_eq!(values("_sample_normal", &[("shape", "2")], &[x, y]), [5., 5., -5., -5.]);
        let mut s = values("_shuffle", &[], &[Tensor::of(&[4, 1], &[1., 2., 3., 4.])]);
        s.sort_by(f64::total_cmp);
        assert_eq!(s, [1., 2., 3., 4.]);
        assert!(run("_random_exponential", &[("lam", "-1")], &[], false).is_err());
    }
}
