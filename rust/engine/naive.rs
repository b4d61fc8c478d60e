//! The oracle: every push runs its function before it returns. The threaded engine must give the same
//! results and the same errors.

use super::fault::{Faults, Inherited};
use super::operation::Function;
use super::sync::Lock;
use super::var::{Vars, Versions};
use super::{
    Engine, OnComplete, Operation, Origin, Poll, Prop, Push, Repeated, RepeatedAsync, RunContext,
    Task, Var, check_device, check_variables,
};
use crate::context::Context;
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Runs operations inside the push.
pub struct NaiveEngine {
    vars: Lock<Vars>,
    versions: Versions,
    faults: Faults,
    shut_down: AtomicBool,
}

impl Default for NaiveEngine {
    fn default() -> Self {
        NaiveEngine {
            vars: Lock::default(),
            versions: Versions::new(),
            faults: Faults::default(),
            shut_down: AtomicBool::new(false),
        }
    }
}

fn slots(vars: &[Var]) -> impl Iterator<Item = u32> + '_ {
    vars.iter().map(|v| v.0 as u32)
}

impl NaiveEngine {
    pub fn new() -> Self {
        Self::default()
    }

    fn execute(&self, task: Task, push: &Push<'_>) {
        let runs_always = matches!(push.prop, Prop::NoSkip | Prop::DeleteVar);
        let mut inherited = None;
        if !runs_always {
            if self.shut_down.load(Ordering::Relaxed) {
                return;
            }
            if self.faults.any() {
                let sources = slots(push.reads).chain(slots(&push.writes[push.overwrites..]));
                inherited = self.faults.inherited(sources);
            }
        }
        let failed = match inherited {
            Some(inherited) => Some(inherited),
            None => Self::run(task, push).err().map(|e| self.failure(e, push)),
        };
        if let Some(failed) = &failed {
            drop(self.faults.spread(failed, slots(push.writes)));
        } else if push.overwrites > 0 && self.faults.any() {
            self.faults.heal(slots(&push.writes[..push.overwrites]));
        }
        for i in slots(push.writes) {
            self.versions.advance(i);
        }
    }

    #[cold]
    fn failure(&self, error: Error, push: &Push<'_>) -> Inherited {
        let error = error.in_operator(push.name);
        self.faults.failed(match push.origin.and_then(|f| f()) {
            Some(at) => error.pushed_at(&at),
            None => error,
        })
    }

    #[inline]
    fn run(task: Task, push: &Push<'_>) -> Result<()> {
        let run = RunContext { ctx: push.ctx, ..RunContext::default() };
        let mut done = None;
        let token = || {
            let place: Arc<(Mutex<Option<Result<()>>>, Condvar)> = Arc::default();
            done = Some(place.clone());
            OnComplete::new(move |result| {
                *place.0.lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
                place.1.notify_all();
            })
        };
        match (task.run(&run, token), done) {
            (Some(result), _) => result,
            (None, Some(done)) => {
                let lock = done.0.lock().unwrap_or_else(|e| e.into_inner());
                let wait = done.1.wait_while(lock, |result| result.is_none());
                wait.unwrap_or_else(|e| e.into_inner()).take().unwrap_or(Ok(()))
            }
            (None, None) => Ok(()),
        }
    }
}

impl Engine for NaiveEngine {
    fn new_variable(&self) -> Var {
        self.vars.lock().create(&self.versions)
    }

    fn new_token(&self) -> Var {
        let token = self.new_variable();
        self.faults.is_token(token.0 as u32);
        token
    }

    fn delete_variable(&self, var: Var, last: Option<Box<dyn FnOnce() + Send>>) {
        let carried;
        {
            let mut vars = self.vars.lock();
            let Some(i) = vars.find(var) else { return };
            carried = self.faults.forget(i);
            vars.recycle(i);
        }
        drop(carried);
        if let Some(last) = last {
            last();
        }
    }

    fn push(&self, task: Task, push: Push<'_>) -> Result<()> {
        check_device(push.name, push.ctx)?;
        check_variables(push.name, push.reads, push.writes)?;
        self.execute(task, &push);
        Ok(())
    }

    fn new_operation(&self, run: Repeated, push: Push<'_>) -> Result<Operation> {
        check_variables(push.name, push.reads, push.writes)?;
        Ok(Operation::new(Function::Sync(run), &push))
    }

    fn new_async_operation(&self, run: RepeatedAsync, push: Push<'_>) -> Result<Operation> {
        check_variables(push.name, push.reads, push.writes)?;
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
        self.execute(operation.task(), &Push { origin, ..o.push(ctx, priority) });
        Ok(())
    }

    fn delete_operation(&self, operation: Operation) {
        operation.delete();
    }

    fn wait_for_var(&self, var: Var, _: Poll<'_>) -> Result<()> {
        self.faults.raise(var.0 as u32)
    }

    fn wait_to_read(&self, var: Var, _: Poll<'_>) -> Result<()> {
        self.faults.raise(var.0 as u32)
    }

    fn wait_for_all(&self, _: Poll<'_>) -> Result<()> {
        self.faults.raise_all()
    }

    fn poisoned(&self, var: Var) -> Option<Error> {
        self.faults.poisoned(var.0 as u32)
    }

    fn with_quiet(&self, reads: &[Var], writes: &[Var], f: &mut dyn FnMut()) -> bool {
        if reads.iter().chain(writes).any(|&v| self.poisoned(v).is_some()) {
            return false;
        }
        f();
        for v in writes {
            self.versions.advance(v.0 as u32);
        }
        true
    }

    fn version(&self, var: Var) -> u64 {
        self.versions.read(var.0 as u32)
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

    fn set_num_threads(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn stop(&self) -> Result<()> {
        Ok(())
    }

    fn start(&self) {}

    fn notify_shutdown(&self) {
        self.shut_down.store(true, Ordering::Relaxed);
    }
}
