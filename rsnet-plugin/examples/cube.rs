//! y = by x³, with the gradient 3 by x² dy of built-in operators.
//!
//!     cargo build --release -p rsnet-plugin --example cube
//!     python -c "import rsnet; print(rsnet.load_library('target/release/examples/libcube.so'))"

use rsnet_plugin::{Arg, Attr, Call, Gradient, Operator, Result, abi, plugin};
use std::ffi::CStr;

struct Cube;

impl Operator for Cube {
    const NAME: &'static CStr = c"rust_cube";
    const DOC: &'static CStr = c"y = by x^3, element by element.";
    const INPUTS: &'static [Arg] = &[Arg::new(c"x")];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const ATTRS: &'static [Attr] = &[Attr::new(c"by", abi::kind::F64, c"1.0").doc(c"Factor.")];
    const DIFFERENTIABLE: bool = true;

    fn compute(call: &Call<'_>) -> Result {
        let by = call.number(0)? as f32;
        let (x, y) = (call.input::<f32>(0)?, call.output::<f32>(0)?);
        assert!(by >= 0.0, "by is {by}, expected 0 or more");
        for (y, x) in y.iter_mut().zip(x) {
            *y = by * x * x * x;
        }
        Ok(())
    }

    fn gradient(g: &Gradient<'_>) -> Result {
        let square = g.op(c"square", &[g.input(0)?], &[])?;
        let product = g.op(c"elemwise_mul", &[square, g.out_grad(0)?], &[])?;
        let factor = (3.0 * g.number(0)?).to_string();
        g.bind(0, g.op(c"_mul_scalar", &[product], &[(c"scalar", &factor)])?)
    }
}

plugin!(Cube);
