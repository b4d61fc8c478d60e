//! `IdentityAttachKLSparseReg`: identity whose gradient has that of a penalty on units that are
//! active more or less often than wanted.

use super::infer::{complete, float_type};
use super::widening;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::copy::copy;
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, OpDef, OpReq};
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `IdentityAttachKLSparseReg`.
    pub struct SparsePenaltyParam {
        sparseness_target: f32, default(0.1).ge(0.0).le(1.0), "The activity that units should have \
             on average.";
        penalty: f32, default(0.001), "Factor of the penalty.";
        momentum: f32, default(0.9).ge(0.0).le(1.0), "How much of the average activity stays in a \
                                                      step.";
    }
}

const DOC: &str = r#"
Identity forward; backward, the gradient of a divergence between the average activity of each unit
and a target is added: ``penalty * (-t / m + (1 - t) / (1 - m))``, with the target ``t`` and the
average ``m``.

Notes
-----
data ``(N, C, ...)`` of activities between 0 and 1, as a sigmoid gives; moving_avg ``(C,)`` is an
auxiliary state. The backward run updates it first: ``m = momentum * m + (1 - momentum) * mean``
over all but axis 1. float16 (calculated in float32), float32 or float64; data of fewer than two
axes are an error. Source: A. Ng, Sparse autoencoder (lecture notes CS294A).

Examples
--------
>>> out = sym.IdentityAttachKLSparseReg(sym.Variable('data'), name='reg')
>>> out.list_auxiliary_states()
['reg_moving_avg']
"#;

pub fn operators() -> Vec<OpDef> {
    let forward = OpDef::new::<SparsePenaltyParam>("IdentityAttachKLSparseReg")
        .doc(DOC)
        .inputs_are(&[
            ("data", "The activities."),
            ("moving_avg", "The average activity of units."),
        ])
        .mutates(&[1])
        .rerun_safe()
        .infer_shape(infer_shape)
        .infer_type(float_type)
        .inplace(&[InplacePair::identity(0, 0)])
        .variable_attr("moving_avg", "__init__", "[\"zero\", {}]")
        .gradient(Gradient::declared("_backward_IdentityAttachKLSparseReg", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1)]
        }))
        .kernel(widening::cpu(|call| {
            if call.req[0] != OpReq::Null {
                copy(&call.inputs[0], &call.outputs[0]);
            }
            Ok(())
        }));
    let backward = OpDef::new::<SparsePenaltyParam>("_backward_IdentityAttachKLSparseReg")
        .mutates(&[2])
        .inplace(&[InplacePair::new(0, 0)])
        .not_deterministic()
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call))));
    vec![forward, backward]
}

fn infer_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    let data = inputs[0].clone();
    assign_shape(&mut outputs[0], "output", &data)?;
    if data.rank_known() {
        let Some(&units) = data.dims().get(1) else {
            return Err(Error::argument("data", "shape", &data, "at least two axes"));
        };
        assign_shape(&mut inputs[1], "moving_avg", &Shape::new(&[units]))?;
    }
    complete(inputs, outputs)
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let p: &SparsePenaltyParam = call.attrs.get();
    let (g, x, average) = (&call.inputs[0], &call.inputs[1], &call.inputs[2]);
    let (target, momentum) = (f64::from(p.sparseness_target), f64::from(p.momentum));
    let units = average.size();
    let inner = x.shape().product(2..x.shape().ndim());
    let rows = x.size() / (units * inner).max(1);
    for unit in 0..units {
        let at = |row: usize| (row * units + unit) * inner;
        // SAFETY: inference gave the views these extents; the state and the output are ours to
        // write, and the output is the gradient or apart from it.
        unsafe {
            let mean = (0..rows)
                .flat_map(|row| at(row)..at(row) + inner)
                .map(|i| Element::to_f64(*x.as_ptr::<T>().add(i)))
                .sum::<f64>()
                / (rows * inner).max(1) as f64;
            let state = average.as_ptr::<T>().add(unit);
            let m = momentum * Element::to_f64(*state) + (1.0 - momentum) * mean;
            *state = T::of(m);
            if call.req[0] == OpReq::Null {
                continue;
            }
            let slope = f64::from(p.penalty) * ((1.0 - target) / (1.0 - m) - target / m);
            for i in (0..rows).flat_map(|row| at(row)..at(row) + inner) {
                let sum = Element::to_f64(*g.as_ptr::<T>().add(i)) + slope;
                *call.outputs[0].as_ptr::<T>().add(i) = T::of(sum);
            }
        }
    }
    if call.req[1] != OpReq::Null {
        // SAFETY: the gradient of the state is ours to write.
        unsafe { call.outputs[1].slice_mut::<T>() }.fill(T::zero());
    }
    Ok(())
}
