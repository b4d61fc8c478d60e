//! Shared by convolutions and pooling: spatial tuples, layouts, and views turned channels-first.

use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::Tuple;
use crate::param_enum;
use crate::shape::Shape;

param_enum! {
    /// Order of the axes: batch, channel, spatial.
    pub enum Layout {
        Ncdhw = "NCDHW", Nchw = "NCHW", Ncw = "NCW", Ndhwc = "NDHWC", Nhwc = "NHWC", Nwc = "NWC",
    }
}

param_enum! {
    /// Order of the axes of convolutions.
    pub enum ConvLayout {
        Ncdhw = "NCDHW", Nchw = "NCHW", Ncw = "NCW", Ndhwc = "NDHWC", Nhwc = "NHWC",
    }
}

param_enum! {
    /// Choice of cuDNN's algorithm.
    pub enum CudnnTune { Fastest = "fastest", Limited = "limited_workspace", Off = "off" }
}

impl Layout {
    /// Number of spatial axes.
    pub fn spatial(self) -> usize {
        match self {
            Layout::Ncw | Layout::Nwc => 1,
            Layout::Nchw | Layout::Nhwc => 2,
            Layout::Ncdhw | Layout::Ndhwc => 3,
        }
    }

    pub fn channels_last(self) -> bool {
        matches!(self, Layout::Nwc | Layout::Nhwc | Layout::Ndhwc)
    }

    /// The layout given, or channels first for this many spatial axes; an error when they disagree.
    pub fn or_default(given: Option<Layout>, spatial: usize) -> Result<Layout> {
        let layout = match (given, spatial) {
            (Some(layout), _) => layout,
            (None, 1) => Layout::Ncw,
            (None, 2) => Layout::Nchw,
            (None, _) => Layout::Ncdhw,
        };
        if layout.spatial() != spatial {
            return Err(Error::argument(
                "layout",
                "number of spatial axes",
                layout.spatial(),
                format!("{spatial}, as kernel has"),
            ));
        }
        Ok(layout)
    }

    /// Shape `(N, C, ...)` of a shape in this layout.
    pub fn first(self, shape: &Shape) -> Shape {
        let mut shape = shape.clone();
        if self.channels_last() && shape.ndim() > 1 {
            let dims = shape.dims_mut();
            if let Some(c) = dims.pop() {
                dims.insert(1, c);
            }
        }
        shape
    }

    /// The inverse of [`Layout::first`].
    pub fn from_first(self, shape: &Shape) -> Shape {
        let mut shape = shape.clone();
        if self.channels_last() && shape.ndim() > 1 {
            let dims = shape.dims_mut();
            let c = dims.remove(1);
            dims.push(c);
        }
        shape
    }
}

impl From<ConvLayout> for Layout {
    fn from(layout: ConvLayout) -> Self {
        match layout {
            ConvLayout::Ncdhw => Layout::Ncdhw,
            ConvLayout::Nchw => Layout::Nchw,
            ConvLayout::Ncw => Layout::Ncw,
            ConvLayout::Ndhwc => Layout::Ndhwc,
            ConvLayout::Nhwc => Layout::Nhwc,
        }
    }
}

/// The greatest value of a spatial parameter; products of two fit into 64 bits.
const MOST: i64 = i32::MAX as i64;

/// A spatial tuple parameter: empty means `fill` on every axis; else it has one value an axis, at
/// least `least`.
pub fn spatial(tuple: &Tuple, name: &str, rank: usize, fill: i64, least: i64) -> Result<Tuple> {
    if tuple.is_empty() {
        return Ok(Tuple::from_elem(fill, rank));
    }
    // (Not as a shape, in which what is negative is unknown.)
    let expected = if tuple.len() != rank {
        format!("{rank} numbers, as kernel has")
    } else if tuple.iter().any(|v| !(least..=MOST).contains(v)) {
        format!("numbers from {least} to {MOST}")
    } else {
        return Ok(tuple.clone());
    };
    let numbers: Vec<_> = tuple.iter().map(i64::to_string).collect();
    let comma = if numbers.len() == 1 { "," } else { "" };
    let got = format!("({}{comma})", numbers.join(", "));
    Err(Error::argument(name, "value", got, expected))
}

/// Spatial values as three, leading ones filled.
pub fn three(values: &[i64], fill: usize) -> [usize; 3] {
    let mut out = [fill; 3];
    for (slot, &v) in out[3 - values.len()..].iter_mut().zip(values) {
        *slot = v.max(0) as usize;
    }
    out
}

/// `to[o, j, i] = from[o, i, j]` for `(outer, a, b)`.
///
/// # Safety
/// Both hold `outer * a * b` elements and do not overlap.
pub unsafe fn swap_inner<T: Real>(
    from: *const T,
    (outer, a, b): (usize, usize, usize),
    to: *mut T,
) {
    const TILE: usize = 16;
    let (from, to) = (Shared(from.cast_mut()), Shared(to));
    let strips = a.div_ceil(TILE);
    parallel_for(outer * strips, (1usize << 12).div_ceil(TILE * b.max(1)), |range| {
        for task in range {
            let (o, i0) = (task / strips, task % strips * TILE);
            for j0 in (0..b).step_by(TILE) {
                for j in j0..(j0 + TILE).min(b) {
                    for i in i0..(i0 + TILE).min(a) {
                        // SAFETY: both indices stay below `outer * a * b`; targets of tasks are
                        // apart.
                        unsafe {
                            *to.at((o * b + j) * a + i) = *from.at((o * a + i) * b + j);
                        }
                    }
                }
            }
        }
    });
}
