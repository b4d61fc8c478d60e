//! Gradients that libraries write: a rule is recorded while its callback runs, and played back
//! after it; nodes that no bound gradient needs are left out.

use super::abi;
use super::call::call;
use super::decl::{ArgDecl, GradDecl, OpDecl};
use super::frame::{Asks, Frame};
use super::parse::with_parsed;
use super::parsed::Parsed;
use super::rule::{Node, Rule, Source};
use crate::error::{Error, Result};
use crate::operator::{
    ARG_COUNTS, Attrs, Dep, GradBuilder, GradEntry, GradNode, Gradient, Gradients, OpDef, Registry,
    Value,
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
                let listed = |parsed: &Parsed| parsed.or_fault(deps(&decl, parsed));
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
        Error::key(format!("the gradient rule uses operator '{}', which is not registered", n.op))
    })?;
    let mut inputs = Vec::with_capacity(n.inputs.len());
    for (arg, value) in &n.inputs {
        inputs.push((arg, resolve(&rule.values[*value], builder, of, made)?));
    }
    let placed = |e: Error| in_rule(e, n, of);
    if op.is_backward {
        let inputs: Vec<GradEntry> = inputs.into_iter().map(|i| i.1).collect();
        if op.library.is_some() {
            check_states(&op, of.attrs, &inputs, of).map_err(placed)?;
        }
        let outputs = builder.backward(&n.op, &inputs)?;
        let names = of.op.inputs(of.attrs);
        return Ok(Made { op: n.op.clone(), outputs, names });
    }
    let mut params: Vec<(&str, Value)> =
        n.params.iter().map(|(k, v)| (k.as_str(), Value::Str(v.clone()))).collect();
    let by_name = inputs.iter().any(|(arg, _)| arg.is_some());
    let decl = op.parse_shared(&params).ok().filter(|_| by_name);
    let decl = decl.and_then(|a| a.typed().downcast_ref::<Parsed>().map(|p| p.op.clone()));
    let inputs = match &decl {
        Some(decl) if decl.calls.names.is_none() => {
            let (inputs, counts) = by_argument(decl, inputs)?;
            if decl.has_variable_inputs() {
                params.push((ARG_COUNTS, Value::List(counts)));
            }
            inputs
        }
        _ => {
            let given = op.with_count(params.clone(), inputs.len());
            let attrs = op.parse_shared(&given).map_err(placed)?;
            in_order(&op, op.inputs(&attrs), inputs)?
        }
    };
    let attrs = op.parse_shared(&op.with_count(params.clone(), inputs.len())).map_err(placed)?;
    check_states(&op, &attrs, &inputs, of).map_err(placed)?;
    let outputs = builder.op(&n.op, &n.name, &params, &inputs).map_err(placed)?;
    Ok(Made { op: n.op.clone(), outputs, names: op.outputs(&attrs) })
}

fn misplaced(op: &str, arg: Option<&str>, names: &[&str]) -> Error {
    Error::value(format!(
        "the gradient rule passes '{}' to operator '{op}', expected its inputs, once each: {}",
        arg.unwrap_or("one more"),
        names.join(", ")
    ))
}

fn left_out(op: &str, arg: &str) -> Error {
    Error::value(format!("the gradient rule passes nothing as input '{arg}' of operator '{op}'"))
}

/// The inputs of a node whose operator is of a library, in its order, and how many arrays each
/// argument gets: a name says the next array of that argument, no name the next place of all.
fn by_argument(
    op: &OpDecl,
    given: Vec<(&Option<String>, GradEntry)>,
) -> Result<(Vec<GradEntry>, Vec<Value>)> {
    let names: Vec<&str> = op.inputs.iter().map(|a| a.name.as_str()).collect();
    let mut arrays: Vec<Vec<GradEntry>> = vec![Vec::new(); names.len()];
    let has_room = |a: &ArgDecl, n: usize| n < a.count || a.has(abi::AT_LEAST);
    for (arg, value) in given {
        let mut places = op.inputs.iter().zip(&arrays);
        let place = places.position(|(a, known)| {
            arg.as_ref().is_none_or(|arg| *arg == a.name) && has_room(a, known.len())
        });
        let place = place.ok_or_else(|| misplaced(&op.name, arg.as_deref(), &names))?;
        arrays[place].push(value);
    }
    for (arg, known) in op.inputs.iter().zip(&arrays) {
        if known.len() < arg.count && !(known.is_empty() && arg.has(abi::OPTIONAL)) {
            return Err(left_out(&op.name, &arg.name));
        }
    }
    let counts = arrays.iter().map(|known| Value::Int(known.len() as i64)).collect();
    Ok((arrays.into_iter().flatten().collect(), counts))
}

/// The inputs of a node in the operator's order: those that name an argument take its places one
/// after another.
fn in_order(
    op: &OpDef,
    names: Vec<String>,
    given: Vec<(&Option<String>, GradEntry)>,
) -> Result<Vec<GradEntry>> {
    if op.key_var_num_args.is_some() || given.iter().all(|(arg, _)| arg.is_none()) {
        return Ok(given.into_iter().map(|g| g.1).collect());
    }
    let mut places: Vec<Option<GradEntry>> = vec![None; names.len()];
    for (arg, value) in given {
        let fits = |name: &str| match arg {
            None => true,
            Some(arg) => {
                let digits = name.strip_prefix(arg.as_str()).map(|d| d.trim_start_matches('_'));
                digits.is_some_and(|d| d.bytes().all(|b| b.is_ascii_digit()))
            }
        };
        let free = |i: usize| places[i].is_none();
        let exact = names.iter().enumerate().position(|(i, n)| free(i) && arg.as_ref() == Some(n));
        let near = || names.iter().enumerate().position(|(i, n)| free(i) && fits(n));
        let Some(place) = exact.or_else(near) else {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            return Err(misplaced(&op.name, arg.as_deref(), &names));
        };
        places[place] = Some(value);
    }
    match places.iter().position(Option::is_none) {
        None => Ok(places.into_iter().flatten().collect()),
        Some(i) => Err(left_out(&op.name, &names[i])),
    }
}

fn resolve(
    source: &Source,
    builder: &mut dyn GradBuilder,
    node: &GradNode<'_>,
    made: &[Option<Made>],
) -> Result<GradEntry> {
    let missing = || Error::index("the gradient rule refers to an entry that does not exist");
    match source {
        Source::Given(Dep::OutGrad(i)) => node.out_grad(builder, *i),
        Source::Given(Dep::Input(i)) => node.inputs.get(*i).copied().ok_or_else(missing),
        Source::Given(Dep::Output(i)) => node.outputs.get(*i).copied().ok_or_else(missing),
        Source::Node(n, arg, i) => {
            let made = made.get(*n).and_then(Option::as_ref).ok_or_else(missing)?;
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
