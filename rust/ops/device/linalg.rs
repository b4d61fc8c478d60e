//! Triangular systems, factorisations and parts of matrices, of which there are many small ones.

use super::{FLOATS, KernelsOf, add, begin, computed_bytes, kernel, target, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Argument, Call, Grid, Kernel, Launcher};
use crate::ops::linalg::diagonal::{Part as PartOf, part};
use crate::ops::linalg::factor::CholeskyParam;
use crate::ops::linalg::matrices;
use crate::ops::linalg::triangular::TriangularParam;
use crate::tensor::View;
use std::ptr::null_mut;

/// Bytes of the matrices that blocks work on at once, at most; at least those of one block.
const MOST_ROOM: usize = 256 << 20;

/// A triangular matrix and right-hand sides: `Sides` of `linalg.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Sides {
    n: i64,
    m: i64,
    row: i64,
    column: i64,
    to_row: i64,
    to_column: i64,
    lower: i64,
}

// SAFETY: seven numbers, as in CUDA source.
unsafe impl Argument for Sides {}

impl Sides {
    /// Of `n` rows, and results of (rows, columns). With A to the right all is transposed.
    fn of(p: &TriangularParam, n: usize, (rows, columns): (usize, usize)) -> Self {
        let turned = p.transpose != p.rightside;
        let [n, rows, columns] = [n, rows, columns].map(|n| n as i64);
        let (row, column) = if turned { (1, n) } else { (n, 1) };
        let (to_row, to_column) = if p.rightside { (1, columns) } else { (columns, 1) };
        let lower = i64::from(p.lower != turned);
        Sides { n, m: rows * columns / n, row, column, to_row, to_column, lower }
    }
}

fn triangular(multiplies: bool) -> Vec<Kernel> {
    vec![kernel("linalg", &["triangular<$0>"], &[("A", FLOATS)], move |call, launcher| {
        let p = call.attrs.get::<TriangularParam>();
        let ([a, b], y) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
        let ((n, ..), (rows, columns, count)) = (matrices(a), matrices(y));
        let sides = Sides::of(p, n, (rows, columns));
        let room = launcher.memory().take(computed_bytes(y.dtype(), y.size()))?;
        let multiplies = i32::from(multiplies);
        let mut args = args![
            count as i64,
            sides,
            a.ptr(),
            b.ptr(),
            room,
            y.ptr(),
            p.alpha,
            multiplies,
            add(call, 0)
        ];
        launcher.launch(0, Grid::over(count * sides.m as usize), &mut args)
    })]
}

/// The Cholesky factor, and the inverse from it.
fn of_factor(function: &'static str, grid: fn(usize, usize) -> Grid) -> Vec<Kernel> {
    vec![kernel("linalg", &[function], &[("A", FLOATS)], move |call, launcher| {
        let (a, y) = (&call.inputs[0], &call.outputs[0]);
        let (n, _, count) = matrices(a);
        let room = launcher.memory().take(computed_bytes(a.dtype(), a.size()))?;
        let lower = i32::from(call.attrs.get::<CholeskyParam>().lower);
        let mut args = args![count as i64, n as i64, a.ptr(), room, y.ptr(), lower, add(call, 0)];
        launcher.launch(0, grid(count, n), &mut args)
    })]
}

/// A grid of at most `count` blocks, which take `count` matrices in turn, and their scratch memory:
/// for each block `numbers` numbers (`room`) and a permutation of `places` rows (`order`).
struct Blocks {
    grid: Grid,
    room: *mut u8,
    order: *mut u8,
}

impl Blocks {
    fn new(
        launcher: &dyn Launcher,
        dtype: DType,
        [count, numbers, places]: [usize; 3],
    ) -> Result<Self> {
        let each = computed_bytes(dtype, numbers) + places * size_of::<i64>();
        let grid = Grid::blocks(count.min((MOST_ROOM / each.max(1)).max(1)));
        let blocks = grid.blocks[0] as usize;
        Ok(Blocks {
            grid,
            room: launcher.memory().take(computed_bytes(dtype, blocks * numbers).max(1))?,
            order: launcher.memory().take((blocks * places * size_of::<i64>()).max(1))?,
        })
    }
}

/// Inverses of input `at`, or the gradient of its determinants, from their own and from them.
fn invert(
    call: &Call<'_>,
    launcher: &mut dyn Launcher,
    at: usize,
    [slope, determinant]: [*mut u8; 2],
) -> Result<()> {
    let (a, y) = (&call.inputs[at], &call.outputs[0]);
    let (n, _, count) = matrices(a);
    let b = Blocks::new(launcher, a.dtype(), [count, 2 * n * n, n])?;
    let mut args = args![
        count as i64,
        n as i64,
        a.ptr(),
        slope,
        determinant,
        b.room,
        b.order,
        y.ptr(),
        add(call, 0)
    ];
    launcher.launch(0, b.grid, &mut args)
}

fn inverse() -> Vec<Kernel> {
    vec![kernel("linalg", &["invert<$0>"], &[("A", FLOATS)], |call, launcher| {
        invert(call, launcher, 0, [null_mut(); 2])
    })]
}

/// Inputs are the gradient, the matrices and, unless it is that of the logarithm, determinants.
fn determinant_back() -> Vec<Kernel> {
    vec![kernel("linalg", &["invert<$0>"], &[("data", FLOATS)], |call, launcher| {
        let determinant = call.inputs.get(2).map_or(null_mut(), View::ptr);
        invert(call, launcher, 1, [call.inputs[0].ptr(), determinant])
    })]
}

fn determinants(pair: bool) -> Vec<Kernel> {
    vec![Kernel::cuda("linalg", &["determinants<$0>"], &[("A", FLOATS)], move |call, launcher| {
        let a = &call.inputs[0];
        let (n, _, count) = matrices(a);
        if count == 0 || !(0..call.outputs.len()).any(|i| wanted(call, i)) {
            return Ok(());
        }
        let b = Blocks::new(launcher, a.dtype(), [count, n * n, n])?;
        let (y, logs) = (target(call, 0), if pair { target(call, 1) } else { null_mut() });
        let [adds, adds_logs] = [add(call, 0), if pair { add(call, 1) } else { 0 }];
        let mut args = args![
            count as i64,
            n as i64,
            a.ptr(),
            b.room,
            b.order,
            y,
            logs,
            i32::from(pair),
            adds,
            adds_logs
        ];
        launcher.launch(0, b.grid, &mut args)
    })]
}

/// Two outputs by a function that takes their addresses.
fn two_outputs(call: &Call<'_>) -> Option<([*mut u8; 2], [i32; 2])> {
    let wants = wanted(call, 0) || wanted(call, 1);
    wants.then(|| ([0, 1].map(|i| target(call, i)), [0, 1].map(|i| add(call, i))))
}

fn lq() -> Vec<Kernel> {
    vec![Kernel::cuda("linalg", &["lq<$0>"], &[("A", FLOATS)], |call, launcher| {
        let a = &call.inputs[0];
        let (m, n, count) = matrices(a);
        let Some(([q, l], [add_q, add_l])) = two_outputs(call).filter(|_| a.size() > 0) else {
            return Ok(());
        };
        let b = Blocks::new(launcher, a.dtype(), [count, m * n + m, 0])?;
        let [count, m, n] = [count, m, n].map(|n| n as i64);
        let mut args = args![count, m, n, a.ptr(), b.room, q, l, add_q, add_l];
        launcher.launch(0, b.grid, &mut args)
    })]
}

fn eigen() -> Vec<Kernel> {
    vec![Kernel::cuda("linalg", &["eigen<$0>"], &[("A", FLOATS)], |call, launcher| {
        let a = &call.inputs[0];
        let (n, _, count) = matrices(a);
        let Some(([u, l], [add_u, add_l])) = two_outputs(call).filter(|_| a.size() > 0) else {
            return Ok(());
        };
        let b = Blocks::new(launcher, a.dtype(), [count, 2 * n * n + n, n])?;
        let [count, n] = [count, n].map(|n| n as i64);
        let mut args = args![count, n, a.ptr(), b.room, b.order, u, l, add_u, add_l];
        launcher.launch(0, b.grid, &mut args)
    })]
}

fn eigen_back() -> Vec<Kernel> {
    vec![kernel("linalg", &["eigen_back<$0>"], &[("data", FLOATS)], |call, launcher| {
        let [du, dl, u, l] = [0, 1, 2, 3].map(|i| call.inputs[i].ptr());
        let (dx, dtype) = (call.outputs[0].ptr(), call.outputs[0].dtype());
        let (n, _, count) = matrices(&call.inputs[2]);
        let b = Blocks::new(launcher, dtype, [count, 2 * n * n, 0])?;
        let [count, n] = [count, n].map(|n| n as i64);
        let mut args = args![count, n, du, dl, u, l, b.room, dx, add(call, 0)];
        launcher.launch(0, b.grid, &mut args)
    })]
}

/// The part of a matrix that a vector holds: `Part` of `linalg.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Part {
    n: i64,
    down: i64,
    right: i64,
    length: i64,
    triangle: i32,
    lower: i32,
}

// SAFETY: numbers, as in CUDA source.
unsafe impl Argument for Part {}

/// The part of a call on these matrices and vectors, and their number.
fn part_of(call: &Call<'_>, whole: &View, vector: &View) -> (Part, usize) {
    let ((n, _, count), length) = (matrices(whole), vector.dims()[vector.ndim() - 1]);
    let of = part(call.attrs);
    let (down, right) = ((-of.offset()).max(0), of.offset().max(0));
    let [triangle, lower] = match of {
        PartOf::Diagonal(_) => [0, 0],
        PartOf::Triangle { lower, .. } => [1, i32::from(lower)],
    };
    (Part { n: n as i64, down, right, length, triangle, lower }, count)
}

fn extract() -> Vec<Kernel> {
    vec![kernel("linalg", &["part_of<$0>"], &[("A", FLOATS)], |call, launcher| {
        let (a, y) = (&call.inputs[0], &call.outputs[0]);
        let (part, count) = part_of(call, a, y);
        let mut args = args![count as i64, part, a.ptr(), y.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(y.size()), &mut args)
    })]
}

fn make() -> Vec<Kernel> {
    vec![kernel("linalg", &["whole_of_part<$0>"], &[("A", FLOATS)], |call, launcher| {
        begin(call, launcher, 0)?;
        let (v, y) = (&call.inputs[0], &call.outputs[0]);
        let (part, count) = part_of(call, y, v);
        let mut args = args![count as i64, part, v.ptr(), y.ptr()];
        launcher.launch(0, Grid::over(v.size()), &mut args)
    })]
}

fn log_diagonal() -> Vec<Kernel> {
    vec![kernel("linalg", &["log_diagonal<$0>"], &[("A", FLOATS)], |call, launcher| {
        let (n, _, count) = matrices(&call.inputs[0]);
        let [a, y] = [call.inputs[0].ptr(), call.outputs[0].ptr()];
        let mut args = args![count as i64, n as i64, a, y, add(call, 0)];
        launcher.launch(0, Grid::over(count), &mut args)
    })]
}

fn log_diagonal_back() -> Vec<Kernel> {
    vec![kernel("linalg", &["log_diagonal_back<$0>"], &[("data", FLOATS)], |call, launcher| {
        begin(call, launcher, 0)?;
        let (n, _, count) = matrices(&call.inputs[1]);
        let [g, a] = [0, 1].map(|i| call.inputs[i].ptr());
        let mut args = args![count as i64, n as i64, g, a, call.outputs[0].ptr()];
        launcher.launch(0, Grid::over(count * n), &mut args)
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("_linalg_trmm", || triangular(true)),
    ("_linalg_trsm", || triangular(false)),
    ("_linalg_potrf", || of_factor("cholesky<$0>", |count, _| Grid::blocks(count))),
    ("_linalg_potri", || of_factor("inverse_of_factor<$0>", |count, n| Grid::over(count * n))),
    ("_linalg_inverse", inverse),
    ("_linalg_det", || determinants(false)),
    ("_backward_linalg_det", determinant_back),
    ("_linalg_slogdet", || determinants(true)),
    ("_backward_linalg_slogdet", determinant_back),
    ("_linalg_gelqf", lq),
    ("_linalg_syevd", eigen),
    ("_backward_linalg_syevd", eigen_back),
    ("_linalg_extractdiag", extract),
    ("_linalg_makediag", make),
    ("_linalg_extracttrian", extract),
    ("_linalg_maketrian", make),
    ("_linalg_sumlogdiag", log_diagonal),
    ("_backward_linalg_sumlogdiag", log_diagonal_back),
];
