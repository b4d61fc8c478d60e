//! `where`, which chooses between two arrays, and the conversions between coordinates and places.

use super::common::{all_known, wanted, write_f64, zero_view};
use super::indexing::{ShapeParam, index_at, text};
use super::kernel;
use crate::error::{Error, Result};
use crate::kernels::choose::{self as kernels, Condition};
use crate::operator::infer::{assign_shape, assign_type, same_type};
use crate::operator::{Attrs, Dep, Gradient, OpDef, Tuple};
use crate::shape::Shape;
use crate::tensor::View;
use crate::with_dtype;

/// `out = x` where the condition is not 0, else `y`; without an operand 0.
fn choose(condition: &View, x: Option<&View>, y: Option<&View>, out: &View) {
    let (count, size) = (condition.size(), out.dtype().size());
    let of = |v: Option<&View>| v.map_or(std::ptr::null(), |v| v.ptr().cast_const());
    with_dtype!(condition.dtype(), C => {
        let per = out.size() / count.max(1);
        let condition = Condition { at: condition.as_ptr::<C>().cast_const(), count, per };
        // SAFETY: inference gave all arrays the output's shape and dtype, and the condition an
        // element for each of them or for each row; the output is apart.
        unsafe {
            match size {
                1 => kernels::choose(condition, of(x), of(y), out.ptr()),
                2 => kernels::choose::<C, u16>(condition, of(x).cast(), of(y).cast(), out.ptr().cast()),
                4 => kernels::choose::<C, u32>(condition, of(x).cast(), of(y).cast(), out.ptr().cast()),
                _ => kernels::choose::<C, u64>(condition, of(x).cast(), of(y).cast(), out.ptr().cast()),
            }
        }
    });
}

fn where_() -> Vec<OpDef> {
    let doc = text(
        "The elements of ``x`` where the condition is not 0, else those of ``y``.",
        "The condition has the shape of ``x`` and ``y``, or one axis that chooses among their \
         rows; any dtype. It gets a zero gradient.",
        "nd.where(nd.array([1, 0]), nd.array([1, 2]), nd.array([3, 4]))\n[1. 4.]",
    );
    vec![
        OpDef::plain("where")
            .aliases(&["_sparse_where"])
            .doc(&doc)
            .inputs_are(&[
                ("condition", "What to choose."),
                ("x", "Where it is not 0."),
                ("y", "Where it is 0."),
            ])
            .infer_shape(|_, inputs, outputs| {
                let mut common = outputs[0].clone();
                for (i, name) in [(1, "x"), (2, "y")] {
                    let s = inputs[i].clone();
                    assign_shape(&mut common, name, &s)?;
                }
                inputs[1] = common.clone();
                inputs[2] = common.clone();
                outputs[0] = common.clone();
                let c = &inputs[0];
                if c.is_known() && common.is_known() {
                    let rows =
                        c.ndim() == 1 && common.ndim() > 0 && c.dims()[0] == common.dims()[0];
                    if c != &common && !rows {
                        return Err(Error::argument(
                            "condition",
                            "shape",
                            c,
                            format!("{common} or its first extent"),
                        ));
                    }
                } else if !c.rank_known() {
                    inputs[0] = common;
                }
                Ok(all_known(inputs, outputs))
            })
            .infer_type(|_, inputs, outputs| {
                let Some(dtype) = inputs[1].or(inputs[2]).or(outputs[0]) else { return Ok(false) };
                assign_type(&mut inputs[1], "x", dtype)?;
                assign_type(&mut inputs[2], "y", dtype)?;
                assign_type(&mut outputs[0], "output", dtype)?;
                inputs[0].get_or_insert(dtype);
                Ok(true)
            })
            .gradient(Gradient::declared("_backward_where", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(0)]
            }))
            .kernel(kernel(|call| {
                let [condition, x, y] = [0, 1, 2].map(|i| &call.inputs[i]);
                choose(condition, Some(x), Some(y), &call.outputs[0]);
                Ok(())
            })),
        OpDef::plain("_backward_where").kernel(kernel(|call| {
            let [g, condition] = [0, 1].map(|i| &call.inputs[i]);
            for (k, out) in call.outputs.iter().enumerate() {
                if wanted(call, k) {
                    match k {
                        0 => zero_view(out),
                        1 => choose(condition, Some(g), None, out),
                        _ => choose(condition, None, Some(g), out),
                    }
                }
            }
            Ok(())
        })),
    ]
}

/// The shape that places are counted in. The first extent bounds nothing that is calculated, so it
/// may be unknown (below 1); the others may not.
fn counted_shape(attrs: &Attrs) -> Result<&Tuple> {
    let shape = &attrs.get::<ShapeParam>().shape;
    match shape.iter().skip(1).find(|&&d| d < 1) {
        Some(_) => {
            let expected = "extents of at least 1; only the first may be -1";
            Err(Error::argument("shape", "value", Shape::new(shape), expected))
        }
        None => Ok(shape),
    }
}

const RAVEL_NOTES: &str = "Any dtype, which the output has too. The first extent of shape may be \
                           -1, as nothing depends on it: coordinates and places are not checked \
                           against the shape. Not differentiable.";

/// An operator that converts between coordinates in a shape and places in its flattened array.
fn within_shape(name: &str, what: &str, data: &str, example: &str) -> OpDef {
    OpDef::new::<ShapeParam>(name)
        .aliases(&[&format!("_{name}")])
        .doc(&text(what, RAVEL_NOTES, example))
        .inputs_are(&[("data", data)])
        .infer_type(same_type)
        .gradient(Gradient::Zero)
}

fn ravel() -> OpDef {
    let what = "Places in the flattened array of the coordinates in the columns of the data.";
    let example = "nd.ravel_multi_index(nd.array([[1, 3], [2, 0]]), shape=(4, 5))\n[ 7. 15.]";
    within_shape("ravel_multi_index", what, "Coordinates ``(M, ...)``.", example)
        .infer_shape(|attrs, inputs, outputs| {
            let axes = counted_shape(attrs)?.len();
            // Of one place the coordinates may have one axis: only known ones have.
            if outputs[0].rank_known() && inputs[0].ndim() != 1 {
                let columns = outputs[0].dims().iter().copied();
                let coordinates = std::iter::once(axes as i64).chain(columns).collect();
                assign_shape(&mut inputs[0], "data", &coordinates)?;
            }
            if inputs[0].rank_known() {
                if !matches!(inputs[0].dims().first(), Some(&n) if n == axes as i64 || n < 0) {
                    let expected = format!("{axes} rows, one for each extent of shape");
                    return Err(Error::argument("data", "shape", &inputs[0], expected));
                }
                inputs[0].dims_mut()[0] = axes as i64;
                let rest = inputs[0].dims().iter().skip(1).copied().collect();
                assign_shape(&mut outputs[0], "output", &super::common::at_least_1d(rest))?;
            }
            Ok(all_known(inputs, outputs))
        })
        .kernel(kernel(|call| {
            let (x, out) = (&call.inputs[0], &call.outputs[0]);
            let shape = counted_shape(call.attrs)?;
            let n = out.size();
            for k in 0..n {
                let at = shape.iter().enumerate().fold(0i64, |at, (axis, &d)| {
                    at.saturating_mul(d).saturating_add(index_at(x, axis * n + k))
                });
                // SAFETY: `k` is an element of the output.
                unsafe { write_f64(out.ptr(), out.dtype(), k, at as f64) };
            }
            Ok(())
        }))
}

fn unravel() -> OpDef {
    let what = "Coordinates, as columns, of places in the flattened array.";
    let example = "nd.unravel_index(nd.array([7, 15]), shape=(4, 5))\n[[1. 3.]\n [2. 0.]]";
    within_shape("unravel_index", what, "Places.", example)
        .infer_shape(|attrs, inputs, outputs| {
            let axes = counted_shape(attrs)?.len() as i64;
            if let [_, places @ ..] = outputs[0].dims()
                && (inputs[0].rank_known() || !places.is_empty())
            {
                let places = Shape::new(places);
                assign_shape(&mut inputs[0], "data", &places)?;
            }
            if inputs[0].rank_known() {
                let out = std::iter::once(axes).chain(inputs[0].dims().iter().copied()).collect();
                assign_shape(&mut outputs[0], "output", &out)?;
            }
            Ok(all_known(inputs, outputs))
        })
        .kernel(kernel(|call| {
            let (x, out) = (&call.inputs[0], &call.outputs[0]);
            let shape = counted_shape(call.attrs)?;
            let n = x.size();
            for k in 0..n {
                let mut rest = index_at(x, k);
                for (axis, &d) in shape.iter().enumerate().rev() {
                    let here = if axis == 0 { rest } else { rest % d };
                    // SAFETY: the output has a row for each axis.
                    unsafe { write_f64(out.ptr(), out.dtype(), axis * n + k, here as f64) };
                    rest = if axis == 0 { 0 } else { rest / d };
                }
            }
            Ok(())
        }))
}

pub fn operators() -> Vec<OpDef> {
    let mut all = where_();
    all.extend([ravel(), unravel()]);
    all
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn where_routes_its_gradient() {
        let x = Tensor::noise(&[3, 4], 1);
        let at = |dims: &[i64], v: &[f64]| Tensor::of(dims, v);
        let c = [
            at(&[3], &[1., 0., 2.]),
            at(&[3, 4], &[0., 1., 0., 1., 1., 1., 0., 0., 1., 0., 0., 1.]),
        ];
        for condition in c {
            check_gradient(
                "where",
                &[],
                &[condition, x.clone(), Tensor::noise(&[3, 4], 5)],
                &[1, 2],
                true,
            );
        }
    }

    #[test]
    fn coordinates_and_places() {
        let m = Tensor::of(&[2, 2], &[1., 3., 2., 0.]);
        assert_eq!(values("_ravel_multi_index", &[("shape", "(4, 5)")], &[m]), [7., 15.]);
        let p = Tensor::of(&[2], &[7., 15.]);
        assert_eq!(values("_unravel_index", &[("shape", "(4, 5)")], &[p]), [1., 3., 2., 0.]);
    }
}
