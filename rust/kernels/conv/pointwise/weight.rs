//! Gradients of filters: sums over images of the product of gradients and channels.
//!
//! Of the two operands one is read where it is and the other one, with fewer rows, is packed, slice
//! after slice of the positions. Tasks have parts of a large result, or else parts of the positions
//! and results of their own, which are added up.

use super::super::pack::{add_sums, store_transposed};
use super::{Conv, collect_columns};
use crate::kernels::gemm::micro::{Access, Kernels, TALLEST, Tile};
use crate::kernels::gemm::pack::{Columns, RowPanels, packed_columns};
use crate::kernels::gemm::{Mat, Threads};
use crate::kernels::layout::copy_matrix;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::{Range, RangeInclusive};

/// Channels and filters from which on the widest registers are full.
const LEAST: usize = 16;
/// Bytes that are packed, and that are collected, at once: they should stay in the last-level
/// cache.
const ROUND_BYTES: usize = 4 << 20;
/// Tasks that have rows of a large result, at least.
const TASKS: usize = 8;
/// Elements of all results of tasks that have parts of the positions: they should stay in the
/// second-level caches.
const RESULTS: usize = 1 << 18;
/// How many such tasks there are.
const SHARES: RangeInclusive<usize> = 4..=8;
/// Positions of a slice: a packed panel of them stays in the first cache.
const TERMS: usize = 256;

/// Whether [`backward_weight`] suits.
pub fn suits_weight(conv: &Conv) -> bool {
    conv.in_c.min(conv.out_c) >= LEAST && conv.batch * conv.out_size() > 0
}

/// Some positions of consecutive items of the batch.
struct Slice {
    /// Items and their positions.
    parts: Vec<(usize, Range<usize>)>,
    terms: usize,
    /// Positions of the slices before it.
    before: usize,
}

/// Cuts items of `terms` positions each into slices.
fn slices(items: Range<usize>, terms: usize) -> Vec<Slice> {
    let cuts = terms.div_ceil(TERMS);
    let cut = |p: usize| terms * p / cuts..terms * (p + 1) / cuts;
    let all: Vec<_> = items.flat_map(|i| (0..cuts).map(move |p| (i, cut(p)))).collect();
    let mut before = 0;
    let slice = |parts: &[(usize, Range<usize>)]| {
        let terms = parts.iter().map(|(_, part)| part.len()).sum();
        before += terms;
        Slice { parts: parts.to_vec(), terms, before: before - terms }
    };
    all.chunks((TERMS / terms).max(1)).map(slice).collect()
}

/// One matrix for each item of the batch.
#[derive(Clone, Copy)]
struct Matrices<T> {
    base: Shared<T>,
    /// From one to the next.
    step: usize,
    /// The item that comes first.
    first: usize,
}

impl<T: Real> Matrices<T> {
    /// Those of the group that many elements on.
    ///
    /// # Safety
    /// There is one.
    unsafe fn group(self, elements: usize) -> Self {
        // SAFETY: promised by the caller.
        Matrices { base: Shared(unsafe { self.base.at(elements) }), ..self }
    }

    /// The matrix of an item.
    ///
    /// # Safety
    /// There is one.
    unsafe fn of(self, item: usize) -> *mut T {
        // SAFETY: promised by the caller.
        unsafe { self.base.at((item - self.first) * self.step) }
    }
}

/// The product of one group, `C (rows, columns)`.
struct Product<T: 'static> {
    kernels: &'static Kernels<T>,
    rows: RowPanels,
    columns: usize,
    /// Positions of an item.
    terms: usize,
    /// From one row of `C` to the next: whole registers.
    row: usize,
}

impl<T: Real> Product<T> {
    /// Panels of columns.
    fn across(&self) -> usize {
        self.columns.div_ceil(self.kernels.columns())
    }

    /// Elements of so many packed positions.
    fn packed(&self, terms: usize) -> usize {
        packed_columns(self.kernels, terms, self.columns)
    }

    /// Packs a panel of columns of a slice.
    ///
    /// # Safety
    /// `from` has the slice's items, matrices `(columns, terms)`, and `to` room for it, of which
    /// this panel is the caller's.
    unsafe fn pack(&self, slice: &Slice, panel: usize, from: Matrices<T>, to: *mut T) {
        let width = self.kernels.columns();
        let columns = panel * width..((panel + 1) * width).min(self.columns);
        let mut at = panel * width * slice.terms;
        for (item, terms) in &slice.parts {
            // SAFETY: promised by the caller.
            unsafe {
                let from = Mat::rows(from.of(*item), self.terms).t();
                from.pack(terms.clone(), columns.clone(), width, to.add(at));
            }
            at += width * terms.len();
        }
    }

    /// Writes the products of a slice to some panels of rows of `c`, or adds them.
    ///
    /// # Safety
    /// `left` has the slice's items, matrices `(rows, terms)`, `right` is packed, and these rows of
    /// `c`, which are whole registers, are the caller's.
    unsafe fn run(
        &self,
        slice: &Slice,
        panels: Range<usize>,
        (left, right): (Matrices<T>, *const T),
        c: *mut T,
        add: bool,
    ) {
        let (kernels, width) = (self.kernels, self.kernels.columns());
        let offsets: [usize; TALLEST] = std::array::from_fn(|i| i * self.terms);
        for first in (0..self.columns).step_by(width) {
            let registers = width.min(self.columns - first).div_ceil(kernels.lanes);
            for rows in panels.clone().map(|i| self.rows.at(i)) {
                let run = kernels.get(rows.len(), registers, Access::RowsByOffset);
                let mut before = 0;
                for (item, terms) in &slice.parts {
                    // SAFETY: promised by the caller.
                    unsafe {
                        run(&Tile {
                            k: terms.len(),
                            a: left.of(*item).add(rows.start * self.terms + terms.start),
                            a_step: 0,
                            b: right.add(first * slice.terms + before * width),
                            b_step: width,
                            b_next: kernels.lanes,
                            offsets: offsets.as_ptr(),
                            c: c.add(rows.start * self.row + first),
                            c_step: self.row,
                            c_next: kernels.lanes,
                            add: add || before > 0,
                            bias: std::ptr::null(),
                        });
                    }
                    before += terms.len();
                }
            }
        }
    }
}

/// How the work is cut, by extents only.
struct ProductCut {
    /// Whether the product is that of the channels with the gradients: less is packed then, but the
    /// result has to be transposed.
    is_transposed: bool,
    /// Items of the batch that are taken at once: as many as are collected, or all.
    round: usize,
    /// Slices that are packed at once, where tasks have rows.
    packed: usize,
    /// Tasks that have parts of the positions, and so results of their own; 1: tasks have rows.
    shares: usize,
}

impl ProductCut {
    fn new<T>(conv: &Conv, kernels: &Kernels<T>) -> Self {
        let (k, m, terms, groups) = (conv.in_c, conv.out_c, conv.out_size(), conv.groups);
        let is_small = groups * k * m <= RESULTS / SHARES.start();
        let is_transposed = k > m && (is_small || conv.batch * terms >= 2 * m);
        let item = if conv.is_pointwise() { 0 } else { groups * k * terms * size_of::<T>() };
        let round = (ROUND_BYTES / item.max(1)).clamp(1, conv.batch);
        let slice = packed_columns(kernels, TERMS, if is_transposed { m } else { k });
        let packed = (ROUND_BYTES / (groups * slice * size_of::<T>())).max(1);
        // In the first round every share has a slice, which its sums begin with.
        let is_long = slices(0..round, terms).len() >= *SHARES.end();
        let shares = (RESULTS / (groups * k * m)).clamp(*SHARES.start(), *SHARES.end());
        let shares = if is_small && is_long { shares } else { 1 };
        ProductCut { is_transposed, round, packed, shares }
    }
}

/// `dw` from the images and `dy`.
///
/// # Safety
/// As [`super::super::backward_weight`], of a convolution that [suits](suits_weight).
pub unsafe fn backward_weight<T: Real>(conv: &Conv, x: *const T, dy: *const T, dw: *mut T) {
    let (k, m, terms, groups) = (conv.in_c, conv.out_c, conv.out_size(), conv.groups);
    let (kernels, strided) = (T::kernels(), !conv.is_pointwise());
    let ProductCut { is_transposed, round, packed: at_once, shares } =
        ProductCut::new(conv, kernels);
    let (rows, columns) = if is_transposed { (k, m) } else { (m, k) };
    let row = columns.next_multiple_of(kernels.lanes);
    let is_direct = !is_transposed && row == columns;
    let product = Product { kernels, rows: RowPanels::new(rows, kernels), columns, terms, row };
    let result = groups * rows * row;
    let own = if is_direct { 0 } else { result };
    let collected = if strided { round * groups * k * terms } else { 0 };
    let terms_at_once = (at_once * TERMS).min(round * terms);
    let packed = if shares > 1 { 0 } else { groups * product.packed(terms_at_once) };

    let (x, dy, dw) = (Shared(x.cast_mut()), Shared(dy.cast_mut()), Shared(dw));
    with_scratch(own + (shares - 1) * result + packed + collected, |scratch: &mut [T]| {
        let (own, rest) = scratch.split_at_mut(own);
        let (more, rest) = rest.split_at_mut((shares - 1) * result);
        let (packed, collected) = rest.split_at_mut(packed);
        let [own, more, packed, collected] =
            [own, more, packed, collected].map(|s| Shared(s.as_mut_ptr()));
        let sums = if is_direct { dw } else { own };
        for first in (0..conv.batch).step_by(round) {
            let items = first..(first + round).min(conv.batch);
            let grads = Matrices { base: dy, step: groups * m * terms, first: 0 };
            let mut channels = Matrices { base: x, step: groups * k * terms, first: 0 };
            if strided {
                channels = Matrices { base: collected, first, ..channels };
                // SAFETY: promised by the caller; the room is that of a round.
                unsafe { collect_images(conv, items.clone(), x, collected) };
            }
            let slices = slices(items, terms);
            // The operands of a group, that which is read in place first.
            let operands = |group: usize| {
                // SAFETY: there is one.
                let (channels, grads) =
                    unsafe { (channels.group(group * k * terms), grads.group(group * m * terms)) };
                if is_transposed { (channels, grads) } else { (grads, channels) }
            };
            // SAFETY: promised by the caller; shares and groups have results of their own.
            let result_of = |share: usize, group: usize| unsafe {
                let sums = if share == 0 { sums } else { Shared(more.at((share - 1) * result)) };
                sums.at(group * rows * row)
            };
            // SAFETY: promised by the caller; the room is that of the packed slices of a round.
            unsafe {
                if shares > 1 {
                    by_terms(&product, &slices, (groups, shares), operands, result_of, first > 0);
                    continue;
                }
                for (number, slices) in slices.chunks(at_once).enumerate() {
                    let add = first > 0 || number > 0;
                    by_rows(&product, slices, (groups, packed), operands, result_of, add);
                }
            }
        }
        // SAFETY: promised by the caller; the sums are complete.
        unsafe {
            add_sums(result, shares - 1, more, sums);
            if is_transposed {
                store_transposed(conv, sums, row, dw);
            } else if !is_direct {
                let from = Mat::rows(sums.ptr(), row);
                copy_matrix((groups * rows, columns), from, Mat::rows(dw.ptr(), columns));
            }
        }
    });
}

/// Collects what filters read of the images of some items.
///
/// # Safety
/// `x` has the items, and `to` room for them.
pub unsafe fn collect_images<T: Real>(
    conv: &Conv,
    items: Range<usize>,
    x: Shared<T>,
    to: Shared<T>,
) {
    let (first, images) = (items.start * conv.groups, items.end * conv.groups);
    for image in first..images {
        // SAFETY: promised by the caller.
        unsafe {
            let to = to.at((image - first) * conv.in_c * conv.out_size());
            let from = x.at(image * conv.in_c * conv.in_size());
            collect_columns(conv, from, Threads::Pool, to);
        }
    }
}

/// The sums of all slices, of which every task has some rows.
///
/// # Safety
/// The operands of every group have the slices' items, `packed` has room for the packed slices of
/// all groups, and each group's `result_of(0, group)` has room for its `C`.
unsafe fn by_rows<T: Real>(
    product: &Product<T>,
    slices: &[Slice],
    (groups, packed): (usize, Shared<T>),
    operands: impl Fn(usize) -> (Matrices<T>, Matrices<T>) + Sync,
    result_of: impl Fn(usize, usize) -> *mut T + Sync,
    add: bool,
) {
    let (across, panels) = (product.across(), product.rows.count());
    let (before, all) = (slices[0].before, slices.iter().map(|slice| slice.terms).sum());
    let right_of = |group: usize, slice: &Slice| {
        // SAFETY: promised by the caller.
        unsafe { packed.at(group * product.packed(all) + product.packed(slice.before - before)) }
    };
    parallel_for(groups * slices.len() * across, 1, |tasks| {
        for task in tasks {
            let (group, rest) = (task / (slices.len() * across), task % (slices.len() * across));
            let slice = &slices[rest / across];
            // SAFETY: promised by the caller; panels are apart.
            unsafe {
                product.pack(slice, rest % across, operands(group).1, right_of(group, slice));
            }
        }
    });
    let each = panels.div_ceil(TASKS.div_ceil(groups));
    let parts = panels.div_ceil(each);
    parallel_for(groups * parts, 1, |tasks| {
        for task in tasks {
            let (group, part) = (task / parts, task % parts * each);
            let some = part..(part + each).min(panels);
            for (number, slice) in slices.iter().enumerate() {
                let operands = (operands(group).0, right_of(group, slice).cast_const());
                // SAFETY: as above; rows of results are apart.
                unsafe {
                    let add = add || number > 0;
                    product.run(slice, some.clone(), operands, result_of(0, group), add);
                }
            }
        }
    });
}

/// The sums of all slices, of which every task has some and a result of its own.
///
/// # Safety
/// As [`by_rows`]; every share of a group has a result of its own.
unsafe fn by_terms<T: Real>(
    product: &Product<T>,
    slices: &[Slice],
    (groups, shares): (usize, usize),
    operands: impl Fn(usize) -> (Matrices<T>, Matrices<T>) + Sync,
    result_of: impl Fn(usize, usize) -> *mut T + Sync,
    add: bool,
) {
    let most = slices.iter().map(|slice| slice.terms).max().unwrap_or(0);
    parallel_for(groups * shares, 1, |tasks| {
        with_scratch(product.packed(most), |right: &mut [T]| {
            for task in tasks {
                let (group, share) = (task / shares, task % shares);
                let some = slices.len() * share / shares..slices.len() * (share + 1) / shares;
                for (number, slice) in slices[some].iter().enumerate() {
                    let (left, from) = operands(group);
                    // SAFETY: promised by the caller; results are apart.
                    unsafe {
                        for panel in 0..product.across() {
                            product.pack(slice, panel, from, right.as_mut_ptr());
                        }
                        let operands = (left, right.as_ptr());
                        let (all, to) = (0..product.rows.count(), result_of(share, group));
                        product.run(slice, all, operands, to, add || number > 0);
                    }
                }
            }
        });
    });
}
