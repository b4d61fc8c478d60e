//! Kernels of two operands, or of one and a number, from the rows of their table.

use super::formula::row;
use super::reduce::{Fold, fold_functions};
use super::{FLOATS, add, kernel, too_many_axes, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::broadcast::broadcast_strides;
use crate::operator::{Axes, Call, Grid, Kernel, Launcher};
use crate::ops::elementwise::binary::Row;
use crate::ops::elementwise::binary::scalar::{ScalarParam, scalar_bytes};
use crate::tensor::View;

/// The formulas of a row as CUDA source.
fn definitions(of: &Row) -> String {
    let [value, left, right] = of.formulas;
    row(of.name(), &[("value", value), ("left", left), ("right", right)])
}

fn function(name: &str, of: &Row) -> String {
    format!("{name}<{}_row, $0>", of.name())
}

/// Two arrays of equal shape.
pub fn same(of: &'static Row) -> Kernel {
    let types: &[(&str, &[DType])] = &[("lhs", &DType::ALL)];
    let made = kernel("elementwise", &[&function("binary", of)], types, |call, launcher| {
        issue_same(call, launcher, 0)
    });
    made.with_definitions(definitions(of))
}

fn issue_same(call: &Call<'_>, launcher: &mut dyn Launcher, function: usize) -> Result<()> {
    let [a, b, y] = [&call.inputs[0], &call.inputs[1], &call.outputs[0]];
    let n = y.size();
    let mut args = args![n as i64, a.ptr(), b.ptr(), y.ptr(), add(call, 0)];
    launcher.launch(function, Grid::over(n), &mut args)
}

/// The shape of the result with the steps of operands that are repeated to it.
fn repeated(operands: [&View; 2], to: &View) -> Result<Axes> {
    let [a, b] = operands.map(|v| broadcast_strides(v.shape(), to.shape()));
    Axes::new(to.dims(), &[&a, &b]).ok_or_else(too_many_axes)
}

/// Two arrays that are broadcast.
pub fn broadcast(of: &'static Row) -> Kernel {
    let functions = [function("binary", of), function("binary_broadcast", of)];
    let functions = [&*functions[0], &functions[1]];
    let types: &[(&str, &[DType])] = &[("lhs", &DType::ALL)];
    let made = kernel("elementwise", &functions, types, |call, launcher| {
        let [a, b, y] = [&call.inputs[0], &call.inputs[1], &call.outputs[0]];
        if a.shape() == b.shape() {
            return issue_same(call, launcher, 0);
        }
        let (n, axes) = (y.size(), repeated([a, b], y)?);
        let mut args = args![n as i64, a.ptr(), b.ptr(), y.ptr(), axes, add(call, 0)];
        launcher.launch(1, Grid::over(n), &mut args)
    });
    made.with_definitions(definitions(of))
}

/// An array and a number, which is on the left or on the right.
pub fn with_number(of: &'static Row, left: bool) -> Kernel {
    let name = function(if left { "number_left" } else { "number_right" }, of);
    let types: &[(&str, &[DType])] = &[("data", &DType::ALL)];
    let made = kernel("elementwise", &[&name], types, |call, launcher| {
        let (a, y) = (&call.inputs[0], &call.outputs[0]);
        let number = scalar_bytes(of, y.dtype(), call.attrs.get::<ScalarParam>().scalar);
        let n = y.size();
        let mut args = args![n as i64, a.ptr(), number, y.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    });
    made.with_definitions(definitions(of))
}

/// The gradient of the array beside a number.
pub fn with_number_slope(of: &'static Row, left: bool) -> Kernel {
    let name = function(if left { "number_left_slope" } else { "number_right_slope" }, of);
    let made = kernel("elementwise", &[&name], &[("data", FLOATS)], |call, launcher| {
        let (g, a, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        let number = scalar_bytes(of, y.dtype(), call.attrs.get::<ScalarParam>().scalar);
        let n = y.size();
        let mut args = args![n as i64, g.ptr(), a.ptr(), number, y.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    });
    made.with_definitions(definitions(of))
}

/// Both gradients; an operand that was broadcast gets the sum over its repetitions.
pub fn slopes(of: &'static Row) -> Kernel {
    let own = [function("left_slope", of), function("right_slope", of)];
    let folds = fold_functions("SumFold<$0>");
    let functions: Vec<&str> = own.iter().chain(&folds).map(String::as_str).collect();
    let types: &[(&str, &[DType])] = &[("ograd", FLOATS)];
    let made = Kernel::cuda("elementwise", &functions, types, |call, launcher| {
        let g = &call.inputs[0];
        for side in (0..2).filter(|side| wanted(call, *side)) {
            let out = &call.outputs[side];
            // Without operands the slope is of the output gradient alone.
            let operand = |i: usize| call.inputs.get(1 + i).unwrap_or(g);
            let (a, b, n) = (operand(0), operand(1), g.size());
            let axes = repeated([a, b], g)?;
            let whole = out.shape() == g.shape();
            let to = if whole { out.ptr() } else { launcher.memory().take(g.size_bytes())? };
            let adds = if whole { add(call, side) } else { 0 };
            let mut args = args![n as i64, g.ptr(), a.ptr(), b.ptr(), to, axes, adds];
            if n > 0 {
                launcher.launch(side, Grid::over(n), &mut args)?;
            }
            if !whole {
                let fold = Fold::repetitions(g.shape(), out.shape())?;
                fold.issue(launcher, 2, to, out.ptr(), add(call, side))?;
            }
        }
        Ok(())
    });
    made.with_definitions(definitions(of))
}

/// The sum over what broadcasting repeated.
pub fn sum_like() -> Kernel {
    let folds = fold_functions("SumFold<$0>");
    let functions = [&*folds[0], &folds[1], &folds[2]];
    kernel("reduce", &functions, &[("lhs", FLOATS)], |call, launcher| {
        let (full, out) = (&call.inputs[0], &call.outputs[0]);
        let fold = Fold::repetitions(full.shape(), out.shape())?;
        fold.issue(launcher, 0, full.ptr(), out.ptr(), add(call, 0))
    })
}
