//! `y = conv(x, w) + b`.

use super::direct::Direct;
use super::pack::pack;
use super::windows::Windows;
use super::winograd::{self, Geometry};
use super::{Conv, depthwise, fill_bias, pointwise, report};
use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::kept::Keeper;
use crate::kernels::parallel::{OnElements, Shared, parallel_for};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;

/// Filters per task, where little else can be split.
const FILTERS: usize = 64;

/// Applies the filters to every image. Calls `done` with each element of `y` once, when it is
/// finished and still in the cache. What the algorithm makes of the filters is left with `keeper`.
///
/// # Safety
/// `x` is (batch, groups * in_c, input), `w` (groups * out_c, in_c, kernel), `y` (batch, groups *
/// out_c, output), all row-major; `bias` has groups * out_c elements. `y` overlaps none of the
/// others.
pub unsafe fn forward<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    y: *mut T,
    done: Option<OnElements<'_>>,
    keeper: Option<Keeper<'_>>,
) {
    // SAFETY: promised by the caller.
    unsafe {
        if let Some(geometry) = Geometry::chosen::<T>(conv) {
            winograd::forward(&geometry, x, w, bias, (y, done), keeper);
        } else if conv.is_depthwise() {
            depthwise::forward(conv, x, w, bias, y, done);
        } else if conv.has_single_taps() {
            pointwise::forward(conv, x, w, bias, (y, done), keeper);
        } else if let Some(windows) = Windows::chosen(conv) {
            windows.forward(x, w, bias, (y, done), keeper);
        } else if let Some(direct) = Direct::chosen(conv) {
            direct.forward(x, w, bias, (y, done), keeper);
        } else {
            general(conv, x, w, bias, y, done);
        }
    }
}

/// The implicit matrix product.
///
/// # Safety
/// As [`forward`].
unsafe fn general<T: Real>(
    conv: &Conv,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    y: *mut T,
    done: Option<OnElements<'_>>,
) {
    let (depth, m, n) = (conv.depth(), conv.out_c, conv.out_size());
    let block = conv.block_columns(depth, size_of::<T>());
    let blocks = n.div_ceil(block.max(1));
    let images = conv.batch * conv.groups;
    // Few blocks: split the filters too, although each part then packs the columns again.
    let parts = if images * blocks < 4 { m.div_ceil(FILTERS).max(1) } else { 1 };
    let part = m.div_ceil(parts);
    let (x, w, y) = (Shared(x.cast_mut()), Shared(w.cast_mut()), Shared(y));
    let bias = bias.map(|b| Shared(b.cast_mut()));
    parallel_for(images * blocks * parts, 1, |range| {
        for task in range {
            let (image, rest) = (task / (blocks * parts), task % (blocks * parts));
            let (from, filters) = (rest / parts * block, rest % parts * part);
            let columns = from..(from + block).min(n);
            let rows = part.min(m.saturating_sub(filters));
            let g = image % conv.groups;
            with_scratch(depth * columns.len(), |packed: &mut [T]| {
                let packed = packed.as_mut_ptr();
                let width = columns.len();
                // SAFETY: the block of `y` belongs to this task; extents are the caller's promise.
                unsafe {
                    let source = x.at(image * conv.in_c * conv.in_size());
                    pack(conv, source, 0..conv.in_c, columns.clone(), packed);
                    let to = y.at((image * m + filters) * n + columns.start);
                    let first = g * m + filters;
                    let add = fill_bias(bias, first..first + rows, to, (n, width));
                    let a = Mat::rows(w.at(first * depth), depth);
                    let b = Mat::rows(packed, width);
                    gemm((rows, width, depth), a, b, Mat::rows(to, n), add, Threads::One);
                }
                let first = image * m + filters;
                report(done, first..first + rows, n, columns);
            });
        }
    });
}
