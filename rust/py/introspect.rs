//! The registry as Python sees it, for documentation and stubs.

use super::convert::{DEVICES, from_value, parameter};
use super::error::{IntoPy, invalid, quoted, to_py};
use super::runtime;
use super::signature::{array_arguments, is_variadic};
use crate::context::DeviceType;
use crate::dtype::DType;
use crate::error::Result;
use crate::executor::{explain_kernels as explain, infer_outputs as infer};
use crate::operator::{Attrs, OpDef, Value};
use crate::shape::Shape;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All names and aliases of operators.
#[pyfunction]
fn operator_names() -> Vec<String> {
    runtime().registry.names()
}

/// Main name → all names.
#[pyfunction]
fn operator_aliases() -> BTreeMap<String, Vec<String>> {
    let all = runtime().registry.all();
    let names = |op: &OpDef| std::iter::once(&op.name).chain(&op.aliases).cloned().collect();
    all.iter().map(|op| (op.name.clone(), names(op))).collect()
}

/// A number that changes when the operator `name` is registered again. Returns `None` if there is
/// none.
#[pyfunction]
fn registry_version(name: &str) -> Option<usize> {
    runtime().registry.get(name).map(|op| Arc::as_ptr(&op) as usize)
}

#[pyfunction]
fn is_builtin_operator(name: &str) -> bool {
    runtime().registry.get(name).is_some_and(|op| runtime().registry.is_builtin(&op.name))
}

/// Whether an operator is for gradients alone.
#[pyfunction]
fn is_backward_operator(name: &str) -> bool {
    runtime().registry.get(name).is_some_and(|op| op.is_backward)
}

fn find(name: &str) -> PyResult<Arc<OpDef>> {
    let found = runtime().registry.get(name);
    found.ok_or_else(|| PyKeyError::new_err(format!("operator '{name}' is not registered")))
}

/// `name`, `doc`, `variadic`, `arrays` (the array arguments of its functions), `inputs` as
/// `(name, type, doc)` and `params` as `(name, type, doc, default)`.
#[pyfunction]
fn operator_info<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
    let op = find(name)?;
    let info = PyDict::new(py);
    info.set_item("name", &op.name)?;
    info.set_item("doc", &op.doc)?;
    info.set_item("variadic", is_variadic(&op))?;
    info.set_item("arrays", array_arguments(&op))?;
    let inputs = op.input_docs.iter().map(|i| (&i.name, &i.ty, &i.doc));
    info.set_item("inputs", PyList::new(py, inputs)?)?;
    let params = PyList::empty(py);
    for field in &op.schema.fields {
        let default = match &field.default {
            Some(value) => from_value(py, value)?,
            None => py.None().into_bound(py),
        };
        params.append((&field.name, field.info(), &field.doc, default))?;
    }
    info.set_item("params", params)?;
    Ok(info)
}

/// `(name, condition, priority)` of every kernel.
#[pyfunction]
fn operator_kernels(name: &str) -> PyResult<Vec<(String, String, i32)>> {
    let op = find(name)?;
    Ok(op.kernels.iter().map(|k| (k.name.clone(), k.matches.to_string(), k.priority)).collect())
}

/// Parameters, shapes and dtypes of a question about an operator.
pub struct Asked {
    pub op: Arc<OpDef>,
    pub attrs: Attrs,
    pub inputs: Vec<(Shape, DType)>,
}

/// Shapes with names of dtypes.
pub type Specs = Vec<(Vec<i64>, String)>;

pub fn specs(py: Python<'_>, given: &Specs) -> PyResult<Vec<(Shape, DType)>> {
    let spec =
        |(dims, dtype): &(Vec<i64>, String)| Ok((Shape::new(dims), DType::from_name(dtype)?));
    given.iter().map(spec).collect::<Result<Vec<_>>>().map_err(|e| to_py(py, &e))
}

impl Asked {
    pub fn new(name: &str, inputs: &Specs, params: &Bound<'_, PyDict>) -> PyResult<Asked> {
        let (py, op) = (params.py(), find(name)?);
        let params = params.iter().map(|(k, v)| {
            let key: String = k.extract()?;
            let value = parameter(name, &op.schema, &key, &v)?;
            Ok((key, value))
        });
        let mut params = params.collect::<PyResult<Vec<(String, Value)>>>()?;
        if let Some(count) = &op.key_var_num_args
            && params.iter().all(|(name, _)| name != count)
        {
            params.push((count.clone(), Value::Int(inputs.len() as i64)));
        }
        let given: Vec<_> = params.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
        let attrs = op.parse(&given).py(py)?;
        Ok(Asked { op, attrs, inputs: specs(py, inputs)? })
    }
}

/// For every kernel of an operator on inputs of these shapes and dtypes: would it run, and why.
#[pyfunction]
fn explain_kernels(
    py: Python<'_>,
    name: &str,
    inputs: Specs,
    params: &Bound<'_, PyDict>,
    device: &str,
) -> PyResult<String> {
    let device = DeviceType::from_name(device)
        .ok_or_else(|| PyValueError::new_err(invalid("device", quoted(device), DEVICES)))?;
    let asked = Asked::new(name, &inputs, params)?;
    explain(&asked.op, &asked.attrs, &asked.inputs, device).py(py)
}

/// Shapes and dtypes of the outputs of a call on inputs of these.
#[pyfunction]
fn infer_outputs(
    py: Python<'_>,
    name: &str,
    inputs: Specs,
    params: &Bound<'_, PyDict>,
) -> PyResult<Specs> {
    let asked = Asked::new(name, &inputs, params)?;
    let outputs = infer(&asked.op, &asked.attrs, &asked.inputs).py(py)?;
    let shown = |(shape, dtype): (Shape, DType)| (shape.dims().to_vec(), dtype.name().to_owned());
    Ok(outputs.into_iter().map(shown).collect())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident),*) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)* };
    }
    add!(
        operator_names,
        operator_aliases,
        registry_version,
        is_builtin_operator,
        is_backward_operator,
        operator_info,
        operator_kernels,
        explain_kernels,
        infer_outputs
    );
    Ok(())
}
