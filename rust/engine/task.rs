//! What an operation runs, and the token by which an asynchronous one ends.
//!
//! A [`Task`] keeps a small closure inline (four words), so that pushing one costs no allocation; a
//! greater one is boxed. It is the one place of the engine where closures lose their type.

use super::RunContext;
use crate::engine::data::task_slab::TaskRef;
use crate::engine::threaded::core::Core;
use crate::engine::threaded::current::Frame;
use crate::error::{Error, Result, guarded};
use std::cell::Cell;
use std::mem::{MaybeUninit, align_of, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

/// Reports the end of an asynchronous operation: once, from any thread. Dropped unused it reports a
/// failure, so that a forgotten token cannot hang the program.
pub struct OnComplete(Target);

enum Target {
    Done,
    /// The mark is that of the operation of which this token ends a part.
    Function(Box<dyn FnOnce(Result<()>) + Send>, Mark),
    /// A task of a threaded engine: its slot and generation.
    Slot(Arc<Core>, u64),
}

impl OnComplete {
    pub(in crate::engine) fn new(f: impl FnOnce(Result<()>) + Send + 'static) -> Self {
        Self::marked(Mark(None), f)
    }

    /// Ends a part of the operation of `mark`.
    pub(in crate::engine) fn marked(
        mark: Mark,
        f: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Self {
        OnComplete(Target::Function(Box::new(f), mark))
    }

    pub(in crate::engine) fn of_slot(core: Arc<Core>, task: u64) -> Self {
        OnComplete(Target::Slot(core, task))
    }

    /// The operation that this token ends, to run parts of it under its name.
    pub fn mark(&self) -> Mark {
        match &self.0 {
            Target::Slot(core, task) => Mark(Some((core.clone(), TaskRef(*task)))),
            Target::Function(_, mark) => mark.clone(),
            Target::Done => Mark(None),
        }
    }

    /// As [`Mark::inside`], for who holds the token meanwhile.
    pub fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        match &self.0 {
            Target::Slot(core, task) => Frame::new(&**core, TaskRef(*task), false).enter(f),
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
            Target::Slot(core, task) => core.complete_token(task, result),
        }
    }
}

/// Names an operation while it runs. See [`OnComplete::mark`].
#[derive(Clone)]
pub struct Mark(Option<(Arc<Core>, TaskRef)>);

impl Mark {
    /// Runs `f` as part of the operation, on whatever thread this is: a wait inside that would wait for the
    /// operation itself is an error, and `wait_for_all` covers what `f` has pushed.
    pub fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some((core, task)) => Frame::new(&**core, *task, false).enter(f),
            None => f(),
        }
    }
}

// Where tokens go that a panic drops inside an asynchronous function: the panic's message is known only when it is
// caught. A list on the stack of `run_to_token`, or null.
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
                let place = DROPPED.with(Cell::get);
                if !place.is_null() {
                    let target = std::mem::replace(&mut self.0, Target::Done);
                    // SAFETY: the list lives further down this thread's stack, and only this thread knows it.
                    return unsafe { (*place).push(target) };
                }
                "the operation panicked before it was completed"
            } else {
                "the operation was dropped without being completed"
            };
            self.finish(Err(Error::execution(how)));
        }
    }
}

const WORDS: usize = 4;
type Data = MaybeUninit<[u64; WORDS]>;
type CallSync = unsafe fn(*mut u8, &RunContext) -> Result<()>;
type CallAsync = unsafe fn(*mut u8, &RunContext, OnComplete);

struct VTable {
    call: Call,
    drop: unsafe fn(*mut u8),
    /// Does the operation end by the return of what its pusher gave?
    ends_by_returning: bool,
}

enum Call {
    Sync(CallSync),
    Async(CallAsync),
}

/// The function of an operation.
pub struct Task {
    vtable: Option<&'static VTable>,
    data: Data,
}

// SAFETY: the constructors take `Send` closures only, and a task owns its closure.
unsafe impl Send for Task {}

trait Closure: Sized {
    const VTABLE: VTable;
}

#[repr(transparent)]
struct Sync<F>(F);
#[repr(transparent)]
struct Async<F>(F);
#[repr(transparent)]
struct Elsewhere<F>(F);

impl<F: FnOnce(&RunContext) -> Result<()>> Closure for Sync<F> {
    const VTABLE: VTable = VTable {
        call: Call::Sync(call_sync::<F>),
        drop: drop_in_place::<F>,
        ends_by_returning: true,
    };
}

impl<F: FnOnce(&RunContext, OnComplete)> Closure for Async<F> {
    const VTABLE: VTable = VTable {
        call: Call::Async(call_async::<F>),
        drop: drop_in_place::<F>,
        ends_by_returning: false,
    };
}

impl<F: FnOnce(&RunContext, OnComplete)> Closure for Elsewhere<F> {
    const VTABLE: VTable = VTable { ends_by_returning: true, ..<Async<F> as Closure>::VTABLE };
}

/// # Safety
/// `data` holds an `F`, which is moved out.
unsafe fn call_sync<F: FnOnce(&RunContext) -> Result<()>>(
    data: *mut u8,
    run: &RunContext,
) -> Result<()> {
    // SAFETY: promised by the caller.
    let f = unsafe { data.cast::<F>().read() };
    f(run)
}

/// # Safety
/// As [`call_sync`].
unsafe fn call_async<F: FnOnce(&RunContext, OnComplete)>(
    data: *mut u8,
    run: &RunContext,
    token: OnComplete,
) {
    // SAFETY: promised by the caller.
    let f = unsafe { data.cast::<F>().read() };
    f(run, token);
}

/// # Safety
/// `data` holds an `F`, which is dropped.
unsafe fn drop_in_place<F>(data: *mut u8) {
    // SAFETY: promised by the caller.
    unsafe { data.cast::<F>().drop_in_place() }
}

impl Task {
    /// No function: only orders.
    pub const fn nothing() -> Self {
        Task { vtable: None, data: Data::uninit() }
    }

    /// Done when the function returns.
    #[inline]
    pub fn sync<F: FnOnce(&RunContext) -> Result<()> + Send + 'static>(f: F) -> Self {
        if size_of::<F>() <= size_of::<Data>() && align_of::<F>() <= align_of::<u64>() {
            Task::hold(Sync(f))
        } else {
            let boxed = Box::new(f);
            Task::hold(Sync(move |run: &RunContext| boxed(run)))
        }
    }

    /// Done when the token is completed.
    #[inline]
    pub fn asynchronous<F: FnOnce(&RunContext, OnComplete) + Send + 'static>(f: F) -> Self {
        if size_of::<F>() <= size_of::<Data>() && align_of::<F>() <= align_of::<u64>() {
            Task::hold(Async(f))
        } else {
            let boxed = Box::new(f);
            Task::hold(Async(move |run: &RunContext, token| boxed(run, token)))
        }
    }

    /// A function that is handed to a thread of somebody else, who completes the token when it returns there:
    /// for those who push it as good as [`Task::sync`].
    #[inline]
    pub fn elsewhere<F: FnOnce(&RunContext, OnComplete) + Send + 'static>(f: F) -> Self {
        if size_of::<F>() <= size_of::<Data>() && align_of::<F>() <= align_of::<u64>() {
            Task::hold(Elsewhere(f))
        } else {
            let boxed = Box::new(f);
            Task::hold(Elsewhere(move |run: &RunContext, token| boxed(run, token)))
        }
    }

    /// Does it end by a token?
    pub(in crate::engine) fn is_asynchronous(&self) -> bool {
        self.vtable.is_some_and(|v| matches!(v.call, Call::Async(_)))
    }

    /// Does it end, for those who push it, when its function returns?
    pub(in crate::engine) fn ends_by_returning(&self) -> bool {
        self.vtable.is_none_or(|v| v.ends_by_returning)
    }

    /// Runs a function that ends by returning.
    pub(in crate::engine) fn run_sync(self, run: &RunContext) -> Result<()> {
        self.run(run, || OnComplete(Target::Done)).unwrap_or(Ok(()))
    }

    /// Runs a function that ends by `token`.
    pub(in crate::engine) fn run_asynchronous(self, run: &RunContext, token: OnComplete) {
        // (One that ends by returning takes no token, which then reports that it was forgotten.)
        let _ = self.run(run, || token);
    }

    #[inline]
    fn hold<C: Closure + 'static>(f: C) -> Self {
        let mut task = Task { vtable: Some(&C::VTABLE), data: Data::uninit() };
        // SAFETY: the callers have checked that it fits in size and alignment.
        unsafe { task.data.as_mut_ptr().cast::<C>().write(f) };
        task
    }

    /// Runs the function; a panic becomes an error. `token` is made for asynchronous functions only; an
    /// answer of `None` says that the operation ends by its token.
    #[inline]
    pub(in crate::engine) fn run(
        mut self,
        run: &RunContext,
        token: impl FnOnce() -> OnComplete,
    ) -> Option<Result<()>> {
        self.run_in_place(run, token)
    }

    /// The same where the task is. Its place is not touched once the function has begun.
    ///
    /// # Safety
    /// `task` is a task that nobody else touches, and is not used again.
    #[inline]
    pub(in crate::engine) unsafe fn run_at(
        task: *mut Task,
        run: &RunContext,
        token: impl FnOnce() -> OnComplete,
    ) -> Option<Result<()>> {
        // SAFETY: promised by the caller.
        let (vtable, data) = unsafe { ((*task).vtable, (&raw mut (*task).data).cast::<u8>()) };
        // SAFETY: `data` holds the closure of this vtable, and is not used again.
        vtable.map_or(Some(Ok(())), |vtable| unsafe { call(vtable, data, run, token) })
    }

    /// The same, which leaves [`Task::nothing`].
    #[inline]
    pub(in crate::engine) fn run_in_place(
        &mut self,
        run: &RunContext,
        token: impl FnOnce() -> OnComplete,
    ) -> Option<Result<()>> {
        let data = self.data.as_mut_ptr().cast();
        // SAFETY: `data` holds the closure of the vtable that was taken.
        self.vtable.take().map_or(Some(Ok(())), |vtable| unsafe { call(vtable, data, run, token) })
    }

    /// Its function, if it has one that is done when it returns.
    #[inline(always)]
    pub(in crate::engine) fn returning(&mut self) -> Option<Returning<'_>> {
        match self.vtable?.call {
            Call::Sync(call) => Some(Returning { call, task: self }),
            Call::Async(_) => None,
        }
    }

    /// Moves the task to `to` and leaves [`Task::nothing`]: word by word as it was written here a moment ago, for
    /// a wider load would have to wait until these words have reached the cache.
    ///
    /// # Safety
    /// `to` may be written, and holds nothing that is to be dropped.
    #[inline]
    pub(in crate::engine) unsafe fn move_to(&mut self, to: *mut Task) {
        type Word = MaybeUninit<u64>;
        const _: () = assert!(size_of::<Task>().is_multiple_of(size_of::<Word>()));
        let (from, to) = ((&raw mut *self).cast::<Word>(), to.cast::<Word>());
        for i in 0..size_of::<Task>() / size_of::<Word>() {
            // SAFETY: within both tasks; volatile only so that the words stay apart.
            unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
        }
        // SAFETY: the function is elsewhere now.
        unsafe { (&raw mut self.vtable).write(None) };
    }
}

/// The function of a task, where it is.
pub(in crate::engine) struct Returning<'a> {
    call: CallSync,
    task: &'a mut Task,
}

impl Returning<'_> {
    /// Runs it, and leaves [`Task::nothing`]; a panic becomes an error.
    #[inline(always)]
    pub fn run(self, run: &RunContext) -> Result<()> {
        self.task.vtable = None;
        // SAFETY: `call` is of the vtable of the closure in `data`, which now counts as moved out.
        guarded(|| unsafe { (self.call)(self.task.data.as_mut_ptr().cast(), run) })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(vtable) = self.vtable {
            // SAFETY: `data` holds the closure of this vtable, not yet moved out.
            unsafe { (vtable.drop)(self.data.as_mut_ptr().cast()) }
        }
    }
}

/// Runs the closure in `data`; a panic becomes an error. `None`: it ends by its token.
///
/// # Safety
/// `data` holds a closure of `vtable`, which is moved out.
#[inline]
unsafe fn call(
    vtable: &VTable,
    data: *mut u8,
    run: &RunContext,
    token: impl FnOnce() -> OnComplete,
) -> Option<Result<()>> {
    match vtable.call {
        // SAFETY: promised by the caller.
        Call::Sync(call) => Some(guarded(|| unsafe { call(data, run) })),
        Call::Async(call) => {
            let token = token();
            // SAFETY: as above.
            run_to_token(|| unsafe { call(data, run, token) });
            None
        }
    }
}

/// Runs an asynchronous function. If it panics, the operations whose tokens the panic drops fail with its message.
#[inline]
fn run_to_token(f: impl FnOnce()) {
    let mut dropped: Vec<Target> = Vec::new();
    let outer = DROPPED.with(|place| place.replace(&raw mut dropped));
    let result = catch_unwind(AssertUnwindSafe(f));
    DROPPED.with(|place| place.set(outer));
    if let Err(panic) = result {
        let error = Error::from_panic(panic);
        dropped.into_iter().for_each(|target| OnComplete(target).complete(Err(error.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn counted() -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let n = Arc::new(AtomicUsize::new(0));
        (n.clone(), n)
    }

    fn no_token() -> OnComplete {
        OnComplete(Target::Done)
    }

    #[test]
    fn runs_small_and_great_closures_once_and_drops_them() {
        let (n, seen) = counted();
        let small = Task::sync(move |_| {
            n.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(small.run(&RunContext::default(), no_token).unwrap().is_ok());
        assert_eq!((seen.load(Ordering::Relaxed), Arc::strong_count(&seen)), (1, 1));

        let (n, seen) = counted();
        let great = [7usize; 20];
        let task = Task::sync(move |_| {
            n.fetch_add(great.iter().sum(), Ordering::Relaxed);
            Ok(())
        });
        assert!(task.run(&RunContext::default(), no_token).unwrap().is_ok());
        assert_eq!((seen.load(Ordering::Relaxed), Arc::strong_count(&seen)), (140, 1));
    }

    #[test]
    fn a_task_never_run_drops_its_closure() {
        let (n, seen) = counted();
        drop(Task::sync(move |_| {
            n.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }));
        assert_eq!((seen.load(Ordering::Relaxed), Arc::strong_count(&seen)), (0, 1));
    }

    #[test]
    fn a_forgotten_token_reports_a_failure() {
        let told = Arc::new(std::sync::Mutex::new(None));
        let tell = told.clone();
        drop(OnComplete::new(move |r| *tell.lock().unwrap() = Some(r)));
        let error = told.lock().unwrap().take().unwrap().unwrap_err();
        assert!(error.to_string().contains("dropped without being completed"));
    }
}
