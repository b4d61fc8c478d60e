//! The stack of current operations of each thread.
//!
//! Waits consult it, so that an operation that would wait for itself gets an error instead of a
//! hang, and so that `wait_for_all` inside an operation covers what that operation pushed, and its
//! errors only.

use crate::engine::access::append_written;
use crate::engine::data::slot::TaskRef;
use crate::engine::push::Var;
use std::cell::{Cell, RefCell};
use std::ptr;

#[cfg(not(loom))]
thread_local! {
    static TOP: Cell<*const StackFrame> = const { Cell::new(ptr::null()) };
}

#[cfg(loom)]
loom::thread_local! {
    static TOP: Cell<*const StackFrame> = Cell::new(ptr::null());
}

fn top() -> *const StackFrame {
    TOP.with(Cell::get)
}

fn replace_top(frame: *const StackFrame) -> *const StackFrame {
    TOP.with(|t| t.replace(frame))
}

/// One entry of the stack. Lives on the stack of the thread that runs the operation.
pub struct StackFrame {
    engine: *const (),
    task: Cell<TaskRef>,
    /// A compute thread's frame, reused for all its operations.
    is_worker: bool,
    /// The pushes of the operation so far; not recorded on compute threads, where waits are errors.
    pushed: RefCell<Option<Box<Pushed>>>,
    below: *const StackFrame,
}

/// The pushes of an operation, and what they write.
#[derive(Default)]
struct Pushed {
    tasks: Vec<TaskRef>,
    written: Vec<Var>,
}

impl StackFrame {
    pub fn new(engine: *const (), task: TaskRef, is_worker: bool) -> Self {
        StackFrame {
            engine,
            task: Cell::new(task),
            is_worker,
            pushed: RefCell::default(),
            below: top(),
        }
    }

    #[inline]
    pub fn set_task(&self, task: TaskRef) {
        self.task.set(task);
    }

    /// Runs `f` with this frame on top of the stack.
    #[inline]
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Leave(*const StackFrame);
        impl Drop for Leave {
            fn drop(&mut self) {
                replace_top(self.0);
            }
        }
        let _leave = Leave(replace_top(self));
        f()
    }
}

/// Calls `f` with each frame of the engine on this thread, innermost first.
fn each<R>(engine: *const (), mut f: impl FnMut(&StackFrame) -> Option<R>) -> Option<R> {
    let mut at = top();
    while !at.is_null() {
        // SAFETY: frames leave the list before they leave the stack (`enter`), and the list is
        // thread-local.
        let frame = unsafe { &*at };
        if frame.engine == engine
            && let Some(found) = f(frame)
        {
            return Some(found);
        }
        at = frame.below;
    }
    None
}

/// The operations of the engine on this thread's stack, innermost first.
pub fn running(engine: *const ()) -> Vec<TaskRef> {
    let mut tasks = Vec::new();
    each(engine, |f| {
        if f.task.get() != TaskRef::NONE {
            tasks.push(f.task.get());
        }
        None::<()>
    });
    tasks
}

/// Returns true on a compute thread of the engine.
pub fn on_worker(engine: *const ()) -> bool {
    each(engine, |f| f.is_worker.then_some(())).is_some()
}

/// Records a push made by the innermost operation.
#[inline]
pub fn record_push(
    engine: *const (),
    task: TaskRef,
    is_done: impl Fn(TaskRef) -> bool,
    written: &[Var],
) {
    if !top().is_null() {
        record_push_of_top(engine, task, is_done, written);
    }
}

#[cold]
#[inline(never)]
fn record_push_of_top(
    engine: *const (),
    task: TaskRef,
    is_done: impl Fn(TaskRef) -> bool,
    written: &[Var],
) {
    // SAFETY: as in `each`.
    let frame = unsafe { &*top() };
    if frame.engine != engine || frame.is_worker {
        return;
    }
    let mut pushed = frame.pushed.borrow_mut();
    let Pushed { tasks, written: known } = &mut **pushed.get_or_insert_default();
    if tasks.len() == tasks.capacity() && tasks.len() >= 64 {
        tasks.retain(|&t| !is_done(t));
    }
    tasks.push(task);
    append_written(known, written);
}

/// The pushes of the innermost operation of the engine on this thread.
pub fn own_pushes(engine: *const ()) -> Vec<TaskRef> {
    own(engine, |p| p.tasks.clone())
}

/// The variables written by these pushes.
pub fn own_written(engine: *const ()) -> Vec<Var> {
    own(engine, |p| p.written.clone())
}

fn own<T: Default>(engine: *const (), part: impl Fn(&Pushed) -> T) -> T {
    each(engine, |f| Some(f.pushed.borrow().as_deref().map(&part))).flatten().unwrap_or_default()
}
