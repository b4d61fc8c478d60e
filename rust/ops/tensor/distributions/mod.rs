//! Random arrays of the rarer distributions. Every element depends on the seed, the call and its
//! own number only.

mod density;
pub(in crate::ops) mod distribution;
mod multinomial;
mod sampling;
mod zipf;

use super::common::{all_known, elementwise, wanted, write_f64};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::random::Draws;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Call, Gradient, Kernel, OpDef, ParamStruct, ResourceRequest, Tuple};
use crate::shape::{Shape, is_np_shape};
use crate::{params, with_dtype};
pub(in crate::ops) use distribution::{Distribution, Setting, settings};

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

fn doc(what: &str, dtypes: &str, example: &str, shape: &str) -> String {
    format!(
        "Draws from {what}.\n\nNotes\n-----\nThe dtype is one of {dtypes}. Element ``i`` depends \
         on the seed, the call and ``i`` only, not on threads. Parameters outside of the \
         distribution's domain are an error; in arrays on a device they give \
         NaN.\n\nExamples\n--------\n>>> {example}.shape\n{shape}\n"
    )
}

const FLOATS: [DType; 3] = [DType::F32, DType::F64, DType::F16];

/// Fills output 0 by a distribution.
fn draw<P: Setting>(call: &Call<'_>, p: &P) -> Result<()> {
    let numbers = p.checked()?;
    let out = &call.outputs[0];
    let drawing = P::DISTRIBUTION.of(out.dtype(), numbers);
    let is_filled = wanted(call, 0)
        && with_dtype!(out.dtype(), T => {
            // SAFETY: the output is the call's to write.
            unsafe { drawing.fill::<T>(call.ctx.random, out.as_ptr(), out.size()) }
        });
    if !is_filled {
        fill(call, |d, _| drawing.draw(d));
    }
    Ok(())
}

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
                Some(dims) if is_np_shape() || !dims.is_empty() => Shape::from_parameter(dims),
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
fn both<P: Source + Setting + for<'a> From<&'a L>, L: ParamStruct>(
    name: &'static str,
    what: &'static str,
) -> [OpDef; 2] {
    let alias = name.trim_start_matches('_');
    let given = if name == "_random_negative_binomial" { "k=3, p=0.5, " } else { "" };
    let like = format!("{name}_like");
    let method = like.trim_start_matches("_random_");
    let example = format!("nd.random.{method}({given}data=nd.ones((2, 3)))");
    [
        source::<P>(name, &[alias], what, &FLOATS, draw),
        alike::<L>(&like, what, &example, |call, p| draw(call, &P::from(p))),
    ]
}

settings! {
    UniformLikeParam: Uniform(low, high);
    NormalLikeParam: Normal(loc, scale);
    ExponentialParam: Exponential(lam);
    GammaParam: Gamma(alpha, beta);
    PoissonParam: Poisson(lam);
    NegativeBinomialParam: Failures(k, p);
    GeneralizedParam: Dispersed(mu, alpha);
}

fn sources() -> Vec<OpDef> {
    [
        both::<GammaParam, GammaLikeParam>("_random_gamma", "the gamma distribution"),
        both::<ExponentialParam, ExponentialLikeParam>(
            "_random_exponential",
            "the exponential distribution",
        ),
        both::<PoissonParam, PoissonLikeParam>("_random_poisson", "the Poisson distribution"),
        both::<NegativeBinomialParam, NegativeBinomialLikeParam>(
            "_random_negative_binomial",
            "the number of failures before ``k`` successes",
        ),
        both::<GeneralizedParam, GeneralizedLikeParam>(
            "_random_generalized_negative_binomial",
            "the negative binomial distribution given by mean and dispersion",
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

/// An operator that draws an array like its input.
fn alike<L: ParamStruct>(
    name: &str,
    what: &str,
    example: &str,
    draw: fn(&Call<'_>, &L) -> Result<()>,
) -> OpDef {
    elementwise(OpDef::new::<L>(name))
        .doc(&doc(what, "the data's dtype", example, "(2, 3)"))
        .inputs_are(&[("data", "Gives shape and dtype.")])
        .ignores(&[0])
        .resources(&[ResourceRequest::Random])
        .gradient(Gradient::Zero)
        .kernel(Kernel::cpu(move |call| draw(call, call.attrs.get::<L>())).skips_null())
}

fn likes() -> Vec<OpDef> {
    vec![
        alike::<UniformLikeParam>(
            "_random_uniform_like",
            "the uniform distribution over ``[low, high)``",
            "nd.random.uniform_like(nd.ones((2, 3)))",
            draw,
        ),
        alike::<NormalLikeParam>(
            "_random_normal_like",
            "the normal distribution",
            "nd.random.normal_like(nd.ones((2, 3)))",
            draw,
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
