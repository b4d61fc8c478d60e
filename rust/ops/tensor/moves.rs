//! How operators that only move elements say so: as copies between views, or as a walk over the
//! input. The host and devices carry it out.

use crate::error::Result;
use crate::operator::Attrs;
use crate::shape::{Dims, Shape};
use crate::tensor::View;

/// A copy between views of a call's arrays, which do not overlap. Operators that only move elements
/// say which copies they consist of; the host and devices make them.
pub struct Move {
    pub from: View,
    pub to: View,
    /// The output that `to` is part of.
    pub output: usize,
}

/// How an output walks over its input: the element of the input under the output's first one, and a
/// stride for every axis of `dims`, a finer shape of the output.
pub struct Path {
    /// Shape of the output.
    pub out: Dims,
    pub dims: Dims,
    pub start: i64,
    pub strides: Dims,
}

impl Path {
    /// The walk by `strides` over an output of shape `out`.
    pub fn plain(out: Dims, start: i64, strides: Dims) -> Self {
        Path { dims: out.clone(), out, start, strides }
    }
}

/// The path of an operator, from its attributes and the shapes of its inputs.
pub type PathFn = fn(&Attrs, &[Shape]) -> Result<Path>;

/// The elements of `whole` on a path.
pub fn along(p: &Path, whole: &View) -> View {
    let offset = p.start as isize * whole.dtype().size() as isize;
    // SAFETY: a path addresses elements of its input only; where there are none nothing is read.
    unsafe {
        let start = whole.ptr().wrapping_offset(offset);
        View::with_strides(start, Shape::from(&p.dims[..]), p.strides.clone(), whole.dtype())
    }
}
