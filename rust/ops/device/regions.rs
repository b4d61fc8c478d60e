//! Maxima of rectangles of images, and losses of sequences of labels.

use super::{FLOATS, KernelsOf, add, same_dtype, wanted};
use crate::args;
use crate::dtype::DType;
use crate::operator::{Argument, Compare, Grid, Kernel, Match};
use crate::ops::nn::ctc_loss::{BlankLabel, CtcLossParam};
use crate::ops::nn::roi_pooling::RoiPoolingParam;
use crate::tensor::View;

/// Images and bins: `Regions` of `regions.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Regions {
    images: i64,
    channels: i64,
    height: i64,
    width: i64,
    rows: i64,
    columns: i64,
}

// SAFETY: six numbers, as in CUDA source.
unsafe impl Argument for Regions {}

impl Regions {
    fn of(p: &RoiPoolingParam, data: &View) -> Self {
        let d = data.dims();
        let [rows, columns] = [p.pooled_size[0], p.pooled_size[1]];
        Regions { images: d[0], channels: d[1], height: d[2], width: d[3], rows, columns }
    }
}

fn maxima() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    let functions = ["region_maxima<$0>"];
    let mut made = Kernel::cuda("regions", &functions, types, |call, launcher| {
        let (p, x) = (call.attrs.get::<RoiPoolingParam>(), &call.inputs[0]);
        let (regions, n) = (call.inputs[1].ptr(), call.outputs[1].size());
        if n == 0 {
            return Ok(());
        }
        let [y, places] = [0, 1].map(|i| call.outputs[i].ptr());
        let (scale, write) = (f64::from(p.spatial_scale), i32::from(wanted(call, 0)));
        let of = Regions::of(p, x);
        let mut args = args![n as i64, of, x.ptr(), regions, y, places, scale, write, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    });
    // The places are written even where they were not requested.
    made.skips_null = false;
    vec![made]
}

fn maxima_back() -> Vec<Kernel> {
    let functions = ["region_maxima_back<$0>"];
    vec![Kernel::cuda("regions", &functions, &[("data", FLOATS)], |call, launcher| {
        if wanted(call, 1) && add(call, 1) == 0 {
            launcher.clear(call.outputs[1].ptr(), call.outputs[1].size_bytes())?;
        }
        if !wanted(call, 0) {
            return Ok(());
        }
        let (p, dx) = (call.attrs.get::<RoiPoolingParam>(), &call.outputs[0]);
        let [g, regions, places] = [0, 1, 2].map(|i| call.inputs[i].ptr());
        let (n, count, scale) = (dx.size(), call.inputs[1].dims()[0], f64::from(p.spatial_scale));
        let of = Regions::of(p, dx);
        let mut args =
            args![n as i64, count, of, g, regions, places, dx.ptr(), scale, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// Dtypes of labels.
const LABELS: &[DType] = &[DType::F32, DType::F64, DType::I32];

fn is(parameter: &str, value: &str) -> Match {
    Match::Attr(parameter.into(), Compare::Eq, value.into())
}

/// Lengths, where there are any, have the labels' dtype.
fn ctc() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS), ("label", LABELS)];
    let mut made = Kernel::cuda("ctc", &["ctc<$0, $1>"], types, |call, launcher| {
        let (p, d) = (call.attrs.get::<CtcLossParam>(), call.inputs[0].dims());
        let width = call.inputs[1].dims()[1];
        let (time, batch, classes, states) = (d[0], d[1], d[2], 2 * width + 1);
        let numbers = time * (states + 1) + 3 * states;
        let room = launcher.memory().take((batch * numbers) as usize * size_of::<f64>())?;
        let given = |is: bool, i: usize| {
            call.inputs.get(i).filter(|_| is).map_or(std::ptr::null_mut(), View::ptr)
        };
        let times = given(p.use_data_lengths, 2);
        let lengths = given(p.use_label_lengths, 2 + usize::from(p.use_data_lengths));
        let [x, labels] = [0, 1].map(|i| call.inputs[i].ptr());
        let [loss, gradient] = [0, 1].map(|i| call.outputs[i].ptr());
        let first = i32::from(p.blank_label == BlankLabel::First);
        let write = i32::from(wanted(call, 0));
        let mut args = args![
            time,
            batch,
            classes,
            width,
            x,
            labels,
            times,
            lengths,
            room,
            loss,
            gradient,
            first,
            write,
            add(call, 0)
        ];
        launcher.launch(0, Grid::blocks(batch as usize), &mut args)
    });
    // The gradient is written even where it was not requested.
    made.skips_null = false;
    for (parameter, name) in
        [("use_data_lengths", "data_lengths"), ("use_label_lengths", "label_lengths")]
    {
        let same = same_dtype(["label", name], LABELS);
        made = made.only(Match::Or(Box::new(is(parameter, "False")), Box::new(same)));
    }
    vec![made]
}

fn ctc_back() -> Vec<Kernel> {
    vec![Kernel::cuda("ctc", &["ctc_back<$0>"], &[("data", FLOATS)], |call, launcher| {
        for i in 1..call.outputs.len() {
            if wanted(call, i) && add(call, i) == 0 {
                launcher.clear(call.outputs[i].ptr(), call.outputs[i].size_bytes())?;
            }
        }
        if !wanted(call, 0) {
            return Ok(());
        }
        let (dx, [g, found]) = (&call.outputs[0], [0, 1].map(|i| call.inputs[i].ptr()));
        let (n, batch, classes) = (dx.size(), dx.dims()[1], dx.dims()[2]);
        let mut args = args![n as i64, batch, classes, g, found, dx.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("ROIPooling", maxima),
    ("_backward_ROIPooling", maxima_back),
    ("CTCLoss", ctc),
    ("_backward_CTCLoss", ctc_back),
];
