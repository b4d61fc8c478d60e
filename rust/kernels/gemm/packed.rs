//! A right operand that is packed once, for several products with few rows each.
//!
//! Such a product would otherwise spend its time on bringing the same matrix into the order that
//! the micro-kernel reads.

use super::micro::{Access, TALLEST, Tile};
use super::pack::{Columns, RowPanels, run_columns, slabs};
use super::{Mat, Threads};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;

/// Multiplications that a task should have at least.
const GRAIN: usize = 1 << 18;
/// Elements that a task should pack at least.
const PACK_GRAIN: usize = 1 << 15;

/// A matrix `(k, n)` in panels of as many columns as a tile has, each with all terms.
pub struct Packed<T> {
    k: usize,
    n: usize,
    panels: Vec<T>,
}

impl<T: Real> Packed<T> {
    /// Packs the matrix.
    ///
    /// # Safety
    /// It has this extent.
    pub unsafe fn new((k, n): (usize, usize), matrix: Mat<T>) -> Self {
        let width = T::kernels().columns();
        let room = k * n.next_multiple_of(width);
        let mut panels = Vec::with_capacity(room);
        let to = Shared(panels.as_mut_ptr());
        let grain = PACK_GRAIN.div_ceil((k * width).max(1));
        parallel_for(n.div_ceil(width), grain, |some| {
            let columns = some.start * width..n.min(some.end * width);
            // SAFETY: promised by the caller; panels are apart and fill the room.
            unsafe { matrix.pack(0..k, columns, width, to.at(some.start * width * k)) };
        });
        // SAFETY: every panel was written whole.
        unsafe { panels.set_len(room) };
        Packed { k, n, panels }
    }

    /// `C (m, n) = A (m, k) B`, added to `C` if `add`.
    ///
    /// # Safety
    /// The matrices have these extents and do not overlap; rows of both are contiguous.
    pub unsafe fn multiply(&self, m: usize, a: Mat<T>, c: Mat<T>, add: bool, threads: Threads) {
        let width = T::kernels().columns();
        let rows = RowPanels::new(m, T::kernels());
        let grain = GRAIN.div_ceil((m * self.k * width).max(1));
        threads.split(self.n.div_ceil(width), grain, |panels| {
            for first in panels.map(|i| i * width) {
                let columns = width.min(self.n - first);
                // SAFETY: promised by the caller; panels have columns of `c` of their own.
                unsafe {
                    let b = self.panels.as_ptr().add(first * self.k);
                    multiply_panel((rows, columns, self.k), a, b, c.at(0, first), add);
                }
            }
        });
    }
}

/// The products of all rows of `a` and a packed panel.
///
/// # Safety
/// As [`Packed::multiply`].
unsafe fn multiply_panel<T: Real>(
    (rows, columns, k): (RowPanels, usize, usize),
    a: Mat<T>,
    b: *const T,
    c: Mat<T>,
    add: bool,
) {
    let kernels = T::kernels();
    let (lanes, width) = (kernels.lanes, kernels.columns());
    let offsets: [usize; TALLEST] = std::array::from_fn(|i| i * a.row as usize);
    for slab in slabs::<T>(k) {
        let add = add || slab.start > 0;
        for rows in (0..rows.count()).map(|i| rows.at(i)) {
            // SAFETY: promised by the caller; a panel has whole registers of columns.
            unsafe {
                let to = c.at(rows.start, 0);
                let tile = Tile {
                    k: slab.len(),
                    a: a.at(rows.start, slab.start).ptr,
                    a_step: 0,
                    b: b.add(slab.start * width),
                    b_step: width,
                    b_next: lanes,
                    offsets: offsets.as_ptr(),
                    c: to.ptr,
                    c_step: to.row as usize,
                    c_next: lanes,
                    add,
                    bias: std::ptr::null(),
                };
                run_columns(kernels, Access::RowsByOffset, &tile, (rows.len(), columns));
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fork_join::tests::in_team;
    use crate::kernels::naive;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_matches_naive(
            m in 0usize..20, k in 0usize..450, n in 0usize..110, spare in 0usize..3,
            transposed: bool, add: bool, seed: u64,
        ) {
            let (mut a, b) = (naive::noise(m * (k + spare), seed), naive::noise(k * n, seed ^ 1));
            let c = naive::noise(m * (n + spare), 3);
            let left = Mat::rows(a.as_mut_ptr(), k + spare);
            let right = Mat::rows(b.as_ptr().cast_mut(), if transposed { k } else { n });
            let right = right.t_if(transposed);
            let run = |threads| {
                let mut got = c.clone();
                // SAFETY: the buffers have these extents.
                unsafe {
                    let to = Mat::rows(got.as_mut_ptr(), n + spare);
                    Packed::new((k, n), right).multiply(m, left, to, add, threads);
                }
                got
            };
            let mut want = c.clone();
            // SAFETY: as above.
            unsafe {
                let to = Mat::rows(want.as_mut_ptr(), n + spare);
                naive::gemm((m, n, k), left, right, to, add);
            }
            let got = run(Threads::One);
            prop_assert!(naive::close(&got, &want, 1e-12));
            prop_assert_eq!(in_team(|| run(Threads::Pool)), got);
        }
    }
}
