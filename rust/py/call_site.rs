//! The call site: the line of the user's Python code that pushed an operation.
//!
//! It is looked up by every push that is queued, so each thread caches the text of the places it
//! came from, by code object and instruction: finding the number of a line means a walk through its
//! code.

use super::cached_descriptor::INSTRUCTION;
use super::once_cell::interned;
use crate::executor::call_site::{self, CallSite};
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;

/// Call sites cached by a thread, at most (a power of two).
const CACHED: usize = 512;

struct Cached {
    /// Keeps the code alive, so that its address stays its own.
    code: Py<PyAny>,
    instruction: usize,
    /// `file:line`; `None` for code of this package, whose caller is the call site.
    text: Option<Arc<str>>,
}

thread_local! {
    /// Each call site has one slot here, by a hash; a newer one replaces an older one.
    static CACHE: RefCell<Vec<Option<Cached>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f`, whose pushes look up the call site where they need it.
#[inline]
pub fn at_call_site<R>(f: impl FnOnce() -> R) -> R {
    call_site::with(CallSite::Lookup(find_call_site), f)
}

/// The innermost line of Python code outside of this package, as `file:line`.
pub fn find_call_site() -> Option<Arc<str>> {
    Python::attach(|py| {
        // SAFETY: attached; returns a borrowed frame, or null where no Python code runs.
        let top = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
        let mut frame = top?;
        loop {
            if let Some(text) = site_of(&frame)? {
                return Some(text);
            }
            frame = frame.getattr(interned!(py, "f_back")).ok().filter(|f| !f.is_none())?;
        }
    })
}

/// The text of a frame's line: `Some(None)` inside this package, `None` if it cannot be found.
fn site_of(frame: &Bound<'_, PyAny>) -> Option<Option<Arc<str>>> {
    let py = frame.py();
    let raw = frame.as_ptr().cast::<ffi::PyFrameObject>();
    // SAFETY: a frame, which is alive; its code is a new reference.
    let code = unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyFrame_GetCode(raw).cast()) }?;
    let instruction = INSTRUCTION.of(frame).ok()??.extract::<isize>().ok()? as usize;
    let slot = (code.as_ptr() as usize >> 4).wrapping_add(instruction) % CACHED;
    let known = CACHE.try_with(|cache| match cache.borrow().get(slot) {
        Some(Some(l)) if l.instruction == instruction && l.code.is(&code) => Some(l.text.clone()),
        _ => None,
    });
    if let Ok(Some(text)) = known {
        return Some(text);
    }
    let package = frame.getattr("f_globals").ok()?.get_item("__name__").ok();
    let package: String = package.and_then(|p| p.extract().ok()).unwrap_or_default();
    let text = if package == "rsnet" || package.starts_with("rsnet.") {
        None
    } else {
        let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
        // SAFETY: a frame, which is alive.
        let line = unsafe { ffi::PyFrame_GetLineNumber(raw) };
        Some(Arc::from(format!("{file}:{line}")))
    };
    let entry = Cached { code: code.unbind(), instruction, text: text.clone() };
    let before = CACHE.try_with(|cache| {
        let mut cache = cache.borrow_mut();
        cache.resize_with(CACHED, || None);
        cache[slot].replace(entry)
    });
    drop(before); // outside of the borrow: dropping the old entry may run Python
    Some(text)
}
