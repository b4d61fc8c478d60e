//! `diag`.

use super::super::common::{from_first, wanted};
use super::super::moves::Path;
use super::{text, walk_backward, walk_forward};
use crate::error::{Error, Result};
use crate::operator::infer::same_type;
use crate::operator::{Attrs, Call, Gradient, Kernel, OpDef};
use crate::params;
use crate::shape::{Dims, Shape};

params! {
    /// Parameters of `diag`.
    pub struct DiagParam {
        k: i32, default(0), "Which diagonal: positive above the main one, negative below.";
        axis1: i32, default(0), "First axis of the matrices.";
        axis2: i32, default(1), "Second axis of the matrices.";
    }
}

/// The diagonal of the matrices in two axes (the last axis of the output); vectors become matrices
/// elsewhere.
pub(in crate::ops) fn diagonal(s: &Shape, k: i64, axis1: i64, axis2: i64) -> Result<Path> {
    let (a, b) = (s.axis(axis1)?, s.axis(axis2)?);
    if a == b {
        return Err(Error::invalid("axis2", axis2, format!("another axis than axis1, {axis1}")));
    }
    let st = s.strides();
    let (rows, columns) = (s.dims()[a], s.dims()[b]);
    let length = if k >= 0 { rows.min(columns - k) } else { columns.min(rows + k) }.max(0);
    let start = if k >= 0 { k * st[b] } else { -k * st[a] };
    let others = || (0..s.ndim()).filter(|&i| i != a && i != b);
    let mut out: Dims = others().map(|i| s.dims()[i]).collect();
    let mut strides: Dims = others().map(|i| st[i]).collect();
    out.push(length);
    strides.push(st[a] + st[b]);
    Ok(Path::plain(out, if length == 0 { 0 } else { start }, strides))
}

/// `diag` of a vector makes a matrix; of anything else takes diagonals.
pub fn operators() -> Vec<OpDef> {
    fn vector_path(attrs: &Attrs, n: i64) -> (i64, Path) {
        let k = i64::from(attrs.get::<DiagParam>().k);
        let side = n + k.abs();
        let start = if k >= 0 { k } else { -k * side };
        (side, Path::plain(Dims::from_slice(&[n]), start, Dims::from_slice(&[side + 1])))
    }
    fn path(attrs: &Attrs, s: &Shape) -> Result<Path> {
        let p: &DiagParam = attrs.get();
        diagonal(s, p.k.into(), p.axis1.into(), p.axis2.into())
    }
    let doc = text(
        "The diagonals of matrices, or a matrix with the input on its diagonal if that has one \
         axis.",
        "The diagonal becomes the last axis.",
        "nd.diag(nd.array([[1, 2], [3, 4]]))\n[1. 4.]",
    );
    let forward = |call: &Call<'_>| -> Result<()> {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        if wanted(call, 0) {
            match x.ndim() {
                1 => walk_backward(&vector_path(call.attrs, x.dims()[0]).1, x, y),
                _ => walk_forward(&path(call.attrs, x.shape())?, x, y),
            }
        }
        Ok(())
    };
    let backward = |call: &Call<'_>| -> Result<()> {
        let (g, dx) = (&call.inputs[0], &call.outputs[0]);
        if wanted(call, 0) {
            match dx.ndim() {
                1 => walk_forward(&vector_path(call.attrs, dx.dims()[0]).1, g, dx),
                _ => walk_backward(&path(call.attrs, dx.shape())?, g, dx),
            }
        }
        Ok(())
    };
    vec![
        OpDef::new::<DiagParam>("diag")
            .doc(&doc)
            .inputs_are(&[("data", "The input array.")])
            .infer_shape(|attrs, inputs, outputs| {
                from_first(inputs, outputs, |s| match s.dims() {
                    &[n] => {
                        let side = vector_path(attrs, n).0;
                        Ok(Shape::from([side, side]))
                    }
                    _ => Ok(Shape::from(&path(attrs, s)?.out[..])),
                })
            })
            .infer_type(same_type)
            .gradient(Gradient::use_none("_backward_diag"))
            .kernel(Kernel::cpu(forward).skips_null()),
        OpDef::new::<DiagParam>("_backward_diag").kernel(Kernel::cpu(backward).skips_null()),
    ]
}
