//! What large-batch and mixed-precision training ask of all arrays at once: sums of squares, the
//! rates of LARS, whether every number is finite, arrays set to zero; and the updates whose state
//! has one number per row.

use super::steps::{total, wanted};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::{assign_shape, assign_type, elementwise_shape, same_type};
use crate::operator::{Attrs, Call, InplacePair, Kernel, OpDef, ParamStruct};
use crate::ops::nn::infer::{check_float, complete, float_type};
use crate::ops::nn::widening;
use crate::ops::tensor::common::{write_f64, zero_view};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_dtype, with_real};

params! {
    /// Parameters of operators on a number of arrays that has to be given.
    pub struct NumArraysParam {
        num_arrays: i32, required.ge(1.0).le(65535.0), "Number of arrays.";
    }
}

params! {
    /// Parameters of `all_finite`.
    pub struct AllFiniteParam {
        init_output: bool, default(true), "Write 1 first? Else the output, given by `out`, only \
                                           becomes 0.";
    }
}

params! {
    /// Parameters of `multi_all_finite`.
    pub struct MultiAllFiniteParam {
        num_arrays: i32, default(1).ge(1.0).le(65535.0), "Number of arrays.";
        init_output: bool, default(true), "Write 1 first? Else the output, given by `out`, only \
                                           becomes 0.";
    }
}

params! {
    /// Parameters of `multi_lars`.
    pub struct LarsParam {
        eta: f32, required, "Factor of the rates.";
        eps: f32, required, "Added to the divisor.";
        rescale_grad: f32, default(1.0), "Factor of the gradients, whose squares are given without \
                                          it.";
    }
}

params! {
    /// Parameters of `_contrib_group_adagrad_update`.
    pub struct GroupAdagradParam {
        lr: f32, required, "Learning rate.";
        rescale_grad: f32, default(1.0), "The gradient is multiplied by this first.";
        clip_gradient: f32, default(-1.0), "Then limited to this absolute value; negative: not \
                                            limited.";
        epsilon: f32, default(1e-5), "Added to the history under the root.";
    }
}

fn array_names(n: i32) -> Vec<String> {
    (0..n).map(|i| format!("array_{i}")).collect()
}

fn text(what: &str, notes: &str, example: &str) -> String {
    format!("{what}\n\nNotes\n-----\n{notes}\n\nExamples\n--------\n{example}\n")
}

/// The inputs, of any shapes, have one float dtype, the output is float32.
fn to_single(
    _: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    assign_type(&mut outputs[0], "output", DType::F32)?;
    let known = inputs.iter().flatten().next().copied();
    check_float(known)?;
    if let Some(dtype) = known {
        for (i, slot) in inputs.iter_mut().enumerate() {
            assign_type(slot, &format!("array_{i}"), dtype)?;
        }
    }
    Ok(known.is_some())
}

fn sum_of_squares(view: &View) -> f64 {
    with_dtype!(view.dtype(), T => {
        let x = Shared(view.as_ptr::<T>());
        let [sum] = total(view.size(), |i| {
            // SAFETY: an element of the input.
            let v = Element::to_f64(unsafe { *x.at(i) });
            [v * v]
        });
        sum
    })
}

fn multi_sum_sq() -> OpDef {
    OpDef::new::<NumArraysParam>("multi_sum_sq")
        .doc(&text(
            "The sums of squares of several arrays, as one array.",
            "Any number of arrays, of any shapes and one dtype, float16, float32 or float64. \
             Output (num_arrays,), float32.",
            ">>> nd.multi_sum_sq(nd.array([3, 4]), nd.array([[2]]), num_arrays=2)\n[25.  4.]",
        ))
        .many_inputs("The arrays.", |attrs| array_names(attrs.get::<NumArraysParam>().num_arrays))
        .infer_shape(|attrs, inputs, outputs| {
            let n = attrs.get::<NumArraysParam>().num_arrays;
            assign_shape(&mut outputs[0], "output", &Shape::new(&[n.into()]))?;
            complete(inputs, outputs)
        })
        .infer_type(to_single)
        .kernel(
            Kernel::cpu(|call| {
                let Some(out) = wanted(call, 0) else { return Ok(()) };
                for (i, x) in call.inputs.iter().enumerate() {
                    // SAFETY: one element an input.
                    unsafe { write_f64(out.ptr(), DType::F32, i, sum_of_squares(x)) };
                }
                Ok(())
            })
            .skips_null(),
        )
}

fn multi_lars() -> OpDef {
    OpDef::new::<LarsParam>("multi_lars")
        .doc(&text(
            "The rates of LARS from sums of squares: ``lr * eta * |w| / (|g| + wd * |w| + eps)``, \
             and ``lr`` where a norm is 0.",
            "``|w|`` and ``|g|`` are the roots of the sums, the latter times ``rescale_grad``. All \
             arrays have one shape and one dtype, float16, float32 or float64.",
            ">>> nd.multi_lars(nd.array([0.5]), nd.array([4]), nd.array([1]), nd.array([0]), \
             eta=1, eps=0)\n[1.]",
        ))
        .inputs_are(&[
            ("lrs", "Learning rates."),
            ("weights_sum_sq", "Sums of squares of the weights."),
            ("grads_sum_sq", "Sums of squares of the gradients."),
            ("wds", "Weight decays."),
        ])
        .infer_shape(elementwise_shape)
        .infer_type(float_type)
        .inplace(&[InplacePair::new(0, 0)])
        .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => lars::<T>(c))))
}

fn lars<T: Real>(call: &Call<'_>) -> Result<()> {
    let Some(out) = wanted(call, 0) else { return Ok(()) };
    let p: &LarsParam = call.attrs.get();
    let of = |x: f32| T::of(x.into());
    for i in 0..out.size() {
        // SAFETY: all views have the output's size.
        unsafe {
            let [lr, w2, g2, wd] = [0, 1, 2, 3].map(|k| *call.inputs[k].as_ptr::<T>().add(i));
            let (w, g) = (w2.sqrt(), g2.sqrt() * of(p.rescale_grad));
            let both = w > T::zero() && g > T::zero();
            let ratio = if both { of(p.eta) * w / (g + wd * w + of(p.eps)) } else { T::one() };
            *out.as_ptr::<T>().add(i) = lr * ratio;
        }
    }
    Ok(())
}

fn is_finite(view: &View) -> bool {
    with_dtype!(view.dtype(), T => {
        let x = Shared(view.as_ptr::<T>());
        // The count in place of a flag keeps the loop free of branches.
        let [others] = total(view.size(), |i| {
            // SAFETY: an element of the input.
            [f64::from(u8::from(!Element::to_f64(unsafe { *x.at(i) }).is_finite()))]
        });
        others == 0.0
    })
}

fn finite<P: ParamStruct>(def: OpDef, init: fn(&P) -> bool, example: &str) -> OpDef {
    def.doc(&text(
        "1 if every number of the input is finite (neither infinite nor NaN), else 0.",
        "float16, float32 or float64, any shape. Output (1,), float32. With ``init_output=False`` \
         the array given by ``out`` becomes 0 or keeps its number, so that several calls can share \
         it; without one, and in a bound symbol, that is an error.",
        example,
    ))
    .infer_shape(|_, inputs, outputs| {
        assign_shape(&mut outputs[0], "output", &Shape::new(&[1]))?;
        complete(inputs, outputs)
    })
    .infer_type(to_single)
    .not_deterministic()
    .continues(move |attrs| !init(attrs.get()))
    .kernel(
        Kernel::cpu(move |call| {
            let Some(out) = wanted(call, 0) else { return Ok(()) };
            let all = call.inputs.iter().all(is_finite);
            if !all || init(call.attrs.get()) {
                // SAFETY: the one element of the output.
                unsafe { write_f64(out.ptr(), DType::F32, 0, f64::from(u8::from(all))) };
            }
            Ok(())
        })
        .skips_null(),
    )
}

fn reset_arrays() -> OpDef {
    OpDef::new::<NumArraysParam>("reset_arrays")
        .doc(&text(
            "Sets every number of several arrays to 0, in place. It has no output.",
            "Any shapes and dtypes.",
            ">>> x, y = nd.ones((2,)), nd.ones((1,))\n>>> _ = nd.reset_arrays(x, y, num_arrays=2)\n\
             >>> x\n[0. 0.]",
        ))
        .many_inputs("The arrays.", |attrs| array_names(attrs.get::<NumArraysParam>().num_arrays))
        .outputs_are(&[])
        .mutates_by(|attrs| (0..attrs.get::<NumArraysParam>().num_arrays as usize).collect())
        .infer_shape(|_, inputs, outputs| complete(inputs, outputs))
        .infer_type(|_, inputs, _| Ok(inputs.iter().all(Option::is_some)))
        .no_auto_variables()
        .not_deterministic()
        .kernel(Kernel::cpu(|call| {
            call.inputs.iter().for_each(zero_view);
            Ok(())
        }))
}

fn group_adagrad() -> OpDef {
    OpDef::new::<GroupAdagradParam>("_contrib_group_adagrad_update")
        .doc(&text(
            "AdaGrad with one rate a row: ``history = history + mean(g * g)`` over the row, \
             ``weight = weight - lr * g / sqrt(history + epsilon)``.",
            "``g`` is the gradient times ``rescale_grad``, limited to ``clip_gradient`` if that is \
             not negative. weight and grad have one shape ``(n, ...)``, history ``(n, 1)`` or \
             ``(n,)``; it is changed in place. One dtype, float16 (calculated in float32), float32 \
             or float64.",
            ">>> w, g, h = nd.ones((2, 2)), nd.ones((2, 2)), nd.zeros((2, 1))\n>>> w = \
             nd.contrib.group_adagrad_update(w, g, h, lr=0.5, epsilon=0, out=w)\n>>> w\n[[0.5 \
             0.5]\n [0.5 0.5]]",
        ))
        .inputs_are(&[
            ("weight", "The weight."),
            ("grad", "Its gradient."),
            ("history", "The mean squares added so far, one per row."),
        ])
        .infer_shape(|_, inputs, outputs| {
            let mut common = outputs[0].clone();
            assign_shape(&mut common, "weight", &inputs[0])?;
            assign_shape(&mut common, "grad", &inputs[1])?;
            if let [rows, ..] = common.dims() {
                let flat = inputs[2].rank_known() && inputs[2].ndim() == 1;
                let dims = if flat { vec![*rows] } else { vec![*rows, 1] };
                assign_shape(&mut inputs[2], "history", &Shape::new(&dims))?;
            }
            (inputs[0], inputs[1], outputs[0]) = (common.clone(), common.clone(), common);
            complete(inputs, outputs)
        })
        .infer_type(|attrs, inputs, outputs| {
            check_float(inputs[0].or(outputs[0]))?;
            same_type(attrs, inputs, outputs)
        })
        .mutates(&[2])
        .inplace(&[InplacePair::new(0, 0)])
        .no_auto_variables()
        .not_deterministic()
        .kernel(Kernel::cpu(|call| match call.inputs[0].dtype() {
            DType::F16 => adagrad::<half::f16, f32>(call),
            DType::F64 => adagrad::<f64, f64>(call),
            _ => adagrad::<f32, f32>(call),
        }))
}

fn adagrad<E: Element, C: Real>(call: &Call<'_>) -> Result<()> {
    let p: &GroupAdagradParam = call.attrs.get();
    let grad = super::Prepared::<C>::new(p.rescale_grad, p.clip_gradient, 0.0);
    let (lr, eps) = (C::of(p.lr.into()), C::of(p.epsilon.into()));
    let rows = call.inputs[2].size();
    let width = call.inputs[0].size() / rows.max(1);
    let [w, g, h] = [0, 1, 2].map(|i| Shared(call.inputs[i].as_ptr::<E>()));
    let out = wanted(call, 0).map(|v| Shared(v.as_ptr::<E>()));
    parallel_for(rows, (1 << 12) / width.max(1), |range| {
        for row in range {
            let at = |x: Shared<E>, i: usize| {
                // SAFETY: rows times width elements; tasks have rows of their own.
                C::of(unsafe { *x.at(row * width + i) }.to_f64())
            };
            let squares: C = (0..width).map(|i| grad.scaled(at(g, i))).map(|g| g * g).sum();
            // SAFETY: one element a row.
            let history = unsafe { &mut *h.at(row) };
            let new = C::of(history.to_f64()) + squares / C::of(width as f64);
            *history = E::from_f64(new.to_f64());
            let Some(out) = out else { continue };
            for i in 0..width {
                let step = lr * grad.scaled(at(g, i)) / (new + eps).sqrt();
                // SAFETY: as above.
                unsafe { *out.at(row * width + i) = E::from_f64((at(w, i) - step).to_f64()) };
            }
        }
    });
    Ok(())
}

pub fn operators() -> Vec<OpDef> {
    let one = OpDef::new::<AllFiniteParam>("all_finite").inputs_are(&[("data", "The array.")]);
    let many = OpDef::new::<MultiAllFiniteParam>("multi_all_finite")
        .many_inputs("The arrays.", |a| array_names(a.get::<MultiAllFiniteParam>().num_arrays));
    vec![
        multi_sum_sq(),
        multi_lars(),
        finite::<AllFiniteParam>(
            one,
            |p| p.init_output,
            ">>> nd.all_finite(nd.array([1, float('inf')]))\n[0.]",
        ),
        finite::<MultiAllFiniteParam>(
            many,
            |p| p.init_output,
            ">>> nd.multi_all_finite(nd.array([1]), nd.array([2, 3]), num_arrays=2)\n[1.]",
        ),
        reset_arrays(),
        group_adagrad(),
    ]
}
