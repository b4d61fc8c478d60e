//! Gradients of layers with hidden outputs or several inputs as expressions of ordinary operators.
//!
//! Some read a hidden output of the operator (a norm, a mask). A gradient that arrives there when
//! the expression is differentiated belongs to the sum, as that of any output.

use super::expr::*;
use super::functions::{self, number};
use crate::error::Result;
use crate::operator::{GradBuilder, GradFn, GradNode, Gradients, Value};
use crate::shape::Dims;
use std::sync::Arc;

/// The rule of the operator `name`, if it is one of these.
pub fn rule(name: &str) -> Option<GradFn> {
    Some(match name {
        "LeakyReLU" => {
            let others = functions::rule(name)?;
            Arc::new(move |b, node| match text(node, "act_type").as_str() {
                "prelu" => prelu(b, node),
                "rrelu" => {
                    let g = Expr::Entry(node.out_grad(b, 0)?);
                    // The slopes are random, so nothing flows through them.
                    Ok(vec![Some((g * Expr::Entry(node.outputs[1])).eval(b)?)])
                }
                _ => others(b, node),
            })
        }
        "L2Normalization" => Arc::new(l2_normalization),
        "LRN" => Arc::new(lrn),
        "_linalg_sumlogdiag" => Arc::new(sum_log_diag),
        "_linalg_det" => Arc::new(|b, node| determinant(b, node, 0)),
        "_linalg_slogdet" => Arc::new(|b, node| determinant(b, node, 1)),
        "moments" => Arc::new(moments),
        "softmax_cross_entropy" => Arc::new(cross_entropy),
        _ => return None,
    })
}

fn text(node: &GradNode<'_>, name: &str) -> String {
    node.attrs.value(name).map(Value::to_string).unwrap_or_default()
}

/// With slopes a: `dx = g * (x > 0 ? 1 : a)`, `da` the sum of `g * x` where x is not positive.
fn prelu(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let g = Expr::Entry(node.out_grad(b, 0)?);
    let (x, gamma) = (Expr::Entry(node.inputs[0]), node.inputs[1]);
    let slopes = match (b.spec(node.inputs[0]), b.spec(gamma)) {
        (Some((data, _)), Some((slopes, _))) if slopes.size() > 1 && data.ndim() > 1 => {
            let axes = (0..data.ndim()).map(|a| Value::Int(if a == 1 { -1 } else { 1 }));
            let shape = Value::List(axes.collect());
            Expr::Entry(b.op("reshape", "", &[("shape", shape)], &[gamma])?[0])
        }
        _ => Expr::Entry(gamma),
    };
    let below = Expr::Entry(at_most(x.clone(), num(0.0)).eval(b)?);
    let above = less(num(0.0), x.clone());
    let dx = (g.clone() * (above + slopes.clone() * below.clone())).eval(b)?;
    let dgamma = sum_like(g * x * below, slopes).eval(b)?;
    let dgamma = b.op("reshape_like", "", &[], &[dgamma, gamma])?[0];
    Ok(vec![Some(dx), Some(dgamma)])
}

/// Diagonal matrices of `g / diag(A)`.
fn sum_log_diag(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let mut g = Expr::Entry(node.out_grad(b, 0)?);
    // One number for each matrix; that of a single one has an axis anyway.
    if spec(b, node.inputs[0])?.0.ndim() > 2 {
        g = Expr::Op("expand_dims", vec![("axis", Value::Int(-1))], vec![g]);
    }
    let diagonal = apply("_linalg_extractdiag", Expr::Entry(node.inputs[0]));
    Ok(vec![Some(apply("_linalg_makediag", g / diagonal).eval(b)?)])
}

/// With the norm n over some axes: `dx = (g - y * sum(g * y)) / n`, and y where a gradient arrives
/// at n.
fn l2_normalization(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let (axes, exclude): (&[i64], bool) = match text(node, "mode").as_str() {
        "channel" => (&[1], false),
        "spatial" => (&[0, 1], true),
        _ => (&[0], true),
    };
    let axes = Value::List(axes.iter().map(|&a| Value::Int(a)).collect());
    let params = vec![("axis", axes), ("exclude", exclude.into()), ("keepdims", true.into())];
    let g = Expr::Entry(node.out_grad(b, 0)?);
    let y = Expr::Entry(node.outputs[0]);
    let along = Expr::Op("sum", params, vec![g.clone() * y.clone()]);
    let along = Expr::Entry(along.eval(b)?);
    let kept = |e| Expr::Op("reshape_like", vec![], vec![Expr::Entry(e), along.clone()]);
    let mut dx = (g - y.clone() * along.clone()) / kept(node.outputs[1]);
    if let Some(at_norm) = node.out_grads[1] {
        dx = dx + y * kept(at_norm);
    }
    Ok(vec![Some(dx.eval(b)?)])
}

/// With the base `m = knorm + a * W(x^2)`, W the sum over a window of channels and `a = alpha /
/// nsize`: `dx = g * m^-b - 2 a b x W(g x m^(-b-1))`, and `2 a x W(h)` where h arrives at m.
fn lrn(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let of = |name| number(node.attrs, name).unwrap_or(0.0);
    let (size, beta) = (of("nsize"), of("beta"));
    let scale = of("alpha") / size;
    let reach = size as i64 / 2;
    let g = Expr::Entry(node.out_grad(b, 0)?);
    let (x, m) = (Expr::Entry(node.inputs[0]), Expr::Entry(node.outputs[1]));
    let share = g.clone() * x.clone() * power(m.clone(), num(-beta - 1.0));
    let share = share.eval(b)?;
    let inner = windows(b, share, reach)?;
    let mut dx = g * power(m, num(-beta)) - x.clone() * inner * num(2.0 * scale * beta);
    if let Some(at_base) = node.out_grads[1] {
        dx = dx + x * windows(b, at_base, reach)? * num(2.0 * scale);
    }
    Ok(vec![Some(dx.eval(b)?)])
}

/// `dA = g * A^-T`, with `g * det(A)` in place of g where output `of` is not a logarithm.
fn determinant(b: &mut dyn GradBuilder, node: &GradNode<'_>, of: usize) -> Result<Gradients> {
    let g = Expr::Entry(node.out_grad(b, of)?);
    let factor = if of == 0 { g * Expr::Entry(node.outputs[0]) } else { g };
    let factor = factor.eval(b)?;
    let mut dims = Dims::from_slice(spec(b, node.inputs[0])?.0.dims());
    let batch = dims.len().saturating_sub(2);
    dims[batch..].fill(1);
    let shape = Value::List(dims.iter().map(|&n| Value::Int(n)).collect());
    let factor = b.op("reshape", "", &[("shape", shape)], &[factor])?[0];
    let inverse = b.op("_linalg_inverse", "", &[], &[node.inputs[0]])?[0];
    let last = [("dim1", Value::Int(-2)), ("dim2", Value::Int(-1))];
    let turned = b.op("SwapAxis", "", &last, &[inverse])?[0];
    Ok(vec![Some((Expr::Entry(turned) * Expr::Entry(factor)).eval(b)?)])
}

/// With n elements a group: `dx = (g + 2 h (x - mean(x))) / n` for g at the mean, h at the
/// variance.
fn moments(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let mut params = vec![("keepdims", Value::from(true))];
    params.extend(node.attrs.value("axes").map(|axes| ("axis", axes.clone())));
    let x = Expr::Entry(node.inputs[0]);
    let mean = Expr::Entry(Expr::Op("mean", params, vec![x.clone()]).eval(b)?);
    let mut kept = |i: usize| -> Result<Expr> {
        let g = Expr::Entry(node.out_grad(b, i)?);
        let kept = Expr::Op("reshape_like", vec![], vec![g, mean.clone()]).eval(b)?;
        Ok(Expr::Entry(kept))
    };
    let [g, h] = [kept(0)?, kept(1)?];
    let [all, groups] = [spec(b, node.inputs[0])?.0, spec(b, node.outputs[0])?.0];
    let n = all.size() as f64 / groups.size().max(1) as f64;
    let dx = (h * num(2.0) * (x - mean) + g) / num(n);
    Ok(vec![Some(dx.eval(b)?)])
}

/// `dx = g * (softmax(x) - one_hot(label))`, none for the labels.
fn cross_entropy(b: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let g = Expr::Entry(node.out_grad(b, 0)?);
    let (shape, dtype) = spec(b, node.inputs[0])?;
    let classes = shape.dims().last().copied().unwrap_or(0);
    let params = [("depth", Value::Int(classes)), ("dtype", Value::Str(dtype.name().into()))];
    let hot = Expr::Entry(b.op("one_hot", "", &params, &[node.inputs[1]])?[0]);
    let share = apply("softmax", Expr::Entry(node.inputs[0])) - hot;
    Ok(vec![Some((share * g).eval(b)?), None])
}

/// Sums over the channels up to `reach` to either side.
fn windows(b: &mut dyn GradBuilder, z: crate::operator::GradEntry, reach: i64) -> Result<Expr> {
    let ints = |items: &[i64]| Value::List(items.iter().map(|&i| Value::Int(i)).collect());
    let flat = b.op("reshape", "", &[("shape", ints(&[0, 0, -1]))], &[z])?[0];
    let image = b.op("expand_dims", "", &[("axis", Value::Int(1))], &[flat])?[0];
    let params = [
        ("kernel", ints(&[2 * reach + 1, 1])),
        ("stride", ints(&[1, 1])),
        ("pad", ints(&[reach, 0])),
        ("pool_type", Value::Str("sum".into())),
    ];
    let sums = b.op("Pooling", "", &params, &[image])?[0];
    Ok(Expr::Entry(b.op("reshape_like", "", &[], &[sums, z])?[0]))
}
