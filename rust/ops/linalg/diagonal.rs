//! Parts of matrices: `sumlogdiag`, `extractdiag`, `makediag`, `extracttrian`, `maketrian`.

use super::{
    batch_of, expect_matrices, expect_rank, float_type, known, matrices, op, text, wanted, widening,
};
use crate::error::{Error, Result};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, Value};
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `_linalg_extractdiag` and `_linalg_makediag`.
    pub struct DiagonalParam {
        offset: i32, default(0), "Which diagonal: above the main one if positive, below it if \
                                  negative.";
    }
}

params! {
    /// Parameters of `_linalg_extracttrian` and `_linalg_maketrian`.
    pub struct TriangleParam {
        offset: i32, default(0), "The diagonal at which the triangle begins: an upper one if \
                                  positive, a lower one if negative.";
        lower: bool, default(true), "The lower triangle? Matters with offset=0.";
    }
}

pub fn operators() -> Vec<OpDef> {
    vec![
        sumlogdiag(),
        OpDef::plain("_backward_linalg_sumlogdiag")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => sum_grad::<T>(c)))),
        extract(
            OpDef::new::<DiagonalParam>("_linalg_extractdiag").aliases(&["linalg_extractdiag"]),
            "_linalg_makediag",
            text(
                "A diagonal of square matrices.",
                "A ``(..., n, n)`` gives ``(..., n - abs(offset))``. float16 (calculated in \
                 float32), float32 or float64.",
                "nd.linalg.extractdiag(nd.array([[1, 2], [3, 4]]))\n[1. 4.]",
            ),
        ),
        make(
            OpDef::new::<DiagonalParam>("_linalg_makediag").aliases(&["linalg_makediag"]),
            "_linalg_extractdiag",
            text(
                "Square matrices with a given diagonal, and 0 elsewhere.",
                "A ``(..., n)`` gives ``(..., m, m)`` with ``m = n + abs(offset)``. float16 \
                 (calculated in float32), float32 or float64.",
                "nd.linalg.makediag(nd.array([1, 2]))\n[[1. 0.]\n [0. 2.]]",
            ),
        ),
        extract(
            OpDef::new::<TriangleParam>("_linalg_extracttrian").aliases(&["linalg_extracttrian"]),
            "_linalg_maketrian",
            text(
                "A triangle of square matrices, as a vector.",
                "A ``(..., n, n)`` gives ``(..., m * (m + 1) / 2)`` with ``m = n - abs(offset)``: \
                 a lower triangle row by row, an upper one column by column. float16 (calculated \
                 in float32), float32 or float64.",
                "nd.linalg.extracttrian(nd.array([[1, 2], [3, 4]]))\n[1. 3. 4.]",
            ),
        ),
        make(
            OpDef::new::<TriangleParam>("_linalg_maketrian").aliases(&["linalg_maketrian"]),
            "_linalg_extracttrian",
            text(
                "Square matrices with a given triangle, and 0 elsewhere: the inverse of \
                 `extracttrian`.",
                "A ``(..., m * (m + 1) / 2)`` gives ``(..., n, n)`` with ``n = m + abs(offset)``. \
                 Another length is an error. float16 (calculated in float32), float32 or float64.",
                "nd.linalg.maketrian(nd.array([1, 2, 3]))\n[[1. 0.]\n [2. 3.]]",
            ),
        ),
    ]
}

/// Which elements of a matrix a vector holds.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Part {
    Diagonal(i64),
    Triangle { offset: i64, lower: bool },
}

pub(in crate::ops) fn part(attrs: &Attrs) -> Part {
    match attrs.typed().downcast_ref::<DiagonalParam>() {
        Some(p) => Part::Diagonal(p.offset.into()),
        None => {
            let p: &TriangleParam = attrs.get();
            let lower = if p.offset == 0 { p.lower } else { p.offset < 0 };
            Part::Triangle { offset: p.offset.into(), lower }
        }
    }
}

impl Part {
    pub(in crate::ops) fn offset(self) -> i64 {
        match self {
            Part::Diagonal(offset) | Part::Triangle { offset, .. } => offset,
        }
    }

    /// Length of the vector for matrices of `n` rows.
    fn length(self, n: i64) -> Result<i64> {
        let m = n - self.offset().abs();
        // A matrix without elements has the main diagonal alone, without elements.
        if n >= 0 && m < n.min(1) {
            let expected = format!("below {n}, the number of rows");
            return Err(Error::argument("offset", "absolute value", self.offset().abs(), expected));
        }
        Ok(match self {
            _ if n < 0 => -1,
            Part::Diagonal(_) => m,
            Part::Triangle { .. } => m.saturating_mul(m + 1) / 2,
        })
    }

    /// Rows of the matrices for vectors of this length.
    fn rows(self, length: i64) -> Result<i64> {
        let m = match self {
            _ if length < 0 => return Ok(-1),
            Part::Diagonal(_) => length,
            Part::Triangle { .. } => {
                let m = ((8.0 * length as f64 + 1.0).sqrt() as i64 - 1) / 2;
                if m.saturating_mul(m + 1) / 2 != length {
                    let expected = "m * (m + 1) / 2 elements, as a triangle has";
                    return Err(Error::argument("A", "last extent", length, expected));
                }
                m
            }
        };
        Ok(m.saturating_add(self.offset().abs()))
    }

    /// Calls `f(place in the matrix, place in the vector)`.
    fn walk(self, n: usize, mut f: impl FnMut(usize, usize)) {
        let (down, right) = match self.offset() {
            k if k < 0 => (k.unsigned_abs() as usize, 0),
            k => (0, k as usize),
        };
        let m = n - down - right;
        match self {
            Part::Diagonal(_) => (0..m).for_each(|i| f((i + down) * n + i + right, i)),
            Part::Triangle { lower, .. } => {
                for (at, (i, j)) in (0..m).flat_map(|i| (0..=i).map(move |j| (i, j))).enumerate() {
                    let (row, column) = if lower { (i, j) } else { (j, i) };
                    f((row + down) * n + column + right, at);
                }
            }
        }
    }
}

/// The gradient by the inverse operator, with the same parameters.
fn inverse_gradient(name: &'static str) -> Gradient {
    Gradient::rule_reading(&[], move |builder, node| {
        let g = node.out_grad(builder, 0)?;
        let params: Vec<(&str, Value)> = match part(node.attrs) {
            Part::Diagonal(offset) => vec![("offset", offset.into())],
            Part::Triangle { offset, lower } => {
                vec![("offset", offset.into()), ("lower", lower.into())]
            }
        };
        Ok(vec![Some(op(builder, name, &params, &[g])?)])
    })
}

/// The shapes of matrices and of their parts, in either order.
fn shapes(part: Part, matrix: &mut Shape, vector: &mut Shape) -> Result<()> {
    expect_matrices(matrix, "A", true)?;
    if let [lead @ .., m, n] = matrix.dims() {
        let length = part.length(*m.max(n))?;
        let v = Shape::from_iter(lead.iter().copied().chain([length]));
        assign_shape(vector, "A", &v)?;
    }
    expect_rank(vector, "A", 1..=usize::MAX)?;
    if let [lead @ .., length] = vector.dims() {
        let n = part.rows(*length)?;
        let m = Shape::from_iter(lead.iter().copied().chain([n, n]));
        assign_shape(matrix, "A", &m)?;
    }
    Ok(())
}

fn extract(def: OpDef, inverse: &'static str, doc: String) -> OpDef {
    def.doc(&doc)
        .inputs_are(&[("A", "The matrices (..., n, n).")])
        .infer_shape(|attrs, inputs, outputs| {
            shapes(part(attrs), &mut inputs[0], &mut outputs[0])?;
            known(inputs, outputs)
        })
        .infer_type(float_type)
        .gradient(inverse_gradient(inverse))
        .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => {
            let (n, _, count) = matrices(&c.inputs[0]);
            if wanted(c, 0) && c.outputs[0].size() > 0 {
                // SAFETY: the output is ours to write and overlaps no input.
                let (a, y) = unsafe { (c.inputs[0].slice::<T>(), c.outputs[0].slice_mut::<T>()) };
                let length = y.len() / count;
                for (a, y) in a.chunks_exact(n * n).zip(y.chunks_exact_mut(length)) {
                    part(c.attrs).walk(n, |from, to| y[to] = a[from]);
                }
            }
            Ok(())
        })))
}

fn make(def: OpDef, inverse: &'static str, doc: String) -> OpDef {
    def.doc(&doc)
        .inputs_are(&[("A", "The elements (..., n).")])
        .infer_shape(|attrs, inputs, outputs| {
            shapes(part(attrs), &mut outputs[0], &mut inputs[0])?;
            known(inputs, outputs)
        })
        .infer_type(float_type)
        .gradient(inverse_gradient(inverse))
        .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => {
            let (n, _, count) = matrices(&c.outputs[0]);
            if wanted(c, 0) {
                // SAFETY: the output is ours to write and overlaps no input.
                let (v, y) = unsafe { (c.inputs[0].slice::<T>(), c.outputs[0].slice_mut::<T>()) };
                y.fill(T::of(0.0));
                if !v.is_empty() {
                    for (v, y) in v.chunks_exact(v.len() / count).zip(y.chunks_exact_mut(n * n)) {
                        part(c.attrs).walk(n, |to, from| y[to] = v[from]);
                    }
                }
            }
            Ok(())
        })))
}

fn sumlogdiag() -> OpDef {
    OpDef::plain("_linalg_sumlogdiag")
        .aliases(&["linalg_sumlogdiag"])
        .doc(&text(
            "The sum of the logarithms of the diagonal of square matrices.",
            "A ``(..., n, n)`` gives ``(...)``, one matrix ``(1,)``. float16 (calculated in \
             float32), float32 or float64.",
            "nd.linalg.sumlogdiag(nd.array([[1, 7], [7, 1]]))\n[0.]",
        ))
        .inputs_are(&[("A", "The matrices (..., n, n).")])
        .infer_shape(|_, inputs, outputs| {
            expect_matrices(&inputs[0], "A", true)?;
            if inputs[0].rank_known() {
                assign_shape(&mut outputs[0], "output", &batch_of(&inputs[0]))?;
            }
            known(inputs, outputs)
        })
        .infer_type(float_type)
        .gradient(Gradient::use_in("_backward_linalg_sumlogdiag"))
        .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => {
            let (n, _, count) = matrices(&c.inputs[0]);
            if wanted(c, 0) {
                // SAFETY: the output is ours to write and overlaps no input.
                let (a, y) = unsafe { (c.inputs[0].slice::<T>(), c.outputs[0].slice_mut::<T>()) };
                for (i, y) in y.iter_mut().enumerate().take(count) {
                    *y = (0..n).map(|k| a[i * n * n + k * (n + 1)].ln()).sum();
                }
            }
            Ok(())
        })))
}

fn sum_grad<T: Real>(call: &Call<'_>) -> Result<()> {
    if !wanted(call, 0) {
        return Ok(());
    }
    let (n, _, count) = matrices(&call.inputs[1]);
    // SAFETY: inputs are not written meanwhile; the output is ours and overlaps none of them.
    let [dy, a] = [0, 1].map(|i| unsafe { call.inputs[i].slice::<T>() });
    // SAFETY: as above.
    let out = unsafe { call.outputs[0].slice_mut::<T>() };
    out.fill(T::zero());
    for i in 0..count {
        for at in (0..n).map(|k| i * n * n + k * (n + 1)) {
            out[at] = dy[i] / a[at];
        }
    }
    Ok(())
}
