//! A sequential reference of the engine's rules, and random programs that compare both engines with
//! it.
//!
//! The reference shares no code with the engines: plain vectors and one function per rule.

use proptest::prelude::*;
use rsnet::Error;
use rsnet::engine::{Engine, NaiveEngine, Prop, Push, RunOn, Task, ThreadedEngine, Var, patiently};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

/// An operation: variables by index, how many writes are overwritten, and whether it fails.
#[derive(Clone, Debug)]
struct Op {
    reads: Vec<usize>,
    writes: Vec<usize>,
    overwrites: usize,
    no_skip: bool,
    fails: bool,
    cheap: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Push(Op),
    /// Replaces a variable by a new one: bytes, or a token.
    Replace(usize, bool),
    Wait(usize),
    WaitToRead(usize),
    WaitForAll,
    /// Pushes on a variable that was deleted.
    UseDeleted,
}

impl Step {
    fn is_wait(&self) -> bool {
        matches!(self, Step::Wait(_) | Step::WaitToRead(_) | Step::WaitForAll)
    }
}

/// The outcome of a program: values, versions and poison of the variables, and the errors raised.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    values: Vec<u64>,
    versions: Vec<u64>,
    poison: Vec<Option<String>>,
    raised: Vec<Option<String>>,
    deleted: Vec<u64>,
}

/// The new value of a written variable: depends on everything that was read, and on the order.
fn mix(step: usize, old: u64, read: &[u64]) -> u64 {
    let sum = read.iter().fold(step as u64, |s, r| s.wrapping_mul(1_000_003).wrapping_add(*r));
    old.wrapping_mul(31).wrapping_add(sum)
}

// ---- the reference ----

/// A failure: its message, and whether it was reported.
struct Failure(String, bool);

#[derive(Clone, Default)]
struct Variable {
    value: u64,
    version: u64,
    is_token: bool,
    /// The failure whose report is due at a wait for this variable.
    unreported: Option<usize>,
    /// The failure because of which the bytes are missing.
    poison: Option<usize>,
}

#[derive(Default)]
struct Reference {
    vars: Vec<Variable>,
    failures: Vec<Failure>,
    deleted: Vec<u64>,
    raised: Vec<Option<String>>,
}

impl Reference {
    /// The failure that skips a user of variable `v`.
    fn active(&self, v: usize) -> Option<usize> {
        let var = &self.vars[v];
        if var.is_token { var.unreported.filter(|&f| !self.failures[f].1) } else { var.poison }
    }

    /// Reports failure `f`; returns `None` if it was reported before.
    fn report(&mut self, f: usize) -> Option<String> {
        let Failure(text, reported) = &mut self.failures[f];
        (!std::mem::replace(reported, true)).then(|| text.clone())
    }

    fn push(&mut self, step: usize, op: &Op) {
        let sources = || op.reads.iter().chain(&op.writes[op.overwrites..]).copied();
        let skip = if op.no_skip { None } else { sources().find(|&v| self.active(v).is_some()) };
        // A skipped operation passes on both facts of the variable that skips it.
        let failed = match (skip, op.fails) {
            (Some(v), _) => Some((self.active(v), self.vars[v].unreported)),
            (None, true) => {
                self.failures.push(Failure(format!("step {step}"), false));
                let f = self.failures.len() - 1;
                Some((Some(f), Some(f)))
            }
            (None, false) => None,
        };
        let read: Vec<u64> = op.reads.iter().map(|&v| self.vars[v].value).collect();
        for (k, &v) in op.writes.iter().enumerate() {
            let var = &mut self.vars[v];
            var.version += 1;
            match failed {
                Some((poison, unreported)) => {
                    var.poison = if var.is_token { None } else { poison };
                    var.unreported = unreported;
                }
                None => {
                    let old = if k < op.overwrites { 0 } else { var.value };
                    var.value = mix(step, old, &read);
                    if k < op.overwrites {
                        var.poison = None;
                    }
                }
            }
        }
    }

    /// Counts the write of [`settle`].
    fn settle(&mut self) {
        self.vars.iter_mut().for_each(|v| v.version += 1);
    }

    fn wait(&mut self, v: usize) {
        let unreported = self.vars[v].unreported.take();
        let raised = unreported.and_then(|f| self.report(f));
        self.raised.push(raised);
    }

    fn wait_for_all(&mut self) {
        let all = 0..self.failures.len();
        let raised: Vec<String> = all.filter_map(|f| self.report(f)).collect();
        // Which of several failures came first is not determined; that there was one is.
        self.raised.push(raised.first().map(|_| "some".to_owned()));
    }

    fn run(mut self, n: usize, steps: &[Step]) -> Outcome {
        self.vars = vec![Variable::default(); n];
        for (i, step) in steps.iter().enumerate() {
            if step.is_wait() {
                self.settle();
            }
            match step {
                Step::Push(op) => self.push(i, op),
                Step::Replace(v, is_token) => {
                    let new = Variable { is_token: *is_token, ..Variable::default() };
                    self.deleted.push(std::mem::replace(&mut self.vars[*v], new).value);
                }
                Step::Wait(v) | Step::WaitToRead(v) => self.wait(*v),
                Step::WaitForAll => self.wait_for_all(),
                Step::UseDeleted if self.deleted.is_empty() => {}
                Step::UseDeleted => self.raised.push(Some("deleted".to_owned())),
            }
        }
        self.settle();
        (0..n).for_each(|v| self.wait(v));
        self.wait_for_all();
        let poison = |v| self.active(v).map(|f| self.failures[f].0.clone());
        Outcome {
            values: self.vars.iter().map(|v| v.value).collect(),
            versions: self.vars.iter().map(|v| v.version).collect(),
            poison: (0..n).map(poison).collect(),
            raised: self.raised,
            deleted: self.deleted,
        }
    }
}

// ---- an engine ----

/// Completes everything pushed on `vars` without raising errors. A wait reports an error, after
/// which pending operations on tokens run again; without settling first, timing would decide which
/// of them are skipped.
fn settle(engine: &dyn Engine, vars: &[Var]) {
    let (send, receive) = mpsc::channel();
    let task = Task::sync(move |_| {
        send.send(()).expect("the test waits");
        Ok(())
    });
    let push = Push { prop: Prop::NoSkip, ..Push::new("settle", &[], vars) };
    engine.push(task, push).unwrap();
    receive.recv().unwrap();
}

fn run(engine: &dyn Engine, n: usize, steps: &[Step]) -> Outcome {
    let cell = || Arc::new(AtomicU64::new(0));
    let mut vars: Vec<Var> = (0..n).map(|_| engine.new_variable()).collect();
    let mut cells: Vec<Arc<AtomicU64>> = (0..n).map(|_| cell()).collect();
    let (mut raised, mut old) = (Vec::new(), None);
    let deleted: Arc<Mutex<Vec<(usize, u64)>>> = Arc::default();
    let message = |r: rsnet::Result<()>| r.err().map(|e| e.message().to_owned());
    for (i, step) in steps.iter().enumerate() {
        if step.is_wait() {
            settle(engine, &vars);
        }
        match step {
            Step::Push(op) => {
                let pick = |names: &[usize]| names.iter().map(|&v| vars[v]).collect::<Vec<_>>();
                let of =
                    |names: &[usize]| names.iter().map(|&v| cells[v].clone()).collect::<Vec<_>>();
                let (reads, writes) = (pick(&op.reads), pick(&op.writes));
                let (from, to) = (of(&op.reads), of(&op.writes));
                let (fails, overwrites) = (op.fails, op.overwrites);
                let task = Task::sync(move |_| {
                    if fails {
                        return Err(Error::execution(format!("step {i}")));
                    }
                    let read: Vec<u64> = from.iter().map(|c| c.load(Ordering::Relaxed)).collect();
                    for (k, c) in to.iter().enumerate() {
                        let old = if k < overwrites { 0 } else { c.load(Ordering::Relaxed) };
                        c.store(mix(i, old, &read), Ordering::Relaxed);
                    }
                    Ok(())
                });
                let prop = if op.no_skip { Prop::NoSkip } else { Prop::Normal };
                let cheap = op.cheap;
                let push = Push {
                    overwrites,
                    prop,
                    run_on: RunOn::pusher_if(cheap),
                    ..Push::new("op", &reads, &writes)
                };
                engine.push(task, push).unwrap();
            }
            Step::Replace(v, is_token) => {
                let new = if *is_token { engine.new_token() } else { engine.new_variable() };
                let (log, last) = (deleted.clone(), std::mem::replace(&mut cells[*v], cell()));
                let record = move || log.lock().unwrap().push((i, last.load(Ordering::Relaxed)));
                let var = std::mem::replace(&mut vars[*v], new);
                assert!(engine.delete_variable(var, Some(Box::new(record))));
                assert!(!engine.delete_variable(var, None));
                old = Some(var);
            }
            Step::Wait(v) => raised.push(message(engine.wait_for_var(vars[*v], &mut patiently()))),
            Step::WaitToRead(v) => {
                raised.push(message(engine.wait_to_read(vars[*v], &mut patiently())));
            }
            Step::WaitForAll => {
                let r = engine.wait_for_all(&mut patiently());
                raised.push(r.err().map(|_| "some".to_owned()));
            }
            Step::UseDeleted => {
                if let Some(var) = old {
                    let e = engine.push(Task::nothing(), Push::new("late", &[], &[var]));
                    assert!(e.unwrap_err().message().contains("deleted"));
                    raised.push(Some("deleted".to_owned()));
                }
            }
        }
    }
    settle(engine, &vars);
    for &v in &vars {
        raised.push(message(engine.wait_for_var(v, &mut patiently())));
    }
    let all = engine.wait_for_all(&mut patiently());
    raised.push(all.err().map(|_| "some".to_owned()));
    let mut deleted = std::mem::take(&mut *deleted.lock().unwrap());
    deleted.sort_unstable();
    Outcome {
        values: cells.iter().map(|c| c.load(Ordering::Relaxed)).collect(),
        versions: vars.iter().map(|&v| engine.version(v)).collect(),
        poison: vars.iter().map(|&v| engine.poisoned(v).map(|e| e.message().to_owned())).collect(),
        raised,
        deleted: deleted.into_iter().map(|(_, value)| value).collect(),
    }
}

fn op(n: usize) -> impl Strategy<Value = Op> {
    let names = prop::collection::btree_set(0..n, 0..5).prop_map(|s| s.into_iter().collect());
    let names = Strategy::prop_shuffle(names);
    (
        names,
        0..5usize,
        0..3usize,
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        any::<bool>(),
    )
        .prop_map(
            |(names, reads, overwrites, no_skip, fails, cheap): (Vec<usize>, _, _, _, _, _)| {
                let (reads, writes) = names.split_at(reads.min(names.len()));
                let overwrites = overwrites.min(writes.len());
                let (reads, writes) = (reads.to_vec(), writes.to_vec());
                Op { reads, writes, overwrites, no_skip, fails, cheap }
            },
        )
}

fn program(n: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => op(n).prop_map(Step::Push),
        3 => (0..n, any::<bool>()).prop_map(|(v, is_token)| Step::Replace(v, is_token)),
        3 => (0..n).prop_map(Step::Wait),
        2 => (0..n).prop_map(Step::WaitToRead),
        1 => Just(Step::WaitForAll),
        1 => Just(Step::UseDeleted),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(crate::cases(100))]

    #[test]
    fn both_engines_follow_the_reference(steps in program(8), threads in 1..4usize) {
        let expected = Reference::default().run(8, &steps);
        prop_assert_eq!(&run(&NaiveEngine::new(), 8, &steps), &expected, "naive");
        let threaded = ThreadedEngine::with_threads(threads);
        prop_assert_eq!(&run(&threaded, 8, &steps), &expected, "threaded");
    }
}
