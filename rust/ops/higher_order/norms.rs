//! Gradients of normalisations as expressions of ordinary operators.
//!
//! With `h = (x - mean(x)) / sqrt(var(x) + eps)` over some axes and `y = gamma * h + beta`, the
//! gradient is `dx = (u - mean(u) - h * mean(u * h)) / sqrt(var(x) + eps)` where `u = gamma * dy`;
//! `gamma` gets the sum of `dy * h` and `beta` that of `dy`. The channel axis is moved to the end
//! first, where gamma and beta broadcast.

use super::expr::*;
use super::functions::number;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{GradBuilder, GradEntry, GradFn, GradNode, Gradients, Value};
use std::sync::Arc;

/// The mean over some axes, which stay with extent 1.
#[derive(Clone)]
struct Mean(Vec<(&'static str, Value)>);

impl Mean {
    fn over(axis: i64) -> Self {
        Mean(vec![("axis", Value::Int(axis)), ("keepdims", true.into())])
    }

    fn over_all_but(axes: &[i64]) -> Self {
        let axes = Value::List(axes.iter().map(|&a| Value::Int(a)).collect());
        Mean(vec![("axis", axes), ("exclude", true.into()), ("keepdims", true.into())])
    }

    fn of(&self, x: Expr) -> Expr {
        Expr::Op("mean", self.0.clone(), vec![x])
    }
}

/// Where the mean and the factor of a normalisation come from.
enum Statistics {
    /// From the data, so that gradients flow through them.
    Data(Mean),
    /// They were given: a mean and an inverse standard deviation.
    Fixed(Expr, Expr),
}

struct Normalisation {
    axis: i64,
    statistics: Statistics,
    eps: f64,
    /// True if gamma is used; false if it counts as 1.
    scales: bool,
}

/// The rule of the operator `name`, if it is one of these.
pub fn rule(name: &str) -> Option<GradFn> {
    Some(match name {
        "LayerNorm" => Arc::new(|b, node| {
            let statistics = Statistics::Data(Mean::over(-1));
            let axis = integer(node, "axis").unwrap_or(-1);
            Normalisation { axis, statistics, eps: eps(node), scales: true }.gradients(b, node)
        }),
        "InstanceNorm" => Arc::new(|b, node| {
            let statistics = Statistics::Data(Mean::over_all_but(&[0, -1]));
            Normalisation { axis: 1, statistics, eps: eps(node), scales: true }.gradients(b, node)
        }),
        "GroupNorm" => Arc::new(group_norm),
        "BatchNorm" | "BatchNorm_v1" => Arc::new(batch_norm),
        _ => return None,
    })
}

/// That of `InstanceNorm`, with a group as a channel.
fn group_norm(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let groups = integer(node, "num_groups").unwrap_or(1);
    let fold = |b: &mut dyn GradBuilder, e| -> Result<GradEntry> {
        let shape = Value::List([0, groups, -1].map(Value::Int).into());
        Ok(b.op("reshape", "", &[("shape", shape)], &[e])?[0])
    };
    let g = node.out_grad(b, 0)?;
    let folded = [fold(b, node.inputs[0])?, fold(b, g)?];
    let statistics = Statistics::Data(Mean::over_all_but(&[0, -1]));
    let norm = Normalisation { axis: 1, statistics, eps: eps(node), scales: true };
    let mut grads = norm.gradients_of(b, node, folded)?;
    if let Some(dx) = &mut grads[0] {
        *dx = b.op("reshape_like", "", &[], &[*dx, node.inputs[0]])?[0];
    }
    Ok(grads)
}

fn batch_norm(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    // The backward operator updates the moving averages, and must so here too.
    node.op.gradient.apply(b, node)?;
    let is_set = |name| matches!(node.attrs.value(name), Some(Value::Bool(true)));
    let statistics = match b.is_train() && !is_set("use_global_stats") {
        true => Statistics::Data(Mean::over_all_but(&[-1])),
        false => Statistics::Fixed(Expr::Entry(node.outputs[1]), Expr::Entry(node.outputs[2])),
    };
    let (axis, scales) = (integer(node, "axis").unwrap_or(1), !is_set("fix_gamma"));
    let normalisation = Normalisation { axis, statistics, eps: eps(node), scales };
    let mut grads = normalisation.gradients(b, node)?;
    grads.resize(node.inputs.len(), None);
    Ok(grads)
}

fn integer(node: &GradNode<'_>, name: &str) -> Option<i64> {
    match node.attrs.value(name)? {
        Value::Int(i) => Some(*i),
        _ => None,
    }
}

fn eps(node: &GradNode<'_>) -> f64 {
    number(node.attrs, "eps").unwrap_or(0.0)
}

impl Normalisation {
    fn gradients(&self, b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
        let g = node.out_grad(b, 0)?;
        self.gradients_of(b, node, [node.inputs[0], g])
    }

    /// As [`Normalisation::gradients`], with the data and the output gradient in another shape.
    fn gradients_of(
        &self,
        b: &mut dyn GradBuilder,
        node: &GradNode<'_>,
        [x, g]: [GradEntry; 2],
    ) -> Result<Gradients> {
        // As the kernels, half precision is calculated in single precision: a small variance would
        // overflow.
        let is_half = b.spec(node.inputs[0]).is_some_and(|s| s.1 == DType::F16);
        let [x, g, gamma] = match is_half {
            true => {
                let mut single = |e| cast(b, e, DType::F32);
                [single(x)?, single(g)?, single(node.inputs[1])?]
            }
            false => [x, g, node.inputs[1]],
        };
        let x = swap(b, self.axis, x)?;
        let g = swap(b, self.axis, g)?;
        let gamma = Expr::Entry(gamma);
        let (h, inverse) = match &self.statistics {
            Statistics::Data(mean) => {
                let centred = x.clone() - mean.of(x);
                let centred = Expr::Entry(centred.eval(b)?);
                let variance = mean.of(apply("square", centred.clone()));
                let inverse = Expr::Entry(apply("rsqrt", variance + num(self.eps)).eval(b)?);
                (centred * inverse.clone(), inverse)
            }
            Statistics::Fixed(mean, inverse) => {
                ((x - mean.clone()) * inverse.clone(), inverse.clone())
            }
        };
        let h = Expr::Entry(h.eval(b)?);
        let u = if self.scales { g.clone() * gamma.clone() } else { g.clone() };
        let u = Expr::Entry(u.eval(b)?);
        let dx = match &self.statistics {
            Statistics::Data(mean) => {
                u.clone() - mean.of(u.clone()) - h.clone() * mean.of(u * h.clone())
            }
            Statistics::Fixed(..) => u,
        };
        let dx = (dx * inverse).eval(b)?;
        let dx = swap(b, self.axis, dx)?.eval(b)?;
        let dgamma = match self.scales {
            true => Some(sum_like(g.clone() * h, gamma.clone()).eval(b)?),
            false => None,
        };
        let mut grads = vec![Some(dx), dgamma, Some(sum_like(g, gamma).eval(b)?)];
        if is_half {
            for (grad, input) in grads.iter_mut().zip(node.inputs) {
                if let (Some(grad), Some((_, dtype))) = (grad, b.spec(*input)) {
                    *grad = cast(b, *grad, dtype)?;
                }
            }
        }
        Ok(grads)
    }
}

fn cast(b: &mut dyn GradBuilder, e: GradEntry, dtype: DType) -> Result<GradEntry> {
    Ok(b.op("Cast", "", &[("dtype", Value::Str(dtype.name().into()))], &[e])?[0])
}

/// `x` with `axis` and the last axis exchanged.
fn swap(b: &mut dyn GradBuilder, axis: i64, x: GradEntry) -> Result<Expr> {
    if axis == -1 {
        return Ok(Expr::Entry(x));
    }
    let params = [("dim1", Value::Int(axis)), ("dim2", Value::Int(-1))];
    Ok(Expr::Entry(b.op("SwapAxis", "", &params, &[x])?[0]))
}
