//! Bringing operands into the order that the micro-kernel reads.
//!
//! The left operand stands in panels of rows, of which each holds the rows' elements term after
//! term; the right one in panels of as many columns as a tile has, row after row. Terms are cut
//! into slabs, so that a panel of each fits the first cache.

use super::Mat;
use super::micro::{Access, Kernels, TILE, Tile};
use crate::kernels::layout::copy_matrix;
use crate::kernels::real::Real;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Bytes of a row of the left operand within a slab.
const SLAB_BYTES: usize = 1536;

/// Terms of a transposed left operand that stay near while all panels are packed.
const NEAR: usize = 64;

/// The cut of `k` terms into slabs of nearly equal length.
pub fn slabs<T>(k: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let count = k.div_ceil(SLAB_BYTES / size_of::<T>()).max(1);
    (0..count).map(move |i| k * i / count..k * (i + 1) / count)
}

/// The most terms of one of the [`slabs`].
pub fn longest_slab<T>(k: usize) -> usize {
    k.div_ceil(slabs::<T>(k).count())
}

/// The cut of rows into panels whose heights differ by one at most.
#[derive(Clone, Copy)]
pub struct RowPanels {
    rows: usize,
    count: usize,
}

impl RowPanels {
    pub fn new<T>(rows: usize, kernels: &Kernels<T>) -> Self {
        RowPanels { rows, count: rows.div_ceil(kernels.rows) }
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.count
    }

    /// The rows of panel `i`.
    pub fn at(self, i: usize) -> Range<usize> {
        self.rows * i / self.count..self.rows * (i + 1) / self.count
    }

    /// Packs `panels` of a slab of `a (rows, terms)`; the panel of rows from `r` is at `r * terms`.
    ///
    /// # Safety
    /// `a` has these extents; `to` holds `rows * terms` elements, and these panels of it are the
    /// caller's.
    pub unsafe fn pack<T: Real>(self, panels: Range<usize>, a: Mat<T>, terms: usize, to: *mut T) {
        // The panels of a transposed matrix share cache lines.
        let each = if a.row == 1 { NEAR } else { terms.max(1) };
        for first in (0..terms).step_by(each) {
            let count = each.min(terms - first);
            for rows in panels.clone().map(|i| self.at(i)) {
                // SAFETY: promised by the caller.
                unsafe {
                    let to = to.add(rows.start * terms + first * rows.len());
                    pack_panel((rows.len(), count), a.at(rows.start, first), to);
                }
            }
        }
    }
}

/// `to[p * height + i] = a[i, p]`.
///
/// # Safety
/// Both hold these extents and do not overlap.
pub unsafe fn pack_panel<T: Real>((height, terms): (usize, usize), a: Mat<T>, to: *mut T) {
    // SAFETY: promised by the caller.
    unsafe { lay((terms, height), a.t(), Mat::rows(to, height)) };
}

/// Copies a matrix of any steps to rows.
///
/// # Safety
/// Both hold these extents and do not overlap; rows of `to` are contiguous.
pub unsafe fn lay<T: Real>((rows, columns): (usize, usize), from: Mat<T>, to: Mat<T>) {
    // SAFETY: promised by the caller.
    unsafe {
        if from.col == 1 || from.row == 1 {
            return copy_matrix((rows, columns), from, to);
        }
        for i in 0..rows {
            for j in 0..columns {
                *to.at(i, j).ptr = *from.at(i, j).ptr;
            }
        }
    }
}

/// Writes a matrix of contiguous rows to another one, or adds it.
///
/// # Safety
/// Both hold these extents and do not overlap.
pub unsafe fn put<T: Real>((rows, columns): (usize, usize), from: Mat<T>, to: Mat<T>, add: bool) {
    for i in 0..rows {
        for j in 0..columns {
            // SAFETY: promised by the caller.
            unsafe {
                let (to, x) = (to.at(i, j).ptr, *from.at(i, j).ptr);
                *to = if add { *to + x } else { x };
            }
        }
    }
}

/// Elements of packed columns.
pub fn packed_columns<T>(kernels: &Kernels<T>, terms: usize, columns: usize) -> usize {
    terms * columns.next_multiple_of(kernels.columns())
}

/// A right operand.
pub trait Columns<T> {
    /// Packs `terms` of `columns` into panels of `width` columns; the last one is padded with
    /// zeros.
    ///
    /// # Safety
    /// The operand has these terms and columns, and `to` room for the panels.
    unsafe fn pack(&self, terms: Range<usize>, columns: Range<usize>, width: usize, to: *mut T);
}

impl<T: Real> Columns<T> for Mat<T> {
    unsafe fn pack(&self, terms: Range<usize>, columns: Range<usize>, width: usize, to: *mut T) {
        let mut panel = to;
        for first in columns.clone().step_by(width) {
            let count = width.min(columns.end - first);
            // SAFETY: promised by the caller.
            unsafe {
                let from = self.at(terms.start, first);
                if count < width {
                    panel.write_bytes(0, width * terms.len());
                }
                lay((terms.len(), count), from, Mat::rows(panel, width));
                panel = panel.add(width * terms.len());
            }
        }
    }
}

/// Where a block of results goes, and how.
#[derive(Clone, Copy)]
pub struct Output<T> {
    /// Rows are contiguous.
    pub to: Mat<T>,
    /// Adds to what is there.
    pub add: bool,
    /// An element for each row that is added, or null.
    pub bias: *const T,
}

/// Multiplies packed `panels` of rows by packed columns: `output (all rows, columns)`.
///
/// # Safety
/// `a` and `b` are packed with `terms`, as by [`RowPanels::pack`] and [`Columns::pack`]; the rows
/// of these panels of `output` are the caller's.
pub unsafe fn multiply_packed<T: Real>(
    kernels: &Kernels<T>,
    (rows, panels): (RowPanels, Range<usize>),
    terms: usize,
    a: *const T,
    (b, columns): (*const T, usize),
    output: &Output<T>,
) {
    let (lanes, width) = (kernels.lanes, kernels.columns());
    for rows in panels.map(|i| rows.at(i)) {
        for first in (0..columns).step_by(width) {
            let count = width.min(columns - first);
            // SAFETY: promised by the caller.
            unsafe {
                let to = output.to.at(rows.start, first);
                let tile = Tile {
                    k: terms,
                    a: a.add(rows.start * terms),
                    a_step: rows.len(),
                    b: b.add(first * terms),
                    b_step: width,
                    b_next: lanes,
                    offsets: std::ptr::null(),
                    c: to.ptr,
                    c_step: to.row as usize,
                    c_next: lanes,
                    add: output.add,
                    bias: if output.bias.is_null() {
                        output.bias
                    } else {
                        output.bias.add(rows.start)
                    },
                };
                run_columns(kernels, Access::Panels, &tile, (rows.len(), count));
            }
        }
    }
}

/// Runs a tile of so many rows and columns. One whose last register is not full is calculated
/// apart from `C`.
///
/// # Safety
/// As [`TileFn`](super::micro::TileFn); `C` holds these columns, and `B` whole registers.
#[inline]
pub unsafe fn run_columns<T: Real>(
    kernels: &Kernels<T>,
    access: Access,
    tile: &Tile<T>,
    (rows, columns): (usize, usize),
) {
    let registers = columns.div_ceil(kernels.lanes);
    let run = kernels.get(rows, registers, access);
    // SAFETY: promised by the caller; the room holds the largest tile, whose columns are written.
    unsafe {
        if columns == registers * kernels.lanes {
            return run(tile);
        }
        let mut room = [const { MaybeUninit::<T>::uninit() }; TILE];
        let whole = room.as_mut_ptr().cast::<T>();
        run(&Tile { c: whole, c_step: kernels.columns(), add: false, ..*tile });
        for i in 0..rows {
            let row = std::slice::from_raw_parts(whole.add(i * kernels.columns()), columns);
            store(row, tile.c.add(i * tile.c_step), tile.add);
        }
    }
}

/// Writes or adds a part of a row.
///
/// # Safety
/// `to` has this many elements.
#[inline(always)]
unsafe fn store<T: Real>(from: &[T], to: *mut T, add: bool) {
    for (j, x) in from.iter().enumerate() {
        // SAFETY: promised by the caller.
        unsafe { *to.add(j) = if add { *to.add(j) + *x } else { *x } };
    }
}
