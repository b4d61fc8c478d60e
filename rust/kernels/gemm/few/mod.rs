//! Products of few rows, a vector's above all: the right operand is read once, where it is.
//!
//! Where the terms of a column of `B` stand side by side, some columns are multiplied by all rows
//! at once, lane by lane. Where the columns of a term do, rows of `B` are added to rows of `C`,
//! which stay in the first cache. Either way the time is that of reading `B`.

pub mod kernels;

use super::pack::{lay, put};
use super::{Mat, Threads};
use crate::dtype::{self, Element};
use crate::kernels::arch::level;
use crate::kernels::copy::convert_all;
use crate::kernels::parallel::Shared;
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use half::f16;
use kernels::{Stored, TOGETHER, WIDE};
use std::ops::Range;

/// Terms of a column that are added up at most before their sum is added to `C`, lane by lane.
const TERMS: usize = 2048;
/// Terms that are added to rows of `C` at most before these are added to what is there.
const RUN: usize = 1024;
/// Bytes of rows of `C` that stay in the first cache.
const NEAR_BYTES: usize = 1 << 14;
/// Rows up to which this is the faster way, and from how many terms or columns on.
const MOST_BY_COLUMNS: usize = 7;
const MOST_BY_TERMS: usize = 8;
const LONG: usize = 64;
const BROAD: usize = 64;
/// A `B` that is not in a near cache; out of one, rows of `C` in registers are faster.
const FAR_BYTES: usize = 1 << 20;
/// Elements of `B` that a task reads at least, and how many tasks there are if it has enough.
const GRAIN: usize = 1 << 17;
const TASKS: usize = 16;
/// As many multiplications are enough for a task, too.
const WORK: usize = 1 << 18;
/// Terms of a part with sums of its own, at least.
const PART: usize = 64;

/// Extents (m, n, k) of a product, and its matrices `A`, `B` and `C`.
pub type Product<T> = ((usize, usize, usize), [Mat<T>; 3]);

/// The product, or the transposed one (`Cᵀ = Bᵀ Aᵀ`) if that has fewer rows, if this is the faster
/// way for it.
pub fn oriented<T>((m, n, k): (usize, usize, usize), [a, b, c]: [Mat<T>; 3]) -> Option<Product<T>> {
    let (m, n, [a, b, c]) = if n < m { (n, m, [b.t(), a.t(), c.t()]) } else { (m, n, [a, b, c]) };
    let pays = if b.row == 1 {
        m <= MOST_BY_COLUMNS && k >= LONG
    } else {
        let is_far = n >= BROAD && n.saturating_mul(k) >= FAR_BYTES / size_of::<T>();
        b.col == 1 && k > 1 && (m == 1 || m <= MOST_BY_TERMS && is_far)
    };
    pays.then_some(((m, n, k), [a, b, c]))
}

/// How a product is cut into tasks; by extents only.
struct Shares {
    /// Columns of a task.
    columns: usize,
    /// Parts of the terms, each of which has sums of its own.
    parts: usize,
}

impl Shares {
    /// Columns are cut before terms if they stand apart, and otherwise where they exceed `near`.
    fn new((m, n, k): (usize, usize, usize), by_columns: bool, near: usize) -> Self {
        let elements = n.saturating_mul(k);
        let tasks = (elements / GRAIN).max(elements.saturating_mul(m) / WORK).clamp(1, TASKS);
        let columns =
            if by_columns { n.div_ceil(tasks).next_multiple_of(WIDE) } else { n.min(near) };
        let parts = (tasks / n.div_ceil(columns)).min(k / PART);
        Shares { columns, parts: parts.max(1) }
    }
}

/// `C (m, n) = A (m, k) B (k, n)`, added to `C` if `add`.
///
/// # Safety
/// As [`super::gemm`]; rows or columns of `b` are contiguous.
pub unsafe fn multiply<T: Real, S: Stored<T>>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<S>,
    c: Mat<T>,
    add: bool,
    threads: Threads,
) {
    if m == 0 || n == 0 {
        return;
    }
    let by_columns = b.row == 1;
    let shares = Shares::new((m, n, k), by_columns, NEAR_BYTES / size_of::<T>() / m.min(TOGETHER));
    let across = n.div_ceil(shares.columns);
    let threads = if across * shares.parts == 1 { Threads::One } else { threads };
    let is_packed = a.col == 1 || k == 1;
    let room = if is_packed { 0 } else { m * k };
    let sums = if shares.parts == 1 { 0 } else { shares.parts * m * n };
    with_scratch(room + sums, |scratch: &mut [T]| {
        let (packed, sums) = scratch.split_at_mut(room);
        let left = if is_packed {
            a
        } else {
            let to = Mat::rows(packed.as_mut_ptr(), k);
            // SAFETY: promised by the caller; there is room for `m` rows.
            unsafe { lay((m, k), a, to) };
            to
        };
        let partial = Shared(sums.as_mut_ptr());
        threads.split(across * shares.parts, 1, |tasks| {
            for task in tasks {
                let (chunk, part) = (task % across, task / across);
                let columns = chunk * shares.columns..n.min((chunk + 1) * shares.columns);
                let terms = k * part / shares.parts..k * (part + 1) / shares.parts;
                // SAFETY: promised by the caller; tasks have columns or sums of their own.
                unsafe {
                    let (to, add) = if shares.parts == 1 {
                        (c, add)
                    } else {
                        (Mat::rows(partial.at(part * m * n), n), false)
                    };
                    let (a, b) = (left.at(0, terms.start), b.at(terms.start, columns.start));
                    let size = (m, columns.len(), terms.len());
                    let to = to.at(0, columns.start);
                    if by_columns {
                        each_column(size, a, b, to, add);
                    } else {
                        each_term(size, a, b, to, add);
                    }
                }
            }
        });
        if shares.parts > 1 {
            // SAFETY: promised by the caller.
            unsafe { join(sums, (m, n), c, add) };
        }
    });
}

/// As [`multiply`], in half precision: calculated in single precision, and rounded once.
///
/// # Safety
/// As there.
pub unsafe fn multiply_halves(((m, n, k), [a, b, c]): Product<f16>, add: bool, threads: Threads) {
    with_scratch(m * k + m * n, |scratch: &mut [f32]| {
        let (left, sums) = scratch.split_at_mut(m * k);
        let (left, sums) = (Mat::rows(left.as_mut_ptr(), k), Mat::rows(sums.as_mut_ptr(), n));
        // SAFETY: promised by the caller; scratch has room for both.
        unsafe {
            convert((m, k), a, left);
            if add {
                convert((m, n), c, sums);
            }
            multiply((m, n, k), left, b, sums, add, threads);
            convert((m, n), sums, c);
        }
    });
}

/// Converts a matrix.
///
/// # Safety
/// Both have these extents.
unsafe fn convert<S: Element, D: Element>((m, n): (usize, usize), from: Mat<S>, to: Mat<D>) {
    for i in 0..m {
        // SAFETY: promised by the caller.
        unsafe {
            let (from, to) = (from.at(i, 0), to.at(i, 0));
            if from.col == 1 && to.col == 1 {
                convert_all(from.ptr, to.ptr, n);
                continue;
            }
            for j in 0..n {
                *to.at(0, j).ptr = dtype::convert(*from.at(0, j).ptr);
            }
        }
    }
}

/// Adds the sums of parts, in their order.
///
/// # Safety
/// `c` has these extents.
unsafe fn join<T: Real>(sums: &mut [T], (m, n): (usize, usize), c: Mat<T>, add: bool) {
    let (total, others) = sums.split_at_mut(m * n);
    for other in others.chunks_exact(m * n) {
        for (total, x) in total.iter_mut().zip(other) {
            *total += *x;
        }
    }
    // SAFETY: promised by the caller.
    unsafe { put((m, n), Mat::rows(total.as_mut_ptr(), n), c, add) };
}

/// The rows that are multiplied together.
fn groups(m: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let count = m.div_ceil(TOGETHER);
    (0..count).map(move |i| m * i / count..m * (i + 1) / count)
}

/// A part of [`multiply`] on this thread; columns of `b` are contiguous.
///
/// # Safety
/// As there.
unsafe fn each_column<T: Real, S: Stored<T>>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<S>,
    c: Mat<T>,
    add: bool,
) {
    let kernels = S::few_kernels(level());
    let mut first = 0;
    while first < n {
        let count = if n - first < WIDE { 1 } else { WIDE };
        // Without terms there is one empty run, which writes zeros.
        for from in (0..k.max(1)).step_by(TERMS) {
            for rows in groups(m) {
                let mut sums = [T::zero(); TOGETHER * WIDE];
                let run = kernels.dots[rows.len() - 1][usize::from(count == 1)];
                // SAFETY: promised by the caller; the run lies inside of both operands.
                unsafe {
                    let left = (a.at(rows.start, from).ptr.cast_const(), a.row as usize);
                    let right = (b.at(from, first).ptr.cast_const(), b.col as usize);
                    run(left, right, TERMS.min(k - from), sums.as_mut_ptr());
                    let (sums, to) = (Mat::rows(sums.as_mut_ptr(), WIDE), c.at(rows.start, first));
                    put((rows.len(), count), sums, to, add || from > 0);
                }
            }
        }
        first += count;
    }
}

/// A part of [`multiply`] on this thread; rows of `b` are contiguous, and short enough to be kept
/// near.
///
/// # Safety
/// As there.
unsafe fn each_term<T: Real, S: Stored<T>>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<S>,
    c: Mat<T>,
    add: bool,
) {
    if c.col == 1 && k <= RUN {
        // SAFETY: promised by the caller.
        return unsafe { one_run((m, n, k), a, b, c, add) };
    }
    with_scratch(m * n, |near: &mut [T]| {
        let sums = Mat::rows(near.as_mut_ptr(), n);
        for from in (0..k.max(1)).step_by(RUN) {
            // SAFETY: promised by the caller; the run lies inside of both operands.
            unsafe {
                one_run((m, n, RUN.min(k - from)), a.at(0, from), b.at(from, 0), sums, false);
                put((m, n), sums, c, add || from > 0);
            }
        }
    });
}

/// As [`each_term`], one term after the other; rows of `c` are contiguous.
///
/// # Safety
/// As there.
unsafe fn one_run<T: Real, S: Stored<T>>(
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<S>,
    c: Mat<T>,
    add: bool,
) {
    if k == 0 && !add {
        for i in 0..m {
            // SAFETY: promised by the caller.
            unsafe { std::slice::from_raw_parts_mut(c.at(i, 0).ptr, n).fill(T::zero()) };
        }
    }
    let kernels = S::few_kernels(level());
    let mut p = 0;
    while p < k {
        let count = if k - p < WIDE { 1 } else { WIDE };
        for rows in groups(m) {
            // SAFETY: promised by the caller; these terms lie inside of both operands.
            unsafe {
                let left = (a.at(rows.start, p).ptr.cast_const(), a.row as usize);
                let right = (b.at(p, 0).ptr.cast_const(), b.row as usize);
                let to = (c.at(rows.start, 0).ptr, c.row as usize);
                let run = kernels.sums[rows.len() - 1][usize::from(count == 1)];
                run(left, right, to, n, p == 0 && !add);
            }
        }
        p += count;
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
