//! `_core.Schema`: the parameter schema of the core, made and used by `rsnet.Parameter`.
//!
//! Parsing, ranges and error texts live in `operator/param.rs` alone; this file only carries field
//! descriptions in and values out.

use super::convert::{from_value, parameter};
use super::error::{IntoPy, invalid, quoted};
use crate::operator::{Field, FieldType, Schema, Value, dtype_names};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::sync::Arc;

/// A parsed and checked list of parameter fields.
#[pyclass(frozen, name = "Schema", module = "rsnet._core")]
pub struct PySchema {
    pub schema: Arc<Schema>,
    /// Whose parameters these are, for errors.
    name: String,
}

/// One field as Python describes it.
#[derive(FromPyObject)]
struct Spec {
    #[pyo3(item)]
    name: String,
    #[pyo3(item)]
    kind: String,
    #[pyo3(item)]
    keys: Vec<String>,
    #[pyo3(item)]
    optional: bool,
    #[pyo3(item)]
    required: bool,
    #[pyo3(item)]
    default: Py<PyAny>,
    #[pyo3(item)]
    doc: String,
    #[pyo3(item)]
    ge: Option<f64>,
    #[pyo3(item)]
    le: Option<f64>,
}

fn field_type(kind: &str, keys: Vec<String>) -> PyResult<FieldType> {
    Ok(match kind {
        "bool" => FieldType::Bool,
        "int32" => FieldType::Int,
        "uint32" => FieldType::UInt,
        "int64" => FieldType::Long,
        "uint64" => FieldType::ULong,
        "float" => FieldType::Float,
        "double" => FieldType::Double,
        "string" => FieldType::Str,
        "shape" => FieldType::Shape,
        "optional_ints" => FieldType::OptIntTuple,
        "floats" => FieldType::FloatTuple,
        "int32s" => FieldType::List(Box::new(FieldType::Int)),
        "strings" => FieldType::List(Box::new(FieldType::Str)),
        "shapes" => FieldType::List(Box::new(FieldType::Shape)),
        "dtypes" => FieldType::List(Box::new(FieldType::Enum(dtype_names()))),
        "dtype" => FieldType::Enum(dtype_names()),
        "enum" => FieldType::Enum(keys),
        _ => {
            return Err(PyTypeError::new_err(invalid(
                "kind of parameter",
                quoted(kind),
                "one that `rsnet.parameter` defines",
            )));
        }
    })
}

#[pymethods]
impl PySchema {
    /// Defaults are checked like values.
    #[new]
    #[pyo3(signature = (fields, open = false, name = ""))]
    fn new(
        py: Python<'_>,
        fields: Vec<Bound<'_, PyDict>>,
        open: bool,
        name: &str,
    ) -> PyResult<Self> {
        let mut schema = Schema { open, ..Schema::default() };
        for spec in fields {
            let spec: Spec = spec.extract()?;
            let inner = field_type(&spec.kind, spec.keys)?;
            let ty = if spec.optional { FieldType::Optional(Box::new(inner)) } else { inner };
            let field = Field {
                name: spec.name,
                ty,
                default: None,
                doc: spec.doc,
                range: (spec.ge, spec.le),
            };
            schema.fields.push(field);
            let at = schema.fields.len() - 1;
            if !spec.required {
                let field = &schema.fields[at];
                let given = parameter(name, &schema, &field.name, spec.default.bind(py))?;
                let value = field.parse(&given).map_err(|e| e.in_operator(name)).py(py)?;
                schema.fields[at].default = Some(value);
            }
        }
        Ok(PySchema { schema: Arc::new(schema), name: name.to_owned() })
    }

    /// One value per field, in order, from a dict of texts or plain values.
    fn parse<'py>(
        &self,
        py: Python<'py>,
        given: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut pairs: Vec<(String, Value)> = Vec::with_capacity(given.len());
        for (k, v) in given.iter() {
            let key: String = k.extract()?;
            let value = parameter(&self.name, &self.schema, &key, &v)?;
            pairs.push((key, value));
        }
        let borrowed: Vec<(&str, Value)> =
            pairs.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
        let values = self.schema.parse(&borrowed).map_err(|e| e.in_operator(&self.name)).py(py)?;
        values_to_py(py, &values)
    }

    /// `(name, type information, description)` of every field.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(
            py,
            self.schema.fields.iter().map(|f| (f.name.clone(), f.info(), f.doc.clone())),
        )
    }
}

/// Values in normal form as plain Python values; lists become tuples.
pub fn values_to_py<'py>(py: Python<'py>, values: &[Value]) -> PyResult<Bound<'py, PyTuple>> {
    let items = values.iter().map(|v| from_value(py, v)).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, items)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySchema>()
}
