//! `LayerNorm`: normalisation along one axis.

use super::infer::{complete, expect_rank, float_type};
use super::widening::{self, always};
use super::window::swap_inner;
use crate::error::Result;
use crate::kernels::layer_norm::{Grads, Rows, Saved};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};

params! {
    /// Parameters of `LayerNorm`.
    pub struct LayerNormParam {
        axis: i32, default(-1), "The axis to normalise along.";
        eps: f32, default(1e-5), "Added to the variance.";
        output_mean_var: bool, default(false), "Return mean and standard deviation as well.";
    }
}

const DOC: &str = r#"
Normalises along an axis: ``y = gamma * (x - mean) / sqrt(var + eps) + beta``, with mean and
(biased) variance over ``axis``.

Notes
-----
Any shape; gamma and beta have the extent of ``axis`` and are inferred. The hidden outputs ``mean``
and ``std`` (``sqrt(var + eps)``) keep ``axis`` with extent 1 and are visible with
``output_mean_var=True``; no gradient flows through them. One dtype: float16 (calculated in
float32), float32 or float64.

Examples
--------
>>> nd.LayerNorm(nd.array([[1, 3]]), nd.ones(2), nd.zeros(2))
[[-0.999995  0.999995]]

References
----------
J. Ba, J. Kiros, G. Hinton, Layer Normalization, arXiv:1607.06450.
"#;

pub fn operators() -> Vec<OpDef> {
    let forward = OpDef::new::<LayerNormParam>("LayerNorm")
        .aliases(&["_npx_layer_norm"])
        .doc(DOC)
        .inputs_are(&[
            ("data", "The data."),
            ("gamma", "Scale of each element of the axis."),
            ("beta", "Shift of each element of the axis."),
        ])
        .outputs_are(&["output", "mean", "std"])
        .visible(|attrs| if attrs.get::<LayerNormParam>().output_mean_var { 3 } else { 1 })
        .infer_shape(infer_shape)
        .infer_type(float_type)
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::declared("_backward_LayerNorm", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1), Dep::Output(1), Dep::Output(2)]
        }))
        .kernel(always(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call))));
    let backward = OpDef::new::<LayerNormParam>("_backward_LayerNorm")
        .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call))));
    vec![forward, backward]
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    expect_rank(&inputs[0], "data", 1..=usize::MAX)?;
    assign_shape(&mut outputs[0], "output", &inputs[0])?;
    if inputs[0].rank_known() {
        let axis = inputs[0].axis(attrs.get::<LayerNormParam>().axis.into())?;
        let width = Shape::new(&inputs[0].dims()[axis..=axis]);
        assign_shape(&mut inputs[1], "gamma", &width)?;
        assign_shape(&mut inputs[2], "beta", &width)?;
        let mut stats = inputs[0].clone();
        stats.dims_mut()[axis] = 1;
        assign_shape(&mut outputs[1], "mean", &stats)?;
        assign_shape(&mut outputs[2], "std", &stats)?;
    }
    complete(inputs, outputs)
}

/// (outer, len, inner) around the axis.
pub fn extents(attrs: &Attrs, data: &View) -> (usize, usize, usize) {
    let s = data.shape();
    let rank = s.ndim();
    let axis = i64::from(attrs.get::<LayerNormParam>().axis).rem_euclid(rank as i64) as usize;
    (s.product(0..axis), s.product(axis..axis + 1), s.product(axis + 1..rank))
}

fn plan<T: Real>(attrs: &Attrs, (outer, len, inner): (usize, usize, usize)) -> Rows<T> {
    let eps = T::of(attrs.get::<LayerNormParam>().eps.into());
    Rows { rows: outer * inner, width: len, eps }
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let [data, gamma, beta] = call.inputs else { unreachable!("three inputs") };
    let [out, mean, std] = call.outputs else { unreachable!("three outputs") };
    let (outer, len, inner) = extents(call.attrs, data);
    let rows = plan::<T>(call.attrs, (outer, len, inner));
    let scales = [gamma, beta].map(|v| v.as_ptr::<T>().cast_const());
    let stats = [mean, std].map(|v| v.as_ptr::<T>());
    let (x, y) = (data.as_ptr::<T>(), out.as_ptr::<T>());
    // SAFETY: inference gave the views these extents; the output is the data or apart from all.
    // With axes after the normalised one, rows are gathered in scratch.
    unsafe {
        if inner == 1 {
            rows.forward(x, scales, y, stats);
        } else {
            with_scratch(data.size(), |t: &mut [T]| {
                swap_inner(x, (outer, len, inner), t.as_mut_ptr());
                rows.forward(t.as_ptr(), scales, t.as_mut_ptr(), stats);
                swap_inner(t.as_ptr(), (outer, inner, len), y);
            });
        }
    }
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let [grad, data, gamma, mean, std] = call.inputs else { unreachable!("declared dependencies") };
    let (outer, len, inner) = extents(call.attrs, data);
    let rows = plan::<T>(call.attrs, (outer, len, inner));
    let target = |i: usize| match call.req[i] {
        OpReq::Null => std::ptr::null_mut(),
        _ => call.outputs[i].as_ptr::<T>(),
    };
    let [dy, x, gamma, mean, std] =
        [grad, data, gamma, mean, std].map(|v| v.as_ptr::<T>().cast_const());
    let to = Grads { x: target(0), gamma: target(1), beta: target(2) };
    // SAFETY: as in `forward`.
    unsafe {
        if inner == 1 {
            rows.backward(Saved { dy, x, gamma, mean, std }, to);
        } else {
            with_scratch(2 * data.size(), |room: &mut [T]| {
                let (a, b) = room.split_at_mut(data.size());
                swap_inner(dy, (outer, len, inner), a.as_mut_ptr());
                swap_inner(x, (outer, len, inner), b.as_mut_ptr());
                let dx = if to.x.is_null() { to.x } else { a.as_mut_ptr() };
                let from = Saved { dy: a.as_ptr(), x: b.as_ptr(), gamma, mean, std };
                rows.backward(from, Grads { x: dx, ..to });
                if !to.x.is_null() {
                    swap_inner(a.as_ptr(), (outer, inner, len), to.x);
                }
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        for (dims, axis) in [(&[3, 5][..], "-1"), (&[2, 3, 4], "1"), (&[1], "0"), (&[40, 2], "1")] {
            let n = dims[axis.parse::<i64>().unwrap().rem_euclid(dims.len() as i64) as usize];
            let inputs = [Tensor::noise(dims, 1), Tensor::noise(&[n], 2), Tensor::noise(&[n], 3)];
            check_gradient(
                "LayerNorm",
                &[("axis", axis), ("eps", "0.1")],
                &inputs,
                &[0, 1, 2],
                true,
            );
            check_half("LayerNorm", &[("axis", axis), ("eps", "0.1")], &inputs, true);
        }
    }

    #[test]
    fn statistics_keep_the_axis() {
        let p = [("output_mean_var", "1"), ("axis", "1")];
        let (_, ins, outs) = infer_shapes("LayerNorm", &p, &[Some(&[2, 3, 4])]).unwrap();
        assert_eq!((ins[1].dims(), outs[2].dims()), (&[3][..], &[2, 1, 4][..]));
        let inputs = [
            Tensor::of(&[1, 2], &[1., 3.]),
            Tensor::of(&[2], &[1.; 2]),
            Tensor::of(&[2], &[0.; 2]),
        ];
        let ran = run("LayerNorm", &[("eps", "0")], &inputs, true).unwrap();
        assert_eq!(ran.outputs[0].values(), [-1., 1.]);
        assert_eq!((ran.outputs[1].values(), ran.outputs[2].values()), (vec![2.], vec![1.]));
    }
}
