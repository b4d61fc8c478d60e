//! Convolution and its transpose by columns and products, and pooling.

use super::dense::{Layout, Product, add_bias};
use super::layout::{Issue, in_any_layout};
use super::reduce::{Fold, fold_functions};
use super::{FLOATS, KernelsOf, add, kernel, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::conv::Conv;
use crate::kernels::pooling::{Pool, PoolKind};
use crate::operator::{Argument, Call, Grid, Kernel, Launcher};
use crate::ops::nn::{convolution, deconvolution, pooling, upsampling};
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

/// The functions of [`Columns`], in this order; a kernel that needs few names the first ones.
const IM2COL: usize = 0;
const MATMUL: usize = 1;
const COL2IM: usize = 3;
const FOLDS: usize = 4;
const FUNCTIONS: [&str; 4] = ["im2col<$0>", "matmul<$0>", "add_bias<$0>", "col2im<$0>"];

/// A convolution as products of filters and columns.
struct Columns {
    conv: Conv,
    window: Window,
    /// Rows of the columns of one group, elements of an image and of its output, filters of a
    /// group.
    depth: usize,
    inputs: usize,
    outputs: usize,
    filters: usize,
    dtype: DType,
}

impl Columns {
    fn new(conv: Conv, dtype: DType) -> Self {
        let window = Window {
            input: three(conv.input),
            kernel: three(conv.kernel),
            output: three(conv.output),
            stride: three(conv.stride),
            pad: three(conv.pad),
            dilate: three(conv.dilate),
        };
        Columns {
            depth: conv.in_c * conv.kernel.iter().product::<usize>(),
            inputs: conv.input.iter().product(),
            outputs: conv.output.iter().product(),
            filters: conv.out_c,
            conv,
            window,
            dtype,
        }
    }

    /// Elements of the columns of one image.
    fn image(&self) -> usize {
        self.conv.groups * self.depth * self.outputs
    }

    /// Elements of one image, and of its output.
    fn sides(&self) -> (usize, usize) {
        let groups = self.conv.groups;
        (groups * self.conv.in_c * self.inputs, groups * self.filters * self.outputs)
    }

    /// Images whose columns are made at once.
    fn chunk(&self) -> usize {
        (MOST_COLUMNS / self.bytes(self.image()).max(1)).clamp(1, self.conv.batch.max(1))
    }

    /// Chunks of the batch: the first image and the number of images.
    fn chunks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (batch, chunk) = (self.conv.batch, self.chunk());
        (0..batch).step_by(chunk).map(move |from| (from, chunk.min(batch - from)))
    }

    fn bytes(&self, elements: usize) -> usize {
        elements * self.dtype.size()
    }

    /// The address of element `i` from `at` on.
    fn at(&self, at: *mut u8, i: usize) -> *mut u8 {
        at.wrapping_add(self.bytes(i))
    }

    /// Launches `im2col<T>` for some images.
    fn make(
        &self,
        launcher: &mut dyn Launcher,
        x: *mut u8,
        columns: *mut u8,
        images: usize,
    ) -> Result<()> {
        let n = images * self.image();
        launcher.launch(IM2COL, Grid::over(n), &mut args![n as i64, x, columns, self.window])
    }

    /// The convolution of images `x` with filters `w`.
    fn convolve(
        &self,
        launcher: &mut dyn Launcher,
        [x, w, y]: [*mut u8; 3],
        bias: Option<*mut u8>,
        add: i32,
    ) -> Result<()> {
        let columns = launcher.memory().take(self.bytes(self.chunk() * self.image()))?;
        let (input, output) = self.sides();
        for (from, images) in self.chunks() {
            self.make(launcher, self.at(x, from * input), columns, images)?;
            for g in 0..self.conv.groups {
                let filters = self.at(w, g * self.filters * self.depth);
                let a = (filters, Layout::rows(self.depth as i64, 0));
                let own = self.at(columns, g * self.depth * self.outputs);
                let b = (own, Layout::columns(self.outputs as i64, self.image() as i64));
                let to = self.at(y, from * output + g * self.filters * self.outputs);
                let extents = [self.filters, self.outputs, self.depth];
                let mut product = Product::new(self.dtype, extents, images, a, b, to);
                product.c_stack = output as i64;
                product.bias = bias.map_or(std::ptr::null_mut(), |b| self.at(b, g * self.filters));
                product.bias_of_rows = true;
                product.issue(launcher, MATMUL, add)?;
            }
        }
        Ok(())
    }

    /// The transpose of a convolution, from outputs `g` to images `dx`: products of
    /// filters and outputs as columns, then the sums of the columns' elements of one pixel.
    fn spread(
        &self,
        launcher: &mut dyn Launcher,
        [g, w, dx]: [*mut u8; 3],
        add: i32,
    ) -> Result<()> {
        let columns = launcher.memory().take(self.bytes(self.chunk() * self.image()))?;
        let (input, output) = self.sides();
        for (from, images) in self.chunks() {
            for group in 0..self.conv.groups {
                let filters = self.at(w, group * self.filters * self.depth);
                let a = (filters, Layout::columns(self.depth as i64, 0));
                let grad = self.at(g, from * output + group * self.filters * self.outputs);
                let b = (grad, Layout::columns(self.outputs as i64, output as i64));
                let to = self.at(columns, group * self.depth * self.outputs);
                let extents = [self.depth, self.outputs, self.filters];
                let mut product = Product::new(self.dtype, extents, images, a, b, to);
                product.c_stack = self.image() as i64;
                product.issue(launcher, MATMUL, 0)?;
            }
            let n = images * input;
            let to = self.at(dx, from * input);
            let mut args = args![n as i64, columns, to, self.window, add];
            launcher.launch(COL2IM, Grid::over(n), &mut args)?;
        }
        Ok(())
    }

    /// The gradient of the filters: for each of some parts of the images the product of the
    /// outputs' gradient `g` and columns over all of their outputs, then the sum of the parts.
    fn filters_back(
        &self,
        launcher: &mut dyn Launcher,
        [g, x, dw]: [*mut u8; 3],
        add: i32,
    ) -> Result<()> {
        let columns = launcher.memory().take(self.bytes(self.chunk() * self.image()))?;
        let all = self.conv.groups * self.filters * self.depth;
        let sums = launcher.memory().take(self.bytes(self.chunk().min(MOST_PARTS) * all))?;
        let (input, output) = self.sides();
        if self.conv.batch == 0 && add == 0 {
            launcher.clear(dw, self.bytes(all))?;
        }
        for (from, images) in self.chunks() {
            self.make(launcher, self.at(x, from * input), columns, images)?;
            // Parts of equal numbers of images.
            let each = (1..=images).find(|n| images % n == 0 && images / n <= MOST_PARTS);
            let each = each.unwrap_or(images);
            let parts = images / each;
            for group in 0..self.conv.groups {
                let of = |at: *mut u8, own: usize, image: usize| {
                    let [near, far, stack] = [1, image as i64, (each * image) as i64];
                    (self.at(at, own), Layout { row: self.outputs as i64, near, far, stack })
                };
                let a = of(g, from * output + group * self.filters * self.outputs, output);
                let b = of(columns, group * self.depth * self.outputs, self.image());
                let to = self.at(sums, group * self.filters * self.depth);
                let extents = [self.filters, self.depth, each * self.outputs];
                let mut product = Product::new(self.dtype, extents, parts, a, b, to);
                product.run = (self.outputs as i64).max(1);
                product.c_stack = all as i64;
                product.issue(launcher, MATMUL, 0)?;
            }
            let adds = i32::from(from > 0 || add == 1);
            let fold = Fold::over(&Shape::new(&[parts as i64, all as i64]), &[true, false])?;
            fold.issue(launcher, FOLDS, sums, dw, adds)?;
        }
        Ok(())
    }
}

/// The gradient of a bias: the sum over images and positions of a gradient (batch, channels,
/// positions).
fn bias_back(
    launcher: &mut dyn Launcher,
    extents: [usize; 3],
    g: *mut u8,
    to: *mut u8,
    add: i32,
) -> Result<()> {
    let fold = Fold::over(&Shape::new(&extents.map(|x| x as i64)), &[true, false, true])?;
    fold.issue(launcher, FOLDS, g, to, add)
}

fn convolve(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let (_, conv) = convolution::geometry(call.attrs, &call.inputs[0], &call.outputs[0])?;
    let (x, w, y) = (call.inputs[0].ptr(), call.inputs[1].ptr(), call.outputs[0].ptr());
    let bias = call.inputs.get(2).map(View::ptr);
    Columns::new(conv, call.inputs[0].dtype()).convolve(launcher, [x, w, y], bias, add(call, 0))
}

fn convolve_back(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let [grad, data, weight] = call.inputs else { unreachable!("declared dependencies") };
    let (_, conv) = convolution::geometry(call.attrs, data, grad)?;
    let c = Columns::new(conv, data.dtype());
    let [g, x, w] = [grad, data, weight].map(View::ptr);
    if wanted(call, 0) {
        c.spread(launcher, [g, w, call.outputs[0].ptr()], add(call, 0))?;
    }
    if wanted(call, 1) {
        c.filters_back(launcher, [g, x, call.outputs[1].ptr()], add(call, 1))?;
    }
    if call.outputs.len() > 2 && wanted(call, 2) {
        let extents = [c.conv.batch, c.conv.groups * c.filters, c.outputs];
        bias_back(launcher, extents, g, call.outputs[2].ptr(), add(call, 2))?;
    }
    Ok(())
}

/// Of the convolution that this is the transpose of, the data are the outputs.
fn deconvolve(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let (data, out) = (&call.inputs[0], &call.outputs[0]);
    let (_, conv) = deconvolution::geometry(call.attrs, data, out)?;
    let c = Columns::new(conv, data.dtype());
    c.spread(launcher, [data.ptr(), call.inputs[1].ptr(), out.ptr()], add(call, 0))?;
    let Some(bias) = call.inputs.get(2) else { return Ok(()) };
    let channels = c.conv.groups * c.conv.in_c;
    add_bias(launcher, MATMUL + 1, [c.conv.batch, channels, c.inputs], out.ptr(), bias.ptr())
}

fn deconvolve_back(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let [grad, data, weight] = call.inputs else { unreachable!("declared dependencies") };
    let (_, conv) = deconvolution::geometry(call.attrs, data, grad)?;
    let c = Columns::new(conv, data.dtype());
    let [g, x, w] = [grad, data, weight].map(View::ptr);
    if wanted(call, 0) {
        c.convolve(launcher, [g, w, call.outputs[0].ptr()], None, add(call, 0))?;
    }
    if wanted(call, 1) {
        c.filters_back(launcher, [x, g, call.outputs[1].ptr()], add(call, 1))?;
    }
    if call.outputs.len() > 2 && wanted(call, 2) {
        let extents = [c.conv.batch, c.conv.groups * c.conv.in_c, c.inputs];
        bias_back(launcher, extents, g, call.outputs[2].ptr(), add(call, 2))?;
    }
    Ok(())
}

/// A kernel of one output that launches the first `count` of [`FUNCTIONS`].
fn by_columns(count: usize, issue: Issue) -> Vec<Kernel> {
    vec![in_any_layout(&FUNCTIONS[..count], issue).multiplies()]
}

fn by_columns_back(issue: Issue) -> Vec<Kernel> {
    let folds = fold_functions("SumFold<$0>");
    let folds = folds.iter().map(String::as_str);
    let functions: Vec<&str> = FUNCTIONS.into_iter().chain(folds).collect();
    vec![in_any_layout(&functions, issue).multiplies()]
}

/// Bilinear enlargement: the transpose of a convolution of each channel by itself.
pub fn bilinear() -> Kernel {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    let made = kernel("window", &FUNCTIONS, types, |call, launcher| {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        let c = Columns::new(upsampling::bilinear(call, x.shape()), x.dtype());
        c.spread(launcher, [x.ptr(), call.inputs[1].ptr(), y.ptr()], add(call, 0))
    });
    made.multiplies()
}

/// Its gradients.
pub fn bilinear_back() -> Kernel {
    let folds = fold_functions("SumFold<$0>");
    let folds = folds.iter().map(String::as_str);
    let functions: Vec<&str> = FUNCTIONS.into_iter().chain(folds).collect();
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS)];
    let made = Kernel::cuda("window", &functions, types, |call, launcher| {
        let [g, x, w] = [0, 1, 2].map(|i| call.inputs[i].ptr());
        let conv = upsampling::bilinear(call, call.inputs[1].shape());
        let c = Columns::new(conv, call.inputs[0].dtype());
        if wanted(call, 0) {
            c.convolve(launcher, [g, w, call.outputs[0].ptr()], None, add(call, 0))?;
        }
        if wanted(call, 1) {
            c.filters_back(launcher, [x, g, call.outputs[1].ptr()], add(call, 1))?;
        }
        Ok(())
    });
    made.multiplies()
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

fn pool(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let (x, y, n) = (&call.inputs[0], &call.outputs[0], call.outputs[0].size());
    let (_, pool) = pooling::geometry(call.attrs, x, y)?;
    let (kind, p) = kind_of(&pool);
    let mut args = args![n as i64, x.ptr(), y.ptr(), pool_window(&pool), kind, p, add(call, 0)];
    launcher.launch(0, Grid::over(n), &mut args)
}

fn pool_back(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let [g, x, y] = call.inputs else { unreachable!("declared dependencies") };
    let (dx, n) = (&call.outputs[0], call.outputs[0].size());
    let (_, pool) = pooling::geometry(call.attrs, x, y)?;
    let ((kind, p), window) = (kind_of(&pool), pool_window(&pool));
    let mut args =
        args![n as i64, x.ptr(), y.ptr(), g.ptr(), dx.ptr(), window, kind, p, add(call, 0)];
    launcher.launch(0, Grid::over(n), &mut args)
}

pub const TABLE: &[KernelsOf] = &[
    ("Convolution", || by_columns(3, convolve)),
    ("_backward_Convolution", || by_columns_back(convolve_back)),
    ("Deconvolution", || by_columns(4, deconvolve)),
    ("_backward_Deconvolution", || by_columns_back(deconvolve_back)),
    ("Pooling", || vec![in_any_layout(&["pool<$0>"], pool)]),
    ("_backward_Pooling", || vec![in_any_layout(&["pool_back<$0>"], pool_back)]),
];
