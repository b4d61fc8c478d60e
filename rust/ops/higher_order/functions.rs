//! Gradients as expressions of ordinary operators. A rule may use the values that the operator's
//! backward operator is declared to read (the tape keeps no others), and the shape of any.

use super::expr::*;
use crate::error::Result;
use crate::operator::{Attrs, FieldType, GradBuilder, GradFn, GradNode, Gradients, Value};
use crate::ops::nn::leaky_relu::{SELU_ALPHA, SELU_SCALE};
use std::sync::Arc;

/// From the output gradient and the input or the output to the input gradient.
type Unary = fn(Expr, Expr) -> Expr;

/// Functions of one array: true if the derivative uses the output, and the gradient.
#[rustfmt::skip]
const UNARY: &[(&str, bool, Unary)] = &[
    ("relu", true, |g, y| g * less(num(0.), y)),
    ("sigmoid", true, |g, y| g * y.clone() * (num(1.) - y)),
    ("softsign", false, |g, x| g / square(num(1.) + apply("abs", x))),
    ("tanh", true, |g, y| g * (num(1.) - square(y))),
    ("exp", true, |g, y| g * y),
    ("expm1", true, |g, y| g * (y + num(1.))),
    ("log", false, |g, x| g / x),
    ("log2", false, |g, x| g / (x * num(std::f64::consts::LN_2))),
    ("log10", false, |g, x| g / (x * num(std::f64::consts::LN_10))),
    ("log1p", false, |g, x| g / (num(1.) + x)),
    ("sqrt", true, |g, y| g / (y * num(2.))),
    ("rsqrt", false, |g, x| g * num(-0.5) / (x.clone() * apply("sqrt", x))),
    ("cbrt", true, |g, y| g / (square(y) * num(3.))),
    ("rcbrt", false, |g, x| g / (x.clone() * apply("cbrt", x) * num(-3.))),
    ("square", false, |g, x| g * x * num(2.)),
    ("reciprocal", false, |g, x| -(g / square(x))),
    ("negative", false, |g, _| -g),
    ("abs", false, |g, x| g * apply("sign", x)),
    ("sin", false, |g, x| g * apply("cos", x)),
    ("cos", false, |g, x| -(g * apply("sin", x))),
    ("tan", true, |g, y| g * (num(1.) + square(y))),
    ("arcsin", false, |g, x| g * apply("rsqrt", num(1.) - square(x))),
    ("arccos", false, |g, x| -(g * apply("rsqrt", num(1.) - square(x)))),
    ("arctan", false, |g, x| g / (num(1.) + square(x))),
    ("sinh", false, |g, x| g * apply("cosh", x)),
    ("cosh", false, |g, x| g * apply("sinh", x)),
    ("arcsinh", false, |g, x| g * apply("rsqrt", square(x) + num(1.))),
    ("arccosh", false, |g, x| g * apply("rsqrt", square(x) - num(1.))),
    ("arctanh", false, |g, x| g / (num(1.) - square(x))),
    ("gamma", false, |g, x| g * apply("gamma", x.clone()) * digamma(x)),
    ("gammaln", false, |g, x| g * digamma(x)),
    ("degrees", false, |g, _| g * num(180. / std::f64::consts::PI)),
    ("radians", false, |g, _| g * num(std::f64::consts::PI / 180.)),
    ("erf", false, |g, x| g * num(std::f64::consts::FRAC_2_SQRT_PI) * apply("exp", -square(x))),
    ("erfinv", true, |g, y| g / num(std::f64::consts::FRAC_2_SQRT_PI) * apply("exp", square(y))),
];

/// The derivative of `log(gamma(x))`.
pub fn digamma(x: Expr) -> Expr {
    Expr::Op("_polygamma", vec![("n", Value::Int(0))], vec![x])
}

fn square(x: Expr) -> Expr {
    apply("square", x)
}

/// From the output gradient and both operands to their gradients, before the sum over repetitions.
type Binary = fn(Expr, Expr, Expr) -> [Expr; 2];

/// Functions of two: operators on equal shapes, with broadcasting, with a number on the right, on
/// the left.
#[rustfmt::skip]
const BINARY: &[([&str; 4], Binary)] = &[
    (["elemwise_add", "broadcast_add", "", ""], |g, _, _| [g.clone(), g]),
    (["elemwise_sub", "broadcast_sub", "", ""], |g, _, _| [g.clone(), -g]),
    (["elemwise_mul", "broadcast_mul", "", ""], |g, a, b| [g.clone() * b, g * a]),
    (["elemwise_div", "broadcast_div", "", "_rdiv_scalar"],
        |g, a, b| [g.clone() / b.clone(), -(g * a) / square_of(b)]),
    (["_mod", "broadcast_mod", "", "_rmod_scalar"],
        |g, a, b| [g.clone(), -(g * apply("floor", a / b))]),
    (["_power", "broadcast_power", "_power_scalar", "_rpower_scalar"], |g, a, b| [
        g.clone() * (b.clone() * power(a.clone(), b.clone() - num(1.))),
        g * (power(a.clone(), b) * ln(a)),
    ]),
    (["_maximum", "broadcast_maximum", "_maximum_scalar", ""],
        |g, a, b| [g.clone() * at_most(b.clone(), a.clone()), g * less(a, b)]),
    (["_minimum", "broadcast_minimum", "_minimum_scalar", ""],
        |g, a, b| [g.clone() * at_most(a.clone(), b.clone()), g * less(b, a)]),
    (["_hypot", "broadcast_hypot", "_hypot_scalar", ""], |g, a, b| [
        g.clone() * a.clone() / hypot(a.clone(), b.clone()),
        g * b.clone() / hypot(a, b),
    ]),
];

/// The square of an operand that may be a number.
fn square_of(x: Expr) -> Expr {
    x.clone() * x
}

/// Operators with parameters: the gradient of the first input from the node's.
type Param = fn(&Attrs, &Given) -> Option<Expr>;

/// The values that a rule may refer to.
struct Given {
    g: Expr,
    /// The first input and the first output.
    x: Expr,
    y: Expr,
}

const PARAM: &[(&str, Param)] = &[
    ("softmax", |attrs, n| {
        let inner = sum_along(n.g.clone() * n.y.clone(), axis(attrs)?);
        Some(n.y.clone() * (n.g.clone() - inner) * num(1. / temperature(attrs)))
    }),
    ("softmin", |attrs, n| {
        let inner = sum_along(n.g.clone() * n.y.clone(), axis(attrs)?);
        Some(n.y.clone() * (n.g.clone() - inner) * num(-1. / temperature(attrs)))
    }),
    ("log_softmax", |attrs, n| {
        let total = sum_along(n.g.clone(), axis(attrs)?);
        let inner = n.g.clone() - apply("exp", n.y.clone()) * total;
        Some(inner * num(1. / temperature(attrs)))
    }),
    ("Activation", |attrs, n| {
        let kind = attrs.value("act_type")?.to_string();
        if kind == "softrelu" {
            // From the output: 1 - exp(-y) is the sigmoid of the input.
            return Some(n.g.clone() * (num(1.) - apply("exp", -n.y.clone())));
        }
        let (_, from_output, f) = UNARY.iter().find(|row| row.0 == kind)?;
        Some(f(n.g.clone(), if *from_output { n.y.clone() } else { n.x.clone() }))
    }),
    ("LeakyReLU", |attrs, n| {
        let slope = number(attrs, "slope")?;
        let kind = attrs.value("act_type")?.to_string();
        if kind == "gelu" {
            let x = || n.x.clone();
            let share =
                (num(1.) + apply("erf", x() * num(std::f64::consts::FRAC_1_SQRT_2))) * num(0.5);
            let density = apply("exp", square(x()) * num(-0.5)) * num(0.5 * FRAC_1_SQRT_HALF_PI);
            return Some(n.g.clone() * (share + x() * density));
        }
        if slope < 0.0 && kind != "selu" {
            return None; // the sign of the output does not determine that of the input
        }
        let y = || n.y.clone();
        // Without the upper part, which may be infinite.
        let low = || Expr::Op("_minimum_scalar", vec![("scalar", Value::Float(0.))], vec![y()]);
        let positive = less(num(0.), y());
        let (above, below) = match kind.as_str() {
            "leaky" => (1., num(slope) * at_most(y(), num(0.))),
            "elu" => (1., (low() + num(slope)) * at_most(y(), num(0.))),
            "selu" => (SELU_SCALE, (low() + num(SELU_SCALE * SELU_ALPHA)) * at_most(y(), num(0.))),
            _ => return None,
        };
        Some(n.g.clone() * (positive * num(above) + below))
    }),
    ("clip", |attrs, n| {
        let (low, high) = (number(attrs, "a_min")?, number(attrs, "a_max")?);
        let inside = at_most(num(low), n.x.clone()) * at_most(n.x.clone(), num(high));
        Some(n.g.clone() * inside)
    }),
    ("hard_sigmoid", |attrs, n| {
        let (a, b) = (number(attrs, "alpha")?, number(attrs, "beta")?);
        let line = n.x.clone() * num(a) + num(b);
        Some(n.g.clone() * num(a) * less(num(0.), line.clone()) * less(line, num(1.)))
    }),
    ("_contrib_quadratic", |attrs, n| {
        let (a, b) = (number(attrs, "a")?, number(attrs, "b")?);
        Some(n.g.clone() * (n.x.clone() * num(2. * a) + num(b)))
    }),
    ("smooth_l1", |attrs, n| {
        let s = number(attrs, "scalar")?.powi(2);
        let inside = less(apply("abs", n.x.clone()), num(1. / s));
        let slope =
            inside.clone() * n.x.clone() * num(s) + (num(1.) - inside) * apply("sign", n.x.clone());
        Some(n.g.clone() * slope)
    }),
    ("prod", |_, n| Some(spread(&n.g) * spread(&n.y) / n.x.clone())),
    ("max", |_, n| Some(spread(&n.g) * equal(n.x.clone(), spread(&n.y)))),
    ("min", |_, n| Some(spread(&n.g) * equal(n.x.clone(), spread(&n.y)))),
    ("nansum", |_, n| Some(spread(&n.g) * equal(n.x.clone(), n.x.clone()))),
    ("norm", |attrs, n| {
        let params = vec![("axis", attrs.value("axis")?.clone()), ("keepdims", true.into())];
        let squares = Expr::Op("sum", params, vec![square(n.x.clone())]);
        let g = Expr::Op("reshape_like", vec![], vec![n.g.clone(), squares.clone()]);
        Some(match attrs.value("ord")? {
            Value::Int(1) => g * apply("sign", n.x.clone()),
            _ => g * n.x.clone() / apply("sqrt", squares),
        })
    }),
];

/// The square root of 2 / pi.
const FRAC_1_SQRT_HALF_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;

/// An array of the shape of a reduction's output, repeated along the reduced axes.
fn spread(x: &Expr) -> Expr {
    Expr::Spread("_backward_sum", Box::new(x.clone()))
}

/// A parameter as the operator's kernel reads it: in single precision, if it is declared so.
pub fn number(attrs: &Attrs, name: &str) -> Option<f64> {
    let field = attrs.schema().fields.iter().find(|f| f.name == name)?;
    let exact = match attrs.value(name)? {
        Value::Float(x) => *x,
        Value::Int(i) => *i as f64,
        _ => return None,
    };
    Some(if matches!(field.ty, FieldType::Float) { f64::from(exact as f32) } else { exact })
}

fn axis(attrs: &Attrs) -> Option<i64> {
    match attrs.value("axis")? {
        Value::Int(i) => Some(*i),
        _ => None,
    }
}

fn temperature(attrs: &Attrs) -> f64 {
    number(attrs, "temperature").unwrap_or(1.0)
}

/// The rule of the operator `name`, if a table has it.
pub fn rule(name: &str) -> Option<GradFn> {
    if let Some(&(_, from_output, f)) = UNARY.iter().find(|row| row.0 == name) {
        return Some(Arc::new(move |b, node| {
            let value = if from_output { node.outputs[0] } else { node.inputs[0] };
            let g = Expr::Entry(node.out_grad(b, 0)?);
            Ok(vec![Some(f(g, Expr::Entry(value)).eval(b)?)])
        }));
    }
    if let Some(&(_, f)) = PARAM.iter().find(|row| row.0 == name) {
        return Some(Arc::new(move |b, node| param(b, node, f)));
    }
    let (names, f) = BINARY.iter().find(|row| row.0.contains(&name))?;
    Some(match names.iter().position(|n| *n == name)? {
        0 => Arc::new(move |b, node| operands(b, node, *f, false)),
        1 => Arc::new(move |b, node| operands(b, node, *f, true)),
        at => Arc::new(move |b, node| with_number(b, node, *f, at == 3)),
    })
}

fn param(b: &mut dyn GradBuilder, node: &GradNode<'_>, f: Param) -> Result<Gradients> {
    let g = Expr::Entry(node.out_grad(b, 0)?);
    let given = Given { g, x: Expr::Entry(node.inputs[0]), y: Expr::Entry(node.outputs[0]) };
    let Some(grad) = f(node.attrs, &given) else { return node.op.gradient.apply(b, node) };
    let mut grads: Gradients = vec![None; node.inputs.len()];
    grads[0] = Some(grad.eval(b)?);
    Ok(grads)
}

fn operands(
    b: &mut dyn GradBuilder,
    node: &GradNode<'_>,
    f: Binary,
    broadcast: bool,
) -> Result<Gradients> {
    let g = Expr::Entry(node.out_grad(b, 0)?);
    let [x, y] = [node.inputs[0], node.inputs[1]].map(Expr::Entry);
    let mut grads: Gradients = Vec::new();
    for (i, grad) in f(g, x.clone(), y.clone()).into_iter().enumerate() {
        let like = if i == 0 { x.clone() } else { y.clone() };
        let grad = if broadcast { sum_like(grad, like) } else { grad };
        grads.push(if node.needed[i] { Some(grad.eval(b)?) } else { None });
    }
    Ok(grads)
}

fn with_number(
    b: &mut dyn GradBuilder,
    node: &GradNode<'_>,
    f: Binary,
    left: bool,
) -> Result<Gradients> {
    let g = Expr::Entry(node.out_grad(b, 0)?);
    let (x, s) = (Expr::Entry(node.inputs[0]), num(number(node.attrs, "scalar").unwrap_or(1.0)));
    let [of_left, of_right] = if left { f(g, s, x) } else { f(g, x, s) };
    Ok(vec![Some(if left { of_right } else { of_left }.eval(b)?)])
}
