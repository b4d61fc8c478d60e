//! Operator functions: one C builtin an operator, made at run time, with a text signature so that
//! `help()` and `inspect.signature` work. `self` of the builtin is the description of the function.

use super::arguments::{Arguments, Face, OpFunction};
use super::call_site::at_call_site;
use super::convert::{context_arg, parameter};
use super::error::{IntoPy, invalid, refused_by, shown, to_py};
use super::ndarray::PyNDArray;
use super::package::package;
use super::profiler::api;
use super::runtime;
use super::signature::documentation;
use super::thread_state::thread_state;
use crate::error::Error;
use crate::executor::autograd::{self, Tracked};
use crate::executor::imperative::Invoke;
use crate::operator::{Attrs, OpDef, Value};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use smallvec::SmallVec;
use std::ffi::CString;
use std::sync::Arc;

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

/// As [`call_named`] for an operator that was looked up before.
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

/// Runs an operator with these parameters; one output alone, several as a list.
pub fn run(
    py: Python<'_>,
    op: &Arc<OpDef>,
    attrs: &Arc<Attrs>,
    inputs: &[&Tracked],
    out: Option<&[&Tracked]>,
    ctx: crate::Context,
) -> PyResult<Py<PyAny>> {
    let _called = api(&op.name);
    let state = thread_state();
    let mut declined = None;
    if out.is_none() {
        match autograd::invoke_inline(op, attrs, inputs, state.recording) {
            Ok(tracked) => {
                return Ok(Bound::new(py, PyNDArray::from(tracked))?.into_any().unbind());
            }
            Err(reason) => declined = reason,
        }
    }
    let (is_train, recording) = (state.training, state.recording);
    let how = Invoke { ctx, is_train, recording, declined, ..Invoke::default() };
    let call = || autograd::invoke(runtime(), op, attrs, inputs, out, &how);
    wrap(py, at_call_site(call).py(py)?)
}

fn wrap(py: Python<'_>, outputs: SmallVec<[Tracked; 1]>) -> PyResult<Py<PyAny>> {
    let mut objects = outputs.into_iter().map(|tracked| Bound::new(py, PyNDArray::from(tracked)));
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

impl OpFunction {
    /// A call on arrays.
    fn call_on_arrays<'py>(&self, py: Python<'py>, args: Arguments<'py>) -> PyResult<Py<PyAny>> {
        let mut inputs: SmallVec<[&Bound<'py, PyNDArray>; 4]> = SmallVec::new();
        for (i, value) in args.inputs.iter().enumerate() {
            match value {
                Some(v) if !v.is_none() => match v.cast::<PyNDArray>() {
                    Ok(array) => inputs.push(array),
                    Err(_) => {
                        let name = self.inputs.get(i).map_or("data", String::as_str);
                        return Err(self.not_an_input(name, v));
                    }
                },
                _ => {}
            }
        }
        let attrs = self.attrs(py, &args, inputs.len() + args.named.len())?;
        if !args.named.is_empty() {
            self.place(&attrs, &args.named, &mut inputs)?;
        } else if args.inputs.len() > inputs.len() {
            self.check_gaps(&attrs, &args.inputs)?;
        }
        let tracked: SmallVec<[&Tracked; 4]> = inputs.iter().map(|a| a.get().tracked()).collect();
        let ctx = match (&args.ctx, attrs.value("ctx")) {
            (Some(ctx), _) => context_arg(Some(ctx))?,
            (None, Some(Value::Str(text))) if !text.is_empty() => {
                super::convert::context_from_text(text)?
            }
            _ => thread_state().ctx,
        };
        if inputs.is_empty() && !ctx.is_host() {
            runtime().cuda.device(ctx.device_id).map(drop).py(py)?;
        }
        let Some(out) = &args.out else {
            return run(py, &self.op, &attrs, &tracked, None, ctx);
        };
        let targets: Vec<Bound<'py, PyNDArray>> = match out.cast::<PyNDArray>() {
            Ok(one) => vec![one.clone()],
            Err(_) => out.extract().map_err(|_| {
                if let Some(error) = refused_by(out) {
                    return error;
                }
                let text = invalid("out", shown(out), "an NDArray or a list of NDArrays");
                PyTypeError::new_err(format!("{}: {text}", self.name))
            })?,
        };
        let targets: Vec<&Tracked> = targets.iter().map(|t| t.get().tracked()).collect();
        run(py, &self.op, &attrs, &tracked, Some(&targets), ctx)?;
        Ok(out.clone().unbind())
    }

    /// A call on symbols: the package makes the node, under the name and attributes of its scopes.
    fn call_on_symbols<'py>(&self, py: Python<'py>, args: Arguments<'py>) -> PyResult<Py<PyAny>> {
        let package = package(py)?;
        let positional = PyList::empty(py);
        let by_name = PyDict::new(py);
        // As many inputs as the signature shows have names; more, or any number, go by position.
        let has_names = !self.inputs.is_empty() && args.inputs.len() <= self.inputs.len();
        for (i, value) in args.inputs.iter().enumerate() {
            let Some(value) = value.as_ref().filter(|v| !v.is_none() || !has_names) else {
                continue;
            };
            let key = match self.inputs.get(i) {
                Some(name) => name.clone(),
                // Of several kinds (`Custom`), which only the parameters tell apart.
                None if self.inputs.is_empty() && self.op.key_var_num_args.is_none() => {
                    "data".to_owned()
                }
                None => i.to_string(),
            };
            if !package.is_symbol(value) {
                return Err(self.not_an_input(&key, value));
            }
            match has_names {
                true => by_name.set_item(key, value)?,
                false => positional.append(value)?,
            }
        }
        for (name, value) in &args.named {
            by_name.set_item(name, value)?;
        }
        if !positional.is_empty() && !by_name.is_empty() {
            return Err(PyTypeError::new_err(format!(
                "{}() only accepts input Symbols either as positional or keyword arguments, not \
                 both",
                self.name
            )));
        }
        let params = PyDict::new(py);
        for (name, value) in self.given_params(py, &args)? {
            params.set_item(name, value)?;
        }
        let hint = short_name(&self.name).to_lowercase();
        let node = (&self.name, hint, positional, by_name, params, args.node_name, args.attr);
        Ok(package.create_symbol(py, node)?.unbind())
    }
}

/// What an operator is called in the namespace that its name begins with, as `contrib`.
fn short_name(name: &str) -> &str {
    let sample_like = || name.strip_prefix("_random_").filter(|short| short.ends_with("_like"));
    let namespaces = ["_contrib_", "_linalg_", "_sparse_", "_image_"];
    namespaces.iter().find_map(|n| name.strip_prefix(n)).or_else(sample_like).unwrap_or(name)
}

/// The C function of every builtin.
///
/// # Safety
/// Python calls it by METH_FASTCALL | METH_KEYWORDS, with an [`OpFunction`] as `slf`.
unsafe extern "C" fn entry(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: ffi::Py_ssize_t,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls builtins attached to the interpreter.
    let py = unsafe { Python::assume_attached() };
    let call = || {
        // SAFETY: `self` is the description the builtin was made with; arguments are borrowed from
        // the caller for the time of the call, as the calling convention says.
        unsafe {
            let function = Bound::from_borrowed_ptr(py, slf).cast_into_unchecked::<OpFunction>();
            enter(py, function.get(), args, nargs as usize, kwnames)
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

/// Sorts the arguments of a call and runs it.
///
/// # Safety
/// The arguments must be those of a call by METH_FASTCALL | METH_KEYWORDS.
unsafe fn enter(
    py: Python<'_>,
    function: &OpFunction,
    args: *const *mut ffi::PyObject,
    nargs: usize,
    kwnames: *mut ffi::PyObject,
) -> PyResult<Py<PyAny>> {
    let mut sorted = Arguments::default();
    for i in 0..nargs {
        // SAFETY: the caller passes `nargs` valid objects.
        let value = unsafe { Bound::from_borrowed_ptr(py, *args.add(i)) };
        function.positional(&mut sorted, value, i)?;
    }
    if !kwnames.is_null() {
        // SAFETY: kwnames is a tuple of strings, one for each further argument.
        let names =
            unsafe { Bound::from_borrowed_ptr(py, kwnames).cast_into_unchecked::<PyTuple>() };
        for (i, key) in names.iter().enumerate() {
            // SAFETY: as above.
            let value = unsafe { Bound::from_borrowed_ptr(py, *args.add(nargs + i)) };
            function.by_keyword(&mut sorted, key.cast::<PyString>()?, value)?;
        }
    }
    function.settle(py, &mut sorted)?;
    match function.face {
        Face::Array => function.call_on_arrays(py, sorted),
        Face::Symbol => function.call_on_symbols(py, sorted),
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// The function of operator `name` as `function_name` of `module`: on symbols or on arrays.
#[pyfunction]
#[pyo3(signature = (name, function_name, module, symbol=false))]
fn make_function<'py>(
    py: Python<'py>,
    name: &str,
    function_name: &str,
    module: &Bound<'py, PyString>,
    symbol: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let op = runtime().registry.find(name).py(py)?;
    let doc = documentation(function_name, &op, symbol);
    let face = if symbol { Face::Symbol } else { Face::Array };
    let description = Bound::new(py, OpFunction::new(py, function_name, op, face))?;
    // A method definition must outlive its function, which may live as long as the process: leaked.
    let method = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: Box::leak(c_string(function_name).into_boxed_c_str()).as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: entry },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: Box::leak(c_string(&doc).into_boxed_c_str()).as_ptr(),
    }));
    // SAFETY: the definition is valid and lives for ever; `self` and module are live objects.
    unsafe {
        let function = ffi::PyCFunction_NewEx(method, description.as_ptr(), module.as_ptr());
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
    let op = runtime().registry.find(name).py(py)?;
    let mut values: Vec<(&str, Value)> = Vec::with_capacity(params.len());
    for (key, given) in &params {
        values.push((key, parameter(name, &op.schema, key, given)?));
    }
    let tracked: Vec<&Tracked> = inputs.iter().map(|a| a.get().tracked()).collect();
    let out: Option<Vec<&Tracked>> =
        out.as_ref().map(|o| o.iter().map(|a| a.get().tracked()).collect());
    call_op(py, &op, &values, &tracked, out.as_deref())
}

/// The error that `nd` raises for a value of an operator's parameter that has no text.
#[pyfunction]
fn check_parameter(
    py: Python<'_>,
    name: &str,
    key: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let op = runtime().registry.find(name).py(py)?;
    parameter(name, &op.schema, key, value).map(drop)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<OpFunction>()?;
    macro_rules! add {
        ($($f:ident),*) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)* };
    }
    add!(make_function, invoke, check_parameter);
    Ok(())
}
