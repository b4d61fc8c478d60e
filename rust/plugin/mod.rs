//! Libraries of compiled operators: C, C++ and Rust code loaded at run time.
//!
//! A library knows rsnet by one header, `include/rsnet/plugin.h`, and rsnet knows a library by what
//! it registers: descriptions that `decl` copies and checks, and functions that are called through
//! `call`, behind the library's own guard against exceptions. `define` makes ordinary operator
//! definitions of both, so no other room knows where an operator comes from.
//!
//! | file | what it does |
//! |---|---|
//! | `abi` | the layouts of the header |
//! | `load`, `elf` | opens a file, registers all or nothing |
//! | `registration`, `decl`, `condition` | what a library says |
//! | `define`, `kernel`, `gradient` | operators, kernels and gradients of it |
//! | `parsed`, `values` | the attributes of a call |
//! | `frame`, `host`, `call` | one callback: circumstances, the functions it may call, result |
//! | `remember` | answers that need not be asked for again |
//! | `watch` | kernels that are checked while they run |

mod abi;
mod call;
mod condition;
mod decl;
mod define;
mod elf;
mod frame;
mod gradient;
mod host;
mod kernel;
mod load;
mod parsed;
mod registration;
mod remember;
mod values;
mod watch;

pub use decl::{ArgDecl, AttrDecl, OpDecl};
pub use define::{Parts, signatures};
pub use load::{Admit, Libraries, Loaded, Try};

/// Flags of [`ArgDecl`].
pub use abi::{AT_LEAST, OPTIONAL};
