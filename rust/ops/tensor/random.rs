//! Random arrays. Every element is a pure function of the seed, the call and its own position (see
//! `kernels::philox`), so results depend neither on threads nor on scheduling.

use super::distributions::distribution::{Distribution, Setting, settings};
use super::kernel;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::kernels::normal::normal_pair;
use crate::kernels::philox::{fill, unit};
use crate::kernels::random::Span;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Attrs, Call, Gradient, OpDef, ParamStruct, ResourceRequest, Tuple};
use crate::shape::{Shape, is_np_shape};
use crate::{param_enum, params, with_dtype};

param_enum! {
    /// Dtype of random numbers.
    pub enum RandomType {
        Default = "None", F16 = "float16", F32 = "float32", F64 = "float64",
    }
}

impl RandomType {
    fn dtype(self) -> DType {
        match self {
            RandomType::F16 => DType::F16,
            RandomType::F64 => DType::F64,
            RandomType::Default | RandomType::F32 => DType::F32,
        }
    }
}

params! {
    /// Parameters of `_random_uniform`.
    pub struct UniformParam {
        low: f32, default(0.0), "Lower limit, included.";
        high: f32, default(1.0), "Upper limit, excluded.";
        shape: Option<Tuple>, default(None), "The shape of the array; by default (1,).";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: Option<RandomType>, default(None), "The dtype; by default float32.";
    }
}

params! {
    /// Parameters of `_random_normal`.
    pub struct NormalParam {
        loc: f32, default(0.0), "Mean.";
        scale: f32, default(1.0), "Standard deviation.";
        shape: Option<Tuple>, default(None), "The shape of the array; by default (1,).";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: Option<RandomType>, default(None), "The dtype; by default float32.";
    }
}

params! {
    /// Parameters of `_random_randint`.
    pub struct RandintParam {
        low: i64, required, "Lower limit, included.";
        high: i64, required, "Upper limit, excluded.";
        shape: Option<Tuple>, default(None), "The shape of the array; by default (1,).";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: Option<DType>, default(None), "int32 or int64; by default int32.";
    }
}

/// Without a shape that of the output, or one element.
fn shape_of(shape: &Option<Tuple>, output: &Shape) -> Shape {
    match shape {
        Some(s) if is_np_shape() || !s.is_empty() => Shape::from_parameter(s),
        _ if output.rank_known() => output.clone(),
        _ => Shape::new(&[1]),
    }
}

settings! {
    UniformParam: Uniform(low, high);
    NormalParam: Normal(loc, scale);
}

fn uniform(call: &Call<'_>) -> Result<()> {
    let p = call.attrs.get::<UniformParam>();
    let [low, high] = p.checked()?;
    let out = &call.outputs[0];
    let span = Span::new(out.dtype(), low, high);
    with_dtype!(out.dtype(), T => {
        let make = |[word]: [u32; 1]| [T::from_f64(span.at(unit(word).into()))];
        // SAFETY: the output is the call's to write.
        unsafe { fill(call.ctx.random.words(), out.as_ptr(), out.size(), make) }
    });
    Ok(())
}

fn normal(call: &Call<'_>) -> Result<()> {
    let p = call.attrs.get::<NormalParam>();
    let [loc, scale] = p.checked()?;
    let out = &call.outputs[0];
    with_dtype!(out.dtype(), T => {
        let make = |[a, b]: [u32; 2]| {
            let [first, second] = normal_pair(unit(a).into(), unit(b).into());
            [T::from_f64(loc + scale * first), T::from_f64(loc + scale * second)]
        };
        // SAFETY: the output is the call's to write.
        unsafe { fill(call.ctx.random.words(), out.as_ptr(), out.size(), make) }
    });
    Ok(())
}

fn randint(call: &Call<'_>) -> Result<()> {
    let p = call.attrs.get::<RandintParam>();
    let span = (p.high as i128 - p.low as i128) as u128;
    let out = &call.outputs[0];
    with_dtype!(out.dtype(), T => {
        let make = |[low, high, ..]: [u32; 4]| {
            let word = u128::from(u64::from(low) | u64::from(high) << 32);
            // The product's upper half is uniform below `span` to within 2^-64.
            // Offsets above i64::MAX wrap, and so does the sum, back into the range.
            [T::from_int(p.low.wrapping_add(((word * span) >> 64) as i64))]
        };
        // SAFETY: the output is the call's to write.
        unsafe { fill(call.ctx.random.words(), out.as_ptr(), out.size(), make) }
    });
    Ok(())
}

/// An error if an integer of the range is none of int32.
fn fit_int32(p: &RandintParam) -> Result<()> {
    let least = i64::from(i32::MIN);
    let past = i64::from(i32::MAX) + 1;
    let refuse = |name, value| {
        let expected = format!("{least} to {past} with dtype int32 (or dtype int64)");
        Err(crate::error::Error::argument(name, "value", value, expected))
    };
    match (p.low, p.high) {
        (low, _) if low < least => refuse("low", low),
        (_, high) if high > past => refuse("high", high),
        _ => Ok(()),
    }
}

fn sampler<P: ParamStruct>(
    name: &str,
    aliases: &[&str],
    doc: &str,
    shape: fn(&Attrs) -> &Option<Tuple>,
    dtype: fn(&Attrs) -> Result<DType>,
    run: fn(&Call<'_>) -> Result<()>,
) -> OpDef {
    OpDef::new::<P>(name)
        .aliases(aliases)
        .doc(doc)
        .inputs_are(&[])
        .infer_shape(move |attrs, _, outputs| {
            let shape = shape_of(shape(attrs), &outputs[0]);
            assign_shape(&mut outputs[0], "output", &shape)?;
            Ok(outputs[0].is_known())
        })
        .infer_type(move |attrs, _, outputs| {
            assign_type(&mut outputs[0], "output", dtype(attrs)?)?;
            Ok(true)
        })
        .resources(&[ResourceRequest::Random])
        .gradient(Gradient::Zero)
        .kernel(kernel(run))
}

pub fn operators() -> Vec<OpDef> {
    vec![
        sampler::<UniformParam>(
            "_random_uniform",
            &["random_uniform", "uniform"],
            "Draws numbers from the uniform distribution on [low, high).\n\nfloat16, float32 or \
             float64. The same seed gives the same numbers, on any number of threads.\n\nExamples\n\
             --------\n>>> nd.random.uniform(-1, 1, shape=(2, 3)).shape\n(2, 3)\n",
            |attrs| &attrs.get::<UniformParam>().shape,
            |attrs| Ok(attrs.get::<UniformParam>().dtype.map_or(DType::F32, RandomType::dtype)),
            uniform,
        ),
        sampler::<NormalParam>(
            "_random_normal",
            &["random_normal", "normal"],
            "Draws numbers from the normal distribution of mean `loc` and standard deviation \
             `scale`.\n\nfloat16, float32 or float64. The same seed gives the same numbers, on any \
             number of threads.\n\nExamples\n--------\n>>> nd.random.normal(0, 2, shape=(2, \
             3)).shape\n(2, 3)\n",
            |attrs| &attrs.get::<NormalParam>().shape,
            |attrs| Ok(attrs.get::<NormalParam>().dtype.map_or(DType::F32, RandomType::dtype)),
            normal,
        ),
        sampler::<RandintParam>(
            "_random_randint",
            &["random_randint", "_npi_random_randint"],
            "Draws integers from low (included) to high (excluded), all equally likely.\n\nint32 \
             (default) or int64; `high` must be above `low`.\n\nExamples\n--------\n>>> \
             nd.random.randint(0, 10, shape=(2, 3)).shape\n(2, 3)\n",
            |attrs| &attrs.get::<RandintParam>().shape,
            |attrs| {
                let p = attrs.get::<RandintParam>();
                if p.high <= p.low {
                    return Err(crate::error::Error::argument(
                        "high",
                        "value",
                        p.high,
                        format!("more than low, {}", p.low),
                    ));
                }
                match p.dtype.unwrap_or(DType::I32) {
                    DType::I32 => fit_int32(p).map(|()| DType::I32),
                    DType::I64 => Ok(DType::I64),
                    d => Err(crate::error::Error::argument("dtype", "value", d, "int32 or int64")),
                }
            },
            randint,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::values;

    #[test]
    fn moments_and_limits() {
        let n = 40_000.0;
        let mean = |x: &[f64]| x.iter().sum::<f64>() / n;
        let u =
            values("_random_uniform", &[("low", "-1"), ("high", "3"), ("shape", "(40000,)")], &[]);
        assert!(u.iter().all(|x| (-1.0..3.0).contains(x)));
        assert!((mean(&u) - 1.0).abs() < 0.03);
        let z =
            values("_random_normal", &[("loc", "2"), ("scale", "3"), ("shape", "(40000,)")], &[]);
        let m = mean(&z);
        let var = z.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / n;
        assert!((m - 2.0).abs() < 0.06 && (var - 9.0).abs() < 0.3, "{m} {var}");
        let k =
            values("_random_randint", &[("low", "-2"), ("high", "2"), ("shape", "(40000,)")], &[]);
        for v in -2..2 {
            let share = k.iter().filter(|x| **x == v as f64).count() as f64 / n;
            assert!((share - 0.25).abs() < 0.01);
        }
    }
}
