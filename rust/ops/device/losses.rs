//! The operators of losses: picked and chosen elements, smooth absolute values, regression, and the
//! operators that begin a gradient.

use super::formula::unary_kernels;
use super::shape::{filling, same_order};
use super::{FLOATS, KernelsOf, add, kernel, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Call, Compare, Grid, Kernel, Launcher, Match};
use crate::ops::elementwise::unary_formulas;
use crate::ops::nn::loss::{MakeLossParam, SmoothL1Param};
use crate::ops::nn::regression::RegressionParam;
use crate::ops::nn::softmax_output::Normalization;
use crate::ops::tensor::indexing::pick::{PickMode, PickParam, ROWS, pick_lines};
use crate::shape::Shape;

/// Dtypes of numbers of elements.
const NUMBERS: &[DType] = &[DType::F32, DType::F64, DType::I32, DType::I64];

/// Zeroes the gradient of an input that has none.
fn no_gradient(call: &Call<'_>, launcher: &mut dyn Launcher, i: usize) -> Result<()> {
    match call.outputs.len() > i && wanted(call, i) && add(call, i) == 0 {
        true => launcher.clear(call.outputs[i].ptr(), call.outputs[i].size_bytes()),
        false => Ok(()),
    }
}

/// The parameters of an operator that picks one element of each line.
type ParamOf = fn(&Call<'_>) -> PickParam;

/// Number of lines, extent and distance of their elements, and whether numbers count around.
fn lines(p: &PickParam, data: &Shape, numbers: usize) -> Result<[i64; 4]> {
    let (outer, extent, inner, _) = pick_lines(p, data)?;
    let count = if extent == 0 { 0 } else { (outer * inner).min(numbers) };
    Ok([count as i64, extent, inner as i64, i64::from(p.mode == PickMode::Wrap)])
}

fn pick(tensors: [&'static str; 2], param: ParamOf) -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[(tensors[0], FLOATS), (tensors[1], NUMBERS)];
    vec![kernel("loss", &["pick<$0, $1>"], types, move |call, launcher| {
        let [x, index] = [0, 1].map(|i| &call.inputs[i]);
        let [n, extent, inner, mode] = lines(&param(call), x.shape(), index.size())?;
        let (y, mode) = (call.outputs[0].ptr(), mode as i32);
        let mut args = args![n, extent, inner, x.ptr(), index.ptr(), y, mode, add(call, 0)];
        launcher.launch(0, Grid::over(n as usize), &mut args)
    })]
}

fn pick_back(param: ParamOf) -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS), ("input1", NUMBERS)];
    vec![Kernel::cuda("loss", &["pick_back<$0, $1>"], types, move |call, launcher| {
        no_gradient(call, launcher, 0)?;
        no_gradient(call, launcher, 1)?;
        if !wanted(call, 0) {
            return Ok(());
        }
        let ([g, index], x) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
        let [n, extent, inner, mode] = lines(&param(call), x.shape(), index.size())?;
        let mut args = args![n, extent, inner, g.ptr(), index.ptr(), x.ptr(), mode as i32];
        launcher.launch(0, Grid::over(n as usize), &mut args)
    })]
}

fn where_back() -> Vec<Kernel> {
    let conditions: &[DType] = &[DType::F32, DType::F64, DType::I32, DType::Bool];
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS), ("input1", conditions)];
    vec![Kernel::cuda("loss", &["choose_back<$0, $1>"], types, |call, launcher| {
        no_gradient(call, launcher, 0)?;
        let [g, condition] = [0, 1].map(|i| &call.inputs[i]);
        for (k, side) in [(1, 1), (2, 0)] {
            if !wanted(call, k) {
                continue;
            }
            let (n, from) = (g.size(), condition.ptr());
            let inner = (n / condition.size().max(1)) as i64;
            let to = call.outputs[k].ptr();
            let mut args = args![n as i64, inner, from, g.ptr(), to, side, add(call, k)];
            launcher.launch(0, Grid::over(n), &mut args)?;
        }
        Ok(())
    })]
}

/// The square of sigma, and from where on the curve is a line.
fn curve(call: &Call<'_>) -> (f64, f64) {
    let sigma = f64::from(call.attrs.get::<SmoothL1Param>().scalar);
    (sigma * sigma, 1.0 / (sigma * sigma))
}

fn smooth() -> Vec<Kernel> {
    vec![kernel("loss", &["smooth_l1<$0>"], &[("data", FLOATS)], |call, launcher| {
        let ((square, near), n) = (curve(call), call.outputs[0].size());
        let (x, y) = (call.inputs[0].ptr(), call.outputs[0].ptr());
        let mut args = args![n as i64, x, y, square, near, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn smooth_back() -> Vec<Kernel> {
    vec![kernel("loss", &["smooth_l1_back<$0>"], &[("data", FLOATS)], |call, launcher| {
        let ((square, near), n) = (curve(call), call.outputs[0].size());
        let ([g, x], y) = ([0, 1].map(|i| call.inputs[i].ptr()), call.outputs[0].ptr());
        let mut args = args![n as i64, g, x, y, square, near, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn regression_back(sign: i32) -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    vec![Kernel::cuda("loss", &["regression_back<$0>"], types, move |call, launcher| {
        no_gradient(call, launcher, 1)?;
        if !wanted(call, 0) {
            return Ok(());
        }
        let shape = call.inputs[0].shape();
        let each = shape.product(1.min(shape.ndim())..shape.ndim()).max(1);
        let scale = f64::from(call.attrs.get::<RegressionParam>().grad_scale) / each as f64;
        let ([y, label], n) = ([0, 1].map(|i| call.inputs[i].ptr()), call.outputs[0].size());
        let to = call.outputs[0].ptr();
        let mut args = args![n as i64, y, label, to, scale, sign, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn sigmoid() -> Vec<Kernel> {
    unary_kernels("sigmoid", "data", &unary_formulas("sigmoid")).into_iter().take(1).collect()
}

/// The gradient that a loss begins with, unless elements are counted for it.
fn make_loss_back() -> Vec<Kernel> {
    let value = |call: &Call<'_>| {
        let p = call.attrs.get::<MakeLossParam>();
        let extent = call.outputs[0].dims().first().copied().unwrap_or(1).max(1);
        match p.normalization {
            Normalization::Batch => f64::from(p.grad_scale) / extent as f64,
            _ => f64::from(p.grad_scale),
        }
    };
    let counts = Match::Attr("normalization".into(), Compare::Ne, "valid".into());
    filling("output", value).into_iter().map(|made| made.only(counts.clone())).collect()
}

/// Input 0 in another shape; input 1 has no gradient.
fn reshape_like_back() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", &DType::ALL)];
    let made = Kernel::cuda("shape", &["copy<$0>"], types, |call, launcher| {
        no_gradient(call, launcher, 1)?;
        let (g, x) = (&call.inputs[0], &call.outputs[0]);
        match wanted(call, 0) && g.ptr() != x.ptr() {
            true => launcher.copy(x.ptr(), g.ptr(), x.size_bytes()),
            false => Ok(()),
        }
    });
    vec![made.only_writes()]
}

pub const TABLE: &[KernelsOf] = &[
    ("pick", || pick(["data", "index"], |call| call.attrs.get::<PickParam>().clone())),
    ("_backward_pick", || pick_back(|call| call.attrs.get::<PickParam>().clone())),
    ("batch_take", || pick(["a", "indices"], |_| ROWS)),
    ("_backward_batch_take", || pick_back(|_| ROWS)),
    ("_backward_where", where_back),
    ("smooth_l1", smooth),
    ("_backward_smooth_l1", smooth_back),
    ("LinearRegressionOutput", || same_order("data")),
    ("MAERegressionOutput", || same_order("data")),
    ("LogisticRegressionOutput", sigmoid),
    ("_backward_LinearRegressionOutput", || regression_back(0)),
    ("_backward_LogisticRegressionOutput", || regression_back(0)),
    ("_backward_MAERegressionOutput", || regression_back(1)),
    ("MakeLoss", || same_order("data")),
    ("make_loss", || same_order("data")),
    ("_backward_MakeLoss", make_loss_back),
    ("_backward_make_loss", || filling("output", |_| 1.0)),
    ("reshape_like", || same_order("lhs")),
    ("_backward_reshape_like", reshape_like_back),
];
