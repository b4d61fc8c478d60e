//! Python's arithmetic and comparison on arrays: the operator behind each, and the short way for two small
//! equal arrays.

use super::autograd::thread_state;
use super::error::IntoPy;
use super::lazy::Lazy;
use super::ndarray::PyNDArray;
use super::profiler::api;
use super::{function, runtime};
use crate::error::{Error, Result};
use crate::executor::autograd::{Tracked, record_plain};
use crate::executor::imperative::{CHEAP_ELEMS, TINY_ELEMS};
use crate::ndarray::{Fresh, NDArray, with_quiet};
use crate::operator::{Attrs, Body, Call, NativeFn, OpContext, OpDef, OpReq, Value};
use crate::profiler::mode;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};
use std::sync::Arc;

/// An operator with what a short call on it needs.
struct Short {
    op: Arc<OpDef>,
    attrs: Arc<Attrs>,
    kernel: NativeFn,
}

impl Short {
    fn find(name: &str) -> Result<Short> {
        let op = runtime().registry.find(name)?;
        let attrs = op.parse_shared(&[])?;
        let kernel = match op.kernels.first().map(|k| &k.body) {
            Some(Body::Native(kernel)) if op.kernels.len() == 1 => kernel.clone(),
            _ => return Err(Error::internal("a short call needs one native kernel")),
        };
        Ok(Short { op, attrs, kernel })
    }

    /// Runs on two small equal arrays at once, if nothing is in the way.
    #[inline]
    fn try_run(&self, a: &NDArray, b: &NDArray) -> Option<Fresh> {
        let elems = 3 * a.size();
        if elems > CHEAP_ELEMS || !a.context().is_host() {
            return None;
        }
        let out = a.memory_like().ok()?;
        // Views are made where they stay: copying their small parts one by one and then as a whole stalls.
        let at = [a.address().ok()?, b.address().ok()?, out.address];
        // The operators of the table are element-wise: how elements are arranged does not matter to them.
        // SAFETY: each with its own address, the output in memory made for it.
        let inputs = unsafe { [a.flat_view(at[0]), b.flat_view(at[1])] };
        // SAFETY: as above.
        let outputs = unsafe { [a.flat_view(at[2])] };
        let ctx = OpContext { device: a.context(), ..OpContext::default() };
        let call = Call {
            attrs: &self.attrs,
            ctx: &ctx,
            state: None,
            inputs: &inputs,
            req: &[OpReq::Write],
            outputs: &outputs,
        };
        let called = api(&self.op.name);
        let mut failed = false;
        let profiler = &a.base().profiler;
        let mut run = || {
            let _span = profiler.operator(mode::IMPERATIVE, &self.op.name, "", ctx.device);
            failed = (self.kernel)(&call).is_err();
        };
        let ran = with_quiet(&[a, b], &[], elems <= TINY_ELEMS, &mut run);
        if ran && !failed {
            return Some(out);
        }
        // Another way will be tried, and it is that one which counts as the call.
        std::mem::forget(called);
        None
    }
}

/// The operators behind one arithmetic operator of Python.
struct Arithmetic {
    same: Short,
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
        Ok(Arithmetic {
            same: Short::find(names[0])?,
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
        let (x, y) = (&a.array, &b.array);
        if out.is_none()
            && x.dtype() == y.dtype()
            && x.shape() == y.shape()
            && let Some(result) = row.same.try_run(x, y)
        {
            return finish(py, [a, b], &row.same, x.like(result));
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

/// Wraps the result of a short call, recorded if need be.
#[inline]
fn finish(
    py: Python<'_>,
    inputs: [&Tracked; 2],
    short: &Short,
    result: NDArray,
) -> PyResult<Py<PyAny>> {
    let wrap = |tracked| Ok(Bound::new(py, PyNDArray { tracked })?.into_any().unbind());
    if thread_state().recording && inputs.iter().any(|t| t.is_tracked()) {
        return wrap(record_plain(&short.op, &short.attrs, &inputs, result));
    }
    wrap(Tracked::new(result))
}
