//! Scalar references: what the fast kernels are tested against. Short and obvious, never used to
//! compute.

use super::gemm::Mat;
use super::layer_norm::Rows;
use super::real::Real;
use super::rnn::{Cell, Layer, Weights};
use super::softmax::Softmax;
use crate::dtype::Element;

/// Reproducible values in about -1 to 1.
pub fn noise(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect()
}

/// Whether all values are equal within `tolerance`, relative to the larger of 1 and the value.
pub fn close<T: Real>(a: &[T], b: &[T], tolerance: f64) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(x, y)| {
            let (x, y) = (Element::to_f64(*x), Element::to_f64(*y));
            (x.is_nan() && y.is_nan()) || x == y || (x - y).abs() <= tolerance * y.abs().max(1.0)
        })
}

/// `C = A B` or `C += A B`.
///
/// # Safety
/// The matrices must hold these extents.
pub unsafe fn gemm<T: Real>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<T>,
    c: Mat<T>,
    add: bool,
) {
    for i in 0..m {
        for j in 0..n {
            // SAFETY: promised by the caller.
            unsafe {
                let sum: T = (0..k).map(|p| *a.at(i, p).ptr * *b.at(p, j).ptr).sum();
                let c = c.at(i, j).ptr;
                *c = if add { *c + sum } else { sum };
            }
        }
    }
}

/// Softmax (or its logarithm) and its gradient: `(y, dx)`.
pub fn softmax(
    s: &Softmax<f64>,
    x: &[f64],
    dy: &[f64],
    lengths: Option<&[usize]>,
) -> (Vec<f64>, Vec<f64>) {
    let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    for column in 0..s.outer * s.inner {
        let (o, c) = (column / s.inner, column % s.inner);
        let length = lengths.map_or(s.len, |l| l[column].min(s.len));
        let at = |i: usize| (o * s.len + i) * s.inner + c;
        let e: Vec<f64> = (0..length).map(|i| (x[at(i)] * s.scale).exp()).collect();
        let total: f64 = e.iter().sum();
        let p: Vec<f64> = e.iter().map(|e| e / total).collect();
        let weighted: f64 = (0..length).map(|i| dy[at(i)] * if s.log { 1.0 } else { p[i] }).sum();
        for i in 0..length {
            y[at(i)] = if s.log { p[i].ln() } else { p[i] };
            dx[at(i)] = s.scale
                * if s.log { dy[at(i)] - p[i] * weighted } else { p[i] * (dy[at(i)] - weighted) };
        }
    }
    (y, dx)
}

/// Layer normalisation and its gradients: `(y, dx, dgamma, dbeta)`.
pub fn layer_norm(
    l: &Rows<f64>,
    x: &[f64],
    gamma: &[f64],
    beta: &[f64],
    dy: &[f64],
) -> [Vec<f64>; 4] {
    let w = l.width;
    let [mut y, mut dx] = [vec![0.0; x.len()], vec![0.0; x.len()]];
    let [mut dgamma, mut dbeta] = [vec![0.0; w], vec![0.0; w]];
    for r in 0..l.rows {
        let at = |c: usize| r * w + c;
        let mean_of = |f: &dyn Fn(usize) -> f64| (0..w).map(f).sum::<f64>() / w as f64;
        let mean = mean_of(&|c| x[at(c)]);
        let std = (mean_of(&|c| (x[at(c)] - mean).powi(2)) + l.eps).sqrt();
        let z: Vec<f64> = (0..w).map(|c| (x[at(c)] - mean) / std).collect();
        let g: Vec<f64> = (0..w).map(|c| dy[at(c)] * gamma[c]).collect();
        let (a, b) = (mean_of(&|c| g[c]), mean_of(&|c| g[c] * z[c]));
        for c in 0..w {
            y[at(c)] = z[c] * gamma[c] + beta[c];
            dx[at(c)] = (g[c] - a - z[c] * b) / std;
            dgamma[c] += dy[at(c)] * z[c];
            dbeta[c] += dy[at(c)];
        }
    }
    [y, dx, dgamma, dbeta]
}

/// A recurrent layer, one sequence after the other: `(outputs, last h, last c)`.
pub fn rnn(
    l: &Layer<'_>,
    x: &[f64],
    w: &Weights<&[f64]>,
    h: &[f64],
    c: &[f64],
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (hid, st) = (l.hidden, l.state);
    // Row `i` of a matrix times a vector.
    let dot = |m: &[f64], i: usize, v: &[f64]| -> f64 {
        m[i * v.len()..].iter().zip(v).map(|(a, b)| a * b).sum()
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut out = vec![0.0; l.time * l.batch * st];
    let (mut h, mut c) = (h.to_vec(), c.to_vec());
    for n in 0..l.batch {
        let end = l.lengths.map_or(l.time, |all| all[n].min(l.time));
        for s in 0..end {
            let row = if l.reverse { end - 1 - s } else { s } * l.batch + n;
            let x = &x[row * l.input..(row + 1) * l.input];
            let old = h[n * st..(n + 1) * st].to_vec();
            let of_x = |gate: usize, j: usize| {
                dot(w.input, gate * hid + j, x) + w.input_bias[gate * hid + j]
            };
            let of_h = |gate: usize, j: usize| {
                dot(w.recurrent, gate * hid + j, &old) + w.recurrent_bias[gate * hid + j]
            };
            let sum = |gate: usize, j: usize| of_x(gate, j) + of_h(gate, j);
            let mut cell = |j: usize| match l.cell {
                Cell::Relu => sum(0, j).max(0.0),
                Cell::Tanh => sum(0, j).tanh(),
                Cell::Gru => {
                    let z = sigmoid(sum(1, j));
                    let new = (of_x(2, j) + sigmoid(sum(0, j)) * of_h(2, j)).tanh();
                    (1.0 - z) * new + z * old[j]
                }
                Cell::Lstm => {
                    let c = &mut c[n * hid + j];
                    *c = sigmoid(sum(1, j)) * *c + sigmoid(sum(0, j)) * sum(2, j).tanh();
                    *c = l.clip.map_or(*c, |(low, high)| c.clamp(low, high));
                    sigmoid(sum(3, j)) * c.tanh()
                }
            };
            let full: Vec<f64> = (0..hid).map(&mut cell).collect();
            for i in 0..st {
                h[n * st + i] =
                    if w.projection.is_empty() { full[i] } else { dot(w.projection, i, &full) };
                out[row * st + i] = h[n * st + i];
            }
        }
    }
    (out, h, c)
}
