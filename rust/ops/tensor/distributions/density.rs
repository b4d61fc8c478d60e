//! Densities: for each distribution its logarithm and the slopes of that, from which the operators
//! `_random_pdf_*` and their gradients are made. **A new distribution is one row of [`TABLE`].**
//!
//! An array of parameters has one element for each row of samples: its shape is how the samples'
//! shape begins.

use super::wanted;
use crate::error::{Error, Result};
use crate::kernels::math::{digamma_f64, gammaln_f64};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Call, Gradient, Kernel, OpDef};
use crate::ops::nn::infer::float_type;
use crate::ops::nn::widening;
use crate::ops::tensor::common::{all_known, at_least_1d};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};
use std::f64::consts::TAU;

params! {
    /// Parameters of densities.
    pub struct DensityParam {
        is_log: bool, default(false), "Give the logarithm of the density?";
    }
}

/// A distribution of numbers.
struct Distribution {
    name: &'static str,
    what: &'static str,
    formula: &'static str,
    /// Its parameters.
    params: &'static [(&'static str, &'static str)],
    /// An example: parameters and the density at 1.
    example: (&'static str, &'static str),
    /// The logarithm of the density at `x`.
    log: fn(f64, [f64; 2]) -> f64,
    /// Its slopes in `x` and in the parameters. (No slope in `x` where `x` is a whole number.)
    slopes: fn(f64, [f64; 2]) -> [f64; 3],
}

/// Negative binomial: failures before `k` successes of probability `p`.
fn failures(x: f64, k: f64, p: f64) -> f64 {
    gammaln_f64(x + k) - gammaln_f64(x + 1.0) - gammaln_f64(k) + k * p.ln() + x * (1.0 - p).ln()
}

/// Its slopes in `k` and `p`.
fn failure_slopes(x: f64, k: f64, p: f64) -> [f64; 2] {
    [digamma_f64(x + k) - digamma_f64(k) + p.ln(), k / p - x / (1.0 - p)]
}

static TABLE: [Distribution; 7] = [
    Distribution {
        name: "uniform",
        what: "the uniform distribution on ``[low, high]``",
        formula: "1 / (high - low)``, also for samples outside of the range; ``high`` is greater \
                  than ``low",
        params: &[("low", "Lower limits."), ("high", "Upper limits.")],
        example: ("[0], [2]", "0.5"),
        log: |_, [low, high]| -(high - low).ln(),
        slopes: |_, [low, high]| [0.0, 1.0 / (high - low), -1.0 / (high - low)],
    },
    Distribution {
        name: "normal",
        what: "the normal distribution",
        formula: "exp(-(x - mu)^2 / (2 sigma^2)) / (sigma sqrt(2 pi))",
        params: &[("mu", "Means."), ("sigma", "Standard deviations.")],
        example: ("[1], [1]", "0.3989423"),
        log: |x, [mu, sigma]| {
            let z = (x - mu) / sigma;
            -0.5 * z * z - sigma.ln() - 0.5 * TAU.ln()
        },
        slopes: |x, [mu, sigma]| {
            let z = (x - mu) / sigma;
            [-z / sigma, z / sigma, (z * z - 1.0) / sigma]
        },
    },
    Distribution {
        name: "gamma",
        what: "the gamma distribution",
        formula: "beta^alpha x^(alpha - 1) exp(-beta x) / Gamma(alpha)",
        params: &[
            ("alpha", "Shapes of the distributions."),
            ("beta", "Rates: one over the scales."),
        ],
        example: ("[1], [1]", "0.36787945"),
        log: |x, [a, b]| a * b.ln() + (a - 1.0) * x.ln() - b * x - gammaln_f64(a),
        slopes: |x, [a, b]| [(a - 1.0) / x - b, b.ln() + x.ln() - digamma_f64(a), a / b - x],
    },
    Distribution {
        name: "exponential",
        what: "the exponential distribution",
        formula: "lam exp(-lam x)",
        params: &[("lam", "Rates: one over the means.")],
        example: ("[1]", "0.36787945"),
        log: |x, [lam, _]| lam.ln() - lam * x,
        slopes: |x, [lam, _]| [-lam, 1.0 / lam - x, 0.0],
    },
    Distribution {
        name: "poisson",
        what: "the Poisson distribution",
        formula: "lam^x exp(-lam) / x!",
        params: &[("lam", "Means.")],
        example: ("[1]", "0.36787945"),
        log: |x, [lam, _]| x * lam.ln() - gammaln_f64(x + 1.0) - lam,
        slopes: |x, [lam, _]| [0.0, x / lam - 1.0, 0.0],
    },
    Distribution {
        name: "negative_binomial",
        what: "the number of failures before ``k`` successes",
        formula: "Gamma(x + k) / (x! Gamma(k)) p^k (1 - p)^x",
        params: &[("k", "Numbers of successes."), ("p", "Probabilities of a success.")],
        example: ("[1], [0.5]", "0.25"),
        log: |x, [k, p]| failures(x, k, p),
        slopes: |x, [k, p]| {
            let [dk, dp] = failure_slopes(x, k, p);
            [0.0, dk, dp]
        },
    },
    Distribution {
        name: "generalized_negative_binomial",
        what: "the negative binomial distribution of given mean and dispersion",
        formula: "Gamma(x + k) / (x! Gamma(k)) p^k (1 - p)^x`` with ``k = 1 / alpha`` and ``p = 1 \
                  / (mu alpha + 1)",
        params: &[("mu", "Means."), ("alpha", "Dispersions.")],
        example: ("[1], [1]", "0.25"),
        log: |x, [mu, alpha]| failures(x, 1.0 / alpha, 1.0 / (mu * alpha + 1.0)),
        slopes: |x, [mu, alpha]| {
            let p = 1.0 / (mu * alpha + 1.0);
            let [dk, dp] = failure_slopes(x, 1.0 / alpha, p);
            [0.0, -dp * alpha * p * p, -dk / (alpha * alpha) - dp * mu * p * p]
        },
    },
];

/// The density and the factor of its slopes, from its logarithm.
fn value(log: f64, is_log: bool) -> (f64, f64) {
    if is_log { (log, 1.0) } else { (log.exp(), log.exp()) }
}

/// Parameters have one shape, with which that of the samples begins; behind both may be `tail` axes
/// more, which the output does not have.
fn infer_shape(inputs: &mut [Shape], outputs: &mut [Shape], tail: usize) -> Result<bool> {
    let mut common = Shape::unknown();
    for shape in &inputs[1..] {
        assign_shape(&mut common, "parameter", shape)?;
    }
    inputs[1..].fill(common.clone());
    if tail == 0 {
        let known = outputs[0].clone();
        assign_shape(&mut inputs[0], "sample", &known)?;
    }
    let sample = &inputs[0];
    if sample.rank_known() {
        if sample.ndim() < tail {
            return Err(Error::argument("sample", "shape", sample, "one axis or more"));
        }
        let out = Shape::new(&sample.dims()[..sample.ndim() - tail]);
        let out = if tail > 0 { at_least_1d(out) } else { out };
        assign_shape(&mut outputs[0], "output", &out)?;
    }
    if sample.is_known() && common.is_known() {
        let (s, p) = (sample.dims(), common.dims());
        let lead = p.len().saturating_sub(tail);
        let fits = p.len() >= tail
            && s.len() >= p.len()
            && s[..lead] == p[..lead]
            && s[s.len() - tail..] == p[lead..];
        if !fits {
            let expected = format!("a shape that begins like that of the parameters, {common}");
            return Err(Error::argument("sample", "shape", sample, expected));
        }
    }
    Ok(all_known(inputs, outputs))
}

/// Number of rows, and of samples in each.
fn extents(samples: &View, parameter: &View) -> (usize, usize) {
    let rows = parameter.size();
    (rows, samples.size() / rows.max(1))
}

fn forward<T: Real>(call: &Call<'_>, of: &Distribution) -> Result<()> {
    let is_log = call.attrs.get::<DensityParam>().is_log;
    let (rows, width) = extents(&call.inputs[0], &call.inputs[1]);
    let x = Shared(call.inputs[0].as_ptr::<T>());
    let params: Vec<_> = call.inputs[1..].iter().map(|v| Shared(v.as_ptr::<T>())).collect();
    let out = Shared(call.outputs[0].as_ptr::<T>());
    parallel_for(rows * width, 1 << 11, |range| {
        for i in range {
            // SAFETY: `rows` parameters and `rows * width` samples; tasks have samples of their
            // own.
            unsafe {
                let at = parameters(&params, i / width);
                let log = (of.log)((*x.at(i)).to_f64(), at);
                *out.at(i) = T::of(value(log, is_log).0);
            }
        }
    });
    Ok(())
}

/// The parameters of a row.
///
/// # Safety
/// Each array has more than `row` elements.
unsafe fn parameters<T: Real>(params: &[Shared<T>], row: usize) -> [f64; 2] {
    // SAFETY: promised by the caller.
    let at = |k: usize| params.get(k).map_or(0.0, |p| unsafe { *p.at(row) }.to_f64());
    [at(0), at(1)]
}

/// Inputs: output gradient, samples, parameters. Gradients of the parameters are sums over a row.
fn backward<T: Real>(call: &Call<'_>, of: &Distribution) -> Result<()> {
    let is_log = call.attrs.get::<DensityParam>().is_log;
    let (rows, width) = extents(&call.inputs[1], &call.inputs[2]);
    let [g, x] = [0, 1].map(|i| Shared(call.inputs[i].as_ptr::<T>()));
    let params: Vec<_> = call.inputs[2..].iter().map(|v| Shared(v.as_ptr::<T>())).collect();
    let outs: Vec<_> = (0..call.outputs.len())
        .map(|i| wanted(call, i).then(|| Shared(call.outputs[i].as_ptr::<T>())))
        .collect();
    parallel_for(rows, ((1 << 11) / width.max(1)).max(1), |range| {
        for row in range {
            let mut sums = [0.0; 2];
            for i in row * width..(row + 1) * width {
                // SAFETY: as in `forward`; tasks have rows of their own.
                unsafe {
                    let (x, at) = ((*x.at(i)).to_f64(), parameters(&params, row));
                    let factor = (*g.at(i)).to_f64() * value((of.log)(x, at), is_log).1;
                    let [dx, da, db] = (of.slopes)(x, at).map(|slope| factor * slope);
                    sums = [sums[0] + da, sums[1] + db];
                    if let Some(out) = outs[0] {
                        *out.at(i) = T::of(dx);
                    }
                }
            }
            for (out, sum) in outs[1..].iter().zip(sums) {
                if let Some(out) = out {
                    // SAFETY: one element a row.
                    unsafe { *out.at(row) = T::of(sum) };
                }
            }
        }
    });
    Ok(())
}

fn doc(what: &str, formula: &str, shapes: &str, example: &str) -> String {
    format!(
        "The density of {what} at samples: ``{formula}``.\n\nNotes\n-----\n{shapes} One dtype: \
         float16 (calculated in float32), float32 or float64. With ``is_log`` the logarithm. The \
         gradient is that of the formula, and 0 in samples that are counts. Parameters outside of \
         the distribution's domain give NaN.\n\nExamples\n--------\n{example}\n"
    )
}

fn density(of: &'static Distribution) -> [OpDef; 2] {
    let (name, back) = (format!("_random_pdf_{}", of.name), format!("_backward_pdf_{}", of.name));
    let mut inputs = vec![("sample", "The samples, one row or more for each parameter.")];
    inputs.extend(of.params);
    let arrays = of.example.0.split(", ").map(|a| format!(", nd.array({a})"));
    let example = format!(
        ">>> nd.random_pdf_{}(nd.array([[1]]){})\n[[{}]]",
        of.name,
        arrays.collect::<String>(),
        of.example.1
    );
    let shapes = "The shape of the samples, which is that of the output, begins with the shape of \
                  the parameters: element ``i`` of these belongs to all samples ``[i, ...]``.";
    let forward = OpDef::new::<DensityParam>(&name)
        .aliases(&[&format!("random_pdf_{}", of.name)])
        .doc(&doc(of.what, of.formula, shapes, &example))
        .inputs_are(&inputs)
        .infer_shape(|_, inputs, outputs| infer_shape(inputs, outputs, 0))
        .infer_type(float_type)
        .gradient(Gradient::use_in(&back))
        .kernel(widened(of, |c, of| with_real!(c.inputs[0].dtype(), T => forward::<T>(c, of))));
    let backward = OpDef::new::<DensityParam>(&back)
        .kernel(widened(of, |c, of| with_real!(c.inputs[0].dtype(), T => backward::<T>(c, of))));
    [forward, backward]
}

/// A kernel of the distribution, for every float dtype.
fn widened(of: &'static Distribution, run: fn(&Call<'_>, &Distribution) -> Result<()>) -> Kernel {
    Kernel::cpu(move |call| widening::widened(call, |c| run(c, of))).skips_null()
}

/// The Dirichlet distribution: each sample is a vector, and so is each parameter.
fn dirichlet() -> [OpDef; 2] {
    let shapes = "Samples ``(..., k)`` have numbers that add up to 1. Their shape begins with that \
                  of alpha ``(..., k)`` but for the last axis, which is the same in both and which \
                  the output does not have.";
    let forward = OpDef::new::<DensityParam>("_random_pdf_dirichlet")
        .aliases(&["random_pdf_dirichlet"])
        .doc(&doc(
            "the Dirichlet distribution",
            "Gamma(sum(alpha)) prod(x^(alpha - 1) / Gamma(alpha))",
            shapes,
            ">>> nd.random_pdf_dirichlet(nd.array([[0.5, 0.5]]), nd.array([1, 1]))\n[1.]",
        ))
        .inputs_are(&[("sample", "The samples (..., k)."), ("alpha", "Concentrations (..., k).")])
        .infer_shape(|_, inputs, outputs| infer_shape(inputs, outputs, 1))
        .infer_type(float_type)
        .gradient(Gradient::use_in("_backward_pdf_dirichlet"))
        .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => dirichlet_forward::<T>(c))));
    let backward = OpDef::new::<DensityParam>("_backward_pdf_dirichlet").kernel(widening::cpu(
        |c| with_real!(c.inputs[0].dtype(), T => dirichlet_backward::<T>(c)),
    ));
    [forward, backward]
}

/// Element of a row of `k` numbers.
///
/// # Safety
/// The array has that many elements.
unsafe fn row<'a, T: Real>(from: Shared<T>, i: usize, k: usize) -> &'a [T] {
    // SAFETY: promised by the caller; inputs are not written meanwhile.
    unsafe { std::slice::from_raw_parts(from.at(i * k), k) }
}

fn dirichlet_log<T: Real>(x: &[T], alpha: &[T]) -> f64 {
    let terms = x.iter().zip(alpha).map(|(&x, &a)| {
        let a: f64 = a.to_f64();
        (a - 1.0) * x.to_f64().ln() - gammaln_f64(a)
    });
    terms.sum::<f64>() + gammaln_f64(alpha.iter().map(|&a| -> f64 { a.to_f64() }).sum())
}

/// Numbers of a vector, of parameters, and of samples for each of these.
fn vectors(sample: &View, alpha: &View) -> (usize, usize, usize) {
    let k = alpha.dims().last().map_or(1, |&k| k as usize);
    let rows = alpha.size() / k.max(1);
    (k, rows, sample.size() / (rows * k).max(1))
}

fn dirichlet_forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let is_log = call.attrs.get::<DensityParam>().is_log;
    let (k, rows, width) = vectors(&call.inputs[0], &call.inputs[1]);
    let [x, alpha] = [0, 1].map(|i| Shared(call.inputs[i].as_ptr::<T>()));
    let out = Shared(call.outputs[0].as_ptr::<T>());
    parallel_for(rows * width, ((1 << 10) / k.max(1)).max(1), |range| {
        for i in range {
            // SAFETY: `rows` vectors of parameters, `rows * width` samples and outputs.
            unsafe {
                let log = dirichlet_log(row(x, i, k), row(alpha, i / width, k));
                *out.at(i) = T::of(value(log, is_log).0);
            }
        }
    });
    Ok(())
}

fn dirichlet_backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let is_log = call.attrs.get::<DensityParam>().is_log;
    let (k, rows, width) = vectors(&call.inputs[1], &call.inputs[2]);
    let [g, x, alpha] = [0, 1, 2].map(|i| Shared(call.inputs[i].as_ptr::<T>()));
    let outs = [0, 1].map(|i| wanted(call, i).then(|| Shared(call.outputs[i].as_ptr::<T>())));
    parallel_for(rows, 1, |range| {
        for r in range {
            // SAFETY: as in `dirichlet_forward`; tasks have rows of their own.
            unsafe {
                let a = row(alpha, r, k);
                let whole = digamma_f64(a.iter().map(|&a| -> f64 { a.to_f64() }).sum());
                let mut sums = vec![0.0; k];
                for i in r * width..(r + 1) * width {
                    let x = row(x, i, k);
                    let factor = (*g.at(i)).to_f64() * value(dirichlet_log(x, a), is_log).1;
                    for j in 0..k {
                        let (x, a) = (x[j].to_f64(), a[j].to_f64());
                        sums[j] += factor * (x.ln() + whole - digamma_f64(a));
                        if let Some(out) = outs[0] {
                            *out.at(i * k + j) = T::of(factor * (a - 1.0) / x);
                        }
                    }
                }
                if let Some(out) = outs[1] {
                    for (j, sum) in sums.into_iter().enumerate() {
                        *out.at(r * k + j) = T::of(sum);
                    }
                }
            }
        }
    });
    Ok(())
}

pub fn operators() -> Vec<OpDef> {
    TABLE.iter().flat_map(density).chain(dirichlet()).collect()
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let x = Tensor::of(&[2, 3], &[0.5, 1.25, 2.0, 0.75, 3.0, 1.5]);
        let p = |a: f64, b: f64| Tensor::of(&[2], &[a, b]);
        for log in ["0", "1"] {
            let is_log = [("is_log", log)];
            let [a, b] = [p(1.5, 0.75), p(0.5, 0.25)];
            for op in ["normal", "gamma"] {
                let op = format!("_random_pdf_{op}");
                let all = [x.clone(), a.clone(), b.clone()];
                check_gradient(&op, &is_log, &all, &[0, 1, 2], true);
            }
            for op in ["negative_binomial", "generalized_negative_binomial"] {
                let op = format!("_random_pdf_{op}");
                check_gradient(&op, &is_log, &[x.clone(), a.clone(), b.clone()], &[1, 2], true);
            }
            for op in ["exponential", "poisson"] {
                let op = format!("_random_pdf_{op}");
                check_gradient(&op, &is_log, &[x.clone(), a.clone()], &[1], true);
            }
            let s = Tensor::of(&[2, 3], &[0.2, 0.3, 0.5, 0.6, 0.3, 0.1]);
            let alpha = Tensor::of(&[3], &[1.5, 2.0, 3.0]);
            check_gradient("_random_pdf_dirichlet", &is_log, &[s, alpha], &[0, 1], true);
        }
    }
}
