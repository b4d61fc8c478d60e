//! The right factor of a recurrence's products, packed once for all steps.

use crate::kernels::gemm::packed::Packed;
use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::real::Real;

/// Left rows, over all products, from which packing pays.
const PACK_FROM: usize = 8;
/// Elements of the matrix from which a product of a single row reads it where it lies: two threads
/// then read it faster than one copy of it (measured from 64 to 1024 hidden values).
const FAR: usize = 1 << 17;

/// A matrix `(k, n)`.
pub struct Panels<'a, T> {
    k: usize,
    n: usize,
    source: Mat<T>,
    /// `None` if the source serves better as it is.
    packed: Option<Packed<T>>,
    borrowed: std::marker::PhantomData<&'a [T]>,
}

impl<'a, T: Real> Panels<'a, T> {
    /// The row-major `matrix (k, n)` or, with `transposed`, `(n, k)`, for `products` with up to
    /// `left_rows` rows each.
    pub fn new(
        (k, n): (usize, usize),
        (matrix, transposed): (&'a [T], bool),
        (left_rows, products): (usize, usize),
    ) -> Self {
        assert!(matrix.len() >= k * n);
        let ptr = matrix.as_ptr().cast_mut();
        let source = Mat::rows(ptr, if transposed { k } else { n }).t_if(transposed);
        let reads = left_rows == 1 && k * n >= FAR;
        let pays = !reads && left_rows.saturating_mul(products) >= PACK_FROM;
        // SAFETY: the slice was checked to hold the matrix.
        let packed = pays.then(|| unsafe { Packed::new((k, n), source) });
        Panels { k, n, source, packed, borrowed: std::marker::PhantomData }
    }

    /// `C (m, n) += A (m, k) B`.
    ///
    /// # Safety
    /// The matrices must hold these extents with contiguous rows, and `c` must overlap neither `a`
    /// nor the source.
    pub unsafe fn multiply_add(&self, m: usize, a: Mat<T>, c: Mat<T>) {
        // SAFETY: promised by the caller; the source was checked.
        unsafe {
            match &self.packed {
                Some(packed) => packed.multiply(m, a, c, true, Threads::Pool),
                None => gemm((m, self.n, self.k), a, self.source, c, true, Threads::Pool),
            }
        }
    }
}
