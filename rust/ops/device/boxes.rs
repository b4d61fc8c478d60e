//! Boxes of detection: overlaps, coding relative to anchors, anchors, and non-maximum suppression.

use super::order::{Ordered, SORTING};
use super::{FLOATS, KernelsOf, add, begin, kernel, target, wanted};
use crate::args;
use crate::dtype::DType;
use crate::operator::{Argument, Grid, Kernel};
use crate::ops::vision::box_coding::{BoxDecodeParam, BoxIouParam};
use crate::ops::vision::box_nms::BoxNmsParam;
use crate::ops::vision::geometry::BoxFormat;
use crate::ops::vision::multibox::MultiBoxPriorParam;
use crate::shape::Shape;
use crate::tensor::View;

fn is_center(format: BoxFormat) -> i32 {
    i32::from(format == BoxFormat::Center)
}

fn overlaps() -> Vec<Kernel> {
    vec![kernel("boxes", &["box_overlaps<$0>"], &[("lhs", FLOATS)], |call, launcher| {
        let center = is_center(call.attrs.get::<BoxIouParam>().format);
        let ([a, b], y) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
        let (n, count) = (y.size(), b.size() as i64 / 4);
        let mut args = args![n as i64, count, a.ptr(), b.ptr(), y.ptr(), center, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// The parameters by which offsets become boxes: `Decoding` of `boxes.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Decoding {
    pub scale: [f64; 4],
    pub most: f64,
    pub center: i32,
    pub clip: i32,
}

// SAFETY: numbers, as in CUDA source.
unsafe impl Argument for Decoding {}

fn decode() -> Vec<Kernel> {
    vec![kernel("boxes", &["box_decode<$0>"], &[("data", FLOATS)], |call, launcher| {
        let p = call.attrs.get::<BoxDecodeParam>();
        let decoding = Decoding {
            scale: [p.std0, p.std1, p.std2, p.std3].map(f64::from),
            most: if p.clip > 0.0 { p.clip.into() } else { f64::INFINITY },
            center: is_center(p.format),
            clip: 0,
        };
        let ([x, anchors], y) = ([0, 1].map(|i| &call.inputs[i]), call.outputs[0].ptr());
        let (n, count) = (x.size() / 4, (anchors.size() as i64 / 4).max(1));
        let mut args = args![n as i64, count, x.ptr(), anchors.ptr(), y, decoding, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn encode() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("samples", FLOATS)];
    vec![Kernel::cuda("boxes", &["box_encode<$0>"], types, |call, launcher| {
        let n = call.inputs[0].size();
        if n == 0 || !(wanted(call, 0) || wanted(call, 1)) {
            return Ok(());
        }
        let [anchors, boxes] = [2, 3].map(|i| call.inputs[i].dims()[1]);
        let mut args = args![n as i64, anchors, boxes];
        call.inputs.iter().for_each(|view| args.push(view.ptr()));
        args.push(target(call, 0));
        args.push(target(call, 1));
        args.push(add(call, 0));
        args.push(add(call, 1));
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// Anchors of some shapes: `Anchors` of `boxes.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Anchors {
    rows: i64,
    columns: i64,
    count: i64,
    from: i64,
    own: i64,
    offset: [f64; 2],
    distance: [f64; 2],
    extents: [[f64; 2]; Anchors::MOST],
}

// SAFETY: numbers, as in CUDA source.
unsafe impl Argument for Anchors {}

impl Anchors {
    /// Shapes of one launch, at most.
    const MOST: usize = 16;
}

/// The extents of anchors in x and in y, over a map of `h` rows and `w` columns.
fn shapes(p: &MultiBoxPriorParam, [h, w]: [i64; 2]) -> Vec<[f64; 2]> {
    let sizes = p.sizes.iter().map(|&size| (size, p.ratios[0]));
    let all = sizes.chain(p.ratios[1..].iter().map(|&ratio| (p.sizes[0], ratio)));
    let extents = |(size, ratio): (f32, f32)| {
        let (size, root) = (f64::from(size), f64::from(ratio).sqrt());
        [size * h as f64 / w as f64 * root, size / root]
    };
    all.map(extents).collect()
}

fn prior() -> Vec<Kernel> {
    vec![kernel("boxes", &["anchors<$0>"], &[("output", FLOATS)], |call, launcher| {
        let p = call.attrs.get::<MultiBoxPriorParam>();
        let [rows, columns] = [2, 3].map(|i| call.inputs[0].dims()[i]);
        let shapes = shapes(p, [rows, columns]);
        let step = |i: usize, n: i64| match p.steps[i] {
            step if step > 0.0 => f64::from(step),
            _ => 1.0 / n as f64,
        };
        let mut anchors = Anchors {
            rows,
            columns,
            count: shapes.len() as i64,
            from: 0,
            own: 0,
            offset: [0, 1].map(|i| f64::from(p.offsets[i])),
            distance: [step(0, rows), step(1, columns)],
            extents: [[0.0; 2]; Anchors::MOST],
        };
        for some in shapes.chunks(Anchors::MOST) {
            anchors.own = some.len() as i64;
            anchors.extents[..some.len()].copy_from_slice(some);
            let n = rows * columns * anchors.own;
            let (y, clip) = (call.outputs[0].ptr(), i32::from(p.clip));
            let mut args = args![n, anchors, y, clip, add(call, 0)];
            launcher.launch(0, Grid::over(n as usize), &mut args)?;
            anchors.from += anchors.own;
        }
        Ok(())
    })]
}

/// The parameters of non-maximum suppression: `Suppression` of `boxes.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Suppression {
    boxes: i64,
    width: i64,
    classes: i64,
    score: i64,
    coordinates: i64,
    background: i64,
    topk: i64,
    valid: f64,
    limit: f64,
    force: i32,
    from_center: i32,
    to_center: i32,
    unused: i32,
}

// SAFETY: numbers, as in CUDA source, without padding.
unsafe impl Argument for Suppression {}

impl Suppression {
    fn of(p: &BoxNmsParam, [boxes, width]: [i64; 2]) -> Self {
        Suppression {
            boxes,
            width,
            classes: p.id_index.into(),
            score: p.score_index.into(),
            coordinates: p.coord_start.into(),
            background: p.background_id.into(),
            topk: p.topk.into(),
            valid: p.valid_thresh.into(),
            limit: p.overlap_thresh.into(),
            force: p.force_suppress.into(),
            from_center: is_center(p.in_format),
            to_center: is_center(p.out_format),
            unused: 0,
        }
    }
}

/// Sets of boxes, boxes of a set, and numbers of a box.
fn sets(view: &View) -> [i64; 3] {
    let rank = view.ndim();
    let [n, width] = [rank - 2, rank - 1].map(|i| view.dims()[i]);
    [view.shape().product(0..rank - 2) as i64, n, width]
}

fn suppress() -> Vec<Kernel> {
    let functions = [SORTING[0], SORTING[1], "valid_scores<$0>", "suppress_boxes<$0>"];
    let mut made = Kernel::cuda("boxes", &functions, &[("data", FLOATS)], |call, launcher| {
        let (x, [blocks, n, width]) = (&call.inputs[0], sets(&call.inputs[0]));
        let rows = (blocks * n) as usize;
        if rows == 0 {
            return Ok(());
        }
        let s = Suppression::of(call.attrs.get(), [n, width]);
        let scores = launcher.memory().take(rows * x.dtype().size())?;
        let alive = launcher.memory().take(rows * size_of::<i32>())?;
        launcher.launch(2, Grid::over(rows), &mut args![rows as i64, s, x.ptr(), scores])?;
        // SAFETY: memory of the device, of which only the address is used.
        let view = unsafe { View::new(scores, Shape::new(&[blocks, n]), x.dtype()) };
        let ordered = Ordered::of(launcher, &view, Some(1), false)?;
        let (y, from) = (target(call, 0), call.outputs[1].ptr());
        let padded = ordered.padded();
        let mut args = args![blocks, padded, s, x.ptr(), scores, ordered.order, alive, y, from];
        launcher.launch(3, Grid::blocks(blocks as usize), &mut args)
    });
    // The places are written even where they were not requested.
    made.skips_null = false;
    vec![made.only_writes()]
}

fn suppress_back() -> Vec<Kernel> {
    vec![Kernel::cuda("boxes", &["suppress_back<$0>"], &[("data", FLOATS)], |call, launcher| {
        begin(call, launcher, 0)?;
        if !wanted(call, 0) {
            return Ok(());
        }
        let ([g, from], dx) = ([0, 1].map(|i| call.inputs[i].ptr()), &call.outputs[0]);
        let ([_, boxes, width], n) = (sets(dx), dx.size());
        launcher.launch(0, Grid::over(n), &mut args![n as i64, boxes, width, g, from, dx.ptr()])
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("_contrib_box_iou", overlaps),
    ("_contrib_box_decode", decode),
    ("_contrib_box_encode", encode),
    ("_contrib_MultiBoxPrior", prior),
    ("_contrib_box_nms", suppress),
    ("_backward_contrib_box_nms", suppress_back),
];
