//! The thread's convention for shapes: whether 0 is an empty axis or an unknown extent.

use pyo3::prelude::*;
use std::cell::Cell;

thread_local! {
    static NP_SHAPE: Cell<bool> = const { Cell::new(false) };
}

/// Whether 0 means an empty axis and `()` a scalar in this thread.
#[pyfunction]
pub fn is_np_shape() -> bool {
    NP_SHAPE.get()
}

/// Switches the convention in this thread; returns the former setting.
#[pyfunction]
fn set_np_shape(active: bool) -> bool {
    NP_SHAPE.replace(active)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(is_np_shape, m)?)?;
    m.add_function(wrap_pyfunction!(set_np_shape, m)?)
}
