//! Runs operators: one call at a time ([`imperative`]) or bound graphs, with gradients
//! ([`autograd`]).
//!
//! [`run`] is the one place where write requests, temporaries and the choice of a kernel are
//! handled.

pub mod arena;
#[cfg(test)]
mod array_tests;
pub mod autograd;
pub mod bind;
mod builtins;
pub mod cached;
mod call_outputs;
pub mod call_site;
mod chain;
mod concurrent;
#[cfg(test)]
mod contract_tests;
pub mod control_flow;
#[cfg(test)]
mod error_place_tests;
pub mod exec;
pub mod imperative;
pub mod inline;
mod inputs;
pub mod instance;
#[cfg(test)]
mod kept_tests;
pub mod launch;
mod on_device;
pub mod operands;
mod order_steps;
pub mod places;
mod replay;
pub mod resource;
pub mod run;
#[cfg(test)]
mod run_tests;
pub mod runtime;
mod segmentation;
pub mod segments;
pub mod step;
#[cfg(test)]
mod tests;
pub mod transfer;

pub use call_outputs::{explain_kernels, infer_outputs};
pub use runtime::Runtime;
