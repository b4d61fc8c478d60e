//! The ready tasks of an engine, and the order in which workers take them.
//!
//! Pushers (one at a time: they hold the push lock) feed a ring. Everything else is rare or arrives
//! in batches and goes to locked lists whose length can be read without the lock: the local queue
//! of each worker, for tasks that its completions made ready; the injector, for tasks made ready by
//! other threads; and two heaps, for tasks of high and of low priority.
//!
//! A worker that polls right behind a fast pusher would take from it, at every push, the cache
//! lines of the ring's tail and of the last tasks. So a consumer takes tasks from the ring in
//! batches: once it has taken all it saw, it takes the next [`BATCH`] or more at once, or fewer
//! after it has [backed off](Consumer::backed_off).

use crate::engine::data::cache_padded::CachePadded;
use crate::engine::priority::{Priority, PriorityHeap};
use crate::engine::sync::{AtomicU32, AtomicU64, AtomicUsize, Guard, Lock};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

const RING: u64 = if cfg!(loom) { 4 } else { 1 << 15 };

/// A consumer prefetches the task this many places ahead: its lines arrive from another core in the
/// time of several tasks (`graph1000`: 127 ns a task; without prefetching 333).
const AHEAD: u64 = 6;

/// A consumer that has not backed off leaves fewer tasks than this in the ring (`indep` with one
/// worker: 89 ns a task; one by one 190 to 480).
const BATCH: u64 = if cfg!(loom) { 2 } else { 32 };

/// One worker's view of the queues.
pub struct Consumer {
    worker_id: usize,
    /// Counts its polls, for fairness between the queues.
    turn: u32,
    /// The ring's tail when last read: while it is ahead, the line that pushers write is not
    /// touched.
    seen_tail: u64,
    /// The number of tasks that it takes from the ring at least.
    least: u64,
}

impl Consumer {
    pub fn new(worker_id: usize) -> Self {
        Consumer { worker_id, turn: 0, seen_tail: 0, least: 1 }
    }

    /// The worker has left the pushers alone for a moment: it takes what there is.
    pub fn backed_off(&mut self) {
        self.least = 1;
    }
}

/// A bounded queue: one producer at a time, any number of consumers.
pub struct Ring {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    /// `head` when the producer last read it.
    seen_head: CachePadded<AtomicU64>,
    items: Box<[AtomicU32]>,
}

impl Ring {
    fn new() -> Self {
        Ring {
            head: CachePadded::default(),
            tail: CachePadded::default(),
            seen_head: CachePadded::default(),
            items: (0..RING).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Under the push lock. False when full.
    #[inline]
    fn push(&self, task: u32) -> bool {
        let tail = self.tail.0.load(Ordering::Relaxed);
        if tail - self.seen_head.0.load(Ordering::Relaxed) >= RING {
            // Acquire: consumers have read their items before the stores below overwrite them.
            let head = self.head.0.load(Ordering::Acquire);
            self.seen_head.0.store(head, Ordering::Relaxed);
            if tail - head >= RING {
                return false;
            }
        }
        self.items[(tail & (RING - 1)) as usize].store(task, Ordering::Relaxed);
        self.tail.0.store(tail + 1, Ordering::Release);
        true
    }

    /// Calls `coming` with a task to be popped soon, for prefetching.
    #[inline]
    fn pop(&self, by: &mut Consumer, coming: impl Fn(u32)) -> Option<u32> {
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            if head >= by.seen_tail {
                let tail = self.tail.0.load(Ordering::Acquire);
                if tail < head + by.least {
                    return None;
                }
                by.seen_tail = tail;
            }
            // May be overwritten only after the head has moved on; then the exchange fails.
            let task = self.items[(head & (RING - 1)) as usize].load(Ordering::Relaxed);
            let r = self.head.0.compare_exchange_weak(
                head,
                head + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match r {
                Ok(_) => {
                    by.least = BATCH;
                    let ahead = head + AHEAD;
                    if ahead < by.seen_tail {
                        coming(self.items[(ahead & (RING - 1)) as usize].load(Ordering::Relaxed));
                    }
                    return Some(task);
                }
                Err(now) => head = now,
            }
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.head.0.load(Ordering::Relaxed) == self.tail.0.load(Ordering::Acquire)
    }
}

/// A locked list whose length can be read without the lock.
#[derive(Default)]
struct List<T> {
    len: AtomicUsize,
    items: Lock<T>,
}

impl<T: Items> List<T> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Changes the items with `f` and updates their number.
    #[inline]
    fn change<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut items = self.items.lock();
        let result = f(&mut items);
        self.len.store(items.len(), Ordering::Release);
        result
    }

    #[inline]
    fn pop(&self) -> Option<u32> {
        if self.is_empty() { None } else { self.change(T::take) }
    }
}

/// The items of a [`List`].
trait Items {
    fn len(&self) -> usize;
    /// Takes the next item.
    fn take(&mut self) -> Option<u32>;
}

impl Items for VecDeque<u32> {
    fn len(&self) -> usize {
        self.len()
    }

    fn take(&mut self) -> Option<u32> {
        self.pop_front()
    }
}

impl Items for PriorityHeap<u32> {
    fn len(&self) -> usize {
        self.len()
    }

    fn take(&mut self) -> Option<u32> {
        self.pop()
    }
}

impl List<VecDeque<u32>> {
    fn extend(&self, tasks: &[u32]) {
        self.change(|items| items.extend(tasks));
    }
}

impl List<PriorityHeap<u32>> {
    fn push(&self, priority: Priority, task: u32) {
        self.change(|items| items.push(priority, task));
    }
}

/// All ready tasks of an engine.
pub struct Queues {
    ring: Ring,
    high: List<PriorityHeap<u32>>,
    low: List<PriorityHeap<u32>>,
    /// Tasks made ready off the workers, and those that found the ring full.
    injector: List<VecDeque<u32>>,
    /// One per worker, for tasks that its completions made ready; others steal from it.
    locals: Box<[CachePadded<List<VecDeque<u32>>>]>,
    /// The number of local queues ever in use.
    used: AtomicUsize,
}

/// All locks of the queues, held over a fork.
#[expect(dead_code, reason = "held, not read")]
pub struct RunQueueLocks<'a>([Guard<'a, PriorityHeap<u32>>; 2], Vec<Guard<'a, VecDeque<u32>>>);

impl Queues {
    pub fn new(workers: usize) -> Self {
        Queues {
            ring: Ring::new(),
            high: List::default(),
            low: List::default(),
            injector: List::default(),
            locals: (0..workers).map(|_| CachePadded::default()).collect(),
            used: AtomicUsize::new(0),
        }
    }

    /// Worker `worker_id` starts.
    pub fn register(&self, worker_id: usize) {
        self.used.fetch_max(worker_id + 1, Ordering::AcqRel);
    }

    #[inline]
    fn used_locals(&self) -> &[CachePadded<List<VecDeque<u32>>>] {
        &self.locals[..self.used.load(Ordering::Acquire)]
    }

    pub fn lock_for_fork(&self) -> RunQueueLocks<'_> {
        let locals = self.locals.iter().map(|list| list.0.items.lock());
        RunQueueLocks(
            [self.high.items.lock(), self.low.items.lock()],
            std::iter::once(self.injector.items.lock()).chain(locals).collect(),
        )
    }

    /// Discards all tasks.
    pub fn clear(&self) {
        while self.ring.pop(&mut Consumer::new(0), |_| ()).is_some() {}
        for heap in [&self.high, &self.low] {
            while heap.pop().is_some() {}
        }
        while self.injector.pop().is_some() {}
        for list in self.used_locals() {
            while list.0.pop().is_some() {}
        }
    }

    /// Adds an ordinary task that is ready at its push. Under the push lock.
    #[inline]
    pub fn push(&self, task: u32) {
        if !self.ring.push(task) {
            self.injector.extend(&[task]);
        }
    }

    /// Adds a task of high or low priority.
    pub fn push_prioritized(&self, priority: Priority, task: u32) {
        let list = if priority > Priority::Normal { &self.high } else { &self.low };
        list.push(priority, task);
    }

    #[inline]
    pub fn has_high_priority(&self) -> bool {
        !self.high.is_empty()
    }

    /// Adds ordinary tasks made ready by a completion on this worker, or off the workers.
    pub fn push_batch(&self, worker_id: Option<usize>, tasks: &[u32]) {
        match worker_id.and_then(|i| self.locals.get(i)) {
            Some(list) => list.0.extend(tasks),
            None => self.injector.extend(tasks),
        }
    }

    /// The next task for a worker; calls `coming` with a task to be popped soon.
    #[inline]
    pub fn pop(&self, by: &mut Consumer, coming: impl Fn(u32)) -> Option<u32> {
        by.turn = by.turn.wrapping_add(1);
        if let Some(task) = self.high.pop() {
            return Some(task);
        }
        if by.turn.is_multiple_of(32)
            && let Some(task) = self.pop_in_turn(by, &coming)
        {
            return Some(task);
        }
        let local = self.locals.get(by.worker_id).and_then(|list| list.0.pop());
        local.or_else(|| self.ring.pop(by, &coming)).or_else(|| self.pop_others(by.worker_id))
    }

    /// Takes from the queues that might otherwise starve, in rotation.
    #[cold]
    #[inline(never)]
    fn pop_in_turn(&self, by: &mut Consumer, coming: impl Fn(u32)) -> Option<u32> {
        match by.turn / 32 % 4 {
            0 | 2 => {
                by.backed_off(); // with few tasks, the ring must not starve either
                self.ring.pop(by, coming)
            }
            1 => self.injector.pop().or_else(|| self.steal(by.worker_id)),
            _ => self.steal(by.worker_id).or_else(|| self.injector.pop()),
        }
    }

    /// Tasks that other threads made ready; last of all those of low priority.
    #[inline]
    fn pop_others(&self, worker_id: usize) -> Option<u32> {
        let ordinary = self.injector.pop().or_else(|| self.steal(worker_id));
        // Ordinary tasks may be left in the ring, though too few to be taken yet.
        ordinary.or_else(|| if self.ring.is_empty() { self.low.pop() } else { None })
    }

    /// Takes a task from another worker's local queue.
    #[inline]
    fn steal(&self, worker_id: usize) -> Option<u32> {
        let locals = self.used_locals();
        let n = locals.len();
        (1..n).find_map(|k| locals[(worker_id + k) % n].0.pop())
    }

    /// Returns true if tasks are queued outside the ring, except those of low priority.
    pub fn has_ready(&self) -> bool {
        self.has_high_priority()
            || !self.injector.is_empty()
            || self.used_locals().iter().any(|list| !list.0.is_empty())
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
            && self.high.is_empty()
            && self.injector.is_empty()
            && self.used_locals().iter().all(|list| list.0.is_empty())
            && self.low.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn take(queues: &Queues, by: &mut Consumer, n: usize) -> Vec<u32> {
        (0..n).map_while(|_| queues.pop(by, |_| ())).collect()
    }

    #[test]
    fn low_priority_runs_last() {
        let (queues, mut by) = (Queues::new(1), Consumer::new(0));
        queues.push_prioritized(Priority::Low(-1), 9);
        queues.push_batch(None, &[4]);
        (1..4).for_each(|task| queues.push(task));
        queues.push_prioritized(Priority::High(1), 0);
        assert_eq!(take(&queues, &mut by, 9), [0, 1, 2, 3, 4, 9]);
        assert!(queues.is_empty());
    }

    #[test]
    fn tasks_leave_the_ring_in_batches() {
        let (queues, mut by) = (Queues::new(1), Consumer::new(0));
        queues.push(1);
        assert_eq!(take(&queues, &mut by, 9), [1]);
        queues.push_prioritized(Priority::Low(-1), 9);
        (2..5).for_each(|task| queues.push(task));
        assert!(take(&queues, &mut by, 9).is_empty(), "too few, and low priority runs last");
        assert!(!queues.is_empty());
        by.backed_off();
        assert_eq!(take(&queues, &mut by, 9), [2, 3, 4, 9]);
        assert!(queues.is_empty());
        (0..BATCH as u32 - 1).for_each(|task| queues.push(task));
        assert!(take(&queues, &mut by, 9).is_empty());
        queues.push(100);
        assert_eq!(take(&queues, &mut by, 99).len(), BATCH as usize);
    }

    #[test]
    fn no_queue_starves() {
        let (queues, mut by) = (Queues::new(2), Consumer::new(0));
        (0..2).for_each(|id| queues.register(id));
        queues.push(1);
        assert_eq!(take(&queues, &mut by, 1), [1]);
        // While its own queue never runs dry,
        queues.push_batch(Some(0), &(1000..2000).collect::<Vec<_>>());
        queues.push(7);
        queues.push_batch(None, &[8]);
        let taken = take(&queues, &mut by, 128);
        assert!(taken.contains(&7) && taken.contains(&8));
        // and while the ring does not.
        take(&queues, &mut by, 1000);
        (1000..2000).for_each(|task| queues.push(task));
        queues.push_batch(None, &[8; 100]);
        queues.push_batch(Some(1), &[9]);
        let taken = take(&queues, &mut by, 192);
        assert!(taken.contains(&8) && taken.contains(&9));
    }
}
