//! How a task ends: errors and versions of its variables, successors, slot, waiters.

use crate::engine::data::inline_slot::INLINE_SLOT;
use crate::engine::data::parking::publish;
use crate::engine::data::slot::{Body, TaskRef, flag};
use crate::engine::error_state::{self, Inherited};
use crate::engine::hook::Event;
use crate::engine::messages::with_place;
use crate::engine::push::RunContext;
use crate::engine::slow_path;
use crate::engine::threaded::core::Core;
use crate::engine::threaded::current::StackFrame;
use crate::engine::token::{Completer, OnComplete};
use crate::error::{Error, Result};
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Slots of tasks that one completion has made ready.
type ReadyTasks = smallvec::SmallVec<[u32; 8]>;

impl Completer for Core {
    /// An asynchronous task ends by its token.
    fn complete(&self, task: TaskRef, result: Result<()>) {
        if self.recovered.load(Ordering::Acquire) != self.epoch.load(Ordering::Relaxed) {
            drop(self.lock()); // recovers in a forked child that has not used the engine yet
        }
        if self.slab.is_done(task) {
            return; // the token was created before a fork, in the parent process
        }
        let failure = result.err().map(|e| self.record_failure(task.slot(), e, None));
        self.finish_off_worker(task.slot(), failure);
    }

    fn run_inside(&self, task: TaskRef, f: &mut dyn FnMut()) {
        StackFrame::new(self.id(), task, false).enter(f);
    }

    fn is_shut_down(&self) -> bool {
        self.slow_path.load(Ordering::Relaxed) & slow_path::SHUT_DOWN != 0
    }
}

impl Core {
    /// The slow path before a task: returns the error that it leaves if an error or the shutdown
    /// skips it.
    #[cold]
    pub fn skip_reason(&self, task: TaskRef, body: &Body, flags: u32) -> Option<Inherited> {
        let mut reason = None;
        if body.head.flags & flag::NO_SKIP == 0 {
            let (reads, writes) = body.vars();
            let sources = reads.iter().chain(&writes[body.head.overwrites as usize..]).copied();
            reason = self.errors.inherited(sources);
        }
        if flags & slow_path::SHUT_DOWN != 0 && body.head.flags & flag::TO_THE_END == 0 {
            reason = reason.or_else(|| Some(error_state::shut_down()));
        }
        if reason.is_none() && flags & slow_path::HOOK != 0 {
            self.notify_hook(task, Event::Started);
        }
        reason
    }

    /// Names the error of a task, and keeps it for the waits.
    #[cold]
    pub fn record_failure(
        &self,
        slot: u32,
        error: Error,
        call_site: Option<Arc<str>>,
    ) -> Inherited {
        // SAFETY: the task is not complete, so its body is valid.
        let body = unsafe { &*self.slab.get(slot).body() };
        let call_site = call_site.or_else(|| body.extra.as_ref().and_then(|e| e.call_site.clone()));
        self.errors.failed(with_place(error, body.name(), call_site.as_deref()))
    }

    /// Updates errors and versions of the variables that a task has written. Returns the variable
    /// that it deletes.
    #[inline(always)]
    pub fn record_completion(&self, slot: u32, failure: Option<Inherited>) -> Option<u32> {
        let s = self.slab.get(slot);
        // SAFETY: the task is not complete yet, so its body is valid.
        let body = unsafe { &*s.body() };
        let (_, writes) = body.vars();
        if failure.is_some() || self.errors.any() {
            self.apply_errors(body, writes, &failure);
        }
        for &v in writes {
            self.versions.advance(v);
        }
        if self.slow_path.load(Ordering::Relaxed) & slow_path::HOOK != 0 {
            self.notify_hook(TaskRef::new(slot, s.generation()), Event::Finished);
        }
        match body.head.flags & flag::DELETE {
            0 => None,
            _ => writes.first().copied(),
        }
    }

    #[cold]
    fn apply_errors(&self, body: &Body, writes: &[u32], failure: &Option<Inherited>) {
        match failure {
            Some(inherited) => drop(self.errors.spread(inherited, writes.iter().copied())),
            None if body.head.overwrites > 0 => {
                self.errors.heal(writes[..body.head.overwrites as usize].iter().copied());
            }
            None => {}
        }
    }

    /// Last step of a completion: frees a deleted variable and wakes waiters.
    #[inline(always)]
    pub fn notify_waiters(&self, deleted: Option<u32>) {
        if let Some(v) = deleted {
            self.free_variable(v);
        }
        // Pairs with `CompletionWaiters::add`: we count, then check for waiters; a waiter
        // registers, then checks the count.
        publish();
        if self.watch.has_waiters() {
            self.watch.notify(|| self.completed());
        }
    }

    #[cold]
    fn free_variable(&self, v: u32) {
        let carried = self.errors.forget(v);
        self.lock().vars.free(v);
        drop(carried); // outside the lock: dropping an error may re-enter the engine
    }

    /// Completes a task off the workers.
    #[inline]
    pub fn finish_off_worker(&self, slot: u32, failure: Option<Inherited>) {
        let s = self.slab.get(slot);
        let deleted = self.record_completion(slot, failure);
        s.end();
        let n = match slot {
            INLINE_SLOT => self.close_inline(),
            _ => self.close_off_worker(slot),
        };
        if n != 0 {
            self.release_off_worker(slot, n);
        }
        self.notify_waiters(deleted);
    }

    /// Counts and closes the task in the inline slot, and returns the number of its successors. If
    /// there are none, nothing reads the slot any more, and it is free.
    #[inline(always)]
    fn close_inline(&self) -> u32 {
        self.inline_slot.0.count();
        let n = self.slab.get(INLINE_SLOT).close();
        if n == 0 {
            self.inline_slot.0.release();
        }
        n
    }

    /// As [`Core::close_inline`], for the task in any other slot.
    fn close_off_worker(&self, slot: u32) -> u32 {
        let mut returned = self.returned.0.lock();
        // Written under this lock only, so a load and a store suffice.
        let completed = self.completed_off_worker.0.load(Ordering::Relaxed);
        self.completed_off_worker.0.store(completed + 1, Ordering::Release);
        let n = self.slab.get(slot).close();
        if n == 0 {
            returned.push(slot);
        }
        n
    }

    /// Releases the `n` successors of a task that was completed off the workers, and returns its
    /// slot.
    #[cold]
    fn release_off_worker(&self, slot: u32, n: u32) {
        let (mut ready, mut cheap) = (ReadyTasks::new(), ReadyTasks::new());
        let mut has_prioritized = false;
        self.slab.release(slot, n, |t| {
            // SAFETY: the task is ready, so its body is written.
            let flags = unsafe { (*self.slab.get(t).body()).head.flags };
            if flags & flag::CHEAP != 0 {
                has_prioritized |= flags & flag::PRIORITIZED != 0;
                cheap.push(t);
            } else if flags & (flag::SIGNAL | flag::PRIORITIZED) != 0 {
                self.enqueue_prioritized_or_signal(t, flags);
            } else {
                ready.push(t);
            }
        });
        {
            let mut returned = self.returned.0.lock();
            self.slab.retire(slot, n, |s| match s {
                INLINE_SLOT => self.inline_slot.0.release(),
                _ => returned.push(s),
            });
        }
        if !ready.is_empty() {
            self.queues.push_batch(None, &ready);
            self.wake_for_work();
        }
        if has_prioritized {
            // SAFETY: these tasks are ready and run below, so their bodies are valid.
            cheap.sort_by_key(|&t| Reverse(unsafe { &*self.slab.get(t).body() }.priority()));
        }
        if !cheap.is_empty() {
            self.run_cheap(&cheap);
        }
    }

    /// Handles a task that became ready and does not go to an ordinary queue.
    #[cold]
    pub fn enqueue_prioritized_or_signal(&self, task: u32, flags: u8) {
        if flags & flag::SIGNAL != 0 {
            self.run_signal(task);
        } else {
            self.enqueue_prioritized(task);
            self.wake_for_work();
        }
    }

    /// Runs a signal that has become ready.
    fn run_signal(&self, slot: u32) {
        let s = self.slab.get(slot);
        // SAFETY: the signal is ready and run once.
        let function = unsafe { (*s.body()).task.assume_init_read() };
        let _ = function.run(&RunContext::default(), OnComplete::done);
        s.close();
        self.returned.0.lock().push(slot);
    }
}
