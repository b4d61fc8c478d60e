//! Operators that begin or end a gradient: `MakeLoss`, `make_loss`, `BlockGrad`; and `SVMOutput`,
//! `smooth_l1`, `softmax_cross_entropy`.

use super::infer::{complete, expect_rank, float_type};
use super::softmax_output::Normalization;
use super::widening;
use crate::error::Result;
use crate::kernels::map::map;
use crate::kernels::pairwise::{Pairwise, sum_of};
use crate::kernels::real::Real;
use crate::operator::infer::{assign_shape, elementwise_shape, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, Kernel, OpDef, OpReq};
use crate::shape::Shape;
use crate::{params, with_dtype, with_real};

params! {
    /// Parameters of `MakeLoss`.
    pub struct MakeLossParam {
        grad_scale: f32, default(1.0), "Factor of the gradient.";
        valid_thresh: f32, default(0.0), "Elements greater than this are counted with \
                                          normalization='valid'.";
        normalization: Normalization, default(Normalization::Null), "By what the gradient is \
             divided, see above.";
    }
}

params! {
    /// Parameters of `SVMOutput`.
    pub struct SvmOutputParam {
        margin: f32, default(1.0), "Scores beyond it cost nothing.";
        regularization_coefficient: f32, default(1.0), "Factor of the gradient.";
        use_linear: bool, default(false), "Linear hinge loss instead of the squared one.";
    }
}

params! {
    /// Parameters of `smooth_l1`.
    pub struct SmoothL1Param {
        scalar: f32, default(1.0), "Sigma: the curve is quadratic where abs(x) < 1 / sigma^2.";
    }
}

const MAKE_LOSS: &str = r#"
Makes any array a loss: identity forward; backward, the gradient is ``grad_scale`` whatever gradient
arrives.

Notes
-----
``normalization`` divides it by the extent of axis 0 (``batch``) or by the number of elements
greater than ``valid_thresh``, at least 1 (``valid``). float16, float32 or float64; the output has
the shape and dtype of the data.

Examples
--------
>>> nd.MakeLoss(nd.square(nd.ones((2,)) - 3), grad_scale=0.5)
[4. 4.]
"#;

const MAKE_LOSS_NEW: &str = r#"
Makes any array a loss: identity forward; backward, the gradient is 1 whatever gradient arrives.

Notes
-----
Any shape and dtype; the output has those of the data.

Examples
--------
>>> loss = sym.make_loss(sym.square(sym.Variable('out') - sym.Variable('label')))
>>> loss.list_arguments()
['out', 'label']
"#;

const BLOCK_GRAD: &str = r#"
Identity that stops the gradient: the data gets zero, whatever gradient arrives at the output.

Notes
-----
Any shape and dtype; the output has those of the data.

Examples
--------
>>> x = nd.array([3])
>>> x.attach_grad()
>>> with autograd.record():
...     y = nd.BlockGrad(x) * x   # no gradient flows through the first factor
>>> y.backward()
>>> x.grad
[3.]
"#;

const SVM: &str = r#"
Identity forward; backward, the gradient of a multi-class hinge loss.

With ``s = 1`` for the label's class and ``-1`` for the others, ``v = margin - s * x`` and
``r = regularization_coefficient``, the gradient is ``-2 * r * s * v`` where ``v > 0``, else 0; with
``use_linear=True`` it is ``-r * s`` there.

Notes
-----
Data ``(N, K)`` and label ``(N,)`` of one dtype, float16 (calculated in float32), float32 or
float64. Whatever gradient arrives at the output is ignored; the label gets none.

Examples
--------
>>> nd.SVMOutput(nd.array([[1, 2]]), nd.array([0]))
[[1. 2.]]
"#;

const SMOOTH_L1: &str = r#"
Smooth absolute value: with ``s = scalar``, ``0.5 * (s * x)^2`` where ``abs(x) < 1 / s^2``, else
``abs(x) - 0.5 / s^2``.

Notes
-----
Any shape; float16 (calculated in float32), float32 or float64; the output has the shape and dtype
of the data.

Examples
--------
>>> nd.smooth_l1(nd.array([1, 2, 3, 4]), scalar=1)
[0.5 1.5 2.5 3.5]

References
----------
R. Girshick, Fast R-CNN, ICCV 2015, equation 3.
"#;

const CROSS_ENTROPY: &str = r#"
Sum of the cross-entropies of softmax and label: ``-sum_n log(softmax(data[n])[label[n]])``.

Notes
-----
Data ``(N, K)`` and label ``(N,)`` of one dtype, float16 (calculated in float32), float32 or
float64; the output has shape ``(1,)``. The label gets no gradient. Class numbers beyond the last
count as the last, negative ones as 0.

Examples
--------
>>> nd.softmax_cross_entropy(nd.array([[1, 1], [1, 1]]), nd.array([0, 1]))
[1.3862944]
"#;

pub fn operators() -> Vec<OpDef> {
    [gradient_ends(), scores()].concat()
}

/// Operators that begin or end a gradient.
fn gradient_ends() -> Vec<OpDef> {
    let copy = || Kernel::cpu(copy_first).skips_null();
    vec![
        OpDef::new::<MakeLossParam>("MakeLoss")
            .doc(MAKE_LOSS)
            .inputs_are(&[("data", "Input array.")])
            .infer_shape(elementwise_shape)
            .infer_type(float_type)
            .inplace(&[InplacePair::identity(0, 0)])
            .gradient(Gradient::declared("_backward_MakeLoss", |attrs, _, _| {
                // Only its shape is used, unless elements are counted.
                match attrs.get::<MakeLossParam>().normalization {
                    Normalization::Valid => vec![Dep::Input(0)],
                    _ => vec![],
                }
            }))
            .kernel(copy()),
        OpDef::new::<MakeLossParam>("_backward_MakeLoss").kernel(widening::cpu(
            |call| with_real!(call.outputs[0].dtype(), T => make_loss_grad::<T>(call)),
        )),
        OpDef::plain("make_loss")
            .aliases(&["_sparse_make_loss"])
            .doc(MAKE_LOSS_NEW)
            .inputs_are(&[("data", "The input array.")])
            .outputs_are(&["loss"])
            .infer_shape(elementwise_shape)
            .infer_type(same_type)
            .inplace(&[InplacePair::identity(0, 0)])
            .gradient(Gradient::declared("_backward_make_loss", |_, _, _| vec![]))
            .kernel(copy()),
        OpDef::plain("_backward_make_loss").kernel(Kernel::cpu(|call| {
            if call.req[0] != OpReq::Null {
                // SAFETY: the output is ours to write; there are no inputs.
                with_dtype!(call.outputs[0].dtype(), T => unsafe { call.outputs[0].slice_mut::<T>() }
                    .fill(<T as crate::dtype::Element>::from_f64(1.0)));
            }
            Ok(())
        }).skips_null()),
        OpDef::plain("BlockGrad")
            .aliases(&["stop_gradient", "_sparse_stop_gradient"])
            .doc(BLOCK_GRAD)
            .inputs_are(&[("data", "The input array.")])
            .infer_shape(elementwise_shape)
            .infer_type(same_type)
            .inplace(&[InplacePair::identity(0, 0)])
            .gradient(Gradient::Zero)
            .kernel(copy()),
    ]
}

/// Hinge, smooth absolute value, cross-entropy.
fn scores() -> Vec<OpDef> {
    vec![
        OpDef::new::<SvmOutputParam>("SVMOutput")
            .doc(SVM)
            .inputs_are(&[("data", "Scores (N, ..., K)."), ("label", "Class numbers (N, ...).")])
            .infer_shape(svm_shape)
            .infer_type(float_type)
            .inplace(&[InplacePair::identity(0, 0)])
            .gradient(Gradient::declared("_backward_SVMOutput", |_, _, _| {
                vec![Dep::Output(0), Dep::Input(1)]
            }))
            .kernel(Kernel::cpu(copy_first).skips_null()),
        OpDef::new::<SvmOutputParam>("_backward_SVMOutput").kernel(widening::cpu(
            |call| with_real!(call.inputs[0].dtype(), T => svm_grad::<T>(call)),
        )),
        OpDef::new::<SmoothL1Param>("smooth_l1")
            .aliases(&["_npx_smooth_l1"])
            .doc(SMOOTH_L1)
            .inputs_are(&[("data", "Source input.")])
            .infer_shape(elementwise_shape)
            .infer_type(float_type)
            .inplace(&[InplacePair::new(0, 0)])
            .gradient(Gradient::use_in("_backward_smooth_l1"))
            .kernel(widening::cpu(
                |call| with_real!(call.inputs[0].dtype(), T => smooth_l1::<T>(call)),
            )),
        OpDef::new::<SmoothL1Param>("_backward_smooth_l1")
            .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
            .kernel(widening::cpu(
                |call| with_real!(call.inputs[0].dtype(), T => smooth_l1_grad::<T>(call)),
            )),
        OpDef::plain("softmax_cross_entropy")
            .doc(CROSS_ENTROPY)
            .inputs_are(&[("data", "Input data."), ("label", "Input label.")])
            .infer_shape(cross_entropy_shape)
            .infer_type(float_type)
            .gradient(Gradient::use_in("_backward_softmax_cross_entropy"))
            .kernel(widening::cpu(
                |call| with_real!(call.inputs[0].dtype(), T => cross_entropy::<T>(call)),
            )),
        OpDef::plain("_backward_softmax_cross_entropy").kernel(widening::cpu(
            |call| with_real!(call.inputs[0].dtype(), T => cross_entropy_grad::<T>(call)),
        )),
    ]
}

/// Output 0 becomes input 0, unless they are the same memory.
pub fn copy_first(call: &Call<'_>) -> Result<()> {
    let (from, to) = (&call.inputs[0], &call.outputs[0]);
    if call.req[0] != OpReq::Null && from.ptr() != to.ptr() {
        // SAFETY: both hold that many bytes and, not being the same, are apart.
        unsafe { std::ptr::copy_nonoverlapping(from.ptr(), to.ptr(), to.size_bytes()) };
    }
    Ok(())
}

fn make_loss_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let param: &MakeLossParam = call.attrs.get();
    let out = &call.outputs[0];
    let divisor = match param.normalization {
        Normalization::Null => 1,
        Normalization::Batch => out.shape().product(0..1.min(out.ndim())),
        Normalization::Valid => {
            let least = T::of(param.valid_thresh.into());
            // SAFETY: an input is not written while the kernel runs.
            unsafe { call.inputs[0].slice::<T>() }.iter().filter(|&&x| x > least).count()
        }
    };
    let value = f64::from(param.grad_scale) / divisor.max(1) as f64;
    // SAFETY: the output is ours to write and overlaps no input.
    unsafe { out.slice_mut::<T>() }.fill(T::of(value));
    Ok(())
}

fn svm_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    expect_rank(&inputs[0], "data", 2..=usize::MAX)?;
    let (data, label) = inputs.split_at_mut(1);
    assign_shape(&mut outputs[0], "output", &data[0])?;
    if let [rows @ .., _] = data[0].dims() {
        assign_shape(&mut label[0], "label", &Shape::new(rows))?;
    }
    complete(inputs, outputs)
}

fn svm_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[1] != OpReq::Null {
        // SAFETY: the label's gradient is ours to write and overlaps nothing.
        unsafe { call.outputs[1].slice_mut::<T>() }.fill(T::zero());
    }
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let param: &SvmOutputParam = call.attrs.get();
    let (margin, reg) =
        (T::of(param.margin.into()), T::of(param.regularization_coefficient.into()));
    let classes = call.inputs[0].dims().last().map_or(1, |&k| k as usize);
    // SAFETY: inputs are not written meanwhile; the output overlaps none of them.
    let (x, labels, dx) = unsafe {
        (call.inputs[0].slice::<T>(), call.inputs[1].slice::<T>(), call.outputs[0].slice_mut::<T>())
    };
    for (i, (dx, &x)) in dx.iter_mut().zip(x).enumerate() {
        let is_label = labels[i / classes].to_usize() == Some(i % classes);
        let side = if is_label { T::one() } else { -T::one() };
        let over = margin - side * x;
        *dx = if over <= T::zero() {
            T::zero()
        } else if param.use_linear {
            -reg * side
        } else {
            -T::of(2.0) * reg * side * over
        };
    }
    Ok(())
}

fn smooth_l1<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let sigma = f64::from(call.attrs.get::<SmoothL1Param>().scalar);
    let (s2, near, half) = (T::of(sigma * sigma), T::of(1.0 / (sigma * sigma)), T::of(0.5));
    let (x, out) = (call.inputs[0].as_ptr::<T>().cast_const(), &call.outputs[0]);
    // SAFETY: data and output have one shape and are the same memory or apart.
    unsafe {
        map([x], out.as_ptr(), out.size(), move |[x]| {
            // Both ahead of the choice, which is one between values then.
            let (square, line) = (half * s2 * x * x, x.abs() - half * near);
            if x.abs() < near { square } else { line }
        });
    }
    Ok(())
}

fn smooth_l1_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let sigma = f64::from(call.attrs.get::<SmoothL1Param>().scalar);
    let (s2, near, one) = (T::of(sigma * sigma), T::of(1.0 / (sigma * sigma)), T::one());
    let from = [0, 1].map(|i| call.inputs[i].as_ptr::<T>().cast_const());
    let out = &call.outputs[0];
    // SAFETY: all have one shape; the output is one of the inputs or apart from both.
    unsafe {
        map(from, out.as_ptr(), out.size(), move |[g, x]| {
            let (steep, sign) = (s2 * x, one.copysign(x));
            let slope = if x.abs() < near { steep } else { sign };
            g * if x.is_nan() { x } else { slope }
        });
    }
    Ok(())
}

fn cross_entropy_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    expect_rank(&inputs[0], "data", 2..=2)?;
    if inputs[0].rank_known() {
        let rows = Shape::new(&inputs[0].dims()[..1]);
        assign_shape(&mut inputs[1], "label", &rows)?;
    }
    assign_shape(&mut outputs[0], "output", &Shape::new(&[1]))?;
    complete(inputs, outputs)
}

/// Calls `f(row, label)` for each row.
fn for_rows<T: Real>(data: &[T], labels: &[T], mut f: impl FnMut(usize, &[T], usize)) {
    let classes = data.len() / labels.len().max(1);
    for (n, label) in labels.iter().enumerate() {
        if classes > 0 {
            let label = label.max(T::zero()).to_usize().unwrap_or(0).min(classes - 1);
            f(n, &data[n * classes..(n + 1) * classes], label);
        }
    }
}

/// `log(sum(exp(row)))` without overflow.
fn log_total<T: Real>(row: &[T]) -> T {
    let top = row.iter().fold(T::neg_infinity(), |m, &x| m.max(x));
    top + sum_of(row.len(), |i| (row[i] - top).quick_exp::<false>()).ln()
}

fn cross_entropy<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    // SAFETY: inputs are not written meanwhile; the output overlaps none of them.
    let (x, labels, out) = unsafe {
        (call.inputs[0].slice::<T>(), call.inputs[1].slice::<T>(), call.outputs[0].slice_mut::<T>())
    };
    let mut loss = Pairwise::default();
    for_rows(x, labels, |_, row, label| loss.push([log_total(row) - row[label]]));
    [out[0]] = loss.total([T::zero()]);
    Ok(())
}

fn cross_entropy_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    // SAFETY: inputs are not written meanwhile; the outputs overlap none of them.
    unsafe {
        if call.req[1] != OpReq::Null {
            call.outputs[1].slice_mut::<T>().fill(T::zero());
        }
        if call.req[0] == OpReq::Null {
            return Ok(());
        }
        let head = call.inputs[0].slice::<T>()[0];
        let dx = call.outputs[0].slice_mut::<T>();
        for_rows(call.inputs[1].slice::<T>(), call.inputs[2].slice(), |n, row, label| {
            let (total, classes) = (log_total(row), row.len());
            for (c, &x) in row.iter().enumerate() {
                let target = if c == label { T::one() } else { T::zero() };
                dx[n * classes + c] = head * ((x - total).quick_exp::<false>() - target);
            }
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    fn gradient(op: &str, params: &[(&str, &str)], inputs: &[Tensor]) -> Vec<f64> {
        let ran = run(op, params, inputs, true).unwrap();
        assert_eq!(ran.outputs[0].values(), inputs[0].values());
        ran.gradients(&[Tensor::noise(inputs[0].shape.dims(), 1)]).unwrap()[0].values()
    }

    #[test]
    fn losses_begin_gradients() {
        let x = [Tensor::of(&[2, 3], &[0., 1., 2., 0.5, 0.2, 0.7])];
        assert_eq!(gradient("MakeLoss", &[("grad_scale", "3")], &x), [3.; 6]);
        let valid = [("grad_scale", "3"), ("valid_thresh", "0.5"), ("normalization", "valid")];
        assert_eq!(gradient("MakeLoss", &valid, &x), [1.; 6]);
        let batch = [("grad_scale", "3"), ("normalization", "batch")];
        assert_eq!(gradient("MakeLoss", &batch, &x), [1.5; 6]);
        assert_eq!(gradient("make_loss", &[], &x), [1.; 6]);
        assert_eq!(gradient("BlockGrad", &[], &x), [0.; 6]);
        let whole = [x[0].cast(crate::DType::I32)];
        assert_eq!(gradient("make_loss", &[], &whole), [1.; 6]);
        assert_eq!(gradient("BlockGrad", &[], &whole), [0.; 6]);
    }

    #[test]
    fn hinge_gradients() {
        let x = [Tensor::of(&[2, 3], &[0., 1., 0.2, 2., 0., -2.]), Tensor::of(&[2], &[0., 1.])];
        let g = gradient("SVMOutput", &[], &x);
        assert!(
            g.iter().zip([-2., 4., 2.4, 6., -2., 0.]).all(|(a, b)| (a - b).abs() < 1e-12),
            "{g:?}"
        );
        let p = [("use_linear", "1"), ("margin", "0.5"), ("regularization_coefficient", "2")];
        assert_eq!(gradient("SVMOutput", &p, &x), [-2., 2., 2., 2., -2., 0.]);
    }

    #[test]
    fn gradients_match_differences() {
        let x = Tensor::noise(&[3, 4], 2);
        check_gradient("smooth_l1", &[("scalar", "1.5")], &[x.clone()], &[0], true);
        check_half("smooth_l1", &[("scalar", "1.5")], &[x.clone()], true);
        let beyond = [Tensor::of(&[3], &[f64::NAN, -f64::NAN, 2.])];
        let ran = run("smooth_l1", &[], &beyond, true).unwrap();
        let slope = ran.gradients(&[Tensor::of(&[3], &[1.; 3])]).unwrap()[0].values();
        assert!(slope[0].is_nan() && slope[1].is_nan() && slope[2] == 1., "{slope:?}");
        let label = Tensor::of(&[3], &[0., 3., 1.]);
        check_gradient("softmax_cross_entropy", &[], &[x.clone(), label.clone()], &[0], true);
        check_half("softmax_cross_entropy", &[], &[x, label], true);
    }
}
