//! CUDA devices: the driver, bound when a device is first used; contexts, streams, memory.
//!
//! Nothing here is linked against CUDA: a program that uses no `gpu` context loads no library of
//! it. `README.md` describes the design, and what is not there yet.

mod blas;
mod device;
mod devices;
mod driver;
mod fault;
mod functions;
mod graph;
mod library;
mod memory;
mod primary;
mod staged;
mod stream;

pub use blas::{Gemm, Matrix};
pub use device::{Device, Lent, Transfer, Way};
pub use devices::{Devices, HeldForFork, MAX_DEVICES};
pub use driver::Driver;
pub use functions::{Finder, Function, Functions, Loader};
pub use graph::Recording;
pub use library::Handle;
pub use staged::{Operand, Staged};
pub use stream::{From, Origin, Ticket};
