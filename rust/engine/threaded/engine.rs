//! [`ThreadedEngine`]: the handle that users hold, and its face as an [`Engine`].

use crate::context::Context;
use crate::engine::data::parking::Sleep;
use crate::engine::data::run_queue::{Apart, Queues};
use crate::engine::data::task_slab::{Slab, TaskRef};
use crate::engine::data::variables::{Versions, explain, living};
use crate::engine::error_state;
use crate::engine::hook;
use crate::engine::operation::Function;
use crate::engine::threaded::core::{Core, LANES, PushState, rare};
use crate::engine::threaded::fork::HeldForFork;
use crate::engine::threaded::pool::{Threads, default_threads};
use crate::engine::threaded::wait::{Kind, Watch};
use crate::engine::{
    Engine, Hook, Operation, Origin, Poll, Push, Repeated, RepeatedAsync, Task, Var,
};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Runs operations on threads of its own as soon as their variables allow.
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
    /// With as many threads as cores may be used ([`usable_cores`](crate::engine::usable_cores)), or fewer if
    /// `OMP_NUM_THREADS` says so.
    pub fn new() -> Self {
        Self::with_threads(default_threads())
    }

    /// With `n` compute threads (at least one), which start when they are first needed.
    pub fn with_threads(n: usize) -> Self {
        let core = Arc::new(Core {
            slab: Slab::new(),
            versions: Versions::new(),
            faults: error_state::Faults::default(),
            queues: Queues::new(LANES),
            sleep: Sleep::new(),
            rare: AtomicU32::new(0),
            push: Default::default(),
            returned: Default::default(),
            completed: (0..LANES).map(|_| Apart::default()).collect(),
            completed_elsewhere: Apart::default(),
            watch: Watch::default(),
            haste: Apart::default(),
            threads: Threads::new(n.clamp(1, LANES / 2)),
            hook: Default::default(),
            wait_timeout: Default::default(),
            epoch: AtomicU32::new(0),
            recovered: AtomicU32::new(0),
            is_running: AtomicBool::new(false),
        });
        ThreadedEngine { core }
    }

    fn make_operation(&self, function: Function, push: &Push<'_>) -> Result<Operation> {
        crate::engine::check_overwrites(push)?;
        crate::engine::check_variables(push.name, push.reads, push.writes)?;
        let kept = {
            let mut state = self.core.lock();
            let mut named = push.reads.iter().chain(push.writes);
            if named.any(|&v| state.vars.find(v).is_none()) {
                return Err(explain(&state.vars, push.name, push.reads, push.writes));
            }
            state.names.keep(push.name)
        };
        Ok(match kept {
            Some(name) => Operation::of_core(function, push, name, self.core.clone()),
            None => Operation::new(function, push),
        })
    }

    /// Is the variable free of pending writers, or of everything pending?
    fn is_quiet(&self, state: &PushState, var: Var, kind: Kind) -> bool {
        let Some(i) = state.vars.find(var) else { return false };
        let done = |t: TaskRef| self.core.slab.is_done(t);
        done(state.vars.last_writer(i))
            && (kind == Kind::Read || state.vars.readers(i).all(done))
            && self.core.faults.poisoned(i).is_none()
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
        self.core.faults.is_token(token.0 as u32);
        token
    }

    fn delete_variable(&self, var: Var, last: Option<Box<dyn FnOnce() + Send>>) -> bool {
        let core = &self.core;
        let _ = core.flush(); // fails only for want of memory for tasks; the deletion is none the worse
        let carried;
        {
            let mut state = core.lock();
            let Some(i) = state.vars.find(var) else { return false };
            let done = |t: TaskRef| core.slab.is_done(t);
            if !done(state.vars.last_writer(i)) || !state.vars.readers(i).all(done) {
                let left = core.push_deletion(&mut state, i, last);
                drop(state);
                drop(left);
                core.announce();
                return true;
            }
            carried = core.faults.forget(i);
            state.vars.recycle(i);
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
        crate::engine::check_push(&push)?;
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
        origin: Option<Origin<'_>>,
    ) -> Result<()> {
        crate::engine::check_device(&operation.inner().name, ctx)?;
        self.core.flush()?;
        self.core.push_operation(operation, ctx, priority, origin)
    }

    fn delete_operation(&self, operation: Operation) {
        operation.delete();
    }

    fn wait_for_var(&self, var: Var, poll: Poll<'_>) -> Result<()> {
        self.core.flush()?;
        self.core.wait_for(var, Kind::All, poll)
    }

    fn wait_to_read(&self, var: Var, poll: Poll<'_>) -> Result<()> {
        self.core.flush()?;
        self.core.wait_for(var, Kind::Read, poll)
    }

    fn wait_for_all(&self, poll: Poll<'_>) -> Result<()> {
        self.core.flush()?;
        self.core.wait_for_all(poll)
    }

    fn poisoned(&self, var: Var) -> Option<Error> {
        if !self.core.faults.any() {
            return None;
        }
        let i = living(&self.core.lock().vars, var).ok()?;
        self.core.faults.poisoned(i)
    }

    fn take_error(&self, var: Var) -> Option<Error> {
        if !self.core.faults.any() {
            return None;
        }
        let i = living(&self.core.lock().vars, var).ok()?;
        self.core.faults.raise(i).err()
    }

    fn with_quiet(&self, reads: &[Var], writes: &[Var], f: &mut dyn FnMut()) -> bool {
        if self.core.has_gathered() {
            return false; // the caller pushes, and what is gathered stays together
        }
        let state = self.core.lock();
        let quiet = self.core.rare.load(Ordering::Relaxed) & !rare::ORIGINS == 0
            && reads.iter().all(|&v| self.is_quiet(&state, v, Kind::Read))
            && writes.iter().all(|&v| self.is_quiet(&state, v, Kind::All));
        if quiet {
            f();
            for v in writes {
                self.core.versions.advance(v.0 as u32);
            }
        }
        quiet
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
        if !crate::engine::threaded::current::running(&*self.core).is_empty() {
            return Err(crate::engine::threaded::wait::stops_itself());
        }
        self.core.flush()?;
        self.core.wait_quietly(poll)?;
        self.core.end_threads(Duration::from_secs(10));
        Ok(())
    }

    fn start(&self) {
        self.core.start_threads();
    }

    fn set_wait_timeout(&self, limit: Option<Duration>) {
        // The report names the line of each push, so these are asked for from now on.
        match limit {
            Some(_) => self.core.rare.fetch_or(rare::ORIGINS, Ordering::Relaxed),
            None => self.core.rare.fetch_and(!rare::ORIGINS, Ordering::Relaxed),
        };
        *self.core.wait_timeout.lock() = limit;
    }

    fn is_hooked(&self) -> bool {
        self.core.rare.load(Ordering::Relaxed) & rare::HOOK != 0
    }

    fn set_hook(&self, hook: Option<Arc<dyn Hook>>) {
        hook::set(&self.core.hook, &self.core.rare, hook);
    }

    fn before_fork(&self) -> HeldForFork<'_> {
        // Else parent and child would both run what this thread has gathered.
        let _ = self.core.flush();
        HeldForFork::hold(&self.core)
    }

    fn notify_shutdown(&self) {
        self.core.rare.fetch_or(rare::SHUT_DOWN, Ordering::Relaxed);
    }
}

impl Drop for ThreadedEngine {
    /// Skips what has not started and ends the threads. (Wait before dropping, if the work matters.)
    fn drop(&mut self) {
        self.notify_shutdown();
        if crate::engine::threaded::current::running(&*self.core).is_empty() {
            let until = Instant::now() + Duration::from_secs(1);
            let _ = self.core.wait_quietly(&mut || {
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
    use crate::engine::patiently;

    /// Guards contract 5: after errors the good path costs what it did before the first one.
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
        // A deleted variable is recycled just behind the end of its last operation.
        let is_clean = |_| {
            std::thread::sleep(Duration::from_millis(1));
            !engine.core.faults.any()
        };
        assert!((0..10_000).any(is_clean));
        assert_eq!(engine.core.rare.load(Ordering::Relaxed), 0);
    }

    /// Slots that carry successors come back, also those of what a pusher runs itself.
    #[test]
    fn carriers_of_a_kept_slot_come_back() {
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
                    let cheap = Push { cheap: true, ..Push::new("here", &[], &var) };
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
        assert_eq!(
            engine.core.slab.all().end as usize,
            super::crate::engine::data::task_slab::CHUNK
        );
    }

    /// However few slots are free, a push has those that it needs, also where several edges come from one task that has
    /// room for some of them.
    #[test]
    fn a_push_has_its_carriers() {
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
            engine.core.lock().alloc.lose_all_but(left);
            let writes = Push::new("write", &[], &vars[..4]);
            engine.push(Task::nothing(), writes).unwrap(); // four edges from the first
            end.send(()).unwrap();
            engine.wait_for_all(&mut patiently()).unwrap();
            assert!(vars[..4].iter().all(|&v| engine.version(v) == 1));
        }
    }

    /// All that a push looks at is `rare`.
    #[test]
    fn a_hook_that_is_gone_costs_nothing() {
        let engine = ThreadedEngine::with_threads(1);
        assert_eq!(engine.core.rare.load(Ordering::Relaxed), 0);
        let hook: Arc<dyn Hook> = Arc::new(|_: crate::engine::Step<'_>| {});
        engine.set_hook(Some(hook.clone()));
        assert_eq!(engine.core.rare.load(Ordering::Relaxed), rare::HOOK);
        engine.push(Task::nothing(), Push::new("told", &[], &[])).unwrap();
        engine.wait_for_all(&mut patiently()).unwrap();
        engine.set_hook(None);
        assert_eq!(engine.core.rare.load(Ordering::Relaxed), 0);
        assert!(engine.core.hook.lock().is_none());
    }
}
