//! Products of self-attention and of attention between two sequences, on projections whose heads
//! are interleaved: `interleaved_matmul_*`.

use super::infer::{complete, expect_rank, float_type};
use super::widening;
use crate::error::{Error, Result};
use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::parallel::parallel_for;
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq};
use crate::ops::tensor::common::zero_view;
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};

params! {
    /// Parameters of the products of attention.
    pub struct AttentionParam {
        heads: i32, required.ge(1.0), "Number of heads.";
    }
}

/// Where the projections of an operator are: how many are interleaved in an input, and which one.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Projection {
    pub input: usize,
    pub of: usize,
    pub which: usize,
}

/// Scores of queries and keys, or sums of values weighted by scores.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Kind {
    /// `q k' / sqrt(d)`.
    Scores { queries: Projection, keys: Projection },
    /// `attention v`, for the values at this place and the scores in input 1.
    Values(Projection),
}

pub(in crate::ops) const fn place(input: usize, of: usize, which: usize) -> Projection {
    Projection { input, of, which }
}

pub(in crate::ops) const SELF_QK: Kind =
    Kind::Scores { queries: place(0, 3, 0), keys: place(0, 3, 1) };
pub(in crate::ops) const SELF_VALUES: Kind = Kind::Values(place(0, 3, 2));
pub(in crate::ops) const ENCDEC_QK: Kind =
    Kind::Scores { queries: place(0, 1, 0), keys: place(1, 2, 0) };
pub(in crate::ops) const ENCDEC_VALUES: Kind = Kind::Values(place(0, 2, 1));

/// A kernel for each kind, since a widened kernel is a plain function.
macro_rules! kernel_of {
    (one $body:ident, $of:ident) => {
        widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => $body::<T>(c, $of)))
    };
    ($kind:expr, $body:ident) => {
        match $kind {
            Kind::Scores { queries: Projection { of: 3, .. }, .. } => kernel_of!(one $body, SELF_QK),
            Kind::Scores { .. } => kernel_of!(one $body, ENCDEC_QK),
            Kind::Values(Projection { of: 3, .. }) => kernel_of!(one $body, SELF_VALUES),
            Kind::Values(_) => kernel_of!(one $body, ENCDEC_VALUES),
        }
    };
}

const SHAPES: &str = "One dtype: float16 (calculated in float32), float32 or float64.";

fn text(what: &str, notes: &str, example: &str) -> String {
    format!("{what}\n\nNotes\n-----\n{notes} {SHAPES}\n\nExamples\n--------\n{example}\n")
}

pub fn operators() -> Vec<OpDef> {
    let both = |name: &'static str, kind: Kind, inputs: &[(&str, &str)], doc: String| {
        let (own, back) = (format!("_contrib_{name}"), format!("_backward_{name}"));
        [
            OpDef::new::<AttentionParam>(&own)
                .doc(&doc)
                .inputs_are(inputs)
                .infer_shape(move |attrs, i, o| infer_shape(kind, attrs, i, o))
                .infer_type(float_type)
                .expensive()
                .gradient(Gradient::use_in(&back))
                .kernel(kernel_of!(kind, forward)),
            OpDef::new::<AttentionParam>(&back).kernel(kernel_of!(kind, backward)),
        ]
    };
    let qkv = ("queries_keys_values", "Interleaved projections (L, B, 3 * heads * d).");
    let kv = ("keys_values", "Interleaved projections (L, B, 2 * heads * d).");
    let attention = ("attention", "Scores (B * heads, rows, L).");
    [
        both(
            "interleaved_matmul_selfatt_qk",
            SELF_QK,
            &[qkv],
            text(
                "The scores of self-attention, ``q k' / sqrt(d)``, for every image and head.",
                "The last axis of ``(L, B, 3 * heads * d)`` holds, head by head, query, key and \
                 value. The output is ``(B * heads, L, L)``.",
                ">>> nd.contrib.interleaved_matmul_selfatt_qk(nd.array([[[2, 3, 9]]]), heads=1)\n\
                 [[[6.]]]",
            ),
        ),
        both(
            "interleaved_matmul_selfatt_valatt",
            SELF_VALUES,
            &[qkv, attention],
            text(
                "The values of self-attention, weighted by scores.",
                "The last axis of ``(L, B, 3 * heads * d)`` holds, head by head, query, key and \
                 value; attention is ``(B * heads, L, L)``. The output is ``(L, B, heads * d)``.",
                ">>> x = nd.array([[[2, 3, 9]]])\n>>> \
                 nd.contrib.interleaved_matmul_selfatt_valatt(x, nd.array([[[0.5]]]), heads=1)\n\
                 [[[4.5]]]",
            ),
        ),
        both(
            "interleaved_matmul_encdec_qk",
            ENCDEC_QK,
            &[("queries", "Queries (Lq, B, heads * d)."), kv],
            text(
                "The scores of attention between two sequences, ``q k' / sqrt(d)``, for every \
                 image and head.",
                "``queries`` ``(Lq, B, heads * d)``, and ``keys_values`` ``(L, B, 2 * heads * d)`` \
                 with, head by head, key and value. The output is ``(B * heads, Lq, L)``.",
                ">>> q, kv = nd.array([[[2]]]), nd.array([[[3, 9]]])\n>>> \
                 nd.contrib.interleaved_matmul_encdec_qk(q, kv, heads=1)\n[[[6.]]]",
            ),
        ),
        both(
            "interleaved_matmul_encdec_valatt",
            ENCDEC_VALUES,
            &[kv, attention],
            text(
                "The values of attention between two sequences, weighted by scores.",
                "``keys_values`` ``(L, B, 2 * heads * d)`` with, head by head, key and value, and \
                 attention ``(B * heads, Lq, L)``. The output is ``(Lq, B, heads * d)``.",
                ">>> kv, a = nd.array([[[3, 9]]]), nd.array([[[0.5]]])\n>>> \
                 nd.contrib.interleaved_matmul_encdec_valatt(kv, a, heads=1)\n[[[4.5]]]",
            ),
        ),
    ]
    .concat()
}

pub(in crate::ops) fn heads(attrs: &Attrs) -> i64 {
    attrs.get::<AttentionParam>().heads.into()
}

/// Features of one head in an input with `of` interleaved projections; -1 if not known.
fn features(shape: &Shape, name: &str, heads: i64, of: i64) -> Result<i64> {
    match shape.dims() {
        [_, _, n] if *n >= 0 && (*n == 0 || n % (heads * of) != 0) => {
            let expected = format!("a last extent divisible by {}", heads * of);
            Err(Error::argument(name, "shape", shape, expected))
        }
        [_, _, n] if *n >= 0 => Ok(n / (heads * of)),
        _ => Ok(-1),
    }
}

fn infer_shape(
    kind: Kind,
    attrs: &Attrs,
    inputs: &mut [Shape],
    outputs: &mut [Shape],
) -> Result<bool> {
    let heads = heads(attrs);
    for shape in inputs.iter() {
        expect_rank(shape, "data", 3..=3)?;
    }
    let dims =
        |s: &Shape| if s.rank_known() { [s.dims()[0], s.dims()[1], s.dims()[2]] } else { [-1; 3] };
    let times = |n: i64| if n < 0 { -1 } else { n.saturating_mul(heads) };
    match kind {
        Kind::Scores { queries, keys } => {
            let d = features(&inputs[queries.input], "queries", heads, queries.of as i64)?;
            features(&inputs[keys.input], "keys_values", heads, keys.of as i64)?;
            if queries.input != keys.input && d > 0 {
                let batch = dims(&inputs[queries.input])[1];
                let wanted = Shape::new(&[-1, batch, 2 * d * heads]);
                assign_shape(&mut inputs[keys.input], "keys_values", &wanted)?;
            }
            let (q, k) = (dims(&inputs[queries.input]), dims(&inputs[keys.input]));
            let out = Shape::new(&[times(q[1]), q[0], k[0]]);
            assign_shape(&mut outputs[0], "output", &out)?;
        }
        Kind::Values(values) => {
            let d = features(&inputs[0], "keys_values", heads, values.of as i64)?;
            let v = dims(&inputs[0]);
            let rows = if values.of == 3 { v[0] } else { -1 };
            let scores = Shape::new(&[times(v[1]), rows, v[0]]);
            assign_shape(&mut inputs[1], "attention", &scores)?;
            let out = Shape::new(&[dims(&inputs[1])[1], v[1], times(d)]);
            assign_shape(&mut outputs[0], "output", &out)?;
        }
    }
    complete(inputs, outputs)
}

/// The matrix (L, d) of one image and head among `of` interleaved projections.
fn projection<T: Real>(view: &View, place: Projection, heads: usize, at: usize) -> Mat<T> {
    let (batch, width) = (view.dims()[1] as usize, view.dims()[2] as usize);
    let d = width / (heads * place.of);
    let start = at / heads * width + (at % heads * place.of + place.which) * d;
    // SAFETY: the image and the head exist.
    Mat { ptr: unsafe { view.as_ptr::<T>().add(start) }, row: (batch * width) as isize, col: 1 }
}

/// The scores (rows, L) of one image and head.
fn scores<T: Real>(view: &View, at: usize) -> Mat<T> {
    let (rows, columns) = (view.dims()[1] as usize, view.dims()[2] as usize);
    // SAFETY: the image and the head exist.
    Mat::rows(unsafe { view.as_ptr::<T>().add(at * rows * columns) }, columns)
}

/// Extents of the products: how many, rows, length of the sequence, features of a head.
pub(in crate::ops) fn extents(
    kind: Kind,
    heads: usize,
    inputs: &[View],
    rows: usize,
) -> [usize; 4] {
    let place = match kind {
        Kind::Scores { keys, .. } => keys,
        Kind::Values(values) => values,
    };
    let d = inputs[place.input].dims();
    [d[1] as usize * heads, rows, d[0] as usize, d[2] as usize / (heads * place.of)]
}

fn scale<T: Real>(view: &View, d: usize) {
    let factor = T::one() / T::of(d as f64).sqrt();
    // SAFETY: an output is the kernel's to write.
    unsafe { view.slice_mut::<T>() }.iter_mut().for_each(|v| *v *= factor);
}

fn forward<T: Real>(call: &Call<'_>, kind: Kind) -> Result<()> {
    let out = &call.outputs[0];
    if call.req[0] == OpReq::Null || out.size() == 0 {
        return Ok(());
    }
    let heads = heads(call.attrs) as usize;
    let rows = match kind {
        Kind::Scores { .. } => out.dims()[1],
        Kind::Values(_) => out.dims()[0],
    };
    let [count, m, l, d] = extents(kind, heads, call.inputs, rows as usize);
    parallel_for(count, 1, |range| {
        for at in range {
            let of = |p: Projection| projection::<T>(&call.inputs[p.input], p, heads, at);
            // SAFETY: the extents are those of the views; outputs of images and heads are apart.
            unsafe {
                match kind {
                    Kind::Scores { queries, keys } => {
                        gemm(
                            (m, l, d),
                            of(queries),
                            of(keys).t(),
                            scores(out, at),
                            false,
                            Threads::One,
                        );
                    }
                    Kind::Values(values) => {
                        let to = projection(out, place(0, 1, 0), heads, at);
                        gemm(
                            (m, d, l),
                            scores(&call.inputs[1], at),
                            of(values),
                            to,
                            false,
                            Threads::One,
                        );
                    }
                }
            }
        }
    });
    if matches!(kind, Kind::Scores { .. }) {
        scale::<T>(out, d);
    }
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>, kind: Kind) -> Result<()> {
    let (dy, inputs) = (&call.inputs[0], &call.inputs[1..]);
    let heads = heads(call.attrs) as usize;
    let rows = match kind {
        Kind::Scores { .. } => dy.dims()[1],
        Kind::Values(_) => dy.dims()[0],
    };
    let [count, m, l, d] = extents(kind, heads, inputs, rows as usize);
    let wanted = |i: usize| call.req[i] != OpReq::Null && call.outputs[i].size() > 0;
    for (_, out) in call.outputs.iter().enumerate().filter(|(i, _)| wanted(*i)) {
        zero_view(out);
    }
    parallel_for(count, 1, |range| {
        for at in range {
            let of = |p: Projection| projection::<T>(&inputs[p.input], p, heads, at);
            let into = |p: Projection| projection::<T>(&call.outputs[p.input], p, heads, at);
            // SAFETY: as in `forward`.
            unsafe {
                match kind {
                    Kind::Scores { queries, keys } => {
                        let g = scores::<T>(dy, at);
                        if wanted(queries.input) {
                            gemm((m, d, l), g, of(keys), into(queries), false, Threads::One);
                        }
                        if wanted(keys.input) {
                            gemm((l, d, m), g.t(), of(queries), into(keys), false, Threads::One);
                        }
                    }
                    Kind::Values(values) => {
                        let g = projection::<T>(dy, place(0, 1, 0), heads, at);
                        if wanted(values.input) {
                            let weights = scores::<T>(&inputs[1], at).t();
                            gemm((l, d, m), weights, g, into(values), false, Threads::One);
                        }
                        if wanted(1) {
                            let to = scores(&call.outputs[1], at);
                            gemm((m, l, d), g, of(values).t(), to, false, Threads::One);
                        }
                    }
                }
            }
        }
    });
    if matches!(kind, Kind::Scores { .. }) {
        let all = call.outputs.iter().enumerate().filter(|(i, _)| wanted(*i));
        all.for_each(|(_, out)| scale::<T>(out, d));
    }
    Ok(())
}
