//! Reductions over all arrays of an optimizer: sums of squares, and tests for finite numbers.

use crate::args;
use crate::error::Result;
use crate::operator::{Call, Grid, Kernel, Launcher};
use crate::ops::device::{FLOATS, kernel};
use crate::ops::tensor::optimizer::rates::{AllFiniteParam, MultiAllFiniteParam};

/// The dtype of all arrays; the first has the name `name`.
fn squares(name: &'static str, others: bool, rest: &str, end: End) -> Vec<Kernel> {
    let functions = ["square_parts<$0>", rest];
    vec![kernel("update", &functions, &[(name, FLOATS)], move |call, launcher| {
        let counts: Vec<usize> =
            call.inputs.iter().map(|x| parts(x.size()).blocks[0] as usize).collect();
        let room = launcher.memory().take(8 * counts.iter().sum::<usize>())?;
        let mut at = room;
        let mut of_each = Vec::new();
        for (x, count) in call.inputs.iter().zip(&counts) {
            let mut args = args![x.size() as i64, x.ptr(), at, i32::from(others)];
            launcher.launch(0, parts(x.size()), &mut args)?;
            of_each.push((at, *count));
            at = at.wrapping_add(8 * count);
        }
        end(call, launcher, &of_each)
    })]
}

/// Combines the partial sums of every input, which follow one another, into the outputs.
type End = fn(&Call<'_>, &mut dyn Launcher, &[(*mut u8, usize)]) -> Result<()>;

fn sums(call: &Call<'_>, launcher: &mut dyn Launcher, parts: &[(*mut u8, usize)]) -> Result<()> {
    parts.iter().enumerate().try_for_each(|(i, (from, count))| {
        let to = call.outputs[0].ptr().wrapping_add(4 * i);
        launcher.launch(1, Grid::blocks(1), &mut args![*count as i64, 1i64, *from, to])
    })
}

fn no_others(
    call: &Call<'_>,
    launcher: &mut dyn Launcher,
    parts: &[(*mut u8, usize)],
    init: bool,
) -> Result<()> {
    let count: usize = parts.iter().map(|part| part.1).sum();
    let mut args = args![count as i64, parts[0].0, call.outputs[0].ptr(), i32::from(init)];
    launcher.launch(1, Grid::blocks(1), &mut args)
}

pub fn all_finite() -> Vec<Kernel> {
    let end: End = |call, launcher, parts| {
        no_others(call, launcher, parts, call.attrs.get::<AllFiniteParam>().init_output)
    };
    writing(squares("data", true, "none_of", end))
}

pub fn multi_all_finite() -> Vec<Kernel> {
    let end: End = |call, launcher, parts| {
        no_others(call, launcher, parts, call.attrs.get::<MultiAllFiniteParam>().init_output)
    };
    writing(squares("array_0", true, "none_of", end))
}

pub fn multi_sum_sq() -> Vec<Kernel> {
    writing(squares("array_0", false, "sum_parts<float>", sums))
}

/// Blocks over `n` elements whose parts of a sum are added up.
pub fn parts(n: usize) -> Grid {
    Grid::blocks(n.div_ceil(4096).clamp(1, 256))
}

/// Kernels whose outputs are not added to: a temporary is.
fn writing(kernels: Vec<Kernel>) -> Vec<Kernel> {
    kernels.into_iter().map(Kernel::only_writes).collect()
}
