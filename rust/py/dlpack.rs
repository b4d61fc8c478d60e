//! DLPack: memory handed over without a copy, as capsules of both layouts: that of versions before
//! 1.0, and the one that says its version and whether the memory may be written.
//!
//! A capsule named `dltensor` owns a `DLManagedTensor`, one named `dltensor_versioned` a
//! `DLManagedTensorVersioned`; the consumer renames the capsule (`used_` before the name) and calls
//! the tensor's deleter when done.

use super::error::{IntoPy, invalid, poll_signals, shown};
use super::ndarray::PyNDArray;
use super::runtime;
use crate::context::Context;
use crate::cuda::Lent;
use crate::dtype::DType;
use crate::ndarray::NDArray;
use crate::shape::{Dims, Shape};
use pyo3::exceptions::{PyAssertionError, PyBufferError, PyTypeError, PyValueError};
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

/// Frees a managed tensor.
type Deleter<M> = unsafe extern "C" fn(*mut M);

/// What the pointer of a capsule points to.
trait Managed: Sized + 'static {
    /// The capsule's name before and after its tensor is taken.
    const FRESH: &'static CStr;
    const USED: &'static CStr;

    /// A tensor whose owner is freed by `deleter`.
    fn new(tensor: Tensor, flags: u64, deleter: Deleter<Self>) -> Self;
    fn tensor(&mut self) -> &mut Tensor;
    /// [`READ_ONLY`] and [`COPIED`].
    fn flags(&self) -> u64;
    fn deleter(&self) -> Option<Deleter<Self>>;
    /// The major version of the layout.
    fn version(&self) -> u32;
}

/// `DLManagedTensor`.
#[repr(C)]
struct Unversioned {
    tensor: Tensor,
    manager_ctx: *mut c_void,
    deleter: Option<Deleter<Self>>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    manager_ctx: *mut c_void,
    deleter: Option<Deleter<Self>>,
    flags: u64,
    tensor: Tensor,
}

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`.
const COPIED: u64 = 2;
/// The version of the layout `Versioned`.
const VERSION: (u32, u32) = (1, 0);

impl Managed for Unversioned {
    const FRESH: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";

    fn new(tensor: Tensor, _: u64, deleter: Deleter<Self>) -> Self {
        Unversioned { tensor, manager_ctx: std::ptr::null_mut(), deleter: Some(deleter) }
    }

    fn tensor(&mut self) -> &mut Tensor {
        &mut self.tensor
    }

    fn flags(&self) -> u64 {
        0
    }

    fn deleter(&self) -> Option<Deleter<Self>> {
        self.deleter
    }

    fn version(&self) -> u32 {
        VERSION.0
    }
}

impl Managed for Versioned {
    const FRESH: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";

    fn new(mut tensor: Tensor, flags: u64, deleter: Deleter<Self>) -> Self {
        if (tensor.code, tensor.bits) == (1, 1) {
            (tensor.code, tensor.bits) = (BOOL, 8);
        }
        let ((major, minor), manager_ctx) = (VERSION, std::ptr::null_mut());
        Versioned { major, minor, manager_ctx, deleter: Some(deleter), flags, tensor }
    }

    fn tensor(&mut self) -> &mut Tensor {
        &mut self.tensor
    }

    fn flags(&self) -> u64 {
        self.flags
    }

    fn deleter(&self) -> Option<Deleter<Self>> {
        self.deleter
    }

    fn version(&self) -> u32 {
        self.major
    }
}

/// The owner of an exported tensor's memory, after `managed` in one allocation.
#[repr(C)]
struct Exported<M> {
    managed: M,
    shape: Dims,
    array: NDArray,
}

/// `kDLBool`, which versions before 1.0 lack.
const BOOL: u8 = 6;

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
        (BOOL, 8) => Some(DType::Bool),
        _ => DType::ALL.into_iter().find(|d| kind_of(*d) == (code, bits)),
    }
}

/// Frees an exported tensor: the deleter that consumers call.
///
/// # Safety
/// `managed` comes from [`capsule`] and is not used afterwards.
unsafe extern "C" fn delete_exported<M: Managed>(managed: *mut M) {
    // SAFETY: `managed` is the first field of an `Exported` that `capsule` boxed; called once.
    drop(unsafe { Box::from_raw(managed.cast::<Exported<M>>()) });
}

/// Destroys a capsule, with its tensor unless a consumer took that.
///
/// # Safety
/// Called by Python, with a live capsule and the interpreter attached.
unsafe extern "C" fn destroy_capsule<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes a live capsule; only one that is still fresh owns its tensor.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::FRESH.as_ptr()) == 0 {
            return;
        }
        let managed = ffi::PyCapsule_GetPointer(capsule, M::FRESH.as_ptr()).cast::<M>();
        if let Some(delete) = (*managed).deleter() {
            delete(managed);
        }
    }
}

/// A capsule over the array's memory, after its pending writes (and reads, if `write`): with
/// `flags` if it is to be a versioned one. Of an array on a device, `stream` waits for them, or the
/// calling thread if there is none.
#[pyfunction]
#[pyo3(signature = (array, write, flags=None, stream=None))]
fn to_dlpack<'py>(
    array: &Bound<'py, PyNDArray>,
    write: bool,
    flags: Option<u64>,
    stream: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let inner = array.get().array();
    match (stream, inner.device().py(py)?) {
        (Some(stream), Some(device)) => {
            py.detach(|| inner.lead(device, stream, write, &mut poll_signals)).py(py)?;
        }
        _ => {
            if write && inner.needs_wait() {
                py.detach(|| inner.wait_to_write(&mut poll_signals)).py(py)?;
            }
            super::ndarray::wait_to_read(py, inner)?;
        }
    }
    inner.readable().py(py)?;
    inner.lend();
    let read_only = if inner.is_writable() { 0 } else { READ_ONLY };
    match flags {
        Some(flags) => capsule::<Versioned>(py, inner, flags | read_only),
        None => capsule::<Unversioned>(py, inner, 0),
    }
}

fn capsule<'py, M: Managed>(
    py: Python<'py>,
    array: &NDArray,
    flags: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let (code, bits) = kind_of(array.dtype());
    let tensor = Tensor {
        data: array.view().py(py)?.ptr().cast(),
        device_type: array.context().device_type as i32,
        device_id: array.context().device_id,
        ndim: array.shape().ndim() as i32,
        code,
        bits,
        lanes: 1,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let mut exported = Box::new(Exported {
        managed: M::new(tensor, flags, delete_exported::<M>),
        shape: array.shape().dims().into(),
        array: array.clone(),
    });
    exported.managed.tensor().shape = exported.shape.as_mut_ptr();
    let pointer = Box::into_raw(exported).cast::<M>();
    // SAFETY: the capsule takes over the tensor; its destructor frees it if it was not consumed.
    unsafe {
        let destroy = Some(destroy_capsule::<M> as unsafe extern "C" fn(*mut ffi::PyObject));
        let capsule = ffi::PyCapsule_New(pointer.cast(), M::FRESH.as_ptr(), destroy);
        if capsule.is_null() {
            delete_exported(pointer);
        }
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// A tensor of another library, returned to it when dropped.
struct Imported<M: Managed>(*mut M);

// SAFETY: DLPack's deleters may be called from any thread.
unsafe impl<M: Managed> Send for Imported<M> {}
// SAFETY: shared only to be dropped.
unsafe impl<M: Managed> Sync for Imported<M> {}

impl<M: Managed> Drop for Imported<M> {
    fn drop(&mut self) {
        // The owner may be Python's: be attached for its deleter.
        // SAFETY: the tensor is ours since the capsule was renamed; deleted once.
        Python::attach(|_| unsafe {
            if let Some(delete) = (*self.0).deleter() {
                delete(self.0);
            }
        });
    }
}

/// The capsule of an object. A producer on a CUDA device gets the stream that will use the memory.
fn exported<'py>(source: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = source.py();
    let place = match source.hasattr("__dlpack_device__")? {
        true => source.call_method0("__dlpack_device__")?.extract::<(i32, i32)>()?,
        false => (1, 0),
    };
    let options = PyDict::new(py);
    if place.0 == 2 {
        let device = runtime().cuda.device(place.1).py(py)?;
        options.set_item("stream", device.stream())?;
    }
    let versioned = options.copy()?;
    versioned.set_item("max_version", VERSION)?;
    match source.call_method("__dlpack__", (), Some(&versioned)) {
        // A library from before DLPack 1.0.
        Err(e) if e.is_instance_of::<PyTypeError>(py) => {
            source.call_method("__dlpack__", (), Some(&options))
        }
        exported => exported,
    }
}

/// An array over the memory of a capsule, which is used up; or of an object with `__dlpack__`.
#[pyfunction]
fn from_dlpack(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<PyNDArray> {
    let capsule = match source.hasattr("__dlpack__")? {
        true => exported(source)?,
        false => source.clone(),
    };
    // SAFETY: PyCapsule functions check what they are given.
    let is = |name: &CStr| unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) != 0 };
    // SAFETY: as above.
    if unsafe { ffi::PyCapsule_CheckExact(capsule.as_ptr()) } == 0 {
        let text = invalid("DLPack source", shown(source), "a DLPack capsule");
        return Err(PyTypeError::new_err(text));
    }
    if is(Versioned::FRESH) {
        return imported::<Versioned>(py, &capsule);
    }
    if is(Unversioned::FRESH) {
        return imported::<Unversioned>(py, &capsule);
    }
    Err(PyAssertionError::new_err(
        "Invalid DLPack Tensor. DLTensor capsules can be consumed only once.",
    ))
}

/// An array over the memory of a fresh capsule.
fn imported<M: Managed>(py: Python<'_>, capsule: &Bound<'_, PyAny>) -> PyResult<PyNDArray> {
    // SAFETY: the pointer is valid while the capsule is fresh, and ours once it is renamed.
    let managed =
        unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), M::FRESH.as_ptr()).cast::<M>() };
    // SAFETY: as above; the version and the flags are at the same place in every version.
    let (version, flags) = unsafe { ((*managed).version(), (*managed).flags()) };
    if version != VERSION.0 {
        let expected = format!("major version {}", VERSION.0);
        let text = invalid("version of a DLPack tensor", version, expected);
        return Err(PyBufferError::new_err(text));
    }
    // SAFETY: a fresh capsule holds a valid tensor with `ndim` extents and, if not null, strides.
    let (tensor, shape, strides) = unsafe {
        let t: &Tensor = (*managed).tensor();
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
    // Strides of a tensor without elements say nothing; NumPy gives zeros.
    if shape.size() > 0 && (0..strides.len()).any(differs) {
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
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), M::USED.as_ptr()) } != 0 {
        return Err(PyErr::fetch(py));
    }
    let imported = Imported(managed);
    let keep: Arc<dyn Any + Send + Sync> = match device {
        None => Arc::new(imported),
        Some(device) => Arc::new(Lent::new(device, Box::new(imported))),
    };
    // SAFETY: the tensor's memory is valid until its deleter is called, which `keep` does.
    let array = unsafe { NDArray::external(runtime(), keep, ptr, &shape, dtype, ctx) };
    if flags & READ_ONLY != 0 {
        array.forbid_writing();
    }
    Ok(PyNDArray::of(array))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("DLPACK_VERSION", VERSION)?;
    m.add("DLPACK_COPIED", COPIED)?;
    m.add_function(wrap_pyfunction!(to_dlpack, m)?)?;
    m.add_function(wrap_pyfunction!(from_dlpack, m)?)
}
