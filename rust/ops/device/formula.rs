//! Formulas of the element-wise tables as CUDA source.
//!
//! The tables write each formula once, as a Rust expression; devices compile its text. It is in the
//! part of the grammar that Rust and C++ share (calls, methods, operators), over types of
//! `formulas.cuh` that have the methods and functions of the Rust side.

use super::{add, kernel};
use crate::args;
use crate::dtype::DType;
use crate::operator::{Grid, Kernel};
use std::fmt::Write;

/// An expression with the names of its operands.
#[derive(Clone, Copy, Debug)]
pub struct Formula {
    pub operands: &'static [&'static str],
    pub text: &'static str,
}

const FLOATS: &[DType] = super::FLOATS;
const WHOLE: &[DType] = &[DType::U8, DType::I32, DType::I8, DType::I64, DType::Bool];

/// A row of a table as a structure with a function for each of its formulas: `relu_row`.
pub fn row(name: &str, functions: &[(&str, Option<Formula>)]) -> String {
    let mut text = format!("\nstruct {name}_row {{\n");
    for (function, formula) in functions {
        let Some(Formula { operands, text: formula }) = formula else { continue };
        let operands: Vec<_> = operands.iter().map(|o| format!("T {o}")).collect();
        let _ = write!(
            text,
            "  template <class T> static __device__ T {function}({}) {{\n    auto num = [](double \
             c) {{ return T(c); }};\n    (void)num;\n    return {formula};\n  }}\n",
            operands.join(", ")
        );
    }
    text + "};\n"
}

/// The kernels of one operand: of floating-point numbers (integers in double precision), and of
/// whole numbers where the row has a formula for them. `tensor` is an array whose dtype all have.
pub fn unary_kernels(name: &str, tensor: &str, formulas: &[Option<Formula>; 3]) -> Vec<Kernel> {
    let [value, _, whole] = *formulas;
    let text = row(name, &[("value", value), ("whole", whole)]);
    let make = |function: &str, dtypes: &'static [DType]| {
        let function = format!("{function}<{name}_row, $0>");
        kernel("elementwise", &[&function], &[(tensor, dtypes)], |call, launcher| {
            let (x, y) = (&call.inputs[0], &call.outputs[0]);
            let n = y.size();
            let mut args = args![n as i64, x.ptr(), y.ptr(), add(call, 0)];
            launcher.launch(0, Grid::over(n), &mut args)
        })
        .with_definitions(text.clone())
    };
    match whole {
        Some(_) => vec![make("unary", FLOATS), make("unary_whole", WHOLE)],
        None => vec![make("unary", &DType::ALL)],
    }
}

/// The kernel of the gradient of one operand.
pub fn unary_slope_kernel(name: &str, tensor: &str, formulas: &[Option<Formula>; 3]) -> Kernel {
    let function = format!("unary_slope<{name}_row, $0>");
    let issue = kernel("elementwise", &[&function], &[(tensor, FLOATS)], |call, launcher| {
        let (g, v, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        let n = y.size();
        let mut args = args![n as i64, g.ptr(), v.ptr(), y.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    });
    issue.with_definitions(row(name, &[("slope", formulas[1])]))
}
