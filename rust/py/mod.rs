//! The binding: converts arguments, leaves the interpreter for waits, calls the core, maps errors. The
//! only folder that knows Python; each room adds its own file with a function `register`.

#![allow(unsafe_op_in_unsafe_fn)] // pyo3's generated wrappers, where methods are declared by a macro

mod arithmetic;
mod attribute;
pub mod autograd;
mod callable;
pub mod callback;
pub mod callback_threads;
pub mod convert;
pub mod dlpack;
pub mod engine;
mod engine_args;
mod engine_call;
mod engine_control;
mod engine_hook;
pub mod error;
pub mod executor;
pub mod function;
pub mod graph;
mod interrupt;
mod introspect;
mod invoke;
mod lazy;
pub mod ndarray;
pub mod operator;
pub mod origin;
pub mod params;
pub mod profiler;
pub mod random;
pub mod symbol;

use crate::engine::{Engine, EngineType, NaiveEngine, create};
use crate::executor::Runtime;
use pyo3::prelude::*;
use std::sync::{Arc, OnceLock};

static RUNTIME: OnceLock<Arc<Runtime>> = OnceLock::new();

/// The process's runtime. The core has no state of its own: what is one for the process lives in this folder.
/// Its engine is the one that the environment
/// names; a name that is unknown fails the import, so here it can only be a known one.
pub fn runtime() -> &'static Arc<Runtime> {
    RUNTIME.get_or_init(|| {
        let kind = EngineType::from_environment().unwrap_or(EngineType::Threaded);
        tell_engine();
        let engine: Arc<dyn Engine> = match kind {
            // Ctrl-C reaches a push that waits for a token.
            EngineType::Naive => Arc::new(NaiveEngine::with_poll(error::poll_signals)),
            EngineType::Threaded => create(kind),
        };
        if is_set("RSNET_RAISE_IN_PUSH") {
            // Without a meaning for the threaded engine, so it does no harm there.
            let _ = engine.set_raise_in_push(true);
        }
        Runtime::new(engine)
    })
}

/// Is this environment variable 1 or true?
fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|v| v == "1" || v.eq_ignore_ascii_case("true"))
}

/// Says which engine starts, if `MXNET_ENGINE_INFO` asks for it.
fn tell_engine() {
    if is_set("MXNET_ENGINE_INFO") {
        let kind = std::env::var("MXNET_ENGINE_TYPE").unwrap_or_default();
        let kind = if kind.is_empty() { "ThreadedEnginePerDevice" } else { &kind };
        eprintln!("MXNet start using engine: {kind}");
    }
}

#[pymodule(gil_used = false)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    error::IntoPy::py(EngineType::from_environment(), m.py())?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    engine::register(m)?;
    ndarray::register(m)?;
    function::register(m)?;
    autograd::register(m)?;
    random::register(m)?;
    profiler::register(m)?;
    params::register(m)?;
    operator::register(m)?;
    introspect::register(m)?;
    callback::register(m)?;
    dlpack::register(m)?;
    symbol::register(m)?;
    executor::register(m)?;
    graph::register(m)?;
    convert::load_numpy(m.py())
}
