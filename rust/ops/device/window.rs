//! Convolution by columns and products, and pooling.

use super::dense::{Layout, Product};
use super::reduce::{Fold, fold_functions};
use super::{FLOATS, KernelsOf, add, kernel, wanted};
use crate::args;
use crate::error::Result;
use crate::kernels::conv::Conv;
use crate::kernels::pooling::{Pool, PoolKind};
use crate::operator::{Argument, Call, Compare, Grid, Kernel, Launcher, Match};
use crate::ops::nn::{convolution, pooling};
use crate::shape::Shape;
use crate::tensor::View;

/// Windows over an image: `Window` of `window.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Window {
    input: [i32; 3],
    kernel: [i32; 3],
    output: [i32; 3],
    stride: [i32; 3],
    pad: [i32; 3],
    dilate: [i32; 3],
}

// SAFETY: numbers, as in CUDA source.
unsafe impl Argument for Window {}

fn three(extents: [usize; 3]) -> [i32; 3] {
    extents.map(|x| x as i32)
}

/// Bytes of columns that are made at once, at most; at least those of one image.
const MOST_COLUMNS: usize = 256 << 20;
/// Parts in which the gradient of filters is summed, at most.
const MOST_PARTS: usize = 64;

/// A convolution as products of filters and columns.
struct Columns {
    conv: Conv,
    window: Window,
    /// Rows of the columns of one group, outputs of an image, filters of a group.
    depth: usize,
    outputs: usize,
    filters: usize,
    element_bytes: usize,
}

impl Columns {
    fn new(call: &Call<'_>, data: &View, out: &View) -> Result<Self> {
        let (_, conv) = convolution::geometry(call.attrs, data, out)?;
        let window = Window {
            input: three(conv.input),
            kernel: three(conv.kernel),
            output: three(conv.output),
            stride: three(conv.stride),
            pad: three(conv.pad),
            dilate: three(conv.dilate),
        };
        Ok(Columns {
            depth: conv.in_c * conv.kernel.iter().product::<usize>(),
            outputs: conv.output.iter().product(),
            filters: conv.out_c,
            conv,
            window,
            element_bytes: data.dtype().size(),
        })
    }

    /// Elements of the columns of one image.
    fn image(&self) -> usize {
        self.conv.groups * self.depth * self.outputs
    }

    /// Elements of one image, and of its output.
    fn sides(&self) -> (usize, usize) {
        let inputs: usize = self.conv.input.iter().product();
        (self.conv.groups * self.conv.in_c * inputs, self.conv.groups * self.filters * self.outputs)
    }

    /// Images whose columns are made at once.
    fn chunk(&self) -> usize {
        (MOST_COLUMNS / (self.image() * self.element_bytes).max(1)).clamp(1, self.conv.batch.max(1))
    }

    /// Chunks of the batch: the first image and the number of images.
    fn chunks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (batch, chunk) = (self.conv.batch, self.chunk());
        (0..batch).step_by(chunk).map(move |from| (from, chunk.min(batch - from)))
    }

    /// The address of element `i` from `at` on.
    fn at(&self, at: *mut u8, i: usize) -> *mut u8 {
        at.wrapping_add(i * self.element_bytes)
    }

    /// Launches `im2col<T>`, function 0, for some images.
    fn make(
        &self,
        launcher: &mut dyn Launcher,
        x: *mut u8,
        columns: *mut u8,
        images: usize,
    ) -> Result<()> {
        let n = images * self.image();
        launcher.launch(0, Grid::over(n), &mut args![n as i64, x, columns, self.window])
    }
}

fn convolve(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let [x, w] = [0, 1].map(|i| call.inputs[i].ptr());
    let (c, y) = (Columns::new(call, &call.inputs[0], &call.outputs[0])?, call.outputs[0].ptr());
    let bias = call.inputs.get(2).map(View::ptr);
    let columns = launcher.memory().take(c.chunk() * c.image() * c.element_bytes)?;
    let (input, output) = c.sides();
    for (from, images) in c.chunks() {
        c.make(launcher, c.at(x, from * input), columns, images)?;
        for g in 0..c.conv.groups {
            let filters = c.at(w, g * c.filters * c.depth);
            let a = (filters, Layout::rows(c.depth as i64, 0));
            let own = c.at(columns, g * c.depth * c.outputs);
            let b = (own, Layout::columns(c.outputs as i64, c.image() as i64));
            let to = c.at(y, from * output + g * c.filters * c.outputs);
            let mut product = Product::new([c.filters, c.outputs, c.depth], images, a, b, to);
            product.c_stack = output as i64;
            product.bias = bias.map_or(std::ptr::null_mut(), |b| c.at(b, g * c.filters));
            product.bias_of_rows = true;
            product.issue(launcher, 1, add(call, 0))?;
        }
    }
    Ok(())
}

/// The gradient of the data: columns from filters and gradient, then the sums of what stands for
/// one element.
fn convolve_back_data(call: &Call<'_>, c: &Columns, launcher: &mut dyn Launcher) -> Result<()> {
    let (g, w, dx) = (call.inputs[0].ptr(), call.inputs[2].ptr(), call.outputs[0].ptr());
    let columns = launcher.memory().take(c.chunk() * c.image() * c.element_bytes)?;
    let (input, output) = c.sides();
    for (from, images) in c.chunks() {
        for group in 0..c.conv.groups {
            let filters = c.at(w, group * c.filters * c.depth);
            let a = (filters, Layout::columns(c.depth as i64, 0));
            let grad = c.at(g, from * output + group * c.filters * c.outputs);
            let b = (grad, Layout::columns(c.outputs as i64, output as i64));
            let to = c.at(columns, group * c.depth * c.outputs);
            let mut product = Product::new([c.depth, c.outputs, c.filters], images, a, b, to);
            product.c_stack = c.image() as i64;
            product.issue(launcher, 1, 0)?;
        }
        let n = images * input;
        let mut args = args![n as i64, columns, c.at(dx, from * input), c.window, add(call, 0)];
        launcher.launch(2, Grid::over(n), &mut args)?;
    }
    Ok(())
}

/// The gradient of the filters: for each of some parts of the images the product of gradient and
/// columns over all of their outputs, then the sum of the parts.
fn convolve_back_filters(call: &Call<'_>, c: &Columns, launcher: &mut dyn Launcher) -> Result<()> {
    let (g, x, dw) = (call.inputs[0].ptr(), call.inputs[1].ptr(), call.outputs[1].ptr());
    let columns = launcher.memory().take(c.chunk() * c.image() * c.element_bytes)?;
    let all = c.conv.groups * c.filters * c.depth;
    let sums = launcher.memory().take(c.chunk().min(MOST_PARTS) * all * c.element_bytes)?;
    let (input, output) = c.sides();
    for (from, images) in c.chunks() {
        c.make(launcher, c.at(x, from * input), columns, images)?;
        // Parts of equal numbers of images.
        let each = (1..=images).find(|n| images % n == 0 && images / n <= MOST_PARTS);
        let each = each.unwrap_or(images);
        let parts = images / each;
        for group in 0..c.conv.groups {
            let of = |at: *mut u8, own: usize, image: usize| {
                let [near, far, stack] = [1, image as i64, (each * image) as i64];
                (c.at(at, own), Layout { row: c.outputs as i64, near, far, stack })
            };
            let a = of(g, from * output + group * c.filters * c.outputs, output);
            let b = of(columns, group * c.depth * c.outputs, c.image());
            let to = c.at(sums, group * c.filters * c.depth);
            let extents = [c.filters, c.depth, each * c.outputs];
            let mut product = Product::new(extents, parts, a, b, to);
            product.run = (c.outputs as i64).max(1);
            product.c_stack = all as i64;
            product.issue(launcher, 1, 0)?;
        }
        let adds = i32::from(from > 0 || add(call, 1) == 1);
        let fold = Fold::over(&Shape::new(&[parts as i64, all as i64]), &[true, false])?;
        fold.issue(launcher, 3, sums, dw, adds)?;
    }
    Ok(())
}

fn convolve_back(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let c = Columns::new(call, &call.inputs[1], &call.inputs[0])?;
    if wanted(call, 0) {
        convolve_back_data(call, &c, launcher)?;
    }
    if wanted(call, 1) {
        if c.conv.batch == 0 && add(call, 1) == 0 {
            launcher.clear(call.outputs[1].ptr(), call.outputs[1].size_bytes())?;
        }
        convolve_back_filters(call, &c, launcher)?;
    }
    if call.outputs.len() > 2 && wanted(call, 2) {
        let filters = (c.conv.groups * c.filters) as i64;
        let shape = Shape::new(&[c.conv.batch as i64, filters, c.outputs as i64]);
        let fold = Fold::over(&shape, &[true, false, true])?;
        fold.issue(launcher, 3, call.inputs[0].ptr(), call.outputs[2].ptr(), add(call, 2))?;
    }
    Ok(())
}

/// Channels come first in these layouts, or there is no such parameter.
fn channels_first() -> Match {
    let is = |layout: &str| Match::Attr("layout".into(), Compare::Eq, layout.into());
    let either = |a: Match, b: Match| Match::Or(Box::new(a), Box::new(b));
    either(either(is("None"), is("NCW")), either(is("NCHW"), is("NCDHW")))
}

fn convolution() -> Vec<Kernel> {
    let functions = ["im2col<$0>", "matmul<$0>"];
    vec![kernel("window", &functions, &[("data", FLOATS)], convolve).only(channels_first())]
}

fn convolution_back() -> Vec<Kernel> {
    let folds = fold_functions("SumFold<$0>");
    let own = ["im2col<$0>", "matmul<$0>", "col2im<$0>"];
    let functions = [own[0], own[1], own[2], &folds[0], &folds[1], &folds[2]];
    let types: &[_] = &[("data", FLOATS)];
    vec![Kernel::cuda("window", &functions, types, convolve_back).only(channels_first())]
}

/// The number of a kind in `window.cu`, and the power of a norm.
fn kind_of(pool: &Pool) -> (i32, i32) {
    match pool.kind {
        PoolKind::Max => (0, 0),
        PoolKind::Sum => (1, 0),
        PoolKind::Average { with_pad: true } => (2, 0),
        PoolKind::Average { with_pad: false } => (3, 0),
        PoolKind::Norm { p } => (4, p as i32),
    }
}

fn pool_window(pool: &Pool) -> Window {
    Window {
        input: three(pool.input),
        kernel: three(pool.kernel),
        output: three(pool.output),
        stride: three(pool.stride),
        pad: three(pool.pad),
        dilate: [1; 3],
    }
}

fn pool() -> Vec<Kernel> {
    let made = kernel("window", &["pool<$0>"], &[("data", FLOATS)], |call, launcher| {
        let (x, y, n) = (&call.inputs[0], &call.outputs[0], call.outputs[0].size());
        let (_, pool) = pooling::geometry(call.attrs, x, y)?;
        let (kind, p) = kind_of(&pool);
        let mut args = args![n as i64, x.ptr(), y.ptr(), pool_window(&pool), kind, p, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    });
    vec![made.only(channels_first())]
}

fn pool_back() -> Vec<Kernel> {
    let made = kernel("window", &["pool_back<$0>"], &[("data", FLOATS)], |call, launcher| {
        let [g, x, y] = call.inputs else { unreachable!("declared dependencies") };
        let (dx, n) = (&call.outputs[0], call.outputs[0].size());
        let (_, pool) = pooling::geometry(call.attrs, x, y)?;
        let ((kind, p), window) = (kind_of(&pool), pool_window(&pool));
        let mut args =
            args![n as i64, x.ptr(), y.ptr(), g.ptr(), dx.ptr(), window, kind, p, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    });
    vec![made.only(channels_first())]
}

pub const TABLE: &[KernelsOf] = &[
    ("Convolution", convolution),
    ("_backward_Convolution", convolution_back),
    ("Pooling", pool),
    ("_backward_Pooling", pool_back),
];
