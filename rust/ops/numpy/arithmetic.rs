//! Element-wise arithmetic and comparisons of two arrays, and of an array and a number.

use super::{kernel, on_host, only_floats, original, text, to_bool};
use crate::dtype::DType;
use crate::kernels::copy::{Buffer, copy};
use crate::operator::infer::assign_type;
use crate::operator::{
    Attrs, Body, Call, Dep, Gradient, InplacePair, Kernel, Match, NativeFn, OpDef, OpReq, Registry,
};
use crate::ops::elementwise::binary::scalar::ScalarParam;
use crate::ops::elementwise::binary::{BinaryFn, Slope, number_slope};
use crate::tensor::View;
use std::sync::Arc;

/// What the dtype of inputs and output is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Types {
    /// The dtype in which those of the operands meet.
    Meeting,
    /// The same, float32 if no operand is a float.
    Divided,
    /// One dtype, a float.
    Floats,
    ToBool,
}

struct Row {
    name: &'static str,
    original: &'static str,
    formula: &'static str,
    /// What the example gives: of [3, 5] and 2.
    shown: &'static str,
    types: Types,
}

macro_rules! rows {
    ($($name:literal $original:literal $formula:literal $shown:literal $types:ident;)*) => {
        &[$(Row {
            name: $name, original: $original, formula: $formula, shown: $shown,
            types: Types::$types,
        }),*]
    };
}

const ARRAYS: &[Row] = rows! {
    "_npi_add" "broadcast_add" "a + b" "[5. 7.]" Meeting;
    "_npi_subtract" "broadcast_sub" "a - b" "[1. 3.]" Meeting;
    "_npi_multiply" "broadcast_mul" "a * b" "[ 6. 10.]" Meeting;
    "_npi_true_divide" "broadcast_div" "a / b" "[1.5 2.5]" Divided;
    "_npi_mod" "broadcast_mod" "a - b * floor(a / b)" "[1. 1.]" Meeting;
    "_npi_power" "broadcast_power" "a to the power b" "[ 9. 25.]" Meeting;
    "_npi_hypot" "broadcast_hypot" "sqrt(a^2 + b^2)" "[3.6055512 5.3851647]" Floats;
    "_npi_equal" "broadcast_equal" "a == b" "[False False]" ToBool;
    "_npi_not_equal" "broadcast_not_equal" "a != b" "[ True  True]" ToBool;
    "_npi_greater" "broadcast_greater" "a > b" "[ True  True]" ToBool;
    "_npi_greater_equal" "broadcast_greater_equal" "a >= b" "[ True  True]" ToBool;
    "_npi_less" "broadcast_lesser" "a < b" "[False False]" ToBool;
    "_npi_less_equal" "broadcast_lesser_equal" "a <= b" "[False False]" ToBool;
};

const NUMBERS: &[Row] = rows! {
    "_npi_add_scalar" "_plus_scalar" "data + scalar" "[5. 7.]" Meeting;
    "_npi_subtract_scalar" "_minus_scalar" "data - scalar" "[1. 3.]" Meeting;
    "_npi_rsubtract_scalar" "_rminus_scalar" "scalar - data" "[-1. -3.]" Meeting;
    "_npi_multiply_scalar" "_mul_scalar" "data * scalar" "[ 6. 10.]" Meeting;
    "_npi_true_divide_scalar" "_div_scalar" "data / scalar" "[1.5 2.5]" Divided;
    "_npi_rtrue_divide_scalar" "_rdiv_scalar" "scalar / data" "[0.6666667 0.4      ]" Divided;
    "_npi_mod_scalar" "_mod_scalar" "data - scalar * floor(data / scalar)" "[1. 1.]" Meeting;
    "_npi_rmod_scalar" "_rmod_scalar" "scalar - data * floor(scalar / data)" "[2. 2.]" Meeting;
    "_npi_power_scalar" "_power_scalar" "data to the power scalar" "[ 9. 25.]" Meeting;
    "_npi_rpower_scalar" "_rpower_scalar" "scalar to the power data" "[ 8. 32.]" Meeting;
    "_npi_equal_scalar" "_equal_scalar" "data == scalar" "[False False]" ToBool;
    "_npi_not_equal_scalar" "_not_equal_scalar" "data != scalar" "[ True  True]" ToBool;
    "_npi_greater_scalar" "_greater_scalar" "data > scalar" "[ True  True]" ToBool;
    "_npi_greater_equal_scalar" "_greater_equal_scalar" "data >= scalar" "[ True  True]" ToBool;
    "_npi_less_scalar" "_lesser_scalar" "data < scalar" "[False False]" ToBool;
    "_npi_less_equal_scalar" "_lesser_equal_scalar" "data <= scalar" "[False False]" ToBool;
};

/// The dtype in which two operands are calculated: a float if one is, else the wider; int8 and
/// uint8 meet in int32, and bool gives way to everything.
fn common(a: DType, b: DType) -> DType {
    match (a.is_float(), b.is_float()) {
        _ if a == b => a,
        (true, false) => a,
        (false, true) => b,
        (false, false) if a == DType::Bool => b,
        (false, false) if b == DType::Bool => a,
        (false, false) if a.size() == b.size() => DType::I32,
        _ if a.size() > b.size() => a,
        _ => b,
    }
}

/// The dtype of the result for an array of `dtype` and a number, which `is_int` or not.
fn beside_number(dtype: DType, is_int: bool, divided: bool) -> DType {
    match dtype {
        own if own.is_float() => own,
        _ if divided => DType::F32,
        _ if !is_int => DType::F64,
        DType::Bool => DType::I64,
        own => own,
    }
}

/// A kernel that runs in the dtype of one array, which `lead` names: arrays of others are converted
/// in memory of their own.
pub(super) fn in_dtype_of(lead: fn(&Call<'_>) -> DType, run: NativeFn) -> Kernel {
    kernel(move |call| {
        let dtype = lead(call);
        if call.inputs.iter().chain(call.outputs).all(|view| view.dtype() == dtype) {
            return run(call);
        }
        let mut rooms: Vec<Buffer> = Vec::new();
        let mut meet = |view: &View, read: bool| {
            if view.dtype() == dtype {
                return view.clone();
            }
            let mut room = Buffer::new(view.size() * dtype.size());
            let wide = room.view(0, view.shape().clone(), dtype);
            if read {
                copy(view, &wide);
            }
            rooms.push(room);
            wide
        };
        let inputs: Vec<View> = call.inputs.iter().map(|view| meet(view, true)).collect();
        let outputs: Vec<View> = call.outputs.iter().map(|view| meet(view, false)).collect();
        run(&Call { inputs: &inputs, outputs: &outputs, ..*call })?;
        for ((from, to), req) in outputs.iter().zip(call.outputs).zip(call.req) {
            if *req != OpReq::Null && to.dtype() != dtype {
                copy(from, to);
            }
        }
        Ok(())
    })
}

/// Holds where these arrays have one dtype.
fn of_one_dtype(names: &[&str]) -> Match {
    let both = |a, b| Match::And(Box::new(a), Box::new(b));
    let either = |a, b| Match::Or(Box::new(a), Box::new(b));
    let all_of = |dtype: DType| {
        let each = names.iter().map(|name| Match::DTypeOf((*name).to_owned(), vec![dtype]));
        each.reduce(both).unwrap_or(Match::Always)
    };
    DType::ALL.into_iter().map(all_of).reduce(either).unwrap_or(Match::Always)
}

/// The operator for arrays of several dtypes, calculated in that of the array which `lead` names.
/// Kernels for devices serve calls where `names` have one dtype.
fn meeting(mut def: OpDef, lead: fn(&Call<'_>) -> DType, names: &[&str]) -> OpDef {
    let host = in_dtype_of(lead, on_host(&def));
    let on_devices = def.kernels.iter().filter(|kernel| matches!(kernel.body, Body::Device(_)));
    let guarded = on_devices.map(|kernel| {
        let mut guarded = kernel.as_ref().clone();
        let alike = Box::new(of_one_dtype(names));
        guarded.matches = Match::And(Box::new(guarded.matches), alike);
        guarded
    });
    let all: Vec<_> = std::iter::once(host).chain(guarded).map(Arc::new).collect();
    def.kernels = all;
    def
}

/// The operator on two arrays, and its gradient.
fn of_arrays(registry: &Registry, def: OpDef, row: &Row) -> [OpDef; 2] {
    let back = row.original.trim_start_matches("broadcast_");
    let name = format!("_backward_npi_broadcast_{back}");
    let backward = original(registry, &format!("_backward_broadcast_{back}")).renamed(&name);
    let alone = matches!(back, "add" | "sub");
    let divided = row.types == Types::Divided;
    let mut forward = def
        .infer_type(move |_, inputs, outputs| match (inputs[0], inputs[1]) {
            (Some(a), Some(b)) => {
                let met = common(a, b);
                let met = if divided && !met.is_float() { DType::F32 } else { met };
                assign_type(&mut outputs[0], "output", met)?;
                Ok(true)
            }
            // Where nothing else says what one of the two is, both are alike: bool alone says
            // nothing of the other, which it may be a mask of.
            (one, other) => {
                let mut known = [one, other, outputs[0]].into_iter().flatten();
                let known = known.find(|dtype| *dtype != DType::Bool);
                (inputs[0], inputs[1]) = (one.or(known), other.or(known));
                Ok(false)
            }
        })
        .gradient(match alone {
            true => Gradient::use_none(&name),
            false => Gradient::declared(&name, |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1)]
            }),
        });
    forward.differentiable_gradient = original(registry, row.original).differentiable_gradient;
    [
        meeting(forward, |call| call.outputs[0].dtype(), &["lhs", "rhs", "output"]),
        meeting(backward, |call| call.inputs[0].dtype(), &["ograd", "lhs", "rhs"]),
    ]
}

/// The operator on an array and a number, and its gradient.
fn of_number(original: OpDef, def: OpDef, row: &Row) -> [OpDef; 2] {
    let name = format!("_backward{}", row.name);
    let left = row.name.starts_with("_npi_r");
    let divided = row.types == Types::Divided;
    let function = BinaryFn::ALL.iter().copied().find(|f| {
        let names = f.row().names;
        names[2 + usize::from(left)] == row.original
    });
    let function = function.expect("a row names an operator of the table");
    let alone = function.row().slope == Slope::Alone;
    // What the original has for higher derivatives.
    let rule = match original.gradient {
        Gradient::Rule { rule, .. } => Some(rule),
        _ => original.differentiable_gradient,
    };
    let mut forward = def
        .of_two_dtypes()
        .inplace(&[InplacePair::new(0, 0)])
        .infer_type(move |attrs: &Attrs, inputs, outputs| {
            let Some(own) = inputs[0] else {
                // The dtype of a float is kept.
                inputs[0] = outputs[0].filter(|dtype| dtype.is_float());
                return Ok(inputs[0].is_some());
            };
            let dtype = beside_number(own, attrs.get::<ScalarParam>().is_int, divided);
            assign_type(&mut outputs[0], "output", dtype)?;
            Ok(true)
        })
        .gradient(Gradient::declared(&name, move |_, _, _| match alone {
            true => vec![Dep::OutGrad(0)],
            false => vec![Dep::OutGrad(0), Dep::Input(0)],
        }));
    forward.differentiable_gradient = rule;
    let inputs = [("ograd", "Output gradient."), ("data", "The array.")];
    let backward = OpDef::new::<ScalarParam>(&name)
        .inputs_are(&inputs[..if alone { 1 } else { 2 }])
        .kernel(in_dtype_of(|call| call.inputs[0].dtype(), number_slope(function, left)));
    let forward = meeting(forward, |call| call.outputs[0].dtype(), &["data", "output"]);
    [forward, backward]
}

/// The operator of a row, with the original's kernels and gradient, and its documentation.
fn derived(registry: &Registry, row: &Row, notes: &str, second: &str) -> OpDef {
    let Row { name, formula, shown, .. } = row;
    let what = format!("Returns, element by element: {formula}.");
    let notes = match row.types {
        Types::ToBool => format!("{notes} Dtypes that differ are an error; the output is bool."),
        Types::Floats => format!("{notes} The inputs and the output have one dtype, a float."),
        _ => notes.to_owned(),
    };
    let example = format!("{name}(nd.array([3, 5]), {second})\n{shown}");
    original(registry, row.original).renamed(name).doc(&text(&what, &notes, &example))
}

fn complete(registry: &Registry, row: &Row, def: OpDef, number: bool) -> Vec<OpDef> {
    match row.types {
        Types::ToBool => vec![to_bool(def)],
        Types::Floats => vec![only_floats(def)],
        Types::Meeting | Types::Divided if number => {
            of_number(original(registry, row.original), def, row).into()
        }
        Types::Meeting | Types::Divided => of_arrays(registry, def, row).into(),
    }
}

pub fn operators(registry: &Registry) -> Vec<OpDef> {
    let arrays = ARRAYS.iter().flat_map(|row| {
        let notes = match row.types {
            Types::Meeting => {
                "Shapes are broadcast. The output is of the wider float dtype if an operand is a \
                 float, else of the wider integer dtype (of int8 and uint8 int32)."
            }
            Types::Divided => {
                "Shapes are broadcast. The output is of the wider float dtype, float32 if no \
                 operand is a float."
            }
            _ => "Shapes are broadcast.",
        };
        let def = derived(registry, row, notes, "nd.array([2])");
        let def = match row.name {
            "_npi_hypot" => def.inputs_are(&[("x1", "The first array."), ("x2", "The second.")]),
            _ => def,
        };
        complete(registry, row, def, false)
    });
    let numbers = NUMBERS.iter().flat_map(|row| {
        let notes = match row.types {
            Types::Meeting => {
                "The output has the dtype of the array, if that is a float; beside an integer it \
                 is int64 for bool and that of the array for others, beside another number \
                 float64."
            }
            Types::Divided => {
                "The output has the dtype of the array, if that is a float, else float32."
            }
            _ => "The number is converted to the dtype of the array first.",
        };
        let def = derived(registry, row, notes, "scalar=2");
        complete(registry, row, def, true)
    });
    arrays.chain(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::common;
    use crate::dtype::DType::{self, *};

    #[test]
    fn dtypes_meet() {
        let met: [(DType, DType, DType); 8] = [
            (Bool, F32, F32),
            (F16, F32, F32),
            (F64, F16, F64),
            (I64, F16, F16),
            (I8, U8, I32),
            (Bool, I8, I8),
            (I32, I64, I64),
            (Bool, Bool, Bool),
        ];
        for (a, b, expected) in met {
            assert_eq!((common(a, b), common(b, a)), (expected, expected), "{a} and {b}");
        }
    }
}
