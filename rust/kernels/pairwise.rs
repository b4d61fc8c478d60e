//! Sums in pairs, for kernels that sum what they calculate.
//!
//! Terms are added one by one in leaves of at most [`LEAF`] terms, and the leaves are joined in
//! pairs, like the digits of a binary counter. So the error of a sum of `n` terms grows with
//! `LEAF + log2(n)`, not with `n` (N. Higham, The Accuracy of Floating Point Summation, SIAM
//! Journal on Scientific Computing, volume 14, 1993).

use super::arch::opaque;
use super::real::Real;
use super::scratch::with_scratch;
use std::mem::MaybeUninit;

/// Terms that are added one by one.
pub const LEAF: usize = 64;

/// What is summed: a number, or sums side by side.
pub trait Summed: Copy {
    fn add(&mut self, other: &Self);
}

impl<T: Real> Summed for T {
    #[inline(always)]
    fn add(&mut self, other: &Self) {
        *self += *other;
    }
}

impl<S: Summed, const N: usize> Summed for [S; N] {
    #[inline(always)]
    fn add(&mut self, other: &Self) {
        for (a, b) in self.iter_mut().zip(other) {
            a.add(b);
        }
    }
}

/// Digits of the number of leaves.
const DIGITS: usize = 40;

/// Sums of leaves.
pub struct Pairwise<S> {
    /// The sum of 2^k leaves at k, where the number of leaves has a 1. (Nothing is written before
    /// the first leaf: most sums have none.)
    sums: [MaybeUninit<S>; DIGITS],
    leaves: usize,
}

impl<S> Default for Pairwise<S> {
    #[inline(always)]
    fn default() -> Self {
        Pairwise { sums: [const { MaybeUninit::uninit() }; DIGITS], leaves: 0 }
    }
}

impl<S: Summed> Pairwise<S> {
    /// Takes in the sum of a leaf.
    #[inline(always)]
    pub fn push(&mut self, mut leaf: S) {
        let ones = self.leaves.trailing_ones() as usize;
        for earlier in &self.sums[..ones] {
            // SAFETY: it was written when the digit became 1.
            leaf.add(unsafe { earlier.assume_init_ref() });
        }
        self.sums[ones].write(leaf);
        self.leaves += 1;
    }

    /// The sum of all leaves and of `rest`.
    #[inline(always)]
    pub fn total(&self, mut rest: S) -> S {
        let mut leaves = self.leaves;
        while leaves != 0 {
            // SAFETY: as above.
            rest.add(unsafe { self.sums[leaves.trailing_zeros() as usize].assume_init_ref() });
            leaves &= leaves - 1;
        }
        rest
    }
}

/// Terms of a row that are summed side by side: one or two vectors of most types.
pub const LANES: usize = 16;

/// The sum of lanes: neighbours are added, then neighbouring sums, until one is left.
#[inline(always)]
pub fn join<T: Real>(lanes: [T; LANES]) -> T {
    let mut one = [lanes];
    join_all(&mut one, |a, b| a + b);
    one[0][0]
}

/// Joins the lanes of each of `N` rows as [`join`] does, and leaves the results in the first `N`
/// elements. The values of all rows follow one another, so that each step is one long loop.
#[inline(always)]
pub fn join_all<T: Copy, const N: usize>(rows: &mut [[T; LANES]; N], f: impl Fn(T, T) -> T) {
    let values = rows.as_flattened_mut();
    let mut width = LANES / 2;
    while width > 0 {
        for k in 0..N * width {
            values[k] = f(values[2 * k], values[2 * k + 1]);
        }
        width /= 2;
    }
}

/// Lanes are summed in so many groups: each addition to a single one would wait for the one before.
const GROUPS: usize = 4;

/// `f(from) + f(from + 1) + ...` up to `to`, in lanes.
#[inline(always)]
fn leaf<T: Real>(from: usize, to: usize, f: &impl Fn(usize) -> T) -> [T; LANES] {
    const STEP: usize = GROUPS * LANES;
    let [mut lanes, mut a, mut b, mut c] = [[T::zero(); LANES]; GROUPS];
    let mut at = from;
    while at + STEP <= to {
        at = opaque(at);
        for i in 0..LANES {
            lanes[i] += f(at + i);
            a[i] += f(at + LANES + i);
            b[i] += f(at + 2 * LANES + i);
            c[i] += f(at + 3 * LANES + i);
        }
        at += STEP;
    }
    lanes.add(&a);
    b.add(&c);
    lanes.add(&b);
    while at + LANES <= to {
        at = opaque(at);
        for i in 0..LANES {
            lanes[i] += f(at + i);
        }
        at += LANES;
    }
    if at < to {
        // Beside the lanes, which are addressed by constants alone and so stay in registers.
        let mut rest = [T::zero(); LANES];
        for (k, i) in (at..to).map(opaque).enumerate() {
            rest[k] = f(i);
        }
        lanes.add(&rest);
    }
    lanes
}

/// `f(0) + f(1) + ... + f(n - 1)`, in lanes.
#[inline(always)]
pub fn lanes_of<T: Real>(n: usize, f: impl Fn(usize) -> T) -> [T; LANES] {
    const STEP: usize = LEAF * LANES;
    let (mut leaves, mut at) = (Pairwise::default(), 0);
    while n - at > STEP {
        leaves.push(leaf(at, at + STEP, &f));
        at += STEP;
    }
    leaves.total(leaf(at, n, &f))
}

/// `f(0) + f(1) + ... + f(n - 1)`.
#[inline(always)]
pub fn sum_of<T: Real>(n: usize, f: impl Fn(usize) -> T) -> T {
    // Through memory that the compiler cannot see through: it would keep the lanes one by one, here
    // and in the loops above.
    join(*std::hint::black_box(&lanes_of(n, f)))
}

/// The sums of up to `ROWS` rows of `n` terms `f(row, i)`, each as [`sum_of`] takes it: what is
/// calculated of the lanes of short rows is so for all at once.
#[inline(always)]
pub fn sums_of_rows<T: Real, const ROWS: usize>(
    rows: usize,
    n: usize,
    f: impl Fn(usize, usize) -> T,
) -> [T; ROWS] {
    let mut lanes = [[T::zero(); LANES]; ROWS];
    for (r, lanes) in lanes[..rows].iter_mut().enumerate() {
        *lanes = lanes_of(n, |i| f(r, i));
    }
    join_all(std::hint::black_box(&mut lanes), |a, b| a + b); // as in `sum_of`
    std::array::from_fn(|r| lanes.as_flattened()[r])
}

/// The sums of all `f(n, i)`, `K` at once, with `n` up to `outer` and `i` up to `inner`: planes of
/// which each is contiguous, and may be short.
#[inline(always)]
pub fn sums_of_planes<T: Real, const K: usize>(
    (outer, inner): (usize, usize),
    f: impl Fn(usize, usize) -> [T; K],
) -> [T; K] {
    let zero = [[T::zero(); LANES]; K];
    let mut leaves = Pairwise::default();
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
                leaves.push(std::mem::replace(&mut sums, zero));
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
            leaves.push(std::mem::replace(&mut sums, zero));
            steps = 0;
        }
    }
    std::hint::black_box(&leaves.total(sums)).map(join) // as in `sum_of`
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
            let rows = n % 6;
            let sums: [f64; 5] = sums_of_rows(rows, n, |r, i| term(i + r));
            let each = |r: usize| if r < rows { sum_of(n, |i| term(i + r)) } else { 0.0 };
            prop_assert_eq!(sums, std::array::from_fn(each));
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
