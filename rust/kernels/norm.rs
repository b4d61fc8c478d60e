//! Statistics and normalisation of tensors seen as `(outer, channels, inner)`.

use super::parallel::{Shared, parallel_for};
use super::real::Real;
use super::reduce_rows::sum;

/// Extents of a tensor normalised by channel.
#[derive(Clone, Copy, Debug)]
pub struct Channels {
    pub outer: usize,
    pub channels: usize,
    pub inner: usize,
}

/// Where data and its per-channel scale may have different types (half precision beside `f32` is widened
/// before it comes here), all are `T`.
#[derive(Clone, Copy)]
pub struct Affine<T> {
    pub mean: *const T,
    pub inv_std: *const T,
    /// `None` is 1.
    pub gamma: Option<*const T>,
    pub beta: *const T,
}

// SAFETY: only addresses that a kernel reads.
unsafe impl<T> Send for Affine<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Affine<T> {}

/// Outputs of [`Channels::backward`]; null pointers are not wanted.
#[derive(Clone, Copy)]
pub struct Gradients<T> {
    pub data: *mut T,
    pub gamma: *mut T,
    pub beta: *mut T,
}

// SAFETY: only addresses; each task writes channels of its own.
unsafe impl<T> Send for Gradients<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Gradients<T> {}

/// Channels of a task when channels are the innermost axis.
const COLUMNS: usize = 32;

impl Channels {
    /// Elements of one channel.
    pub fn count(&self) -> usize {
        self.outer * self.inner
    }

    fn for_channels(&self, f: impl Fn(std::ops::Range<usize>) + Send + Sync) {
        let grain = (1usize << 13).div_ceil(self.count().max(1));
        let grain = if self.inner == 1 { grain.max(COLUMNS) } else { grain };
        parallel_for(self.channels, grain, f);
    }

    /// Mean and (biased) variance of every channel; both 0 for no elements.
    ///
    /// # Safety
    /// `x` has these extents, `mean` and `var` one element a channel.
    pub unsafe fn statistics<T: Real>(&self, x: *const T, mean: *mut T, var: *mut T) {
        let (x, mean, var) = (Shared(x.cast_mut()), Shared(mean), Shared(var));
        self.for_channels(|range| {
            // SAFETY: promised by the caller; channels belong to one task.
            unsafe { statistics_of(self, range, x.at(0), mean.at(0), var.at(0)) };
        });
    }

    /// `y = (x - mean) * inv_std * gamma + beta`.
    ///
    /// # Safety
    /// `x` and `y` have these extents and are the same memory or apart.
    pub unsafe fn normalise<T: Real>(&self, x: *const T, a: Affine<T>, y: *mut T) {
        let (x, y) = (Shared(x.cast_mut()), Shared(y));
        self.for_channels(|range| {
            // SAFETY: as above.
            unsafe { normalise_of(self, range, x.at(0), &a, y.at(0)) };
        });
    }

    /// Gradients of [`Channels::normalise`]; with `fixed` the statistics do not depend on `x`.
    ///
    /// # Safety
    /// `dy` and `x` have these extents; `to.data` is one of them or apart.
    pub unsafe fn backward<T: Real>(
        &self,
        dy: *const T,
        x: *const T,
        a: Affine<T>,
        fixed: bool,
        to: Gradients<T>,
    ) {
        let (x, dy) = (Shared(x.cast_mut()), Shared(dy.cast_mut()));
        self.for_channels(|range| {
            // SAFETY: as above.
            unsafe { backward_of(self, range, dy.at(0), x.at(0), &a, fixed, &to) };
        });
    }
}

crate::simd! {
    unsafe fn statistics_of[T: Real][T](
        s: &Channels, range: std::ops::Range<usize>, x: *const T, mean: *mut T, var: *mut T,
    ) -> () {
        let count = T::of(s.count().max(1) as f64);
        // SAFETY: promised by the caller.
        unsafe {
            if s.inner == 1 {
                let width = range.len();
                let (m, v) = (
                    std::slice::from_raw_parts_mut(mean.add(range.start), width),
                    std::slice::from_raw_parts_mut(var.add(range.start), width),
                );
                m.fill(T::zero());
                v.fill(T::zero());
                let row = |n: usize| {
                    std::slice::from_raw_parts(x.add(n * s.channels + range.start), width)
                };
                for n in 0..s.outer {
                    for (m, &x) in m.iter_mut().zip(row(n)) {
                        *m += x;
                    }
                }
                for m in m.iter_mut() {
                    *m /= count;
                }
                for n in 0..s.outer {
                    for ((v, &x), &m) in v.iter_mut().zip(row(n)).zip(m.iter()) {
                        *v += (x - m) * (x - m);
                    }
                }
                for v in v.iter_mut() {
                    *v /= count;
                }
                return;
            }
            for c in range {
                let plane = |n: usize| {
                    std::slice::from_raw_parts(x.add((n * s.channels + c) * s.inner), s.inner)
                };
                let mut total = T::zero();
                for n in 0..s.outer {
                    total += sum(plane(n));
                }
                let m = total / count;
                let mut squares = T::zero();
                for n in 0..s.outer {
                    squares += lanes(s.inner, |i| {
                        let d = *plane(n).get_unchecked(i) - m;
                        d * d
                    });
                }
                *mean.add(c) = m;
                *var.add(c) = squares / count;
            }
        }
    }

    unsafe fn normalise_of[T: Real][T](
        s: &Channels, range: std::ops::Range<usize>, x: *const T, a: &Affine<T>, y: *mut T,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe {
            let factor = |c: usize| *a.inv_std.add(c) * a.gamma.map_or(T::one(), |g| *g.add(c));
            for n in 0..s.outer {
                if s.inner == 1 {
                    for c in range.clone() {
                        let i = n * s.channels + c;
                        *y.add(i) = (*x.add(i) - *a.mean.add(c)) * factor(c) + *a.beta.add(c);
                    }
                    continue;
                }
                for c in range.clone() {
                    let (f, m, b) = (factor(c), *a.mean.add(c), *a.beta.add(c));
                    let at = (n * s.channels + c) * s.inner;
                    super::map::map_serial([x.add(at)], y.add(at), s.inner, |[x]| (x - m) * f + b);
                }
            }
        }
    }

    unsafe fn backward_of[T: Real][T](
        s: &Channels, range: std::ops::Range<usize>, dy: *const T, x: *const T, a: &Affine<T>,
        fixed: bool, to: &Gradients<T>,
    ) -> () {
        let count = T::of(s.count().max(1) as f64);
        // SAFETY: promised by the caller.
        unsafe {
            for c in range {
                let (m, inv) = (*a.mean.add(c), *a.inv_std.add(c));
                let (mut sum_dy, mut sum_dyx) = (T::zero(), T::zero());
                for n in 0..s.outer {
                    let at = (n * s.channels + c) * s.inner;
                    let (dy, x) = (dy.add(at), x.add(at));
                    sum_dy += lanes(s.inner, |i| *dy.add(i));
                    sum_dyx += lanes(s.inner, |i| *dy.add(i) * (*x.add(i) - m));
                }
                if !to.gamma.is_null() {
                    let d = if a.gamma.is_some() { sum_dyx * inv } else { T::zero() };
                    *to.gamma.add(c) = d;
                }
                if !to.beta.is_null() {
                    *to.beta.add(c) = sum_dy;
                }
                if to.data.is_null() {
                    continue;
                }
                let f = inv * a.gamma.map_or(T::one(), |g| *g.add(c));
                let zero = T::zero();
                let (mean_dy, slope) =
                    if fixed { (zero, zero) } else { (sum_dy / count, sum_dyx * inv * inv / count) };
                for n in 0..s.outer {
                    let at = (n * s.channels + c) * s.inner;
                    super::map::map_serial(
                        [dy.add(at), x.add(at)], to.data.add(at), s.inner,
                        |[g, x]| f * (g - mean_dy - (x - m) * slope),
                    );
                }
            }
        }
    }
}

/// `f(0) + f(1) + ...` in sixteen lanes.
#[inline(always)]
pub fn lanes<T: Real>(n: usize, f: impl Fn(usize) -> T) -> T {
    const LANES: usize = 16;
    let mut lanes = [T::zero(); LANES];
    let whole = n / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane += f(start + i);
        }
    }
    let tail: T = (whole..n).map(f).sum();
    lanes.iter().copied().sum::<T>() + tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::naive::{close, noise};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn statistics_match_naive(
            outer in 0usize..5, channels in 0usize..40, inner in 0usize..40, seed: u64,
        ) {
            let s = Channels { outer, channels, inner };
            let x = noise(outer * channels * inner, seed);
            let (mut mean, mut var) = (vec![9.0; channels], vec![9.0; channels]);
            // SAFETY: the buffers have these extents.
            unsafe { s.statistics(x.as_ptr(), mean.as_mut_ptr(), var.as_mut_ptr()) };
            for c in 0..channels {
                let of: Vec<f64> = (0..outer * inner)
                    .map(|i| x[((i / inner) * channels + c) * inner + i % inner])
                    .collect();
                let n = of.len().max(1) as f64;
                let m = of.iter().sum::<f64>() / n;
                let v = of.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / n;
                prop_assert!(close(&[mean[c], var[c]], &[m, v], 1e-12));
            }
        }
    }
}
