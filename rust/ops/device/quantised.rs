//! Integers for real numbers and back.

use super::{KernelsOf, add, kernel, target, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Call, Grid, Kernel, Launcher};
use crate::ops::quantized::conversion::CalibratedParam;
use std::ptr::null_mut;

/// Dtypes of integers for real numbers.
const BYTES: &[DType] = &[DType::I8, DType::U8];

/// Parts of an array whose ends are found at once, at most.
const MOST_PARTS: usize = 256;

/// Where the range of a result comes from, as `quantised.cu` knows it.
const GIVEN: i32 = 0;
const FROM_INPUTS: i32 = 1;
const FROM_DATA: i32 = 2;

/// The functions that turn elements of a type into integers.
fn functions(of: &str) -> [String; 3] {
    [format!("find_units<{of}, $0>"), format!("to_integers<{of}, $0>"), format!("part_ends<{of}>")]
}

/// Kernels that turn elements of a type into integers, by the range that `range` says.
fn quantising(of: &str, range: fn(&Call<'_>) -> (i32, [f32; 2])) -> Vec<Kernel> {
    let functions = functions(of);
    let functions = functions.each_ref().map(String::as_str);
    let made = Kernel::cuda(
        "quantised",
        &functions,
        &[("output0", BYTES)],
        move |call, launcher| match (0..3).any(|i| wanted(call, i)) {
            true => issue(call, launcher, range(call)),
            false => Ok(()),
        },
    );
    vec![made.only_writes()]
}

fn issue(
    call: &Call<'_>,
    launcher: &mut dyn Launcher,
    (source, [low, high]): (i32, [f32; 2]),
) -> Result<()> {
    let (x, n) = (call.inputs[0].ptr(), call.inputs[0].size());
    let units = launcher.memory().take(size_of::<f64>())?;
    let (mut parts, mut ends) = (0, null_mut::<u8>());
    if source == FROM_DATA {
        let mut grid = Grid::over(n);
        grid.blocks[0] = grid.blocks[0].min(MOST_PARTS as u32);
        parts = i64::from(grid.blocks[0]);
        ends = launcher.memory().take(2 * MOST_PARTS * size_of::<f64>())?;
        launcher.launch(2, grid, &mut args![n as i64, x, ends])?;
    }
    let [from, to] = [1, 2].map(|i| call.inputs.get(i).map_or(null_mut(), |view| view.ptr()));
    let [to_low, to_high] = [1, 2].map(|i| target(call, i));
    let one = Grid { blocks: [1, 1, 1], threads: 1 };
    let mut args = args![source, parts, ends, from, to, low, high, units, to_low, to_high];
    launcher.launch(0, one, &mut args)?;
    if !wanted(call, 0) {
        return Ok(());
    }
    launcher.launch(1, Grid::over(n), &mut args![n as i64, x, units, call.outputs[0].ptr()])
}

/// The range of a calibration, or that of the data.
fn calibrated(call: &Call<'_>) -> (i32, [f32; 2]) {
    let p = call.attrs.get::<CalibratedParam>();
    match (p.min_calib_range, p.max_calib_range) {
        (Some(low), Some(high)) => (GIVEN, [low, high]),
        _ => (FROM_DATA, [0.0; 2]),
    }
}

fn dequantize() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", &[DType::I8, DType::U8, DType::I32])];
    vec![kernel("quantised", &["to_reals<$0>"], types, |call, launcher| {
        let [x, low, high] = [0, 1, 2].map(|i| call.inputs[i].ptr());
        let (y, n) = (call.outputs[0].ptr(), call.outputs[0].size());
        launcher.launch(0, Grid::over(n), &mut args![n as i64, x, low, high, y, add(call, 0)])
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("_contrib_quantize", || quantising("float", |_| (FROM_INPUTS, [0.0; 2]))),
    ("_contrib_quantize_v2", || quantising("float", calibrated)),
    ("_contrib_requantize", || quantising("int", calibrated)),
    ("_contrib_dequantize", dequantize),
];
