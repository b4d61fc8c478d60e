//! Cases that move memory: what they calculate takes less time than its numbers take to arrive.

use crate::arrays::{Input, Inputs};
use crate::case::{Case, Limit};
use crate::compute::{product, split};
use rsnet::DType;

/// A kind of case, for any number of bytes.
struct Kind {
    name: &'static str,
    op: &'static str,
    params: &'static [(&'static str, &'static str)],
    /// The inputs of a call that reads and writes about this many bytes.
    inputs: fn(usize) -> Vec<Input>,
    /// An element of the first output.
    answer: fn(&Inputs<'_>, usize) -> f64,
}

const LAST: &[(&str, &str)] = &[("axis", "-1")];

const KINDS: &[Kind] = &[
    Kind {
        name: "copy",
        op: "_copy",
        params: &[],
        inputs: |bytes| vec![Input::noise(&[bytes / 8])],
        answer: |inputs, at| inputs.at(0, at),
    },
    Kind {
        name: "add",
        op: "elemwise_add",
        params: &[],
        inputs: |bytes| vec![Input::noise(&[bytes / 12]); 2],
        answer: |inputs, at| inputs.at(0, at) + inputs.at(1, at),
    },
    Kind {
        name: "softmax",
        op: "softmax",
        params: LAST,
        inputs: |bytes| vec![Input::noise(&rows(bytes / 8))],
        answer: |inputs, at| {
            let total: f64 = row_of(inputs, at).map(f64::exp).sum();
            inputs.at(0, at).exp() / total
        },
    },
    Kind {
        name: "log_softmax",
        op: "log_softmax",
        params: LAST,
        inputs: |bytes| vec![Input::noise(&rows(bytes / 8))],
        answer: |inputs, at| {
            let total: f64 = row_of(inputs, at).map(f64::exp).sum();
            inputs.at(0, at) - total.ln()
        },
    },
    Kind {
        name: "layer_norm",
        op: "LayerNorm",
        params: LAST,
        inputs: |bytes| {
            let [count, width] = rows(bytes / 8);
            [&[count, width][..], &[width], &[width]].map(Input::noise).to_vec()
        },
        answer: |inputs, at| {
            let [_, width] = inputs.dims(0);
            normalised(inputs, at, at % width, 1e-5, || row_of(inputs, at))
        },
    },
    Kind {
        name: "sum_of_rows",
        op: "sum",
        params: &[("axis", "1")],
        inputs: |bytes| vec![Input::noise(&square(bytes / 4))],
        answer: |inputs, at| nth_row(inputs, at).sum(),
    },
    Kind {
        name: "max_of_rows",
        op: "max",
        params: &[("axis", "1")],
        inputs: |bytes| vec![Input::noise(&square(bytes / 4))],
        answer: |inputs, at| nth_row(inputs, at).fold(f64::NEG_INFINITY, f64::max),
    },
    Kind {
        name: "norm_of_rows",
        op: "norm",
        params: &[("axis", "1")],
        inputs: |bytes| vec![Input::noise(&square(bytes / 4))],
        answer: |inputs, at| nth_row(inputs, at).map(|x| x * x).sum::<f64>().sqrt(),
    },
    Kind {
        name: "sum_of_columns",
        op: "sum",
        params: &[("axis", "0")],
        inputs: |bytes| vec![Input::noise(&square(bytes / 4))],
        answer: |inputs, at| {
            let [count, width] = inputs.dims(0);
            (0..count).map(|row| inputs.at(0, row * width + at)).sum()
        },
    },
    Kind {
        name: "batch_norm",
        op: "BatchNorm",
        params: &[("fix_gamma", "False"), ("eps", "1e-5")],
        inputs: |bytes| {
            let [n, c, h, w] = images(bytes / 8);
            let of_channels = vec![Input::noise(&[c]); 4];
            [vec![Input::noise(&[n, c, h, w])], of_channels].concat()
        },
        answer: |inputs, at| {
            let [n, c, h, w] = inputs.dims(0);
            let [_, channel, ..] = split(at, [c, h, w]);
            let plane = move |b: usize| (b * c + channel) * h * w;
            normalised(inputs, at, channel, 1e-5, || {
                (0..n).flat_map(move |b| (0..h * w).map(move |i| inputs.at(0, plane(b) + i)))
            })
        },
    },
    Kind {
        name: "max_pooling",
        op: "Pooling",
        params: &[("pool_type", "max"), ("kernel", "(2, 2)"), ("stride", "(2, 2)")],
        inputs: |bytes| vec![Input::noise(&images(bytes / 5))],
        answer: |inputs, at| window::<2>(inputs, at).fold(f64::NEG_INFINITY, f64::max),
    },
    Kind {
        name: "average_pooling",
        op: "Pooling",
        params: &[("pool_type", "avg"), ("kernel", "(3, 3)"), ("stride", "(2, 2)")],
        inputs: |bytes| vec![Input::noise(&images(bytes / 5))],
        answer: |inputs, at| window::<3>(inputs, at).sum::<f64>() / 9.0,
    },
    Kind {
        name: "transpose",
        op: "transpose",
        params: &[("axes", "(1, 0)")],
        inputs: |bytes| vec![Input::noise(&square(bytes / 8))],
        answer: |inputs, at| {
            let [count, width] = inputs.dims(0);
            inputs.at(0, at % count * width + at / count)
        },
    },
    Kind {
        name: "channels_last",
        op: "transpose",
        params: &[("axes", "(1, 2, 0)")],
        inputs: |bytes| {
            let [height, width] = square(bytes / 24);
            vec![Input::noise(&[3, height, width])]
        },
        answer: |inputs, at| {
            let [channels, height, width] = inputs.dims(0);
            inputs.at(0, at % channels * height * width + at / channels)
        },
    },
    Kind {
        name: "take",
        op: "take",
        params: &[],
        inputs: |bytes| {
            let count = (bytes / (8 * ROW)).max(1);
            vec![Input::noise(&[count, ROW]), Input::row_numbers(count, count)]
        },
        answer: |inputs, at| inputs.at(0, inputs.at(1, at / ROW) as usize * ROW + at % ROW),
    },
];

/// Elements of a row that `take` takes.
const ROW: usize = 64;

/// Rows of 4,096, or a shorter one.
fn rows(elements: usize) -> [usize; 2] {
    let width = elements.min(4096);
    [elements / width, width]
}

fn square(elements: usize) -> [usize; 2] {
    [(elements as f64).sqrt() as usize; 2]
}

/// Up to 64 channels of images of up to 56 by 56.
fn images(elements: usize) -> [usize; 4] {
    let [side, _] = square(elements).map(|side| side.min(56));
    let planes = elements / (side * side);
    let channels = planes.min(64);
    [planes / channels, channels, side, side]
}

/// Row `row` of the first input, a matrix.
fn nth_row<'a>(inputs: &'a Inputs<'_>, row: usize) -> impl Iterator<Item = f64> + 'a {
    let [_, width] = inputs.dims(0);
    (row * width..(row + 1) * width).map(|i| inputs.at(0, i))
}

/// The row of the first input that has element `at`.
fn row_of<'a>(inputs: &'a Inputs<'_>, at: usize) -> impl Iterator<Item = f64> + 'a {
    let [_, width] = inputs.dims(0);
    nth_row(inputs, at / width)
}

/// Element `at` of the first input, normalised by `group`, with scale and shift number `k`.
fn normalised<I: Iterator<Item = f64>>(
    inputs: &Inputs<'_>,
    at: usize,
    k: usize,
    eps: f64,
    group: impl Fn() -> I,
) -> f64 {
    let count = group().count() as f64;
    let mean = group().sum::<f64>() / count;
    let variance = group().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
    (inputs.at(0, at) - mean) / (variance + eps).sqrt() * inputs.at(1, k) + inputs.at(2, k)
}

/// The window of `K` by `K` behind output `at` of a pooling with stride 2.
fn window<'a, const K: usize>(inputs: &'a Inputs<'_>, at: usize) -> impl Iterator<Item = f64> + 'a {
    let [_, channels, height, width] = inputs.dims(0);
    let [out_h, out_w] = [height, width].map(|side| (side - K) / 2 + 1);
    let [n, c, h, w] = split(at, [channels, out_h, out_w]);
    let first = ((n * channels + c) * height + 2 * h) * width + 2 * w;
    (0..K * K).map(move |i| inputs.at(0, first + i / K * width + i % K))
}

/// Products that read each element of a matrix for few multiplications: by a vector, and of few
/// rows.
fn few_rows(bytes: usize) -> Vec<Case> {
    let [k, n] = square(bytes / 4);
    let kinds = [("rows_1", 1), ("rows_2", 2), ("rows_8", 8)];
    let both = kinds.into_iter().flat_map(|kind| [false, true].map(|turned| (kind, turned)));
    both.map(|((name, m), turned)| Case {
        limit: Limit::Copy,
        ..product(name, DType::F32, (m, k, n), [false, turned])
    })
    .collect()
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in (0..10).map(|i| 1024usize << (2 * i)) {
        cases.extend(KINDS.iter().map(|kind| {
            let inputs = (kind.inputs)(bytes);
            let dims = inputs[0].dims.iter().map(usize::to_string).collect::<Vec<_>>();
            Case {
                name: kind.name,
                extents: format!("shape={}", dims.join("x")),
                op: kind.op,
                params: kind
                    .params
                    .iter()
                    .map(|(name, text)| (*name, (*text).to_owned()))
                    .collect(),
                inputs,
                wanted: None,
                limit: Limit::Copy,
                answer: Box::new(kind.answer),
            }
        }));
        cases.extend(few_rows(bytes));
    }
    cases
}
