//! `LRN` and `L2Normalization`: division by a local or a whole norm.

use super::infer::{complete, expect_rank, float_type};
use super::widening;
use super::widening::always;
use crate::error::{Error, Result};
use crate::kernels::map::map_serial;
use crate::kernels::pairwise::sum_of;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_real};
use std::ops::Range;

params! {
    /// Parameters of `LRN`.
    pub struct LrnParam {
        alpha: f32, default(1e-4), "Weight of the squares.";
        beta: f32, default(0.75), "Exponent of the norm.";
        knorm: f32, default(2.0), "Constant of the norm.";
        nsize: u32, required.ge(1.0), "Number of channels in a window: odd and positive.";
    }
}

param_enum! {
    /// The extent of the norm.
    pub enum L2Mode { Channel = "channel", Instance = "instance", Spatial = "spatial" }
}

params! {
    /// Parameters of `L2Normalization`.
    pub struct L2NormalizationParam {
        eps: f32, default(1e-10), "Added to the sum of squares.";
        mode: L2Mode, default(L2Mode::Instance), "Over what the norm is taken.";
    }
}

const LRN: &str = r#"
Local response normalisation across channels: ``y = x / (knorm + alpha / nsize * sum(x_j^2))^beta``,
the sum over the ``nsize`` channels around that of ``x`` (fewer at the ends).

Notes
-----
Data ``(N, C, H, W)``, or any shape with at least two axes; the output has its shape and dtype:
float16 (calculated in float32), float32 or float64. ``nsize`` is odd and positive; anything else is
an error. A hidden output ``tmp_norm`` holds the base of the power.

Examples
--------
>>> nd.LRN(nd.array([[[[1]], [[2]]]]), nsize=3, alpha=3, beta=1, knorm=0)
[[[[0.2]]
  [[0.4]]]]

References
----------
A. Krizhevsky, I. Sutskever, G. Hinton, ImageNet Classification with Deep Convolutional Neural
Networks, NIPS 2012.
"#;

const L2: &str = r#"
Divides by the Euclidean norm: ``y = x / sqrt(sum(x^2) + eps)``.

The sum is over all axes but the first (``mode='instance'``), over axis 1 (``channel``), or over the
axes from 2 on (``spatial``).

Notes
-----
Data of at least two axes, three for ``channel`` and ``spatial``; the output has its shape and
dtype: float16 (calculated in float32), float32 or float64. A hidden output ``norm`` holds the
norms.

Examples
--------
>>> nd.L2Normalization(nd.array([[3, 4]]))
[[0.6 0.8]]
"#;

pub fn operators() -> Vec<OpDef> {
    let deps = |name: &str| {
        Gradient::declared(name, |_, _, _| vec![Dep::OutGrad(0), Dep::Input(0), Dep::Output(1)])
    };
    vec![
        OpDef::new::<LrnParam>("LRN")
            .doc(LRN)
            .inputs_are(&[("data", "The images (N, C, ...).")])
            .outputs_are(&["output", "tmp_norm"])
            .visible(|_| 1)
            .infer_shape(lrn_shape)
            .infer_type(float_type)
            .gradient(deps("_backward_LRN"))
            .kernel(always(|call| with_real!(call.inputs[0].dtype(), T => lrn::<T>(call)))),
        OpDef::new::<LrnParam>("_backward_LRN").kernel(widening::cpu(
            |call| with_real!(call.inputs[0].dtype(), T => lrn_grad::<T>(call)),
        )),
        OpDef::new::<L2NormalizationParam>("L2Normalization")
            .doc(L2)
            .inputs_are(&[("data", "The data.")])
            .outputs_are(&["output", "norm"])
            .visible(|_| 1)
            .infer_shape(l2_shape)
            .infer_type(float_type)
            .inplace(&[InplacePair::new(0, 0)])
            .gradient(Gradient::declared("_backward_L2Normalization", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Output(0), Dep::Output(1)]
            }))
            .kernel(always(|call| with_real!(call.inputs[0].dtype(), T => l2::<T>(call)))),
        OpDef::new::<L2NormalizationParam>("_backward_L2Normalization")
            .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
            .kernel(widening::cpu(
                |call| with_real!(call.inputs[0].dtype(), T => l2_grad::<T>(call)),
            )),
    ]
}

fn lrn_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let nsize = attrs.get::<LrnParam>().nsize;
    if nsize.is_multiple_of(2) {
        return Err(Error::invalid("nsize", nsize, "an odd number"));
    }
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    expect_rank(&inputs[0], "data", 2..=usize::MAX)?;
    for (slot, name) in outputs.iter_mut().zip(["output", "tmp_norm"]) {
        assign_shape(slot, name, &inputs[0])?;
    }
    complete(inputs, outputs)
}

/// Positions handled together.
const STRIP: usize = 1 << 10;

/// Images, channels, positions, and how many channels a window reaches to either side.
fn lrn_extents(call: &Call<'_>, data: &View) -> (usize, usize, usize, usize) {
    let s = data.shape();
    let reach = call.attrs.get::<LrnParam>().nsize as usize / 2;
    (s.product(0..1), s.product(1..2), s.product(2..s.ndim()), reach)
}

/// The channels in the window of channel `ch`.
fn window(ch: usize, reach: usize, channels: usize) -> Range<usize> {
    ch.saturating_sub(reach)..(ch + reach + 1).min(channels)
}

/// Calls `f(first element, positions)` on strips of neighbouring positions of each image, side by
/// side.
fn strips(images: usize, image: usize, positions: usize, f: impl Fn(usize, usize) + Send + Sync) {
    let per_image = positions.div_ceil(STRIP);
    parallel_for(images * per_image, 1, |range| {
        for i in range {
            let first = i % per_image * STRIP;
            f(i / per_image * image + first, STRIP.min(positions - first));
        }
    });
}

crate::simd! {
    /// `out = start + f * sum of the rows`, or with `SQUARED` of their squares, for `rows` rows
    /// that are `step` apart.
    ///
    /// # Safety
    /// All hold `n` elements; `out` overlaps no row.
    unsafe fn add_rows[T: Real, const SQUARED: bool][T, SQUARED](
        x: *const T, step: usize, rows: usize, start: T, f: T, out: *mut T, n: usize,
    ) -> () {
        const TOGETHER: usize = 64;
        let term = |x: T| if SQUARED { x * x } else { x };
        let mut sums = [T::zero(); TOGETHER];
        for first in (0..n).step_by(TOGETHER) {
            let width = TOGETHER.min(n - first);
            sums.fill(T::zero());
            for row in 0..rows {
                // SAFETY: promised by the caller.
                let x = unsafe { x.add(row * step + first) };
                if width == TOGETHER {
                    // SAFETY: as above.
                    let x = unsafe { &*x.cast::<[T; TOGETHER]>() };
                    for i in 0..TOGETHER {
                        sums[i] += term(x[i]);
                    }
                } else {
                    for (i, sum) in sums.iter_mut().enumerate().take(width) {
                        // SAFETY: as above.
                        *sum += term(unsafe { *x.add(i) });
                    }
                }
            }
            for (i, sum) in sums.iter().enumerate().take(width) {
                // SAFETY: as above.
                unsafe { *out.add(first + i) = start + f * *sum };
            }
        }
    }
}

/// `base^(-beta)`; the usual exponent 3/4 by square roots, which vectorise.
#[inline(always)]
fn power<T: Real, const FUSED: bool>(base: T, beta: f32) -> T {
    if beta == 0.75 {
        let root = base.sqrt();
        T::one() / (root * root.sqrt())
    } else {
        (-T::of(beta.into()) * base.quick_ln::<FUSED>()).quick_exp::<FUSED>()
    }
}

crate::simd! {
    /// `y = x * norm^(-beta)`.
    ///
    /// # Safety
    /// All hold `n` elements; `y` is `x` or overlaps nothing.
    unsafe fn apply[T: Real][T](x: *const T, norm: *const T, beta: f32, y: *mut T, n: usize) -> () {
        // SAFETY: promised by the caller.
        unsafe { map_serial([x, norm], y, n, |[x, m]| x * power::<T, FUSED>(m, beta)) };
    }
}

crate::simd! {
    /// `out = dy x m^(-beta-1)`, the share of one channel in the gradients of its neighbours.
    ///
    /// # Safety
    /// All hold `n` elements; `out` overlaps no operand.
    unsafe fn share[T: Real][T](operands: [*const T; 3], beta: f32, out: *mut T, n: usize) -> () {
        // SAFETY: promised by the caller.
        unsafe { map_serial(operands, out, n, |[dy, x, m]| dy * x * power::<T, FUSED>(m, beta) / m) };
    }

    /// `dx = dy m^(-beta) - slope x total`.
    ///
    /// # Safety
    /// As [`share`].
    unsafe fn subtract[T: Real][T](
        operands: [*const T; 4], beta: f32, slope: T, dx: *mut T, n: usize,
    ) -> () {
        let of = |[dy, x, m, total]: [T; 4]| dy * power::<T, FUSED>(m, beta) - slope * x * total;
        // SAFETY: promised by the caller.
        unsafe { map_serial(operands, dx, n, of) };
    }
}

fn lrn<T: Real>(call: &Call<'_>) -> Result<()> {
    let param: &LrnParam = call.attrs.get();
    let (images, c, p, reach) = lrn_extents(call, &call.inputs[0]);
    let x = Shared(call.inputs[0].as_ptr::<T>());
    let (y, norm) = (Shared(call.outputs[0].as_ptr::<T>()), Shared(call.outputs[1].as_ptr::<T>()));
    let scale = T::of(f64::from(param.alpha) / f64::from(param.nsize));
    let [write, keep] = [0, 1].map(|i| call.req[i] != OpReq::Null);
    strips(images, c * p, p, |first, n| {
        // Without a gradient norms are not kept, and stay in the first cache.
        with_scratch(n, |sums: &mut [T]| {
            for ch in 0..c {
                let at = first + ch * p;
                // SAFETY: all views have the shape of the data; strips belong to one task.
                unsafe {
                    let norm = if keep { norm.at(at) } else { sums.as_mut_ptr() };
                    let window = window(ch, reach, c);
                    let from = x.at(first + window.start * p).cast_const();
                    let start = T::of(param.knorm.into());
                    add_rows::<T, true>(from, p, window.len(), start, scale, norm, n);
                    if write {
                        apply(x.at(at).cast_const(), norm, param.beta, y.at(at), n);
                    }
                }
            }
        });
    });
    Ok(())
}

/// `dx_i = dy_i m_i^-b - 2 a b / n x_i sum_j dy_j x_j m_j^(-b-1)`, the sum over the window of `i`.
fn lrn_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let param: &LrnParam = call.attrs.get();
    let (images, c, p, reach) = lrn_extents(call, &call.inputs[0]);
    let [dy, x, m] = [0, 1, 2].map(|i| Shared(call.inputs[i].as_ptr::<T>()));
    let dx = Shared(call.outputs[0].as_ptr::<T>());
    let (alpha, beta) = (f64::from(param.alpha), f64::from(param.beta));
    let slope = T::of(2.0 * alpha * beta / f64::from(param.nsize));
    strips(images, c * p, p, |first, n| {
        with_scratch((c + 1) * n, |scratch: &mut [T]| {
            let (shares, total) = scratch.split_at_mut(c * n);
            let (shares, total) = (shares.as_mut_ptr(), total.as_mut_ptr());
            // SAFETY: all views have the shape of the data; strips belong to one task.
            unsafe {
                let at = |of: Shared<T>, ch: usize| of.at(first + ch * p).cast_const();
                for ch in 0..c {
                    let operands = [at(dy, ch), at(x, ch), at(m, ch)];
                    share(operands, param.beta, shares.add(ch * n), n);
                }
                for ch in 0..c {
                    let window = window(ch, reach, c);
                    let from = shares.add(window.start * n).cast_const();
                    let (zero, one) = (T::zero(), T::one());
                    add_rows::<T, false>(from, n, window.len(), zero, one, total, n);
                    let operands = [at(dy, ch), at(x, ch), at(m, ch), total.cast_const()];
                    subtract(operands, param.beta, slope, dx.at(first + ch * p), n);
                }
            }
        });
    });
    Ok(())
}

/// (outer, len, inner): the norm is over `len`.
pub(in crate::ops) fn l2_extents(mode: L2Mode, s: &Shape) -> (usize, usize, usize) {
    let rank = s.ndim();
    match mode {
        L2Mode::Instance => (s.product(0..1), s.product(1..rank), 1),
        L2Mode::Channel => (s.product(0..1), s.product(1..2), s.product(2..rank)),
        L2Mode::Spatial => (s.product(0..2), s.product(2..rank), 1),
    }
}

fn l2_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let mode = attrs.get::<L2NormalizationParam>().mode;
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    expect_rank(&inputs[0], "data", if mode == L2Mode::Instance { 2 } else { 3 }..=usize::MAX)?;
    assign_shape(&mut outputs[0], "output", &inputs[0])?;
    if inputs[0].rank_known() {
        let d = inputs[0].dims();
        let norm: Shape = match mode {
            L2Mode::Instance => d[..1].iter().copied().collect(),
            L2Mode::Channel => d[..1].iter().chain(&d[2..]).copied().collect(),
            L2Mode::Spatial => d[..2].iter().copied().collect(),
        };
        assign_shape(&mut outputs[1], "norm", &norm)?;
    }
    complete(inputs, outputs)
}

fn l2<T: Real>(call: &Call<'_>) -> Result<()> {
    let param: &L2NormalizationParam = call.attrs.get();
    let (outer, len, inner) = l2_extents(param.mode, call.inputs[0].shape());
    let eps = T::of(param.eps.into());
    let x = Shared(call.inputs[0].as_ptr::<T>());
    let (y, norm) = (Shared(call.outputs[0].as_ptr::<T>()), Shared(call.outputs[1].as_ptr::<T>()));
    let write = call.req[0] != OpReq::Null;
    parallel_for(outer * inner, (1usize << 13).div_ceil(len.max(1)), |range| {
        for i in range {
            let first = i / inner * len * inner + i % inner;
            // SAFETY: each column belongs to one task and is read before it is written.
            unsafe {
                let total = sum_of(len, |j| {
                    let v = *x.at(first + j * inner);
                    v * v
                });
                let n = (total + eps).sqrt();
                *norm.at(i) = n;
                for at in (0..if write { len } else { 0 }).map(|j| first + j * inner) {
                    *y.at(at) = *x.at(at) / n;
                }
            }
        }
    });
    Ok(())
}

/// `dx = (dy - y * sum(dy * y)) / norm`.
fn l2_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let mode = call.attrs.get::<L2NormalizationParam>().mode;
    let (outer, len, inner) = l2_extents(mode, call.inputs[0].shape());
    let [dy, y, norm] = [0, 1, 2].map(|i| Shared(call.inputs[i].as_ptr::<T>()));
    let dx = Shared(call.outputs[0].as_ptr::<T>());
    parallel_for(outer * inner, (1usize << 13).div_ceil(len.max(1)), |range| {
        for i in range {
            let first = i / inner * len * inner + i % inner;
            // SAFETY: as in `l2`.
            unsafe {
                let total = sum_of(len, |j| {
                    let at = first + j * inner;
                    *dy.at(at) * *y.at(at)
                });
                for at in (0..len).map(|j| first + j * inner) {
                    *dx.at(at) = (*dy.at(at) - *y.at(at) * total) / *norm.at(i);
                }
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        for (nsize, beta) in [("3", "0.75"), ("5", "0.6"), ("7", "0.75"), ("1", "0.75")] {
            let p = [("nsize", nsize), ("alpha", "0.5"), ("beta", beta), ("knorm", "1")];
            check_gradient("LRN", &p, &[Tensor::noise(&[2, 6, 2, 3], 1)], &[0], true);
            check_half("LRN", &p, &[Tensor::noise(&[2, 6, 2, 3], 1)], true);
        }
        for mode in ["instance", "channel", "spatial"] {
            let x = [Tensor::noise(&[2, 3, 4], 1)];
            check_gradient("L2Normalization", &[("mode", mode)], &x, &[0], true);
            check_half("L2Normalization", &[("mode", mode)], &x, true);
        }
    }

    // The figures were read off MXNet 1.9.1.
    #[test]
    fn windows_are_cut_at_the_ends() {
        let x = [Tensor::of(&[1, 4, 1, 1], &[1., 2., 3., 4.])];
        let y =
            values("LRN", &[("nsize", "3"), ("alpha", "1"), ("beta", "0.5"), ("knorm", "1")], &x);
        for (got, want) in y.iter().zip([0.61237246, 0.8401681, 0.9185586, 1.3093073]) {
            assert!((got - want).abs() < 1e-6, "{y:?}");
        }
        assert!(infer_shapes("L2Normalization", &[("mode", "channel")], &[Some(&[2, 4])]).is_err());
    }
}
