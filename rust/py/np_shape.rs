//! The thread's convention for shapes: whether 0 is an empty axis or an unknown extent.

use crate::shape;
use pyo3::prelude::*;

/// Whether 0 means an empty axis and `()` a scalar in this thread.
#[pyfunction]
fn is_np_shape() -> bool {
    shape::is_np_shape()
}

/// Switches the convention in this thread; returns the former setting.
#[pyfunction]
fn set_np_shape(active: bool) -> bool {
    shape::set_np_shape(active)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(is_np_shape, m)?)?;
    m.add_function(wrap_pyfunction!(set_np_shape, m)?)
}
