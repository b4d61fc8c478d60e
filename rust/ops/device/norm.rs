//! Normalisation of channels over a batch, and of rows.

use super::{FLOATS, KernelsOf, add, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Call, Grid, Kernel, Launcher};
use crate::ops::nn::batch_norm::{self, extents};
use crate::ops::nn::layer_norm::{self, LayerNormParam};
use crate::tensor::View;

/// Data and parameters of a normalisation: float16 data has float32 parameters.
const NORM_TYPES: [&[DType]; 2] = [&[DType::F32, DType::F16], &[DType::F64]];

fn each_precision(make: impl Fn(&'static [DType], &'static str) -> Kernel) -> Vec<Kernel> {
    vec![make(NORM_TYPES[0], "float"), make(NORM_TYPES[1], "double")]
}

fn batch_norm() -> Vec<Kernel> {
    each_precision(|dtypes, of| {
        let statistics = format!("channel_statistics<$0, {of}>");
        let moving = format!("moving_statistics<{of}>");
        let normalise = format!("channel_normalise<$0, {of}>");
        let functions = [&*statistics, &moving, &normalise];
        let mut made = Kernel::cuda("norm", &functions, &[("data", dtypes)], normalise_batch);
        // The statistics are written even where they were not requested.
        made.skips_null = false;
        made
    })
}

fn normalise_batch(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let param = batch_norm::param(call.attrs);
    let [x, gamma, beta, moving_mean, moving_var] = call.inputs else { unreachable!("five") };
    let [y, mean, inverse] = call.outputs else { unreachable!("three outputs") };
    let of = extents(&param, x);
    let [outer, channels, inner] = [of.outer, of.channels, of.inner].map(|n| n as i64);
    if call.ctx.is_train && !param.use_global_stats {
        let mut args = args![outer, channels, inner, x.ptr(), mean.ptr(), inverse.ptr(), param.eps];
        launcher.launch(0, Grid::blocks(of.channels), &mut args)?;
    } else {
        let [m, v] = [moving_mean, moving_var].map(View::ptr);
        let mut args = args![channels, m, v, mean.ptr(), inverse.ptr(), param.eps];
        launcher.launch(1, Grid::over(of.channels), &mut args)?;
    }
    if !wanted(call, 0) {
        return Ok(());
    }
    let gamma = if param.fix_gamma { std::ptr::null_mut() } else { gamma.ptr() };
    let n = x.size();
    let mut args = args![
        n as i64,
        channels,
        inner,
        x.ptr(),
        mean.ptr(),
        inverse.ptr(),
        gamma,
        beta.ptr(),
        y.ptr(),
        add(call, 0)
    ];
    launcher.launch(2, Grid::over(n), &mut args)
}

fn batch_norm_back() -> Vec<Kernel> {
    each_precision(|dtypes, of| {
        let names = [
            format!("channel_gradients<$0, {of}>"),
            format!("channel_back<$0, {of}>"),
            format!("channel_parameters<{of}>"),
            format!("moving_update<{of}>"),
        ];
        let functions = names.each_ref().map(String::as_str);
        Kernel::cuda("norm", &functions, &[("data", dtypes)], normalise_back)
    })
}

fn normalise_back(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let param = batch_norm::param(call.attrs);
    let [g, x, gamma, mean, inverse, moving_mean, moving_var] = call.inputs else {
        unreachable!("declared dependencies")
    };
    let of = extents(&param, x);
    let [outer, channels, inner] = [of.outer, of.channels, of.inner].map(|n| n as i64);
    let (mean, inverse) = (mean.ptr(), inverse.ptr());
    let fixed = !call.ctx.is_train || param.use_global_stats;
    if !fixed {
        let (m, v) = (moving_mean.ptr(), moving_var.ptr());
        let keep = f64::from(param.momentum);
        let mut args = args![channels, mean, inverse, m, v, keep, param.eps];
        launcher.launch(3, Grid::over(of.channels), &mut args)?;
    }
    for i in (3..call.outputs.len()).filter(|i| wanted(call, *i) && add(call, *i) == 0) {
        launcher.clear(call.outputs[i].ptr(), call.outputs[i].size_bytes())?;
    }
    let sums = launcher.memory().take(2 * mean_bytes(call))?;
    let mut args = args![outer, channels, inner, g.ptr(), x.ptr(), mean, inverse, sums];
    launcher.launch(0, Grid::blocks(of.channels), &mut args)?;
    let target = |i: usize| match wanted(call, i) {
        true => call.outputs[i].ptr(),
        false => std::ptr::null_mut(),
    };
    let fix_gamma = i32::from(param.fix_gamma);
    let mut args =
        args![channels, sums, target(1), target(2), fix_gamma, add(call, 1), add(call, 2)];
    launcher.launch(2, Grid::over(of.channels), &mut args)?;
    if !wanted(call, 0) {
        return Ok(());
    }
    let gamma = if param.fix_gamma { std::ptr::null_mut() } else { gamma.ptr() };
    let (n, dx) = (x.size(), call.outputs[0].ptr());
    let mut args = args![
        n as i64,
        outer * inner,
        channels,
        inner,
        g.ptr(),
        x.ptr(),
        mean,
        inverse,
        gamma,
        sums,
        dx,
        i32::from(fixed),
        add(call, 0)
    ];
    launcher.launch(1, Grid::over(n), &mut args)
}

/// Bytes of one number for each channel.
fn mean_bytes(call: &Call<'_>) -> usize {
    call.inputs[3].size_bytes()
}

fn layer_norm() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    let mut made = Kernel::cuda("norm", &["row_normalise<$0>"], types, |call, launcher| {
        let [x, gamma, beta] = [0, 1, 2].map(|i| call.inputs[i].ptr());
        let [y, mean, deviation] = [0, 1, 2].map(|i| call.outputs[i].ptr());
        let (outer, length, inner) = layer_norm::extents(call.attrs, &call.inputs[0]);
        let (rows, write) = (outer * inner, i32::from(wanted(call, 0)));
        let eps = f64::from(call.attrs.get::<LayerNormParam>().eps);
        let [count, length, inner] = [rows, length, inner].map(|n| n as i64);
        let mut args = args![
            count,
            length,
            inner,
            x,
            gamma,
            beta,
            y,
            mean,
            deviation,
            eps,
            write,
            add(call, 0)
        ];
        launcher.launch(0, Grid::blocks(rows), &mut args)
    });
    // The statistics are written even where they were not requested.
    made.skips_null = false;
    vec![made]
}

fn layer_norm_back() -> Vec<Kernel> {
    let functions = ["row_back<$0>", "row_parameters<$0>"];
    vec![Kernel::cuda("norm", &functions, &[("data", FLOATS)], |call, launcher| {
        let [g, x, gamma, mean, deviation] = [0, 1, 2, 3, 4].map(|i| call.inputs[i].ptr());
        let (outer, width, inner) = layer_norm::extents(call.attrs, &call.inputs[1]);
        let rows = outer * inner;
        let [count, length, inner] = [rows, width, inner].map(|n| n as i64);
        let target = |i: usize| match wanted(call, i) {
            true => call.outputs[i].ptr(),
            false => std::ptr::null_mut(),
        };
        if wanted(call, 1) || wanted(call, 2) {
            let mut args = args![
                count,
                length,
                inner,
                g,
                x,
                mean,
                deviation,
                target(1),
                target(2),
                add(call, 1),
                add(call, 2)
            ];
            launcher.launch(1, Grid::blocks(width), &mut args)?;
        }
        if !wanted(call, 0) {
            return Ok(());
        }
        let mut args =
            args![count, length, inner, g, x, gamma, mean, deviation, target(0), add(call, 0)];
        launcher.launch(0, Grid::blocks(rows), &mut args)
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("BatchNorm", batch_norm),
    ("_backward_BatchNorm", batch_norm_back),
    ("LayerNorm", layer_norm),
    ("_backward_LayerNorm", layer_norm_back),
];
