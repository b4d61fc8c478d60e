//! Calling Python functions.
//!
//! While the interpreter ends, Python (before 3.14) ends a thread that comes back to it with
//! `pthread_exit`. What that unwinds must not be Rust that catches panics or has something to drop:
//! the process would abort. So above every call of Python code stands a frame that no unwinding
//! passes: the thread stays there for good, as it does from Python 3.14 on. (pyo3 does the same
//! where it attaches a thread.)

use pyo3::BoundObject;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Does not let anything unwind past it.
struct Halt;

impl Drop for Halt {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

type ObjectCall = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// Calls of Python code; see above.
pub trait CallPython<'py> {
    /// `self(*args)`.
    fn call_python<A>(&self, args: A) -> PyResult<Bound<'py, PyAny>>
    where
        A: IntoPyObject<'py, Target = PyTuple>;
}

impl<'py> CallPython<'py> for Bound<'py, PyAny> {
    fn call_python<A>(&self, args: A) -> PyResult<Bound<'py, PyAny>>
    where
        A: IntoPyObject<'py, Target = PyTuple>,
    {
        let py = self.py();
        let args = args.into_pyobject(py).map_err(Into::into)?.into_bound();
        // `black_box`: the declaration in `ffi` says that the function never unwinds, and the
        // compiler must not apply that here.
        let call = std::hint::black_box(ffi::PyObject_Call as *const ());
        // SAFETY: the function of that address, of which it is said in addition that it may unwind.
        let call: ObjectCall = unsafe { std::mem::transmute(call) };
        let halt = Halt;
        // SAFETY: attached, with a callable or not, and a tuple, which live until the end.
        let result = unsafe { call(self.as_ptr(), args.as_ptr(), std::ptr::null_mut()) };
        std::mem::forget(halt);
        // SAFETY: an owned reference, or null and an error.
        unsafe { Bound::from_owned_ptr_or_err(py, result) }
    }
}
