//! What runs on this thread: the operations whose functions are on its stack.
//!
//! A wait looks here, so that an operation that would wait for itself gets an error instead of a hang,
//! and so that `wait_for_all` inside an operation covers what that operation pushed, and its errors only.

use crate::engine::Var;
use crate::engine::data::task_slab::TaskRef;
use crate::engine::threaded::core::Core;
use std::cell::{Cell, RefCell};
use std::ptr;

#[cfg(not(loom))]
thread_local! {
    static TOP: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

#[cfg(loom)]
loom::thread_local! {
    static TOP: Cell<*const Frame> = Cell::new(ptr::null());
}

fn top() -> *const Frame {
    TOP.with(Cell::get)
}

fn replace_top(frame: *const Frame) -> *const Frame {
    TOP.with(|t| t.replace(frame))
}

/// One entry of the stack. Lives on the stack of the thread that runs the operation.
pub struct Frame {
    core: *const Core,
    task: Cell<TaskRef>,
    /// A compute thread's own frame, used for all its operations one after the other.
    is_worker: bool,
    /// What the operation has pushed so far; not kept on compute threads, where waits are errors.
    pushed: RefCell<Option<Box<Pushed>>>,
    below: *const Frame,
}

/// The pushes of an operation, and what they write.
#[derive(Default)]
struct Pushed {
    tasks: Vec<TaskRef>,
    written: Vec<Var>,
}

impl Frame {
    pub fn new(core: *const Core, task: TaskRef, is_worker: bool) -> Self {
        Frame { core, task: Cell::new(task), is_worker, pushed: RefCell::default(), below: top() }
    }

    #[inline]
    pub fn set_task(&self, task: TaskRef) {
        self.task.set(task);
    }

    /// Runs `f` with this frame on top.
    #[inline]
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Leave(*const Frame);
        impl Drop for Leave {
            fn drop(&mut self) {
                replace_top(self.0);
            }
        }
        let _leave = Leave(replace_top(self));
        f()
    }
}

/// Calls `f` with each frame of `core` on this thread, innermost first.
fn each<R>(core: *const Core, mut f: impl FnMut(&Frame) -> Option<R>) -> Option<R> {
    let mut at = top();
    while !at.is_null() {
        // SAFETY: frames leave the list before they leave the stack (`enter`), and the list is this
        // thread's own.
        let frame = unsafe { &*at };
        if frame.core == core
            && let Some(found) = f(frame)
        {
            return Some(found);
        }
        at = frame.below;
    }
    None
}

/// The operations of `core` on this thread's stack, innermost first.
pub fn running(core: *const Core) -> Vec<TaskRef> {
    let mut tasks = Vec::new();
    each(core, |f| {
        if f.task.get() != TaskRef::NONE {
            tasks.push(f.task.get());
        }
        None::<()>
    });
    tasks
}

/// Is this a compute thread of `core`?
pub fn on_worker(core: *const Core) -> bool {
    each(core, |f| f.is_worker.then_some(())).is_some()
}

/// Remembers a push made by the operation on top.
#[inline]
pub fn note_push(
    core: *const Core,
    task: TaskRef,
    is_done: impl Fn(TaskRef) -> bool,
    written: &[Var],
) {
    if !top().is_null() {
        note_push_of_top(core, task, is_done, written);
    }
}

#[cold]
#[inline(never)]
fn note_push_of_top(
    core: *const Core,
    task: TaskRef,
    is_done: impl Fn(TaskRef) -> bool,
    written: &[Var],
) {
    // SAFETY: as in `each`.
    let frame = unsafe { &*top() };
    if frame.core != core || frame.is_worker {
        return;
    }
    let mut pushed = frame.pushed.borrow_mut();
    let Pushed { tasks, written: known } = &mut **pushed.get_or_insert_default();
    if tasks.len() == tasks.capacity() && tasks.len() >= 64 {
        tasks.retain(|&t| !is_done(t));
    }
    tasks.push(task);
    remember(known, written);
}

/// Adds to the variables that an operation's pushes write. A variable may be in the list several times, but the
/// list does not grow without end.
pub fn remember(known: &mut Vec<Var>, written: &[Var]) {
    if known.len() == known.capacity() && known.len() >= 64 {
        known.sort_unstable_by_key(|v| v.0);
        known.dedup();
    }
    known.extend_from_slice(written);
}

/// What the operation on top of this thread's stack has pushed.
pub fn own_pushes(core: *const Core) -> Vec<TaskRef> {
    own(core, |p| p.tasks.clone())
}

/// What the pushes of the operation on top of this thread's stack write.
pub fn own_written(core: *const Core) -> Vec<Var> {
    own(core, |p| p.written.clone())
}

fn own<T: Default>(core: *const Core, part: impl Fn(&Pushed) -> T) -> T {
    each(core, |f| Some(f.pushed.borrow().as_deref().map(&part))).flatten().unwrap_or_default()
}
