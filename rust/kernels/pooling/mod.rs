//! Pooling over one to three spatial axes: maximum, average, sum and p-norm of windows.

mod lanes;
mod phases;
pub mod registers;
mod rows;
mod rows_back;
#[cfg(all(test, not(loom)))]
mod tests;

use super::arch::level;
use super::pairwise::{LEAF, Pairwise, sum_of};
use super::parallel::{Shared, parallel_for};
use super::real::Real;
use super::scalar::Scalar;
use super::scratch::with_scratch;
use phases::LANES;
use registers::Pooled;
use rows::{Greatest, Total, forward};
use rows_back::{averages_back, maxima_back};
use std::ops::Range;

/// What a window is reduced to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    Max,
    Sum,
    /// The sum divided by the size of the window; `with_pad` counts padding as elements.
    Average {
        with_pad: bool,
    },
    /// `(sum of abs(x)^p)^(1/p)`.
    Norm {
        p: u32,
    },
}

/// Extents of one pooling over `planes` images of one channel; unused leading axes have extent 1.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    pub kind: PoolKind,
    pub planes: usize,
    pub input: [usize; 3],
    pub kernel: [usize; 3],
    pub output: [usize; 3],
    pub stride: [usize; 3],
    pub pad: [usize; 3],
}

/// Rows of at least this many elements and outputs are calculated side by side, shorter ones window
/// by window.
const ROW_FROM: usize = 8;
/// Gradients of maxima are calculated row by row from so many outputs and elements of a row on:
/// they need no whole blocks, and below it were measured to be slower.
const MAXIMA_BACK_FROM: [usize; 2] = [4, 5];

/// The part of one window inside the image, and the divisor of a sum over it.
struct Window<T> {
    from: [usize; 3],
    to: [usize; 3],
    divisor: T,
}

impl Pool {
    pub(super) fn in_size(&self) -> usize {
        self.input.iter().product()
    }

    pub(super) fn out_size(&self) -> usize {
        self.output.iter().product()
    }

    #[inline(always)]
    fn window<T: Real>(&self, at: [usize; 3]) -> Window<T> {
        let (mut from, mut to, mut count) = ([0; 3], [0; 3], 1);
        for a in 0..3 {
            let (inside, counted) = self.extent(a, at[a]);
            (from[a], to[a]) = (inside.start, inside.end);
            count *= counted;
        }
        Window { from, to, divisor: T::of(count.max(1) as f64) }
    }

    /// The positions of an axis inside the image that window `at` covers, and how many count for
    /// the divisor.
    #[inline(always)]
    fn extent(&self, axis: usize, at: usize) -> (Range<usize>, usize) {
        // In padded coordinates; a window beyond the padded border is clipped to it first.
        let (pad, input) = (self.pad[axis], self.input[axis]);
        let start = at * self.stride[axis];
        let end = (start + self.kernel[axis]).min(input + 2 * pad);
        let from = start.saturating_sub(pad);
        let to = end.saturating_sub(pad).min(input).max(from);
        let counted = match self.kind {
            PoolKind::Average { with_pad: true } => end.saturating_sub(start),
            PoolKind::Average { with_pad: false } => to - from,
            _ => 1,
        };
        (from..to, counted)
    }

    /// Calls `f` on the index of every element of a window.
    #[inline(always)]
    fn elements<T>(&self, w: &Window<T>, mut f: impl FnMut(usize)) {
        for d in w.from[0]..w.to[0] {
            for h in w.from[1]..w.to[1] {
                let row = (d * self.input[1] + h) * self.input[2];
                for i in row + w.from[2]..row + w.to[2] {
                    f(i);
                }
            }
        }
    }

    /// The sum of `f` over the elements of a window.
    #[inline(always)]
    fn total<T: Real>(&self, w: &Window<T>, f: impl Fn(usize) -> T) -> T {
        let [depth, height, width] = [0, 1, 2].map(|a| w.to[a].saturating_sub(w.from[a]));
        if depth * height * width <= LEAF {
            let mut sum = T::zero();
            self.elements(w, |i| sum += f(i));
            return sum;
        }
        // Whole rows follow one another, and so do whole slices.
        let rows = match () {
            _ if width < self.input[2] => 1,
            _ if height < self.input[1] => height,
            _ => depth * height,
        };
        let mut sums = Pairwise::default();
        for first in (0..depth * height).step_by(rows) {
            let (d, h) = (w.from[0] + first / height, w.from[1] + first % height);
            let start = (d * self.input[1] + h) * self.input[2] + w.from[2];
            sums.push([sum_of(rows * width, |i| f(start + i))]);
        }
        let [sum] = sums.total([T::zero()]);
        sum
    }

    /// Calls `f(index, window)` for every output position of a plane.
    #[inline(always)]
    fn positions<T: Real>(&self, mut f: impl FnMut(usize, Window<T>)) {
        let mut i = 0;
        for d in 0..self.output[0] {
            for h in 0..self.output[1] {
                for w in 0..self.output[2] {
                    f(i, self.window([d, h, w]));
                    i += 1;
                }
            }
        }
    }

    /// Whether the elements of a window may be added one after the other.
    fn adds_few(&self) -> bool {
        self.kernel.iter().product::<usize>() <= LEAF
    }

    /// Whether this is a maximum or a short sum over rows of at least as many outputs and elements.
    fn goes_by_rows(&self, [outputs, elements]: [usize; 2]) -> bool {
        let suits = match self.kind {
            // Places are counted in 32 bits.
            PoolKind::Max => i32::try_from(self.in_size()).is_ok(),
            PoolKind::Norm { .. } => false,
            _ => self.adds_few(),
        };
        suits && self.output[2] >= outputs && self.input[2] >= elements
    }

    /// Calls `f` with the numbers of elements that the windows of a row count on the last axis, as
    /// whole blocks and with as much room behind; with none if sums are not divided.
    fn with_widths<T: Real, R>(&self, f: impl FnOnce(&mut [T]) -> R) -> R {
        let divides = matches!(self.kind, PoolKind::Average { .. });
        let room = if divides { self.output[2].next_multiple_of(LANES) } else { 0 };
        with_scratch(2 * room, |widths: &mut [T]| {
            for (at, width) in widths[..room].iter_mut().enumerate() {
                *width = T::of(self.extent(2, at).1 as f64);
            }
            f(widths)
        })
    }

    /// The number of elements that the windows of output row `(d, h)` count on the other axes.
    #[inline(always)]
    fn height<T: Scalar>(&self, (d, h): (usize, usize)) -> T {
        T::from_f64((self.extent(0, d).1 * self.extent(1, h).1) as f64)
    }

    /// The input row that row `k` of the windows of output row `(d, h)` reads, if it is inside;
    /// rows of windows and of the input are counted over both axes.
    #[inline(always)]
    pub(super) fn row(&self, (d, h): (usize, usize), k: usize) -> Option<usize> {
        let source = |a: usize, at: usize, k: usize| {
            (at * self.stride[a] + k).checked_sub(self.pad[a]).filter(|&i| i < self.input[a])
        };
        let (d, h) = (source(0, d, k / self.kernel[1])?, source(1, h, k % self.kernel[1])?);
        Some(d * self.input[1] + h)
    }

    /// Calls `f` on every plane, side by side.
    pub(super) fn for_planes(&self, f: impl Fn(usize) + Send + Sync) {
        let work = self.out_size() * self.kernel.iter().product::<usize>();
        parallel_for(self.planes, (1usize << 14).div_ceil(work.max(1)), |r| r.for_each(&f));
    }

    /// `y = pool(x)`.
    ///
    /// # Safety
    /// `x` is (planes, input), `y` (planes, output); they do not overlap.
    pub unsafe fn forward<T: Real + Pooled>(&self, x: *const T, y: *mut T) {
        let (x, y) = (Shared(x.cast_mut()), Shared(y));
        self.for_planes(|plane| {
            // SAFETY: each plane of `y` belongs to one task.
            unsafe { self.plane(x.at(plane * self.in_size()), y.at(plane * self.out_size())) };
        });
    }

    /// `y = pool(x)` of one plane.
    ///
    /// # Safety
    /// `x` is a plane of the input, `y` of the output; they do not overlap.
    pub(super) unsafe fn plane<T: Real + Pooled>(&self, x: *const T, y: *mut T) {
        // SAFETY: promised by the caller; the function is one of this machine and for these rows.
        unsafe {
            if let Some(run) = self.in_registers(level()).next() {
                return match self.kind {
                    PoolKind::Average { .. } => self.with_widths(|widths| run(self, x, y, widths)),
                    _ => run(self, x, y, &mut []),
                };
            }
            if !self.goes_by_rows([ROW_FROM; 2]) {
                return forward_plane(self, x, y);
            }
            with_scratch(self.forward_room(), |room| match self.kind {
                PoolKind::Max => forward::<T, Greatest>(self, x, y, &mut [], room),
                _ => self.with_widths(|widths| forward::<T, Total>(self, x, y, widths, room)),
            });
        }
    }

    /// `dx` from `dy`, with the `x` and `y` of the forward run. The first maximum of a window gets
    /// its gradient.
    ///
    /// # Safety
    /// As [`Pool::forward`]; `dx` overlaps none of the others.
    pub unsafe fn backward<T: Real>(&self, x: *const T, y: *const T, dy: *const T, dx: *mut T) {
        let (x, y) = (Shared(x.cast_mut()), Shared(y.cast_mut()));
        let (dy, dx) = (Shared(dy.cast_mut()), Shared(dx));
        self.for_planes(|plane| {
            let (i, o) = (plane * self.in_size(), plane * self.out_size());
            let from = if self.kind == PoolKind::Max { MAXIMA_BACK_FROM } else { [ROW_FROM; 2] };
            // SAFETY: each plane of `dx` belongs to one task.
            unsafe {
                let [x, dx] = [x, dx].map(|p| p.at(i));
                let [y, dy] = [y, dy].map(|p| p.at(o));
                match self.kind {
                    _ if !self.goes_by_rows(from) => self.backward_plane(x, y, dy, dx),
                    PoolKind::Max => with_scratch(self.maxima_back_room(), |room| {
                        with_scratch(self.output[2].next_multiple_of(LANES), |places| {
                            maxima_back(self, x, dy, dx, room, places);
                        });
                    }),
                    _ => with_scratch(self.averages_back_room(), |room| {
                        self.with_widths(|widths| averages_back(self, dy, dx, widths, room));
                    }),
                }
            }
        });
    }

    /// For each window the element of `v` at the first maximum of `x`: the derivative of the maxima
    /// in the direction `v`.
    ///
    /// # Safety
    /// As [`Pool::forward`]; `v` is like `x`.
    pub unsafe fn at_maxima<T: Real>(&self, v: *const T, x: *const T, y: *mut T) {
        let (v, x, y) = (Shared(v.cast_mut()), Shared(x.cast_mut()), Shared(y));
        self.for_planes(|plane| {
            // SAFETY: each plane of `y` belongs to one task; windows stay inside the planes.
            unsafe {
                let (i, o) = (plane * self.in_size(), plane * self.out_size());
                self.positions::<T>(|at, w| {
                    let from = self.first_maximum(x.at(i), &w);
                    *y.at(o + at) = from.map_or(T::zero(), |k| *v.at(i + k));
                });
            }
        });
    }

    /// Where the first maximum of a window is, or its first element if none is a number; `None` if
    /// the window is empty.
    ///
    /// # Safety
    /// The window lies in the plane at `x`.
    #[inline(always)]
    unsafe fn first_maximum<T: Real>(&self, x: *const T, w: &Window<T>) -> Option<usize> {
        let (mut best, mut at, mut first) = (T::neg_infinity(), None, None);
        self.elements(w, |i| {
            // SAFETY: the caller's window lies inside the plane.
            let v = unsafe { *x.add(i) };
            if v > best || (at.is_none() && v == best) {
                best = v;
                at = Some(i);
            }
            first.get_or_insert(i);
        });
        at.or(first)
    }

    /// The gradient of one plane.
    ///
    /// # Safety
    /// `x` and `dx` hold an input plane, `y` and `dy` an output plane; `dx` overlaps none of the
    /// others.
    unsafe fn backward_plane<T: Real>(&self, x: *const T, y: *const T, dy: *const T, dx: *mut T) {
        // SAFETY: promised by the caller; windows stay inside the plane.
        unsafe {
            dx.write_bytes(0, self.in_size());
            self.positions::<T>(|o, w| {
                let g = *dy.add(o);
                match self.kind {
                    PoolKind::Max => {
                        if let Some(i) = self.first_maximum(x, &w) {
                            *dx.add(i) += g;
                        }
                    }
                    PoolKind::Norm { p } => self.elements(&w, |i| {
                        let (v, norm) = (*x.add(i), *y.add(o));
                        let slope = match p {
                            1 => T::one(),
                            _ => (v.abs() / norm).powi(p as i32 - 1),
                        };
                        let slope = if v == T::zero() { T::zero() } else { slope * v.signum() };
                        *dx.add(i) += g * slope;
                    }),
                    _ => {
                        let share = g / w.divisor;
                        self.elements(&w, |i| *dx.add(i) += share);
                    }
                }
            });
        }
    }

    /// One plane.
    ///
    /// # Safety
    /// `x` holds an input plane, `y` an output plane, and they do not overlap.
    #[inline(always)]
    unsafe fn forward_plane<T: Real>(&self, x: *const T, y: *mut T) {
        // SAFETY: promised by the caller; windows stay inside the plane.
        unsafe {
            self.positions::<T>(|o, w| {
                let mut acc =
                    if self.kind == PoolKind::Max { T::neg_infinity() } else { T::zero() };
                match self.kind {
                    PoolKind::Max => self.elements(&w, |i| {
                        let v = *x.add(i);
                        acc = if v > acc { v } else { acc };
                    }),
                    PoolKind::Norm { p } => {
                        acc = self.total(&w, |i| (*x.add(i)).abs().powi(p as i32));
                        acc = match p {
                            1 => acc,
                            2 => acc.sqrt(),
                            _ => acc.powf(T::one() / T::of(p.into())),
                        };
                    }
                    _ => {
                        acc = self.total(&w, |i| *x.add(i)) / w.divisor;
                    }
                }
                *y.add(o) = acc;
            });
        }
    }
}

crate::simd! {
    /// One plane.
    ///
    /// # Safety
    /// `x` holds an input plane, `y` an output plane, and they do not overlap.
    unsafe fn forward_plane[T: Real][T](pool: &Pool, x: *const T, y: *mut T) -> () {
        // SAFETY: promised by the caller.
        unsafe { pool.forward_plane(x, y) }
    }
}
