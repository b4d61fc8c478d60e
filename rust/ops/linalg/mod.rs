//! Linear algebra on batches of matrices: products, triangular systems, factorisations, diagonals.
//!
//! Matrices are the last two axes; all axes before them are a batch. Gradients are composed from
//! the operators themselves wherever they can be, so that they have gradients in turn.
//!
//! Source of the gradients: M. Seeger et al., Auto-Differentiating Linear Algebra, 2017.

pub(in crate::ops) mod diagonal;
pub(in crate::ops) mod factor;
pub(in crate::ops) mod products;
pub(in crate::ops) mod triangular;

use super::higher_order::complete;
use super::nn::infer::{complete as known, expect_rank, float_type};
use super::nn::widening;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::lock::Lock;
use crate::operator::infer::assign_shape;
use crate::operator::{Call, GradBuilder, GradEntry, OpDef, OpReq, Registry, Value};
use crate::shape::Shape;
use crate::tensor::View;

/// Registers the family.
pub fn register(registry: &Registry) {
    let families: &[fn() -> Vec<OpDef>] =
        &[products::operators, triangular::operators, factor::operators, diagonal::operators];
    for def in families.iter().flat_map(|family| family()) {
        registry.add(complete(def)).expect("built-in operators have names of their own");
    }
}

/// Documentation from its parts.
fn text(what: &str, notes: &str, example: &str) -> String {
    format!("{what}\n\nNotes\n-----\n{notes}\n\nExamples\n--------\n>>> {example}\n")
}

/// Rows and columns of the matrices of a view, and their number.
pub(in crate::ops) fn matrices(view: &View) -> (usize, usize, usize) {
    let rank = view.dims().len();
    let at = |i: usize| view.dims()[rank - i] as usize;
    (at(2), at(1), view.shape().product(0..rank - 2))
}

/// Calls `f` with the numbers of the matrices of a batch, side by side: of about `work`
/// multiplications each. Returns the error of the first one that has an error.
pub(in crate::ops) fn for_each_matrix(
    count: usize,
    work: usize,
    f: impl Fn(usize) -> Result<()> + Send + Sync,
) -> Result<()> {
    let first = Lock::new(None::<(usize, Error)>);
    parallel_for(count, (1usize << 14).div_ceil(work.max(1)), |range| {
        for i in range {
            let Err(error) = f(i) else { continue };
            let mut first = first.lock();
            if first.as_ref().is_none_or(|(at, _)| i < *at) {
                *first = Some((i, error));
            }
            return;
        }
    });
    let found = first.lock().take();
    found.map_or(Ok(()), |(_, error)| Err(error))
}

/// The part of a buffer that one matrix has.
///
/// # Safety
/// It lies in the buffer, and nothing else uses it meanwhile.
unsafe fn own<'a, T>(all: Shared<T>, i: usize, size: usize) -> &'a mut [T] {
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts_mut(all.at(i * size), size) }
}

/// Checks that a shape is a batch of matrices, square ones if asked.
pub(in crate::ops) fn expect_matrices(shape: &Shape, argument: &str, square: bool) -> Result<()> {
    expect_rank(shape, argument, 2..=usize::MAX)?;
    match shape.dims() {
        [.., m, n] if square && *m >= 0 && *n >= 0 && m != n => {
            Err(Error::argument(argument, "shape", shape, "square matrices (..., n, n)"))
        }
        _ => Ok(()),
    }
}

/// Input and output are square matrices of one shape.
fn square_to_square(inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let seen = outputs[0].clone();
    assign_shape(&mut inputs[0], "A", &seen)?;
    expect_matrices(&inputs[0], "A", true)?;
    if let &[.., m, n] = inputs[0].dims() {
        let side = m.max(n);
        let rank = inputs[0].ndim();
        inputs[0].dims_mut()[rank - 2..].fill(side);
    }
    assign_shape(&mut outputs[0], "output", &inputs[0])?;
    known(inputs, outputs)
}

/// The axes of a batch, or `(1,)` if there are none.
fn batch_of(shape: &Shape) -> Shape {
    let lead = &shape.dims()[..shape.ndim() - 2];
    if lead.is_empty() { Shape::flat(1) } else { Shape::new(lead) }
}

/// Is output `i` wanted?
fn wanted(call: &Call<'_>, i: usize) -> bool {
    call.req[i] != OpReq::Null
}

/// One operator of one output, in a gradient rule.
fn op(
    builder: &mut dyn GradBuilder,
    name: &str,
    params: &[(&str, Value)],
    inputs: &[GradEntry],
) -> Result<GradEntry> {
    Ok(builder.op(name, "", params, inputs)?[0])
}

/// `alpha * op(a) op(b)` in a gradient rule.
fn product(
    builder: &mut dyn GradBuilder,
    (a, turn_a): (GradEntry, bool),
    (b, turn_b): (GradEntry, bool),
    alpha: f64,
) -> Result<GradEntry> {
    let params =
        [("transpose_a", turn_a.into()), ("transpose_b", turn_b.into()), ("alpha", alpha.into())];
    op(builder, "_linalg_gemm2", &params, &[a, b])
}

/// The lower or upper triangle of a square matrix, with 0 elsewhere, in a gradient rule.
fn triangle(builder: &mut dyn GradBuilder, a: GradEntry, lower: bool) -> Result<GradEntry> {
    let params = [("lower", lower.into())];
    let packed = op(builder, "_linalg_extracttrian", &params, &[a])?;
    op(builder, "_linalg_maketrian", &params, &[packed])
}

/// The symmetric matrix with the lower triangle of `a`, in a gradient rule.
fn mirrored(builder: &mut dyn GradBuilder, a: GradEntry) -> Result<GradEntry> {
    let packed = op(builder, "_linalg_extracttrian", &[], &[a])?;
    let low = op(builder, "_linalg_maketrian", &[], &[packed])?;
    // Packed row by row, a lower triangle is the transposed upper one.
    let high = op(builder, "_linalg_maketrian", &[("lower", false.into())], &[packed])?;
    let both = op(builder, "elemwise_add", &[], &[low, high])?;
    let diagonal = op(builder, "_linalg_extractdiag", &[], &[a])?;
    let diagonal = op(builder, "_linalg_makediag", &[], &[diagonal])?;
    op(builder, "elemwise_sub", &[], &[both, diagonal])
}
