//! The transforms of F(4×4, 3×3), sixteen channels side by side.
//!
//! Each is one small matrix that is applied to the columns and then to the rows of a square. With
//! `d` the 6×6 input of a tile, `g` the filter and `dy` the gradient of the tile's 4×4 output,
//! `y = Aᵀ [(G g Gᵀ) ∘ (Bᵀ d B)] A` and `dg = Gᵀ [Σ (A dy Aᵀ) ∘ (Bᵀ d B)] G`.
//!
//! A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015, section 4.

use super::LANES;
use crate::dtype::Element;
use crate::kernels::arch::{Level, level};
use crate::kernels::gemm::vector::{Portable, Vector};

/// Squares to transform. Distances are in elements; a point is [`LANES`] channels.
#[derive(Clone, Copy)]
pub struct Squares<T> {
    pub count: usize,
    pub from: *const T,
    pub to: *mut T,
    /// From a point to the one below it, to the one right of it, and from square to square.
    pub from_steps: [isize; 3],
    pub to_steps: [usize; 3],
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
    /// `Aᵀ m A`.
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

struct Input;

impl Line<6, 6> for Input {
    #[inline(always)]
    unsafe fn apply<V: Vector>([d0, d1, d2, d3, d4, d5]: [V; 6]) -> [V; 6] {
        // SAFETY: promised by the caller.
        unsafe {
            let (even, odd) = (times(d2, -4.0, d4), times(d1, -4.0, d3));
            let (even2, odd2) = (d4.sub(d2), d3.sub(d1));
            [
                times(d0, 4.0, times(d2, -5.0, d4)),
                even.add(odd),
                even.sub(odd),
                times(odd2, 2.0, even2),
                times(odd2, -2.0, even2),
                times(d1, 4.0, times(d3, -5.0, d5)),
            ]
        }
    }
}

struct Output;

impl Line<6, 4> for Output {
    #[inline(always)]
    unsafe fn apply<V: Vector>([m0, m1, m2, m3, m4, m5]: [V; 6]) -> [V; 4] {
        // SAFETY: promised by the caller.
        unsafe {
            let (sum, difference) = (m1.add(m2), m1.sub(m2));
            let (sum2, difference2) = (m3.add(m4), m3.sub(m4));
            [
                m0.add(sum).add(sum2),
                times(difference2, 2.0, difference),
                times(sum2, 4.0, sum),
                times(difference2, 8.0, difference).add(m5),
            ]
        }
    }
}

struct OutputGradient;

impl Line<4, 6> for OutputGradient {
    #[inline(always)]
    unsafe fn apply<V: Vector>([y0, y1, y2, y3]: [V; 4]) -> [V; 6] {
        // SAFETY: promised by the caller.
        unsafe {
            let (even, odd) = (y0.add(y2), y1.add(y3));
            let (even2, odd2) = (times(y2, 4.0, y0), times(y3, 4.0, y1));
            [
                y0,
                even.add(odd),
                even.sub(odd),
                times(odd2, 2.0, even2),
                times(odd2, -2.0, even2),
                y3,
            ]
        }
    }
}

struct Filter;

impl Line<3, 6> for Filter {
    #[inline(always)]
    unsafe fn apply<V: Vector>([g0, g1, g2]: [V; 3]) -> [V; 6] {
        // SAFETY: promised by the caller.
        unsafe {
            let zero = V::splat(V::Elem::from_f64(0.0));
            let (outer, inner) = (times(g0.add(g2), -1.0 / 6.0, zero), times(g1, 1.0 / 6.0, zero));
            let (outer2, inner2) =
                (times(g0, 1.0 / 24.0, times(g2, 1.0 / 6.0, zero)), times(g1, 1.0 / 12.0, zero));
            [
                times(g0, 0.25, zero),
                outer.sub(inner),
                outer.add(inner),
                outer2.add(inner2),
                outer2.sub(inner2),
                g2,
            ]
        }
    }
}

struct FilterGradient;

impl Line<6, 3> for FilterGradient {
    #[inline(always)]
    unsafe fn apply<V: Vector>([u0, u1, u2, u3, u4, u5]: [V; 6]) -> [V; 3] {
        // SAFETY: promised by the caller.
        unsafe {
            let zero = V::splat(V::Elem::from_f64(0.0));
            let (sum, sum2) = (times(u1.add(u2), -1.0 / 6.0, zero), u3.add(u4));
            [
                times(sum2, 1.0 / 24.0, times(u0, 0.25, sum)),
                times(u3.sub(u4), 1.0 / 12.0, times(u2.sub(u1), 1.0 / 6.0, zero)),
                times(sum2, 1.0 / 6.0, sum.add(u5)),
            ]
        }
    }
}

/// Applies a matrix to both sides of every square.
///
/// # Safety
/// As [`Transform`].
#[inline(always)]
unsafe fn transform<V: Vector, L: Line<I, O>, const I: usize, const O: usize>(
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
                let mut half = [[zero; I]; O];
                for x in 0..I {
                    let mut column = [zero; I];
                    for y in 0..I {
                        let at = y as isize * s.from_steps[0] + x as isize * s.from_steps[1];
                        column[y] = V::load(from.offset(at));
                    }
                    let column = L::apply(column);
                    for y in 0..O {
                        half[y][x] = column[y];
                    }
                }
                for y in 0..O {
                    let row = L::apply(half[y]);
                    for x in 0..O {
                        row[x].store(to.add(y * s.to_steps[0] + x * s.to_steps[1]));
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
            pub unsafe fn run<V: Vector, L: Line<I, O>, const I: usize, const O: usize>(
                s: &Squares<V::Elem>,
            ) {
                // SAFETY: promised by the caller.
                unsafe { transform::<V, L, I, O>(s) }
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
        &Transforms {
            input: $set::run::<$vector, Input, 6, 6>,
            output: $set::run::<$vector, Output, 6, 4>,
            output_gradient: $set::run::<$vector, OutputGradient, 4, 6>,
            filter: $set::run::<$vector, Filter, 3, 6>,
            filter_gradient: $set::run::<$vector, FilterGradient, 6, 3>,
        }
    };
}

/// An element type with these transforms.
pub trait Transformed: Sized + 'static {
    /// The transforms of this machine.
    fn transforms() -> &'static Transforms<Self>;
}

impl Transformed for f32 {
    fn transforms() -> &'static Transforms<f32> {
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
    fn transforms() -> &'static Transforms<f64> {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => transforms!(avx512, std::arch::x86_64::__m512d),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => transforms!(avx2, std::arch::x86_64::__m256d),
            _ => transforms!(baseline, Portable<f64, 2>),
        }
    }
}
