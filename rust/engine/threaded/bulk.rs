//! Bulk mode: consecutive pushes of one thread become one operation.
//!
//! While a thread's bulk size is not zero, its ordinary pushes (no priority, no special property, a function that
//! ends by returning) are gathered and pushed together: when there are as many as the size says, when the device
//! changes, before any other push or deletion, before a wait or a look at data, when the size becomes
//! smaller, before a fork, and when the thread ends. The functions run in order, on one thread. If one fails the rest is
//! skipped, and everything that any of them writes carries the error, as if they were one function.

use crate::context::Context;
use crate::engine::data::variables::explain;
use crate::engine::threaded::core::Core;
use crate::engine::threaded::current;
use crate::engine::{OnComplete, Prop, Push, RunContext, Task, Var};
use crate::error::{Error, Result};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

/// The variables of several operations that run as one: each once, and how it is used.
#[derive(Default)]
pub struct Union {
    vars: Vec<Use>,
    /// Where in `vars` the variable of a slot is, if `vars` has it there.
    places: Vec<u32>,
}

struct Use {
    var: Var,
    is_written: bool,
    /// Its first use overwrites it whole, so what was there does not matter.
    is_overwritten: bool,
}

impl Union {
    /// Adds the variables of the next operation.
    pub fn add(&mut self, reads: &[Var], writes: &[Var], overwrites: usize) {
        reads.iter().for_each(|&v| self.add_one(v, false, false));
        writes.iter().enumerate().for_each(|(i, &v)| self.add_one(v, true, i < overwrites));
    }

    fn add_one(&mut self, var: Var, is_written: bool, is_overwritten: bool) {
        let slot = var.0 as u32 as usize;
        if slot >= self.places.len() {
            self.places.resize((slot + 1).next_power_of_two(), 0);
        }
        let place = &mut self.places[slot];
        match self.vars.get_mut(*place as usize) {
            Some(known) if known.var == var => known.is_written |= is_written,
            _ => {
                *place = self.vars.len() as u32;
                self.vars.push(Use { var, is_written, is_overwritten });
            }
        }
    }

    /// Reads, writes, and how many of the first writes are overwritten whole. Empties the union.
    pub fn take(&mut self) -> (Vec<Var>, Vec<Var>, usize) {
        let of = |written: bool, whole: bool| {
            let fits =
                move |u: &&Use| u.is_written == written && (!written || u.is_overwritten == whole);
            self.vars.iter().filter(fits).map(|u| u.var)
        };
        let reads = of(false, false).collect();
        let mut writes: Vec<Var> = of(true, true).collect();
        let overwrites = writes.len();
        writes.extend(of(true, false));
        self.vars.clear();
        (reads, writes, overwrites)
    }
}

/// One gathered function.
struct Step {
    task: Task,
    name: Box<str>,
    origin: Option<Arc<str>>,
    is_cheap: bool,
}

/// Gathered functions that the origin of their operation tells, at most.
const MOST_TOLD: usize = 8;

/// `one (file:3), two (file:4) and 5 more`: the steps, as the origin of the operation that they become. None if
/// there is no line among them.
fn origin_of(steps: &[Step]) -> Option<Arc<str>> {
    steps.iter().find(|s| s.origin.is_some())?;
    let mut text = String::new();
    for (i, Step { name, origin, .. }) in steps.iter().take(MOST_TOLD).enumerate() {
        text += if i > 0 { ", " } else { "" };
        text += name;
        if let Some(origin) = origin {
            text.extend([" (", origin, ")"]);
        }
    }
    if steps.len() > MOST_TOLD {
        text += &format!(" and {} more", steps.len() - MOST_TOLD);
    }
    Some(text.into())
}

/// The error of a step with its name and line.
#[cold]
fn placed(error: Error, name: &str, origin: Option<&str>) -> Error {
    error.in_operator(name).pushed_at(origin.unwrap_or_default())
}

/// What one thread gathers for one engine.
struct Bulk {
    core: Weak<Core>,
    size: usize,
    ctx: Context,
    steps: Vec<Step>,
    union: Union,
}

impl Bulk {
    /// The operation gathered so far.
    fn take(&mut self) -> Option<Gathered> {
        let steps = std::mem::take(&mut self.steps);
        (!steps.is_empty()).then(|| Gathered { steps, ctx: self.ctx, vars: self.union.take() })
    }
}

struct Gathered {
    steps: Vec<Step>,
    ctx: Context,
    vars: (Vec<Var>, Vec<Var>, usize),
}

impl Gathered {
    fn push(self, core: &Core) -> Result<()> {
        let (reads, writes, overwrites) = &self.vars;
        let steps = self.steps;
        let origin = origin_of(&steps);
        let push = Push {
            ctx: self.ctx,
            overwrites: *overwrites,
            // To start functions that run elsewhere is short, however many they are.
            cheap: steps.iter().all(|s| s.is_cheap && s.task.is_asynchronous()),
            origin: Some(&|| origin.clone()),
            ..Push::new("ImperativeBulk", reads, writes)
        };
        let mut task = if steps.iter().any(|s| s.task.is_asynchronous()) {
            Task::asynchronous(move |run, token| run_rest(steps.into_iter(), *run, token))
        } else {
            Task::sync(move |run| {
                let run = RunContext { is_bulk: true, ..*run };
                steps.into_iter().try_for_each(|Step { task, name, origin, .. }| {
                    task.run_sync(&run).map_err(|e| placed(e, &name, origin.as_deref()))
                })
            })
        };
        core.push_task(&mut task, &push)
    }
}

/// Runs the steps one after the other; one that ends by its token is followed by the rest when it is completed.
fn run_rest(mut steps: std::vec::IntoIter<Step>, run: RunContext, token: OnComplete) {
    let run = RunContext { is_bulk: true, ..run };
    while let Some(Step { task, name, origin, .. }) = steps.next() {
        if task.is_asynchronous() {
            let mark = token.mark();
            let go_on = move |result: Result<()>| match result {
                Ok(()) => run_rest(steps, run, token),
                Err(e) => token.complete(Err(placed(e, &name, origin.as_deref()))),
            };
            task.run_asynchronous(&run, OnComplete::marked(mark, go_on));
            return;
        }
        if let Err(e) = task.run_sync(&run) {
            return token.complete(Err(placed(e, &name, origin.as_deref())));
        }
    }
    token.complete(Ok(()));
}

/// The bulks of one thread, one for each engine that it bulks for.
struct Bulks(RefCell<Vec<Bulk>>);

impl Drop for Bulks {
    /// The thread ends: nothing gathered is lost.
    fn drop(&mut self) {
        for bulk in self.0.get_mut() {
            if let (Some(core), Some(gathered)) = (bulk.core.upgrade(), bulk.take()) {
                let _ = gathered.push(&core); // out of memory: nobody is left to be told
            }
        }
    }
}

thread_local! {
    /// Has this thread a bulk size for any engine? All that a push looks at while it has not.
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static BULKS: Bulks = const { Bulks(RefCell::new(Vec::new())) };
    static WITHOUT_EFFECT: Cell<usize> = const { Cell::new(0) };
}

/// Calls `f` with this thread's bulk for `core`, if it has one.
#[cold]
fn with_bulk<R>(core: &Core, f: impl FnOnce(&mut Bulk) -> R) -> Option<R> {
    let of_core = |b: &&mut Bulk| std::ptr::eq(b.core.as_ptr(), core);
    let within = |bulks: &Bulks| bulks.0.borrow_mut().iter_mut().find(of_core).map(f);
    BULKS.try_with(within).ok().flatten()
}

/// Keeps a bulk size that changes nothing, for engines that run inside the push.
pub fn set_size_without_effect(size: usize) -> usize {
    WITHOUT_EFFECT.replace(size)
}

impl Core {
    /// Sets this thread's bulk size and gives the one before.
    pub fn set_bulk_size(&self, size: usize) -> Result<usize> {
        let change = |bulk: &mut Bulk| {
            let gathered = if bulk.steps.len() >= size { bulk.take() } else { None };
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
            let (ctx, steps, union) = Default::default();
            let add = |bulks: &Bulks| {
                let mut bulks = bulks.0.borrow_mut();
                bulks.retain(|b| b.core.strong_count() > 0);
                bulks.push(Bulk { core, size, ctx, steps, union });
            };
            if BULKS.try_with(add).is_ok() {
                IS_ON.set(true);
            }
        }
        Ok(0)
    }

    /// This thread gathers no more for this engine, so that its pushes need not ask.
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

    /// Has this thread gathered anything?
    #[inline]
    pub fn has_gathered(&self) -> bool {
        IS_ON.get() && with_bulk(self, |b| !b.steps.is_empty()).unwrap_or(false)
    }

    /// Pushes, through the bulk if this thread has one.
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

    /// The task comes back if it is to be pushed as it is.
    fn gather(&self, task: Task, push: &Push<'_>) -> Result<Option<Task>> {
        if !current::running(self).is_empty() {
            return Ok(Some(task)); // what an operation pushes is no part of a bulk around it
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
        let room =
            crate::engine::MOST_VARIABLES.saturating_sub(push.reads.len() + push.writes.len());
        let ends = |b: &mut Bulk| b.ctx != push.ctx || b.union.vars.len() > room;
        if with_bulk(self, |b| !b.steps.is_empty() && ends(b)).unwrap_or(false) {
            self.flush_bulk()?;
        }
        let step = Step {
            task,
            name: push.name.into(),
            origin: push.origin.and_then(|line| line()),
            is_cheap: push.cheap,
        };
        let add = |bulk: &mut Bulk| {
            bulk.ctx = push.ctx;
            bulk.union.add(push.reads, push.writes, push.overwrites);
            bulk.steps.push(step);
            if bulk.steps.len() >= bulk.size { bulk.take() } else { None }
        };
        match with_bulk(self, add).flatten() {
            Some(gathered) => gathered.push(self).map(|()| None),
            None => Ok(None),
        }
    }
}

/// Sets the bulk size of the calling thread for as long as it lives; see [`bulk`](crate::engine::bulk).
pub struct BulkScope<'a> {
    engine: &'a dyn crate::engine::Engine,
    before: usize,
}

impl<'a> BulkScope<'a> {
    pub(in crate::engine) fn new(
        engine: &'a dyn crate::engine::Engine,
        size: usize,
    ) -> Result<Self> {
        Ok(BulkScope { engine, before: engine.set_bulk_size(size)? })
    }
}

impl Drop for BulkScope<'_> {
    fn drop(&mut self) {
        // What a flush can fail by is want of memory for tasks; then the functions are dropped unrun.
        let _ = self.engine.set_bulk_size(self.before);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::IS_ON;
    use crate::engine::{ThreadedEngine, bulk};

    #[test]
    fn pushes_ask_for_bulks_only_while_there_are_some() {
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
