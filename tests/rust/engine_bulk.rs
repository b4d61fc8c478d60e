//! Bulk mode and prepared operations of the engine.

use rsnet::Context;
use rsnet::engine::{
    Engine, NaiveEngine, Push, RunOn, Task, ThreadedEngine, Var, bulk, patiently, segment,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

type Log = Arc<Mutex<Vec<(usize, bool)>>>;

fn logs(log: &Log, i: usize) -> Task {
    let log = log.clone();
    Task::sync(move |run| {
        log.lock().unwrap().push((i, run.is_bulk));
        Ok(())
    })
}

fn push(engine: &dyn Engine, task: Task, writes: &[Var]) {
    engine.push(task, Push::new("step", &[], writes)).unwrap();
}

fn wait(engine: &dyn Engine) {
    engine.wait_for_all(&mut patiently()).unwrap();
}

#[test]
fn a_bulk_is_pushed_when_it_is_full_and_at_the_end_of_its_scope() {
    let engine = ThreadedEngine::with_threads(1);
    let (v, log) = (engine.new_variable(), Log::default());
    {
        let _scope = bulk(&engine, 4).unwrap();
        (0..10).for_each(|i| push(&engine, logs(&log, i), &[v]));
        // Another thread, which has no bulk, sees two bulks of four, but not the rest.
        std::thread::scope(|s| s.spawn(|| wait(&engine)).join().unwrap());
        assert_eq!((engine.version(v), log.lock().unwrap().len()), (2, 8));
    }
    wait(&engine);
    assert_eq!(engine.version(v), 3);
    assert_eq!(*log.lock().unwrap(), (0..10).map(|i| (i, true)).collect::<Vec<_>>());
    assert_eq!(engine.set_bulk_size(0).unwrap(), 0);
}

#[test]
fn every_observer_flushes_a_bulk() {
    let engine = ThreadedEngine::with_threads(1);
    let other = Push { ctx: Context::cpu(1), ..Push::new("elsewhere", &[], &[]) };
    let urgent = Push { priority: 1, ..Push::new("urgent", &[], &[]) };
    let flushes: [&dyn Fn(Var); 7] = [
        &|v| engine.wait_for_var(v, &mut patiently()).unwrap(),
        &|v| engine.wait_to_read(v, &mut patiently()).unwrap(),
        &|_| wait(&engine),
        &|_| engine.push(Task::nothing(), other).unwrap(),
        &|_| engine.push(Task::nothing(), urgent).unwrap(),
        &|_| {
            let task = Task::asynchronous(|_, token| token.complete(Ok(())));
            engine.push(task, Push::new("token", &[], &[])).unwrap();
        },
        &|_| {
            let unrelated = engine.new_variable();
            engine.delete_variable(unrelated, None);
        },
    ];
    for (i, flush) in flushes.iter().enumerate() {
        let (v, log) = (engine.new_variable(), Log::default());
        let scope = bulk(&engine, 100).unwrap();
        push(&engine, logs(&log, i), &[v]);
        flush(v);
        std::thread::scope(|s| {
            s.spawn(|| engine.wait_for_var(v, &mut patiently()).unwrap());
        });
        assert_eq!(*log.lock().unwrap(), [(i, true)], "flush {i}");
        drop(scope);
        wait(&engine);
    }
}

#[test]
fn a_bulk_keeps_its_place_between_other_operations() {
    let engine = ThreadedEngine::with_threads(2);
    let (v, log) = (engine.new_variable(), Log::default());
    push(&engine, logs(&log, 0), &[v]);
    let scope = bulk(&engine, 10).unwrap();
    push(&engine, logs(&log, 1), &[v]);
    push(&engine, logs(&log, 2), &[v]);
    let task = logs(&log, 3);
    engine.push(task, Push { priority: 5, ..Push::new("urgent", &[], &[v]) }).unwrap();
    drop(scope);
    wait(&engine);
    let expected = [(0, false), (1, true), (2, true), (3, false)];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[test]
fn a_failure_stops_its_bulk_and_poisons_all_that_the_bulk_writes() {
    let engine = ThreadedEngine::with_threads(1);
    let vars: Vec<Var> = (0..3).map(|_| engine.new_variable()).collect();
    let log = Log::default();
    let scope = bulk(&engine, 3).unwrap();
    push(&engine, logs(&log, 0), &vars[..1]);
    let fails = Task::sync(|_| Err(rsnet::Error::value("broken")));
    engine.push(fails, Push::new("second", &[], &vars[1..2])).unwrap();
    push(&engine, logs(&log, 2), &vars[2..]);
    drop(scope);
    let error = engine.wait_for_all(&mut patiently()).unwrap_err().to_string();
    assert!(error.contains("second") && error.contains("broken"), "{error}");
    assert_eq!(*log.lock().unwrap(), [(0, true)]);
    assert!(vars.iter().all(|&v| engine.poisoned(v).is_some()));
}

#[test]
fn functions_run_elsewhere_are_part_of_a_bulk_in_order() {
    let engine = ThreadedEngine::with_threads(1);
    let (v, log) = (engine.new_variable(), Log::default());
    let (send, jobs) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    let runner = std::thread::spawn(move || jobs.into_iter().for_each(|job| job()));
    let scope = bulk(&engine, 100).unwrap();
    for i in 0..20 {
        if i % 3 == 0 {
            push(&engine, logs(&log, i), &[v]);
            continue;
        }
        let (send, log) = (send.clone(), log.clone());
        let task = Task::handed_off(move |run, token| {
            let is_bulk = run.is_bulk;
            let job = move || {
                log.lock().unwrap().push((i, is_bulk));
                token.complete(Ok(()));
            };
            send.send(Box::new(job)).unwrap();
        });
        push(&engine, task, &[v]);
    }
    drop(scope);
    wait(&engine);
    assert_eq!(engine.version(v), 1);
    assert_eq!(*log.lock().unwrap(), (0..20).map(|i| (i, true)).collect::<Vec<_>>());
    drop(send);
    runner.join().unwrap();
}

#[test]
fn nothing_gathered_is_lost_when_a_thread_ends() {
    let engine = Arc::new(ThreadedEngine::with_threads(1));
    let (v, log) = (engine.new_variable(), Log::default());
    let (of_thread, task) = (engine.clone(), logs(&log, 7));
    let thread = std::thread::spawn(move || {
        of_thread.set_bulk_size(100).unwrap();
        push(&*of_thread, task, &[v]);
    });
    thread.join().unwrap();
    wait(&*engine);
    assert_eq!(*log.lock().unwrap(), [(7, true)]);
}

#[test]
fn a_bulk_refuses_bad_variables_at_their_push() {
    let engine = ThreadedEngine::with_threads(1);
    let (v, gone) = (engine.new_variable(), engine.new_variable());
    engine.delete_variable(gone, None);
    let _scope = bulk(&engine, 10).unwrap();
    let refused = |reads: &[Var], writes: &[Var]| {
        engine.push(Task::nothing(), Push::new("bad", reads, writes)).unwrap_err().to_string()
    };
    assert!(refused(&[v], &[v]).contains("both read"));
    assert!(refused(&[gone], &[]).contains("deleted"));
}

/// Counts its drops.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_prepared_operation_lives_until_its_last_run_and_no_longer() {
    let engine = ThreadedEngine::with_threads(2);
    let (v, runs, drops) = (engine.new_variable(), Arc::new(AtomicUsize::new(0)), Arc::default());
    for writes in [&[v][..], &[]] {
        runs.store(0, Ordering::SeqCst);
        let (open, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let (held, count) = (Dropped(Arc::clone(&drops)), runs.clone());
        let run = Arc::new(move |_: &rsnet::engine::RunContext| {
            let _ = &held;
            let _ = gate.lock().unwrap().recv();
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let operation = engine.new_operation(run, Push::new("op", &[], writes)).unwrap();
        (0..5).for_each(|_| engine.push_operation(&operation, Context::cpu(0), 0).unwrap());
        let before = drops.load(Ordering::SeqCst);
        engine.delete_operation(operation);
        assert_eq!(drops.load(Ordering::SeqCst), before, "still to run");
        drop(open);
        wait(&engine);
        assert_eq!(runs.load(Ordering::SeqCst), 5);
        // The waiter may be notified before the function of the last run is dropped.
        while drops.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
    }
}

/// The function lives as long as its own runs, regardless of its variable: neither the deletion of
/// the variable nor pending operations of others on it matter.
#[test]
fn a_prepared_operation_waits_for_its_own_last_run_only() {
    let engine = ThreadedEngine::with_threads(1);
    for is_run in [true, false] {
        let (v, drops) = (engine.new_variable(), Arc::new(AtomicUsize::new(0)));
        let (open, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let waits = move || {
            let _ = gate.lock().unwrap().recv();
            Ok(())
        };
        let held = Dropped(drops.clone());
        if is_run {
            let run = Arc::new(move |_: &rsnet::engine::RunContext| {
                let _ = &held;
                waits()
            });
            let operation = engine.new_operation(run, Push::new("op", &[], &[v])).unwrap();
            engine.push_operation(&operation, Context::cpu(0), 0).unwrap();
            engine.delete_variable(v, None);
            drop(operation);
            assert_eq!(drops.load(Ordering::SeqCst), 0, "it runs");
        } else {
            let run = Arc::new(move |_: &rsnet::engine::RunContext| {
                let _ = &held;
                Ok(())
            });
            let operation = engine.new_operation(run, Push::new("op", &[], &[v])).unwrap();
            engine.push_operation(&operation, Context::cpu(0), 0).unwrap();
            engine.wait_for_var(v, &mut patiently()).unwrap();
            push(&engine, Task::sync(move |_| waits()), &[v]);
            drop(operation);
            assert_eq!(
                drops.load(Ordering::SeqCst),
                1,
                "its run is over, although the variable is in use"
            );
        }
        drop(open);
        wait(&engine);
        while drops.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }
}

/// A prepared operation is refused after the deletion of its variable, whether the deletion is
/// immediate or waits for pending operations; another operation is not affected.
#[test]
fn a_prepared_operation_is_refused_once_its_variable_is_deleted() {
    let engine = ThreadedEngine::with_threads(1);
    for is_pending in [true, false] {
        let [v, own, unrelated] = [(); 3].map(|()| engine.new_variable());
        let nothing = |v: &Var| {
            let push = Push::new("op", &[], std::slice::from_ref(v));
            engine.new_operation(Arc::new(|_| Ok(())), push).unwrap()
        };
        let (operation, healthy) = (nothing(&v), nothing(&own));
        let push_both =
            || [&operation, &healthy].map(|o| engine.push_operation(o, Context::cpu(0), 0).is_ok());
        assert_eq!(push_both(), [true, true]);
        assert_eq!(push_both(), [true, true]);
        let (open, gate) = mpsc::channel::<()>();
        if is_pending {
            let waits = Task::sync(move |_| {
                let _ = gate.recv();
                Ok(())
            });
            push(&engine, waits, &[v]);
        } else {
            wait(&engine);
        }
        engine.delete_variable(v, None);
        assert_eq!(push_both(), [false, true]);
        drop(open);
        wait(&engine);
        let next = engine.new_variable(); // possibly in the same slot
        assert_eq!(push_both(), [false, true]);
        engine.delete_variable(unrelated, None);
        assert_eq!(push_both(), [false, true]);
        assert_eq!(push_both(), [false, true]);
        wait(&engine);
        assert_eq!((engine.version(own), engine.version(next)), (6, 0));
    }
}

#[test]
fn a_segment_of_too_many_variables_is_refused_when_it_is_made() {
    let engine = NaiveEngine::new();
    let vars: Vec<Var> = (0..80_000).map(|_| engine.new_variable()).collect();
    let half = |vars: &[Var]| {
        engine.new_operation(Arc::new(|_| Ok(())), Push::new("half", &[], vars)).unwrap()
    };
    let halves = [half(&vars[..40_000]), half(&vars[40_000..])];
    let error = segment("both", &halves).err().unwrap().to_string();
    assert!(error.contains("'both': invalid number of variables 80000"), "{error}");
}

#[test]
fn a_prepared_operation_may_end_by_a_token() {
    let naive: Box<dyn Engine> = Box::new(NaiveEngine::new());
    for engine in [naive, Box::new(ThreadedEngine::with_threads(1))] {
        let (v, log) = (engine.new_variable(), Log::default());
        let of_run = log.clone();
        let run =
            Arc::new(move |run: &rsnet::engine::RunContext, token: rsnet::engine::OnComplete| {
                of_run.lock().unwrap().push((0, run.is_bulk));
                let finish = move || token.complete(Ok(()));
                drop(std::thread::spawn(finish));
            });
        let operation = engine.new_async_operation(run, Push::new("op", &[], &[v])).unwrap();
        for _ in 0..10 {
            engine.push_operation(&operation, Context::cpu(0), 0).unwrap();
        }
        let error = segment("all", std::slice::from_ref(&operation)).err().unwrap().to_string();
        assert!(error.contains("asynchronous"), "{error}");
        let clone = operation.clone();
        engine.delete_operation(operation);
        let error = engine.push_operation(&clone, Context::cpu(0), 0).unwrap_err();
        assert!(error.to_string().contains("deleted"));
        drop(clone);
        wait(&*engine);
        assert_eq!((log.lock().unwrap().len(), engine.version(v)), (10, 10));
    }
}

#[test]
fn an_operation_of_one_engine_runs_on_another() {
    let (maker, user) = (ThreadedEngine::with_threads(1), ThreadedEngine::with_threads(1));
    let v = user.new_variable();
    assert_eq!(v, maker.new_variable());
    let count = Arc::new(AtomicUsize::new(0));
    let counts = count.clone();
    let run = Arc::new(move |_: &rsnet::engine::RunContext| {
        counts.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let operation = maker.new_operation(run, Push::new("op", &[], &[v])).unwrap();
    (0..100).for_each(|_| user.push_operation(&operation, Context::cpu(0), 0).unwrap());
    drop(operation);
    drop(maker);
    wait(&user);
    assert_eq!(count.load(Ordering::SeqCst), 100);
}

#[test]
fn operations_of_many_variables_wait_for_all_of_them() {
    let engine = ThreadedEngine::with_threads(2);
    let vars: Vec<Var> = (0..100).map(|_| engine.new_variable()).collect();
    let count = Arc::new(AtomicUsize::new(0));
    for round in 1..=20 {
        for v in &vars {
            let count = count.clone();
            let task = Task::sync(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
                Ok(())
            });
            engine.push(task, Push::new("one", &[], std::slice::from_ref(v))).unwrap();
        }
        let (count, expected) = (count.clone(), round * vars.len());
        let task = Task::sync(move |_| {
            assert_eq!(count.load(Ordering::SeqCst), expected);
            Ok(())
        });
        engine.push(task, Push::new("all", &[], &vars)).unwrap();
    }
    wait(&engine);
}

#[test]
fn a_completion_runs_cheap_operations_on_its_thread_and_no_others() {
    use rsnet::engine::Prop;
    use std::thread::{ThreadId, current};
    let engine = ThreadedEngine::with_threads(1);
    let (v, held) = (engine.new_variable(), Arc::new(Mutex::new(None)));
    let keep = held.clone();
    let holds = Task::asynchronous(move |_, token| *keep.lock().unwrap() = Some(token));
    let writes = [v];
    engine.push(holds, Push { prop: Prop::Async, ..Push::new("holds", &[], &writes) }).unwrap();
    let threads: Arc<Mutex<Vec<(&str, ThreadId)>>> = Arc::default();
    let tells = |what| {
        let threads = threads.clone();
        Task::sync(move |_| {
            threads.lock().unwrap().push((what, current().id()));
            Ok(())
        })
    };
    let reads = [v];
    let cheap = Push { run_on: RunOn::Pusher, ..Push::new("cheap", &reads, &[]) };
    let starts = Push { prop: Prop::Async, ..Push::new("starts", &reads, &[]) };
    (0..100).for_each(|_| engine.push(tells("cheap"), cheap).unwrap());
    engine.push(tells("starts"), starts).unwrap();
    engine.push(tells("ordinary"), Push::new("ordinary", &reads, &[])).unwrap();
    let token = held.lock().unwrap().take().unwrap();
    token.complete(Ok(()));
    wait(&engine);
    let threads = threads.lock().unwrap();
    assert_eq!(threads.len(), 102);
    for &(what, thread) in threads.iter() {
        assert_eq!(thread == current().id(), what == "cheap", "{what}");
    }
}
