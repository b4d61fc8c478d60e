//! The debugging engine: every push runs its function before it returns, on the pushing thread.

use crate::context::Context;
use crate::engine::data::task_ref::TaskRef;
use crate::engine::data::variables::{Vars, explain};
use crate::engine::engine::{Engine, Poll};
use crate::engine::error_state::{self, ErrorStates, Inherited};
use crate::engine::fork::{ForkLocks, HeldForFork};
use crate::engine::hook::{self, Event, Hook, HookEvent, HookSlot};
use crate::engine::messages::{deleted_variable, stops_itself, with_place};
use crate::engine::naive::current::{self, Deletion, Lent, Running, TokenResult};
use crate::engine::naive::variables::VariableTable;
use crate::engine::operation::{Function, Operation, Repeated, RepeatedAsync};
use crate::engine::push::{FindCallSite, Prop, Push, RunContext, Var};
use crate::engine::slow_path;
use crate::engine::sync::{Guard, Lock};
use crate::engine::task::Task;
use crate::engine::token::{Mark, OnComplete};
use crate::engine::validate::{all_distinct, check_overwrites, check_threads, check_variables};
use crate::error::{Error, ErrorKind, Result, guarded};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

thread_local! {
    /// What the thread set its bulk size to; it has no effect.
    static BULK_SIZE: Cell<usize> = const { Cell::new(0) };
}

/// How often a push that waits for a token polls.
const SLICE: Duration = Duration::from_millis(50);

/// Runs operations inside the push, on the pushing thread. Threads that share variables need the
/// threaded engine: nothing keeps their operations apart here.
pub struct NaiveEngine {
    vars: Lock<Vars>,
    table: VariableTable,
    errors: ErrorStates,
    /// Flags of [`slow_path`].
    slow_path: AtomicU32,
    hook: HookSlot,
    hooked: AtomicU64,
    poll: fn() -> Result<()>,
    wait_timeout: Lock<Option<Duration>>,
    raises_in_push: AtomicBool,
}

/// All locks of the engine, held over a fork.
struct Locks<'a> {
    slow_path: &'a AtomicU32,
    hook: Guard<'a, Option<Arc<dyn Hook>>>,
    _rest: (Guard<'a, Vars>, Guard<'a, error_state::Table>, Guard<'a, Option<Duration>>),
}

impl ForkLocks for Locks<'_> {
    fn release_in_child(mut self: Box<Self>) {
        std::mem::forget(self.hook.take()); // the parent's
        self.slow_path.fetch_and(!slow_path::HOOK, Ordering::Relaxed);
    }
}

impl Default for NaiveEngine {
    fn default() -> Self {
        Self::with_poll(|| Ok(()))
    }
}

/// The error of an operation with the name and line of its push.
#[cold]
fn failed(error: Error, push: &Push<'_>) -> Error {
    let call_site = push.call_site.and_then(|f| f());
    with_place(error, push.name, call_site.as_deref())
}

/// A token that ends `operation`, and the place where it stores the result.
#[cold]
fn token_of(engine: *const (), operation: &Running, done: &mut Option<TokenResult>) -> OnComplete {
    let place = TokenResult::default();
    operation.ends_by(&place);
    *done = Some(place.clone());
    let mark = Mark::new(Arc::new(Lent::new(engine, &place)), TaskRef::NONE);
    OnComplete::marked(mark, move |result| {
        *place.0.lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
        place.1.notify_all();
    })
}

fn slots(vars: &[Var]) -> impl Iterator<Item = u32> + '_ {
    vars.iter().map(|v| v.0 as u32)
}

impl NaiveEngine {
    pub fn new() -> Self {
        Self::default()
    }

    /// With a function that is called about every 50 ms while a push waits for the token of its
    /// operation, and whose error ends the push: the operation then counts as failed, whatever its
    /// token says later.
    pub fn with_poll(poll: fn() -> Result<()>) -> Self {
        NaiveEngine {
            vars: Lock::default(),
            table: VariableTable::new(),
            errors: ErrorStates::default(),
            slow_path: AtomicU32::new(0),
            hook: Lock::default(),
            hooked: AtomicU64::new(0),
            poll,
            wait_timeout: Lock::default(),
            raises_in_push: AtomicBool::new(false),
        }
    }

    /// Refuses a deleted variable.
    fn check_alive(&self, push: &Push<'_>) -> Result<()> {
        let mut named = push.reads.iter().chain(push.writes);
        if named.all(|&v| self.table.has(v)) { Ok(()) } else { Err(self.explain(push)) }
    }

    /// The error for invalid variables of a push.
    #[cold]
    fn explain(&self, push: &Push<'_>) -> Error {
        explain(&self.vars.lock(), push.name, push.reads, push.writes)
    }

    fn check_made(&self, push: &Push<'_>) -> Result<()> {
        check_overwrites(push)?;
        check_variables(push.name, push.reads, push.writes)?;
        self.check_alive(push)
    }

    /// Refuses a push with invalid arguments.
    #[inline]
    fn check(&self, push: &Push<'_>) -> Result<()> {
        check_overwrites(push)?;
        match all_distinct(push.reads, push.writes) {
            true => self.check_alive(push),
            false => Err(self.explain(push)),
        }
    }

    fn find(&self, var: Var) -> Result<u32> {
        if self.table.has(var) { Ok(var.number()) } else { Err(deleted_variable(var)) }
    }

    /// The variables that were not deleted while the operation ran.
    fn live_writes<'a>(&'a self, vars: &'a [Var]) -> impl Iterator<Item = u32> + 'a {
        vars.iter().filter(|v| self.table.has(**v)).map(|v| v.number())
    }

    /// Runs an operation that was checked, and leaves [`Task::nothing`]. An error is the poll's,
    /// the time limit's, or the operation's if pushes raise errors.
    fn execute(&self, task: &mut Task, push: &Push<'_>) -> Result<()> {
        let flags = self.slow_path.load(Ordering::Relaxed);
        let id = match flags & slow_path::HOOK {
            0 => None,
            _ => Some(self.hooked.fetch_add(1, Ordering::Relaxed)),
        };
        self.notify_hook(Event::Queued, id, push);
        let mut interrupt = Ok(());
        let operation = Running::new(self.id(), push);
        let entered = operation.enter();
        let skip = match flags != 0 || self.errors.any() {
            true => self.skip_reason(push, flags),
            false => None,
        };
        let ended = match skip {
            Some(inherited) => {
                drop(entered);
                drop(std::mem::replace(task, Task::nothing()));
                self.skip(push, inherited, flags)
            }
            None => {
                self.notify_hook(Event::Started, id, push);
                let result = self.run(task, push, &operation, &mut interrupt);
                drop(entered);
                self.end(operation, result)
            }
        };
        self.notify_hook(Event::Finished, id, push);
        interrupt.and(ended)
    }

    /// Notifies the hook, if the operation has an id for it.
    #[inline(always)]
    fn notify_hook(&self, event: Event, id: Option<u64>, push: &Push<'_>) {
        if let Some(id) = id {
            self.call_hook(event, id, push);
        }
    }

    #[cold]
    #[inline(never)]
    fn call_hook(&self, event: Event, id: u64, push: &Push<'_>) {
        if let Some(hook) = self.hook.lock().clone() {
            hook.event(HookEvent { event, id, name: push.name, ctx: push.ctx });
        }
    }

    /// Completes an operation without running it.
    #[cold]
    fn skip(&self, push: &Push<'_>, inherited: Inherited, flags: u32) -> Result<()> {
        drop(self.errors.spread(&inherited, self.live_writes(push.writes)));
        self.advance(push.writes);
        match self.raises_in_push() && flags & slow_path::SHUT_DOWN == 0 {
            true => Err(inherited.0),
            false => Ok(()),
        }
    }

    /// The address that identifies this engine.
    fn id(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    fn raises_in_push(&self) -> bool {
        self.raises_in_push.load(Ordering::Relaxed)
    }

    /// Returns the error that the operation leaves if an error or the shutdown skips it.
    #[cold]
    fn skip_reason(&self, push: &Push<'_>, flags: u32) -> Option<Inherited> {
        let inherited = match push.prop {
            Prop::DeleteVar => return None,
            Prop::NoSkip => None,
            _ => {
                let sources = slots(push.reads).chain(slots(&push.writes[push.overwrites..]));
                self.errors.inherited(sources)
            }
        };
        inherited.or_else(|| (flags & slow_path::SHUT_DOWN != 0).then(error_state::shut_down))
    }

    /// Completes an operation that has run. Returns its error if pushes raise errors.
    fn end(&self, operation: Running, result: Result<()>) -> Result<()> {
        let push = operation.push();
        let ended = match result {
            Err(error) => self.fail(push, error),
            Ok(()) if push.overwrites > 0 && self.errors.any() => {
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
        let raises = self.raises_in_push() && !error.is_reported();
        let error = failed(if raises { error.reported() } else { error }, push);
        let left = self.errors.failed(error);
        drop(self.errors.spread(&left, self.live_writes(push.writes)));
        if raises { Err(left.0) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn heal(&self, push: &Push<'_>) {
        self.errors.heal(self.live_writes(&push.writes[..push.overwrites]));
    }

    #[inline(always)]
    fn advance(&self, writes: &[Var]) {
        writes.iter().for_each(|&w| self.table.advance(w));
    }

    fn run(
        &self,
        task: &mut Task,
        push: &Push<'_>,
        operation: &Running,
        interrupt: &mut Result<()>,
    ) -> Result<()> {
        let run = RunContext { ctx: push.ctx, ..RunContext::default() };
        let mut done = None;
        let token = || token_of(self.id(), operation, &mut done);
        match (task.run_in_place(&run, token), done) {
            (Some(result), _) => result,
            (None, Some(done)) => self.wait_for_token(&done, push, interrupt),
            (None, None) => Ok(()),
        }
    }

    #[cold]
    fn wait_for_token(
        &self,
        place: &TokenResult,
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

    /// Refuses to wait longer than the limit for a token.
    fn check_time(&self, begun: Instant, push: &Push<'_>) -> Result<()> {
        let limit = *self.wait_timeout.lock();
        let Some(limit) = limit.filter(|limit| begun.elapsed() >= *limit) else { return Ok(()) };
        let seconds = limit.as_secs_f64();
        let text = format!("the operation was not completed within {seconds} s");
        Err(failed(Error::new(ErrorKind::Interrupted, text), push))
    }

    #[cold]
    #[inline(never)]
    fn delete_all(&self, deletions: Vec<Deletion>) {
        deletions.into_iter().for_each(|d| self.delete(d));
    }

    /// Deletes a variable that no handle finds any more.
    fn delete(&self, (i, last): Deletion) {
        let carried = self.errors.forget(i);
        self.vars.lock().free(i);
        drop(carried);
        if let Some(last) = last {
            let _ = guarded(|| {
                last();
                Ok(())
            });
        }
    }
}

impl Engine for NaiveEngine {
    fn new_variable(&self) -> Var {
        let mut vars = self.vars.lock();
        let var = vars.create();
        self.table.add(var);
        var
    }

    fn new_token(&self) -> Var {
        let token = self.new_variable();
        self.errors.add_token(token.0 as u32);
        token
    }

    fn delete_variable(&self, var: Var, last: Option<Box<dyn FnOnce() + Send>>) -> bool {
        {
            let mut vars = self.vars.lock();
            let Some(i) = vars.find(var) else { return false };
            vars.mark_deleted(i);
            self.table.remove(var);
        }
        if let Some(now) = current::postpone(self.id(), var, last) {
            self.delete(now);
        }
        true
    }

    fn push(&self, mut task: Task, push: Push<'_>) -> Result<()> {
        self.check(&push)?;
        let ended = self.execute(&mut task, &push);
        // Empty by now, which the compiler does not see (`naive`: 6.6 ns a push; dropped 8.3).
        std::mem::forget(task);
        ended
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
        call_site: Option<FindCallSite<'_>>,
    ) -> Result<()> {
        let (mut task, push) = operation.run(ctx, priority, call_site)?;
        self.check_alive(&push)?;
        self.execute(&mut task, &push)
    }

    fn wait_for_var(&self, var: Var, _: Poll<'_>) -> Result<()> {
        let i = self.find(var)?;
        current::check_wait(self.id(), var, true)?;
        self.errors.raise(i)
    }

    fn wait_to_read(&self, var: Var, _: Poll<'_>) -> Result<()> {
        let i = self.find(var)?;
        current::check_wait(self.id(), var, false)?;
        self.errors.raise(i)
    }

    fn wait_for_all(&self, _: Poll<'_>) -> Result<()> {
        match current::own_written(self.id()) {
            Some(written) => self.errors.raise_first(self.live_writes(&written)),
            None => self.errors.raise_all(),
        }
    }

    fn poisoned(&self, var: Var) -> Option<Error> {
        self.errors.poisoned(self.find(var).ok()?)
    }

    fn take_error(&self, var: Var) -> Option<Error> {
        self.errors.raise(self.find(var).ok()?).err()
    }

    fn try_run_exclusive(&self, reads: &[Var], writes: &[Var], f: &mut dyn FnMut()) -> bool {
        let is_idle = |&v: &Var| self.table.has(v) && self.poisoned(v).is_none();
        if self.slow_path.load(Ordering::Relaxed) != 0 || !reads.iter().chain(writes).all(is_idle) {
            return false;
        }
        f();
        self.advance(writes);
        true
    }

    fn version(&self, var: Var) -> u64 {
        self.table.version(var).unwrap_or(0)
    }

    fn set_bulk_size(&self, size: usize) -> Result<usize> {
        Ok(BULK_SIZE.replace(size))
    }

    fn runs_inside_push(&self) -> bool {
        true
    }

    fn num_threads(&self) -> usize {
        1
    }

    fn set_num_threads(&self, n: usize) -> Result<()> {
        check_threads(n)
    }

    fn stop(&self, _: Poll<'_>) -> Result<()> {
        if current::is_running(self.id()) {
            return Err(stops_itself());
        }
        Ok(())
    }

    fn start(&self) {}

    fn set_hook(&self, hook: Option<Arc<dyn Hook>>) {
        hook::install(&self.hook, &self.slow_path, hook);
    }

    fn set_wait_timeout(&self, limit: Option<Duration>) {
        *self.wait_timeout.lock() = limit;
    }

    fn set_raise_in_push(&self, on: bool) -> Result<bool> {
        Ok(self.raises_in_push.swap(on, Ordering::Relaxed))
    }

    fn is_hooked(&self) -> bool {
        self.slow_path.load(Ordering::Relaxed) & slow_path::HOOK != 0
    }

    fn before_fork(&self) -> HeldForFork<'_> {
        let _rest = (self.vars.lock(), self.errors.lock_for_fork(), self.wait_timeout.lock());
        HeldForFork::new(Locks { slow_path: &self.slow_path, hook: self.hook.lock(), _rest })
    }

    fn notify_shutdown(&self) {
        self.slow_path.fetch_or(slow_path::SHUT_DOWN, Ordering::Relaxed);
    }
}
