//! DLPack: memory handed over without a copy, as capsules of the 0.2 layout.
//!
//! A capsule named `dltensor` owns a `DLManagedTensor`; the consumer renames the
//! capsule to `used_dltensor` and calls the tensor's deleter when done.

use super::error::{IntoPy, invalid, poll_signals, shown};
use super::ndarray::PyNDArray;
use super::runtime;
use crate::context::Context;
use crate::cuda::Lent;
use crate::dtype::DType;
use crate::ndarray::NDArray;
use crate::shape::{Dims, Shape};
use pyo3::exceptions::{PyAssertionError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::any::Any;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// The owner of an exported tensor's memory, after `managed` in one allocation.
#[repr(C)]
struct Exported {
    managed: Managed,
    shape: Dims,
    array: NDArray,
}

const FRESH: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";

fn kind_of(dtype: DType) -> (u8, u8) {
    match dtype {
        DType::I8 | DType::I32 | DType::I64 => (0, dtype.size() as u8 * 8),
        DType::U8 => (1, 8),
        DType::F16 | DType::F32 | DType::F64 => (2, dtype.size() as u8 * 8),
        DType::Bool => (1, 1),
    }
}

fn dtype_of(code: u8, bits: u8) -> Option<DType> {
    match (code, bits) {
        (6, 8) => Some(DType::Bool), // its code in later versions
        _ => DType::ALL.into_iter().find(|d| kind_of(*d) == (code, bits)),
    }
}

/// Frees an exported tensor: the deleter that consumers call.
///
/// # Safety
/// `managed` comes from [`to_dlpack`] and is not used afterwards.
unsafe extern "C" fn delete_exported(managed: *mut Managed) {
    // SAFETY: `managed` is the first field of an `Exported` that `to_dlpack` boxed; called once.
    drop(unsafe { Box::from_raw(managed.cast::<Exported>()) });
}

/// Destroys a capsule, with its tensor unless a consumer took that.
///
/// # Safety
/// Called by Python, with a live capsule and the interpreter attached.
unsafe extern "C" fn destroy_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes a live capsule; only one that is still fresh owns its tensor.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, FRESH.as_ptr()) == 0 {
            return;
        }
        let managed = ffi::PyCapsule_GetPointer(capsule, FRESH.as_ptr()).cast::<Managed>();
        if let Some(delete) = (*managed).deleter {
            delete(managed);
        }
    }
}

/// A capsule over the array's memory, after its pending writes (and reads, if `write`).
#[pyfunction]
fn to_dlpack<'py>(array: &Bound<'py, PyNDArray>, write: bool) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let inner = array.get().array();
    if write && inner.needs_wait() {
        py.detach(|| inner.wait_to_write(&mut poll_signals)).py(py)?;
    }
    super::ndarray::wait_to_read(py, inner)?;
    inner.readable().py(py)?;
    inner.lend();
    let (code, bits) = kind_of(inner.dtype());
    let mut exported = Box::new(Exported {
        managed: Managed {
            tensor: Tensor {
                data: inner.view().py(py)?.ptr().cast(),
                device_type: inner.context().device_type as i32,
                device_id: inner.context().device_id,
                ndim: inner.shape().ndim() as i32,
                code,
                bits,
                lanes: 1,
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete_exported),
        },
        shape: inner.shape().dims().into(),
        array: inner.clone(),
    });
    exported.managed.tensor.shape = exported.shape.as_mut_ptr();
    let pointer = Box::into_raw(exported);
    // SAFETY: the capsule takes over the tensor; its destructor frees it if it was not consumed.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer.cast(), FRESH.as_ptr(), Some(destroy_capsule));
        if capsule.is_null() {
            delete_exported(pointer.cast());
        }
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// A tensor of another library, returned to it when dropped.
struct Imported(*mut Managed);

// SAFETY: DLPack's deleters may be called from any thread.
unsafe impl Send for Imported {}
// SAFETY: shared only to be dropped.
unsafe impl Sync for Imported {}

impl Drop for Imported {
    fn drop(&mut self) {
        // The owner may be Python's: be attached for its deleter.
        // SAFETY: the tensor is ours since the capsule was renamed; deleted once.
        Python::attach(|_| unsafe {
            if let Some(delete) = (*self.0).deleter {
                delete(self.0);
            }
        });
    }
}

/// The capsule of an object. One on a CUDA device is told the stream that will use the memory.
fn exported<'py>(source: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let place = match source.hasattr("__dlpack_device__")? {
        true => source.call_method0("__dlpack_device__")?.extract::<(i32, i32)>()?,
        false => (1, 0),
    };
    if place.0 != 2 {
        return source.call_method0("__dlpack__");
    }
    let device = runtime().cuda.device(place.1).py(source.py())?;
    let options = PyDict::new(source.py());
    options.set_item("stream", device.stream())?;
    source.call_method("__dlpack__", (), Some(&options))
}

/// An array over the memory of a capsule, which is used up; or of an object with `__dlpack__`.
#[pyfunction]
fn from_dlpack(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<PyNDArray> {
    let capsule = match source.hasattr("__dlpack__")? {
        true => exported(source)?,
        false => source.clone(),
    };
    // SAFETY: PyCapsule functions check what they are given; the pointer is valid while the capsule
    // is fresh, and ours once it is renamed.
    let managed = unsafe {
        if ffi::PyCapsule_CheckExact(capsule.as_ptr()) == 0 {
            let text = invalid("DLPack source", shown(source), "a DLPack capsule");
            return Err(PyTypeError::new_err(text));
        }
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), FRESH.as_ptr()) == 0 {
            return Err(PyAssertionError::new_err(
                "Invalid DLPack Tensor. DLTensor capsules can be consumed only once.",
            ));
        }
        ffi::PyCapsule_GetPointer(capsule.as_ptr(), FRESH.as_ptr()).cast::<Managed>()
    };
    // SAFETY: a fresh capsule holds a valid tensor with `ndim` extents and, if not null, strides.
    let (tensor, shape, strides) = unsafe {
        let t = &(*managed).tensor;
        let n = t.ndim.max(0) as usize;
        let list = |p: *mut i64| match p.is_null() || n == 0 {
            true => Dims::new(),
            false => std::slice::from_raw_parts(p, n).into(),
        };
        (t, Shape::new(&list(t.shape)), list(t.strides))
    };
    let dtype =
        dtype_of(tensor.code, tensor.bits).filter(|_| tensor.lanes == 1).ok_or_else(|| {
            let got = format!("{} of {} bits, {} lanes", tensor.code, tensor.bits, tensor.lanes);
            let expected = "that of a dtype of rsnet, with one lane";
            PyTypeError::new_err(invalid("DLPack type code", got, expected))
        })?;
    let ctx = match tensor.device_type {
        1 | 3 => Context::default(),
        2 => Context::gpu(tensor.device_id),
        other => {
            let expected = "1 or 3, memory of the host, or 2, of a CUDA device";
            return Err(PyValueError::new_err(invalid("DLPack device type", other, expected)));
        }
    };
    let device = match ctx.is_host() {
        true => None,
        false => Some(runtime().cuda.device(ctx.device_id).py(py)?),
    };
    let row_major = shape.strides();
    let differs = |i: usize| shape.dims()[i] > 1 && strides[i] != row_major[i];
    if (0..strides.len()).any(differs) {
        let got = format!("{strides:?} of a tensor of shape {shape}");
        let expected = format!("{:?}, row-major", &row_major[..]);
        return Err(PyValueError::new_err(invalid("DLPack strides", got, expected)));
    }
    let ptr = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    if ptr.align_offset(dtype.size()) != 0 {
        let expected = format!("a multiple of {} bytes, the size of {dtype}", dtype.size());
        let text = invalid("address of a DLPack tensor", format!("{ptr:?}"), expected);
        return Err(PyValueError::new_err(text));
    }
    // SAFETY: the capsule is valid; from here on the tensor is ours.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr()) } != 0 {
        return Err(PyErr::fetch(py));
    }
    let imported = Imported(managed);
    let keep: Arc<dyn Any + Send + Sync> = match device {
        None => Arc::new(imported),
        Some(device) => Arc::new(Lent::new(device, Box::new(imported))),
    };
    // SAFETY: the tensor's memory is valid until its deleter is called, which `keep` does.
    let array = unsafe { NDArray::external(runtime(), keep, ptr, &shape, dtype, ctx) };
    Ok(PyNDArray::of(array))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(to_dlpack, m)?)?;
    m.add_function(wrap_pyfunction!(from_dlpack, m)?)
}
