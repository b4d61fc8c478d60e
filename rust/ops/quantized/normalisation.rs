//! `quantized_batch_norm`: batch normalisation of integers by moving averages.

use super::ranges::*;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::int8::convert::{Integer, ToUnits, each};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::assign_type;
use crate::operator::{Attrs, Call, Kernel, OpDef, OpReq};
use crate::ops::nn::batch_norm::{self, BatchNormParam};
use crate::shape::Shape;

const BATCH_NORM: &str = r#"
`BatchNorm` of integers by the moving averages, as in inference.

Notes
-----
``data`` is int8 or uint8 with its range (see `quantize`); gamma, beta and moving averages are
float32. The output is int8 of the calibrated range, which is needed. The moving averages stay.
There is no gradient.

Examples
--------
>>> q, one = nd.array([[127]], dtype='int8'), nd.array([1])
>>> nd.contrib.quantized_batch_norm(q, one, one, 0 * one, one, -one, one, min_calib_range=-4,
...     max_calib_range=4)[0]
[[63]]
"#;

const INPUTS: [(&str, &str); 7] = [
    ("data", "Integers, int8 or uint8 (N, C, ...)."),
    ("gamma", "Scale of each channel (C,)."),
    ("beta", "Shift of each channel (C,)."),
    ("moving_mean", "Moving average of the mean (C,)."),
    ("moving_var", "Moving average of the variance (C,)."),
    ("min_data", "The least number of the data, (1,)."),
    ("max_data", "The greatest number of the data, (1,)."),
];

pub fn operators() -> Vec<OpDef> {
    let define = OpDef::new::<BatchNormParam>("_contrib_quantized_batch_norm")
        .doc(BATCH_NORM)
        .inputs_are(&INPUTS)
        .outputs_are(&OUTPUTS)
        .mutates(&[3, 4])
        .rerun_safe()
        .variable_attr("moving_mean", "__init__", "[\"zero\", {}]")
        .variable_attr("moving_var", "__init__", "[\"one\", {}]")
        .infer_shape(|attrs, inputs, outputs| {
            calibrated(attrs)?;
            range_shapes(&mut inputs[5..], &["min_data", "max_data"])?;
            range_shapes(&mut outputs[1..], &OUTPUTS[1..])?;
            // Mean and variance, which `BatchNorm` returns too, are not wanted here.
            let mut all = vec![outputs[0].clone(), Shape::unknown(), Shape::unknown()];
            let known = batch_norm::infer_shape(attrs, &mut inputs[..5], &mut all)?;
            outputs[0] = all.swap_remove(0);
            Ok(known)
        })
        .infer_type(|_, inputs, outputs| {
            if inputs[0] != Some(DType::U8) {
                assign_type(&mut inputs[0], "data", DType::I8)?;
            }
            assign_type(&mut outputs[0], "output", DType::I8)?;
            for (slot, (name, _)) in inputs.iter_mut().zip(INPUTS).skip(1) {
                assign_type(slot, name, DType::F32)?;
            }
            range_types(&mut outputs[1..], &OUTPUTS[1..])?;
            Ok(true)
        })
        .kernel(Kernel::cpu(run).skips_null());
    vec![define]
}

/// The range of the output; an error if it is not given.
fn calibrated(attrs: &Attrs) -> Result<Range> {
    let p: &BatchNormParam = attrs.get();
    Range::calibrated(p.min_calib_range, p.max_calib_range).ok_or_else(|| {
        let name = if p.min_calib_range.is_none() { "min_calib_range" } else { "max_calib_range" };
        Error::argument(name, "value", "None", "a number")
    })
}

fn run(call: &Call<'_>) -> Result<()> {
    let range = calibrated(call.attrs)?;
    range.write(call);
    if call.req[0] != OpReq::Null {
        with_byte!(call.inputs[0].dtype(), T => normalise::<T>(call, range));
    }
    Ok(())
}

fn normalise<T: Integer>(call: &Call<'_>, range: Range) {
    let p: &BatchNormParam = call.attrs.get();
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let extents = batch_norm::extents(p, x);
    let (unit, units) = (Range::of_inputs(call, 5).unit(x.dtype()), range.units(DType::I8));
    // SAFETY: inputs are not written while the kernel runs.
    let of = |i: usize, c: usize| f64::from(unsafe { call.inputs[i].slice::<f32>() }[c]);
    let (from, to) = (Shared(x.as_ptr::<T>()), Shared(y.as_ptr::<i8>()));
    let grain = (1usize << 15).div_ceil(extents.inner.max(1));
    parallel_for(extents.outer * extents.channels, grain, |tasks| {
        for plane in tasks {
            let c = plane % extents.channels;
            let gamma = if p.fix_gamma { 1.0 } else { of(1, c) };
            let slope = gamma / (of(4, c) + p.eps).sqrt();
            let shift = (of(2, c) - of(3, c) * slope) * units;
            let to_units = ToUnits { factor: unit * slope * units, shift };
            let at = plane * extents.inner;
            // SAFETY: planes lie in the views; each belongs to one task.
            unsafe { each(to_units, from.at(at).cast_const(), to.at(at), extents.inner) };
        }
    });
}
