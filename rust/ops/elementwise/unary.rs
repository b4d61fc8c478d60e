//! Operators on one array, element by element. A new one is a row of the table below.

use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::kernels::copy::convert_all;
use crate::kernels::map::{Function, GRAIN, map, map_function};
use crate::kernels::math;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::{Call, Dep, Gradient, InplacePair, Kernel, OpDef, OpReq};
use crate::ops::device::formula::{Formula, unary_kernels, unary_slope_kernel};
use crate::tensor::View;
use half::f16;

/// The value from which the derivative is calculated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum From {
    /// The derivative is zero everywhere.
    Nothing,
    Input,
    Output,
}

/// A loop over `N` operands and an output; of derivatives over the output gradient and what they
/// are calculated from.
type Loop<T, const N: usize> = fn([*const T; N], *mut T, usize);

/// A row: the function and its derivative in single and double precision.
pub struct UnaryRow {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// Formula and, after a line break, remarks.
    pub doc: &'static str,
    f32: Loop<f32, 1>,
    f64: Loop<f64, 1>,
    pub from: From,
    d32: Loop<f32, 2>,
    d64: Loop<f64, 2>,
    /// Points at which the function is smooth, for tests.
    pub samples: &'static [f64],
    /// The function of whole numbers, where it is one: exact for all, and wrapping as integers do.
    whole: Option<fn(i64) -> i64>,
    /// The text of value, derivative and function of whole numbers, for devices.
    formulas: [Option<Formula>; 3],
}

macro_rules! whole {
    () => {
        None
    };
    (|$x:ident| $f:expr) => {
        Some(|$x: i64| -> i64 { $f })
    };
}

macro_rules! formula {
    () => {
        None
    };
    (|$x:ident| $f:expr) => {
        Some(Formula { operands: &[stringify!($x)], text: stringify!($f) })
    };
}

/// Defines `Single`, the function of a formula of `$n` operands in single precision, which may be
/// calculated again by the functions of another module.
macro_rules! single {
    ($n:literal $operands:tt $f:expr $(, again in $module:ident)?) => {
        struct Single;
        #[allow(unused_imports, unused_variables)] // not every formula needs all
        impl Function<f32, $n> for Single {
            #[inline(always)]
            fn of<const FUSED: bool>(&self, $operands: [f32; $n]) -> f32 {
                if FUSED {
                    use math::single::fused::*;
                    $f
                } else {
                    use math::single::plain::*;
                    $f
                }
            }
            $(
                const AGAIN: bool = true;

                fn again(&self, x: [f32; $n]) -> f32 {
                    use math::$module::*;
                    let $operands = x;
                    $f
                }
            )?
        }
    };
}

macro_rules! table {
    ($($name:ident $aliases:tt, $doc:literal,
        |$x:ident| $f:expr, $from:ident |$v:ident| $d:expr, $samples:expr $(, whole |$w:ident| $whole:expr)? $(, again in $module:ident)?;)*) => {
        /// All rows.
        pub const TABLE: &[UnaryRow] = &[$(UnaryRow {
            name: stringify!($name),
            aliases: &$aliases,
            doc: $doc,
            f32: |x, y, n| {
                single!(1 [$x] $f $(, again in $module)?);
                // SAFETY: the kernel below passes views of `n` elements.
                unsafe { map_function(x, y, n, Single) }
            },
            f64: |x, y, n| {
                #[allow(unused_imports)] // not every formula needs one
                use math::double::*;
                // SAFETY: as above.
                unsafe { map(x, y, n, |[$x]: [f64; 1]| -> f64 { $f }) }
            },
            from: From::$from,
            d32: |g_and_v, y, n| {
                single!(2 [g, $v] g * ($d) $(, again in $module)?);
                // SAFETY: as above.
                unsafe { map_function(g_and_v, y, n, Single) }
            },
            d64: |g_and_v, y, n| {
                #[allow(unused_imports)] // as above
                use math::double::*;
                // SAFETY: as above.
                unsafe { map(g_and_v, y, n, |[g, $v]: [f64; 2]| -> f64 { g * ($d) }) }
            },
            samples: &$samples,
            whole: whole!($(|$w| $whole)?),
            formulas: [
                formula!(|$x| $f),
                formula!(|$v| $d),
                formula!($(|$w| $whole)?),
            ],
        }),*];
    };
}

const ANY: [f64; 5] = [-1.7, -0.6, 0.3, 0.9, 2.2];
const POSITIVE: [f64; 4] = [0.2, 0.7, 1.4, 3.1];
const INSIDE: [f64; 4] = [-0.8, -0.3, 0.2, 0.7];

// In the formulas `num(c)` is a constant of the row's precision; functions come from
// `kernels::math`. Devices compile their text as C++, with the same functions from `formulas.cuh`:
// it keeps to expressions that both languages have (`select`, no `if`).
table! {
    relu ["_npx_relu", "_sparse_relu"], "max(x, 0)\nThe gradient at 0 is 0, at nan nan.",
        |x| select(x < num(0.), num(0.), x), Output |y| select(y > num(0.), num(1.), y), ANY, whole |x| x.max(0);
    sigmoid ["_npx_sigmoid", "_sparse_sigmoid"], "1 / (1 + exp(-x))",
        |x| sigmoid(x), Output |y| y * (num(1.) - y), ANY;
    softsign [], "x / (1 + abs(x))",
        |x| x / (num(1.) + x.abs()), Input |x| num(1.) / ((num(1.) + x.abs()) * (num(1.) + x.abs())), ANY;
    tanh ["_npi_tanh", "_sparse_tanh"], "(exp(x) - exp(-x)) / (exp(x) + exp(-x))",
        |x| tanh(x), Output |y| num(1.) - y * y, ANY;
    exp ["_npi_exp", "_sparse_exp"], "exp(x)", |x| exp(x), Output |y| y, ANY;
    expm1 ["_npi_expm1", "_sparse_expm1"], "exp(x) - 1\nExact for small x.", |x| expm1(x), Output |y| y + num(1.), ANY;
    log ["_npi_log", "_sparse_log"], "log(x), natural\nlog(0) is -inf, of negative numbers nan.",
        |x| log(x), Input |x| num(1.) / x, POSITIVE;
    log2 ["_npi_log2", "_sparse_log2"], "log(x) / log(2)", |x| log2(x), Input |x| num(std::f64::consts::LOG2_E) / x, POSITIVE;
    log10 ["_npi_log10", "_sparse_log10"], "log(x) / log(10)", |x| log10(x), Input |x| num(std::f64::consts::LOG10_E) / x, POSITIVE;
    log1p ["_npi_log1p", "_sparse_log1p"], "log(1 + x)\nExact for small x.", |x| log1p(x), Input |x| num(1.) / (num(1.) + x), POSITIVE;
    sqrt ["_npi_sqrt", "_sparse_sqrt"], "sqrt(x)\nThe gradient at 0 is inf.", |x| x.sqrt(), Output |y| num(0.5) / y, POSITIVE;
    rsqrt ["_sparse_rsqrt"], "1 / sqrt(x)", |x| num(1.) / x.sqrt(), Input |x| num(-0.5) / (x * x.sqrt()), POSITIVE;
    cbrt ["_npi_cbrt", "_sparse_cbrt"], "cubic root of x\nNegative numbers are allowed.", |x| x.cbrt(), Output |y| num(1.) / (num(3.) * y * y), ANY;
    rcbrt ["_sparse_rcbrt"], "1 / cubic root of x", |x| num(1.) / x.cbrt(), Input |x| num(-1. / 3.) / (x * x.cbrt()), ANY;
    square ["_npi_square", "_sparse_square"], "x * x", |x| x * x, Input |x| x + x, ANY, whole |x| x.wrapping_mul(x);
    reciprocal ["_npi_reciprocal"], "1 / x", |x| num(1.) / x, Input |x| -num(1.) / (x * x), ANY;
    negative ["_npi_negative", "_sparse_negative"], "-x", |x| -x, Input |_x| num(-1.), ANY, whole |x| x.wrapping_neg();
    abs ["_npi_absolute", "_npi_abs", "_sparse_abs"], "abs(x)\nThe gradient at 0 is 0.", |x| x.abs(), Input |x| sign(x), ANY, whole |x| x.wrapping_abs();
    sign ["_npi_sign", "_sparse_sign"], "-1, 0 or 1 by the sign of x", |x| sign(x), Nothing |_x| num(0.), ANY, whole |x| x.signum();
    round ["_sparse_round"], "the nearest integer, halves away from 0", |x| x.round(), Nothing |_x| num(0.), ANY, whole |x| x;
    rint ["_npi_rint", "_sparse_rint"], "the nearest integer, halves toward minus infinity",
        |x| select(x - x.floor() > num(0.5), x.floor() + num(1.), x.floor()), Nothing |_x| num(0.), ANY, whole |x| x;
    ceil ["_npi_ceil", "_sparse_ceil"], "the least integer not below x", |x| x.ceil(), Nothing |_x| num(0.), ANY, whole |x| x;
    floor ["_npi_floor", "_sparse_floor"], "the greatest integer not above x", |x| x.floor(), Nothing |_x| num(0.), ANY, whole |x| x;
    trunc ["_npi_trunc", "_sparse_trunc"], "x without its fraction", |x| x.trunc(), Nothing |_x| num(0.), ANY, whole |x| x;
    fix ["_npi_fix", "_sparse_fix"], "the nearest integer toward 0", |x| x.trunc(), Nothing |_x| num(0.), ANY, whole |x| x;
    sin ["_npi_sin", "_sparse_sin"], "sin(x), x in radians", |x| sin(x), Input |x| cos(x), ANY, again in system;
    cos ["_npi_cos", "_sparse_cos"], "cos(x), x in radians", |x| cos(x), Input |x| -sin(x), ANY, again in system;
    tan ["_npi_tan", "_sparse_tan"], "tan(x), x in radians", |x| tan(x), Output |y| num(1.) + y * y, INSIDE, again in system;
    arcsin ["_npi_arcsin", "_sparse_arcsin"], "the angle in [-pi/2, pi/2] whose sine is x\nnan \
                                               outside of [-1, 1].",
        |x| asin(x), Input |x| num(1.) / ((num(1.) - x) * (num(1.) + x)).sqrt(), INSIDE;
    arccos ["_npi_arccos", "_sparse_arccos"], "the angle in [0, pi] whose cosine is x\nnan outside \
                                               of [-1, 1].",
        |x| acos(x), Input |x| -num(1.) / ((num(1.) - x) * (num(1.) + x)).sqrt(), INSIDE;
    arctan ["_npi_arctan", "_sparse_arctan"], "the angle in [-pi/2, pi/2] whose tangent is x",
        |x| atan(x), Input |x| num(1.) / (num(1.) + x * x), ANY;
    sinh ["_npi_sinh", "_sparse_sinh"], "(exp(x) - exp(-x)) / 2", |x| sinh(x), Input |x| cosh(x), ANY;
    cosh ["_npi_cosh", "_sparse_cosh"], "(exp(x) + exp(-x)) / 2", |x| cosh(x), Input |x| sinh(x), ANY;
    arcsinh ["_npi_arcsinh", "_sparse_arcsinh"], "the number whose sinh is x", |x| asinh(x), Input |x| num(1.) / x.hypot(num(1.)), ANY;
    arccosh ["_npi_arccosh", "_sparse_arccosh"], "the number whose cosh is x\nnan below \
                                                  1.", |x| acosh(x), Input |x| num(1.) / ((x - num(1.)).sqrt() * (x + num(1.)).sqrt()), [1.2, 1.9, 3.3];
    arctanh ["_npi_arctanh", "_sparse_arctanh"], "the number whose tanh is x\nnan outside of [-1, \
                                                  1].",
        |x| atanh(x), Input |x| num(1.) / ((num(1.) - x) * (num(1.) + x)), INSIDE;
    degrees ["_npi_degrees", "_sparse_degrees"], "x * 180 / pi", |x| x * num(180. / std::f64::consts::PI), Input |_x| num(180. / std::f64::consts::PI), ANY;
    radians ["_npi_radians", "_sparse_radians"], "x * pi / 180", |x| x * num(std::f64::consts::PI / 180.), Input |_x| num(std::f64::consts::PI / 180.), ANY;
    gamma ["_npx_gamma", "_sparse_gamma"], "the gamma function of x\nExact for the factorials; inf \
                                            at 0, nan at negative integers.", |x| gamma(x), Input |x| gamma(x) * digamma(x), POSITIVE;
    gammaln ["_npx_gammaln", "_sparse_gammaln"], "log(abs(gamma(x)))\ninf at 0 and negative \
                                                  integers.", |x| gammaln(x), Input |x| digamma(x), POSITIVE;
    erf ["_npx_erf"], "2 / sqrt(pi) * integral of exp(-t * t) for t from 0 to x",
        |x| erf(x), Input |x| num(std::f64::consts::FRAC_2_SQRT_PI) * exp(-x * x), ANY;
    erfinv ["_npx_erfinv"], "the number whose erf is x\nnan outside of [-1, 1].",
        |x| erfinv(x), Output |y| num(1. / std::f64::consts::FRAC_2_SQRT_PI) * exp(y * y), INSIDE;
    logical_not ["_npi_logical_not"], "1 where x is 0, else 0", |x| select(x == num(0.), num(1.), num(0.)), Nothing |_x| num(0.), ANY, whole |x| i64::from(x == 0);
}

/// The formulas of a row for devices.
pub fn formulas(name: &str) -> [Option<Formula>; 3] {
    TABLE.iter().find(|row| row.name == name).map_or([None; 3], |row| row.formulas)
}

/// Runs a row's loop, other dtypes through the precision that holds them.
fn forward(row: &UnaryRow, call: &Call<'_>) {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let n = y.size();
    if let Some(whole) = row.whole
        && !x.dtype().is_float()
    {
        return crate::with_dtype!(x.dtype(), T => {
            let f = |[x]: [T; 1]| T::from_int(whole(x.to_int()));
            // SAFETY: views of `n` elements.
            unsafe { map([x.as_ptr::<T>().cast_const()], y.as_ptr::<T>(), n, f) }
        });
    }
    let (x, y) = ([x], y);
    match x[0].dtype() {
        DType::F32 => (row.f32)(pointers(x), y.as_ptr(), n),
        DType::F64 => (row.f64)(pointers(x), y.as_ptr(), n),
        DType::F16 => via::<f16, _, _>(x, y, row.f32),
        dtype => crate::with_dtype!(dtype, T => via::<T, _, _>(x, y, row.f64)),
    }
}

fn pointers<T: Element, const N: usize>(views: [&View; N]) -> [*const T; N] {
    views.map(|v| v.as_ptr::<T>().cast_const())
}

/// Calculates in `C`, block by block.
fn via<T: Element, C: Element, const N: usize>(from: [&View; N], to: &View, run: Loop<C, N>) {
    const BLOCK: usize = 1024;
    let n = to.size();
    let from = from.map(|v| Shared(v.as_ptr::<T>()));
    let to = Shared(to.as_ptr::<T>());
    parallel_for(n, GRAIN, |range| {
        let mut blocks = [[C::default(); BLOCK]; N];
        for start in range.clone().step_by(BLOCK) {
            let len = BLOCK.min(range.end - start);
            // SAFETY: the kernel passes views of as many elements as the output has.
            unsafe {
                for (block, from) in blocks.iter_mut().zip(&from) {
                    convert_all(from.at(start), block.as_mut_ptr(), len);
                }
                let out = blocks[0].as_mut_ptr();
                run(blocks.each_ref().map(|b| b.as_ptr()), out, len);
                convert_all(out, to.at(start), len);
            }
        }
    });
}

fn backward(row: &UnaryRow, call: &Call<'_>) {
    let (from, y) = ([&call.inputs[0], &call.inputs[1]], &call.outputs[0]);
    match y.dtype() {
        DType::F32 => (row.d32)(pointers(from), y.as_ptr(), y.size()),
        DType::F64 => (row.d64)(pointers(from), y.as_ptr(), y.size()),
        DType::F16 => via::<f16, _, _>(from, y, row.d32),
        dtype => crate::with_dtype!(dtype, T => via::<T, _, _>(from, y, row.d64)),
    }
}

fn doc(row: &UnaryRow) -> String {
    let (formula, remarks) = row.doc.split_once('\n').unwrap_or((row.doc, ""));
    let gradient = match row.from {
        From::Nothing => "The gradient is 0.",
        From::Input => "The gradient is calculated from the input.",
        From::Output => "The gradient is calculated from the output.",
    };
    let samples: Vec<f32> = row.samples.iter().map(|x| *x as f32).collect();
    let mut values = vec![0f32; samples.len()];
    (row.f32)([samples.as_ptr()], values.as_mut_ptr(), samples.len());
    let integers = match row.whole {
        Some(_) => "integers are exact and wrap",
        None => "integers calculate in float64, whose results are truncated",
    };
    format!(
        "Returns, element by element: {formula}.\n\nShape and dtype of the output are those of the \
         input; any dtype is allowed, float16 calculates in float32, {integers}. {remarks} \
         {gradient}\n\nExamples\n--------\n>>> nd.{}(nd.array([{}]))\n[{}]\n",
        row.name,
        row.samples.iter().map(|x| x.to_string()).collect::<Vec<_>>().join(", "),
        values.iter().map(|y| y.to_string()).collect::<Vec<_>>().join(" ")
    )
}

pub fn operators() -> Vec<OpDef> {
    let mut all = Vec::new();
    for row in TABLE {
        let back = format!("_backward_{}", row.name);
        let gradient = match row.from {
            From::Nothing => Gradient::Zero,
            From::Input => {
                Gradient::declared(&back, |_, _, _| vec![Dep::OutGrad(0), Dep::Input(0)])
            }
            From::Output => {
                Gradient::declared(&back, |_, _, _| vec![Dep::OutGrad(0), Dep::Output(0)])
            }
        };
        all.push(
            OpDef::plain(row.name)
                .aliases(row.aliases)
                .doc(&doc(row))
                .inputs_are(&[("data", "The input array.")])
                .elementwise()
                .inplace(&[InplacePair::new(0, 0)])
                .gradient(gradient)
                .kernel(Kernel::cpu(|call| run(call, |call| forward(row, call))).skips_null())
                .kernels(unary_kernels(row.name, "data", &row.formulas)),
        );
        if row.from != From::Nothing {
            all.push(
                OpDef::plain(&back)
                    .inputs_are(&[("ograd", "Output gradient."), ("value", "Input or output.")])
                    .pointwise()
                    .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
                    .kernel(Kernel::cpu(|call| run(call, |call| backward(row, call))).skips_null())
                    .kernels([unary_slope_kernel(row.name, "value", &row.formulas)]),
            );
        }
    }
    all
}

fn run(call: &Call<'_>, f: impl Fn(&Call<'_>)) -> Result<()> {
    if call.req[0] != OpReq::Null {
        f(call);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Tensor, check_gradient, check_half, values};

    #[test]
    fn gradients_match_numeric_differentiation() {
        for row in TABLE {
            let x = Tensor::of(&[row.samples.len() as i64], row.samples);
            check_gradient(row.name, &[], &[x.clone()], &[0], true);
            check_half(row.name, &[], &[x], true);
        }
    }

    #[test]
    fn every_dtype_agrees_with_double_precision() {
        for row in TABLE {
            let x = Tensor::of(&[2, 2], &[1.0, 2.0, 3.0, 1.0]);
            let want = values(row.name, &[], &[x.clone()]);
            for dtype in [DType::F32, DType::I32, DType::I64, DType::U8, DType::I8] {
                let got = values(row.name, &[], &[x.cast(dtype)]);
                for (g, w) in got.iter().zip(&want) {
                    let w = if dtype.is_float() || w.is_nan() { *w } else { w.trunc() };
                    if w.is_finite() && (0.0..100.0).contains(&w) {
                        assert!(
                            (g - w).abs() <= 2e-6 * w.abs().max(1.0),
                            "{} {dtype}: {g} {w}",
                            row.name
                        );
                    }
                }
            }
        }
    }

    /// Where the vectors end, the functions of the system go on.
    #[test]
    fn angles_of_any_size_have_their_functions() {
        let angles: Vec<f64> = (0..200).map(|i| 0.7 * 1.6f64.powi(i)).chain([-3e9, 1e38]).collect();
        let angles: Vec<f64> =
            angles.iter().map(|x| f64::from(*x as f32)).filter(|x| x.is_finite()).collect();
        let x = Tensor::of(&[angles.len() as i64], &angles);
        for name in ["sin", "cos", "tan"] {
            let (got, want) =
                (values(name, &[], &[x.cast(DType::F32)]), values(name, &[], &[x.clone()]));
            for ((x, got), want) in angles.iter().zip(got).zip(want) {
                assert!((got - want).abs() <= 1.2e-7 * want.abs(), "{name}({x}): {got} for {want}");
            }
        }
        let infinite = Tensor::of(&[2], &[f64::INFINITY, f64::NAN]).cast(DType::F32);
        assert!(values("sin", &[], &[infinite]).iter().all(|y| y.is_nan()));
    }

    #[test]
    fn halves_round_as_documented() {
        let x = Tensor::of(&[5], &[0.5, -0.5, 1.5, 2.5, -2.5]);
        assert_eq!(values("rint", &[], &[x.clone()]), [0.0, -1.0, 1.0, 2.0, -3.0]);
        assert_eq!(values("round", &[], &[x]), [1.0, -1.0, 2.0, 3.0, -3.0]);
    }
}
