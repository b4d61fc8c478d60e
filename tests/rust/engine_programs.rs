//! Random programs have the same outcome on the threaded engine as on the naive one: values,
//! errors, poison and versions.

use proptest::prelude::*;
use rsnet::engine::{
    Engine, NaiveEngine, Operation, Prop, Push, Repeated, RunOn, Task, ThreadedEngine, Var,
    patiently, segment,
};
use rsnet::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Returns,
    /// By completing a token on another thread.
    Later,
    Fails,
    FailsLater,
    Panics,
}

#[derive(Clone, Debug)]
struct Op {
    reads: Vec<usize>,
    writes: Vec<usize>,
    /// The number of writes that are overwritten whole.
    overwrites: usize,
    end: End,
    cheap: bool,
    prop: Prop,
    priority: i32,
}

#[derive(Clone, Debug)]
enum Step {
    Run(Op),
    /// A prepared operation, pushed the given number of times and deleted.
    Repeat(Op, usize),
    /// Prepared operations run as one.
    Segment(Vec<Op>),
    /// Reads one variable and writes another: exclusively if none is in use, else by a push.
    Exclusive(usize, usize),
    /// Replaces a variable by a new one.
    Replace(usize),
    /// Uses a deleted variable in one of several ways.
    Stale(usize, usize),
    /// Waits for a variable, which reports its error.
    Wait(usize),
    WaitToRead(usize),
    WaitAll,
    /// Changes the number of threads.
    Resize(usize),
}

fn op(vars: usize) -> impl Strategy<Value = Op> {
    let some = prop::collection::btree_set(0..vars, 0..7);
    let end = prop_oneof![
        20 => Just(End::Returns),
        4 => Just(End::Later),
        1 => Just(End::Fails),
        1 => Just(End::FailsLater),
        1 => Just(End::Panics),
    ];
    let prop = prop_oneof![8 => Just(Prop::Normal), 1 => Just(Prop::CpuPrioritized), 1 => Just(Prop::NoSkip)];
    (some, 0..7usize, 0..3usize, end, any::<bool>(), prop, -2..3i32).prop_map(
        |(names, reads, overwrites, end, cheap, prop, priority)| {
            let names: Vec<usize> = names.into_iter().collect();
            let (reads, writes) = names.split_at(reads.min(names.len()));
            let overwrites = overwrites.min(writes.len());
            let (reads, writes) = (reads.to_vec(), writes.to_vec());
            Op { reads, writes, overwrites, end, cheap, prop, priority }
        },
    )
}

fn program(vars: usize, length: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        60 => op(vars).prop_map(Step::Run),
        6 => (op(vars), 1..4usize).prop_map(|(op, times)| Step::Repeat(op, times)),
        4 => prop::collection::vec(op(vars), 1..5).prop_map(Step::Segment),
        6 => (0..vars, 1..vars).prop_map(move |(r, by)| Step::Exclusive(r, (r + by) % vars)),
        1 => (1..5usize).prop_map(Step::Resize),
        2 => (0..vars).prop_map(Step::WaitToRead),
        3 => (0..vars).prop_map(Step::Replace),
        2 => (0..64usize, 0..STALE_USES).prop_map(|(at, how)| Step::Stale(at, how)),
        3 => (0..vars).prop_map(Step::Wait),
        1 => Just(Step::WaitAll),
    ];
    prop::collection::vec(step, 1..length)
}

/// The outcome of a program, including the texts of errors.
#[derive(Debug, PartialEq)]
struct Outcome {
    values: Vec<u64>,
    poison: Vec<Option<String>>,
    versions: Vec<u64>,
    raised: Vec<Option<String>>,
}

type Completion = Box<dyn FnOnce() + Send>;

/// Completes tokens on two threads, in pairs and reversed, so that the order differs from that of
/// the pushes.
fn completers() -> (mpsc::Sender<Completion>, [thread::JoinHandle<()>; 2]) {
    let (send, receive) = mpsc::channel::<Completion>();
    let receive = Arc::new(Mutex::new(receive));
    let threads = [0, 1].map(|_| {
        let receive = receive.clone();
        thread::spawn(move || {
            loop {
                let (first, second) = {
                    let receive = receive.lock().unwrap();
                    let Ok(first) = receive.recv() else { return };
                    (first, receive.try_recv().ok())
                };
                if let Some(second) = second {
                    second();
                }
                first();
            }
        })
    });
    (send, threads)
}

/// Ways of using a deleted variable; see [`Machine::use_stale`].
const STALE_USES: usize = 8;

fn text(r: Result<()>) -> Option<String> {
    r.err().map(|e| e.to_string())
}

struct Machine<'a> {
    engine: &'a dyn Engine,
    vars: Vec<Var>,
    /// Handles of deleted variables.
    stale: Vec<Var>,
    cells: Vec<Arc<AtomicU64>>,
    complete: mpsc::Sender<Completion>,
    raised: Vec<Option<String>>,
}

impl Machine<'_> {
    fn run(mut self, steps: &[Step], only_own: bool) -> Outcome {
        for (i, step) in steps.iter().enumerate() {
            match step {
                Step::Run(op) => self.push(i, op),
                Step::Repeat(op, times) => {
                    let operation = self.prepare(i, op);
                    for _ in 0..*times {
                        let ctx = Default::default();
                        self.engine.push_operation(&operation, ctx, op.priority).unwrap();
                    }
                    self.engine.delete_operation(operation);
                }
                Step::Segment(ops) => {
                    let parts: Vec<Operation> =
                        ops.iter().enumerate().map(|(k, op)| self.prepare(i + k, op)).collect();
                    let whole = segment("whole", &parts).unwrap();
                    self.engine.push_operation(&whole, Default::default(), 0).unwrap();
                }
                Step::Exclusive(r, w) => self.run_exclusive(i, *r, *w),
                Step::Resize(n) => self.engine.set_num_threads(*n).unwrap(),
                Step::WaitToRead(v) => {
                    let r = self.engine.wait_to_read(self.vars[*v], &mut patiently());
                    self.raised.push(text(r));
                }
                Step::Replace(v) => {
                    let cell = self.cells[*v].clone();
                    self.engine.delete_variable(
                        self.vars[*v],
                        Some(Box::new(move || cell.store(0, Ordering::Relaxed))),
                    );
                    self.stale.push(self.vars[*v]);
                    self.vars[*v] = self.engine.new_variable();
                    self.cells[*v] = Arc::new(AtomicU64::new(0));
                }
                Step::Stale(at, how) if !self.stale.is_empty() => {
                    let text = self.use_stale(self.stale[at % self.stale.len()], *how);
                    self.raised.push(Some(text));
                }
                Step::Stale(..) => {}
                Step::Wait(v) => {
                    let r = self.engine.wait_for_var(self.vars[*v], &mut patiently());
                    self.raised.push(text(r));
                }
                Step::WaitAll if !only_own => {
                    self.raised.push(text(self.engine.wait_for_all(&mut patiently())));
                }
                Step::WaitAll => {}
            }
        }
        for &v in &self.vars {
            self.raised.push(text(self.engine.wait_for_var(v, &mut patiently())));
        }
        let poison = |&v| self.engine.poisoned(v).map(|e| e.to_string());
        Outcome {
            values: self.cells.iter().map(|c| c.load(Ordering::Relaxed)).collect(),
            poison: self.vars.iter().map(poison).collect(),
            versions: self.vars.iter().map(|&v| self.engine.version(v)).collect(),
            raised: self.raised,
        }
    }

    /// The effect of operation `i` on the cells.
    fn update(&self, i: usize, op: &Op) -> impl Fn() + Send + Sync + 'static {
        let cells = |names: &[usize]| names.iter().map(|&v| self.cells[v].clone()).collect();
        let (reads, writes): (Vec<Arc<AtomicU64>>, Vec<Arc<AtomicU64>>) =
            (cells(&op.reads), cells(&op.writes));
        let overwrites = op.overwrites;
        move || {
            let sum = reads.iter().fold(i as u64, |s, r| {
                s.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(r.load(Ordering::Relaxed))
            });
            for (k, w) in writes.iter().enumerate() {
                let old = if k < overwrites { 0 } else { w.load(Ordering::Relaxed) };
                w.store(old.wrapping_mul(31).wrapping_add(sum), Ordering::Relaxed);
            }
        }
    }

    /// Prepares the operation; one that would end by a token returns instead.
    fn prepare(&self, i: usize, op: &Op) -> Operation {
        let (update, end) = (self.update(i, op), op.end);
        let run: Repeated = Arc::new(move |_| match end {
            End::Returns | End::Later => {
                update();
                Ok(())
            }
            End::Fails | End::FailsLater => Err(Error::execution(format!("step {i}"))),
            End::Panics => panic!("step {i}"),
        });
        let names = |list: &[usize]| list.iter().map(|&v| self.vars[v]).collect::<Vec<_>>();
        let (reads, writes) = (names(&op.reads), names(&op.writes));
        let push = Push {
            overwrites: op.overwrites,
            run_on: RunOn::pusher_if(op.cheap),
            prop: op.prop,
            ..Push::new("again", &reads, &writes)
        };
        self.engine.new_operation(run, push).unwrap()
    }

    fn run_exclusive(&self, i: usize, r: usize, w: usize) {
        let op = Op {
            reads: vec![r],
            writes: vec![w],
            overwrites: 0,
            end: End::Returns,
            cheap: true,
            prop: Prop::Normal,
            priority: 0,
        };
        let update = self.update(i, &op);
        let (reads, writes) = ([self.vars[r]], [self.vars[w]]);
        if !self.engine.try_run_exclusive(&reads, &writes, &mut || update()) {
            self.push(i, &op);
        }
    }

    /// Uses a deleted variable, whose slot may be reused, and returns the result as text, without
    /// digits, as slots differ between engines.
    fn use_stale(&self, var: Var, how: usize) -> String {
        let e = self.engine;
        let prepare_and_push = |push| {
            let operation = e.new_operation(Arc::new(|_| Ok(())), push)?;
            e.push_operation(&operation, Default::default(), 0)
        };
        let refused = match how {
            0 => e.push(Task::nothing(), Push::new("stale", &[var], &[])),
            1 => e.push(Task::nothing(), Push::new("stale", &[], &[self.vars[0], var])),
            2 => prepare_and_push(Push::new("stale", &[self.vars[0]], &[var])),
            3 => e.wait_for_var(var, &mut patiently()),
            4 => e.wait_to_read(var, &mut patiently()),
            5 => return format!("{:?}", e.poisoned(var).map(|e| e.to_string())),
            6 => {
                return format!(
                    "{} {}",
                    e.version(var),
                    e.try_run_exclusive(&[var], &[], &mut || ())
                );
            }
            _ => {
                e.delete_variable(var, Some(Box::new(|| panic!("deleted twice"))));
                return String::new();
            }
        };
        let text = refused.expect_err("a deleted variable was accepted").to_string();
        text.chars().filter(|c| !c.is_ascii_digit()).collect()
    }

    fn push(&self, i: usize, op: &Op) {
        let update = self.update(i, op);
        let overwrites = op.overwrites;
        let end = op.end;
        let complete = self.complete.clone();
        let task = match end {
            End::Returns => Task::sync(move |_| {
                update();
                Ok(())
            }),
            End::Fails => Task::sync(move |_| Err(Error::execution(format!("step {i}")))),
            End::Panics => Task::sync(move |_| panic!("step {i}")),
            End::Later | End::FailsLater => Task::asynchronous(move |_, token| {
                let finish = move || {
                    if end == End::Later {
                        update();
                        token.complete(Ok(()));
                    } else {
                        token.complete(Err(Error::execution(format!("step {i}"))));
                    }
                };
                complete.send(Box::new(finish)).unwrap();
            }),
        };
        let names = |list: &[usize]| list.iter().map(|&v| self.vars[v]).collect::<Vec<_>>();
        let (reads, writes) = (names(&op.reads), names(&op.writes));
        let name = format!("op{}", i % 5);
        let push = Push {
            overwrites,
            run_on: RunOn::pusher_if(op.cheap),
            prop: op.prop,
            priority: op.priority,
            ..Push::new(&name, &reads, &writes)
        };
        self.engine.push(task, push).unwrap();
    }
}

fn run(engine: &dyn Engine, vars: usize, steps: &[Step], only_own: bool) -> Outcome {
    let (complete, threads) = completers();
    let machine = Machine {
        engine,
        vars: (0..vars).map(|_| engine.new_variable()).collect(),
        stale: Vec::new(),
        cells: (0..vars).map(|_| Arc::default()).collect(),
        complete,
        raised: Vec::new(),
    };
    let outcome = machine.run(steps, only_own);
    threads.into_iter().for_each(|t| t.join().unwrap());
    outcome
}

fn silence_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let ours = thread::current().name().is_some_and(|n| n.starts_with("rsnet-compute"));
            if !ours && !info.to_string().contains("step ") {
                before(info);
            }
        }));
    });
}

/// Clears the texts of errors if the program calls `wait_for_all`: it raises the error of the
/// operation that failed first, which depends on timing.
fn comparable(mut o: Outcome, steps: &[Step]) -> Outcome {
    if steps.iter().any(|s| matches!(s, Step::WaitAll)) {
        o.raised.iter_mut().flatten().for_each(String::clear);
    }
    o
}

proptest! {
    #![proptest_config(crate::cases(60))]

    #[test]
    fn threaded_matches_naive(steps in program(12, 1500), threads in 1..4usize) {
        silence_panics();
        let naive = comparable(run(&NaiveEngine::new(), 12, &steps, false), &steps);
        let engine = ThreadedEngine::with_threads(threads);
        let threaded = comparable(run(&engine, 12, &steps, false), &steps);
        prop_assert_eq!(naive, threaded);
    }

    #[test]
    fn several_pushers_match_naive(
        programs in prop::collection::vec(program(8, 500), 2..5),
        threads in 1..4usize,
    ) {
        silence_panics();
        let engine = ThreadedEngine::with_threads(threads);
        let outcomes: Vec<Outcome> = thread::scope(|s| {
            let engine = &engine;
            let handles: Vec<_> =
                programs.iter().map(|p| s.spawn(move || run(engine, 8, p, true))).collect();
            handles.into_iter().map(|h| h.join().unwrap()).collect()
        });
        for (program, outcome) in programs.iter().zip(outcomes) {
            prop_assert_eq!(run(&NaiveEngine::new(), 8, program, true), outcome);
        }
    }
}

/// Order-sensitive sums over 64 variables per pusher, with far more operations than any queue
/// holds.
fn stress(operations: u64, pushers: u64) {
    let engine = ThreadedEngine::with_threads(2);
    let expected: Vec<Mutex<u64>> = (0..64 * pushers).map(|_| Mutex::new(0)).collect();
    let cells: Arc<Vec<AtomicU64>> =
        Arc::new((0..64 * pushers).map(|_| AtomicU64::new(0)).collect());
    let vars: Vec<Var> = cells.iter().map(|_| engine.new_variable()).collect();
    thread::scope(|s| {
        for p in 0..pushers {
            let (engine, vars, cells, expected) = (&engine, &vars, &cells, &expected);
            s.spawn(move || {
                let mut x = p + 1;
                for i in 0..operations / pushers {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let at = |shift: u32| (p * 64 + (x >> shift) % 64) as usize;
                    let (r, w) = (at(40), at(20));
                    if r == w {
                        continue;
                    }
                    let c = cells.clone();
                    let step = move |_: &_| {
                        let v = c[r].load(Ordering::Relaxed).wrapping_add(i);
                        let old = c[w].load(Ordering::Relaxed);
                        c[w].store(old.wrapping_mul(31).wrapping_add(v), Ordering::Relaxed);
                        Ok(())
                    };
                    let old = *expected[w].lock().unwrap();
                    let read = (*expected[r].lock().unwrap()).wrapping_add(i);
                    *expected[w].lock().unwrap() = old.wrapping_mul(31).wrapping_add(read);
                    let (reads, writes) = ([vars[r]], [vars[w]]);
                    engine.push(Task::sync(step), Push::new("step", &reads, &writes)).unwrap();
                    if i % 4096 == 0 {
                        engine.wait_to_read(vars[w], &mut patiently()).unwrap();
                    }
                }
            });
        }
    });
    engine.wait_for_all(&mut patiently()).unwrap();
    for (cell, expected) in cells.iter().zip(expected) {
        assert_eq!(cell.load(Ordering::Relaxed), expected.into_inner().unwrap());
    }
}

#[test]
fn a_million_operations_from_two_pushers_keep_their_order() {
    stress(1_000_000, 2);
}

#[test]
fn ten_million_operations_keep_their_order() {
    stress(10_000_000, 3);
}
