//! Regression heads: identity or sigmoid forward, the gradient of a loss against a label backward.

use super::infer::{complete, float_type};
use super::widening;
use crate::error::{Error, Result};
use crate::kernels::activations::Logistic;
use crate::kernels::map::{map, map_function};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, OpDef, OpReq};
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of the regression heads.
    pub struct RegressionParam {
        grad_scale: f32, default(1.0), "Factor of the gradient.";
    }
}

const LINEAR: &str = r#"
Identity forward; backward, the gradient of the squared error: ``grad_scale / m * (data - label)``,
with ``m`` the number of elements of an instance.
"#;
const LOGISTIC: &str = r#"
Sigmoid forward; backward, the gradient of the logistic loss: ``grad_scale / m * (sigmoid(data) -
label)``, with ``m`` the number of elements of an instance.
"#;
const MAE: &str = r#"
Identity forward; backward, the gradient of the absolute error: ``grad_scale / m * sign(data -
label)``, with ``m`` the number of elements of an instance; where data and label are equal the sign
is -1.
"#;
const NOTES: &str = r#"
Notes
-----
Whatever gradient arrives at the output is ignored. ``label`` has the shape of the data, or any
other shape with the same first extent and the same number of elements; where it is inferred it is
``(N,)`` for data ``(N, 1)``. float16 (calculated in float32), float32 or float64, one dtype for
all. The label gets no gradient. A label with another number of instances or elements is an error.

Examples
--------
>>> data = sym.Variable('data')
>>> out = sym.NAME(sym.FullyConnected(data, num_hidden=1), name='lro')
>>> out.list_arguments()[-1]
'lro_label'
"#;

pub fn operators() -> Vec<OpDef> {
    let mut all = Vec::new();
    for (name, doc, forward, backward) in [
        (
            "LinearRegressionOutput",
            LINEAR,
            identity as fn(&Call<'_>) -> _,
            linear as fn(&Call<'_>) -> _,
        ),
        ("LogisticRegressionOutput", LOGISTIC, sigmoid, linear),
        ("MAERegressionOutput", MAE, identity, absolute),
    ] {
        let back = format!("_backward_{name}");
        all.push(
            OpDef::new::<RegressionParam>(name)
                .aliases(&[&format!("_sparse_{name}")])
                .doc(&format!("{doc}{}", NOTES.replace("NAME", name)))
                .inputs_are(&[("data", "The data."), ("label", "The label, shaped as the data.")])
                .infer_shape(infer_shape)
                .infer_type(float_type)
                .inplace(&[InplacePair::new(0, 0)])
                .gradient(Gradient::declared(&back, |_, _, _| vec![Dep::Output(0), Dep::Input(1)]))
                .kernel(widening::cpu(forward)),
        );
        all.push(
            OpDef::new::<RegressionParam>(&back)
                .inplace(&[InplacePair::new(0, 0)])
                .kernel(widening::cpu(backward)),
        );
    }
    all
}

fn infer_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let [data, label] = inputs else { unreachable!("two inputs") };
    let known = outputs[0].clone();
    assign_shape(data, "data", &known)?;
    assign_shape(&mut outputs[0], "output", data)?;
    if !data.rank_known() {
        return Ok(false);
    }
    let column = data.ndim() == 2 && data.dims()[1] == 1;
    let short = Shape::new(&data.dims()[..1.min(data.ndim())]);
    let maybe_column = data.ndim() == 2 && data.dims()[1] <= 1;
    if maybe_column && label.ndim() == 1 && label.clone().merge(&short).is_ok() {
        assign_shape(label, "label", &short)?;
    } else if column && !label.rank_known() {
        *label = short;
    } else if label.rank_known() {
        if !is_relabelled(label, data) {
            if label.clone().merge(data).is_err() {
                let expected = format!("{data}, or as many elements for each instance");
                return Err(Error::argument("label", "shape", &*label, expected));
            }
            assign_shape(label, "label", data)?;
        }
    } else if data.is_known() {
        *label = data.clone();
    }
    complete(inputs, outputs)
}

/// Returns true if the labels have another shape with the same number of elements per instance.
fn is_relabelled(label: &Shape, data: &Shape) -> bool {
    label.is_known()
        && data.is_known()
        && label.dims().first() == data.dims().first()
        && label.size() == data.size()
}

fn elements<T: Real>(call: &Call<'_>) -> ([*const T; 2], *mut T, usize) {
    let out = &call.outputs[0];
    ([0, 1].map(|i| call.inputs[i].as_ptr::<T>().cast_const()), out.as_ptr(), out.size())
}

fn identity(call: &Call<'_>) -> Result<()> {
    if call.req[0] != OpReq::Null {
        with_real!(call.inputs[0].dtype(), T => {
            let ([x, _], y, n) = elements::<T>(call);
            // SAFETY: data and output have `n` elements and are the same memory or apart.
            unsafe { map([x], y, n, move |[x]| x) };
            Ok(())
        })?;
    }
    Ok(())
}

fn sigmoid(call: &Call<'_>) -> Result<()> {
    if call.req[0] != OpReq::Null {
        with_real!(call.inputs[0].dtype(), T => {
            let ([x, _], y, n) = elements::<T>(call);
            // SAFETY: data and output have `n` elements and are the same memory or apart.
            unsafe { map_function([x], y, n, Logistic) };
            Ok(())
        })?;
    }
    Ok(())
}

fn linear(call: &Call<'_>) -> Result<()> {
    with_real!(call.inputs[0].dtype(), T => backward::<T>(call, |y, label| y - label))
}

fn absolute(call: &Call<'_>) -> Result<()> {
    with_real!(call.inputs[0].dtype(), T => {
        backward::<T>(call, |y, label| if y > label { 1.0 } else { -1.0 })
    })
}

fn backward<T: Real>(call: &Call<'_>, loss: impl Fn(T, T) -> T + Send + Sync) -> Result<()> {
    if call.req[1] != OpReq::Null {
        // SAFETY: the label's gradient is ours to write and overlaps nothing.
        unsafe { call.outputs[1].slice_mut::<T>() }.fill(T::zero());
    }
    if call.req[0] != OpReq::Null {
        let shape = call.inputs[0].shape();
        let per_instance = shape.product(1.min(shape.ndim())..shape.ndim()).max(1);
        let param: &RegressionParam = call.attrs.get();
        let scale = T::of(f64::from(param.grad_scale) / per_instance as f64);
        let (from, dx, n) = elements::<T>(call);
        // SAFETY: all have `n` elements; the output is the first input or apart from both.
        unsafe { map(from, dx, n, move |[y, label]| scale * loss(y, label)) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    fn gradient(op: &str, x: &Tensor, label: &Tensor) -> Vec<f64> {
        let ran = run(op, &[("grad_scale", "3")], &[x.clone(), label.clone()], true).unwrap();
        let g = ran.gradients(&[Tensor::noise(x.shape.dims(), 1)]).unwrap();
        assert!(g[1].values().iter().all(|&v| v == 0.0));
        g[0].values()
    }

    #[test]
    fn gradients_are_those_of_the_losses() {
        let x = Tensor::of(&[1, 3], &[0., 1., 2.]);
        let label = Tensor::of(&[1, 3], &[0., 2., 1.]);
        assert_eq!(gradient("LinearRegressionOutput", &x, &label), [0., -1., 1.]);
        assert_eq!(gradient("MAERegressionOutput", &x, &label), [-1., -1., 1.]);
        let g = gradient("LogisticRegressionOutput", &x, &label);
        assert!((g[0] - 0.5).abs() < 1e-12);
        for op in ["LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"] {
            check_half(op, &[], &[x.clone(), label.clone()], true);
        }
    }

    #[test]
    fn labels_of_columns_are_vectors() {
        let infer = |d: &[i64], l| infer_shapes("LinearRegressionOutput", &[], &[Some(d), l]);
        assert_eq!(infer(&[3, 1], None).unwrap().1[1].dims(), [3]);
        assert_eq!(infer(&[3, 1], Some(&[3, 1])).unwrap().1[1].dims(), [3, 1]);
        assert_eq!(infer(&[3, 2], None).unwrap().1[1].dims(), [3, 2]);
        assert!(infer(&[3, 2], Some(&[6])).is_err());
        let x = Tensor::of(&[3, 1], &[0., 1., 2.]);
        assert_eq!(
            gradient("LinearRegressionOutput", &x, &Tensor::of(&[3], &[0.; 3])),
            [0., 3., 6.]
        );
    }
}
