//! The binding: converts arguments, leaves the interpreter for waits, calls the core, maps errors. The
//! only folder that knows Python; each room adds its own file with a function `register`.

#![allow(unsafe_op_in_unsafe_fn)] // pyo3's generated wrappers, where methods are declared by a macro

pub mod attached;
pub mod autograd;
pub mod callback;
pub mod convert;
pub mod error;
pub mod function;
pub mod ndarray;
pub mod operator;
pub mod params;
pub mod random;

use crate::engine::NaiveEngine;
use crate::ndarray::Runtime;
use pyo3::prelude::*;
use std::sync::{Arc, OnceLock};

static RUNTIME: OnceLock<Arc<Runtime>> = OnceLock::new();

/// The process's runtime: the one static of the whole house.
pub fn runtime() -> &'static Arc<Runtime> {
    RUNTIME.get_or_init(|| Runtime::new(Arc::new(NaiveEngine::new())))
}

#[pymodule(gil_used = false)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    ndarray::register(m)?;
    function::register(m)?;
    autograd::register(m)?;
    random::register(m)?;
    params::register(m)?;
    operator::register(m)?;
    callback::register(m)?;
    Ok(())
}
