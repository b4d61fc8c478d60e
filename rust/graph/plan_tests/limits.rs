//! Plans within a memory limit: what is computed again, and how close they come.

use super::*;

/// Many layers of one width, so that recomputation pays.
fn tower(layers: usize) -> Symbol {
    let r = registry();
    let mut net = var("x");
    for i in 0..layers {
        net = with_params(
            &r,
            "FullyConnected",
            &format!("fc{i}"),
            &[("num_hidden", 32.into())],
            &[net],
        );
        net = op(&r, "relu", &format!("r{i}"), &[net]);
    }
    op(&r, "Loss", "loss", &[net])
}

#[test]
fn a_memory_limit_is_met_by_computing_again_at_most_once() {
    let mut request = request(&tower(100), &[("x", &[64, 32])], OpReq::Write);
    let free = plan(&request).unwrap();
    for share in [2, 4] {
        let limit = free.total_arena_bytes() / share;
        request.memory_limit = Some(limit);
        let plan = plan(&request).unwrap();
        assert!(plan.total_arena_bytes() <= limit);
        let mut again: Vec<_> = plan.graph.nodes.iter().filter_map(|n| n.mirror_of).collect();
        assert!(!again.is_empty());
        again.sort_unstable();
        let count = again.len();
        again.dedup();
        assert_eq!(again.len(), count, "a node runs more than twice");
        for seed in 0..4 {
            simulate(&plan, &shuffled(&plan, seed)).unwrap();
        }
    }
    request.memory_limit = Some(free.total_arena_bytes());
    assert_eq!(plan(&request).unwrap().recomputed_nodes, 0);
    request.memory_limit = Some(1);
    let text = plan(&request).err().unwrap().to_string();
    assert!(text.contains("cannot be met: the least found"), "{text}");
}

#[test]
fn a_limit_holds_for_all_devices_together() {
    let r = registry();
    let group = |name: &str| Dict::from([("ctx_group".to_owned(), name.to_owned())]);
    let relu = r.find("relu").unwrap();
    let layer = |i: usize, args: &[Symbol]| {
        let (name, dict) = (format!("r{i}"), group(if i < 60 { "d1" } else { "d2" }));
        Symbol::create(&relu, Create { name: &name, dict, args, ..Create::default() }).unwrap()
    };
    let mut net = var("x");
    for i in 0..120 {
        net = op(&r, "elemwise_mul", &format!("m{i}"), &[net.clone(), net]);
        net = layer(i, &[net]);
    }
    let mut request = request(&net, &[("x", &[5, 5])], OpReq::Write);
    request.group2ctx =
        Some([("d1".to_owned(), Context::cpu(1)), ("d2".to_owned(), Context::cpu(2))].into());
    request.arg_ctx = vec![Some(Context::cpu(1))];
    let free = plan(&request).unwrap();
    assert_eq!(free.arena_bytes.len(), 2);
    let mut again = Vec::new();
    for percent in [90, 60, 40] {
        let limit = free.total_arena_bytes() * percent / 100;
        request.memory_limit = Some(limit);
        let plan = plan(&request).unwrap();
        assert!(plan.total_arena_bytes() <= limit, "{percent}");
        simulate(&plan, &shuffled(&plan, 7)).unwrap();
        again.push(plan.recomputed_nodes);
    }
    assert!(again[0] < again[2] && again.is_sorted(), "as little as the limit needs: {again:?}");
}

#[test]
fn a_limit_keeps_what_attributes_want_computed_again() {
    let mut request = request(&tower(40), &[("x", &[64, 32])], OpReq::Write);
    request.options.mirror = true;
    let free = plan(&request).unwrap();
    let again = |plan: &Plan| -> Vec<String> {
        let nodes = plan.graph.nodes.iter().filter(|n| n.mirror_of.is_some());
        nodes.map(|n| n.name.clone()).collect()
    };
    assert!(!again(&free).is_empty());
    request.memory_limit = Some(free.total_arena_bytes() / 2);
    let limited = plan(&request).unwrap();
    assert!(limited.total_arena_bytes() <= free.total_arena_bytes() / 2);
    let kept = again(&limited);
    assert!(again(&free).iter().all(|name| kept.contains(name)));
    assert!(kept.len() > again(&free).len());
}

#[test]
fn a_limit_is_met_where_computing_everything_again_saves_nothing() {
    let r = registry();
    let mut net = var("x");
    for i in 0..60 {
        net = op(&r, "elemwise_mul", &format!("m{i}"), &[net.clone(), net]);
        net = op(&r, "relu", &format!("r{i}"), &[net]);
    }
    let mut request = request(&op(&r, "Loss", "loss", &[net]), &[("x", &[8, 8])], OpReq::Write);
    request.options.mirror = true;
    let free = plan(&request).unwrap();
    request.memory_limit = Some(free.total_arena_bytes() / 3);
    let limited = plan(&request).unwrap();
    assert!(limited.total_arena_bytes() <= free.total_arena_bytes() / 3);
    simulate(&limited, &shuffled(&limited, 3)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn limited_plans_are_right_and_never_larger(steps in steps(), percent in 30usize..100, seed: u64) {
        let symbol = random_symbol(&steps, &[]);
        let shapes: [(&str, &[i64]); 3] = [("a", &[5, 6]), ("b", &[5, 6]), ("c", &[5, 6])];
        let known: Vec<_> = shapes.into_iter().filter(|s| symbol.list_arguments().contains(&s.0.into())).collect();
        let mut request = request(&symbol, &known, OpReq::Write);
        let free = plan(&request).unwrap();
        let limit = free.total_arena_bytes() * percent / 100;
        request.memory_limit = Some(limit);
        let plan = match plan(&request) {
            Ok(plan) => {
                prop_assert!(plan.total_arena_bytes() <= limit);
                plan
            }
            Err(e) => {
                // The least that the error names can be had, and is no more than without a limit.
                let text = e.to_string();
                let least = text.rsplit(" is ").next().and_then(|t| t.split(' ').next()?.parse().ok());
                let least: usize = least.expect(&text);
                prop_assert!(limit < least && least <= free.total_arena_bytes(), "{text}");
                request.memory_limit = Some(least);
                let plan = super::plan(&request).unwrap();
                prop_assert!(plan.total_arena_bytes() <= least);
                plan
            }
        };
        simulate(&plan, &shuffled(&plan, seed)).unwrap();
    }

    #[test]
    fn what_is_estimated_is_what_is_planned(
        steps in steps(), mirrored in prop::collection::vec(any::<bool>(), 60), split: bool,
    ) {
        let symbol = random_symbol(&steps, &[]);
        let names = symbol.list_arguments();
        let mut request = request(&symbol, &[], OpReq::Write);
        let known = ["a", "b", "c"].into_iter().filter(|n| names.contains(&(*n).into()));
        // Sizes that are not multiples of a cache line.
        request.shapes = known.map(|n| (n.to_owned(), Shape::new(&[5, 6]))).collect();
        if split {
            request.group2ctx = Some(Default::default());
            request.arg_ctx = (0..names.len() as i32).map(|i| Some(Context::cpu(i % 2))).collect();
        }
        request.options.outputs_host = false; // the estimate is one of plans in which none does
        let forward = super::planner::prepare(&request).unwrap();
        let mut mirror = Mirror::none(&forward.graph);
        let may = |n: &Node| crate::graph::passes::mirror::may_repeat(n);
        let wanted = mirrored.iter().zip(&forward.graph.nodes).map(|(&m, n)| m && may(n));
        mirror.again.iter_mut().zip(wanted).for_each(|(again, wanted)| *again = wanted);
        let planner = super::planner::Planner { request: &request, forward: &forward };
        // A device that an auxiliary state cannot go to is an error of both.
        let (estimate, made) = (planner.peak(&mirror), planner.finish(&mirror));
        prop_assert_eq!(estimate.is_ok(), made.is_ok());
        if let (Ok(estimate), Ok(plan)) = (estimate, made) {
            let total = plan.total_arena_bytes();
            prop_assert!(plan.lower_bound_bytes <= estimate && estimate <= total);
            prop_assert!(total <= estimate + estimate / 4, "{estimate} {total}");
        }
    }
}
