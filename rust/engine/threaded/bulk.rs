//! Bulk mode: consecutive pushes of one thread become one operation.
//!
//! While a thread's bulk size is above one, its ordinary pushes (no priority, no special property,
//! a function that ends by returning) are gathered and pushed together: when the size is reached or
//! lowered, when the device changes, before any other push or deletion, before a wait or a read of
//! data, before a fork, and when the thread ends. The functions run in order on one thread. If one
//! fails, the rest is skipped, and everything that any of them writes carries the error, as if they
//! were one function.

use crate::context::Context;
use crate::engine::access::AccessSet;
use crate::engine::data::variables::explain;
use crate::engine::engine::Engine;
use crate::engine::messages::with_place;
use crate::engine::push::{Prop, Push, RunContext, RunOn, Var};
use crate::engine::task::Task;
use crate::engine::threaded::core::Core;
use crate::engine::threaded::current;
use crate::engine::token::OnComplete;
use crate::engine::validate::MAX_VARIABLES;
use crate::error::Result;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

/// One gathered function.
struct GatheredCall {
    task: Task,
    name: Box<str>,
    call_site: Option<Arc<str>>,
    is_short: bool,
}

impl GatheredCall {
    /// Returns true if running it only hands a function to another thread.
    fn only_starts(&self) -> bool {
        self.is_short && self.task.is_asynchronous()
    }
}

/// Maximum number of gathered functions that the operation's call site lists.
const MAX_LISTED: usize = 8;

/// `one (file:3), two (file:4) and 5 more`: the calls, as the origin of the operation that they
/// become. None if there is no line among them.
fn call_sites_of(calls: &[GatheredCall]) -> Option<Arc<str>> {
    calls.iter().find(|s| s.call_site.is_some())?;
    let mut text = String::new();
    for (i, GatheredCall { name, call_site, .. }) in calls.iter().take(MAX_LISTED).enumerate() {
        text += if i > 0 { ", " } else { "" };
        text += name;
        if let Some(call_site) = call_site {
            text.extend([" (", call_site, ")"]);
        }
    }
    if calls.len() > MAX_LISTED {
        text += &format!(" and {} more", calls.len() - MAX_LISTED);
    }
    Some(text.into())
}

/// The pushes that one thread has gathered for one engine.
struct Bulk {
    core: Weak<Core>,
    size: usize,
    ctx: Context,
    calls: Vec<GatheredCall>,
    accesses: AccessSet,
}

impl Bulk {
    /// Takes the operation gathered so far.
    fn take(&mut self) -> Option<Batch> {
        let calls = std::mem::take(&mut self.calls);
        (!calls.is_empty()).then(|| Batch { calls, ctx: self.ctx, vars: self.accesses.take() })
    }
}

struct Batch {
    calls: Vec<GatheredCall>,
    ctx: Context,
    vars: (Vec<Var>, Vec<Var>, usize),
}

impl Batch {
    fn push(self, core: &Core) -> Result<()> {
        let (reads, writes, overwrites) = &self.vars;
        let calls = self.calls;
        let call_site = call_sites_of(&calls);
        let push = Push {
            ctx: self.ctx,
            overwrites: *overwrites,
            // Starting functions that are handed off takes little time, however many they are.
            run_on: RunOn::pusher_if(calls.iter().all(GatheredCall::only_starts)),
            call_site: Some(&|| call_site.clone()),
            ..Push::new("ImperativeBulk", reads, writes)
        };
        let mut task = if calls.iter().any(|s| s.task.is_asynchronous()) {
            Task::asynchronous(move |run, token| run_remaining(calls.into_iter(), *run, token))
        } else {
            Task::sync(move |run| {
                let run = RunContext { is_bulk: true, ..*run };
                calls.into_iter().try_for_each(|GatheredCall { task, name, call_site, .. }| {
                    task.run_sync(&run).map_err(|e| with_place(e, &name, call_site.as_deref()))
                })
            })
        };
        core.push_task(&mut task, &push)
    }
}

/// Runs the calls one after the other; one that ends by its token is followed by the rest when it
/// is completed.
fn run_remaining(mut calls: std::vec::IntoIter<GatheredCall>, run: RunContext, token: OnComplete) {
    let run = RunContext { is_bulk: true, ..run };
    while let Some(GatheredCall { task, name, call_site, .. }) = calls.next() {
        if task.is_asynchronous() {
            let mark = token.mark();
            let go_on = move |result: Result<()>| match result {
                Ok(()) => run_remaining(calls, run, token),
                Err(e) => token.complete(Err(with_place(e, &name, call_site.as_deref()))),
            };
            task.run_asynchronous(&run, OnComplete::marked(mark, go_on));
            return;
        }
        if let Err(e) = task.run_sync(&run) {
            return token.complete(Err(with_place(e, &name, call_site.as_deref())));
        }
    }
    token.complete(Ok(()));
}

/// The bulks of one thread, one per engine.
struct Bulks(RefCell<Vec<Bulk>>);

impl Drop for Bulks {
    /// The thread ends: pushes what it has gathered.
    fn drop(&mut self) {
        for bulk in self.0.get_mut() {
            if let (Some(core), Some(gathered)) = (bulk.core.upgrade(), bulk.take()) {
                // Fails if the slab is full; there is no caller to report to.
                let _ = gathered.push(&core);
            }
        }
    }
}

thread_local! {
    /// True if this thread has a bulk size for any engine: the only check of a push otherwise.
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static BULKS: Bulks = const { Bulks(RefCell::new(Vec::new())) };
}

/// Calls `f` with this thread's bulk for `core`, if it has one.
#[cold]
fn with_bulk<R>(core: &Core, f: impl FnOnce(&mut Bulk) -> R) -> Option<R> {
    let of_core = |b: &&mut Bulk| std::ptr::eq(b.core.as_ptr(), core);
    let within = |bulks: &Bulks| bulks.0.borrow_mut().iter_mut().find(of_core).map(f);
    BULKS.try_with(within).ok().flatten()
}

impl Core {
    /// Sets this thread's bulk size and returns the previous one.
    pub fn set_bulk_size(&self, size: usize) -> Result<usize> {
        if size == 0 && !IS_ON.get() {
            return Ok(0); // as before and after every callback
        }
        let change = |bulk: &mut Bulk| {
            let gathered = if bulk.calls.len() >= size { bulk.take() } else { None };
            (std::mem::replace(&mut bulk.size, size), gathered)
        };
        if let Some((before, gathered)) = with_bulk(self, change) {
            if size == 0 {
                self.end_bulk();
            }
            gathered.map_or(Ok(()), |g| g.push(self))?;
            return Ok(before);
        }
        if size > 0 {
            let core = Arc::downgrade(&self.handle());
            let (ctx, calls, accesses) = Default::default();
            let add = |bulks: &Bulks| {
                let mut bulks = bulks.0.borrow_mut();
                bulks.retain(|b| b.core.strong_count() > 0);
                bulks.push(Bulk { core, size, ctx, calls, accesses });
            };
            if BULKS.try_with(add).is_ok() {
                IS_ON.set(true);
            }
        }
        Ok(0)
    }

    /// Removes this thread's bulk for this engine, so that its pushes skip the check.
    fn end_bulk(&self) {
        let forget = |bulks: &Bulks| {
            let mut bulks = bulks.0.borrow_mut();
            bulks.retain(|b| !std::ptr::eq(b.core.as_ptr(), self));
            IS_ON.set(!bulks.is_empty());
        };
        let _ = BULKS.try_with(forget);
    }

    /// Pushes what this thread has gathered.
    #[inline]
    pub fn flush(&self) -> Result<()> {
        if IS_ON.get() { self.flush_bulk() } else { Ok(()) }
    }

    #[cold]
    fn flush_bulk(&self) -> Result<()> {
        match with_bulk(self, Bulk::take).flatten() {
            Some(gathered) => gathered.push(self),
            None => Ok(()),
        }
    }

    /// Returns true if this thread has gathered anything.
    #[inline]
    pub fn has_gathered(&self) -> bool {
        IS_ON.get() && with_bulk(self, |b| !b.calls.is_empty()).unwrap_or(false)
    }

    /// Pushes, or gathers if this thread has a bulk.
    #[inline]
    pub fn push_or_gather(&self, task: &mut Task, push: &Push<'_>) -> Result<()> {
        if IS_ON.get() { self.push_in_bulk(task, push) } else { self.push_task(task, push) }
    }

    #[cold]
    #[inline(never)]
    fn push_in_bulk(&self, task: &mut Task, push: &Push<'_>) -> Result<()> {
        match self.gather(std::mem::replace(task, Task::nothing()), push)? {
            Some(mut task) => self.push_task(&mut task, push),
            None => Ok(()),
        }
    }

    /// Gathers a task, or returns it if it cannot be gathered.
    fn gather(&self, task: Task, push: &Push<'_>) -> Result<Option<Task>> {
        if !current::running(self.id()).is_empty() {
            return Ok(Some(task)); // pushes of a running operation are not gathered
        }
        let fits = task.ends_by_returning() && push.prop == Prop::Normal && push.priority == 0;
        if !fits || with_bulk(self, |b| b.size).unwrap_or(0) <= 1 {
            self.flush_bulk()?;
            return Ok(Some(task));
        }
        {
            let state = &mut *self.lock();
            let mark = state.vars.new_mark();
            let mut all = push.reads.iter().chain(push.writes);
            if !all.all(|&v| state.vars.take(v, mark).is_some()) {
                return Err(explain(&state.vars, push.name, push.reads, push.writes));
            }
        }
        let room = MAX_VARIABLES.saturating_sub(push.reads.len() + push.writes.len());
        let ends = |b: &mut Bulk| b.ctx != push.ctx || b.accesses.len() > room;
        if with_bulk(self, |b| !b.calls.is_empty() && ends(b)).unwrap_or(false) {
            self.flush_bulk()?;
        }
        let step = GatheredCall {
            task,
            name: push.name.into(),
            call_site: push.call_site.and_then(|line| line()),
            is_short: push.run_on != RunOn::Worker,
        };
        let add = |bulk: &mut Bulk| {
            bulk.ctx = push.ctx;
            bulk.accesses.add(push.reads, push.writes, push.overwrites);
            bulk.calls.push(step);
            if bulk.calls.len() >= bulk.size { bulk.take() } else { None }
        };
        match with_bulk(self, add).flatten() {
            Some(gathered) => gathered.push(self).map(|()| None),
            None => Ok(None),
        }
    }
}

/// Gathers the calling thread's pushes, up to `size` per operation, until the scope is dropped.
///
/// Only ordinary pushes are gathered: no priority, no special property, and a function that ends by
/// returning. They are pushed when `size` are gathered, and before anything on this thread that
/// could observe the difference: another kind of push, a deletion, a wait, a read of data. If one
/// of the functions fails, the rest of its operation is skipped and everything that the operation
/// writes is poisoned.
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

/// Sets the bulk size of the calling thread until it is dropped; see [`bulk`].
pub struct BulkScope<'a> {
    engine: &'a dyn Engine,
    before: usize,
}

impl<'a> BulkScope<'a> {
    pub(in crate::engine) fn new(engine: &'a dyn Engine, size: usize) -> Result<Self> {
        Ok(BulkScope { engine, before: engine.set_bulk_size(size)? })
    }
}

impl Drop for BulkScope<'_> {
    fn drop(&mut self) {
        // A flush fails only if the slab is full; the functions are then dropped without being run.
        let _ = self.engine.set_bulk_size(self.before);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::IS_ON;
    use super::bulk;
    use crate::engine::ThreadedEngine;

    #[test]
    fn pushes_check_for_bulks_only_while_there_are_some() {
        let (one, two) = (ThreadedEngine::with_threads(1), ThreadedEngine::with_threads(1));
        let outer = bulk(&one, 10).unwrap();
        drop(bulk(&two, 5).unwrap());
        assert!(IS_ON.get());
        drop(bulk(&one, 5).unwrap());
        assert!(IS_ON.get());
        drop(outer);
        assert!(!IS_ON.get());
    }
}
