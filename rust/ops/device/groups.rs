//! Normalisation of images by groups of channels, by Euclidean norms, and by neighbouring channels.

use super::{FLOATS, KernelsOf, add, kernel, wanted};
use crate::args;
use crate::dtype::DType;
use crate::operator::{Call, Grid, Kernel};
use crate::ops::nn::group_norm::settings;
use crate::ops::nn::lrn::{L2NormalizationParam, LrnParam, l2_extents};
use crate::tensor::View;

/// The statistics are written even where they were not requested.
fn always(mut kernel: Kernel) -> Vec<Kernel> {
    kernel.skips_null = false;
    vec![kernel]
}

/// Groups of channels of images: their number, their length, how many an image has; what is added
/// to variances, and whether deviations are kept.
struct Groups {
    rows: usize,
    length: i64,
    each: i64,
    eps: f64,
    deviation: i32,
}

impl Groups {
    fn of(call: &Call<'_>, data: &View) -> Self {
        let (groups, eps) = settings(call.attrs);
        let each = groups.map_or(data.shape().product(1..2), |g| g as usize);
        let rows = data.shape().product(0..1) * each;
        let [length, each] = [data.size() / rows.max(1), each].map(|n| n as i64);
        Groups { rows, length, each, eps, deviation: i32::from(groups.is_some()) }
    }
}

fn group_norm() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    always(Kernel::cuda("norm", &["group_normalise<$0>"], types, |call, launcher| {
        let [x, gamma, beta] = [0, 1, 2].map(|i| call.inputs[i].ptr());
        let [y, mean, spread] = [0, 1, 2].map(|i| call.outputs[i].ptr());
        let Groups { rows, length, each, eps, deviation } = Groups::of(call, &call.inputs[0]);
        let write = i32::from(wanted(call, 0));
        let mut args = args![
            rows as i64,
            length,
            each,
            x,
            gamma,
            beta,
            y,
            mean,
            spread,
            eps,
            deviation,
            write,
            add(call, 0)
        ];
        launcher.launch(0, Grid::blocks(rows), &mut args)
    }))
}

fn group_norm_back() -> Vec<Kernel> {
    let functions = ["group_back<$0>", "group_parameters<$0>"];
    vec![Kernel::cuda("norm", &functions, &[("data", FLOATS)], |call, launcher| {
        let [g, x, gamma, mean, spread] = [0, 1, 2, 3, 4].map(|i| call.inputs[i].ptr());
        let Groups { rows, length, each, eps, deviation } = Groups::of(call, &call.inputs[1]);
        let half = rows * call.inputs[0].dtype().size().max(size_of::<f32>());
        let sums = launcher.memory().take(2 * half)?;
        let write = i32::from(wanted(call, 0));
        let mut args = args![
            rows as i64,
            length,
            each,
            g,
            x,
            gamma,
            mean,
            spread,
            sums,
            call.outputs[0].ptr(),
            eps,
            deviation,
            write,
            add(call, 0)
        ];
        launcher.launch(0, Grid::blocks(rows), &mut args)?;
        for (i, from) in [(1, sums), (2, sums.wrapping_add(half))] {
            if wanted(call, i) {
                let to = call.outputs[i].ptr();
                let mut args = args![rows as i64, each, from, to, add(call, i)];
                launcher.launch(1, Grid::over(each as usize), &mut args)?;
            }
        }
        Ok(())
    })]
}

/// Rows that have a norm: their number, their length, the distance of their elements.
fn l2_rows(call: &Call<'_>) -> [i64; 3] {
    let mode = call.attrs.get::<L2NormalizationParam>().mode;
    let (outer, length, inner) = l2_extents(mode, call.inputs[0].shape());
    [outer * inner, length, inner].map(|n| n as i64)
}

fn l2() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    always(Kernel::cuda("norm", &["l2_normalise<$0>"], types, |call, launcher| {
        let [rows, length, inner] = l2_rows(call);
        let (x, [y, norm]) = (call.inputs[0].ptr(), [0, 1].map(|i| call.outputs[i].ptr()));
        let eps = f64::from(call.attrs.get::<L2NormalizationParam>().eps);
        let write = i32::from(wanted(call, 0));
        let mut args = args![rows, length, inner, x, y, norm, eps, write, add(call, 0)];
        launcher.launch(0, Grid::blocks(rows as usize), &mut args)
    }))
}

fn l2_back() -> Vec<Kernel> {
    vec![kernel("norm", &["l2_back<$0>"], &[("data", FLOATS)], |call, launcher| {
        let [rows, length, inner] = l2_rows(call);
        let ([g, y, norm], dx) = ([0, 1, 2].map(|i| call.inputs[i].ptr()), call.outputs[0].ptr());
        let mut args = args![rows, length, inner, g, y, norm, dx, add(call, 0)];
        launcher.launch(0, Grid::blocks(rows as usize), &mut args)
    })]
}

/// Channels, positions, and how many channels a window reaches to either side.
fn lrn_extents(call: &Call<'_>, data: &View) -> [i64; 3] {
    let (p, s) = (call.attrs.get::<LrnParam>(), data.shape());
    [s.product(1..2) as i64, s.product(2..s.ndim()) as i64, i64::from(p.nsize / 2)]
}

fn lrn() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    always(Kernel::cuda("norm", &["lrn<$0>"], types, |call, launcher| {
        let (p, x) = (call.attrs.get::<LrnParam>(), &call.inputs[0]);
        let ([channels, inner, reach], n) = (lrn_extents(call, x), x.size());
        let [y, norm] = [0, 1].map(|i| call.outputs[i].ptr());
        let [alpha, beta, knorm] = [p.alpha, p.beta, p.knorm].map(f64::from);
        let (scale, write) = (alpha / f64::from(p.nsize), i32::from(wanted(call, 0)));
        let mut args = args![
            n as i64,
            channels,
            inner,
            reach,
            x.ptr(),
            y,
            norm,
            scale,
            beta,
            knorm,
            write,
            add(call, 0)
        ];
        launcher.launch(0, Grid::over(n), &mut args)
    }))
}

fn lrn_back() -> Vec<Kernel> {
    vec![kernel("norm", &["lrn_back<$0>"], &[("data", FLOATS)], |call, launcher| {
        let (p, dx) = (call.attrs.get::<LrnParam>(), &call.outputs[0]);
        let ([channels, inner, reach], n) = (lrn_extents(call, dx), dx.size());
        let [g, x, norm] = [0, 1, 2].map(|i| call.inputs[i].ptr());
        let [alpha, beta] = [p.alpha, p.beta].map(f64::from);
        let slope = 2.0 * alpha * beta / f64::from(p.nsize);
        let mut args = args![
            n as i64,
            channels,
            inner,
            reach,
            g,
            x,
            norm,
            dx.ptr(),
            slope,
            beta,
            add(call, 0)
        ];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("InstanceNorm", group_norm),
    ("_backward_InstanceNorm", group_norm_back),
    ("GroupNorm", group_norm),
    ("_backward_GroupNorm", group_norm_back),
    ("L2Normalization", l2),
    ("_backward_L2Normalization", l2_back),
    ("LRN", lrn),
    ("_backward_LRN", lrn_back),
];
