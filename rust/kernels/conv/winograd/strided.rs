//! Stride 2 as stride 1, over the four phases of an image.
//!
//! A phase has every second row and column. A tap reads one phase only, so a filter over `C`
//! channels is one of half the side over `4 C` channels, which are the phases of the channels.
//! Phases that fewer taps read than others have zeros instead.
//!
//! Images are split in rounds, which bounds the buffer.

use super::{Geometry, forward as whole, weight};
use crate::kernels::conv::Conv;
use crate::kernels::kept::Keeper;
use crate::kernels::parallel::{OnElements, Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use std::ops::Range;

/// Bytes of the images of a round.
const ROUND_BYTES: usize = 16 << 20;
/// Phases of a plane.
const PHASES: usize = 4;

/// A convolution with stride 2 that is calculated with stride 1.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    /// Channels of an image.
    channels: usize,
    /// Slices of a channel.
    depth: usize,
    input: [usize; 2],
    /// Taps on the depth axis and on the others.
    kernel: [usize; 3],
    pad: [usize; 2],
}

/// The geometry with stride 1 of `conv`, of which `whole` has the extents.
pub fn split(conv: &Conv, whole: Geometry) -> Geometry {
    let phases = Phases {
        channels: conv.in_c,
        depth: whole.depth.input,
        input: whole.input,
        kernel: conv.kernel,
        pad: whole.pad,
    };
    let side = |axis: usize| (phases.kernel[1 + axis].max(1) - 1 + phases.shift(axis)) / 2 + 1;
    Geometry {
        in_c: conv.in_c * PHASES,
        input: whole.input.map(|n| n.div_ceil(2)),
        pad: whole.pad.map(|p| p.div_ceil(2)),
        kernel: [side(0).max(side(1)); 2],
        phases: Some(phases),
        ..whole
    }
}

impl Phases {
    /// Taps before the first: the padding of phases is that of the image, rounded up.
    fn shift(&self, axis: usize) -> usize {
        self.pad[axis] % 2
    }

    /// Calls `f(tap of a filter, the same in the filter's phases)` for the taps of one channel;
    /// these filters have the side `side`.
    fn for_taps(&self, side: usize, mut f: impl FnMut(usize, usize)) {
        let [depth, height, width] = self.kernel;
        for tap in 0..depth * height * width {
            let (slice, y, x) = (tap / width / height, tap / width % height, tap % width);
            let [y, x] = [y + self.shift(0), x + self.shift(1)];
            let phase = y % 2 * 2 + x % 2;
            f(tap, ((phase * depth + slice) * side + y / 2) * side + x / 2);
        }
    }

    /// Elements of a filter on one channel.
    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Planes of an image.
    fn planes(&self) -> usize {
        self.channels * self.depth
    }

    /// The filters over the phases.
    ///
    /// # Safety
    /// `w` has the filters of the convolution.
    unsafe fn split_filters<T: Real>(&self, geometry: &Geometry, w: *const T, to: &mut [T]) {
        to.fill(T::zero());
        let taps = self.taps();
        for (i, to) in to.chunks_exact_mut(PHASES * geometry.taps()).enumerate() {
            self.for_taps(geometry.kernel[0], |tap, at| {
                // SAFETY: promised by the caller.
                to[at] = unsafe { *w.add(i * taps + tap) };
            });
        }
    }

    /// Calls `f(row of an image, rows of its even and odd columns)` for all rows of some planes of
    /// a round; where a plane has an odd number of rows, there is none to the last rows of phases.
    ///
    /// # Safety
    /// The images have these planes, and `split` room for their phases.
    unsafe fn for_rows<T: Real>(
        &self,
        planes: Range<usize>,
        x: *mut T,
        split: *mut T,
        f: impl Fn(Option<*mut T>, [*mut T; 2]),
    ) {
        let ([height, width], [rows, columns]) = (self.input, self.input.map(|n| n.div_ceil(2)));
        let phase = rows * columns;
        for plane in planes {
            let (channel, slice) = (plane / self.depth, plane % self.depth);
            for row in 0..2 * rows {
                // SAFETY: promised by the caller.
                unsafe {
                    let from = (row < height).then(|| x.add((plane * height + row) * width));
                    let even = ((channel * PHASES + row % 2 * 2) * self.depth + slice) * phase;
                    let even = split.add(even + row / 2 * columns);
                    f(from, [even, even.add(self.depth * phase)]);
                }
            }
        }
    }

    /// Splits the planes of a round.
    ///
    /// # Safety
    /// `x` has the planes, `to` room for their phases.
    unsafe fn split_planes<T: Real>(&self, count: usize, x: *const T, to: *mut T) {
        let (x, to, width) = (Shared(x.cast_mut()), Shared(to), self.input[1]);
        parallel_for(count, self.grain(), |planes| {
            // SAFETY: promised by the caller; planes are apart.
            unsafe {
                self.for_rows(planes, x.ptr(), to.ptr(), |from, [even, odd]| match from {
                    Some(from) => split_row(from.cast_const(), width, even, odd),
                    None => {
                        even.write_bytes(0, width.div_ceil(2));
                        odd.write_bytes(0, width.div_ceil(2));
                    }
                });
            }
        });
    }

    /// The inverse of [`Phases::split_planes`].
    ///
    /// # Safety
    /// `x` has room for the planes, `from` their phases.
    unsafe fn join_planes<T: Real>(&self, count: usize, from: *mut T, x: *mut T) {
        let (x, from, width) = (Shared(x), Shared(from), self.input[1]);
        parallel_for(count, self.grain(), |planes| {
            // SAFETY: promised by the caller; planes are apart.
            unsafe {
                self.for_rows(planes, x.ptr(), from.ptr(), |to, [even, odd]| {
                    if let Some(to) = to {
                        join_row(even.cast_const(), odd.cast_const(), width, to);
                    }
                });
            }
        });
    }

    /// Planes of a task.
    fn grain(&self) -> usize {
        // (An empty image has outputs by its padding alone.)
        (1usize << 14).div_ceil((self.input[0] * self.input[1]).max(1))
    }
}

crate::simd! {
    /// Takes a row of `n` elements apart; a last odd one is 0 where there is none.
    ///
    /// # Safety
    /// The rows hold these elements and are apart.
    unsafe fn split_row[T: Real][T](x: *const T, n: usize, even: *mut T, odd: *mut T) -> () {
        for i in 0..n / 2 {
            // SAFETY: promised by the caller. (Wrapping, as an overflow check would prevent
            // vectorisation.)
            unsafe {
                *even.add(i) = *x.add(i.wrapping_mul(2));
                *odd.add(i) = *x.add(i.wrapping_mul(2).wrapping_add(1));
            }
        }
        if n % 2 == 1 {
            // SAFETY: as above.
            unsafe {
                *even.add(n / 2) = *x.add(n - 1);
                *odd.add(n / 2) = T::zero();
            }
        }
    }

    /// Puts a row of `n` elements together.
    ///
    /// # Safety
    /// The rows hold these elements and are apart.
    unsafe fn join_row[T: Real][T](even: *const T, odd: *const T, n: usize, x: *mut T) -> () {
        for i in 0..n / 2 {
            // SAFETY: as above.
            unsafe {
                *x.add(i.wrapping_mul(2)) = *even.add(i);
                *x.add(i.wrapping_mul(2).wrapping_add(1)) = *odd.add(i);
            }
        }
        if n % 2 == 1 {
            // SAFETY: as above.
            unsafe { *x.add(n - 1) = *even.add(n / 2) };
        }
    }
}

impl Geometry {
    /// Elements of the phases of an image, of an output, and of all filters.
    fn totals(&self) -> [usize; 3] {
        let [input, output] = self.sizes();
        let [input, output] = [self.depth.input * input, self.depth.output * output];
        [self.in_c * input, self.out_c * output, self.in_c * self.out_c * self.taps()]
    }

    /// Images of a round.
    fn round<T>(&self) -> usize {
        let [image, ..] = self.totals();
        (ROUND_BYTES / size_of::<T>() / image.max(1)).clamp(1, self.batch)
    }

    /// The rounds: their first image and their geometry, with stride 1.
    fn rounds<T>(&self) -> impl Iterator<Item = (usize, Geometry)> + use<'_, T> {
        (0..self.batch).step_by(self.round::<T>()).map(|first| {
            let batch = self.round::<T>().min(self.batch - first);
            (first, Geometry { batch, phases: None, ..*self })
        })
    }
}

/// `y = conv(x, w) + b`.
///
/// # Safety
/// As [`super::super::forward`].
pub unsafe fn forward<T: Real>(
    (geometry, phases): (&Geometry, &Phases),
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    (y, done): (*mut T, Option<OnElements<'_>>),
    keeper: Option<Keeper<'_>>,
) {
    let ([image, output, filters], plane) = (geometry.totals(), phases.input[0] * phases.input[1]);
    with_scratch(filters + geometry.round::<T>() * image, |scratch: &mut [T]| {
        let (filters, images) = scratch.split_at_mut(filters);
        // SAFETY: promised by the caller; the scratch has room for a round.
        unsafe {
            phases.split_filters(geometry, w, filters);
            for (first, round) in geometry.rounds::<T>() {
                let planes = phases.planes() * plane;
                let (count, to) = (round.batch * phases.planes(), images.as_mut_ptr());
                phases.split_planes(count, x.add(first * planes), to);
                let (y, filters) = (y.add(first * output), filters.as_ptr());
                let moved = |e: Range<usize>| {
                    if let Some(done) = done {
                        done(e.start + first * output..e.end + first * output);
                    }
                };
                let done = done.map(|_| &moved as OnElements<'_>);
                whole::forward(&round, to, filters, bias, (y, done), keeper);
            }
        }
    });
}

/// `dx` from `dy` and the filters.
///
/// # Safety
/// As [`super::super::backward_data`].
pub unsafe fn backward_data<T: Real>(
    (geometry, phases): (&Geometry, &Phases),
    dy: *const T,
    w: *const T,
    dx: *mut T,
) {
    let ([image, output, filters], plane) = (geometry.totals(), phases.input[0] * phases.input[1]);
    with_scratch(filters + geometry.round::<T>() * image, |scratch: &mut [T]| {
        let (filters, images) = scratch.split_at_mut(filters);
        // SAFETY: promised by the caller; the scratch has room for a round.
        unsafe {
            phases.split_filters(geometry, w, filters);
            for (first, round) in geometry.rounds::<T>() {
                let planes = phases.planes() * plane;
                let (count, from) = (round.batch * phases.planes(), images.as_mut_ptr());
                whole::backward_data(&round, dy.add(first * output), filters.as_ptr(), from);
                phases.join_planes(count, from, dx.add(first * planes));
            }
        }
    });
}

/// `dw` from the images and `dy`; the sums of rounds are added in order.
///
/// # Safety
/// As [`super::super::backward_weight`].
pub unsafe fn backward_weight<T: Real>(
    (geometry, phases): (&Geometry, &Phases),
    x: *const T,
    dy: *const T,
    dw: *mut T,
) {
    let ([image, output, filters], plane) = (geometry.totals(), phases.input[0] * phases.input[1]);
    with_scratch(2 * filters + geometry.round::<T>() * image, |scratch: &mut [T]| {
        let (sums, images) = scratch.split_at_mut(2 * filters);
        let (sums, part) = sums.split_at_mut(filters);
        sums.fill(T::zero());
        // SAFETY: promised by the caller; the scratch has room for a round.
        unsafe {
            for (first, round) in geometry.rounds::<T>() {
                let planes = phases.planes() * plane;
                let (count, to) = (round.batch * phases.planes(), images.as_mut_ptr());
                phases.split_planes(count, x.add(first * planes), to);
                weight::backward_weight(&round, to, dy.add(first * output), part.as_mut_ptr());
                for (sum, &part) in sums.iter_mut().zip(&*part) {
                    *sum += part;
                }
            }
        }
        let taps = phases.taps();
        for (i, from) in sums.chunks_exact(PHASES * geometry.taps()).enumerate() {
            phases.for_taps(geometry.kernel[0], |tap, at| {
                // SAFETY: promised by the caller.
                unsafe { *dw.add(i * taps + tap) = from[at] };
            });
        }
    });
}
