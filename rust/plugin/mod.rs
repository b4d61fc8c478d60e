//! Libraries of compiled operators: C, C++ and Rust code loaded at run time.
//!
//! A library knows rsnet by one header, `include/rsnet/plugin.h`, and rsnet knows a library by what
//! it registers: descriptions that `decl` copies and checks, and functions that are called through
//! `call`, behind the library's own guard against exceptions. `define` makes ordinary operator
//! definitions of both, so no other room knows where an operator comes from.
//!
//! Each file uses those above it in this table, but for a pair that stands in one line.
//!
//! | file | what it does |
//! |---|---|
//! | `abi`, `dtypes` | the layouts of the header |
//! | `library` | a library that is loaded: its guard, and what it made |
//! | `reading`, `condition`, `decl`, `registration` | what a library says, checked and copied |
//! | `values`, `remember`, `parsed` | what is known of one set of attributes |
//! | `rule` | a gradient rule while it is written |
//! | `frame`, `host`, `call` | one callback: circumstances, the functions it may call, result |
//! | `counts`, `parse` | the attributes of a call, and how many arrays each argument has |
//! | `learn` | dtypes of which nothing is known, by asking |
//! | `watch` | kernels that are checked while they run |
//! | `resolve`, `inference`, `kernel`, `gradient`, `define` | operators of all that |
//! | `image`, `dynamic`, `elf` | is a file a library, and whole |
//! | `load` | opens a file, registers all or nothing |

mod abi;
mod call;
mod condition;
mod counts;
mod decl;
mod define;
mod dtypes;
mod dynamic;
mod elf;
mod frame;
mod gradient;
mod host;
mod image;
mod inference;
mod kernel;
mod learn;
mod library;
mod load;
mod parse;
mod parsed;
mod reading;
mod registration;
mod remember;
mod resolve;
mod rule;
mod values;
mod watch;

pub use decl::{ArgDecl, AttrDecl, OpDecl};
pub use define::{Parts, signatures};
pub use load::{Admit, Libraries, Loaded, Try};

/// Flags of [`ArgDecl`].
pub use abi::{AT_LEAST, OPTIONAL};
