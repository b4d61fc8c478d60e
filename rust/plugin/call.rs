//! Calls from rsnet into a library: through the library's guard against exceptions, with status and
//! text turned into an error.

use super::abi::{self, Status};
use super::frame::Frame;
use super::host::HOST;
use crate::error::{Error, ErrorKind, Result};
use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// A library that is loaded. It is never unloaded, since its functions are in use.
pub struct Library {
    pub path: PathBuf,
    /// Its file name, which symbol files mention.
    pub name: String,
    pub guard: Option<abi::GuardFn>,
    /// Do its kernels run between guard bytes, with their inputs compared before and after?
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

/// What a callback returned: whether it had an answer. `what` names it where it gave no text.
#[inline]
pub fn answer(status: Status, frame: &Frame<'_>, what: &str) -> Result<bool> {
    if status == abi::OK { Ok(true) } else { refusal(status, frame, what) }
}

#[cold]
fn refusal(status: Status, frame: &Frame<'_>, what: &str) -> Result<bool> {
    let kind = match status {
        abi::UNKNOWN => return Ok(false),
        _ if frame.lacks_memory() => ErrorKind::Memory,
        abi::INVALID => ErrorKind::Value,
        abi::UNSUPPORTED => ErrorKind::NotImplemented,
        _ => ErrorKind::Execution,
    };
    let text = frame.failure().unwrap_or_else(|| {
        let name = &frame.op.library.name;
        format!("{what} of library '{name}' failed with status {status} and without a text")
    });
    Err(Error::new(kind, text))
}

/// Calls a callback of an operator; an absent one has no answer.
pub fn call(
    frame: &Frame<'_>,
    what: &str,
    f: abi::CallFn,
    user: *mut c_void,
) -> Result<Option<()>> {
    let Some(f) = f else { return Ok(None) };
    // SAFETY: a callback of the library, with what it was registered with.
    let run = || unsafe { f(&HOST, frame.as_ctx(), user) };
    let status = frame.op.library.run(run)?;
    Ok(answer(status, frame, what)?.then_some(()))
}

/// Calls a callback that makes something.
#[inline]
pub fn make(
    frame: &Frame<'_>,
    what: &str,
    f: abi::MakeFn,
    user: *mut c_void,
) -> Result<Option<*mut c_void>> {
    let Some(f) = f else { return Ok(None) };
    let mut made = std::ptr::null_mut();
    // SAFETY: as in `call`.
    let run = || unsafe { f(&HOST, frame.as_ctx(), user, &mut made) };
    let status = frame.op.library.run(run)?;
    if !answer(status, frame, what)? {
        return Err(Error::execution(format!("{what} answered that more must be known")));
    }
    Ok(Some(made))
}

/// What a library made, with the function that destroys it.
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
                // An exception of a destructor has nobody to be reported to.
                // SAFETY: as in `Library::run`.
                unsafe { guard(run_guarded, (&raw mut guarded).cast(), say) };
            }
        }
    }
}
