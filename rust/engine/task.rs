//! The function of an operation.
//!
//! A [`Task`] stores a small closure inline (four words), so that pushing one allocates nothing; a
//! larger one is boxed. This is the only place of the engine where closures are type-erased.

use crate::engine::push::RunContext;
use crate::engine::token::{OnComplete, run_to_token};
use crate::error::{Result, guarded};
use std::mem::{MaybeUninit, align_of, size_of};

const WORDS: usize = 4;
type Data = MaybeUninit<[u64; WORDS]>;
type CallSync = unsafe fn(*mut u8, &RunContext) -> Result<()>;
type CallAsync = unsafe fn(*mut u8, &RunContext, OnComplete);

struct VTable {
    call: CallFn,
    drop: unsafe fn(*mut u8),
    /// True if, for its pusher, the operation ends when its function returns.
    ends_by_returning: bool,
    /// True if the function looks up the user's line if the operation outlives its push.
    finds_line: bool,
}

enum CallFn {
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
struct FindsLine<F>(F);
#[repr(transparent)]
struct HandedOff<F>(F);

impl<F: FnOnce(&RunContext) -> Result<()>> Closure for Sync<F> {
    const VTABLE: VTable = VTable {
        call: CallFn::Sync(call_sync::<F>),
        drop: drop_in_place::<F>,
        ends_by_returning: true,
        finds_line: false,
    };
}

impl<F: FnOnce(&RunContext, OnComplete)> Closure for Async<F> {
    const VTABLE: VTable = VTable {
        call: CallFn::Async(call_async::<F>),
        drop: drop_in_place::<F>,
        ends_by_returning: false,
        finds_line: false,
    };
}

impl<F: FnOnce(&RunContext, OnComplete)> Closure for FindsLine<F> {
    const VTABLE: VTable = VTable { finds_line: true, ..<Async<F> as Closure>::VTABLE };
}

impl<F: FnOnce(&RunContext, OnComplete)> Closure for HandedOff<F> {
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

/// Returns true if a task can hold a `C` without a box.
const fn fits<C>() -> bool {
    size_of::<C>() <= size_of::<Data>() && align_of::<C>() <= align_of::<u64>()
}

impl Task {
    /// No function: the operation only orders others.
    pub const fn nothing() -> Self {
        Task { vtable: None, data: Data::uninit() }
    }

    /// Complete when the function returns.
    #[inline]
    pub fn sync<F: FnOnce(&RunContext) -> Result<()> + Send + 'static>(f: F) -> Self {
        Task::hold_or_box(f, Sync, Sync)
    }

    /// Complete when the token is completed.
    #[inline]
    pub fn asynchronous<F: FnOnce(&RunContext, OnComplete) + Send + 'static>(f: F) -> Self {
        Task::hold_or_box(f, Async, Async)
    }

    /// As [`Task::asynchronous`], for a function that names the user's line in its errors if it
    /// runs inside its push, and looks the line up if the operation outlives that: then the engine
    /// need not do so beforehand, which costs as much as the rest of the push.
    #[inline]
    pub fn finding_line<F: FnOnce(&RunContext, OnComplete) + Send + 'static>(f: F) -> Self {
        Task::hold_or_box(f, FindsLine, FindsLine)
    }

    /// A function that is handed off to a thread outside the engine, which completes the token when
    /// the function returns there. Equivalent to [`Task::sync`] for the pusher.
    #[inline]
    pub fn handed_off<F: FnOnce(&RunContext, OnComplete) + Send + 'static>(f: F) -> Self {
        Task::hold_or_box(f, HandedOff, HandedOff)
    }

    /// Returns true if the engine has to look up the user's line before it runs the function.
    pub(in crate::engine) fn needs_line(&self) -> bool {
        self.is_asynchronous() && !self.vtable.is_some_and(|v| v.finds_line)
    }

    /// Returns true if it ends by a token.
    pub(in crate::engine) fn is_asynchronous(&self) -> bool {
        self.vtable.is_some_and(|v| matches!(v.call, CallFn::Async(_)))
    }

    /// Returns true if, for the pusher, it ends when its function returns.
    pub(in crate::engine) fn ends_by_returning(&self) -> bool {
        self.vtable.is_none_or(|v| v.ends_by_returning)
    }

    /// Runs a function that ends by returning.
    pub(in crate::engine) fn run_sync(self, run: &RunContext) -> Result<()> {
        self.run(run, OnComplete::done).unwrap_or(Ok(()))
    }

    /// Runs a function that ends by `token`.
    pub(in crate::engine) fn run_asynchronous(self, run: &RunContext, token: OnComplete) {
        // A function that ends by returning takes no token; the dropped token then reports it.
        let _ = self.run(run, || token);
    }

    /// A task that holds `f`, or a box of it if it does not fit; each as the form of closure that
    /// the other arguments make of it.
    #[inline]
    fn hold_or_box<F, C: Closure + 'static, B: Closure + 'static>(
        f: F,
        plain: impl FnOnce(F) -> C,
        boxed: impl FnOnce(Box<F>) -> B,
    ) -> Self {
        if fits::<C>() { Task::hold(plain(f)) } else { Task::hold(boxed(Box::new(f))) }
    }

    #[inline]
    fn hold<C: Closure + 'static>(f: C) -> Self {
        assert!(fits::<C>()); // known when this is compiled
        let mut task = Task { vtable: Some(&C::VTABLE), data: Data::uninit() };
        // SAFETY: it fits.
        unsafe { task.data.as_mut_ptr().cast::<C>().write(f) };
        task
    }

    /// Runs the function; a panic becomes an error. `token` is called for asynchronous functions
    /// only. Returns `None` if the operation ends by its token.
    #[inline]
    pub(in crate::engine) fn run(
        mut self,
        run: &RunContext,
        token: impl FnOnce() -> OnComplete,
    ) -> Option<Result<()>> {
        self.run_in_place(run, token)
    }

    /// As [`Task::run`], in place. The memory is not touched once the function has begun.
    ///
    /// # Safety
    /// `task` is a valid task that is accessed by no other thread and not used again.
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

    /// As [`Task::run`]; leaves [`Task::nothing`].
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
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(vtable) = self.vtable {
            // SAFETY: `data` holds the closure of this vtable, not yet moved out.
            unsafe { (vtable.drop)(self.data.as_mut_ptr().cast()) }
        }
    }
}

/// Runs the closure in `data`; a panic becomes an error. Returns `None` if it ends by its token.
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
        CallFn::Sync(call) => Some(guarded(|| unsafe { call(data, run) })),
        CallFn::Async(call) => {
            let token = token();
            // SAFETY: as above.
            run_to_token(|| unsafe { call(data, run, token) });
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn counted() -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let n = Arc::new(AtomicUsize::new(0));
        (n.clone(), n)
    }

    fn no_token() -> OnComplete {
        OnComplete::done()
    }

    #[test]
    fn runs_small_and_large_closures_once_and_drops_them() {
        let (n, seen) = counted();
        let small = Task::sync(move |_| {
            n.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(small.run(&RunContext::default(), no_token).unwrap().is_ok());
        assert_eq!((seen.load(Ordering::Relaxed), Arc::strong_count(&seen)), (1, 1));

        let (n, seen) = counted();
        let large = [7usize; 20];
        let task = Task::sync(move |_| {
            n.fetch_add(large.iter().sum(), Ordering::Relaxed);
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
}
