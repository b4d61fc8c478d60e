//! Rows: the reduced elements follow one another in memory.

use super::fold::{Accumulate, Fold};
use crate::kernels::arch::opaque;
use crate::kernels::pairwise::{LANES, join_all};
use std::mem::MaybeUninit;

/// Groups of lanes: each step on a single one would wait for the step before.
const GROUPS: usize = 4;
/// Elements of the leaves of the tree, which add up to 32 of them in a row. (Row sums of 32 MiB on
/// one thread: 440 us; with half the elements 515.)
const LEAF: usize = 32 * GROUPS * LANES;
/// Rows of which the lanes are kept before those of each are joined.
pub const TOGETHER: usize = 16;
/// Vectors of lanes of short rows that are joined one after another, at most.
const SHORT: usize = 64;

/// The values of the lanes of a row.
pub type Lanes<V> = [V; LANES];

#[inline(always)]
fn join_lanes<T: Accumulate, F: Fold<T>>(a: &mut Lanes<F::Value>, b: &Lanes<F::Value>) {
    for k in 0..LANES {
        a[k] = F::join(a[k], b[k]);
    }
}

#[inline(always)]
fn joined<T: Accumulate, F: Fold<T>>(
    mut a: Lanes<F::Value>,
    b: &Lanes<F::Value>,
) -> Lanes<F::Value> {
    join_lanes::<T, F>(&mut a, b);
    a
}

/// # Safety
/// `x` is valid for `LANES` elements.
#[inline(always)]
unsafe fn take_lanes<T: Accumulate, F: Fold<T>>(lanes: &mut Lanes<F::Value>, x: *const T) {
    for k in 0..LANES {
        // SAFETY: promised by the caller.
        lanes[k] = F::join(lanes[k], F::value(unsafe { *x.add(k) }));
    }
}

/// The value of all lanes.
#[inline(always)]
pub fn total<T: Accumulate, F: Fold<T>>(lanes: Lanes<F::Value>) -> F::Value {
    let mut one = [lanes];
    join_all(&mut one, F::join);
    one[0][0]
}

/// The lanes of a leaf of the tree.
///
/// # Safety
/// `x` is valid for `n` elements.
#[inline(always)]
unsafe fn fold_leaf<T: Accumulate, F: Fold<T>>(x: *const T, n: usize) -> Lanes<F::Value> {
    const STEP: usize = LANES * GROUPS;
    let mut lanes = [F::start(); LANES];
    let mut at = 0;
    // SAFETY: all offsets are below `n`.
    unsafe {
        if n >= STEP {
            let [mut a, mut b, mut c] = [[F::start(); LANES]; GROUPS - 1];
            while at + STEP <= n {
                at = opaque(at);
                take_lanes::<T, F>(&mut lanes, x.add(at));
                take_lanes::<T, F>(&mut a, x.add(at + LANES));
                take_lanes::<T, F>(&mut b, x.add(at + 2 * LANES));
                take_lanes::<T, F>(&mut c, x.add(at + 3 * LANES));
                at += STEP;
            }
            join_lanes::<T, F>(&mut lanes, &a);
            join_lanes::<T, F>(&mut b, &c);
            join_lanes::<T, F>(&mut lanes, &b);
        }
        while at + LANES <= n {
            at = opaque(at);
            take_lanes::<T, F>(&mut lanes, x.add(at));
            at += LANES;
        }
        if at < n {
            // Beside the lanes, and not unrolled: else these are kept one by one here, and so in
            // parts of vectors in the loops above (with 560 us).
            let mut rest = [F::start(); LANES];
            let mut k = 0;
            while k < n - at {
                k = opaque(k);
                rest[k] = F::value(*x.add(at + k));
                k += 1;
            }
            join_lanes::<T, F>(&mut lanes, &rest);
        }
    }
    lanes
}

/// Folds a row: leaves, joined in pairs. A pair waits in `pending` for the next pair of its size,
/// as the digits of a binary number that is counted up.
///
/// # Safety
/// `x` is valid for `n` elements.
#[inline(always)]
unsafe fn fold_row<T: Accumulate, F: Fold<T>>(x: *const T, n: usize) -> Lanes<F::Value> {
    let mut pending = [MaybeUninit::<Lanes<F::Value>>::uninit(); usize::BITS as usize];
    let (mut at, mut leaves) = (0, 0usize);
    // SAFETY: leaves lie in the row; as many lists of lanes were written as `leaves` has digits,
    // and those of its ones are read.
    unsafe {
        while n - at > LEAF {
            let mut lanes = fold_leaf::<T, F>(x.add(at), LEAF);
            let ones = leaves.trailing_ones() as usize;
            for before in &pending[..ones] {
                lanes = joined::<T, F>(before.assume_init(), &lanes);
            }
            pending[ones].write(lanes);
            leaves += 1;
            at += LEAF;
        }
        let mut lanes = fold_leaf::<T, F>(x.add(at), n - at);
        while leaves != 0 {
            let digit = leaves.trailing_zeros() as usize;
            lanes = joined::<T, F>(pending[digit].assume_init(), &lanes);
            leaves &= leaves - 1;
        }
        lanes
    }
}

crate::simd! {
    /// Folds rows that follow one another, each to an element of `y`.
    ///
    /// # Safety
    /// `x` is valid for `rows` times `n` elements, `y` for `rows`.
    pub unsafe fn fold_rows[T: Accumulate, F: Fold<T>][T, F](
        x: *const T, rows: usize, n: usize, y: *mut T,
    ) -> () {
        let mut room = [[F::start(); LANES]; TOGETHER];
        for first in (0..rows).step_by(TOGETHER) {
            let count = TOGETHER.min(rows - first);
            for (k, lanes) in room[..count].iter_mut().enumerate() {
                // SAFETY: promised by the caller.
                *lanes = unsafe { fold_row::<T, F>(x.add((first + k) * n), n) };
            }
            // Through memory that the compiler cannot see through: it would keep the lanes one by
            // one, here and in the loops of the fold.
            let room = std::hint::black_box(&mut room);
            join_all(room, F::join);
            for (k, &value) in room.as_flattened()[..count].iter().enumerate() {
                // SAFETY: promised by the caller.
                unsafe { *y.add(first + k) = F::end(value, n) };
            }
        }
    }

    /// Folds rows at `offsets` into one value: rows, joined in pairs.
    ///
    /// # Safety
    /// `x` is valid for `n` elements from each offset on.
    pub unsafe fn fold_scattered[T: Accumulate, F: Fold<T>][T, F](
        x: *const T, offsets: &[usize], n: usize,
    ) -> Lanes<F::Value> {
        // SAFETY: promised by the caller.
        unsafe {
            if offsets.len() * n.div_ceil(LANES) > SHORT && offsets.len() > 1 {
                let (first, second) = offsets.split_at(offsets.len() / 2);
                let mut lanes = fold_scattered::<T, F>(x, first, n);
                join_lanes::<T, F>(&mut lanes, &fold_scattered::<T, F>(x, second, n));
                return lanes;
            }
            let mut lanes = [F::start(); LANES];
            for &offset in offsets {
                join_lanes::<T, F>(&mut lanes, &fold_row::<T, F>(x.add(offset), n));
            }
            lanes
        }
    }
}
