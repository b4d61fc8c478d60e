//! Scalar references: what the fast kernels are tested against. Short and obvious, never used to compute.

use super::gemm::Mat;
use super::real::Real;
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
