//! Products of matrices by cuBLAS, NVIDIA's library of linear algebra.
//!
//! The library is opened when a kernel that multiplies is first prepared, from where CuPy's wheels
//! or the system have it, and rsnet does not require it: without it kernels of CUDA source
//! multiply. Types and numbers are those of NVIDIA's documentation of cuBLAS.

use super::driver::Address;
use super::library::{self, Handle, Shared, functions};
use super::primary::Primary;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::{Held, Lock};
use std::ffi::{c_int, c_longlong, c_void};
use std::sync::Arc;

/// The environment variable that names the library; empty for none.
pub const LIBRARY_VARIABLE: &str = "RSNET_LIBCUBLAS";

/// Names under which a system has the library.
const LIBRARIES: [&str; 2] = ["libcublas.so.13", "libcublas.so.12"];

/// `CUBLAS_OP_N` and `CUBLAS_OP_T`.
const OPERATIONS: [c_int; 2] = [0, 1];

/// `CUBLAS_GEMM_DEFAULT`.
const ANY_ALGORITHM: c_int = -1;

/// `CUBLAS_STATUS_ALLOC_FAILED`.
const ALLOC_FAILED: c_int = 3;

/// `CUBLAS_STATUS_NOT_SUPPORTED`: the library has no function for such a product.
const NOT_SUPPORTED: c_int = 15;

/// Names of statuses, as the documentation has them.
const STATUSES: &[(c_int, &str)] = &[
    (1, "CUBLAS_STATUS_NOT_INITIALIZED"),
    (ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED"),
    (7, "CUBLAS_STATUS_INVALID_VALUE"),
    (8, "CUBLAS_STATUS_ARCH_MISMATCH"),
    (11, "CUBLAS_STATUS_MAPPING_ERROR"),
    (13, "CUBLAS_STATUS_EXECUTION_FAILED"),
    (14, "CUBLAS_STATUS_INTERNAL_ERROR"),
    (NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED"),
];

functions! {
    /// The functions of cuBLAS, under the names of its documentation without prefix.
    pub struct Table {}
    required {
        create: "cublasCreate_v2"(*mut Handle);
        destroy: "cublasDestroy_v2"(Handle);
        set_stream: "cublasSetStream_v2"(Handle, Handle);
        gemm: "cublasGemmStridedBatchedEx_64"(
            Handle, c_int, c_int, i64, i64, i64,
            *const c_void, Address, c_int, i64, c_longlong,
            Address, c_int, i64, c_longlong,
            *const c_void, Address, c_int, i64, c_longlong,
            i64, c_int, c_int
        );
    }
    optional {
        set_workspace: "cublasSetWorkspace_v2"(Handle, Address, usize);
    }
}

/// One operand of a [`Gemm`]: matrices whose columns are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub at: Address,
    /// Elements from one column to the next.
    pub leading: i64,
    /// Elements from one matrix to the next.
    pub stack: i64,
    /// The product takes the transpose.
    pub transposed: bool,
}

/// `c = alpha a b`, or `c += alpha a b`, for stacks of matrices in the order of Fortran: `a` gives
/// `m` rows, `b` gives `n` columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    pub dtype: DType,
    pub m: i64,
    pub n: i64,
    pub k: i64,
    pub stacks: i64,
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
    pub alpha: f64,
    pub add: bool,
}

/// `cudaDataType_t` of the elements, and `cublasComputeType_t` of the sums: half precision is
/// summed in single.
fn types(dtype: DType) -> Option<(c_int, c_int)> {
    match dtype {
        DType::F32 => Some((0, 68)),
        DType::F64 => Some((1, 70)),
        DType::F16 => Some((2, 68)),
        _ => None,
    }
}

/// cuBLAS on one device.
pub struct Blas {
    table: Table,
    primary: Arc<Primary>,
    /// The stream on which products are issued, unless they are recorded on another.
    stream: Shared,
    /// The library's own handle, for one thread at a time.
    handle: Lock<Shared>,
}

impl Blas {
    /// The library at `found`, or under one of its names, for work on a stream of the device; the
    /// device's context is current. `None` if there is no library.
    pub fn open(
        primary: &Arc<Primary>,
        stream: Handle,
        found: Option<&str>,
    ) -> Result<Option<Blas>> {
        let named = std::env::var(LIBRARY_VARIABLE).ok();
        let library = match &named {
            Some(path) if path.is_empty() => return Ok(None),
            Some(path) => Some((library::open(path).map_err(|why| refused(path, &why))?, &**path)),
            None => {
                let mut places = found.into_iter().chain(LIBRARIES);
                places.find_map(|path| library::open(path).ok().map(|library| (library, path)))
            }
        };
        let Some((library, path)) = library else { return Ok(None) };
        let table = match Table::find(library, path) {
            Ok(table) => table,
            Err(why) if named.is_some() => return Err(refused(path, &why)),
            Err(_) => return Ok(None),
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place for the answer, and the stream of the device whose context is current.
        unsafe {
            check("cublasCreate", (table.create)(&mut handle)).map_err(|e| unusable(path, &e))?;
            check("cublasSetStream", (table.set_stream)(handle, stream))?;
        }
        let (primary, stream, handle) =
            (primary.clone(), Shared(stream), Lock::new(Shared(handle)));
        Ok(Some(Blas { table, primary, stream, handle }))
    }

    /// Issues a product. Returns false if the library has none for these matrices.
    ///
    /// # Safety
    /// The operands are memory of the device, and its context is current.
    pub unsafe fn multiply(&self, gemm: &Gemm) -> Result<bool> {
        // SAFETY: promised by the caller.
        unsafe { self.multiply_by(self.handle.lock().0, gemm) }
    }

    /// As [`Blas::multiply`], on a stream that records, with room for what the library needs.
    ///
    /// # Safety
    /// As [`Blas::multiply`]; the room stays as long as the recording.
    pub unsafe fn record(
        &self,
        gemm: &Gemm,
        stream: Handle,
        (room, bytes): (Address, usize),
    ) -> Result<bool> {
        let Some(set_workspace) = self.table.set_workspace else {
            return Err(Error::execution("this cuBLAS cannot be recorded"));
        };
        let handle = self.handle.lock();
        // SAFETY: promised by the caller. Setting a stream forgets the room.
        unsafe {
            check("cublasSetStream", (self.table.set_stream)(handle.0, stream))?;
            let set = check("cublasSetWorkspace", set_workspace(handle.0, room, bytes));
            let done = set.and_then(|()| self.multiply_by(handle.0, gemm));
            check("cublasSetStream", (self.table.set_stream)(handle.0, self.stream.0))?;
            done
        }
    }

    /// # Safety
    /// As [`Blas::multiply`]; the handle is this one's, and no other thread uses it.
    unsafe fn multiply_by(&self, handle: Handle, gemm: &Gemm) -> Result<bool> {
        let Some((of, sums)) = types(gemm.dtype) else { return Ok(false) };
        // Factors of the product and of what is there, in the type of the sums.
        let double = [gemm.alpha, f64::from(u8::from(gemm.add))];
        let single = double.map(|factor| factor as f32);
        let factors: [*const c_void; 2] = match gemm.dtype {
            DType::F64 => [(&raw const double[0]).cast(), (&raw const double[1]).cast()],
            _ => [(&raw const single[0]).cast(), (&raw const single[1]).cast()],
        };
        let Gemm { m, n, k, stacks, a, b, c, .. } = *gemm;
        let operation = |matrix: Matrix| OPERATIONS[usize::from(matrix.transposed)];
        // SAFETY: promised by the caller; the factors are read before the call returns.
        let status = unsafe {
            (self.table.gemm)(
                handle,
                operation(a),
                operation(b),
                m,
                n,
                k,
                factors[0],
                a.at,
                of,
                a.leading,
                a.stack,
                b.at,
                of,
                b.leading,
                b.stack,
                factors[1],
                c.at,
                of,
                c.leading,
                c.stack,
                stacks,
                sums,
                ANY_ALGORITHM,
            )
        };
        match status {
            NOT_SUPPORTED => Ok(false),
            _ => check("cublasGemmStridedBatchedEx", status).map(|()| true),
        }
    }

    pub(super) fn hold(&self) -> Held<'_> {
        self.handle.hold()
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        if self.primary.enter().is_ok() {
            // SAFETY: made by `open`, and used no more.
            unsafe { (self.table.destroy)(self.handle.get_mut().0) };
        }
    }
}

#[cold]
fn refused(path: &str, why: &str) -> Error {
    Error::invalid(LIBRARY_VARIABLE, path, format!("the path of cuBLAS ({why})"))
}

/// A library that does not start: it may be too new for the driver.
#[cold]
fn unusable(path: &str, why: &Error) -> Error {
    let text = format!(
        "{path} cannot be used: {} ({LIBRARY_VARIABLE} names another cuBLAS, empty for none)",
        why.message()
    );
    Error::new(why.kind(), text)
}

#[inline]
fn check(function: &str, status: c_int) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    let kind = if status == ALLOC_FAILED { ErrorKind::Memory } else { ErrorKind::Execution };
    let name = STATUSES.iter().find(|known| known.0 == status).map_or("unknown", |known| known.1);
    Err(Error::new(kind, format!("{function} failed with status {status} ({name})")))
}
