//! The contracts of the engine beyond order: errors, poison, deletion, exclusive runs, resizing,
//! shutdown, priorities.

use rsnet::engine::{
    Engine, NaiveEngine, OnComplete, Prop, Push, RunOn, Task, ThreadedEngine, Var, bulk, patiently,
    segment,
};
use rsnet::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

fn engines() -> [Box<dyn Engine>; 2] {
    [Box::new(NaiveEngine::new()), Box::new(ThreadedEngine::with_threads(2))]
}

fn nothing() -> Task {
    Task::sync(|_| Ok(()))
}

fn fails() -> Task {
    Task::sync(|_| Err(Error::execution("it broke")))
}

fn push(engine: &dyn Engine, task: Task, reads: &[Var], writes: &[Var]) {
    engine.push(task, Push::new("op", reads, writes)).unwrap();
}

fn wait(engine: &dyn Engine, var: Var) -> Result<()> {
    engine.wait_for_var(var, &mut patiently())
}

#[test]
fn an_error_is_raised_once_and_the_poison_stays() {
    for engine in engines() {
        let (a, b) = (engine.new_variable(), engine.new_variable());
        push(&*engine, fails(), &[], &[a]);
        push(&*engine, nothing(), &[a], &[b]);
        let error = wait(&*engine, b).unwrap_err();
        assert_eq!((error.message(), error.operator()), ("it broke", Some("op")));
        wait(&*engine, a).unwrap();
        engine.wait_for_all(&mut patiently()).unwrap();
        assert!(engine.poisoned(a).unwrap().same(&engine.poisoned(b).unwrap()));
    }
}

#[test]
fn contract_6_only_an_overwrite_heals() {
    for engine in engines() {
        let a = engine.new_variable();
        push(&*engine, fails(), &[], &[a]);
        push(&*engine, nothing(), &[], &[a]); // writes a part: skipped
        let _ = wait(&*engine, a);
        assert!(engine.poisoned(a).is_some());
        engine.push(nothing(), Push { overwrites: 1, ..Push::new("fill", &[], &[a]) }).unwrap();
        wait(&*engine, a).unwrap();
        assert!(engine.poisoned(a).is_none());
    }
}

#[test]
fn an_error_healed_before_a_wait_is_still_raised_once() {
    for engine in engines() {
        let a = engine.new_variable();
        push(&*engine, fails(), &[], &[a]);
        engine.push(nothing(), Push { overwrites: 1, ..Push::new("fill", &[], &[a]) }).unwrap();
        assert!(wait(&*engine, a).is_err());
        assert!(wait(&*engine, a).is_ok() && engine.poisoned(a).is_none());
    }
}

#[test]
fn no_skip_runs_on_poisoned_variables() {
    for engine in engines() {
        let a = engine.new_variable();
        let ran = Arc::new(AtomicUsize::new(0));
        let count = ran.clone();
        push(&*engine, fails(), &[], &[a]);
        let task = Task::sync(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        engine.push(task, Push { prop: Prop::NoSkip, ..Push::new("always", &[a], &[]) }).unwrap();
        assert!(engine.wait_for_all(&mut patiently()).is_err());
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    }
}

/// Bytes of memory this process holds.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[cfg(not(target_os = "linux"))]
fn resident() -> usize {
    0
}

/// Fails, deletes and recycles `rounds` times: no error reaches a recycled variable, and memory
/// stays bounded.
fn fail_and_recycle(engine: &dyn Engine, rounds: usize) {
    let mut early = 0;
    for round in 0..rounds {
        let a = engine.new_variable();
        push(engine, fails(), &[], &[a]);
        engine.delete_variable(a, None);
        let b = engine.new_variable();
        assert_eq!(engine.version(b), 0);
        push(engine, nothing(), &[], &[b]);
        if round % 16 == 0 {
            wait(engine, b).unwrap();
            assert!(engine.poisoned(b).is_none());
        }
        engine.delete_variable(b, None);
        if round == rounds / 10 {
            let _ = engine.wait_for_all(&mut patiently());
            early = resident();
        }
    }
    assert!(engine.wait_for_all(&mut patiently()).is_err());
    engine.wait_for_all(&mut patiently()).unwrap();
    let grown = resident().saturating_sub(early);
    assert!(grown < 16 << 20, "{grown} bytes more than after a tenth of the rounds");
}

/// Runs the calling test again in a process of its own, so that its memory can be measured. Returns
/// `true` in that process.
fn alone(test: &str) -> bool {
    const MARK: &str = "RSNET_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let done = std::process::Command::new(program).args(["--exact", test]).env(MARK, "1").output();
    let done = done.unwrap();
    let output = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && output.contains("1 passed"), "{output}");
    false
}

#[test]
fn contract_5_a_million_errors_deletions_and_recycled_variables() {
    let name = "contract_5_a_million_errors_deletions_and_recycled_variables";
    if !alone(&format!("{}::{name}", module_path!().split_once("::").unwrap().1)) {
        return;
    }
    // Unoptimised builds run a tenth; `cargo test --release` runs all rounds.
    let rounds = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    fail_and_recycle(&ThreadedEngine::with_threads(2), rounds);
    fail_and_recycle(&NaiveEngine::new(), 20_000);
}

#[test]
fn a_deleted_variable_is_refused_and_its_last_function_runs_last() {
    let engine = ThreadedEngine::with_threads(1);
    let a = engine.new_variable();
    let (open, gate) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let used = tell.clone();
    let use_it = Task::sync(move |_| {
        gate.recv().unwrap();
        used.send("used").unwrap();
        Ok(())
    });
    push(&engine, use_it, &[], &[a]);
    engine.delete_variable(a, Some(Box::new(move || tell.send("deleted").unwrap())));
    let error = engine.push(nothing(), Push::new("late", &[a], &[])).unwrap_err();
    assert!(error.to_string().contains("deleted"), "{error}");
    open.send(()).unwrap();
    assert_eq!((told.recv().unwrap(), told.recv().unwrap()), ("used", "deleted"));
}

#[test]
fn an_exclusive_run_is_refused_while_conflicting_operations_are_pending() {
    let engine = ThreadedEngine::with_threads(1);
    let a = engine.new_variable();
    let (open, gate) = mpsc::channel::<()>();
    assert!(engine.try_run_exclusive(&[], &[a], &mut || ()));
    let blocked = Task::sync(move |_| {
        gate.recv().unwrap();
        Ok(())
    });
    push(&engine, blocked, &[a], &[]);
    assert!(engine.try_run_exclusive(&[a], &[], &mut || ())); // readers are concurrent
    assert!(!engine.try_run_exclusive(&[], &[a], &mut || ()));
    open.send(()).unwrap();
    wait(&engine, a).unwrap();
    assert!(engine.try_run_exclusive(&[], &[a], &mut || ()));
    assert_eq!(engine.version(a), 2);
}

#[test]
fn duplicates_are_refused_by_name() {
    for engine in engines() {
        let a = engine.new_variable();
        for (reads, writes, text) in [
            (vec![a], vec![a], "both read"),
            (vec![a, a], vec![], "read twice"),
            (vec![], vec![a, a], "written twice"),
        ] {
            let error = engine.push(nothing(), Push::new("op", &reads, &writes)).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        wait(&*engine, a).unwrap();
    }
}

#[test]
fn a_poll_ends_a_wait_and_nothing_is_lost() {
    let engine = ThreadedEngine::with_threads(1);
    let a = engine.new_variable();
    let (open, gate) = mpsc::channel::<()>();
    let blocked = Task::sync(move |_| {
        gate.recv().unwrap();
        Ok(())
    });
    push(&engine, blocked, &[], &[a]);
    let stopped = engine.wait_for_var(a, &mut || Err(Error::execution("enough")));
    assert_eq!(stopped.unwrap_err().message(), "enough");
    open.send(()).unwrap();
    wait(&engine, a).unwrap();
    assert_eq!(engine.version(a), 1);
}

#[test]
fn contract_3_the_pool_is_resized_while_many_threads_push() {
    let engine = ThreadedEngine::with_threads(1);
    thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                let a = engine.new_variable();
                for _ in 0..2_000 {
                    push(&engine, nothing(), &[], &[a]);
                }
                wait(&engine, a).unwrap();
                assert_eq!(engine.version(a), 2_000);
            });
        }
        for n in [2, 3, 1, 4, 2] {
            engine.set_num_threads(n).unwrap();
            assert_eq!(engine.num_threads(), n);
        }
    });
    engine.wait_for_all(&mut patiently()).unwrap();
}

#[test]
fn shutdown_skips_operations_that_have_not_started_except_deletions() {
    for engine in engines() {
        let a = engine.new_variable();
        engine.notify_shutdown();
        push(&*engine, fails(), &[], &[a]);
        let b = engine.new_variable();
        let filled = [b];
        let fill = Push { overwrites: 1, ..Push::new("fill", &[], &filled) };
        engine.push(nothing(), fill).unwrap();
        wait(&*engine, b).unwrap(); // there is no error to raise
        let why = engine.poisoned(b).unwrap();
        assert_eq!(why.message(), "never computed: the engine was shut down first");
        let deleted = Arc::new(AtomicUsize::new(0));
        let count = deleted.clone();
        engine.delete_variable(
            a,
            Some(Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            })),
        );
        engine.wait_for_all(&mut patiently()).unwrap();
        assert_eq!(deleted.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn an_operation_on_a_compute_thread_may_not_wait() {
    let engine = Arc::new(ThreadedEngine::with_threads(1));
    let [v, w, z] = [(); 3].map(|()| engine.new_variable());
    let gate = Arc::new(Barrier::new(2));
    let (said, told) = mpsc::channel();
    let (inner, open) = (engine.clone(), gate.clone());
    let waits = Task::sync(move |_| {
        open.wait();
        let all = inner.wait_for_all(&mut patiently());
        let own = inner.wait_for_var(w, &mut patiently());
        let other = inner.wait_for_var(z, &mut patiently());
        said.send([all, own, other]).expect("the test listens");
        Ok(())
    });
    push(&*engine, waits, &[], &[v]);
    push(&*engine, nothing(), &[v], &[w]); // cannot run before the first ends
    push(&*engine, nothing(), &[], &[z]); // could, on another thread
    gate.wait();
    let errors = told.recv().expect("it ran").map(|r| r.unwrap_err().message().to_owned());
    for (error, part) in errors.iter().zip(["may not wait", "waits for itself", "may not wait"]) {
        assert!(error.contains(part), "{error}");
    }
    wait(&*engine, w).unwrap();
}

#[test]
fn a_segment_runs_in_order_and_stops_at_an_error() {
    for engine in engines() {
        let (a, b) = (engine.new_variable(), engine.new_variable());
        let ran = Arc::new(AtomicUsize::new(0));
        let make = |fail: bool, var: Var| {
            let ran = ran.clone();
            let run = move |_: &_| {
                ran.fetch_add(1, Ordering::Relaxed);
                if fail { Err(Error::execution("middle")) } else { Ok(()) }
            };
            engine.new_operation(Arc::new(run), Push::new("part", &[], &[var])).unwrap()
        };
        let all = [make(false, a), make(true, b), make(false, b)];
        let whole = segment("whole", &all).unwrap();
        engine.push_operation(&whole, Default::default(), 0).unwrap();
        assert_eq!(wait(&*engine, a).unwrap_err().message(), "middle");
        assert_eq!(ran.load(Ordering::Relaxed), 2);
        assert!(engine.poisoned(b).is_some());
    }
}

#[test]
fn overwriting_more_variables_than_are_written_is_refused() {
    for engine in engines() {
        let (a, b) = (engine.new_variable(), engine.new_variable());
        let writes = [a, b];
        for overwrites in [3, 65_538, usize::MAX] {
            let push = Push { overwrites, ..Push::new("fill", &[], &writes) };
            let made = engine.new_operation(Arc::new(|_| Ok(())), push).map(drop);
            let scope = bulk(&*engine, 8).unwrap();
            let gathered = engine.push(nothing(), push);
            drop(scope);
            for refused in [engine.push(nothing(), push), made, gathered] {
                let error = refused.unwrap_err().to_string();
                let text = format!("'fill': invalid overwrites {overwrites}: expected at most 2");
                assert!(error.contains(&text), "{error}");
            }
        }
        // Nothing was scheduled, and later failures are handled normally.
        push(&*engine, fails(), &[], &[a]);
        assert!(wait(&*engine, a).is_err());
        assert_eq!((engine.version(a), engine.version(b)), (1, 0));
    }
}

#[test]
fn shutdown_skips_operations_that_run_in_spite_of_errors() {
    for engine in engines() {
        let a = engine.new_variable();
        let ran = Arc::new(Mutex::new(Vec::new()));
        engine.notify_shutdown();
        for prop in [Prop::NoSkip, Prop::DeleteVar, Prop::Normal] {
            let tell = ran.clone();
            let task = Task::sync(move |_| {
                tell.lock().unwrap().push(prop);
                Ok(())
            });
            engine.push(task, Push { prop, ..Push::new("late", &[], &[a]) }).unwrap();
        }
        engine.wait_for_all(&mut patiently()).unwrap();
        assert_eq!(*ran.lock().unwrap(), [Prop::DeleteVar]);
        assert_eq!(engine.version(a), 3); // completed nevertheless
    }
}

#[test]
fn a_panic_of_an_asynchronous_function_is_reported() {
    for engine in engines() {
        for cheap in [true, false] {
            let (a, b) = (engine.new_variable(), engine.new_variable());
            let (writes, next) = ([a], [b]);
            let task = Task::asynchronous(|_, _token| panic!("step {} of asking", 3));
            engine
                .push(
                    task,
                    Push { run_on: RunOn::pusher_if(cheap), ..Push::new("asks", &[], &writes) },
                )
                .unwrap();
            engine.push(nothing(), Push::new("reads", &writes, &next)).unwrap();
            let error = wait(&*engine, b).unwrap_err();
            assert_eq!(
                (error.message(), error.operator()),
                ("panic: step 3 of asking", Some("asks"))
            );

            // A function that passed its token on before the panic ends by the token.
            let (give, given) = mpsc::channel();
            let c = engine.new_variable();
            let completer = thread::spawn(move || {
                let token: OnComplete = given.recv().unwrap();
                token.complete(Ok(()));
            });
            let task = Task::asynchronous(move |_, token| {
                give.send(token).unwrap();
                panic!("step 4");
            });
            engine
                .push(
                    task,
                    Push { run_on: RunOn::pusher_if(cheap), ..Push::new("gives", &[], &[c]) },
                )
                .unwrap();
            wait(&*engine, c).unwrap();
            completer.join().unwrap();
        }
    }
}

#[test]
fn a_native_operation_that_would_hold_a_compute_thread_in_a_wait_gets_an_error() {
    let engine = Arc::new(ThreadedEngine::with_threads(2));
    let (a, b) = (engine.new_variable(), engine.new_variable());
    let (open, gate) = mpsc::channel::<()>();
    let blocked = Task::asynchronous(move |_, token| {
        thread::spawn(move || {
            gate.recv().unwrap();
            token.complete(Ok(()));
        });
    });
    engine.push(blocked, Push::new("slow", &[], &[a])).unwrap();
    let (tell, told) = mpsc::channel();
    let inner = engine.clone();
    let waits = Task::sync(move |_| {
        let read = inner.wait_to_read(a, &mut patiently());
        tell.send([wait(&*inner, a), read].map(|r| r.unwrap_err().to_string())).unwrap();
        drop(inner);
        Ok(())
    });
    engine.push(waits, Push::new("waits", &[], &[b])).unwrap();
    for error in told.recv().unwrap() {
        assert!(error.contains("may not wait for others"), "{error}");
    }
    open.send(()).unwrap();
    wait(&*engine, a).unwrap();
    wait(&*engine, b).unwrap();
}
