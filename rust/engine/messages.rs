//! Errors that both engines raise in the same words.

use crate::engine::push::Var;
use crate::error::Error;

/// The name of the variable with index `i`.
pub fn variable_name(i: u32) -> String {
    format!("variable {i}")
}

/// The error for using a variable that was deleted, or that another engine created.
#[cold]
pub fn deleted_variable(var: Var) -> Error {
    Error::value(format!("variable {} is deleted or of another engine", var.number()))
}

/// The error of a wait, inside operation `name`, for something ordered after that operation.
#[cold]
pub fn waits_for_itself(name: &str, i: u32) -> Error {
    let var = variable_name(i);
    Error::value(format!(
        "operation '{name}' waits for itself: {var} cannot become ready before it ends"
    ))
}

/// The error of a stop inside an operation.
#[cold]
pub fn stops_itself() -> Error {
    Error::value("stop() inside an operation would wait for that operation itself")
}

/// The error of a wait inside an operation that would block a compute thread.
#[cold]
pub fn may_not_wait() -> Error {
    Error::value(
        "an operation on a compute thread may not wait for others: let it depend on them, or make \
         it asynchronous",
    )
}
