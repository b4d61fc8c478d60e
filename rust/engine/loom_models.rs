//! Models of the engine's state machines, run by loom over every interleaving and every value that
//! the memory orders allow (`make loom`). They run the shipping code; under `--cfg loom` only sizes
//! differ: two edges a slot, eight slots a chunk, four places in the ring, no spinning.
//!
//! `README.md` in this folder says what each guards. A weaker order anywhere between a push and a
//! run, or between a completion and a wait, fails here: the payloads are loom's cells, which report
//! every unordered access.

use crate::engine::data::inline_slot::{INLINE_SLOT, InlineSlot};
use crate::engine::data::parking::{IdleWorkers, Parker, publish};
use crate::engine::data::run_queue::{Consumer, Queues};
use crate::engine::data::task_slab::{Slab, SpareSlots};
use crate::engine::sync::{AtomicUsize, Lock};
use crate::engine::{Engine, OnComplete, Prop, Push, Task, ThreadedEngine, Var, patiently};
use crate::error::Error;
use crate::fork_join::Team;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Checks `f` in all interleavings with at most so many preemptions. (`LOOM_MAX_PREEMPTIONS`
/// overrides.)
fn check(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    builder.check(f);
}

/// Plain memory that operations read and write.
#[derive(Default)]
struct Payload(UnsafeCell<u64>);

// SAFETY: access from two threads that is not ordered is what loom reports.
unsafe impl Sync for Payload {}
// SAFETY: as above.
unsafe impl Send for Payload {}

impl Payload {
    fn add(&self, n: u64) {
        // SAFETY: loom ends the model if anybody else has access now.
        self.0.with_mut(|p| unsafe { *p += n });
    }

    fn get(&self) -> u64 {
        // SAFETY: as in `add`.
        self.0.with(|p| unsafe { *p })
    }
}

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

// ---- tasks and their edges
// -----------------------------------------------------------------------

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

// ---- parking
// ---------------------------------------------------------------------------------------

/// Register, fence, check, park against publish, fence, check: no worker sleeps while a task is
/// queued. (A worker that did would be reported as a deadlock.)
#[test]
fn loom_no_worker_sleeps_while_a_task_is_queued() {
    check(4, || {
        let shared = Arc::new((Queues::new(1), IdleWorkers::new(), Lock::new(())));
        let worker = thread::spawn({
            let shared = shared.clone();
            move || {
                let (queues, sleep, _) = &*shared;
                let (me, mut consumer) = (Parker::current(), Consumer::new(0));
                for _ in 0..2 {
                    loop {
                        if queues.pop(&mut consumer, |_| ()).is_some() {
                            break;
                        }
                        sleep.park(&me, || !queues.is_empty());
                    }
                }
            }
        });
        let (queues, sleep, push) = &*shared;
        for task in [5, 6] {
            let held = push.lock();
            queues.push(task);
            drop(held);
            publish();
            if sleep.has_sleepers() {
                sleep.wake_one();
            }
        }
        worker.join().unwrap();
    });
}

/// The same for tasks in the injector, and for two sleepers.
#[test]
fn loom_an_injected_task_wakes_a_sleeper() {
    check(2, || {
        let shared = Arc::new((Queues::new(2), IdleWorkers::new(), AtomicUsize::new(0)));
        let workers = [0, 1].map(|lane| {
            let shared = shared.clone();
            shared.0.register(lane);
            thread::spawn(move || {
                let (queues, sleep, left) = &*shared;
                let (me, mut consumer) = (Parker::current(), Consumer::new(lane));
                while left.load(Ordering::Acquire) < 2 {
                    match queues.pop(&mut consumer, |_| ()) {
                        Some(_) if left.fetch_add(1, Ordering::AcqRel) == 1 => {
                            publish();
                            sleep.wake_all();
                        }
                        Some(_) => {
                            publish();
                            if sleep.has_sleepers() && !queues.is_empty() {
                                sleep.wake_one();
                            }
                        }
                        None => {
                            let has_work =
                                || !queues.is_empty() || left.load(Ordering::Acquire) == 2;
                            sleep.park(&me, has_work);
                        }
                    }
                }
            })
        });
        shared.0.push_batch(None, &[5, 6]);
        publish();
        if shared.1.has_sleepers() {
            shared.1.wake_one();
        }
        workers.into_iter().for_each(|w| w.join().unwrap());
    });
}

// ---- the whole engine
// ------------------------------------------------------------------------------

fn without_worker() -> Arc<ThreadedEngine> {
    let engine = ThreadedEngine::with_threads(1);
    engine.core.is_running.store(true, Ordering::Release);
    Arc::new(engine)
}

/// Runs `model` beside one compute thread of `engine`, and ends that.
fn with_worker(model: impl FnOnce(&ThreadedEngine)) {
    let engine = without_worker();
    let stop = Arc::new(AtomicBool::new(false));
    let worker = thread::spawn({
        let (core, stop) = (engine.core.clone(), stop.clone());
        move || core.serve(&Arc::new(Team::new(1, |_| ())), &stop)
    });
    model(&engine);
    stop.store(true, Ordering::SeqCst);
    loom::sync::atomic::fence(Ordering::SeqCst);
    engine.core.sleep.wake_all();
    worker.join().unwrap();
}

fn adds(payload: &Arc<Payload>, n: u64, expected: u64) -> Task {
    let payload = payload.clone();
    Task::sync(move |_| {
        assert_eq!(payload.get(), expected);
        payload.add(n);
        Ok(())
    })
}

/// The token of an asynchronous operation that writes `v` and has started, at once, on this thread.
fn started(engine: &ThreadedEngine, v: Var) -> OnComplete {
    let place: Arc<Lock<Option<OnComplete>>> = Arc::default();
    let keep = place.clone();
    let starts = Task::asynchronous(move |_, token| *keep.lock() = Some(token));
    let writes = [v];
    let push = Push { prop: Prop::Async, ..Push::new("starts", &[], &writes) };
    engine.push(starts, push).unwrap();
    let token = place.lock().take();
    token.expect("it has started")
}

/// Adds `n` on another thread and completes the token there.
fn completes(token: OnComplete, payload: &Arc<Payload>, n: u64) -> thread::JoinHandle<()> {
    let payload = payload.clone();
    thread::spawn(move || {
        payload.add(n);
        token.complete(Ok(()));
    })
}

/// Two writers of one variable, and a wait: in push order, each after the other's effects, the
/// waiter last.
#[test]
fn loom_writers_run_in_order_and_the_waiter_sees_them() {
    check(2, || {
        with_worker(|engine| {
            let (v, payload) = (engine.new_variable(), Arc::new(Payload::default()));
            payload.add(1);
            engine.push(adds(&payload, 10, 1), Push::new("first", &[], &[v])).unwrap();
            engine.push(adds(&payload, 100, 11), Push::new("second", &[], &[v])).unwrap();
            engine.wait_for_var(v, &mut patiently()).unwrap();
            assert_eq!((payload.get(), engine.version(v)), (111, 2));
        });
    });
}

/// A wait for everything ends by the completion counters alone.
#[test]
fn loom_a_wait_for_everything_ends() {
    check(2, || {
        with_worker(|engine| {
            let (v, payload) = (engine.new_variable(), Arc::new(Payload::default()));
            engine.push(adds(&payload, 7, 0), Push::new("only", &[], &[v])).unwrap();
            engine.wait_for_all(&mut patiently()).unwrap();
            assert_eq!(payload.get(), 7);
        });
    });
}

/// An asynchronous operation ends by its token on another thread, while its function may still be
/// returning: its successor runs once, on a worker, after what the token's thread did.
#[test]
fn loom_a_token_completes_exactly_once() {
    check(1, || {
        with_worker(|engine| {
            let (v, payload) = (engine.new_variable(), Arc::new(Payload::default()));
            let token = started(engine, v);
            let completer = completes(token, &payload, 3);
            engine.push(adds(&payload, 4, 3), Push::new("after", &[], &[v])).unwrap();
            engine.wait_for_var(v, &mut patiently()).unwrap();
            assert_eq!((payload.get(), engine.version(v)), (7, 2));
            completer.join().unwrap();
        });
    });
}

/// Pushes a task that writes `v`, adds `n` and is run by the thread that pushes it; gives the
/// thread once the task has begun.
fn runs_off_worker(
    engine: &Arc<ThreadedEngine>,
    v: Var,
    payload: &Arc<Payload>,
    n: u64,
) -> thread::JoinHandle<()> {
    let begun = Arc::new(AtomicUsize::new(0));
    let pusher = thread::spawn({
        let (engine, payload, begun) = (engine.clone(), payload.clone(), begun.clone());
        move || {
            let task = Task::sync(move |_| {
                begun.store(1, Ordering::Relaxed);
                payload.add(n);
                Ok(())
            });
            let writes = [v];
            let push = Push { cheap: true, ..Push::new("elsewhere", &[], &writes) };
            engine.push(task, push).unwrap();
        }
    });
    while begun.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    pusher
}

/// A wait for everything covers a task that another thread runs inside its push.
#[test]
fn loom_a_wait_for_everything_covers_inline_tasks() {
    check(2, || {
        let engine = without_worker();
        let (v, payload) = (engine.new_variable(), Arc::new(Payload::default()));
        let pusher = runs_off_worker(&engine, v, &payload, 5);
        engine.wait_for_all(&mut patiently()).unwrap();
        assert_eq!(payload.get(), 5);
        pusher.join().unwrap();
    });
}

/// A wait for everything covers a task that ends by a token on another thread.
#[test]
fn loom_a_wait_for_everything_covers_tokens() {
    check(3, || {
        let engine = without_worker();
        let (v, payload) = (engine.new_variable(), Arc::new(Payload::default()));
        let completer = completes(started(&engine, v), &payload, 5);
        engine.wait_for_all(&mut patiently()).unwrap();
        assert_eq!(payload.get(), 5);
        completer.join().unwrap();
    });
}

/// A slot is reused while its task may just be ending on another thread: each task runs once, in
/// order.
#[test]
fn loom_slots_are_reused_while_a_task_ends() {
    check(2, || {
        let engine = without_worker();
        let (v, w, payload) =
            (engine.new_variable(), engine.new_variable(), Arc::new(Payload::default()));
        let pusher = runs_off_worker(&engine, v, &payload, 5);
        let other = Arc::new(Payload::default());
        for (n, before) in [(1, 0), (10, 1)] {
            let writes = [w];
            let push = Push { cheap: true, ..Push::new("cheap", &[], &writes) };
            engine.push(adds(&other, n, before), push).unwrap();
        }
        assert_eq!(other.get(), 11); // both ran in their pushes
        engine.wait_for_var(v, &mut patiently()).unwrap();
        assert_eq!((payload.get(), engine.version(v), engine.version(w)), (5, 1, 2));
        pusher.join().unwrap();
    });
}

/// A token that fails on another thread, and a waiter: the error is raised once, the poison stays.
#[test]
fn loom_a_failed_token_is_reported_once() {
    check(3, || {
        let engine = without_worker();
        let v = engine.new_variable();
        let token = started(&engine, v);
        let completer = thread::spawn(move || token.complete(Err(Error::execution("broke"))));
        let error = engine.wait_for_var(v, &mut patiently()).unwrap_err();
        assert_eq!(error.message(), "broke");
        engine.wait_for_var(v, &mut patiently()).unwrap();
        assert!(engine.poisoned(v).is_some());
        completer.join().unwrap();
    });
}
