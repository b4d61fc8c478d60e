//! Batches of sequences of different length.

use super::shape::same_order;
use super::{FLOATS, KernelsOf, add, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Argument, Call, Compare, Grid, Kernel, Launcher, Match};
use crate::ops::nn::sequence::{SequenceMaskParam, settings};
use crate::tensor::View;

/// Dtypes of lengths.
const LENGTHS: &[DType] = &[DType::F32, DType::F64, DType::I32, DType::I64];

/// Extents of a batch: `Batch` of `sequence.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Batch {
    time: i64,
    batch: i64,
    rest: i64,
    axis: i32,
    least: i32,
}

// SAFETY: numbers, as in CUDA source.
unsafe impl Argument for Batch {}

impl Batch {
    /// The batch in `data`, whose sequences have at least `least` elements.
    fn of(call: &Call<'_>, data: &View, least: i32) -> Self {
        let (axis, s) = (settings(call.attrs).1, data.shape());
        let [outer, within, rest] =
            [s.product(0..1), s.product(1..2), s.product(2..s.ndim())].map(|n| n as i64);
        let (time, batch) = if axis == 0 { (outer, within) } else { (within, outer) };
        Batch { time, batch, rest, axis: axis as i32, least }
    }
}

type Issue = fn(&Call<'_>, &mut dyn Launcher) -> Result<()>;

fn with_lengths(is: bool) -> Match {
    let text = if is { "True" } else { "False" };
    Match::Attr("use_sequence_length".into(), Compare::Eq, text.into())
}

/// A kernel for calls with lengths, whose dtype is that of `tensor` (of a gradient the second
/// tensor, `output`), and one for those without.
fn kernels(function: &str, tensor: &'static str, issue: Issue) -> Vec<Kernel> {
    let zeroing = move |call: &Call<'_>, launcher: &mut dyn Launcher| {
        if call.outputs.len() > 1 && wanted(call, 1) && add(call, 1) == 0 {
            launcher.clear(call.outputs[1].ptr(), call.outputs[1].size_bytes())?;
        }
        if wanted(call, 0) { issue(call, launcher) } else { Ok(()) }
    };
    let (of_both, of_data) = (format!("{function}<$0, $1>"), format!("{function}<$0, float>"));
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS), (tensor, LENGTHS)];
    let with = Kernel::cuda("sequence", &[&of_both], types, zeroing).only(with_lengths(true));
    let without = Kernel::cuda("sequence", &[&of_data], &types[..1], zeroing);
    vec![with, without.only(with_lengths(false))]
}

fn lengths(call: &Call<'_>) -> *mut u8 {
    call.inputs.get(1).map_or(std::ptr::null_mut(), View::ptr)
}

fn masking(call: &Call<'_>, launcher: &mut dyn Launcher, value: f64) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let (b, n) = (Batch::of(call, x, 0), y.size());
    let mut args = args![n as i64, b, x.ptr(), lengths(call), y.ptr(), value, add(call, 0)];
    launcher.launch(0, Grid::over(n), &mut args)
}

fn mask(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    masking(call, launcher, f64::from(call.attrs.get::<SequenceMaskParam>().value))
}

fn mask_back(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    masking(call, launcher, 0.0)
}

fn reverse(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let (b, n) = (Batch::of(call, x, 0), y.size());
    let mut args = args![n as i64, b, x.ptr(), lengths(call), y.ptr(), add(call, 0)];
    launcher.launch(0, Grid::over(n), &mut args)
}

/// `last` and its gradient: `data` is the batch.
fn last_of(call: &Call<'_>, launcher: &mut dyn Launcher, data: &View) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let (b, n) = (Batch::of(call, data, 1), y.size());
    if b.time == 0 {
        return Ok(());
    }
    let mut args = args![n as i64, b, x.ptr(), lengths(call), y.ptr(), add(call, 0)];
    launcher.launch(0, Grid::over(n), &mut args)
}

fn last(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    last_of(call, launcher, &call.inputs[0])
}

fn last_back(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    last_of(call, launcher, &call.outputs[0])
}

/// Without lengths nothing is masked.
fn masks(tensor: &'static str, issue: Issue) -> Vec<Kernel> {
    let with = kernels("sequence_mask", tensor, issue).into_iter().take(1);
    let without = same_order("data").into_iter().map(|k| k.only(with_lengths(false)));
    with.chain(without).collect()
}

pub const TABLE: &[KernelsOf] = &[
    ("SequenceMask", || masks("sequence_length", mask)),
    ("_backward_SequenceMask", || masks("input1", mask_back)),
    ("SequenceReverse", || kernels("sequence_reverse", "sequence_length", reverse)),
    ("_backward_SequenceReverse", || kernels("sequence_reverse", "input1", reverse)),
    ("SequenceLast", || kernels("sequence_last", "sequence_length", last)),
    ("_backward_SequenceLast", || kernels("sequence_last_back", "input1", last_back)),
];
