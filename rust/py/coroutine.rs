//! Detects callables whose call does not run the body: coroutines and generators. The engine
//! refuses them in the push, while the user's line is still on the stack.
//!
//! The flags of the code object say which it is. Every push of a Python function checks, so each
//! thread caches the code objects that it has checked, by address; the cache keeps them alive, so
//! that an address is not reused.

use super::cached_descriptor::CODE;
use super::once_cell::{OnceCell, interned};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyType};
use std::cell::RefCell;

/// The kind of object that a call returns instead of running the body, by the flags of the code.
const LAZY_KINDS: [(u32, &str); 3] =
    [(0x80, "an async function"), (0x200, "an async generator"), (0x20, "a generator")];
/// Nested partial functions that are unwrapped, at most.
const MOST_PARTIALS: usize = 8;
/// Code objects that a thread caches, at most (a power of two).
const KEPT: usize = 64;

thread_local! {
    /// Code whose body a call runs. An address selects the slot; a newer entry replaces an older
    /// one.
    static RUNNING: RefCell<[Option<Py<PyAny>>; KEPT]> = const { RefCell::new([const { None }; KEPT]) };
}

/// The kind of object that a call of `function` returns instead of running its body. `None` if the
/// body runs, or if that is unknown.
pub fn lazy_kind(function: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    let Some(code) = code_of(function)? else { return Ok(None) };
    let place = (code.as_ptr() as usize >> 4) % KEPT;
    let is_known = |known: &Option<Py<PyAny>>| known.as_ref().is_some_and(|k| k.is(&code));
    if RUNNING.try_with(|all| is_known(&all.borrow()[place])).unwrap_or(false) {
        return Ok(None);
    }
    Ok(judge(code, place))
}

#[cold]
fn judge(code: Bound<'_, PyAny>, place: usize) -> Option<&'static str> {
    let flags = code.getattr(interned!(code.py(), "co_flags")).and_then(|f| f.extract::<u32>());
    let flags = flags.ok()?;
    let kind = LAZY_KINDS.iter().find(|(flag, _)| flags & flag != 0).map(|(_, kind)| *kind);
    if kind.is_none() {
        let before = RUNNING.try_with(|all| all.borrow_mut()[place].replace(code.unbind()));
        drop(before); // outside of the borrow: dropping it may run Python
    }
    kind
}

/// The code that a call of `function` runs, if it is Python's.
fn code_of<'py>(function: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    // Built-in functions are pushed often, and a failed look-up would cost an exception.
    if function.is_exact_instance_of::<PyCFunction>() {
        return Ok(None);
    }
    if let Some(code) = CODE.of(function)? {
        return Ok(Some(code));
    }
    let py = function.py();
    let mut inner = function.clone();
    for _ in 0..MOST_PARTIALS {
        if !inner.get_type().is(partial(py)?) {
            break;
        }
        inner = inner.getattr(interned!(py, "func"))?;
    }
    if let Some(code) = CODE.of(&inner)? {
        return Ok(Some(code));
    }
    // An object is called through its class.
    let call = inner.get_type().getattr_opt(interned!(py, "__call__"))?;
    call.map_or(Ok(None), |call| CODE.of(&call))
}

/// `functools.partial`.
fn partial(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: OnceCell<Py<PyType>> = OnceCell::new();
    let load = || Ok::<_, PyErr>(py.import("functools")?.getattr("partial")?.cast_into()?.unbind());
    Ok(CLASS.get_or_try_init(py, load)?.bind(py))
}
