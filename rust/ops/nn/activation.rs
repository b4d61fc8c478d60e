//! `Activation`: one of five element-wise functions.

use super::infer::float_type;
use super::widening;
use crate::error::Result;
use crate::kernels::activations::{Logistic, Softplus, SoftplusGradient, Tanh};
use crate::kernels::map::{map, map_function};
use crate::kernels::real::Real;
use crate::operator::infer::elementwise_shape;
use crate::operator::{Call, Dep, Gradient, InplacePair, OpDef, OpReq};
use crate::{param_enum, params, with_real};

param_enum! {
    /// The function.
    pub enum ActType {
        Relu = "relu", Sigmoid = "sigmoid", SoftRelu = "softrelu", SoftSign = "softsign",
        Tanh = "tanh",
    }
}

params! {
    /// Parameters of `Activation`.
    pub struct ActivationParam {
        act_type: ActType, required, "The function, see above.";
    }
}

const DOC: &str = r#"
Applies an activation function element-wise.

- ``relu``: ``max(x, 0)``
- ``sigmoid``: ``1 / (1 + exp(-x))``
- ``tanh``: ``(exp(x) - exp(-x)) / (exp(x) + exp(-x))``
- ``softrelu``: ``log(1 + exp(x))``
- ``softsign``: ``x / (1 + abs(x))``

Notes
-----
Data of any shape, float16 (calculated in float32), float32 or float64; the output has the same
shape and dtype. The gradient of ``relu`` at 0 is 0, at nan nan. It is calculated from the output,
of ``softsign`` from the input. Data of an integer dtype is an error.

Examples
--------
>>> nd.Activation(nd.array([-1, 0, 2]), act_type='relu')
[0. 0. 2.]
"#;

pub fn operators() -> Vec<OpDef> {
    let forward = OpDef::new::<ActivationParam>("Activation")
        .aliases(&["_npx_activation"])
        .doc(DOC)
        .inputs_are(&[("data", "The input array.")])
        .infer_shape(elementwise_shape)
        .infer_type(float_type)
        .pointwise()
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::declared("_backward_Activation", |attrs, _, _| {
            let of = match attrs.get::<ActivationParam>().act_type {
                ActType::SoftSign => Dep::Input(0),
                _ => Dep::Output(0),
            };
            vec![Dep::OutGrad(0), of]
        }))
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call))));
    let backward = OpDef::new::<ActivationParam>("_backward_Activation")
        .pointwise()
        .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call))));
    vec![forward, backward]
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let x = [call.inputs[0].as_ptr::<T>().cast_const()];
    let (y, n) = (call.outputs[0].as_ptr::<T>(), call.outputs[0].size());
    let (zero, one) = (T::zero(), T::one());
    // SAFETY: input and output have `n` elements and are the same memory or apart.
    unsafe {
        match call.attrs.get::<ActivationParam>().act_type {
            // Written so that NaN stays NaN.
            ActType::Relu => map(x, y, n, move |[x]| if x < zero { zero } else { x }),
            ActType::Sigmoid => map_function(x, y, n, Logistic),
            ActType::Tanh => map_function(x, y, n, Tanh),
            ActType::SoftRelu => map_function(x, y, n, Softplus),
            ActType::SoftSign => map(x, y, n, move |[x]| x / (one + x.abs())),
        }
    }
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let from = [0, 1].map(|i| call.inputs[i].as_ptr::<T>().cast_const());
    let (dx, n) = (call.outputs[0].as_ptr::<T>(), call.outputs[0].size());
    let (zero, one) = (T::zero(), T::one());
    // SAFETY: all views have `n` elements and the output is one of the inputs or apart.
    unsafe {
        match call.attrs.get::<ActivationParam>().act_type {
            // Where the output is not positive it is 0 or NaN, and so is the gradient.
            ActType::Relu => map(from, dx, n, move |[g, y]| if y > zero { g } else { y }),
            ActType::Sigmoid => map(from, dx, n, move |[g, y]| g * y * (one - y)),
            ActType::Tanh => map(from, dx, n, move |[g, y]| g * (one - y * y)),
            ActType::SoftRelu => map_function(from, dx, n, SoftplusGradient),
            ActType::SoftSign => map(from, dx, n, move |[g, x]| {
                let d = one + x.abs();
                g / (d * d)
            }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    const TYPES: [&str; 5] = ["relu", "sigmoid", "tanh", "softrelu", "softsign"];

    #[test]
    fn gradients_match_differences() {
        for act in TYPES {
            for dims in [&[1][..], &[0, 3], &[3, 5, 7]] {
                let x = [Tensor::noise(dims, 4)];
                check_gradient("Activation", &[("act_type", act)], &x, &[0], true);
                check_half("Activation", &[("act_type", act)], &x, true);
            }
        }
    }

    #[test]
    fn values_at_the_edges() {
        let x = Tensor::of(&[4], &[-1000., 0., 1000., f64::NAN]);
        let at = |act| values("Activation", &[("act_type", act)], &[x.clone()]);
        assert_eq!(at("relu")[..3], [0., 0., 1000.]);
        assert!(at("relu")[3].is_nan());
        assert_eq!(at("sigmoid")[..3], [0., 0.5, 1.]);
        assert_eq!(at("tanh")[..3], [-1., 0., 1.]);
        assert_eq!(at("softrelu")[..3], [0., 2f64.ln(), 1000.]);
    }

    #[test]
    fn gradients_at_nan_are_nan() {
        let x = [Tensor::of(&[2], &[f64::NAN, -1.])];
        for act in TYPES {
            let ran = run("Activation", &[("act_type", act)], &x, true).unwrap();
            let slope = ran.gradients(&[Tensor::of(&[2], &[2., 2.])]).unwrap()[0].values();
            assert!(slope[0].is_nan() && slope[1].is_finite(), "{act}: {slope:?}");
        }
    }

    #[test]
    fn integers_are_refused() {
        let x = Tensor::of(&[1], &[1.]).cast(crate::DType::I32);
        let fail = run("Activation", &[("act_type", "relu")], &[x], false).map(|_| ()).unwrap_err();
        assert!(fail.to_string().contains("int32"), "{fail}");
    }
}
