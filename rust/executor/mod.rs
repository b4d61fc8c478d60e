//! Runs operators: one call at a time ([`imperative`]) or bound graphs, with gradients ([`autograd`]).
//!
//! [`run`] is the one place where write requests, temporaries and the choice of a kernel are handled.

#[cfg(test)]
mod array_tests;
mod at_once;
pub mod autograd;
pub mod bind;
mod concurrent;
#[cfg(test)]
mod contract_tests;
mod cut;
pub mod exec;
pub mod imperative;
pub mod lanes;
pub mod line;
pub mod resource;
pub mod run;
pub mod runtime;
pub mod segments;
mod short;
#[cfg(test)]
mod tests;
pub mod transfer;

pub use imperative::explain_kernels;
pub use runtime::Runtime;
