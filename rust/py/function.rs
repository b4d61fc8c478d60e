//! Operator functions: one C builtin an operator, made at run time, with a text signature so that
//! `help()` and `inspect.signature` work. `self` of the builtin is the operator's description.

use super::autograd::thread_state;
use super::convert::{context_arg, to_value};
use super::error::{IntoPy, to_py};
use super::ndarray::PyNDArray;
use super::origin::at_user_line;
use super::package::package;
use super::profiler::api;
use super::runtime;
use crate::error::Error;
use crate::executor::autograd::{self, Tracked};
use crate::executor::imperative::Invoke;
use crate::operator::{Attrs, OpDef, Value, is_hidden};
use pyo3::exceptions::{PyAssertionError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use smallvec::SmallVec;
use std::ffi::CString;
use std::fmt::Write;
use std::sync::Arc;

/// What a builtin knows of its operator.
#[pyclass(frozen, module = "rsnet._core")]
pub struct OpInfo {
    name: String,
    op: Arc<OpDef>,
    /// Array arguments in order; empty for operators with any number of inputs.
    arrays: Vec<String>,
    /// Interned keywords, arrays first, then parameters: compared by address before by text.
    keywords: Vec<Py<PyString>>,
    variadic: bool,
}

/// Runs operator `name` for the binding itself; one output alone, several as a list.
pub fn call_named(
    py: Python<'_>,
    name: &str,
    params: &[(&str, Value)],
    inputs: &[&Tracked],
    out: Option<&[&Tracked]>,
) -> PyResult<Py<PyAny>> {
    let op = runtime().registry.find(name).py(py)?;
    call_op(py, &op, params, inputs, out)
}

/// As [`call_named`] for an operator that is at hand.
pub fn call_op(
    py: Python<'_>,
    op: &Arc<OpDef>,
    params: &[(&str, Value)],
    inputs: &[&Tracked],
    out: Option<&[&Tracked]>,
) -> PyResult<Py<PyAny>> {
    let attrs = op.parse_shared(params).py(py)?;
    run(py, op, &attrs, inputs, out, thread_state().ctx)
}

fn run(
    py: Python<'_>,
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[&Tracked],
    out: Option<&[&Tracked]>,
    ctx: crate::Context,
) -> PyResult<Py<PyAny>> {
    let _called = api(&op.name);
    let state = thread_state();
    if out.is_none()
        && let Some(tracked) = autograd::invoke_short(op, attrs, inputs, state.recording)
    {
        return Ok(Bound::new(py, PyNDArray { tracked })?.into_any().unbind());
    }
    let how =
        Invoke { ctx, is_train: state.training, recording: state.recording, ..Invoke::default() };
    let call = || autograd::invoke(runtime(), op, attrs, inputs, out, &how);
    wrap(py, at_user_line(call).py(py)?)
}

fn wrap(py: Python<'_>, outputs: SmallVec<[Tracked; 1]>) -> PyResult<Py<PyAny>> {
    let mut objects = outputs.into_iter().map(|tracked| Bound::new(py, PyNDArray { tracked }));
    match (objects.len(), objects.next()) {
        (1, Some(one)) => Ok(one?.into_any().unbind()),
        (_, Some(first)) => {
            let list = PyList::new(py, [first?])?;
            for object in objects {
                list.append(object?)?;
            }
            Ok(list.into_any().unbind())
        }
        (_, None) => Ok(PyList::empty(py).into_any().unbind()),
    }
}

/// The arguments of one call, sorted.
#[derive(Default)]
struct Arguments<'py> {
    arrays: SmallVec<[Option<Bound<'py, PyAny>>; 4]>,
    params: SmallVec<[(usize, Bound<'py, PyAny>); 4]>,
    /// Parameters that the schema does not know, by name.
    unknown: Vec<(String, Bound<'py, PyAny>)>,
    /// Arrays under names that the signature does not show: the operator decides by its parameters.
    named: Vec<(String, Bound<'py, PyAny>)>,
    out: Option<Bound<'py, PyAny>>,
    ctx: Option<Bound<'py, PyAny>>,
}

impl OpInfo {
    fn new(py: Python<'_>, name: &str, op: Arc<OpDef>) -> Self {
        let (variadic, arrays) = (is_variadic(&op), array_arguments(&op));
        let keywords = arrays
            .iter()
            .chain(op.schema.fields.iter().map(|f| &f.name))
            .map(|k| PyString::intern(py, k).unbind())
            .collect();
        OpInfo { name: name.to_owned(), op, arrays, keywords, variadic }
    }

    fn keyword(&self, name: &Bound<'_, PyString>) -> Option<usize> {
        let same = |k: &Py<PyString>| k.as_ptr() == name.as_ptr();
        self.keywords.iter().position(same).or_else(|| {
            let text = name.to_str().ok()?;
            let names = self.arrays.iter().chain(self.op.schema.fields.iter().map(|f| &f.name));
            names.into_iter().position(|k| k == text)
        })
    }

    fn given_twice(&self, key: &Bound<'_, PyString>) -> PyErr {
        PyTypeError::new_err(format!("{}() got multiple values for argument '{key}'", self.name))
    }

    fn keyword_argument<'py>(
        &self,
        args: &mut Arguments<'py>,
        key: &Bound<'py, PyString>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        match self.keyword(key) {
            Some(i) if i < self.arrays.len() => {
                if args.arrays.get(i).is_some_and(Option::is_some) {
                    return Err(self.given_twice(key));
                }
                while args.arrays.len() <= i {
                    args.arrays.push(None);
                }
                args.arrays[i] = Some(value);
            }
            Some(i) => {
                let field = i - self.arrays.len();
                if args.params.iter().any(|p| p.0 == field) {
                    return Err(self.given_twice(key));
                }
                args.params.push((field, value));
            }
            None => match key.to_str()? {
                "out" => args.out = Some(value).filter(|v| !v.is_none()),
                "ctx" => args.ctx = Some(value),
                "name" => {}
                // One array is one input: of several kinds (`Custom`), by its name.
                "data" if self.variadic && value.is_instance_of::<PyNDArray>() => {
                    match self.op.key_var_num_args {
                        Some(_) => args.arrays.push(Some(value)),
                        None => args.named.push(("data".to_owned(), value)),
                    }
                }
                "data" if self.variadic => {
                    if !args.arrays.is_empty() {
                        return Err(self.given_twice(key));
                    }
                    args.arrays =
                        value.try_iter()?.map(|v| v.map(Some)).collect::<PyResult<_>>()?;
                }
                other if value.is_instance_of::<PyNDArray>() => {
                    args.named.push((other.to_owned(), value));
                }
                other => args.unknown.push((other.to_owned(), value)),
            },
        }
        Ok(())
    }

    /// Is positional argument `i`, which stands where a parameter does, an array? Then the operator has
    /// more inputs with other parameters than its signature shows.
    fn takes(&self, value: &Bound<'_, PyAny>, i: usize) -> bool {
        i - self.arrays.len() < self.op.schema.fields.len().max(1)
            && !self.op.schema.fields.is_empty()
            && value.is_instance_of::<PyNDArray>()
    }

    fn positional<'py>(
        &self,
        args: &mut Arguments<'py>,
        value: Bound<'py, PyAny>,
        i: usize,
    ) -> PyResult<()> {
        if self.variadic {
            // `Concat(a, b)` and `Concat([a, b])` are the same.
            if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
                for item in value.try_iter()? {
                    args.arrays.push(Some(item?));
                }
            } else {
                args.arrays.push(Some(value));
            }
        } else if i < self.arrays.len()
            || (args.params.is_empty() && args.out.is_none() && self.takes(&value, i))
        {
            args.arrays.push(Some(value));
        } else if i - self.arrays.len() < self.op.schema.fields.len() {
            args.params.push((i - self.arrays.len(), value));
        } else if i - self.arrays.len() == self.op.schema.fields.len() {
            args.out = Some(value).filter(|v| !v.is_none());
        } else {
            return Err(PyTypeError::new_err(format!(
                "{}() takes at most {} positional arguments",
                self.name,
                self.arrays.len() + self.op.schema.fields.len() + 2
            )));
        }
        Ok(())
    }

    fn attrs(&self, py: Python<'_>, args: &Arguments<'_>, n_inputs: usize) -> PyResult<Arc<Attrs>> {
        let fields = &self.op.schema.fields;
        let mut params: SmallVec<[(&str, Value); 6]> = SmallVec::new();
        for (i, value) in &args.params {
            if is_null(value) {
                continue;
            }
            let field = &fields[*i];
            let value = match field.name.as_str() {
                "dtype" if !value.is_none() => match value.cast::<PyString>() {
                    Ok(_) => to_value(value)?,
                    Err(_) => Value::Str(super::convert::dtype_arg(value)?.name().to_owned()),
                },
                _ => to_value(value)?,
            };
            params.push((&field.name, value));
        }
        for (name, value) in &args.unknown {
            if !is_null(value) && !is_hidden(name) {
                params.push((name, to_value(value)?));
            }
        }
        if let Some(count) = self.op.key_var_num_args.as_deref()
            && !params.iter().any(|p| p.0 == count)
        {
            params.push((count, Value::Int(n_inputs as i64)));
        }
        self.op.parse_shared(&params).py(py)
    }

    /// Arrays given by name behind one that is missing must be where the operator, with these parameters, has them.
    fn check_gaps(&self, attrs: &Attrs, given: &[Option<Bound<'_, PyAny>>]) -> PyResult<()> {
        let is_given = |a: &Option<Bound<'_, PyAny>>| a.as_ref().is_some_and(|v| !v.is_none());
        let names = self.op.inputs(attrs);
        let given = self.arrays.iter().zip(given).filter(|g| is_given(g.1));
        if let Some(((name, _), missing)) = given.zip(&names).find(|((name, _), n)| name != n) {
            return Err(PyTypeError::new_err(format!(
                "{}() got the array '{name}' but not '{missing}', its inputs are {}",
                self.name,
                names.join(", ")
            )));
        }
        Ok(())
    }

    /// Puts the named arrays where the operator, with these parameters, has inputs of their names.
    fn place<'a, 'py>(
        &self,
        attrs: &Attrs,
        named: &'a [(String, Bound<'py, PyAny>)],
        inputs: &mut SmallVec<[&'a Bound<'py, PyNDArray>; 4]>,
    ) -> PyResult<()> {
        let names = self.op.inputs(attrs);
        if let Some((name, _)) = named.iter().find(|n| !names.contains(&n.0)) {
            let known = names.join(", ");
            return Err(PyTypeError::new_err(format!(
                "{}() got an unexpected array '{name}', its inputs are {known}",
                self.name
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

    fn invoke<'py>(&self, py: Python<'py>, args: Arguments<'py>) -> PyResult<Py<PyAny>> {
        let mut inputs: SmallVec<[&Bound<'py, PyNDArray>; 4]> = SmallVec::new();
        for (i, value) in args.arrays.iter().enumerate() {
            match value {
                Some(v) if !v.is_none() => match v.cast::<PyNDArray>() {
                    Ok(array) => inputs.push(array),
                    Err(_) => {
                        let name = self.arrays.get(i).map_or("data", String::as_str);
                        return Err(PyAssertionError::new_err(format!(
                            "Argument {name} must have NDArray type, but got {}",
                            v.str()? // what stands for an array of another place raises its own error
                        )));
                    }
                },
                _ => {}
            }
        }
        let attrs = self.attrs(py, &args, inputs.len() + args.named.len())?;
        if !args.named.is_empty() {
            self.place(&attrs, &args.named, &mut inputs)?;
        } else if args.arrays.len() > inputs.len() {
            self.check_gaps(&attrs, &args.arrays)?;
        }
        let tracked: SmallVec<[&Tracked; 4]> = inputs.iter().map(|a| &a.get().tracked).collect();
        let ctx = match (&args.ctx, attrs.value("ctx")) {
            (Some(ctx), _) => context_arg(Some(ctx))?,
            (None, Some(Value::Str(text))) if !text.is_empty() => {
                super::convert::context_from_text(text)?
            }
            _ => thread_state().ctx,
        };
        if inputs.is_empty() && !ctx.is_host() {
            return Err(super::ndarray::no_device(py, ctx));
        }
        let Some(out) = &args.out else {
            return run(py, &self.op, &attrs, &tracked, None, ctx);
        };
        let targets: Vec<Bound<'py, PyNDArray>> = match out.cast::<PyNDArray>() {
            Ok(one) => vec![one.clone()],
            Err(_) => out.extract().map_err(|_| {
                PyTypeError::new_err("out must be an NDArray or a list of NDArrays")
            })?,
        };
        let targets: Vec<&Tracked> = targets.iter().map(|t| &t.get().tracked).collect();
        run(py, &self.op, &attrs, &tracked, Some(&targets), ctx)?;
        Ok(out.clone().unbind())
    }
}

/// Is it the marker of a parameter that was not given?
fn is_null(value: &Bound<'_, PyAny>) -> bool {
    package(value.py()).is_ok_and(|p| p.is_null(value))
}

/// The C function behind every builtin.
unsafe extern "C" fn entry(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls builtins attached to the interpreter.
    let py = unsafe { Python::assume_attached() };
    let call = || {
        // SAFETY: `self` is the description the builtin was made with; arguments are borrowed from the
        // caller for the time of the call, as the calling convention says.
        unsafe {
            let info = Bound::from_borrowed_ptr(py, slf).cast_into_unchecked::<OpInfo>();
            enter(py, info.get(), args, nargs as usize, kwnames)
        }
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call))
        .unwrap_or_else(|panic| Err(to_py(py, &Error::from_panic(panic))));
    match result {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// The arguments must be those of a call by METH_FASTCALL | METH_KEYWORDS.
unsafe fn enter(
    py: Python<'_>,
    info: &OpInfo,
    args: *const *mut ffi::PyObject,
    nargs: usize,
    kwnames: *mut ffi::PyObject,
) -> PyResult<Py<PyAny>> {
    let mut sorted = Arguments::default();
    for i in 0..nargs {
        // SAFETY: the caller passes `nargs` valid objects.
        let value = unsafe { Bound::from_borrowed_ptr(py, *args.add(i)) };
        info.positional(&mut sorted, value, i)?;
    }
    if !kwnames.is_null() {
        // SAFETY: kwnames is a tuple of strings, one for each further argument.
        let names =
            unsafe { Bound::from_borrowed_ptr(py, kwnames).cast_into_unchecked::<PyTuple>() };
        for (i, key) in names.iter().enumerate() {
            // SAFETY: as above.
            let value = unsafe { Bound::from_borrowed_ptr(py, *args.add(nargs + i)) };
            info.keyword_argument(&mut sorted, key.cast::<PyString>()?, value)?;
        }
    }
    info.invoke(py, sorted)
}

/// Signature and documentation of an operator's function. `kind` is `nd` or `sym`.
pub fn documentation(name: &str, op: &OpDef, arrays: &[String], symbol: bool) -> String {
    let mut text = String::from(name);
    text.push('(');
    if is_variadic(op) {
        text.push_str("*data, ");
    }
    for a in arrays.iter().filter(|a| is_showable(a)) {
        let _ = write!(text, "{a}=None, ");
    }
    for f in op.schema.fields.iter().filter(|f| is_showable(&f.name)) {
        if op.key_var_num_args.as_deref() != Some(&f.name) {
            let _ = write!(text, "{}=_Null, ", f.name);
        }
    }
    text.push_str(if symbol { "name=None, attr=None, out=None" } else { "out=None, name=None" });
    text.push_str(", **kwargs)\n--\n\n");
    text.push_str(&op.doc);
    text.push_str("\n\nParameters\n----------\n");
    for d in &op.input_docs {
        let ty = d.ty.replace("NDArray-or-Symbol", if symbol { "Symbol" } else { "NDArray" });
        let _ = writeln!(text, "{} : {ty}\n    {}", d.name, d.doc);
    }
    for f in &op.schema.fields {
        let _ = writeln!(text, "{} : {}\n    {}", f.name, f.info(), f.doc);
    }
    if symbol {
        text.push_str("name : string, optional\n    Name of the resulting symbol.\n");
        text.push_str("\nReturns\n-------\nSymbol\n    The result symbol.\n");
    } else {
        text.push_str("out : NDArray, optional\n    The output NDArray to hold the result.\n");
        text.push_str("\nReturns\n-------\nout : NDArray or list of NDArrays\n    The output of this function.\n");
    }
    text
}

/// Can Python show the name in a signature? (Not `in`, not `lambda`: such arguments go by position or `**`.)
fn is_showable(name: &str) -> bool {
    const KEYWORDS: &str = " False None True and as assert async await break class continue def del elif \
                            else except finally for from global if import in is lambda nonlocal not or \
                            pass raise return try while with yield ";
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word)
        && name.starts_with(|c: char| !c.is_ascii_digit())
        && !KEYWORDS.contains(&format!(" {name} "))
}

/// Does the operator take any number of arrays?
pub fn is_variadic(op: &OpDef) -> bool {
    op.key_var_num_args.is_some() || op.input_docs.iter().any(|d| d.ty.ends_with("[]"))
}

/// The array arguments of an operator, as its functions show them; none if it takes any number.
pub fn array_arguments(op: &OpDef) -> Vec<String> {
    if is_variadic(op) {
        return Vec::new();
    }
    if !op.input_docs.is_empty() {
        return op.input_docs.iter().map(|d| d.name.clone()).collect();
    }
    op.parse(&[]).map(|attrs| op.inputs(&attrs)).unwrap_or_default()
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// The function of operator `name` as `function_name` of `module`.
#[pyfunction]
fn make_function<'py>(
    py: Python<'py>,
    name: &str,
    function_name: &str,
    module: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let op = runtime().registry.find(name).py(py)?;
    let info = Bound::new(py, OpInfo::new(py, function_name, op.clone()))?;
    let doc = documentation(function_name, &op, &info.get().arrays, false);
    // A method definition must outlive its function, which may live as long as the process: leaked.
    let method = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: Box::leak(c_string(function_name).into_boxed_c_str()).as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: entry },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: Box::leak(c_string(&doc).into_boxed_c_str()).as_ptr(),
    }));
    // SAFETY: the definition is valid and lives for ever; `self` and module are live objects.
    unsafe {
        let function = ffi::PyCFunction_NewEx(method, info.as_ptr(), module.as_ptr());
        Bound::from_owned_ptr_or_err(py, function)
    }
}

/// Runs an operator by name: `invoke(name, inputs, params, out=None)`.
#[pyfunction]
#[pyo3(signature = (name, inputs, params, out=None))]
fn invoke(
    py: Python<'_>,
    name: &str,
    inputs: Vec<Bound<'_, PyNDArray>>,
    params: Vec<(String, Bound<'_, PyAny>)>,
    out: Option<Vec<Bound<'_, PyNDArray>>>,
) -> PyResult<Py<PyAny>> {
    let values: Vec<(&str, Value)> =
        params.iter().map(|(k, v)| Ok((k.as_str(), to_value(v)?))).collect::<PyResult<_>>()?;
    let tracked: Vec<&Tracked> = inputs.iter().map(|a| &a.get().tracked).collect();
    let out: Option<Vec<&Tracked>> =
        out.as_ref().map(|o| o.iter().map(|a| &a.get().tracked).collect());
    call_named(py, name, &values, &tracked, out.as_deref())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<OpInfo>()?;
    macro_rules! add {
        ($($f:ident),*) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)* };
    }
    add!(make_function, invoke);
    Ok(())
}
