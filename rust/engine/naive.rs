//! The oracle: every push runs its function before it returns. The threaded engine must give the same
//! results and the same errors.

use super::{
    Engine, OnComplete, Operation, OperationInner, Poll, Prop, Push, Repeated, RunContext, Task,
    Var, check_variables,
};
use crate::context::Context;
use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An error on its way to a wait: shared by all variables of its chain, reported once.
type Cell = Arc<Mutex<Option<Error>>>;

#[derive(Default)]
struct State {
    version: u64,
    unreported: Option<Cell>,
    poison: Option<Error>,
}

#[derive(Default)]
struct Table {
    vars: HashMap<u64, State>,
    next: u64,
    cells: Vec<Cell>,
    shut_down: bool,
}

/// Runs operations inside the push.
#[derive(Default)]
pub struct NaiveEngine {
    table: Mutex<Table>,
}

impl NaiveEngine {
    pub fn new() -> Self {
        Self::default()
    }

    fn execute(&self, task: Task, push: &Push<'_>) {
        let (inherited, shut_down) = {
            let table = self.table.lock();
            let sources = push.reads.iter().chain(&push.writes[push.overwrites..]);
            let found = sources
                .filter_map(|v| table.vars.get(&v.0))
                .find_map(|s| s.poison.clone().map(|e| (e, s.unreported.clone())));
            (found, table.shut_down)
        };
        let runs_always = matches!(push.prop, Prop::NoSkip | Prop::DeleteVar);
        if shut_down && !runs_always {
            return;
        }
        let outcome = match inherited {
            Some((error, cell)) if !runs_always => Err((error, cell)),
            _ => self.run(task, push).map_err(|e| {
                let origin = push.origin.and_then(|f| f());
                let e = e.in_operator(push.name);
                let e = match origin {
                    Some(at) => e.pushed_at(&at),
                    None => e,
                };
                let cell = Arc::new(Mutex::new(Some(e.clone())));
                self.table.lock().cells.push(cell.clone());
                (e, Some(cell))
            }),
        };
        let mut table = self.table.lock();
        for (i, v) in push.writes.iter().enumerate() {
            let Some(state) = table.vars.get_mut(&v.0) else { continue };
            state.version += 1;
            match &outcome {
                Ok(()) if i < push.overwrites => state.poison = None,
                Ok(()) => {}
                Err((error, cell)) => {
                    state.poison = Some(error.clone());
                    state.unreported = cell.clone();
                }
            }
        }
    }

    fn run(&self, task: Task, push: &Push<'_>) -> Result<()> {
        let run = RunContext { ctx: push.ctx, ..RunContext::default() };
        let done = Arc::new((Mutex::new(None), Condvar::new()));
        let signal = done.clone();
        let token = move || {
            OnComplete::new(move |result| {
                *signal.0.lock() = Some(result);
                signal.1.notify_all();
            })
        };
        match task.run(&run, token) {
            Some(result) => result,
            None => {
                let mut result = done.0.lock();
                while result.is_none() {
                    done.1.wait(&mut result);
                }
                result.take().unwrap_or(Ok(()))
            }
        }
    }

    fn raise(&self, var: Var) -> Result<()> {
        let cell = self.table.lock().vars.get_mut(&var.0).and_then(|s| s.unreported.take());
        match cell.and_then(|c| c.lock().take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Engine for NaiveEngine {
    fn new_variable(&self) -> Var {
        let mut table = self.table.lock();
        let id = table.next;
        table.next += 1;
        table.vars.insert(id, State::default());
        Var(id)
    }

    fn delete_variable(&self, var: Var, last: Option<Box<dyn FnOnce() + Send>>) {
        self.table.lock().vars.remove(&var.0);
        if let Some(last) = last {
            last();
        }
    }

    fn push(&self, task: Task, push: Push<'_>) -> Result<()> {
        check_variables(push.name, push.reads, push.writes)?;
        self.execute(task, &push);
        Ok(())
    }

    fn new_operation(&self, run: Repeated, push: Push<'_>) -> Result<Operation> {
        check_variables(push.name, push.reads, push.writes)?;
        Ok(Operation(Arc::new(OperationInner::new(run, &push))))
    }

    fn push_operation(&self, operation: &Operation, ctx: Context, priority: i32) -> Result<()> {
        let o = &operation.0;
        o.check_live()?;
        let run = o.run.clone();
        self.execute(Task::sync(move |rc| run(rc)), &o.push(ctx, priority));
        Ok(())
    }

    fn delete_operation(&self, operation: Operation) {
        operation.0.deleted.store(true, Ordering::Release);
    }

    fn wait_for_var(&self, var: Var, _: Poll<'_>) -> Result<()> {
        self.raise(var)
    }

    fn wait_to_read(&self, var: Var, _: Poll<'_>) -> Result<()> {
        self.raise(var)
    }

    fn wait_for_all(&self, _: Poll<'_>) -> Result<()> {
        let cells = std::mem::take(&mut self.table.lock().cells);
        let mut first = Ok(());
        for cell in cells {
            if let Some(error) = cell.lock().take() {
                first = first.and(Err(error));
            }
        }
        first
    }

    fn poisoned(&self, var: Var) -> Option<Error> {
        self.table.lock().vars.get(&var.0).and_then(|s| s.poison.clone())
    }

    fn with_quiet(&self, reads: &[Var], writes: &[Var], f: &mut dyn FnMut()) -> bool {
        if reads.iter().chain(writes).any(|&v| self.poisoned(v).is_some()) {
            return false;
        }
        f();
        true
    }

    fn version(&self, var: Var) -> u64 {
        self.table.lock().vars.get(&var.0).map_or(0, |s| s.version)
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

    fn stop(&self) {}

    fn start(&self) {}

    fn notify_shutdown(&self) {
        self.table.lock().shut_down = true;
    }
}
