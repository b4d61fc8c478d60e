//! `depth_to_space` and `space_to_depth`.

use super::super::moves::Path;
use super::assign_shape;
use super::{data, moving_partly, text};
use crate::error::{Error, Result};
use crate::operator::{Attrs, OpDef};
use crate::params;
use crate::shape::{Dims, Shape};

params! {
    /// Parameters of `depth_to_space` and `space_to_depth`.
    pub struct BlockParam {
        block_size: i32, required, "Extent of the blocks.";
    }
}

fn block_shape(s: &Shape, attrs: &Attrs) -> Result<(i64, i64, i64, i64, i64)> {
    let b = i64::from(attrs.get::<BlockParam>().block_size);
    match s.dims() {
        &[n, c, h, w] if b > 0 => Ok((b, n, c, h, w)),
        _ => Err(Error::argument("data", "shape", s, "4 axes (and a positive block_size)")),
    }
}

fn depth_to_space(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (b, n, c, h, w) = block_shape(&inputs[0], attrs)?;
    if c % (b * b) != 0 {
        return Err(Error::argument(
            "data",
            "shape",
            &inputs[0],
            format!("channels divisible by {}", b * b),
        ));
    }
    let d = c / (b * b);
    // The input as (n, b, b, d, h, w).
    let st = Shape::new(&[n, b, b, d, h, w]).strides();
    let dims = Dims::from_slice(&[n, d, h, b, w, b]);
    let strides = Dims::from_slice(&[st[0], st[3], st[4], st[1], st[5], st[2]]);
    Ok(Path { out: Dims::from_slice(&[n, d, h * b, w * b]), dims, start: 0, strides })
}

fn space_to_depth(attrs: &Attrs, inputs: &[Shape]) -> Result<Path> {
    let (b, n, c, h, w) = block_shape(&inputs[0], attrs)?;
    if h % b != 0 || w % b != 0 {
        return Err(Error::argument(
            "data",
            "shape",
            &inputs[0],
            format!("height and width divisible by {b}"),
        ));
    }
    // The input as (n, c, h / b, b, w / b, b).
    let st = Shape::new(&[n, c, h / b, b, w / b, b]).strides();
    let dims = Dims::from_slice(&[n, b, b, c, h / b, w / b]);
    let strides = Dims::from_slice(&[st[0], st[3], st[5], st[1], st[2], st[4]]);
    Ok(Path { out: Dims::from_slice(&[n, c * b * b, h / b, w / b]), dims, start: 0, strides })
}

/// Extents of the output from those of the input that are known; a rule for each axis.
fn blocks_part(attrs: &Attrs, inputs: &[Shape], outputs: &mut [Shape], deep: bool) -> Result<()> {
    let &[n, c, h, w] = inputs[0].dims() else { return Ok(()) };
    let b = i64::from(attrs.get::<BlockParam>().block_size);
    if b <= 0 {
        return Ok(()); // refused once all extents are known
    }
    let up = |d: i64, by: i64| if d < 0 { -1 } else { d.saturating_mul(by) };
    let down = |d: i64, by: i64| if d < 0 { -1 } else { d / by };
    let out = match deep {
        true => [n, up(c, b * b), down(h, b), down(w, b)],
        false => [n, down(c, b * b), up(h, b), up(w, b)],
    };
    assign_shape(&mut outputs[0], "output", &Shape::new(&out))
}

pub fn operators() -> Vec<OpDef> {
    [
        moving_partly(
            data(OpDef::new::<BlockParam>("depth_to_space")).doc(&text(
                "Moves blocks of channels into space: ``(N, C, H, W)`` becomes ``(N, C / b^2, H b, \
                 W b)``.",
                "Channels that do not divide are an error.",
                "nd.depth_to_space(nd.ones((1, 4, 2, 2)), block_size=2).shape\n(1, 1, 4, 4)",
            )),
            depth_to_space,
            |attrs, inputs, outputs| blocks_part(attrs, inputs, outputs, false),
        ),
        moving_partly(
            data(OpDef::new::<BlockParam>("space_to_depth")).doc(&text(
                "Moves blocks of space into channels: ``(N, C, H, W)`` becomes ``(N, C b^2, H / b, \
                 W / b)``.",
                "Extents that do not divide are an error.",
                "nd.space_to_depth(nd.ones((1, 1, 4, 4)), block_size=2).shape\n(1, 4, 2, 2)",
            )),
            space_to_depth,
            |attrs, inputs, outputs| blocks_part(attrs, inputs, outputs, true),
        ),
    ]
    .concat()
}
