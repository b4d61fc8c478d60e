//! Priorities of ready operations, and queues ordered by them.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// The priority of an operation among those that are ready: greater ones run first, equal ones in
/// the order in which they became ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// A number below zero: runs after all normal operations.
    Low(i32),
    #[default]
    Normal,
    /// A number above zero, or a prioritized property: runs before all normal operations.
    High(i32),
}

/// A heap of items by priority; items of equal priority are in the order of their pushes.
pub(in crate::engine) struct PriorityHeap<T> {
    heap: BinaryHeap<Ranked<T>>,
    /// The number of pushes so far.
    pushes: u64,
}

struct Ranked<T> {
    priority: Priority,
    /// The number of the push: earlier ones are greater.
    push: Reverse<u64>,
    item: T,
}

impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.priority, self.push).cmp(&(other.priority, other.push))
    }
}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Ranked<T> {}

impl<T> PriorityHeap<T> {
    pub const fn new() -> Self {
        PriorityHeap { heap: BinaryHeap::new(), pushes: 0 }
    }

    pub fn push(&mut self, priority: Priority, item: T) {
        self.pushes += 1;
        self.heap.push(Ranked { priority, push: Reverse(self.pushes), item });
    }

    pub fn pop(&mut self) -> Option<T> {
        self.heap.pop().map(|ranked| ranked.item)
    }

    /// The priority of the next item.
    #[inline]
    fn first(&self) -> Option<Priority> {
        self.heap.peek().map(|ranked| ranked.priority)
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

/// A queue ordered by priority. Items of normal priority, which are nearly all, are kept in a plain
/// queue.
pub struct PriorityQueue<T> {
    prioritized: PriorityHeap<T>,
    normal: VecDeque<T>,
}

impl<T> PriorityQueue<T> {
    pub const fn new() -> Self {
        PriorityQueue { prioritized: PriorityHeap::new(), normal: VecDeque::new() }
    }

    #[inline]
    pub fn push(&mut self, priority: Priority, item: T) {
        match priority {
            Priority::Normal => self.normal.push_back(item),
            _ => self.prioritized.push(priority, item),
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.prioritized.first() > Some(Priority::Normal) {
            return self.prioritized.pop();
        }
        self.normal.pop_front().or_else(|| self.prioritized.pop())
    }

    pub fn len(&self) -> usize {
        self.prioritized.len() + self.normal.len()
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
    fn greater_priorities_come_first_and_equal_ones_in_push_order() {
        let mut queue = PriorityQueue::new();
        let priorities = [Low(-5), Normal, High(1), Low(-1), High(7), Normal, High(1), High(0)];
        for pushed in priorities.into_iter().enumerate() {
            queue.push(pushed.1, pushed);
        }
        assert_eq!(queue.len(), 8);
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).map(|(i, _)| i).collect();
        assert_eq!(order, [4, 2, 6, 7, 1, 5, 3, 0]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_later_item_of_greater_priority_overtakes() {
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
