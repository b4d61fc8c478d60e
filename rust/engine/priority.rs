//! Which of those that are ready goes first.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// Where an operation comes among those that are ready: greater ranks go first, and equals as they
/// came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// After all ordinary ones: of a priority below zero.
    Low(i32),
    #[default]
    Normal,
    /// Before all ordinary ones: of a priority above zero, or of a property that goes first.
    High(i32),
}

/// Items in the order of their ranks.
pub(in crate::engine) struct PriorityHeap<T> {
    heap: BinaryHeap<Entry<T>>,
    /// Items that ever came.
    came: u64,
}

struct Entry<T> {
    priority: Priority,
    came: Reverse<u64>,
    item: T,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.priority, self.came).cmp(&(other.priority, other.came))
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

impl<T> PriorityHeap<T> {
    pub const fn new() -> Self {
        PriorityHeap { heap: BinaryHeap::new(), came: 0 }
    }

    pub fn push(&mut self, priority: Priority, item: T) {
        self.came += 1;
        self.heap.push(Entry { priority, came: Reverse(self.came), item });
    }

    pub fn pop(&mut self) -> Option<T> {
        self.heap.pop().map(|entry| entry.item)
    }

    /// The priority of the next item.
    #[inline]
    fn first(&self) -> Option<Priority> {
        self.heap.peek().map(|entry| entry.priority)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }
}

impl<T> Default for PriorityHeap<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A queue in the order of ranks, in which ordinary items cost what they cost in a plain one.
pub struct PriorityQueue<T> {
    ranked: PriorityHeap<T>,
    ordinary: VecDeque<T>,
}

impl<T> PriorityQueue<T> {
    pub const fn new() -> Self {
        PriorityQueue { ranked: PriorityHeap::new(), ordinary: VecDeque::new() }
    }

    #[inline]
    pub fn push(&mut self, priority: Priority, item: T) {
        match priority {
            Priority::Normal => self.ordinary.push_back(item),
            _ => self.ranked.push(priority, item),
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.ranked.first() > Some(Priority::Normal) {
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

impl<T> Default for PriorityQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Priority::{High, Low, Normal};
    use super::*;

    #[test]
    fn greater_ranks_go_first_and_equals_as_they_came() {
        let mut queue = PriorityQueue::new();
        let ranks = [Low(-5), Normal, High(1), Low(-1), High(7), Normal, High(1), High(0)];
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
        let mut queue = PriorityQueue::new();
        (0..3).for_each(|i| queue.push(Normal, i));
        queue.push(Low(i32::MAX), 9);
        assert_eq!(queue.pop(), Some(0));
        queue.push(High(i32::MIN), 5);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(5), Some(1), Some(2)));
        queue.push(Normal, 3);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(3), Some(9), None));
    }
}
