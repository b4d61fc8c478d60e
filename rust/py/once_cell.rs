//! Values made at their first use.
//!
//! The once-cells of pyo3 release the interpreter while they fill, so a fork meanwhile leaves the
//! child with a cell that is being filled for ever. A [`OnceCell`] is never half filled: the value
//! is made first, perhaps by several threads, and the first one is kept.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

pub struct OnceCell<T>(PyOnceLock<T>);

impl<T> OnceCell<T> {
    pub const fn new() -> Self {
        OnceCell(PyOnceLock::new())
    }

    #[inline]
    pub fn get_or_init(&self, py: Python<'_>, make: impl FnOnce() -> T) -> &T {
        match self.0.get(py) {
            Some(known) => known,
            None => self.keep(py, make()),
        }
    }

    #[inline]
    pub fn get_or_try_init(
        &self,
        py: Python<'_>,
        make: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<&T> {
        match self.0.get(py) {
            Some(known) => Ok(known),
            None => Ok(self.keep(py, make()?)),
        }
    }

    #[cold]
    fn keep(&self, py: Python<'_>, made: T) -> &T {
        let _ = self.0.set(py, made); // if another thread was faster, its value stays
        self.0.get(py).expect("it was filled above")
    }
}

/// The Python string, made once.
macro_rules! interned {
    ($py:expr, $text:expr) => {{
        static TEXT: $crate::py::once_cell::OnceCell<pyo3::Py<pyo3::types::PyString>> =
            $crate::py::once_cell::OnceCell::new();
        $crate::py::once_cell::text($py, &TEXT, $text)
    }};
}
pub(crate) use interned;

pub fn text<'py>(
    py: Python<'py>,
    cell: &'static OnceCell<Py<PyString>>,
    text: &str,
) -> &'py Bound<'py, PyString> {
    cell.get_or_init(py, || PyString::intern(py, text).unbind()).bind(py)
}
