//! What runs inside pushes of naive engines on this thread.
//!
//! A naive engine knows no tasks, so what the threaded one reads from them is kept here while an operation
//! runs: which variables it names, so that it cannot wait for itself and a deletion comes after it; and what it
//! pushed, so that `wait_for_all` inside of it raises no stranger's error.

use crate::engine::threaded::current as frame;
use crate::engine::threaded::wait::waits_for_itself;
use crate::engine::{NaiveEngine, Push, Var};
use crate::error::Result;
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex};

thread_local! {
    static TOP: Cell<*const Inside> = const { Cell::new(ptr::null()) };
}

/// Where a token leaves the end of its operation.
pub type Place = Arc<(Mutex<Option<Result<()>>>, Condvar)>;

/// A deletion that comes after the operation: the variable's slot, and what runs then.
pub type Deletion = (u32, Option<Box<dyn FnOnce() + Send>>);

/// One running operation. Lives on the stack of the thread that pushes it.
pub struct Inside {
    engine: *const NaiveEngine,
    /// Its push, which it does not outlive.
    push: *const Push<'static>,
    below: *const Inside,
    more: OnceCell<Box<RefCell<More>>>,
}

/// What few operations have.
#[derive(Default)]
pub struct More {
    /// Of an asynchronous operation.
    token: Option<Place>,
    /// What its pushes write.
    written: Vec<Var>,
    /// Those that came while it ran.
    pub deletions: Vec<Deletion>,
}

/// While it lives, the operation is on this thread's list.
pub struct Entered<'a>(&'a Inside);

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        TOP.set(self.0.below);
    }
}

impl Inside {
    /// An operation pushed by what runs on this thread, if anything does.
    #[inline(always)]
    pub fn new(engine: *const NaiveEngine, push: &Push<'_>) -> Self {
        Inside { engine, push: ptr::from_ref(push).cast(), below: TOP.get(), more: OnceCell::new() }
    }

    /// Puts it on this thread's list, and remembers what it writes for the one below.
    #[inline(always)]
    pub fn enter(&self) -> Entered<'_> {
        TOP.set(self);
        let entered = Entered(self);
        if !self.below.is_null() {
            self.note_below();
        }
        entered
    }

    #[cold]
    #[inline(never)]
    fn note_below(&self) {
        // SAFETY: as in `each`.
        let below = unsafe { &*self.below };
        if below.engine == self.engine {
            below.note(self.push().writes);
        }
    }

    /// Remembers that a push of this operation writes `vars`.
    fn note(&self, vars: &[Var]) {
        frame::remember(&mut self.more().written, vars);
    }

    #[inline(always)]
    pub fn push(&self) -> &Push<'_> {
        // SAFETY: whoever made this borrowed the push, and keeps it for longer.
        unsafe { &*self.push.cast() }
    }

    fn more(&self) -> RefMut<'_, More> {
        self.more.get_or_init(Default::default).borrow_mut()
    }

    /// What few operations leave behind.
    #[inline(always)]
    pub fn into_more(self) -> Option<Box<RefCell<More>>> {
        self.more.into_inner()
    }

    pub fn ends_by(&self, token: &Place) {
        self.more().token = Some(token.clone());
    }

    /// Is the operation over, though its function still runs?
    fn is_done(&self) -> bool {
        let Some(more) = self.more.get() else { return false };
        let is_over = |t: &Place| t.0.lock().is_ok_and(|end| end.is_some());
        more.borrow().token.as_ref().is_some_and(is_over)
    }

    fn names(&self, var: Var, readers_too: bool) -> bool {
        let Push { reads, writes, .. } = self.push();
        writes.contains(&var) || readers_too && reads.contains(&var)
    }
}

/// Calls `f` with each operation of `engine` on this thread, innermost first.
fn each<R>(engine: *const NaiveEngine, mut f: impl FnMut(&Inside) -> Option<R>) -> Option<R> {
    let mut at = TOP.get();
    while !at.is_null() {
        // SAFETY: operations leave the list before they leave the stack (`enter`), and the list is this
        // thread's own.
        let operation = unsafe { &*at };
        if operation.engine == engine
            && let Some(found) = f(operation)
        {
            return Some(found);
        }
        at = operation.below;
    }
    None
}

/// Does an operation of `engine` run on this thread?
pub fn is_running(engine: *const NaiveEngine) -> bool {
    each(engine, |_| Some(())).is_some()
}

/// An error if the wait for `var` would wait for an operation on this thread's stack.
pub fn check_wait(engine: *const NaiveEngine, var: Var, readers_too: bool) -> Result<()> {
    let waits = |o: &Inside| {
        let waits = o.names(var, readers_too) && !o.is_done();
        waits.then(|| waits_for_itself(o.push().name, var.number()))
    };
    each(engine, waits).map_or(Ok(()), Err)
}

/// Leaves a deletion to the outermost operation that names the variable; back if there is none.
pub fn postpone(
    engine: *const NaiveEngine,
    var: Var,
    last: Option<Box<dyn FnOnce() + Send>>,
) -> Option<Deletion> {
    let mut user: *const Inside = ptr::null();
    each(engine, |o| {
        if o.names(var, true) {
            user = o;
        }
        None::<()>
    });
    let deletion = (var.0 as u32, last);
    if user.is_null() {
        return Some(deletion);
    }
    // SAFETY: as in `each`.
    unsafe { &*user }.more().deletions.push(deletion);
    None
}

/// What the pushes of the innermost operation of `engine` on this thread write; `None` outside of any.
pub fn own_written(engine: *const NaiveEngine) -> Option<Vec<Var>> {
    each(engine, |o| Some(o.more.get().map_or(Vec::new(), |m| m.borrow().written.clone())))
}
