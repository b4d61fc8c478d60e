//! `_core.SymbolHandle`; its methods are in `symbol_methods.rs`.

use super::error::to_py;
use crate::error::Error;
use crate::graph::Symbol;
use pyo3::prelude::*;

/// A symbol of the core.
#[pyclass(frozen, name = "SymbolHandle", module = "rsnet._core")]
pub struct PySymbol {
    pub symbol: Symbol,
}

impl From<Symbol> for PySymbol {
    fn from(symbol: Symbol) -> Self {
        PySymbol { symbol }
    }
}

/// The exception for an error, where no interpreter token is at hand.
pub(super) fn raise(error: Error) -> PyErr {
    Python::attach(|py| to_py(py, &error))
}
