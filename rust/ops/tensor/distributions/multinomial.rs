//! Draws from given probabilities, and the logarithms of those.

use super::super::common::{all_known, at_least_1d, read_f64, write_f64, zero_view};
use super::doc;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::random::Draws;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Dep, Gradient, Kernel, OpDef, ResourceRequest, Tuple};
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;

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

/// Rows of probabilities on the last axis.
struct Rows<'a> {
    view: &'a View,
    /// Numbers of a row.
    length: usize,
}

impl<'a> Rows<'a> {
    fn new(view: &'a View) -> Self {
        Rows { view, length: view.dims().last().map_or(0, |&length| length as usize) }
    }

    fn count(&self) -> usize {
        self.view.size() / self.length.max(1)
    }

    /// The probability of a number in a row.
    #[inline(always)]
    fn at(&self, row: usize, number: usize) -> f64 {
        // SAFETY: the row has this number; an input is not written while the kernel runs.
        unsafe { read_f64(self.view.ptr(), self.view.dtype(), row * self.length + number) }
    }

    /// The first number of a row whose cumulated probability exceeds `u`, or the last one.
    fn number_at(&self, row: usize, u: f64) -> usize {
        let mut sum = 0.0;
        let found = (0..self.length - 1).find(|&number| {
            sum += self.at(row, number);
            u < sum
        });
        found.unwrap_or(self.length - 1)
    }
}

/// Draws by inversion.
fn draw(call: &Call<'_>) -> Result<()> {
    let (rows, out, key) = (Rows::new(&call.inputs[0]), &call.outputs[0], call.ctx.random);
    if out.size() == 0 {
        return Ok(());
    }
    if rows.length == 0 {
        let shape = call.inputs[0].shape();
        return Err(Error::argument("data", "shape", shape, "at least one probability"));
    }
    let each = out.size() / rows.count();
    let log = call.outputs.get(1).map(|log| (Shared(log.ptr()), log.dtype()));
    let (to, dtype) = (Shared(out.ptr()), out.dtype());
    parallel_for(out.size(), (1usize << 14).div_ceil(rows.length), |range| {
        for i in range {
            let (row, u) = (i / each, Draws::new(key.seed, key.stream, i).uniform());
            let number = rows.number_at(row, u);
            // SAFETY: outputs hold an element for each draw, which belongs to one task.
            unsafe {
                write_f64(to.at(0), dtype, i, number as f64);
                if let Some((log, dtype)) = log {
                    write_f64(log.at(0), dtype, i, rows.at(row, number).ln());
                }
            }
        }
    });
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
    let [grad, data, draws] = call.inputs else {
        return Err(Error::internal("expected the output gradient, probabilities and draws"));
    };
    let (rows, out) = (Rows::new(data), &call.outputs[0]);
    zero_view(out);
    let each = draws.size() / rows.count().max(1);
    let fits = grad.size() == draws.size() && out.size() == data.size();
    if !fits || each * rows.count() != draws.size() {
        return Err(Error::argument("draws", "shape", draws.shape(), "as many for each row"));
    }
    for i in 0..draws.size() {
        // SAFETY: each draw has an element in the gradient; the output is like the probabilities.
        unsafe {
            let drawn = read_f64(draws.ptr(), draws.dtype(), i);
            if !(0.0..rows.length as f64).contains(&drawn) {
                let expected = format!("0 to {}, excluded", rows.length);
                return Err(Error::argument("draws", "value", drawn, expected));
            }
            let (row, number) = (i / each, drawn as usize);
            let at = row * rows.length + number;
            let sum = read_f64(out.ptr(), out.dtype(), at);
            let slope = read_f64(grad.ptr(), grad.dtype(), i) / rows.at(row, number);
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
