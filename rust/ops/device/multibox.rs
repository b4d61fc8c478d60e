//! The targets of a detector's anchors in training, and the boxes that they detect.

use super::boxes::Decoding;
use super::order::{Ordered, SORTING};
use super::{FLOATS, KernelsOf, add, computed_bytes, kernel, target, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Argument, Call, Grid, Kernel, Launcher};
use crate::ops::vision::multibox::variances;
use crate::ops::vision::multibox_detection::MultiBoxDetectionParam;
use crate::ops::vision::multibox_target::MultiBoxTargetParam;
use crate::shape::Shape;
use crate::tensor::View;

/// The functions that sort keys in the type of calculations, the first of a kernel.
fn sorting_keys() -> [String; 2] {
    SORTING.map(|name| name.replace("$0", "Compute<$0>"))
}

/// Sorts the keys of every image, greatest first.
fn sorted(launcher: &mut dyn Launcher, keys: *mut u8, shape: [i64; 2]) -> Result<Ordered> {
    // SAFETY: memory of the device, of which only the address is used.
    let view = unsafe { View::new(keys, Shape::new(&shape), DType::F32) };
    Ordered::of(launcher, &view, Some(1), false)
}

/// The parameters by which anchors match labels: `Matching` of `multibox.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Matching {
    anchors: i64,
    rows: i64,
    width: i64,
    classes: i64,
    least: i64,
    threshold: f64,
    ratio: f64,
    limit: f64,
}

// SAFETY: numbers, as in CUDA source.
unsafe impl Argument for Matching {}

/// `Variances` of `multibox.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Variances([f64; 4]);

// SAFETY: numbers, as in CUDA source.
unsafe impl Argument for Variances {}

fn targets() -> Vec<Kernel> {
    let [spans, steps] = sorting_keys();
    let functions =
        [&*spans, &steps, "match_boxes<$0>", "choose_negatives<$0>", "write_targets<$0>"];
    let made = Kernel::cuda("multibox", &functions, &[("anchor", FLOATS)], issue_targets);
    vec![made.only_writes()]
}

fn issue_targets(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let p: &MultiBoxTargetParam = call.attrs.get();
    let [anchor, label, scores] = [0, 1, 2].map(|i| &call.inputs[i]);
    let (images, anchors) = (scores.dims()[0], anchor.dims()[1]);
    let n = (images * anchors) as usize;
    if n == 0 || !(0..3).any(|i| wanted(call, i)) {
        return Ok(());
    }
    let m = Matching {
        anchors,
        rows: label.dims()[1],
        width: label.dims()[2],
        classes: scores.dims()[1],
        least: p.minimum_negative_samples.into(),
        threshold: p.overlap_threshold.into(),
        ratio: p.negative_mining_ratio.into(),
        limit: p.negative_mining_thresh.into(),
    };
    let (memory, dtype) = (launcher.memory(), anchor.dtype());
    let overlaps = memory.take(computed_bytes(dtype, n * m.rows as usize))?;
    let taken = memory.take((images * m.rows) as usize * size_of::<i32>())?;
    let [roles, keys] =
        [memory.take(n * size_of::<i32>())?, memory.take(computed_bytes(dtype, n))?];
    let many = memory.take(images as usize * size_of::<i64>())?;
    let [anchor, label, scores] = [anchor, label, scores].map(View::ptr);
    let mut args = args![images, m, anchor, label, scores, overlaps, taken, roles, keys, many];
    launcher.launch(2, Grid::blocks(images as usize), &mut args)?;
    if p.negative_mining_ratio > 0.0 {
        let ordered = sorted(launcher, keys, [images, anchors])?;
        let (padded, order) = (ordered.padded(), ordered.order);
        let mut args = args![n as i64, anchors, padded, keys, order, many, roles];
        launcher.launch(3, Grid::over(n), &mut args)?;
    }
    let variances = Variances(variances::<f64>(&p.variances)?);
    let [location, mask, class] = [0, 1, 2].map(|i| target(call, i));
    let ignored = f64::from(p.ignore_label);
    let mut args =
        args![n as i64, m, anchor, label, roles, variances, ignored, location, mask, class];
    launcher.launch(4, Grid::over(n), &mut args)
}

fn detection() -> Vec<Kernel> {
    let [spans, steps] = sorting_keys();
    let functions = [&*spans, &steps, "find_boxes<$0>", "keep_found<$0>"];
    vec![kernel("multibox", &functions, &[("cls_prob", FLOATS)], issue_detection)]
}

fn issue_detection(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let p: &MultiBoxDetectionParam = call.attrs.get();
    let [scores, location, anchor] = [0, 1, 2].map(|i| &call.inputs[i]);
    let [images, classes, anchors] = [0, 1, 2].map(|i| scores.dims()[i]);
    let n = (images * anchors) as usize;
    let decoding = Decoding {
        scale: variances::<f64>(&p.variances)?,
        most: f64::INFINITY,
        center: 0,
        clip: p.clip.into(),
    };
    let (memory, dtype) = (launcher.memory(), scores.dtype());
    let [rows, keys] =
        [memory.take(computed_bytes(dtype, 6 * n))?, memory.take(computed_bytes(dtype, n))?];
    let [list, alive] = [memory.take(n * size_of::<i64>())?, memory.take(n * size_of::<i32>())?];
    let [scores, location, anchor] = [scores, location, anchor].map(View::ptr);
    let threshold = f64::from(p.threshold);
    let mut args = args![
        n as i64, anchors, classes, scores, location, anchor, decoding, threshold, rows, keys
    ];
    launcher.launch(2, Grid::over(n), &mut args)?;
    let limit = f64::from(p.nms_threshold);
    let (padded, order) = match limit > 0.0 && limit <= 1.0 {
        true => {
            let ordered = sorted(launcher, keys, [images, anchors])?;
            (ordered.padded(), ordered.order)
        }
        false => (0, std::ptr::null_mut()),
    };
    let (topk, force) = (i64::from(p.nms_topk), i32::from(p.force_suppress));
    let y = call.outputs[0].ptr();
    let mut args = args![
        images,
        anchors,
        padded,
        rows,
        keys,
        order,
        list,
        alive,
        topk,
        limit,
        force,
        y,
        add(call, 0)
    ];
    launcher.launch(3, Grid::blocks(images as usize), &mut args)
}

pub const TABLE: &[KernelsOf] =
    &[("_contrib_MultiBoxTarget", targets), ("_contrib_MultiBoxDetection", detection)];
