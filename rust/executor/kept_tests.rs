//! What convolutions keep of their weights follows every way to write these, on both engines.

use super::bind::{Binding, Executor};
use super::transfer::push_copy;
use crate::context::Context;
use crate::dtype::DType;
use crate::engine::{EngineType, Push, Task, bulk, create, patiently};
use crate::executor::Runtime;
use crate::graph::{Create, Symbol};
use crate::kernels::copy::copy;
use crate::ndarray::NDArray;
use crate::operator::{OpReq, Value};
use crate::ops::testing::Tensor;
use crate::shape::Shape;
use crate::tensor::View;
use std::collections::BTreeMap;
use std::sync::Arc;

fn array(rt: &Arc<Runtime>, dims: &[i64], seed: u64) -> NDArray {
    let made = NDArray::empty(rt, &Shape::new(dims), DType::F32, Context::default()).unwrap();
    overwrite(&made, seed);
    made
}

fn overwrite(array: &NDArray, seed: u64) {
    let noise = Tensor::noise(array.shape().dims(), seed).cast(DType::F32);
    let write = |view: &View| {
        copy(&noise.view(), view);
        Ok(())
    };
    array.overwrite(&mut patiently(), write).unwrap();
}

fn values(array: &NDArray) -> Vec<f64> {
    let read = |view: &View| {
        let t = Tensor::zeros(array.shape(), array.dtype());
        copy(view, &t.view());
        t.values()
    };
    array.read(&mut patiently(), read).unwrap()
}

/// Pushes an operation that adds 1 to every element.
fn push_increment(rt: &Arc<Runtime>, array: &NDArray) {
    let of_task = array.clone();
    let task = Task::sync(move |_| {
        let view = of_task.view()?;
        // SAFETY: the operation writes the array's variable.
        unsafe { view.slice_mut::<f32>() }.iter_mut().for_each(|x| *x += 1.0);
        Ok(())
    });
    rt.engine.push(task, Push::new("increment", &[], &[array.var()])).unwrap();
}

/// A convolution of filters with `kernel` elements on a side, bound to `x` and `weight`.
fn bound(rt: &Arc<Runtime>, x: &NDArray, weight: &NDArray) -> Arc<Executor> {
    let op = rt.registry.find("Convolution").unwrap();
    let dims = weight.shape().dims().to_vec();
    let params = [
        ("num_filter", Value::Int(dims[0])),
        ("kernel", Value::List(vec![Value::Int(dims[2]), Value::Int(dims[3])])),
        ("no_bias", Value::Bool(true)),
    ];
    let args = [Symbol::variable("x", BTreeMap::new())];
    let create = Create { params: &params, name: "c", args: &args, ..Create::default() };
    let binding = Binding {
        symbol: Symbol::create(&op, create).unwrap(),
        ctx: Context::default(),
        group2ctx: BTreeMap::new(),
        args: vec![x.clone(), weight.clone()],
        grads: vec![None, None],
        reqs: vec![OpReq::Null; 2],
        aux: Vec::new(),
        shared: None,
        lends_outputs: false,
        memory_limit: None,
    };
    Executor::bind(rt, binding).unwrap()
}

fn run(executor: &Executor) -> Vec<f64> {
    values(&executor.forward(false, &[]).unwrap()[0])
}

fn keeps(executor: &Executor) -> bool {
    executor.debug_str().unwrap().contains("Kept, made of weights")
}

/// Runs three times; each must give what a new executor does, which keeps nothing.
fn check(rt: &Arc<Runtime>, executor: &Executor, x: &NDArray, weight: &NDArray) {
    let want = run(&bound(rt, x, weight));
    for _ in 0..3 {
        assert_eq!(run(executor), want);
    }
    assert!(keeps(executor));
}

fn runtimes() -> [Arc<Runtime>; 2] {
    [EngineType::Threaded, EngineType::Naive].map(|kind| Runtime::new(create(kind)))
}

/// Shapes of images and filters for every algorithm.
const CASES: [([i64; 4], [i64; 4]); 4] = [
    ([1, 16, 18, 18], [16, 16, 3, 3]),
    ([1, 3, 12, 13], [4, 3, 5, 2]),
    ([1, 8, 12, 13], [9, 8, 1, 1]),
    ([2, 6, 30, 31], [7, 6, 5, 3]),
];

#[test]
fn results_follow_every_write_of_the_weights() {
    for (rt, (x, w)) in runtimes().iter().flat_map(|rt| CASES.map(|case| (rt, case))) {
        let (x, weight) = (array(rt, &x, 1), array(rt, &w, 2));
        let executor = bound(rt, &x, &weight);
        check(rt, &executor, &x, &weight);
        for seed in 3..6 {
            overwrite(&weight, seed);
            check(rt, &executor, &x, &weight);
            push_increment(rt, &weight);
            check(rt, &executor, &x, &weight);
            push_copy(&array(rt, &w, seed + 10), &weight).unwrap();
            check(rt, &executor, &x, &weight);
            let part = weight.part(4, &Shape::new(&[2]), DType::F32).unwrap();
            overwrite(&part, seed + 20);
            check(rt, &executor, &x, &weight);
        }
    }
}

/// In a bulk, writes are counted when all of its functions have run.
#[test]
fn functions_of_a_bulk_see_the_writes_before_them() {
    let rt = Runtime::new(create(EngineType::Threaded));
    let (x, weight) = (array(&rt, &CASES[1].0, 1), array(&rt, &CASES[1].1, 2));
    let executor = bound(&rt, &x, &weight);
    check(&rt, &executor, &x, &weight);
    let copies: Vec<NDArray> = {
        let _scope = bulk(&*rt.engine, 100).unwrap();
        let forward = |_| {
            push_increment(&rt, &weight);
            let outputs = executor.forward(false, &[]).unwrap();
            let kept = array(&rt, outputs[0].shape().dims(), 0);
            push_copy(&outputs[0], &kept).unwrap();
            kept
        };
        (0..4).map(forward).collect()
    };
    overwrite(&weight, 2);
    for seen in copies {
        push_increment(&rt, &weight);
        assert_eq!(values(&seen), run(&bound(&rt, &x, &weight)));
    }
}

#[test]
fn training_keeps_nothing_nor_does_memory_that_others_may_write() {
    let rt = Runtime::new(create(EngineType::Threaded));
    let (x, weight) = (array(&rt, &CASES[1].0, 1), array(&rt, &CASES[1].1, 2));
    let executor = bound(&rt, &x, &weight);
    check(&rt, &executor, &x, &weight);
    let outputs = executor.forward(true, &[]).unwrap();
    outputs[0].wait_to_read(&mut patiently()).unwrap();
    assert!(!keeps(&executor));
    check(&rt, &executor, &x, &weight);
    weight.lend();
    let view = weight.view().unwrap();
    for value in [2.0, 3.0] {
        outputs[0].wait_to_write(&mut patiently()).unwrap();
        // SAFETY: nothing uses the array now.
        unsafe { view.slice_mut::<f32>() }.fill(value);
        let want = run(&bound(&rt, &x, &weight));
        assert!((0..3).all(|_| run(&executor) == want));
    }
}
