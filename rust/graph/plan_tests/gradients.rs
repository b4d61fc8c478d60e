//! Where the gradients of arguments lie: sums in place, and entries that serve several arguments.

use super::*;
use crate::operator::{Attrs, Dep, Gradient, OpDef, infer};

#[test]
fn many_gradients_are_added_in_place() {
    let r = registry();
    let w = var("w");
    let mut sum = op(&r, "relu", "r0", &[w.clone()]);
    for i in 1..12 {
        let next = op(&r, "elemwise_mul", &format!("m{i}"), &[sum, w.clone()]);
        sum = next;
    }
    let plan = plan(&request(&sum, &[("w", &[4, 4])], OpReq::Add)).unwrap();
    let onto = plan.graph.nodes.iter().filter(|n| !n.addto.is_empty()).count();
    assert!(onto >= 10, "{onto}");
    assert!(plan.graph.nodes.iter().all(|n| n.op_name() != "ElementWiseSum"));
    simulate(&plan, &(0..plan.graph.nodes.len() as u32).collect::<Vec<_>>()).unwrap();
}

#[test]
fn only_sums_of_gradients_are_made_in_place() {
    let r = registry();
    // A user's additions, in nodes named like those of sums.
    let (mut net, mut other) = (var("x"), var("y"));
    for i in 0..3 {
        other = op(&r, "relu", &format!("r{i}"), &[other]);
        net = op(&r, "elemwise_add", &format!("a_agg_{i}"), &[net, other.clone()]);
    }
    let plan = plan(&request(&net, &[("x", &[4, 4]), ("y", &[4, 4])], OpReq::Write)).unwrap();
    assert!(plan.graph.nodes.iter().all(|n| n.addto.is_empty()));
    assert_eq!(plan.graph.nodes.iter().filter(|n| n.name.starts_with("a_agg_")).count(), 3);
}

#[test]
fn a_gradient_that_serves_many_arguments_is_read_where_nothing_is_added() {
    let r = registry();
    let join = op(&r, "elemwise_add", "join", &[var("a"), var("b")]);
    let net = op(&r, "relu", "top", &[join]);
    let shapes: [(&str, &[i64]); 2] = [("a", &[5, 6]), ("b", &[5, 6])];
    use OpReq::{Add, Null, Write};
    for (reqs, copies) in [
        ([Write, Write], 1),
        ([Write, Add], 1),
        ([Add, Write], 1),
        ([Add, Add], 2),
        ([Write, Null], 0),
        ([Null, Add], 0),
    ] {
        let mut request = request(&net, &shapes, Write);
        request.grad_req = reqs.to_vec();
        let plan = plan(&request).unwrap();
        let is_copy = |n: &&Node| n.op_name() == "_copy";
        assert_eq!(plan.graph.nodes.iter().filter(is_copy).count(), copies, "{reqs:?}");
        let in_order: Vec<u32> = (0..plan.graph.nodes.len() as u32).collect();
        simulate(&plan, &in_order).unwrap();
        for (arg, grad) in plan.arg_grads.iter().enumerate() {
            let Some(id) = grad.map(|e| plan.graph.entry_id(e)) else { continue };
            assert_eq!(plan.place[id], Place::Gradient(arg as u32));
            assert_eq!(plan.req[id], reqs[arg]);
        }
    }
}

#[test]
fn a_backward_pass_that_updates_states_runs_where_no_gradient_arrives() {
    let r = registry();
    let mut back = OpDef::plain("_backward_counted").mutates(&[1]);
    back.is_backward = true;
    r.add(back).unwrap();
    let deps = |_: &Attrs, _: usize, _: usize| vec![Dep::OutGrad(0), Dep::Input(1)];
    let counted = OpDef::plain("counted")
        .inputs_are(&[("data", ""), ("count", "")])
        .mutates(&[1])
        .infer_shape(|a, ins, outs| {
            infer::assign_shape(&mut ins[1], "count", &Shape::new(&[1]))?;
            infer::elementwise_shape(a, &mut ins[..1], outs)
        })
        .gradient(Gradient::declared("_backward_counted", deps));
    r.add(counted).unwrap();
    let r = Arc::new(r);
    let net = op(&r, "zeros_like", "end", &[op(&r, "counted", "node", &[var("a")])]);
    for (req, runs) in [(OpReq::Null, false), (OpReq::Write, true)] {
        let mut request = PlanRequest::new(net.clone(), r.clone());
        request.shapes = vec![("a".to_owned(), Shape::new(&[2, 3]))];
        request.grad_req = vec![req];
        let plan = plan(&request).unwrap();
        let backward = plan.graph.nodes.iter().any(|n| n.op_name() == "_backward_counted");
        assert_eq!(backward, runs);
    }
}
