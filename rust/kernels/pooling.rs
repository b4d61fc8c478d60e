//! Pooling over one to three spatial axes: maximum, average, sum and p-norm of windows.

use super::parallel::{Shared, parallel_for};
use super::real::Real;

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

/// The part of one window inside the image, and by what a sum over it is divided.
struct Window<T> {
    from: [usize; 3],
    to: [usize; 3],
    divisor: T,
}

impl Pool {
    fn in_size(&self) -> usize {
        self.input.iter().product()
    }

    fn out_size(&self) -> usize {
        self.output.iter().product()
    }

    #[inline(always)]
    fn window<T: Real>(&self, at: [usize; 3]) -> Window<T> {
        let (mut from, mut to, mut padded, mut inner) = ([0; 3], [0; 3], 1, 1);
        for a in 0..3 {
            // In padded coordinates; a window beyond the padded border is clipped to it first.
            let start = at[a] * self.stride[a];
            let end = (start + self.kernel[a]).min(self.input[a] + 2 * self.pad[a]);
            padded *= end.saturating_sub(start);
            from[a] = start.saturating_sub(self.pad[a]);
            to[a] = end.saturating_sub(self.pad[a]).min(self.input[a]).max(from[a]);
            inner *= to[a] - from[a];
        }
        let count = match self.kind {
            PoolKind::Average { with_pad: true } => padded,
            PoolKind::Average { with_pad: false } => inner,
            _ => 1,
        };
        Window { from, to, divisor: T::of(count.max(1) as f64) }
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

    fn for_planes(&self, f: impl Fn(usize) + Send + Sync) {
        let work = self.out_size() * self.kernel.iter().product::<usize>();
        parallel_for(self.planes, (1usize << 14).div_ceil(work.max(1)), |r| r.for_each(&f));
    }

    /// `y = pool(x)`.
    ///
    /// # Safety
    /// `x` is (planes, input), `y` (planes, output); they do not overlap.
    pub unsafe fn forward<T: Real>(&self, x: *const T, y: *mut T) {
        let (x, y) = (Shared(x.cast_mut()), Shared(y));
        self.for_planes(|plane| {
            // SAFETY: each plane of `y` belongs to one task.
            unsafe {
                forward_plane(self, x.at(plane * self.in_size()), y.at(plane * self.out_size()));
            }
        });
    }

    /// `dx` from `dy`, with the `x` and `y` of the forward run. The first maximum of a window gets its
    /// gradient.
    ///
    /// # Safety
    /// As [`Pool::forward`]; `dx` overlaps none of the others.
    pub unsafe fn backward<T: Real>(&self, x: *const T, y: *const T, dy: *const T, dx: *mut T) {
        let (x, y) = (Shared(x.cast_mut()), Shared(y.cast_mut()));
        let (dy, dx) = (Shared(dy.cast_mut()), Shared(dx));
        self.for_planes(|plane| {
            let (i, o) = (plane * self.in_size(), plane * self.out_size());
            // SAFETY: each plane of `dx` belongs to one task.
            unsafe { self.backward_plane(x.at(i), y.at(o), dy.at(o), dx.at(i)) };
        });
    }

    /// For each window the element of `v` at the first maximum of `x`: how a small change of `x` by `v` shows in the
    /// maxima.
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

    /// Where the first maximum of a window is; `None` if the window is empty.
    #[inline(always)]
    unsafe fn first_maximum<T: Real>(&self, x: *const T, w: &Window<T>) -> Option<usize> {
        let (mut best, mut at) = (T::neg_infinity(), None);
        self.elements(w, |i| {
            // SAFETY: the caller's window lies inside the plane.
            let v = unsafe { *x.add(i) };
            if v > best || at.is_none() {
                best = v;
                at = Some(i);
            }
        });
        at
    }

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
                        self.elements(&w, |i| acc += (*x.add(i)).abs().powi(p as i32));
                        acc = match p {
                            1 => acc,
                            2 => acc.sqrt(),
                            _ => acc.powf(T::one() / T::of(p.into())),
                        };
                    }
                    _ => {
                        self.elements(&w, |i| acc += *x.add(i));
                        acc /= w.divisor;
                    }
                }
                *y.add(o) = acc;
            });
        }
    }
}

crate::simd! {
    unsafe fn forward_plane[T: Real][T](pool: &Pool, x: *const T, y: *mut T) -> () {
        // SAFETY: promised by the caller.
        unsafe { pool.forward_plane(x, y) }
    }
}
