//! Draws from given probabilities, and the logarithms of those.

use super::super::common::{all_known, at_least_1d, read_f64, write_f64, zero_view};
use super::doc;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::random::Draws;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Dep, Gradient, Kernel, OpDef, ResourceRequest, Tuple};
use crate::params;
use crate::shape::Shape;

const BACKWARD: &str = "_backward_sample_multinomial";

params! {
    /// Parameters of `_sample_multinomial`.
    pub struct MultinomialParam {
        shape: Tuple, default(Tuple::new()), "How many draws from each distribution.";
        get_prob: bool, default(false), "Also give the logarithms of the probabilities of the \
                                         draws.";
        dtype: DType, default(DType::I32), "Dtype of the draws.";
    }
}

/// Draws by inversion: the first number whose cumulated probability exceeds a uniform draw.
fn draw(call: &Call<'_>) -> Result<()> {
    let (x, out, key) = (&call.inputs[0], &call.outputs[0], call.ctx.random);
    let k = x.dims().last().copied().unwrap_or(0) as usize;
    let rows = x.size() / k.max(1);
    if k == 0 && out.size() > 0 {
        let shape = call.inputs[0].shape();
        return Err(Error::argument("data", "shape", shape, "at least one probability"));
    }
    let per = out.size() / rows.max(1);
    for i in 0..out.size() {
        let (row, u) = (i / per.max(1), Draws::new(key.seed, key.stream, i).uniform());
        // SAFETY: rows lie in the data, outputs hold an element for each draw.
        unsafe {
            let p = |j: usize| read_f64(x.ptr(), x.dtype(), row * k + j);
            let (mut sum, mut chosen) = (0.0, k - 1);
            for j in 0..k {
                sum += p(j);
                if u < sum {
                    chosen = j;
                    break;
                }
            }
            write_f64(out.ptr(), out.dtype(), i, chosen as f64);
            if let Some(log) = call.outputs.get(1) {
                write_f64(log.ptr(), log.dtype(), i, p(chosen).ln());
            }
        }
    }
    Ok(())
}

fn multinomial() -> OpDef {
    OpDef::new::<MultinomialParam>("_sample_multinomial")
        .aliases(&["sample_multinomial"])
        .doc(&doc(
            "the numbers ``0 .. k - 1`` with the probabilities on the last axis. The draws have no \
             gradient; that of their logarithms in the probability of a number is the sum of ``1 / \
             p`` over the draws of that number",
            "int32 and others",
            "nd.sample_multinomial(nd.array([0.1, 0.9]), shape=3)",
            "(3,)",
        ))
        .inputs_are(&[(
            "data",
            "Probabilities ``(k)`` or ``(n, k)`` that sum to 1 on the last axis.",
        )])
        .output_names_by(|attrs| match attrs.get::<MultinomialParam>().get_prob {
            true => vec!["output0".into(), "output1".into()],
            false => vec!["output".into()],
        })
        .infer_shape(|attrs, inputs, outputs| {
            if !inputs[0].is_known() {
                return Ok(false);
            }
            let Some((_, lead)) = inputs[0].dims().split_last() else {
                return Err(Error::argument("data", "shape", &inputs[0], "one or two axes"));
            };
            let dims: Vec<i64> =
                lead.iter().chain(&attrs.get::<MultinomialParam>().shape).copied().collect();
            let out = at_least_1d(Shape::new(&dims));
            for slot in outputs.iter_mut() {
                assign_shape(slot, "output", &out)?;
            }
            Ok(all_known(inputs, outputs))
        })
        .infer_type(|attrs: &Attrs, inputs, outputs| {
            assign_type(&mut outputs[0], "output", attrs.get::<MultinomialParam>().dtype)?;
            if let (Some(slot), Some(t)) = (outputs.get_mut(1), inputs[0]) {
                assign_type(slot, "output1", t)?;
            }
            Ok(inputs[0].is_some())
        })
        .resources(&[ResourceRequest::Random])
        .gradient(Gradient::rule_reading(&[Dep::Input(0), Dep::Output(0)], |builder, node| {
            let Some(Some(slope)) = node.out_grads.get(1) else { return Ok(vec![None]) };
            let inputs = [*slope, node.inputs[0], node.outputs[0]];
            Ok(vec![Some(builder.backward(BACKWARD, &inputs)?[0])])
        }))
        .kernel(Kernel::cpu(draw))
}

/// The gradient of the logarithms: one over the probability of what was drawn, for each draw.
fn slope(call: &Call<'_>) -> Result<()> {
    let [grad, p, draws] = call.inputs else {
        return Err(Error::internal("expected the output gradient, probabilities and draws"));
    };
    let out = &call.outputs[0];
    zero_view(out);
    let k = p.dims().last().copied().unwrap_or(0) as usize;
    let per = draws.size() / (p.size() / k.max(1)).max(1);
    if grad.size() != draws.size() || out.size() != p.size() || per * p.size() < draws.size() * k {
        return Err(Error::argument("draws", "shape", draws.shape(), "as many for each row"));
    }
    for i in 0..draws.size() {
        // SAFETY: each draw has an element in the gradient, and each row as many draws.
        unsafe {
            let drawn = read_f64(draws.ptr(), draws.dtype(), i);
            if !(0.0..k as f64).contains(&drawn) {
                return Err(Error::argument(
                    "draws",
                    "value",
                    drawn,
                    format!("0 to {k}, excluded"),
                ));
            }
            let at = i / per * k + drawn as usize;
            let sum = read_f64(out.ptr(), out.dtype(), at);
            let slope = read_f64(grad.ptr(), grad.dtype(), i) / read_f64(p.ptr(), p.dtype(), at);
            write_f64(out.ptr(), out.dtype(), at, sum + slope);
        }
    }
    Ok(())
}

pub fn operators() -> Vec<OpDef> {
    let backward = OpDef::new::<MultinomialParam>(BACKWARD)
        .inputs_are(&[
            ("ograd", "Gradient of the logarithms."),
            ("data", "The probabilities."),
            ("draws", "What was drawn."),
        ])
        .kernel(Kernel::cpu(slope).skips_null());
    vec![multinomial(), backward]
}
