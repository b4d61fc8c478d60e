//! Reductions over any set of axes.
//!
//! Axes are merged into runs that are all kept or all reduced. Where the innermost run is reduced, each output
//! element sums a row with several vectors of running sums; where it is kept, whole rows are added to a row of
//! outputs. Work is split over outputs only, in blocks of fixed size, so results have the same bits for any
//! number of threads.

use super::arith::Arith;
use super::parallel::{Shared, parallel_for};
use super::scratch::with_scratch;
use crate::dtype::Element;
use crate::tensor::View;
use crate::with_dtype;
use half::f16;

/// What is accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    Sum,
    /// The sum divided by the number of elements reduced.
    Mean,
    Product,
    Max,
    Min,
    /// The sum with NaN as 0.
    NanSum,
    /// The product with NaN as 1.
    NanProduct,
    /// The sum of absolute values.
    Norm1,
    /// The root of the sum of squares.
    Norm2,
}

/// An element type with the type its sums are kept in.
pub trait Accumulate: Arith {
    type Sum: Arith;
    fn widen(self) -> Self::Sum;
    fn narrow(sum: Self::Sum) -> Self;
    fn lowest() -> Self;
    fn highest() -> Self;
    fn root(sum: Self::Sum) -> Self::Sum;
}

macro_rules! accumulate {
    ($($t:ident, $sum:ident, $low:expr, $high:expr;)*) => {$(
        impl Accumulate for $t {
            type Sum = $sum;
            #[inline(always)]
            fn widen(self) -> $sum { self as $sum }
            #[inline(always)]
            fn narrow(sum: $sum) -> Self { sum as $t }
            #[inline(always)]
            fn lowest() -> Self { $low }
            #[inline(always)]
            fn highest() -> Self { $high }
            fn root(sum: $sum) -> $sum { (sum as f64).sqrt() as $sum }
        }
    )*};
}
accumulate! {
    f32, f32, f32::NEG_INFINITY, f32::INFINITY;
    f64, f64, f64::NEG_INFINITY, f64::INFINITY;
    u8, u8, u8::MIN, u8::MAX;
    i8, i8, i8::MIN, i8::MAX;
    i32, i32, i32::MIN, i32::MAX;
    i64, i64, i64::MIN, i64::MAX;
}

impl Accumulate for f16 {
    type Sum = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn narrow(sum: f32) -> Self {
        f16::from_f32(sum)
    }
    fn lowest() -> Self {
        f16::NEG_INFINITY
    }
    fn highest() -> Self {
        f16::INFINITY
    }
    fn root(sum: f32) -> f32 {
        sum.sqrt()
    }
}

impl Accumulate for bool {
    type Sum = bool;
    #[inline(always)]
    fn widen(self) -> bool {
        self
    }
    #[inline(always)]
    fn narrow(sum: bool) -> Self {
        sum
    }
    fn lowest() -> Self {
        false
    }
    fn highest() -> Self {
        true
    }
    fn root(sum: bool) -> bool {
        sum
    }
}

/// How a reduction begins, takes in an element, joins two partial results and ends.
trait Fold<T: Accumulate> {
    fn start() -> T::Sum;
    fn take(sum: T::Sum, x: T) -> T::Sum;
    fn join(a: T::Sum, b: T::Sum) -> T::Sum;
    fn end(sum: T::Sum, _count: usize) -> T {
        T::narrow(sum)
    }
}

macro_rules! folds {
    ($($name:ident: $start:expr, |$s:ident, $x:ident| $take:expr, |$a:ident, $b:ident| $join:expr
        $(, |$e:ident, $n:ident| $end:expr)?;)*) => {$(
        struct $name;
        impl<T: Accumulate> Fold<T> for $name {
            #[inline(always)]
            fn start() -> T::Sum { $start }
            #[inline(always)]
            fn take($s: T::Sum, $x: T) -> T::Sum { $take }
            #[inline(always)]
            fn join($a: T::Sum, $b: T::Sum) -> T::Sum { $join }
            $(fn end($e: T::Sum, $n: usize) -> T { $end })?
        }
    )*};
}

folds! {
    Sum: T::Sum::zero(), |s, x| s.add(x.widen()), |a, b| a.add(b);
    Mean: T::Sum::zero(), |s, x| s.add(x.widen()), |a, b| a.add(b), |s, n| {
        // Integers are truncated, as everywhere; the mean of nothing is NaN where there is one.
        if n == 0 { T::from_f64(f64::NAN) } else { T::from_f64(s.to_f64() / n as f64) }
    };
    Product: T::Sum::one(), |s, x| s.mul(x.widen()), |a, b| a.mul(b);
    Max: T::lowest().widen(), |s, x| s.max(x.widen()), |a, b| a.max(b);
    Min: T::highest().widen(), |s, x| s.min(x.widen()), |a, b| a.min(b);
    NanSum: T::Sum::zero(), |s, x| if x.is_nan() { s } else { s.add(x.widen()) }, |a, b| a.add(b);
    NanProduct: T::Sum::one(), |s, x| if x.is_nan() { s } else { s.mul(x.widen()) }, |a, b| a.mul(b);
    Norm1: T::Sum::zero(), |s, x| {
        let x = x.widen();
        if x < T::Sum::zero() { s.sub(x) } else { s.add(x) }
    }, |a, b| a.add(b);
    Norm2: T::Sum::zero(), |s, x| s.add(x.widen().mul(x.widen())), |a, b| a.add(b), |s, _n| T::narrow(T::root(s));
}

/// Runs of axes: extent and whether they are reduced, outermost first; axes of extent 1 are left out.
fn runs(dims: &[i64], reduced: &[bool]) -> Vec<(usize, bool)> {
    let mut runs: Vec<(usize, bool)> = Vec::new();
    for (&d, &r) in dims.iter().zip(reduced) {
        match runs.last_mut() {
            _ if d == 1 => {}
            Some((n, same)) if *same == r => *n *= d as usize,
            _ => runs.push((d as usize, r)),
        }
    }
    runs
}

/// Offsets in the input of all combinations of the runs with `flag`, the innermost `skip_last` excepted.
fn offsets(runs: &[(usize, bool)], flag: bool) -> Vec<usize> {
    let mut stride = 1;
    let mut at = vec![0];
    // From the innermost run outwards; earlier runs vary slowest.
    for &(n, r) in runs.iter().rev() {
        if r == flag {
            at = (0..n).flat_map(|k| at.iter().map(move |a| a + k * stride)).collect();
        }
        stride *= n;
    }
    at
}

/// Reduces `input` over the axes flagged in `reduced` into `out`, which has the kept extents in order.
pub fn reduce(how: Reduction, input: &View, reduced: &[bool], out: &View) {
    with_dtype!(input.dtype(), T => match how {
        Reduction::Sum => fold::<T, Sum>(input, reduced, out),
        Reduction::Mean => fold::<T, Mean>(input, reduced, out),
        Reduction::Product => fold::<T, Product>(input, reduced, out),
        Reduction::Max => fold::<T, Max>(input, reduced, out),
        Reduction::Min => fold::<T, Min>(input, reduced, out),
        Reduction::NanSum => fold::<T, NanSum>(input, reduced, out),
        Reduction::NanProduct => fold::<T, NanProduct>(input, reduced, out),
        Reduction::Norm1 => fold::<T, Norm1>(input, reduced, out),
        Reduction::Norm2 => fold::<T, Norm2>(input, reduced, out),
    })
}

/// Reduces `input` to the shape of `out`, which could be broadcast to it: the axes that are missing or of
/// extent 1 there are summed (or whatever `how` says).
pub fn reduce_to(how: Reduction, input: &View, out: &View) {
    let skip = input.ndim() - out.ndim();
    let reduced: Vec<bool> = (0..input.ndim())
        .map(|i| i < skip || (out.dims()[i - skip] == 1 && input.dims()[i] != 1))
        .collect();
    reduce(how, input, &reduced, out);
}

fn fold<T: Accumulate, F: Fold<T>>(input: &View, reduced: &[bool], out: &View) {
    let count: usize =
        input.dims().iter().zip(reduced).filter(|d| *d.1).map(|d| *d.0 as usize).product();
    let n_out = out.size();
    let (x, y) = (Shared(input.as_ptr::<T>()), Shared(out.as_ptr::<T>()));
    if n_out == 0 {
        return;
    }
    if count == 0 {
        for i in 0..n_out {
            // SAFETY: inside of the output.
            unsafe { *y.at(i) = F::end(F::start(), 0) };
        }
        return;
    }
    let runs = runs(input.dims(), reduced);
    match runs.last() {
        Some(&(row, true)) => {
            let outer = &runs[..runs.len() - 1];
            let scale = |v: Vec<usize>| v.into_iter().map(|o| o * row).collect::<Vec<_>>();
            let grain = ((1 << 14) / count).max(1);
            if count == row {
                // Rows follow one another.
                return parallel_for(n_out, grain, |range| {
                    // SAFETY: rows of the input, elements of the output; every index belongs to one task.
                    unsafe {
                        let (x, y) = (x.at(range.start * row), y.at(range.start));
                        fold_rows::<T, F>(x.cast_const(), range.len(), row, y);
                    }
                });
            }
            let (kept, summed) = (scale(offsets(outer, false)), scale(offsets(outer, true)));
            parallel_for(n_out, grain, |range| {
                for o in range {
                    let mut total = F::start();
                    for s in &summed {
                        // SAFETY: the offsets address rows of the input.
                        let part = unsafe { fold_row::<T, F>(x.at(kept[o] + s).cast_const(), row) };
                        total = F::join(total, part);
                    }
                    // SAFETY: inside of the output; every index belongs to one task.
                    unsafe { *y.at(o) = F::end(total, count) };
                }
            });
        }
        last => {
            let width = last.map_or(1, |l| l.0);
            let outer = &runs[..runs.len().saturating_sub(1)];
            let scale = |v: Vec<usize>| v.into_iter().map(|o| o * width).collect::<Vec<_>>();
            let (kept, summed) = (scale(offsets(outer, false)), scale(offsets(outer, true)));
            // Columns of at most so many outputs are one task: the running sums stay in the first cache.
            let block = width.min(1024);
            let per_row = width.div_ceil(block);
            let grain = ((1 << 14) / (block * summed.len())).max(1);
            parallel_for(kept.len() * per_row, grain, |range| {
                with_scratch::<T::Sum, _>(block, |sums| {
                    for task in range.clone() {
                        let (o, c) = (task / per_row, task % per_row * block);
                        let len = block.min(width - c);
                        sums[..len].fill(F::start());
                        for s in &summed {
                            // SAFETY: `len` elements of a row of the input.
                            unsafe {
                                let from = x.at(kept[o] + s + c).cast_const();
                                add_row::<T, F>(sums.as_mut_ptr(), from, len);
                            }
                        }
                        for (k, sum) in sums[..len].iter().enumerate() {
                            // SAFETY: inside of the output; tasks have columns of their own.
                            unsafe { *y.at(o * width + c + k) = F::end(*sum, count) };
                        }
                    }
                });
            });
        }
    }
}

/// Running results of a row: more than one vector, as the next step on one would wait for the last.
const LANES: usize = 16;
const VECTORS: usize = 4;

#[inline(always)]
fn join_lanes<T: Accumulate, F: Fold<T>>(a: &mut [T::Sum; LANES], b: &[T::Sum; LANES]) {
    for k in 0..LANES {
        a[k] = F::join(a[k], b[k]);
    }
}

/// # Safety
/// `x` is valid for `LANES` elements.
#[inline(always)]
unsafe fn take_lanes<T: Accumulate, F: Fold<T>>(lanes: &mut [T::Sum; LANES], x: *const T) {
    for k in 0..LANES {
        // SAFETY: promised by the caller.
        lanes[k] = F::take(lanes[k], unsafe { *x.add(k) });
    }
}

/// # Safety
/// `x` is valid for `n` elements.
#[inline(always)]
unsafe fn fold_one<T: Accumulate, F: Fold<T>>(x: *const T, n: usize) -> T::Sum {
    const STEP: usize = LANES * VECTORS;
    let mut lanes = [F::start(); LANES];
    let mut at = 0;
    // SAFETY: all offsets are below `n`.
    unsafe {
        if n >= STEP {
            let [mut a, mut b, mut c] = [[F::start(); LANES]; VECTORS - 1];
            while at + STEP <= n {
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
            take_lanes::<T, F>(&mut lanes, x.add(at));
            at += LANES;
        }
        for i in at..n {
            lanes[i - at] = F::take(lanes[i - at], *x.add(i));
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for k in 0..width {
            lanes[k] = F::join(lanes[k], lanes[k + width]);
        }
        width /= 2;
    }
    lanes[0]
}

crate::simd! {
    /// Folds a row.
    ///
    /// # Safety
    /// `x` is valid for `n` elements.
    unsafe fn fold_row[T: Accumulate, F: Fold<T>][T, F](x: *const T, n: usize) -> T::Sum {
        // SAFETY: promised by the caller.
        unsafe { fold_one::<T, F>(x, n) }
    }

    /// Folds rows that follow one another, each to an element of `y`.
    ///
    /// # Safety
    /// `x` is valid for `rows` times `n` elements, `y` for `rows`.
    unsafe fn fold_rows[T: Accumulate, F: Fold<T>][T, F](
        x: *const T, rows: usize, n: usize, y: *mut T,
    ) -> () {
        for i in 0..rows {
            // SAFETY: promised by the caller.
            unsafe { *y.add(i) = F::end(fold_one::<T, F>(x.add(i * n), n), n) };
        }
    }

    /// Takes a row of elements into a row of running results.
    ///
    /// # Safety
    /// Both are valid for `n` elements and apart.
    unsafe fn add_row[T: Accumulate, F: Fold<T>][T, F](sums: *mut T::Sum, x: *const T, n: usize) -> () {
        for i in 0..n {
            // SAFETY: below `n`.
            unsafe { *sums.add(i) = F::take(*sums.add(i), *x.add(i)) };
        }
    }
}

/// Position of the greatest (or least) element along a row; the first of equal ones, a NaN before all.
///
/// # Safety
/// `x` is valid for `n` elements at distance `step`; `n` is at least 1.
pub unsafe fn arg_extreme<T: Element>(x: *const T, n: usize, step: usize, greatest: bool) -> usize {
    let mut best = 0;
    // SAFETY: promised by the caller.
    let mut value = unsafe { *x };
    for i in 1..n {
        // SAFETY: promised by the caller.
        let v = unsafe { *x.add(i * step) };
        #[allow(clippy::eq_op)] // only NaN differs from itself
        let better = if greatest { v > value } else { v < value } || (v != v && value == value);
        if better {
            best = i;
            value = v;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ops::testing::Tensor;
    use crate::shape::Shape;
    use proptest::prelude::*;

    fn naive(how: Reduction, x: &[f64], dims: &[i64], reduced: &[bool]) -> Vec<f64> {
        let kept: usize =
            dims.iter().zip(reduced).filter(|d| !d.1).map(|d| *d.0 as usize).product();
        let mut groups = vec![Vec::new(); kept];
        for (i, &v) in x.iter().enumerate() {
            let (mut rest, mut at, mut scale) = (i, 0, 1);
            for k in (0..dims.len()).rev() {
                let index = rest % dims[k] as usize;
                rest /= dims[k] as usize;
                if !reduced[k] {
                    at += index * scale;
                    scale *= dims[k] as usize;
                }
            }
            groups[at].push(v);
        }
        let one = |g: &Vec<f64>| match how {
            Reduction::Sum => g.iter().sum(),
            Reduction::Mean => g.iter().sum::<f64>() / g.len() as f64,
            Reduction::Product => g.iter().product(),
            Reduction::Max => g.iter().cloned().fold(f64::NEG_INFINITY, f64::max),
            Reduction::Min => g.iter().cloned().fold(f64::INFINITY, f64::min),
            Reduction::Norm2 => g.iter().map(|x| x * x).sum::<f64>().sqrt(),
            _ => g.iter().map(|x| x.abs()).sum(),
        };
        groups.iter().map(one).collect()
    }

    proptest! {
        #[test]
        fn reduce_matches_naive(dims in prop::collection::vec(0i64..5, 1..5), mask in 0u32..32, seed in 0u64..99) {
            let x = Tensor::noise(&dims, seed);
            let reduced: Vec<bool> = (0..dims.len()).map(|i| mask >> i & 1 == 1).collect();
            let kept: Shape = dims.iter().zip(&reduced).filter(|d| !d.1).map(|d| *d.0).collect();
            for how in [Reduction::Sum, Reduction::Mean, Reduction::Product, Reduction::Max, Reduction::Min,
                        Reduction::Norm1, Reduction::Norm2] {
                for dtype in [DType::F64, DType::F32] {
                    let out = Tensor::zeros(&kept, dtype);
                    reduce(how, &x.cast(dtype).view(), &reduced, &out.view());
                    for (got, want) in out.values().iter().zip(naive(how, &x.values(), &dims, &reduced)) {
                        let close = (got - want).abs() < 1e-5 || *got == want || (got.is_nan() && want.is_nan());
                        prop_assert!(close, "{how:?} {dtype} {got} {want}");
                    }
                }
            }
        }
    }

    #[test]
    fn long_rows_and_columns() {
        let x = Tensor::noise(&[70, 3000], 5);
        for reduced in [[true, false], [false, true]] {
            let kept = if reduced[0] { 3000 } else { 70 };
            let out = Tensor::zeros(&Shape::new(&[kept]), DType::F64);
            reduce(Reduction::Sum, &x.view(), &reduced, &out.view());
            let want = naive(Reduction::Sum, &x.values(), &[70, 3000], &reduced);
            assert!(out.values().iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}
