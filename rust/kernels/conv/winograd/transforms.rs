//! The transforms of F(m×m, r×r) with m + r = 7, sixteen channels side by side.
//!
//! Each is one small matrix that is applied to the columns and then to the rows of a square. With
//! `d` the 6×6 input of a tile, `g` the filter and `dy` the gradient of the tile's m×m output,
//! `y = Aᵀ [(G g Gᵀ) ∘ (Bᵀ d B)] A` and `dg = Gᵀ [Σ (A dy Aᵀ) ∘ (Bᵀ d B)] G`. Where a filter has
//! one tap along an axis, the matrix of that axis is 1 and a square is a line.
//!
//! The points are 0, ±3/4, ±3/2 and infinity, whatever the side of the filter: `B` is the same for
//! all, `A` has powers of the points, and so has `G`, each divided by the product of the point's
//! distances to the others. With ±1 and ±2, as in the first article, matrices are cheaper by a few
//! products, and errors twice as large on average and four times at most: factors of a line differ
//! more. The factors of `B` and `A` are exact.
//!
//! A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015, section 4;
//! B. Barabasz, A. Anderson, K. Soodhalter, D. Gregg, Error Analysis and Improving the Accuracy of
//! Winograd Convolution for Deep Neural Networks, 2020 (the choice of points);
//! A. Toom, The Complexity of a Scheme of Functional Elements Realizing the Multiplication of
//! Integers, 1963 (the points).

use crate::dtype::Element;
#[cfg(target_arch = "x86_64")]
use crate::kernels::arch::Level;
use crate::kernels::arch::level;
use crate::kernels::gemm::vector::{Portable, Vector};
use std::ops::Range;

/// Channels of a block.
pub const LANES: usize = 16;
/// Side of a tile's input.
pub const REACH: usize = 6;
/// Sides of filters.
pub const FILTERS: Range<usize> = 3..6;

/// Squares to transform. Distances are in elements; a point is [`LANES`] channels.
#[derive(Clone, Copy)]
pub struct Squares<T> {
    pub count: usize,
    pub from: *const T,
    pub to: *mut T,
    /// From a point to the one below it, to the one right of it, and from square to square.
    pub from_steps: [isize; 3],
    pub to_steps: [usize; 3],
    /// What [`Transforms::output`] adds to every point of the results.
    pub bias: Option<[T; LANES]>,
}

/// Transforms squares.
///
/// # Safety
/// The machine has the function's instructions, and the squares exist.
pub type Transform<T> = unsafe fn(&Squares<T>);

/// All transforms, compiled for one instruction set.
pub struct Transforms<T: 'static> {
    /// `Bᵀ d B`.
    pub input: Transform<T>,
    /// `Aᵀ m A`, and a bias.
    pub output: Transform<T>,
    /// `A dy Aᵀ`.
    pub output_gradient: Transform<T>,
    /// `G g Gᵀ`.
    pub filter: Transform<T>,
    /// `Gᵀ u G`.
    pub filter_gradient: Transform<T>,
}

/// A matrix of the algorithm, applied to a line of `I` points.
trait Line<const I: usize, const O: usize> {
    /// # Safety
    /// The machine has the vector's instructions.
    unsafe fn apply<V: Vector>(x: [V; I]) -> [V; O];
}

/// `x * factor + y`.
///
/// # Safety
/// The machine has the vector's instructions.
#[inline(always)]
unsafe fn times<V: Vector>(x: V, factor: f64, y: V) -> V {
    // SAFETY: promised by the caller.
    unsafe { x.mul_add(V::splat(V::Elem::from_f64(factor)), y) }
}

/// `x * factor`.
///
/// # Safety
/// The machine has the vector's instructions.
#[inline(always)]
unsafe fn scaled<V: Vector>(x: V, factor: f64) -> V {
    // SAFETY: promised by the caller.
    unsafe { x.mul_add(V::splat(V::Elem::from_f64(factor)), V::splat(V::Elem::from_f64(0.0))) }
}

/// The points other than 0 and infinity, each with both signs.
const NEAR: f64 = 0.75;
const FAR: f64 = 1.5;

/// `Bᵀ`.
struct Input;

impl Line<REACH, REACH> for Input {
    #[inline(always)]
    unsafe fn apply<V: Vector>([d0, d1, d2, d3, d4, d5]: [V; REACH]) -> [V; REACH] {
        // SAFETY: promised by the caller.
        unsafe {
            const NEAR_2: f64 = NEAR * NEAR;
            const FAR_2: f64 = FAR * FAR;
            // The product of the other pair of points, and with 0 and infinity of both.
            let near = [times(d2, -FAR_2, d4), times(d1, -FAR_2, d3)];
            let far = [times(d2, -NEAR_2, d4), times(d1, -NEAR_2, d3)];
            let both = |x0, x2, x4| times(x0, NEAR_2 * FAR_2, times(x2, -(NEAR_2 + FAR_2), x4));
            [
                both(d0, d2, d4),
                times(near[1], NEAR, near[0]),
                times(near[1], -NEAR, near[0]),
                times(far[1], FAR, far[0]),
                times(far[1], -FAR, far[0]),
                both(d1, d3, d5),
            ]
        }
    }
}

/// The matrix of an axis without a filter.
struct Same;

impl Line<1, 1> for Same {
    #[inline(always)]
    unsafe fn apply<V: Vector>(x: [V; 1]) -> [V; 1] {
        x
    }
}

/// Factors of `G` at 0, at ±[`NEAR`] and at ±[`FAR`].
const SCALES: [f64; 3] = {
    let (near, far) = (NEAR * NEAR, FAR * FAR);
    [1.0 / (near * far), 0.5 / (near * (near - far)), 0.5 / (far * (far - near))]
};

/// `A`, or with `SCALED` `G`: a polynomial's values at the points.
struct Values<const SCALED: bool>;

impl<const N: usize, const SCALED: bool> Line<N, REACH> for Values<SCALED> {
    #[inline(always)]
    unsafe fn apply<V: Vector>(x: [V; N]) -> [V; REACH] {
        // SAFETY: promised by the caller.
        unsafe {
            // Even and odd terms; the odd ones still lack a factor of the point.
            let last = [(N - 1) / 2 * 2, N / 2 * 2 - 1];
            let (mut near, mut far) = (last.map(|i| x[i]), last.map(|i| x[i]));
            for odd in 0..2 {
                let mut i = last[odd];
                while i >= 2 {
                    i -= 2;
                    near[odd] = times(near[odd], NEAR * NEAR, x[i]);
                    far[odd] = times(far[odd], FAR * FAR, x[i]);
                }
            }
            let mut first = x[0];
            if SCALED {
                first = scaled(first, SCALES[0]);
                near = [scaled(near[0], SCALES[1]), scaled(near[1], SCALES[1])];
                far = [scaled(far[0], SCALES[2]), scaled(far[1], SCALES[2])];
            }
            [
                first,
                times(near[1], NEAR, near[0]),
                times(near[1], -NEAR, near[0]),
                times(far[1], FAR, far[0]),
                times(far[1], -FAR, far[0]),
                x[N - 1],
            ]
        }
    }
}

/// The transpose of [`Values`].
struct Sums<const SCALED: bool>;

impl<const N: usize, const SCALED: bool> Line<REACH, N> for Sums<SCALED> {
    #[inline(always)]
    unsafe fn apply<V: Vector>([m0, m1, m2, m3, m4, m5]: [V; REACH]) -> [V; N] {
        // SAFETY: promised by the caller.
        unsafe {
            let (mut first, mut near, mut far) =
                (m0, [m1.add(m2), m1.sub(m2)], [m3.add(m4), m3.sub(m4)]);
            if SCALED {
                first = scaled(first, SCALES[0]);
                near = [scaled(near[0], SCALES[1]), scaled(near[1], SCALES[1])];
                far = [scaled(far[0], SCALES[2]), scaled(far[1], SCALES[2])];
            }
            let mut y = [first.add(near[0]).add(far[0]); N];
            let mut powers = [1.0; 2];
            for i in 1..N {
                powers = [powers[0] * NEAR, powers[1] * FAR];
                y[i] = times(far[i % 2], powers[1], scaled(near[i % 2], powers[0]));
            }
            y[N - 1] = y[N - 1].add(m5);
            y
        }
    }
}

/// Applies a matrix to the columns and one to the rows of every square, and adds the bias if
/// `BIASED`.
///
/// # Safety
/// As [`Transform`].
#[inline(always)]
unsafe fn transform<
    V: Vector,
    Down: Line<I, O>,
    Across: Line<J, P>,
    const I: usize,
    const O: usize,
    const J: usize,
    const P: usize,
    const BIASED: bool,
>(
    s: &Squares<V::Elem>,
) {
    for square in 0..s.count {
        let mut lane = 0;
        while lane < LANES {
            // SAFETY: promised by the caller.
            unsafe {
                let from = s.from.offset(square as isize * s.from_steps[2]).add(lane);
                let to = s.to.add(square * s.to_steps[2] + lane);
                let zero = V::splat(V::Elem::from_f64(0.0));
                let bias = match &s.bias {
                    Some(bias) if BIASED => V::load(bias.as_ptr().add(lane)),
                    _ => zero,
                };
                let mut half = [[zero; J]; O];
                for x in 0..J {
                    let mut column = [zero; I];
                    for y in 0..I {
                        let at = y as isize * s.from_steps[0] + x as isize * s.from_steps[1];
                        column[y] = V::load(from.offset(at));
                    }
                    let column = Down::apply(column);
                    for y in 0..O {
                        half[y][x] = column[y];
                    }
                }
                for y in 0..O {
                    let row = Across::apply(half[y]);
                    for x in 0..P {
                        let value = if BIASED { row[x].add(bias) } else { row[x] };
                        value.store(to.add(y * s.to_steps[0] + x * s.to_steps[1]));
                    }
                }
            }
            lane += V::LEN;
        }
    }
}

/// Defines a module with [`transform`] compiled with the given features.
macro_rules! compiled {
    ($name:ident $(, $features:literal)?) => {
        mod $name {
            use super::*;

            /// # Safety
            /// As [`Transform`].
            $(#[target_feature(enable = $features)])?
            #[allow(private_bounds)] // the matrices are known to this file only
            pub unsafe fn square<
                V: Vector,
                L: Line<I, O>,
                const I: usize,
                const O: usize,
                const BIASED: bool,
            >(
                s: &Squares<V::Elem>,
            ) {
                // SAFETY: promised by the caller.
                unsafe { transform::<V, L, L, I, O, I, O, BIASED>(s) }
            }

            /// # Safety
            /// As [`Transform`].
            $(#[target_feature(enable = $features)])?
            #[allow(private_bounds)]
            pub unsafe fn down<
                V: Vector,
                L: Line<I, O>,
                const I: usize,
                const O: usize,
                const BIASED: bool,
            >(
                s: &Squares<V::Elem>,
            ) {
                // SAFETY: promised by the caller.
                unsafe { transform::<V, L, Same, I, O, 1, 1, BIASED>(s) }
            }

            /// # Safety
            /// As [`Transform`].
            $(#[target_feature(enable = $features)])?
            #[allow(private_bounds)]
            pub unsafe fn across<
                V: Vector,
                L: Line<I, O>,
                const I: usize,
                const O: usize,
                const BIASED: bool,
            >(
                s: &Squares<V::Elem>,
            ) {
                // SAFETY: promised by the caller.
                unsafe { transform::<V, Same, L, 1, 1, I, O, BIASED>(s) }
            }
        }
    };
}

compiled!(baseline);
#[cfg(target_arch = "x86_64")]
compiled!(avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled!(avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");

/// The transforms of one instruction set and register.
macro_rules! transforms {
    ($set:ident, $vector:ty) => {
        &[
            transforms!($set, square, $vector),
            transforms!($set, down, $vector),
            transforms!($set, across, $vector),
        ]
    };
    ($set:ident, $shape:ident, $vector:ty) => {
        [
            transforms!($set, $shape, $vector, 3, 4),
            transforms!($set, $shape, $vector, 4, 3),
            transforms!($set, $shape, $vector, 5, 2),
        ]
    };
    ($set:ident, $shape:ident, $vector:ty, $filter:literal, $output:literal) => {
        Transforms {
            input: $set::$shape::<$vector, Input, REACH, REACH, false>,
            output: $set::$shape::<$vector, Sums<false>, REACH, $output, true>,
            output_gradient: $set::$shape::<$vector, Values<false>, $output, REACH, false>,
            filter: $set::$shape::<$vector, Values<true>, $filter, REACH, false>,
            filter_gradient: $set::$shape::<$vector, Sums<true>, REACH, $filter, false>,
        }
    };
}

/// Transforms for filters that are square, that have one column, and that have one row, of 3, 4 and
/// 5 taps along an axis.
pub type AllTransforms<T> = [[Transforms<T>; FILTERS.end - FILTERS.start]; 3];

/// An element type with these transforms.
pub trait Transformed: Sized + 'static {
    /// The transforms of this machine.
    fn transforms() -> &'static AllTransforms<Self>;
}

impl Transformed for f32 {
    fn transforms() -> &'static AllTransforms<f32> {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => transforms!(avx512, std::arch::x86_64::__m512),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => transforms!(avx2, std::arch::x86_64::__m256),
            _ => transforms!(baseline, Portable<f32, 4>),
        }
    }
}

impl Transformed for f64 {
    fn transforms() -> &'static AllTransforms<f64> {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => transforms!(avx512, std::arch::x86_64::__m512d),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => transforms!(avx2, std::arch::x86_64::__m256d),
            _ => transforms!(baseline, Portable<f64, 2>),
        }
    }
}
