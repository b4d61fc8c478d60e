//! Tokens: how an asynchronous operation reports its end, from any thread.

use crate::engine::data::task_ref::TaskRef;
use crate::error::{Error, Result};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

/// The engine that a token reports to, as far as tokens need it.
pub(in crate::engine) trait Completer: Send + Sync {
    /// Completes an asynchronous task.
    fn complete(&self, task: TaskRef, result: Result<()>);

    /// Runs `f` with `task` as the innermost operation of this thread.
    fn run_inside(&self, task: TaskRef, f: &mut dyn FnMut());

    /// Returns true once the engine drops the functions of operations that have not started.
    fn is_shut_down(&self) -> bool;
}

/// Reports the end of an asynchronous operation: once, from any thread. Dropped unused it reports a
/// failure, so that a forgotten token cannot hang the program; after the engine was shut down, that
/// the operation was skipped, because a function that is skipped may have held the token.
pub struct OnComplete(Target);

enum Target {
    Done,
    /// A function, and the operation of which this token ends a part.
    Function(Box<dyn FnOnce(Result<()>) + Send>, Mark),
    Task(Arc<dyn Completer>, TaskRef),
}

impl OnComplete {
    /// A token that has nothing to report.
    pub(in crate::engine) fn done() -> Self {
        OnComplete(Target::Done)
    }

    /// Ends a part of the operation of `mark`.
    pub(in crate::engine) fn marked(
        mark: Mark,
        f: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Self {
        OnComplete(Target::Function(Box::new(f), mark))
    }

    pub(in crate::engine) fn of_task(engine: Arc<dyn Completer>, task: TaskRef) -> Self {
        OnComplete(Target::Task(engine, task))
    }

    /// The operation that this token ends, to run parts of it under its name.
    pub fn mark(&self) -> Mark {
        match &self.0 {
            Target::Task(engine, task) => Mark(Some((engine.clone(), *task))),
            Target::Function(_, mark) => mark.clone(),
            Target::Done => Mark(None),
        }
    }

    /// As [`Mark::inside`], without cloning the mark.
    pub fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        match &self.0 {
            Target::Task(engine, task) => run_inside(&**engine, *task, f),
            Target::Function(_, mark) => mark.inside(f),
            Target::Done => f(),
        }
    }

    /// Ends the operation, with or without an error.
    pub fn complete(mut self, result: Result<()>) {
        self.finish(result);
    }

    fn finish(&mut self, result: Result<()>) {
        match std::mem::replace(&mut self.0, Target::Done) {
            Target::Done => {}
            Target::Function(f, _) => f(result),
            Target::Task(engine, task) => engine.complete(task, result),
        }
    }
}

fn run_inside<R>(engine: &dyn Completer, task: TaskRef, f: impl FnOnce() -> R) -> R {
    let (mut f, mut result) = (Some(f), None);
    engine.run_inside(task, &mut || result = f.take().map(|f| f()));
    result.expect("`run_inside` calls its function")
}

/// Identifies an operation while it runs. See [`OnComplete::mark`].
#[derive(Clone)]
pub struct Mark(Option<(Arc<dyn Completer>, TaskRef)>);

impl Mark {
    pub(in crate::engine) fn new(engine: Arc<dyn Completer>, task: TaskRef) -> Self {
        Mark(Some((engine, task)))
    }

    fn is_shut_down(&self) -> bool {
        self.0.as_ref().is_some_and(|(engine, _)| engine.is_shut_down())
    }

    /// Runs `f` as part of the operation, on any thread: a wait inside it that would wait for the
    /// operation itself is an error, and `wait_for_all` covers what `f` has pushed.
    pub fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some((engine, task)) => run_inside(&**engine, *task, f),
            None => f(),
        }
    }
}

// Collects the tokens that a panic drops inside an asynchronous function: the panic's message is
// known only once it is caught. Points to a list on the stack of `run_to_token`, or is null.
#[cfg(not(loom))]
thread_local! {
    static DROPPED: Cell<*mut Vec<Target>> = const { Cell::new(ptr::null_mut()) };
}

#[cfg(loom)]
loom::thread_local! {
    static DROPPED: Cell<*mut Vec<Target>> = Cell::new(ptr::null_mut());
}

impl Drop for OnComplete {
    fn drop(&mut self) {
        if !matches!(self.0, Target::Done) {
            let how = if std::thread::panicking() {
                let list = DROPPED.with(Cell::get);
                if !list.is_null() {
                    let target = std::mem::replace(&mut self.0, Target::Done);
                    // SAFETY: the list lives further down this thread's stack, and only this thread
                    // has its address.
                    return unsafe { (*list).push(target) };
                }
                "the operation panicked before it was completed"
            } else if self.mark().is_shut_down() {
                return self.finish(Err(Error::shut_down()));
            } else {
                "the operation was dropped without being completed"
            };
            self.finish(Err(Error::execution(how)));
        }
    }
}

/// Runs an asynchronous function. If it panics, the operations whose tokens the panic drops fail
/// with its message.
#[inline]
pub(in crate::engine) fn run_to_token(f: impl FnOnce()) {
    let mut dropped: Vec<Target> = Vec::new();
    let outer = DROPPED.with(|list| list.replace(&raw mut dropped));
    let result = catch_unwind(AssertUnwindSafe(f));
    DROPPED.with(|list| list.set(outer));
    if let Err(panic) = result {
        let error = Error::from_panic(panic);
        dropped.into_iter().for_each(|target| OnComplete(target).complete(Err(error.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_forgotten_token_reports_a_failure() {
        let reported = Arc::new(Mutex::new(None));
        let report = reported.clone();
        drop(OnComplete::marked(Mark(None), move |r| *report.lock().unwrap() = Some(r)));
        let error = reported.lock().unwrap().take().unwrap().unwrap_err();
        assert!(error.to_string().contains("dropped without being completed"));
    }
}
