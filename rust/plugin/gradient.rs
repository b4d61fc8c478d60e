//! Gradients that libraries write: a rule is recorded while its callback runs, and played back
//! after it; nodes that no bound gradient needs are left out.

use super::abi;
use super::call::call;
use super::decl::{GradDecl, OpDecl};
use super::frame::{Asks, Frame};
use super::parse::with_parsed;
use super::parsed::Parsed;
use super::rule::{Node, Rule, Source};
use crate::error::{Error, Result};
use crate::operator::{
    ARG_COUNTS, Attrs, Dep, GradBuilder, GradEntry, GradNode, Gradient, Gradients, OpDef, Registry,
    Value, share_among_others,
};
use std::sync::{Arc, Weak};

/// The gradient of an operator as the core wants it.
pub fn gradient(op: &Arc<OpDecl>, decl: &Arc<GradDecl>, registry: &Weak<Registry>) -> Gradient {
    let (op, decl) = (op.clone(), decl.clone());
    match decl.calls.kind {
        abi::GRAD_ZERO => Gradient::Zero,
        abi::GRAD_BACKWARD => {
            let backward = decl.backward.clone();
            Gradient::declared(&backward, move |attrs, _, _| {
                let listed = |parsed: &Parsed| parsed.error.defer(deps(&decl, parsed));
                with_parsed(attrs, &op, listed).unwrap_or_default()
            })
        }
        _ => {
            let registry = registry.clone();
            Gradient::rule(move |builder, node| {
                let rule = with_parsed(node.attrs, &op, |p| record(&decl, p, node));
                rule.and_then(|p| p).and_then(|p| play(&p, builder, node, &registry))
            })
        }
    }
}

/// The arrays that a backward operator reads: all output gradients if there is no callback.
fn deps(decl: &GradDecl, parsed: &Parsed) -> Result<Vec<Dep>> {
    if decl.calls.deps.is_none() {
        let visible = parsed.names[1].iter().filter(|n| n.1 & abi::HIDDEN == 0).count();
        return Ok((0..visible).map(Dep::OutGrad).collect());
    }
    let frame = Frame::new(parsed).of(&decl.library).asking(Asks::Deps);
    call(&frame, "deps", decl.calls.deps, decl.calls.user)?;
    Ok(frame.into_said().deps)
}

fn record(decl: &GradDecl, parsed: &Parsed, node: &GradNode<'_>) -> Result<Rule> {
    let frame = Frame::new(parsed).of(&decl.library);
    frame.scene().said().rule = Some(Rule::new(node));
    call(&frame, "the gradient rule", decl.calls.rule, decl.calls.user)?;
    let failure = frame.failure();
    let rule = frame.into_said().rule;
    let rule = rule.ok_or_else(|| Error::internal("a gradient rule lost what it recorded"))?;
    for (i, needed) in node.needed.iter().enumerate() {
        let none = abi::STATE | abi::NO_GRAD;
        let expected = parsed.names[0].get(i).is_none_or(|n| n.1 & none == 0);
        if *needed && expected && rule.bound[i].is_none() {
            let name = parsed.names[0].get(i).map_or("?", |n| n.0.as_str());
            let why = failure.map_or_else(String::new, |text| format!(" ({text})"));
            return Err(Error::value(format!(
                "the gradient rule bound no gradient to input '{name}', which needs one{why}"
            )));
        }
    }
    Ok(rule)
}

fn play(
    rule: &Rule,
    builder: &mut dyn GradBuilder,
    node: &GradNode<'_>,
    registry: &Weak<Registry>,
) -> Result<Gradients> {
    let registry =
        registry.upgrade().ok_or_else(|| Error::internal("the registry of operators is gone"))?;
    let needed = rule.reachable();
    let mut made: Vec<Option<Made>> = Vec::new();
    for (n, wanted) in rule.nodes.iter().zip(&needed) {
        made.push(if *wanted {
            Some(make(rule, n, builder, node, &registry, &made)?)
        } else {
            None
        });
    }
    let mut gradients = Vec::with_capacity(rule.bound.len());
    for (bound, needed) in rule.bound.iter().zip(node.needed) {
        gradients.push(match bound {
            Some(value) if *needed => Some(resolve(&rule.values[*value], builder, node, &made)?),
            _ => None,
        });
    }
    Ok(gradients)
}

/// A node that was built: its outputs and their names.
struct Made {
    op: String,
    outputs: Vec<GradEntry>,
    names: Vec<String>,
}

/// An error that operator `n.op` reports of a node in the rule of `of`, which it names first.
fn in_rule(error: Error, n: &Node, of: &GradNode<'_>) -> Error {
    if error.payload().is_some() {
        return error;
    }
    let node = if n.name.is_empty() { String::new() } else { format!(" '{}'", n.name) };
    let text = format!("the gradient rule's operator {}{node}: {}", n.op, error.message());
    Error::new(error.kind(), text).at_node(&of.op.name, of.name)
}

/// Refuses a node that would modify anything but states of the operator which is differentiated.
fn check_states(op: &OpDef, attrs: &Attrs, inputs: &[GradEntry], of: &GradNode<'_>) -> Result<()> {
    let states = of.op.mutates.to_vec(of.attrs);
    let is_state = |entry| states.iter().any(|i| of.inputs.get(*i) == Some(entry));
    let modified = op.mutates.to_vec(attrs);
    let wrong = modified.iter().find(|i| inputs.get(**i).is_some_and(|entry| !is_state(entry)));
    let Some(i) = wrong else { return Ok(()) };
    let name = op.inputs(attrs).get(*i).cloned().unwrap_or_default();
    Err(Error::value(format!(
        "it modifies its input '{name}', expected a state of operator {}, since all else is needed \
         as it is",
        of.op.name
    )))
}

fn make(
    rule: &Rule,
    n: &Node,
    builder: &mut dyn GradBuilder,
    of: &GradNode<'_>,
    registry: &Registry,
    made: &[Option<Made>],
) -> Result<Made> {
    let op = registry.get(&n.op).ok_or_else(|| {
        Error::key(format!(
            "unknown operator '{}' in the gradient rule: expected a registered one",
            n.op
        ))
    })?;
    let mut inputs = Vec::with_capacity(n.inputs.len());
    for (arg, value) in &n.inputs {
        inputs.push((arg, resolve(&rule.values[*value], builder, of, made)?));
    }
    let placed = |e: Error| in_rule(e, n, of);
    let mut params: Vec<(&str, Value)> =
        n.params.iter().map(|(k, v)| (k.as_str(), Value::Str(v.clone()))).collect();
    if op.is_backward {
        let inputs: Vec<GradEntry> = inputs.into_iter().map(|i| i.1).collect();
        let own = op.own_params(of.op, of.attrs, params);
        if op.library.is_some() {
            let attrs = op.attrs_in_gradient(of.attrs, &own, inputs.len()).map_err(placed)?;
            check_states(&op, attrs.as_deref().unwrap_or(of.attrs), &inputs, of).map_err(placed)?;
        }
        let outputs = builder.backward_with(&n.op, &own, &inputs)?;
        let names = of.op.inputs(of.attrs);
        return Ok(Made { op: n.op.clone(), outputs, names });
    }
    let inputs = if inputs.iter().all(|(arg, _)| arg.is_none()) {
        inputs.into_iter().map(|i| i.1).collect()
    } else if op.arguments.is_empty() {
        let given = op.with_count(params.clone(), inputs.len());
        let attrs = op.parse_shared(&given).map_err(placed)?;
        in_order(&op, &op.inputs(&attrs), inputs).map_err(placed)?
    } else {
        let (inputs, counts) = by_argument(&op, inputs).map_err(placed)?;
        params.push((ARG_COUNTS, Value::List(counts)));
        inputs
    };
    let attrs = op.parse_shared(&op.with_count(params.clone(), inputs.len())).map_err(placed)?;
    check_states(&op, &attrs, &inputs, of).map_err(placed)?;
    let outputs = builder.op(&n.op, &n.name, &params, &inputs).map_err(placed)?;
    Ok(Made { op: n.op.clone(), outputs, names: op.outputs(&attrs) })
}

fn misplaced(arg: Option<&str>, names: &[String]) -> Error {
    Error::value(format!(
        "got '{}', expected its inputs, once each: {}",
        arg.unwrap_or("one more"),
        names.join(", ")
    ))
}

fn left_out(arg: &str) -> Error {
    Error::value(format!("got nothing as input '{arg}', expected an array"))
}

/// An array, and the argument that it is for, if the rule names one.
type Given<'a> = (&'a Option<String>, GradEntry);

/// The inputs of a node in the order of the operator's arguments, and how many each of these gets:
/// by names, and the others as in a call.
fn by_argument(op: &OpDef, given: Vec<Given<'_>>) -> Result<(Vec<GradEntry>, Vec<Value>)> {
    let names: Vec<String> = op.arguments.iter().map(|a| a.name.clone()).collect();
    let mut named: Vec<Vec<GradEntry>> = vec![Vec::new(); names.len()];
    let mut unnamed = Vec::new();
    for (arg, value) in given {
        let Some(arg) = arg else {
            unnamed.push(value);
            continue;
        };
        let has_room = |at: &usize| {
            let argument = &op.arguments[*at];
            named[*at].len() < argument.count || argument.open
        };
        let place = names.iter().position(|name| name == arg).filter(has_room);
        named[place.ok_or_else(|| misplaced(Some(arg), &names))?].push(value);
    }
    let is_named: Vec<bool> = named.iter().map(|arrays| !arrays.is_empty()).collect();
    let others = share_among_others(&op.arguments, &is_named, unnamed)?;
    for (own, shared) in named.iter_mut().zip(others) {
        own.extend(shared);
    }
    for (arg, arrays) in op.arguments.iter().zip(&named) {
        if arrays.len() < arg.count && !(arrays.is_empty() && arg.optional) {
            return Err(left_out(&arg.name));
        }
    }
    let counts = named.iter().map(|arrays| Value::Int(arrays.len() as i64)).collect();
    Ok((named.into_iter().flatten().collect(), counts))
}

/// Is `name` that of an array of argument `arg`, such as `x_1` or `arg1`?
fn is_array_of(name: &str, arg: &str) -> bool {
    let digits = name.strip_prefix(arg).map(|d| d.trim_start_matches('_'));
    digits.is_some_and(|d| d.bytes().all(|b| b.is_ascii_digit()))
}

/// The inputs of a node in the order of `names`: arrays that name an argument take its places one
/// after another, and then the others those that are left. Where the operator takes any number, all
/// are also called `data`, as in Python.
fn in_order(op: &OpDef, names: &[String], given: Vec<Given<'_>>) -> Result<Vec<GradEntry>> {
    let is_all = |arg: &str| arg == "data" && op.key_var_num_args.is_some();
    let mut places: Vec<Option<GradEntry>> = vec![None; names.len()];
    let (named, unnamed): (Vec<_>, Vec<_>) = given.into_iter().partition(|(arg, _)| arg.is_some());
    for (arg, value) in named.into_iter().chain(unnamed) {
        let free = |fits: &dyn Fn(&str) -> bool| {
            (0..names.len()).find(|i| places[*i].is_none() && fits(&names[*i]))
        };
        let place = match arg {
            None => free(&|_| true),
            Some(arg) => free(&|name| name == arg)
                .or_else(|| free(&|name| is_array_of(name, arg)))
                .or_else(|| free(&|_| is_all(arg))),
        };
        let place = place.ok_or_else(|| misplaced(arg.as_deref(), names))?;
        places[place] = Some(value);
    }
    match places.iter().position(Option::is_none) {
        None => Ok(places.into_iter().flatten().collect()),
        Some(i) => Err(left_out(&names[i])),
    }
}

fn resolve(
    source: &Source,
    builder: &mut dyn GradBuilder,
    node: &GradNode<'_>,
    made: &[Option<Made>],
) -> Result<GradEntry> {
    match source {
        Source::Given(Dep::OutGrad(i)) => node.out_grad(builder, *i),
        Source::Given(Dep::Input(i)) => node.inputs.get(*i).copied().ok_or_else(GradEntry::missing),
        Source::Given(Dep::Output(i)) => {
            node.outputs.get(*i).copied().ok_or_else(GradEntry::missing)
        }
        Source::Node(n, arg, i) => {
            let made = made.get(*n).and_then(Option::as_ref).ok_or_else(GradEntry::missing)?;
            let named = |arg: &String| {
                let array = format!("{arg}_{i}");
                made.names.iter().position(|n| (*i == 0 && n == arg) || *n == array)
            };
            let at = match arg {
                None => Some(*i),
                Some(arg) => named(arg),
            };
            at.and_then(|at| made.outputs.get(at)).copied().ok_or_else(|| {
                Error::index(format!(
                    "the gradient rule reads output '{}' {i} of operator '{}', expected one of: {}",
                    arg.as_deref().unwrap_or(""),
                    made.op,
                    made.names.join(", ")
                ))
            })
        }
    }
}
