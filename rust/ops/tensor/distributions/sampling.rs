//! Draws whose parameters are arrays, and shuffling.

use super::super::common::{all_known, copy_view, elementwise, read_f64, wanted};
use super::{FLOATS, dispersed, doc, dtype_of, fill, gamma_poisson};
use crate::dtype::DType;
use crate::kernels::parallel::Shared;
use crate::kernels::random::{Draws, Span};
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Gradient, Kernel, OpDef, ResourceRequest, Tuple};
use crate::params;
use crate::shape::Shape;

params! {
    /// Parameters of samplers.
    pub struct SampleParam {
        shape: Tuple, default(Tuple::new()), "How many draws for each parameter; one without \
                                              further axes if empty.";
        dtype: Option<DType>, default(None), "Dtype of the output; float32 if None.";
    }
}

/// One draw, or several, for each element of the parameter arrays.
fn sampler(
    name: &'static str,
    inputs: &[(&str, &str)],
    what: &str,
    f: fn(&mut Draws, DType, f64, f64) -> f64,
) -> OpDef {
    let pair = inputs.len() == 2;
    OpDef::new::<SampleParam>(name)
        .aliases(&[name.trim_start_matches('_')])
        .doc(&doc(
            what,
            "float32, float64, float16",
            &format!(
                "nd.{}({}, shape=3)",
                name.trim_start_matches('_'),
                vec!["nd.array([0.5, 1])"; inputs.len()].join(", ")
            ),
            "(2, 3)",
        ))
        .inputs_are(inputs)
        .infer_shape(|attrs, inputs, outputs| {
            let (first, rest) = inputs.split_at_mut(1);
            for other in rest.iter_mut() {
                first[0].merge(other)?;
                other.merge(&first[0])?;
            }
            if inputs[0].is_known() {
                let dims = inputs[0].dims().iter().chain(&attrs.get::<SampleParam>().shape);
                let out = Shape::new(&dims.copied().collect::<Vec<_>>());
                assign_shape(&mut outputs[0], "output", &out)?;
            }
            Ok(all_known(inputs, outputs))
        })
        .infer_type(|attrs: &Attrs, inputs, outputs| {
            let own = inputs.iter().find_map(|t| *t);
            for slot in inputs.iter_mut() {
                *slot = slot.or(own);
            }
            Ok(dtype_of(attrs.get::<SampleParam>().dtype, &FLOATS, &mut outputs[0])?
                && own.is_some())
        })
        .resources(&[ResourceRequest::Random])
        .gradient(Gradient::Zero)
        .kernel(
            Kernel::cpu(move |call| {
                let per = call.outputs[0].size() / call.inputs[0].size().max(1);
                let views: Vec<_> =
                    call.inputs.iter().map(|v| (Shared(v.ptr()), v.dtype())).collect();
                // SAFETY: the parameter arrays hold an element for each group of draws.
                let at = |k: usize, i: usize| unsafe {
                    read_f64(views[k].0.at(0), views[k].1, i / per.max(1))
                };
                let dtype = call.outputs[0].dtype();
                fill(call, |d, i| f(d, dtype, at(0, i), if pair { at(1, i) } else { 0.0 }));
                Ok(())
            })
            .skips_null(),
        )
}

fn shuffle() -> OpDef {
    elementwise(OpDef::plain("_shuffle"))
        .aliases(&["_npi_shuffle", "shuffle"])
        .doc(
            "The rows (the first axis) in random order.\n\nNotes\n-----\nAny shape and dtype; \
             every order is equally likely.\n\nExamples\n--------\n>>> \
             nd.random.shuffle(nd.arange(5)).shape\n(5,)\n",
        )
        .inputs_are(&[("data", "The array to shuffle.")])
        .resources(&[ResourceRequest::Random])
        .gradient(Gradient::Zero)
        .kernel(
            Kernel::cpu(|call| {
                let (x, out, key) = (&call.inputs[0], &call.outputs[0], call.ctx.random);
                if !wanted(call, 0) || x.ndim() == 0 {
                    return Ok(());
                }
                let rows = x.dims()[0] as usize;
                copy_view(x, out);
                let bytes = out.size_bytes() / rows.max(1);
                for i in (1..rows).rev() {
                    let j = Draws::new(key.seed, key.stream, i).integer(0, i as i64 + 1) as usize;
                    if i != j {
                        // SAFETY: two different rows of the output.
                        unsafe {
                            std::ptr::swap_nonoverlapping(
                                out.ptr().add(i * bytes),
                                out.ptr().add(j * bytes),
                                bytes,
                            )
                        };
                    }
                }
                Ok(())
            })
            .skips_null(),
        )
}

pub fn operators() -> Vec<OpDef> {
    vec![
        sampler(
            "_sample_uniform",
            &[("low", "Least values."), ("high", "Bounds of the values.")],
            "uniform distributions",
            |d, dtype, a, b| Span::new(dtype, a, b).at(d.uniform()),
        ),
        sampler(
            "_sample_normal",
            &[("mu", "Means."), ("sigma", "Standard deviations.")],
            "normal distributions",
            |d, _, a, b| a + b * d.normal(),
        ),
        sampler(
            "_sample_gamma",
            &[("alpha", "Shapes."), ("beta", "Scales.")],
            "gamma distributions",
            |d, _, a, b| b * d.gamma(a),
        ),
        sampler(
            "_sample_exponential",
            &[("lam", "Rates.")],
            "exponential distributions",
            |d, _, a, _| d.exponential() / a,
        ),
        sampler("_sample_poisson", &[("lam", "Means.")], "Poisson distributions", |d, _, a, _| {
            d.poisson(a)
        }),
        sampler(
            "_sample_negative_binomial",
            &[("k", "Numbers of successes."), ("p", "Probabilities of a success, in (0, 1].")],
            "numbers of failures before ``k`` successes",
            |d, _, k, p| gamma_poisson(d, k, (1.0 - p) / p),
        ),
        sampler(
            "_sample_generalized_negative_binomial",
            &[("mu", "Means."), ("alpha", "Dispersions.")],
            "negative binomial distributions given by mean and dispersion",
            |d, _, mu, alpha| dispersed(d, mu, alpha),
        ),
        shuffle(),
    ]
}
