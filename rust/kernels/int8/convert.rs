//! Integers from the real numbers that they stand for and back, element by element.
//!
//! Loops are compiled for each instruction set, into which a closure would not follow (see
//! [`simd!`](crate::simd)); what becomes of an element is therefore a type with one method.

use crate::dtype::Element;
use crate::kernels::parallel::{Shared, parallel_for};

/// Elements of a task.
const PART: usize = 1 << 15;

/// An integer type whose elements from `LEAST` to `MOST` stand for real numbers.
pub trait Integer: Element + Into<f64> {
    const LEAST: f64;
    const MOST: f64;
    /// An integer within these limits.
    fn of(q: i32) -> Self;
}

impl Integer for i8 {
    const LEAST: f64 = -127.0;
    const MOST: f64 = 127.0;
    #[inline(always)]
    fn of(q: i32) -> Self {
        q as i8
    }
}

impl Integer for u8 {
    const LEAST: f64 = 0.0;
    const MOST: f64 = 255.0;
    #[inline(always)]
    fn of(q: i32) -> Self {
        q as u8
    }
}

impl Integer for i32 {
    const LEAST: f64 = -(i32::MAX as f64);
    const MOST: f64 = i32::MAX as f64;
    #[inline(always)]
    fn of(q: i32) -> Self {
        q
    }
}

/// The integer nearest to a number of units (halves go to the even one), within the type's limits.
#[inline(always)]
pub fn nearest<T: Integer>(units: f64) -> T {
    // NaN stands for nothing; it becomes 0.
    let units = if units.is_nan() { 0.0 } else { units.round_ties_even() };
    // Comparisons, which are single instructions, as no NaN is left.
    let units = if units > T::LEAST { units } else { T::LEAST };
    let units = if units < T::MOST { units } else { T::MOST };
    // SAFETY: the limits of the type are those of `i32` or within.
    T::of(unsafe { units.to_int_unchecked() })
}

/// What becomes of an element.
pub trait Each<S, D>: Copy + Send + Sync {
    fn of(self, x: S) -> D;
}

/// What becomes of two elements.
pub trait EachPair<S, T, D>: Copy + Send + Sync {
    fn of(self, x: S, y: T) -> D;
}

/// The number of units, `x * factor + shift`, as the nearest integer.
#[derive(Clone, Copy)]
pub struct ToUnits {
    pub factor: f64,
    pub shift: f64,
}

impl<S: Into<f64>, D: Integer> Each<S, D> for ToUnits {
    #[inline(always)]
    fn of(self, x: S) -> D {
        nearest(x.into() * self.factor + self.shift)
    }
}

/// The real number that an integer stands for.
#[derive(Clone, Copy)]
pub struct ToReal {
    pub unit: f64,
}

impl<S: Into<f64>> Each<S, f32> for ToReal {
    #[inline(always)]
    fn of(self, q: S) -> f32 {
        (q.into() * self.unit) as f32
    }
}

/// The greater of an integer and 0.
#[derive(Clone, Copy)]
pub struct Positive;

impl<T: Integer> Each<T, T> for Positive {
    #[inline(always)]
    fn of(self, q: T) -> T {
        if q > T::default() { q } else { T::default() }
    }
}

/// The sum of two numbers of units, each with its factor, as the nearest integer.
#[derive(Clone, Copy)]
pub struct Sum {
    pub factors: [f64; 2],
}

impl<S: Into<f64>, T: Into<f64>, D: Integer> EachPair<S, T, D> for Sum {
    #[inline(always)]
    fn of(self, x: S, y: T) -> D {
        nearest(x.into() * self.factors[0] + y.into() * self.factors[1])
    }
}

/// The product of two numbers of units, times a factor, as the nearest integer.
#[derive(Clone, Copy)]
pub struct Product {
    pub factor: f64,
}

impl<S: Into<f64>, T: Into<f64>, D: Integer> EachPair<S, T, D> for Product {
    #[inline(always)]
    fn of(self, x: S, y: T) -> D {
        nearest(x.into() * y.into() * self.factor)
    }
}

/// The product of two integers with their units as a real number.
#[derive(Clone, Copy)]
pub struct RealProduct {
    pub units: [f64; 2],
}

impl<S: Into<f64>, T: Into<f64>> EachPair<S, T, f32> for RealProduct {
    #[inline(always)]
    fn of(self, x: S, y: T) -> f32 {
        (x.into() * y.into() * self.units[0] * self.units[1]) as f32
    }
}

crate::simd! {
    /// `y[i] = f(x[i])`, on one thread.
    ///
    /// # Safety
    /// Both hold `n` elements and do not overlap.
    pub unsafe fn each[S: Copy, D, F: Each<S, D>][S, D, F](
        f: F, x: *const S, y: *mut D, n: usize,
    ) -> () {
        for i in 0..n {
            // SAFETY: promised by the caller.
            unsafe { y.add(i).write(f.of(*x.add(i))) };
        }
    }

    /// `z[i] = f(x[i], y[i])`, on one thread.
    ///
    /// # Safety
    /// As [`each`].
    unsafe fn each_pair[S: Copy, T: Copy, D, F: EachPair<S, T, D>][S, T, D, F](
        f: F, x: *const S, y: *const T, z: *mut D, n: usize,
    ) -> () {
        for i in 0..n {
            // SAFETY: promised by the caller.
            unsafe { z.add(i).write(f.of(*x.add(i), *y.add(i))) };
        }
    }

    /// The least and the greatest of `n` elements; NaN is left out. None leave `ends`.
    ///
    /// # Safety
    /// `x` holds `n` elements.
    unsafe fn part_extremes[T: Copy + PartialOrd][T](ends: [T; 2], x: *const T, n: usize) -> [T; 2] {
        const LANES: usize = 32;
        let [mut low, mut high] = ends.map(|end| [end; LANES]);
        // SAFETY: promised by the caller.
        let mut see = |lane: usize, i: usize| unsafe {
            let v = *x.add(i);
            low[lane] = if v < low[lane] { v } else { low[lane] };
            high[lane] = if v > high[lane] { v } else { high[lane] };
        };
        let whole = n / LANES * LANES;
        for first in (0..whole).step_by(LANES) {
            for lane in 0..LANES {
                see(lane, first + lane);
            }
        }
        for i in whole..n {
            see(i - whole, i);
        }
        let least = |a, b| if b < a { b } else { a };
        let greatest = |a, b| if b > a { b } else { a };
        [low.into_iter().fold(ends[0], least), high.into_iter().fold(ends[1], greatest)]
    }
}

/// `y[i] = f(x[i])`.
///
/// # Safety
/// Both hold `n` elements and do not overlap.
pub unsafe fn map<S: Element, D: Element>(f: impl Each<S, D>, x: *const S, y: *mut D, n: usize) {
    let (x, y) = (Shared(x.cast_mut()), Shared(y));
    parallel_for(n, PART, |range| {
        // SAFETY: promised by the caller; each element belongs to one task.
        unsafe { each(f, x.at(range.start), y.at(range.start), range.len()) };
    });
}

/// `z[i] = f(x[i], y[i])`.
///
/// # Safety
/// As [`map`].
pub unsafe fn map_pairs<S: Element, T: Element, D: Element>(
    f: impl EachPair<S, T, D>,
    x: *const S,
    y: *const T,
    z: *mut D,
    n: usize,
) {
    let (x, y, z) = (Shared(x.cast_mut()), Shared(y.cast_mut()), Shared(z));
    parallel_for(n, PART, |range| {
        let at = range.start;
        // SAFETY: promised by the caller; each element belongs to one task.
        unsafe { each_pair(f, x.at(at), y.at(at), z.at(at), range.len()) };
    });
}

/// The least and the greatest of `n` elements, NaN left out; `None` if there are none.
///
/// # Safety
/// `x` holds `n` elements.
pub unsafe fn extremes<T: Element + Limits>(x: *const T, n: usize) -> Option<[T; 2]> {
    let mut parts = vec![T::ENDS; n.div_ceil(PART)];
    let (x, to) = (Shared(x.cast_mut()), Shared(parts.as_mut_ptr()));
    parallel_for(n, PART, |range| {
        // SAFETY: promised by the caller; each part belongs to one task.
        unsafe {
            *to.at(range.start / PART) = part_extremes(T::ENDS, x.at(range.start), range.len())
        };
    });
    let [low, high] = parts.into_iter().fold(T::ENDS, |[low, high], [a, b]| {
        [if a < low { a } else { low }, if b > high { b } else { high }]
    });
    (low <= high).then_some([low, high])
}

/// The greatest value of a type and its least: where a search for extremes begins.
pub trait Limits: Sized {
    const ENDS: [Self; 2];
}

impl Limits for f32 {
    const ENDS: [f32; 2] = [f32::INFINITY, f32::NEG_INFINITY];
}

impl Limits for i32 {
    const ENDS: [i32; 2] = [i32::MAX, i32::MIN];
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What `nearest` promises, in other words.
    fn rounded(units: f64, least: f64, most: f64) -> f64 {
        if units.is_nan() { 0.0 } else { units.round_ties_even().clamp(least, most) }
    }

    fn reals() -> impl Strategy<Value = Vec<f32>> {
        let special = prop::sample::select(vec![
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.5,
            1.5,
            -2.5,
            126.5,
            254.5,
            -0.0,
        ]);
        prop::collection::vec(prop_oneof![4 => -300f32..300.0, 1 => special], 0..100)
    }

    fn mapped<S: Element, D: Element>(f: impl Each<S, D>, x: &[S]) -> Vec<D> {
        let mut y = vec![D::default(); x.len()];
        // SAFETY: both hold as many elements.
        unsafe { map(f, x.as_ptr(), y.as_mut_ptr(), x.len()) };
        y
    }

    proptest! {
        #[test]
        fn integers_are_the_nearest(x in reals(), factor in -2f64..2.0, shift in -2f64..2.0) {
            let units = ToUnits { factor, shift };
            let (signed, unsigned) = (mapped::<_, i8>(units, &x), mapped::<_, u8>(units, &x));
            let wide = mapped::<_, i32>(ToUnits { factor: 1e8, shift }, &x);
            for (i, x) in x.iter().map(|&x| f64::from(x)).enumerate() {
                let units = x * factor + shift;
                prop_assert_eq!(f64::from(signed[i]), rounded(units, -127.0, 127.0));
                prop_assert_eq!(f64::from(unsigned[i]), rounded(units, 0.0, 255.0));
                let most = f64::from(i32::MAX);
                prop_assert_eq!(f64::from(wide[i]), rounded(x * 1e8 + shift, -most, most));
            }
        }

        #[test]
        fn pairs_are_those_of_doubles(
            x in prop::collection::vec(any::<(i8, u8)>(), 0..100), a in -2f64..2.0, b in -2f64..2.0,
        ) {
            let (x, y): (Vec<i8>, Vec<u8>) = x.into_iter().unzip();
            let (mut sums, mut products) = (vec![0i8; x.len()], vec![0i32; x.len()]);
            let mut reals = vec![0f32; x.len()];
            // SAFETY: all hold as many elements.
            unsafe {
                let (p, q, n) = (x.as_ptr(), y.as_ptr(), x.len());
                map_pairs(Sum { factors: [a, b] }, p, q, sums.as_mut_ptr(), n);
                map_pairs(Product { factor: 1.0 }, p, q, products.as_mut_ptr(), n);
                map_pairs(RealProduct { units: [a, b] }, p, q, reals.as_mut_ptr(), n);
            }
            for i in 0..x.len() {
                let (x, y) = (f64::from(x[i]), f64::from(y[i]));
                prop_assert_eq!(f64::from(sums[i]), rounded(x * a + y * b, -127.0, 127.0));
                prop_assert_eq!(f64::from(products[i]), x * y);
                prop_assert_eq!(reals[i], (x * y * a * b) as f32);
            }
        }

        #[test]
        fn extremes_leave_nan_out(x in reals()) {
            // SAFETY: the elements are there.
            let found = unsafe { extremes(x.as_ptr(), x.len()) };
            let numbers = || x.iter().copied().filter(|x| !x.is_nan());
            let want = numbers().reduce(f32::min).zip(numbers().reduce(f32::max));
            prop_assert_eq!(found, want.map(|(low, high)| [low, high]));
        }
    }
}
