//! `LeakyReLU` and its relatives.

use super::infer::{complete, expect_rank, float_type};
use super::widening;
use crate::error::{Error, Result};
use crate::kernels::activations::{Elu, EluGradient, EluGradientOfInput, Gelu, GeluGradient};
use crate::kernels::map::{map, map_function, map_serial};
use crate::kernels::pairwise::{Pairwise, sum_of};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::philox::{fill, unit};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{
    Attrs, Call, Dep, Gradient, InplacePair, OpDef, OpReq, ResourceRequest, Resources,
};
use crate::shape::Shape;
use crate::{param_enum, params, with_real};
use std::ops::Range;

param_enum! {
    /// The function.
    pub enum LeakyType {
        Elu = "elu", Gelu = "gelu", Leaky = "leaky", Prelu = "prelu", Rrelu = "rrelu", Selu = "selu",
    }
}

params! {
    /// Parameters of `LeakyReLU`.
    pub struct LeakyReluParam {
        act_type: LeakyType, default(LeakyType::Leaky), "The function, see above.";
        slope: f32, default(0.25), "Slope of leaky, height of elu.";
        lower_bound: f32, default(0.125), "Least slope of rrelu.";
        upper_bound: f32, default(0.334), "Greatest slope of rrelu.";
    }
}

const DOC: &str = r#"
Rectifiers that let something of negative values through; all are ``x`` for ``x > 0`` but selu and
gelu.

- ``leaky``: ``slope * x``
- ``elu``: ``slope * (exp(x) - 1)``
- ``selu``: ``1.0507 * x`` for ``x > 0``, else ``1.0507 * 1.67326 * (exp(x) - 1)``
- ``gelu``: ``x * Phi(x)`` for all ``x``, with the distribution function ``Phi`` of the normal
  distribution
- ``prelu``: ``gamma * x``, with a learnt ``gamma``: one number, or one per channel (axis 1)
- ``rrelu``: ``s * x``, with ``s`` random between ``lower_bound`` and ``upper_bound`` in training,
  their mean otherwise

Notes
-----
Any shape; float16 (calculated in float32), float32 or float64, one dtype; the output has the shape
and dtype of the data. The gradient at 0 is that of the negative side. ``gamma`` exists with
``prelu`` only and is inferred as ``(C,)``; ``(1,)`` is accepted. ``rrelu`` has a second output
``mask`` with the slopes that were used.

Examples
--------
>>> nd.LeakyReLU(nd.array([-2, 4]), slope=0.5)
[-1.  4.]

References
----------
K. He et al., Delving Deep into Rectifiers, ICCV 2015 (prelu). D. Clevert et al., ICLR 2016 (elu).
G. Klambauer et al., NIPS 2017 (selu). B. Xu et al., arXiv:1505.00853 (rrelu). D. Hendrycks, K.
Gimpel, arXiv:1606.08415 (gelu).
"#;

pub const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
pub const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;

pub fn operators() -> Vec<OpDef> {
    let mut forward = OpDef::new::<LeakyReluParam>("LeakyReLU")
        .aliases(&["_npx_leaky_relu"])
        .doc(DOC)
        .inputs_are(&[
            ("data", "The data."),
            ("gamma", "Slopes of prelu, (C,) or (1,); with act_type='prelu' only."),
        ])
        .input_names_by(|attrs| {
            let n = if kind(attrs) == LeakyType::Prelu { 2 } else { 1 };
            ["data", "gamma"][..n].iter().map(|s| (*s).to_owned()).collect()
        })
        .output_names_by(|attrs| {
            let n = if kind(attrs) == LeakyType::Rrelu { 2 } else { 1 };
            ["output", "mask"][..n].iter().map(|s| (*s).to_owned()).collect()
        })
        .infer_shape(infer_shape)
        .infer_type(float_type)
        .inplace(&[InplacePair::new(0, 0)])
        .variable_attr("gamma", "__init__", "[\"Constant\", {\"value\": 0.25}]")
        .gradient(Gradient::declared("_backward_LeakyReLU", |attrs, _, _| {
            let of = match kind(attrs) {
                LeakyType::Rrelu => vec![Dep::Output(1)],
                LeakyType::Prelu => vec![Dep::Input(0), Dep::Input(1)],
                _ if from_output(attrs) => vec![Dep::Output(0)],
                _ => vec![Dep::Input(0)],
            };
            [vec![Dep::OutGrad(0)], of].concat()
        }))
        .kernel(forward_kernel());
    forward.resources = Resources::by(|attrs, _, _| match kind(attrs) {
        LeakyType::Rrelu => Ok(vec![ResourceRequest::Random]),
        _ => Ok(vec![]),
    });
    let backward = OpDef::new::<LeakyReluParam>("_backward_LeakyReLU")
        .inplace_by(|attrs| match kind(attrs) {
            LeakyType::Prelu => vec![],
            _ => vec![InplacePair::new(0, 0), InplacePair::new(1, 0)],
        })
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call))));
    vec![forward, backward]
}

fn kind(attrs: &Attrs) -> LeakyType {
    attrs.get::<LeakyReluParam>().act_type
}

/// Returns true if the output has the sign of the input, so that backward needs no input.
pub fn from_output(attrs: &Attrs) -> bool {
    match kind(attrs) {
        LeakyType::Leaky | LeakyType::Elu => attrs.get::<LeakyReluParam>().slope >= 0.0,
        LeakyType::Selu => true,
        _ => false,
    }
}

/// The slopes of rrelu are written even where they were not requested, so they always need memory.
fn forward_kernel() -> crate::operator::Kernel {
    let mut kernel =
        widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call)));
    kernel.skips_null = false;
    kernel
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    let data = inputs[0].clone();
    for (slot, name) in outputs.iter_mut().zip(["output", "mask"]) {
        assign_shape(slot, name, &data)?;
    }
    if kind(attrs) == LeakyType::Prelu && data.rank_known() {
        expect_rank(&data, "data", 1..=usize::MAX)?;
        let channels = Shape::new(&[if data.ndim() > 1 { data.dims()[1] } else { 1 }]);
        let gamma = &mut inputs[1];
        let single = gamma.ndim() == 1 && gamma.dims()[0] == 1;
        if !single && gamma.clone().merge(&channels).is_err() {
            let expected = format!("{channels} or (1,)");
            return Err(Error::argument("gamma", "shape", &*gamma, expected));
        }
        if !single {
            assign_shape(gamma, "gamma", &channels)?;
        }
    }
    complete(inputs, outputs)
}

/// Positions a channel of prelu spans, and the number of slopes.
pub(in crate::ops) fn channels(shape: &Shape, slopes: usize) -> (usize, usize) {
    match slopes {
        1 => (shape.size().max(1), 1),
        _ => (shape.product(2..shape.ndim()), slopes),
    }
}

/// The parts of a range that have one slope each, and which.
fn parts(
    range: Range<usize>,
    span: usize,
    slopes: usize,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    (range.start / span..range.end.div_ceil(span))
        .map(move |i| (i % slopes, range.start.max(i * span)..range.end.min((i + 1) * span)))
}

/// `x` where that is positive, elsewhere `x` times the slope.
#[inline(always)]
fn leaky<T: Real>([x]: [T; 1], slope: T) -> T {
    // Ahead of the choice, which is one between values then.
    let low = slope * x;
    if x > T::zero() { x } else { low }
}

/// The gradient of [`leaky`] for an output gradient, and its input or, if the slope is not
/// negative, its value.
#[inline(always)]
fn leaky_gradient<T: Real>([g, x]: [T; 2], slope: T) -> T {
    g * if x > T::zero() { T::one() } else { slope }
}

crate::simd! {
    /// `x` where that is positive, elsewhere `x` times the slope of the part.
    ///
    /// # Safety
    /// The parts lie in `x` and `y`, which are the same memory or apart, and have slopes.
    unsafe fn sloped[T: Real, P: Iterator<Item = (usize, Range<usize>)>][T, P](
        parts: P, x: *const T, y: *mut T, slopes: *const T,
    ) -> () {
        for (channel, part) in parts {
            let at = part.start;
            // SAFETY: promised by the caller.
            unsafe {
                let slope = *slopes.add(channel);
                map_serial([x.add(at)], y.add(at), part.len(), |x| leaky(x, slope));
            }
        }
    }

    /// The gradient of [`sloped`], of an output gradient and `x`.
    ///
    /// # Safety
    /// The parts lie in all; `dx` is the same memory as one of the others or apart.
    unsafe fn sloped_gradient[T: Real, P: Iterator<Item = (usize, Range<usize>)>][T, P](
        parts: P, g: *const T, x: *const T, dx: *mut T, slopes: *const T,
    ) -> () {
        for (channel, part) in parts {
            let at = part.start;
            // SAFETY: promised by the caller.
            unsafe {
                let slope = *slopes.add(channel);
                let from = [g.add(at), x.add(at)];
                map_serial(from, dx.add(at), part.len(), |from| leaky_gradient(from, slope));
            }
        }
    }
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let param: &LeakyReluParam = call.attrs.get();
    let (data, out) = (&call.inputs[0], &call.outputs[0]);
    let (x, y, n) = (data.as_ptr::<T>().cast_const(), out.as_ptr::<T>(), out.size());
    let slope = T::of(param.slope.into());
    let skip = call.req[0] == OpReq::Null;
    // SAFETY: data and output have `n` elements and are the same memory or apart; so is the mask.
    unsafe {
        match param.act_type {
            LeakyType::Rrelu => rrelu::<T>(call),
            _ if skip => {}
            LeakyType::Leaky => map([x], y, n, move |x| leaky(x, slope)),
            LeakyType::Elu => map_function([x], y, n, Elu { scale: T::one(), slope }),
            LeakyType::Selu => {
                let (scale, slope) = (T::of(SELU_SCALE), T::of(SELU_SCALE * SELU_ALPHA));
                map_function([x], y, n, Elu { scale, slope });
            }
            LeakyType::Gelu => map_function([x], y, n, Gelu),
            LeakyType::Prelu => {
                let gamma = Shared(call.inputs[1].as_ptr::<T>());
                let (span, slopes) = channels(data.shape(), call.inputs[1].size());
                let (x, y) = (Shared(x.cast_mut()), Shared(y));
                parallel_for(n, 1 << 14, |range| {
                    sloped(parts(range, span, slopes), x.at(0), y.at(0), gamma.at(0));
                });
            }
        }
    }
    Ok(())
}

/// Draws slopes into the mask (1 for positive data) and applies it.
///
/// # Safety
/// The views of the call have the inferred shapes and the dtype of `T`.
unsafe fn rrelu<T: Real>(call: &Call<'_>) {
    let param: &LeakyReluParam = call.attrs.get();
    let (low, high) = (f64::from(param.lower_bound), f64::from(param.upper_bound));
    let (x, y) = (call.inputs[0].as_ptr::<T>().cast_const(), call.outputs[0].as_ptr::<T>());
    let (mask, n) = (call.outputs[1].as_ptr::<T>(), call.outputs[0].size());
    let slope = |part: f64| T::of(low + (high - low) * part);
    let slopes = |[v, s]: [T; 2]| if v > T::zero() { T::one() } else { s };
    // SAFETY: all have `n` elements; the mask is apart, the output is the data or apart.
    unsafe {
        if call.ctx.is_train {
            fill(call.ctx.random.words(), mask, n, |[word]: [u32; 1]| [slope(unit(word).into())]);
            map([x, mask.cast_const()], mask, n, slopes);
        } else {
            let same = slope(0.5);
            map([x], mask, n, move |[v]| slopes([v, same]));
        }
        if call.req[0] != OpReq::Null {
            map([x, mask.cast_const()], y, n, move |[v, s]| v * s);
        }
    }
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let param: &LeakyReluParam = call.attrs.get();
    if param.act_type == LeakyType::Prelu {
        // SAFETY: the views have the forward shapes; outputs overlap no input.
        unsafe { prelu_gradients::<T>(call) };
        return Ok(());
    }
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let from = [0, 1].map(|i| call.inputs[i].as_ptr::<T>().cast_const());
    let (dx, n) = (call.outputs[0].as_ptr::<T>(), call.outputs[0].size());
    let slope = T::of(param.slope.into());
    // SAFETY: all views have `n` elements and the output is one of the inputs or apart.
    unsafe {
        match param.act_type {
            LeakyType::Rrelu => map(from, dx, n, move |[g, s]| g * s),
            LeakyType::Leaky => map(from, dx, n, move |from| leaky_gradient(from, slope)),
            LeakyType::Elu => {
                let scale = T::one();
                match from_output(call.attrs) {
                    true => map_function(from, dx, n, EluGradient { scale, slope }),
                    false => map_function(from, dx, n, EluGradientOfInput { scale, slope }),
                }
            }
            LeakyType::Selu => {
                let (scale, slope) = (T::of(SELU_SCALE), T::of(SELU_SCALE * SELU_ALPHA));
                map_function(from, dx, n, EluGradient { scale, slope });
            }
            _ => map_function(from, dx, n, GeluGradient),
        }
    }
    Ok(())
}

/// Inputs: out_grad, data, gamma.
///
/// # Safety
/// The views of the call have the inferred shapes and the dtype of `T`.
unsafe fn prelu_gradients<T: Real>(call: &Call<'_>) {
    let [grad, data, gamma] = call.inputs else { unreachable!("declared dependencies") };
    let (span, slopes) = channels(data.shape(), gamma.size());
    let (g, x) = (Shared(grad.as_ptr::<T>()), Shared(data.as_ptr::<T>()));
    let slope = Shared(gamma.as_ptr::<T>());
    let (zero, n) = (T::zero(), data.size());
    if call.req[0] != OpReq::Null {
        let dx = Shared(call.outputs[0].as_ptr::<T>());
        parallel_for(n, 1 << 14, |range| {
            let parts = parts(range, span, slopes);
            // SAFETY: promised by the caller.
            unsafe { sloped_gradient(parts, g.at(0), x.at(0), dx.at(0), slope.at(0)) };
        });
    }
    if call.req[1] != OpReq::Null {
        let dg = Shared(call.outputs[1].as_ptr::<T>());
        let outer = n / (span * slopes).max(1);
        parallel_for(slopes, (1usize << 14).div_ceil((outer * span).max(1)), |range| {
            for c in range {
                let mut sums = Pairwise::default();
                for o in 0..outer {
                    let at = (o * slopes + c) * span;
                    // SAFETY: promised by the caller.
                    let term = |i| unsafe { *g.at(at + i) * (*x.at(at + i)).min(zero) };
                    sums.push([sum_of(span, term)]);
                }
                let [total] = sums.total([zero]);
                // SAFETY: each slope belongs to one task.
                unsafe { *dg.at(c) = total };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        for act in ["leaky", "elu", "selu", "gelu"] {
            for slope in ["0.3", "-0.5"] {
                let p = [("act_type", act), ("slope", slope)];
                check_gradient("LeakyReLU", &p, &[Tensor::noise(&[2, 3, 4], 1)], &[0], true);
            }
            check_half("LeakyReLU", &[("act_type", act)], &[Tensor::noise(&[2, 3, 4], 1)], true);
        }
        for slopes in [3, 1] {
            let p = [("act_type", "prelu")];
            let inputs = [Tensor::noise(&[2, 3, 4], 1), Tensor::noise(&[slopes], 2)];
            check_gradient("LeakyReLU", &p, &inputs, &[0, 1], true);
            check_half("LeakyReLU", &p, &inputs, true);
        }
    }

    #[test]
    fn slopes_of_channels() {
        for (shape, slopes) in [([4, 5, 1], 5), ([2, 3, 45], 3), ([2, 3, 45], 1), ([1, 1, 7], 1)] {
            let (x, gamma) = (Tensor::noise(&shape, 1), Tensor::noise(&[slopes], 2));
            let got = values("LeakyReLU", &[("act_type", "prelu")], &[x.clone(), gamma.clone()]);
            let (x, gamma) = (x.values(), gamma.values());
            for (i, (y, x)) in got.iter().zip(&x).enumerate() {
                let slope = gamma[i / shape[2] as usize % slopes as usize];
                assert_eq!(*y, if *x > 0.0 { *x } else { slope * x }, "{shape:?} {i}");
            }
        }
    }

    // The figures were read off MXNet 1.9.1.
    #[test]
    fn values_and_slopes_at_zero() {
        let x = [Tensor::of(&[3], &[-1., 0., 2.])];
        for (act, y, g) in [
            ("leaky", [-0.25, 0., 2.], [0.25, 0.25, 1.]),
            ("selu", [-1.1113307, 0., 2.101402], [0.6467686, 1.7580993, 1.050701]),
            ("gelu", [-0.15865527, 0., 1.9544998], [-0.08331543, 0.5, 1.0852319]),
        ] {
            let ran = run("LeakyReLU", &[("act_type", act)], &x, true).unwrap();
            let got = ran.gradients(&[Tensor::of(&[3], &[1.; 3])]).unwrap()[0].values();
            let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(near(&ran.outputs[0].values(), &y) && near(&got, &g), "{act} {got:?}");
        }
    }

    #[test]
    fn random_slopes_stay_in_bounds() {
        let x = [Tensor::of(&[100], &[-1.; 100])];
        let ran = run("LeakyReLU", &[("act_type", "rrelu")], &x, true).unwrap();
        let y = ran.outputs[0].values();
        assert!(y.iter().all(|v| (0.125 - 1e-6..=0.334 + 1e-6).contains(&-v)) && y[0] != y[1]);
        let g = ran.gradients(&[Tensor::of(&[100], &[-1.; 100])]).unwrap();
        assert_eq!(g[0].values(), y);
        let still = run("LeakyReLU", &[("act_type", "rrelu")], &x, false).unwrap();
        assert!((still.outputs[0].values()[5] + 0.2295).abs() < 1e-6);
    }

    #[test]
    fn gamma_is_inferred_from_channels() {
        let p = [("act_type", "prelu")];
        assert_eq!(infer_shapes("LeakyReLU", &p, &[Some(&[2, 3, 4])]).unwrap().1[1].dims(), [3]);
        assert!(infer_shapes("LeakyReLU", &p, &[Some(&[2, 3]), Some(&[2])]).is_err());
    }
}
