//! Convolution over one to three spatial axes, with groups, stride, padding and dilation.
//!
//! The general path is an implicit matrix product: a block of output positions is packed from the
//! image into cache-sized scratch (one row a filter tap, one column a position) and multiplied by
//! the filters. To filters of one element images are matrices already; filters over a single
//! channel are applied directly.
//!
//! K. Chellapilla, S. Puri, P. Simard, High Performance Convolutional Neural Networks for Document
//! Processing, 2006 (the matrix form).

mod backward;
mod blocks;
mod depthwise;
mod direct;
mod forward;
mod grid;
mod pack;
mod pointwise;
#[cfg(all(test, not(loom)))]
mod tests;
mod windows;
pub mod winograd;

use super::parallel::{OnElements, Shared};
use super::real::Real;
use std::ops::Range;

pub use backward::{backward_data, backward_weight};
pub use forward::forward;
pub(super) use grid::Grid;

/// Extents of one convolution; unused leading spatial axes have extent 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    pub batch: usize,
    pub groups: usize,
    /// Input channels of a group.
    pub in_c: usize,
    /// Filters of a group.
    pub out_c: usize,
    pub input: [usize; 3],
    pub kernel: [usize; 3],
    pub output: [usize; 3],
    pub stride: [usize; 3],
    pub pad: [usize; 3],
    pub dilate: [usize; 3],
}

/// Calls `done` with the elements of some columns of some rows, which are `width` long.
fn report(done: Option<OnElements<'_>>, rows: Range<usize>, width: usize, columns: Range<usize>) {
    let Some(done) = done.filter(|_| !columns.is_empty()) else { return };
    if columns.len() == width {
        return done(rows.start * width..rows.end * width);
    }
    for start in rows.map(|row| row * width) {
        done(start + columns.start..start + columns.end);
    }
}

/// Fills rows of an output block with their bias, to which products are then added. Returns `false`
/// if there is none.
///
/// # Safety
/// `y` has a row of `columns` elements for each filter, `row` apart, and `bias` an element for
/// each.
unsafe fn fill_bias<T: Real>(
    bias: Option<Shared<T>>,
    filters: Range<usize>,
    y: *mut T,
    (row, columns): (usize, usize),
) -> bool {
    let Some(bias) = bias else { return false };
    for (i, f) in filters.enumerate() {
        // SAFETY: the caller's block has these rows.
        unsafe { std::slice::from_raw_parts_mut(y.add(i * row), columns).fill(*bias.at(f)) };
    }
    true
}

/// Bytes of packed columns that should stay in the second-level cache.
const BLOCK_BYTES: usize = 384 << 10;

impl Conv {
    /// Positions of an input plane.
    pub fn in_size(&self) -> usize {
        self.input.iter().product()
    }

    /// Positions of an output plane.
    pub fn out_size(&self) -> usize {
        self.output.iter().product()
    }

    /// Elements of a filter on one channel.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Elements of a filter.
    pub fn depth(&self) -> usize {
        self.in_c * self.taps()
    }

    /// Are the columns of the matrix form the image itself?
    fn is_pointwise(&self) -> bool {
        self.has_single_taps() && self.stride == [1; 3]
    }

    /// Does a filter have one element, and does each output read an element of the image?
    fn has_single_taps(&self) -> bool {
        self.kernel == [1; 3] && self.pad == [0; 3]
    }

    /// Is each filter over one channel only, so that a matrix product would reuse nothing?
    fn is_depthwise(&self) -> bool {
        self.in_c == 1 && self.out_c <= 2 && self.groups > 1
    }

    /// Output positions packed at once, for rows of `depth` elements of `size` bytes.
    fn block_columns(&self, depth: usize, size: usize) -> usize {
        let fitting = BLOCK_BYTES / (depth * size).max(1);
        // With deep filters only a few columns would fit, and the filters would be read again for
        // each of these small blocks.
        let rounded = (fitting / 32 * 32).max(192);
        let blocks = self.out_size().div_ceil(rounded).max(1);
        self.out_size().div_ceil(blocks).next_multiple_of(16)
    }
}
