//! Runs operators: one call at a time ([`imperative`]) or bound graphs, with gradients
//! ([`autograd`]).
//!
//! [`run`] is the one place where write requests, temporaries and the choice of a kernel are
//! handled.

#[cfg(test)]
mod array_tests;
pub mod autograd;
pub mod bind;
pub mod call_site;
#[cfg(test)]
mod contract_tests;
mod cut;
pub mod exec;
pub mod imperative;
pub mod inline;
pub mod lanes;
pub mod resource;
pub mod run;
pub mod runtime;
pub mod segments;
#[cfg(test)]
mod tests;
pub mod transfer;

pub use imperative::explain_kernels;
pub use runtime::Runtime;
