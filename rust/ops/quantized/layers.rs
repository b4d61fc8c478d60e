//! Layers on 8-bit integers with sums in int32: `quantized_fully_connected`, `quantized_conv`.

use super::ranges::*;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::int8::{self, convert::nearest};
use crate::operator::infer::assign_type;
use crate::operator::{Attrs, Call, Kernel, OpDef, OpReq};
use crate::ops::nn::convolution::{self, ConvolutionParam};
use crate::ops::nn::fully_connected::{self, FullyConnectedParam};
use crate::ops::nn::window::Layout;
use crate::shape::Shape;

const FULLY_CONNECTED: &str = r#"
`FullyConnected` on 8-bit integers: ``y = x Wᵀ + b`` in int32.

Notes
-----
``data`` is int8 or uint8, ``weight`` and ``bias`` int8, each with its range (see `quantize`). A
unit of the sums is the product of the units of data and weight, and ``min_output`` and
``max_output`` say so; the bias is rounded to that unit. Where the bias would be beyond int32, since
the ranges of data and weight are as small as that, the unit is greater. Sums beyond int32 wrap,
which takes more than 65,000 inputs. Shapes are those of `FullyConnected`. There is no gradient.

Examples
--------
>>> x, w = nd.array([[127, 1]], dtype='int8'), nd.array([[127, 0]], dtype='int8')
>>> one = nd.array([1])
>>> y, low, high = nd.contrib.quantized_fully_connected(x, w, -one, one, -one, one, num_hidden=1,
...     no_bias=True)
>>> nd.contrib.dequantize(y, low, high)
[[1.]]
"#;

const CONV: &str = r#"
`Convolution` on 8-bit integers, with sums in int32.

Notes
-----
``data`` is int8 or uint8, ``weight`` and ``bias`` int8, each with its range (see `quantize`); units
and bias are as in `quantized_fully_connected`. Shapes are those of `Convolution`, channels first.
There is no gradient.

Examples
--------
>>> x, w = nd.ones((1, 1, 2, 2), dtype='uint8') * 255, nd.ones((1, 1, 2, 2), dtype='int8') * 127
>>> one = nd.array([1])
>>> y, low, high = nd.contrib.quantized_conv(x, w, 0 * one, one, -one, one, kernel=(2, 2),
...     num_filter=1, no_bias=True)
>>> nd.contrib.dequantize(y, low, high)
[[[[4.]]]]
"#;

/// Data, weight and bias.
const OPERANDS: [&str; 3] = ["data", "weight", "bias"];

/// Inputs with their documentation, the ranges in the order of what they belong to.
const INPUTS: [(&str, &str); 9] = [
    ("data", "The data, int8 or uint8."),
    ("weight", "The weight, int8."),
    ("bias", "The bias, int8."),
    ("min_data", "The least number of the data, (1,)."),
    ("max_data", "The greatest number of the data, (1,)."),
    ("min_weight", "The least number of the weight, (1,)."),
    ("max_weight", "The greatest number of the weight, (1,)."),
    ("min_bias", "The least number of the bias, (1,)."),
    ("max_bias", "The greatest number of the bias, (1,)."),
];

/// The names of the inputs in order.
fn names(no_bias: bool) -> Vec<String> {
    let with_bias = |name: &str| !(no_bias && name.ends_with("bias"));
    INPUTS.iter().map(|i| i.0).filter(|name| with_bias(name)).map(str::to_owned).collect()
}

pub fn operators() -> Vec<OpDef> {
    let finish = |def: OpDef, doc: &str, no_bias: fn(&Attrs) -> bool, infer: Infer| {
        def.doc(doc)
            .expensive()
            .inputs_are(&INPUTS)
            .input_names_by(move |attrs| names(no_bias(attrs)))
            .outputs_are(&OUTPUTS)
            .infer_shape(move |attrs, inputs, outputs| {
                let operands = inputs.len() / 3;
                range_shapes(&mut inputs[operands..], &[RANGE; 6])?;
                range_shapes(&mut outputs[1..], &OUTPUTS[1..])?;
                infer(attrs, &mut inputs[..operands], &mut outputs[..1])
            })
            .infer_type(infer_type)
    };
    vec![
        finish(
            OpDef::new::<FullyConnectedParam>("_contrib_quantized_fully_connected"),
            FULLY_CONNECTED,
            |attrs| attrs.get::<FullyConnectedParam>().no_bias,
            fully_connected::infer_shape,
        )
        .kernel(Kernel::cpu(fully_connected).skips_null()),
        finish(
            OpDef::new::<ConvolutionParam>("_contrib_quantized_conv"),
            CONV,
            |attrs| attrs.get::<ConvolutionParam>().no_bias,
            conv_shape,
        )
        .kernel(Kernel::cpu(conv).skips_null()),
    ]
}

type Infer = fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool>;

/// What a range is called where its name does not matter: all have one element.
const RANGE: &str = "range";

fn conv_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let layout = attrs.get::<ConvolutionParam>().layout.map(Layout::from);
    if layout.is_some_and(Layout::channels_last) {
        return Err(Error::argument("layout", "value", "channels last", "channels first"));
    }
    convolution::infer_shape(attrs, inputs, outputs)
}

fn infer_type(
    _: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    let operands = inputs.len() / 3;
    expect_type(inputs[0], "data", &BYTES)?;
    for (slot, name) in inputs[1..operands].iter_mut().zip(&OPERANDS[1..]) {
        assign_type(slot, name, DType::I8)?;
    }
    range_types(&mut inputs[operands..], &[RANGE; 6])?;
    assign_type(&mut outputs[0], "output", DType::I32)?;
    range_types(&mut outputs[1..], &OUTPUTS[1..])?;
    Ok(inputs[0].is_some())
}

/// Writes the sums, which `kernel` makes of where those of each of the channels begin, and their
/// range. `depth` products make a sum; `inner` sums of a channel follow one another.
fn run(call: &Call<'_>, depth: usize, inner: usize, kernel: impl FnOnce(&[i32])) {
    let operands = call.inputs.len() / 3;
    let range = |i: usize| Range::of_inputs(call, operands + 2 * i);
    let unit = range(0).unit(call.inputs[0].dtype()) * range(1).unit(DType::I8);
    let finish = |unit, start: &[i32]| {
        Range::of_unit(unit, DType::I32).write(call);
        if call.req[0] != OpReq::Null {
            kernel(start);
        }
    };
    if operands < 3 {
        return finish(unit, &[]);
    }
    let bias_unit = range(2).unit(DType::I8);
    // SAFETY: an input is not written while the kernel runs.
    let bias = unsafe { call.inputs[2].slice::<i8>() };
    let most = unit * levels(DType::U8) * levels(DType::I8) * depth as f64 + range(2).magnitude();
    if most <= unit * levels(DType::I32) {
        let start = |&b: &i8| nearest(f64::from(b) * (bias_unit / unit));
        return finish(unit, &bias.iter().map(start).collect::<Vec<i32>>());
    }
    // So small are the numbers of data or weight that the bias is beyond int32 in their unit.
    let coarse = most / levels(DType::I32);
    finish(coarse, &[]);
    if call.req[0] != OpReq::Null && coarse > 0.0 && !bias.is_empty() && inner > 0 {
        // SAFETY: the output is ours to write.
        let y = unsafe { call.outputs[0].slice_mut::<i32>() };
        for (i, y) in y.iter_mut().enumerate() {
            let bias = f64::from(bias[i / inner % bias.len()]) * bias_unit;
            *y = nearest((f64::from(*y) * unit + bias) / coarse);
        }
    }
}

fn fully_connected(call: &Call<'_>) -> Result<()> {
    let (x, w) = (&call.inputs[0], &call.inputs[1]);
    let (rows, width, hidden) = fully_connected::extents(call.attrs, x, w);
    let (w, y) = (w.as_ptr::<i8>(), call.outputs[0].as_ptr::<i32>());
    let extents = (rows, hidden, width);
    run(call, width, 1, |start| {
        // SAFETY: inference gave the views these extents; the output overlaps no input.
        with_byte!(x.dtype(), T => unsafe { int8::linear(extents, x.as_ptr::<T>(), w, start, y) });
    });
    Ok(())
}

fn conv(call: &Call<'_>) -> Result<()> {
    let x = &call.inputs[0];
    let (_, conv) = convolution::geometry(call.attrs, x, &call.outputs[0])?;
    let (w, y) = (call.inputs[1].as_ptr::<i8>(), call.outputs[0].as_ptr::<i32>());
    run(call, conv.depth(), conv.out_size(), |start| {
        // SAFETY: as above.
        with_byte!(x.dtype(), T => unsafe { int8::convolve(&conv, x.as_ptr::<T>(), w, start, y) });
    });
    Ok(())
}
