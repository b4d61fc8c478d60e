//! The Python objects of an operator: of its parameters, and of a node's state.

use crate::operator::DeferredError;
use pyo3::prelude::*;
use std::sync::{Arc, OnceLock};

/// The properties decided by the parameters of one call; mirrors
/// `rsnet._operators.definition.Facts`.
#[derive(Default, FromPyObject)]
pub struct Facts {
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub visible: usize,
    pub mutated: Vec<usize>,
    pub ignored: Vec<usize>,
}

/// What a kernel gets in one place of a list.
#[derive(FromPyObject)]
pub enum Given {
    /// The input of this number.
    Input(usize),
    /// What stands for an array that is not among the inputs.
    Other(Py<PyAny>),
}

/// The lists that kernels get instead of one of all inputs, and how many outputs, from the first.
#[derive(FromPyObject)]
pub struct GivenOperands(pub Vec<Vec<Given>>, pub usize);

/// [`Attrs::typed`] of operators from Python.
pub struct Payload {
    pub object: Py<PyAny>,
    /// Of the operator itself, and of its backward operator, which is given the same payload.
    pub facts: [OnceLock<Arc<Facts>>; 2],
    /// Likewise; known from the first run on.
    pub given: [OnceLock<GivenOperands>; 2],
    pub error: DeferredError,
}

/// The state that forward and backward of one node share: a Python object.
pub struct PyState(pub Py<PyAny>);
