//! `cumsum`, `moments`, `_contrib_allclose` and the straight-through estimators.

use super::common::{
    all_known, axis_flags, copy_view, elementwise, from_first, read_f64, wanted, write_f64,
};
use super::kernel;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, assign_type, elementwise_shape, one_type, same_type};
use crate::operator::{Attrs, Call, Gradient, InplacePair, OpDef};
use crate::shape::Shape;
use crate::{params, with_dtype};
use std::sync::atomic::{AtomicBool, Ordering};

params! {
    /// Parameters of `cumsum`.
    pub struct CumsumParam {
        axis: Option<i32>, default(None), "The axis; None takes the array as one row.";
        dtype: Option<DType>, default(None), "Dtype of the output; None is that of the input.";
    }
}

params! {
    /// Parameters of `_contrib_allclose`.
    pub struct AllcloseParam {
        rtol: f32, default(1e-5), "Allowed difference as a part of b.";
        atol: f32, default(1e-8), "Allowed difference besides.";
        equal_nan: bool, default(true), "Is NaN close to NaN?";
    }
}

fn text(what: &str, notes: &str, example: &str) -> String {
    format!("{what}\n\nNotes\n-----\n{notes}\n\nExamples\n--------\n>>> {example}\n")
}

/// Rows of a running sum: their number, extent, and distance of elements.
pub fn rows(shape: &Shape, axis: Option<i32>) -> Result<(usize, usize, usize)> {
    let Some(axis) = axis else { return Ok((1, shape.size(), 1)) };
    let a = shape.axis(axis.into())?;
    let step = shape.product(a + 1..shape.ndim());
    Ok((shape.product(0..a) * step, shape.dims()[a] as usize, step))
}

/// The running sums of `call`'s first input over `shape`, from the end if `reversed`; whole numbers
/// are added as such.
fn run(call: &Call<'_>, shape: &Shape, reversed: bool) -> Result<()> {
    let (x, out) = (&call.inputs[0], &call.outputs[0]);
    let (count, n, step) = rows(shape, call.attrs.get::<CumsumParam>().axis)?;
    let whole = !x.dtype().is_float() && !out.dtype().is_float();
    let (from, to) = (Shared(x.ptr()), Shared(out.ptr()));
    let (from_type, to_type) = (x.dtype(), out.dtype());
    parallel_for(count, ((1 << 12) / n.max(1)).max(1), |range| {
        for row in range {
            let start = row / step * step * n + row % step;
            let (mut sum, mut integer) = (0.0f64, 0i64);
            for k in 0..n {
                let at = start + if reversed { n - 1 - k } else { k } * step;
                // SAFETY: an element of both arrays; tasks have rows of their own.
                unsafe {
                    if whole {
                        let v = crate::with_dtype!(from_type, T => {
                            crate::dtype::Element::to_int(*from.at(0).cast::<T>().add(at))
                        });
                        integer = integer.wrapping_add(v);
                        crate::with_dtype!(to_type, T => {
                            *to.at(0).cast::<T>().add(at) =
                                <T as crate::dtype::Element>::from_int(integer);
                        });
                    } else {
                        sum += read_f64(from.at(0), from_type, at);
                        write_f64(to.at(0), to_type, at, sum);
                    }
                }
            }
        }
    });
    Ok(())
}

fn cumsum() -> [OpDef; 2] {
    let forward = OpDef::new::<CumsumParam>("_np_cumsum")
        .aliases(&["cumsum"])
        .doc(&text(
            "Running sums along an axis.",
            "Any shape and dtype; without ``axis`` the array counts as one row and the output has \
             one axis. ``dtype`` is that of the output; floats are added in float64.",
            "nd.cumsum(nd.array([[1, 2], [3, 4]]), axis=1)\n[[1. 3.]\n [3. 7.]]",
        ))
        .inputs_are(&[("a", "The array.")])
        .infer_shape(|attrs, inputs, outputs| {
            let Some(axis) = attrs.get::<CumsumParam>().axis else {
                return from_first(inputs, outputs, |s| Ok(Shape::new(&[s.size() as i64])));
            };
            let known = elementwise_shape(attrs, inputs, outputs)?;
            if inputs[0].rank_known() {
                inputs[0].axis(axis.into())?;
            }
            Ok(known)
        })
        .infer_type(|attrs, inputs, outputs| {
            let dtype = attrs.get::<CumsumParam>().dtype;
            if dtype.is_none() {
                inputs[0] = inputs[0].or(outputs[0]);
            }
            let Some(dtype) = dtype.or(inputs[0]) else { return Ok(false) };
            assign_type(&mut outputs[0], "output", dtype)?;
            Ok(inputs[0].is_some())
        })
        .gradient(Gradient::use_none("_backward_np_cumsum"))
        .kernel(kernel(|call| run(call, call.inputs[0].shape(), false)));
    let backward = OpDef::new::<CumsumParam>("_backward_np_cumsum")
        .kernel(kernel(|call| run(call, call.outputs[0].shape(), true)));
    [forward, backward]
}

crate::simd! {
    /// Are all elements close? (No branch, so that a block is compared in vectors.)
    ///
    /// # Safety
    /// Both hold `n` elements.
    unsafe fn are_close[T: Element][T](
        a: *const T, b: *const T, n: usize, tolerances: (f64, f64), equal_nan: bool,
    ) -> bool {
        let (rtol, atol) = tolerances;
        let mut all = true;
        for i in 0..n {
            // SAFETY: promised by the caller.
            let (a, b) = unsafe { ((*a.add(i)).to_f64(), (*b.add(i)).to_f64()) };
            let near = ((a - b).abs() <= atol + rtol * b.abs()) & (b.abs() < f64::INFINITY);
            all &= (a == b) | near | (equal_nan & (a.is_nan() & b.is_nan()));
        }
        all
    }
}

/// Elements that are compared at once.
const GRAIN: usize = 1 << 14;

fn allclose(call: &Call<'_>) -> Result<()> {
    let p: &AllcloseParam = call.attrs.get();
    let tolerances = (f64::from(p.rtol), f64::from(p.atol));
    let [a, b] = [0, 1].map(|i| &call.inputs[i]);
    let close = AtomicBool::new(true);
    with_dtype!(a.dtype(), T => {
        let (x, y) = (Shared(a.as_ptr::<T>()), Shared(b.as_ptr::<T>()));
        parallel_for(a.size(), GRAIN, |range| {
            if !close.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: inference gives both one shape and dtype.
            let block = unsafe {
                let (x, y) = (x.at(range.start).cast_const(), y.at(range.start).cast_const());
                are_close(x, y, range.len(), tolerances, p.equal_nan)
            };
            if !block {
                close.store(false, Ordering::Relaxed);
            }
        });
    });
    let close = close.into_inner();
    // SAFETY: the one element of the output.
    unsafe { write_f64(call.outputs[0].ptr(), DType::U8, 0, f64::from(u8::from(close))) };
    Ok(())
}

fn all_close() -> OpDef {
    OpDef::new::<AllcloseParam>("_contrib_allclose")
        .doc(&text(
            "1 if ``|a - b| <= atol + rtol * |b|`` for all elements, else 0.",
            "a and b of one shape and one dtype; output (1,), uint8. Equal infinities are close, \
             and with ``equal_nan`` so is NaN to NaN.",
            "nd.contrib.allclose(nd.array([1]), nd.array([1.000001]))\n[1]",
        ))
        .inputs_are(&[("a", "An array."), ("b", "The array that it is compared with.")])
        .infer_shape(|attrs, inputs, outputs| {
            assign_shape(&mut outputs[0], "output", &Shape::new(&[1]))?;
            let known = elementwise_shape(attrs, inputs, &mut [])?;
            Ok(known && all_known(inputs, outputs))
        })
        .infer_type(|_, inputs, outputs| {
            assign_type(&mut outputs[0], "output", DType::U8)?;
            one_type(&mut [("input", inputs)])
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(allclose))
}

/// A step function whose gradient passes unchanged.
fn estimator(name: &str, alias: &str, what: &str, example: &str, f: fn(f64) -> f64) -> OpDef {
    elementwise(OpDef::plain(name))
        .aliases(&[alias])
        .doc(&text(
            what,
            "Any shape and dtype. The gradient passes unchanged, as through the identity: a \
             straight-through estimator (Y. Bengio et al., 2013).",
            example,
        ))
        .inputs_are(&[("data", "The input array.")])
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::rule_reading(&[], |b, node| Ok(vec![Some(node.out_grad(b, 0)?)])))
        .kernel(kernel(move |call| {
            let (x, out) = (&call.inputs[0], &call.outputs[0]);
            if !x.dtype().is_float() && f(2.0) == 2.0 {
                copy_view(x, out);
                return Ok(());
            }
            for i in 0..x.size() {
                // SAFETY: both views have the output's size.
                unsafe {
                    let v = read_f64(x.ptr(), x.dtype(), i);
                    write_f64(out.ptr(), out.dtype(), i, f(v));
                }
            }
            Ok(())
        }))
}

fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() { x } else { x.signum() }
}

params! {
    /// Parameters of `moments`.
    pub struct MomentsParam {
        axes: Option<crate::operator::Tuple>, default(None), "The axes that are reduced; they have \
             to be named.";
        keepdims: bool, default(false), "Keep reduced axes with extent 1.";
    }
}

fn reduced_axes(attrs: &Attrs, shape: &Shape) -> Result<Vec<bool>> {
    match &attrs.get::<MomentsParam>().axes {
        Some(axes) if !axes.is_empty() => axis_flags(axes, shape),
        _ => Err(Error::invalid("axes", "None", "the axes that are reduced")),
    }
}

/// For each element the number of its mean.
fn places(shape: &Shape, flags: &[bool]) -> Vec<usize> {
    let dims: Vec<usize> = shape.dims().iter().map(|&d| d as usize).collect();
    let mut steps = vec![0; dims.len()];
    let mut step = 1;
    for a in (0..dims.len()).rev().filter(|&a| !flags[a]) {
        steps[a] = step;
        step *= dims[a];
    }
    (0..shape.size())
        .map(|i| {
            let mut rest = i;
            (0..dims.len())
                .rev()
                .map(|a| {
                    let at = rest % dims[a];
                    rest /= dims[a];
                    at * steps[a]
                })
                .sum()
        })
        .collect()
}

fn moments(call: &Call<'_>) -> Result<()> {
    let x = &call.inputs[0];
    let at = places(x.shape(), &reduced_axes(call.attrs, x.shape())?);
    let groups = call.outputs[0].size();
    let n = (x.size() / groups.max(1)) as f64;
    // SAFETY: as many elements as places.
    let value = |i: usize| unsafe { read_f64(x.ptr(), x.dtype(), i) };
    let (mut means, mut vars) = (vec![0.0; groups], vec![0.0; groups]);
    at.iter().enumerate().for_each(|(i, &k)| means[k] += value(i));
    means.iter_mut().for_each(|m| *m /= n);
    if !x.dtype().is_float() {
        means.iter_mut().for_each(|m| *m = m.trunc());
    }
    at.iter().enumerate().for_each(|(i, &k)| vars[k] += (value(i) - means[k]).powi(2));
    vars.iter_mut().for_each(|v| *v /= n);
    for (i, values) in [means, vars].iter().enumerate().filter(|(i, _)| wanted(call, *i)) {
        let out = &call.outputs[i];
        for (k, &v) in values.iter().enumerate() {
            // SAFETY: as many groups as elements of the output.
            unsafe { write_f64(out.ptr(), out.dtype(), k, v) };
        }
    }
    Ok(())
}

/// Inputs: gradients of mean and variance, data, mean.
fn moments_backward(call: &Call<'_>) -> Result<()> {
    let ([dm, dv, x, mean], out) = (call.inputs, &call.outputs[0]) else { unreachable!("four") };
    let at = places(x.shape(), &reduced_axes(call.attrs, x.shape())?);
    let n = (x.size() / mean.size().max(1)) as f64;
    for (i, &k) in at.iter().enumerate() {
        // SAFETY: places are elements of the reduced arrays.
        unsafe {
            let [dm, dv, m] = [dm, dv, mean].map(|v| read_f64(v.ptr(), v.dtype(), k));
            let x = read_f64(x.ptr(), x.dtype(), i);
            write_f64(out.ptr(), out.dtype(), i, (dm + 2.0 * dv * (x - m)) / n);
        }
    }
    Ok(())
}

fn both_moments() -> [OpDef; 2] {
    use crate::operator::Dep;
    let forward = OpDef::new::<MomentsParam>("moments")
        .doc(&text(
            "Mean and variance over axes.",
            "Two outputs of the data's dtype, ``mean(x)`` and ``mean((x - mean(x))^2)``, added in \
             float64; those of integers are truncated, the mean before it is subtracted. The axes \
             have to be named.",
            "nd.moments(nd.array([[1, 3], [2, 2]]), axes=(1,))[1]\n[1. 0.]",
        ))
        .inputs_are(&[("data", "The input array.")])
        .outputs_are(&["output0", "output1"])
        .infer_shape(|attrs, inputs, outputs| {
            if !inputs[0].rank_known() {
                return Ok(false);
            }
            let flags = reduced_axes(attrs, &inputs[0])?;
            let keep = attrs.get::<MomentsParam>().keepdims;
            let dims = inputs[0].dims().iter().zip(&flags);
            let out: Shape =
                dims.filter(|(_, r)| keep || !**r).map(|(&d, &r)| if r { 1 } else { d }).collect();
            let out = super::common::at_least_1d(out);
            assign_shape(&mut outputs[0], "output0", &out)?;
            assign_shape(&mut outputs[1], "output1", &out)?;
            Ok(all_known(inputs, outputs))
        })
        .infer_type(same_type)
        .gradient(Gradient::declared("_backward_moments", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::OutGrad(1), Dep::Input(0), Dep::Output(0)]
        }))
        .kernel(crate::ops::nn::widening::always(moments));
    let backward = OpDef::new::<MomentsParam>("_backward_moments").kernel(kernel(moments_backward));
    [forward, backward]
}

pub fn operators() -> Vec<OpDef> {
    let mut all = vec![
        all_close(),
        estimator(
            "_contrib_sign_ste",
            "_sparse__contrib_sign_ste",
            "The sign, -1, 0 or 1, with a gradient.",
            "nd.contrib.sign_ste(nd.array([-2, 0, 3]))\n[-1.  0.  1.]",
            sign,
        ),
        estimator(
            "_contrib_round_ste",
            "_sparse__contrib_round_ste",
            "The nearest whole number, halves away from 0, with a gradient.",
            "nd.contrib.round_ste(nd.array([-1.5, 0.4]))\n[-2.  0.]",
            f64::round,
        ),
    ];
    all.extend(cumsum());
    all.extend(both_moments());
    all
}
