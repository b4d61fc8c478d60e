//! The dependency engine: runs every operation as soon as the variables it reads and writes allow.
//!
//! Order is push order between operations that share a variable one of them writes; reads of one
//! variable run side by side; everything else is unordered. The engine knows nothing of tensors: an
//! operation is any function with the variables it reads and writes.
//!
//! # Where to start
//!
//! Make a [`ThreadedEngine`], and a variable ([`Engine::new_token`]) for each thing that functions share. Give
//! [`Engine::push`] a function ([`Task::sync`]) with what it reads and writes ([`Push::new`]).
//! [`Engine::wait_for_var`] and [`Engine::wait_for_all`] wait, and return the error of what failed.
//!
//! ```
//! use rsnet::engine::{Engine, Push, Task, ThreadedEngine, patiently};
//! use std::sync::{Arc, Mutex};
//!
//! // An order book for each share: its orders are filled in the order in which they come, shares side by side.
//! let engine = ThreadedEngine::new();
//! let books: Vec<_> = (0..2).map(|_| (engine.new_token(), Arc::new(Mutex::new(0)))).collect();
//! for (share, amount) in [(0, 20), (1, 5), (0, -8), (1, 7)] {
//!     let (book, held) = &books[share];
//!     let held = held.clone();
//!     let fill = Task::sync(move |_| {
//!         *held.lock().unwrap() += amount; // nobody else is here: the engine keeps the others away
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
//! A [`Var`] is a number: it lives until [`Engine::delete_variable`]. An engine that is dropped skips what has not
//! started. Which of the two kinds of variables is yours, and what an error does to each: [`Engine::new_token`].
//! [`bulk`] and [`Engine::new_operation`] are for operations that are short or come again. `docs/engine.md` tells
//! the rest, in the names of Python.

mod data;
mod engine_type;
mod error_state;
mod hook;
#[cfg(all(test, loom))]
mod loom_models;
mod naive;
mod operation;
mod priority;
mod sync;
mod task;
mod threaded;

/// The Rust program of the engine's page is a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/engine.md")]
struct Page;

pub use data::variables::gone;
pub use engine_type::{EngineType, create};
pub use hook::{Event, Hook, Step};
pub use naive::engine::NaiveEngine;
pub use operation::{Operation, Repeated, RepeatedAsync, segment};
pub use priority::{Rank, RankedQueue};
pub use task::{Mark, OnComplete, Task};
pub use threaded::bulk::BulkScope;
pub use threaded::engine::ThreadedEngine;
pub use threaded::fork::HeldForFork;
pub use threaded::pool::usable_cores;

use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// A token that orders the operations that name it. It carries no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub(in crate::engine) u64);

impl Var {
    /// What messages call the variable by. Another one may have the number once this one is deleted.
    pub fn number(self) -> u32 {
        self.0 as u32
    }
}

/// What exists only while an operation runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunContext {
    /// The device the operation was pushed for.
    pub ctx: Context,
    /// The stream of a GPU; `None` on the CPU.
    pub stream: Option<usize>,
    /// Was the operation gathered with others? See [`bulk`].
    pub is_bulk: bool,
    /// Where it came among those that were ready: for an operation that hands its function on to where others wait, too.
    /// (Ordinary under the naive engine, where nothing waits.)
    pub rank: Rank,
}

/// How an operation is to be treated; MXNet's `FnProperty`. A [`bulk`] gathers normal ones only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Prop {
    /// In no special way.
    #[default]
    Normal = 0,
    /// A name of MXNet's: as a normal one, because all devices share the threads.
    CopyFromDevice = 1,
    /// As [`Prop::CopyFromDevice`].
    CopyToDevice = 2,
    /// Goes before ordinary operations that are ready, as if by a priority above zero.
    CpuPrioritized = 3,
    /// Only starts work: may run on the pushing thread if it is ready there.
    Async = 4,
    /// Gives back what is behind a variable: goes before ordinary operations, and runs even when its variables
    /// carry an error and after [`Engine::notify_shutdown`]; may run on the pushing thread. (It deletes no
    /// variable: [`Engine::delete_variable`] does.)
    DeleteVar = 5,
    /// As [`Prop::CpuPrioritized`].
    GpuPrioritized = 6,
    /// Runs even when its variables carry an error.
    NoSkip = 7,
}

/// Everything about a push but its function.
#[derive(Clone, Copy)]
pub struct Push<'a> {
    /// The device; `cpu(0)` by default.
    pub ctx: Context,
    /// What the operation reads. Those that only read a variable run side by side. No variable is named twice, here
    /// and in `writes` together.
    pub reads: &'a [Var],
    /// What it writes, and may read as well.
    pub writes: &'a [Var],
    /// So many of the first `writes`, at most all, are overwritten whole and not read: an old error on them does not
    /// stop the operation, and its success heals them.
    pub overwrites: usize,
    /// How it is to be treated.
    pub prop: Prop,
    /// Greater runs earlier among operations that are ready; below zero: after all others.
    pub priority: i32,
    /// Known to be short (at most some microseconds, nothing that blocks): run on the pushing thread when
    /// ready, whatever its priority.
    pub cheap: bool,
    /// What errors, hooks and reports call the operation.
    pub name: &'a str,
    /// Tells the line of the user's program that pushed it, for errors and reports.
    pub origin: Option<Origin<'a>>,
}

/// The user's line, asked for only when the operation is queued, outlives its push, or fails.
pub type Origin<'a> = &'a dyn Fn() -> Option<Arc<str>>;

impl<'a> Push<'a> {
    /// A normal push to `cpu(0)`. The other fields can be set as in `Push { priority: 1, ..Push::new(..) }`.
    pub fn new(name: &'a str, reads: &'a [Var], writes: &'a [Var]) -> Self {
        Push {
            ctx: Context::default(),
            reads,
            writes,
            overwrites: 0,
            prop: Prop::Normal,
            priority: 0,
            cheap: false,
            name,
            origin: None,
        }
    }
}

/// Called about every 50 ms of a wait; an error ends the wait (a signal, say). Nothing is lost by it.
pub type Poll<'a> = &'a mut dyn FnMut() -> Result<()>;

/// A poll that never gives up.
pub fn patiently() -> impl FnMut() -> Result<()> {
    || Ok(())
}

/// What every engine does. Errors of operations travel along the variables they write: see
/// `engine/README.md` for *reported* and *poisoned*.
///
/// ```
/// use rsnet::engine::{Engine, NaiveEngine, Push, Task, ThreadedEngine, patiently};
/// use rsnet::{Error, Result};
/// use std::sync::{Arc, Mutex};
///
/// /// Orders come in, are checked one by one, and booked into one ledger in the order of their pushes.
/// fn book(engine: &dyn Engine, orders: &[i64]) -> Result<i64> {
///     let (sum, ledger) = (Arc::new(Mutex::new(0)), engine.new_variable());
///     for &amount in orders {
///         let checked = engine.new_token();
///         let check = Task::sync(move |_| match amount {
///             1.. => Ok(()),
///             _ => Err(Error::value(format!("an order over {amount}"))),
///         });
///         engine.push(check, Push::new("check", &[], &[checked]))?;
///         let sum = sum.clone();
///         let book = Task::sync(move |_| {
///             *sum.lock().unwrap() += amount;
///             Ok(())
///         });
///         engine.push(book, Push::new("book", &[checked], &[ledger]))?;
///         engine.delete_variable(checked, None); // after the two
///     }
///     engine.wait_for_var(ledger, &mut patiently())?;
///     let sum = *sum.lock().unwrap();
///     Ok(sum)
/// }
///
/// for engine in [&ThreadedEngine::new() as &dyn Engine, &NaiveEngine::new()] {
///     assert_eq!(book(engine, &[20, 5, 17]).unwrap(), 42);
///     let error = book(engine, &[20, -5, 17]).unwrap_err(); // what was to be booked after it is skipped
///     assert_eq!((error.message(), error.operator()), ("an order over -5", Some("check")));
/// }
/// ```
pub trait Engine: Send + Sync {
    /// A new variable behind which there are bytes, as those of an array: ready to be read and written, version 0. After
    /// an error it stays *poisoned*, as the bytes were never computed: operations that name it are skipped, and no
    /// further wait tells, until one that overwrites it whole ([`Push::overwrites`]) succeeds. For anything but
    /// bytes take [`Engine::new_token`]. (That is what `new_variable` of Python makes.)
    fn new_variable(&self) -> Var;

    /// A new variable behind which there are no bytes: once a wait has raised its error, operations that name it
    /// run again. Python calls it `new_variable`.
    ///
    /// ```
    /// use rsnet::engine::{Engine, Push, Task, ThreadedEngine, patiently};
    /// use rsnet::Error;
    ///
    /// let engine = ThreadedEngine::new();
    /// let (token, bytes) = (engine.new_token(), engine.new_variable());
    /// for v in [token, bytes] {
    ///     engine.push(Task::sync(|_| Err(Error::value("bad"))), Push::new("fail", &[], &[v]))?;
    ///     assert!(engine.wait_for_var(v, &mut patiently()).is_err());
    ///     engine.wait_for_var(v, &mut patiently())?; // it is raised once
    /// }
    /// assert!(engine.poisoned(token).is_none());
    /// assert!(engine.poisoned(bytes).is_some());
    ///
    /// let whole = [bytes];
    /// let heal = Push { overwrites: 1, ..Push::new("overwrite", &[], &whole) };
    /// engine.push(Task::sync(|_| Ok(())), heal)?;
    /// engine.wait_for_var(bytes, &mut patiently())?;
    /// assert!(engine.poisoned(bytes).is_none());
    /// # Ok::<(), rsnet::Error>(())
    /// ```
    fn new_token(&self) -> Var;

    /// Ends a variable after every earlier use of it; `last` then runs. No use is legal after the call. False: it was
    /// deleted before, and nothing happens.
    fn delete_variable(&self, var: Var, last: Option<Box<dyn FnOnce() + Send>>) -> bool;

    /// Schedules an operation and returns at once. An error means that nothing was scheduled: a variable that is
    /// deleted, named twice, or both read and written; a device that is not there. (An engine that runs the operation
    /// inside the push may have to give up waiting for its token; then the operation has failed, and the push
    /// says why: see [`NaiveEngine::with_poll`].)
    fn push(&self, task: Task, push: Push<'_>) -> Result<()>;

    /// Makes an operation to be pushed many times. An error: a variable that is deleted, named twice, or both read and
    /// written, or more overwritten than written.
    fn new_operation(&self, run: Repeated, push: Push<'_>) -> Result<Operation>;
    /// The same with a function that ends by its token.
    fn new_async_operation(&self, run: RepeatedAsync, push: Push<'_>) -> Result<Operation>;
    /// Schedules a run of a ready-made operation and returns at once. Its device and priority are those given here, all
    /// else is as it was made with. An error means that nothing was scheduled: the operation or one of its
    /// variables is deleted, or the device is not there.
    fn push_operation(&self, operation: &Operation, ctx: Context, priority: i32) -> Result<()> {
        self.push_operation_at(operation, ctx, priority, None)
    }
    /// The same, with the user's line; see [`Push::origin`].
    fn push_operation_at(
        &self,
        operation: &Operation,
        ctx: Context,
        priority: i32,
        origin: Option<Origin<'_>>,
    ) -> Result<()>;
    /// Ends it: what was pushed still runs, and another push is an error. Its memory goes back after the last run.
    fn delete_operation(&self, operation: Operation);

    /// Blocks until every operation pushed before that names `var` is done; raises its unreported error. Other errors:
    /// the variable is deleted; the wait is part of an operation that would wait for itself, or holds a compute
    /// thread; the poll's; the limit of [`Engine::set_wait_timeout`].
    fn wait_for_var(&self, var: Var, poll: Poll<'_>) -> Result<()>;
    /// Blocks until every write pushed before is done; raises its unreported error. Other errors as for
    /// [`Engine::wait_for_var`].
    fn wait_to_read(&self, var: Var, poll: Poll<'_>) -> Result<()>;
    /// Blocks until everything pushed before is done; raises the first unreported error, after which all count as
    /// reported. Inside an operation it covers what that operation has pushed. Other errors: the poll's; the limit of
    /// [`Engine::set_wait_timeout`].
    fn wait_for_all(&self, poll: Poll<'_>) -> Result<()>;

    /// The error because of which the bytes behind `var` were never computed, reported or not. Meaningful
    /// once the writers of `var` are done.
    fn poisoned(&self, var: Var) -> Option<Error>;

    /// The error that a wait for `var` would raise now; it counts as raised from here on. Waits for nothing.
    fn take_error(&self, var: Var) -> Option<Error>;

    /// If nothing is pending that writes `reads`, nothing at all is pending on `writes`, and none is
    /// poisoned: runs `f` at once, during which no push can be ordered before it, and returns true.
    /// For work far shorter than a task.
    fn with_quiet(&self, reads: &[Var], writes: &[Var], f: &mut dyn FnMut()) -> bool;

    /// Completed writes of `var`, those of skipped operations included; 0 if it is deleted.
    fn version(&self, var: Var) -> u64;

    /// Does a push run its operation before it returns?
    fn runs_inside_push(&self) -> bool {
        false
    }

    /// Sets how many consecutive pushes of this thread are gathered into one operation, and gives the number
    /// before. 0 and 1: none. See [`bulk`].
    fn set_bulk_size(&self, size: usize) -> Result<usize>;

    /// How many threads run operations and kernels, started or not: [`Engine::set_num_threads`] says, or by default
    /// the cores that the process may use. 1 where operations run inside the push.
    fn num_threads(&self) -> usize;
    /// Changes their number at any time: operations that run end on the old threads, and the queues go on to the new
    /// ones. An error: 0, more than there are places for, or threads that cannot be started. Without effect
    /// where operations run inside the push.
    fn set_num_threads(&self, n: usize) -> Result<()>;
    /// Finishes all work, whatever its errors, and ends the threads; [`Engine::start`] brings them back. An error inside
    /// an operation, which would wait for itself; the poll's; the limit of [`Engine::set_wait_timeout`]. After an
    /// error the engine goes on as it was.
    fn stop(&self, poll: Poll<'_>) -> Result<()>;
    /// Starts the threads, if there are none. Never needed: work starts them. Should that fail, the next wait tells.
    fn start(&self);
    /// A wait that lasts longer ends with an error that names what it waits for; where operations run inside the push, so
    /// does a push whose operation nobody completes. `None`: no limit.
    fn set_wait_timeout(&self, limit: Option<Duration>);
    /// Where operations run inside the push: does a push raise the error of its operation, which no wait raises then?
    /// Gives what was set before. An error where they do not.
    fn set_raise_in_push(&self, _on: bool) -> Result<bool> {
        Err(Error::value("this engine does not run operations inside their pushes"))
    }
    /// Who is told of every operation queued, started and finished. Costs nothing while there is none.
    fn set_hook(&self, hook: Option<Arc<dyn Hook>>);
    /// Is there somebody to tell? (What needs no task is then made one.)
    fn is_hooked(&self) -> bool;
    /// Takes every lock of the engine, to be released after a fork in parent and child. Waits for nothing but
    /// the locks.
    fn before_fork(&self) -> HeldForFork<'_> {
        HeldForFork::nothing()
    }
    /// From now on operations that have not started are completed without being run, but for those of [`Prop::DeleteVar`]
    /// and the last functions of deleted variables, which give back what is behind them. (A function of Python never
    /// starts any more, whatever its property: the threads that would run it take nothing at exit.)
    fn notify_shutdown(&self);
}

/// Gathers the calling thread's pushes, up to `size` into one operation, until the answer is dropped.
///
/// Ordinary pushes only: no priority, no special property, and a function that ends by returning. They are
/// pushed when `size` are gathered, and before anything of this thread that could notice: another kind of
/// push, a deletion, a wait, a look at data. If one of the functions fails, the rest of its operation is
/// skipped and everything that the operation writes is poisoned.
///
/// ```
/// use rsnet::engine::{Engine, Push, Task, ThreadedEngine, bulk, patiently};
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use std::sync::Arc;
///
/// // 1,000 lines of a log are counted in operations of 100 lines.
/// let engine = ThreadedEngine::new();
/// let (log, count) = (engine.new_variable(), Arc::new(AtomicUsize::new(0)));
/// let scope = bulk(&engine, 100)?;
/// for _ in 0..1000 {
///     let count = count.clone();
///     let task = Task::sync(move |run| {
///         assert!(run.is_bulk);
///         count.fetch_add(1, Ordering::Relaxed);
///         Ok(())
///     });
///     engine.push(task, Push::new("count", &[], &[log]))?;
/// }
/// drop(scope);
/// engine.wait_for_var(log, &mut patiently())?;
/// assert_eq!(count.load(Ordering::Relaxed), 1000);
/// assert_eq!(engine.version(log), 10);
/// # Ok::<(), rsnet::Error>(())
/// ```
pub fn bulk(engine: &dyn Engine, size: usize) -> Result<BulkScope<'_>> {
    BulkScope::new(engine, size)
}

/// An operation for a device that is not there is refused by its push.
#[inline]
fn check_device(name: &str, ctx: Context) -> Result<()> {
    #[cold]
    fn absent(name: &str, ctx: Context) -> Error {
        let text = format!("{ctx} is not available: no CUDA device was found");
        Error::new(ErrorKind::Execution, text).in_operator(name)
    }
    if ctx.is_host() { Ok(()) } else { Err(absent(name, ctx)) }
}

/// Up to so many variables are compared with each other.
const FEW: usize = 16;

/// So many variables may one operation name.
pub const MOST_VARIABLES: usize = u16::MAX as usize;

/// What every push is checked for first: its device, and how much it overwrites.
#[inline]
fn check_push(push: &Push<'_>) -> Result<()> {
    check_device(push.name, push.ctx)?;
    check_overwrites(push)
}

#[inline]
fn check_overwrites(push: &Push<'_>) -> Result<()> {
    #[cold]
    fn beyond(push: &Push<'_>) -> Error {
        let (name, all, n) = (push.name, push.overwrites, push.writes.len());
        Error::value(format!("operation '{name}' overwrites {all} variables, but writes only {n}"))
    }
    if push.overwrites <= push.writes.len() { Ok(()) } else { Err(beyond(push)) }
}

/// Is every variable named once? (One operation names no more than [`MOST_VARIABLES`].)
fn all_differ(reads: &[Var], writes: &[Var]) -> bool {
    let n = reads.len() + writes.len();
    if n > FEW {
        let mut seen = HashSet::with_capacity(n);
        return n <= MOST_VARIABLES && reads.iter().chain(writes).all(|v| seen.insert(v.0));
    }
    let of_reads = |(i, v)| !reads[..i].contains(v) && !writes.contains(v);
    reads.iter().enumerate().all(of_reads)
        && writes.iter().enumerate().all(|(i, v)| !writes[..i].contains(v))
}

/// An error if `n` variables are more than one operation may name.
fn check_count(name: &str, n: usize) -> Result<()> {
    if n <= MOST_VARIABLES {
        return Ok(());
    }
    let text = format!("it names {n} variables, and {MOST_VARIABLES} are the most");
    Err(Error::value(format!("operation '{name}': {text}")))
}

/// A variable named twice, or both read and written: which, and in which way. Positions are those of the
/// lists.
pub fn check_variables(name: &str, reads: &[Var], writes: &[Var]) -> Result<()> {
    let fail = |what: String| Err(Error::value(format!("operation '{name}': {what}")));
    let n = reads.len() + writes.len();
    check_count(name, n)?;
    if all_differ(reads, writes) {
        return Ok(());
    }
    for (i, w) in writes.iter().enumerate() {
        if let Some(j) = writes[..i].iter().position(|v| v == w) {
            return fail(format!(
                "variable {} is written twice (positions {j} and {i})",
                w.number()
            ));
        }
        if let Some(j) = reads.iter().position(|v| v == w) {
            return fail(format!(
                "variable {} is both read (position {j}) and written (position {i})",
                w.number()
            ));
        }
    }
    for (i, r) in reads.iter().enumerate() {
        if let Some(j) = reads[..i].iter().position(|v| v == r) {
            return fail(format!("variable {} is read twice (positions {j} and {i})", r.number()));
        }
    }
    Ok(())
}
