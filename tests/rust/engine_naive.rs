//! The rules that the naive engine shares with the threaded one: deleted variables, operations that
//! call the engine, hooks, tokens that are not completed.

use rsnet::engine::{
    Engine, Event, HookEvent, NaiveEngine, OnComplete, Push, RunOn, Task, ThreadedEngine, Var,
    patiently,
};
use rsnet::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

fn engines() -> [Arc<dyn Engine>; 2] {
    [Arc::new(NaiveEngine::new()), Arc::new(ThreadedEngine::with_threads(1))]
}

fn fails() -> Task {
    Task::sync(|_| Err(Error::execution("it broke")))
}

/// Pushes a function that runs inside its push, under either engine.
fn run_here(
    engine: &Arc<dyn Engine>,
    writes: &[Var],
    f: impl FnOnce(&dyn Engine) -> Result<()> + Send + 'static,
) {
    let inner = engine.clone();
    let task = Task::sync(move |_| f(&*inner));
    engine.push(task, Push { run_on: RunOn::Pusher, ..Push::new("here", &[], writes) }).unwrap();
}

fn wait(engine: &dyn Engine, var: Var) -> Result<()> {
    engine.wait_for_var(var, &mut patiently())
}

#[test]
fn a_deleted_variable_is_refused_after_its_slot_is_reused() {
    for engine in engines() {
        let old = engine.new_variable();
        engine.delete_variable(old, None);
        let successor = engine.new_variable(); // reuses the slot
        assert!(old < successor);
        engine.push(fails(), Push::new("op", &[], &[successor])).unwrap();
        for refused in [
            engine.push(Task::nothing(), Push::new("late", &[old], &[])),
            engine.push(Task::nothing(), Push::new("late", &[], &[old])),
            wait(&*engine, old),
            engine.wait_to_read(old, &mut patiently()),
        ] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("deleted"), "{error}");
        }
        assert!(engine.poisoned(old).is_none() && engine.version(old) == 0);
        assert!(!engine.try_run_exclusive(&[], &[old], &mut || ()));
        assert_eq!(wait(&*engine, successor).unwrap_err().message(), "it broke");
        assert_eq!(engine.version(successor), 1);
    }
}

#[test]
fn a_prepared_operation_is_refused_after_its_variable_is_deleted() {
    for engine in engines() {
        let v = engine.new_variable();
        let writes = [v];
        let push = Push::new("again", &[], &writes);
        let operation = engine.new_operation(Arc::new(|_| Ok(())), push).unwrap();
        engine.push_operation(&operation, Default::default(), 0).unwrap();
        engine.delete_variable(v, None);
        let successor = engine.new_variable();
        let late = engine.push_operation(&operation, Default::default(), 0);
        assert!(late.unwrap_err().to_string().contains("deleted"));
        assert_eq!(engine.version(successor), 0);
    }
}

#[test]
fn an_operation_may_delete_its_variable() {
    for engine in engines() {
        let v = engine.new_variable();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (inner, last) = (log.clone(), log.clone());
        run_here(&engine, &[v], move |engine| {
            let last = Box::new(move || last.lock().unwrap().push("deleted"));
            engine.delete_variable(v, Some(last));
            assert!(engine.push(Task::nothing(), Push::new("late", &[v], &[])).is_err());
            inner.lock().unwrap().push("used");
            Err(Error::execution("it broke"))
        });
        let raised = engine.wait_for_all(&mut patiently()).unwrap_err();
        assert_eq!(raised.message(), "it broke");
        let successor = engine.new_variable();
        wait(&*engine, successor).unwrap();
        assert!(engine.poisoned(successor).is_none() && engine.version(successor) == 0);
        assert_eq!(*log.lock().unwrap(), ["used", "deleted"]);
    }
}

#[test]
fn a_wait_for_all_inside_an_operation_raises_the_errors_of_its_own_pushes_only() {
    for engine in engines() {
        let (unrelated, own, writes) =
            (engine.new_variable(), engine.new_variable(), engine.new_variable());
        engine.push(fails(), Push::new("unrelated", &[], &[unrelated])).unwrap();
        engine.wait_for_var(writes, &mut patiently()).unwrap();
        let raised = Arc::new(Mutex::new(Vec::new()));
        let tell = raised.clone();
        run_here(&engine, &[writes], move |engine| {
            for task in [Task::nothing(), fails()] {
                let writes = [own];
                let push = Push { run_on: RunOn::Pusher, ..Push::new("own", &[], &writes) };
                engine.push(task, push).unwrap();
                let r = engine.wait_for_all(&mut patiently());
                tell.lock().unwrap().push(r.err().map(|e| e.operator().unwrap().to_owned()));
            }
            Ok(())
        });
        assert_eq!(*raised.lock().unwrap(), [None, Some("own".to_owned())]);
        let left = engine.wait_for_all(&mut patiently()).unwrap_err();
        assert_eq!(left.operator(), Some("unrelated"));
    }
}

#[test]
fn waiting_for_oneself_is_an_error() {
    for engine in engines() {
        let v = engine.new_variable();
        let raised = Arc::new(Mutex::new(Vec::new()));
        let tell = raised.clone();
        run_here(&engine, &[v], move |engine| {
            for r in [
                wait(engine, v),
                engine.wait_to_read(v, &mut patiently()),
                engine.stop(&mut patiently()),
            ] {
                tell.lock().unwrap().push(r.unwrap_err().to_string());
            }
            Ok(())
        });
        wait(&*engine, v).unwrap();
        let raised = raised.lock().unwrap();
        assert!(raised[..2].iter().all(|e| e.contains("'here' waits for itself")), "{raised:?}");
        assert!(raised[2].contains("wait for that operation itself"), "{raised:?}");
    }
}

#[test]
fn a_part_on_another_thread_does_not_wait_for_its_operation() {
    for engine in engines() {
        let (v, below) = (engine.new_variable(), engine.new_variable());
        let waits = Arc::new(Mutex::new(Vec::new()));
        let (tell, inner) = (waits.clone(), engine.clone());
        run_here(&engine, &[below], move |engine| {
            let part = move |token: OnComplete| {
                token.inside(|| {
                    for var in [v, below] {
                        tell.lock().unwrap().push(inner.wait_to_read(var, &mut patiently()));
                    }
                });
                token.complete(Ok(()));
            };
            let task = Task::asynchronous(move |_, token| drop(thread::spawn(move || part(token))));
            engine.push(task, Push::new("inside", &[], &[v]))
        });
        wait(&*engine, v).unwrap();
        let waits = waits.lock().unwrap();
        let own = waits[0].as_ref().unwrap_err().to_string();
        assert!(own.contains("'inside' waits for itself"), "{own}");
        // Under the naive engine the operation below waits for the push.
        assert_eq!(waits[1].is_err(), engine.runs_inside_push(), "{:?}", waits[1]);
    }
}

#[test]
fn a_hook_is_called_for_every_operation() {
    for engine in engines() {
        let v = engine.new_variable();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let tell = seen.clone();
        engine.set_hook(Some(Arc::new(move |s: HookEvent<'_>| {
            tell.lock().unwrap().push((s.event, s.name.to_owned(), s.id));
        })));
        engine.push(fails(), Push::new("fails", &[], &[v])).unwrap();
        engine.push(Task::nothing(), Push::new("skipped", &[v], &[])).unwrap();
        assert!(engine.wait_for_all(&mut patiently()).is_err());
        engine.set_hook(None);
        engine.push(Task::nothing(), Push::new("unseen", &[], &[])).unwrap();
        engine.wait_for_all(&mut patiently()).unwrap();
        let seen = seen.lock().unwrap();
        let events = |name: &str| -> Vec<Event> {
            seen.iter().filter(|(_, n, _)| n == name).map(|(event, ..)| *event).collect()
        };
        assert_eq!(events("fails"), [Event::Queued, Event::Started, Event::Finished]);
        assert_eq!(events("skipped"), [Event::Queued, Event::Finished]);
        assert!(events("unseen").is_empty());
        let id = |name: &str| seen.iter().find(|(_, n, _)| n == name).unwrap().2;
        assert!(seen.iter().all(|(_, name, i)| *i == id(name)) && id("fails") != id("skipped"));
    }
}

#[test]
fn the_poll_ends_a_push_whose_token_is_not_completed() {
    static POLLS: AtomicUsize = AtomicUsize::new(0);
    let engine = NaiveEngine::with_poll(|| match POLLS.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(Error::execution("enough")),
    });
    let v = engine.new_variable();
    let kept: Arc<Mutex<Option<OnComplete>>> = Arc::default();
    let keep = kept.clone();
    let task = Task::asynchronous(move |_, token| *keep.lock().unwrap() = Some(token));
    let given_up = engine.push(task, Push::new("asks", &[], &[v])).unwrap_err();
    assert_eq!((given_up.message(), POLLS.load(Ordering::Relaxed)), ("enough", 2));
    kept.lock().unwrap().take().unwrap().complete(Ok(())); // too late
    let error = wait(&engine, v).unwrap_err();
    assert!(error.message().contains("interrupted"), "{error}");
    assert!(engine.poisoned(v).is_some());
}

/// Forks while another thread holds the locks of the engine nearly all the time; a child that
/// inherits a taken lock would hang.
#[cfg(unix)]
#[test]
fn a_forked_child_finds_no_lock_taken() {
    let engine = NaiveEngine::new();
    let over = AtomicBool::new(false);
    let statuses: Vec<i32> = thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                engine.delete_variable(engine.new_token(), None);
            }
        });
        let statuses = (0..200).map(|_| {
            let held = engine.before_fork();
            // SAFETY: the child calls the engine, whose locks this thread holds, and leaves without
            // a destructor.
            match unsafe { libc::fork() } {
                0 => {
                    // SAFETY: only ends a child that hangs.
                    unsafe { libc::alarm(10) };
                    held.release_in_child();
                    let token = engine.new_token();
                    let done = engine.push(Task::nothing(), Push::new("child", &[], &[token]));
                    // SAFETY: as above.
                    unsafe { libc::_exit(i32::from(done.is_err())) }
                }
                child => {
                    drop(held);
                    let mut status = 0;
                    // SAFETY: waits for the child that was just forked.
                    unsafe { libc::waitpid(child, &mut status, 0) };
                    status
                }
            }
        });
        let statuses = statuses.collect();
        over.store(true, Ordering::Relaxed);
        statuses
    });
    assert!(statuses.iter().all(|&s| s == 0), "{statuses:?}");
}
