//! The arguments of the functions of `rsnet.engine`, checked so that what is wrong is named by its
//! argument.

use super::convert::context_arg;
use super::coroutine::lazy_kind;
use super::engine_variable::Variable;
use super::error::{IntoPy, invalid, quoted, shown};
use super::runtime;
use crate::context::Context;
use crate::engine::{Prop, Var};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use smallvec::SmallVec;
use std::time::Duration;

pub type Vars = SmallVec<[Var; 4]>;

/// The user's list of variables, kept alive during the push. Any other iterable, such as a
/// generator that can be read only once, is turned into a tuple.
pub enum Listed<'a, 'py> {
    Nothing,
    List(&'a Bound<'py, PyList>),
    Tuple(&'a Bound<'py, PyTuple>),
    Made(Bound<'py, PyTuple>),
}

impl<'a, 'py> Listed<'a, 'py> {
    pub fn of(argument: &str, given: Option<&'a Bound<'py, PyAny>>) -> PyResult<Self> {
        let Some(given) = given else { return Ok(Listed::Nothing) };
        if let Ok(list) = given.cast() {
            return Ok(Listed::List(list));
        }
        match given.cast() {
            Ok(tuple) => Ok(Listed::Tuple(tuple)),
            Err(_) => made(argument, given).map(Listed::Made),
        }
    }

    /// The variables. (Item by item: an iterator, or to collect results, takes as long as the rest
    /// of a push.)
    pub fn vars(&self, argument: &str) -> PyResult<Vars> {
        let mut vars = Vars::new();
        self.each(|item| match item.cast::<Variable>() {
            Ok(v) => {
                vars.push(v.get().var());
                Ok(())
            }
            Err(_) => {
                let what = format!("item of {argument}");
                Err(PyTypeError::new_err(invalid(&what, shown(&item), "an engine variable")))
            }
        })?;
        Ok(vars)
    }

    /// Calls `f` with each item.
    #[inline]
    pub fn each(&self, mut f: impl FnMut(Bound<'py, PyAny>) -> PyResult<()>) -> PyResult<()> {
        let tuple = match self {
            Listed::Nothing => return Ok(()),
            Listed::List(list) => {
                return (0..list.len()).try_for_each(|i| f(list.get_item(i)?));
            }
            Listed::Tuple(tuple) => tuple,
            Listed::Made(tuple) => tuple,
        };
        (0..tuple.len()).try_for_each(|i| f(tuple.get_item(i)?))
    }
}

/// The items of an iterable.
#[cold]
fn made<'py>(argument: &str, given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = given.py();
    let is_iterable =
        || Ok::<_, PyErr>(given.hasattr("__iter__")? || given.hasattr("__getitem__")?);
    let items = match given.try_iter() {
        Ok(items) => items,
        // An exception of the iterable itself is passed on unchanged.
        Err(e) if !e.is_instance_of::<PyTypeError>(py) || is_iterable()? => return Err(e),
        Err(_) => {
            let text = invalid(argument, shown(given), "a list of engine variables");
            return Err(PyTypeError::new_err(text));
        }
    };
    PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)
}

/// The device; `cpu(0)` by default.
pub fn context(ctx: Option<&Bound<'_, PyAny>>) -> PyResult<Context> {
    let Some(ctx) = ctx else { return Ok(Context::default()) };
    let is_context = || Ok::<_, PyErr>(ctx.hasattr("device_typeid")? && ctx.hasattr("device_id")?);
    // Most often the function's arguments were mistaken for those of another call.
    if ctx.is_instance_of::<PyString>() || !is_context()? {
        let hint = match ctx.is_instance_of::<PyList>() || ctx.is_instance_of::<PyTuple>() {
            true => "; lists of variables come after it, as const_vars and mutate_vars",
            false => "",
        };
        let expected = format!("a Context, such as cpu(0), or None{hint}");
        return Err(PyTypeError::new_err(invalid("ctx", shown(ctx), expected)));
    }
    let given = ctx;
    let ctx = context_arg(Some(given))?;
    if !ctx.is_host() {
        runtime().cuda.device(ctx.device_id).map(drop).py(given.py())?;
    }
    Ok(ctx)
}

/// The property of that name.
pub fn prop_arg(prop: &Bound<'_, PyAny>) -> PyResult<Option<Prop>> {
    let text = text_arg(prop, "prop", "a text such as 'normal', or None")?;
    let Some(text) = &text else { return Ok(None) };
    Ok(Some(match text.to_str()? {
        "normal" => Prop::Normal,
        "copy_from_gpu" => Prop::CopyFromDevice,
        "copy_to_gpu" => Prop::CopyToDevice,
        "cpu_prioritized" => Prop::CpuPrioritized,
        "async" => Prop::Async,
        "delete_var" => Prop::DeleteVar,
        "gpu_prioritized" => Prop::GpuPrioritized,
        "no_skip" => Prop::NoSkip,
        other => {
            let expected = "one of: normal, copy_from_gpu, copy_to_gpu, cpu_prioritized, async, \
                            delete_var, gpu_prioritized, no_skip";
            return Err(PyValueError::new_err(invalid("prop", quoted(other), expected)));
        }
    }))
}

/// A priority, which the engine keeps in 32 bits.
pub fn priority_arg(priority: &Bound<'_, PyAny>) -> PyResult<i32> {
    priority.extract().map_err(|e: PyErr| {
        match e.is_instance_of::<PyOverflowError>(priority.py()) {
            true => {
                let expected = format!("a number from {} to {}", i32::MIN, i32::MAX);
                PyValueError::new_err(invalid("priority", shown(priority), expected))
            }
            false => PyTypeError::new_err(invalid("priority", shown(priority), "a whole number")),
        }
    })
}

/// The name of an operation.
pub fn name_arg<'py>(name: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyString>>> {
    text_arg(name, "name", "a text or None")
}

fn text_arg<'py>(
    value: &Bound<'py, PyAny>,
    argument: &str,
    expected: &str,
) -> PyResult<Option<Bound<'py, PyString>>> {
    if value.is_none() {
        return Ok(None);
    }
    let text = value.cast::<PyString>();
    let refused = |_| PyTypeError::new_err(invalid(argument, shown(value), expected));
    text.cloned().map(Some).map_err(refused)
}

/// The limit of a wait.
pub fn seconds_arg(seconds: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let Ok(n) = seconds.extract::<f64>() else {
        let text = invalid("seconds", shown(seconds), "a number, or None for no limit");
        return Err(PyTypeError::new_err(text));
    };
    Duration::try_from_secs_f64(n).map_err(|_| {
        let expected = "a number from 0 to 1e19, or None for no limit";
        PyValueError::new_err(invalid("seconds", shown(seconds), expected))
    })
}

/// A function that a call runs.
pub fn function_arg(function: &Bound<'_, PyAny>) -> PyResult<()> {
    if !function.is_callable() {
        return Err(PyTypeError::new_err(invalid("fn", shown(function), "a callable")));
    }
    match lazy_kind(function)? {
        None => Ok(()),
        Some(kind) => {
            let expected = format!("a function whose call does the work, not {kind}");
            Err(PyTypeError::new_err(invalid("fn", shown(function), expected)))
        }
    }
}
