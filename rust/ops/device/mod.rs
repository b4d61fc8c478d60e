//! Kernels for CUDA devices of the built-in operators: which functions of the sources in
//! `python/rsnet/cuda/kernels/` they launch, on what grids, with which arguments.
//!
//! Element-wise operators get theirs from the rows of their tables ([`formula`], [`binary`]). All
//! others are entries of [`TABLE`], by the name of the operator, as in `higher_order`: [`complete`]
//! adds what the table has. An operator without an entry runs on the host.

mod attention;
pub mod binary;
mod boxes;
mod dense;
mod draws;
pub mod formula;
mod groups;
mod images;
mod layers;
mod layout;
mod linalg;
mod losses;
mod multibox;
mod norm;
mod numbers;
mod order;
mod quantised;
mod reduce;
mod regions;
pub mod rnn;
mod samplers;
mod scatter;
mod sequence;
pub mod shape;
mod update;
mod window;

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::operator::{Call, Kernel, Launcher, Match, OpDef, OpReq};

/// The dtypes of most hand-written kernels.
const FLOATS: &[DType] = &[DType::F32, DType::F64, DType::F16];

/// Those of kernels that only add, compare or move.
const NUMBERS: &[DType] = &[DType::F32, DType::F64, DType::F16, DType::I32, DType::I64];

/// Everything but truth values.
const ARITHMETIC: &[DType] =
    &[DType::F32, DType::F64, DType::F16, DType::I32, DType::I64, DType::U8, DType::I8];

/// Operators with the kernels that they have for devices.
type KernelsOf = (&'static str, fn() -> Vec<Kernel>);

/// Kernels by the name of the operator.
const FAMILIES: &[&[KernelsOf]] = &[
    reduce::TABLE,
    shape::TABLE,
    dense::TABLE,
    window::TABLE,
    layers::TABLE,
    losses::TABLE,
    norm::TABLE,
    numbers::TABLE,
    order::TABLE,
    scatter::TABLE,
    sequence::TABLE,
    images::TABLE,
    groups::TABLE,
    draws::TABLE,
    attention::TABLE,
    regions::TABLE,
    samplers::TABLE,
    boxes::TABLE,
    multibox::TABLE,
    linalg::TABLE,
    quantised::TABLE,
    rnn::TABLE,
    update::TABLE,
];

/// Adds the kernels for devices that the table has for `def`.
pub fn complete(def: OpDef) -> OpDef {
    let found = FAMILIES.iter().flat_map(|family| family.iter()).find(|e| e.0 == def.name);
    match found {
        Some((_, kernels)) => def.kernels(kernels()),
        None => def,
    }
}

/// 1 if a kernel is to add to output `i`, else 0.
fn add(call: &Call<'_>, i: usize) -> i32 {
    i32::from(call.req[i] == OpReq::Add)
}

/// Returns true if output `i` is to be written and has elements.
fn wanted(call: &Call<'_>, i: usize) -> bool {
    call.req[i] != OpReq::Null && call.outputs[i].size() > 0
}

/// The address of output `i`, or none where it is not wanted.
fn target(call: &Call<'_>, i: usize) -> *mut u8 {
    match wanted(call, i) {
        true => call.outputs[i].ptr(),
        false => std::ptr::null_mut(),
    }
}

/// Zeroes output `i` if it is wanted and not added to.
fn begin(call: &Call<'_>, launcher: &mut dyn Launcher, i: usize) -> Result<()> {
    match wanted(call, i) && add(call, i) == 0 {
        true => launcher.clear(call.outputs[i].ptr(), call.outputs[i].size_bytes()),
        false => Ok(()),
    }
}

/// Bytes of `n` numbers in the type in which elements of a dtype are calculated.
fn computed_bytes(dtype: DType, n: usize) -> usize {
    n * dtype.size().max(4)
}

/// A kernel with one output, which does nothing if the request is null or the output is empty.
fn kernel(
    source: &'static str,
    functions: &[&str],
    types: &[(&str, &'static [DType])],
    issue: impl Fn(&Call<'_>, &mut dyn Launcher) -> Result<()> + Send + Sync + 'static,
) -> Kernel {
    Kernel::cuda(source, functions, types, move |call, launcher| match wanted(call, 0) {
        true => issue(call, launcher),
        false => Ok(()),
    })
}

/// Two tensors have one of these dtypes, both the same.
fn same_dtype(names: [&str; 2], dtypes: &[DType]) -> Match {
    let both = |dtype: &DType| {
        let [a, b] = names.map(|name| Match::DTypeOf(name.to_owned(), vec![*dtype]));
        Match::And(Box::new(a), Box::new(b))
    };
    let either = |a: Match, b: Match| Match::Or(Box::new(a), Box::new(b));
    dtypes.iter().map(both).reduce(either).unwrap_or(Match::Not(Box::new(Match::Always)))
}

/// The bytes of a number as an element of a dtype.
fn element(dtype: DType, value: f64) -> [u8; 8] {
    crate::with_dtype!(dtype, T => bytes_of(<T as Element>::from_f64(value)))
}

/// The same of the number of the dtype that is nearest.
fn nearest_element(dtype: DType, value: f64) -> [u8; 8] {
    crate::with_dtype!(dtype, T => bytes_of(<T as Element>::saturating(value)))
}

fn bytes_of<T: Element>(value: T) -> [u8; 8] {
    let mut bytes = [0; 8];
    // SAFETY: no element is larger than eight bytes.
    unsafe { bytes.as_mut_ptr().cast::<T>().write_unaligned(value) };
    bytes
}

/// The error of a call whose operands have too many axes for a kernel.
fn too_many_axes() -> Error {
    Error::not_implemented(format!(
        "the CUDA kernel takes at most {} axes that cannot be merged",
        crate::operator::Axes::MOST
    ))
}
