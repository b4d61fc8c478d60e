//! Products whose left operand is read where it is: its rows are contiguous, and each is read by
//! few tiles, so packing it would cost more than it saves.
//!
//! This is how a fully connected layer meets its weights: `y = x Wᵀ` is calculated as
//! `yᵀ = W xᵀ`, where the many weights are read once and the few rows of `x` are packed (unless
//! they are stored as `xᵀ`).

use super::micro::{Access, TALLEST, TILE, Tile};
use super::pack::{Columns, RowPanels, lay, packed_columns, slabs};
use super::{Mat, SPLIT_FROM, Threads};
use crate::kernels::parallel::Shared;
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;

/// Multiplications of a task, at least.
const GRAIN: usize = 1 << 17;
/// Terms of the right operand that a task packs.
const TERMS: usize = 256;

/// The right operand in panels of columns.
#[derive(Clone, Copy)]
struct Panels<T> {
    first: Shared<T>,
    /// From one term to the next.
    step: usize,
    /// From one panel to the next.
    next: usize,
}

/// `C (m, n) = A (m, k) B (k, n)`, added to `C` if `add`.
///
/// # Safety
/// As [`super::gemm`]; rows of `a`, and rows or columns of `c`, are contiguous.
pub unsafe fn multiply<T: Real>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<T>,
    c: Mat<T>,
    add: bool,
    threads: Threads,
) {
    let kernels = T::kernels();
    let width = kernels.columns();
    let is_direct = b.col == 1 && n.is_multiple_of(kernels.lanes);
    let room = if is_direct { 0 } else { packed_columns(kernels, k, n) };
    let work = m.saturating_mul(n).saturating_mul(k);
    let threads = if work < SPLIT_FROM { Threads::One } else { threads };
    with_scratch(room, |packed: &mut [T]| {
        let panels = if is_direct {
            Panels { first: Shared(b.ptr), step: b.row as usize, next: width }
        } else {
            let first = Shared(packed.as_mut_ptr());
            threads.split(n.div_ceil(width) * k.div_ceil(TERMS), 1, |parts| {
                for part in parts {
                    let (panel, from) =
                        (part / k.div_ceil(TERMS), part % k.div_ceil(TERMS) * TERMS);
                    let columns = panel * width..n.min((panel + 1) * width);
                    // SAFETY: promised by the caller; parts of panels are apart.
                    unsafe {
                        let to = first.at((panel * k + from) * width);
                        b.pack(from..k.min(from + TERMS), columns, width, to);
                    }
                }
            });
            Panels { first, step: width, next: k * width }
        };
        let (rows, across) = (RowPanels::new(m, kernels), n.div_ceil(width));
        let grain = GRAIN.div_ceil(kernels.rows * width * k);
        threads.split(rows.count() * across, grain, |tiles| {
            for tile in tiles {
                let (rows, panel) = (rows.at(tile / across), tile % across);
                let columns = panel * width..n.min((panel + 1) * width);
                // SAFETY: promised by the caller; tiles of C are apart.
                unsafe {
                    let (a, c) = (a.at(rows.start, 0), c.at(rows.start, columns.start));
                    let b = panels.first.at(panel * panels.next).cast_const();
                    let size = (rows.len(), columns.len(), k);
                    one_tile(size, a, (b, panels.step), c, add);
                }
            }
        });
    });
}

/// One tile, summed slab by slab: in `C` itself if it is made of whole registers there.
///
/// # Safety
/// As [`multiply`]; `b` has whole registers of columns, terms `step` apart.
unsafe fn one_tile<T: Real>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    (b, step): (*const T, usize),
    c: Mat<T>,
    add: bool,
) {
    let kernels = T::kernels();
    let registers = n.div_ceil(kernels.lanes);
    let run = kernels.get(m, registers, Access::RowsByOffset);
    let offsets: [usize; TALLEST] = std::array::from_fn(|i| i * a.row as usize);
    let sum = |to: Mat<T>, add: bool| {
        for slab in slabs::<T>(k) {
            // SAFETY: promised by the caller; `to` has room for the tile.
            unsafe {
                run(&Tile {
                    k: slab.len(),
                    a: a.ptr.add(slab.start),
                    a_step: 0,
                    b: b.add(slab.start * step),
                    b_step: step,
                    b_next: kernels.lanes,
                    offsets: offsets.as_ptr(),
                    c: to.ptr,
                    c_step: to.row as usize,
                    c_next: kernels.lanes,
                    add: add || slab.start > 0,
                    bias: std::ptr::null(),
                });
            }
        }
    };
    if c.col == 1 && n == registers * kernels.lanes {
        return sum(c, add);
    }
    let mut room = [T::zero(); TILE];
    let sums = Mat::rows(room.as_mut_ptr(), kernels.columns());
    sum(sums, false);
    let ((m, n), sums, c) = if c.col == 1 { ((m, n), sums, c) } else { ((n, m), sums.t(), c.t()) };
    // SAFETY: promised by the caller.
    unsafe {
        if !add {
            return lay((m, n), sums, c);
        }
        for i in 0..m {
            for j in 0..n {
                *c.at(i, j).ptr += *sums.at(i, j).ptr;
            }
        }
    }
}
