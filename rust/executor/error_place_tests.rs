//! The operator and the node that an error of a gradient rule names, on the tape and in a graph.

use super::autograd::{Backward, Tracked, grad, invoke};
use super::bind::{Binding, Executor};
use super::imperative::Invoke;
use crate::context::Context;
use crate::dtype::DType;
use crate::engine::NaiveEngine;
use crate::error::{Error, Result};
use crate::executor::Runtime;
use crate::graph::{Create, Symbol};
use crate::ndarray::NDArray;
use crate::operator::{GradBuilder, GradNode, Gradient, Gradients, OpReq};
use crate::shape::Shape;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A runtime with `copies`, an operator that copies and has this gradient.
fn with(gradient: Gradient) -> Arc<Runtime> {
    let rt = Runtime::new(Arc::new(NaiveEngine::new()));
    add(&rt, "copies", gradient);
    rt
}

fn add(rt: &Runtime, name: &str, gradient: Gradient) {
    let mut op = (*rt.registry.find("_copy").unwrap()).clone().gradient(gradient);
    (op.name, op.aliases, op.differentiable_gradient) = (name.to_owned(), Vec::new(), None);
    rt.registry.add(op).unwrap();
}

fn array(rt: &Arc<Runtime>) -> NDArray {
    NDArray::empty(rt, &Shape::new(&[2]), DType::F32, Context::default()).unwrap()
}

fn recorded(rt: &Arc<Runtime>, op: &str, name: &str, x: &Tracked) -> Tracked {
    let op = rt.registry.find(op).unwrap();
    let how = Invoke { recording: true, name, ..Invoke::default() };
    let attrs = op.parse_shared(&[]).unwrap();
    invoke(rt, &op, &attrs, &[x], None, &how).unwrap().into_iter().next().unwrap()
}

fn leaf(rt: &Arc<Runtime>) -> Tracked {
    let x = Tracked::new(array(rt));
    x.mark(array(rt), OpReq::Write);
    x
}

fn gradient_of(rt: &Arc<Runtime>, y: &Tracked, x: &Tracked) -> Result<Tracked> {
    let how = Backward { retain_graph: true, create_graph: true, is_train: true };
    Ok(grad(rt, &[y], &[None], &[x], how)?.remove(0))
}

/// The error of the gradient of `copies`, called by `name`, on the tape.
fn on_tape(rt: &Arc<Runtime>, name: &str) -> Error {
    let x = leaf(rt);
    gradient_of(rt, &recorded(rt, "copies", name, &x), &x).err().unwrap()
}

/// The error of the gradient of a node `name` of `copies` in a graph.
fn in_graph(rt: &Arc<Runtime>, name: &str) -> Error {
    let args = [Symbol::variable("x", BTreeMap::new())];
    let op = rt.registry.find("copies").unwrap();
    let symbol = Symbol::create(&op, Create { name, args: &args, ..Create::default() }).unwrap();
    let binding = Binding {
        symbol,
        ctx: Context::default(),
        group2ctx: BTreeMap::new(),
        args: vec![array(rt)],
        grads: vec![Some(array(rt))],
        reqs: vec![OpReq::Write],
        aux: Vec::new(),
        shared: None,
        lends_outputs: false,
        memory_limit: None,
    };
    Executor::bind(rt, binding).err().unwrap()
}

fn place(error: &Error) -> (Option<&str>, Option<&str>) {
    (error.operator(), error.node())
}

/// A rule with a call that `clip` refuses.
fn clips(builder: &mut dyn GradBuilder, node: &GradNode<'_>) -> Result<Gradients> {
    let params = [("a_min", "x".into()), ("a_max", 1.0.into())];
    Ok(builder.op("clip", "", &params, node.inputs)?.into_iter().map(Some).collect())
}

#[test]
fn what_a_rule_calls_is_named_alike_on_the_tape_and_in_a_graph() {
    let rt = with(Gradient::rule(clips));
    let (tape, graph) = (on_tape(&rt, "c"), in_graph(&rt, "c"));
    assert_eq!(place(&tape), (Some("clip"), Some("c_backward_clip")));
    assert_eq!(place(&tape), place(&graph));
    assert!(tape.message().contains("invalid a_min 'x'"), "{tape}");
    assert_eq!(tape.message(), graph.message());
}

#[test]
fn an_error_of_the_rule_itself_is_named_after_the_node() {
    let rules = [Gradient::rule(|_, _| Err(Error::value("no rule for this"))), Gradient::None];
    for rt in rules.map(with) {
        let (tape, graph) = (on_tape(&rt, "c"), in_graph(&rt, "c"));
        assert_eq!(place(&tape), (Some("copies"), Some("c")));
        assert_eq!(tape.to_string(), graph.to_string());
    }
}

/// The rule of `outer` calls `copies`, whose own rule fails in the second derivative.
#[test]
fn no_error_has_the_operator_of_one_place_and_the_node_of_another() {
    let rt = with(Gradient::rule(clips));
    let rule = |name: &'static str| {
        Gradient::rule(move |builder, node| {
            let made = builder.op("copies", name, &[], node.inputs)?;
            Ok(made.into_iter().map(Some).collect())
        })
    };
    add(&rt, "outer", rule("inner"));
    add(&rt, "outer_without_name", rule(""));
    let second = |op: &str, name: &str| {
        let x = leaf(&rt);
        let first = gradient_of(&rt, &recorded(&rt, op, name, &x), &x).unwrap();
        gradient_of(&rt, &first, &x).err().unwrap()
    };
    let clip = |node| (Some("clip"), node);
    assert_eq!(place(&second("outer", "c")), clip(Some("inner_backward_clip")));
    let of_named = second("outer_without_name", "c");
    assert_eq!(place(&of_named), clip(Some("c_backward_copies_backward_clip")));
    assert_eq!(place(&second("outer_without_name", "")), clip(None));
    assert_eq!(place(&on_tape(&rt, "")), clip(None));
}
