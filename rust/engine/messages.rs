//! Errors that both engines raise in the same words.

use crate::engine::push::Var;
use crate::error::Error;

/// The name of the variable with index `i`.
pub fn variable_name(i: u32) -> String {
    format!("variable {i}")
}

/// Why an engine does not know a variable.
const UNKNOWN: &str = "is deleted or of another engine";

/// The error for using a variable that was deleted, or that another engine created.
#[cold]
pub fn deleted_variable(var: Var) -> Error {
    Error::value(format!("{} {UNKNOWN}", variable_name(var.number())))
}

/// The same for a push, of an operation that `reads` or `writes` the variable.
#[cold]
pub fn names_deleted_variable(operation: &str, reads_or_writes: &str, var: Var) -> Error {
    let var = variable_name(var.number());
    Error::value(format!("operation '{operation}' {reads_or_writes} {var}, which {UNKNOWN}"))
}

/// The error of an operation with its name, if it has no place yet, and the line that pushed it.
#[cold]
pub fn with_place(error: Error, operation: &str, call_site: Option<&str>) -> Error {
    error.in_operator(operation).at_call_site(call_site.unwrap_or_default())
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
