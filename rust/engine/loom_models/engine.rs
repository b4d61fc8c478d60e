//! The whole threaded engine, with one worker or none.

use super::{Payload, check};
use crate::engine::sync::{AtomicUsize, Lock};
use crate::engine::{Engine, OnComplete, Prop, Push, RunOn, Task, ThreadedEngine, Var, patiently};
use crate::error::Error;
use crate::fork_join::Team;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Pushes, from a new thread, an inline task that writes `v` and adds `n`. Returns the thread once
/// the task has begun.
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
            let push = Push { run_on: RunOn::Pusher, ..Push::new("elsewhere", &[], &writes) };
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

/// So it does where another task has the slot for inline ones.
#[test]
fn loom_a_wait_for_everything_covers_tokens_beside_another() {
    check(3, || {
        let engine = without_worker();
        let (v, w, payload) =
            (engine.new_variable(), engine.new_variable(), Arc::new(Payload::default()));
        let (first, second) = (started(&engine, v), started(&engine, w));
        let completer = completes(second, &payload, 5);
        first.complete(Ok(()));
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
            let push = Push { run_on: RunOn::Pusher, ..Push::new("cheap", &[], &writes) };
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
