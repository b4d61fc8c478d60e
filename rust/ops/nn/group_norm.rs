//! `InstanceNorm` and `GroupNorm`: normalisation of each image, by channel or by group of channels.

use super::infer::{complete, expect_rank, float_type};
use super::widening;
use super::widening::always;
use crate::error::{Error, Result};
use crate::kernels::norm::{Affine, Channels, Gradients};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, OpDef, OpReq};
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `InstanceNorm`.
    pub struct InstanceNormParam {
        eps: f32, default(1e-3), "Added to the variance.";
    }
}

params! {
    /// Parameters of `GroupNorm`.
    pub struct GroupNormParam {
        num_groups: i32, default(1).ge(1.0), "Number of groups that the channels are divided into.";
        eps: f32, default(1e-5), "Added to the variance.";
        output_mean_var: bool, default(false), "Return mean and standard deviation as well.";
    }
}

const INSTANCE: &str = r#"
Normalises each channel of each image: ``y = gamma * (x - mean) / sqrt(var + eps) + beta``, with
mean and (biased) variance over the spatial axes.

Notes
-----
Data ``(N, C, ...)`` with at least three axes; gamma and beta ``(C,)`` are inferred. Hidden outputs
``mean`` and ``var`` ``(N, C)``. One dtype: float16 (calculated in float32), float32 or float64.

Examples
--------
>>> nd.InstanceNorm(nd.array([[[1, 3]]]), nd.ones(1), nd.zeros(1), eps=0)
[[[-1.  1.]]]

References
----------
D. Ulyanov, A. Vedaldi, V. Lempitsky, Instance Normalization, arXiv:1607.08022.
"#;

const GROUP: &str = r#"
Normalises each group of channels of each image: ``y = gamma * (x - mean) / sqrt(var + eps) +
beta``, with mean and (biased) variance over the channels of the group and the spatial axes.

Notes
-----
Data ``(N, C, ...)`` with at least three axes, ``num_groups`` must divide ``C``. **gamma and beta
have one element a group, ``(num_groups,)``.** The hidden outputs ``mean`` and ``std`` (``sqrt(var +
eps)``), ``(N, num_groups)``, are visible with ``output_mean_var=True``; no gradient flows through
them. One dtype: float16 (calculated in float32), float32 or float64.

Examples
--------
>>> nd.GroupNorm(nd.array([[[1], [3]]]), nd.ones(1), nd.zeros(1), eps=0)
[[[-1.]
  [ 1.]]]

References
----------
Y. Wu, K. He, Group Normalization, ECCV 2018.
"#;

pub fn operators() -> Vec<OpDef> {
    let inputs: &[(&str, &str)] = &[
        ("data", "The images (N, C, ...)."),
        ("gamma", "Scale of each channel or group."),
        ("beta", "Shift of each channel or group."),
    ];
    let finish = |def: OpDef, back: &str| {
        def.inputs_are(inputs)
            .infer_shape(infer_shape)
            .infer_type(float_type)
            .inplace(&[InplacePair::new(0, 0)])
            .gradient(Gradient::declared(back, |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1), Dep::Output(1), Dep::Output(2)]
            }))
            .kernel(always(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call))))
    };
    let back = |def: OpDef| {
        def.inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)]).kernel(widening::cpu(
            |call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call)),
        ))
    };
    vec![
        finish(OpDef::new::<InstanceNormParam>("InstanceNorm"), "_backward_InstanceNorm")
            .doc(INSTANCE)
            .outputs_are(&["output", "mean", "var"])
            .visible(|_| 1),
        back(OpDef::new::<InstanceNormParam>("_backward_InstanceNorm")),
        finish(OpDef::new::<GroupNormParam>("GroupNorm"), "_backward_GroupNorm")
            .doc(GROUP)
            .outputs_are(&["output", "mean", "std"])
            .visible(|attrs| if attrs.get::<GroupNormParam>().output_mean_var { 3 } else { 1 }),
        back(OpDef::new::<GroupNormParam>("_backward_GroupNorm")),
    ]
}

/// Groups (`None`: one per channel) and the constant added to the variance.
pub(in crate::ops) fn settings(attrs: &Attrs) -> (Option<i64>, f64) {
    match attrs.typed().downcast_ref::<GroupNormParam>() {
        Some(p) => (Some(p.num_groups.into()), p.eps.into()),
        None => (None, attrs.get::<InstanceNormParam>().eps.into()),
    }
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    expect_rank(&inputs[0], "data", 3..=usize::MAX)?;
    assign_shape(&mut outputs[0], "output", &inputs[0])?;
    if inputs[0].rank_known() {
        let (n, c) = (inputs[0].dims()[0], inputs[0].dims()[1]);
        let groups = settings(attrs).0.unwrap_or(c);
        if c >= 0 && groups > 0 && c % groups != 0 {
            let expected = format!("channels in {groups} groups");
            return Err(Error::argument("data", "shape", &inputs[0], expected));
        }
        for (i, name) in [(1, "gamma"), (2, "beta")] {
            assign_shape(&mut inputs[i], name, &Shape::new(&[groups]))?;
            assign_shape(&mut outputs[i], "statistics", &Shape::new(&[n, groups]))?;
        }
    }
    complete(inputs, outputs)
}

/// Each (image, group) as a channel, and the number of groups.
fn extents(attrs: &Attrs, shape: &Shape) -> (Channels, usize) {
    let groups = settings(attrs).0.map_or(shape.product(1..2), |g| g as usize);
    let channels = shape.product(0..1) * groups;
    let inner = shape.size() / channels.max(1);
    (Channels { outer: 1, channels, inner }, groups)
}

/// Calls `f` with the deviation's inverse, gamma and beta repeated for every image.
///
/// # Safety
/// Gamma and beta, where given, hold `groups` elements.
unsafe fn repeated<T: Real, R>(
    channels: usize,
    groups: usize,
    [gamma, beta]: [Option<*const T>; 2],
    f: impl FnOnce(*mut T, *const T, *const T) -> R,
) -> R {
    with_scratch(3 * channels, |room: &mut [T]| {
        let (inv, rest) = room.split_at_mut(channels);
        let (g, b) = rest.split_at_mut(channels);
        for (slots, source) in [(&mut *g, gamma), (&mut *b, beta)] {
            if let Some(source) = source {
                for (i, slot) in slots.iter_mut().enumerate() {
                    // SAFETY: gamma and beta have `groups` elements.
                    *slot = unsafe { *source.add(i % groups) };
                }
            }
        }
        f(inv.as_mut_ptr(), g.as_ptr(), b.as_ptr())
    })
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let [data, gamma, beta] = call.inputs else { unreachable!("three inputs") };
    let [out, mean, dev] = call.outputs else { unreachable!("three outputs") };
    let (s, groups) = extents(call.attrs, data.shape());
    let (grouped, eps) = settings(call.attrs);
    let eps = T::of(eps);
    let scales = [gamma, beta].map(|v| Some(v.as_ptr::<T>().cast_const()));
    // SAFETY: inference gave the views these extents; the output is the data or apart from all.
    unsafe {
        let (m, v) = (mean.as_ptr::<T>(), dev.as_ptr::<T>());
        s.statistics(data.as_ptr::<T>(), m, v);
        repeated(s.channels, groups, scales, |inv, gamma, beta| {
            for i in 0..s.channels {
                let std = (*v.add(i) + eps).sqrt();
                *inv.add(i) = T::one() / std;
                if grouped.is_some() {
                    *v.add(i) = std;
                }
            }
            if call.req[0] != OpReq::Null {
                let affine = Affine {
                    mean: m.cast_const(),
                    inv_std: inv.cast_const(),
                    gamma: Some(gamma),
                    beta,
                };
                s.normalise(data.as_ptr(), affine, out.as_ptr(), &|_| ());
            }
        });
    }
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let [grad, data, gamma, mean, dev] = call.inputs else { unreachable!("declared dependencies") };
    let (s, groups) = extents(call.attrs, data.shape());
    let (grouped, eps) = settings(call.attrs);
    let eps = T::of(eps);
    let scales = [Some(gamma.as_ptr::<T>().cast_const()), None];
    // SAFETY: gradients have the extents of their inputs; the data's is `grad` or `data` or apart.
    unsafe {
        let d = dev.slice::<T>();
        repeated(s.channels, groups, scales, |inv, gamma, beta| {
            for (i, &d) in d.iter().enumerate() {
                *inv.add(i) = T::one() / if grouped.is_some() { d } else { (d + eps).sqrt() };
            }
            let affine = Affine {
                mean: mean.as_ptr::<T>().cast_const(),
                inv_std: inv.cast_const(),
                gamma: Some(gamma),
                beta,
            };
            with_scratch(2 * s.channels, |sums: &mut [T]| {
                let (dg, db) = sums.split_at_mut(s.channels);
                let dx = match call.req[0] {
                    OpReq::Null => std::ptr::null_mut(),
                    _ => call.outputs[0].as_ptr::<T>(),
                };
                let to = Gradients { data: dx, gamma: dg.as_mut_ptr(), beta: db.as_mut_ptr() };
                s.backward(grad.as_ptr(), data.as_ptr(), affine, false, to, &|_| ());
                for (i, sums) in [(1, &*dg), (2, &*db)] {
                    if call.req[i] == OpReq::Null {
                        continue;
                    }
                    for (g, slot) in call.outputs[i].slice_mut::<T>().iter_mut().enumerate() {
                        *slot = sums.iter().skip(g).step_by(groups.max(1)).copied().sum();
                    }
                }
            });
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let inputs = |dims: &[i64], n: i64| {
            [Tensor::noise(dims, 1), Tensor::noise(&[n], 2), Tensor::noise(&[n], 3)]
        };
        for dims in [&[2, 3, 4][..], &[1, 2, 1], &[2, 2, 3, 5]] {
            let ins = inputs(dims, dims[1]);
            check_gradient("InstanceNorm", &[("eps", "0.1")], &ins, &[0, 1, 2], true);
            check_half("InstanceNorm", &[("eps", "0.1")], &ins, true);
        }
        for (groups, n) in [("1", 1), ("2", 2), ("4", 4)] {
            let p = [("num_groups", groups), ("eps", "0.1")];
            check_gradient("GroupNorm", &p, &inputs(&[2, 4, 3], n), &[0, 1, 2], true);
        }
    }

    // The figures were read off MXNet 1.9.1.
    #[test]
    fn groups_have_one_scale_each() {
        let x: Vec<f64> = (0..16).map(|i| f64::from(i).powf(1.5)).collect();
        let inputs =
            [Tensor::of(&[1, 4, 4], &x), Tensor::of(&[2], &[1., 2.]), Tensor::of(&[2], &[0., 1.])];
        let y = values("GroupNorm", &[("num_groups", "2")], &inputs);
        for (i, want) in [(0, -1.2286084), (7, 1.7350336), (8, -1.9151127), (15, 4.18318)] {
            assert!((y[i] - want).abs() < 1e-4, "{y:?}");
        }
        assert!(infer_shapes("GroupNorm", &[("num_groups", "3")], &[Some(&[1, 4, 4])]).is_err());
    }
}
