//! `box_nms`: non-maximum suppression.

use super::geometry::{BoxFormat, Rect, descending};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq};
use crate::ops::nn::infer::{complete, expect_rank, with_statistics};
use crate::ops::nn::widening;
use crate::ops::nn::widening::always;
use crate::shape::Shape;
use crate::{params, with_real};

params! {
    /// Parameters of `_contrib_box_nms`.
    pub struct BoxNmsParam {
        overlap_thresh: f32, default(0.5), "Boxes that overlap a better one by more than this are \
                                            dropped.";
        valid_thresh: f32, default(0.0), "Boxes whose score is not above this are dropped.";
        topk: i32, default(-1), "How many of the best boxes are considered; all if it is not \
                                 positive.";
        coord_start: i32, default(2), "Place of the first of four coordinates in a row.";
        score_index: i32, default(1), "Place of the score.";
        id_index: i32, default(-1), "Place of the class; none if it is negative.";
        background_id: i32, default(-1), "Boxes of this class are dropped, if there are \
                                         classes; -1 is that of suppressed ones.";
        force_suppress: bool, default(false), "Do boxes of different classes suppress each other?";
        in_format: BoxFormat, default(BoxFormat::Corner), "What the coordinates are: corners, or \
                                                           center and extents.";
        out_format: BoxFormat, default(BoxFormat::Corner), "What they become.";
    }
}

const DOC: &str = r#"
Non-maximum suppression: of boxes that overlap, only the one with the best score stays.

Boxes are taken from the best score down; each removes those after it, of the same class or with
``force_suppress`` of any, whose intersection over union with it is above ``overlap_thresh``. The
boxes that stay come first, best score first (equal scores in their order); all other rows are -1.

Notes
-----
Data ``(..., N, width)``, a row for each box with score, four coordinates and, with ``id_index``,
its class. Every ``(N, width)`` is handled for itself. The output has data's shape and dtype:
float16 (calculated in float32), float32 or float64. A hidden output ``output1`` ``(..., N)`` holds
the row of data of each row, -1 for none; the gradient of a row goes there. Places outside of a row
are an error.

Examples
--------
>>> x = nd.array([[0.5, 0, 0, 2, 2], [0.9, 0, 0, 2, 2.2], [0.6, 4, 4, 5, 5]])
>>> nd.contrib.box_nms(x, coord_start=1, score_index=0)
[[ 0.9  0.   0.   2.   2.2]
 [ 0.6  4.   4.   5.   5. ]
 [-1.  -1.  -1.  -1.  -1. ]]
"#;

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<BoxNmsParam>("_contrib_box_nms")
            .aliases(&["_contrib_box_non_maximum_suppression"])
            .doc(DOC)
            .inputs_are(&[("data", "The boxes (..., N, width).")])
            .outputs_are(&["output0", "output1"])
            .visible(|_| 1)
            .infer_shape(infer_shape)
            .infer_type(with_statistics("output1"))
            .gradient(Gradient::declared("_backward_contrib_box_nms", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Output(1)]
            }))
            .kernel(always(|c| with_real!(c.inputs[0].dtype(), T => forward::<T>(c)))),
        OpDef::new::<BoxNmsParam>("_backward_contrib_box_nms")
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => backward::<T>(c)))),
    ]
}

/// Checks that every place is inside a row of `width` numbers.
fn check_places(p: &BoxNmsParam, width: i64) -> Result<()> {
    let places = [
        ("coord_start", p.coord_start, width - 4),
        ("score_index", p.score_index, width - 1),
        ("id_index", p.id_index.max(0), width - 1),
    ];
    match places.into_iter().find(|&(_, at, last)| at < 0 || i64::from(at) > last) {
        Some((name, at, last)) => Err(Error::argument(
            name,
            "value",
            at,
            format!("0 to {last}, as a row of data has {width} numbers"),
        )),
        None => Ok(()),
    }
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let known = outputs[0].clone();
    assign_shape(&mut inputs[0], "data", &known)?;
    expect_rank(&inputs[0], "data", 2..=usize::MAX)?;
    assign_shape(&mut outputs[0], "output0", &inputs[0])?;
    if let Some((&width, rows)) = inputs[0].dims().split_last() {
        if width >= 0 {
            check_places(attrs.get(), width)?;
        }
        assign_shape(&mut outputs[1], "output1", &Shape::new(rows))?;
    }
    complete(inputs, outputs)
}

/// A box that is still in the race.
struct Candidate<T> {
    row: usize,
    class: Option<i64>,
    rect: Rect<T>,
}

/// The candidates of one block of rows, best first.
fn candidates<T: Real>(p: &BoxNmsParam, rows: &[T], width: usize) -> Vec<Candidate<T>> {
    let at = |row: usize| &rows[row * width..(row + 1) * width];
    let class = |row: usize| {
        // Numbers of classes are whole.
        (p.id_index >= 0).then(|| Element::to_f64(at(row)[p.id_index as usize]) as i64)
    };
    let least = T::of(p.valid_thresh.into());
    let background = i64::from(p.background_id);
    let valid: Vec<usize> = (0..rows.len() / width)
        .filter(|&row| at(row)[p.score_index as usize] > least)
        .filter(|&row| class(row) != Some(background))
        .collect();
    let scores: Vec<T> = valid.iter().map(|&row| at(row)[p.score_index as usize]).collect();
    let most = if p.topk > 0 { p.topk as usize } else { usize::MAX };
    let best = descending(&scores).into_iter().take(most).map(|i| valid[i]);
    best.map(|row| Candidate {
        row,
        class: class(row),
        rect: Rect::read(&at(row)[p.coord_start as usize..], p.in_format),
    })
    .collect()
}

/// The rows that stay, best first.
fn survivors<T: Real>(p: &BoxNmsParam, rows: &[T], width: usize) -> Vec<usize> {
    let limit = T::of(p.overlap_thresh.into());
    let mut kept: Vec<Candidate<T>> = Vec::new();
    for next in candidates(p, rows, width) {
        let rivals = |k: &&Candidate<T>| p.force_suppress || k.class == next.class;
        if !kept.iter().filter(rivals).any(|k| k.rect.iou(next.rect) > limit) {
            kept.push(next);
        }
    }
    kept.into_iter().map(|k| k.row).collect()
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    let p: &BoxNmsParam = call.attrs.get();
    let data = &call.inputs[0];
    let rank = data.dims().len();
    let (n, width) = (data.dims()[rank - 2] as usize, data.dims()[rank - 1] as usize);
    // SAFETY: inputs are not written meanwhile.
    let x = unsafe { data.slice::<T>() };
    let (y, from) = (Shared(call.outputs[0].as_ptr::<T>()), Shared(call.outputs[1].as_ptr::<T>()));
    let write = call.req[0] != OpReq::Null;
    parallel_for(data.shape().product(0..rank - 2), 1, |range| {
        for block in range {
            let rows = &x[block * n * width..(block + 1) * n * width];
            let kept = survivors(p, rows, width);
            // SAFETY: a block of both outputs belongs to one task.
            let (places, out) = unsafe {
                let rows = if write { n * width } else { 0 };
                (
                    std::slice::from_raw_parts_mut(from.at(block * n), n),
                    std::slice::from_raw_parts_mut(y.at(block * n * width), rows),
                )
            };
            places.fill(-T::one());
            out.fill(-T::one());
            for (i, row) in kept.into_iter().enumerate() {
                places[i] = T::of(row as f64);
                if write {
                    let to = &mut out[i * width..(i + 1) * width];
                    to.copy_from_slice(&rows[row * width..(row + 1) * width]);
                    let coords = &mut to[p.coord_start as usize..][..4];
                    if p.in_format != p.out_format {
                        coords
                            .copy_from_slice(&Rect::read(coords, p.in_format).write(p.out_format));
                    }
                }
            }
        }
    });
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let out = &call.outputs[0];
    let rank = out.dims().len();
    let (n, width) = (out.dims()[rank - 2] as usize, out.dims()[rank - 1] as usize);
    // SAFETY: inputs are not written meanwhile; the output is ours and overlaps none of them.
    let (dy, from, dx) =
        unsafe { (call.inputs[0].slice::<T>(), call.inputs[1].slice::<T>(), out.slice_mut::<T>()) };
    dx.fill(T::zero());
    for (i, place) in from.iter().enumerate() {
        if *place >= T::zero() {
            let row = i / n * n + place.to_usize().unwrap_or(0);
            dx[row * width..(row + 1) * width].copy_from_slice(&dy[i * width..(i + 1) * width]);
        }
    }
    Ok(())
}
