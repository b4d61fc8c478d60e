//! Gradients of the densities `_random_pdf_*` as expressions of ordinary operators: the density
//! times the slopes of its logarithm.

use super::expr::*;
use super::functions::digamma;
use crate::error::Result;
use crate::operator::{GradBuilder, GradEntry, GradFn, GradNode, Gradients, Value};
use std::sync::Arc;

/// The slopes of the logarithm of a density, from the samples and the parameters: in the samples
/// (none where it is 0 or samples are counts) and in each parameter.
type Slopes = fn(Expr, &[Expr]) -> Vec<Option<Expr>>;

#[rustfmt::skip]
const SLOPES: &[(&str, Slopes)] = &[
    ("_random_pdf_uniform", |_, p| {
        let density = num(1.) / (p[1].clone() - p[0].clone());
        vec![None, Some(density.clone()), Some(-density)]
    }),
    ("_random_pdf_normal", |x, p| {
        let z = (x - p[0].clone()) / p[1].clone();
        let in_mu = z.clone() / p[1].clone();
        let in_sigma = (apply("square", z) - num(1.)) / p[1].clone();
        vec![Some(-in_mu.clone()), Some(in_mu), Some(in_sigma)]
    }),
    ("_random_pdf_gamma", |x, p| {
        let (a, b) = (&p[0], &p[1]);
        vec![
            Some((a.clone() - num(1.)) / x.clone() - b.clone()),
            Some(ln(b.clone()) + ln(x.clone()) - digamma(a.clone())),
            Some(a.clone() / b.clone() - x),
        ]
    }),
    ("_random_pdf_exponential", |x, p| {
        vec![Some(-p[0].clone()), Some(num(1.) / p[0].clone() - x)]
    }),
    ("_random_pdf_poisson", |x, p| vec![None, Some(x / p[0].clone() - num(1.))]),
    ("_random_pdf_negative_binomial", |x, p| {
        let [in_k, in_p] = failures(x, p[0].clone(), p[1].clone());
        vec![None, Some(in_k), Some(in_p)]
    }),
    ("_random_pdf_generalized_negative_binomial", |x, params| {
        let (mu, alpha) = (params[0].clone(), params[1].clone());
        let p = num(1.) / (mu.clone() * alpha.clone() + num(1.));
        let [in_k, in_p] = failures(x, num(1.) / alpha.clone(), p.clone());
        let by_p = in_p * apply("square", p);
        let in_alpha = -(in_k / apply("square", alpha.clone())) - by_p.clone() * mu;
        vec![None, Some(-(by_p * alpha)), Some(in_alpha)]
    }),
    ("_random_pdf_dirichlet", |x, p| {
        let a = &p[0];
        let whole = digamma(sum_along(a.clone(), -1));
        vec![
            Some((a.clone() - num(1.)) / x.clone()),
            Some(ln(x) + whole - digamma(a.clone())),
        ]
    }),
];

/// Failures before `k` successes of probability `p`: the slopes in these.
fn failures(x: Expr, k: Expr, p: Expr) -> [Expr; 2] {
    let in_k = digamma(x.clone() + k.clone()) - digamma(k.clone()) + ln(p.clone());
    [in_k, k / p.clone() - x / (num(1.) - p)]
}

/// The rule of the operator `name`, if it is a density.
pub fn rule(name: &str) -> Option<GradFn> {
    let &(name, slopes) = SLOPES.iter().find(|row| row.0 == name)?;
    // Each sample is a vector.
    let vectors = name == "_random_pdf_dirichlet";
    Some(Arc::new(move |b, node| gradients(b, node, slopes, vectors)))
}

fn gradients(
    b: &mut dyn GradBuilder,
    node: &GradNode<'_>,
    slopes: Slopes,
    vectors: bool,
) -> Result<Gradients> {
    let sample = node.inputs[0];
    let axes = spec(b, sample)?.0.ndim();
    let params = node.inputs[1..].iter().map(|&p| {
        let before = spec(b, p)?.0.ndim();
        opposite(b, p, before, axes, vectors).map(Expr::Entry)
    });
    let params = params.collect::<Result<Vec<_>>>()?;
    let mut factor = Expr::Entry(node.out_grad(b, 0)?);
    if !matches!(node.attrs.value("is_log"), Some(Value::Bool(true))) {
        factor = factor * Expr::Entry(b.op(&node.op.name, "", &[], node.inputs)?[0]);
    }
    if vectors && axes > 1 {
        factor = Expr::Op("expand_dims", vec![("axis", Value::Int(-1))], vec![factor]);
    }
    let factor = Expr::Entry(factor.eval(b)?);
    let mut grads: Gradients = vec![None; node.inputs.len()];
    for (i, slope) in slopes(Expr::Entry(sample), &params).into_iter().enumerate() {
        let Some(slope) = slope.filter(|_| node.needed[i]) else { continue };
        let grad = factor.clone() * slope;
        let grad = if i > 0 { sum_like(grad, params[i - 1].clone()) } else { grad };
        let like = Expr::Entry(node.inputs[i]);
        grads[i] = Some(Expr::Op("reshape_like", vec![], vec![grad, like]).eval(b)?);
    }
    Ok(grads)
}

/// A parameter with further axes of extent 1, so that it is broadcast over the samples that it
/// belongs to: at the end, or before the vectors.
fn opposite(
    b: &mut dyn GradBuilder,
    param: GradEntry,
    before: usize,
    after: usize,
    vectors: bool,
) -> Result<GradEntry> {
    if before >= after {
        return Ok(param);
    }
    let lead = before - usize::from(vectors && before > 0);
    let mut shape = vec![Value::Int(0); lead];
    shape.resize(after - (before - lead), Value::Int(1));
    shape.resize(after, Value::Int(-1));
    Ok(b.op("reshape", "", &[("shape", Value::List(shape))], &[param])?[0])
}
