//! Where ready tasks wait for a worker.
//!
//! Pushers (one at a time: they hold the push lock) feed a ring. Everything else is rare or comes in
//! batches and goes to locked lists with a length that can be read without the lock: what completions made
//! ready beyond the task the worker runs next, and tasks with a rank.

use crate::engine::priority::{ByRank, Rank};
use crate::engine::sync::{AtomicU32, AtomicU64, AtomicUsize, Guard, Lock};
use crate::engine::threaded::backoff::ENOUGH;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

const RING: u64 = if cfg!(loom) { 4 } else { 1 << 15 };

/// How many tasks ahead a consumer asks for the lines of a task: they come from another core in the time of
/// several tasks.
const AHEAD: u64 = 6;

/// A value on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub struct Apart<T>(pub T);

/// One worker's view of the queues.
pub struct Consumer {
    lane: usize,
    /// Counts its looks, so that no queue waits for ever.
    turn: u32,
    /// Its last look at the ring's end: while that is ahead, the line that pushers write is left alone.
    seen_tail: u64,
    /// With fewer tasks than so many it takes none from the ring, until it has [rested](Consumer::rested).
    least: u64,
}

impl Consumer {
    pub fn new(lane: usize) -> Self {
        Consumer { lane, turn: 0, seen_tail: 0, least: 1 }
    }

    /// It has left the pushers alone for a moment, and takes what there is.
    pub fn rested(&mut self) {
        self.least = 1;
    }
}

/// One producer at a time, any number of consumers.
pub struct Ring {
    head: Apart<AtomicU64>,
    tail: Apart<AtomicU64>,
    /// The producer's last look at `head`.
    seen_head: Apart<AtomicU64>,
    items: Box<[AtomicU32]>,
}

impl Ring {
    fn new() -> Self {
        Ring {
            head: Apart::default(),
            tail: Apart::default(),
            seen_head: Apart::default(),
            items: (0..RING).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Under the push lock. False when full.
    #[inline]
    fn push(&self, task: u32) -> bool {
        let tail = self.tail.0.load(Ordering::Relaxed);
        if tail - self.seen_head.0.load(Ordering::Relaxed) >= RING {
            // Whoever took an item has read it before what is stored here next.
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

    /// `coming` is called with a task soon after this one, if it is there.
    #[inline]
    fn pop(&self, by: &mut Consumer, coming: impl Fn(u32)) -> Option<u32> {
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            if head >= by.seen_tail {
                let tail = self.tail.0.load(Ordering::Acquire);
                if head + by.least > tail {
                    return None;
                }
                by.seen_tail = tail;
            }
            // Overwritten only after the head has moved on; then the exchange below fails.
            let task = self.items[(head & (RING - 1)) as usize].load(Ordering::Relaxed);
            let r = self.head.0.compare_exchange_weak(
                head,
                head + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match r {
                Ok(_) => {
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
pub struct List<T> {
    len: AtomicUsize,
    items: Lock<T>,
}

impl<T> List<T> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }
}

impl List<VecDeque<u32>> {
    pub fn extend(&self, tasks: &[u32]) {
        let mut items = self.items.lock();
        items.extend(tasks);
        self.len.store(items.len(), Ordering::Release);
    }

    #[inline]
    fn pop(&self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let mut items = self.items.lock();
        let task = items.pop_front();
        self.len.store(items.len(), Ordering::Release);
        task
    }
}

impl List<ByRank<u32>> {
    fn push(&self, rank: Rank, task: u32) {
        let mut items = self.items.lock();
        items.push(rank, task);
        self.len.store(items.len(), Ordering::Release);
    }

    #[inline]
    fn pop(&self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let mut items = self.items.lock();
        let task = items.pop();
        self.len.store(items.len(), Ordering::Release);
        task
    }
}

/// All ready tasks of an engine.
pub struct Queues {
    ring: Ring,
    urgent: List<ByRank<u32>>,
    later: List<ByRank<u32>>,
    /// From completions that happen on no worker, and from a full ring.
    foreign: List<VecDeque<u32>>,
    /// One for each worker, for what its completions made ready; any may take from any.
    surplus: Box<[Apart<List<VecDeque<u32>>>]>,
    /// How many of these were ever in use.
    used: AtomicUsize,
}

/// All locks of the queues, held over a fork.
#[expect(dead_code, reason = "held, not read")]
pub struct Held<'a>([Guard<'a, ByRank<u32>>; 2], Vec<Guard<'a, VecDeque<u32>>>);

impl Queues {
    pub fn new(workers: usize) -> Self {
        Queues {
            ring: Ring::new(),
            urgent: List::default(),
            later: List::default(),
            foreign: List::default(),
            surplus: (0..workers).map(|_| Apart::default()).collect(),
            used: AtomicUsize::new(0),
        }
    }

    /// Worker `me` starts.
    pub fn enlist(&self, me: usize) {
        self.used.fetch_max(me + 1, Ordering::AcqRel);
    }

    #[inline]
    fn lists(&self) -> &[Apart<List<VecDeque<u32>>>] {
        &self.surplus[..self.used.load(Ordering::Acquire)]
    }

    pub fn hold(&self) -> Held<'_> {
        let lists = self.surplus.iter().map(|list| list.0.items.lock());
        Held(
            [self.urgent.items.lock(), self.later.items.lock()],
            std::iter::once(self.foreign.items.lock()).chain(lists).collect(),
        )
    }

    /// Forgets all tasks.
    pub fn clear(&self) {
        while self.ring.pop(&mut Consumer::new(0), |_| ()).is_some() {}
        for heap in [&self.urgent, &self.later] {
            while heap.pop().is_some() {}
        }
        while self.foreign.pop().is_some() {}
        for list in self.lists() {
            while list.0.pop().is_some() {}
        }
    }

    /// An ordinary task that is ready at its push; under the push lock.
    #[inline]
    pub fn pushed(&self, task: u32) {
        if !self.ring.push(task) {
            self.foreign.extend(&[task]);
        }
    }

    /// A task that is ready and has a rank.
    pub fn ranked(&self, rank: Rank, task: u32) {
        let list = if rank > Rank::Ordinary { &self.urgent } else { &self.later };
        list.push(rank, task);
    }

    #[inline]
    pub fn has_urgent(&self) -> bool {
        !self.urgent.is_empty()
    }

    /// Ordinary tasks made ready by a completion on worker `me`, or on no worker.
    pub fn surplus(&self, me: Option<usize>, tasks: &[u32]) {
        match me.and_then(|i| self.surplus.get(i)) {
            Some(list) => list.0.extend(tasks),
            None => self.foreign.extend(tasks),
        }
    }

    /// The next task for a worker. None does not say that the queues are empty: it may have to rest first.
    #[inline]
    pub fn pop(&self, by: &mut Consumer, coming: impl Fn(u32)) -> Option<u32> {
        by.turn = by.turn.wrapping_add(1);
        if let Some(task) = self.urgent.pop() {
            return Some(task);
        }
        if by.turn.is_multiple_of(32)
            && let Some(task) = self.pop_in_turn(by, &coming)
        {
            return Some(task);
        }
        let own = self.surplus.get(by.lane).and_then(|list| list.0.pop());
        own.or_else(|| self.pop_ring(by, &coming)).or_else(|| self.pop_others(by.lane))
    }

    #[inline(always)]
    fn pop_ring(&self, by: &mut Consumer, coming: impl Fn(u32)) -> Option<u32> {
        let task = self.ring.pop(by, coming)?;
        by.least = ENOUGH;
        Some(task)
    }

    /// A task that might wait for ever: at one time of the ring, however few there are, at the others of the lists.
    #[cold]
    #[inline(never)]
    fn pop_in_turn(&self, by: &mut Consumer, coming: impl Fn(u32)) -> Option<u32> {
        match by.turn / 32 % 4 {
            0 | 2 => {
                by.rested();
                self.pop_ring(by, coming)
            }
            1 => self.foreign.pop().or_else(|| self.pop_neighbours(by.lane)),
            _ => self.pop_neighbours(by.lane).or_else(|| self.foreign.pop()),
        }
    }

    /// What completions elsewhere have made ready; last of all what goes after ordinary tasks.
    #[inline]
    fn pop_others(&self, me: usize) -> Option<u32> {
        let ordinary = self.foreign.pop().or_else(|| self.pop_neighbours(me));
        // (Ordinary tasks may be left in the ring, though too few to be taken yet.)
        ordinary.or_else(|| if self.ring.is_empty() { self.later.pop() } else { None })
    }

    #[inline]
    fn pop_neighbours(&self, me: usize) -> Option<u32> {
        let lists = self.lists();
        let n = lists.len();
        (1..n).find_map(|k| lists[(me + k) % n].0.pop())
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty() && !self.has_made_ready() && self.later.is_empty()
    }

    /// Are there urgent tasks, or such as completions have made ready?
    #[inline]
    pub fn has_made_ready(&self) -> bool {
        !self.urgent.is_empty()
            || !self.foreign.is_empty()
            || self.lists().iter().any(|list| !list.0.is_empty())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn take(queues: &Queues, by: &mut Consumer, n: usize) -> Vec<u32> {
        (0..n).map_while(|_| queues.pop(by, |_| ())).collect()
    }

    #[test]
    fn few_tasks_wait_for_a_rest_and_later_ones_for_them() {
        let (queues, mut by) = (Queues::new(1), Consumer::new(0));
        queues.pushed(1);
        assert_eq!(take(&queues, &mut by, 1), [1]);
        (2..5).for_each(|task| queues.pushed(task));
        queues.ranked(Rank::Later(-1), 9);
        assert_eq!(queues.pop(&mut by, |_| ()), None);
        assert!(!queues.is_empty());
        by.rested();
        assert_eq!(take(&queues, &mut by, 9), [2, 3, 4, 9]);
        assert!(queues.is_empty());
        (0..ENOUGH as u32 - 1).for_each(|task| queues.pushed(task));
        assert_eq!(queues.pop(&mut by, |_| ()), None);
        queues.pushed(100);
        assert_eq!(take(&queues, &mut by, 99).len(), ENOUGH as usize);
    }

    #[test]
    fn no_queue_waits_for_ever() {
        let (queues, mut by) = (Queues::new(2), Consumer::new(0));
        (0..2).for_each(|lane| queues.enlist(lane));
        queues.pushed(1);
        assert_eq!(take(&queues, &mut by, 1), [1]);
        // Beside a list of its own that does not run dry,
        queues.surplus(Some(0), &(1000..2000).collect::<Vec<_>>());
        queues.pushed(7);
        queues.surplus(None, &[8]);
        let taken = take(&queues, &mut by, 128);
        assert!(taken.contains(&7) && taken.contains(&8));
        // and beside a ring that does not.
        take(&queues, &mut by, 1000);
        (1000..2000).for_each(|task| queues.pushed(task));
        queues.surplus(None, &[8; 100]);
        queues.surplus(Some(1), &[9]);
        let taken = take(&queues, &mut by, 192);
        assert!(taken.contains(&8) && taken.contains(&9));
    }
}
