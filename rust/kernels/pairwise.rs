//! Sums in pairs, for kernels that sum what they calculate.
//!
//! Terms are added one by one in leaves of at most [`LEAF`] terms, and the leaves are joined in
//! pairs, like the digits of a binary counter. So the error of a sum of `n` terms grows with
//! `LEAF + log2(n)`, not with `n` (N. Higham, The Accuracy of Floating Point Summation, SIAM
//! Journal on Scientific Computing, volume 14, 1993).

use super::real::Real;
use super::scratch::with_scratch;
use smallvec::SmallVec;

/// Terms that are added one by one.
pub const LEAF: usize = 64;

/// Sums of leaves, `N` side by side.
#[derive(Default)]
pub struct Pairwise<T, const N: usize> {
    /// Sums of 2^k leaves, in falling order of k.
    sums: SmallVec<[[T; N]; 2]>,
    leaves: usize,
}

#[inline(always)]
fn add<T: Real, const N: usize>(a: &mut [T; N], b: &[T; N]) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a += b;
    }
}

impl<T: Real, const N: usize> Pairwise<T, N> {
    /// Takes in the sum of a leaf.
    #[inline(always)]
    pub fn push(&mut self, mut leaf: [T; N]) {
        self.leaves += 1;
        for _ in 0..self.leaves.trailing_zeros() {
            if let Some(earlier) = self.sums.pop() {
                add(&mut leaf, &earlier);
            }
        }
        self.sums.push(leaf);
    }

    /// The sum of all leaves and of `rest`.
    #[inline(always)]
    pub fn total(mut self, mut rest: [T; N]) -> [T; N] {
        while let Some(earlier) = self.sums.pop() {
            add(&mut rest, &earlier);
        }
        rest
    }
}

/// Terms that are summed side by side.
pub const LANES: usize = 16;

/// The sum of an array in pairs.
#[inline(always)]
pub fn join<T: Real>(mut lanes: [T; LANES]) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for k in 0..width {
            lanes[k] += lanes[k + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// `f(from) + f(from + 1) + ...` up to `to`, in lanes.
#[inline(always)]
fn leaf<T: Real>(from: usize, to: usize, f: &impl Fn(usize) -> T) -> [T; LANES] {
    let mut lanes = [T::zero(); LANES];
    let whole = from + (to - from) / LANES * LANES;
    for start in (from..whole).step_by(LANES) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane += f(start + i);
        }
    }
    for (lane, i) in lanes.iter_mut().zip(whole..to) {
        *lane += f(i);
    }
    lanes
}

/// `f(0) + f(1) + ... + f(n - 1)`.
#[inline(always)]
pub fn sum_of<T: Real>(n: usize, f: impl Fn(usize) -> T) -> T {
    const STEP: usize = LEAF * LANES;
    if n <= STEP {
        return join(leaf(0, n, &f));
    }
    let mut sums = Pairwise::default();
    let whole = n / STEP * STEP;
    for start in (0..whole).step_by(STEP) {
        sums.push(leaf(start, start + STEP, &f));
    }
    join(sums.total(leaf(whole, n, &f)))
}

/// The sums of all `f(n, i)`, `K` at once, with `n` up to `outer` and `i` up to `inner`: planes of
/// which each is contiguous, and may be short.
#[inline(always)]
pub fn sums_of_planes<T: Real, const K: usize>(
    (outer, inner): (usize, usize),
    f: impl Fn(usize, usize) -> [T; K],
) -> [T; K] {
    let zero = [[T::zero(); LANES]; K];
    let mut leaves: [Pairwise<T, LANES>; K] = std::array::from_fn(|_| Pairwise::default());
    let (mut sums, mut steps) = (zero, 0);
    let whole = inner / LANES * LANES;
    for n in 0..outer {
        for start in (0..whole).step_by(LANES) {
            for i in 0..LANES {
                let terms = f(n, start + i);
                for k in 0..K {
                    sums[k][i] += terms[k];
                }
            }
            steps += 1;
            if steps == LEAF {
                for k in 0..K {
                    leaves[k].push(std::mem::replace(&mut sums[k], zero[k]));
                }
                steps = 0;
            }
        }
        for i in whole..inner {
            let terms = f(n, i);
            for k in 0..K {
                sums[k][i - whole] += terms[k];
            }
        }
        steps += usize::from(whole < inner);
        if steps == LEAF {
            for k in 0..K {
                leaves[k].push(std::mem::replace(&mut sums[k], zero[k]));
            }
            steps = 0;
        }
    }
    let mut rest = sums.iter();
    leaves.map(|leaves| join(leaves.total(rest.next().copied().unwrap_or(zero[0]))))
}

/// Sums rows: `add(r, sums)` adds row `r` to `width` running sums, and `done` gets the totals.
#[inline(always)]
pub fn sum_rows_of<T: Real>(
    rows: usize,
    width: usize,
    add: impl Fn(usize, &mut [T]),
    done: impl FnOnce(&mut [T]),
) {
    let leaves = rows.div_ceil(LEAF).max(1);
    let levels = leaves.next_power_of_two().ilog2() as usize + 2;
    with_scratch(levels * width, |room: &mut [T]| {
        // The first `filled` rows of the room are sums of leaves.
        let mut filled = 0;
        for leaf in 0..leaves {
            let sums = &mut room[filled * width..(filled + 1) * width];
            sums.fill(T::zero());
            for r in leaf * LEAF..((leaf + 1) * LEAF).min(rows) {
                add(r, sums);
            }
            filled += 1;
            for _ in 0..(leaf + 1).trailing_zeros() {
                filled -= 1;
                join_last(room, filled, width);
            }
        }
        while filled > 1 {
            filled -= 1;
            join_last(room, filled, width);
        }
        done(&mut room[..width]);
    });
}

/// Adds row `last` to the one before it.
#[inline(always)]
fn join_last<T: Real>(room: &mut [T], last: usize, width: usize) {
    let (earlier, later) = room.split_at_mut(last * width);
    for (a, &b) in earlier[(last - 1) * width..].iter_mut().zip(&later[..width]) {
        *a += b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_of_whole_numbers_are_exact(n in 0usize..5000, width in 0usize..5) {
            let term = |i: usize| (i * 7 % 11) as f64;
            let want: f64 = (0..n).map(term).sum();
            prop_assert_eq!(sum_of(n, term), want);
            let planes = sums_of_planes((n / 40, 40), |n, i| [term(n * 40 + i), 1.0]);
            let of_planes: f64 = (0..n / 40 * 40).map(term).sum();
            prop_assert_eq!(planes, [of_planes, (n / 40 * 40) as f64]);
            let add = |r: usize, sums: &mut [f64]| sums.iter_mut().for_each(|s| *s += term(r));
            sum_rows_of(n, width, add, |sums| assert!(sums.iter().all(|s| *s == want)));
        }
    }

    #[test]
    fn long_sums_of_float32_are_accurate() {
        let (n, want) = (10_000_000usize, 1e7 * f64::from(0.1f32));
        let close = |sum: f32| assert!((f64::from(sum) - want).abs() < 96.0 * 6e-8 * want, "{sum}");
        close(sum_of(n, |_| 0.1f32));
        close(sums_of_planes((n / 50, 50), |_, _| [0.1f32])[0]);
        sum_rows_of(n, 2, |_, s: &mut [f32]| s.iter_mut().for_each(|s| *s += 0.1), |s| close(s[1]));
    }
}
