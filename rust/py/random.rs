//! Seeds of the random streams.

use super::convert::context_arg;
use super::runtime;
use pyo3::prelude::*;

/// Seeds every device's stream, or that of one device.
#[pyfunction]
#[pyo3(signature = (seed, ctx=None))]
fn seed(seed: i64, ctx: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let seed = seed as u64;
    match ctx {
        None => runtime().random.seed_all(seed),
        Some(ctx) => runtime().random.seed(context_arg(Some(ctx))?, seed),
    }
    Ok(())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(seed, m)?)
}
