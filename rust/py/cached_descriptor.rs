//! Attributes of built-in classes that every push reads.
//!
//! Finding an attribute by its name takes several times as long as reading it. The classes of
//! functions and frames are immutable, so the *descriptor* that reads an attribute of theirs is
//! looked up once and called directly. Attributes of objects of other classes are looked up by
//! name.

use super::once_cell::{self, OnceCell};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// An attribute that is read faster for the objects of one class.
pub struct CachedDescriptor {
    /// In the module `types`.
    class: &'static str,
    name: &'static str,
    found: OnceCell<Option<Found>>,
    text: OnceCell<Py<PyString>>,
}

struct Found {
    class: Py<PyType>,
    descriptor: Py<PyAny>,
    get: ffi::descrgetfunc,
}

/// `function.__code__`.
pub static CODE: CachedDescriptor = CachedDescriptor::new("FunctionType", "__code__");
/// `function.__qualname__`.
pub static QUALIFIED_NAME: CachedDescriptor = CachedDescriptor::new("FunctionType", "__qualname__");
/// `frame.f_lasti`.
pub static INSTRUCTION: CachedDescriptor = CachedDescriptor::new("FrameType", "f_lasti");

impl CachedDescriptor {
    const fn new(class: &'static str, name: &'static str) -> Self {
        CachedDescriptor { class, name, found: OnceCell::new(), text: OnceCell::new() }
    }

    /// The attribute of an object of the class. Returns `None` for any other object.
    #[inline]
    fn of_class<'py>(&self, object: &Bound<'py, PyAny>) -> Option<PyResult<Bound<'py, PyAny>>> {
        let py = object.py();
        let find = || {
            let found = self.find(py);
            debug_assert!(found.is_ok(), "types.{}.{} is not found", self.class, self.name);
            found.ok()
        };
        let found = self.found.get_or_init(py, find).as_ref()?;
        let class = found.class.as_ptr();
        // SAFETY: a live object.
        if unsafe { ffi::Py_TYPE(object.as_ptr()) }.cast() != class {
            return None;
        }
        // SAFETY: the descriptor's own function, with an object of its class; returns an owned
        // reference, or null and an error.
        unsafe {
            let value = (found.get)(found.descriptor.as_ptr(), object.as_ptr(), class);
            Some(Bound::from_owned_ptr_or_err(py, value))
        }
    }

    /// The attribute of any object that has it.
    #[inline]
    pub fn of<'py>(
        &'static self,
        object: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.of_class(object) {
            Some(value) => value.map(Some),
            None => object.getattr_opt(once_cell::text(object.py(), &self.text, self.name)),
        }
    }

    #[cold]
    fn find(&self, py: Python<'_>) -> PyResult<Found> {
        let class = py.import("types")?.getattr(self.class)?.cast_into::<PyType>()?;
        // Not `getattr`: a class may have an attribute of that name itself, such as `__qualname__`.
        let descriptor = class.getattr("__dict__")?.get_item(self.name)?;
        // SAFETY: the class of a live object; the function of a slot has the type of that slot.
        let get = unsafe {
            let get =
                ffi::PyType_GetSlot(descriptor.get_type().as_type_ptr(), ffi::Py_tp_descr_get);
            std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::descrgetfunc>>(get)
        };
        let get = get.ok_or_else(|| pyo3::exceptions::PyTypeError::new_err(self.name))?;
        Ok(Found { class: class.unbind(), descriptor: descriptor.unbind(), get })
    }
}
