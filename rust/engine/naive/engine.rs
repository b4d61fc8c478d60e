//! The oracle: every push runs its function before it returns. The threaded engine must give the same
//! results and the same errors.

use crate::context::Context;
use crate::engine::data::variables::{Vars, explain, gone};
use crate::engine::error_state::{self, Faults, Inherited};
use crate::engine::hook;
use crate::engine::naive::current::{self, Deletion, Inside, Place};
use crate::engine::naive::variables::Living;
use crate::engine::operation::Function;
use crate::engine::sync::{Guard, Lock};
use crate::engine::threaded::core::rare;
use crate::engine::threaded::fork::HeldForFork;
use crate::engine::{
    Engine, Event, Hook, OnComplete, Operation, Origin, Poll, Prop, Push, Repeated, RepeatedAsync,
    RunContext, Step, Task, Var, all_differ, check_device, check_overwrites, check_push,
    check_variables,
};
use crate::error::{Error, ErrorKind, Result, guarded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a push that waits for a token polls.
const SLICE: Duration = Duration::from_millis(50);

/// Runs operations inside the push.
pub struct NaiveEngine {
    vars: Lock<Vars>,
    living: Living,
    faults: Faults,
    /// Bits that make a push look closer.
    rare: AtomicU32,
    hook: Lock<Option<Arc<dyn Hook>>>,
    hooked: AtomicU64,
    poll: fn() -> Result<()>,
    wait_timeout: Lock<Option<Duration>>,
    raises_in_push: AtomicBool,
}

/// All locks of the engine, held over a fork.
pub struct Held<'a> {
    rare: &'a AtomicU32,
    hook: Guard<'a, Option<Arc<dyn Hook>>>,
    _rest: (Guard<'a, Vars>, Guard<'a, error_state::Table>, Guard<'a, Option<Duration>>),
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

/// The error of a push with its name and line.
#[cold]
fn placed(error: Error, push: &Push<'_>) -> Error {
    let origin = push.origin.and_then(|f| f());
    error.in_operator(push.name).pushed_at(origin.as_deref().unwrap_or_default())
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
            faults: Faults::default(),
            rare: AtomicU32::new(0),
            hook: Lock::default(),
            hooked: AtomicU64::new(0),
            poll,
            wait_timeout: Lock::default(),
            raises_in_push: AtomicBool::new(false),
        }
    }

    /// An error if a variable of a push is not there.
    fn check_alive(&self, push: &Push<'_>) -> Result<()> {
        let mut named = push.reads.iter().chain(push.writes);
        if named.all(|&v| self.living.has(v)) { Ok(()) } else { Err(self.explain(push)) }
    }

    /// Says what is wrong with the variables of a push.
    #[cold]
    fn explain(&self, push: &Push<'_>) -> Error {
        explain(&self.vars.lock(), push.name, push.reads, push.writes)
    }

    fn check_made(&self, push: &Push<'_>) -> Result<()> {
        check_overwrites(push)?;
        check_variables(push.name, push.reads, push.writes)?;
        self.check_alive(push)
    }

    /// Does a look show that a push is right? Of those of few variables it does.
    #[inline(always)]
    fn is_plainly_right(&self, push: &Push<'_>) -> bool {
        let has = |v: &Var| self.living.has(*v);
        push.ctx.is_host()
            && push.overwrites <= push.writes.len()
            && match (push.reads, push.writes) {
                ([], [w]) => has(w),
                ([a], [w]) => a != w && has(a) && has(w),
                ([a, b], [w]) => a != b && a != w && b != w && has(a) && has(b) && has(w),
                _ => false,
            }
    }

    /// The whole look at a push. An error says what it is refused for.
    #[inline(never)]
    fn check(&self, push: &Push<'_>) -> Result<()> {
        check_push(push)?;
        match all_differ(push.reads, push.writes) {
            true => self.check_alive(push),
            false => Err(self.explain(push)),
        }
    }

    fn find(&self, var: Var) -> Result<u32> {
        if self.living.has(var) { Ok(var.number()) } else { Err(gone(var)) }
    }

    /// Those of `vars` that were not deleted while the operation ran.
    fn left<'a>(&'a self, vars: &'a [Var]) -> impl Iterator<Item = u32> + 'a {
        vars.iter().filter(|v| self.living.has(**v)).map(|v| v.number())
    }

    /// Runs an operation that was checked; its task is used up. An error: of the poll, of the time limit, or that of the
    /// operation, where pushes raise it.
    #[inline(always)]
    fn execute(&self, task: &mut Task, push: &Push<'_>) -> Result<()> {
        let rare = self.rare.load(Ordering::Relaxed);
        let Some(function) = task.returning().filter(|_| rare == 0 && !self.faults.any()) else {
            return self.execute_closely(task, push, rare);
        };
        let operation = Inside::new(self, push);
        let entered = operation.enter();
        let result = function.run(&RunContext { ctx: push.ctx, ..RunContext::default() });
        drop(entered);
        self.end(operation, result)
    }

    /// With a look at errors, shutdown and hook, and with a token where the operation ends by one.
    #[cold]
    #[inline(never)]
    fn execute_closely(&self, task: &mut Task, push: &Push<'_>, rare: u32) -> Result<()> {
        let id = (rare & rare::HOOK != 0).then(|| self.hooked.fetch_add(1, Ordering::Relaxed));
        let tell = |event| {
            let hook = id.and_then(|id| Some((id, self.hook.lock().clone()?)));
            if let Some((id, hook)) = hook {
                hook.event(Step { event, id, name: push.name, ctx: push.ctx });
            }
        };
        tell(Event::Queued);
        let mut interrupt = Ok(());
        let operation = Inside::new(self, push);
        let entered = operation.enter();
        let ended = match self.divert(push, rare) {
            Some(inherited) => {
                drop(entered);
                drop(std::mem::replace(task, Task::nothing()));
                drop(self.faults.spread(&inherited, self.left(push.writes)));
                self.advance(push.writes);
                match self.raises_in_push() && rare & rare::SHUT_DOWN == 0 {
                    true => Err(inherited.0),
                    false => Ok(()),
                }
            }
            None => {
                tell(Event::Started);
                let result = self.run(task, push, &operation, &mut interrupt);
                drop(entered);
                self.end(operation, result)
            }
        };
        tell(Event::Finished);
        interrupt.and(ended)
    }

    fn raises_in_push(&self) -> bool {
        self.raises_in_push.load(Ordering::Relaxed)
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
        inherited.or_else(|| (rare & rare::SHUT_DOWN != 0).then(error_state::shut_down))
    }

    /// What follows when an operation has run. An error: its own, where pushes raise it.
    #[inline(always)]
    fn end(&self, operation: Inside, result: Result<()>) -> Result<()> {
        let push = operation.push();
        let ended = match result {
            Err(error) => self.fail(push, error),
            Ok(()) if push.overwrites > 0 && self.faults.any() => {
                self.heal(push);
                Ok(())
            }
            Ok(()) => Ok(()),
        };
        self.advance(push.writes);
        if let Some(more) = operation.into_more() {
            self.delete_all(more.into_inner().deletions);
        }
        ended
    }

    #[cold]
    #[inline(never)]
    fn fail(&self, push: &Push<'_>, error: Error) -> Result<()> {
        let raises = self.raises_in_push() && !error.is_told();
        let error = placed(if raises { error.told() } else { error }, push);
        let failed = self.faults.failed(error);
        drop(self.faults.spread(&failed, self.left(push.writes)));
        if raises { Err(failed.0) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn heal(&self, push: &Push<'_>) {
        self.faults.heal(self.left(&push.writes[..push.overwrites]));
    }

    #[inline(always)]
    fn advance(&self, writes: &[Var]) {
        match writes {
            [w] => self.living.advance(*w), // as nearly always
            _ => writes.iter().for_each(|&w| self.living.advance(w)),
        }
    }

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
            (None, Some(done)) => self.wait_for_token(&done, push, interrupt),
            (None, None) => Ok(()),
        }
    }

    #[cold]
    fn wait_for_token(
        &self,
        place: &Place,
        push: &Push<'_>,
        interrupt: &mut Result<()>,
    ) -> Result<()> {
        let (lock, changed) = &**place;
        let begun = Instant::now();
        loop {
            let end = lock.lock().unwrap_or_else(|e| e.into_inner());
            let waited = changed.wait_timeout_while(end, SLICE, |end| end.is_none());
            if let Some(result) = waited.unwrap_or_else(|e| e.into_inner()).0.take() {
                return result;
            }
            if let Err(error) = (self.poll)().and_then(|()| self.check_time(begun, push)) {
                *interrupt = Err(error);
                return Err(Error::execution("interrupted before the operation was completed"));
            }
        }
    }

    /// An error if a push waits for its token for longer than is allowed.
    fn check_time(&self, begun: Instant, push: &Push<'_>) -> Result<()> {
        let limit = *self.wait_timeout.lock();
        let Some(limit) = limit.filter(|limit| begun.elapsed() >= *limit) else { return Ok(()) };
        let seconds = limit.as_secs_f64();
        let text = format!("nobody has completed the operation within {seconds} s");
        Err(placed(Error::new(ErrorKind::Interrupted, text), push))
    }

    #[cold]
    #[inline(never)]
    fn delete_all(&self, deletions: Vec<Deletion>) {
        deletions.into_iter().for_each(|d| self.delete(d));
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
        let var = vars.create();
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
        if let Some(now) = current::postpone(self, var, last) {
            self.delete(now);
        }
        true
    }

    fn push(&self, mut task: Task, push: Push<'_>) -> Result<()> {
        if !self.is_plainly_right(&push) {
            self.check(&push)?;
        }
        let ran = self.execute(&mut task, &push);
        std::mem::forget(task); // in which nothing is left
        ran
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
        self.check_alive(&push)?;
        self.execute(&mut operation.task(), &push)
    }

    fn delete_operation(&self, operation: Operation) {
        operation.delete();
    }

    fn wait_for_var(&self, var: Var, _: Poll<'_>) -> Result<()> {
        let i = self.find(var)?;
        current::check_wait(self, var, true)?;
        self.faults.raise(i)
    }

    fn wait_to_read(&self, var: Var, _: Poll<'_>) -> Result<()> {
        let i = self.find(var)?;
        current::check_wait(self, var, false)?;
        self.faults.raise(i)
    }

    fn wait_for_all(&self, _: Poll<'_>) -> Result<()> {
        match current::own_written(self) {
            Some(written) => self.raise_own(&written),
            None => self.faults.raise_all(),
        }
    }

    fn poisoned(&self, var: Var) -> Option<Error> {
        self.faults.poisoned(self.find(var).ok()?)
    }

    fn take_error(&self, var: Var) -> Option<Error> {
        self.faults.raise(self.find(var).ok()?).err()
    }

    fn with_quiet(&self, reads: &[Var], writes: &[Var], f: &mut dyn FnMut()) -> bool {
        let is_quiet = |&v: &Var| self.living.has(v) && self.poisoned(v).is_none();
        if self.rare.load(Ordering::Relaxed) != 0 || !reads.iter().chain(writes).all(is_quiet) {
            return false;
        }
        f();
        self.advance(writes);
        true
    }

    fn version(&self, var: Var) -> u64 {
        self.living.version(var).unwrap_or(0)
    }

    fn set_bulk_size(&self, size: usize) -> Result<usize> {
        Ok(crate::engine::threaded::bulk::set_size_without_effect(size))
    }

    fn runs_inside_push(&self) -> bool {
        true
    }

    fn num_threads(&self) -> usize {
        1
    }

    fn set_num_threads(&self, n: usize) -> Result<()> {
        crate::engine::threaded::pool::check_threads(n)
    }

    fn stop(&self, _: Poll<'_>) -> Result<()> {
        if current::is_running(self) {
            return Err(crate::engine::threaded::wait::stops_itself());
        }
        Ok(())
    }

    fn start(&self) {}

    fn set_hook(&self, hook: Option<Arc<dyn Hook>>) {
        hook::set(&self.hook, &self.rare, hook);
    }

    fn set_wait_timeout(&self, limit: Option<Duration>) {
        *self.wait_timeout.lock() = limit;
    }

    fn set_raise_in_push(&self, on: bool) -> Result<bool> {
        Ok(self.raises_in_push.swap(on, Ordering::Relaxed))
    }

    fn is_hooked(&self) -> bool {
        self.rare.load(Ordering::Relaxed) & rare::HOOK != 0
    }

    fn before_fork(&self) -> HeldForFork<'_> {
        let _rest = (self.vars.lock(), self.faults.hold(), self.wait_timeout.lock());
        HeldForFork::of_naive(Held { rare: &self.rare, hook: self.hook.lock(), _rest })
    }

    fn notify_shutdown(&self) {
        self.rare.fetch_or(rare::SHUT_DOWN, Ordering::Relaxed);
    }
}
