//! The right factor of a recurrence's products, packed once for all steps.
//!
//! A product of few rows would otherwise spend its time on bringing the same weights into the order
//! that the micro-kernel reads, step after step. Here columns stand in panels as wide as the
//! micro-kernel's tiles, each of them contiguous: the crate `gemm` takes those as they are.

use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::layout::copy_matrix;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;

/// Columns of a panel: a tile of the micro-kernel with AVX-512 and float32, two with AVX2 or
/// float64.
const WIDTH: usize = 48;
/// Multiplications that a task should have at least.
const GRAIN: usize = 1 << 20;
/// Left rows, over all products, from which packing pays.
const PACK_FROM: usize = 8;

/// A matrix `(k, n)`.
pub struct Panels<'a, T> {
    k: usize,
    n: usize,
    source: Mat<T>,
    /// Panels one after the other; empty if the source serves better as it is.
    packed: Vec<T>,
    borrowed: std::marker::PhantomData<&'a [T]>,
}

impl<'a, T: Real> Panels<'a, T> {
    /// Panels of the row-major `matrix (k, n)` or, with `transposed`, `(n, k)`, for products with
    /// `left_rows` rows in all.
    pub fn new(
        (k, n): (usize, usize),
        (matrix, transposed): (&'a [T], bool),
        left_rows: usize,
    ) -> Self {
        assert!(matrix.len() >= k * n);
        let ptr = matrix.as_ptr().cast_mut();
        let source = Mat::rows(ptr, if transposed { k } else { n }).t_if(transposed);
        let mut packed = Vec::new();
        if left_rows >= PACK_FROM {
            packed.resize(k * n, T::zero());
            let to = Shared(packed.as_mut_ptr());
            let grain = (1usize << 15).div_ceil(k.max(1) * WIDTH);
            parallel_for(n.div_ceil(WIDTH), grain, |panels| {
                for first in panels.map(|p| p * WIDTH) {
                    let width = WIDTH.min(n - first);
                    // SAFETY: columns from `first` on exist; panels are apart and end at `k * n`.
                    unsafe {
                        let to = Mat::rows(to.at(first * k), width);
                        copy_matrix((k, width), source.at(0, first), to);
                    }
                }
            });
        }
        Panels { k, n, source, packed, borrowed: std::marker::PhantomData }
    }

    /// `C (m, n) += A (m, k) B`.
    ///
    /// # Safety
    /// The matrices must hold these extents, and `c` must overlap neither `a` nor the source.
    pub unsafe fn multiply_add(&self, m: usize, a: Mat<T>, c: Mat<T>) {
        if self.packed.is_empty() {
            // SAFETY: promised by the caller; the source was checked.
            return unsafe { gemm((m, self.n, self.k), a, self.source, c, true, Threads::Pool) };
        }
        let packed = Shared(self.packed.as_ptr().cast_mut());
        let grain = GRAIN.div_ceil((m * self.k * WIDTH).max(1));
        parallel_for(self.n.div_ceil(WIDTH), grain, |panels| {
            for first in panels.map(|p| p * WIDTH) {
                let width = WIDTH.min(self.n - first);
                // SAFETY: promised by the caller; panels have columns of `c` of their own.
                unsafe {
                    let b = Mat::rows(packed.at(first * self.k), width);
                    gemm((m, width, self.k), a, b, c.at(0, first), true, Threads::One);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::naive;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn panels_match_naive(
            m in 1usize..5, k in 0usize..40, n in 0usize..110, transposed: bool, packs: bool, seed: u64,
        ) {
            let (mut a, b) = (naive::noise(m * k, seed), naive::noise(k * n, seed ^ 1));
            let (mut got, mut want) = (naive::noise(m * n, 3), naive::noise(m * n, 3));
            let left = Mat::rows(a.as_mut_ptr(), k);
            let right = Mat::rows(b.as_ptr().cast_mut(), if transposed { k } else { n });
            let panels = Panels::new((k, n), (&b, transposed), if packs { PACK_FROM } else { 1 });
            // SAFETY: the buffers have these extents.
            unsafe {
                panels.multiply_add(m, left, Mat::rows(got.as_mut_ptr(), n));
                let want = Mat::rows(want.as_mut_ptr(), n);
                naive::gemm((m, n, k), left, right.t_if(transposed), want, true);
            }
            prop_assert!(naive::close(&got, &want, 1e-12));
        }
    }
}
