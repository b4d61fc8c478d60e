//! Random arrays, and slices by number.

use super::scatter::{Places, sorting};
use super::{FLOATS, KernelsOf, add, kernel, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::random::Span;
use crate::operator::{Call, Grid, Kernel, Launcher};
use crate::ops::tensor::distributions::Setting;
use crate::ops::tensor::indexing::take::{OneHotParam, TakeMode, TakeParam, take_axis};
use crate::ops::tensor::random::{NormalParam, UniformParam};
use crate::shape::Shape;
use crate::tensor::View;

fn uniform() -> Vec<Kernel> {
    vec![kernel("random", &["uniform<$0>"], &[("output", FLOATS)], |call, launcher| {
        let p = call.attrs.get::<UniformParam>();
        let [low, high] = p.checked()?;
        let (y, n) = (&call.outputs[0], call.outputs[0].size());
        let [low, width, last] = Span::new(y.dtype(), low, high).parts();
        let mut args = args![n as i64, y.ptr(), call.ctx.random, low, width, last, add(call, 0)];
        launcher.launch(0, Grid::over(n.div_ceil(4)), &mut args)
    })]
}

fn normal() -> Vec<Kernel> {
    vec![kernel("random", &["normal<$0>"], &[("output", FLOATS)], |call, launcher| {
        let p = call.attrs.get::<NormalParam>();
        let [mean, scale] = p.checked()?;
        let (y, n) = (&call.outputs[0], call.outputs[0].size());
        let mut args = args![n as i64, y.ptr(), call.ctx.random, mean, scale, add(call, 0)];
        launcher.launch(0, Grid::over(n.div_ceil(4)), &mut args)
    })]
}

/// Dtypes of numbers of slices.
const NUMBERS: &[DType] = &[DType::F32, DType::F64, DType::I32, DType::I64];
/// The modes of `indexing.cu`.
const CLIP: i32 = 0;
const WRAP: i32 = 1;
const RAISE: i32 = 2;

/// The extents of a `take`: elements before the axis, number of indices, extent of the axis,
/// elements after it.
struct Slices {
    taken: usize,
    extent: usize,
    inner: usize,
    mode: i32,
}

impl Slices {
    fn of_take(call: &Call<'_>, data: &Shape, indices: &View) -> Result<Self> {
        let axis = take_axis(call.attrs, data)?;
        let mode = call.attrs.get::<TakeParam>().mode;
        Ok(Slices {
            taken: indices.size(),
            extent: data.dims()[axis] as usize,
            inner: data.product(axis + 1..data.ndim()),
            mode: match mode {
                TakeMode::Clip => CLIP,
                TakeMode::Wrap => WRAP,
                TakeMode::Raise => RAISE,
            },
        })
    }

    fn of_rows(weight: &View, indices: &View) -> Self {
        let extent = weight.dims()[0] as usize;
        Slices { taken: indices.size(), extent, inner: weight.dims()[1] as usize, mode: CLIP }
    }

    /// Launches `take`, function 0, for every element of `to`.
    fn issue(
        &self,
        launcher: &mut dyn Launcher,
        from: &View,
        by: &View,
        to: &View,
        add: i32,
    ) -> Result<()> {
        let n = to.size();
        if n == 0 {
            return Ok(());
        }
        let [taken, extent, inner] = [self.taken, self.extent, self.inner].map(|n| n as i64);
        let at = [from, by, to].map(View::ptr);
        let mut args = args![n as i64, taken, extent, inner, at[0], at[1], at[2], self.mode, add];
        launcher.launch(0, Grid::over(n), &mut args)
    }

    /// The gradient of `take`: adds the rows of `g` to the rows of `to` that they were taken from,
    /// which are zeroed first unless the request is to add.
    fn issue_back(
        &self,
        launcher: &mut dyn Launcher,
        g: &View,
        by: &View,
        to: &View,
        add: i32,
    ) -> Result<()> {
        if add == 0 {
            launcher.clear(to.ptr(), to.size_bytes())?;
        }
        if g.size() == 0 || to.size() == 0 {
            return Ok(());
        }
        let places = Places::by_number(launcher, by, self.extent, self.mode)?;
        places.add(launcher, [self.extent, self.inner], g, to)
    }
}

/// The kernel of the gradient of slices: the first type is theirs, the second that of numbers.
fn taken_back(
    types: &[(&str, &'static [DType])],
    issue: impl Fn(&Call<'_>, &mut dyn Launcher) -> Result<()> + Send + Sync + 'static,
) -> Kernel {
    let [spans, steps] = sorting();
    let functions = [&*spans, &steps, "places_by_number<$1>", "add_slices<$0>"];
    Kernel::cuda("scatter", &functions, types, issue)
}

fn take() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("a", &DType::ALL), ("indices", NUMBERS)];
    vec![kernel("indexing", &["take<$0, $1>"], types, |call, launcher| {
        let [a, indices] = [0, 1].map(|i| &call.inputs[i]);
        let slices = Slices::of_take(call, a.shape(), indices)?;
        if slices.extent == 0 {
            return Err(crate::error::Error::index(format!(
                "take from an axis of shape {}: expected elements along it",
                a.shape()
            )));
        }
        slices.issue(launcher, a, indices, &call.outputs[0], add(call, 0))
    })]
}

/// Zeroes the gradient of numbers, which have none.
fn no_gradient(call: &Call<'_>, launcher: &mut dyn Launcher, i: usize) -> Result<()> {
    match wanted(call, i) && add(call, i) == 0 {
        true => launcher.clear(call.outputs[i].ptr(), call.outputs[i].size_bytes()),
        false => Ok(()),
    }
}

fn embedding() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("weight", FLOATS), ("data", NUMBERS)];
    vec![kernel("indexing", &["take<$0, $1>"], types, |call, launcher| {
        let [indices, weight] = [0, 1].map(|i| &call.inputs[i]);
        let slices = Slices::of_rows(weight, indices);
        slices.issue(launcher, weight, indices, &call.outputs[0], add(call, 0))
    })]
}

/// The inputs of the gradient are the output's gradient and the numbers.
fn embedding_back() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS), ("input1", NUMBERS)];
    vec![taken_back(types, |call, launcher| {
        no_gradient(call, launcher, 0)?;
        if !wanted(call, 1) {
            return Ok(());
        }
        let ([g, indices], to) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[1]);
        Slices::of_rows(to, indices).issue_back(launcher, g, indices, to, add(call, 1))
    })]
}

fn take_back() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", FLOATS), ("input1", NUMBERS)];
    vec![taken_back(types, |call, launcher| {
        no_gradient(call, launcher, 1)?;
        if !wanted(call, 0) {
            return Ok(());
        }
        let ([g, indices], to) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
        let slices = Slices::of_take(call, to.shape(), indices)?;
        slices.issue_back(launcher, g, indices, to, add(call, 0))
    })]
}

fn one_hot() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("output", FLOATS), ("indices", NUMBERS)];
    vec![kernel("indexing", &["one_hot<$0, $1>"], types, |call, launcher| {
        let (p, y) = (call.attrs.get::<OneHotParam>(), &call.outputs[0]);
        let (n, depth, from) = (y.size(), i64::from(p.depth), call.inputs[0].ptr());
        let mut args = args![n as i64, depth, from, y.ptr(), p.on_value, p.off_value, add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

pub const TABLE: &[KernelsOf] = &[
    ("_random_uniform", uniform),
    ("_random_normal", normal),
    ("take", take),
    ("_backward_take", take_back),
    ("Embedding", embedding),
    ("_backward_Embedding", embedding_back),
    ("one_hot", one_hot),
];
