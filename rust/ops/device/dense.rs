//! Products of matrices, and the layers that are made of them.

use super::reduce::{Fold, fold_functions};
use super::{FLOATS, KernelsOf, add, kernel, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::{Argument, Call, Grid, Kernel, Launcher, MatrixProduct, Rows};
use crate::ops::nn::dot::{DotParam, batch_sizes, dot_sizes};
use crate::ops::nn::fully_connected::extents;
use crate::shape::Shape;
use crate::tensor::View;

/// The strides of an operand of a product: `Layout` of `dense.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Layout {
    /// The step of the axis that the result keeps.
    pub row: i64,
    /// The step of the inner axis within a run of it.
    pub near: i64,
    /// The step from one run to the next.
    pub far: i64,
    /// The step from one matrix of a stack to the next.
    pub stack: i64,
}

// SAFETY: four numbers, as in CUDA source.
unsafe impl Argument for Layout {}

impl Layout {
    /// A row-major matrix of `columns` columns, whose rows are kept by the product.
    pub fn rows(columns: i64, stack: i64) -> Self {
        Layout { row: columns, near: 1, far: 0, stack }
    }

    /// The same with the roles of the axes exchanged.
    pub fn columns(columns: i64, stack: i64) -> Self {
        Layout { row: 1, near: columns, far: 0, stack }
    }
}

/// One product: `c = alpha a b (+ bias)`, of `stacks` matrices.
#[derive(Clone, Copy)]
pub struct Product {
    pub dtype: DType,
    pub m: i64,
    pub n: i64,
    pub depth: i64,
    /// Elements of the inner axis that lie at one distance.
    pub run: i64,
    pub stacks: i64,
    pub a: (*mut u8, Layout),
    pub b: (*mut u8, Layout),
    pub c: *mut u8,
    pub c_row: i64,
    pub c_stack: i64,
    pub alpha: f64,
    pub bias: *mut u8,
    pub bias_of_rows: bool,
}

const TILE: usize = 64;

/// An operand as rows of contiguous elements: of `outer` elements the one axis, of `inner` the
/// other. `None` if no such rows are there.
fn rows_of((at, layout): (*mut u8, Layout), stack: i64, outer: i64, inner: i64) -> Option<Rows> {
    let rows = |step, least, transposed| {
        (step >= least).then(|| Rows { at, step: i64::max(step, 1), stack, transposed })
    };
    let of_outer = || match layout.near {
        1 => rows(if outer == 1 { inner } else { layout.row }, inner, false),
        _ => None,
    };
    let of_inner = || match layout.row {
        1 => rows(if inner == 1 { outer } else { layout.near }, outer, true),
        _ => None,
    };
    of_outer().or_else(of_inner)
}

impl Product {
    /// A product of row-major results without a bias, whose inner axis is one run.
    pub fn new(
        dtype: DType,
        [m, n, depth]: [usize; 3],
        stacks: usize,
        a: (*mut u8, Layout),
        b: (*mut u8, Layout),
        c: *mut u8,
    ) -> Self {
        let [m, n, depth] = [m, n, depth].map(|x| x as i64);
        Product {
            dtype,
            m,
            n,
            depth,
            run: depth.max(1),
            stacks: stacks as i64,
            a,
            b,
            c,
            c_row: n,
            c_stack: m * n,
            alpha: 1.0,
            bias: std::ptr::null_mut(),
            bias_of_rows: false,
        }
    }

    /// Multiplies by the library of the device, or launches `matmul<T>`, function `function`. With
    /// a bias the next function is `add_bias<T>`.
    pub fn issue(&self, launcher: &mut dyn Launcher, function: usize, add: i32) -> Result<()> {
        if self.m == 0 || self.n == 0 || self.stacks == 0 {
            return Ok(());
        }
        if !self.by_library(launcher, add)? {
            return self.by_own_kernel(launcher, function, add);
        }
        if self.bias.is_null() {
            return Ok(());
        }
        let n = self.stacks * self.m * self.n;
        let by_rows = i32::from(self.bias_of_rows);
        let (step, stack) = (self.c_row, self.c_stack);
        let mut args = args![n, self.m, self.n, self.c, step, stack, self.bias, by_rows];
        launcher.launch(function + 1, Grid::over(n as usize), &mut args)
    }

    /// Each run of the inner axis is a product of its own, added to those before it.
    fn by_library(&self, launcher: &mut dyn Launcher, add: i32) -> Result<bool> {
        let runs = if self.run < self.depth { self.depth / self.run } else { 1 };
        let depth = self.depth.min(self.run);
        if depth == 0 || runs * depth != self.depth {
            return Ok(false);
        }
        let size = self.dtype.size() as i64;
        let from = |(at, layout): (*mut u8, Layout), run: i64| {
            (at.wrapping_offset((run * layout.far * size) as isize), layout)
        };
        for run in 0..runs {
            let a = rows_of(from(self.a, run), self.a.1.stack, self.m, depth);
            let b = rows_of(from(self.b, run), self.b.1.stack, self.n, depth);
            let (Some(a), Some(b)) = (a, b) else { return Ok(false) };
            // The other way round: rows of `b` are its inner axis.
            let b = Rows { transposed: !b.transposed, ..b };
            let c = Rows { at: self.c, step: self.c_row, stack: self.c_stack, transposed: false };
            let (Product { dtype, m, n, stacks, alpha, .. }, add) = (*self, add == 1 || run > 0);
            let product = MatrixProduct { dtype, m, n, depth, stacks, a, b, c, alpha, add };
            let done = launcher.multiply(&product)?;
            if !done && run > 0 {
                return Err(Error::internal("a library multiplied some of equal matrices"));
            }
            if !done {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn by_own_kernel(&self, launcher: &mut dyn Launcher, function: usize, add: i32) -> Result<()> {
        let tiles = |extent: i64| (extent as usize).div_ceil(TILE);
        let most = 1 << 15;
        let blocks = [
            tiles(self.n) as u32,
            tiles(self.m).min(most) as u32,
            (self.stacks as usize).min(most) as u32,
        ];
        let (a, b) = (self.a, self.b);
        let mut args = args![
            self.m,
            self.n,
            self.depth,
            self.run,
            self.stacks,
            a.0,
            a.1,
            b.0,
            b.1,
            self.c,
            self.c_row,
            self.c_stack,
            self.alpha,
            self.bias,
            i32::from(self.bias_of_rows),
            add
        ];
        launcher.launch(function, Grid { blocks, threads: Grid::THREADS }, &mut args)
    }
}

/// Launches `add_bias<T>`: adds to each channel of an array (batch, channels, positions).
pub fn add_bias(
    launcher: &mut dyn Launcher,
    function: usize,
    [batch, channels, positions]: [usize; 3],
    to: *mut u8,
    bias: *mut u8,
) -> Result<()> {
    let n = batch * channels * positions;
    let [m, row] = [channels, positions].map(|x| x as i64);
    let mut args = args![n as i64, m, row, to, row, m * row, bias, 1];
    launcher.launch(function, Grid::over(n), &mut args)
}

type Sizes = (usize, (usize, usize, usize));

/// Operand `a` of a product of (m, k) and (k, n), by its rows or, transposed, by its columns.
pub fn left(at: *mut u8, transposed: bool, (m, k): (usize, usize)) -> (*mut u8, Layout) {
    let stack = (m * k) as i64;
    let layout =
        if transposed { Layout::columns(m as i64, stack) } else { Layout::rows(k as i64, stack) };
    (at, layout)
}

/// Operand `b` of such a product, whose rows are the columns of the matrix.
pub fn right(at: *mut u8, transposed: bool, (k, n): (usize, usize)) -> (*mut u8, Layout) {
    let stack = (k * n) as i64;
    let layout =
        if transposed { Layout::rows(k as i64, stack) } else { Layout::columns(n as i64, stack) };
    (at, layout)
}

fn dot(sizes: fn(&Call<'_>) -> Sizes) -> Vec<Kernel> {
    let made = kernel("dense", &["matmul<$0>"], &[("lhs", FLOATS)], move |call, launcher| {
        let p = call.attrs.get::<DotParam>();
        let (count, (m, n, k)) = sizes(call);
        let dtype = call.outputs[0].dtype();
        let a = left(call.inputs[0].ptr(), p.transpose_a, (m, k));
        let b = right(call.inputs[1].ptr(), p.transpose_b, (k, n));
        let product = Product::new(dtype, [m, n, k], count, a, b, call.outputs[0].ptr());
        product.issue(launcher, 0, add(call, 0))
    });
    vec![made.multiplies()]
}

/// `dA = dC Bᵀ` and `dB = Aᵀ dC`, each written in the layout of its input: of one that is
/// transposed the product itself is the transposed one.
fn dot_back(sizes: fn(&Call<'_>) -> Sizes) -> Vec<Kernel> {
    let types: &[_] = &[("data", FLOATS)];
    let made = Kernel::cuda("dense", &["matmul<$0>"], types, move |call, launcher| {
        let p = call.attrs.get::<DotParam>();
        let (count, (m, n, k)) = sizes(&Call { inputs: &call.inputs[1..], ..*call });
        let [g, a, b] = [0, 1, 2].map(|i| call.inputs[i].ptr());
        let dtype = call.inputs[0].dtype();
        if wanted(call, 0) {
            // Of (m, k): rows of g with columns of Bᵀ; of (k, m): rows of B with rows of g.
            let of_b = (right(b, p.transpose_b, (k, n))).1;
            let b_rows = Layout { row: of_b.near, near: of_b.row, ..of_b };
            let g_rows = Layout::rows(n as i64, (m * n) as i64);
            let to = call.outputs[0].ptr();
            let product = match p.transpose_a {
                false => Product::new(dtype, [m, k, n], count, (g, g_rows), (b, b_rows), to),
                true => Product::new(dtype, [k, m, n], count, (b, b_rows), (g, g_rows), to),
            };
            product.issue(launcher, 0, add(call, 0))?;
        }
        if wanted(call, 1) {
            let of_a = (left(a, p.transpose_a, (m, k))).1;
            let a_columns = Layout { row: of_a.near, near: of_a.row, ..of_a };
            let g_columns = Layout::columns(n as i64, (m * n) as i64);
            let to = call.outputs[1].ptr();
            let product = match p.transpose_b {
                false => Product::new(dtype, [k, n, m], count, (a, a_columns), (g, g_columns), to),
                true => Product::new(dtype, [n, k, m], count, (g, g_columns), (a, a_columns), to),
            };
            product.issue(launcher, 0, add(call, 1))?;
        }
        Ok(())
    });
    vec![made.multiplies()]
}

fn fully_connected() -> Vec<Kernel> {
    let functions = ["matmul<$0>", "add_bias<$0>"];
    let made = kernel("dense", &functions, &[("data", FLOATS)], |call, launcher| {
        let (rows, width, hidden) = extents(call.attrs, &call.inputs[0], &call.inputs[1]);
        let (x, w) = (call.inputs[0].ptr(), call.inputs[1].ptr());
        let of = |at| (at, Layout::rows(width as i64, 0));
        let dtype = call.outputs[0].dtype();
        let mut product =
            Product::new(dtype, [rows, hidden, width], 1, of(x), of(w), call.outputs[0].ptr());
        product.bias = call.inputs.get(2).map_or(std::ptr::null_mut(), View::ptr);
        product.issue(launcher, 0, add(call, 0))
    });
    vec![made.multiplies()]
}

fn fully_connected_back() -> Vec<Kernel> {
    let folds = fold_functions("SumFold<$0>");
    let functions = ["matmul<$0>", &folds[0], &folds[1], &folds[2]];
    let made = Kernel::cuda("dense", &functions, &[("data", FLOATS)], |call, launcher| {
        let [g, x, w] = call.inputs else { unreachable!("declared dependencies") };
        let (rows, width, hidden) = extents(call.attrs, x, w);
        let [wide, deep] = [width, hidden].map(|n| n as i64);
        let dtype = g.dtype();
        if wanted(call, 0) {
            let (a, b) = ((g.ptr(), Layout::rows(deep, 0)), (w.ptr(), Layout::columns(wide, 0)));
            let product =
                Product::new(dtype, [rows, width, hidden], 1, a, b, call.outputs[0].ptr());
            product.issue(launcher, 0, add(call, 0))?;
        }
        if wanted(call, 1) {
            let (a, b) = ((g.ptr(), Layout::columns(deep, 0)), (x.ptr(), Layout::columns(wide, 0)));
            let product =
                Product::new(dtype, [hidden, width, rows], 1, a, b, call.outputs[1].ptr());
            product.issue(launcher, 0, add(call, 1))?;
        }
        if call.outputs.len() > 2 && wanted(call, 2) {
            let fold = Fold::over(&Shape::new(&[rows as i64, deep]), &[true, false])?;
            fold.issue(launcher, 1, g.ptr(), call.outputs[2].ptr(), add(call, 2))?;
        }
        Ok(())
    });
    vec![made.multiplies()]
}

pub const TABLE: &[KernelsOf] = &[
    ("dot", || dot(dot_sizes)),
    ("batch_dot", || dot(batch_sizes)),
    ("_backward_dot", || dot_back(dot_sizes)),
    ("_backward_batch_dot", || dot_back(batch_sizes)),
    ("FullyConnected", fully_connected),
    ("_backward_FullyConnected", fully_connected_back),
];
