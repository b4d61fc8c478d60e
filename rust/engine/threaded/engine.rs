//! [`ThreadedEngine`]: the public handle, which implements [`Engine`].

use crate::context::Context;
use crate::engine::data::slot::TaskRef;
use crate::engine::data::variables::{explain, live_index};
use crate::engine::engine::{Engine, Poll};
use crate::engine::fork::HeldForFork;
use crate::engine::hook::{self, Hook};
use crate::engine::messages::stops_itself;
use crate::engine::operation::{Function, Operation, Repeated, RepeatedAsync};
use crate::engine::push::{FindCallSite, Push, Var};
use crate::engine::slow_path;
use crate::engine::task::Task;
use crate::engine::threaded::core::{Core, PushState};
use crate::engine::threaded::current;
use crate::engine::threaded::fork::Locks;
use crate::engine::threaded::pool::default_threads;
use crate::engine::threaded::wait::WaitKind;
use crate::engine::validate::MAX_THREADS;
use crate::engine::validate::{check_overwrites, check_variables};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Runs operations on its own threads as soon as their variables allow.
///
/// ```
/// use rsnet::engine::{Engine, Push, Task, ThreadedEngine, patiently};
/// use std::sync::{Arc, Mutex};
///
/// // Two steps on each of four files; files side by side, the steps of one file in order.
/// let engine = ThreadedEngine::new();
/// let log = Arc::new(Mutex::new(Vec::new()));
/// let files: Vec<_> = (0..4).map(|_| engine.new_variable()).collect();
/// for step in ["read", "compress"] {
///     for (i, &file) in files.iter().enumerate() {
///         let log = log.clone();
///         let task = Task::sync(move |_| {
///             log.lock().unwrap().push((i, step));
///             Ok(())
///         });
///         engine.push(task, Push::new(step, &[], &[file]))?;
///     }
/// }
/// engine.wait_for_all(&mut patiently())?;
/// let log = log.lock().unwrap();
/// for i in 0..4 {
///     let steps: Vec<_> = log.iter().filter(|(file, _)| *file == i).map(|(_, step)| *step).collect();
///     assert_eq!(steps, ["read", "compress"]);
/// }
/// # Ok::<(), rsnet::Error>(())
/// ```
pub struct ThreadedEngine {
    pub(in crate::engine) core: Arc<Core>,
}

impl Default for ThreadedEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadedEngine {
    /// With one thread per usable core ([`usable_cores`](crate::engine::usable_cores)), or fewer if
    /// `OMP_NUM_THREADS` says so.
    pub fn new() -> Self {
        Self::with_threads(default_threads())
    }

    /// With `n` compute threads (at least one), which start when first needed.
    pub fn with_threads(n: usize) -> Self {
        let core = Arc::new(Core::new(n.clamp(1, MAX_THREADS)));
        ThreadedEngine { core }
    }

    fn make_operation(&self, function: Function, push: &Push<'_>) -> Result<Operation> {
        check_overwrites(push)?;
        check_variables(push.name, push.reads, push.writes)?;
        let state = self.core.lock();
        let mut named = push.reads.iter().chain(push.writes);
        if named.any(|&v| state.vars.find(v).is_none()) {
            return Err(explain(&state.vars, push.name, push.reads, push.writes));
        }
        drop(state);
        Ok(Operation::new(function, push))
    }

    /// Returns true if nothing of this kind is pending on the variable, and it is not poisoned.
    fn is_idle(&self, state: &PushState, var: Var, kind: WaitKind) -> bool {
        let Some(i) = state.vars.find(var) else { return false };
        let done = |t: TaskRef| self.core.slab.is_done(t);
        done(state.vars.last_writer(i))
            && (kind == WaitKind::Read || state.vars.readers(i).all(done))
            && self.core.errors.poisoned(i).is_none()
    }
}

impl Engine for ThreadedEngine {
    fn new_variable(&self) -> Var {
        let mut state = self.core.lock();
        let var = state.vars.create();
        self.core.versions.reset(var);
        var
    }

    fn new_token(&self) -> Var {
        let token = self.new_variable();
        self.core.errors.add_token(token.0 as u32);
        token
    }

    fn delete_variable(&self, var: Var, last: Option<Box<dyn FnOnce() + Send>>) -> bool {
        let core = &self.core;
        let _ = core.flush(); // fails only if the slab is full, which does not concern the deletion
        let carried;
        {
            let mut state = core.lock();
            let Some(i) = state.vars.find(var) else { return false };
            let done = |t: TaskRef| core.slab.is_done(t);
            if !done(state.vars.last_writer(i)) || !state.vars.readers(i).all(done) {
                let left = core.push_deletion(&mut state, i, last);
                drop(state);
                drop(left);
                core.wake_for_work();
                return true;
            }
            carried = core.errors.forget(i);
            state.vars.free(i);
        }
        drop(carried);
        if let Some(last) = last {
            let _ = crate::error::guarded(|| {
                last();
                Ok(())
            });
        }
        true
    }

    #[inline]
    fn push(&self, mut task: Task, push: Push<'_>) -> Result<()> {
        check_overwrites(&push)?;
        self.core.push_or_gather(&mut task, &push)
    }

    fn new_operation(&self, run: Repeated, push: Push<'_>) -> Result<Operation> {
        self.make_operation(Function::Sync(run), &push)
    }

    fn new_async_operation(&self, run: RepeatedAsync, push: Push<'_>) -> Result<Operation> {
        self.make_operation(Function::Async(run), &push)
    }

    #[inline]
    fn push_operation_at(
        &self,
        operation: &Operation,
        ctx: Context,
        priority: i32,
        call_site: Option<FindCallSite<'_>>,
    ) -> Result<()> {
        let (mut task, push) = operation.run(ctx, priority, call_site)?;
        self.core.flush()?;
        self.core.push_task(&mut task, &push)
    }

    fn wait_for_var(&self, var: Var, poll: Poll<'_>) -> Result<()> {
        self.core.flush()?;
        self.core.wait_for(var, WaitKind::All, poll)
    }

    fn wait_to_read(&self, var: Var, poll: Poll<'_>) -> Result<()> {
        self.core.flush()?;
        self.core.wait_for(var, WaitKind::Read, poll)
    }

    fn wait_for_all(&self, poll: Poll<'_>) -> Result<()> {
        self.core.flush()?;
        self.core.wait_for_all(poll)
    }

    fn poisoned(&self, var: Var) -> Option<Error> {
        if !self.core.errors.any() {
            return None;
        }
        let i = live_index(&self.core.lock().vars, var).ok()?;
        self.core.errors.poisoned(i)
    }

    fn take_error(&self, var: Var) -> Option<Error> {
        if !self.core.errors.any() {
            return None;
        }
        let i = live_index(&self.core.lock().vars, var).ok()?;
        self.core.errors.raise(i).err()
    }

    fn try_run_exclusive(&self, reads: &[Var], writes: &[Var], f: &mut dyn FnMut()) -> bool {
        if self.core.has_gathered() {
            return false; // the caller pushes instead, which keeps the gathered operations together
        }
        let state = self.core.lock();
        let idle = self.core.slow_path.load(Ordering::Relaxed) & !slow_path::CALL_SITES == 0
            && reads.iter().all(|&v| self.is_idle(&state, v, WaitKind::Read))
            && writes.iter().all(|&v| self.is_idle(&state, v, WaitKind::All));
        if idle {
            f();
            for v in writes {
                self.core.versions.advance(v.0 as u32);
            }
        }
        idle
    }

    fn version(&self, var: Var) -> u64 {
        let found = self.core.lock().vars.find(var);
        found.map_or(0, |i| self.core.versions.read(i))
    }

    fn set_bulk_size(&self, size: usize) -> Result<usize> {
        self.core.set_bulk_size(size)
    }

    fn num_threads(&self) -> usize {
        self.core.threads.wanted()
    }

    fn set_num_threads(&self, n: usize) -> Result<()> {
        self.core.resize(n)
    }

    fn stop(&self, poll: Poll<'_>) -> Result<()> {
        if !current::running(self.core.id()).is_empty() {
            return Err(stops_itself());
        }
        self.core.flush()?;
        self.core.wait_until_complete(poll)?;
        self.core.end_threads(Duration::from_secs(10));
        Ok(())
    }

    fn start(&self) {
        self.core.start_threads();
    }

    fn set_wait_timeout(&self, limit: Option<Duration>) {
        // The report names the line of each push, so lines are recorded from now on.
        match limit {
            Some(_) => self.core.slow_path.fetch_or(slow_path::CALL_SITES, Ordering::Relaxed),
            None => self.core.slow_path.fetch_and(!slow_path::CALL_SITES, Ordering::Relaxed),
        };
        *self.core.wait_timeout.lock() = limit;
    }

    fn running_operations(&self) -> Vec<String> {
        self.core.running_operations()
    }

    fn is_hooked(&self) -> bool {
        self.core.slow_path.load(Ordering::Relaxed) & slow_path::HOOK != 0
    }

    fn set_hook(&self, hook: Option<Arc<dyn Hook>>) {
        hook::install(&self.core.hook, &self.core.slow_path, hook);
    }

    fn before_fork(&self) -> HeldForFork<'_> {
        // Otherwise parent and child would both run what this thread has gathered.
        let _ = self.core.flush();
        HeldForFork::new(Locks::take(&self.core))
    }

    fn notify_shutdown(&self) {
        self.core.slow_path.fetch_or(slow_path::SHUT_DOWN, Ordering::Relaxed);
    }
}

impl Drop for ThreadedEngine {
    /// Skips operations that have not started and ends the threads. Wait first if the work matters.
    fn drop(&mut self) {
        self.notify_shutdown();
        if current::running(self.core.id()).is_empty() {
            let until = Instant::now() + Duration::from_secs(1);
            let _ = self.core.wait_until_complete(&mut || {
                let late = Instant::now() > until;
                if late { Err(Error::execution("late")) } else { Ok(()) }
            });
        }
        self.core.end_threads(Duration::from_secs(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RunOn;
    use crate::engine::engine::patiently;

    /// Guards contract 5: after errors the fast path costs what it did before the first one.
    #[test]
    fn contract_5_no_error_leaves_the_engine_on_its_slow_path() {
        let engine = ThreadedEngine::with_threads(2);
        for _ in 0..2000 {
            let a = engine.new_variable();
            let fails = Task::sync(|_| Err(Error::execution("it broke")));
            engine.push(fails, Push::new("fails", &[], &[a])).unwrap();
            engine.delete_variable(a, None);
        }
        let healed = engine.new_variable();
        let fails = Task::sync(|_| Err(Error::execution("it broke")));
        let writes = [healed];
        engine.push(fails, Push::new("fails", &[], &writes)).unwrap();
        let fill = Push { overwrites: 1, ..Push::new("fill", &[], &writes) };
        engine.push(Task::nothing(), fill).unwrap();
        assert!(engine.wait_for_all(&mut patiently()).is_err());
        // A deleted variable is freed shortly after its last operation.
        let is_clean = |_| {
            std::thread::sleep(Duration::from_millis(1));
            !engine.core.errors.any()
        };
        assert!((0..10_000).any(is_clean));
        assert_eq!(engine.core.slow_path.load(Ordering::Relaxed), 0);
    }

    /// An inline task leaves the inline slot to the next one. A task pushed meanwhile, here by the
    /// first one itself, uses another slot.
    #[test]
    fn the_inline_slot_serves_one_task_after_the_other() {
        let engine = Arc::new(ThreadedEngine::with_threads(1));
        let vars = [engine.new_variable(), engine.new_variable()];
        let inner = engine.clone();
        let outer = Task::sync(move |_| {
            let cheap = Push { run_on: RunOn::Pusher, ..Push::new("inner", &[], &vars[1..]) };
            inner.push(Task::nothing(), cheap)
        });
        let cheap = Push { run_on: RunOn::Pusher, ..Push::new("outer", &[], &vars[..1]) };
        engine.push(outer, cheap).unwrap();
        for _ in 0..1000 {
            engine.push(Task::nothing(), cheap).unwrap();
        }
        assert_eq!(engine.core.inline_slot.0.completed(), 1001);
        assert_eq!(engine.core.completed(), 1002);
        assert_eq!((engine.version(vars[0]), engine.version(vars[1])), (1001, 1));
    }

    /// Edge blocks are freed, also those of a task that its pusher runs.
    #[test]
    fn edge_blocks_of_an_inline_task_are_freed() {
        let engine = ThreadedEngine::with_threads(1);
        let var = [engine.new_variable()];
        for _ in 0..2_000 {
            let (tell, begun) = std::sync::mpsc::channel();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            std::thread::scope(|s| {
                s.spawn(|| {
                    let task = Task::sync(move |_| {
                        tell.send(()).unwrap();
                        ended.recv().unwrap();
                        Ok(())
                    });
                    let cheap = Push { run_on: RunOn::Pusher, ..Push::new("here", &[], &var) };
                    engine.push(task, cheap).unwrap();
                });
                begun.recv().unwrap();
                for _ in 0..30 {
                    engine.push(Task::nothing(), Push::new("after", &var, &[])).unwrap();
                }
                end.send(()).unwrap();
            });
            engine.wait_for_all(&mut patiently()).unwrap();
        }
        assert_eq!(engine.core.slab.all().end as usize, crate::engine::data::task_slab::CHUNK);
    }

    /// However few slots are free, a push reserves the edge blocks it needs, even if several edges
    /// come from one task with room for some of them.
    #[test]
    fn a_push_reserves_its_edge_blocks() {
        for (readers, left) in (0..14).flat_map(|readers| (0..6).map(move |left| (readers, left))) {
            let engine = ThreadedEngine::with_threads(1);
            let vars: Vec<Var> = (0..20).map(|_| engine.new_variable()).collect();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let waits = Task::sync(move |_| {
                ended.recv().unwrap();
                Ok(())
            });
            engine.push(waits, Push::new("first", &vars[..4], &vars[4..])).unwrap();
            for read in &vars[4..4 + readers] {
                engine.push(Task::nothing(), Push::new("read", &[*read], &[])).unwrap();
            }
            engine.core.lock().slots.truncate(left);
            let writes = Push::new("write", &[], &vars[..4]);
            engine.push(Task::nothing(), writes).unwrap(); // four edges from the first
            end.send(()).unwrap();
            engine.wait_for_all(&mut patiently()).unwrap();
            assert!(vars[..4].iter().all(|&v| engine.version(v) == 1));
        }
    }

    /// The fast path checks `slow_path` only.
    #[test]
    fn a_removed_hook_costs_nothing() {
        let engine = ThreadedEngine::with_threads(1);
        assert_eq!(engine.core.slow_path.load(Ordering::Relaxed), 0);
        let hook: Arc<dyn Hook> = Arc::new(|_: crate::engine::HookEvent<'_>| {});
        engine.set_hook(Some(hook.clone()));
        assert_eq!(engine.core.slow_path.load(Ordering::Relaxed), slow_path::HOOK);
        engine.push(Task::nothing(), Push::new("told", &[], &[])).unwrap();
        engine.wait_for_all(&mut patiently()).unwrap();
        engine.set_hook(None);
        assert_eq!(engine.core.slow_path.load(Ordering::Relaxed), 0);
        assert!(engine.core.hook.lock().is_none());
    }
}
