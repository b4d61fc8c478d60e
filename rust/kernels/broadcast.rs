//! Broadcasting: two operands of different extents, walked so that the innermost loop is one plain
//! row.

use super::elementwise::TernaryLoop;
use super::map::GRAIN;
use super::parallel::{Shared, parallel_for};
use crate::error::{Error, Result};
use crate::shape::{Dims, Shape};

/// The shape of two broadcast operands: aligned at the last axis, extents equal or 1. Unknown
/// extents stay unknown unless the other operand decides them.
pub fn broadcast_shape(a: &Shape, b: &Shape) -> Result<Shape> {
    if !a.rank_known() || !b.rank_known() {
        return Ok(Shape::unknown());
    }
    let n = a.ndim().max(b.ndim());
    let at = |s: &Shape, i: usize| {
        let skip = n - s.ndim();
        if i < skip { 1 } else { s.dims()[i - skip] }
    };
    (0..n)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            (-1, y) => Ok(y),
            (x, -1) => Ok(x),
            _ => Err(Error::value(format!(
                "operands could not be broadcast together with shapes {a} {b}: expected equal \
                 extents, or 1, on each axis"
            ))),
        })
        .collect()
}

/// Strides by which an operand of shape `from` is read in the broadcast shape `to`: 0 along
/// repeated axes.
pub fn broadcast_strides(from: &Shape, to: &Shape) -> Dims {
    let skip = to.ndim() - from.ndim();
    let own = from.strides();
    (0..to.ndim())
        .map(|i| if i < skip || from.dims()[i - skip] == 1 { 0 } else { own[i - skip] })
        .collect()
}

/// A walk over a shape for several operands with strides: outer positions, and an inner row in
/// which every operand has step 0 or 1. Adjacent axes are merged where all operands allow it.
pub struct Walk<const N: usize> {
    /// Extents and strides of the outer axes, outermost first.
    outer: Vec<(usize, [usize; N])>,
    pub row: usize,
    pub steps: [usize; N],
}

impl<const N: usize> Walk<N> {
    pub fn new(dims: &[i64], strides: [&[i64]; N]) -> Self {
        let mut axes: Vec<(usize, [usize; N])> = Vec::new();
        for (i, &d) in dims.iter().enumerate() {
            let step = strides.map(|s| s[i].max(0) as usize);
            let d = d.max(0) as usize;
            if d == 1 {
                continue;
            }
            match axes.last_mut() {
                Some((extent, last)) if (0..N).all(|k| last[k] == step[k] * d) => {
                    *extent *= d;
                    *last = step;
                }
                _ => axes.push((d, step)),
            }
        }
        match axes.last() {
            Some((row, steps)) if steps.iter().all(|&s| s <= 1) => {
                let (row, steps) = (*row, *steps);
                axes.pop();
                Walk { outer: axes, row, steps }
            }
            _ => Walk { outer: axes, row: 1, steps: [1; N] },
        }
    }

    pub fn rows(&self) -> usize {
        self.outer.iter().map(|a| a.0).product()
    }

    /// The operands' offsets at row `i`.
    #[inline]
    pub fn offsets(&self, mut i: usize) -> [usize; N] {
        let mut at = [0; N];
        for (extent, steps) in self.outer.iter().rev() {
            let k = i % extent;
            i /= extent;
            for (a, s) in at.iter_mut().zip(steps) {
                *a += k * s;
            }
        }
        at
    }
}

/// Calls `f(row, offsets)` for every row, split between threads.
pub fn for_rows<const N: usize>(walk: &Walk<N>, f: impl Fn(usize, [usize; N]) + Send + Sync) {
    let grain = (GRAIN / walk.row.max(1)).max(1);
    parallel_for(walk.rows(), grain, |rows| {
        for r in rows {
            f(r, walk.offsets(r));
        }
    });
}

/// `out = f(a, b)` over the shape `dims` of the row-major output; strides as returned by
/// [`broadcast_strides`].
///
/// # Safety
/// The operands are valid for what shape and strides address, `out` for the whole shape; `out` is
/// the same memory as an operand that is not repeated, or overlaps none.
pub unsafe fn broadcast_binary(
    run: super::elementwise::BinaryLoop,
    size: usize,
    dims: &[i64],
    (a, stride_a): (*const u8, &[i64]),
    (b, stride_b): (*const u8, &[i64]),
    out: *mut u8,
) {
    let walk = Walk::new(dims, [stride_a, stride_b]);
    if dims.contains(&0) {
        return;
    }
    if walk.rows() == 1 {
        // SAFETY: promised by the caller.
        return unsafe { super::elementwise::binary(run, size, [a, b], out, walk.row, walk.steps) };
    }
    let (a, b, out) = (Shared(a.cast_mut()), Shared(b.cast_mut()), Shared(out));
    for_rows(&walk, |r, [i, j]| {
        // SAFETY: offsets and row lie inside of what the caller promised; rows of the output are
        // disjoint.
        unsafe {
            run(
                a.at(i * size).cast_const(),
                b.at(j * size).cast_const(),
                out.at(r * walk.row * size),
                walk.row,
                walk.steps,
            )
        }
    });
}

/// `out = f(g, a, b)` with row-major `g` and `out` of shape `dims` and broadcast `a`, `b`.
///
/// # Safety
/// As [`broadcast_binary`].
pub unsafe fn broadcast_ternary(
    run: TernaryLoop,
    size: usize,
    dims: &[i64],
    g: *const u8,
    (a, stride_a): (*const u8, &[i64]),
    (b, stride_b): (*const u8, &[i64]),
    out: *mut u8,
) {
    if dims.contains(&0) {
        return;
    }
    let walk = Walk::new(dims, [stride_a, stride_b]);
    let (g, a, b, out) =
        (Shared(g.cast_mut()), Shared(a.cast_mut()), Shared(b.cast_mut()), Shared(out));
    for_rows(&walk, |r, [i, j]| {
        let at = r * walk.row * size;
        // SAFETY: as in `broadcast_binary`.
        unsafe {
            run(
                g.at(at).cast_const(),
                a.at(i * size).cast_const(),
                b.at(j * size).cast_const(),
                out.at(at),
                walk.row,
                walk.steps,
            )
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_walk_visits_what_indices_address(dims in prop::collection::vec(0i64..4, 0..5), mask in 0u32..32) {
            let shape = Shape::new(&dims);
            let small: Shape = dims.iter().enumerate()
                .map(|(i, &d)| if mask >> i & 1 == 1 { 1 } else { d }).collect();
            let strides = broadcast_strides(&small, &shape);
            let walk = Walk::new(&dims, [&strides]);
            let mut got = Vec::new();
            if !dims.contains(&0) {
                for r in 0..walk.rows() {
                    let [at] = walk.offsets(r);
                    got.extend((0..walk.row).map(|k| at + k * walk.steps[0]));
                }
            }
            let mut want = Vec::new();
            for i in 0..shape.size() {
                let (mut rest, mut at) = (i, 0);
                for k in (0..dims.len()).rev() {
                    at += (rest as i64 % dims[k]) * strides[k];
                    rest /= dims[k] as usize;
                }
                want.push(at as usize);
            }
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn shapes_broadcast_as_in_numpy() {
        let s = |d: &[i64]| Shape::new(d);
        assert_eq!(broadcast_shape(&s(&[2, 1]), &s(&[3])).unwrap(), s(&[2, 3]));
        assert_eq!(broadcast_shape(&s(&[0, 1]), &s(&[1, 3])).unwrap(), s(&[0, 3]));
        assert_eq!(broadcast_shape(&s(&[]), &s(&[2])).unwrap(), s(&[2]));
        assert!(broadcast_shape(&s(&[2]), &s(&[3])).is_err());
    }
}
