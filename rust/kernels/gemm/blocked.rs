//! Products of two matrices: slabs of terms, in each of which chunks of columns are multiplied by
//! all rows.
//!
//! The left operand of a slab is packed once and shared; a task packs its own columns, which stay
//! in its second-level cache.

use super::pack::{Columns, Output, RowPanels, multiply_packed, packed_columns, slabs};
use super::{Mat, SPLIT_FROM, Threads};
use crate::kernels::parallel::Shared;
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;

/// Tasks that a product is split into, if it is large enough, and those of a very large one.
const TASKS: usize = 8;
const MANY_TASKS: usize = 64;
/// Multiplications of a task from which on there are more of them.
const TASK: usize = 1 << 24;
/// Panels of columns that a task packs at once.
const CHUNK: usize = 8;
/// Minimum number of rows per task, as each packs its own columns.
const ROWS: usize = 128;
/// Rows that are packed at once, which bounds the buffer.
pub const BAND: usize = 4096;

/// How a product is cut into tasks; by extents only.
struct Cut {
    /// Columns of a task.
    columns: usize,
    /// Panels of rows of a task.
    panels: usize,
}

impl Cut {
    fn new((rows, panels): (usize, usize), (columns, width): (usize, usize), work: usize) -> Self {
        let across = columns.div_ceil(width);
        if work < SPLIT_FROM {
            return Cut { columns: CHUNK.min(across) * width, panels };
        }
        let tasks = (work / TASK).clamp(TASKS, MANY_TASKS);
        let chunk = even_chunk(across, across.div_ceil(tasks).clamp(1, CHUNK));
        let parts = tasks.div_ceil(across.div_ceil(chunk)).min(rows / ROWS).max(1);
        Cut { columns: chunk * width, panels: panels.div_ceil(parts) }
    }
}

/// A left operand.
#[derive(Clone, Copy)]
pub enum Left<T> {
    Matrix(Mat<T>),
    /// In the order of [`pack_left`].
    Packed(Shared<T>),
}

/// Packs `a (m, k)`, slab by slab, into `m * k` elements at `to`.
///
/// # Safety
/// Both have these extents and do not overlap.
pub unsafe fn pack_left<T: Real>((m, k): (usize, usize), a: Mat<T>, to: *mut T, threads: Threads) {
    let to = Shared(to);
    for slab in slabs::<T>(k) {
        // SAFETY: promised by the caller; slabs follow one another.
        unsafe { pack_slab((m, slab.len()), a.at(0, slab.start), to.at(m * slab.start), threads) };
    }
}

/// Packs the rows of one slab, which `a` begins with.
///
/// # Safety
/// As [`pack_left`].
unsafe fn pack_slab<T: Real>((m, terms): (usize, usize), a: Mat<T>, to: *mut T, threads: Threads) {
    let (to, rows) = (Shared(to), RowPanels::new(m, T::kernels()));
    let grain = (1usize << 15).div_ceil((terms * T::kernels().rows).max(1));
    threads.split(rows.count(), grain, |panels| {
        // SAFETY: promised by the caller; panels are apart.
        unsafe { rows.pack(panels, a, terms, to.ptr()) };
    });
}

/// The chunk of at most `most` panels, and at least half as many, that leaves two threads and four
/// waiting least for the last one.
fn even_chunk(across: usize, most: usize) -> usize {
    let span = |chunk: usize, threads: usize| {
        let (whole, rest) = (across / chunk, across % chunk);
        whole.div_ceil(threads) * chunk + if whole % threads == 0 { rest } else { 0 }
    };
    let chunks = (most.div_ceil(2)..=most).rev();
    chunks.min_by_key(|&chunk| span(chunk, 2) + 2 * span(chunk, 4)).unwrap_or(1)
}

/// `C (m, n) = A (m, k) B (k, n)`, added to `C` if `add`.
///
/// # Safety
/// As [`super::gemm`]; rows of `c` are contiguous.
pub unsafe fn multiply<T: Real>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<T>,
    c: Mat<T>,
    add: bool,
    threads: Threads,
) {
    for from in (0..m).step_by(BAND) {
        // SAFETY: promised by the caller.
        unsafe {
            let size = (BAND.min(m - from), n, k);
            let a = Left::Matrix(a.at(from, 0));
            multiply_left(size, a, b, c.at(from, 0), add, threads);
        }
    }
}

/// As [`multiply`], of a matrix with up to [`BAND`] rows or of a packed one.
///
/// # Safety
/// As [`multiply`].
pub unsafe fn multiply_left<T: Real>(
    (m, n, k): (usize, usize, usize),
    a: Left<T>,
    b: Mat<T>,
    c: Mat<T>,
    add: bool,
    threads: Threads,
) {
    if m == 0 || n == 0 {
        return;
    }
    let kernels = T::kernels();
    let rows = RowPanels::new(m, kernels);
    let work = m.saturating_mul(n).saturating_mul(k);
    let threads = if work < SPLIT_FROM { Threads::One } else { threads };
    let cut = Cut::new((m, rows.count()), (n, kernels.columns()), work);
    let (across, down) = (n.div_ceil(cut.columns), rows.count().div_ceil(cut.panels));
    for slab in slabs::<T>(k) {
        let terms = slab.len();
        let room = if matches!(a, Left::Packed(_)) { 0 } else { m * terms };
        with_scratch(room, |packed: &mut [T]| {
            // SAFETY: promised by the caller.
            let packed = unsafe {
                match a {
                    Left::Packed(packed) => Shared(packed.at(m * slab.start)),
                    Left::Matrix(a) => {
                        let to = packed.as_mut_ptr();
                        pack_slab((m, terms), a.at(0, slab.start), to, threads);
                        Shared(to)
                    }
                }
            };
            threads.split(across * down, 1, |tasks| {
                let room = packed_columns(kernels, terms, cut.columns.min(n));
                with_scratch(room, |own: &mut [T]| {
                    let mut ready = usize::MAX;
                    for task in tasks {
                        let (chunk, part) = (task / down, task % down);
                        let columns = chunk * cut.columns..((chunk + 1) * cut.columns).min(n);
                        let panels = part * cut.panels..((part + 1) * cut.panels).min(rows.count());
                        // SAFETY: promised by the caller; tasks write apart.
                        unsafe {
                            let own = own.as_mut_ptr();
                            if ready != chunk {
                                b.pack(slab.clone(), columns.clone(), kernels.columns(), own);
                                ready = chunk;
                            }
                            let output = Output {
                                to: c.at(0, columns.start),
                                add: add || slab.start > 0,
                                bias: std::ptr::null(),
                            };
                            let right = (own.cast_const(), columns.len());
                            let left = packed.ptr().cast_const();
                            multiply_packed(kernels, (rows, panels), terms, left, right, &output);
                        }
                    }
                });
            });
        });
    }
}
