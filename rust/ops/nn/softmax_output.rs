//! `SoftmaxOutput`: softmax forward, the gradient of the cross-entropy backward.

use super::infer::{complete, expect_rank, float_type};
use super::widening;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::softmax::Softmax;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, OpDef, OpReq};
use crate::shape::Shape;
use crate::{param_enum, params, with_real};

param_enum! {
    /// The divisor of the gradient.
    pub enum Normalization { Batch = "batch", Null = "null", Valid = "valid" }
}

params! {
    /// Parameters of `SoftmaxOutput`.
    pub struct SoftmaxOutputParam {
        grad_scale: f32, default(1.0), "Factor of the gradient.";
        ignore_label: f32, default(-1.0), "The label without gradient, with use_ignore.";
        multi_output: bool, default(false), "Softmax over axis 1, one label for each position.";
        use_ignore: bool, default(false), "Give no gradient where the label is ignore_label.";
        preserve_shape: bool, default(false), "Softmax over the last axis.";
        normalization: Normalization, default(Normalization::Null), "By what the gradient is \
             divided, see above.";
        out_grad: bool, default(false), "Multiply by the gradient that arrives at the output.";
        smooth_alpha: f32, default(0.0), "Part of the target that moves from the label to the \
                                          other classes.";
    }
}

const DOC: &str = r#"
Softmax forward; backward, the gradient of the cross-entropy between softmax and label.

The output is ``p = softmax(data)``: over axis 1 of ``(N, K)``; over axis 1 of ``(N, K, ...)`` with
``multi_output=True``; over the last axis with ``preserve_shape=True``; else over all but axis 0.
The gradient of the data is ``grad_scale * (p - onehot(label))`` whatever gradient arrives at the
output; only ``out_grad=True`` multiplies it by that one.

Notes
-----
``label`` holds class numbers: ``(N,)`` for ``(N, K)``; ``(N, rest)`` or the data's shape without
axis 1 with ``multi_output=True``; the data's shape without its last axis otherwise. A label of the
data's own shape holds probabilities, and the gradient is ``grad_scale * (p - label)``. With
``use_ignore=True`` positions whose label is ``ignore_label`` get no gradient. ``normalization``
divides the gradient by the number of labels (``batch``), by the number of labels that are not
``ignore_label``, at least 1 (``valid``), or not at all; with ``multi_output=True`` ``null`` and
``batch`` divide by the number of positions of an instance as well, and ``batch`` counts instances.
``smooth_alpha`` moves that much of the target from the label to all other classes in equal parts
(not with ``multi_output``). The label gets no gradient. float16 (calculated in float32), float32 or
float64, one dtype for all.

Examples
--------
>>> nd.SoftmaxOutput(nd.array([[1, 1], [2, 2]]), nd.array([0, 1]))
[[0.5 0.5]
 [0.5 0.5]]
"#;

pub fn operators() -> Vec<OpDef> {
    let forward = OpDef::new::<SoftmaxOutputParam>("SoftmaxOutput")
        .aliases(&["Softmax"])
        .doc(DOC)
        .expensive()
        .inputs_are(&[
            ("data", "Input array."),
            ("label", "Class numbers, or probabilities shaped as the data."),
        ])
        .infer_shape(infer_shape)
        .infer_type(float_type)
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::declared("_backward_SoftmaxOutput", |attrs, _, _| {
            let mut deps = vec![Dep::Output(0), Dep::Input(1)];
            if attrs.get::<SoftmaxOutputParam>().out_grad {
                deps.push(Dep::OutGrad(0));
            }
            deps
        }))
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call))));
    let backward = OpDef::new::<SoftmaxOutputParam>("_backward_SoftmaxOutput")
        .inplace(&[InplacePair::new(0, 0)])
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call))));
    vec![forward, backward]
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param: &SoftmaxOutputParam = attrs.get();
    let [data, label] = inputs else { unreachable!("two inputs") };
    let known = outputs[0].clone();
    assign_shape(data, "data", &known)?;
    assign_shape(&mut outputs[0], "output", data)?;
    if !data.rank_known() {
        return Ok(false);
    }
    expect_rank(data, "data", 2..=usize::MAX)?;
    let dims = data.dims();
    let rank = dims.len();
    let mut fitting = Vec::new();
    if param.multi_output {
        let rest = Shape::new(&dims[2..]);
        let positions = if rest.is_known() { rest.size() as i64 } else { -1 };
        fitting.push(Shape::new(&[dims[0], positions]));
        let mut without = data.clone();
        without.dims_mut().remove(1);
        let mut single = data.clone();
        single.dims_mut()[1] = 1;
        fitting.extend([without, single]);
        if rank == 2 {
            fitting.push(Shape::new(&dims[..1]));
        }
    } else {
        fitting.push(Shape::new(&dims[..rank - 1]));
        if !param.preserve_shape {
            // One label an instance is all that is read of more.
            fitting.push(Shape::new(&dims[..1]));
        }
    }
    fitting.push(data.clone());
    if label.rank_known() {
        let fits = fitting.iter().find(|s| label.clone().merge(s).is_ok());
        let Some(shape) = fits else {
            return Err(Error::argument("label", "shape", &*label, &fitting[0]));
        };
        let shape = shape.clone();
        assign_shape(label, "label", &shape)?;
    } else {
        *label = fitting[0].clone();
    }
    complete(inputs, outputs)
}

/// Data as (instances, classes, positions).
pub fn extents(param: &SoftmaxOutputParam, shape: &Shape) -> (usize, usize, usize) {
    let rank = shape.ndim();
    if param.preserve_shape {
        (shape.product(0..rank - 1), shape.product(rank - 1..rank), 1)
    } else if param.multi_output {
        (shape.product(0..1), shape.product(1..2), shape.product(2..rank))
    } else {
        (shape.product(0..1), shape.product(1..rank), 1)
    }
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let (outer, len, inner) = extents(call.attrs.get(), call.inputs[0].shape());
    let plan = Softmax { outer, len, inner, scale: T::one(), log: false };
    // SAFETY: data and output have one shape and are the same memory or apart.
    unsafe { plan.forward(call.inputs[0].as_ptr(), call.outputs[0].as_ptr(), None) };
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[1] != OpReq::Null {
        // SAFETY: the label's gradient is ours to write and overlaps nothing.
        unsafe { call.outputs[1].slice_mut::<T>() }.fill(T::zero());
    }
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let param: &SoftmaxOutputParam = call.attrs.get();
    let (prob, label) = (&call.inputs[0], &call.inputs[1]);
    let head = call.inputs.get(2).map(|v| Shared(v.as_ptr::<T>()));
    let (outer, len, inner) = extents(param, prob.shape());
    let (p, dx) = (Shared(prob.as_ptr::<T>()), Shared(call.outputs[0].as_ptr::<T>()));
    // SAFETY: inputs are not written while the kernel runs; the output may be `prob`, not `label`.
    let labels = unsafe { label.slice::<T>() };
    let weight = |scale: f64, g: T, at: usize| {
        // SAFETY: `at` is an element of the data, and the head gradient has its shape.
        T::of(scale) * g * head.map_or(T::one(), |h| unsafe { *h.at(at) })
    };
    if label.shape() == prob.shape() {
        let scale = f64::from(param.grad_scale);
        parallel_for(labels.len(), 1 << 14, |range| {
            for i in range {
                // SAFETY: all three have the shape of the data; elements are read before written.
                unsafe { *dx.at(i) = weight(scale, *p.at(i) - labels[i], i) };
            }
        });
        return Ok(());
    }
    let scale = f64::from(param.grad_scale) / divisor(param, labels, (outer, inner));
    let ignored = T::of(param.ignore_label.into());
    let spread = if param.multi_output { 0.0 } else { f64::from(param.smooth_alpha) };
    let (on, off) = (T::of(1.0 - spread), T::of(spread / (len as f64 - 1.0).max(1.0)));
    parallel_for(outer, (1usize << 14).div_ceil((len * inner).max(1)), |range| {
        for n in range {
            for c in 0..len {
                for i in 0..inner {
                    let (at, label) = ((n * len + c) * inner + i, labels[n * inner + i]);
                    let target = if label.to_usize() == Some(c) { on } else { off };
                    // SAFETY: `at` is an element of the data; it is read before it is written.
                    unsafe {
                        *dx.at(at) = if param.use_ignore && label == ignored {
                            T::zero()
                        } else {
                            weight(scale, *p.at(at) - target, at)
                        };
                    }
                }
            }
        }
    });
    Ok(())
}

/// The divisor of the gradient.
fn divisor<T: Real>(
    param: &SoftmaxOutputParam,
    labels: &[T],
    (outer, inner): (usize, usize),
) -> f64 {
    let positions = inner.max(1) as f64;
    match param.normalization {
        Normalization::Null => positions,
        Normalization::Batch => outer.max(1) as f64 * positions,
        Normalization::Valid => {
            let ignored = T::of(param.ignore_label.into());
            labels[..outer * inner].iter().filter(|&&l| l != ignored).count().max(1) as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    fn ratios(
        params: &[(&str, &str)],
        x: &Tensor,
        label: &Tensor,
        classes: (usize, usize),
    ) -> Vec<f64> {
        let ran = run("SoftmaxOutput", params, &[x.clone(), label.clone()], true).unwrap();
        let p = ran.outputs[0].values();
        let g = ran.gradients(&[Tensor::noise(x.shape.dims(), 1)]).unwrap();
        assert!(g[1].values().iter().all(|&v| v == 0.0));
        let (len, inner) = classes;
        let labels = label.values();
        let one_hot = |i: usize| {
            let (n, c, r) = (i / (len * inner), i / inner % len, i % inner);
            f64::from(labels[n * inner + r] == c as f64)
        };
        (0..p.len()).map(|i| g[0].values()[i] / (p[i] - one_hot(i))).collect()
    }

    // The figures were read off MXNet 1.9.1.
    #[test]
    fn normalisations_divide_as_documented() {
        let x = Tensor::noise(&[4, 3], 3);
        let label = Tensor::of(&[4], &[0., 2., -1., 1.]);
        for (norm, ignore, want, third) in [
            ("null", "0", 1.0, 1.0),
            ("null", "1", 1.0, 0.0),
            ("batch", "0", 0.25, 0.25),
            ("valid", "1", 1.0 / 3.0, 0.0),
            ("valid", "0", 1.0 / 3.0, 1.0 / 3.0),
        ] {
            let r = ratios(&[("normalization", norm), ("use_ignore", ignore)], &x, &label, (3, 1));
            assert!(
                (r[0] - want).abs() < 1e-9 && (r[6] - third).abs() < 1e-9,
                "{norm} {ignore} {r:?}"
            );
        }
        let x = Tensor::noise(&[2, 3, 2, 2], 3);
        let label = Tensor::of(&[2, 2, 2], &[0., 1., 2., 1., -1., 0., 1., 2.]);
        for (norm, want) in [("null", 0.25), ("batch", 0.125), ("valid", 1.0 / 7.0)] {
            let p = [("multi_output", "1"), ("normalization", norm), ("use_ignore", "1")];
            let r = ratios(&p, &x, &label, (3, 4));
            assert!((r[0] - want).abs() < 1e-9 && r[12] == 0.0, "{norm} {r:?}");
        }
    }

    #[test]
    fn probabilities_smoothing_and_head_gradients() {
        let x = Tensor::noise(&[2, 3], 3);
        let target = Tensor::noise(&[2, 3], 4);
        let ran = run("SoftmaxOutput", &[("grad_scale", "2")], &[x.clone(), target.clone()], true)
            .unwrap();
        let (p, t) = (ran.outputs[0].values(), target.values());
        let g = ran.gradients(&[x.clone()]).unwrap()[0].values();
        assert!((0..6).all(|i| (g[i] - 2.0 * (p[i] - t[i])).abs() < 1e-12));
        let label = Tensor::of(&[2], &[0., 7.]);
        let smooth = [("smooth_alpha", "0.25"), ("out_grad", "True")];
        let ran = run("SoftmaxOutput", &smooth, &[x.clone(), label], true).unwrap();
        let head = Tensor::of(&[2, 3], &[3.; 6]);
        let g = ran.gradients(&[head]).unwrap()[0].values();
        let targets = [0.75, 0.125, 0.125, 0.125, 0.125, 0.125];
        assert!((0..6).all(|i| (p[i] - g[i] / 3.0 - targets[i]).abs() < 1e-12));
    }

    #[test]
    fn labels_are_inferred_from_data() {
        let label = |p: &[(&str, &str)], d: &[i64]| {
            infer_shapes("SoftmaxOutput", p, &[Some(d)]).unwrap().1[1].dims().to_vec()
        };
        assert_eq!(label(&[], &[2, 3]), [2]);
        assert_eq!(label(&[("multi_output", "1")], &[2, 3, 4, 5]), [2, 20]);
        assert_eq!(label(&[("preserve_shape", "1")], &[2, 3, 4]), [2, 3]);
        let wrong = infer_shapes("SoftmaxOutput", &[], &[Some(&[2, 3]), Some(&[4])]);
        assert!(wrong.unwrap_err().to_string().contains("expected (2,)"));
    }

    #[test]
    fn half_precision() {
        let x = [Tensor::noise(&[2, 3], 3), Tensor::of(&[2], &[1., 0.])];
        check_half("SoftmaxOutput", &[], &x, true);
    }
}
