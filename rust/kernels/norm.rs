//! Statistics and normalisation of tensors seen as `(outer, channels, inner)`.

mod loops;

use super::pairwise::LANES;
use super::parallel::{OnElements, Shared, parallel_for};
use super::real::Real;
use super::scratch::with_scratch;
use loops::{
    SHORT, TOGETHER, backward_of, gradient_of_planes, gradient_sums_of_planes, join_gradients,
    join_statistics, normalise_of, normalise_planes, normalise_some, statistics_of_any,
    statistics_of_planes,
};
use std::ops::Range;

/// Extents of a tensor normalised by channel.
#[derive(Clone, Copy, Debug)]
pub struct Channels {
    pub outer: usize,
    pub channels: usize,
    pub inner: usize,
}

/// Where data and its per-channel scale may have different types (half precision with `f32` is
/// widened before it comes here), all are `T`.
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

/// Outputs of [`Channels::backward`]; null where not wanted.
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

    /// Whether a channel is many planes, each contiguous and not short. These are then visited in
    /// the order of memory: planes of one channel often are a power of two apart, and expel each
    /// other from the cache.
    pub fn has_planes(&self) -> bool {
        self.inner >= LANES && self.outer > 1
    }

    /// Whether the elements of neighbouring planes or channels, as a task has them, are neighbours.
    pub fn is_in_order(&self) -> bool {
        self.has_planes() || self.outer == 1
    }

    /// Calls `done` with the elements of finished channels, if these are neighbours.
    fn report(&self, channels: Range<usize>, done: OnElements<'_>) {
        if self.is_in_order() {
            done(self.elements(channels));
        }
    }

    /// The elements of a range of planes; those of an only one are its channels.
    fn elements(&self, planes: Range<usize>) -> Range<usize> {
        planes.start * self.inner..planes.end * self.inner
    }

    fn for_planes(&self, f: impl Fn(Range<usize>) + Send + Sync) {
        parallel_for(self.outer * self.channels, (1usize << 13).div_ceil(self.inner.max(1)), f);
    }

    /// Channels whose planes' sums are joined, some to a task.
    fn for_joins(&self, f: impl Fn(Range<usize>) + Send + Sync) {
        parallel_for(self.channels, (1usize << 13).div_ceil(self.outer.max(1)), f);
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
        if self.has_planes() {
            with_scratch(2 * self.outer * self.channels, |parts: &mut [T]| {
                let parts = Shared(parts.as_mut_ptr());
                // SAFETY: promised by the caller; planes and channels belong to one task.
                self.for_planes(|range| unsafe {
                    let of = if self.inner <= SHORT {
                        statistics_of_planes::<T, TOGETHER>
                    } else {
                        statistics_of_planes::<T, 1>
                    };
                    of(self.inner, range, x.at(0), parts.at(0));
                });
                // SAFETY: as above.
                self.for_joins(|range| unsafe {
                    join_statistics(self, range, parts.at(0), mean.at(0), var.at(0));
                });
            });
            return;
        }
        self.for_channels(|range| {
            // SAFETY: promised by the caller; channels belong to one task.
            unsafe { statistics_of_any(self, range, x.at(0), mean.at(0), var.at(0)) };
        });
    }

    /// Normalises by the statistics of `x` itself: writes mean and `1 / sqrt(var + eps)` of every
    /// channel, `var` being the biased variance, and with them as [`Channels::normalise`]; a null
    /// `y` is not wanted, and nothing of it ever done.
    ///
    /// # Safety
    /// `x` and `y` have these extents and are the same memory or apart; `a.mean` and `a.inv_std`
    /// can be written.
    pub unsafe fn normalise_by_batch<T: Real>(
        &self,
        x: *const T,
        eps: T,
        a: Affine<T>,
        y: *mut T,
        done: OnElements<'_>,
    ) {
        let (x, y) = (Shared(x.cast_mut()), Shared(y));
        let (mean, inv_std) = (Shared(a.mean.cast_mut()), Shared(a.inv_std.cast_mut()));
        if self.has_planes() {
            // SAFETY: promised by the caller.
            unsafe {
                self.statistics(x.at(0), mean.at(0), inv_std.at(0));
                for c in 0..self.channels {
                    let var = inv_std.at(c);
                    *var = T::one() / (*var + eps).sqrt();
                }
                self.normalise(x.at(0), a, y.ptr(), done);
            }
            return;
        }
        let some = |range: std::ops::Range<usize>| {
            // SAFETY: promised by the caller; channels belong to one task.
            unsafe {
                statistics_of_any(self, range.clone(), x.at(0), mean.at(0), inv_std.at(0));
                for c in range.clone() {
                    let var = inv_std.at(c);
                    *var = T::one() / (*var + eps).sqrt();
                }
                if !y.ptr().is_null() {
                    normalise_of(self, range.clone(), x.at(0), &a, y.at(0));
                    self.report(range, done);
                }
            }
        };
        // Where channels are innermost, memory is read in lines of all channels of a task.
        self.for_channels(|range| match self.inner {
            1 => some(range),
            _ => range.for_each(|c| some(c..c + 1)),
        });
    }

    /// `y = (x - mean) * inv_std * gamma + beta`, unless `y` is null. Where they are [in
    /// order](Channels::is_in_order), `done` is called with elements that are finished.
    ///
    /// # Safety
    /// `x` and `y` have these extents and are the same memory or apart.
    pub unsafe fn normalise<T: Real>(
        &self,
        x: *const T,
        a: Affine<T>,
        y: *mut T,
        done: OnElements<'_>,
    ) {
        if y.is_null() {
            return;
        }
        let (x, y) = (Shared(x.cast_mut()), Shared(y));
        if self.has_planes() {
            self.for_planes(|range| {
                // SAFETY: as above.
                unsafe { normalise_planes(self, range.clone(), x.at(0), &a, y.at(0)) };
                done(self.elements(range));
            });
            return;
        }
        self.for_channels(|range| {
            // SAFETY: as above.
            unsafe { normalise_of(self, range.clone(), x.at(0), &a, y.at(0)) };
            self.report(range, done);
        });
    }

    /// As [`Channels::normalise`], of some elements on this thread.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn normalise_elements<T: Real>(
        &self,
        elements: Range<usize>,
        x: *const T,
        a: Affine<T>,
        y: *mut T,
    ) {
        // SAFETY: promised by the caller.
        unsafe { normalise_some(self, elements, x, &a, y) };
    }

    /// Gradients of [`Channels::normalise`]; with `fixed` the statistics do not depend on `x`.
    /// Where channels have planes, `wanted` is called with the elements of `dy` before they are
    /// read, and for all before `to.data` is written.
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
        wanted: OnElements<'_>,
    ) {
        let (x, dy) = (Shared(x.cast_mut()), Shared(dy.cast_mut()));
        if self.has_planes() {
            // SAFETY: promised by the caller.
            unsafe { self.backward_by_planes(dy, x, a, fixed, to, wanted) };
            return;
        }
        self.for_channels(|range| {
            // SAFETY: as above.
            unsafe { backward_of(self, range, dy.at(0), x.at(0), &a, fixed, &to) };
        });
    }

    /// The gradient of the data of [`Channels::normalise`], where the statistics are those of these
    /// and other elements: `slopes` has for every channel, over all of them, the mean of `dy` and
    /// that of `dy (x - mean)` times the square of `inv_std`.
    ///
    /// # Safety
    /// `dy` and `x` have these extents; `to` is one of them or apart.
    pub unsafe fn data_gradient<T: Real>(
        &self,
        dy: *const T,
        x: *const T,
        a: Affine<T>,
        slopes: *const T,
        to: *mut T,
    ) {
        let (x, dy) = (Shared(x.cast_mut()), Shared(dy.cast_mut()));
        let (slopes, to) = (Shared(slopes.cast_mut()), Shared(to));
        // SAFETY: promised by the caller; planes belong to one task.
        self.for_planes(|range| unsafe {
            gradient_of_planes(self, range, dy.at(0), x.at(0), &a, slopes.at(0), to.at(0));
        });
    }

    /// # Safety
    /// As [`Channels::backward`].
    unsafe fn backward_by_planes<T: Real>(
        &self,
        dy: Shared<T>,
        x: Shared<T>,
        a: Affine<T>,
        fixed: bool,
        to: Gradients<T>,
        wanted: OnElements<'_>,
    ) {
        let planes = self.outer * self.channels;
        with_scratch(2 * (planes + self.channels), |room: &mut [T]| {
            let parts = Shared(room.as_mut_ptr());
            self.for_planes(|range| {
                wanted(self.elements(range.clone()));
                // SAFETY: within the room; planes and channels belong to one task.
                unsafe {
                    let of = if self.inner <= SHORT {
                        gradient_sums_of_planes::<T, TOGETHER>
                    } else {
                        gradient_sums_of_planes::<T, 1>
                    };
                    of(self, range, dy.at(0), x.at(0), &a, parts.at(0));
                }
            });
            // SAFETY: as above.
            self.for_joins(|range| unsafe {
                let slopes = parts.at(2 * planes);
                join_gradients(self, range, parts.at(0), &a, fixed, &to, slopes);
            });
            let data = Shared(to.data);
            if !data.ptr().is_null() {
                // SAFETY: as above.
                self.for_planes(|range| unsafe {
                    let slopes = parts.at(2 * planes);
                    gradient_of_planes(self, range, dy.at(0), x.at(0), &a, slopes, data.at(0));
                });
            }
        });
    }
}

#[cfg(test)]
mod tests;
