//! Draws whose parameters are arrays, and shuffling.

use super::super::common::{all_known, copy_view, elementwise, read_f64, wanted};
use super::distribution::{Distribution, Fault};
use super::{FLOATS, doc, dtype_of, fill};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::parallel::parallel_for;
use crate::kernels::random::Draws;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Gradient, Kernel, OpDef, ResourceRequest, Tuple};
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering};

params! {
    /// Parameters of samplers.
    pub struct SampleParam {
        shape: Tuple, default(Tuple::new()), "How many draws for each parameter; one without \
                                              further axes if empty.";
        dtype: Option<DType>, default(None), "Dtype of the output; float32 if None.";
    }
}

/// The parameter arrays of a sampler, with their names.
struct Arrays<'a> {
    views: SmallVec<[(&'a str, &'a View); 2]>,
}

impl Arrays<'_> {
    /// Parameters `i`; the second is 0 where there is one.
    #[inline(always)]
    fn at(&self, i: usize) -> [f64; 2] {
        let mut found = [0.0; 2];
        for (to, (_, view)) in found.iter_mut().zip(&self.views) {
            // SAFETY: inputs are not written while the kernel runs; inference gave them one size.
            *to = unsafe { read_f64(view.ptr(), view.dtype(), i) };
        }
        found
    }

    /// An error for the first parameters of which there is no distribution.
    fn check(&self, distribution: Distribution) -> Result<()> {
        let size = self.views[0].1.size();
        let first = AtomicUsize::new(size);
        parallel_for(size, 1 << 14, |mut range| {
            if let Some(i) = range.find(|&i| distribution.fault(self.at(i)).is_some()) {
                first.fetch_min(i, Ordering::Relaxed);
            }
        });
        let i = first.into_inner();
        if i == size {
            return Ok(());
        }
        let numbers = self.at(i);
        match distribution.fault(numbers) {
            None => Ok(()),
            Some(Fault { at, expected }) => {
                let (name, view) = self.views[at];
                let name = format!("{name}[{}]", place(view.dims(), i));
                Err(Error::invalid(&name, numbers[at], expected))
            }
        }
    }
}

/// The position of element `i` in an array of these extents, as an index is written.
fn place(dims: &[i64], mut i: usize) -> String {
    let mut position: Vec<String> = Vec::new();
    for &dim in dims.iter().rev() {
        position.push((i % dim as usize).to_string());
        i /= dim as usize;
    }
    position.reverse();
    position.join(", ")
}

/// One draw, or several, for each element of the parameter arrays.
fn sampler(
    name: &'static str,
    inputs: &'static [(&str, &str)],
    what: &str,
    distribution: Distribution,
) -> OpDef {
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
            let draws = &attrs.get::<SampleParam>().shape;
            let (first, rest) = inputs.split_at_mut(1);
            if let Some(own) = outputs[0].ndim().checked_sub(draws.len())
                && outputs[0].rank_known()
            {
                first[0].merge(&Shape::new(&outputs[0].dims()[..own]))?;
            }
            for other in rest.iter_mut() {
                first[0].merge(other)?;
                other.merge(&first[0])?;
            }
            if inputs[0].is_known() {
                let dims = inputs[0].dims().iter().chain(draws);
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
                if !wanted(call, 0) || call.inputs[0].size() == 0 {
                    return Ok(());
                }
                let names = inputs.iter().map(|(name, _)| *name);
                let arrays = Arrays { views: names.zip(call.inputs).collect() };
                arrays.check(distribution)?;
                let per = call.outputs[0].size() / call.inputs[0].size();
                let dtype = call.outputs[0].dtype();
                fill(call, |d, i| distribution.of(dtype, arrays.at(i / per)).draw(d));
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
            Distribution::Uniform,
        ),
        sampler(
            "_sample_normal",
            &[("mu", "Means."), ("sigma", "Standard deviations.")],
            "normal distributions",
            Distribution::Normal,
        ),
        sampler(
            "_sample_gamma",
            &[("alpha", "Shapes."), ("beta", "Scales.")],
            "gamma distributions",
            Distribution::Gamma,
        ),
        sampler(
            "_sample_exponential",
            &[("lam", "Rates.")],
            "exponential distributions",
            Distribution::Exponential,
        ),
        sampler(
            "_sample_poisson",
            &[("lam", "Means.")],
            "Poisson distributions",
            Distribution::Poisson,
        ),
        sampler(
            "_sample_negative_binomial",
            &[("k", "Numbers of successes."), ("p", "Probabilities of a success, in (0, 1].")],
            "numbers of failures before ``k`` successes",
            Distribution::Failures,
        ),
        sampler(
            "_sample_generalized_negative_binomial",
            &[("mu", "Means."), ("alpha", "Dispersions.")],
            "negative binomial distributions given by mean and dispersion",
            Distribution::Dispersed,
        ),
        shuffle(),
    ]
}
