//! Images sampled along grids, and averages of samples in the bins of rectangles.

use super::order::Ordered;
use super::scatter::sorting;
use super::{FLOATS, KernelsOf, add, begin, computed_bytes, kernel, target, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Argument, Call, Grid, Kernel, Launcher};
use crate::ops::vision::roi_align::{RRoiAlignParam, RoiAlignParam};
use crate::ops::vision::sampler::{GridGeneratorParam, GridType};
use crate::shape::Shape;
use crate::tensor::View;
use std::ptr::null_mut;

/// Images and the places of their samples: `Sampling` of `sampling.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Sampling {
    images: i64,
    channels: i64,
    height: i64,
    width: i64,
    rows: i64,
    columns: i64,
}

// SAFETY: six numbers, as in CUDA source.
unsafe impl Argument for Sampling {}

impl Sampling {
    /// Sampling of images `data` to `out`, both (N, C, H, W).
    fn of(data: &View, out: &View) -> Self {
        let (d, o) = (data.dims(), out.dims());
        let [images, channels, height, width] = [d[0], d[1], d[2], d[3]];
        Sampling { images, channels, height, width, rows: o[2], columns: o[3] }
    }

    fn places(&self) -> usize {
        (self.rows * self.columns) as usize
    }
}

/// The positions of the samples: a grid, or matrices of affine maps.
#[derive(Clone, Copy)]
enum By {
    Grid,
    Matrices,
}

impl By {
    /// The addresses of the grid and of the matrices.
    fn both(self, at: *mut u8) -> [*mut u8; 2] {
        match self {
            By::Grid => [at, null_mut()],
            By::Matrices => [null_mut(), at],
        }
    }
}

fn sample(by: By) -> Vec<Kernel> {
    vec![kernel("sampling", &["sample<$0>"], &[("data", FLOATS)], move |call, launcher| {
        let (x, y, n) = (&call.inputs[0], &call.outputs[0], call.outputs[0].size());
        let [grid, matrices] = by.both(call.inputs[1].ptr());
        let s = Sampling::of(x, y);
        let mut args = args![n as i64, s, x.ptr(), grid, matrices, y.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// The functions of [`sample_back`], after those that sort.
const PLACES: usize = 2;
const IMAGE: usize = 3;
const GRID: usize = 4;
const MATRIX: usize = 5;

/// Inputs are the gradient of the samples, images, and what says where the samples lie.
fn sample_back(by: By) -> Vec<Kernel> {
    let [spans, steps] = sorting();
    let functions = [
        &*spans,
        &steps,
        "corner_places<$0>",
        "image_back<$0>",
        "grid_back<$0>",
        "matrix_back<$0>",
    ];
    vec![Kernel::cuda("sampling", &functions, &[("data", FLOATS)], move |call, launcher| {
        image_back(call, launcher, by)?;
        match by {
            _ if !wanted(call, 1) => Ok(()),
            By::Grid => grid_back(call, launcher, by, null_mut()),
            By::Matrices => {
                let s = Sampling::of(&call.inputs[1], &call.inputs[0]);
                let rows = 2 * s.images as usize;
                let bytes = computed_bytes(call.inputs[0].dtype(), rows * s.places());
                let inner = launcher.memory().take(bytes)?;
                grid_back(call, launcher, by, inner)?;
                let (g, to) = (null_mut::<u8>(), call.outputs[1].ptr());
                let mut args = args![rows as i64, s, g, inner, to, add(call, 1)];
                launcher.launch(MATRIX, Grid::blocks(rows), &mut args)
            }
        }
    })]
}

/// The gradient of the image. The corners of the samples are sorted first, so that gradients of one
/// element are always summed in the same order.
fn image_back(call: &Call<'_>, launcher: &mut dyn Launcher, by: By) -> Result<()> {
    begin(call, launcher, 0)?;
    let s = Sampling::of(&call.inputs[1], &call.inputs[0]);
    let (images, corners) = (s.images as usize, 4 * s.places());
    if !wanted(call, 0) || images * corners == 0 {
        return Ok(());
    }
    let places = launcher.memory().take(images * corners * size_of::<i64>())?;
    let [grid, matrices] = by.both(call.inputs[2].ptr());
    let n = images * corners;
    launcher.launch(PLACES, Grid::over(n), &mut args![n as i64, s, grid, matrices, places])?;
    let shape = Shape::new(&[s.images, corners as i64]);
    // SAFETY: memory of the device, of which only the address is used.
    let view = unsafe { View::new(places, shape, DType::I64) };
    let ordered = Ordered::of(launcher, &view, Some(1), true)?;
    let (g, dx) = (call.inputs[0].ptr(), call.outputs[0].ptr());
    let n = n * s.channels as usize;
    let padded = ordered.padded();
    let mut args = args![n as i64, padded, s, g, grid, matrices, places, ordered.order, dx];
    launcher.launch(IMAGE, Grid::over(n), &mut args)
}

/// The gradient of the grid: output 1, or `inner` in the type of calculations.
fn grid_back(call: &Call<'_>, launcher: &mut dyn Launcher, by: By, inner: *mut u8) -> Result<()> {
    let s = Sampling::of(&call.inputs[1], &call.inputs[0]);
    let n = s.images as usize * s.places();
    let [g, x] = [0, 1].map(|i| call.inputs[i].ptr());
    let [grid, matrices] = by.both(call.inputs[2].ptr());
    let to = target(call, 1);
    let mut args = args![n as i64, s, g, x, grid, matrices, to, inner, add(call, 1)];
    launcher.launch(GRID, Grid::over(n), &mut args)
}

fn is_affine(call: &Call<'_>) -> bool {
    call.attrs.get::<GridGeneratorParam>().transform_type == GridType::Affine
}

fn grid() -> Vec<Kernel> {
    let functions = ["affine_grid<$0>", "flow_grid<$0>"];
    vec![kernel("sampling", &functions, &[("data", FLOATS)], |call, launcher| {
        let (x, y, n) = (call.inputs[0].ptr(), &call.outputs[0], call.outputs[0].size());
        let mut args = args![n as i64, Sampling::of(y, y), x, y.ptr(), add(call, 0)];
        launcher.launch(usize::from(!is_affine(call)), Grid::over(n), &mut args)
    })]
}

fn grid_generator_back() -> Vec<Kernel> {
    let functions = ["matrix_back<$0>", "flow_back<$0>"];
    vec![kernel("sampling", &functions, &[("data", FLOATS)], |call, launcher| {
        let (g, dx) = (&call.inputs[0], &call.outputs[0]);
        let s = Sampling::of(g, g);
        if is_affine(call) {
            let (rows, inner) = (2 * s.images, null_mut::<u8>());
            let mut args = args![rows, s, g.ptr(), inner, dx.ptr(), add(call, 0)];
            return launcher.launch(0, Grid::blocks(rows as usize), &mut args);
        }
        let n = dx.size();
        launcher.launch(1, Grid::over(n), &mut args![n as i64, s, g.ptr(), dx.ptr(), add(call, 0)])
    })]
}

/// Rectangles that are cut into bins: `Bins` of `sampling.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Bins {
    of: Sampling,
    regions: i64,
    width: i64,
    outputs: i64,
    ratio: i64,
    scale: f64,
    aligned: i32,
    apart: i32,
    rotated: i32,
    unused: i32,
}

// SAFETY: numbers, as in CUDA source, without padding.
unsafe impl Argument for Bins {}

/// The bins of an operator that pools regions, from its data, rectangles and output.
type BinsOf = fn(&Call<'_>, [&View; 3]) -> Bins;

fn bins([data, regions, out]: [&View; 3], (scale, ratio): (f32, i32)) -> Bins {
    let (r, outputs) = (regions.dims(), out.dims()[1]);
    Bins {
        of: Sampling::of(data, out),
        regions: r[0],
        width: r[1],
        outputs,
        ratio: ratio.into(),
        scale: scale.into(),
        aligned: 0,
        apart: 0,
        rotated: 0,
        unused: 0,
    }
}

fn upright(call: &Call<'_>, views: [&View; 3]) -> Bins {
    let p = call.attrs.get::<RoiAlignParam>();
    let [aligned, apart] = [p.aligned, p.position_sensitive].map(i32::from);
    Bins { aligned, apart, ..bins(views, (p.spatial_scale, p.sample_ratio)) }
}

fn rotated(call: &Call<'_>, views: [&View; 3]) -> Bins {
    let p = call.attrs.get::<RRoiAlignParam>();
    Bins { rotated: 1, ..bins(views, (p.spatial_scale, p.sampling_ratio)) }
}

fn means(of: BinsOf) -> Vec<Kernel> {
    vec![kernel("sampling", &["region_means<$0>"], &[("data", FLOATS)], move |call, launcher| {
        let ([x, regions], y) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
        let (n, b) = (y.size(), of(call, [x, regions, y]));
        let mut args = args![n as i64, b, x.ptr(), regions.ptr(), y.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn means_back(of: BinsOf) -> Vec<Kernel> {
    let functions = ["region_means_back<$0>"];
    vec![Kernel::cuda("sampling", &functions, &[("data", FLOATS)], move |call, launcher| {
        begin(call, launcher, 1)?;
        if !wanted(call, 0) {
            return Ok(());
        }
        let ([g, regions], dx) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
        let (n, b) = (dx.size(), of(call, [dx, regions, g]));
        let mut args = args![n as i64, b, g.ptr(), regions.ptr(), dx.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("BilinearSampler", || sample(By::Grid)),
    ("_backward_BilinearSampler", || sample_back(By::Grid)),
    ("SpatialTransformer", || sample(By::Matrices)),
    ("_backward_SpatialTransformer", || sample_back(By::Matrices)),
    ("GridGenerator", grid),
    ("_backward_GridGenerator", grid_generator_back),
    ("_contrib_ROIAlign", || means(upright)),
    ("_backward_ROIAlign", || means_back(upright)),
    ("_contrib_RROIAlign", || means(rotated)),
    ("_backward_RROIAlign", || means_back(rotated)),
];
