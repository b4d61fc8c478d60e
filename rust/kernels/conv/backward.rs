//! Gradients of a convolution with respect to its image and its filters.

use super::direct::Direct;
use super::pack::{add_sums, pack, unpack_add};
use super::winograd::{self, Geometry};
use super::{Conv, depthwise, pointwise};
use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;

/// Minimum number of rows of the matrix form per task of a gradient.
const ROWS: usize = 128;

/// `dx` from `dy` and the filters.
///
/// # Safety
/// Extents as in [`super::forward`]; `dx` overlaps neither of the others.
pub unsafe fn backward_data<T: Real>(conv: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    // SAFETY: promised by the caller.
    unsafe {
        if let Some(geometry) = Geometry::chosen::<T>(conv) {
            winograd::backward_data(&geometry, dy, w, dx);
        } else if conv.is_depthwise() {
            depthwise::backward_data(conv, dy, w, dx);
        } else if conv.has_single_taps() {
            pointwise::backward_data(conv, dy, w, dx);
        } else if let Some(direct) = Direct::chosen(conv).filter(Direct::suits_data) {
            direct.backward_data(dy, w, dx);
        } else {
            general_data(conv, dy, w, dx);
        }
    }
}

/// Channels a task handles, and the number of such parts.
fn channel_parts(conv: &Conv, tasks: usize) -> (usize, usize) {
    if tasks >= 8 {
        return (conv.in_c, 1);
    }
    let part = ROWS.div_ceil(conv.taps().max(1)).clamp(1, conv.in_c.max(1));
    (part, conv.in_c.div_ceil(part))
}

/// The implicit matrix product, unpacked into the image.
///
/// # Safety
/// As [`backward_data`].
unsafe fn general_data<T: Real>(conv: &Conv, dy: *const T, w: *const T, dx: *mut T) {
    let (depth, m, n) = (conv.depth(), conv.out_c, conv.out_size());
    let images = conv.batch * conv.groups;
    let (part, parts) = channel_parts(conv, images);
    let block = conv.block_columns(part * conv.taps(), size_of::<T>());
    let (dy, w, dx) = (Shared(dy.cast_mut()), Shared(w.cast_mut()), Shared(dx));
    parallel_for(images * parts, 1, |range| {
        for task in range {
            let (image, c0) = (task / parts, task % parts * part);
            let channels = c0..(c0 + part).min(conv.in_c);
            let rows = channels.len() * conv.taps();
            with_scratch(rows * block, |packed: &mut [T]| {
                let packed = packed.as_mut_ptr();
                // SAFETY: these channels of `dx` belong to this task; extents are the caller's
                // promise.
                unsafe {
                    let to = dx.at(image * conv.in_c * conv.in_size());
                    let size = conv.in_size();
                    to.add(c0 * size).write_bytes(0, channels.len() * size);
                    let g = image % conv.groups;
                    let a = Mat::rows(w.at(g * m * depth + c0 * conv.taps()), depth).t();
                    for from in (0..n).step_by(block.max(1)) {
                        let columns = from..(from + block).min(n);
                        let width = columns.len();
                        let b = Mat::rows(dy.at(image * m * n + from), n);
                        let c = Mat::rows(packed, width);
                        gemm((rows, width, m), a, b, c, false, Threads::One);
                        unpack_add(conv, packed, channels.clone(), columns, to);
                    }
                }
            });
        }
    });
}

/// `dw` from the image and `dy`, summed over the batch.
///
/// # Safety
/// Extents as in [`super::forward`]; `dw` overlaps neither of the others.
pub unsafe fn backward_weight<T: Real>(conv: &Conv, x: *const T, dy: *const T, dw: *mut T) {
    if let Some(geometry) = Geometry::chosen::<T>(conv) {
        // SAFETY: promised by the caller.
        return unsafe { winograd::backward_weight(&geometry, x, dy, dw) };
    }
    if conv.is_depthwise() {
        // SAFETY: promised by the caller.
        return unsafe { depthwise::backward_weight(conv, x, dy, dw) };
    }
    if conv.has_single_taps() && pointwise::suits_weight(conv) {
        // SAFETY: promised by the caller.
        return unsafe { pointwise::backward_weight(conv, x, dy, dw) };
    }
    if let Some(direct) = (!conv.is_pointwise()).then(|| Direct::chosen(conv)).flatten() {
        // SAFETY: promised by the caller.
        return unsafe { direct.backward_weight(x, dy, dw) };
    }
    let total = conv.groups * conv.out_c * conv.depth();
    let (_, parts) = channel_parts(conv, conv.groups);
    // Too few parts: the images are split too, and their sums added in order.
    let spread = if conv.groups * parts >= 4 { 1 } else { conv.batch.clamp(1, 4) };
    let images = conv.batch.div_ceil(spread).max(1);
    let (x, dy) = (Shared(x.cast_mut()), Shared(dy.cast_mut()));
    with_scratch((spread - 1) * total, |more: &mut [T]| {
        let (more, first) = (Shared(more.as_mut_ptr()), Shared(dw));
        parallel_for(spread * conv.groups * parts, 1, |range| {
            for task in range {
                let (s, rest) = (task / (conv.groups * parts), task % (conv.groups * parts));
                let batch = (s * images).min(conv.batch)..((s + 1) * images).min(conv.batch);
                // SAFETY: each share of images has a sum of its own, each part its own channels of
                // it.
                unsafe {
                    let to = if s == 0 { first.at(0) } else { more.at((s - 1) * total) };
                    weight_part(conv, (x.at(0), dy.at(0), to), rest / parts, rest % parts, batch);
                }
            }
        });
        // SAFETY: all sums have `total` elements.
        unsafe { add_sums(total, spread - 1, more, first) };
    });
}

/// The gradient of one part of the channels of one group's filters, over some images.
///
/// # Safety
/// `x`, `dy` and `dw` are as in [`backward_weight`]; nothing else writes this part of `dw`.
unsafe fn weight_part<T: Real>(
    conv: &Conv,
    (x, dy, dw): (*mut T, *mut T, *mut T),
    group: usize,
    part: usize,
    batch: std::ops::Range<usize>,
) {
    let (depth, m, n) = (conv.depth(), conv.out_c, conv.out_size());
    let (channels_each, _) = channel_parts(conv, conv.groups);
    let c0 = part * channels_each;
    let channels = c0..(c0 + channels_each).min(conv.in_c);
    let rows = channels.len() * conv.taps();
    let block = conv.block_columns(rows, size_of::<T>());
    // SAFETY: extents are the caller's promise.
    let to = Mat::rows(unsafe { dw.add(group * m * depth + c0 * conv.taps()) }, depth);
    with_scratch(rows * block, |packed: &mut [T]| {
        let packed = packed.as_mut_ptr();
        let mut add = false;
        for image in batch.map(|i| i * conv.groups + group) {
            for from in (0..n).step_by(block.max(1)) {
                let columns = from..(from + block).min(n);
                let width = columns.len();
                // SAFETY: as above; the packed block holds `rows` times `width`.
                unsafe {
                    let source = x.add(image * conv.in_c * conv.in_size());
                    let (b, row) = if conv.is_pointwise() {
                        (source.add(c0 * n + from), n)
                    } else {
                        pack(conv, source, channels.clone(), columns, packed);
                        (packed, width)
                    };
                    let a = Mat::rows(dy.add(image * m * n + from), n);
                    gemm((m, rows, width), a, Mat::rows(b, row).t(), to, add, Threads::One);
                }
                add = true;
            }
        }
        if !add {
            // No images, or no positions: the sum is zero.
            for f in 0..m {
                // SAFETY: as above.
                unsafe { to.at(f, 0).ptr.write_bytes(0, rows) };
            }
        }
    });
}
