//! Gradients of operators defined in Python: declared dependencies, or a rule that composes
//! operators.

use super::call_python::CallPython;
use super::operator::{ask, call};
use crate::error::Result;
use crate::operator::{Dep, GradBuilder, GradEntry, GradNode, Gradient, Gradients, Value};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

pub fn gradient(d: &Bound<'_, PyAny>) -> PyResult<Gradient> {
    let spec = d.getattr("gradient")?;
    if spec.is_none() {
        return Ok(Gradient::None);
    }
    if spec.extract::<&str>().is_ok_and(|s| s == "zero") {
        return Ok(Gradient::Zero);
    }
    let spec = spec.cast::<PyTuple>()?;
    let kind: String = spec.get_item(0)?.extract()?;
    if kind == "rule" {
        let rule = spec.get_item(1)?.unbind();
        return Ok(Gradient::rule(move |builder, node| run_rule(&rule, builder, node)));
    }
    let (op, deps): (String, Py<PyAny>) =
        (spec.get_item(1)?.extract()?, spec.get_item(2)?.unbind());
    Ok(Gradient::declared(&op, move |attrs, n_in, n_out| {
        let pairs: Vec<(i64, usize)> =
            ask(attrs, |py, p| deps.bind(py).call_python((p, n_in, n_out))?.extract());
        let dep = |(source, i)| match source {
            OUT_GRAD => Dep::OutGrad(i),
            INPUT => Dep::Input(i),
            _ => Dep::Output(i),
        };
        pairs.into_iter().map(dep).collect()
    }))
}

/// Where an operand of a gradient comes from; mirrors `rsnet._operators.gradient.Source`.
const INPUT: i64 = -1;
const OUTPUT: i64 = -2;
const OUT_GRAD: i64 = -3;

/// One operator that a rule asks for: an ordinary one, or a backward operator of the node.
#[derive(FromPyObject)]
struct RuleCall {
    backward: bool,
    op: String,
    name: String,
    params: Vec<(String, String)>,
    inputs: Vec<(i64, usize)>,
}

/// Runs a rule written in Python. The function sees no builder: it writes down what to compose, as
/// data, and this plays it back. Entries are `(INPUT | OUTPUT | OUT_GRAD, i)` or `(call, output)`.
fn run_rule(
    rule: &Py<PyAny>,
    builder: &mut dyn GradBuilder,
    node: &GradNode<'_>,
) -> Result<Gradients> {
    type Spec = Option<(Vec<i64>, &'static str)>;
    type Program = (Vec<RuleCall>, Vec<Option<(i64, usize)>>);
    let present: Vec<bool> = node.out_grads.iter().map(Option::is_some).collect();
    let spec = |entry: &GradEntry| -> Spec {
        builder.spec(*entry).map(|(shape, dtype)| (shape.to_legacy().to_vec(), dtype.name()))
    };
    let specs: [Vec<Spec>; 2] =
        [node.inputs, node.outputs].map(|entries| entries.iter().map(spec).collect());
    let (calls, results): Program = call(node.attrs, |py, payload| {
        let args = (payload, node.name, node.needed.to_vec(), present, node.outputs.len(), specs);
        rule.bind(py).call_python(args)?.extract()
    })?;
    let mut made: Vec<Vec<GradEntry>> = Vec::with_capacity(calls.len());
    for c in &calls {
        let mut inputs = Vec::with_capacity(c.inputs.len());
        for &entry in &c.inputs {
            inputs.push(resolve(entry, builder, node, &made)?.ok_or_else(GradEntry::missing)?);
        }
        made.push(if c.backward {
            builder.backward(&c.op, &inputs)?
        } else {
            let params: Vec<(&str, Value)> =
                c.params.iter().map(|(k, v)| (k.as_str(), Value::from(v.as_str()))).collect();
            builder.op(&c.op, &c.name, &params, &inputs)?
        });
    }
    let mut gradients = Vec::with_capacity(results.len());
    for result in results {
        gradients.push(match result {
            None => None,
            Some(entry) => {
                Some(resolve(entry, builder, node, &made)?.ok_or_else(GradEntry::missing)?)
            }
        });
    }
    Ok(gradients)
}

fn resolve(
    entry: (i64, usize),
    builder: &mut dyn GradBuilder,
    node: &GradNode<'_>,
    made: &[Vec<GradEntry>],
) -> Result<Option<GradEntry>> {
    let (source, i) = entry;
    Ok(match source {
        INPUT => node.inputs.get(i).copied(),
        OUTPUT => node.outputs.get(i).copied(),
        OUT_GRAD if i < node.out_grads.len() => Some(node.out_grad(builder, i)?),
        call => usize::try_from(call).ok().and_then(|call| made.get(call)?.get(i)).copied(),
    })
}
