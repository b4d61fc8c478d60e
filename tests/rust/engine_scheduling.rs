//! What the threaded engine runs when: endless chains, priorities, cheap operations, late readers.

use rsnet::engine::{Engine, Priority, Prop, Push, RunOn, Task, ThreadedEngine, Var, patiently};
use rsnet::fork_join;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Operations that push themselves again keep a worker busy with its local list; a single task
/// pushed by another thread runs nevertheless, or this test hangs.
#[test]
fn a_single_task_runs_beside_an_endless_chain() {
    fn again(engine: &Arc<ThreadedEngine>, x: Var, stop: &Arc<AtomicBool>) {
        let (inner, stop) = (engine.clone(), stop.clone());
        let task = Task::sync(move |_| {
            if !stop.load(Ordering::Relaxed) {
                again(&inner, x, &stop);
            }
            Ok(())
        });
        engine.push(task, Push::new("again", &[], &[x])).unwrap();
    }
    let engine = Arc::new(ThreadedEngine::with_threads(1));
    let (x, y) = (engine.new_variable(), engine.new_variable());
    let stop = Arc::new(AtomicBool::new(false));
    (0..3).for_each(|_| again(&engine, x, &stop));
    for _ in 0..100 {
        engine.push(Task::nothing(), Push::new("op", &[], &[y])).unwrap();
        engine.wait_to_read(y, &mut patiently()).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    engine.wait_for_all(&mut patiently()).unwrap();
}

#[test]
fn greater_priorities_run_first_and_negative_ones_last() {
    let engine = ThreadedEngine::with_threads(1);
    let (open, gate) = mpsc::channel::<()>();
    let (tell, begun) = mpsc::channel::<()>();
    let holds_the_worker = Task::sync(move |_| {
        tell.send(()).unwrap();
        gate.recv().unwrap();
        Ok(())
    });
    engine.push(holds_the_worker, Push::new("holds", &[], &[])).unwrap();
    begun.recv().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    for priority in [-1, 2, 0, -5, 1, 3, 0, -1] {
        let tell = order.clone();
        let task = Task::sync(move |_| {
            tell.lock().unwrap().push(priority);
            Ok(())
        });
        engine.push(task, Push { priority, ..Push::new("prioritized", &[], &[]) }).unwrap();
    }
    open.send(()).unwrap();
    engine.wait_for_all(&mut patiently()).unwrap();
    assert_eq!(*order.lock().unwrap(), [3, 2, 1, 0, 0, -1, -1, -5]);
}

#[test]
fn cheap_operations_run_as_soon_as_they_are_ready_and_see_their_priority() {
    let engine = ThreadedEngine::with_threads(1);
    let (gate, held, told) = (engine.new_variable(), Arc::new(Mutex::new(None)), Arc::default());
    let (here, keep) = (thread::current().id(), held.clone());
    let holds = Task::asynchronous(move |_, token| *keep.lock().unwrap() = Some(token));
    engine.push(holds, Push { run_on: RunOn::Pusher, ..Push::new("holds", &[], &[gate]) }).unwrap();
    let push_all = |reads: &[_]| {
        let mut all: Vec<_> = [-1, 2, 0, -5, 1, 0].map(|p| (Prop::Normal, p)).into();
        all.extend([(Prop::CpuPrioritized, 0), (Prop::DeleteVar, -1)]);
        for (prop, priority) in all {
            let told: Arc<Mutex<Vec<Priority>>> = Arc::clone(&told);
            let task = Task::sync(move |run| {
                assert_eq!(thread::current().id(), here);
                told.lock().unwrap().push(run.priority);
                Ok(())
            });
            let push =
                Push { run_on: RunOn::Pusher, prop, priority, ..Push::new("short", reads, &[]) };
            engine.push(task, push).unwrap();
        }
        std::mem::take(&mut *told.lock().unwrap())
    };
    use Priority::{High, Low, Normal};
    let mut priorities = [Low(-1), High(2), Normal, Low(-5), High(1), Normal, High(0), High(-1)];
    assert_eq!(push_all(&[]), priorities);
    assert!(push_all(&[gate]).is_empty());
    let token = held.lock().unwrap().take().unwrap();
    token.complete(Ok(()));
    priorities.sort_by_key(|&priority| std::cmp::Reverse(priority));
    assert_eq!(*told.lock().unwrap(), priorities);
    engine.wait_for_all(&mut patiently()).unwrap();
}

/// `wait_for_all` covers operations that other threads run inside their pushes.
#[test]
fn a_wait_for_all_covers_operations_that_other_threads_run_inside_their_pushes() {
    let engine = ThreadedEngine::with_threads(1);
    let (begun, done) = (Barrier::new(4), Arc::new(AtomicUsize::new(0)));
    thread::scope(|s| {
        for _ in 0..3 {
            let (tell, (begins, begun_here)) = (done.clone(), mpsc::channel());
            let (engine, begun) = (&engine, &begun);
            s.spawn(move || {
                let var = [engine.new_variable()];
                let runs = Task::sync(move |_| {
                    begins.send(()).unwrap();
                    thread::sleep(std::time::Duration::from_millis(50));
                    tell.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                });
                s.spawn(move || {
                    let cheap = Push { run_on: RunOn::Pusher, ..Push::new("here", &[], &var) };
                    engine.push(runs, cheap).unwrap();
                });
                begun_here.recv().unwrap();
                begun.wait();
            });
        }
        begun.wait();
        engine.wait_for_all(&mut patiently()).unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 3);
    });
}

/// Pushes more readers than a task has room for while their writer completes: each runs once, after
/// the writer.
#[test]
fn many_readers_are_pushed_while_their_writer_completes() {
    let engine = ThreadedEngine::with_threads(2);
    let (value, read) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let var = [engine.new_variable()];
    for round in 1..=2_000 {
        let write = value.clone();
        let writes = Task::sync(move |_| {
            for _ in 0..round % 64 {
                std::hint::spin_loop(); // ends sometimes before, sometimes among its readers
            }
            write.store(round, Ordering::Relaxed);
            Ok(())
        });
        engine.push(writes, Push::new("write", &[], &var)).unwrap();
        for _ in 0..20 + round % 13 {
            let (value, read) = (value.clone(), read.clone());
            let reads = Task::sync(move |_| {
                assert_eq!(value.load(Ordering::Relaxed), round);
                read.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            engine.push(reads, Push::new("read", &var, &[])).unwrap();
        }
    }
    engine.wait_for_all(&mut patiently()).unwrap();
    let expected: usize = (1..=2_000).map(|round| 20 + round % 13).sum();
    assert_eq!(read.load(Ordering::Relaxed), expected);
}

/// All workers but one are held up, and the last one runs a kernel of many short parts: beside it
/// only the waiter can run some.
#[test]
fn a_waiter_helps_a_kernel() {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    if cores == 1 {
        return; // the waiter leaves the core to the worker
    }
    let engine = ThreadedEngine::with_threads(cores);
    let (x, gate) = (engine.new_variable(), Arc::new(Barrier::new(cores)));
    for _ in 1..cores {
        let gate = gate.clone();
        let holds = Task::sync(move |_| {
            gate.wait();
            Ok(())
        });
        engine.push(holds, Push::new("holds", &[], &[])).unwrap();
    }
    let waiter = thread::current().id();
    // Again, for long, if the waiter parks before it sees the kernel, or is on the worker's core,
    // as it may be on a busy machine.
    let started = Instant::now();
    let mut helped = false;
    while !helped && started.elapsed() < Duration::from_secs(60) {
        let (begun, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (tells, sees) = (begun.clone(), seen.clone());
        let kernel = Task::sync(move |_| {
            fork_join::split(20_000, |_| {
                tells.store(true, Ordering::Relaxed);
                if thread::current().id() == waiter {
                    sees.store(true, Ordering::Relaxed);
                }
            });
            Ok(())
        });
        engine.push(kernel, Push::new("kernel", &[], &[x])).unwrap();
        while !begun.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        engine.wait_to_read(x, &mut patiently()).unwrap();
        helped = seen.load(Ordering::Relaxed);
    }
    gate.wait();
    engine.wait_for_all(&mut patiently()).unwrap();
    assert!(helped);
}
