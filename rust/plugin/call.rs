//! Callbacks of a library: status and text turned into an error.

use super::abi::{self, Status};
use super::frame::Frame;
use super::host::HOST;
use crate::error::{Error, ErrorKind, Result};
use std::ffi::c_void;

/// The error of any status but `OK`. `what` names the callback where it gave no text.
#[inline]
pub fn check(status: Status, frame: &Frame<'_>, what: &str) -> Result<()> {
    if status == abi::OK { Ok(()) } else { Err(failure(status, frame, what)) }
}

#[cold]
fn failure(status: Status, frame: &Frame<'_>, what: &str) -> Error {
    let kind = match status {
        _ if frame.lacks_memory() => ErrorKind::Memory,
        abi::INVALID => ErrorKind::Value,
        abi::UNSUPPORTED => ErrorKind::NotImplemented,
        _ => ErrorKind::Execution,
    };
    let text = frame.failure().unwrap_or_else(|| {
        let name = &frame.library.name;
        match status {
            abi::UNKNOWN => format!(
                "{what} of library '{name}' answered that more must be known (status {status}), \
                 which is for inference only"
            ),
            _ => {
                format!("{what} of library '{name}' failed with status {status} and without a text")
            }
        }
    });
    Error::new(kind, text)
}

/// The status of a callback; that of an absent one is `UNKNOWN`.
fn status(frame: &Frame<'_>, f: abi::CallFn, user: *mut c_void) -> Result<Status> {
    let Some(f) = f else { return Ok(abi::UNKNOWN) };
    // SAFETY: a callback of the library, with what it was registered with.
    let run = || unsafe { f(&HOST, frame.as_ctx(), user) };
    frame.library.run(run)
}

/// Calls a callback that may have no answer, as an absent one has none.
pub fn ask(frame: &Frame<'_>, what: &str, f: abi::CallFn, user: *mut c_void) -> Result<Option<()>> {
    match status(frame, f, user)? {
        abi::UNKNOWN => Ok(None),
        status => check(status, frame, what).map(Some),
    }
}

/// Calls a callback, if there is one, that must not be without an answer.
pub fn call(frame: &Frame<'_>, what: &str, f: abi::CallFn, user: *mut c_void) -> Result<()> {
    if f.is_none() {
        return Ok(());
    }
    check(status(frame, f, user)?, frame, what)
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
    check(frame.library.run(run)?, frame, what)?;
    Ok(Some(made))
}
