//! Small planes: the positions of several images side by side, as the columns of one product.
//!
//! A plane of 7×7 fills three registers and one element of a fourth; eight of them fill 24 and a
//! half.

use super::super::report;
use super::weight::collect_images;
use super::{Conv, put_columns};
use crate::kernels::gemm::micro::{Access, TALLEST, Tile};
use crate::kernels::gemm::pack::{Columns, RowPanels, lay, longest_slab, packed_columns, slabs};
use crate::kernels::gemm::{Mat, Threads};
use crate::kernels::layout::copy_rows;
use crate::kernels::parallel::{OnElements, Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Small planes have fewer positions: fewer than fill four registers.
const SMALL: usize = 64;
/// Fewer columns than this leave most of a register empty.
const FEW: usize = 8;
/// Filters and channels from which on it pays to bring columns into order.
const LEAST: usize = 32;
/// Bytes that are packed, and that are collected, at once.
const ROUND_BYTES: usize = 4 << 20;
/// Columns and rows of a task, at most: its sums stay in the second-level cache.
const COLUMNS: usize = 256;
const ROWS: usize = 128;
/// Minimum number of tasks of a group.
const TASKS: usize = 8;

/// Whether the planes of a convolution are calculated together.
pub fn suits(conv: &Conv) -> bool {
    let n = conv.out_size();
    conv.in_c.min(conv.out_c) >= LEAST && n < SMALL && conv.batch * n >= FEW
}

/// A matrix for each image, with the same rows.
#[derive(Clone, Copy)]
struct Planes<T> {
    first: Shared<T>,
    /// Columns of a matrix.
    each: usize,
    /// From one matrix to the next.
    next: usize,
}

impl<T: Real> Planes<T> {
    /// The matrices of a group, `(rows, columns)`, where those of all groups follow one another.
    ///
    /// # Safety
    /// They start at `first`.
    unsafe fn of_group(
        first: *mut T,
        (group, groups): (usize, usize),
        (rows, columns): (usize, usize),
    ) -> Self {
        let size = rows * columns;
        // SAFETY: promised by the caller.
        let first = Shared(unsafe { first.add(group * size) });
        Planes { first, each: columns, next: groups * size }
    }

    /// Calls `f(columns of those asked for, matrix that starts with them)` for every image.
    ///
    /// # Safety
    /// There are as many columns.
    unsafe fn for_images(&self, columns: Range<usize>, mut f: impl FnMut(Range<usize>, Mat<T>)) {
        let mut at = columns.start;
        while at < columns.end {
            let (image, column) = (at / self.each, at % self.each);
            let end = columns.end.min((image + 1) * self.each);
            // SAFETY: promised by the caller.
            let from = unsafe { self.first.at(image * self.next + column) };
            f(at - columns.start..end - columns.start, Mat::rows(from, self.each));
            at = end;
        }
    }
}

impl<T: Real> Columns<T> for Planes<T> {
    unsafe fn pack(&self, terms: Range<usize>, columns: Range<usize>, width: usize, to: *mut T) {
        let mut panel = to;
        for first in columns.clone().step_by(width) {
            let count = width.min(columns.end - first);
            // SAFETY: promised by the caller.
            unsafe {
                if count < width {
                    panel.write_bytes(0, width * terms.len());
                }
                self.for_images(first..first + count, |part, from| {
                    let to = Mat::rows(panel.add(part.start), width);
                    lay((terms.len(), part.len()), from.at(terms.start, 0), to);
                });
                panel = panel.add(width * terms.len());
            }
        }
    }
}

/// `y = conv(x, w) + b`, of which `done` is called with what is finished.
///
/// # Safety
/// As [`super::forward`], of a convolution that [suits](suits).
pub unsafe fn forward<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    (y, done): (*mut T, Option<OnElements<'_>>),
) {
    let (k, m, n, groups) = (conv.in_c, conv.out_c, conv.out_size(), conv.groups);
    let (x, size) = (Shared(x.cast_mut()), groups * k * conv.in_size());
    for_rounds(conv, k, |items, columns: Option<*mut T>| {
        let (first, count) = (items.start, items.len());
        // SAFETY: promised by the caller; the room is that of a round.
        unsafe {
            let mut from = x.at(first * size);
            if let Some(columns) = columns {
                collect_images(conv, items, x, Shared(columns));
                from = columns;
            }
            for g in 0..groups {
                let left = Mat::rows(w.add(g * m * k).cast_mut(), k);
                let right = Planes::of_group(from, (g, groups), (k, n));
                let to = Planes::of_group(y.add(first * groups * m * n), (g, groups), (m, n));
                let bias = bias.map_or(std::ptr::null(), |bias| bias.add(g * m));
                multiply((m, count * n, k), left, right, (to, bias), |item, rows, columns| {
                    let filter = ((first + item) * groups + g) * m;
                    report(done, filter + rows.start..filter + rows.end, n, columns);
                });
            }
        }
    });
}

/// `dx` from `dy` and the filters.
///
/// # Safety
/// As [`super::backward_data`], of a convolution that [suits](suits).
pub unsafe fn backward_data<T: Real>(conv: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    let (k, m, n, groups) = (conv.in_c, conv.out_c, conv.out_size(), conv.groups);
    let size = groups * k * conv.in_size();
    for_rounds(conv, m.max(k), |items, columns: Option<*mut T>| {
        let (first, count) = (items.start, items.len());
        // SAFETY: promised by the caller; the room is that of a round.
        unsafe {
            let x = dx.add(first * size);
            let to = columns.unwrap_or(x);
            for g in 0..groups {
                let left = Mat::rows(w.add(g * m * k).cast_mut(), k).t();
                let from = dy.add(first * groups * m * n).cast_mut();
                let right = Planes::of_group(from, (g, groups), (m, n));
                let to = Planes::of_group(to, (g, groups), (k, n));
                multiply((k, count * n, m), left, right, (to, std::ptr::null()), |_, _, _| ());
            }
            for i in (0..count * groups).filter(|_| columns.is_some()) {
                let x = x.add(i * k * conv.in_size());
                put_columns(conv, to.add(i * k * n), Threads::Pool, x);
            }
        }
    });
}

/// Calls `f` with rounds of the batch, whose images have `rows` rows in every group, and with room
/// for what filters read of a round, unless that is the images.
fn for_rounds<T: Real>(conv: &Conv, rows: usize, mut f: impl FnMut(Range<usize>, Option<*mut T>)) {
    let plane = conv.groups * conv.out_size();
    let round = (ROUND_BYTES / (plane * rows * size_of::<T>())).clamp(1, conv.batch);
    let collected = if conv.is_pointwise() { 0 } else { round * plane * conv.in_c };
    with_scratch(collected, |columns: &mut [T]| {
        let columns = (collected > 0).then_some(columns.as_mut_ptr());
        for first in (0..conv.batch).step_by(round) {
            f(first..(first + round).min(conv.batch), columns);
        }
    });
}

/// The product of a matrix, which is read where it is unless it is transposed, and the columns of
/// all images, with an element of `bias` added to each row unless that is null. Calls `done(image,
/// rows, columns of its matrix)` with what is finished.
///
/// # Safety
/// The operands have these extents, and `bias` the rows.
unsafe fn multiply<T: Real>(
    (m, n, k): (usize, usize, usize),
    left: Mat<T>,
    right: Planes<T>,
    (to, bias): (Planes<T>, *const T),
    done: impl Fn(usize, Range<usize>, Range<usize>) + Sync,
) {
    let kernels = T::kernels();
    let (lanes, width) = (kernels.lanes, kernels.columns());
    let (across, bias) = (n.div_ceil(width), Shared(bias.cast_mut()));
    let (all, slabs) = (across * width, slabs::<T>(k));
    let (in_place, offsets) = (left.col == 1, std::array::from_fn::<_, TALLEST, _>(|i| i * k));
    with_scratch(packed_columns(kernels, k, n), |packed: &mut [T]| {
        let packed = Shared(packed.as_mut_ptr());
        let cuts = slabs.clone().count();
        parallel_for(across * cuts, 1, |parts| {
            for part in parts {
                let (panel, slab) = (part / cuts, slabs.clone().nth(part % cuts));
                let slab = slab.unwrap_or_default();
                let columns = panel * width..n.min((panel + 1) * width);
                // SAFETY: promised by the caller; panels of slabs are apart.
                unsafe {
                    let to = packed.at(slab.start * all + columns.start * slab.len());
                    right.pack(slab, columns, width, to);
                }
            }
        });
        let chunks = across.div_ceil(COLUMNS / width);
        let parts = TASKS.div_ceil(chunks).max(m.div_ceil(ROWS)).min(m.div_ceil(kernels.rows));
        parallel_for(chunks * parts, 1, |tasks| {
            for task in tasks {
                let (part, chunk) = (task / chunks, task % chunks);
                let cut = |all: usize, i: usize, of: usize| all * i / of..all * (i + 1) / of;
                let (some_rows, some) = (cut(m, part, parts), cut(across, chunk, chunks));
                let panels = RowPanels::new(some_rows.len(), kernels);
                let columns = some.start * width..n.min(some.end * width);
                let room = columns.len().next_multiple_of(lanes);
                let own = if in_place { 0 } else { some_rows.len() * longest_slab::<T>(k) };
                with_scratch(some_rows.len() * room + own, |scratch: &mut [T]| {
                    let (sums, own) = scratch.split_at_mut(some_rows.len() * room);
                    let (sums, own) = (sums.as_mut_ptr(), own.as_mut_ptr());
                    // SAFETY: promised by the caller; tasks write apart.
                    unsafe {
                        for slab in slabs.clone() {
                            let b = packed.at(slab.start * all + columns.start * slab.len());
                            let from = left.at(some_rows.start, slab.start);
                            if !in_place {
                                panels.pack(0..panels.count(), from, slab.len(), own);
                            }
                            for rows in (0..panels.count()).map(|i| panels.at(i)) {
                                for first in (0..room).step_by(width) {
                                    let registers = width.min(room - first) / lanes;
                                    let (access, a) = if in_place {
                                        (
                                            Access::RowsByOffset,
                                            from.at(rows.start, 0).ptr.cast_const(),
                                        )
                                    } else {
                                        (
                                            Access::Panels,
                                            own.add(rows.start * slab.len()).cast_const(),
                                        )
                                    };
                                    kernels.get(rows.len(), registers, access)(&Tile {
                                        k: slab.len(),
                                        a,
                                        a_step: rows.len(),
                                        b: b.add(first * slab.len()),
                                        b_step: width,
                                        b_next: lanes,
                                        offsets: offsets.as_ptr(),
                                        c: sums.add(rows.start * room + first),
                                        c_step: room,
                                        c_next: lanes,
                                        add: slab.start > 0,
                                        bias: match bias.ptr().is_null() || slab.start > 0 {
                                            true => std::ptr::null(),
                                            false => bias.at(some_rows.start + rows.start),
                                        },
                                    });
                                }
                            }
                        }
                        to.for_images(columns.clone(), |part, to| {
                            let to = to.at(some_rows.start, 0);
                            let (from, rows) = (sums.add(part.start), some_rows.len());
                            copy_rows(from, room, to.ptr, to.row as usize, rows, part.len());
                            let at = columns.start + part.start;
                            let (image, column) = (at / to.row as usize, at % to.row as usize);
                            done(image, some_rows.clone(), column..column + part.len());
                        });
                    }
                });
            }
        });
    });
}
