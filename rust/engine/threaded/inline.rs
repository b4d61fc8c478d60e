//! Tasks that run on the thread that pushed them or made them ready, instead of a worker.

use crate::engine::data::slot::TaskRef;
use crate::engine::push::FindCallSite;
use crate::engine::task::Task;
use crate::engine::threaded::core::Core;
use crate::engine::threaded::current::StackFrame;
use crate::engine::token::OnComplete;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Cheap tasks that wait for this thread: engine, epoch and slot of each; popped from the end.
type CheapTasks = Vec<(Arc<Core>, u32, u32)>;

// Present while this thread runs such tasks.
#[cfg(not(loom))]
thread_local! {
    static CHEAP: RefCell<Option<CheapTasks>> = const { RefCell::new(None) };
}

#[cfg(loom)]
loom::thread_local! {
    static CHEAP: RefCell<Option<CheapTasks>> = RefCell::new(None);
}

/// The next cheap task of this thread. Removes the list after the last one.
fn next_cheap() -> Option<(Arc<Core>, u32, u32)> {
    let next = |list: &RefCell<Option<CheapTasks>>| {
        let mut list = list.borrow_mut();
        let next = list.as_mut().and_then(Vec::pop);
        if next.is_none() {
            *list = None;
        }
        next
    };
    CHEAP.try_with(next).ok().flatten()
}

impl Core {
    /// Runs cheap tasks on the thread that made them ready, because waking a worker costs more.
    /// They run one after the other, not nested: a chain of them would overflow the stack.
    #[cold]
    pub fn run_cheap(&self, tasks: &[u32]) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let is_nested = CHEAP.try_with(|list| {
            let mut list = list.borrow_mut();
            match &mut *list {
                Some(list) => {
                    list.extend(tasks.iter().rev().map(|&t| (self.handle(), epoch, t)));
                    true
                }
                None => {
                    *list = Some(Vec::new());
                    false
                }
            }
        });
        match is_nested {
            Ok(true) => {} // a caller further down this stack runs them
            Ok(false) => {
                // In a forked child the remaining tasks are the parent's.
                let own = tasks.iter().filter(|_| self.epoch.load(Ordering::Relaxed) == epoch);
                own.for_each(|&task| self.run_cheap_one(task));
                while let Some((core, epoch, task)) = next_cheap() {
                    if core.epoch.load(Ordering::Relaxed) == epoch {
                        core.run_cheap_one(task);
                    }
                }
            }
            // The thread is exiting.
            Err(_) => {
                self.queues.push_batch(None, tasks);
                self.wake_for_work();
            }
        }
    }

    fn run_cheap_one(&self, slot: u32) {
        let s = self.slab.get(slot);
        // SAFETY: the task is ready and run only here.
        let mut function = unsafe { (*s.body()).task.assume_init_read() };
        self.run_inline(TaskRef::new(slot, s.generation()), &mut function, None);
    }

    /// Runs a ready task on this thread, and leaves [`Task::nothing`].
    #[inline]
    pub fn run_inline(
        &self,
        task: TaskRef,
        function: &mut Task,
        call_site: Option<FindCallSite<'_>>,
    ) {
        let frame = StackFrame::new(self.id(), task, false);
        frame.enter(|| self.execute_inline(task, function, call_site));
    }

    #[inline]
    fn execute_inline(
        &self,
        task: TaskRef,
        function: &mut Task,
        call_site: Option<FindCallSite<'_>>,
    ) {
        let slot = task.slot();
        let epoch = self.epoch.load(Ordering::Relaxed);
        // SAFETY: the task is ready, so its body is written and read-only until it is completed.
        let body = unsafe { &*self.slab.get(slot).body() };
        let flags = self.slow_path.load(Ordering::Relaxed);
        if (flags != 0 || self.errors.any())
            && let Some(inherited) = self.skip_reason(task, body, flags)
        {
            drop(std::mem::replace(function, Task::nothing()));
            return self.finish_off_worker(slot, Some(inherited));
        }
        self.slab.get(slot).begin();
        let run = body.run_context();
        let token = || OnComplete::of_task(self.handle(), task);
        let result = function.run_in_place(&run, token);
        if self.epoch.load(Ordering::Relaxed) != epoch {
            return; // the function forked, and the task is not the child's
        }
        match result {
            Some(Ok(())) => self.finish_off_worker(slot, None),
            Some(Err(error)) => {
                let line = call_site.and_then(|f| f());
                let failure = self.record_failure(slot, error, line);
                self.finish_off_worker(slot, Some(failure));
            }
            None => {}
        }
    }
}
