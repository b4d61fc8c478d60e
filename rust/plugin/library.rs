//! A library that is loaded, its guard against exceptions, and what it made.

use super::abi::{self, Status};
use crate::error::{Error, Result};
use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// A library that is loaded. It is never unloaded, since its functions are in use.
pub struct Library {
    pub path: PathBuf,
    /// Its file name, which symbol files mention.
    pub name: String,
    pub guard: Option<abi::GuardFn>,
    /// True if its kernels run between guard bytes, with their inputs compared before and after.
    pub checked: AtomicBool,
}

/// A function that is called through a guard, and what the guard says of an exception.
struct Guarded<'a> {
    run: &'a mut dyn FnMut() -> Status,
    text: Option<String>,
}

/// # Safety
/// `data` is a `Guarded` that lives.
unsafe extern "C-unwind" fn run_guarded(data: *mut c_void) -> Status {
    // SAFETY: `Library::run` passes a `Guarded` of its own.
    let guarded = unsafe { &mut *data.cast::<Guarded<'_>>() };
    (guarded.run)()
}

/// # Safety
/// As [`run_guarded`]; `text` is null or ends with 0.
unsafe extern "C" fn say(data: *mut c_void, text: *const c_char) {
    // SAFETY: as above; the text is that of a `std::exception`.
    unsafe { (*data.cast::<Guarded<'_>>()).text = abi::text(text) };
}

impl Library {
    /// Calls `run`, which calls a function of the library. A C++ exception is an error.
    #[inline]
    pub fn run(&self, mut run: impl FnMut() -> Status) -> Result<Status> {
        let Some(guard) = self.guard else { return Ok(run()) };
        let mut guarded = Guarded { run: &mut run, text: None };
        // SAFETY: the guard calls `run_guarded` with this value, while it lives.
        let status = unsafe { guard(run_guarded, (&raw mut guarded).cast(), say) };
        match guarded.text {
            None => Ok(status),
            Some(text) => Err(Error::execution(format!("C++ exception: {text}"))),
        }
    }
}

/// An object that a library made, with the function that destroys it.
pub struct Owned {
    pub made: *mut c_void,
    free: abi::FreeFn,
    guard: Option<abi::GuardFn>,
}

// SAFETY: `plugin.h` says that what callbacks make may be used and destroyed on any thread.
unsafe impl Send for Owned {}
// SAFETY: as above; kernels get it as a plain pointer.
unsafe impl Sync for Owned {}

impl Owned {
    pub fn new(made: *mut c_void, free: abi::FreeFn, library: &Library) -> Self {
        Owned { made, free, guard: library.guard }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Some(free) = self.free.filter(|_| !self.made.is_null()) else { return };
        let made = self.made;
        let mut run = || {
            // SAFETY: the library made it, and this is its last use.
            unsafe { free(made) };
            abi::OK
        };
        match self.guard {
            None => drop(run()),
            Some(guard) => {
                let mut guarded = Guarded { run: &mut run, text: None };
                // An exception of a destructor has no caller to be reported to.
                // SAFETY: as in `Library::run`.
                unsafe { guard(run_guarded, (&raw mut guarded).cast(), say) };
            }
        }
    }
}
