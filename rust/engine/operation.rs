//! Ready-made operations: made once, pushed many times, deleted once.
//!
//! What a push can know beforehand is found when the operation is made: that its variables differ, its name,
//! its function. A run of an operation that writes something only borrows it: such runs follow one another, so
//! the memory goes back after the last one pushed ([`Core::retire_operation`]). Runs of one that writes nothing
//! may overlap and share its ownership instead.

use super::bulk::Union;
use super::threaded::Core;
use super::{OnComplete, Prop, Push, RunContext, Task, Var};
use crate::context::Context;
use crate::error::{Error, Result};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A function that ready-made operations run each time they are pushed.
pub type Repeated = Arc<dyn Fn(&RunContext) -> Result<()> + Send + Sync>;

/// The same, done when the token is completed.
pub type RepeatedAsync = Arc<dyn Fn(&RunContext, OnComplete) + Send + Sync>;

/// What a ready-made operation runs.
#[derive(Clone)]
pub(in crate::engine) enum Function {
    Sync(Repeated),
    Async(RepeatedAsync),
}

/// A ready-made operation: pushed many times, deleted once. Clones are the same operation.
#[derive(Clone)]
pub struct Operation(Arc<Handle>);

/// Owns what runs borrow; ends it when they are done.
struct Handle {
    inner: NonNull<OperationInner>,
    /// The engine whose tasks borrow it, if any do.
    core: Option<Arc<Core>>,
}

// SAFETY: a handle owns its `OperationInner`, which is `Send` and `Sync`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made from a box by `Operation::new`, and dropped here only.
        let inner = unsafe { Box::from_raw(self.inner.as_ptr()) };
        match &self.core {
            Some(core) => core.retire_operation(inner),
            None => drop(inner),
        }
    }
}

pub(in crate::engine) struct OperationInner {
    pub function: Function,
    pub reads: Vec<Var>,
    pub writes: Vec<Var>,
    pub overwrites: usize,
    pub prop: Prop,
    pub cheap: bool,
    pub name: String,
    /// `name` in the table of the engine that it is made for.
    pub kept_name: *const Box<str>,
    /// The last run pushed: a [`TaskRef`](super::slot::TaskRef), changed under the push lock.
    pub last: AtomicU64,
    deleted: AtomicBool,
}

// SAFETY: `kept_name` is read only by the engine whose table it points into; the rest is `Send` and `Sync`.
unsafe impl Send for OperationInner {}
// SAFETY: as above.
unsafe impl Sync for OperationInner {}

impl OperationInner {
    #[inline]
    pub fn check_live(&self) -> Result<()> {
        if self.deleted.load(Ordering::Acquire) { Err(self.is_gone()) } else { Ok(()) }
    }

    #[cold]
    fn is_gone(&self) -> Error {
        Error::value(format!("operation '{}' was deleted", self.name))
    }

    pub fn push(&self, ctx: Context, priority: i32) -> Push<'_> {
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

impl Operation {
    /// For any engine: every run shares the ownership.
    pub(in crate::engine) fn new(function: Function, push: &Push<'_>) -> Self {
        Self::made(function, push, std::ptr::null(), None)
    }

    /// For the engine of `core`, in whose table `kept_name` is.
    pub(in crate::engine) fn of_core(
        function: Function,
        push: &Push<'_>,
        kept_name: *const Box<str>,
        core: Arc<Core>,
    ) -> Self {
        Self::made(function, push, kept_name, Some(core))
    }

    fn made(
        function: Function,
        push: &Push<'_>,
        kept_name: *const Box<str>,
        core: Option<Arc<Core>>,
    ) -> Self {
        let inner = Box::new(OperationInner {
            function,
            reads: push.reads.to_vec(),
            writes: push.writes.to_vec(),
            overwrites: push.overwrites,
            prop: push.prop,
            cheap: push.cheap,
            name: push.name.to_owned(),
            kept_name,
            last: AtomicU64::new(super::slot::TaskRef::NONE.0),
            deleted: AtomicBool::new(false),
        });
        Operation(Arc::new(Handle { inner: NonNull::from(Box::leak(inner)), core }))
    }

    /// What it was made with.
    #[inline]
    pub(in crate::engine) fn inner(&self) -> &OperationInner {
        // SAFETY: the handle owns it and is alive.
        unsafe { self.0.inner.as_ref() }
    }

    /// May runs on the engine of `core` borrow the operation?
    #[inline]
    pub(in crate::engine) fn lends_to(&self, core: &Core) -> bool {
        let of = self.0.core.as_ref().is_some_and(|c| std::ptr::eq(&**c, core));
        of && !self.inner().writes.is_empty()
    }

    /// No push of it is accepted any more.
    pub(in crate::engine) fn delete(&self) {
        self.inner().deleted.store(true, Ordering::Release);
    }

    /// One run that shares the ownership.
    pub(in crate::engine) fn task(&self) -> Task {
        match &self.inner().function {
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

    /// One run that borrows the operation.
    ///
    /// # Safety
    /// The run is over before the operation's memory goes back: see [`Core::retire_operation`].
    #[inline]
    pub(in crate::engine) unsafe fn borrowed_task(&self) -> Task {
        struct Borrowed(NonNull<OperationInner>);
        // SAFETY: what it points to is `Sync`.
        unsafe impl Send for Borrowed {}
        impl Borrowed {
            fn get(&self) -> &OperationInner {
                // SAFETY: promised by the caller of `borrowed_task`.
                unsafe { self.0.as_ref() }
            }
        }
        let this = Borrowed(self.0.inner);
        match &self.inner().function {
            Function::Sync(_) => Task::sync(move |run| match &this.get().function {
                Function::Sync(f) => f(run),
                Function::Async(_) => Ok(()),
            }),
            // The token may be completed while the function still runs, so that shares its ownership.
            Function::Async(_) => Task::asynchronous(move |run, token| {
                let function = this.get().function.clone();
                if let Function::Async(f) = function {
                    f(run, token);
                }
            }),
        }
    }
}

/// One operation that runs several ready-made ones in order, on one thread, as if they were one function: if
/// one fails, the rest is skipped and everything that any of them writes is poisoned. For many short operations,
/// whose dependencies cost more to follow than to run. Asynchronous operations cannot be part of one.
pub fn segment(name: &str, operations: &[Operation]) -> Result<Operation> {
    let mut union = Union::default();
    let mut functions: Vec<Repeated> = Vec::with_capacity(operations.len());
    for o in operations.iter().map(Operation::inner) {
        o.check_live()?;
        match &o.function {
            Function::Sync(f) => functions.push(f.clone()),
            Function::Async(_) => {
                return Err(Error::value(format!(
                    "operation '{}' is asynchronous and cannot be part of segment '{name}'",
                    o.name
                )));
            }
        }
        union.add(&o.reads, &o.writes, o.overwrites);
    }
    let (reads, writes, overwrites) = union.take();
    let run: Repeated = Arc::new(move |context| functions.iter().try_for_each(|f| f(context)));
    let push = Push { overwrites, ..Push::new(name, &reads, &writes) };
    Ok(Operation::new(Function::Sync(run), &push))
}
