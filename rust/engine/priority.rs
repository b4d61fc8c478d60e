//! Which of those that are ready goes first.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// Where an operation comes among those that are ready: greater ranks go first, and equals as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// After all ordinary ones: of a priority below zero.
    Later(i32),
    #[default]
    Ordinary,
    /// Before all ordinary ones: of a priority above zero, or of a property that goes first.
    Urgent(i32),
}

/// Items in the order of their ranks.
pub(in crate::engine) struct ByRank<T> {
    heap: BinaryHeap<Entry<T>>,
    /// Items that ever came.
    came: u64,
}

struct Entry<T> {
    rank: Rank,
    came: Reverse<u64>,
    item: T,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.rank, self.came).cmp(&(other.rank, other.came))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> ByRank<T> {
    pub const fn new() -> Self {
        ByRank { heap: BinaryHeap::new(), came: 0 }
    }

    pub fn push(&mut self, rank: Rank, item: T) {
        self.came += 1;
        self.heap.push(Entry { rank, came: Reverse(self.came), item });
    }

    pub fn pop(&mut self) -> Option<T> {
        self.heap.pop().map(|entry| entry.item)
    }

    /// The rank of the next item.
    #[inline]
    fn first(&self) -> Option<Rank> {
        self.heap.peek().map(|entry| entry.rank)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }
}

impl<T> Default for ByRank<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A queue in the order of ranks, in which ordinary items cost what they cost in a plain one.
pub struct RankedQueue<T> {
    ranked: ByRank<T>,
    ordinary: VecDeque<T>,
}

impl<T> RankedQueue<T> {
    pub const fn new() -> Self {
        RankedQueue { ranked: ByRank::new(), ordinary: VecDeque::new() }
    }

    #[inline]
    pub fn push(&mut self, rank: Rank, item: T) {
        match rank {
            Rank::Ordinary => self.ordinary.push_back(item),
            _ => self.ranked.push(rank, item),
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.ranked.first() > Some(Rank::Ordinary) {
            return self.ranked.pop();
        }
        self.ordinary.pop_front().or_else(|| self.ranked.pop())
    }

    pub fn len(&self) -> usize {
        self.ranked.len() + self.ordinary.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for RankedQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Rank::{Later, Ordinary, Urgent};
    use super::*;

    #[test]
    fn greater_ranks_go_first_and_equals_as_they_came() {
        let mut queue = RankedQueue::new();
        let ranks =
            [Later(-5), Ordinary, Urgent(1), Later(-1), Urgent(7), Ordinary, Urgent(1), Urgent(0)];
        for pushed in ranks.into_iter().enumerate() {
            queue.push(pushed.1, pushed);
        }
        assert_eq!(queue.len(), 8);
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).map(|(i, _)| i).collect();
        assert_eq!(order, [4, 2, 6, 7, 1, 5, 3, 0]);
        assert!(queue.is_empty());
    }

    #[test]
    fn what_comes_overtakes_what_waits() {
        let mut queue = RankedQueue::new();
        (0..3).for_each(|i| queue.push(Ordinary, i));
        queue.push(Later(i32::MAX), 9);
        assert_eq!(queue.pop(), Some(0));
        queue.push(Urgent(i32::MIN), 5);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(5), Some(1), Some(2)));
        queue.push(Ordinary, 3);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(3), Some(9), None));
    }
}
