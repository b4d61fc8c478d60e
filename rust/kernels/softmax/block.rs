//! Blocks of `LANES` elements, of which loops are made that the compiler vectorises.

use super::LANES;
use crate::kernels::real::Real;

/// Elements side by side.
pub type Block<T> = [T; LANES];

/// Copies `n` elements, less than `LANES`: in at most four moves of fixed size.
///
/// # Safety
/// `from` holds `n` elements, `to` has room for them, and they are apart.
#[inline(always)]
pub unsafe fn copy_some<T>(from: *const T, to: *mut T, n: usize) {
    const { assert!(LANES == 16) };
    let mut at = 0;
    // SAFETY: promised by the caller; the parts add up to `n`.
    unsafe {
        if n & 8 != 0 {
            to.copy_from_nonoverlapping(from, 8);
            at = 8;
        }
        if n & 4 != 0 {
            to.add(at).copy_from_nonoverlapping(from.add(at), 4);
            at += 4;
        }
        if n & 2 != 0 {
            to.add(at).copy_from_nonoverlapping(from.add(at), 2);
            at += 2;
        }
        if n & 1 != 0 {
            to.add(at).copy_from_nonoverlapping(from.add(at), 1);
        }
    }
}

/// The first `n` elements at `x`, then zeros.
///
/// # Safety
/// `x` holds `n` elements.
#[inline(always)]
pub unsafe fn load<T: Real>(x: *const T, n: usize) -> Block<T> {
    // SAFETY: promised by the caller.
    unsafe {
        if n >= LANES {
            return x.cast::<Block<T>>().read_unaligned();
        }
        let mut block = [T::zero(); LANES];
        copy_some(x, block.as_mut_ptr(), n);
        block
    }
}

/// Writes the first `n` elements of a block, at most all.
///
/// # Safety
/// `y` has room for them.
#[inline(always)]
pub unsafe fn store<T: Real>(block: &Block<T>, y: *mut T, n: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        if n >= LANES {
            return y.cast::<Block<T>>().write_unaligned(*block);
        }
        copy_some(block.as_ptr(), y, n);
    }
}

/// The lanes of `block` where `chosen` is 1, those of `other` elsewhere.
#[inline(always)]
pub fn choose<T: Real>(chosen: &Block<T>, mut block: Block<T>, other: T) -> Block<T> {
    for k in 0..LANES {
        block[k] = if chosen[k] > T::zero() { block[k] } else { other };
    }
    block
}

#[inline(always)]
pub fn scaled<T: Real>(mut block: Block<T>, by: T) -> Block<T> {
    for v in &mut block {
        *v *= by;
    }
    block
}

/// `(block - top) * factor`.
#[inline(always)]
pub fn below<T: Real>(mut block: Block<T>, top: &Block<T>, factor: T) -> Block<T> {
    for k in 0..LANES {
        block[k] = (block[k] - top[k]) * factor;
    }
    block
}

#[inline(always)]
pub fn exp<T: Real, const FUSED: bool>(mut block: Block<T>) -> Block<T> {
    for v in &mut block {
        *v = v.exp_below_88::<FUSED>();
    }
    block
}

#[inline(always)]
pub fn subtract<T: Real>(block: &mut Block<T>, what: &Block<T>) {
    for k in 0..LANES {
        block[k] -= what[k];
    }
}

#[inline(always)]
pub fn multiply<T: Real>(block: &mut Block<T>, by: &Block<T>) {
    for k in 0..LANES {
        block[k] *= by[k];
    }
}

/// Raises lanes to the larger ones of a block; NaN is ignored.
#[inline(always)]
pub fn raise<T: Real>(lanes: &mut Block<T>, block: &Block<T>) {
    for k in 0..LANES {
        lanes[k] = if block[k] > lanes[k] { block[k] } else { lanes[k] };
    }
}

/// What an element adds to the sum of its gradient's row: `g`, or `g * p`.
#[inline(always)]
pub fn weighted<T: Real>(mut g: Block<T>, p: &Block<T>, log: bool) -> Block<T> {
    if !log {
        multiply(&mut g, p);
    }
    g
}

/// The gradients of a block of outputs `p` with gradients `g`, of which `total` is the sum of
/// [`weighted`].
#[inline(always)]
pub fn gradient<T: Real, const FUSED: bool>(
    p: Block<T>,
    mut g: Block<T>,
    total: &Block<T>,
    (scale, log): (T, bool),
) -> Block<T> {
    if log {
        let e = exp::<T, FUSED>(p);
        for k in 0..LANES {
            g[k] = scale * (g[k] - e[k] * total[k]);
        }
    } else {
        for k in 0..LANES {
            g[k] = scale * p[k] * (g[k] - total[k]);
        }
    }
    g
}
