//! Convolution and its transpose in any layout: the kernels take channels first, so operands of
//! other layouts pass through scratch.

use super::window::{Layout, swap_inner};
use crate::error::Result;
use crate::kernels::conv::Conv;
use crate::kernels::real::Real;
use crate::kernels::reduce_rows::sum_channels;
use crate::kernels::scratch::with_scratch;
use crate::operator::{Call, OpReq};

/// The image of a convolution among [`sizes`] and scratch.
pub const IMAGE: usize = 0;
/// Its filters.
const FILTERS: usize = 1;
/// Its output.
pub const OUTPUT: usize = 2;

/// Sizes of image, filters and output of a convolution as (outer, channels, positions).
pub fn sizes(conv: &Conv) -> [(usize, usize, usize); 3] {
    [
        (conv.batch, conv.groups * conv.in_c, conv.in_size()),
        (conv.groups * conv.out_c, conv.in_c, conv.taps()),
        (conv.batch, conv.groups * conv.out_c, conv.out_size()),
    ]
}

/// Calls `f` with scratch for image, filters and output in channels-first order, or without if they
/// are in that order already.
pub fn with_first<T: Real>(
    layout: Layout,
    conv: &Conv,
    f: impl FnOnce(Option<[*mut T; 3]>) -> Result<()>,
) -> Result<()> {
    if !layout.channels_last() {
        return f(None);
    }
    let lens = sizes(conv).map(|(n, c, p)| (n * c * p).next_multiple_of(16));
    with_scratch(lens.iter().sum(), |room: &mut [T]| {
        let base = room.as_mut_ptr();
        // SAFETY: the offsets lie inside the scratch.
        f(Some(unsafe { [base, base.add(lens[0]), base.add(lens[0] + lens[1])] }))
    })
}

/// Channels-last to channels-first.
///
/// # Safety
/// Both hold the elements of `(outer, channels, positions)` and do not overlap.
pub unsafe fn to_first<T: Real>(from: *const T, (n, c, p): (usize, usize, usize), to: *mut T) {
    // SAFETY: promised by the caller.
    unsafe { swap_inner(from, (n, p, c), to) };
}

/// The gradient kernels of an operator over a [`Conv`].
pub struct Gradients<T> {
    /// Which of [`sizes`] the output gradient has.
    pub grad: usize,
    /// Which of [`sizes`] the data has.
    pub data: usize,
    /// The data's gradient from the output gradient and the filters.
    pub to_data: unsafe fn(&Conv, *const T, *const T, *mut T),
    /// The filters' gradient from the data and the output gradient.
    pub to_weight: unsafe fn(&Conv, *const T, *const T, *mut T),
}

/// Writes the gradients of data, filters and bias. Inputs are output gradient, data and filters.
pub fn backward<T: Real>(
    call: &Call<'_>,
    layout: Layout,
    conv: &Conv,
    gradients: &Gradients<T>,
) -> Result<()> {
    let [dy, x, w] = [0, 1, 2].map(|i| call.inputs[i].as_ptr::<T>());
    let out = |i: usize| call.outputs[i].as_ptr::<T>();
    let wanted = |i: usize| call.req.get(i).is_some_and(|r| *r != OpReq::Null);
    let sizes = sizes(conv);
    let (sy, sx, sw) = (sizes[gradients.grad], sizes[gradients.data], sizes[FILTERS]);
    with_first::<T>(layout, conv, |room| {
        let room = room.map(|room| (room[gradients.grad], room[gradients.data], room[FILTERS]));
        // SAFETY: gradients have the extents of their inputs; outputs overlap no input here. The
        // scratch of an input serves for its own gradient after the last use of the input.
        unsafe {
            let dy = room.map_or(dy, |(y1, ..)| {
                to_first(dy, sy, y1);
                y1
            });
            if wanted(2) {
                sum_channels(dy, sy, out(2));
            }
            match room {
                _ if !wanted(0) => {}
                None => (gradients.to_data)(conv, dy, w, out(0)),
                Some((_, x1, w1)) => {
                    to_first(w, sw, w1);
                    (gradients.to_data)(conv, dy, w1, x1);
                    swap_inner(x1, sx, out(0));
                }
            }
            match room {
                _ if !wanted(1) => {}
                None => (gradients.to_weight)(conv, x, dy, out(1)),
                Some((_, x1, w1)) => {
                    to_first(x, sx, x1);
                    (gradients.to_weight)(conv, x1, dy, w1);
                    swap_inner(w1, sw, out(1));
                }
            }
        }
        Ok(())
    })
}
