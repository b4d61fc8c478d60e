//! Sums and products of integers of different ranges: `quantized_elemwise_add`,
//! `quantized_elemwise_mul`.

use super::ranges::*;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::kernels::int8::convert::{EachPair, Product, RealProduct, Sum, map_pairs};
use crate::operator::infer::{assign_type, elementwise_shape};
use crate::operator::{Attrs, Call, Kernel, OpDef, OpReq};
use crate::params;

params! {
    /// Parameters of `_contrib_quantized_elemwise_add`.
    pub struct QuantizedAddParam {
        min_calib_range: Option<f32>, default(None), "The least number of the output; None makes \
                                                      it int32.";
        max_calib_range: Option<f32>, default(None), "The greatest number of the output; None \
                                                      makes it int32.";
    }
}

params! {
    /// Parameters of `_contrib_quantized_elemwise_mul`.
    pub struct QuantizedMulParam {
        min_calib_range: Option<f32>, default(None), "The least number of the output; None makes \
                                                      it int32.";
        max_calib_range: Option<f32>, default(None), "The greatest number of the output; None \
                                                      makes it int32.";
        enable_float_output: bool, default(false), "Return the product in float32, without a \
                                                    range.";
    }
}

const ADD: &str = r#"
The sum of the numbers that two arrays of integers stand for.

Notes
-----
``lhs`` and ``rhs`` are int8 or uint8, each with its range (see `quantize`), and have one shape.
With both calibrated ranges the output is int8 of that range, else int32, whose range is as wide as
both together. There is no gradient.

Examples
--------
>>> a, b = nd.array([127], dtype='int8'), nd.array([127], dtype='int8')
>>> one, two = nd.array([1]), nd.array([2])
>>> y, low, high = nd.contrib.quantized_elemwise_add(a, b, -one, one, -two, two)
>>> nd.contrib.dequantize(y, low, high)
[3.]
"#;

const MUL: &str = r#"
The product of the numbers that two arrays of integers stand for.

Notes
-----
As `quantized_elemwise_add`; the int32 output has the exact products of the integers. With
``enable_float_output=True`` the only output is the product in float32.

Examples
--------
>>> a, b = nd.array([127], dtype='int8'), nd.array([2], dtype='int8')
>>> one = nd.array([1])
>>> nd.contrib.quantized_elemwise_mul(a, b, -one, one, -one, one)[0]
[254]
"#;

const INPUTS: [(&str, &str); 6] = [
    ("lhs", "First array, int8 or uint8."),
    ("rhs", "Second array, int8 or uint8."),
    ("lhs_min", "The least number of the first, (1,)."),
    ("lhs_max", "The greatest number of the first, (1,)."),
    ("rhs_min", "The least number of the second, (1,)."),
    ("rhs_max", "The greatest number of the second, (1,)."),
];

pub fn operators() -> Vec<OpDef> {
    let finish = |def: OpDef, doc: &str, out: fn(&Attrs) -> DType| {
        def.doc(doc)
            .inputs_are(&INPUTS)
            .infer_shape(|attrs, inputs, outputs| {
                let (arrays, ranges) = inputs.split_at_mut(2);
                range_shapes(ranges, &["lhs_min", "lhs_max", "rhs_min", "rhs_max"])?;
                range_shapes(&mut outputs[1..], &OUTPUTS[1..])?;
                elementwise_shape(attrs, arrays, &mut outputs[..1])
            })
            .infer_type(move |attrs, inputs, outputs| {
                let (arrays, ranges) = inputs.split_at_mut(2);
                range_types(ranges, &["lhs_min", "lhs_max", "rhs_min", "rhs_max"])?;
                range_types(&mut outputs[1..], &OUTPUTS[1..])?;
                expect_type(arrays[0], "lhs", &BYTES)?;
                expect_type(arrays[1], "rhs", &BYTES)?;
                assign_type(&mut outputs[0], "output", out(attrs))?;
                Ok(arrays.iter().all(Option::is_some))
            })
    };
    vec![
        finish(OpDef::new::<QuantizedAddParam>("_contrib_quantized_elemwise_add"), ADD, |attrs| {
            let p: &QuantizedAddParam = attrs.get();
            int_type(p.min_calib_range, p.max_calib_range)
        })
        .outputs_are(&OUTPUTS)
        .kernel(Kernel::cpu(add).skips_null()),
        finish(OpDef::new::<QuantizedMulParam>("_contrib_quantized_elemwise_mul"), MUL, |attrs| {
            let p: &QuantizedMulParam = attrs.get();
            match p.enable_float_output {
                true => DType::F32,
                false => int_type(p.min_calib_range, p.max_calib_range),
            }
        })
        .output_names_by(|attrs| {
            let n = if attrs.get::<QuantizedMulParam>().enable_float_output { 1 } else { 3 };
            OUTPUTS[..n].iter().map(|&name| name.to_owned()).collect()
        })
        .kernel(Kernel::cpu(mul).skips_null()),
    ]
}

/// Runs `$body` with aliases for the dtypes of both arrays.
macro_rules! with_bytes {
    ($call:expr, $S:ident, $T:ident => $body:expr) => {
        with_byte!($call.inputs[0].dtype(), $S => with_byte!($call.inputs[1].dtype(), $T => $body))
    };
}

fn int_type(min: Option<f32>, max: Option<f32>) -> DType {
    if Range::calibrated(min, max).is_some() { DType::I8 } else { DType::I32 }
}

/// Units of both arrays.
fn units(call: &Call<'_>) -> [f64; 2] {
    [0, 1].map(|i| Range::of_inputs(call, 2 + 2 * i).unit(call.inputs[i].dtype()))
}

fn add(call: &Call<'_>) -> Result<()> {
    let p: &QuantizedAddParam = call.attrs.get();
    let both = || {
        let [a, b] = [2, 4].map(|at| Range::of_inputs(call, at).magnitude() as f32);
        Range { min: -(a + b), max: a + b }
    };
    let range = Range::calibrated(p.min_calib_range, p.max_calib_range).unwrap_or_else(both);
    range.write(call);
    let units_in_one = range.units(call.outputs[0].dtype());
    integers(call, Sum { factors: units(call).map(|unit| unit * units_in_one) });
    Ok(())
}

fn mul(call: &Call<'_>) -> Result<()> {
    let p: &QuantizedMulParam = call.attrs.get();
    let [a, b] = units(call);
    if p.enable_float_output {
        with_bytes!(call, S, T => pairs::<S, T, f32>(call, RealProduct { units: [a, b] }));
        return Ok(());
    }
    match Range::calibrated(p.min_calib_range, p.max_calib_range) {
        Some(range) => {
            range.write(call);
            integers(call, Product { factor: a * b * range.units(DType::I8) });
        }
        None => {
            Range::of_unit(a * b, DType::I32).write(call);
            integers(call, Product { factor: 1.0 });
        }
    }
    Ok(())
}

/// Writes `f` of all pairs to the output as integers.
fn integers<F>(call: &Call<'_>, f: F)
where
    F: EachPair<i8, i8, i8> + EachPair<i8, u8, i8> + EachPair<u8, i8, i8> + EachPair<u8, u8, i8>,
    F: EachPair<i8, i8, i32>
        + EachPair<i8, u8, i32>
        + EachPair<u8, i8, i32>
        + EachPair<u8, u8, i32>,
{
    match call.outputs[0].dtype() {
        DType::I32 => with_bytes!(call, S, T => pairs::<S, T, i32>(call, f)),
        _ => with_bytes!(call, S, T => pairs::<S, T, i8>(call, f)),
    }
}

/// Writes `f` of all pairs to the output.
fn pairs<S: Element, T: Element, D: Element>(call: &Call<'_>, f: impl EachPair<S, T, D>) {
    let ([x, y], z) = ([&call.inputs[0], &call.inputs[1]], &call.outputs[0]);
    if call.req[0] != OpReq::Null {
        // SAFETY: inference gave all views one size; the output overlaps no input.
        unsafe { map_pairs(f, x.as_ptr(), y.as_ptr(), z.as_ptr(), z.size()) };
    }
}
