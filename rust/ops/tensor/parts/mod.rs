//! Operators that join arrays, split them and take parts of them.

mod joining;
mod slicing;

pub use joining::{ConcatParam, concat_shape};
pub use slicing::{SliceParam, region_ranges, slice_range, taken};

use super::moves::Move;
use crate::error::Result;
use crate::kernels::layout::copy_strided;
use crate::operator::{Call, Kernel, OpDef, OpReq};
use crate::shape::{Dims, Shape};
use crate::tensor::View;

/// The part of `whole` that begins at `begin` and has the extents of `part`, as a view of the
/// whole.
pub fn region(whole: &View, part: &Shape, begin: &[i64], step: &[i64]) -> View {
    let own = whole.strides();
    let start: i64 = begin.iter().zip(own).map(|(b, s)| b * s).sum();
    // Along an axis of one element no step is taken, however long.
    let taken = |((s, k), n): ((&i64, &i64), &i64)| if *n > 1 { s * k } else { 0 };
    let strides: Dims = own.iter().zip(step).zip(part.dims()).map(taken).collect();
    // SAFETY: begin, extents and steps lie inside of the whole, as inference has checked; an empty
    // part is never read.
    unsafe {
        let size = whole.dtype().size() as i64;
        let ptr = whole.ptr().wrapping_offset((start * size) as isize);
        View::with_strides(ptr, part.clone(), strides, whole.dtype())
    }
}

pub fn copy_views(from: &View, to: &View) {
    // SAFETY: regions of operands of a kernel, which do not overlap.
    unsafe { copy_strided(from, to) };
}

/// Makes copies on the host, but not to outputs that are not wanted.
pub fn run_moves(call: &Call<'_>, moves: Vec<Move>) -> Result<()> {
    for Move { from, to, output } in moves {
        if call.req[output] != OpReq::Null {
            copy_views(&from, &to);
        }
    }
    Ok(())
}

/// The kernels of an operator that consists of copies; `tensor` is an array whose dtype all have.
pub fn moving(
    tensor: &str,
    moves: impl Fn(&Call<'_>) -> Result<Vec<Move>> + Clone + Send + Sync + 'static,
) -> [Kernel; 2] {
    let of_host = moves.clone();
    let host = super::kernel(move |call| run_moves(call, of_host(call)?));
    [host, crate::ops::device::shape::moving(tensor, false, moves)]
}

/// The pieces of `whole` along `axis` with the extents of `parts`, in order.
pub fn pieces(whole: &View, axis: usize, extents: impl Iterator<Item = i64>) -> Vec<View> {
    let ones = vec![1; whole.ndim()];
    let mut begin = vec![0; whole.ndim()];
    extents
        .map(|extent| {
            let mut part = whole.shape().clone();
            part.dims_mut()[axis] = extent;
            let view = region(whole, &part, &begin, &ones);
            begin[axis] += extent;
            view
        })
        .collect()
}

/// `view` with the shape of `piece` where they differ by axes of extent 1; both row-major.
pub fn shaped_like(view: &View, piece: &View) -> View {
    view.reshaped(piece.shape().clone())
}

pub fn operators() -> Vec<OpDef> {
    [joining::operators(), slicing::operators()].concat()
}

#[cfg(test)]
mod tests {
    use super::slice_range;
    use crate::ops::testing::{Tensor, check_gradient, values};

    #[test]
    fn gradients_match_numeric_differentiation() {
        let (a, b) = (Tensor::noise(&[2, 3], 1), Tensor::noise(&[2, 2], 2));
        check_gradient("Concat", &[("num_args", "2")], &[a.clone(), b], &[0, 1], true);
        check_gradient(
            "stack",
            &[("num_args", "2"), ("axis", "1")],
            &[a.clone(), a.clone()],
            &[0, 1],
            true,
        );
        check_gradient("SliceChannel", &[("num_outputs", "3")], &[a.clone()], &[0], true);
        check_gradient(
            "SliceChannel",
            &[("num_outputs", "3"), ("squeeze_axis", "1")],
            &[a.clone()],
            &[0],
            true,
        );
        check_gradient(
            "slice_axis",
            &[("axis", "1"), ("begin", "1"), ("end", "None")],
            &[a.clone()],
            &[0],
            true,
        );
        check_gradient(
            "slice",
            &[("begin", "(None, -1)"), ("end", "(1, None)"), ("step", "(1, -2)")],
            &[a],
            &[0],
            true,
        );
    }

    #[test]
    fn slices_follow_python() {
        assert_eq!(slice_range(5, None, None, 1), (0, 1, 5));
        assert_eq!(slice_range(5, Some(-2), Some(9), 1), (3, 1, 2));
        assert_eq!(slice_range(5, None, None, -2), (4, -2, 3));
        assert_eq!(slice_range(5, Some(3), Some(0), -1), (3, -1, 3));
        assert_eq!(slice_range(0, None, None, -1).2, 0);
        let x = Tensor::of(&[5], &[0., 1., 2., 3., 4.]);
        let p = [("begin", "(None,)"), ("end", "(None,)"), ("step", "(-2,)")];
        assert_eq!(values("slice", &p, &[x]), [4., 2., 0.]);
    }
}
