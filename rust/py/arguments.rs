//! Sorts the arguments of operator functions: which are inputs, parameters, or options of the call.
//! Functions on arrays (`nd`) and on symbols (`sym`) follow the same rules.

use super::convert::parameter;
use super::error::{IntoPy, invalid, kind, quoted, refused_by, shown};
use super::ndarray::PyNDArray;
use super::package::package;
use super::signature::{array_arguments, is_variadic};
use crate::operator::{ARG_COUNTS, Attrs, CountedArg, OpDef, Value, is_hidden, share_among_others};
use pyo3::exceptions::{PyAssertionError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PyString, PyTuple};
use smallvec::SmallVec;
use std::sync::Arc;

/// The kinds of inputs that a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    Array,
    Symbol,
}

impl Face {
    /// What an input is, in errors.
    fn kind(self) -> &'static str {
        match self {
            Face::Array => "an NDArray",
            Face::Symbol => "a Symbol",
        }
    }
}

/// The function of an operator: what its arguments are called.
#[pyclass(frozen, module = "rsnet._core")]
pub struct OpFunction {
    pub name: String,
    pub op: Arc<OpDef>,
    pub face: Face,
    /// Inputs in order; empty for operators with any number of them.
    pub inputs: Vec<String>,
    /// Interned keywords, inputs first, then parameters: compared by address before by text.
    keywords: Vec<Py<PyString>>,
    variadic: bool,
}

/// The arguments of one call, sorted.
#[derive(Default)]
pub struct Arguments<'py> {
    /// Inputs by position or by a name of the signature.
    pub inputs: SmallVec<[Option<Bound<'py, PyAny>>; 4]>,
    /// Inputs under names that the signature does not show: the operator, with its parameters,
    /// decides.
    pub named: Vec<(String, Bound<'py, PyAny>)>,
    /// Arrays of arguments that take several, by the number of the argument.
    grouped: Vec<(usize, Vec<Bound<'py, PyAny>>)>,
    /// Parameters, by the number of their field.
    pub params: SmallVec<[(usize, Bound<'py, PyAny>); 4]>,
    /// Parameters that the schema does not have, by name.
    pub unknown: Vec<(String, Bound<'py, PyAny>)>,
    /// Options of a call on arrays.
    pub out: Option<Bound<'py, PyAny>>,
    pub ctx: Option<Bound<'py, PyAny>>,
    /// Options of a call on symbols.
    pub node_name: Option<Bound<'py, PyAny>>,
    pub attr: Option<Bound<'py, PyAny>>,
}

/// Returns true if `mx.nd.array` makes an array of the value: it is a number, a sequence, or has
/// NumPy's interface.
fn is_array_like(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyList>()
        || value.is_instance_of::<PyTuple>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
        || value.get_type().hasattr("__array__").unwrap_or(false)
}

/// The value, unless it is `None`.
fn some(value: Bound<'_, PyAny>) -> Option<Bound<'_, PyAny>> {
    Some(value).filter(|v| !v.is_none())
}

impl OpFunction {
    /// The function called `name` of operator `op`.
    pub fn new(py: Python<'_>, name: &str, op: Arc<OpDef>, face: Face) -> Self {
        let (variadic, inputs) = (is_variadic(&op), array_arguments(&op));
        let keywords = inputs
            .iter()
            .chain(op.schema.fields.iter().map(|f| &f.name))
            .map(|k| PyString::intern(py, k).unbind())
            .collect();
        OpFunction { name: name.to_owned(), op, face, inputs, keywords, variadic }
    }

    /// Number of the keyword: inputs first, then parameters.
    fn keyword(&self, name: &Bound<'_, PyString>) -> Option<usize> {
        let same = |k: &Py<PyString>| k.as_ptr() == name.as_ptr();
        self.keywords.iter().position(same).or_else(|| {
            let text = name.to_str().ok()?;
            let names = self.inputs.iter().chain(self.op.schema.fields.iter().map(|f| &f.name));
            names.into_iter().position(|k| k == text)
        })
    }

    /// Returns true if the value can be an input.
    fn is_input(&self, value: &Bound<'_, PyAny>) -> bool {
        match self.face {
            Face::Array => value.is_instance_of::<PyNDArray>(),
            Face::Symbol => package(value.py()).is_ok_and(|p| p.is_symbol(value)),
        }
    }

    /// The error for a value that cannot be an input; `key` is the input's name or position.
    pub fn not_an_input(&self, key: &str, value: &Bound<'_, PyAny>) -> PyErr {
        let (name, what) = (&self.name, format!("argument '{key}'"));
        match self.face {
            Face::Array => refused_by(value).unwrap_or_else(|| {
                let expected = match is_array_like(value) {
                    true => "an NDArray (mx.nd.array makes one)",
                    false => "an NDArray",
                };
                let text = invalid(&what, shown(value), expected);
                PyAssertionError::new_err(format!("{name}: {text}"))
            }),
            Face::Symbol => {
                let text = invalid(&what, format!("of type {}", kind(value)), "a Symbol");
                PyTypeError::new_err(format!("{name}: {text}"))
            }
        }
    }

    fn given_twice(&self, key: &Bound<'_, PyString>) -> PyErr {
        PyTypeError::new_err(format!("{}() got multiple values for argument '{key}'", self.name))
    }

    /// Sorts positional argument `i`.
    pub fn positional<'py>(
        &self,
        args: &mut Arguments<'py>,
        value: Bound<'py, PyAny>,
        i: usize,
    ) -> PyResult<()> {
        if self.variadic {
            // `Concat(a, b)` and `Concat([a, b])` are the same.
            if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
                for item in value.try_iter()? {
                    args.inputs.push(Some(item?));
                }
            } else {
                args.inputs.push(Some(value));
            }
            return Ok(());
        }
        let fields = self.op.schema.fields.len();
        let is_more = |args: &Arguments<'_>| args.params.is_empty() && args.out.is_none();
        if i < self.inputs.len() || is_more(args) && self.takes(&value, i) {
            args.inputs.push(Some(value));
            return Ok(());
        }
        let after_inputs = i - self.inputs.len();
        if after_inputs < fields {
            args.params.push((after_inputs, value));
            return Ok(());
        }
        match (self.face, after_inputs - fields) {
            (Face::Array, 0) => args.out = some(value),
            (Face::Symbol, 0) => args.node_name = some(value),
            (Face::Symbol, 1) => args.attr = some(value),
            (face, _) => {
                let options = if face == Face::Array { 1 } else { 2 };
                let most = self.inputs.len() + fields + options;
                return Err(PyTypeError::new_err(format!(
                    "{}() takes at most {most} positional arguments",
                    self.name
                )));
            }
        }
        Ok(())
    }

    /// Returns true if positional argument `i` is an input although the signature has a parameter
    /// at its position: with other parameters the operator has more inputs than its signature
    /// shows. (In an operator without parameters, `out` follows the inputs.)
    fn takes(&self, value: &Bound<'_, PyAny>, i: usize) -> bool {
        let fields = self.op.schema.fields.len();
        let at = i - self.inputs.len();
        let has_room = self.face == Face::Symbol || at < fields;
        has_room && self.is_input(value)
    }

    /// Sorts the argument of a keyword.
    pub fn by_keyword<'py>(
        &self,
        args: &mut Arguments<'py>,
        key: &Bound<'py, PyString>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let Some(i) = self.keyword(key) else { return self.by_other_keyword(args, key, value) };
        if i < self.inputs.len() {
            if args.inputs.get(i).is_some_and(Option::is_some) {
                return Err(self.given_twice(key));
            }
            while args.inputs.len() <= i {
                args.inputs.push(None);
            }
            args.inputs[i] = Some(value);
        } else {
            let field = i - self.inputs.len();
            if args.params.iter().any(|p| p.0 == field) {
                return Err(self.given_twice(key));
            }
            args.params.push((field, value));
        }
        Ok(())
    }

    /// Sorts the argument of a keyword that is neither an input nor a parameter of the signature.
    fn by_other_keyword<'py>(
        &self,
        args: &mut Arguments<'py>,
        key: &Bound<'py, PyString>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        if let Some(at) = self.op.arguments.iter().position(|a| key == a.name.as_str()) {
            return self.by_argument(args, at, key, value);
        }
        match (key.to_str()?, self.face) {
            ("out", Face::Array) => args.out = some(value),
            ("ctx", Face::Array) => args.ctx = Some(value),
            ("name", Face::Symbol) => args.node_name = some(value),
            ("attr", Face::Symbol) => args.attr = some(value),
            ("name", Face::Array) | ("out", Face::Symbol) => {}
            // One array is one input: of several kinds (`Custom`), by its name.
            ("data", Face::Array) if self.variadic && self.is_input(&value) => {
                match self.op.key_var_num_args {
                    Some(_) => args.inputs.push(Some(value)),
                    None => args.named.push(("data".to_owned(), value)),
                }
            }
            ("data", _) if self.variadic && !self.is_input(&value) => {
                if !args.inputs.is_empty() {
                    return Err(self.given_twice(key));
                }
                args.inputs = value.try_iter()?.map(|v| v.map(Some)).collect::<PyResult<_>>()?;
            }
            (other, _) if self.is_input(&value) => args.named.push((other.to_owned(), value)),
            (other, _) => args.unknown.push((other.to_owned(), value)),
        }
        Ok(())
    }

    /// Sorts the array, or arrays, of an argument of which a parameter tells how many it has.
    fn by_argument<'py>(
        &self,
        args: &mut Arguments<'py>,
        at: usize,
        key: &Bound<'py, PyString>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        if args.grouped.iter().any(|g| g.0 == at) {
            return Err(self.given_twice(key));
        }
        let arrays = if value.is_none() {
            Vec::new()
        } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            value.try_iter()?.collect::<PyResult<_>>()?
        } else {
            vec![value]
        };
        if let Some(wrong) = arrays.iter().find(|v| !self.is_input(v)) {
            return Err(self.not_an_input(&self.op.arguments[at].name, wrong));
        }
        args.grouped.push((at, arrays));
        Ok(())
    }

    /// Puts arrays of arguments that were given by name in order, and says how many each has. Those
    /// without a name are shared out among the arguments that were not named. `None` among them
    /// holds its place: the argument is absent.
    pub fn settle<'py>(&self, py: Python<'py>, args: &mut Arguments<'py>) -> PyResult<()> {
        let is_none =
            |value: &Option<Bound<'_, PyAny>>| value.as_ref().is_some_and(|v| v.is_none());
        let none = if self.variadic { args.inputs.iter().position(is_none) } else { None };
        if let Some(at) = none.filter(|_| self.op.arguments.is_empty()) {
            return Err(PyTypeError::new_err(format!(
                "{}() got None for array {at}: expected {}",
                self.name,
                self.face.kind()
            )));
        }
        if args.grouped.is_empty() && none.is_none() {
            return Ok(());
        }
        let counts = self.op.schema.fields.iter().position(|f| f.name == ARG_COUNTS);
        let (Some(counts), false) = (counts, args.params.iter().any(|p| Some(p.0) == counts))
        else {
            let what = if args.grouped.is_empty() { "None for an array" } else { "arrays by name" };
            return Err(PyTypeError::new_err(format!(
                "{}() got both {what} and {ARG_COUNTS}",
                self.name
            )));
        };
        let unnamed: Vec<_> = std::mem::take(&mut args.inputs).into_iter().flatten().collect();
        let is_named = |at| args.grouped.iter().any(|g| g.0 == at);
        let named: Vec<bool> = (0..self.op.arguments.len()).map(is_named).collect();
        let shared = share_among_others(&self.op.arguments, &named, unnamed);
        let mut all = shared.map_err(|e| e.in_operator(&self.name)).py(py)?;
        for (at, arrays) in args.grouped.drain(..) {
            all[at] = arrays;
        }
        for (argument, arrays) in self.op.arguments.iter().zip(&mut all) {
            self.drop_absent(argument, arrays)?;
        }
        let lengths = PyTuple::new(py, all.iter().map(Vec::len))?;
        args.params.push((counts, lengths.into_any()));
        args.inputs = all.into_iter().flatten().map(Some).collect();
        Ok(())
    }

    /// Takes `None` in the place of an optional argument's arrays for its absence.
    fn drop_absent(
        &self,
        argument: &CountedArg,
        arrays: &mut Vec<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let absent = arrays.iter().filter(|v| v.is_none()).count();
        if absent == 0 {
            return Ok(());
        }
        if argument.optional && absent == arrays.len() && absent == argument.count {
            arrays.clear();
            return Ok(());
        }
        let (name, kind) = (&argument.name, self.face.kind());
        Err(PyTypeError::new_err(match (argument.optional, arrays.len()) {
            (false, 1) => {
                format!("{}() got None for the input '{name}': expected {kind}", self.name)
            }
            _ => format!(
                "{}() got None among the arrays of the input '{name}': expected {kind} for each",
                self.name
            ),
        }))
    }

    /// The given parameters, by name.
    pub fn given_params<'a, 'py>(
        &'a self,
        py: Python<'_>,
        args: &'a Arguments<'py>,
    ) -> PyResult<SmallVec<[(&'a str, &'a Bound<'py, PyAny>); 6]>> {
        let package = package(py)?;
        let fields = &self.op.schema.fields;
        let known = args.params.iter().map(|(i, value)| (fields[*i].name.as_str(), value));
        let unknown = args.unknown.iter().map(|(name, value)| (name.as_str(), value));
        Ok(known.chain(unknown).filter(|(_, value)| !package.is_null(value)).collect())
    }

    /// The parsed parameters of a call on arrays.
    pub fn attrs(
        &self,
        py: Python<'_>,
        args: &Arguments<'_>,
        n_inputs: usize,
    ) -> PyResult<Arc<Attrs>> {
        let mut params: SmallVec<[(&str, Value); 6]> = SmallVec::new();
        if !(args.params.is_empty() && args.unknown.is_empty()) {
            for (name, value) in self.given_params(py, args)? {
                if !is_hidden(name) {
                    params.push((name, parameter(&self.name, &self.op.schema, name, value)?));
                }
            }
        }
        if let Some(count) = self.op.key_var_num_args.as_deref()
            && !params.iter().any(|p| p.0 == count)
        {
            params.push((count, Value::Int(n_inputs as i64)));
        }
        self.op.parse_shared(&params).py(py)
    }

    /// Inputs given by name after a missing one must be where the operator, with these parameters,
    /// has them, and `None` only where it has none.
    pub fn check_gaps(&self, attrs: &Attrs, given: &[Option<Bound<'_, PyAny>>]) -> PyResult<()> {
        let is_given = |a: &Option<Bound<'_, PyAny>>| a.as_ref().is_some_and(|v| !v.is_none());
        let names = self.op.inputs(attrs);
        let arrays = self.inputs.iter().zip(given).filter(|g| is_given(g.1));
        if let Some(((name, _), missing)) = arrays.zip(&names).find(|((name, _), n)| name != n) {
            return Err(PyTypeError::new_err(format!(
                "{}() got the array '{name}' but not '{missing}', expected {}",
                self.name,
                listed(&names)
            )));
        }
        let mut absent = self.inputs.iter().zip(given).filter(|g| g.1.is_some() && !is_given(g.1));
        match absent.find(|(name, _)| names.contains(name)) {
            Some((name, _)) => Err(PyTypeError::new_err(format!(
                "{}() got None for the input '{name}', expected {}",
                self.name,
                listed(&names)
            ))),
            None => Ok(()),
        }
    }

    /// Puts the named arrays where the operator, with these parameters, has inputs of their names.
    pub fn place<'a, 'py>(
        &self,
        attrs: &Attrs,
        named: &'a [(String, Bound<'py, PyAny>)],
        inputs: &mut SmallVec<[&'a Bound<'py, PyNDArray>; 4]>,
    ) -> PyResult<()> {
        let names = self.op.inputs(attrs);
        if let Some((name, _)) = named.iter().find(|n| !names.contains(&n.0)) {
            return Err(PyTypeError::new_err(format!(
                "{}() got an unexpected array '{name}', its inputs are {}",
                self.name,
                listed(&names)
            )));
        }
        let mut positional = std::mem::take(inputs).into_iter();
        for name in &names {
            match named.iter().find(|n| n.0 == *name) {
                Some((_, array)) => inputs.push(array.cast::<PyNDArray>()?),
                None => inputs.extend(positional.next()),
            }
        }
        inputs.extend(positional);
        Ok(())
    }
}

/// Names for an error.
fn listed(names: &[String]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}
