//! Cases that calculate: products of matrices, and convolutions.

use crate::arrays::{Input, Inputs};
use crate::case::{Answer, Case, Limit};
use rsnet::DType;

/// An element of the product of two matrices, each of which may be turned.
pub fn product_of((m, k, n): (usize, usize, usize), turned: [bool; 2]) -> Answer {
    Box::new(move |inputs, at| {
        let (i, j) = (at / n, at % n);
        let a = |p| if turned[0] { p * m + i } else { i * k + p };
        let b = |p| if turned[1] { j * k + p } else { p * n + j };
        (0..k).map(|p| inputs.at(0, a(p)) * inputs.at(1, b(p))).sum()
    })
}

/// The product `(m, k, n)` of two matrices, each of which may be turned.
pub fn product(
    name: &'static str,
    dtype: DType,
    (m, k, n): (usize, usize, usize),
    turned: [bool; 2],
) -> Case {
    let letter = |turned| if turned { 't' } else { 'n' };
    let dims = |turned, [rows, columns]: [usize; 2]| {
        if turned { [columns, rows] } else { [rows, columns] }
    };
    let texts = turned.map(|turned| turned.to_string());
    let [transpose_a, transpose_b] = texts;
    Case {
        name,
        extents: format!("m={m} k={k} n={n} layout={}{}", letter(turned[0]), letter(turned[1])),
        op: "dot",
        params: vec![("transpose_a", transpose_a), ("transpose_b", transpose_b)],
        inputs: vec![
            Input::new(dtype, &dims(turned[0], [m, k])),
            Input::new(dtype, &dims(turned[1], [k, n])),
        ],
        wanted: None,
        limit: Limit::Peak { work: 2.0 * (m * k * n) as f64, dtype },
        answer: product_of((m, k, n), turned),
    }
}

/// The product of bytes, whose right operand is always turned, with sums in int32.
fn byte_product((m, k, n): (usize, usize, usize)) -> Case {
    let turned = [false, true];
    let mut inputs = vec![Input::new(DType::I8, &[m, k]), Input::new(DType::I8, &[n, k])];
    inputs.extend((0..4).map(|_| Input::noise(&[1])));
    Case {
        op: "_contrib_quantized_fully_connected",
        params: vec![("num_hidden", n.to_string()), ("no_bias", "True".to_owned())],
        inputs,
        ..product("gemm_i8", DType::I8, (m, k, n), turned)
    }
}

pub fn products() -> Vec<Case> {
    let sizes = [
        (2048, 2048, 2048),
        (1024, 1024, 1024),
        (512, 512, 512),
        (256, 256, 256),
        (64, 64, 64),
        (128, 1024, 1024),
        (128, 64, 128),
        (64, 784, 128),
        (32, 4096, 1000),
        (32, 256, 1024),
        (4, 512, 512),
        (1, 1024, 1024),
    ];
    let mut cases = Vec::new();
    for size in sizes {
        for turned in [[false, false], [false, true], [true, false]] {
            let floats =
                [("gemm_f32", DType::F32), ("gemm_f64", DType::F64), ("gemm_f16", DType::F16)];
            cases.extend(floats.map(|(name, dtype)| product(name, dtype, size, turned)));
        }
        cases.push(byte_product(size));
    }
    cases
}

/// A convolution of squares by squares; channels are those of a group.
#[derive(Clone, Copy)]
struct Convolution {
    batch: usize,
    groups: usize,
    in_c: usize,
    out_c: usize,
    side: usize,
    k: usize,
    stride: usize,
    pad: usize,
    out: usize,
}

impl Convolution {
    /// Where tap `k` of output `o` reads on an axis, if inside.
    fn read(&self, o: usize, k: usize) -> Option<usize> {
        (o * self.stride + k).checked_sub(self.pad).filter(|&i| i < self.side)
    }

    /// The output whose tap `k` reads `i`.
    fn reader(&self, i: usize, k: usize) -> Option<usize> {
        let from = (i + self.pad).checked_sub(k).filter(|from| from.is_multiple_of(self.stride))?;
        Some(from / self.stride).filter(|&o| o < self.out)
    }

    /// Index in the data, of `(sample, channel, row, column)`.
    fn x(&self, [b, c, h, w]: [usize; 4]) -> usize {
        ((b * self.groups * self.in_c + c) * self.side + h) * self.side + w
    }

    /// Index in the weight, of `(filter, channel of its group, row, column)`.
    fn w(&self, [f, c, h, w]: [usize; 4]) -> usize {
        ((f * self.in_c + c) * self.k + h) * self.k + w
    }

    /// Index in the output, of `(sample, filter, row, column)`.
    fn y(&self, [b, f, h, w]: [usize; 4]) -> usize {
        ((b * self.groups * self.out_c + f) * self.out + h) * self.out + w
    }

    /// Calls `f` on all pairs below `n`.
    fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..n * n).map(move |i| (i / n, i % n))
    }

    /// An output; inputs are data and weight.
    fn forward(&self, inputs: &Inputs<'_>, at: usize) -> f64 {
        let [b, f, h, w] = split(at, [self.groups * self.out_c, self.out, self.out]);
        let mut sum = 0.0;
        for c in 0..self.in_c {
            for (kh, kw) in Self::pairs(self.k) {
                if let (Some(h), Some(w)) = (self.read(h, kh), self.read(w, kw)) {
                    let channel = f / self.out_c * self.in_c + c;
                    sum += inputs.at(0, self.x([b, channel, h, w]))
                        * inputs.at(1, self.w([f, c, kh, kw]));
                }
            }
        }
        sum
    }

    /// A gradient of the data; inputs are the output's gradient, data and weight.
    fn of_data(&self, inputs: &Inputs<'_>, at: usize) -> f64 {
        let [b, channel, h, w] = split(at, [self.groups * self.in_c, self.side, self.side]);
        let (group, c) = (channel / self.in_c, channel % self.in_c);
        let mut sum = 0.0;
        for f in group * self.out_c..(group + 1) * self.out_c {
            for (kh, kw) in Self::pairs(self.k) {
                if let (Some(h), Some(w)) = (self.reader(h, kh), self.reader(w, kw)) {
                    sum +=
                        inputs.at(0, self.y([b, f, h, w])) * inputs.at(2, self.w([f, c, kh, kw]));
                }
            }
        }
        sum
    }

    /// A gradient of the weight; inputs as for the data.
    fn of_weight(&self, inputs: &Inputs<'_>, at: usize) -> f64 {
        let [f, c, kh, kw] = split(at, [self.in_c, self.k, self.k]);
        let channel = f / self.out_c * self.in_c + c;
        let mut sum = 0.0;
        for b in 0..self.batch {
            for (oh, ow) in Self::pairs(self.out) {
                if let (Some(h), Some(w)) = (self.read(oh, kh), self.read(ow, kw)) {
                    sum += inputs.at(0, self.y([b, f, oh, ow]))
                        * inputs.at(1, self.x([b, channel, h, w]));
                }
            }
        }
        sum
    }
}

/// An index on four axes, of which the last three have these extents.
pub fn split(at: usize, [c, h, w]: [usize; 3]) -> [usize; 4] {
    [at / (c * h * w), at / (h * w) % c, at / w % h, at % w]
}

pub fn convolutions() -> Vec<Case> {
    // Batch, groups, channels in and out of a group, side, kernel, stride, padding.
    let all = [
        (8, 1, 64, 64, 56, 3, 1, 1),
        (8, 1, 256, 256, 14, 3, 1, 1),
        (32, 1, 16, 16, 32, 3, 1, 1),
        (32, 1, 64, 64, 8, 3, 1, 1),
        (32, 1, 16, 32, 32, 3, 2, 1),
        (8, 1, 256, 64, 56, 1, 1, 0),
        (8, 1, 3, 64, 224, 7, 2, 3),
        (64, 1, 20, 50, 12, 5, 1, 0),
        (16, 1, 64, 128, 32, 4, 2, 1),
        (8, 256, 1, 1, 28, 3, 1, 1),
    ];
    let mut cases = Vec::new();
    for (batch, groups, in_c, out_c, side, k, stride, pad) in all {
        let out = (side + 2 * pad - k) / stride + 1;
        let conv = Convolution { batch, groups, in_c, out_c, side, k, stride, pad, out };
        let [x, w, y] = [
            [batch, groups * in_c, side, side],
            [groups * out_c, in_c, k, k],
            [batch, groups * out_c, out, out],
        ]
        .map(|dims| Input::noise(&dims));
        let back = vec![y, x.clone(), w.clone()];
        let passes: [(_, _, _, _, Answer); 3] = [
            ("conv", "Convolution", vec![x, w], None, Box::new(move |i, at| conv.forward(i, at))),
            (
                "conv_data",
                "_backward_Convolution",
                back.clone(),
                Some(0),
                Box::new(move |i, at| conv.of_data(i, at)),
            ),
            (
                "conv_weight",
                "_backward_Convolution",
                back,
                Some(1),
                Box::new(move |i, at| conv.of_weight(i, at)),
            ),
        ];
        let square = |n: usize| format!("({n}, {n})");
        let outputs = (batch * groups * out_c * out * out) as f64;
        cases.extend(passes.map(|(name, op, inputs, wanted, answer)| Case {
            name,
            extents: format!(
                "batch={batch} groups={groups} channels={in_c}x{out_c} side={side} kernel={k} \
                 stride={stride}"
            ),
            op,
            params: vec![
                ("kernel", square(k)),
                ("stride", square(stride)),
                ("pad", square(pad)),
                ("num_filter", (groups * out_c).to_string()),
                ("num_group", groups.to_string()),
                ("no_bias", "True".to_owned()),
            ],
            inputs,
            wanted,
            limit: Limit::Peak { work: 2.0 * outputs * (in_c * k * k) as f64, dtype: DType::F32 },
            answer,
        }));
    }
    cases
}
