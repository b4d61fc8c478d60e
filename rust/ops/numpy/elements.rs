//! Element by element: questions about floats, bits of integers, rounding, and triangles.

use super::{kernel, only, shaped_by, spread, text};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::broadcast::broadcast_shape;
use crate::kernels::copy::{copy, fill};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{Call, Gradient, OpDef, Registry, Value};
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;
use crate::with_dtype;

params! {
    /// Parameters of the operators on bits with a number.
    pub struct BitsParam {
        scalar: f64, default(1.0), "The number, a whole one.";
        is_int: bool, default(true), "Was the number an integer?";
    }
}

params! {
    /// Parameters of `_npi_around`.
    pub struct AroundParam {
        decimals: i32, default(0), "How many decimals stay; negative ones are places before the \
                                    point.";
    }
}

params! {
    /// Parameters of `_npi_nan_to_num`.
    pub struct FiniteParam {
        copy: bool, default(true), "Accepted; the output is an array of its own.";
        nan: f64, default(0.0), "What replaces NaN.";
        posinf: Option<f64>, default(None), "What replaces infinity; None is the greatest finite \
                                             number.";
        neginf: Option<f64>, default(None), "What replaces minus infinity; None is the least \
                                             finite number.";
    }
}

params! {
    /// Parameters of `_npi_tril`.
    pub struct TrilParam {
        k: i32, default(0), "The last diagonal that stays: above the main one if positive.";
    }
}

/// `y = f(x)` in float64, element by element.
fn map(x: &View, y: &View, f: impl Fn(f64) -> f64 + Send + Sync) {
    with_dtype!(x.dtype(), T => with_dtype!(y.dtype(), U => {
        let (from, to) = (Shared(x.as_ptr::<T>()), Shared(y.as_ptr::<U>()));
        parallel_for(x.size(), 1 << 14, |range| for i in range {
            // SAFETY: both arrays hold the elements; tasks have elements of their own.
            unsafe { *to.at(i) = U::from_f64(f((*from.at(i)).to_f64())) };
        });
    }));
}

/// An operator of one dtype whose output does not change with small changes of the inputs: its
/// gradient is zero.
fn stepwise(def: OpDef, run: impl Fn(&Call<'_>) + Send + Sync + 'static) -> OpDef {
    def.infer_type(same_type).gradient(Gradient::Zero).kernel(kernel(move |call| {
        run(call);
        Ok(())
    }))
}

/// An operator whose output has the shape of its input.
fn same_shape(def: OpDef) -> OpDef {
    shaped_by(def, |_, from| Ok(from.clone()))
}

/// Questions about elements, answered by bool.
fn questions() -> Vec<OpDef> {
    let rows: [(&str, &str, &str, fn(f64) -> bool); 5] = [
        ("_npi_isnan", "not a number", "[ True False False]", |x| x.is_nan()),
        ("_npi_isinf", "infinite", "[False  True False]", |x| x.is_infinite()),
        ("_npi_isfinite", "a finite number", "[False False  True]", |x| x.is_finite()),
        ("_npi_isposinf", "infinity", "[False  True False]", |x| x == f64::INFINITY),
        ("_npi_isneginf", "minus infinity", "[False False False]", |x| x == f64::NEG_INFINITY),
    ];
    let questions = rows.map(|(name, what, shown, holds)| {
        let example = format!("{name}(nd.array([float('nan'), float('inf'), 1]))\n{shown}");
        let def = OpDef::plain(name)
            .doc(&text(
                &format!("Whether each element is {what}."),
                "Any dtype; the output is bool.",
                &example,
            ))
            .inputs_are(&[("x", "The array.")])
            .infer_type(|_, inputs, outputs| {
                outputs[0] = Some(DType::Bool);
                Ok(inputs[0].is_some())
            })
            .gradient(Gradient::Zero)
            .kernel(kernel(move |call| {
                map(&call.inputs[0], &call.outputs[0], |x| f64::from(u8::from(holds(x))));
                Ok(())
            }));
        same_shape(def)
    });
    questions.into()
}

#[derive(Clone, Copy)]
enum Bits {
    And,
    Or,
    Xor,
}

impl Bits {
    fn of(self, a: i64, b: i64) -> i64 {
        match self {
            Bits::And => a & b,
            Bits::Or => a | b,
            Bits::Xor => a ^ b,
        }
    }
}

/// Calls `f` with the elements of an array of integers or bool as int64, and writes what it
/// returns; `f` gets the element's place too.
pub(super) fn map_whole(to: &View, f: impl Fn(usize) -> i64) {
    macro_rules! write {
        ($($dtype:ident $ty:ty),*) => {
            match to.dtype() {
                $(DType::$dtype => for i in 0..to.size() {
                    // SAFETY: `i` is an element of the array.
                    unsafe { *to.as_ptr::<$ty>().add(i) = f(i) as $ty };
                })*
                DType::Bool => for i in 0..to.size() {
                    // SAFETY: as above.
                    unsafe { *to.as_ptr::<bool>().add(i) = f(i) & 1 != 0 };
                },
                _ => {}
            }
        };
    }
    write!(I8 i8, U8 u8, I32 i32, I64 i64);
}

/// The elements of an array of integers or bool, repeated to `shape`.
pub(super) fn wholes(view: &View, shape: &Shape) -> Vec<i64> {
    let mut values = vec![0i64; shape.size()];
    // SAFETY: the vector has an element for each of the shape.
    let to = unsafe { View::new(values.as_mut_ptr().cast(), shape.clone(), DType::I64) };
    spread(view, &to);
    values
}

const WHOLE: &str = "integers or bool";

fn whole(dtype: DType) -> bool {
    !dtype.is_float()
}

fn bits() -> Vec<OpDef> {
    let rows = [
        ("and", Bits::And, "both operands", "[2 2]"),
        ("or", Bits::Or, "either operand", "[3 6]"),
        ("xor", Bits::Xor, "one operand only", "[1 4]"),
    ];
    let mut all = Vec::new();
    for (name, how, what, shown) in rows {
        let (pair, number) =
            (format!("_npi_bitwise_{name}"), format!("_npi_bitwise_{name}_scalar"));
        let notes = "Integers or bool of one dtype.";
        let example = format!(
            "{pair}(nd.array([3, 6], dtype='int32'), nd.array([2], dtype='int32'))\n{shown}"
        );
        let def = OpDef::plain(&pair)
            .doc(&text(
                &format!("The bits that {what} have."),
                &format!("{notes} Shapes are broadcast."),
                &example,
            ))
            .inputs_are(&[("lhs", "The first array."), ("rhs", "The second.")])
            .infer_shape(|_, inputs, outputs| {
                let shape = broadcast_shape(&inputs[0], &inputs[1])?;
                assign_shape(&mut outputs[0], "output", &shape)?;
                Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
            });
        let def = stepwise(def, move |call| {
            let out = &call.outputs[0];
            let [a, b] = [0, 1].map(|i| wholes(&call.inputs[i], out.shape()));
            map_whole(out, |i| how.of(a[i], b[i]));
        });
        all.push(only(def, whole, WHOLE));
        let example = format!("{number}(nd.array([3, 6], dtype='int32'), scalar=2)\n{shown}");
        let def = OpDef::new::<BitsParam>(&number)
            .doc(&text(&format!("The bits that {what} have: array and number."), notes, &example))
            .inputs_are(&[("data", "The array.")]);
        let def = stepwise(def, move |call| {
            let (out, b) = (&call.outputs[0], call.attrs.get::<BitsParam>().scalar as i64);
            let a = wholes(&call.inputs[0], out.shape());
            map_whole(out, |i| how.of(a[i], b));
        });
        all.push(only(same_shape(def), whole, WHOLE));
    }
    let def = OpDef::plain("_npi_bitwise_not")
        .doc(&text(
            "The bits that the operand does not have.",
            "Integers or bool.",
            "_npi_bitwise_not(nd.array([0, 2], dtype='int32'))\n[-1 -3]",
        ))
        .inputs_are(&[("x", "The array.")]);
    let def = stepwise(def, |call| {
        let out = &call.outputs[0];
        let a = wholes(&call.inputs[0], out.shape());
        map_whole(out, |i| !a[i]);
    });
    all.push(only(same_shape(def), whole, WHOLE));
    all
}

/// The nearest number of so many decimals; of two equally near ones that with an even last digit.
fn around(x: f64, decimals: i32) -> f64 {
    let unit = 10f64.powi(decimals.saturating_abs());
    match decimals {
        0 => x.round_ties_even(),
        1.. => (x * unit).round_ties_even() / unit,
        _ => (x / unit).round_ties_even() * unit,
    }
}

fn rounded() -> OpDef {
    let def = OpDef::new::<AroundParam>("_npi_around")
        .doc(&text(
            "Each element rounded to a number of decimals.",
            "Halves become even. Any dtype; the gradient is zero.",
            "_npi_around(nd.array([0.5, 1.5, -1.25]), decimals=1)\n[ 0.5  1.5 -1.2]",
        ))
        .inputs_are(&[("x", "The array.")]);
    let def = stepwise(def, |call| {
        let decimals = call.attrs.get::<AroundParam>().decimals;
        let (x, out) = (&call.inputs[0], &call.outputs[0]);
        match x.dtype().is_float() || decimals < 0 {
            true => map(x, out, |x| around(x, decimals)),
            false => copy(x, out),
        }
    });
    same_shape(def)
}

/// The greatest finite number of a float dtype.
fn greatest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

fn finite() -> OpDef {
    let def = OpDef::new::<FiniteParam>("_npi_nan_to_num")
        .doc(&text(
            "The array with finite numbers in the places of NaN and infinities.",
            "Any dtype. The gradient is zero in those places.",
            "_npi_nan_to_num(nd.array([float('nan'), 1]), nan=3)\n[3. 1.]",
        ))
        .inputs_are(&[("data", "The array.")])
        .infer_type(same_type)
        .gradient(Gradient::rule(|builder, node| {
            let g = node.out_grad(builder, 0)?;
            let kept = builder.op("_npi_isfinite", "", &[], &[node.inputs[0]])?[0];
            let zero = [("scalar", Value::Float(0.0))];
            Ok(vec![Some(builder.op("_npi_where_rscalar", "", &zero, &[kept, g])?[0])])
        }))
        .kernel(kernel(|call| {
            let (x, out, p) = (&call.inputs[0], &call.outputs[0], call.attrs.get::<FiniteParam>());
            if !x.dtype().is_float() {
                copy(x, out);
                return Ok(());
            }
            let most = greatest(x.dtype());
            let (high, low) = (p.posinf.unwrap_or(most), p.neginf.unwrap_or(-most));
            map(x, out, |x| match x {
                x if x.is_nan() => p.nan,
                x if x == f64::INFINITY => high,
                x if x == f64::NEG_INFINITY => low,
                x => x,
            });
            Ok(())
        }));
    same_shape(def)
}

fn lower(call: &Call<'_>) -> Result<()> {
    let (x, out, k) = (&call.inputs[0], &call.outputs[0], call.attrs.get::<TrilParam>().k);
    copy(x, out);
    let rank = out.ndim();
    let (rows, columns) = (out.dims()[rank - 2], out.dims()[rank - 1]);
    let (size, width) = (out.dtype().size(), columns as usize);
    for row in 0..out.size().checked_div(width).unwrap_or(0) {
        let kept = (row as i64 % rows + i64::from(k) + 1).clamp(0, columns) as usize;
        // SAFETY: the rest of the row lies in the output.
        fill(
            &unsafe {
                View::flat(out.ptr().add((row * width + kept) * size), width - kept, out.dtype())
            },
            0.0,
        );
    }
    Ok(())
}

fn triangle() -> OpDef {
    let def = OpDef::new::<TrilParam>("_npi_tril")
        .doc(&text(
            "The lower triangle of matrices, in the last two axes: 0 above a diagonal.",
            "Any dtype.",
            "_npi_tril(nd.array([[1, 2], [3, 4]]))\n[[1. 0.]\n [3. 4.]]",
        ))
        .inputs_are(&[("data", "The array.")])
        .infer_type(same_type)
        .gradient(Gradient::rule_reading(&[], |builder, node| {
            let g = node.out_grad(builder, 0)?;
            let k = [("k", Value::Int(node.attrs.get::<TrilParam>().k.into()))];
            Ok(vec![Some(builder.op("_npi_tril", "", &k, &[g])?[0])])
        }))
        .kernel(kernel(lower));
    shaped_by(def, |_, from| match from.ndim() {
        0 | 1 => Err(Error::argument("data", "shape", from, "at least two axes")),
        _ => Ok(from.clone()),
    })
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    let mut all = questions();
    all.extend(bits());
    all.extend([rounded(), finite(), triangle()]);
    all
}
