//! Executors of a small network: segments, instances and shared arenas give the same numbers.

use super::bind::{Binding, Executor};

use crate::context::Context;
use crate::dtype::DType;
use crate::engine::{NaiveEngine, patiently};
use crate::error::Result;
use crate::executor::Runtime;
use crate::graph::{Create, Symbol};
use crate::kernels::copy::copy;
use crate::ndarray::NDArray;
use crate::operator::{OpReq, Value};
use crate::ops::testing::Tensor;
use crate::shape::Shape;
use std::collections::BTreeMap;
use std::sync::Arc;

fn runtime() -> Arc<Runtime> {
    Runtime::new(Arc::new(NaiveEngine::new()))
}

fn node(rt: &Runtime, op: &str, name: &str, params: &[(&str, Value)], data: Symbol) -> Symbol {
    let op = rt.registry.find(op).unwrap();
    let args = [data];
    Symbol::create(&op, Create { params, name, args: &args, ..Create::default() }).unwrap()
}

/// Two dense layers with a tanh between them.
fn network(rt: &Runtime) -> Symbol {
    let hidden = Value::Int(5);
    let x = Symbol::variable("x", BTreeMap::new());
    let h = node(rt, "FullyConnected", "a", &[("num_hidden", hidden.clone())], x);
    let h = node(rt, "Activation", "t", &[("act_type", "tanh".into())], h);
    node(rt, "FullyConnected", "b", &[("num_hidden", hidden)], h)
}

fn array(rt: &Arc<Runtime>, dims: &[i64], seed: u64) -> NDArray {
    let made = NDArray::empty(rt, &Shape::new(dims), DType::F32, Context::default()).unwrap();
    let noise = Tensor::noise(dims, seed).cast(DType::F32);
    let write = |view: &crate::tensor::View| {
        copy(&noise.view(), view);
        Ok(())
    };
    made.overwrite(&mut patiently(), write).unwrap();
    made
}

fn values(array: &NDArray) -> Vec<f64> {
    let read = |view: &crate::tensor::View| {
        let t = Tensor::zeros(array.shape(), array.dtype());
        copy(view, &t.view());
        t.values()
    };
    array.read(&mut patiently(), read).unwrap()
}

fn binding(rt: &Arc<Runtime>, shared: Option<Arc<Executor>>) -> Binding {
    let shapes: [&[i64]; 5] = [&[3, 4], &[5, 4], &[5], &[5, 5], &[5]];
    let arrays = |seed: u64| -> Vec<NDArray> {
        shapes.iter().zip(seed..).map(|(dims, seed)| array(rt, dims, seed)).collect()
    };
    Binding {
        symbol: network(rt),
        ctx: Context::default(),
        group2ctx: BTreeMap::new(),
        args: arrays(1),
        grads: arrays(20).into_iter().map(Some).collect(),
        reqs: vec![OpReq::Write; 5],
        aux: Vec::new(),
        shared,
        lends_outputs: false,
        memory_limit: None,
    }
}

fn train(executor: &Executor, head: &NDArray) -> Result<Vec<f64>> {
    let outputs = executor.forward(true, &[])?;
    executor.backward(true, &[Some(head.clone())])?;
    let grads = executor.grads.iter().flatten().flat_map(values);
    Ok(values(&outputs[0]).into_iter().chain(grads).collect())
}

#[test]
fn segments_of_one_node_equal_one_segment() {
    let rt = runtime();
    let head = array(&rt, &[3, 5], 50);
    let whole = Executor::bind(&rt, binding(&rt, None)).unwrap();
    let expected = train(&whole, &head).unwrap();
    let mut single = Arc::into_inner(Executor::bind(&rt, binding(&rt, None)).unwrap()).unwrap();
    single.limits.train_forward = 1;
    single.limits.train_backward = 2;
    assert_eq!(train(&single, &head).unwrap(), expected);
    let mut left = 1;
    for step in 0.. {
        if left == 0 {
            break;
        }
        left = single.partial_forward(true, step).unwrap();
    }
    assert_eq!(values(&single.outputs().unwrap()[0]), expected[..15]);
}

#[test]
fn a_second_thread_has_its_own_instance() {
    let rt = runtime();
    let executor = Executor::bind(&rt, binding(&rt, None)).unwrap();
    let first = executor.forward(false, &[]).unwrap();
    let mine = values(&first[0]);
    let other = array(&rt, &[3, 4], 99);
    let theirs = std::thread::scope(|scope| {
        let run = || {
            let outputs = executor.forward(false, &[(0, other.clone())]).unwrap();
            assert!(!outputs[0].same_chunk(&first[0]));
            values(&outputs[0])
        };
        scope.spawn(run).join().unwrap()
    });
    assert_ne!(mine, theirs);
    assert_eq!(values(&executor.outputs().unwrap()[0]), mine);
    assert_eq!(values(&executor.args[0]), values(&array(&rt, &[3, 4], 1)));
    let same = executor.forward(false, &[(0, other)]).unwrap();
    assert_eq!(values(&same[0]), theirs);
}

#[test]
fn contract_9_backward_after_a_sharing_executor_ran_is_refused() {
    let rt = runtime();
    let head = array(&rt, &[3, 5], 50);
    let one = Executor::bind(&rt, binding(&rt, None)).unwrap();
    let two = Executor::bind(&rt, binding(&rt, Some(one.clone()))).unwrap();
    let expected = train(&one, &head).unwrap();
    one.forward(true, &[]).unwrap();
    two.forward(true, &[]).unwrap();
    let refused = one.backward(true, &[Some(head.clone())]).unwrap_err();
    assert!(refused.message().contains("another executor"));
    assert_eq!(train(&one, &head).unwrap(), expected);
    assert_eq!(train(&two, &head).unwrap(), expected);
}

#[test]
fn steps_after_a_sharing_executor_ran_are_refused() {
    let rt = runtime();
    let one = Executor::bind(&rt, binding(&rt, None)).unwrap();
    let two = Executor::bind(&rt, binding(&rt, Some(one.clone()))).unwrap();
    let expected = values(&one.forward(true, &[]).unwrap()[0]);
    assert_eq!(one.partial_forward(true, 0).unwrap(), 2);
    two.forward(true, &[]).unwrap();
    let refused = one.partial_forward(true, 1).unwrap_err();
    assert!(refused.message().contains("another executor"), "{refused}");
    let head = array(&rt, &[3, 5], 50);
    assert!(one.backward(true, &[Some(head)]).is_err(), "the pass has one step of three");
    for step in 0..3 {
        assert_eq!(one.partial_forward(true, step).unwrap(), 2 - step);
    }
    assert_eq!(values(&one.outputs().unwrap()[0]), expected);
    assert!(one.partial_forward(true, 2).unwrap_err().message().contains("invalid step '2'"));
    // Other users of the memory see single steps, as they see whole passes.
    two.forward(true, &[]).unwrap();
    one.partial_forward(true, 0).unwrap();
    let head = array(&rt, &[3, 5], 50);
    assert!(two.backward(true, &[Some(head)]).unwrap_err().message().contains("another executor"));
}

#[test]
fn wrong_arrays_are_named() {
    let rt = runtime();
    let mut wrong = binding(&rt, None);
    wrong.grads[1] = Some(array(&rt, &[4, 5], 0));
    let error = Executor::bind(&rt, wrong).err().unwrap();
    assert_eq!(error.argument_name(), Some("gradient of a_weight"));
    let executor = Executor::bind(&rt, binding(&rt, None)).unwrap();
    assert!(executor.backward(true, &[]).unwrap_err().message().contains("forward"));
    executor.forward(true, &[]).unwrap();
    let error = executor.backward(true, &[]).unwrap_err();
    assert!(error.message().contains("needs a gradient of output 0"));
    let error = executor.backward(true, &[Some(array(&rt, &[1], 0))]).unwrap_err();
    assert_eq!(error.argument_name(), Some("head gradient 0"));
}
