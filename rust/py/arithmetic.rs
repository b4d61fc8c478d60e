//! Python's arithmetic and comparison on arrays: the operator behind each.

use super::autograd::thread_state;
use super::error::IntoPy;
use super::lazy::Lazy;
use super::ndarray::PyNDArray;
use super::profiler::api;
use super::{function, runtime};
use crate::error::Result;
use crate::executor::autograd::invoke_short;
use crate::operator::{Attrs, OpDef, Value};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};
use std::sync::Arc;

/// The operators behind one arithmetic operator of Python.
struct Arithmetic {
    /// On equal arrays, with its parameters, of which it has none.
    same: (Arc<OpDef>, Arc<Attrs>),
    broadcast: Arc<OpDef>,
    /// With a number on the right, and on the left.
    scalar: [Arc<OpDef>; 2],
}

#[derive(Clone, Copy)]
pub enum Op {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Names in the order of [`Op`]: on equal shapes, broadcasting, with a number on the right, on the left.
const NAMES: [[&str; 4]; 12] = [
    ["elemwise_add", "broadcast_add", "_plus_scalar", "_plus_scalar"],
    ["elemwise_sub", "broadcast_sub", "_minus_scalar", "_rminus_scalar"],
    ["elemwise_mul", "broadcast_mul", "_mul_scalar", "_mul_scalar"],
    ["elemwise_div", "broadcast_div", "_div_scalar", "_rdiv_scalar"],
    ["_mod", "broadcast_mod", "_mod_scalar", "_rmod_scalar"],
    ["_power", "broadcast_power", "_power_scalar", "_rpower_scalar"],
    ["_equal", "broadcast_equal", "_equal_scalar", "_equal_scalar"],
    ["_not_equal", "broadcast_not_equal", "_not_equal_scalar", "_not_equal_scalar"],
    ["_lesser", "broadcast_lesser", "_lesser_scalar", "_greater_scalar"],
    ["_lesser_equal", "broadcast_lesser_equal", "_lesser_equal_scalar", "_greater_equal_scalar"],
    ["_greater", "broadcast_greater", "_greater_scalar", "_lesser_scalar"],
    ["_greater_equal", "broadcast_greater_equal", "_greater_equal_scalar", "_lesser_equal_scalar"],
];

fn arithmetic(py: Python<'_>, op: Op) -> PyResult<&'static Arithmetic> {
    static TABLE: Lazy<Vec<Arithmetic>> = Lazy::new();
    let row = |names: &[&str; 4]| -> Result<Arithmetic> {
        let find = |name| runtime().registry.find(name);
        let same = find(names[0])?;
        let attrs = same.parse_shared(&[])?;
        Ok(Arithmetic {
            same: (same, attrs),
            broadcast: find(names[1])?,
            scalar: [find(names[2])?, find(names[3])?],
        })
    };
    let load = || NAMES.iter().map(row).collect::<Result<Vec<_>>>().py(py);
    Ok(&TABLE.get_or_try_init(py, load)?[op as usize])
}

/// A Python or NumPy number.
fn number(obj: &Bound<'_, PyAny>) -> Option<f64> {
    if obj.is_instance_of::<PyFloat>() || obj.is_instance_of::<PyInt>() {
        return obj.extract().ok();
    }
    static GENERIC: Lazy<Py<PyAny>> = Lazy::new();
    let py = obj.py();
    let load = || Ok::<_, PyErr>(py.import("numpy")?.getattr("generic")?.unbind());
    let generic = GENERIC.get_or_try_init(py, load).ok()?;
    if obj.is_instance(generic.bind(py)).ok()? { obj.extract().ok() } else { None }
}

/// `lhs op rhs`; `reversed` when Python calls the right operand's method with the left one.
pub fn binary<'py>(
    lhs: &Bound<'py, PyNDArray>,
    rhs: &Bound<'py, PyAny>,
    op: Op,
    reversed: bool,
    out: Option<&Bound<'py, PyNDArray>>,
) -> PyResult<Py<PyAny>> {
    let py = lhs.py();
    let row = arithmetic(py, op)?;
    let a = &lhs.get().tracked;
    let out = out.map(|o| &o.get().tracked);
    let out = out.as_ref().map(std::slice::from_ref);
    if let Ok(other) = rhs.cast::<PyNDArray>() {
        let b = &other.get().tracked;
        let (same, attrs) = &row.same;
        if out.is_none() {
            let called = api(&same.name);
            if let Some(tracked) = invoke_short(same, attrs, &[a, b], thread_state().recording) {
                return Ok(Bound::new(py, PyNDArray { tracked })?.into_any().unbind());
            }
            std::mem::forget(called); // the call below counts
        }
        return function::call_op(py, &row.broadcast, &[], &[a, b], out);
    }
    let Some(x) = number(rhs) else {
        let kind = rhs.get_type();
        if kind.hasattr("__array_priority__")? || kind.getattr("__array__").is_ok() {
            return Err(PyTypeError::new_err(format!("type {kind} not supported")));
        }
        return Ok(py.NotImplemented());
    };
    let params = [("scalar", Value::Float(x))];
    function::call_op(py, &row.scalar[usize::from(reversed)], &params, &[a], out)
}

/// `-array`.
pub fn negated(array: &Bound<'_, PyNDArray>) -> PyResult<Py<PyAny>> {
    let py = array.py();
    let times = &arithmetic(py, Op::Mul)?.scalar[0];
    let params = [("scalar", Value::Float(-1.0))];
    function::call_op(py, times, &params, &[&array.get().tracked], None)
}
