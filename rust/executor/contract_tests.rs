//! With random delays in every kernel, runs back to back and two executors on one arena compute the
//! same values as the same calls made one at a time, each with memory of its own.

use super::autograd::{self, Backward, Tracked};
use super::bind::{Binding, Executor};
use super::imperative::Invoke;
use crate::context::Context;
use crate::dtype::DType;
use crate::engine::{Event, HookEvent, NaiveEngine, ThreadedEngine, patiently};
use crate::executor::Runtime;
use crate::executor::transfer::push_copy;
use crate::graph::{Create, Symbol};
use crate::kernels::copy::copy;
use crate::ndarray::NDArray;
use crate::operator::OpReq;
use crate::ops::testing::Tensor;
use crate::shape::Shape;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const DIMS: [i64; 2] = [6, 7];
const INPUTS: usize = 3;

/// The next number of a stream.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

/// Calls, each with the values it takes: inputs first, then results of earlier calls.
type Program = Vec<(&'static str, Vec<usize>)>;

fn program(seed: u64) -> Program {
    let mut state = seed;
    let mut calls: Program = Vec::new();
    for i in 0..14 {
        let known = INPUTS + i;
        // The last value is always used, so that all are; the other is any.
        let (last, any) = (known - 1, next(&mut state) % known);
        calls.push(match next(&mut state) % 6 {
            0 => ("tanh", vec![last]),
            1 => ("sigmoid", vec![last]),
            2 => ("negative", vec![last]),
            3 => ("elemwise_add", vec![last, any]),
            4 => ("elemwise_sub", vec![any, last]),
            _ => ("elemwise_mul", vec![last, any]),
        });
    }
    calls
}

fn symbol(rt: &Runtime, calls: &Program) -> Symbol {
    let mut known: Vec<Symbol> =
        (0..INPUTS).map(|i| Symbol::variable(&format!("x{i}"), BTreeMap::new())).collect();
    for (i, (op, of)) in calls.iter().enumerate() {
        let args: Vec<Symbol> = of.iter().map(|&k| known[k].clone()).collect();
        let op = rt.registry.find(op).unwrap();
        let (name, args) = (format!("n{i}"), &args[..]);
        known.push(Symbol::create(&op, Create { name: &name, args, ..Create::default() }).unwrap());
    }
    // All inputs reach the head, or the symbol would lack arguments.
    let add = rt.registry.find("add_n").unwrap();
    let args: Vec<Symbol> =
        (0..INPUTS).chain([known.len() - 1]).map(|k| known[k].clone()).collect();
    Symbol::create(&add, Create { name: "head", args: &args, ..Create::default() }).unwrap()
}

fn array(rt: &Arc<Runtime>, seed: u64) -> NDArray {
    let made = NDArray::empty(rt, &Shape::new(&DIMS), DType::F64, Context::default()).unwrap();
    let noise = Tensor::noise(&DIMS, seed);
    made.overwrite(&mut patiently(), |view| {
        copy(&noise.view(), view);
        Ok(())
    })
    .unwrap();
    made
}

fn values(array: &NDArray) -> Vec<f64> {
    let t = Tensor::zeros(array.shape(), array.dtype());
    array.read(&mut patiently(), |view| copy(view, &t.view())).unwrap();
    t.values()
}

fn inputs(rt: &Arc<Runtime>, run: u64) -> Vec<NDArray> {
    (0..INPUTS as u64).map(|i| array(rt, 100 * run + i)).collect()
}

/// Output and gradients, call by call, on the engine that runs everything at once.
fn unplanned(calls: &Program, run: u64) -> Vec<Vec<f64>> {
    let rt = Runtime::new(Arc::new(NaiveEngine::new()));
    let mut known: Vec<Tracked> = inputs(&rt, run).into_iter().map(Tracked::new).collect();
    let grads: Vec<NDArray> = (0..INPUTS as u64).map(|i| array(&rt, i)).collect();
    known.iter().zip(&grads).for_each(|(x, g)| x.mark(g.clone(), OpReq::Write));
    let call = |op: &str, of: &[usize], known: &[Tracked]| {
        let op = rt.registry.find(op).unwrap();
        let args: Vec<&Tracked> = of.iter().map(|&k| &known[k]).collect();
        let num_args = ("num_args", (args.len() as i64).into());
        let given = if op.name == "add_n" { &[num_args][..] } else { &[] };
        let attrs = Arc::new(op.parse(given).unwrap());
        let how = Invoke { recording: true, is_train: true, ..Invoke::default() };
        autograd::invoke(&rt, &op, &attrs, &args, None, &how).unwrap().remove(0)
    };
    for (op, of) in calls {
        let result = call(op, of, &known);
        known.push(result);
    }
    let of: Vec<usize> = (0..INPUTS).chain([known.len() - 1]).collect();
    let head = call("add_n", &of, &known);
    let given = Tracked::new(array(&rt, 77));
    let how = Backward { retain_graph: false, create_graph: false, is_train: true };
    autograd::backward(&rt, &[&head], &[Some(&given)], how).unwrap();
    std::iter::once(&head.array).chain(&grads).map(values).collect()
}

fn bind(
    rt: &Arc<Runtime>,
    calls: &Program,
    shared: Option<Arc<Executor>>,
    nodes: usize,
) -> Arc<Executor> {
    let binding = Binding {
        symbol: symbol(rt, calls),
        ctx: Context::default(),
        group2ctx: BTreeMap::new(),
        args: inputs(rt, 0),
        grads: inputs(rt, 0).into_iter().map(Some).collect(),
        reqs: vec![OpReq::Write; INPUTS],
        aux: Vec::new(),
        shared,
        lends_outputs: false,
        memory_limit: None,
    };
    let mut bound = Arc::into_inner(Executor::bind(rt, binding).unwrap()).unwrap();
    bound.limits.inference = nodes;
    bound.limits.train_forward = nodes;
    bound.limits.train_backward = nodes;
    Arc::new(bound)
}

/// An engine that waits some random time before every operation starts and after it has computed.
fn delaying() -> Arc<ThreadedEngine> {
    use crate::engine::Engine;
    let engine = Arc::new(ThreadedEngine::with_threads(3));
    let stream = AtomicU64::new(1);
    engine.set_hook(Some(Arc::new(move |step: HookEvent<'_>| {
        if step.event != Event::Queued {
            let mut state = stream.fetch_add(1, Ordering::Relaxed);
            next(&mut state);
            match next(&mut state) % 8 {
                0 => std::thread::sleep(Duration::from_micros(next(&mut state) as u64 % 300)),
                1..4 => std::thread::yield_now(),
                _ => {}
            }
        }
    })));
    engine
}

#[test]
fn contract_2_planned_equals_unplanned_under_random_delays() {
    for (seed, nodes) in [(1, 1), (2, 1), (3, 3), (4, usize::MAX)] {
        let calls = program(seed);
        let rt = Runtime::new(delaying());
        let one = bind(&rt, &calls, None, nodes);
        let two = bind(&rt, &calls, Some(one.clone()), nodes);
        let head = array(&rt, 77);
        let mut state = seed;
        let mut results = Vec::new();
        // All is pushed before anything is waited for.
        for run in 0..12 {
            let exe = if next(&mut state).is_multiple_of(2) { &one } else { &two };
            let trains = !next(&mut state).is_multiple_of(3);
            for (arg, fresh) in exe.args.iter().zip(inputs(&rt, run)) {
                push_copy(&fresh, arg).unwrap();
            }
            let outputs = exe.forward(trains, &[]).unwrap();
            let mut seen = vec![outputs[0].clone()];
            if trains {
                exe.backward(true, &[Some(head.clone())]).unwrap();
                seen.extend(exe.grads.iter().flatten().cloned());
            }
            let copies = seen.iter().map(|a| {
                let copy = array(&rt, 5);
                push_copy(a, &copy).unwrap();
                copy
            });
            results.push(copies.collect::<Vec<_>>());
        }
        for (run, got) in results.iter().enumerate() {
            let expected = unplanned(&calls, run as u64);
            for (what, (got, expected)) in got.iter().zip(&expected).enumerate() {
                for (g, e) in values(got).iter().zip(expected) {
                    let close = (g - e).abs() <= 1e-9 * (1.0 + e.abs());
                    assert!(close, "seed {seed}, run {run}, array {what}: {g}, expected {e}");
                }
            }
        }
    }
}
