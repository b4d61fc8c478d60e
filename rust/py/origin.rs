//! The user's line: where in Python an operation was pushed.
//!
//! Asked for at every push that is queued, so each thread remembers what places are called: one look at the frame,
//! its code and its instruction, and one in a table. (To find the number of a line takes a walk through its code.)

use super::attribute::INSTRUCTION;
use super::lazy::interned;
use crate::executor::line::{self, Line};
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;

/// Lines remembered by a thread, at most (a power of two).
const KEPT: usize = 512;

struct Remembered {
    /// Keeps the code alive, so that its address stays its own.
    code: Py<PyAny>,
    instruction: usize,
    /// `file:line`; none for code of this package, whose caller counts.
    text: Option<Arc<str>>,
}

thread_local! {
    /// Each line has one place here, by a hash; a newer one drives out an older one.
    static LINES: RefCell<Vec<Option<Remembered>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f`, whose pushes ask for the user's line where they need it.
#[inline]
pub fn at_user_line<R>(f: impl FnOnce() -> R) -> R {
    line::at(Line::Ask(user_line), f)
}

/// The innermost line of Python code outside of this package, as `file:line`.
pub fn user_line() -> Option<Arc<str>> {
    Python::attach(|py| {
        // SAFETY: attached; gives a borrowed frame, or null where no Python code runs.
        let top = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
        let mut frame = top?;
        loop {
            if let Some(text) = line_of(&frame)? {
                return Some(text);
            }
            frame = frame.getattr(interned!(py, "f_back")).ok().filter(|f| !f.is_none())?;
        }
    })
}

/// The text of a frame's line: `Some(None)` inside this package, `None` if it cannot be told.
fn line_of(frame: &Bound<'_, PyAny>) -> Option<Option<Arc<str>>> {
    let py = frame.py();
    let raw = frame.as_ptr().cast::<ffi::PyFrameObject>();
    // SAFETY: a frame, which is alive; its code is a new reference.
    let code = unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyFrame_GetCode(raw).cast()) }?;
    let instruction = INSTRUCTION.of(frame).ok()??.extract::<isize>().ok()? as usize;
    let place = (code.as_ptr() as usize >> 4).wrapping_add(instruction) % KEPT;
    let known = LINES.try_with(|lines| match lines.borrow().get(place) {
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
    let kept = Remembered { code: code.unbind(), instruction, text: text.clone() };
    let before = LINES.try_with(|lines| {
        let mut lines = lines.borrow_mut();
        lines.resize_with(KEPT, || None);
        lines[place].replace(kept)
    });
    drop(before); // outside of the borrow: what goes may run Python
    Some(text)
}
