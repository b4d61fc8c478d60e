//! Filters over a single channel, applied directly: for every tap, a scaled input row is added to an output
//! row.

use super::Conv;
use super::pack::inside;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use std::ops::Range;

/// `y = conv(x, w) + b`.
///
/// # Safety
/// As [`super::forward`].
pub unsafe fn forward<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    y: *mut T,
) {
    let (x, w, y) = (Shared(x.cast_mut()), Shared(w.cast_mut()), Shared(y));
    let bias = bias.map(|b| Shared(b.cast_mut()));
    let filters = conv.groups * conv.out_c;
    planes(conv, conv.batch * filters, |i| {
        let (image, f) = (i / filters, i % filters);
        // SAFETY: plane `i` of `y` belongs to this task; extents are the caller's promise.
        unsafe {
            let from = x.at((image * conv.groups + f / conv.out_c) * conv.in_size());
            let first = bias.map_or(T::zero(), |b| *b.at(f));
            plane(conv, from, w.at(f * conv.taps()), first, y.at(i * conv.out_size()));
        }
    });
}

/// `dx` from `dy` and the filters.
///
/// # Safety
/// As [`super::backward_data`].
pub unsafe fn backward_data<T: Real>(conv: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    let (dy, w, dx) = (Shared(dy.cast_mut()), Shared(w.cast_mut()), Shared(dx));
    planes(conv, conv.batch * conv.groups, |i| {
        let g = i % conv.groups;
        // SAFETY: plane `i` of `dx` belongs to this task; extents are the caller's promise.
        unsafe {
            let to = dx.at(i * conv.in_size());
            to.write_bytes(0, conv.in_size());
            for f in 0..conv.out_c {
                let from = dy.at((i * conv.out_c + f) * conv.out_size());
                plane_data(conv, from, w.at((g * conv.out_c + f) * conv.taps()), to);
            }
        }
    });
}

/// `dw` from the image and `dy`, summed over the batch.
///
/// # Safety
/// As [`super::backward_weight`].
pub unsafe fn backward_weight<T: Real>(conv: &Conv, x: *const T, dy: *const T, dw: *mut T) {
    let (x, dy, dw) = (Shared(x.cast_mut()), Shared(dy.cast_mut()), Shared(dw));
    let filters = conv.groups * conv.out_c;
    planes(conv, filters, |f| {
        // SAFETY: filter `f` of `dw` belongs to this task; extents are the caller's promise.
        unsafe {
            let to = dw.at(f * conv.taps());
            to.write_bytes(0, conv.taps());
            for image in 0..conv.batch {
                let from = x.at((image * conv.groups + f / conv.out_c) * conv.in_size());
                let grad = dy.at((image * filters + f) * conv.out_size());
                plane_weight(conv, from, grad, to);
            }
        }
    });
}

fn planes(conv: &Conv, count: usize, f: impl Fn(usize) + Send + Sync) {
    let work = conv.out_size() * conv.taps();
    parallel_for(count, (1usize << 16).div_ceil(work.max(1)), |range| range.for_each(&f));
}

impl Conv {
    /// Calls `f(tap, start of the input row, offset on the last axis, start of the output row)` for every
    /// output row and tap that meets the image.
    #[inline(always)]
    fn rows(&self, mut f: impl FnMut(usize, usize, isize, usize)) {
        let [out_d, out_h, out_w] = self.output;
        let [_, in_h, in_w] = self.input;
        for (d, h) in (0..out_d).flat_map(|d| (0..out_h).map(move |h| (d, h))) {
            for kd in 0..self.kernel[0] {
                for kh in 0..self.kernel[1] {
                    let Some((sd, sh)) = self.source(0, d, kd).zip(self.source(1, h, kh)) else {
                        continue;
                    };
                    for kw in 0..self.kernel[2] {
                        let tap = (kd * self.kernel[1] + kh) * self.kernel[2] + kw;
                        let row = (sd * in_h + sh) * in_w;
                        f(tap, row, self.offset(2, kw), (d * out_h + h) * out_w);
                    }
                }
            }
        }
    }

    /// The positions of an output row that meet the image, and where the first reads.
    #[inline(always)]
    fn meets(&self, offset: isize) -> (Range<usize>, isize) {
        let good = inside(&(0..self.output[2]), self.stride[2], offset, self.input[2]);
        let first = (good.start * self.stride[2]) as isize + offset;
        (good, first)
    }
}

crate::simd! {
    unsafe fn plane[T: Real][T](
        conv: &Conv, x: *const T, w: *const T, bias: T, y: *mut T,
    ) -> () {
        let stride = conv.stride[2];
        // SAFETY: promised by the caller; `meets` keeps reads inside the row.
        unsafe {
            std::slice::from_raw_parts_mut(y, conv.out_size()).fill(bias);
            conv.rows(|tap, row, offset, out| {
                let (good, first) = conv.meets(offset);
                let (from, to) = (x.add(row).offset(first), y.add(out + good.start));
                let w = *w.add(tap);
                if stride == 1 {
                    for i in 0..good.len() {
                        *to.add(i) += w * *from.add(i);
                    }
                } else {
                    for i in 0..good.len() {
                        *to.add(i) += w * *from.add(i * stride);
                    }
                }
            });
        }
    }

    unsafe fn plane_data[T: Real][T](
        conv: &Conv, dy: *const T, w: *const T, dx: *mut T,
    ) -> () {
        let stride = conv.stride[2];
        // SAFETY: as in `plane`.
        unsafe {
            conv.rows(|tap, row, offset, out| {
                let (good, first) = conv.meets(offset);
                let (to, from) = (dx.add(row).offset(first), dy.add(out + good.start));
                let w = *w.add(tap);
                if stride == 1 {
                    for i in 0..good.len() {
                        *to.add(i) += w * *from.add(i);
                    }
                } else {
                    for i in 0..good.len() {
                        *to.add(i * stride) += w * *from.add(i);
                    }
                }
            });
        }
    }

    unsafe fn plane_weight[T: Real][T](
        conv: &Conv, x: *const T, dy: *const T, dw: *mut T,
    ) -> () {
        const LANES: usize = 16;
        let stride = conv.stride[2];
        // SAFETY: as in `plane`.
        unsafe {
            conv.rows(|tap, row, offset, out| {
                let (good, first) = conv.meets(offset);
                let (a, b) = (x.add(row).offset(first), dy.add(out + good.start));
                let mut lanes = [T::zero(); LANES];
                let whole = if stride == 1 { good.len() / LANES * LANES } else { 0 };
                for start in (0..whole).step_by(LANES) {
                    for (i, lane) in lanes.iter_mut().enumerate() {
                        *lane += *a.add(start + i) * *b.add(start + i);
                    }
                }
                let mut sum: T = lanes.iter().copied().sum();
                for i in whole..good.len() {
                    sum += *a.add(i * stride) * *b.add(i);
                }
                *dw.add(tap) += sum;
            });
        }
    }
}
