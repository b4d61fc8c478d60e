//! The dependency engine: runs every operation as soon as the variables it reads and writes allow.
//!
//! Order is push order between operations that share a variable one of them writes; reads of one
//! variable run side by side; everything else is unordered. The engine knows nothing of tensors: an
//! operation is any function with the variables it reads and writes.

mod engine_type;
mod fault;
mod fork;
mod frame;
mod hook;
#[cfg(all(test, loom))]
mod loom_models;
mod naive;
mod names;
mod pool;
mod queue;
mod sleep;
mod slot;
mod sync;
mod task;
mod threaded;
mod threaded_engine;
mod var;
mod wait;
mod worker;

pub use engine_type::{EngineType, create};
pub use fork::HeldForFork;
pub use hook::{Event, Hook, Step};
pub use naive::NaiveEngine;
pub use pool::usable_cores;
pub use task::{Mark, OnComplete, Task};
pub use threaded_engine::ThreadedEngine;

use crate::context::Context;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// A token that orders the operations that name it. It carries no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub(in crate::engine) u64);

/// What exists only while an operation runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunContext {
    /// The device the operation was pushed for.
    pub ctx: Context,
    /// The stream of a GPU; `None` on the CPU.
    pub stream: Option<usize>,
    pub is_bulk: bool,
}

/// How an operation is to be treated; MXNet's `FnProperty`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Prop {
    #[default]
    Normal = 0,
    CopyFromDevice = 1,
    CopyToDevice = 2,
    CpuPrioritized = 3,
    /// Only starts work: may run on the pushing thread if it is ready there.
    Async = 4,
    DeleteVar = 5,
    GpuPrioritized = 6,
    /// Runs even when its variables carry an error.
    NoSkip = 7,
}

/// Everything about a push but its function.
#[derive(Clone, Copy)]
pub struct Push<'a> {
    pub ctx: Context,
    pub reads: &'a [Var],
    pub writes: &'a [Var],
    /// So many of the first `writes` are overwritten whole and not read: an old error on them does not
    /// stop the operation, and its success heals them.
    pub overwrites: usize,
    pub prop: Prop,
    /// Greater runs earlier among operations that are ready.
    pub priority: i32,
    /// Known to be short (at most some microseconds, nothing that blocks): run on the pushing thread when
    /// ready.
    pub cheap: bool,
    pub name: &'a str,
    /// The user's line, asked for only when the operation is queued or fails.
    pub origin: Option<&'a dyn Fn() -> Option<Arc<str>>>,
}

impl<'a> Push<'a> {
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

/// A function that ready-made operations run each time they are pushed.
pub type Repeated = Arc<dyn Fn(&RunContext) -> Result<()> + Send + Sync>;

/// A ready-made operation: pushed many times, deleted once.
#[derive(Clone)]
pub struct Operation(pub(in crate::engine) Arc<OperationInner>);

pub(in crate::engine) struct OperationInner {
    pub run: Repeated,
    pub reads: Vec<Var>,
    pub writes: Vec<Var>,
    pub overwrites: usize,
    pub prop: Prop,
    pub cheap: bool,
    pub name: String,
    pub deleted: std::sync::atomic::AtomicBool,
}

impl OperationInner {
    fn new(run: Repeated, push: &Push<'_>) -> Self {
        OperationInner {
            run,
            reads: push.reads.to_vec(),
            writes: push.writes.to_vec(),
            overwrites: push.overwrites,
            prop: push.prop,
            cheap: push.cheap,
            name: push.name.to_owned(),
            deleted: std::sync::atomic::AtomicBool::new(false),
        }
    }

    fn check_live(&self) -> Result<()> {
        if self.deleted.load(std::sync::atomic::Ordering::Acquire) {
            return Err(Error::value(format!("operation '{}' was deleted", self.name)));
        }
        Ok(())
    }

    fn push(&self, ctx: Context, priority: i32) -> Push<'_> {
        Push {
            ctx,
            overwrites: self.overwrites,
            prop: self.prop,
            priority,
            cheap: self.cheap,
            ..Push::new(&self.name, &self.reads, &self.writes)
        }
    }
}

/// One operation that runs several ready-made ones in order, on one thread, as if they were one function: if
/// one fails, the rest is skipped and everything that any of them writes is poisoned. For many short operations,
/// whose dependencies cost more to follow than to run.
pub fn segment(name: &str, operations: &[Operation]) -> Result<Operation> {
    use std::collections::HashMap;
    let mut vars: Vec<Var> = Vec::new();
    let mut known: HashMap<Var, (bool, bool)> = HashMap::new();
    for o in operations {
        o.0.check_live()?;
        let reads = o.0.reads.iter().map(|v| (v, false, false));
        let writes = o.0.writes.iter().enumerate().map(|(i, v)| (v, true, i < o.0.overwrites));
        for (&v, is_written, is_overwritten) in reads.chain(writes) {
            // What counts for the whole is whether its first use overwrites, and whether any writes.
            let entry = known.entry(v).or_insert_with(|| {
                vars.push(v);
                (false, is_overwritten)
            });
            entry.0 |= is_written;
        }
    }
    let of = |written: bool, whole: bool| {
        let known = &known;
        vars.iter()
            .copied()
            .filter(move |v| known[v].0 == written && (!written || known[v].1 == whole))
    };
    let overwritten: Vec<Var> = of(true, true).collect();
    let reads: Vec<Var> = of(false, false).collect();
    let writes: Vec<Var> = overwritten.iter().copied().chain(of(true, false)).collect();
    let functions: Vec<Repeated> = operations.iter().map(|o| o.0.run.clone()).collect();
    let run: Repeated = Arc::new(move |context| functions.iter().try_for_each(|f| f(context)));
    let push = Push { overwrites: overwritten.len(), ..Push::new(name, &reads, &writes) };
    Ok(Operation(Arc::new(OperationInner::new(run, &push))))
}

/// What every engine does. Errors of operations travel along the variables they write: see
/// `engine/README.md` for *reported* and *poisoned*.
pub trait Engine: Send + Sync {
    /// A new variable, ready to be read and written, version 0.
    fn new_variable(&self) -> Var;

    /// Ends a variable after every earlier use of it; `last` then runs. No use is legal after the call.
    fn delete_variable(&self, var: Var, last: Option<Box<dyn FnOnce() + Send>>);

    /// Schedules an operation and returns at once. An error means that nothing was scheduled: a variable
    /// named twice, or both read and written, or an engine that is shut down.
    fn push(&self, task: Task, push: Push<'_>) -> Result<()>;

    /// Makes an operation to be pushed many times. Errors as for [`Engine::push`].
    fn new_operation(&self, run: Repeated, push: Push<'_>) -> Result<Operation>;
    fn push_operation(&self, operation: &Operation, ctx: Context, priority: i32) -> Result<()>;
    /// Deletes it once all its pushes have run.
    fn delete_operation(&self, operation: Operation);

    /// Blocks until every operation pushed before that names `var` is done; raises its unreported error.
    fn wait_for_var(&self, var: Var, poll: Poll<'_>) -> Result<()>;
    /// Blocks until every write pushed before is done; raises its unreported error.
    fn wait_to_read(&self, var: Var, poll: Poll<'_>) -> Result<()>;
    /// Blocks until everything pushed before is done; raises the first unreported error.
    fn wait_for_all(&self, poll: Poll<'_>) -> Result<()>;

    /// The error because of which the bytes behind `var` were never computed, reported or not. Meaningful
    /// once the writers of `var` are done.
    fn poisoned(&self, var: Var) -> Option<Error>;

    /// If nothing is pending that writes `reads`, nothing at all is pending on `writes`, and none is
    /// poisoned: runs `f` at once, during which no push can be ordered before it, and returns true.
    /// For work far shorter than a task.
    fn with_quiet(&self, reads: &[Var], writes: &[Var], f: &mut dyn FnMut()) -> bool;

    /// Completed writes of `var`.
    fn version(&self, var: Var) -> u64;

    /// Does a push run its operation before it returns?
    fn runs_inside_push(&self) -> bool {
        false
    }

    /// Threads that run operations and kernels.
    fn num_threads(&self) -> usize;
    fn set_num_threads(&self, n: usize) -> Result<()>;
    /// Finishes all work and ends the threads; [`Engine::start`] brings them back.
    fn stop(&self);
    fn start(&self);
    /// A wait that lasts longer ends with an error that names what it waits for. `None`: no limit.
    fn set_wait_timeout(&self, _limit: Option<Duration>) {}
    /// Who is told of every operation queued, started and finished. Costs nothing while there is none.
    fn set_hook(&self, _hook: Option<Arc<dyn Hook>>) {}
    /// Takes every lock of the engine, to be released after a fork in parent and child. Waits for nothing but
    /// the locks.
    fn before_fork(&self) -> HeldForFork<'_> {
        HeldForFork::nothing()
    }
    /// From now on operations that have not started are completed without being run, deletions excepted.
    fn notify_shutdown(&self);
}

/// A variable named twice, or both read and written: which, and in which way. Positions are those of the
/// lists.
pub fn check_variables(name: &str, reads: &[Var], writes: &[Var]) -> Result<()> {
    let fail = |what: String| Err(Error::value(format!("operation '{name}': {what}")));
    for (i, w) in writes.iter().enumerate() {
        if let Some(j) = writes[..i].iter().position(|v| v == w) {
            return fail(format!("variable {} is written twice (positions {j} and {i})", w.0));
        }
        if let Some(j) = reads.iter().position(|v| v == w) {
            return fail(format!(
                "variable {} is both read (position {j}) and written (position {i})",
                w.0
            ));
        }
    }
    for (i, r) in reads.iter().enumerate() {
        if let Some(j) = reads[..i].iter().position(|v| v == r) {
            return fail(format!("variable {} is read twice (positions {j} and {i})", r.0));
        }
    }
    Ok(())
}
