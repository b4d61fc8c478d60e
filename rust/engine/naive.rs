//! The oracle: every push runs its function before it returns. The threaded engine must give the same
//! results and the same errors.

use super::fault::{self, Faults, Inherited};
use super::fork::HeldForFork;
use super::inside::{self, Deletion, Inside, Place};
use super::operation::Function;
use super::sync::{Guard, Lock};
use super::threaded::rare;
use super::var::{Living, Vars, Versions, explain, gone};
use super::{
    Engine, Event, Hook, OnComplete, Operation, Origin, Poll, Prop, Push, Repeated, RepeatedAsync,
    RunContext, Step, Task, Var, all_differ, check_device, check_overwrites, check_push,
    check_variables,
};
use crate::context::Context;
use crate::error::{Error, Result, guarded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How often a push that waits for a token polls.
const SLICE: Duration = Duration::from_millis(50);

/// Runs operations inside the push.
pub struct NaiveEngine {
    vars: Lock<Vars>,
    living: Living,
    versions: Versions,
    faults: Faults,
    /// Bits that make a push look closer.
    rare: AtomicU32,
    hook: Lock<Option<Arc<dyn Hook>>>,
    hooked: AtomicU64,
    poll: fn() -> Result<()>,
}

/// All locks of the engine, held over a fork.
pub struct Held<'a> {
    rare: &'a AtomicU32,
    hook: Guard<'a, Option<Arc<dyn Hook>>>,
    _rest: (Guard<'a, Vars>, Guard<'a, fault::Table>),
}

impl Held<'_> {
    /// The hook is the parent's.
    pub fn release_in_child(mut self) {
        std::mem::forget(self.hook.take());
        self.rare.fetch_and(!rare::HOOK, Ordering::Relaxed);
    }
}

impl Default for NaiveEngine {
    fn default() -> Self {
        Self::with_poll(|| Ok(()))
    }
}

fn slots(vars: &[Var]) -> impl Iterator<Item = u32> + '_ {
    vars.iter().map(|v| v.0 as u32)
}

impl NaiveEngine {
    pub fn new() -> Self {
        Self::default()
    }

    /// With a function that is called about every 50 ms while a push waits for the token of its operation, and
    /// whose error ends the push: the operation then counts as failed, whatever its token says later.
    pub fn with_poll(poll: fn() -> Result<()>) -> Self {
        NaiveEngine {
            vars: Lock::default(),
            living: Living::new(),
            versions: Versions::new(),
            faults: Faults::default(),
            rare: AtomicU32::new(0),
            hook: Lock::default(),
            hooked: AtomicU64::new(0),
            poll,
        }
    }

    /// Are all variables of a push there?
    #[inline(always)]
    fn are_alive(&self, push: &Push<'_>) -> bool {
        let alive = |v: &Var| self.living.find(*v).is_some();
        push.reads.iter().all(alive) && push.writes.iter().all(alive)
    }

    /// Says what is wrong with the variables of a push.
    #[cold]
    #[inline(never)]
    fn refuse(&self, push: &Push<'_>) -> Result<()> {
        Err(explain(&self.vars.lock(), push.name, push.reads, push.writes))
    }

    fn check_made(&self, push: &Push<'_>) -> Result<()> {
        check_overwrites(push)?;
        check_variables(push.name, push.reads, push.writes)?;
        if self.are_alive(push) { Ok(()) } else { self.refuse(push) }
    }

    fn find(&self, var: Var) -> Result<u32> {
        self.living.find(var).ok_or_else(|| gone(var))
    }

    /// Those of `vars` that were not deleted while the operation ran.
    fn left<'a>(&'a self, vars: &'a [Var]) -> impl Iterator<Item = u32> + 'a {
        vars.iter().filter_map(|&v| self.living.find(v))
    }

    /// Runs an operation that was checked; its task is used up. An error is that of the poll.
    #[inline(always)]
    fn execute(&self, task: &mut Task, push: &Push<'_>) -> Result<()> {
        let operation = Inside::new(self, push);
        let rare = self.rare.load(Ordering::Relaxed);
        if rare != 0 || self.faults.any() {
            return self.execute_closely(task, push, &operation, rare);
        }
        let mut interrupt = Ok(());
        let entered = operation.enter();
        let result = self.run(task, push, &operation, &mut interrupt);
        drop(entered);
        self.end(push, result, &operation);
        interrupt
    }

    /// With a look at errors, shutdown and hook.
    #[cold]
    fn execute_closely(
        &self,
        task: &mut Task,
        push: &Push<'_>,
        operation: &Inside,
        rare: u32,
    ) -> Result<()> {
        let id = (rare & rare::HOOK != 0).then(|| self.hooked.fetch_add(1, Ordering::Relaxed));
        let tell = |event| {
            let hook = id.and_then(|id| Some((id, self.hook.lock().clone()?)));
            if let Some((id, hook)) = hook {
                hook.event(Step { event, id, name: push.name, ctx: push.ctx });
            }
        };
        tell(Event::Queued);
        let mut interrupt = Ok(());
        let entered = operation.enter();
        match self.divert(push, rare) {
            Some(inherited) => {
                drop(entered);
                drop(std::mem::replace(task, Task::nothing()));
                drop(self.faults.spread(&inherited, self.left(push.writes)));
                self.advance(push.writes);
            }
            None => {
                tell(Event::Started);
                let result = self.run(task, push, operation, &mut interrupt);
                drop(entered);
                self.end(push, result, operation);
            }
        }
        tell(Event::Finished);
        interrupt
    }

    /// Does an error or the shutdown stop the operation? Then what it leaves instead of its result.
    fn divert(&self, push: &Push<'_>, rare: u32) -> Option<Inherited> {
        let inherited = match push.prop {
            Prop::DeleteVar => return None,
            Prop::NoSkip => None,
            _ => {
                let sources = slots(push.reads).chain(slots(&push.writes[push.overwrites..]));
                self.faults.inherited(sources)
            }
        };
        inherited.or_else(|| (rare & rare::SHUT_DOWN != 0).then(fault::shut_down))
    }

    /// What follows when an operation has run.
    #[inline(always)]
    fn end(&self, push: &Push<'_>, result: Result<()>, operation: &Inside) {
        if result.is_err() || push.overwrites > 0 && self.faults.any() {
            self.settle(push, result);
        }
        self.advance(push.writes);
        if operation.has_deletions() {
            operation.deletions().into_iter().for_each(|d| self.delete(d));
        }
    }

    /// Records what the end of an operation does to the errors of the variables it wrote.
    #[cold]
    fn settle(&self, push: &Push<'_>, result: Result<()>) {
        match result {
            Err(error) => {
                let failed = self.failure(error, push);
                drop(self.faults.spread(&failed, self.left(push.writes)));
            }
            Ok(()) => self.faults.heal(self.left(&push.writes[..push.overwrites])),
        }
    }

    #[inline(always)]
    fn advance(&self, writes: &[Var]) {
        self.left(writes).for_each(|i| self.versions.advance(i));
    }

    #[cold]
    fn failure(&self, error: Error, push: &Push<'_>) -> Inherited {
        let error = error.in_operator(push.name);
        self.faults.failed(match push.origin.and_then(|f| f()) {
            Some(at) => error.pushed_at(&at),
            None => error,
        })
    }

    #[inline(always)]
    fn run(
        &self,
        task: &mut Task,
        push: &Push<'_>,
        operation: &Inside,
        interrupt: &mut Result<()>,
    ) -> Result<()> {
        let run = RunContext { ctx: push.ctx, ..RunContext::default() };
        let mut done = None;
        let token = || {
            let place = Place::default();
            operation.ends_by(&place);
            done = Some(place.clone());
            OnComplete::new(move |result| {
                *place.0.lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
                place.1.notify_all();
            })
        };
        match (task.run_in_place(&run, token), done) {
            (Some(result), _) => result,
            (None, Some(done)) => self.wait_for_token(&done, interrupt),
            (None, None) => Ok(()),
        }
    }

    #[cold]
    fn wait_for_token(&self, place: &Place, interrupt: &mut Result<()>) -> Result<()> {
        let (lock, changed) = &**place;
        loop {
            let end = lock.lock().unwrap_or_else(|e| e.into_inner());
            let waited = changed.wait_timeout_while(end, SLICE, |end| end.is_none());
            if let Some(result) = waited.unwrap_or_else(|e| e.into_inner()).0.take() {
                return result;
            }
            if let Err(error) = (self.poll)() {
                *interrupt = Err(error);
                return Err(Error::execution("interrupted before the operation was completed"));
            }
        }
    }

    /// The end of a buried variable.
    fn delete(&self, (i, last): Deletion) {
        let carried = self.faults.forget(i);
        self.vars.lock().recycle(i);
        drop(carried);
        if let Some(last) = last {
            let _ = guarded(|| {
                last();
                Ok(())
            });
        }
    }

    /// Raises the first unreported error of what the running operation has pushed, and marks the others as
    /// reported. Errors of strangers are left to those who wait for them.
    fn raise_own(&self, written: &[Var]) -> Result<()> {
        let errors: Vec<Error> =
            self.left(written).filter_map(|i| self.faults.raise(i).err()).collect();
        errors.into_iter().next().map_or(Ok(()), Err)
    }
}

impl Engine for NaiveEngine {
    fn new_variable(&self) -> Var {
        let mut vars = self.vars.lock();
        let var = vars.create(&self.versions);
        self.living.add(var);
        var
    }

    fn new_token(&self) -> Var {
        let token = self.new_variable();
        self.faults.is_token(token.0 as u32);
        token
    }

    fn delete_variable(&self, var: Var, last: Option<Box<dyn FnOnce() + Send>>) -> bool {
        {
            let mut vars = self.vars.lock();
            let Some(i) = vars.find(var) else { return false };
            vars.bury(i);
            self.living.remove(var);
        }
        if let Some(now) = inside::postpone(self, var, last) {
            self.delete(now);
        }
        true
    }

    fn push(&self, mut task: Task, push: Push<'_>) -> Result<()> {
        check_push(&push)?;
        if !(self.are_alive(&push) && all_differ(push.reads, push.writes)) {
            return self.refuse(&push);
        }
        self.execute(&mut task, &push)
    }

    fn new_operation(&self, run: Repeated, push: Push<'_>) -> Result<Operation> {
        self.check_made(&push)?;
        Ok(Operation::new(Function::Sync(run), &push))
    }

    fn new_async_operation(&self, run: RepeatedAsync, push: Push<'_>) -> Result<Operation> {
        self.check_made(&push)?;
        Ok(Operation::new(Function::Async(run), &push))
    }

    fn push_operation_at(
        &self,
        operation: &Operation,
        ctx: Context,
        priority: i32,
        origin: Option<Origin<'_>>,
    ) -> Result<()> {
        let o = operation.inner();
        o.check_live()?;
        check_device(&o.name, ctx)?;
        let push = Push { origin, ..o.push(ctx, priority) };
        if !self.are_alive(&push) {
            return self.refuse(&push);
        }
        self.execute(&mut operation.task(), &push)
    }

    fn delete_operation(&self, operation: Operation) {
        operation.delete();
    }

    fn wait_for_var(&self, var: Var, _: Poll<'_>) -> Result<()> {
        let i = self.find(var)?;
        inside::check_wait(self, var, true)?;
        self.faults.raise(i)
    }

    fn wait_to_read(&self, var: Var, _: Poll<'_>) -> Result<()> {
        let i = self.find(var)?;
        inside::check_wait(self, var, false)?;
        self.faults.raise(i)
    }

    fn wait_for_all(&self, _: Poll<'_>) -> Result<()> {
        match inside::own_written(self) {
            Some(written) => self.raise_own(&written),
            None => self.faults.raise_all(),
        }
    }

    fn poisoned(&self, var: Var) -> Option<Error> {
        self.faults.poisoned(self.living.find(var)?)
    }

    fn with_quiet(&self, reads: &[Var], writes: &[Var], f: &mut dyn FnMut()) -> bool {
        let is_quiet = |&v: &Var| self.living.find(v).is_some() && self.poisoned(v).is_none();
        if self.rare.load(Ordering::Relaxed) != 0 || !reads.iter().chain(writes).all(is_quiet) {
            return false;
        }
        f();
        self.advance(writes);
        true
    }

    fn version(&self, var: Var) -> u64 {
        self.living.find(var).map_or(0, |i| self.versions.read(i))
    }

    fn set_bulk_size(&self, size: usize) -> Result<usize> {
        Ok(super::bulk::set_size_without_effect(size))
    }

    fn runs_inside_push(&self) -> bool {
        true
    }

    fn num_threads(&self) -> usize {
        1
    }

    fn set_num_threads(&self, n: usize) -> Result<()> {
        super::pool::check_threads(n)
    }

    fn stop(&self, _: Poll<'_>) -> Result<()> {
        if inside::is_running(self) {
            return Err(super::wait::stops_itself());
        }
        Ok(())
    }

    fn start(&self) {}

    fn set_hook(&self, hook: Option<Arc<dyn Hook>>) {
        match hook.is_some() {
            true => self.rare.fetch_or(rare::HOOK, Ordering::Relaxed),
            false => self.rare.fetch_and(!rare::HOOK, Ordering::Relaxed),
        };
        let before = std::mem::replace(&mut *self.hook.lock(), hook);
        drop(before); // outside of the lock: what goes may call the engine
    }

    fn before_fork(&self) -> HeldForFork<'_> {
        let _rest = (self.vars.lock(), self.faults.hold());
        HeldForFork::of_naive(Held { rare: &self.rare, hook: self.hook.lock(), _rest })
    }

    fn notify_shutdown(&self) {
        self.rare.fetch_or(rare::SHUT_DOWN, Ordering::Relaxed);
    }
}
