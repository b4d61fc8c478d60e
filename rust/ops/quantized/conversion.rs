//! Between real numbers and integers: `quantize`, `quantize_v2`, `dequantize`, `requantize`.

use super::ranges::*;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::kernels::int8::convert::{self, Each, ToReal, ToUnits};
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Kernel, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params};

param_enum! {
    /// The integers that numbers become.
    pub enum ByteType { Int8 = "int8", Uint8 = "uint8" }
}

param_enum! {
    /// As [`ByteType`], or chosen by the calibrated range.
    pub enum AnyByteType { Auto = "auto", Int8 = "int8", Uint8 = "uint8" }
}

param_enum! {
    /// The dtype of dequantised data.
    pub enum RealType { Float32 = "float32" }
}

params! {
    /// Parameters of `_contrib_quantize`.
    pub struct QuantizeParam {
        out_type: ByteType, default(ByteType::Uint8), "Dtype of the output.";
    }
}

params! {
    /// Parameters of `_contrib_quantize_v2` and `_contrib_requantize`.
    pub struct CalibratedParam {
        out_type: AnyByteType, default(AnyByteType::Int8), "Dtype of the output; 'auto' is uint8 \
                                                            if min_calib_range is given and not \
                                                            negative, else int8.";
        min_calib_range: Option<f32>, default(None), "The least number expected; None takes it \
                                                      from the data.";
        max_calib_range: Option<f32>, default(None), "The greatest number expected; None takes it \
                                                      from the data.";
    }
}

params! {
    /// Parameters of `_contrib_dequantize`.
    pub struct DequantizeParam {
        out_type: RealType, default(RealType::Float32), "Dtype of the output.";
    }
}

const QUANTIZE: &str = r#"
Numbers as 8-bit integers: ``q = round(x * levels / max(|min_range|, |max_range|))``, clipped to the
levels.

Notes
-----
Levels are 127 for int8, clipped to -127 to 127, and 255 for uint8, clipped to 0 to 255; halves are
rounded to the even integer, and NaN becomes 0. ``min_range`` and ``max_range`` have one element.
The outputs are the integers, of the data's shape, and the range that they stand for: for int8 the
magnitude below and above 0, for uint8 the range as given. Data is float32. There is no gradient.

Examples
--------
>>> x, low, high = nd.array([-1, 0, 0.5]), nd.array([-1]), nd.array([1])
>>> nd.contrib.quantize(x, low, high, out_type='int8')[0]
[-127    0   64]

References
----------
B. Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference, 2018.
"#;

const QUANTIZE_V2: &str = r#"
As `quantize`, with the range from the parameters or, where one is not given, from the least and
greatest number of the data.

Examples
--------
>>> q, low, high = nd.contrib.quantize_v2(nd.array([0, 1, 2]), min_calib_range=0,
...     max_calib_range=2, out_type='auto')
>>> q
[  0 128 255]
"#;

const DEQUANTIZE: &str = r#"
The numbers that integers stand for: ``x = q * max(|min_range|, |max_range|) / levels``, in float32.

Notes
-----
Levels are 127 for int8, 255 for uint8 and 2^31 - 1 for int32. ``min_range`` and ``max_range`` have
one element. There is no gradient.

Examples
--------
>>> q = nd.array([-127, 0, 127], dtype='int8')
>>> nd.contrib.dequantize(q, nd.array([-2]), nd.array([2]))
[-2.  0.  2.]
"#;

const REQUANTIZE: &str = r#"
Sums in int32 as 8-bit integers: the numbers that ``data`` stands for (see `dequantize`), quantised
again.

Notes
-----
The new range comes from the parameters or, where one is not given, from the least and greatest
number of the data. Outputs are as of `quantize`. There is no gradient.

Examples
--------
>>> data = nd.array([0, 2**30], dtype='int32')
>>> nd.contrib.requantize(data, nd.array([-4]), nd.array([4]), min_calib_range=-2,
...     max_calib_range=2)[0]
[  0 127]
"#;

const RANGES: [&str; 2] = ["min_range", "max_range"];
const INT_OUTPUTS: [&str; 3] = ["output0", "output1", "output2"];

const RANGE_DOCS: [(&str, &str); 2] =
    [("min_range", "The least number, (1,)."), ("max_range", "The greatest number, (1,).")];

pub fn operators() -> Vec<OpDef> {
    let data = |doc: &'static str| [("data", doc), RANGE_DOCS[0], RANGE_DOCS[1]];
    vec![
        OpDef::new::<QuantizeParam>("_contrib_quantize")
            .doc(QUANTIZE)
            .inputs_are(&data("Real numbers."))
            .outputs_are(&INT_OUTPUTS)
            .infer_shape(shapes)
            .infer_type(|attrs, inputs, outputs| {
                types(
                    inputs,
                    outputs,
                    DType::F32,
                    match attrs.get::<QuantizeParam>().out_type {
                        ByteType::Int8 => DType::I8,
                        ByteType::Uint8 => DType::U8,
                    },
                )
            })
            .kernel(Kernel::cpu(|call| quantize(call, Range::of_inputs(call, 1))).skips_null()),
        OpDef::new::<CalibratedParam>("_contrib_quantize_v2")
            .doc(QUANTIZE_V2)
            .inputs_are(&[("data", "Real numbers.")])
            .outputs_are(&INT_OUTPUTS)
            .infer_shape(shapes)
            .infer_type(|attrs, inputs, outputs| {
                let p: &CalibratedParam = attrs.get();
                types(inputs, outputs, DType::F32, byte_type(p.out_type, p.min_calib_range))
            })
            .kernel(Kernel::cpu(quantize_v2).skips_null()),
        OpDef::new::<DequantizeParam>("_contrib_dequantize")
            .doc(DEQUANTIZE)
            .inputs_are(&data("Integers: int8, uint8 or int32."))
            .infer_shape(shapes)
            .infer_type(|_, inputs, outputs| {
                expect_type(inputs[0], "data", &[DType::I8, DType::U8, DType::I32])?;
                range_types(&mut inputs[1..], &RANGES)?;
                assign_type(&mut outputs[0], "output", DType::F32)?;
                Ok(inputs[0].is_some())
            })
            .kernel(Kernel::cpu(dequantize).skips_null()),
        OpDef::new::<CalibratedParam>("_contrib_requantize")
            .doc(REQUANTIZE)
            .inputs_are(&data("Sums in int32."))
            .outputs_are(&INT_OUTPUTS)
            .infer_shape(shapes)
            .infer_type(|attrs, inputs, outputs| {
                let p: &CalibratedParam = attrs.get();
                types(inputs, outputs, DType::I32, byte_type(p.out_type, p.min_calib_range))
            })
            .kernel(Kernel::cpu(requantize).skips_null()),
    ]
}

fn byte_type(asked: AnyByteType, min: Option<f32>) -> DType {
    match asked {
        AnyByteType::Uint8 => DType::U8,
        AnyByteType::Auto if min.is_some_and(|min| min >= 0.0) => DType::U8,
        _ => DType::I8,
    }
}

/// Data and output have one shape; everything else is a range.
fn shapes(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    let known = inputs[0].clone();
    assign_shape(&mut outputs[0], "output", &known)?;
    range_shapes(&mut inputs[1..], &RANGES)?;
    range_shapes(&mut outputs[1..], &OUTPUTS[1..])?;
    Ok(inputs[0].is_known())
}

fn types(
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
    from: DType,
    to: DType,
) -> Result<bool> {
    assign_type(&mut inputs[0], "data", from)?;
    assign_type(&mut outputs[0], "output", to)?;
    range_types(&mut inputs[1..], &RANGES)?;
    range_types(&mut outputs[1..], &OUTPUTS[1..])?;
    Ok(true)
}

/// What the integers of `dtype` say of the range that they were made by.
fn said(range: Range, dtype: DType) -> Range {
    if dtype == DType::U8 { range } else { range.symmetric() }
}

fn quantize(call: &Call<'_>, range: Range) -> Result<()> {
    let out = &call.outputs[0];
    said(range, out.dtype()).write(call);
    if call.req[0] != OpReq::Null {
        quantise(&call.inputs[0], range, out);
    }
    Ok(())
}

fn quantize_v2(call: &Call<'_>) -> Result<()> {
    let p: &CalibratedParam = call.attrs.get();
    let range = Range::calibrated(p.min_calib_range, p.max_calib_range)
        .unwrap_or_else(|| extremes::<f32>(&call.inputs[0], |x| x));
    quantize(call, range)
}

/// The range from the least of the elements to the greatest, each as a real number; NaN is left
/// out, and the range of no elements is 0.
fn extremes<T: Element + convert::Limits>(x: &View, real: impl Fn(T) -> f32) -> Range {
    // SAFETY: the view holds its elements, and an input is not written while the kernel runs.
    let found = unsafe { convert::extremes(x.as_ptr::<T>(), x.size()) };
    // Whether 0 has a sign depends on which of several was found.
    let [min, max] = found.map_or([0.0; 2], |ends| ends.map(|end| real(end) + 0.0));
    Range { min, max }
}

fn dequantize(call: &Call<'_>) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let real = ToReal { unit: Range::of_inputs(call, 1).unit(x.dtype()) };
    if x.dtype() == DType::I32 {
        map::<i32, f32>(x, y, real);
    } else {
        with_byte!(x.dtype(), T => map::<T, f32>(x, y, real));
    }
    Ok(())
}

fn requantize(call: &Call<'_>) -> Result<()> {
    let p: &CalibratedParam = call.attrs.get();
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let unit = Range::of_inputs(call, 1).unit(DType::I32);
    let range = Range::calibrated(p.min_calib_range, p.max_calib_range)
        .unwrap_or_else(|| extremes::<i32>(x, |q| ToReal { unit }.of(q)));
    said(range, y.dtype()).write(call);
    if call.req[0] != OpReq::Null {
        let units = ToUnits { factor: unit * range.units(y.dtype()), shift: 0.0 };
        with_byte!(y.dtype(), T => map::<i32, T>(x, y, units));
    }
    Ok(())
}
