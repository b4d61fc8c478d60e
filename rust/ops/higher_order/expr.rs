//! Formulas over entries of a gradient builder: written with the signs of arithmetic, evaluated
//! into operators.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::{GradBuilder, GradEntry, Value};
use crate::ops::elementwise::binary::BinaryFn;
use crate::shape::Shape;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A formula. Operators on two arrays broadcast; numbers fold into the operators on an array and a
/// number.
#[derive(Clone)]
pub enum Expr {
    Num(f64),
    Entry(GradEntry),
    /// An operator with parameters.
    Op(&'static str, Vec<(&'static str, Value)>, Vec<Expr>),
    /// The backward operator of this name, with the node's parameters: its first output.
    Spread(&'static str, Box<Expr>),
}

/// Shape and dtype of a value.
pub fn spec(b: &dyn GradBuilder, entry: GradEntry) -> Result<(Shape, DType)> {
    b.spec(entry).ok_or_else(|| Error::internal("a second derivative is taken outside of the tape"))
}

/// A function of two formulas; `f` computes it on numbers.
fn both(function: BinaryFn, f: fn(f64, f64) -> f64, a: Expr, b: Expr) -> Expr {
    let names = function.operators();
    match (a, b) {
        (Expr::Num(a), Expr::Num(b)) => Expr::Num(f(a, b)),
        (a, Expr::Num(b)) => Expr::Op(names.right, vec![("scalar", Value::Float(b))], vec![a]),
        (Expr::Num(a), b) => Expr::Op(names.left, vec![("scalar", Value::Float(a))], vec![b]),
        (a, b) => Expr::Op(names.broadcast, vec![], vec![a, b]),
    }
}

impl Add for Expr {
    type Output = Expr;
    fn add(self, other: Expr) -> Expr {
        both(BinaryFn::Add, |a, b| a + b, self, other)
    }
}

impl Sub for Expr {
    type Output = Expr;
    fn sub(self, other: Expr) -> Expr {
        both(BinaryFn::Sub, |a, b| a - b, self, other)
    }
}

impl Mul for Expr {
    type Output = Expr;
    fn mul(self, other: Expr) -> Expr {
        both(BinaryFn::Mul, |a, b| a * b, self, other)
    }
}

impl Div for Expr {
    type Output = Expr;
    fn div(self, other: Expr) -> Expr {
        both(BinaryFn::Div, |a, b| a / b, self, other)
    }
}

impl Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        num(-1.0) * self
    }
}

pub fn num(x: f64) -> Expr {
    Expr::Num(x)
}

/// The operator `name` of one array.
pub fn apply(name: &'static str, x: Expr) -> Expr {
    Expr::Op(name, vec![], vec![x])
}

pub fn power(a: Expr, b: Expr) -> Expr {
    both(BinaryFn::Pow, f64::powf, a, b)
}

pub fn hypot(a: Expr, b: Expr) -> Expr {
    both(BinaryFn::Hypot, f64::hypot, a, b)
}

/// 1 where a equals b, else 0.
pub fn equal(a: Expr, b: Expr) -> Expr {
    both(BinaryFn::Eq, |a, b| f64::from(a == b), a, b)
}

/// 1 where a < b, else 0.
pub fn less(a: Expr, b: Expr) -> Expr {
    both(BinaryFn::Lt, |a, b| f64::from(a < b), a, b)
}

/// 1 where a <= b, else 0.
pub fn at_most(a: Expr, b: Expr) -> Expr {
    both(BinaryFn::Le, |a, b| f64::from(a <= b), a, b)
}

/// Natural logarithm, of a number at once.
pub fn ln(x: Expr) -> Expr {
    match x {
        Expr::Num(x) => Expr::Num(x.ln()),
        x => apply("log", x),
    }
}

/// The sum along an axis, which stays with extent 1.
pub fn sum_along(x: Expr, axis: i64) -> Expr {
    let params = vec![("axis", Value::List(vec![Value::Int(axis)])), ("keepdims", true.into())];
    Expr::Op("sum", params, vec![x])
}

/// The sum of `x` over the axes along which the shape of `like` was broadcast.
pub fn sum_like(x: Expr, like: Expr) -> Expr {
    Expr::Op("_sum_like", vec![], vec![x, like])
}

impl Expr {
    /// Runs (or composes) the operators of the formula.
    pub fn eval(self, b: &mut dyn GradBuilder) -> Result<GradEntry> {
        Ok(match self {
            Expr::Entry(e) => e,
            // A formula without an array has no shape: rules always multiply by the output
            // gradient.
            Expr::Num(x) => {
                return Err(crate::error::Error::internal(format!("a gradient is the number {x}")));
            }
            Expr::Op(op, params, args) => {
                let args = args.into_iter().map(|a| a.eval(b)).collect::<Result<Vec<_>>>()?;
                b.op(op, "", &params, &args)?[0]
            }
            Expr::Spread(op, g) => {
                let g = g.eval(b)?;
                b.backward(op, &[g])?[0]
            }
        })
    }
}
