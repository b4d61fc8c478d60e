//! `_polygamma`: what derivatives of `gamma`, `gammaln` and of densities are made of.

use super::common::elementwise;
use super::kernel;
use crate::dtype::Element;
use crate::kernels::map::map;
use crate::kernels::math::polygamma_f64;
use crate::operator::{Dep, Gradient, InplacePair, OpDef, Value};
use crate::ops::nn::infer::float_type;
use crate::{params, with_dtype};

params! {
    /// Parameters of `_polygamma`.
    pub struct PolygammaParam {
        n: i32, default(0).ge(0.0).le(100.0), "Which derivative of the digamma function.";
    }
}

const DOC: &str = r#"
Returns, element by element: the n-th derivative of the digamma function, which is the derivative
of ``log(gamma(x))``.

Notes
-----
Any shape; float16, float32 or float64, calculated in float64. At the poles, 0 and the negative
integers, it is infinite, but NaN for n of 2, 4 ... The gradient is ``_polygamma`` of n + 1.

Examples
--------
>>> nd._internal._polygamma(nd.array([1, 2]), n=1)
[1.6449341 0.6449341]
"#;

pub fn operators() -> Vec<OpDef> {
    let def = elementwise(OpDef::new::<PolygammaParam>("_polygamma"))
        .infer_type(float_type)
        .doc(DOC)
        .inputs_are(&[("data", "The input array.")])
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::rule_reading(&[Dep::Input(0)], |b, node| {
            let g = node.out_grad(b, 0)?;
            let next = Value::Int(i64::from(node.attrs.get::<PolygammaParam>().n) + 1);
            let slope = b.op("_polygamma", "", &[("n", next)], &[node.inputs[0]])?[0];
            Ok(vec![Some(b.op("elemwise_mul", "", &[], &[g, slope])?[0])])
        }))
        .kernel(kernel(|call| {
            let (x, out) = (&call.inputs[0], &call.outputs[0]);
            let n = call.attrs.get::<PolygammaParam>().n.unsigned_abs();
            with_dtype!(out.dtype(), T => {
                let f = |[x]: [T; 1]| <T as Element>::from_f64(polygamma_f64(n, Element::to_f64(x)));
                // SAFETY: both views have the output's size; in place is declared.
                unsafe { map([x.as_ptr::<T>().cast_const()], out.as_ptr::<T>(), out.size(), f) };
            });
            Ok(())
        }));
    vec![def]
}
