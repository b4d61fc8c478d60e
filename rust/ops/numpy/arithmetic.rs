//! Element-wise arithmetic and comparisons of two arrays, and of an array and a number.

use super::{only_floats, original, text, to_bool};
use crate::operator::{OpDef, Registry};

/// What the dtype of inputs and output is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Types {
    Same,
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
            name: $name, original: $original, formula: $formula, shown: $shown, types: Types::$types,
        }),*]
    };
}

const ARRAYS: &[Row] = rows! {
    "_npi_add" "broadcast_add" "a + b" "[5. 7.]" Same;
    "_npi_subtract" "broadcast_sub" "a - b" "[1. 3.]" Same;
    "_npi_multiply" "broadcast_mul" "a * b" "[ 6. 10.]" Same;
    "_npi_true_divide" "broadcast_div" "a / b" "[1.5 2.5]" Floats;
    "_npi_mod" "broadcast_mod" "a - b * floor(a / b)" "[1. 1.]" Same;
    "_npi_power" "broadcast_power" "a to the power b" "[ 9. 25.]" Same;
    "_npi_hypot" "broadcast_hypot" "sqrt(a^2 + b^2)" "[3.6055512 5.3851647]" Floats;
    "_npi_equal" "broadcast_equal" "a == b" "[False False]" ToBool;
    "_npi_not_equal" "broadcast_not_equal" "a != b" "[ True  True]" ToBool;
    "_npi_greater" "broadcast_greater" "a > b" "[ True  True]" ToBool;
    "_npi_greater_equal" "broadcast_greater_equal" "a >= b" "[ True  True]" ToBool;
    "_npi_less" "broadcast_lesser" "a < b" "[False False]" ToBool;
    "_npi_less_equal" "broadcast_lesser_equal" "a <= b" "[False False]" ToBool;
};

const NUMBERS: &[Row] = rows! {
    "_npi_add_scalar" "_plus_scalar" "data + scalar" "[5. 7.]" Same;
    "_npi_subtract_scalar" "_minus_scalar" "data - scalar" "[1. 3.]" Same;
    "_npi_rsubtract_scalar" "_rminus_scalar" "scalar - data" "[-1. -3.]" Same;
    "_npi_multiply_scalar" "_mul_scalar" "data * scalar" "[ 6. 10.]" Same;
    "_npi_true_divide_scalar" "_div_scalar" "data / scalar" "[1.5 2.5]" Floats;
    "_npi_rtrue_divide_scalar" "_rdiv_scalar" "scalar / data" "[0.6666667 0.4      ]" Floats;
    "_npi_mod_scalar" "_mod_scalar" "data - scalar * floor(data / scalar)" "[1. 1.]" Same;
    "_npi_rmod_scalar" "_rmod_scalar" "scalar - data * floor(scalar / data)" "[2. 2.]" Same;
    "_npi_power_scalar" "_power_scalar" "data to the power scalar" "[ 9. 25.]" Same;
    "_npi_rpower_scalar" "_rpower_scalar" "scalar to the power data" "[ 8. 32.]" Same;
    "_npi_equal_scalar" "_equal_scalar" "data == scalar" "[False False]" ToBool;
    "_npi_not_equal_scalar" "_not_equal_scalar" "data != scalar" "[ True  True]" ToBool;
    "_npi_greater_scalar" "_greater_scalar" "data > scalar" "[ True  True]" ToBool;
    "_npi_greater_equal_scalar" "_greater_equal_scalar" "data >= scalar" "[ True  True]" ToBool;
    "_npi_less_scalar" "_lesser_scalar" "data < scalar" "[False False]" ToBool;
    "_npi_less_equal_scalar" "_lesser_equal_scalar" "data <= scalar" "[False False]" ToBool;
};

/// The operator of a row.
fn derived(registry: &Registry, row: &Row, notes: &str, second: &str) -> OpDef {
    let Row { name, formula, shown, .. } = row;
    let what = format!("Returns, element by element: {formula}.");
    let result = match row.types {
        Types::ToBool => "bool",
        Types::Floats => "that of the inputs, a float",
        Types::Same => "that of the inputs",
    };
    let notes = format!("{notes} The output's dtype is {result}.");
    let example = format!("{name}(nd.array([3, 5]), {second})\n{shown}");
    let def = original(registry, row.original).renamed(name).doc(&text(&what, &notes, &example));
    match row.types {
        Types::Same => def,
        Types::Floats => only_floats(def),
        Types::ToBool => to_bool(def),
    }
}

pub fn operators(registry: &Registry) -> Vec<OpDef> {
    let arrays = ARRAYS.iter().map(|row| {
        let notes = "Shapes are broadcast; dtypes that differ are an error.";
        let def = derived(registry, row, notes, "nd.array([2])");
        match row.name {
            "_npi_hypot" => def.inputs_are(&[("x1", "The first array."), ("x2", "The second.")]),
            _ => def,
        }
    });
    let numbers = NUMBERS.iter().map(|row| {
        let notes = "The number is converted to the dtype of the array first.";
        derived(registry, row, notes, "scalar=2")
    });
    arrays.chain(numbers).collect()
}
