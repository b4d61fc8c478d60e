//! Functions that run on devices: who loads them, and those that are loaded; who finds libraries.
//!
//! Compiling and loading is the work of a library outside of the core (CuPy), which is asked on a
//! thread that pushes work. What it returns is the driver's own handle, which is valid for the
//! life of the process and is launched without asking anyone again.

use super::driver::{Driver, Status};
use super::library::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::{Held, RwLock};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};

/// Loads a function for a device: the number of the device, the source file, text that follows it,
/// and the function with its template arguments. Returns the driver's handle (`CUfunction`).
pub type Loader = fn(i32, &str, &str, &str) -> Result<usize>;

/// Finds a library of CUDA by its name (`cublas`), among those that are installed for the program.
pub type Finder = fn(&str) -> Result<Option<String>>;

/// What a set of functions was loaded for: an address that stands for who asked, the number of the
/// device, and a number for the template arguments.
pub type Key = (usize, i32, u64);

/// A loaded function.
#[derive(Clone, Debug)]
pub struct Function {
    handle: usize,
    /// With its template arguments, for errors.
    pub name: String,
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MOST_SHARED_BYTES: c_int = 8;
/// Blocks get this much shared memory without asking for it.
const USUAL_SHARED_BYTES: u32 = 48 << 10;

impl Function {
    /// # Safety
    /// `handle` is that of a function (`CUfunction`) that stays loaded.
    pub unsafe fn new(handle: usize, name: String) -> Self {
        Function { handle, name }
    }

    fn handle(&self) -> Handle {
        self.handle as Handle
    }

    /// Issues the function on a stream, with `shared` bytes of memory for each block beyond those
    /// that it declares. The context of its device is current.
    ///
    /// # Safety
    /// The function is one of the stream's device, and `arguments` are addresses of values of its
    /// parameters, which the driver copies.
    #[inline]
    pub unsafe fn launch(
        &self,
        driver: &Driver,
        stream: Handle,
        [x, y, z]: [u32; 3],
        [width, height, depth]: [u32; 3],
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        if shared > USUAL_SHARED_BYTES {
            let (handle, bytes) = (self.handle(), shared.min(c_int::MAX as u32) as c_int);
            // SAFETY: promised by the caller.
            let status = unsafe { (driver.func_set_attribute)(handle, MOST_SHARED_BYTES, bytes) };
            self.check(driver, "cuFuncSetAttribute", status)?;
        }
        let (at, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: promised by the caller.
        let status = unsafe {
            let (handle, launch) = (self.handle(), driver.launch_kernel);
            launch(handle, x, y, z, width, height, depth, shared, stream, at, none)
        };
        self.check(driver, "cuLaunchKernel", status)
    }

    #[inline]
    fn check(&self, driver: &Driver, call: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let named = |e: Error| Error::new(e.kind(), format!("{} of {}", e.message(), self.name));
        driver.check(call, status).map_err(named)
    }

    /// An error unless the function takes parameters of these sizes. Drivers before CUDA 12.4
    /// cannot tell.
    pub fn check_parameters(&self, driver: &Driver, sizes: &[usize]) -> Result<()> {
        let Some(ask) = driver.func_get_param_info else { return Ok(()) };
        let size_of = |i: usize| {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: places for the answers, and the handle of a function.
            let status = unsafe { ask(self.handle(), i, &mut offset, &mut size) };
            (status == 0).then_some(size)
        };
        let found: Vec<usize> = (0..).map_while(size_of).collect();
        if found == sizes {
            return Ok(());
        }
        let expected = format!("sizes of the parameters {found:?}, as in the source");
        Err(Error::invalid(&format!("signature of {}", self.name), format!("{sizes:?}"), expected))
    }
}

/// The functions that were loaded so far.
#[derive(Default)]
pub struct Functions {
    loader: OnceLock<Loader>,
    finder: OnceLock<Finder>,
    loaded: RwLock<HashMap<Key, Arc<[Function]>>>,
}

impl Functions {
    /// Sets who loads functions from now on.
    pub fn set_loader(&self, loader: Loader) {
        let _ = self.loader.set(loader);
    }

    /// Sets who finds libraries from now on.
    pub fn set_finder(&self, finder: Finder) {
        let _ = self.finder.set(finder);
    }

    /// The path of a library of CUDA, if one is known; may wait for the interpreter.
    pub fn find_library(&self, name: &str) -> Result<Option<String>> {
        self.finder.get().map_or(Ok(None), |find| find(name))
    }

    /// The functions of `key`; `wanted` says (source, text, function) of those that are loaded if
    /// this is the first call for them. What the key names must stay at its address.
    #[inline]
    pub fn get<'a>(
        &self,
        key: Key,
        wanted: impl FnOnce() -> Vec<(&'static str, &'a str, String)>,
    ) -> Result<Arc<[Function]>> {
        if let Some(known) = self.loaded.read().get(&key) {
            return Ok(known.clone());
        }
        self.load(key, wanted())
    }

    #[cold]
    fn load(&self, key: Key, wanted: Vec<(&'static str, &str, String)>) -> Result<Arc<[Function]>> {
        let Some(loader) = self.loader.get() else {
            let text = "CUDA functions need the Python package of rsnet, which compiles them";
            return Err(Error::new(ErrorKind::NotImplemented, text));
        };
        // Without the lock: the loader may wait for the interpreter. Of two threads that load the
        // same functions the second gets those that the loader has kept.
        let load = |(source, text, name): (&'static str, &str, String)| {
            loader(key.1, source, text, &name).map(|handle| Function { handle, name })
        };
        let loaded: Arc<[Function]> = wanted.into_iter().map(load).collect::<Result<_>>()?;
        Ok(self.loaded.write().entry(key).or_insert(loaded).clone())
    }

    /// Holds the lock until the returned guard is dropped.
    pub fn hold(&self) -> Held<'_> {
        self.loaded.hold()
    }
}
