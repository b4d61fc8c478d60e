//! Matrix products `C = A B` and `C += A B` over strided views.
//!
//! Large products are split on the pool's threads; inside an already split kernel ask for
//! [`Threads::One`]. Sums are cut by extents only, so threads do not change a bit of the result.
//!
//! Products of [few rows](few), a vector's above all, read the large operand where it is, and
//! [tiny] ones both. The [micro-kernel](micro) multiplies large matrices, and those with a
//! transposed or a packed operand, where it is up to four times faster than the crate `gemm`; for
//! the rest the crate is level with it or faster (`cargo bench --bench kernels gemm`).

pub mod blocked;
pub mod few;
pub mod micro;
pub mod pack;
pub mod packed;
pub mod tiny;
mod unpacked;
pub mod vector;

use super::parallel::{in_pool, parallel_for};
use super::real::Real;
use gemm::Parallelism;
use std::ops::Range;

/// A matrix as an address and two steps, in elements.
#[derive(Clone, Copy)]
pub struct Mat<T> {
    pub ptr: *mut T,
    /// From one row to the next.
    pub row: isize,
    /// From one column to the next.
    pub col: isize,
}

// SAFETY: only an address with steps; kernels keep what their threads write apart.
unsafe impl<T> Send for Mat<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Mat<T> {}

impl<T> Mat<T> {
    /// The matrix that starts `elems` elements on.
    ///
    /// # Safety
    /// It must lie in the same buffer.
    pub unsafe fn skip(&self, elems: usize) -> Self
    where
        T: Copy,
    {
        // SAFETY: promised by the caller.
        Mat { ptr: unsafe { self.ptr.add(elems) }, ..*self }
    }

    /// Row-major with `width` elements a row.
    pub fn rows(ptr: *mut T, width: usize) -> Self {
        Mat { ptr, row: width as isize, col: 1 }
    }

    /// The transposed matrix.
    pub fn t(self) -> Self {
        Mat { ptr: self.ptr, row: self.col, col: self.row }
    }

    /// Transposed if `yes`.
    pub fn t_if(self, yes: bool) -> Self {
        if yes { self.t() } else { self }
    }

    /// The part that starts at element `(i, j)`.
    ///
    /// # Safety
    /// The element must exist.
    pub unsafe fn at(self, i: usize, j: usize) -> Self {
        // SAFETY: promised by the caller.
        let ptr = unsafe { self.ptr.offset(i as isize * self.row + j as isize * self.col) };
        Mat { ptr, ..self }
    }
}

/// How many threads a product may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    One,
    Pool,
}

impl Threads {
    /// Calls `f` on parts of `0..n` of `grain` items each.
    pub fn split(self, n: usize, grain: usize, f: impl Fn(Range<usize>) + Send + Sync) {
        match self {
            Threads::Pool => parallel_for(n, grain, f),
            Threads::One if n > 0 => f(0..n),
            Threads::One => {}
        }
    }
}

/// Multiplications below which a product is not worth splitting.
const SPLIT_FROM: usize = 48 * 48 * 256;

/// From this many rows, columns and elements of `C` on, the micro-kernel is the faster one.
const LARGE: usize = 512;
const LARGE_AREA: usize = 1 << 20;
/// Of few rows, it is from this many terms and columns and this large a right operand on.
const VAST: usize = 768;
const VAST_AREA: usize = 1_000_000;
/// With fewer columns than this, most of a tile would be padding.
const NARROW: usize = 32;
/// Up to this many rows and from this many terms on, packing a transposed right operand costs more
/// than it saves.
const FEW_ROWS: usize = 64;
const LONG: usize = 256;

/// `C (m, n) = A (m, k) B (k, n)`, added to `C` if `add`.
///
/// # Safety
/// The matrices must hold these extents, and `c` must not overlap `a` or `b`.
pub unsafe fn gemm<T: Real>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<T>,
    c: Mat<T>,
    add: bool,
    threads: Threads,
) {
    if let Some((size, [a, b, c])) = few::oriented((m, n, k), [a, b, c]) {
        // SAFETY: promised by the caller.
        return unsafe { few::multiply(size, a, b, c, add, threads) };
    }
    if tiny::pays((m, n, k), a, c) {
        // SAFETY: promised by the caller.
        return unsafe { tiny::multiply((m, n, k), a, b, c, add) };
    }
    let is_transposed = b.row == 1;
    let is_large = m.min(n) >= LARGE && m.saturating_mul(n) >= LARGE_AREA;
    let is_vast = k.min(n) >= VAST && k.saturating_mul(n) >= VAST_AREA;
    let is_large = is_large || is_vast && (16..=FEW_ROWS).contains(&m);
    if c.col == 1 && k > 1 && ((is_transposed && m > 1) || is_large) {
        let is_long = is_transposed && (8..=FEW_ROWS).contains(&m) && n >= m && k >= LONG;
        // SAFETY: promised by the caller.
        unsafe {
            if is_long {
                return unpacked::multiply((n, m, k), b.t(), a.t(), c.t(), add, threads);
            } else if n >= m.min(NARROW) {
                return blocked::multiply((m, n, k), a, b, c, add, threads);
            }
        }
    }
    // SAFETY: promised by the caller.
    unsafe { product((m, n, k), a, b, c, add, threads) }
}

/// The crate's product; extents and promises as for [`gemm`].
///
/// # Safety
/// As for [`gemm`].
unsafe fn product<T: Real>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<T>,
    c: Mat<T>,
    add: bool,
    threads: Threads,
) {
    let split = threads == Threads::Pool
        && m.saturating_mul(n).saturating_mul(k) >= SPLIT_FROM
        && in_pool(usize::MAX);
    let parallelism = if split { Parallelism::Rayon(0) } else { Parallelism::None };
    // SAFETY: promised by the caller; the crate's `alpha` scales C and `beta` the product.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.ptr,
            c.col,
            c.row,
            add,
            a.ptr.cast_const(),
            a.col,
            a.row,
            b.ptr.cast_const(),
            b.col,
            b.row,
            if add { T::one() } else { T::zero() },
            T::one(),
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// Multiplies small matrices of every type by the crate, so that it has detected the processor's
/// features and caches.
pub fn prepare() {
    fn multiply<T: Real>() {
        let (a, mut c) = ([T::one(); 64], [T::zero(); 64]);
        let a = Mat::rows(a.as_ptr().cast_mut(), 8);
        // SAFETY: three matrices of 8 by 8, of which the last is apart from the others; A and B are
        // only read.
        unsafe { product((8, 8, 8), a, a, Mat::rows(c.as_mut_ptr(), 8), false, Threads::One) };
    }
    multiply::<f32>();
    multiply::<f64>();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fork_join::tests::in_team;
    use crate::kernels::naive;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gemm_matches_naive(
            m in 0usize..40, n in 0usize..40, k in 0usize..70,
            ta: bool, tb: bool, add: bool, seed: u64,
        ) {
            let fill = |len: usize, salt: u64| naive::noise(len, seed ^ salt);
            let (mut a, mut b, c) = (fill(m * k, 1), fill(k * n, 2), fill(m * n, 3));
            let ma = Mat::rows(a.as_mut_ptr(), if ta { m } else { k }).t_if(ta);
            let mb = Mat::rows(b.as_mut_ptr(), if tb { k } else { n }).t_if(tb);
            let (mut got, mut want) = (c.clone(), c);
            // SAFETY: the buffers have these extents.
            unsafe {
                gemm((m, n, k), ma, mb, Mat::rows(got.as_mut_ptr(), n), add, Threads::One);
                naive::gemm((m, n, k), ma, mb, Mat::rows(want.as_mut_ptr(), n), add);
            }
            prop_assert!(naive::close(&got, &want, 1e-12));
        }
    }

    /// The paths of few and of some rows, with operands of every layout, on and off registers.
    #[test]
    fn few_rows_match_naive() {
        let shapes =
            [(2, 70, 300), (8, 8, 256), (9, 96, 700), (33, 64, 300), (64, 65, 257), (90, 32, 20)];
        for ((m, n, k), kind) in shapes.into_iter().flat_map(|s| (0..8).map(move |k| (s, k))) {
            let [ta, tb, add] = [kind & 1 > 0, kind & 2 > 0, kind & 4 > 0];
            let (mut a, mut b) = (naive::noise(m * k, 1), naive::noise(k * n, 2));
            let ma = Mat::rows(a.as_mut_ptr(), if ta { m } else { k }).t_if(ta);
            let mb = Mat::rows(b.as_mut_ptr(), if tb { k } else { n }).t_if(tb);
            let run = |threads| {
                let mut got = naive::noise(m * n, 3);
                // SAFETY: the buffers have these extents.
                unsafe { gemm((m, n, k), ma, mb, Mat::rows(got.as_mut_ptr(), n), add, threads) };
                got
            };
            let mut want = naive::noise(m * n, 3);
            // SAFETY: as above.
            unsafe { naive::gemm((m, n, k), ma, mb, Mat::rows(want.as_mut_ptr(), n), add) };
            let got = run(Threads::One);
            assert!(naive::close(&got, &want, 1e-12), "{m} {n} {k} {ta} {tb} {add}");
            assert_eq!(in_team(|| run(Threads::Pool)), got, "{m} {n} {k} {ta} {tb} {add}");
        }
    }

    /// Some rows of large products in every layout, off registers, in more than one band of rows
    /// or slab of terms.
    #[test]
    fn large_products_match_naive() {
        let many = [(1027, 1029, 2), (4999, LARGE + 1, 2)];
        let all = many.into_iter().flat_map(|s| (0..4).map(move |k| (s, k)));
        let few = [((17, 1003, 998), 0), ((64, 770, 1300), 5)];
        for ((m, n, k), kind) in all.chain([((LARGE, 2 * LARGE, 200), 4)]).chain(few) {
            let [ta, tb, add] = [kind & 1 > 0, kind & 2 > 0, kind > 2];
            let (mut a, mut b) = (naive::noise(m * k, 1), naive::noise(k * n, 2));
            let ma = Mat::rows(a.as_mut_ptr(), if ta { m } else { k }).t_if(ta);
            let mb = Mat::rows(b.as_mut_ptr(), if tb { k } else { n }).t_if(tb);
            let run = |threads| {
                let mut got = vec![1.0; m * n];
                // SAFETY: the buffers have these extents.
                unsafe { gemm((m, n, k), ma, mb, Mat::rows(got.as_mut_ptr(), n), add, threads) };
                got
            };
            let got = run(Threads::One);
            for row in [0, 1, m / 2, m - 1] {
                let mut want = vec![1.0; n];
                // SAFETY: A has this row.
                unsafe {
                    let of_row = ma.at(row, 0);
                    naive::gemm((1, n, k), of_row, mb, Mat::rows(want.as_mut_ptr(), n), add);
                }
                let got = &got[row * n..][..n];
                assert!(naive::close(got, &want, 1e-12), "{m} {n} {k} {ta} {tb} {add}");
            }
            assert_eq!(in_team(|| run(Threads::Pool)), got, "{m} {n} {k} {ta} {tb} {add}");
        }
    }

    #[test]
    fn long_products_with_a_vector_stay_exact() {
        let (k, n) = (100_003, 2);
        let (mut a, mut b) = (vec![0.1f32; k], vec![1f32; k * n]);
        let (ma, mb) = (Mat::rows(a.as_mut_ptr(), k), Mat::rows(b.as_mut_ptr(), n));
        for (add, start) in [(false, f32::NAN), (true, 5.0)] {
            let (mut row, mut column) = ([start; 2], [start; 2]);
            // SAFETY: the buffers have these extents.
            unsafe {
                let c = Mat::rows(row.as_mut_ptr(), n);
                gemm((1, n, k), ma, mb, c, add, Threads::One);
                let c = Mat::rows(column.as_mut_ptr(), 1);
                gemm((n, 1, k), mb.t(), ma.t(), c, add, Threads::One);
            }
            let want = 0.1f32 as f64 * k as f64 + if add { 5.0 } else { 0.0 };
            for got in row.into_iter().chain(column) {
                assert!((got as f64 / want - 1.0).abs() < 1e-5, "{got} for {want}");
            }
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        let (m, n, k) = (150, 130, 170);
        let (mut a, mut b) = (naive::noise(m * k, 5), naive::noise(k * n, 6));
        let run = |a: &mut [f64], b: &mut [f64]| {
            let mut c = vec![0.0; m * n];
            let (pa, pb) = (Mat::rows(a.as_mut_ptr(), k), Mat::rows(b.as_mut_ptr(), n));
            // SAFETY: the buffers have these extents.
            unsafe { gemm((m, n, k), pa, pb, Mat::rows(c.as_mut_ptr(), n), false, Threads::Pool) };
            c
        };
        let serial = run(&mut a, &mut b);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert_eq!(pool.install(|| run(&mut a, &mut b)), serial);
    }
}
