//! Scalar references: what the fast kernels are tested against. Short and obvious, never used to compute.

use super::gemm::Mat;
use super::real::Real;
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

/// Are all values equal within `tolerance`, relative to the larger of 1 and the value?
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
