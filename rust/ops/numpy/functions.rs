//! Functions of two operands that are calculated in float64, or of integers in int64; differences
//! along an axis, and polynomials.

use super::statistics::{numbers, store};
use super::{kernel, only, only_floats, room, shaped_by, spread, text, zeros};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::broadcast::broadcast_shape;
use crate::kernels::copy::{Buffer, copy};
use crate::kernels::reduce::{Reduction, reduce_to};
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq, Registry};
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;

params! {
    /// Parameters of the operators with a number.
    pub struct NumberParam {
        scalar: f64, default(1.0), "The number.";
        is_int: bool, default(true), "Was the number an integer?";
    }
}

params! {
    /// Parameters of `_npi_diff`.
    pub struct DiffParam {
        n: i32, default(1).ge(0.0), "How often differences are taken.";
        axis: i32, default(-1), "The axis.";
    }
}

params! {
    /// Parameters of `_npi_ediff1d`.
    pub struct EdgesParam {
        to_begin_arr_given: bool, default(false), "Is there an array to begin with?";
        to_end_arr_given: bool, default(false), "Is there an array to end with?";
        to_begin_scalar: Option<f64>, default(None), "A number to begin with.";
        to_end_scalar: Option<f64>, default(None), "A number to end with.";
    }
}

/// A function with its slopes.
struct FunctionRow {
    name: &'static str,
    inputs: [&'static str; 2],
    formula: &'static str,
    /// What the examples give: of [2, -8] and [1, 4], and of the number 2.
    shown: [&'static str; 3],
    floats_only: bool,
    value: fn(f64, f64) -> f64,
    slopes: [fn(f64, f64) -> f64; 2],
}

static ROWS: [FunctionRow; 3] = [
    FunctionRow {
        name: "arctan2",
        inputs: ["x1", "x2"],
        formula: "the angle of the point (b, a), from -pi to pi",
        shown: ["[ 1.1071488 -1.1071488]", "[ 0.7853982 -1.3258177]", "[0.7853982 2.896614 ]"],
        floats_only: true,
        value: f64::atan2,
        slopes: [|a, b| b / (a * a + b * b), |a, b| -a / (a * a + b * b)],
    },
    FunctionRow {
        name: "copysign",
        inputs: ["lhs", "rhs"],
        formula: "|a| with the sign of b",
        shown: ["[2. 8.]", "[2. 8.]", "[ 2. -2.]"],
        floats_only: false,
        value: f64::copysign,
        slopes: [|a, b| 1f64.copysign(a) * 1f64.copysign(b), |_, _| 0.0],
    },
    FunctionRow {
        name: "ldexp",
        inputs: ["lhs", "rhs"],
        formula: "a times 2 to the power b",
        shown: ["[   4. -128.]", "[  8. -32.]", "[8.0000000e+00 7.8125000e-03]"],
        floats_only: false,
        value: |a, b| a * b.exp2(),
        slopes: [|_, b| b.exp2(), |a, b| a * b.exp2() * std::f64::consts::LN_2],
    },
];

/// The operands of a call, repeated to a shape. A number is to the right or, if `left`, to the
/// left.
fn operands(call: &Call<'_>, skip: usize, of: &Shape, left: Option<bool>) -> [Vec<f64>; 2] {
    let repeated = |view: &View| {
        let mut values = vec![0.0f64; of.size()];
        // SAFETY: the vector has an element for each of the shape.
        let to = unsafe { View::new(values.as_mut_ptr().cast(), of.clone(), DType::F64) };
        spread(view, &to);
        values
    };
    let first = repeated(&call.inputs[skip]);
    let Some(left) = left else { return [first, repeated(&call.inputs[skip + 1])] };
    let number = vec![call.attrs.get::<NumberParam>().scalar; of.size()];
    if left { [number, first] } else { [first, number] }
}

fn forward(row: &FunctionRow, call: &Call<'_>, left: Option<bool>) -> Result<()> {
    let [a, b] = operands(call, 0, call.outputs[0].shape(), left);
    let values: Vec<f64> = a.iter().zip(&b).map(|(a, b)| (row.value)(*a, *b)).collect();
    store(call, 0, &values);
    Ok(())
}

fn backward(row: &FunctionRow, call: &Call<'_>, left: Option<bool>) -> Result<()> {
    let shape = call.inputs[0].shape();
    let (g, [a, b]) = (numbers(&call.inputs[0])?, operands(call, 1, shape, left));
    for (i, out) in call.outputs.iter().enumerate() {
        if call.req[i] == OpReq::Null {
            continue;
        }
        let slope = row.slopes[if left == Some(true) { 1 } else { i }];
        let mut room = Buffer::new(shape.size() * 8);
        let full = room.view(0, shape.clone(), DType::F64);
        // SAFETY: the buffer is this loop's own.
        let to = unsafe { full.slice_mut::<f64>() };
        for (((to, g), a), b) in to.iter_mut().zip(&g).zip(&a).zip(&b) {
            *to = g * slope(*a, *b);
        }
        let mut room = Buffer::new(out.size() * 8);
        let sum = room.view(0, out.shape().clone(), DType::F64);
        reduce_to(Reduction::Sum, &full, &sum);
        copy(&sum, out);
    }
    Ok(())
}

fn broadcast(_: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let shape = broadcast_shape(&inputs[0], &inputs[1])?;
    assign_shape(&mut outputs[0], "output", &shape)?;
    Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
}

fn of_types(def: OpDef, row: &FunctionRow) -> OpDef {
    match row.floats_only {
        true => only_floats(def),
        false => only(def, |dtype| dtype != DType::Bool, "a number, not bool"),
    }
}

fn of_arrays(row: &'static FunctionRow) -> [OpDef; 2] {
    let (name, back) = (format!("_npi_{}", row.name), format!("_backward_npi_{}", row.name));
    let kind = if row.floats_only { "a float" } else { "a number" };
    let example = format!("{name}(nd.array([2, -8]), nd.array([1, 4]))\n{}", row.shown[0]);
    let def = OpDef::plain(&name)
        .inputs_are(&[(row.inputs[0], "The first array."), (row.inputs[1], "The second.")])
        .doc(&text(
            &format!("Returns, element by element: {}.", row.formula),
            &format!("Shapes are broadcast. One dtype, {kind}."),
            &example,
        ))
        .infer_shape(broadcast)
        .infer_type(same_type)
        .gradient(Gradient::use_in(&back))
        .kernel(kernel(move |call| forward(row, call, None)));
    let back = OpDef::plain(&back).kernel(kernel(move |call| backward(row, call, None)));
    [of_types(def, row), back]
}

fn of_number(row: &'static FunctionRow, left: bool) -> [OpDef; 2] {
    let side = if left { "r" } else { "" };
    let name = format!("_npi_{side}{}_scalar", row.name);
    let back = format!("_backward{name}");
    let shown = row.shown[if left { 2 } else { 1 }];
    let operands = if left { "a the number, b the array" } else { "a the array, b the number" };
    let def = OpDef::new::<NumberParam>(&name)
        .inputs_are(&[("data", "The array.")])
        .doc(&text(
            &format!("Returns, element by element: {}; {operands}.", row.formula),
            "The output has the dtype of the array.",
            &format!("{name}(nd.array([2, -8]), scalar=2)\n{shown}"),
        ))
        .infer_type(same_type)
        .gradient(Gradient::use_in(&back))
        .kernel(kernel(move |call| forward(row, call, Some(left))));
    let def = shaped_by(def, |_, from| Ok(from.clone()));
    let back = OpDef::new::<NumberParam>(&back)
        .kernel(kernel(move |call| backward(row, call, Some(left))));
    [of_types(def, row), back]
}

/// The least common multiple.
fn lcm(a: i64, b: i64) -> i64 {
    let (mut x, mut y) = (a.unsigned_abs(), b.unsigned_abs());
    while y != 0 {
        (x, y) = (y, x % y);
    }
    let gcd = x.max(1);
    ((a.unsigned_abs() / gcd).wrapping_mul(b.unsigned_abs())) as i64
}

fn multiples() -> [OpDef; 2] {
    let what = "The least common multiple, element by element; 0 where an operand is 0.";
    let whole = |def| only(def, |dtype| !dtype.is_float(), "integers or bool");
    let arrays = OpDef::plain("_npi_lcm")
        .inputs_are(&[("lhs", "The first array."), ("rhs", "The second.")])
        .doc(&text(
            what,
            "Integers or bool of one dtype. Shapes are broadcast.",
            "_npi_lcm(nd.array([4, 6], dtype='int32'), nd.array([6], dtype='int32'))\n[12  6]",
        ))
        .infer_shape(broadcast)
        .infer_type(same_type)
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| {
            let out = &call.outputs[0];
            let [a, b] = [0, 1].map(|i| super::elements::wholes(&call.inputs[i], out.shape()));
            super::elements::map_whole(out, |i| lcm(a[i], b[i]));
            Ok(())
        }));
    let number = OpDef::new::<NumberParam>("_npi_lcm_scalar")
        .inputs_are(&[("data", "The array.")])
        .doc(&text(
            what,
            "Integers or bool; the number is converted to an integer.",
            "_npi_lcm_scalar(nd.array([4, 6], dtype='int32'), scalar=6)\n[12  6]",
        ))
        .infer_type(same_type)
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| {
            let out = &call.outputs[0];
            let number = call.attrs.get::<NumberParam>().scalar as i64;
            let a = super::elements::wholes(&call.inputs[0], out.shape());
            super::elements::map_whole(out, |i| lcm(a[i], number));
            Ok(())
        }));
    [whole(arrays), whole(shaped_by(number, |_, from| Ok(from.clone())))]
}

/// The coefficients of repeated differences: `(-1)^(n - k) n! / (k! (n - k)!)`.
fn coefficients(n: i32) -> Vec<f64> {
    let mut all = vec![1.0];
    for _ in 0..n {
        let len = all.len();
        let at = |i: usize| if i < len { all[i] } else { 0.0 };
        all = (0..=len).map(|i| if i == 0 { -at(0) } else { at(i - 1) - at(i) }).collect();
    }
    all
}

/// The axis, its extent, the number of rows before it and the step of its elements.
fn rows_along(axis: i32, of: &Shape) -> Result<(usize, usize, usize, usize)> {
    let axis = of.axis(axis.into())?;
    let step = of.product(axis + 1..of.ndim());
    Ok((axis, of.dims()[axis] as usize, of.product(0..axis), step))
}

fn differences() -> [OpDef; 2] {
    let def = OpDef::new::<DiffParam>("_npi_diff").inputs_are(&[("a", "The array.")]).doc(&text(
        "The differences of neighbours along an axis, taken ``n`` times.",
        "Any dtype but bool; the axis gets shorter by ``n``, down to nothing.",
        "_npi_diff(nd.array([1, 4, 9]))\n[3. 5.]",
    ));
    let def = shaped_by(def.infer_type(same_type), |attrs, from| {
        let p = attrs.get::<DiffParam>();
        let (axis, mut shape) = (from.axis(p.axis.into())?, from.clone());
        let extent = shape.dims()[axis];
        shape.dims_mut()[axis] = if extent < 0 { -1 } else { (extent - i64::from(p.n)).max(0) };
        Ok(shape)
    });
    let def = def.gradient(Gradient::use_none("_backward_npi_diff")).kernel(kernel(|call| {
        let p = call.attrs.get::<DiffParam>();
        let (_, n, rows, step) = rows_along(p.axis, call.inputs[0].shape())?;
        let len = n.saturating_sub(p.n as usize);
        if len == 0 {
            return Ok(());
        }
        let (x, factors) = (numbers(&call.inputs[0])?, coefficients(p.n));
        let mut out = zeros(rows * len * step)?;
        for (i, to) in out.iter_mut().enumerate() {
            let (row, at, column) = (i / (len * step), i / step % len, i % step);
            let from = |k: usize| x[(row * n + at + k) * step + column];
            *to = factors.iter().enumerate().map(|(k, factor)| factor * from(k)).sum();
        }
        store(call, 0, &out);
        Ok(())
    }));
    let back = OpDef::new::<DiffParam>("_backward_npi_diff").kernel(kernel(|call| {
        let p = call.attrs.get::<DiffParam>();
        let (_, n, _, step) = rows_along(p.axis, call.outputs[0].shape())?;
        let len = n.saturating_sub(p.n as usize);
        let mut out = zeros(call.outputs[0].size())?;
        let g = numbers(&call.inputs[0])?;
        let factors = if len == 0 { Vec::new() } else { coefficients(p.n) };
        for (i, g) in g.iter().enumerate() {
            let (row, at, column) = (i / (len * step), i / step % len, i % step);
            for (k, factor) in factors.iter().enumerate() {
                out[(row * n + at + k) * step + column] += factor * g;
            }
        }
        store(call, 0, &out);
        Ok(())
    }));
    [only(def, |dtype| dtype != DType::Bool, "a number, not bool"), back]
}

/// How many numbers stand before and after the differences.
fn edges(p: &EdgesParam, shapes: &[Shape]) -> (i64, i64) {
    let mut arrays = shapes[1..].iter().map(|shape| shape.size() as i64);
    let mut count = |array: bool, number: Option<f64>| match array {
        true => arrays.next().unwrap_or(0),
        false => i64::from(number.is_some()),
    };
    (count(p.to_begin_arr_given, p.to_begin_scalar), count(p.to_end_arr_given, p.to_end_scalar))
}

fn with_edges() -> [OpDef; 2] {
    let def = OpDef::new::<EdgesParam>("_npi_ediff1d")
        .inputs_are(&[
            ("input1", "The array."),
            ("input2", "What to begin with."),
            ("input3", "What to end with."),
        ])
        .input_names_by(|attrs| {
            let p = attrs.get::<EdgesParam>();
            let given = 1 + usize::from(p.to_begin_arr_given) + usize::from(p.to_end_arr_given);
            (1..=given).map(|i| format!("input{i}")).collect()
        })
        .doc(&text(
            "The differences of neighbours in the flattened array, with others before and after \
             them.",
            "What begins and ends is an array, or a number. One dtype, a number.",
            "_npi_ediff1d(nd.array([[1, 4], [9, 2]]), to_begin_scalar=0)\n[ 0.  3.  5. -7.]",
        ))
        .infer_shape(|attrs, inputs, outputs| {
            if !inputs.iter().all(Shape::is_known) {
                return Ok(false);
            }
            let (before, after) = edges(attrs.get(), inputs);
            let middle = (inputs[0].size() as i64 - 1).max(0);
            assign_shape(&mut outputs[0], "output", &Shape::from([before + middle + after]))?;
            Ok(true)
        })
        .infer_type(same_type)
        .gradient(Gradient::use_none("_backward_npi_ediff1d"))
        .kernel(kernel(|call| {
            let p = call.attrs.get::<EdgesParam>();
            let x = numbers(&call.inputs[0])?;
            let mut arrays = call.inputs[1..].iter();
            let mut edge = |array: bool, number: Option<f64>| match array {
                true => arrays.next().map_or(Ok(Vec::new()), numbers),
                false => Ok(number.into_iter().collect()),
            };
            let start = edge(p.to_begin_arr_given, p.to_begin_scalar)?;
            let end = edge(p.to_end_arr_given, p.to_end_scalar)?;
            let mut out = room(call.outputs[0].size())?;
            out.extend(start);
            out.extend(x.windows(2).map(|pair| pair[1] - pair[0]));
            out.extend(end);
            store(call, 0, &out);
            Ok(())
        }));
    let back = OpDef::new::<EdgesParam>("_backward_npi_ediff1d").kernel(kernel(|call| {
        let p = call.attrs.get::<EdgesParam>();
        let (g, shapes) = (numbers(&call.inputs[0])?, call.outputs.iter());
        let shapes: Vec<Shape> = shapes.map(|view| view.shape().clone()).collect();
        let (before, after) = edges(p, &shapes);
        let (before, end) = (before as usize, g.len() - after as usize);
        let mut grad = zeros(call.outputs[0].size())?;
        for (i, g) in g[before..end].iter().enumerate() {
            grad[i] -= g;
            grad[i + 1] += g;
        }
        store(call, 0, &grad);
        let mut next = 1;
        for (given, part) in [(p.to_begin_arr_given, &g[..before]), (p.to_end_arr_given, &g[end..])]
        {
            if given {
                store(call, next, part);
                next += 1;
            }
        }
        Ok(())
    }));
    [only(def, |dtype| dtype != DType::Bool, "a number, not bool"), back]
}

/// The value of a polynomial, and its slope.
fn polynomial(p: &[f64], x: f64) -> (f64, f64) {
    p.iter().fold((0.0, 0.0), |(value, slope), c| (value * x + c, slope * x + value))
}

fn polynomials() -> [OpDef; 2] {
    let def = OpDef::plain("_npi_polyval")
        .inputs_are(&[("p", "The coefficients (n,), the highest first."), ("x", "The places.")])
        .doc(&text(
            "The values of a polynomial: ``p[0] x^(n - 1) + ... + p[n - 1]``, by Horner's rule.",
            "The output has the shape of ``x``. One dtype, a number.",
            "_npi_polyval(nd.array([1, 0, 2]), nd.array([3, 4]))\n[11. 18.]",
        ))
        .infer_shape(|_, inputs, outputs| {
            if inputs[0].rank_known() && inputs[0].ndim() != 1 {
                return Err(Error::argument("p", "shape", &inputs[0], "one axis"));
            }
            let seen = outputs[0].clone();
            assign_shape(&mut inputs[1], "x", &seen)?;
            assign_shape(&mut outputs[0], "output", &inputs[1])?;
            Ok(inputs.iter().all(Shape::is_known))
        })
        .infer_type(same_type)
        .gradient(Gradient::declared("_backward_npi_polyval", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1)]
        }))
        .kernel(kernel(|call| {
            let [p, x] = [numbers(&call.inputs[0])?, numbers(&call.inputs[1])?];
            store(call, 0, &x.iter().map(|x| polynomial(&p, *x).0).collect::<Vec<f64>>());
            Ok(())
        }));
    let back = OpDef::plain("_backward_npi_polyval").kernel(kernel(|call| {
        let [g, p] = [numbers(&call.inputs[0])?, numbers(&call.inputs[1])?];
        let x = numbers(&call.inputs[2])?;
        let mut dp = vec![0.0; p.len()];
        for (g, x) in g.iter().zip(&x) {
            let mut power = *g;
            for d in dp.iter_mut().rev() {
                *d += power;
                power *= x;
            }
        }
        store(call, 0, &dp);
        let dx = x.iter().zip(&g).map(|(x, g)| g * polynomial(&p, *x).1);
        store(call, 1, &dx.collect::<Vec<f64>>());
        Ok(())
    }));
    [only(def, |dtype| dtype != DType::Bool, "a number, not bool"), back]
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    let mut all = Vec::new();
    for row in &ROWS {
        all.extend(of_arrays(row));
        all.extend(of_number(row, false));
        all.extend(of_number(row, true));
    }
    all.extend(multiples());
    all.extend(differences());
    all.extend(with_edges());
    all.extend(polynomials());
    all
}
