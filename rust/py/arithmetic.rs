//! Python's arithmetic and comparison on arrays: the operator of each.

use super::error::{IntoPy, invalid, kind, refused_by};
use super::ndarray::PyNDArray;
use super::once_cell::OnceCell;
use super::thread_state::thread_state;
use super::{function, runtime};
use crate::error::Result;
use crate::operator::{Attrs, OpDef, Value};
pub use crate::ops::elementwise::binary::BinaryFn;
use crate::ops::elementwise::binary::BinaryNames;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyTuple};
use std::sync::Arc;

/// The operators of one function, found in the registry.
struct Operators {
    /// On two arrays of equal shape, and broadcasting; both have no parameters.
    same: (Arc<OpDef>, Arc<Attrs>),
    broadcast: (Arc<OpDef>, Arc<Attrs>),
    /// With a number on the right, and on the left.
    scalar: [Arc<OpDef>; 2],
}

fn operators(py: Python<'_>, function: BinaryFn) -> PyResult<&'static Operators> {
    static TABLE: OnceCell<Vec<Operators>> = OnceCell::new();
    let load = || BinaryFn::ALL.iter().map(|f| find(f.operators())).collect::<Result<_>>().py(py);
    Ok(&TABLE.get_or_try_init(py, load)?[function as usize])
}

fn find(names: BinaryNames) -> Result<Operators> {
    let find = |name| runtime().registry.find(name);
    let of_arrays = |name| -> Result<_> {
        let op = find(name)?;
        let attrs = op.parse_shared(&[])?;
        Ok((op, attrs))
    };
    Ok(Operators {
        same: of_arrays(names.same)?,
        broadcast: of_arrays(names.broadcast)?,
        scalar: [find(names.right)?, find(names.left)?],
    })
}

/// A Python or NumPy number.
fn number(obj: &Bound<'_, PyAny>) -> Option<f64> {
    if obj.is_instance_of::<PyFloat>() || obj.is_instance_of::<PyInt>() {
        return obj.extract().ok();
    }
    static GENERIC: OnceCell<Py<PyAny>> = OnceCell::new();
    let py = obj.py();
    let load = || Ok::<_, PyErr>(py.import("numpy")?.getattr("generic")?.unbind());
    let generic = GENERIC.get_or_try_init(py, load).ok()?;
    if obj.is_instance(generic.bind(py)).ok()? { obj.extract().ok() } else { None }
}

/// `lhs op rhs`; `reversed` when Python calls the right operand's method with the left one.
pub fn binary<'py>(
    lhs: &Bound<'py, PyNDArray>,
    rhs: &Bound<'py, PyAny>,
    op: BinaryFn,
    reversed: bool,
    out: Option<&Bound<'py, PyNDArray>>,
) -> PyResult<Py<PyAny>> {
    let py = lhs.py();
    let operators = operators(py, op)?;
    let a = lhs.get().tracked();
    let out = out.map(|o| o.get().tracked());
    let out = out.as_ref().map(std::slice::from_ref);
    if let Ok(other) = rhs.cast::<PyNDArray>() {
        let b = other.get().tracked();
        let alike = a.array.shape() == b.array.shape() && a.array.dtype() == b.array.dtype();
        let (op, attrs) = if alike { &operators.same } else { &operators.broadcast };
        return function::run(py, op, attrs, &[a, b], out, thread_state().ctx);
    }
    let Some(x) = number(rhs) else {
        let class = rhs.get_type();
        let is_array =
            class.hasattr("__array_priority__")? || class.hasattr("__array__").unwrap_or(false);
        // A list on the left has the first word, in `list += array`.
        let is_sequence =
            rhs.is_exact_instance_of::<PyList>() || rhs.is_exact_instance_of::<PyTuple>();
        if is_array || is_sequence && !reversed {
            return Err(not_an_operand(op, rhs, reversed));
        }
        return Ok(py.NotImplemented());
    };
    let params = [("scalar", Value::Float(x))];
    function::call_op(py, &operators.scalar[usize::from(reversed)], &params, &[a], out)
}

/// The error for an operand that is neither an array nor a number; `reversed` as in [`binary`].
#[cold]
pub fn not_an_operand(op: BinaryFn, operand: &Bound<'_, PyAny>, reversed: bool) -> PyErr {
    refused_by(operand).unwrap_or_else(|| {
        let side = if reversed { "lhs" } else { "rhs" };
        let got = format!("of type {}", kind(operand));
        let expected = "an NDArray or a number (mx.nd.array makes an NDArray)";
        let text = invalid(&format!("operand '{side}'"), got, expected);
        PyTypeError::new_err(format!("{}: {text}", op.operators().broadcast))
    })
}

/// `-array`.
pub fn negated(array: &Bound<'_, PyNDArray>) -> PyResult<Py<PyAny>> {
    let py = array.py();
    let times = &operators(py, BinaryFn::Mul)?.scalar[0];
    let params = [("scalar", Value::Float(-1.0))];
    function::call_op(py, times, &params, &[array.get().tracked()], None)
}

type Names = (&'static str, &'static str, &'static str, &'static str);

/// The table of functions of two operands: name → operator on equal shapes, broadcasting, with a
/// number on the right, with a number on the left. `symbol` asks for the names that symbols use.
#[pyfunction]
fn binary_operators(py: Python<'_>, symbol: bool) -> PyResult<Bound<'_, PyDict>> {
    let table = PyDict::new(py);
    for f in BinaryFn::ALL {
        let names = if symbol { f.symbol_operators() } else { f.operators() };
        let row: Names = (names.same, names.broadcast, names.right, names.left);
        table.set_item(f.name(), row)?;
    }
    Ok(table)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(binary_operators, m)?)
}
