//! The cost of the engine itself: nanoseconds per empty task, waiting included.
//!
//! Prints `pattern=NAME workers=N ns_per_task=X`, medians of `RUNS` runs of `TASKS` tasks. The
//! workers do not include the pushing thread. Each pattern first runs with an order-sensitive
//! update, whose result is compared with a sequential run; then empty tasks are timed. An argument
//! selects the patterns whose names contain it.
//!
//! Lower bounds of the machine are printed first and last:
//!
//! - `atomic_rmw`: an uncontended atomic addition, to compare hosts.
//! - `handoff`: passing the memory of a task to another core and back.
//! - `handoff_edges`: the same with dependencies as in `graph1000`, notified one by one.
//! - `floor_inline`: the minimum for a task that its pusher runs.
//! - `floor_naive`: the same without any order.
//! - `two_threads`: the joint throughput of two threads relative to one. Near 1 pushing and running
//!   share one core, and their times add up.
//!
//! If a C compiler with OpenMP is available, libgomp's `task depend` is measured in the same run
//! (`peer=libgomp`, with its time as a multiple of the engine's).

#[path = "engine/limit.rs"]
mod limit;
#[path = "engine/patterns.rs"]
mod patterns;
#[path = "engine/peer.rs"]
mod peer;

use patterns::{Access, Pattern, patterns};
use rsnet::engine::{
    Engine, NaiveEngine, Operation, Push, RunOn, Task, ThreadedEngine, Var, patiently, segment,
};
use rsnet::kernels::parallel::parallel_for;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TASKS: usize = 20_000;
const RUNS: usize = 15;

type Cells = Arc<Vec<AtomicU64>>;

fn update(cells: &[AtomicU64], access: &Access, i: usize) {
    let sum = access
        .reads
        .iter()
        .fold(i as u64, |s, &r| s.wrapping_mul(7).wrapping_add(cells[r].load(Ordering::Relaxed)));
    for &w in &access.writes {
        let old = cells[w].load(Ordering::Relaxed);
        cells[w].store(old.wrapping_mul(31).wrapping_add(sum), Ordering::Relaxed);
    }
}

fn cells(n: usize) -> Cells {
    Arc::new((0..n).map(|_| AtomicU64::new(0)).collect())
}

fn values(cells: &[AtomicU64]) -> Vec<u64> {
    cells.iter().map(|c| c.load(Ordering::Relaxed)).collect()
}

/// The lists of variables of each task.
fn lists(tasks: &[Access], vars: &[Var]) -> Vec<(Vec<Var>, Vec<Var>)> {
    let list = |names: &[usize]| names.iter().map(|&v| vars[v]).collect::<Vec<_>>();
    tasks.iter().map(|t| (list(&t.reads), list(&t.writes))).collect()
}

fn new_vars(engine: &dyn Engine, n: usize) -> Vec<Var> {
    (0..n).map(|_| engine.new_variable()).collect()
}

/// Runs the pattern with an order-sensitive update; panics if the order is violated.
fn check(engine: &dyn Engine, p: &Pattern, cheap: bool, asynchronous: bool) {
    let vars = new_vars(engine, p.vars);
    let (expected, got) = (cells(p.vars), cells(p.vars));
    for (i, (t, (reads, writes))) in p.tasks.iter().zip(lists(&p.tasks, &vars)).enumerate() {
        update(&expected, t, i);
        let (got, t) = (got.clone(), t.clone());
        let task = if asynchronous {
            Task::asynchronous(move |_, token| {
                update(&got, &t, i);
                token.complete(Ok(()));
            })
        } else {
            Task::sync(move |_| {
                update(&got, &t, i);
                Ok(())
            })
        };
        engine
            .push(
                task,
                Push { run_on: RunOn::pusher_if(cheap), ..Push::new("task", &reads, &writes) },
            )
            .unwrap();
    }
    engine.wait_for_all(&mut patiently()).unwrap();
    assert_eq!(values(&expected), values(&got), "{}: order violated", p.name);
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Median nanoseconds of `f` for each of `n`.
fn time(n: usize, mut f: impl FnMut()) -> f64 {
    f();
    let run = |_| {
        let start = Instant::now();
        f();
        start.elapsed().as_nanos() as f64 / n as f64
    };
    median((0..RUNS).map(run).collect())
}

fn report(name: &str, workers: usize, ns: f64) {
    println!("pattern={name} workers={workers} ns_per_task={ns:.1}");
}

fn push_empty(engine: &dyn Engine, lists: &[(Vec<Var>, Vec<Var>)], cheap: bool) {
    for (i, (reads, writes)) in lists.iter().enumerate() {
        let task = Task::sync(move |_| {
            black_box(i);
            Ok(())
        });
        engine
            .push(
                task,
                Push { run_on: RunOn::pusher_if(cheap), ..Push::new("task", reads, writes) },
            )
            .unwrap();
    }
}

fn dynamic(p: &Pattern, workers: usize, name: &str, cheap: bool) -> f64 {
    let engine = ThreadedEngine::with_threads(workers);
    check(&engine, p, cheap, false);
    let vars = new_vars(&engine, p.vars);
    let lists = lists(&p.tasks, &vars);
    let ns = time(TASKS, || {
        push_empty(&engine, &lists, cheap);
        engine.wait_for_all(&mut patiently()).unwrap();
    });
    report(name, workers, ns);
    ns
}

fn two_pushers(p: &Pattern) {
    let engine = ThreadedEngine::with_threads(1);
    let halves: Vec<_> = (0..2)
        .map(|k| {
            let vars = new_vars(&engine, p.vars);
            lists(&p.tasks[k * TASKS / 2..(k + 1) * TASKS / 2], &vars)
        })
        .collect();
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| check(&engine, p, false, false));
        }
    });
    let ns = time(TASKS, || {
        std::thread::scope(|s| {
            for half in &halves {
                s.spawn(|| push_empty(&engine, half, false));
            }
        });
        engine.wait_for_all(&mut patiently()).unwrap();
    });
    report("random64_push2", 1, ns);
}

fn asynchronous(p: &Pattern) {
    let engine = ThreadedEngine::with_threads(1);
    check(&engine, p, false, true);
    let vars = new_vars(&engine, p.vars);
    let lists = lists(&p.tasks, &vars);
    let ns = time(TASKS, || {
        for (i, (reads, writes)) in lists.iter().enumerate() {
            let task = Task::asynchronous(move |_, token| {
                black_box(i);
                token.complete(Ok(()));
            });
            engine.push(task, Push::new("task", reads, writes)).unwrap();
        }
        engine.wait_for_all(&mut patiently()).unwrap();
    });
    report("random64_async", 1, ns);
}

fn prepared(engine: &dyn Engine, p: &Pattern, n: usize, got: Option<&Cells>) -> Vec<Operation> {
    let vars = new_vars(engine, p.vars);
    let lists = lists(&p.tasks[..n], &vars);
    let make = |(i, (reads, writes)): (usize, &(Vec<Var>, Vec<Var>))| {
        let push = Push::new("task", reads, writes);
        let (t, got) = (p.tasks[i].clone(), got.cloned());
        let run: rsnet::engine::Repeated = match got {
            Some(got) => Arc::new(move |_| {
                update(&got, &t, i);
                Ok(())
            }),
            None => Arc::new(move |_| {
                black_box(i);
                Ok(())
            }),
        };
        engine.new_operation(run, push).unwrap()
    };
    lists.iter().enumerate().map(make).collect()
}

fn replay(p: &Pattern) {
    let engine = ThreadedEngine::with_threads(1);
    let push_all = |ops: &[Operation]| {
        for _ in 0..TASKS / ops.len() {
            for op in ops {
                engine.push_operation(op, Default::default(), 0).unwrap();
            }
        }
        engine.wait_for_all(&mut patiently()).unwrap();
    };
    let (expected, got) = (cells(p.vars), cells(p.vars));
    (0..TASKS).for_each(|i| update(&expected, &p.tasks[i % 1000], i % 1000));
    push_all(&prepared(&engine, p, 1000, Some(&got)));
    assert_eq!(values(&expected), values(&got), "graph1000_replay");
    let ops = prepared(&engine, p, 1000, None);
    report("graph1000_replay", 1, time(TASKS, || push_all(&ops)));

    let one = |ops: &[Operation]| segment("graph", ops).unwrap();
    let got = cells(p.vars);
    let ops = one(&prepared(&engine, p, 1000, Some(&got)));
    (0..TASKS / 1000).for_each(|_| engine.push_operation(&ops, Default::default(), 0).unwrap());
    engine.wait_for_all(&mut patiently()).unwrap();
    assert_eq!(values(&expected), values(&got), "graph1000_segment");
    let ops = one(&prepared(&engine, p, 1000, None));
    let ns = time(TASKS, || {
        (0..TASKS / 1000).for_each(|_| engine.push_operation(&ops, Default::default(), 0).unwrap());
        engine.wait_for_all(&mut patiently()).unwrap();
    });
    report("graph1000_segment", 1, ns);
}

/// Operations of 1,000 functions each.
fn bulk() {
    let engine = ThreadedEngine::with_threads(1);
    let var = engine.new_variable();
    let count = Arc::new(AtomicU64::new(0));
    let push = || {
        for _ in 0..TASKS / 1000 {
            let functions: Vec<_> =
                (0..1000u64).map(|i| move |c: u64| c.wrapping_mul(31) + i).collect();
            let count = count.clone();
            let task = Task::sync(move |_| {
                let c =
                    functions.iter().fold(count.load(Ordering::Relaxed), |c, f| black_box(f(c)));
                count.store(c, Ordering::Relaxed);
                Ok(())
            });
            engine.push(task, Push::new("bulk", &[], &[var])).unwrap();
        }
        engine.wait_for_all(&mut patiently()).unwrap();
    };
    push();
    let expected = (0..TASKS as u64).fold(0u64, |c, i| c.wrapping_mul(31) + i % 1000);
    assert_eq!(count.load(Ordering::Relaxed), expected, "bulk1000");
    report("bulk1000", 1, time(TASKS, push));
}

fn naive(p: &Pattern) {
    let engine = NaiveEngine::new();
    check(&engine, p, false, false);
    let vars = new_vars(&engine, p.vars);
    let lists = lists(&p.tasks, &vars);
    report("naive", 0, time(TASKS, || push_empty(&engine, &lists, false)));
}

fn new_delete() {
    let engine = ThreadedEngine::with_threads(1);
    let ns = time(TASKS, || {
        for _ in 0..TASKS {
            let var = engine.new_variable();
            engine.delete_variable(var, None);
        }
    });
    report("new_delete_variable", 1, ns);
}

/// Waits for each of `n` tasks of `us` microseconds.
fn push_wait(name: &str, n: usize, us: u64) {
    for workers in [1, 2] {
        let engine = ThreadedEngine::with_threads(workers);
        let var = engine.new_variable();
        let ns = time(n, || {
            for _ in 0..n {
                let task = Task::sync(move |_| {
                    // Reading the clock takes a fourth of an empty task and its wait.
                    if us > 0 {
                        burn(Duration::from_micros(us));
                    }
                    Ok(())
                });
                engine.push(task, Push::new("task", &[], &[var])).unwrap();
                engine.wait_to_read(var, &mut patiently()).unwrap();
            }
        });
        report(name, workers, ns);
    }
}

/// The median time from a push to the start of its task, on a worker that has had no work for
/// `gap_us`.
fn push_to_start(gap_us: u64) -> f64 {
    const PUSHES: usize = 500;
    let engine = ThreadedEngine::with_threads(1);
    let seen: Arc<Mutex<Vec<f64>>> = Arc::default();
    for _ in 0..PUSHES {
        burn(Duration::from_micros(gap_us));
        let (seen, pushed) = (seen.clone(), Instant::now());
        let task = Task::sync(move |_| {
            let elapsed = pushed.elapsed();
            seen.lock().unwrap().push(elapsed.as_nanos() as f64);
            Ok(())
        });
        engine.push(task, Push::new("task", &[], &[])).unwrap();
    }
    engine.wait_for_all(&mut patiently()).unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen.len(), PUSHES, "push_to_start");
    median(seen)
}

fn pushes_to_start() {
    for gap_us in [50, 200, 1000] {
        report(&format!("push_to_start_{gap_us}us"), 1, push_to_start(gap_us));
    }
}

fn burn(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

const HALF: Duration = Duration::from_micros(50);

fn halves() -> Task {
    Task::sync(|_| {
        parallel_for(2, 1, |part| part.for_each(|_| burn(HALF)));
        Ok(())
    })
}

/// The median excess of the kernel of [`halves`] over its ideal time, after a gap.
fn kernel_excess(engine: &ThreadedEngine, gap_us: u64) -> f64 {
    let var = engine.new_variable();
    let excess: Arc<Mutex<Vec<f64>>> = Arc::default();
    for _ in 0..200 {
        // The gap is an operation as well, so the waiter is parked and both workers are in their
        // loops.
        let gap = Task::sync(move |_| {
            burn(Duration::from_micros(gap_us));
            Ok(())
        });
        engine.push(gap, Push::new("gap", &[], &[var])).unwrap();
        let seen = excess.clone();
        let kernel = Task::sync(move |_| {
            let start = Instant::now();
            parallel_for(2, 1, |part| part.for_each(|_| burn(HALF)));
            seen.lock().unwrap().push((start.elapsed() - HALF).as_nanos() as f64);
            Ok(())
        });
        engine.push(kernel, Push::new("kernel", &[], &[var])).unwrap();
    }
    engine.wait_to_read(var, &mut patiently()).unwrap();
    median(std::mem::take(&mut excess.lock().unwrap()))
}

/// Kernels of two halves of 50 us on two workers: the excess over 50 us after a gap, and the time
/// of a chain relative to the ideal, alone and together with 100 serial tasks of 50 us.
fn kernels() {
    for gap_us in [2, 20, 100] {
        // Several engines, as the placement of their threads differs.
        let of_engine = |_| kernel_excess(&ThreadedEngine::with_threads(2), gap_us);
        let excess: Vec<f64> = (0..5).map(of_engine).collect();
        let worst = excess.iter().copied().fold(0.0, f64::max);
        let excess = median(excess);
        println!("kernel_gap_us={gap_us} workers=2 excess_ns={excess:.0} worst={worst:.0}");
    }
    let engine = ThreadedEngine::with_threads(2);
    let var = engine.new_variable();
    let chain = |beside: usize| {
        let start = Instant::now();
        for _ in 0..40 {
            engine.push(halves(), Push::new("kernel", &[], &[var])).unwrap();
        }
        for _ in 0..beside {
            let task = Task::sync(|_| {
                burn(HALF);
                Ok(())
            });
            engine.push(task, Push::new("serial", &[], &[])).unwrap();
        }
        engine.wait_for_all(&mut patiently()).unwrap();
        let ideal = HALF * (40 + beside as u32 / 2);
        start.elapsed().as_secs_f64() / ideal.as_secs_f64()
    };
    for beside in [0, 100] {
        let ratio = median((0..RUNS).map(|_| chain(beside)).collect());
        println!("kernel_chain40 beside={beside} workers=2 of_ideal={ratio:.3}");
    }
}

/// Prints the microseconds of processor time used in a second that starts a millisecond after the
/// last task; without workers it is the time of the sleeping thread itself.
fn idle() {
    fn used() -> Duration {
        // SAFETY: fills a plain structure, for which zeros are valid.
        let usage = unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        time(usage.ru_utime) + time(usage.ru_stime)
    }
    fn sleep(workers: usize) {
        std::thread::sleep(Duration::from_millis(1));
        let before = used();
        std::thread::sleep(Duration::from_secs(1));
        let used = (used() - before).as_micros();
        println!("pattern=idle workers={workers} cpu_us_per_s={used}");
    }
    sleep(0);
    let engine = ThreadedEngine::with_threads(2);
    for _ in 0..1000 {
        engine.push(Task::sync(|_| Ok(())), Push::new("task", &[], &[])).unwrap();
    }
    engine.wait_for_all(&mut patiently()).unwrap();
    sleep(2);
}

fn atomic_rmw() {
    let n = AtomicU64::new(0);
    let ns = time(1_000_000, || {
        for _ in 0..1_000_000 {
            black_box(&n).fetch_add(1, Ordering::SeqCst);
        }
    });
    report("atomic_rmw", 0, ns);
}

/// The lower bounds of the machine, measured before and after the patterns, since the load of a
/// shared machine changes.
fn limits(graph: &Pattern) {
    atomic_rmw();
    report("handoff", 1, limit::handoff());
    report("handoff_edges", 1, limit::handoff_edges(&graph.tasks));
    report("floor_inline", 0, limit::inline());
    report("floor_naive", 0, limit::naive());
    println!("pattern=two_threads gain={:.2}", limit::two_threads());
}

fn main() {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let wanted = |name: &str| name.contains(&filter);
    let patterns = patterns();
    let of = |name| patterns.iter().find(|p| p.name == name).expect("a known pattern");
    let (random, graph) = (of("random64"), of("graph1000"));
    limits(graph);
    let libgomp = peer::Libgomp::build();
    if let Err(reason) = &libgomp {
        println!("peer=libgomp skipped: {reason}");
    }
    for workers in [1, 2] {
        for p in patterns.iter().filter(|p| wanted(p.name)) {
            let ours = dynamic(p, workers, p.name, false);
            let Ok(libgomp) = &libgomp else { continue };
            let head = format!("pattern={} peer=libgomp workers={workers}", p.name);
            match libgomp.measure(p.name, workers) {
                Ok(ns) => println!("{head} ns_per_task={ns:.1} ratio={:.1}", ns / ours),
                Err(reason) => println!("{head} failed: {reason}"),
            }
        }
    }
    let rest: [(&str, &dyn Fn()); 12] = [
        ("random64_push2", &|| two_pushers(random)),
        ("random64_async", &|| asynchronous(random)),
        ("random64_inline", &|| {
            dynamic(random, 1, "random64_inline", true);
        }),
        ("graph1000_replay_segment", &|| replay(graph)),
        ("bulk1000", &bulk),
        ("naive", &|| naive(random)),
        ("new_delete_variable", &new_delete),
        ("push_wait", &|| push_wait("push_wait", TASKS, 0)),
        ("push_wait_5us", &|| push_wait("push_wait_5us", 1000, 5)),
        ("push_to_start", &pushes_to_start),
        ("kernels", &kernels),
        ("idle", &idle),
    ];
    for (name, run) in rest {
        if wanted(name) {
            run();
        }
    }
    limits(graph);
}
