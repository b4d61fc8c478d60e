//! Winograd's minimal filtering F(m×m, r×r) with m + r = 7: filters of 3×3 give tiles of 4×4
//! outputs, 4×4 of 3×3 and 5×5 of 2×2, each for 36 multiplications (instead of 144, 144 and 100).
//!
//! A tile's transform is a product of one for each axis, and that of an axis without a filter is
//! the identity: filters of 3 taps along one axis give lines of 4 outputs for 6 multiplications
//! (instead of 12), those of 4 and of 5 taps lines of 3 and 2.
//!
//! Images are cut into tiles of m×m outputs. A transform takes the 6×6 input of a tile to 36
//! points; at each point, tiles times channels is a matrix that is multiplied by the transformed
//! filters; the inverse transform takes the 36 sums to the outputs. Points are kept in blocks of
//! [`LANES`] channels, so that transforms work on whole registers whatever the size of the image.
//! Convolutions with stride 2 become some with stride 1 (`strided`): 7×7 is 4×4 then. With dilation
//! the positions of a tile are as far apart as taps, and tiles lie between one another (`tiles`).
//! Over volumes
//! the algorithm works on slices, one for each position on the depth axis: the sums of the taps on
//! that axis are added at the points, where the tiles of a slice serve all filters that read it. If
//! that axis alone has a filter, its tiles are lines across the slices (`Geometry::joined`).
//!
//! **Precision.** The transforms add numbers of different size: for values of about one size the
//! error is three to five times that of the direct sum, and at most `4e-6 * sum |x| |w|` of the
//! terms of an output in float32 (`errors_stay_below_the_bound`). The errors of a tile are those of
//! its largest output: they do not shrink where one reads less than the others, and a large value
//! leaves its error in the whole tile (`errors_of_large_values_stay_in_proportion`). float64 is
//! always calculated directly.
//! **NaN and infinity** in an input reach all outputs of the tiles that read it, where the direct
//! sum has them only in those outputs that read it; an infinite input gives NaN, as transforms
//! subtract it from itself. In a weight they reach all outputs of its filter.
//!
//! A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015.

mod forward;
mod regions;
mod strided;
#[cfg(all(test, not(loom)))]
mod tests;
mod tiles;
pub mod transforms;
mod weight;

use super::Conv;
use crate::kernels::kept::Keeper;
use crate::kernels::parallel::OnElements;
use crate::kernels::real::Real;
use std::sync::OnceLock;
use strided::Phases;
use tiles::Cut;
pub use transforms::LANES;
use transforms::{FILTERS, REACH, Transforms};

/// Points of a transformed tile of a square filter.
const POINTS: usize = REACH * REACH;

/// A convolution to which the algorithm applies.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    batch: usize,
    in_c: usize,
    out_c: usize,
    depth: Depth,
    input: [usize; 2],
    output: [usize; 2],
    pad: [usize; 2],
    /// Taps of the filter along the axes of a plane: the same along both, or one along one.
    kernel: [usize; 2],
    /// From a tap to the next; 1 along an axis without a filter.
    dilate: [usize; 2],
    /// Terms of an output in the direct sum.
    direct: usize,
    /// With stride 2, where the channels come from; the other extents are those of the convolution
    /// with stride 1.
    phases: Option<Phases>,
}

/// The axis of slices, of stride 1; each of its extents is 1 for an image.
#[derive(Clone, Copy, Debug)]
struct Depth {
    input: usize,
    output: usize,
    kernel: usize,
    pad: usize,
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
        let dilate = [0, 1, 2].map(|a| if conv.kernel[a] == 1 { 1 } else { conv.dilate[a] });
        let reach = |axis: usize| (conv.kernel[axis].max(1) - 1) * dilate[axis];
        let applies = conv.groups == 1
            && conv.stride[0] == 1
            && conv.stride[1] == conv.stride[2]
            && (conv.stride[1] == 1 || dilate == [1; 3])
            && (0..3).all(|axis| conv.pad[axis] <= reach(axis))
            && conv.out_size() > 0
            && conv.batch > 0
            && conv.in_c > 0
            && conv.out_c > 0;
        let whole = Geometry {
            batch: conv.batch,
            in_c: conv.in_c,
            out_c: conv.out_c,
            depth: Depth {
                input: conv.input[0],
                output: conv.output[0],
                kernel: conv.kernel[0],
                pad: conv.pad[0],
            },
            input: [conv.input[1], conv.input[2]],
            output: [conv.output[1], conv.output[2]],
            pad: [conv.pad[1], conv.pad[2]],
            kernel: [conv.kernel[1], conv.kernel[2]],
            dilate: [dilate[1], dilate[2]],
            direct: conv.depth(),
            phases: None,
        };
        let geometry = match conv.stride[1] {
            1 if whole.kernel == [1; 2] => whole.joined(dilate[0]),
            1 if dilate[0] == 1 => whole,
            2 => strided::split(conv, whole),
            _ => return None,
        };
        let [down, across] = geometry.kernel;
        let is_tiled = down == across || down.min(across) == 1;
        (applies && is_tiled && FILTERS.contains(&down.max(across))).then_some(geometry)
    }

    /// Itself, with the slices as rows, for filters that have taps along them only, `dilate` apart:
    /// rows and columns are the columns then.
    fn joined(self, dilate: usize) -> Self {
        let Depth { input, output, kernel, pad } = self.depth;
        let [read, written] = self.sizes();
        Geometry {
            depth: Depth { input: 1, output: 1, kernel: 1, pad: 0 },
            input: [input, read],
            output: [output, written],
            pad: [pad, 0],
            kernel: [kernel, 1],
            dilate: [dilate, 1],
            ..self
        }
    }

    /// Elements of a filter on one slice of a channel.
    fn square(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Elements of a filter on one channel.
    fn taps(&self) -> usize {
        self.depth.kernel * self.square()
    }

    /// Points of a transformed tile along the axes: an axis without a filter stays as it is.
    fn reach(&self) -> [usize; 2] {
        self.kernel.map(|taps| if taps == 1 { 1 } else { REACH })
    }

    /// Points of a transformed tile.
    fn points(&self) -> usize {
        self.reach().iter().product()
    }

    /// Sides of a tile of outputs.
    fn sides(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.reach()[axis] + 1 - self.kernel[axis])
    }

    /// The transforms for its filters.
    fn transforms<T: Real>(&self) -> &'static Transforms<T> {
        let [down, across] = self.kernel;
        let shape = match (down, across) {
            (_, 1) => 1,
            (1, _) => 2,
            _ => 0,
        };
        &T::transforms()[shape][down.max(across) - FILTERS.start]
    }

    /// The squares that tiles read and write.
    fn cuts(&self) -> (Cut, Cut) {
        let (sides, reach, [read_size, written_size]) = (self.sides(), self.reach(), self.sizes());
        let apart = self.depth.input * read_size;
        let read = Cut {
            planes: self.input,
            apart,
            pad: self.pad,
            side: reach,
            step: sides,
            dilate: self.dilate,
            reach,
        };
        let apart = self.depth.output * written_size;
        (read, Cut { planes: self.output, apart, pad: [0; 2], side: sides, ..read })
    }

    /// Elements of a slice of the input and of the output.
    fn sizes(&self) -> [usize; 2] {
        [self.input, self.output].map(|[height, width]| height * width)
    }

    /// The output slices of all images.
    fn slices(&self) -> usize {
        self.batch * self.depth.output
    }

    /// The first element of the input slice that the first tap on the depth axis reads for output
    /// slice `slice`, or of the one `on` after it; `None` for padding.
    fn read_at(&self, slice: usize, on: usize, channel: usize) -> Option<usize> {
        let Depth { input, output, pad, .. } = self.depth;
        let at = (slice % output + on).checked_sub(pad).filter(|at| *at < input)?;
        Some(((slice / output * self.in_c + channel) * input + at) * self.sizes()[0])
    }

    /// The first element of output slice `slice`.
    fn written_at(&self, slice: usize, channel: usize) -> usize {
        let depth = self.depth.output;
        let plane = (slice / depth * self.out_c + channel) * depth + slice % depth;
        plane * self.sizes()[1]
    }

    /// The convolution that takes the gradient of the output to that of the input.
    fn transposed(&self) -> Self {
        Geometry {
            in_c: self.out_c,
            out_c: self.in_c,
            input: self.output,
            output: self.input,
            depth: Depth {
                input: self.depth.output,
                output: self.depth.input,
                pad: self.depth.kernel - 1 - self.depth.pad,
                ..self.depth
            },
            pad: [0, 1].map(|axis| (self.kernel[axis] - 1) * self.dilate[axis] - self.pad[axis]),
            ..*self
        }
    }

    /// Whether it is expected to be faster than the direct sum, counted in register multiplications
    /// with the measured cost of transforms.
    fn pays(&self) -> bool {
        let (inner, outer) = (padded(self.in_c), padded(self.out_c));
        let direct = self.slices() * self.sizes()[1] * self.direct * self.out_c / 32;
        let tiles = self.slices() * self.tiles().iter().product::<usize>();
        let products = self.points() * tiles * self.in_c * self.depth.kernel * outer / 32;
        let filters = inner * outer * self.depth.kernel * self.points();
        // Filters that leave the caches are written to memory and read again. Those of squares that
        // are used once are transformed in the cache (measured from one tile of 512 channels on).
        let is_large = filters * size_of::<f32>() > 16 << 20;
        let is_square = self.points() == POINTS;
        let each = match () {
            _ if is_square && forward::regions(self).count() == 1 => 5,
            _ if is_large => 60,
            _ => 18,
        };
        // Tiles along one axis take 0.5 to 0.65 of the time of direct sums from 64 channels to 64,
        // 0.6 to 0.85 from 16 to 32 and 0.8 to 1.1 from 16 to 16; filters as much as they save
        // where 4 tiles and 256 channels are all there is.
        let (of_tile, of_filter) = if is_square { (24, 2) } else { (3, 1) };
        let of_tiles = tiles * (inner + outer) * of_tile / 2;
        let of_filters = filters * each * of_filter / 2 / POINTS;
        forward::holds_block(self) && products + of_tiles + of_filters < direct
    }

    /// Rows and columns of tiles of a slice.
    fn tiles(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            let dilate = self.dilate[axis];
            let whole = dilate * self.sides()[axis];
            let (blocks, rest) = (self.output[axis] / whole, self.output[axis] % whole);
            blocks * dilate + rest.min(dilate)
        })
    }
}

/// Channels, rounded up to whole blocks.
fn padded(channels: usize) -> usize {
    channels.next_multiple_of(LANES)
}

/// `y = conv(x, w) + b`; the extents are those of [`super::forward`].
///
/// # Safety
/// As there.
pub unsafe fn forward<T: Real>(
    geometry: &Geometry,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    to: (*mut T, Option<OnElements<'_>>),
    keeper: Option<Keeper<'_>>,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match &geometry.phases {
            Some(phases) => strided::forward((geometry, phases), x, w, bias, to, keeper),
            None => forward::forward(geometry, x, w, bias, to, keeper),
        }
    }
}

/// `dx` from `dy` and the filters.
///
/// # Safety
/// As [`super::backward_data`].
pub unsafe fn backward_data<T: Real>(geometry: &Geometry, dy: *const T, w: *const T, dx: *mut T) {
    if geometry.sizes()[0] == 0 {
        return; // The outputs are made of padding alone.
    }
    // SAFETY: promised by the caller.
    unsafe {
        match &geometry.phases {
            Some(phases) => strided::backward_data((geometry, phases), dy, w, dx),
            None => forward::backward_data(geometry, dy, w, dx),
        }
    }
}

/// `dw` from the images and `dy`.
///
/// # Safety
/// As [`super::backward_weight`].
pub unsafe fn backward_weight<T: Real>(geometry: &Geometry, x: *const T, dy: *const T, dw: *mut T) {
    // SAFETY: promised by the caller.
    unsafe {
        match &geometry.phases {
            Some(phases) => strided::backward_weight((geometry, phases), x, dy, dw),
            None => weight::backward_weight(geometry, x, dy, dw),
        }
    }
}
