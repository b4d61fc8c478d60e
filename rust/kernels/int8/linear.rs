//! Products of matrices of 8-bit integers.
//!
//! Where tiles take groups as they lie, data is read in place. If it is signed, it is the weights
//! that are moved up by 128 when they are packed, and each row of sums is 128 times the sum of its
//! data too great.

use super::tile::{MOST_COLUMNS, MOST_ROWS, Operands, Pairs, Quads, Tiles};
use super::{Byte, GRAIN, pack_columns, pack_rows, starts, sum, tile_rows, with_groups};
use crate::kernels::parallel::{Shared, parallel_for};
use std::ops::Range;

/// Bytes of data of a block of rows, as tiles read them, at most: they stay in the second-level
/// cache.
const BLOCK_BYTES: usize = 384 << 10;
/// Minimum number of tasks, if each has [`GRAIN`] products.
const TASKS: usize = 8;
/// The same where rows are in several blocks: with fewer, one thread was measured to end well
/// before the other.
const SHARES: usize = 48;

/// A product, as in [`linear`].
struct Linear<'a, T> {
    rows: usize,
    width: usize,
    k: usize,
    x: Shared<T>,
    w: Shared<i8>,
    start: &'a [i32],
    y: Shared<i32>,
}

/// `y[i, j] = sum over l of x[i, l] * w[j, l] + start[j]`, with `y` of `(rows, width)` and inner
/// extent `k`; sums wrap beyond 32 bits.
///
/// # Safety
/// `x` holds `rows * k` elements, `w` `width * k`, `start` is empty or holds `width`, `y`
/// `rows * width`; `y` overlaps none of the others.
pub unsafe fn linear<T: Byte>(
    extents: (usize, usize, usize),
    x: *const T,
    w: *const i8,
    start: &[i32],
    y: *mut i32,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match Quads::suit() {
            true => linear_by::<Quads, T>(extents, x, w, start, y),
            false => linear_by::<Pairs, T>(extents, x, w, start, y),
        }
    }
}

/// # Safety
/// As [`linear`].
pub unsafe fn linear_by<G: Tiles, T: Byte>(
    (rows, width, k): (usize, usize, usize),
    x: *const T,
    w: *const i8,
    start: &[i32],
    y: *mut i32,
) {
    let (x, w, y) = (Shared(x.cast_mut()), Shared(w.cast_mut()), Shared(y));
    let product = Linear { rows, width, k, x, w, start, y };
    // SAFETY: promised by the caller.
    unsafe { product.run::<G>() };
}

impl<T: Byte> Linear<'_, T> {
    fn groups<G: Tiles>(&self) -> usize {
        self.k.div_ceil(G::MEMBERS)
    }

    fn tiles<G: Tiles>(&self) -> usize {
        self.rows.div_ceil(G::ROWS)
    }

    /// # Safety
    /// As [`linear`].
    unsafe fn run<G: Tiles>(&self) {
        let (groups, tiles) = (self.groups::<G>(), self.tiles::<G>());
        let panels = self.width.div_ceil(G::COLUMNS);
        let near = (BLOCK_BYTES / (G::ROWS * groups.max(1) * size_of::<i32>())).max(1);
        let products = self.rows.saturating_mul(self.width).saturating_mul(self.k);
        let tasks = (products / GRAIN).min(TASKS);
        let blocks = tiles.div_ceil(near).max(tasks.div_ceil(panels.max(1))).min(tiles);
        // The weights of a panel are packed by the only task that reads them, or beforehand.
        let (parts, packed) = match blocks {
            ..=1 => (panels, 0),
            _ => (SHARES.div_ceil(blocks).min(panels), panels),
        };
        let laid = match G::IN_PLACE {
            true if self.k.is_multiple_of(G::MEMBERS) => 0,
            true => G::ROWS.min(self.rows) * groups,
            false => self.rows * groups,
        };
        let panel = groups * G::COLUMNS;
        with_groups(laid + self.rows + packed * (panel + G::COLUMNS), |room| {
            let (data, room) = room.split_at_mut(laid);
            let (above, room) = room.split_at_mut(self.rows);
            let (data, above, room) =
                (Shared(data.as_mut_ptr()), Shared(above.as_mut_ptr()), Shared(room.as_mut_ptr()));
            let tile = G::ROWS * self.k.max(1);
            parallel_for(tiles, GRAIN.div_ceil(16 * tile), |some| {
                for rows in some.map(|t| tile_rows(self.rows, tiles, t)) {
                    // SAFETY: promised by the caller; rows are apart.
                    unsafe { self.lay::<G>(rows, data, above) };
                }
            });
            let all = |i: usize| i * (panel + G::COLUMNS);
            parallel_for(packed, GRAIN.div_ceil(16 * G::COLUMNS * self.k.max(1)), |some| {
                for i in some {
                    // SAFETY: promised by the caller; panels are apart.
                    unsafe { self.pack::<G>(i, room.at(all(i))) };
                }
            });
            let work =
                self.rows.div_ceil(blocks.max(1)) * self.k * self.width.div_ceil(parts.max(1));
            parallel_for(blocks * parts, GRAIN.div_ceil(work.max(1)), |tasks| {
                with_groups(if packed == 0 { panel + G::COLUMNS } else { 0 }, |own| {
                    for (block, part) in tasks.map(|task| (task / parts, task % parts)) {
                        let some = block * tiles / blocks..(block + 1) * tiles / blocks;
                        for i in part * panels / parts..(part + 1) * panels / parts {
                            // SAFETY: promised by the caller; each tile of `y` is one task's.
                            unsafe {
                                let weights = match packed {
                                    0 => {
                                        self.pack::<G>(i, own.as_mut_ptr());
                                        own.as_ptr()
                                    }
                                    _ => room.at(all(i)).cast_const(),
                                };
                                self.multiply::<G>(some.clone(), i, weights, (data, above));
                            }
                        }
                    }
                });
            });
        });
    }

    /// Prepares the rows of a tile: packs them if they are not read in place, and writes by how
    /// much sums are too great.
    ///
    /// # Safety
    /// The rows are the caller's in `above` and `data`, which have room for all of them.
    unsafe fn lay<G: Tiles>(&self, rows: Range<usize>, data: Shared<i32>, above: Shared<i32>) {
        // SAFETY: promised by the caller.
        unsafe {
            let x = self.x.at(rows.start * self.k).cast_const();
            if !G::IN_PLACE {
                let to = data.at(rows.start * self.groups::<G>());
                pack_rows::<G, T>(x, rows.len(), self.k, to);
            } else if self.is_ragged::<G>(&rows) {
                // Groups would end after the data.
                for r in 0..rows.len() {
                    let to = data.at(r * self.groups::<G>()).cast::<T>();
                    to.copy_from_nonoverlapping(x.add(r * self.k), self.k);
                }
            }
            for (r, i) in rows.enumerate() {
                *above.at(i) = match G::IN_PLACE && T::MOVED != 0 {
                    true => T::MOVED.wrapping_mul(sum(x.add(r * self.k).cast(), self.k)),
                    false => 0,
                };
            }
        }
    }

    /// Whether these rows, which are read in place, end with a part of a group after which there is
    /// no row. (After those of the other tiles there are the rows of the last, at least half as
    /// many as a tile may have: enough for the rest of a group.)
    fn is_ragged<G: Tiles>(&self, rows: &Range<usize>) -> bool {
        const { assert!(!G::IN_PLACE || G::ROWS / 2 >= G::MEMBERS - 1) };
        rows.end == self.rows && !self.k.is_multiple_of(G::MEMBERS)
    }

    /// Packs the weights of panel `i`, after which it writes where the sums of columns begin.
    ///
    /// # Safety
    /// `to` has room for both.
    unsafe fn pack<G: Tiles>(&self, i: usize, to: *mut i32) {
        let first = i * G::COLUMNS;
        let count = G::COLUMNS.min(self.width - first);
        let panel = self.groups::<G>() * G::COLUMNS;
        // SAFETY: promised by the caller.
        unsafe {
            let w = self.w.at(first * self.k).cast_const();
            pack_columns::<G>(w, count, self.k, to);
            let start = self.start.get(first..).unwrap_or_default();
            if G::IN_PLACE {
                if T::MOVED != 0 {
                    move_weights::<G>(std::slice::from_raw_parts_mut(to, panel), self.k);
                }
                for c in 0..count {
                    *to.add(panel + c) = start.get(c).copied().unwrap_or(0);
                }
            } else {
                let start = starts::<G, T>(w, count, self.k, start);
                to.add(panel).copy_from_nonoverlapping(start.as_ptr(), count);
            }
        }
    }

    /// The sums of some tiles with panel `i`.
    ///
    /// # Safety
    /// All is prepared, and these elements of `y` are the caller's.
    unsafe fn multiply<G: Tiles>(
        &self,
        tiles: Range<usize>,
        i: usize,
        weights: *const i32,
        (data, above): (Shared<i32>, Shared<i32>),
    ) {
        let (groups, first) = (self.groups::<G>(), i * G::COLUMNS);
        let count = G::COLUMNS.min(self.width - first);
        let mut sums = [[0; MOST_COLUMNS]; MOST_ROWS];
        for rows in tiles.map(|t| tile_rows(self.rows, self.tiles::<G>(), t)) {
            // SAFETY: promised by the caller.
            unsafe {
                let (from, row) = if !G::IN_PLACE {
                    (data.at(rows.start * groups).cast_const(), 0)
                } else if self.is_ragged::<G>(&rows) {
                    (data.ptr().cast_const(), groups * size_of::<i32>())
                } else {
                    (self.x.at(rows.start * self.k).cast_const().cast(), self.k)
                };
                let operands = Operands { rows: from, row, columns: weights, groups };
                match T::MOVED {
                    0 => G::tile::<false>(rows.len(), operands, &mut sums),
                    _ => G::tile::<true>(rows.len(), operands, &mut sums),
                }
                let start = weights.add(groups * G::COLUMNS);
                let y = self.y.at(rows.start * self.width + first);
                let above = above.at(rows.start).cast_const();
                put_each(&sums[..rows.len()], start, above, (y, self.width), count);
            }
        }
    }
}

crate::simd! {
    /// Writes the first columns of rows of sums, each with its start and less what the row has
    /// above.
    ///
    /// # Safety
    /// `start` has `count` elements, `above` one for each row, and rows of `y`, a distance apart,
    /// have room for `count`.
    unsafe fn put_each[][](
        sums: &[[i32; MOST_COLUMNS]], start: *const i32, above: *const i32,
        y: (*mut i32, usize), count: usize,
    ) -> () {
        for (r, sums) in sums.iter().enumerate() {
            // SAFETY: promised by the caller.
            unsafe {
                let (above, y) = (*above.add(r), y.0.add(r * y.1));
                if count == MOST_COLUMNS {
                    let start = *start.cast::<[i32; MOST_COLUMNS]>();
                    let mut row = [0; MOST_COLUMNS];
                    for c in 0..MOST_COLUMNS {
                        row[c] = sums[c].wrapping_sub(above).wrapping_add(start[c]);
                    }
                    *y.cast() = row;
                    continue;
                }
                for c in 0..count.min(MOST_COLUMNS) {
                    *y.add(c) = sums[c].wrapping_sub(above).wrapping_add(*start.add(c));
                }
            }
        }
    }
}

/// Moves packed weights up by 128, but for those after the last of `k`, which stay 0.
fn move_weights<G: Tiles>(weights: &mut [i32], k: usize) {
    let (whole, rest) = weights.split_at_mut(k / G::MEMBERS * G::COLUMNS);
    let moved = |members: usize| {
        let mut bytes = [0; 4];
        bytes[..members].fill(0x80);
        i32::from_le_bytes(bytes)
    };
    whole.iter_mut().for_each(|group| *group ^= moved(G::MEMBERS));
    rest.iter_mut().for_each(|group| *group ^= moved(k % G::MEMBERS));
}
