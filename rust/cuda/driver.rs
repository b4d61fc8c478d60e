//! The functions of `libcuda` that rsnet calls.
//!
//! The driver's C interface is stable: a function keeps its name, and a new form of it gets a
//! suffix (`cuMemAlloc_v2`), so one table serves every driver from the oldest supported one on.
//! Types and numbers are those of NVIDIA's documentation of the driver API.

use super::library::{self, Handle, functions};
use crate::error::{Error, ErrorKind, Result};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// An address in device memory.
pub type Address = u64;

/// What a function of the driver returns; 0 is success.
pub type Status = c_int;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: Status = 2;

/// `CUDA_ERROR_NOT_READY`: what an event says whose work is not done.
pub const NOT_READY: Status = 600;

/// The oldest driver that serves: CUDA 12.0, in the form of `cuDriverGetVersion`.
const OLDEST_VERSION: c_int = 12000;

/// The library, unless the variable names another one.
const LIBRARY: &str = "libcuda.so.1";

/// The environment variable that names the driver's library.
pub const LIBRARY_VARIABLE: &str = "RSNET_LIBCUDA";

functions! {
    /// The driver's functions, under the names of NVIDIA's documentation without prefix.
    pub struct Driver {
        version: c_int = 0,
    }
    required {
        init: "cuInit"(c_uint);
        driver_get_version: "cuDriverGetVersion"(*mut c_int);
        get_error_name: "cuGetErrorName"(Status, *mut *const c_char);
        get_error_string: "cuGetErrorString"(Status, *mut *const c_char);
        device_get_count: "cuDeviceGetCount"(*mut c_int);
        device_get: "cuDeviceGet"(*mut c_int, c_int);
        device_get_name: "cuDeviceGetName"(*mut c_char, c_int, c_int);
        primary_ctx_retain: "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
        primary_ctx_release: "cuDevicePrimaryCtxRelease_v2"(c_int);
        ctx_set_current: "cuCtxSetCurrent"(Handle);
        ctx_synchronize: "cuCtxSynchronize"();
        mem_get_info: "cuMemGetInfo_v2"(*mut usize, *mut usize);
        pointer_get_attribute: "cuPointerGetAttribute"(*mut c_void, c_uint, Address);
        mem_alloc: "cuMemAlloc_v2"(*mut Address, usize);
        mem_free: "cuMemFree_v2"(Address);
        mem_host_alloc: "cuMemHostAlloc"(*mut Handle, usize, c_uint);
        mem_free_host: "cuMemFreeHost"(Handle);
        memcpy_htod_async: "cuMemcpyHtoDAsync_v2"(Address, *const c_void, usize, Handle);
        memcpy_dtoh_async: "cuMemcpyDtoHAsync_v2"(*mut c_void, Address, usize, Handle);
        memcpy_dtod_async: "cuMemcpyDtoDAsync_v2"(Address, Address, usize, Handle);
        memcpy_peer_async: "cuMemcpyPeerAsync"(Address, Handle, Address, Handle, usize, Handle);
        memset_d8_async: "cuMemsetD8Async"(Address, u8, usize, Handle);
        stream_create: "cuStreamCreate"(*mut Handle, c_uint);
        stream_destroy: "cuStreamDestroy_v2"(Handle);
        stream_wait_event: "cuStreamWaitEvent"(Handle, Handle, c_uint);
        event_create: "cuEventCreate"(*mut Handle, c_uint);
        event_destroy: "cuEventDestroy_v2"(Handle);
        event_record: "cuEventRecord"(Handle, Handle);
        event_query: "cuEventQuery"(Handle);
        event_synchronize: "cuEventSynchronize"(Handle);
        launch_kernel: "cuLaunchKernel"(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle,
            *mut Handle
        );
        func_set_attribute: "cuFuncSetAttribute"(Handle, c_int, c_int);
    }
    optional {
        func_get_param_info: "cuFuncGetParamInfo"(Handle, usize, *mut usize, *mut usize);
        stream_begin_capture: "cuStreamBeginCapture_v2"(Handle, c_int);
        stream_end_capture: "cuStreamEndCapture"(Handle, *mut Handle);
        graph_instantiate: "cuGraphInstantiateWithFlags"(*mut Handle, Handle, u64);
        graph_launch: "cuGraphLaunch"(Handle, Handle);
        graph_exec_destroy: "cuGraphExecDestroy"(Handle);
        graph_destroy: "cuGraphDestroy"(Handle);
    }
}

fn unavailable(why: String) -> Error {
    Error::new(ErrorKind::Execution, why)
}

impl Driver {
    /// Opens and initialises the driver's library; it stays open until the process ends.
    pub fn open() -> Result<Driver> {
        let path = std::env::var(LIBRARY_VARIABLE).ok().filter(|path| !path.is_empty());
        Self::open_library(path.as_deref().unwrap_or(LIBRARY))
    }

    /// As [`Driver::open`], from the library at `path`.
    pub fn open_library(path: &str) -> Result<Driver> {
        let library = open_library(path)?;
        let mut driver = Self::find(library, path).map_err(unavailable)?;
        let failed = |what: &str, e: Error| unavailable(format!("{what}: {}", e.message()));
        let mut version = 0;
        // SAFETY: the argument is a place for the answer; this may be called before `cuInit`.
        let status = unsafe { (driver.driver_get_version)(&mut version) };
        driver
            .check("cuDriverGetVersion", status)
            .map_err(|e| failed("the CUDA driver does not say its version", e))?;
        if version < OLDEST_VERSION {
            let shown = |v: c_int| format!("{}.{}", v / 1000, v % 1000 / 10);
            return Err(unavailable(format!(
                "the CUDA driver is too old: it supports CUDA {}, expected {} or later",
                shown(version),
                shown(OLDEST_VERSION)
            )));
        }
        driver.version = version;
        // SAFETY: 0 is the only flag that there is.
        let started = unsafe { (driver.init)(0) };
        driver.check("cuInit", started).map_err(|e| failed("the CUDA driver does not start", e))?;
        Ok(driver)
    }

    /// The CUDA version that the driver supports: 12040 is 12.4.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// An error that names the function unless `status` is success.
    #[inline]
    pub fn check(&self, function: &str, status: Status) -> Result<()> {
        if status == 0 { Ok(()) } else { Err(self.failure(function, status)) }
    }

    #[cold]
    fn failure(&self, function: &str, status: Status) -> Error {
        let name = self.text(self.get_error_name, status);
        let text = self.text(self.get_error_string, status);
        let kind = if status == OUT_OF_MEMORY { ErrorKind::Memory } else { ErrorKind::Execution };
        Error::new(kind, format!("{function} failed with CUDA error {status} ({name}): {text}"))
    }

    fn text(
        &self,
        ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
        status: Status,
    ) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the driver sets the pointer to a text of its own, or to null.
        unsafe {
            if ask(status, &mut text) != 0 || text.is_null() {
                return "unknown error".to_owned();
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

fn open_library(path: &str) -> Result<Handle> {
    if path.contains('\0') {
        return Err(Error::invalid(LIBRARY_VARIABLE, path.escape_debug(), "the path of a file"));
    }
    let missing = |why| format!("no CUDA driver was found ({why}): install NVIDIA's driver");
    library::open(path).map_err(|why| unavailable(missing(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &str) -> String {
        Driver::open_library(path).map(|_| ()).unwrap_err().message().to_owned()
    }

    #[test]
    fn a_library_that_is_no_driver_is_refused_with_the_reason() {
        let missing = refusal("/no/such/libcuda.so");
        assert!(missing.starts_with("no CUDA driver was found (/no/such/libcuda.so"), "{missing}");
        assert!(refusal("a\0b").contains("expected the path of a file"));
        if cfg!(all(target_os = "linux", target_env = "gnu")) {
            assert_eq!(refusal("libc.so.6"), "libc.so.6 has no function cuInit");
        }
    }
}
