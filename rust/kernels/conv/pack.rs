//! Between images and the columns of the matrix form.

use super::Conv;
use crate::kernels::gemm::Mat;
use crate::kernels::layout::copy_matrix;
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use std::ops::Range;

/// The stretch of output positions of one output row whose input lies inside the image, for input
/// position `position * stride + offset` and an input row of `width`.
#[inline(always)]
pub fn inside(
    positions: &Range<usize>,
    stride: usize,
    offset: isize,
    width: usize,
) -> Range<usize> {
    let first = if offset < 0 { (offset.unsigned_abs()).div_ceil(stride) } else { 0 };
    let end = width as isize - offset;
    let last = if end <= 0 { 0 } else { (end as usize).div_ceil(stride) };
    let start = first.clamp(positions.start, positions.end);
    start..last.clamp(start, positions.end)
}

impl Conv {
    /// Offset of input against output position on `axis` for a filter tap.
    #[inline(always)]
    pub fn offset(&self, axis: usize, tap: usize) -> isize {
        (tap * self.dilate[axis]) as isize - self.pad[axis] as isize
    }

    /// The input index on `axis` that output index `at` reads for `tap`, if it is inside.
    #[inline(always)]
    pub fn source(&self, axis: usize, at: usize, tap: usize) -> Option<usize> {
        let i = (at * self.stride[axis]) as isize + self.offset(axis, tap);
        (i >= 0 && (i as usize) < self.input[axis]).then_some(i as usize)
    }

    /// Calls `f(row of the matrix, offset of the row's first column, output positions, start of the
    /// input row if inside, offset on the last axis)` for every tap and every output row that
    /// `columns` touches.
    #[inline(always)]
    fn walk(
        &self,
        channels: Range<usize>,
        columns: Range<usize>,
        mut f: impl FnMut(usize, usize, Range<usize>, Option<usize>, isize),
    ) {
        let [_, out_h, out_w] = self.output;
        let [_, in_h, in_w] = self.input;
        let mut row = 0;
        for c in channels {
            let plane = c * self.in_size();
            for kd in 0..self.kernel[0] {
                for kh in 0..self.kernel[1] {
                    for kw in 0..self.kernel[2] {
                        let mut at = columns.start;
                        while at < columns.end {
                            let (line, w) = (at / out_w, at % out_w);
                            let end = (w + columns.end - at).min(out_w);
                            let (d, h) = (line / out_h, line % out_h);
                            let source = self
                                .source(0, d, kd)
                                .zip(self.source(1, h, kh))
                                .map(|(d, h)| plane + (d * in_h + h) * in_w);
                            f(row, at - columns.start, w..end, source, self.offset(2, kw));
                            at += end - w;
                        }
                        row += 1;
                    }
                }
            }
        }
    }

    /// Packs the columns of `channels` for output positions `columns` into rows of `columns.len()`.
    ///
    /// # Safety
    /// `image` holds a group's channels, `to` `channels.len() * taps * columns.len()` elements.
    #[inline(always)]
    pub unsafe fn pack<T: Real>(
        &self,
        image: *const T,
        channels: Range<usize>,
        columns: Range<usize>,
        to: *mut T,
    ) {
        let (width, stride, in_w) = (columns.len(), self.stride[2], self.input[2]);
        self.walk(channels, columns, |row, first, positions, source, offset| {
            // SAFETY: row and positions lie in the packed block; `inside` keeps reads inside the
            // image row.
            unsafe {
                let to = to.add(row * width + first);
                let len = positions.len();
                let Some(source) = source else {
                    zero(to, len);
                    return;
                };
                let good = inside(&positions, stride, offset, in_w);
                let (before, count) = (good.start - positions.start, good.len());
                zero(to, before);
                let from = image.add(source).offset((good.start * stride) as isize + offset);
                if stride == 1 {
                    std::ptr::copy_nonoverlapping(from, to.add(before), count);
                } else {
                    for i in 0..count {
                        *to.add(before + i) = *from.add(i * stride);
                    }
                }
                zero(to.add(before + count), len - before - count);
            }
        });
    }

    /// Adds packed columns back to where [`Conv::pack`] would have read them.
    ///
    /// # Safety
    /// As [`Conv::pack`], with `image` writable by this call alone.
    #[inline(always)]
    pub unsafe fn unpack_add<T: Real>(
        &self,
        from: *const T,
        channels: Range<usize>,
        columns: Range<usize>,
        image: *mut T,
    ) {
        let (width, stride, in_w) = (columns.len(), self.stride[2], self.input[2]);
        self.walk(channels, columns, |row, first, positions, source, offset| {
            let Some(source) = source else { return };
            let good = inside(&positions, stride, offset, in_w);
            // SAFETY: as in `pack`.
            unsafe {
                let from = from.add(row * width + first + good.start - positions.start);
                let to = image.add(source).offset((good.start * stride) as isize + offset);
                if stride == 1 {
                    for i in 0..good.len() {
                        *to.add(i) += *from.add(i);
                    }
                } else {
                    for i in 0..good.len() {
                        *to.add(i * stride) += *from.add(i);
                    }
                }
            }
        });
    }
}

/// Adds `count` sums of `len` elements each, which stand one after the other, to `to`, in order.
///
/// # Safety
/// All have these elements.
pub unsafe fn add_sums<T: Real>(len: usize, count: usize, sums: Shared<T>, to: Shared<T>) {
    if count == 0 {
        return;
    }
    parallel_for(len, 1 << 14, |elements| {
        for sum in 0..count {
            for i in elements.clone() {
                // SAFETY: promised by the caller; elements are apart.
                unsafe { *to.at(i) += *sums.at(sum * len + i) };
            }
        }
    });
}

/// Columns of the matrix form of filters that a task transposes.
const COLUMNS: usize = 64;

/// Writes gradients of filters that stand side by side, `row` elements from one weight of a filter
/// to the next, as filters.
///
/// # Safety
/// `from` has them for all groups, and `dw` is that of [`super::backward_weight`].
pub unsafe fn store_transposed<T: Real>(conv: &Conv, from: Shared<T>, row: usize, dw: Shared<T>) {
    let (depth, filters) = (conv.depth(), conv.out_c);
    let parts = depth.div_ceil(COLUMNS);
    parallel_for(conv.groups * parts, 1, |tasks| {
        for task in tasks {
            let (group, first) = (task / parts, task % parts * COLUMNS);
            // SAFETY: promised by the caller; columns are apart.
            unsafe {
                let from = from.at((group * depth + first) * row);
                let from = Mat { ptr: from, row: 1, col: row as isize };
                let to = Mat::rows(dw.at(group * filters * depth + first), depth);
                copy_matrix((filters, COLUMNS.min(depth - first)), from, to);
            }
        }
    });
}

/// Sets `n` elements to 0.
///
/// # Safety
/// `to` is valid for `n` elements.
#[inline(always)]
unsafe fn zero<T: Real>(to: *mut T, n: usize) {
    // SAFETY: promised by the caller; zero bytes are zero.
    unsafe { to.write_bytes(0, n) };
}

crate::simd! {
    /// [`Conv::pack`], compiled for the machine.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn pack[T: Real][T](
        conv: &Conv, image: *const T, channels: Range<usize>, columns: Range<usize>, to: *mut T,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { conv.pack(image, channels, columns, to) }
    }

    /// [`Conv::unpack_add`], compiled for the machine.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn unpack_add[T: Real][T](
        conv: &Conv, from: *const T, channels: Range<usize>, columns: Range<usize>, image: *mut T,
    ) -> () {
        // SAFETY: promised by the caller.
        unsafe { conv.unpack_add(from, channels, columns, image) }
    }
}
