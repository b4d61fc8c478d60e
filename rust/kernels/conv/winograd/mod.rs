//! Filters of 3×3 with stride 1 by Winograd's minimal filtering F(4×4, 3×3): 36 multiplications for
//! 16 outputs instead of 144.
//!
//! Images are cut into tiles of 4×4 outputs. A transform takes the 6×6 input of a tile to 36
//! points; at each point, tiles times channels is a matrix that is multiplied by the transformed
//! filters; the inverse transform takes the 36 sums to the outputs. Points are kept in blocks of
//! [`LANES`] channels, so that transforms work on whole registers whatever the size of the image.
//!
//! **Precision.** The transforms add numbers of different size: for values of about one size the
//! error is about ten times that of the direct sum, and at most `2e-5 * sum |x| |w|` of an output's
//! terms in float32 (`errors_stay_below_the_bound`). float64 is always calculated directly.
//! **NaN and infinity** in an input reach all outputs of the tiles that read it, where the direct
//! sum has them in up to nine outputs only; an infinite input gives NaN, as transforms subtract it
//! from itself. In a weight they reach all outputs of its filter.
//!
//! A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015.

mod forward;
#[cfg(all(test, not(loom)))]
mod tests;
mod tiles;
pub mod transforms;
mod weight;

use super::Conv;
use std::ops::Range;
use std::sync::OnceLock;

pub use forward::{backward_data, forward};
pub use weight::backward_weight;

/// Channels of a block.
pub const LANES: usize = 16;
/// Side of a tile of outputs.
const SIDE: usize = 4;
/// Side of a tile's input.
const REACH: usize = SIDE + 2;
/// Points of a transformed tile.
const POINTS: usize = REACH * REACH;

/// A convolution to which the algorithm applies.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    batch: usize,
    in_c: usize,
    out_c: usize,
    input: [usize; 2],
    output: [usize; 2],
    pad: [usize; 2],
}

/// Whether `RSNET_WINOGRAD` leaves the algorithm on.
fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| {
        std::env::var("RSNET_WINOGRAD").map_or(true, |v| !matches!(v.trim(), "0" | "false" | "off"))
    })
}

impl Geometry {
    /// The geometry of `conv`, if the algorithm applies, is on and is expected to be faster. The
    /// choice depends on extents only.
    pub fn chosen<T>(conv: &Conv) -> Option<Self> {
        (size_of::<T>() == 4).then(|| Self::of(conv)).flatten().filter(|g| g.pays() && is_on())
    }

    /// The geometry of `conv`, if the algorithm applies.
    pub fn of(conv: &Conv) -> Option<Self> {
        let applies = conv.groups == 1
            && conv.kernel == [1, 3, 3]
            && conv.stride == [1; 3]
            && conv.dilate == [1; 3]
            && conv.input[0] == 1
            && conv.pad[0] == 0
            && conv.pad[1] <= 2
            && conv.pad[2] <= 2
            && conv.out_size() > 0
            && conv.batch > 0
            && conv.in_c > 0
            && conv.out_c > 0;
        applies.then_some(Geometry {
            batch: conv.batch,
            in_c: conv.in_c,
            out_c: conv.out_c,
            input: [conv.input[1], conv.input[2]],
            output: [conv.output[1], conv.output[2]],
            pad: [conv.pad[1], conv.pad[2]],
        })
    }

    /// The convolution that takes the gradient of the output to that of the input.
    fn transposed(&self) -> Self {
        Geometry {
            batch: self.batch,
            in_c: self.out_c,
            out_c: self.in_c,
            input: self.output,
            output: self.input,
            pad: self.pad.map(|p| 2 - p),
        }
    }

    /// Whether it is expected to be faster than the direct sum, counted in register multiplications
    /// with the measured cost of transforms.
    fn pays(&self) -> bool {
        let (inner, outer) = (padded(self.in_c), padded(self.out_c));
        let positions = self.batch * self.output[0] * self.output[1];
        let direct = positions * 9 * self.in_c * self.out_c / 32;
        let tiles = self.batch * self.tile_rows() * self.tile_columns();
        let products = POINTS * tiles * inner * outer / 32;
        let of_tiles = tiles * (inner + outer) * 12;
        // Filters that leave the caches are written to memory and read again.
        let is_large = inner * outer * POINTS * size_of::<f32>() > 16 << 20;
        let of_filters = inner * outer * if is_large { 60 } else { 18 };
        products + of_tiles + of_filters < direct
    }

    fn tile_rows(&self) -> usize {
        self.output[0].div_ceil(SIDE)
    }

    fn tile_columns(&self) -> usize {
        self.output[1].div_ceil(SIDE)
    }

    /// Rows of tiles of all images.
    fn all_rows(&self) -> usize {
        self.batch * self.tile_rows()
    }

    /// `rows` of all images' tiles as parts of single images: image, its rows, and the number of
    /// tiles before them.
    fn bands(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
        let (each, across) = (self.tile_rows(), self.tile_columns());
        let start = rows.start;
        let mut at = start;
        std::iter::from_fn(move || {
            (at < rows.end).then(|| {
                let image = at / each;
                let end = rows.end.min((image + 1) * each);
                let band = (image, at - image * each..end - image * each, (at - start) * across);
                at = end;
                band
            })
        })
    }
}

/// Channels, rounded up to whole blocks.
fn padded(channels: usize) -> usize {
    channels.next_multiple_of(LANES)
}
