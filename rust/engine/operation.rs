//! Ready-made operations: made once, pushed many times, deleted once.
//!
//! What a push can know beforehand is found when the operation is made: that its variables differ, its name,
//! its function. A run of an operation that writes something only borrows it: such runs follow one another, so
//! the memory goes back after the last one pushed ([`Core::retire_operation`]). Runs of one that writes nothing
//! may overlap and share its ownership instead.

use super::{OnComplete, Prop, Push, RunContext, Task, Var, check_count};
use crate::context::Context;
use crate::engine::data::task_slab::{Head, VARS};
use crate::engine::data::variables::Vars;
use crate::engine::threaded::bulk::Union;
use crate::engine::threaded::core::Core;
use crate::engine::threaded::push_request::flags;
use crate::error::{Error, Result};
use smallvec::SmallVec;
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

/// In the order in which a push looks at it. Runs look at the function's own memory only, which nobody writes.
#[repr(C, align(64))]
pub(in crate::engine) struct OperationInner {
    /// What a run in the default context has in its slot, if its variables fit there.
    pub head: Head,
    /// [`Vars::gone`] when its variables were last found; under the push lock.
    found: AtomicU64,
    /// The last run pushed: a [`TaskRef`](crate::engine::data::task_slab::TaskRef), changed under the push lock.
    pub last: AtomicU64,
    deleted: AtomicBool,
    pub cheap: bool,
    pub prop: Prop,
    pub function: Function,
    /// What it reads, then what it writes.
    vars: SmallVec<[Var; VARS]>,
    pub name: Box<str>,
}

// SAFETY: the name in `head` is read only by the engine whose table it points into; the rest is `Send` and `Sync`.
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
        let (reads, writes) = self.lists();
        Push {
            ctx,
            overwrites: self.head.overwrites as usize,
            prop: self.prop,
            priority,
            cheap: self.cheap,
            ..Push::new(&self.name, reads, writes)
        }
    }

    /// Are all its variables alive? They are looked for once, and again when others were deleted.
    #[inline(always)]
    pub fn is_found(&self, vars: &Vars) -> bool {
        self.found.load(Ordering::Relaxed) == vars.gone() || self.find(vars)
    }

    #[cold]
    fn find(&self, vars: &Vars) -> bool {
        let all = self.vars.iter().all(|&v| vars.find(v).is_some());
        if all {
            self.found.store(vars.gone(), Ordering::Relaxed);
        }
        all
    }

    /// What it reads, what it writes.
    #[inline(always)]
    pub fn lists(&self) -> (&[Var], &[Var]) {
        self.vars.split_at(self.head.reads as usize)
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
        let vars: SmallVec<[Var; VARS]> = push.reads.iter().chain(push.writes).copied().collect();
        let mut head = Head::new(kept_name, flags((push.prop, push.cheap, 0)), Context::default());
        (head.reads, head.writes) = (push.reads.len() as u16, push.writes.len() as u16);
        head.overwrites = push.overwrites as u16;
        head.vars.iter_mut().zip(&vars).for_each(|(place, v)| *place = v.number());
        let inner = Box::new(OperationInner {
            head,
            found: AtomicU64::new(u64::MAX),
            last: AtomicU64::new(crate::engine::data::task_slab::TaskRef::NONE.0),
            deleted: AtomicBool::new(false),
            cheap: push.cheap,
            prop: push.prop,
            function,
            vars,
            name: push.name.into(),
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
        let o = self.inner();
        of && o.vars.len() <= VARS && o.head.writes != 0
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
        struct Borrowed<T: ?Sized>(NonNull<T>);
        // SAFETY: what it points to is `Sync`.
        unsafe impl<T: ?Sized + Sync> Send for Borrowed<T> {}
        impl<T: ?Sized> Borrowed<T> {
            fn get(&self) -> &T {
                // SAFETY: promised by the caller of `borrowed_task`.
                unsafe { self.0.as_ref() }
            }
        }
        match &self.inner().function {
            Function::Sync(f) => {
                let f = Borrowed(NonNull::from(&**f));
                Task::sync(move |run| f.get()(run))
            }
            // The token may be completed while the function still runs, so that shares its ownership.
            Function::Async(f) => {
                let f = Borrowed(NonNull::from(f));
                Task::asynchronous(move |run, token| {
                    let f = f.get().clone();
                    f(run, token);
                })
            }
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
        let (reads, writes) = o.lists();
        union.add(reads, writes, o.head.overwrites as usize);
    }
    let (reads, writes, overwrites) = union.take();
    let run: Repeated = Arc::new(move |context| functions.iter().try_for_each(|f| f(context)));
    check_count(name, reads.len() + writes.len())?;
    let push = Push { overwrites, ..Push::new(name, &reads, &writes) };
    Ok(Operation::new(Function::Sync(run), &push))
}
