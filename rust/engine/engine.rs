//! The interface of an engine.

use crate::context::Context;
use crate::engine::fork::HeldForFork;
use crate::engine::hook::Hook;
use crate::engine::operation::{Operation, Repeated, RepeatedAsync};
use crate::engine::push::{FindCallSite, Push, Var};
use crate::engine::task::Task;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// Called about every 50 ms of a wait. An error (a signal, say) ends the wait; the operations go
/// on.
pub type Poll<'a> = &'a mut dyn FnMut() -> Result<()>;

/// A poll that never ends the wait.
pub fn patiently() -> impl FnMut() -> Result<()> {
    || Ok(())
}

/// The interface of both engines. Errors of operations travel along the variables they write; see
/// `engine/README.md` for *unreported* and *poisoned*.
///
/// ```
/// use rsnet::engine::{Engine, NaiveEngine, Push, Task, ThreadedEngine, patiently};
/// use rsnet::{Error, Result};
/// use std::sync::{Arc, Mutex};
///
/// /// Orders are checked one by one and booked into one ledger, in push order.
/// fn book(engine: &dyn Engine, orders: &[i64]) -> Result<i64> {
///     let (sum, ledger) = (Arc::new(Mutex::new(0)), engine.new_variable());
///     for &amount in orders {
///         let checked = engine.new_token();
///         let check = Task::sync(move |_| match amount {
///             1.. => Ok(()),
///             _ => Err(Error::value(format!("an order over {amount}"))),
///         });
///         engine.push(check, Push::new("check", &[], &[checked]))?;
///         let sum = sum.clone();
///         let book = Task::sync(move |_| {
///             *sum.lock().unwrap() += amount;
///             Ok(())
///         });
///         engine.push(book, Push::new("book", &[checked], &[ledger]))?;
///         engine.delete_variable(checked, None); // after the two
///     }
///     engine.wait_for_var(ledger, &mut patiently())?;
///     let sum = *sum.lock().unwrap();
///     Ok(sum)
/// }
///
/// for engine in [&ThreadedEngine::new() as &dyn Engine, &NaiveEngine::new()] {
///     assert_eq!(book(engine, &[20, 5, 17]).unwrap(), 42);
///     let error = book(engine, &[20, -5, 17]).unwrap_err(); // later bookings are skipped
///     assert_eq!((error.message(), error.operator()), ("an order over -5", Some("check")));
/// }
/// ```
pub trait Engine: Send + Sync {
    /// Creates a variable that stands for bytes, such as those of an array: ready, at version 0.
    /// After an error it stays *poisoned*, because the bytes were never computed: operations that
    /// name it are skipped, and no further wait reports it, until one that overwrites it whole
    /// ([`Push::overwrites`]) succeeds. For anything but bytes use [`Engine::new_token`], which is
    /// Python's `new_variable`.
    fn new_variable(&self) -> Var;

    /// Creates a variable that stands for no bytes: once a wait has raised its error, operations
    /// that name it run again. Python calls this `new_variable`.
    ///
    /// ```
    /// use rsnet::engine::{Engine, Push, Task, ThreadedEngine, patiently};
    /// use rsnet::Error;
    ///
    /// let engine = ThreadedEngine::new();
    /// let (token, bytes) = (engine.new_token(), engine.new_variable());
    /// for v in [token, bytes] {
    ///     engine.push(Task::sync(|_| Err(Error::value("bad"))), Push::new("fail", &[], &[v]))?;
    ///     assert!(engine.wait_for_var(v, &mut patiently()).is_err());
    ///     engine.wait_for_var(v, &mut patiently())?; // it is raised once
    /// }
    /// assert!(engine.poisoned(token).is_none());
    /// assert!(engine.poisoned(bytes).is_some());
    ///
    /// let whole = [bytes];
    /// let heal = Push { overwrites: 1, ..Push::new("overwrite", &[], &whole) };
    /// engine.push(Task::sync(|_| Ok(())), heal)?;
    /// engine.wait_for_var(bytes, &mut patiently())?;
    /// assert!(engine.poisoned(bytes).is_none());
    /// # Ok::<(), rsnet::Error>(())
    /// ```
    fn new_token(&self) -> Var;

    /// Deletes a variable after every earlier use of it, and then runs `last`. Any later use is an
    /// error. Returns false if the variable was already deleted.
    fn delete_variable(&self, var: Var, last: Option<Box<dyn FnOnce() + Send>>) -> bool;

    /// Schedules an operation and returns. An error means that nothing was scheduled: a variable is
    /// deleted, named twice, or both read and written; or more variables are overwritten than
    /// written. (The device is not looked at; see [`Push::ctx`].) An engine that runs operations
    /// inside the push may also stop waiting for the operation's token: then the operation has
    /// failed, and the error says why; see
    /// [`NaiveEngine::with_poll`](crate::engine::NaiveEngine::with_poll).
    fn push(&self, task: Task, push: Push<'_>) -> Result<()>;

    /// Prepares an operation to be pushed many times. An error means that a variable is deleted,
    /// named twice, or both read and written, or that more variables are overwritten than written.
    fn new_operation(&self, run: Repeated, push: Push<'_>) -> Result<Operation>;
    /// As [`Engine::new_operation`], for a function that completes a token.
    fn new_async_operation(&self, run: RepeatedAsync, push: Push<'_>) -> Result<Operation>;
    /// Schedules a run of a prepared operation, for this device and at this priority. An error
    /// means that nothing was scheduled: the operation or one of its variables is deleted.
    fn push_operation(&self, operation: &Operation, ctx: Context, priority: i32) -> Result<()> {
        self.push_operation_at(operation, ctx, priority, None)
    }
    /// As [`Engine::push_operation`], with the user's line; see [`Push::call_site`].
    fn push_operation_at(
        &self,
        operation: &Operation,
        ctx: Context,
        priority: i32,
        call_site: Option<FindCallSite<'_>>,
    ) -> Result<()>;
    /// Deletes a prepared operation: runs already pushed still execute, further pushes are errors.
    /// Its memory is released after the last run.
    fn delete_operation(&self, operation: Operation) {
        operation.delete();
    }

    /// Blocks until every operation pushed before that names `var` is complete, and raises the
    /// variable's unreported error. Other errors: the variable is deleted; the wait is inside an
    /// operation that would wait for itself, or would block a compute thread; the poll's error; the
    /// limit of [`Engine::set_wait_timeout`].
    fn wait_for_var(&self, var: Var, poll: Poll<'_>) -> Result<()>;
    /// Blocks until every write pushed before is complete, and raises the variable's unreported
    /// error. Other errors as for [`Engine::wait_for_var`].
    fn wait_to_read(&self, var: Var, poll: Poll<'_>) -> Result<()>;
    /// Blocks until everything pushed before is complete; raises the first unreported error, after
    /// which all count as reported. Inside an operation it covers what that operation has pushed.
    /// Other errors: the poll's; the limit of [`Engine::set_wait_timeout`].
    fn wait_for_all(&self, poll: Poll<'_>) -> Result<()>;

    /// Returns the error because of which the bytes of `var` were never computed, reported or not.
    /// Meaningful once the writers of `var` are complete.
    fn poisoned(&self, var: Var) -> Option<Error>;

    /// Returns the error that a wait for `var` would raise now, and marks it as reported. Does not
    /// block.
    fn take_error(&self, var: Var) -> Option<Error>;

    /// Runs `f` at once and returns true if the variables are idle: no pending writer of `reads`,
    /// nothing pending on `writes`, none poisoned. No push can be ordered before `f` meanwhile. For
    /// work much shorter than a task.
    fn try_run_exclusive(&self, reads: &[Var], writes: &[Var], f: &mut dyn FnMut()) -> bool;

    /// The number of completed writes of `var`, including those of skipped operations; 0 if it is
    /// deleted.
    fn version(&self, var: Var) -> u64;

    /// Returns true if a push runs its operation before it returns.
    fn runs_inside_push(&self) -> bool {
        false
    }

    /// Sets how many consecutive pushes of this thread are gathered into one operation (0 and 1
    /// turn gathering off), and returns the previous number. See [`bulk`](crate::engine::bulk).
    fn set_bulk_size(&self, size: usize) -> Result<usize>;

    /// The number of threads for operations and kernels, started or not: as set by
    /// [`Engine::set_num_threads`], or by default the cores that the process may use. 1 if
    /// operations run inside the push.
    fn num_threads(&self) -> usize;
    /// Changes the number of threads: running operations end on the old threads, and the new ones
    /// take over the queues. An error means that the number is out of range or that threads could
    /// not be started. No effect if operations run inside the push.
    fn set_num_threads(&self, n: usize) -> Result<()>;
    /// Completes all work, whatever its errors, and ends the threads; [`Engine::start`] restarts
    /// them. Errors: the call is inside an operation, which would wait for itself; the poll's; the
    /// limit of [`Engine::set_wait_timeout`]. After an error the engine continues as before.
    fn stop(&self, poll: Poll<'_>) -> Result<()>;
    /// Starts the threads if there are none. Optional: work starts them. A failure is raised by the
    /// next wait.
    fn start(&self);
    /// Limits waits: one that lasts longer ends with an error that names what it waits for. If
    /// operations run inside the push, the limit also ends a push whose token is never completed.
    /// `None` removes the limit.
    fn set_wait_timeout(&self, limit: Option<Duration>);
    /// The names of the operations that run now, the oldest first; none if operations run inside
    /// the push.
    fn running_operations(&self) -> Vec<String> {
        Vec::new()
    }
    /// Sets whether a push raises the error of its operation (which no wait raises then), and
    /// returns the previous setting. An error if operations do not run inside the push.
    fn set_raise_in_push(&self, _on: bool) -> Result<bool> {
        Err(Error::value(
            "this engine does not run operations inside their pushes: expected \
             MXNET_ENGINE_TYPE=NaiveEngine",
        ))
    }
    /// Installs the hook that is notified of every operation queued, started and finished. Free
    /// while there is none.
    fn set_hook(&self, hook: Option<Arc<dyn Hook>>);
    /// Returns true if a hook is installed. Work that would bypass the engine is then pushed
    /// instead.
    fn is_hooked(&self) -> bool;
    /// Takes every lock of the engine, to be released after a fork in parent and child. Does not
    /// wait for operations.
    fn before_fork(&self) -> HeldForFork<'_> {
        HeldForFork::nothing()
    }
    /// From now on operations that have not started are completed without being run, except those
    /// of [`Prop::DeleteVar`](crate::engine::Prop::DeleteVar) and the last functions of deleted
    /// variables, which release resources. A Python function never starts after this, whatever its
    /// property: its threads take no more work at exit.
    fn notify_shutdown(&self);
}
