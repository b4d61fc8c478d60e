//! Tasks and their edges: an edge against a completion, reused slots, edge blocks.

use super::{Payload, check};
use crate::engine::data::inline_slot::{INLINE_SLOT, InlineSlot};
use crate::engine::data::task_slab::{Slab, SpareSlots};
use crate::engine::sync::Lock;
use loom::thread;
use std::sync::Arc;

/// Slots for edge blocks, taken from the end.
struct Spares(Vec<u32>);

impl SpareSlots for Spares {
    fn take(&mut self) -> u32 {
        self.0.pop().unwrap()
    }

    fn give_back(&mut self, slot: u32) {
        self.0.push(slot);
    }
}

fn none() -> Spares {
    Spares(Vec::new())
}

/// A pusher adds an edge to a task that completes meanwhile: the successor runs exactly once, after
/// it.
#[test]
fn loom_an_edge_meets_a_completion() {
    check(4, || {
        let slab = Arc::new(Slab::new());
        slab.grow();
        let (done, ran) = (Arc::new(Payload::default()), Arc::new(Payload::default()));
        let before = slab.open(0);
        assert!(slab.opened(before, 0));
        let completer = thread::spawn({
            let (slab, done, ran) = (slab.clone(), done.clone(), ran.clone());
            move || {
                done.add(1);
                let n = slab.get(0).close();
                slab.release(0, n, |t| {
                    assert_eq!((t, done.get()), (1, 1));
                    ran.add(1);
                });
            }
        });
        let after = slab.open(1);
        let edges = u32::from(slab.add_edge(before, 1, &mut none()));
        if slab.opened(after, edges) {
            assert_eq!(done.get(), 1);
            ran.add(1);
        }
        completer.join().unwrap();
        assert_eq!(ran.get(), 1);
        assert!(slab.is_done(before) && !slab.is_done(after));
    });
}

/// Two predecessors complete while the pusher is at work: one of the three makes the task ready,
/// and sees what both did.
#[test]
fn loom_the_last_of_two_predecessors_makes_ready() {
    check(3, || {
        let slab = Arc::new(Slab::new());
        slab.grow();
        let done = Arc::new([Payload::default(), Payload::default()]);
        let ran = Arc::new(Payload::default());
        let before = [slab.open(0), slab.open(1)];
        let completers = [0, 1].map(|i| {
            let (slab, done, ran) = (slab.clone(), done.clone(), ran.clone());
            thread::spawn(move || {
                done[i as usize].add(1);
                let n = slab.get(i).close();
                slab.release(i, n, |_| ran.add(done[0].get() + done[1].get()));
            })
        });
        let after = slab.open(2);
        let edges = before.iter().map(|&b| u32::from(slab.add_edge(b, 2, &mut none()))).sum();
        if slab.opened(after, edges) {
            ran.add(done[0].get() + done[1].get());
        }
        completers.into_iter().for_each(|c| c.join().unwrap());
        assert_eq!(ran.get(), 2);
    });
}

/// The slot of a completed task is opened for another while an old reference to it is still about:
/// the old one reads as complete, and its edges do not land in the new task's list.
#[test]
fn loom_a_stale_reference_is_done() {
    check(4, || {
        let slab = Arc::new(Slab::new());
        slab.grow();
        let returned = Arc::new(Lock::new(Vec::new()));
        let done = Arc::new(Payload::default());
        let ran = Arc::new(Payload::default());
        let old = slab.open(0);
        let completer = thread::spawn({
            let (slab, returned, done, ran) =
                (slab.clone(), returned.clone(), done.clone(), ran.clone());
            move || {
                done.add(1);
                let n = slab.get(0).close();
                slab.release(0, n, |_| ran.add(done.get()));
                slab.retire(0, n, |s| returned.lock().push(s));
            }
        });
        let reused = returned.lock().pop();
        let other_task = reused.map(|slot| slab.open(slot));
        let after = slab.open(1);
        let waits = slab.add_edge(old, 1, &mut none());
        if slab.opened(after, u32::from(waits)) {
            ran.add(done.get());
        }
        if let Some(other_task) = other_task {
            assert!(!waits && slab.is_done(old) && !slab.is_done(other_task));
            assert_eq!(slab.get(0).close(), 0, "an edge in another task's list");
        }
        completer.join().unwrap();
        assert_eq!(ran.get(), 1);
    });
}

/// A thread that reads a slot whose task ends meanwhile finds that task or sees its effects.
#[test]
fn loom_a_read_finds_the_task_or_sees_its_effects() {
    check(4, || {
        let slab = Arc::new(Slab::new());
        slab.grow();
        let done = Arc::new(Payload::default());
        let task = slab.open(1);
        assert!(slab.opened(task, 0));
        let completer = thread::spawn({
            let (slab, done) = (slab.clone(), done.clone());
            move || {
                slab.get(1).begin();
                done.add(1);
                slab.get(1).end();
                slab.get(1).close();
            }
        });
        match slab.get(1).live(1) {
            Some(live) => assert_eq!(live, task),
            None => assert_eq!(done.get(), 1),
        }
        completer.join().unwrap();
    });
}

/// A push finds the inline slot free, or still taken by a task that ends on another thread: it
/// overwrites neither the record (here a payload) nor the successors before the other is done with
/// them.
#[test]
fn loom_the_inline_slot_is_reused_after_its_task() {
    check(4, || {
        let slab = Arc::new(Slab::new());
        slab.grow();
        let inline = Arc::new(InlineSlot::default());
        let (record, ran) = (Arc::new(Payload::default()), Arc::new(Payload::default()));
        assert!(inline.take());
        let first = slab.open(INLINE_SLOT);
        assert!(slab.opened(first, 0));
        let completer = thread::spawn({
            let (slab, inline) = (slab.clone(), inline.clone());
            let (record, ran) = (record.clone(), ran.clone());
            move || {
                assert_eq!(record.get(), 0);
                inline.count();
                let n = slab.get(INLINE_SLOT).close();
                slab.release(INLINE_SLOT, n, |t| {
                    assert_eq!(t, 2);
                    ran.add(1);
                });
                inline.release();
            }
        });
        let after = slab.open(2);
        let edges = u32::from(slab.add_edge(first, 2, &mut none()));
        if slab.opened(after, edges) {
            ran.add(1);
        }
        if inline.take() {
            record.add(1);
            let (second, after) = (slab.open(INLINE_SLOT), slab.open(3));
            assert!(slab.is_done(first) && slab.add_edge(second, 3, &mut none()));
            assert!(!slab.opened(after, 1));
        }
        completer.join().unwrap();
        assert_eq!((ran.get(), inline.completed()), (1, 1));
    });
}

/// A task with more successors than its slot and one edge block hold completes while the last ones
/// are added: each runs once, and every block is freed once, by the completer or by the late
/// pusher.
#[test]
fn loom_edge_blocks_are_freed_once() {
    check(3, || {
        let slab = Arc::new(Slab::new());
        slab.grow();
        let (done, ran) = (Arc::new(Payload::default()), Arc::new(Lock::new(Vec::new())));
        let before = slab.open(0);
        let mut spares = Spares(vec![7, 6]);
        for after in [1, 2, 3] {
            let task = slab.open(after);
            assert!(slab.add_edge(before, after, &mut spares)); // the third in an edge block
            slab.opened(task, 1);
        }
        let completer = thread::spawn({
            let (slab, done, ran) = (slab.clone(), done.clone(), ran.clone());
            move || {
                done.add(1);
                let n = slab.get(0).close();
                slab.release(0, n, |t| ran.lock().push(t));
                let mut free = Vec::new();
                slab.retire(0, n, |s| free.push(s));
                free
            }
        });
        for task in [4, 5] {
            let after = slab.open(task); // the second one starts a block
            let edges = u32::from(slab.add_edge(before, task, &mut spares));
            if slab.opened(after, edges) {
                assert_eq!(done.get(), 1);
                ran.lock().push(task);
            }
        }
        let mut free = completer.join().unwrap();
        let mut ran = ran.lock();
        ran.sort_unstable();
        assert_eq!(*ran, [1, 2, 3, 4, 5]);
        free.extend(&spares.0);
        free.sort_unstable();
        assert_eq!(free, [0, 6, 7]);
        assert!(slab.all().all(|i| slab.get(i).live(i).is_none_or(|t| (1..6).contains(&t.slot()))));
    });
}
