//! Elements by index: `take`, `pick`, `one_hot`, `gather_nd`, `scatter_nd` and their kin.

mod coordinates;
mod mask;
pub(in crate::ops) mod pick;
mod replacing;
pub(in crate::ops) mod take;

use super::common::read_f64;
use crate::operator::{OpDef, Tuple};
use crate::params;
use crate::tensor::View;

params! {
    /// Parameters of operators whose output has a given shape.
    pub struct ShapeParam {
        shape: Tuple, required, "Shape of the output.";
    }
}

/// The position that an index denotes on an axis of `extent`, which is not 0.
fn position(index: i64, extent: i64, wrap: bool) -> i64 {
    if wrap { index.rem_euclid(extent) } else { index.clamp(0, extent - 1) }
}

/// Element `i` of an index array; its fraction is dropped.
pub fn index_at(view: &View, i: usize) -> i64 {
    // SAFETY: the callers stay below the view's size.
    unsafe { read_f64(view.ptr(), view.dtype(), i) as i64 }
}

/// The documentation of an operator: summary, notes and an example.
pub fn text(what: &str, notes: &str, example: &str) -> String {
    format!("{what}\n\nNotes\n-----\n{notes}\n\nExamples\n--------\n>>> {example}\n")
}

/// Copies `n` elements of the views' dtype between offsets.
pub fn copy_run(from: &View, at: usize, to: &View, to_at: usize, n: usize) {
    let size = from.dtype().size();
    // SAFETY: the callers keep both runs inside of their views, which do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(
            from.ptr().add(at * size),
            to.ptr().add(to_at * size),
            n * size,
        );
    }
}

pub fn operators() -> Vec<OpDef> {
    let by_place = [take::operators(), pick::operators(), coordinates::operators()].concat();
    [by_place, mask::operators(), replacing::operators()].concat()
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let x = Tensor::noise(&[3, 4], 1);
        let at = |dims: &[i64], v: &[f64]| Tensor::of(dims, v);
        for axis in ["0", "1"] {
            check_gradient(
                "take",
                &[("axis", axis)],
                &[x.clone(), at(&[2, 2], &[0., 2., 2., 9.])],
                &[0],
                true,
            );
        }
        check_gradient("pick", &[], &[x.clone(), at(&[3], &[0., 3., 1.])], &[0], true);
        check_gradient(
            "pick",
            &[("axis", "0"), ("keepdims", "1")],
            &[x.clone(), at(&[4], &[0., 2., 1., 1.])],
            &[0],
            true,
        );
        check_gradient("batch_take", &[], &[x.clone(), at(&[3], &[0., 3., 1.])], &[0], true);
        check_gradient(
            "gather_nd",
            &[],
            &[x.clone(), at(&[2, 3], &[0., 0., 2., 1., 1., -1.])],
            &[0],
            true,
        );
        check_gradient(
            "scatter_nd",
            &[("shape", "(5,)")],
            &[at(&[2], &[1., 2.]), at(&[1, 2], &[3., 0.])],
            &[0],
            true,
        );
    }

    #[test]
    fn facts() {
        let x = Tensor::of(&[3], &[1., 2., 3.]);
        let i = Tensor::of(&[3], &[-1., 1., 4.]);
        let odd = Tensor::of(&[3], &[f64::NAN, f64::INFINITY, -0.5]);
        assert_eq!(values("take", &[], &[x.clone(), i.clone()]), [1., 2., 3.]);
        assert_eq!(values("take", &[("mode", "wrap")], &[x.clone(), i.clone()]), [3., 2., 2.]);
        let fail =
            run("take", &[("mode", "raise")], &[x, i.clone()], false).map(|_| ()).unwrap_err();
        assert!(fail.to_string().contains("take operator contains indices out of bound"));
        assert_eq!(values("one_hot", &[("depth", "2")], &[i]), [0., 0., 0., 1., 0., 0.]);
        assert_eq!(values("one_hot", &[("depth", "2")], &[odd]), [0., 0., 0., 0., 1., 0.]);
    }
}
