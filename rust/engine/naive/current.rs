//! The stack of current operations of naive engines on each thread.
//!
//! A naive engine has no tasks, so what the threaded one reads from them is recorded here while an
//! operation runs: the variables it names, so that it cannot wait for itself and a deletion comes
//! after it; and what it pushed, so that `wait_for_all` inside it raises the errors of its own
//! pushes only.

use crate::engine::access::append_written;
use crate::engine::data::task_ref::TaskRef;
use crate::engine::messages::waits_for_itself;
use crate::engine::push::{Push, Var};
use crate::engine::token::Completer;
use crate::error::Result;
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex};

thread_local! {
    static TOP: Cell<*const Running> = const { Cell::new(ptr::null()) };
}

/// Where a token stores the result of its operation.
pub type TokenResult = Arc<(Mutex<Option<Result<()>>>, Condvar)>;

/// A deletion to be done after the operation: the variable's index, and what runs then.
pub type Deletion = (u32, Option<Box<dyn FnOnce() + Send>>);

/// One running operation. Lives on the stack of the pushing thread.
pub struct Running {
    engine: *const (),
    /// The operation's push, which outlives this record.
    push: *const Push<'static>,
    below: *const Running,
    /// Does it stand for an operation of another thread?
    is_lent: bool,
    more: OnceCell<Box<RefCell<More>>>,
}

/// The part of a record that few operations need.
#[derive(Default)]
pub struct More {
    /// The result of an asynchronous operation.
    token: Option<TokenResult>,
    /// The variables that its pushes write.
    written: Vec<Var>,
    /// Deletions requested while it ran.
    pub deletions: Vec<Deletion>,
}

/// Keeps the operation on this thread's stack until dropped.
pub struct Entered<'a>(&'a Running);

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        TOP.set(self.0.below);
    }
}

impl Running {
    /// An operation on top of those running on this thread.
    #[inline(always)]
    pub fn new(engine: *const (), push: &Push<'_>) -> Self {
        Running {
            engine,
            push: ptr::from_ref(push).cast(),
            below: TOP.get(),
            is_lent: false,
            more: OnceCell::new(),
        }
    }

    /// Puts it on this thread's stack, and records its writes for the operation below.
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

    /// Records that a push of this operation writes `vars`.
    fn note(&self, vars: &[Var]) {
        append_written(&mut self.more().written, vars);
    }

    #[inline(always)]
    pub fn push(&self) -> &Push<'_> {
        // SAFETY: the creator borrows the push for longer than this record.
        unsafe { &*self.push.cast() }
    }

    fn more(&self) -> RefMut<'_, More> {
        self.more.get_or_init(Default::default).borrow_mut()
    }

    /// The rare part, if the operation needed it.
    #[inline(always)]
    pub fn into_more(self) -> Option<Box<RefCell<More>>> {
        self.more.into_inner()
    }

    pub fn ends_by(&self, token: &TokenResult) {
        self.more().token = Some(token.clone());
    }

    fn has_token(&self, token: &TokenResult) -> bool {
        let of = |more: &RefCell<More>| {
            more.borrow().token.as_ref().is_some_and(|own| Arc::ptr_eq(own, token))
        };
        self.more.get().is_some_and(|more| of(more))
    }

    /// Returns true if the operation is complete although its function still runs.
    fn is_done(&self) -> bool {
        let Some(more) = self.more.get() else { return false };
        let is_over = |t: &TokenResult| t.0.lock().is_ok_and(|end| end.is_some());
        more.borrow().token.as_ref().is_some_and(is_over)
    }

    fn names(&self, var: Var, readers_too: bool) -> bool {
        let Push { reads, writes, .. } = self.push();
        writes.contains(&var) || readers_too && reads.contains(&var)
    }
}

/// Calls `f` with each operation of `engine` on this thread, innermost first.
fn each<R>(engine: *const (), mut f: impl FnMut(&Running) -> Option<R>) -> Option<R> {
    let mut at = TOP.get();
    while !at.is_null() {
        // SAFETY: operations leave the list before they leave the stack (`enter`), and the list is
        // thread-local.
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

/// Returns true if an operation of `engine` runs on this thread.
pub fn is_running(engine: *const ()) -> bool {
    each(engine, |_| Some(())).is_some()
}

/// Refuses a wait for `var` that would wait for an operation on this thread's stack.
pub fn check_wait(engine: *const (), var: Var, readers_too: bool) -> Result<()> {
    let waits = |o: &Running| {
        let waits = o.names(var, readers_too) && !o.is_done();
        waits.then(|| waits_for_itself(o.push().name, var.number()))
    };
    each(engine, waits).map_or(Ok(()), Err)
}

/// Defers a deletion to the outermost operation of this thread that names the variable; returns it
/// if there is none.
pub fn postpone(
    engine: *const (),
    var: Var,
    last: Option<Box<dyn FnOnce() + Send>>,
) -> Option<Deletion> {
    let mut user: *const Running = ptr::null();
    each(engine, |o| {
        if o.names(var, true) && !o.is_lent {
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

/// The variables written by the pushes of the innermost operation of `engine` on this thread;
/// `None` outside of any.
pub fn own_written(engine: *const ()) -> Option<Vec<Var>> {
    each(engine, |o| Some(o.more.get().map_or(Vec::new(), |m| m.borrow().written.clone())))
}

/// The operations on a thread's stack, for another thread that runs a part of the innermost one.
pub struct Lent {
    engine: usize,
    token: TokenResult,
    /// Innermost first.
    operations: Vec<Copied>,
}

/// What waits ask of an operation.
struct Copied {
    name: String,
    reads: Vec<Var>,
    writes: Vec<Var>,
    token: Option<TokenResult>,
}

impl Lent {
    /// The operations of `engine` on this thread, of which `token` ends the innermost.
    pub fn new(engine: *const (), token: &TokenResult) -> Self {
        let mut operations = Vec::new();
        each(engine, |o| {
            let &Push { name, reads, writes, .. } = o.push();
            let token = o.more.get().and_then(|more| more.borrow().token.clone());
            operations.push(Copied {
                name: name.to_owned(),
                reads: reads.to_vec(),
                writes: writes.to_vec(),
                token,
            });
            None::<()>
        });
        Lent { engine: engine.addr(), token: token.clone(), operations }
    }
}

/// Runs `f` on top of `operations`, innermost first.
fn run_on(engine: *const (), operations: &[Copied], f: &mut dyn FnMut()) {
    let Some((innermost, below)) = operations.split_first() else { return f() };
    run_on(engine, below, &mut || {
        let push = Push::new(&innermost.name, &innermost.reads, &innermost.writes);
        let lent = Running { is_lent: true, ..Running::new(engine, &push) };
        if let Some(token) = &innermost.token {
            lent.ends_by(token);
        }
        let _entered = lent.enter();
        f();
    });
}

impl Completer for Lent {
    /// Its tokens are functions, which complete it.
    fn complete(&self, _: TaskRef, _: Result<()>) {}

    /// On this thread's stack the operations may be already.
    fn run_inside(&self, _: TaskRef, f: &mut dyn FnMut()) {
        let engine = ptr::without_provenance(self.engine);
        match each(engine, |o| o.has_token(&self.token).then_some(())) {
            Some(()) => f(),
            None => run_on(engine, &self.operations, f),
        }
    }

    fn is_shut_down(&self) -> bool {
        false
    }
}
