//! `broadcast_to`, `broadcast_axis` and `broadcast_like`.

use super::super::common::axis_flags;
use super::super::moves::Path;
use super::{assign_shape, data, like, moving, moving_partly, text};
use crate::error::{Error, Result, shown};
use crate::operator::{Attrs, OpDef, Tuple};
use crate::params;
use crate::shape::{Dims, Numbers, Shape};

params! {
    /// Parameters of `broadcast_to`.
    pub struct BroadcastToParam {
        shape: Tuple, default(Tuple::new()), "The target shape; 0 keeps the input's extent.";
    }
}

params! {
    /// Parameters of `broadcast_axis`.
    pub struct BroadcastAxisParam {
        axis: Tuple, default(Tuple::new()), "Axes of extent 1 to repeat.";
        size: Tuple, default(Tuple::new()), "Their new extents.";
    }
}

params! {
    /// Parameters of `broadcast_like`.
    pub struct BroadcastLikeParam {
        lhs_axes: Option<Tuple>, default(None), "Axes of lhs that repeat; all if None.";
        rhs_axes: Option<Tuple>, default(None), "The axes of rhs that give their extents.";
    }
}

pub(in crate::ops) fn repeat_to(s: &Shape, out: Dims) -> Result<Path> {
    let mut strides = s.strides();
    for (axis, stride) in strides.iter_mut().enumerate() {
        if s.dims()[axis] != out[axis] {
            if s.dims()[axis] != 1 {
                let out = Shape::from(&out[..]);
                return Err(Error::value(format!(
                    "cannot broadcast shape {s} to {out}: expected extent 1 of axis {axis}"
                )));
            }
            *stride = 0;
        }
    }
    // Repeated axes of the gradient are those of stride 0 whose extent is not 1.
    Ok(Path::plain(out, 0, strides))
}

fn broadcast_to(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (s, shape) = (&inputs[0], &attrs.get::<BroadcastToParam>().shape);
    if shape.len() != s.ndim() {
        let shape = shown(Numbers(shape));
        return Err(Error::value(format!(
            "cannot broadcast shape {s} to {shape}: expected as many axes"
        )));
    }
    repeat_to(s, shape.iter().zip(s.dims()).map(|(&t, &d)| if t == 0 { d } else { t }).collect())
}

/// The extents that are known of the output of `broadcast_to`.
fn broadcast_to_part(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<()> {
    let (s, shape) = (&inputs[0], &attrs.get::<BroadcastToParam>().shape);
    if !s.rank_known() || s.ndim() != shape.len() {
        return Ok(());
    }
    let of = |(&t, &d): (&i64, &i64)| if t == 0 { d } else { t };
    let out: Shape = shape.iter().zip(s.dims()).map(of).collect();
    assign_shape(&mut outputs[0], "output", &out)
}

fn broadcast_axis(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (s, p) = (&inputs[0], attrs.get::<BroadcastAxisParam>());
    if p.axis.len() != p.size.len() {
        return Err(Error::invalid(
            "number of sizes",
            p.size.len(),
            format!("{}, one per axis", p.axis.len()),
        ));
    }
    let mut out = Dims::from_slice(s.dims());
    axis_flags(&p.axis, s)?;
    for (&a, &n) in p.axis.iter().zip(&p.size) {
        out[s.axis(a)?] = n;
    }
    repeat_to(s, out)
}

fn broadcast_like(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (s, like, p) = (&inputs[0], &inputs[1], attrs.get::<BroadcastLikeParam>());
    let mut out = Dims::from_slice(s.dims());
    match (&p.lhs_axes, &p.rhs_axes) {
        (Some(l), Some(r)) if l.len() == r.len() => {
            for (&a, &b) in l.iter().zip(r) {
                out[s.axis(a)?] = like.dims()[like.axis(b)?];
            }
        }
        (None, None) if s.ndim() == like.ndim() => out = Dims::from_slice(like.dims()),
        _ => {
            return Err(Error::value(format!(
                "cannot broadcast shape {s} like shape {like}: expected as many axes, or both \
                 lhs_axes and rhs_axes"
            )));
        }
    }
    repeat_to(s, out)
}

/// The extents that are known of the shape to which `broadcast_like` repeats.
fn broadcast_like_part(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<()> {
    let (s, like, p) = (&inputs[0], &inputs[1], attrs.get::<BroadcastLikeParam>());
    if !like.rank_known() {
        return Ok(());
    }
    let out = match (&p.lhs_axes, &p.rhs_axes) {
        (Some(l), Some(r)) if l.len() == r.len() && s.rank_known() => {
            let mut out = s.clone();
            for (&a, &b) in l.iter().zip(r) {
                let axis = s.axis(a)?;
                out.dims_mut()[axis] = like.dims()[like.axis(b)?];
            }
            out
        }
        (None, None) => like.clone(),
        _ => return Ok(()),
    };
    assign_shape(&mut outputs[0], "output", &out)
}

pub fn operators() -> Vec<OpDef> {
    [
        moving_partly(
            data(OpDef::new::<BroadcastToParam>("broadcast_to")).doc(&text(
                "Repeats axes of extent 1 to a shape.",
                "The gradient sums over the repetitions. Extents that fit neither way are an \
                 error.",
                "nd.broadcast_to(nd.ones((1, 3)), shape=(4, 0)).shape\n(4, 3)",
            )),
            broadcast_to,
            broadcast_to_part,
        ),
        moving(
            data(OpDef::new::<BroadcastAxisParam>("broadcast_axis"))
                .aliases(&["broadcast_axes"])
                .doc(&text(
                    "Repeats some axes of extent 1.",
                    "The gradient sums over the repetitions. An axis of another extent is an \
                     error.",
                    "nd.broadcast_axis(nd.ones((1, 3)), axis=0, size=4).shape\n(4, 3)",
                )),
            broadcast_axis,
        ),
        moving_partly(
            like(OpDef::new::<BroadcastLikeParam>("broadcast_like"), "lhs", "rhs").doc(&text(
                "Repeats axes of extent 1 of ``lhs`` to the extents of ``rhs``.",
                "The gradient sums over the repetitions.",
                "nd.broadcast_like(nd.ones((1, 3)), nd.ones((4, 3))).shape\n(4, 3)",
            )),
            broadcast_like,
            broadcast_like_part,
        ),
    ]
    .concat()
}
