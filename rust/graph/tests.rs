//! Tests of composition, JSON and inference over a few small operators.

use super::*;
use crate::dtype::DType;
use crate::operator::{Dep, Gradient, InplacePair, OpDef, Registry, Value, infer};
use crate::shape::Shape;

crate::params! {
    /// Parameters of the test's dense layer.
    pub struct DenseParam {
        num_hidden: u32, required, "Width.";
        no_bias: bool, default(false), "No bias.";
    }
}

crate::params! {
    /// Parameters of a sum.
    pub struct SumParam {
        num_args: u32, required, "Number of inputs.";
    }
}

/// Backward operator over the output gradients and the outputs.
fn of_outputs(op: &str) -> Gradient {
    Gradient::declared(op, |_, _, n_out| {
        (0..n_out).map(Dep::OutGrad).chain((0..n_out).map(Dep::Output)).collect()
    })
}

/// The head with this output name.
fn named(symbol: &Symbol, name: &str) -> Symbol {
    symbol.at(symbol.list_outputs().iter().position(|n| n == name).unwrap()).unwrap()
}

/// `FullyConnected`, `relu`, `elemwise_add`, `elemwise_mul`, `ElementWiseSum`, `_copy`, `split`,
/// `BatchNorm`, `Loss`, `Dropout` and their backward operators, without kernels.
pub fn registry() -> Registry {
    let r = Registry::default();
    let add = |def: OpDef| drop(r.add(def).unwrap());
    let unary = |name: &str| OpDef::plain(name).infer_shape(infer::elementwise_shape);
    let binary = |name: &str| unary(name).inputs_are(&[("lhs", ""), ("rhs", "")]);
    const FIRST: &[InplacePair] = &[InplacePair::new(0, 0)];
    const BOTH: &[InplacePair] = &[InplacePair::new(0, 0), InplacePair::new(1, 0)];
    let dense = OpDef::new::<DenseParam>("FullyConnected")
        .expensive()
        .inputs_are(&[("data", ""), ("weight", ""), ("bias", "")])
        .input_names_by(|a| {
            let all = ["data", "weight", "bias"];
            let n = if a.get::<DenseParam>().no_bias { 2 } else { 3 };
            all[..n].iter().map(|s| (*s).to_owned()).collect()
        })
        .infer_shape(|a, ins, outs| {
            let p = a.get::<DenseParam>();
            let h = p.num_hidden as i64;
            outs[0].merge(&Shape::new(&[-1, h]))?;
            if !ins[0].rank_known() {
                return Ok(false);
            }
            let batch = ins[0].dims()[0].max(outs[0].dims()[0]);
            outs[0].merge(&Shape::new(&[batch, h]))?;
            let width = ins[0].product(1..ins[0].ndim()) as i64;
            infer::assign_shape(&mut ins[1], "weight", &Shape::new(&[h, width]))?;
            if !p.no_bias {
                infer::assign_shape(&mut ins[2], "bias", &Shape::new(&[h]))?;
            }
            Ok(outs[0].is_known())
        })
        .gradient(Gradient::use_in("_backward_FullyConnected"));
    add(dense);
    add(OpDef::plain("_backward_FullyConnected"));
    add(unary("relu").inplace(FIRST).gradient(of_outputs("_backward_relu")));
    add(OpDef::plain("_backward_relu").inputs_are(&[("grad", ""), ("out", "")]).inplace(FIRST));
    let both = |_: &mut dyn crate::operator::GradBuilder, n: &crate::operator::GradNode<'_>| {
        Ok(vec![n.out_grads[0]; 2])
    };
    add(binary("elemwise_add").inplace(FIRST).aliases(&["_plus"]).gradient(Gradient::rule(both)));
    add(binary("elemwise_mul").gradient(Gradient::use_in("_backward_mul")));
    add(OpDef::plain("_backward_mul").inplace(FIRST));
    let sum = OpDef::new::<SumParam>("ElementWiseSum")
        .variadic("num_args", "")
        .aliases(&["add_n"])
        .inplace(FIRST)
        .infer_shape(infer::elementwise_shape);
    add(sum);
    add(unary("_copy")
        .inplace(&[InplacePair::identity(0, 0)])
        .gradient(Gradient::use_none("_backward_copy")));
    add(OpDef::plain("_backward_copy").inplace(&[InplacePair::identity(0, 0)]));
    add(unary("zeros_like").ignores(&[0]).inplace(FIRST).gradient(Gradient::Zero));
    let like =
        binary("like").ignores(&[1]).inplace(BOTH).gradient(Gradient::use_in("_backward_like"));
    add(like);
    add(OpDef::plain("_backward_like").ignores(&[1, 2]).inplace(BOTH));
    add(binary("maximum").inplace(BOTH).gradient(Gradient::use_in("_backward_mul")));
    // Modifies its input, whatever its name suggests: it counts its calls.
    let counter = |a: &crate::operator::Attrs, ins: &mut [Shape], outs: &mut [Shape]| {
        infer::assign_shape(&mut ins[1], "count", &Shape::new(&[1]))?;
        infer::elementwise_shape(a, &mut ins[..1], outs)
    };
    add(OpDef::plain("BatchNormCounter")
        .inputs_are(&[("data", ""), ("count", "")])
        .mutates(&[1])
        .infer_shape(counter)
        .gradient(of_outputs("_backward_relu")));
    add(unary("dearly").expensive().gradient(of_outputs("_backward_relu")));
    let norm = OpDef::plain("BatchNorm")
        .inputs_are(&[("data", ""), ("moving_mean", "")])
        .outputs_are(&["output", "mean"])
        .visible(|_| 1)
        .mutates(&[1])
        .rerun_safe()
        .variable_attr("moving_mean", "__init__", "[\"zero\", {}]")
        .infer_shape(|_, ins, outs| {
            let data = ins[0].clone();
            outs[0].merge(&data)?;
            let c: Shape = Shape::new(&[data.dims().get(1).copied().unwrap_or(-1)]);
            ins[1].merge(&c)?;
            outs[1].merge(&c)?;
            Ok(data.is_known())
        })
        .gradient(Gradient::declared("_backward_BatchNorm", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(0), Dep::Output(1)]
        }));
    add(norm);
    add(OpDef::plain("_backward_BatchNorm").inplace(FIRST));
    let loss = OpDef::plain("Loss")
        .inputs_are(&[("data", ""), ("label", "")])
        .infer_shape(infer::elementwise_shape)
        .inplace(FIRST)
        .gradient(Gradient::declared("_backward_Loss", |_, _, _| {
            vec![Dep::Output(0), Dep::Input(1)]
        }));
    add(loss);
    add(OpDef::plain("_backward_Loss").inplace(FIRST));
    let dropout = unary("Dropout")
        .outputs_are(&["output", "mask"])
        .visible(|_| 1)
        .resources(&[crate::operator::ResourceRequest::Random])
        .inplace(FIRST)
        .gradient(Gradient::declared("_backward_Dropout", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Output(1)]
        }));
    add(dropout);
    add(OpDef::plain("_backward_Dropout").inplace(FIRST));
    r
}

pub fn var(name: &str) -> Symbol {
    Symbol::variable(name, Dict::new())
}

pub fn op(r: &Registry, op: &str, name: &str, args: &[Symbol]) -> Symbol {
    with_params(r, op, name, &[], args)
}

pub fn with_params(
    r: &Registry,
    op: &str,
    name: &str,
    params: &[(&str, Value)],
    args: &[Symbol],
) -> Symbol {
    let create = Create { params, name, args, ..Create::default() };
    Symbol::create(&r.find(op).unwrap(), create).unwrap()
}

pub fn mlp(r: &Registry) -> Symbol {
    let hidden =
        with_params(r, "FullyConnected", "fc1", &[("num_hidden", 8.into())], &[var("data")]);
    let act = op(r, "relu", "relu1", &[hidden]);
    let out = with_params(r, "FullyConnected", "fc2", &[("num_hidden", 4.into())], &[act]);
    op(r, "Loss", "loss", &[out])
}

#[test]
fn missing_inputs_become_variables_with_the_nodes_dictionary() {
    let r = registry();
    let net = mlp(&r);
    assert_eq!(
        net.list_arguments(),
        ["data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias", "loss_label"]
    );
    assert_eq!(net.list_outputs(), ["loss_output"]);
    assert_eq!(net.attr_dict()["fc1_weight"]["num_hidden"], "8");
}

#[test]
fn auxiliary_states_are_listed_apart() {
    let r = registry();
    let bn = op(&r, "BatchNorm", "bn", &[var("x")]);
    assert_eq!(bn.list_arguments(), ["x"]);
    assert_eq!(bn.list_auxiliary_states(), ["bn_moving_mean"]);
    assert_eq!(bn.list_outputs(), ["bn_output"]);
    assert_eq!(bn.get_internals().list_outputs(), ["x", "bn_moving_mean", "bn_output"]);
    assert_eq!(bn.attr_dict()["bn_moving_mean"]["__init__"], "[\"zero\", {}]");
    let inner = op(&r, "relu", "r", &[var("y")]);
    let create = Create { name: "b", args: &[var("x"), inner], ..Create::default() };
    let error = Symbol::create(&r.find("BatchNorm").unwrap(), create).err().unwrap();
    assert!(error.to_string().contains("Mutation target"), "{error}");
}

#[test]
fn composition_replaces_variables_by_position_or_name_in_a_copy() {
    let r = registry();
    let sum = op(&r, "elemwise_add", "sum", &[var("a"), var("b")]);
    let by_name =
        sum.compose(None, &[], &[("a".into(), op(&r, "relu", "r", &[var("x")]))]).unwrap();
    assert_eq!(by_name.list_arguments(), ["x", "b"]);
    let by_place = sum.compose(Some("new"), &[var("p"), var("q")], &[]).unwrap();
    assert_eq!(by_place.list_arguments(), ["q", "p"]);
    assert_eq!(by_place.name().as_deref(), Some("new"));
    assert_eq!(sum.list_arguments(), ["a", "b"]);
    assert!(sum.compose(None, &[var("p")], &[]).is_err());
    let error = sum.compose(None, &[], &[("foo".into(), var("x"))]).err().unwrap();
    assert!(error.to_string().contains("unknown argument 'foo': expected one of: a, b"));
    assert!(var("v").compose(None, &[var("x")], &[]).is_err());
}

#[test]
fn shapes_flow_in_both_directions() {
    let r = registry();
    let shaped = |name: &str, shape: &str| {
        Symbol::variable(name, Dict::from([("__shape__".into(), shape.into())]))
    };
    let (a, b, c) = (shaped("a", "(2, 0)"), var("b"), shaped("c", "(0, 3)"));
    let ab = op(&r, "elemwise_mul", "m0", &[a, b.clone()]);
    let bc = op(&r, "elemwise_mul", "m1", &[b, c]);
    let sum = op(&r, "elemwise_add", "s", &[ab, bc]);
    let inferred = sum.infer_shape(&[], false).unwrap();
    assert!(inferred.complete);
    assert_eq!(inferred.args, vec![Shape::new(&[2, 3]); 3]);
    assert_eq!(inferred.outputs, vec![Shape::new(&[2, 3])]);
}

#[test]
fn a_rule_that_panics_is_an_error_of_its_node() {
    let r = registry();
    let rule = |_: &crate::operator::Attrs, _: &mut [Shape], _: &mut [Shape]| panic!("no rule");
    let broken = OpDef::plain("broken").inputs_are(&[("data", "")]).infer_shape(rule);
    r.add(broken).unwrap();
    let net = op(&r, "broken", "b", &[op(&r, "relu", "r", &[var("x")])]);
    let error = net.infer_shape(&[("x".into(), Shape::new(&[2]))], false).unwrap_err();
    assert_eq!((error.operator(), error.node()), (Some("broken"), Some("b")));
    assert!(error.message().starts_with("panic: no rule\n  input 0 'data': shape (2,)"));
}

#[test]
fn a_contradiction_names_node_operator_inputs_and_their_origin() {
    let r = registry();
    let net = mlp(&r);
    let given =
        [("data".to_owned(), Shape::new(&[5, 3])), ("fc2_weight".to_owned(), Shape::new(&[4, 9]))];
    let text = net.infer_shape(&given, false).unwrap_err().to_string();
    for part in
        ["fc2", "FullyConnected", "relu1 (relu)", "(4, 9)", "(4, 8)", "fc1 (FullyConnected)"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let text = net.infer_shape(&[("nope".into(), Shape::scalar())], false).unwrap_err().to_string();
    assert!(text.contains("'nope'") && text.contains("one of: data, fc1_weight"), "{text}");
}

#[test]
fn types_default_to_one_type_for_all() {
    let r = registry();
    let inferred = mlp(&r).infer_type(&[("data".into(), DType::F64)]).unwrap();
    assert!(inferred.complete);
    assert_eq!(inferred.outputs, vec![Some(DType::F64)]);
    assert!(!mlp(&r).infer_type(&[]).unwrap().complete);
}

#[test]
fn json_round_trips() {
    let r = registry();
    let net = Symbol::group(&[mlp(&r), op(&r, "BatchNorm", "bn\"\\\n\t$é", &[var("x")])]);
    let text = net.to_json(false).unwrap();
    let back = load_json(&text, &r, false, false).unwrap();
    assert_eq!(back.value.to_json(false).unwrap(), text);
    assert_eq!(back.version, 10901);
    assert!(!back.upgraded);
    assert_eq!(back.value.list_outputs(), net.list_outputs());
}

#[test]
fn old_files_get_their_missing_inputs_and_hidden_keys() {
    let r = registry();
    let text = r#"{"nodes": [
        {"op": "null", "param": {}, "name": "x", "inputs": [], "backward_source_id": -1},
        {"op": "null", "param": {}, "name": "w", "inputs": [], "backward_source_id": -1},
        {"op": "FullyConnected", "param": {"num_hidden": "3", "no_bias": "True"}, "name": "fc",
         "inputs": [[0, 0], [1, 0]], "backward_source_id": -1,
         "attr": {"weight_lr_mult": "2.0", "ctx_group": "dev"}},
        {"op": "BatchNorm", "param": {}, "name": "bn", "inputs": [[2, 0]],
         "backward_source_id": -1}],
        "arg_nodes": [0, 1], "heads": [[3, 0]]}"#;
    let loaded = load_json(text, &r, false, false).unwrap();
    assert!(loaded.upgraded && loaded.version == 800);
    assert_eq!(loaded.value.list_auxiliary_states(), ["bn_moving_mean"]);
    let attrs = loaded.value.attr_dict();
    assert_eq!(attrs["w"]["__lr_mult__"], "2.0");
    assert_eq!(attrs["fc"]["__ctx_group__"], "dev");
}

#[test]
fn hostile_files_are_errors() {
    let r = registry();
    let node = |inputs: &str| {
        format!(
            "{{\"nodes\": [{{\"op\": \"relu\", \"name\": \"a\", \"inputs\": {inputs}}}], \
             \"arg_nodes\": [], \"heads\": [[0, 0, 0]]}}"
        )
    };
    for text in [
        "",
        "[]",
        "{\"nodes\": []}",
        &node("[[0, 0, 0]]"),
        &node("[[7, 0, 0]]"),
        &node("[[-1, 0, 0]]"),
        &node("[[18446744073709551615, 0, 0]]"),
        &node("[[0, 4294967295, 0]]"),
        &node("[]").replace("inputs", "inpts"),
        &"[".repeat(100_000),
        &node("[]").replace("\"arg_nodes\": []", "\"arg_nodes\": [9]"),
    ] {
        assert!(load_json(text, &r, false, false).is_err(), "{text}");
    }
    let good = mlp(&r).to_json(false).unwrap();
    for cut in 0..good.len() {
        if good.is_char_boundary(cut) {
            assert!(load_json(&good[..cut], &r, false, false).is_err());
        }
    }
    let unknown = good.replace("\"relu\"", "\"rellu\"").replace("\"Loss\"", "\"Lost\"");
    let text = load_json(&unknown, &r, false, false).err().unwrap().to_string();
    assert!(text.contains("relu1") && text.contains("Lost"), "{text}");
}

#[test]
fn deep_graphs_load_copy_and_drop() {
    let r = registry();
    let relu = r.find("relu").unwrap();
    let mut net = var("x");
    for _ in 0..100_000 {
        let create = Create { name: "r", args: &[net], ..Create::default() };
        net = Symbol::create(&relu, create).unwrap();
    }
    let text = net.to_json(false).unwrap();
    let back = load_json(&text, &r, false, false).unwrap().value;
    let copy = back.deep_copy().unwrap();
    drop(back);
    let given = [("x".to_owned(), Shape::new(&[2]))];
    assert_eq!(copy.infer_shape(&given, false).unwrap().outputs, vec![Shape::new(&[2])]);
}

#[test]
fn an_unregistered_custom_operator_loads_and_fails_at_inference() {
    let r = registry();
    let text = r#"{"nodes": [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "Custom", "name": "c", "attrs": {"op_type": "mine"}, "inputs": [[0, 0, 0]]}],
        "arg_nodes": [0], "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}"#;
    let net = load_json(text, &r, false, false).unwrap().value;
    assert_eq!(net.list_arguments(), ["x"]);
    assert_eq!(net.list_outputs(), ["c_output"]);
    let again = load_json(&net.to_json(false).unwrap(), &r, false, false).unwrap().value;
    assert_eq!(again.attr("op_type").as_deref(), Some("mine"));
    let error = net.infer_shape(&[("x".into(), Shape::new(&[2]))], false).unwrap_err();
    assert!(error.to_string().contains("mine") && error.node() == Some("c"), "{error}");
}

#[test]
fn attributes_are_shared_and_hidden_keys_have_two_spellings() {
    let r = registry();
    let net = mlp(&r);
    let same = net.clone();
    net.attr_set("lr_mult", "3").unwrap();
    assert_eq!(same.attr("__lr_mult__").as_deref(), Some("3"));
    assert_eq!(same.attr("lr_mult").as_deref(), Some("3"));
    assert_eq!(same.list_attr()["lr_mult"], "3");
    let fc = named(&net.get_internals(), "fc1_output");
    assert!(fc.attr_set("weight_lr_mult", "1").is_err());
    assert!(fc.attr_set("num_hidden", "many").is_err());
    assert_eq!(fc.attr("num_hidden").as_deref(), Some("8"));
    fc.attr_set("num_hidden", "9").unwrap();
    let given = [("data".to_owned(), Shape::new(&[1, 2]))];
    assert_eq!(net.infer_shape(&given, false).unwrap().args[1], Shape::new(&[9, 2]));
}
