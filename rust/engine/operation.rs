//! Prepared operations: checked once, pushed many times, deleted once.

use crate::context::Context;
use crate::engine::access::AccessSet;
use crate::engine::push::Prop;
use crate::engine::push::{FindCallSite, Push, RunContext, RunOn, Var};
use crate::engine::task::Task;
use crate::engine::token::OnComplete;
use crate::engine::validate::check_count;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The function of a prepared operation, called once per run.
pub type Repeated = Arc<dyn Fn(&RunContext) -> Result<()> + Send + Sync>;

/// As [`Repeated`]; a run ends when its token is completed.
pub type RepeatedAsync = Arc<dyn Fn(&RunContext, OnComplete) + Send + Sync>;

/// What a prepared operation runs.
#[derive(Clone)]
pub(in crate::engine) enum Function {
    Sync(Repeated),
    Async(RepeatedAsync),
}

/// A prepared operation. Clones are the same operation.
///
/// Runs share the function by reference count.
#[derive(Clone)]
pub struct Operation(Arc<Inner>);

struct Inner {
    function: Function,
    name: Box<str>,
    reads: Box<[Var]>,
    writes: Box<[Var]>,
    overwrites: usize,
    prop: Prop,
    run_on: RunOn,
    is_deleted: AtomicBool,
}

impl Operation {
    pub(in crate::engine) fn new(function: Function, push: &Push<'_>) -> Self {
        Operation(Arc::new(Inner {
            function,
            name: push.name.into(),
            reads: push.reads.into(),
            writes: push.writes.into(),
            overwrites: push.overwrites,
            prop: push.prop,
            run_on: push.run_on,
            is_deleted: AtomicBool::new(false),
        }))
    }

    /// Does something else refer to it, such as a push that has not run?
    #[cfg(feature = "python")]
    pub fn is_shared(&self) -> bool {
        let runs = match &self.0.function {
            Function::Sync(f) => Arc::strong_count(f),
            Function::Async(f) => Arc::strong_count(f),
        };
        runs > 1 || Arc::strong_count(&self.0) > 1
    }

    /// Refuses an operation that was deleted.
    #[inline]
    fn check_live(&self) -> Result<()> {
        #[cold]
        fn deleted(name: &str) -> Error {
            Error::value(format!("operation '{name}' was deleted"))
        }
        if self.0.is_deleted.load(Ordering::Acquire) { Err(deleted(&self.0.name)) } else { Ok(()) }
    }

    /// The task and the push of one run; an error if the operation is deleted.
    #[inline]
    pub(in crate::engine) fn run<'a>(
        &'a self,
        ctx: Context,
        priority: i32,
        call_site: Option<FindCallSite<'a>>,
    ) -> Result<(Task, Push<'a>)> {
        self.check_live()?;
        let o = &*self.0;
        let push = Push {
            ctx,
            overwrites: o.overwrites,
            prop: o.prop,
            priority,
            run_on: o.run_on,
            call_site,
            ..Push::new(&o.name, &o.reads, &o.writes)
        };
        Ok((self.task(), push))
    }

    #[inline]
    fn task(&self) -> Task {
        match &self.0.function {
            Function::Sync(f) => {
                let f = f.clone();
                Task::sync(move |run| f(run))
            }
            Function::Async(f) => {
                let f = f.clone();
                Task::asynchronous(move |run, token| f(run, token))
            }
        }
    }

    /// Makes further pushes errors.
    pub(in crate::engine) fn delete(self) {
        self.0.is_deleted.store(true, Ordering::Release);
    }
}

/// Combines prepared operations into one that runs them in order on one thread, as if they were one
/// function: if one fails, the rest is skipped and everything that any of them writes is poisoned.
/// For many short operations whose dependencies cost more to track than to run. Asynchronous
/// operations cannot be part of a segment.
pub fn segment(name: &str, operations: &[Operation]) -> Result<Operation> {
    let mut accesses = AccessSet::default();
    let mut functions: Vec<Repeated> = Vec::with_capacity(operations.len());
    for operation in operations {
        operation.check_live()?;
        let o = &*operation.0;
        match &o.function {
            Function::Sync(f) => functions.push(f.clone()),
            Function::Async(_) => {
                return Err(Error::value(format!(
                    "invalid operation '{}' of segment '{name}': expected one that is not \
                     asynchronous",
                    o.name
                )));
            }
        }
        accesses.add(&o.reads, &o.writes, o.overwrites);
    }
    let (reads, writes, overwrites) = accesses.take();
    let run: Repeated = Arc::new(move |context| functions.iter().try_for_each(|f| f(context)));
    check_count(name, reads.len() + writes.len())?;
    let push = Push { overwrites, ..Push::new(name, &reads, &writes) };
    Ok(Operation::new(Function::Sync(run), &push))
}
