//! Python objects to the core's vocabulary and back: values, shapes, dtypes, contexts, NumPy
//! arrays.

use super::call_python::CallPython;
use super::error::{invalid, quoted, shown, to_py};
use super::once_cell::{OnceCell, interned};
use super::package::package;
use crate::context::{Context, DeviceType};
use crate::dtype::DType;
use crate::error::Error;
use crate::operator::{Schema, Value};
use crate::shape::Shape;
use crate::tensor::View;
use crate::with_dtype;
use numpy::npyffi::{self, NPY_ARRAY_WRITEABLE, PY_ARRAY_API};
use numpy::{PyArrayDescrMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use std::os::raw::c_int;

/// The value of parameter `name` of an operator or struct `of`, as [`to_value`] makes it. The error
/// of a value that cannot be taken names both, and says what `schema` expects.
pub fn parameter(of: &str, schema: &Schema, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<Value> {
    let field = || schema.fields.iter().find(|field| field.name == name);
    let is_type = obj.is_instance_of::<PyType>();
    let is_none_or_text = || obj.is_none() || obj.is_instance_of::<PyString>();
    // Most parameters are neither, and are not looked up.
    let may_be_dtype = is_type || name == "dtype" && !is_none_or_text();
    let is_dtype = may_be_dtype && field().is_some_and(|field| field.ty.is_dtype());
    let as_dtype = || dtype_arg(obj).map(|dtype| Value::Str(dtype.name().to_owned()));
    let value = if is_dtype {
        as_dtype()
    } else if may_be_dtype && field().is_none() {
        // Where parameters are open, what is no dtype is any other value.
        as_dtype().or_else(|_| match is_type {
            true => Ok(Value::Str(obj.str()?.to_str()?.to_owned())),
            false => to_value(obj),
        })
    } else {
        to_value(obj)
    };
    let py = obj.py();
    // What only has a text, as bytes and sets do, is no number and no tuple.
    if let Ok(Value::Str(_)) = value
        && !obj.is_instance_of::<PyString>()
        && !obj.is_instance_of::<PyInt>()
        && let Some(field) = field().filter(|field| !field.ty.is_text())
        && value.as_ref().is_ok_and(|value| field.ty.coerce(value).is_none())
    {
        let refusal = Error::type_(invalid(name, shown(obj), field.expected()));
        return Err(to_py(py, &refusal.in_operator(of)));
    }
    value.map_err(|error| {
        if !is_mistake(py, &error) {
            return error;
        }
        let refusal = match field() {
            Some(_) if is_dtype => Error::type_(invalid(name, shown(obj), DType::known())),
            Some(field) => Error::parameter(invalid(name, shown(obj), field.expected())),
            None => Error::parameter(invalid(name, shown(obj), "a value that has a text")),
        };
        with_cause(py, to_py(py, &refusal.in_operator(of)), error)
    })
}

/// A parameter as Python wrote it. Anything that is not a plain value is taken by its `str`, except
/// types and dtypes, which are taken by their name.
pub fn to_value(obj: &Bound<'_, PyAny>) -> PyResult<Value> {
    if obj.is_none() {
        Ok(Value::None)
    } else if let Ok(text) = obj.cast::<PyString>() {
        Ok(Value::Str(text.to_str()?.to_owned()))
    } else if obj.is_instance_of::<PyBool>() {
        Ok(Value::Bool(obj.is_truthy()?))
    } else if obj.is_instance_of::<PyInt>() {
        match obj.extract::<i64>() {
            Ok(i) => Ok(Value::Int(i)),
            Err(_) => Ok(Value::Str(obj.str()?.to_str()?.to_owned())),
        }
    } else if obj.is_instance_of::<PyFloat>() {
        Ok(Value::Float(obj.extract()?))
    } else if obj.is_instance_of::<PyTuple>() || obj.is_instance_of::<PyList>() {
        obj.try_iter()?.map(|item| to_value(&item?)).collect::<PyResult<_>>().map(Value::List)
    } else if obj.is_instance_of::<PyType>() {
        Ok(Value::Str(dtype_arg(obj)?.name().to_owned()))
    } else {
        other_value(obj)
    }
}

fn other_value(obj: &Bound<'_, PyAny>) -> PyResult<Value> {
    let class = obj.get_type();
    if class.module().is_ok_and(|m| m.to_string_lossy().starts_with("numpy")) {
        if let Ok(flag) = obj.getattr(interned!(obj.py(), "name")) {
            return Ok(Value::Str(flag.str()?.to_str()?.to_owned())); // a numpy.dtype
        }
        if let Ok(item) = obj.call_method0("tolist") {
            return to_value(&item); // a NumPy scalar or a small array
        }
    }
    if let Ok(i) = obj.call_method0("__index__") {
        return to_value(&i);
    }
    Ok(Value::Str(obj.str()?.to_str()?.to_owned()))
}

/// A value in normal form as Python shows it.
pub fn from_value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::None => py.None().into_bound(py),
        Value::Bool(b) => PyBool::new(py, *b).to_owned().into_any(),
        Value::Int(i) => i.into_pyobject(py)?.into_any(),
        Value::UInt(i) => i.into_pyobject(py)?.into_any(),
        Value::Float(x) => x.into_pyobject(py)?.into_any(),
        Value::Str(s) => PyString::new(py, s).into_any(),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(|v| from_value(py, v)).collect::<PyResult<_>>()?;
            PyTuple::new(py, items)?.into_any()
        }
    })
}

/// A shape from an integer or a sequence of integers; 0 is an empty axis.
pub fn shape_arg(obj: &Bound<'_, PyAny>) -> PyResult<Shape> {
    if let Ok(n) = obj.extract::<i64>() {
        return Ok(Shape::new(&[n]));
    }
    let dims: Vec<i64> = obj.extract().map_err(|_| {
        PyTypeError::new_err(invalid("shape", shown(obj), "an int or a tuple of ints"))
    })?;
    Ok(Shape::new(&dims))
}

pub fn shape_to_py<'py>(py: Python<'py>, shape: &Shape) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, shape.dims())
}

/// A dtype by name, NumPy type, `numpy.dtype` or Python type; `None` is float32.
pub fn dtype_arg(obj: &Bound<'_, PyAny>) -> PyResult<DType> {
    if obj.is_none() {
        return Ok(DType::F32);
    }
    let py = obj.py();
    if let Some(found) = obj.cast::<PyString>().ok().and_then(|s| {
        let text = s.to_str().ok()?;
        DType::from_name(text).ok()
    }) {
        return Ok(found);
    }
    if let Some(at) = numpy_types(py)?.iter().position(|t| obj.is(t)) {
        return Ok(DType::ALL[at]);
    }
    static DTYPE: OnceCell<Py<PyAny>> = OnceCell::new();
    let numpy = DTYPE
        .get_or_try_init(py, || Ok::<_, PyErr>(py.import("numpy")?.getattr("dtype")?.unbind()))?;
    let name = numpy
        .bind(py)
        .call_python((obj,))
        .and_then(|dtype| dtype.getattr(interned!(py, "name"))?.extract::<String>());
    match name {
        Ok(name) => DType::from_name(&name).map_err(|e| to_py(py, &e)),
        Err(error) if is_mistake(py, &error) => {
            let text = invalid("dtype", shown(obj), DType::known());
            Err(with_cause(py, PyTypeError::new_err(text), error))
        }
        Err(error) => Err(error),
    }
}

/// Returns true for what a bad value raises, unlike an interrupt.
fn is_mistake(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
}

fn with_cause(py: Python<'_>, error: PyErr, cause: PyErr) -> PyErr {
    error.set_cause(py, Some(cause));
    error
}

/// NumPy's type class, `numpy.float32` ...
pub fn dtype_to_py(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    Ok(numpy_types(py)?[dtype as usize].bind(py).clone())
}

/// NumPy's type classes in the order of [`DType::ALL`], which is that of the discriminants.
fn numpy_types(py: Python<'_>) -> PyResult<&'static [Py<PyAny>]> {
    static TYPES: OnceCell<Vec<Py<PyAny>>> = OnceCell::new();
    let types = TYPES.get_or_try_init(py, || {
        let dtype = py.import("numpy")?.getattr("dtype")?;
        DType::ALL
            .iter()
            .map(|d| Ok::<_, PyErr>(dtype.call1((d.name(),))?.getattr("type")?.unbind()))
            .collect()
    })?;
    Ok(types)
}

/// The names of devices, for messages.
pub const DEVICES: &str = "one of: cpu, gpu, cpu_pinned, cpu_shared";

/// A `Context`, its text (`cpu(0)`, `gpu`), or `None` for the thread's default.
pub fn context_arg(obj: Option<&Bound<'_, PyAny>>) -> PyResult<Context> {
    let Some(obj) = obj.filter(|o| !o.is_none()) else {
        return Ok(super::thread_state::thread_state().ctx);
    };
    if let Ok(text) = obj.cast::<PyString>() {
        return context_from_text(text.to_str()?);
    }
    let expected = "a Context, such as cpu(0)";
    let fail = || PyTypeError::new_err(invalid("context", shown(obj), expected));
    let py = obj.py();
    let kind: i32 = obj.getattr(interned!(py, "device_typeid")).map_err(|_| fail())?.extract()?;
    let device_id: i32 = obj.getattr(interned!(py, "device_id")).map_err(|_| fail())?.extract()?;
    let device_type = DeviceType::from_id(kind).ok_or_else(fail)?;
    Ok(Context { device_type, device_id })
}

/// `cpu(0)`, `gpu(1)` or a bare device name.
pub fn context_from_text(text: &str) -> PyResult<Context> {
    let fail = || PyValueError::new_err(invalid("context", quoted(text), "e.g. 'cpu(0)'"));
    let (name, id) = match text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        Some((name, id)) => (name, id.trim().parse().map_err(|_| fail())?),
        None => (text, 0),
    };
    let device_type = DeviceType::from_name(name).ok_or_else(fail)?;
    Ok(Context { device_type, device_id: id })
}

pub fn context_to_py(py: Python<'_>, ctx: Context) -> PyResult<Bound<'_, PyAny>> {
    package(py)?.context(py, ctx.device_type.name(), ctx.device_id)
}

/// Fills the cells of the bindings' libraries now: a child forked while another thread fills one
/// could never use it (see [`OnceCell`]).
pub fn load_numpy(py: Python<'_>) -> PyResult<()> {
    py.get_type::<PyInt>().module()?;
    for dtype in DType::ALL {
        let array = numpy_empty(py, &Shape::from([1].as_slice()), dtype)?;
        view_of_numpy(array.cast()?)?;
    }
    let positions = numpy_empty(py, &Shape::from([1].as_slice()), DType::I64)?;
    positions.extract::<PyReadonlyArray1<'_, i64>>()?;
    Ok(())
}

/// NumPy's descriptor of `dtype`.
fn descr(py: Python<'_>, dtype: DType) -> Bound<'_, numpy::PyArrayDescr> {
    with_dtype!(dtype, T => numpy::dtype::<T>(py))
}

/// An uninitialised NumPy array of its own memory.
pub fn numpy_empty<'py>(
    py: Python<'py>,
    shape: &Shape,
    dtype: DType,
) -> PyResult<Bound<'py, PyAny>> {
    let mut dims: Vec<npyffi::npy_intp> = shape.dims().iter().map(|&d| d as _).collect();
    // SAFETY: the dims and the descriptor are valid; NewFromDescr steals the descriptor's
    // reference.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, npyffi::NpyTypes::PyArray_Type),
            descr(py, dtype).into_ptr().cast(),
            dims.len() as c_int,
            dims.as_mut_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
            std::ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)
    }
}

/// A NumPy array over the bytes of `view`; `owner` becomes its base and keeps the memory alive.
///
/// # Safety
/// The bytes must be valid for as long as `owner` lives.
pub unsafe fn numpy_view<'py>(
    view: &View,
    owner: Bound<'py, PyAny>,
    writable: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = owner.py();
    let mut dims: Vec<npyffi::npy_intp> = view.dims().iter().map(|&d| d as _).collect();
    // SAFETY: the view describes a row-major block; NewFromDescr and SetBaseObject steal one
    // reference.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, npyffi::NpyTypes::PyArray_Type),
            descr(py, view.dtype()).into_ptr().cast(),
            dims.len() as c_int,
            dims.as_mut_ptr(),
            std::ptr::null_mut(),
            view.ptr().cast(),
            if writable { NPY_ARRAY_WRITEABLE } else { 0 },
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        let base: *mut ffi::PyObject = owner.into_ptr();
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base) < 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array)
    }
}

/// A C-contiguous NumPy array of a supported dtype as a view of its bytes.
pub fn view_of_numpy(array: &Bound<'_, PyUntypedArray>) -> PyResult<View> {
    if !array.is_c_contiguous() {
        let got = format!("of shape {:?}", array.shape());
        return Err(PyValueError::new_err(invalid("NumPy array", got, "a C-contiguous one")));
    }
    let name: DType = dtype_of_numpy(array)?;
    let shape: Shape = array.shape().iter().copied().collect();
    // SAFETY: reading the data pointer of a live array.
    let ptr = unsafe { (*array.as_array_ptr()).fields.data }.cast::<u8>();
    // SAFETY: NumPy holds the whole C-contiguous block; the caller keeps the array alive.
    Ok(unsafe { View::new(ptr, shape, name) })
}

fn dtype_of_numpy(array: &Bound<'_, PyUntypedArray>) -> PyResult<DType> {
    let d = array.dtype();
    let known = match (d.kind(), d.itemsize()) {
        (b'f', 4) => Some(DType::F32),
        (b'f', 8) => Some(DType::F64),
        (b'f', 2) => Some(DType::F16),
        (b'u', 1) => Some(DType::U8),
        (b'i', 1) => Some(DType::I8),
        (b'i', 4) => Some(DType::I32),
        (b'i', 8) => Some(DType::I64),
        (b'b', 1) => Some(DType::Bool),
        _ => None,
    };
    if d.byteorder() == if cfg!(target_endian = "little") { b'>' } else { b'<' } {
        let expected = "the byte order of this machine: convert the array with astype";
        return Err(PyTypeError::new_err(invalid("dtype of a NumPy array", shown(&d), expected)));
    }
    known.map_or_else(|| dtype_arg(d.as_any()), Ok)
}
