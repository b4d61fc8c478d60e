//! Numbers drawn from a finite set: `choice` and `multinomial`.

use super::statistics::{numbers, store};
use super::{text, zeros};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::random::Draws;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Call, Gradient, Kernel, OpDef, Registry, ResourceRequest, Tuple};
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;
use std::collections::HashSet;

params! {
    /// Parameters of `_npi_choice`.
    pub struct ChoiceParam {
        a: Option<i64>, required, "How many numbers there are; None counts the elements of an \
                                   array.";
        size: Option<Tuple>, required, "Shape of the draws; None is one draw.";
        ctx: String, default("cpu".to_owned()), "The device, such as cpu(0).";
        replace: bool, default(true), "May a number be drawn again?";
        weighted: bool, default(false), "Are there probabilities?";
    }
}

params! {
    /// Parameters of `_npi_multinomial`.
    pub struct MultinomialParam {
        n: i64, required.ge(0.0), "Number of experiments.";
        pvals: Option<Vec<f32>>, default(None), "Probabilities; None is an array.";
        size: Option<Tuple>, default(None), "How many draws; None is one.";
    }
}

fn size_of(size: Option<&Tuple>) -> Result<Shape> {
    let size = size.map_or(&[][..], |size| size);
    match size.iter().find(|extent| **extent < 0) {
        Some(extent) => Err(Error::invalid("extent in size", extent, "at least 0")),
        None => Ok(Shape::new(size)),
    }
}

/// The probabilities, checked: not negative, and some of them positive.
fn probabilities(given: Vec<f64>, name: &str) -> Result<Vec<f64>> {
    let bad = given.iter().find(|p| !(p.is_finite() && **p >= 0.0));
    match bad {
        Some(p) => Err(Error::invalid(name, p, "probabilities")),
        None if given.iter().sum::<f64>() <= 0.0 => {
            Err(Error::invalid(name, "0", "probabilities that are not all 0"))
        }
        None => Ok(given),
    }
}

/// For each draw `u` in `[0, 1)` the number whose part of the sum of weights holds it.
fn chosen(weights: &[f64], draws: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let ends: Vec<f64> = weights.iter().map(|w| (sum += w, sum).1).collect();
    let last = weights.iter().rposition(|w| *w > 0.0).unwrap_or(0);
    draws.map(|u| ends.partition_point(|end| *end <= u * sum).min(last) as f64).collect()
}

/// `count` different numbers below `n` in random order (R. Floyd, 1987), shuffled.
fn apart(n: usize, count: usize, draws: impl Fn(usize) -> Draws) -> Vec<f64> {
    let (mut seen, mut all) = (HashSet::with_capacity(count), Vec::with_capacity(count));
    for (i, last) in (n - count..n).enumerate() {
        let number = draws(i).integer(0, last as i64 + 1) as usize;
        let number = if seen.insert(number) { number } else { last };
        seen.insert(number);
        all.push(number as f64);
    }
    for i in (1..count).rev() {
        all.swap(i, draws(count + i).integer(0, i as i64 + 1) as usize);
    }
    all
}

/// How many of `n` experiments succeed, each with probability `p`: the place of the middle one of
/// ordered uniform draws, which has a beta distribution, halves their number (L. Devroye,
/// Non-Uniform Random Variate Generation, 1986, X.4.3).
fn successes(draws: &mut Draws, mut n: i64, mut p: f64) -> i64 {
    let mut found = 0;
    while n > 64 && p > 0.0 && p < 1.0 {
        let (middle, after) = (1 + n / 2, n - n / 2);
        let (x, y) = (draws.gamma(middle as f64), draws.gamma(after as f64));
        let at = x / (x + y);
        if at >= p {
            n = middle - 1;
            p /= at;
        } else {
            found += middle;
            n = after - 1;
            p = (p - at) / (1.0 - at);
        }
    }
    match p {
        p if p <= 0.0 => found,
        p if p >= 1.0 => found + n,
        p => found + (0..n).filter(|_| draws.uniform() < p).count() as i64,
    }
}

fn choose(call: &Call<'_>) -> Result<()> {
    let (p, out, key) = (call.attrs.get::<ChoiceParam>(), &call.outputs[0], call.ctx.random);
    let mut inputs = call.inputs.iter();
    let n = match p.a {
        Some(n) => n.max(0) as usize,
        None => inputs.next().map_or(0, View::size),
    };
    let weights = match (p.weighted, inputs.next()) {
        (true, Some(view)) => Some(probabilities(numbers(view)?, "weights")?),
        _ => None,
    };
    if let Some(weights) = weights.as_ref().filter(|weights| weights.len() != n) {
        return Err(Error::invalid("number of weights", weights.len(), n));
    }
    let count = out.size();
    let open = weights.as_ref().map_or(n, |w| w.iter().filter(|w| **w > 0.0).count());
    if count > 0 && n == 0 {
        return Err(Error::invalid("a", p.a.unwrap_or(0), "at least 1"));
    }
    if !p.replace && count > open {
        return Err(Error::invalid("size", count, format!("at most {open} without replacement")));
    }
    let uniform = |i: usize| Draws::new(key.seed, key.stream, i).uniform();
    let all: Vec<f64> = match (&weights, p.replace) {
        (None, true) => (0..count)
            .map(|i| Draws::new(key.seed, key.stream, i).integer(0, n as i64) as f64)
            .collect(),
        (Some(weights), true) => chosen(weights, (0..count).map(uniform)),
        (None, false) => apart(n, count, |i| Draws::new(key.seed, key.stream, i)),
        // The least of exponential draws with the weights as rates (P. Efraimidis, P. Spirakis,
        // 2006).
        (Some(weights), false) => {
            let time = |i: usize| Draws::new(key.seed, key.stream, i).exponential() / weights[i];
            let mut order: Vec<(f64, usize)> = (0..n).map(|i| (time(i), i)).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            order[..count].iter().map(|(_, i)| *i as f64).collect()
        }
    };
    store(call, 0, &all);
    Ok(())
}

fn choice() -> OpDef {
    OpDef::new::<ChoiceParam>("_npi_choice")
        .inputs_are(&[
            ("input1", "The array, or the probabilities."),
            ("input2", "The probabilities."),
        ])
        .input_names_by(|attrs| {
            let p = attrs.get::<ChoiceParam>();
            let arrays = usize::from(p.a.is_none()) + usize::from(p.weighted);
            (1..=arrays).map(|i| format!("input{i}")).collect()
        })
        .doc(&text(
            "Draws numbers of ``0 .. a - 1``: places in an array of ``a`` elements.",
            "All are equally likely, or have the probabilities that an input gives. The output is \
             int64. More draws without replacement than there are numbers are an error.",
            "_npi_choice(a=5, size=(2, 3)).shape\n(2, 3)",
        ))
        .infer_shape(|attrs, inputs, outputs| {
            let shape = size_of(attrs.get::<ChoiceParam>().size.as_ref())?;
            assign_shape(&mut outputs[0], "output", &shape)?;
            Ok(inputs.iter().all(Shape::is_known))
        })
        .infer_type(|_, inputs, outputs| {
            inputs.iter_mut().for_each(|slot| *slot = slot.or(Some(DType::F32)));
            assign_type(&mut outputs[0], "output", DType::I64)?;
            Ok(true)
        })
        .resources(&[ResourceRequest::Random])
        .gradient(Gradient::Zero)
        .kernel(Kernel::cpu(choose).skips_null())
}

fn count_draws(call: &Call<'_>) -> Result<()> {
    let (p, key) = (call.attrs.get::<MultinomialParam>(), call.ctx.random);
    let given = match (&p.pvals, call.inputs.first()) {
        (Some(given), _) => given.iter().map(|p| f64::from(*p)).collect(),
        (None, Some(view)) => numbers(view)?,
        (None, None) => Vec::new(),
    };
    let weights = probabilities(given, "pvals")?;
    if weights.iter().sum::<f64>() > 1.0 + 1e-5 {
        let sum = weights.iter().sum::<f64>();
        return Err(Error::invalid("sum of pvals", sum, "at most 1"));
    }
    let mut counts = zeros(call.outputs[0].size())?;
    for (row, counts) in counts.chunks_exact_mut(weights.len()).enumerate() {
        let mut draws = Draws::new(key.seed, key.stream, row);
        let (mut left, mut rest) = (p.n, weights.iter().sum::<f64>());
        for (count, weight) in counts.iter_mut().zip(&weights) {
            let found = successes(&mut draws, left, weight / rest);
            *count = found as f64;
            left -= found;
            rest -= weight;
        }
    }
    store(call, 0, &counts);
    Ok(())
}

fn multinomial() -> OpDef {
    OpDef::new::<MultinomialParam>("_npi_multinomial")
        .inputs_are(&[("a", "The probabilities (k,).")])
        .input_names_by(|attrs| match attrs.get::<MultinomialParam>().pvals {
            None => vec!["a".to_owned()],
            Some(_) => Vec::new(),
        })
        .doc(&text(
            "Draws ``n`` times one of ``k`` results, and counts each.",
            "The output is int64 of shape ``size`` with ``k`` after it. Probabilities that are \
             negative, or whose sum exceeds 1, are an error.",
            "_npi_multinomial(n=4, pvals=(0, 1))\n[0 4]",
        ))
        .infer_shape(|attrs, inputs, outputs| {
            let p = attrs.get::<MultinomialParam>();
            let k = match (&p.pvals, inputs.first()) {
                (Some(given), _) => given.len() as i64,
                (None, Some(shape)) if shape.is_known() => shape.size() as i64,
                _ => return Ok(false),
            };
            let size = size_of(p.size.as_ref())?;
            let shape: Shape = size.dims().iter().copied().chain([k]).collect();
            assign_shape(&mut outputs[0], "output", &shape)?;
            Ok(true)
        })
        .infer_type(|_, inputs, outputs| {
            inputs.iter_mut().for_each(|slot| *slot = slot.or(Some(DType::F32)));
            assign_type(&mut outputs[0], "output", DType::I64)?;
            Ok(true)
        })
        .resources(&[ResourceRequest::Random])
        .gradient(Gradient::Zero)
        .kernel(Kernel::cpu(count_draws).skips_null())
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    vec![choice(), multinomial()]
}
