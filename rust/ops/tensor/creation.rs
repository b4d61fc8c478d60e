//! Operators without array inputs that make arrays.

use super::kernel;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::copy::fill;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Gradient, OpDef, ParamStruct, Tuple};
use crate::params;
use crate::shape::Shape;
use crate::with_dtype;

params! {
    /// Parameters of `_zeros` and `_ones`.
    pub struct InitParam {
        shape: Tuple, default(Tuple::new()), "The shape of the array.";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype.";
    }
}

params! {
    /// Parameters of `_full`.
    pub struct FullParam {
        shape: Tuple, default(Tuple::new()), "The shape of the array.";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype.";
        value: f64, required, "The value of every element.";
    }
}

params! {
    /// Parameters of `_arange`.
    pub struct RangeParam {
        start: f64, required, "The first number (the limit, if there is no `stop`).";
        stop: Option<f64>, default(None), "The limit.";
        step: f64, default(1.0), "The distance of neighbours.";
        repeat: i32, default(1).ge(1.0), "How often each number is repeated.";
        infer_range: bool, default(false), "Take the length from the expected shape.";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype.";
    }
}

params! {
    /// Parameters of `_contrib_arange_like`.
    pub struct ArangeLikeParam {
        start: f64, default(0.0), "First value.";
        step: f64, default(1.0), "Difference of neighbours.";
        repeat: i32, default(1).ge(1.0), "How often each value stands.";
        ctx: String, default(String::new()), "Accepted, without effect.";
        axis: Option<i32>, default(None), "Axis of the input that gives the length; None gives the \
                                           input's shape.";
    }
}

params! {
    /// Parameters of `_linspace`.
    pub struct LinspaceParam {
        start: f64, required, "The first number.";
        stop: f64, required, "The last number, or the limit.";
        num: i32, required.ge(0.0), "How many numbers.";
        endpoint: bool, default(true), "Is `stop` one of them?";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype.";
    }
}

params! {
    /// Parameters of `_eye`.
    #[allow(non_snake_case)] // the operator's parameter is called so
    pub struct EyeParam {
        N: i64, required.ge(0.0), "Number of rows.";
        M: i64, default(0).ge(0.0), "Number of columns; 0 means as many as rows.";
        k: i64, default(0), "The diagonal: above the main one if positive.";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype.";
    }
}

/// Number of elements of a range before repetition.
fn range_len(p: &RangeParam) -> Result<i64> {
    let (start, stop) = match p.stop {
        Some(stop) => (p.start, stop),
        None => (0.0, p.start),
    };
    if p.step == 0.0 || !(stop - start).is_finite() || p.step.is_nan() {
        let expected = format!("a number by which a range from {start} to {stop} ends");
        return Err(Error::invalid("step", p.step, expected));
    }
    let n = ((stop - start) / p.step).ceil();
    if n > 1e15 {
        let expected = format!("at most 1e15 elements from {start} to {stop}");
        return Err(Error::invalid("step", p.step, expected));
    }
    Ok(n.max(0.0) as i64)
}

/// An operator that makes an array of a shape and dtype given by its parameters.
fn source<P: ParamStruct>(
    name: &str,
    doc: &str,
    shape: impl Fn(&Attrs) -> Result<Shape> + Send + Sync + 'static,
    dtype: fn(&Attrs) -> DType,
    run: fn(&Call<'_>) -> Result<()>,
) -> OpDef {
    OpDef::new::<P>(name)
        .doc(doc)
        .inputs_are(&[])
        .infer_shape(move |attrs, _, outputs| {
            let shape = shape(attrs)?;
            assign_shape(&mut outputs[0], "output", &shape)?;
            Ok(outputs[0].is_known())
        })
        .infer_type(move |attrs, _, outputs| {
            assign_type(&mut outputs[0], "output", dtype(attrs))?;
            Ok(true)
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(run))
}

fn arange(call: &Call<'_>) -> Result<()> {
    let p = call.attrs.get::<RangeParam>();
    let start = if p.stop.is_some() || p.infer_range { p.start } else { 0.0 };
    steps(call, start, p.step, p.repeat as usize);
    Ok(())
}

fn linspace(call: &Call<'_>) -> Result<()> {
    let p = call.attrs.get::<LinspaceParam>();
    let parts = if p.endpoint { p.num - 1 } else { p.num };
    steps(call, p.start, (p.stop - p.start) / f64::from(parts.max(1)), 1);
    if p.endpoint && p.num > 1 {
        let (out, last) = (&call.outputs[0], p.num as usize - 1);
        // The last number is the limit itself, however the step was rounded.
        // SAFETY: inside of the output.
        with_dtype!(out.dtype(), T => unsafe { *out.as_ptr::<T>().add(last) = T::from_f64(p.stop) });
    }
    Ok(())
}

/// `start + (i / repeat) * step`.
fn steps(call: &Call<'_>, start: f64, step: f64, repeat: usize) {
    let out = &call.outputs[0];
    with_dtype!(out.dtype(), T => {
        let y = Shared(out.as_ptr::<T>());
        parallel_for(out.size(), 1 << 15, |r| for i in r {
            // SAFETY: inside of the output; tasks have elements of their own.
            unsafe { *y.at(i) = T::from_f64(start + (i / repeat) as f64 * step) };
        });
    });
}

fn eye(call: &Call<'_>) -> Result<()> {
    let (out, k) = (&call.outputs[0], call.attrs.get::<EyeParam>().k);
    fill(out, 0.0);
    let [rows, columns] = [out.dims()[0], out.dims()[1]];
    with_dtype!(out.dtype(), T => for i in 0..rows {
        let j = i.saturating_add(k);
        if (0..columns).contains(&j) {
            // SAFETY: inside of the output.
            unsafe { *out.as_ptr::<T>().add((i * columns + j) as usize) = T::from_f64(1.0) };
        }
    });
    Ok(())
}

fn filled_with(call: &Call<'_>, value: f64) -> Result<()> {
    fill(&call.outputs[0], value);
    Ok(())
}

pub fn operators() -> Vec<OpDef> {
    let filled = [("_zeros", "0", "zeros"), ("_ones", "1", "ones")].map(|(name, value, face)| {
        let run: fn(&Call<'_>) -> Result<()> = match value {
            "0" => |call| filled_with(call, 0.0),
            _ => |call| filled_with(call, 1.0),
        };
        source::<InitParam>(
            name,
            &format!(
                "Returns an array of {value} of the given shape and dtype.\n\nExamples\n--------\n\
                 >>> nd.{face}((3,), dtype='int32')\n[{value} {value} {value}]\n"
            ),
            |attrs| Ok(Shape::from_parameter(&attrs.get::<InitParam>().shape)),
            |attrs| attrs.get::<InitParam>().dtype,
            run,
        )
    });
    let full = source::<FullParam>(
        "_full",
        "Returns an array of the given shape and dtype whose elements all have one value.\n\n\
         Examples\n--------\n>>> nd.full((3,), 7)\n[7. 7. 7.]\n",
        |attrs| Ok(Shape::from_parameter(&attrs.get::<FullParam>().shape)),
        |attrs| attrs.get::<FullParam>().dtype,
        |call| filled_with(call, call.attrs.get::<FullParam>().value),
    )
    .aliases(&["_npi_full"]);
    let arange = source::<RangeParam>(
        "_arange",
        "Returns the numbers from `start` to `stop` (without it) at the distance `step`, each \
         `repeat` times.\n\nWith one limit only, from 0 to it. There are ceil((stop - start) / \
         step) numbers; a step of 0 is an error.\n\nExamples\n--------\n>>> nd.arange(0, 3, \
         step=0.5)\n[0.  0.5 1.  1.5 2.  2.5]\n",
        |attrs| {
            let p = attrs.get::<RangeParam>();
            match p.infer_range && p.stop.is_none() {
                true => Ok(Shape::of_rank(1)),
                false => Ok(Shape::new(&[range_len(p)? * p.repeat as i64])),
            }
        },
        |attrs| attrs.get::<RangeParam>().dtype,
        self::arange,
    );
    let eye = source::<EyeParam>(
        "_eye",
        "Returns a matrix with 1 on a diagonal and 0 elsewhere.\n\nExamples\n--------\n>>> \
         nd.eye(3, k=1)\n[[0. 1. 0.]\n [0. 0. 1.]\n [0. 0. 0.]]\n",
        |attrs| {
            let p = attrs.get::<EyeParam>();
            Ok(Shape::new(&[p.N, if p.M == 0 { p.N } else { p.M }]))
        },
        |attrs| attrs.get::<EyeParam>().dtype,
        self::eye,
    );
    let linspace = source::<LinspaceParam>(
        "_linspace",
        "Returns `num` numbers at equal distances from `start` to `stop`, which is the last of \
         them or, without `endpoint`, left out.\n\nExamples\n--------\n>>> nd.linspace(0, 1, 5)\n\
         [0.   0.25 0.5  0.75 1.  ]\n",
        |attrs| Ok(Shape::new(&[attrs.get::<LinspaceParam>().num.into()])),
        |attrs| attrs.get::<LinspaceParam>().dtype,
        self::linspace,
    )
    .aliases(&["_npi_linspace"]);
    let mut all = vec![full, arange, linspace, eye];
    all.extend(filled);
    all
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{run, values};

    #[test]
    fn ranges() {
        assert_eq!(values("_arange", &[("start", "3")], &[]), [0., 1., 2.]);
        assert_eq!(
            values(
                "_arange",
                &[("start", "1"), ("stop", "2"), ("step", "0.5"), ("repeat", "2")],
                &[]
            ),
            [1., 1., 1.5, 1.5]
        );
        assert!(
            run("_arange", &[("start", "1"), ("stop", "2"), ("step", "0")], &[], false).is_err()
        );
        assert_eq!(
            values("_eye", &[("N", "2"), ("M", "3"), ("k", "1")], &[]),
            [0., 1., 0., 0., 0., 1.]
        );
        assert_eq!(values("_full", &[("shape", "(2,)"), ("value", "2.5")], &[]), [2.5, 2.5]);
    }
}
