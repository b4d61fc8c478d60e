//! Callbacks of a library: status and text turned into an error.

use super::abi::{self, Status};
use super::frame::Frame;
use super::host::HOST;
use crate::error::{Error, ErrorKind, Result};
use std::ffi::c_void;

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
