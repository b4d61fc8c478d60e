//! Kernels that move elements, fill arrays or change dtypes.

use super::reduce::{Fold, fold_functions};
use super::{
    ARITHMETIC, FLOATS, KernelsOf, add, element, kernel, nearest_element, too_many_axes, wanted,
};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Axes, Call, Grid, Kernel, Launcher, OpReq};
use crate::ops::elementwise::sum_n::ClipParam;
use crate::ops::tensor::creation::{ArangeLikeParam, FullParam, RangeParam};
use crate::ops::tensor::moves::{Move, Path, PathFn, along};
use crate::shape::Shape;
use crate::tensor::View;

/// Launches function `function`, `copy<T>`, for the elements of two views of one shape.
pub fn copy_views(
    launcher: &mut dyn Launcher,
    function: usize,
    from: &View,
    to: &View,
    add: i32,
) -> Result<()> {
    let n = to.size();
    if n == 0 {
        return Ok(());
    }
    let axes = Axes::new(to.dims(), &[from.strides(), to.strides()]).ok_or_else(too_many_axes)?;
    let mut args = args![n as i64, from.ptr(), to.ptr(), axes, add];
    launcher.launch(function, Grid::over(n), &mut args)
}

/// The kernel of an operator that consists of copies; outputs that these do not fill become 0 first
/// if `sparse`. `tensor` is an array whose dtype all have.
pub fn moving(
    tensor: &str,
    sparse: bool,
    moves: impl Fn(&Call<'_>) -> Result<Vec<Move>> + Send + Sync + 'static,
) -> Kernel {
    let types: &[(&str, &'static [DType])] = &[(tensor, &DType::ALL)];
    Kernel::cuda("shape", &["copy<$0>"], types, move |call, launcher| {
        if sparse {
            for (out, req) in call.outputs.iter().zip(call.req) {
                if !matches!(req, OpReq::Null | OpReq::Add) {
                    launcher.clear(out.ptr(), out.size_bytes())?;
                }
            }
        }
        if call.req.iter().all(|r| *r == OpReq::Null) {
            return Ok(());
        }
        for Move { from, to, output } in moves(call)? {
            if call.req[output] != OpReq::Null {
                copy_views(launcher, 0, &from, &to, add(call, output))?;
            }
        }
        Ok(())
    })
}

/// The kernel of an operator whose output is a path over its input.
pub fn on_path(tensor: &str, path: PathFn) -> Kernel {
    let types: &[(&str, &'static [DType])] = &[(tensor, &DType::ALL)];
    kernel("shape", &["copy<$0>"], types, move |call, launcher| {
        let shapes: Vec<Shape> = call.inputs.iter().map(|v| v.shape().clone()).collect();
        let (p, out) = (path(call.attrs, &shapes)?, &call.outputs[0]);
        let to = out.reshaped(Shape::from(&p.dims[..]));
        copy_views(launcher, 0, &along(&p, &call.inputs[0]), &to, add(call, 0))
    })
}

/// Its gradient: elements that no output came from get 0, those that repeat get the sum.
pub fn back_on_path(tensor: &str, path: PathFn) -> Kernel {
    let folds = fold_functions("SumFold<$0>");
    let functions = ["copy<$0>", &folds[0], &folds[1], &folds[2]];
    let types: &[(&str, &'static [DType])] = &[(tensor, FLOATS)];
    Kernel::cuda("movement", &functions, types, move |call, launcher| {
        for i in (1..call.outputs.len()).filter(|i| wanted(call, *i)) {
            if call.req[i] != OpReq::Add {
                launcher.clear(call.outputs[i].ptr(), call.outputs[i].size_bytes())?;
            }
        }
        if !wanted(call, 0) {
            return Ok(());
        }
        let shapes: Vec<Shape> = call.outputs.iter().map(|v| v.shape().clone()).collect();
        back_along(&path(call.attrs, &shapes)?, call, launcher)
    })
}

fn back_along(p: &Path, call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let (g, to) = (&call.inputs[0], &call.outputs[0]);
    let repeats: Vec<bool> =
        p.dims.iter().zip(&p.strides).map(|(&d, &s)| s == 0 && d > 1).collect();
    let dims = Shape::from(&p.dims[..]);
    if repeats.contains(&true) {
        let fold = Fold::over(&dims, &repeats)?;
        return fold.issue(launcher, 1, g.ptr(), to.ptr(), add(call, 0));
    }
    if g.size() < to.size() && call.req[0] != OpReq::Add {
        launcher.clear(to.ptr(), to.size_bytes())?;
    }
    copy_views(launcher, 0, &g.reshaped(dims), &along(p, to), add(call, 0))
}

/// The output has the input's elements in their order.
pub fn same_order(tensor: &'static str) -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[(tensor, &DType::ALL)];
    vec![kernel("shape", &["copy<$0>"], types, |call, launcher| {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        if x.ptr() == y.ptr() && call.req[0] != OpReq::Add {
            return Ok(());
        }
        if call.req[0] != OpReq::Add {
            return launcher.copy(y.ptr(), x.ptr(), y.size_bytes());
        }
        let flat = |v: &View| v.reshaped(Shape::flat(v.size()));
        copy_views(launcher, 0, &flat(x), &flat(y), 1)
    })]
}

fn filled(value: fn(&Call<'_>) -> f64) -> Vec<Kernel> {
    filling("output", value)
}

/// Every element is `value` of the call. `tensor` is an array whose dtype the output has.
pub fn filling(tensor: &str, value: fn(&Call<'_>) -> f64) -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[(tensor, &DType::ALL)];
    vec![kernel("shape", &["fill<$0>"], types, move |call, launcher| {
        let (y, value) = (&call.outputs[0], value(call));
        if value.to_bits() == 0 && call.req[0] != OpReq::Add {
            return launcher.clear(y.ptr(), y.size_bytes());
        }
        let n = y.size();
        let mut args = args![n as i64, y.ptr(), element(y.dtype(), value), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn arange() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] =
        &[("output", &[DType::F32, DType::F64, DType::I32, DType::I64])];
    vec![kernel("shape", &["range<$0>"], types, |call, launcher| {
        let (p, y) = (call.attrs.get::<RangeParam>(), &call.outputs[0]);
        let start = if p.stop.is_some() || p.infer_range { p.start } else { 0.0 };
        let n = y.size();
        let mut args = args![n as i64, y.ptr(), start, p.step, i64::from(p.repeat), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn arange_like() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] =
        &[("data", &[DType::F32, DType::F64, DType::I32, DType::I64])];
    vec![kernel("shape", &["range<$0>"], types, |call, launcher| {
        let (p, y, n) =
            (call.attrs.get::<ArangeLikeParam>(), &call.outputs[0], call.outputs[0].size());
        let repeat = i64::from(p.repeat);
        let mut args = args![n as i64, y.ptr(), p.start, p.step, repeat, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn cast() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", &DType::ALL), ("output", &DType::ALL)];
    vec![kernel("shape", &["cast<$0, $1>"], types, issue_cast)]
}

fn cast_back() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS), ("output", FLOATS)];
    vec![kernel("shape", &["cast<$0, $1>"], types, issue_cast)]
}

fn issue_cast(call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
    let (x, y, n) = (&call.inputs[0], &call.outputs[0], call.outputs[0].size());
    let mut args = args![n as i64, x.ptr(), y.ptr(), add(call, 0)];
    launcher.launch(0, Grid::over(n), &mut args)
}

/// The first two arrays are added, then one after another.
fn add_n() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("output", ARITHMETIC)];
    vec![kernel("shape", &["add_two<$0>", "copy<$0>"], types, |call, launcher| {
        let (y, n) = (&call.outputs[0], call.outputs[0].size());
        let flat = |v: &View| v.reshaped(Shape::flat(v.size()));
        let [a, rest @ ..] = call.inputs else { return Ok(()) };
        let Some((b, rest)) = rest.split_first() else {
            return copy_views(launcher, 1, &flat(a), &flat(y), add(call, 0));
        };
        let mut args = args![n as i64, a.ptr(), b.ptr(), y.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)?;
        rest.iter().try_for_each(|x| copy_views(launcher, 1, &flat(x), &flat(y), 1))
    })]
}

/// The limits of a call as elements of `dtype`.
fn limits(call: &Call<'_>, dtype: DType) -> [[u8; 8]; 2] {
    let p = call.attrs.get::<ClipParam>();
    [p.a_min, p.a_max].map(|limit| nearest_element(dtype, limit.into()))
}

fn clip() -> Vec<Kernel> {
    vec![kernel("shape", &["clip<$0>"], &[("data", ARITHMETIC)], |call, launcher| {
        let (x, y, n) = (&call.inputs[0], &call.outputs[0], call.outputs[0].size());
        let [low, high] = limits(call, y.dtype());
        let mut args = args![n as i64, x.ptr(), y.ptr(), low, high, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn clip_back() -> Vec<Kernel> {
    vec![kernel("shape", &["clip_back<$0>"], &[("output", ARITHMETIC)], |call, launcher| {
        let (g, x, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        let ([low, high], n) = (limits(call, y.dtype()), y.size());
        let mut args = args![n as i64, g.ptr(), x.ptr(), y.ptr(), low, high, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

fn choose() -> Vec<Kernel> {
    let conditions: &[DType] = &[DType::F32, DType::F64, DType::I32, DType::Bool];
    let types: &[(&str, &'static [DType])] = &[("x", FLOATS), ("condition", conditions)];
    vec![kernel("shape", &["choose<$0, $1>"], types, |call, launcher| {
        let [condition, a, b] = [0, 1, 2].map(|i| &call.inputs[i]);
        let (y, n) = (&call.outputs[0], call.outputs[0].size());
        let inner = (n / condition.size().max(1)) as i64;
        let from = condition.ptr();
        let mut args = args![n as i64, inner, from, a.ptr(), b.ptr(), y.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("_copy", || same_order("data")),
    ("BlockGrad", || same_order("data")),
    ("Reshape", || same_order("data")),
    ("Flatten", || same_order("data")),
    ("expand_dims", || same_order("data")),
    ("squeeze", || same_order("data")),
    ("_backward_copy", || same_order("ograd")),
    ("_zeros", || filled(|_| 0.0)),
    ("_ones", || filled(|_| 1.0)),
    ("_full", || filled(|call| call.attrs.get::<FullParam>().value)),
    ("zeros_like", || filled(|_| 0.0)),
    ("ones_like", || filled(|_| 1.0)),
    ("_arange", arange),
    ("_contrib_arange_like", arange_like),
    ("Cast", cast),
    ("_backward_cast", cast_back),
    ("amp_cast", cast),
    ("_backward_amp_cast", cast_back),
    ("add_n", add_n),
    ("clip", clip),
    ("_backward_clip", clip_back),
    ("where", choose),
];
