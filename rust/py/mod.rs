//! The binding: converts arguments, releases the interpreter for waits, calls the core, maps
//! errors. The only folder that depends on Python; each part adds its own file with a function
//! `register`.

// pyo3's generated wrappers, where methods are declared by a macro.
#![allow(unsafe_op_in_unsafe_fn)]

mod arguments;
mod arithmetic;
mod array_indexing;
mod array_memory;
mod array_methods;
pub mod autograd;
mod cached;
mod cached_descriptor;
mod call_python;
pub mod call_site;
pub mod callback;
pub mod callback_threads;
pub mod convert;
mod coroutine;
mod cuda;
mod cuda_launch;
mod cuda_memory;
pub mod dlpack;
pub mod engine;
mod engine_args;
mod engine_call;
mod engine_control;
mod engine_hook;
mod engine_push;
mod engine_variable;
pub mod error;
pub mod executor;
pub mod function;
pub mod graph;
mod image;
mod image_loader;
mod interrupt;
mod introspect;
pub mod ndarray;
mod np_shape;
mod once_cell;
mod op_context;
pub mod operator;
mod operator_condition;
mod operator_gradient;
mod package;
pub mod params;
mod payload;
mod plugin;
pub mod profiler;
mod python_kernel;
pub mod random;
mod signature;
pub mod symbol;
mod symbol_methods;
mod tape_node;
mod thread_state;

use crate::engine::{Engine, EngineType, NaiveEngine, create};
use crate::executor::Runtime;
use pyo3::prelude::*;
use std::sync::{Arc, OnceLock};

static RUNTIME: OnceLock<Arc<Runtime>> = OnceLock::new();

/// The process's runtime. Runtimes are values: the one that Python uses is made here. The
/// environment names its engine; an unknown name fails the import before this is
/// called.
pub fn runtime() -> &'static Arc<Runtime> {
    RUNTIME.get_or_init(|| {
        let kind = EngineType::from_environment().unwrap_or(EngineType::Threaded);
        announce_engine();
        let engine: Arc<dyn Engine> = match kind {
            // Ctrl-C reaches a push that waits for a token.
            EngineType::Naive => Arc::new(NaiveEngine::with_poll(error::poll_signals)),
            EngineType::Threaded => create(kind),
        };
        if is_set("RSNET_RAISE_IN_PUSH") {
            // The threaded engine ignores it.
            let _ = engine.set_raise_in_push(true);
        }
        // A callback on another thread needs the interpreter.
        let runtime = Runtime::with_blocking(engine, |f| Python::attach(|py| py.detach(f)));
        runtime.cuda.set_notice(cuda::warn_of_host);
        runtime.cuda.functions.set_loader(cuda::load);
        runtime.cuda.functions.set_finder(cuda::find_library);
        runtime
    })
}

/// Returns true if this environment variable is 1 or true.
fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|v| v == "1" || v.eq_ignore_ascii_case("true"))
}

/// Prints which engine starts, if `MXNET_ENGINE_INFO` asks for it.
fn announce_engine() {
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
    package::register(m)?;
    engine::register(m)?;
    arithmetic::register(m)?;
    array_methods::register(m)?;
    array_memory::register(m)?;
    np_shape::register(m)?;
    function::register(m)?;
    autograd::register(m)?;
    tape_node::register(m)?;
    random::register(m)?;
    profiler::register(m)?;
    params::register(m)?;
    operator::register(m)?;
    plugin::register(m)?;
    introspect::register(m)?;
    op_context::register(m)?;
    dlpack::register(m)?;
    symbol_methods::register(m)?;
    executor::register(m)?;
    cached::register(m)?;
    graph::register(m)?;
    cuda::register(m)?;
    cuda_launch::register(m)?;
    cuda_memory::register(m)?;
    image::register(m)?;
    image_loader::register(m)?;
    convert::load_numpy(m.py())
}
