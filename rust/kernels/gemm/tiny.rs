//! Products of small matrices, of which stacks of matrices and attention heads are made: nothing is
//! packed that can be read where it is, and nothing allocated.

use super::Mat;
use super::micro::{Access, Kernels, TALLEST, Tile};
use super::pack::{RowPanels, lay, run_columns};
use crate::kernels::arch::{Level, level};
use crate::kernels::real::Real;
use std::mem::MaybeUninit;

/// Extents up to which this is the faster way.
const MOST_TERMS: usize = 64;
const MOST: usize = 1 << 14;
/// Elements of a panel of columns, at most.
const PANEL: usize = MOST_TERMS * 32;

/// Whether this is the faster way for a product.
pub fn pays<T>((m, n, k): (usize, usize, usize), a: Mat<T>, c: Mat<T>) -> bool {
    let fits = k <= MOST_TERMS && m.min(n) > 1 && m.saturating_mul(n).saturating_mul(k) <= MOST;
    fits && c.col == 1 && (a.col == 1 || a.row == 1)
}

/// The kernels whose registers the columns fill best.
fn kernels<T: Real>(n: usize) -> &'static Kernels<T> {
    let narrow = T::kernels_of(level().min(Level::Avx2));
    if n <= narrow.lanes { narrow } else { T::kernels() }
}

/// `C (m, n) = A (m, k) B (k, n)`, added to `C` if `add`.
///
/// # Safety
/// As [`super::gemm`]; [`pays`] holds.
pub unsafe fn multiply<T: Real>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<T>,
    c: Mat<T>,
    add: bool,
) {
    let kernels = kernels::<T>(n);
    let (lanes, width, rows) = (kernels.lanes, kernels.columns(), RowPanels::new(m, kernels));
    let offsets: [usize; TALLEST] = std::array::from_fn(|i| i * a.row as usize);
    let access = if a.col == 1 { Access::RowsByOffset } else { Access::Panels };
    let mut room = [const { MaybeUninit::<T>::uninit() }; PANEL];
    for first in (0..n).step_by(width) {
        let count = width.min(n - first);
        let registers = count.div_ceil(lanes);
        let is_whole = count == registers * lanes;
        // SAFETY: promised by the caller; the room holds `k` rows of two registers.
        unsafe {
            let right = b.at(0, first);
            let right = if right.col == 1 && is_whole {
                right
            } else {
                let to = Mat::rows(room.as_mut_ptr().cast::<T>(), registers * lanes);
                for p in 0..if is_whole { 0 } else { k } {
                    std::slice::from_raw_parts_mut(to.at(p, count).ptr, registers * lanes - count)
                        .fill(T::zero());
                }
                lay((k, count), right, to);
                to
            };
            for rows in (0..rows.count()).map(|i| rows.at(i)) {
                let (left, to) = (a.at(rows.start, 0), c.at(rows.start, first));
                let tile = Tile {
                    k,
                    a: left.ptr,
                    a_step: left.col as usize,
                    b: right.ptr,
                    b_step: right.row as usize,
                    b_next: lanes,
                    offsets: offsets.as_ptr(),
                    c: to.ptr,
                    c_step: to.row as usize,
                    c_next: lanes,
                    add,
                    bias: std::ptr::null(),
                };
                run_columns(kernels, access, &tile, (rows.len(), count));
            }
        }
    }
}
