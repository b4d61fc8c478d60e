//! Reductions over axes, their gradients, and positions of extremes.

use super::{FLOATS, KernelsOf, NUMBERS, add, kernel, too_many_axes};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::broadcast::broadcast_strides;
use crate::operator::{Attrs, Axes, Call, Compare, Grid, Kernel, Launcher, Match};
use crate::ops::tensor::common::something_to_choose;
use crate::ops::tensor::reduce::Axes as Reduced;
use crate::ops::tensor::reduce::{arg_axis, axes, norm_axes, rows, unreduced};
use crate::shape::Shape;

/// The functions of a fold, in the order in which [`Fold::issue`] expects them.
pub fn fold_functions(fold: &str) -> [String; 3] {
    ["reduce_rows", "reduce_columns", "reduce_parts"].map(|f| format!("{f}<{fold}, $0>"))
}

/// The axes of a reduction, laid out for a device.
pub struct Fold {
    outputs: usize,
    count: usize,
    kept: Axes,
    reduced: Axes,
    /// Do elements that are folded lie side by side?
    by_rows: bool,
}

impl Fold {
    /// Blocks that keep a large device busy.
    const BUSY: usize = 1024;
    /// Elements of a block's part, at least.
    const PART: usize = 2048;

    /// A fold over the axes of an array of this shape that are set in `flags`.
    pub fn over(shape: &Shape, flags: &[bool]) -> Result<Fold> {
        let steps = shape.strides();
        let side = |reduced: bool| {
            let axes = (0..shape.ndim()).filter(|i| flags[*i] == reduced);
            let (extents, steps): (Vec<_>, Vec<_>) =
                axes.map(|i| (shape.dims()[i], steps[i])).unzip();
            let count = extents.iter().product::<i64>() as usize;
            Ok((count, Axes::new(&extents, &[&steps]).ok_or_else(too_many_axes)?))
        };
        let ((outputs, kept), (count, reduced)) = (side(false)?, side(true)?);
        let last = (0..shape.ndim()).rev().find(|i| shape.dims()[*i] != 1);
        Ok(Fold { outputs, count, kept, reduced, by_rows: last.is_none_or(|i| flags[i]) })
    }

    /// The fold over the axes along which an array of shape `part` was repeated to the shape
    /// `full`.
    pub fn repetitions(full: &Shape, part: &Shape) -> Result<Fold> {
        let skip = full.ndim() - part.ndim();
        let dims = full.dims().iter().enumerate();
        let flags: Vec<_> =
            dims.map(|(i, d)| i < skip || (part.dims()[i - skip] == 1 && *d != 1)).collect();
        Fold::over(full, &flags)
    }

    /// Launches the functions of [`fold_functions`], which begin at number `function`.
    pub fn issue(
        &self,
        launcher: &mut dyn Launcher,
        function: usize,
        x: *mut u8,
        y: *mut u8,
        add: i32,
    ) -> Result<()> {
        let (outputs, count) = (self.outputs as i64, self.count as i64);
        if outputs == 0 {
            return Ok(());
        }
        if !self.by_rows && self.outputs >= Self::BUSY {
            let mut args = args![outputs, count, x, y, self.kept, self.reduced, add];
            return launcher.launch(function + 1, Grid::over(self.outputs), &mut args);
        }
        let most = self.count.div_ceil(Self::PART).max(1);
        let parts = (Self::BUSY / self.outputs).clamp(1, most);
        let room = if parts > 1 { launcher.memory().take(8 * parts * self.outputs)? } else { y };
        let mut grid = Grid::blocks(self.outputs);
        grid.blocks[1] = parts as u32;
        let mut args = args![outputs, count, x, y, room, self.kept, self.reduced, add];
        launcher.launch(function, grid, &mut args)?;
        if parts > 1 {
            let mut args = args![outputs, count, parts as i64, room, y, add];
            launcher.launch(function + 2, Grid::over(self.outputs), &mut args)?;
        }
        Ok(())
    }
}

type AxesOf = fn(&Attrs) -> Reduced<'_>;

fn folding(fold: &str, dtypes: &'static [DType], axes: AxesOf) -> Kernel {
    let functions = fold_functions(&format!("{fold}<$0>"));
    let functions = [&*functions[0], &functions[1], &functions[2]];
    let chooses = ["MaxFold", "MinFold"].contains(&fold);
    kernel("reduce", &functions, &[("data", dtypes)], move |call, launcher| {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        if chooses && y.size() > 0 {
            something_to_choose(x, x.size())?;
        }
        let flags = axes(call.attrs).flags(x.shape())?;
        let fold = Fold::over(x.shape(), &flags)?;
        fold.issue(launcher, 0, x.ptr(), y.ptr(), add(call, 0))
    })
}

fn spreading(slope: &str, dtypes: &'static [DType], axes: AxesOf) -> Kernel {
    let function = format!("spread<{slope}, $0>");
    kernel("reduce", &[&function], &[("ograd", dtypes)], move |call, launcher| {
        let out = &call.outputs[0];
        let flags = axes(call.attrs).flags(out.shape())?;
        let g = unreduced(&call.inputs[0], &flags, out.dims());
        let steps = broadcast_strides(g.shape(), out.shape());
        let at = Axes::new(out.dims(), &[&steps]).ok_or_else(too_many_axes)?;
        let extents = out.dims().iter().zip(&flags).filter(|d| *d.1);
        let count = extents.map(|d| *d.0).product::<i64>().max(1);
        let (n, given) = (out.size(), |i: usize| call.inputs.get(i).map_or(null(), |v| v.ptr()));
        let mut args =
            args![n as i64, count, g.ptr(), given(1), given(2), out.ptr(), at, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })
}

fn null() -> *mut u8 {
    std::ptr::null_mut()
}

/// Norms of these are calculated in double precision, which holds their squares.
const SINGLE: &[DType] = &[DType::F32, DType::F16];

/// Positions among these have their dtype; among others they are float32.
const WIDE: &[DType] = &[DType::F64, DType::I32, DType::I64];
const NARROW: &[DType] = &[DType::F32, DType::F16, DType::U8, DType::I8];

fn norms(make: fn(&str, &'static [DType], AxesOf) -> Kernel, names: [&str; 2]) -> Vec<Kernel> {
    let is = |name: &str, value: &str| Match::Attr(name.into(), Compare::Eq, value.into());
    let norm = |name: &str, dtypes, ord| {
        make(name, dtypes, norm_axes).only(is("ord", ord)).only(is("out_dtype", "None"))
    };
    let double = if names[1] == "Norm2Fold" { "HypotFold" } else { names[1] };
    vec![norm(names[0], FLOATS, "1"), norm(names[1], SINGLE, "2"), norm(double, &[DType::F64], "2")]
}

type AxisOf = fn(&Attrs) -> (Option<i64>, bool);

fn positions(axis: AxisOf, sign: i32) -> Vec<Kernel> {
    let kinds = [("position<$0, $0>", WIDE), ("position<$0, float>", NARROW)];
    kinds.map(|(function, dtypes)| position(function, dtypes, axis, sign)).into()
}

fn position(function: &str, dtypes: &'static [DType], axis: AxisOf, sign: i32) -> Kernel {
    kernel("reduce", &[function], &[("data", dtypes)], move |call: &Call<'_>, launcher| {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        let (count, length, distance) = rows(x.shape(), axis(call.attrs).0)?;
        something_to_choose(x, length)?;
        let [count, length, distance] = [count, length, distance].map(|n| n as i64);
        let mut args = args![count, length, distance, x.ptr(), y.ptr(), sign, add(call, 0)];
        launcher.launch(0, Grid::blocks(count as usize), &mut args)
    })
}

pub const TABLE: &[KernelsOf] = &[
    ("sum", || vec![folding("SumFold", NUMBERS, axes)]),
    ("mean", || vec![folding("MeanFold", FLOATS, axes)]),
    ("prod", || vec![folding("ProdFold", FLOATS, axes)]),
    ("nansum", || vec![folding("NanSumFold", FLOATS, axes)]),
    ("nanprod", || vec![folding("NanProdFold", FLOATS, axes)]),
    ("max", || vec![folding("MaxFold", NUMBERS, axes)]),
    ("min", || vec![folding("MinFold", NUMBERS, axes)]),
    ("norm", || norms(folding, ["Norm1Fold", "Norm2Fold"])),
    ("_backward_sum", || vec![spreading("SameSlope", FLOATS, axes)]),
    ("_backward_mean", || vec![spreading("MeanSlope", FLOATS, axes)]),
    ("_backward_prod", || vec![spreading("ShareSlope", FLOATS, axes)]),
    ("_backward_nansum", || vec![spreading("NotNanSlope", FLOATS, axes)]),
    ("_backward_nanprod", || vec![spreading("NotNanShareSlope", FLOATS, axes)]),
    ("_backward_reduce_max", || vec![spreading("ExtremeSlope", FLOATS, axes)]),
    ("_backward_norm", || norms(spreading, ["SignSlope", "DirectionSlope"])),
    ("argmax", || positions(arg_axis, 1)),
    ("argmin", || positions(arg_axis, -1)),
    ("argmax_channel", || positions(|_| (Some(1), false), 1)),
];
