//! Tests of plans: random graphs, executed symbolically in their planned bytes in random legal
//! orders.

use super::tests::{mlp, op, registry, var, with_params};
use super::*;
use crate::context::Context;
use crate::error::Result;
use crate::graph::passes::mirror::Mirror;
use crate::operator::OpReq;
use crate::shape::Shape;
use proptest::prelude::*;
use std::sync::Arc;

mod gradients;
mod hosts;
mod limits;

fn request(symbol: &Symbol, shapes: &[(&str, &[i64])], req: OpReq) -> PlanRequest {
    let mut request = PlanRequest::new(symbol.clone(), Arc::new(registry()));
    request.shapes = shapes.iter().map(|(n, s)| ((*n).to_owned(), Shape::new(s))).collect();
    request.grad_req = vec![req; symbol.list_arguments().len()];
    request
}

/// The content of a byte: the entry whose value was written there.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Tag(u32);

const EMPTY: Tag = Tag(u32::MAX);

/// Runs the plan in the given node order; every read must find the value of the entry it reads.
fn simulate(plan: &Plan, order: &[u32]) -> Result<(), String> {
    let graph = &plan.graph;
    let mut arenas: std::collections::HashMap<Context, Vec<Tag>> =
        plan.arena_bytes.iter().map(|&(c, n)| (c, vec![EMPTY; n])).collect();
    // Arrays of their own: gradients of arguments with what they took over in place, and outputs
    // with what lies there before.
    let mut gradients: std::collections::HashMap<u32, Tag> = Default::default();
    let mut outputs: std::collections::BTreeMap<u32, Vec<Tag>> =
        plan.output_chunks.iter().map(|(&o, &n)| (o, vec![EMPTY; n])).collect();
    // Arguments whose gradient is added: their arrays hold sums, which are not the value of any
    // entry.
    let added = |e: &Entry| {
        let node = &graph.nodes[e.node as usize];
        let onto = node.addto.iter().any(|a| a.0 == e.index);
        (plan.req[graph.entry_id(*e)] == OpReq::Add && !onto)
            .then(|| plan.place[graph.entry_id(*e)])
    };
    let entries: Vec<Entry> = (0..graph.num_entries()).map(|at| graph.entry(at)).collect();
    let sums: Vec<Place> = entries.iter().filter_map(added).collect();
    // An identity has the value of what it copies.
    let mut value: Vec<u32> = (0..graph.num_entries() as u32).collect();
    for (id, node) in graph.nodes.iter().enumerate() {
        if ["_copy", "_backward_copy"].contains(&node.op_name()) {
            value[graph.entries_of(id).start] = value[graph.entry_id(node.inputs[0])];
        }
    }
    for &id in order {
        let node = &graph.nodes[id as usize];
        let ignored = match &node.op {
            Some(op) => op.ignores.to_vec(&node.attrs),
            None => continue,
        };
        let inputs = node.inputs.iter().enumerate().filter(|(i, _)| !ignored.contains(i));
        if let Some((_, e)) =
            inputs.clone().find(|(_, e)| sums.contains(&plan.place[graph.entry_id(**e)]))
        {
            return Err(format!("{} reads {e:?} from an array that it is added to", node.name));
        }
        for e in inputs.map(|(_, e)| e).chain(node.addto.iter().map(|a| &a.1)) {
            let at = graph.entry_id(*e);
            let found = match plan.place[at] {
                Place::Arena { offset } => {
                    let arena = &arenas[&graph.nodes[e.node as usize].ctx];
                    let bytes = &arena[offset..offset + plan.bytes(at)];
                    if bytes.iter().all(|t| t.0 == value[at]) { continue } else { bytes.first() }
                }
                Place::Gradient(arg) if gradients.get(&arg) == Some(&Tag(value[at])) => continue,
                Place::Output(head) => {
                    let bytes = &outputs[&head][..plan.bytes(at)];
                    if bytes.iter().all(|t| t.0 == value[at]) { continue } else { bytes.first() }
                }
                Place::Variable => continue,
                _ => None,
            };
            return Err(format!("{} reads {at} and finds {found:?}", node.name));
        }
        for at in graph.entries_of(id as usize) {
            match plan.place[at] {
                Place::Arena { offset } => {
                    let arena = arenas.get_mut(&node.ctx).ok_or("no arena")?;
                    arena[offset..offset + plan.bytes(at)].fill(Tag(value[at]));
                }
                Place::Gradient(arg) => drop(gradients.insert(arg, Tag(value[at]))),
                Place::Output(head) => {
                    let array = outputs.get_mut(&head).ok_or("no output")?;
                    array[..plan.bytes(at)].fill(Tag(value[at]));
                }
                _ => {}
            }
        }
    }
    for head in &plan.outputs {
        let at = graph.entry_id(*head);
        let good = match plan.place[at] {
            Place::Arena { offset } => {
                let arena = &arenas[&graph.nodes[head.node as usize].ctx];
                arena[offset..offset + plan.bytes(at)].iter().all(|t| t.0 == value[at])
            }
            Place::Output(own) => outputs[&own][..plan.bytes(at)].iter().all(|t| t.0 == value[at]),
            Place::Variable => true,
            _ => false,
        };
        if !good {
            return Err(format!("head {at} was overwritten"));
        }
    }
    Ok(())
}

/// A random order that data, control and the plan's edges allow.
fn shuffled(plan: &Plan, mut seed: u64) -> Vec<u32> {
    let n = plan.graph.nodes.len();
    let mut after = vec![Vec::new(); n];
    let mut waiting = vec![0; n];
    let data = plan.graph.nodes.iter().enumerate();
    let data = data.flat_map(|(id, node)| node.predecessors().map(move |p| (p, id as u32)));
    for (a, b) in data.chain(plan.order_edges.iter().copied()) {
        after[a as usize].push(b);
        waiting[b as usize] += 1;
    }
    let mut ready: Vec<u32> = (0..n as u32).filter(|&i| waiting[i as usize] == 0).collect();
    let mut order = Vec::new();
    while !ready.is_empty() {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let id = ready.swap_remove((seed >> 33) as usize % ready.len());
        order.push(id);
        for &b in &after[id as usize] {
            waiting[b as usize] -= 1;
            if waiting[b as usize] == 0 {
                ready.push(b);
            }
        }
    }
    assert_eq!(order.len(), n, "the order edges close a cycle");
    order
}

/// Builds a symbol from random numbers; every step reads earlier results.
fn random_symbol(steps: &[(u8, u8, u8)], heads: &[u8]) -> Symbol {
    let r = registry();
    let mut made = vec![var("a"), var("b"), var("c")];
    for (i, &(kind, x, y)) in steps.iter().enumerate() {
        let pick = |k: u8| made[made.len() - 1 - k as usize % made.len()].clone();
        let name = format!("n{i}");
        let one = |o: &str| op(&r, o, &name, &[pick(x)]);
        let two = |o: &str| op(&r, o, &name, &[pick(x), pick(y)]);
        made.push(match kind % 13 {
            0 | 1 => one("relu"),
            2 | 3 => two("elemwise_add"),
            4 => two("elemwise_mul"),
            5 => one("_copy"),
            6 => one("BatchNorm"),
            7 => one("Dropout"),
            8 => {
                // By way of a wider or narrower entry.
                let hidden = |name: &str, n: i64, x: Symbol| {
                    with_params(&r, "FullyConnected", name, &[("num_hidden", n.into())], &[x])
                };
                let other = hidden(&format!("{name}_by"), [3, 12, 40][i % 3], pick(x));
                hidden(&name, 6, other)
            }
            9 => two("Loss"),
            10 => one("zeros_like"),
            11 => two("like"),
            _ => two("maximum"),
        });
    }
    let mut picked: Vec<usize> =
        heads.iter().map(|&h| made.len() - 1 - h as usize % made.len()).collect();
    picked.push(made.len() - 1);
    picked.sort_unstable();
    picked.dedup();
    Symbol::group(&picked.into_iter().map(|i| made[i].clone()).collect::<Vec<_>>())
}

fn steps() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec((any::<u8>(), 0u8..6, 0u8..6), 1..40)
}

fn reqs() -> impl Strategy<Value = Vec<OpReq>> {
    let one =
        prop_oneof![Just(OpReq::Null), Just(OpReq::Write), Just(OpReq::Write), Just(OpReq::Add)];
    prop::collection::vec(one, 60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn planned_memory_holds_what_unplanned_would(
        steps in steps(), heads in prop::collection::vec(any::<u8>(), 0..3), reqs in reqs(),
        mirror: bool, inplace: bool, outputs_in_arena: bool, cap in 2usize..5, seed: u64,
    ) {
        let symbol = random_symbol(&steps, &heads);
        let shapes: [(&str, &[i64]); 3] = [("a", &[5, 6]), ("b", &[5, 6]), ("c", &[5, 6])];
        let known: Vec<_> = shapes.into_iter().filter(|s| symbol.list_arguments().contains(&s.0.into())).collect();
        let mut request = request(&symbol, &known, OpReq::Write);
        request.grad_req = reqs[..request.grad_req.len()].to_vec();
        request.options.mirror = mirror;
        request.options.inplace = inplace;
        request.options.inplace_sum_cap = cap;
        request.options.outputs_in_arena = outputs_in_arena;
        let plan = plan(&request).unwrap();
        let in_order: Vec<u32> = (0..plan.graph.nodes.len() as u32).collect();
        simulate(&plan, &in_order).unwrap();
        for k in 0..4 {
            simulate(&plan, &shuffled(&plan, seed ^ k)).unwrap();
        }
        prop_assert!(plan.total_arena_bytes() >= plan.lower_bound_bytes);
        prop_assert!(plan.lower_bound_bytes <= plan.no_sharing_bytes);
        let heads = || plan.outputs.iter().map(|&e| plan.place[plan.graph.entry_id(e)]);
        let in_arena = |p: Place| matches!(p, Place::Arena { .. });
        prop_assert!(outputs_in_arena || !heads().any(in_arena));
        prop_assert!(!outputs_in_arena || plan.output_chunks.is_empty());
        request.options.outputs_host = false;
        let apart = super::plan(&request).unwrap();
        let total = |plan: &Plan| plan.total_arena_bytes() + plan.output_bytes();
        prop_assert!(total(&plan) <= total(&apart));
        for (arg, grad) in plan.arg_grads.iter().enumerate() {
            prop_assert_eq!(grad.is_some(), request.grad_req[arg] != OpReq::Null);
        }
    }

    #[test]
    fn random_symbols_round_trip_through_json(steps in steps(), heads in prop::collection::vec(any::<u8>(), 0..3)) {
        let r = registry();
        let symbol = random_symbol(&steps, &heads);
        let text = symbol.to_json(false).unwrap();
        let back = load_json(&text, &r, false, false).unwrap().value;
        prop_assert_eq!(back.to_json(false).unwrap(), text);
        prop_assert_eq!(back.list_arguments(), symbol.list_arguments());
        prop_assert_eq!(symbol.deep_copy().unwrap().to_json(false).unwrap(), back.to_json(false).unwrap());
    }
}

#[test]
fn an_mlp_is_planned_with_its_gradient() {
    let r = registry();
    let net = mlp(&r);
    let plan = plan(&request(&net, &[("data", &[16, 32])], OpReq::Write)).unwrap();
    let names: Vec<_> =
        plan.graph.nodes[plan.graph.num_forward..].iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["loss_backward", "fc2_backward", "relu1_backward", "fc1_backward"]);
    assert_eq!(plan.head_grads, [None], "a loss asks for no head gradient");
    assert!(plan.arg_grads.iter().all(Option::is_some));
    // fc2_backward sees relu1 (in place of fc1), its gradient and the loss's gradient. The loss
    // is the output, so it lies outside the arena.
    assert_eq!(plan.lower_bound_bytes, 16 * (8 + 8 + 4) * 4);
    assert_eq!(plan.total_arena_bytes(), plan.lower_bound_bytes);
    assert_eq!(plan.output_bytes(), 16 * 4 * 4);
    let mut as_mxnet = request(&net, &[("data", &[16, 32])], OpReq::Write);
    as_mxnet.options.outputs_in_arena = true;
    let plan = super::plan(&as_mxnet).unwrap();
    assert_eq!(plan.lower_bound_bytes, 16 * (8 + 8 + 4 + 4) * 4);
    assert_eq!((plan.total_arena_bytes(), plan.output_bytes()), (plan.lower_bound_bytes, 0));
}

#[test]
fn a_device_with_nothing_but_empty_entries_has_an_arena() {
    let r = registry();
    let net = op(&r, "relu", "two", &[op(&r, "BatchNorm", "one", &[var("a")])]);
    let mut request = request(&net, &[("a", &[0, 6])], OpReq::Write);
    request.np_shape = true;
    let plan = plan(&request).unwrap();
    for (at, place) in plan.place.iter().enumerate() {
        let ctx = plan.graph.nodes[plan.graph.entry(at).node as usize].ctx;
        let has_arena = plan.arena_bytes.iter().any(|a| a.0 == ctx);
        assert!(has_arena || !matches!(place, Place::Arena { .. }), "{at}");
    }
}

#[test]
fn groups_get_devices_and_copies() {
    let r = registry();
    let group = |name: &str| Dict::from([("ctx_group".to_owned(), name.to_owned())]);
    let relu = r.find("relu").unwrap();
    let first = Symbol::create(
        &relu,
        Create { name: "one", dict: group("d1"), args: &[var("x")], ..Create::default() },
    )
    .unwrap();
    let second = Symbol::create(
        &relu,
        Create { name: "two", dict: group("d2"), args: &[first], ..Create::default() },
    )
    .unwrap();
    let mut request = request(&second, &[("x", &[4])], OpReq::Write);
    request.group2ctx =
        Some([("d1".to_owned(), Context::cpu(1)), ("d2".to_owned(), Context::cpu(2))].into());
    let planned = plan(&request).unwrap();
    let copies: Vec<_> = planned
        .graph
        .nodes
        .iter()
        .filter(|n| n.op_name() == "_copy")
        .map(|n| n.name.as_str())
        .collect();
    assert_eq!(copies, ["one_0_copy", "two_backward_0_copy"]);
    assert_eq!(planned.graph.nodes[planned.arguments[0] as usize].ctx, Context::cpu(1));
    assert_eq!(planned.arena_bytes.len(), 2);
    request.group2ctx = Some([("d1".to_owned(), Context::cpu(1))].into());
    let text = plan(&request).err().unwrap().to_string();
    assert!(text.contains("The device assignment not found for group d2"), "{text}");
}

#[test]
fn mirrored_sources_are_the_mirrored_copies() {
    let r = registry();
    let mut net = var("x");
    for i in 0..4 {
        net = op(&r, "BatchNorm", &format!("bn{i}"), &[net]);
        net = op(&r, "relu", &format!("r{i}"), &[net]);
    }
    let mut request = request(&net, &[("x", &[8, 8])], OpReq::Write);
    request.options.mirror = true;
    let plan = plan(&request).unwrap();
    assert!(plan.recomputed_nodes >= 6);
    for node in &plan.graph.nodes[plan.graph.num_forward..] {
        for e in &node.inputs {
            let source = &plan.graph.nodes[e.node as usize];
            assert!(
                source.is_variable() || e.node as usize >= plan.graph.num_forward,
                "{}",
                node.name
            );
        }
    }
    assert!(plan.graph.nodes.iter().any(|n| n.name == "bn1_mirror"));
}

#[test]
fn flags_decide_what_is_computed_again() {
    let r = registry();
    let mut net = var("x");
    for i in 0..3 {
        net = op(&r, "BatchNormCounter", &format!("count{i}"), &[net]);
        net = op(&r, "dearly", &format!("dear{i}"), &[net]);
        net = op(&r, "relu", &format!("r{i}"), &[net]);
        net = op(&r, "BatchNorm", &format!("bn{i}"), &[net]);
    }
    let mut request = request(&net, &[("x", &[8, 8])], OpReq::Write);
    request.options.mirror = true;
    let plan = plan(&request).unwrap();
    let again = plan.graph.nodes.iter().filter_map(|n| n.mirror_of);
    let again: std::collections::BTreeSet<_> =
        again.map(|of| plan.graph.nodes[of as usize].op_name()).collect();
    assert_eq!(again, ["BatchNorm", "relu"].into());
}

#[test]
fn unknown_shapes_are_listed() {
    let r = registry();
    let error = plan(&request(&mlp(&r), &[], OpReq::Null)).err().unwrap().to_string();
    assert!(error.contains("give more shapes") && error.contains("data: None"), "{error}");
}

#[test]
fn outputs_share_no_memory() {
    let r = registry();
    let x = op(&r, "relu", "x", &[var("v")]);
    let y = op(&r, "_copy", "y", &[x.clone()]);
    let both = Symbol::group(&[x, y]);
    let plan = plan(&request(&both, &[("v", &[64])], OpReq::Null)).unwrap();
    let place = |i: usize| plan.place[plan.graph.entry_id(plan.outputs[i])];
    assert_ne!(place(0), place(1));
}

#[test]
fn a_plan_is_data() {
    let r = registry();
    let net = mlp(&r);
    let mut request = request(&net, &[("data", &[16, 32])], OpReq::Write);
    request.dump = true;
    let plan = plan(&request).unwrap();
    let entries = plan.entries();
    let relu = entries.iter().find(|e| e.name == "relu1_output").unwrap();
    assert_eq!(relu.inplace_of.as_deref(), Some("fc1_output"));
    assert_eq!((relu.bytes, relu.req, relu.internal), (16 * 8 * 4, OpReq::Inplace, true));
    assert!(entries.iter().any(|e| e.name == "data" && !e.internal));
    let text = plan.debug_str(&[vec![0..2, 4..5], vec![2..3, 3..4]], std::slice::from_ref(&(0..2)));
    let parts = "\nsegment [0, 2) [4, 5)\nsegment [2, 3) [3, 4)\nchain [0, 2)\n";
    assert!(text.contains(parts), "{text}");
    let total = text.lines().rev().nth(1);
    assert!(total.is_some_and(|line| line.ends_with(" MB allocated")), "{text}");
    let passes: Vec<_> = plan.dumps.iter().map(|d| d.0.as_str()).collect();
    assert_eq!(passes, ["composition", "merge_common", "gradient", "devices", "accumulate"]);
    assert!(plan.dumps[2].1.contains("-- backward --"));
}

#[test]
fn debug_str_lists_nodes_inputs_and_attributes() {
    let r = registry();
    let net = op(&r, "BatchNorm", "bn", &[var("x")]);
    let text = net.debug_str().unwrap();
    assert!(text.starts_with("Symbol Outputs:\n\toutput[0]=bn(0)\nVariable:x\n"), "{text}");
    assert!(
        text.contains(
            "Op:BatchNorm, Name=bn\nInputs:\n\targ[0]=x(0) version=0\n\targ[1]=bn_moving_mean(0) \
             version=1"
        ),
        "{text}"
    );
    assert_eq!(var("x").debug_str().unwrap(), "Variable:x\n");
}
