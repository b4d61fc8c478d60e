//! Operators that keep the integers, or choose among them: `quantized_flatten`, `quantized_act`,
//! `quantized_pooling`, `quantized_concat`, `quantized_embedding`.

use super::ranges::*;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::int8;
use crate::kernels::int8::convert::{Positive, ToUnits, each};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, assign_type, same_type};
use crate::operator::{Attrs, Call, Kernel, NoParam, OpDef, OpReq};
use crate::ops::nn::activation::{ActType, ActivationParam};
use crate::ops::nn::embedding::{self, EmbeddingParam};
use crate::ops::nn::pooling::{self, PoolType, PoolingParam};
use crate::ops::tensor::parts::{ConcatParam, concat_shape};
use crate::shape::Shape;

const FLATTEN: &str = r#"
`Flatten` of integers: ``(N, ...)`` becomes ``(N, D)``; the range stays.

Examples
--------
>>> q, one = nd.ones((1, 2, 2), dtype='int8'), nd.array([1])
>>> nd.contrib.quantized_flatten(q, -one, one)[0]
[[1 1 1 1]]
"#;

const ACT: &str = r#"
``max(q, 0)`` of integers; the range stays. Activations other than relu are errors.

Examples
--------
>>> q, one = nd.array([-3, 0, 3], dtype='int8'), nd.array([1])
>>> nd.contrib.quantized_act(q, -one, one, act_type='relu')[0]
[0 0 3]
"#;

const POOLING: &str = r#"
`Pooling` of integers by maximum or average; the range stays.

Notes
-----
``data`` is int8 or uint8. Averages are rounded to the nearest integer, halves to the even one.
Parameters and shapes are those of `Pooling`; other values of ``pool_type`` are errors. There is no
gradient.

Examples
--------
>>> q, one = nd.array([[[1, 2, 4, 8]]], dtype='int8'), nd.array([1])
>>> nd.contrib.quantized_pooling(q, -one, one, kernel=(2,), stride=(2,), pool_type='avg')[0]
[[[2 6]]]
"#;

const CONCAT: &str = r#"
`Concat` of integers: all are brought to the widest of their ranges.

Notes
-----
Inputs are the arrays, then the range of each: ``arg0, arg1, ..., arg0_min, arg0_max, arg1_min,
...``. The output is uint8 if all arrays are, else int8. There is no gradient.

Examples
--------
>>> a, b = nd.array([127], dtype='int8'), nd.array([127], dtype='int8')
>>> one, two = nd.array([1]), nd.array([2])
>>> nd.contrib.quantized_concat(a, b, -one, one, -two, two, num_args=2, dim=0)[0]
[ 64 127]
"#;

const EMBEDDING: &str = r#"
`Embedding` of an int8 weight: rows by number; the range stays.

Examples
--------
>>> w, one = nd.array([[1, 2], [3, 4]], dtype='int8'), nd.array([1])
>>> nd.contrib.quantized_embedding(nd.array([1]), w, -one, one, input_dim=2, output_dim=2)[0]
[[3 4]]
"#;

const DATA: [(&str, &str); 3] = [
    ("data", "Integers, int8 or uint8."),
    ("min_data", "The least number, (1,)."),
    ("max_data", "The greatest number, (1,)."),
];
const WEIGHT: [(&str, &str); 4] = [
    ("data", "Row numbers."),
    ("weight", "The matrix (input_dim, output_dim), int8."),
    ("min_weight", "The least number of the weight, (1,)."),
    ("max_weight", "The greatest number of the weight, (1,)."),
];

type InferShape = fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool>;

pub fn operators() -> Vec<OpDef> {
    // The integers of one array, whose range stays.
    let one = |def: OpDef, doc: &str, infer: InferShape, run: fn(&Call<'_>) -> Result<()>| {
        def.doc(doc)
            .inputs_are(&DATA)
            .outputs_are(&OUTPUTS)
            .infer_shape(move |attrs, inputs, outputs| {
                range_shapes(&mut inputs[1..], &OUTPUTS[1..])?;
                range_shapes(&mut outputs[1..], &OUTPUTS[1..])?;
                infer(attrs, &mut inputs[..1], &mut outputs[..1])
            })
            .infer_type(|attrs, inputs, outputs| {
                range_types(&mut inputs[1..], &OUTPUTS[1..])?;
                range_types(&mut outputs[1..], &OUTPUTS[1..])?;
                let known = same_type(attrs, &mut inputs[..1], &mut outputs[..1])?;
                expect_type(inputs[0], "data", &BYTES)?;
                Ok(known)
            })
            .kernel(
                Kernel::cpu(move |call| {
                    Range::of_inputs(call, 1).write(call);
                    if call.req[0] == OpReq::Null { Ok(()) } else { run(call) }
                })
                .skips_null(),
            )
    };
    vec![
        one(OpDef::new::<NoParam>("_contrib_quantized_flatten"), FLATTEN, flat_shape, flatten),
        one(OpDef::new::<ActivationParam>("_contrib_quantized_act"), ACT, act_shape, act),
        one(OpDef::new::<PoolingParam>("_contrib_quantized_pooling"), POOLING, pool_shape, pool),
        OpDef::new::<ConcatParam>("_contrib_quantized_concat")
            .doc(CONCAT)
            .variadic("num_args", "The arrays, then the range of each.")
            .input_names_by(|attrs| concat_names(attrs.get::<ConcatParam>().num_args))
            .outputs_are(&OUTPUTS)
            .infer_shape(|attrs, inputs, outputs| {
                let n = inputs.len() / 3;
                inputs[n..]
                    .iter_mut()
                    .try_for_each(|s| assign_shape(s, "range", &Shape::new(&[1])))?;
                range_shapes(&mut outputs[1..], &OUTPUTS[1..])?;
                concat_shape(attrs, &mut inputs[..n], &mut outputs[..1])
            })
            .infer_type(concat_type)
            .kernel(Kernel::cpu(concat).skips_null()),
        OpDef::new::<EmbeddingParam>("_contrib_quantized_embedding")
            .doc(EMBEDDING)
            .inputs_are(&WEIGHT)
            .outputs_are(&OUTPUTS)
            .infer_shape(|attrs, inputs, outputs| {
                range_shapes(&mut inputs[2..], &["min_weight", "max_weight"])?;
                range_shapes(&mut outputs[1..], &OUTPUTS[1..])?;
                embedding::infer_shape(attrs, &mut inputs[..2], &mut outputs[..1])
            })
            .infer_type(|_, inputs, outputs| {
                assign_type(&mut inputs[1], "weight", DType::I8)?;
                assign_type(&mut outputs[0], "output", DType::I8)?;
                range_types(&mut inputs[2..], &["min_weight", "max_weight"])?;
                range_types(&mut outputs[1..], &OUTPUTS[1..])?;
                Ok(inputs[0].is_some())
            })
            .kernel(
                Kernel::cpu(|call| {
                    Range::of_inputs(call, 2).write(call);
                    embedding::forward(call)
                })
                .skips_null(),
            ),
    ]
}

fn flat_shape(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    if inputs[0].is_known() {
        let first = inputs[0].dims().first().copied().unwrap_or(1);
        let rest = inputs[0].product(1.min(inputs[0].ndim())..inputs[0].ndim());
        assign_shape(&mut outputs[0], "output", &Shape::new(&[first, rest as i64]))?;
    }
    Ok(inputs[0].is_known())
}

fn flatten(call: &Call<'_>) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    // SAFETY: inference gave both bytes and one size; the output overlaps no input.
    unsafe { y.ptr().copy_from_nonoverlapping(x.ptr(), y.size_bytes()) };
    Ok(())
}

fn act_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let given = attrs.get::<ActivationParam>().act_type;
    if given != ActType::Relu {
        return Err(Error::argument(
            "act_type",
            "value",
            format!("{given:?}").to_lowercase(),
            "relu",
        ));
    }
    crate::operator::infer::elementwise_shape(attrs, inputs, outputs)
}

fn act(call: &Call<'_>) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    with_byte!(x.dtype(), T => map::<T, T>(x, y, Positive));
    Ok(())
}

fn pool_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let kind = attrs.get::<PoolingParam>().pool_type;
    if !matches!(kind, PoolType::Max | PoolType::Avg) {
        let got = format!("{kind:?}").to_lowercase();
        return Err(Error::argument("pool_type", "value", got, "max or avg"));
    }
    pooling::infer_shape(attrs, inputs, outputs)
}

fn pool(call: &Call<'_>) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let (layout, pool) = pooling::geometry(call.attrs, x, y)?;
    if layout.channels_last() {
        return Err(Error::argument("layout", "value", "channels last", "channels first"));
    }
    // SAFETY: inference gave the views these extents; the output overlaps no input.
    with_byte!(x.dtype(), T => unsafe { int8::pool(&pool, x.as_ptr::<T>(), y.as_ptr()) });
    Ok(())
}

fn concat_names(count: i32) -> Vec<String> {
    let arrays = (0..count).map(|i| format!("arg{i}"));
    let ranges = (0..count).flat_map(|i| [format!("arg{i}_min"), format!("arg{i}_max")]);
    arrays.chain(ranges).collect()
}

fn concat_type(
    _: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    let n = inputs.len() / 3;
    for (i, slot) in inputs[..n].iter().enumerate() {
        expect_type(*slot, &format!("arg{i}"), &BYTES)?;
    }
    inputs[n..].iter_mut().try_for_each(|slot| assign_type(slot, "range", DType::F32))?;
    range_types(&mut outputs[1..], &OUTPUTS[1..])?;
    if inputs[..n].iter().any(Option::is_none) {
        return Ok(false);
    }
    let signed = inputs[..n].contains(&Some(DType::I8));
    assign_type(&mut outputs[0], "output", if signed { DType::I8 } else { DType::U8 })?;
    Ok(true)
}

fn concat(call: &Call<'_>) -> Result<()> {
    let (n, out) = (call.inputs.len() / 3, &call.outputs[0]);
    let range = |i: usize| Range::of_inputs(call, n + 2 * i);
    let widest = (1..n)
        .map(range)
        .fold(range(0), |a, b| Range { min: a.min.min(b.min), max: a.max.max(b.max) });
    widest.write(call);
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let axis = out.shape().axis(call.attrs.get::<ConcatParam>().dim.into())?;
    let inner = |shape: &Shape| shape.product(axis..shape.ndim());
    let (outer, width) = (out.shape().product(0..axis), inner(out.shape()));
    let units_in_one = widest.units(out.dtype());
    let mut start = 0;
    for (i, x) in call.inputs[..n].iter().enumerate() {
        let units = ToUnits { factor: range(i).unit(x.dtype()) * units_in_one, shift: 0.0 };
        let part = inner(x.shape());
        with_byte!(x.dtype(), S => with_byte!(out.dtype(), D => {
            let (from, to) = (Shared(x.as_ptr::<S>()), Shared(out.as_ptr::<D>()));
            parallel_for(outer, (1usize << 15).div_ceil(part.max(1)), |range| {
                for row in range {
                    // SAFETY: inference gave the views these extents; rows belong to one task.
                    unsafe {
                        let from = from.at(row * part).cast_const();
                        each(units, from, to.at(row * width + start), part);
                    }
                }
            });
        }));
        start += part;
    }
    Ok(())
}
