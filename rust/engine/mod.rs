//! The dependency engine: runs every operation as soon as the variables it reads and writes allow.
//!
//! Operations that share a variable which one of them writes run in push order; readers of one
//! variable run side by side; everything else is unordered. The engine does not depend on tensors:
//! an operation is any function with the variables it reads and writes.
//!
//! # Where to start
//!
//! Create a [`ThreadedEngine`] and one variable ([`Engine::new_token`]) for each thing that
//! functions share. Pass a function ([`Task::sync`]) to [`Engine::push`] with what it reads and
//! writes ([`Push::new`]). [`Engine::wait_for_var`] and [`Engine::wait_for_all`] wait, and return
//! the error of the operation that failed.
//!
//! ```
//! use rsnet::engine::{Engine, Push, Task, ThreadedEngine, patiently, RunOn};
//! use std::sync::{Arc, Mutex};
//!
//! // One order book per share: its orders are filled in order of arrival, shares side by side.
//! let engine = ThreadedEngine::new();
//! let books: Vec<_> = (0..2).map(|_| (engine.new_token(), Arc::new(Mutex::new(0)))).collect();
//! for (share, amount) in [(0, 20), (1, 5), (0, -8), (1, 7)] {
//!     let (book, held) = &books[share];
//!     let held = held.clone();
//!     let fill = Task::sync(move |_| {
//!         *held.lock().unwrap() += amount; // never contended: the engine serialises the writers
//!         Ok(())
//!     });
//!     engine.push(fill, Push::new("fill", &[], &[*book]))?;
//! }
//! for (book, held) in &books {
//!     engine.wait_for_var(*book, &mut patiently())?;
//!     assert_eq!(*held.lock().unwrap(), 12);
//!     engine.delete_variable(*book, None);
//! }
//! # Ok::<(), rsnet::Error>(())
//! ```
//!
//! A [`Var`] is a number: it lives until [`Engine::delete_variable`]. Dropping an engine skips the
//! operations that have not started. [`Engine::new_token`] explains the two kinds of variables and
//! what an error does to each. [`bulk`] and [`Engine::new_operation`] serve operations that are
//! short or pushed repeatedly. `docs/engine.md` covers the rest with Python's names.

mod access;
mod data;
#[expect(clippy::module_inception, reason = "the trait `Engine` of the module `engine`")]
mod engine;
mod engine_type;
mod error_state;
mod fork;
mod hook;
#[cfg(all(test, loom))]
mod loom_models;
mod messages;
mod naive;
mod operation;
mod priority;
mod push;
mod slow_path;
mod sync;
mod task;
mod threaded;
mod token;
mod validate;

/// The Rust program in the engine's guide is a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/engine.md")]
struct Guide;

pub use engine::{Engine, Poll, patiently};
pub use engine_type::{EngineType, create};
pub use fork::HeldForFork;
pub use hook::{Event, Hook, HookEvent};
pub use messages::deleted_variable;
pub use naive::NaiveEngine;
pub use operation::{Operation, Repeated, RepeatedAsync, segment};
pub use priority::{Priority, PriorityQueue};
pub use push::{FindCallSite, Prop, Push, RunContext, RunOn, Var};
pub use task::Task;
pub use threaded::{BulkScope, ThreadedEngine, bulk, usable_cores};
pub use token::{Mark, OnComplete};
pub use validate::{MAX_VARIABLES, check_variables};
